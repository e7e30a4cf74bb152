//! A team's servers under fire: many laptops hand captures over at once while servers are killed, stopped beyond their
//! lease, cut off from PostgreSQL beyond it, and replaced, and PostgreSQL itself is killed. Nothing that was acknowledged
//! is lost, doubled or stuck.

mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use team::private_postgres::{PrivatePostgres, Programs};
use team_client::{Capture, HandOverError, TeamClient};

use crate::sandbox::{Sandbox, Session};
use crate::timing::Durations;
use link::Link;

#[derive(clap::Args)]
pub(crate) struct TeamArgs {
    /// How many captures are handed over
    #[arg(long, default_value_t = 200)]
    captures: usize,
    /// How many brains they are for
    #[arg(long, default_value_t = 4)]
    brains: usize,
    /// How many servers work at once
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// How many clients hand over at once
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// How many servers are killed
    #[arg(long, default_value_t = 40)]
    kills: usize,
    /// How often PostgreSQL is killed
    #[arg(long, default_value_t = 4)]
    postgres_kills: usize,
    /// How many servers are stopped until their leases have ended
    #[arg(long, default_value_t = 4)]
    stops: usize,
    /// How many servers are cut off from PostgreSQL until their leases have ended
    #[arg(long, default_value_t = 4)]
    cuts: usize,
    /// How many servers are ended and replaced in an orderly way
    #[arg(long, default_value_t = 4)]
    upgrades: usize,
    /// How often a server is killed in the middle of a push, and the time is taken until another one has its capture
    #[arg(long, default_value_t = 3)]
    takeovers: usize,
    /// Have the captures of a brain share a branch
    #[arg(long)]
    batch: bool,
}

const LEASE: Duration = Duration::from_secs(3);
/// What a dead server's capture waits for beyond the lease.
const TAKEOVER_SLACK: Duration = Duration::from_secs(1);
/// Pushes hang as long as there is this file in the repository.
const HOLD: &str = "hold";
/// A server that is told to end has so long for what is under way.
const UPGRADE_MAX: Duration = Duration::from_secs(45);
const RESTART_MAX: Duration = Duration::from_secs(30);
const BETWEEN_MS: std::ops::Range<u64> = 50..700;
const DEADLINE: Duration = Duration::from_secs(3000);
/// Once nothing is killed any more, another capture must end within this time.
const STALL_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Postgres,
    Stop,
    Cut,
    Upgrade,
}

