//! What the tests of the actors share: a brain with a queue, an extractor that follows a script, and faults
//! that are injected where they do the most harm. The [`simulation`] runs all of it in virtual time.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use brain::{Brain, StatePaths};
use extract::{Extraction, Extractor};
use git::{Identity, NewFile, Repository};
use jiff::Timestamp;
use knowledge::{Candidate, Evidence, Overlap, OverlapKind, SessionId, UnitId};
use queue::{Announcement, Capture, Claim, Queue, Spool, Stage};
use transcript::Conversation;

use crate::Setup;
use crate::embedding_model::EmbeddingModel;
use crate::jobs::{Jobs, WorkObserver, WorkPoint};
use crate::service::{Pace, Parts};
use crate::worker::Worker;

pub(crate) mod simulation;

/// A brain in git, its queue, and what a service for them is made of.
pub(crate) struct Testbed {
    folder: tempfile::TempDir,
    pub(crate) setup: Setup,
    queue: Queue,
    pub(crate) jobs: Jobs,
    pub(crate) model: EmbeddingModel,
    pub(crate) pace: Pace,
    pub(crate) repository: Repository,
    objects_of_base: usize,
}

/// The time of the first line of every transcript, and of the first commit.
pub(crate) fn epoch() -> Timestamp {
    "2026-11-20T14:12:00Z".parse().unwrap()
}

impl Testbed {
    pub(crate) fn new(extractor: impl Extractor + 'static) -> Self {
        // Tests write little and sync often, so they use a disk in memory if there is one.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let made = Brain::init(&folder.path().join("brain")).unwrap();
        let brain = made.brain;
        let repository = Repository::init(brain.root()).unwrap().into_repository();
        let file = |path: &String| NewFile {
            path: path.clone(),
            content: fs::read(brain.root().join(path)).unwrap(),
            edits: false,
        };
        let files: Vec<NewFile> = made.written.iter().map(file).collect();
        repository.create_initial_commit(&files, "Begin", epoch(), &Identity::default()).unwrap().unwrap();
        let places = StatePaths::in_folder(folder.path().join("state"));
        places.create().unwrap();
        let queue = Queue::open(&places.queue()).unwrap();
        let jobs = Jobs::new(queue.clone());
        let setup = Setup::new(brain, places, extractor);
        // One for all tests: reading the tokenizer takes longer than most tests.
        static MODEL: OnceLock<EmbeddingModel> = OnceLock::new();
        let mut model = MODEL.get_or_init(|| EmbeddingModel::new(setup.embed.clone())).clone();
        model.cache = folder.path().join("vectors.db").into();
        model.fake = Some(Arc::new(|text| Ok(vector_of(text))));
        let objects_of_base = loose_objects(setup.brain.root());
        let pace = Pace::default();
        Self { folder, setup, queue, jobs, model, pace, repository, objects_of_base }
    }

    /// Archives the transcripts of a client's folder, which may be hung.
    pub(crate) fn with_archive(mut self, pass: impl Fn() + Send + Sync + 'static) -> Self {
        let root = self.folder.path().to_owned();
        let source = SlowSource { inner: archive::ClaudeCode::new(vec![root.join("client")]), pass };
        self.setup.archive = Some(crate::archiving::Settings {
            path: root.join("state").join(archive::FILE_NAME),
            sources: vec![Arc::new(source)],
            exclude: transcript::Exclude::default(),
            state: root,
            idle: Duration::ZERO,
            retention: None,
        });
        self
    }

    /// Learns from what is archived.
    pub(crate) fn with_learning(mut self) -> Self {
        self.setup.learning = Some(crate::learning::Settings {
            archive: self.folder.path().join("state").join(archive::FILE_NAME),
            queue: self.setup.places.queue(),
            brain: "brain".to_owned(),
            index: self.setup.brain.derived_folder(),
            session: None,
            is_shared: false,
            explores: false,
            candidates_max: 20,
            shown_max: 5,
            temperature: 0.5,
            baseline: 0.5,
            rate: 1e-3,
            holdout: 0.0,
        });
        self
    }

