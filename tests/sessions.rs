//! Sessions are kept and found again, through the real binary.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Sandbox, fixture};

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
    assert!(found.starts_with("You ") && found.contains("why is each [invoice] [mailed] twice?"), "{found}");
    assert!(found.contains("the transcript is gone; the archive has the text"), "{found}");
    let hit = &sandbox.json(["search", "invoices", "mailed", "--json"])["messages"][0];
    assert_eq!((&hit["resume"], &hit["is_transcript_gone"]), (&json!(null), &json!(true)));
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
    assert!(ids(&["sessions", "--project", "shop", "--branch", "other"]).is_empty());
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
    let plain = sandbox.ok(["sessions", "context", "shop", "--days", "3650"]);
    assert!(plain.contains("\nLast sessions\n") && !plain.contains('#'), "{plain}");
    let stats = sandbox.json(["sessions", "stats", "--json"]);
    assert_eq!((&stats["sessions"], &stats["messages"], &stats["files"]), (&json!(2), &json!(6), &json!(1)));
    assert_eq!(stats["tokens"]["output"], json!(400));
    let printed = sandbox.ok(["sessions", "stats"]);
    assert!(printed.contains("2026-09-01") && printed.contains('█'), "{printed}");
    let exported = sandbox.ok(["sessions", "export", "--format", "jsonl"]);
    // As its help says to read it.
    assert!(sandbox.ok(["sessions", "export", "--help"]).contains("jq .message.content"));
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert!(first["message"]["content"].is_string(), "{first}");
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

/// Every command of the archive, with a session that may exist.
const COMMANDS: &[&[&str]] = &[
    &["search", "mailed"],
    &["sessions"],
    &["sessions", "show", "5a3b"],
    &["sessions", "related", "5a3b"],
    &["sessions", "context", "shop", "--days", "3650"],
    &["sessions", "stats"],
    &["sessions", "export"],
    &["sessions", "sync"],
    &["sessions", "prune", "--older-than", "2026-09-15", "--dry-run"],
    &["sessions", "forget", "5a3b"],
];

/// Runs a command that must fail, and returns its one line, after which a hint follows.
fn failure(sandbox: &Sandbox, arguments: &[&str], code: i32) -> String {
    let output = sandbox.run(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: "), "{error}");
    lines[0].to_owned()
}

#[test]
fn a_missing_or_empty_archive_is_explained_in_a_line() {
    let sandbox = Sandbox::new();
    for command in COMMANDS {
        match command {
            ["search", ..] | ["sessions"] => {
                let told = sandbox.ok(*command);
                assert!(
                    told.starts_with("no session is archived yet") && told.lines().count() == 1,
                    "{told}"
                );
            }
            ["sessions", "sync"] => {}
            command => {
                let told = failure(&sandbox, command, 3);
                assert_eq!(told, "error: no session is archived yet", "{command:?}");
            }
        }
    }
    assert!(!sandbox.path().join("state/nugget/archive.db").exists(), "to look creates nothing");
    let none = sandbox.ok(["sessions", "sync"]);
    assert!(none.starts_with("there are no transcripts in\n"), "{none}");
    assert!(none.contains("/projects (no such folder)\n"), "{none}");
    for command in COMMANDS {
        match command {
            ["sessions", "show" | "related" | "forget", ..] => {
                assert!(
                    failure(&sandbox, command, 3).contains("no archived session has an id that begins with")
                );
            }
            ["sessions", "sync"] => assert_eq!(sandbox.ok(*command), none),
            command => {
                let output = sandbox.run(*command);
                let told = [output.stdout, output.stderr].concat();
                assert_eq!(told.iter().filter(|byte| **byte == b'\n').count(), 1, "{command:?}");
                assert!(output.status.success(), "{command:?}");
            }
        }
    }
}

#[test]
fn a_locked_archive_is_read_and_said_to_be_in_use() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let lock = fs::File::open(sandbox.path().join("state/nugget/archive.write.lock")).unwrap();
    fs2::FileExt::lock_exclusive(&lock).unwrap();
    std::thread::scope(|scope| {
        for command in COMMANDS {
            let sandbox = &sandbox;
            scope.spawn(move || match command {
                ["sessions", "sync" | "forget", ..] => {
                    let told = failure(sandbox, command, 1);
                    assert_eq!(told, "error: the session archive is in use by another process");
                }
                command => drop(sandbox.ok(*command)),
            });
        }
    });
    drop(lock);
    sandbox.ok(["sessions", "forget", "5a3b"]);
}

