//! Made-up secrets go through the real binary, and every byte that leaves the process is searched for
//! them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::canaries::{Canary, LeakDetector, canaries};
use crate::support::messages_api::{KEY, MessagesApi, Reply, Request};
use crate::support::{Sandbox, fixture};

const SEED: u64 = 20_261_121;

#[test]
fn no_secret_of_any_kind_survives_redaction_in_any_form() {
    let canaries = canaries(SEED);
    let kinds: HashSet<&str> = canaries.iter().map(|canary| canary.kind.as_str()).collect();
    println!("seed {SEED}: {} canaries of {} kinds", canaries.len(), kinds.len());
    assert!(canaries.len() >= 200 && kinds.len() >= 40);
    let detector = LeakDetector::new(&canaries);
    let leaks: Vec<String> = canaries
        .iter()
        .filter_map(|canary| {
            let Canary { kind, form, text, .. } = canary;
            assert!(detector.find_leak(text.as_bytes()).is_some(), "{kind} as {form} has no secret");
            let clean = transcript::redact::redact(text);
            let left = detector.find_leak(clean.as_bytes())?;
            Some(format!("{kind} as {form}: {text}\n    became {left}"))
        })
        .collect();
    assert!(leaks.is_empty(), "{} of {}:\n{}", leaks.len(), canaries.len(), leaks.join("\n"));
}

/// Whole files, as a tool would show them.
#[test]
fn ordinary_code_is_rarely_redacted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "actors", "stress", "tests"] {
        files(&root.join(folder), &mut |path| paths.push(path.to_owned()));
    }
    let is_text = |path: &PathBuf| {
        let kinds = ["rs", "toml", "md", "sh", "py", "json", "jsonl", "snap"];
        path.extension().is_some_and(|extension| kinds.iter().any(|kind| extension == *kind))
    };
    // The redaction rules describe secrets and the redactor's tests contain some, so both are skipped.
    let is_about_secrets = |path: &PathBuf| {
        ["redact", "rules", "canaries"].iter().any(|name| path.display().to_string().contains(name))
    };
    paths.retain(|path| is_text(path) && !is_about_secrets(path));
    let (mut lines, mut wrong) = (0, Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let clean = transcript::redact::redact(&text);
        let kept: HashSet<&str> = clean.lines().collect();
        lines += text.lines().count();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        wrong.extend(
            text.lines().filter(|line| !kept.contains(line)).map(|line| format!("{name}: {}", line.trim())),
        );
    }
    println!("{} of {lines} lines are redacted\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines > 20_000, "{lines}");
    assert!(wrong.len() * 1_000 < lines, "{} of {lines}", wrong.len());
}

#[test]
fn no_secret_leaves_a_process_that_extracts_by_rules() {
    let canaries = canaries(SEED);
    let detector = LeakDetector::new(&canaries);
    let machine = Machine::new(Vec::new());
    for transcript in sessions(machine.sandbox.path(), &canaries) {
        let capture =
            machine.run(&detector, &["capture-session", "--transcript", &transcript, "--wait", "--json"]);
        assert!(capture.contains("\"state\""), "{capture}");
        machine.run(&detector, &["capture-session", "--transcript", &transcript, "--dry-run", "--json"]);
    }
    machine.search_everything(&detector);
    let units = machine.sandbox.git(&["log", "--all", "--format=%s", "--", "domains"]);
    assert!(units.lines().count() >= 3, "too few units to prove anything: {units}");
    let excerpts = machine.sandbox.git(&["log", "--all", "-p"]);
    assert!(excerpts.contains("[redacted: "), "what was proposed held no secret to begin with");
}

