//! Syncing made transcripts, and what is found afterwards. Every session here is invented.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use jiff::{Timestamp, tz::TimeZone};
use knowledge::{CodeRecord, UnitType};
use transcript::Exclude;

use crate::remove::{Reason, ended_before};
use crate::{
    Archive, ArchivedShown, Citation, ClaudeCode, Codex, Derivation, Embedded, Error, Filter, Markers,
    MemoryQuery, MessageKind, ModelFindings, NewMemory, NewRecord, Project, RecordQuery, Role, SearchQuery,
    SearchResults, Session, SessionFailures, ShownMessage, SyncSettings, SyncSummary,
};

const MARKERS: Markers<'static> = Markers { before: "[", after: "]" };
const KEY: &str = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7";

/// A client's folder, a project and an archive, all of them temporary.
struct Home {
    _folder: tempfile::TempDir,
    root: PathBuf,
    archive: Archive,
}

fn uuid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("client/projects/-p")).unwrap();
        fs::create_dir_all(root.join("shop")).unwrap();
        let archive = Archive::open(&root.join("state/archive.db")).unwrap();
        Self { _folder: folder, root, archive }
    }

    fn path(&self, session: &str) -> PathBuf {
        self.root.join(format!("client/projects/-p/{session}.jsonl"))
    }

    fn cwd(&self) -> String {
        self.root.join("shop").to_string_lossy().into_owned()
    }

    fn line(&self, kind: &str, number: u32, content: &serde_json::Value) -> String {
        let mut message = serde_json::json!({ "role": kind, "content": content });
        if kind == "assistant" {
            message["id"] = format!("msg_{}", number / 10).into();
            message["model"] = "claude-sonnet-5".into();
            message["usage"] = serde_json::json!({
                "input_tokens": 10, "output_tokens": number % 10, "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 5,
            });
        }
        let at = Timestamp::from_second(1_760_000_000 + i64::from(number)).unwrap();
        serde_json::json!({
            "type": kind, "uuid": uuid(number), "parentUuid": uuid(number.saturating_sub(1)), "cwd": self.cwd(),
            "gitBranch": "main", "version": "2.1.0", "timestamp": at.to_string(), "message": message,
        })
        .to_string()
            + "\n"
    }

    fn prompt(&self, number: u32, text: &str) -> String {
        self.line("user", number, &text.into())
    }

    fn answer(&self, number: u32, text: &str) -> String {
        self.line("assistant", number, &serde_json::json!([{ "type": "text", "text": text }]))
    }

    fn thought(&self, number: u32, text: &str) -> String {
        self.line("assistant", number, &serde_json::json!([{ "type": "thinking", "thinking": text }]))
    }

    fn call(&self, number: u32, name: &str, input: &serde_json::Value) -> String {
        let block = serde_json::json!({ "type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": input });
        self.line("assistant", number, &serde_json::json!([block]))
    }

    fn result(&self, number: u32, of: u32, output: &str, is_error: bool) -> String {
        let block = serde_json::json!({
            "type": "tool_result", "tool_use_id": format!("toolu_{of}"), "content": output, "is_error": is_error,
        });
        self.line("user", number, &serde_json::json!([block]))
    }

    fn write(&self, session: &str, lines: &[String]) {
        let path = self.path(session);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.concat()).unwrap();
    }

    fn append(&self, session: &str, text: &str) {
        fs::File::options()
            .append(true)
            .open(self.path(session))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn settings(&self) -> SyncSettings<'static> {
        SyncSettings { patience: Duration::from_millis(200), ..SyncSettings::new(self.root.join("state")) }
    }

    fn client(&self) -> ClaudeCode {
        ClaudeCode::new(vec![self.root.join("client")])
    }

    fn sync(&self) -> SyncSummary {
        self.sync_with(&self.settings())
    }

    fn sync_with(&self, settings: &SyncSettings<'_>) -> SyncSummary {
        self.archive.sync(&[&self.client()], settings).unwrap()
    }

    fn show(&self, session: &str) -> Vec<ShownMessage> {
        let messages = RefCell::new(Vec::new());
        self.archive
            .show(session, |message| {
                messages.borrow_mut().push(message);
                true
            })
            .unwrap();
        messages.into_inner()
    }

    fn said(&self, session: &str) -> Vec<String> {
        self.show(session).into_iter().map(|message| message.content).collect()
    }

    fn search(&self, text: &str) -> SearchResults {
        self.search_with(&SearchQuery { text: text.to_owned(), limit: 20, ..SearchQuery::default() })
    }

    fn search_with(&self, query: &SearchQuery) -> SearchResults {
        self.archive.search(query, MARKERS).unwrap()
    }

    /// Each message is stored once, its words too, and the file is sound.
    fn check(&self) {
        assert_eq!(self.archive.check().unwrap(), Vec::<String>::new());
        let connection = rusqlite::Connection::open(self.archive.path()).unwrap();
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(one("SELECT count(*) - count(DISTINCT uuid) FROM messages_meta"), 0);
        assert_eq!(
            one("SELECT count(*) FROM messages_meta m WHERE blob IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = m.blob AND b.session = m.session)"),
            0,
            "a message without its text"
        );
        let count =
            "SELECT sum(abs(messages - (SELECT count(*) FROM session_messages v WHERE v.session = s.id)))
            FROM sessions s";
        assert_eq!(
            connection.query_row(count, [], |row| row.get::<_, Option<i64>>(0)).unwrap().unwrap_or(0),
            0
        );
        connection.execute_batch("INSERT INTO messages (messages) VALUES ('integrity-check')").unwrap();
    }

    /// Whether a compressed text has these words.
    fn texts_hold(&self, words: &str) -> bool {
        let connection = rusqlite::Connection::open(self.archive.path()).unwrap();
        let mut statement = connection.prepare("SELECT length, body FROM blobs").unwrap();
        let texts =
            statement.query_map([], |row| Ok((row.get::<_, usize>(0)?, row.get::<_, Vec<u8>>(1)?))).unwrap();
        texts
            .map(Result::unwrap)
            .any(|(length, body)| crate::block::unpack(&body, length).unwrap().contains(words))
    }

    /// Whether any file of the state folder has these bytes, in compressed texts too.
    fn holds(&self, secret: &str) -> bool {
        let in_files = fs::read_dir(self.root.join("state")).unwrap().any(|entry| {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            memchr::memmem::find(&bytes, secret.as_bytes()).is_some()
        });
        in_files || self.texts_hold(secret)
    }
}

/// The ids of the sessions that were found, the best first.
fn sessions(results: &SearchResults) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.session.id.as_str()).collect()
}

#[test]
fn a_session_is_read_whole_after_its_file_is_gone() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "why does the invoice job fail?"),
            home.thought(11, "the lease is probably too short"),
            home.call(12, "Bash", &serde_json::json!({ "command": "cargo test invoices" })),
            home.result(20, 12, "test invoices ... FAILED", true),
            home.call(
                31,
                "Edit",
                &serde_json::json!({ "file_path": "src/lease.rs", "old_string": "30", "new_string": "90" }),
            ),
            home.result(32, 31, "done", false),
            home.answer(33, "The lease of 30 s is shorter than the render."),
        ],
    );
    let summary = home.sync();
    assert_eq!(
        (summary.sessions_new, summary.messages, summary.tool_uses, summary.failed.len()),
        (1, 7, 2, 0)
    );
    fs::remove_dir_all(home.root.join("client")).unwrap();
    assert_eq!(home.sync().found, 0);
    let shown = home.show("s1");
    let kinds: Vec<MessageKind> = shown.iter().map(|message| message.kind).collect();
    use MessageKind::{Answer, Prompt, Thinking, ToolCall, ToolResult};
    assert_eq!(kinds, [Prompt, Thinking, ToolCall, ToolResult, ToolCall, ToolResult, Answer]);
    assert_eq!(shown[1].thinking, "the lease is probably too short");
    let tool = &shown[2].tools[0];
    assert_eq!((tool.name.as_str(), tool.is_error), ("Bash", true));
    assert_eq!(tool.input, r#"{"command":"cargo test invoices"}"#);
    assert_eq!(tool.output.as_deref(), Some("test invoices ... FAILED"));
    let session = home.archive.session("s1").unwrap();
    assert_eq!(session.first_prompt.as_deref(), Some("why does the invoice job fail?"));
    assert_eq!(
        (session.messages, session.prompts, session.answers, session.tool_uses, session.files),
        (7, 1, 1, 2, 1)
    );
    assert_eq!(
        (session.branch.as_deref(), session.model.as_deref()),
        (Some("main"), Some("claude-sonnet-5"))
    );
    home.check();
}

#[test]
fn tokens_of_a_streamed_answer_count_once() {
    let home = Home::new();
    // Three lines of one answer; the last has all of its output tokens.
    home.write(
        "s1",
        &[home.prompt(1, "go"), home.thought(21, "hm"), home.answer(24, "first"), home.answer(27, "then")],
    );
    home.sync();
    let session = home.archive.session("s1").unwrap();
    let tokens = session.tokens;
    assert_eq!((tokens.input, tokens.output, tokens.cache_read, tokens.cache_write), (10, 7, 100, 5));
    assert_eq!(home.search("first").hits[0].session, session);
    let stats = home.archive.stats(&Filter::default(), &TimeZone::UTC).unwrap();
    assert_eq!((stats.models[0].requests, stats.tokens), (1, tokens));
    assert_eq!(
        stats.cost_microdollars,
        llm::microdollars(
            "claude-sonnet-5",
            &llm::Usage {
                input_tokens: 10,
                output_tokens: 7,
                cache_creation_input_tokens: 5,
                cache_read_input_tokens: 100,
            }
        )
    );
    assert_eq!(home.archive.forget("s1", Duration::ZERO).unwrap().sessions, [session]);
}

#[test]
fn a_model_without_a_price_costs_nothing_and_is_counted() {
    let home = Home::new();
    let of_codex = home.answer(11, "done").replace("claude-sonnet-5", "gpt-5-codex");
    home.write("s1", &[home.prompt(1, "go"), of_codex]);
    home.sync();
    let session = home.archive.session("s1").unwrap();
    assert_eq!((session.tokens.input, session.cost_microdollars), (10, 0));
    let stats = home.archive.stats(&Filter::default(), &TimeZone::UTC).unwrap();
    assert_eq!((stats.cost_microdollars, stats.calls_without_price), (0, 1));
    assert_eq!(stats.models[0].cost_microdollars, None);
}

#[test]
fn only_what_was_appended_is_read() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "one")]);
    let first = home.sync();
    assert_eq!((first.bytes, first.messages), (fs::metadata(home.path("s1")).unwrap().len(), 1));
    let more = home.answer(11, "two");
    home.append("s1", &more);
    let second = home.sync();
    assert_eq!((second.bytes, second.messages, second.sessions_new), (more.len() as u64, 1, 0));
    assert_eq!(home.said("s1"), ["one", "two"]);
    let third = home.sync();
    assert_eq!((third.unchanged, third.read, third.bytes), (1, 0, 0));
}

#[test]
fn a_line_that_is_being_written_waits_for_its_end() {
    let home = Home::new();
    let (complete, partial) = (home.prompt(1, "one"), home.answer(11, "two, with an é"));
    home.write("s1", std::slice::from_ref(&complete));
    for cut in [1, partial.len() / 2, partial.len() - 2] {
        fs::write(home.path("s1"), complete.clone() + &partial[..partial.floor_char_boundary(cut)]).unwrap();
        let summary = home.sync();
        assert_eq!((summary.malformed, home.said("s1").len()), (0, 1), "{cut}");
    }
    // Whole without its line feed, as in a copy, which may come later.
    for end in [partial.len() - 1, partial.len()] {
        fs::write(home.path("s1"), complete.clone() + &partial[..end]).unwrap();
        let summary = home.sync();
        assert_eq!((summary.malformed, summary.rewritten), (0, 0));
        assert_eq!(home.said("s1"), ["one", "two, with an é"]);
    }
    home.append("s1", "nonsense\n");
    assert_eq!(home.sync().malformed_lines[0].line, 3);
    assert_eq!(home.said("s1").len(), 2);
    home.check();
}

#[test]
fn the_summary_of_another_session_is_no_title() {
    let home = Home::new();
    let summary = |of: u32, text: &str| {
        format!("{{\"type\":\"summary\",\"summary\":\"{text}\",\"leafUuid\":\"{}\"}}\n", uuid(of))
    };
    home.write("s1", &[home.prompt(1, "one"), home.answer(11, "two")]);
    home.write("s2", &[summary(11, "The first"), home.prompt(2, "three"), home.answer(21, "four")]);
    home.sync();
    let title = |id: &str| {
        let sessions = home.archive.sessions(&Filter::default(), false, 9).unwrap();
        sessions.into_iter().find(|session| session.id == id).unwrap().title
    };
    assert_eq!((title("s1"), title("s2")), (None, None));
    home.append("s2", &summary(21, "The second"));
    home.sync();
    assert_eq!(title("s2").as_deref(), Some("The second"));
    // A fork has the messages of its origin, too.
    home.write(
        "s3",
        &[home.prompt(1, "one"), home.answer(11, "two"), home.prompt(3, "five"), summary(11, "Both")],
    );
    home.sync();
    assert_eq!(title("s3").as_deref(), Some("Both"));
}

#[test]
fn a_rewritten_file_is_taken_again_without_doubling() {
    let home = Home::new();
    let lines: Vec<String> =
        (0..40).map(|at| home.prompt(at + 1, &format!("prompt {at} {}", "x".repeat(900)))).collect();
    home.write("s1", &lines);
    home.sync();
    // The beginning was changed: all of it is read again.
    let mut rewritten = vec![home.prompt(900, "put before")];
    rewritten.extend(lines.clone());
    home.write("s1", &rewritten);
    let summary = home.sync();
    assert_eq!((summary.rewritten, summary.messages), (1, 1));
    // The end was cut and written again, so that the file is longer than before.
    rewritten.truncate(30);
    rewritten.extend((0..30).map(|at| home.prompt(1000 + at, "after the cut")));
    home.write("s1", &rewritten);
    let summary = home.sync();
    assert_eq!((summary.rewritten, summary.messages), (1, 30));
    // Truncated: nothing new, and nothing is lost.
    home.write("s1", &rewritten[..5]);
    let summary = home.sync();
    assert_eq!((summary.rewritten, summary.messages), (1, 0));
    assert_eq!(home.said("s1").len(), 71);
    home.check();
}

