//! `nugget doctor`: checks the setup and says how to fix what is wrong.
//!
//! The checks change nothing, except that sessions in the spool are queued. A problem becomes a line of the report; none
//! ends the command.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use actors::BrainView;
use brain::{Brain, Config, StatePaths};
use embed::Tokenizer;
use git::{Lag, RemoteSession};
use github::{FoundToken, GitHub, Host, Slug};
use jiff::{SignedDuration, Timestamp};
use knowledge::CountTokens as _;
use queue::{FileLocks, Queue, Spool, Stage};
use serde_json::{Value, json};
use team_client::Login;

use self::check::{Check, Level};
use super::status::needs_worker;
use crate::client_settings::{ClientSettings, read_settings};
use crate::context::{Context, open_brain};
use crate::error::{CliError, FAILED};
use crate::extractor::Destination;
use crate::hook::tokens_max;
use crate::integration::find_on_path;
use crate::output::{self, counted, short_path};
use crate::staleness;
use crate::state_check::StateProblem;
use crate::subprocess::version_of;
use crate::unit_files::read_units;
use crate::{async_runtime, extractor, plugin, remote, settings, state_check};

mod archive;
mod check;
mod model_server;

/// How long each network check, and each program, may take. They run in parallel.
const DEADLINE: Duration = Duration::from_secs(5);
/// Older versions of git lack features that nugget uses.
const GIT_MIN: (u32, u32) = (2, 31);
/// Captures that have waited for longer are reported.
const WAITING_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Less free space is a failure, because captures may fail; less than ten times as much is a warning.
const FREE_BYTES_MIN: u64 = 100 << 20;
/// A larger clock skew breaks certificates and the dates of commits.
const SKEW_MAX_SECONDS: u64 = 120;
/// How long the client skips a plugin's server that has failed to start, in every session.
const FAILURE_CACHED_FOR: Duration = Duration::from_secs(15 * 60);
/// Where the client remembers that, beside its settings.
const FAILURE_CACHE: &str = "mcp-needs-auth-cache.json";

const AFTER: &str = "\
Each check prints one line: ok, warning or failure, with a fix. A warning is
something that works less well than it could or could not be checked; a failure
keeps knowledge from being saved or found. With -v, the whole archive of
sessions is checked.

Exit codes:
  0  no failure (there may be warnings)
  1  at least one failure

