//! `nugget config`: prints the effective settings.

use brain::Config;
use brain::config::{KEYS, variable_name};
use serde_json::{Map, json};

use crate::context::Context;
use crate::error::CliError;
use crate::{extractor, output, settings};

#[derive(clap::Args)]
#[command(
    after_help = "A flag overrides the setting's NUGGET_… variable, which overrides the\nconfiguration file.\n\nExample:\n  NUGGET_RETRIEVE_LIMIT=5 nugget config"
)]
pub(crate) struct ConfigArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ConfigArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, errors) = context.config_and_errors();
        if self.json {
            let settings: Map<String, serde_json::Value> = KEYS
                .iter()
                .map(|key| {
                    let (value, origin) = config.get(&key.name);
                    (key.name.clone(), json!({ "value": value, "from": origin.to_string(), "variable": variable_name(&key.name) }))
                })
                .collect();
            output::print_json(&json!({
                "file": config.file(),
                "settings": settings,
                "sessions_are_read_by": extractor::destination(&config),
                "texts_are_embedded_by": describe_embedder(&config),
            }))?;
        } else {
            let mut text = String::new();
            for key in KEYS.iter() {
                let (value, origin) = config.get(&key.name);
                let value = if value.is_empty() { "-".to_owned() } else { output::safe(value) };
                text.push_str(&format!("{} = {value}  ({origin})\n    {}\n", key.name, key.help));
            }
            let destination = output::safe(&extractor::destination(&config));
            output::print(&format!(
                "{text}\nfile: {}\nsessions are read by {destination}\ntexts are embedded by {}\n",
                config.file().display(),
                output::safe(&describe_embedder(&config)),
            ))?;
        }
        if errors.is_empty() { Ok(()) } else { Err(CliError::from_settings(&errors)) }
    }
}

/// What computes the vectors, and what is sent where.
fn describe_embedder(config: &Config) -> String {
    let settings = settings::embedding(config);
    let name = embed::model_name(&settings);
    match (embed::find_runtime(&settings).0, embed::check_settings(&settings)) {
        (_, Err(error)) => format!("nothing: {error}"),
        (runtime @ embed::Runtime::Provider { .. }, Ok(())) => {
            format!(
                "{runtime} ({name}); merged units, session knowledge (redacted) and questions are sent there"
            )
        }
        (runtime, Ok(())) => format!("{runtime} ({name}); nothing leaves this machine"),
    }
}
