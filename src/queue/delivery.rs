//! What the remote has of each capture, and stages that wait as a whole for the other side.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Error;
use crate::capture::{Capture, Claim, PullState, Stage};
use crate::store::{Queue, SELECT, check, read, timestamp};

/// The first wait of a stage that is put off; each further one in a row is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
/// The longest that a stage waits of its own accord.
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest wait that another side may ask for: GitHub counts requests by the hour.
const ASKED_MAX: Duration = Duration::from_secs(65 * 60);
/// A pause that ends further ahead than this was set by a clock that jumped.
pub(crate) const PAUSE_SPAN_MS: i64 = 2 * ASKED_MAX.as_millis() as i64;

/// Of a row of `captures`: `?1` is now, `?3` is [`PAUSE_SPAN_MS`] from now.
pub(crate) const NOT_PAUSED: &str = "NOT EXISTS (SELECT 1 FROM pauses WHERE pauses.stage = captures.stage
    AND pauses.until_ms > ?1 AND pauses.until_ms <= ?3)";

/// The origin of a branch that an import has made.
pub const ORIGIN_IMPORT: &str = "import";

/// The branch that holds a capture's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub name: String,
    pub commit: String,
    pub units: u32,
}

/// A capture's pull request, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    pub number: u64,
    pub url: String,
    pub state: PullState,
}

/// A stage of which no capture is claimed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub stage: Stage,
    pub since: Timestamp,
    pub until: Timestamp,
    /// How often it was put off in a row.
    pub times: u32,
    /// What is in the way, for a person.
    pub why: String,
}

