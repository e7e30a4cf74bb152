//! Branches reach the remote with their pull requests despite failures, and what is merged comes back. Only
//! GitHub's API is simulated: git, the program and its processes are real.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::github_api::{Failure, GithubApi, Merge, PullRow, TOKEN};
use crate::support::{Sandbox, fixture, git, wait_until, write_script};

pub(crate) const SLUG: &str = "me/brain";
const TRANSCRIPT: &str = "transcripts/synthetic/flywheel.jsonl";

/// Creates a brain whose remote is on the local GitHub, with a token.
pub(crate) fn brain_at(api: &GithubApi) -> Sandbox {
    let mut sandbox = Sandbox::with_brain();
    add_remote(&mut sandbox, api);
    sandbox
}

/// Gives a brain a remote on the local GitHub, with a token.
pub(crate) fn add_remote(sandbox: &mut Sandbox, api: &GithubApi) {
    let bare = api.add_repository(SLUG);
    sandbox.git(&["push", "--quiet", bare.to_str().unwrap(), "main"]);
    sandbox.git(&["remote", "add", "origin", &api.clone_url(SLUG)]);
    connect(sandbox, api);
}

pub(crate) fn connect(sandbox: &mut Sandbox, api: &GithubApi) {
    sandbox.variables = [
        ("NUGGET_GITHUB_API", api.api_url()),
        ("GITHUB_TOKEN", TOKEN.to_owned()),
        // The tests sync explicitly, so that each knows when.
        ("NUGGET_SYNC_MINUTES", "0".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
}

/// Returns the newest capture, as `nugget status` shows it.
fn newest(sandbox: &Sandbox) -> Value {
    sandbox.json(["status", "--json"])["captures"][0].clone()
}

/// Waits until the newest capture has ended, starting the worker as often as needed.
pub(crate) fn wait_for_newest(sandbox: &Sandbox) -> Value {
    wait_until("the capture has ended", || {
        let state = newest(sandbox)["state"].clone();
        if state == "retrying" || state == "queued" {
            sandbox.ok(["retry", "--all"]);
        }
        state == "done" || state == "dead" || state == "nothing"
    });
    newest(sandbox)
}

fn open_queue(sandbox: &Sandbox) -> rusqlite::Connection {
    let folders = fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
    let mut queues = folders.map(|folder| folder.unwrap().path().join("queue.db"));
    let queue = rusqlite::Connection::open(queues.find(|file| file.is_file()).unwrap()).unwrap();
    queue.busy_timeout(Duration::from_secs(20)).unwrap();
    queue
}

pub(crate) fn wait_until_idle(sandbox: &Sandbox) {
    wait_until("the worker has exited", || sandbox.json(["status", "--json"])["drainer"]["running"] == false);
}

/// Asserts that the remote has the capture's branch with one commit and one pull request for it.
fn assert_delivered_once(sandbox: &Sandbox, api: &GithubApi, capture: &Value) -> PullRow {
    assert_eq!(capture["state"], "done", "{capture}");
    let branch = capture["branch"].as_str().unwrap();
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    let branches = git(&bare, &["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget"]);
    assert_eq!(branches.trim(), branch);
    assert_eq!(git(&bare, &["rev-parse", branch]).trim(), capture["commit"].as_str().unwrap());
    assert_eq!(git(&bare, &["rev-list", "--count", &format!("main..{branch}")]).trim(), "1");
    let pulls = api.pulls(SLUG);
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    assert_eq!(capture["pull_number"], pulls[0].number);
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]).lines().count(), 1);
    pulls[0].clone()
}

/// Searches every file below a folder and the arguments of every process that works there for the token.
fn assert_no_token(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                let found = memchr::memmem::find(&bytes, TOKEN.as_bytes());
                assert!(found.is_none(), "the token is in {}", path.display());
            }
        }
    }
    let processes = process_arguments(folder);
    assert!(processes.iter().all(|arguments| !arguments.contains(TOKEN)), "{processes:#?}");
}

