//! Makes branches of knowledge. The only one that writes to the brain's repository: one branch at a
//! time, under a lock that holds across processes.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forge::{CommitId, Identity, Lock, NewFile, Proposal, Repository};
use index::Index;
use jiff::Timestamp;
use knowledge::{Candidate, Document, Domain, UnitId, text};
use queue::{Claim, Finish, Queue, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use serde_yaml::{Mapping, Value};

use crate::address::Address;
use crate::stage::{self, Failure, Found, Jobs, Step, Worked};

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
    pub bell: Address<Message>,
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
    /// How, down to the byte: decided and kept before the repository is touched, so that every
    /// attempt makes the same commit, whatever has been merged in between.
    Planned { found: Found, plan: Plan },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    branch: String,
    base: String,
    files: Vec<(String, String)>,
    message: String,
    time: Timestamp,
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
        arguments.jobs.take_over(Stage::Git, arguments.bell.vitals())?;
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let vitals = Arc::clone(state.arguments.bell.vitals());
        let _busy = vitals.begin();
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
        let worked = stage::work_once(&self.arguments.jobs, Stage::Git, |claim| {
            // The lock is taken inside of the closure: killing the actor does not stop the closure,
            // and must not release the lock that it works under.
            stage::blocking(move || arguments.propose(&claim))
        })
        .await?;
        failpoint::here!("git-after-finish");
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
        let (found, planned) = match stage::decode(&claim.input)? {
            Input::Checked(found) => (found, None),
            Input::Planned { found, plan } => (found, Some(plan)),
        };
        let mut plan = match planned {
            Some(plan) => plan,
            None => self.plan(claim, &repository, &found, None)?,
        };
        failpoint::here!("git-after-plan");
        self.keep(claim, &found, &plan)?;
        failpoint::here!("git-after-keep");
        #[cfg(test)]
        self.jobs.faults.strike_thread(crate::testbed::Place::Planned, claim);
        let mut proposed = repository.propose(&held, &plan.proposal()?);
        if let Err(forge::Error::BranchTaken { .. } | forge::Error::PathTaken { .. }) = &proposed {
            // Somebody else's branch has our name, or the base has moved under a plan that was never
            // carried out: the digest of the content tells ours apart.
            let digest = blake3::hash(&claim.input).to_hex();
            plan = self.plan(claim, &repository, &found, Some(&digest[..6]))?;
            self.keep(claim, &found, &plan)?;
            proposed = repository.propose(&held, &plan.proposal()?);
        }
        let proposed = proposed.map_err(|error| with_hint(&error))?;
        #[cfg(test)]
        self.jobs.faults.strike_thread(crate::testbed::Place::Proposed, claim);
        if proposed.outcome == forge::Outcome::NothingNew {
            let reason = "the brain has every file already".to_owned();
            return Ok(Step::End(Finish::Nothing { reason }));
        }
        failpoint::here!("git-before-finish");
        Ok(Step::End(Finish::Done {
            branch: proposed.branch,
            commit: proposed.commit.to_string(),
            units: plan.files.len() as u32,
        }))
    }

    fn keep(&self, claim: &Claim, found: &Found, plan: &Plan) -> Result<(), Failure> {
        let input = Input::Planned { found: found.clone(), plan: plan.clone() };
        let names: Vec<String> = plan.files.iter().map(|(path, _)| stem(path).to_owned()).collect();
        let taken = self
            .jobs
            .queue
            .keep(claim, &stage::encode(&input)?, &names)
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
    ) -> Result<Plan, Failure> {
        let base = repository.default_branch().map_err(|error| with_hint(&error))?.tip;
        let session = &claim.capture.session_id;
        let time = found.session.ended.unwrap_or(claim.capture.added);
        let mut names = Names::taken(repository, base, &self.index, &self.jobs.queue, claim.capture.id)?;
        let mut files = Vec::new();
        let mut lines = Vec::new();
        for candidate in &found.candidates {
            let digest =
                blake3::hash(format!("{session}\n{}\n{}", candidate.title, candidate.body).as_bytes());
            let id = names
                .choose(&candidate.title, &digest.to_hex()[..4])
                .map_err(|error| Failure::passing(&error))?;
            let domain = Domain::sanitized(&candidate.domain);
            let path = format!("domains/{domain}/{}/{id}.md", candidate.kind.folder());
            lines.push(format!(
                "- {path}\n  {} ({}, confidence {:.2})",
                text::one_line(&candidate.title, 100),
                candidate.kind,
                candidate.confidence
            ));
            let unit = document(
                candidate,
                &id,
                &domain,
                &found.by,
                found.session.project.as_deref(),
                session.as_str(),
                time,
            );
            files.push((path, unit.as_str().to_owned()));
        }
        let suffix = digest.map(|digest| format!("-{digest}")).unwrap_or_default();
        let project =
            found.session.project.as_deref().map(|name| format!(" in {}", text::one_line(name, 60)));
        let plural = if files.len() == 1 { "unit" } else { "units" };
        Ok(Plan {
            branch: format!("nugget/session-{}-{}{suffix}", time.strftime("%Y%m%d-%H%M%S"), session.short()),
            base: base.to_string(),
            message: format!(
                "Knowledge from session {}\n\n{} {plural} of knowledge from the session {}{}:\n\n{}\n",
                time.strftime("%Y-%m-%d %H:%M"),
                files.len(),
                session.short(),
                project.unwrap_or_default(),
                lines.join("\n")
            ),
            files,
            time,
        })
    }
}

