//! Counts and due times: what `nugget status` shows, and what a worker asks before it stops.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use crate::claims::{NO_EARLIER_IN_SESSION, RETRY_SPAN_MS};
use crate::pauses::{NOT_PAUSED, PAUSE_SPAN_MS};
use crate::rows::state;
use crate::store::{Queue, timestamp};
use crate::{Capture, Error, Stage, State, Tally};

impl Queue {
    /// The number of captures in each state.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn tally(&self) -> Result<Tally, Error> {
        let sql = "SELECT outcome, claim IS NOT NULL, attempts > 0, count(*) FROM captures GROUP BY 1, 2, 3";
        let mut tally = Tally::default();
        self.query(sql, [], |row| {
            let state = state(row.get::<_, Option<String>>(0)?.as_deref(), row.get(1)?, row.get(2)?)?;
            *match state {
                State::Queued => &mut tally.queued,
                State::Running => &mut tally.running,
                State::Retrying => &mut tally.retrying,
                State::Done => &mut tally.done,
                State::Nothing => &mut tally.nothing,
                State::Dead => &mut tally.dead,
            } += row.get::<_, u64>(3)?;
            Ok(())
        })?;
        Ok(tally)
    }

    /// How many captures have not ended. Called often, so it reads only those.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn unfinished(&self) -> Result<u64, Error> {
        self.count("SELECT count(*) FROM captures WHERE outcome IS NULL")
    }

    /// Whether any unfinished capture is due, claimed or not.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn is_due(&self, now: Timestamp) -> Result<bool, Error> {
        self.has_due("outcome IS NULL", now)
    }

    /// Whether any capture can be claimed now.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn is_claimable(&self, now: Timestamp) -> Result<bool, Error> {
        self.has_due(&format!("outcome IS NULL AND claim IS NULL AND {NO_EARLIER_IN_SESSION}"), now)
    }

    fn has_due(&self, condition: &str, now: Timestamp) -> Result<bool, Error> {
        let connection = self.connection()?;
        let now_ms = now.as_millisecond();
        let mut statement = connection.prepare_cached(&format!(
            "SELECT 1 FROM captures WHERE {condition} AND (not_before_ms <= ?1 OR not_before_ms > ?2)
             AND {NOT_PAUSED} LIMIT 1"
        ))?;
        Ok(statement.exists(params![now_ms, now_ms + RETRY_SPAN_MS, now_ms + PAUSE_SPAN_MS])?)
    }

    /// When the next unclaimed capture is due, if there is one.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn next_due(&self) -> Result<Option<Timestamp>, Error> {
        let due: Option<i64> = self.connection()?.query_row(
            "SELECT min(max(not_before_ms, coalesce((SELECT until_ms FROM pauses WHERE pauses.stage = captures.stage), 0)))
             FROM captures WHERE outcome IS NULL AND claim IS NULL",
            [],
            |row| row.get(0),
        )?;
        due.map(timestamp).transpose()
    }

    /// Whether every unfinished capture waits for delivery or for a server, and none can be attempted now: a worker
    /// process has no reason to stay.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn waits_for_delivery(&self, now: Timestamp) -> Result<bool, Error> {
        let elsewhere = {
            let connection = self.connection()?;
            let mut statement = connection.prepare_cached(
                "SELECT 1 FROM captures WHERE outcome IS NULL AND (stage NOT IN ('delivery', 'upload') OR claim IS NOT NULL) LIMIT 1",
            )?;
            statement.exists([])?
        };
        Ok(!elsewhere && self.unfinished()? > 0 && !self.is_due(now)?)
    }

    /// How many unfinished captures are at each stage, in the order of the stages.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn stage_depths(&self) -> Result<Vec<(Stage, u64)>, Error> {
        let sql = "SELECT stage, count(*) FROM captures WHERE outcome IS NULL GROUP BY stage";
        let depths = self.query(sql, [], |row| Ok((row.get::<_, String>(0)?.parse()?, row.get(1)?)))?;
        let depths: HashMap<Stage, u64> = depths.into_iter().collect();
        Ok(Stage::ALL.into_iter().map(|stage| (stage, depths.get(&stage).copied().unwrap_or(0))).collect())
    }

    /// Captures that a worker works on, oldest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn running(&self, limit: usize) -> Result<Vec<Capture>, Error> {
        self.select("WHERE outcome IS NULL AND claim IS NOT NULL ORDER BY id LIMIT ?1", [limit])
    }

    /// Captures that have a reason to wait although no attempt has failed, oldest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn waiting(&self, limit: usize) -> Result<Vec<Capture>, Error> {
        self.select(
            "WHERE outcome IS NULL AND claim IS NULL AND attempts = 0 AND reason IS NOT NULL ORDER BY id LIMIT ?1",
            [limit],
        )
    }

    /// Captures whose last attempt failed, newest first: those that wait for another attempt, and those
    /// that died within the duration `within`.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn recent_failures(
        &self,
        limit: usize,
        within: Duration,
        now: Timestamp,
    ) -> Result<Vec<Capture>, Error> {
        let since_ms =
            now.as_millisecond().saturating_sub(i64::try_from(within.as_millis()).unwrap_or(i64::MAX));
        self.select(
            "WHERE reason IS NOT NULL
             AND ((outcome = 'dead' AND finished_ms >= ?1) OR (outcome IS NULL AND attempts > 0))
             ORDER BY id DESC LIMIT ?2",
            (since_ms, limit),
        )
    }
}
