//! `nugget server migrate|brain|token|status`.

use std::collections::HashSet;
use std::time::Duration;

use brain::Config;
use git::RemoteUrl;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use team::{BrainId, BrainRow, BrainStatus, LiveServer, NewBrain, NewToken, Scope, TeamStore, Token};
use team_service::CloneError;

use super::database::Database;
use crate::context::Context;
use crate::error::{CliError, MISSING, USAGE};
use crate::output::{self, counted, safe};
use crate::settings;
use crate::whole_number::whole_number;

/// A server that was not seen for so long is silent.
const LIVE_WITHIN: Duration = Duration::from_secs(60);
/// A silent one is shown for so long.
const SHOWN_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How many of them are shown as lines.
const SILENT_SHOWN_MAX: usize = 5;

/// Who does it, for the audit log: the person at this machine.
fn person() -> String {
    let name = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
    let host = String::from_utf8_lossy(&system::process::host_name()).into_owned();
    format!("{name}@{host}")
}

#[derive(clap::Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl MigrateArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let migrated = self.database.connect()?.migrate()?;
        if self.json {
            return output::print_json(
                &json!({ "migrated": true, "from": migrated.from, "to": migrated.to }),
            );
        }
        output::print(match migrated.from {
            0 => "created the tables\n",
            from if from < migrated.to => "brought the tables up to date\n",
            _ => "the tables are up to date\n",
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct BrainArgs {
    #[command(subcommand)]
    command: BrainCommand,
}

#[derive(clap::Subcommand)]
enum BrainCommand {
    /// Add a brain: a name, and its repository, which is cloned once to check it
    #[command(after_help = "Example:\n  nugget server brain add payments https://github.com/acme/brain.git")]
    Add(AddressArgs),
    /// Give a brain another address, which is cloned once to check it
    #[command(
        after_help = "Servers make their clones again; captures that wait go to the new address. On\neach laptop: git -C BRAIN remote set-url origin URL\n\nExample:\n  nugget server brain move payments https://git.acme.com/brain.git"
    )]
    Move {
        #[command(flatten)]
        to: AddressArgs,
        /// Also to a repository that lacks what the brain is answered from
        #[arg(long)]
        force: bool,
    },
    /// Remove a brain with its captures and its index; its repository is not touched
    #[command(
        after_help = "Tokens for it open nothing any more. Laptops keep what they have handed over\nfor 7 days.\n\nExamples:\n  nugget server brain rm payments\n  nugget server brain rm payments --force"
    )]
    Rm {
        /// The brain's name
        name: String,
        /// Also if captures wait, or branches are in review: they are lost to the server
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the brains
    List {
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Where a brain is.
#[derive(clap::Args)]
struct AddressArgs {
    /// The brain's name: letters, digits and hyphens
    name: String,
    /// The address of its repository
    remote: String,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BrainArgs {
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        match self.command {
            BrainCommand::Add(args) => add_brain(context, &args),
            BrainCommand::Move { to, force } => move_brain(context, &to, force),
            BrainCommand::Rm { name, force, database, json } => {
                remove_brain(&name, force, &database.connect_migrated()?, json)
            }
            BrainCommand::List { database, json } => list_brains(&database, json),
        }
    }
}

fn add_brain(context: &Context, args: &AddressArgs) -> Result<(), CliError> {
    let AddressArgs { name, remote, database, json: as_json } = args;
    if knowledge::name::slug(name) != *name {
        return Err(CliError::new(format!("{name:?} is no name for a brain")).code(USAGE).hint(format!(
            "use lower-case letters, digits and hyphens, such as {}",
            knowledge::name::slug(name)
        )));
    }
    let config = context.config()?;
    let store = database.connect_migrated()?;
    if store.brain_by_slug(name)?.is_some() {
        return Err(
            CliError::new(format!("there is a brain {name}")).hint("`nugget server brain list` shows all")
        );
    }
    check_is_free(&store, remote, None)?;
    let branch = check_remote(&config, remote, None)?;
    let embed = settings::embedding(&config);
    let dimensions = embed::known_dimensions(&embed)?.unwrap_or(team::GRAPH_DIMENSIONS);
    let id = store.create_brain(
        &NewBrain {
            slug: name,
            remote,
            default_branch: Some(&branch),
            model: &embed::model_name(&embed),
            dimensions: dimensions as u32,
        },
        &person(),
    )?;
    if *as_json {
        return output::print_json(&json!({ "id": id.0, "name": name }));
    }
    output::print(&format!(
        "added {name}; no token opens it yet, also none of an earlier brain of that name:\n  \
         nugget server token create WHO {name}\n"
    ))
}

/// Two brains of one repository would propose everything twice. A brain's own address is free for itself.
fn check_is_free(store: &TeamStore, remote: &str, its: Option<BrainId>) -> Result<(), CliError> {
    let parse = |remote: &str| {
        let mut parsed = RemoteUrl::parse(remote)?;
        // A folder of this machine has many paths.
        if let Some(path) = std::fs::canonicalize(&parsed.path).ok().filter(|_| parsed.host.is_empty()) {
            parsed.path = path.to_string_lossy().into_owned();
        }
        Some(parsed)
    };
    let parsed = parse(remote);
    let is_same = |other: &str| match (&parsed, parse(other)) {
        (Some(one), Some(other)) => one.is_same_repository(&other),
        _ => remote == other,
    };
    match store.brains()?.into_iter().find(|brain| Some(brain.id) != its && is_same(&brain.remote)) {
        Some(brain) => {
            let (shown, name) = (git::display_url(remote), &brain.slug);
            Err(CliError::new(format!("{shown} is the repository of the brain {name}"))
                .hint(format!("`nugget server token create WHO {name}` lets more people use it")))
        }
        None => Ok(()),
    }
}

/// The default branch of a repository that can be cloned and is a brain, the one that has the commit `served`.
fn check_remote(config: &Config, remote: &str, served: Option<&str>) -> Result<String, CliError> {
    let spinner = output::spinner("cloning");
    let branch = team_service::check_remote(remote, &config.string("github.api"), served);
    spinner.finish_and_clear();
    branch.map_err(|error| match error {
        CloneError::OtherHistory { .. } => CliError::from(error).hint(
            "captures would go to a repository that nobody of this brain has; `nugget server brain add` makes \
             another brain of it, --force moves all the same",
        ),
        error => error.into(),
    })
}

fn find_brain(store: &TeamStore, name: &str) -> Result<BrainRow, CliError> {
    store.brain_by_slug(name)?.ok_or_else(|| {
        CliError::new(format!("there is no brain {}", safe(name)))
            .code(MISSING)
            .hint("`nugget server brain list` shows all")
    })
}

fn move_brain(context: &Context, args: &AddressArgs, force: bool) -> Result<(), CliError> {
    let AddressArgs { name, remote, database, json } = args;
    let store = database.connect_migrated()?;
    let brain = find_brain(&store, name)?;
    check_is_free(&store, remote, Some(brain.id))?;
    let served = brain.served_commit.as_deref().filter(|_| !force);
    let branch = check_remote(&context.config()?, remote, served)?;
    store.set_brain_remote(brain.id, remote, &branch, &person())?;
    let shown = git::display_url(remote);
    match json {
        true => output::print_json(&json!({ "id": brain.id.0, "name": name, "remote": shown })),
        false => output::print(&format!(
            "{name} is at {shown} from now on; on each laptop:\n  git -C BRAIN remote set-url origin {shown}\n"
        )),
    }
}

fn remove_brain(name: &str, force: bool, store: &TeamStore, as_json: bool) -> Result<(), CliError> {
    let brain = find_brain(store, name)?;
    let status = store.brain_status(brain.id)?;
    let mut open = Vec::new();
    if status.waiting > 0 {
        open.push(format!("{} that wait to be worked on", counted(status.waiting, "capture")));
    }
    if status.in_review > 0 {
        let branches = counted(status.in_review, "branch");
        open.push(format!("{branches} in review, whose decisions nobody would record"));
    }
    if !open.is_empty() && !force {
        return Err(CliError::new(format!("{name} has {}", open.join(", and ")))
            .hint("wait until `nugget server status` shows none, or give --force"));
    }
    let tokens = store.tokens()?;
    let losing: Vec<&Token> = tokens
        .iter()
        .filter(|token| token_state(token) == "valid" && token.brains.iter().any(|(id, _)| *id == brain.id))
        .collect();
    store.delete_brain(brain.id, &person())?;
    if as_json {
        let ids: Vec<i32> = losing.iter().map(|token| token.id).collect();
        return output::print_json(&json!({ "removed": name, "tokens": ids }));
    }
    let mut text =
        format!("removed {name}; its repository {} is untouched\n", git::display_url(&brain.remote));
    if !losing.is_empty() {
        let tokens = losing.iter().map(|token| format!("{} ({})", token.id, safe(&token.subject)));
        let tokens = tokens.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("these tokens do not open it any more, nor a brain of its name: {tokens}\n"));
    }
    output::print(&text)
}

fn list_brains(database: &Database, as_json: bool) -> Result<(), CliError> {
    let brains = database.connect_migrated()?.brains()?;
    if as_json {
        let brains = brains.iter().map(|brain| {
            json!({
                "id": brain.id.0, "name": brain.slug, "remote": brain.remote, "generation": brain.generation,
                "commit": brain.served_commit,
            })
        });
        return output::print_json(&brains.collect::<Vec<_>>());
    }
    if brains.is_empty() {
        return output::print("no brain yet: `nugget server brain add NAME URL`\n");
    }
    let rows = brains.iter().map(|brain| {
        let index = match &brain.served_commit {
            Some(commit) => format!("{} at {}", brain.generation, &commit[..commit.len().min(8)]),
            None => "none yet".to_owned(),
        };
        vec![safe(&brain.slug), index, safe(&brain.remote)]
    });
    output::print(&output::table(&["NAME", "INDEX", "REPOSITORY"], rows))
}

#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Create a token and print it, once
    #[command(
        after_help = "The token is not stored: only its digest is.\n\nExamples:\n  nugget server token create ada payments\n  nugget server token create ci payments --scope capture --days 30"
    )]
    Create {
        /// Who it is for: a person or a machine
        subject: String,
        /// The brains that it may use
        #[arg(value_name = "BRAIN", required = true)]
        brains: Vec<String>,
        /// What it may do; repeat for more [default: read and capture]
        #[arg(long = "scope", value_name = "SCOPE", value_parser = ["read", "capture", "admin"])]
        scopes: Vec<String>,
        /// For how long
        #[arg(long, value_name = "N", default_value_t = 90, value_parser = whole_number(1_i64..=3650))]
        days: i64,
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    List {
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke tokens, at once
    #[command(
        after_help = "Examples:\n  nugget server token revoke 3 5\n  nugget server token revoke --of ada"
    )]
    Revoke {
        /// Their numbers, as `nugget server token list` shows them
        #[arg(value_name = "ID", required_unless_present = "of", conflicts_with = "of")]
        ids: Vec<i32>,
        /// All of this person or machine
        #[arg(long, value_name = "WHO")]
        of: Option<String>,
        #[command(flatten)]
        database: Database,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl TokenArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self.command {
            TokenCommand::Create { subject, brains, scopes, days, database, json } => {
                let store = database.connect_migrated()?;
                let expires = Timestamp::now() + SignedDuration::from_hours(24 * days);
                let (id, token) = create_token(&store, &subject, &brains, &scopes, expires)?;
                if json {
                    return output::print_json(&json!({ "id": id, "token": token, "expires": expires }));
                }
                // The token alone is on stdout, for a pipe.
                output::note(&format!(
                    "token {id} for {}, until {}; it is shown only now:",
                    clean_subject(&subject),
                    expires.strftime("%Y-%m-%d")
                ));
                output::print(&format!("{token}\n"))
            }
            TokenCommand::List { database, json } => list_tokens(&database.connect_migrated()?, json),
            TokenCommand::Revoke { ids, of, database, json } => {
                revoke_tokens(&database.connect_migrated()?, ids, of.as_deref(), json)
            }
        }
    }
}