#[test]
fn a_rewritten_line_says_what_it_says_now() {
    let home = Home::new();
    let call = |path: &str| home.call(12, "Read", &serde_json::json!({ "file_path": path }));
    let (first, last) = (home.prompt(1, "the zebra plan"), home.answer(21, "unchanged words"));
    home.write("s1", &[first, call("/p/okapi.rs"), home.result(13, 12, "fine", false), last.clone()]);
    home.sync();
    home.write(
        "s1",
        &[home.prompt(1, "the giraffe plan"), call("/p/lion.rs"), home.result(13, 12, "fine", false), last],
    );
    let summary = home.sync();
    assert_eq!((summary.rewritten, summary.messages, summary.changed), (1, 0, 2));
    let shown = home.show("s1");
    assert_eq!(home.said("s1"), ["the giraffe plan", "", "", "unchanged words"]);
    let tool = &shown[1].tools[0];
    assert_eq!(
        (tool.input.as_str(), tool.output.as_deref()),
        (r#"{"file_path":"/p/lion.rs"}"#, Some("fine"))
    );
    assert_eq!(home.archive.session("s1").unwrap().first_prompt.as_deref(), Some("the giraffe plan"));
    let found = |word: &str| home.search(word).hits.len();
    assert_eq!((found("zebra"), found("giraffe"), found("okapi"), found("lion")), (0, 1, 0, 1));
    assert!(!home.texts_hold("zebra") && !home.texts_hold("okapi"), "the old text is overwritten");
    assert_eq!(home.sync_with(&SyncSettings { again: true, ..home.settings() }).changed, 0);
    home.check();
}

#[test]
fn a_fork_shares_lines_and_reads_whole() {
    let home = Home::new();
    let common = [home.prompt(1, "shared question"), home.answer(11, "shared answer")];
    home.write("s1", &common);
    home.append("s1", &home.prompt(2, "only in the first"));
    home.sync();
    home.write("s2", &common);
    home.append("s2", &home.prompt(3, "only in the fork"));
    let summary = home.sync();
    assert_eq!((summary.sessions_new, summary.messages), (1, 3));
    assert_eq!(home.said("s1"), ["shared question", "shared answer", "only in the first"]);
    assert_eq!(home.said("s2"), ["shared question", "shared answer", "only in the fork"]);
    assert_eq!(sessions(&home.search("\"shared question\"")), ["s1"]);
    let stats = home.archive.stats(&Filter::default(), &TimeZone::UTC).unwrap();
    assert_eq!((stats.messages, stats.models[0].requests), (4, 1));
    let related = home.archive.related("s2", 10).unwrap();
    assert_eq!((related[0].session.id.as_str(), related[0].relationship.as_str()), ("s1", "continues"));
    let only_fork = Filter { session: Some("s2".into()), ..Filter::default() };
    let found = home.search_with(&SearchQuery {
        text: "shared".into(),
        filter: only_fork,
        limit: 9,
        ..SearchQuery::default()
    });
    assert_eq!(found.hits.len(), 2, "what a fork shares is found in it");
    // Read again, nothing changes.
    let again = SyncSettings { again: true, ..home.settings() };
    assert_eq!(home.sync_with(&again).messages, 0);
    home.check();
}

/// The figures of a session that do not depend on which of two was archived first.
fn figures(home: &Home, id: &str) -> (Option<Timestamp>, Option<Timestamp>, Option<String>, u64, u64, u64) {
    let session = home.archive.session(id).unwrap();
    let Session { started, ended, first_prompt, messages, tool_uses, files, .. } = session;
    (started, ended, first_prompt, messages, tool_uses, files)
}

#[test]
fn a_copy_that_is_archived_first_takes_nothing() {
    let edit = serde_json::json!({ "file_path": "/p/pay.rs", "old_string": "a", "new_string": "b" });
    let lines = |home: &Home| {
        vec![
            home.prompt(1, "repair the payments"),
            home.call(2, "Edit", &edit),
            home.result(3, 2, "ok", false),
        ]
    };
    let [usual, turned] = [["old", "new"], ["new", "old"]].map(|order| {
        let home = Home::new();
        for session in order {
            let mut all = lines(&home);
            all.extend((session == "new").then(|| home.prompt(5, "and the refunds")));
            home.write(session, &all);
            home.sync();
        }
        let by = |filter: Filter| -> Vec<String> {
            let listed = home.archive.sessions(&filter, false, 9).unwrap();
            listed.into_iter().map(|session| session.id).collect()
        };
        let by_tool = by(Filter { tool: Some("Edit".to_owned()), ..Filter::default() });
        let by_file = by(Filter { file: Some("pay.rs".to_owned()), ..Filter::default() });
        assert_eq!((by_tool.len(), by_file.len()), (2, 2));
        let related: Vec<(String, String)> = home
            .archive
            .related("old", 9)
            .unwrap()
            .into_iter()
            .map(|related| (related.session.id, related.relationship))
            .collect();
        assert_eq!(related, [("new".to_owned(), "continued_by".to_owned())]);
        let stats = home.archive.stats(&Filter::default(), &TimeZone::UTC).unwrap();
        assert_eq!((stats.tool_uses, stats.top_files[0].times), (1, 1), "nothing counts twice");
        home.check();
        [figures(&home, "old"), figures(&home, "new")]
    });
    assert_eq!(usual, turned);
    assert_eq!((usual[0].2.as_deref(), usual[0].4, usual[1].4), (Some("repair the payments"), 1, 1));
}

#[test]
fn forks_of_one_session_are_related() {
    let home = Home::new();
    let edit = serde_json::json!({ "file_path": "/p/pay.rs", "old_string": "a", "new_string": "b" });
    for (number, session) in [(50, "s1"), (60, "s2"), (70, "s3")] {
        let own = home.prompt(number, "on from here");
        home.write(session, &[home.prompt(1, "repair the payments"), home.call(2, "Edit", &edit), own]);
        home.sync();
    }
    let related = home.archive.related("s2", 9).unwrap();
    let related: Vec<(&str, &str)> =
        related.iter().map(|related| (related.session.id.as_str(), related.relationship.as_str())).collect();
    assert_eq!(related, [("s1", "continues"), ("s3", "related_to")]);
}

#[test]
fn transcripts_are_stored_oldest_first_whoever_reads_faster() {
    let home = Home::new();
    let filler = "word ".repeat(40_000);
    for pair in 0..8_u32 {
        let shared = home.prompt(100 * pair + 1, "repair the payments");
        let long = (2..20).map(|number| home.answer(100 * pair + number, &filler));
        let old = format!("{pair}-old");
        home.write(&old, &std::iter::once(shared.clone()).chain(long).collect::<Vec<_>>());
        home.write(&format!("{pair}-new"), &[shared]);
        for (session, seconds) in [("old", 0), ("new", 1)] {
            let at =
                std::time::UNIX_EPOCH + Duration::from_secs(1_760_000_000 + u64::from(pair) * 10 + seconds);
            let file =
                fs::File::options().append(true).open(home.path(&format!("{pair}-{session}"))).unwrap();
            file.set_modified(at).unwrap();
        }
    }
    home.sync_with(&SyncSettings { threads: 2, ..home.settings() });
    let connection = rusqlite::Connection::open(home.archive.path()).unwrap();
    let sql = "SELECT count(*) FROM shared_messages m JOIN sessions s ON s.id = m.session WHERE s.session LIKE '%new'";
    assert_eq!(connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 8);
}

#[test]
fn what_a_fork_shares_survives_its_origin() {
    let home = Home::new();
    let common = [
        home.prompt(1, "shared question"),
        home.call(11, "Bash", &serde_json::json!({ "command": "make invoice" })),
        home.result(12, 11, "built", false),
    ];
    home.write("s1", &common);
    home.append("s1", &home.prompt(2, "a private remark about zebras"));
    home.sync();
    home.write("s2", &common);
    home.append("s2", &home.answer(31, "and on"));
    home.sync();
    let removal = home.archive.forget("s1", Duration::ZERO).unwrap();
    assert_eq!((removal.sessions.len(), removal.messages), (1, 1));
    assert_eq!((removal.shared, removal.shared_with), (3, vec!["s2".to_owned()]));
    assert_eq!(home.said("s2"), ["shared question", "", "", "and on"]);
    let tool = home.show("s2").swap_remove(1).tools.remove(0);
    assert_eq!(
        (tool.input.as_str(), tool.output.as_deref()),
        (r#"{"command":"make invoice"}"#, Some("built"))
    );
    assert_eq!(sessions(&home.search("\"shared question\"")), ["s2"]);
    assert!(home.search("zebras").hits.is_empty());
    assert!(!home.holds("zebra"), "a deleted text is overwritten");
    // It is not taken again, whatever happens to its file.
    home.append("s1", &home.prompt(4, "more about zebras"));
    let summary = home.sync();
    assert_eq!((summary.skipped.get("forgotten"), summary.messages), (Some(&1), 0));
    assert!(matches!(home.archive.session("s1"), Err(Error::UnknownSession { .. })));
    home.check();
}

#[test]
fn subagents_are_sessions_with_a_parent() {
    let home = Home::new();
    home.write("11111111-0000-4000-8000-000000000001", &[home.prompt(1, "ask a helper")]);
    home.write("11111111-0000-4000-8000-000000000001/subagents/agent-77", &[home.answer(51, "helped")]);
    let parent = r#"{"type":"user","sessionId":"11111111-0000-4000-8000-000000000001","uuid":"x","message":{"role":"user","content":"old form"}}"#;
    home.write("agent-88", &[format!("{parent}\n")]);
    home.sync();
    let top = home.archive.sessions(&Filter::default(), false, 10).unwrap();
    assert_eq!(top.len(), 1);
    let all = home.archive.sessions(&Filter::default(), true, 10).unwrap();
    let agents: Vec<_> =
        all.iter().filter(|session| session.parent.as_deref() == Some(top[0].id.as_str())).collect();
    assert_eq!(agents.len(), 2);
    let related = home.archive.related("11111111", 10).unwrap();
    assert_eq!(related.iter().filter(|related| related.relationship == "subagent").count(), 2);
    let task = r#"{"type":"user","isSidechain":true,"uuid":"y","message":{"role":"user","content":"count the cranes"}}"#;
    home.write("11111111-0000-4000-8000-000000000001/subagents/agent-99", &[format!("{task}\n")]);
    home.sync();
    assert_eq!(home.archive.session("agent-99").unwrap().first_prompt.as_deref(), Some("count the cranes"));
    home.archive.forget("agent-99", Duration::ZERO).unwrap();
    let printed = home.archive.session("11111111/agent-7").unwrap().id;
    assert_eq!(printed, "11111111-0000-4000-8000-000000000001/agent-77");
    let of_agent = Filter { session: Some("11111111/agent-7".into()), ..Filter::default() };
    let query = SearchQuery { text: "helped".into(), filter: of_agent, limit: 9, ..SearchQuery::default() };
    assert_eq!(home.search_with(&query).hits.len(), 1);
    assert_eq!(home.archive.session("agent-77").unwrap().id, "11111111-0000-4000-8000-000000000001/agent-77");
    assert_eq!(home.archive.forget("11111111", Duration::ZERO).unwrap().sessions.len(), 3);
}

#[test]
fn unknown_and_malformed_lines_are_counted_and_named() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "one"),
            "{\"type\":\"hologram\",\"a\":1}\n".to_owned(),
            "{\"type\":\"user\",\"message\":\n".to_owned(),
            "\n".to_owned(),
            "not json\n".to_owned(),
            "[1,2]\n".to_owned(),
            "{\"type\":\"progress\"}\n".to_owned(),
            home.answer(11, "two"),
        ],
    );
    home.write("s2", &["\u{0}\u{1}\n".to_owned(), home.prompt(2, "the next file is read all the same")]);
    let summary = home.sync();
    assert_eq!(summary.unknown, BTreeMap::from([("hologram".to_owned(), 1)]));
    let lines: Vec<_> = summary
        .malformed_lines
        .iter()
        .filter(|line| line.path == home.path("s1"))
        .map(|line| line.line)
        .collect();
    assert_eq!((summary.malformed, lines), (4, vec![3, 5, 6]));
    assert_eq!((home.said("s1"), home.said("s2").len()), (vec!["one".to_owned(), "two".to_owned()], 1));
}

#[test]
fn no_part_of_a_line_is_trusted() {
    let home = Home::new();
    let secret = "ghp_x7Kq2mZp9Rt4Wv6Yb8Nc1Ds3Fg5Hj0Lk2AbQ";
    let number = "{\"type\":\"user\",\"uuid\":\"n\",\"message\":{\"role\":\"user\",\"content\":42}}\n";
    home.write("s1", &[home.prompt(1, "one"), format!("{{\"type\":\"{secret}\"}}\n"), number.to_owned()]);
    let summary = home.sync();
    assert_eq!(summary.unknown, BTreeMap::from([("other".to_owned(), 1)]));
    assert_eq!((summary.malformed, summary.malformed_lines[0].line), (1, 3));
    assert!(!home.holds(secret));
}

#[test]
fn a_file_that_cannot_be_read_stops_no_other() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "readable")]);
    // A folder is not listed.
    fs::create_dir(home.root.join("client/projects/-p/folder.jsonl")).unwrap();
    let summary = home.sync();
    assert_eq!((summary.messages, summary.found), (1, 1));
    fs::set_permissions(home.path("s1"), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    home.write("s2", &[home.prompt(2, "also readable")]);
    let again = SyncSettings { again: true, ..home.settings() };
    let summary = home.sync_with(&again);
    assert_eq!(summary.messages, 1);
    // Root reads everything.
    assert_eq!(summary.failed.len(), usize::from(fs::read(home.path("s1")).is_err()));
}

#[test]
fn what_must_not_be_kept_is_not() {
    let home = Home::new();
    let key = format!("ghp_{KEY}");
    home.write(
        "s1",
        &[
            home.prompt(1, &format!("use {key} <private>the moon base</private> please")),
            home.thought(11, &format!("the token {key} is known")),
            home.answer(12, &format!("I set GITHUB_TOKEN={key}")),
            home.call(
                13,
                "Bash",
                &serde_json::json!({ "command": format!("curl -H 'Authorization: Bearer {key}' x") }),
            ),
            home.result(14, 13, &format!("{}\n{key}\n{}", "a ".repeat(20_000), "b ".repeat(20_000)), false),
            home.result(15, 13, &format!("password: \"Tr0ub4dor&3\" {}{key}", "c ".repeat(30_000)), false),
            format!("{{\"type\":\"summary\",\"summary\":\"about {key}\"}}\n"),
        ],
    );
    home.sync();
    for secret in [&key[4..], &key[..20], "moon base", "Tr0ub4dor"] {
        assert!(!home.holds(secret), "{secret}");
    }
    assert!(home.search("GITHUB_TOKEN redacted").hits[0].snippet.contains("[redacted]: "));
    home.check();
}

#[test]
fn projects_that_are_left_alone_leave_nothing() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "about the excluded project")]);
    let excluded = SyncSettings { exclude: Exclude::new("shop", None), ..home.settings() };
    for _ in 0..2 {
        assert_eq!(home.sync_with(&excluded).skipped, BTreeMap::from([("excluded".to_owned(), 1)]));
    }
    fs::write(home.root.join("shop/.nuggetignore"), "*\n").unwrap();
    assert_eq!(home.sync().skipped, BTreeMap::from([("excluded".to_owned(), 1)]));
    fs::remove_file(home.root.join("shop/.nuggetignore")).unwrap();
    let declined = SyncSettings { is_declined: &|_| true, ..home.settings() };
    assert_eq!(home.sync_with(&declined).skipped, BTreeMap::from([("declined".to_owned(), 1)]));
    let own = SyncSettings { state: home.root.join("shop"), ..home.settings() };
    assert_eq!(home.sync_with(&own).skipped, BTreeMap::from([("own".to_owned(), 1)]));
    assert!(!home.holds("excluded project"));
    let again = SyncSettings { again: true, ..home.settings() };
    assert_eq!(home.sync_with(&again).messages, 1);
}

#[test]
fn a_folder_that_is_named_behind_pasted_images_is_known() {
    let home = Home::new();
    let image =
        serde_json::json!({ "type": "image", "source": { "type": "base64", "data": "A".repeat(5 << 20) } });
    let said = serde_json::json!([image, { "type": "text", "text": "the merger is confidential" }]);
    let mut line: serde_json::Value = serde_json::from_str(&home.line("user", 1, &said)).unwrap();
    let cwd = line.as_object_mut().unwrap().remove("cwd").unwrap();
    let line = line.to_string();
    let line = format!("{},\"cwd\":{cwd}}}\n", line.strip_suffix('}').unwrap());
    home.write("s1", &[line]);
    home.write("s2", &[home.prompt(2, "about the same project")]);
    let excluded = SyncSettings { exclude: Exclude::new("shop", None), ..home.settings() };
    assert_eq!(home.sync_with(&excluded).skipped, BTreeMap::from([("excluded".to_owned(), 2)]));
    assert!(!home.holds("merger"));
    home.sync();
    let projects = ["s1", "s2"].map(|session| home.archive.session(session).unwrap().project);
    assert_eq!(projects[0], projects[1]);
}

#[test]
fn contents_of_ignored_files_are_left_out() {
    let home = Home::new();
    fs::write(home.root.join("shop/.nuggetignore"), "*.secret\n").unwrap();
    let file = home.root.join("shop/plan.secret").to_string_lossy().into_owned();
    home.write(
        "s1",
        &[
            home.prompt(1, "read it"),
            home.call(11, "Write", &serde_json::json!({ "file_path": file, "content": "conquer Atlantis" })),
            home.call(12, "Bash", &serde_json::json!({ "command": "cat plan.secret" })),
            home.call(
                15,
                "Bash",
                &serde_json::json!({ "command": "cat > new.secret <<'EOF'\nconquer Atlantis\nEOF", "description": "Write Atlantis" }),
            ),
        ],
    );
    home.sync();
    // The results come later, when another reader reads on.
    home.append("s1", &home.result(13, 12, "conquer Atlantis", false));
    home.sync();
    assert!(!home.holds("Atlantis"));
    assert_eq!(home.search("Atlantis").hits, []);
    assert_eq!(home.search("new.secret").hits.len(), 1);
    assert_eq!(home.show("s1")[2].tools[0].output.as_deref(), Some("[left out: .nuggetignore]"));
}

