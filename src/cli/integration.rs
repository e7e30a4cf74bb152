//! Installs nugget into Claude Code's files, and removes it.
//!
//! A record of the installation is kept in nugget's data folder, with a copy of each file as it was. A file that
//! has not changed since is restored byte for byte; from one that has changed only nugget's entries are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{CliError, USAGE};
use crate::json_edit::{self, Added, Entry};
use crate::output::short_path;
use crate::plugin;

/// Which sessions nugget is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    /// All your sessions
    User,
    /// Sessions in this project; its other developers get the files too
    Project,
}

/// How nugget is added to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Method {
    /// The plugin, written to the client's skills folder.
    Plugin,
    /// The plugin that the client has from a marketplace; only its tool's permission is missing.
    Marketplace,
    Settings,
}

/// The client's files of one scope.
pub(crate) struct ClientFiles {
    pub(crate) scope: Scope,
    /// The client's own folder, or the project's `.claude`.
    folder: PathBuf,
    pub(crate) settings: PathBuf,
    servers: PathBuf,
    /// The folder of the record and the copies.
    record: PathBuf,
}

/// What an installation has changed, for [`ClientFiles::plan_removal`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    how: Method,
    files: Vec<EditedFile>,
    plugin: Option<PathBuf>,
    /// The digests of what this and earlier installations have written as the plugin's files, or overwritten. Absent in
    /// the records of earlier versions.
    #[serde(default)]
    written: BTreeSet<String>,
    /// Folders that the installation has created, outermost first.
    folders: Vec<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EditedFile {
    path: PathBuf,
    /// The name of the copy of the original; `None` if there was no such file.
    copy: Option<String>,
    /// The digest of the file after the change.
    after: String,
    added: Vec<Added>,
}

/// A change of a file.
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    /// `None` if there is no such file.
    before: Option<String>,
    after: Option<String>,
    /// The file without nugget's entries.
    original: Option<String>,
    pub(crate) added: Vec<Added>,
}

impl Change {
    pub(crate) fn is_needed(&self) -> bool {
        self.before != self.after
    }

    /// The file as it will be; empty if there will be none.
    pub(crate) fn after(&self) -> &str {
        self.after.as_deref().unwrap_or_default()
    }

    /// The file and its entries, for `--json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "path": self.path, "entries": self.entries() })
    }

    /// The file and its entries in lines for a person.
    pub(crate) fn describe(&self, sign: char) -> String {
        let lines = self.entries().into_iter().map(|line| format!("    {sign} {line}\n"));
        format!("  {}\n", short_path(&self.path)) + &lines.collect::<String>()
    }

    /// One line for each entry.
    fn entries(&self) -> Vec<String> {
        let line = |added: &Added| {
            let entry = &added.entry;
            let path = entry.path.iter().chain(&entry.key).map(String::as_str).collect::<Vec<_>>().join(".");
            let what = match &entry.value {
                Value::String(text) => text.clone(),
                value => value
                    .pointer("/hooks/0/command")
                    .or_else(|| value.get("command"))
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            };
            format!("{path}: {what}")
        };
        self.added.iter().map(line).collect()
    }
}

/// The changes of an installation.
pub(crate) struct Plan {
    method: Method,
    pub(crate) changes: Vec<Change>,
    /// The plugin's folder, with its files.
    pub(crate) plugin: Option<(PathBuf, Vec<(String, String)>)>,
    /// The plugin's folder, which the method has no use for.
    pub(crate) removed: Option<PathBuf>,
    /// The plugin's files that somebody has edited, which are neither written nor removed.
    pub(crate) kept: Vec<String>,
    /// Whether anything has to change.
    pub(crate) is_new: bool,
}

/// What a removal does.
pub(crate) struct Removal {
    pub(crate) changes: Vec<Change>,
    /// The plugin's folder, if there is one with anything to remove.
    pub(crate) plugin: Option<PathBuf>,
    /// The plugin's files that somebody has edited.
    kept_files: Vec<String>,
    /// What is kept as somebody has edited or written it: where it is, and the command or the plugin's file there.
    pub(crate) kept: Vec<(PathBuf, String)>,
}

