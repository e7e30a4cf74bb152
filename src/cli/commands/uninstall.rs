//! `nugget uninstall`: removes nugget from Claude Code.

use std::path::Path;

use serde_json::json;

use crate::client_settings::ClientSettings;
use crate::context::Context;
use crate::error::CliError;
use crate::integration::{Change, ClientFiles, Removal, Scope};
use crate::output::{self, short_path};

const AFTER: &str = "\
A file that has not changed since the installation is restored byte for byte.
From a file that has changed only nugget's entries are removed; a file of the
plugin that you have edited is kept and named. Your brain, its queue and
nugget's own settings are kept: to delete them, remove the folders ~/brain and
nugget in ~/.local/state, ~/.local/share, ~/.cache and ~/.config (unless set
otherwise).

Examples:
  nugget uninstall
  nugget uninstall --scope project --dry-run";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct UninstallArgs {
    /// Which sessions to remove it from
    #[arg(long, value_enum, default_value = "user")]
    scope: Scope,
    /// Print what would be changed; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl UninstallArgs {
    pub(crate) fn run(self, _: &Context) -> Result<(), CliError> {
        let here = std::env::current_dir()?;
        let files = ClientFiles::find(self.scope, &here)?;
        let removal = files.plan_removal()?;
        let Removal { changes, plugin, kept, .. } = &removal;
        let is_installed = !changes.is_empty() || plugin.is_some();
        if !self.dry_run {
            files.remove(&removal)?;
        }
        if self.json {
            let listed: Vec<_> = changes.iter().map(Change::to_json).collect();
            let kept: Vec<_> =
                kept.iter().map(|(path, what)| json!({ "path": path, "entry": what })).collect();
            return output::print_json(&json!({
                "changed": is_installed && !self.dry_run, "would_change": is_installed, "plugin": plugin, "files": listed,
                "kept": kept,
            }));
        }
        let mut text = match (is_installed, self.dry_run) {
            (false, _) if self.is_in_project(&here) => {
                "nugget is not installed for all your sessions; nothing was changed\n\
                 in this project it is: nugget uninstall --scope project\n"
                    .to_owned()
            }
            (false, _) if !kept.is_empty() => "nothing was changed\n".to_owned(),
            (false, _) => "nugget is not installed; nothing was changed\n".to_owned(),
            (true, true) => "dry run; would remove:\n".to_owned(),
            (true, false) => "removed:\n".to_owned(),
        };
        if let Some(folder) = plugin {
            text.push_str(&format!("  {}: the plugin\n", short_path(folder)));
        }
        text.extend(changes.iter().map(|change| change.describe('-')));
        for (path, what) in kept {
            text.push_str(&format!(
                "kept, as it is not as nugget wrote it: {what}\n  in {}; remove it there\n",
                short_path(path)
            ));
        }
        // The client's own commands manage what it has from a marketplace.
        if let Some(plugin) = ClientSettings::read(&here).users_marketplace_plugin() {
            text.push_str(&format!(
                "kept: the plugin {plugin}; `claude plugin uninstall {plugin}` removes it\n"
            ));
        }
        output::print(&text)
    }

    /// Whether it is installed in this project, though not in what was named.
    fn is_in_project(&self, here: &Path) -> bool {
        let removal = || ClientFiles::find(Scope::Project, here)?.plan_removal();
        self.scope == Scope::User && removal().is_ok_and(|removal| !removal.changes.is_empty())
    }
}
