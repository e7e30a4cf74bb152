//! A model behind an OpenAI-compatible server, as Ollama, LM Studio, llama.cpp and vLLM are, on loopback.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::mcp::{Client, text};
use crate::support::openai_api::{KEY, OpenAiApi, Reply, Request, Traits};
use crate::support::{Sandbox, unused_address, wait_until, write_script};

/// A string in the session that reaches the model.
const SAID: &str = "the heron canary flies at noon, always bound the pool";
/// What the rules find without a model.
const RULE: &str =
    "Never call the payment API without an idempotency key, because customers were charged twice.";
const TITLE: &str = "Bound the pool of workers with a semaphore — été";

struct Machine {
    sandbox: Sandbox,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    /// A machine whose settings name a model of this server.
    fn with_model(url: impl Into<String>) -> Self {
        let variables = vec![
            ("NUGGET_MODEL_API", "openai".to_owned()),
            ("NUGGET_MODEL_URL", url.into()),
            ("NUGGET_MODEL_NAME", "qwen3:8b".to_owned()),
        ];
        Self { sandbox: Sandbox::with_brain(), variables }
    }

    fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    fn command(&self) -> Command {
        let mut command = self.sandbox.command();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.run(arguments).stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn transcript(&self, said: &str) -> PathBuf {
        let session = "0a1b2c3d-0000-4000-8000-000000000001";
        let line = json!({
            "type": "user", "uuid": format!("{session}-0"), "sessionId": session, "cwd": "/home/dev/shop",
            "timestamp": "2026-11-20T10:00:00Z", "origin": { "kind": "human" },
            "message": { "role": "user", "content": said },
        });
        let path = self.sandbox.path().join(format!("{session}.jsonl"));
        fs::write(&path, format!("{line}\n")).unwrap();
        path
    }

    fn capture(&self, said: &str) -> Value {
        let path = self.transcript(said);
        self.json(&["capture-session", "--transcript", path.to_str().unwrap(), "--wait", "--json"])
    }

    /// Queues a session without waiting for it.
    fn queue(&self, said: &str) {
        let path = self.transcript(said);
        let output = self.run(&["capture-session", "--transcript", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Why the newest capture waits, once it does.
    fn reason_of_its_wait(&self) -> String {
        let reason = || self.json(&["status", "--json"])["captures"][0]["reason"].clone();
        wait_until("the capture waits", || reason().is_string());
        reason().as_str().unwrap().to_owned()
    }

    fn branch_diff(&self, capture: &Value) -> String {
        let branch = capture["branch"].as_str().unwrap_or_else(|| panic!("{capture}"));
        self.sandbox.git(&["diff", "main", branch])
    }

    fn calls(&self) -> Vec<Value> {
        self.json(&["spend", "--json"])["calls"].as_array().unwrap().clone()
    }

    /// The check of this name in `nugget doctor`.
    fn check(&self, name: &str) -> Option<Value> {
        let report = self.json(&["doctor", "--offline", "--json"]);
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned()
    }
}

fn units() -> Value {
    json!({ "units": [{
        "type": "pattern", "title": TITLE, "description": "How pools are kept small.",
        "body": "## When it applies\n\nWhen a pool may grow.\n\n## What to do\n\nBound it with a semaphore.",
        "domain": "coding", "tags": ["pools"], "confidence": 0.9, "evidence": [1], "relations": [],
    }] })
}

fn tokens(calls: &[Value]) -> u64 {
    calls
        .iter()
        .map(|call| call["input_tokens"].as_u64().unwrap() + call["output_tokens"].as_u64().unwrap())
        .sum()
}

#[test]
fn a_local_model_reads_the_session_for_nothing_and_nothing_leaves() {
    let api = OpenAiApi::start(|_| Reply::Reasoned(units().to_string()));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy_url = format!("http://{}", proxy.local_addr().unwrap());
    let machine = Machine::with_model(format!("{}/v1/", api.url))
        .set("OPENAI_API_KEY", KEY)
        .set("ANTHROPIC_API_KEY", KEY)
        .set("HTTP_PROXY", &proxy_url)
        .set("http_proxy", &proxy_url)
        .set("ALL_PROXY", &proxy_url);
    let capture = machine.capture(SAID);
    assert_eq!((&capture["state"], &capture["units"]), (&json!("done"), &json!(1)), "{capture}");
    let branch = machine.branch_diff(&capture);
    assert!(branch.contains("source: openai-compatible") && branch.contains(TITLE), "{branch}");

    let requests = api.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0]["messages"][1]["content"].as_str().unwrap().contains(SAID));
    assert_eq!((&requests[0]["model"], &requests[0]["stream"]), (&json!("qwen3:8b"), &json!(true)));
    assert_eq!(requests[0]["response_format"]["json_schema"]["name"], "propose_units");
    assert_eq!(api.heads(), [("POST /v1/chat/completions".to_owned(), String::new())], "no key is sent");
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err(), "a proxy is not asked for an address on this machine");

    let calls = machine.calls();
    let of = |key: &str| calls[0][key].clone();
    assert_eq!((calls.len(), of("backend"), of("microdollars")), (1, json!("openai-compatible"), json!(0)));
    assert_eq!((of("estimated"), tokens(&calls)), (json!(false), api.counted_tokens()));
    let spending = machine.text(&["spend"]);
    assert!(spending.contains("$0.0000") && spending.contains("qwen3:8b"), "{spending}");
    let reader = format!("sessions are read by qwen3:8b at {}/v1/; nothing leaves this machine", api.url);
    assert!(spending.contains(&reader), "{spending}");
}

#[test]
fn a_budget_of_no_dollars_allows_a_local_model() {
    let api = OpenAiApi::start(|_| Reply::json(&units()));
    let machine = Machine::with_model(&api.url).set("NUGGET_SPEND_CENTS_PER_DAY", 0);
    assert!(machine.branch_diff(&machine.capture(SAID)).contains("source: openai-compatible"));
    // A gateway on this machine may cost something after all.
    let gateway = Machine::with_model(&api.url)
        .set("NUGGET_SPEND_CENTS_PER_DAY", 0)
        .set("NUGGET_MODEL_PRICE_INPUT", 15)
        .set("NUGGET_MODEL_PRICE_OUTPUT", 60);
    let capture = gateway.capture(RULE);
    assert!(gateway.branch_diff(&capture).contains("source: heuristic"), "{capture}");
    assert_eq!(api.requests().len(), 1);
    let priced = Machine::with_model(&api.url).set("NUGGET_MODEL_PRICE_INPUT", 100);
    priced.capture(SAID);
    let calls = priced.calls();
    let input = calls[0]["input_tokens"].as_u64().unwrap();
    assert_eq!(calls[0]["microdollars"], input, "a dollar for a million");
}

#[test]
fn answers_without_stream_or_schema_are_read_too() {
    let traits = Traits { ignores_stream: true, has_no_schema: true, ..Traits::default() };
    let api = OpenAiApi::start_with(traits, |_| {
        Reply::Reasoned(format!("Here is what I found:\n\n```json\n{}\n```\n", units()))
    });
    let machine = Machine::with_model(&api.url);
    assert!(machine.branch_diff(&machine.capture(SAID)).contains(TITLE));
    let requests = api.requests();
    assert_eq!(requests.len(), 1, "the request that was refused is not counted");
    assert!(requests[0].get("response_format").is_none());
    let system = requests[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains(r#""required":["units"]"#), "the schema is in the instructions: {system}");
}

#[test]
fn an_answer_that_does_not_parse_is_asked_for_again_with_the_error() {
    let api = OpenAiApi::start(|request: &Request| match request.number {
        0 => Reply::Text("{\"units\": [{\"type\": }]}".to_owned(), "stop"),
        _ => Reply::json(&units()),
    });
    let machine = Machine::with_model(&api.url);
    assert!(machine.branch_diff(&machine.capture(SAID)).contains(TITLE));
    let requests = api.requests();
    let user = |at: usize| requests[at]["messages"][1]["content"].as_str().unwrap().to_owned();
    let repair = user(1).strip_prefix(&user(0)).unwrap().to_owned();
    let problem = "it is not valid JSON: expected value at line 1 column 21";
    assert!(repair.contains(problem), "{repair}");
    assert_eq!(machine.calls().len(), 2, "both are recorded");
}

#[test]
fn an_answer_that_never_parses_is_a_failed_attempt_that_says_so() {
    for (text, problem) in [
        ("", "it is empty"),
        ("I would rather talk.", "it holds no JSON object"),
        ("{\"unit\": []}", "it has no `units`"),
    ] {
        let api = OpenAiApi::start(move |_| Reply::Text(text.to_owned(), "stop"));
        let machine = Machine::with_model(&api.url).set("NUGGET_EXTRACT_BACKEND", "api");
        let capture = machine.capture(RULE);
        assert_eq!((&capture["state"], api.requests().len()), (&json!("dead"), 2), "{capture}");
        let reason = capture["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("the model's answer cannot be used ({problem})")), "{reason}");
    }
}

#[test]
fn refusals_and_requests_that_do_not_fit_leave_the_session_to_the_rules() {
    let long = "{\"units\": [{\"title\": \"cut";
    type Case = (fn() -> Reply, &'static str);
    let cases: [Case; 5] = [
        (|| Reply::Text(String::new(), "content_filter"), "the model declined to read it"),
        (|| Reply::Text("{\"units\": [{\"title\": \"cut".to_owned(), "length"), "its answer was cut off"),
        (
            || Reply::Error(400, "the request exceeds the available context size, try increasing it", None),
            "exceeds the available context size",
        ),
        (
            || Reply::Counted(json!({ "units": [] }).to_string(), 5),
            "the server read only 5 tokens of the request; give it a longer context",
        ),
        (|| Reply::Error(400, "something else is wrong", None), "something else is wrong"),
    ];
    for (reply, expected) in cases {
        let api = OpenAiApi::start(move |_| reply());
        let machine = Machine::with_model(&api.url);
        let capture = machine.capture(RULE);
        let branch = machine.branch_diff(&capture);
        assert!(branch.contains("source: heuristic") && !branch.contains(long), "{branch}");
        let message = machine.sandbox.git(&["log", "-1", "--format=%B", capture["branch"].as_str().unwrap()]);
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(message.contains(expected), "{expected}: {message}");
        assert!(api.requests().len() <= 2, "not asked for ever");
    }
}

#[test]
fn a_busy_server_is_waited_for() {
    let api = OpenAiApi::start(|request: &Request| match request.number {
        0..3 => Reply::Error(503, "Loading model", Some(1)),
        3..6 => Reply::Error(429, "slow down", Some(1)),
        _ => Reply::json(&units()),
    });
    let machine = Machine::with_model(&api.url);
    let capture = machine.capture(SAID);
    assert_eq!((&capture["state"], &capture["reason"]), (&json!("done"), &Value::Null), "{capture}");
    assert_eq!((api.requests().len(), machine.calls().len()), (7, 1), "a refused call costs nothing");
}

#[test]
fn a_server_that_does_not_run_is_waited_for_with_a_hint_until_it_runs() {
    let free = unused_address();
    let machine = Machine::with_model(format!("http://{free}")).set("COLUMNS", 200);
    let path = machine.transcript(SAID);
    let mut waiting = machine.command();
    waiting.args(["capture-session", "--transcript", path.to_str().unwrap(), "--wait"]);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.starts_with("waiting at extraction: openai-compatible: no server answers"), "{told}");
    assert!(told.contains("Ctrl-C ends only the waiting"), "{told}");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let capture = || machine.json(&["status", "--json"])["captures"][0].clone();
    wait_until("the capture waits", || capture()["reason"].is_string());
    let reason = capture()["reason"].as_str().unwrap().to_owned();
    let expected = format!("no server answers at http://{free}; start it, or set `model.url`");
    assert!(reason.contains(&expected), "{reason}");
    assert_eq!((capture()["attempts"].as_u64(), machine.calls().len()), (Some(0), 0), "a wait is no attempt");
    let check = machine.check("model server").unwrap();
    assert_eq!(
        (&check["level"], &check["fix"]),
        (&json!("warning"), &json!("start it, or set `model.url`")),
        "{check}"
    );
    let shown = machine.text(&["status"]);
    assert!(shown.contains("waits at extraction: openai-compatible: no server answers"), "{shown}");

    let _api =
        OpenAiApi::listen(TcpListener::bind(free).unwrap(), Traits::default(), |_| Reply::json(&units()));
    wait_until("the session is read", || capture()["state"] == "done");
    assert!(machine.branch_diff(&capture()).contains("source: openai-compatible"));
}

#[test]
fn a_worker_that_waits_for_a_model_does_not_run_git_all_the_time() {
    let machine = Machine::with_model(format!("http://{}", unused_address()));
    let (programs, log) = (machine.sandbox.path().join("programs"), machine.sandbox.path().join("runs"));
    let usual = std::env::var("PATH").unwrap();
    let found = std::env::split_paths(&usual).map(|folder| folder.join("git")).find(|git| git.is_file());
    let script = format!("echo >> {}\nexec {} \"$@\"", log.display(), found.unwrap().display());
    write_script(&programs.join("git"), &script);
    let machine = machine.set("PATH", format!("{}:{usual}", programs.display()));
    machine.queue(SAID);
    wait_until("the capture waits", || {
        machine.json(&["status", "--json"])["captures"][0]["reason"].is_string()
    });
    let runs = || fs::read_to_string(&log).unwrap().lines().count();
    let (before, begun) = (runs(), Instant::now());
    wait_until("the worker has had time to", || begun.elapsed() > Duration::from_secs(2));
    assert!(runs() - before <= 5, "{} runs in two seconds", runs() - before);
    // It would wait for hours.
    fs::remove_dir_all(machine.sandbox.state()).unwrap();
}

#[test]
fn a_worker_that_waits_for_a_model_ends_when_its_queue_is_deleted() {
    let machine = Machine::with_model(format!("http://{}", unused_address()));
    machine.queue(SAID);
    wait_until("the capture waits", || {
        machine.json(&["status", "--json"])["captures"][0]["reason"].is_string()
    });
    let state = machine.sandbox.state();
    let lock = fs::File::open(state.join("drain.lock")).unwrap();
    assert!(lock.try_lock_shared().is_err(), "a worker holds it");
    fs::remove_dir_all(state).unwrap();
    wait_until("the worker has ended", || lock.try_lock_shared().is_ok());
}

#[test]
fn a_model_that_the_server_lacks_is_waited_for_until_named_right() {
    let api = OpenAiApi::start(|_| Reply::json(&units()));
    for backend in ["auto", "api"] {
        let machine = Machine::with_model(&api.url)
            .set("NUGGET_MODEL_NAME", "llama9:70b")
            .set("NUGGET_EXTRACT_BACKEND", backend);
        let before = api.requests().len();
        machine.queue(SAID);
        let reason = machine.reason_of_its_wait();
        let expected = "has no model `llama9:70b`; set `model.name` to one that it has: ";
        assert!(reason.contains(expected) && reason.contains("qwen3:8b, gemma3:4b"), "{reason}");
        assert_eq!(api.requests().len(), before);
        let check = machine.check("model server").unwrap();
        assert!(check["fix"].as_str().unwrap().contains("qwen3:8b, gemma3:4b"), "{check}");
        // The worker that waits has the settings with which it began.
        let machine = machine.set("NUGGET_MODEL_NAME", "qwen3:8b");
        assert!(machine.run(&["retry", "--all"]).status.success());
        wait_until("it is done", || machine.json(&["status", "--json"])["captures"][0]["state"] == "done");
        let capture = machine.json(&["status", "--json"])["captures"][0].clone();
        assert!(machine.branch_diff(&capture).contains("source: openai-compatible"));
    }
    let right = Machine::with_model(&api.url).check("model server").unwrap();
    assert_eq!(
        (&right["level"], &right["message"]),
        (&json!("ok"), &json!(format!("{} has qwen3:8b", api.url)))
    );
}

#[test]
fn a_slow_local_model_is_tried_again_and_its_call_is_recorded() {
    let api = OpenAiApi::start(|request: &Request| match request.number {
        0 => Reply::Silence,
        _ => Reply::json(&units()),
    });
    let machine = Machine::with_model(&api.url).set("NUGGET_EXTRACT_DEADLINE_SECONDS", 1);
    let begun = Instant::now();
    assert!(machine.branch_diff(&machine.capture(SAID)).contains(TITLE));
    assert!(begun.elapsed() > Duration::from_secs(1));
    let estimated: Vec<Value> = machine.calls().iter().map(|call| call["estimated"].clone()).collect();
    assert_eq!(estimated, [true, false], "it may have worked on the first");
}

#[test]
fn a_key_file_is_sent_and_shown_nowhere() {
    let traits = Traits { needs_key: true, ..Traits::default() };
    let api = OpenAiApi::start_with(traits, |_| Reply::json(&units()));
    let machine =
        Machine::with_model(&api.url).set("NUGGET_EXTRACT_BACKEND", "api").set("OPENAI_API_KEY", KEY);
    machine.queue(SAID);
    // The key of the environment is not sent to a server on this machine.
    let reason = machine.reason_of_its_wait();
    assert!(reason.contains("401") && reason.contains("`model.key_file`"), "{reason}");
    let file = machine.sandbox.path().join("key");
    fs::write(&file, format!("{KEY}\n")).unwrap();
    let machine = machine.set("NUGGET_MODEL_KEY_FILE", file.display());
    assert!(machine.run(&["retry", "--all"]).status.success());
    wait_until("it is done", || machine.json(&["status", "--json"])["captures"][0]["state"] == "done");
    assert_eq!(api.heads().last().unwrap().1, format!("Bearer {KEY}"));
    fs::remove_file(file).unwrap();
    let found = Command::new("grep").args(["-rl", KEY]).arg(machine.sandbox.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the key is written nowhere");
}

#[test]
fn a_key_that_cannot_be_used_is_a_finding_and_in_the_note_of_the_session() {
    let machine = |key: Option<&str>| {
        let machine = Machine { sandbox: Sandbox::with_brain(), variables: Vec::new() };
        let file = machine.sandbox.path().join("key");
        if let Some(key) = key {
            fs::write(&file, key).unwrap();
        }
        machine.set("NUGGET_MODEL_KEY_FILE", file.display())
    };
    for (key, problem) in [
        (None, "failed to read the key file"),
        (Some("\n"), "(`model.key_file`) is empty"),
        (Some("sk-one\nsk-two"), "has several lines or control characters"),
    ] {
        let check = machine(key).check("model").unwrap();
        assert_eq!(check["level"], "warning", "{check}");
        assert!(check["message"].as_str().unwrap().contains(problem), "{check}");
        assert!(check["fix"].as_str().unwrap().contains("in one line"), "{check}");
    }
    assert_eq!(machine(Some("sk-one\n")).check("model").unwrap()["level"], "ok");
    let nothing = Machine { sandbox: Sandbox::with_brain(), variables: Vec::new() };
    let check = nothing.set("NUGGET_EXTRACT_BACKEND", "api").check("model").unwrap();
    assert_eq!(check["level"], "failure", "{check}");
    assert!(check["fix"].as_str().unwrap().starts_with("set ANTHROPIC_API_KEY"), "{check}");
    let unread = machine(None);
    let capture = unread.capture(RULE);
    let message = unread.sandbox.git(&["log", "-1", "--format=%B", capture["branch"].as_str().unwrap()]);
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("read by rules and not by a model: failed to read the key file"), "{message}");
}

#[test]
fn one_setting_switches_reranking_and_answers_too() {
    let ranked = Arc::new(AtomicUsize::new(0));
    let api = OpenAiApi::start({
        let ranked = Arc::clone(&ranked);
        move |request: &Request| {
            if !request.system().contains("score_candidates") {
                return Reply::Text(
                    "<think>which?</think>Give each write a key [idempotency-keys].".into(),
                    "stop",
                );
            }
            ranked.fetch_add(1, Ordering::Relaxed);
            let question: Value = serde_json::from_str(request.user()).unwrap();
            let score = |candidate: &Value| {
                let is_first = candidate["title"].as_str().unwrap().contains("Cache");
                json!({ "label": candidate["label"], "score": if is_first { 10 } else { 1 } })
            };
            let scores: Vec<Value> = question["candidates"].as_array().unwrap().iter().map(score).collect();
            Reply::json(&json!({ "scores": scores }))
        }
    });
    let machine = Machine::with_model(&api.url).set("NUGGET_RETRIEVE_RERANK_DEADLINE_MS", 20_000);
    copy_brain(&machine.sandbox);
    let output = machine.run(&["ask", "retry a write safely when the database or a queue fails"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Give each write a key [idempotency-keys].\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "ordered by qwen3:8b\n");
    assert_eq!((ranked.load(Ordering::Relaxed), api.requests().len()), (1, 2));
    let calls = machine.calls();
    assert_eq!((calls.len(), tokens(&calls)), (2, api.counted_tokens()));
    for call in &calls {
        assert_eq!((&call["backend"], &call["microdollars"]), (&json!("openai-compatible"), &json!(0)));
    }
}

#[test]
fn a_model_that_is_too_slow_to_rank_is_not_asked_again_for_a_while() {
    let api = OpenAiApi::start(|_| Reply::Silence);
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    sandbox.ok(["index"]);
    let variables = [
        ("NUGGET_MODEL_API", "openai"),
        ("NUGGET_MODEL_URL", &api.url),
        ("NUGGET_MODEL_NAME", "qwen3:8b"),
        ("NUGGET_RETRIEVE_RERANK_DEADLINE_MS", "500"),
    ];
    let mut client = Client::start_with(&sandbox, &variables);
    client.initialize();
    for question in 1..=4 {
        let answer = client.call(
            question,
            json!({ "task_description": "a write to the database and the cache" }),
            None,
        );
        assert!(text(&answer).contains("best first"), "{answer}");
    }
    assert!(client.close().success());
    assert!(api.requests().len() <= 2, "{} requests", api.requests().len());
}

#[test]
fn the_settings_decide_who_reads_and_say_why() {
    let sandbox = Sandbox::with_brain();
    let reader = |variables: &[(&str, &str)]| {
        let mut command = sandbox.command();
        command.args(["config", "--json"]).env("NUGGET_MODEL_API", "openai").envs(variables.iter().copied());
        let config: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        config["sessions_are_read_by"].as_str().unwrap().to_owned()
    };
    let local = ("NUGGET_MODEL_URL", "http://localhost:11434");
    let named = ("NUGGET_MODEL_NAME", "qwen3:8b");
    assert_eq!(
        reader(&[("ANTHROPIC_API_KEY", KEY), local]),
        "rules, because `model.api` is openai, but `model.name` names no model; nothing leaves this machine"
    );
    assert_eq!(
        reader(&[("ANTHROPIC_API_KEY", KEY), named]),
        "rules, because there is no key: set OPENAI_API_KEY or `model.key_file`; nothing leaves this machine"
    );
    assert_eq!(reader(&[local, named]), "qwen3:8b at http://localhost:11434; nothing leaves this machine");
    let passed_on = reader(&[local, ("NUGGET_MODEL_NAME", "gpt-oss:120b-cloud")]);
    assert!(passed_on.contains("which sends them on to Ollama's servers, redacted"), "{passed_on}");
    let away = reader(&[("OPENAI_API_KEY", KEY), ("NUGGET_MODEL_NAME", "gpt-9")]);
    assert!(away.starts_with("gpt-9 at https://api.openai.com; they are sent there, redacted"), "{away}");
    assert!(away.contains("the price of gpt-9 is unknown and counts as the highest"), "{away}");
    let priced = [
        ("OPENAI_API_KEY", KEY),
        named,
        ("NUGGET_MODEL_PRICE_INPUT", "5"),
        ("NUGGET_MODEL_PRICE_OUTPUT", "40"),
    ];
    assert!(!reader(&priced).contains("price"));
    assert_eq!(
        reader(&[local, named, ("NUGGET_EXTRACT_MODEL", "gemma3:4b")]).split(' ').next(),
        Some("gemma3:4b")
    );
    assert_eq!(
        reader(&[local, named, ("NUGGET_EXTRACT_BACKEND", "heuristic")]),
        "rules; nothing leaves this machine"
    );
}

#[test]
fn an_unknown_price_is_named_with_the_costs() {
    let sandbox = Sandbox::with_brain();
    let run = |arguments: &[&str]| {
        let mut command = sandbox.command();
        command.args(arguments).env("NUGGET_MODEL_API", "openai").env("NUGGET_MODEL_NAME", "gpt-9");
        let output = command.env("OPENAI_API_KEY", KEY).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.contains(KEY), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let unknown = "the price of gpt-9 is unknown";
    for arguments in [&["status"][..], &["status", "--json"], &["spend"], &["spend", "--json"]] {
        assert!(run(arguments).contains(unknown), "{arguments:?}: {}", run(arguments));
    }
}

#[test]
fn doctor_finds_a_running_server_and_says_what_to_set() {
    let api = OpenAiApi::start(|_| Reply::json(&units()));
    let sandbox = Sandbox::with_brain();
    let machine = Machine { sandbox, variables: Vec::new() }.set("OLLAMA_HOST", &api.url);
    // The server has 0.3 s to answer, which may be too short on a busy machine.
    wait_until("the server is found", || machine.check("model server").is_some());
    let check = machine.check("model server").unwrap();
    assert_eq!(check["level"], "ok");
    let told = check["message"].as_str().unwrap();
    assert!(told.starts_with(&format!("Ollama runs at {} and could read sessions", api.url)), "{told}");
    assert!(told.ends_with("with qwen3:8b, gemma3:4b"), "{told}");
    let fix = check["fix"].as_str().unwrap();
    assert_eq!(
        fix,
        format!(
            "nugget config set model.api openai && nugget config set model.url {} && nugget config set model.name qwen3:8b \
             && nugget config set extract.part_tokens 8000",
            api.url
        )
    );
    // The settings of the commands are those that work.
    for command in fix.split(" && ") {
        machine.sandbox.ok(command.split(' ').skip(1));
    }
    let capture = machine.capture(SAID);
    assert!(machine.branch_diff(&capture).contains("source: openai-compatible"), "{capture}");
    let check = machine.check("model server").unwrap();
    assert_eq!(check["message"], format!("{} has qwen3:8b", api.url));
    assert!(
        api.heads().iter().all(|(path, _)| path == "GET /v1/models" || path == "POST /v1/chat/completions")
    );
}

#[test]
fn doctor_looks_for_no_server_where_a_model_is_set_up_or_rules_are_chosen() {
    let api = OpenAiApi::start(|_| Reply::json(&units()));
    for variable in [("ANTHROPIC_API_KEY", KEY), ("NUGGET_EXTRACT_BACKEND", "heuristic")] {
        let sandbox = Sandbox::with_brain();
        let machine = Machine { sandbox, variables: vec![(variable.0, variable.1.to_owned())] };
        let machine = machine.set("OLLAMA_HOST", &api.url);
        assert_eq!(machine.check("model server"), None);
    }
    assert!(api.heads().is_empty());
    let unnamed = Machine { sandbox: Sandbox::with_brain(), variables: Vec::new() }
        .set("NUGGET_MODEL_API", "openai")
        .set("NUGGET_MODEL_URL", &api.url)
        .set("OLLAMA_HOST", &api.url);
    wait_until("the server is found", || {
        unnamed.check("model server").unwrap()["fix"] == "nugget config set model.name qwen3:8b"
    });
}

#[test]
fn doctor_names_who_reads_sessions_and_why() {
    let reader = |machine: &Machine| {
        let told = machine.check("model").unwrap()["message"].as_str().unwrap().to_owned();
        told.split_once("; sessions are read by ").unwrap().1.to_owned()
    };
    let machine = || Machine { sandbox: Sandbox::with_brain(), variables: Vec::new() };
    assert_eq!(
        reader(&machine()),
        "rules, because `claude` is not installed or not logged in and there is no key: set ANTHROPIC_API_KEY or \
         `model.key_file`; nothing leaves this machine"
    );
    let without_budget = machine().set("ANTHROPIC_API_KEY", KEY).set("NUGGET_SPEND_TOKENS_PER_DAY", 0);
    assert_eq!(
        reader(&without_budget),
        "rules, because the budget is 0 (`spend.tokens_per_day`); nothing leaves this machine"
    );
    let only = machine().set("NUGGET_EXTRACT_BACKEND", "claude-p");
    assert_eq!(reader(&only), "nothing: `claude` is not installed or not logged in");
    let logged_in = machine();
    let program = logged_in.sandbox.path().join("claude");
    write_script(&program, "echo '{\"loggedIn\":true}'");
    let logged_in = logged_in.set("NUGGET_EXTRACT_CLAUDE", program.display());
    assert_eq!(
        reader(&logged_in),
        "`claude -p`, because it is logged in and there is no key: set ANTHROPIC_API_KEY or `model.key_file`; they are \
         sent to Anthropic, redacted"
    );
    assert!(
        reader(&logged_in.set("ANTHROPIC_API_KEY", KEY))
            .starts_with("the Claude API at https://api.anthropic.com")
    );
}