impl Queue {
    /// Gives a capture back, and puts its whole stage off: what is in its way is in the way of all.
    ///
    /// When the time is over the oldest capture is claimed again; if that fails as well the others have
    /// not been touched. Nothing of this is an attempt. `wait` is what the other side has asked for; else
    /// it is 5 s at first, and twice as long each time in a row, 15 minutes at most. Returns when it ends.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn pause(
        &self,
        claim: &Claim,
        why: &str,
        wait: Option<Duration>,
        now: Timestamp,
    ) -> Result<Timestamp, Error> {
        let (id, stage) = (claim.capture.id, claim.capture.stage.as_str());
        self.write(|transaction| {
            check(transaction, claim)?;
            let before: Option<(i64, u32)> = transaction
                .query_row("SELECT since_ms, times FROM pauses WHERE stage = ?1", [stage], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            let (since, times) = before.unwrap_or((now.as_millisecond(), 0));
            let wait = match wait {
                Some(wait) => wait.min(ASKED_MAX),
                None => PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(PAUSE_MAX),
            };
            let until = now.as_millisecond() + wait.as_millis() as i64;
            transaction.execute(
                "INSERT OR REPLACE INTO pauses VALUES (?1, ?2, ?3, ?4, ?5)",
                params![stage, since.min(now.as_millisecond()), until, times + 1, why],
            )?;
            // The attempt stays at one: it has been tried, and no number of such tries makes it a dead letter.
            transaction.execute(
                "UPDATE captures SET claim = NULL, attempts = min(attempts, 1), reason = ?2, not_before_ms = ?3
                 WHERE id = ?1",
                params![id, why, until],
            )?;
            timestamp(until)
        })
    }

    /// Ends a pause: the other side has answered.
    ///
    /// # Errors
    /// When the queue cannot be read or written.
    pub fn resume(&self, stage: Stage) -> Result<(), Error> {
        if self.pauses()?.iter().all(|pause| pause.stage != stage) {
            return Ok(());
        }
        self.write(|transaction| {
            transaction.execute("DELETE FROM pauses WHERE stage = ?1", [stage.as_str()])?;
            transaction.execute(
                "UPDATE captures SET not_before_ms = 0 WHERE stage = ?1 AND outcome IS NULL AND attempts <= 1",
                [stage.as_str()],
            )?;
            Ok(())
        })
    }

    /// The stages that are put off, those included whose time is over and which nobody has tried since.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn pauses(&self) -> Result<Vec<Pause>, Error> {
        let connection = self.connection()?;
        let mut statement = connection
            .prepare_cached("SELECT stage, since_ms, until_ms, times, why FROM pauses ORDER BY stage")?;
        let mut rows = statement.query([])?;
        let mut pauses = Vec::new();
        while let Some(row) = rows.next()? {
            pauses.push(Pause {
                stage: row.get::<_, String>(0)?.parse()?,
                since: timestamp(row.get(1)?)?,
                until: timestamp(row.get(2)?)?,
                times: row.get(3)?,
                why: row.get(4)?,
            });
        }
        Ok(pauses)
    }

    /// Whether every capture that has not ended waits to be delivered, and none can be tried now: no work
    /// for a process to stay for.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn waits_for_delivery(&self, now: Timestamp) -> Result<bool, Error> {
        let elsewhere = {
            let connection = self.connection()?;
            let mut statement = connection.prepare_cached(
                "SELECT 1 FROM captures WHERE outcome IS NULL AND (stage <> 'delivery' OR claim IS NOT NULL) LIMIT 1",
            )?;
            statement.exists([])?
        };
        Ok(!elsewhere && self.unfinished()? > 0 && !self.is_due(now)?)
    }

    /// Notes the commit that the remote has.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn record_push(&self, claim: &Claim, commit: &str) -> Result<(), Error> {
        self.write(|transaction| {
            check(transaction, claim)?;
            transaction.execute(
                "UPDATE captures SET pushed = ?2 WHERE id = ?1",
                params![claim.capture.id, commit],
            )?;
            Ok(())
        })
    }

    /// Notes the capture's pull request.
    ///
    /// # Errors
    /// [`Error::Stale`], or when the queue cannot be written.
    pub fn record_pull_request(&self, claim: &Claim, pull: &PullRequest) -> Result<(), Error> {
        self.write(|transaction| {
            check(transaction, claim)?;
            transaction.execute(
                "UPDATE captures SET pull_number = ?2, pull_url = ?3, pull_state = ?4 WHERE id = ?1",
                params![claim.capture.id, pull.number as i64, pull.url, pull.state.as_str()],
            )?;
            Ok(())
        })
    }

    /// Notes what has become of a capture's knowledge since. What was kept for making it anew goes once it
    /// is decided.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn set_pull_state(&self, id: i64, state: PullState) -> Result<(), Error> {
        self.write(|transaction| {
            transaction
                .execute("UPDATE captures SET pull_state = ?2 WHERE id = ?1", params![id, state.as_str()])?;
            if state != PullState::Open {
                transaction.execute(
                    "DELETE FROM results WHERE capture_id = ?1
                     AND EXISTS (SELECT 1 FROM captures WHERE id = ?1 AND outcome = 'done')",
                    [id],
                )?;
            }
            Ok(())
        })
    }

    /// The captures that have ended and whose knowledge the remote has, nobody having decided on it yet,
    /// oldest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn awaiting_decision(&self) -> Result<Vec<Capture>, Error> {
        self.select("WHERE outcome = 'done' AND pushed IS NOT NULL AND coalesce(pull_state, 'open') = 'open' ORDER BY id")
    }

    /// Enters the branch of an import, so that it is delivered and followed as those of sessions are: to be
    /// delivered now, or as one that has ended where nobody would take it. A branch that is there with this
    /// commit is not entered again. Returns its number.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn add_import(&self, branch: &Branch, deliver: bool, now: Timestamp) -> Result<i64, Error> {
        let Branch { name, commit, units } = branch;
        self.write(|transaction| {
            let there = transaction
                .query_row(
                    "SELECT id FROM captures WHERE branch = ?1 AND commit_id = ?2",
                    params![name, commit],
                    |row| row.get(0),
                )
                .optional()?;
            if let Some(id) = there {
                return Ok(id);
            }
            let ended = (!deliver).then_some("done");
            transaction.execute(
                "INSERT INTO captures (session_id, transcript, origin, stage, outcome, branch, commit_id, units,
                     added_ms, finished_ms)
                 VALUES (?1, '', ?1, 'delivery', ?2, ?3, ?4, ?5, ?6, iif(?2 IS NULL, NULL, ?6))",
                params![ORIGIN_IMPORT, ended, name, commit, units, now.as_millisecond()],
            )?;
            Ok(transaction.last_insert_rowid())
        })
    }

    /// Queues for delivery what ended with a branch before there was a remote. Returns how many.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn redeliver(&self) -> Result<usize, Error> {
        // Most often there is none, and looking needs no turn.
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

    /// How many captures have a branch that no remote has and nobody has decided on.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn undelivered(&self) -> Result<u64, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare_cached(&format!("SELECT count(*) FROM captures WHERE {UNDELIVERED}"))?;
        Ok(statement.query_row([], |row| row.get::<_, i64>(0))?.unsigned_abs())
    }

    /// What is kept of a capture for its stage, or for making its branch anew.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn saved_result(&self, id: i64) -> Result<Option<Vec<u8>>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached("SELECT body FROM results WHERE capture_id = ?1")?;
        Ok(statement.query_row([id], |row| row.get(0)).optional()?)
    }

    /// Sends a capture with an open pull request back to a stage, with this for its input. `false` when it
    /// has none any more, or is under way.
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
                transaction.execute("INSERT OR REPLACE INTO results VALUES (?1, ?2)", params![id, input])?;
            }
            Ok(changed > 0)
        })
    }

    fn select(&self, which: &str) -> Result<Vec<Capture>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(&format!("{SELECT} {which}"))?;
        let mut rows = statement.query([])?;
        let mut captures = Vec::new();
        while let Some(row) = rows.next()? {
            captures.push(read(row)?);
        }
        Ok(captures)
    }
}

