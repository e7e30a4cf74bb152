//! `nugget install`: nugget becomes part of Claude Code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::context::Context;
use crate::error::CliError;
use crate::integration::{How, Plan, Program, Scope, Site, broken, calls_nugget, find_on_path};
use crate::output;
use crate::subprocess::version_of;
use crate::{json_edit, plugin};

/// How long the client may take to say its version.
const VERSION_WITHIN: Duration = Duration::from_secs(10);

const AFTER: &str = "\
For you, with Claude Code 2.1.197 or later, which loads plugins from its folder
of skills: the plugin in ~/.claude/skills/nugget, and the permission for its one
tool in ~/.claude/settings.json. With an older one, and for a project: hooks and
permission in settings.json, the server in ~/.claude.json or .mcp.json.
CLAUDE_CONFIG_DIR is honoured. Of Claude Code only the version is asked.

Whatever else is in those files stays byte for byte. A file that is not valid
JSON is left alone, and the place of the error is told. `nugget uninstall` gives
each file back as it was. A second run changes nothing.

Examples:
  nugget install
  nugget install --dry-run
  nugget install --scope project";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Whose sessions
    #[arg(long, value_enum, default_value = "user")]
    scope: Scope,
    /// By what: a plugin, entries in the settings, or what the client supports
    #[arg(long = "as", value_name = "HOW", default_value = "auto", value_parser = ["auto", "plugin", "settings"])]
    how: String,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let site = Site::of(self.scope, &std::env::current_dir()?)?;
        let client = config.path("extract.claude").or_else(|| find_on_path("claude"));
        let version = client.as_deref().and_then(release_of);
        let how = match (self.how.as_str(), self.scope) {
            ("plugin", Scope::Project) => {
                return Err(CliError::new(
                    "a project's sessions are served by its settings, not by a plugin",
                )
                .code(crate::error::USAGE)
                .hint("leave out --as, or use --scope user"));
            }
            ("plugin", _) => How::Plugin,
            ("auto", Scope::User) if version.is_some_and(|version| version >= plugin::CLIENT_MIN) => {
                How::Plugin
            }
            _ => How::Settings,
        };
        let program = Program::here()?;
        let plan = site.plan(how, &program)?;
        let notes = notes(&site, how)?;
        if !self.dry_run && plan.is_new {
            site.carry_out(&plan)?;
        }
        if self.json {
            let files: Vec<Value> = plan
                .changes
                .iter()
                .map(|change| json!({ "path": change.path, "entries": change.told() }))
                .collect();
            output::print_json(&json!({
                "how": how, "changed": plan.is_new && !self.dry_run, "would_change": plan.is_new,
                "program": program.word(), "plugin": plan.plugin.as_ref().map(|(folder, _)| folder),
                "files": files, "notes": notes,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let verb = match (plan.is_new, self.dry_run) {
            (false, _) => "nugget is installed already; nothing was changed",
            (true, true) => "this would be done, and was not:",
            (true, false) => "installed:",
        };
        output::print(&format!("{verb}\n{}", told(&plan)))?;
        for note in &notes {
            output::note(&format!("note: {note}"));
        }
        if plan.is_new && !self.dry_run {
            let next = match brain::Brain::open(&context.root(&config)) {
                Ok(_) => "sessions that begin from now on have it; `nugget uninstall` takes it out",
                Err(_) => "nugget init, which makes your brain",
            };
            output::print(&format!("next: {next}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some((folder, files)) = &plan.plugin {
        text.push_str(&format!("  {}: the plugin, {} files\n", short(folder), files.len()));
    }
    for change in plan.changes.iter().filter(|change| !change.told().is_empty()) {
        text.push_str(&format!("  {}\n", short(&change.path)));
        for line in change.told() {
            text.push_str(&format!("    + {line}\n"));
        }
    }
    text
}

/// What in the settings keeps nugget from working, or makes it work twice.
fn notes(site: &Site, how: How) -> Result<Vec<String>, CliError> {
    let text = match std::fs::read_to_string(&site.settings) {
        Ok(text) => text,
        Err(_) => return Ok(Vec::new()),
    };
    let look = |path: &[&str]| json_edit::look(&text, path).map_err(|error| broken(&site.settings, &error));
    let shown = short(&site.settings);
    let mut notes = Vec::new();
    if look(&["disableAllHooks"])? == Some(Value::Bool(true)) {
        notes.push(format!("{shown} has disableAllHooks: no session is captured while it stands there"));
    }
    let plugins = look(&["enabledPlugins"])?;
    for (name, enabled) in plugins.as_ref().and_then(Value::as_object).into_iter().flatten() {
        if name == plugin::ID && *enabled == false {
            notes.push(format!("{shown} switches the plugin off: `claude plugin enable {name}`"));
        } else if name.starts_with("nugget@") && name != plugin::ID && *enabled == true {
            notes.push(format!(
                "the plugin {name} is installed, too: `claude plugin uninstall {name}`, or do without this"
            ));
        }
    }
    let tool = if how == How::Plugin { plugin::TOOL } else { plugin::SERVER_TOOL };
    let denied = look(&["permissions", "deny"])?;
    for rule in denied.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if rule == tool || rule == "mcp__*" || rule == tool.trim_end_matches("__get_relevant_context") {
            notes.push(format!("{shown} denies {rule}: sessions cannot ask"));
        }
    }
    let hooks = look(&["hooks", "SessionEnd"])?.map(|hooks| hooks.to_string()).unwrap_or_default();
    if how == How::Plugin && calls_nugget(&hooks.replace('"', " ")) {
        notes.push(format!("{shown} has a hook of your own for nugget; the plugin has it, too"));
    }
    Ok(notes)
}

/// What the client says that it is, within bounds.
fn release_of(client: &Path) -> Option<[u32; 3]> {
    let told = version_of(client, VERSION_WITHIN)?;
    let mut parts = told.split_whitespace().next()?.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// A path as the person would write it.
pub(super) fn short(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
