//! The way to the remote: each named place of it is fatal three times, and what is there in the end is
//! counted; then a backlog from days without a network is delivered in order, and its requests are counted.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use queue::{Capture, PullState, State};
use serde_json::{Value, json};

use crate::github_api::{GithubApi, Merge, TOKEN};
use crate::machine::{Hooked, Machine, Random, Session};

const SLUG: &str = "me/brain";
/// How often a place is fatal: a capture is tried five times.
const DEATHS: usize = 3;
const PLACE_PATIENCE: Duration = Duration::from_secs(120);
/// Without one more capture delivered in it, nothing goes on.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many captures wait for the network; 0 for none
    #[arg(long, default_value_t = 200)]
    captures: usize,
    /// Only these places of the code are made fatal [default: all of them, where there are any]
    #[arg(long, value_name = "NAME")]
    point: Vec<String>,
}

/// When a place is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// As a capture is delivered.
    Delivered,
    /// As the remote is looked at.
    Synced,
    /// As a branch is made anew that another has got ahead of.
    Anew,
    /// As one is closed of which everything is there already.
    Empty,
    /// As one has been merged.
    Merged,
}

const PLACES: &[(&str, When)] = &[
    ("delivery-before-push", When::Delivered),
    ("delivery-after-push", When::Delivered),
    ("delivery-after-note", When::Delivered),
    ("delivery-before-pull", When::Delivered),
    ("delivery-after-pull", When::Delivered),
    ("delivery-before-finish", When::Delivered),
    ("delivery-after-finish", When::Delivered),
    ("git-anew-after-keep", When::Anew),
    ("git-anew-before-advance", When::Anew),
    ("sync-before-fetch", When::Synced),
    ("sync-after-fetch", When::Synced),
    ("sync-after-close", When::Empty),
    ("sync-after-remote-delete", When::Merged),
];

pub(crate) fn run(arguments: &Arguments, program: &Path, seed: u64) -> Result<Value> {
    println!("delivery --seed {seed}");
    let mut random = Random::new(seed);
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let is_fatal = memchr::memmem::find(&bytes, PLACES[0].0.as_bytes()).is_some();
    drop(bytes);
    ensure!(
        is_fatal || arguments.point.is_empty(),
        "this nugget has no failpoints: run `cargo test --features failpoints --test stress -- delivery`"
    );
    for name in &arguments.point {
        ensure!(PLACES.iter().any(|(known, _)| known == name), "there is no place {name}");
    }
    let mut places = 0;
    for (name, when) in PLACES.iter().filter(|_| is_fatal) {
        if arguments.point.is_empty() || arguments.point.iter().any(|point| point == name) {
            let mut place = Place::new(program, name, *when, &mut random)?;
            if let Err(error) = place.all() {
                eprintln!("the machine is kept in {}", place.machine.keep().display());
                return Err(error.context(format!("place {name}")));
            }
            println!("{name}: {DEATHS} deaths");
            places += 1;
        }
    }
    let backlog = match arguments.captures {
        0 => Value::Null,
        captures => backlog(captures, program, &mut random)?,
    };
    Ok(json!({ "places": places, "deaths": places * DEATHS, "backlog": backlog }))
}

/// A machine whose brain is on GitHub.
fn machine_at(api: &GithubApi, program: &Path) -> Result<Machine> {
    let mut machine = Machine::new(program)?;
    let bare = api.add_repository(SLUG);
    machine.git(&["push", "-q", &bare.display().to_string(), "main"])?;
    machine.git(&["remote", "add", "origin", &api.clone_url(SLUG)])?;
    for (name, value) in [
        ("NUGGET_GITHUB_API", api.api()),
        ("GITHUB_TOKEN", TOKEN.to_owned()),
        ("NUGGET_SYNC_MINUTES", "0".to_owned()),
        ("NUGGET_SWEEP_ENABLED", "off".to_owned()),
    ] {
        machine.variables.push((name.to_owned(), value));
    }
    Ok(machine)
}

struct Place<'a> {
    api: GithubApi,
    machine: Machine,
    name: &'a str,
    when: When,
    random: &'a mut Random,
    marker: u64,
}

impl<'a> Place<'a> {
    fn new(program: &Path, name: &'a str, when: When, random: &'a mut Random) -> Result<Self> {
        let api = GithubApi::start();
        let machine = machine_at(&api, program)?;
        fs::create_dir(machine.path("marks"))?;
        Ok(Self { api, machine, name, when, random, marker: 0 })
    }

    fn all(&mut self) -> Result<()> {
        // For each death one that it may strike.
        let count = if self.when == When::Delivered { 1 } else { DEATHS };
        for _ in 0..count {
            self.capture(self.when == When::Delivered)?;
        }
        self.settle()?;
        if self.when != When::Delivered {
            for capture in self.captures()? {
                self.change(&capture)?;
            }
            self.sync_until_quiet()?;
        }
        ensure!(self.deaths() == DEATHS, "it was fatal {} times", self.deaths());
        self.audit()
    }

