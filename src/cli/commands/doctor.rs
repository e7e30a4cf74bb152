//! `nugget doctor`: is everything there that nugget stands on, and if not, what mends it.
//!
//! Looking makes nothing and changes nothing. Whatever is broken becomes a line; nothing ends the look.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use brain::{Brain, Config, StatePaths};
use git::{Lag, RemoteSession};
use github::{FoundToken, GitHub, Host, Slug};
use jiff::Timestamp;
use queue::{FileLocks, Queue, Spool, State};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::{Context, embed_settings};
use crate::error::{self, CliError, FAILED};
use crate::extractor;
use crate::output;
use crate::remote;
use crate::subprocess::version_of;

/// How long each look at the network, and each program, may take. They run side by side.
const DEADLINE: Duration = Duration::from_secs(5);
/// Older versions of git lack what forge asks of it.
const GIT_MIN: (u32, u32) = (2, 31);
/// A capture that waits for longer is worth a word.
const WAITING_MAX: Duration = Duration::from_secs(3600);
/// Below this much room a capture may fail; below ten times as much it is worth a word.
const ROOM_MIN: u64 = 100 << 20;
/// Certificates and commits suffer from more.
const SKEW_MAX_SECONDS: u64 = 120;
/// Settings files of the client are small; whatever else lies in their place is not read.
const SETTINGS_BYTES_MAX: u64 = 8 << 20;

const AFTER: &str = "\
One line for each: ok, warning or failure, with what mends it. A warning is what
works less well than it could, or could not be looked at; a failure is what
keeps knowledge from being saved or found.

Exit codes:
  0  no failure (there may be warnings)
  1  at least one failure

Examples:
  nugget doctor
  nugget doctor --offline
  nugget doctor --json | jq '.checks[] | select(.level != \"ok\")'";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Ask nothing of the network
    #[arg(long)]
    offline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        context.log_to_stderr();
        let checks = checks(context, self.offline);
        let worst = checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok);
        if self.json {
            output::print_json(&json!({ "level": worst, "checks": checks }))?;
        } else {
            output::print(&told(&checks))?;
        }
        Ok(if worst == Level::Failure { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Failure,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    level: Level,
    told: String,
    /// What a person can do about it.
    mend: Option<String>,
}

impl Check {
    fn new(name: &'static str, level: Level, told: impl Into<String>) -> Self {
        let told: String = told.into();
        // Other people's words and paths come in it.
        let told = knowledge::text::one_line(&transcript::redact::redact(&told), 400);
        Self { name, level, told, mend: None }
    }

    fn ok(name: &'static str, told: impl Into<String>) -> Self {
        Self::new(name, Level::Ok, told)
    }

    fn warning(name: &'static str, told: impl Into<String>) -> Self {
        Self::new(name, Level::Warning, told)
    }

    fn failure(name: &'static str, told: impl Into<String>) -> Self {
        Self::new(name, Level::Failure, told)
    }

    fn mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }
}

