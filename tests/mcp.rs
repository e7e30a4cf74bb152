//! `nugget serve` speaks both eras of the protocol on stdio, and nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::support::{Running, Sandbox};

struct Client {
    server: Running,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(sandbox: &Sandbox) -> Self {
        let mut server = sandbox
            .command()
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = server.stdin.take();
        let stdout = BufReader::new(server.stdout.take().unwrap());
        Self { server: Running(server), stdin, stdout }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next message; every line of stdout must be one.
    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is no message"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], request["id"], "{answer}");
        answer
    }

    fn call(&mut self, id: u64, arguments: Value, meta: Option<Value>) -> Value {
        let mut params = json!({"name": "get_relevant_context", "arguments": arguments});
        if let Some(meta) = meta {
            params["_meta"] = meta;
        }
        self.ask(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
    }

    fn initialize(&mut self) -> Value {
        let answer = self.ask(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": "2.1.329"}}}));
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Ends stdin and waits for the server to go by itself.
    fn end(mut self) -> std::process::ExitStatus {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.stdout, &mut rest).unwrap();
        assert_eq!(rest, "");
        self.server.0.wait().unwrap()
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn modern() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.329"},
        "io.modelcontextprotocol/clientCapabilities": {}})
}

#[test]
fn a_client_of_2025_11_25_is_told_to_check_the_brain_and_gets_passages() {
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
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
    assert_eq!(tools[0]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools[0]["_meta"]["anthropic/alwaysLoad"], true);

    let answer = client.call(2, json!({"task_description": "cache invalidation after a write"}), None);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(answer["result"].get("structuredContent").is_none(), "the client would hide the text");
    assert!(text(&answer).contains("cache"), "{answer}");
    assert!(text(&answer).lines().any(|line| line.starts_with("> ")), "passages are quoted: {answer}");
    assert!(client.end().success());
}

#[test]
fn a_client_of_2026_07_28_needs_no_handshake() {
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    let mut client = Client::start(&sandbox);
    let found = client.ask(
        &json!({"jsonrpc": "2.0", "id": "probe", "method": "server/discover", "params": {"_meta": modern()}}),
    );
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{found}");
    assert!(found["result"]["instructions"].as_str().unwrap().contains("Always check the brain first"));
    let tools = client
        .ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern()}}));
    assert_eq!(tools["result"]["tools"][0]["name"], "get_relevant_context");
    let answer = client.call(2, json!({"task_description": "bounded worker pools"}), Some(modern()));
    assert!(text(&answer).contains("worker"), "{answer}");
    assert!(client.end().success());
}

#[test]
fn malformed_requests_get_protocol_errors_and_the_server_lives_on() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    for arguments in [json!({}), json!({"task_description": 7}), json!({"task_description": "  "})] {
        let answer = client.call(7, arguments.clone(), None);
        assert_eq!(answer["error"]["code"], -32602, "{arguments}: {answer}");
    }
    let answer = client.ask(&json!({"jsonrpc": "2.0", "id": 8, "method": "no/such/method"}));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer = client.ask(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "other", "arguments": {}}}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let answer = client.call(10, json!({"task_description": "anything"}), None);
    assert!(text(&answer).contains("othing"), "an empty brain says so: {answer}");
    assert!(client.end().success());
}

#[test]
fn what_is_merged_while_the_server_runs_is_found_by_the_next_call() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let before = client.call(1, json!({"task_description": "stop goroutines from piling up"}), None);
    assert!(!text(&before).contains("goroutine"), "{before}");
    copy_brain(&sandbox);
    crate::support::until("the new units are found", || {
        // Looked for from outside: the server must see the files by itself.
        sandbox.json(["index", "--json"])["units"] == 20
    });
    let mut id = 1;
    let found = std::cell::RefCell::new(client);
    let counter = std::cell::RefCell::new(&mut id);
    crate::support::until("the server answers from them", || {
        **counter.borrow_mut() += 1;
        let answer = found.borrow_mut().call(
            **counter.borrow(),
            json!({"task_description": "stop goroutines from piling up"}),
            None,
        );
        text(&answer).contains("worker")
    });
    assert!(found.into_inner().end().success());
}

#[test]
fn a_server_whose_stdin_ends_at_once_goes_quietly() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.run(["serve"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
}
