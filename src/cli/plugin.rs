//! The plugin for Claude Code. Its files are compiled into the program, so that the plugin's version is the
//! program's and nothing is downloaded.

/// The plugin's files, relative to its folder.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".claude-plugin/plugin.json", include_str!("../../plugin/.claude-plugin/plugin.json")),
    (".mcp.json", include_str!("../../plugin/.mcp.json")),
    ("hooks/hooks.json", include_str!("../../plugin/hooks/hooks.json")),
    ("scripts/nugget.sh", include_str!("../../plugin/scripts/nugget.sh")),
    ("skills/brain/SKILL.md", include_str!("../../plugin/skills/brain/SKILL.md")),
    ("skills/review/SKILL.md", include_str!("../../plugin/skills/review/SKILL.md")),
];

/// The plugin's folder in the client's.
pub(crate) const SKILLS_FOLDER: &str = "skills/nugget";

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

/// The hooks: event, command, and timeout in seconds.
///
/// SessionEnd is not an `async` hook: at `/exit` and in `claude -p` the client (2.1.197) always passes an empty
/// stdin to such a hook, but its line to one that it waits for. Waiting takes milliseconds.
pub(crate) const HOOKS: &[(&str, &str, u32)] = &[
    ("SessionStart", "session-start", 5),
    ("UserPromptSubmit", "user-prompt", 5),
    ("PreCompact", "session-start", 5),
    ("SessionEnd", "capture-session", 10),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_has_the_same_hooks_as_the_settings() {
        let text = FILES.iter().find(|(path, _)| *path == "hooks/hooks.json").unwrap().1;
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let events: Vec<&String> = file["hooks"].as_object().unwrap().keys().collect();
        assert_eq!(events, HOOKS.iter().map(|(event, ..)| event).collect::<Vec<_>>());
        for (event, command, seconds) in HOOKS {
            let hook = &file["hooks"][event][0]["hooks"][0];
            assert_eq!(hook["timeout"], *seconds, "{event}: the timeout is in seconds");
            assert!(
                hook["command"].as_str().unwrap().ends_with(&format!("nugget.sh\" {command}")),
                "{event}"
            );
            assert!(hook.get("async").is_none(), "{event}");
        }
        let version = env!("CARGO_PKG_VERSION");
        assert!(
            FILES[0].1.contains(&format!("\"version\": \"{version}\"")),
            "the plugin has version {version}"
        );
    }
}
