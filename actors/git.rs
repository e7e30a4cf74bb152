//! Makes branches of knowledge. The only one that writes to the brain's repository: one branch at a
//! time, under a lock that holds across processes.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use git::{CommitId, Identity, Lock, NewFile, Proposal, Repository};
use index::Index;
use jiff::Timestamp;
use knowledge::name::file_stem;
use knowledge::{
    Candidate, Document, Domain, Overlap, OverlapKind, Rejected, Related, SessionId, UnitId, text,
};
use queue::{Branch, Claim, Finish, ProposedUnit, Queue, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use serde_yaml::{Mapping, Value};
use transcript::Conversation;

use crate::delivery;
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Found, Jobs, Step, Worked};
use crate::pull_request_text;

/// How long another process may hold the repository before the job is given back.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

pub struct Git;

pub enum Message {
    /// There may be units to put on a branch.
    Wake,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Jobs,
    pub root: PathBuf,
    /// The branch of reviewed knowledge, when `brain.yaml` names it.
    pub default_branch: Option<String>,
    pub index: Index,
    /// Whether what is made is to be delivered, where there is a remote.
    pub delivers: bool,
    pub bell: Mailbox<Message>,
    pub next: Mailbox<delivery::Message>,
}

pub struct State {
    arguments: Arguments,
}

/// What the queue holds for this stage.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Input {
    /// What is to be proposed.
    Checked(Found),
    /// OverlapKind, down to the byte: decided and kept before the repository is touched, so that every
    /// attempt makes the same commit, whatever has been merged in between.
    Planned { found: Found, plan: Plan },
    /// The branch waits for its review, and what it edits has been edited on the default branch since: its
    /// commit is to be made anew there. `plan` is how, once that is decided.
    Anew { found: Found, before: Plan, commit: String, plan: Option<Plan> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) files: Vec<File>,
    pub(crate) message: String,
    pub(crate) time: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) content: String,
    /// Whether the base has it, and this was made of what it has there.
    pub(crate) edits: bool,
    /// Which of what was found it holds, by their place.
    pub(crate) holds: Vec<usize>,
}

impl Actor for Git {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        arguments.jobs.take_over(Stage::Git, arguments.bell.health())?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.propose_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn propose_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let arguments = self.arguments.clone();
        let worked = pipeline::work_once(&self.arguments.jobs, Stage::Git, |claim| {
            // The lock is taken inside of the closure: killing the actor does not stop the closure,
            // and must not release the lock that it works under.
            pipeline::blocking(move || arguments.propose(&claim))
        })
        .await?;
        failpoint::here!("git-after-finish");
        if worked == Worked::Passed(Some(Stage::Delivery)) {
            self.arguments.next.ring(delivery::Message::Wake);
        }
        Ok(worked)
    }
}

impl Arguments {
    fn propose(&self, claim: &Claim) -> Result<Step, Failure> {
        let repository = Repository::open(&self.root)
            .map_err(|error| with_hint(&error))?
            .with_default_branch(self.default_branch.as_deref());
        let lock_path = repository.lock_path().map_err(|error| with_hint(&error))?;
        let held = Lock::acquire_within(&lock_path, LOCK_PATIENCE).map_err(|error| with_hint(&error))?;
        let (found, planned) = match pipeline::decode(&claim.input)? {
            Input::Checked(found) => (found, None),
            Input::Planned { found, plan } => (found, Some(plan)),
            Input::Anew { found, before, commit, plan } => {
                return self.propose_anew(claim, &repository, &held, (found, before, commit, plan));
            }
        };
        let mut plan = match planned {
            Some(plan) if self.still_stands(&repository, &plan).map_err(|error| with_hint(&error))? => plan,
            _ => self.plan(claim, &repository, &found, None, None)?,
        };
        failpoint::here!("git-after-plan");
        self.keep(claim, &found, &plan)?;
        failpoint::here!("git-after-keep");
        #[cfg(test)]
        self.jobs.faults.strike_thread(crate::testbed::Place::Planned, claim);
        let mut proposed = repository.propose(&held, &plan.proposal()?);
        use git::Error::{BranchTaken, NothingToEdit, PathTaken};
        if let Err(BranchTaken { .. } | PathTaken { .. } | NothingToEdit { .. }) = &proposed {
            // Somebody else's branch has our name, or the base has moved under a plan that was never
            // carried out: the digest of the content tells ours apart.
            let digest = blake3::hash(&claim.input).to_hex();
            plan = self.plan(claim, &repository, &found, Some(&digest[..6]), None)?;
            self.keep(claim, &found, &plan)?;
            proposed = repository.propose(&held, &plan.proposal()?);
        }
        let proposed = proposed.map_err(|error| with_hint(&error))?;
        #[cfg(test)]
        self.jobs.faults.strike_thread(crate::testbed::Place::Proposed, claim);
        if proposed.outcome == git::Outcome::NothingNew {
            let reason = "the brain has every file already".to_owned();
            return Ok(Step::End(Finish::Nothing { reason }));
        }
        failpoint::here!("git-before-finish");
        let branch = Branch {
            name: proposed.branch,
            commit: proposed.commit.to_string(),
            units: plan.files.len() as u32,
        };
        let has_remote = repository.remote().map_err(|error| with_hint(&error))?.is_some();
        if self.delivers && has_remote {
            let input = pipeline::encode(&Input::Planned { found, plan })?;
            return Ok(Step::NextOnBranch(Stage::Delivery, input, branch));
        }
        Ok(Step::End(Finish::Done(branch)))
    }