fn told(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let line = |check: &Check| {
        let mend = check.mend.as_ref().map_or_else(String::new, |mend| format!("; mend: {mend}"));
        format!("{:<7}  {:<width$}  {}{mend}\n", check.level, check.name, check.told)
    };
    let mut text: String = checks.iter().map(line).collect();
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    text.push_str(&match (count(Level::Failure), count(Level::Warning)) {
        (0, 0) => "\nall is well\n".to_owned(),
        (0, warnings) => format!("\nit works; {}\n", counted(warnings as u64, "warning", "warnings")),
        (failures, warnings) => format!(
            "\n{} to mend, {}\n",
            counted(failures as u64, "failure", "failures"),
            counted(warnings as u64, "warning", "warnings")
        ),
    });
    text
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn checks(context: &Context, offline: bool) -> Vec<Check> {
    let (config, errors) = context.config_as_it_is();
    let root = context.root(&config);
    let brain = Brain::open(&root);
    let repository = brain.as_ref().ok().map(|brain| {
        let branch = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
        Ok(git::Repository::open(brain.root())?.with_default_branch(branch.as_deref()))
    });
    let repository: Option<Result<git::Repository, git::Error>> = repository;
    let api = config.string("github.api");
    let far = Far::find(repository.as_ref().and_then(|found| found.as_ref().ok()), &api);
    // What waits for others is begun first and all at once.
    std::thread::scope(|scope| {
        let git = scope.spawn(git);
        let client = scope.spawn(|| version_of(&client_program(&config), DEADLINE));
        let reached = scope.spawn(|| (!offline).then(|| far.reach(repository.as_ref())));
        let asked = scope.spawn(|| (!offline).then(|| far.ask()).flatten());

        let mut checks = vec![settings(&config, &errors)];
        let places = StatePaths::for_brain(&root);
        let stores = match &brain {
            Ok(brain) => vec![queue(&places), index(brain, &embed_settings(&config))],
            Err(_) => vec![queue(&places)],
        };
        let lost = || Check::failure("doctor", "a look has fallen over");
        checks.push(git.join().unwrap_or_else(|_| lost()));
        checks.push(check_brain(brain, &root));
        checks.extend(branch(repository.as_ref()));
        let asked = asked.join().unwrap_or(None);
        checks.push(far.told_token(asked.as_ref(), offline));
        checks.push(far.told_remote(reached.join().unwrap_or(None), offline));
        checks.extend(far.told_repository(asked.as_ref()));
        checks.extend(in_claude_code());
        checks.extend(stores);
        checks.push(model(&config));
        checks.push(disk(&places, &root));
        checks.push(clock(asked.as_ref(), offline));
        let (queue, index) = (places.queue(), root.join(brain::DERIVED_FOLDER).join("index.db"));
        checks.push(versions(client.join().unwrap_or(None), &[("queue", &queue), ("index", &index)]));
        checks
    })
}

fn settings(config: &Config, errors: &[brain::config::ConfigError]) -> Check {
    let file = config.file();
    if !errors.is_empty() {
        return Check::failure("settings", error::of_settings(errors).line());
    }
    match file.is_file() {
        true => Check::ok("settings", file.display().to_string()),
        false => Check::ok("settings", "as they come; there is no file of yours"),
    }
}

fn git() -> Check {
    let Some(said) = version_of(Path::new("git"), DEADLINE) else {
        return Check::failure("git", "there is no git to run")
            .mend("install it, and see that it is on the PATH");
    };
    let version = said.trim_start_matches("git version").trim();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= GIT_MIN => Check::ok("git", version),
        (Some(_), Some(_)) => Check::failure("git", format!("{version} is too old"))
            .mend(format!("install {}.{} or later", GIT_MIN.0, GIT_MIN.1)),
        _ => Check::warning("git", format!("its version cannot be told: {version}")),
    }
}

fn check_brain(brain: Result<Brain, brain::Error>, root: &Path) -> Check {
    let brain = match brain {
        Ok(brain) => brain,
        Err(error) => {
            let check = Check::failure("brain", error.to_string());
            return match error {
                brain::Error::NotAFolder { .. } => {
                    check.mend("name another folder with --brain or the setting `brain`")
                }
                _ => check.mend(format!("nugget init --path {}, or nugget clone", root.display())),
            };
        }
    };
    if let Err(error) = brain.manifest() {
        return Check::failure("brain", CliError::from(error).line());
    }
    match brain.files() {
        Ok(files) => Check::ok(
            "brain",
            format!("{}, {}", brain.root().display(), counted(files.len() as u64, "unit", "units")),
        ),
        Err(error) => {
            Check::failure("brain", CliError::from(error).line()).mend("see that you may read that folder")
        }
    }
}