/// Returns the arguments of each process whose arguments, environment or working folder name this folder.
fn process_arguments(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
        let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
        let (arguments, environment) = (read("cmdline"), read("environ"));
        let has = |text: &[u8]| memchr::memmem::find(text, folder.as_bytes()).is_some();
        let works_there =
            || fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let is_ours = has(&arguments) || has(&environment) || works_there();
        is_ours.then(|| String::from_utf8_lossy(&arguments).replace('\0', " "))
    });
    processes.collect()
}

/// Checks the processes repeatedly while `work` runs.
fn watch_for_token<T>(folder: &Path, work: impl FnOnce() -> T) -> T {
    struct SetOnDrop<'a>(&'a AtomicBool);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let processes = process_arguments(folder);
                assert!(processes.iter().all(|arguments| !arguments.contains(TOKEN)), "{processes:#?}");
            }
        });
        work()
    })
}

#[test]
fn a_session_becomes_one_pull_request_that_lists_its_units() {
    let api = GithubApi::start();
    let mut sandbox = brain_at(&api);
    // Everything is logged, and the logs are searched for the token.
    sandbox.variables.push(("NUGGET_LOG".to_owned(), "trace".to_owned()));
    api.with_repository(SLUG, |repo| repo.labels = vec!["nugget".to_owned(), "bug".to_owned()]);
    let before = (sandbox.git(&["status", "--porcelain"]), sandbox.git(&["rev-parse", "HEAD"]));
    let capture = watch_for_token(sandbox.path(), || sandbox.capture(&fixture(TRANSCRIPT)));
    let pull = assert_delivered_once(&sandbox, &api, &capture);
    assert_eq!(capture["pull_state"], "open");
    assert_eq!(capture["pushed"], capture["commit"]);
    assert!(pull.title.starts_with("Knowledge from session 20"), "{}", pull.title);
    assert_eq!((pull.base.as_str(), pull.labels.as_slice()), ("main", ["nugget".to_owned()].as_slice()));
    let commit = capture["commit"].as_str().unwrap();
    let files = sandbox.git(&["diff", "--name-only", "main", commit]);
    for path in files.lines() {
        assert!(pull.body.contains(&format!("/{SLUG}/blob/{commit}/{path}")), "{}", pull.body);
    }
    // Below each unit stands what the session said.
    let lines: Vec<&str> = pull.body.lines().collect();
    let units: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].starts_with("- **")).collect();
    assert!(!units.is_empty() && units.iter().all(|at| lines[at + 1].starts_with("  - `")), "{}", pull.body);
    assert_eq!((sandbox.git(&["status", "--porcelain"]), sandbox.git(&["rev-parse", "HEAD"])), before);
    let status = sandbox.ok(["status"]);
    assert!(status.contains(capture["pull_url"].as_str().unwrap()), "{status}");
    assert_eq!(
        api.log().iter().filter(|line| line.starts_with("POST") && line.contains("/pulls ")).count(),
        1
    );
    wait_until_idle(&sandbox);
    assert_no_token(sandbox.path());
}

#[test]
fn a_worker_in_a_terminal_never_prints_the_token() {
    for failing_request in ["info/refs?service=git-receive-pack", "/repos/me/brain/pulls"] {
        let api = GithubApi::start();
        let mut sandbox = brain_at(&api);
        sandbox.variables.push(("NUGGET_LOG".to_owned(), "trace".to_owned()));
        api.fail_next(1000, failing_request, Failure::Status(401, "Bad credentials", Vec::new()));
        let transcript = fixture(TRANSCRIPT);
        let output = sandbox.run(["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait"]);
        assert!(output.status.success());
        wait_until_idle(&sandbox);
        open_queue(&sandbox).execute("DELETE FROM pauses", []).unwrap();
        open_queue(&sandbox).execute("UPDATE captures SET not_before_ms = 0", []).unwrap();
        // The output is searched too, as that of every command is.
        assert!(sandbox.run(["drain", "-vv"]).status.success());
        let pauses: rusqlite::Result<i64> =
            open_queue(&sandbox).query_row("SELECT count(*) FROM pauses", [], |row| row.get(0));
        assert_eq!(pauses.unwrap(), 1, "it has tried and failed");
        assert_no_token(sandbox.path());
    }
}