    fn deaths(&self) -> usize {
        fs::read_dir(self.machine.path("marks")).map_or(0, Iterator::count)
    }

    fn fatal(&self) -> [(String, String); 2] {
        [
            ("FAILPOINTS".to_owned(), format!("{}=return({DEATHS})", self.name)),
            ("FAILPOINT_MARKS".to_owned(), self.machine.path("marks").display().to_string()),
        ]
    }

    fn captures(&self) -> Result<Vec<Capture>> {
        let mut captures = self.machine.queue()?.captures(1000)?;
        captures.retain(|capture| capture.branch.is_some());
        Ok(captures)
    }

    /// A session ends.
    fn capture(&mut self, is_fatal: bool) -> Result<()> {
        self.marker += 1;
        let session = Session::new(&self.machine, self.random, &[self.marker])?;
        let fatal = self.fatal();
        let variables: Vec<(&str, &str)> =
            fatal.iter().filter(|_| is_fatal).map(|(name, value)| (name.as_str(), value.as_str())).collect();
        ensure!(
            self.machine.hook(&session, &variables)? == Hooked::Acknowledged,
            "a hook was not acknowledged"
        );
        Ok(())
    }

    /// Wakes a drainer again and again until everything is done.
    fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            ensure!(
                begun.elapsed() < PLACE_PATIENCE,
                "not done within {PLACE_PATIENCE:?}\n{}",
                self.machine.ok(&["status"])?
            );
            if !self.machine.processes().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            } else if self.machine.queue()?.tally()?.unfinished() > 0 {
                self.nugget(&["retry", "--all"])?;
            } else if self.when == When::Delivered && self.deaths() < DEATHS {
                // The place lies behind the end of a capture.
                self.capture(true)?;
            } else {
                return Ok(());
            }
        }
    }

    /// A command that may be killed.
    fn nugget(&self, arguments: &[&str]) -> Result<()> {
        self.machine
            .command(arguments)
            .envs(self.fatal())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(())
    }

    /// What brings a capture's branch to the place.
    fn change(&self, capture: &Capture) -> Result<()> {
        let branch = capture.branch.as_deref().context("no branch")?;
        let number = capture.pull_number.context("no pull request")?;
        let paths = self.machine.git(&["diff", "--name-only", "main", branch])?;
        for path in paths.lines() {
            let content = self.machine.git(&["show", &format!("{branch}:{path}")])?;
            match self.when {
                When::Anew => {
                    drop(self.api.commit(SLUG, "main", path, &format!("{content}\nAnother's words.\n")))
                }
                When::Empty => drop(self.api.commit(SLUG, "main", path, &content)),
                _ => {}
            }
        }
        if self.when == When::Merged
            && let Err(said) = self.api.merge(SLUG, number, Merge::Commit)
        {
            bail!("pull request {number} was not merged: {said}");
        }
        Ok(())
    }

    fn sync_until_quiet(&mut self) -> Result<()> {
        // One more than it can be fatal, and one after what that has brought.
        for _ in 0..DEATHS + 2 {
            self.nugget(&["sync"])?;
            self.settle()?;
        }
        Ok(())
    }

    /// One branch, one commit, one pull request for each capture; or none of a branch any more.
    fn audit(&self) -> Result<()> {
        let bare = self.api.with(SLUG, |repo| repo.bare.clone());
        let pulls = self.api.pulls(SLUG);
        let captures = self.captures()?;
        ensure!(
            pulls.len() == captures.len(),
            "{} pull requests of {} captures",
            pulls.len(),
            captures.len()
        );
        let git = |arguments: &[&str]| -> Result<String> {
            let output = std::process::Command::new("git").arg("-C").arg(&bare).args(arguments).output()?;
            ensure!(
                output.status.success(),
                "git {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(String::from_utf8(output.stdout)?)
        };
        let mut expected = 0;
        for capture in &captures {
            let name = format!("capture {}", capture.id);
            let branch = capture.branch.as_deref().context("no branch")?;
            let commit = capture.commit.as_deref().context("no commit")?;
            ensure!(capture.state == State::Done, "{name} is {}: {:?}", capture.state, capture.reason);
            ensure!(capture.pushed.as_deref() == Some(commit), "{name} is not noted as pushed");
            let of_it: Vec<_> = pulls.iter().filter(|pull| pull.branch == branch).collect();
            ensure!(of_it.len() == 1, "{name} has {} pull requests", of_it.len());
            ensure!(capture.pull_number == Some(of_it[0].number), "{name} does not know its pull request");
            let state = match self.when {
                When::Empty => PullState::Closed,
                When::Merged => PullState::Merged,
                _ => PullState::Open,
            };
            ensure!(capture.pull_state == Some(state), "{name}: {:?}", capture.pull_state);
            if state == PullState::Open {
                expected += 1;
                let tip = git(&["rev-parse", branch])?;
                ensure!(tip.trim() == commit, "{name}: the remote's branch is at {tip}");
                let count = git(&["rev-list", "--count", &format!("main..{branch}")])?;
                ensure!(count.trim() == "1", "{name} has {count} commits");
            }
        }
        for listed in
            [git(&["branch", "--list", "nugget/*"])?, self.machine.git(&["branch", "--list", "nugget/*"])?]
        {
            ensure!(listed.lines().count() == expected, "{expected} branches are expected, not\n{listed}");
        }
        self.machine.git(&["fsck", "--no-dangling"])?;
        Ok(())
    }
}

