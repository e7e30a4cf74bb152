//! Finds knowledge in conversations. The only stage that calls language models; it records what they cost.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use archive::{Archive, ModelFindings};
use extract::{ExtractionContext, Known, KnownUnit};
use index::{Index, Mode};
use jiff::Timestamp;
use knowledge::unit::{is_replaced, is_unreviewed};
use knowledge::{Candidate, CodeRecord, Domain, UnitId};
use queue::{Claim, EarlierProposal, Ledger, Queue, Stage};
use tokio::time::Instant;
use transcript::Conversation;
use transcript::redact::redact;

use crate::background::{run_blocking, run_on_own_thread};
use crate::budget::CaptureBudget;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::indexing::{IndexingWorker, Refresh};
use crate::jobs::Jobs;
use crate::pipeline::{self, Findings, Session};
use crate::setup::Setup;
use crate::stage_actor::{StageMailbox, StageMessage, StageWorker, Step};

/// How many units of the brain a model is given.
const KNOWN_UNITS_MAX: usize = 150;
/// How many of its titles a model is given of what was proposed before, and how many of the newest are read for it.
const PROPOSED_MAX: usize = 100;
const PROPOSED_READ_MAX: usize = 500;
/// How long an extraction waits until the index has what was merged; after that a model is told what the index knows. A few
/// changed files take less than a second, a new brain minutes.
const INDEX_PATIENCE: Duration = Duration::from_secs(15);
const INDEX_CHECK_EVERY: Duration = Duration::from_millis(20);
/// When the next part of a session is read that takes longer than one turn; other sessions may come between.
const NEXT_TURN: Duration = Duration::from_millis(100);
/// The report of why a model has not read all of the last session; empty once it has read one.
const UNREAD_REPORT: &str = "unread";
/// How many of the user's messages, and of the characters of each, decide which units those are.
const MESSAGES_COMPARED_MAX: usize = 500;
const MESSAGE_CHARS_MAX: usize = 2_000;

#[derive(Clone)]
pub(crate) struct ExtractionWorker {
    pub(crate) jobs: Jobs,
    pub(crate) setup: Arc<Setup>,
    pub(crate) index: Index,
    pub(crate) indexing: StageMailbox<IndexingWorker>,
}

impl StageWorker for ExtractionWorker {
    const STAGE: Stage = Stage::Extraction;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        self.refresh_index().await;
        let this = self.clone();
        run_on_own_thread(async move { this.extract(claim).await }).await
    }

    fn committed(&self) {
        failpoint::here!("extraction-after-keep");
    }
}