Examples:
  nugget doctor
  nugget doctor --offline
  nugget doctor --json | jq '.checks[] | select(.level != \"ok\")'";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct DoctorArgs {
    /// Ask nothing outside of this machine
    #[arg(long)]
    offline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let checks = run_checks(context, self.offline);
        let worst = checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok);
        if self.json {
            output::print_json(&json!({ "level": worst, "checks": checks }))?;
        } else {
            output::print(&render(&checks))?;
        }
        Ok(if worst == Level::Failure { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

fn render(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let line = |check: &Check| {
        let fix = check.fix.as_ref().map_or_else(String::new, |fix| format!("; fix: {fix}"));
        let level = format!("{:?}", check.level).to_lowercase();
        let head = format!("{level:<7}  {:<width$}  ", check.name);
        let message = format!("{}{fix}", check.message);
        // In a pipe each check is one line.
        let rows = match std::io::stdout().is_terminal() {
            true => output::wrap(&message, output::terminal_width().saturating_sub(head.len()).max(20)),
            false => vec![message],
        };
        format!("{head}{}\n", rows.join(&format!("\n{}", " ".repeat(head.len()))))
    };
    let mut text: String = checks.iter().map(line).collect();
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    text.push_str(&match (count(Level::Failure), count(Level::Warning)) {
        (0, 0) => "\nno problems found\n".to_owned(),
        (0, warnings) => format!("\nno failures, {}\n", counted(warnings as u64, "warning")),
        (failures, warnings) => {
            format!("\n{}, {}\n", counted(failures as u64, "failure"), counted(warnings as u64, "warning"))
        }
    });
    text
}

fn run_checks(context: &Context, offline: bool) -> Vec<Check> {
    let (config, errors) = context.config_and_errors();
    let root = context.root(&config);
    let brain = open_brain(&root);
    let opened = brain.as_ref().ok().map(remote::open_repository);
    let repository = opened.as_ref().and_then(|opened| opened.as_ref().ok());
    let remote_checks = RemoteChecks::find(repository, &config.string("github.api"));
    let client_program = config.path("extract.claude").unwrap_or_else(|| "claude".into());
    // The slow checks are started first and run in parallel.
    std::thread::scope(|scope| {
        let git = scope.spawn(check_git);
        let client = scope.spawn(|| version_of(&client_program, DEADLINE));
        let reached = scope.spawn(|| (!offline).then(|| remote_checks.count_branches(repository)));
        let answers = scope.spawn(|| (!offline).then(|| remote_checks.ask_api()).flatten());
        let model_server = scope.spawn(|| model_server::check(&config, offline));
        let reader = scope.spawn(|| extractor::destination_now(&config, DEADLINE));

        let mut checks = vec![check_settings(&config, &errors)];
        let places = StatePaths::for_brain(&root);
        let stores = match &brain {
            Ok(brain) => [
                check_state(&root, &places),
                check_queue(&places),
                check_index(brain, &settings::embedding(&config)),
            ]
            .into_iter()
            .chain(check_units(brain))
            .collect(),
            Err(_) => vec![check_state(&root, &places), check_queue(&places)],
        };
        let archive = archive::check(&config, context.verbosity > 0);
        let crashed = || Check::failure("doctor", "check crashed");
        checks.push(git.join().unwrap_or_else(|_| crashed()));
        checks.push(check_brain(brain, &root));
        checks.extend(opened.as_ref().map(|repository| check_branch(repository, &places)));
        checks.extend(repository.and_then(check_signing));
        let answers = answers.join().unwrap_or(None);
        checks.push(remote_checks.check_token(answers.as_ref(), offline));
        checks.push(remote_checks.check_remote(reached.join().unwrap_or(None), offline));
        checks.extend(remote_checks.check_repository(answers.as_ref()));
        checks.extend(check_client(&config, &settings::embedding(&config), &config.list("mcp.tools")));
        checks.extend(stores);
        checks.extend(check_spool(&places));
        checks.push(archive);
        let login = Login::read(places.folder());
        let unread = Some(places.queue()).filter(|path| path.is_file());
        let unread = unread.and_then(|path| actors::last_unread(&Queue::open(&path).ok()?));
        // A login that cannot be read still says that sessions are handed over.
        let is_handed_over = login.as_ref().map_or(true, Option::is_some);
        checks.push(check_model(&config, reader.join().ok(), is_handed_over, unread));
        checks.extend(match login {
            Ok(login) => login.map(|login| check_server(&login, &root, offline)),
            Err(error) => {
                let StateProblem { message, fix } = StateProblem::of_login(&error);
                Some(Check::failure("server", message).fix(fix))
            }
        });
        checks.extend(model_server.join().ok().flatten().map(
            |model_server::Finding { is_ok, message, fix }| {
                let level = if is_ok { Level::Ok } else { Level::Warning };
                Check { fix, ..Check::new("model server", level, message) }
            },
        ));
        checks.push(check_disk(&places, &root));
        checks.push(check_clock(answers.as_ref()));
        let (queue, index) = (places.queue(), root.join(brain::DERIVED_FOLDER).join("index.db"));
        checks.push(check_versions(client.join().unwrap_or(None), &[("queue", &queue), ("index", &index)]));
        checks
    })
}

fn check_settings(config: &Config, errors: &[brain::config::ConfigError]) -> Check {
    let file = config.file();
    if !errors.is_empty() {
        return Check::failure("settings", CliError::from_settings(errors).line());
    }
    match file.is_file() {
        true => Check::ok("settings", file.display().to_string()),
        false => Check::ok("settings", "defaults (no config file)"),
    }
}

fn check_git() -> Check {
    let Some(output) = version_of(Path::new("git"), DEADLINE) else {
        return Check::failure("git", "git was not found")
            .fix("install it, and make sure that it is on the PATH");
    };
    let version = output.trim_start_matches("git version").trim();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= GIT_MIN => Check::ok("git", version),
        (Some(_), Some(_)) => Check::failure("git", format!("{version} is too old"))
            .fix(format!("install {}.{} or later", GIT_MIN.0, GIT_MIN.1)),
        _ => Check::warning("git", format!("unknown version: {version}")),
    }
}

fn check_brain(brain: Result<Brain, brain::Error>, root: &Path) -> Check {
    let brain = match brain {
        Ok(brain) => brain,
        Err(error) => {
            let check = Check::failure("brain", error.to_string());
            return match error {
                brain::Error::NotAFolder { .. } => {
                    check.fix("name another folder with --brain or the setting `brain`")
                }
                _ => check.fix(format!("nugget init --path {}, or nugget clone", root.display())),
            };
        }
    };
    if let Err(error) = brain.manifest() {
        return Check::failure("brain", CliError::from(error).line());
    }
    if brain.is_elsewhere() {
        return Check::warning(
            "brain",
            "what is checked out has no valid brain.yaml; the committed one counts",
        )
        .fix(restore_manifest(brain.root()));
    }
    match read_units(&brain) {
        // Which files are no units, the check of the index says.
        Ok(found) => {
            let units = counted(found.units.len() as u64, "unit");
            Check::ok("brain", format!("{}, {units}", brain.root().display()))
        }
        Err(error) => Check::failure("brain", error.line()).fix("make that folder readable"),
    }
}

/// The command that brings `brain.yaml` back from the default branch.
fn restore_manifest(root: &Path) -> String {
    let branch = git::Repository::open(root).and_then(|repository| repository.default_branch());
    // Only the local branch has this name.
    let branch = branch.map_or_else(
        |_| "HEAD".to_owned(),
        |branch| if branch.local.is_some() { branch.name } else { branch.tip.to_string() },
    );
    format!("git -C {} checkout {branch} -- {}", root.display(), brain::BRAIN_YAML)
}

fn check_branch(repository: &Result<git::Repository, git::Error>, places: &StatePaths) -> Check {
    let name = "branch";
    let failed = |error: &git::Error| Check::error(name, Level::Failure, error, error.hint());
    let (lag, unfinished) = match repository {
        Ok(repository) => (repository.lag(), repository.unfinished().ok().flatten()),
        Err(error) => return failed(error),
    };
    // Until then git refuses what is advised for everything else.
    if let Some(unfinished) = unfinished {
        let level = if unfinished.conflicts > 0 { Level::Failure } else { Level::Warning };
        let abort = if unfinished.is_merge() { "; `git merge --abort` gives it up" } else { "" };
        return Check::new(name, level, unfinished.to_string())
            .fix(format!("`git status` in the brain says how{abort}"));
    }
    let Lag { branch, behind, ahead, blocked, remote, .. } = match lag {
        Ok(lag) => lag,
        Err(error) => return failed(&error),
    };
    let commits = |count: usize| counted(count as u64, "commit");
    if remote.is_none() {
        return Check::ok(name, format!("`{branch}`, not fetched yet"));
    }
    match (behind, ahead, blocked) {
        (_, _, Some(why)) if why.names_its_fix() => {
            Check::warning(name, why.to_string()).fix("one of these in the brain, then `nugget sync`")
        }
        (0, 0, _) => Check::ok(name, format!("`{branch}` is up to date with the remote's last known state")),
        (0, ahead, _) if remote::is_push_refused(places) => {
            let refused =
                format!("`{branch}` has {} not pushed, and the remote takes no pushes of it", commits(ahead));
            Check::warning(name, refused).fix(format!(
                "`git push origin {branch}:refs/heads/NAME` and open a pull request, or have somebody push it who may"
            ))
        }
        (0, ahead, _) => Check::ok(name, format!("`{branch}` has {} not pushed", commits(ahead))),
        (behind, 0, None) => {
            Check::warning(name, format!("`{branch}` is {} behind", commits(behind))).fix("nugget sync")
        }
        (behind, 1.., _) => Check::warning(
            name,
            format!(
                "`{branch}` has {} not pushed and lacks {} of the remote's",
                commits(ahead),
                commits(behind)
            ),
        )
        .fix("`git pull --no-rebase` in the brain, then `git push`"),
        (behind, _, Some(why)) => Check::warning(
            name,
            format!("`{branch}` is {} behind and cannot be updated: {why}", commits(behind)),
        )
        .fix("resolve that in the brain, then run `nugget sync`; merged units are found anyway"),
    }
}

/// Says that commits are not signed, where a person has git sign theirs.
fn check_signing(repository: &git::Repository) -> Option<Check> {
    repository.signs_commits().then(|| {
        let message = "`commit.gpgsign` is on, and nugget signs no commit: a remote that requires signed commits refuses its \
            branches and merges";
        Check::warning("signing", message).fix(
            "if the remote requires them, except `nugget/` there and merge on its page, which signs the merge itself; else \
             `git config commit.gpgsign false` in the brain",
        )
    })
}

/// The brain's remote, with its GitHub repository and token.
#[derive(Default)]
struct RemoteChecks {
    remote: Option<git::Remote>,
    site: Option<(Host, Slug)>,
    found: Option<FoundToken>,
    error: Option<Check>,
}

/// The answers of GitHub's API.
struct ApiAnswers {
    viewer: Result<github::Viewer, github::Error>,
    repository: Result<github::Repository, github::Error>,
    skew_seconds: Option<i64>,
}

impl RemoteChecks {
    /// Reads git's configuration and finds the token, without network access.
    fn find(repository: Option<&git::Repository>, api: &str) -> Self {
        let mut found = Self::default();
        if let Some(Err(error)) = repository.map(|repository| found.read(repository, api)) {
            found.error = Some(Check { fix: error.hint, ..Check::failure("token", error.message) });
        }
        found
    }

    fn read(&mut self, repository: &git::Repository, api: &str) -> Result<(), CliError> {
        self.remote = repository.remote()?;
        let Some(url) = self.remote.as_ref().and_then(git::Remote::parsed_url) else { return Ok(()) };
        let site = remote::github_host(&url, api)?;
        self.found = site.as_ref().map_or(Ok(None), |(host, _)| host.token())?;
        self.site = site;
        Ok(())
    }

    fn count_branches(&self, repository: Option<&git::Repository>) -> Result<usize, git::Error> {
        let (Some(repository), Some(remote)) = (repository, &self.remote) else { return Ok(0) };
        let place = remote.parsed_url();
        let takes_token =
            place.is_some_and(|place| matches!(place.scheme, git::Scheme::Https | git::Scheme::Http));
        let credentials = self.found.as_ref().filter(|_| takes_token).map(remote::token_credentials);
        let session = RemoteSession { remote, credentials: credentials.as_ref(), deadline: DEADLINE };
        repository.list_remote_branches(&session).map(|branches| branches.len())
    }

    /// Asks GitHub's API; `None` without GitHub or without a token.
    fn ask_api(&self) -> Option<ApiAnswers> {
        let ((site, slug), found) = (self.site.as_ref()?, self.found.as_ref()?);
        let runtime = async_runtime::current_thread().ok()?;
        runtime.block_on(async {
            let github = GitHub::new(site.api(), DEADLINE, &found.token).ok()?;
            let (viewer, repository) = tokio::join!(github.whoami(), github.repository(slug));
            Some(ApiAnswers { viewer, repository, skew_seconds: github.skew_seconds() })
        })
    }

    fn check_token(&self, answers: Option<&ApiAnswers>, offline: bool) -> Check {
        let name = "token";
        if let Some(error) = &self.error {
            return error.clone();
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
            return Check::warning(name, format!("none for {}: no pull requests are opened", site.host()))
                .fix("gh auth login, or set GITHUB_TOKEN");
        };
        let from = format!("for {}, from {}", site.host(), found.from);
        match answers.map(|answers| &answers.viewer) {
            None if offline => Check::ok(name, format!("{from}; not checked")),
            None => Check::warning(name, format!("{from}; it could not be checked")),
            Some(Ok(viewer)) => {
                let login = &viewer.login;
                match &viewer.scopes {
                    Some(scopes) if !scopes.iter().any(|scope| scope == "repo" || scope == "public_repo") => {
                        let has = if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") };
                        Check::failure(
                            name,
                            format!("{from}, of {login}, without the scope `repo` (it has {has})"),
                        )
                        .fix("gh auth refresh --scopes repo, or make a token with that scope")
                    }
                    Some(scopes) => {
                        Check::ok(name, format!("{from}, of {login}, scopes {}", scopes.join(", ")))
                    }
                    None => Check::ok(name, format!("{from}, of {login}, fine-grained")),
                }
            }
            // For example the token of a GitHub Actions run, which belongs to no user.
            Some(Err(github::Error::Forbidden { .. })) => {
                Check::ok(name, format!("{from}; its owner is not visible to it"))
            }
            Some(Err(error)) => from_github_error(name, error),
        }
    }

    fn check_remote(&self, reached: Option<Result<usize, git::Error>>, offline: bool) -> Check {
        let name = "remote";
        let Some(remote) = &self.remote else {
            return Check::warning(name, "none: knowledge stays on this machine")
                .fix("nugget init --github OWNER/NAME --create");
        };
        let shown = remote.display_url();
        match reached {
            None if offline => Check::ok(name, format!("{shown}; not checked")),
            None => Check::failure(name, format!("{shown}: check crashed")),
            Some(Ok(0)) => {
                Check::warning(name, format!("{shown} is empty")).fix("git push origin HEAD, in the brain")
            }
            Some(Ok(count)) => Check::ok(name, format!("{shown}, {}", counted(count as u64, "branch"))),
            // Being offline is not a failure: captures wait and are sent later.
            Some(Err(
                error @ git::Error::Remote {
                    failure: git::RemoteFailure::Offline | git::RemoteFailure::TooLate,
                    ..
                },
            )) => Check::error(name, Level::Warning, &error, None)
                .fix("nothing is lost; captures are sent when the remote answers"),
            Some(Err(error)) => Check::error(name, Level::Failure, &error, error.hint()),
        }
    }

    fn check_repository(&self, answers: Option<&ApiAnswers>) -> Option<Check> {
        let name = "pull requests";
        let Some((_, slug)) = &self.site else {
            let message = "none: the remote is not on GitHub, so you merge the pushed branches yourself";
            return self.remote.is_some().then(|| Check::ok(name, message));
        };
        Some(match &answers?.repository {
            Err(error) => from_github_error(name, error),
            Ok(repository) if repository.archived => {
                from_github_error(name, &github::Error::Archived { slug: slug.to_string() })
            }
            Ok(repository) if !repository.can_push => {
                Check::failure(name, format!("the token may not push to {slug}"))
                    .fix("give it write access to contents and pull requests")
            }
            Ok(repository) => {
                let kind = if repository.private { "private" } else { "public" };
                let target = format!("to `{}` of {}, {kind}", repository.default_branch, repository.slug);
                if repository.slug != *slug {
                    let fix = format!("git remote set-url origin {}", repository.clone_url);
                    return Some(Check::warning(name, format!("{target}; it was renamed")).fix(fix));
                }
                match &repository.fork_of {
                    Some(parent) => {
                        Check::ok(name, format!("{target}; a fork of {parent}, which is not used"))
                    }
                    None => Check::ok(name, target),
                }
            }
        })
    }
}

fn from_github_error(name: &'static str, error: &github::Error) -> Check {
    // A temporary error is not a failure.
    let level = if error.retry() == github::Retry::Never { Level::Failure } else { Level::Warning };
    Check::error(name, level, error, error.hint())
}

/// Whether Claude Code runs nugget's hook and knows its server, each once.
fn check_client(config: &Config, embed: &embed::Settings, tools: &[&str]) -> [Check; 2] {
    let client = ClientSettings::read(&std::env::current_dir().unwrap_or_default());
    let unreadable = (!client.unreadable.is_empty()).then(|| client.unreadable.join(", "));
    let missing = |name: &'static str, what: &str| match &unreadable {
        Some(broken) => Check::failure(name, format!("unknown: {broken}")).fix("make it valid JSON"),
        None => Check::warning(name, what).fix("nugget install"),
    };
    let (marketplace, copy, files) = (client.marketplace_plugin(), client.copy(), client.files_with_hooks());
    let gone = client.programs().into_iter().find(|(_, is_there)| !is_there);
    let gone = |name: &'static str| {
        let (program, _) = gone.as_ref()?;
        let fix = match marketplace {
            Some(_) => "put nugget on the PATH, or set the plugin's option `binary` to its path",
            None if copy.is_none()
                && program == "nugget"
                && files.iter().any(|file| !client.is_users(file)) =>
            {
                "put nugget on the PATH, by which a project's files call it"
            }
            None => "nugget install",
        };
        let what = format!("Claude Code calls {program}, which is not there");
        Some(Check::warning(name, what).fix(fix))
    };
    let has_hooks = marketplace.is_some() || copy.is_some() || !files.is_empty();
    let hooks = match (marketplace, &copy, files.first()) {
        _ if client.disables_hooks() => {
            Check::warning("hooks", "Claude Code's settings disable all hooks (disableAllHooks)")
                .fix("remove disableAllHooks; until then `nugget sync` finds sessions")
        }
        (None, Some(_), Some(file)) | (Some(_), _, Some(file)) => {
            let fix = match client.is_users(file) {
                true => "nugget install; if the hook there is your own, delete it",
                false => "nugget uninstall --scope project, or nugget uninstall for yourself",
            };
            Check::warning("hooks", format!("they run twice: by the plugin, and by {}", short_path(file)))
                .fix(fix)
        }
        (Some(plugin), Some(copy), None) => {
            let copy = short_path(copy);
            Check::warning("hooks", format!("by the plugin {plugin}; the copy in {copy} is not loaded"))
                .fix("nugget install, which removes the copy")
        }
        _ if has_hooks && let Some(gone) = gone("hooks") => gone,
        _ if has_hooks && config.string("guard.enabled") == "on" && !client.has_guard() => {
            Check::warning("hooks", "those of an older nugget: the guard at the action is missing")
                .fix("nugget install")
        }
        (Some(plugin), None, None) => Check::ok("hooks", format!("by the plugin {plugin}")),
        (None, Some(_), None) => Check::ok("hooks", "by the plugin"),
        (None, None, Some(_)) => Check::ok("hooks", "SessionEnd runs nugget"),
        (None, None, None) => missing("hooks", "Claude Code does not run nugget when a session ends"),
    };
    let loaded = mcp::always_loaded(tools);
    let tokens = Tokenizer::load(embed).map_or_else(|_| tokens_max(&loaded), |model| model.count(&loaded));
    let cost = format!("about {tokens} tokens in every session");
    let cache = transcript::client_folder().unwrap_or_default().join(FAILURE_CACHE);
    let is_plugin = marketplace.is_some() || copy.is_some();
    let server = if !is_plugin && !client.has_server() {
        missing("mcp", "Claude Code does not know the server")
    } else if let Some(gone) = gone("mcp") {
        gone
    } else if is_plugin && client.has_server() {
        Check::warning(
            "mcp",
            "twice in every session: by the plugin, and as a server in Claude Code's settings",
        )
        .fix("`claude mcp remove nugget` removes one that was added by hand, `nugget install` its own")
    } else if is_failure_cached(&read_settings(&cache).unwrap_or_default(), Timestamp::now()) {
        Check::warning(
            "mcp",
            "Claude Code remembers that the server failed to start, and skips it for 15 minutes in every session",
        )
        .fix(format!("rm {}, then start a new session", cache.display()))
    } else if is_plugin && !client.allows(plugin::TOOL) {
        missing(
            "mcp",
            "by the plugin, whose tool has no permission: sessions ask each time, and `claude -p` never may",
        )
    } else if !tools.contains(&mcp::TOOL) {
        let message = format!("`mcp.tools` leaves out {}: sessions find nothing again", mcp::TOOL);
        let all = [&[mcp::TOOL], tools].concat().join(",");
        Check::warning("mcp", message).fix(format!("nugget config set mcp.tools {all}"))
    } else if is_plugin {
        Check::ok("mcp", format!("by the plugin, {cost}"))
    } else {
        Check::ok("mcp", format!("Claude Code knows the server, {cost}"))
    };
    [hooks, server]
}

