//! `nugget config` reads and writes settings, and keeps what a person wrote.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::Sandbox;

const FILE: &str = "# mine\nbrain = \"BRAIN\"  # here\n\n[retrieve]\n  limit = 3   # few\n";

/// A sandbox whose configuration file has comments.
fn with_file() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::with_brain();
    let path = sandbox.path().join("config/nugget/config.toml");
    fs::write(&path, FILE.replace("BRAIN", sandbox.brain().to_str().unwrap())).unwrap();
    (sandbox, path)
}

#[test]
fn a_setting_is_read_and_written_and_comments_stay() {
    let (sandbox, path) = with_file();
    let before = fs::read_to_string(&path).unwrap();
    assert_eq!(sandbox.ok(["config", "get", "retrieve.limit"]), "3\n");
    let printed = sandbox.ok(["config", "set", "retrieve.limit", "7"]);
    assert_eq!(printed, "retrieve.limit = 7  (was 3; in ~/config/nugget/config.toml)\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), before.replace("limit = 3 ", "limit = 7 "));
    sandbox.ok(["config", "set", "extract.backend", "heuristic"]);
    let set = sandbox.json(["config", "set", "retrieve.rerank", "off", "--json"]);
    assert_eq!(
        (&set["before"], &set["value"], &set["overridden_by"]),
        (&json!("auto"), &json!("off"), &json!(null))
    );
    let after = before.replace("limit = 3   # few\n", "limit = 7   # few\nrerank = \"off\"\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{after}\n[extract]\nbackend = \"heuristic\"\n"));
    let got = sandbox.json(["config", "get", "extract.backend", "--json"]);
    assert_eq!(got["setting"]["value"], "heuristic");
    assert_eq!(got["setting"]["allowed"], "one of auto, api, claude-p, heuristic");
    // Hooks run in other folders than this command.
    let set = sandbox.json(["config", "set", "brain", "brain", "--json"]);
    assert_eq!(set["value"], json!(sandbox.path().join("brain")));
    sandbox.ok(["config", "unset", "brain"]);
    sandbox.ok(["config", "unset", "retrieve.limit"]);
    assert_eq!(sandbox.ok(["config", "get", "retrieve.limit"]), "10\n");
    // Twice is no error.
    sandbox.ok(["config", "unset", "retrieve.limit"]);
    assert_eq!(sandbox.ok(["config", "list"]), sandbox.ok(["config"]));
}

