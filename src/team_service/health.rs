//! Whether the database is well, and its numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use server::{Metric, Unavailable};
use team::TeamStore;

use crate::access::unavailable;

/// A server that was not seen for so long is not counted.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

/// What this process has counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Claims of servers that did not renew them, and that were taken back.
    pub(crate) takeovers: AtomicU64,
    /// Generations that this server has published.
    pub(crate) published: AtomicU64,
    /// Works on a brain that ended with an error.
    pub(crate) failures: AtomicU64,
}

pub(crate) struct TeamHealth {
    pub(crate) store: TeamStore,
    pub(crate) counters: Arc<Counters>,
}

impl server::Health for TeamHealth {
    fn ready(&self) -> Result<(), Unavailable> {
        self.store.check().map_err(unavailable)
    }

    fn metrics(&self) -> Vec<Metric> {
        let counter = |name, help, value: &AtomicU64| Metric {
            name,
            help,
            is_counter: true,
            labels: Vec::new(),
            value: value.load(Ordering::Relaxed) as f64,
        };
        let Counters { takeovers, published, failures } = &*self.counters;
        let mut metrics = vec![
            counter("nugget_takeovers_total", "Claims taken back from servers that were gone.", takeovers),
            counter(
                "nugget_published_total",
                "Generations of indexes that this server published.",
                published,
            ),
            counter("nugget_work_failures_total", "Works on a brain that ended with an error.", failures),
        ];
        let (used, connections) = self.store.connections();
        let gauge = |name, help, labels, value| Metric { name, help, is_counter: false, labels, value };
        let help = "Connections to PostgreSQL.";
        for (state, value) in [("used", used), ("open", connections)] {
            let labels = vec![("state", state.to_owned())];
            metrics.push(gauge("nugget_connections", help, labels, f64::from(value)));
        }
        for age in self.store.queue_ages().unwrap_or_default() {
            let labels = || vec![("stage", age.stage.as_str().to_owned())];
            let (waiting, running) = (age.waiting as f64, age.running as f64);
            metrics.push(gauge("nugget_queue_waiting", "Captures that wait.", labels(), waiting));
            metrics.push(gauge("nugget_queue_running", "Captures that are worked on.", labels(), running));
            let oldest = age.oldest.as_secs_f64();
            metrics.push(gauge(
                "nugget_queue_age_seconds",
                "Age of the oldest that waits.",
                labels(),
                oldest,
            ));
        }
        if let Ok(live) = self.store.live_servers(LIVE_WITHIN) {
            metrics.push(gauge("nugget_servers", "Servers that are alive.", Vec::new(), live.len() as f64));
        }
        metrics
    }
}
