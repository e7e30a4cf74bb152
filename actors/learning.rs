//! Learns from archived sessions what helps, in the background of everything else: keeps what sessions were shown,
//! judges what they used of it, and learns the order of answers from that.
//!
//! A round goes by what the tables say and not by messages, so that a lost one costs time only. Each of its steps is one
//! transaction that may be repeated: what was shown is known by its number, a judgement takes the place of the one before,
//! and weights are learned from zero from all judgements, and replaced in one row together with how far they have learned.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use archive::{Archive, ChangedScope, ExtractionOutcome, JudgedQuestion, Learned, Session};
use feedback::{Candidate, Example, Gate, Learner, Listwise, Reinforce, Shown, Steps, choose};
use index::Catalog;
use jiff::Timestamp;
use queue::{FileLocks, Question, Queue, Showing};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};

use crate::background::{Cancellation, on_own_thread};
use crate::citations::{judge_session, parse_outcome};
use crate::failure::error_chain;
use crate::mailbox::Mailbox;

/// The name of the report about learning in the queue, for `nugget learn status`.
pub const LEARNING_REPORT: &str = "learning";
/// How many rows of the queue are moved at once.
const MOVED_AT_ONCE: usize = 50;
/// How many sessions are judged in one round.
const JUDGED_MAX: usize = 200;
const STOP_CHECK_EVERY: Duration = Duration::from_millis(50);
/// Steps on whole lists may be so much larger than those on single items.
const LISTWISE_RATE_FACTOR: f64 = 3.0;

/// What is learned, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The archive's database.
    pub archive: PathBuf,
    /// The queue's database.
    pub queue: PathBuf,
    /// The name of the brain's state folder.
    pub brain: String,
    /// The folder of the brain's index.
    pub index: PathBuf,
    /// The session that this process belongs to, where the client says so.
    pub session: Option<String>,
    /// Whether projects learn from each other.
    pub is_shared: bool,
    /// Whether what is shown is drawn by chance.
    pub explores: bool,
    /// How many units the learned order moves.
    pub candidates_max: usize,
    /// How many of them are shown while they are drawn by chance.
    pub shown_max: usize,
    /// τ of the draw and of REINFORCE.
    pub temperature: f64,
    /// b of REINFORCE.
    pub baseline: f64,
    /// The rate of REINFORCE's steps.
    pub rate: f64,
    /// The share of sessions that a unit is withheld from.
    pub holdout: f64,
}

impl Settings {
    fn reinforce(&self) -> Reinforce {
        let usual = Reinforce::default();
        let steps = Steps { rate: self.rate, ..usual.steps };
        Reinforce { temperature: self.temperature, baseline: self.baseline, steps, ..usual }
    }