impl ClientFiles {
    /// The files of a scope; `project` is the folder that the command runs in.
    pub(crate) fn find(scope: Scope, project: &Path) -> Result<Self, CliError> {
        let missing =
            || CliError::new("the home folder is unknown").code(USAGE).hint("set HOME or CLAUDE_CONFIG_DIR");
        let (folder, servers) = match scope {
            Scope::User => {
                let folder = transcript::client_folder().ok_or_else(missing)?;
                let servers = servers_file(&folder);
                (folder, servers)
            }
            Scope::Project => {
                let has_git = |folder: &&Path| folder.join(".git").exists();
                let root = project.ancestors().find(has_git).unwrap_or(project);
                let folder = root.join(".claude");
                // A repository of dotfiles, or the home folder itself.
                if transcript::client_folder().is_some_and(|users| is_same(&users, &folder)) {
                    let settings = short_path(&folder.join("settings.json"));
                    return Err(CliError::new(format!("{settings} is not of one project, but your own"))
                        .code(USAGE)
                        .hint("omit --scope, or use a folder with a repository of its own"));
                }
                (folder, root.join(".mcp.json"))
            }
        };
        let settings = folder.join("settings.json");
        let digest = digest(settings.as_os_str().as_encoded_bytes());
        let record = brain::paths::install_folder().join(&digest[..16]);
        Ok(Self { scope, folder, settings, servers, record })
    }

    /// Whether an earlier installation has used a plugin.
    pub(crate) fn has_used_plugin(&self) -> Result<bool, CliError> {
        Ok(self.read_record()?.is_some_and(|record| record.how != Method::Settings))
    }

    /// The folder in which the client looks for the plugin.
    pub(crate) fn plugin(&self) -> PathBuf {
        self.folder.join(plugin::SKILLS_FOLDER)
    }

    /// How the files call `program`: those of a project, which other people and machines get, by name.
    pub(crate) fn calls(&self, program: Program) -> Program {
        if self.scope == Scope::Project { Program::Named } else { program }
    }

    /// The changes that install nugget, called as `program`.
    pub(crate) fn plan(&self, method: Method, program: &Program) -> Result<Plan, CliError> {
        let record = self.read_record()?;
        let mut wanted = self.entries(method, program)?;
        // Entries of an earlier installation in other files are removed.
        for edited in record.iter().flat_map(|record| &record.files) {
            if wanted.iter().all(|(path, _)| *path != edited.path) {
                wanted.push((edited.path.clone(), Vec::new()));
            }
        }
        let changes = wanted.iter().map(|(path, entries)| self.change(path, entries, record.as_ref()));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let plugin = (method == Method::Plugin).then(|| {
            let mut files: Vec<_> =
                plugin::FILES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            if let Program::At(path) = program {
                files.push((plugin::PATH_FILE.to_owned(), format!("{}\n", path.display())));
            }
            (self.plugin(), files)
        });
        if let Some((folder, _)) = &plugin {
            // What a link leads to is somebody's own, such as a clone of nugget's repository.
            let what = match folder.is_symlink() {
                true => Some("is a link"),
                false => (folder.exists() && !is_ours(folder)).then_some("exists and is not nugget's"),
            };
            if let Some(what) = what {
                return Err(CliError::new(format!("{} {what}", folder.display()))
                    .hint("move it elsewhere, or use `nugget install --as settings`"));
            }
        }
        let removed = if method == Method::Plugin { None } else { self.installed_plugin(record.as_ref()) };
        let folder = plugin.as_ref().map(|(folder, _)| folder).or(removed.as_ref());
        let kept = folder.map(|folder| edited_files(folder, record.as_ref())).unwrap_or_default();
        let plugin = plugin.map(|(folder, mut files)| {
            files.retain(|(path, _)| !kept.contains(path));
            (folder, files)
        });
        let files_differ = plugin.as_ref().is_some_and(|(folder, files)| {
            files
                .iter()
                .any(|(path, text)| fs::read(folder.join(path)).ok().as_deref() != Some(text.as_bytes()))
                || (folder.join(plugin::PATH_FILE).exists() && matches!(program, Program::Named))
        });
        let is_new = changes.iter().any(Change::is_needed) || files_differ || removed.is_some();
        Ok(Plan { method, changes, plugin, removed, kept, is_new })
    }

