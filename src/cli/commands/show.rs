//! `nugget show`: one unit, as it is in the file that is served.

use std::process::ExitCode;

use actors::brain_view::BrainView;
use brain::{Brain, Files};
use index::Index;
use knowledge::{Document, Unit, UnitId};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, MISSING};
use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget show bounded-worker-pools")]
pub(crate) struct Arguments {
    /// The unit's id, as `nugget list` shows it
    #[arg(add = clap_complete::ArgValueCompleter::new(super::completions::units))]
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let view = BrainView::open(&brain);
        let shelf = read_all(&view)?;
        let Some((path, unit)) = shelf.units.into_iter().find(|(_, unit)| unit.id.as_str() == self.id) else {
            return Err(CliError::new(format!("there is no unit {:?}", self.id))
                .code(MISSING)
                .hint("`nugget list` shows all ids; a unit on a branch has to be merged first"));
        };
        let by = reviewed_by(&brain, &unit.id);
        if self.json {
            output::print_json(&json!({ "path": path, "unit": unit, "reviewed_by": by }))?;
        } else {
            let by = by.map_or_else(String::new, |by| format!("merged by {}\n", output::safe(&by)));
            output::print(&format!("{path}\n{by}\n{}", output::safe(&view.read(&path)?)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Who has merged a unit, as far as the index knows; it is not made for this.
fn reviewed_by(brain: &Brain, id: &UnitId) -> Option<String> {
    let folder = brain.derived_folder();
    let record = folder.exists().then(|| Index::open(&folder).ok()?.pin().ok()?.unit(id).ok()?).flatten();
    record?.reviewed_by
}

/// What a brain's files hold.
#[derive(Default)]
pub(crate) struct Shelf {
    /// Every unit, with its path.
    pub units: Vec<(String, Unit)>,
    /// What is wrong with the files that are no units.
    pub problems: Vec<String>,
}

pub(crate) fn read_all(brain: &dyn Files) -> Result<Shelf, CliError> {
    let mut shelf = Shelf::default();
    for file in brain.files()? {
        let text = match brain.read(&file.path) {
            Ok(text) => text,
            Err(error) => {
                shelf.problems.push(error.to_string());
                continue;
            }
        };
        match Document::parse(text).and_then(|document| document.unit(&file.path)) {
            Ok(unit) => shelf.units.push((file.path, unit)),
            Err(error) => shelf.problems.push(format!("{}:{}: {}", file.path, error.line, error.what)),
        }
    }
    Ok(shelf)
}