const UNDELIVERED: &str = "outcome = 'done' AND branch IS NOT NULL AND pushed IS NULL AND pull_state IS NULL";

pub(crate) fn is_paused(connection: &Connection, stage: Stage, now_ms: i64) -> Result<bool, Error> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM pauses WHERE stage = ?1 AND until_ms > ?2 AND until_ms <= ?3")?
        .exists(params![stage.as_str(), now_ms, now_ms + PAUSE_SPAN_MS])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Announcement, Finish, State};

    struct Fixture {
        _folder: tempfile::TempDir,
        queue: Queue,
        now: Timestamp,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        Fixture { _folder: folder, queue, now: "2026-11-20T14:12:00Z".parse().unwrap() }
    }

    impl Fixture {
        fn add(&self, session: &str) -> i64 {
            let announcement = Announcement {
                session: knowledge::SessionId::verbatim(session),
                transcript: format!("/t/{session}.jsonl").into(),
                cwd: None,
                origin: "hook".into(),
                reason: None,
            };
            self.queue.add(&announcement, self.now).unwrap().id()
        }

        /// A capture whose branch is there and waits to be delivered.
        fn with_branch(&self, session: &str) -> i64 {
            let id = self.add(session);
            let claim = self.queue.claim(Stage::Intake, self.now).unwrap().unwrap();
            let branch = Branch { name: format!("nugget/{session}"), commit: "c0".into(), units: 2 };
            self.queue.advance_with_branch(&claim, Stage::Delivery, b"parcel", &branch).unwrap();
            id
        }

        fn deliver(&self) -> Claim {
            self.queue.claim(Stage::Delivery, self.now).unwrap().unwrap()
        }

        fn capture(&self, id: i64) -> Capture {
            self.queue.capture(id).unwrap().unwrap()
        }
    }

    fn done(claim: &Claim) -> Finish {
        let Capture { branch, commit, units, .. } = claim.capture.clone();
        Finish::Done { branch: branch.unwrap(), commit: commit.unwrap(), units }
    }

    #[test]
    fn a_stage_that_is_put_off_has_one_probe_and_counts_no_attempt() {
        let mut fixture = fixture();
        let ids: Vec<i64> = (0..200).map(|number| fixture.with_branch(&format!("s{number}"))).collect();
        let mut waits = Vec::new();
        for _ in 0..20 {
            let claim = fixture.deliver();
            assert_eq!(claim.capture.id, ids[0], "always the oldest");
            let until = fixture.queue.pause(&claim, "offline", None, fixture.now).unwrap();
            assert!(fixture.queue.claim(Stage::Delivery, fixture.now).unwrap().is_none());
            assert!(!fixture.queue.is_due(fixture.now).unwrap());
            assert!(!fixture.queue.is_claimable(fixture.now).unwrap());
            assert!(fixture.queue.waits_for_delivery(fixture.now).unwrap());
            assert_eq!(fixture.queue.next_due().unwrap(), Some(until));
            waits.push(until.duration_since(fixture.now).as_secs());
            fixture.now = until;
            assert!(fixture.queue.is_due(fixture.now).unwrap());
        }
        assert_eq!(waits[..9], [5, 10, 20, 40, 80, 160, 320, 640, 900]);
        assert_eq!(waits[19], 900);
        let first = fixture.capture(ids[0]);
        assert_eq!(
            (first.state, first.attempts, first.reason.as_deref()),
            (State::Retrying, 1, Some("offline"))
        );
        assert_eq!(fixture.capture(ids[1]).attempts, 0);
        let pause = fixture.queue.pauses().unwrap().remove(0);
        assert_eq!((pause.stage, pause.times, pause.why.as_str()), (Stage::Delivery, 20, "offline"));
        // The other side answers: all go on, the oldest first.
        let claim = fixture.deliver();
        fixture.queue.resume(Stage::Delivery).unwrap();
        assert_eq!(fixture.queue.pauses().unwrap(), []);
        fixture.queue.finish(&claim, &done(&claim), fixture.now).unwrap();
        assert_eq!(fixture.deliver().capture.id, ids[1]);
    }

    #[test]
    fn other_stages_go_on_while_one_is_put_off_and_a_person_may_end_it() {
        let fixture = fixture();
        let id = fixture.with_branch("s1");
        let claim = fixture.deliver();
        fixture.queue.pause(&claim, "401", Some(Duration::from_secs(600)), fixture.now).unwrap();
        fixture.add("s2");
        assert!(fixture.queue.is_due(fixture.now).unwrap());
        assert!(!fixture.queue.waits_for_delivery(fixture.now).unwrap());
        assert!(fixture.queue.claim(Stage::Intake, fixture.now).unwrap().is_some());
        fixture.queue.retry(Some(id)).unwrap();
        assert_eq!(fixture.deliver().capture.id, id);
    }

    #[test]
    fn a_pause_that_a_jumping_clock_has_set_strands_nothing() {
        let mut fixture = fixture();
        fixture.with_branch("s1");
        let claim = fixture.deliver();
        fixture.queue.pause(&claim, "offline", None, fixture.now).unwrap();
        fixture.now = "2016-11-20T14:12:00Z".parse().unwrap();
        assert!(fixture.queue.is_due(fixture.now).unwrap());
        fixture.deliver();
    }

    #[test]
    fn what_each_step_has_done_is_noted_and_what_makes_the_branch_stays_while_it_is_open() {
        let fixture = fixture();
        let id = fixture.with_branch("s1");
        let claim = fixture.deliver();
        assert_eq!(
            (claim.input.as_slice(), claim.capture.branch.as_deref()),
            (&b"parcel"[..], Some("nugget/s1"))
        );
        fixture.queue.record_push(&claim, "c0").unwrap();
        let pull = PullRequest { number: 7, url: "https://example.org/7".into(), state: PullState::Open };
        fixture.queue.record_pull_request(&claim, &pull).unwrap();
        fixture.queue.finish(&claim, &done(&claim), fixture.now).unwrap();
        let capture = fixture.capture(id);
        assert_eq!(
            (capture.state, capture.pushed.as_deref(), capture.pull_number, capture.pull_state),
            (State::Done, Some("c0"), Some(7), Some(PullState::Open))
        );
        assert_eq!(fixture.queue.saved_result(id).unwrap().as_deref(), Some(&b"parcel"[..]));
        assert_eq!(fixture.queue.awaiting_decision().unwrap(), [capture]);

        assert!(fixture.queue.reopen(id, Stage::Git, b"anew").unwrap());
        assert!(!fixture.queue.reopen(id, Stage::Git, b"anew").unwrap(), "it is under way");
        let claim = fixture.queue.claim(Stage::Git, fixture.now).unwrap().unwrap();
        assert_eq!(claim.input, b"anew");
        fixture.queue.finish(&claim, &done(&claim), fixture.now).unwrap();
        assert!(fixture.queue.saved_result(id).unwrap().is_some());
        fixture.queue.set_pull_state(id, PullState::Merged).unwrap();
        assert_eq!(fixture.queue.saved_result(id).unwrap(), None);
        assert!(!fixture.queue.reopen(id, Stage::Git, b"anew").unwrap());
        assert_eq!(fixture.queue.awaiting_decision().unwrap(), []);
    }

    #[test]
    fn a_late_claim_notes_nothing() {
        let fixture = fixture();
        fixture.with_branch("s1");
        let late = fixture.deliver();
        fixture.queue.release_claims(Some(Stage::Delivery)).unwrap();
        fixture.deliver();
        assert!(matches!(fixture.queue.record_push(&late, "c"), Err(Error::Stale { .. })));
        assert!(matches!(fixture.queue.pause(&late, "x", None, fixture.now), Err(Error::Stale { .. })));
    }

    #[test]
    fn a_session_that_goes_on_is_read_while_its_first_branch_waits_for_the_remote() {
        let fixture = fixture();
        fixture.with_branch("s");
        let claim = fixture.deliver();
        fixture.queue.pause(&claim, "offline", None, fixture.now).unwrap();
        let second = fixture.add("s");
        assert_eq!(fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap().capture.id, second);
    }

    #[test]
    fn an_import_is_entered_once_and_delivered_now_or_once_there_is_a_remote() {
        let fixture = fixture();
        let branch =
            |commit: &str| Branch { name: "nugget/import-1".into(), commit: commit.into(), units: 3 };
        let now = fixture.queue.add_import(&branch("c1"), true, fixture.now).unwrap();
        assert_eq!(fixture.queue.add_import(&branch("c1"), true, fixture.now).unwrap(), now);
        let claim = fixture.deliver();
        assert_eq!(
            (claim.capture.id, claim.capture.origin.as_str(), claim.capture.units),
            (now, ORIGIN_IMPORT, 3)
        );
        fixture.queue.finish(&claim, &done(&claim), fixture.now).unwrap();
        let later = fixture.queue.add_import(&branch("c2"), false, fixture.now).unwrap();
        assert_eq!(fixture.capture(later).state, State::Done);
        assert!(fixture.queue.claim(Stage::Delivery, fixture.now).unwrap().is_none());
        assert_eq!(fixture.queue.redeliver().unwrap(), 2);
        assert_eq!((fixture.deliver().capture.id, fixture.deliver().capture.id), (now, later));
    }

    #[test]
    fn a_ledger_of_before_there_were_remotes_is_brought_up_to_date_and_delivered_in_order_of_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(&crate::schema::STEPS[..2].concat()).unwrap();
        old.execute_batch(
            "INSERT INTO captures (session_id, transcript, origin, stage, outcome, branch, commit_id, units, added_ms)
             VALUES ('s1', '/t', 'hook', 'git', 'done', 'nugget/s1', 'c1', 1, 1),
                    ('s2', '/t', 'hook', 'git', 'nothing', NULL, NULL, 0, 2),
                    ('s3', '/t', 'hook', 'git', 'done', 'nugget/s3', 'c3', 1, 3);
             PRAGMA user_version = 2;",
        )
        .unwrap();
        drop(old);
        let queue = Queue::open(&path).unwrap();
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        assert_eq!(queue.undelivered().unwrap(), 2);
        assert_eq!(queue.redeliver().unwrap(), 2);
        assert_eq!(queue.redeliver().unwrap(), 0);
        for expected in [1, 3] {
            let claim = queue.claim(Stage::Delivery, now).unwrap().unwrap();
            assert_eq!((claim.capture.id, claim.input.len()), (expected, 0));
            queue.record_push(&claim, "c").unwrap();
            queue.finish(&claim, &done(&claim), now).unwrap();
        }
        assert_eq!((queue.undelivered().unwrap(), queue.awaiting_decision().unwrap().len()), (0, 2));
    }
}
