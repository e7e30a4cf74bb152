//! Prints the lines of a folder's text files that redaction changes, so that a person can judge them:
//! `cargo run --release -p transcript --example redacted_lines FOLDER…`.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::collections::HashSet;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) = folders.split_first().ok_or("usage: redacted_lines FOLDER…")?;
    let mut walk = ignore::WalkBuilder::new(first);
    for folder in rest {
        walk.add(folder);
    }
    walk.sort_by_file_name(Ord::cmp);
    let (mut files, mut lines, mut changed, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut spent = Duration::ZERO;
    for entry in walk.build() {
        let entry = entry?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        // What is not UTF-8 is no text.
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        let start = Instant::now();
        let clean = transcript::redact::redact(&text);
        spent += start.elapsed();
        files += 1;
        lines += text.lines().count() as u64;
        bytes += text.len() as u64;
        let kept: HashSet<&str> = clean.lines().collect();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !kept.contains(line)) {
            changed += 1;
            let shown: String = line.trim().chars().take(200).collect();
            println!(
                "{}:{number}: {shown}\n    {}",
                entry.path().display(),
                transcript::redact::redact(&shown)
            );
        }
    }
    let (megabytes, seconds) = (bytes as f64 / 1e6, spent.as_secs_f64());
    println!("{changed} of {lines} lines in {files} files are redacted");
    println!("{megabytes:.1} MB in {seconds:.2} s: {:.0} MB/s", megabytes / seconds);
    Ok(())
}
