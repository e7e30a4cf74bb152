//! Sessions are archived by what runs anyway, and only those that may be.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use archive::{Archive, Markers, SearchQuery};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::{Announcement, Queue, Stage};
use serde_json::{Value, json};

use crate::mcp::{Client, text};
use crate::support::canaries::{LeakDetector, canaries};
use crate::support::terminal::run_in_terminal;
use crate::support::{Sandbox, wait_until};

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// A machine whose client has a folder of its own.
pub(crate) struct Machine {
    pub(crate) sandbox: Sandbox,
}

/// Hands over a session as the hook does.
pub(crate) fn end_session(sandbox: &Sandbox, transcript: &Path, cwd: &Path) {
    let line = json!({
        "session_id": transcript.file_stem().unwrap().to_string_lossy(), "transcript_path": transcript,
        "cwd": cwd, "hook_event_name": "SessionEnd", "reason": "other",
    });
    let output = sandbox.run_with_input(&["capture-session"], format!("{line}\n").as_bytes());
    assert!(output.status.success(), "{output:?}");
}

pub(crate) fn wait_until_idle(sandbox: &Sandbox) {
    wait_until("the worker has done its work", || {
        let status = sandbox.json(["status", "--json"]);
        let queue = &status["queue"];
        let is_done = ["queued", "running", "retrying"].iter().all(|state| queue[*state] == 0);
        is_done && status["drainer"]["running"] == false
    });
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::of(Sandbox::with_brain())
    }

    fn without_brain() -> Self {
        Self::of(Sandbox::new())
    }

    fn of(mut sandbox: Sandbox) -> Self {
        let client = sandbox.path().join("client").display().to_string();
        // What is found is to be found by the archive alone.
        let off = ("NUGGET_SWEEP_ENABLED".to_owned(), "off".to_owned());
        sandbox.variables.extend([("CLAUDE_CONFIG_DIR".to_owned(), client), off]);
        Self { sandbox }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.sandbox.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.sandbox.path().join("state/nugget").join(archive::FILE_NAME)
    }

    /// Writes a transcript, where a person and the model say these by turns.
    pub(crate) fn transcript(&self, session: &str, cwd: &Path, said: &[&str]) -> PathBuf {
        let at: Timestamp = "2026-11-20T14:00:00Z".parse().unwrap();
        let lines = said.iter().enumerate().map(|(number, text)| {
            let (kind, content) = match number % 2 {
                0 => ("user", json!(text)),
                _ => ("assistant", json!([{ "type": "text", "text": text }])),
            };
            let line = json!({
                "type": kind, "uuid": format!("{session}-{number}"), "sessionId": session, "cwd": cwd,
                "timestamp": (at + Duration::from_secs(number as u64)).to_string(),
                "message": { "role": kind, "content": content },
            });
            format!("{line}\n")
        });
        let path = self.sandbox.path().join(format!("client/projects/-home-dev-shop/{session}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, lines.collect::<String>()).unwrap();
        path
    }

    pub(crate) fn end_session(&self, transcript: &Path, cwd: &Path) {
        end_session(&self.sandbox, transcript, cwd);
    }

    /// Ends a session and waits until the worker has done all there is to do.
    fn archive_by_hook(&self, transcript: &Path) -> Value {
        self.end_session(transcript, self.sandbox.path());
        self.wait_until_idle();
        self.sandbox.json(["status", "--json"])
    }

    pub(crate) fn wait_until_idle(&self) {
        wait_until_idle(&self.sandbox);
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive::open_existing(&self.path()).unwrap().expect("there is an archive")
    }

    /// The ids of the archived sessions, sorted.
    fn archived(&self) -> Vec<String> {
        let sessions = self.archive().sessions(&archive::Filter::default(), true, 100).unwrap();
        let mut ids: Vec<String> = sessions.into_iter().map(|session| session.id).collect();
        ids.sort();
        ids
    }

    fn find(&self, words: &str) -> Vec<(String, String)> {
        let query = SearchQuery { text: words.to_owned(), limit: 10, ..SearchQuery::default() };
        let found = self.archive().search(&query, Markers { before: "[", after: "]" }).unwrap();
        found.hits.into_iter().map(|hit| (hit.session.id, hit.snippet)).collect()
    }

    /// Every log line of nugget on this machine.
    fn logs(&self) -> String {
        let folders = fs::read_dir(self.sandbox.path().join("state/nugget")).unwrap().flatten();
        let files = folders.filter_map(|brain| fs::read_dir(brain.path().join("logs")).ok()).flatten();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    }

    fn doctor(&self, arguments: &[&str]) -> Value {
        let output = self.sandbox.run(["doctor", "--offline", "--json"].iter().chain(arguments));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = report["checks"].as_array().unwrap().iter();
        checks.find(|check| check["name"] == "archive").expect("there is a check of the archive").clone()
    }
}

pub(crate) fn set_age(path: &Path, age: Duration) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

const SAID: [&str; 4] = [
    "why is each invoice mailed twice to the harbour office?",
    "The outbox is drained by two workers; the lease must be taken before the mail is sent.",
    "take the lease first then",
    "Done: the lease is taken in the same transaction.",
];

#[test]
fn an_ended_session_is_archived_once_and_outlives_its_transcript() {
    let machine = Machine::new();
    let shop = machine.sandbox.path().join("shop");
    let transcript = machine.transcript("s1", &shop, &SAID);
    let status = machine.archive_by_hook(&transcript);
    assert_eq!(status["archive"]["sessions"], 1);
    assert_eq!(status["archive"]["error"], Value::Null);
    let count = || {
        let session = machine.archive().session("s1").unwrap();
        (session.messages, session.prompts, session.answers)
    };
    assert_eq!(count(), (4, 2, 2));
    // The same session again, as after a resume without a word.
    machine.archive_by_hook(&transcript);
    assert_eq!((machine.archived(), count()), (vec!["s1".to_owned()], (4, 2, 2)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&machine.path()), mode(machine.path().parent().unwrap())), (0o600, 0o700));

    fs::remove_dir_all(machine.sandbox.path().join("client")).unwrap();
    let other = machine.transcript("s2", &shop, &["hello there", "Hello."]);
    machine.archive_by_hook(&other);
    let found = machine.find("invoices mailed");
    assert_eq!(found[0].0, "s1");
    assert!(found[0].1.contains("[invoice] [mailed] twice"), "{found:?}");
    assert!(machine.sandbox.ok(["status"]).contains("sessions  2 kept"));
}

