//! `nugget install`: adds nugget to Claude Code.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client_settings::ClientSettings;
use crate::context::{Context, open_brain};
use crate::error::{CliError, USAGE};
use crate::integration::{
    Change, ClientFiles, Method, Plan, Program, Scope, calls_nugget, find_on_path, invalid_file, of_plugin,
};
use crate::output::{self, short_path};
use crate::subprocess::version_of;
use crate::{extractor, json_edit, new_brain, plugin};

/// How long the client may take to print its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

const AFTER: &str = "\
Claude Code 2.1.197 and later loads plugins from its skills folder: for your
user this writes the plugin to ~/.claude/skills/nugget, and the permission for
its one tool to ~/.claude/settings.json. Where Claude Code has the plugin from a
marketplace (`/plugin install nugget --marketplace OWNER/NAME`), it adds only
the permission, and removes a copy that it wrote before. For an older version,
and for a project, it adds hooks and permission to settings.json, and the server
to ~/.claude.json or .mcp.json; those of a project find nugget on the PATH of
each developer. CLAUDE_CONFIG_DIR is respected. Claude Code is only asked for
its version.

Everything else in those files is kept byte for byte. A file that is not valid
JSON is not changed, and the error's position is printed; a file of the plugin
that you have edited is kept and named. `nugget uninstall` restores each file. A
second run changes nothing.

Examples:
  nugget install
  nugget install --dry-run
  nugget install --scope project";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct InstallArgs {
    /// Which sessions to add it to
    #[arg(long, value_enum, default_value = "user")]
    scope: Scope,
    /// A plugin, entries in the settings, or (auto) what the client supports
    #[arg(long = "as", value_name = "METHOD", default_value = "auto", value_parser = ["auto", "plugin", "settings"])]
    method: String,
    /// Print what would be changed; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl InstallArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        let here = std::env::current_dir()?;
        let client_files = ClientFiles::find(self.scope, &here)?;
        let client_settings = ClientSettings::read(&here);
        let marketplace = client_settings.users_marketplace_plugin();
        let client = || config.path("extract.claude").or_else(|| find_on_path("claude"));
        let is_plugin_supported = || match client().as_deref().and_then(client_version) {
            Some(version) => Ok(version >= plugin::CLIENT_MIN),
            // The client may be on no PATH of this shell: what was used before stays.
            None => client_files.has_used_plugin(),
        };
        let method = match (self.method.as_str(), self.scope, marketplace) {
            ("plugin", Scope::Project, _) => {
                return Err(CliError::new(
                    "a project needs entries in its settings; a plugin is only for your user",
                )
                .code(USAGE)
                .hint("omit --as, or use --scope user"));
            }
            ("settings", Scope::User, Some(name)) => {
                return Err(CliError::new(format!(
                    "Claude Code has the plugin {name}: with entries in the settings each hook would run twice"
                ))
                .code(USAGE)
                .hint(format!("omit --as, or run `claude plugin uninstall {name}` first")));
            }
            (_, Scope::User, Some(_)) => Method::Marketplace,
            ("plugin", ..) => Method::Plugin,
            ("auto", Scope::User, None) if is_plugin_supported()? => Method::Plugin,
            _ => Method::Settings,
        };
        let here = Program::here()?;
        let is_on_path = matches!(here, Program::Named);
        let program = client_files.calls(here);
        let plan = client_files.plan(method, &program)?;
        let mut notes = find_conflicts(&client_files, &client_settings, method, &plan)?;
        let folder = short_path(&client_files.plugin());
        if self.scope == Scope::Project && !is_on_path {
            notes.push(
                "this nugget is not the one on your PATH, by which the project's files call it: sessions there run none, or \
                 another, until it is"
                    .to_owned(),
            );
        }
        notes.extend(plan.kept.iter().map(|file| {
            let file = of_plugin(file);
            format!(
                "kept, as it is not as nugget wrote it: {file} in {folder}; remove it there and install again for \
                 nugget's"
            )
        }));
        if !self.dry_run && plan.is_new {
            client_files.apply(&plan)?;
        }
        if self.json {
            let files: Vec<Value> = plan.changes.iter().map(Change::to_json).collect();
            return output::print_json(&json!({
                "how": method, "changed": plan.is_new && !self.dry_run, "would_change": plan.is_new,
                "program": program.word(), "plugin": plan.plugin.as_ref().map(|(folder, _)| folder),
                "marketplace_plugin": marketplace.filter(|_| method == Method::Marketplace),
                "removed": plan.removed, "files": files, "notes": notes,
                "sessions_are_read_by": extractor::destination(&config),
            }));
        }
        let verb = match (plan.is_new, self.dry_run) {
            (false, _) => "nugget is already installed; nothing was changed",
            (true, true) => "dry run; would change:",
            (true, false) => "installed:",
        };
        let plugin_line = match marketplace {
            Some(name) if method == Method::Marketplace => {
                format!("  {name}: the plugin, from its marketplace\n")
            }
            _ => String::new(),
        };
        output::print(&format!("{verb}\n{plugin_line}{}", describe(&plan)))?;
        for note in &notes {
            output::note(&format!("note: {note}"));
        }
        if !self.dry_run {
            let next = match open_brain(&context.root(&config)) {
                Ok(_) => new_brain::NEXT_SESSION,
                Err(_) => "next: `nugget init` creates your brain\n",
            };
            output::print(&format!("{}{next}", extractor::describe_for_setup(&config)))?;
        }
        Ok(())
    }
}

fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some((folder, files)) = &plan.plugin {
        text.push_str(&format!("  {}: the plugin, {} files\n", short_path(folder), files.len()));
    }
    if let Some(folder) = &plan.removed {
        text.push_str(&format!("  {}: removed, so that nugget is there once\n", short_path(folder)));
    }
    for change in &plan.changes {
        match change.added.is_empty() {
            false => text.push_str(&change.describe('+')),
            true if change.is_needed() => {
                text.push_str(&format!("  {}: nugget's entries removed\n", short_path(&change.path)));
            }
            true => {}
        }
    }
    text
}

/// Settings that keep nugget from working, or make it run twice.
fn find_conflicts(
    client_files: &ClientFiles,
    client_settings: &ClientSettings,
    method: Method,
    plan: &Plan,
) -> Result<Vec<String>, CliError> {
    let mut notes = Vec::new();
    // What is added for a user and for a project runs twice there.
    let by_plugin = client_settings.users_marketplace_plugin().map(str::to_owned);
    let by_plugin = by_plugin.or_else(|| client_settings.copy().map(|copy| short_path(&copy)));
    if client_files.scope == Scope::Project
        && let Some(plugin) = by_plugin
    {
        notes
            .push(format!("your own sessions in this project run each hook twice: {plugin} does it already"));
    }
    // As it will be: entries of an earlier installation are gone then.
    let planned = plan.changes.iter().find(|change| change.path == client_files.settings);
    let text = match planned {
        Some(change) => change.after().to_owned(),
        None => std::fs::read_to_string(&client_files.settings).unwrap_or_default(),
    };
    if text.trim().is_empty() {
        return Ok(notes);
    }
    let settings = json_edit::value(&text).map_err(|error| invalid_file(&client_files.settings, &error))?;
    let shown = short_path(&client_files.settings);
    if settings["disableAllHooks"] == true {
        notes.push(format!("{shown} has disableAllHooks: no session is captured while it is set"));
    }
    if method == Method::Plugin && settings["enabledPlugins"][plugin::ID] == false {
        notes.push(format!("{shown} disables the plugin: run `claude plugin enable {}`", plugin::ID));
    }
    let tool = if method == Method::Settings { plugin::SERVER_TOOL } else { plugin::TOOL };
    let denied = settings["permissions"]["deny"].as_array().into_iter().flatten();
    for rule in denied.filter_map(Value::as_str) {
        if rule == tool || rule == "mcp__*" || rule == tool.trim_end_matches("__get_relevant_context") {
            notes.push(format!("{shown} denies {rule}: sessions cannot use the tool"));
        }
    }
    // Those of an earlier installation are removed.
    let is_removed =
        plan.changes.iter().any(|change| change.path != client_files.settings && change.is_needed());
    if method != Method::Settings && client_settings.has_server() && !is_removed {
        notes.push(
            "the server is there twice in every session, by the plugin and as you have added it: `claude mcp remove \
             nugget` removes yours"
                .to_owned(),
        );
    }
    let hooks = settings["hooks"]["SessionEnd"].to_string();
    if method != Method::Settings && calls_nugget(&hooks.replace('"', " ")) {
        notes.push(format!("{shown} has your own hook for nugget, and so has the plugin"));
    }
    Ok(notes)
}

/// The client's version.
fn client_version(client: &Path) -> Option<[u32; 3]> {
    let output = version_of(client, VERSION_DEADLINE)?;
    // A version may end in more, such as `-beta.1`.
    let version = output.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}
