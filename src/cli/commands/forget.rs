//! `nugget forget`: removes a fact.

use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::note_change::{change, print_written};
use crate::output::{counted, safe};

const AFTER: &str = "\
Removes the fact with exactly this key, and the links to it. git keeps what was
there; `nugget note rm` removes notes, `nugget rm` other units.

Example:
  nugget forget \"staging host\"";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ForgetArgs {
    /// The key; upper and lower case are the same
    #[arg(add = clap_complete::ArgValueCompleter::new(completions::facts))]
    key: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ForgetArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let ((id, unlinked), written) = change(context, &format!("Forget {}", self.key), |notebook, now| {
            let missing = || notes::Error::NoFact { key: self.key.clone() };
            let id = notebook.fact(&self.key).ok_or_else(missing)?.unit.id.clone();
            let unlinked = notebook.remove(&id, now)?;
            Ok((id, unlinked))
        })?;
        let mut said = format!("forgotten: {}", safe(&self.key));
        if unlinked > 0 {
            said.push_str(&format!("\nlinks to it removed from {}", counted(unlinked as u64, "unit")));
        }
        print_written(&said, &written, json!({ "id": id, "key": self.key, "unlinked": unlinked }), self.json)
    }
}
