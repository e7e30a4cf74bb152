//! What an agent is about to do, or has done.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bash::{self, Changed, Command};
use crate::command::may_print_failure;
use crate::path;
use crate::signature::Output;

/// More of an edited text is not searched for symbols, in bytes.
const EDITED_BYTES_MAX: usize = 256 << 10;
/// Paths of an action.
const PATHS_MAX: usize = 64;

/// A file that an action changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// Its absolute path, without `.` and `..`; or one below `~/`, until [`Action::expand_home`].
    pub path: String,
    /// The path in its repository, empty for the repository's own folder; `None` outside of one.
    pub in_repository: Option<String>,
    /// The pattern of what changes with it of all that lies below it: `*.rs`, or `**` if that is removed or moved as a whole.
    pub below: Option<String>,
    /// The name of what comes into it, if it is a folder, until [`Action::enter_folders`].
    pub name_inside: Option<String>,
}

impl ChangedFile {
    /// The folder by which its repository is known.
    pub(crate) fn folder(&self) -> Option<&Path> {
        let path = Path::new(&self.path);
        if self.in_repository.as_deref() == Some("") { Some(path) } else { path.parent() }
    }
}

/// A call of a tool, as far as units can be about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Action {
    pub(crate) files: Vec<ChangedFile>,
    pub(crate) symbols: HashSet<String>,
    pub(crate) commands: Vec<Command>,
    pub(crate) output: Option<Output>,
    /// Whether only the output counts.
    pub(crate) has_passed: bool,
    /// Where the tool runs.
    folder: PathBuf,
}

