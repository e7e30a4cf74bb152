//! `nugget capture-session`: queues an ended session for capture; the SessionEnd hook.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::archive::{Codex, TranscriptSource as _};
use actors::review::{Action, Item};
use brain::{Brain, StatePaths};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::{Added, Announcement, Capture, Queue, Spool, State};
use serde::Deserialize;
use serde_json::json;
use transcript::json_scan;

use super::dry_run;
use crate::context::Context;
use crate::error::{CAPTURE_FAILED, CliError, MISSING, USAGE};
use crate::hook::{self, HookInput};
use crate::output::{self, counted};
use crate::settings;
use crate::spawn::ensure_worker;
use crate::state_check::StateProblem;

/// How many lines of a transcript are searched for its session's id.
const ID_LINES_MAX: usize = 50;
/// The longest id of a session that is taken from a hook, in bytes.
const SESSION_ID_BYTES_MAX: usize = 200;
/// How often `--wait` checks the capture.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// How many titles are printed.
const TITLES_MAX: usize = 10;
/// After this time without a change `--wait` makes sure that there is a worker.
const STALL: Duration = Duration::from_secs(2);
/// So long `--wait` waits until a team's server has taken the capture, and for a worker that ends each time before it has
/// done anything.
const PATIENCE: Duration = Duration::from_secs(60);

const AFTER: &str = "\
The capture is stored durably before this command answers; a background worker
processes it. As a hook (with stdin and without --wait) it always exits 0 and
reports errors on stderr, because a hook must never fail the session. It skips
projects that the setting capture.exclude covers, and every session that runs
with NUGGET_DISABLE=1.

A model reads the session if one is available: the Claude API with a key
(ANTHROPIC_API_KEY or the setting model.key_file), or with model.api = \"openai\"
a server such as Ollama on this machine; else `claude -p` if you are logged in.
The conversation is then sent there, without the secrets that are recognised.
extract.backend = \"heuristic\" sends no session to a model; `nugget config` shows
what is used, `nugget spend` what it has cost.

With --dry-run nothing is written, sent or queued: it prints what a model would
be sent, word for word, and the files that the rules alone would propose. It
reads the whole session, including what was captured before.

A file .nuggetignore in the project, written like a .gitignore, names files that
are never read; the line * excludes the whole project. A .nuggetignore beside
nugget's configuration file names projects, one per line, like capture.exclude.
Text between <private> and </private> is never read.

