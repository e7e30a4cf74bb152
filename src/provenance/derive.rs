//! Makes records of a session: by rules what was wanted, for which files, and what a person corrected; and of what a
//! model said that has read it, as far as it is about files that are there.

use std::path::Path;

use archive::{Archive, ChangedFile, Derivation, NewRecord, Session, Turn};
use jiff::{SignedDuration, Timestamp};
use knowledge::text::one_line;
use knowledge::{CodeRecord, UnitType};

use crate::edits::file_edits;
use crate::stale::file_digest;

const DETAIL_CHARS_MAX: usize = 200;
const FILES_MAX: usize = 100;
const BY_MODEL_MAX: usize = 40;
const INTENT_CONFIDENCE: f64 = 0.6;
const FILE_INTENT_CONFIDENCE: f64 = 0.5;
const TUNING_CONFIDENCE: f64 = 0.65;
const FILE_CONFIDENCE: f64 = 0.7;
/// A file that was written this much later than the session's last edit of it is not what the session left.
const SETTLED_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// Derives the records of sessions that have something new, the newest first, and returns of how many. Ends early when
/// `is_cancelled` says so; what is left is done the next time.
///
/// # Errors
/// When the archive cannot be used.
pub fn derive_pending(
    archive: &Archive,
    limit: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<usize, archive::Error> {
    let mut done = 0;
    for session in archive.underived(limit)? {
        if is_cancelled() {
            break;
        }
        let records = match derive_all(archive, &session) {
            // A damaged text, which no other session waits for.
            Err(archive::Error::Text { .. }) => Vec::new(),
            records => records?,
        };
        archive.replace_records(&session, &records)?;
        done += 1;
    }
    Ok(done)
}

fn derive_all(archive: &Archive, session: &Session) -> Result<Vec<NewRecord>, archive::Error> {
    let (turns, files) = (archive.turns(session)?, archive.changed_files(session)?);
    let mut records = by_model(session, &turns, &files, archive.noted_records(session)?);
    records.extend(derive(session, &turns, &files));
    Ok(records)
}

/// The records that a model made, each with the prompt that came before what it rests on. One about a file that the
/// session did not change and the project does not have is left out: the model may have misread its name.
fn by_model(
    session: &Session,
    turns: &[Turn],
    files: &[ChangedFile],
    noted: Vec<(CodeRecord, Vec<i64>)>,
) -> Vec<NewRecord> {
    let ended = session.ended.or(session.started).unwrap_or_default();
    let record = |(noted, messages): (CodeRecord, Vec<i64>)| {
        let first = messages.into_iter().min()?;
        let turn = turns.iter().rev().find(|turn| turn.prompt.is_some_and(|prompt| prompt <= first));
        let (path, sha256) = match &noted.path {
            None => (String::new(), None),
            Some(named) => {
                let path = place(named, &session.path)?;
                let on_disk = Path::new(&session.path).join(&path);
                let change =
                    files.iter().find(|file| within(&file.path, &session.path).as_ref() == Some(&path));
                let last = change.map_or(ended, |change| change.last.unwrap_or(ended));
                if change.is_none() && !on_disk.exists() {
                    return None;
                }
                (path, settled_digest(&on_disk, last))
            }
        };
        Some(NewRecord {
            derivation: Derivation::Model,
            kind: noted.kind.to_string(),
            symbol: noted.symbol.filter(|_| !path.is_empty()),
            path,
            summary: noted.summary,
            detail: noted.detail,
            alternatives: noted.alternatives,
            confidence: noted.confidence,
            sha256,
            prompt: turn.and_then(|turn| turn.prompt),
            at: turn.and_then(|turn| turn.at).unwrap_or(ended),
            stale_after: None,
        })
    };
    // Of a long session the last ones: they are what it ended with.
    let mut records: Vec<NewRecord> = noted.into_iter().filter_map(record).collect();
    records.sort_by_key(|record| record.at);
    records.split_off(records.len().saturating_sub(BY_MODEL_MAX))
}

/// The path within a project's folder of what a model named, absolutely or not; empty for the folder itself.
fn place(named: &str, root: &str) -> Option<String> {
    let named = named.trim_end_matches(['/', '\\']);
    if named == root.trim_end_matches(['/', '\\']) || named.is_empty() || named == "." {
        return Some(String::new());
    }
    let is_absolute = named.starts_with(['/', '\\']) || named.get(1..3).is_some_and(|drive| drive == ":\\");
    match is_absolute {
        true => within(named, root),
        false => within(&format!("{root}/{}", named.trim_start_matches("./")), root),
    }
}

/// Makes the records of a session by rules. Reads the files that it changed, for their digests.
pub fn derive(session: &Session, turns: &[Turn], files: &[ChangedFile]) -> Vec<NewRecord> {
    let ended = session.ended.or(session.started).unwrap_or_default();
    let is_subagent = session.parent.is_some();
    let mut records = Vec::new();
    let intents: Vec<Option<String>> =
        turns.iter().map(|turn| intent(&turn.text).filter(|_| !is_subagent)).collect();
    if let Some((turn, summary)) =
        turns.iter().zip(&intents).find_map(|(turn, intent)| Some((turn, intent.clone()?)))
    {
        records.push(NewRecord {
            kind: UnitType::Intent.to_string(),
            summary,
            detail: Some(one_line(&turn.text, DETAIL_CHARS_MAX)),
            confidence: INTENT_CONFIDENCE,
            prompt: turn.prompt,
            at: turn.at.unwrap_or(ended),
            ..NewRecord::default()
        });
    }
    for file in files.iter().filter(|file| file.times > 0 || file.tuned > 0).take(FILES_MAX) {
        let Some(path) = within(&file.path, &session.path) else { continue };
        if is_refused(turns, &file.path) {
            continue;
        }
        let at = file.last.unwrap_or(ended);
        let sha256 = settled_digest(Path::new(&file.path), at);
        let base = NewRecord { path: path.clone(), at, sha256, ..NewRecord::default() };
        for (turn, summary) in turns.iter().zip(&intents) {
            if let Some(summary) = summary.as_ref().filter(|_| mentions(&turn.text, &path)) {
                records.push(NewRecord {
                    kind: UnitType::Intent.to_string(),
                    summary: summary.clone(),
                    confidence: FILE_INTENT_CONFIDENCE,
                    prompt: turn.prompt,
                    at: turn.at.unwrap_or(at),
                    ..base.clone()
                });
            }
        }
        if file.tuned > 0 {
            records.push(NewRecord {
                kind: UnitType::Tuning.to_string(),
                summary: one_line(
                    &format!("a person changed what the model wrote in {path}"),
                    CodeRecord::SUMMARY_CHARS_MAX,
                ),
                confidence: TUNING_CONFIDENCE,
                ..base.clone()
            });
        }
        let change = last_change(turns, &intents, &file.path);
        let verb = if change.as_ref().is_some_and(|change| change.is_new) { "created" } else { "modified" };
        let wanted = change.as_ref().and_then(|change| change.intent.clone());
        records.push(NewRecord {
            kind: UnitType::Intent.to_string(),
            summary: one_line(&format!("{verb} {path}"), CodeRecord::SUMMARY_CHARS_MAX),
            detail: wanted.map(|wanted| format!("for: {wanted}")),
            confidence: FILE_CONFIDENCE,
            prompt: change.and_then(|change| change.prompt),
            ..base
        });
    }
    records
}

/// Whether every edit of a file failed or was refused, so that the session changed nothing in it.
fn is_refused(turns: &[Turn], file: &str) -> bool {
    let edits = turns.iter().flat_map(|turn| &turn.edits);
    let mut of_file = edits
        .filter(|edit| file_edits(&edit.tool, &edit.input).iter().any(|one| same_file(file, &one.path)))
        .peekable();
    of_file.peek().is_some() && of_file.all(|edit| edit.is_error)
}

/// The turn that changed a file last.
struct Change {
    is_new: bool,
    intent: Option<String>,
    prompt: Option<i64>,
}

fn last_change(turns: &[Turn], intents: &[Option<String>], file: &str) -> Option<Change> {
    let mut found: Option<Change> = None;
    for (turn, intent) in turns.iter().zip(intents) {
        for edit in turn.edits.iter().filter(|edit| !edit.is_error) {
            let touches = file_edits(&edit.tool, &edit.input).iter().any(|one| same_file(file, &one.path));
            if touches {
                let created =
                    edit.output.as_deref().is_some_and(|output| output.contains("created successfully"));
                let is_new = created || found.as_ref().is_some_and(|before| before.is_new);
                found = Some(Change { is_new, intent: intent.clone(), prompt: turn.prompt });
            }
        }
    }
    found
}

/// Whether an absolute path is the file that a call names, absolutely or not.
fn same_file(path: &str, named: &str) -> bool {
    let named = named.trim_start_matches("./");
    !named.is_empty()
        && (path == named || path.strip_suffix(named).is_some_and(|before| before.ends_with(['/', '\\'])))
}

/// What a prompt wants, in one line: without a greeting and the punctuation at the end. `None` if it says too little.
pub fn intent(prompt: &str) -> Option<String> {
    const OPENINGS: [&str; 9] = [
        "please ",
        "can you ",
        "could you ",
        "would you ",
        "i want to ",
        "i need to ",
        "let's ",
        "lets ",
        "i'd like to ",
    ];
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty())?;
    if line.starts_with(['/', '<', '!', '#']) || line.starts_with("[") {
        return None;
    }
    let mut rest = line;
    while let Some(shorter) = OPENINGS.iter().find_map(|opening| {
        let head = rest.get(..opening.len())?;
        head.eq_ignore_ascii_case(opening).then(|| rest[opening.len()..].trim_start())
    }) {
        rest = shorter;
    }
    let rest = rest.trim_end_matches(['.', '!', '?', ' ']);
    let words = rest.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    if words < 3 {
        return None;
    }
    let mut letters = rest.chars();
    let first: String = letters.next()?.to_lowercase().collect();
    let is_name = rest.split_whitespace().next().is_some_and(|word| {
        word.chars().skip(1).any(char::is_uppercase) || word.contains(['_', '.', '(', '`'])
    });
    let text = if is_name { rest.to_owned() } else { first + letters.as_str() };
    Some(one_line(&text, CodeRecord::SUMMARY_CHARS_MAX))
}