#[test]
fn half_a_character_costs_no_text() {
    let home = Home::new();
    let edit = serde_json::json!({ "file_path": "/w/a.rs", "old_string": "a HALF", "new_string": "b" });
    let lines = [
        home.prompt(1, "always use tabs HALF and never spaces"),
        home.answer(11, "so be it HALF"),
        home.call(12, "Edit", &edit),
        home.result(13, 12, "made kumquat HALF", false),
    ];
    // As JavaScript writes a text that ends within a character.
    home.write("s1", &lines.map(|line| line.replace("HALF", "\\ud83d")));
    home.sync();
    let shown = home.show("s1");
    assert_eq!(shown[0].content, "always use tabs \u{fffd} and never spaces");
    assert_eq!(shown[1].content, "so be it \u{fffd}");
    let tool = &shown[2].tools[0];
    assert_eq!(tool.output.as_deref(), Some("made kumquat \u{fffd}"));
    let input: serde_json::Value = serde_json::from_str(&tool.input).unwrap();
    assert_eq!(input["old_string"], "a \u{fffd}");
}

#[test]
fn what_a_person_and_the_background_print_of_ignored_files_is_left_out() {
    let home = Home::new();
    fs::create_dir_all(home.root.join("shop/hr")).unwrap();
    fs::write(home.root.join("shop/.nuggetignore"), "/hr/pay.csv\n").unwrap();
    let bash = |n: u32, command: &str| home.call(n, "Bash", &serde_json::json!({ "command": command }));
    let started = "Command running in background with ID: b7. Output is being written to: /tmp/b7.output";
    home.write(
        "s1",
        &[
            home.prompt(1, "<bash-input>cat hr/pay.csv; echo Atlantis</bash-input>"),
            bash(11, "cd hr && cat pay.csv"),
            bash(12, "cat hr/pay.csv"),
            home.result(13, 12, started, false),
            bash(14, "git diff"),
            bash(19, "nugget ask why; cat hr/pay.csv"),
        ],
    );
    home.sync();
    // The results come later, when another reader reads on.
    for line in [
        home.prompt(2, "<bash-stdout>Atlantis</bash-stdout><bash-stderr></bash-stderr>"),
        home.result(15, 11, "Atlantis", false),
        home.result(20, 19, "Atlantis", false),
        home.call(16, "BashOutput", &serde_json::json!({ "bash_id": "b7" })),
        home.result(17, 16, "Atlantis", false),
        home.result(
            18,
            14,
            "diff --git a/hr/pay.csv b/hr/pay.csv\n+Atlantis\ndiff --git a/b b/b\n+Lemuria",
            false,
        ),
        home.prompt(5, "<bash-input>nugget ask why; cat hr/pay.csv</bash-input>"),
        home.prompt(6, "<bash-stdout>Atlantis</bash-stdout><bash-stderr></bash-stderr>"),
        home.prompt(3, "<bash-input>ls</bash-input>"),
        home.prompt(4, "<bash-stdout>Lemuria</bash-stdout><bash-stderr></bash-stderr>"),
    ] {
        home.append("s1", &line);
    }
    home.sync();
    assert!(!home.holds("Atlantis"));
    assert!(home.holds("Lemuria") && home.holds("<bash-input>cat hr/pay.csv</bash-input>"));
    home.check();
}

#[test]
fn a_long_output_keeps_its_ends() {
    let home = Home::new();
    let output = format!("first line\n{}\nlast line", "middle ".repeat(100_000));
    home.write(
        "s1",
        &[
            home.prompt(1, "go"),
            home.call(11, "Bash", &serde_json::json!({ "command": "make" })),
            home.result(12, 11, &output, false),
        ],
    );
    home.sync();
    let tool = home.show("s1").swap_remove(1).tools.remove(0);
    let kept = tool.output.unwrap();
    assert!(kept.starts_with("first line") && kept.ends_with("last line") && kept.len() < 17_000);
    assert_eq!(tool.output_bytes, Some(output.len() as u64));
}

#[test]
fn a_prompt_that_is_too_long_keeps_its_ends() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, &format!("startgrape {} endgrape", "filler ".repeat(200_000)))]);
    home.sync();
    let said = home.said("s1").remove(0);
    assert!(said.starts_with("startgrape") && said.ends_with("endgrape"));
    assert!(said.contains(" bytes left out …]") && said.len() < 600_000, "{}", said.len());
    assert_eq!((home.search("startgrape").hits.len(), home.search("endgrape").hits.len()), (1, 1));
}

#[test]
fn a_query_of_any_characters_is_no_error() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "fix foo-bar.rs: it's \"broken\" (again) C++ a*b")]);
    home.sync();
    for text in [
        "foo-bar.rs:",
        "it's",
        "\"",
        "(",
        "a AND",
        "NOT",
        "AND OR",
        "content:",
        "x:y",
        "*",
        "^",
        "''",
        "NEAR(",
        "\0",
        "{a b}",
        "C++",
        "a*b",
        "--",
        "+",
    ] {
        home.search(text);
    }
    for text in [
        "foo-bar.rs:",
        "it's broken",
        "\"broken again\"",
        "brok*",
        "C++",
        "foo AND bar",
        "(again",
        "again) OR",
    ] {
        assert_eq!(home.search(text).hits.len(), 1, "{text}");
    }
    assert_eq!(home.search("\"again broken\"").hits.len(), 0);
    assert_eq!(home.search("broken NOT again").hits.len(), 0);
    let mut rng = Rng::with_seed(7);
    for _ in 0..300 {
        let text: String = (0..rng.usize(1..12))
            .map(|_| {
                *rng.choice(&['a', '"', '*', '(', ')', ' ', '-', ':', '^', '{', '}', '\'', 'é', '+', ','])
                    .unwrap_or(&'a')
            })
            .collect();
        home.search(&text);
    }
}

#[test]
fn what_a_failed_tool_said_is_found_and_shown_once() {
    let home = Home::new();
    let long = format!("error: exploded kumquat\n{}", "trace ".repeat(9000));
    home.write(
        "s1",
        &[
            home.prompt(1, "run it"),
            home.call(11, "Bash", &serde_json::json!({ "command": "make" })),
            home.result(12, 11, &long, true),
            home.call(13, "Bash", &serde_json::json!({ "command": "make again" })),
            home.result(14, 13, "a fine mandarin", false),
        ],
    );
    home.sync();
    let found = home.search("kumquat");
    assert_eq!(found.hits[0].kind, MessageKind::ToolResult);
    assert!(found.hits[0].snippet.contains("exploded [kumquat]"), "{}", found.hits[0].snippet);
    assert!(home.search("mandarin").hits.is_empty(), "other outputs are not searched");
    let shown = home.show("s1");
    assert!(shown[1].tools[0].output.as_ref().unwrap().starts_with("error: exploded kumquat"));
    assert_eq!(shown[2].content, "", "the output of the call says it");
    let all = home.search_with(&SearchQuery { limit: 9, ..SearchQuery::default() });
    assert!(all.hits.iter().all(|hit| !hit.snippet.is_empty()), "a list of messages has no empty one");
    home.check();
}

#[test]
fn a_role_wrote_its_own_words() {
    let home = Home::new();
    let injected = home.prompt(2, "<command-name>/review</command-name>");
    home.write("s1", &[home.prompt(1, "my own words"), injected, home.answer(11, "its words")]);
    home.sync();
    let kinds = |role: Role| -> Vec<MessageKind> {
        let filter = Filter { role: Some(role), ..Filter::default() };
        let query = SearchQuery { filter, limit: 9, ..SearchQuery::default() };
        home.search_with(&query).hits.iter().map(|hit| hit.kind).collect()
    };
    assert_eq!(kinds(Role::User), [MessageKind::Prompt]);
    assert_eq!(kinds(Role::Assistant), [MessageKind::Answer]);
    assert_eq!(kinds(Role::System), [MessageKind::Injected]);
}

#[test]
fn a_caret_does_not_hide_what_stands_later() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "how does the backoff grow?")]);
    home.sync();
    for query in ["^backoff", "^how", "\"backoff grow\" ^how"] {
        assert_eq!(sessions(&home.search(query)), ["s1"], "{query}");
    }
}

#[test]
fn filters_narrow_a_search() {
    let home = Home::new();
    home.write(
        "aaaa",
        &[
            home.prompt(1, "lease of the queue"),
            home.answer(11, "the lease is 30 s"),
            home.call(21, "Bash", &serde_json::json!({ "command": "grep lease src" })),
            home.call(31, "Edit", &serde_json::json!({ "file_path": "src/lease.rs" })),
            home.thought(41, "a lease may lapse"),
        ],
    );
    home.write("bbbb", &[home.prompt(2, "the lease again")]);
    home.sync();
    let count = |filter: Filter, thinking: bool| {
        home.search_with(&SearchQuery {
            text: "lease".into(),
            filter,
            thinking,
            limit: 50,
            ..SearchQuery::default()
        })
        .hits
        .len()
    };
    let all = Filter::default;
    assert_eq!((count(all(), false), count(all(), true)), (5, 6));
    assert_eq!(count(Filter { role: Some(Role::User), ..all() }, false), 2);
    assert_eq!(count(Filter { session: Some("bb".into()), ..all() }, false), 1);
    assert_eq!(count(Filter { tool: Some("bash".into()), ..all() }, false), 1);
    assert_eq!(count(Filter { file: Some("lease.rs".into()), ..all() }, false), 4);
    assert_eq!(count(Filter { file: Some("ease.rs".into()), ..all() }, false), 0);
    assert_eq!(count(Filter { branch: Some("ma*".into()), ..all() }, false), 5);
    assert_eq!(count(Filter { branch: Some("dev".into()), ..all() }, false), 0);
    assert_eq!(
        count(Filter { model: Some("sonnet".into()), role: Some(Role::Assistant), ..all() }, false),
        3
    );
    assert_eq!(count(Filter { project: Some("shop".into()), ..all() }, false), 5);
    assert_eq!(count(Filter { project: Some(home.cwd()), ..all() }, false), 5);
    assert_eq!(count(Filter { project: Some("sh_p".into()), ..all() }, false), 0);
    // A folder of projects is none.
    for folder in [home.root.to_string_lossy().into_owned(), "/".to_owned()] {
        assert_eq!(count(Filter { project: Some(folder), ..all() }, false), 0);
    }
    assert_eq!(count(Filter { source: Some("codex".into()), ..all() }, false), 0);
    let at = |second: i64| Some(Timestamp::from_second(1_760_000_000 + second).unwrap());
    assert_eq!(count(Filter { since: at(11), ..all() }, false), 3);
    assert_eq!(count(Filter { until: at(2), ..all() }, false), 2);
    // Without a text, the newest first.
    for (thinking, newest) in [(true, at(41)), (false, at(31))] {
        let found = home.search_with(&SearchQuery { limit: 1, thinking, ..SearchQuery::default() });
        assert_eq!(found.hits[0].at, newest);
    }
}

#[test]
fn a_hit_has_its_neighbours_and_a_marked_snippet() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "before"),
            home.call(11, "Bash", &serde_json::json!({ "command": "ls" })),
            home.answer(12, "the leases are here"),
            home.prompt(2, "after"),
        ],
    );
    home.sync();
    let query = SearchQuery { text: "lease".into(), limit: 5, context: 1, ..SearchQuery::default() };
    let hit = home.search_with(&query).hits.remove(0);
    assert_eq!(hit.snippet, "the [leases] are here");
    assert_eq!((hit.before[0].content.as_str(), hit.after[0].content.as_str()), ("before", "after"));
    let query = SearchQuery { text: "nothing lease".into(), limit: 5, ..SearchQuery::default() };
    let found = home.search_with(&query);
    assert!(found.has_partial_matches);
    assert_eq!(found.hits.len(), 1);
    for (text, hits) in
        [("what did we say about \"the leases\"?", 1), ("\"leases the\" about", 0), ("about AND leases", 0)]
    {
        let query = SearchQuery { text: text.into(), limit: 5, ..SearchQuery::default() };
        assert_eq!(home.search_with(&query).hits.len(), hits, "{text}");
    }
}

#[test]
fn words_of_scripts_without_spaces_are_found() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "支払いの承認をコミット前に送るのを可視性タイムアウトの中で防ぐ"),
            home.answer(11, "连接池的超时是三秒"),
            home.answer(12, "비밀번호를 바꾼다"),
        ],
    );
    home.sync();
    for (text, snippet) in [
        ("可視性タイムアウト", "支払いの承認をコミット前に送るのを[可視性タイムアウト]の中…"),
        ("\"承認\" AND コミット", "支払いの[承認]を[コミット]前に送るのを可視性タイムアウトの中…"),
        ("超时", "连接池的[超时]是三秒"),
        ("비밀번호", "[비밀번호]를 바꾼다"),
        // A sentence that nobody has said.
        ("连接池怎么办", "[连接池]的超时是三秒"),
    ] {
        let query = SearchQuery { text: text.into(), limit: 5, ..SearchQuery::default() };
        let found = home.search_with(&query);
        assert_eq!(found.hits.len(), 1, "{text}");
        assert_eq!(found.hits[0].snippet, snippet, "{text}");
    }
    let query = SearchQuery { text: "接続".into(), limit: 5, ..SearchQuery::default() };
    assert!(home.search_with(&query).hits.is_empty());
}

#[test]
fn meaning_and_words_are_fused() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "the lease is too short"),
            home.answer(11, "a visibility timeout elapsed"),
            home.prompt(2, "unrelated words"),
        ],
    );
    home.sync();
    let all = 1..home.archive.last_message().unwrap() + 1;
    let unembedded = |range, limit| home.archive.unembedded("m", range, limit).unwrap();
    let pending = unembedded(all.clone(), 10);
    assert_eq!(pending.rest, None);
    let pending = pending.messages;
    let some = unembedded(all.clone(), 2);
    assert_eq!(some.messages, pending[..2]);
    let rest = unembedded(some.rest.unwrap(), 2);
    assert_eq!((rest.messages.as_slice(), rest.rest), (&pending[2..], None));
    assert_eq!(home.archive.embedded("m").unwrap(), (0, 3));
    let texts: Vec<&str> = pending.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["unrelated words", "a visibility timeout elapsed", "the lease is too short"]);
    let vector = |text: &str| if text.contains("unrelated") { vec![0.0, 1.0] } else { vec![1.0, 0.1] };
    let vectors: Vec<_> = pending.iter().map(|one| (one.message, vector(&one.text))).collect();
    home.archive.store_vectors("m", &vectors[..2]).unwrap();
    assert_eq!(home.archive.embedded("m").unwrap(), (2, 3));
    home.archive.store_vectors("m", &vectors).unwrap();
    home.archive.store_vectors("m", &[(999_999, vec![1.0, 0.0])]).unwrap();
    assert_eq!((home.archive.embedded("m").unwrap(), home.archive.embedded("n").unwrap()), ((3, 3), (0, 3)));
    assert!(unembedded(all, 10).messages.is_empty());
    let query = SearchQuery { text: "lease".into(), limit: 2, ..SearchQuery::default() };
    let question = || Some(("m".to_owned(), vec![1.0, 0.0]));
    let found = home.archive.search_by_meaning(&query, MARKERS, question).unwrap();
    assert_eq!(found.hits[0].snippet, "the [lease] is too short");
    assert_eq!((found.hits[0].by_words, found.hits[0].by_meaning), (true, true));
    assert_eq!(found.hits[1].snippet, "a visibility timeout elapsed");
    assert_eq!((found.hits[1].by_words, found.hits[1].by_meaning), (false, true));

    let mut by_words = found;
    by_words.hits.truncate(1);
    by_words.hits[0].by_meaning = false;
    by_words.hits[0].score = home.search_with(&query).hits[0].score;
    assert_eq!(
        home.archive.search_by_meaning(&query, MARKERS, || None).unwrap(),
        by_words,
        "without a model"
    );

    for exact in ["visibility AND lease", "timeout NOT elapsed", "\"lease short\""] {
        let query = SearchQuery { text: exact.into(), ..query.clone() };
        assert_eq!(home.archive.search_by_meaning(&query, MARKERS, question).unwrap().hits, [], "{exact}");
    }

    let elsewhere = Filter { project: Some("/elsewhere".into()), ..Filter::default() };
    let query = SearchQuery { filter: elsewhere, ..query };
    assert_eq!(home.archive.search_by_meaning(&query, MARKERS, question).unwrap().hits, [], "filtered");
}

