//! What Claude Code's own files say about nugget: how it was added, and what keeps it from working. Nothing is changed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::integration::{is_ours, servers_file};
use crate::{json_edit, plugin};

/// The client's settings files are small; a larger file is not read.
const SETTINGS_BYTES_MAX: u64 = 8 << 20;

/// After how many days the client deletes transcripts unless its settings say otherwise.
const CLEANUP_DAYS: u64 = 30;

/// The client's files that count for a session in one folder.
pub(crate) struct ClientSettings {
    folder: PathBuf,
    project: PathBuf,
    /// The user's, the project's, and the user's for that project; a later one overrides those before.
    files: [(PathBuf, Value); 3],
    user_servers: Value,
    project_servers: Value,
    /// The plugins that the client has installed from marketplaces.
    installed: Value,
    /// The files that cannot be read, and why.
    pub(crate) unreadable: Vec<String>,
}

impl ClientSettings {
    pub(crate) fn read(project: &Path) -> Self {
        let folder = transcript::client_folder().unwrap_or_default();
        let mut unreadable = Vec::new();
        let mut read = |path: &Path| {
            read_settings(path).unwrap_or_else(|why| {
                unreadable.push(format!("{} {why}", path.display()));
                Value::Null
            })
        };
        let files = [
            folder.join("settings.json"),
            project.join(".claude/settings.json"),
            project.join(".claude/settings.local.json"),
        ];
        let files = files.map(|path| {
            let value = read(&path);
            (path, value)
        });
        let (user_servers, project_servers) =
            (read(&servers_file(&folder)), read(&project.join(".mcp.json")));
        let installed = read_settings(&folder.join("plugins/installed_plugins.json")).unwrap_or_default();
        Self {
            folder,
            project: project.to_owned(),
            files,
            user_servers,
            project_servers,
            installed,
            unreadable,
        }
    }

    /// The client's name for the plugin from a marketplace, if the user's own settings turn it on.
    pub(crate) fn users_marketplace_plugin(&self) -> Option<&str> {
        self.enabled_in(&self.files[..1])
    }

    /// The same for a session in this folder, whose project may turn it on or off.
    pub(crate) fn marketplace_plugin(&self) -> Option<&str> {
        self.enabled_in(&self.files)
    }

    fn enabled_in(&self, files: &[(PathBuf, Value)]) -> Option<&str> {
        // The client loads a plugin that is turned on only if it has installed it too.
        let installed = self.installed["plugins"].as_object()?.keys().map(String::as_str);
        let is_on = |name: &str| plugin_state(files, name) == Some(true);
        installed.filter(|name| name.starts_with("nugget@") && is_on(name)).min()
    }

    /// The plugin in the client's skills folder, which `nugget install` writes. Beside a plugin of the same name from a
    /// marketplace the client does not load it.
    pub(crate) fn copy(&self) -> Option<PathBuf> {
        let copy = self.folder.join(plugin::SKILLS_FOLDER);
        (is_ours(&copy) && plugin_state(&self.files, plugin::ID) != Some(false)).then_some(copy)
    }

    /// The settings files with a hook that captures sessions.
    pub(crate) fn files_with_hooks(&self) -> Vec<&Path> {
        let has_hook =
            |settings: &Value| settings["hooks"]["SessionEnd"].to_string().contains("capture-session");
        self.files.iter().filter(|(_, settings)| has_hook(settings)).map(|(path, _)| path.as_path()).collect()
    }

    /// Whether a settings file is the user's own, for all projects.
    pub(crate) fn is_users(&self, file: &Path) -> bool {
        self.files[0].0 == file
    }

    /// After how many days the client deletes transcripts.
    pub(crate) fn cleanup_days(&self) -> u64 {
        let mut settings = self.files.iter().rev().map(|(_, settings)| &settings["cleanupPeriodDays"]);
        settings.find_map(Value::as_u64).unwrap_or(CLEANUP_DAYS)
    }

    /// Whether the client runs the guard: nugget's hooks of an older installation lack it.
    pub(crate) fn has_guard(&self) -> bool {
        let files = self.files.iter().map(|(_, settings)| settings["hooks"].to_string());
        let copy = self.copy().map(|copy| copy.join(plugin::HOOKS_FILE));
        let copy = copy.and_then(|path| read_settings(&path).ok()).map(|file| file["hooks"].to_string());
        // The client keeps a marketplace's plugin up to date.
        self.marketplace_plugin().is_some()
            || files.chain(copy).any(|hooks| {
                plugin::GUARD_EVENTS.iter().all(|event| hooks.contains(event)) && hooks.contains(" guard")
            })
    }

    /// Whether any settings turn all hooks off.
    pub(crate) fn disables_hooks(&self) -> bool {
        self.files.iter().any(|(_, settings)| settings["disableAllHooks"] == true)
    }

    /// Whether the client knows nugget's server other than from the plugin.
    pub(crate) fn has_server(&self) -> bool {
        let project = self.project.to_string_lossy();
        let servers = [
            &self.user_servers["mcpServers"],
            &self.user_servers["projects"][project.as_ref()]["mcpServers"],
            &self.project_servers["mcpServers"],
        ];
        servers.into_iter().any(has_server)
    }

    /// Whether sessions may use a tool without asking each time.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        let server = tool.trim_end_matches("__get_relevant_context");
        let covers = |rule: &str| rule == tool || rule == server || rule.trim_end_matches("__*") == server;
        let rules = self.files.iter().filter_map(|(_, settings)| settings["permissions"]["allow"].as_array());
        rules.flatten().filter_map(Value::as_str).any(covers)
    }

    /// Whether nugget is added for this user's sessions, and its tool may be used.
    pub(crate) fn is_complete(&self) -> bool {
        let tool = match (self.marketplace_plugin(), self.copy()) {
            (None, None) if self.has_server() && !self.files_with_hooks().is_empty() => plugin::SERVER_TOOL,
            (None, None) => return false,
            _ => plugin::TOOL,
        };
        self.allows(tool)
    }
}

/// Whether the last file that names a plugin turns it on.
fn plugin_state(files: &[(PathBuf, Value)], name: &str) -> Option<bool> {
    files.iter().rev().find_map(|(_, settings)| settings["enabledPlugins"][name].as_bool())
}

/// A JSON file of the client's, which ignores one with comments; `Null` if there is no such file.
pub(crate) fn read_settings(path: &Path) -> Result<Value, String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => return Err(format!("cannot be read: {error}")),
        Ok(metadata) if !metadata.is_file() => return Err("is not a file".to_owned()),
        Ok(metadata) if metadata.len() > SETTINGS_BYTES_MAX => return Err("is too large".to_owned()),
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    json_edit::value(&text).map_err(|error| format!("is not valid JSON: {error}"))
}

fn has_server(servers: &Value) -> bool {
    servers.as_object().is_some_and(|servers| {
        servers.values().any(|server| {
            let command = server["command"].as_str().unwrap_or_default();
            let is_ours = Path::new(command).file_stem().is_some_and(|name| name == "nugget");
            let args = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let args: Vec<&str> = args.collect();
            (is_ours || args.iter().any(|word| word.ends_with("nugget"))) && args.contains(&"serve")
        })
    })
}
