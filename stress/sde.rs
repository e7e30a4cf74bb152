//! Bug reports whose right answer was decided in an earlier conversation, after the benchmark `vectorize-io/sde-bench`
//! (MIT): extraction, supersession and recall together, through the real binary.
//!
//! The conversations of its tasks and its 140 decoys become sessions; each is captured, everything proposed is merged,
//! and each task's bug report is asked as a question. The same questions are also asked of a brain that holds every
//! conversation whole, which tells what is lost by extraction and what by recall.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use knowledge::SessionId;
use queue::Announcement;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

const CAPTURED_WITHIN: Duration = Duration::from_secs(600);
/// The places that are looked at.
const RANKS: [usize; 3] = [1, 3, 5];

#[derive(clap::Args)]
pub(crate) struct SdeArgs {
    /// A clone of https://github.com/vectorize-io/sde-bench
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// A setting as a variable, for example `NUGGET_EXTRACT_BACKEND=claude-p`; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Print what was found for each task
    #[arg(long)]
    tasks: bool,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    text: String,
}

#[derive(Deserialize)]
struct Decoy {
    turns: Vec<Turn>,
}

#[derive(Deserialize)]
struct TaskFile {
    task_id: String,
    category: String,
    bug_report: String,
    #[serde(default)]
    conversations: Value,
}

#[derive(Deserialize)]
struct Manifest {
    tasks: Vec<Policy>,
}

#[derive(Deserialize)]
struct Policy {
    task_id: String,
    policy: String,
}

struct Task {
    id: String,
    category: String,
    question: String,
    /// What was decided, in the benchmark's words.
    policy: String,
    /// One chat, or the first one and those that amend it.
    chats: Vec<Vec<Turn>>,
}

impl Task {
    fn session(&self, chat: usize) -> String {
        format!("{}-chat-{chat}", self.id)
    }
}

pub(crate) fn run(args: &SdeArgs, binary: &Path) -> Result<Value> {
    let tasks = read_tasks(&args.data)?;
    let decoys: Vec<Decoy> = read_json(&args.data.join("gen/decoy_conversations.json"))?;
    let mut extracted = Sandbox::new(binary)?;
    for variable in &args.env {
        let (name, value) = variable.split_once('=').context("--env is NAME=VALUE")?;
        extracted.variables.push((name.to_owned(), value.to_owned()));
    }
    // Creates the queue.
    extracted.run_ok(&["drain"])?;
    let mut sessions =
        Sessions { sandbox: &extracted, begun: "2026-03-02T09:00:00Z".parse()?, names: Vec::new() };
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for (number, decoy) in decoys.iter().enumerate() {
        sessions.add(&format!("decoy-{number}"), &decoy.turns)?;
    }
    // A chat that amends an earlier one is captured once the earlier one is merged, as it would be.
    let rounds = tasks.iter().map(|task| task.chats.len()).max().unwrap_or(0);
    for round in 0..rounds {
        for task in tasks.iter().filter(|task| task.chats.len() > round) {
            sessions.add(&task.session(round), &task.chats[round])?;
        }
        units.extend(sessions.capture_and_merge()?);
    }
    let found = ask_all(&extracted, &tasks, &units, args.tasks)?;
    let of_decoys = units.values().filter(|session| session.starts_with("decoy-")).collect::<BTreeSet<_>>();
    let with_units = |chat: &dyn Fn(&Task) -> usize| {
        tasks.iter().filter(|task| units.values().any(|session| *session == task.session(chat(task)))).count()
    };

    let whole = Sandbox::new(binary)?;
    let all = whole_conversations(&whole, &tasks, &decoys)?;
    let recalled = ask_all(&whole, &tasks, &all, false)?;
    Ok(json!({
        "tasks": tasks.len(),
        "amended": tasks.iter().filter(|task| task.chats.len() > 1).count(),
        "decoys": decoys.len(),
        "units": units.len(),
        "tasks_with_a_unit_of_the_deciding_chat": with_units(&|task| task.chats.len() - 1),
        "decoys_with_a_unit": of_decoys.len(),
        "extracted": found,
        "whole_conversations": recalled,
    }))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// The tasks whose decision was made in a conversation, by name.
fn read_tasks(data: &Path) -> Result<Vec<Task>> {
    let manifest: Manifest = read_json(&data.join("MANIFEST.json"))?;
    let policies: BTreeMap<String, String> =
        manifest.tasks.into_iter().map(|task| (task.task_id, task.policy)).collect();
    let mut tasks = Vec::new();
    for entry in fs::read_dir(data).with_context(|| data.display().to_string())? {
        let path = entry?.path().join("tasks/main/task.json");
        if !path.is_file() {
            continue;
        }
        let file: TaskFile = read_json(&path)?;
        let is_one = file.conversations.get(0).is_some_and(Value::is_object);
        let chats = match file.conversations {
            Value::Null => continue,
            one if is_one => vec![serde_json::from_value(one)?],
            many => serde_json::from_value::<Vec<Vec<Turn>>>(many)?,
        };
        let policy = policies.get(&file.task_id).cloned().unwrap_or_default();
        if !chats.is_empty() {
            let (id, category, question) = (file.task_id, file.category, file.bug_report);
            tasks.push(Task { id, category, question, policy, chats });
        }
    }
    ensure!(!tasks.is_empty(), "{} holds no task with a conversation", data.display());
    tasks.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(tasks)
}

/// Writes conversations as transcripts and queues them, one a working hour apart.
struct Sessions<'a> {
    sandbox: &'a Sandbox,
    begun: Timestamp,
    /// The conversations in their order; a session's id is its number here.
    names: Vec<String>,
}

