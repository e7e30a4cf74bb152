//! A team's server through the real binary, and what a laptop does while it cannot be reached.

use std::net::TcpListener;

use serde_json::json;
use team::private_postgres::PrivatePostgres;
use team_client::Login;

use crate::mcp::Client;
use crate::support::{Sandbox, fixture};

/// Whether there is a PostgreSQL with pgvector. Where there must be one, it is a failure if there is none.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn has_postgres() -> bool {
    let found = PrivatePostgres::find().is_some_and(|programs| programs.have_vector());
    assert!(found || std::env::var_os("NUGGET_REQUIRE_POSTGRES").is_none(), "no PostgreSQL with pgvector");
    if !found {
        println!("skipped: no PostgreSQL with pgvector; name its programs in NUGGET_POSTGRES_BIN");
    }
    found
}

fn stderr_of(sandbox: &Sandbox, code: i32, arguments: &[&str]) -> String {
    let output = sandbox.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    stderr
}

/// Logs in to a server that does not exist, as if it had existed once.
fn log_in(sandbox: &Sandbox) -> String {
    // Makes the state folder.
    sandbox.ok(["retry", "--all"]);
    // A port that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let login = Login {
        url: url.clone(),
        brain: "payments".to_owned(),
        subject: "ada".to_owned(),
        token: "ngt_example".to_owned(),
    };
    login.write(&sandbox.state()).unwrap();
    url
}

#[test]
fn the_loop_of_a_team_goes_on_when_a_server_is_killed() {
    if !has_postgres() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    if let Some(programs) = std::env::var_os("NUGGET_POSTGRES_BIN") {
        command.env("NUGGET_POSTGRES_BIN", programs);
    }
    let output = command.args(["server", "demo"]).output().unwrap();
    let (shown, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}{stderr}");
    for part in [
        "has it as capture 1 of demo",
        "has the branch nugget/session-",
        "reviewed: merged",
        "no capture waits",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        shown.lines().filter(|line| line.chars().count() > 80).all(|line| line.starts_with("  ")),
        "{shown}"
    );
}

#[test]
fn errors_of_a_servers_commands_say_what_to_do() {
    let sandbox = Sandbox::with_brain();
    let none = stderr_of(&sandbox, 2, &["server"]);
    assert!(none.contains("no database is given") && none.contains("nugget server demo"), "{none}");
    let url = stderr_of(&sandbox, 1, &["server", "migrate", "--database", "mysql://x:secret@h/d"]);
    assert!(url.contains("not valid") && !url.contains("secret"), "{url}");
    let open = ["server", "--database", "postgres://u@/d?host=/nowhere", "--listen", "0.0.0.0:1"];
    let unreachable = stderr_of(&sandbox, 1, &open);
    assert!(unreachable.starts_with("error: ") && unreachable.lines().count() <= 3, "{unreachable}");
    let token = stderr_of(&sandbox, 2, &["login", "https://brains.example.com"]);
    assert!(token.contains("there is no token"), "{token}");
    let output = sandbox.run_with_input(&["login", "http://brains.example.com"], b"ngt_x\n");
    let plain = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && plain.contains("https"), "{plain}");
    assert_eq!(sandbox.ok(["logout"]), "this brain belongs to no server\n");
}

#[test]
fn a_capture_waits_for_a_server_that_cannot_be_reached_and_is_worked_on_here_after_a_logout() {
    let sandbox = Sandbox::with_brain();
    let url = log_in(&sandbox);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let mut capture = sandbox.command();
    capture.args(["capture-session", "--transcript"]).arg(transcript);
    // The worker that waits for the server still runs at the logout.
    capture.env("NUGGET_DRAINER_LINGER_SECONDS", "1");
    assert!(capture.output().unwrap().status.success());
    let waiting = || sandbox.json(["status", "--json"])["captures"][0].clone();
    crate::support::wait_until("it waits for the server", || {
        let capture = waiting();
        capture["stage"] == "upload"
            && capture["reason"].as_str().is_some_and(|reason| reason.contains("cannot be reached"))
    });
    assert!(url.starts_with("http://127.0.0.1:"));
    assert!(sandbox.ok(["logout"]).starts_with("logged out"));
    crate::support::wait_until("it is worked on here", || waiting()["state"] == "done");
    assert!(waiting()["branch"].as_str().is_some_and(|branch| branch.starts_with("nugget/session-")));
}

#[test]
fn a_question_is_answered_here_while_the_server_cannot_be_reached() {
    let sandbox = Sandbox::with_brain();
    sandbox.ok([
        "note",
        "add",
        "Staging database",
        "--content",
        "The staging database listens on port 6543.",
    ]);
    log_in(&sandbox);
    let mut client = Client::start_with(&sandbox, &[]);
    client.initialize();
    let params = json!({
        "name": "get_relevant_context",
        "arguments": { "task_description": "which port has the staging database?" },
    });
    for (number, why) in [(1, "did not answer in time"), (2, "did not answer a moment ago")] {
        let answer = client
            .ask(&json!({"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": params}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("6543") && text.contains(why), "{text}");
    }
}