    /// Writes a transcript into the client's folder that no hook announces.
    pub(crate) fn client_session(&self, session: &str, lines: &[&str]) {
        let written = self.say(session, lines);
        let project = self.folder.path().join("client/projects/-home-dev-project");
        fs::create_dir_all(&project).unwrap();
        fs::rename(written, project.join(format!("{session}.jsonl"))).unwrap();
    }

    /// The archived sessions, with the number of messages of each, sorted.
    pub(crate) fn archived(&self) -> Vec<(String, u64)> {
        let path = &self.setup.archive.as_ref().unwrap().path;
        let Some(archive) = archive::Archive::open_existing(path).unwrap() else { return Vec::new() };
        let sessions = archive.sessions(&archive::Filter::default(), true, 100).unwrap();
        let mut sessions: Vec<_> =
            sessions.into_iter().map(|session| (session.id, session.messages)).collect();
        sessions.sort();
        sessions
    }

    pub(crate) fn with_faults(mut self, faults: Faults) -> Self {
        self.jobs.observer = Some(Arc::new(faults));
        self
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn parts(&self) -> Parts {
        Parts { jobs: Some(self.jobs.clone()), model: self.model.clone(), pace: self.pace }
    }

    pub(crate) fn worker(&self) -> Worker<'_> {
        Worker {
            setup: &self.setup,
            queue: self.queue.clone(),
            jobs: self.jobs.clone(),
            spool: self.spool(),
            model: self.model.clone(),
            pace: self.pace,
        }
    }

    pub(crate) fn spool(&self) -> Spool {
        Spool::new(self.setup.places.spool())
    }

    /// Adds lines to a session's transcript; the extractor finds a unit in each that begins with `lesson`.
    pub(crate) fn say(&self, session: &str, lines: &[&str]) -> PathBuf {
        let path = self.folder.path().join(format!("{session}.jsonl"));
        let before = fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        let mut file = fs::File::options().create(true).append(true).open(&path).unwrap();
        for (number, text) in (before..).zip(lines) {
            let at = epoch() + Duration::from_secs(number as u64);
            let line = serde_json::json!({
                "type": "user",
                "message": { "role": "user", "content": text },
                "uuid": format!("{session}-{number}"),
                "timestamp": at.to_string(),
                "cwd": "/home/dev/project",
                "sessionId": session,
            });
            writeln!(file, "{line}").unwrap();
        }
        path
    }

    /// Begins a session's transcript with the lines of another, as the client's `--fork-session` does.
    pub(crate) fn fork(&self, from: &str, to: &str) {
        let path = |session: &str| self.folder.path().join(format!("{session}.jsonl"));
        if let Ok(lines) = fs::read_to_string(path(from)) {
            let (from_id, to_id) = (format!("\"sessionId\":\"{from}\""), format!("\"sessionId\":\"{to}\""));
            fs::write(path(to), lines.replace(&from_id, &to_id)).unwrap();
        }
    }

    pub(crate) fn announcement(&self, session: &str) -> Announcement {
        let transcript = self.folder.path().join(format!("{session}.jsonl"));
        Announcement::new(SessionId::verbatim(session.to_owned()), transcript, "hook")
    }

    pub(crate) fn announce(&self, session: &str) -> i64 {
        self.queue().add(&self.announcement(session), self.jobs.clock.now()).unwrap().id()
    }

    /// A session of one lesson, announced.
    pub(crate) fn session(&self, name: &str) -> i64 {
        self.say(name, &[&format!("lesson of {name}")]);
        self.announce(name)
    }

    /// Adds a file to the brain that search can find.
    pub(crate) fn note(&self, name: &str, text: &str) {
        fs::write(self.setup.brain.root().join(name), text).unwrap();
    }

