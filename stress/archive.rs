//! The session archive under kills, at scale, and against an independent count.
//!
//! `archive` without an option kills syncs; `--counts` compares real sessions, cut out of public repositories by
//! `stress/extraction/sessions.py`, with what `stress/archive/counts.py` counts in them; `--scale` measures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::archive::{Archive, ClaudeCode, FILE_NAME, Filter, Markers, SearchQuery, SyncSettings, SyncSummary};
use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// After so many kills everything is checked.
const CHECK_EVERY: usize = 50;
const SESSIONS: usize = 6;
/// A sync is killed within this time at first. It grows while kills come early, and shrinks when syncs end.
const KILL_WITHIN_MS: f64 = 30.0;
const QUERIES: usize = 200;

#[derive(clap::Args)]
pub(crate) struct ArchiveArgs {
    /// How many syncs are killed while transcripts are appended to, truncated, forked and deleted
    #[arg(long, default_value_t = 500, conflicts_with_all = ["counts", "scale"])]
    kills: usize,
    /// Compare the archive of this folder of transcripts with an independent count
    #[arg(long, value_name = "FOLDER")]
    counts: Option<PathBuf>,
    /// Measure on made transcripts
    #[arg(long, conflicts_with = "counts")]
    scale: bool,
    /// How many sessions `--scale` makes, of 100 messages each
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
}

pub(crate) fn run(args: &ArchiveArgs, seed: u64) -> Result<Value> {
    match &args.counts {
        Some(folder) => compare_counts(folder),
        None if args.scale => measure(args.sessions, seed),
        None => kill_syncs(args.kills, seed),
    }
}

/// The process that is killed: one sync.
pub(crate) fn run_sync(client: &Path, state: &Path) -> Result<()> {
    let summary = sync(client, state)?;
    ensure!(summary.failed.is_empty(), "{:?}", summary.failed);
    println!("{}", fs::read_to_string("/proc/self/status")?);
    Ok(())
}

fn sync(client: &Path, state: &Path) -> Result<SyncSummary> {
    let archive = Archive::open(&state.join(FILE_NAME))?;
    Ok(archive.sync(&[&ClaudeCode::new(vec![client.to_owned()])], &SyncSettings::new(state.join("own")))?)
}

fn compare_counts(folder: &Path) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("stress/archive/counts.py");
    let output = Command::new("python3").arg(script).arg(folder).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected: Value = serde_json::from_slice(&output.stdout)?;
    let home = tempfile::tempdir()?;
    fs::create_dir_all(home.path().join("client/projects/-sessions"))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Copied with its time, which decides whose a line is that several files have.
        let copy = home.path().join("client/projects/-sessions").join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        fs::File::options().append(true).open(&copy)?.set_modified(entry.metadata()?.modified()?)?;
    }
    let state = home.path().join("state");
    let summary = sync(&home.path().join("client"), &state)?;
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let stats = archive.stats(&Filter::default(), &TimeZone::UTC)?;
    let count = |role: &str| stats.by_role.get(role).copied().unwrap_or_default();
    let archived = json!({
        "sessions": stats.sessions,
        "messages": { "user": count("user"), "assistant": count("assistant"), "system": count("system") },
        "tool_uses": stats.tool_uses,
        "files": stats.files,
        "requests": stats.models.iter().map(|model| model.requests).sum::<u64>(),
        "input_tokens": stats.tokens.input,
        "output_tokens": stats.tokens.output,
        "cache_read_input_tokens": stats.tokens.cache_read,
        "cache_creation_input_tokens": stats.tokens.cache_write,
    });
    ensure!(archived == expected, "the archive has {archived}, the script counts {expected}");
    ensure!(archive.check()?.is_empty(), "the file is damaged");
    let mut result = archived;
    result["bytes"] = summary.bytes.into();
    result["database_bytes"] = fs::metadata(archive.path())?.len().into();
    result["malformed"] = summary.malformed.into();
    result["unknown"] = json!(summary.unknown);
    Ok(result)
}

/// Transcripts that change, and what an archive of them must have.
struct World {
    client: PathBuf,
    state: PathBuf,
    rng: Rng,
    next: u64,
    kill_within_ms: f64,
    /// The lines of each session that a sync has certainly seen, by their marker.
    seen: BTreeMap<usize, BTreeSet<u64>>,
}