#[test]
fn a_session_that_ends_again_keeps_what_was_captured_of_it() {
    let machine = Machine::new();
    let shop = machine.sandbox.path().join("shop");
    let rule = "please never store money as floating point numbers, because the cents drift";
    let listed = || machine.sandbox.json(["sessions", "--json"])["sessions"][0]["capture"].clone();
    machine.archive_by_hook(&machine.transcript("s1", &shop, &[rule, "Understood."]));
    assert_eq!((&listed()["state"], &listed()["units"]), (&json!("done"), &json!(1)));
    machine.end_session(&machine.transcript("s1", &shop, &[rule, "Understood."]), &shop);
    machine.wait_until_idle();
    assert_eq!((&listed()["state"], &listed()["units"]), (&json!("done"), &json!(1)));
    let other = "please always pin GitHub actions to a commit hash, because a tag can be moved";
    machine.archive_by_hook(&machine.transcript("s1", &shop, &[rule, "Understood.", other, "Yes."]));
    assert_eq!(listed()["units"], 2);
    let project = shop.display().to_string();
    let context = machine.sandbox.ok(["sessions", "context", &project, "--days", "3650"]);
    assert!(context.contains("[captured: 2 units]"), "{context}");
    let list = machine.sandbox.ok(["sessions"]);
    let columns = |line: usize| list.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
    assert!(columns(0).windows(2).any(|names| names == ["PROMPTS", "ANSWERS"]), "{list}");
    assert!(columns(1).windows(2).any(|counts| counts == ["2", "2"]), "{list}");
    let mut command = machine.sandbox.command();
    command.arg("sessions");
    let shown = run_in_terminal(command, 80, 100).plain();
    assert!(shown.contains(" ago · shop · 2 units · 2 prompts, 2 answers"), "{shown}");
}

#[test]
fn with_archiving_off_there_is_no_file() {
    let mut machine = Machine::new();
    machine.set("NUGGET_ARCHIVE_ENABLED", "off");
    let status = machine.archive_by_hook(&machine.transcript("s1", machine.sandbox.path(), &SAID));
    assert_eq!(status["archive"], Value::Null);
    let names = fs::read_dir(machine.path().parent().unwrap()).unwrap();
    let names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| !name.contains("archive")), "{names:?}");
    assert_eq!(machine.doctor(&[])["message"], "off (archive.enabled)");
}

