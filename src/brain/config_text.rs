//! Sets one setting in the text of a configuration file. Every other byte stays, comments too.
//!
//! TOML has several ways to write the same setting. Edits are tried in turn, and the first one counts whose result reads
//! as the old text with only that setting changed; so no edit can change anything else.

use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// The text with a setting set. `None` if the text is not TOML, or writes settings in a way that no edit fits.
pub(crate) fn set(text: &str, name: &str, value: &Value) -> Option<String> {
    let mut wanted: Table = text.parse().ok()?;
    let (table, key) = split(name);
    match table {
        None => wanted.insert(key.to_owned(), value.clone()),
        Some(table) => {
            let table = wanted.entry(table).or_insert_with(|| Table::new().into());
            table.as_table_mut()?.insert(key.to_owned(), value.clone())
        }
    };
    edits(text, name, value)?.into_iter().map(|edit| apply(text, &edit)).find(|text| reads_as(text, &wanted))
}

/// The text without a setting, and without its table if that has nothing else; `None` as for [`set`], and if it is not set.
pub(crate) fn unset(text: &str, name: &str) -> Option<String> {
    let mut wanted: Table = text.parse().ok()?;
    let (table, key) = split(name);
    match table {
        None => wanted.remove(key)?,
        Some(table) => wanted.get_mut(table)?.as_table_mut()?.remove(key)?,
    };
    let root = DeTable::parse(text).ok()?;
    let (_, span) = entry(root.get_ref(), name)?;
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[span.end..].find('\n').map_or(text.len(), |at| span.end + at + 1);
    let mut without = text.to_owned();
    without.replace_range(start..end, "");
    if !reads_as(&without, &wanted) {
        return None;
    }
    let is_empty = |table: &&str| wanted[*table].as_table().is_some_and(Table::is_empty);
    Some(match table.filter(is_empty).and_then(|table| without_head(&without, table)) {
        Some(shorter) => shorter,
        None => without,
    })
}

/// The text without the head of an empty table and the blank lines before it, unless a comment is about the table.
fn without_head(text: &str, table: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let head = lines.iter().position(|line| line.trim() == format!("[{table}]"))?;
    let is_blank = |line: &&&str| line.trim().is_empty();
    let is_comment = |line: Option<&&str>| line.is_some_and(|line| line.trim_start().starts_with('#'));
    let below = lines[head + 1..].iter().find(|line| !line.trim().is_empty());
    if is_comment(below) || head.checked_sub(1).is_some_and(|above| is_comment(lines.get(above))) {
        return None;
    }
    let blank = lines[..head].iter().rev().take_while(is_blank).count();
    let mut wanted: Table = text.parse().ok()?;
    wanted.remove(table);
    let shorter = [&lines[..head - blank], &lines[head + 1..]].concat().concat();
    reads_as(&shorter, &wanted).then_some(shorter)
}

/// A range of the text and what stands there instead.
type Edit = (Range<usize>, String);

fn edits(text: &str, name: &str, value: &Value) -> Option<Vec<Edit>> {
    let root = DeTable::parse(text).ok()?;
    let (table, key) = split(name);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
    let insert = |at: usize, line: &str| {
        let begin = if at == 0 || text[..at].ends_with('\n') { "" } else { "\n" };
        (at..at, format!("{begin}{line}\n"))
    };
    let mut edits = Vec::new();
    if let Some((value_span, _)) = entry(root.get_ref(), name) {
        edits.push((value_span, value.to_string()));
        return Some(edits);
    }
    let (own, full) = (format!("{key} = {value}"), format!("{name} = {value}"));
    let siblings = match table {
        None => Some(root.get_ref()),
        Some(table) => root.get_ref().get(table).and_then(|found| found.get_ref().as_table()),
    };
    // Below the last setting of the same table.
    let last =
        siblings.into_iter().flat_map(DeTable::values).filter(|value| value.get_ref().as_table().is_none());
    if let Some(last) = last.map(|value| value.span().end).max() {
        edits.extend([insert(line_end(last), &own), insert(line_end(last), &full)]);
    }
    // Below the head of a table without settings.
    if let Some(table) = table {
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            at += line.len();
            if line.split('#').next().unwrap_or_default().trim() == format!("[{table}]") {
                edits.push(insert(at, &own));
            }
        }
        let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
        edits.push(insert(text.len(), &format!("{gap}[{table}]\n{own}")));
    }
    edits.push(insert(0, &full));
    Some(edits)
}

