//! What all stages of a capture share: claim one job, work on it, and in one transaction keep the
//! result and pass it on.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use knowledge::{Candidate, Rejected};
use queue::{Branch, Claim, Finish, Queue, Stage, TranscriptStamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use transcript::redact::redact;

use crate::health::Health;

/// The queue as the stages see it, with the time of day that it goes by.
#[derive(Clone)]
pub struct Jobs {
    pub queue: Queue,
    pub clock: Clock,
    /// The life of each stage's actor that may claim.
    lives: Arc<[Mutex<u64>; Stage::ALL.len()]>,
    /// The one that has these.
    life: u64,
    #[cfg(test)]
    pub(crate) faults: crate::testbed::Faults,
}

impl Jobs {
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            clock: Clock::default(),
            lives: Arc::default(),
            life: 0,
            #[cfg(test)]
            faults: crate::testbed::Faults::default(),
        }
    }

    /// Takes over from whoever has worked on the queue before, and is known to be gone.
    pub(crate) fn take_over_all(&self) -> Result<(), queue::Error> {
        let mut living = Stage::ALL.map(|stage| self.living(stage));
        living.iter_mut().for_each(|living| **living += 1);
        self.queue.release_claims(None).map(drop)
    }

    /// Takes over from the last life of a stage's actor: what that had claimed is claimable again.
    ///
    /// That life may have left a closure behind that is about to claim. What it claimed from here on
    /// nobody would work on, nor take for abandoned; so it is too late for it.
    pub(crate) fn take_over(&mut self, stage: Stage, health: &Health) -> Result<(), queue::Error> {
        let lives = Arc::clone(&self.lives);
        let mut living = lives[stage as usize].lock().unwrap_or_else(PoisonError::into_inner);
        *living += 1;
        self.life = *living;
        let taken = match health.last_fall() {
            Some(why) => self.queue.release_failed(stage, &why),
            None => self.queue.release_claims(Some(stage)),
        };
        taken.map(drop)
    }

    fn claim(&self, stage: Stage) -> Result<Option<Claim>, queue::Error> {
        let living = self.living(stage);
        if *living == self.life { self.queue.claim(stage, self.clock.now()) } else { Ok(None) }
    }

    fn living(&self, stage: Stage) -> MutexGuard<'_, u64> {
        self.lives[stage as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of day, for what is kept. It jumps, so no wait is measured by it.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(Timestamp::now))
    }
}

impl Clock {
    /// One that is not the machine's.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// How a stage leaves the job in its hands.
pub(crate) enum Step {
    /// Keep the result, go on to the next stage.
    Next(Stage, Vec<u8>),
    /// The same, with the branch that was made.
    NextOnBranch(Stage, Vec<u8>, Branch),
    /// The same, taking these lines of the transcript for the capture.
    NextWithLines(Stage, Vec<u8>, Vec<String>, Option<TranscriptStamp>),
    End(Finish),
    /// The same at intake, when the transcript was read and held nothing.
    EndRead(Finish, Option<TranscriptStamp>),
}

/// Why a stage could not do its job.
#[derive(Debug)]
pub(crate) struct Failure {
    pub message: String,
    /// When the other side wants to be asked again; such a wait is no attempt.
    pub after: Option<Duration>,
    /// No retry will help.
    pub permanent: bool,
    /// What is in the way is in the way of every capture at this stage: all of them wait, and none has
    /// done anything wrong.
    pub everyone: bool,
}

impl Failure {
    /// A failure that another attempt may mend.
    pub(crate) fn passing(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { message: chain(error), after: None, permanent: false, everyone: false }
    }

    pub(crate) fn permanent(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { permanent: true, ..Self::passing(error) }
    }

    pub(crate) fn of(message: impl Display) -> Self {
        Self { message: message.to_string(), after: None, permanent: false, everyone: false }
    }
}

/// What came of one look into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worked {
    /// Nothing was to be done.
    Idle,
    /// A job was worked on and has gone to this stage, or to its end.
    Passed(Option<Stage>),
    /// It failed, and waits or is dead.
    Failed,
}