impl Sessions<'_> {
    fn add(&mut self, name: &str, turns: &[Turn]) -> Result<()> {
        let id = format!("{:08}", self.names.len());
        let begun = self.begun + SignedDuration::from_hours(self.names.len() as i64);
        self.names.push(name.to_owned());
        let mut lines = String::new();
        for (number, turn) in turns.iter().enumerate() {
            let content = match turn.role.as_str() {
                "user" => json!(turn.text),
                _ => json!([{"type": "text", "text": turn.text}]),
            };
            let line = json!({
                "parentUuid": null, "isSidechain": false, "type": turn.role, "uuid": format!("{id}-{number}"),
                "message": {"role": turn.role, "content": content}, "userType": "external",
                "timestamp": begun + SignedDuration::from_mins(number as i64), "cwd": "/home/dev/boltons",
                "sessionId": id, "version": "2.1.330",
            });
            writeln!(lines, "{line}")?;
        }
        let transcript = self.sandbox.path(&format!("{id}.jsonl"));
        fs::write(&transcript, lines)?;
        let announcement = Announcement::new(SessionId::verbatim(&id), &transcript, "command");
        let state = self.sandbox.state()?;
        queue::Queue::open(&state.join("queue.db"))?.add(&announcement, Timestamp::now())?;
        Ok(())
    }

    /// Captures what is queued and merges all of it; returns each unit's session.
    fn capture_and_merge(&self) -> Result<BTreeMap<String, String>> {
        let sandbox = self.sandbox;
        sandbox.run_ok(&["drain"])?;
        sandbox.wait_until("all is captured", CAPTURED_WITHIN, || sandbox.is_quiet())?;
        let tally = sandbox.queue()?.tally()?;
        ensure!(tally.dead == 0, "captures have failed: {tally:?}");
        let inbox: Value = serde_json::from_str(&sandbox.run_ok(&["review", "--json"])?)?;
        let items = inbox["items"].as_array().context("no inbox")?;
        let mut units = BTreeMap::new();
        for item in items {
            let (number, unit) =
                item["id"].as_str().and_then(|id| id.split_once('/')).context("an item without an id")?;
            let session = self.names.get(number.parse::<usize>()?).context("an unknown session")?;
            units.insert(unit.to_owned(), session.clone());
        }
        if !items.is_empty() {
            sandbox.run_ok(&["review", "merge", "--all"])?;
            sandbox.run_ok(&["index"])?;
        }
        Ok(units)
    }
}

