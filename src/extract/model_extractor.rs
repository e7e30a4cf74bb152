//! Has a model read a session, part by part, within a budget.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};
use knowledge::Rejected;
use knowledge::text::one_line;
use llm::{Tool, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transcript::Conversation;
use transcript::redact::redact;

use crate::condense::{Condensed, Part, estimate_tokens};
use crate::filter::{self, reject};
use crate::ledger::{LedgerError, ModelBudget, Reserved, Spending};
use crate::parse::{self, ParsedAnswer};
use crate::prompt::{self, AlsoAsked};
use crate::{Error, Extraction, ExtractionContext, Known};

/// A way to ask a model.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The `source` of the units that it finds: `claude-api`, `openai-compatible`, `claude-p`.
    fn name(&self) -> &'static str;

    /// The name of the model, which decides the price of an estimate.
    fn model(&self) -> &str;

    /// The price of a call, in millionths of a dollar.
    fn microdollars(&self, model: &str, usage: &Usage) -> u64 {
        llm::microdollars(model, usage)
    }

    /// Whether it can be asked at all, or why that cannot be told at present. Cheap after the first call.
    async fn is_ready(&self) -> Result<bool, String> {
        Ok(true)
    }

    /// Asks once, within the backend's own deadline.
    async fn ask(&self, question: &Question) -> BackendAnswer;
}

/// One request to a model.
#[derive(Clone, Debug)]
pub struct Question {
    /// The instructions, the same in every request.
    pub system: &'static str,
    /// The tool that the model must call; its input is the answer.
    pub tool: Tool,
    /// One part of the session, redacted.
    pub user: String,
    /// The longest answer that is accepted, in tokens.
    pub output_tokens_max: u32,
}

impl Question {
    /// About how many tokens it has, with the instructions and the tool.
    pub fn estimated_tokens(&self) -> usize {
        let texts = [self.system, &self.tool.schema.to_string(), &self.user];
        texts.into_iter().map(estimate_tokens).sum()
    }

    fn bytes(&self) -> usize {
        self.system.len() + self.tool.schema.to_string().len() + self.user.len()
    }
}

/// What a backend returned, and what it cost.
#[derive(Debug)]
pub struct BackendAnswer {
    /// What the request cost.
    pub cost: Cost,
    /// The input of the tool call, unchecked.
    pub result: Result<Value, BackendError>,
}

/// What a request cost.
#[derive(Debug)]
pub enum Cost {
    /// It was not billed.
    Free,
    /// It may be billed; the estimate stays reserved.
    Unknown,
    /// It was billed.
    Known {
        /// The model that answered.
        model: String,
        /// The tokens that it used.
        usage: Usage,
        /// The price by the backend's own account; `None` where it does not report one.
        microdollars: Option<u64>,
    },
}

/// Why a backend gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// It is busy or out of reach, or refuses all requests for a cause that a person can remove, such as a wrong key. The
    /// same request may succeed later.
    Busy {
        /// What happened, for a person.
        message: String,
        /// When the other side said to come back.
        retry_after: Option<Duration>,
    },
    /// The model did not answer in time. The same request may succeed once it is loaded or less busy, or take as long again.
    Slow(String),
    /// The question or its answer was too long. A smaller part may succeed.
    TooLarge(String),
    /// The model declined to answer.
    Refused,
    /// The answer does not have the required form.
    Malformed(String),
    /// Nor have those to the requests that the backend made itself after it: it is not asked once more.
    GaveUp(String),
    /// The request cannot succeed.
    Permanent(String),
}