pub(crate) fn run(args: &TeamArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("team --seed {seed}");
    let programs = PrivatePostgres::find()
        .context("no PostgreSQL: install one with pgvector, or name its programs in NUGGET_POSTGRES_BIN")?;
    let database = tempfile::Builder::new().prefix("nt").tempdir_in("/tmp")?;
    fs::set_permissions(database.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let postgres = PrivatePostgres::start(&programs, database.path())?;
    let mut sandbox = Sandbox::without_brain(binary)?;
    sandbox.variables.push(("NUGGET_DATABASE".to_owned(), postgres.url("postgres")));
    if args.batch {
        sandbox.variables.push(("NUGGET_DELIVERY_BATCH".to_owned(), "weekly".to_owned()));
    }
    let team = Team::new(sandbox, args, database.path(), seed)?;
    let result = team.run(args, postgres, &programs, database.path(), seed);
    if result.is_err() {
        eprintln!("sandbox kept in {}", team.sandbox.path("").display());
        std::mem::forget(team);
    }
    result
}

struct Team {
    sandbox: Sandbox,
    /// Names and bare repositories.
    brains: Vec<(String, PathBuf)>,
    token: String,
    captures: Vec<(Capture, u64)>,
    /// How many of them are handed over while things break. The others are for takeovers.
    in_storm: usize,
    /// Each server's way to PostgreSQL.
    links: Vec<Link>,
    /// The addresses of the servers, which change as they are replaced.
    urls: Mutex<Vec<String>>,
    acknowledged: AtomicUsize,
}

/// How long the slowest took.
#[derive(Default)]
struct Slowest {
    /// Of the servers that were told to end: until it had ended.
    upgrade: Duration,
    /// Of the servers that were cut off: until it was ready again.
    cut: Duration,
}

struct ServerProcess {
    process: Child,
    number: usize,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Team {
    fn new(sandbox: Sandbox, args: &TeamArgs, database: &Path, seed: u64) -> Result<Self> {
        sandbox.run_ok(&["server", "migrate"])?;
        let mut brains = Vec::new();
        for number in 0..args.brains {
            let (name, seed) = (format!("brain-{number}"), sandbox.path(&format!("seed-{number}")));
            let remote = sandbox.path(&format!("brain-{number}.git"));
            sandbox.run_ok(&["init", "--path", &text(&seed)])?;
            git(&seed, &["clone", "--quiet", "--bare", ".", &text(&remote)])?;
            sandbox.run_ok(&["server", "brain", "add", &name, &text(&remote)])?;
            brains.push((name, remote));
        }
        let mut arguments = vec!["server", "token", "create", "stress"];
        arguments.extend(brains.iter().map(|(name, _)| name.as_str()));
        let token = sandbox.run_ok(&arguments)?.trim().to_owned();
        let mut rng = Rng::with_seed(seed);
        let mut captures = Vec::new();
        for number in 0..args.captures + args.takeovers {
            let marker = 10_000 + number as u64;
            let session = Session::new(&sandbox, &mut rng, &[marker])?;
            let read = archive::read_conversation(&session.transcript, &|_| false)?;
            let intake = serde_json::to_vec(&read.conversation)?;
            let ended = read.conversation.ended.context("a session without times")?;
            let brain = brains[number % brains.len()].0.clone();
            let capture = Capture::new(session.id.clone(), ended, read.lines, &intake);
            captures
                .push((Capture { brain: Some(brain), origin: Some("hook".to_owned()), ..capture }, marker));
        }
        let urls = Mutex::new(vec![String::new(); args.servers]);
        // The servers of the takeovers have the numbers 0 and 1.
        let links = (0..args.servers.max(2)).map(|_| Link::new(database)).collect::<Result<_>>()?;
        Ok(Self {
            sandbox,
            brains,
            token,
            captures,
            in_storm: args.captures,
            links,
            urls,
            acknowledged: AtomicUsize::new(0),
        })
    }

    fn run(
        &self,
        args: &TeamArgs,
        postgres: PrivatePostgres,
        programs: &Programs,
        database: &Path,
        seed: u64,
    ) -> Result<Value> {
        let mut servers: Vec<ServerProcess> =
            (0..args.servers).map(|number| self.start(number)).collect::<Result<_>>()?;
        let (is_over, begun) = (AtomicBool::new(false), Instant::now());
        let next = AtomicUsize::new(0);
        let latencies = Mutex::new(Durations::default());
        std::thread::scope(|scope| -> Result<Value> {
            let clients: Vec<_> = (0..args.clients)
                .map(|client| {
                    let (next, latencies, is_over) = (&next, &latencies, &is_over);
                    let random = Rng::with_seed(seed.wrapping_mul(1_000) + client as u64);
                    scope.spawn(move || self.hand_over_all(next, latencies, is_over, random))
                })
                .collect();
            let chaos = self.break_things(args, &mut servers, postgres, programs, database, seed);
            let finished = chaos.and_then(|(postgres, slowest)| {
                self.wait_until_done(begun)?;
                Ok((postgres, slowest))
            });
            is_over.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().map_err(|_| anyhow::anyhow!("a client has crashed"))??;
            }
            let (postgres, slowest) = finished?;
            let (upgrade, cut) = (slowest.upgrade.as_secs_f64(), slowest.cut.as_secs_f64());
            let seconds = begun.elapsed().as_secs_f64();
            servers.clear();
            let takeovers = self.take_over(&postgres)?;
            self.check(args.batch)?;
            let latencies = latencies.lock().expect("no panic holds it").clone();
            let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
            println!(
                "{} captures of {} brains over {} servers in {seconds:.0} s: {} kills, {} of PostgreSQL, {} stops, {} cuts \
                 (ready again after at most {cut:.1} s), {} upgrades (the slowest {upgrade:.1} s): 0 lost, 0 doubled, 0 stuck; acknowledged in p50 {p50:.0} ms, p99 {p99:.0} ms",
                args.captures,
                args.brains,
                args.servers,
                args.kills,
                args.postgres_kills,
                args.stops,
                args.cuts,
                args.upgrades
            );
            if !takeovers.0.is_empty() {
                println!(
                    "{} servers killed during a push: another one had the capture after p50 {:.0} ms, max {:.0} ms (lease {} s)",
                    takeovers.0.len(),
                    takeovers.percentile(50),
                    takeovers.percentile(100),
                    LEASE.as_secs()
                );
            }
            Ok(json!({
                "takeover": takeovers.summary(),
                "captures": args.captures, "kills": args.kills, "postgres_kills": args.postgres_kills,
                "stops": args.stops, "cuts": args.cuts, "upgrades": args.upgrades, "seconds": seconds,
                "acknowledged": latencies.summary(),
            }))
        })
    }

    fn start(&self, number: usize) -> Result<ServerProcess> {
        let folder = text(&self.sandbox.path(&format!("server-{number}")));
        let lease = LEASE.as_secs().to_string();
        let arguments = [
            "server",
            "--listen",
            "127.0.0.1:0",
            "--no-migrate",
            "--lease",
            &lease,
            "--sync",
            "2",
            "--folder",
            &folder,
        ];
        let mut command = self.sandbox.command(&arguments);
        command.env("NUGGET_DATABASE", self.links[number].url("postgres"));
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let stderr = process.stderr.take().context("no stderr")?;
        let server = ServerProcess { process, number };
        let mut lines = BufReader::new(stderr);
        let mut said = String::new();
        loop {
            let mut line = String::new();
            ensure!(lines.read_line(&mut line)? > 0, "a server does not start: {said}");
            if let Some((_, address)) = line.trim().split_once("listening on ") {
                self.urls.lock().expect("no panic holds it")[number] = format!("http://{address}");
                break;
            }
            said.push_str(&line);
        }
        let mut log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.sandbox.path(&format!("server-{number}.log")))?;
        std::thread::spawn(move || std::io::copy(&mut lines, &mut log));
        Ok(server)
    }

    /// Whether a server says that it is ready.
    fn is_ready(&self, number: usize) -> Result<bool> {
        let url = self.urls.lock().expect("no panic holds it")[number].clone();
        let mut connection = TcpStream::connect(url.trim_start_matches("http://"))?;
        connection.set_read_timeout(Some(STALL_MAX))?;
        connection.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut status = [0; "HTTP/1.1 200".len()];
        connection.read_exact(&mut status)?;
        Ok(status == *b"HTTP/1.1 200")
    }

    /// Hands captures over, each to any server, until it is acknowledged.
    fn hand_over_all(
        &self,
        next: &AtomicUsize,
        latencies: &Mutex<Durations>,
        is_over: &AtomicBool,
        mut random: Rng,
    ) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let captures = &self.captures[..self.in_storm];
        while let Some((capture, _)) = captures.get(next.fetch_add(1, Ordering::SeqCst)) {
            let begun = Instant::now();
            loop {
                if is_over.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let url = {
                    let urls = self.urls.lock().expect("no panic holds it");
                    urls[random.usize(..urls.len())].clone()
                };
                let sent = Instant::now();
                match runtime.block_on(TeamClient::new(&url, &self.token)?.hand_over(capture)) {
                    Ok(_) => {
                        let mut latencies = latencies.lock().expect("no panic holds it");
                        latencies.0.push(sent.elapsed().as_secs_f64() * 1_000.0);
                        self.acknowledged.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    Err(HandOverError::Retry { .. } | HandOverError::NotTaken { .. }) => {
                        std::thread::sleep(Duration::from_millis(random.u64(20..200)));
                    }
                    Err(error) => bail!("a capture was refused: {error}"),
                }
                ensure!(begun.elapsed() < DEADLINE, "a capture is not acknowledged");
            }
        }
        Ok(())
    }

    /// Kills, stops, cuts off and replaces in a random order. Returns PostgreSQL as it runs at the end.
    fn break_things(
        &self,
        args: &TeamArgs,
        servers: &mut [ServerProcess],
        mut postgres: PrivatePostgres,
        programs: &Programs,
        database: &Path,
        seed: u64,
    ) -> Result<(PrivatePostgres, Slowest)> {
        let mut random = Rng::with_seed(seed ^ 0x7465_616d);
        let mut faults: Vec<Fault> = Vec::new();
        for (fault, count) in [
            (Fault::Kill, args.kills),
            (Fault::Postgres, args.postgres_kills),
            (Fault::Stop, args.stops),
            (Fault::Cut, args.cuts),
            (Fault::Upgrade, args.upgrades),
        ] {
            faults.extend(std::iter::repeat_n(fault, count));
        }
        random.shuffle(&mut faults);
        let mut slowest = Slowest::default();
        for fault in faults {
            std::thread::sleep(Duration::from_millis(random.u64(BETWEEN_MS)));
            let server = random.usize(..servers.len());
            match fault {
                Fault::Kill => {
                    let number = servers[server].number;
                    servers[server].process.kill()?;
                    servers[server].process.wait()?;
                    servers[server] = self.start(number)?;
                }
                Fault::Stop => {
                    let process = pid(&servers[server].process)?;
                    kill_process(process, Signal::STOP)?;
                    std::thread::sleep(LEASE + Duration::from_millis(1_500));
                    kill_process(process, Signal::CONT)?;
                }
                Fault::Cut => {
                    let number = servers[server].number;
                    self.links[number].cut();
                    std::thread::sleep(LEASE + Duration::from_millis(1_500));
                    self.links[number].restore(random.bool());
                    let begun = Instant::now();
                    while !self.is_ready(number)? {
                        ensure!(begun.elapsed() < RESTART_MAX, "server {number} is not ready after a cut");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    slowest.cut = slowest.cut.max(begun.elapsed());
                }
                Fault::Upgrade => {
                    let number = servers[server].number;
                    let begun = Instant::now();
                    kill_process(pid(&servers[server].process)?, Signal::TERM)?;
                    let ended = loop {
                        if let Some(ended) = servers[server].process.try_wait()? {
                            break ended;
                        }
                        ensure!(begun.elapsed() < UPGRADE_MAX, "a server does not end");
                        std::thread::sleep(Duration::from_millis(20));
                    };
                    ensure!(ended.success(), "server {number} was told to end, and ended with {ended}");
                    slowest.upgrade = slowest.upgrade.max(begun.elapsed());
                    servers[server] = self.start(number)?;
                }
                Fault::Postgres => {
                    let process = Pid::from_raw(postgres.process_id() as i32).context("no process id")?;
                    kill_process(process, Signal::KILL)?;
                    // Dropped as a dead one; the next one recovers its files.
                    drop(postgres);
                    postgres = restart(programs, database)?;
                }
            }
        }
        Ok((postgres, slowest))
    }

    /// Kills a server while it pushes, and takes the time until another one has claimed its capture.
    fn take_over(&self, postgres: &PrivatePostgres) -> Result<Durations> {
        let mut durations = Durations::default();
        let mut database = postgres::Client::connect(&postgres.url("postgres"), postgres::NoTls)?;
        // Of another brain, there may be none: nothing else is worked on.
        let mut claimed_by = || -> Result<Option<i64>> {
            let sql = "SELECT server FROM nugget.jobs WHERE stage = 'delivery' AND claim IS NOT NULL";
            Ok(database.query_opt(sql, &[])?.and_then(|row| row.get(0)))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for (capture, _) in &self.captures[self.in_storm..] {
            let remote = self.brains.iter().find(|(name, _)| capture.brain.as_ref() == Some(name));
            let (_, remote) = remote.context("a capture of no brain")?;
            let hook = remote.join("hooks/pre-receive");
            fs::write(remote.join(HOLD), "")?;
            fs::write(&hook, format!("#!/bin/sh\nwhile [ -e {HOLD} ]; do sleep 0.05; done\n"))?;
            fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            let mut first = self.start(0)?;
            let url = self.urls.lock().expect("no panic holds it")[0].clone();
            runtime.block_on(TeamClient::new(&url, &self.token)?.hand_over(capture))?;
            let begun = Instant::now();
            let claimed = loop {
                if let Some(server) = claimed_by()? {
                    break server;
                }
                ensure!(begun.elapsed() < STALL_MAX, "no server pushes");
                std::thread::sleep(Duration::from_millis(10));
            };
            let _second = self.start(1)?;
            // It renews its claim in the meantime.
            std::thread::sleep(LEASE);
            ensure!(claimed_by()? == Some(claimed), "the claim of a server that lives was taken over");
            let killed = Instant::now();
            first.process.kill()?;
            first.process.wait()?;
            while claimed_by()?.is_none_or(|server| server == claimed) {
                ensure!(killed.elapsed() < STALL_MAX, "no server takes over");
                std::thread::sleep(Duration::from_millis(10));
            }
            let took = killed.elapsed();
            durations.0.push(took.as_secs_f64() * 1_000.0);
            ensure!(took <= LEASE + TAKEOVER_SLACK, "the capture was taken over after {took:?}");
            fs::remove_file(remote.join(HOLD))?;
            self.wait_until_done(Instant::now())?;
        }
        Ok(durations)
    }

    /// Waits until every capture is acknowledged and has ended.
    fn wait_until_done(&self, begun: Instant) -> Result<()> {
        let mut last = (0, u64::MAX, Instant::now());
        loop {
            ensure!(begun.elapsed() < DEADLINE, "not done in time");
            let acknowledged = self.acknowledged.load(Ordering::SeqCst);
            let open = match self.sandbox.run(&["server", "status", "--json"]) {
                Ok(output) if output.status.success() => {
                    let status = serde_json::from_slice(&output.stdout)?;
                    ensure!(failed_captures(&status) == 0, "captures have failed for good: {status}");
                    open_captures(&status)
                }
                _ => u64::MAX,
            };
            if acknowledged == self.in_storm && open == 0 {
                return Ok(());
            }
            if (acknowledged, open) != (last.0, last.1) {
                last = (acknowledged, open, Instant::now());
            }
            ensure!(
                last.2.elapsed() < STALL_MAX,
                "stuck: {acknowledged} acknowledged, {open} open; sandbox {}",
                self.sandbox.path("").display()
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Each capture's unit is on one branch of its brain's repository, in a commit of its own, and no branch has anything
    /// else.
    fn check(&self, is_batch: bool) -> Result<()> {
        let mut found: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (name, remote) in &self.brains {
            for branch in git(remote, &["branch", "--list", "--format=%(refname:short)", "nugget/*"])?.lines()
            {
                let commits = git(remote, &["rev-list", "--count", &format!("HEAD..{branch}")])?;
                let added = git(remote, &["diff", "--unified=0", "HEAD", branch])?;
                let markers: BTreeSet<u64> = markers_in(&added);
                let wanted = if is_batch { markers.len() } else { 1 };
                ensure!(
                    commits.trim() == wanted.to_string() && wanted > 0,
                    "{branch} of {name} has {} commits, and {} captures' units",
                    commits.trim(),
                    markers.len()
                );
                for marker in markers {
                    found.entry(marker).or_default().push(format!("{name} {branch}"));
                }
            }
        }
        for (capture, marker) in &self.captures {
            let branches = found.remove(marker).unwrap_or_default();
            ensure!(branches.len() == 1, "the unit of session {} is on {branches:?}", capture.session);
            let brain = capture.brain.as_deref().unwrap_or_default();
            ensure!(branches[0].starts_with(&format!("{brain} ")), "it is in another brain: {branches:?}");
        }
        ensure!(found.is_empty(), "units of no session: {found:?}");
        Ok(())
    }
}

/// Starts PostgreSQL again: the processes of the one that was killed hold its memory for a moment.
fn restart(programs: &Programs, folder: &Path) -> Result<PrivatePostgres> {
    let begun = Instant::now();
    loop {
        match PrivatePostgres::start(programs, folder) {
            Ok(postgres) => return Ok(postgres),
            Err(error) => ensure!(begun.elapsed() < RESTART_MAX, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The numbers of lanes that a text names.
fn markers_in(text: &str) -> BTreeSet<u64> {
    let numbers = text.split("--lane ").skip(1);
    numbers
        .filter_map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
        .collect()
}

fn open_captures(status: &Value) -> u64 {
    let stages = status["stages"].as_array().map(Vec::as_slice).unwrap_or_default();
    stages
        .iter()
        .map(|stage| stage["waiting"].as_u64().unwrap_or(0) + stage["running"].as_u64().unwrap_or(0))
        .sum()
}

fn failed_captures(status: &Value) -> u64 {
    status["failed"].as_u64().unwrap_or(0)
}

fn pid(process: &Child) -> Result<Pid> {
    Pid::from_raw(process.id() as i32).context("no process id")
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
        .output()?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
