//! Adds entries to JSON files that belong to somebody else, and takes them out again.
//!
//! Only insertions are made: whatever is in the file stays byte for byte where it is, comments, order,
//! indentation and line ends included, so that taking the insertions out gives the file as it was. It never
//! reads or writes a file itself.

use jsonc_parser::ast::{Object, Value as Ast};
use jsonc_parser::common::{Range, Ranged as _};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What [`add`] has done, for [`remove`] to undo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) entry: Entry,
    /// How many keys of the path were there before; the containers behind them are ours.
    pub(crate) present: usize,
    /// What stood within the braces of the container that was there, if no more than blanks.
    pub(crate) blank: Option<String>,
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
/// When the text is not JSON (with comments and trailing commas, at most), or has something else where the
/// entry belongs.
pub(crate) fn add(text: &str, entry: &Entry) -> Result<Option<(String, Added)>, Error> {
    let (bom, body) = without_bom(text);
    if body.trim().is_empty() {
        let newline = newline_of(body);
        let shell = format!("{{{newline}}}{newline}");
        let Some((made, added)) = add(&shell, entry)? else { return Ok(None) };
        return Ok(Some((format!("{bom}{made}"), Added { present: 0, ..added })));
    }
    let root = parse(body)?;
    let found = walk(body, &root, &entry.path)?;
    let at = found.containers.len() - 1;
    let container = *found.containers.last().unwrap_or(&&root);
    let rest = &entry.path[at..];
    if rest.is_empty() {
        match (container, &entry.key) {
            (Ast::Array(list), None) => {
                if list.elements.iter().any(|element| to_json(element) == entry.value) {
                    return Ok(None);
                }
            }
            (Ast::Object(object), Some(key)) => {
                if let Some(property) = last(object, key) {
                    if to_json(&property.value) == entry.value {
                        return Ok(None);
                    }
                    let line = line_of(body, property.range.start);
                    return Err(Error::Taken { name: dotted(&entry.path, Some(key)), line });
                }
            }
            (other, key) => {
                let wanted = if key.is_some() { "an object" } else { "a list" };
                let line = line_of(body, other.range().start);
                return Err(Error::Kind { name: dotted(&entry.path, None), wanted, line });
            }
        }
    }
    let (key, value) = match rest.split_first() {
        Some((first, more)) => (Some(first), nested(more, entry)),
        None => (entry.key.as_ref(), entry.value.clone()),
    };
    let (made, blank) = insert(body, &root, container, key, &value);
    let added = Added { entry: entry.clone(), present: at, blank };
    Ok(Some((format!("{bom}{made}"), added)))
}

/// The text without what was added; `None` when it is not there any more.
///
/// # Errors
/// When the text is not JSON.
pub(crate) fn remove(text: &str, added: &Added) -> Result<Option<String>, Error> {
    let (bom, body) = without_bom(text);
    if body.trim().is_empty() {
        return Ok(None);
    }
    let root = parse(body)?;
    let Added { entry, present, blank } = added;
    let Ok(found) = walk(body, &root, &entry.path) else { return Ok(None) };
    if found.containers.len() != entry.path.len() + 1 {
        return Ok(None);
    }
    let mut depth = entry.path.len();
    let mut container = found.containers[depth];
    let children = children(container);
    let is_ours = |index: &usize| match (container, &entry.key) {
        (Ast::Array(list), None) => to_json(&list.elements[*index]) == entry.value,
        (Ast::Object(object), Some(key)) => {
            let property = &object.properties[*index];
            property.name.as_str() == key && to_json(&property.value) == entry.value
        }
        _ => false,
    };
    let Some(mut index) = (0..children.len()).rev().find(is_ours) else { return Ok(None) };
    // The containers that were made for the entry go with it, if nobody has put anything else into them.
    while depth > *present && self::children(container).len() == 1 && is_blank_but(body, container, index) {
        depth -= 1;
        let key = &entry.path[depth];
        container = found.containers[depth];
        let Ast::Object(object) = container else { return Ok(None) };
        let Some(place) = object.properties.iter().rposition(|property| property.name.as_str() == key) else {
            return Ok(None);
        };
        index = place;
    }
    let left = self::children(container).len() - 1;
    if let Some(blank) = blank.as_ref().filter(|_| left == 0 && depth == *present)
        && is_blank_but(body, container, index)
    {
        let inner = inner(container);
        return Ok(Some(format!("{bom}{}{blank}{}", &body[..inner.start], &body[inner.end..])));
    }
    Ok(Some(format!("{bom}{}", cut(body, container, index))))
}