    /// Makes the commit of a branch that waits for its review anew on what was merged meanwhile. Where
    /// somebody has added to the branch it is left as it is: their work is worth more than ours.
    fn propose_anew(
        &self,
        claim: &Claim,
        repository: &Repository,
        held: &Lock,
        (found, before, commit, planned): (Found, Plan, String, Option<Plan>),
    ) -> Result<Step, Failure> {
        let as_it_was = || {
            let capture = claim.capture.clone();
            let name = capture.branch.unwrap_or_else(|| before.branch.clone());
            Branch { name, commit: commit.clone(), units: capture.units }
        };
        let expected: CommitId = commit.parse().map_err(|_| Failure::of(format!("{commit} is no commit")))?;
        let plan = match planned {
            Some(plan) => plan,
            None => {
                let mut plan = self.plan(claim, repository, &found, None, Some(&before))?;
                plan.branch.clone_from(&before.branch);
                plan
            }
        };
        let input = Input::Anew {
            found: found.clone(),
            before: before.clone(),
            commit: commit.clone(),
            plan: Some(plan.clone()),
        };
        self.keep_as(claim, &found, &plan, &input)?;
        failpoint::here!("git-anew-after-keep");
        match repository.replace(held, &plan.proposal()?, expected) {
            Ok(proposed) if proposed.outcome != git::Outcome::NothingNew => {
                failpoint::here!("git-anew-before-advance");
                let branch = Branch {
                    name: proposed.branch,
                    commit: proposed.commit.to_string(),
                    units: plan.files.len() as u32,
                };
                let input = pipeline::encode(&Input::Planned { found, plan })?;
                Ok(Step::NextOnBranch(Stage::Delivery, input, branch))
            }
            // All of it is on the default branch, or somebody has added to the branch here: the next sync
            // closes it, or tells them.
            Ok(_) | Err(git::Error::BranchMoved { .. } | git::Error::NoSuchBranch { .. }) => {
                self.keep(claim, &found, &before)?;
                Ok(Step::End(Finish::Done(as_it_was())))
            }
            Err(error) => Err(with_hint(&error)),
        }
    }

