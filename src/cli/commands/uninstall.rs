//! `nugget uninstall`: Claude Code is as it was.

use std::process::ExitCode;

use serde_json::json;

use super::install::short;
use crate::context::Context;
use crate::error::CliError;
use crate::integration::{Scope, Site};
use crate::output;

const AFTER: &str = "\
A file that nobody has changed since gets the very bytes back that it had. From
one that was changed nugget's entries go, and all else stays. Your brain, its
queue and nugget's own settings are not touched: delete those folders yourself
(~/brain, ~/.local/state/nugget and ~/.config/nugget, unless set otherwise).

Examples:
  nugget uninstall
  nugget uninstall --scope project --dry-run";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Whose sessions
    #[arg(long, value_enum, default_value = "user")]
    scope: Scope,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, _: &Context) -> Result<ExitCode, CliError> {
        let site = Site::of(self.scope, &std::env::current_dir()?)?;
        let (changes, plugin) = site.restore()?;
        let is_there = !changes.is_empty() || plugin.is_some();
        if !self.dry_run {
            site.take_out(&changes, plugin.as_deref())?;
        }
        if self.json {
            let files: Vec<_> = changes
                .iter()
                .map(|change| json!({ "path": change.path, "entries": change.told() }))
                .collect();
            output::print_json(&json!({
                "changed": is_there && !self.dry_run, "would_change": is_there, "plugin": plugin, "files": files,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = match (is_there, self.dry_run) {
            (false, _) => "nugget is not installed; nothing was changed\n".to_owned(),
            (true, true) => "this would be taken out, and was not:\n".to_owned(),
            (true, false) => "taken out:\n".to_owned(),
        };
        if let Some(folder) = &plugin {
            text.push_str(&format!("  {}: the plugin\n", short(folder)));
        }
        for change in &changes {
            text.push_str(&format!("  {}\n", short(&change.path)));
            for line in change.told() {
                text.push_str(&format!("    - {line}\n"));
            }
        }
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