    fn listwise(&self) -> Listwise {
        let usual = Listwise::default();
        Listwise { steps: Steps { rate: LISTWISE_RATE_FACTOR * self.rate, ..usual.steps }, ..usual }
    }
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// The queue cannot be used.
    #[error("failed to read what sessions were shown")]
    Queue(#[from] queue::Error),
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundSummary {
    /// Items that the archive has now.
    pub shown: usize,
    /// Sessions that were judged.
    pub judged: usize,
    /// Projects whose weights were replaced.
    pub learned: usize,
}

/// Does one round, and waits for a running one first. `None` without an archive, if another round waits already, or if
/// this one was cancelled while it waited.
///
/// # Errors
/// When the archive or the queue cannot be used. What was done is kept, and the next round goes on from there.
pub fn run_round(
    settings: &Settings,
    progress: &dyn Fn(),
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<RoundSummary>, Error> {
    let Some(archive) = Archive::open_existing(&settings.archive)? else { return Ok(None) };
    // One round at a time spares the others its work; it would be correct without. The running one may have read
    // before there was what this one is for, so this one waits. Another that waits already will read it, too.
    let path = &settings.archive;
    let locks = FileLocks::new(path.with_extension("learn-wait.lock"), path.with_extension("learn.lock"));
    let Some(standby) = locks.try_standby_lock()? else { return Ok(None) };
    let _lock = loop {
        progress();
        if is_cancelled() {
            return Ok(None);
        }
        match locks.try_drain_lock()? {
            Some(lock) => break lock,
            None => std::thread::sleep(STOP_CHECK_EVERY),
        }
    };
    drop(standby);
    let queue = Queue::open(&settings.queue)?;
    let round = Round { settings, archive, queue, progress, is_cancelled };
    let mut summary = RoundSummary { shown: round.keep_shown()?, ..RoundSummary::default() };
    summary.judged = round.judge()?;
    summary.learned = round.learn()?;
    round.keep_proposals()?;
    Ok(Some(summary))
}

struct Round<'r> {
    settings: &'r Settings,
    archive: Archive,
    queue: Queue,
    progress: &'r dyn Fn(),
    is_cancelled: &'r dyn Fn() -> bool,
}

impl Round<'_> {
    fn goes_on(&self) -> bool {
        (self.progress)();
        !(self.is_cancelled)()
    }

    /// Moves what archived sessions were shown from the queue to the archive.
    fn keep_shown(&self) -> Result<usize, Error> {
        let (mut kept, mut after) = (0, 0);
        while self.goes_on() {
            let found = self.queue.showings(after, MOVED_AT_ONCE)?;
            let Some((last, _)) = found.last() else { break };
            after = *last;
            let mut numbers = Vec::new();
            let mut showings: Vec<(Session, Showing)> = Vec::new();
            for (number, showing) in found {
                if let Some(session) = self.archive.session_shown(&showing)? {
                    numbers.push(number);
                    showings.push((session, showing));
                }
            }
            if showings.is_empty() {
                continue;
            }
            kept += self.archive.add_shown(&self.settings.brain, &showings)?;
            failpoint::here!("learning-after-keep");
            self.queue.delete_showings(&numbers)?;
            failpoint::here!("learning-after-delete");
        }
        Ok(kept)
    }

    /// Judges what sessions used, again where one has grown.
    fn judge(&self) -> Result<usize, Error> {
        let sessions = self.archive.unjudged(&self.settings.brain, JUDGED_MAX)?;
        if sessions.is_empty() {
            return Ok(0);
        }
        let catalog = Catalog::open(&self.settings.index).unwrap_or_else(|error| {
            tracing::info!(error = error_chain(&error), "judging without the texts of units");
            None
        });
        let mut judged = 0;
        for session in sessions {
            if !self.goes_on() {
                break;
            }
            let citations = judge_session(&self.archive, &self.settings.brain, &session, catalog.as_ref());
            let citations = match citations {
                Ok(citations) => citations,
                Err(error @ archive::Error::Text { .. }) => {
                    tracing::info!(session = session.id, %error, "a session cannot be judged");
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.archive.store_citations(&session, &citations, Timestamp::now())?;
            failpoint::here!("learning-after-judge");
            judged += 1;
        }
        Ok(judged)
    }

    /// Learns from what has changed.
    fn learn(&self) -> Result<usize, Error> {
        let mut learned = 0;
        for scope in self.archive.changed_scopes(&self.settings.brain, self.settings.is_shared)? {
            if !self.goes_on() {
                break;
            }
            let weights = self.learn_scope(&scope)?;
            failpoint::here!("learning-before-weights");
            if self.archive.replace_learned(&self.settings.brain, &scope, &weights)? {
                failpoint::here!("learning-after-weights");
                learned += 1;
            }
        }
        Ok(learned)
    }

    fn learn_scope(&self, scope: &ChangedScope) -> Result<Learned, Error> {
        let questions = self.archive.judged_questions(&self.settings.brain, &scope.scope)?;
        let FromQuestions { model, dimensions, learner, body, report } =
            learn_from(self.settings, &questions);
        Ok(Learned {
            version: scope.version + 1,
            model,
            dimensions,
            learner,
            applied_through: scope.revision,
            questions: scope.questions,
            body,
            report,
            learned: Timestamp::now(),
        })
    }

    /// Keeps what people have decided about what sessions proposed.
    fn keep_proposals(&self) -> Result<(), Error> {
        let outcomes: Vec<ExtractionOutcome> = self
            .queue
            .proposal_outcomes()?
            .into_iter()
            .map(|(branch, path, outcome)| ExtractionOutcome { branch, path, outcome })
            .collect();
        if !outcomes.is_empty() && self.goes_on() {
            self.archive.store_extraction_feedback(&self.settings.brain, &outcomes, Timestamp::now())?;
        }
        Ok(())
    }
}

/// What questions teach.
#[derive(Clone, Debug, PartialEq)]
pub struct FromQuestions {
    /// The embedding model of the last question, which is the one in use. Others are left out.
    pub model: String,
    /// Of its vectors.
    pub dimensions: usize,
    /// The learner whose weights may be used; empty if the base order stays.
    pub learner: String,
    /// Those weights.
    pub body: Vec<u8>,
    /// How each learner fared, as JSON.
    pub report: String,
}

/// Learns from zero, so that the result depends on nothing but the questions and what became of their candidates.
pub fn learn_from(settings: &Settings, questions: &[JudgedQuestion]) -> FromQuestions {
    let questions: Vec<_> =
        questions.iter().filter_map(|judged| Some((judged, Question::from_bytes(&judged.body)?))).collect();
    let last = questions.last().map(|(_, question)| question);
    let model = last.map(|question| question.model.clone()).unwrap_or_default();
    let dimensions = last.map_or(0, |question| question.vector.len());
    let examples = questions.iter().filter(|(_, question)| question.model == model);
    let examples: Vec<Example> =
        examples.filter_map(|(judged, question)| example(judged, question)).collect();
    let (reinforce, listwise) = (settings.reinforce(), settings.listwise());
    let learners: [&dyn Learner; 2] = [&reinforce, &listwise];
    let choice = choose(&learners, &examples, &model, dimensions, &Gate::default());
    let (learner, body) =
        choice.live.map_or(("", Vec::new()), |(learner, weights)| (learner, weights.to_bytes()));
    let report = serde_json::to_string(&choice.verdicts).unwrap_or_default();
    FromQuestions { model, dimensions, learner: learner.to_owned(), body, report }
}

fn example(judged: &JudgedQuestion, question: &Question) -> Option<Example> {
    let candidates = question.candidates.iter().map(|found| Candidate::new(&found.vector, found.score));
    let shown = judged.shown.iter().filter_map(|(id, propensity, outcome)| {
        let candidate = question.candidates.iter().position(|found| found.id == *id)?;
        Some(Shown { candidate, propensity: *propensity, outcome: parse_outcome(outcome) })
    });
    let group = judged.session as u64;
    Example::new(group, &question.vector, candidates.collect(), shown.collect()).ok()
}

/// What the last round did, or why it ended early, for `nugget learn status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearningReport {
    /// What it did.
    pub summary: RoundSummary,
    /// Why it ended early.
    pub error: Option<String>,
}

/// The last report about learning, and when it was made.
pub fn last_report(queue: &Queue) -> Option<(Timestamp, LearningReport)> {
    let (_, at, body) = queue.last_report(LEARNING_REPORT).ok().flatten()?;
    Some((at, serde_json::from_str(&body).ok()?))
}

/// Look for what can be learned.
pub(crate) struct Wake;

/// The actor that learns.
#[derive(Clone)]
pub(crate) struct Learning {
    pub(crate) settings: Settings,
    pub(crate) mailbox: Arc<Mailbox<Wake>>,
    /// Set when the process wants to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// The last error, which is logged once.
    pub(crate) error: Arc<Mutex<Option<String>>>,
}

impl Actor for Learning {
    type Msg = Wake;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Wake>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Wake>, Wake: Wake, (): &mut ()) -> Result<(), ActorProcessingErr> {
        let _busy = self.mailbox.health().begin();
        self.mailbox.clear_wake();
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancellation = Cancellation(Arc::clone(&cancelled));
        let this = self.clone();
        let done = tokio::select! {
            done = on_own_thread("learning", move || this.round(&cancelled)) => done?,
            // What it is learning is learned again by the next process: its end does not wait for it.
            () = self.stopped() => return Ok(()),
        };
        let mut last = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let error = done.err().map(|error| error_chain(&error));
        if let Some(error) = error.as_deref().filter(|error| last.as_deref() != Some(*error)) {
            self.mailbox.health().record_error(error);
            tracing::warn!(error, "nothing is learned");
        }
        *last = error;
        Ok(())
    }
}

impl Learning {
    async fn stopped(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            tokio::time::sleep(STOP_CHECK_EVERY).await;
        }
    }

    fn round(&self, cancelled: &AtomicBool) -> Result<(), Error> {
        let is_cancelled = || cancelled.load(Ordering::SeqCst) || self.stop.load(Ordering::SeqCst);
        let done = run_round(&self.settings, &|| self.mailbox.health().beat(), &is_cancelled);
        let report = match &done {
            Ok(None) => return Ok(()),
            Ok(Some(summary)) if *summary == RoundSummary::default() => return Ok(()),
            Ok(Some(summary)) => LearningReport { summary: *summary, error: None },
            Err(error) => LearningReport { error: Some(error_chain(error)), ..LearningReport::default() },
        };
        if let (Ok(queue), Ok(body)) = (Queue::open(&self.settings.queue), serde_json::to_string(&report)) {
            queue.report(LEARNING_REPORT, &body, Timestamp::now())?;
        }
        done.map(drop)
    }
}
