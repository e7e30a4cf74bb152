//! What all stages of a capture share: claim one job, work on it, and in one transaction keep the
//! result and pass it on.

use std::fmt::Display;
use std::time::Duration;

use jiff::Timestamp;
use knowledge::{Candidate, Rejected};
use queue::{Claim, Finish, Queue, Seen, Stage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How a stage leaves the job in its hands.
pub(crate) enum Step {
    /// Keep the result, go on to the next stage.
    Next(Stage, Vec<u8>),
    /// The same, taking these lines of the transcript for the capture.
    NextWithLines(Stage, Vec<u8>, Vec<String>, Option<Seen>),
    End(Finish),
    /// The same at intake, when the transcript was read and held nothing.
    EndRead(Finish, Option<Seen>),
}

/// Why a stage could not do its job.
#[derive(Debug)]
pub(crate) struct Failure {
    pub message: String,
    /// When the other side wants to be asked again; such a wait is no attempt.
    pub after: Option<Duration>,
    /// No retry will help.
    pub permanent: bool,
}

impl Failure {
    /// A failure that another attempt may mend.
    pub(crate) fn passing(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { message: chain(error), after: None, permanent: false }
    }

    pub(crate) fn permanent(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { permanent: true, ..Self::passing(error) }
    }

    pub(crate) fn of(message: impl Display) -> Self {
        Self { message: message.to_string(), after: None, permanent: false }
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
    queue: &Queue,
    stage: Stage,
    work: impl FnOnce(Claim) -> F,
) -> Result<Worked, queue::Error>
where
    F: Future<Output = Result<Step, Failure>>,
{
    let Some(claim) = blocking({
        let queue = queue.clone();
        move || queue.claim(stage, Timestamp::now())
    })
    .await?
    else {
        return Ok(Worked::Idle);
    };
    let step = work(claim.clone()).await;
    let queue = queue.clone();
    blocking(move || {
        match settle(&queue, &claim, step) {
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
                queue.fail(&claim, &message, None, Timestamp::now())?;
                Ok(Worked::Failed)
            }
            settled => settled,
        }
    })
    .await
}

fn settle(queue: &Queue, claim: &Claim, step: Result<Step, Failure>) -> Result<Worked, queue::Error> {
    let now = Timestamp::now();
    let id = claim.capture.id;
    match step {
        Ok(Step::Next(next, result)) => {
            queue.advance(claim, next, &result)?;
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
        Ok(Step::End(finish)) => settle(queue, claim, Ok(Step::EndRead(finish, None))),
        Ok(Step::EndRead(finish, seen)) => {
            queue.finish_read(claim, &finish, seen.as_ref(), now)?;
            tracing::info!(capture = id, session = %claim.capture.session_id, ?finish, "a capture has ended");
            Ok(Worked::Passed(None))
        }
        Err(failure) if failure.permanent => {
            tracing::error!(capture = id, error = failure.message, "a capture cannot be saved");
            queue.finish(claim, &Finish::Dead { reason: failure.message }, now)?;
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
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// An error with all that lies behind it, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// What the session was, for titles and dates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub project: Option<String>,
    pub ended: Option<Timestamp>,
}

/// What extraction keeps for embedding, and embedding (with the vectors) for indexing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub session: Session,
    pub candidates: Vec<Candidate>,
    pub rejected: Vec<Rejected>,
    /// Who found them: `heuristic`, or the model's name.
    pub by: String,
    /// One for each candidate, once embedding has been there.
    #[serde(default)]
    pub vectors: Vec<Vec<f32>>,
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Failure::permanent(&error))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::permanent(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use queue::{Announcement, State};

    #[tokio::test]
    async fn a_result_that_cannot_be_kept_waits_for_its_retry_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let announcement = Announcement {
            session: knowledge::SessionId::verbatim("s1"),
            transcript: "/t/s1.jsonl".into(),
            cwd: None,
            origin: "hook".into(),
            reason: None,
        };
        let id = queue.add(&announcement, Timestamp::now()).unwrap().id();
        let other = rusqlite::Connection::open(queue.path()).unwrap();
        let trigger = "CREATE TRIGGER full BEFORE INSERT ON results BEGIN SELECT RAISE(FAIL, 'no room'); END";
        other.execute_batch(trigger).unwrap();
        let next = |_| async { Ok(Step::Next(Stage::Extraction, b"words".to_vec())) };
        let worked = work_once(&queue, Stage::Intake, next).await.unwrap();
        assert_eq!(worked, Worked::Failed);
        let capture = queue.capture(id).unwrap().unwrap();
        assert_eq!((capture.state, capture.attempts), (State::Retrying, 1));
        assert!(capture.reason.unwrap().contains("no room"));
    }
}