#[test]
fn excluded_declined_and_own_sessions_are_not_archived() {
    let mut machine = Machine::new();
    machine.set("NUGGET_CAPTURE_EXCLUDE", "secret-*");
    machine.set("NUGGET_SWEEP_IDLE_MINUTES", "0");
    let root = machine.sandbox.path().to_owned();
    let ignored = root.join("ignored");
    fs::create_dir(&ignored).unwrap();
    fs::write(ignored.join(".nuggetignore"), "*\n").unwrap();
    machine.transcript("excluded", &root.join("secret-project"), &SAID);
    machine.transcript("ignored", &ignored, &SAID);
    machine.transcript("own", &root.join("state/nugget/calls"), &SAID);
    let declined = machine.transcript("declined", &root, &SAID);
    machine.sandbox.variables.push(("NUGGET_DISABLE".to_owned(), "1".to_owned()));
    machine.end_session(&declined, &root);
    machine.sandbox.variables.pop();
    let agent = declined.with_extension("").join("subagents/agent-a1.jsonl");
    fs::create_dir_all(agent.parent().unwrap()).unwrap();
    fs::copy(&declined, &agent).unwrap();
    // As earlier versions of the client place it: what it names is the session that called it.
    fs::copy(&declined, declined.with_file_name("agent-a2.jsonl")).unwrap();
    let kept = machine.transcript("kept", &root.join("shop"), &SAID);
    machine.archive_by_hook(&kept);
    assert_eq!(machine.archived(), ["kept"]);
    let check = machine.doctor(&[]);
    assert_eq!(check["message"], "1 session kept; everything on disk is archived", "{check}");
}

#[test]
fn a_session_that_is_disabled_before_there_is_a_brain_is_not_archived() {
    let mut machine = Machine::without_brain();
    machine.set("NUGGET_SWEEP_IDLE_MINUTES", "0");
    let root = machine.sandbox.path().to_owned();
    machine.sandbox.variables.push(("NUGGET_DISABLE".to_owned(), "1".to_owned()));
    let ended = machine.transcript("ended", &root, &SAID);
    machine.end_session(&ended, &root);
    // Its client is killed.
    let started = machine.transcript("started", &root, &SAID);
    let line = json!({ "session_id": "started", "transcript_path": started, "cwd": root });
    machine.sandbox.run_with_input(&["session-start"], format!("{line}\n").as_bytes());
    machine.sandbox.variables.pop();
    machine.transcript("other", &root, &SAID);
    machine.sandbox.ok(["sessions", "sync"]);
    assert_eq!(machine.archived(), ["other"]);
    machine.sandbox.ok(["init"]);
    let swept = machine.sandbox.json(["sync", "--all", "--dry-run", "--json"]);
    assert_eq!((&swept["found"], &swept["skipped"]), (&json!(3), &json!({ "declined": 2 })), "{swept}");
    machine.sandbox.ok(["sessions", "sync", "--again"]);
    assert_eq!(machine.archived(), ["other"]);
}

#[test]
fn a_session_that_goes_on_disabled_is_left_out_while_its_capture_waits() {
    let mut machine = Machine::new();
    let transcript = machine.transcript("resumed", machine.sandbox.path(), &SAID);
    machine.transcript("other", machine.sandbox.path(), &SAID);
    machine.set("NUGGET_DISABLE", "1");
    let line = json!({ "session_id": "resumed", "transcript_path": transcript, "source": "resume" });
    let resume = || machine.sandbox.run_with_input(&["session-start"], format!("{line}\n").as_bytes());
    resume();
    let queue = Queue::open(&machine.sandbox.state().join("queue.db")).unwrap();
    // It was read when it ended without the variable, and waits for a model.
    let now = Timestamp::now();
    let ended = Announcement::new(SessionId::verbatim("resumed"), &transcript, queue::ORIGIN_HOOK);
    queue.add(&ended, now).unwrap();
    let claim = queue.claim(Stage::Intake, now).unwrap().unwrap();
    queue.advance(&claim, Stage::Extraction, b"").unwrap();
    resume();
    machine.sandbox.variables.pop();
    machine.sandbox.ok(["sessions", "sync"]);
    assert_eq!(machine.archived(), ["other"]);
}

