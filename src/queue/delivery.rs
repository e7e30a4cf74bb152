//! Which branches and pull requests the remote has, and which captures still wait for it.

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::Error;
use crate::capture::{Branch, Capture, Claim, PullRequest, PullState, Stage, State};
use crate::claims::store_result;
use crate::rows::{check_claim, end};
use crate::store::Queue;

const UNDELIVERED: &str = "outcome = 'done' AND branch IS NOT NULL AND pushed IS NULL AND pull_state IS NULL";

impl Queue {
    /// Records the commit that was pushed.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn record_push(&self, claim: &Claim, commit: &str) -> Result<(), Error> {
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            transaction.execute(
                "UPDATE captures SET pushed = ?2 WHERE id = ?1",
                params![claim.capture.id, commit],
            )?;
            Ok(())
        })
    }

    /// Records the branch that was pushed with the capture's commit, in place of its own branch: one of several captures, or
    /// its own with what the remote had of it.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn record_batch(&self, claim: &Claim, branch: &Branch) -> Result<(), Error> {
        let Branch { name, commit, units } = branch;
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            transaction.execute(
                "UPDATE captures SET branch = ?2, commit_id = ?3, pushed = ?3, units = ?4 WHERE id = ?1",
                params![claim.capture.id, name, commit, units],
            )?;
            Ok(())
        })
    }

    /// Records the capture's pull request.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn record_pull_request(&self, claim: &Claim, pull: &PullRequest) -> Result<(), Error> {
        self.write(|transaction| {
            check_claim(transaction, claim)?;
            transaction.execute(
                "UPDATE captures SET pull_number = ?2, pull_url = ?3, pull_state = ?4 WHERE id = ?1",
                params![claim.capture.id, pull.number as i64, pull.url, pull.state.as_str()],
            )?;
            Ok(())
        })
    }

    /// Records the state of a capture's pull request. Once it is decided, what was stored for making the
    /// branch again is deleted, and a capture that waits for its delivery ends. With `commit`, only if that is still the
    /// branch's: what was added to it meanwhile is not decided.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn set_pull_state(&self, id: i64, commit: Option<&str>, state: PullState) -> Result<(), Error> {
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE captures SET pull_state = ?2 WHERE id = ?1 AND (?3 IS NULL OR commit_id = ?3)",
                params![id, state.as_str(), commit],
            )?;
            if changed > 0 && state != PullState::Open {
                end_waiting(transaction, id)?;
                transaction.execute(
                    "DELETE FROM results WHERE capture_id = ?1
                     AND EXISTS (SELECT 1 FROM captures WHERE id = ?1 AND outcome = 'done')",
                    [id],
                )?;
            }
            Ok(())
        })
    }

    /// Ended captures whose branch was pushed and neither merged nor closed, oldest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn awaiting_decision(&self) -> Result<Vec<Capture>, Error> {
        self.select(
            "WHERE outcome = 'done' AND pushed IS NOT NULL AND coalesce(pull_state, 'open') = 'open' ORDER BY id",
            [],
        )
    }

    /// Adds a branch that no session made, so that it is delivered and tracked like a session's: with `deliver`
    /// at once, else as an ended capture. `origin` is one of the crate's, such as
    /// [`ORIGIN_IMPORT`](crate::ORIGIN_IMPORT). A branch with this commit is not added again. Returns the capture's number.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn add_branch(
        &self,
        origin: &str,
        branch: &Branch,
        deliver: bool,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let Branch { name, commit, units } = branch;
        self.write(|transaction| {
            let existing = transaction
                .query_row(
                    "SELECT id FROM captures WHERE branch = ?1 AND commit_id = ?2",
                    params![name, commit],
                    |row| row.get(0),
                )
                .optional()?;
            if let Some(id) = existing {
                return Ok(id);
            }
            let outcome = (!deliver).then_some("done");
            transaction.execute(
                "INSERT INTO captures (session_id, transcript, origin, stage, outcome, branch, commit_id, units,
                     added_ms, finished_ms)
                 VALUES (?1, '', ?1, 'delivery', ?2, ?3, ?4, ?5, ?6, iif(?2 IS NULL, NULL, ?6))",
                params![origin, outcome, name, commit, units, now.as_millisecond()],
            )?;
            Ok(transaction.last_insert_rowid())
        })
    }

    /// Adds a branch as [`add_branch`](Self::add_branch) does, to which commits are added while it waits for its review:
    /// the capture that has it gets the new commit, and is delivered again.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn extend_branch(
        &self,
        origin: &str,
        branch: &Branch,
        deliver: bool,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let Branch { name, commit, units } = branch;
        let known: Option<i64> = self.write(|transaction| {
            let known = transaction
                .query_row(
                    "SELECT id FROM captures
                     WHERE branch = ?1 AND origin = ?2 AND coalesce(pull_state, 'open') = 'open'",
                    params![name, origin],
                    |row| row.get(0),
                )
                .optional()?;
            let outcome = (!deliver).then_some("done");
            transaction.execute(
                "UPDATE captures SET commit_id = ?2, units = ?3, stage = 'delivery', outcome = ?4, claim = NULL,
                     attempts = 0, not_before_ms = 0, finished_ms = iif(?4 IS NULL, NULL, ?5), reason = NULL
                 WHERE id = ?1 AND commit_id <> ?2",
                params![known, commit, units, outcome, now.as_millisecond()],
            )?;
            Ok(known)
        })?;
        known.map_or_else(|| self.add_branch(origin, branch, deliver, now), Ok)
    }

    /// Queues ended captures for delivery whose branch was made before there was a remote. Returns how many.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn redeliver(&self) -> Result<usize, Error> {
        // Usually there is none, and a read needs no write lock.
        if self.undelivered()? == 0 {
            return Ok(0);
        }
        self.write(|transaction| {
            Ok(transaction.execute(
                &format!(
                    "UPDATE captures SET outcome = NULL, stage = 'delivery', claim = NULL, attempts = 0,
                         not_before_ms = 0, finished_ms = NULL, reason = NULL WHERE {UNDELIVERED}"
                ),
                [],
            )?)
        })
    }

    fn undelivered(&self) -> Result<u64, Error> {
        self.count(&format!("SELECT count(*) FROM captures WHERE {UNDELIVERED}"))
    }

    /// Sends an ended capture with an open pull request back to a stage, with this input. Returns `false`
    /// if its pull request is not open or it is already being worked on.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn reopen(&self, id: i64, stage: Stage, input: &[u8]) -> Result<bool, Error> {
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE captures SET outcome = NULL, stage = ?2, claim = NULL, attempts = 0, not_before_ms = 0,
                     finished_ms = NULL, reason = NULL
                 WHERE id = ?1 AND outcome = 'done' AND pull_state = 'open'",
                params![id, stage.as_str()],
            )?;
            if changed > 0 {
                store_result(transaction, id, input)?;
            }
            Ok(changed > 0)
        })
    }
}