/// Whether the client's cache of failures has one of nugget's server that still counts. A plugin's server is named
/// `plugin:PLUGIN:SERVER` in it.
fn is_failure_cached(cache: &Value, now: Timestamp) -> bool {
    let is_ours = |name: &str| name.split(':').any(|part| part == "nugget");
    let counts = |entry: &Value| {
        let since = entry["timestamp"].as_i64().map(|since| now.as_millisecond().saturating_sub(since));
        since.is_some_and(|since| since < FAILURE_CACHED_FOR.as_millis() as i64)
    };
    cache.as_object().is_some_and(|cache| cache.iter().any(|(name, entry)| is_ours(name) && counts(entry)))
}

fn check_state(root: &Path, places: &StatePaths) -> Check {
    match StateProblem::find(root, places) {
        Some(problem) => Check::failure("state", problem.message).fix(problem.fix),
        None => Check::ok("state", "all files are yours, and no lock is in the way"),
    }
}

fn check_queue(places: &StatePaths) -> Check {
    let name = "queue";
    let path = places.queue();
    let spooled = Spool::new(places.spool()).list().map_or(0, |spooled| spooled.len() as u64);
    match path.try_exists() {
        // The check creates nothing, and a brain without captures has no queue yet.
        Ok(false) if spooled == 0 => return Check::ok(name, "no capture yet"),
        Ok(_) => {}
        Err(error) => {
            return Check::failure(name, format!("{}: {error}", places.folder().display()))
                .fix("make this a folder that you may read and write");
        }
    }
    let check = || -> Result<Check, queue::Error> {
        let queue = Queue::open(&path)?;
        let tally = queue.tally()?;
        let waiting = tally.unfinished() + spooled;
        let is_drained = FileLocks::new(places.wait_lock(), places.drain_lock()).is_draining();
        let now = Timestamp::now();
        // Waiting captures are among the newest.
        let captures = queue.captures(10_000)?;
        let unfinished = captures.iter().filter(|capture| !capture.state.is_final());
        let oldest = unfinished.map(|capture| capture.added).min();
        let counts = match oldest {
            Some(oldest) => format!("{waiting} waiting, the oldest for {}", output::age(oldest, now)),
            None => format!("{waiting} waiting, {} done", tally.done + tally.nothing),
        };
        let is_late = oldest.is_some_and(|oldest| now.duration_since(oldest) > WAITING_MAX);
        let is_server_away = queue.pauses()?.iter().any(|pause| pause.stage == Stage::Upload);
        let depths = queue.stage_depths()?;
        let is_stalled =
            !is_drained && needs_worker(tally.unfinished(), &captures, &depths, is_server_away, now);
        Ok(if let Some(StateProblem { message, fix }) = StateProblem::find_waiting(places) {
            Check::warning(name, format!("{counts}; {message}")).fix(fix)
        } else if tally.dead > 0 {
            Check::warning(name, format!("{counts}; {} failed", counted(tally.dead, "capture")))
                .fix("`nugget status` says why; then run `nugget retry --all`")
        } else if is_stalled {
            Check::warning(name, format!("{counts}, but no worker is running")).fix("nugget retry --all")
        } else if is_late {
            Check::warning(name, counts).fix("`nugget status` says what they wait for")
        } else {
            Check::ok(name, counts)
        })
    };
    check().unwrap_or_else(|error| match error.is_damaged() {
        true => damaged_queue(&path, &error),
        false => Check::failure(name, CliError::from(error).line()),
    })
}

