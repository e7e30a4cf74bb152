//! What a capture proposes to the brain: the plan of its branch, the names and documents of its units, and
//! the commit's message. Does no writing; the stage `git` carries the plan out.

use std::collections::{BTreeSet, HashSet};

use git::{BranchFile, CommitId, Identity, NewFile, Proposal, Proposed, Repository};
use index::Index;
use jiff::Timestamp;
use knowledge::markdown::open_fence;
use knowledge::name::file_stem;
use knowledge::{
    Candidate, Document, Domain, Overlap, OverlapKind, Rejected, Related, SessionId, UnitId, text,
};
use queue::{Branch, Capture, Ledger, ProposedUnit};
use serde::{Deserialize, Serialize};
use serde_yaml::{Mapping, Value};
use transcript::Conversation;

use crate::failure::Failure;
use crate::inert_markdown::inert_markdown;
use crate::pipeline::Findings;

/// How a replaced unit and the one that replaces it are related.
const SUPERSEDES: &str = "supersedes";
const SUPERSEDED_BY: &str = "superseded_by";
const SUPERSEDED: &str = "superseded";
/// How many rejected candidates a commit's message lists.
const REJECTED_LISTED_MAX: usize = 12;

/// The queue's input of the stage `git`. The names of fields and variants are part of the queue's format.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProposalInput {
    /// What is to be proposed.
    #[serde(rename = "checked")]
    Compared(Findings),
    /// How, down to the byte: decided and kept before the repository is touched, so that every attempt makes
    /// the same commit, whatever has been merged in between.
    Planned { found: Findings, plan: Plan },
    /// The branch waits for its review, and what it edits has been edited on the default branch since: its
    /// commit is to be made again on that.
    #[serde(alias = "anew")]
    Recreate(Recreation),
}

/// How to make the commit of a branch again. `plan` is missing until that is decided.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Recreation {
    pub(crate) found: Findings,
    pub(crate) before: Plan,
    pub(crate) commit: String,
    pub(crate) plan: Option<Plan>,
}

/// The branch to make, down to the byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) message: String,
    pub(crate) time: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlannedFile {
    pub(crate) path: String,
    pub(crate) content: String,
    /// Whether the base has the file, and this is an edit of its content there.
    pub(crate) edits: bool,
    /// The candidates that the file holds, by their index.
    pub(crate) holds: Vec<usize>,
}

/// How a branch that waits for its review relates to what was merged meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeState {
    /// Nothing that was merged concerns it.
    Independent,
    /// A file that the branch adds or edits has changed on the default branch.
    Conflicting,
    /// The default branch has every file of it as it is.
    AlreadyMerged,
}

/// Title of a commit and pull request, by the origin of its capture.
pub(crate) fn title(time: Timestamp, origin: &str) -> String {
    let origin = match origin {
        queue::ORIGIN_IMPORT => "imported",
        queue::ORIGIN_EDIT => "edited",
        queue::ORIGIN_NOTES => "noted by agents",
        queue::ORIGIN_REFLECTION => "tidied up",
        _ => "from session",
    };
    format!("Knowledge {origin} {}", time.strftime("%Y-%m-%d %H:%M"))
}

/// The commit of a branch, as the queue keeps it.
pub(crate) fn parse_commit(id: &str) -> Result<CommitId, Failure> {
    id.parse().map_err(|_| Failure::retryable(format!("{id} is no commit")))
}

