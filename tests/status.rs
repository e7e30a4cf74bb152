//! What `nugget status` shows, and what its JSON promises.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{ChildGuard, Sandbox, fixture, wait_until};

/// Checks a value against the part of JSON Schema that the schema uses, and panics with what is wrong.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    for keyword in schema.as_object().unwrap().keys() {
        let known = [
            "$schema",
            "$defs",
            "$ref",
            "title",
            "description",
            "type",
            "enum",
            "format",
            "minimum",
            "required",
            "properties",
            "additionalProperties",
            "propertyNames",
            "items",
        ];
        assert!(known.contains(&keyword.as_str()), "{at}: this test does not know {keyword}");
    }
    if let Some(name) = schema["$ref"].as_str() {
        return check(root, root.pointer(name.strip_prefix('#').unwrap()).unwrap(), value, at);
    }
    if let Some(kinds) = schema.get("type") {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let allowed = kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.contains(&json!(kind)));
        assert!(allowed, "{at} is {value}, not {kinds}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at} is {value}, not one of {words:?}");
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64()) {
        assert!(number >= least, "{at} is {number}");
    }
    if let (Some("date-time"), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        assert!(text.parse::<jiff::Timestamp>().is_ok(), "{at} is {text}");
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{at}[{i}]"));
    }
    let Some(object) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(name.as_str().unwrap()), "{at} has no {name}");
    }
    for (name, value) in object {
        let at = format!("{at}.{name}");
        if let Some(names) = schema.get("propertyNames") {
            check(root, names, &json!(name), &at);
        }
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => check(root, schema, value, &at),
            (None, schema @ Value::Object(_)) => check(root, schema, value, &at),
            (None, rest) => assert_ne!(rest, &json!(false), "{at} is not in the schema"),
        }
    }
}

fn schema(sandbox: &Sandbox) -> Value {
    sandbox.json(["status", "--schema"])
}

#[test]
fn in_a_pipe_a_row_is_whole_whatever_columns_says() {
    let sandbox = Sandbox::with_brain();
    let transcript = fixture("transcripts/synthetic/nothing_chat.jsonl");
    let capture = sandbox.capture(&transcript);
    let reason = capture["reason"].as_str().unwrap();
    for columns in ["1", "40", "80"] {
        let output = sandbox.command().arg("status").env("COLUMNS", columns).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let row = printed.lines().find(|line| line.contains("nothing  ")).unwrap_or(&printed);
        assert!(row.ends_with(reason), "{columns}: {printed}");
    }
}

#[test]
fn status_json_matches_its_schema() {
    let sandbox = Sandbox::with_brain();
    let schema = schema(&sandbox);
    let read_status = || {
        let status = sandbox.json(["status", "--json"]);
        check(&schema, &schema, &status, "status");
        status
    };
    assert_eq!(read_status()["drainer"]["running"], false);
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    let status = read_status();
    assert_eq!(status["captures"].as_array().unwrap().len(), 2);
    assert!(status["sweep"]["at"].is_string(), "{status}");
}

#[test]
fn the_schema_check_finds_violations() {
    let sandbox = Sandbox::with_brain();
    let schema = schema(&sandbox);
    let status = sandbox.json(["status", "--json"]);
    let wrong = [
        ("/queue/done", json!(-1)),
        ("/spooled", json!("1")),
        ("/drainer/more", json!(1)),
        ("/sweep", json!({})),
    ];
    for (path, value) in wrong {
        let mut status = status.clone();
        match status.pointer_mut(path) {
            Some(field) => *field = value,
            None => status["drainer"]["more"] = value,
        }
        let noticed = std::panic::catch_unwind(|| check(&schema, &schema, &status, "status"));
        assert!(noticed.is_err(), "{path}");
    }
}