/// Where a value stands, for a look at what a file says.
pub(crate) fn get(text: &str, path: &[&str]) -> Result<Option<Value>, Error> {
    let (_, body) = without_bom(text);
    if body.trim().is_empty() {
        return Ok(None);
    }
    let root = to_json(&parse(body)?);
    let mut at = Some(&root);
    for key in path {
        at = at.and_then(|value| value.get(key));
    }
    Ok(at.cloned())
}

fn parse(body: &str) -> Result<Ast<'_>, Error> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(body, &CollectOptions::default(), &options).map_err(|error| {
        let what = error.kind().to_string();
        let mut letters = what.chars();
        let first = letters.next().map(|first| first.to_ascii_lowercase()).into_iter();
        Error::Syntax {
            line: error.line_display(),
            column: error.column_display(),
            what: first.chain(letters).collect(),
        }
    })?;
    match parsed.value {
        Some(value @ Ast::Object(_)) => Ok(value),
        Some(other) => Err(Error::Kind {
            name: "the file".to_owned(),
            wanted: "an object",
            line: line_of(body, other.range().start),
        }),
        None => Err(Error::Syntax { line: 1, column: 1, what: "there is no value".to_owned() }),
    }
}

/// The containers along a path, the root first, as far as they are there.
struct Walk<'b, 'a> {
    containers: Vec<&'b Ast<'a>>,
}

fn walk<'b, 'a>(body: &str, root: &'b Ast<'a>, path: &[String]) -> Result<Walk<'b, 'a>, Error> {
    let mut containers = vec![root];
    let mut at = root;
    for (depth, key) in path.iter().enumerate() {
        let Ast::Object(object) = at else {
            let line = line_of(body, at.range().start);
            return Err(Error::Kind { name: dotted(&path[..depth], None), wanted: "an object", line });
        };
        let Some(property) = last(object, key) else { break };
        at = &property.value;
        if !matches!(at, Ast::Object(_) | Ast::Array(_)) {
            let line = line_of(body, property.range.start);
            return Err(Error::Kind {
                name: dotted(&path[..=depth], None),
                wanted: "an object or a list",
                line,
            });
        }
        containers.push(at);
    }
    Ok(Walk { containers })
}

/// Of a key that stands twice the last counts, as for the client.
fn last<'b, 'a>(object: &'b Object<'a>, key: &str) -> Option<&'b jsonc_parser::ast::ObjectProp<'a>> {
    object.properties.iter().rev().find(|property| property.name.as_str() == key)
}

fn nested(path: &[String], entry: &Entry) -> Value {
    let inner = match &entry.key {
        Some(key) => Value::Object([(key.clone(), entry.value.clone())].into_iter().collect()),
        None => Value::Array(vec![entry.value.clone()]),
    };
    path.iter().rev().fold(inner, |value, key| Value::Object([(key.clone(), value)].into_iter().collect()))
}

/// The text with one more child at the end of a container, and what stood in the container if no more than
/// blanks.
fn insert(
    body: &str,
    root: &Ast<'_>,
    container: &Ast<'_>,
    key: Option<&String>,
    value: &Value,
) -> (String, Option<String>) {
    let newline = newline_of(body);
    let unit = unit_of(body, root);
    let children = children(container);
    let inside = inner(container);
    let blank = body[inside.clone()].trim().is_empty().then(|| body[inside.clone()].to_owned());
    let outer = indent_at(body, container.range().start);
    let many_lines = match children.first() {
        Some(first) => body[inside.start..first.start].contains('\n'),
        None => body[root.range().start..root.range().end].contains('\n') || outer_is_root(root, container),
    };
    let indent = match children.first() {
        Some(first) if many_lines => indent_at(body, first.start).to_owned(),
        _ => format!("{outer}{unit}"),
    };
    let child = if many_lines { lines(key, value, &indent, &unit, newline) } else { line(key, value) };
    let before = if many_lines { format!("{newline}{indent}") } else { " ".to_owned() };
    let Some(end) = children.last().map(|last| last.end) else {
        // Behind a comment, if there is one.
        let at = inside.start + end_of_comments(&body[inside.clone()]);
        let closed = body[at..inside.end].contains('\n');
        let after = match (many_lines, closed) {
            (true, false) => format!("{newline}{outer}"),
            _ => String::new(),
        };
        let before = if many_lines { before } else { String::new() };
        return (format!("{}{before}{child}{after}{}", &body[..at], &body[at..]), blank);
    };
    let comma = next_token(body, end).filter(|&at| body.as_bytes()[at] == b',');
    let (first, second, tail) = match comma {
        Some(comma) => (comma + 1, String::new(), ","),
        None => (end, ",".to_owned(), ""),
    };
    let place = end_of_line_comment(body, first);
    let made =
        format!("{}{second}{}{before}{child}{tail}{}", &body[..first], &body[first..place], &body[place..]);
    (made, blank)
}

