//! `nugget serve` speaks both versions of the protocol on stdio, and nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::support::embeddings_api::{self, EmbeddingsApi};
use crate::support::messages_api::{KEY, MessagesApi, Reply};
use crate::support::{ChildGuard, Sandbox, wait_until};

pub(crate) struct Client {
    pub(crate) server: ChildGuard,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::start_with(sandbox, &[])
    }

    pub(crate) fn start_with(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Self {
        let mut command = sandbox.command();
        command.envs(variables.iter().copied());
        Self::spawn(command)
    }

    /// Starts a server in a folder, as a session there does.
    pub(crate) fn start_in(sandbox: &Sandbox, folder: &std::path::Path) -> Self {
        let mut command = sandbox.command();
        command.current_dir(folder);
        Self::spawn(command)
    }

    /// Starts a server of another program than this build's.
    fn start_program(sandbox: &Sandbox, program: &std::path::Path) -> Self {
        Self::spawn(sandbox.command_of(program.to_str().unwrap()))
    }

    pub(crate) fn spawn(mut command: std::process::Command) -> Self {
        let mut server = command
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = server.stdin.take();
        let stdout = BufReader::new(server.stdout.take().unwrap());
        Self { server: ChildGuard(server), stdin, stdout }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Returns the next message; every line of stdout must be one.
    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is not a message"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], request["id"], "{answer}");
        answer
    }

    pub(crate) fn call(&mut self, id: u64, arguments: Value, meta: Option<Value>) -> Value {
        let mut params = json!({"name": "get_relevant_context", "arguments": arguments});
        if let Some(meta) = meta {
            params["_meta"] = meta;
        }
        self.ask(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let answer = self.ask(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": "2.1.329"}}}));
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Closes stdin and waits for the server to exit on its own.
    pub(crate) fn close(mut self) -> std::process::ExitStatus {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut rest).unwrap();
        assert_eq!(rest, "");
        self.server.0.wait().unwrap()
    }
}

/// Returns the tool's answer to a session.
pub(crate) fn answer(sandbox: &Sandbox, task: &str) -> String {
    let mut client = Client::start(sandbox);
    client.initialize();
    let answer = client.call(1, json!({"task_description": task}), None);
    assert!(client.close().success());
    text(&answer).to_owned()
}

/// Writes enough units that embedding them takes a while.
fn write_many_units(sandbox: &Sandbox) {
    for number in 0..120 {
        let text = format!(
            "# Lesson {number} of the harbour\n\nCrane {number} lifts its load at quay {}, and waits for the tide of day {}.\n",
            number * 7,
            number * 13
        );
        std::fs::write(sandbox.brain().join(format!("lesson-{number}.md")), text).unwrap();
    }
}

/// Creates a sandbox with an index of twenty units; how long indexing takes is not tested here.
fn indexed_sandbox() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    sandbox.ok(["index"]);
    sandbox
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn modern_meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.329"},
        "io.modelcontextprotocol/clientCapabilities": {}})
}

#[test]
fn a_client_of_2025_11_25_gets_instructions_and_passages() {
    let sandbox = indexed_sandbox();
    let mut client = Client::start(&sandbox);
    let hello = client.initialize();
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    let instructions = hello["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains("Always check the brain first") && instructions.chars().count() < 4096);

    let tools = client.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0]["name"], "get_relevant_context");
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["task_description"]));
    assert_eq!(tools[0]["inputSchema"]["properties"]["task_description"]["type"], "string");
    let inputs: Vec<&String> = tools[0]["inputSchema"]["properties"].as_object().unwrap().keys().collect();
    assert_eq!(inputs, ["task_description", "files", "budget_tokens", "depth"]);
    assert_eq!(tools[0]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools[0]["annotations"]["destructiveHint"], false);
    assert_eq!(tools[0]["annotations"]["openWorldHint"], false);
    assert_eq!(tools[0]["_meta"]["anthropic/alwaysLoad"], true);
    assert_eq!(tools[0]["_meta"]["anthropic/maxResultSizeChars"], 200_000);
    let description = tools[0]["description"].as_str().unwrap();
    assert!(description.contains("Call it first"), "{description}");
    // Every session pays for all of it.
    let loaded = tools[0].to_string();
    assert!(loaded.chars().count() < 900, "{}: {loaded}", loaded.chars().count());
    for internal in ["$defs", "$ref", "$schema", "ToolParameters", "Task::", "`"] {
        assert!(!loaded.contains(internal), "{internal}: {loaded}");
    }

    let answer = client.call(2, json!({"task_description": "cache invalidation after a write"}), None);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(answer["result"].get("structuredContent").is_none(), "the client would hide the text");
    assert!(text(&answer).contains("cache"), "{answer}");
    assert!(text(&answer).lines().any(|line| line.starts_with("> ")), "passages are quoted: {answer}");
    assert!(client.close().success());
}