#[test]
fn an_archive_that_cannot_be_used_is_explained_in_two_lines() {
    let (sandbox, _) = with_sessions();
    let archive = sandbox.path().join("state/nugget").join("archive.db");
    let all_fail = |why: &str| {
        for command in COMMANDS {
            let told = failure(&sandbox, command, 1);
            assert!(told.contains(why), "{command:?}: {told}");
        }
    };
    fs::create_dir_all(&archive).unwrap();
    all_fail("Is a directory");
    fs::remove_dir(&archive).unwrap();
    fs::write(&archive, "no database").unwrap();
    all_fail("the session archive is damaged");
    fs::remove_file(&archive).unwrap();

    sandbox.ok(["sessions", "sync"]);
    let lock = archive.with_extension("write.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    for command in [&["sessions", "sync"][..], &["sessions", "forget", "5a3b"]] {
        assert!(failure(&sandbox, command, 1).contains("archive.write.lock: Is a directory"));
    }
    assert!(sandbox.ok(["search", "mailed"]).contains("[mailed] twice"), "readers need no lock");
    let connection = rusqlite::Connection::open(&archive).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    all_fail("newer");
}

#[test]
fn a_search_says_what_went_by_words_alone() {
    let (sandbox, _transcripts) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let archive = archive::Archive::open(&sandbox.path().join("state/nugget/archive.db")).unwrap();
    let said = || String::from_utf8(sandbox.run(["search", "mailed"]).stderr).unwrap();
    let prepared = "; the search by meaning is prepared while a session runs\n";
    assert_eq!(said(), format!("note: searched by words alone{prepared}"));
    let range = 1..archive.last_message().unwrap() + 1;
    for message in archive.unembedded(embed::BUILT_IN_NAME, range, 100).unwrap().messages {
        archive.store_vectors(embed::BUILT_IN_NAME, &[(message.message, Vec::new())]).unwrap();
        let older = format!("note: older messages were searched by words alone{prepared}");
        assert!(said().is_empty() || said() == older, "{}", said());
    }
    assert_eq!(said(), "");
}

/// The lines of a transcript of Claude Code as Codex would have written them.
fn as_rollout(transcript: &str, id: &str) -> String {
    let mut lines = Vec::new();
    let mut add = |at: &Value, kind: &str, payload: Value| {
        lines.push(json!({ "timestamp": at, "type": kind, "payload": payload }).to_string() + "\n");
    };
    let start = json!("2026-11-16T17:00:00.000Z");
    add(&start, "session_meta", json!({ "id": id, "cwd": "/home/dev/invoicing", "cli_version": "0.142.2" }));
    let said = |role: &str, text: &Value| json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
    for line in transcript.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (at, content) = (&line["timestamp"], &line["message"]["content"]);
        if line["type"] == "user" && content.is_string() {
            add(at, "response_item", said("user", content));
        }
        for block in content.as_array().into_iter().flatten() {
            let item = match block["type"].as_str() {
                Some("text") => said(line["type"].as_str().unwrap(), &block["text"]),
                Some("tool_use") => json!({
                    "type": "function_call", "name": "exec_command", "call_id": block["id"],
                    "arguments": json!({ "cmd": block["input"]["command"] }).to_string(),
                }),
                Some("tool_result") => {
                    let code = u8::from(block["is_error"] == json!(true));
                    let output = block["content"].as_str().unwrap_or_default();
                    json!({
                        "type": "function_call_output", "call_id": block["tool_use_id"],
                        "output": format!("Process exited with code {code}\nOutput:\n{output}"),
                    })
                }
                _ => continue,
            };
            add(at, "response_item", item);
        }
    }
    lines.concat()
}

