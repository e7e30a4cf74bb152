//! Measures reading, redacting and condensing the transcript of a long session, as for a model.
//!
//! The transcript repeats the lines of the repository's real transcripts, with unique ids, until it is large
//! enough. Each measurement runs in a new process, so that its memory can be measured too.

use std::fs;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use extract::Limits;
use serde_json::{Value, json};

use super::limit;

#[derive(clap::Args)]
pub(crate) struct TranscriptBenchArgs {
    /// The size of the transcript in millions of bytes
    #[arg(long, default_value_t = 100)]
    megabytes: u64,
    /// How many times each part is measured; the best counts, as other load can only make it slower
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

pub(crate) fn run(args: &TranscriptBenchArgs) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("long.jsonl");
    let bytes = write_transcript(&path, args.megabytes * 1_000_000)?;
    let mut best: [Option<Value>; 3] = [None, None, None];
    let (mut counted, seconds) = (f64::MAX, |result: &Value| result["seconds"].as_f64().unwrap_or(f64::MAX));
    for _ in 0..args.rounds.max(1) {
        let started = Instant::now();
        let counting = Command::new("wc").arg("-l").arg(&path).output()?;
        ensure!(counting.status.success(), "wc failed");
        counted = counted.min(started.elapsed().as_secs_f64());
        for (best, what) in best.iter_mut().zip(["json", "read", "condense"]) {
            let output = Command::new(std::env::current_exe()?).arg("pass").arg(what).arg(&path).output()?;
            ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            let result: Value = serde_json::from_slice(&output.stdout)?;
            if best.as_ref().is_none_or(|best| seconds(&result) < seconds(best)) {
                *best = Some(result);
            }
        }
    }
    let [parsed, read, condensed] = best.map(Option::unwrap_or_default);
    let rate = |result: &Value| (bytes as f64 / 1e6 / seconds(result)).round();
    let memory = condensed["resident_mib"].as_f64().unwrap_or(f64::MAX);
    let ratio = |a: f64, b: f64| (a / b * 10.0).round() / 10.0;
    Ok(json!({
        "megabytes": bytes as f64 / 1e6,
        "wc_seconds": counted,
        "serde_json": parsed,
        "read": read,
        "read_and_condense": condensed,
        "read_megabytes_per_second": rate(&read),
        "read_to_wc": ratio(seconds(&read), counted),
        "read_to_serde_json": ratio(seconds(&read), seconds(&parsed)),
        "condense_to_serde_json": ratio(seconds(&condensed), seconds(&parsed)),
        "limits": {
            "resident_mib": limit(memory, 300.0),
            "read_seconds_for_150_mb_a_second": limit(seconds(&read), bytes as f64 / 150e6),
            "condense_seconds": limit(seconds(&condensed), 10.0),
        },
    }))
}

/// Processes a transcript once and prints the time and the peak memory of this process.
pub(crate) fn run_pass(what: &str, path: &Path) -> Result<()> {
    let started = Instant::now();
    let mut parts = 0;
    match what {
        "json" => {
            for line in BufReader::new(fs::File::open(path)?).split(b'\n') {
                std::hint::black_box(serde_json::from_slice::<Value>(&line?)?);
            }
        }
        "read" => {
            std::hint::black_box(transcript::read(path, &|_| false)?);
        }
        _ => {
            let reading = transcript::read(path, &|_| false)?;
            parts = extract::build_questions(
                &reading.conversation,
                &extract::Known::default(),
                Limits::default(),
            )
            .len();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let kib: f64 = kib.context("no VmHWM")?.trim().parse()?;
    let result = json!({ "seconds": seconds, "resident_mib": (kib / 1024.0).round(), "questions": parts });
    println!("{result}");
    Ok(())
}

/// Writes a transcript of at least `bytes_min` bytes; returns its size.
fn write_transcript(path: &Path, bytes_min: u64) -> Result<u64> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts");
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![fixtures];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "jsonl") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        for line in fs::read_to_string(file)?.lines() {
            if let Ok(Value::Object(line)) = serde_json::from_str(line) {
                lines.push(line);
            }
        }
    }
    ensure!(!lines.is_empty(), "the fixtures have no transcript");
    let mut file = BufWriter::new(fs::File::create(path)?);
    let (mut bytes, mut number) = (0_u64, 0_u64);
    while bytes < bytes_min {
        let mut line = lines[number as usize % lines.len()].clone();
        if line.contains_key("uuid") {
            line.insert("uuid".to_owned(), format!("00000000-0000-4000-8000-{number:012x}").into());
        }
        let text = serde_json::to_string(&line)?;
        writeln!(file, "{text}")?;
        bytes += text.len() as u64 + 1;
        number += 1;
    }
    file.flush()?;
    Ok(bytes)
}