#[test]
fn a_remote_other_than_github_gets_a_branch_only() {
    let sandbox = Sandbox::with_brain();
    let bare = sandbox.path().join("remote.git");
    git(sandbox.path(), &["clone", "--quiet", "--bare", "brain", "remote.git"]);
    sandbox.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    let branch = capture["branch"].as_str().unwrap();
    assert_eq!((&capture["state"], &capture["pull_number"]), (&"done".into(), &Value::Null));
    assert_eq!(capture["pushed"], capture["commit"]);
    assert_eq!(git(&bare, &["rev-parse", branch]).trim(), capture["commit"].as_str().unwrap());
    // A reviewer merges there, in whatever way that host offers.
    git(&bare, &["update-ref", "refs/heads/main", branch]);
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["merged"], serde_json::json!([capture["id"]]), "{synced}");
    assert_eq!(synced["remote"]["moved"], true, "{synced}");
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
    assert_eq!(newest(&sandbox)["pull_state"], "merged");
}

#[test]
fn a_worker_killed_at_any_request_delivers_exactly_once() {
    let receive = "/me/brain.git/git-receive-pack";
    for (matching, what) in [
        ("info/refs?service=git-receive-pack", Failure::Hang),
        (receive, Failure::Hang),
        (receive, Failure::HangAfter),
        ("GET /api/v3/repos/me/brain/pulls", Failure::Hang),
        ("POST /api/v3/repos/me/brain/pulls", Failure::Hang),
        ("POST /api/v3/repos/me/brain/pulls", Failure::HangAfter),
        ("GET /api/v3/repos/me/brain/labels", Failure::Hang),
        ("POST /api/v3/repos/me/brain/issues/1/labels", Failure::HangAfter),
    ] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        api.with_repository(SLUG, |repo| repo.labels = vec!["knowledge".to_owned()]);
        // A finished step is not requested again: once no request is left, there is nothing to die at.
        let deaths = if matches!(what, Failure::HangAfter) { 1 } else { 3 };
        api.fail_next(deaths, matching, what.clone());
        sandbox.ok(["capture-session", "--transcript", fixture(TRANSCRIPT).to_str().unwrap()]);
        for death in 1..=deaths {
            wait_until("the request hangs", || api.hanging_requests() == death);
            let processes = process_arguments(sandbox.path());
            assert!(processes.iter().all(|arguments| !arguments.contains(TOKEN)), "{processes:#?}");
            if matching.contains("git-receive-pack") {
                let is_git = |arguments: &String| arguments.contains("/me/brain.git");
                assert!(processes.iter().any(is_git), "no git at work: {processes:#?}");
            }
            kill_worker(&sandbox);
            sandbox.ok(["retry", "--all"]);
        }
        let capture = wait_for_newest(&sandbox);
        let pull = assert_delivered_once(&sandbox, &api, &capture);
        assert_eq!(pull.labels, ["knowledge"], "{matching} {what:?}");
        wait_until_idle(&sandbox);
        assert_no_token(sandbox.path());
    }
}

