//! The calls of a session about files that must not be read, from a call to its result.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ignore::Ignore;

/// What stands in place of what a `.nuggetignore` covers.
pub const LEFT_OUT: &str = "[left out: .nuggetignore]";
/// Calls whose results never came are forgotten from this many on, and commands in the background.
const CALLS_MAX: usize = 1000;
/// The calls about files that a `.nuggetignore` covers, whose results have not come yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IgnoredCalls {
    /// Their ids.
    ignored: Vec<String>,
    /// The ids of such commands in the background, whose output is the result of other calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    background: Vec<String>,
    /// The folders of calls that have gone to another one, by id: where the paths in their outputs start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    folders: BTreeMap<String, Vec<PathBuf>>,
}

impl IgnoredCalls {
    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes note of a call by what it names: its command, its files, and the command in the background that it asks for.
    /// Returns whether it is about what must not be read.
    pub fn begin<'f>(
        &mut self,
        ignore: &Ignore,
        id: &str,
        command: Option<&str>,
        files: impl IntoIterator<Item = &'f str>,
        background: Option<&str>,
    ) -> bool {
        let is_output = |text: &str| self.background.iter().any(|id| text.contains(&format!("{id}.output")));
        let is_covered = background.is_some_and(|id| self.background.iter().any(|known| known == id))
            || command.is_some_and(|command| ignore.is_named_in(command) || is_output(command))
            || files.into_iter().any(|file| ignore.covers(file) || is_output(file));
        if is_covered {
            push(&mut self.ignored, id);
        } else if let Some(command) = command {
            let folders = ignore.folders(command);
            if folders.len() > 1 && self.folders.len() < CALLS_MAX {
                self.folders.insert(id.to_owned(), folders);
            }
        }
        is_covered
    }

    /// What may be kept of a call's result, if not all of it.
    pub fn end(&mut self, ignore: &Ignore, id: &str, output: &str) -> Option<String> {
        let folders = self.folders.remove(id).unwrap_or_default();
        let Some(at) = self.ignored.iter().position(|known| known == id) else {
            return ignore.without_covered(output, &folders);
        };
        self.ignored.remove(at);
        push(&mut self.background, background_id(output));
        Some(LEFT_OUT.to_owned())
    }
}

fn push(ids: &mut Vec<String>, id: &str) {
    if id.is_empty() || ids.iter().any(|known| known == id) {
        return;
    }
    if ids.len() >= CALLS_MAX {
        ids.remove(0);
    }
    ids.push(id.to_owned());
}

/// The id that a client gives a command in the background, in the result of its call; empty if there is none.
fn background_id(output: &str) -> &str {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-');
    let rest = output.lines().take(5).find_map(|line| {
        line.strip_prefix("Process running with session ID ")
            .or_else(|| Some(line.strip_prefix("Command ")?.split_once(" with ID: ")?.1))
    });
    rest.and_then(|rest| rest.split(is_end).next()).unwrap_or_default()
}