#[test]
fn a_call_accepts_files_a_budget_and_a_depth() {
    let sandbox = indexed_sandbox();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let task = "retry a write safely when the database or a queue fails";
    let client = std::cell::RefCell::new(client);
    let ask = |more: Value| {
        let mut arguments = json!({"task_description": task});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = client.borrow_mut().call(1, arguments, None);
        assert!(answer["result"].get("structuredContent").is_none(), "{answer}");
        text(&answer).to_owned()
    };
    let plain = ask(json!({}));
    let (summary, deep) =
        (ask(json!({"depth": "summary"})), ask(json!({"depth": "deep", "budget_tokens": 1_000_000})));
    assert!(summary.len() < plain.len() && plain.len() < deep.len());
    let short = ask(json!({"budget_tokens": 1}));
    assert!(short.lines().last().unwrap().contains(" more unit"), "{short}");
    assert!(short.len() < 700, "a budget of 1 is taken for 100: {short}");
    let of_files = ask(json!({"files": ["/home/dev/app/src/queue/outbox_relay.rs"], "depth": "standard"}));
    assert!(of_files.contains("transactional-outbox-over-dual-writes"), "{of_files}");
    let header = plain.lines().find(|line| line.contains(" · confidence ")).unwrap();
    assert!(
        header.contains(" in coding · ") && header.ends_with(" · reviewed: uncommitted edit"),
        "{header}"
    );
    sandbox.git(&["add", "--all"]);
    sandbox.git(&["commit", "--quiet", "--message", "Twenty units"]);
    crate::support::wait_until("the commit is noticed", || {
        ask(json!({})).contains(" · reviewed: merged by ")
    });
    sandbox.git(&["switch", "--quiet", "--create", "drafts"]);
    let path = sandbox.brain().join("domains/coding/concepts/idempotency-keys.md");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\nA write that fails is retried with its key.\n")).unwrap();
    let draft_is_shown = |edited: &str| {
        let mixed = ask(json!({"depth": "deep", "budget_tokens": 1_000_000}));
        let ends = |id: &str, state: &str| {
            let line = mixed.lines().find(|line| line.starts_with(&format!("{id} · ")));
            line.is_some_and(|line| line.contains(state))
        };
        let shown = mixed.contains("A write that fails is retried with its key.");
        (ends("idempotency-keys", edited) && ends("idempotent-retries-with-jitter", "reviewed: merged"))
            .then_some(shown)
    };
    crate::support::wait_until("the edit is distinguished from the merged text", || {
        draft_is_shown("reviewed: uncommitted edit") == Some(true)
    });
    sandbox.git(&["commit", "--quiet", "--all", "--message", "A draft"]);
    crate::support::wait_until("the merged text replaces the draft", || {
        draft_is_shown("reviewed: merged") == Some(false)
    });
}

