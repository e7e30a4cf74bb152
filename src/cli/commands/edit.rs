//! `nugget edit`: opens a merged unit in the person's editor, and proposes what they have written.

use jiff::Timestamp;
use knowledge::Document;
use serde_json::json;

use super::completions;
use crate::context::Context;
use crate::editor;
use crate::error::CliError;
use crate::output;
use crate::unit_change::{Change, MergedUnit, MergedUnits};

const AFTER: &str = "\
It opens $VISUAL or $EDITOR (vi if neither is set). What you save is proposed on
a branch, as captures are, and waits for `nugget review`. A text that is no unit
is refused and kept in a file.

Examples:
  nugget edit bounded-worker-pools
  nugget edit bounded      # the beginning of an id is enough";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct EditArgs {
    /// The unit's id or its beginning, as `nugget list` shows it
    #[arg(value_name = "UNIT", add = clap_complete::ArgValueCompleter::new(completions::units))]
    unit: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl EditArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, paths) = context.open()?;
        let units = MergedUnits::open(&brain)?;
        let unit = units.find(&self.unit)?;
        let edited = editor::edit_unit(&unit.text, &unit.path, "nothing was proposed", |edited| {
            problem(edited, &unit)
        })?;
        if edited == unit.text {
            return match self.json {
                true => output::print_json(&json!({ "changed": false, "units": [] })),
                false => output::print("nothing was changed\n"),
            };
        }
        let edited = with_time(edited, &unit, Timestamp::now());
        let proposed =
            units.propose(&brain, &config, &paths, &[(unit, Change::Edit(edited.clone()))], self.json);
        proposed.map_err(|error| {
            editor::keep_text(&edited, ".md", error, "`nugget review` shows whether it was proposed")
        })
    }
}

/// Why an edited text cannot be this unit.
fn problem(edited: &str, unit: &MergedUnit) -> Option<String> {
    let id = Document::parse(edited).ok()?.unit(&unit.path).ok()?.id;
    (id != unit.unit.id).then(|| {
        format!(
            "the id has become {:?}, but other units know this one as {:?}",
            id.as_str(),
            unit.unit.id.as_str()
        )
    })
}

/// The text with the time of the edit, where the person has left the old one.
fn with_time(edited: String, unit: &MergedUnit, now: Timestamp) -> String {
    let time = |document: &Document| document.get("last_modified");
    match (Document::parse(edited.as_str()), Document::parse(unit.text.as_str())) {
        (Ok(mut new), Ok(old)) if time(&old).is_some() && time(&new) == time(&old) => {
            new.set("last_modified", &now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
            new.as_str().to_owned()
        }
        _ => edited,
    }
}