#[test]
fn a_session_in_use_is_archived_once_it_has_ended() {
    let machine = Machine::new();
    let root = machine.sandbox.path();
    let in_use = machine.transcript("in-use", root, &["half a thought about tides"]);
    let ended = machine.transcript("ended", root, &SAID);
    machine.archive_by_hook(&ended);
    assert_eq!(machine.archived(), ["ended"], "it may still turn out to be one with NUGGET_DISABLE");
    // The client was killed, and no hook came.
    set_age(&in_use, HOUR);
    machine.archive_by_hook(&ended);
    assert_eq!(machine.archived(), ["ended", "in-use"]);
}

#[test]
fn a_worker_without_a_capture_archives_what_is_new() {
    let machine = Machine::new();
    set_age(&machine.transcript("s1", machine.sandbox.path(), &SAID), HOUR);
    let brain = machine.sandbox.brain();
    machine.sandbox.ok(["drain", "--brain", brain.to_str().unwrap()]);
    assert_eq!(machine.archived(), ["s1"]);
}

#[test]
fn a_broken_archive_fails_no_capture_and_is_named() {
    let machine = Machine::new();
    let transcript = machine.transcript("s1", machine.sandbox.path(), &SAID);
    fs::create_dir_all(machine.path().parent().unwrap()).unwrap();
    fs::write(machine.path(), "this is no database, and was none before ".repeat(200)).unwrap();
    let status = machine.sandbox.ok(["status"]);
    assert!(
        status.contains("sessions  not up to date: nugget doctor"),
        "before any look for sessions: {status}"
    );
    let status = machine.archive_by_hook(&transcript);
    let queue = &status["queue"];
    assert_eq!((&queue["dead"], &queue["retrying"]), (&json!(0), &json!(0)), "{queue}");
    assert_eq!(queue["done"].as_u64().unwrap() + queue["nothing"].as_u64().unwrap(), 1, "{queue}");
    let error = status["archive"]["error"].as_str().unwrap();
    assert!(error.contains("the session archive is damaged"), "{error}");
    assert!(machine.sandbox.ok(["status", "-v"]).contains("not up to date: the session archive"));
    let warnings = machine.logs().lines().filter(|line| line.contains("archive is not up to date")).count();
    assert_eq!(warnings, 1, "{}", machine.logs());
    let check = machine.doctor(&[]);
    assert_eq!(check["level"], "failure", "{check}");
    assert!(check["message"].as_str().unwrap().contains("damaged"), "{check}");
    assert!(check["fix"].as_str().unwrap().contains("archived again"), "{check}");
    // As the fix says.
    fs::remove_file(machine.path()).unwrap();
    machine.archive_by_hook(&transcript);
    assert_eq!(machine.archived(), ["s1"]);
    assert_eq!(machine.doctor(&["-v"])["level"], "ok");
}

#[test]
fn a_newer_archive_is_left_alone_and_named() {
    let machine = Machine::new();
    let transcript = machine.transcript("s1", machine.sandbox.path(), &SAID);
    machine.archive_by_hook(&transcript);
    rusqlite::Connection::open(machine.path()).unwrap().pragma_update(None, "user_version", 999).unwrap();
    let other = machine.transcript("s2", machine.sandbox.path(), &SAID);
    let status = machine.archive_by_hook(&other);
    assert_eq!(status["queue"]["dead"], 0);
    let error = status["archive"]["error"].as_str().unwrap();
    assert!(error.contains("written by a newer nugget"), "{error}");
    let check = machine.doctor(&[]);
    assert!(check["fix"].as_str().unwrap().contains("update nugget"), "{check}");
}

#[test]
fn a_locked_archive_keeps_no_capture_waiting() {
    let machine = Machine::new();
    machine.archive_by_hook(&machine.transcript("s1", machine.sandbox.path(), &SAID));
    let locked = rusqlite::Connection::open(machine.path()).unwrap();
    locked.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let transcript = machine.transcript("s2", machine.sandbox.path(), &SAID);
    machine.end_session(&transcript, machine.sandbox.path());
    wait_until("the capture has ended", || {
        let queue = machine.sandbox.json(["status", "--json"])["queue"].clone();
        queue["done"].as_u64().unwrap() + queue["nothing"].as_u64().unwrap() == 2
    });
    locked.execute_batch("ROLLBACK").unwrap();
    machine.wait_until_idle();
}