/// The most of an answer's error that the model is told.
const PROBLEM_CHARS_MAX: usize = 200;
/// How long a session waits for a model without a price, as one on this machine, that is too slow: for a few attempts, as
/// each keeps the machine busy to the end of its deadline. What has a price is asked twice.
const SLOW_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// How much is asked at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of one part of the session, in tokens.
    pub part_tokens: usize,
    /// The longest answer, in tokens.
    pub output_tokens_max: u32,
    /// After this time the capture goes back to the queue and continues with the next part in its next turn: an actor
    /// that does not answer for long counts as hung.
    pub read_time_max: Duration,
    /// What the model is asked beside units, in the same answer.
    pub also_asked: AlsoAsked,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            part_tokens: 40_000,
            output_tokens_max: 8_192,
            read_time_max: Duration::from_secs(300),
            also_asked: AlsoAsked::default(),
        }
    }
}

/// Reads whole sessions with one backend.
///
/// It is no [`Extractor`](crate::Extractor) by itself: [`FallbackExtractor`](crate::FallbackExtractor)
/// decides what happens with the parts that it could not read.
pub struct ModelExtractor {
    backend: Arc<dyn Backend>,
    limits: Limits,
    /// Shared by all sessions: a server that is busy is busy for all of them.
    backoff: Mutex<ExponentialBackoff>,
}

/// How far a session was read.
#[derive(Debug)]
pub(crate) struct ModelReading {
    pub extraction: Extraction,
    /// Whether any part was read.
    pub is_any_read: bool,
    /// The indices of the events that were not read as a whole, one of several parts several times.
    pub unread_events: Vec<usize>,
    /// Why they were not read.
    pub reasons: Vec<String>,
    pub is_over_budget: bool,
}

/// A part that is to be read.
struct PartJob {
    part: Part,
    /// Whether it is half of a part that was too large.
    is_half: bool,
}

/// The result of asking about one part.
enum PartOutcome {
    /// `is_new` unless it was saved by an earlier attempt.
    Asked { reading: PartReading, is_new: bool },
    /// No further part can be read.
    Stop { reason: String, is_over_budget: bool },
}

/// What the model made of a part. It is saved whatever it is, as each answer has its price. The names of the fields are
/// part of the queue's format.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PartReading {
    Read(ParsedAnswer),
    /// Why the part has to be split.
    TooLarge {
        too_large: String,
    },
    /// Why this part cannot be read; the next one may be.
    Unread {
        unread: String,
    },
    /// Why there was no answer in time. The same is asked once more.
    Slow {
        slow: String,
    },
}

/// An answer, unless the budget did not allow the question.
enum BudgetedAnswer {
    Answered(Result<Value, BackendError>),
    OverBudget(String),
}

