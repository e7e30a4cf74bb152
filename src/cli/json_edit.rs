//! Adds entries to JSON files that belong to somebody else, and takes them out again.
//!
//! Whatever is in the file stays byte for byte where it is, order, indentation and line ends included. A file with
//! comments or trailing commas, which the client does not read, is refused. It never reads or writes a file itself.

use jsonc_parser::cst::{CstNode, CstRootNode};
use jsonc_parser::{CollectOptions, ParseOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const BOM: &str = "\u{feff}";
const UNIT: &str = "  ";

/// Something to be in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The keys that lead to the container, from the root.
    pub(crate) path: Vec<String>,
    /// The member's name; `None` for one more element of a list.
    pub(crate) key: Option<String>,
    pub(crate) value: Value,
}

impl Entry {
    pub(crate) fn new(path: &[&str], key: Option<&str>, value: Value) -> Self {
        Self { path: path.iter().copied().map(str::to_owned).collect(), key: key.map(str::to_owned), value }
    }
}

/// What [`add`] has done, for [`remove`] to undo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) entry: Entry,
    /// How many keys of the path were there before; the containers behind them are ours.
    pub(crate) present: usize,
    /// Absent in the records of earlier versions.
    pub(crate) edit: Option<Edit>,
}

/// The one stretch of a text that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Edit {
    before: String,
    after: String,
}

/// Why a file is left alone.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error("{what} (line {line}, column {column})")]
    Syntax { line: usize, column: usize, what: String },
    #[error("`{name}` is not {wanted} (line {line})")]
    Kind { name: String, wanted: &'static str, line: usize },
    #[error("`{name}` is there already, with another value (line {line})")]
    Taken { name: String, line: usize },
}

/// The text with the entry in it, and how to take it out; `None` when it is there already.
///
/// # Errors
/// When the text is not JSON, or has something else where the entry belongs.
pub(crate) fn add(text: &str, entry: &Entry) -> Result<Option<(String, Added)>, Error> {
    let (bom, body) = without_bom(text);
    let newline = if body.contains("\r\n") { "\r\n" } else { "\n" };
    let shell = format!("{{{newline}}}{newline}");
    let body = if body.trim().is_empty() { &shell } else { body };
    let root = parse(body, Syntax::Json)?;
    let containers = walk(body, &root, &entry.path)?;
    let present = containers.len() - 1;
    let container = &containers[present];
    let rest = &entry.path[present..];
    if rest.is_empty() {
        let is_it = |there: &CstNode| there.to_serde_value().as_ref() == Some(&entry.value);
        match (container.as_object(), &entry.key) {
            (Some(_), Some(key)) => match member(container, key) {
                Some(there) if is_it(&there) => return Ok(None),
                Some(there) => {
                    let line = line_of(body, &there);
                    return Err(Error::Taken { name: dotted(&entry.path, Some(key)), line });
                }
                None => {}
            },
            (None, None) if elements(container).iter().any(is_it) => return Ok(None),
            (None, None) => {}
            (_, key) => {
                let wanted = if key.is_some() { "an object" } else { "a list" };
                let line = line_of(body, container);
                return Err(Error::Kind { name: dotted(&entry.path, None), wanted, line });
            }
        }
    }
    let (key, value) = match rest.split_first() {
        Some((first, more)) => (Some(first), nested(more, entry)),
        None => (entry.key.as_ref(), entry.value.clone()),
    };
    let unit = root.single_indent_text().filter(|unit| !unit.is_empty()).unwrap_or_else(|| UNIT.to_owned());
    let (at, edit) = insertion(body, newline, &unit, container, key, &value);
    let made = format!("{bom}{}{}{}", &body[..at], edit.after, &body[at + edit.before.len()..]);
    Ok(Some((made, Added { entry: entry.clone(), present, edit: Some(edit) })))
}

