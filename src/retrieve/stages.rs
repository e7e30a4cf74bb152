//! Reports of the stages.

use std::time::Instant;

use serde::Serialize;

/// The result of one stage, in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// The stage.
    pub name: &'static str,
    /// How many items it gave.
    pub items: usize,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// Measures the stages.
pub(crate) struct Clock {
    begun: Instant,
    pub(crate) stages: Vec<StageReport>,
}

impl Clock {
    /// Starts the next stage after those that ran before.
    pub(crate) fn continued(stages: Vec<StageReport>) -> Self {
        Self { begun: Instant::now(), stages }
    }

    /// Ends a stage and starts the next one.
    pub(crate) fn lap(&mut self, name: &'static str, items: usize) {
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stages.push(StageReport { name, items, micros });
        self.begun = Instant::now();
    }
}