#[test]
fn a_model_ranks_a_calls_units_and_its_failure_is_tolerated() {
    let sandbox = Arc::new(indexed_sandbox());
    let of_model = Arc::clone(&sandbox);
    let api = MessagesApi::start(move |request| {
        if request.number == 2 {
            return Reply::Error(529, "overloaded", None);
        }
        let question: Value = serde_json::from_str(request.user()).unwrap();
        assert_eq!(question["files"], json!(["src/store.rs"]));
        if request.number == 1 {
            // While the model thinks, another unit is merged.
            let unit = "# Write behind\n\nA cache that writes to the database later loses writes.\n";
            std::fs::write(of_model.brain().join("write-behind.md"), unit).unwrap();
            of_model.ok(["index"]);
        }
        let score = |title: &str| if title.to_lowercase().contains("cache") { 10 } else { 1 };
        let scores = question["candidates"].as_array().unwrap().iter().map(|candidate| {
            json!({"label": candidate["label"], "score": score(candidate["title"].as_str().unwrap())})
        });
        Reply::Call(json!({"scores": scores.collect::<Vec<_>>()}))
    });
    let mut client = start_with_model(&sandbox, &api);
    client.initialize();
    let arguments =
        json!({"task_description": "a write to the database and the cache", "files": ["src/store.rs"]});
    let ordered = client.call(1, arguments.clone(), None);
    assert!(text(&ordered).lines().next().unwrap().contains("ordered by a model"), "{ordered}");
    let first = text(&ordered).lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(first.to_lowercase().contains("cache"), "{first}");
    assert!(text(&ordered).contains(" in 20 units"), "{ordered}");
    let of_new = client.call(2, arguments.clone(), None);
    let head = text(&of_new).lines().next().unwrap();
    assert!(head.contains(" in 21 units") && head.contains("ordered by a model"), "{of_new}");
    assert!(text(&of_new).contains("Write behind"), "all of one generation: {of_new}");
    let local = client.call(3, arguments, None);
    assert!(text(&local).lines().next().unwrap().contains("best first"), "{local}");
    assert_eq!(api.requests().len(), 3);
    let calls = sandbox.json(["spend", "--json"])["calls"].as_array().unwrap().clone();
    assert_eq!((calls.len(), &calls[0]["backend"]), (2, &json!("claude-api")));
    assert!(client.close().success());
}

/// A server whose answers a model orders.
fn start_with_model(sandbox: &Sandbox, api: &MessagesApi) -> Client {
    let variables = [
        ("ANTHROPIC_API_KEY", KEY),
        ("NUGGET_MODEL_URL", &api.url),
        ("NUGGET_RETRIEVE_RERANK_DEADLINE_MS", "20000"),
    ];
    Client::start_with(sandbox, &variables)
}

#[test]
fn a_running_server_goes_by_the_settings_of_now() {
    let sandbox = indexed_sandbox();
    let api = MessagesApi::start(|_| Reply::Call(json!({ "scores": [] })));
    let mut client = start_with_model(&sandbox, &api);
    client.initialize();
    let arguments = json!({"task_description": "a write to the database and the cache"});
    client.call(1, arguments.clone(), None);
    assert_eq!(api.requests().len(), 1);
    sandbox.ok(["config", "set", "retrieve.rerank", "off"]);
    let local = client.call(2, arguments.clone(), None);
    assert!(text(&local).contains(" in 20 units"), "{local}");
    assert_eq!(api.requests().len(), 1, "no question is sent any more");

    let other = sandbox.path().join("other");
    sandbox.ok(["init", "--path", other.to_str().unwrap()]);
    sandbox.ok(["config", "set", "brain", other.to_str().unwrap()]);
    let of_other = client.call(3, arguments.clone(), None);
    assert!(text(&of_other).contains("it has no units yet"), "{of_other}");

    std::fs::write(sandbox.path().join("config/nugget/config.toml"), "brain = [").unwrap();
    let broken = client.call(4, arguments, None);
    assert!(text(&broken).contains("nugget config"), "{broken}");
    assert!(client.close().success());
}

#[test]
fn a_client_of_2026_07_28_needs_no_handshake() {
    let sandbox = indexed_sandbox();
    let mut client = Client::start(&sandbox);
    let found = client.ask(
        &json!({"jsonrpc": "2.0", "id": "probe", "method": "server/discover", "params": {"_meta": modern_meta()}}),
    );
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{found}");
    assert!(found["result"]["instructions"].as_str().unwrap().contains("Always check the brain first"));
    let tools = client
        .ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}));
    assert_eq!(tools["result"]["tools"][0]["name"], "get_relevant_context");
    let answer = client.call(2, json!({"task_description": "bounded worker pools"}), Some(modern_meta()));
    assert!(text(&answer).contains("worker"), "{answer}");
    assert!(client.close().success());
}

#[test]
fn malformed_requests_get_errors_and_the_server_continues() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let with = |name: &str, value: Value| {
        let mut arguments = json!({"task_description": "x"});
        arguments[name] = value;
        arguments
    };
    for (arguments, wrong) in [
        (json!({}), "`task_description` is missing"),
        (json!({"task_description": 7}), "`task_description` must be a string, not a number"),
        (json!({"task_description": "  "}), "`task_description` is empty"),
        (with("files", json!("src/a.rs")), "`files` must be a list of paths, not a string"),
        (with("budget_tokens", json!("many")), "`budget_tokens` must be a whole number, not a string"),
        (with("depth", json!("all")), "`depth` must be summary, standard or deep, not \"all\""),
    ] {
        let answer = client.call(7, arguments.clone(), None);
        assert_eq!(answer["error"]["code"], -32602, "{arguments}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(wrong), "{answer}");
    }
    let answer = client.ask(&json!({"jsonrpc": "2.0", "id": 8, "method": "no/such/method"}));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer = client.ask(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "other", "arguments": {}}}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let answer = client.call(10, json!({"task_description": "anything"}), None);
    assert_eq!(text(&answer), "nothing relevant in the brain (it has no units yet)\n");
    assert!(client.close().success());
}