    /// Whether a plan that was kept can be carried out as it is: not when somebody has edited since what it
    /// edits, unless its branch is there already.
    fn still_stands(&self, repository: &Repository, plan: &Plan) -> Result<bool, git::Error> {
        if plan.files.iter().all(|file| !file.edits) || repository.tip(&plan.branch)?.is_some() {
            return Ok(true);
        }
        let Ok(base) = plan.base.parse::<CommitId>() else { return Ok(false) };
        let tip = repository.default_branch()?.tip;
        for file in plan.files.iter().filter(|file| file.edits && tip != base) {
            if repository.read_at(base, &file.path)? != repository.read_at(tip, &file.path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn keep(&self, claim: &Claim, found: &Found, plan: &Plan) -> Result<(), Failure> {
        self.keep_as(claim, found, plan, &Input::Planned { found: found.clone(), plan: plan.clone() })
    }

    fn keep_as(&self, claim: &Claim, found: &Found, plan: &Plan, input: &Input) -> Result<(), Failure> {
        let units: Vec<ProposedUnit> = plan.files.iter().map(|file| file.proposed(found)).collect();
        let taken = self
            .jobs
            .queue
            .save_result(claim, &pipeline::encode(input)?, &units)
            .map_err(|error| Failure::passing(&error))?;
        if taken.is_empty() {
            Ok(())
        } else {
            Err(Failure::of(format!("{} were named meanwhile", taken.join(", "))))
        }
    }

    fn plan(
        &self,
        claim: &Claim,
        repository: &Repository,
        found: &Found,
        digest: Option<&str>,
        before: Option<&Plan>,
    ) -> Result<Plan, Failure> {
        let base = repository.default_branch().map_err(|error| with_hint(&error))?.tip;
        let session = &claim.capture.session_id;
        let time = found.session.ended.unwrap_or(claim.capture.added);
        let origin = Origin { by: &found.by, project: found.session.project.as_deref(), session, time };
        let mut names =
            Names::taken(repository, base, &self.index, &self.jobs.queue, claim.capture.id, before)?;
        let mut edits = Edits { repository, base, index: &self.index, files: Vec::new() };
        let mut files = Vec::new();
        let mut told = Told::default();
        for (number, candidate) in found.candidates.iter().enumerate() {
            let line = format!(
                "  {} ({}, confidence {:.2})",
                text::escape_forge_syntax(&text::one_line(&candidate.title, 100)),
                candidate.kind,
                candidate.confidence
            );
            let mut related = candidate.related.clone();
            let mut replaced = None;
            if let Some(Overlap { id, how }) = &candidate.overlap {
                // One that is not on the default branch, or cannot be read there, cannot be edited.
                let edit = edits.of(id)?;
                match (edit, how) {
                    (Some(edit), OverlapKind::AddsTo) => {
                        merge(&mut edit.document, candidate, &origin);
                        edit.holds.push(number);
                        told.completed.push(format!("- {}\n{line}", edit.path));
                        continue;
                    }
                    (Some(_), OverlapKind::Replaces) => replaced = Some(id.clone()),
                    _ => {}
                }
            }
            let digest =
                blake3::hash(format!("{session}\n{}\n{}", candidate.title, candidate.body).as_bytes());
            let id = names
                .choose(&candidate.title, &digest.to_hex()[..4])
                .map_err(|error| Failure::passing(&error))?;
            let domain = Domain::sanitized(&candidate.domain);
            let path = format!("domains/{domain}/{}/{id}.md", candidate.kind.folder());
            if let Some(replaced) = replaced {
                if let Some(edit) = edits.of(&replaced)? {
                    retire(&mut edit.document, &id, &origin);
                    told.replaced.push(format!("- {}\n  by {id}", edit.path));
                }
                related.retain(|related| related.id != replaced);
                related.push(Related { id: replaced, relation: SUPERSEDES.into() });
            }
            told.added.push(format!("- {path}\n{line}"));
            let unit = document(candidate, &id, &domain, &related, &origin);
            files.push(File { path, content: unit.as_str().to_owned(), edits: false, holds: vec![number] });
        }
        files.extend(edits.files.into_iter().map(|edit| File {
            path: edit.path,
            content: edit.document.as_str().to_owned(),
            edits: true,
            holds: edit.holds,
        }));
        told.left_out = &found.rejected;
        let suffix = digest.map(|digest| format!("-{digest}")).unwrap_or_default();
        Ok(Plan {
            branch: format!("nugget/session-{}-{}{suffix}", time.strftime("%Y%m%d-%H%M%S"), session.short()),
            base: base.to_string(),
            message: told.message(&origin),
            files,
            time,
        })
    }
}

/// How a unit that was replaced and the one in its place are related.
const SUPERSEDES: &str = "supersedes";
const SUPERSEDED_BY: &str = "superseded_by";
const SUPERSEDED: &str = "superseded";

/// Where what was found comes from.
struct Origin<'a> {
    by: &'a str,
    project: Option<&'a str>,
    session: &'a SessionId,
    time: Timestamp,
}

impl Origin<'_> {
    fn stamp(&self) -> Value {
        Value::from(self.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// An entry of a unit's `sources`. The digest tells whether evidence that is found later is what the
    /// unit was made from.
    fn source(&self, candidate: &Candidate) -> Value {
        let mut digest = blake3::Hasher::new();
        for evidence in &candidate.evidence {
            digest
                .update(evidence.line.as_bytes())
                .update(b"\n")
                .update(evidence.excerpt.as_bytes())
                .update(b"\n");
        }
        let lines = candidate.evidence.iter().map(|evidence| Value::from(evidence.line.as_str()));
        let mut source = vec![("session", Value::from(self.session.as_str())), ("time", self.stamp())];
        if let Some(project) = self.project {
            source.push(("project", Value::from(text::one_line(project, 100))));
        }
        source.push(("lines", Value::Sequence(lines.collect())));
        source.push(("evidence", Value::from(&digest.finalize().to_hex()[..16])));
        mapping(source)
    }
}

/// The units of the default branch that a capture edits.
struct Edits<'a> {
    repository: &'a Repository,
    base: CommitId,
    index: &'a Index,
    files: Vec<Edit>,
}

struct Edit {
    id: UnitId,
    path: String,
    document: Document,
    holds: Vec<usize>,
}

impl Edits<'_> {
    fn of(&mut self, id: &UnitId) -> Result<Option<&mut Edit>, Failure> {
        if let Some(at) = self.files.iter().position(|edit| &edit.id == id) {
            return Ok(self.files.get_mut(at));
        }
        let unit =
            self.index.pin().and_then(|pinned| pinned.unit(id)).map_err(|error| Failure::passing(&error))?;
        let Some(path) = unit.map(|unit| unit.path) else { return Ok(None) };
        let content = self.repository.read_at(self.base, &path).map_err(|error| with_hint(&error))?;
        let document = content
            .and_then(|content| String::from_utf8(content).ok())
            .and_then(|text| Document::parse(text).ok())
            .filter(|document| document.has_front_matter())
            .filter(|document| document.unit(&path).is_ok_and(|unit| &unit.id == id));
        let Some(document) = document else { return Ok(None) };
        self.files.push(Edit { id: id.clone(), path, document, holds: Vec::new() });
        Ok(self.files.last_mut())
    }
}

/// Puts what was learned below what the unit says; nothing of that is changed.
fn merge(document: &mut Document, candidate: &Candidate, origin: &Origin<'_>) {
    let title = text::one_line(&candidate.title, 120);
    let more = text::demote_headings(&text::strip_hidden(candidate.body.trim()));
    let body = format!("{}\n\n## {title}\n\n{more}\n", document.body().trim_end());
    document.set_body(&body);
    document.set("last_modified", &origin.stamp());
    append(document, "sources", origin.source(candidate));
}

/// Marks a unit as replaced by another.
fn retire(document: &mut Document, by: &UnitId, origin: &Origin<'_>) {
    document.set("status", &SUPERSEDED.into());
    document.set("last_modified", &origin.stamp());
    append(document, "related", mapping([("id", by.as_str().into()), ("relation", SUPERSEDED_BY.into())]));
}

fn append(document: &mut Document, key: &str, value: Value) {
    let mut values = match document.get(key) {
        Some(Value::Sequence(values)) => values,
        _ => Vec::new(),
    };
    values.push(value);
    document.set(key, &Value::Sequence(values));
}

/// What a commit's message says of a capture.
#[derive(Default)]
struct Told<'a> {
    added: Vec<String>,
    completed: Vec<String>,
    replaced: Vec<String>,
    left_out: &'a [Rejected],
}

