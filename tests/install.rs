//! Installs into Claude Code and uninstalls again, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Sandbox, fixture, write_script};

const PLUGIN_TOOL: &str = "mcp__plugin_nugget_nugget__get_relevant_context";
const SERVER_TOOL: &str = "mcp__nugget__get_relevant_context";

fn settings_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(fixture("settings"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    assert!(files.len() > 20);
    files
}

/// The client (2.1.332) ignores a file with comments or trailing commas.
fn is_read_by_the_client(name: &str) -> bool {
    !name.contains("comments") && !name.contains("commas")
}

/// Returns every file below a folder with its bytes and its mode.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path.clone());
                found.insert(path, (Vec::new(), mode));
            } else {
                found.insert(path.clone(), (fs::read(&path).unwrap_or_default(), mode));
            }
        }
    }
    // The state folder of the commands themselves is not part of Claude Code.
    found.retain(|path, _| !path.starts_with(folder.join(".local")));
    found
}

/// Creates a home with these two files of the client's.
fn home_with(settings: Option<&[u8]>, state: Option<&[u8]>) -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join(".claude")).unwrap();
    if let Some(settings) = settings {
        fs::write(sandbox.path().join(".claude/settings.json"), settings).unwrap();
    }
    if let Some(state) = state {
        fs::write(sandbox.path().join(".claude.json"), state).unwrap();
    }
    sandbox
}

fn read_text(sandbox: &Sandbox, path: &str) -> String {
    fs::read_to_string(sandbox.path().join(path)).unwrap()
}

/// Writes a client that prints this version, and that records any other request.
fn install_client(sandbox: &Sandbox, version: &str) -> String {
    let path = sandbox.path().join("claude-stand-in");
    write_script(&path, &format!("[ \"$*\" = --version ] || exit 9\necho '{version} (Claude Code)'"));
    path.display().to_string()
}

#[test]
fn every_settings_file_is_restored_to_the_last_byte() {
    for file in settings_files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = fs::read(&file).unwrap();
        for how in ["plugin", "settings"] {
            let sandbox = home_with(Some(&bytes), Some(&bytes));
            let before = snapshot(sandbox.path());
            if !is_read_by_the_client(&name) {
                let output = sandbox.run(["install", "--as", how]);
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(
                    !output.status.success() && stderr.contains("s are not allowed (line "),
                    "{name}: {stderr}"
                );
                assert_eq!(snapshot(sandbox.path()), before, "{name} {how}");
                continue;
            }
            let printed = sandbox.json(["install", "--as", how, "--json"]);
            assert_eq!(printed["changed"], true, "{name}: {printed}");
            let after = read_text(&sandbox, ".claude/settings.json");
            assert_eq!(after.matches("get_relevant_context").count(), 1, "{name} {how}: {after}");
            serde_json::from_str::<Value>(after.trim_start_matches('\u{feff}'))
                .unwrap_or_else(|error| panic!("{name} {how}: {error}: {after}"));
            let installed = snapshot(sandbox.path());
            let repeated = sandbox.json(["install", "--as", how, "--json"]);
            assert_eq!(repeated["changed"], false, "{name}: {repeated}");
            assert_eq!(snapshot(sandbox.path()), installed, "{name}: a second run changes nothing");
            sandbox.ok(["uninstall"]);
            assert_eq!(snapshot(sandbox.path()), before, "{name} {how}");
            assert!(sandbox.ok(["uninstall"]).contains("not installed"), "{name}");
        }
    }
}

#[test]
fn uninstall_keeps_what_the_user_wrote_in_between() {
    for file in settings_files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let original = fs::read_to_string(&file).unwrap();
        let has_members =
            original.trim_start_matches('\u{feff}').trim().starts_with('{') && original.contains(':');
        if !has_members || !is_read_by_the_client(&name) {
            continue;
        }
        // The user adds a key at the beginning and changes a value where there is one.
        let edit = |text: &str| {
            text.replacen('{', "{ \"theirs\": {\"a\": [1, 2 ]},", 1).replacen("\"opus\"", "\"sonnet\"", 1)
        };
        for how in ["plugin", "settings"] {
            let sandbox = home_with(Some(original.as_bytes()), Some(original.as_bytes()));
            sandbox.ok(["install", "--as", how]);
            for path in [".claude/settings.json", ".claude.json"] {
                let installed = read_text(&sandbox, path);
                fs::write(sandbox.path().join(path), edit(&installed)).unwrap();
            }
            sandbox.ok(["uninstall"]);
            for path in [".claude/settings.json", ".claude.json"] {
                assert_eq!(read_text(&sandbox, path), edit(&original), "{name} {how} {path}");
            }
        }
    }
}

#[test]
fn uninstall_works_in_a_file_that_the_client_ignores_and_doctor_names_it() {
    for how in ["plugin", "settings"] {
        let sandbox = home_with(Some(b"{\n  \"model\": \"opus\"\n}\n"), None);
        sandbox.ok(["install", "--as", how]);
        let path = sandbox.path().join(".claude/settings.json");
        let with_comment = |text: &str| text.replacen("\"opus\"", "\"opus\" // mine\n ", 1);
        let commented = with_comment(&read_text(&sandbox, ".claude/settings.json"));
        fs::write(&path, &commented).unwrap();
        let mcp_or_hooks = usize::from(how == "plugin");
        let checked = &client_checks(&sandbox)[mcp_or_hooks];
        assert!(checked.starts_with("failure") && checked.contains("comments are not allowed"), "{checked}");
        let output = sandbox.run(["install", "--as", how]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("not allowed (line 2, "), "{stderr}");
        assert_eq!(read_text(&sandbox, ".claude/settings.json"), commented);
        sandbox.ok(["uninstall"]);
        let left = read_text(&sandbox, ".claude/settings.json");
        assert_eq!(left, with_comment("{\n  \"model\": \"opus\"\n}\n"), "{how}");
    }
}

