//! What Claude Code tells the hooks before and after an action.

use std::path::{Path, PathBuf};

use knowledge::json::parse_lenient;
use serde::Deserialize;
use serde_json::Value;

use crate::{Action, Repositories};

/// The longest line of a hook that is read, in bytes: it has one or two kilobytes.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// The part of the hook's line of JSON that is about the action.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct HookedAction {
    /// The folder in which the tool runs.
    pub cwd: Option<PathBuf>,
    /// `PreToolUse`, `PostToolUse` or `PostToolUseFailure`.
    pub hook_event_name: Option<String>,
    /// The tool.
    pub tool_name: Option<String>,
    /// What it is given.
    pub tool_input: Option<Value>,
    /// What a failed tool has answered.
    pub error: Option<String>,
    /// What a tool has answered that has not failed.
    pub tool_response: Option<Value>,
    /// Whether the person has stopped the tool.
    pub is_interrupt: Option<bool>,
}

impl HookedAction {
    /// Reads the hook's line.
    ///
    /// # Errors
    /// When it is no JSON object, or a field is of another type.
    pub fn parse(line: &[u8]) -> serde_json::Result<Self> {
        parse_lenient(line, |line| serde_json::from_slice(line))
    }

    /// The action in this folder, its files placed in their repositories and with `~` as this home; `None` if units cannot
    /// be about it.
    pub fn action(
        &self,
        folder: &Path,
        home: Option<&str>,
        repositories: &mut Repositories,
    ) -> Option<Action> {
        let (tool, input, folder) = (self.tool_name.as_deref()?, self.tool_input.as_ref()?, folder.to_str()?);
        let mut action = match self.hook_event_name.as_deref()? {
            "PreToolUse" => Action::new(tool, input, folder, None)?,
            "PostToolUse" => Action::passed(tool, input, folder, &self.response()?)?,
            // What a person has stopped says nothing of an error.
            "PostToolUseFailure" if self.is_interrupt != Some(true) => {
                Action::new(tool, input, folder, Some(self.error.as_deref()?))?
            }
            _ => return None,
        };
        if let Some(home) = home {
            action.expand_home(home);
        }
        action.enter_folders(|path| Path::new(path).is_dir());
        action.locate(|path| repositories.path_in_repository(path));
        Some(action)
    }

    /// What Bash has printed.
    fn response(&self) -> Option<String> {
        let response = self.tool_response.as_ref()?;
        let parts = ["stdout", "stderr"].map(|part| response[part].as_str());
        let text: Vec<&str> = response.as_str().into_iter().chain(parts.into_iter().flatten()).collect();
        Some(text.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_changed_in_the_folder_and_the_repository_in_which_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["shop/.git", "shop/src", "other/.git"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("shop/b.rs"), "").unwrap();
        let changed = |command: &str| {
            let hooked = HookedAction {
                hook_event_name: Some("PreToolUse".to_owned()),
                tool_name: Some("Bash".to_owned()),
                tool_input: Some(serde_json::json!({ "command": command })),
                ..HookedAction::default()
            };
            let shop = folder.path().join("shop");
            let action = hooked.action(&shop, None, &mut Repositories::default()).unwrap();
            let path = |file: &crate::ChangedFile| file.in_repository.clone();
            action.files().iter().filter_map(path).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(changed("cp x/a.rs src"), "src src/a.rs");
        assert_eq!(changed("install -m 644 x/a.rs src"), "src src/a.rs");
        assert_eq!(changed("cp x/a.rs b.rs; cp x/a.rs new"), "b.rs new");
        assert_eq!(changed("git -C ../other rm c.rs; git -C ../other checkout HEAD~1 d"), "c.rs HEAD~1 d");
    }

    #[test]
    fn a_line_with_half_a_character_is_read() {
        let line =
            r#"{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"echo \ud83d"}}"#;
        let hooked = HookedAction::parse(line.as_bytes()).unwrap();
        assert_eq!(hooked.tool_input.unwrap()["command"], "echo \u{fffd}");
        assert!(HookedAction::parse(b"{\"tool_name\":\"\\ud83d\"").is_err());
    }
}
