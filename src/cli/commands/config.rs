//! `nugget config`: the settings in force.

use std::process::ExitCode;

use brain::Config;
use brain::config::{KEYS, variable_name};
use serde_json::{Map, json};

use crate::context::{Context, embed_settings};
use crate::error::{self, CliError};
use crate::extractor;
use crate::output;

#[derive(clap::Args)]
#[command(
    after_help = "A setting comes from the configuration file, over it from its NUGGET_… variable,\nover that from a flag.\n\nExample:\n  NUGGET_RETRIEVE_LIMIT=5 nugget config"
)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let (config, errors) = context.config_as_it_is();
        if self.json {
            let settings: Map<String, serde_json::Value> = KEYS
                .iter()
                .map(|key| {
                    let (value, origin) = config.get(key.name);
                    (key.name.to_owned(), json!({ "value": value, "from": origin.to_string(), "variable": variable_name(key.name) }))
                })
                .collect();
            output::print_json(&json!({
                "file": config.file(),
                "settings": settings,
                "sessions_are_read_by": extractor::destination(&config),
                "texts_are_embedded_by": embedder(&config),
            }))?;
        } else {
            let mut text = String::new();
            for key in KEYS {
                let (value, origin) = config.get(key.name);
                let value = if value.is_empty() { "-".to_owned() } else { output::safe(value) };
                text.push_str(&format!("{} = {value}  ({origin})\n    {}\n", key.name, key.help));
            }
            let destination = output::safe(&extractor::destination(&config));
            output::print(&format!(
                "{text}\nfile: {}\nsessions are read by {destination}\ntexts are embedded by {}\n",
                config.file().display(),
                output::safe(&embedder(&config)),
            ))?;
        }
        if errors.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(error::of_settings(&errors)) }
    }
}

/// Who turns texts into vectors, and what that sends where.
fn embedder(config: &Config) -> String {
    let settings = embed_settings(config);
    let name = embed::model_name(&settings);
    match (embed::runtime_of(&settings).0, embed::check(&settings)) {
        (_, Err(error)) => format!("nobody: {error}"),
        (runtime @ embed::Runtime::Provider { .. }, Ok(())) => {
            format!(
                "{runtime} ({name}); merged units, what sessions taught (redacted) and questions are sent there"
            )
        }
        (runtime, Ok(())) => format!("{runtime} ({name}); nothing leaves this machine"),
    }
}