/// Whether a prompt names a file: by its path, a part of it with a `/`, or its name with an ending.
fn mentions(prompt: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    prompt
        .split(|c: char| c.is_whitespace() || "`'\"()[]{}<>,;:@".contains(c))
        .map(|word| word.trim_start_matches("./").trim_end_matches(['.', '!', '?']))
        .any(|word| {
            word == path
                || (name.contains('.') && word == name)
                || (word.contains('/') && !word.ends_with('/') && same_file(path, word))
        })
}

/// The path within a project's folder, with `/`; `None` if it lies outside.
pub fn within(path: &str, root: &str) -> Option<String> {
    let root = root.trim_end_matches(['/', '\\']);
    let rest = path.strip_prefix(root).filter(|_| !root.is_empty())?;
    let rest = rest.strip_prefix(['/', '\\'])?.replace('\\', "/");
    let is_inside = !rest.is_empty() && !rest.split('/').any(|part| part == "..");
    is_inside.then_some(rest)
}

/// The digest of a file that nobody has written since the session did.
fn settled_digest(path: &Path, last: Timestamp) -> Option<[u8; 32]> {
    let modified = Timestamp::try_from(std::fs::metadata(path).ok()?.modified().ok()?).ok()?;
    (modified <= last.checked_add(SETTLED_WITHIN).ok()?).then(|| file_digest(path)).flatten()
}