/// Revokes tokens by their numbers, or all of a person. What can be revoked is, also if something else cannot.
fn revoke_tokens(
    store: &TeamStore,
    mut ids: Vec<i32>,
    of: Option<&str>,
    as_json: bool,
) -> Result<(), CliError> {
    let missing = |what: String| {
        CliError::new(format!("there is no token {what} that can be revoked"))
            .code(MISSING)
            .hint("`nugget server token list` shows all")
    };
    if let Some(of) = of {
        let (tokens, of) = (store.tokens()?, clean_subject(of));
        ids = tokens
            .iter()
            .filter(|token| clean_subject(&token.subject) == of && token.revoked.is_none())
            .map(|token| token.id)
            .collect();
        if ids.is_empty() {
            return Err(missing(format!("of {of}")));
        }
    }
    let mut named = HashSet::new();
    ids.retain(|id| named.insert(*id));
    let (mut revoked, mut failed) = (Vec::new(), Vec::new());
    for id in ids {
        match store.revoke_token(id, &person())? {
            true => revoked.push(id),
            false => failed.push(id),
        }
    }
    let listed = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
    if as_json {
        output::print_json(&json!({ "revoked": revoked, "missing": failed }))?;
    } else if !revoked.is_empty() {
        let tokens = if revoked.len() == 1 { "token" } else { "tokens" };
        output::print(&format!("revoked {tokens} {}\n", listed(&revoked)))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(missing(listed(&failed))) }
}