fn branch(repository: Option<&Result<git::Repository, git::Error>>) -> Option<Check> {
    let name = "branch";
    let lag = match repository? {
        Ok(repository) => repository.lag(),
        Err(error) => return Some(of_forge(name, error)),
    };
    let Lag { branch, behind, ahead, blocked, remote, .. } = match lag {
        Ok(lag) => lag,
        Err(error) => return Some(of_forge(name, &error)),
    };
    let commits = |count: usize| counted(count as u64, "commit", "commits");
    if remote.is_none() {
        return Some(Check::ok(name, format!("`{branch}`; nothing was fetched yet")));
    }
    Some(match (behind, ahead, blocked) {
        (0, 0, _) => Check::ok(name, format!("`{branch}` is where the remote was last seen")),
        (0, ahead, _) => Check::ok(name, format!("`{branch}` has {} that were not pushed", commits(ahead))),
        (behind, _, None) => {
            Check::warning(name, format!("`{branch}` is {} behind", commits(behind))).mend("nugget sync")
        }
        (behind, _, Some(why)) => Check::warning(
            name,
            format!("`{branch}` is {} behind and is left alone: {why}", commits(behind)),
        )
        .mend("put that in order in the brain, then `nugget sync`; what was merged is found all the same"),
    })
}

fn of_forge(name: &'static str, error: &git::Error) -> Check {
    let mut told = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        told = format!("{told}: {source}");
    }
    let check = Check::failure(name, told);
    match error.hint() {
        Some(hint) => check.mend(hint),
        None => check,
    }
}

/// The brain's remote, and the GitHub and token that belong to it.
#[derive(Default)]
struct Far {
    remote: Option<git::Remote>,
    site: Option<(Host, Slug)>,
    found: Option<FoundToken>,
    error: Option<String>,
    hint: Option<&'static str>,
}

/// What GitHub's API has answered.
struct Asked {
    viewer: Result<github::Viewer, github::Error>,
    repository: Result<github::Repository, github::Error>,
    skew_seconds: Option<i64>,
}

impl Far {
    /// Reads git's configuration and looks for the token; no network.
    fn find(repository: Option<&git::Repository>, api: &str) -> Self {
        let mut far = Self::default();
        match repository.map(git::Repository::remote) {
            Some(Ok(remote)) => far.remote = remote,
            Some(Err(error)) => (far.error, far.hint) = (Some(error.to_string()), error.hint()),
            None => {}
        }
        let Some(place) = far.remote.as_ref().and_then(git::Remote::parsed_url) else { return far };
        let looked = remote::site_of(&place, api).and_then(|site| {
            let found = site.as_ref().map_or(Ok(None), |(site, _)| site.token())?;
            Ok((site, found))
        });
        match looked {
            Ok((site, found)) => (far.site, far.found) = (site, found),
            Err(error) => (far.error, far.hint) = (Some(error.to_string()), error.hint()),
        }
        far
    }

    fn reach(&self, repository: Option<&Result<git::Repository, git::Error>>) -> Result<usize, git::Error> {
        let (Some(Ok(repository)), Some(remote)) = (repository, &self.remote) else { return Ok(0) };
        let place = remote.parsed_url();
        let takes_token =
            place.is_some_and(|place| matches!(place.scheme, git::Scheme::Https | git::Scheme::Http));
        let credentials = self.found.as_ref().filter(|_| takes_token).map(remote::credentials_of);
        let session = RemoteSession { remote, credentials: credentials.as_ref(), deadline: DEADLINE };
        repository.list_remote_branches(&session).map(|branches| branches.len())
    }

    /// `None` where there is no GitHub or no token.
    fn ask(&self) -> Option<Asked> {
        let ((site, slug), found) = (self.site.as_ref()?, self.found.as_ref()?);
        let runtime = remote::runtime().ok()?;
        runtime.block_on(async {
            let github = GitHub::new(&site.settings(DEADLINE), &found.token).ok()?;
            let (viewer, repository) = tokio::join!(github.whoami(), github.repository(slug));
            Some(Asked { viewer, repository, skew_seconds: github.skew_seconds() })
        })
    }