impl Plan {
    /// Whether a plan that was kept can be carried out as it is: not if somebody has since edited a file that
    /// it edits, unless its branch exists already.
    pub(crate) fn is_still_valid(&self, repository: &Repository) -> Result<bool, git::Error> {
        if self.files.iter().all(|file| !file.edits) || repository.tip(&self.branch)?.is_some() {
            return Ok(true);
        }
        let Ok(base) = self.base.parse::<CommitId>() else { return Ok(false) };
        let tip = repository.default_branch()?.tip;
        for file in self.files.iter().filter(|file| file.edits && tip != base) {
            if repository.read_at(base, &file.path)? != repository.read_at(tip, &file.path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the plan with a commit of the default branch.
    pub(crate) fn merge_state(
        &self,
        repository: &Repository,
        tip: CommitId,
    ) -> Result<MergeState, git::Error> {
        let base = self.base.parse::<CommitId>()?;
        let mut has_all = !self.files.is_empty();
        let mut conflicts = false;
        for file in &self.files {
            let content = repository.read_at(tip, &file.path)?;
            if content.as_deref() == Some(file.content.as_bytes()) {
                continue;
            }
            has_all = false;
            conflicts |= match file.edits {
                true => tip != base && content != repository.read_at(base, &file.path)?,
                false => content.is_some(),
            };
        }
        Ok(match (has_all, conflicts) {
            (true, _) => MergeState::AlreadyMerged,
            (false, true) => MergeState::Conflicting,
            (false, false) => MergeState::Independent,
        })
    }

    pub(crate) fn proposal(&self) -> Result<Proposal, Failure> {
        let file = |file: &PlannedFile| NewFile {
            path: file.path.clone(),
            content: file.content.clone().into_bytes(),
            edits: file.edits,
        };
        Ok(Proposal {
            branch: self.branch.clone(),
            base: Some(parse_commit(&self.base)?),
            files: self.files.iter().map(file).collect(),
            removes: Vec::new(),
            message: self.message.clone(),
            time: self.time,
            author: Identity::default(),
        })
    }

    /// What the plan changes.
    pub(crate) fn changes(&self, repository: &Repository) -> Result<Vec<BranchFile>, Failure> {
        let base = parse_commit(&self.base)?;
        let change = |file: &PlannedFile| {
            let before = if file.edits { repository.read_at(base, &file.path)? } else { None };
            let (path, content) = (file.path.clone(), file.content.clone().into_bytes());
            Ok(BranchFile { path, base: before, content })
        };
        self.files.iter().map(change).collect()
    }

    /// Leaves only these files, with their content, and of what was found only what they hold.
    pub(crate) fn retain(&mut self, found: &mut Findings, files: &[NewFile]) {
        self.files.retain_mut(|planned| {
            let kept = files.iter().find(|file| file.path == planned.path);
            if let Some(kept) = kept {
                planned.content = String::from_utf8_lossy(&kept.content).into_owned();
            }
            kept.is_some()
        });
        let held: BTreeSet<usize> = self.files.iter().flat_map(|file| file.holds.iter().copied()).collect();
        for file in &mut self.files {
            file.holds = file.holds.iter().map(|&number| held.range(..number).count()).collect();
        }
        let mut numbers = 0..;
        found.candidates.retain(|_| numbers.next().is_some_and(|number| held.contains(&number)));
        let mut numbers = 0..;
        found.vectors.retain(|_| numbers.next().is_some_and(|number| held.contains(&number)));
    }

    /// The branch that was made from this plan. A file that is only marked as replaced is no unit of it.
    pub(crate) fn branch_at(&self, proposed: Proposed) -> Branch {
        let units = self.files.iter().filter(|file| !file.holds.is_empty()).count();
        Branch { name: proposed.branch, commit: proposed.commit.to_string(), units: units as u32 }
    }
}

/// Plans branches.
pub(crate) struct Planner<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) index: &'a Index,
    pub(crate) queue: &'a dyn Ledger,
}

impl Planner<'_> {
    /// Plans the branch of a capture. `digest` tells its name from another branch of the same name; `before`
    /// is the plan of the branch that this one replaces.
    pub(crate) fn plan(
        &self,
        capture: &Capture,
        found: &Findings,
        digest: Option<&str>,
        before: Option<&Plan>,
    ) -> Result<Plan, Failure> {
        let Self { repository, index, queue } = *self;
        let base = repository.default_branch()?.tip;
        let session = &capture.session_id;
        let time = found.session.ended.unwrap_or(capture.added);
        let origin = Origin { by: &found.by, project: found.session.project.as_deref(), session, time };
        let mut names = UnitNames::in_use(repository, base, index, queue, capture.id, before)?;
        let mut edits = Edits { repository, base, index, files: Vec::new() };
        let mut files = Vec::new();
        let mut changes = Changes::default();
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
                // A unit that is not on the default branch, or cannot be read there, cannot be edited.
                let edit = edits.edit(id)?;
                match (edit, how) {
                    (Some(edit), OverlapKind::AddsTo) => {
                        merge(&mut edit.document, candidate, &origin);
                        edit.holds.push(number);
                        let item = format!("- {}\n", edit.path);
                        match changes.completed.iter_mut().find(|completed| completed.starts_with(&item)) {
                            Some(completed) => completed.push_str(&format!("\n{line}")),
                            None => changes.completed.push(item + &line),
                        }
                        continue;
                    }
                    (Some(_), OverlapKind::Replaces) => replaced = Some(id.clone()),
                    _ => {}
                }
            }
            let digest =
                blake3::hash(format!("{session}\n{}\n{}", candidate.title, candidate.body).as_bytes());
            let id = names.choose(&candidate.title, &digest.to_hex()[..4])?;
            let domain = Domain::sanitized(&candidate.domain);
            let path = format!("domains/{domain}/{}/{id}.md", candidate.kind.folder());
            if let Some(replaced) = replaced {
                if let Some(edit) = edits.edit(&replaced)? {
                    retire(&mut edit.document, &id, &origin);
                    changes.replaced.push(format!("- {}\n  by {id}", edit.path));
                }
                related.retain(|related| related.id != replaced);
                related.push(Related::new(replaced, SUPERSEDES.into()));
            }
            changes.added.push(format!("- {path}\n{line}"));
            let unit = document(candidate, &id, &domain, &related, &origin);
            files.push(PlannedFile {
                path,
                content: unit.as_str().to_owned(),
                edits: false,
                holds: vec![number],
            });
        }
        files.extend(edits.files.into_iter().map(|edit| PlannedFile {
            path: edit.path,
            content: edit.document.as_str().to_owned(),
            edits: true,
            holds: edit.holds,
        }));
        changes.rejected = &found.rejected;
        let suffix = digest.map(|digest| format!("-{digest}")).unwrap_or_default();
        Ok(Plan {
            branch: format!("nugget/session-{}-{}{suffix}", time.strftime("%Y%m%d-%H%M%S"), session.short()),
            base: base.to_string(),
            message: changes.message(&origin),
            files,
            time,
        })
    }
}

