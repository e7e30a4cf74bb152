//! A local GitHub: repositories that are real bare git repositories, pull requests with a state,
//! errors on demand, a rate limit, and a log of requests.
//!
//! Requests and answers are checked against GitHub's own description of its API; dropping the server
//! panics with the violations found.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::http::{self, Request};
use super::openapi;

/// The only accepted token. No redactor knows its form, so a leak would show.
pub(crate) const TOKEN: &str = "canary-token-3f9c51d20b";
/// The token's user.
pub(crate) const LOGIN: &str = "me";
/// The path of the API, as on a GitHub Enterprise Server.
const BASE: &str = "/api/v3";
const DOCUMENTATION_URL: &str = "https://docs.github.com/rest";

/// The ways in which a request can fail.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// This status with this message and these headers. The work is not done.
    Status(u16, &'static str, Vec<(&'static str, String)>),
    /// The same with `errors`, as in a 422.
    Invalid(Value),
    /// A foreign page with status 200.
    Garbage,
    /// No answer until the client disconnects or the server is dropped. The work is not done.
    Hang,
    /// No answer, but the work is done.
    HangAfter,
    /// The connection closes without an answer, and the work is not done.
    CutBefore,
    /// The work is done, and the connection closes without an answer.
    CutAfter,
}

/// The ways in which a person can merge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merge {
    Commit,
    Squash,
}

/// The parts of a pull request that a test may read.
#[derive(Clone, Debug)]
pub(crate) struct PullRow {
    pub(crate) number: u64,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) branch: String,
    pub(crate) base: String,
    pub(crate) head_commit: String,
    pub(crate) is_open: bool,
    pub(crate) merged_at: Option<Timestamp>,
    pub(crate) merged_by: Option<&'static str>,
    pub(crate) comments: Vec<String>,
    pub(crate) labels: Vec<String>,
    /// Users, and teams as `team:NAME`.
    pub(crate) reviewers: Vec<String>,
}

/// The parts of a repository that a test may change.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Its former names: requests for them are redirected.
    pub(crate) former: Vec<String>,
    pub(crate) private: bool,
    pub(crate) archived: bool,
    pub(crate) can_push: bool,
    pub(crate) deletes_merged: bool,
    pub(crate) fork_of: Option<String>,
    pub(crate) labels: Vec<String>,
    /// Who can be asked for a review.
    pub(crate) collaborators: Vec<String>,
    /// Branches that cannot be deleted.
    pub(crate) protected: Vec<String>,
    pub(crate) pulls: Vec<PullRow>,
    pub(crate) bare: PathBuf,
    id: u64,
}

/// A server that runs until it is dropped.
pub(crate) struct GithubApi {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    shared: Arc<Shared>,
    /// Removed with the server.
    _folder: tempfile::TempDir,
}

struct Shared {
    url: String,
    state: Mutex<State>,
    is_over: AtomicBool,
}

struct State {
    folder: PathBuf,
    repositories: Vec<Repo>,
    failures: Vec<(usize, String, Failure)>,
    log: Vec<String>,
    /// How many requests were left hanging, git's included.
    hanging: usize,
    mistakes: Vec<String>,
    /// The number of requests left, and when the limit resets.
    limit: (u64, Timestamp),
    scopes: Option<&'static str>,
    skew_seconds: i64,
    /// Whether git needs no password, as with a key for ssh.
    is_git_open: bool,
}