/// Writes each conversation as one unit that is reviewed; returns each unit's session.
fn whole_conversations(
    sandbox: &Sandbox,
    tasks: &[Task],
    decoys: &[Decoy],
) -> Result<BTreeMap<String, String>> {
    let chats = tasks.iter().flat_map(|task| {
        task.chats.iter().enumerate().map(|(number, turns)| (task.session(number), turns.as_slice()))
    });
    let decoys =
        decoys.iter().enumerate().map(|(number, decoy)| (format!("decoy-{number}"), decoy.turns.as_slice()));
    let folder = sandbox.brain().join("domains/boltons/concepts");
    fs::create_dir_all(&folder)?;
    let mut units = BTreeMap::new();
    for (id, turns) in decoys.chain(chats) {
        let body: Vec<String> = turns.iter().map(|turn| format!("{}: {}", turn.role, turn.text)).collect();
        let text = format!(
            "---\nid: {id}\ntype: concept\ndomain: boltons\ntitle: A conversation\ntags: []\nconfidence: 0.9\n\
             source: hand\nrelated: []\n---\n\n{}\n",
            body.join("\n\n")
        );
        fs::write(folder.join(format!("{id}.md")), text)?;
        units.insert(id.clone(), id);
    }
    sandbox.git(&["add", "domains"])?;
    sandbox.git(&["commit", "-qm", "conversations"])?;
    sandbox.run_ok(&["index"])?;
    Ok(units)
}

/// Asks each bug report. An answer is right where it holds a unit of the chat that decided, or decided last.
fn ask_all(
    sandbox: &Sandbox,
    tasks: &[Task],
    sessions: &BTreeMap<String, String>,
    print: bool,
) -> Result<Value> {
    let mut hits = [0; RANKS.len()];
    let (mut answered, mut stale_first) = (0, 0);
    let mut decisive = Vec::new();
    let mut by_category: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for task in tasks {
        let printed = sandbox.run_ok(&["ask", "--no-llm", "--json", &task.question])?;
        let answer: Value = serde_json::from_str(&printed)?;
        let units = answer["units"].as_array().context("no units")?;
        let session = |unit: &Value| sessions.get(unit["id"].as_str().unwrap_or_default());
        let place = |wanted: &str| units.iter().position(|unit| session(unit).is_some_and(|id| id == wanted));
        let last = task.chats.len() - 1;
        let right = place(&task.session(last));
        let stale = (0..last).filter_map(|chat| place(&task.session(chat))).min();
        for (hits, rank) in hits.iter_mut().zip(RANKS) {
            *hits += usize::from(right.is_some_and(|place| place < rank));
        }
        answered += usize::from(!units.is_empty());
        stale_first += usize::from(stale.is_some_and(|stale| right.is_none_or(|right| stale < right)));
        let category = by_category.entry(&task.category).or_default();
        category.0 += u32::from(right.is_some_and(|place| place < RANKS[RANKS.len() - 1]));
        category.1 += 1;
        let words = decisive_words(task);
        let text = printed.to_lowercase();
        let told = words.iter().filter(|word| text.contains(word.as_str())).count();
        decisive.push(told as f64 / words.len().max(1) as f64);
        if print {
            let titles: Vec<_> = units.iter().take(3).map(|unit| unit["title"].clone()).collect();
            println!("{:<34} {right:?} of {} {told}/{} {titles:?}", task.id, units.len(), words.len());
        }
    }
    let mean = decisive.iter().sum::<f64>() / decisive.len() as f64;
    let by_category: BTreeMap<_, _> =
        by_category.into_iter().map(|(name, (hits, all))| (name, format!("{hits}/{all}"))).collect();
    Ok(json!({
        "answered": answered,
        "hit_at_1": hits[0], "hit_at_3": hits[1], "hit_at_5": hits[2],
        "superseded_first": stale_first,
        "decisive_words_told": (mean * 1000.0).round() / 1000.0,
        "hit_at_5_by_category": by_category,
    }))
}

/// The words of the decision that the question does not hold, in lower case.
fn decisive_words(task: &Task) -> BTreeSet<String> {
    let words = |text: &str| -> BTreeSet<String> {
        text.to_lowercase()
            .split(|c: char| !c.is_alphanumeric() && !"_-.".contains(c))
            .map(|word| word.trim_matches(['-', '.']).to_owned())
            .filter(|word| word.len() > 3 || word.chars().any(|c| c.is_ascii_digit()))
            .collect()
    };
    words(&task.policy).difference(&words(&task.question)).cloned().collect()
}