#[test]
fn actors_are_shown_while_a_worker_runs() {
    let sandbox = Sandbox::with_brain();
    let mut command = sandbox.command();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    command
        .args(["capture-session", "--transcript"])
        .arg(transcript)
        .env("NUGGET_DRAINER_LINGER_SECONDS", "3600");
    assert!(command.output().unwrap().status.success());
    wait_until("the worker has reported", || {
        sandbox.json(["status", "--json"])["drainer"]["actors"].is_array()
    });
    let status = sandbox.json(["status", "--json"]);
    let schema = schema(&sandbox);
    check(&schema, &schema, &status, "status");
    let text = sandbox.ok(["status", "-v"]);
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("ACTOR")).take(8).collect();
    let names: Vec<&str> = table.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let pipeline = ["intake", "upload", "extraction", "embedding", "indexing", "git", "delivery"];
    let shown: Vec<&str> = pipeline.into_iter().filter(|name| names.contains(name)).collect();
    assert_eq!(names[0], "ACTOR", "{text}");
    assert_eq!(names[1..=shown.len()], shown, "{text}");
    assert!(
        ["intake", "extraction", "indexing", "git", "delivery"].iter().all(|name| shown.contains(name)),
        "{text}"
    );
    let actors = status["drainer"]["actors"].as_array().unwrap();
    let in_json: Vec<&str> = actors.iter().map(|actor| actor["name"].as_str().unwrap()).collect();
    assert_eq!(in_json[..shown.len()], shown);
    let brief = sandbox.ok(["status"]);
    for word in ["ACTOR", "MAILBOX", "worker ", "vectors ", "stages "] {
        assert!(text.contains(word) && !brief.contains(word), "{word}: {brief}");
    }
    assert!(
        table[0].contains("STATE") && table[0].contains("MAILBOX") && table[0].contains("RESTARTS"),
        "{text}"
    );
    // It would run for an hour.
    let pid = status["drainer"]["pid"].as_i64().unwrap().to_string();
    assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
}