    fn told_token(&self, asked: Option<&Asked>, offline: bool) -> Check {
        let name = "token";
        if let Some(error) = &self.error {
            let check = Check::failure(name, error.clone());
            return match self.hint {
                Some(hint) => check.mend(hint),
                None => check,
            };
        }
        let Some((site, _)) = &self.site else {
            return Check::ok(
                name,
                match self.remote {
                    Some(_) => "not needed: the remote is not on GitHub",
                    None => "not needed without a remote",
                },
            );
        };
        let Some(found) = &self.found else {
            return Check::warning(
                name,
                format!("none for {}: branches stay without a pull request", site.host()),
            )
            .mend("gh auth login, or set GITHUB_TOKEN");
        };
        let from = format!("for {}, from {}", site.host(), found.from);
        match asked.map(|asked| &asked.viewer) {
            None if offline => Check::ok(name, format!("{from}; not tried")),
            None => Check::warning(name, format!("{from}; it could not be tried")),
            Some(Ok(viewer)) => {
                let login = &viewer.login;
                match &viewer.scopes {
                    Some(scopes) if !scopes.iter().any(|scope| scope == "repo" || scope == "public_repo") => {
                        let has = if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") };
                        Check::failure(
                            name,
                            format!("{from}, of {login}, without the scope `repo` (it has {has})"),
                        )
                        .mend("gh auth refresh --scopes repo, or make a token with that scope")
                    }
                    Some(scopes) => {
                        Check::ok(name, format!("{from}, of {login}, scopes {}", scopes.join(", ")))
                    }
                    None => Check::ok(name, format!("{from}, of {login}, fine-grained")),
                }
            }
            // Such as that of a run of GitHub Actions, which is nobody's.
            Some(Err(github::Error::Forbidden { .. })) => {
                Check::ok(name, format!("{from}; whose it is it may not say"))
            }
            Some(Err(error)) => of_github(name, error),
        }
    }

    fn told_remote(&self, reached: Option<Result<usize, git::Error>>, offline: bool) -> Check {
        let name = "remote";
        let Some(remote) = &self.remote else {
            return Check::warning(name, "none: knowledge stays on this machine")
                .mend("nugget init --github OWNER/NAME --create");
        };
        let shown = remote.display_url();
        match reached {
            None if offline => Check::ok(name, format!("{shown}; not tried")),
            None => Check::failure(name, format!("{shown}: a look has fallen over")),
            Some(Ok(0)) => {
                Check::warning(name, format!("{shown} is empty")).mend("git push origin HEAD, in the brain")
            }
            Some(Ok(count)) => {
                Check::ok(name, format!("{shown}, {}", counted(count as u64, "branch", "branches")))
            }
            Some(Err(error)) => {
                let check = of_forge(name, &error);
                // Being offline is no fault of anybody's: all waits and is sent later.
                match error {
                    git::Error::Remote {
                        failure: git::RemoteFailure::Offline | git::RemoteFailure::TooLate,
                        ..
                    } => Check { level: Level::Warning, ..check }
                        .mend("nothing is lost; it is sent when the remote answers"),
                    _ => check,
                }
            }
        }
    }

    fn told_repository(&self, asked: Option<&Asked>) -> Option<Check> {
        let name = "pull requests";
        let Some((_, slug)) = &self.site else {
            let told = "none: the remote is not on GitHub; branches are pushed there, and you merge them";
            return self.remote.is_some().then(|| Check::ok(name, told));
        };
        Some(match &asked?.repository {
            Err(error) => of_github(name, error),
            Ok(repository) if repository.archived => {
                of_github(name, &github::Error::Archived { slug: slug.to_string() })
            }
            Ok(repository) if !repository.can_push => {
                Check::failure(name, format!("the token may not push to {slug}"))
                    .mend("give it write access to contents and pull requests")
            }
            Ok(repository) => {
                let kind = if repository.private { "private" } else { "public" };
                let told = format!("to `{}` of {}, {kind}", repository.default_branch, repository.slug);
                if repository.slug != *slug {
                    let mend = format!("git remote set-url origin {}", repository.clone_url);
                    return Some(Check::warning(name, format!("{told}; it was renamed")).mend(mend));
                }
                match &repository.fork_of {
                    Some(parent) => {
                        Check::ok(name, format!("{told}; a fork of {parent}, which is left alone"))
                    }
                    None => Check::ok(name, told),
                }
            }
        })
    }
}

fn of_github(name: &'static str, error: &github::Error) -> Check {
    // What passes by itself is no failure.
    let level = if error.retry() == github::Retry::Never { Level::Failure } else { Level::Warning };
    let check = Check::new(name, level, error.to_string());
    match error.hint() {
        Some(hint) => check.mend(hint),
        None => check,
    }
}