    /// Applies a plan. Copies and record are written first, so that every change can be undone.
    pub(crate) fn apply(&self, plan: &Plan) -> Result<(), CliError> {
        let old = self.read_record()?;
        let mut folders = old.as_ref().map(|record| record.folders.clone()).unwrap_or_default();
        let parents =
            plan.changes.iter().filter(|change| change.after.is_some()).map(|change| change.path.clone());
        for path in parents.chain(plan.plugin.iter().map(|(folder, _)| folder.clone())) {
            let missing = path.ancestors().skip(1).take_while(|folder| !folder.exists()).map(Path::to_owned);
            for folder in missing.collect::<Vec<_>>().into_iter().rev() {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
        brain::paths::create_private_folder(&self.record)
            .map_err(|error| failed("create", &self.record, &error))?;
        let mut written = old.map(|record| record.written).unwrap_or_default();
        if let Some((folder, files)) = &plan.plugin {
            let present = files.iter().filter_map(|(path, _)| fs::read(folder.join(path)).ok());
            written.extend(present.map(|found| digest(&found)));
            written.extend(files.iter().map(|(_, text)| digest(text.as_bytes())));
        }
        let mut files = Vec::new();
        for (number, change) in plan.changes.iter().filter(|change| !change.added.is_empty()).enumerate() {
            let copy = format!("{number}-{}", change.path.file_name().unwrap_or_default().to_string_lossy());
            if let Some(original) = &change.original {
                write_file(&self.record.join(&copy), original, 0o600)?;
            }
            files.push(EditedFile {
                path: change.path.clone(),
                copy: change.original.is_some().then_some(copy),
                after: digest(change.after.as_deref().unwrap_or_default().as_bytes()),
                added: change.added.clone(),
            });
        }
        let record = Record {
            version: 1,
            how: plan.method,
            files,
            plugin: plan.plugin.as_ref().map(|(folder, _)| folder.clone()),
            written,
            folders,
        };
        write_file(&self.record.join("record.json"), &serde_json::to_string_pretty(&record)?, 0o600)?;
        for change in plan.changes.iter().filter(|change| change.is_needed()) {
            self.write(change)?;
        }
        if let Some(folder) = &plan.removed {
            remove_plugin(folder, &plan.kept)?;
        }
        if let Some((folder, files)) = &plan.plugin {
            for (path, text) in files {
                let path = folder.join(path);
                make_parent(&path)?;
                write_file(
                    &path,
                    text,
                    if path.extension().is_some_and(|end| end == "sh") { 0o755 } else { 0o644 },
                )?;
            }
            if files.iter().all(|(path, _)| path != plugin::PATH_FILE) {
                remove_file(&folder.join(plugin::PATH_FILE))?;
            }
        }
        Ok(())
    }

    /// The changes that remove nugget.
    pub(crate) fn plan_removal(&self) -> Result<Removal, CliError> {
        let record = self.read_record()?;
        let plugin = self.installed_plugin(record.as_ref());
        let kept_files =
            plugin.as_ref().map(|folder| edited_files(folder, record.as_ref())).unwrap_or_default();
        let mut kept: Vec<_> = plugin
            .iter()
            .flat_map(|folder| kept_files.iter().map(move |file| (folder.clone(), of_plugin(file))))
            .collect();
        let plugin = plugin.filter(|folder| {
            folder.is_symlink()
                || plugin_files()
                    .any(|file| folder.join(file).exists() && !kept_files.iter().any(|kept| kept == file))
        });
        let mut changes = Vec::new();
        let edited = match record {
            Some(record) => record.files,
            None => self.default_edits()?,
        };
        for edited in edited {
            let before = read(&edited.path)?;
            let after = self.without(&edited, before.as_deref())?;
            let present = before.as_deref().unwrap_or_default();
            let is_removed = |added: &Added| matches!(json_edit::remove(present, added), Ok(Some(_)));
            let added = edited.added.into_iter().filter(is_removed).collect();
            changes.push(Change { path: edited.path, before, after, original: None, added });
        }
        for path in [&self.settings, &self.servers] {
            let left = match changes.iter().find(|change| change.path == *path) {
                Some(change) => change.after.clone(),
                // Nothing is removed there, so a file that cannot be read is no obstacle.
                None => read(path).ok().flatten(),
            };
            let left = json_edit::value(left.as_deref().unwrap_or_default()).unwrap_or_default();
            kept.extend(calls_in(&left).into_iter().map(|call| (path.clone(), call)));
        }
        changes.retain(Change::is_needed);
        Ok(Removal { changes, plugin, kept_files, kept })
    }

    /// Applies [`ClientFiles::plan_removal`] and deletes the record.
    pub(crate) fn remove(&self, removal: &Removal) -> Result<(), CliError> {
        let folders = self.read_record()?.map(|record| record.folders).unwrap_or_default();
        for change in &removal.changes {
            self.write(change)?;
        }
        if let Some(folder) = &removal.plugin {
            remove_plugin(folder, &removal.kept_files)?;
        }
        for folder in folders.iter().rev() {
            // Fails for a folder with other files in it, which is kept.
            let _ = fs::remove_dir(folder);
        }
        match fs::remove_dir_all(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &self.record, &error))
            }
            _ => Ok(()),
        }
    }

    /// The plugin in the client's skills folder, if it is there and nugget's.
    fn installed_plugin(&self, record: Option<&Record>) -> Option<PathBuf> {
        let plugin = record.and_then(|record| record.plugin.clone()).unwrap_or_else(|| self.plugin());
        (self.scope == Scope::User && is_ours(&plugin)).then_some(plugin)
    }

    fn entries(&self, method: Method, program: &Program) -> Result<Vec<(PathBuf, Vec<Entry>)>, CliError> {
        let permission = |tool: &str| Entry::new(&["permissions", "allow"], None, tool.into());
        if method != Method::Settings {
            return Ok(vec![(self.settings.clone(), vec![permission(plugin::TOOL)])]);
        }
        let settings = self.value_without_entries(&self.settings)?;
        let mut entries = vec![permission(plugin::SERVER_TOOL)];
        for hook in plugin::HOOKS {
            let entry = hook.entry(&program.hook(self.scope, hook.command));
            // A hook that the user has written by hand is kept instead.
            if !has_own_hook(&settings["hooks"][hook.event], &entry) {
                entries.push(Entry::new(&["hooks", hook.event], None, entry));
            }
        }
        let mut all = vec![(self.settings.clone(), entries)];
        let server =
            json!({"type": "stdio", "command": program.word(), "args": ["serve"], "alwaysLoad": true});
        let by_hand = &self.value_without_entries(&self.servers)?["mcpServers"]["nugget"];
        if *by_hand == server || by_hand["args"][0] != "serve" {
            let entry = Entry::new(&["mcpServers"], Some("nugget"), server);
            all.push((self.servers.clone(), vec![entry]));
        }
        Ok(all)
    }

    /// What a file says without nugget's entries.
    fn value_without_entries(&self, path: &Path) -> Result<Value, CliError> {
        let mut text = read(path)?;
        let files = self.read_record()?.map(|record| record.files).unwrap_or_default();
        if let Some(edited) = files.iter().find(|edited| edited.path == path) {
            text = self.without(edited, text.as_deref())?;
        }
        json_edit::value(&text.unwrap_or_default()).map_err(|error| invalid_file(path, &error))
    }

    fn change(&self, path: &Path, entries: &[Entry], record: Option<&Record>) -> Result<Change, CliError> {
        let before = read(path)?;
        let edited = record.and_then(|record| record.files.iter().find(|edited| edited.path == path));
        let present = before.as_deref().unwrap_or_default();
        let is_there = |entry: &Entry| matches!(json_edit::add(present, entry), Ok(None));
        let is_complete = |edited: &&EditedFile| {
            edited.added.iter().all(|added| entries.contains(&added.entry)) && entries.iter().all(is_there)
        };
        // If all entries are there, the file does not change. What the user wrote since belongs to the original.
        if let Some(edited) = edited.filter(is_complete) {
            let original = self.without(edited, before.as_deref())?;
            let (after, added) = (before.clone(), edited.added.clone());
            return Ok(Change { path: path.to_owned(), before, after, original, added });
        }
        let original = match edited {
            Some(edited) => self.without(edited, before.as_deref())?,
            None => before.clone(),
        };
        let mut text = original.clone().unwrap_or_default();
        let mut added = Vec::new();
        for entry in entries {
            if let Some((next, done)) =
                json_edit::add(&text, entry).map_err(|error| invalid_file(path, &error))?
            {
                text = next;
                added.push(done);
            }
        }
        let after = if added.is_empty() { original.clone() } else { Some(text) };
        Ok(Change { path: path.to_owned(), before, after, original, added })
    }

    /// A file without an installation's entries; the original if the file has not changed since.
    fn without(&self, edited: &EditedFile, text: Option<&str>) -> Result<Option<String>, CliError> {
        let Some(text) = text else { return Ok(None) };
        let copy = edited.copy.as_ref().map(|name| read(&self.record.join(name))).transpose()?;
        // Without its copy it is not known what the file was.
        let is_known = copy != Some(None);
        let original = copy.flatten();
        if is_known && digest(text.as_bytes()) == edited.after {
            return Ok(original);
        }
        let mut text = text.to_owned();
        for added in edited.added.iter().rev() {
            let less = json_edit::remove(&text, added).map_err(|error| invalid_file(&edited.path, &error))?;
            text = less.unwrap_or(text);
        }
        // There was no file, or a blank one, and now it contains nothing else.
        let was_blank = is_known && original.as_deref().is_none_or(|original| original.trim().is_empty());
        let is_blank = text.chars().all(|c| c.is_whitespace() || matches!(c, '{' | '}'));
        Ok(if was_blank && is_blank && !edited.added.is_empty() { original } else { Some(text) })
    }

    /// The entries that an installation adds, in case the record is lost. Containers are kept.
    fn default_edits(&self) -> Result<Vec<EditedFile>, CliError> {
        let programs = [Some(Program::Named), Program::here().ok()];
        let mut all: BTreeMap<PathBuf, Vec<Added>> = BTreeMap::new();
        for program in programs.iter().flatten() {
            for method in [Method::Plugin, Method::Settings] {
                for (path, entries) in self.entries(method, program)? {
                    let text = read(&path)?.unwrap_or_default();
                    let added = entries.into_iter().map(|entry| Added {
                        present: entry.path.len(),
                        edit: None,
                        entry,
                    });
                    let is_there = |added: &Added| matches!(json_edit::remove(&text, added), Ok(Some(_)));
                    all.entry(path).or_default().extend(added.filter(is_there));
                }
            }
        }
        // Without a copy a file never counts as created by nugget.
        let edited = |(path, added)| EditedFile { path, copy: None, after: String::new(), added };
        Ok(all.into_iter().filter(|(_, added)| !added.is_empty()).map(edited).collect())
    }

    fn write(&self, change: &Change) -> Result<(), CliError> {
        if read(&change.path)? != change.before {
            return Err(CliError::new(format!("{} was changed by another program", change.path.display()))
                .hint("it was not written; run the command again"));
        }
        match &change.after {
            Some(text) => {
                make_parent(&change.path)?;
                let mode = if self.scope == Scope::User { 0o600 } else { 0o644 };
                write_file(&change.path, text, mode)
            }
            // The file behind a link, which `install` has made there.
            None => remove_file(&resolve_links(&change.path)?),
        }
    }

    fn read_record(&self) -> Result<Option<Record>, CliError> {
        let path = self.record.join("record.json");
        let Some(text) = read(&path)? else { return Ok(None) };
        let record = serde_json::from_str(&text).map_err(|error| {
            CliError::new(format!("failed to read {}: {error}", path.display()))
                .hint("remove nugget's entries by hand and delete that folder")
        })?;
        Ok(Some(record))
    }
}