#[test]
fn a_message_with_an_empty_vector_is_not_found_by_meaning() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "the lease is too short"), home.prompt(2, "no tokens in here")]);
    home.sync();
    let all = 0..home.archive.last_message().unwrap() + 1;
    let pending = home.archive.unembedded("m", all.clone(), 10).unwrap().messages;
    let vectors = [(pending[0].message, Vec::new()), (pending[1].message, vec![1.0, 0.0])];
    home.archive.store_vectors("m", &vectors).unwrap();
    assert_eq!(home.archive.unembedded("m", all, 10).unwrap().messages, []);
    let filter = Filter { session: Some("s1".into()), ..Filter::default() };
    for filter in [Filter::default(), filter] {
        let query = SearchQuery { text: "?".into(), filter, limit: 10, ..SearchQuery::default() };
        let question = || Some(("m".to_owned(), vec![1.0, 0.0]));
        let found = home.archive.search_by_meaning(&query, MARKERS, question).unwrap();
        let found: Vec<i64> = found.hits.iter().map(|hit| hit.message).collect();
        assert_eq!(found, [pending[1].message]);
    }
    let said = home.archive.said(&home.archive.session("s1").unwrap(), Some("m")).unwrap();
    assert_eq!(said.iter().map(|said| said.vector.is_some()).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_search_may_ask_for_any_number_of_hits() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "the lease is too short")]);
    home.sync();
    let pending = home.archive.unembedded("m", 0..10, 10).unwrap().messages;
    home.archive.store_vectors("m", &[(pending[0].message, vec![1.0, 0.0])]).unwrap();
    for per_session in [0, 1] {
        let query =
            SearchQuery { text: "lease".into(), limit: usize::MAX, per_session, ..SearchQuery::default() };
        let question = || Some(("m".to_owned(), vec![1.0, 0.0]));
        assert_eq!(home.archive.search_by_meaning(&query, MARKERS, question).unwrap().hits.len(), 1);
        assert_eq!(home.search_with(&query).hits.len(), 1);
    }
}

#[test]
fn the_nearest_messages_are_found_in_all_parts_of_the_archive() {
    let home = Home::new();
    let prompts: Vec<_> =
        (1..=60).map(|at| home.prompt(at, &format!("a message about number {at}"))).collect();
    home.write("s", &prompts);
    home.sync();
    let end = home.archive.last_message().unwrap() + 1;
    let pending = home.archive.unembedded("m", 0..end, 100).unwrap().messages;
    assert_eq!(pending.len(), 60);
    let vector = |at: usize| vec![1.0, at as f32 / 100.0];
    let vectors: Vec<_> = pending.iter().enumerate().map(|(at, one)| (one.message, vector(at))).collect();
    home.archive.store_vectors("m", &vectors).unwrap();
    // In any order of the messages, those with the smallest angle.
    let query = SearchQuery { text: "?".into(), limit: 60, ..SearchQuery::default() };
    let found =
        home.archive.search_by_meaning(&query, MARKERS, || Some(("m".to_owned(), vec![1.0, 0.0]))).unwrap();
    let found: Vec<i64> = found.hits.iter().map(|hit| hit.message).collect();
    assert_eq!(found, vectors.iter().map(|(message, _)| *message).collect::<Vec<_>>());
}

#[test]
fn many_messages_of_one_session_hide_no_other() {
    let home = Home::new();
    let long: Vec<String> = (0..150).map(|number| home.prompt(number, "the lease")).collect();
    home.write("long", &long);
    for number in 0..12 {
        let text = "a longer message in which the lease is named once among other words";
        home.write(&format!("other-{number}"), &[home.prompt(1_000 + number, text)]);
    }
    home.sync();
    let query = SearchQuery { text: "lease".into(), limit: 10, per_session: 1, ..SearchQuery::default() };
    assert_eq!(home.search_with(&query).hits.len(), 10);
}

#[test]
fn sessions_are_ranked_by_their_best_messages() {
    let home = Home::new();
    home.write(
        "s1",
        &[home.prompt(1, "the lease"), home.prompt(2, "the lease again"), home.prompt(3, "a lease, too")],
    );
    home.write("s2", &[home.prompt(100, "a walrus and the lease of a long, long beach")]);
    home.write("s1/subagents/agent-a", &[home.prompt(50, "lease lease lease")]);
    home.sync();
    let query =
        |per_session| SearchQuery { text: "lease".into(), limit: 10, per_session, ..SearchQuery::default() };
    let found = home.search_with(&query(1));
    assert_eq!(found.hits.len(), 2, "a subagent's messages are its caller's");
    assert_eq!(found.hits[1].session.id, "s2");
    assert_eq!(home.search_with(&query(2)).hits.len(), 3);
    assert_eq!(home.search_with(&query(0)).hits.len(), 5);
}

#[test]
fn sessions_of_one_subject_are_related_with_reasons() {
    let home = Home::new();
    let edit = |number| home.call(number, "Edit", &serde_json::json!({ "file_path": "src/lease.rs" }));
    home.write("s1", &[home.prompt(1, "visibility timeout of invoices"), edit(11)]);
    home.write("s2", &[home.prompt(100_000, "visibility timeout again"), edit(100_011)]);
    home.write("s3", &[home.prompt(900_000, "see 00000000-0000-4000-8000-00000000aaaa for more")]);
    home.sync();
    let related = home.archive.related("s2", 10).unwrap();
    let reasons: Vec<_> = related
        .iter()
        .map(|one| (one.session.id.as_str(), one.relationship.as_str(), one.reason.as_str()))
        .collect();
    assert_eq!(reasons, [("s1", "related_to", "both changed lease.rs; about visibility, timeout")]);
    home.write("s4", &[home.prompt(100_500, "on the same branch soon after")]);
    home.sync();
    let related = home.archive.related("s4", 10).unwrap();
    assert_eq!((related[0].session.id.as_str(), related[0].relationship.as_str()), ("s2", "continues"));
    assert_eq!(related[0].reason, "same branch main, 8 min later");
    let context = home.archive.context("shop", None).unwrap();
    assert_eq!((context.sessions.len(), context.files[0].sessions), (4, 2));
    assert_eq!(context.open_threads.len(), 4);
}

#[test]
fn a_project_has_decisions_and_days() {
    let home = Home::new();
    let offer = "Two ways to keep the jobs:\n\n**A) SQLite table** — one writer.\n**B) Redis stream** — one more \
        service.\n\nWhere should the jobs be stored?";
    let questions = serde_json::json!({ "questions": [{
        "question": "How are errors shown to people?", "header": "Errors",
        "options": [{ "label": "Inline", "description": "" }, { "label": "Toast", "description": "" }],
    }]});
    let told = "User has answered your questions: \"How are errors shown to people?\"=\"Inline\". You can now continue.";
    home.write(
        "s1",
        &[
            home.prompt(1, "We decided nothing yet. Which database?"),
            home.answer(11, offer),
            home.prompt(2, "A, it is enough"),
            home.call(12, "AskUserQuestion", &questions),
            home.result(3, 12, told, false),
            home.answer(13, "Done. I decided to use a mutex."),
        ],
    );
    home.write("s2", &[home.prompt(86_400 * 2, "hello"), home.answer(86_400 * 2 + 11, "Shall I go on?")]);
    home.sync();
    let context = home.archive.context("shop", None).unwrap();
    assert_eq!(
        context.decisions.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(),
        ["How are errors shown to people? Inline", "Where should the jobs be stored? SQLite table"]
    );
    let threads: Vec<_> =
        context.open_threads.iter().map(|one| (one.session.as_str(), one.why.as_str())).collect();
    assert_eq!(threads, [("s2", "it ended with a question")]);
    let stats = home.archive.stats(&Filter::default(), &TimeZone::UTC).unwrap();
    let days: Vec<_> = stats.days.iter().map(|day| (day.day.as_str(), day.messages)).collect();
    assert_eq!(days, [("2025-10-09", 6), ("2025-10-11", 2)]);
    assert_eq!(stats.by_role, BTreeMap::from([("assistant".to_owned(), 4), ("user".to_owned(), 4)]));
}

#[test]
fn pruning_keeps_what_is_newer() {
    let home = Home::new();
    home.write("old", &[home.prompt(1, "an old thing about walruses")]);
    home.write("new", &[home.prompt(900_000, "a new thing")]);
    home.sync();
    let before = Timestamp::from_second(1_760_500_000).unwrap();
    let would = home.archive.prune(before, true, Duration::ZERO).unwrap();
    assert_eq!((would.sessions[0].id.as_str(), would.messages), ("old", 1));
    assert_eq!(home.search("walruses").hits.len(), 1);
    assert_eq!(home.archive.prune(before, false, Duration::ZERO).unwrap(), would);
    assert_eq!((home.search("walruses").hits.len(), home.search("thing").hits.len()), (0, 1));
    assert!(!home.holds("walrus"));
    assert_eq!(home.sync().messages, 0, "what was pruned does not come back by itself");
    home.check();
}

#[test]
fn what_is_deleted_beside_a_reader_is_overwritten_by_the_next_sync() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "a thing about walruses")]);
    home.sync();
    let reader = rusqlite::Connection::open(home.archive.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM sessions;").unwrap();
    let removal = home.archive.forget("s1", Duration::ZERO).unwrap();
    assert!((removal.is_in_log, home.holds("walrus")) == (true, true));
    assert_eq!(home.sync().read, 0);
    assert!(home.holds("walrus"), "the reader still needs it");
    drop(reader);
    assert_eq!(home.sync().read, 0);
    assert!(!home.holds("walrus"));
}

#[test]
fn what_the_settings_do_not_keep_comes_back_once_they_do() {
    let home = Home::new();
    home.write("old", &[home.prompt(1, "an old thing about walruses")]);
    home.write("new", &[home.prompt(900_000, "a new thing")]);
    home.sync();
    let since = Timestamp::from_second(1_760_500_000).unwrap();
    let keeping = SyncSettings { keep_since: Some(since), ..home.settings() };
    assert_eq!(home.archive.keep_since(since, Duration::ZERO).unwrap().sessions.len(), 1);
    let is_left_alone = |summary: SyncSummary| {
        assert_eq!((summary.messages, summary.unchanged), (0, 1));
        assert_eq!(summary.skipped, BTreeMap::from([("old".to_owned(), 1)]));
        assert!(!home.holds("walrus"));
    };
    is_left_alone(home.sync_with(&keeping));
    assert_eq!(home.sync().messages, 1, "the settings keep it again");
    assert_eq!(home.search("walruses").hits.len(), 1);
    // What is too old by its time on the disk is not even read.
    home.archive.keep_since(since, Duration::ZERO).unwrap();
    let modified = std::time::UNIX_EPOCH + Duration::from_secs(1_760_000_000);
    std::fs::File::options().append(true).open(home.path("old")).unwrap().set_modified(modified).unwrap();
    is_left_alone(home.sync_with(&keeping));
    assert_eq!(home.sync().messages, 1);
    home.archive.forget("old", Duration::ZERO).unwrap();
    assert_eq!(home.sync().messages, 0, "what was forgotten stays forgotten");
    assert_eq!((home.search("walruses").hits.len(), home.search("thing").hits.len()), (0, 1));
    home.check();
}

#[test]
fn another_writer_is_waited_for_and_another_standby_left_the_work() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "one")]);
    let writer = home.archive.writer(Duration::ZERO).unwrap().unwrap();
    let impatient = SyncSettings { patience: Duration::ZERO, ..home.settings() };
    assert!(matches!(home.archive.sync(&[&home.client()], &impatient), Err(Error::Busy)));
    assert!(matches!(home.archive.forget("x", Duration::ZERO), Err(Error::UnknownSession { .. })));
    // While one process waits, a second need not.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let patient = SyncSettings { patience: Duration::from_secs(60), ..home.settings() };
            loop {
                // A look at the lock holds it for a moment: a sync that comes then leaves the work, and comes again.
                let summary = home.archive.sync(&[&home.client()], &patient).unwrap();
                if !summary.left_to_another {
                    break summary;
                }
            }
        });
        let standby = home.archive.path().with_extension("wait.lock");
        while !queue::is_held(&standby) {
            std::thread::yield_now();
        }
        assert!(home.sync_with(&impatient).left_to_another);
        // A person's command does not: the one that waits may look for other sessions than these.
        let in_turn = |settings| home.archive.sync_in_turn(&[&home.client()], settings);
        assert!(matches!(in_turn(&impatient), Err(Error::Busy)));
        drop(writer);
        assert_eq!(waiting.join().unwrap().messages, 1);
        assert_eq!(in_turn(&home.settings()).unwrap().unchanged, 1);
    });
}

#[test]
fn a_newer_or_damaged_archive_is_left_alone() {
    let home = Home::new();
    let connection = rusqlite::Connection::open(home.archive.path()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    assert!(matches!(Archive::open(home.archive.path()), Err(Error::Newer { version: 99, .. })));
    let other = home.root.join("other.db");
    assert!(Archive::open_existing(&other).unwrap().is_none());
    assert!(!other.exists());
    fs::write(&other, "this is no database, and long enough to be looked at as one ".repeat(40)).unwrap();
    let error = Archive::open(&other).unwrap_err();
    assert!(matches!(error, Error::Damaged(_)), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1);
}

#[test]
fn a_full_disk_is_an_error_that_keeps_what_was_stored() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "kept")]);
    home.sync();
    let pages = |connection: &rusqlite::Connection| {
        connection.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let mut rng = Rng::with_seed(3);
    let noise: String = (0..400_000).map(|_| rng.alphanumeric()).collect();
    home.write("s2", &[home.prompt(2, &noise)]);
    let mut writer = home.archive.writer(Duration::ZERO).unwrap().unwrap();
    let limit = pages(&writer.connection) + 4;
    writer.connection.pragma_update(None, "max_page_count", limit).unwrap();
    let error = crate::sync::sync_with_writer(&mut writer, &[&home.client()], &home.settings()).unwrap_err();
    assert!(matches!(error, Error::DiskFull), "{error:?}");
    drop(writer);
    assert_eq!(home.said("s1"), ["kept"]);
    home.check();
    assert_eq!(home.sync().messages, 1, "once there is room, it goes on");
}

#[test]
fn a_stopped_sync_goes_on_where_it_ended() {
    let home = Home::new();
    let filler = "x ".repeat(40_000);
    let lines: Vec<String> = (0..200).map(|at| home.prompt(at + 1, &format!("{at} {filler}"))).collect();
    home.write("big", &lines);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let stop = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 4;
    let first = home.sync_with(&SyncSettings { is_cancelled: &stop, ..home.settings() });
    assert!(first.cancelled && first.messages > 0 && first.messages < 200, "{}", first.messages);
    let second = home.sync();
    assert_eq!(first.messages + second.messages, 200);
    assert_eq!(first.bytes + second.bytes, fs::metadata(home.path("big")).unwrap().len());
    home.check();
}

#[test]
fn what_is_not_archived_yet_is_counted_without_reading() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "one")]);
    home.write("s2", &[home.prompt(2, "two")]);
    let count = || home.archive.not_archived(&[&home.client()], &home.settings()).unwrap().len();
    assert_eq!(count(), 2);
    home.sync();
    assert_eq!(count(), 0);
    home.append("s1", &home.prompt(3, "three"));
    assert_eq!(count(), 1);
}

