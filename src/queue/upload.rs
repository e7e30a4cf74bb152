//! Captures that are handed to a team's server after their intake.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use crate::Error;
use crate::store::Queue;

/// How long what was handed over is kept, so that a server that was restored from a backup can be given it again.
pub const UPLOADS_KEPT: Duration = Duration::from_hours(7 * 24);

const UPLOADED: &str = "stage = 'upload' AND outcome = 'done'";

impl Queue {
    /// The uuids of the transcript lines that a capture has taken, sorted.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn lines_of(&self, capture: i64) -> Result<Vec<String>, Error> {
        let sql = "SELECT uuid FROM lines WHERE capture_id = ?1 ORDER BY uuid";
        self.query(sql, [capture], |row| Ok(row.get(0)?))
    }

    /// Queues again what was handed to a server within [`UPLOADS_KEPT`]; the server ignores what it still has. Returns how
    /// many captures those are.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn upload_again(&self, now: Timestamp) -> Result<usize, Error> {
        self.write(|transaction| {
            delete_old(transaction, now)?;
            let sql = format!(
                "UPDATE captures SET outcome = NULL, claim = NULL, attempts = 0, not_before_ms = 0,
                     finished_ms = NULL, reason = NULL
                 WHERE {UPLOADED} AND EXISTS (SELECT 1 FROM results WHERE capture_id = captures.id)"
            );
            Ok(transaction.execute(&sql, [])?)
        })
    }
}

/// Deletes what was handed over longer ago than [`UPLOADS_KEPT`].
pub(crate) fn delete_old(transaction: &Transaction<'_>, now: Timestamp) -> rusqlite::Result<()> {
    let since_ms = now.as_millisecond() - UPLOADS_KEPT.as_millis() as i64;
    let sql = format!(
        "DELETE FROM results WHERE capture_id IN (SELECT id FROM captures WHERE {UPLOADED} AND finished_ms < ?1)"
    );
    transaction.execute(&sql, params![since_ms]).map(drop)
}

#[cfg(test)]
mod tests {
    use crate::testing::TestQueue;
    use crate::{Finish, Stage, State};

    fn uploaded(test: &TestQueue, session: &str) -> i64 {
        let id = test.add(session);
        let claim = test.claim(Stage::Intake).unwrap();
        let lines = [format!("{session}-b"), format!("{session}-a")];
        test.queue.advance_with_lines(&claim, Stage::Upload, b"conversation", &lines, None).unwrap();
        let claim = test.claim(Stage::Upload).unwrap();
        assert_eq!(claim.input, b"conversation");
        let finish = Finish::Uploaded { receipt: "capture 7 of the server".into() };
        test.queue.finish(&claim, &finish, test.now).unwrap();
        id
    }

    #[test]
    fn what_was_handed_over_is_kept_for_a_week_and_can_be_handed_over_again() {
        let mut test = TestQueue::new();
        let old = uploaded(&test, "s1");
        test.now += jiff::SignedDuration::from_hours(7 * 24 + 1);
        let new = uploaded(&test, "s2");
        assert_eq!(test.queue.lines_of(new).unwrap(), ["s2-a", "s2-b"]);
        assert_eq!(test.capture(new).reason.as_deref(), Some("capture 7 of the server"));
        assert_eq!(test.queue.saved_result(old).unwrap(), None);
        assert_eq!(test.queue.redeliver().unwrap(), 0, "it has no branch here");
        assert_eq!(test.queue.upload_again(test.now).unwrap(), 1);
        assert_eq!((test.capture(old).state, test.capture(new).state), (State::Done, State::Queued));
        assert_eq!(test.claim(Stage::Upload).unwrap().input, b"conversation");
    }

    #[test]
    fn a_session_that_waits_for_the_server_does_not_hold_up_its_next_capture() {
        let test = TestQueue::new();
        test.add("s1");
        let claim = test.claim(Stage::Intake).unwrap();
        test.queue.advance(&claim, Stage::Upload, b"conversation").unwrap();
        let next = test.add("s1");
        assert_eq!(test.claim(Stage::Intake).unwrap().capture.id, next);
    }
}