/// How many of what was left out are told.
const LEFT_OUT_MAX: usize = 12;

impl Told<'_> {
    fn message(&self, origin: &Origin<'_>) -> String {
        let count = self.added.len() + self.completed.len();
        let plural = if count == 1 { "unit" } else { "units" };
        let project = origin
            .project
            .map(|name| format!(" in {}", text::escape_forge_syntax(&text::one_line(name, 60))));
        let mut message = format!(
            "{}\n\n{count} {plural} of knowledge from the session {}{}, found by {}.\n",
            pull_request_text::title(origin.time),
            origin.session.short(),
            project.unwrap_or_default(),
            origin.by,
        );
        let mut left_out: Vec<String> = self
            .left_out
            .iter()
            .take(LEFT_OUT_MAX)
            .map(|Rejected { title, reason }| {
                format!(
                    "- {}: {}",
                    text::escape_forge_syntax(&text::one_line(title, 100)),
                    text::escape_forge_syntax(&text::one_line(reason, 160))
                )
            })
            .collect();
        if self.left_out.len() > LEFT_OUT_MAX {
            left_out.push(format!("- and {} more", self.left_out.len() - LEFT_OUT_MAX));
        }
        for (heading, lines) in [
            ("Added", &self.added),
            ("Completed", &self.completed),
            ("Replaced", &self.replaced),
            ("Left out", &left_out),
        ] {
            if !lines.is_empty() {
                message.push_str(&format!("\n{heading}:\n{}\n", lines.join("\n")));
            }
        }
        message
    }
}