#[test]
fn no_secret_leaves_a_process_that_extracts_by_model() {
    // What the session holds, and what the model invents.
    let (in_session, answered) = (canaries(SEED), canaries(SEED + 1));
    let both: Vec<Canary> = canaries(SEED).into_iter().chain(canaries(SEED + 1)).collect();
    let detector = LeakDetector::new(&both);
    let sent = Arc::new(Mutex::new(0_usize));
    let api = MessagesApi::start({
        let sent = Arc::clone(&sent);
        move |request: &Request| {
            *sent.lock().unwrap() += request.body.to_string().len();
            if request.body["tools"].is_null() {
                return Reply::Text("It is so [a].");
            }
            let skip = request.number * 7;
            let mut texts = answered.iter().cycle().skip(skip).map(|canary| canary.text.as_str());
            let units: Vec<Value> = (0..8)
                .map(|at| {
                    let mut text = || texts.next().unwrap().to_owned();
                    json!({
                        "type": "bug", "title": format!("Lesson {skip} {at} of the pool {}", text()),
                        "description": text(), "domain": if at % 2 == 0 { "coding".to_owned() } else { text() },
                        "body": format!("## When it applies\n\nWhen a pool {at} grows.\n\n{}\n\n{}\n\n{}", text(), text(), text()),
                        "tags": [text(), "pools", text()], "confidence": 0.9, "evidence": [1, 2, 3],
                        "relations": [{ "id": text(), "relation": text() }],
                    })
                })
                .collect();
            match request.number {
                0 => Reply::Error(429, "slow down", Some(0)),
                _ => Reply::Call(json!({ "units": units })),
            }
        }
    });
    let variables = vec![("ANTHROPIC_API_KEY", KEY.to_owned()), ("NUGGET_MODEL_URL", api.url.clone())];
    let machine = Machine::new(variables);
    for transcript in sessions(machine.sandbox.path(), &in_session) {
        machine.run(&detector, &["capture-session", "--transcript", &transcript, "--wait", "--json"]);
        machine.run(&detector, &["capture-session", "--transcript", &transcript, "--dry-run"]);
    }
    // A person has written a secret into their brain: it stays there, and is never shown.
    let canary =
        in_session.iter().find(|canary| canary.kind == "Stripe key" && canary.form == "prose").unwrap();
    machine.run(&detector, &["index"]);
    let note = machine.sandbox.brain().join("payments.md");
    fs::write(&note, format!("# How payments are tried out\n\nUse this for payments: {}\n", canary.text))
        .unwrap();
    let asked = machine.run(&detector, &["ask", "how are payments tried out?"]);
    assert!(asked.contains("so [a]"), "{asked}");
    let passages = machine.run(&detector, &["ask", "--no-llm", "--json", "how are payments tried out?"]);
    assert!(passages.contains("[redacted: Stripe key]"), "{passages}");
    machine.run(&detector, &["ask", &format!("what is {} for?", canary.text)]);
    fs::remove_file(&note).unwrap();

    let requests = api.requests();
    for request in &requests {
        let body = request.to_string();
        assert!(
            detector.find_leak(body.as_bytes()).is_none(),
            "a request holds {:?}",
            detector.find_leak(body.as_bytes())
        );
    }
    let bytes = *sent.lock().unwrap();
    println!("{} requests, {bytes} bytes", requests.len());
    assert!(requests.len() >= 4 && bytes > 50_000);
    assert!(requests.iter().any(|request| request.to_string().contains("[redacted: ")));
    machine.search_everything(&detector);
    let units = machine.sandbox.git(&["log", "--all", "-p", "--", "domains"]);
    assert!(units.contains("[redacted: "), "{units}");
}

#[test]
fn a_dry_run_shows_what_would_be_sent_and_writes_nothing() {
    let api = MessagesApi::start(|_| Reply::Call(json!({ "units": [] })));
    let variables = vec![("ANTHROPIC_API_KEY", KEY.to_owned()), ("NUGGET_MODEL_URL", api.url.clone())];
    let machine = Machine::new(variables);
    let transcript = fixture("transcripts/synthetic/adr_outbox.jsonl").display().to_string();
    let listing = || {
        let mut all = Vec::new();
        files(machine.sandbox.path(), &mut |path| {
            let metadata = fs::metadata(path).unwrap();
            all.push((path.to_owned(), metadata.len(), metadata.modified().unwrap()));
        });
        all.sort();
        all
    };
    let before = listing();
    let detector = LeakDetector::new(&[]);
    let shown = machine.run(&detector, &["capture-session", "--transcript", &transcript, "--dry-run"]);
    assert!(
        shown.contains("WOULD BE SENT, in 1 part") && shown.contains("RULES ALONE WOULD SAVE"),
        "{shown}"
    );
    let report =
        machine.run(&detector, &["capture-session", "--transcript", &transcript, "--dry-run", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["saved"][0]["content"].as_str().unwrap().contains("title:"), "{report}");
    assert_eq!(listing(), before);
    assert!(api.requests().is_empty());

    // The same text is what is really sent.
    machine.run(&detector, &["capture-session", "--transcript", &transcript, "--wait", "--json"]);
    let requests = api.requests();
    assert_eq!(requests.len(), report["sent"].as_array().unwrap().len());
    assert_eq!(requests[0]["messages"][0]["content"], report["sent"][0]["user"]);
    assert_eq!(requests[0]["tools"][0]["input_schema"], report["sent"][0]["tool"]);
}

#[test]
fn a_secret_in_a_title_that_a_person_wrote_is_not_shown() {
    let sandbox = Sandbox::with_brain();
    let token = ["ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"].concat();
    assert!(!transcript::redact::redact(&token).contains(&token));
    let unit = |id: &str| {
        format!(
            "---\nid: {id}\ntype: concept\ndomain: web\ntitle: The key is {token} here\n---\n\nIt is kept elsewhere.\n"
        )
    };
    let folder = sandbox.brain().join("domains/web/concepts");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("key.md"), unit("key")).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "--quiet", "--message", "by hand"]);
    sandbox.git(&["checkout", "--quiet", "-b", "nugget/session-20261116-170405-ad5139ef"]);
    fs::write(folder.join("other.md"), unit("other")).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "--quiet", "--message", "waits"]);
    sandbox.git(&["checkout", "--quiet", "-"]);
    for arguments in [
        &["list"][..],
        &["review"],
        &["status"],
        &["why", "key"],
        &["rm", "key"],
        &["review", "merge", "--all"],
    ] {
        let shown = sandbox.ok(arguments);
        assert!(shown.contains("The key is [redacted") && !shown.contains(&token), "{arguments:?}: {shown}");
    }
}