fn outer_is_root(root: &Ast<'_>, container: &Ast<'_>) -> bool {
    root.range().start == container.range().start
}

/// The text without one child: with the blanks before it and the comma that goes with it.
fn cut(body: &str, container: &Ast<'_>, index: usize) -> String {
    let children = children(container);
    let child = &children[index];
    let from = children.get(index.wrapping_sub(1)).map_or(inner(container).start, |before| before.end);
    let follows = next_token(body, child.end).filter(|&at| body.as_bytes()[at] == b',');
    let comma = follows.or_else(|| {
        let before = (index > 0).then(|| next_token(body, from)).flatten();
        before.filter(|&at| at < child.start && body.as_bytes()[at] == b',')
    });
    let blanks = body[..child.start].trim_end().len().max(from);
    // A comment that ends with its line needs that line's end.
    let needs_line = ends_in_line_comment(&body[from..blanks])
        && !body[child.end..].trim_start_matches([' ', '\t', ',']).starts_with(['\n', '\r']);
    let mut cuts = vec![(if needs_line { child.start } else { blanks }, child.end)];
    cuts.extend(comma.map(|at| (at, at + 1)));
    cuts.sort_unstable();
    let mut made = String::with_capacity(body.len());
    let mut at = 0;
    for (start, end) in cuts {
        made.push_str(&body[at..start]);
        at = end;
    }
    made.push_str(&body[at..]);
    made
}

/// Whether a container holds nothing but this child, blanks and a comma.
fn is_blank_but(body: &str, container: &Ast<'_>, index: usize) -> bool {
    let inside = inner(container);
    let child = &children(container)[index];
    let blank = |text: &str| text.trim_matches(|c: char| c.is_whitespace() || c == ',').is_empty();
    blank(&body[inside.start..child.start]) && blank(&body[child.end..inside.end])
}

fn children(container: &Ast<'_>) -> Vec<std::ops::Range<usize>> {
    let of = |range: Range| range.start..range.end;
    match container {
        Ast::Object(object) => object.properties.iter().map(|property| of(property.range)).collect(),
        Ast::Array(list) => list.elements.iter().map(|element| of(element.range())).collect(),
        _ => Vec::new(),
    }
}

/// Between a container's braces.
fn inner(container: &Ast<'_>) -> std::ops::Range<usize> {
    container.range().start + 1..container.range().end - 1
}

/// Where the next thing is that is neither blank nor comment.
fn next_token(body: &str, from: usize) -> Option<usize> {
    let bytes = body.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        at = match comment_end(body, at) {
            Some(end) => end,
            None if bytes[at].is_ascii_whitespace() => at + 1,
            None => return Some(at),
        };
    }
    None
}

fn comment_end(body: &str, at: usize) -> Option<usize> {
    let rest = &body.as_bytes()[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        let end = rest.windows(2).skip(2).position(|two| two == b"*/");
        return Some(at + end.map_or(rest.len(), |end| end + 4));
    }
    None
}

/// Behind the comments that follow on the same line; `from` itself if there is none.
fn end_of_line_comment(body: &str, from: usize) -> usize {
    let (mut at, mut end) = (from, from);
    while at < body.len() {
        match comment_end(body, at) {
            Some(next) => (at, end) = (next, next),
            None if matches!(body.as_bytes()[at], b' ' | b'\t') => at += 1,
            None => break,
        }
    }
    end
}

/// Behind the last comment of a stretch of blanks and comments; 0 if there is none.
fn end_of_comments(inside: &str) -> usize {
    let (mut at, mut end) = (0, 0);
    while at < inside.len() {
        match comment_end(inside, at) {
            Some(next) => (at, end) = (next, next),
            None => at += 1,
        }
    }
    end
}

fn ends_in_line_comment(stretch: &str) -> bool {
    let mut at = 0;
    let mut is_one = false;
    while at < stretch.len() {
        if let Some(end) = comment_end(stretch, at) {
            is_one = stretch[at..].starts_with("//");
            at = end;
        } else {
            is_one &= stretch.as_bytes()[at].is_ascii_whitespace() && stretch.as_bytes()[at] != b'\n';
            at += 1;
        }
    }
    is_one
}

