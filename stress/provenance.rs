//! Knowledge about code: which session wrote a line, against the record of another tool; scores and packing, against
//! openqed's own program; and speed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::archive::{Archive, ClaudeCode, FILE_NAME, NewRecord, Project, SyncSettings};
use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use knowledge::UnitType;
use provenance::context::{Place, Records, answer};
use provenance::trace::{Line, Tracer};
use provenance::{Depth, Item, Question, StaleReason, pack, score};
use serde_json::{Value, json};

use crate::timing::Durations;

const GIT_DEADLINE: Duration = Duration::from_secs(60);
/// The branch on which the tool Entire keeps which sessions a commit is of.
const BRANCH: &str = "entire/checkpoints/v1";
const TRAILER: &str = "Entire-Checkpoint: ";
/// How many lines before and after one are blamed along with it.
const AROUND: usize = 4;
/// How many lines are tried for each that is wanted.
const TRIES: usize = 60;

#[derive(clap::Subcommand)]
pub(crate) enum Provenance {
    /// Trace lines of a repository whose commits name their sessions, and compare
    Lines(LinesArgs),
    /// Compare scores and packing with openqed's program; needs node 22.13 or later
    Openqed(OpenqedArgs),
    /// Measure answers over many files and records
    Scale(ScaleArgs),
}

#[derive(clap::Args)]
pub(crate) struct LinesArgs {
    /// A clone of a repository with the branch entire/checkpoints/v1
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,
    /// Its sessions, as stress/extraction/sessions.py cuts them out
    #[arg(long, value_name = "FOLDER")]
    sessions: PathBuf,
    /// How many lines whose session is archived
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// Print each line that was not traced as expected
    #[arg(long)]
    misses: bool,
}

#[derive(clap::Args)]
pub(crate) struct OpenqedArgs {
    /// A clone of https://github.com/openqed-com/openqed
    #[arg(value_name = "DIR")]
    clone: PathBuf,
    /// The program node
    #[arg(long, default_value = "node", value_name = "PATH")]
    node: PathBuf,
    /// How many records and questions
    #[arg(long, default_value_t = 5000)]
    count: usize,
}

#[derive(clap::Args)]
pub(crate) struct ScaleArgs {
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    #[arg(long, default_value_t = 50_000)]
    records: usize,
}

pub(crate) fn run(what: &Provenance, binary: &Path, seed: u64) -> Result<Value> {
    match what {
        Provenance::Lines(args) => trace_lines(args, seed),
        Provenance::Openqed(args) => compare_with_openqed(args, seed),
        Provenance::Scale(args) => measure(args, binary, seed),
    }
}

/// Runs git in a clone; its output.
fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(repository)
        .args(arguments)
        .output()?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The sessions of each checkpoint, by its id.
fn checkpoints(repository: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let branch = [BRANCH.to_owned(), format!("origin/{BRANCH}")];
    let branch = branch.iter().find(|name| git(repository, &["rev-parse", "--verify", "-q", name]).is_ok());
    let branch = branch.with_context(|| format!("there is no branch {BRANCH}"))?;
    let listed = git(repository, &["ls-tree", "-r", "--name-only", branch])?;
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in listed.lines().filter(|path| path.ends_with("/metadata.json")) {
        let metadata: Value = serde_json::from_str(&git(repository, &["show", &format!("{branch}:{path}")])?)
            .unwrap_or_default();
        if let (Some(id), Some(session)) =
            (metadata["checkpoint_id"].as_str(), metadata["session_id"].as_str())
        {
            found.entry(id.to_owned()).or_default().insert(session.to_owned());
        }
    }
    Ok(found)
}

/// The bars: lines whose session is archived that it is found for, and other lines that are given to no wrong session.
const SHARE_RIGHT_MIN: f64 = 0.9;
const SHARE_NOT_WRONG_MIN: f64 = 0.95;

/// The lines that each session wrote to each file.
type Written = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<Timestamp>>>>;

/// A line with what is known of it.
struct Sampled {
    path: String,
    number: usize,
    /// The line with those around it, and its place among them.
    lines: Vec<Line>,
    at: usize,
    /// The sessions of its commit.
    sessions: BTreeSet<String>,
    /// Whether one of them has an edit with the line in its transcript.
    is_archived: bool,
}