impl GithubApi {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let state = State {
            folder: folder.path().to_owned(),
            repositories: Vec::new(),
            failures: Vec::new(),
            log: Vec::new(),
            hanging: 0,
            mistakes: Vec::new(),
            limit: (5000, Timestamp::now() + jiff::SignedDuration::from_hours(1)),
            scopes: Some("repo, read:org"),
            is_git_open: false,
            skew_seconds: 0,
        };
        let shared =
            Arc::new(Shared { url: url.clone(), state: Mutex::new(state), is_over: AtomicBool::new(false) });
        let serving = Arc::clone(&shared);
        let watched = Arc::clone(&shared);
        http::serve_connections(
            listener,
            move || watched.is_over.load(Ordering::Relaxed),
            move |stream| serve(stream, &serving),
        );
        Self { url, shared, _folder: folder }
    }

    /// Returns the value for the setting `github.api`.
    pub(crate) fn api_url(&self) -> String {
        format!("{}{BASE}", self.url)
    }

    /// Returns the URL for `git clone`; it requires the token.
    pub(crate) fn clone_url(&self, slug: &str) -> String {
        format!("{}/{slug}.git", self.url)
    }

    /// Adds an empty, private repository and returns its path.
    pub(crate) fn add_repository(&self, slug: &str) -> PathBuf {
        self.state().add(slug).bare.clone()
    }

    /// Changes or reads a repository.
    pub(crate) fn with_repository<T>(&self, slug: &str, change: impl FnOnce(&mut Repo) -> T) -> T {
        let mut state = self.state();
        let repo = state.find(slug).unwrap_or_else(|| panic!("there is no {slug}"));
        repo.refresh();
        change(repo)
    }

    pub(crate) fn has_repository(&self, slug: &str) -> bool {
        self.state().find(slug).is_some()
    }

    pub(crate) fn pulls(&self, slug: &str) -> Vec<PullRow> {
        self.with_repository(slug, |repo| repo.pulls.clone())
    }

    pub(crate) fn delete_repository(&self, slug: &str) {
        self.state().repositories.retain(|repo| repo.slug() != slug);
    }

    /// Gives the repository another owner or name; the former one redirects there.
    pub(crate) fn rename(&self, slug: &str, to: &str) {
        let (owner, name) = to.split_once('/').unwrap();
        self.with_repository(slug, |repo| {
            repo.former.push(slug.to_owned());
            (repo.owner, repo.name) = (owner.to_owned(), name.to_owned());
        });
    }

    /// Renames the default branch, as the repository's settings do; open pull requests follow.
    pub(crate) fn rename_default_branch(&self, slug: &str, to: &str) {
        self.with_repository(slug, |repo| {
            let from = repo.default_branch();
            git(&repo.bare, &["branch", "-m", &from, to]);
            git(&repo.bare, &["symbolic-ref", "HEAD", &format!("refs/heads/{to}")]);
            for pull in repo.pulls.iter_mut().filter(|pull| pull.is_open && pull.base == from) {
                pull.base = to.to_owned();
            }
        });
    }

    /// Merges as a person does on the page: really, in the bare repository. Returns the commit's id, or the
    /// page's error.
    pub(crate) fn merge(&self, slug: &str, number: u64, how: Merge) -> Result<String, String> {
        self.with_repository(slug, |repo| repo.merge(number, how))
    }

    /// Closes as a person does on the page.
    pub(crate) fn close(&self, slug: &str, number: u64) {
        self.with_repository(slug, |repo| repo.pull(number).unwrap().is_open = false);
    }

    /// Opens a closed one again, as a person does on the page.
    pub(crate) fn reopen(&self, slug: &str, number: u64) {
        self.with_repository(slug, |repo| repo.pull(number).unwrap().is_open = true);
    }

    /// Commits a file to a branch, as a person does on the page: a new branch starts at the default one.
    pub(crate) fn commit(&self, slug: &str, branch: &str, path: &str, content: &str) -> String {
        self.with_repository(slug, |repo| {
            let from = repo.tip(branch).or_else(|| repo.tip(&repo.default_branch()));
            let from = from.map_or_else(String::new, |from| format!("from {from}\n"));
            let stream = format!(
                "commit refs/heads/{branch}\ncommitter reviewer <reviewer@example.com> {} +0000\ndata 4\nedit\n{from}M 644 inline {path}\ndata {}\n{content}\ndone\n",
                Timestamp::now().as_second(),
                content.len(),
            );
            let mut import = git_command();
            import.args(["fast-import", "--quiet", "--done", "--force"]).current_dir(&repo.bare);
            let mut child = import.stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
            repo.tip(branch).unwrap()
        })
    }

    /// Makes the next `times` requests whose `METHOD /path?query` contains `matching` fail, git's
    /// included (`POST /me/brain.git/git-receive-pack`).
    pub(crate) fn fail_next(&self, times: usize, matching: &str, failure: Failure) {
        self.state().failures.push((times, matching.to_owned(), failure));
    }

    /// Ends all failures.
    pub(crate) fn clear_failures(&self) {
        self.state().failures.clear();
    }

    /// Sets how many requests are left, and how long until the limit of 5,000 resets.
    pub(crate) fn set_rate_limit(&self, left: u64, reset: Duration) {
        self.state().limit = (left, Timestamp::now() + jiff::SignedDuration::try_from(reset).unwrap());
    }

    /// Sets what a classic token may do; `None` for a fine-grained token, which has no scopes header.
    pub(crate) fn set_scopes(&self, scopes: Option<&'static str>) {
        self.state().scopes = scopes;
    }

    /// Lets git in without a password, as with a key for ssh.
    pub(crate) fn open_git(&self) {
        self.state().is_git_open = true;
    }

    /// Sets how far the server's clock is ahead.
    pub(crate) fn set_clock_skew(&self, seconds: i64) {
        self.state().skew_seconds = seconds;
    }

    /// Returns all API requests with their status, in order: `POST /repos/me/brain/pulls 201`. One that got
    /// no answer has 0.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    /// Returns how many requests were left hanging so far, git's included.
    pub(crate) fn hanging_requests(&self) -> usize {
        self.state().hanging
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for GithubApi {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        let mistakes = std::mem::take(&mut self.state().mistakes);
        if !std::thread::panicking() {
            assert!(mistakes.is_empty(), "not as GitHub describes it: {mistakes:#?}");
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, slug: &str) -> &mut Repo {
        let (owner, name) = slug.split_once('/').unwrap();
        let id = self.repositories.last().map_or(1, |repo| repo.id + 1);
        let bare = self.folder.join(format!("{id}.git"));
        std::fs::create_dir_all(&bare).unwrap();
        git(&bare, &["init", "--bare", "--quiet", "--initial-branch=main"]);
        git(&bare, &["config", "http.receivepack", "true"]);
        self.repositories.push(Repo {
            owner: owner.to_owned(),
            name: name.to_owned(),
            former: Vec::new(),
            private: true,
            archived: false,
            can_push: true,
            deletes_merged: false,
            fork_of: None,
            labels: Vec::new(),
            collaborators: Vec::new(),
            protected: Vec::new(),
            pulls: Vec::new(),
            bare,
            id,
        });
        self.repositories.last_mut().unwrap()
    }

    fn find(&mut self, slug: &str) -> Option<&mut Repo> {
        let is_it = |name: &str| name.eq_ignore_ascii_case(slug);
        let at = self.repositories.iter().position(|repo| is_it(&repo.slug()));
        let at = at
            .or_else(|| self.repositories.iter().position(|repo| repo.former.iter().any(|name| is_it(name))));
        at.map(|at| &mut self.repositories[at])
    }

    /// Takes the failure that applies to a request.
    fn take_failure(&mut self, request: &str) -> Option<Failure> {
        let (times, _, failure) = self
            .failures
            .iter_mut()
            .find(|(times, matching, _)| *times > 0 && request.contains(matching.as_str()))?;
        *times -= 1;
        Some(failure.clone())
    }
}

impl Repo {
    fn slug(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub(crate) fn default_branch(&self) -> String {
        git(&self.bare, &["symbolic-ref", "--short", "HEAD"]).trim().to_owned()
    }

    /// Returns the commit that a branch points to.
    pub(crate) fn tip(&self, branch: &str) -> Option<String> {
        let name = format!("refs/heads/{branch}");
        let (is_there, out) = try_git(&self.bare, &["rev-parse", "--verify", "--quiet", &name]);
        is_there.then(|| out.trim().to_owned())
    }

    fn pull(&mut self, number: u64) -> Option<&mut PullRow> {
        self.pulls.iter_mut().find(|pull| pull.number == number)
    }

    /// Does what GitHub does on its own: an open pull request follows its branch, is closed with it, and is
    /// merged when its commits are pushed to the base.
    fn refresh(&mut self) {
        for at in 0..self.pulls.len() {
            let pull = &self.pulls[at];
            if !pull.is_open {
                continue;
            }
            let (head, base) = (self.tip(&pull.branch), self.tip(&pull.base));
            let pull = &mut self.pulls[at];
            match (head, base) {
                (Some(head), Some(base)) => {
                    if try_git(&self.bare, &["merge-base", "--is-ancestor", &head, &base]).0 {
                        pull.is_open = false;
                        (pull.merged_at, pull.merged_by) = (Some(Timestamp::now()), Some("pusher"));
                    }
                    pull.head_commit = head;
                }
                _ => pull.is_open = false,
            }
        }
    }

    fn merge(&mut self, number: u64, how: Merge) -> Result<String, String> {
        let slug = self.slug();
        let Some(pull) = self.pull(number).filter(|pull| pull.is_open).cloned() else {
            return Err("Pull Request is not mergeable".to_owned());
        };
        let (Some(head), Some(base)) = (self.tip(&pull.branch), self.tip(&pull.base)) else {
            return Err("Pull Request is not mergeable".to_owned());
        };
        let (is_clean, tree) = try_git(&self.bare, &["merge-tree", "--write-tree", &base, &head]);
        if !is_clean {
            return Err("This branch has conflicts that must be resolved".to_owned());
        }
        let tree = tree.lines().next().unwrap();
        let message = match how {
            Merge::Commit => format!("Merge pull request #{number} from {slug}\n\n{}", pull.title),
            Merge::Squash => format!("{} (#{number})\n\n{}", pull.title, pull.body),
        };
        let mut arguments = vec!["commit-tree", tree, "-m", &message, "-p", &base];
        if matches!(how, Merge::Commit) {
            arguments.extend(["-p", &head]);
        }
        let commit = git(&self.bare, &arguments).trim().to_owned();
        git(&self.bare, &["update-ref", &format!("refs/heads/{}", pull.base), &commit, &base]);
        let deletes = self.deletes_merged;
        if deletes {
            git(&self.bare, &["update-ref", "-d", &format!("refs/heads/{}", pull.branch), &head]);
        }
        let pull = self.pull(number).unwrap();
        pull.is_open = false;
        (pull.merged_at, pull.merged_by) = (Some(Timestamp::now()), Some("reviewer"));
        Ok(commit)
    }

    fn json(&self, url: &str) -> Value {
        let slug = self.slug();
        let mut repository = json!({
            "id": self.id,
            "name": self.name,
            "full_name": slug,
            "owner": { "login": self.owner },
            "private": self.private,
            "html_url": format!("{url}/{slug}"),
            "clone_url": format!("{url}/{slug}.git"),
            "ssh_url": format!("git@127.0.0.1:{slug}.git"),
            "fork": self.fork_of.is_some(),
            "default_branch": self.default_branch(),
            "archived": self.archived,
            "delete_branch_on_merge": self.deletes_merged,
            "permissions": { "admin": self.can_push, "push": self.can_push, "pull": true },
        });
        if let Some(parent) = &self.fork_of {
            repository["parent"] = json!({ "full_name": parent });
        }
        repository
    }

    /// `is_whole`: as a single pull request, not as an item of a list.
    fn pull_json(&self, pull: &PullRow, url: &str, is_whole: bool) -> Value {
        let slug = self.slug();
        let end = |branch: &str, sha: &str| {
            json!({
                "label": format!("{}:{branch}", self.owner),
                "ref": branch,
                "sha": sha,
                "repo": { "full_name": slug },
            })
        };
        let labels: Vec<Value> = pull.labels.iter().map(|name| label_json(name)).collect();
        let base = self.tip(&pull.base).unwrap_or_else(|| "0".repeat(40));
        let mut row = json!({
            "id": 1000 + pull.number,
            "number": pull.number,
            "html_url": format!("{url}/{slug}/pull/{}", pull.number),
            "state": if pull.is_open { "open" } else { "closed" },
            "locked": false,
            "draft": false,
            "title": pull.title,
            "body": pull.body,
            "user": { "login": LOGIN },
            "head": end(&pull.branch, &pull.head_commit),
            "base": end(&pull.base, &base),
            "labels": labels,
            "created_at": "2026-11-20T14:12:00Z",
            "closed_at": pull.merged_at,
            "merged_at": pull.merged_at,
        });
        if is_whole {
            row["merged"] = json!(pull.merged_at.is_some());
            row["merged_by"] = pull.merged_by.map_or(Value::Null, |login| json!({ "login": login }));
        }
        row
    }
}

fn label_json(name: &str) -> Value {
    json!({ "id": 1, "name": name, "color": "ededed" })
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
        Self {
            status,
            headers,
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        }
    }

    fn error(status: u16, message: &str) -> Self {
        let status_text = status.to_string();
        Self::json(
            status,
            &json!({ "message": message, "documentation_url": DOCUMENTATION_URL, "status": status_text }),
        )
    }

    fn invalid(errors: &Value) -> Self {
        Self::json(
            422,
            &json!({ "message": "Validation Failed", "errors": errors, "documentation_url": DOCUMENTATION_URL }),
        )
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = http::read_request(&mut reader)? {
        let line = format!("{} {}", request.method, request.target);
        let path = request.target.split('?').next().unwrap_or_default();
        let is_api = path == BASE || path.starts_with(&format!("{BASE}/"));
        let failure = shared.state().take_failure(&line);
        let reply = match failure {
            Some(Failure::Hang) => {
                log_request(shared, is_api, &line, 0);
                shared.state().hanging += 1;
                return hang(&stream, shared);
            }
            Some(Failure::CutBefore) => {
                log_request(shared, is_api, &line, 0);
                return Ok(());
            }
            Some(Failure::Status(status, message, headers)) => {
                let mut reply = Reply::error(status, message);
                reply.headers.extend(headers.into_iter().map(|(name, value)| (name.to_owned(), value)));
                reply
            }
            Some(Failure::Invalid(errors)) => Reply::invalid(&errors),
            Some(Failure::Garbage) => Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), "text/html".to_owned())],
                body: b"<html>Welcome to the hotel</html>".to_vec(),
            },
            failure => {
                let reply = if is_api { api(&request, shared) } else { git_service(&request, shared) };
                if matches!(failure, Some(Failure::HangAfter)) {
                    log_request(shared, is_api, &line, 0);
                    shared.state().hanging += 1;
                    return hang(&stream, shared);
                }
                if matches!(failure, Some(Failure::CutAfter)) {
                    log_request(shared, is_api, &line, 0);
                    return Ok(());
                }
                reply
            }
        };
        log_request(shared, is_api, &line, reply.status);
        respond(&stream, reply, shared)?;
    }
    Ok(())
}