/// Names the files of the spool that cannot be read; nothing else says that a session is missing.
fn check_spool(places: &StatePaths) -> Option<Check> {
    let corrupt = Spool::new(places.spool()).corrupt();
    let folder = places.spool();
    let names: Vec<String> =
        corrupt.iter().map(|file| file.strip_prefix(&folder).unwrap_or(file).display().to_string()).collect();
    let (what, file) = match names.len() {
        0 => return None,
        1 => ("a stored session".to_owned(), "file"),
        count => (counted(count as u64, "stored session"), "files"),
    };
    let message = format!("{what} in {} cannot be read: {}", folder.display(), names.join(", "));
    let fix = format!(
        "`nugget sync --since 7d` finds what they announced by the transcripts; then delete the {file}"
    );
    // Each file is named, however many there are.
    Some(Check { message, ..Check::warning("spool", "") }.fix(fix))
}

/// A queue that no attempt can read any more.
fn damaged_queue(path: &Path, error: &queue::Error) -> Check {
    let message = format!(
        "{} is damaged: {}; captures that were not pushed yet are lost with it, and once it is moved away, `nugget sync \
         --since 7d` reads their sessions again",
        path.display(),
        knowledge::text::error_chain(error)
    );
    let folder = path.parent().unwrap_or(path).display();
    Check::failure("queue", message)
        .fix(format!("mkdir -p '{folder}/damaged' && mv '{folder}'/queue.db* '{folder}/damaged'"))
}