/// How the client calls this program.
pub(crate) enum Program {
    /// By name: PATH leads to this program.
    Named,
    At(PathBuf),
}

impl Program {
    pub(crate) fn here() -> Result<Self, CliError> {
        let here = fs::canonicalize(std::env::current_exe()?)?;
        let found = find_on_path("nugget").and_then(|path| fs::canonicalize(path).ok());
        Ok(if found.as_ref() == Some(&here) { Self::Named } else { Self::At(here) })
    }

    pub(crate) fn word(&self) -> String {
        match self {
            Self::Named => "nugget".to_owned(),
            Self::At(path) => path.display().to_string(),
        }
    }

    fn hook(&self, scope: Scope, command: &str) -> String {
        let word = self.word();
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
        let word = if plain { word } else { format!("'{}'", word.replace('\'', r"'\''")) };
        // Exit code 2, which a missing script and an unknown command have too, would block the client's action.
        let call = format!("{word} {command} || exit 1");
        match scope {
            Scope::User => call,
            // Other developers of the project may not have nugget.
            Scope::Project => format!("! command -v {word} >/dev/null || {call}"),
        }
    }
}

/// The file with the user's servers: beside the client's folder, unless CLAUDE_CONFIG_DIR names that.
pub(crate) fn servers_file(folder: &Path) -> PathBuf {
    let is_named = std::env::var_os("CLAUDE_CONFIG_DIR").is_some_and(|value| !value.is_empty());
    if is_named { folder.join(".claude.json") } else { folder.with_file_name(".claude.json") }
}