fn log_request(shared: &Shared, is_api: bool, line: &str, status: u16) {
    if is_api {
        shared.state().log.push(format!("{} {status}", line.replacen(BASE, "", 1)));
    }
}

fn hang(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut byte = [0];
    while !shared.is_over.load(Ordering::Relaxed) {
        if matches!((&*stream).read(&mut byte), Ok(0)) {
            break;
        }
    }
    Ok(())
}

fn respond(mut stream: &TcpStream, reply: Reply, shared: &Shared) -> std::io::Result<()> {
    let date = Timestamp::now() + jiff::SignedDuration::from_secs(shared.state().skew_seconds);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
    let mut head = format!(
        "HTTP/1.1 {} Status\r\ndate: {date}\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&reply.body)
}

/// Answers one API request.
fn api(request: &Request, shared: &Shared) -> Reply {
    let header = |name: &str| request.header(name);
    let target = request.target.strip_prefix(BASE).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query: BTreeMap<String, String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name.to_owned(), percent_decode(value)))
        .collect();
    let path = percent_decode(path);
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let mut state = shared.state();
    for (name, wanted) in [("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")]
    {
        if header(name) != wanted {
            state.mistakes.push(format!("{path}: {name} is {:?}", header(name)));
        }
    }
    if !header("user-agent").starts_with("nugget/") {
        return Reply::error(403, "Request forbidden by administrative rules: no User-Agent header");
    }
    if header("authorization") != format!("Bearer {TOKEN}") {
        return Reply::error(401, "Bad credentials");
    }
    if state.limit.1 <= Timestamp::now() {
        state.limit = (5000, Timestamp::now() + jiff::SignedDuration::from_hours(1));
    }
    let is_over = state.limit.0 == 0;
    state.limit.0 = state.limit.0.saturating_sub(1);
    let reset = state.limit.1.as_second() + state.skew_seconds;
    let limits = [
        ("x-ratelimit-limit".to_owned(), "5000".to_owned()),
        ("x-ratelimit-remaining".to_owned(), state.limit.0.to_string()),
        ("x-ratelimit-reset".to_owned(), reset.to_string()),
    ];
    let mut reply = if is_over {
        Reply::error(403, "API rate limit exceeded for user ID 1.")
    } else {
        dispatch(&mut state, &shared.url, &request.method, &path, &query, &body)
    };
    // A repository is requested by its number only after a redirect.
    if !path.starts_with("/repositories/") {
        let answered: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let mut mistakes = openapi::request_mistakes(&request.method, &path, &query, &body);
        // A request that is refused as invalid may violate the description.
        if reply.status < 400 {
            state.mistakes.append(&mut mistakes);
        }
        let mut mistakes = openapi::response_mistakes(&request.method, &path, reply.status, &answered);
        state.mistakes.append(&mut mistakes);
    }
    reply.headers.extend(limits);
    reply
}

