//! Vectors from a provider, and the change from one model to another, through the real binary.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::support::embeddings_api::{EmbeddingsApi, KEY, Reply};
use crate::support::{Sandbox, wait_until};

const NOTES: &[(&str, &str)] = &[
    ("outbox", "Events leave through the outbox table and a relay publishes them."),
    ("pools", "Bounded worker pools keep memory flat when the queue grows."),
    ("dates", "Parse every timestamp as UTC and show it in the zone of the reader."),
];

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    for (name, text) in NOTES {
        std::fs::write(sandbox.brain().join(format!("{name}.md")), format!("# About {name}\n\n{text}\n"))
            .unwrap();
    }
    sandbox
}

#[test]
fn a_file_that_no_model_reads_anything_of_stops_nothing() {
    let sandbox = sandbox();
    for (name, text) in [("zero", "\u{200b}"), ("lost", &"\u{fffd}".repeat(40))] {
        let unit = format!("---\nid: {name}\ntype: note\ntitle: \"{text}\"\n---\n\n{text}\n");
        std::fs::write(sandbox.brain().join(format!("domains/{name}.md")), unit).unwrap();
    }
    sandbox.ok(["index"]);
    let found = sandbox.ok(["ask", "--no-llm", "how do events leave?"]);
    assert!(found.contains("through the outbox table"), "{found}");
}

/// Builds a command for a user who has configured a provider.
fn provider_command(sandbox: &Sandbox, api: &EmbeddingsApi, provider: &str, arguments: &[&str]) -> Command {
    let mut command = sandbox.command();
    command
        .args(arguments)
        .env("NUGGET_EMBED_PROVIDER", provider)
        .env("NUGGET_EMBED_URL", &api.url)
        .env("NUGGET_EMBED_DEADLINE_SECONDS", "20")
        .env(format!("{}_API_KEY", provider.to_uppercase()), KEY);
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const QUESTION: &[&str] = &["ask", "--no-llm", "--json", "how do events leave the outbox table"];

#[test]
fn a_busy_slow_unordered_provider_still_embeds_the_brain() {
    for provider in ["openai", "voyage"] {
        let sandbox = sandbox();
        let secret = format!("ghp_{}", "x9Kq2Wv7Lm4Tz8Rb1Nc6Yd3Hf5Jg0PsAeUiO");
        let leak = format!("# Deployment\n\nThe job uses {secret} to push.\n");
        std::fs::write(sandbox.brain().join("leak.md"), leak).unwrap();
        let api = EmbeddingsApi::start(|number, _| match number {
            0 => Reply::Error(429, "slow down", Some(1)),
            1 => Reply::Error(503, "overloaded", None),
            _ => Reply::Shuffled,
        });
        let index = json(&mut provider_command(&sandbox, &api, provider, &["index", "--json"]));
        assert_eq!(index["embedded"], index["chunks"], "{index}");
        // One request for all texts, tried three times.
        assert_eq!(api.requests().len(), 3);
        let answer = json(&mut provider_command(&sandbox, &api, provider, QUESTION));
        assert_eq!(
            (&answer["words_only"], &answer["units"][0]["path"]),
            (&false.into(), &"outbox.md".into())
        );
        let asked = api.requests();
        let sent = serde_json::to_string(&asked).unwrap();
        assert!(sent.contains("The job uses") && !sent.contains(&secret), "{sent}");
        if provider == "voyage" {
            assert_eq!(
                (&asked[2]["input_type"], &asked[3]["input_type"]),
                (&"document".into(), &"query".into())
            );
        }
        // Nothing has changed, so nothing is sent.
        assert_eq!(
            json(&mut provider_command(&sandbox, &api, provider, &["index", "--rebuild", "--json"]))["embedded"],
            0
        );
        assert_eq!(api.requests().len(), 4);
        // Another vector length needs another index.
        let mut shorter = provider_command(&sandbox, &api, provider, &["index", "--json"]);
        assert_eq!(json(shorter.env("NUGGET_EMBED_DIMENSIONS", "256"))["embedded"], index["chunks"]);
        assert_no_key(sandbox.path());
    }
}

/// Asserts that no file below the folder holds the key.
fn assert_no_key(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => assert_no_key(&path),
            path => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                assert!(memchr::memmem::find(&bytes, KEY.as_bytes()).is_none(), "{}", path.display());
            }
        }
    }
}