#[test]
fn uninstall_says_which_entry_it_keeps_as_it_was_edited() {
    let sandbox = Sandbox::new();
    sandbox.ok(["install", "--as", "settings"]);
    let settings = read_text(&sandbox, ".claude/settings.json");
    let edited = settings.replacen("nugget guard", "nugget guard --quiet", 1);
    assert_ne!(edited, settings);
    fs::write(sandbox.path().join(".claude/settings.json"), &edited).unwrap();
    let printed = sandbox.ok(["uninstall"]);
    assert!(
        printed.contains("kept, as it is not as nugget wrote it: ")
            && printed.contains("nugget guard --quiet"),
        "{printed}"
    );
    assert!(printed.contains("in ~/.claude/settings.json; remove it there"), "{printed}");
    assert_eq!(
        printed.matches("nugget guard").count(),
        3,
        "it is not among the two that were removed: {printed}"
    );
    let left = read_text(&sandbox, ".claude/settings.json");
    assert!(left.contains("nugget guard --quiet") && !left.contains("session-start"), "{left}");

    // It still runs, whatever was installed and removed since.
    let again = sandbox.ok(["uninstall"]);
    assert!(again.contains("nothing was changed") && !again.contains("not installed"), "{again}");
    assert!(again.contains("kept, as it is not as nugget wrote it: "), "{again}");
    sandbox.ok(["install"]);
    let removed = sandbox.json(["uninstall", "--json"]);
    assert_eq!(removed["changed"], true);
    assert!(removed["kept"][0]["entry"].as_str().unwrap().contains("nugget guard --quiet"), "{removed}");
    assert_eq!(removed["kept"].as_array().unwrap().len(), 1, "{removed}");
}

#[test]
fn uninstall_keeps_a_link_whose_target_install_has_created() {
    let sandbox = Sandbox::new();
    let [link, target] =
        ["settings.json", "dotfiles.json"].map(|name| sandbox.path().join(".claude").join(name));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("dotfiles.json", &link).unwrap();
    sandbox.ok(["install"]);
    assert!(target.is_file());
    sandbox.ok(["uninstall"]);
    assert!(link.is_symlink() && !target.exists());
}

#[test]
fn uninstall_leaves_no_file_that_install_created() {
    for how in ["plugin", "settings"] {
        let sandbox = Sandbox::new();
        let before = snapshot(sandbox.path());
        let printed = sandbox.ok(["install", "--as", how]);
        assert!(printed.starts_with("installed:\n") && printed.contains("nugget init"), "{printed}");
        let mode = |path: &str| fs::metadata(sandbox.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(".claude/settings.json"), 0o600);
        sandbox.ok(["uninstall"]);
        assert_eq!(snapshot(sandbox.path()), before, "{how}");
    }
}