#[cfg(test)]
mod tests {
    use archive::{ClaudeCode, RecordQuery, SyncSettings};

    use super::*;

    #[test]
    fn an_intent_is_what_is_asked_for() {
        let cases = [
            ("Please can you add JWT authentication to login.", Some("add JWT authentication to login")),
            ("\n  I want to Cache the exchange rates!\nmore", Some("cache the exchange rates")),
            ("GraphQL is too complex here", Some("GraphQL is too complex here")),
            ("yes", None),
            ("/clear all of it", None),
            ("[Image #1] look at this", None),
            ("", None),
        ];
        for (prompt, expected) in cases {
            assert_eq!(intent(prompt).as_deref(), expected, "{prompt}");
        }
        assert!(intent(&"word ".repeat(100)).unwrap().chars().count() <= CodeRecord::SUMMARY_CHARS_MAX);
    }

    #[test]
    fn one_damaged_text_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let projects = folder.path().join("client/projects/-shop");
        std::fs::create_dir_all(&projects).unwrap();
        for number in 1..=2 {
            let session = format!("1bf1a2c4-0c7e-4f3a-9a51-00000000000{number}");
            let prompt = serde_json::json!({"type": "user", "uuid": format!("u{number}"), "cwd": "/shop",
                "timestamp": "2026-11-16T10:00:00Z", "sessionId": &session,
                "message": {"role": "user", "content": format!("Please bound the pool of queue {number}, as it is.")}});
            std::fs::write(projects.join(format!("{session}.jsonl")), format!("{prompt}\n")).unwrap();
        }
        let path = folder.path().join("archive.db");
        let archive = Archive::open(&path).unwrap();
        let sources = ClaudeCode::new(vec![folder.path().join("client")]);
        archive.sync(&[&sources], &SyncSettings::new(folder.path().to_owned())).unwrap();
        let damage = "UPDATE blobs SET body = x'00' WHERE id = (SELECT max(id) FROM blobs)";
        assert_eq!(rusqlite::Connection::open(&path).unwrap().execute(damage, []).unwrap(), 1);
        assert_eq!(derive_pending(&archive, 10, &|| false).unwrap(), 2);
        assert_eq!(derive_pending(&archive, 10, &|| false).unwrap(), 0);
        let found = archive.unembedded("a model", 0..100, 10).unwrap();
        let mut texts: Vec<&str> = found.messages.iter().map(|message| message.text.as_str()).collect();
        texts.sort_unstable();
        assert_eq!(texts[0], "");
        assert!(texts[1].starts_with("Please bound the pool of queue "), "{texts:?}");
    }

    #[test]
    fn a_place_is_within_the_project() {
        let cases = [
            ("/home/you/shop/src/a.rs", Some("src/a.rs")),
            ("src/a.rs", Some("src/a.rs")),
            ("./src/", Some("src")),
            (".", Some("")),
            ("/home/you/shop/", Some("")),
            ("/home/you/shopping/a.rs", None),
            ("../blog/a.rs", None),
            ("/etc/passwd", None),
        ];
        for (named, expected) in cases {
            assert_eq!(place(named, "/home/you/shop").as_deref(), expected, "{named}");
        }
        assert_eq!(place(r"C:\shop\src\a.rs", r"C:\shop").as_deref(), Some("src/a.rs"));
    }

    #[test]
    fn a_prompt_names_a_file_by_its_path_or_its_name() {
        assert!(mentions("fix src/auth.ts please", "src/auth.ts"));
        assert!(mentions("look at `auth.ts`.", "src/auth.ts"));
        assert!(mentions("in app/src/auth.ts", "app/src/auth.ts"));
        assert!(!mentions("the auth module", "src/auth.ts"));
        assert!(!mentions("src/auth.tsx", "src/auth.ts"));
    }

    #[test]
    fn a_session_leaves_records_of_what_it_was_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        let shop = root.join("shop");
        std::fs::create_dir_all(shop.join("src")).unwrap();
        std::fs::write(shop.join("src/rates.rs"), "fn rates() {}").unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        std::fs::File::options()
            .append(true)
            .open(shop.join("src/rates.rs"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        let projects = root.join("client/projects/-shop");
        std::fs::create_dir_all(&projects).unwrap();
        let session = "5a3b7c1e-0000-4000-8000-000000000001";
        let cwd = shop.to_string_lossy();
        let at = Timestamp::now();
        let file = shop.join("src/rates.rs").to_string_lossy().into_owned();
        let refused = shop.join("src/refused.rs").to_string_lossy().into_owned();
        let line = |kind: &str, number: u32, message: serde_json::Value, more: serde_json::Value| {
            let mut line = serde_json::json!({
                "type": kind, "uuid": format!("5a3b7c1e-0000-4000-8000-{number:012x}"), "cwd": cwd,
                "sessionId": session, "timestamp": at.to_string(), "message": message,
            });
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            format!("{line}\n")
        };
        let text = [
            line("user", 1, serde_json::json!({"role": "user", "content": "Please cache the exchange rates in src/rates.rs"}), serde_json::json!({})),
            line("assistant", 2, serde_json::json!({"id": "m1", "role": "assistant", "content": [
                {"type": "tool_use", "id": "t1", "name": "Write", "input": {"file_path": file, "content": "fn rates() {}"}},
            ]}), serde_json::json!({})),
            line("user", 3, serde_json::json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "File created successfully at: it"},
            ]}), serde_json::json!({"toolUseResult": {"type": "create", "filePath": file, "userModified": true}})),
            line("assistant", 4, serde_json::json!({"id": "m2", "role": "assistant", "content": [
                {"type": "tool_use", "id": "t2", "name": "Write", "input": {"file_path": refused, "content": "x"}},
            ]}), serde_json::json!({})),
            line("user", 5, serde_json::json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
                    "content": "The user doesn't want to proceed with this tool use."},
            ]}), serde_json::json!({"toolUseResult": "User rejected tool use"})),
        ]
        .concat();
        std::fs::write(projects.join(format!("{session}.jsonl")), text).unwrap();
        let archive = Archive::open(&root.join("state/archive.db")).unwrap();
        let sources = ClaudeCode::new(vec![root.join("client")]);
        archive.sync(&[&sources], &SyncSettings::new(root.join("state"))).unwrap();
        assert_eq!(derive_pending(&archive, 10, &|| false).unwrap(), 1);
        assert_eq!(derive_pending(&archive, 10, &|| false).unwrap(), 0, "nothing is new");

        let project = archive.session(session).unwrap().project;
        let query =
            RecordQuery { project, paths: vec!["src/rates.rs".into()], limit: 50, ..RecordQuery::default() };
        let found = archive.records(&query).unwrap();
        let mut shown: Vec<_> = found
            .iter()
            .map(|found| {
                let record = &found.record;
                (record.kind.as_str(), record.path.as_str(), record.summary.as_str(), record.confidence)
            })
            .collect();
        shown.sort_by(|a, b| a.3.total_cmp(&b.3));
        assert_eq!(
            shown,
            [
                ("intent", "src/rates.rs", "cache the exchange rates in src/rates.rs", 0.5),
                ("intent", "", "cache the exchange rates in src/rates.rs", 0.6),
                ("tuning", "src/rates.rs", "a person changed what the model wrote in src/rates.rs", 0.65),
                ("intent", "src/rates.rs", "created src/rates.rs", 0.7),
            ]
        );
        let refused = RecordQuery { paths: vec!["src/refused.rs".into()], ..query.clone() };
        assert!(
            archive.records(&refused).unwrap().iter().all(|found| found.record.path.is_empty()),
            "what was refused is no change"
        );
        let digest = file_digest(&shop.join("src/rates.rs"));
        assert!(
            found
                .iter()
                .filter(|found| !found.record.path.is_empty())
                .all(|found| found.record.sha256 == digest)
        );
        let words = RecordQuery { paths: Vec::new(), words: Some("caching exchange".into()), ..query };
        let found = archive.records(&words).unwrap();
        assert!(found.iter().all(|found| found.rank.is_some_and(|rank| rank < 0.0)));
        assert_eq!(found.len(), 3, "words are stemmed: {found:?}");

        archive.forget(session, std::time::Duration::from_secs(5)).unwrap();
        assert!(archive.records(&words).unwrap().is_empty(), "forgotten with its session");
    }
}