/// Ends a capture that waits for its delivery: nothing of it is to be delivered any more. One that is being worked on ends
/// with that. The pause of deliveries is over if it was the last one.
fn end_waiting(transaction: &Transaction<'_>, id: i64) -> Result<(), Error> {
    const WAITING: &str = "outcome IS NULL AND stage = 'delivery'";
    let sql = format!("SELECT 1 FROM captures WHERE id = ?1 AND claim IS NULL AND {WAITING}");
    if transaction.prepare_cached(&sql)?.exists([id])? {
        end(transaction, id, State::Done, None, Timestamp::now())?;
        let sql = format!("NOT EXISTS (SELECT 1 FROM captures WHERE {WAITING})");
        transaction.execute(&format!("DELETE FROM pauses WHERE stage = 'delivery' AND {sql}"), [])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ORIGIN_IMPORT;
    use crate::testing::TestQueue;

    #[test]
    fn an_import_is_added_once_and_delivered_now_or_with_a_remote() {
        let test = TestQueue::new();
        let branch =
            |commit: &str| Branch { name: "nugget/import-1".into(), commit: commit.into(), units: 3 };
        let now = test.queue.add_branch(ORIGIN_IMPORT, &branch("c1"), true, test.now).unwrap();
        assert_eq!(test.queue.add_branch(ORIGIN_IMPORT, &branch("c1"), true, test.now).unwrap(), now);
        let claim = test.claim(Stage::Delivery).unwrap();
        assert_eq!(
            (claim.capture.id, claim.capture.origin.as_str(), claim.capture.units),
            (now, ORIGIN_IMPORT, 3)
        );
        test.finish_delivery(&claim);
        let later = test.queue.add_branch(ORIGIN_IMPORT, &branch("c2"), false, test.now).unwrap();
        assert_eq!(test.capture(later).state, State::Done);
        assert!(test.claim(Stage::Delivery).is_none());
        assert_eq!(test.queue.redeliver().unwrap(), 2);
        let claimed = || test.claim(Stage::Delivery).unwrap().capture.id;
        assert_eq!((claimed(), claimed()), (now, later));
    }

    #[test]
    fn what_is_decided_while_it_waits_for_delivery_ends_with_that() {
        let test = TestQueue::new();
        let [first, second] = ["s1", "s2"].map(|session| test.add_with_branch(session));
        let claim = test.claim(Stage::Delivery).unwrap();
        test.queue.pause(&claim, "no network", None, test.now).unwrap();
        test.queue.set_pull_state(first, Some("another commit"), PullState::Merged).unwrap();
        assert_eq!(test.capture(first).state, State::Retrying, "the branch has grown");
        test.queue.set_pull_state(first, None, PullState::Merged).unwrap();
        assert_eq!((test.capture(first).state, test.queue.pauses().unwrap().len()), (State::Done, 1));
        assert!(test.capture(first).finished.is_some());
        test.queue.set_pull_state(second, None, PullState::Closed).unwrap();
        assert_eq!((test.capture(second).state, test.queue.pauses().unwrap()), (State::Done, Vec::new()));

        // One that is being worked on ends by itself.
        let third = test.add_with_branch("s3");
        let claim = test.claim(Stage::Delivery).unwrap();
        test.queue.set_pull_state(third, None, PullState::Closed).unwrap();
        assert_eq!(test.capture(third).state, State::Running);
        test.finish_delivery(&claim);
        assert_eq!(test.capture(third).state, State::Done);
    }

    #[test]
    fn a_queue_from_before_remotes_is_migrated_and_delivered_by_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let old = rusqlite::Connection::open(&path).unwrap();
        old.execute_batch(&crate::schema::MIGRATIONS[..2].concat()).unwrap();
        old.execute_batch(
            "INSERT INTO captures (session_id, transcript, origin, stage, outcome, branch, commit_id, units, added_ms)
             VALUES ('s1', '/t', 'hook', 'git', 'done', 'nugget/s1', 'c1', 1, 1),
                    ('s2', '/t', 'hook', 'git', 'nothing', NULL, NULL, 0, 2),
                    ('s3', '/t', 'hook', 'git', 'done', 'nugget/s3', 'c3', 1, 3);
             PRAGMA user_version = 2;",
        )
        .unwrap();
        drop(old);
        let test = TestQueue { queue: Queue::open(&path).unwrap(), _folder: folder, ..TestQueue::new() };
        assert_eq!(test.queue.undelivered().unwrap(), 2);
        assert_eq!(test.queue.redeliver().unwrap(), 2);
        assert_eq!(test.queue.redeliver().unwrap(), 0);
        for expected in [1, 3] {
            let claim = test.claim(Stage::Delivery).unwrap();
            assert_eq!((claim.capture.id, claim.input.len()), (expected, 0));
            test.queue.record_push(&claim, "c").unwrap();
            test.finish_delivery(&claim);
        }
        let queue = &test.queue;
        assert_eq!((queue.undelivered().unwrap(), queue.awaiting_decision().unwrap().len()), (0, 2));
    }
}