/// The first program of this name on PATH.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && system::file::mode(&meta) & 0o111 != 0)
}

/// Whether two paths lead to one folder, which need not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Whether an event's hooks have another one that calls nugget.
fn has_own_hook(groups: &Value, ours: &Value) -> bool {
    let groups = groups.as_array().into_iter().flatten().filter(|group| *group != ours);
    let hooks = groups.filter_map(|group| group["hooks"].as_array()).flatten();
    let mut commands = hooks.filter_map(|hook| hook["command"].as_str());
    commands.any(|command| calls_nugget(command) && !command.contains("command -v"))
}

/// The hooks in a file that call nugget, each once, and nugget's server.
fn calls_in(file: &Value) -> BTreeSet<String> {
    let groups = file["hooks"].as_object().into_iter().flat_map(|events| events.values());
    let groups = groups.filter_map(Value::as_array).flatten();
    let hooks = groups.filter_map(|group| group["hooks"].as_array()).flatten();
    let commands = hooks.filter_map(|hook| hook["command"].as_str());
    let commands = commands.filter(|command| calls_nugget(command)).map(str::to_owned);
    let is_server = file["mcpServers"]["nugget"]["args"][0] == "serve";
    commands.chain(is_server.then(|| "nugget (mcpServers)".to_owned())).collect()
}

