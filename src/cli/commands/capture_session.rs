//! `nugget capture-session`: what the hook calls when a session ends.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use brain::{Brain, Config, StatePaths};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::{Added, Announcement, Capture, Queue, Spool, State};
use serde::Deserialize;
use serde_json::json;

use crate::context::{Context, ensure_drainer, exclude};
use crate::error::{CliError, DEAD, USAGE};
use crate::output;

/// How long the hook's line may take to come. Clients have been seen to leave stdin open for ever.
const STDIN_DEADLINE: Duration = Duration::from_millis(800);
/// The longest line that is read: a hook's has a kilobyte or two.
const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// How often `--wait` looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long `--wait` sees nothing move before it makes sure that somebody works.
const STALL: Duration = Duration::from_secs(2);

const AFTER: &str = "\
The capture is durable before this command answers; the work happens behind it.
As a hook (with stdin and without --wait) it exits 0 whatever happens, and says
on stderr what went wrong: a hook must never fail the session. It leaves alone
the projects that the setting capture.exclude covers, and every session that
runs with NUGGET_DISABLE=1.

A model reads the session where one is at hand: the Claude API with a key
(ANTHROPIC_API_KEY or the setting model.key_file), else `claude -p` if somebody
is logged in. What was said is then sent there, without the secrets that are
recognised. extract.backend = \"heuristic\" sends nothing; `nugget config` says
what is in force, `nugget spend` what it has cost.

With --dry-run nothing is written, sent or queued: it prints what a model would
be sent, word for word, and the files that the rules alone would propose. It
reads the whole session, also what was captured before.

A file .nuggetignore in the project, written as a .gitignore, names files of
which nothing is read; the line * leaves the whole project alone. One in
nugget's settings folder names projects, one to a line, as capture.exclude does.
What stands between <private> and </private> is never read.

Examples:
  nugget capture-session --transcript SESSION.jsonl --wait
  nugget capture-session --transcript SESSION.jsonl --dry-run
  nugget capture-session < hook.json";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The session's transcript; without it the hook's JSON line is read from stdin
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// Follow the capture to its end and print what became of it
    #[arg(long)]
    wait: bool,
    /// Print what would be sent and saved; write, send and queue nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The hook's line, as far as it matters here.