fn check_index(brain: &Brain, embed: &embed::Settings) -> Check {
    let name = "index";
    let folder = brain.derived_folder();
    if !folder.join("index.db").is_file() {
        return Check::warning(name, "not built yet; the first question builds it").fix("nugget index");
    }
    let check = || -> Result<Check, index::Error> {
        let index = index::Index::open(&folder)?;
        let snapshot = index.pin()?;
        let (generation, units) = (snapshot.generation(), snapshot.units_count());
        let state = format!("generation {generation}, {}", counted(units as u64, "unit"));
        let Some(label) = snapshot.model().cloned() else {
            return Ok(Check::warning(name, "it is empty").fix("nugget index"));
        };
        let unreadable = snapshot.problems()?.len() as u64;
        drop(snapshot);
        let wanted = embed::model_name(embed);
        if label.name != wanted {
            let message = format!("{state}, of {}; the settings name {wanted}", label.name);
            let fix = match settings::model_setting(embed) {
                Some(setting) => format!("nugget index; if that fails, correct the setting `{setting}`"),
                None => "nugget index".to_owned(),
            };
            return Ok(Check::warning(name, message).fix(fix));
        }
        let branch = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
        let queue = StatePaths::for_brain(brain.root()).queue();
        let view = BrainView::with_pending_notes(brain, branch.as_deref(), &queue);
        Ok(match index.is_current(&view, &label)? {
            true if unreadable > 0 => {
                Check::warning(name, format!("{state}; {} and cannot be found", output::no_units(unreadable)))
                    .fix("`nugget index` says what is wrong")
            }
            true => Check::ok(name, format!("{state}, up to date")),
            false => Check::warning(name, format!("{state}, behind the files; the next question updates it"))
                .fix("nugget index"),
        })
    };
    check().unwrap_or_else(|error| {
        Check::failure(name, error.to_string())
            .fix(format!("remove {}; the index is derived and built again", folder.display()))
    })
}

