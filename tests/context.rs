//! What is known about files, and which session wrote a line, through the real binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::archiving::{end_session, wait_until_idle};
use crate::support::Sandbox;
use crate::support::messages_api::{KEY, MessagesApi, Reply};

const SESSION: &str = "5a3b7c1e-0000-4000-8000-000000000001";
const RATES: &str = "pub fn rate(currency: &str) -> f64 {\n    // The bank publishes at four in the afternoon.\n    cached_rate(currency)\n}\n";

/// A project with a file that a session wrote and committed.
struct Shop {
    sandbox: Sandbox,
    folder: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let sandbox = Sandbox::with_brain();
        let folder = fs::canonicalize(sandbox.path()).unwrap().join("shop");
        fs::create_dir_all(folder.join("src")).unwrap();
        let shop = Self { sandbox, folder };
        shop.git(&["init", "-q", "-b", "main"]);
        fs::write(shop.folder.join("src/lib.rs"), "pub mod rates;\n").unwrap();
        shop.commit("Begin", "2026-11-01T08:00:00Z");
        shop.write_session();
        fs::write(shop.folder.join("src/rates.rs"), RATES).unwrap();
        shop.commit("Cache the rates", "2026-11-01T10:00:00Z");
        shop.sandbox.ok(["sessions", "sync"]);
        shop
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(&self.folder)
            .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
            .args(arguments);
        git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        assert!(git.status().unwrap().success(), "{arguments:?}");
    }

    fn commit(&self, message: &str, time: &str) {
        self.git(&["add", "."]);
        let mut git = Command::new("git");
        git.current_dir(&self.folder)
            .args(["-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", message])
            .envs([("GIT_AUTHOR_DATE", time), ("GIT_COMMITTER_DATE", time)])
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        assert!(git.status().unwrap().success());
    }

    /// A session that was asked for the cache, told to go on, and wrote the file.
    fn write_session(&self) {
        let file = self.file("src/rates.rs");
        let line = |number: u32, minute: u32, kind: &str, content: Value| {
            json!({
                "type": kind, "uuid": format!("5a3b7c1e-0000-4000-8000-{number:012x}"), "sessionId": SESSION,
                "timestamp": format!("2026-11-01T09:{minute:02}:00Z"), "cwd": self.folder, "gitBranch": "main",
                "message": { "role": kind, "content": content },
            })
            .to_string()
        };
        let lines = [
            line(1, 0, "user", json!("Please cache the exchange rates in src/rates.rs.")),
            line(2, 1, "assistant", json!([{ "type": "text", "text": "Shall I?" }])),
            line(3, 2, "user", json!("yes")),
            line(
                4,
                3,
                "assistant",
                json!([{ "type": "tool_use", "id": "t1", "name": "Write",
                "input": { "file_path": file, "content": RATES } }]),
            ),
            line(
                5,
                4,
                "user",
                json!([{ "type": "tool_result", "tool_use_id": "t1",
                "content": "File created successfully" }]),
            ),
        ];
        let path = self.sandbox.path().join(format!(".claude/projects/-shop/{SESSION}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.join("\n") + "\n").unwrap();
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// A merged unit.
    fn unit(&self, id: &str, front: &str) {
        let path = self.sandbox.brain().join(format!("domains/coding/constraints/{id}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text =
            format!("---\nid: {id}\ntype: constraint\ntitle: Title of {id}\n{front}---\n\nBody of {id}.\n");
        fs::write(path, text).unwrap();
        self.sandbox.git(&["add", "."]);
        self.sandbox.git(&["-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", id]);
    }
}

fn ids(answer: &Value) -> Vec<String> {
    let nuggets = answer["nuggets"].as_array().unwrap();
    nuggets.iter().map(|nugget| nugget["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn records_are_told_of_a_file_only_where_no_unit_is_about_it() {
    let shop = Shop::new();
    let file = shop.file("src/rates.rs");
    let records = shop.sandbox.json(["context", &file, "--json"]);
    let summaries: Vec<_> = records["nuggets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|nugget| nugget["summary"].as_str().unwrap())
        .collect();
    assert!(summaries.contains(&"cache the exchange rates in src/rates.rs"), "{summaries:?}");
    assert!(summaries.contains(&"created src/rates.rs"), "{summaries:?}");
    assert!(records["nuggets"].as_array().unwrap().iter().all(|nugget| nugget["reviewed"] == json!(false)));
    let shown = shop.sandbox.ok(["context", &file]);
    assert!(shown.contains("not reviewed, session 5a3b7c1e"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    shop.unit("house-rule", "scope: [.]\n");
    let beside = ids(&shop.sandbox.json(["context", &file, "--json"]));
    assert!(beside.contains(&"house-rule".to_owned()) && beside.len() > 2, "{beside:?}");
    shop.unit("rates-are-cached", "scope: [src/rates.rs]\n");
    shop.unit("elsewhere", "scope:\n- path: src/rates.rs\n  repository: example.com/other/shop\n");
    let answer = shop.sandbox.json(["context", &file, "--json"]);
    assert_eq!(ids(&answer), ["rates-are-cached", "house-rule"]);
    assert_eq!(
        (&answer["budget"]["truncated"], &answer["query"]["path"]),
        (&json!(false), &json!("src/rates.rs"))
    );
    let all = ids(&shop.sandbox.json(["context", &file, "--all", "--json"]));
    assert!(all.len() > 3 && all[0] == "rates-are-cached", "{all:?}");
    let tight = shop.sandbox.json(["context", &file, "--all", "--json", "--budget", "20"]);
    assert_eq!(tight["budget"]["truncated"], json!(true));
    assert!(tight["moreContextHint"].as_str().unwrap().contains("intent"), "{tight}");
    let deep = shop.sandbox.json(["context", &file, "--all", "--json", "--depth", "deep"]);
    assert!(deep.to_string().contains("Please cache the exchange rates in src/rates.rs."), "{deep}");
    let two = shop.sandbox.json(["context", &file, &shop.file("src"), "--json"]);
    assert_eq!(two["answers"].as_array().unwrap().len(), 2);
    // Written into the brain by hand.
    let password = format!("hunter{}!x", 22);
    shop.unit("logs-in", &format!("scope: [src/rates.rs]\nalternatives: ['password: {password}']\n"));
    let told = shop.sandbox.ok(["context", &file, "--depth", "deep"]);
    assert!(told.contains("[redacted: password]") && !told.contains(&password), "{told}");
}

#[test]
fn a_model_that_reads_a_session_says_why_its_code_is_as_it_is() {
    let mut shop = Shop::new();
    let file = shop.file("src/rates.rs");
    let key = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7";
    let written = file.clone();
    let api = MessagesApi::start(move |request| {
        assert!(request.body["tools"][0]["input_schema"]["properties"]["records"].is_object());
        let record = |scope: &str, summary: &str| json!({ "type": "decision", "scope": scope, "summary": summary, "confidence": 0.8, "reference": [1] });
        let mut told = record(&written, "Rates are cached until four, when the bank publishes.");
        told["symbol"] = json!("rate");
        told["alternatives"] = json!(["a request for each price"]);
        told["detail"] = json!(format!("The bank's limit is ten requests a day, API_KEY={key}."));
        let records = json!([
            told,
            record("src/lib.rs", "The module stays public for the importer."),
            record("src/never_there.rs", "This file is not in the project."),
            record("/etc/hosts", "This file is not in the project either."),
            record(".", "Prices are numbers with two digits everywhere."),
        ]);
        Reply::Call(json!({ "units": [], "records": records }))
    });
    let variables = [("ANTHROPIC_API_KEY", KEY), ("NUGGET_MODEL_URL", &api.url)];
    shop.sandbox.variables.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let transcript = shop.sandbox.path().join(format!(".claude/projects/-shop/{SESSION}.jsonl"));
    end_session(&shop.sandbox, &transcript, &shop.folder);
    wait_until_idle(&shop.sandbox);
    shop.sandbox.ok(["sessions", "sync"]);

    let by_model = |path: &str, all: &[&str]| -> Vec<Value> {
        let arguments = [&["context", path, "--json"], all].concat();
        let answer = shop.sandbox.json(&arguments);
        let nuggets = answer["nuggets"].as_array().unwrap().clone();
        nuggets.into_iter().filter(|nugget| nugget["derivation"] == json!("model")).collect()
    };
    let found = by_model(&file, &["--type", "decision", "--depth", "deep"]);
    let told = &found[0];
    assert_eq!(told["summary"], "Rates are cached until four, when the bank publishes.", "{found:?}");
    assert_eq!((&told["symbol"], &told["reviewed"]), (&json!("rate"), &json!(false)));
    assert_eq!(told["alternatives"], json!(["a request for each price"]));
    assert!(told["sourcePrompt"].as_str().unwrap().starts_with("Please cache"), "{told}");
    assert!(told["detail"].as_str().unwrap().contains("[redacted") && !told.to_string().contains(key));
    let all = by_model(&shop.file("src"), &["--all", "--budget", "9000"]);
    let mut places: Vec<&str> = all.iter().map(|nugget| nugget["scope"].as_str().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, ["src/lib.rs", "src/rates.rs", "workspace"], "only what is in the project");
    let shown = shop.sandbox.ok(["context", &file, "--type", "decision"]);
    assert!(shown.contains("session 5a3b7c1e by a model's reading"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    shop.sandbox.ok(["sessions", "forget", SESSION]);
    let bytes = fs::read(shop.sandbox.path().join("state/nugget/archive.db")).unwrap();
    assert!(memchr::memmem::find(&bytes, b"when the bank publishes").is_none());
}

#[test]
fn a_line_is_traced_to_the_session_and_the_prompt_that_wrote_it() {
    let shop = Shop::new();
    let line = |number: usize, file: &str| format!("{}:{number}", shop.file(file));
    let found = shop.sandbox.json(["why", &line(3, "src/rates.rs"), "--json"]);
    let passage = &found["passages"][0];
    assert_eq!(passage["session"]["id"], json!(SESSION), "{found}");
    let prompt = passage["session"]["prompt"].as_str().unwrap();
    assert_eq!(prompt, "Please cache the exchange rates in src/rates.rs. […] yes", "what the yes was to");
    assert_eq!(passage["commit"]["subject"], json!("Cache the rates"));

    shop.git(&["mv", "src/rates.rs", "src/money.rs"]);
    shop.commit("Rename", "2026-11-02T10:00:00Z");
    let shown = shop.sandbox.ok(["why", &line(3, "src/money.rs")]);
    assert!(shown.contains("it was in src/rates.rs then") && shown.contains("claude --resume"), "{shown}");
    let all = shop.sandbox.json(["why", &format!("{}:1-4", shop.file("src/money.rs")), "--json"]);
    assert_eq!(all["passages"].as_array().unwrap().len(), 1, "one edit wrote all of it: {all}");
    let own = shop.sandbox.json(["why", &line(1, "src/lib.rs"), "--json"]);
    assert_eq!(own["passages"][0]["session"], json!(null), "a person wrote it");
    assert!(shop.sandbox.ok(["why", &line(1, "src/lib.rs")]).contains("no archived session is known"));
}

#[test]
fn an_edit_long_before_the_commit_is_not_believed_for_a_few_lines() {
    let shop = Shop::new();
    let wrote = |file: &str| {
        let found = shop.sandbox.json(["why", &format!("{}:3", shop.file(file)), "--json"]);
        found["passages"][0]["session"]["id"].clone()
    };
    assert_eq!(wrote("src/rates.rs"), json!(SESSION));
    shop.git(&["commit", "-q", "--amend", "--no-edit", "--date", "2026-11-05T10:00:00Z"]);
    assert_eq!(wrote("src/rates.rs"), json!(null), "three days later and three lines around it");
}

#[test]
fn a_place_that_is_none_is_refused_in_a_line() {
    let shop = Shop::new();
    let fails = |place: &str, expected: &str| {
        let output = shop.sandbox.run(["why", place]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(expected), "{place}: {stderr}");
    };
    fails(&format!("{}:9", shop.file("src/rates.rs")), "src/rates.rs has 4 lines");
    fails(&format!("{}:1", shop.file("gone.rs")), "there is no file");
    fails(&format!("{}:3-2", shop.file("src/rates.rs")), "is no range of lines");
    fails(&format!("{}:0", shop.file("src/rates.rs")), "is no range of lines");
    fails(&format!("{}:1-9999", shop.file("src/rates.rs")), "9999 lines are too many");
    let new = shop.file("new.rs");
    fs::write(&new, "not committed yet\n").unwrap();
    assert!(shop.sandbox.ok(["why", &format!("{new}:1")]).contains("not committed"));
    let nothing = shop.sandbox.ok(["context", &shop.file("docs/gone.md"), "--type", "caveat"]);
    assert!(nothing.starts_with("nothing is known about"), "{nothing}");
    for (given, told) in [
        ("foo", "error: \"foo\" is no type of a unit\nhint: give one of pattern, concept, decision, bug,"),
        ("caveat,constrain", "error: \"constrain\" is no type of a unit\nhint: did you mean `constraint`?\n"),
    ] {
        let output = shop.sandbox.run(["context", ".", "--type", given]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.starts_with(told), "{output:?}");
    }
}

#[test]
fn a_unit_whose_file_has_changed_is_named_in_its_project() {
    let shop = Shop::new();
    let digest = Command::new("sha256sum").arg(shop.file("src/rates.rs")).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let digest = digest.split(' ').next().unwrap().to_owned();
    shop.unit("fresh", &format!("scope:\n- path: src/rates.rs\n  sha256: {digest}\n"));
    shop.unit("old", "stale_after: 2026-01-01\n");
    let listed = |folder: &Path| {
        let output =
            shop.sandbox.command().args(["list", "--stale", "--json"]).current_dir(folder).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let units = found["units"].as_array().unwrap().clone();
        units
            .iter()
            .map(|unit| (unit["id"].as_str().unwrap().to_owned(), unit["stale"].clone()))
            .collect::<Vec<_>>()
    };
    let expired = ("old".to_owned(), json!({ "reason": "expired", "file": null }));
    assert_eq!(listed(&shop.folder), std::slice::from_ref(&expired));
    fs::write(shop.file("src/rates.rs"), "other\n").unwrap();
    let changed = ("fresh".to_owned(), json!({ "reason": "file_changed", "file": "src/rates.rs" }));
    assert_eq!(listed(&shop.folder), [changed, expired.clone()]);
    assert_eq!(listed(shop.sandbox.path()), [expired], "of another folder nothing is known");
    let output =
        shop.sandbox.command().args(["doctor", "--offline"]).current_dir(&shop.folder).output().unwrap();
    let doctor = String::from_utf8(output.stdout).unwrap();
    assert!(doctor.contains("2 units may no longer hold in this project"), "{doctor}");
}

#[test]
fn a_unit_about_a_file_is_not_named_twice() {
    let shop = Shop::new();
    shop.unit("rates", "scope: [src/rates.rs]\n");
    shop.unit("money", "scope: [src/money.rs]\n");
    shop.sandbox.ok(["index"]);
    let ask = |file: &[&str]| -> Value {
        let mut command = shop.sandbox.command();
        command.args(["ask", "--no-llm", "--json", "--limit", "1", "Title of money and of rates"]).args(file);
        serde_json::from_slice(&command.current_dir(&shop.folder).output().unwrap().stdout).unwrap()
    };
    let before = ask(&[]);
    assert_eq!(before["more"].as_array().unwrap().len(), 1, "{before}");
    let other = before["more"][0][0].as_str().unwrap();
    let with_file = ask(&["--file", &format!("src/{other}.rs")]);
    assert_eq!(with_file["about_files"][0]["id"], other, "{with_file}");
    assert_eq!(with_file["more"], json!([]), "{with_file}");
}

#[test]
fn units_about_an_answers_files_say_what_may_no_longer_hold() {
    let shop = Shop::new();
    shop.unit("rates-are-cached", "scope: [src/rates.rs]\n");
    shop.unit("rounding", "tags: [shop]\nscope: [src/money.rs]\nstale_after: 2026-01-01\n");
    shop.sandbox.ok(["index"]);
    let ask = |arguments: &[&str]| {
        let output =
            shop.sandbox.command().arg("ask").args(arguments).current_dir(&shop.folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let about = ask(&["--no-llm", "--file", "src/rates.rs", "zebra crossings"]);
    assert!(about.contains("rates-are-cached · constraint · about src/rates.rs, by its scope"), "{about}");
    assert!(about.contains("> Body of rates-are-cached."), "{about}");
    assert!(!about.contains("rounding"), "{about}");
    let data = ask(&["--no-llm", "--json", "--file", "src/rates.rs", "zebra crossings"]);
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["about_files"][0]["id"], "rates-are-cached", "{data}");
    let absolute = ask(&["--no-llm", "--file", &shop.file("src/rates.rs"), "zebra crossings"]);
    assert!(absolute.contains("about src/rates.rs"), "{absolute}");
    let mut add = shop.sandbox.command();
    add.args(["note", "add", "Rates come from Ann", "--content", "She sends them on Mondays."]);
    assert!(add.args(["--path", "src/rates.rs"]).current_dir(&shop.folder).status().unwrap().success());
    shop.sandbox.ok(["index"]);
    let both = ask(&["--no-llm", "--file", "src/rates.rs", "zebra crossings"]);
    assert!(both.contains("rates-come-from-ann · note · about src/rates.rs"), "{both}");
    let tight = ask(&["--no-llm", "--budget", "60", "--file", "src/rates.rs", "zebra crossings"]);
    assert!(!tight.contains("> Body"), "{tight}");
    let stale = ask(&["--no-llm", "title of rounding"]);
    assert!(stale.contains("may no longer hold: its date is past"), "{stale}");

    shop.git(&["remote", "add", "origin", "https://github.com/acme/shop.git"]);
    shop.unit("ledger", "scope:\n- path: src/ledger.rs\n  repository: github.com/Acme/shop.git\n");
    shop.unit("elsewhere", "scope:\n- path: src/ledger.rs\n  repository: github.com/acme/other\n");
    shop.sandbox.ok(["index"]);
    let start = json!({ "hook_event_name": "SessionStart", "session_id": "s1", "cwd": shop.folder, "source": "startup" });
    let mut command = shop.sandbox.command();
    command.arg("session-start").current_dir(&shop.folder);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), format!("{start}\n").as_bytes()).unwrap();
    let told = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(told.contains("rounding; may no longer hold: its date is past"), "{told}");
    assert!(told.contains("Title of ledger") && !told.contains("Title of elsewhere"), "{told}");
}

#[test]
fn a_checked_out_proposal_says_nothing_of_a_file() {
    let shop = Shop::new();
    shop.unit("rates-are-cached", "scope: [src/rates.rs]\n");
    shop.sandbox.git(&["switch", "-qc", "nugget/session-1"]);
    shop.unit("unreviewed", "scope: [src/rates.rs]\n");
    shop.unit(
        "rates-are-cached",
        "scope: [src/rates.rs]\nalternatives: [unreviewed words]\nstale_after: 2026-01-01\n",
    );
    let ask = || {
        shop.sandbox.ok(["index"]);
        let mut ask = shop.sandbox.command();
        ask.args(["ask", "--no-llm", "--file", "src/rates.rs", "title of rates are cached"]);
        String::from_utf8(ask.current_dir(&shop.folder).output().unwrap().stdout).unwrap()
    };
    let answer = ask();
    assert!(answer.contains("rates-are-cached"), "{answer}");
    assert!(!answer.contains("unreviewed") && !answer.contains("may no longer hold"), "{answer}");
    // The other way round: what was merged is said, though an older commit is checked out.
    shop.sandbox.git(&["switch", "-q", "main"]);
    shop.sandbox.git(&["merge", "-q", "nugget/session-1"]);
    shop.sandbox.git(&["checkout", "-q", "HEAD~2"]);
    let answer = ask();
    assert!(answer.contains("unreviewed · constraint"), "{answer}");
    assert!(answer.contains("may no longer hold: its date is past"), "{answer}");
}
