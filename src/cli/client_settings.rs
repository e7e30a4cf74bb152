//! What Claude Code's own files say about nugget: how it was added, and what keeps it from working. Nothing is changed.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::integration::{find_on_path, is_ours, is_program, servers_file};
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
        self.servers().next().is_some()
    }

    /// The commands of nugget's servers other than the plugin's.
    fn servers(&self) -> impl Iterator<Item = &str> {
        let project = self.project.to_string_lossy();
        let files = [
            &self.user_servers["mcpServers"],
            &self.user_servers["projects"][project.as_ref()]["mcpServers"],
            &self.project_servers["mcpServers"],
        ];
        let servers = files.into_iter().filter_map(Value::as_object).flat_map(|servers| servers.values());
        servers.filter(|server| is_nuggets(server)).filter_map(|server| server["command"].as_str())
    }

    /// The programs that the client calls as nugget, as they are named there, each with whether it is there. What is no
    /// plain name or path is left out.
    pub(crate) fn programs(&self) -> Vec<(String, bool)> {
        let copy = self.copy();
        if let Some(id) = self.marketplace_plugin().or(copy.is_some().then_some(plugin::ID)) {
            return vec![("nugget".to_owned(), self.plugin_finds_program(id, copy.as_deref()))];
        }
        let groups = self.files.iter().filter_map(|(_, settings)| settings["hooks"]["SessionEnd"].as_array());
        let hooks = groups.flatten().filter_map(|group| group["hooks"].as_array()).flatten();
        let commands = hooks.filter_map(|hook| hook["command"].as_str()?.split_once(" capture-session"));
        // As `nugget install` writes them.
        let called = commands.map(|(before, _)| before.rsplit("|| ").next().unwrap_or_default());
        let named =
            called.chain(self.servers()).map(|word| word.trim_matches(['\'', '"']).replace(r"'\''", "'"));
        named
            .filter_map(|word| match Path::new(&word).is_absolute() {
                true => Some((is_program(Path::new(&word)), word)),
                false => (word == "nugget").then(|| (find_on_path(&word).is_some(), word)),
            })
            .map(|(is_there, word)| (word, is_there))
            .collect()
    }

    /// Whether the plugin's script finds the program, by what it has of this environment.
    fn plugin_finds_program(&self, id: &str, copy: Option<&Path>) -> bool {
        let option =
            |settings: &Value| settings["pluginConfigs"][id]["options"]["binary"].as_str().map(str::to_owned);
        let installed = copy.and_then(|copy| std::fs::read_to_string(copy.join(plugin::PATH_FILE)).ok());
        let options = self.files.iter().filter_map(|(_, settings)| option(settings));
        let named = options.chain(installed).map(|path| PathBuf::from(path.trim_end_matches('\n')));
        let usual = brain::paths::home()
            .into_iter()
            .flat_map(|home| [".cargo/bin", ".local/bin"].map(|bin| home.join(bin).join("nugget")));
        let mut all = named.chain(usual).chain(std::env::var_os("NUGGET_BIN").map(PathBuf::from));
        find_on_path("nugget").is_some() || all.any(|path| path.is_absolute() && is_program(&path))
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

/// Whether a server of the client's is nugget's.
fn is_nuggets(server: &Value) -> bool {
    let command = server["command"].as_str().unwrap_or_default();
    let is_ours = Path::new(command).file_stem().is_some_and(|name| name == "nugget");
    let args = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let args: Vec<&str> = args.collect();
    (is_ours || args.iter().any(|word| word.ends_with("nugget"))) && args.contains(&"serve")
}