Examples:
  nugget capture-session --transcript SESSION.jsonl --wait
  nugget capture-session --transcript SESSION.jsonl --dry-run
  nugget capture-session < hook.json";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct CaptureSessionArgs {
    /// The session's transcript, of Claude Code or a rollout file of Codex; without it the hook's JSON line is read
    /// from stdin
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Wait until the capture has ended and print the result; for a team's server a minute
    #[arg(long)]
    wait: bool,
    /// Print what would be sent and saved; write, send and queue nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CaptureSessionArgs {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        // nugget's own model calls must not be captured, nor sessions of users who opted out.
        if brain::config::is_disabled() {
            match &self.transcript {
                None => {
                    drop(announcement_from_hook().and_then(|ended| hook::decline(context, &ended.transcript)))
                }
                Some(_) => output::note("NUGGET_DISABLE is set: nothing is captured"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        if self.dry_run {
            dry_run::run(context, &self.announcement()?, self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_hook = self.transcript.is_none() && !self.wait;
        match self.queue(context) {
            Err(error) if is_hook && error.code != USAGE => {
                output::print_error(&context.with_cause(error));
                Ok(ExitCode::SUCCESS)
            }
            result => result,
        }
    }

    fn announcement(&self) -> Result<Announcement, CliError> {
        match &self.transcript {
            Some(path) => announcement_from_file(path),
            None => announcement_from_hook(),
        }
    }

    fn queue(&self, context: &Context) -> Result<ExitCode, CliError> {
        let announcement = self.announcement()?;
        let session = announcement.session.short();
        // A hook goes on with the settings that are valid.
        let is_hook = self.transcript.is_none();
        let config = if is_hook { context.config_and_errors().0 } else { context.config()? };
        if is_hook
            && let Some(rule) = hook::project_folder(announcement.cwd.clone())
                .and_then(|folder| settings::exclusion(&config, &folder))
        {
            output::print(&format!("session {session} is skipped: {rule} covers its project\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        failpoint::here!("hook-before-row");
        let added = match queue::announce(&places.queue(), &announcement, Timestamp::now()) {
            Ok(added) => Ok(added),
            Err(error) => {
                Spool::new(places.spool()).put(&announcement).map_err(|spool| {
                    CliError::new(format!(
                        "the session is not captured: it was neither queued ({error}) nor stored in the spool ({spool}); \
                         `nugget sync --since 7d` captures it once that is put right"
                    ))
                    .hint("check that there is space on the disk; the transcript is unchanged")
                })?;
                Err(error)
            }
        };
        failpoint::here!("hook-after-row");
        // It is stored by now, so that a worker that cannot be started is no reason to give it up.
        ensure_worker(&places, &brain).map_err(|error| match self.wait {
            true => no_worker(&brain, &places, error),
            false => stored(error),
        })?;
        failpoint::here!("hook-after-spawn");
        let added = match added {
            Err(error) if self.wait || !error.is_busy() => return Err(spooled(&session, error)),
            Ok(added) if self.wait => return follow(&brain, &places, added, self.json),
            added => added.ok(),
        };
        if self.json {
            output::print_json(&json!({
                "session_id": announcement.session,
                "capture": added.map(Added::id),
                "state": if added.is_some() { "queued" } else { "spooled" },
            }))?;
        } else {
            output::print(&match added {
                Some(Added::New(id)) => format!("queued session {session} as capture {id}\n"),
                Some(Added::AlreadyQueued(id)) => {
                    format!("session {session} is already queued as capture {id}\n")
                }
                None => format!("the queue is busy; session {session} is stored in the spool\n"),
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is said of a session that is kept in the spool, where it cannot be followed, because of an error of the queue.
fn spooled(session: &str, error: queue::Error) -> CliError {
    let CliError { message, hint, code } = CliError::from(error);
    let message = format!("session {session} is stored in the spool, and is not lost: {message}");
    let hint = hint.unwrap_or_else(|| "`nugget status` shows it once it is in the queue".to_owned());
    CliError::new(message).code(code).hint(hint)
}

/// An error after which the session is kept all the same.
fn stored(error: CliError) -> CliError {
    let message = format!("the session is stored, and is not lost, but it is not read: {}", error.message);
    CliError { message, ..error }
}

/// The error of a capture that is waited for while no worker can run: the reason that is known, or else `error`.
fn no_worker(brain: &Brain, places: &StatePaths, error: CliError) -> CliError {
    let problem = StateProblem::find(brain.root(), places);
    let reason = problem.map(|StateProblem { message, fix }| CliError::new(message).hint(fix));
    stored(reason.unwrap_or(error)).code(CAPTURE_FAILED)
}

/// Shows the stages of a capture until it has ended, then the result.
fn follow(brain: &Brain, places: &StatePaths, added: Added, as_json: bool) -> Result<ExitCode, CliError> {
    let queue = Queue::open(&places.queue())?;
    let spinner = output::spinner("queued");
    // Since when there is no worker.
    let mut alone = None;
    let mut changed = Instant::now();
    let (mut last, mut waiting, mut is_told) = (None, None, false);
    let mut capture = loop {
        let capture = queue.capture(added.id())?.ok_or(queue::Error::Unknown { id: added.id() })?;
        // The branch exists by then; an unreachable remote is not waited for.
        if capture.state.is_final() || waits_for_remote(&queue, &capture)? {
            break capture;
        }
        // It stays queued; but whoever waits, as a CI runner does, has to know.
        match waits_for_server(&capture) {
            true if waiting.get_or_insert_with(Instant::now).elapsed() > PATIENCE => break capture,
            true => {}
            false => waiting = None,
        }
        let progress = (capture.state, capture.stage, capture.attempts);
        if last != Some(progress) {
            last = Some(progress);
            (changed, alone) = (Instant::now(), None);
            spinner.set_message(match capture.state {
                State::Queued if capture.stage == queue::Stage::Intake => "queued".to_owned(),
                State::Retrying => {
                    format!("retrying {}: {}", capture.stage, capture.reason.as_deref().unwrap_or_default())
                }
                _ => capture.stage.to_string(),
            });
        } else if changed.elapsed() > STALL && !queue::is_held(&places.drain_lock()) {
            // The worker has been killed: while it runs, it holds the lock. Another one may be kept from running.
            if StateProblem::find(brain.root(), places).is_some()
                || alone.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                let unknown = CliError::new("no worker keeps running, and its log says why");
                let hint = format!("the log is in {}", places.logs().display());
                return Err(no_worker(brain, places, unknown.hint(hint)));
            }
            ensure_worker(places, brain).map_err(|error| no_worker(brain, places, error))?;
            changed = Instant::now();
        } else if changed.elapsed() > STALL
            && !is_told
            && capture.state != State::Running
            && let Some(reason) = &capture.reason
        {
            // It may take hours.
            is_told = true;
            let told = format!(
                "waiting at {}: {}; it is tried again, and Ctrl-C ends only the waiting: the capture stays queued",
                capture.stage,
                output::safe(reason)
            );
            spinner.suspend(|| output::note(&told));
        }
        std::thread::sleep(POLL_EVERY);
    };
    spinner.finish_and_clear();
    if as_json {
        output::print_json(&capture)?;
    } else {
        // Another capture's attempt has found out why this one waits.
        if capture.reason.is_none() && !capture.state.is_final() {
            let pauses = queue.pauses()?.into_iter();
            capture.reason =
                pauses.filter(|pause| pause.stage == capture.stage).map(|pause| pause.why).next();
        }
        output::print(&describe(&capture, &waiting_titles(brain, &queue, &capture)))?;
        let unread = actors::last_unread(&queue).filter(|(at, _)| *at >= capture.added);
        if let Some((_, why)) = unread.filter(|_| capture.units > 0) {
            output::note(&format!("note: {}", output::safe(&why)));
        }
    }
    let has_failed = capture.state == State::Dead || waits_for_server(&capture);
    Ok(if has_failed { ExitCode::from(CAPTURE_FAILED) } else { ExitCode::SUCCESS })
}

/// Whether the team's server has not taken the capture, be it that it cannot be reached, or does not answer.
fn waits_for_server(capture: &Capture) -> bool {
    capture.stage == queue::Stage::Upload && !capture.state.is_final()
}

/// Also if the remote refuses it, which is no attempt, and may last until a person acts.
fn waits_for_remote(queue: &Queue, capture: &Capture) -> Result<bool, queue::Error> {
    if capture.stage != queue::Stage::Delivery || capture.state == State::Running {
        return Ok(false);
    }
    let is_refused = capture.state == State::Queued && capture.reason.is_some();
    Ok(is_refused
        || queue.pauses()?.iter().any(|pause| pause.stage == capture.stage && pause.until > Timestamp::now()))
}

/// The titles of what a capture has put up for review. Without them the message is shorter, not wrong.
fn waiting_titles(brain: &Brain, queue: &Queue, capture: &Capture) -> Vec<String> {
    let Some(branch) = &capture.branch else { return Vec::new() };
    let items = crate::waiting::items_to_review(brain, Some(queue)).unwrap_or_default();
    // Several captures may share the branch.
    let is_of = |item: &Item| item.capture.as_ref().is_none_or(|of| of.id == capture.id);
    let is_new = |item: &&Item| item.branch == *branch && item.action != Action::Retires && is_of(item);
    items.iter().filter(is_new).map(|item| item.title().to_owned()).collect()
}

/// The result of a capture, for a person.
fn describe(capture: &Capture, titles: &[String]) -> String {
    let reason = output::safe(capture.reason.as_deref().unwrap_or("no reason was given"));
    let units = counted(capture.units.into(), "unit");
    let branch = capture.branch.as_deref().unwrap_or_default();
    let saved = || {
        let mut text = format!("saved: {units} on branch {branch}\n");
        for title in titles.iter().take(TITLES_MAX) {
            text.push_str(&format!("  - {}\n", output::safe_title(title)));
        }
        if titles.len() > TITLES_MAX {
            text.push_str(&format!("  and {} more\n", titles.len() - TITLES_MAX));
        }
        text
    };
    match (capture.state, &capture.pull_url) {
        (State::Done, Some(url)) => {
            format!("{}review: nugget review, or {}\n", saved(), output::safe(url))
        }
        (State::Queued | State::Retrying, _) if capture.stage == queue::Stage::Delivery => {
            let reason = capture.reason.as_deref().unwrap_or("the remote is not reachable at present");
            format!("{}not delivered yet: {}\nreview: nugget review\n", saved(), output::safe(reason))
        }
        _ if waits_for_server(capture) => {
            let reason =
                if capture.reason.is_some() { &reason } else { "the team's server has not answered" };
            format!("not handed over yet: {reason}\nit waits in the queue, and is tried again\n")
        }
        (State::Done, None) if capture.branch.is_none() => format!("{reason}\n"),
        (State::Done, None) => format!("{}review: nugget review\n", saved()),
        (State::Nothing, _) if reason.starts_with("nothing new") => format!("{reason}\n"),
        (State::Nothing, _) => format!("nothing saved: {reason}\n"),
        _ => format!(
            "failed: {reason}\nkept:   capture {}; its transcript is unchanged\nhint:   nugget retry {}\n",
            capture.id, capture.id
        ),
    }
}

fn announcement_from_file(path: &Path) -> Result<Announcement, CliError> {
    let failed = |error: std::io::Error| CliError::new(format!("failed to read {}: {error}", path.display()));
    let path = std::fs::canonicalize(path).map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let error = failed(error).hint("transcripts are in ~/.claude/projects/*/*.jsonl");
        if is_missing { error.code(MISSING) } else { error }
    })?;
    if path.to_str().is_none() {
        return Err(CliError::new(format!(
            "{}: a path that is no valid UTF-8 cannot be kept",
            path.display()
        ))
        .code(USAGE)
        .hint("rename the transcript, or make a copy of it"));
    }
    // To open a named pipe would wait for its writer.
    let metadata = std::fs::metadata(&path).map_err(failed)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "not a regular file" };
        return Err(
            CliError::new(format!("{} is {kind}", path.display())).hint("give one transcript, a .jsonl file")
        );
    }
    let file = std::fs::File::open(&path).map_err(|error| failed(error).hint("check its permissions"))?;
    if Codex::is_rollout(&path) {
        let head = Codex::new(Vec::new()).head(&path).map_err(failed)?;
        // A subagent's id follows its caller's.
        let session = head.session.rsplit('/').next().unwrap_or_default().to_owned();
        let announcement = Announcement::new(SessionId::verbatim(session), path, queue::ORIGIN_COMMAND);
        return Ok(Announcement { cwd: head.cwd.map(PathBuf::from), ..announcement });
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let session = SessionId::verbatim(session_id(file).unwrap_or(stem));
    let cwd = transcript::read_head(&path).ok().and_then(|head| head.cwd);
    Ok(Announcement { cwd, ..Announcement::new(session, path, queue::ORIGIN_COMMAND) })
}

/// The session id in the first lines of a transcript.
fn session_id(file: std::fs::File) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(rename = "sessionId")]
        session_id: Option<String>,
    }
    let mut reader = std::io::BufReader::new(file.take(guard::LINE_BYTES_MAX as u64));
    let mut line = Vec::new();
    for _ in 0..ID_LINES_MAX {
        line.clear();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let id = serde_json::from_slice::<Line>(&line).ok().and_then(|line| line.session_id);
        if let Some(id) = id.filter(|id| !id.is_empty() && id.len() <= 100) {
            return Some(id);
        }
    }
    None
}

fn announcement_from_hook() -> Result<Announcement, CliError> {
    const HINT: &str = "send one line of JSON with session_id and transcript_path, or give --transcript FILE";
    if std::io::stdin().is_terminal() {
        return Err(CliError::new("no transcript is given")
            .code(USAGE)
            .hint("give --transcript FILE, or the hook's JSON on stdin"));
    }
    let Some(line) = hook::read_line_in_time(hook::STDIN_DEADLINE) else {
        return announcement_from_environment()
            .ok_or_else(|| CliError::new("no line arrived on stdin in time").hint(HINT));
    };
    let HookInput { session_id, transcript_path, cwd, reason, .. } = json_scan::parse(&line)
        .map_err(|error| CliError::new(format!("failed to read the hook's line: {error}")).hint(HINT))?;
    if session_id.len() > SESSION_ID_BYTES_MAX {
        let length = output::thousands(session_id.len() as u64);
        return Err(CliError::new(format!(
            "the session's id in the hook's line is too long: {length} bytes, at most {SESSION_ID_BYTES_MAX}"
        )));
    }
    let transcript = transcript_path.filter(|path| path.is_absolute());
    let (Some(transcript), false) = (transcript, session_id.is_empty()) else {
        return Err(CliError::new(
            "the hook's line does not name a session and the absolute path of its transcript",
        )
        .hint(HINT));
    };
    let session = SessionId::verbatim(session_id);
    Ok(Announcement { cwd, reason, ..Announcement::new(session, transcript, queue::ORIGIN_HOOK) })
}

/// The session that the client names in its hooks' environment: some versions exit before the hook has its
/// line. Only the folder of the transcript has to be searched for.
fn announcement_from_environment() -> Option<Announcement> {
    let session = std::env::var("CLAUDE_CODE_SESSION_ID").ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if session.is_empty() || session.len() > 100 || !session.chars().all(is_plain) {
        return None;
    }
    let name = format!("{session}.jsonl");
    let projects = std::fs::read_dir(transcript::client_folder()?.join("projects")).ok()?;
    let transcript =
        projects.flatten().map(|project| project.path().join(&name)).find(|path| path.is_file())?;
    let cwd = hook::project_folder(None);
    Some(Announcement {
        cwd,
        ..Announcement::new(SessionId::verbatim(session), transcript, queue::ORIGIN_HOOK)
    })
}

#[cfg(test)]
mod tests {
    use queue::Stage;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_from_the_first_moment() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let now = Timestamp::now();
        let announcement = Announcement::new(SessionId::verbatim("s"), "/t/s.jsonl", queue::ORIGIN_COMMAND);
        let id = queue.add(&announcement, now).unwrap().id();
        let capture = || queue.capture(id).unwrap().unwrap();
        let claim = queue.claim(Stage::Intake, now).unwrap().unwrap();
        assert!(!waits_for_server(&capture()));
        queue.advance(&claim, Stage::Upload, b"conversation").unwrap();
        assert!(waits_for_server(&capture()));
        queue.claim(Stage::Upload, now).unwrap().unwrap();
        let sent = capture();
        assert!(sent.state == State::Running && waits_for_server(&sent));
        assert!(
            describe(&sent, &[]).starts_with("not handed over yet: the team's server has not answered\n")
        );
    }
}