/// Claims one job of a stage and carries it one step. A failure belongs to the job, and so does a
/// result that cannot be kept; only a queue that cannot even note that is the actor's.
pub(crate) async fn work_once<F>(
    jobs: &Jobs,
    stage: Stage,
    work: impl FnOnce(Claim) -> F,
) -> Result<Worked, queue::Error>
where
    F: Future<Output = Result<Step, Failure>>,
{
    let Some(claim) = blocking({
        let jobs = jobs.clone();
        move || jobs.claim(stage)
    })
    .await?
    else {
        return Ok(Worked::Idle);
    };
    #[cfg(test)]
    jobs.faults.strike(crate::testbed::Place::Claimed(stage), &claim).await;
    let step = work(claim.clone()).await;
    #[cfg(test)]
    jobs.faults.strike(crate::testbed::Place::Worked(stage), &claim).await;
    let jobs = jobs.clone();
    blocking(move || {
        match settle(&jobs.queue, &claim, step, jobs.clock.now()) {
            // Somebody else has the job by now: this life was believed dead. What it did was
            // idempotent, so there is nothing to undo.
            Err(queue::Error::Stale { id }) => {
                tracing::warn!(capture = id, %stage, "came too late for a capture");
                Ok(Worked::Failed)
            }
            // Were the actor to fall over it, it would be tried again at once, and be dead within a
            // second without a word of what was wrong.
            Err(error) => {
                let message = chain(&error);
                tracing::error!(capture = claim.capture.id, error = message, "a result cannot be kept");
                jobs.queue.fail(&claim, &message, None, jobs.clock.now())?;
                Ok(Worked::Failed)
            }
            settled => settled,
        }
    })
    .await
}

fn settle(
    queue: &Queue,
    claim: &Claim,
    step: Result<Step, Failure>,
    now: Timestamp,
) -> Result<Worked, queue::Error> {
    let id = claim.capture.id;
    match step {
        Ok(Step::Next(next, result)) => {
            queue.advance(claim, next, &result)?;
            Ok(Worked::Passed(Some(next)))
        }
        Ok(Step::NextOnBranch(next, result, branch)) => {
            queue.advance_with_branch(claim, next, &result, &branch)?;
            Ok(Worked::Passed(Some(next)))
        }
        Ok(Step::NextWithLines(next, result, lines, seen)) => {
            let taken = queue.advance_with_lines(claim, next, &result, &lines, seen.as_ref())?;
            if taken.is_empty() {
                return Ok(Worked::Passed(Some(next)));
            }
            // A fork took them between the reading and now; the next attempt reads without them.
            let message = format!("{} lines were taken by another capture", taken.len());
            queue.fail(claim, &message, Some(Duration::ZERO), now)?;
            Ok(Worked::Failed)
        }
        Ok(Step::End(finish)) => settle(queue, claim, Ok(Step::EndRead(finish, None)), now),
        Ok(Step::EndRead(finish, seen)) => {
            queue.finish_with_transcript(claim, &finish, seen.as_ref(), now)?;
            tracing::info!(capture = id, session = %claim.capture.session_id, ?finish, "a capture has ended");
            Ok(Worked::Passed(None))
        }
        Err(failure) if failure.permanent => {
            tracing::error!(capture = id, error = failure.message, "a capture cannot be saved");
            queue.finish(claim, &Finish::Dead { reason: failure.message }, now)?;
            Ok(Worked::Failed)
        }
        Err(failure) if failure.everyone => {
            let stage = claim.capture.stage;
            let until = queue.pause(claim, &failure.message, failure.after, now)?;
            tracing::warn!(capture = id, %stage, %until, error = failure.message, "a stage is put off");
            Ok(Worked::Failed)
        }
        Err(failure) => {
            tracing::warn!(capture = id, error = failure.message, "a capture has failed and is retried");
            queue.fail(claim, &failure.message, failure.after, now)?;
            Ok(Worked::Failed)
        }
    }
}