#[test]
fn a_rollout_of_codex_is_captured_and_its_new_lines_later() {
    const ID: &str = "019a2b3c-4d5e-7f60-8123-456789abcdef";
    let sandbox = Sandbox::with_brain();
    let transcript = fs::read_to_string(fixture("transcripts/synthetic/flywheel.jsonl")).unwrap();
    let folder = sandbox.path().join(".codex/sessions/2026/11/16");
    fs::create_dir_all(&folder).unwrap();
    let rollout = folder.join(format!("rollout-2026-11-16T17-00-00-{ID}.jsonl"));
    let lines = as_rollout(&transcript, ID);
    fs::write(&rollout, &lines).unwrap();
    let dry_run = sandbox.ok(["capture-session", "--dry-run", "--transcript", rollout.to_str().unwrap()]);
    assert!(dry_run.contains("Never acknowledge a message before its side effect is committed"), "{dry_run}");
    let capture = sandbox.capture(&rollout);
    assert_eq!((&capture["state"], &capture["session_id"]), (&json!("done"), &json!(ID)), "{capture}");
    let review = sandbox.ok(["review"]);
    assert!(review.contains("Never acknowledge a message before its side effect is committed"), "{review}");

    let again = sandbox.capture(&rollout);
    assert_eq!(again["state"], "nothing", "{again}");
    assert!(again["reason"].as_str().unwrap().starts_with("nothing new"), "{again}");
    let rule = json!("From now on always run database migrations inside a transaction.");
    let line = json!({
        "timestamp": "2026-11-16T18:00:00.000Z", "type": "response_item",
        "payload": { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": rule }] },
    });
    fs::write(&rollout, format!("{lines}{line}\n")).unwrap();
    let later = sandbox.capture(&rollout);
    assert_eq!((&later["state"], &later["units"]), (&json!("done"), &json!(1)), "{later}");
}

#[test]
fn sessions_are_found_by_session_and_within_one_by_message() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let found = |arguments: &[&str]| {
        let found = sandbox.json(["search", "--json", "--words"].iter().chain(arguments));
        let sessions = found["messages"].as_array().unwrap().iter();
        sessions.map(|hit| hit["session"]["id"].as_str().unwrap()[..4].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["mailed", "mailer", "painted"]), ["5a3b", "9f00"]);
    assert_eq!(found(&["mailed", "mailer", "painted", "--session", "5a3b"]), ["5a3b", "5a3b"]);
}

#[test]
fn a_search_of_both_has_no_more_than_its_limit() {
    let sandbox = Sandbox::with_brain();
    for session in [FIRST, SECOND] {
        let prompt = json!("why is each invoice mailed twice?");
        write(&sandbox, session, &[line(session, 1, "2026-09-01T09:00:00Z", "user", prompt)]);
    }
    sandbox.ok(["sessions", "sync"]);
    sandbox.ok(["note", "add", "Invoices are mailed twice", "--content", "The mailer retries."]);
    for (limit, expected) in [("1", (1, 0)), ("2", (1, 1)), ("3", (1, 2))] {
        let found = sandbox.json(["search", "--all", "--json", "--limit", limit, "invoice mailed twice"]);
        let count = |kind: &str| found[kind].as_array().unwrap().len();
        assert_eq!((count("units"), count("messages")), expected, "{found}");
    }
}

