//! What the public test suites hold is read, asked, stored and printed without a crash, and corrupts nothing.

use std::io::Write as _;
use std::time::{Duration, Instant};

use brain::Brain;
use knowledge::Document;
use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::suites::{self, cases, complaint, naughty_strings};
use crate::support::{Sandbox, fixture};

/// A file of JSONTestSuite: its name, whose first letter says whether it is valid, and its content.
struct JsonFile {
    name: String,
    content: Vec<u8>,
}

impl JsonFile {
    fn is_valid(&self) -> bool {
        self.name.starts_with("y_")
    }

    /// The content without line ends, to be a part of a line.
    fn in_line(&self) -> Vec<u8> {
        self.content.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
    }
}

fn json_files() -> Vec<JsonFile> {
    let files: Vec<JsonFile> = cases("json.jsonl")
        .iter()
        .map(|case| {
            let bytes = case["bytes"].as_str().unwrap().chars().map(|c| u8::try_from(c).unwrap());
            let times = case["times"].as_u64().unwrap_or(1) as usize;
            JsonFile {
                name: case["name"].as_str().unwrap().to_owned(),
                content: bytes.collect::<Vec<u8>>().repeat(times),
            }
        })
        .collect();
    assert!(files.len() > 300 && files.iter().any(|file| file.content.len() > 200_000));
    files
}

/// A random choice that is printed, so that it can be repeated.
#[expect(clippy::print_stdout, reason = "a test prints its seed")]
fn seeded() -> fastrand::Rng {
    let seed = std::env::var("NUGGET_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("NUGGET_TEST_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

#[test]
fn a_hook_survives_every_json_on_its_stdin() {
    let sandbox = Sandbox::with_brain();
    for (number, file) in json_files().iter().enumerate() {
        // As it is, and as a value where a hook expects text.
        let content = if number % 2 == 0 {
            file.content.clone()
        } else {
            let value = file.in_line();
            [&b"{\"session_id\":\"a\",\"prompt\":"[..], &value, b",\"transcript_path\":", &value, b"}\n"]
                .concat()
        };
        let hooks = ["capture-session", "session-start", "user-prompt", "guard"];
        let hook = hooks[number / 2 % hooks.len()];
        let output = sandbox.run_with_input(&[hook], &content);
        let shown = format!("{hook} on {}: {output:?}", file.name);
        // Another code than 0 or 2 would be reported to the person by the client.
        assert!(matches!(output.status.code(), Some(0 | 2)), "{shown}");
        for printed in [&output.stdout, &output.stderr] {
            assert_eq!(suites::unprintable(printed), None, "{shown}");
        }
    }
}

#[test]
fn a_transcript_with_every_json_as_a_line_teaches_what_it_taught_without() {
    let session = std::fs::read(fixture("transcripts/synthetic/flywheel.jsonl")).unwrap();
    let mut lines = session.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut files = json_files().into_iter();
    let mut mixed = Vec::new();
    loop {
        let (line, file) = (lines.next(), files.next());
        if line.is_none() && file.is_none() {
            break;
        }
        for line in [file.map(|file| file.content), line.map(<[u8]>::to_vec)].into_iter().flatten() {
            mixed.extend(line);
            mixed.push(b'\n');
        }
    }
    let titles = |content: &[u8]| {
        let sandbox = Sandbox::with_brain();
        let path = sandbox.path().join("session.jsonl");
        std::fs::write(&path, content).unwrap();
        let capture = sandbox.capture(&path);
        assert_eq!(capture["state"], "done", "{capture}");
        let branch = capture["branch"].as_str().unwrap().to_owned();
        sandbox.git(&["diff", "--name-only", "HEAD", &branch])
    };
    let wanted = titles(&session);
    assert_eq!(wanted.lines().count(), 3, "{wanted}");
    assert_eq!(titles(&mixed), wanted);
}

#[test]
fn the_server_answers_every_json_and_lives_on() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let send = |client: &mut Client, line: &[u8]| {
        let stdin = client.stdin.as_mut().unwrap();
        stdin.write_all(&[line, b"\n"].concat()).unwrap();
    };
    for (number, file) in json_files().iter().enumerate() {
        // Line by line, as messages. An array is a batch, each of whose items is refused.
        for line in file.content.split(|&byte| byte == b'\n').filter(|line| !matches!(line, [] | [b'\r'])) {
            send(&mut client, line);
            let message: Value = serde_json::from_slice(line).unwrap_or_default();
            let id = message.get("id").filter(|id| id.is_string()).cloned().unwrap_or_default();
            let refusals = message.as_array().map_or(1, |items| items.len().max(1));
            for _ in 0..refusals {
                let answer = client.receive();
                assert_eq!(answer["id"], id, "{}: {answer}", file.name);
                assert!(answer["error"]["code"].is_i64(), "{}: {answer}", file.name);
            }
        }
        // As the argument of a call.
        let id = json!(format!("call {number}"));
        let before = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"}).to_string();
        let before = format!(
            "{},\"params\":{{\"name\":\"get_relevant_context\",\"arguments\":{{\"task_description\":",
            before.trim_end_matches('}')
        );
        send(&mut client, &[before.as_bytes(), &file.in_line(), b"}}}"].concat());
        let answer = client.receive();
        let has_id = answer["id"] == id;
        assert!(has_id || (answer["id"].is_null() && !file.is_valid()), "{}: {answer}", file.name);
        assert!(answer["error"]["code"].is_i64() || answer["result"].is_object(), "{}: {answer}", file.name);
    }
    let answer = client.call(1, json!({"task_description": "cranes"}), None);
    assert!(answer["result"]["isError"].as_bool() != Some(true), "{answer}");
    assert!(client.close().success());
}

/// The documents of yaml-test-suite, each as front matter in several ways.
fn front_matters() -> Vec<(String, String)> {
    let documents = cases("yaml.jsonl");
    assert!(documents.len() > 400);
    documents
        .iter()
        .flat_map(|case| {
            let (name, yaml) = (case["name"].as_str().unwrap(), case["yaml"].as_str().unwrap());
            let line_end = if yaml.ends_with('\n') { "" } else { "\n" };
            let indented: String = yaml.lines().map(|line| format!("  {line}\n")).collect();
            [
                format!("{yaml}{line_end}"),
                format!("type: pattern\n{yaml}{line_end}"),
                format!("{yaml}{line_end}type: pattern\n"),
                format!("type: pattern\nextra:\n{indented}title: Known\n"),
            ]
            .map(|front| (name.to_owned(), front))
        })
        .collect()
}

#[test]
fn front_matter_of_any_yaml_loads_or_is_refused_and_is_edited_in_place() {
    let number = Document::parse("---\nvalue: 0.25\n---\n").unwrap().get("value").unwrap();
    let (mut loaded, mut kept) = (0, 0);
    for (name, front) in front_matters() {
        let text = format!("---\n{front}---\n\n# Heading\n\nBody.\n");
        let begun = Instant::now();
        let read = Document::parse(text.as_str()).and_then(|document| Ok((document.unit("x.md")?, document)));
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} takes too long");
        match read {
            Err(error) => {
                assert!(!error.what.is_empty() && error.line <= text.lines().count(), "{name}: {error}")
            }
            Ok((unit, document)) => {
                loaded += 1;
                assert_eq!(document.as_str(), text);
                let mut edited = document.clone();
                edited.set("confidence", &number);
                let shown = format!("{name}:\n{text}\nedited:\n{}", edited.as_str());
                // Still the same unit, also when it is read again.
                let again = Document::parse(edited.as_str()).and_then(|document| document.unit("x.md"));
                let trimmed =
                    |unit: knowledge::Unit| knowledge::Unit { body: unit.body.trim().to_owned(), ..unit };
                // Front matter that is no mapping becomes text below a new one.
                let wanted = trimmed(knowledge::Unit { confidence: 0.25, ..unit });
                assert_eq!(edited.unit("x.md").map(trimmed).as_ref(), Ok(&wanted), "{shown}");
                assert_eq!(again.map(trimmed).as_ref(), Ok(&wanted), "{shown}");
                let removed = edited.as_str().replacen("confidence: 0.25\n", "", 1);
                kept += usize::from(removed == text || edited.as_str().ends_with(&text));
            }
        }
    }
    println!("{loaded} load; {kept} keep every byte");
    assert!(loaded > 400 && kept * 10 > loaded * 9);
}

