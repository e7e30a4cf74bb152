//! Asks servers without a pause while the index is replaced and its folder is deleted.
//!
//! All units contain the same number, and each replacement increments it: an answer with two numbers mixes
//! two generations. The files are rewritten under the builder's lock, so that no builder reads them half
//! rewritten.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::sandbox::{McpClient, ProcessKind, Sandbox};

#[derive(clap::Args)]
pub(crate) struct ReadersArgs {
    /// How often the whole index is replaced
    #[arg(long, default_value_t = 1000)]
    swaps: u64,
    /// How many servers are asked meanwhile
    #[arg(long, default_value_t = 3)]
    servers: usize,
}

const TOPICS: [&str; 8] = ["plum", "quince", "pear", "fig", "cherry", "apricot", "rhubarb", "elder"];
const QUESTION: &str = "which jar of jam is on the shelf?";
/// A server is replaced by a new one, which reads everything from the disk, after so many answers.
const ANSWERS_EACH: usize = 200;
/// No answer may take longer, even if the index has to be opened twice after its folder was deleted.
const ANSWER_MAX: Duration = Duration::from_secs(25);

#[derive(Default)]
struct Observed {
    latencies_ms: Vec<f64>,
    /// Of the first answer of each server, which loads the model and the index.
    first_ms: Vec<f64>,
    /// Answers with more than one unit, all with one number.
    consistent: u64,
    /// Answers without a unit: the first index was not built yet.
    empty: u64,
    numbers: std::collections::BTreeSet<u64>,
}

pub(crate) fn run(args: &ReadersArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("readers --seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut sandbox = Sandbox::new(binary)?;
    let result = replace_and_read(args, &sandbox, &mut rng);
    if result.is_err() {
        eprintln!("sandbox kept in {}", sandbox.keep().display());
    }
    result
}

fn replace_and_read(args: &ReadersArgs, sandbox: &Sandbox, rng: &mut Rng) -> Result<Value> {
    replace_units(sandbox, 0, false)?;
    sandbox.run_ok(&["index"])?;
    let (is_over, reached) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut deleted = 0;
    let mut killed = 0;
    let observed = std::thread::scope(|scope| -> Result<Vec<Observed>> {
        let readers: Vec<_> =
            (0..args.servers).map(|_| scope.spawn(|| ask_servers(sandbox, &is_over, &reached))).collect();
        let mut replace = || -> Result<()> {
            for number in 1..=args.swaps {
                if readers.iter().any(|reader| reader.is_finished()) {
                    return Ok(());
                }
                let delete = rng.u64(..100) < 5;
                deleted += u64::from(delete);
                replace_units(sandbox, number, delete)?;
                // One builder in twenty is killed, and the next one does its work.
                let kill_after = (rng.u64(..100) < 5).then(|| Duration::from_millis(rng.u64(..400)));
                killed += u64::from(update_index(sandbox, kill_after)?);
                if number % 100 == 0 {
                    println!("{number} replacements");
                }
                reached.store(number, Ordering::SeqCst);
            }
            Ok(())
        };
        let replaced = replace();
        is_over.store(true, Ordering::SeqCst);
        let observed: Result<Vec<Observed>> = readers
            .into_iter()
            .map(|reader| reader.join().map_err(|_| anyhow::anyhow!("a reader's thread panicked"))?)
            .collect();
        replaced?;
        observed
    })?;

    let mut last = McpClient::start(sandbox)?.context("the last server was killed")?;
    let text = last.ask(QUESTION)?.context("the last server was killed")?;
    ensure!(numbers(&text).iter().all(|number| *number == args.swaps), "the last answer is outdated: {text}");
    last.shut_down()?;
    ensure!(sandbox.processes().is_empty(), "processes are left: {:?}", sandbox.processes());
    let mut latencies: Vec<f64> = observed.iter().flat_map(|one| one.latencies_ms.iter().copied()).collect();
    latencies.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        latencies.get((latencies.len() * percent / 100).min(latencies.len() - 1)).copied().unwrap_or(f64::NAN)
    };
    let first = observed.iter().flat_map(|one| one.first_ms.iter().copied()).fold(0.0, f64::max);
    let round = |value: f64| (value * 10.0).round() / 10.0;
    let numbers: std::collections::BTreeSet<u64> =
        observed.iter().flat_map(|one| one.numbers.iter().copied()).collect();
    Ok(json!({
        "swaps": args.swaps,
        "answers": latencies.len(),
        "consistent_answers": observed.iter().map(|one| one.consistent).sum::<u64>(),
        "mixed_answers": 0,
        "empty_answers": observed.iter().map(|one| one.empty).sum::<u64>(),
        "generations_seen": numbers.len(),
        "folder_deleted": deleted,
        "builders_killed": killed,
        "p50_ms": round(at(50)),
        "p99_ms": round(at(99)),
        "max_ms": round(at(100)),
        "first_answer_max_ms": round(first),
        "p99_to_median": round(at(99) / at(50)),
        "max_to_median": round(at(100) / at(50)),
    }))
}

