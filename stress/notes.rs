//! Agents that write, link and remember at once, each through a server of its own, while servers are killed: nothing that
//! was acknowledged is lost or doubled, and no link is in one of its notes only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use git::Repository;
use notes::{Notebook, content};
use serde_json::{Value, json};

use crate::sandbox::{McpClient, ProcessKind, Sandbox};

#[derive(clap::Args)]
pub(crate) struct NotesArgs {
    /// How many agents write at once
    #[arg(long, default_value_t = 8)]
    agents: usize,
    /// How many servers are killed
    #[arg(long, default_value_t = 200)]
    kills: usize,
}

/// The places at which a build with failpoints dies, between the steps of one write.
const PLACES: [(&str, &str); 4] = [
    ("git-after-objects", "the commit is written and no branch has it"),
    ("git-before-ref", "the same, with the lock of the branch"),
    ("git-after-ref", "the branch has it, and nobody was told"),
    ("notes-after-ref", "the queue does not have it"),
];
/// Every second kill is at one of them.
const KILLS_PER_PLACE: usize = 8;
/// So many writes are acknowledged between two kills, if that does not take too long.
const WRITES_BETWEEN_KILLS: std::ops::Range<usize> = 0..8;
const BETWEEN_KILLS_MAX: Duration = Duration::from_secs(4);
/// A kill comes so long after the last of these writes, to hit the next one.
const INTO_WRITE_MS: std::ops::Range<u64> = 0..60;
const DEADLINE: Duration = Duration::from_secs(1500);
const TOOLS: &str = "get_relevant_context,create_note,add_link,remember,recall";

/// What agents were told is written.
#[derive(Default)]
struct Acknowledged {
    titles: Vec<String>,
    links: Vec<(String, String, String)>,
    /// The last value of each agent's key that was acknowledged.
    facts: BTreeMap<String, usize>,
}

pub(crate) fn run(args: &NotesArgs, binary: &Path, seed: u64) -> Result<Value> {
    eprintln!("notes --seed {seed} --agents {} --kills {}", args.agents, args.kills);
    let mut sandbox = Sandbox::new(binary)?;
    let marks = sandbox.path("marks");
    std::fs::create_dir(&marks)?;
    let places: Vec<String> = PLACES.iter().map(|(place, _)| format!("{place}={KILLS_PER_PLACE}")).collect();
    let plain = [
        ("NUGGET_MCP_TOOLS", TOOLS.to_owned()),
        ("NUGGET_NOTES_AGENT_WRITES_PER_HOUR", "10000".to_owned()),
        ("NUGGET_SWEEP_ENABLED", "off".to_owned()),
    ];
    let deadly =
        [("FAILPOINTS", places.join(";")), ("FAILPOINT_MARKS", marks.to_string_lossy().into_owned())];
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    sandbox.variables.extend(plain.into_iter().chain(deadly).map(named));

    let (acknowledged, killed) = (Mutex::new(Acknowledged::default()), AtomicUsize::new(0));
    let (is_over, restarts, written) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let agents: Vec<_> = (0..args.agents)
            .map(|agent| {
                let (sandbox, acknowledged, written) = (&sandbox, &acknowledged, &written);
                let (is_over, restarts) = (&is_over, &restarts);
                let random = Rng::with_seed(seed.wrapping_mul(1000) + agent as u64);
                scope.spawn(move || {
                    let done = Agent { number: agent, sandbox, acknowledged, written, random }
                        .write_until(is_over, restarts);
                    is_over.store(done.is_err() || is_over.load(Ordering::SeqCst), Ordering::SeqCst);
                    done
                })
            })
            .collect();
        let mut random = Rng::with_seed(seed);
        let at_places = || std::fs::read_dir(&marks).map_or(0, Iterator::count);
        while killed.load(Ordering::SeqCst) + at_places() < args.kills && !is_over.load(Ordering::SeqCst) {
            let wanted = written.load(Ordering::SeqCst) + random.usize(WRITES_BETWEEN_KILLS);
            let since = Instant::now();
            while written.load(Ordering::SeqCst) < wanted && since.elapsed() < BETWEEN_KILLS_MAX {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(random.u64(INTO_WRITE_MS)));
            let mut servers = sandbox.processes();
            servers.retain(|process| process.kind == ProcessKind::Server);
            if let Some(server) = random.choice(servers)
                && sandbox.kill(server)
            {
                killed.fetch_add(1, Ordering::SeqCst);
            }
            if begun.elapsed() > DEADLINE {
                is_over.store(true, Ordering::SeqCst);
                bail!("only {killed:?} servers were killed within {DEADLINE:?}");
            }
        }
        is_over.store(true, Ordering::SeqCst);
        agents.into_iter().try_for_each(|agent| agent.join().unwrap_or_else(|_| bail!("an agent panicked")))
    })?;
    let at_places = std::fs::read_dir(&marks)?.count();
    sandbox.variables.retain(|(name, _)| !name.starts_with("FAILPOINT"));
    // One more write finds everything as the killed ones left it.
    let mut server = McpClient::start(&sandbox)?.context("the server was killed")?;
    let last = server.call("create_note", json!({ "title": "the last note", "content": "x" }))?;
    ensure!(last.is_some_and(|last| last.is_ok()), "nothing can be written after the kills");
    server.shut_down()?;

    let acknowledged = acknowledged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let counts = check(&sandbox, &acknowledged)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(json!({
        "agents": args.agents, "kills": killed.into_inner() + at_places, "at_failpoints": at_places,
        "servers_started": restarts.into_inner(), "acknowledged": {
            "notes": acknowledged.titles.len(), "links": acknowledged.links.len(), "keys": acknowledged.facts.len(),
        },
        "found": counts, "lost": 0, "doubled": 0, "one_way_links": 0, "seconds": seconds.round(),
    }))
}

