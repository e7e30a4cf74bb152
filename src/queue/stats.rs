//! What `nugget status` shows besides the states: where captures stand, and which have failed.

use std::time::Duration;

use jiff::Timestamp;

use crate::{Capture, Error, Queue, Stage};

impl Queue {
    /// How many unfinished captures stand before or in each stage, in the order of the stages.
    pub fn stage_depths(&self) -> Result<Vec<(Stage, u64)>, Error> {
        let connection = self.connection()?;
        let mut statement = connection
            .prepare_cached("SELECT stage, count(*) FROM captures WHERE outcome IS NULL GROUP BY stage")?;
        let mut rows = statement.query([])?;
        let mut depths: Vec<(Stage, u64)> = Stage::ALL.into_iter().map(|stage| (stage, 0)).collect();
        while let Some(row) = rows.next()? {
            let stage: Stage = row.get::<_, String>(0)?.parse()?;
            for (_, depth) in depths.iter_mut().filter(|(known, _)| *known == stage) {
                *depth = row.get::<_, i64>(1)?.unsigned_abs();
            }
        }
        Ok(depths)
    }

    /// The latest captures whose last attempt has failed: those that wait for another, and those that ended
    /// dead within `within`. Newest first.
    pub fn recent_failures(
        &self,
        limit: usize,
        within: Duration,
        now: Timestamp,
    ) -> Result<Vec<Capture>, Error> {
        let since_ms =
            now.as_millisecond().saturating_sub(i64::try_from(within.as_millis()).unwrap_or(i64::MAX));
        let ids: Vec<i64> = {
            let connection = self.connection()?;
            let mut statement = connection.prepare_cached(
                "SELECT id FROM captures WHERE reason IS NOT NULL
                 AND ((outcome = 'dead' AND finished_ms >= ?1) OR (outcome IS NULL AND attempts > 0))
                 ORDER BY id DESC LIMIT ?2",
            )?;
            let rows = statement.query_map((since_ms, limit as i64), |row| row.get(0))?;
            rows.collect::<Result<_, _>>()?
        };
        let captures = ids.into_iter().map(|id| self.capture(id)).collect::<Result<Vec<_>, _>>()?;
        Ok(captures.into_iter().flatten().collect())
    }
}