impl ModelExtractor {
    /// Reads sessions with a backend.
    pub fn new(backend: Arc<dyn Backend>, limits: Limits) -> Self {
        let backoff = ExponentialBackoffBuilder::new()
            .with_initial_interval(Duration::from_secs(2))
            .with_multiplier(2.0)
            .with_randomization_factor(0.5)
            .with_max_interval(Duration::from_secs(15 * 60))
            .with_max_elapsed_time(None)
            .build();
        Self { backend, limits, backoff: Mutex::new(backoff) }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Reads a session.
    ///
    /// # Errors
    /// [`Error::Continues`] after [`Limits::read_time_max`], and [`Error::Retry`] for what may succeed later, unless this
    /// is `waited_enough`: then what is left is unread. Parts that cannot be read are listed in the result.
    pub(crate) async fn read(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
        waited_enough: bool,
    ) -> Result<ModelReading, Error> {
        let started = Instant::now();
        let budget = self.limits.part_tokens;
        let condensed = Condensed::new(conversation, budget / 2);
        let parts = condensed.parts(budget);
        let count = parts.len();
        let mut jobs: VecDeque<PartJob> =
            parts.into_iter().map(|part| PartJob { part, is_half: false }).collect();
        let (mut candidates, mut rejected) = (Vec::new(), Vec::new());
        let (mut topics, mut records) = (Vec::new(), Vec::new());
        let (mut unread_events, mut reasons) = (Vec::new(), Vec::new());
        let (mut is_any_read, mut is_over_budget) = (false, false);
        let (mut number, mut asked) = (0, 0);
        while let Some(job) = jobs.pop_front() {
            if !job.is_half {
                number += 1;
            }
            if started.elapsed() > self.limits.read_time_max && asked > 0 {
                return Err(Error::Continues { part: number, parts: count });
            }
            let outcome = self.read_part(conversation, &condensed, &job.part, (number, count), context).await;
            let outcome = match outcome {
                Err(Error::Retry { message, .. }) if waited_enough => {
                    let reason = format!("{message}, for more than six hours");
                    PartOutcome::Stop { reason, is_over_budget: false }
                }
                outcome => outcome?,
            };
            match outcome {
                PartOutcome::Asked { reading: PartReading::Read(answer), is_new } => {
                    is_any_read = true;
                    asked += usize::from(is_new);
                    candidates.extend(answer.candidates);
                    topics.extend(answer.topics);
                    records.extend(answer.records);
                    for Rejected { title, reason } in answer.rejected {
                        reject(&mut rejected, &title, &reason);
                    }
                }
                PartOutcome::Asked { reading: PartReading::TooLarge { too_large: reason }, is_new } => {
                    asked += usize::from(is_new);
                    let tokens = estimate_tokens(&condensed.text(&job.part));
                    let halves = condensed.split(job.part.clone(), (tokens / 2).min(budget / 2).max(1));
                    if job.is_half || halves.len() < 2 {
                        unread_events.extend(condensed.events(&job.part));
                        reasons.push(reason);
                    } else {
                        for part in halves.into_iter().rev() {
                            jobs.push_front(PartJob { part, is_half: true });
                        }
                    }
                }
                PartOutcome::Asked { reading: PartReading::Unread { unread: reason }, is_new } => {
                    asked += usize::from(is_new);
                    unread_events.extend(condensed.events(&job.part));
                    reasons.push(reason);
                }
                PartOutcome::Asked { reading: PartReading::Slow { slow }, .. } => {
                    return Err(self.retry(slow));
                }
                PartOutcome::Stop { reason, is_over_budget: over_budget } => {
                    is_over_budget |= over_budget;
                    reasons.push(reason);
                    unread_events.extend(condensed.events(&job.part));
                    unread_events.extend(jobs.drain(..).flat_map(|job| condensed.events(&job.part)));
                }
            }
        }
        reasons.dedup();
        let candidates =
            filter::consolidate(conversation, candidates, |line| condensed.is_human(line), &mut rejected);
        let empty_reason = candidates.is_empty().then(|| match rejected.first() {
            None => "the model found nothing worth a review".to_owned(),
            Some(first) => format!(
                "nothing that the model proposed was good enough: \"{}\" was left out ({})",
                first.title, first.reason
            ),
        });
        let extractor = self.backend.name().to_owned();
        let extraction =
            Extraction { candidates, rejected, topics, records, empty_reason, unread: None, extractor };
        Ok(ModelReading { extraction, is_any_read, unread_events, reasons, is_over_budget })
    }

    async fn read_part(
        &self,
        conversation: &Conversation,
        condensed: &Condensed<'_>,
        part: &Part,
        place: (usize, usize),
        context: &ExtractionContext,
    ) -> Result<PartOutcome, Error> {
        let build = |known: &Known| build_question(conversation, condensed, part, place, known, self.limits);
        // While a session waits, the brain may grow: what was read stays read, whatever the model was told of it. What could
        // not be read may be read under another limit, or once a person has fixed the cause.
        let read = question_digest(&*self.backend, &build(&Known::default()));
        let unread = format!("{read} {} {}", self.limits.output_tokens_max, context.trial);
        let saved = with_ledger(context, {
            let (read, unread) = (read.clone(), unread.clone());
            move |ledger| match ledger.saved_answer(&read)? {
                None => ledger.saved_answer(&unread),
                saved => Ok(saved),
            }
        });
        let saved = saved.await?.and_then(|saved| serde_json::from_slice(&saved).ok());
        let was_slow = matches!(saved, Some(PartReading::Slow { .. }));
        if let Some(reading) = saved.filter(|_| !was_slow) {
            return Ok(PartOutcome::Asked { reading, is_new: false });
        }
        let mut outcome = self.ask_about(&build(&context.known), condensed, part, context).await?;
        if let PartOutcome::Asked { reading, .. } = &mut outcome {
            if was_slow && let PartReading::Slow { slow } = reading {
                *reading = PartReading::TooLarge { too_large: format!("{slow}, twice") };
            }
            let bytes = serde_json::to_vec(reading).map_err(|error| ledger_failed(Box::new(error)))?;
            let key = if matches!(reading, PartReading::Read(_)) { read } else { unread };
            with_ledger(context, move |ledger| ledger.save_answer(&key, &bytes)).await?;
            if let PartReading::Slow { slow } = reading {
                return Err(self.retry(std::mem::take(slow)));
            }
        }
        Ok(outcome)
    }

    /// Asks about a part, and once more if the answer cannot be used.
    async fn ask_about(
        &self,
        question: &Question,
        condensed: &Condensed<'_>,
        part: &Part,
        context: &ExtractionContext,
    ) -> Result<PartOutcome, Error> {
        let read = |reading: PartReading| Ok(PartOutcome::Asked { reading, is_new: true });
        let name = self.backend.name();
        let mut problem = String::new();
        for attempt in 0..2 {
            let repair = (attempt > 0).then(|| repair(question, &problem));
            let answer = match self.ask_within_budget(repair.as_ref().unwrap_or(question), context).await? {
                BudgetedAnswer::Answered(answer) => answer,
                BudgetedAnswer::OverBudget(reason) => {
                    return Ok(PartOutcome::Stop { reason, is_over_budget: true });
                }
            };
            let parsed = match answer {
                Ok(value) => parse::parse_answer(value, condensed, part, &context.known.units),
                Err(BackendError::Malformed(message)) => Err(message),
                Err(BackendError::Busy { message, retry_after }) => {
                    let message = format!("{name}: {message}");
                    return Err(match retry_after {
                        None => self.retry(message),
                        retry_after => Error::Retry { message, retry_after, source: None },
                    });
                }
                Err(BackendError::Slow(message)) if self.estimate_cost(question).microdollars > 0 => {
                    return read(PartReading::Slow { slow: format!("{name}: {message}") });
                }
                Err(BackendError::Slow(message)) if context.waited > SLOW_WAIT_MAX => {
                    let reason = format!("{name}: {message}");
                    return Ok(PartOutcome::Stop { reason, is_over_budget: false });
                }
                Err(BackendError::Slow(message)) => {
                    return Err(self.retry(format!("{name}: {message}")));
                }
                Err(BackendError::TooLarge(message)) => {
                    return read(PartReading::TooLarge { too_large: format!("{name}: {message}") });
                }
                Err(BackendError::Refused) => {
                    let unread = format!("{name}: the model declined to read it");
                    return read(PartReading::Unread { unread });
                }
                Err(BackendError::GaveUp(message)) => {
                    problem = message;
                    break;
                }
                Err(BackendError::Permanent(message)) => {
                    let reason = format!("{name}: {message}");
                    return Ok(PartOutcome::Stop { reason, is_over_budget: false });
                }
            };
            match parsed {
                Ok(answer) => {
                    self.lock_backoff().reset();
                    return read(PartReading::Read(answer));
                }
                Err(message) => problem = message,
            }
        }
        tracing::warn!(backend = name, problem, "the model's answer cannot be used");
        let unread = format!("{name}: the model's answer cannot be used ({problem})");
        read(PartReading::Unread { unread })
    }

    /// Reserves the cost of a question, asks it, and settles the cost.
    async fn ask_within_budget(
        &self,
        question: &Question,
        context: &ExtractionContext,
    ) -> Result<BudgetedAnswer, Error> {
        let estimate = self.estimate_cost(question);
        let reservation = match with_ledger(context, move |ledger| ledger.reserve(&estimate)).await? {
            Reserved::Granted(reservation) => reservation,
            Reserved::OverBudget(reason) => return Ok(BudgetedAnswer::OverBudget(reason)),
        };
        let BackendAnswer { cost, result } = self.backend.ask(question).await;
        match cost {
            Cost::Unknown => {}
            Cost::Free => with_ledger(context, move |ledger| ledger.release(reservation)).await?,
            Cost::Known { model, usage, microdollars } => {
                let microdollars = microdollars.unwrap_or_else(|| self.backend.microdollars(&model, &usage));
                let spent = Spending { model, backend: self.backend.name().to_owned(), usage, microdollars };
                with_ledger(context, move |ledger| ledger.settle(reservation, &spent)).await?;
            }
        }
        Ok(BudgetedAnswer::Answered(result))
    }

    /// The most that a question may cost.
    fn estimate_cost(&self, question: &Question) -> Spending {
        let usage = Usage::at_most(question.bytes(), question.output_tokens_max);
        let model = self.backend.model().to_owned();
        let microdollars = self.backend.microdollars(&model, &usage);
        Spending { model, backend: self.backend.name().to_owned(), usage, microdollars }
    }

    /// The error of a capture that comes back after a growing wait.
    pub(crate) fn retry(&self, message: String) -> Error {
        Error::Retry { message, retry_after: self.lock_backoff().next_backoff(), source: None }
    }

    fn lock_backoff(&self) -> MutexGuard<'_, ExponentialBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds the questions that a model would be asked about a session, one for each part, without asking them.
pub fn build_questions(conversation: &Conversation, known: &Known, limits: Limits) -> Vec<Question> {
    let condensed = Condensed::new(conversation, limits.part_tokens / 2);
    let parts = condensed.parts(limits.part_tokens);
    let count = parts.len();
    let build = |(at, part): (usize, &Part)| {
        build_question(conversation, &condensed, part, (at + 1, count), known, limits)
    };
    parts.iter().enumerate().map(build).collect()
}

fn build_question(
    conversation: &Conversation,
    condensed: &Condensed<'_>,
    part: &Part,
    place: (usize, usize),
    known: &Known,
    limits: Limits,
) -> Question {
    // Redacted as a whole, because it also holds what people have written into the brain.
    let user = redact(&prompt::user(conversation, condensed, part, place, known)).into_owned();
    Question {
        system: prompt::SYSTEM,
        tool: prompt::tool(limits.also_asked),
        user,
        output_tokens_max: limits.output_tokens_max,
    }
}

/// The question again, with what was wrong with its answer.
fn repair(question: &Question, problem: &str) -> Question {
    let user = format!(
        "{}\n\nYour last answer to this could not be used: {}. Answer again, completely, in the form that is asked for.",
        question.user,
        one_line(problem, PROBLEM_CHARS_MAX)
    );
    Question { user, ..question.clone() }
}

fn question_digest(backend: &dyn Backend, question: &Question) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in
        [backend.name(), backend.model(), question.system, &question.tool.schema.to_string(), &question.user]
    {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Uses the ledger on a blocking thread.
async fn with_ledger<T: Send + 'static>(
    context: &ExtractionContext,
    work: impl FnOnce(&dyn ModelBudget) -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, Error> {
    let ledger = Arc::clone(&context.ledger);
    match tokio::task::spawn_blocking(move || work(&*ledger)).await {
        Ok(result) => result.map_err(ledger_failed),
        Err(error) => Err(ledger_failed(Box::new(error))),
    }
}

fn ledger_failed(source: LedgerError) -> Error {
    Error::Retry {
        message: "failed to use the ledger of model calls".to_owned(),
        retry_after: None,
        source: Some(source),
    }
}