impl ExtractionWorker {
    /// Brings the index up to date, so that a model is told of units that were merged just now. No capture fails because
    /// of it.
    async fn refresh_index(&self) {
        let begun = Instant::now();
        // Requests of extractions that were given up must not pile up before a hung actor.
        while self.indexing.health().has_work() && begun.elapsed() < INDEX_PATIENCE {
            tokio::time::sleep(INDEX_CHECK_EVERY).await;
        }
        let left = INDEX_PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return tracing::info!("indexing is busy: a model is told of the units of the present index");
        }
        let request = |reply| StageMessage::Request(Refresh { mode: Mode::Changed, progress: None, reply });
        let error = match self.indexing.ask(left, request).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(error) => error.to_string(),
        };
        tracing::info!(error, "a model is told of the units of the present index");
    }

    async fn extract(self, claim: Claim) -> Result<Step, Failure> {
        let Self { jobs, setup, index, .. } = self;
        let confidence_min = setup.confidence_min;
        let mut conversation: Conversation = pipeline::decode(&claim.input)?;
        let session = Session {
            project: conversation.project.clone(),
            begun: conversation.started,
            ended: conversation.ended,
        };
        if conversation.session_id.is_empty() {
            conversation.session_id = claim.capture.session_id.as_str().to_owned();
        }
        let messages = messages_to_compare(&conversation);
        let (queue, clock, capture) = (Arc::clone(&jobs.queue), jobs.clock.clone(), claim.capture.id);
        let mut recalled = std::mem::take(&mut conversation.recalled);
        let (known, recalled) = run_blocking({
            let queue = Arc::clone(&queue);
            move || {
                let proposed = proposed_before(&*queue, capture).unwrap_or_else(|error| {
                    tracing::warn!(error = error_chain(&error), "failed to read what was proposed before");
                    Vec::new()
                });
                (known_units(&index, proposed, &messages, &mut recalled), recalled)
            }
        })
        .await;
        conversation.recalled = recalled;
        let now = jobs.clock.now();
        let started = claim.capture.started.unwrap_or(now);
        let waited = Duration::try_from(now.duration_since(started)).unwrap_or_default();
        let context = ExtractionContext {
            ledger: Arc::new(CaptureBudget::new(jobs, claim, setup.budget)),
            known,
            waited,
            trial: started.as_millisecond(),
        };
        let extraction = setup.extractor.extract(&conversation, &context).await.map_err(|error| {
            let class = match &error {
                extract::Error::Continues { .. } => FailureClass::Retry(Some(NEXT_TURN)),
                extract::Error::Retry { retry_after, .. } => FailureClass::Retry(*retry_after),
                extract::Error::Permanent { .. } => FailureClass::Permanent,
            };
            Failure::new(class, error_chain(&error))
        })?;
        report_unread(queue, extraction.unread.as_deref(), clock.now()).await;
        if let Some(archive) = &setup.archive {
            let session = conversation.session_id.clone();
            note_findings(archive.path.clone(), session, extraction.topics, extraction.records).await;
        }
        let (mut candidates, mut rejected) = (Vec::new(), extraction.rejected);
        for rejected in &mut rejected {
            redact_in_place(&mut rejected.title);
            redact_in_place(&mut rejected.reason);
        }
        for mut candidate in extraction.candidates {
            redact_candidate(&mut candidate);
            if candidate.confidence < confidence_min {
                let reason = format!("confidence {:.2} is below {confidence_min:.2}", candidate.confidence);
                rejected.push(knowledge::Rejected { title: candidate.title, reason });
            } else {
                candidates.push(candidate);
            }
        }
        if candidates.is_empty() {
            let mut reason = extraction.empty_reason.unwrap_or_else(|| match rejected.len() {
                0 => "no knowledge was found".to_owned(),
                count => format!("{count} candidates were rejected, the first: {}", rejected[0].reason),
            });
            redact_in_place(&mut reason);
            return Ok(Step::end_with_nothing(reason));
        }
        let findings =
            Findings { session, candidates, rejected, by: extraction.extractor, ..Findings::default() };
        failpoint::here!("extraction-before-keep");
        Ok(Step::Next(Stage::Embedding, pipeline::encode(&findings)?))
    }
}

/// Why a model has not read all of the last session that it was asked about, and when that was; `None` if it has.
pub fn last_unread(queue: &Queue) -> Option<(Timestamp, String)> {
    let (_, at, unread) = queue.last_report(UNREAD_REPORT).ok().flatten()?;
    (!unread.is_empty()).then_some((at, unread))
}

/// Leaves for a person whether a model has read the session. No capture waits or fails because of it.
async fn report_unread(queue: Arc<dyn Ledger>, unread: Option<&str>, now: Timestamp) {
    let unread = redact(unread.unwrap_or_default()).into_owned();
    let report = move || -> Result<(), queue::Error> {
        let before = queue.last_report(UNREAD_REPORT)?.map(|(.., body)| body).unwrap_or_default();
        match before.is_empty() && unread.is_empty() {
            true => Ok(()),
            false => queue.report(UNREAD_REPORT, &unread, now),
        }
    };
    if let Err(error) = run_blocking(report).await {
        tracing::warn!(error = error_chain(&error), "failed to report what was not read");
    }
}

