//! What Claude Code tells the hooks before an action and after a failed one.

use std::path::{Path, PathBuf};

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
    /// `PreToolUse` or `PostToolUseFailure`.
    pub hook_event_name: Option<String>,
    /// The tool.
    pub tool_name: Option<String>,
    /// What it is given.
    pub tool_input: Option<Value>,
    /// What a failed tool has answered.
    pub error: Option<String>,
    /// Whether the person has stopped the tool.
    pub is_interrupt: Option<bool>,
}

impl HookedAction {
    /// The action in this folder, its files placed in their repositories and with `~` as this home; `None` if units cannot
    /// be about it.
    pub fn action(
        &self,
        folder: &Path,
        home: Option<&str>,
        repositories: &mut Repositories,
    ) -> Option<Action> {
        let error = match self.hook_event_name.as_deref()? {
            "PreToolUse" => None,
            // What a person has stopped says nothing of an error.
            "PostToolUseFailure" if self.is_interrupt != Some(true) => Some(self.error.as_deref()?),
            _ => return None,
        };
        let tool = self.tool_name.as_deref()?;
        let mut action = Action::new(tool, self.tool_input.as_ref()?, folder.to_str()?, error)?;
        if let Some(home) = home {
            action.expand_home(home);
        }
        action.locate(|path| repositories.path_in_repository(path));
        Some(action)
    }
}
