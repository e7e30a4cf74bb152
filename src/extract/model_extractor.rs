//! Has a model read a session, part by part, within a budget.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};
use knowledge::Rejected;
use llm::{Tool, Usage};
use serde_json::Value;
use transcript::Conversation;
use transcript::redact::redact;

use crate::condense::{Condensed, Part, tokens};
use crate::filter::{self, reject};
use crate::ledger::{Ledger, LedgerError, Reserved, Spending};
use crate::parse::{self, Checked};
use crate::{Error, Extraction, ExtractionContext, KnownUnit, prompt};

/// What can answer a question.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What a unit's `source` says: `claude-api`, `claude-p`.
    fn name(&self) -> &'static str;

    fn model(&self) -> &str;

    /// Whether it can be asked at all; cheap after the first time.
    async fn is_ready(&self) -> bool {
        true
    }

    /// Asks once, within a deadline of its own.
    async fn ask(&self, question: &Question) -> BackendAnswer;
}

#[derive(Clone, Debug)]
pub struct Question {
    pub system: &'static str,
    pub tool: Tool,
    pub user: String,
    pub output_tokens_max: u32,
}

/// What came of a question.
#[derive(Debug)]
pub struct BackendAnswer {
    pub cost: Cost,
    /// What the tool was called with, unchecked.
    pub result: Result<Value, BackendError>,
}

#[derive(Debug)]
pub enum Cost {
    Free,
    /// It may be on the bill; the estimate stays.
    Unknown,
    /// `microdollars` is what the backend itself says, where it does.
    Known {
        model: String,
        usage: Usage,
        microdollars: Option<u64>,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// Later, perhaps.
    Busy {
        message: String,
        retry_after: Option<Duration>,
    },
    /// A smaller question may do.
    TooLarge(String),
    Refused,
    Malformed(String),
    /// No other question will fare better: a wrong key, no such model.
    Permanent(String),
}

/// How much is asked at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of the session, for each question.
    pub part_tokens: usize,
    pub output_tokens_max: u32,
    /// After this long the job is put back, to go on with the next part as soon as its turn comes:
    /// an actor that does not answer counts as hung.
    pub sitting: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { part_tokens: 40_000, output_tokens_max: 8_192, sitting: Duration::from_secs(300) }
    }
}

/// A backend with what it takes to read whole sessions.
pub struct ModelExtractor {
    backend: Arc<dyn Backend>,
    limits: Limits,
    /// One for all sessions: a server that is busy is busy for all.
    pause: Mutex<ExponentialBackoff>,
}

/// How far a session was read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub extraction: Extraction,
    /// By their place in the conversation.
    pub unread: Vec<usize>,
    /// Why they were not read.
    pub why: Vec<String>,
    pub over_budget: bool,
}

/// A part and what has been tried with it.
struct Job {
    part: Part,
    is_half: bool,
}

/// What became of a part.
enum Outcome {
    /// `is_new` when it was asked for just now, and not at an earlier attempt.
    Read {
        checked: Checked,
        is_new: bool,
    },
    TooLarge(String),
    /// Not this one, perhaps the next.
    Unread(String),
    /// Neither this one nor any other.
    Stop {
        why: String,
        over_budget: bool,
    },
}

