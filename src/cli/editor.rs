//! Lets a person edit a text with their editor.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use knowledge::Document;
use knowledge::document::with_crlf;
use tempfile::NamedTempFile;
use transcript::redact::redact;

use crate::error::{CliError, USAGE};
use crate::note_change::without_secrets;

/// Why a text is refused in which a conflict is left.
const CONFLICT_PROBLEM: &str = "the text still has conflict markers";
/// What a shell ends with if there is no such command, or it may not be run.
const COMMAND_NOT_FOUND: i32 = 127;
const COMMAND_NOT_EXECUTABLE: i32 = 126;

/// The text after the person has edited it, in a file with this ending. A text with a problem is refused and kept, and
/// so is one of an editor that failed; `unchanged` says what was not done then, as "nothing was merged".
pub(crate) fn edit(
    text: &str,
    ending: &str,
    unchanged: &str,
    problem: impl Fn(&str) -> Option<String>,
) -> Result<String, CliError> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty()));
    let editor = match editor {
        Some(editor) => editor,
        None if std::io::stdin().is_terminal() => "vi".to_owned(),
        None => {
            return Err(CliError::new("there is no editor")
                .code(USAGE)
                .hint("set EDITOR to the command of yours"));
        }
    };
    let mut file = tempfile::Builder::new().prefix("nugget-").suffix(ending).tempfile()?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    // Through a shell, as git does: the variable may hold arguments. Its output is not the command's result.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$@\""), &editor])
        .arg(file.path())
        .stdout(if std::io::stdout().is_terminal() { Stdio::inherit() } else { Stdio::null() })
        .status()
        .map_err(|error| CliError::new(format!("failed to start {editor}: {error}")).hint("set EDITOR"))?;
    if !status.success() {
        let error = CliError::new(format!("{editor} ended with {status}, so {unchanged}"));
        let is_changed = std::fs::read(file.path())
            .is_ok_and(|edited| edited != text.as_bytes() && !edited.trim_ascii().is_empty());
        return Err(match status.code() {
            _ if is_changed => keep(file, error, unchanged),
            Some(COMMAND_NOT_FOUND | COMMAND_NOT_EXECUTABLE) => {
                error.hint("the shell cannot start it: set $VISUAL or $EDITOR to the command of your editor")
            }
            _ => error.hint("end it without an error to save what it wrote"),
        });
    }
    let (file, edited) = read_edited(file, unchanged)?;
    if edited.trim().is_empty() {
        return Err(CliError::new(format!("the file is empty, so {unchanged}")));
    }
    match problem(&edited) {
        None => Ok(edited),
        Some(problem) => Err(keep(file, CliError::new(problem), unchanged)),
    }
}

/// The edited text and its file, which is kept if it is not UTF-8.
fn read_edited(file: NamedTempFile, unchanged: &str) -> Result<(NamedTempFile, String), CliError> {
    // Read by its name: many editors replace the file.
    let edited = std::fs::read(file.path()).map_err(|error| {
        CliError::new(format!("the file that was edited cannot be read: {}: {error}", file.path().display()))
            .hint(unchanged)
    })?;
    match String::from_utf8(edited) {
        Ok(edited) => Ok((file, edited)),
        Err(_) => {
            let error = CliError::new("the text is not UTF-8");
            Err(keep(file, error, unchanged))
        }
    }
}

/// The error with a hint that says where the edited file is kept, after its own hint.
fn keep(file: NamedTempFile, error: CliError, unchanged: &str) -> CliError {
    with_place(error, unchanged, &keep_file(file))
}

/// Keeps a text that was edited and could not be written for this reason, in a file that the hint names.
pub(crate) fn keep_text(text: &str, ending: &str, error: CliError, unchanged: &str) -> CliError {
    with_place(error, unchanged, &keep_in_file(text, ending))
}

fn with_place(error: CliError, unchanged: &str, place: &str) -> CliError {
    let hint = error.hint.as_ref().map(|hint| format!("{hint}; ")).unwrap_or_default();
    error.hint(format!("{hint}{unchanged}; {place}"))
}

/// Keeps a text in a file, and says where.
pub(crate) fn keep_in_file(text: &str, ending: &str) -> String {
    let file = tempfile::Builder::new().prefix("nugget-").suffix(ending).tempfile();
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file));
    written.map_or_else(|failed| not_kept(&failed), keep_file)
}

fn keep_file(file: NamedTempFile) -> String {
    match file.into_temp_path().keep() {
        Ok(kept) => format!("to paste when you edit again, your text is kept in {}", kept.display()),
        Err(failed) => not_kept(&failed.error),
    }
}

fn not_kept(failed: &std::io::Error) -> String {
    format!("your text could not be kept: {failed}")
}

/// The text of a brain's file at this path after the person has edited it, without secrets, of which a warning tells.
pub(crate) fn edit_unit(
    text: &str,
    path: &str,
    unchanged: &str,
    problem: impl Fn(&str) -> Option<String>,
) -> Result<String, CliError> {
    // A placeholder may break what a secret did not.
    let edited = edit(text, ".md", unchanged, |edited| {
        redacted_problem(edited, text, path).or_else(|| problem(&redact(edited)))
    })?;
    Ok(if edited == text { edited } else { without_secrets(&with_line_ends_of(text, edited), "text") })
}

/// An edited text, with the line ends of the one before where they were all the same: an editor may add lines with others.
fn with_line_ends_of(before: &str, edited: String) -> String {
    match before.matches('\n').count() {
        lines if lines > 0 && lines == before.matches("\r\n").count() => with_crlf(&edited),
        _ => edited,
    }
}