#[test]
fn a_renewed_token_is_used_by_the_running_process() {
    let api = GithubApi::start();
    let mut sandbox = brain_at(&api);
    let programs = sandbox.path().join("programs");
    write_script(&programs.join("gh"), "exec cat \"$HOME/login\"");
    let path = std::env::join_paths(
        [programs].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    sandbox.variables.retain(|(name, _)| name != "GITHUB_TOKEN");
    sandbox.variables.extend([
        ("PATH".to_owned(), path.unwrap().into_string().unwrap()),
        ("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned()),
        // The worker keeps running for as long as the test takes.
        ("NUGGET_DRAINER_LINGER_SECONDS".to_owned(), "60".to_owned()),
    ]);
    let login = sandbox.path().join("login");
    fs::write(&login, "a-token-that-has-expired").unwrap();
    let transcript = fixture(TRANSCRIPT);
    let printed = sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait"]);
    assert!(printed.contains("not delivered yet"), "{printed}");
    let pid = || sandbox.json(["status", "--json"])["drainer"]["pid"].as_i64().unwrap();
    let before = pid();
    fs::write(&login, TOKEN).unwrap();
    // `nugget retry` has another worker take over.
    let folder = open_queue(&sandbox).path().map(PathBuf::from).unwrap();
    queue::Queue::open(&folder).unwrap().retry(None).unwrap();
    wait_until("the capture has ended", || newest(&sandbox)["state"] == "done");
    let capture = newest(&sandbox);
    assert_eq!(pid(), before, "the same process is still running");
    assert_delivered_once(&sandbox, &api, &capture);
    fs::remove_file(&login).unwrap();
    assert_no_token(sandbox.path());
    kill_worker(&sandbox);
}

/// Were each request to count, a worker that is slower to begin than the next one is to come would never begin.
#[test]
fn retries_in_quick_succession_are_one_request() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture(TRANSCRIPT));
    let retry = |sandbox: &Sandbox| -> (i64, String) {
        sandbox.ok(["retry", "--all"]);
        let request = "SELECT at_ms, body FROM reports WHERE name = 'renewal'";
        open_queue(sandbox).query_row(request, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    let (first, environment) = retry(&sandbox);
    let (second, _) = retry(&sandbox);
    assert!(second == first || second - first >= 2_000, "{} ms later", second - first);
    sandbox.variables.push(("GITHUB_TOKEN".to_owned(), TOKEN.to_owned()));
    assert_ne!(retry(&sandbox).1, environment, "the worker that runs has no token");
}

fn kill_worker(sandbox: &Sandbox) {
    let pid = sandbox.json(["status", "--json"])["drainer"]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // Still our process: it holds the drain lock.
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("the worker is dead", || sandbox.json(["status", "--json"])["drainer"]["running"] == false);
}

#[test]
fn a_blocked_delivery_waits_and_says_what_to_do() {
    let pulls = "/repos/me/brain/pulls";
    let status = |status, message| Failure::Status(status, message, Vec::new());
    let later = vec![("retry-after", "77".to_owned())];
    for (matching, what, expected) in [
        (pulls, status(401, "Bad credentials"), "gh auth login"),
        (pulls, status(403, "Resource not accessible by personal access token"), "pull requests"),
        (pulls, status(404, "Not Found"), "nugget doctor"),
        (pulls, status(403, "Repository was archived so is read-only."), "unarchive"),
        (pulls, status(500, "Server Error"), "nothing is lost"),
        (pulls, Failure::Status(429, "You have exceeded a secondary rate limit", later), "by itself"),
        (pulls, Failure::Garbage, "login page"),
        (pulls, Failure::CutBefore, "tries again"),
        ("info/refs?service=git-receive-pack", status(401, "no"), "permission"),
        ("info/refs?service=git-receive-pack", status(404, "no"), "git remote -v"),
        ("git-receive-pack", status(503, "no"), "cannot be reached"),
    ] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        api.fail_next(1000, matching, what.clone());
        let output =
            sandbox.run(["capture-session", "--transcript", fixture(TRANSCRIPT).to_str().unwrap(), "--wait"]);
        let output_text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && output_text.contains("not delivered yet"),
            "{what:?}: {output_text}"
        );
        wait_until_idle(&sandbox);
        // However many captures wait, only the oldest is tried.
        let second = sandbox.run([
            "capture-session",
            "--transcript",
            fixture("transcripts/synthetic/go_race.jsonl").to_str().unwrap(),
            "--wait",
        ]);
        assert!(String::from_utf8(second.stdout).unwrap().contains("not delivered yet"));
        wait_until_idle(&sandbox);
        let status = sandbox.json(["status", "--json"]);
        assert_eq!(status["queue"]["dead"], 0);
        let waits = &status["remote"]["waits"];
        assert!(waits["why"].as_str().unwrap().contains(expected), "{what:?}: {waits}");
        assert!(sandbox.ok(["status"]).contains("deliveries have waited"));
        let (second, first) = (&status["captures"][0], &status["captures"][1]);
        assert_eq!(first["attempts"], 1, "no attempt is counted");
        assert_eq!((&second["attempts"], &second["stage"]), (&0.into(), &"delivery".into()), "{what:?}");
        let session = second["session_id"].as_str().unwrap()[..8].to_owned();
        assert!(api.log().iter().all(|line| !line.contains(&session)), "{what:?}: {:#?}", api.log());
        // The failure is resolved: both are delivered, the older one first.
        api.clear_failures();
        assert_eq!(wait_for_newest(&sandbox)["state"], "done");
        let numbers: Vec<Value> = sandbox.json(["status", "--json"])["captures"]
            .as_array()
            .unwrap()
            .iter()
            .map(|capture| capture["pull_number"].clone())
            .collect();
        assert_eq!(numbers, [2, 1], "{what:?}");
        wait_until_idle(&sandbox);
        assert_no_token(sandbox.path());
    }
}

