//! Made sessions that ask, are shown units and use some of them, as transcripts of the client and rows of the queue.
//!
//! What is relevant differs from the order of the search in one direction of the vectors, which weights can learn.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use actors::learning::{RoundSummary, Settings, run_round};
use archive::{Archive, ClaudeCode, SyncSettings};
use fastrand::Rng;
use jiff::Timestamp;
use queue::{Question, QuestionCandidate, Queue, Showing, Shown, ShownBy};
use serde_json::{Value, json};

pub(crate) const MODEL: &str = "made";
const DIMENSIONS: usize = 8;
const CANDIDATES: usize = 12;
const SHOWN: usize = 5;
const RELEVANT: usize = 3;

/// Who says what was used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feedback {
    /// What is relevant, but for one in ten.
    Honest,
    /// What is not relevant.
    Flipped,
}

pub(crate) struct LearningWorld {
    pub(crate) folder: PathBuf,
    pub(crate) settings: Settings,
    turned: Vec<f32>,
    sessions: BTreeMap<String, MadeSession>,
    seconds: u64,
}

struct MadeSession {
    transcript: PathBuf,
    cwd: PathBuf,
    lines: usize,
    /// What should become of each item.
    outcomes: BTreeMap<String, &'static str>,
}

impl LearningWorld {
    pub(crate) fn new(folder: PathBuf) -> Self {
        let state = folder.join("state");
        fs::create_dir_all(&state).unwrap();
        let settings = settings_in(&folder);
        drop(Queue::open(&settings.queue).unwrap());
        let turned = unit_vector(&mut Rng::with_seed(1));
        Self { folder, settings, turned, sessions: BTreeMap::new(), seconds: 0 }
    }

    fn now(&mut self) -> Timestamp {
        self.seconds += 1;
        let begin: Timestamp = "2026-11-20T14:00:00Z".parse().unwrap();
        begin + Duration::from_secs(self.seconds)
    }

    /// Adds a session of a project that asks so often. The same random numbers give the same session.
    pub(crate) fn add_session(
        &mut self,
        project: &str,
        id: &str,
        questions: usize,
        feedback: Feedback,
        random: &mut Rng,
    ) {
        let transcript = self.folder.join(format!("client/projects/-{project}/{id}.jsonl"));
        fs::create_dir_all(transcript.parent().unwrap()).unwrap();
        let cwd = self.folder.join(project);
        let session = MadeSession { transcript, cwd, lines: 0, outcomes: BTreeMap::new() };
        self.sessions.insert(id.to_owned(), session);
        self.say(id, "user", json!("please do the next task"));
        for _ in 0..questions {
            self.ask(id, feedback, random);
        }
    }

    /// One more question of a session, its answer, and what it then says.
    pub(crate) fn ask(&mut self, id: &str, feedback: Feedback, random: &mut Rng) {
        let number = self.sessions[id].lines;
        let tool_use = format!("toolu_{id}_{number}");
        let question = self.question(&format!("{id}-{number}"), random);
        let relevant = self.relevant(&question);
        let input = json!({ "task_description": format!("task {number}") });
        let call = json!({ "type": "tool_use", "id": tool_use, "name": "mcp__nugget__get_relevant_context", "input": input });
        self.say(id, "assistant", json!([call]));
        let at = self.now();
        let shown = question.candidates[..SHOWN].iter().enumerate();
        let items = shown.map(|(rank, found)| Shown::unit(&found.id, rank, 40, false)).collect();
        let names: Vec<&str> = question.candidates[..SHOWN].iter().map(|found| found.id.as_str()).collect();
        let showing = Showing::by_tool(None, Some(tool_use.clone()), at, items, Some(question.to_bytes()));
        queue::record_shown(&self.settings.queue, &showing).unwrap();
        let result = json!({ "type": "tool_result", "tool_use_id": tool_use, "content": names.join(" ") });
        self.say(id, "user", json!([result]));
        for (rank, found) in question.candidates[..SHOWN].iter().enumerate() {
            let is_relevant = relevant.contains(&rank);
            let is_used = match feedback {
                Feedback::Honest => is_relevant != (random.f64() < 0.1),
                Feedback::Flipped => !is_relevant,
            };
            let outcome = if is_used { "used" } else { "ignored" };
            self.sessions.get_mut(id).unwrap().outcomes.insert(found.id.clone(), outcome);
            if is_used {
                self.say(
                    id,
                    "assistant",
                    json!([{ "type": "text", "text": format!("{} says how.", found.id) }]),
                );
            }
        }
    }

    /// The guard tells a session of a unit, which it uses or not.
    pub(crate) fn guard(&mut self, id: &str, is_used: bool) {
        let unit = format!("{id}-guard-{}", self.sessions[id].lines);
        let items = vec![Shown::unit(&unit, 0, 30, false)];
        let showing = Showing::by_hook(ShownBy::Guard, id, self.now(), items);
        queue::record_shown(&self.settings.queue, &showing).unwrap();
        let outcome = if is_used { "used" } else { "ignored" };
        self.sessions.get_mut(id).unwrap().outcomes.insert(unit.clone(), outcome);
        let text = if is_used { format!("As {unit} warns, not now.") } else { "Going on.".to_owned() };
        self.say(id, "assistant", json!([{ "type": "text", "text": text }]));
    }