#[test]
fn a_project_with_a_nuggetignore_is_skipped() {
    let machine = Machine::new(Vec::new());
    let project = machine.sandbox.path().join("shop");
    fs::create_dir(&project).unwrap();
    let prompt = "never deploy on a friday, it has cost us two weekends";
    let line = json!({
        "type": "user", "uuid": "u1", "sessionId": "s1", "cwd": project, "origin": { "kind": "human" },
        "timestamp": "2026-11-20T10:00:00Z", "message": { "role": "user", "content": prompt },
    });
    let transcript = machine.sandbox.path().join("s1.jsonl");
    fs::write(&transcript, format!("{line}\n")).unwrap();
    let detector = LeakDetector::new(&[]);
    let capture = || {
        machine.run(
            &detector,
            &["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait", "--json"],
        )
    };
    fs::write(project.join(".nuggetignore"), "# not this one\n*\n").unwrap();
    let left: Value = serde_json::from_str(&capture()).unwrap();
    assert_eq!(left["reason"], "the project's .nuggetignore excludes its sessions", "{left}");
    let hook = json!({
        "session_id": "s1", "transcript_path": transcript, "cwd": project, "hook_event_name": "SessionEnd", "reason": "other",
    });
    let hook = || {
        let output = machine.sandbox.run_with_input(&["capture-session"], hook.to_string().as_bytes());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(hook().contains("is skipped: its .nuggetignore covers its project"), "{}", hook());
    let dry = machine
        .run(&detector, &["capture-session", "--transcript", transcript.to_str().unwrap(), "--dry-run"]);
    assert!(dry.contains("nothing would be sent or saved"), "{dry}");

    fs::remove_file(project.join(".nuggetignore")).unwrap();
    let settings = machine.sandbox.path().join("config/nugget");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join(".nuggetignore"), "# customers\nsho*\n").unwrap();
    assert!(hook().contains("is skipped"), "{}", hook());
    fs::remove_file(settings.join(".nuggetignore")).unwrap();
    assert!(!hook().contains("is skipped"));
}

