//! Measures how fast a transcript is read: `cargo run --release -p transcript --example reading_speed FILE`.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("usage: reading_speed FILE")?);
    let start = Instant::now();
    let reading = transcript::read(&path, &|_| false)?;
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = reading.counts.bytes as f64 / 1e6;
    println!("{megabytes:.1} MB in {seconds:.3} s: {:.0} MB/s", megabytes / seconds);
    println!("{} events, {:?}", reading.conversation.events.len(), reading.counts);
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in peak.lines().filter(|line| line.starts_with("VmHWM")) {
        println!("{line}");
    }
    Ok(())
}