#[test]
fn an_invalid_pull_request_is_a_failed_capture_with_a_reason() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let wrong = serde_json::json!([{ "resource": "PullRequest", "field": "title", "code": "custom", "message": "title is too sad" }]);
    api.fail_next(1, "POST /api/v3/repos/me/brain/pulls", Failure::Invalid(wrong));
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    assert_eq!(capture["state"], "dead", "{capture}");
    assert!(capture["reason"].as_str().unwrap().contains("title is too sad"), "{capture}");
    sandbox.ok(["retry", "--all"]);
    assert_delivered_once(&sandbox, &api, &wait_for_newest(&sandbox));
}

#[test]
fn a_closed_pull_request_is_not_opened_again() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    let pull = assert_delivered_once(&sandbox, &api, &capture);
    api.close(SLUG, pull.number);
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["closed"], serde_json::json!([capture["id"]]), "{synced}");
    assert_eq!(
        (&newest(&sandbox)["state"], &newest(&sandbox)["pull_state"]),
        (&"done".into(), &"closed".into())
    );
    let asked = api.log().len();
    let second_sync = sandbox.json(["sync", "--json"]);
    assert_eq!(second_sync["remote"]["closed"], serde_json::json!([]));
    assert_eq!(api.log().len(), asked + 1, "it might be open again");
}

#[test]
fn a_pull_request_that_is_opened_again_waits_again() {
    for is_seen in [true, false] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        let capture = sandbox.capture(&fixture(TRANSCRIPT));
        let number = assert_delivered_once(&sandbox, &api, &capture).number;
        let waiting = || sandbox.json(["review", "--json"])["items"].as_array().unwrap().len();
        api.close(SLUG, number);
        sandbox.ok(["sync"]);
        assert_eq!(waiting(), 0);
        api.reopen(SLUG, number);
        if is_seen {
            sandbox.ok(["sync"]);
            assert_eq!((waiting(), &newest(&sandbox)["pull_state"]), (3, &"open".into()));
        }
        api.merge(SLUG, number, Merge::Commit).unwrap();
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["merged"], serde_json::json!([capture["id"]]), "{synced}");
        assert_eq!(newest(&sandbox)["pull_state"], "merged");
        let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
        for folder in [sandbox.brain(), bare] {
            assert_eq!(git(&folder, &["branch", "--list", "nugget/*"]), "");
        }
    }
}

#[test]
fn what_was_decided_before_its_pull_request_ends_with_that() {
    for (decide, expected) in [("merge", "merged"), ("reject", "closed"), ("delete on GitHub", "closed")] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        let refused = Failure::Status(403, "Resource not accessible by personal access token", Vec::new());
        api.fail_next(1000, "POST /api/v3/repos/me/brain/pulls", refused);
        sandbox.run(["capture-session", "--transcript", fixture(TRANSCRIPT).to_str().unwrap(), "--wait"]);
        wait_until_idle(&sandbox);
        let waiting = newest(&sandbox);
        assert_eq!((&waiting["stage"], &waiting["pushed"]), (&"delivery".into(), &waiting["commit"]));
        let branch = waiting["branch"].as_str().unwrap();
        let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
        match decide {
            "merge" | "reject" => {
                sandbox.ok(["review", decide, "--all"]);
                // At once, and not with its next attempt.
                let status = sandbox.json(["status", "--json"]);
                assert_eq!(
                    (&status["captures"][0]["state"], &status["remote"]["waits"]),
                    (&"done".into(), &Value::Null)
                );
            }
            _ => {
                git(&bare, &["branch", "-D", branch]);
                api.clear_failures();
            }
        }
        let ended = wait_for_newest(&sandbox);
        assert_eq!((&ended["state"], &ended["pull_state"]), (&"done".into(), &expected.into()), "{ended}");
        assert_eq!(
            (api.pulls(SLUG).len(), git(&bare, &["branch", "--list", "nugget/*"])),
            (0, String::new())
        );
        assert_eq!(sandbox.json(["review", "--json"])["items"], serde_json::json!([]));
    }
}