#[test]
fn the_files_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "one")]);
    home.sync();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.root.join("state")), 0o700);
    for entry in fs::read_dir(home.root.join("state")).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn a_result_answers_only_a_call_of_its_own_session() {
    let home = Home::new();
    let input = serde_json::json!({ "command": "cargo test" });
    home.write("s1", &[home.prompt(1, "test it"), home.call(12, "Bash", &input)]);
    // The same id in another session, which does not share the message.
    let renamed = |line: String, number: u32| line.replace(&uuid(number), &uuid(number + 100));
    home.write(
        "s2",
        &[
            home.prompt(101, "test that"),
            renamed(home.call(12, "Bash", &input), 12),
            renamed(home.result(13, 12, "passed", false), 13),
        ],
    );
    // A call and a result without an id.
    let without = |line: String| line.replace("toolu_50", "").replace("toolu_60", "");
    home.write("s3", &[home.prompt(201, "go"), without(home.call(50, "Bash", &input))]);
    home.write("s4", &[home.prompt(202, "go"), without(home.result(61, 60, "of no call", false))]);
    home.sync();
    let output = |session: &str| home.show(session)[1].tools[0].output.clone();
    assert_eq!((output("s1"), output("s2").as_deref()), (None, Some("passed")));
    assert_eq!(output("s3"), None);
    // The session that goes on in another file shares the call's message.
    home.write(
        "s5",
        &[home.prompt(1, "test it"), home.call(12, "Bash", &input), home.result(14, 12, "failed", true)],
    );
    home.sync();
    assert_eq!(output("s1").as_deref(), Some("failed"));
    home.check();
}

#[test]
fn a_rollout_of_codex_is_read() {
    let home = Home::new();
    let folder = home.root.join("codex/sessions/2026/01/02");
    fs::create_dir_all(&folder).unwrap();
    let line = |second: u32, kind: &str, payload: serde_json::Value| {
        let line = serde_json::json!({ "timestamp": format!("2026-01-02T03:04:{second:02}.000Z"), "type": kind, "payload": payload });
        line.to_string() + "\n"
    };
    let message = |role: &str, text: &str| serde_json::json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
    let usage = |total: u32| {
        serde_json::json!({ "type": "token_count", "info": {
        "total_token_usage": { "total_tokens": total },
        "last_token_usage": { "input_tokens": 500, "cached_input_tokens": 400, "output_tokens": 20 } }, "rate_limits": null })
    };
    let patch = "*** Begin Patch\n*** Update File: src/lease.rs\n@@\n-30\n+90\n*** End Patch";
    let lines = [
        line(
            1,
            "session_meta",
            serde_json::json!({ "id": uuid(7), "cwd": home.cwd(), "cli_version": "0.142.2", "git": { "branch": "dev" } }),
        ),
        line(2, "turn_context", serde_json::json!({ "cwd": home.cwd(), "model": "gpt-5.3-codex" })),
        line(3, "response_item", message("user", "<environment_context>x</environment_context>")),
        line(4, "response_item", message("user", &format!("why does the lease lapse? ghp_{KEY}"))),
        line(
            4,
            "event_msg",
            serde_json::json!({ "type": "user_message", "message": "why does the lease lapse?" }),
        ),
        line(
            5,
            "response_item",
            serde_json::json!({ "type": "function_call", "name": "exec_command", "arguments": "{\"cmd\":\"cargo test lease\"}", "call_id": "c1" }),
        ),
        line(
            6,
            "response_item",
            serde_json::json!({ "type": "function_call_output", "call_id": "c1", "output": "Wall time: 1 s\nProcess exited with code 101\nOutput:\nFAILED" }),
        ),
        line(7, "event_msg", usage(520)),
        line(8, "event_msg", usage(520)),
        line(
            9,
            "response_item",
            serde_json::json!({ "type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c2" }),
        ),
        line(
            10,
            "response_item",
            serde_json::json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": "Success" }),
        ),
        line(11, "response_item", message("assistant", "The lease is 90 s now.")),
        line(12, "hologram", serde_json::json!({})),
        line(13, "event_msg", serde_json::json!({ "type": "new_event" })),
    ];
    let path = folder.join(format!("rollout-2026-01-02T03-04-00-{}.jsonl", uuid(7)));
    fs::write(&path, lines[..5].concat()).unwrap();
    let codex = Codex::new(vec![home.root.join("codex")]);
    home.archive.sync(&[&codex], &home.settings()).unwrap();
    fs::write(&path, lines.concat()).unwrap();
    let summary = home.archive.sync(&[&codex, &home.client()], &home.settings()).unwrap();
    assert_eq!(
        summary.unknown,
        BTreeMap::from([("hologram".to_owned(), 1), ("event_msg/new_event".to_owned(), 1)])
    );
    let session = home.archive.session(&uuid(7)).unwrap();
    assert_eq!(
        (session.source.as_str(), session.branch.as_deref(), session.model.as_deref()),
        ("codex", Some("dev"), Some("gpt-5.3-codex"))
    );
    assert_eq!(
        (session.messages, session.prompts, session.answers, session.tool_uses, session.files),
        (7, 1, 1, 2, 1)
    );
    assert_eq!((session.tokens.input, session.tokens.cache_read, session.tokens.output), (100, 400, 20));
    let shown = home.show(&uuid(7));
    assert!(shown[2].tools[0].is_error && !shown[4].tools[0].is_error);
    assert_eq!(home.search("lapse").hits[0].snippet, "why does the lease [lapse]? [redacted: GitHub token]");
    assert!(!home.holds(&KEY[..20]));
    home.check();

    // A capture reads it by the same rules.
    let read = crate::read_conversation(&path, &|_| false).unwrap();
    let events: Vec<String> =
        read.conversation.events.iter().map(|event| format!("{:?}", event.kind)).collect();
    let begins = ["Human", "ToolCall", "ToolResult", "ToolCall", "ToolResult", "Assistant"];
    assert!(
        events.len() == 6 && events.iter().zip(begins).all(|(event, begin)| event.starts_with(begin)),
        "{events:?}"
    );
    assert!(events[0].contains("why does the lease lapse? [redacted: GitHub token]"), "{}", events[0]);
    assert!(events[1].contains("command: Some(\"cargo test lease\")") && events[2].contains("ok: false"));
    assert!(events[3].contains("old: Some(\"30\"), new: Some(\"90\")"), "{}", events[3]);
    assert_eq!((read.conversation.session_id, read.conversation.cwd), (uuid(7), Some(home.cwd())));
    assert_eq!((read.counts.lines, read.counts.conversation, read.lines.len()), (14, 6, 6));
    let again =
        crate::read_conversation(&path, &|line| read.lines.iter().any(|known| known == line)).unwrap();
    assert_eq!((again.conversation.events.len(), again.counts.known), (0, 6));
}

#[test]
fn codex_shows_an_ignored_file_in_no_folder_and_no_background() {
    let home = Home::new();
    fs::create_dir_all(home.root.join("shop/hr")).unwrap();
    fs::write(home.root.join("shop/.nuggetignore"), "/hr/pay.csv\n").unwrap();
    let line = |kind: &str, payload: serde_json::Value| {
        serde_json::json!({ "timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload })
            .to_string()
            + "\n"
    };
    let call = |id: &str, name: &str, arguments: serde_json::Value| {
        let arguments = arguments.to_string();
        line(
            "response_item",
            serde_json::json!({ "type": "function_call", "name": name, "arguments": arguments, "call_id": id }),
        )
    };
    let run = |id: &str, command: &str, folder: &str| {
        let folder = home.root.join(folder);
        call(id, "exec_command", serde_json::json!({ "cmd": command, "workdir": folder }))
    };
    let output = |id: &str, text: &str| {
        line(
            "response_item",
            serde_json::json!({ "type": "function_call_output", "call_id": id, "output": text }),
        )
    };
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n+/* Lemuria * hr/pay.csv */\n*** End Patch";
    let lines = [
        line("session_meta", serde_json::json!({ "id": uuid(7), "cwd": home.cwd() })),
        run("c1", "cat pay.csv", "shop/hr"),
        output("c1", "Atlantis"),
        run("c2", "sleep 2; cat hr/pay.csv", "shop"),
        output("c2", "Wall time: 1 s\nProcess running with session ID 4711\nOutput:"),
        call("c3", "write_stdin", serde_json::json!({ "session_id": 4711, "chars": "" })),
        output("c3", "Process exited with code 0\nOutput:\nAtlantis"),
        line(
            "response_item",
            serde_json::json!({ "type": "local_shell_call", "call_id": "c5", "action": {
                "type": "exec", "command": ["cat", "pay.csv"], "working_directory": home.root.join("shop/hr"),
            } }),
        ),
        output("c5", "Atlantis"),
        line(
            "response_item",
            serde_json::json!({ "type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c4" }),
        ),
    ];
    let path = home.root.join(format!("rollout-2026-01-02T03-04-00-{}.jsonl", uuid(7)));
    fs::write(&path, lines.concat()).unwrap();
    let events = format!("{:?}", crate::read_conversation(&path, &|_| false).unwrap().conversation.events);
    assert!(!events.contains("Atlantis") && events.contains("Lemuria"), "{events}");
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(usize, u32),
        AppendPart(usize),
        Truncate(usize, usize),
        Fork(usize, usize),
        Delete(usize),
        Sync,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3_usize, 1..6_u32).prop_map(|(file, count)| Step::Append(file, count)),
            1 => (0..3_usize).prop_map(Step::AppendPart),
            1 => (0..3_usize, 0..2000_usize).prop_map(|(file, bytes)| Step::Truncate(file, bytes)),
            1 => (0..3_usize, 0..3_usize).prop_map(|(from, to)| Step::Fork(from, to)),
            1 => (0..3_usize).prop_map(Step::Delete),
            3 => Just(Step::Sync),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Whatever happens to files between syncs: every line that was complete at a sync is there, once.
        #[test]
        fn every_line_seen_is_kept_once(steps in proptest::collection::vec(step(), 1..40)) {
            let home = Home::new();
            let names = ["s0", "s1", "s2"];
            let mut next = 1;
            let mut expected: BTreeMap<usize, std::collections::BTreeSet<String>> = BTreeMap::new();
            let read = |file: usize| fs::read(home.path(names[file])).unwrap_or_default();
            for step in steps.into_iter().chain([Step::Sync]) {
                match step {
                    Step::Append(file, count) => {
                        let mut bytes = read(file);
                        // A client that goes on after a crash begins a new line.
                        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                            bytes.push(b'\n');
                        }
                        for _ in 0..count {
                            bytes.extend(home.prompt(next, &format!("word{next} in it")).into_bytes());
                            next += 1;
                        }
                        fs::write(home.path(names[file]), bytes).unwrap();
                    }
                    Step::AppendPart(file) => {
                        let mut bytes = read(file);
                        bytes.extend_from_slice(b"{\"type\":\"user\",\"uu");
                        fs::write(home.path(names[file]), bytes).unwrap();
                    }
                    Step::Truncate(file, length) => {
                        let bytes = read(file);
                        fs::write(home.path(names[file]), &bytes[..length.min(bytes.len())]).unwrap();
                    }
                    Step::Fork(from, to) if from != to => fs::write(home.path(names[to]), read(from)).unwrap(),
                    Step::Fork(..) => {}
                    Step::Delete(file) => {
                        let _ = fs::remove_file(home.path(names[file]));
                    }
                    Step::Sync => {
                        for file in 0..3 {
                            let bytes = read(file);
                            let text = String::from_utf8(bytes).unwrap();
                            // Only the line feed of the last one may be missing.
                            for line in text.lines() {
                                if let Ok(line) = serde_json::from_str::<serde_json::Value>(line) {
                                    let said = line["message"]["content"].as_str().unwrap().to_owned();
                                    expected.entry(file).or_default().insert(said);
                                }
                            }
                        }
                        // Two changes within a millisecond may leave size and time alike; a client takes longer.
                        let again = SyncSettings { again: true, ..home.settings() };
                        let (first, second) = (home.sync(), home.sync_with(&again));
                        prop_assert!(first.failed.is_empty() && second.failed.is_empty());
                    }
                }
            }
            for (file, expected) in expected {
                let mut said = home.said(names[file]);
                said.sort();
                prop_assert_eq!(said, expected.into_iter().collect::<Vec<_>>());
            }
            home.check();
        }
    }
}

fn memory(summary: &str, at: i64, vector: [f32; 2]) -> NewMemory {
    NewMemory {
        summary: summary.to_owned(),
        dialogue: format!("assistant: {summary}"),
        turns: vec![at],
        at: Timestamp::from_second(at).unwrap(),
        derivation: Derivation::Rules,
        vector: Some(vector.to_vec()),
    }
}

const MODEL: Embedded<'static> = Embedded { model: "small", same: 0.85 };

impl Home {
    /// A session with one prompt, and these memories.
    fn remember(&self, session: &str, number: u32, memories: &[NewMemory]) -> usize {
        self.write(session, &[self.prompt(number, &format!("what is wanted of {session}"))]);
        self.sync();
        let session = self.archive.session(session).unwrap();
        self.archive.replace_memories(&session, memories, Some(&MODEL)).unwrap()
    }

    fn project(&self) -> String {
        Project::from_folder(&self.root.join("shop")).key
    }

    /// The summaries of all memories that are recalled, the newest first, each with how many say the same.
    fn memories(&self) -> Vec<(String, u64)> {
        let found = self.archive.memories(&MemoryQuery { limit: 10, ..MemoryQuery::default() }).unwrap();
        found.into_iter().map(|memory| (memory.summary, memory.times)).collect()
    }
}

fn named(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, times)| ((*name).to_owned(), *times)).collect()
}

#[test]
fn memories_that_say_the_same_are_one_until_their_session_goes() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("old words", 10, [1.0, 0.0]), memory("another", 11, [0.0, 1.0])]);
    home.remember("s2", 2, &[memory("newest words", 30, [1.0, 0.1])]);
    // Archived last, and older than that of `s2`.
    home.remember("s3", 3, &[memory("middle words", 20, [1.0, 0.0])]);
    assert_eq!(home.memories(), named(&[("newest words", 3), ("another", 1)]));
    let vectors = home.archive.memory_vectors(&home.project(), "small", None).unwrap().unwrap();
    assert_eq!(vectors.len(), 2, "only those that are recalled");
    home.archive.forget("s2", Duration::from_secs(5)).unwrap();
    assert_eq!(home.memories(), named(&[("middle words", 2), ("another", 1)]));
    assert!(!home.holds("newest words"));
    home.archive.forget("s3", Duration::from_secs(5)).unwrap();
    assert_eq!(home.memories(), named(&[("another", 1), ("old words", 1)]));
    home.archive.prune(Timestamp::MAX, false, Duration::from_secs(5)).unwrap();
    assert_eq!(home.memories(), []);
    home.check();
}

#[test]
fn a_resumed_session_replaces_its_own_memories_only() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("of s1", 10, [1.0, 0.0])]);
    home.remember("s2", 2, &[memory("of s2", 20, [0.0, 1.0])]);
    assert_eq!(home.archive.unremembered(None, 10).unwrap(), []);
    let before = home.archive.session("s1").unwrap();
    home.append("s1", &home.answer(100, "more was said"));
    home.sync();
    let pending = home.archive.unremembered(None, 10).unwrap();
    assert_eq!(pending.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), ["s1"]);
    assert_eq!(home.archive.unremembered(Some("small"), 10).unwrap(), [], "its messages have no vector yet");
    let memories = [memory("of the resumed s1", 30, [0.7, 0.7])];
    let store = |session| home.archive.replace_memories(session, &memories, Some(&MODEL));
    assert_eq!(store(&before).unwrap(), 0, "it was read before it had grown");
    assert_eq!(home.memories(), named(&[("of s2", 1), ("of s1", 1)]));
    assert_eq!(store(&pending[0]).unwrap(), 1);
    assert_eq!(home.memories(), named(&[("of the resumed s1", 1), ("of s2", 1)]));
    assert_eq!(home.archive.unremembered(None, 10).unwrap(), []);
}

#[test]
fn a_line_that_is_rewritten_makes_its_memories_again() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("of s1", 10, [1.0, 0.0])]);
    home.write("s1", &[home.prompt(1, "what else is wanted, longer than before")]);
    home.sync();
    assert_eq!(home.archive.unremembered(None, 10).unwrap().len(), 1);
}

