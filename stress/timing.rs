//! Durations of repeated work, with their percentiles and ratios.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Durations in milliseconds, in the order of measurement.
#[derive(Clone, Default)]
pub(crate) struct Durations(pub(crate) Vec<f64>);

impl Durations {
    /// Measures work that returns whether it succeeded; fails if it did not.
    pub(crate) fn measure_ok(&mut self, work: impl FnOnce() -> Result<bool>) -> Result<()> {
        let succeeded = self.measure(work)?;
        ensure!(succeeded, "a measured process failed");
        Ok(())
    }

    /// Measures work and returns its result.
    pub(crate) fn measure<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let value = work()?;
        self.0.push(started.elapsed().as_secs_f64() * 1000.0);
        Ok(value)
    }

    /// The percentile by nearest rank; NaN without measurements.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn summary(&self) -> Value {
        json!({
            "count": self.0.len(), "p50_ms": hundredths(self.percentile(50)),
            "p90_ms": hundredths(self.percentile(90)), "p99_ms": hundredths(self.percentile(99)),
            "max_ms": hundredths(self.percentile(100)),
        })
    }
}

/// The ratio `a / b` of a percentile, to one decimal.
pub(crate) fn ratio(a: &Durations, b: &Durations, percent: usize) -> f64 {
    (a.percentile(percent) / b.percentile(percent) * 10.0).round() / 10.0
}

pub(crate) fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Processor time in milliseconds of a process, and of its children that it has waited for.
///
/// The resolution is ten milliseconds: measure many repetitions and divide.
pub(crate) fn processor_ms(pid: &str) -> Result<(f64, f64)> {
    /// Linux reports 100 ticks a second to user space.
    const MS_PER_TICK: f64 = 10.0;
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = line.rsplit_once(") ").context("unexpected /proc/PID/stat")?;
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let [user, system, user_children, system_children] = ticks[..] else {
        anyhow::bail!("unexpected /proc/PID/stat")
    };
    Ok(((user + system) * MS_PER_TICK, (user_children + system_children) * MS_PER_TICK))
}