/// Asks servers without a pause, one server after the other.
fn ask_servers(sandbox: &Sandbox, is_over: &AtomicBool, reached: &AtomicU64) -> Result<Observed> {
    let mut observed = Observed::default();
    while !is_over.load(Ordering::SeqCst) {
        let mut client = McpClient::start(sandbox)?.context("a server was killed")?;
        let mut newest = 0;
        for nth in 0..ANSWERS_EACH {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let floor = reached.load(Ordering::SeqCst);
            let started = Instant::now();
            let text = client.ask(QUESTION)?.context("a server was killed")?;
            let duration = started.elapsed();
            ensure!(duration < ANSWER_MAX, "an answer took {duration:?}");
            let latencies = if nth == 0 { &mut observed.first_ms } else { &mut observed.latencies_ms };
            latencies.push(duration.as_secs_f64() * 1000.0);
            let found = numbers(&text);
            let Some(number) = found.first().copied() else {
                observed.empty += 1;
                continue;
            };
            ensure!(
                found.iter().all(|other| *other == number),
                "the answer mixes generations {found:?}\n{text}"
            );
            ensure!(number >= newest, "generation {number} was answered after {newest}");
            // Generations older than the last one that was published before the question are outdated.
            ensure!(number + 1 >= floor, "generation {number} was answered, but {floor} was published");
            newest = number;
            observed.consistent += u64::from(found.len() > 1);
            observed.numbers.insert(number);
        }
        client.shut_down()?;
    }
    Ok(observed)
}

/// The numbers of the units in an answer.
fn numbers(text: &str) -> Vec<u64> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    text.split("batch number ").skip(1).filter_map(digits).collect()
}

/// Rewrites every unit while no builder runs.
fn replace_units(sandbox: &Sandbox, number: u64, delete: bool) -> Result<()> {
    let derived = sandbox.brain().join(".nugget");
    let mut lock = builder_lock(&derived)?;
    if delete {
        // A reader may create a file in it meanwhile.
        let mut tries = 0;
        while let Err(error) = fs::remove_dir_all(&derived) {
            tries += 1;
            ensure!(tries < 1000, "the folder cannot be deleted: {error}");
        }
        drop(lock);
        lock = builder_lock(&derived)?;
    }
    let folder = sandbox.brain().join("domains/shop/concepts");
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

/// Updates the index; with `kill_after`, kills a first builder. Returns whether one was killed.
fn update_index(sandbox: &Sandbox, kill_after: Option<Duration>) -> Result<bool> {
    let mut was_killed = false;
    if let Some(kill_after) = kill_after {
        let mut builder = sandbox.command(&["index"]);
        let mut builder =
            builder.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
        std::thread::sleep(kill_after);
        for process in sandbox.processes() {
            was_killed |= process.kind == ProcessKind::Other && sandbox.kill(process);
        }
        builder.wait()?;
    }
    sandbox.run_ok(&["index"])?;
    Ok(was_killed)
}