#[test]
fn a_brain_yaml_of_any_yaml_loads_or_is_refused_in_one_clear_line() {
    let sandbox = Sandbox::with_brain();
    let path = sandbox.brain().join("brain.yaml");
    let (mut loaded, mut refused) = (0, Vec::new());
    for case in cases("yaml.jsonl") {
        let yaml = case["yaml"].as_str().unwrap();
        for text in [yaml.to_owned(), format!("version: 1\nname: mine\n{yaml}")] {
            std::fs::write(&path, &text).unwrap();
            match Brain::open(&sandbox.brain()).and_then(|brain| brain.manifest()) {
                Ok(manifest) => {
                    loaded += 1;
                    assert!(manifest.version == 1 && !manifest.name.is_empty(), "{text}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("brain.yaml"), "{error}");
                    refused.push(text);
                }
            }
        }
    }
    assert!(loaded > 50 && refused.len() > 400, "{loaded} load, {} are refused", refused.len());
    seeded().shuffle(&mut refused);
    for text in &refused[..20] {
        std::fs::write(&path, text).unwrap();
        for command in ["list", "doctor"] {
            let complaint = complaint(sandbox.command().arg(command), sandbox.path());
            assert_eq!(complaint, None, "{command} with brain.yaml {text:?}");
        }
    }
}

#[test]
fn every_markdown_is_indexed_and_exported_as_it_was_written() {
    let sandbox = Sandbox::with_brain();
    let examples = cases("commonmark.jsonl");
    assert!(examples.len() > 600);
    let folder = sandbox.brain().join("domains/markdown/concepts");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, example) in examples.iter().enumerate() {
        let front = format!("---\ntype: concept\ntitle: Example {number}\n---\n");
        let body = example["markdown"].as_str().unwrap();
        let text = front + body;
        assert_eq!(Document::parse(text.as_str()).unwrap().body(), body);
        std::fs::write(folder.join(format!("example-{number}.md")), text).unwrap();
    }
    let report = sandbox.json(["index", "--json"]);
    println!("{report}");
    let exported = sandbox.json(["export", "--format", "json"]);
    let units = exported["units"].as_array().unwrap();
    assert_eq!(units.len(), examples.len());
    for unit in units {
        let number: usize = unit["title"].as_str().unwrap()["Example ".len()..].parse().unwrap();
        let written = examples[number]["markdown"].as_str().unwrap();
        // Hidden comments and secrets are not shared.
        let shared = transcript::redact::redact(&knowledge::text::strip_hidden(written.trim())).into_owned();
        assert_eq!(unit["body"].as_str(), Some(shared.as_str()), "{number}");
    }
    sandbox.ok(["export", "--format", "html", "-o", "page.html"]);
    let page = std::fs::read_to_string(sandbox.path().join("page.html")).unwrap();
    assert!(page.contains("Example 654"));
}

