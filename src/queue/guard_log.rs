//! What the guard has told which session, so that nothing is told twice, and how often it spoke.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};
use serde::Serialize;

use crate::Error;
use crate::schema::{self, BusyTimeout};
use crate::shown::Showing;
use crate::store::Queue;

/// Rows are kept for as long as a session is likely to be resumed.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How often the guard spoke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GuardTally {
    /// Units that a session was told of.
    pub told: u64,
    /// Actions that were refused once.
    pub held: u64,
}

/// The record of what sessions were told, opened by a hook.
pub struct GuardLog {
    connection: Connection,
}

impl GuardLog {
    /// Opens the record in the queue's database.
    ///
    /// # Errors
    /// When the database cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { connection: schema::open(path, BusyTimeout::Hook)? })
    }

    /// Whether a unit has refused an action of a session.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn is_held(&self, session: &str, unit: &str) -> Result<bool, Error> {
        let known = "SELECT 1 FROM guard WHERE session = ?1 AND unit = ?2 AND word = 'held'";
        Ok(self.connection.prepare_cached(known)?.exists(params![session, unit])?)
    }

    /// Whether a session has heard of a unit.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn is_told(&self, session: &str, unit: &str) -> Result<bool, Error> {
        let known = "SELECT 1 FROM guard WHERE session = ?1 AND unit = ?2";
        Ok(self.connection.prepare_cached(known)?.exists(params![session, unit])?)
    }

    /// Claims the first refusal of an action by a unit in a session; `false` if it was claimed before.
    ///
    /// # Errors
    /// When the database cannot be written, as while another process keeps it locked.
    pub fn claim_hold(&mut self, session: &str, unit: &str, now: Timestamp) -> Result<bool, Error> {
        Ok(!self.is_held(session, unit)? && self.insert(session, unit, "held", now)?)
    }

    /// Claims to tell a session of a unit; `false` if it has heard of it.
    ///
    /// # Errors
    /// When the database cannot be written, as while another process keeps it locked.
    pub fn claim_told(&mut self, session: &str, unit: &str, now: Timestamp) -> Result<bool, Error> {
        Ok(!self.is_told(session, unit)? && self.insert(session, unit, "told", now)?)
    }

    /// Claims to withhold a unit from a session, which counts as having heard of it from then on; `false` if it has.
    ///
    /// # Errors
    /// When the database cannot be written, as while another process keeps it locked.
    pub fn claim_withheld(&mut self, session: &str, unit: &str, now: Timestamp) -> Result<bool, Error> {
        Ok(!self.is_told(session, unit)? && self.insert(session, unit, "withheld", now)?)
    }

    /// Records what the session is shown.
    ///
    /// # Errors
    /// When the database cannot be written, as while another process keeps it locked.
    pub fn record_shown(mut self, showing: &Showing) -> Result<(), Error> {
        showing.record(&mut self.connection)
    }

    /// Returns whether the row is new: of many processes that insert it, one hears yes.
    fn insert(&mut self, session: &str, unit: &str, word: &str, now: Timestamp) -> Result<bool, Error> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let inserted = transaction.execute(
            "INSERT OR IGNORE INTO guard VALUES (?1, ?2, ?3, ?4)",
            params![session, unit, word, now.as_millisecond()],
        )?;
        transaction.execute("DELETE FROM guard WHERE at_ms < ?1", [(now - KEPT_FOR).as_millisecond()])?;
        transaction.commit()?;
        Ok(inserted == 1)
    }
}

impl Queue {
    /// How often the guard spoke since a time.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn guard_tally(&self, since: Timestamp) -> Result<GuardTally, Error> {
        let sql = "SELECT word, count(*) FROM guard WHERE at_ms >= ?1 GROUP BY word";
        let mut tally = GuardTally::default();
        self.query(sql, [since.as_millisecond()], |row| {
            match row.get_ref(0)?.as_str().unwrap_or_default() {
                "held" => tally.held = row.get(1)?,
                "told" => tally.told = row.get(1)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestQueue;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn a_session_is_told_of_a_unit_once() {
        let test = TestQueue::new();
        let mut log = GuardLog::open(test.queue.path()).unwrap();
        assert!(!log.is_told("s", "a").unwrap());
        assert!(log.claim_told("s", "a", at(0)).unwrap() && log.is_told("s", "a").unwrap());
        assert!(!log.claim_told("s", "a", at(1)).unwrap());
        assert!(log.claim_told("s", "b", at(1)).unwrap() && log.claim_told("other", "a", at(1)).unwrap());
        assert_eq!(test.queue.guard_tally(at(1)).unwrap(), GuardTally { told: 2, held: 0 });
    }

    #[test]
    fn a_hold_is_claimed_once_and_is_told_with_it() {
        let test = TestQueue::new();
        let mut log = GuardLog::open(test.queue.path()).unwrap();
        assert!(log.claim_hold("s", "a", at(0)).unwrap());
        assert!(!log.claim_hold("s", "a", at(1)).unwrap());
        assert!(log.is_held("s", "a").unwrap() && !log.claim_told("s", "a", at(2)).unwrap());
        // What was only told is still refused once.
        assert!(log.claim_told("s", "b", at(3)).unwrap() && !log.is_held("s", "b").unwrap());
        assert!(log.claim_hold("s", "b", at(4)).unwrap());
        assert_eq!(test.queue.guard_tally(at(0)).unwrap(), GuardTally { told: 1, held: 2 });
    }

    #[test]
    fn what_is_withheld_is_told_neither_later_nor_counted() {
        let test = TestQueue::new();
        let mut log = GuardLog::open(test.queue.path()).unwrap();
        assert!(
            log.claim_withheld("s", "a", at(0)).unwrap() && !log.claim_withheld("s", "a", at(1)).unwrap()
        );
        assert!(!log.claim_told("s", "a", at(2)).unwrap());
        assert_eq!(test.queue.guard_tally(at(0)).unwrap(), GuardTally::default());
    }

    #[test]
    fn of_many_processes_one_claims() {
        let test = TestQueue::new();
        let claims: usize = std::thread::scope(|scope| {
            let claim = || {
                let mut log = GuardLog::open(test.queue.path()).unwrap();
                let held = usize::from(log.claim_hold("s", "a", at(0)).unwrap());
                held + 100 * usize::from(log.claim_told("s", "b", at(0)).unwrap())
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(claims, 101);
    }

    #[test]
    fn old_rows_are_deleted() {
        let test = TestQueue::new();
        let mut log = GuardLog::open(test.queue.path()).unwrap();
        log.claim_told("old", "a", at(0)).unwrap();
        log.claim_told("new", "a", at(31 * 24 * 3600)).unwrap();
        assert_eq!(test.queue.guard_tally(at(0)).unwrap().told, 1);
    }
}
