//! What `nugget status` shows, and what its JSON promises.

use serde_json::{Value, json};

use crate::support::{Sandbox, fixture, until};

/// Checks a value against the part of JSON Schema that the schema uses; names what is wrong.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) {
    for keyword in schema.as_object().unwrap().keys() {
        let known = [
            "$schema",
            "$defs",
            "$ref",
            "title",
            "description",
            "type",
            "enum",
            "format",
            "minimum",
            "required",
            "properties",
            "additionalProperties",
            "propertyNames",
            "items",
        ];
        assert!(known.contains(&keyword.as_str()), "{at}: this test does not know {keyword}");
    }
    if let Some(name) = schema["$ref"].as_str() {
        return check(root, root.pointer(name.strip_prefix('#').unwrap()).unwrap(), value, at);
    }
    if let Some(kinds) = schema.get("type") {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let allowed = kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.contains(&json!(kind)));
        assert!(allowed, "{at} is {value}, not {kinds}");
    }
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at} is {value}, none of {words:?}");
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64()) {
        assert!(number >= least, "{at} is {number}");
    }
    if let (Some("date-time"), Some(text)) = (schema["format"].as_str(), value.as_str()) {
        assert!(text.parse::<jiff::Timestamp>().is_ok(), "{at} is {text}");
    }
    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
        check(root, &schema["items"], item, &format!("{at}[{i}]"));
    }
    let Some(object) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(object.contains_key(name.as_str().unwrap()), "{at} has no {name}");
    }
    for (name, value) in object {
        let at = format!("{at}.{name}");
        if let Some(names) = schema.get("propertyNames") {
            check(root, names, &json!(name), &at);
        }
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => check(root, schema, value, &at),
            (None, schema @ Value::Object(_)) => check(root, schema, value, &at),
            (None, rest) => assert_ne!(rest, &json!(false), "{at} is not in the schema"),
        }
    }
}

fn schema(sandbox: &Sandbox) -> Value {
    sandbox.json(["status", "--schema"])
}

#[test]
fn its_json_is_as_the_schema_says() {
    let sandbox = Sandbox::with_brain();
    let schema = schema(&sandbox);
    let look = || {
        let status = sandbox.json(["status", "--json"]);
        check(&schema, &schema, &status, "status");
        status
    };
    assert_eq!(look()["drainer"]["running"], false);
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    let status = look();
    assert_eq!(status["captures"].as_array().unwrap().len(), 2);
    assert!(status["sweep"]["at"].is_string(), "{status}");
}

#[test]
fn a_schema_that_is_not_kept_is_noticed() {
    let sandbox = Sandbox::with_brain();
    let schema = schema(&sandbox);
    let status = sandbox.json(["status", "--json"]);
    let wrong = [
        ("/queue/done", json!(-1)),
        ("/spooled", json!("1")),
        ("/drainer/more", json!(1)),
        ("/sweep", json!({})),
    ];
    for (path, value) in wrong {
        let mut status = status.clone();
        match status.pointer_mut(path) {
            Some(place) => *place = value,
            None => status["drainer"]["more"] = value,
        }
        let noticed = std::panic::catch_unwind(|| check(&schema, &schema, &status, "status"));
        assert!(noticed.is_err(), "{path}");
    }
}

#[test]
fn while_a_drainer_runs_its_actors_are_shown() {
    let sandbox = Sandbox::with_brain();
    let mut command = sandbox.command();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    command
        .args(["capture-session", "--transcript"])
        .arg(transcript)
        .env("NUGGET_DRAINER_LINGER_SECONDS", "3600");
    assert!(command.output().unwrap().status.success());
    until("the drainer has reported", || sandbox.json(["status", "--json"])["drainer"]["actors"].is_array());
    let status = sandbox.json(["status", "--json"]);
    let schema = schema(&sandbox);
    check(&schema, &schema, &status, "status");
    let text = sandbox.ok(["status"]);
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("ACTOR")).take(6).collect();
    let names: Vec<&str> = table.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["ACTOR", "embedding", "indexing", "intake", "extraction", "git"], "{text}");
    assert!(
        table[0].contains("STATE") && table[0].contains("MAILBOX") && table[0].contains("RESTARTS"),
        "{text}"
    );
    // It would stay for an hour.
    let pid = status["drainer"]["pid"].as_i64().unwrap().to_string();
    assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
}

#[test]
fn watching_needs_a_terminal() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.run(["status", "--watch"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("--watch needs a terminal") && stderr.contains("hint: "), "{stderr}");
    assert!(output.stdout.is_empty());
    for other in ["--json", "--schema"] {
        assert_eq!(sandbox.run(["status", "--watch", other]).status.code(), Some(2));
    }
}