/// The session that candidates come from.
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

    /// An entry of a unit's `sources`. Its digest shows whether evidence that is found later is what the unit
    /// was made from.
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
    /// The unit to edit; `None` if it is not on the default branch or cannot be read there.
    fn edit(&mut self, id: &UnitId) -> Result<Option<&mut Edit>, Failure> {
        if let Some(at) = self.files.iter().position(|edit| &edit.id == id) {
            return Ok(self.files.get_mut(at));
        }
        let unit = self.index.pin_without_vectors().and_then(|snapshot| snapshot.unit(id))?;
        let Some(path) = unit.map(|unit| unit.path) else { return Ok(None) };
        let content = self.repository.read_at(self.base, &path)?;
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

/// The heading below which a body tells where it was learned.
const LEARNED_HEADING: &str = "### How it was learned";

/// Adds a candidate below the text of a unit, which stays as it is. A passage of the session that the unit quotes already is
/// not quoted again.
fn merge(document: &mut Document, candidate: &Candidate, origin: &Origin<'_>) {
    let title = inert_markdown(&text::one_line(&candidate.title, 120));
    let mut more =
        text::demote_headings(&inert_markdown(&text::strip_hidden_to_store(candidate.body.trim(), "")));
    if let Some(at) = more.find(LEARNED_HEADING).filter(|&at| document.body().contains(more[at..].trim_end()))
    {
        more.truncate(more[..at].trim_end().len());
    }
    let added = format!("## {title}\n\n{more}");
    let mut body = document.body().trim_end().to_owned();
    // Else the addition would be code, and its code prose.
    if let Some(fence) = open_fence(&body) {
        body.push_str(&format!("\n{fence}"));
    }
    document.set_body(&format!("{body}\n\n{}\n", added.trim_end()));
    set_last_modified(document, origin);
    append(document, "sources", origin.source(candidate));
}

/// Marks a unit as replaced by another.
fn retire(document: &mut Document, by: &UnitId, origin: &Origin<'_>) {
    document.set("status", &SUPERSEDED.into());
    set_last_modified(document, origin);
    append(document, "related", mapping([("id", by.as_str().into()), ("relation", SUPERSEDED_BY.into())]));
}

/// Sets the time of the last change to that of the session, unless the unit was changed after it.
fn set_last_modified(document: &mut Document, origin: &Origin<'_>) {
    let changed = document.unit("").ok().and_then(|unit| unit.last_modified);
    if changed.is_none_or(|changed| changed < origin.time) {
        document.set("last_modified", &origin.stamp());
    }
}

fn append(document: &mut Document, key: &str, value: Value) {
    let mut values = match document.get(key) {
        Some(Value::Sequence(values)) => values,
        None | Some(Value::Null) => Vec::new(),
        // A person's own form of it becomes the first entry.
        Some(other) => vec![other],
    };
    if values.contains(&value) {
        return;
    }
    values.push(value);
    document.set(key, &Value::Sequence(values));
}

/// The changes that a commit's message lists.
#[derive(Default)]
struct Changes<'a> {
    added: Vec<String>,
    completed: Vec<String>,
    replaced: Vec<String>,
    rejected: &'a [Rejected],
}