/// Runs blocking work on a thread of its own; its panic becomes the actor's.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match apart(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs blocking work on a thread of its own. It goes on when nobody waits for it any more.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(test)]
    if let Some(duration) = crate::simulation::duration_of_work() {
        let work = async move {
            tokio::time::sleep(duration).await;
            work()
        };
        return tokio::spawn(work).await;
    }
    tokio::task::spawn_blocking(work).await
}

/// Runs a future that may compute for long between its waits, so that however long it does, whoever
/// waits for it can be killed. The future is dropped then, at its next wait.
pub(crate) async fn apart_async<F>(work: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(test)]
    if crate::simulation::is_on() {
        return work.await;
    }
    let (_wanted, unwanted) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let output = blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = unwanted => None,
                output = work => Some(output),
            }
        })
    });
    match output.await {
        Some(output) => output,
        None => std::future::pending().await,
    }
}

/// An error with all that lies behind it, in one line. Others' words come in it, so it is redacted.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    redact(&knowledge::text::error_chain(error)).into_owned()
}

/// What the session was, for titles and dates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub project: Option<String>,
    #[serde(default)]
    pub begun: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

/// What extraction keeps for embedding, and embedding (with the vectors) for indexing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub session: Session,
    pub candidates: Vec<Candidate>,
    pub rejected: Vec<Rejected>,
    /// Who found them: `heuristic`, or the model's name.
    pub by: String,
    /// One for each candidate, once embedding has been there.
    #[serde(default)]
    pub vectors: Vec<Vec<f32>>,
    /// The name of the model that the vectors are of.
    #[serde(default)]
    pub model: String,
}

impl Found {
    /// What of each candidate is compared with the brain: what its unit's first chunk would say.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.candidates.iter().map(text_of).collect()
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::permanent(&error))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::permanent(&error))
}

/// What of a candidate is compared with the brain.
pub(crate) fn text_of(candidate: &Candidate) -> String {
    format!("{}\n\n{}", candidate.title, candidate.body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use queue::{Announcement, State};

    /// A queue with one capture.
    fn jobs(folder: &tempfile::TempDir) -> Jobs {
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let announcement = Announcement::new(knowledge::SessionId::verbatim("s1"), "/t/s1.jsonl", "hook");
        queue.add(&announcement, Timestamp::now()).unwrap();
        Jobs::new(queue)
    }

    #[test]
    fn a_closure_of_an_earlier_life_claims_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let health = Health::new("intake", Duration::ZERO);
        let mut killed = jobs(&folder);
        let mut successor = killed.clone();
        killed.take_over(Stage::Intake, &health).unwrap();
        successor.take_over(Stage::Intake, &health).unwrap();
        assert!(killed.claim(Stage::Intake).unwrap().is_none());
        assert!(successor.claim(Stage::Intake).unwrap().is_some());
        successor.take_over_all().unwrap();
        assert!(successor.claim(Stage::Intake).unwrap().is_none(), "its round is over");
    }

    #[tokio::test]
    async fn an_unsaved_result_waits_for_its_retry_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = jobs(&folder);
        let other = rusqlite::Connection::open(jobs.queue.path()).unwrap();
        let trigger = "CREATE TRIGGER full BEFORE INSERT ON results BEGIN SELECT RAISE(FAIL, 'no room'); END";
        other.execute_batch(trigger).unwrap();
        let next = |_| async { Ok(Step::Next(Stage::Extraction, b"words".to_vec())) };
        let worked = work_once(&jobs, Stage::Intake, next).await.unwrap();
        assert_eq!(worked, Worked::Failed);
        let capture = jobs.queue.capture(1).unwrap().unwrap();
        assert_eq!((capture.state, capture.attempts), (State::Retrying, 1));
        assert!(capture.reason.unwrap().contains("no room"));
    }
}