/// Leaves to the archive what a model says that the session was about, and why code is as it is. An attempt that is
/// repeated says the same once more, which changes nothing; no capture waits or fails because of the archive.
async fn note_findings(
    archive: PathBuf,
    session: String,
    topics: Vec<extract::Topic>,
    mut records: Vec<CodeRecord>,
) {
    for CodeRecord { path, symbol, summary, detail, alternatives, .. } in &mut records {
        let texts = [path, symbol, detail].into_iter().flatten().chain(alternatives).chain([summary]);
        texts.for_each(redact_in_place);
    }
    let topics = topics.into_iter().map(|topic| (redact(&topic.summary).into_owned(), topic.lines)).collect();
    let findings = ModelFindings { topics, records };
    if findings.is_empty() {
        return;
    }
    let noted = run_blocking(move || Archive::open(&archive)?.note_findings(&session, &findings)).await;
    if let Err(error) = noted {
        tracing::warn!(error = error_chain(&error), "failed to note what a model says of a session");
    }
}

/// Extractors are given no secret and check what a model returns. This checks once more, for any extractor,
/// before anything is kept: a title becomes a file's name and a unit's id.
fn redact_candidate(candidate: &mut Candidate) {
    let Candidate { domain, title, description, body, tags, evidence, .. } = candidate;
    for text in [domain, title, description, body].into_iter().chain(tags) {
        redact_in_place(text);
    }
    for evidence in evidence {
        redact_in_place(&mut evidence.excerpt);
    }
}

fn redact_in_place(text: &mut String) {
    if let Cow::Owned(redacted) = redact(text) {
        *text = redacted;
    }
}

/// The user's messages, as far as they decide which units a model is given.
fn messages_to_compare(conversation: &Conversation) -> Vec<String> {
    let messages = conversation.human_words().take(MESSAGES_COMPARED_MAX);
    messages.map(|text| text.chars().take(MESSAGE_CHARS_MAX).collect()).collect()
}

/// What other captures proposed, and what was rejected.
fn proposed_before(queue: &dyn Ledger, capture: i64) -> Result<Vec<EarlierProposal>, queue::Error> {
    let mut proposed = queue.rejected(PROPOSED_READ_MAX)?;
    proposed.extend(queue.proposed_by_others(capture, PROPOSED_READ_MAX)?);
    Ok(proposed)
}

/// What a model is told of the brain, and of what was proposed for it; nothing without an index. In what was recalled, ids of
/// units are replaced by what the units say: a laptop hands over no more than the ids.
fn known_units(
    index: &Index,
    proposed: Vec<EarlierProposal>,
    messages: &[String],
    recalled: &mut [String],
) -> Known {
    let units = match index.pin_without_vectors().and_then(|snapshot| snapshot.units()) {
        Ok(units) => units,
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "failed to read the units of the brain");
            return Known::default();
        }
    };
    for text in recalled {
        if let Some(unit) = units.iter().find(|unit| unit.id.as_str() == text) {
            *text = format!("{}\n{}", unit.title, unit.description.as_deref().unwrap_or_default());
        }
    }
    let units = units.into_iter().map(|unit| BrainUnit {
        id: unit.id,
        title: unit.title,
        description: unit.description,
        domain: unit.domain,
        status: unit.status,
        last_modified: unit.last_modified,
    });
    select_known(units.collect(), proposed, messages)
}

/// A unit of a brain, of which a model may be told.
pub struct BrainUnit {
    /// The unit's id.
    pub id: UnitId,
    /// The unit's title.
    pub title: String,
    /// One sentence on what it is about.
    pub description: Option<String>,
    /// Its domain.
    pub domain: Domain,
    /// Its status, if it has one.
    pub status: Option<String>,
    /// When it was last changed.
    pub last_modified: Option<Timestamp>,
}

/// Selects what a model is told with a conversation that is not captured yet, from all units of a brain and what the queue
/// says of proposals.
///
/// # Errors
/// When the queue cannot be read.
pub fn select_known_units(
    units: Vec<BrainUnit>,
    queue: Option<&Queue>,
    conversation: &Conversation,
) -> Result<Known, queue::Error> {
    // No capture has this number.
    let proposed = queue.map(|queue| proposed_before(queue, 0)).transpose()?.unwrap_or_default();
    Ok(select_known(units, proposed, &messages_to_compare(conversation)))
}

