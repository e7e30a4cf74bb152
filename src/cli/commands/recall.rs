//! `nugget recall`: says what is remembered under a key.

use actors::Facts;
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, MISSING, USAGE};
use crate::note_change::open;
use crate::output::{self, safe};
use crate::remote;

const AFTER: &str = "\
The key may be given in other words: the beginning of a word of it, most of its
words, or with a spelling mistake. Prints the value alone, so that scripts can
use it.

Examples:
  nugget recall \"staging host\"
  nugget recall \"what is the staging host?\"
  ssh $(nugget recall \"staging host\")";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct RecallArgs {
    /// A key, or a question that names it
    #[arg(value_name = "KEY|QUERY", required = true)]
    question: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RecallArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let question = self.question.join(" ");
        if knowledge::text::strip_hidden(&question).trim().is_empty() {
            return Err(CliError::new("the key is empty").code(USAGE));
        }
        let setup = open(context)?;
        let Some(fact) = Facts::default().recall(&setup, &question)? else {
            let hint = remote::conflict_hint(&setup.brain).unwrap_or_else(|| {
                format!(
                    "`nugget note search {question:?}` searches notes; `nugget list --type fact` lists facts"
                )
            });
            return Err(CliError::new(format!("nothing is remembered under a key like {question:?}"))
                .code(MISSING)
                .hint(hint));
        };
        if self.json {
            return output::print_json(&json!({
                "id": fact.id, "key": fact.key, "value": fact.value, "unreviewed": fact.is_unreviewed,
            }));
        }
        if fact.key.to_lowercase() != question.trim().to_lowercase() {
            output::note(&format!("{}:", safe(&fact.key)));
        }
        if fact.is_unreviewed {
            output::note("written by an agent; nobody has reviewed it");
        }
        output::print(&format!("{}\n", safe(&fact.value)))
    }
}