fn trace_lines(args: &LinesArgs, seed: u64) -> Result<Value> {
    let home = tempfile::tempdir()?;
    let projects = home.path().join("client/projects/-sessions");
    fs::create_dir_all(&projects)?;
    let mut transcripts = Written::new();
    for entry in fs::read_dir(&args.sessions)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        fs::copy(&path, projects.join(name))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        transcripts.insert(stem, edits_of(&fs::read_to_string(&path)?));
    }
    let state = home.path().join("state");
    let archive = Archive::open(&state.join(FILE_NAME))?;
    archive
        .sync(&[&ClaudeCode::new(vec![home.path().join("client")])], &SyncSettings::new(state.join("own")))?;
    let checkpoints = checkpoints(&args.repository)?;
    let mut rng = Rng::with_seed(seed);
    let sampled = sample(args, &archive, &transcripts, &checkpoints, &mut rng)?;

    let project = Project::from_folder(&fs::canonicalize(&args.repository)?);
    let mut tracer = Tracer::new(&archive, &project.key);
    let (mut right, mut wrong, mut unknown) = (0, 0, 0);
    let (mut rest, mut rest_right, mut rest_typed, mut rest_wrong, mut rest_unknown) = (0, 0, 0, 0, 0);
    let mut times = Durations::default();
    for one in &sampled {
        let origin = times.measure(|| Ok(tracer.trace_among(&one.lines, one.at)?))?;
        let found = origin.as_ref().map(|origin| top_session(&origin.session.id));
        let is_right =
            found.as_ref().map(|found| one.sessions.iter().any(|session| same_session(session, found)));
        if args.misses && is_right != Some(true) && (one.is_archived || is_right == Some(false)) {
            println!(
                "{}:{} archived {} found {:?} neighbours {:?} expected {:?}: {}",
                one.path,
                one.number,
                one.is_archived,
                found,
                origin.as_ref().map(|origin| origin.neighbours),
                one.sessions,
                one.lines[one.at].text.trim()
            );
        }
        match (one.is_archived, is_right) {
            (true, Some(true)) => right += 1,
            (true, Some(false)) => wrong += 1,
            (true, None) => unknown += 1,
            (false, is_right) => {
                rest += 1;
                match is_right {
                    Some(true) => rest_right += 1,
                    Some(false) if typed_just_before(one, found.as_deref(), &transcripts) => rest_typed += 1,
                    Some(false) => rest_wrong += 1,
                    None => rest_unknown += 1,
                }
            }
        }
    }
    let of = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    let at_least =
        |value: f64, limit: f64| json!({"measured": value, "limit": limit, "held": value >= limit});
    Ok(json!({
        "lines_with_an_archived_session": right + wrong + unknown,
        "right": right, "wrong": wrong, "unknown": unknown,
        "share_right": at_least(of(right, right + wrong + unknown), SHARE_RIGHT_MIN),
        "other_lines": rest, "other_right": rest_right, "other_unknown": rest_unknown,
        "other_right_by_its_transcript": rest_typed, "other_wrong": rest_wrong,
        "other_share_not_wrong": at_least(1.0 - of(rest_wrong, rest), SHARE_NOT_WRONG_MIN),
        "other_share_not_wrong_by_commits_alone": 1.0 - of(rest_wrong + rest_typed, rest),
        "trace_ms_p50": times.percentile(50), "trace_ms_p99": times.percentile(99),
    }))
}

/// Whether the session that was found typed the line within an hour before the commit, by its transcript, which none of
/// the sessions that the commit names ever did. Then the commit names the session that ran when it was made, and not the
/// one whose work it has.
fn typed_just_before(one: &Sampled, found: Option<&str>, transcripts: &Written) -> bool {
    let line = &one.lines[one.at];
    let (Some(found), Some(authored)) = (found, line.authored) else { return false };
    let mut of_session = transcripts.iter().filter(|(stem, _)| same_session(stem, found));
    of_session.any(|(_, files)| {
        let times = files.get(&file_name(&line.path)).and_then(|lines| lines.get(line.text.trim()));
        times.into_iter().flatten().any(|at| (0..3600).contains(&authored.duration_since(*at).as_secs()))
    })
}