/// Whether a command is one of nugget's hooks, as a person would write it.
pub(crate) fn calls_nugget(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    words.windows(2).any(|two| {
        let program = two[0].trim_matches(['"', '\'']).rsplit('/').next();
        program == Some("nugget") && plugin::HOOKS.iter().any(|hook| hook.command == two[1])
    })
}

/// Whether a folder holds nugget's plugin.
pub(crate) fn is_ours(folder: &Path) -> bool {
    let manifest = fs::read(folder.join(".claude-plugin/plugin.json")).unwrap_or_default();
    serde_json::from_slice::<Value>(&manifest).is_ok_and(|manifest| manifest["name"] == "nugget")
}

/// The plugin's files, relative to its folder.
fn plugin_files() -> impl Iterator<Item = &'static str> {
    plugin::FILES.iter().map(|(path, _)| *path).chain([plugin::PATH_FILE])
}

/// The plugin's files that are neither what an installation has written nor what this one writes. What an earlier version
/// has written is not known.
fn edited_files(folder: &Path, record: Option<&Record>) -> Vec<String> {
    if folder.is_symlink() {
        return Vec::new();
    }
    let is_edited = |(path, text): &&(&str, &str)| {
        let Ok(found) = fs::read(folder.join(path)) else { return false };
        let is_written = record
            .is_some_and(|record| record.written.is_empty() || record.written.contains(&digest(&found)));
        found != text.as_bytes() && !is_written
    };
    plugin::FILES.iter().filter(is_edited).map(|(path, _)| (*path).to_owned()).collect()
}