fn dispatch(
    state: &mut State,
    url: &str,
    method: &str,
    path: &str,
    query: &BTreeMap<String, String>,
    body: &Value,
) -> Reply {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (repo, rest) = match (method, &parts[..]) {
        ("GET", ["user"]) => {
            let mut reply = Reply::json(200, &json!({ "login": LOGIN }));
            if let Some(scopes) = state.scopes {
                reply.headers.push(("x-oauth-scopes".to_owned(), scopes.to_owned()));
            }
            return reply;
        }
        ("POST", ["user", "repos"]) => return create_repository(state, url, LOGIN, body),
        ("POST", ["orgs", org, "repos"]) => return create_repository(state, url, org, body),
        (_, ["repos", owner, name, rest @ ..]) => {
            let slug = format!("{owner}/{name}");
            match state.find(&slug) {
                Some(repo) if repo.former.contains(&slug) => {
                    let (id, rest) = (repo.id, rest.join("/"));
                    let query: Vec<String> = query
                        .iter()
                        .map(|(name, value)| format!("{name}={}", value.replace(':', "%3A")))
                        .collect();
                    let to = format!("{url}{BASE}/repositories/{id}/{rest}?{}", query.join("&"));
                    let to = to.trim_end_matches('?').trim_end_matches('/').to_owned();
                    let body = json!({ "message": "Moved Permanently", "url": to, "documentation_url": DOCUMENTATION_URL });
                    let mut reply = Reply::json(if method == "GET" { 301 } else { 307 }, &body);
                    reply.headers.push(("location".to_owned(), to));
                    return reply;
                }
                Some(repo) => (repo, rest),
                None => return Reply::error(404, "Not Found"),
            }
        }
        (_, ["repositories", id, rest @ ..]) => {
            match state.repositories.iter_mut().find(|repo| repo.id.to_string() == *id) {
                Some(repo) => (repo, rest),
                None => return Reply::error(404, "Not Found"),
            }
        }
        _ => return Reply::error(404, "Not Found"),
    };
    repo.refresh();
    if method != "GET" && repo.archived {
        return Reply::error(403, "Repository was archived so is read-only.");
    }
    if method != "GET" && !repo.can_push {
        return Reply::error(403, "Resource not accessible by personal access token");
    }
    match (method, rest) {
        ("GET", []) => Reply::json(200, &repo.json(url)),
        ("GET", ["pulls"]) => {
            let text = |name: &str, default: &'static str| query.get(name).map_or(default, String::as_str);
            let (state, head) = (text("state", "open"), text("head", ""));
            let is_asked_for = |pull: &&PullRow| {
                (state == "all" || pull.is_open == (state == "open"))
                    // As on GitHub, a filter without an owner is ignored.
                    && (!head.contains(':') || head == format!("{}:{}", repo.owner, pull.branch))
            };
            let mut pulls: Vec<&PullRow> = repo.pulls.iter().filter(is_asked_for).collect();
            pulls.sort_by_key(|pull| pull.number);
            if text("direction", "desc") == "desc" {
                pulls.reverse();
            }
            paginate(query, pulls.into_iter().map(|pull| repo.pull_json(pull, url, false)))
        }
        ("POST", ["pulls"]) => open_pull(repo, url, body),
        ("POST", ["pulls", number, "requested_reviewers"]) => {
            let named = |key: &str, prefix: &str| -> Vec<String> {
                let names = body[key].as_array().into_iter().flatten().filter_map(Value::as_str);
                names.map(|name| format!("{prefix}{name}")).collect()
            };
            let asked = [named("reviewers", ""), named("team_reviewers", "team:")].concat();
            if let Some(refused) = asked.iter().find(|name| !repo.collaborators.contains(name)) {
                // As on GitHub, one refuses all.
                let message = format!("Reviews may only be requested from collaborators: {refused}");
                return Reply::error(422, &message);
            }
            let Some(pull) = number.parse().ok().and_then(|number| repo.pull(number)) else {
                return Reply::error(404, "Not Found");
            };
            pull.reviewers.extend(asked);
            pull.reviewers.sort();
            pull.reviewers.dedup();
            let pull = pull.clone();
            Reply::json(201, &repo.pull_json(&pull, url, false))
        }
        (_, ["pulls", number]) => {
            let Some(pull) = number.parse().ok().and_then(|number| repo.pull(number)) else {
                return Reply::error(404, "Not Found");
            };
            if method == "PATCH" {
                if let Some(title) = body["title"].as_str() {
                    pull.title = title.to_owned();
                }
                if let Some(body) = body["body"].as_str() {
                    pull.body = body.to_owned();
                }
                if body["state"] == "closed" {
                    pull.is_open = false;
                }
            }
            let pull = pull.clone();
            Reply::json(200, &repo.pull_json(&pull, url, true))
        }
        ("GET", ["labels"]) => paginate(query, repo.labels.iter().map(|name| label_json(name))),
        (_, ["issues", number, what]) => {
            let slug = repo.slug();
            let Some(pull) = number.parse().ok().and_then(|number| repo.pull(number)) else {
                return Reply::error(404, "Not Found");
            };
            let comment = |at: usize, text: &str| {
                json!({
                    "id": at + 1,
                    "html_url": format!("{url}/{slug}/pull/{number}#issuecomment-{}", at + 1),
                    "body": text,
                    "user": { "login": LOGIN },
                    "created_at": "2026-11-20T14:12:00Z",
                })
            };
            match (method, *what) {
                ("GET", "comments") => {
                    paginate(query, pull.comments.iter().enumerate().map(|(at, text)| comment(at, text)))
                }
                ("POST", "comments") => {
                    let text = body["body"].as_str().unwrap_or_default();
                    pull.comments.push(text.to_owned());
                    Reply::json(201, &comment(pull.comments.len() - 1, text))
                }
                ("POST", "labels") => {
                    for name in body["labels"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                        if !pull.labels.iter().any(|label| label == name) {
                            pull.labels.push(name.to_owned());
                        }
                    }
                    let labels: Vec<Value> = pull.labels.iter().map(|name| label_json(name)).collect();
                    Reply::json(200, &json!(labels))
                }
                _ => Reply::error(404, "Not Found"),
            }
        }
        ("DELETE", ["git", "refs", "heads", branch @ ..]) => {
            let branch = branch.join("/");
            match repo.tip(&branch) {
                None => Reply::error(422, "Reference does not exist"),
                Some(_) if repo.protected.contains(&branch) => {
                    Reply::error(422, "Cannot delete this protected branch")
                }
                Some(_) => {
                    git(&repo.bare, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
                    repo.refresh();
                    Reply { status: 204, headers: Vec::new(), body: Vec::new() }
                }
            }
        }
        _ => Reply::error(404, "Not Found"),
    }
}

fn create_repository(state: &mut State, url: &str, owner: &str, body: &Value) -> Reply {
    let name = body["name"].as_str().unwrap_or_default();
    let slug = format!("{owner}/{name}");
    if owner != LOGIN && !state.repositories.iter().any(|repo| repo.owner == owner) {
        return Reply::error(404, "Not Found");
    }
    if state.find(&slug).is_some() {
        let message = "name already exists on this account";
        return Reply::invalid(
            &json!([{ "resource": "Repository", "code": "custom", "field": "name", "message": message }]),
        );
    }
    let repo = state.add(&slug);
    repo.private = body["private"] == true;
    Reply::json(201, &repo.json(url))
}

fn open_pull(repo: &mut Repo, url: &str, body: &Value) -> Reply {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let (head, base) = (text("head"), text("base"));
    let head = head.strip_prefix(&format!("{}:", repo.owner)).unwrap_or(&head).to_owned();
    let wrong = |field: &str| json!([{ "resource": "PullRequest", "field": field, "code": "invalid" }]);
    let custom =
        |message: String| json!([{ "resource": "PullRequest", "code": "custom", "message": message }]);
    let Some(base_commit) = repo.tip(&base) else { return Reply::invalid(&wrong("base")) };
    let Some(head_commit) = repo.tip(&head) else { return Reply::invalid(&wrong("head")) };
    if repo.pulls.iter().any(|pull| pull.is_open && pull.branch == head && pull.base == base) {
        return Reply::invalid(&custom(format!("A pull request already exists for {}:{head}.", repo.owner)));
    }
    if try_git(&repo.bare, &["merge-base", "--is-ancestor", &head_commit, &base_commit]).0 {
        return Reply::invalid(&custom(format!("No commits between {base} and {head}")));
    }
    if text("body").chars().count() > 65_536 {
        return Reply::invalid(&custom("body is too long (maximum is 65536 characters)".to_owned()));
    }
    let number = repo.pulls.last().map_or(1, |pull| pull.number + 1);
    let pull = PullRow {
        number,
        title: text("title"),
        body: text("body"),
        branch: head,
        base,
        head_commit,
        is_open: true,
        merged_at: None,
        merged_by: None,
        comments: Vec::new(),
        labels: Vec::new(),
        reviewers: Vec::new(),
    };
    let json = repo.pull_json(&pull, url, true);
    repo.pulls.push(pull);
    Reply::json(201, &json)
}

fn paginate(query: &BTreeMap<String, String>, items: impl Iterator<Item = Value>) -> Reply {
    let number =
        |name: &str, default: usize| query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let size = number("per_page", 30).min(100);
    let items: Vec<Value> = items.skip((number("page", 1) - 1) * size).take(size).collect();
    Reply::json(200, &json!(items))
}

/// The git side: the same repositories over smart HTTP, served by git's own `http-backend`.
fn git_service(request: &Request, shared: &Shared) -> Reply {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let Some((slug, service)) = path.trim_start_matches('/').split_once(".git/") else {
        return Reply::error(404, "Not Found");
    };
    let password = request
        .headers
        .get("authorization")
        .and_then(|value| decode_base64(value.strip_prefix("Basic ")?))
        .and_then(|pair| pair.split_once(':').map(|(_, password)| password.to_owned()));
    if password.as_deref() != Some(TOKEN) && !shared.state().is_git_open {
        let mut reply = Reply::error(401, "Bad credentials");
        reply.headers.push(("www-authenticate".to_owned(), "Basic realm=\"GitHub\"".to_owned()));
        return reply;
    }
    let found = shared.state().find(slug).map(|repo| (repo.bare.clone(), repo.archived || !repo.can_push));
    let Some((bare, is_closed)) = found else { return Reply::error(404, "Repository not found.") };
    let is_push = service == "git-receive-pack" || query.contains("git-receive-pack");
    if is_push && is_closed {
        return Reply::error(403, "This repository was archived so it is read-only.");
    }
    let mut command = git_command();
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", bare.parent().unwrap())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{}/{service}", bare.file_name().unwrap().to_string_lossy()))
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", &request.method)
        .env("REMOTE_USER", LOGIN)
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("CONTENT_LENGTH", request.body.len().to_string());
    for (name, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = request.headers.get(name) {
            command.env(variable, value);
        }
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, body) = (child.stdin.take().unwrap(), request.body.clone());
    let feed = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().unwrap();
    let _ = feed.join();
    let at = output.stdout.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(0);
    let head = String::from_utf8_lossy(&output.stdout[..at]).into_owned();
    let mut reply = Reply { status: 200, headers: Vec::new(), body: output.stdout[at + 4..].to_vec() };
    for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("status") {
            reply.status = value.trim().split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(500);
        } else {
            reply.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    reply
}

fn git_command() -> Command {
    let mut command = Command::new("git");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "reviewer")
        .env("GIT_AUTHOR_EMAIL", "reviewer@example.com")
        .env("GIT_COMMITTER_NAME", "GitHub")
        .env("GIT_COMMITTER_EMAIL", "noreply@github.com")
        .env("LC_ALL", "C");
    command
}

fn try_git(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = git_command().current_dir(folder).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let (is_good, out) = try_git(folder, arguments);
    assert!(is_good, "git {arguments:?}: {out}");
    out
}

/// Decodes percent-encoding.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match (byte, rest.clone().next(), rest.clone().nth(1)) {
            (b'%', Some(high), Some(low)) => {
                let digits = [high, low];
                let digits =
                    std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(digits.unwrap_or(b'?'));
                rest.nth(1);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn decode_base64(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let (mut bits, mut bit_count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
            bits &= (1 << bit_count) - 1;
        }
    }
    String::from_utf8(bytes).ok()
}
