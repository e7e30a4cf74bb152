//! The archive at scale: made transcripts with the shapes and shares of real ones.
//!
//! In real sessions of Claude Code, of 100 lines that say or do something about 4 are prompts, 16 answers, 16 thoughts
//! and 64 calls of tools with their results, which have nine tenths of the bytes, and repeat the output beside the
//! content (`toolUseResult`). The made ones are the same, at half the length a line.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ::archive::{Archive, ClaudeCode, FILE_NAME, Filter, SyncSettings};
use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::sync;
use crate::sandbox::Sandbox;
use crate::timing::{Durations, hundredths, ratio};

const MESSAGES: usize = 100;
const PROJECTS: usize = 50;
const VOCABULARY: usize = 30_000;
/// The most frequent words, which a question does not have or which are left out of it.
const STOP_WORDS: usize = 100;
const FILES: usize = 40;
const QUERIES: usize = 200;
const GREPS: usize = 5;
/// How many sessions get one more message each.
const APPENDED: usize = 40;
/// How many more sessions are synced while searches run, of a hundred.
const MORE_PERCENT: usize = 15;

/// Words by frequency, and the files of each project.
struct World {
    words: Vec<String>,
    /// Of each project, the lines of its files.
    files: Vec<Vec<Vec<String>>>,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        const ONSETS: &[&str] = &[
            "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "pl", "ch", "",
        ];
        const VOWELS: &[&str] = &["a", "e", "i", "o", "u", "ea", "io", "ou"];
        const CODAS: &[&str] = &["", "", "n", "r", "s", "t", "l", "nd", "ck"];
        let mut known = std::collections::HashSet::new();
        let mut words = Vec::with_capacity(VOCABULARY);
        while words.len() < VOCABULARY {
            // Frequent words are short.
            let syllables =
                1 + usize::from(words.len() > 80) + usize::from(words.len() > 3000) + rng.usize(..2);
            let mut word = String::new();
            for _ in 0..syllables {
                for part in [ONSETS, VOWELS, CODAS] {
                    word.push_str(part[rng.usize(..part.len())]);
                }
            }
            if known.insert(word.clone()) {
                words.push(word);
            }
        }
        let mut world = Self { words, files: Vec::new() };
        world.files = (0..PROJECTS)
            .map(|_| (0..FILES).map(|_| (0..300).map(|_| world.code(rng)).collect()).collect())
            .collect();
        world
    }

    /// A word by Zipf's law.
    fn word(&self, rng: &mut Rng) -> &str {
        let at = ((self.words.len() as f64).powf(rng.f64()) - 1.0) as usize;
        &self.words[at.min(self.words.len() - 1)]
    }

    fn text(&self, rng: &mut Rng, count: usize) -> String {
        let mut text = String::with_capacity(count * 7);
        for number in 0..count {
            if number > 0 {
                text.push_str(match rng.usize(..24) {
                    0 => "\n\n",
                    1 | 2 => ". ",
                    3 => ", ",
                    _ => " ",
                });
            }
            text.push_str(self.word(rng));
        }
        text
    }

    /// A line of code.
    fn code(&self, rng: &mut Rng) -> String {
        let indent = "    ".repeat(rng.usize(..4));
        let word = |rng: &mut Rng| self.word(rng);
        let (a, b, c) = (word(rng), word(rng), word(rng));
        match rng.usize(..9) {
            0 => format!("{indent}fn {a}_{b}(&self, {c}: &str) -> Result<(), Error> {{"),
            1 => format!("{indent}let {a} = {b}.{c}()?;"),
            2 => format!("{indent}if {a}.{b} == {} {{", rng.u16(..)),
            3 => format!("{indent}}}"),
            4 => format!("{indent}// {a} {b} {c} {}", self.text(rng, 6)),
            5 => format!("{indent}self.{a}_{b}.push({c});"),
            6 => format!("{indent}return Err(Error::{a}(\"{b} {c}\"));"),
            7 => String::new(),
            _ => format!("{indent}{a}.{b}({c}, {});", rng.u8(..)),
        }
    }

    /// What a command prints: a log, paths, or the lines of a search.
    fn output(&self, rng: &mut Rng, project: usize, lines: usize) -> String {
        let mut text = String::new();
        let kind = rng.usize(..3);
        for number in 0..lines {
            let file = rng.usize(..FILES);
            let _ = match kind {
                0 => writeln!(
                    text,
                    "2026-07-{:02}T{:02}:{:02}:{:02}.{:03}Z INFO {}: {} in {} ms",
                    1 + number % 28,
                    rng.usize(..24),
                    rng.usize(..60),
                    rng.usize(..60),
                    rng.usize(..1000),
                    self.word(rng),
                    self.text(rng, 6),
                    rng.u16(..900)
                ),
                1 => writeln!(
                    text,
                    "{}:{}:{}",
                    self.path(project, file),
                    rng.usize(1..300),
                    self.files[project][file][rng.usize(..300)]
                ),
                _ => writeln!(text, "test {}::{}_{} ... ok", self.word(rng), self.word(rng), self.word(rng)),
            };
        }
        text
    }

    fn path(&self, project: usize, file: usize) -> String {
        format!(
            "/work/p{project}/src/{}/{}.rs",
            self.words[200 + file % 7],
            self.words[300 + project * FILES + file]
        )
    }

    /// One session's transcript.
    fn session(&self, number: usize, rng: &mut Rng) -> (String, String) {
        let project = number % PROJECTS;
        let id = format!("{:08x}-0000-4000-8000-{number:012x}", rng.u32(..));
        let mut lines = String::with_capacity(MESSAGES * 2500);
        let mut parent = Value::Null;
        let mut call = (String::new(), String::new(), String::new());
        for at in 0..MESSAGES {
            let uuid = format!("{:08x}-{:04x}-4000-8000-{number:08x}{at:04x}", rng.u32(..), rng.u16(..));
            let second = 1_700_000_000 + number as i64 * 3_000 + at as i64 * 20;
            let time = jiff::Timestamp::from_second(second).map(|time| time.to_string()).unwrap_or_default();
            let mut result = Value::Null;
            let (kind, content) = match at % 25 {
                0 => ("user", json!(self.text(rng, 60))),
                1 | 7 | 16 | 24 => ("assistant", json!([{ "type": "text", "text": self.text(rng, 110) }])),
                2 | 8 | 11 | 19 => {
                    let signature = base64(rng, 300);
                    (
                        "assistant",
                        json!([{ "type": "thinking", "thinking": self.text(rng, 90), "signature": signature }]),
                    )
                }
                _ if call.0.is_empty() => {
                    let file = rng.usize(..FILES);
                    let path = self.path(project, file);
                    let lines = &self.files[project][file];
                    let from = rng.usize(..250);
                    let id = format!("toolu_{number:06}{at:03}{:08x}", rng.u32(..));
                    let (name, input, output) = match rng.usize(..4) {
                        0 => {
                            let old = lines[from..from + 5].join("\n");
                            let new = format!("{old}\n{}", self.code(rng));
                            let shown = format!("The file {path} has been updated.\n{new}");
                            (
                                "Edit",
                                json!({ "file_path": path, "old_string": old, "new_string": new }),
                                shown,
                            )
                        }
                        1 => {
                            let mut shown = String::new();
                            for (number, line) in lines.iter().enumerate().skip(from).take(45) {
                                let _ = writeln!(shown, "{number:6}→{line}");
                            }
                            ("Read", json!({ "file_path": path, "offset": from, "limit": 45 }), shown)
                        }
                        _ => {
                            let command = format!("{} {} | head -{}", self.word(rng), path, rng.u8(..));
                            let described = self.text(rng, 6);
                            (
                                "Bash",
                                json!({ "command": command, "description": described }),
                                self.output(rng, project, 24),
                            )
                        }
                    };
                    call = (id.clone(), name.to_owned(), output);
                    ("assistant", json!([{ "type": "tool_use", "id": id, "name": name, "input": input }]))
                }
                _ => {
                    let (id, name, output) = std::mem::take(&mut call);
                    result = match name.as_str() {
                        "Bash" => {
                            json!({ "stdout": output, "stderr": "", "interrupted": false, "isImage": false })
                        }
                        "Read" => {
                            json!({ "type": "text", "file": { "content": output, "numLines": 45, "startLine": 1 } })
                        }
                        _ => {
                            json!({ "filePath": "", "structuredPatch": [{ "lines": output.lines().collect::<Vec<_>>() }] })
                        }
                    };
                    let content = match rng.usize(..2000) {
                        0 => {
                            json!([{ "type": "image", "source": { "type": "base64", "data": base64(rng, 40_000) } }])
                        }
                        _ => json!(output),
                    };
                    ("user", json!([{ "type": "tool_result", "tool_use_id": id, "content": content }]))
                }
            };
            let mut message = json!({ "role": kind, "content": content });
            if kind == "assistant" {
                message["id"] = format!("msg_{number}_{}", at / 3).into();
                message["model"] = "claude-sonnet-5".into();
                message["usage"] = json!({
                    "input_tokens": 10, "cache_creation_input_tokens": 500, "cache_read_input_tokens": 9000,
                    "output_tokens": 200, "service_tier": "standard",
                });
            }
            let mut line = json!({
                "parentUuid": parent, "isSidechain": false, "userType": "external", "cwd": format!("/work/p{project}"),
                "sessionId": id, "version": "2.1.0", "gitBranch": "main", "type": kind, "message": message,
                "uuid": uuid, "timestamp": time,
            });
            if !result.is_null() {
                line["toolUseResult"] = result;
            }
            parent = uuid.into();
            let _ = writeln!(lines, "{line}");
        }
        (id, lines)
    }
}