fn to_json(value: &Ast<'_>) -> Value {
    match value {
        Ast::StringLit(text) => Value::String(text.value.clone().into_owned()),
        Ast::NumberLit(number) => serde_json::from_str(number.value).unwrap_or(Value::Null),
        Ast::BooleanLit(is) => Value::Bool(is.value),
        Ast::NullKeyword(_) => Value::Null,
        Ast::Array(list) => Value::Array(list.elements.iter().map(to_json).collect()),
        Ast::Object(object) => {
            let members = object.properties.iter();
            Value::Object(members.map(|one| (one.name.as_str().to_owned(), to_json(&one.value))).collect())
        }
    }
}

fn newline_of(body: &str) -> &'static str {
    if body.contains("\r\n") { "\r\n" } else { "\n" }
}

/// What one level is indented by: as the file has it.
fn unit_of(body: &str, root: &Ast<'_>) -> String {
    let first = children(root).first().map(|first| first.start);
    let first = first.filter(|&first| body[root.range().start..first].contains('\n'));
    let unit = first.map(|first| indent_at(body, first)).unwrap_or_default();
    let outer = indent_at(body, root.range().start);
    let unit = unit.strip_prefix(outer).unwrap_or(unit);
    if unit.is_empty() { UNIT.to_owned() } else { unit.to_owned() }
}

/// The blanks at the beginning of the line.
fn indent_at(body: &str, at: usize) -> &str {
    let start = body[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &body[start..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn lines(key: Option<&String>, value: &Value, indent: &str, unit: &str, newline: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    let value = match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).replace('\n', &format!("{newline}{indent}")),
        Err(_) => value.to_string(),
    };
    key.map_or_else(|| value.clone(), |key| format!("{}: {value}", Value::String(key.clone())))
}

fn line(key: Option<&String>, value: &Value) -> String {
    key.map_or_else(|| value.to_string(), |key| format!("{}: {value}", Value::String(key.clone())))
}

fn without_bom(text: &str) -> (&str, &str) {
    text.strip_prefix(BOM).map_or(("", text), |body| (BOM, body))
}

fn line_of(body: &str, at: usize) -> usize {
    body[..at].matches('\n').count() + 1
}

fn dotted(path: &[String], key: Option<&String>) -> String {
    let name: Vec<&str> = path.iter().chain(key).map(String::as_str).collect();
    if name.is_empty() { "the file".to_owned() } else { name.join(".") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(path: &[&str], key: Option<&str>, value: Value) -> Entry {
        Entry { path: path.iter().map(|key| (*key).to_owned()).collect(), key: key.map(str::to_owned), value }
    }

    fn allow() -> Entry {
        entry(&["permissions", "allow"], None, json!("tool"))
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
    fn comments_and_trailing_commas_stay_where_they_are() {
        check(
            "{\n  \"a\": 1, // one\n}\n",
            "{\n  \"a\": 1, // one\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  },\n}\n",
        );
        check(
            "{\n  \"a\": 1 // one\n}\n",
            "{\n  \"a\": 1, // one\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  }\n}\n",
        );
        check(
            "{\n  // nothing yet\n}\n",
            "{\n  // nothing yet\n  \"permissions\": {\n    \"allow\": [\n      \"tool\"\n    ]\n  }\n}\n",
        );
        check(
            "{ \"permissions\": { \"allow\": [ \"x\" /* why */ ] } }",
            "{ \"permissions\": { \"allow\": [ \"x\", /* why */ \"tool\" ] } }",
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
    fn several_entries_go_in_and_out_in_any_order() {
        let entries = [
            allow(),
            entry(&["hooks", "SessionEnd"], None, json!({"hooks": [{"type": "command", "command": "x"}]})),
            entry(&["hooks", "SessionStart"], None, json!({"hooks": []})),
            entry(&["mcpServers"], Some("nugget"), json!({"command": "nugget", "args": ["serve"]})),
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
        check("[]", "`the file` is not an object (line 1)");
        check("{\n\"permissions\": []}", "`permissions` is not an object (line 2)");
        check("{\"permissions\": {\"allow\": {}}}", "`permissions.allow` is not a list (line 1)");
        check("{\"permissions\": null}", "`permissions` is not an object or a list (line 1)");
        let taken = entry(&["mcpServers"], Some("nugget"), json!({}));
        let error = add("{\"mcpServers\": {\"nugget\": 1}}", &taken).unwrap_err();
        assert_eq!(error.to_string(), "`mcpServers.nugget` is there already, with another value (line 1)");
    }
}