#[test]
fn instructions_to_the_reader_are_rejected_with_a_reason() {
    let attempts: Vec<String> = include_str!("fixtures/injections.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .enumerate()
        .map(|(at, attempt)| match at % 3 {
            // Line breaks and hidden characters must not get around the check.
            0 => attempt.replacen(' ', "\n", 2),
            1 => attempt.replacen('e', "\u{200b}e", 3),
            _ => attempt.to_owned(),
        })
        .collect();
    assert!(attempts.len() >= 40);
    let unit = |(at, attempt): (usize, &String)| {
        let attempt_in = |slot: usize, otherwise: &str| {
            if at % 4 == slot { format!("{otherwise}. {attempt}") } else { otherwise.to_owned() }
        };
        json!({
            "type": "belief", "title": attempt_in(0, "Bound the pool of workers"), "description": attempt_in(1, "How pools are bounded"),
            "body": format!("## When it applies\n\nWhen a pool may grow without end.\n\n{}", if at % 4 > 1 { attempt } else { "Bound it." }),
            "domain": "coding", "tags": ["pools"], "confidence": 0.95, "evidence": [1], "relations": [],
        })
    };
    // Fewer than the number of rejections that are kept, so that all of them are visible.
    for some in attempts.chunks(15) {
        let units: Vec<Value> = some.iter().enumerate().map(unit).collect();
        let api = MessagesApi::start(move |_| Reply::Call(json!({ "units": units })));
        let variables = vec![("ANTHROPIC_API_KEY", KEY.to_owned()), ("NUGGET_MODEL_URL", api.url.clone())];
        let machine = Machine::new(variables);
        let transcript = fixture("transcripts/synthetic/nothing_chat.jsonl").display().to_string();
        let capture = machine.run(
            &LeakDetector::new(&[]),
            &["capture-session", "--transcript", &transcript, "--wait", "--json"],
        );
        let capture: Value = serde_json::from_str(&capture).unwrap();
        let proposed = machine.sandbox.git(&["log", "--all", "--format=", "-p", "--", "domains"]);
        assert_eq!(capture["state"], "nothing", "{capture}\n{proposed}");
        assert!(capture["reason"].as_str().unwrap().contains("quarantined: it"), "{capture}");
    }
}

struct Machine {
    sandbox: Sandbox,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    fn new(mut variables: Vec<(&'static str, String)>) -> Self {
        // Everything is logged, except by the model runtime: it prints a hundred thousand addresses, and some
        // share digits with a piece of a canary.
        variables.push(("NUGGET_LOG", "trace,ort=info".to_owned()));
        Self { sandbox: Sandbox::with_brain(), variables }
    }

    fn command(&self) -> Command {
        let mut command = self.sandbox.command();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command that must print no secret, and returns what it printed.
    fn run(&self, detector: &LeakDetector, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().unwrap();
        for bytes in [&output.stdout, &output.stderr] {
            assert!(
                detector.find_leak(bytes).is_none(),
                "{arguments:?} prints {:?}",
                detector.find_leak(bytes)
            );
        }
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Searches everything that was printed, stored and committed.
    fn search_everything(&self, detector: &LeakDetector) {
        for arguments in
            [&["status"][..], &["status", "--json"], &["list"], &["spend"], &["config"], &["sync", "--all"]]
        {
            self.run(detector, arguments);
        }
        let (mut files_seen, mut bytes_seen, mut logs) = (0, 0, 0);
        files(self.sandbox.path(), &mut |path| {
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                return;
            }
            let bytes = fs::read(path).unwrap_or_default();
            files_seen += 1;
            bytes_seen += bytes.len();
            logs += usize::from(path.extension().is_some_and(|extension| extension == "log"));
            assert!(
                detector.find_leak(&bytes).is_none(),
                "{} holds {:?}",
                path.display(),
                detector.find_leak(&bytes)
            );
            let name = path.display().to_string();
            assert!(detector.find_leak(name.as_bytes()).is_none(), "{name}");
        });
        let objects = Command::new("git")
            .args(["cat-file", "--batch-all-objects", "--batch"])
            .current_dir(self.sandbox.brain())
            .output()
            .unwrap()
            .stdout;
        assert!(detector.find_leak(&objects).is_none(), "git holds {:?}", detector.find_leak(&objects));
        let seen = (files_seen, objects.len(), logs);
        assert!(files_seen > 20 && objects.len() > 10_000 && logs > 0, "{seen:?}");
    }
}

/// Writes real sessions with the canaries spread over the texts of people, the model and tools.
fn sessions(folder: &Path, canaries: &[Canary]) -> Vec<String> {
    let mut texts = canaries.iter().map(|canary| canary.text.as_str()).peekable();
    let names = ["flywheel", "python_timezones", "go_race", "adr_outbox", "k8s_probe"];
    let each = canaries.len().div_ceil(names.len());
    let mut paths = Vec::new();
    for name in names {
        let transcript = fs::read_to_string(fixture(&format!("transcripts/synthetic/{name}.jsonl"))).unwrap();
        let mut lines: Vec<Value> =
            transcript.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut left = each;
        while left > 0 && texts.peek().is_some() {
            for line in &mut lines {
                let mut texts_found = Vec::new();
                if let Some(message) = line.get_mut("message") {
                    collect_texts(&mut message["content"], &mut texts_found);
                }
                for found in texts_found {
                    let Some(text) = texts.next() else { break };
                    *found = format!("{found}: {text}\n");
                    left = left.saturating_sub(1);
                }
            }
        }
        let path = folder.join(format!("{name}.jsonl"));
        fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        paths.push(path.display().to_string());
    }
    assert!(texts.next().is_none(), "not all canaries fit");
    paths
}

/// Collects the texts of a message: what was said, and a tool's input and output.
fn collect_texts<'a>(content: &'a mut Value, texts_found: &mut Vec<&'a mut String>) {
    match content {
        Value::String(text) => texts_found.push(text),
        Value::Array(blocks) => {
            for block in blocks {
                let Value::Object(block) = block else { continue };
                for (key, value) in block {
                    match (key.as_str(), value) {
                        ("text", Value::String(text)) => texts_found.push(text),
                        ("content", value) => collect_texts(value, texts_found),
                        ("input", Value::Object(input)) => {
                            for (key, value) in input {
                                if let Value::String(text) = value
                                    && ["command", "old_string", "new_string", "prompt", "query"]
                                        .contains(&key.as_str())
                                {
                                    texts_found.push(text);
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        _ => {}
    }
}

fn files(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&entry.path(), visit),
            kind if kind.is_file() => visit(&entry.path()),
            _ => {}
        }
    }
}