fn base64(rng: &mut Rng, length: usize) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..length).map(|_| DIGITS[rng.usize(..64)] as char).collect()
}

/// Writes the transcripts of sessions with these numbers; how many bytes. Each session has a seed of its own.
fn write_sessions(world: &World, client: &Path, numbers: std::ops::Range<usize>, seed: u64) -> Result<u64> {
    let next = AtomicUsize::new(numbers.start);
    let work = || -> Result<u64> {
        let mut bytes = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return Ok(bytes);
            }
            let mut rng = Rng::with_seed(seed ^ ((number as u64) << 20));
            let (id, lines) = world.session(number, &mut rng);
            let folder = client.join(format!("projects/-work-p{}", number % PROJECTS));
            fs::create_dir_all(&folder)?;
            bytes += lines.len() as u64;
            let path = folder.join(format!("{id}.jsonl"));
            fs::write(&path, lines)?;
            // The sessions have ended a while ago.
            let hour = std::time::Duration::from_secs(3600);
            fs::File::options().append(true).open(path)?.set_modified(std::time::SystemTime::now() - hour)?;
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work()?;
        Ok(mine + other.join().ok().context("a thread has panicked")??)
    })
}

pub(super) fn run(sessions: usize, binary: &Path, seed: u64) -> Result<Value> {
    let mut rng = Rng::with_seed(seed);
    let world = World::new(&mut rng);
    let sandbox = Sandbox::without_brain(binary)?;
    let (client, state) = (sandbox.path(".claude"), sandbox.path("state/nugget"));
    let bytes = write_sessions(&world, &client, 0..sessions, seed)?;
    eprintln!("made {} MB", bytes / 1_000_000);
    let mut result =
        json!({ "sessions": sessions, "messages": sessions * MESSAGES, "transcript_mb": bytes / 1_000_000 });
    measure_sync(&client, &state, bytes, &mut result)?;
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let counted = archive.stats(&Filter::default(), &TimeZone::UTC)?.messages;
    let appended = sessions.div_ceil(PROJECTS).min(APPENDED);
    ensure!(counted == (sessions * MESSAGES + appended) as u64, "{counted} messages are archived");
    let queries = queries(&archive, &world, &mut rng)?;
    measure_search(&sandbox, &client, &queries, &mut result)?;
    result["vectors"] = add_vectors(&archive, &mut rng)?.into();
    let meaning = search_all(&sandbox, &queries, &[])?;
    result["search_with_meaning"] = meaning.summary();
    let more = sessions..sessions + sessions * MORE_PERCENT / 100;
    write_sessions(&world, &client, more, seed)?;
    result["while_syncing"] = measure_while_syncing(&sandbox, &client, &state, &queries)?;
    Ok(result)
}

