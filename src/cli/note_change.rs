//! What the commands for notes and facts share: how a change is written and what is said of it.

use std::path::Path;

use actors::notes::{NoteError, NoteStore, Written};
use actors::{BrainView, Setup};
use brain::Files as _;
use jiff::Timestamp;
use knowledge::{Scope, Unit, UnitType};
use notes::{NoteFile, Notebook, content};
use serde_json::{Value, json};
use transcript::redact::{redact, redact_value};

use crate::commands::context::full_path;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::lookup::{listed, nearest};
use crate::output;

/// Does something to the notes of the brain, and returns what it printed.
pub(crate) fn change<T>(
    context: &Context,
    message: &str,
    operation: impl FnOnce(&mut Notebook, Timestamp) -> Result<T, notes::Error>,
) -> Result<(T, Written), CliError> {
    let setup = open(context)?;
    let now = Timestamp::now();
    let written = NoteStore::default().write(&setup, message, now, |notebook| operation(notebook, now));
    written.map_err(|error| match error {
        NoteError::Notes(error) => match actors::notes::read(&setup) {
            Ok(notebook) => with_near_names(error, &notebook),
            Err(_) => error.into(),
        },
        error => error.into(),
    })
}

/// The note that a person names.
pub(crate) fn find_note<'a>(notebook: &'a Notebook, name: &str) -> Result<&'a NoteFile, CliError> {
    notebook.find_note(name).map_err(|error| with_near_names(error, notebook))
}

/// An error of a note or fact that is not there, with the names that are like the one that was given.
fn with_near_names(error: notes::Error, notebook: &Notebook) -> CliError {
    let (given, is_fact) = match &error {
        notes::Error::Missing { name } => (name.clone(), false),
        notes::Error::NoFact { key } => (key.clone(), true),
        _ => return error.into(),
    };
    // The key of a fact is its title.
    let names = notebook.notes().filter_map(|note| match is_fact {
        true => (note.unit.kind == UnitType::Fact).then_some(note.unit.title.as_str()),
        false => Some(note.unit.id.as_str()),
    });
    match nearest(names, &given).as_slice() {
        [] => error.into(),
        near => CliError::from(error).hint(format!("did you mean {}?", listed(near))),
    }
}

/// The notes as the index has them: with what is in the files and not committed.
pub(crate) fn read_files(context: &Context) -> Result<Notebook, CliError> {
    let (_, brain, _) = context.open()?;
    let view = BrainView::open(&brain);
    let texts = view.files()?.into_iter().filter_map(|file| {
        let text = view.read(&file.path).ok()?;
        Some((file.path, text))
    });
    Ok(Notebook::new(texts))
}

/// The notes that are changed: those of the last commit.
pub(crate) fn read(context: &Context) -> Result<Notebook, CliError> {
    Ok(actors::notes::read(&open(context)?)?)
}

pub(crate) fn open(context: &Context) -> Result<Setup, CliError> {
    let (config, brain, _) = context.open()?;
    context.setup(&config, &brain)
}

/// Prints what was done, and where it is now.
pub(crate) fn print_written(
    said: &str,
    written: &Written,
    details: Value,
    as_json: bool,
) -> Result<(), CliError> {
    if as_json {
        let mut object = details;
        object["changed"] = json!(*written != Written::Unchanged);
        match written {
            Written::Unchanged => {}
            Written::Committed { commit, is_unpushed } => {
                object["commit"] = json!(commit);
                object["unpushed"] = json!(is_unpushed);
            }
            Written::Proposed { branch, why } => {
                object["branch"] = json!(branch);
                object["why"] = json!(why);
            }
        }
        return output::print_json(&object);
    }
    let place = match written {
        Written::Unchanged => String::new(),
        Written::Committed { is_unpushed: false, .. } => String::new(),
        Written::Committed { is_unpushed: true, .. } => {
            "committed here; `git push origin HEAD` in the brain sends it to your other machines\n".to_owned()
        }
        Written::Proposed { branch, why } => {
            let why = why.as_deref().map(|why| format!(" ({})", output::safe(why))).unwrap_or_default();
            format!("waits for review on branch {branch}{why}\nreview: nugget review\n")
        }
    };
    output::print(&format!("{said}\n{place}"))
}

/// A person's text as it is written: without secrets, of which a warning tells.
pub(crate) fn without_secrets(text: &str, what: &str) -> String {
    warned(redact(text).into_owned(), text, what)
}

/// A fact's value as it is written: also without a secret that only its key tells.
pub(crate) fn value_without_secrets(key: &str, value: &str) -> String {
    warned(redact_value(key, value), value, "value")
}

/// The tags as they are written: without those that are secrets, which a tag's lower case would hide.
pub(crate) fn tags_without_secrets(mut tags: Vec<String>) -> Vec<String> {
    let all = tags.len();
    tags.retain(|tag| *redact(tag) == **tag);
    if tags.len() < all {
        output::note("warning: a secret among the tags was left out: a brain is shared by git");
    }
    tags
}

fn warned(redacted: String, text: &str, what: &str) -> String {
    if redacted != text {
        output::note(&format!("warning: a secret in the {what} was replaced: a brain is shared by git"));
    }
    redacted
}

/// The place in the code of the folder that the command runs in.
pub(crate) fn scope_of(path: Option<&str>, is_here: bool) -> Result<Vec<Scope>, CliError> {
    if path.is_none() && !is_here {
        return Ok(Vec::new());
    }
    let folder = std::env::current_dir()?;
    let project = ::archive::Project::from_folder(&folder);
    let path = path.map(|path| path_within(&project.path, path)).transpose()?;
    // Without a remote it is a path of this machine, which says nothing on another one.
    let repository = Some(project.key).filter(|key| !key.starts_with('/'));
    if repository.is_none() && path.is_none() {
        return Err(CliError::new(
            "this folder's project has no remote, by which other machines would know it",
        )
        .code(USAGE)
        .hint("name a file with --path, or leave --here out"));
    }
    Ok(vec![Scope { repository, path, ..Scope::default() }])
}

/// A path of the command line, as a scope has it: within the project, whose root it may also begin at.
fn path_within(root: &Path, given: &str) -> Result<String, CliError> {
    let refused = |what: String| {
        CliError::new(what).code(USAGE).hint("--path names a file or a folder of the project that you are in")
    };
    if given.trim().is_empty() {
        return Err(refused("the path is empty".to_owned()));
    }
    let from_root = root.join(given);
    let path = if !Path::new(given).exists() && from_root.exists() { &from_root } else { Path::new(given) };
    let full = full_path(path)?;
    let within = full
        .strip_prefix(root)
        .map_err(|_| refused(format!("{} is not in {}", output::safe(given), output::short_path(root))))?;
    let within = within.to_string_lossy().replace('\\', "/");
    Ok(if within.is_empty() { ".".to_owned() } else { within })
}

/// A note as `--json` prints it.
pub(crate) fn to_json(path: &str, unit: &Unit) -> Value {
    json!({
        "id": unit.id, "type": unit.kind, "title": unit.title, "content": content(unit), "domain": unit.domain,
        "tags": unit.tags, "kind": unit.category, "stability": unit.stability, "status": unit.status,
        "source": unit.source, "scope": unit.scope, "links": unit.related, "created": unit.created,
        "last_modified": unit.last_modified, "path": path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_a_secret_is_left_out() {
        let secret = format!("ghp_{}", "abcdefghijklmnopqrstuvwxyz0123456789");
        assert_eq!(tags_without_secrets(vec![secret, "net".to_owned()]), ["net"]);
    }
}
