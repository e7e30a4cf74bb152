//! `nugget show`: one unit, as it is in its file.

use std::process::ExitCode;

use brain::Brain;
use knowledge::{Document, Unit};
use serde_json::json;

use crate::fault::{Fault, MISSING};
use crate::output;
use crate::session::Door;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  nugget show bounded-worker-pools")]
pub(crate) struct Arguments {
    /// The unit's id, as `nugget list` shows it
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        let config = door.config()?;
        let brain = door.brain(&config)?;
        let (units, _) = read_all(&brain)?;
        let Some((path, unit)) = units.into_iter().find(|(_, unit)| unit.id.as_str() == self.id) else {
            return Err(Fault::new(format!("there is no unit {:?}", self.id))
                .code(MISSING)
                .hint("`nugget list` shows all ids; a unit on a branch has to be merged first"));
        };
        if self.json {
            output::print_json(&json!({ "path": path, "unit": unit }))?;
        } else {
            output::print(&format!("{}\n\n{}", path, output::safe(&brain.read(&path)?)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Every unit of the brain with its path, and what is wrong with those that cannot be read.
pub(crate) fn read_all(brain: &Brain) -> Result<(Vec<(String, Unit)>, Vec<String>), Fault> {
    let mut units = Vec::new();
    let mut problems = Vec::new();
    for file in brain.files()? {
        let unit = match brain.read(&file.path) {
            Ok(text) => Document::parse(text)
                .and_then(|document| document.unit(&file.path))
                .map_err(|error| format!("{}:{}: {}", file.path, error.line, error.what)),
            Err(error) => Err(error.to_string()),
        };
        match unit {
            Ok(unit) => units.push((file.path, unit)),
            Err(problem) => problems.push(problem),
        }
    }
    Ok((units, problems))
}
