//! The reflection pass: looks through the reviewed units of a brain, and proposes on one branch what to merge, link, mark,
//! archive and promote, with a reason for each change.
//!
//! What was proposed once is not proposed again while the units that it is about stay as they are, whatever a person has
//! decided about it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use archive::Archive;
use git::{CommitId, Identity, Lock, NewFile, Outcome, Proposal, Repository};
use index::VectorCache;
use jiff::{SignedDuration, Timestamp};
use knowledge::{Document, Unit, UnitId};
use queue::{Branch, Queue};
use reflect::{
    Change, FileChange, Finding, Observed, Recall, RejectedRewrite, accept_rewrite, rewrite_request,
    text_to_compare,
};
use serde::{Deserialize, Serialize};

use crate::embedding_model::EmbeddingModel;
use crate::reflection_message::{REFLECTION_BRANCH_PREFIX, reflection_message};
use crate::setup::Setup;

/// The name of the report with what was proposed.
const REPORT: &str = "reflection";
/// The most findings that are remembered as proposed.
const KEYS_MAX: usize = 20_000;
/// The most findings of one branch: more than a person reviews at a sitting.
const FINDINGS_MAX: usize = 60;
const EVERY: SignedDuration = SignedDuration::from_hours(24);
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
const FOLDER: &str = "domains";

