//! Counts requests and measures steps, and writes the numbers as Prometheus reads them (text format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::parts::Metric;

/// The upper bounds of the histograms, in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// A part of the work on a request whose duration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Who the token belongs to.
    Token,
    /// The look-up in that.
    LookUp,
    /// The record of a refusal.
    Audit,
    /// Reading the body.
    Body,
    /// Parsing it.
    Parse,
    /// Storing or finding a capture.
    Capture,
    /// Answering a question.
    Question,
    /// Whether the database is well, and its numbers.
    Health,
    /// The whole request.
    Request,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::LookUp => "look_up",
            Self::Audit => "audit",
            Self::Parse => "parse",
            Self::Body => "body",
            Self::Capture => "capture",
            Self::Question => "question",
            Self::Health => "health",
            Self::Request => "request",
        }
    }
}

/// The server's own numbers. All label values come from fixed sets.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    requests: BTreeMap<(&'static str, u16), u64>,
    refused: BTreeMap<&'static str, u64>,
    steps: BTreeMap<Step, Histogram>,
}

#[derive(Clone, Copy, Default)]
struct Histogram {
    /// How many fell up to each bound, and above the last one.
    counts: [u64; BOUNDS.len() + 1],
    sum_seconds: f64,
}

impl Metrics {
    pub(crate) fn count_request(&self, route: &'static str, status: u16) {
        self.change(|counts| *counts.requests.entry((route, status)).or_default() += 1);
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.change(|counts| *counts.refused.entry(reason).or_default() += 1);
    }

    pub(crate) fn observe(&self, step: Step, took: Duration) {
        self.change(|counts| {
            let histogram = counts.steps.entry(step).or_default();
            let seconds = took.as_secs_f64();
            let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
            histogram.counts[bucket] += 1;
            histogram.sum_seconds += seconds;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All counters; of a histogram, its sum and count.
    pub(crate) fn counters(&self) -> Vec<Metric> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = |name, help, labels, value| Metric { name, help, is_counter: true, labels, value };
        let requests = counts.requests.iter().map(|((route, status), count)| {
            let labels = vec![("route", (*route).to_owned()), ("status", status.to_string())];
            counter("nugget_http_requests_total", "Requests by route and status.", labels, *count as f64)
        });
        let refused = counts.refused.iter().map(|(reason, count)| {
            let labels = vec![("reason", (*reason).to_owned())];
            counter("nugget_http_refused_total", "Refused requests by reason.", labels, *count as f64)
        });
        requests.chain(refused).collect()
    }

    /// Of each step: its name, how often it was measured, and the seconds altogether.
    pub(crate) fn step_totals(&self) -> Vec<(&'static str, u64, f64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = |(step, histogram): (&Step, &Histogram)| {
            (step.as_str(), histogram.counts.iter().sum(), histogram.sum_seconds)
        };
        counts.steps.iter().map(total).collect()
    }

    /// Everything, with the numbers of the database's side and of the present.
    pub(crate) fn render(&self, others: Vec<Metric>) -> String {
        let mut text = String::new();
        let mut metrics = self.counters();
        metrics.extend(others);
        metrics.sort_by(|a, b| a.name.cmp(b.name));
        let mut last = "";
        for metric in &metrics {
            if metric.name != last {
                let kind = if metric.is_counter { "counter" } else { "gauge" };
                head(&mut text, metric.name, metric.help, kind);
                last = metric.name;
            }
            let labels: Vec<_> =
                metric.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{}{labels} {}", metric.name, metric.value);
        }
        self.render_steps(&mut text);
        text
    }

    fn render_steps(&self, text: &mut String) {
        const NAME: &str = "nugget_step_seconds";
        head(text, NAME, "Duration of the steps of requests.", "histogram");
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner).steps.clone();
        for (step, histogram) in steps {
            let step = step.as_str();
            let mut total = 0;
            let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(histogram.counts) {
                total += count;
                let _ = writeln!(text, "{NAME}_bucket{{step=\"{step}\",le=\"{bound}\"}} {total}");
            }
            let _ = writeln!(text, "{NAME}_sum{{step=\"{step}\"}} {}", histogram.sum_seconds);
            let _ = writeln!(text, "{NAME}_count{{step=\"{step}\"}} {total}");
        }
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.count_request("/healthz", 200);
        metrics.count_request("/healthz", 200);
        metrics.count_refused("busy");
        metrics.observe(Step::Token, Duration::from_millis(20));
        metrics.observe(Step::Token, Duration::from_secs(60));
        let age = Metric {
            name: "nugget_queue_age_seconds",
            help: "Age.",
            is_counter: false,
            labels: vec![("stage", "a\"b".to_owned())],
            value: 1.5,
        };
        let text = metrics.render(vec![age]);
        for line in [
            "# TYPE nugget_http_requests_total counter",
            "nugget_http_requests_total{route=\"/healthz\",status=\"200\"} 2",
            "nugget_http_refused_total{reason=\"busy\"} 1",
            "# TYPE nugget_queue_age_seconds gauge",
            "nugget_queue_age_seconds{stage=\"a\\\"b\"} 1.5",
            "nugget_step_seconds_bucket{step=\"token\",le=\"0.01\"} 0",
            "nugget_step_seconds_bucket{step=\"token\",le=\"0.025\"} 1",
            "nugget_step_seconds_bucket{step=\"token\",le=\"+Inf\"} 2",
            "nugget_step_seconds_sum{step=\"token\"} 60.02",
            "nugget_step_seconds_count{step=\"token\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