impl Action {
    /// Reads a tool's input. `folder` is where the tool runs; `error` is what it has answered, if it has failed.
    ///
    /// `None` for a tool that neither edits nor runs anything, or an input that is not the tool's.
    pub fn new(tool: &str, input: &Value, folder: &str, error: Option<&str>) -> Option<Self> {
        let text = |key: &str| input[key].as_str();
        let mut action = Self { output: error.map(Output::new), folder: folder.into(), ..Self::default() };
        match tool {
            "Bash" => {
                let script = bash::read_script(text("command")?, folder);
                if !script.changed.is_empty() {
                    action.add_symbols(text("command")?);
                }
                action.commands = script.commands;
                script.changed.into_iter().for_each(|changed| action.add_file(changed));
            }
            "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => {
                let file = text("file_path").or_else(|| text("notebook_path"))?;
                // These tools take a `~` as it is written.
                let path =
                    path::resolve_verbatim(file, Some(folder)).filter(|path| !path.starts_with('~'))?;
                action.add_file(Changed { path, below: None, name_inside: None });
                let edits = input["edits"].as_array().map(Vec::as_slice).unwrap_or_default();
                for edit in std::iter::once(input).chain(edits) {
                    for key in ["old_string", "new_string", "content", "new_source"] {
                        action.add_symbols(edit[key].as_str().unwrap_or_default());
                    }
                }
            }
            _ => return None,
        }
        Some(action)
    }

    /// An action that its client calls no failure, but whose output may show one: a failing program whose status a pipe, an
    /// `||` or the program itself hides.
    ///
    /// `None` for all tools but Bash, and for a script of which each command prints texts that exist, as `cat` and
    /// `git log` do: what they print has not happened now.
    pub fn passed(tool: &str, input: &Value, folder: &str, output: &str) -> Option<Self> {
        let action = Self::new(tool, input, folder, Some(output))?;
        let may_fail = tool == "Bash" && action.commands.iter().any(may_print_failure);
        may_fail.then_some(Self { has_passed: true, ..action })
    }

    /// Replaces the `~` of files that a command names by the home folder.
    pub fn expand_home(&mut self, home: &str) {
        for file in &mut self.files {
            if let Some(inner) = file.path.strip_prefix("~/") {
                file.path = format!("{}/{inner}", home.trim_end_matches('/'));
            }
        }
    }

    /// Adds what comes into a folder: of `cp a.rs src` it is `src/a.rs`, if `src` is one.
    pub fn enter_folders(&mut self, is_folder: impl Fn(&str) -> bool) {
        let inside = |file: &mut ChangedFile| {
            let name = file.name_inside.take()?;
            is_folder(&file.path).then(|| format!("{}/{name}", file.path))
        };
        let inside: Vec<String> = self.files.iter_mut().filter_map(inside).collect();
        for path in inside {
            self.add_file(Changed { path, below: None, name_inside: None });
        }
    }

    /// Finds for each changed file its path in its repository. A folder above the repository that the tool runs in takes
    /// that along.
    pub fn locate(&mut self, mut in_repository: impl FnMut(&str) -> Option<String>) {
        for file in &mut self.files {
            file.in_repository = in_repository(&file.path);
            // With all that lies below it, a repository may go as a whole.
            if file.below.is_some() && file.in_repository.is_none() {
                file.in_repository = in_repository(&format!("{}/*", file.path)).map(|_| String::new());
            }
        }
        let above = self.files.iter().find(|file| {
            file.below.as_deref() == Some("**")
                && file.in_repository.is_none()
                && self.folder.starts_with(&file.path)
        });
        let Some(above) = above else { return };
        let mut inner = self.folder.ancestors().take_while(|folder| *folder != Path::new(&above.path));
        let root =
            inner.find(|folder| in_repository(&format!("{}/*", folder.display())).as_deref() == Some("*"));
        if let Some(root) = root {
            let (path, in_repository) = (root.display().to_string(), Some(String::new()));
            let below = Some("**".to_owned());
            self.files.push(ChangedFile { path, in_repository, below, name_inside: None });
        }
    }

    /// The files that it changes.
    pub fn files(&self) -> &[ChangedFile] {
        &self.files
    }

    /// The keys under which triggers are stored that may match.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = HashSet::new();
        if !self.has_passed {
            for file in &self.files {
                let path = file.in_repository.as_deref().unwrap_or(&file.path);
                keys.extend(path::parts(path).map(|part| format!("path {part}")));
                if file.below.is_some() {
                    keys.extend(path::ends(path).map(key_below));
                }
            }
            keys.extend(self.commands.iter().map(|command| format!("command {}", command.program)));
            if !self.symbols.is_empty() {
                keys.insert("symbol".to_owned());
            }
        }
        if let Some(output) = &self.output {
            keys.extend(output.keys().into_iter().map(|word| format!("error {word}")));
        }
        keys.into_iter().collect()
    }

    fn add_file(&mut self, Changed { path, below, name_inside }: Changed) {
        let is_same = |file: &ChangedFile| {
            file.path == path && (file.below.is_none() || below.is_none() || file.below == below)
        };
        if let Some(known) = self.files.iter_mut().find(|file| is_same(file)) {
            known.below = known.below.take().or(below);
            known.name_inside = known.name_inside.take().or(name_inside);
        } else if self.files.len() < PATHS_MAX {
            self.files.push(ChangedFile { path, in_repository: None, below, name_inside });
        }
    }

    fn add_symbols(&mut self, text: &str) {
        self.symbols.extend(symbols_in(&text[..text.floor_char_boundary(EDITED_BYTES_MAX)]));
    }
}

/// The key of what lies below a folder that is removed or moved.
pub(crate) fn key_below(folder: &str) -> String {
    format!("{BELOW}{folder}")
}

/// How the keys of [`key_below`] begin, and no others.
pub(crate) const BELOW: &str = "below ";

/// The word before a name that is defined.
const DEFINING: [&str; 12] =
    ["fn", "func", "function", "def", "fun", "sub", "struct", "class", "enum", "trait", "interface", "type"];

