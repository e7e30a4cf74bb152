//! Reads one transcript and says how fast: `cargo run --release -p transcript --example reading_speed FILE`.
#![expect(clippy::print_stdout, reason = "an example speaks to the person who runs it")]

use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("name a transcript")?);
    let start = Instant::now();
    let reading = transcript::read(&path, &|_| false)?;
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = reading.tally.bytes as f64 / 1e6;
    println!("{megabytes:.1} MB in {seconds:.3} s: {:.0} MB/s", megabytes / seconds);
    println!("{} events, {:?}", reading.conversation.events.len(), reading.tally);
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in peak.lines().filter(|line| line.starts_with("VmHWM")) {
        println!("{line}");
    }
    Ok(())
}