/// Asserts that neither the remote nor its pull requests have anything of a rejected unit.
fn assert_withheld(sandbox: &Sandbox, api: &GithubApi, rejected: &Value, others: &[&Value]) {
    let capture = wait_for_newest(sandbox);
    let pull = assert_delivered_once(sandbox, api, &capture);
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    let sent = git(&bare, &["log", "--patch", &format!("main..{}", pull.branch)]) + &pull.title + &pull.body;
    for key in ["path", "title"] {
        let text = rejected[key].as_str().unwrap();
        assert!(!sent.contains(text), "{text}: {sent}");
    }
    let paths = git(&bare, &["diff", "--name-only", "main", &pull.branch]);
    let mut expected: Vec<&str> = others.iter().map(|item| item["path"].as_str().unwrap()).collect();
    expected.sort_unstable();
    assert_eq!(paths.lines().collect::<Vec<_>>(), expected);
    assert!(pull.body.contains(&format!("{} units of knowledge", others.len())), "{}", pull.body);
    assert_eq!(capture["units"], others.len(), "{capture}");
    assert_eq!(sandbox.json(["review", "--json"])["items"].as_array().unwrap().len(), others.len());
}

#[test]
fn what_is_rejected_before_its_branch_is_pushed_stays_here() {
    for place in ["", "git-after-ref"] {
        let api = GithubApi::start();
        let mut sandbox = brain_at(&api);
        api.fail_next(1000, "brain.git", Failure::Status(503, "Unavailable", Vec::new()));
        sandbox.run(["capture-session", "--transcript", fixture(TRANSCRIPT).to_str().unwrap(), "--wait"]);
        wait_until_idle(&sandbox);
        let items = sandbox.json(["review", "--json"])["items"].clone();
        sandbox.ok(["review", "reject", items[0]["id"].as_str().unwrap(), "--because", "names a customer"]);
        let marks = sandbox.path().join("marks");
        if !place.is_empty() {
            fs::create_dir(&marks).unwrap();
            let variables =
                [("FAILPOINTS", format!("{place}=1")), ("FAILPOINT_MARKS", marks.display().to_string())];
            sandbox.variables.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        }
        api.clear_failures();
        assert_withheld(&sandbox, &api, &items[0], &[&items[1], &items[2]]);
        let kills = fs::read_dir(&marks).map_or(0, Iterator::count);
        assert_eq!(kills, usize::from(!place.is_empty()));
        // What remains is finished as ever, and the comment names only that.
        sandbox.ok(["review", "reject", "--all"]);
        let pull = &api.pulls(SLUG)[0];
        let comments = format!("{:?}", pull.comments);
        assert!(comments.contains(items[1]["title"].as_str().unwrap()), "{comments}");
        assert!(!comments.contains("names a customer"), "{comments}");
        assert!(!pull.is_open);
    }
}

#[test]
fn what_was_rejected_of_an_import_before_there_was_a_remote_stays_here() {
    let mut sandbox = Sandbox::with_brain();
    for (name, title) in
        [("a.md", "Who owns a cache"), ("b.md", "Who pays for a queue"), ("c.md", "Why locks wait")]
    {
        let note = format!("# {title}\n\n{title}: this is written down once, with what follows from it.\n");
        fs::write(sandbox.path().join(name), note).unwrap();
    }
    sandbox.ok(["import", "a.md", "b.md", "c.md"]);
    let items = sandbox.json(["review", "--json"])["items"].clone();
    sandbox.ok(["review", "reject", items[1]["id"].as_str().unwrap()]);
    wait_until_idle(&sandbox);
    let api = GithubApi::start();
    add_remote(&mut sandbox, &api);
    sandbox.ok(["sync"]);
    assert_withheld(&sandbox, &api, &items[1], &[&items[0], &items[2]]);
}

