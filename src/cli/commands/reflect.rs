//! `nugget reflect`: proposes how to tidy up the brain.

use std::time::Duration;

use actors::reflection::{Pass, Reflection, look, propose};
use brain::{Config, StatePaths};
use jiff::Timestamp;
use knowledge::Unit;
use serde_json::json;
use transcript::redact::redact;

use super::sync::parse_moment;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output::{self, counted, safe};
use crate::spawn::ensure_worker;
use crate::{async_runtime, extractor, staleness};

const AFTER: &str = "\
Looks through the merged units for duplicates, contradictions, links to nothing,
what no session was told for 180 days, what has changed in this project's files,
and notes that sessions need often, and proposes all of it on one branch, with a
reason for each change. `nugget review` shows and merges it; nothing changes
before. What was proposed once is not proposed again while its units stay the
same. Where the server of a language model reads sessions (`extract.backend`),
it is sent up to five long units that sessions need often, redacted, to shorten
them; a text that lost a number, a name or code is not taken.

`nugget config set reflect.schedule daily` does it once a day in the background.

Examples:
  nugget reflect --dry-run
  nugget reflect
  nugget reflect --since 30d";

/// What the model is told that rewrites units.
const SYSTEM: &str = "You edit short technical notes. You keep every fact and add none.";
const REWRITE_TOKENS_MAX: u32 = 2_000;
/// The most units that one pass has rewritten.
const REWRITES_MAX: usize = 5;

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ReflectArgs {
    /// Show what would be proposed; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Only about units that were changed or shown since then: 30d, 2w, 2026-11-01
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReflectArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, paths) = context.open()?;
        let setup = context.setup(&config, &brain)?;
        let now = Timestamp::now();
        let since = self.since.as_deref().map(|text| moment(text, now)).transpose()?;
        let folder = std::env::current_dir()?;
        let stale = |units: &[&Unit]| {
            let checked = staleness::check(units.iter().copied(), &folder, now);
            checked.into_iter().map(|stale| stale.map(|stale| stale.in_words())).collect()
        };
        let bar = output::progress_bar("reading units", 0);
        bar.enable_steady_tick(Duration::from_millis(200));
        let progress = |done: usize, of: usize| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        };
        let pass = Pass { since, stale: &stale, progress: &progress, is_cancelled: &|| false };
        let found = look(&setup, &pass, now);
        bar.finish_and_clear();
        let mut found = found?;
        let sent = if self.dry_run { None } else { rewrite(&config, &paths, &mut found, now)? };
        let proposed = if self.dry_run { None } else { propose(&setup, &found, now)? };
        if proposed.as_ref().is_some_and(|proposed| proposed.is_delivered) {
            ensure_worker(&paths, &brain)?;
        }
        if self.json {
            let findings: Vec<_> = found
                .findings
                .iter()
                .map(|finding| {
                    json!({
                        "kind": finding.kind.as_str(), "units": finding.change.units(), "reason": finding.reason,
                        "key": finding.key(),
                    })
                })
                .collect();
            return output::print_json(&json!({
                "dry_run": self.dry_run,
                "units": found.units,
                "findings": findings,
                "left_out": found.left_out,
                "sent": sent,
                "files": found.changes.iter().map(|change| json!({
                    "path": change.path, "removed": change.text.is_none(), "reasons": change.reasons,
                })).collect::<Vec<_>>(),
                "branch": proposed.as_ref().map(|proposed| &proposed.branch),
                "commit": proposed.as_ref().map(|proposed| &proposed.commit),
            }));
        }
        let mut text = in_words(&found, proposed.map(|proposed| proposed.branch).as_deref(), self.dry_run);
        if let Some(Sent { to, units }) = sent {
            let (count, units) = (counted(units.len() as u64, "unit"), units.join(", "));
            text.push_str(&format!(
                "sent to {}: the text of {count}, redacted ({})\n",
                safe(&to),
                safe(&units)
            ));
        }
        output::print(&text)
    }
}

/// The units whose texts a model was asked to shorten.
#[derive(serde::Serialize)]
struct Sent {
    to: String,
    units: Vec<String>,
}

/// Asks the language model that reads sessions, where there is one, for shorter texts of long units that sessions need
/// often, and returns what it was sent.
fn rewrite(
    config: &Config,
    paths: &StatePaths,
    found: &mut Reflection,
    now: Timestamp,
) -> Result<Option<Sent>, CliError> {
    let requests = found.rewrite_requests();
    let client = extractor::client_for_units(config)?;
    let (Some(client), false) = (client, requests.is_empty()) else { return Ok(None) };
    let mut sent = Sent { to: format!("{} at {}", client.model(), client.url()), units: Vec::new() };
    let bar = output::progress_bar("rewriting", requests.len().min(REWRITES_MAX));
    let budget = extractor::api_budget(config, paths);
    let answers = async_runtime::multi_thread()?.block_on(async {
        let mut answers = Vec::new();
        for (unit, request) in requests.into_iter().take(REWRITES_MAX) {
            let request = redact(&request).into_owned();
            let bytes = SYSTEM.len() + request.len();
            let reserved = match budget.reserve(&client, bytes, REWRITE_TOKENS_MAX).await {
                Ok(reserved) => reserved,
                Err(why) => {
                    answers.push((unit, Err(why)));
                    break;
                }
            };
            sent.units.push(unit.to_string());
            let answer = match client.ask(SYSTEM, &request, REWRITE_TOKENS_MAX).await {
                Ok(reply) => {
                    reserved.settle(client.model(), &reply.usage).await;
                    Ok(reply.text)
                }
                Err(error) => {
                    reserved.failed(&error).await;
                    Err(client.describe(&error))
                }
            };
            answers.push((unit, answer));
            bar.inc(1);
        }
        answers
    });
    bar.finish_and_clear();
    for (unit, answer) in answers {
        let done = answer.and_then(|answer| {
            found.accept_rewrite(&unit, &answer, client.model(), now).map_err(|error| error.to_string())
        });
        if let Err(why) = done {
            output::note(&format!("warning: {unit} was not rewritten: {}", safe(&why)));
        }
    }
    Ok((!sent.units.is_empty()).then_some(sent))
}

fn in_words(found: &Reflection, branch: Option<&str>, is_dry_run: bool) -> String {
    let units = counted(found.units as u64, "unit");
    if found.findings.is_empty() {
        return format!("nothing to tidy up in {units}\n");
    }
    let mut text = String::new();
    let mut kind = None;
    for finding in &found.findings {
        if kind != Some(finding.kind) {
            kind = Some(finding.kind);
            text.push_str(&format!("{}\n", finding.kind));
        }
        text.push_str(&format!("  - {}\n", safe(&finding.reason)));
    }
    if found.left_out > 0 {
        text.push_str(&format!("{} more come with the next pass\n", found.left_out));
    }
    let files = counted(found.changes.len() as u64, "file");
    text.push_str(&match (branch, is_dry_run) {
        (Some(branch), _) => {
            format!("\nproposed changes of {files} on branch {branch}\nreview: nugget review\n")
        }
        (None, true) => format!("\ndry run; would propose changes of {files} on one branch\n"),
        (None, false) => "\nnothing of it changes a file\n".to_owned(),
    });
    text
}

fn moment(text: &str, now: Timestamp) -> Result<Timestamp, CliError> {
    parse_moment(text, now).ok_or_else(|| {
        CliError::new(format!("{text:?} is not a time"))
            .code(USAGE)
            .hint("give an age as 30d or 2w, or a date")
    })
}
