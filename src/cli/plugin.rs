//! The plugin for Claude Code, as it lies in the repository: the program carries it, so that what is
//! installed goes with the program and nothing is fetched.

/// Its files, relative to its folder.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".claude-plugin/plugin.json", include_str!("../../plugin/.claude-plugin/plugin.json")),
    (".mcp.json", include_str!("../../plugin/.mcp.json")),
    ("hooks/hooks.json", include_str!("../../plugin/hooks/hooks.json")),
    ("scripts/nugget.sh", include_str!("../../plugin/scripts/nugget.sh")),
    ("skills/brain/SKILL.md", include_str!("../../plugin/skills/brain/SKILL.md")),
];

/// The file that names the program, for the script beside it; there only when PATH does not lead to it.
pub(crate) const PATH_FILE: &str = "scripts/path";

/// The first client that is known to load a plugin from its folder of skills.
pub(crate) const CLIENT_MIN: [u32; 3] = [2, 1, 197];

/// The name under which the client knows a plugin that lies there.
pub(crate) const ID: &str = "nugget@skills-dir";

/// What the client calls the tool: of the plugin's server, and of one in its settings.
pub(crate) const TOOL: &str = "mcp__plugin_nugget_nugget__get_relevant_context";
pub(crate) const SERVER_TOOL: &str = "mcp__nugget__get_relevant_context";

/// The hooks, with the command that each calls and how long it may take, in seconds.
///
/// The end of a session is no `async` hook: at `/exit` and in `claude -p` the client (2.1.197) gave such a
/// hook an empty stdin, every time, and one that it waits for its line. Waiting costs milliseconds.
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
    fn the_plugin_has_the_hooks_that_the_settings_are_given() {
        let text = FILES.iter().find(|(path, _)| *path == "hooks/hooks.json").unwrap().1;
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let events: Vec<&String> = file["hooks"].as_object().unwrap().keys().collect();
        assert_eq!(events, HOOKS.iter().map(|(event, ..)| event).collect::<Vec<_>>());
        for (event, command, seconds) in HOOKS {
            let hook = &file["hooks"][event][0]["hooks"][0];
            assert_eq!(hook["timeout"], *seconds, "{event}: seconds, not milliseconds");
            assert!(
                hook["command"].as_str().unwrap().ends_with(&format!("nugget.sh\" {command}")),
                "{event}"
            );
            assert!(hook.get("async").is_none(), "{event}");
        }
        let version = env!("CARGO_PKG_VERSION");
        assert!(FILES[0].1.contains(&format!("\"version\": \"{version}\"")), "the plugin is of {version}");
    }
}