/// Replaces the brain by a new clone. What nugget keeps beside it stays.
fn clone_again(sandbox: &Sandbox, api: &GithubApi) {
    wait_until_idle(sandbox);
    fs::remove_dir_all(sandbox.brain()).unwrap();
    let bare = api.with_repository(SLUG, |repository| repository.bare.clone());
    git(sandbox.path(), &["clone", "--quiet", bare.to_str().unwrap(), "brain"]);
    sandbox.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)]);
}

#[test]
fn a_capture_that_waits_for_the_remote_outlives_its_clone() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    api.fail_next(1000, "git-receive-pack", Failure::Status(503, "no", Vec::new()));
    sandbox.run(["capture-session", "--transcript", fixture(TRANSCRIPT).to_str().unwrap(), "--wait"]);
    assert_eq!(newest(&sandbox)["stage"], "delivery");
    clone_again(&sandbox, &api);
    api.clear_failures();
    assert_delivered_once(&sandbox, &api, &wait_for_newest(&sandbox));
}

#[test]
fn a_branch_that_is_partly_reviewed_waits_on_after_a_new_clone() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    let pull = assert_delivered_once(&sandbox, &api, &capture);
    sandbox.ok(["review", "merge", "1"]);
    clone_again(&sandbox, &api);
    sandbox.ok(["sync"]);
    assert!(api.pulls(SLUG)[0].is_open, "{pull:#?}");
    assert!(api.with_repository(SLUG, |repository| repository.tip(&pull.branch)).is_some());
}

#[test]
fn captures_from_before_the_remote_are_delivered_oldest_first() {
    let sandbox = Sandbox::with_brain();
    let first = sandbox.capture(&fixture(TRANSCRIPT));
    let second = sandbox.capture(&fixture("transcripts/synthetic/go_race.jsonl"));
    assert_eq!((&first["state"], &second["state"]), (&"done".into(), &"done".into()));
    // A deleted branch is a decision: nothing is sent for it.
    let third = sandbox.capture(&fixture("transcripts/synthetic/k8s_probe.jsonl"));
    sandbox.git(&["branch", "-D", third["branch"].as_str().unwrap()]);
    // Otherwise the last worker may be the first to see the remote.
    wait_until_idle(&sandbox);
    let api = GithubApi::start();
    let mut sandbox = sandbox;
    add_remote(&mut sandbox, &api);
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["delivered_late"], 3, "{synced}");
    wait_for_newest(&sandbox);
    let pulls = api.pulls(SLUG);
    let branches: Vec<&str> = pulls.iter().map(|pull| pull.branch.as_str()).collect();
    assert_eq!(branches, [first["branch"].as_str().unwrap(), second["branch"].as_str().unwrap()]);
    assert!(pulls[0].body.contains("**Units**"), "{}", pulls[0].body);
    assert_eq!(newest(&sandbox)["pull_state"], "closed");
}

#[test]
fn an_import_becomes_a_pull_request() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let note = "# Who owns a cache\n\nA cache without an owner is a leak, every single time.\n";
    fs::write(sandbox.path().join("caches.md"), note).unwrap();
    let printed = sandbox.ok(["import", "caches.md"]);
    assert!(printed.contains("the branch is being pushed"), "{printed}");
    let capture = wait_for_newest(&sandbox);
    let pull = assert_delivered_once(&sandbox, &api, &capture);
    assert_eq!((&capture["origin"], &capture["units"]), (&"import".into(), &1.into()));
    assert!(pull.title.starts_with("Knowledge imported 20"), "{}", pull.title);
    assert!(pull.body.contains("imported as they were written"), "{}", pull.body);
    assert!(pull.body.contains("Who owns a cache"), "{}", pull.body);
    // Imported again, as after a kill: the branch and its pull request exist already.
    sandbox.ok(["import", "caches.md", "--again"]);
    let captures = sandbox.json(["status", "--json"])["captures"].as_array().unwrap().len();
    assert_eq!((captures, api.pulls(SLUG).len()), (1, 1));
    api.merge(SLUG, pull.number, Merge::Squash).unwrap();
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["merged"], serde_json::json!([capture["id"]]), "{synced}");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
    assert_eq!(sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), 1);
}