/// Whom a token is for, as the list shows it: two that look alike are one.
fn clean_subject(subject: &str) -> String {
    knowledge::text::one_line(subject, usize::MAX)
}

/// Whether a token can be used, in a word.
fn token_state(token: &Token) -> &'static str {
    match token.revoked {
        Some(_) => "revoked",
        None if token.expires < Timestamp::now() => "expired",
        // All of them were removed.
        None if token.brains.is_empty() => "no brain",
        None => "valid",
    }
}

pub(super) fn create_token(
    store: &TeamStore,
    subject: &str,
    brains: &[String],
    scopes: &[String],
    expires: Timestamp,
) -> Result<(i32, String), CliError> {
    let subject = &clean_subject(subject);
    if subject.is_empty() {
        return Err(CliError::new("the token is for nobody").code(USAGE).hint("name a person or a machine"));
    }
    let mut ids: Vec<BrainId> = Vec::new();
    for name in brains {
        ids.push(find_brain(store, name)?.id);
    }
    let scopes: Vec<Scope> = match scopes {
        [] => vec![Scope::Read, Scope::Capture],
        _ => {
            Scope::ALL.into_iter().filter(|scope| scopes.iter().any(|name| name == scope.as_str())).collect()
        }
    };
    Ok(store.create_token(&NewToken { subject, scopes: &scopes, brains: &ids, expires }, &person())?)
}

