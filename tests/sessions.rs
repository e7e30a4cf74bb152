//! Sessions are kept and found again, through the real binary.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::Sandbox;

const FIRST: &str = "5a3b7c1e-0000-4000-8000-000000000001";
const SECOND: &str = "9f00aa11-0000-4000-8000-000000000002";
const SECRET: &str = "ghp_x7Kq2mZp9Rt4Wv6Yb8Nc1Ds3Fg5Hj0Lk2AbQ";

/// A line of a transcript; `number` makes it unique within the session.
fn line(session: &str, number: u32, at: &str, kind: &str, content: Value) -> String {
    let mut message = json!({ "role": kind, "content": content });
    if kind == "assistant" {
        message["model"] = json!("claude-opus-4-5-20251101");
        message["id"] = json!(format!("msg_{session}_{number}"));
        message["usage"] = json!({ "input_tokens": 1000, "output_tokens": 200 });
    }
    json!({
        "type": kind, "uuid": format!("{}-{number:012}", &session[..23]), "sessionId": session, "timestamp": at,
        "cwd": "/home/dev/shop", "gitBranch": "main", "version": "2.1.330", "message": message,
    })
    .to_string()
}

fn write(sandbox: &Sandbox, session: &str, lines: &[String]) -> PathBuf {
    let path = sandbox.path().join(format!(".claude/projects/-home-dev-shop/{session}.jsonl"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

/// Two sessions of one project, the second one a month later.
fn with_sessions() -> (Sandbox, Vec<PathBuf>) {
    let sandbox = Sandbox::new();
    let edit = json!([
        { "type": "text", "text": "The mailer retries without an idempotency key." },
        { "type": "tool_use", "id": "t1", "name": "Edit", "input": {
            "file_path": "/home/dev/shop/src/mailer.rs", "old_string": "a", "new_string": "b" } },
    ]);
    let result =
        json!([{ "type": "tool_result", "tool_use_id": "t1", "content": "The file has been updated." }]);
    let first = write(
        &sandbox,
        FIRST,
        &[
            line(FIRST, 1, "2026-09-01T09:00:00Z", "user", json!("why is each invoice mailed twice?")),
            line(FIRST, 2, "2026-09-01T09:01:00Z", "assistant", edit),
            line(FIRST, 3, "2026-09-01T09:02:00Z", "user", result),
            line(FIRST, 4, "2026-09-01T09:03:00Z", "user", json!(format!("the token is {SECRET}, thanks"))),
        ],
    );
    let second = write(
        &sandbox,
        SECOND,
        &[
            line(
                SECOND,
                1,
                "2026-10-01T09:00:00Z",
                "user",
                json!("paint the header <script>alert(1)</script>"),
            ),
            line(
                SECOND,
                2,
                "2026-10-01T09:01:00Z",
                "assistant",
                json!([{ "type": "text", "text": "Painted it blue." }]),
            ),
        ],
    );
    (sandbox, vec![first, second])
}

#[test]
fn sessions_are_found_after_the_client_has_deleted_their_transcripts() {
    let (sandbox, transcripts) = with_sessions();
    let synced = sandbox.json(["sessions", "sync", "--json"]);
    assert_eq!((&synced["sessions_new"], &synced["messages"]), (&json!(2), &json!(6)));
    let again = sandbox.json(["sessions", "sync", "--json"]);
    assert_eq!((&again["unchanged"], &again["messages"]), (&json!(2), &json!(0)));
    let found = sandbox.ok(["search", "invoices", "mailed"]);
    assert!(found.contains(&format!("claude --resume {FIRST}")), "{found}");

    transcripts.iter().for_each(|path| fs::remove_file(path).unwrap());
    sandbox.ok(["sessions", "sync"]);
    let found = sandbox.ok(["search", "invoices", "mailed"]);
    assert!(found.starts_with("You ") && found.contains("why is each invoice mailed twice?"), "{found}");
    assert!(found.contains("the transcript is gone; the archive has the text"), "{found}");
    let shown = sandbox.ok(["sessions", "show", "5a3b"]);
    assert!(shown.contains("The mailer retries without an idempotency key."), "{shown}");
    assert!(shown.contains("Edit: /home/dev/shop/src/mailer.rs"), "{shown}");
    assert!(!shown.contains("has been updated"), "{shown}");
    assert!(sandbox.ok(["sessions", "show", "5a3b", "--tools"]).contains("The file has been updated."));
}

#[test]
fn no_byte_of_a_secret_is_kept() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let shown = sandbox.ok(["sessions", "show", FIRST]);
    assert!(shown.contains("the token is ") && !shown.contains(SECRET), "{shown}");
    let mut files = 0;
    for entry in fs::read_dir(sandbox.path().join("state/nugget")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            files += 1;
            let bytes = fs::read(&path).unwrap();
            assert!(
                !bytes.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()),
                "{}",
                path.display()
            );
        }
    }
    assert!(files > 0);
}