#[test]
fn an_import_from_before_the_remote_is_delivered_later() {
    let mut sandbox = Sandbox::with_brain();
    let note = "# Who owns a cache\n\nA cache without an owner is a leak, every single time.\n";
    fs::write(sandbox.path().join("caches.md"), note).unwrap();
    let printed = sandbox.ok(["import", "caches.md"]);
    assert!(!printed.contains("remote"), "{printed}");
    assert_eq!(newest(&sandbox)["state"], "done");
    let api = GithubApi::start();
    add_remote(&mut sandbox, &api);
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["delivered_late"], 1);
    assert_delivered_once(&sandbox, &api, &wait_for_newest(&sandbox));
}

#[test]
fn an_offline_backlog_is_delivered_in_order_two_requests_each() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    // Nothing listens there.
    sandbox.git(&["remote", "set-url", "origin", "http://127.0.0.1:9/me/brain.git"]);
    let names = ["flywheel", "go_race", "k8s_probe", "adr_outbox"];
    let count = names.len();
    for name in names {
        let transcript = fixture(&format!("transcripts/synthetic/{name}.jsonl"));
        let printed = sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait"]);
        assert!(printed.contains("not delivered yet"), "{printed}");
    }
    wait_until_idle(&sandbox);
    assert_eq!(api.log(), Vec::<String>::new());
    sandbox.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)]);
    sandbox.json(["sync", "--json"]);
    wait_for_newest(&sandbox);
    let captures = sandbox.json(["status", "--json"])["captures"].clone();
    let numbers: Vec<u64> = captures
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter_map(|capture| capture["pull_number"].as_u64())
        .collect();
    assert_eq!(numbers, (1..=count as u64).collect::<Vec<_>>());
    // Plus one request for the names of the repository's labels, per worker.
    let (labels, others): (Vec<String>, Vec<String>) =
        api.log().into_iter().partition(|line| line.contains("/labels"));
    assert_eq!(others.len(), 2 * count, "and {} for labels: {others:#?}", labels.len());
}

#[test]
fn merged_branches_are_deleted_and_the_checkout_is_updated() {
    for (how, deletes) in [(Merge::Commit, false), (Merge::Squash, false), (Merge::Commit, true)] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        api.with_repository(SLUG, |repo| repo.deletes_merged = deletes);
        let capture = sandbox.capture(&fixture(TRANSCRIPT));
        let pull = assert_delivered_once(&sandbox, &api, &capture);
        api.merge(SLUG, pull.number, how).unwrap();
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["merged"], serde_json::json!([capture["id"]]), "{synced}");
        assert_eq!(synced["remote"]["moved"], true, "{synced}");
        assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
        let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
        assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
        assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
        assert_eq!(newest(&sandbox)["pull_state"], "merged");
        let units = sandbox.json(["list", "--json"]);
        assert_eq!(units["units"].as_array().unwrap().len() as u64, capture["units"].as_u64().unwrap());
        assert_eq!(sandbox.git(&["fsck", "--no-dangling"]), "");
    }
}

#[test]
fn servers_and_workers_notice_merges_on_their_own() {
    let api = GithubApi::start();
    let mut sandbox = brain_at(&api);
    sandbox.variables.retain(|(name, _)| name != "NUGGET_SYNC_MINUTES");
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    wait_until_idle(&sandbox);
    api.merge(SLUG, capture["pull_number"].as_u64().unwrap(), Merge::Commit).unwrap();
    // A worker that starts checks for merges unless one was made recently, so the last check is made old.
    open_queue(&sandbox).execute("UPDATE reports SET at_ms = 0 WHERE name = 'sync'", []).unwrap();
    sandbox.capture(&fixture("transcripts/synthetic/go_race.jsonl"));
    wait_until("the merge is noticed", || {
        sandbox.json(["status", "--json"])["captures"][1]["pull_state"] == "merged"
    });
    let first = sandbox.git(&["log", "-1", "--format=%s", "main"]);
    assert!(first.starts_with("Merge pull request"), "{first}");
}