/// Whether Claude Code calls us when a session ends, and asks us while one runs.
fn in_claude_code() -> [Check; 2] {
    let folder = transcript::client_folder().unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let mut broken = Vec::new();
    let mut json = |path: PathBuf| match read_settings(&path) {
        Ok(value) => value,
        Err(why) => {
            broken.push(format!("{} {why}", path.display()));
            Value::Null
        }
    };
    let settings = [
        json(folder.join("settings.json")),
        json(here.join(".claude/settings.json")),
        json(here.join(".claude/settings.local.json")),
    ];
    // Beside the folder, unless that was moved.
    let is_moved = std::env::var_os("CLAUDE_CONFIG_DIR").is_some_and(|folder| !folder.is_empty());
    let beside = if is_moved { folder.join(".claude.json") } else { folder.with_file_name(".claude.json") };
    let (of_user, of_project) = (json(beside), json(here.join(".mcp.json")));

    let of_skills = folder.join("skills/nugget");
    let is_plugin = of_skills.is_dir()
        || settings.iter().any(|settings| {
            let plugins = settings["enabledPlugins"].as_object();
            plugins.is_some_and(|plugins| {
                plugins.iter().any(|(name, is_on)| name.starts_with("nugget@") && *is_on == true)
            })
        });
    let is_hook = settings.iter().any(|settings| settings["disableAllHooks"] != true && has_hook(settings));
    let is_off = settings.iter().any(|settings| settings["disableAllHooks"] == true);
    let servers = [
        &of_user["mcpServers"],
        &of_user["projects"][here.to_string_lossy().as_ref()]["mcpServers"],
        &of_project["mcpServers"],
    ];
    let is_server = servers.into_iter().any(has_server);

    let unreadable = (!broken.is_empty()).then(|| broken.join(", "));
    let missing = |name: &'static str, what: &str, mend: &str| match &unreadable {
        Some(broken) => Check::failure(name, format!("cannot be told: {broken}")).mend("make it valid JSON"),
        None => Check::warning(name, what).mend(mend),
    };
    let hooks = match (is_off, is_plugin, is_hook) {
        (true, ..) => {
            Check::warning("hooks", "Claude Code's settings switch all hooks off (disableAllHooks)")
                .mend("nugget sync finds sessions without them")
        }
        (_, true, _) => Check::ok("hooks", "by the plugin"),
        (_, _, true) => Check::ok("hooks", "SessionEnd calls nugget"),
        _ => missing("hooks", "Claude Code does not tell nugget of ended sessions", "nugget install"),
    };
    let server = match (is_plugin, is_server) {
        (true, _) => Check::ok("mcp", "by the plugin"),
        (_, true) => Check::ok("mcp", "Claude Code knows the server"),
        _ => missing("mcp", "Claude Code does not know the server", "nugget install"),
    };
    [hooks, server]
}

/// `Null` for a file that is not there.
fn read_settings(path: &Path) -> Result<Value, String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => return Err(format!("cannot be read: {error}")),
        Ok(metadata) if !metadata.is_file() => return Err("is no file".to_owned()),
        Ok(metadata) if metadata.len() > SETTINGS_BYTES_MAX => return Err("is too large".to_owned()),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))
}

fn has_hook(settings: &Value) -> bool {
    let matchers = settings["hooks"]["SessionEnd"].as_array();
    let hooks = matchers.into_iter().flatten().filter_map(|matcher| matcher["hooks"].as_array()).flatten();
    hooks.into_iter().any(|hook| {
        let words = std::iter::once(&hook["command"]).chain(hook["args"].as_array().into_iter().flatten());
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        words.join(" ").contains("capture-session")
    })
}

fn has_server(servers: &Value) -> bool {
    servers.as_object().is_some_and(|servers| {
        servers.values().any(|server| {
            let command = server["command"].as_str().unwrap_or_default();
            let is_ours = Path::new(command).file_stem().is_some_and(|name| name == "nugget");
            let args = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let args: Vec<&str> = args.collect();
            (is_ours || args.iter().any(|word| word.ends_with("nugget"))) && args.contains(&"serve")
        })
    })
}