#[test]
fn what_a_model_says_while_records_are_made_is_not_lost() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "cache the exchange rates")]);
    home.sync();
    let record = |summary: &str| CodeRecord {
        kind: UnitType::Decision,
        path: None,
        symbol: None,
        summary: summary.to_owned(),
        detail: None,
        alternatives: vec!["files".to_owned()],
        confidence: 0.8,
        lines: vec!["no such line".to_owned()],
    };
    let say = |summary: &str| {
        let records = vec![record(summary)];
        home.archive.note_findings("s1", &ModelFindings { records, ..ModelFindings::default() }).unwrap();
    };
    let pending = || home.archive.underived(10).unwrap();
    say("Rates are cached until four.");
    let read = pending().remove(0);
    say("Rates have four digits.");
    home.archive.replace_records(&read, &[]).unwrap();
    assert_eq!(pending().len(), 1, "it was read before the second one was said");
    let read = pending().remove(0);
    assert_eq!(home.archive.noted_records(&read).unwrap().len(), 2);
    home.archive.replace_records(&read, &[]).unwrap();
    assert_eq!(pending(), []);
    say("Rates have four digits.");
    assert_eq!(pending(), [], "it is known");
    let topics = vec![("Rates are cached.".to_owned(), vec![])];
    let read = home.archive.unremembered(None, 10).unwrap().remove(0);
    home.archive.note_findings("s1", &ModelFindings { topics, ..ModelFindings::default() }).unwrap();
    assert_eq!(home.archive.replace_memories(&read, &[], None).unwrap(), 0);
    home.archive.forget("s1", Duration::from_secs(5)).unwrap();
    say("Rates are cached until five.");
    assert!(!home.holds("until five") && !home.holds("until four"));
}

#[test]
fn a_project_sees_no_memory_of_another_one() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("retries of the shop", 10, [1.0, 0.0])]);
    fs::create_dir_all(home.root.join("blog")).unwrap();
    let blog = home.prompt(2, "blog").replace(&home.cwd(), &home.root.join("blog").to_string_lossy());
    home.write("s2", &[blog]);
    home.sync();
    let session = home.archive.session("s2").unwrap();
    let same = [memory("retries of the blog", 20, [1.0, 0.0])];
    home.archive.replace_memories(&session, &same, Some(&MODEL)).unwrap();
    assert_eq!(
        home.memories(),
        named(&[("retries of the blog", 1), ("retries of the shop", 1)]),
        "not linked"
    );
    for (project, expected) in
        [(home.project(), "retries of the shop"), (session.project, "retries of the blog")]
    {
        for words in [None, Some("retries".to_owned())] {
            let query =
                MemoryQuery { project: Some(project.clone()), words, limit: 10, ..MemoryQuery::default() };
            let found = home.archive.memories(&query).unwrap();
            assert_eq!(found.iter().map(|memory| memory.summary.as_str()).collect::<Vec<_>>(), [expected]);
        }
        let vectors = home.archive.memory_vectors(&project, "small", None).unwrap().unwrap();
        assert_eq!(vectors.nearest(&[1.0, 0.0], 10).len(), 1);
    }
}

#[test]
fn a_memory_that_a_person_deletes_is_not_made_again() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("The first words", 10, [1.0, 0.0]), memory("stays", 11, [0.0, 1.0])]);
    home.remember("s2", 2, &[memory("later words of it", 20, [1.0, 0.0])]);
    let memories = home.archive.memories(&MemoryQuery { limit: 10, ..MemoryQuery::default() }).unwrap();
    assert!(home.archive.forget_memory(memories[0].id, Duration::from_secs(5)).unwrap().is_some());
    assert!(home.archive.forget_memory(memories[0].id, Duration::from_secs(5)).unwrap().is_none());
    assert_eq!(home.memories(), named(&[("stays", 1)]));
    assert!(!home.holds("later words of it") && !home.holds("The first words"));
    let again = [memory("the FIRST words.", 10, [1.0, 0.0]), memory("stays", 11, [0.0, 1.0])];
    let session = home.archive.session("s1").unwrap();
    assert_eq!(home.archive.replace_memories(&session, &again, Some(&MODEL)).unwrap(), 1);
    assert_eq!(home.memories(), named(&[("stays", 1)]));
}

#[test]
fn memories_of_a_session_change_all_together_or_not_at_all() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("before", 10, [1.0, 0.0])]);
    home.append("s1", &home.answer(100, "more was said"));
    home.sync();
    let connection = rusqlite::Connection::open(home.archive.path()).unwrap();
    let stop = "CREATE TRIGGER stop BEFORE INSERT ON memory_vectors
        WHEN (SELECT summary FROM memories WHERE id = new.memory) = 'second' BEGIN SELECT raise(ABORT, 'stop'); END";
    connection.execute_batch(stop).unwrap();
    let session = home.archive.session("s1").unwrap();
    let memories = [memory("first", 20, [1.0, 0.0]), memory("second", 21, [0.0, 1.0])];
    let store = || home.archive.replace_memories(&session, &memories, Some(&MODEL));
    assert!(store().is_err());
    assert_eq!(home.memories(), named(&[("before", 1)]));
    assert_eq!(home.archive.unremembered(None, 10).unwrap().len(), 1);
    connection.execute_batch("DROP TRIGGER stop").unwrap();
    assert_eq!(store().unwrap(), 2);
    assert_eq!(home.memories(), named(&[("second", 1), ("first", 1)]));
}

#[test]
fn memories_of_a_project_are_found_by_its_name() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("the lease", 10, [1.0, 0.0])]);
    let count = |named: &str, words: Option<&str>| {
        let (named_project, words) = (Some(named.to_owned()), words.map(str::to_owned));
        let query = MemoryQuery { named_project, words, limit: 10, ..MemoryQuery::default() };
        home.archive.memories(&query).unwrap().len()
    };
    for named in ["shop", "shop/", &home.project()] {
        assert_eq!((count(named, None), count(named, Some("lease"))), (1, 1), "{named}");
    }
    assert_eq!((count("hop", None), count("elsewhere", None)), (0, 0));
}

#[test]
fn a_memory_with_an_empty_vector_is_found_by_words_alone() {
    let home = Home::new();
    let empty = NewMemory { vector: Some(Vec::new()), ..memory("no tokens", 10, [0.0, 0.0]) };
    home.remember("s1", 1, &[empty.clone(), memory("the lease", 11, [1.0, 0.0])]);
    home.remember("s2", 2, &[NewMemory { summary: "none either".into(), turns: vec![2], ..empty }]);
    assert_eq!(home.memories(), named(&[("the lease", 1), ("none either", 1), ("no tokens", 1)]));
    assert_eq!(home.archive.unembedded_memories("small", 10).unwrap(), []);
    let vectors = home.archive.memory_vectors(&home.project(), "small", None).unwrap().unwrap();
    assert_eq!((vectors.len(), vectors.nearest(&[0.0, 1.0], 10).len()), (1, 1));
}

#[test]
fn memories_are_found_by_the_vectors_of_the_model_in_use() {
    let home = Home::new();
    let project = home.project();
    home.remember("s1", 1, &[memory("right", 10, [1.0, 0.0]), memory("up", 11, [0.0, 1.0])]);
    let vectors = |model, known| home.archive.memory_vectors(&project, model, known).unwrap();
    let known = vectors("small", None).unwrap();
    assert!(vectors("small", Some(&known)).is_none(), "nothing has changed");
    let nearest = known.nearest(&[0.6, 0.8], 1);
    assert!((nearest[0].1 - 0.8).abs() < 0.01 && nearest.len() == 1, "{nearest:?}");
    assert_eq!(known.cosine(nearest[0].0, &[0.6, 0.8]), Some(nearest[0].1));
    assert_eq!(known.nearest(&[1.0, 0.0, 0.0], 1), [], "of another model");
    assert!(vectors("large", Some(&known)).unwrap().is_empty());
    let outdated = home.archive.unembedded_memories("large", 10).unwrap();
    assert_eq!(outdated.iter().map(|one| one.summary.as_str()).collect::<Vec<_>>(), ["up", "right"]);
    let new: Vec<(i64, Vec<f32>)> =
        outdated.iter().map(|one| (one.id, vec![0.0, 0.0, 1.0])).chain([(99, vec![1.0])]).collect();
    home.archive.store_memory_vectors("large", &new).unwrap();
    assert_eq!(home.archive.unembedded_memories("large", 10).unwrap(), []);
    assert_eq!(vectors("large", Some(&known)).unwrap().len(), 2);
    assert!(vectors("small", Some(&known)).unwrap().is_empty());
}

#[test]
fn only_rare_words_are_searched_where_time_is_short() {
    let home = Home::new();
    let many: Vec<NewMemory> =
        (0..9).map(|n| memory(&format!("webhook number {n}"), n, [1.0, n as f32])).collect();
    home.remember("s1", 1, &[many, vec![memory("webhook of penguins", 20, [0.0, 1.0])]].concat());
    let found = |words: &str, entries_max| {
        let words = Some(words.to_owned());
        let query = MemoryQuery { words, entries_max, limit: 20, ..MemoryQuery::default() };
        home.archive.memories(&query).unwrap().len()
    };
    assert_eq!(found("webhooks and penguins", None), found("webhooks and penguins", Some(20)));
    assert_eq!((found("webhooks and penguins", Some(3)), found("webhooks", Some(3))), (1, 0));
    assert_eq!(found("\" OR NEAR( *", Some(3)), 0);
}

#[test]
fn records_and_memories_are_found_by_words_of_scripts_without_spaces() {
    let home = Home::new();
    let long = "月末に請求書を送る処理がタイムアウトした";
    home.remember("s1", 1, &[memory(long, 10, [1.0, 0.0]), memory("größe of the lease", 11, [0.0, 1.0])]);
    let session = home.archive.session("s1").unwrap();
    let record = NewRecord {
        kind: "gotcha".to_owned(),
        summary: "连接池的超时是三秒".to_owned(),
        detail: Some("비밀번호를 바꾼다".to_owned()),
        ..NewRecord::default()
    };
    home.archive.replace_records(&session, &[record]).unwrap();
    let counts = |archive: &Archive, words: &str| {
        let words = Some(words.to_owned());
        let few = |entries_max| MemoryQuery {
            words: words.clone(),
            entries_max,
            limit: 9,
            ..MemoryQuery::default()
        };
        let of_records =
            RecordQuery { project: home.project(), words: words.clone(), limit: 9, ..RecordQuery::default() };
        (
            archive.memories(&few(None)).unwrap().len(),
            archive.memories(&few(Some(9))).unwrap().len(),
            archive.records(&of_records).unwrap().len(),
        )
    };
    let check = |archive: &Archive| {
        for (words, found) in [
            ("請求書", (1, 1, 0)),
            ("請求書はどこ", (1, 1, 0)),
            ("书求", (0, 0, 0)),
            ("größe", (1, 1, 0)),
            ("röße", (0, 0, 0)),
            ("超时", (0, 0, 1)),
            ("비밀번호", (0, 0, 1)),
        ] {
            assert_eq!(counts(archive, words), found, "{words}");
        }
    };
    check(&home.archive);
    home.archive.forget("s1", Duration::from_secs(5)).unwrap();
    assert_eq!((counts(&home.archive, "請求書"), counts(&home.archive, "超时")), ((0, 0, 0), (0, 0, 0)));
    home.check();
}

#[test]
fn words_of_an_older_archive_are_indexed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(&crate::schema::MIGRATIONS[..5].concat()).unwrap();
    old.execute_batch(
        "PRAGMA user_version = 5;
        INSERT INTO sessions (id, session, source, project, path, cwd, transcript, archived_ms)
            VALUES (1, 's1', 'claude-code', 'p', '', '', '', 0);
        INSERT INTO memories (session, project, derivation, summary, dialogue, turns, created_ms, updated_ms)
            VALUES (1, 'p', 'rules', '月末に請求書を送る処理 größe leases', '', '[]', 0, 0);
        INSERT INTO records (session, project, derivation, type, path, summary, detail, confidence, at_ms)
            VALUES (1, 'p', 'rules', 'gotcha', '', 'why', '连接池的超时是三秒', 0.5, 0),
                (1, 'p', 'rules', 'gotcha', '', '超时', NULL, 0.5, 0);",
    )
    .unwrap();
    drop(old);
    let archive = Archive::open(&path).unwrap();
    let memories = |words: &str| {
        let query = MemoryQuery { words: Some(words.to_owned()), limit: 9, ..MemoryQuery::default() };
        archive.memories(&query).unwrap().len()
    };
    let found = ["請求書", "größe", "lease", "röße", "書請"].map(memories);
    assert_eq!(found, [1, 1, 1, 0, 0]);
    let records = |words: &str| {
        let words = Some(words.to_owned());
        let query = RecordQuery { project: "p".to_owned(), words, limit: 9, ..RecordQuery::default() };
        archive.records(&query).unwrap().len()
    };
    assert_eq!(["超时", "why", "三秒", "秒三"].map(records), [2, 1, 1, 0]);
    archive.forget("s1", Duration::from_secs(5)).unwrap();
    assert_eq!((memories("請求書"), records("超时")), (0, 0));
}

#[test]
fn figures_of_a_time_count_only_what_happened_in_it() {
    let home = Home::new();
    let day = 86_400;
    let edit = |number, path| home.call(number, "Edit", &serde_json::json!({ "file_path": path }));
    home.write(
        "s1",
        &[
            home.prompt(1, "before"),
            edit(11, "src/old.rs"),
            home.prompt(2 * day, "within"),
            edit(2 * day + 15, "src/new.rs"),
        ],
    );
    home.write(
        "s1/subagents/agent-a",
        &[home.prompt(2 * day + 1, "look"), home.answer(2 * day + 25, "found")],
    );
    home.sync();
    let since = Timestamp::from_second(1_760_000_000 + i64::from(day)).unwrap();
    let stats = |filter: &Filter| home.archive.stats(filter, &TimeZone::UTC).unwrap();
    let (all, late) = (stats(&Filter::default()), stats(&Filter { since: Some(since), ..Filter::default() }));
    let early = stats(&Filter { until: Some(since), ..Filter::default() });
    for (stats, messages, calls, files, requests) in
        [(&all, 6, 2, 2, 3), (&late, 4, 1, 1, 2), (&early, 2, 1, 1, 1)]
    {
        assert_eq!((stats.messages, stats.by_role.values().sum::<u64>()), (messages, messages));
        assert_eq!(stats.days.iter().map(|day| day.messages).sum::<u64>(), messages);
        assert_eq!((stats.tool_uses, stats.files, stats.top_files.len() as u64), (calls, files, files));
        assert_eq!(stats.models[0].requests, requests);
        assert_eq!(stats.tokens.input, 10 * requests);
        assert_eq!(stats.sessions, 1);
        assert!(stats.days.iter().all(|day| day.sessions == 1), "a subagent is no session of a day");
    }
    assert!(late.span.unwrap().0 >= since && early.span.unwrap().1 < since);
    assert_eq!((late.subagents, early.subagents), (1, 0));
}

#[test]
fn messages_that_only_deleted_sessions_share_are_counted_as_deleted() {
    let home = Home::new();
    let common = [home.prompt(1, "shared question"), home.answer(11, "shared answer")];
    home.write("s1", &common);
    home.write("s2", &common);
    home.append("s2", &home.answer(31, "and on"));
    home.sync();
    home.write("s3", &[home.prompt(900_000, "new")]);
    home.sync();
    let before = Timestamp::from_second(1_760_500_000).unwrap();
    let would = home.archive.prune(before, true, Duration::ZERO).unwrap();
    assert_eq!((would.sessions.len(), would.messages, would.shared), (2, 3, 0));
    // One that stays has the question, too.
    home.write("s4", &[home.prompt(1, "shared question"), home.prompt(900_001, "later")]);
    home.sync();
    let removal = home.archive.prune(before, false, Duration::ZERO).unwrap();
    assert_eq!((removal.sessions.len(), removal.messages, removal.shared), (2, 2, 1));
    assert_eq!(removal.shared_with, ["s4"]);
    assert_eq!(home.said("s4"), ["shared question", "later"]);
    home.check();
}

#[test]
fn a_session_that_goes_on_keeps_the_links_that_others_found() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "first")]);
    home.write("s2", &[home.prompt(1_000, "second")]);
    home.sync();
    home.write("s3", &[home.prompt(2_000, "third")]);
    home.sync();
    let links = |session: &str| {
        let related = home.archive.related(session, 20).unwrap();
        related.into_iter().map(|one| one.session.id).collect::<Vec<_>>()
    };
    assert_eq!(links("s1"), ["s2"]);
    // The first ones find the common session, which finds fewer itself: the newest.
    let edit = |number, path: &str| home.call(number, "Edit", &serde_json::json!({ "file_path": path }));
    let other = |number: u32| home.prompt(number, "something").replace("\"main\"", &format!("\"b{number}\""));
    home.write("common", &[other(9_000_001), edit(9_000_011, "src/lease.rs")]);
    for number in 0..14 {
        let at = 9_100_000 + number * 100_000;
        home.write(&format!("edit{number}"), &[other(at), edit(at + 11, "src/lease.rs")]);
        home.sync();
    }
    assert!(links("common").contains(&"edit0".to_owned()) && !links("common").contains(&"edit13".to_owned()));
    home.append("common", &other(9_000_021));
    home.sync();
    assert!(links("common").contains(&"edit0".to_owned()) && links("common").contains(&"edit13".to_owned()));
    // What cannot be found from either side any more is gone.
    home.append("s1", &home.prompt(1_500, "after the second has begun"));
    home.sync();
    assert!(!links("s1").contains(&"s2".to_owned()));
    assert!(links("s1").contains(&"s3".to_owned()));
    home.check();
}