impl Plan {
    fn proposal(&self) -> Result<Proposal, Failure> {
        let base: CommitId =
            self.base.parse().map_err(|_| Failure::of(format!("{} is no commit", self.base)))?;
        let file = |(path, content): &(String, String)| NewFile {
            path: path.clone(),
            content: content.clone().into_bytes(),
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
    ) -> Result<Self, Failure> {
        let paths = repository.paths_under(base, "domains").map_err(|error| with_hint(&error))?;
        let mut taken: HashSet<String> = paths.iter().map(|path| stem(path).to_owned()).collect();
        let pinned = index.pin().map_err(|error| Failure::passing(&error))?;
        let units = pinned.units().map_err(|error| Failure::passing(&error))?;
        taken.extend(units.into_iter().map(|unit| unit.id.as_str().to_owned()));
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

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".md").unwrap_or(name)
}

/// A unit's file. Every text that came out of the session is cleaned of what a reader cannot see.
fn document(
    candidate: &Candidate,
    id: &UnitId,
    domain: &Domain,
    by: &str,
    project: Option<&str>,
    session: &str,
    time: Timestamp,
) -> Document {
    let time = Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let title = text::one_line(&candidate.title, 120);
    let related = candidate.related.iter().map(|related| {
        mapping([("id", related.id.as_str().into()), ("relation", related.relation.as_str().into())])
    });
    let lines = candidate.evidence.iter().map(|evidence| Value::from(evidence.line.as_str()));
    let mut source = vec![("session", Value::from(session))];
    if let Some(project) = project {
        source.push(("project", Value::from(text::one_line(project, 100))));
    }
    source.push(("lines", Value::Sequence(lines.collect())));
    let tags = candidate.tags.iter().map(|tag| knowledge::name::slug(tag)).filter(|tag| !tag.is_empty());
    let body = format!("# {title}\n\n{}", text::visible(candidate.body.trim()));
    Document::compose(
        &[
            ("id", id.as_str().into()),
            ("type", candidate.kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", title.as_str().into()),
            ("description", text::one_line(&candidate.description, 300).into()),
            ("tags", Value::Sequence(tags.map(Value::from).collect())),
            ("confidence", Value::from((candidate.confidence * 100.0).round() / 100.0)),
            ("source", by.into()),
            ("related", Value::Sequence(related.collect())),
            ("created", time.clone()),
            ("last_modified", time),
            ("sources", Value::Sequence(vec![mapping(source)])),
        ],
        &body,
    )
}

fn mapping<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Mapping(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect::<Mapping>())
}

fn with_hint(error: &forge::Error) -> Failure {
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
        }
    }

    #[test]
    fn a_hostile_candidate_cannot_leave_its_place_in_the_file() {
        let candidate = candidate("x\n---\ntype: evil\u{202e}", "a <!-- hidden --> b\n---\nid: evil");
        let time = "2026-11-20T14:12:33.5Z".parse().unwrap();
        let domain = Domain::sanitized(&candidate.domain);
        let id = UnitId::from_title(&candidate.title);
        let document = document(&candidate, &id, &domain, "heuristic", Some("p\nq"), "s1", time);
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