#[test]
fn the_next_call_finds_what_was_merged_while_serving() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let before = client.call(1, json!({"task_description": "stop goroutines from piling up"}), None);
    assert!(!text(&before).contains("goroutine"), "{before}");
    copy_brain(&sandbox);
    crate::support::wait_until("the new units are found", || {
        // Checked from outside: the server must notice the files by itself.
        sandbox.json(["index", "--json"])["units"] == 20
    });
    let mut id = 1;
    let found = std::cell::RefCell::new(client);
    let counter = std::cell::RefCell::new(&mut id);
    crate::support::wait_until("the server answers with them", || {
        **counter.borrow_mut() += 1;
        let answer = found.borrow_mut().call(
            **counter.borrow(),
            json!({"task_description": "stop goroutines from piling up"}),
            None,
        );
        text(&answer).contains("worker")
    });
    assert!(found.into_inner().close().success());
}

#[test]
fn a_server_whose_stdin_ends_at_once_exits_quietly() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.run(["serve"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_call_during_the_first_index_reports_its_progress() {
    let sandbox = Sandbox::with_brain();
    write_many_units(&sandbox);
    let mut client = Client::start(&sandbox);
    client.initialize();
    client.send(
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_relevant_context",
            "arguments": {"task_description": "cranes at the quay"}, "_meta": {"progressToken": "far"}}})
        .to_string(),
    );
    let mut progress = Vec::new();
    let answer = loop {
        let message = client.receive();
        if message["id"] == 1 {
            break message;
        }
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progressToken"], "far");
        assert_eq!(message["params"]["total"], 120.0, "{message}");
        progress.push(message["params"]["progress"].as_f64().unwrap());
    };
    assert!(!progress.is_empty() && progress.is_sorted_by(|a, b| a < b), "{progress:?}");
    assert!(text(&answer).contains("rane") || text(&answer).contains("first time ("), "{answer}");
    assert!(client.close().success());
}

#[test]
fn the_previous_index_answers_while_a_new_one_is_built() {
    let sandbox = indexed_sandbox();
    sandbox.ok(["config", "set", "mcp.tools", "get_relevant_context,search_notes"]);
    let mut client = Client::start(&sandbox);
    client.initialize();
    let arguments = json!({"task_description": "cache invalidation after a write"});
    client.call(1, arguments.clone(), None);
    write_many_units(&sandbox);
    let client = std::cell::RefCell::new(client);
    let says_so = |answer: &Value| text(answer).contains("may be behind the brain's files");
    crate::support::wait_until("an answer says that it is from the previous index", || {
        let answer = client.borrow_mut().call(2, arguments.clone(), None);
        assert!(text(&answer).contains("cache"), "{answer}");
        says_so(&answer)
    });
    let search = json!({"name": "search_notes", "arguments": {"query": "cache"}});
    let found = client
        .borrow_mut()
        .ask(&json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": search}));
    assert!(says_so(&found), "{found}");
    crate::support::wait_until("the new generation answers", || {
        let answer = client.borrow_mut().call(3, json!({"task_description": "cranes at the quay"}), None);
        text(&answer).contains("Crane") && !text(&answer).contains("may be behind")
    });
    assert!(client.into_inner().close().success());
}

#[test]
fn a_cancelled_call_is_not_answered_but_the_next_one_is() {
    let sandbox = Sandbox::with_brain();
    write_many_units(&sandbox);
    let mut client = Client::start(&sandbox);
    client.initialize();
    let call = |id: u64| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "get_relevant_context",
            "arguments": {"task_description": "cranes"}}})
        .to_string()
    };
    client.send(&call(1));
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"never mind"}}"#);
    let next = client.ask(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    assert_eq!(next["result"]["tools"].as_array().unwrap().len(), 1);
    client.send(&call(3));
    assert_eq!(client.receive()["id"], 3);
    assert!(client.close().success());
}

