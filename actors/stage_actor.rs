//! The actor that every stage of a capture shares: it claims one job, has its worker do it, and in one
//! transaction keeps the result and hands the capture on to the next stage.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use queue::{Branch, Claim, Finish, Stage, TranscriptStamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::background::run_blocking;
use crate::failure::{Failure, FailureClass};
use crate::jobs::{Jobs, WorkPoint};
use crate::mailbox::Mailbox;

/// The shortest and the longest wait after a failure that is not certainly the capture's own.
const WAIT_MIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// The work of one stage.
pub(crate) trait StageWorker: Clone + Send + Sync + 'static {
    const STAGE: Stage;
    /// What else the stage's actor is asked for; [`std::convert::Infallible`] for nothing.
    type Request: Send + 'static;

    /// Does one job. It may be repeated after a crash at any point, and changes nothing in the queue that
    /// decides about the capture: that is what the returned [`Step`] is for.
    fn work(&self, claim: Claim) -> impl Future<Output = Result<Step, Failure>> + Send;

    /// Handles a request.
    fn answer(&self, _request: Self::Request) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called once the result of a job is committed.
    fn committed(&self) {}
}

/// What a stage's actor can be sent.
pub(crate) enum StageMessage<R> {
    /// There may be jobs in the queue.
    Wake,
    Request(R),
}

/// The actor of the stage of `W`.
#[derive(Clone)]
pub(crate) struct StageActor<W: StageWorker> {
    pub(crate) worker: W,
    /// The queue to work on; `None` where only requests are answered.
    pub(crate) jobs: Option<Jobs>,
    pub(crate) mailbox: StageMailbox<W>,
    pub(crate) wakers: StageWakers,
}

/// The mailbox of the stage of `W`.
pub(crate) type StageMailbox<W> = Arc<Mailbox<StageMessage<<W as StageWorker>::Request>>>;

type Waker = Box<dyn Fn() + Send + Sync>;

/// Wakes the actor of any stage, without knowing its type.
#[derive(Clone, Default)]
pub(crate) struct StageWakers(Arc<[OnceLock<Waker>; Stage::ALL.len()]>);

impl StageWakers {
    pub(crate) fn register<R: Send + 'static>(&self, stage: Stage, mailbox: Arc<Mailbox<StageMessage<R>>>) {
        let _ = self.0[stage as usize].set(Box::new(move || mailbox.wake(StageMessage::Wake)));
    }

    pub(crate) fn wake(&self, stage: Stage) {
        if let Some(wake) = self.0[stage as usize].get() {
            wake();
        }
    }

    pub(crate) fn wake_all(&self) {
        Stage::ALL.into_iter().for_each(|stage| self.wake(stage));
    }
}

impl<W: StageWorker> Actor for StageActor<W> {
    type Msg = StageMessage<W::Request>;
    type State = Option<Jobs>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Self::Msg>, (): ()) -> Result<Option<Jobs>, ActorProcessingErr> {
        let mut jobs = self.jobs.clone();
        if let Some(jobs) = &mut jobs {
            jobs.take_over(W::STAGE, self.mailbox.health())?;
        }
        Ok(jobs)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        jobs: &mut Option<Jobs>,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = self.mailbox.health().begin();
        match (message, jobs) {
            (StageMessage::Request(request), _) => self.worker.answer(request).await,
            (StageMessage::Wake, jobs) => {
                self.mailbox.clear_wake();
                let Some(jobs) = jobs else { return Ok(()) };
                let worked = work_once(jobs, &self.worker).await?;
                if let Worked::Passed(next) = worked {
                    self.worker.committed();
                    next.into_iter().for_each(|next| self.wakers.wake(next));
                }
                if worked != Worked::Idle {
                    self.mailbox.wake_again(&myself, StageMessage::Wake);
                }
            }
        }
        Ok(())
    }
}

/// How a stage leaves a job.
pub(crate) enum Step {
    /// Keep the result and go on to the next stage.
    Next(Stage, Vec<u8>),
    /// The same, with the branch that was made.
    NextOnBranch(Stage, Vec<u8>, Branch),
    /// The same, taking these lines of the transcript for the capture.
    NextWithLines(Stage, Vec<u8>, Vec<String>, Option<TranscriptStamp>),
    /// End the capture; at intake with the transcript that was read.
    End(Finish, Option<TranscriptStamp>),
}

impl Step {
    /// Ends a capture that yields nothing.
    pub(crate) fn end_with_nothing(reason: String) -> Self {
        Self::End(Finish::Nothing { reason }, None)
    }

    /// Ends a capture whose branch is made.
    pub(crate) fn end_with_branch(branch: Branch) -> Self {
        Self::End(Finish::Done(branch), None)
    }
}

/// What came of a look into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worked {
    /// There was no job.
    Idle,
    /// A job was done and has gone to this stage, or to its end.
    Passed(Option<Stage>),
    /// It failed, and waits or is dead.
    Failed,
}

/// Claims one job of a stage and carries it one step. A failure belongs to the job, and so does a result
/// that cannot be kept; only a queue that cannot even record that fails the actor.
async fn work_once<W: StageWorker>(jobs: &Jobs, worker: &W) -> Result<Worked, queue::Error> {
    let stage = W::STAGE;
    let claiming = jobs.clone();
    let Some(claim) = run_blocking(move || claiming.claim(stage)).await? else { return Ok(Worked::Idle) };
    jobs.reached(WorkPoint::Claimed(stage), &claim).await;
    let step = worker.work(claim.clone()).await;
    jobs.reached(WorkPoint::Worked(stage), &claim).await;
    let jobs = jobs.clone();
    run_blocking(move || {
        match settle(&jobs, &claim, step) {
            // Another incarnation has claimed the job, as this one was believed dead. What this one did can
            // be repeated, so there is nothing to undo.
            Err(queue::Error::Stale { id }) => {
                tracing::warn!(capture = id, %stage, "another claim of the capture has replaced this one");
                Ok(Worked::Failed)
            }
            // If the actor failed with this error, the job would be tried again at once, and be dead within
            // a second without a record of what was wrong.
            Err(error) => settle(&jobs, &claim, Err(Failure::from(error))),
            settled => settled,
        }
    })
    .await
}

