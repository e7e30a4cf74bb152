//! `nugget install`: adds nugget to Claude Code.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::context::{Context, open_brain};
use crate::error::CliError;
use crate::integration::{
    Change, ClientFiles, Method, Plan, Program, Scope, calls_nugget, find_on_path, invalid_file,
};
use crate::output::{self, short_path};
use crate::subprocess::version_of;
use crate::{json_edit, plugin};

/// How long the client may take to print its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);

const AFTER: &str = "\
Claude Code 2.1.197 and later loads plugins from its skills folder: for your
user this writes the plugin to ~/.claude/skills/nugget, and the permission for
its one tool to ~/.claude/settings.json. For an older version, and for a
project, it adds hooks and permission to settings.json, and the server to
~/.claude.json or .mcp.json. CLAUDE_CONFIG_DIR is respected. Claude Code is only
asked for its version.

Everything else in those files is kept byte for byte. A file that is not valid
JSON is not changed, and the error's position is printed. `nugget uninstall`
restores each file. A second run changes nothing.

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
        let client_files = ClientFiles::find(self.scope, &std::env::current_dir()?)?;
        let client = config.path("extract.claude").or_else(|| find_on_path("claude"));
        let version = client.as_deref().and_then(client_version);
        let method = match (self.method.as_str(), self.scope) {
            ("plugin", Scope::Project) => {
                return Err(CliError::new(
                    "a project needs entries in its settings; a plugin is only for your user",
                )
                .code(crate::error::USAGE)
                .hint("omit --as, or use --scope user"));
            }
            ("plugin", _) => Method::Plugin,
            ("auto", Scope::User) if version.is_some_and(|version| version >= plugin::CLIENT_MIN) => {
                Method::Plugin
            }
            _ => Method::Settings,
        };
        let program = Program::here()?;
        let plan = client_files.plan(method, &program)?;
        let notes = find_conflicts(&client_files, method)?;
        if !self.dry_run && plan.is_new {
            client_files.apply(&plan)?;
        }
        if self.json {
            let files: Vec<Value> = plan.changes.iter().map(Change::to_json).collect();
            return output::print_json(&json!({
                "how": method, "changed": plan.is_new && !self.dry_run, "would_change": plan.is_new,
                "program": program.word(), "plugin": plan.plugin.as_ref().map(|(folder, _)| folder),
                "files": files, "notes": notes,
            }));
        }
        let verb = match (plan.is_new, self.dry_run) {
            (false, _) => "nugget is already installed; nothing was changed",
            (true, true) => "dry run; would change:",
            (true, false) => "installed:",
        };
        output::print(&format!("{verb}\n{}", describe(&plan)))?;
        for note in &notes {
            output::note(&format!("note: {note}"));
        }
        if plan.is_new && !self.dry_run {
            let next = match open_brain(&context.root(&config)) {
                Ok(_) => "start a new session to use it; `nugget uninstall` removes it",
                Err(_) => "run `nugget init` to create your brain",
            };
            output::print(&format!("next: {next}\n"))?;
        }
        Ok(())
    }
}

fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some((folder, files)) = &plan.plugin {
        text.push_str(&format!("  {}: the plugin, {} files\n", short_path(folder), files.len()));
    }
    let changes = plan.changes.iter().filter(|change| !change.added.is_empty());
    text.extend(changes.map(|change| change.describe('+')));
    text
}

/// Settings that keep nugget from working, or make it run twice.
fn find_conflicts(client_files: &ClientFiles, method: Method) -> Result<Vec<String>, CliError> {
    let text = match std::fs::read_to_string(&client_files.settings) {
        Ok(text) => text,
        Err(_) => return Ok(Vec::new()),
    };
    let settings = json_edit::value(&text).map_err(|error| invalid_file(&client_files.settings, &error))?;
    let shown = short_path(&client_files.settings);
    let mut notes = Vec::new();
    if settings["disableAllHooks"] == true {
        notes.push(format!("{shown} has disableAllHooks: no session is captured while it is set"));
    }
    for (name, enabled) in settings["enabledPlugins"].as_object().into_iter().flatten() {
        if name == plugin::ID && *enabled == false {
            notes.push(format!("{shown} disables the plugin: run `claude plugin enable {name}`"));
        } else if name.starts_with("nugget@") && name != plugin::ID && *enabled == true {
            notes.push(format!(
                "the plugin {name} is also installed: run `claude plugin uninstall {name}` or `nugget uninstall`"
            ));
        }
    }
    let tool = if method == Method::Plugin { plugin::TOOL } else { plugin::SERVER_TOOL };
    let denied = settings["permissions"]["deny"].as_array().into_iter().flatten();
    for rule in denied.filter_map(Value::as_str) {
        if rule == tool || rule == "mcp__*" || rule == tool.trim_end_matches("__get_relevant_context") {
            notes.push(format!("{shown} denies {rule}: sessions cannot use the tool"));
        }
    }
    let hooks = settings["hooks"]["SessionEnd"].to_string();
    if method == Method::Plugin && calls_nugget(&hooks.replace('"', " ")) {
        notes.push(format!("{shown} has your own hook for nugget, and so has the plugin"));
    }
    Ok(notes)
}

/// The client's version.
fn client_version(client: &Path) -> Option<[u32; 3]> {
    let output = version_of(client, VERSION_DEADLINE)?;
    let mut parts = output.split_whitespace().next()?.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}
