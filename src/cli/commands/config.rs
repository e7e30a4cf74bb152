//! `nugget config`: prints and changes the settings.

use std::path::Path;

use brain::config::{ConfigError, Origin, variable_name};
use brain::settings::{KEYS, Key, Kind, find};
use brain::{Config, StatePaths};
use serde_json::{Map, Value, json};

use super::completions;
use crate::archive::archive_path;
use crate::context::{Context, open_brain};
use crate::error::{CliError, USAGE};
use crate::lookup::{listed, nearest};
use crate::spawn::renew_worker;
use crate::{editor, extractor, output, pager, settings};

/// What a new configuration file begins with.
const NEW_FILE: &str = "# Settings of nugget; `nugget config list` explains them.\n";

const AFTER: &str = "\
A flag overrides the setting's NUGGET_… variable, which overrides the
configuration file. A value that a setting does not allow is refused, and
nothing is written. Comments in the file stay.

Examples:
  nugget config
  nugget config list --json
  nugget config get retrieve.limit
  nugget config set retrieve.limit 5
  nugget config unset retrieve.limit
  nugget config edit
  NUGGET_RETRIEVE_LIMIT=5 nugget config";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print all settings, their values and where they come from (the default)
    List,
    /// Print the value of a setting
    Get {
        /// The setting, such as retrieve.limit
        #[arg(add = clap_complete::ArgValueCompleter::new(completions::settings))]
        key: String,
    },
    /// Write a setting into the configuration file
    Set {
        /// The setting, such as retrieve.limit
        #[arg(add = clap_complete::ArgValueCompleter::new(completions::settings))]
        key: String,
        /// Its value
        #[arg(
            allow_hyphen_values = true,
            add = clap_complete::ArgValueCompleter::new(completions::setting_values)
        )]
        value: String,
    },
    /// Remove a setting from the configuration file
    Unset {
        /// The setting, such as retrieve.limit
        #[arg(add = clap_complete::ArgValueCompleter::new(completions::settings))]
        key: String,
    },
    /// Open the configuration file in your editor
    Edit,
}

impl ConfigArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        // The file may have to be repaired.
        let (config, errors) = context.config_and_errors();
        match self.action {
            None | Some(Action::List) => {
                self.list(context, &config)?;
                if errors.is_empty() { Ok(()) } else { Err(CliError::from_settings(&errors)) }
            }
            Some(Action::Get { key }) => {
                let key = find_key(&key)?;
                match self.json {
                    true => {
                        output::print_json(&json!({ "key": key.name, "setting": describe(&config, key) }))
                    }
                    false => output::print(&format!("{}\n", output::safe(&value(&config, key)))),
                }
            }
            Some(Action::Set { key, value }) => {
                write(&config, find_key(&key)?, Some(&value), self.json)?;
                renew(context);
                Ok(())
            }
            Some(Action::Unset { key }) => {
                match find_key(&key) {
                    Ok(key) => write(&config, key, None, self.json)?,
                    // A misspelt one that stands in the file makes every command fail.
                    Err(_) if errors.iter().any(|error| is_unknown(error, &key)) => {
                        remove_unknown(&config, &key, self.json)?;
                    }
                    Err(error) => return Err(error),
                }
                renew(context);
                Ok(())
            }
            Some(Action::Edit) => {
                edit(&config, self.json)?;
                renew(context);
                Ok(())
            }
        }
    }

    fn list(&self, context: &Context, config: &Config) -> Result<(), CliError> {
        if self.json {
            let settings: Map<String, Value> =
                KEYS.iter().map(|key| (key.name.to_owned(), describe(config, key))).collect();
            return output::print_json(&json!({
                "file": config.file(),
                "settings": settings,
                "sessions_are_read_by": extractor::destination(config),
                "texts_are_embedded_by": describe_embedder(config),
            }));
        }
        let (bold, dim) = (anstyle::Style::new().bold(), anstyle::Style::new().dimmed());
        let mut text = String::new();
        for key in KEYS.iter() {
            let (value, origin) = (value(config, key), config.get(key.name).1);
            let value = if value.is_empty() { "-".to_owned() } else { output::safe(&value) };
            text.push_str(&format!("{bold}{}{bold:#} = {value}  ({origin})\n", key.name));
            for row in output::wrap(key.help, output::terminal_width().saturating_sub(4).max(20)) {
                text.push_str(&format!("    {dim}{row}{dim:#}\n"));
            }
        }
        let destination = output::safe(&extractor::destination(config));
        pager::print(
            context,
            &format!(
                "{text}\nfile: {}\nsessions are read by {destination}\ntexts are embedded by {}\n",
                config.file().display(),
                output::safe(&describe_embedder(config)),
            ),
        )
    }
}

/// A worker that waits, such as for a model, goes on with the settings as they are now.
fn renew(context: &Context) {
    let (config, _) = context.config_and_errors();
    // Settings are made before there is a brain, too.
    let Ok(brain) = context.brain(&config) else { return };
    if let Err(error) = renew_worker(&StatePaths::for_brain(brain.root()), &brain) {
        tracing::warn!(error = error.line(), "the worker that runs keeps its settings");
    }
}

/// The value of a setting; of the brain by default, the folder where one is.
fn value(config: &Config, key: &Key) -> String {
    let value = config.get(key.name).0;
    let folder = brain::paths::default_brain();
    match key.name == "brain" && value.is_empty() && open_brain(&folder).is_ok() {
        true => folder.display().to_string(),
        false => value.to_owned(),
    }
}

