//! `nugget show`: prints one unit's file.

use actors::BrainView;
use brain::{Brain, Files as _};
use index::Index;
use knowledge::UnitId;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::unit_files::read_units;
use crate::{output, pager};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget show bounded-worker-pools\n  nugget show bounded      # the beginning of an id is enough"
)]
pub(crate) struct ShowArgs {
    /// The unit's id or its beginning, as `nugget list` shows it
    #[arg(value_name = "UNIT", add = clap_complete::ArgValueCompleter::new(completions::units))]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ShowArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, _) = context.open()?;
        let view = BrainView::open(&brain);
        let (path, unit) = read_units(&view)?.find(&self.id)?;
        let reviewer = reviewed_by(&brain, &unit.id);
        if self.json {
            output::print_json(&json!({ "path": path, "unit": unit, "reviewed_by": reviewer }))
        } else {
            let merged = reviewer.map_or_else(String::new, |by| format!("merged by {}\n", output::safe(&by)));
            let text = output::styled_markdown(&output::safe(&view.read(&path)?));
            pager::print(context, &format!("{path}\n{merged}\n{text}"))
        }
    }
}

/// Who has merged a unit, if there is an index that knows; the index is not built for this.
fn reviewed_by(brain: &Brain, id: &UnitId) -> Option<String> {
    let folder = brain.derived_folder();
    if !folder.exists() {
        return None;
    }
    Index::open(&folder).ok()?.pin_without_vectors().ok()?.unit(id).ok()??.reviewed_by
}