/// A file of the plugin, as a person is told of it.
pub(crate) fn of_plugin(file: &str) -> String {
    format!("{file} of the plugin")
}

/// Removes the plugin's files but those to keep, and the folders that are then empty; of a link only the link.
fn remove_plugin(folder: &Path, kept: &[String]) -> Result<(), CliError> {
    if folder.is_symlink() {
        return remove_file(folder);
    }
    for file in plugin_files().filter(|file| !kept.iter().any(|kept| kept == file)) {
        remove_file(&folder.join(file))?;
    }
    for entry in walkdir::WalkDir::new(folder).contents_first(true).into_iter().flatten() {
        // Fails for what is no folder, or not empty.
        let _ = fs::remove_dir(entry.path());
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, &error)),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<String>, CliError> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => {
                Err(CliError::new(format!("{} is not UTF-8", path.display())).hint("nothing was changed"))
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

/// Writes a file atomically, by renaming a temporary file. Symbolic links are followed, and an existing file
/// keeps its mode.
fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let real = resolve_links(path)?;
    let failed_to_write = |error: io::Error| failed("write", &real, &error);
    let mode = match fs::metadata(&real) {
        Ok(meta) if meta.permissions().readonly() => {
            return Err(CliError::new(format!("{} is read-only", real.display()))
                .hint("make it writable, then run the command again"));
        }
        Ok(meta) => system::file::mode(&meta),
        Err(_) => mode,
    };
    let folder = real.parent().unwrap_or(Path::new("/"));
    let mut file =
        tempfile::Builder::new().prefix(".nugget-").tempfile_in(folder).map_err(failed_to_write)?;
    file.write_all(text.as_bytes()).map_err(failed_to_write)?;
    file.as_file().set_permissions(system::file::permissions(mode)).map_err(failed_to_write)?;
    file.as_file().sync_all().map_err(failed_to_write)?;
    file.persist(&real).map_err(|error| failed_to_write(error.error))?;
    // Makes the rename durable.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed_to_write)
}

fn resolve_links(path: &Path) -> Result<PathBuf, CliError> {
    let mut at = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&at) {
            Ok(target) => at = at.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(at),
        }
    }
    Err(CliError::new(format!("{} is a circular link", path.display())))
}

fn make_parent(path: &Path) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|error| failed("create", folder, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> CliError {
    CliError::new(format!("failed to {what} {}: {error}", path.display()))
        .hint("fix that, then run the command again; what was done so far is recorded")
}

pub(crate) fn invalid_file(path: &Path, error: &json_edit::Error) -> CliError {
    CliError::new(format!("{} was not changed: {error}", path.display()))
        .hint("fix it there, then run the command again")
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