#[test]
fn a_terminated_server_exits_with_success() {
    let sandbox = indexed_sandbox();
    for signal in ["INT", "TERM", "HUP"] {
        let mut client = Client::start(&sandbox);
        client.initialize();
        let pid = client.server.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let status = client.server.0.wait().unwrap();
        assert!(status.success(), "{signal}: {status}");
    }
}

#[test]
fn logs_go_to_a_file_and_to_stderr_and_never_to_stdout() {
    let sandbox = indexed_sandbox();
    let logs = || -> String {
        let state = std::fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
        let files =
            state.flatten().filter_map(|brain| std::fs::read_dir(brain.path().join("logs")).ok()).flatten();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    };
    let quiet = sandbox.run(["serve"]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    assert!(logs().contains("serving"), "{}", logs());
    let verbose = sandbox.run(["serve", "-v"]);
    let stderr = String::from_utf8_lossy(&verbose.stderr);
    assert!(
        verbose.stdout.is_empty() && stderr.contains("serving") && !stderr.contains('\u{1b}'),
        "{stderr}"
    );
    let filtered = sandbox.command().arg("serve").env("NUGGET_LOG", "mcp=debug").output().unwrap();
    let stderr = String::from_utf8_lossy(&filtered.stderr);
    assert!(stderr.contains("mcp: serving") && !stderr.contains("actors"), "{stderr}");
}

#[test]
fn a_server_answers_by_meaning_across_a_change_of_models() {
    let sandbox = Sandbox::with_brain();
    let note = "# About outbox\n\nEvents leave through the outbox table and a relay publishes them.\n";
    std::fs::write(sandbox.brain().join("outbox.md"), note).unwrap();
    sandbox.ok(["index"]);
    let may_pass = Arc::new(AtomicBool::new(false));
    let api = EmbeddingsApi::start_gated(&may_pass);
    let provider = [
        ("NUGGET_EMBED_PROVIDER", "openai"),
        ("NUGGET_EMBED_URL", &api.url),
        ("NUGGET_EMBED_DEADLINE_SECONDS", "20"),
        ("OPENAI_API_KEY", embeddings_api::KEY),
    ];
    let mut client = Client::start_with(&sandbox, &provider);
    client.initialize();
    let mut ask = |id: u64| {
        let answer =
            client.call(id, json!({"task_description": "how do events leave the outbox table"}), None);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains("About outbox"), "{text}");
        assert!(!text.contains("words only"), "{text}");
    };
    let building = || sandbox.json(["status", "--json"])["index"]["building"].clone();
    // Twice in the language of the present index, and at once in that of the next one.
    ask(1);
    wait_until("the index is being rebuilt", || building().is_object());
    ask(2);
    may_pass.store(true, Ordering::SeqCst);
    wait_until("the index is rebuilt", || building().is_null());
    ask(3);
    let asked = api.requests().len();
    ask(4);
    assert_eq!(api.requests().len(), asked + 1);
    assert!(client.close().success());
}

#[test]
fn a_server_whose_program_was_replaced_starts_workers_of_the_new_one() {
    let sandbox = Sandbox::new();
    let program = sandbox.path().join("bin/nugget");
    std::fs::create_dir(program.parent().unwrap()).unwrap();
    // Another process writes them: what this one has open for writing cannot be run.
    let copy_to = |path: &std::path::Path| {
        let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_nugget")).arg(path).status();
        assert!(copied.unwrap().success());
    };
    copy_to(&program);
    let mut client = Client::start_program(&sandbox, &program);
    client.initialize();
    let newer = program.with_file_name("newer");
    copy_to(&newer);
    std::fs::rename(&newer, &program).unwrap();

    // It looks after the queue as soon as there is a brain.
    sandbox.ok(["init"]);
    sandbox.capture(&crate::support::fixture("transcripts/synthetic/nothing_chat.jsonl"));
    sandbox.wait_for_workers();
    let session = knowledge::SessionId::verbatim("spooled-session");
    let transcript = crate::support::fixture("transcripts/synthetic/flywheel.jsonl");
    let spool = queue::Spool::new(sandbox.state().join("spool"));
    spool.put(&queue::Announcement::new(session, transcript, "hook")).unwrap();
    client.call(1, json!({"task_description": "anything"}), None);
    let queue = queue::Queue::open(&sandbox.state().join("queue.db")).unwrap();
    wait_until("a worker has read the session", || queue.tally().unwrap().done == 1);
    assert!(client.close().success());
}
