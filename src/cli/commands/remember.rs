//! `nugget remember`: gives a key a value.

use notes::{NewNote, Remembered, content};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::note_change::{
    change, print_written, tags_without_secrets, value_without_secrets, without_secrets,
};
use crate::output::{self, safe};

const AFTER: &str = "\
A fact is a short value under a key. It is a unit of your brain like a note:
`nugget note show KEY` prints it with its links, and sessions find it.
It is committed on your main branch if that is checked out and clean, else it
waits on a branch for `nugget review`.

Examples:
  nugget remember \"staging host\" stage-2.internal
  nugget remember \"pref:tests\" \"integration tests over mocks\"
  nugget recall staging";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct RememberArgs {
    /// A short name; upper and lower case are the same
    key: String,
    /// What is remembered under it
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// A word to find it by; may be repeated
    #[arg(long = "tag", value_name = "T")]
    tags: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RememberArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        for (what, text) in [("key", &self.key), ("value", &self.value)] {
            if text.trim().is_empty() {
                return Err(CliError::new(format!("the {what} is empty")).code(USAGE));
            }
        }
        let key = without_secrets(&self.key, "key");
        let given = value_without_secrets(&key, &self.value).replace("\r\n", "\n");
        let tags = tags_without_secrets(self.tags);
        let new = NewNote { tags, ..NewNote::fact(key.clone(), given.clone()) };
        let message = format!("Remember {}", new.title);
        let ((done, value), written) = change(context, &message, |notebook, now| {
            let done = notebook.remember(new, now)?;
            let value = content(&notebook.find(done.id().as_str())?.unit).to_owned();
            Ok((done, value))
        })?;
        if value != given.trim() {
            output::note(&format!(
                "warning: comments and hidden characters are not kept: the value is now {}",
                safe(&value)
            ));
        }
        let shown = safe(&key);
        let (said, before) = match &done {
            Remembered::Added(_) => (format!("remembered: {shown}"), None),
            Remembered::Changed(_, before) if *before == value => {
                (format!("changed: {shown} (the value is the same)"), None)
            }
            Remembered::Changed(_, before) => {
                (format!("changed: {shown} (was: {})", safe(before)), Some(before))
            }
            Remembered::Unchanged(_) => (format!("{shown} has this value already"), None),
        };
        let details = json!({ "id": done.id(), "key": key, "value": value, "before": before });
        print_written(&said, &written, details, self.json)
    }
}