#[test]
fn sessions_older_than_the_retention_are_deleted() {
    let mut machine = Machine::new();
    let old = machine.transcript("old", machine.sandbox.path(), &SAID);
    let text = fs::read_to_string(&old).unwrap();
    fs::write(&old, text.replace("2026-11-20", "2025-01-20")).unwrap();
    let new = machine.transcript("new", machine.sandbox.path(), &SAID);
    let today = Timestamp::now().to_string();
    let text = fs::read_to_string(&new).unwrap();
    fs::write(&new, text.replace("2026-11-20", &today[..10])).unwrap();
    set_age(&old, HOUR);
    machine.archive_by_hook(&new);
    assert_eq!(machine.archived(), ["new", "old"], "all are kept unless the settings say otherwise");
    machine.set("NUGGET_ARCHIVE_RETENTION_DAYS", "90");
    machine.archive_by_hook(&new);
    assert_eq!(machine.archived(), ["new"]);
}

#[test]
fn doctor_says_what_the_client_is_about_to_delete() {
    let machine = Machine::new();
    let root = machine.sandbox.path();
    let old = machine.transcript("old", root, &SAID);
    let new = machine.transcript("new", root, &SAID);
    set_age(&old, 27 * 24 * HOUR);
    let check = machine.doctor(&[]);
    let expected = "0 sessions kept; 2 of 2 on disk not archived yet; 1 session will be deleted by Claude Code within 7 days \
(cleanupPeriodDays is 30), 1 not archived yet";
    assert_eq!((&check["level"], &check["message"]), (&json!("warning"), &json!(expected)));
    assert_eq!(check["fix"], "nugget sessions sync");
    machine.archive_by_hook(&new);
    fs::write(root.join("client/settings.json"), r#"{ "cleanupPeriodDays": 5 }"#).unwrap();
    let check = machine.doctor(&[]);
    let expected = "2 sessions kept; everything on disk is archived; 2 sessions will be deleted by Claude Code within 7 days \
(cleanupPeriodDays is 5), all of them are archived";
    assert_eq!((&check["level"], &check["message"]), (&json!("ok"), &json!(expected)));
    machine.sandbox.ok(["sessions", "forget", "old"]);
    let check = machine.doctor(&[]);
    let told = check["message"].as_str().unwrap();
    let expected = "1 archived, 1 left out (excluded, forgotten or empty), 0 not archived yet";
    assert!(told.ends_with(expected), "{told}");
}

#[test]
fn no_secret_of_a_session_is_in_the_archive() {
    let canaries = canaries(1718);
    let detector = LeakDetector::new(&canaries);
    let machine = Machine::new();
    let said: Vec<&str> = canaries.iter().step_by(3).map(|canary| canary.text.as_str()).collect();
    machine.archive_by_hook(&machine.transcript("s1", machine.sandbox.path(), &said));
    // The texts are compressed: as bytes, and as they are read.
    let mut shown = String::new();
    let session = machine.archive().show("s1", |message| {
        shown.push_str(&format!("{}\n{}\n", message.content, message.thinking));
        true
    });
    assert_eq!(session.unwrap().messages, said.len() as u64);
    assert!(shown.contains("[redacted: "), "the session held no secret to begin with");
    assert_eq!(detector.find_leak(shown.as_bytes()), None);
    for entry in fs::read_dir(machine.path().parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert_eq!(detector.find_leak(&fs::read(&path).unwrap()), None, "{}", path.display());
        }
    }
}

#[test]
fn a_server_archives_and_embeds_messages_while_it_is_idle() {
    let machine = Machine::new();
    set_age(&machine.transcript("s1", machine.sandbox.path(), &SAID), HOUR);
    let mut client = Client::start(&machine.sandbox);
    client.initialize();
    wait_until("the messages are embedded", || {
        let archive = Archive::open_existing(&machine.path()).ok().flatten();
        archive
            .is_some_and(|archive| archive.embedded(embed::BUILT_IN_NAME).is_ok_and(|found| found == (4, 4)))
    });
    assert!(client.close().success());
}

fn tools(client: &mut Client) -> Vec<String> {
    let tools = client.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let tools = tools["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn search_sessions(client: &mut Client, arguments: Value) -> Value {
    let params = json!({ "name": "search_sessions", "arguments": arguments });
    client.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }))
}

