//! The commit of a reflection pass: its branch's name, and its message, which says why each file is changed.

use std::collections::BTreeMap;

use knowledge::text;
use reflect::FileChange;

/// The beginning of the name of a branch that the reflection pass makes.
pub(crate) const REFLECTION_BRANCH_PREFIX: &str = "nugget/reflection-";

const REASON_CHARS_MAX: usize = 300;

/// What was found, and why each file is changed.
pub(crate) fn reflection_message(findings: usize, changes: &[FileChange]) -> String {
    let plural = if findings == 1 { "finding" } else { "findings" };
    let mut message = format!("Tidy up: {findings} {plural}\n\nFound by `nugget reflect`.\n\n");
    for FileChange { path, reasons, .. } in changes {
        message.push_str(&format!("- {path}\n"));
        for reason in reasons {
            let reason = text::escape_forge_syntax(&text::one_line(reason, REASON_CHARS_MAX));
            message.push_str(&format!("  {reason}\n"));
        }
    }
    message
}

/// The reasons in such a message, by the paths of the files.
pub(crate) fn reasons_by_file(message: &str) -> BTreeMap<String, Vec<String>> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut path = None;
    for line in message.lines() {
        if let Some(named) = line.strip_prefix("- ") {
            path = Some(named.to_owned());
        } else if let (Some(path), Some(reason)) = (&path, line.strip_prefix("  ")) {
            reasons.entry(path.clone()).or_default().push(reason.to_owned());
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_are_read_back_from_the_message() {
        let change = |path: &str, reasons: &[&str]| FileChange {
            path: path.to_owned(),
            text: None,
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        };
        let changes =
            [change("domains/a.md", &["one\n- domains/b.md", "two"]), change("domains/b.md", &["- x"])];
        let read = reasons_by_file(&reflection_message(3, &changes));
        assert_eq!(read["domains/a.md"], ["one - domains/b.md", "two"]);
        assert_eq!(read["domains/b.md"], ["- x"]);
        assert_eq!(read.len(), 2);
    }
}
