//! Durations of one thing done many times, and how they are told.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Times(pub(crate) Vec<f64>);

impl Times {
    /// Takes the time of work that must say that it went well.
    pub(crate) fn time(&mut self, work: impl FnOnce() -> Result<bool>) -> Result<()> {
        let well = self.take(work)?;
        ensure!(well, "a process did not end well");
        Ok(())
    }

    /// Takes the time of work that gives something.
    pub(crate) fn take<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let value = work()?;
        self.0.push(begun.elapsed().as_secs_f64() * 1000.0);
        Ok(value)
    }

    /// The nearest rank.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn told(&self) -> Value {
        json!({
            "count": self.0.len(), "p50_ms": hundredths(self.percentile(50)),
            "p90_ms": hundredths(self.percentile(90)), "p99_ms": hundredths(self.percentile(99)),
            "max_ms": hundredths(self.percentile(100)),
        })
    }
}

/// How many times as long the one takes as the other.
pub(crate) fn ratio(a: &Times, b: &Times, percent: usize) -> f64 {
    (a.percentile(percent) / b.percentile(percent) * 10.0).round() / 10.0
}

pub(crate) fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Processor time in milliseconds that a process has taken so far, and that its children had that it has
/// waited for. In steps of ten milliseconds, so divide what many questions took.
pub(crate) fn processor_ms(pid: &str) -> Result<(f64, f64)> {
    /// What the kernel counts in, on every Linux.
    const MS_PER_TICK: f64 = 10.0;
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = line.rsplit_once(") ").context("no process")?;
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let [user, system, user_children, system_children] = ticks[..] else { anyhow::bail!("a short line") };
    Ok(((user + system) * MS_PER_TICK, (user_children + system_children) * MS_PER_TICK))
}