/// Days without a network, then one with a rate limit that is nearly used up.
fn backlog(count: usize, program: &Path, random: &mut Random) -> Result<Value> {
    let api = GithubApi::start();
    let mut machine = machine_at(&api, program)?;
    let result = deliver_backlog(count, &api, &mut machine, random);
    if result.is_err() {
        eprintln!("the machine is kept in {}", machine.keep().display());
    }
    result
}

fn deliver_backlog(
    count: usize,
    api: &GithubApi,
    machine: &mut Machine,
    random: &mut Random,
) -> Result<Value> {
    // Nobody listens there.
    machine.git(&["remote", "set-url", "origin", &format!("http://127.0.0.1:9/{SLUG}.git")])?;
    for marker in 1..=count as u64 {
        let session = Session::new(machine, random, &[marker])?;
        ensure!(machine.hook(&session, &[])? == Hooked::Acknowledged, "a hook was not acknowledged");
    }
    let queue = machine.queue()?;
    let left = std::cell::Cell::new((usize::MAX, Instant::now()));
    machine.until("every branch is there", Duration::MAX, || {
        let there = queue.captures(count * 2)?.iter().filter(|capture| capture.branch.is_some()).count();
        if there != left.get().0 {
            left.set((there, Instant::now()));
        }
        ensure!(
            left.get().1.elapsed() < STANDSTILL_MAX,
            "{there} of {count} branches are there\n{}",
            machine.ok(&["status"])?
        );
        if machine.processes().is_empty() && there < count {
            machine.ok(&["retry", "--all"])?;
        }
        Ok(there == count && machine.processes().is_empty())
    })?;
    ensure!(api.log().is_empty(), "requests were made without a network: {:?}", api.log());
    let touched = queue.captures(count * 2)?.iter().filter(|capture| capture.attempts > 0).count();
    ensure!(touched <= 1, "{touched} captures were tried instead of one");
    let probes = queue.pauses()?.first().map_or(0, |pause| pause.times);

    machine.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)])?;
    // It is used up on the way, and there is more after some seconds.
    api.limit(count as u64, Duration::from_secs(20 + count as u64));
    machine.variables.push(("NUGGET_DRAINER_LINGER_SECONDS".to_owned(), "10".to_owned()));
    let begun = Instant::now();
    machine.ok(&["sync"])?;
    let left = std::cell::Cell::new((u64::MAX, Instant::now()));
    machine.until("everything is delivered", Duration::MAX, || {
        let unfinished = queue.tally()?.unfinished();
        if unfinished != left.get().0 {
            left.set((unfinished, Instant::now()));
        }
        let waits = queue.pauses()?.iter().any(|pause| pause.until > Timestamp::now());
        let patience = if waits { STANDSTILL_MAX * 5 } else { STANDSTILL_MAX };
        ensure!(left.get().1.elapsed() < patience, "{unfinished} are left\n{}", machine.ok(&["status"])?);
        std::thread::sleep(Duration::from_millis(100));
        Ok(unfinished == 0)
    })?;
    let seconds = begun.elapsed().as_secs();

    let mut captures = queue.captures(count * 2)?;
    captures.sort_by_key(|capture| capture.id);
    let numbers: Vec<u64> = captures.iter().filter_map(|capture| capture.pull_number).collect();
    ensure!(numbers == (1..=count as u64).collect::<Vec<_>>(), "not in order of age: {numbers:?}");
    let pulls = api.pulls(SLUG);
    ensure!(pulls.len() == count, "{} pull requests of {count} captures", pulls.len());
    let log = api.log();
    let is =
        |line: &&String, beginning: &str, status: &str| line.starts_with(beginning) && line.ends_with(status);
    let opened = log.iter().filter(|line| is(line, "POST", " 201")).count();
    let refused = log.iter().filter(|line| line.ends_with(" 403") || line.ends_with(" 429")).count();
    ensure!(opened == count, "{opened} pull requests were opened");
    // Of each capture: a look and an opening; of all of them: what the repository calls its labels, and what a
    // limit or the end of a pause costs to be found out.
    let requests = log.len();
    ensure!(requests <= 2 * count + 2 * refused + 5, "{requests} requests for {count} captures");
    ensure!(refused <= 10, "{refused} requests were made against the limit");
    Ok(json!({
        "captures": count,
        "probes_offline": probes,
        "requests": requests,
        "requests_for_each": (requests as f64 / count as f64 * 100.0).round() / 100.0,
        "refused_by_the_limit": refused,
        "seconds_to_deliver": seconds,
    }))
}