fn select_known(units: Vec<BrainUnit>, proposed: Vec<EarlierProposal>, messages: &[String]) -> Known {
    let in_brain: HashSet<&str> = units.iter().map(|unit| unit.id.as_str()).collect();
    let waiting = proposed.into_iter().filter(|unit| !in_brain.contains(unit.name.as_str()));
    let titles = waiting.map(|unit| unit.title).collect();
    // What an agent wrote and nobody reviewed is no knowledge of the brain's yet, and what was replaced no longer is.
    let is_unknown = |status: &str| is_unreviewed(status) || is_replaced(status);
    let known = units.into_iter().filter(|unit| !unit.status.as_deref().is_some_and(is_unknown));
    select_by_shared_words(known, titles, messages)
}

/// All units of a small brain; of a large one those that share the most words with the messages. Of the titles likewise.
fn select_by_shared_words(
    units: impl IntoIterator<Item = BrainUnit>,
    mut titles: Vec<String>,
    messages: &[String],
) -> Known {
    let messages: Vec<String> = messages.iter().map(|text| knowledge::text::canonical(text)).collect();
    let messages = messages.join(" ");
    let words: HashSet<&str> = messages.split(' ').filter(|word| word.chars().count() > 3).collect();
    let shared =
        |text: &str| knowledge::text::canonical(text).split(' ').filter(|&word| words.contains(word)).count();
    let mut domains: BTreeMap<String, usize> = BTreeMap::new();
    let mut units: Vec<(usize, KnownUnit)> = units
        .into_iter()
        .map(|unit| {
            *domains.entry(unit.domain.as_str().to_owned()).or_default() += 1;
            let unit = KnownUnit {
                id: unit.id.as_str().to_owned(),
                title: unit.title,
                description: unit.description.unwrap_or_default(),
                day: unit.last_modified.map(|time| time.strftime("%Y-%m-%d").to_string()).unwrap_or_default(),
            };
            (shared(&format!("{} {}", unit.title, unit.description)), unit)
        })
        .collect();
    units.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.id.cmp(&other.id)));
    let units = units.into_iter().take(KNOWN_UNITS_MAX).map(|(_, unit)| unit).collect();
    let mut domains: Vec<(String, usize)> = domains.into_iter().collect();
    domains.sort_by_key(|(_, count)| Reverse(*count));
    titles.sort_unstable();
    titles.dedup();
    titles.sort_by_cached_key(|title| Reverse(shared(title)));
    titles.truncate(PROPOSED_MAX);
    Known { units, domains: domains.into_iter().map(|(domain, _)| domain).collect(), proposed: titles }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_told_the_nearest_units_with_their_days_and_all_domains() {
        let unit = |number: usize, domain: &str, title: &str| BrainUnit {
            id: UnitId::verbatim(format!("unit-{number:03}")),
            title: title.to_owned(),
            description: None,
            domain: Domain::verbatim(domain),
            status: None,
            last_modified: (number == 199).then(|| "2026-02-03T23:59:00Z".parse().unwrap()),
        };
        let mut units: Vec<BrainUnit> =
            (0..198).map(|number| unit(number, "testing", "Something else")).collect();
        units.push(unit(198, "alpha", "Another subject"));
        units.push(unit(199, "messaging", "Renew the lease from a heartbeat"));
        let titles = ["Something else", "A heartbeat renews", "Something else"].map(str::to_owned).to_vec();
        let messages = ["why does the lease need a heartbeat?".to_owned()];
        let known = select_by_shared_words(units, titles, &messages);
        assert_eq!(known.proposed, ["A heartbeat renews", "Something else"]);
        assert_eq!(known.units.len(), KNOWN_UNITS_MAX);
        assert_eq!((known.units[0].id.as_str(), known.units[0].day.as_str()), ("unit-199", "2026-02-03"));
        assert_eq!(known.units[1].day, "");
        assert_eq!(known.domains, ["testing", "alpha", "messaging"], "also of units that are not listed");
    }
}