/// A text as YAML in quotes: as in JSON, with more characters escaped.
fn yaml_string(text: &str) -> String {
    let is_allowed = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let escape = |c: char| match is_allowed(&c) {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    };
    json!(text).to_string().chars().map(escape).collect()
}

#[test]
fn naughty_titles_are_listed_and_exported_without_control_characters() {
    let sandbox = Sandbox::with_brain();
    let folder = sandbox.brain().join("domains/strings/concepts");
    std::fs::create_dir_all(&folder).unwrap();
    let strings = naughty_strings();
    assert!(strings.len() > 500);
    for (number, text) in strings.iter().enumerate() {
        let title = yaml_string(text);
        let unit =
            format!("---\ntype: concept\ntitle: {title}\n---\n\n{text}\n\nString {number} of the list.\n");
        std::fs::write(folder.join(format!("string-{number}.md")), unit).unwrap();
    }
    for arguments in [
        &["index"][..],
        &["list"],
        &["list", "--json"],
        &["status"],
        &["doctor"],
        &["show", "string-100"],
        &["ask", "which strings of the list are scripts?"],
        &["ask", "--json", "what is undefined?"],
        &["export", "--format", "html", "-o", "page.html"],
        &["export", "--format", "okf", "-o", "shared"],
        &["export", "--format", "json", "-o", "units.json"],
    ] {
        let complaint = complaint(sandbox.command().args(arguments), sandbox.path());
        assert_eq!(complaint, None, "{arguments:?}");
    }
    let listed = sandbox.json(["list", "--json"]);
    assert_eq!(listed["units"].as_array().unwrap_or_else(|| panic!("{listed}")).len(), strings.len());
    let mut client = Client::start(&sandbox);
    client.initialize();
    let asked = seeded().choose_multiple(strings.iter(), 40);
    for (number, text) in asked.into_iter().enumerate() {
        let answer = client.call(number as u64, json!({"task_description": text}), None);
        // What has no visible character is refused.
        let shown = match answer.get("error") {
            Some(error) => &error["message"],
            None => &answer["result"]["content"][0]["text"],
        };
        assert_eq!(suites::unprintable(shown.as_str().unwrap().as_bytes()), None, "{text:?}");
    }
    assert!(client.close().success());
}

#[test]
fn every_command_survives_naughty_arguments() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.variables.extend(suites::offline_environment(sandbox.path()));
    let folder = sandbox.path().join("elsewhere");
    std::fs::create_dir(&folder).unwrap();
    let lines = suites::command_lines(&cli::command());
    assert!(lines.len() > 60, "{}", lines.len());
    let (strings, control_characters) = (naughty_strings(), suites::control_characters());
    let mut random = seeded();
    for line in lines {
        // One by chance, of which `stress suites` gives all, and one with all that can harm a terminal.
        let fitting = || strings.iter().filter(|text| line.takes(text));
        // And one that names a server or leads out of the folder, wherever that is only read.
        let leading =
            fitting().filter(|text| text.contains("://") || text.contains("../") || text.starts_with('/'));
        let chosen =
            [random.choice(fitting().collect::<Vec<_>>()), random.choice(leading.collect::<Vec<_>>())];
        for text in chosen.into_iter().flatten().chain([&control_characters]) {
            let arguments = line.with(text);
            let complaint =
                complaint(sandbox.command().args(&arguments).current_dir(&folder), sandbox.path());
            assert_eq!(complaint, None, "{arguments:?}");
        }
    }
}
