//! `nugget login` and `nugget logout`: which team's server a brain belongs to.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;

use brain::{Brain, StatePaths};
use git::{CommitId, Remote, RemoteUrl, Repository};
use queue::{Queue, Stage};
use serde_json::json;
use system::signal::end_signal;
use system::terminal::Modes;
use team_client::{ANOTHER_TOKEN, BrainRepository, Login, TeamClient, Whoami};

use crate::async_runtime;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output::{self, safe};
use crate::spawn::ensure_worker;

const AFTER: &str = "\
Captures of this brain are then handed to the server after they were read and
redacted here, and questions are asked there; when it cannot be reached,
captures wait in the queue and questions are answered from this machine's index.
The archive of sessions and topic memories never leave this machine, nor does
what nugget told a session of them; what Claude says of them itself is part of
the session.

The token is asked for, or read from stdin or a file; it is kept in the brain's
state folder, readable only by you. `nugget server token create` makes one.

Examples:
  nugget login https://brains.example.com
  nugget login https://brains.example.com --as payments < token.txt
  nugget logout";

/// A token is far shorter.
const TOKEN_BYTES_MAX: u64 = 16 << 10;

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct LoginArgs {
    /// The server's address
    #[arg(value_name = "URL")]
    url: String,
    /// The brain's name on the server, if the token has several
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LoginArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, local, places) = context.open()?;
        places.create()?;
        let token = self.read_token()?;
        let client = TeamClient::new(&self.url, &token).map_err(|error| CliError::from(error).code(USAGE))?;
        let spinner = output::spinner("asking the server");
        let whoami = async_runtime::current_thread()?.block_on(client.whoami());
        spinner.finish_and_clear();
        let whoami = whoami?;
        let brain = self.choose(&whoami)?;
        let may = |scope: &str| whoami.scopes.iter().any(|has| has == scope);
        if !may("read") && !may("capture") {
            return Err(CliError::new("the token may neither ask questions nor hand captures over")
                .code(USAGE)
                .hint("ask an administrator for one with the scopes read and capture"));
        }
        // A brain of a team is a clone of its repository; a person's own must not be handed over by a slip.
        let repository = crate::remote::open_repository(&local)?;
        let Some(remote) = repository.remote()? else {
            return Err(CliError::new(format!(
                "{} has no remote: it is no clone of a team's brain",
                local.root().display()
            ))
            .code(USAGE)
            .hint("`nugget clone URL` brings the team's brain here; name it with --brain"));
        };
        let theirs = whoami.repositories.iter().find(|theirs| theirs.brain == brain);
        if let Some(theirs) = theirs
            && !is_clone_of(&repository, &remote, theirs)?
        {
            return Err(CliError::new(format!(
                "{} is a clone of {}, and the team's brain {brain} is {}",
                output::short_path(local.root()),
                remote.display_url(),
                safe(&theirs.remote)
            ))
            .code(USAGE)
            .hint("name the team's clone with --brain; if it is one that is behind, `nugget sync` first"));
        }
        let (url, subject) = (self.url.clone(), whoami.subject.clone());
        let login =
            Login { url, brain, subject, scopes: whoami.scopes.clone(), expires: whoami.expires(), token };
        login.write(places.folder())?;
        work_on_waiting(&local, &places)?;
        if self.json {
            return output::print_json(&json!({
                "url": login.url, "brain": login.brain, "subject": login.subject,
                "scopes": whoami.scopes, "expires": whoami.expires,
            }));
        }
        let until = whoami.last_day().map(|day| format!(", until {}", safe(day))).unwrap_or_default();
        let mut text = format!(
            "logged in to {} as {}: brain {}, may {}{until}\n",
            safe(&login.url),
            safe(&login.subject),
            safe(&login.brain),
            safe(&whoami.scopes.join(" and ")),
        );
        let root = output::short_path(local.root());
        if may("capture") {
            text.push_str(&format!(
                "captures of {root}, a clone of {}, are handed over to it\n",
                remote.display_url()
            ));
        }
        if let Some(advice) = theirs.and_then(|theirs| other_address(&remote, theirs, &root)) {
            text.push_str(&format!("{advice}\n"));
        }
        for (scope, without) in [
            ("read", "questions are answered on this machine"),
            ("capture", "captures wait here: ask for a token with the scope capture, or log out"),
        ] {
            if !may(scope) {
                text.push_str(&format!("without the scope {scope}, {without}\n"));
            }
        }
        output::print(&text)
    }

    fn read_token(&self) -> Result<String, CliError> {
        let token = match &self.token_file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| CliError::new(format!("failed to read {}: {error}", path.display())))?,
            None if std::io::stdin().is_terminal() => type_token()?,
            None => {
                let mut token = String::new();
                std::io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut token)?;
                token
            }
        };
        match token.trim() {
            "" => Err(CliError::new("there is no token")
                .code(USAGE)
                .hint("type it, or give it on stdin or with --token-file")),
            token => Ok(token.to_owned()),
        }
    }

    /// The brain of the token that this one is a clone of.
    fn choose(&self, whoami: &Whoami) -> Result<String, CliError> {
        let brains: Vec<String> = whoami.brains.iter().map(|brain| safe(brain)).collect();
        match (&self.name, brains.as_slice()) {
            (Some(name), _) if whoami.brains.contains(name) => Ok(name.clone()),
            (Some(name), _) => Err(CliError::new(format!("the token has no brain {name}"))
                .code(USAGE)
                .hint(format!("it has: {}", brains.join(", ")))),
            (None, [one]) => Ok(one.clone()),
            (None, []) => Err(CliError::new("the token has no brain, or not any more").hint(ANOTHER_TOKEN)),
            (None, _) => Err(CliError::new("the token has several brains")
                .code(USAGE)
                .hint(format!("choose one with --as: {}", brains.join(", ")))),
        }
    }
}

