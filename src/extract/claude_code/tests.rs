//! Tests against a script named `claude` that records its calls and prints a fixture.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::prompt::{self, AlsoAsked};

const TRANSCRIPT: &str = "[1] human:\n  the canary of the session\n";

struct FakeClient {
    folder: tempfile::TempDir,
}

impl FakeClient {
    /// `script` runs after the call was recorded; `auth status` reports a login.
    fn new(script: &str) -> Self {
        Self::running(&format!(
            "if [ \"$1\" = auth ]; then echo status >> $here/calls; echo '{{\"loggedIn\":true}}'; exit 0; fi\n\
             printf '%s\\0' \"$@\" > $here/argv\nenv > $here/env\npwd > $here/cwd\ncat > $here/stdin\necho call >> $here/calls\n{script}",
        ))
    }

    /// `script` is all of the program; `$here` is the folder of the records.
    fn running(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("#!/bin/sh\nhere={}\n{script}\n", folder.path().display());
        // Another process writes the program: what any process has open for writing cannot be run, and a child that is
        // just being started has a copy of all that its parent has open.
        let written = folder.path().join("claude.sh");
        std::fs::write(&written, text).unwrap();
        let program = folder.path().join("claude");
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "755"]).args([&written, &program]).status().unwrap().success());
        Self { folder }
    }

    fn printing(fixture: &str, exit: u8) -> Self {
        let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/claude_outputs")
            .join(fixture);
        Self::new(&format!("cat {}\nexit {exit}", fixture.canonicalize().unwrap().display()))
    }

    fn client(&self, deadline: Duration) -> ClaudeCode {
        ClaudeCode::new(Settings {
            program: self.folder.path().join("claude"),
            model: "claude-haiku-4-5".into(),
            deadline,
            folder: super::working_folder(&self.folder.path().join("state")),
        })
    }

    async fn ask(&self) -> BackendAnswer {
        let question = Question {
            system: prompt::SYSTEM,
            tool: prompt::tool(AlsoAsked::default()),
            user: TRANSCRIPT.to_owned(),
            output_tokens_max: 1_000,
        };
        self.client(Duration::from_secs(60)).ask(&question).await
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

#[tokio::test]
async fn the_session_is_passed_by_standard_input_alone() {
    let fake = FakeClient::printing("print_json_schema_ok.json", 0);
    let answer = fake.ask().await;
    assert_eq!(answer.result.unwrap()["items"][0]["kind"], "decision");
    match answer.cost {
        Cost::Known { model, usage, microdollars } => {
            assert_eq!(
                (model.as_str(), usage.tokens(), microdollars),
                ("claude-opus-5-5", 12_479, Some(50_588))
            );
        }
        cost => panic!("{cost:?}"),
    }
    let arguments = fake.read("argv");
    let arguments: Vec<&str> = arguments.trim_end_matches('\0').split('\0').collect();
    for flag in ["-p", "--safe-mode", "--no-session-persistence", "--strict-mcp-config", "--json-schema"] {
        assert!(arguments.contains(&flag), "{flag} in {arguments:?}");
    }
    let value = |flag: &str| arguments[arguments.iter().position(|argument| *argument == flag).unwrap() + 1];
    assert_eq!(
        (value("--tools"), value("--output-format"), value("--model")),
        ("", "json", "claude-haiku-4-5")
    );
    assert!(
        serde_json::from_str::<Value>(value("--json-schema")).unwrap()["properties"]["units"].is_object()
    );
    assert!(!arguments.concat().contains("canary"), "the session must not be in the arguments");
    assert_eq!(fake.read("stdin"), TRANSCRIPT);
    assert!(fake.read("env").lines().any(|line| line == "NUGGET_DISABLE=1"));
    assert!(!fake.read("env").contains("CARGO_MANIFEST_DIR="), "other variables are not passed on");
    assert!(fake.read("cwd").trim().ends_with("state/claude"), "{}", fake.read("cwd"));
}

#[test]
fn the_environment_is_filtered_and_has_no_key() {
    let all = [
        "PATH",
        "HOME",
        "LC_ALL",
        "https_proxy",
        "CLAUDE_CONFIG_DIR",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        "CLAUDECODE",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_PROJECT_DIR",
        "CLAUDE_CODE_ENTRYPOINT",
        "GITHUB_TOKEN",
        "DATABASE_URL",
        "NUGGET_BRAIN",
    ];
    let passed = client_environment(all.into_iter().map(|name| (name.into(), "x".into())));
    let mut passed: Vec<_> = passed.into_keys().map(|name| name.into_string().unwrap()).collect();
    passed.sort();
    assert_eq!(passed, ["ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "HOME", "LC_ALL", "PATH", "https_proxy"]);
}

#[tokio::test]
async fn each_failure_is_classified() {
    let answer = FakeClient::printing("print_json_schema_model_ignored_tool.json", 0).ask().await;
    assert!(matches!(answer.result, Err(BackendError::Malformed(_))), "{answer:?}");
    assert!(
        matches!(answer.cost, Cost::Known { microdollars: Some(101_464), .. }),
        "a malformed answer is billed too"
    );

    let answer = FakeClient::printing("print_json_api_400.json", 1).ask().await;
    assert!(matches!(answer.result, Err(BackendError::TooLarge(_))), "{answer:?}");
    assert!(matches!(answer.cost, Cost::Free));

    let answer = FakeClient::printing("print_json_api_401_after_177s.json", 1).ask().await;
    assert!(
        matches!(&answer.result, Err(BackendError::Busy { message, .. }) if message.contains("Invalid API key")),
        "{answer:?}"
    );

    let limit = r#"echo '{"is_error":true,"api_error_status":429,"result":"limit reached"}'; exit 1"#;
    assert!(matches!(FakeClient::new(limit).ask().await.result, Err(BackendError::Busy { .. })));
    assert!(matches!(FakeClient::new("echo not json").ask().await.result, Err(BackendError::Malformed(_))));
    assert!(matches!(
        FakeClient::new("head -c 20000000 /dev/zero").ask().await.result,
        Err(BackendError::Malformed(_))
    ));
    let ended = |stop: &str, output: u32| {
        let said =
            r#"{"subtype":"error_max_structured_output_retries","is_error":true,"errors":["it gave up"]"#;
        let usage = format!(r#""usage":{{"input_tokens":{output},"output_tokens":{output}}}"#);
        FakeClient::new(&format!("echo '{said},\"stop_reason\":\"{stop}\",{usage}}}'; exit 1"))
    };
    let answer = ended("tool_use", 500).ask().await;
    assert_eq!(answer.result, Err(BackendError::GaveUp("it gave up".to_owned())));
    assert!(matches!(answer.cost, Cost::Known { .. }), "{answer:?}");
    assert!(matches!(ended("max_tokens", 500).ask().await.result, Err(BackendError::TooLarge(_))));
    assert!(
        matches!(ended("", 0).ask().await.result, Err(BackendError::Busy { .. })),
        "nothing was answered"
    );

    let old = "echo 'error: unknown option --safe-mode' >&2; exit 1";
    let answer = FakeClient::new(old).ask().await;
    match answer.result {
        Err(BackendError::Permanent(what)) => assert!(what.contains("unknown option"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(answer.cost, Cost::Free), "nothing was sent");
    let killed = FakeClient::new("kill -9 $$").ask().await;
    assert!(matches!(killed.cost, Cost::Unknown), "{killed:?}");
    let fake = FakeClient::new("");
    std::fs::remove_file(fake.folder.path().join("claude")).unwrap();
    let answer = fake.ask().await;
    assert!(matches!(answer.result, Err(BackendError::Permanent(_))) && matches!(answer.cost, Cost::Free));
}

#[tokio::test]
async fn an_answer_without_counted_tokens_is_read_and_has_its_price() {
    for usage in ["", r#""usage":null,"#] {
        let printed = format!(r#"{{{usage}"structured_output":{{"units":[]}},"total_cost_usd":1.5}}"#);
        let answer = FakeClient::new(&format!("echo '{printed}'")).ask().await;
        assert!(answer.result.is_ok(), "{answer:?}");
        assert!(matches!(answer.cost, Cost::Known { microdollars: Some(1_500_000), .. }), "{answer:?}");
    }
}

#[tokio::test]
async fn the_deadline_kills_the_client_and_its_children() {
    let fake = FakeClient::new("sleep 600 &\necho $! > $here/helper\nwait");
    let begun = Instant::now();
    let question = Question {
        system: "s",
        tool: prompt::tool(AlsoAsked { topics: true, records: true }),
        user: "u".into(),
        output_tokens_max: 1,
    };
    let client = fake.client(Duration::from_secs(3));
    let answer = client.ask(&question).await;
    assert!(
        matches!(answer.result, Err(BackendError::Slow(_))) && matches!(answer.cost, Cost::Unknown),
        "{answer:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(30));
    let helper = fake.read("helper").trim().to_owned();
    // A killed process stays in the table as a zombie until its parent waits for it.
    let is_running = || {
        let stat = std::fs::read_to_string(format!("/proc/{helper}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while is_running() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the helper is still running");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn the_login_is_checked_once() {
    let fake = FakeClient::new("");
    let client = fake.client(Duration::from_secs(60));
    assert_eq!((client.is_ready().await, client.is_ready().await), (Ok(true), Ok(true)));
    assert_eq!(fake.read("calls"), "status\n");
    let out = FakeClient::running("echo status >> $here/calls; echo '{\"loggedIn\":false}'; exit 1");
    assert_eq!(out.client(Duration::from_secs(60)).is_ready().await, Ok(false));
    assert_eq!(out.read("calls"), "status\n");
    std::fs::remove_file(out.folder.path().join("claude")).unwrap();
    assert_eq!(out.client(Duration::from_secs(60)).is_ready().await, Ok(false), "no such program");
}

#[tokio::test]
async fn a_client_that_cannot_tell_its_login_is_asked_again() {
    let fake = FakeClient::new("");
    let client = fake.client(Duration::from_secs(60));
    // What is being written cannot be run.
    let update = std::fs::OpenOptions::new().append(true).open(fake.folder.path().join("claude")).unwrap();
    assert!(client.is_ready().await.unwrap_err().contains("cannot be started"));
    drop(update);
    // A child of another test may still have a copy of the file.
    while client.is_ready().await != Ok(true) {
        tokio::task::yield_now().await;
    }
}