/// Whether units that bear on the project at hand still hold; nothing if none says where it bears or how long.
fn check_units(brain: &Brain) -> Option<Check> {
    let name = "units";
    let units = read_units(&BrainView::open(brain)).ok()?.units;
    let units = units.iter().map(|(_, unit)| unit);
    let units: Vec<_> = units.filter(|unit| !unit.scope.is_empty() || unit.stale_after.is_some()).collect();
    let folder = std::env::current_dir().ok()?;
    let checked = staleness::check(units.iter().copied(), &folder, Timestamp::now());
    let stale = checked.iter().flatten().count() as u64;
    match (units.len() as u64, stale) {
        (0, _) => None,
        (count, 0) => Some(Check::ok(
            name,
            format!("{} with a scope or an end, none stale here", counted(count, "unit")),
        )),
        (_, stale) => Some(
            Check::warning(name, format!("{} may no longer hold in this project", counted(stale, "unit")))
                .fix("`nugget list --stale` names them; `nugget edit ID` corrects one"),
        ),
    }
}

fn check_model(
    config: &Config,
    reader: Option<Destination>,
    is_handed_over: bool,
    unread: Option<(Timestamp, String)>,
) -> Check {
    let settings = settings::embedding(config);
    let runtime = format!("{}, model {}", embed::find_runtime(&settings).0, embed::model_name(&settings));
    let reads_nothing = reader.as_ref().is_some_and(|reader| reader.is_nothing) && !is_handed_over;
    let (reader, fix) = match reader {
        Some(Destination { text, fix, .. }) => (text, fix),
        None => (extractor::destination(config), None),
    };
    let mut reader = format!("sessions are read by {reader}");
    if is_handed_over {
        // The rules of this machine are not asked then.
        reader = "sessions are read by the team's server, after they were redacted here".to_owned();
    }
    match embed::check_settings(&settings) {
        Ok(()) => match unread.filter(|_| !is_handed_over) {
            _ if reads_nothing => Check { fix, ..Check::failure("model", format!("{runtime}; {reader}")) },
            _ if let Some((problem, fix)) = extractor::key_problem(config) => {
                Check::warning("model", format!("{runtime}; {problem}; {reader}")).fix(fix)
            }
            None => Check::ok("model", format!("{runtime}; {reader}")),
            Some((at, why)) => {
                let age = output::age(at, Timestamp::now());
                let last = format!("{runtime}; {reader}; the last one, {age} ago: {}", output::safe(&why));
                Check::warning("model", last)
                    .fix("put right what it names; this goes with the next session that a model reads")
            }
        },
        Err(error) => Check::failure("model", error.to_string()).fix("`nugget config` shows the settings"),
    }
}