fn kill_syncs(kills: usize, seed: u64) -> Result<Value> {
    let home = tempfile::tempdir()?;
    let root = fs::canonicalize(home.path())?;
    let mut world = World {
        client: root.join("client"),
        state: root.join("state"),
        rng: Rng::with_seed(seed),
        next: 1,
        kill_within_ms: KILL_WITHIN_MS,
        seen: BTreeMap::new(),
    };
    fs::create_dir_all(world.client.join("projects/-p"))?;
    let (mut killed, mut finished, mut checks) = (0, 0, 0);
    let result = loop {
        let result = world.kill_one();
        match result {
            Ok(true) => {
                killed += 1;
                world.kill_within_ms *= 1.05;
            }
            Ok(false) => {
                finished += 1;
                world.kill_within_ms *= 0.85;
            }
            Err(error) => break Err(error),
        }
        ensure!(finished < 20 * kills + 1000, "{killed} kills in {finished} syncs: they end too early");
        if (killed + 1) % CHECK_EVERY == 0 || killed >= kills {
            checks += 1;
            if let Err(error) = world.check() {
                break Err(error);
            }
        }
        if killed >= kills {
            break Ok(json!({
                "kills": killed, "syncs": killed + finished, "checks": checks, "lines": world.next - 1,
            }));
        }
    };
    if result.is_err() {
        eprintln!("kept in {}", home.keep().display());
    }
    result
}

impl World {
    fn path(&self, session: usize) -> PathBuf {
        self.client.join(format!("projects/-p/00000000-0000-4000-8000-{session:012}.jsonl"))
    }

    fn read(&self, session: usize) -> Vec<u8> {
        fs::read(self.path(session)).unwrap_or_default()
    }

    fn line(&mut self) -> String {
        let marker = self.next;
        self.next += 1;
        let text = format!("marker{marker} {}", "lorem ipsum ".repeat(self.rng.usize(0..400)));
        let message = json!({ "role": "user", "content": text });
        let uuid = format!("00000000-0000-4000-9000-{marker:012x}");
        json!({ "type": "user", "uuid": uuid, "cwd": "/work/p", "message": message }).to_string() + "\n"
    }

    /// Changes the transcripts as clients do, and as they never should.
    fn change(&mut self) -> Result<()> {
        let session = self.rng.usize(..SESSIONS);
        let mut bytes = self.read(session);
        match self.rng.usize(..20) {
            0 => {
                let _ = fs::remove_file(self.path(session));
                return Ok(());
            }
            1 => bytes.truncate(self.rng.usize(..=bytes.len())),
            2 => {
                let to = self.rng.usize(..SESSIONS);
                fs::write(self.path(to), &bytes)?;
                return Ok(());
            }
            3 => bytes.extend_from_slice(b"{\"type\":\"user\",\"uuid\":\"half a li"),
            _ => {
                if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                    bytes.push(b'\n');
                }
                for _ in 0..self.rng.usize(1..60) {
                    bytes.extend_from_slice(self.line().as_bytes());
                }
            }
        }
        fs::write(self.path(session), bytes)?;
        Ok(())
    }

    /// Starts a sync while transcripts change, and kills it; false if it ended before.
    fn kill_one(&mut self) -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("archive-sync")
            .args([&self.client, &self.state])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let until = Instant::now() + Duration::from_secs_f64(self.kill_within_ms / 1000.0 * self.rng.f64());
        while Instant::now() < until {
            self.change()?;
            if ended(&mut child)? {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if ended(&mut child)? {
            return Ok(false);
        }
        child.kill()?;
        child.wait()?;
        Ok(true)
    }

    /// Syncs once without a kill, and compares.
    fn check(&mut self) -> Result<()> {
        for session in 0..SESSIONS {
            let bytes = self.read(session);
            let text = String::from_utf8_lossy(&bytes);
            let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
            let lines = complete.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let markers = lines.filter_map(|line| marker(line["message"]["content"].as_str()?));
            self.seen.entry(session).or_default().extend(markers);
        }
        sync(&self.client, &self.state)?;
        let archive = Archive::open(&self.state.join(FILE_NAME))?;
        let damage = archive.check()?;
        ensure!(damage.is_empty(), "{damage:?}");
        let mut all = BTreeSet::new();
        for (session, seen) in &self.seen {
            if seen.is_empty() {
                continue;
            }
            let mut shown = Vec::new();
            let id = format!("00000000-0000-4000-8000-{session:012}");
            let row = archive.show(&id, |message| {
                shown.extend(marker(&message.content));
                true
            })?;
            ensure!(row.messages == shown.len() as u64, "session {session} counts {} messages", row.messages);
            let unique: BTreeSet<u64> = shown.iter().copied().collect();
            ensure!(unique.len() == shown.len(), "session {session} has a message twice");
            if let Some(missing) = seen.difference(&unique).next() {
                bail!("session {session} lacks marker{missing}");
            }
            all.extend(unique);
        }
        let connection = rusqlite::Connection::open(archive.path())?;
        let stored: u64 = connection
            .query_row("SELECT count(*) FROM messages_meta", [], |row| row.get::<_, i64>(0))?
            as u64;
        ensure!(stored == all.len() as u64, "{stored} messages are stored, {} are in sessions", all.len());
        connection.execute_batch("INSERT INTO messages (messages) VALUES ('integrity-check')")?;
        let markers: Vec<u64> = all.into_iter().collect();
        for _ in 0..20 {
            let Some(marker) = markers.get(self.rng.usize(..markers.len().max(1))) else { break };
            let query = SearchQuery { text: format!("marker{marker}"), limit: 5, ..SearchQuery::default() };
            let hits = archive.search(&query, Markers { before: "", after: "" })?.hits.len();
            ensure!(hits == 1, "marker{marker} is found {hits} times");
        }
        Ok(())
    }
}

