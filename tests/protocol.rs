//! Every line on the server's stdin gets an answer or an error, with the request's id where it has one.
//!
//! The cases are of the kinds of JSONTestSuite (github.com/nst/JSONTestSuite) and of JSON-RPC 2.0, section 5.1.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::{Sandbox, wait_until};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const WRONG_PARAMETERS: i64 = -32602;

/// A line, and the ids and codes of what answers it; code 0 stands for a result.
type Case = (Vec<u8>, Vec<(Value, i64)>);

fn refused(line: impl Into<Vec<u8>>, id: Value, code: i64) -> Case {
    (line.into(), vec![(id, code)])
}

fn unparsable(line: impl Into<Vec<u8>>) -> Case {
    refused(line, Value::Null, PARSE_ERROR)
}

fn invalid(message: &Value, id: Value) -> Case {
    refused(message.to_string(), id, INVALID_REQUEST)
}

/// Lines that are no JSON.
fn broken_json() -> Vec<Case> {
    let request = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":[1,"x\n"]}}"#;
    let mut cases: Vec<Case> = (1..request.len()).map(|end| unparsable(&request.as_bytes()[..end])).collect();
    let lines = [
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,,2]",
        "[1:2]",
        "[",
        "]",
        "[1",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1}}",
        "{\"a\":1} x",
        "[1] 2",
        "nul",
        "True",
        "undefined",
        "NaN",
        "Infinity",
        "-",
        "+1",
        ".5",
        "5.",
        "01",
        "1e",
        "1e+",
        "0x1",
        "1.2.3",
        "--1",
        "\"",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\",
        "'a'",
        "\"a\tb\"",
        "\"\u{1}\"",
        "/* */ {}",
        "{} // x",
        " ",
        "\t",
        "\u{2060}{}",
        "{\"a\":\u{a0}1}",
        "<html>",
        "Content-Length: 10",
    ];
    cases.extend(lines.map(unparsable));
    let in_string = |bytes: &[u8]| {
        [br#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":""#, bytes, br#""}}"#].concat()
    };
    for bytes in
        [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\x80", b"\xf4\x90\x80\x80", b"a\0b"]
    {
        cases.push(unparsable(in_string(bytes)));
    }
    cases.extend([&b"\0"[..], b"\xff\xfe{\0}\0", b"{}\0"].map(unparsable));
    cases.push(unparsable("[".repeat(100_000)));
    cases.push(unparsable("{\"a\":".repeat(100_000)));
    cases
}

/// JSON that is no request.
fn invalid_requests() -> Vec<Case> {
    let mut cases = Vec::new();
    for value in ["null", "true", "0", "-0", "1.5e3", "\"x\"", "[]", "{}", "{\"\":0}"] {
        cases.push(refused(value, Value::Null, INVALID_REQUEST));
    }
    for (number, version) in
        [json!(null), json!(2), json!(2.0), json!("1.0"), json!("2.0 "), json!([]), json!({})]
            .into_iter()
            .enumerate()
    {
        let id = json!(format!("version {number}"));
        cases.push(invalid(&json!({"jsonrpc": version, "id": id, "method": "ping"}), id));
    }
    cases.push(invalid(&json!({"id": 11, "method": "ping"}), json!(11)));
    cases.push(invalid(&json!({"jsonrpc": "2.0", "id": 12}), json!(12)));
    for method in [json!(null), json!(1), json!(true), json!([]), json!({})] {
        cases.push(invalid(&json!({"jsonrpc": "2.0", "id": 13, "method": method}), json!(13)));
        cases.push(invalid(&json!({"jsonrpc": "2.0", "method": method}), Value::Null));
    }
    for id in [json!(null), json!(true), json!([1]), json!({"a": 1})] {
        cases.push(invalid(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}), Value::Null));
    }
    // What cannot be kept as it is, is repeated all the same.
    for id in [json!(1.5), json!(u64::MAX)] {
        cases.push(invalid(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}), id));
    }
    for member in ["result", "error"] {
        cases.push(invalid(&json!({"jsonrpc": "2.0", "id": 14, "method": "ping", member: {}}), json!(14)));
    }
    cases.push(invalid(&json!({"jsonrpc": "2.0", "id": 15, "result": {}, "error": {}}), json!(15)));
    cases.push(invalid(&json!({"jsonrpc": "2.0", "id": 16, "error": "late"}), json!(16)));
    cases.push(invalid(&json!({"jsonrpc": "2.0", "result": {}}), Value::Null));
    // Beyond what is read, with an id.
    let with = |parameter: &str| {
        format!(r#"{{"params":{{"a":{parameter}}},"method":"ping","jsonrpc":"2.0","id":17}}"#)
    };
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for parameter in [deep(200), deep(100_000), "1e999".to_owned(), "9".repeat(400)] {
        cases.push(refused(with(&parameter), json!(17), INVALID_REQUEST));
    }
    cases.push(refused("x".repeat(17 << 20), Value::Null, INVALID_REQUEST));
    cases
}