fn queue(places: &StatePaths) -> Check {
    let name = "queue";
    let path = places.queue();
    let spooled = Spool::new(places.spool()).list().map_or(0, |spooled| spooled.len() as u64);
    match std::fs::symlink_metadata(places.folder()) {
        // Looking must not make anything: a brain without captures has no queue yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Check::ok(name, "no capture yet");
        }
        Err(error) => {
            return Check::failure(name, format!("{}: {error}", places.folder().display()))
                .mend("see that this folder is yours to read and write");
        }
        Ok(metadata) if !metadata.is_dir() && !metadata.is_symlink() => {
            return Check::failure(name, format!("{} is no folder", places.folder().display()))
                .mend("remove it");
        }
        Ok(_) if !path.exists() && spooled == 0 => return Check::ok(name, "no capture yet"),
        Ok(_) => {}
    }
    let look = || -> Result<Check, queue::Error> {
        let queue = Queue::open(&path)?;
        let tally = queue.tally()?;
        let waiting = tally.unfinished() + spooled;
        let is_drained = FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining();
        let now = Timestamp::now();
        // Those that wait are among the newest, but for those that wait for a person.
        let oldest = queue
            .captures(10_000)?
            .into_iter()
            .filter(|capture| matches!(capture.state, State::Queued | State::Running | State::Retrying));
        let oldest = oldest.map(|capture| capture.added).min();
        let told = match oldest {
            Some(oldest) => format!("{waiting} waiting, the oldest for {}", output::age(oldest, now)),
            None => format!("{waiting} waiting, {} done", tally.done + tally.nothing),
        };
        let is_late = oldest.is_some_and(|oldest| {
            now.duration_since(oldest).as_secs() > i64::try_from(WAITING_MAX.as_secs()).unwrap_or(i64::MAX)
        });
        Ok(if tally.dead > 0 {
            Check::warning(
                name,
                format!("{told}; {} given up", counted(tally.dead, "capture was", "captures were")),
            )
            .mend("`nugget status` says why; then nugget retry --all")
        } else if is_late && !is_drained {
            Check::warning(name, format!("{told}, and nobody works on it")).mend("nugget retry --all")
        } else if is_late {
            Check::warning(name, told).mend("`nugget status` says what is waited for")
        } else {
            Check::ok(name, told)
        })
    };
    look().unwrap_or_else(|error| Check::failure(name, CliError::from(error).line()))
}

fn index(brain: &Brain, embed: &embed::Settings) -> Check {
    let name = "index";
    let folder = brain.derived_folder();
    if !folder.join("index.db").is_file() {
        return Check::warning(name, "not made yet; the first question makes it").mend("nugget index");
    }
    let look = || -> Result<Check, index::Error> {
        let index = index::Index::open(&folder)?;
        let pinned = index.pin()?;
        let (generation, units) = (pinned.generation(), pinned.units_count());
        let told = format!("generation {generation}, {}", counted(units as u64, "unit", "units"));
        let Some(label) = pinned.model().cloned() else {
            return Ok(Check::warning(name, "it is empty").mend("nugget index"));
        };
        drop(pinned);
        let wanted = embed::model_name(embed);
        if label.name != wanted {
            let told = format!("{told}, of {}; the settings say {wanted}", label.name);
            return Ok(Check::warning(name, told).mend("nugget index"));
        }
        Ok(match index.is_current(brain, &label)? {
            true => Check::ok(name, format!("{told}, up to date")),
            false => Check::warning(
                name,
                format!("{told}, behind the files; the next question brings it up to date"),
            )
            .mend("nugget index"),
        })
    };
    look().unwrap_or_else(|error| {
        Check::failure(name, error.to_string())
            .mend(format!("it is derived: remove {}, it is made again", folder.display()))
    })
}