/// The text without what was added; `None` when it is not there any more. Where somebody has written into the
/// inserted text since, blanks around it may differ from those before.
///
/// # Errors
/// When the text is not JSON, with comments and trailing commas at most: earlier versions wrote into such files.
pub(crate) fn remove(text: &str, added: &Added) -> Result<Option<String>, Error> {
    let (bom, body) = without_bom(text);
    if body.trim().is_empty() {
        return Ok(None);
    }
    let root = parse(body, Syntax::WithComments)?;
    let Added { entry, present, edit } = added;
    let Ok(containers) = walk(body, &root, &entry.path) else { return Ok(None) };
    let Some(container) = containers.get(entry.path.len()) else { return Ok(None) };
    let is_ours =
        |child: &CstNode| name(child) == entry.key && child.to_serde_value().as_ref() == Some(&entry.value);
    let Some(mut node) = elements(container).into_iter().rfind(is_ours) else { return Ok(None) };
    if let Some(Edit { before, after }) = edit {
        let at = offset(&node);
        let mut places = body.match_indices(after.as_str()).map(|(start, _)| start..start + after.len());
        if let Some(place) = places.find(|place| place.contains(&at)) {
            return Ok(Some(format!("{bom}{}{before}{}", &body[..place.start], &body[place.end..])));
        }
    }
    // The containers that were made for the entry go with it, if nobody has put anything else into them.
    for container in containers[present + 1..].iter().rev() {
        let is_alone =
            elements(container).len() == 1 && !container.children().iter().any(CstNode::is_comment);
        match container.parent() {
            Some(member) if is_alone => node = member.into(),
            _ => break,
        }
    }
    node.remove();
    Ok(Some(format!("{bom}{root}")))
}

/// What a file says; `Null` when it is blank.
pub(crate) fn value(text: &str) -> Result<Value, Error> {
    let (_, body) = without_bom(text);
    if body.trim().is_empty() {
        return Ok(Value::Null);
    }
    Ok(parse(body, Syntax::Json)?.to_serde_value().unwrap_or_default())
}

#[derive(PartialEq, Eq)]
enum Syntax {
    Json,
    WithComments,
}

/// A tree of the text, which lives as long as its root. The root's value is an object.
fn parse(body: &str, syntax: Syntax) -> Result<CstRootNode, Error> {
    let options = ParseOptions {
        allow_comments: syntax == Syntax::WithComments,
        allow_trailing_commas: syntax == Syntax::WithComments,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    // A tree that has comments never refuses them.
    let checked = jsonc_parser::parse_to_ast(body, &CollectOptions::default(), &options);
    let root = checked.and_then(|_| CstRootNode::parse(body, &options)).map_err(|error| {
        let mut what = error.kind().to_string();
        what[..1].make_ascii_lowercase();
        Error::Syntax { line: error.line_display(), column: error.column_display(), what }
    })?;
    match root.value() {
        Some(value) if value.as_object().is_some() => Ok(root),
        Some(other) => {
            Err(Error::Kind { name: dotted(&[], None), wanted: "an object", line: line_of(body, &other) })
        }
        None => Err(Error::Syntax { line: 1, column: 1, what: "there is no value".to_owned() }),
    }
}

/// The containers along a path, the root's value first, as far as they are there.
fn walk(body: &str, root: &CstRootNode, path: &[String]) -> Result<Vec<CstNode>, Error> {
    let mut containers: Vec<CstNode> = root.value().into_iter().collect();
    for (depth, key) in path.iter().enumerate() {
        let kind = |depth: usize, wanted, node: &CstNode| Error::Kind {
            name: dotted(&path[..depth], None),
            wanted,
            line: line_of(body, node),
        };
        let container = &containers[depth];
        if container.as_object().is_none() {
            return Err(kind(depth, "an object", container));
        }
        let Some(member) = member(container, key) else { break };
        match member.as_object_prop().and_then(|member| member.value()) {
            Some(value @ CstNode::Container(_)) => containers.push(value),
            _ => return Err(kind(depth + 1, "an object or a list", &member)),
        }
    }
    Ok(containers)
}

/// Of a key that stands twice the last counts, as for the client.
fn member(object: &CstNode, key: &str) -> Option<CstNode> {
    elements(object).into_iter().rfind(|member| name(member).as_deref() == Some(key))
}

fn name(member: &CstNode) -> Option<String> {
    member.as_object_prop()?.decoded_name()
}

fn elements(container: &CstNode) -> Vec<CstNode> {
    container.children_exclude_trivia_and_tokens()
}

fn nested(path: &[String], entry: &Entry) -> Value {
    let inner = match &entry.key {
        Some(key) => json!({ key: entry.value }),
        None => json!([entry.value]),
    };
    path.iter().rev().fold(inner, |value, key| json!({ key: value }))
}

/// Where and how one more child is written at the end of a container.
fn insertion(
    body: &str,
    newline: &str,
    unit: &str,
    container: &CstNode,
    key: Option<&String>,
    value: &Value,
) -> (usize, Edit) {
    let children = elements(container);
    let outer = indent_at(body, offset(container));
    let many_lines = match children.first() {
        Some(first) => first.previous_siblings().any(|node| node.is_newline()),
        None => body.trim().contains('\n') || container.parent().is_some_and(|parent| parent.is_root()),
    };
    let indent = match children.first() {
        Some(first) if many_lines => indent_at(body, offset(first)).to_owned(),
        _ => format!("{outer}{unit}"),
    };
    let gap = if many_lines { format!("{newline}{indent}") } else { " ".to_owned() };
    let value = if many_lines { pretty(value, unit, &gap) } else { value.to_string() };
    let child = key.map_or_else(|| value.clone(), |key| format!("{}: {value}", json!(key)));
    let Some(last) = children.last() else {
        // All of it, so that what is written before or behind the child makes it another text.
        let before = container.to_string();
        let (inside, close) = before.split_at(before.len() - 1);
        let inside = inside.trim_end();
        let after = match many_lines {
            true => format!("{inside}{gap}{child}{newline}{outer}{close}"),
            false => format!("{inside}{child}{close}"),
        };
        return (offset(container), Edit { before, after });
    };
    let behind = offset(last) + last.to_string().len();
    (behind, Edit { before: String::new(), after: format!(",{gap}{child}") })
}

fn pretty(value: &Value, unit: &str, gap: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).replace('\n', gap),
        Err(_) => value.to_string(),
    }
}

