//! `nugget reflect`: proposes how to tidy up the brain.

use std::time::Duration;

use actors::reflection::{Pass, Reflection, look, propose};
use jiff::Timestamp;
use knowledge::Unit;
use serde_json::json;

use super::sync::parse_moment;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output::{self, counted, safe};
use crate::spawn::ensure_worker;
use crate::staleness;

const AFTER: &str = "\
Looks through the merged units for duplicates, contradictions, links to nothing,
what no session was told for 180 days, what has changed in this project's files,
and notes that sessions need often, and proposes all of it on one branch, with a
reason for each change. Nothing changes before you merge it with `nugget review`.
What was proposed once is not proposed again while its units stay the same.

`nugget config set reflect.schedule daily` does it once a day in the background.

Examples:
  nugget reflect --dry-run
  nugget reflect
  nugget reflect --since 30d";

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
        let found = found?;
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
                "files": found.changes.iter().map(|change| json!({
                    "path": change.path, "removed": change.text.is_none(), "reasons": change.reasons,
                })).collect::<Vec<_>>(),
                "branch": proposed.as_ref().map(|proposed| &proposed.branch),
                "commit": proposed.as_ref().map(|proposed| &proposed.commit),
            }));
        }
        output::print(&in_words(&found, proposed.map(|proposed| proposed.branch).as_deref(), self.dry_run))
    }
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
