//! `nugget show`: prints one unit's file.

use actors::BrainView;
use brain::{Brain, Files as _};
use index::Index;
use knowledge::UnitId;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::{CliError, MISSING};
use crate::output;
use crate::unit_files::read_units;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget show bounded-worker-pools")]
pub(crate) struct ShowArgs {
    /// The unit's id, as `nugget list` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(completions::units))]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ShowArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, _) = context.open()?;
        let view = BrainView::open(&brain);
        let units = read_units(&view)?.units;
        let Some((path, unit)) = units.into_iter().find(|(_, unit)| unit.id.as_str() == self.id) else {
            return Err(CliError::new(format!("there is no unit {:?}", self.id))
                .code(MISSING)
                .hint("`nugget list` shows all ids; a unit on a branch has to be merged first"));
        };
        let reviewer = reviewed_by(&brain, &unit.id);
        if self.json {
            output::print_json(&json!({ "path": path, "unit": unit, "reviewed_by": reviewer }))
        } else {
            let merged = reviewer.map_or_else(String::new, |by| format!("merged by {}\n", output::safe(&by)));
            output::print(&format!("{path}\n{merged}\n{}", output::safe(&view.read(&path)?)))
        }
    }
}

/// Who has merged a unit, if there is an index that knows; the index is not built for this.
fn reviewed_by(brain: &Brain, id: &UnitId) -> Option<String> {
    let folder = brain.derived_folder();
    if !folder.exists() {
        return None;
    }
    Index::open(&folder).ok()?.pin().ok()?.unit(id).ok()??.reviewed_by
}