/// How many bytes of the text stand before a node.
fn offset(node: &CstNode) -> usize {
    let within = |node: &CstNode| node.previous_siblings().map(|node| node.to_string().len()).sum::<usize>();
    within(node) + node.ancestors().map(|ancestor| within(&ancestor.into())).sum::<usize>()
}

fn line_of(body: &str, node: &CstNode) -> usize {
    body[..offset(node)].matches('\n').count() + 1
}

/// The blanks at the beginning of the line.
fn indent_at(body: &str, at: usize) -> &str {
    let line = body[..at].rsplit('\n').next().unwrap_or_default();
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn without_bom(text: &str) -> (&str, &str) {
    text.strip_prefix(BOM).map_or(("", text), |body| (BOM, body))
}

fn dotted(path: &[String], key: Option<&String>) -> String {
    let name: Vec<&str> = path.iter().chain(key).map(String::as_str).collect();
    if name.is_empty() { "the file".to_owned() } else { name.join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow() -> Entry {
        Entry::new(&["permissions", "allow"], None, json!("tool"))
    }

    /// What is added stands where it should, and taking it out gives every byte back.
    #[track_caller]
    fn check(before: &str, expected: &str) {
        let (after, added) = add(before, &allow()).unwrap().unwrap();
        assert_eq!(after, expected);
        assert_eq!(add(&after, &allow()).unwrap(), None, "a second time nothing is added");
        assert_eq!(remove(&after, &added).unwrap().as_deref(), Some(before));
        assert_eq!(remove(before, &added).unwrap(), None);
    }

    #[test]
    fn an_entry_is_written_as_the_file_is_written() {
        check(
            "{\n  \"model\": \"opus\"\n}\n",
            "{\n  \"model\": \"opus\",\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  }\n}\n",
        );
        check("{\"a\":1}", "{\"a\":1, \"permissions\": {\"allow\":[\"tool\"]}}");
        check("{}", "{\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  }\n}");
        check(
            "{\n\t\"permissions\": {\n\t\t\"allow\": [\n\t\t\t\"x\"\n\t\t]\n\t}\n}",
            "{\n\t\"permissions\": {\n\t\t\"allow\": [\n\t\t\t\"x\",\n\t\t\t\"tool\"\n\t\t]\n\t}\n}",
        );
        check(
            "{\r\n  \"permissions\": { \"allow\": [\"x\", \"y\"] }\r\n}\r\n",
            "{\r\n  \"permissions\": { \"allow\": [\"x\", \"y\", \"tool\"] }\r\n}\r\n",
        );
        check(
            "\u{feff}{\n  \"permissions\": {\n    \"allow\": []\n  }\n}\n",
            "\u{feff}{\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  }\n}\n",
        );
    }

    #[test]
    fn what_others_have_added_since_stays() {
        let before = "{\n  \"a\": 1\n}\n";
        let (after, added) = add(before, &allow()).unwrap().unwrap();
        let edited =
            after.replace("\"tool\"\n", "\"tool\",\n      \"theirs\"\n").replace("\"a\": 1", "\"a\": 2");
        assert_eq!(
            remove(&edited, &added).unwrap().unwrap(),
            "{\n  \"a\": 2,\n  \"permissions\": {\n    \"allow\": [\n      \"theirs\"\n    ]\n  }\n}\n"
        );
        let appended = after.replace("]\n  }\n}", "]\n  },\n  \"z\": 3\n}");
        assert_eq!(remove(&appended, &added).unwrap().unwrap(), "{\n  \"a\": 1,\n  \"z\": 3\n}\n");
    }

    #[test]
    fn the_record_of_an_earlier_version_is_undone() {
        let (after, _) = add("{\n  \"a\": 1\n}\n", &allow()).unwrap().unwrap();
        let record = json!({ "entry": allow(), "present": 0, "blank": null });
        let added: Added = serde_json::from_value(record).unwrap();
        let with_comment = |text: &str| text.replace("\"a\"", "// mine\n  \"a\"");
        let removed = remove(&with_comment(&after), &added).unwrap().unwrap();
        assert_eq!(removed, "{\n  // mine\n  \"a\": 1\n}\n");
    }

    #[test]
    fn several_entries_go_in_and_out_in_any_order() {
        let entries = [
            allow(),
            Entry::new(
                &["hooks", "SessionEnd"],
                None,
                json!({"hooks": [{"type": "command", "command": "x"}]}),
            ),
            Entry::new(&["hooks", "SessionStart"], None, json!({"hooks": []})),
            Entry::new(&["mcpServers"], Some("nugget"), json!({"command": "nugget", "args": ["serve"]})),
        ];
        for before in ["{}", "{ }", "{\n}\n", "{\"hooks\": {}}", "{\n  \"hooks\": {\n  },\n  \"x\": []\n}"] {
            let mut text = before.to_owned();
            let mut all = Vec::new();
            for entry in &entries {
                let (next, added) = add(&text, entry).unwrap().unwrap();
                text = next;
                all.push(added);
            }
            for added in all.iter().rev() {
                text = remove(&text, added).unwrap().unwrap();
            }
            assert_eq!(text, before);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let check = |text: &str, expected: &str| {
            assert_eq!(add(text, &allow()).unwrap_err().to_string(), expected, "{text}");
        };
        check("{\n  \"a\": 1\n  \"b\": 2\n}", "expected comma (line 2, column 9)");
        check("{\"a\": 1", "unterminated object (line 1, column 1)");
        check("{\n  \"a\": 1 // one\n}", "comments are not allowed (line 2, column 10)");
        check("{\n  \"a\": 1,\n}", "trailing commas are not allowed (line 2, column 9)");
        check("[]", "`the file` is not an object (line 1)");
        check("{\n\"permissions\": []}", "`permissions` is not an object (line 2)");
        check("{\"permissions\": {\"allow\": {}}}", "`permissions.allow` is not a list (line 1)");
        check("{\"permissions\": null}", "`permissions` is not an object or a list (line 1)");
        let taken = Entry::new(&["mcpServers"], Some("nugget"), json!({}));
        let error = add("{\"mcpServers\": {\"nugget\": 1}}", &taken).unwrap_err();
        assert_eq!(error.to_string(), "`mcpServers.nugget` is there already, with another value (line 1)");
    }
}
