//! Delivery to the remote: each of its failpoints ends the process three times, and branches, commits and
//! pull requests are counted afterwards; then a backlog after days offline is delivered, and its requests are
//! counted.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use queue::{Capture, PullState, State};
use serde_json::{Value, json};

use crate::github_api::{GithubApi, Merge, TOKEN};
use crate::sandbox::{HookOutcome, Sandbox, Session};

const SLUG: &str = "me/brain";
/// How often a failpoint ends the process; fewer than the five attempts of a capture.
const DEATHS: usize = 3;
const FAILPOINT_TIMEOUT: Duration = Duration::from_secs(120);
/// Delivery is stuck if no further capture is delivered within this time.
const STALL_MAX: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct DeliveryArgs {
    /// How many captures wait for the network; 0 skips this part
    #[arg(long, default_value_t = 200)]
    captures: usize,
    /// Test only these failpoints [default: all of them, if the binary has failpoints]
    #[arg(long, value_name = "NAME")]
    point: Vec<String>,
}

/// What reaches a failpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// A capture is delivered.
    Delivery,
    /// A capture is added to the pull request that others are in.
    Batch,
    /// The remote is synchronised.
    Sync,
    /// The default branch has changed the same file, and the capture's branch is rebuilt.
    Rebuild,
    /// The default branch already has what the pull request adds, and it is closed.
    Close,
    /// The pull request has been merged.
    Merge,
}

const FAILPOINTS: &[(&str, Scenario)] = &[
    ("delivery-before-push", Scenario::Delivery),
    ("delivery-after-push", Scenario::Delivery),
    ("delivery-after-note", Scenario::Delivery),
    ("delivery-before-pull", Scenario::Delivery),
    ("delivery-after-pull", Scenario::Delivery),
    ("delivery-before-finish", Scenario::Delivery),
    ("delivery-after-finish", Scenario::Delivery),
    ("batch-before-push", Scenario::Batch),
    ("batch-after-push", Scenario::Batch),
    ("batch-after-note", Scenario::Batch),
    ("batch-before-delete", Scenario::Batch),
    ("git-rebuild-after-keep", Scenario::Rebuild),
    ("git-rebuild-before-advance", Scenario::Rebuild),
    ("sync-before-fetch", Scenario::Sync),
    ("sync-after-fetch", Scenario::Sync),
    ("sync-after-close", Scenario::Close),
    ("sync-after-remote-delete", Scenario::Merge),
];

pub(crate) fn run(args: &DeliveryArgs, binary: &Path, seed: u64) -> Result<Value> {
    println!("delivery --seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let bytes = fs::read(binary).with_context(|| binary.display().to_string())?;
    let has_failpoints = memchr::memmem::find(&bytes, FAILPOINTS[0].0.as_bytes()).is_some();
    drop(bytes);
    ensure!(
        has_failpoints || args.point.is_empty(),
        "this nugget has no failpoints: run `cargo test --test stress -- delivery`"
    );
    for name in &args.point {
        ensure!(FAILPOINTS.iter().any(|(known, _)| known == name), "there is no failpoint {name}");
    }
    let mut failpoints = 0;
    for (name, scenario) in FAILPOINTS.iter().filter(|_| has_failpoints) {
        if args.point.is_empty() || args.point.iter().any(|point| point == name) {
            let mut run = FailpointRun::new(binary, name, *scenario, &mut rng)?;
            if let Err(error) = run.run() {
                eprintln!("sandbox kept in {}", run.sandbox.keep().display());
                return Err(error.context(format!("failpoint {name}")));
            }
            println!("{name}: {DEATHS} deaths");
            failpoints += 1;
        }
    }
    let backlog = match args.captures {
        0 => Value::Null,
        captures => backlog(captures, binary, &mut rng)?,
    };
    Ok(json!({ "failpoints": failpoints, "deaths": failpoints * DEATHS, "backlog": backlog }))
}

/// A sandbox whose brain has a GitHub remote.
fn sandbox_with_remote(api: &GithubApi, binary: &Path) -> Result<Sandbox> {
    let mut sandbox = Sandbox::new(binary)?;
    let bare = api.add_repository(SLUG);
    sandbox.git(&["push", "-q", &bare.display().to_string(), "main"])?;
    sandbox.git(&["remote", "add", "origin", &api.clone_url(SLUG)])?;
    for (name, value) in [
        ("NUGGET_GITHUB_API", api.api_url()),
        ("GITHUB_TOKEN", TOKEN.to_owned()),
        ("NUGGET_SYNC_MINUTES", "0".to_owned()),
        ("NUGGET_SWEEP_ENABLED", "off".to_owned()),
    ] {
        sandbox.variables.push((name.to_owned(), value));
    }
    Ok(sandbox)
}

struct FailpointRun<'a> {
    api: GithubApi,
    sandbox: Sandbox,
    name: &'a str,
    scenario: Scenario,
    rng: &'a mut Rng,
    marker: u64,
}