impl File {
    fn proposed(&self, found: &Found) -> ProposedUnit {
        let held = self.holds.iter().filter_map(|&number| found.candidates.get(number));
        let evidence = held.clone().flat_map(|candidate| &candidate.evidence);
        let first = self.holds.first().filter(|_| !self.edits);
        ProposedUnit {
            name: file_stem(&self.path).to_owned(),
            is_new: !self.edits,
            title: held
                .clone()
                .next()
                .map(|candidate| text::one_line(&candidate.title, 120))
                .unwrap_or_default(),
            model: found.model.clone(),
            vector: first.and_then(|&number| found.vectors.get(number)).cloned().unwrap_or_default(),
            evidence: evidence.map(|evidence| (evidence.line.clone(), evidence.excerpt.clone())).collect(),
        }
    }
}

/// How what was merged meanwhile bears on a branch that waits for its review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bears {
    /// Not at all.
    Apart,
    /// Something that the branch adds or edits is another on the default branch.
    Conflicts,
    /// The default branch has every file of it as it is.
    HasAll,
}

impl Plan {
    /// Compares with a commit of the default branch.
    pub(crate) fn against(&self, repository: &Repository, tip: CommitId) -> Result<Bears, git::Error> {
        let base = self.base.parse::<CommitId>()?;
        let mut has_all = !self.files.is_empty();
        let mut conflicts = false;
        for file in &self.files {
            let there = repository.read_at(tip, &file.path)?;
            if there.as_deref() == Some(file.content.as_bytes()) {
                continue;
            }
            has_all = false;
            conflicts |= match file.edits {
                true => tip != base && there != repository.read_at(base, &file.path)?,
                false => there.is_some(),
            };
        }
        Ok(match (has_all, conflicts) {
            (true, _) => Bears::HasAll,
            (false, true) => Bears::Conflicts,
            (false, false) => Bears::Apart,
        })
    }

    fn proposal(&self) -> Result<Proposal, Failure> {
        let base: CommitId =
            self.base.parse().map_err(|_| Failure::of(format!("{} is no commit", self.base)))?;
        let file = |file: &File| NewFile {
            path: file.path.clone(),
            content: file.content.clone().into_bytes(),
            edits: file.edits,
        };
        Ok(Proposal {
            branch: self.branch.clone(),
            base: Some(base),
            files: self.files.iter().map(file).collect(),
            message: self.message.clone(),
            time: self.time,
            author: Identity::default(),
        })
    }
}

/// The ids that are in use: in the brain, and by captures whose branches wait for their review.
struct Names<'a> {
    taken: HashSet<String>,
    queue: &'a Queue,
    capture: i64,
}

impl<'a> Names<'a> {
    fn taken(
        repository: &Repository,
        base: CommitId,
        index: &Index,
        queue: &'a Queue,
        capture: i64,
        before: Option<&Plan>,
    ) -> Result<Self, Failure> {
        let paths = repository.paths_under(base, "domains").map_err(|error| with_hint(&error))?;
        let mut taken: HashSet<String> = paths.iter().map(|path| file_stem(path).to_owned()).collect();
        let pinned = index.pin().map_err(|error| Failure::passing(&error))?;
        let units = pinned.units().map_err(|error| Failure::passing(&error))?;
        // Whoever has checked out the branch to review it has its units in the index.
        let ours: HashSet<&str> = before
            .iter()
            .flat_map(|plan| plan.files.iter().filter(|file| !file.edits))
            .map(|file| file_stem(&file.path))
            .collect();
        let units = units.into_iter().filter(|unit| !ours.contains(unit.id.as_str()));
        taken.extend(units.map(|unit| unit.id.as_str().to_owned()));
        Ok(Self { taken, queue, capture })
    }

    fn choose(&mut self, title: &str, digest: &str) -> Result<UnitId, queue::Error> {
        let plain = UnitId::from_title(title);
        let mut id = plain.clone();
        let mut tries = 0;
        while self.taken.contains(id.as_str()) || self.queue.is_name_taken(self.capture, id.as_str())? {
            let suffix = if tries == 0 { digest.to_owned() } else { format!("{digest}{tries}") };
            id = plain.with_suffix(&suffix);
            tries += 1;
        }
        self.taken.insert(id.as_str().to_owned());
        Ok(id)
    }
}