#[test]
fn a_wrong_vector_is_refused_and_the_key_is_never_shown() {
    let elsewhere = EmbeddingsApi::start(|_, _| Reply::Vectors);
    let redirect_target = format!("{}/embeddings", elsewhere.url);
    for (reply, why) in [
        (Reply::Missing, "vectors for"),
        (Reply::Dimensions(7), "7 numbers, expected 1536"),
        (Reply::Zero, "zero"),
        (Reply::Garbage, "is a web page"),
        (Reply::Redirect(redirect_target), "307"),
        (Reply::Error(404, "no such model", None), "no such model"),
        (Reply::Error(403, "you may not, canary-embed-key-4be07c55", None), "OpenAI refused the key"),
        (Reply::Error(429, "You exceeded your current quota", None), "insufficient_quota"),
        (Reply::Error(429, "come back tomorrow", Some(86_400)), "tomorrow"),
    ] {
        let sandbox = sandbox();
        let shown = format!("{reply:?}");
        let api = EmbeddingsApi::start(move |_, _| reply.clone());
        let output = provider_command(&sandbox, &api, "openai", &["index", "-vv"]).output().unwrap();
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}: {stderr}");
        assert!(stderr.contains(why) && !stderr.contains(KEY), "{shown}: {stderr}");
        assert_eq!(api.requests().len(), 1, "{shown} was retried");
        assert_eq!(sandbox.json(["status", "--json"])["index"]["building"], Value::Null);
    }
    assert!(elsewhere.requests().is_empty(), "a redirect was followed");
}

#[test]
fn an_evaluation_fails_with_the_provider_and_not_without_its_vectors() {
    let sandbox = Sandbox::new();
    let set = sandbox.path().join("set");
    std::fs::create_dir(&set).unwrap();
    for (name, text) in [
        ("corpus.jsonl", r#"{"id": "a", "text": "Events leave through the outbox."}"#),
        ("queries.jsonl", r#"{"id": "q", "text": "how do events leave?"}"#),
        ("qrels.tsv", "q\ta\t1"),
    ] {
        std::fs::write(set.join(name), format!("{text}\n")).unwrap();
    }
    let api = EmbeddingsApi::start(|number, _| match number {
        0 => Reply::Vectors,
        _ => Reply::Error(401, "no such key", None),
    });
    let output =
        provider_command(&sandbox, &api, "openai", &["eval", set.to_str().unwrap()]).output().unwrap();
    let stderr = stderr(&output);
    assert!(!output.status.success() && stderr.contains("OpenAI refused the key"), "{stderr}");
    assert!(api.requests().len() > 1, "{stderr}");
}

#[test]
fn a_missing_key_is_reported_and_the_present_index_answers() {
    let sandbox = sandbox();
    let alone = |arguments: &[&str]| {
        let mut command = sandbox.command();
        command.args(arguments).env("NUGGET_EMBED_PROVIDER", "voyage").output().unwrap()
    };
    let output = alone(&["index"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("VOYAGE_API_KEY") && stderr(&output).contains("hint: "),
        "{}",
        stderr(&output)
    );
    sandbox.ok(["index"]);
    let output = alone(QUESTION);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["words_only"], &answer["units"][0]["path"]), (&false.into(), &"outbox.md".into()));
    assert!(stderr(&output).contains("VOYAGE_API_KEY"), "{}", stderr(&output));
    let config = String::from_utf8(alone(&["config"]).stdout).unwrap();
    assert!(config.contains("texts are embedded by nothing: there is no key for Voyage"), "{config}");
    // A model that nugget does not know needs the length of its vectors.
    let mut unknown = sandbox.command();
    unknown.args(["index"]).envs([("NUGGET_EMBED_PROVIDER", "openai"), ("NUGGET_EMBED_MODEL", "mine")]);
    let output = unknown.output().unwrap();
    assert!(stderr(&output).contains("embed.dimensions"), "{}", stderr(&output));
}

#[test]
fn a_text_that_is_too_long_for_a_servers_model_stops_nothing() {
    let is_long = |text: &Value| text.as_str().unwrap().len() > 400;
    let api =
        EmbeddingsApi::start(move |_, body| match body["input"].as_array().unwrap().iter().any(is_long) {
            true => Reply::Error(413, "`inputs` must have less than 100 tokens", None),
            false => Reply::Vectors,
        });
    let sandbox = sandbox();
    let words = |count: usize| (0..count).map(|at| format!("word{at} ")).collect::<String>();
    std::fs::write(sandbox.brain().join("long.md"), format!("# Long\n\n{}\n", words(120))).unwrap();
    let index = json(&mut provider_command(&sandbox, &api, "openai", &["index", "--json"]));
    assert_eq!(index["embedded"], index["chunks"], "{index}");
    let question = format!("how do events leave the outbox table {}", words(100));
    let answer =
        json(&mut provider_command(&sandbox, &api, "openai", &["ask", "--no-llm", "--json", &question]));
    assert_eq!(answer["words_only"], false, "{answer}");

    // What is refused whatever it is given is not tried for ever.
    let api = EmbeddingsApi::start(|_, _| Reply::Error(400, "no such input", None));
    let output = provider_command(&sandbox, &api, "openai", &["index"]).output().unwrap();
    assert!(!output.status.success() && stderr(&output).contains("no such input"), "{}", stderr(&output));
    assert!(api.requests().len() <= 8, "{}", api.requests().len());
}

#[test]
fn an_unreachable_provider_leaves_lexical_search() {
    let sandbox = sandbox();
    let is_down = Arc::new(AtomicBool::new(false));
    let api = EmbeddingsApi::start({
        let is_down = Arc::clone(&is_down);
        move |_, _| if is_down.load(Ordering::SeqCst) { Reply::Silence } else { Reply::Vectors }
    });
    json(&mut provider_command(&sandbox, &api, "openai", &["index", "--json"]));
    is_down.store(true, Ordering::SeqCst);
    let mut ask = provider_command(&sandbox, &api, "openai", QUESTION);
    let answer = json(ask.env("NUGGET_EMBED_DEADLINE_SECONDS", "1"));
    assert_eq!((&answer["words_only"], &answer["units"][0]["path"]), (&true.into(), &"outbox.md".into()));
}

#[test]
fn a_new_model_is_indexed_while_the_present_one_answers() {
    let sandbox = sandbox();
    sandbox.ok(["index"]);
    let may_pass = Arc::new(AtomicBool::new(false));
    let api = EmbeddingsApi::start_gated(&may_pass);
    // The built-in model is always available, so the index that it built still answers by meaning.
    let output = provider_command(&sandbox, &api, "openai", QUESTION).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["words_only"], &answer["generation"]), (&false.into(), &1.into()), "{answer}");
    assert!(stderr(&output).contains("embedded again"), "{}", stderr(&output));
    let building = || sandbox.json(["status", "--json"])["index"]["building"].clone();
    wait_until("the index is being rebuilt", || building().is_object());
    let word = building();
    assert!(word["model"].as_str().unwrap().starts_with("openai/text-embedding-3-small"), "{word}");
    assert_eq!(word["present"], "all-MiniLM-L6-v2/w8", "{word}");
    assert!(sandbox.ok(["status"]).contains("until then all-MiniLM-L6-v2/w8 answers"));
    may_pass.store(true, Ordering::SeqCst);
    wait_until("the index is rebuilt", || building().is_null());
    let answer = json(&mut provider_command(&sandbox, &api, "openai", QUESTION));
    assert_eq!((&answer["words_only"], &answer["generation"]), (&false.into(), &2.into()), "{answer}");
    // Changed back without the provider's key: vectors of two models are never compared.
    let sent = api.requests().len();
    let builder =
        std::fs::File::options().write(true).open(sandbox.brain().join(".nugget/index.lock")).unwrap();
    builder.lock().unwrap();
    let answer = sandbox.json(QUESTION);
    assert_eq!((&answer["words_only"], &answer["generation"]), (&true.into(), &2.into()), "{answer}");
    drop(builder);
    wait_until("the built-in model is back", || sandbox.json(QUESTION)["generation"] == 3);
    assert_eq!(sandbox.json(QUESTION)["words_only"], false);
    assert_eq!(api.requests().len(), sent);
}