/// The team's server that captures are handed to.
fn check_server(login: &Login, root: &Path, offline: bool) -> Check {
    let name = "server";
    let told = format!(
        "captures are handed over to {}, brain {}",
        output::safe(&login.url),
        output::safe(&login.brain)
    );
    if offline {
        return Check::ok(name, format!("{told}; not asked"));
    }
    let asked = login.client().map_err(|error| error.to_string()).and_then(|client| {
        let runtime = async_runtime::current_thread().map_err(|error| error.to_string())?;
        runtime.block_on(client.whoami()).map_err(|error| error.to_string())
    });
    match asked {
        Err(why) => Check::failure(name, format!("{told}: {why}; captures wait here until then"))
            .fix("if it is down, nothing; if it refuses the token, `nugget login`"),
        Ok(whoami) if !whoami.brains.contains(&login.brain) => {
            Check::failure(name, format!("{told}: the token does not have that brain any more"))
                .fix(team_client::ANOTHER_TOKEN)
        }
        Ok(whoami) if !whoami.scopes.iter().any(|scope| scope == "capture") => {
            Check::failure(name, format!("{told}: the token lacks the scope capture"))
                .fix("nugget login with another token")
        }
        Ok(whoami) => {
            let until =
                whoami.last_day().map(|day| format!(", until {}", output::safe(day))).unwrap_or_default();
            let told = format!("{told}, as {}{until}", output::safe(&whoami.subject));
            let login = Login { expires: whoami.expires(), ..login.clone() };
            if login.expires_soon(Timestamp::now()).is_some() {
                return Check::warning(name, format!("{told}: the token ends soon"))
                    .fix("ask an administrator for another one, and give it to `nugget login`");
            }
            let theirs = whoami.repositories.iter().find(|theirs| theirs.brain == login.brain);
            let remote =
                git::Repository::open(root).and_then(|repository| repository.remote()).ok().flatten();
            let advice = theirs.zip(remote).and_then(|(theirs, remote)| {
                super::login::other_address(&remote, theirs, &output::short_path(root))
            });
            Check::ok(name, advice.map_or_else(|| told.clone(), |advice| format!("{told}; {advice}")))
        }
    }
}