impl<'a> FailpointRun<'a> {
    fn new(binary: &Path, name: &'a str, scenario: Scenario, rng: &'a mut Rng) -> Result<Self> {
        let api = GithubApi::start();
        let mut sandbox = sandbox_with_remote(&api, binary)?;
        if scenario == Scenario::Batch {
            sandbox.variables.push(("NUGGET_DELIVERY_BATCH".to_owned(), "weekly".to_owned()));
        }
        fs::create_dir(sandbox.path("marks"))?;
        Ok(Self { api, sandbox, name, scenario, rng, marker: 0 })
    }

    fn run(&mut self) -> Result<()> {
        // One capture for each death, except that a delivery is repeated by itself.
        let is_delivery = matches!(self.scenario, Scenario::Delivery | Scenario::Batch);
        if self.scenario == Scenario::Batch {
            // The branch is there already.
            self.capture(false)?;
            self.sandbox.wait_until("the first is delivered", FAILPOINT_TIMEOUT, || {
                Ok(self.sandbox.processes().is_empty() && self.sandbox.queue()?.tally()?.unfinished() == 0)
            })?;
        }
        let count = if is_delivery { 1 } else { DEATHS };
        for _ in 0..count {
            self.capture(is_delivery)?;
        }
        self.run_until_idle()?;
        if !is_delivery {
            for capture in self.captures()? {
                self.change_remote(&capture)?;
            }
            self.sync_until_quiet()?;
        }
        ensure!(self.deaths() == DEATHS, "it ended the process {} times", self.deaths());
        self.check()
    }

    fn deaths(&self) -> usize {
        fs::read_dir(self.sandbox.path("marks")).map_or(0, Iterator::count)
    }

    fn failpoint_variables(&self) -> [(String, String); 2] {
        [
            ("FAILPOINTS".to_owned(), format!("{}={DEATHS}", self.name)),
            ("FAILPOINT_MARKS".to_owned(), self.sandbox.path("marks").display().to_string()),
        ]
    }

    fn captures(&self) -> Result<Vec<Capture>> {
        let mut captures = self.sandbox.queue()?.captures(1000)?;
        captures.retain(|capture| capture.branch.is_some());
        Ok(captures)
    }

    /// Ends a session; the failpoint is active in its processes if `with_failpoint`.
    fn capture(&mut self, with_failpoint: bool) -> Result<()> {
        self.marker += 1;
        let session = Session::new(&self.sandbox, self.rng, &[self.marker])?;
        let failpoint = self.failpoint_variables();
        let variables: Vec<(&str, &str)> = failpoint
            .iter()
            .filter(|_| with_failpoint)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        ensure!(
            self.sandbox.hook(&session, &variables)? == HookOutcome::Acknowledged,
            "a hook was not acknowledged"
        );
        Ok(())
    }