/// The files that candidates would become in an empty brain, with their paths: for showing.
pub fn preview(
    candidates: &[Candidate],
    by: &str,
    conversation: &Conversation,
    now: Timestamp,
) -> Vec<(String, String)> {
    let session = SessionId::verbatim(&conversation.session_id);
    let time = conversation.ended.unwrap_or(now);
    let origin = Origin { by, project: conversation.project.as_deref(), session: &session, time };
    let file = |candidate: &Candidate| {
        let id = UnitId::verbatim(knowledge::name::slug(&candidate.title));
        let domain = Domain::sanitized(&candidate.domain);
        let unit = document(candidate, &id, &domain, &candidate.related, &origin);
        (format!("domains/{domain}/{}/{id}.md", candidate.kind.folder()), unit.as_str().to_owned())
    };
    candidates.iter().map(file).collect()
}

/// A unit's file. Every text that came out of the session is cleaned of what a reader cannot see.
fn document(
    candidate: &Candidate,
    id: &UnitId,
    domain: &Domain,
    related: &[Related],
    origin: &Origin<'_>,
) -> Document {
    let title = text::one_line(&candidate.title, 120);
    let related = related.iter().map(|related| {
        mapping([("id", related.id.as_str().into()), ("relation", related.relation.as_str().into())])
    });
    let tags = candidate.tags.iter().map(|tag| knowledge::name::slug(tag)).filter(|tag| !tag.is_empty());
    let body = format!("# {title}\n\n{}", text::strip_hidden(candidate.body.trim()));
    Document::compose(
        &[
            ("id", id.as_str().into()),
            ("type", candidate.kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", title.as_str().into()),
            ("description", text::one_line(&candidate.description, 300).into()),
            ("tags", Value::Sequence(tags.map(Value::from).collect())),
            ("confidence", Value::from((candidate.confidence * 100.0).round() / 100.0)),
            ("source", origin.by.into()),
            ("related", Value::Sequence(related.collect())),
            ("created", origin.stamp()),
            ("last_modified", origin.stamp()),
            ("sources", Value::Sequence(vec![origin.source(candidate)])),
        ],
        &body,
    )
}

fn mapping<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Mapping(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect::<Mapping>())
}

pub(crate) fn with_hint(error: &git::Error) -> Failure {
    let mut failure = Failure::passing(error);
    if let Some(hint) = error.hint() {
        failure.message = format!("{} ({hint})", failure.message);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use knowledge::{Evidence, Related};

    fn candidate(title: &str, body: &str) -> Candidate {
        Candidate {
            kind: "bug".into(),
            domain: "../Coding".into(),
            title: title.into(),
            description: "d".into(),
            body: body.into(),
            tags: vec!["Go".into(), "../x".into(), "日本".into()],
            confidence: 0.654,
            related: vec![Related { id: UnitId::verbatim("other"), relation: "uses".into() }],
            evidence: vec![Evidence { line: "u1".into(), excerpt: "e".into() }],
            overlap: None,
        }
    }

    #[test]
    fn a_hostile_candidate_cannot_leave_its_place_in_the_file() {
        let candidate = candidate("x\n---\ntype: evil\u{202e}", "a <!-- hidden --> b\n---\nid: evil");
        let session = SessionId::verbatim("s1");
        let time = "2026-11-20T14:12:33.5Z".parse().unwrap();
        let origin = Origin { by: "heuristic", project: Some("p\nq"), session: &session, time };
        let domain = Domain::sanitized(&candidate.domain);
        let id = UnitId::from_title(&candidate.title);
        let document = document(&candidate, &id, &domain, &candidate.related, &origin);
        let unit = Document::parse(document.as_str()).unwrap().unit("x.md").unwrap();
        assert_eq!(
            (unit.id.as_str(), unit.kind.as_str(), unit.domain.as_str()),
            ("x-type-evil", "bug", "coding")
        );
        assert_eq!(
            (unit.tags.as_slice(), unit.confidence),
            (["go".to_owned(), "x".to_owned()].as_slice(), 0.65)
        );
        assert!(!document.as_str().contains("hidden") && !document.as_str().contains('\u{202e}'));
        assert_eq!(unit.created.unwrap().to_string(), "2026-11-20T14:12:33Z");
    }

    #[test]
    fn a_taken_name_gets_a_suffix_and_the_next_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let mut names = Names { taken: HashSet::from(["retry".to_owned()]), queue: &queue, capture: 1 };
        let chosen: Vec<_> = (0..3).map(|_| names.choose("Retry", "ab12").unwrap().to_string()).collect();
        assert_eq!(chosen, ["retry-ab12", "retry-ab121", "retry-ab122"]);
    }
}