/// Why a brain could not be looked through, or the branch not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReflectionError {
    /// The repository cannot be used.
    #[error("failed to use the brain's repository")]
    Git(#[from] git::Error),
    /// The queue cannot be used.
    #[error("failed to use the queue")]
    Queue(#[from] queue::Error),
    /// What sessions were shown cannot be read.
    #[error("failed to read what sessions were shown")]
    Archive(#[from] archive::Error),
    /// The embedding model cannot be used.
    #[error("failed to embed the units")]
    Embed(#[from] embed::Error),
    /// The state folder cannot be made.
    #[error("failed to make the state folder")]
    Brain(#[from] brain::Error),
    /// Something else is to be done first.
    #[error("stopped for other work")]
    Cancelled,
}

/// What a pass has found.
#[derive(Debug)]
pub struct Reflection {
    /// The findings, each with its reason; at most so many as a person reviews at a sitting.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub left_out: usize,
    /// The files that they change.
    pub changes: Vec<FileChange>,
    /// How many units were looked at.
    pub units: usize,
    /// The units with their files: path, text, unit.
    files: Vec<(String, String, Unit)>,
    /// The units of which a model's text was not taken.
    refused: Vec<UnitId>,
    base: CommitId,
}

impl Reflection {
    /// The prompts for a language model to shorten units, each with its unit: of those that nothing else
    /// changes, and that are not too long.
    pub fn rewrite_requests(&self) -> Vec<(UnitId, String)> {
        let is_changed = |path: &str| self.changes.iter().any(|change| change.path == path);
        let wanted = self.findings.iter().filter_map(|finding| match &finding.change {
            Change::Rewrite { unit } => self.file(unit),
            _ => None,
        });
        wanted
            .filter(|(path, _, unit)| !is_changed(path) && !self.refused.contains(&unit.id))
            .filter_map(|(.., unit)| Some((unit.id.clone(), rewrite_request(unit)?)))
            .collect()
    }

    /// Takes a model's answer to one of them as a change. An answer that is refused is not asked for again while the unit
    /// stays the same.
    ///
    /// # Errors
    /// When the answer is not to be trusted to say the same.
    pub fn accept_rewrite(
        &mut self,
        unit: &UnitId,
        answer: &str,
        model: &str,
        now: Timestamp,
    ) -> Result<(), RejectedRewrite> {
        let Some((path, text, unit)) = self.file(unit) else { return Err(RejectedRewrite::File) };
        let observed = Observed { unit, path, text, vector: None, recall: None, stale: None };
        let text = match accept_rewrite(&observed, answer, now) {
            Ok(text) => text,
            Err(why) => {
                let unit = unit.id.clone();
                self.refused.push(unit);
                return Err(why);
            }
        };
        let reason = format!("shortened by {model}, as many sessions are shown it: “{}”", unit.title);
        let change =
            FileChange { path: path.clone(), text: Some(text), reasons: vec![reason], part_of: None };
        self.changes.push(change);
        Ok(())
    }

    fn file(&self, unit: &UnitId) -> Option<&(String, String, Unit)> {
        self.files.iter().find(|(.., known)| known.id == *unit)
    }
}

/// A branch that a pass has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedReflection {
    /// Its name.
    pub branch: String,
    /// Its commit.
    pub commit: String,
    /// Whether a worker pushes it.
    pub is_delivered: bool,
}

/// What is remembered from pass to pass.
#[derive(Default, Serialize, Deserialize)]
struct Proposed {
    keys: Vec<String>,
}

/// What a pass goes by.
pub struct Pass<'a> {
    /// Only findings about units that were changed or shown since then; `None` for all.
    pub since: Option<Timestamp>,
    /// Why units may no longer hold in the project at hand, in their order; nothing where that is not known.
    pub stale: &'a dyn Fn(&[&Unit]) -> Vec<Option<String>>,
    /// Called with how many units are embedded, and of how many.
    pub progress: &'a dyn Fn(usize, usize),
    /// Whether to stop.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// Looks through the reviewed units. Writes nothing but vectors into their cache.
///
/// # Errors
/// See [`ReflectionError`].
pub fn look(setup: &Setup, pass: &Pass<'_>, now: Timestamp) -> Result<Reflection, ReflectionError> {
    let repository = setup.repository()?;
    let base = repository.default_branch()?.tip;
    let mut files: Vec<(String, String, Unit)> = Vec::new();
    // Also those that are no units: what a person has broken must not be replaced.
    let other_paths = repository.paths_under(base, FOLDER)?.into_iter().collect();
    for (path, bytes) in repository.files_under(base, FOLDER)? {
        let Some(text) = String::from_utf8(bytes).ok().filter(|_| path.ends_with(".md")) else { continue };
        if let Ok(unit) = Document::parse(text.as_str()).and_then(|document| document.unit(&path)) {
            files.push((path, text, unit));
        }
    }
    let other_ids = ids_elsewhere(&repository, base, &files)?;
    let vectors = embed(setup, &files, pass)?;
    let units: Vec<&Unit> = files.iter().map(|(.., unit)| unit).collect();
    let stale = (pass.stale)(&units);
    let recalls = recalls(setup)?;
    let observed: Vec<Observed<'_>> = files
        .iter()
        .enumerate()
        .map(|(at, (path, text, unit))| Observed {
            unit,
            path,
            text,
            vector: vectors.get(at).map(Vec::as_slice),
            recall: recalls.by_unit.get(unit.id.as_str()).copied(),
            stale: stale.get(at).and_then(Option::as_deref),
        })
        .collect();
    let waiting = Waiting::read(&repository)?;
    let settings = reflect::Settings {
        recording_since: recalls.since,
        since: pass.since,
        rejected: proposed_before(setup)?.keys.into_iter().collect(),
        other_ids: waiting.ids.into_iter().chain(other_ids).collect(),
        other_paths,
        ..reflect::Settings::default()
    };
    let mut findings = reflect::find(&observed, &settings, now);
    if !waiting.reflected.is_empty() {
        // What an earlier pass proposed may be merged first, and would no longer fit what this one says of the same files.
        let waits = |path: &str| waiting.reflected.contains(path);
        findings.retain(|finding| match &finding.change {
            // Changes nothing until a model was asked.
            Change::Rewrite { unit } => {
                !files.iter().any(|(path, _, known)| known.id == *unit && waits(path))
            }
            _ => {
                let changes = reflect::apply(std::slice::from_ref(finding), &observed, &settings, now);
                !changes.iter().any(|change| waits(&change.path))
            }
        });
    }
    let left_out = findings.len().saturating_sub(FINDINGS_MAX);
    findings.truncate(FINDINGS_MAX);
    let changes = reflect::apply(&findings, &observed, &settings, now);
    Ok(Reflection { findings, left_out, changes, units: files.len(), files, refused: Vec::new(), base })
}

/// The ids of the notes outside of the units' folder, and of files in it that cannot be read as units: a link to one of
/// them is not dangling.
fn ids_elsewhere(
    repository: &Repository,
    base: CommitId,
    files: &[(String, String, Unit)],
) -> Result<Vec<UnitId>, ReflectionError> {
    let read: BTreeSet<&str> = files.iter().map(|(path, ..)| path.as_str()).collect();
    let mut ids = Vec::new();
    for path in repository.paths_under(base, "")? {
        if read.contains(path.as_str()) || !brain::is_unit_path(&path) {
            continue;
        }
        // One that is too large has the id of its path.
        let text = repository.read_at(base, &path).ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let claimed = text.lines().find_map(|line| line.strip_prefix("id:"));
        ids.extend(claimed.map(|id| UnitId::verbatim(id.trim().trim_matches(['"', '\'']))));
        ids.extend(Document::parse("").and_then(|document| document.unit(&path)).map(|unit| unit.id));
    }
    Ok(ids)
}

/// Proposes what was found on one branch. `None` if it changes nothing. It can be killed at any point and repeated.
///
/// # Errors
/// See [`ReflectionError`].
pub fn propose(
    setup: &Setup,
    reflection: &Reflection,
    now: Timestamp,
) -> Result<Option<ProposedReflection>, ReflectionError> {
    if reflection.changes.is_empty() {
        if !reflection.refused.is_empty() {
            remember(&Queue::open(&setup.places.queue())?, reflection, now)?;
        }
        return Ok(None);
    }
    setup.places.create()?;
    let repository = setup.repository()?;
    let (mut files, mut removes) = (Vec::new(), Vec::new());
    for FileChange { path, text, .. } in &reflection.changes {
        let edits = repository.read_at(reflection.base, path)?.is_some();
        match text {
            Some(text) => files.push(NewFile { path: path.clone(), content: text.clone().into(), edits }),
            None => removes.push(path.clone()),
        }
    }
    // The same findings make the same branch, but not that of another machine, which has found them, too.
    let mut digest = blake3::Hasher::new();
    digest.update(&system::process::host_name());
    digest.update(setup.brain.root().as_os_str().as_encoded_bytes());
    for finding in &reflection.findings {
        digest.update(finding.key().as_bytes());
    }
    let digest = &digest.finalize().to_hex()[..8];
    let branch = format!("{REFLECTION_BRANCH_PREFIX}{digest}");
    let units = u32::try_from(files.len() + removes.len()).unwrap_or(u32::MAX);
    let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
    let proposal = Proposal {
        branch,
        base: Some(reflection.base),
        files,
        removes,
        message: reflection_message(reflection.findings.len(), &reflection.changes),
        time: now,
        author: Identity::default(),
    };
    let proposed = repository.propose(&lock, &proposal)?;
    drop(lock);
    let queue = Queue::open(&setup.places.queue())?;
    let is_delivered = setup.delivery.enabled && repository.remote()?.is_some();
    if proposed.outcome != Outcome::NothingNew {
        let branch = Branch { name: proposed.branch.clone(), commit: proposed.commit.to_string(), units };
        queue.add_branch(queue::ORIGIN_REFLECTION, &branch, is_delivered, now)?;
    }
    remember(&queue, reflection, now)?;
    Ok(Some(ProposedReflection {
        branch: proposed.branch,
        commit: proposed.commit.to_string(),
        is_delivered,
    }))
}

/// Whether the last pass of a worker was a day ago, or later than now: the clock was wrong then.
pub(crate) fn is_due(queue: &Queue, now: Timestamp) -> bool {
    let last = queue.last_report(REPORT).ok().flatten();
    last.is_none_or(|(_, at, _)| !(SignedDuration::ZERO..EVERY).contains(&now.duration_since(at)))
}

/// Notes that a pass was made, and what it has proposed.
pub(crate) fn remember(queue: &Queue, reflection: &Reflection, now: Timestamp) -> Result<(), queue::Error> {
    let mut proposed = read_report(queue)?;
    // What only a model could have done may be done another time.
    let is_open = |finding: &Finding| match &finding.change {
        Change::Rewrite { unit } => reflection.rewrite_requests().iter().any(|(open, _)| open == unit),
        _ => false,
    };
    for finding in reflection.findings.iter().filter(|finding| !is_open(finding)) {
        if !proposed.keys.iter().any(|key| key == finding.key()) {
            proposed.keys.push(finding.key().to_owned());
        }
    }
    let excess = proposed.keys.len().saturating_sub(KEYS_MAX);
    proposed.keys.drain(..excess);
    queue.report(REPORT, &serde_json::to_string(&proposed).unwrap_or_default(), now)
}

fn proposed_before(setup: &Setup) -> Result<Proposed, ReflectionError> {
    let path = setup.places.queue();
    if !path.is_file() {
        return Ok(Proposed::default());
    }
    Ok(read_report(&Queue::open(&path)?)?)
}

fn read_report(queue: &Queue) -> Result<Proposed, queue::Error> {
    let body = queue.last_report(REPORT)?.map(|(.., body)| body);
    Ok(body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default())
}

/// The vectors of the units' texts, those that were computed before from the cache.
fn embed(
    setup: &Setup,
    files: &[(String, String, Unit)],
    pass: &Pass<'_>,
) -> Result<Vec<Vec<f32>>, ReflectionError> {
    let model = EmbeddingModel::new(setup.embed.clone());
    let label = model.label()?;
    let cache = VectorCache::open(model.cache());
    let texts: Vec<String> = files.iter().map(|(.., unit)| text_to_compare(unit)).collect();
    let mut vectors = cache.get(&label, &texts);
    let missing: Vec<usize> = (0..texts.len()).filter(|&at| vectors[at].is_none()).collect();
    let mut done = texts.len() - missing.len();
    for batch in missing.chunks(model.batch_max()) {
        if (pass.is_cancelled)() {
            return Err(ReflectionError::Cancelled);
        }
        let wanted: Vec<String> = batch.iter().map(|&at| texts[at].clone()).collect();
        let embedded = model.embed_documents(&wanted)?;
        cache.put(&label, wanted.iter().map(String::as_str).zip(&embedded));
        for (&at, embedding) in batch.iter().zip(embedded) {
            vectors[at] = Some(embedding);
        }
        done += batch.len();
        (pass.progress)(done, texts.len());
    }
    Ok(vectors
        .into_iter()
        .map(|embedding| embedding.map(|embedding| embedding.vector).unwrap_or_default())
        .collect())
}

/// How sessions have used units.
#[derive(Default)]
struct Recalls {
    by_unit: HashMap<String, Recall>,
    /// Since when it is recorded.
    since: Option<Timestamp>,
}

fn recalls(setup: &Setup) -> Result<Recalls, ReflectionError> {
    let Some(learning) = &setup.learning else { return Ok(Recalls::default()) };
    let Some(archive) = Archive::open_existing(&learning.archive)? else { return Ok(Recalls::default()) };
    let recalls = archive.recalls(&learning.brain)?.into_iter().map(|recalled| {
        (recalled.item, Recall { shown: recalled.sessions, used: recalled.used, last: recalled.last })
    });
    Ok(Recalls { by_unit: recalls.collect(), since: archive.recalls_since(&learning.brain)? })
}

/// What waits for a review.
#[derive(Default)]
struct Waiting {
    /// The ids of units: a link to one of them is not dangling.
    ids: BTreeSet<UnitId>,
    /// The files that earlier passes would change or remove.
    reflected: BTreeSet<String>,
}

impl Waiting {
    fn read(repository: &Repository) -> Result<Self, ReflectionError> {
        let mut waiting = Self::default();
        for branch in repository.pending_branches()? {
            let paths: Vec<String> =
                repository.branch_files(&branch.name)?.into_iter().map(|(path, _)| path).collect();
            waiting.ids.extend(paths.iter().map(|path| UnitId::verbatim(knowledge::name::file_stem(path))));
            if branch.name.starts_with(REFLECTION_BRANCH_PREFIX) {
                let removed = repository.branch_removals(&branch.name)?.into_iter().map(|(path, _)| path);
                waiting.reflected.extend(paths.into_iter().chain(removed));
            }
        }
        Ok(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_due_again_after_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        assert!(is_due(&queue, now));
        queue.report(REPORT, "{}", now).unwrap();
        assert!(!is_due(&queue, now) && !is_due(&queue, now + SignedDuration::from_hours(23)));
        assert!(is_due(&queue, now + EVERY));
        assert!(is_due(&queue, now - SignedDuration::from_hours(1)));
    }
}