    /// A session goes on, and uses something that it has ignored so far.
    pub(crate) fn use_late(&mut self, id: &str) {
        let session = &self.sessions[id];
        let ignored = session.outcomes.iter().find(|(_, outcome)| **outcome == "ignored");
        let Some(item) = ignored.map(|(item, _)| item.clone()) else { return };
        self.say(id, "assistant", json!([{ "type": "text", "text": format!("So {item} was right.") }]));
        self.sessions.get_mut(id).unwrap().outcomes.insert(item, "used");
    }

    fn say(&mut self, id: &str, kind: &str, content: Value) {
        let at = self.now();
        let session = self.sessions.get_mut(id).unwrap();
        session.lines += 1;
        let line = json!({
            "type": kind, "uuid": format!("{id}-{}", session.lines), "sessionId": id, "cwd": session.cwd,
            "timestamp": at.to_string(), "message": { "role": kind, "content": content },
        });
        let mut file = File::options().create(true).append(true).open(&session.transcript).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn question(&self, prefix: &str, random: &mut Rng) -> Question {
        let vector = unit_vector(random);
        let mut candidates: Vec<QuestionCandidate> = (0..CANDIDATES)
            .map(|number| {
                let (noise, near) = (unit_vector(random), 0.8 * random.f64());
                let mixed = vector.iter().zip(&noise).map(|(q, n)| near * f64::from(*q) + f64::from(*n));
                let item = scaled(&mixed.collect::<Vec<f64>>());
                let score = product(&vector, &item);
                QuestionCandidate { id: format!("{prefix}-unit-{number}"), score, vector: item }
            })
            .collect();
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        Question { model: MODEL.to_owned(), vector, candidates }
    }

    /// The candidates that are worth the most, by their positions.
    fn relevant(&self, question: &Question) -> Vec<usize> {
        let worth = |at: &usize| {
            let item = &question.candidates[*at].vector;
            product(&question.vector, item)
                - 3.0 * product(&self.turned, &question.vector) * product(&self.turned, item)
        };
        let mut order: Vec<usize> = (0..question.candidates.len()).collect();
        order.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        order.truncate(RELEVANT);
        order
    }

    /// The key of a project's weights.
    pub(crate) fn key(&self, project: &str) -> String {
        self.folder.join(project).to_string_lossy().into_owned()
    }

    /// Archives what is new in transcripts.
    pub(crate) fn sync(&self) -> Archive {
        sync(&self.settings, &self.folder)
    }

    pub(crate) fn round(&self) -> RoundSummary {
        run_round(&self.settings, &|| (), &|| false).unwrap().expect("an archive that nobody else works on")
    }

    pub(crate) fn queue(&self) -> Queue {
        Queue::open(&self.settings.queue).unwrap()
    }

    /// Every item that was shown, with what should become of it: session, item, outcome.
    pub(crate) fn expected(&self) -> Vec<(String, String, String)> {
        let of_session = |(id, session): (&String, &MadeSession)| {
            let outcomes = session.outcomes.iter();
            outcomes
                .map(|(item, outcome)| (id.clone(), item.clone(), (*outcome).to_owned()))
                .collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(of_session).collect()
    }

    /// The same as the archive has it.
    pub(crate) fn judged(&self) -> Vec<(String, String, String)> {
        let database = rusqlite::Connection::open(&self.settings.archive).unwrap();
        let sql = "SELECT s.session, w.item, c.outcome FROM shown w JOIN sessions s ON s.id = w.session
            LEFT JOIN citations c ON c.shown = w.id ORDER BY s.session, w.item";
        let mut statement = database.prepare(sql).unwrap();
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?.unwrap_or_default()))
        };
        statement.query_map([], read).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

/// The settings of a world in a folder: larger steps than usual, as there are few dimensions and questions.
pub(crate) fn settings_in(folder: &std::path::Path) -> Settings {
    let state = folder.join("state");
    Settings {
        archive: state.join(archive::FILE_NAME),
        queue: state.join("queue.db"),
        brain: "brain-made".to_owned(),
        index: folder.join("none"),
        session: None,
        is_shared: false,
        explores: false,
        candidates_max: 20,
        shown_max: SHOWN,
        temperature: 0.5,
        baseline: 0.5,
        rate: 1e-2,
        holdout: 0.0,
    }
}

/// Archives what is new in the transcripts of a world.
pub(crate) fn sync(settings: &Settings, folder: &std::path::Path) -> Archive {
    let archive = Archive::open(&settings.archive).unwrap();
    let client = ClaudeCode::new(vec![folder.join("client")]);
    archive.sync(&[&client], &SyncSettings::new(folder.join("own"))).unwrap();
    archive
}

fn unit_vector(random: &mut Rng) -> Vec<f32> {
    let normal = |random: &mut Rng| {
        let (radius, angle) = (1.0 - random.f64(), random.f64());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    };
    scaled(&(0..DIMENSIONS).map(|_| normal(random)).collect::<Vec<f64>>())
}

fn scaled(values: &[f64]) -> Vec<f32> {
    let length = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    values.iter().map(|value| (value / length) as f32).collect()
}

fn product(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}