#[test]
fn a_date_is_a_day_of_the_persons_time_zone() {
    let (mut sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    // Twelve hours behind UTC.
    sandbox.variables.push(("TZ".to_owned(), "XYZ+12".to_owned()));
    for (day, sessions) in [("2026-08-31", 1), ("2026-09-01", 0)] {
        let stats = sandbox.json(["sessions", "stats", "--since", day, "--until", day, "--json"]);
        assert_eq!(stats["sessions"], json!(sessions), "{day}: {stats}");
    }
}

#[test]
fn with_archiving_off_a_sync_adds_nothing() {
    let (mut sandbox, _) = with_sessions();
    sandbox.variables.push(("NUGGET_ARCHIVE_ENABLED".to_owned(), "off".to_owned()));
    let told = failure(&sandbox, &["sessions", "sync"], 1);
    assert_eq!(told, "error: sessions are not archived: `archive.enabled` is \"off\"");
    assert!(!sandbox.path().join("state/nugget/archive.db").exists());
}

#[test]
fn forgetting_a_session_names_those_that_have_the_same() {
    let (sandbox, transcripts) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let fork = "77aa0000-0000-4000-8000-000000000003";
    let copy = fs::read_to_string(&transcripts[0]).unwrap();
    write(&sandbox, fork, &copy.lines().map(str::to_owned).collect::<Vec<_>>());
    sandbox.ok(["sessions", "sync"]);
    let told = sandbox.ok(["sessions", "forget", "5a3b"]);
    assert!(told.contains("4 messages more of it are kept"), "{told}");
    assert!(told.contains(&format!("nugget sessions forget {fork}")), "{told}");
    let told = sandbox.ok(["sessions", "forget", fork]);
    assert!(!told.contains("kept") && told.contains("with 4 messages"), "{told}");
    assert!(sandbox.ok(["search", "--words", "invoice"]).starts_with("nothing was found"));
}

#[test]
fn what_does_not_exist_is_no_empty_result() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    // The beginning of two ids is a wrong usage, as that of two units' ids is.
    let twin = FIRST.replace("5a3b7c1e", "5a3b7c1f");
    write(&sandbox, &twin, &[line(&twin, 1, "2026-09-02T09:00:00Z", "user", json!("and the harbour?"))]);
    sandbox.ok(["sessions", "sync"]);
    assert!(failure(&sandbox, &["sessions", "show", "5a3b"], 2).contains("5a3b"));
    for command in
        [&["search", "mailed", "--session", "zzz"][..], &["sessions", "export", "--session", "zzz"]]
    {
        let told = failure(&sandbox, command, 3);
        assert_eq!(told, "error: no archived session has an id that begins with \"zzz\"");
    }
    for command in [
        &["search", "mailed", "--project", "nonexistent"][..],
        &["sessions", "--project", "nonexistent"],
        &["sessions", "context", "nonexistent"],
        &["sessions", "stats", "--project", "nonexistent"],
        &["memories", "--project", "nonexistent"],
        &["memories", "search", "mailed", "--project", "nonexistent"],
        &["sessions", "export", "--project", "nonexistent", "-o", "z.md"],
    ] {
        let told = failure(&sandbox, command, 3);
        assert_eq!(told, "error: no archived session is of the project nonexistent");
    }
    let hint = String::from_utf8(sandbox.run(["sessions", "--project", "shopp"]).stderr).unwrap();
    assert!(hint.ends_with("hint: did you mean `shop`?\n"), "{hint}");
    // Nobody has named this folder.
    for command in [&["sessions", "context", "--json"][..], &["memories", "--json"]] {
        sandbox.json(command);
    }
    failure(&sandbox, &["sessions", "export", "--branch", "nonexistent", "-o", "z.md"], 3);
    assert!(!sandbox.path().join("z.md").exists());
    let hint = String::from_utf8(sandbox.run(["sessions", "list"]).stderr).unwrap();
    assert!(hint.contains("`nugget sessions` alone lists them"), "{hint}");
    for command in [&["search", "mailed", "--limit", "0"][..], &["sessions", "--limit", "0"]] {
        assert_eq!(sandbox.run(command).status.code(), Some(2), "{command:?}");
    }
}

/// A rollout of Codex with a prompt, an answer and its tokens.
fn write_rollout(sandbox: &Sandbox, id: &str) -> PathBuf {
    let folder = sandbox.path().join(".codex/sessions/2026/11/16");
    fs::create_dir_all(&folder).unwrap();
    let said = |role: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
    let usage = json!({ "input_tokens": 100, "cached_input_tokens": 50, "output_tokens": 20 });
    let lines = [
        ("session_meta", json!({ "id": id, "cwd": "/home/dev/shop", "cli_version": "0.142.2" })),
        ("turn_context", json!({ "cwd": "/home/dev/shop", "model": "gpt-5-codex" })),
        ("response_item", said("user", "why does the harbour crane stop?")),
        ("response_item", said("assistant", "Its brake is on.")),
        ("event_msg", json!({ "type": "token_count", "info": { "last_token_usage": usage } })),
    ];
    let lines = lines.map(|(kind, payload)| {
        json!({ "timestamp": "2026-11-16T17:00:00.000Z", "type": kind, "payload": payload }).to_string()
            + "\n"
    });
    let path = folder.join(format!("rollout-2026-11-16T17-00-00-{id}.jsonl"));
    fs::write(&path, lines.concat()).unwrap();
    path
}