#[test]
fn a_dry_run_lists_every_change_and_makes_none() {
    let sandbox = home_with(Some(b"{}"), None);
    let before = snapshot(sandbox.path());
    let printed = sandbox.ok(["install", "--as", "settings", "--dry-run"]);
    for expected in [
        "dry run; would change:",
        SERVER_TOOL,
        "hooks.SessionEnd: ",
        " capture-session",
        "mcpServers.nugget: ",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert_eq!(snapshot(sandbox.path()), before);
    sandbox.ok(["install", "--as", "settings"]);
    let printed = sandbox.ok(["install", "--as", "plugin", "--dry-run"]);
    assert!(printed.contains(".claude.json: nugget's entries removed"), "{printed}");
    assert!(!printed.contains("your own hook"), "those of an earlier installation are nugget's: {printed}");
    let installed = snapshot(sandbox.path());
    let printed = sandbox.ok(["uninstall", "--dry-run"]);
    assert!(printed.contains("dry run; would remove:") && printed.contains(SERVER_TOOL), "{printed}");
    assert_eq!(snapshot(sandbox.path()), installed);
}

#[test]
fn a_broken_file_is_untouched_and_its_error_has_a_position() {
    for (bytes, position) in [
        (&b"{\n  \"model\": \"opus\"\n  \"env\": {}\n}\n"[..], "expected comma (line 2, column 18)"),
        (b"{\n\n\"permissions\": [] }", "`permissions` is not an object (line 3)"),
        (b"[1]", "`the file` is not an object (line 1)"),
        (
            b"{\"permissions\": {\"allow\": \"all\"}}",
            "`permissions.allow` is not an object or a list (line 1)",
        ),
        (b"\xff\xfe{}", "is not UTF-8"),
    ] {
        for how in ["plugin", "settings"] {
            let sandbox = home_with(Some(bytes), None);
            let before = snapshot(sandbox.path());
            let output = sandbox.run(["install", "--as", how]);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(
                stderr.contains(position) && stderr.contains("settings.json") && stderr.contains("hint: "),
                "{stderr}"
            );
            assert_eq!(snapshot(sandbox.path()), before);
        }
    }
}

#[test]
fn a_symlink_stays_and_its_target_keeps_its_mode() {
    let sandbox = home_with(None, None);
    let real = sandbox.path().join("dotfiles/claude.json");
    fs::create_dir(sandbox.path().join("dotfiles")).unwrap();
    fs::write(&real, "{\n\t\"model\": \"opus\"\n}\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../dotfiles/claude.json", sandbox.path().join(".claude/settings.json")).unwrap();
    let before = snapshot(sandbox.path());
    sandbox.ok(["install", "--as", "plugin"]);
    assert!(sandbox.path().join(".claude/settings.json").is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains(PLUGIN_TOOL));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    sandbox.ok(["uninstall"]);
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let sandbox = home_with(Some(b"{}"), None);
    let path = sandbox.path().join(".claude/settings.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let output = sandbox.run(["install", "--as", "plugin"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("is read-only"), "{stderr}");
    assert_eq!(fs::read(&path).unwrap(), b"{}");
}

#[test]
fn the_clients_config_folder_is_used() {
    let sandbox = Sandbox::new();
    let before = snapshot(sandbox.path());
    let folder = sandbox.path().join("elsewhere");
    let run = |arguments: &[&str]| {
        let output = sandbox.command().args(arguments).env("CLAUDE_CONFIG_DIR", &folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["install", "--as", "settings"]);
    assert!(read_text(&sandbox, "elsewhere/settings.json").contains(SERVER_TOOL));
    let state: Value = serde_json::from_str(&read_text(&sandbox, "elsewhere/.claude.json")).unwrap();
    assert_eq!(state["mcpServers"]["nugget"]["alwaysLoad"], true);
    assert!(!sandbox.path().join(".claude").exists() && !sandbox.path().join(".claude.json").exists());
    run(&["install", "--as", "plugin"]);
    assert!(!folder.join(".claude.json").exists(), "the plugin replaces the settings");
    assert!(folder.join("skills/nugget/.mcp.json").is_file());
    run(&["uninstall"]);
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn a_projects_files_work_without_nugget_installed() {
    let sandbox = Sandbox::new();
    let project = sandbox.path().join("shop");
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir_all(project.join("src")).unwrap();
    fs::write(project.join(".mcp.json"), "{\"mcpServers\":{\"x\":{\"command\":\"x\"}}}").unwrap();
    let before = snapshot(sandbox.path());
    let run = |arguments: &[&str]| {
        let output = sandbox.command().args(arguments).current_dir(project.join("src")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["install", "--scope", "project"]);
    let settings: Value = serde_json::from_str(&read_text(&sandbox, "shop/.claude/settings.json")).unwrap();
    let command = settings["hooks"]["SessionEnd"][0]["hooks"][0]["command"].as_str().unwrap();
    // Where the program is not installed, the hook prints nothing and succeeds.
    let output = Command::new("sh").args(["-c", command]).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command}");
    assert!(
        read_text(&sandbox, "shop/.mcp.json")
            .starts_with("{\"mcpServers\":{\"x\":{\"command\":\"x\"}, \"nugget\": {")
    );
    // The files are shared with people on other machines.
    for file in ["shop/.mcp.json", "shop/.claude/settings.json"] {
        let text = read_text(&sandbox, file);
        assert!(!text.contains(env!("CARGO_BIN_EXE_nugget")), "{text}");
    }
    let servers: Value = serde_json::from_str(&read_text(&sandbox, "shop/.mcp.json")).unwrap();
    assert_eq!(servers["mcpServers"]["nugget"]["command"], "nugget");
    let doctor = sandbox.command().args(["doctor", "--offline"]).current_dir(&project).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("fix: put nugget on the PATH, by which a project's files call it"), "{doctor}");
    assert!(!sandbox.path().join(".claude").exists());
    run(&["uninstall", "--scope", "project"]);
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn the_users_own_settings_are_no_projects() {
    let sandbox = home_with(Some(b"{}"), None);
    // A repository of dotfiles.
    fs::create_dir(sandbox.path().join(".git")).unwrap();
    let folder = sandbox.path().join("work/shop");
    fs::create_dir_all(&folder).unwrap();
    let before = snapshot(sandbox.path());
    for command in ["install", "uninstall"] {
        let mut run = sandbox.command();
        let output = run.args([command, "--scope", "project"]).current_dir(&folder).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("~/.claude/settings.json is not of one project, but your own"), "{stderr}");
    }
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn the_plugin_is_used_where_the_client_supports_it() {
    for (version, how) in [
        ("2.1.329", "plugin"),
        ("2.1.340-beta.1", "plugin"),
        ("2.1.197", "plugin"),
        ("2.1.196", "settings"),
        ("nonsense", "settings"),
    ] {
        let sandbox = Sandbox::new();
        let client = install_client(&sandbox, version);
        let output = sandbox
            .command()
            .args(["install", "--json"])
            .env("NUGGET_EXTRACT_CLAUDE", client)
            .output()
            .unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["how"], how, "{version}");
        let unknown = sandbox.json(["install", "--json"]);
        assert_eq!((&unknown["how"], &unknown["changed"]), (&how.into(), &false.into()), "{version}");
    }
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.json(["install", "--json"])["how"], "settings", "without a client");
}

#[test]
fn a_foreign_skill_is_not_overwritten() {
    let sandbox = home_with(None, None);
    let theirs = sandbox.path().join(".claude/skills/nugget/SKILL.md");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "mine").unwrap();
    let before = snapshot(sandbox.path());
    let output = sandbox.run(["install", "--as", "plugin"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not nugget's"));
    sandbox.ok(["uninstall"]);
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn handwritten_hooks_are_not_duplicated() {
    let settings = r#"{"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": "nugget capture-session", "timeout": 10}]}]}}"#;
    let state =
        r#"{"mcpServers": {"nugget": {"type": "stdio", "command": "nugget", "args": ["serve"], "env": {}}}}"#;
    let sandbox = home_with(Some(settings.as_bytes()), Some(state.as_bytes()));
    let before = snapshot(sandbox.path());
    sandbox.ok(["install", "--as", "settings"]);
    let after = read_text(&sandbox, ".claude/settings.json");
    assert_eq!(after.matches("capture-session").count(), 1, "{after}");
    assert!(after.contains("session-start"), "{after}");
    assert_eq!(read_text(&sandbox, ".claude.json"), state);
    sandbox.ok(["uninstall"]);
    assert_eq!(snapshot(sandbox.path()), before);
}

#[test]
fn install_reports_settings_that_disable_it() {
    let settings = format!(
        r#"{{"disableAllHooks": true, "enabledPlugins": {{"nugget@skills-dir": false}},
        "permissions": {{"deny": ["{PLUGIN_TOOL}"]}}}}"#
    );
    let sandbox = home_with(Some(settings.as_bytes()), None);
    let output = sandbox.run(["install", "--as", "plugin"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in
        ["disableAllHooks", "claude plugin enable nugget@skills-dir", "sessions cannot use the tool"]
    {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

/// Does to the client's files what `claude plugin install nugget --marketplace OWNER/NAME` (2.1.330) does.
fn install_from_marketplace(sandbox: &Sandbox) {
    let folder = sandbox.path().join(".claude");
    fs::create_dir_all(folder.join("plugins")).unwrap();
    let entry = serde_json::json!([{"scope": "user", "version": "0.1.0"}]);
    let installed = serde_json::json!({"version": 2, "plugins": {"nugget@nugget": entry}});
    fs::write(folder.join("plugins/installed_plugins.json"), installed.to_string()).unwrap();
    // A usual place for the program, which the plugin looks in.
    let program = sandbox.path().join(".local/bin/nugget");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    symlink(env!("CARGO_BIN_EXE_nugget"), program).unwrap();
    enable_plugin(sandbox);
}

/// Turns the plugin on in the user's settings, whose other keys stay.
fn enable_plugin(sandbox: &Sandbox) {
    let path = sandbox.path().join(".claude/settings.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings["enabledPlugins"]["nugget@nugget"] = true.into();
    fs::write(&path, serde_json::to_string_pretty(&settings).unwrap()).unwrap();
}

/// The two lines of `nugget doctor` about the client.
fn client_checks(sandbox: &Sandbox) -> [String; 2] {
    let text = String::from_utf8(sandbox.run(["doctor", "--offline"]).stdout).unwrap();
    ["hooks", "mcp"].map(|name| {
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn doctor_says_that_the_program_is_gone_that_the_client_calls() {
    for how in ["settings", "plugin"] {
        let sandbox = Sandbox::new();
        let [old, new] = ["it's old/nugget", "new/nugget"].map(|path| sandbox.path().join(path));
        for path in [&old, &new] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::hard_link(env!("CARGO_BIN_EXE_nugget"), &old)
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_nugget"), &old).map(drop))
            .unwrap();
        let install = |program: &Path| {
            let mut command = sandbox.command_of(program.to_str().unwrap());
            let output = command.args(["install", "--as", how]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        install(&old);
        assert!(client_checks(&sandbox).iter().all(|line| line.starts_with("ok ")), "{how}");
        let doctor = String::from_utf8(sandbox.run(["doctor", "--offline"]).stdout).unwrap();
        assert!(!doctor.contains("no nugget on the PATH"), "{how}: none is needed: {doctor}");
        fs::rename(&old, &new).unwrap();
        for line in client_checks(&sandbox) {
            assert!(
                line.starts_with("warning ") && line.contains("nugget, which is not there"),
                "{how}: {line}"
            );
            assert!(line.ends_with("fix: nugget install"), "{how}: {line}");
        }
        install(&new);
        assert!(client_checks(&sandbox).iter().all(|line| line.starts_with("ok ")), "{how}");
    }
}

#[test]
fn a_server_that_was_added_beside_the_plugin_is_named() {
    let state =
        r#"{"mcpServers": {"nugget": {"type": "stdio", "command": "nugget", "args": ["serve"], "env": {}}}}"#;
    let sandbox = home_with(None, Some(state.as_bytes()));
    let output = sandbox.run(["install", "--as", "plugin"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("`claude mcp remove nugget` removes yours"), "{stderr}");
    let [_, mcp] = client_checks(&sandbox);
    assert!(mcp.starts_with("warning mcp twice in every session: by the plugin, and as a server"), "{mcp}");
    fs::remove_file(sandbox.path().join(".claude.json")).unwrap();
    assert!(client_checks(&sandbox)[1].starts_with("ok mcp"));
    // What an earlier installation added is no one's own.
    sandbox.ok(["install", "--as", "settings"]);
    let output = sandbox.run(["install", "--as", "plugin"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn doctor_says_that_an_older_installation_lacks_the_guard() {
    for (how, file) in
        [("plugin", ".claude/skills/nugget/hooks/hooks.json"), ("settings", ".claude/settings.json")]
    {
        let sandbox = Sandbox::new();
        sandbox.ok(["install", "--as", how]);
        let mut hooks: Value = serde_json::from_str(&read_text(&sandbox, file)).unwrap();
        let all = "Edit|Write|MultiEdit|NotebookEdit|Bash";
        for (event, tools) in [("PreToolUse", all), ("PostToolUse", "Bash"), ("PostToolUseFailure", all)] {
            let entry = hooks["hooks"].as_object_mut().unwrap().remove(event).unwrap();
            assert_eq!(entry[0]["matcher"], tools, "{how}");
            assert!(entry[0]["hooks"][0]["command"].as_str().unwrap().contains(" guard "), "{how}: {entry}");
        }
        fs::write(sandbox.path().join(file), hooks.to_string()).unwrap();
        // It has not recorded what it wrote into the plugin's files.
        let record = fs::read_dir(sandbox.path().join(".local/share/nugget/install")).unwrap().next();
        let record = record.unwrap().unwrap().path().join("record.json");
        let mut recorded: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        recorded.as_object_mut().unwrap().remove("written");
        fs::write(&record, recorded.to_string()).unwrap();
        let [checked, _] = client_checks(&sandbox);
        assert!(checked.starts_with("warning hooks those of an older nugget"), "{how}: {checked}");
        assert!(checked.ends_with("fix: nugget install"), "{how}: {checked}");
        sandbox.ok(["config", "set", "guard.enabled", "off"]);
        assert!(
            client_checks(&sandbox)[0].starts_with("ok hooks"),
            "{how}: who turned it off misses nothing"
        );
        sandbox.ok(["config", "unset", "guard.enabled"]);
        sandbox.ok(["install", "--as", how]);
        assert!(client_checks(&sandbox)[0].starts_with("ok hooks"), "{how}");
    }
}

#[test]
fn beside_the_marketplaces_plugin_only_the_permission_is_added() {
    let sandbox = Sandbox::new();
    install_from_marketplace(&sandbox);
    let before = snapshot(&sandbox.path().join(".claude"));
    let [hooks, mcp] = client_checks(&sandbox);
    assert_eq!(hooks, "ok hooks by the plugin nugget@nugget");
    assert!(mcp.starts_with("warning") && mcp.ends_with("; fix: nugget install"), "{mcp}");

    let printed = sandbox.ok(["install"]);
    assert!(printed.contains("  nugget@nugget: the plugin, from its marketplace\n"), "{printed}");
    let settings: Value = serde_json::from_str(&read_text(&sandbox, ".claude/settings.json")).unwrap();
    assert_eq!(settings["permissions"]["allow"], serde_json::json!([PLUGIN_TOOL]));
    assert!(settings["hooks"].is_null() && !sandbox.path().join(".claude.json").exists(), "{settings}");
    assert!(!sandbox.path().join(".claude/skills").exists(), "no second copy");
    assert!(
        client_checks(&sandbox).iter().all(|line| line.starts_with("ok ")),
        "{:?}",
        client_checks(&sandbox)
    );
    let again = sandbox.json(["install", "--as", "plugin", "--json"]);
    assert_eq!((&again["how"], &again["changed"]), (&"marketplace".into(), &false.into()), "{again}");

    let output = sandbox.run(["install", "--as", "settings"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && stderr.contains("claude plugin uninstall nugget@nugget"),
        "{stderr}"
    );

    let printed = sandbox.ok(["uninstall"]);
    assert!(
        printed.contains("kept: the plugin nugget@nugget; `claude plugin uninstall nugget@nugget`"),
        "{printed}"
    );
    assert_eq!(snapshot(&sandbox.path().join(".claude")), before);
}

#[test]
fn a_later_plugin_from_a_marketplace_replaces_what_install_wrote() {
    for (how, found) in [
        (
            "plugin",
            "warning hooks by the plugin nugget@nugget; the copy in ~/.claude/skills/nugget is not loaded",
        ),
        ("settings", "warning hooks they run twice: by the plugin, and by ~/.claude/settings.json"),
    ] {
        let sandbox = home_with(Some(b"{\"model\": \"opus\"}"), None);
        sandbox.ok(["install", "--as", how]);
        assert!(client_checks(&sandbox).iter().all(|line| line.starts_with("ok ")), "{how}");
        install_from_marketplace(&sandbox);
        let [hooks, _] = client_checks(&sandbox);
        assert!(hooks.starts_with(found) && hooks.contains("fix: nugget install"), "{hooks}");

        let printed = sandbox.json(["install", "--json"]);
        assert_eq!(printed["marketplace_plugin"], "nugget@nugget", "{printed}");
        assert!(!sandbox.path().join(".claude/skills/nugget").exists(), "{how}");
        assert!(!read_text(&sandbox, ".claude/settings.json").contains("capture-session"), "{how}");
        assert!(!sandbox.path().join(".claude.json").exists(), "{how}: the server is removed");
        assert!(client_checks(&sandbox).iter().all(|line| line.starts_with("ok ")), "{how}");
        sandbox.ok(["uninstall"]);
        let left: Value = serde_json::from_str(&read_text(&sandbox, ".claude/settings.json")).unwrap();
        let wanted = serde_json::json!({"model": "opus", "enabledPlugins": {"nugget@nugget": true}});
        assert_eq!(left, wanted, "{how}");
        assert!(!sandbox.path().join(".claude/skills").exists(), "{how}");
    }
}

#[test]
fn a_plugin_that_is_enabled_but_not_installed_does_not_count() {
    let sandbox = Sandbox::new();
    enable_plugin(&sandbox);
    assert_eq!(sandbox.json(["install", "--as", "plugin", "--json"])["how"], "plugin");
    assert!(sandbox.path().join(".claude/skills/nugget/.mcp.json").is_file());
    assert_eq!(client_checks(&sandbox)[0], "ok hooks by the plugin");
}

#[test]
fn a_project_is_told_that_the_users_plugin_runs_too() {
    let sandbox = Sandbox::new();
    install_from_marketplace(&sandbox);
    let project = sandbox.path().join("shop");
    fs::create_dir_all(project.join(".git")).unwrap();
    let run = |arguments: &[&str]| sandbox.command().args(arguments).current_dir(&project).output().unwrap();
    let output = run(&["install", "--scope", "project"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("run each hook twice: nugget@nugget does it already"), "{stderr}");
    let doctor = String::from_utf8(run(&["doctor", "--offline"]).stdout).unwrap();
    assert!(
        doctor.contains("they run twice: by the plugin, and by ~/shop/.claude/settings.json"),
        "{doctor}"
    );
    assert!(doctor.contains("fix: nugget uninstall --scope project"), "{doctor}");
    let output = run(&["uninstall"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("in this project it is: nugget uninstall --scope project"), "{printed}");
}

#[test]
fn setup_says_what_reads_sessions_and_how_to_keep_them_local() {
    let line = |sandbox: &Sandbox, arguments: &[&str]| {
        let printed = sandbox.ok(arguments);
        let (_, told) = printed.split_once("sessions are read by ").unwrap_or_else(|| panic!("{printed}"));
        let told = format!("sessions are read by {}", told.split("\nnext: ").next().unwrap_or_default());
        assert_eq!(told.trim_end().lines().count(), 1, "{printed}");
        assert_eq!(printed.matches("sessions are read by ").count(), 1, "{printed}");
        told
    };
    for command in [&["install", "--as", "plugin"][..], &["init"]] {
        let mut sandbox = Sandbox::new();
        let by_client = line(&sandbox, command);
        for part in ["`claude -p` if logged in", "sent redacted, at most $2.00 a day", "else rules"] {
            assert!(by_client.contains(part), "{part}: {by_client}");
        }
        let keep = "keep them here: nugget config set extract.backend heuristic";
        assert!(by_client.ends_with(keep), "{by_client}");
        sandbox.variables = vec![
            ("ANTHROPIC_API_KEY".to_owned(), "sk-none".to_owned()),
            ("NUGGET_SPEND_CENTS_PER_DAY".to_owned(), "50".to_owned()),
        ];
        sandbox.ok(["uninstall"]);
        let _ = fs::remove_dir_all(sandbox.brain());
        let _ = fs::remove_dir_all(sandbox.path().join("config"));
        let by_key = line(&sandbox, command);
        assert!(by_key.contains("the Claude API at ") && by_key.contains("at most $0.50 a day"), "{by_key}");
        sandbox.variables = vec![("NUGGET_EXTRACT_BACKEND".to_owned(), "heuristic".to_owned())];
        sandbox.ok(["uninstall"]);
        let _ = fs::remove_dir_all(sandbox.brain());
        let _ = fs::remove_dir_all(sandbox.path().join("config"));
        assert_eq!(line(&sandbox, command), "sessions are read by rules; nothing leaves this machine");
    }
}

/// The command that an output names as the next one: in backticks, or after `decide: `.
fn next_command(printed: &str) -> Vec<String> {
    let next = printed.lines().find_map(|line| line.strip_prefix("next: "));
    let command = match next {
        Some(next) => next.split('`').nth(1),
        None => printed.lines().find_map(|line| line.strip_prefix("decide: ")?.split(" (").next()),
    };
    let command = command.unwrap_or_else(|| panic!("no next command: {printed}"));
    let quoted: Vec<&str> = command.split('"').collect();
    let mut words: Vec<String> = quoted[0].split_whitespace().map(str::to_owned).collect();
    words.extend(quoted.get(1).map(|word| (*word).to_owned()));
    assert_eq!(words.remove(0), "nugget", "{command}");
    words
}

#[test]
fn each_command_names_the_next_up_to_the_first_unit_recalled() {
    for first in ["install", "init"] {
        let sandbox = Sandbox::new();
        let (printed, mut commands) = (sandbox.ok([first]), 1);
        let second = next_command(&printed);
        assert_eq!(second, [if first == "install" { "init" } else { "install" }]);
        let printed = sandbox.ok(&second);
        commands += 1;
        let review = next_command(&printed);
        assert_eq!(review, ["review"], "{printed}");
        assert!(printed.contains("a new session of Claude Code"), "{printed}");

        // The session, which ends by its hook.
        let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
        let hook = serde_json::json!({
            "session_id": "5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913", "transcript_path": transcript,
            "cwd": sandbox.path(), "hook_event_name": "SessionEnd", "reason": "prompt_input_exit",
        });
        let ended = sandbox.run_with_input(&["capture-session"], format!("{hook}\n").as_bytes());
        assert!(String::from_utf8_lossy(&ended.stdout).starts_with("queued session"), "{ended:?}");
        crate::support::wait_until("the session is read", || {
            sandbox.json(["status", "--json"])["queue"]["done"] == 1
        });

        let mut printed = sandbox.ok(&review);
        commands += 1;
        let mut recalled = Vec::new();
        while recalled.first().is_none_or(|word| word != "ask") {
            recalled = next_command(&printed);
            printed = sandbox.ok(&recalled);
            commands += 1;
        }
        assert!(commands <= 5, "{commands}");
        assert!(printed.contains("reviewed: merged") && printed.contains(&recalled[1]), "{printed}");
    }
}

#[test]
fn only_the_first_merge_names_a_question() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.ok(["review"]);
    assert!(sandbox.ok(["review", "merge", "1"]).contains("\nnext: `nugget ask \""));
    assert!(!sandbox.ok(["review", "merge", "2"]).contains("next: "));
}

#[test]
fn uninstall_works_without_its_record() {
    for how in ["plugin", "settings"] {
        let original =
            "{\n  \"model\": \"opus\",\n  \"permissions\": {\n    \"allow\": [\n      \"x\"\n    ]\n  }\n}\n";
        let sandbox = home_with(Some(original.as_bytes()), None);
        sandbox.ok(["install", "--as", how]);
        fs::remove_dir_all(sandbox.path().join(".local/share/nugget/install")).unwrap();
        sandbox.ok(["uninstall"]);
        let left = read_text(&sandbox, ".claude/settings.json");
        assert!(!left.contains("nugget"), "{how}: {left}");
        assert!(!sandbox.path().join(".claude/skills/nugget").exists());
        if how == "plugin" {
            assert_eq!(left, original);
        }
    }
}

#[test]
fn a_lost_copy_costs_no_setting() {
    let original = "{\n  \"model\": \"opus\",\n  \"env\": {\"A\": \"1\"}\n}\n";
    for how in ["plugin", "settings"] {
        let installed = || {
            let sandbox = home_with(Some(original.as_bytes()), None);
            sandbox.ok(["install", "--as", how]);
            let records = fs::read_dir(sandbox.path().join(".local/share/nugget/install")).unwrap();
            let copies = records.map(|record| record.unwrap().path().join("0-settings.json"));
            copies.for_each(|copy| fs::remove_file(copy).unwrap());
            sandbox
        };
        let sandbox = installed();
        sandbox.ok(["uninstall"]);
        assert_eq!(read_text(&sandbox, ".claude/settings.json"), original, "{how}");

        let sandbox = installed();
        let other = if how == "plugin" { "settings" } else { "plugin" };
        sandbox.ok(["install", "--as", other]);
        let settings: Value = serde_json::from_str(&read_text(&sandbox, ".claude/settings.json")).unwrap();
        assert_eq!((&settings["model"], &settings["env"]["A"]), (&"opus".into(), &"1".into()), "{how}");
        sandbox.ok(["uninstall"]);
        assert_eq!(read_text(&sandbox, ".claude/settings.json"), original, "{how}, then {other}");
    }
}

#[test]
fn a_linked_plugin_folder_is_not_written_and_only_its_link_is_removed() {
    let sandbox = home_with(None, None);
    sandbox.ok(["install", "--as", "plugin"]);
    let [link, theirs] = [".claude/skills/nugget", "repository"].map(|path| sandbox.path().join(path));
    fs::rename(&link, &theirs).unwrap();
    sandbox.ok(["uninstall"]);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&theirs, &link).unwrap();
    fs::write(theirs.join("hooks/hooks.json"), "{\"hooks\": {}}").unwrap();
    let before = snapshot(sandbox.path());

    let output = sandbox.run(["install", "--as", "plugin"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && stderr.contains("is a link") && stderr.contains("hint: "),
        "{stderr}"
    );
    assert_eq!(snapshot(sandbox.path()), before);

    let repository = snapshot(&theirs);
    sandbox.ok(["uninstall"]);
    assert!(!link.is_symlink());
    assert_eq!(snapshot(&theirs), repository);
}

#[test]
fn an_edited_file_of_the_plugin_is_kept_and_named() {
    let sandbox = home_with(None, None);
    sandbox.ok(["install", "--as", "plugin"]);
    let folder = sandbox.path().join(".claude/skills/nugget");
    let skill = folder.join("skills/review/SKILL.md");
    fs::write(&skill, "mine").unwrap();
    let told = "as it is not as nugget wrote it: skills/review/SKILL.md of the plugin";
    let repeated = sandbox.run(["install", "--as", "plugin"]);
    assert!(String::from_utf8_lossy(&repeated.stdout).contains("nothing was changed"), "{repeated:?}");
    assert!(String::from_utf8_lossy(&repeated.stderr).contains(told), "{repeated:?}");
    // Another file is missing, so that the plugin is written again; one is of an earlier version.
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let record = fs::read_dir(sandbox.path().join(".local/share/nugget/install")).unwrap().next();
    let record = record.unwrap().unwrap().path().join("record.json");
    let mut recorded: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    recorded["written"].as_array_mut().unwrap().push(hash("earlier").into());
    fs::write(&record, recorded.to_string()).unwrap();
    let earlier = folder.join("skills/brain/SKILL.md");
    fs::write(&earlier, "earlier").unwrap();
    fs::remove_file(folder.join("hooks/hooks.json")).unwrap();
    sandbox.ok(["install", "--as", "plugin"]);
    assert!(folder.join("hooks/hooks.json").exists());
    assert_eq!(fs::read_to_string(&skill).unwrap(), "mine");
    assert_ne!(fs::read_to_string(&earlier).unwrap(), "earlier");

    let printed = sandbox.ok(["uninstall"]);
    assert!(
        printed.contains(told) && printed.contains("in ~/.claude/skills/nugget; remove it there"),
        "{printed}"
    );
    let left: Vec<_> = snapshot(&folder).into_keys().filter(|path| path.is_file()).collect();
    assert_eq!(left, [skill]);
}

#[test]
fn a_moved_program_is_called_at_its_new_path() {
    let original = "{\"hooks\": {}}\n";
    let sandbox = home_with(Some(original.as_bytes()), None);
    let before = snapshot(&sandbox.path().join(".claude"));
    sandbox.ok(["install", "--as", "settings"]);
    assert!(read_text(&sandbox, ".claude/settings.json").contains(env!("CARGO_BIN_EXE_nugget")));
    // From now on PATH leads to it.
    let bin = sandbox.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_nugget"), bin.join("nugget")).unwrap();
    let output = sandbox.command().args(["install", "--as", "settings"]).env("PATH", &bin).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = read_text(&sandbox, ".claude/settings.json");
    assert!(
        after.contains("\"nugget session-start || exit 1\"") && !after.contains(env!("CARGO_BIN_EXE_nugget")),
        "{after}"
    );
    sandbox.ok(["uninstall"]);
    assert_eq!(snapshot(&sandbox.path().join(".claude")), before);
}

/// Runs the plugin's script in a folder of its own with these variables.
fn run_plugin_script(
    sandbox: &Sandbox,
    arguments: &str,
    input: &str,
    variables: &[(&str, &str)],
) -> (bool, String, String) {
    let folder = sandbox.path().join("scripts");
    fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin/scripts/nugget.sh");
    fs::copy(source, folder.join("nugget.sh")).unwrap();
    let mut child = Command::new("/bin/sh")
        .arg(folder.join("nugget.sh"))
        .args(arguments.split(' '))
        .env_clear()
        .env("HOME", sandbox.path())
        .env("PATH", "/usr/bin:/bin")
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A script that finds nothing to do may exit before it reads its input.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), lossy(&output.stdout), lossy(&output.stderr))
}

#[test]
fn no_hook_exits_with_2_whatever_is_in_its_programs_place() {
    let sandbox = Sandbox::new();
    // An older nugget, or another program of this name, refuses what it does not know.
    let other = sandbox.path().join("other/nugget");
    write_script(&other, "exit 2");
    let removed = sandbox.path().join("removed");
    fs::create_dir(&removed).unwrap();
    let commands = |file: &Path| -> Vec<String> {
        let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let events = file["hooks"].as_object().unwrap().values();
        events.map(|groups| groups[0]["hooks"][0]["command"].as_str().unwrap().to_owned()).collect()
    };
    let exit_code = |command: &str, plugin: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("CLAUDE_PLUGIN_ROOT", plugin).env("NUGGET_BIN", &other);
        shell.stdin(std::process::Stdio::null()).output().unwrap().status.code()
    };
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin");
    let of_plugin = commands(&plugin.join("hooks/hooks.json"));
    sandbox.ok(["install", "--as", "settings"]);
    let of_settings = commands(&sandbox.path().join(".claude/settings.json"));
    assert_eq!((of_plugin.len(), of_settings.len()), (7, 7));
    for command in of_plugin {
        assert_eq!(exit_code(&command, &removed), Some(1), "without its script: {command}");
        assert_eq!(exit_code(&command, &plugin), Some(1), "{command}");
    }
    for command in of_settings {
        let command = command.replace(env!("CARGO_BIN_EXE_nugget"), other.to_str().unwrap());
        assert_eq!(exit_code(&command, &removed), Some(1), "{command}");
    }
}

#[test]
fn the_guard_has_a_program_of_its_own_where_it_lies_beside_nugget() {
    let sandbox = Sandbox::new();
    let program = sandbox.path().join("bin/nugget");
    let write = |name: &str| write_script(&program.with_file_name(name), &format!("echo {name} $*"));
    let run = |argument: &str| {
        run_plugin_script(&sandbox, argument, "", &[("NUGGET_BIN", program.to_str().unwrap())]).1
    };
    write("nugget");
    assert_eq!(run("guard"), "nugget guard\n");
    write("nugget-guard");
    assert_eq!(run("guard"), "nugget-guard\n");
    assert_eq!(run("user-prompt"), "nugget user-prompt\n");
}

#[test]
fn a_missing_program_is_reported_once_in_one_line() {
    let sandbox = Sandbox::new();
    let begins = r#"{"hook_event_name": "SessionStart", "source": "startup"}"#;
    let (succeeded, stdout, stderr) = run_plugin_script(&sandbox, "session-start", begins, &[]);
    let output: Value = serde_json::from_str(&stdout).unwrap();
    assert!(succeeded && stderr.is_empty());
    assert!(output["systemMessage"].as_str().unwrap().contains("not installed"), "{output}");
    let silent = [
        ("session-start", r#"{"hook_event_name": "SessionStart", "source": "compact"}"#),
        ("session-start", r#"{"hook_event_name": "PreCompact", "trigger": "auto"}"#),
        ("user-prompt", "{}"),
        ("guard", "{}"),
        ("capture-session", "{}"),
    ];
    for (command, input) in silent {
        assert_eq!(
            run_plugin_script(&sandbox, command, input, &[]),
            (true, String::new(), String::new()),
            "{command}"
        );
    }
    let (succeeded, stdout, stderr) = run_plugin_script(&sandbox, "serve", "", &[]);
    assert!(succeeded && stdout.is_empty() && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn the_plugin_without_its_program_serves_how_to_install_it() {
    let sandbox = Sandbox::new();
    // As clients write them: members in any order, and texts that look like members.
    let requests = [
        r#"{"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"a \"id\":5, {[","version":"1","protocolVersion":"1999-01-01"},"id":9,"protocolVersion":"2025-06-18"},"jsonrpc":"2.0","id":0}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{}}}"#,
        r#"{"jsonrpc":"2.0", "id" : "a\"b\\é" , "method" : "ping" }"#,
        r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}"#,
        r#"{"id":-1,"jsonrpc":"2.0","method":"tools/call","params":{"name":"get_relevant_context","arguments":{"task_description":"the \"method\":\"ping\" of \\","files":[],"id":4}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"no/such/method"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":9}"#,
        r#"[{"jsonrpc":"2.0","id":3,"method":"ping"}]"#,
        r#""ping""#,
        r#"{"jsonrpc":"2.0","id":3,"method":"pi"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"ping"}}"#,
        "nonsense",
        "",
    ];
    let input = requests.join("\n");
    let (succeeded, stdout, _) = run_plugin_script(&sandbox, "serve", &input, &[]);
    assert!(succeeded);
    let answers: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shape = |answer: &Value| (answer["id"].to_string(), answer["error"]["code"].as_i64().unwrap_or(0));
    let shapes: Vec<_> = answers.iter().map(shape).collect();
    let expected = [
        ("0", 0),
        ("\"d\"", 0),
        ("\"a\\\"b\\\\é\"", 0),
        ("9007199254740993", 0),
        ("-1", 0),
        ("7", -32601),
        ("null", -32600),
        ("null", -32600),
        ("8", -32600),
        ("null", -32600),
        ("null", -32600),
        ("null", -32700),
        ("null", -32700),
        ("null", -32700),
    ];
    assert_eq!(shapes, expected.map(|(id, code)| (id.to_owned(), code)), "{stdout}");
    assert!(stdout.contains(r#""id":9007199254740993,"#), "ids are repeated as they were written");
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert!(answers[1]["result"]["supportedVersions"].as_array().unwrap().contains(&"2026-07-28".into()));
    let told = answers[4]["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("Install") && told.contains("NUGGET_BIN"), "{told}");
    assert_eq!(answers[4]["result"]["isError"], true);

    // It is the tool of the program, word for word.
    let mut client = crate::mcp::Client::start(&sandbox);
    client.initialize();
    let tools = client.ask(&serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    assert_eq!(answers[3]["result"]["tools"].to_string(), tools["result"]["tools"].to_string());
    assert!(client.close().success());
}

#[test]
fn the_plugin_finds_the_program_at_its_recorded_path() {
    let program = env!("CARGO_BIN_EXE_nugget");
    let version = format!("nugget {}\n", env!("CARGO_PKG_VERSION"));
    for name in ["NUGGET_BIN", "CLAUDE_PLUGIN_OPTION_BINARY"] {
        let sandbox = Sandbox::new();
        assert_eq!(run_plugin_script(&sandbox, "--version", "", &[(name, program)]).1, version, "{name}");
    }
    let sandbox = Sandbox::new();
    run_plugin_script(&sandbox, "serve", "", &[]);
    fs::write(sandbox.path().join("scripts/path"), format!("{program}\n")).unwrap();
    assert_eq!(run_plugin_script(&sandbox, "--version", "", &[]).1, version, "at the recorded path");
    fs::write(sandbox.path().join("scripts/path"), "/nowhere/nugget\n").unwrap();
    fs::create_dir_all(sandbox.path().join(".local/bin")).unwrap();
    symlink(program, sandbox.path().join(".local/bin/nugget")).unwrap();
    assert_eq!(
        run_plugin_script(&sandbox, "--version", "", &[]).1,
        version,
        "in a usual folder for programs"
    );
}
