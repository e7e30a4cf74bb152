//! Servers answer without pause while the index is swapped under them, its vector files are torn and
//! its folder is deleted.
//!
//! All units carry one number, which is raised in all of them for each swap: an answer with two
//! numbers is of two generations. The files are rewritten under the builder's lock, so that no
//! builder reads them half rewritten.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::machine::{Client, Kind, Machine, Random};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How often the whole index is swapped
    #[arg(long, default_value_t = 1000)]
    swaps: u64,
    /// How many servers answer meanwhile
    #[arg(long, default_value_t = 3)]
    servers: usize,
}

const TOPICS: [&str; 8] = ["plum", "quince", "pear", "fig", "cherry", "apricot", "rhubarb", "elder"];
const QUESTION: &str = "which jar of jam is on the shelf?";
/// A server is started anew after so many answers: it then reads everything from the disk.
const ANSWERS_EACH: usize = 200;
/// A second look may be needed after the folder was deleted; no answer may take longer than this.
const ANSWER_MAX: Duration = Duration::from_secs(25);

#[derive(Default)]
struct Seen {
    latencies_ms: Vec<f64>,
    /// Of the first answer of each server, which loads the model and the index.
    first_ms: Vec<f64>,
    /// Answers that named more than one unit, all of one number.
    whole: u64,
    /// Answers without a unit: the first index was not made yet.
    empty: u64,
    numbers: std::collections::BTreeSet<u64>,
}

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    println!("readers --seed {seed}");
    let mut random = Random::new(seed);
    let mut machine = Machine::new(program)?;
    let result = storm(arguments, &machine, &mut random);
    if result.is_err() {
        eprintln!("the machine is kept in {}", machine.keep().display());
    }
    result
}

fn storm(arguments: &Arguments, machine: &Machine, random: &mut Random) -> Result<Value> {
    swap(machine, 0, false)?;
    machine.ok(&["index"])?;
    let (over, reached) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut torn = 0;
    let mut deleted = 0;
    let mut killed = 0;
    let seen = std::thread::scope(|scope| -> Result<Vec<Seen>> {
        let readers: Vec<_> =
            (0..arguments.servers).map(|_| scope.spawn(|| read(machine, &over, &reached))).collect();
        let mut swapping = || -> Result<()> {
            for number in 1..=arguments.swaps {
                if readers.iter().any(|reader| reader.is_finished()) {
                    return Ok(());
                }
                let delete = random.chance(5);
                deleted += u64::from(delete);
                swap(machine, number, delete)?;
                if random.chance(10) {
                    torn += u64::from(tear(machine, random)?);
                }
                // One builder in twenty is killed at its work, and the next one does it.
                let fate = random.chance(5).then(|| Duration::from_millis(random.below(400)));
                killed += u64::from(index(machine, fate)?);
                if number % 100 == 0 {
                    println!("{number} swaps");
                }
                reached.store(number, Ordering::SeqCst);
            }
            Ok(())
        };
        let swapped = swapping();
        over.store(true, Ordering::SeqCst);
        let seen: Result<Vec<Seen>> = readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| anyhow::anyhow!("a reader's thread fell"))?)
            .collect();
        swapped?;
        seen
    })?;

    let mut last = Client::start(machine)?.context("the last server was killed")?;
    let text = last.ask(QUESTION)?.context("the last server was killed")?;
    ensure!(numbers(&text).iter().all(|number| *number == arguments.swaps), "the last answer is old: {text}");
    last.end()?;
    ensure!(machine.processes().is_empty(), "processes are left: {:?}", machine.processes());
    let temporary = fs::read_dir(machine.brain().join(".nugget"))?.flatten();
    let left: Vec<_> = temporary
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().ends_with(".tmp"))
        .collect();

    let mut latencies: Vec<f64> = seen.iter().flat_map(|seen| seen.latencies_ms.iter().copied()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        latencies.get((latencies.len() * percent / 100).min(latencies.len() - 1)).copied().unwrap_or(f64::NAN)
    };
    let first = seen.iter().flat_map(|seen| seen.first_ms.iter().copied()).fold(0.0, f64::max);
    let round = |value: f64| (value * 10.0).round() / 10.0;
    let numbers: std::collections::BTreeSet<u64> =
        seen.iter().flat_map(|seen| seen.numbers.iter().copied()).collect();
    Ok(json!({
        "swaps": arguments.swaps,
        "answers": latencies.len(),
        "whole_answers": seen.iter().map(|seen| seen.whole).sum::<u64>(),
        "empty_answers": seen.iter().map(|seen| seen.empty).sum::<u64>(),
        "generations_seen": numbers.len(),
        "vector_files_torn": torn,
        "folder_deleted": deleted,
        "builders_killed": killed,
        "temporary_files_left": left.len(),
        "p50_ms": round(at(50)),
        "p99_ms": round(at(99)),
        "max_ms": round(at(100)),
        "first_answer_max_ms": round(first),
        "p99_to_median": round(at(99) / at(50)),
        "max_to_median": round(at(100) / at(50)),
    }))
}