#[test]
fn the_tool_that_searches_sessions_is_absent_unless_named() {
    let mut machine = Machine::new();
    let shop = machine.sandbox.path().join("shop");
    machine.archive_by_hook(&machine.transcript("s1", &shop, &SAID));
    let same = ["mail the invoice of the quay", "Done.", "mail the invoice of the quay"];
    let other = machine.transcript("s2", &machine.sandbox.path().join("quay"), &same);
    machine.archive_by_hook(&other);
    fs::remove_file(&other).unwrap();
    let mut client = Client::start(&machine.sandbox);
    client.initialize();
    assert_eq!(tools(&mut client), ["get_relevant_context"]);
    assert!(search_sessions(&mut client, json!({ "query": "invoices" }))["error"].is_object());
    assert!(client.close().success());
    let config = machine.sandbox.path().join("config/nugget/config.toml");
    let settings = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        format!("{settings}\n[mcp]\ntools = [\"get_relevant_context\", \"search_sessions\"]\n"),
    )
    .unwrap();
    assert_eq!(machine.sandbox.ok(["config", "get", "mcp.tools"]), "get_relevant_context, search_sessions\n");
    let mut client = Client::start(&machine.sandbox);
    client.initialize();
    assert_eq!(tools(&mut client), ["get_relevant_context", "search_sessions"]);
    let answer = search_sessions(&mut client, json!({ "query": "why are invoices mailed twice" }));
    let answer = text(&answer);
    assert!(answer.starts_with("Unreviewed history: what was said in earlier sessions"), "{answer}");
    assert!(answer.contains("\n## session s1 · 2026-11-20 · "), "{answer}");
    assert!(answer.contains("continue it: claude --resume s1\n"), "{answer}");
    assert!(answer.contains("> user: why is each invoice mailed twice to the harbour office?\n"), "{answer}");
    assert!(answer.contains("its transcript is deleted"), "{answer}");
    let quay = search_sessions(&mut client, json!({ "query": "invoice", "project": "quay" }));
    assert!(!text(&quay).contains("session s1"), "{quay}");
    assert_eq!(text(&quay).matches("## session s2").count(), 1, "the same words once: {quay}");
    let folder = machine.sandbox.path().join("quay");
    fs::create_dir_all(&folder).unwrap();
    let folder = format!("{}/../quay", folder.display());
    let by_folder = search_sessions(&mut client, json!({ "query": "invoice", "project": folder }));
    assert_eq!(text(&by_folder), text(&quay), "a folder is its project");
    let today = search_sessions(&mut client, json!({ "query": "invoice lease", "budget_tokens": 100 }));
    assert!(text(&today).contains("more found"), "{today}");
    let wrong = search_sessions(&mut client, json!({ "project": "shop" }));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    assert!(client.close().success());

    machine.set("NUGGET_ARCHIVE_ENABLED", "off");
    let mut client = Client::start(&machine.sandbox);
    client.initialize();
    let off = search_sessions(&mut client, json!({ "query": "invoices" }));
    assert!(text(&off).contains("sessions are not archived"), "{off}");
    assert!(client.close().success());
}

#[test]
fn the_tools_of_the_settings_are_the_ones_that_exist() {
    let sandbox = Sandbox::with_brain();
    let refused = sandbox.run(["config", "set", "mcp.tools", "search_everything"]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("a list of these: get_relevant_context, search_sessions"), "{stderr}");
    sandbox.ok(["config", "set", "mcp.tools", "search_sessions,get_relevant_context"]);
    let file = fs::read_to_string(sandbox.path().join("config/nugget/config.toml")).unwrap();
    assert!(file.contains("tools = [\"search_sessions\", \"get_relevant_context\"]"), "{file}");
}

#[test]
fn a_session_in_any_folder_is_archived_once_its_hook_has_run() {
    let machine = Machine::new();
    let transcript = machine.sandbox.path().join("elsewhere/5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f914.jsonl");
    fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    fs::copy(crate::support::fixture(crate::review::TRANSCRIPT), &transcript).unwrap();
    end_session(&machine.sandbox, &transcript, machine.sandbox.path());
    wait_until_idle(&machine.sandbox);
    let sessions = machine.sandbox.json(["sessions", "--json"]);
    assert!(sessions.to_string().contains("5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f914"), "{sessions}");
}