/// The ranges of a setting's value, and of the setting with its name.
fn entry(root: &DeTable<'_>, name: &str) -> Option<(Range<usize>, Range<usize>)> {
    let (table, key) = split(name);
    let siblings = match table {
        None => root,
        Some(table) => root.get(table)?.get_ref().as_table()?,
    };
    let (key, value): (&Spanned<_>, &Spanned<DeValue<'_>>) = siblings.get_key_value(key)?;
    Some((value.span(), key.span().start..value.span().end))
}

fn apply(text: &str, (range, new): &Edit) -> String {
    let mut edited = text.to_owned();
    edited.replace_range(range.clone(), new);
    edited
}

fn reads_as(text: &str, wanted: &Table) -> bool {
    text.parse::<Table>().is_ok_and(|read| read == *wanted)
}

fn split(name: &str) -> (Option<&str>, &str) {
    match name.rsplit_once('.') {
        Some((table, key)) => (Some(table), key),
        None => (None, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str, value: impl Into<Value>, expected: &str) {
        assert_eq!(set(text, name, &value.into()).as_deref(), Some(expected));
    }

    #[test]
    fn a_value_is_replaced_and_its_comment_stays() {
        check(
            "# mine\nbrain = '/b' # here\n\n[retrieve]\n  limit   = 3  # few\nrerank = \"off\"\n",
            "retrieve.limit",
            5,
            "# mine\nbrain = '/b' # here\n\n[retrieve]\n  limit   = 5  # few\nrerank = \"off\"\n",
        );
        check("retrieve.limit = 3", "retrieve.limit", 5, "retrieve.limit = 5");
        check(
            "retrieve = { limit = 3, rerank = 'off' }\n",
            "retrieve.limit",
            5,
            "retrieve = { limit = 5, rerank = 'off' }\n",
        );
    }

    #[test]
    fn a_new_setting_stands_with_those_of_its_table() {
        check("", "retrieve.limit", 5, "[retrieve]\nlimit = 5\n");
        check("brain = '/b'", "retrieve.limit", 5, "brain = '/b'\n\n[retrieve]\nlimit = 5\n");
        check(
            "[retrieve]\nlimit = 5\n[embed]\n",
            "retrieve.rerank",
            "off",
            "[retrieve]\nlimit = 5\nrerank = \"off\"\n[embed]\n",
        );
        check(
            "[retrieve] # empty\n# nothing\n",
            "retrieve.limit",
            5,
            "[retrieve] # empty\nlimit = 5\n# nothing\n",
        );
        check(
            "retrieve.limit = 3\n[embed]\n",
            "retrieve.rerank",
            "off",
            "retrieve.limit = 3\nretrieve.rerank = \"off\"\n[embed]\n",
        );
        check(
            "# mine\n[embed]\nmodel = ''\n",
            "brain",
            "/b",
            "brain = \"/b\"\n# mine\n[embed]\nmodel = ''\n",
        );
        check("a = 1 # one\n[embed]\n", "brain", "/b \"q\"", "a = 1 # one\nbrain = '/b \"q\"'\n[embed]\n");
    }

    #[test]
    fn what_no_edit_fits_is_left_alone() {
        for text in ["retrieve = 3\n", "[retrieve\n"] {
            assert_eq!(set(text, "retrieve.limit", &5.into()), None, "{text}");
        }
    }

    #[test]
    fn a_setting_is_removed_with_its_line() {
        let text = "# mine\n[retrieve]\nlimit = 3 # few\nrerank = \"off\"\n";
        assert_eq!(unset(text, "retrieve.limit").unwrap(), "# mine\n[retrieve]\nrerank = \"off\"\n");
        assert_eq!(unset(text, "retrieve.budget_tokens"), None);
        // The table goes with its last setting, unless a comment is about it.
        let last = "brain = '/b'\n\n[retrieve]\nlimit = 3\n\n[embed]\nmodel = ''\n";
        assert_eq!(unset(last, "retrieve.limit").unwrap(), "brain = '/b'\n\n[embed]\nmodel = ''\n");
        assert_eq!(unset("[retrieve]\nlimit = 3\n", "retrieve.limit").unwrap(), "");
        let noted = "[retrieve]\n# few\nlimit = 3\n";
        assert_eq!(unset(noted, "retrieve.limit").unwrap(), "[retrieve]\n# few\n");
        // Removing this line would remove the other setting too.
        assert_eq!(unset("retrieve = { limit = 3, rerank = 'off' }\n", "retrieve.limit"), None);
    }
}
