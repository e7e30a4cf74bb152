//! A queue in a temporary folder, for the tests of this crate.

use jiff::Timestamp;
use knowledge::SessionId;

use crate::suite::LedgerUnderTest;
use crate::{Announcement, Branch, Capture, Claim, Finish, Ledger, Queue, Stage};

pub(crate) struct TestQueue {
    pub(crate) _folder: tempfile::TempDir,
    pub(crate) queue: Queue,
    /// The time that the helpers pass; tests move it.
    pub(crate) now: Timestamp,
}

pub(crate) fn announcement(session: &str) -> Announcement {
    Announcement::new(SessionId::verbatim(session), format!("/t/{session}.jsonl"), "hook")
}

impl TestQueue {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        Self { _folder: folder, queue, now: "2026-11-20T14:12:00Z".parse().unwrap() }
    }

    pub(crate) fn add(&self, session: &str) -> i64 {
        self.queue.add(&announcement(session), self.now).unwrap().id()
    }

    pub(crate) fn claim(&self, stage: Stage) -> Option<Claim> {
        self.queue.claim(stage, self.now).unwrap()
    }

    pub(crate) fn capture(&self, id: i64) -> Capture {
        self.queue.capture(id).unwrap().unwrap()
    }
}

impl TestQueue {
    /// Adds a capture whose branch exists and waits for delivery.
    pub(crate) fn add_with_branch(&self, session: &str) -> i64 {
        let id = self.add(session);
        let claim = self.claim(Stage::Intake).unwrap();
        let branch = Branch { name: format!("nugget/{session}"), commit: "c0".into(), units: 2 };
        self.queue.advance_with_branch(&claim, Stage::Delivery, b"input", &branch).unwrap();
        id
    }

    pub(crate) fn finish_delivery(&self, claim: &Claim) {
        let Capture { branch, commit, units, .. } = claim.capture.clone();
        let branch = Branch { name: branch.unwrap(), commit: commit.unwrap(), units };
        self.queue.finish(claim, &Finish::Done(branch), self.now).unwrap();
    }
}

impl LedgerUnderTest for TestQueue {
    fn ledger(&self) -> &dyn Ledger {
        &self.queue
    }

    fn add(&self, session: &str, stage: Stage) -> i64 {
        let id = TestQueue::add(self, session);
        if stage != Stage::Intake {
            let sql = "UPDATE captures SET stage = ?2 WHERE id = ?1";
            self.queue.execute(sql, rusqlite::params![id, stage.as_str()]).unwrap();
        }
        id
    }

    fn forget(&self, id: i64) {
        self.queue.forget(id, self.now).unwrap();
    }
}

mod ledger {
    crate::ledger_suite!(|| Some(super::TestQueue::new()));
}