fn list_tokens(store: &TeamStore, as_json: bool) -> Result<(), CliError> {
    let tokens = store.tokens()?;
    if as_json {
        let tokens = tokens.iter().map(|token| {
            json!({
                "id": token.id, "subject": token.subject, "state": token_state(token),
                "created": token.created, "expires": token.expires, "revoked": token.revoked,
                "last_used": token.last_used,
                "brains": token.brains.iter().map(|(_, slug)| slug).collect::<Vec<_>>(),
                "scopes": token.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>(),
            })
        });
        return output::print_json(&tokens.collect::<Vec<_>>());
    }
    if tokens.is_empty() {
        return output::print("no token yet: `nugget server token create WHO BRAIN`\n");
    }
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let rows = tokens.iter().map(|token| {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let brains: Vec<&str> = token.brains.iter().map(|(_, slug)| slug.as_str()).collect();
        vec![
            token.id.to_string(),
            safe(&token.subject),
            token_state(token).to_owned(),
            day(token.created),
            token.last_used.map_or_else(|| "never".to_owned(), |day| day.to_string()),
            day(token.expires),
            scopes.join(", "),
            safe(&brains.join(", ")),
        ]
    });
    output::print(&output::table(&["ID", "FOR", "STATE", "MADE", "USED", "UNTIL", "MAY", "BRAINS"], rows))
}

#[derive(clap::Args)]
pub(crate) struct ServerStatusArgs {
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ServerStatusArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let store = self.database.connect_migrated()?;
        let (servers, ages, brains) =
            (store.live_servers(SHOWN_WITHIN)?, store.queue_ages()?, store.brains()?);
        let (silent, live): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_silent);
        let mut by_brain = Vec::new();
        for brain in brains {
            let status = store.brain_status(brain.id)?;
            by_brain.push((brain.slug, status));
        }
        let failed: u64 = by_brain.iter().map(|(_, status)| status.failed).sum();
        let now = Timestamp::now();
        if self.json {
            return output::print_json(&json!({
                "servers": live.iter().map(server_json).collect::<Vec<_>>(),
                "silent_servers": silent.iter().map(server_json).collect::<Vec<_>>(),
                "stages": ages.iter().map(|age| json!({
                    "stage": age.stage, "waiting": age.waiting, "running": age.running,
                    "oldest_seconds": age.oldest.as_secs(),
                })).collect::<Vec<_>>(),
                "brains": by_brain.iter().map(|(slug, status)| json!({
                    "brain": slug, "waiting": status.waiting, "waiting_since": status.waiting_since,
                    "failed": status.failed,
                    "failures": status.failures.iter().map(|failure| json!({
                        "capture": failure.id, "session": failure.session_id.as_str(),
                        "stage": failure.stage, "reason": failure.reason,
                    })).collect::<Vec<_>>(),
                    "in_review": status.in_review,
                    "pull_requests": status.pull_requests, "units_in_review": status.units_in_review,
                    "in_review_since": status.in_review_since,
                    "paused": status.paused.iter().map(|(stage, why)| json!({ "stage": stage, "why": why }))
                        .collect::<Vec<_>>(),
                })).collect::<Vec<_>>(),
                "failed": failed,
            }));
        }
        let mut text = format!(
            "{}, {}\n",
            counted(live.len() as u64, "server"),
            counted(by_brain.len() as u64, "brain")
        );
        for server in &live {
            let ending = if server.draining { ", ending" } else { "" };
            text.push_str(&format!(
                "  {} {} since {}{ending}\n",
                safe(&server.host),
                safe(&server.version),
                server.since.strftime("%Y-%m-%d %H:%M:%SZ")
            ));
        }
        for server in silent.iter().rev().take(SILENT_SHOWN_MAX) {
            text.push_str(&format!(
                "  {} {} silent for {}: it was ended without SIGTERM, or cannot reach the database\n",
                safe(&server.host),
                safe(&server.version),
                output::age(server.seen, now)
            ));
        }
        let busy: Vec<_> = ages.iter().filter(|age| age.waiting + age.running > 0).collect();
        if failed > 0 {
            let failed = counted(failed, "capture");
            text.push_str(&format!("{failed} failed for good: nugget server retry\n"));
        }
        if busy.is_empty() {
            text.push_str("no capture waits\n");
        }
        for age in busy {
            text.push_str(&format!(
                "  {:<10} {} waiting, {} running, the oldest for {} s\n",
                age.stage.as_str(),
                age.waiting,
                age.running,
                age.oldest.as_secs()
            ));
        }
        for (slug, status) in &by_brain {
            text.push_str(&brain_lines(slug, status, now));
        }
        output::print(&text)
    }
}

