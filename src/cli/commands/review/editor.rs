//! Lets a person edit a unit with their editor.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use knowledge::Document;

use crate::error::{CliError, USAGE};

/// What git writes around lines that both sides have changed.
const CONFLICT_MARKS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// The text after the person has edited it. What cannot be a unit is refused, and the file is kept.
pub(super) fn edit(text: &str, path: &str) -> Result<String, CliError> {
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
    let mut file = tempfile::Builder::new().prefix("nugget-").suffix(".md").tempfile()?;
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
        return Err(CliError::new(format!("{editor} ended with {status}, so nothing was merged"))
            .hint("end it without an error to merge what it saved"));
    }
    // Read by its name: many editors replace the file.
    let edited = std::fs::read_to_string(file.path())?;
    match problem(&edited, path) {
        None => Ok(edited),
        Some(problem) if edited.trim().is_empty() => Err(CliError::new(problem)),
        Some(problem) => {
            let kept = file.into_temp_path().keep().map_err(|error| error.error)?;
            Err(CliError::new(problem)
                .hint(format!("nothing was merged; your text is kept in {}", kept.display())))
        }
    }
}

/// Why a text cannot be merged as the unit at this path.
fn problem(text: &str, path: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some("the file is empty, so nothing was merged".to_owned());
    }
    if text.lines().any(|line| CONFLICT_MARKS.iter().any(|mark| line.starts_with(mark))) {
        return Some("the text still has conflict markers".to_owned());
    }
    if Path::new(path).extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let unit = Document::parse(text).and_then(|document| document.unit(path));
    unit.err().map(|error| format!("the text is no unit: line {}: {}", error.line, error.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unit_without_conflicts_is_merged() {
        let path = "domains/coding/bugs/pools.md";
        assert_eq!(problem("---\ntype: bug\ntitle: Pools\n---\n\n# Pools\n", path), None);
        assert_eq!(problem(" \n", path).as_deref(), Some("the file is empty, so nothing was merged"));
        let conflict = "---\ntype: bug\n---\n<<<<<<< main\na\n=======\nb\n>>>>>>> proposed\n";
        assert_eq!(problem(conflict, path).as_deref(), Some("the text still has conflict markers"));
        let invalid = problem("---\ntype: [\n---\n", path).unwrap();
        assert!(invalid.starts_with("the text is no unit: line "), "{invalid}");
        assert_eq!(problem("anything", "notes.txt"), None);
    }
}