/// Whether a repository is one of the brain's clones: it has the brain's address, or what the server answers from.
fn is_clone_of(repository: &Repository, remote: &Remote, theirs: &BrainRepository) -> Result<bool, CliError> {
    if has_same_address(remote, theirs) {
        return Ok(true);
    }
    let served = theirs.commit.as_deref().and_then(|commit| commit.parse::<CommitId>().ok());
    Ok(match served {
        Some(commit) => repository.has(commit)?,
        None => false,
    })
}

fn has_same_address(remote: &Remote, theirs: &BrainRepository) -> bool {
    let urls = remote.parsed_url().zip(RemoteUrl::parse(&theirs.remote));
    urls.is_some_and(|(ours, theirs)| ours.is_same_repository(&theirs))
        || remote.display_url().trim_end_matches('/') == theirs.remote.trim_end_matches('/')
}

/// What to do where the server knows the brain by another address than its clone here: the brain was moved, or it has two.
pub(super) fn other_address(remote: &Remote, theirs: &BrainRepository, root: &str) -> Option<String> {
    (!has_same_address(remote, theirs)).then(|| {
        let address = safe(&theirs.remote);
        format!(
            "the server has the brain at {address}; if it was moved there: git -C {root} remote set-url {} {address}",
            safe(&remote.name)
        )
    })
}

/// What waits for the former server, or for another token, is worked on now.
fn work_on_waiting(brain: &Brain, places: &StatePaths) -> Result<(), CliError> {
    Queue::open(&places.queue())?.resume(Stage::Upload)?;
    ensure_worker(places, brain)
}

/// Asks for the token without showing it.
fn type_token() -> Result<String, CliError> {
    output::note("token:");
    let modes = Modes::of_stdin();
    let runtime = async_runtime::current_thread()?;
    // From here on a signal ends the wait, and not the process: the terminal would stay without echo.
    let signal = runtime.block_on(async { end_signal() })?;
    if let Some(modes) = &modes {
        modes.clone().without_echo().set()?;
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // It ends with the process, if no line comes.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let _ = sender.send(read.map(|_| line));
    });
    let line = runtime.block_on(async {
        tokio::select! {
            line = receiver => Some(line),
            _ = signal => None,
        }
    });
    if let Some(modes) = modes {
        modes.set()?;
    }
    let line = line.ok_or_else(|| CliError::new("no token was given"))?;
    Ok(line.map_err(std::io::Error::other)??)
}

#[derive(clap::Args)]
#[command(
    after_help = "What waits to be handed over is worked on here from now on.\n\nExample:\n  nugget logout"
)]
pub(crate) struct LogoutArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LogoutArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, places) = context.open()?;
        let was_logged_in = Login::remove(places.folder())?;
        if was_logged_in {
            work_on_waiting(&brain, &places)?;
        }
        if self.json {
            return output::print_json(&json!({ "logged_out": was_logged_in }));
        }
        output::print(match was_logged_in {
            true => "logged out: captures and questions of this brain stay on this machine\n",
            false => "this brain belongs to no server\n",
        })
    }
}