fn settle(jobs: &Jobs, claim: &Claim, step: Result<Step, Failure>) -> Result<Worked, queue::Error> {
    let Jobs { queue, clock, .. } = jobs;
    let (id, stage) = (claim.capture.id, claim.capture.stage);
    let failure = match step {
        Ok(Step::Next(next, result)) => {
            queue.advance(claim, next, &result)?;
            return Ok(Worked::Passed(Some(next)));
        }
        Ok(Step::NextOnBranch(next, result, branch)) => {
            queue.advance_with_branch(claim, next, &result, &branch)?;
            return Ok(Worked::Passed(Some(next)));
        }
        Ok(Step::NextWithLines(next, result, lines, seen)) => {
            let taken = queue.advance_with_lines(claim, next, &result, &lines, seen.as_ref())?;
            if taken.is_empty() {
                return Ok(Worked::Passed(Some(next)));
            }
            // A fork took them since they were read; the next attempt reads without them.
            let message = format!("{} lines were taken by another capture", taken.len());
            return fail(jobs, claim, &message, Some(Duration::ZERO));
        }
        Ok(Step::End(finish, seen)) => {
            queue.finish_with_transcript(claim, &finish, seen.as_ref(), clock.now())?;
            tracing::info!(capture = id, session = %claim.capture.session_id, ?finish, "a capture has ended");
            return Ok(Worked::Passed(None));
        }
        Err(failure) => failure,
    };
    let Failure { class, message } = failure;
    match class {
        FailureClass::Permanent => {
            tracing::error!(capture = id, error = message, "a capture cannot be saved");
            queue.finish_with_transcript(claim, &Finish::Dead { reason: message }, None, clock.now())?;
        }
        FailureClass::BlocksStage(wait) => {
            let until = queue.pause(claim, &message, wait, clock.now())?;
            tracing::warn!(capture = id, %stage, %until, error = message, "a stage is blocked");
        }
        FailureClass::Retry(_) | FailureClass::Waits => {
            tracing::warn!(capture = id, error = message, "a capture has failed and will be retried");
            let wait = match class {
                FailureClass::Retry(wait) => wait,
                _ => {
                    let waited = clock.now().duration_since(claim.capture.added);
                    Some(Duration::try_from(waited).unwrap_or_default().clamp(WAIT_MIN, WAIT_MAX))
                }
            };
            return fail(jobs, claim, &message, wait);
        }
    }
    Ok(Worked::Failed)
}

fn fail(jobs: &Jobs, claim: &Claim, message: &str, wait: Option<Duration>) -> Result<Worked, queue::Error> {
    jobs.queue.fail(claim, message, wait, jobs.clock.now())?;
    Ok(Worked::Failed)
}

#[cfg(test)]
mod tests {
    use queue::State;

    use super::*;

    #[derive(Clone)]
    struct Advance;

    impl StageWorker for Advance {
        const STAGE: Stage = Stage::Intake;
        type Request = std::convert::Infallible;

        async fn work(&self, _: Claim) -> Result<Step, Failure> {
            Ok(Step::Next(Stage::Extraction, b"words".to_vec()))
        }
    }

    #[tokio::test]
    async fn a_result_that_cannot_be_kept_is_retried_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = crate::testing::jobs_with_one_capture(&folder);
        let other = rusqlite::Connection::open(folder.path().join("queue.db")).unwrap();
        let trigger = "CREATE TRIGGER full BEFORE INSERT ON results BEGIN SELECT RAISE(FAIL, 'no room'); END";
        other.execute_batch(trigger).unwrap();
        assert_eq!(work_once(&jobs, &Advance).await.unwrap(), Worked::Failed);
        let capture = jobs.queue.capture(1).unwrap().unwrap();
        // It is no fault of the capture, so it has used no attempt.
        assert_eq!((capture.state, capture.attempts), (State::Queued, 0));
        assert!(capture.reason.unwrap().contains("no room"));
        assert!(jobs.queue.next_due().unwrap().unwrap() > jobs.clock.now());
    }

    #[derive(Clone)]
    struct MeetsTheUnknown;

    impl StageWorker for MeetsTheUnknown {
        const STAGE: Stage = Stage::Intake;
        type Request = std::convert::Infallible;

        async fn work(&self, _: Claim) -> Result<Step, Failure> {
            Err(Failure::new(FailureClass::Waits, "a message that nobody knows"))
        }
    }

    #[tokio::test]
    async fn a_capture_that_waits_uses_no_attempt_and_waits_ever_longer() {
        let folder = tempfile::tempdir().unwrap();
        let mut jobs = crate::testing::jobs_with_one_capture(&folder);
        let mut now = jobs.queue.capture(1).unwrap().unwrap().added;
        let mut waits = Vec::new();
        for _ in 0..12 {
            jobs.clock = crate::jobs::Clock::new(move || now);
            assert_eq!(work_once(&jobs, &MeetsTheUnknown).await.unwrap(), Worked::Failed);
            let capture = jobs.queue.capture(1).unwrap().unwrap();
            assert_eq!((capture.state.is_final(), capture.attempts), (false, 0));
            let due = jobs.queue.next_due().unwrap().unwrap();
            waits.push(due.duration_since(now).as_secs());
            now = due;
        }
        assert_eq!(waits, [5, 5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]);
    }
}