/// The lines that a session's calls write to each file, by the file's name, and when.
fn edits_of(transcript: &str) -> BTreeMap<String, BTreeMap<String, Vec<Timestamp>>> {
    let mut written: BTreeMap<String, BTreeMap<String, Vec<Timestamp>>> = BTreeMap::new();
    for line in transcript.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let at: Option<Timestamp> = line["timestamp"].as_str().and_then(|at| at.parse().ok());
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            let is_edit = block["name"].as_str().is_some_and(|name| name.contains("Edit") || name == "Write");
            if !is_edit {
                continue;
            }
            let input = &block["input"];
            let lines =
                written.entry(file_name(input["file_path"].as_str().unwrap_or_default())).or_default();
            let edits = input["edits"].as_array().into_iter().flatten().map(|edit| &edit["new_string"]);
            for added in [&input["new_string"], &input["content"]].into_iter().chain(edits) {
                for row in added.as_str().unwrap_or_default().lines() {
                    lines.entry(row.trim().to_owned()).or_default().extend(at);
                }
            }
        }
    }
    written
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn sample(
    args: &LinesArgs,
    archive: &Archive,
    transcripts: &Written,
    checkpoints: &BTreeMap<String, BTreeSet<String>>,
    rng: &mut Rng,
) -> Result<Vec<Sampled>> {
    let files = git(&args.repository, &["ls-files"])?;
    let mut written: Vec<&str> = Vec::new();
    for file in files.lines() {
        let is_text = args.repository.join(file).metadata().is_ok_and(|metadata| metadata.len() < 1 << 20);
        if is_text && !archive.sessions_that_changed(file, 1)?.is_empty() {
            written.push(file);
        }
    }
    ensure!(!written.is_empty(), "no session has changed a file of this repository");
    let mut trailers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut sampled = Vec::new();
    for _ in 0..args.count * TRIES {
        if sampled.iter().filter(|one: &&Sampled| one.is_archived).count() >= args.count {
            break;
        }
        let path = written[rng.usize(..written.len())];
        let Ok(text) = fs::read_to_string(args.repository.join(path)) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            continue;
        }
        let number = rng.usize(..lines.len()) + 1;
        if lines[number - 1].trim().is_empty() {
            continue;
        }
        let (first, last) = (number.saturating_sub(AROUND).max(1), (number + AROUND).min(lines.len()));
        let found = git::blame(&args.repository, path, first, last, Instant::now() + GIT_DEADLINE)?;
        let Some(blamed_lines) = found else { continue };
        let at = number - first;
        let Some(blamed) = blamed_lines.get(at) else { continue };
        let Some(commit) = &blamed.commit else { continue };
        if !trailers.contains_key(commit) {
            let message = git(&args.repository, &["log", "-1", "--format=%B", commit])?;
            let ids = message.lines().filter_map(|line| line.strip_prefix(TRAILER));
            let sessions = ids.filter_map(|id| checkpoints.get(id.trim())).flatten().cloned().collect();
            trailers.insert(commit.clone(), sessions);
        }
        let sessions = trailers.get(commit).cloned().unwrap_or_default();
        // Nothing tells whose the lines of other commits are.
        if sessions.is_empty() {
            continue;
        }
        let wanted = blamed.text.trim();
        let name = file_name(&blamed.path);
        let has_line = |session: &String| {
            let mut of_session = transcripts.iter().filter(|(stem, _)| same_session(stem, session));
            of_session.any(|(_, files)| files.get(&name).is_some_and(|lines| lines.contains_key(wanted)))
        };
        let is_archived = sessions.iter().any(has_line);
        let lines = blamed_lines.into_iter().map(|line| Line {
            path: line.path,
            text: line.text,
            before: line.before,
            after: line.after,
            authored: line.authored,
            committed: line.committed,
            commit: line.commit,
        });
        sampled.push(Sampled {
            path: path.to_owned(),
            number,
            lines: lines.collect(),
            at,
            sessions,
            is_archived,
        });
    }
    Ok(sampled)
}

/// The session that called a subagent.
fn top_session(id: &str) -> String {
    id.split('/').next().unwrap_or(id).to_owned()
}

/// Whether two names mean one session: older copies carry their date before the id.
fn same_session(a: &str, b: &str) -> bool {
    let plain = |id: &str| -> String { id.chars().skip(id.chars().count().saturating_sub(36)).collect() };
    plain(a) == plain(b)
}

const KINDS: [UnitType; 8] = [
    UnitType::Constraint,
    UnitType::Caveat,
    UnitType::Tuning,
    UnitType::Decision,
    UnitType::Rejection,
    UnitType::Workaround,
    UnitType::Intent,
    UnitType::Dependency,
];