/// Starts `status --watch` with a pipe for stdout.
fn start_watch(sandbox: &Sandbox) -> (ChildGuard, BufReader<ChildStdout>) {
    let mut command = sandbox.command();
    let mut child = command.args(["status", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (ChildGuard(child), stdout)
}

#[test]
fn without_a_terminal_the_view_repeats_until_the_pipe_closes() {
    let sandbox = Sandbox::with_brain();
    let (mut child, mut stdout) = start_watch(&sandbox);
    let mut text = String::new();
    while text.matches("brain ").count() < 2 {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    drop(stdout);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_signal_ends_the_watch_with_success() {
    let sandbox = Sandbox::with_brain();
    for signal in ["INT", "TERM", "HUP"] {
        let (mut child, mut stdout) = start_watch(&sandbox);
        // After its first output it listens for signals.
        stdout.read_line(&mut String::new()).unwrap();
        let pid = child.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let status = child.0.wait().unwrap();
        assert!(status.success(), "{signal}: {status}");
    }
    for other in ["--json", "--schema"] {
        assert_eq!(sandbox.run(["status", "--watch", other]).status.code(), Some(2));
    }
}

#[test]
fn colours_need_a_terminal_or_force() {
    let sandbox = Sandbox::with_brain();
    let coloured = |variables: &[(&str, &str)]| {
        let output = sandbox.command().arg("status").envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(!coloured(&[]));
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
}

#[test]
fn status_shows_a_stale_index_and_only_unmerged_branches() {
    let sandbox = Sandbox::with_brain();
    let index = || sandbox.json(["status", "--json"])["index"].clone();
    assert!(index()["generation"].is_null());
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let (generation, status) = (index()["generation"].as_u64().unwrap(), sandbox.json(["status", "--json"]));
    let branch = status["captures"][0]["branch"].as_str().unwrap().to_owned();
    let titles = status["reviews"][0]["titles"].clone();
    assert_eq!(titles.as_array().unwrap().len(), 3);
    assert_eq!(
        status["reviews"],
        json!([{"capture": 1, "branch": branch, "state": "waiting", "titles": titles}])
    );
    let first = titles[0].as_str().unwrap();
    let printed = sandbox.ok(["status"]);
    assert!(printed.contains("\nto review 3 units: nugget review\n"), "{printed}");
    assert!(printed.contains(&format!("TO REVIEW (nugget review)\n  - {}", &first[..60])), "{printed}");
    sandbox.git(&["merge", "--quiet", &branch]);
    let status = sandbox.json(["status", "--json"]);
    assert_eq!(status["reviews"][0]["state"], "merged");
    assert_eq!(status["index"]["behind"], status["captures"][0]["units"]);
    sandbox.ok(["index"]);
    assert_eq!((index()["behind"].as_u64(), index()["generation"].as_u64()), (Some(0), Some(generation + 1)));
    std::fs::write(sandbox.brain().join("broken.md"), "---\ntype: bug\ntags: [\n---\n").unwrap();
    assert_eq!(index()["behind"], 1);
    sandbox.ok(["index"]);
    assert_eq!((index()["behind"].as_u64(), index()["problems"].as_u64()), (Some(0), Some(1)));
    // Its units stay merged; see `merged_by_hand` for one that is deleted without a merge.
    sandbox.git(&["branch", "--delete", &branch]);
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "merged");
}

#[test]
fn stored_sessions_are_taken_in_by_whatever_looks_next() {
    for command in [
        &["status"][..],
        &["doctor", "--offline"],
        &["serve"],
        &["session-start"],
        &["list"],
        &["review"],
        &["index"],
        &["ask", "--no-llm", "why"],
        &["search", "why"],
        &["sessions"],
        &["export", "--format", "json"],
    ] {
        let sandbox = Sandbox::with_brain();
        // A first capture makes the state folder.
        sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
        let state = sandbox.state();
        wait_until("the worker has exited", || !queue::is_held(&state.join("drain.lock")));
        let session = knowledge::SessionId::verbatim("spooled-session");
        let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
        queue::Spool::new(state.join("spool"))
            .put(&queue::Announcement::new(session, transcript, "hook"))
            .unwrap();
        // The server stays until it has looked, and a hook gets its line.
        let mut looking = ChildGuard(
            sandbox.command().args(command).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap(),
        );
        if command == ["session-start"] {
            let line = json!({ "session_id": "s", "cwd": sandbox.path(), "hook_event_name": "SessionStart" });
            writeln!(looking.0.stdin.as_ref().unwrap(), "{line}").unwrap();
        }
        // Asked without a command, which would take it in as well.
        let queue = queue::Queue::open(&state.join("queue.db")).unwrap();
        wait_until("its units are on a branch", || queue.tally().unwrap().done == 1);
        assert!(queue::Spool::new(state.join("spool")).list().unwrap().is_empty());
        drop(looking.0.stdin.take());
        looking.0.wait().unwrap();
    }
}

/// Adds captures that wait, as hooks do. No worker takes them while the lock is held.
fn add_waiting(sandbox: &Sandbox, count: usize) -> queue::LockGuard {
    let locks = queue::FileLocks::new(sandbox.state().join("wait.lock"), sandbox.state().join("drain.lock"));
    let lock = std::cell::RefCell::new(None);
    wait_until("no worker waits to start", || {
        *lock.borrow_mut() = locks.try_standby_lock().unwrap();
        lock.borrow().is_some()
    });
    wait_until("the worker has exited", || !locks.is_draining());
    let queue = queue::Queue::open(&sandbox.state().join("queue.db")).unwrap();
    for number in 0..count {
        let session = knowledge::SessionId::verbatim(format!("{number:08}-0000-4000-8000-000000000000"));
        let added = queue::Announcement::new(session, format!("/none/{number}.jsonl"), "hook");
        queue.add(&added, jiff::Timestamp::now()).unwrap();
    }
    lock.into_inner().unwrap()
}

#[test]
fn all_captures_that_were_asked_for_are_listed_and_a_cut_is_told() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let _no_worker = add_waiting(&sandbox, 24);
    let schema = schema(&sandbox);
    for (more, listed) in
        [(&[][..], 10), (&["--limit", "20"], 20), (&["--limit", "100"], 25), (&["--all"], 25)]
    {
        let status = sandbox.json(["status", "--json"].iter().chain(more));
        check(&schema, &schema, &status, "status");
        let captures = status["captures"].as_array().unwrap().len();
        assert_eq!((captures, &status["captures_left_out"]), (listed, &json!(25 - listed)), "{more:?}");
        // What waits for review is counted whether or not its capture is listed.
        assert_eq!(status["to_review"], 3, "{more:?}");
    }
    let text = sandbox.ok(["status"]);
    assert!(text.contains("\nand 15 more: nugget status --all\n"), "{text}");
    assert!(
        text.contains("\nto review 3 units: nugget review\n") && text.contains("\n  - Use a heartbeat"),
        "{text}"
    );
    assert!(text.contains("24 captures queued"), "{text}");
    assert!(!sandbox.ok(["status", "--all"]).contains("more: nugget"));
    assert_eq!(sandbox.run(["status", "--all", "--limit", "3"]).status.code(), Some(2));
}

#[test]
fn a_capture_that_was_just_queued_is_no_problem_yet() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    let _no_worker = add_waiting(&sandbox, 1);
    let status = || sandbox.ok(["status", "-v"]);
    assert!(!status().contains("no worker runs") && !status().contains("not running"), "{}", status());
    let queue = queue::Queue::open(&sandbox.state().join("queue.db")).unwrap();
    let session = knowledge::SessionId::verbatim("11111111-0000-4000-8000-000000000000");
    let added = queue::Announcement::new(session, "/none/11.jsonl", "hook");
    queue.add(&added, jiff::Timestamp::now() - jiff::SignedDuration::from_secs(60)).unwrap();
    assert!(status().contains("no worker runs for 2 captures"), "{}", status());
}

#[test]
fn large_numbers_are_grouped_in_text_and_plain_in_json() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    let _no_worker = add_waiting(&sandbox, 1_200);
    let text = sandbox.ok(["status", "-v"]);
    for grouped in ["1,200 queued", "intake 1,200", "and 1,191 more", "1,200 captures queued"] {
        assert!(text.contains(grouped), "{grouped}: {text}");
    }
    assert_eq!(sandbox.json(["status", "--json"])["queue"]["queued"], 1200);
    let spend = sandbox.ok(["spend"]);
    assert!(spend.contains("of 2,000,000 tokens"), "{spend}");
}

#[test]
fn status_names_what_the_person_has_to_do() {
    let sandbox = Sandbox::with_brain();
    let quiet = sandbox.ok(["status"]);
    assert!(
        quiet.contains("\nto review nothing\n") && quiet.contains("\nnow       nothing to do\n"),
        "{quiet}"
    );
    sandbox.capture(std::path::Path::new("/dev/null"));
    std::fs::write(sandbox.brain().join("broken.md"), "---\ntype: bug\ntags: [\n---\n").unwrap();
    sandbox.run(["index"]);
    let text = sandbox.ok(["status"]);
    assert!(text.contains("\nto fix    1 file is no unit: `nugget index` says why\n"), "{text}");
}

#[test]
fn status_json_says_what_the_text_says() {
    let sandbox = Sandbox::with_brain();
    let schema = schema(&sandbox);
    let read_status = || {
        let status = sandbox.json(["status", "--json", "--limit", "0"]);
        check(&schema, &schema, &status, "status");
        status
    };
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.wait_for_workers();
    let status = read_status();
    assert_eq!(status["captures"], json!([]));
    let review = &status["reviews"][0];
    assert_eq!((&review["capture"], &review["state"]), (&json!(1), &json!("waiting")), "{status}");
    assert_eq!(review["titles"].as_array().unwrap().len() as u64, status["to_review"].as_u64().unwrap());
    assert_eq!(status["unfinished"], Value::Null);

    sandbox.git(&["checkout", "--quiet", "-b", "other"]);
    sandbox.git(&["commit", "--quiet", "--allow-empty", "--message", "other"]);
    sandbox.git(&["checkout", "--quiet", "-"]);
    sandbox.git(&["merge", "--quiet", "--no-commit", "--no-ff", "other"]);
    let unfinished = read_status()["unfinished"].as_str().unwrap().to_owned();
    assert!(sandbox.ok(["status"]).replace("\n          ", " ").contains(&unfinished), "{unfinished}");

    // Nothing says any more which branch is the default one.
    sandbox.git(&["merge", "--abort"]);
    sandbox.git(&["branch", "--move", "main", "one"]);
    sandbox.git(&["checkout", "--quiet", "other"]);
    let status = read_status();
    assert_eq!(status["to_review"], Value::Null, "{status}");
    let text = sandbox.ok(["status"]);
    let fix = status["drainer"]["fix"].as_str().unwrap();
    assert!(text.contains("to review unknown") && text.contains(fix), "{fix}: {text}");
}