    /// Runs the real git in the brain.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(self.setup.brain.root(), arguments)
    }

    pub(crate) fn capture(&self, id: i64) -> Capture {
        self.queue().capture(id).unwrap().unwrap()
    }

    /// The branches that wait for review, each with the names of its files, sorted.
    pub(crate) fn branches(&self) -> Vec<(String, Vec<String>)> {
        let mut branches: Vec<(String, Vec<String>)> = Vec::new();
        for branch in self.repository.pending_branches().unwrap() {
            let files = self.repository.branch_files(&branch.name).unwrap();
            branches.push((branch.name, files.into_iter().map(|(path, _)| path).collect()));
        }
        branches.sort();
        branches
    }

    /// Asserts that every branch has one commit and that the repository holds nothing else: no second commit,
    /// and no file written twice.
    pub(crate) fn assert_one_commit_for_each_branch(&self) {
        // All units of these tests are in one folder: a commit, four trees, and the units.
        let expected: usize = self.branches().iter().map(|(_, files)| 5 + files.len()).sum();
        let found = loose_objects(self.setup.brain.root()) - self.objects_of_base;
        assert_eq!(found, expected, "objects in the repository beyond those of {:?}", self.branches());
    }
}

/// A client's transcripts; listing them may hang.
struct SlowSource<F> {
    inner: archive::ClaudeCode,
    pass: F,
}

impl<F: Fn() + Send + Sync> archive::TranscriptSource for SlowSource<F> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.inner.folders()
    }

    fn discover(&self) -> Vec<transcript::FileStamp> {
        (self.pass)();
        self.inner.discover()
    }

    fn head(&self, path: &Path) -> std::io::Result<archive::TranscriptHead> {
        self.inner.head(path)
    }

    fn reader(&self, context: archive::ReaderContext, state: &str) -> Box<dyn archive::LineReader> {
        self.inner.reader(context, state)
    }
}

/// A queue with one capture.
pub(crate) fn jobs_with_one_capture(folder: &tempfile::TempDir) -> Jobs {
    let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
    let announcement = Announcement::new(SessionId::verbatim("s1"), "/t/s1.jsonl", "hook");
    queue.add(&announcement, Timestamp::now()).unwrap();
    Jobs::new(queue)
}

pub(crate) fn git(root: &Path, arguments: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null"), ("LC_ALL", "C")])
        .envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "A"), ("GIT_COMMITTER_EMAIL", "a@example.com")])
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn loose_objects(root: &Path) -> usize {
    let objects = fs::read_dir(root.join(".git/objects")).unwrap().map(|entry| entry.unwrap().path());
    let fans = objects.filter(|path| path.file_name().is_some_and(|name| name.len() == 2));
    fans.map(|path| fs::read_dir(path).unwrap().count()).sum()
}

/// What an extractor does with a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Teach,
    /// Teach, after a while.
    TeachAfter(Duration),
    Nothing,
    Retry(Option<Duration>),
    Permanent,
    Panic,
    Hang,
    /// Compute without waiting until the flag is set.
    Spin(&'static AtomicBool),
}

/// An extractor that finds a unit in every line that begins with `lesson`, and in `lesson x adds_to y` its
/// relation to the unit y, if `act` says so for the session and the attempt (counted from 0).
pub(crate) struct Teacher<F> {
    act: F,
    attempts: Mutex<HashMap<String, u32>>,
}

impl<F: Fn(&Conversation, u32) -> Act> Teacher<F> {
    pub(crate) fn new(act: F) -> Self {
        Self { act, attempts: Mutex::default() }
    }
}

/// An extractor that always works.
pub(crate) fn teacher() -> impl Extractor {
    Teacher::new(|_, _| Act::Teach)
}

#[async_trait::async_trait]
impl<F: Fn(&Conversation, u32) -> Act + Send + Sync> Extractor for Teacher<F> {
    fn name(&self) -> &str {
        "teacher"
    }