#[test]
fn questions_that_are_no_longer_learned_from_are_deleted() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "go")]);
    home.sync();
    let session = home.archive.session("s1").unwrap();
    let asked = |number: i64| {
        let at = Timestamp::from_second(number).unwrap();
        let item = queue::Shown::unit(&format!("unit-{number}"), 0, 9, false);
        let body = Some(number.to_string().into_bytes());
        (session.clone(), queue::Showing::by_tool(None, None, at, vec![item], body))
    };
    let showings: Vec<_> = (0..1_003).map(asked).collect();
    assert_eq!(home.archive.add_shown("b", &showings).unwrap(), 1_003);
    home.archive.add_shown("other", &[asked(0)]).unwrap();
    assert_eq!(home.archive.add_shown("b", &showings[..1]).unwrap(), 0);
    let shown = home.archive.shown_in("b", &session).unwrap();
    assert_eq!(shown.len(), 1_003, "receipts count all");
    let judged: Vec<_> = shown
        .iter()
        .map(|one| Citation {
            shown: one.row,
            outcome: "used".to_owned(),
            evidence: "[]".to_owned(),
            has_failed: None,
        })
        .collect();
    home.archive.store_citations(&session, &judged, Timestamp::UNIX_EPOCH).unwrap();
    let questions = home.archive.judged_questions("b", &home.project()).unwrap();
    assert_eq!((questions.len(), questions[0].body.as_slice()), (1_000, b"3".as_slice()));
    assert_eq!(home.archive.reset_learned("b", None).unwrap(), 1_000);
    assert_eq!(home.archive.reset_learned("other", None).unwrap(), 1);
}

#[test]
fn failures_are_counted_by_session_once_something_is_withheld() {
    let home = Home::new();
    let show = |name: &str, second: i64, units: &[(&str, bool, Option<bool>)]| {
        home.write(name, &[home.prompt(1, "go")]);
        home.sync();
        let session = home.archive.session(name).unwrap();
        let item = |&(unit, is_withheld, _): &(&str, bool, _)| queue::Shown::unit(unit, 0, 9, is_withheld);
        let at = Timestamp::from_second(second).unwrap();
        let items = units.iter().map(item).collect();
        let showing = queue::Showing::by_tool(None, None, at, items, None);
        home.archive.add_shown("b", &[(session.clone(), showing)]).unwrap();
        let shown = home.archive.shown_in("b", &session).unwrap();
        let judge = |one: &ArchivedShown| Citation {
            shown: one.row,
            outcome: "ignored".to_owned(),
            evidence: "[]".to_owned(),
            has_failed: units.iter().find(|(unit, ..)| *unit == one.item).and_then(|(.., failed)| *failed),
        };
        let judged: Vec<Citation> = shown.iter().map(judge).collect();
        home.archive.store_citations(&session, &judged, Timestamp::UNIX_EPOCH).unwrap();
    };
    show("before", 10, &[("a", false, Some(true))]);
    let failures = || home.archive.failures_by_session("b", Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(failures(), [], "nothing could be withheld");
    show(
        "s1",
        20,
        &[("a", true, Some(true)), ("b", false, Some(true)), ("c", false, Some(false)), ("d", true, None)],
    );
    show("s2", 30, &[("a", false, Some(false)), ("d", false, None)]);
    let counts =
        |shown, failed, withheld| SessionFailures { shown, failed, withheld, withheld_failed: withheld };
    assert_eq!(failures(), [counts(2, 1, 1), counts(1, 0, 0)]);
}

#[test]
fn pruning_removes_the_names_that_nothing_has_any_more() {
    let home = Home::new();
    let edit = |number, path: &str| home.call(number, "Edit", &serde_json::json!({ "file_path": path }));
    let read = |number| home.call(number, "Read", &serde_json::json!({ "file_path": "src/lease.rs" }));
    home.write("old", &[home.prompt(1, "go"), edit(11, "src/gone.rs"), edit(12, "src/lease.rs"), read(13)]);
    home.write("new", &[home.prompt(900_000, "go on"), edit(900_011, "src/lease.rs")]);
    home.sync();
    let names = || {
        let connection = rusqlite::Connection::open(home.archive.path()).unwrap();
        let mut statement = connection.prepare("SELECT name FROM names ORDER BY name").unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        names.map(|name| name.unwrap().replace(&format!("{}/", home.cwd()), "")).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["src/gone.rs", "src/lease.rs", "Edit", "Read", "claude-sonnet-5"]);
    let before = Timestamp::from_second(1_760_500_000).unwrap();
    home.archive.prune(before, false, Duration::from_secs(5)).unwrap();
    assert_eq!(names(), ["src/lease.rs", "Edit", "claude-sonnet-5"]);
    home.check();
}

#[test]
fn a_memory_that_is_deleted_takes_no_message_with_it() {
    let home = Home::new();
    home.remember("s1", 1, &[memory("the lease", 10, [1.0, 0.0])]);
    let found = home.archive.memories(&MemoryQuery { limit: 1, ..MemoryQuery::default() }).unwrap();
    assert!(home.archive.forget_memory(found[0].id, Duration::from_secs(5)).unwrap().is_some());
    assert_eq!(home.memories(), []);
    // Both had the same number.
    assert_eq!(home.search("wanted").hits[0].message, found[0].id);
    assert_eq!(home.said("s1"), ["what is wanted of s1"]);
    home.check();
}

#[test]
fn a_file_that_several_sessions_changed_is_named_once_with_the_branch_first() {
    let home = Home::new();
    let edit = |number, path: &str| home.call(number, "Edit", &serde_json::json!({ "file_path": path }));
    let elsewhere = |line: String| line.replace("\"main\"", "\"topic\"");
    home.write("s1", &[home.prompt(1, "a"), edit(11, "src/old.rs"), edit(12, "src/both.rs")]);
    let other = [home.prompt(1_000, "b"), edit(1_011, "src/both.rs"), edit(1_012, "src/topic.rs")];
    home.write("s2", &other.map(elsewhere));
    home.write("s3", &[home.prompt(2_000, "c"), edit(2_011, "src/new.rs"), edit(2_012, "src/newest.rs")]);
    home.sync();
    let files = |branch, sessions, limit| {
        let files = home.archive.last_changed_files(&home.project(), branch, sessions, limit).unwrap();
        files.iter().map(|file| file.replace(&format!("{}/", home.cwd()), "")).collect::<Vec<_>>()
    };
    let (newest, new) = ("src/newest.rs", "src/new.rs");
    assert_eq!(files(Some("main"), 9, 9), [newest, new, "src/both.rs", "src/old.rs", "src/topic.rs"]);
    assert_eq!(files(Some("topic"), 9, 3), ["src/topic.rs", "src/both.rs", newest]);
    assert_eq!(files(Some("main"), 2, 9), [newest, new, "src/both.rs", "src/old.rs"]);
    assert_eq!(files(None, 1, 9), [newest, new]);
}

#[test]
fn subagents_of_subagents_are_deleted_with_their_session() {
    let home = Home::new();
    let folder = home.root.join("codex/sessions/2026/01/02");
    fs::create_dir_all(&folder).unwrap();
    let write = |id: u32, parent: Option<u32>, text: &str| {
        let line = |kind: &str, payload: serde_json::Value| {
            serde_json::json!({ "timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload })
                .to_string()
                + "\n"
        };
        let spawn = parent.map(
            |parent| serde_json::json!({ "subagent": { "thread_spawn": { "parent_thread_id": uuid(parent) } } }),
        );
        let head = serde_json::json!({ "id": uuid(id), "cwd": home.cwd(), "source": spawn });
        let said = serde_json::json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] });
        let path = folder.join(format!("rollout-2026-01-02T03-04-00-{}.jsonl", uuid(id)));
        fs::write(path, line("session_meta", head) + &line("response_item", said)).unwrap();
    };
    let codex = Codex::new(vec![home.root.join("codex")]);
    let sync = || home.archive.sync(&[&codex], &home.settings()).unwrap();
    write(1, None, "the root asks");
    write(2, Some(1), "the child asks");
    write(3, Some(2), "the grandchild asks");
    write(4, None, "another one asks");
    assert_eq!(sync().sessions_new, 4);
    assert_eq!(home.archive.forget(&uuid(1), Duration::ZERO).unwrap().sessions.len(), 3);
    assert_eq!(home.archive.sessions(&Filter::default(), true, 9).unwrap().len(), 1);
    write(5, Some(3), "a new one of the grandchild asks");
    assert_eq!((sync().sessions_new, sync().skipped.get("forgotten")), (0, Some(&4)));
}

#[test]
fn what_changes_before_it_is_deleted_is_chosen_again() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "old")]);
    home.write("s2", &[home.prompt(2, "old as well")]);
    home.sync();
    let before = Timestamp::from_second(1_760_500_000).unwrap();
    let is_first = std::cell::Cell::new(true);
    let choose = |connection: &rusqlite::Connection| {
        let chosen = ended_before(connection, before);
        if is_first.replace(false) {
            home.append("s1", &home.prompt(900_000, "and on"));
            home.sync();
            home.archive.forget("s2", Duration::ZERO).unwrap();
            home.write("s3", &[home.prompt(900_001, "in the row that is free now")]);
            home.sync();
        }
        chosen
    };
    let removal = home.archive.remove(choose, Reason::Pruned, Duration::ZERO).unwrap();
    assert_eq!(removal.sessions, []);
    assert_eq!(home.said("s1"), ["old", "and on"]);
    assert_eq!(home.said("s3"), ["in the row that is free now"]);
    home.check();
}

#[test]
fn a_memory_that_a_person_deletes_leaves_no_words_of_the_model() {
    let home = Home::new();
    let said = "The zebra invoices are sent at night.";
    let topics = vec![(said.to_owned(), vec![]), ("The okapi job is slow.".to_owned(), vec![])];
    home.archive.note_findings("s1", &ModelFindings { topics, ..ModelFindings::default() }).unwrap();
    home.remember("s1", 1, &[memory(said, 10, [1.0, 0.0])]);
    let memories = home.archive.memories(&MemoryQuery { limit: 10, ..MemoryQuery::default() }).unwrap();
    assert!(home.archive.forget_memory(memories[0].id, Duration::from_secs(5)).unwrap().is_some());
    assert!(!home.holds("zebra invoices"));
    let topics = vec![(said.to_owned(), vec![])];
    home.archive.note_findings("s1", &ModelFindings { topics, ..ModelFindings::default() }).unwrap();
    assert!(!home.holds("zebra invoices"), "it is said again");
    let session = home.archive.session("s1").unwrap();
    assert_eq!(home.archive.noted_topics(&session).unwrap().len(), 1);
}

#[test]
fn an_output_that_was_rewritten_says_what_it_says_now() {
    let home = Home::new();
    let lines = |listed: &str, failure: &str| {
        vec![
            home.prompt(1, "list the customers"),
            home.call(12, "Bash", &serde_json::json!({ "command": "cat customers" })),
            home.call(14, "Bash", &serde_json::json!({ "command": "make" })),
            home.result(13, 12, listed, false),
            home.result(15, 14, failure, true),
            // Of a call that has a result already.
            home.result(16, 12, "walrus", false),
        ]
    };
    for session in ["s1", "s2"] {
        home.write(session, &lines("zebra", "the okapi failed"));
        home.append(session, &home.answer(if session == "s1" { 51 } else { 61 }, "and on"));
    }
    home.sync();
    home.write("s1", &lines("giraffe", "the lion failed"));
    assert_eq!(home.sync().changed, 2);
    for session in ["s1", "s2"] {
        let shown = home.show(session);
        let outputs = [1, 2].map(|at| shown[at].tools[0].output.clone().unwrap());
        assert_eq!(outputs, ["giraffe", "the lion failed"]);
    }
    assert!(!home.texts_hold("zebra") && !home.texts_hold("okapi"), "the old text is overwritten");
    assert_eq!((home.search("okapi").hits.len(), home.search("lion").hits.len()), (0, 1));
    fs::remove_file(home.path("s2")).unwrap();
    assert_eq!(home.sync_with(&SyncSettings { again: true, ..home.settings() }).changed, 0);
    home.check();
}

#[test]
fn a_line_in_the_middle_that_was_rewritten_in_the_same_length_says_what_it_says_now() {
    let home = Home::new();
    let filler = (0..40).map(|at| home.answer(10 * at + 11, &"word ".repeat(400))).collect::<Vec<_>>();
    let write = |name: &str, seconds: u64| {
        let mut lines = filler.clone();
        lines.insert(20, home.prompt(1, &format!("the customer is {name}")));
        home.write("s1", &lines);
        let at = std::time::UNIX_EPOCH + Duration::from_secs(1_760_000_000 + seconds);
        fs::File::options().append(true).open(home.path("s1")).unwrap().set_modified(at).unwrap();
    };
    write("Mustermann", 0);
    home.sync();
    write("Musterfrau", 1);
    let summary = home.sync();
    assert_eq!((summary.messages, summary.changed), (0, 1));
    assert_eq!(home.said("s1")[20], "the customer is Musterfrau");
    assert_eq!(home.sync().unchanged, 1);
    home.check();
}

#[test]
fn a_prompt_that_was_rewritten_says_nothing_old_in_any_session_that_has_it() {
    let home = Home::new();
    home.write("s0", &[home.prompt(500, "zebra okapi configuration")]);
    home.sync();
    let lines = |word: &str| vec![home.prompt(1, &format!("{word} okapi configuration"))];
    for (session, number) in [("s1", 5_000_000), ("s2", 6_000_000)] {
        home.write(session, &lines("zebra"));
        home.append(session, &home.prompt(number, "giraffe and configuration"));
        home.sync();
    }
    for session in home.archive.underived(9).unwrap() {
        home.archive.replace_records(&session, &[]).unwrap();
    }
    assert_eq!(home.archive.underived(9).unwrap(), []);
    home.write("s1", &lines("lion"));
    home.sync();
    let first = |session: &str| home.archive.session(session).unwrap().first_prompt.unwrap();
    assert_eq!([first("s1"), first("s2")], ["lion okapi configuration", "lion okapi configuration"]);
    let mut underived: Vec<String> =
        home.archive.underived(9).unwrap().into_iter().map(|session| session.id).collect();
    underived.sort();
    assert_eq!(underived, ["s1", "s2"]);
    let connection = rusqlite::Connection::open(home.archive.path()).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let topics =
        "SELECT count(*) FROM topics t JOIN sessions s ON s.id = t.session WHERE s.session <> 's0' AND";
    assert_eq!(count(&format!("{topics} word = 'zebra'")), 0);
    assert_eq!(count(&format!("{topics} word = 'lion'")), 2);
    assert_eq!(count(&format!("{topics} word = 'configuration' AND times = 2")), 2);
    assert_eq!(count("SELECT count(*) FROM links WHERE reason LIKE '%zebra%'"), 0);
    assert!(home.archive.related("s0", 9).unwrap().iter().any(|related| related.reason.contains("okapi")));
    home.check();
}

#[test]
fn a_process_that_ends_before_it_has_linked_leaves_that_to_the_next_one() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "zebra okapi")]);
    home.write("s2", &[home.prompt(2, "zebra okapi")]);
    let progress = |progress: &crate::Progress| assert_eq!(progress.files, 0, "it ends here");
    let settings = SyncSettings { progress: &progress, ..home.settings() };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| home.sync_with(&settings)));
    assert!(ended.is_err());
    assert_eq!(home.said("s1"), ["zebra okapi"]);
    assert_eq!(home.archive.related("s1", 9).unwrap(), []);
    assert_eq!(home.sync().unchanged, 2);
    let related = home.archive.related("s1", 9).unwrap();
    assert!(related.iter().any(|related| related.reason == "both about okapi, zebra"), "{related:?}");
}