#[test]
fn a_list_is_cut_to_what_is_asked_for() {
    let (sandbox, _) = with_sessions();
    let ids = |arguments: &[&str]| -> Vec<String> {
        let listed = sandbox.json(arguments.iter().copied().chain(["--json"]));
        listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap()[..4].to_owned())
            .collect()
    };
    assert!(ids(&["sessions"]).is_empty(), "there is no archive yet");
    sandbox.ok(["sessions", "sync"]);
    assert_eq!(ids(&["sessions"]), ["9f00", "5a3b"]);
    assert_eq!(ids(&["sessions", "--until", "2026-09-15"]), ["5a3b"]);
    assert_eq!(ids(&["sessions", "--since", "2026-09-15"]), ["9f00"]);
    assert_eq!(ids(&["sessions", "--file", "mailer.rs"]), ["5a3b"]);
    assert_eq!(ids(&["sessions", "--tool", "Edit"]), ["5a3b"]);
    assert_eq!(ids(&["sessions", "--project", "shop", "--limit", "1"]), ["9f00"]);
    assert!(ids(&["sessions", "--project", "other"]).is_empty());
    let found = |arguments: &[&str]| {
        let found = sandbox.json(["search", "--json"].iter().chain(arguments));
        found["messages"].as_array().unwrap().len()
    };
    assert_eq!(found(&["mailer", "--role", "user"]), 0);
    assert_eq!(found(&["mailer", "--role", "assistant"]), 1);
    assert_eq!(found(&["header", "--session", "5a3b"]), 0);
    assert_eq!(found(&["\"mailed twice\""]), 1);
    assert_eq!(found(&["paint*", "NOT", "blue"]), 1);
}

#[test]
fn no_punctuation_makes_a_search_fail() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    for query in
        ["why?", "mail'er; DROP", "(", "\"", "a AND", "NEAR(", "foo:bar", "*", "^", "-x", "💥", "{a}:b"]
    {
        let output = sandbox.run(["search", "--words", "--", query]);
        assert!(output.status.success(), "{query:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_page_of_a_session_runs_nothing() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let page = sandbox.ok(["sessions", "show", SECOND, "--format", "html"]);
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"), "{page}");
}

#[test]
fn a_project_and_all_sessions_are_summed_up() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let context = sandbox.ok(["sessions", "context", "shop", "--days", "3650", "--format", "markdown"]);
    for part in ["## Last sessions", "why is each invoice mailed twice?", "src/mailer.rs (1 session)"] {
        assert!(context.contains(part), "{part}: {context}");
    }
    let stats = sandbox.json(["sessions", "stats", "--json"]);
    assert_eq!((&stats["sessions"], &stats["messages"], &stats["files"]), (&json!(2), &json!(6), &json!(1)));
    assert_eq!(stats["tokens"]["output"], json!(400));
    let printed = sandbox.ok(["sessions", "stats"]);
    assert!(printed.contains("2026-09-01") && printed.contains('█'), "{printed}");
    let exported = sandbox.ok(["sessions", "export", "--format", "jsonl"]);
    assert!(exported.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let file = sandbox.path().join("out.md");
    let written = sandbox.json(["sessions", "export", "-o", file.to_str().unwrap(), "--json"]);
    assert_eq!(written["sessions"], json!(2));
    assert!(fs::read_to_string(file).unwrap().contains("Painted it blue."));
}

#[test]
fn what_a_person_deletes_is_gone_and_stays_away() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let planned = sandbox.json(["sessions", "prune", "--older-than", "2026-09-15", "--dry-run", "--json"]);
    assert_eq!(planned["removed"]["messages"], json!(4));
    assert!(sandbox.ok(["search", "invoice"]).contains("mailed twice"), "a dry run deletes nothing");
    sandbox.ok(["sessions", "forget", "5a3b"]);
    sandbox.ok(["sessions", "sync", "--again"]);
    assert!(sandbox.ok(["search", "--words", "invoice"]).starts_with("nothing was found"));
    let output = sandbox.run(["sessions", "show", "5a3b"]);
    assert_eq!(output.status.code(), Some(3));
    sandbox.ok(["sessions", "prune", "--older-than", "2026-11-01"]);
    assert_eq!(sandbox.json(["sessions", "--json"])["sessions"], json!([]));
}

#[test]
fn an_archive_that_cannot_be_used_is_explained_in_two_lines() {
    let (sandbox, _) = with_sessions();
    let archive = sandbox.path().join("state/nugget").join("archive.db");
    fs::create_dir_all(archive.parent().unwrap()).unwrap();
    let failure = |arguments: &[&str]| {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.lines().count(), 2, "{error}");
        error
    };
    fs::write(&archive, "no database").unwrap();
    for command in [&["sessions"][..], &["search", "x"], &["sessions", "sync"], &["sessions", "stats"]] {
        assert!(failure(command).contains("the session archive is damaged"));
    }
    fs::remove_file(&archive).unwrap();
    sandbox.ok(["sessions", "sync"]);
    let connection = rusqlite::Connection::open(&archive).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    assert!(failure(&["sessions"]).contains("newer"));
}
