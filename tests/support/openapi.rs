//! GitHub's own description of its API, to check requests and the local GitHub's answers against.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

/// Reduced by `github_openapi.mjs`, which names the source. Fields that neither nugget nor the tests read
/// are left out, so a field that is missing here counts as invented.
static EXTRACT: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let extract: Value = serde_json::from_str(include_str!("github_openapi.json")).unwrap();
    extract["operations"].as_object().unwrap().clone()
});

/// Returns what the description finds wrong with a request. The path is without the API's base.
pub(crate) fn request_mistakes(
    method: &str,
    path: &str,
    query: &BTreeMap<String, String>,
    body: &Value,
) -> Vec<String> {
    let Some(operation) = operation(method, path) else {
        return vec![format!("{method} {path} is not in the description")];
    };
    let mut mistakes = Vec::new();
    for (name, value) in query {
        let schema = &operation["query"][name];
        let as_number = value.parse::<i64>().map(Value::from).ok();
        let value = as_number.unwrap_or_else(|| Value::from(value.as_str()));
        match schema {
            Value::Null => mistakes.push(format!("query {name} is not in the description")),
            schema => check(schema, &value, &format!("query {name}"), &mut mistakes),
        }
    }
    match (&operation["body"], body) {
        (Value::Null, Value::Null) => {}
        (Value::Null, _) => mistakes.push("an unexpected body".to_owned()),
        (schema, body) => check(schema, body, "body", &mut mistakes),
    }
    mistakes.into_iter().map(|mistake| format!("{method} {path}: {mistake}")).collect()
}

/// Returns what the description finds wrong with an answer. A status that the description does not name is
/// not checked: it names neither rate limits nor all refusals.
pub(crate) fn response_mistakes(method: &str, path: &str, status: u16, body: &Value) -> Vec<String> {
    let Some(operation) = operation(method, path) else { return Vec::new() };
    let mut mistakes = Vec::new();
    match operation["answers"].get(status.to_string()) {
        // The description may have no schema for a refusal.
        Some(Value::Null) if !body.is_null() && status < 400 => {
            mistakes.push("an unexpected body".to_owned())
        }
        Some(schema) if !schema.is_null() => check(schema, body, "body", &mut mistakes),
        None if status < 300 => mistakes.push("this success status is not in the description".to_owned()),
        _ => {}
    }
    mistakes.into_iter().map(|mistake| format!("{method} {path} answers {status}: {mistake}")).collect()
}

fn operation(method: &str, path: &str) -> Option<&'static Value> {
    EXTRACT.iter().find_map(|(name, operation)| {
        let (of, pattern) = name.split_once(' ')?;
        let (mut parts, mut wanted) = (path.split('/'), pattern.split('/'));
        let is_it = loop {
            match (parts.next(), wanted.next()) {
                (None, None) => break true,
                // A ref contains slashes.
                (Some(_), Some("{ref}")) => break true,
                (Some(part), Some(wanted)) if wanted.starts_with('{') || part == wanted => {}
                _ => break false,
            }
        };
        (is_it && of.eq_ignore_ascii_case(method)).then_some(operation)
    })
}

/// Checks the parts of JSON Schema that the description uses.
fn check(schema: &Value, value: &Value, at: &str, mistakes: &mut Vec<String>) {
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let tried = choices.iter().map(|schema| {
                let mut mistakes = Vec::new();
                check(schema, value, at, &mut mistakes);
                mistakes
            });
            let best = tried.min_by_key(Vec::len);
            return mistakes.extend(best.unwrap_or_default());
        }
    }
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let is_right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !is_right {
        return mistakes.push(format!("{at} is {value}, not {}", schema["type"]));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        mistakes.push(format!("{at} is {value}, none of {allowed:?}"));
    }
    if schema["format"] == "date-time"
        && value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_err())
    {
        mistakes.push(format!("{at} is {value}, which is no date and time"));
    }
    for item in value.as_array().into_iter().flatten() {
        check(&schema["items"], item, &format!("{at}[]"), mistakes);
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else { return };
    for (name, value) in fields {
        match known.get(name) {
            Some(schema) => check(schema, value, &format!("{at}.{name}"), mistakes),
            None => mistakes.push(format!("{at}.{name} is not in the description")),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            mistakes.push(format!("{at}.{required} is missing"));
        }
    }
}