fn measure_sync(client: &Path, state: &Path, bytes: u64, result: &mut Value) -> Result<()> {
    // In a process of its own, whose memory is measured.
    let begun = Instant::now();
    let memory_kib = super::sync_process(client, state)?;
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("first sync: {seconds:.1} s");
    result["first_sync_mb_per_s"] = hundredths(bytes as f64 / 1e6 / seconds).into();
    result["first_sync_mib_max"] = (memory_kib / 1024).into();
    let database = fs::metadata(state.join(FILE_NAME))?.len();
    result["database_mb"] = (database / 1_000_000).into();
    result["database_to_transcripts"] = hundredths(database as f64 / bytes as f64).into();
    let mut unchanged = Durations::default();
    for _ in 0..5 {
        unchanged.measure(|| sync(client, state))?;
    }
    result["unchanged_resync"] = unchanged.summary();
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let source = ClaudeCode::new(vec![client.to_owned()]);
    let settings = SyncSettings::new(state.join("own"));
    let mut appended = Durations::default();
    for (number, entry) in fs::read_dir(client.join("projects/-work-p0"))?.take(APPENDED).enumerate() {
        let path = entry?.path();
        let message = json!({ "role": "user", "content": format!("appended {number}") });
        let line = json!({ "type": "user", "uuid": format!("appended-{number}"), "message": message });
        fs::write(&path, format!("{}{line}\n", fs::read_to_string(&path)?))?;
        let summary = appended.measure(|| Ok(archive.sync(&[&source], &settings)?))?;
        ensure!(summary.messages == 1, "{} messages are new", summary.messages);
    }
    result["appended_session"] = appended.summary();
    Ok(())
}