#[test]
fn an_output_survives_the_fork_that_it_was_first_read_in() {
    let home = Home::new();
    let call = [home.prompt(1, "run it"), home.call(11, "Bash", &serde_json::json!({ "command": "make" }))];
    home.write("s1", &call);
    home.append("s1", &home.answer(21, "on in the first"));
    home.sync();
    for (session, number) in [("s2", 31), ("s3", 41)] {
        home.write(session, &call);
        home.append(session, &home.result(12, 11, "built with zebras", true));
        home.append(session, &home.answer(number, "on in a fork"));
        home.sync();
    }
    let output = |session: &str| home.show(session)[1].tools[0].output.clone();
    home.archive.forget("s2", Duration::ZERO).unwrap();
    assert_eq!(output("s3").as_deref(), Some("built with zebras"));
    assert_eq!(home.said("s3"), ["run it", "", "", "on in a fork"]);
    home.archive.forget("s3", Duration::ZERO).unwrap();
    assert_eq!(output("s1"), None);
    assert!(!home.holds("zebras"));
    home.check();
}

#[test]
fn a_failed_call_takes_no_word_of_a_person() {
    let home = Home::new();
    let run = |number: u32| home.call(number, "Bash", &serde_json::json!({ "command": "make" }));
    let answered = |number: u32, of: u32, output: &str, is_error: bool, said: &str| {
        let of = format!("toolu_{of}");
        let result = serde_json::json!({ "type": "tool_result", "tool_use_id": of, "content": output, "is_error": is_error });
        home.line("user", number, &serde_json::json!([result, { "type": "text", "text": said }]))
    };
    let (said, last) = ("Error handling must stay; Errors of the shop are logged.", "Do not hide any\nError");
    home.write(
        "s1",
        &[
            home.prompt(1, "run it"),
            run(11),
            home.result(12, 11, "Error", true),
            run(13),
            answered(14, 13, "fine", false, said),
            run(15),
            run(16),
            answered(17, 15, "Error", true, last),
            home.result(18, 16, "Error", true),
        ],
    );
    home.sync();
    assert_eq!(home.said("s1"), ["run it", "", "", "", said, "", "", last, ""]);
}

#[test]
fn a_repository_that_gets_a_remote_keeps_its_past() {
    let home = Home::new();
    let config = home.root.join("shop/.git/config");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[core]\n").unwrap();
    home.remember("s1", 1, &[memory("the lease", 10, [1.0, 0.0]), memory("deleted", 11, [0.0, 1.0])]);
    let listed = home.archive.memories(&MemoryQuery { limit: 10, ..MemoryQuery::default() }).unwrap();
    home.archive.forget_memory(listed[0].id, Duration::from_secs(5)).unwrap();
    let before = home.archive.session("s1").unwrap();
    let record = NewRecord { summary: "the lease is short".to_owned(), ..NewRecord::default() };
    home.archive.replace_records(&before, &[record]).unwrap();
    assert_eq!(before.project, config.parent().unwrap().to_string_lossy());

    fs::write(&config, "[core]\n[remote \"origin\"]\n\turl = git@example.com:us/shop.git\n").unwrap();
    assert_eq!(home.sync().unchanged, 1);
    assert_eq!(home.archive.session("s1").unwrap().project, "example.com/us/shop");
    assert_eq!(home.project(), "example.com/us/shop");
    let query = MemoryQuery { project: Some(home.project()), limit: 9, ..MemoryQuery::default() };
    assert_eq!(home.archive.memories(&query).unwrap().len(), 1);
    assert_eq!(home.archive.memory_vectors(&home.project(), "small", None).unwrap().unwrap().len(), 1);
    let words = Some("lease".to_owned());
    let query = RecordQuery { project: home.project(), words, limit: 9, ..RecordQuery::default() };
    assert_eq!(home.archive.records(&query).unwrap().len(), 1);
    // What was derived before is of the old project; what was deleted stays so.
    home.append("s1", &home.answer(51, "and on"));
    home.sync();
    let grown = home.archive.session("s1").unwrap();
    let again = [memory("the lease", 10, [1.0, 0.0]), memory("deleted", 11, [0.0, 1.0])];
    let of_old = Session { project: before.project.clone(), ..grown.clone() };
    assert_eq!(home.archive.replace_memories(&of_old, &again, Some(&MODEL)).unwrap(), 0);
    assert_eq!(home.archive.replace_memories(&grown, &again, Some(&MODEL)).unwrap(), 1);
    home.check();
}

#[test]
fn errors_of_an_older_archive_are_shown_once() {
    let home = Home::new();
    home.write(
        "s1",
        &[
            home.prompt(1, "run it"),
            home.call(11, "Bash", &serde_json::json!({ "command": "make" })),
            home.result(12, 11, "error: exploded", true),
        ],
    );
    home.sync();
    let old = rusqlite::Connection::open(home.archive.path()).unwrap();
    old.execute_batch(
        "DROP TABLE unlinked; DROP INDEX tool_uses_result; ALTER TABLE tool_uses DROP COLUMN result;
        PRAGMA user_version = 7;",
    )
    .unwrap();
    drop(old);
    Archive::open(home.archive.path()).unwrap();
    assert_eq!(home.said("s1"), ["run it", "", ""]);
}

#[test]
fn a_pruned_session_that_goes_on_is_taken_whole() {
    let home = Home::new();
    home.write("s1", &[home.prompt(1, "first about the walrus"), home.answer(11, "it is keyed by hash")]);
    home.sync();
    home.archive.prune(Timestamp::MAX, false, Duration::ZERO).unwrap();
    home.append("s1", &home.prompt(2, "and now the second part"));
    assert_eq!(home.sync().messages, 3);
    assert_eq!(home.said("s1"), ["first about the walrus", "it is keyed by hash", "and now the second part"]);
    assert_eq!(home.search("walrus").hits.len(), 1);
    home.check();
}

#[test]
fn a_result_that_only_a_deleted_session_has_is_not_left_in_its_fork() {
    let home = Home::new();
    let common =
        [home.prompt(1, "list them"), home.call(11, "Bash", &serde_json::json!({ "command": "ls" }))];
    home.write("s1", &common);
    home.append("s1", &home.result(12, 11, "a narwhal", true));
    home.write("s2", &common);
    home.append("s2", &home.result(22, 11, "interrupted", true));
    // It has the first one's result, and not its own end.
    home.write("s3", &common);
    home.append("s3", &home.result(12, 11, "a narwhal", true));
    home.append("s3", &home.answer(31, "and on"));
    for session in ["s1", "s2", "s3"] {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(if session == "s1" { 1 } else { 2 });
        fs::File::options().append(true).open(home.path(session)).unwrap().set_modified(at).unwrap();
    }
    home.sync();
    let outputs = || {
        let of = |session| home.show(session)[1].tools[0].output.clone();
        ["s2", "s3"].map(of)
    };
    assert_eq!(outputs(), [Some("a narwhal".to_owned()), Some("a narwhal".to_owned())]);
    home.archive.forget("s1", Duration::ZERO).unwrap();
    assert_eq!(outputs(), [Some("a narwhal".to_owned()), Some("a narwhal".to_owned())], "s3 has it");
    home.archive.forget("s3", Duration::ZERO).unwrap();
    let tool = home.show("s2").swap_remove(1).tools.remove(0);
    assert_eq!((tool.output, tool.is_error), (None, false));
    assert!(!home.holds("narwhal"));
    home.check();
}

#[test]
fn a_fork_keeps_the_edits_that_it_shares_with_a_deleted_session() {
    let home = Home::new();
    let edit = |number: u32, file: &str| {
        let input = serde_json::json!({ "file_path": file, "old_string": "a", "new_string": "b" });
        home.call(number, "Edit", &input)
    };
    let common = [home.prompt(1, "edit it"), edit(11, "src/lib.rs"), edit(21, "/elsewhere/lib.rs")];
    home.write("s1", &common);
    home.append("s1", &edit(31, "src/lib.rs"));
    home.sync();
    home.write("s2", &common);
    home.append("s2", &home.answer(41, "and on"));
    home.sync();
    for session in home.archive.underived(10).unwrap() {
        home.archive.replace_records(&session, &[]).unwrap();
    }
    home.archive.forget("s1", Duration::ZERO).unwrap();
    let pending = home.archive.underived(10).unwrap();
    assert_eq!(pending.len(), 1, "its records are made again");
    let files = home.archive.changed_files(&pending[0]).unwrap();
    let files: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.times)).collect();
    assert_eq!(files, [("/elsewhere/lib.rs", 1), (&*format!("{}/src/lib.rs", home.cwd()), 1)]);
    home.check();
}

#[test]
fn calls_of_different_codex_sessions_are_counted_each() {
    let home = Home::new();
    let folder = home.root.join("codex/sessions");
    fs::create_dir_all(&folder).unwrap();
    let lines = |day: u32| {
        let line = |second: u32, kind: &str, payload: serde_json::Value| {
            let at = format!("2026-01-{day:02}T03:04:{second:02}Z");
            serde_json::json!({ "timestamp": at, "type": kind, "payload": payload }).to_string() + "\n"
        };
        let said =
            serde_json::json!({ "type": "message", "role": "assistant", "content": [{ "text": "hi" }] });
        let counted = serde_json::json!({ "type": "token_count",
            "info": { "last_token_usage": { "input_tokens": 5000, "output_tokens": 12 } } });
        [line(1, "response_item", said), line(2, "event_msg", counted.clone()), line(3, "event_msg", counted)]
            .concat()
    };
    // The last one begins with a copy of the first.
    for (number, text) in [lines(1), lines(2), lines(1) + "\n"].iter().enumerate() {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(number as u64);
        let path = folder.join(format!("rollout-2026-01-02T03-04-00-s{number}.jsonl"));
        fs::write(&path, text).unwrap();
        fs::File::options().append(true).open(&path).unwrap().set_modified(at).unwrap();
    }
    let sync = |again| {
        let codex = Codex::new(vec![home.root.join("codex")]);
        home.archive.sync(&[&codex], &SyncSettings { again, ..home.settings() }).unwrap();
    };
    let tokens = |session: &str| home.archive.session(session).unwrap().tokens.input;
    for again in [false, true] {
        sync(again);
        assert_eq!((tokens("s0"), tokens("s1"), tokens("s2")), (5000, 5000, 0));
    }
    home.archive.forget("s0", Duration::ZERO).unwrap();
    sync(true);
    assert_eq!(tokens("s1"), 5000);
    home.check();
}

#[test]
fn a_patch_changes_files_of_the_folder_that_it_is_applied_in() {
    let home = Home::new();
    let folder = home.root.join("codex/sessions");
    fs::create_dir_all(&folder).unwrap();
    let line = |kind: &str, payload: serde_json::Value| {
        serde_json::json!({ "timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload })
            .to_string()
            + "\n"
    };
    let patch = |id: &str, file: &str, workdir: Option<&str>| {
        let patch = format!("*** Begin Patch\n*** Add File: {file}\n+x\n*** End Patch");
        let arguments =
            serde_json::json!({ "cmd": format!("apply_patch <<'E'\n{patch}\nE"), "workdir": workdir });
        line(
            "response_item",
            serde_json::json!({ "type": "function_call", "name": "exec_command", "arguments": arguments.to_string(), "call_id": id }),
        )
    };
    let cwd = home.cwd();
    let turn = |cwd: &str| line("turn_context", serde_json::json!({ "cwd": cwd, "model": "gpt-5-codex" }));
    let lines = [
        line("session_meta", serde_json::json!({ "id": "s1", "cwd": cwd })),
        turn(&cwd),
        patch("c1", "a.rs", Some(&format!("{cwd}/sub"))),
        patch("c2", "b.rs", None),
        patch("c3", "/gone/c.rs", Some("sub")),
        patch("c4", "../d.rs", Some("sub")),
        turn(&format!("{cwd}/other")),
        patch("c5", "e.rs", None),
    ];
    fs::write(folder.join("rollout-2026-01-02T03-04-00-s1.jsonl"), lines.concat()).unwrap();
    home.archive.sync(&[&Codex::new(vec![home.root.join("codex")])], &home.settings()).unwrap();
    let files = home.archive.changed_files(&home.archive.session("s1").unwrap()).unwrap();
    let mut expected: Vec<String> =
        ["sub/a.rs", "b.rs", "d.rs", "other/e.rs"].iter().map(|file| format!("{cwd}/{file}")).collect();
    expected.push("/gone/c.rs".to_owned());
    expected.sort();
    assert_eq!(files.into_iter().map(|file| file.path).collect::<Vec<_>>(), expected);
}

#[test]
fn what_a_fork_has_of_its_origin_counts_once() {
    let home = Home::new();
    let common = home.prompt(1, "why is each invoice mailed twice?");
    for (session, number) in [("s1", 11), ("s2", 21)] {
        home.write(session, &[common.clone(), home.answer(number, "and on")]);
        home.sync();
    }
    let prompt = home.archive.said(&home.archive.session("s1").unwrap(), None).unwrap()[0].message;
    let found =
        NewMemory { turns: vec![prompt], vector: None, ..memory("ack() is too early", 1, [0.0, 0.0]) };
    let intent = NewRecord {
        kind: "intent".into(),
        summary: "stop it".into(),
        prompt: Some(prompt),
        ..NewRecord::default()
    };
    for session in ["s1", "s2"] {
        let session = home.archive.session(session).unwrap();
        home.archive.replace_memories(&session, std::slice::from_ref(&found), None).unwrap();
        home.archive.replace_records(&session, std::slice::from_ref(&intent)).unwrap();
    }
    assert_eq!(home.memories(), named(&[("ack() is too early", 1)]));
    let query = RecordQuery {
        project: home.project(),
        paths: vec![String::new()],
        limit: 9,
        ..RecordQuery::default()
    };
    assert_eq!(home.archive.records(&query).unwrap().len(), 1);
    // Another session says the same.
    home.write("s3", &[home.prompt(3, "again?")]);
    home.sync();
    let with_vector =
        |turn, at| NewMemory { turns: vec![turn], ..memory("ack() is too early", at, [1.0, 0.0]) };
    for (session, memory) in
        [("s1", with_vector(prompt, 1)), ("s2", with_vector(prompt, 1)), ("s3", with_vector(-1, 2))]
    {
        let session = home.archive.session(session).unwrap();
        home.archive.replace_memories(&session, &[memory], Some(&MODEL)).unwrap();
    }
    assert_eq!(home.memories(), named(&[("ack() is too early", 2)]));
    home.archive.forget("s2", Duration::ZERO).unwrap();
    assert_eq!(home.memories(), named(&[("ack() is too early", 2)]));
    home.check();
}

#[test]
fn what_a_project_was_about_is_of_one_project() {
    let home = Home::new();
    for (number, owner) in (1..).zip(["umbrella", "acme"]) {
        let folder = home.root.join(owner).join("shop");
        fs::create_dir_all(folder.join(".git")).unwrap();
        fs::write(
            folder.join(".git/config"),
            format!("[remote \"origin\"]\n\turl = git@example.com:{owner}/shop.git\n"),
        )
        .unwrap();
        let edit =
            home.call(number * 10, "Write", &serde_json::json!({ "file_path": format!("{owner}.rs") }));
        let lines = [home.prompt(number, &format!("of {owner}")), edit];
        home.write(owner, &lines.map(|line| line.replace(&home.cwd(), &folder.to_string_lossy())));
    }
    home.sync();
    let context = |named: &str| {
        let found = home.archive.context(named, None).unwrap();
        let sessions: Vec<String> = found.sessions.into_iter().map(|session| session.id).collect();
        (
            found.project,
            found.also_named,
            sessions,
            found.sessions_count,
            found.open_threads.len(),
            found.files.len(),
        )
    };
    let [acme, umbrella] = ["acme", "umbrella"].map(|owner| format!("example.com/{owner}/shop"));
    let of = |key: &str, others: Vec<String>, session: &str| {
        (key.to_owned(), others, vec![session.to_owned()], 1, 1, 1)
    };
    assert_eq!(context("shop"), of(&acme, vec![umbrella.clone()], "acme"));
    assert_eq!(context(&umbrella), of(&umbrella, vec![], "umbrella"));
}