impl ModelExtractor {
    pub fn new(backend: Arc<dyn Backend>, limits: Limits) -> Self {
        let pause = ExponentialBackoffBuilder::new()
            .with_initial_interval(Duration::from_secs(2))
            .with_multiplier(2.0)
            .with_randomization_factor(0.5)
            .with_max_interval(Duration::from_secs(15 * 60))
            .with_max_elapsed_time(None)
            .build();
        Self { backend, limits, pause: Mutex::new(pause) }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// # Errors
    /// Only what may be different later; what was not read for other reasons is told.
    pub(crate) async fn read(
        &self,
        conversation: &Conversation,
        context: &ExtractionContext,
    ) -> Result<Reading, Error> {
        let begun = Instant::now();
        let budget = self.limits.part_tokens;
        let condensed = Condensed::of(conversation, budget / 2);
        let parts = condensed.parts(budget);
        let count = parts.len();
        let mut jobs: VecDeque<Job> = parts.into_iter().map(|part| Job { part, is_half: false }).collect();
        let (mut found, mut rejected) = (Vec::new(), Vec::new());
        let (mut unread, mut why) = (Vec::new(), Vec::new());
        let mut over_budget = false;
        let (mut number, mut asked) = (0, 0);
        while let Some(job) = jobs.pop_front() {
            if !job.is_half {
                number += 1;
            }
            if begun.elapsed() > self.limits.sitting && asked > 0 {
                let what = format!("the model goes on with part {number} of {count}");
                return Err(Error::Retry {
                    message: what,
                    retry_after: Some(Duration::from_millis(100)),
                    source: None,
                });
            }
            match self.part(conversation, &condensed, &job.part, (number, count), context).await? {
                Outcome::Read { checked, is_new } => {
                    asked += usize::from(is_new);
                    found.extend(checked.candidates);
                    for Rejected { title, reason } in checked.rejected {
                        reject(&mut rejected, &title, &reason);
                    }
                }
                Outcome::TooLarge(reason) => {
                    let tokens = tokens(&condensed.text(&job.part));
                    let halves = condensed.split(job.part.clone(), (tokens / 2).min(budget / 2).max(1));
                    if job.is_half || halves.len() < 2 {
                        unread.extend(condensed.events(&job.part));
                        why.push(reason);
                    } else {
                        for part in halves.into_iter().rev() {
                            jobs.push_front(Job { part, is_half: true });
                        }
                    }
                }
                Outcome::Unread(reason) => {
                    unread.extend(condensed.events(&job.part));
                    why.push(reason);
                }
                Outcome::Stop { why: reason, over_budget: over } => {
                    over_budget |= over;
                    why.push(reason);
                    unread.extend(condensed.events(&job.part));
                    unread.extend(jobs.drain(..).flat_map(|job| condensed.events(&job.part)));
                }
            }
        }
        why.dedup();
        let candidates =
            filter::consolidate(conversation, found, |line| condensed.is_human(line), &mut rejected);
        let empty_reason = candidates.is_empty().then(|| match rejected.first() {
            None => "the model found nothing in it that is worth a review".to_owned(),
            Some(first) => format!(
                "nothing that the model proposed was good enough: \"{}\" was left out ({})",
                first.title, first.reason
            ),
        });
        let extractor = self.backend.name().to_owned();
        Ok(Reading {
            extraction: Extraction { candidates, rejected, empty_reason, extractor },
            unread,
            why,
            over_budget,
        })
    }

    async fn part(
        &self,
        conversation: &Conversation,
        condensed: &Condensed<'_>,
        part: &Part,
        place: (usize, usize),
        context: &ExtractionContext,
    ) -> Result<Outcome, Error> {
        let question = question(conversation, condensed, part, place, &context.known, self.limits);
        let digest = digest(&*self.backend, &question);
        if let Some(kept) = on_ledger(context, {
            let digest = digest.clone();
            move |ledger| ledger.saved_answer(&digest)
        })
        .await?
            && let Ok(checked) = serde_json::from_slice(&kept)
        {
            return Ok(Outcome::Read { checked, is_new: false });
        }
        let mut malformed = None;
        for _ in 0..2 {
            let asked = match self.paid(&question, context).await? {
                Ok(asked) => asked,
                Err(why) => return Ok(Outcome::Stop { why, over_budget: true }),
            };
            let name = self.backend.name();
            let checked = match asked {
                Ok(value) => match parse::check(value, condensed, part, &context.known) {
                    Ok(checked) => checked,
                    Err(what) => {
                        malformed = Some(what);
                        continue;
                    }
                },
                Err(BackendError::Malformed(what)) => {
                    malformed = Some(what);
                    continue;
                }
                Err(BackendError::Busy { message, retry_after }) => {
                    let retry_after = retry_after.or_else(|| self.pause().next_backoff());
                    return Err(Error::Retry {
                        message: format!("{name}: {message}"),
                        retry_after,
                        source: None,
                    });
                }
                Err(BackendError::TooLarge(what)) => return Ok(Outcome::TooLarge(format!("{name}: {what}"))),
                Err(BackendError::Refused) => {
                    return Ok(Outcome::Unread(format!("{name}: the model declined to read it")));
                }
                Err(BackendError::Permanent(what)) => {
                    return Ok(Outcome::Stop { why: format!("{name}: {what}"), over_budget: false });
                }
            };
            self.pause().reset();
            let kept = serde_json::to_vec(&checked).map_err(|error| failed(Box::new(error)))?;
            on_ledger(context, move |ledger| ledger.save_answer(&digest, &kept)).await?;
            return Ok(Outcome::Read { checked, is_new: true });
        }
        let what = malformed.unwrap_or_default();
        tracing::warn!(backend = self.backend.name(), what, "a model's answer cannot be used");
        Ok(Outcome::Unread(format!("{}: the model's answer cannot be used ({what})", self.backend.name())))
    }

    /// Asks, if there is money for it; otherwise says why not.
    async fn paid(
        &self,
        question: &Question,
        context: &ExtractionContext,
    ) -> Result<Result<Result<Value, BackendError>, String>, Error> {
        let estimate = self.estimate(question);
        let reservation = match on_ledger(context, move |ledger| ledger.reserve(&estimate)).await? {
            Reserved::Granted(reservation) => reservation,
            Reserved::OverBudget(why) => return Ok(Err(why)),
        };
        let BackendAnswer { cost, result } = self.backend.ask(question).await;
        match cost {
            Cost::Unknown => {}
            Cost::Free => on_ledger(context, move |ledger| ledger.release(reservation)).await?,
            Cost::Known { model, usage, microdollars } => {
                let microdollars = microdollars.unwrap_or_else(|| llm::microdollars(&model, &usage));
                let spent = Spending { model, backend: self.backend.name().to_owned(), usage, microdollars };
                on_ledger(context, move |ledger| ledger.settle(reservation, &spent)).await?;
            }
        }
        Ok(Ok(result))
    }

    /// The most that a question may cost, but for what the estimate of its length is off.
    fn estimate(&self, question: &Question) -> Spending {
        let tool = question.tool.schema.to_string();
        let input_tokens = tokens(question.system) + tokens(&tool) + tokens(&question.user);
        let usage = Usage {
            input_tokens: input_tokens as u64,
            output_tokens: u64::from(question.output_tokens_max),
            ..Usage::default()
        };
        let model = self.backend.model().to_owned();
        let microdollars = llm::microdollars(&model, &usage);
        Spending { model, backend: self.backend.name().to_owned(), usage, microdollars }
    }

    fn pause(&self) -> std::sync::MutexGuard<'_, ExponentialBackoff> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a model would be asked about a session, part by part, without asking it.
pub fn build_questions(conversation: &Conversation, known: &[KnownUnit], limits: Limits) -> Vec<Question> {
    let condensed = Condensed::of(conversation, limits.part_tokens / 2);
    let parts = condensed.parts(limits.part_tokens);
    let count = parts.len();
    let ask =
        |(at, part): (usize, &Part)| question(conversation, &condensed, part, (at + 1, count), known, limits);
    parts.iter().enumerate().map(ask).collect()
}

fn question(
    conversation: &Conversation,
    condensed: &Condensed<'_>,
    part: &Part,
    place: (usize, usize),
    known: &[KnownUnit],
    limits: Limits,
) -> Question {
    // What a person has written into the brain goes out with it.
    let user = redact(&prompt::user(conversation, condensed, part, place, known)).into_owned();
    Question {
        system: prompt::SYSTEM,
        tool: prompt::tool(),
        user,
        output_tokens_max: limits.output_tokens_max,
    }
}

fn digest(backend: &dyn Backend, question: &Question) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in
        [backend.name(), backend.model(), question.system, &question.tool.schema.to_string(), &question.user]
    {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Off the threads that others wait on.
async fn on_ledger<T: Send + 'static>(
    context: &ExtractionContext,
    work: impl FnOnce(&dyn Ledger) -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, Error> {
    let ledger = Arc::clone(&context.ledger);
    match tokio::task::spawn_blocking(move || work(&*ledger)).await {
        Ok(result) => result.map_err(failed),
        Err(error) => Err(failed(Box::new(error))),
    }
}

fn failed(source: LedgerError) -> Error {
    Error::Retry {
        message: "failed to use the ledger of model calls".to_owned(),
        retry_after: None,
        source: Some(source),
    }
}