/// Whether a server has not been seen for longer than it may.
fn is_silent(server: &LiveServer) -> bool {
    Timestamp::now().duration_since(server.seen).unsigned_abs() > LIVE_WITHIN
}

fn server_json(server: &LiveServer) -> Value {
    json!({
        "id": server.id.0, "host": server.host, "version": server.version, "since": server.since,
        "seen": server.seen, "ending": server.draining,
    })
}

/// What is to be known about a brain; nothing if nothing waits there.
fn brain_lines(slug: &str, status: &BrainStatus, now: Timestamp) -> String {
    let since = |since: Option<Timestamp>| since.map_or_else(String::new, |since| output::age(since, now));
    let mut parts = Vec::new();
    if status.waiting > 0 {
        parts.push(format!("{} waiting, the oldest for {}", status.waiting, since(status.waiting_since)));
    }
    if status.failed > 0 {
        parts.push(format!("{} failed", status.failed));
    }
    if status.in_review > 0 {
        let units = counted(status.units_in_review, "unit");
        let pulls = match status.pull_requests {
            0 => counted(status.in_review, "branch"),
            pulls => counted(pulls, "pull request"),
        };
        parts.push(format!("{units} in {pulls} to review, the oldest for {}", since(status.in_review_since)));
    }
    let mut lines: String = parts.iter().map(|part| format!("    {part}\n")).collect();
    for failure in &status.failures {
        let reason = failure.reason.as_deref().unwrap_or("no reason is known");
        lines.push_str(&format!(
            "    capture {} failed, session {}, {}: {}\n",
            failure.id,
            safe(&failure.session_id.short()),
            failure.stage,
            output::one_row(&safe(reason))
        ));
    }
    for (stage, why) in &status.paused {
        lines.push_str(&format!("    {} waits: {}\n", safe(stage), safe(why)));
    }
    if lines.is_empty() { lines } else { format!("  {}\n{lines}", safe(slug)) }
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  nugget server retry\n  nugget server retry 112")]
pub(crate) struct ServerRetryArgs {
    /// The capture's number, as `nugget server status` shows it [default: all]
    #[arg(value_name = "CAPTURE")]
    capture: Option<i64>,
    #[command(flatten)]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ServerRetryArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        let store = self.database.connect_migrated()?;
        let mut queued = 0;
        let mut is_known = self.capture.is_none();
        for brain in store.brains()? {
            match store.retry(brain.id, self.capture) {
                Ok(count) => (queued, is_known) = (queued + count, true),
                // Another brain's.
                Err(team::Error::Ledger(queue::Error::Unknown { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(capture) = self.capture.filter(|_| !is_known) {
            return Err(CliError::new(format!("there is no capture {capture}"))
                .code(MISSING)
                .hint("`nugget server status` shows those that failed"));
        }
        if self.json {
            return output::print_json(&json!({ "queued": queued }));
        }
        output::print(&match queued {
            0 if let Some(capture) = self.capture => format!("capture {capture} has not failed\n"),
            0 => "no capture has failed; captures that wait for a retry are tried now\n".to_owned(),
            count => format!("queued {} again\n", counted(count as u64, "capture")),
        })
    }
}