#[derive(Deserialize)]
struct HookInput {
    session_id: String,
    transcript_path: PathBuf,
    cwd: Option<PathBuf>,
    reason: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        // Our own calls of a model must not be captured, nor those of someone who said no.
        if std::env::var_os("NUGGET_DISABLE").is_some_and(|value| !value.is_empty() && value != "0") {
            if self.transcript.is_none() {
                let _ = decline(context);
            }
            return Ok(ExitCode::SUCCESS);
        }
        if self.dry_run {
            let announcement = self.announcement()?;
            return super::dry_run::run(context, &announcement, self.json);
        }
        let is_hook = self.transcript.is_none() && !self.wait;
        match self.queue(context) {
            Err(fault) if is_hook && fault.code != USAGE => {
                fault.print();
                Ok(ExitCode::SUCCESS)
            }
            result => result,
        }
    }

    fn announcement(&self) -> Result<Announcement, CliError> {
        match &self.transcript {
            Some(path) => of_file(path),
            None => of_hook(),
        }
    }

    fn queue(&self, context: &Context) -> Result<ExitCode, CliError> {
        let announcement = self.announcement()?;
        // A hook goes on with whatever settings can be understood.
        let config = if self.transcript.is_some() { context.config()? } else { context.config_as_it_is().0 };
        if self.transcript.is_none()
            && let Some(by) = project(&announcement).and_then(|path| excluded(&config, &path))
        {
            let session = announcement.session.short();
            output::print(&format!("session {session} is left alone: {by} covers its project\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let now = Timestamp::now();
        failpoint::here!("hook-before-row");
        let added = match queue::announce(&places.queue(), &announcement, now) {
            Ok(added) => Some(added),
            Err(error) => {
                Spool::new(places.spool()).put(&announcement).map_err(|spool| {
                    CliError::new(format!(
                        "the session is not queued: {error}; nor could it be spooled: {spool}"
                    ))
                    .hint("check that there is room on the disk; the transcript is untouched")
                })?;
                None
            }
        };
        failpoint::here!("hook-after-row");
        ensure_drainer(&places, &brain)?;
        failpoint::here!("hook-after-spawn");
        if self.wait {
            return self.follow(&brain, &places, added);
        }
        let session = &announcement.session;
        if self.json {
            output::print_json(&json!({
                "session_id": session,
                "capture": added.map(Added::id),
                "state": if added.is_some() { "queued" } else { "spooled" },
            }))?;
        } else {
            output::print(&match added {
                Some(Added::New(id)) => format!("queued session {} as capture {id}\n", session.short()),
                Some(Added::AlreadyQueued(id)) => {
                    format!("session {} is queued already, as capture {id}\n", session.short())
                }
                None => format!("the queue is busy; session {} is kept in the spool\n", session.short()),
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the capture's stages until it has ended.
    fn follow(&self, brain: &Brain, places: &StatePaths, added: Option<Added>) -> Result<ExitCode, CliError> {
        let queue = Queue::open(&places.queue())?;
        let Some(added) = added else {
            return Err(CliError::new("the session is kept in the spool, and cannot be followed from there")
                .hint("`nugget status` shows it once the queue has it"));
        };
        let spinner = output::spinner();
        let mut moved = Instant::now();
        let mut last = None;
        let capture = loop {
            let capture = queue.capture(added.id())?.ok_or(queue::Error::Unknown { id: added.id() })?;
            // The branch is there; how long the remote takes to be reached is not waited for.
            if capture.state.is_final() || waits_for_remote(&queue, &capture)? {
                break capture;
            }
            let at = (capture.state, capture.stage, capture.attempts);
            if last != Some(at) {
                last = Some(at);
                moved = Instant::now();
                spinner.set_message(match capture.state {
                    State::Queued if capture.stage == queue::Stage::Intake => "queued".to_owned(),
                    State::Retrying => {
                        format!(
                            "retrying {}: {}",
                            capture.stage,
                            capture.reason.as_deref().unwrap_or_default()
                        )
                    }
                    _ => format!("{}", capture.stage),
                });
            } else if moved.elapsed() > STALL {
                // The drainer may have been killed since.
                ensure_drainer(places, brain)?;
                moved = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        };
        spinner.finish_and_clear();
        if self.json {
            output::print_json(&capture)?;
        } else {
            output::print(&told(brain, &capture))?;
        }
        Ok(if capture.state == State::Dead { ExitCode::from(DEAD) } else { ExitCode::SUCCESS })
    }
}

/// Sees to it that no sweep takes up what this hook was told to leave alone.
fn decline(context: &Context) -> Result<(), CliError> {
    let announcement = of_hook()?;
    let brain = context.brain(&context.config_as_it_is().0)?;
    let places = StatePaths::for_brain(brain.root());
    // No transcript, nothing that a sweep could find.
    let transcript = std::fs::canonicalize(&announcement.transcript)?;
    places.create()?;
    Ok(queue::decline(&places.queue(), &transcript)?)
}

/// What says that a project is not captured, if anything does.
pub(super) fn excluded(config: &Config, project: &Path) -> Option<&'static str> {
    if exclude(config).covers(project) {
        Some("capture.exclude")
    } else {
        transcript::Ignore::load(project).covers_everything().then_some("its .nuggetignore")
    }
}

/// The folder that the hook's session was started in; its `cwd` has followed every `cd` since.
fn project(announcement: &Announcement) -> Option<PathBuf> {
    let started = std::env::var_os("CLAUDE_PROJECT_DIR").filter(|path| !path.is_empty());
    started.map(PathBuf::from).or_else(|| announcement.cwd.clone())
}

fn waits_for_remote(queue: &Queue, capture: &Capture) -> Result<bool, queue::Error> {
    Ok(capture.stage == queue::Stage::Delivery
        && capture.state != State::Running
        && queue.pauses()?.iter().any(|pause| pause.stage == capture.stage && pause.until > Timestamp::now()))
}

/// What became of a capture, for a person.
fn told(brain: &Brain, capture: &Capture) -> String {
    let reason = capture.reason.as_deref().unwrap_or("no reason was given");
    let units = if capture.units == 1 { "1 unit".to_owned() } else { format!("{} units", capture.units) };
    let branch = capture.branch.as_deref().unwrap_or_default();
    match capture.state {
        State::Done if capture.pull_url.is_some() => {
            let url = output::safe(capture.pull_url.as_deref().unwrap_or_default());
            format!("saved: {units} on branch {branch}\n  review: {url}\n")
        }
        State::Queued | State::Retrying if capture.stage == queue::Stage::Delivery => {
            let reason = capture.reason.as_deref().unwrap_or("the remote is not reached at present");
            format!("saved: {units} on branch {branch}\n  not delivered yet: {}\n", output::safe(reason))
        }
        State::Done => {
            let root = brain.root().display();
            format!(
                "saved: {units} on branch {branch}\n  look:  git -C {root} show {branch}\n  merge: git -C {root} merge {branch}\n"
            )
        }
        State::Nothing => format!("nothing to save: {}\n", output::safe(reason)),
        _ => format!(
            "failed: {}\nkept:   capture {}; its transcript is untouched\nhint:   nugget retry {}\n",
            output::safe(reason),
            capture.id,
            capture.id
        ),
    }
}

fn of_file(path: &Path) -> Result<Announcement, CliError> {
    let wrong = |error: std::io::Error| CliError::new(format!("failed to read {}: {error}", path.display()));
    let path = std::fs::canonicalize(path)
        .map_err(|error| wrong(error).hint("transcripts lie in ~/.claude/projects/*/*.jsonl"))?;
    if path.is_dir() {
        return Err(CliError::new(format!("{} is a folder", path.display()))
            .hint("give one transcript, a .jsonl file"));
    }
    let file = std::fs::File::open(&path).map_err(|error| wrong(error).hint("check its permissions"))?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let session = SessionId::verbatim(session_id(file).unwrap_or(stem));
    let cwd = transcript::read_head(&path).ok().and_then(|head| head.cwd);
    Ok(Announcement { cwd, ..Announcement::new(session, path, "command") })
}

/// The session that the first lines of a transcript name.
fn session_id(file: std::fs::File) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(rename = "sessionId")]
        session_id: Option<String>,
    }
    let mut reader = std::io::BufReader::new(file.take(LINE_BYTES_MAX));
    let mut line = Vec::new();
    for _ in 0..50 {
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

fn of_hook() -> Result<Announcement, CliError> {
    const HINT: &str =
        "it is one line of JSON with session_id and transcript_path; or give --transcript FILE";
    if std::io::stdin().is_terminal() {
        return Err(CliError::new("no transcript is given")
            .code(USAGE)
            .hint("give --transcript FILE, or the hook's JSON on stdin"));
    }
    let Some(line) = read_line(STDIN_DEADLINE) else {
        return of_environment().ok_or_else(|| CliError::new("no line came on stdin in time").hint(HINT));
    };
    let input: HookInput = serde_json::from_slice(&line)
        .map_err(|error| CliError::new(format!("the hook's line cannot be read: {error}")).hint(HINT))?;
    if input.session_id.is_empty() || input.session_id.len() > 200 || !input.transcript_path.is_absolute() {
        return Err(
            CliError::new("the hook's line names no session with an absolute transcript path").hint(HINT)
        );
    }
    Ok(Announcement {
        session: SessionId::verbatim(input.session_id),
        transcript: input.transcript_path,
        cwd: input.cwd,
        origin: "hook".to_owned(),
        reason: input.reason,
    })
}

/// The session that the client names in the environment of its hooks: some versions end before a hook has
/// its line. Where the transcript lies is known but for its folder.
fn of_environment() -> Option<Announcement> {
    let session = std::env::var("CLAUDE_CODE_SESSION_ID").ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if session.is_empty() || session.len() > 100 || !session.chars().all(is_plain) {
        return None;
    }
    let name = format!("{session}.jsonl");
    let projects = std::fs::read_dir(transcript::client_folder()?.join("projects")).ok()?;
    let transcript =
        projects.flatten().map(|project| project.path().join(&name)).find(|path| path.is_file())?;
    let cwd = std::env::var_os("CLAUDE_PROJECT_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    Some(Announcement { cwd, ..Announcement::new(SessionId::verbatim(session), transcript, "hook") })
}

/// One line of stdin, never to its end. The reading thread is left behind when it comes too late.
pub(super) fn read_line(deadline: Duration) -> Option<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = Vec::new();
        let stdin = std::io::stdin().lock();
        let read = stdin.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let _ = sender.send(read.ok().map(|_| line));
    });
    receiver.recv_timeout(deadline).ok().flatten().filter(|line| !line.iter().all(u8::is_ascii_whitespace))
}