#[test]
fn the_brain_by_default_is_printed_and_a_misspelt_setting_is_taken_out() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.ok(["config", "get", "brain"]), "\n");
    sandbox.ok(["init"]);
    sandbox.ok(["config", "unset", "brain"]);
    let brain = sandbox.brain();
    assert_eq!(sandbox.ok(["config", "get", "brain"]), format!("{}\n", brain.display()));
    let got = sandbox.json(["config", "get", "brain", "--json"]);
    assert_eq!((&got["setting"]["value"], &got["setting"]["from"]), (&json!(brain), &json!("default")));

    let refused = sandbox.run(["config", "unset", "retrieve.limt"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("did you mean `retrieve.limit`"),
        "{refused:?}"
    );
    let path = sandbox.path().join("config/nugget/config.toml");
    fs::write(&path, "[retrieve]\nlimt = 3\nlimit = 4\n").unwrap();
    assert_eq!(sandbox.run(["list"]).status.code(), Some(2));
    let told = sandbox.ok(["config", "unset", "retrieve.limt"]);
    assert_eq!(told, "removed retrieve.limt, which is no setting, from ~/config/nugget/config.toml\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "[retrieve]\nlimit = 4\n");
    sandbox.ok(["list"]);
}

#[test]
fn what_a_setting_does_not_allow_is_refused_and_not_written() {
    let (sandbox, path) = with_file();
    let before = fs::read_to_string(&path).unwrap();
    for (key, value, error) in [
        (
            "retrieve.limit",
            "51",
            "`retrieve.limit` cannot be \"51\"; nothing was written\nhint: it takes a whole number from 1 to 50",
        ),
        (
            "retrieve.rerank",
            "on",
            "`retrieve.rerank` cannot be \"on\"; nothing was written\nhint: it takes one of auto, off",
        ),
        ("model.url", "http://example.com", "hint: it takes an https address, or http to this machine"),
        (
            "retrieve.limits",
            "5",
            "there is no setting `retrieve.limits`\nhint: did you mean `retrieve.limit`",
        ),
        ("rerank", "off", "hint: did you mean `retrieve.rerank`"),
    ] {
        let output = sandbox.run(["config", "set", key, value]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(error), "{stderr}");
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }
    fs::write(&path, "[retrieve\n").unwrap();
    let output = sandbox.run(["config", "set", "retrieve.limit", "5"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("is not valid TOML: line 1") && stderr.contains("nothing was written"),
        "{stderr}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "[retrieve\n");
}

#[test]
fn a_variable_that_overrides_a_written_setting_is_named() {
    let (sandbox, _) = with_file();
    let mut command = sandbox.command();
    let output = command
        .args(["config", "set", "retrieve.limit", "7"])
        .env("NUGGET_RETRIEVE_LIMIT", "9")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "note: NUGGET_RETRIEVE_LIMIT is set and overrides it\n");
}

#[test]
fn the_file_is_edited_in_the_editor_and_an_error_keeps_the_old_one() {
    let (mut sandbox, path) = with_file();
    let before = fs::read_to_string(&path).unwrap();
    sandbox.variables.push(("TMPDIR".into(), sandbox.path().display().to_string()));
    sandbox.variables.push(("EDITOR".into(), "sed -i 's/limit = 3/limit = 4/'".into()));
    assert_eq!(sandbox.ok(["config", "edit"]), "saved ~/config/nugget/config.toml\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), before.replace("limit = 3", "limit = 4"));
    assert_eq!(sandbox.json(["config", "edit", "--json"])["changed"], false);
    sandbox.variables.pop();
    sandbox.variables.push(("EDITOR".into(), "sed -i 's/limit = 4/limit = 99/'".into()));
    let output = sandbox.run(["config", "edit"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("which is not a whole number from 1 to 50"), "{stderr}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before.replace("limit = 3", "limit = 4"));
    let kept = stderr.rsplit("kept in ").next().unwrap().trim();
    assert!(fs::read_to_string(kept).unwrap().contains("limit = 99"), "{stderr}");
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let (sandbox, path) = with_file();
    let target = sandbox.path().join("dotfiles.toml");
    fs::rename(&path, &target).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    sandbox.ok(["config", "set", "retrieve.limit", "7"]);
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(fs::read_to_string(&target).unwrap().contains("limit = 7   # few"));
}

#[test]
fn config_set_tells_the_old_value_and_warns_of_a_missing_brain() {
    let sandbox = Sandbox::with_brain();
    let mut command = sandbox.command();
    command.args(["config", "set", "retrieve.limit", "5"]).env("NUGGET_RETRIEVE_LIMIT", "3");
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("(was 10;"), "{printed}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("NUGGET_RETRIEVE_LIMIT is set and overrides it")
    );
    let output = sandbox.run(["config", "set", "brain", "/nonexistent/brain"]);
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && warning.contains("there is no brain at /nonexistent/brain"),
        "{warning}"
    );
    let output = sandbox.run(["config", "set", "brain", sandbox.brain().to_str().unwrap()]);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_path_is_written_as_absolute_and_a_name_as_it_is() {
    let (sandbox, _) = with_file();
    fs::write(sandbox.path().join("key"), "k\n").unwrap();
    let set = |key: &str, value: &str| {
        let mut command = sandbox.command();
        let output = command
            .args(["config", "set", "--json", key, value])
            .current_dir(sandbox.path())
            .output()
            .unwrap();
        let set: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (set["value"].as_str().unwrap().to_owned(), String::from_utf8(output.stderr).unwrap())
    };
    let absolute = |name: &str| sandbox.path().join(name).display().to_string();
    assert_eq!(set("model.key_file", "key"), (absolute("key"), String::new()));
    for (key, value) in
        [("embed.key_file", "none"), ("embed.model", "none.onnx"), ("extract.claude", "bin/claude")]
    {
        let (stored, note) = set(key, value);
        assert_eq!(stored, absolute(value));
        assert!(note.contains(&format!("note: there is no file ~/{value}\n")), "{note}");
    }
    for (key, value) in
        [("model.key_file", "~/key"), ("model.key_file", ""), ("extract.claude", "claude-next")]
    {
        assert_eq!(set(key, value).0, value);
    }
    // A provider's model may be named before the provider.
    assert_eq!(set("embed.model", "acme/embed-1"), ("acme/embed-1".to_owned(), String::new()));
    std::fs::create_dir(sandbox.path().join("models")).unwrap();
    std::fs::write(sandbox.path().join("models/mine"), "").unwrap();
    assert_eq!(set("embed.model", "models/mine").0, absolute("models/mine"));
    set("embed.provider", "openai");
    assert_eq!(set("embed.model", "acme/embed-1"), ("acme/embed-1".to_owned(), String::new()));
}