fn ended(child: &mut Child) -> Result<bool> {
    match child.try_wait()? {
        None => Ok(false),
        Some(status) => {
            ensure!(status.success(), "a sync failed: {status}");
            Ok(true)
        }
    }
}

fn marker(text: &str) -> Option<u64> {
    text.strip_prefix("marker")?.split(' ').next()?.parse().ok()
}

/// Makes transcripts with the shares of real ones: of 100 messages about 6 prompts, 20 answers, 12 thoughts and 31 calls
/// of tools with their outputs, which have most of the bytes. The words follow Zipf's law.
fn make_transcripts(client: &Path, sessions: usize, rng: &mut Rng) -> Result<(u64, u64)> {
    let words: Vec<String> =
        (0..20_000).map(|_| (0..rng.usize(2..10)).map(|_| rng.lowercase()).collect()).collect();
    let text = |rng: &mut Rng, count: usize| {
        let mut text = String::with_capacity(count * 7);
        for _ in 0..count {
            let at = ((words.len() as f64).powf(rng.f64()) - 1.0) as usize;
            text.push_str(&words[at.min(words.len() - 1)]);
            text.push(if rng.usize(..12) == 0 { '\n' } else { ' ' });
        }
        text
    };
    let (mut bytes, mut messages) = (0, 0);
    for session in 0..sessions {
        let folder = client.join(format!("projects/-work-p{}", session % 50));
        fs::create_dir_all(&folder)?;
        let id = format!("{:08x}-0000-4000-8000-{session:012x}", rng.u32(..));
        let mut lines = String::new();
        for number in 0..100_u32 {
            let uuid = format!("{:08x}-{:04x}-4000-8000-{session:08x}{number:04x}", rng.u32(..), rng.u16(..));
            let second = 1_700_000_000 + session as i64 * 3_000 + i64::from(number) * 20;
            let at = jiff::Timestamp::from_second(second)?;
            let call = format!("toolu_{session}_{}", number - number % 2);
            let (kind, content) = match number % 32 {
                0 | 16 => ("user", json!(text(rng, 40))),
                1..=4 | 17 | 18 => ("assistant", json!([{ "type": "text", "text": text(rng, 90) }])),
                5..=7 | 19 => ("assistant", json!([{ "type": "thinking", "thinking": text(rng, 70) }])),
                number if number % 2 == 0 => {
                    let file = format!("/work/p{}/src/{}.rs", session % 50, words[rng.usize(..200)]);
                    let (name, input) = match rng.usize(..3) {
                        0 => (
                            "Edit",
                            json!({ "file_path": file, "old_string": text(rng, 30), "new_string": text(rng, 40) }),
                        ),
                        1 => ("Read", json!({ "file_path": file })),
                        _ => ("Bash", json!({ "command": text(rng, 8) })),
                    };
                    ("assistant", json!([{ "type": "tool_use", "id": call, "name": name, "input": input }]))
                }
                _ => {
                    let output = text(rng, 500);
                    ("user", json!([{ "type": "tool_result", "tool_use_id": call, "content": output }]))
                }
            };
            let mut message = json!({ "role": kind, "content": content });
            if kind == "assistant" {
                message["id"] = format!("msg_{session}_{}", number / 3).into();
                message["model"] = "claude-sonnet-5".into();
                message["usage"] =
                    json!({ "input_tokens": 10, "output_tokens": 200, "cache_read_input_tokens": 9000 });
            }
            let line = json!({
                "parentUuid": null, "isSidechain": false, "userType": "external", "cwd": format!("/work/p{}", session % 50),
                "sessionId": id, "version": "2.1.0", "gitBranch": "main", "type": kind, "uuid": uuid,
                "timestamp": at.to_string(), "message": message,
            });
            writeln!(lines, "{line}")?;
            messages += 1;
        }
        bytes += lines.len() as u64;
        fs::write(folder.join(format!("{id}.jsonl")), lines)?;
    }
    Ok((bytes, messages))
}