    /// Starts workers until everything is done.
    fn run_until_idle(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            ensure!(
                started.elapsed() < FAILPOINT_TIMEOUT,
                "not done within {FAILPOINT_TIMEOUT:?}\n{}",
                self.sandbox.run_ok(&["status"])?
            );
            if !self.sandbox.processes().is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            } else if self.sandbox.queue()?.tally()?.unfinished() > 0 {
                self.run_with_failpoint(&["retry", "--all"])?;
            } else if matches!(self.scenario, Scenario::Delivery | Scenario::Batch) && self.deaths() < DEATHS
            {
                // The capture has ended without reaching the failpoint often enough.
                self.capture(true)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Runs a command that the failpoint may end.
    fn run_with_failpoint(&self, arguments: &[&str]) -> Result<()> {
        self.sandbox
            .command(arguments)
            .envs(self.failpoint_variables())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(())
    }

    /// Changes the remote so that a sync of this capture reaches the failpoint.
    fn change_remote(&self, capture: &Capture) -> Result<()> {
        let branch = capture.branch.as_deref().context("no branch")?;
        let number = capture.pull_number.context("no pull request")?;
        let paths = self.sandbox.git(&["diff", "--name-only", "main", branch])?;
        for path in paths.lines() {
            let content = self.sandbox.git(&["show", &format!("{branch}:{path}")])?;
            match self.scenario {
                Scenario::Rebuild => {
                    drop(self.api.commit(SLUG, "main", path, &format!("{content}\nAnother author's text.\n")))
                }
                Scenario::Close => drop(self.api.commit(SLUG, "main", path, &content)),
                _ => {}
            }
        }
        if self.scenario == Scenario::Merge
            && let Err(message) = self.api.merge(SLUG, number, Merge::Commit)
        {
            bail!("pull request {number} was not merged: {message}");
        }
        Ok(())
    }

    fn sync_until_quiet(&mut self) -> Result<()> {
        // One more than the deaths, and one for what the last of them has left to do.
        for _ in 0..DEATHS + 2 {
            self.run_with_failpoint(&["sync"])?;
            self.run_until_idle()?;
        }
        Ok(())
    }

    /// Checks that each capture has one branch with one commit and one pull request, or no branch any more.
    fn check(&self) -> Result<()> {
        let bare = self.api.with_repository(SLUG, |repo| repo.bare.clone());
        let pulls = self.api.pulls(SLUG);
        let captures = self.captures()?;
        let wanted = if self.scenario == Scenario::Batch { 1 } else { captures.len() };
        ensure!(pulls.len() == wanted, "{} pull requests for {} captures", pulls.len(), captures.len());
        let git = |arguments: &[&str]| -> Result<String> {
            let output = std::process::Command::new("git").arg("-C").arg(&bare).args(arguments).output()?;
            ensure!(
                output.status.success(),
                "git {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(String::from_utf8(output.stdout)?)
        };
        // A shared branch has a commit of each capture.
        let commits = if self.scenario == Scenario::Batch { captures.len() } else { 1 };
        let mut expected = 0;
        for capture in &captures {
            let name = format!("capture {}", capture.id);
            let branch = capture.branch.as_deref().context("no branch")?;
            let commit = capture.commit.as_deref().context("no commit")?;
            ensure!(capture.state == State::Done, "{name} is {}: {:?}", capture.state, capture.reason);
            ensure!(capture.pushed.as_deref() == Some(commit), "{name} is not recorded as pushed");
            let matching: Vec<_> = pulls.iter().filter(|pull| pull.branch == branch).collect();
            ensure!(matching.len() == 1, "{name} has {} pull requests", matching.len());
            ensure!(
                capture.pull_number == Some(matching[0].number),
                "{name} has recorded another pull request"
            );
            let state = match self.scenario {
                Scenario::Close => PullState::Closed,
                Scenario::Merge => PullState::Merged,
                _ => PullState::Open,
            };
            ensure!(capture.pull_state == Some(state), "{name}: {:?}", capture.pull_state);
            if state == PullState::Open {
                expected += 1;
                let tip = git(&["rev-parse", branch])?;
                match self.scenario {
                    Scenario::Batch => drop(git(&["merge-base", "--is-ancestor", commit, branch])?),
                    _ => ensure!(tip.trim() == commit, "{name}: the remote's branch is at {tip}"),
                }
                let count = git(&["rev-list", "--count", &format!("main..{branch}")])?;
                ensure!(count.trim() == commits.to_string(), "{name} has {count} commits");
            }
        }
        if self.scenario == Scenario::Batch {
            expected = 1;
            let branch = captures[0].branch.as_deref().context("no branch")?;
            let files = git(&["diff", "--name-only", "main", branch])?.lines().count();
            let units: u32 = captures.iter().map(|capture| capture.units).sum();
            ensure!(files == units as usize, "{files} files of {units} units");
        }
        for listed in
            [git(&["branch", "--list", "nugget/*"])?, self.sandbox.git(&["branch", "--list", "nugget/*"])?]
        {
            ensure!(listed.lines().count() == expected, "{expected} branches are expected, not\n{listed}");
        }
        self.sandbox.git(&["fsck", "--no-dangling"])?;
        Ok(())
    }
}

/// Captures during days offline, then delivery with a rate limit that is nearly used up.
fn backlog(count: usize, binary: &Path, rng: &mut Rng) -> Result<Value> {
    let api = GithubApi::start();
    let mut sandbox = sandbox_with_remote(&api, binary)?;
    let result = deliver_backlog(count, &api, &mut sandbox, rng);
    if result.is_err() {
        eprintln!("sandbox kept in {}", sandbox.keep().display());
    }
    result
}

fn deliver_backlog(count: usize, api: &GithubApi, sandbox: &mut Sandbox, rng: &mut Rng) -> Result<Value> {
    // No server listens on this port.
    sandbox.git(&["remote", "set-url", "origin", &format!("http://127.0.0.1:9/{SLUG}.git")])?;
    for marker in 1..=count as u64 {
        let session = Session::new(sandbox, rng, &[marker])?;
        ensure!(sandbox.hook(&session, &[])? == HookOutcome::Acknowledged, "a hook was not acknowledged");
    }
    let queue = sandbox.queue()?;
    let progress = std::cell::Cell::new((usize::MAX, Instant::now()));
    sandbox.wait_until("every capture has a branch", Duration::MAX, || {
        let branches = queue.captures(count * 2)?.iter().filter(|capture| capture.branch.is_some()).count();
        if branches != progress.get().0 {
            progress.set((branches, Instant::now()));
        }
        ensure!(
            progress.get().1.elapsed() < STALL_MAX,
            "{branches} of {count} captures have a branch\n{}",
            sandbox.run_ok(&["status"])?
        );
        if sandbox.processes().is_empty() && branches < count {
            sandbox.run_ok(&["retry", "--all"])?;
        }
        Ok(branches == count && sandbox.processes().is_empty())
    })?;
    ensure!(api.log().is_empty(), "requests were made while offline: {:?}", api.log());
    let attempted = queue.captures(count * 2)?.iter().filter(|capture| capture.attempts > 0).count();
    ensure!(attempted <= 1, "{attempted} captures were attempted instead of one");
    let probes = queue.pauses()?.first().map_or(0, |pause| pause.times);

    sandbox.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)])?;
    // The limit is used up during delivery, and renewed after some seconds.
    api.set_rate_limit(count as u64, Duration::from_secs(20 + count as u64));
    sandbox.variables.push(("NUGGET_DRAINER_LINGER_SECONDS".to_owned(), "10".to_owned()));
    let started = Instant::now();
    let synced = sandbox.run(&["sync"])?;
    let trouble = String::from_utf8_lossy(&synced.stderr);
    // The worker may have used up the limit before the command had looked at every pull request.
    ensure!(synced.status.success() || trouble.contains("rate limit is exhausted"), "nugget sync: {trouble}");
    let progress = std::cell::Cell::new((u64::MAX, Instant::now()));
    sandbox.wait_until("everything is delivered", Duration::MAX, || {
        let unfinished = queue.tally()?.unfinished();
        if unfinished != progress.get().0 {
            progress.set((unfinished, Instant::now()));
        }
        let is_paused = queue.pauses()?.iter().any(|pause| pause.until > Timestamp::now());
        if is_paused && started.elapsed() < STALL_MAX * 10 {
            // What a pause takes is no stall of what comes after it.
            progress.set((unfinished, Instant::now()));
        }
        ensure!(
            progress.get().1.elapsed() < STALL_MAX,
            "{unfinished} captures are left\n{}",
            sandbox.run_ok(&["status"])?
        );
        std::thread::sleep(Duration::from_millis(100));
        Ok(unfinished == 0)
    })?;
    let seconds = started.elapsed().as_secs();

    let mut captures = queue.captures(count * 2)?;
    captures.sort_by_key(|capture| capture.id);
    let numbers: Vec<u64> = captures.iter().filter_map(|capture| capture.pull_number).collect();
    ensure!(numbers == (1..=count as u64).collect::<Vec<_>>(), "not delivered in order of age: {numbers:?}");
    let pulls = api.pulls(SLUG);
    ensure!(pulls.len() == count, "{} pull requests for {count} captures", pulls.len());
    let log = api.log();
    let is =
        |line: &&String, beginning: &str, status: &str| line.starts_with(beginning) && line.ends_with(status);
    let opened = log.iter().filter(|line| is(line, "POST", " 201")).count();
    let refused = log.iter().filter(|line| line.ends_with(" 403") || line.ends_with(" 429")).count();
    ensure!(opened == count, "{opened} pull requests were opened");
    // Two for each capture, to look for a pull request and to open one. In total: one for the repository's
    // labels, and some to find out that a limit or a pause has ended.
    let requests = log.len();
    ensure!(requests <= 2 * count + 2 * refused + 5, "{requests} requests for {count} captures");
    ensure!(refused <= 10, "{refused} requests were made against the limit");
    Ok(json!({
        "captures": count,
        "probes_offline": probes,
        "requests": requests,
        "requests_per_capture": (requests as f64 / count as f64 * 100.0).round() / 100.0,
        "refused_by_rate_limit": refused,
        "seconds_to_deliver": seconds,
    }))
}