impl Changes<'_> {
    fn message(&self, origin: &Origin<'_>) -> String {
        let count = self.added.len() + self.completed.len();
        let plural = if count == 1 { "unit" } else { "units" };
        let project = origin
            .project
            .map(|name| format!(" in {}", text::escape_forge_syntax(&text::one_line(name, 60))));
        let mut message = format!(
            "{}\n\n{count} {plural} of knowledge from the session {}{}, found by {}.\n",
            title(origin.time, "session"),
            origin.session.short(),
            project.unwrap_or_default(),
            origin.by,
        );
        let mut rejected: Vec<String> = self
            .rejected
            .iter()
            .take(REJECTED_LISTED_MAX)
            .map(|Rejected { title, reason }| {
                format!(
                    "- {}: {}",
                    text::escape_forge_syntax(&text::one_line(title, 100)),
                    text::escape_forge_syntax(&text::one_line(reason, 160))
                )
            })
            .collect();
        if self.rejected.len() > REJECTED_LISTED_MAX {
            rejected.push(format!("- and {} more", self.rejected.len() - REJECTED_LISTED_MAX));
        }
        for (heading, lines) in [
            ("Added", &self.added),
            ("Completed", &self.completed),
            ("Replaced", &self.replaced),
            ("Left out", &rejected),
        ] {
            if !lines.is_empty() {
                message.push_str(&format!("\n{heading}:\n{}\n", lines.join("\n")));
            }
        }
        message
    }
}