/// The names in a text; each two that are joined by `.`, `::`, `->` or `#`, as `one.other`; and each that is defined, as
/// `def name`. A method of Go is both: `func (c *Catalog) Open`.
pub(crate) fn symbols_in(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut symbols = Vec::new();
    let mut before: Option<&str> = None;
    // Within the brackets after `func`.
    let mut is_receiver = false;
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let joint = &rest[..start];
        rest = &rest[start..];
        let (name, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        if let Some(before) = before.filter(|_| matches!(joint, "." | "::" | "->" | "#" | "?.")) {
            symbols.push(format!("{before}.{name}"));
        }
        if let Some(before) = before.filter(|_| joint == ") " && is_receiver) {
            symbols.push(format!("{before}.{name}"));
        }
        is_receiver = match before {
            Some("func") => joint == " (",
            _ => is_receiver && matches!(joint, " " | " *" | "*"),
        };
        if before.is_some_and(|before| DEFINING.contains(&before)) && joint == " " {
            symbols.push(defined(name));
        }
        symbols.push(name.to_owned());
        (before, rest) = (Some(name), after);
    }
    symbols
}

/// How [`symbols_in`] says that a name is defined.
pub(crate) fn defined(name: &str) -> String {
    format!("def {name}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_tool_says_what_it_changes() {
        let paths = |tool: &str, input: Value| {
            let action = Action::new(tool, &input, "/p", None).unwrap();
            action.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            paths("Edit", json!({"file_path": "/p/a.rs", "old_string": "x", "new_string": "y"})),
            ["/p/a.rs"]
        );
        assert_eq!(paths("Write", json!({"file_path": "b.rs", "content": ""})), ["/p/b.rs"]);
        assert_eq!(paths("Edit", json!({"file_path": "/p/app/$id.[x].tsx"})), ["/p/app/$id.[x].tsx"]);
        assert_eq!(
            paths("NotebookEdit", json!({"notebook_path": "/p/n.ipynb", "new_source": "x"})),
            ["/p/n.ipynb"]
        );
        assert_eq!(paths("Bash", json!({"command": "cd s && echo x > y"})), ["/p/s/y"]);
    }

    #[test]
    fn the_symbols_of_an_edit_are_those_of_its_texts() {
        let edits = json!({"file_path": "/p/a", "edits": [{"old_string": "fn parse_config()", "new_string": "Queue::open"}]});
        let action = Action::new("MultiEdit", &edits, "/p", None).unwrap();
        for symbol in ["parse_config", "Queue", "open", "Queue.open"] {
            assert!(action.symbols.contains(symbol), "{symbol}");
        }
        assert!(!action.symbols.contains("parse_config.Queue"));
        assert!(action.symbols.contains("def parse_config") && !action.symbols.contains("def open"));
        let go = symbols_in("func (c *Catalog) Open(path string) (db Store) Close()");
        assert!(go.contains(&"Catalog.Open".to_owned()), "{go:?}");
        assert!(!go.contains(&"Store.Close".to_owned()), "{go:?}");
    }

    #[test]
    fn only_the_output_of_what_has_passed_and_may_have_failed_counts() {
        let passed =
            |command: &str| Action::passed("Bash", &json!({ "command": command }), "/p", "no rule x");
        for command in [
            "make 2>&1 | tail -5",
            "cd x && bun run lint",
            "go vet ./... || true",
            "cat a; npm test",
            "timeout 9 make | cat",
            "git -C x commit -m y 2>&1 | head",
            "gh api x | jq .id",
        ] {
            let mut keys = passed(command).unwrap().keys();
            keys.sort();
            assert_eq!(keys, ["error no", "error rule", "error x"], "{command}");
        }
        for command in [
            "cat log | grep error",
            "sudo cat log",
            "sleep 5; tail -20 out.txt",
            "git --no-pager log -p",
            "git -C x diff | head",
            "sed -i s/a/b/ src/a.rs",
            "echo make",
            "gh pr view 3",
            "nugget list",
            "",
        ] {
            assert_eq!(passed(command), None, "{command}");
        }
        assert_eq!(Action::passed("Edit", &json!({"file_path": "/p/a", "new_string": "b"}), "/p", "x"), None);
    }

    #[test]
    fn what_is_no_action_is_none() {
        for (tool, input) in [
            ("Read", json!({"file_path": "/p/a"})),
            ("Bash", json!({"command": 3})),
            ("Edit", json!(null)),
            ("Edit", json!({"file_path": "~/x"})),
            ("", json!([])),
        ] {
            assert_eq!(Action::new(tool, &input, "/p", None), None, "{tool}");
        }
    }
}