/// Why a text without its secrets cannot replace another one in the file of a brain at this path.
fn redacted_problem(text: &str, before: &str, path: &str) -> Option<String> {
    let found = unit_problem(&redact(text), before, path)?;
    Some(match unit_problem(text, before, path) {
        Some(_) => found,
        None => "a secret is in the front matter, such as in its tags: take it out".to_owned(),
    })
}

/// Why an edited text cannot be merged that has kept a line of a conflict, also within code: one that the text that was
/// `proposed` did not have before git `combined` it with the main branch's.
pub(crate) fn conflict_problem(proposed: &str, combined: &str, edited: &str) -> Option<String> {
    let is_kept = git::CONFLICT_LINES.iter().any(|mark| {
        let [own, given, kept] =
            [proposed, combined, edited].map(|text| text.lines().filter(|line| line == mark).count());
        given > own && kept > own
    });
    is_kept.then(|| CONFLICT_PROBLEM.to_owned())
}

/// Why a text cannot replace another one in the file of a brain at this path.
fn unit_problem(text: &str, before: &str, path: &str) -> Option<String> {
    let has_front_matter =
        |text: &str| Document::parse(text).is_ok_and(|document| document.has_front_matter());
    if knowledge::text::conflict_line(text).is_some() {
        return Some(CONFLICT_PROBLEM.to_owned());
    }
    if text.len() as u64 > git::BLOB_BYTES_MAX {
        let limit = git::BLOB_BYTES_MAX / 1024;
        return Some(format!(
            "the text has {} KiB; a file of a brain has {limit} KiB at most",
            text.len() / 1024
        ));
    }
    if Path::new(path).extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let unit = Document::parse(text).and_then(|document| document.unit(path));
    if unit.is_ok() && has_front_matter(before) && !has_front_matter(text) {
        return Some("the front matter is missing: the lines from --- to ---".to_owned());
    }
    unit.err().map(|error| format!("the text is no unit: line {}: {}", error.line, error.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unit_without_conflicts_is_merged() {
        let path = "domains/coding/bugs/pools.md";
        let unit = "---\ntype: bug\ntitle: Pools\n---\n\n# Pools\n";
        assert_eq!(unit_problem(unit, unit, path), None);
        assert_eq!(unit_problem("# Pools\n", "# Pool\n", path), None);
        let without = unit_problem("# Pools\n", unit, path).unwrap();
        assert!(without.starts_with("the front matter is missing"), "{without}");
        let cut = unit_problem("---\n\n# Pools\n", unit, path).unwrap();
        assert!(cut.starts_with("the front matter is missing"), "{cut}");
        let conflict = "---\ntype: bug\n---\n<<<<<<< main\na\n=======\nb\n>>>>>>> proposed\n";
        assert_eq!(
            unit_problem(conflict, unit, path).as_deref(),
            Some("the text still has conflict markers")
        );
        let large = unit_problem(&format!("{unit}{}", "x".repeat(1 << 20)), unit, path).unwrap();
        assert_eq!(large, "the text has 1024 KiB; a file of a brain has 1024 KiB at most");
        let invalid = unit_problem("---\ntype: [\n---\n", unit, path).unwrap();
        assert!(invalid.starts_with("the text is no unit: line "), "{invalid}");
        assert_eq!(unit_problem("anything", unit, "notes.txt"), None);
    }

    #[test]
    fn a_secret_among_the_tags_is_named_as_the_problem() {
        let secret = format!("ghp_{}", "abcdefghijklmnopqrstuvwxyz0123456789");
        let unit = "---\ntype: bug\ntags: [net]\n---\n\n# Pools\n";
        let problem = |text: &str| redacted_problem(text, unit, "domains/coding/bugs/pools.md");
        let found = problem(&unit.replace("net", &secret)).unwrap();
        assert!(found.starts_with("a secret is in the front matter"), "{found}");
        assert_eq!(problem(&unit.replace("# Pools", &secret)), None);
        assert!(problem(&unit.replace("[net]", "[[net]]")).unwrap().starts_with("the text is no unit"));
    }

    #[test]
    fn lines_that_an_editor_adds_end_as_the_others_do() {
        assert_eq!(with_line_ends_of("a\r\nb\r\n", "a\r\nc\nb\r\n".into()), "a\r\nc\r\nb\r\n");
        for before in ["a\nb\r\n", "a\n", ""] {
            assert_eq!(with_line_ends_of(before, "a\r\nc\n".into()), "a\r\nc\n", "{before:?}");
        }
    }

    #[test]
    fn an_editor_that_removes_the_file_is_told_of() {
        let file = tempfile::Builder::new().suffix(".md").tempfile().unwrap();
        let path = file.path().display().to_string();
        std::fs::remove_file(file.path()).unwrap();
        let error = read_edited(file, "nothing was proposed").unwrap_err();
        assert!(error.message.contains(&path), "{error:?}");
        assert_eq!(error.hint.as_deref(), Some("nothing was proposed"));
    }

    #[test]
    fn a_text_that_is_not_utf8_is_kept() {
        let mut file = tempfile::Builder::new().suffix(".md").tempfile().unwrap();
        file.write_all(b"caf\xe9").unwrap();
        let kept = file.path().to_owned();
        let error = read_edited(file, "nothing was proposed").unwrap_err();
        assert!(error.message.contains("not UTF-8"), "{error:?}");
        assert!(error.hint.unwrap().contains(&kept.display().to_string()));
        assert_eq!(std::fs::read(&kept).unwrap(), b"caf\xe9");
        std::fs::remove_file(kept).unwrap();
    }
}