impl PlannedFile {
    pub(crate) fn proposed_unit(&self, found: &Findings) -> ProposedUnit {
        let held = self.holds.iter().filter_map(|&number| found.candidates.get(number));
        let evidence = held.clone().flat_map(|candidate| &candidate.evidence);
        let first = self.holds.first().filter(|_| !self.edits);
        let additions = self.holds.iter().filter(|_| self.edits).filter_map(|&number| {
            let title = text::one_line(&found.candidates.get(number)?.title, 120);
            Some((title, found.vectors.get(number)?.clone()))
        });
        ProposedUnit {
            additions: additions.collect(),
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

/// The ids that are in use: in the brain, and by captures whose branches wait for review.
struct UnitNames<'a> {
    taken: HashSet<String>,
    queue: &'a dyn Ledger,
    capture: i64,
}

impl<'a> UnitNames<'a> {
    fn in_use(
        repository: &Repository,
        base: CommitId,
        index: &Index,
        queue: &'a dyn Ledger,
        capture: i64,
        before: Option<&Plan>,
    ) -> Result<Self, Failure> {
        let paths = repository.paths_under(base, "domains")?;
        let mut taken: HashSet<String> = paths.iter().map(|path| file_stem(path).to_owned()).collect();
        let snapshot = index.pin_without_vectors()?;
        let units = snapshot.units()?;
        // The units of a branch that is checked out for its review are in the index.
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

/// Shows the files that candidates would become in an empty brain, as pairs of path and text.
pub fn preview_unit_files(
    candidates: &[Candidate],
    by: &str,
    conversation: &Conversation,
    now: Timestamp,
) -> Vec<(String, String)> {
    let session = SessionId::verbatim(&conversation.session_id);
    let time = conversation.ended.unwrap_or(now);
    let origin = Origin { by, project: conversation.project.as_deref(), session: &session, time };
    let file = |candidate: &Candidate| {
        let id = UnitId::from_title(&candidate.title);
        let domain = Domain::sanitized(&candidate.domain);
        let unit = document(candidate, &id, &domain, &candidate.related, &origin);
        (format!("domains/{domain}/{}/{id}.md", candidate.kind.folder()), unit.as_str().to_owned())
    };
    candidates.iter().map(file).collect()
}

/// A unit's file. Every text of the session is without characters that a reader cannot see, and without what a forge
/// would act on.
fn document(
    candidate: &Candidate,
    id: &UnitId,
    domain: &Domain,
    related: &[Related],
    origin: &Origin<'_>,
) -> Document {
    let title = inert_markdown(&text::one_line(&candidate.title, 120));
    let related = related.iter().map(|related| {
        mapping([("id", related.id.as_str().into()), ("relation", related.relation.as_str().into())])
    });
    let tags = candidate.tags.iter().map(|tag| knowledge::name::tag(tag)).filter(|tag| !tag.is_empty());
    let body =
        format!("# {title}\n\n{}", inert_markdown(&text::strip_hidden_to_store(candidate.body.trim(), "")));
    Document::compose(
        &[
            ("id", id.as_str().into()),
            ("type", candidate.kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", title.as_str().into()),
            ("description", inert_markdown(&text::one_line(&candidate.description, 300)).into()),
            ("tags", Value::Sequence(tags.map(Value::from).collect())),
            ("confidence", Value::from((candidate.confidence * 100.0).round() / 100.0)),
            ("source", candidate.source.as_deref().unwrap_or(origin.by).into()),
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
            related: vec![Related::new(UnitId::verbatim("other"), "uses".into())],
            evidence: vec![Evidence { line: "u1".into(), excerpt: "e".into() }],
            overlap: None,
            source: None,
        }
    }

    #[test]
    fn a_hostile_candidate_stays_in_its_place_in_the_file() {
        let mut candidate = candidate("x\n---\ntype: evil\u{202e}", "a <!-- hidden --> b\n---\nid: evil");
        candidate.source = Some("claude-api".into());
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
            (["go", "x", "ri-ben"].map(str::to_owned).as_slice(), 0.65)
        );
        assert!(!document.as_str().contains("hidden") && !document.as_str().contains('\u{202e}'));
        assert_eq!(unit.created.unwrap().to_string(), "2026-11-20T14:12:33Z");
        assert!(document.as_str().contains("\nsource: claude-api\n"), "its own one");
    }

    #[test]
    fn a_proposed_text_has_no_effect_on_a_forge() {
        let acting =
            "Thanks @octocat, fixes #12, closes GH-4 ![p](http://evil.example/p.png) <img src=x> [skip ci]";
        let inert = "Thanks @ octocat, fixes # 12, closes GH -4 ! [p](http://evil.example/p.png) &lt;img src=x> (skip ci)";
        let mut candidate = candidate(acting, acting);
        candidate.description = acting.into();
        let session = SessionId::verbatim("s1");
        let time = "2026-11-20T14:12:33.5Z".parse().unwrap();
        let origin = Origin { by: "heuristic", project: None, session: &session, time };
        let (id, domain) = (UnitId::verbatim("id"), Domain::sanitized("testing"));
        let document = document(&candidate, &id, &domain, &[], &origin);
        let unit = Document::parse(document.as_str()).unwrap().unit("id.md").unwrap();
        assert_eq!((unit.title.as_str(), unit.description.as_deref()), (inert, Some(inert)));
        assert_eq!(document.body().trim(), format!("# {inert}\n\n{inert}"));
        let mut added =
            Document::parse("---\nid: pools\ntype: pattern\n---\n\n# Pools\n\nBound them.\n").unwrap();
        merge(&mut added, &candidate, &origin);
        assert!(added.body().ends_with(&format!("## {inert}\n\n{inert}\n")), "{}", added.body());
    }

    #[test]
    fn an_addition_from_an_old_session_keeps_the_later_date() {
        let text = "---\nid: pools\ntype: pattern\nlast_modified: 2026-02-03T10:00:00Z\n---\n\n# Pools\n\nBound them.\n";
        let session = SessionId::verbatim("s1");
        let after = |time: &str| {
            let time = time.parse().unwrap();
            let origin = Origin { by: "heuristic", project: None, session: &session, time };
            let mut document = Document::parse(text).unwrap();
            merge(&mut document, &candidate("Pools need a bound", "Measured."), &origin);
            assert!(document.as_str().contains("Measured."), "{}", document.as_str());
            retire(&mut document, &UnitId::verbatim("new"), &origin);
            document.unit("pools.md").unwrap().last_modified.unwrap().to_string()
        };
        assert_eq!(after("2026-01-12T09:00:00Z"), "2026-02-03T10:00:00Z");
        assert_eq!(after("2026-02-03T10:00:01Z"), "2026-02-03T10:00:01Z");
    }

    #[test]
    fn an_addition_is_below_the_code_of_a_unit_and_keeps_its_sources() {
        let session = SessionId::verbatim("s1");
        let time = "2026-11-20T14:12:33.5Z".parse().unwrap();
        let origin = Origin { by: "heuristic", project: None, session: &session, time };
        let added = |text: &str| {
            let mut document = Document::parse(text).unwrap();
            merge(&mut document, &candidate("Rotate at night", "```sh\necho @me\n```"), &origin);
            document
        };
        let document = added(
            "---\nid: rotate\ntype: pattern\nsources: https://wiki.example/page\n---\n\n# Rotate\n\n```sh\nrotate\n",
        );
        assert!(
            document.body().ends_with("```sh\nrotate\n```\n\n## Rotate at night\n\n```sh\necho @me\n```\n"),
            "{}",
            document.body()
        );
        let sources = document.get("sources").unwrap();
        let sources = sources.as_sequence().unwrap();
        assert_eq!((sources.len(), sources[0].as_str()), (2, Some("https://wiki.example/page")));
        let empty = added("---\nid: rotate\ntype: pattern\nsources:\n---\n\n# Rotate\n");
        assert_eq!(empty.get("sources").unwrap().as_sequence().unwrap().len(), 1);
    }

    #[test]
    fn two_additions_of_one_passage_quote_it_once() {
        let session = SessionId::verbatim("s1");
        let time = "2026-11-20T14:12:33.5Z".parse().unwrap();
        let origin = Origin { by: "heuristic", project: None, session: &session, time };
        let mut document =
            Document::parse("---\nid: pools\ntype: pattern\n---\n\n# Pools\n\nBound them.\n").unwrap();
        let learned = "## How it was learned\n\nThe user said it.\n\n> bound the pool. measure it first";
        merge(&mut document, &candidate("Bound the pool", learned), &origin);
        merge(
            &mut document,
            &candidate("Measure first", &format!("## What to do\n\nMeasure it.\n\n{learned}")),
            &origin,
        );
        assert_eq!(document.body().matches("> bound the pool").count(), 1, "{}", document.body());
        assert!(document.body().ends_with("## Measure first\n\n### What to do\n\nMeasure it.\n"));
        assert_eq!(document.get("sources").unwrap().as_sequence().unwrap().len(), 1);
    }

    #[test]
    fn a_taken_name_gets_a_suffix_and_the_next_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let queue = queue::Queue::open(&folder.path().join("queue.db")).unwrap();
        let mut names = UnitNames { taken: HashSet::from(["retry".to_owned()]), queue: &queue, capture: 1 };
        let chosen: Vec<_> = (0..3).map(|_| names.choose("Retry", "ab12").unwrap().to_string()).collect();
        assert_eq!(chosen, ["retry-ab12", "retry-ab121", "retry-ab122"]);
    }
}