/// The free space where captures are stored and where units are written.
fn check_disk(places: &StatePaths, root: &Path) -> Check {
    let name = "disk";
    // To free space on a read-only one helps nothing, and the check of the state names it.
    let folders = state_check::folders(root, places)
        .filter(|folder| !system::file::is_read_only(folder).is_ok_and(|is_read_only| is_read_only));
    let free = |folder: &Path| match system::file::free_bytes(folder) {
        Ok(free) => Ok((free, folder.to_owned())),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    };
    let least = folders.map(free).collect::<Result<Vec<_>, _>>();
    let (free, folder) = match least.map(|all| all.into_iter().min()) {
        Ok(Some(least)) => least,
        Ok(None) => return Check::warning(name, "there is no folder that can be written"),
        Err(error) => return Check::warning(name, error),
    };
    let message = format!("{} free for {}", size(free), folder.display());
    match free {
        _ if free < FREE_BYTES_MIN => Check::failure(name, message).fix("free some space: captures need it"),
        _ if free < 10 * FREE_BYTES_MIN => Check::warning(name, message).fix("free some space soon"),
        _ => Check::ok(name, format!("{} free", size(free))),
    }
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ 0..=9999 => format!("{mib} MiB"),
        mib => format!("{} GiB", mib >> 10),
    }
}

fn check_clock(answers: Option<&ApiAnswers>) -> Check {
    let name = "clock";
    match answers.and_then(|answers| answers.skew_seconds) {
        None => Check::ok(name, "not checked"),
        Some(skew) if skew.unsigned_abs() <= SKEW_MAX_SECONDS => Check::ok(name, "same as GitHub's"),
        Some(skew) => {
            let direction = if skew > 0 { "behind" } else { "ahead of" };
            Check::warning(name, format!("{} s {direction} GitHub's", skew.unsigned_abs()))
                .fix("set the clock, or turn NTP on")
        }
    }
}

fn check_versions(client: Option<String>, schemas: &[(&str, &Path)]) -> Check {
    let name = "versions";
    let own = env!("CARGO_PKG_VERSION");
    let client = client.map_or_else(
        || "no Claude Code on the PATH".to_owned(),
        // It prints its version, then its name.
        |output| format!("Claude Code {}", output.trim_end_matches("(Claude Code)").trim_end()),
    );
    let mut message = format!("nugget {own}, {client}");
    for (name, path) in schemas {
        if let Some(version) = schema_of(path) {
            message.push_str(&format!(", {name} schema {version}"));
        }
    }
    let here = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let on_path = find_on_path("nugget").and_then(|program| std::fs::canonicalize(program).ok());
    let programs = ClientSettings::read(&std::env::current_dir().unwrap_or_default()).programs();
    match (here, on_path) {
        (Some(here), Some(other))
            if here != other && std::fs::read(&here).ok() != std::fs::read(&other).ok() =>
        {
            Check::warning(
                name,
                format!("{message}; the nugget on the PATH is another one: {}", other.display()),
            )
            .fix("hooks may run that one: update it or remove it")
        }
        (_, None) if programs.is_empty() || programs.iter().any(|(_, is_there)| !is_there) => {
            Check::warning(name, format!("{message}; no nugget on the PATH"))
                .fix("put it there: Claude Code runs it by name")
        }
        _ => Check::ok(name, message),
    }
}

/// The schema version in a database's header (SQLite's file format, 1.3.14: `user_version`).
fn schema_of(path: &Path) -> Option<u32> {
    let mut header = [0; 64];
    std::io::Read::read_exact(&mut std::fs::File::open(path).ok()?, &mut header).ok()?;
    let version = u32::from_be_bytes(header[60..64].try_into().ok()?);
    (header.starts_with(b"SQLite format 3\0") && version > 0).then_some(version)
}