#[test]
fn without_a_model_everything_is_found_by_words() {
    let mut sandbox = sandbox();
    let by_meaning = sandbox.json(["index", "--json"]);
    sandbox.variables.push(("NUGGET_EMBED_PROVIDER".to_owned(), "off".to_owned()));
    let config = sandbox.ok(["config"]);
    assert!(config.contains("no model, words alone (words-1); nothing leaves this machine"), "{config}");
    let index = sandbox.json(["index", "--json"]);
    assert_eq!((&index["embedded"], &index["chunks"]), (&by_meaning["chunks"], &by_meaning["chunks"]));
    let ask = |question: &str| sandbox.json(["ask", "--no-llm", "--json", question]);
    let answer = ask("how do events leave the outbox table");
    // Said only where a model is missing that is wanted.
    assert_eq!((&answer["units"][0]["path"], &answer["words_only"]), (&"outbox.md".into(), &false.into()));
    // A paraphrase without a common word is found by meaning, and not without.
    let paraphrase = "showing clock times in somebody's local region";
    assert_eq!(ask(paraphrase)["units"], serde_json::json!([]));
    sandbox.ok(["note", "add", "Staging database", "--content", "It listens on port 6543."]);
    let found = sandbox.json(["note", "search", "staging database port", "--json"]);
    assert_eq!(found["notes"][0]["title"], "Staging database", "{found}");
    sandbox.ok(["remember", "deploy host", "alpha.example.com"]);
    assert!(sandbox.ok(["recall", "deploy host"]).contains("alpha.example.com"));
    let doctor = sandbox.run(["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("words alone"), "{doctor}");
    sandbox.variables.clear();
    assert_eq!(sandbox.json(["index", "--json"])["chunks"], index["chunks"].as_u64().unwrap() + 2);
    assert_eq!(ask_path(&sandbox, paraphrase), "dates.md");
}

/// The path of the first unit that is found.
fn ask_path(sandbox: &Sandbox, question: &str) -> String {
    let answer = sandbox.json(["ask", "--no-llm", "--json", question]);
    answer["units"][0]["path"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_model_of_ones_own_that_is_missing_is_named_and_the_present_index_answers() {
    let sandbox = sandbox();
    sandbox.ok(["index"]);
    let mut command = sandbox.command();
    let output = command.args(QUESTION).env("NUGGET_EMBED_MODEL", "/nowhere/model.onnx").output().unwrap();
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!((&answer["words_only"], &answer["units"][0]["path"]), (&false.into(), &"outbox.md".into()));
    assert!(stderr(&output).contains("failed to read the model /nowhere/model.onnx"), "{}", stderr(&output));
}