/// One agent with a server of its own.
struct Agent<'a> {
    number: usize,
    sandbox: &'a Sandbox,
    acknowledged: &'a Mutex<Acknowledged>,
    written: &'a AtomicUsize,
    random: Rng,
}

impl Agent<'_> {
    fn write_until(mut self, is_over: &AtomicBool, restarts: &AtomicUsize) -> Result<()> {
        let mut step = 0;
        while !is_over.load(Ordering::SeqCst) {
            restarts.fetch_add(1, Ordering::SeqCst);
            let Some(mut server) = McpClient::start(self.sandbox)? else { continue };
            while !is_over.load(Ordering::SeqCst) {
                step += 1;
                if self.write(&mut server, step)?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One write; `None` if the server was killed, and then it may be written or not.
    fn write(&mut self, server: &mut McpClient, step: usize) -> Result<Option<()>> {
        let titles = self.seen().titles.clone();
        match self.random.u8(..4) {
            0 if titles.len() > 1 => {
                let mut any = || titles[self.random.usize(..titles.len())].clone();
                let (one, other, reason) = (any(), any(), format!("reason {}", step % 3));
                if one == other {
                    return Ok(Some(()));
                }
                let arguments = json!({ "note": one, "other": other, "reason": reason });
                let Some(answer) = server.call("add_link", arguments)? else { return Ok(None) };
                match answer {
                    Ok(_) => self.seen().links.push((one, other, reason)),
                    // Many links to a few notes reach the limit.
                    Err(error) => ensure!(error.contains("number of links"), "add_link: {error}"),
                }
            }
            1 => {
                let key = format!("key of agent {}", self.number);
                let arguments = json!({ "key": key, "value": format!("value {step}") });
                let Some(answer) = server.call("remember", arguments)? else { return Ok(None) };
                answer.map_err(anyhow::Error::msg).context("remember")?;
                self.seen().facts.insert(key, step);
            }
            _ => {
                let title = format!("note {step} of agent {}", self.number);
                let arguments = json!({ "title": title, "content": "Written while others write." });
                let Some(answer) = server.call("create_note", arguments)? else { return Ok(None) };
                answer.map_err(anyhow::Error::msg).context("create_note")?;
                self.seen().titles.push(title);
            }
        }
        self.written.fetch_add(1, Ordering::SeqCst);
        Ok(Some(()))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Acknowledged> {
        self.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Everything acknowledged is on the branch once, every link is in both of its notes, and the queue has the last commit.
fn check(sandbox: &Sandbox, acknowledged: &Acknowledged) -> Result<Value> {
    let output = sandbox.git_command(&["fsck", "--full", "--strict"]).output()?;
    ensure!(output.status.success(), "git fsck: {}", String::from_utf8_lossy(&output.stderr));
    let repository = Repository::open(&sandbox.brain())?;
    let branch = actors::notes::agents_branch();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let files = repository.branch_files(&branch)?.into_iter().map(|(path, bytes)| (path, text(bytes)));
    let notebook = Notebook::new(files.collect::<Vec<_>>());
    let mut by_title: BTreeMap<&str, usize> = BTreeMap::new();
    let mut entries = BTreeSet::new();
    for file in notebook.files() {
        *by_title.entry(&file.unit.title).or_default() += 1;
        for link in &file.unit.related {
            let reason = link.reason.clone().unwrap_or_default();
            ensure!(
                entries.insert((file.unit.id.to_string(), link.id.to_string(), reason)),
                "{} has a link twice",
                file.path
            );
        }
    }
    for (title, count) in &by_title {
        ensure!(*count == 1, "{title:?} is there {count} times");
    }
    for title in &acknowledged.titles {
        ensure!(by_title.contains_key(title.as_str()), "{title:?} is lost");
    }
    for (from, to, reason) in &entries {
        let reverse = (to.clone(), from.clone(), reason.clone());
        ensure!(entries.contains(&reverse), "the link from {from} to {to} goes one way");
    }
    for (one, other, reason) in &acknowledged.links {
        let id = |title: &str| notebook.find(title).map(|file| file.unit.id.to_string());
        ensure!(entries.contains(&(id(one)?, id(other)?, reason.clone())), "a link from {one:?} is lost");
    }
    for (key, step) in &acknowledged.facts {
        let fact = notebook.fact(key).with_context(|| format!("{key:?} is lost"))?;
        let value: usize = content(&fact.unit).trim_start_matches("value ").parse()?;
        ensure!(value >= *step, "{key:?} has an older value: {value}, not {step}");
    }
    let tip = repository.tip(&branch)?.context("the branch is gone")?.to_string();
    let queued = sandbox.queue()?.capture_of_branch(&branch)?.and_then(|capture| capture.commit);
    ensure!(queued.as_deref() == Some(&tip), "the queue has another commit than the branch");
    Ok(json!({ "notes_and_facts": by_title.len(), "links": entries.len() / 2 }))
}
