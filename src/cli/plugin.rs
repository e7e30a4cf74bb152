//! The plugin for Claude Code. Its files are compiled into the program, so that the plugin's version is the
//! program's and nothing is downloaded.

use serde_json::{Value, json};

/// The plugin's files, relative to its folder.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".claude-plugin/plugin.json", include_str!("../../plugin/.claude-plugin/plugin.json")),
    (".mcp.json", include_str!("../../plugin/.mcp.json")),
    (HOOKS_FILE, include_str!("../../plugin/hooks/hooks.json")),
    ("scripts/nugget.sh", include_str!("../../plugin/scripts/nugget.sh")),
    ("skills/brain/SKILL.md", include_str!("../../plugin/skills/brain/SKILL.md")),
    ("skills/remember/SKILL.md", include_str!("../../plugin/skills/remember/SKILL.md")),
    ("skills/review/SKILL.md", include_str!("../../plugin/skills/review/SKILL.md")),
];

/// The plugin's folder in the client's.
pub(crate) const SKILLS_FOLDER: &str = "skills/nugget";

/// The plugin's hooks, relative to its folder.
pub(crate) const HOOKS_FILE: &str = "hooks/hooks.json";

/// The events at which the guard runs.
pub(crate) const GUARD_EVENTS: [&str; 3] = ["PreToolUse", "PostToolUse", "PostToolUseFailure"];

/// The tools that edit files or run commands.
const ACTIONS: &str = "Edit|Write|MultiEdit|NotebookEdit|Bash";

/// The file that holds the program's path for the script beside it; it exists only if PATH does not lead there.
pub(crate) const PATH_FILE: &str = "scripts/path";

/// The first client version that is known to load a plugin from its skills folder.
pub(crate) const CLIENT_MIN: [u32; 3] = [2, 1, 197];

/// The client's name for a plugin in its skills folder.
pub(crate) const ID: &str = "nugget@skills-dir";

/// The client's name for the tool of the plugin's server.
pub(crate) const TOOL: &str = "mcp__plugin_nugget_nugget__get_relevant_context";
/// The client's name for the tool of a server in its settings.
pub(crate) const SERVER_TOOL: &str = "mcp__nugget__get_relevant_context";

/// A hook of the client.
pub(crate) struct Hook {
    pub(crate) event: &'static str,
    /// The tools at which it runs; `None` for an event that has none.
    pub(crate) matcher: Option<&'static str>,
    /// The command of nugget.
    pub(crate) command: &'static str,
    pub(crate) timeout_seconds: u32,
}

impl Hook {
    const fn new(event: &'static str, command: &'static str, timeout_seconds: u32) -> Self {
        Self { event, matcher: None, command, timeout_seconds }
    }

    const fn of_tools(event: &'static str, tools: &'static str, command: &'static str) -> Self {
        Self { matcher: Some(tools), ..Self::new(event, command, 5) }
    }

    /// The entry below the event in the client's settings, for a command as it is written there.
    pub(crate) fn entry(&self, command: &str) -> Value {
        let hooks = json!([{"type": "command", "command": command, "timeout": self.timeout_seconds}]);
        match self.matcher {
            Some(matcher) => json!({"matcher": matcher, "hooks": hooks}),
            None => json!({"hooks": hooks}),
        }
    }
}

/// The hooks.
///
/// SessionEnd is not an `async` hook: at `/exit` and in `claude -p` the client (2.1.197) always passes an empty
/// stdin to such a hook, but its line to one that it waits for. Waiting takes milliseconds.
pub(crate) const HOOKS: &[Hook] = &[
    Hook::new("SessionStart", "session-start", 5),
    Hook::new("UserPromptSubmit", "user-prompt", 5),
    Hook::of_tools(GUARD_EVENTS[0], ACTIONS, "guard"),
    Hook::of_tools(GUARD_EVENTS[1], "Bash", "guard"),
    Hook::of_tools(GUARD_EVENTS[2], ACTIONS, "guard"),
    Hook::new("PreCompact", "session-start", 5),
    Hook::new("SessionEnd", "capture-session", 10),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_has_the_same_hooks_as_the_settings() {
        let text = FILES.iter().find(|(path, _)| *path == HOOKS_FILE).unwrap().1;
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let events: Vec<&String> = file["hooks"].as_object().unwrap().keys().collect();
        assert_eq!(events, HOOKS.iter().map(|hook| hook.event).collect::<Vec<_>>());
        for hook in HOOKS {
            let entries = &file["hooks"][hook.event];
            let command = entries[0]["hooks"][0]["command"].as_str().unwrap();
            assert!(command.ends_with(&format!("nugget.sh\" {} || exit 1", hook.command)), "{}", hook.event);
            assert_eq!(*entries, json!([hook.entry(command)]), "{}: the timeout is in seconds", hook.event);
        }
        let version = env!("CARGO_PKG_VERSION");
        assert!(
            FILES[0].1.contains(&format!("\"version\": \"{version}\"")),
            "the plugin has version {version}"
        );
    }
}
