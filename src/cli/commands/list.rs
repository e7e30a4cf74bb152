//! `nugget list`: lists the units of the brain.

use std::collections::BTreeSet;

use actors::BrainView;
use jiff::Timestamp;
use provenance::Staleness;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::staleness;
use crate::unit_files::{UnitFiles, check_type, has_tags, read_units, title_with_status};
use crate::{lookup, output, pager};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget list --domain coding\n  nugget list --type decision --tag retries --json\n  nugget list --stale"
)]
pub(crate) struct ListArgs {
    /// Only units of this domain
    #[arg(long, value_name = "D", add = clap_complete::ArgValueCompleter::new(completions::domains))]
    domain: Option<String>,
    /// Only units of this type: pattern, concept, decision, bug, belief, constraint, caveat or another
    #[arg(long = "type", value_name = "T", add = clap_complete::ArgValueCompleter::new(completions::types))]
    kind: Option<String>,
    /// Only units with this tag; repeated, with all of them
    #[arg(long = "tag", value_name = "TAG", add = clap_complete::ArgValueCompleter::new(completions::tags))]
    tags: Vec<String>,
    /// Only units that may no longer hold: a file of their `scope` in this project
    /// has changed, or their date is past
    #[arg(long)]
    stale: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, _) = context.open()?;
        let UnitFiles { mut units, problems, .. } = read_units(&BrainView::open(&brain))?;
        let all = units.len();
        if let Some(kind) = &self.kind {
            check_type(kind, units.iter().map(|(_, unit)| unit))?;
        }
        let domains: BTreeSet<&str> = units.iter().map(|(_, unit)| unit.domain.as_str()).collect();
        let domains: Vec<&str> = domains.into_iter().collect();
        if let Some(domain) = self.domain.as_deref().filter(|domain| all > 0 && !domains.contains(domain)) {
            return Err(lookup::unknown(format!("no unit has the domain {domain:?}"), domain, &domains));
        }
        units.retain(|(_, unit)| {
            self.domain.as_deref().is_none_or(|domain| unit.domain.as_str() == domain)
                && self.kind.as_deref().is_none_or(|kind| unit.kind.as_str() == kind)
                && has_tags(unit, &self.tags)
        });
        let folder = std::env::current_dir()?;
        let checked = staleness::check(units.iter().map(|(_, unit)| unit), &folder, Timestamp::now());
        let mut listed: Vec<(_, Option<Staleness>)> = units.into_iter().zip(checked).collect();
        if self.stale {
            listed.retain(|(_, stale)| stale.is_some());
        }
        if self.json {
            let listed: Vec<_> = listed
                .iter()
                .map(|((path, unit), stale)| {
                    json!({
                        "id": unit.id, "type": unit.kind, "domain": unit.domain, "title": unit.title,
                        "description": unit.description, "tags": unit.tags, "confidence": unit.confidence,
                        "source": unit.source, "status": unit.status, "created": unit.created,
                        "last_modified": unit.last_modified, "path": path, "stale": stale,
                    })
                })
                .collect();
            return output::print_json(&json!({ "units": listed, "problems": problems }));
        }
        if listed.is_empty() {
            output::print(&match all {
                0 => "the brain has no units yet: merge a branch that nugget proposed, or write one\n"
                    .to_owned(),
                all if self.stale => {
                    format!("none of the {} units is known to be stale here\n", output::thousands(all as u64))
                }
                all => format!("none of the {} units matches\n", output::thousands(all as u64)),
            })?;
        } else if self.stale {
            let rows = listed.iter().map(|((_, unit), stale)| {
                let why = stale.as_ref().map(Staleness::in_words).unwrap_or_default();
                let title = output::safe_title(&title_with_status(unit));
                [unit.id.as_str(), &why, &title].map(output::safe).to_vec()
            });
            pager::print(context, &output::table(&["ID", "WHY", "TITLE"], rows))?;
        } else {
            let rows = listed.iter().map(|((_, unit), _)| {
                let title = output::safe_title(&title_with_status(unit));
                [unit.id.as_str(), unit.kind.as_str(), unit.domain.as_str(), &title]
                    .map(output::safe)
                    .to_vec()
            });
            pager::print(context, &output::table(&["ID", "TYPE", "DOMAIN", "TITLE"], rows))?;
        }
        output::note_skipped(&problems);
        Ok(())
    }
}