#[test]
fn a_session_of_codex_is_counted_by_doctor_and_has_no_invented_price() {
    const ID: &str = "019a2b3c-4d5e-7f60-8123-456789abcdef";
    let sandbox = Sandbox::new();
    write_rollout(&sandbox, ID);
    let doctor = || -> String {
        let output = sandbox.run(["doctor", "--offline", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = report["checks"].as_array().unwrap().iter();
        checks.find(|check| check["name"] == "archive").unwrap()["message"].as_str().unwrap().to_owned()
    };
    let told = doctor();
    assert_eq!(
        told,
        "0 sessions kept; no transcripts of Claude Code on disk; 1 of 1 session of Codex not archived yet, which \
         only `nugget sessions sync` adds"
    );
    sandbox.ok(["sessions", "sync", "--source", "codex"]);
    let found = sandbox.ok(["search", "--words", "harbour", "crane"]);
    assert!(
        found.contains("why does the [harbour] [crane] stop?"),
        "found words are marked in a pipe: {found}"
    );
    assert!(found.contains(&format!("codex resume {ID}\n")), "{found}");
    let hit = &sandbox.json(["search", "--words", "harbour", "--json"])["messages"][0];
    assert_eq!(
        (&hit["resume"], &hit["is_transcript_gone"]),
        (&json!(format!("codex resume {ID}")), &json!(false))
    );
    assert!(!doctor().contains("not archived yet"));
    let listed = sandbox.ok(["sessions"]);
    assert!(listed.contains("019a2b3c-4d5e "), "{listed}");
    assert_eq!(sandbox.json(["sessions", "show", "019a2b3c-4d5e", "--json"])["session"]["id"], ID);
    assert_eq!(sandbox.json(["sessions", "--json"])["sessions"][0]["cost_microdollars"], 0);
    let stats = sandbox.ok(["sessions", "stats"]);
    assert!(stats.contains("not in the cost: 1 call of models that the price list does not have"), "{stats}");
}

#[test]
fn a_sync_keeps_to_the_retention() {
    let (mut sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let old = (jiff::Timestamp::now() - "2026-10-01T09:01:00Z".parse::<jiff::Timestamp>().unwrap())
        .get_seconds()
        / 86_400;
    sandbox.variables.push(("NUGGET_ARCHIVE_RETENTION_DAYS".to_owned(), (old + 10).to_string()));
    let told = sandbox.ok(["sessions", "sync"]);
    assert!(told.contains("deleted 1 session that `archive.retention_days` does not keep"), "{told}");
    let listed = sandbox.json(["sessions", "--json"]);
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    let told = sandbox.ok(["sessions", "sync"]);
    assert!(told.contains("nothing new") && told.contains("1 older than `archive.retention_days`"), "{told}");
    sandbox.variables.pop();
    let told = sandbox.ok(["sessions", "sync"]);
    assert!(told.contains("of 1 session, 1 new"), "{told}");
    assert_eq!(sandbox.json(["sessions", "--json"])["sessions"].as_array().unwrap().len(), 2);
    let told = sandbox.ok(["sessions", "prune", "--older-than", "1d"]);
    assert!(told.contains("`nugget sessions sync --again` would add them again"), "{told}");
}

#[test]
fn nobody_waits_long_for_a_database_that_is_locked() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let connection = rusqlite::Connection::open(sandbox.path().join("state/nugget/archive.db")).unwrap();
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let begun = std::time::Instant::now();
    let told = failure(&sandbox, &["search", "mailed"], 1);
    assert_eq!(told, "error: the session archive is in use by another process");
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
}

#[test]
fn nothing_is_deleted_by_an_empty_id_or_a_time_that_may_be_a_slip() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let count = || sandbox.json(["sessions", "--json"])["sessions"].as_array().unwrap().len();
    let before = count();
    for id in ["", " ", "/"] {
        for command in ["forget", "show", "related"] {
            failure(&sandbox, &["sessions", command, id], 3);
        }
    }
    for when in ["6m", "12h", "2999-01-01"] {
        failure(&sandbox, &["sessions", "prune", "--older-than", when], 2);
    }
    assert_eq!(count(), before);
}

#[test]
fn an_export_that_cannot_be_written_has_failed() {
    let (sandbox, _) = with_sessions();
    sandbox.ok(["sessions", "sync"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = sandbox.command().args(["sessions", "export"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "));
}

#[test]
fn an_exclusion_says_that_what_is_archived_stays() {
    let (sandbox, _) = with_sessions();
    let exclude = |project: &str| {
        let output = sandbox.run(["config", "set", "capture.exclude", project]);
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(exclude("payroll"), "");
    sandbox.ok(["sessions", "sync"]);
    let note = "note: what is archived already stays; `nugget sessions forget` deletes a session\n";
    assert_eq!(exclude("shop"), note);
    sandbox.ok(["sessions", "sync"]);
    assert!(sandbox.ok(["sessions", "forget", "5a3b"]).contains("deleted session"));
}