/// Questions of two to five words of one answer, that are none of the most frequent.
fn queries(archive: &Archive, world: &World, rng: &mut Rng) -> Result<Vec<String>> {
    let stop: std::collections::HashSet<&str> =
        world.words[..STOP_WORDS].iter().map(String::as_str).collect();
    let mut queries = Vec::new();
    let sessions = archive.sessions(&Filter::default(), true, usize::MAX >> 1)?;
    while queries.len() < QUERIES {
        let session = &sessions[rng.usize(..sessions.len())];
        let mut answers = Vec::new();
        archive.show(&session.id, |message| {
            if message.kind == ::archive::MessageKind::Answer {
                answers.push(message.content.clone());
            }
            true
        })?;
        let answer = &answers[rng.usize(..answers.len())];
        let words: Vec<&str> = answer
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| word.len() > 2 && !stop.contains(word))
            .collect();
        let count = rng.usize(2..6).min(words.len());
        let from = rng.usize(..=words.len() - count);
        queries.push(words[from..from + count].join(" "));
    }
    Ok(queries)
}

fn search_all(sandbox: &Sandbox, queries: &[String], options: &[&str]) -> Result<Durations> {
    let mut times = Durations::default();
    for query in queries {
        let arguments: Vec<&str> =
            ["search"].iter().chain(options).copied().chain([query.as_str()]).collect();
        let mut command = sandbox.command(&arguments);
        let output = times.measure(|| Ok(command.output()?))?;
        ensure!(
            output.status.success() && !output.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(times)
}

fn measure_search(sandbox: &Sandbox, client: &Path, queries: &[String], result: &mut Value) -> Result<()> {
    let binary = search_all(sandbox, queries, &["--words"])?;
    // The same expressions in SQLite alone: those with all words, and those with any if these are too few.
    let connection = rusqlite::Connection::open(sandbox.path("state/nugget").join(FILE_NAME))?;
    let mut statement =
        connection.prepare("SELECT rowid FROM messages WHERE messages MATCH ?1 ORDER BY rank LIMIT 10")?;
    let mut alone = Durations::default();
    for query in queries {
        alone.measure(|| {
            for operator in [" AND ", " OR "] {
                let words: Vec<String> = query.split(' ').map(|word| format!("\"{word}\"")).collect();
                let found = statement.query_map([words.join(operator)], |row| row.get::<_, i64>(0))?;
                if found.collect::<Result<Vec<_>, _>>()?.len() >= 10 {
                    break;
                }
            }
            Ok(())
        })?;
    }
    let (mut grep, mut program) = (Durations::default(), "grep");
    for query in queries.iter().take(GREPS) {
        let mut command = Command::new("rg");
        command.args(["--files-with-matches", "--ignore-case", "--fixed-strings", query]).arg(client);
        let found = grep.measure(|| match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            output => Ok(Some(output?)),
        })?;
        if found.is_none() {
            grep.0.pop();
            let mut command = Command::new("grep");
            command.env("LC_ALL", "C").args(["-r", "-l", "-i", "-F", query]).arg(client);
            grep.measure(|| Ok(command.stdout(Stdio::null()).status()?))?;
        } else {
            program = "rg";
        }
    }
    result["search"] = binary.summary();
    result["fts5_alone"] = alone.summary();
    result["search_p50_to_fts5"] = ratio(&binary, &alone, 50).into();
    result["search_p99_to_fts5"] = ratio(&binary, &alone, 99).into();
    result["grep"] = grep.summary();
    result["grep_program"] = program.into();
    result["grep_p50_to_search"] = ratio(&grep, &binary, 50).into();
    Ok(())
}

/// Gives every message that would have one a vector; made ones, which take as long to compare.
fn add_vectors(archive: &Archive, rng: &mut Rng) -> Result<u64> {
    let mut count = 0;
    let mut rest = Some(0..archive.last_message()? + 1);
    while let Some(range) = rest {
        let found = archive.unembedded(embed::BUILT_IN_NAME, range, 5000)?;
        count += found.messages.len() as u64;
        let vector = |rng: &mut Rng| (0..embed::BUILT_IN_DIMENSIONS).map(|_| rng.f32() - 0.5).collect();
        let vectors: Vec<(i64, Vec<f32>)> =
            found.messages.iter().map(|message| (message.message, vector(rng))).collect();
        archive.store_vectors(embed::BUILT_IN_NAME, &vectors)?;
        rest = found.rest;
    }
    Ok(count)
}

/// Searches while another process adds sessions, as a worker does: one thread of low priority.
fn measure_while_syncing(
    sandbox: &Sandbox,
    client: &Path,
    state: &Path,
    queries: &[String],
) -> Result<Value> {
    let quiet = search_all(sandbox, queries, &["--words"])?;
    let mut child = Command::new("nice")
        .args(["-n", "10"])
        .arg(std::env::current_exe()?)
        .args(["archive-sync", "--threads", "1"])
        .args([client, state])
        .stdout(Stdio::null())
        .spawn()?;
    let mut busy = Durations::default();
    for query in queries.iter().cycle() {
        if super::ended(&mut child)? {
            break;
        }
        let part = search_all(sandbox, std::slice::from_ref(query), &["--words"])?;
        busy.0.extend(part.0);
    }
    Ok(json!({
        "search": busy.summary(), "without": quiet.summary(),
        "p50_to_without": ratio(&busy, &quiet, 50), "p99_to_without": ratio(&busy, &quiet, 99),
    }))
}