/// One server after the other, question after question.
fn read(machine: &Machine, over: &AtomicBool, reached: &AtomicU64) -> Result<Seen> {
    let mut seen = Seen::default();
    while !over.load(Ordering::SeqCst) {
        let mut client = Client::start(machine)?.context("a server was killed")?;
        let mut newest = 0;
        for nth in 0..ANSWERS_EACH {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let floor = reached.load(Ordering::SeqCst);
            let begun = Instant::now();
            let text = client.ask(QUESTION)?.context("a server was killed")?;
            let taken = begun.elapsed();
            ensure!(taken < ANSWER_MAX, "an answer took {taken:?}");
            let latencies = if nth == 0 { &mut seen.first_ms } else { &mut seen.latencies_ms };
            latencies.push(taken.as_secs_f64() * 1000.0);
            let found = numbers(&text);
            let Some(number) = found.first().copied() else {
                seen.empty += 1;
                continue;
            };
            ensure!(
                found.iter().all(|other| *other == number),
                "an answer of two generations: {found:?}\n{text}"
            );
            ensure!(number >= newest, "an answer of generation {number} after one of {newest}");
            // A generation that was published before the question is the oldest to answer from.
            ensure!(number + 1 >= floor, "an answer of generation {number}, {floor} was there already");
            newest = number;
            seen.whole += u64::from(found.len() > 1);
            seen.numbers.insert(number);
        }
        client.end()?;
    }
    Ok(seen)
}

/// The numbers of the units in an answer.
fn numbers(text: &str) -> Vec<u64> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    text.split("batch number ").skip(1).filter_map(digits).collect()
}

/// Rewrites every unit while no builder works.
fn swap(machine: &Machine, number: u64, delete: bool) -> Result<()> {
    let derived = machine.brain().join(".nugget");
    let mut lock = builder_lock(&derived)?;
    if delete {
        // A reader may put a file back meanwhile.
        let mut tries = 0;
        while let Err(error) = fs::remove_dir_all(&derived) {
            tries += 1;
            ensure!(tries < 1000, "the folder cannot be deleted: {error}");
        }
        drop(lock);
        lock = builder_lock(&derived)?;
    }
    let folder = machine.brain().join("domains/shop/concepts");
    fs::create_dir_all(&folder)?;
    for topic in TOPICS {
        let text = format!(
            "---\nid: {topic}\ntype: concept\ndomain: shop\ntitle: The jar of {topic} jam\ntags: []\nconfidence: 0.9\n\
             source: hand\nrelated: []\n---\n\n# The jar of {topic} jam\n\nOn the shelf, a jar of {topic} jam of batch number {number}.\n"
        );
        let temporary = folder.join(format!("{topic}.new"));
        fs::write(&temporary, text)?;
        fs::rename(temporary, folder.join(format!("{topic}.md")))?;
    }
    drop(lock);
    Ok(())
}

/// The lock that a builder of the index holds while it reads the files.
fn builder_lock(folder: &Path) -> Result<File> {
    loop {
        fs::create_dir_all(folder)?;
        let path = folder.join("index.lock");
        let file = match File::options().create(true).truncate(false).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        fs2::FileExt::lock_exclusive(&file)?;
        // The folder may have been deleted while we waited.
        let named = fs::metadata(&path).ok().map(|metadata| metadata.ino());
        if named == Some(file.metadata()?.ino()) {
            return Ok(file);
        }
    }
}

/// Cuts or scribbles over a vector file; whether there was one.
fn tear(machine: &Machine, random: &mut Random) -> Result<bool> {
    let entries = fs::read_dir(machine.brain().join(".nugget"))?.flatten();
    let files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vectors-")))
        .collect();
    let Some(path) = files.get(random.below(files.len() as u64) as usize) else { return Ok(false) };
    let Ok(file) = File::options().write(true).open(path) else { return Ok(false) };
    let length = file.metadata()?.len();
    if random.chance(50) {
        file.set_len(random.below(length))?;
    } else {
        std::os::unix::fs::FileExt::write_all_at(&file, b"torn", random.below(length.max(4) - 3))?;
    }
    Ok(true)
}

/// Brings the index up to date; whether the builder was killed first.
fn index(machine: &Machine, fate: Option<Duration>) -> Result<bool> {
    let mut died = false;
    if let Some(fate) = fate {
        let mut builder = machine.command(&["index"]);
        let mut builder =
            builder.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
        std::thread::sleep(fate);
        for process in machine.processes() {
            died |= process.kind == Kind::Other && machine.kill(process);
        }
        builder.wait()?;
    }
    machine.ok(&["index"])?;
    Ok(died)
}