fn measure(sessions: usize, seed: u64) -> Result<Value> {
    let mut rng = Rng::with_seed(seed);
    let home = tempfile::tempdir()?;
    let (client, state) = (home.path().join("client"), home.path().join("state"));
    let (bytes, messages) = make_transcripts(&client, sessions, &mut rng)?;
    let timed = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let begun = Instant::now();
        work()?;
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    };
    // In a process of its own, whose memory is measured.
    let mut memory_kib = 0;
    let first_ms = timed(&mut || {
        memory_kib = sync_process(&client, &state)?;
        Ok(())
    })?;
    let unchanged_ms = timed(&mut || sync(&client, &state).map(drop))?;
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let database = fs::metadata(archive.path())?.len();
    let folder = client.join("projects/-work-p0");
    let one = fs::read_dir(&folder)?.next().context("no transcript was made")??.path();
    let appended =
        json!({ "type": "user", "uuid": "appended", "message": { "role": "user", "content": "appended" } });
    fs::write(&one, fs::read_to_string(&one)? + &appended.to_string() + "\n")?;
    let settings =
        SyncSettings { only: Some(vec![fs::canonicalize(&one)?]), ..SyncSettings::new(state.join("own")) };
    let source = ClaudeCode::new(vec![client.clone()]);
    let appended_ms = timed(&mut || {
        archive.sync(&[&source], &settings)?;
        Ok(())
    })?;
    // Questions of two to five words of one answer.
    let newest = SearchQuery { limit: QUERIES * 4, ..SearchQuery::default() };
    let markers = Markers { before: "[", after: "]" };
    let answers: Vec<String> =
        archive.search(&newest, markers)?.hits.into_iter().map(|hit| hit.snippet).collect();
    let mut times = Vec::new();
    for number in 0..QUERIES {
        let words: Vec<&str> =
            answers[number % answers.len()].split_whitespace().filter(|word| word.len() > 3).collect();
        let count = rng.usize(2..6).min(words.len());
        let query =
            SearchQuery { text: words[..count].join(" "), limit: 10, context: 1, ..SearchQuery::default() };
        times.push(timed(&mut || {
            archive.search(&query, markers)?;
            Ok(())
        })?);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let seconds = first_ms / 1000.0;
    Ok(json!({
        "sessions": sessions,
        "messages": messages,
        "transcript_bytes": bytes,
        "first_sync_mb_per_s": (bytes as f64 / 1e6 / seconds).round(),
        "first_sync_memory_mib": memory_kib / 1024,
        "unchanged_resync_ms": unchanged_ms.round(),
        "appended_session_ms": appended_ms.round(),
        "database_bytes": database,
        "database_share": (database as f64 / bytes as f64 * 1000.0).round() / 1000.0,
        "search_p50_ms": at(0.5),
        "search_p99_ms": at(0.99),
    }))
}

/// Syncs in a process of its own. Returns the most memory that it had, in KiB.
fn sync_process(client: &Path, state: &Path) -> Result<u64> {
    let output = Command::new(std::env::current_exe()?).arg("archive-sync").args([client, state]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status = String::from_utf8(output.stdout)?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(peak.context("no VmHWM")?.parse()?)
}
