//! The session archive under kills, at scale, and against an independent count.
//!
//! `archive` without an option kills syncs; `--counts` compares real sessions, cut out of public repositories by
//! `stress/extraction/sessions.py`, with what `stress/archive/counts.py` counts in them; `--find` asks for real sessions
//! by questions of people who had read them; `--faults` runs every command where nothing can be written; `--scale`
//! measures on made ones.

mod faults;
mod find;
mod scale;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
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
const TRANSCRIPT_BYTES_MAX: u64 = 2 << 20;

#[derive(clap::Args)]
pub(crate) struct ArchiveArgs {
    /// How many syncs are killed while transcripts are appended to, truncated, forked and deleted
    #[arg(long, default_value_t = 500, conflicts_with_all = ["counts", "find", "faults", "scale"])]
    kills: usize,
    /// Compare the archive of this folder of transcripts with an independent count
    #[arg(long, value_name = "FOLDER")]
    counts: Option<PathBuf>,
    /// Find the sessions of this folder again: 60 questions about entireio/cli
    #[arg(long, value_name = "FOLDER", conflicts_with = "counts")]
    find: Option<PathBuf>,
    /// Run every command on a full disk, with another user's files and under a lock
    #[arg(long, conflicts_with_all = ["counts", "find"])]
    faults: bool,
    /// Measure on made transcripts
    #[arg(long, conflicts_with_all = ["counts", "find", "faults"])]
    scale: bool,
    /// How many sessions `--scale` makes, of 100 messages each
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
}

pub(crate) fn run(args: &ArchiveArgs, binary: &Path, seed: u64) -> Result<Value> {
    match (&args.counts, &args.find) {
        (Some(folder), _) => compare_counts(folder),
        (_, Some(folder)) => find::run(folder),
        _ if args.faults => faults::run(binary, seed),
        _ if args.scale => scale::run(args.sessions, binary, seed),
        _ => kill_syncs(args.kills, seed),
    }
}

/// The process that is killed: one sync.
pub(crate) fn run_sync(client: &Path, state: &Path, threads: usize) -> Result<()> {
    // As the product does, whose memory is measured.
    system::allocator::configure();
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let settings = SyncSettings { threads, ..SyncSettings::new(state.join("own")) };
    let summary = archive.sync(&[&ClaudeCode::new(vec![client.to_owned()])], &settings)?;
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
    copy_as_client(folder, &home.path().join("client"))?;
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

/// Copies transcripts to where a client has them, with their times, which decide whose a line is that several have.
fn copy_as_client(folder: &Path, client: &Path) -> Result<()> {
    let sessions = client.join("projects/-sessions");
    fs::create_dir_all(&sessions)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let copy = sessions.join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        fs::File::options().append(true).open(&copy)?.set_modified(entry.metadata()?.modified()?)?;
    }
    Ok(())
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
        let path = self.path(session);
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        match self.rng.usize(..20) {
            // Beyond this a change would take longer than the sync that it is to disturb.
            _ if length > TRANSCRIPT_BYTES_MAX => fs::remove_file(path)?,
            0 if length > 0 => fs::remove_file(path)?,
            1 if length > 0 => {
                fs::File::options().write(true).open(path)?.set_len(self.rng.u64(..=length))?
            }
            2 if length > 0 => {
                let other = self.rng.usize(..SESSIONS);
                let to = self.path(other);
                if to != path {
                    fs::copy(path, to)?;
                }
            }
            3 => append(&path, b"{\"type\":\"user\",\"uuid\":\"half a li")?,
            _ => {
                let mut lines = String::new();
                if !self.read(session).ends_with(b"\n") {
                    lines.push('\n');
                }
                for _ in 0..self.rng.usize(1..60) {
                    lines.push_str(&self.line());
                }
                append(&path, lines.as_bytes())?;
            }
        }
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
            let mut shown = Vec::new();
            let id = format!("00000000-0000-4000-8000-{session:012}");
            let row = match archive.show(&id, |message| {
                shown.extend(marker(&message.content));
                true
            }) {
                // It was never there when a sync looked.
                Err(::archive::Error::UnknownSession { .. }) if seen.is_empty() => continue,
                row => row?,
            };
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

fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(fs::File::options().create(true).append(true).open(path)?.write_all(bytes)?)
}

fn marker(text: &str) -> Option<u64> {
    text.strip_prefix("marker")?.split(' ').next()?.parse().ok()
}

/// Syncs in a process of its own. Returns the most memory that it had, in KiB.
fn sync_process(client: &Path, state: &Path) -> Result<u64> {
    let output = Command::new(std::env::current_exe()?).arg("archive-sync").args([client, state]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let status = String::from_utf8(output.stdout)?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(peak.context("no VmHWM")?.parse()?)
}
