//! Sessions that the hook missed are found once, and only their new lines are read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::{ChildGuard, Sandbox, fixture, wait_until};

/// A machine whose client has a folder of its own, and where a transcript counts as idle at once.
struct Machine {
    sandbox: Sandbox,
}

impl Machine {
    fn new() -> Self {
        Self { sandbox: Sandbox::with_brain() }
    }

    fn client(&self) -> PathBuf {
        self.sandbox.path().join("client")
    }

    fn command(&self) -> Command {
        let mut command = self.sandbox.command();
        command.env("CLAUDE_CONFIG_DIR", self.client()).env("NUGGET_SWEEP_IDLE_MINUTES", "0");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Writes a transcript to the place where the client keeps that session's.
    fn transcript(&self, session: &str, content: &str) -> PathBuf {
        let path = self.client().join(format!("projects/-home-dev-shop/{session}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn status(&self) -> Value {
        self.json(&["status", "--json"])
    }

    /// Waits until all captures have ended, and returns the counts.
    fn wait_until_ended(&self) -> Value {
        let left = |queue: &Value| ["queued", "running", "retrying"].iter().any(|state| queue[*state] != 0);
        wait_until("all captures have ended", || !left(&self.status()["queue"]));
        self.status()["queue"].clone()
    }

    /// Sweeps by hand, and waits until all captures have ended.
    fn sync(&self, arguments: &[&str]) -> Value {
        let swept = self.json(&[&["sync", "--json"], arguments].concat());
        self.wait_until_ended();
        swept
    }

    /// Returns the files that each of nugget's branches adds, oldest capture first.
    fn branch_files(&self) -> Vec<BTreeSet<String>> {
        let captures = self.status()["captures"].clone();
        let branches =
            captures.as_array().unwrap().iter().rev().filter_map(|capture| capture["branch"].as_str());
        branches
            .map(|branch| {
                self.sandbox
                    .git(&["diff", "--name-only", &format!("main...{branch}")])
                    .lines()
                    .map(str::to_owned)
                    .collect()
            })
            .collect()
    }
}

fn session(name: &str) -> String {
    fs::read_to_string(fixture(&format!("transcripts/synthetic/{name}.jsonl"))).unwrap()
}

fn set_age(path: &Path, minutes: u64) {
    let modified = SystemTime::now() - Duration::from_secs(60 * minutes);
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn a_killed_session_is_found_by_the_next_worker() {
    let machine = Machine::new();
    machine.transcript("killed", &session("flywheel"));
    let next = machine.sandbox.path().join("next.jsonl");
    fs::write(&next, session("nothing_chat")).unwrap();
    assert!(machine.run(&["capture-session", "--transcript", next.to_str().unwrap()]).status.success());
    wait_until("both have ended", || {
        let queue = &machine.status()["queue"];
        queue["done"] == 1 && queue["nothing"] == 1
    });
    let captures = machine.status()["captures"].clone();
    assert_eq!((&captures[0]["origin"], &captures[0]["session_id"]), (&json!("sweep"), &json!("killed")));
    assert_eq!(machine.status()["sweep"]["queued"], 1);
}

#[test]
fn a_server_sweeps_when_no_session_ends() {
    let machine = Machine::new();
    machine.transcript("killed", &session("flywheel"));
    let server = machine
        .command()
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _server = ChildGuard(server);
    wait_until("the session is captured", || machine.status()["queue"]["done"] == 1);
}

#[test]
fn a_session_is_captured_once_it_is_idle() {
    let machine = Machine::new();
    let path = machine.transcript("a", &session("flywheel"));
    let sync = |idle: &str, since: &str| -> Value {
        let mut command = machine.command();
        let output =
            command.args(["sync", "--json", "--since", since]).env("NUGGET_SWEEP_IDLE_MINUTES", idle);
        serde_json::from_slice(&output.output().unwrap().stdout).unwrap()
    };
    set_age(&path, 10);
    let swept = sync("15", "1h");
    assert_eq!((&swept["queued"], &swept["skipped"]), (&json!([]), &json!({"active": 1})));
    assert_eq!(sync("5", "5m")["skipped"], json!({"old": 1}));
    assert_eq!(sync("5", "1h")["queued"][0]["session_id"], "a");
    machine.wait_until_ended();
}

#[test]
fn a_resumed_session_adds_only_its_new_lines() {
    let machine = Machine::new();
    let path = machine.transcript("a", &session("flywheel"));
    assert_eq!(machine.sync(&[])["queued"][0]["session_id"], "a");
    let unchanged = machine.sync(&[]);
    assert_eq!((&unchanged["queued"], &unchanged["skipped"]), (&json!([]), &json!({"unchanged": 1})));

    fs::write(&path, session("flywheel") + &session("rust_pool")).unwrap();
    assert_eq!(machine.sync(&[])["queued"][0]["session_id"], "a");
    let added = machine.branch_files();
    assert_eq!(added.len(), 2, "{:#}", machine.status());
    assert!(!added[1].is_empty() && added[0].is_disjoint(&added[1]), "{added:#?}");
    assert_eq!(machine.sync(&["--all"])["skipped"], json!({"unchanged": 1}));
    assert_eq!(machine.status()["captures"].as_array().unwrap().len(), 2);
}

#[test]
fn a_session_reported_by_a_hook_is_not_swept() {
    let machine = Machine::new();
    let path = machine.transcript("5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913", &session("flywheel"));
    // Under another path than the sweep's: the folder is a symlink.
    let link = machine.sandbox.path().join("link");
    std::os::unix::fs::symlink(machine.client(), &link).unwrap();
    let announced = link.join(path.strip_prefix(machine.client()).unwrap());
    let hook = json!({ "session_id": "5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913", "transcript_path": announced });
    let output =
        machine.sandbox.run_with_input(&["capture-session", "--wait"], format!("{hook}\n").as_bytes());
    assert!(output.status.success());
    assert_eq!(machine.sync(&["--all"])["skipped"], json!({"unchanged": 1}));
}

#[test]
fn a_fork_proposes_nothing_twice() {
    let machine = Machine::new();
    machine.transcript("original", &session("flywheel"));
    machine.transcript("fork", &session("flywheel"));
    assert_eq!(machine.sync(&[])["queued"].as_array().unwrap().len(), 2);
    let queue = machine.wait_until_ended();
    assert_eq!((&queue["done"], &queue["nothing"]), (&json!(1), &json!(1)), "{queue}");
    assert_eq!(machine.branch_files().len(), 1);
}

#[test]
fn a_thousand_old_sessions_do_not_flood_a_new_brain() {
    let machine = Machine::new();
    for i in 0..1000 {
        let line = json!({
            "type": "user", "uuid": format!("u{i}"), "cwd": "/home/dev/shop",
            "message": { "role": "user", "content": "hello" },
        });
        let path = machine.transcript(&format!("old-{i}"), &format!("{line}\n"));
        set_age(&path, 60 * 24 + i);
    }
    let swept = machine.sync(&[]);
    assert_eq!((&swept["found"], &swept["queued"]), (&json!(1000), &json!([])));
    assert_eq!(swept["skipped"], json!({"old": 1000}));
    // Now all of them are from today, and the limit applies.
    for i in 0..1000 {
        set_age(&machine.client().join(format!("projects/-home-dev-shop/old-{i}.jsonl")), 0);
    }
    let swept = machine.sync(&[]);
    assert_eq!(swept["queued"].as_array().unwrap().len(), 20);
    assert_eq!(machine.sync(&[])["skipped"], json!({"unchanged": 20, "later": 980}));
    assert_eq!(machine.status()["captures"].as_array().unwrap().len(), 10);
    assert_eq!(machine.wait_until_ended()["nothing"], 20);
    // A sweep by hand has no limit.
    let swept = machine.json(&["sync", "--all", "--dry-run", "--json"]);
    assert_eq!(swept["queued"].as_array().unwrap().len(), 980);
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new();
    machine.transcript("a", &session("flywheel"));
    let printed = String::from_utf8(machine.run(&["sync", "--dry-run"]).stdout).unwrap();
    assert!(printed.contains("/home/") && printed.contains("1 of 1 session would be queued"), "{printed}");
    assert!(!machine.sandbox.path().join("state").exists());
    assert_eq!(machine.status()["queue"]["queued"], 0);
}

#[test]
fn excluded_sessions_are_skipped_by_hook_and_sweep() {
    let machine = Machine::new();
    let line = |cwd: &str| {
        let line =
            json!({"type": "user", "uuid": cwd, "cwd": cwd, "message": {"role": "user", "content": "hi"}});
        format!("{line}\n")
    };
    machine.transcript("secret", &line("/home/dev/secret-shop/src"));
    machine.transcript("agent-1", &line("/home/dev/shop"));
    let own = machine.sandbox.path().join("state/nugget/calls");
    machine.transcript("own", &line(own.to_str().unwrap()));
    let declined = machine.transcript("declined", &line("/home/dev/shop"));

    let hook = |path: &Path, cwd: &str| {
        json!({"session_id": path.file_stem().unwrap().to_str(), "transcript_path": path, "cwd": cwd})
            .to_string()
    };
    let run = |arguments: &[&str], variables: &[(&str, &str)], input: String| -> String {
        let file = machine.sandbox.path().join("input");
        fs::write(&file, input + "\n").unwrap();
        let mut command = machine.command();
        let output = command.args(arguments).envs(variables.iter().copied()).stdin(File::open(file).unwrap());
        let output = output.output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let exclude = ("NUGGET_CAPTURE_EXCLUDE", "~/work, secret-*");
    assert_eq!(run(&["capture-session"], &[("NUGGET_DISABLE", "1")], hook(&declined, "/home/dev/shop")), "");
    let secret = machine.client().join("projects/-home-dev-shop/secret.jsonl");
    let printed = run(&["capture-session"], &[exclude], hook(&secret, "/home/dev/secret-shop/src"));
    assert!(printed.contains("is skipped: capture.exclude covers its project"), "{printed}");

    let swept: Value =
        serde_json::from_str(&run(&["sync", "--all", "--json"], &[exclude], String::new())).unwrap();
    assert_eq!(swept["queued"], json!([]));
    assert_eq!(swept["skipped"], json!({"declined": 1, "excluded": 1, "own": 1}));
    assert_eq!(machine.sync(&[])["queued"][0]["session_id"], "secret", "without the setting");
}

#[test]
fn a_disabled_session_whose_client_is_killed_is_not_captured() {
    let machine = Machine::new();
    let real = machine.sandbox.path().join("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, machine.client()).unwrap();
    for (session, hook) in [("started", "session-start"), ("prompted", "user-prompt")] {
        let transcript = machine.client().join(format!("projects/-home-dev-shop/{session}.jsonl"));
        let input = machine.sandbox.path().join("input");
        let line = json!({ "session_id": session, "transcript_path": transcript, "cwd": "/home/dev/shop" });
        fs::write(&input, format!("{line}\n")).unwrap();
        let mut command = machine.command();
        let output = command.arg(hook).env("NUGGET_DISABLE", "1").stdin(File::open(input).unwrap());
        let output = output.output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
    // The first hook runs before there is a transcript.
    for session in ["started", "prompted"] {
        let content = json!({ "role": "user", "content": "hi" });
        let line = json!({ "type": "user", "uuid": "1", "cwd": "/home/dev/shop", "message": content });
        machine.transcript(session, &format!("{line}\n"));
    }
    let swept = machine.json(&["sync", "--all", "--json"]);
    assert_eq!((&swept["queued"], &swept["skipped"]), (&json!([]), &json!({ "declined": 2 })));
}

#[test]
fn a_session_waits_while_the_settings_cannot_say_where_it_may_go() {
    let mut sandbox = crate::support::Sandbox::with_brain();
    sandbox.variables.push(("NUGGET_BRAIN".into(), sandbox.brain().display().to_string()));
    let config = sandbox.path().join("config/nugget/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let cwd = "/home/dev/secret-shop";
    let transcript = sandbox.path().join("s1.jsonl");
    let line =
        json!({ "type": "user", "uuid": "1", "cwd": cwd, "message": { "role": "user", "content": "hi" } });
    fs::write(&transcript, format!("{line}\n")).unwrap();
    let hook = json!({ "session_id": "s1", "transcript_path": transcript, "cwd": cwd }).to_string() + "\n";
    let waits = |code: i32| {
        let queued = sandbox.run_with_input(&["capture-session"], hook.as_bytes());
        let printed = String::from_utf8_lossy(&queued.stdout).into_owned();
        assert!(queued.status.success() && printed.contains("queued"), "{printed}");
        let refused = sandbox.run(["drain"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{error}");
    };
    for broken in ["capture = [", "[capture]\nexclud = \"secret-*\"\n"] {
        fs::write(&config, broken).unwrap();
        waits(2);
    }
    fs::remove_file(&config).unwrap();
    let names = config.with_file_name(".nuggetignore");
    fs::create_dir(&names).unwrap();
    waits(1);
    fs::remove_dir(&names).unwrap();
    // A byte that is not UTF-8 voids no line.
    fs::write(&names, b"\xef\xbb\xbf# caf\xe9\nsecret-*\n").unwrap();
    sandbox.ok(["drain"]);
    // The worker that the hook started may have read the settings only now, and be at work.
    let capture = || sandbox.json(["status", "--json"])["captures"][0].clone();
    wait_until("the capture has ended", || capture()["state"] != "queued" && capture()["state"] != "running");
    let capture = capture();
    assert_eq!(
        (&capture["state"], &capture["reason"]),
        (&json!("nothing"), &json!("capture.exclude covers the session's project"))
    );
    let by_hand = sandbox.capture(&transcript);
    assert_eq!(by_hand["reason"], "capture.exclude covers the session's project", "{by_hand}");
}

#[test]
fn what_is_captured_after_a_change_of_the_settings_goes_by_them() {
    let mut sandbox = crate::support::Sandbox::with_brain();
    // The worker of the first session waits for more while the settings change.
    sandbox.variables.push(("NUGGET_DRAINER_LINGER_SECONDS".into(), "60".into()));
    let config = sandbox.path().join("config/nugget/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let session = |name: &str, cwd: &str| {
        let path = sandbox.path().join(format!("{name}.jsonl"));
        let content = json!({ "role": "user", "content": format!("hi from {name}") });
        let line = json!({ "type": "user", "uuid": name, "cwd": cwd, "sessionId": name, "message": content });
        fs::write(&path, format!("{line}\n")).unwrap();
        path
    };
    let first = sandbox.capture(&session("s0", "/home/dev/shop"));
    assert_eq!(first["state"], "nothing");
    assert_eq!(sandbox.json(["status", "--json"])["drainer"]["running"], true);
    for (round, excluded) in ["red", "green", "blue", "grey"].into_iter().enumerate() {
        // The last one is named by the file beside the settings.
        let (file, text) = match excluded {
            "grey" => (config.with_file_name(".nuggetignore"), format!("{excluded}\n")),
            _ => (config.clone(), format!("[capture]\nexclude = \"{excluded}\"\n")),
        };
        fs::write(file, text).unwrap();
        let left = sandbox.capture(&session(&format!("a{round}"), &format!("/home/dev/{excluded}")));
        assert_eq!(left["reason"], "capture.exclude covers the session's project", "{left}");
        let read = sandbox.capture(&session(&format!("b{round}"), "/home/dev/shop"));
        assert_ne!(read["reason"], left["reason"], "{read}");
    }
    let archived = sandbox.json(["sessions", "--json"]);
    for excluded in ["/home/dev/red", "/home/dev/grey"] {
        assert!(!archived.to_string().contains(excluded), "{archived}");
    }
}

#[test]
fn a_running_server_no_longer_sweeps_once_that_is_off() {
    let machine = Machine::new();
    let mut command = machine.command();
    command.env("NUGGET_MCP_TOOLS", "create_note");
    let mut server = Client::spawn(command);
    server.initialize();
    wait_until("the server has swept", || !machine.status()["sweep"].is_null());
    assert!(machine.run(&["config", "set", "sweep.enabled", "off"]).status.success());
    machine.transcript("killed", &session("flywheel"));
    let aged = "UPDATE reports SET at_ms = 0 WHERE name = 'sweep'";
    let queue = rusqlite::Connection::open(machine.sandbox.state().join("queue.db")).unwrap();
    queue.busy_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(queue.execute(aged, []).unwrap(), 1);
    // A server that has noted something looks after the queue: it would sweep, and then starts a worker.
    let note = json!({ "title": "Roadmap", "content": "Written by an agent." });
    let params = json!({ "name": "create_note", "arguments": note });
    server.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
    wait_until("a worker has delivered the note", || machine.status()["captures"][0]["state"] == "done");
    let captures = machine.status()["captures"].clone();
    assert_eq!(captures.as_array().unwrap().len(), 1, "{captures}");
    assert!(server.close().success());
}

#[test]
fn the_sweep_can_be_disabled_and_still_run_by_hand() {
    let machine = Machine::new();
    machine.transcript("a", &session("flywheel"));
    let next = machine.sandbox.path().join("next.jsonl");
    fs::write(&next, session("nothing_chat")).unwrap();
    let mut command = machine.command();
    command.args(["capture-session", "--wait", "--transcript"]).arg(&next).env("NUGGET_SWEEP_ENABLED", "off");
    assert!(command.output().unwrap().status.success());
    assert_eq!(machine.wait_until_ended()["done"], 0);
    assert_eq!(machine.status()["sweep"], Value::Null);
    assert_eq!(machine.sync(&[])["queued"].as_array().unwrap().len(), 1);
    assert_eq!(machine.wait_until_ended()["done"], 1);
}

#[test]
fn an_invalid_time_is_refused() {
    let machine = Machine::new();
    for nonsense in ["yesterday", "7y", ""] {
        let output = machine.run(&["sync", "--since", nonsense]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("is not a time") && stderr.contains("hint: give 7d"), "{stderr}");
    }
    let output = machine.run(&["sync"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("found no transcripts in "));
}