    async fn extract(
        &self,
        conversation: &Conversation,
        _: &extract::ExtractionContext,
    ) -> Result<Extraction, extract::Error> {
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempt = attempts.entry(conversation.session_id.clone()).or_default();
            *attempt += 1;
            *attempt - 1
        };
        let by = self.name().to_owned();
        match (self.act)(conversation, attempt) {
            Act::Teach => {}
            Act::TeachAfter(wait) => tokio::time::sleep(wait).await,
            Act::Nothing => {
                let empty_reason = Some("nothing was learned".to_owned());
                return Ok(Extraction { extractor: by, empty_reason, ..Extraction::default() });
            }
            Act::Retry(after) => {
                return Err(extract::Error::Retry {
                    message: "too busy".to_owned(),
                    retry_after: after,
                    source: None,
                });
            }
            Act::Permanent => {
                return Err(extract::Error::Permanent { message: "not allowed".to_owned(), source: None });
            }
            Act::Panic => panic!("the extractor is broken"),
            Act::Hang => std::future::pending().await,
            Act::Spin(over) => {
                while !over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        let lessons = conversation.human_words().filter(|words| words.starts_with("lesson"));
        let overlap = |title: &str| {
            OverlapKind::KNOWN.into_iter().find_map(|(name, how)| {
                let (_, id) = title.split_once(&format!(" {name} "))?;
                Some(Overlap { id: UnitId::verbatim(id), how })
            })
        };
        let candidates = lessons.map(|title| Candidate {
            kind: "concept".into(),
            domain: "testing".into(),
            title: title.to_owned(),
            description: title.to_owned(),
            body: format!("What was said: {title}."),
            tags: Vec::new(),
            confidence: 0.9,
            related: Vec::new(),
            evidence: vec![Evidence { line: "1".into(), excerpt: title.to_owned() }],
            overlap: overlap(title),
            source: None,
        });
        Ok(Extraction { candidates: candidates.collect(), extractor: by, ..Extraction::default() })
    }
}

/// All points at which faults are injected.
pub(crate) const FAULT_POINTS: [WorkPoint; 12] = {
    use Stage::{Embedding, Extraction, Git, Indexing, Intake};
    [
        WorkPoint::Claimed(Intake),
        WorkPoint::Worked(Intake),
        WorkPoint::Claimed(Extraction),
        WorkPoint::Worked(Extraction),
        WorkPoint::Claimed(Embedding),
        WorkPoint::Worked(Embedding),
        WorkPoint::Claimed(Indexing),
        WorkPoint::Worked(Indexing),
        WorkPoint::Claimed(Git),
        WorkPoint::Worked(Git),
        WorkPoint::Planned,
        WorkPoint::Proposed,
    ]
};

/// The stage whose actor a fault at this point affects.
pub(crate) fn stage_of(point: WorkPoint) -> Stage {
    match point {
        WorkPoint::Claimed(stage) | WorkPoint::Worked(stage) => stage,
        WorkPoint::Planned | WorkPoint::Proposed => Stage::Git,
    }
}

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Panic,
    /// It waits and never ends.
    Hang,
}

type Hook = dyn Fn(WorkPoint, &Claim) -> Fault + Send + Sync;

/// Injects faults where its hook says so.
#[derive(Clone)]
pub(crate) struct Faults(Arc<Hook>);

impl Faults {
    pub(crate) fn new(hook: impl Fn(WorkPoint, &Claim) -> Fault + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn none() -> Self {
        Self::new(|_, _| Fault::None)
    }

    fn inject(&self, point: WorkPoint, claim: &Claim) -> Fault {
        let fault = (self.0)(point, claim);
        if fault == Fault::Panic {
            panic!("injected at {point:?}");
        }
        fault
    }
}

impl WorkObserver for Faults {
    fn reached<'a>(
        &'a self,
        point: WorkPoint,
        claim: &'a Claim,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            if self.inject(point, claim) == Fault::Hang {
                std::future::pending::<()>().await;
            }
        })
    }

    /// A hang is up to the hook.
    fn reached_blocking(&self, point: WorkPoint, claim: &Claim) {
        self.inject(point, claim);
    }
}

/// Replaces the embedding model: a text's vector, or its failure.
pub(crate) type FakeModel = Arc<dyn Fn(&str) -> Result<Vec<f32>, embed::Error> + Send + Sync>;

/// A vector that depends on nothing but the text; different texts are about orthogonal.
pub(crate) fn vector_of(text: &str) -> Vec<f32> {
    let mut bytes = [0; embed::BUILT_IN_DIMENSIONS];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    let vector: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) - 127.5).collect();
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / norm).collect()
}

/// The sum of a vector for each word: texts are similar by the words they share.
pub(crate) fn vector_of_words(text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut sum = vec![f32::MIN_POSITIVE; embed::BUILT_IN_DIMENSIONS];
    words.flat_map(|word| vector_of(word).into_iter().enumerate()).for_each(|(n, x)| sum[n] += x);
    let norm = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
    sum.into_iter().map(|x| x / norm).collect()
}