/// Makes items and questions at random, and compares each score and each packing with what openqed's program says.
fn compare_with_openqed(args: &OpenqedArgs, seed: u64) -> Result<Value> {
    let mut rng = Rng::with_seed(seed);
    let now: Timestamp = "2026-11-23T12:00:00Z".parse()?;
    let places = ["src/auth.ts", "src", "src/auth/token.ts", "docs/api.md", "a.rs", "src/db", "b.rs"];
    let (mut cases, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..args.count.div_ceil(10) {
        let question = Question {
            path: rng.u8(..5).ne(&0).then(|| places[rng.usize(..places.len())].to_owned()),
            budget: rng.usize(20..400),
            depth: if rng.bool() { Depth::Summary } else { Depth::Standard },
            ..Question::default()
        };
        let items: Vec<Item> = (0..10).map(|number| random_item(&mut rng, &places, number, now)).collect();
        let scores: Vec<f64> = items.iter().map(|item| score::score(item, &question, now)).collect();
        let ranked: Vec<Item> =
            score::rank(items.clone(), &question, now).into_iter().map(|(_, item)| item).collect();
        let packed = pack::pack(ranked, question.budget, question.depth, "");
        let shown: Vec<Value> = packed
            .items
            .iter()
            .map(|shown| json!({ "summary": shown.item.summary, "detail": shown.has_detail }))
            .collect();
        let is_gapless = packed.items.len() == items.len();
        ours.push((scores, shown, packed.used, packed.is_truncated, is_gapless));
        let items: Vec<Value> = items
            .iter()
            .map(|item| {
                json!({
                    "type": item.kind, "summary": item.summary, "detail": item.detail, "scopePath": item.path,
                    "confidence": item.confidence, "extractedAt": item.at.map(|at| at.to_string()),
                    "stale": item.stale.is_some(), "rank": item.rank,
                })
            })
            .collect();
        let depth = if question.depth == Depth::Summary { "summary" } else { "standard" };
        cases.push(
            json!({ "path": question.path, "budget": question.budget, "depth": depth, "items": items }),
        );
    }
    let theirs = run_openqed(args, now, &cases)?;
    let (mut worst, mut scored, mut packed_alike, mut deliberate) = (0.0f64, 0, 0, 0);
    for (number, ((scores, shown, used, truncated, is_gapless), theirs)) in
        ours.iter().zip(&theirs).enumerate()
    {
        let of_theirs: Vec<f64> =
            theirs["scores"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        ensure!(of_theirs.len() == scores.len(), "case {number}: {theirs}");
        for (ours, theirs) in scores.iter().zip(of_theirs) {
            worst = worst.max((ours - theirs).abs());
            scored += 1;
        }
        let is_alike = theirs["items"] == json!(shown)
            && theirs["used"] == json!(used)
            && theirs["truncated"] == json!(truncated);
        let summaries = |items: &Value| -> Vec<String> {
            items.as_array().into_iter().flatten().map(|item| item["summary"].to_string()).collect()
        };
        if is_alike {
            packed_alike += 1;
        } else {
            // After an item that did not fit, openqed gives its details to the wrong ones.
            ensure!(!is_gapless, "case {number}: ours {shown:?} {used}, theirs {theirs}");
            ensure!(summaries(&theirs["items"]) == summaries(&json!(shown)), "case {number}: other items");
            deliberate += 1;
        }
    }
    ensure!(worst <= 1e-9, "a score differs by {worst}");
    Ok(json!({
        "scores": scored, "greatest_difference": worst, "packings": theirs.len(), "packed_alike": packed_alike,
        "details_after_a_gap": deliberate,
    }))
}

fn random_item(rng: &mut Rng, places: &[&str], number: usize, now: Timestamp) -> Item {
    let words = |rng: &mut Rng, most: usize| -> String {
        (0..rng.usize(1..most))
            .map(|_| ["retry", "größer", "token", "😀", "cache"][rng.usize(..5)])
            .collect::<Vec<_>>()
            .join(" ")
    };
    let age = SignedDuration::from_secs(rng.i64(0..400 * 86_400));
    Item {
        kind: KINDS[rng.usize(..KINDS.len())].clone(),
        summary: format!("{number} {}", words(rng, 20)),
        detail: rng.bool().then(|| words(rng, 60)),
        path: rng.u8(..4).ne(&0).then(|| places[rng.usize(..places.len())].to_owned()),
        confidence: rng.f64(),
        at: Some(now.checked_sub(age).unwrap_or(now)),
        rank: rng.bool().then(|| -rng.f64() * 15.0),
        stale: (rng.u8(..4) == 0).then_some(StaleReason::Expired),
        ..Item::default()
    }
}

fn run_openqed(args: &OpenqedArgs, now: Timestamp, cases: &[Value]) -> Result<Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("stress/provenance/openqed.mjs");
    let mut child = Command::new(&args.node)
        .args(["--no-warnings"])
        .arg(script)
        .arg(&args.clone)
        .arg(now.as_millisecond().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("node cannot be started")?;
    let input = serde_json::to_vec(cases)?;
    let stdin = child.stdin.take();
    let writer = std::thread::spawn(move || {
        stdin.map(|mut stdin| std::io::Write::write_all(&mut stdin, &input)).transpose()
    });
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer has panicked"))??;
    ensure!(output.status.success(), "openqed's program has failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Asks for files of a large project in this process, and through the binary.
fn measure(args: &ScaleArgs, binary: &Path, seed: u64) -> Result<Value> {
    let home = tempfile::tempdir()?;
    let root = fs::canonicalize(home.path())?;
    let shop = root.join("shop");
    fs::create_dir_all(shop.join(".git"))?;
    let mut rng = Rng::with_seed(seed);
    let files: Vec<String> =
        (0..args.files).map(|number| format!("src/m{}/f{number}.rs", number % 200)).collect();
    for file in &files {
        let path = shop.join(file);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(path, file)?;
    }
    let sessions = (args.records / 50).max(1);
    let projects = root.join("client/projects/-shop");
    fs::create_dir_all(&projects)?;
    for number in 0..sessions {
        let id = format!("5a3b7c1e-0000-4000-8000-{number:012x}");
        let line = json!({
            "type": "user", "uuid": format!("5a3b7c1e-0000-4000-9000-{number:012x}"), "cwd": shop, "sessionId": id,
            "timestamp": "2026-11-01T10:00:00Z",
            "message": {"role": "user", "content": format!("please mend part {number} of the shop")},
        });
        fs::write(projects.join(format!("{id}.jsonl")), format!("{line}\n"))?;
    }
    let state = root.join("state/nugget");
    let archive = Archive::open(&state.join(FILE_NAME))?;
    archive.sync(&[&ClaudeCode::new(vec![root.join("client")])], &SyncSettings::new(&state))?;
    let project = Project::from_folder(&shop);
    let kinds = ["intent", "tuning", "decision", "caveat"];
    let words = ["retry", "token", "cache", "queue", "invoice", "login", "price", "timeout"];
    for session in archive.sessions(&::archive::Filter::default(), false, sessions)? {
        let records: Vec<NewRecord> = (0..50)
            .map(|number| {
                let file = &files[rng.usize(..files.len())];
                NewRecord {
                    kind: kinds[rng.usize(..kinds.len())].to_owned(),
                    path: if number == 0 { String::new() } else { file.clone() },
                    summary: format!("{} the {} of {file}", words[rng.usize(..8)], words[rng.usize(..8)]),
                    detail: Some(format!(
                        "because the {} waits for the {}",
                        words[rng.usize(..8)],
                        words[rng.usize(..8)]
                    )),
                    confidence: rng.f64(),
                    sha256: rng.bool().then_some([7; 32]),
                    at: session.started.unwrap_or_default(),
                    ..NewRecord::default()
                }
            })
            .collect();
        archive.replace_records(&session, &records)?;
    }
    let now = Timestamp::now();
    let place = Place { project: &project.key, root: &project.path };
    let mut warm = Durations::default();
    for number in 0..300 {
        let question = Question {
            path: Some(files[rng.usize(..files.len())].clone()),
            query: (number % 3 == 0).then(|| words[rng.usize(..8)].to_owned()),
            budget: 2000,
            ..Question::default()
        };
        let found = warm.measure(|| Ok(answer(&question, place, &[], Records::All(&archive), now)?))?;
        ensure!(!found.nuggets.is_empty(), "nothing was found for {question:?}");
    }
    let (mut cold, mut bare) = (Durations::default(), Durations::default());
    for _ in 0..40 {
        let file = shop.join(&files[rng.usize(..files.len())]);
        let run = |arguments: &[&std::ffi::OsStr]| -> Result<()> {
            let output = Command::new(binary)
                .args(arguments)
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .env("HOME", &root)
                .env("XDG_STATE_HOME", root.join("state"))
                .output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        };
        cold.measure(|| run(&["context".as_ref(), file.as_os_str(), "--json".as_ref()]))?;
        bare.measure(|| run(&["--version".as_ref()]))?;
    }
    Ok(json!({
        "files": args.files, "records": sessions * 50,
        "warm_ms_p50": warm.percentile(50), "warm_ms_p99": warm.percentile(99),
        "cold_ms_p50": cold.percentile(50), "cold_ms_p99": cold.percentile(99),
        "bare_process_ms_p50": bare.percentile(50),
        "cold_to_bare": cold.percentile(50) / bare.percentile(50),
    }))
}