/// Requests with parameters of the wrong type, or of unknown methods.
fn wrong_calls() -> Vec<Case> {
    let mut cases = Vec::new();
    for params in [json!(1), json!("x"), json!(true), json!([]), json!([1])] {
        for method in ["ping", "tools/list", "tools/call", "no/such/method"] {
            let id = json!(format!("{method} {params}"));
            let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            cases.push(refused(message.to_string(), id, WRONG_PARAMETERS));
        }
    }
    for (number, params) in [
        json!({}),
        json!({"name": 7}),
        json!({"name": null, "arguments": {}}),
        json!({"name": "get_relevant_context", "arguments": []}),
        json!({"name": "get_relevant_context", "arguments": "x"}),
        json!({"name": "get_relevant_context", "arguments": {}}),
        json!({"name": "get_relevant_context", "arguments": {"task_description": [1]}}),
    ]
    .into_iter()
    .enumerate()
    {
        let id = json!(format!("call {number}"));
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        cases.push(refused(message.to_string(), id, WRONG_PARAMETERS));
    }
    for method in ["", "no/such/method", "tools", "Ping", "rpc.x", "notifications/initialized", "\u{0}"] {
        let id = json!(format!("method {method}"));
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        cases.push(refused(message.to_string(), id, UNKNOWN_METHOD));
    }
    cases
}

/// What gets results, and what is never answered.
fn answered_or_silent() -> Vec<Case> {
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let mut cases = vec![
        // The last of two equal members counts.
        (br#"{"jsonrpc":"2.0","id":21,"id":22,"method":"x","method":"ping"}"#.to_vec(), vec![(json!(22), 0)]),
        (format!("\u{feff} {} \r", ping(json!("marked"))).into_bytes(), vec![(json!("marked"), 0)]),
        (
            json!([ping(json!(23)), 7, ping(json!(24)), [], {"jsonrpc": "2.0", "method": "notifications/x"}])
                .to_string()
                .into_bytes(),
            vec![
                (json!(23), 0),
                (Value::Null, INVALID_REQUEST),
                (json!(24), 0),
                (Value::Null, INVALID_REQUEST),
            ],
        ),
        (
            json!({"jsonrpc": "2.0", "id": "", "method": "ping", "params": null}).to_string().into_bytes(),
            vec![(json!(""), 0)],
        ),
        (ping(json!(i64::MIN)).to_string().into_bytes(), vec![(json!(i64::MIN), 0)]),
    ];
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized", "params": [1]}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}),
        json!({"jsonrpc": "2.0", "method": "no/such/notification", "params": 1}),
        json!({"jsonrpc": "2.0", "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "x"}}),
    ] {
        cases.push((message.to_string().into_bytes(), Vec::new()));
    }
    cases.extend([(Vec::new(), Vec::new()), (b"\r".to_vec(), Vec::new())]);
    cases
}

fn send(client: &mut Client, line: &[u8]) {
    let stdin = client.stdin.as_mut().unwrap();
    stdin.write_all(line).and_then(|()| stdin.write_all(b"\n")).unwrap();
}

#[test]
fn every_line_gets_an_answer_or_an_error_with_its_id() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let cases: Vec<Case> = [broken_json(), invalid_requests(), wrong_calls(), answered_or_silent()]
        .into_iter()
        .flatten()
        .collect();
    println!("{} cases", cases.len());
    assert!(cases.len() > 200);
    for (number, (line, expected)) in cases.iter().enumerate() {
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        send(&mut client, line);
        // Its answer shows that nothing else is to come for a line that gets none.
        let marker = json!(format!("marker {number}"));
        send(&mut client, json!({"jsonrpc": "2.0", "id": marker, "method": "ping"}).to_string().as_bytes());
        let mut received = Vec::new();
        for _ in 0..=expected.len() {
            let message = client.receive();
            assert_eq!(message.get("result").is_some(), message.get("error").is_none(), "{shown}: {message}");
            received.push((message["id"].clone(), message["error"]["code"].as_i64().unwrap_or(0)));
        }
        let mut wanted: Vec<_> = expected.iter().cloned().chain([(marker, 0)]).collect();
        let by_text = |answer: &(Value, i64)| format!("{answer:?}");
        wanted.sort_by_key(by_text);
        received.sort_by_key(by_text);
        assert_eq!(received, wanted, "{shown:?}");
    }
    assert!(client.close().success());
}

#[test]
fn a_line_without_an_end_is_answered_when_stdin_ends() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    client.stdin.as_mut().unwrap().write_all(br#"{"jsonrpc":"2.0","id":1,"#).unwrap();
    drop(client.stdin.take());
    let answer = client.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(PARSE_ERROR)), "{answer}");
    assert!(client.close().success());
}

#[test]
fn the_handshake_survives_what_comes_before_it() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    for silent in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        "",
    ] {
        client.send(silent);
    }
    for (line, code) in [
        ("nonsense", PARSE_ERROR),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":7}}"#,
            WRONG_PARAMETERS,
        ),
        (r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#, WRONG_PARAMETERS),
    ] {
        client.send(line);
        let answer = client.receive();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    assert_eq!(client.initialize()["result"]["protocolVersion"], "2025-11-25");
    assert!(client.close().success());
}

#[test]
fn a_second_request_with_an_unanswered_id_is_refused() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "get_relevant_context",
        "arguments": {"task_description": "cranes"}}});
    let calls = 20;
    for _ in 0..calls {
        client.send(&call.to_string());
    }
    let answers: Vec<Value> = (0..calls).map(|_| client.receive()).collect();
    assert!(answers.iter().all(|answer| answer["id"] == 5), "{answers:?}");
    assert!(answers.iter().any(|answer| answer.get("result").is_some()), "{answers:?}");
    assert!(client.close().success());
}

#[test]
fn a_server_whose_stdout_is_closed_ends() {
    let sandbox = Sandbox::with_brain();
    let mut client = Client::start(&sandbox);
    client.initialize();
    let Client { mut server, stdin, stdout } = client;
    drop(stdout);
    // Nothing is asked, and stdin stays open.
    let ended = std::cell::RefCell::new(&mut server);
    wait_until("the server has ended", || ended.borrow_mut().0.try_wait().unwrap().is_some());
    drop(stdin);
}
