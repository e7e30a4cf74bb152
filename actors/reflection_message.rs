//! The commit of a reflection pass: its branch's name, and its message, which says why each file is changed. What a
//! message says of files that are one change holds for a person's edit, too.

use std::collections::BTreeMap;

use knowledge::text;
use reflect::FileChange;

/// The beginning of the name of a branch that the reflection pass makes.
pub(crate) const REFLECTION_BRANCH_PREFIX: &str = "nugget/reflection-";

const REASON_CHARS_MAX: usize = 300;
/// What stands before the path of the change that another one is a part of.
const PART_OF: &str = "  Goes with: ";

/// What a message says of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReflectedFile {
    pub(crate) reasons: Vec<String>,
    /// See [`FileChange::part_of`].
    pub(crate) part_of: Option<String>,
}

/// What was found, and why each file is changed.
pub(crate) fn reflection_message(findings: usize, changes: &[FileChange]) -> String {
    let plural = if findings == 1 { "finding" } else { "findings" };
    let mut message = format!("Tidy up: {findings} {plural}\n\nFound by `nugget reflect`.\n\n");
    for FileChange { path, reasons, part_of, .. } in changes {
        message.push_str(&format!("- {path}\n"));
        if let Some(main) = part_of {
            message.push_str(&format!("{PART_OF}{main}\n"));
        }
        for reason in reasons {
            let reason = text::escape_forge_syntax(&text::one_line(reason, REASON_CHARS_MAX));
            message.push_str(&format!("  {reason}\n"));
        }
    }
    message
}

/// A message whose changes are one: all go with the first, so that one decision is made about them.
pub(crate) fn message_of_one_change(subject: &str, paths: &[&str]) -> String {
    let [main, parts @ ..] = paths else { return subject.to_owned() };
    if parts.is_empty() {
        return subject.to_owned();
    }
    let parts = parts.iter().map(|path| format!("- {path}\n{PART_OF}{main}\n"));
    format!("{subject}\n- {main}\n{}", parts.collect::<String>())
}

/// What such a message says, by the paths of the files.
pub(crate) fn reflected_files(message: &str) -> BTreeMap<String, ReflectedFile> {
    let mut files: BTreeMap<String, ReflectedFile> = BTreeMap::new();
    let mut path = None;
    for line in message.lines() {
        if let Some(named) = line.strip_prefix("- ") {
            path = Some(named.to_owned());
            continue;
        }
        let Some(file) = path.clone().map(|path| files.entry(path).or_default()) else { continue };
        if let Some(main) = line.strip_prefix(PART_OF) {
            file.part_of = Some(main.to_owned());
        } else if let Some(reason) = line.strip_prefix("  ") {
            file.reasons.push(reason.to_owned());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_each_file_is_read_back_from_the_message() {
        let change = |path: &str, reasons: &[&str], part_of: Option<&str>| FileChange {
            path: path.to_owned(),
            text: None,
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            part_of: part_of.map(str::to_owned),
        };
        let changes = [
            change("domains/a.md", &["one\n- domains/b.md", "two"], None),
            change("domains/b.md", &["- x"], Some("domains/a.md")),
        ];
        let read = reflected_files(&reflection_message(3, &changes));
        assert_eq!(read["domains/a.md"].reasons, ["one - domains/b.md", "two"]);
        assert_eq!(read["domains/a.md"].part_of, None);
        assert_eq!(read["domains/b.md"].reasons, ["- x"]);
        assert_eq!(read["domains/b.md"].part_of.as_deref(), Some("domains/a.md"));
        assert_eq!(read.len(), 2);
    }
}