fn describe(config: &Config, key: &Key) -> Value {
    let origin = config.get(key.name).1;
    json!({
        "value": value(config, key),
        "from": origin.to_string(),
        "variable": variable_name(key.name),
        "default": key.default,
        "allowed": key.kind.to_string(),
        "help": key.help,
    })
}

/// Whether this is an error of what the configuration file has under a name that is no setting.
fn is_unknown(error: &ConfigError, name: &str) -> bool {
    matches!(error, ConfigError::Unknown { origin: Origin::File(_), key, .. } if key == name)
}

fn remove_unknown(config: &Config, name: &str, as_json: bool) -> Result<(), CliError> {
    config.write_setting(name, None)?;
    if as_json {
        return output::print_json(&json!({ "key": name, "removed": true, "file": config.file() }));
    }
    let file = output::short_path(config.file());
    output::print(&format!("removed {}, which is no setting, from {file}\n", output::safe(name)))
}

fn find_key(name: &str) -> Result<&'static Key, CliError> {
    find(name).ok_or_else(|| {
        let near = nearest(KEYS.iter().map(|key| key.name), name);
        let hint = match near.is_empty() {
            true => "`nugget config` lists all settings".to_owned(),
            false => format!("did you mean {}? `nugget config` lists all settings", listed(&near)),
        };
        CliError::new(format!("there is no setting `{name}`")).code(USAGE).hint(hint)
    })
}

/// Writes a setting, or removes it with `None`, and prints what it was.
fn write(config: &Config, key: &'static Key, value: Option<&str>, as_json: bool) -> Result<(), CliError> {
    let name = key.name;
    // Hooks run in the folders of projects.
    let is_path = value.is_some_and(|value| names_a_file(config, key, value));
    let absolute = value.filter(|value| is_path && !value.starts_with('~'));
    let absolute = absolute.map(std::path::absolute).transpose()?;
    let value = absolute.as_ref().and_then(|path| path.to_str()).or(value);
    if let Some(value) = value.filter(|value| !key.allows(value)) {
        return Err(CliError::new(format!("`{name}` cannot be {value:?}; nothing was written"))
            .code(USAGE)
            .hint(format!("it takes {}", key.kind)));
    }
    let from = config.get(name).1;
    // What is in the file, and not what a variable says.
    let stored = || Config::from_sources(config.file(), []).0;
    let before = &stored().string(name);
    config.write_setting(name, value).map_err(|error| {
        let is_denied = matches!(error, ConfigError::Read { .. } | ConfigError::Write { .. });
        match (CliError::from_settings(&[error]), is_denied) {
            (error, true) => error,
            (error, false) => error.hint("`nugget config edit` opens the file; nothing was written"),
        }
    })?;
    let overriding = match &from {
        Origin::Variable(variable) => Some(variable.as_str()),
        _ => None,
    };
    if as_json {
        output::print_json(&json!({
            "key": name, "value": value.unwrap_or(key.default), "before": before, "file": config.file(),
            "overridden_by": overriding,
        }))?;
    } else {
        let quoted = |value: &str| if value.is_empty() { "empty".to_owned() } else { output::safe(value) };
        let file = output::short_path(config.file());
        let was = quoted(before);
        output::print(&match value {
            Some(value) => format!("{name} = {}  (was {was}; in {file})\n", quoted(value)),
            None => format!("{name} = {}  (the default, was {was}; in {file})\n", quoted(key.default)),
        })?;
    }
    match stored().path(name) {
        Some(folder) if name == "brain" => {
            if let Err(error) = open_brain(&folder) {
                output::note(&format!("note: {}", CliError::from(error).line()));
            }
        }
        Some(file) if is_path && !file.exists() => {
            output::note(&format!("note: there is no file {}", output::short_path(&file)));
        }
        _ if name == "capture.exclude" && value.is_some() && archive_path().exists() => {
            output::note("note: what is archived already stays; `nugget sessions forget` deletes a session");
        }
        _ => {}
    }
    if let Some(variable) = overriding {
        output::note(&format!("note: {variable} is set and overrides it"));
    }
    Ok(())
}

/// Whether a value is a path, and not the name of a provider's model or of a program on the PATH.
fn names_a_file(config: &Config, key: &Key, value: &str) -> bool {
    matches!(key.kind, Kind::Path)
        && !value.is_empty()
        && match key.name {
            "extract.claude" => value.contains('/'),
            // The name of a provider's model may have slashes, and may be set before the provider.
            "embed.model" => {
                config.string("embed.provider") == "local"
                    && (value.starts_with(['.', '/', '~'])
                        || value.ends_with(".onnx")
                        || Path::new(value).exists())
            }
            _ => true,
        }
}

fn edit(config: &Config, as_json: bool) -> Result<(), CliError> {
    let before = config.file_text()?;
    let text = if before.is_empty() { NEW_FILE } else { &before };
    let edited = editor::edit(text, ".toml", "nothing was written", |edited| {
        let errors = config.problems(edited);
        (!errors.is_empty()).then(|| CliError::from_settings(&errors).message)
    })?;
    let is_changed = edited != before && edited != NEW_FILE;
    if is_changed {
        config.write_text(&edited)?;
    }
    if as_json {
        return output::print_json(&json!({ "file": config.file(), "changed": is_changed }));
    }
    let what = if is_changed { "saved" } else { "nothing was changed in" };
    output::print(&format!("{what} {}\n", output::short_path(config.file())))
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
        (embed::Runtime::BuiltIn, Ok(())) => {
            format!("the built-in model ({name}); nothing leaves this machine for that")
        }
        (runtime, Ok(())) => format!("{runtime} ({name}); nothing leaves this machine for that"),
    }
}
