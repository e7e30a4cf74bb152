//! `nugget config`: the settings in force.

use std::process::ExitCode;

use brain::config::{KEYS, variable_of};
use serde_json::{Map, json};

use crate::fault::{self, Fault};
use crate::output;
use crate::session::Door;

#[derive(clap::Args)]
#[command(
    after_help = "A setting comes from the configuration file, over it from its NUGGET_… variable, over that from a flag.\n\nExample:\n  NUGGET_RETRIEVE_LIMIT=5 nugget config"
)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        let (config, errors) = door.config_as_it_is();
        if self.json {
            let settings: Map<String, serde_json::Value> = KEYS
                .iter()
                .map(|key| {
                    let (value, origin) = config.get(key.name);
                    (key.name.to_owned(), json!({ "value": value, "from": origin.to_string(), "variable": variable_of(key.name) }))
                })
                .collect();
            output::print_json(&json!({ "file": config.file(), "settings": settings }))?;
        } else {
            let rows: Vec<Vec<String>> = KEYS
                .iter()
                .map(|key| {
                    let (value, origin) = config.get(key.name);
                    let value = if value.is_empty() { "-" } else { value };
                    vec![key.name.to_owned(), output::safe(value), origin.to_string(), key.help.to_owned()]
                })
                .collect();
            output::print(&format!("{}\nfile: {}\n", output::table(&rows), config.file().display()))?;
        }
        if errors.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(fault::of_settings(&errors)) }
    }
}