fn model(config: &Config) -> Check {
    let settings = embed_settings(config);
    let told = format!("{}, model {}", embed::runtime_of(&settings).0, embed::model_name(&settings));
    let readers = format!("sessions are read by {}", extractor::destination(config));
    match embed::check(&settings) {
        Ok(()) => Check::ok("model", format!("{told}; {readers}")),
        Err(error) => Check::failure("model", error.to_string()).mend("nugget config shows what is set"),
    }
}

/// How much room there is where captures are kept, and where units are written.
fn disk(places: &StatePaths, root: &Path) -> Check {
    let name = "disk";
    let mut least: Option<(u64, PathBuf)> = None;
    for folder in [places.folder(), root] {
        // What is not there yet will be made on the disk of what is.
        let Some(there) = folder.ancestors().find(|folder| folder.exists()) else { continue };
        match rustix::fs::statvfs(there) {
            Ok(disk) => {
                let free = disk.f_bavail.saturating_mul(disk.f_frsize);
                if least.as_ref().is_none_or(|(least, _)| free < *least) {
                    least = Some((free, there.to_owned()));
                }
            }
            Err(error) => return Check::warning(name, format!("{}: {error}", there.display())),
        }
    }
    let Some((free, folder)) = least else { return Check::warning(name, "there is no folder to look at") };
    let told = format!("{} free for {}", size(free), folder.display());
    match free {
        _ if free < ROOM_MIN => Check::failure(name, told).mend("make room: captures need it"),
        _ if free < 10 * ROOM_MIN => Check::warning(name, told).mend("make room soon"),
        _ => Check::ok(name, format!("{} free", size(free))),
    }
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ 0..=9999 => format!("{mib} MiB"),
        mib => format!("{} GiB", mib >> 10),
    }
}

fn clock(asked: Option<&Asked>, offline: bool) -> Check {
    let name = "clock";
    match asked.and_then(|asked| asked.skew_seconds) {
        None if offline => Check::ok(name, "not compared"),
        None => Check::ok(name, "nobody to compare it with"),
        Some(skew) if skew.unsigned_abs() <= SKEW_MAX_SECONDS => Check::ok(name, "as GitHub's"),
        Some(skew) => {
            let way = if skew > 0 { "behind" } else { "ahead of" };
            Check::warning(name, format!("{} s {way} GitHub's", skew.unsigned_abs()))
                .mend("set it, or switch NTP on")
        }
    }
}

fn versions(client: Option<String>, schemas: &[(&str, &Path)]) -> Check {
    let name = "versions";
    let own = env!("CARGO_PKG_VERSION");
    let client = client.map_or_else(
        || "no Claude Code on the PATH".to_owned(),
        // It says its number, then its name.
        |said| format!("Claude Code {}", said.trim_end_matches("(Claude Code)").trim_end()),
    );
    let mut told = format!("nugget {own}, {client}");
    for (name, path) in schemas {
        if let Some(version) = schema_of(path) {
            told.push_str(&format!(", {name} schema {version}"));
        }
    }
    let here = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|folder| folder.join("nugget")).find(|program| program.is_file())
    });
    let on_path = on_path.and_then(|program| std::fs::canonicalize(program).ok());
    match (here, on_path) {
        (Some(here), Some(other))
            if here != other && std::fs::read(&here).ok() != std::fs::read(&other).ok() =>
        {
            Check::warning(
                name,
                format!("{told}; the nugget on the PATH is another one: {}", other.display()),
            )
            .mend("hooks may call that one: update it or remove it")
        }
        (_, None) => Check::warning(name, format!("{told}; no nugget on the PATH"))
            .mend("put it there: Claude Code calls it by name"),
        _ => Check::ok(name, told),
    }
}

/// The version that a database bears in its header (SQLite's file format, 1.3.14: `user_version`).
fn schema_of(path: &Path) -> Option<u32> {
    let mut header = [0; 64];
    std::io::Read::read_exact(&mut std::fs::File::open(path).ok()?, &mut header).ok()?;
    let version = u32::from_be_bytes(header[60..64].try_into().ok()?);
    (header.starts_with(b"SQLite format 3\0") && version > 0).then_some(version)
}

fn client_program(config: &Config) -> PathBuf {
    config.path("extract.claude").unwrap_or_else(|| "claude".into())
}
