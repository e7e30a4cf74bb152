//! Settings: defaults, overridden by the configuration file, then by `NUGGET_*` variables, then by flags.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::paths;

/// A setting.
#[derive(Debug)]
pub struct Key {
    /// Its name in the file: `table.key`.
    pub name: &'static str,
    /// The values that it allows.
    pub kind: Kind,
    /// The value if none is set; may be empty.
    pub default: &'static str,
    /// One line for `nugget config`.
    pub help: &'static str,
}

/// The values that a setting allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A path; `~/` is the home folder.
    Path,
    /// A whole number within these bounds.
    Number(u64, u64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An `https` address, or `http` to this machine: an API key is sent there.
    Url,
}

/// All settings, in the order of `nugget config`.
pub const KEYS: &[Key] = &[
    Key { name: "brain", kind: Kind::Path, default: "", help: "the brain's folder" },
    Key {
        name: "drainer.linger_seconds",
        kind: Kind::Number(0, 3600),
        default: "2",
        help: "how long the worker process waits for more work before it ends",
    },
    Key {
        name: "capture.exclude",
        kind: Kind::Text,
        default: "",
        help: "projects that are never captured: folder names or paths, with * and commas (`~/work, secret-*`)",
    },
    Key {
        name: "sweep.enabled",
        kind: Kind::OneOf(&["on", "off"]),
        default: "on",
        help: "whether to look for sessions that the hook missed",
    },
    Key {
        name: "sweep.idle_minutes",
        kind: Kind::Number(0, 10_080),
        default: "15",
        help: "how long a transcript must be unchanged before it is captured",
    },
    Key {
        name: "sweep.daily_cap",
        kind: Kind::Number(0, 10_000),
        default: "20",
        help: "the most missed sessions captured in 24 hours; `nugget sync --since` has no cap",
    },
    Key {
        name: "sweep.folders",
        kind: Kind::Text,
        default: "",
        help: "Claude Code's folders, separated by commas; empty for CLAUDE_CONFIG_DIR or ~/.claude",
    },
    Key {
        name: "delivery.enabled",
        kind: Kind::OneOf(&["on", "off"]),
        default: "on",
        help: "whether to push branches to the brain's remote, open pull requests on GitHub and fetch merges",
    },
    Key {
        name: "sync.minutes",
        kind: Kind::Number(0, 1440),
        default: "5",
        help: "how often to fetch merges from the remote; 0 for only on `nugget sync`",
    },
    Key {
        name: "github.api",
        kind: Kind::Url,
        default: "",
        help: "the API of a GitHub Enterprise Server (https://HOST/api/v3); empty to derive it from the remote",
    },
    Key {
        name: "session_start.enabled",
        kind: Kind::OneOf(&["on", "off"]),
        default: "on",
        help: "whether a new session is shown what is known about its project",
    },
    Key {
        name: "session_start.tokens",
        kind: Kind::Number(50, 3_000),
        default: "600",
        help: "the most tokens that it is shown",
    },
    Key {
        name: "session_start.deadline_ms",
        kind: Kind::Number(20, 60_000),
        default: "900",
        help: "how long it waits for that; after this, nothing is shown",
    },
    Key {
        name: "user_prompt.enabled",
        kind: Kind::OneOf(&["on", "off"]),
        default: "off",
        help: "whether each prompt is shown what is known about it, found by its words alone",
    },
    Key {
        name: "user_prompt.deadline_ms",
        kind: Kind::Number(20, 60_000),
        default: "150",
        help: "how long a prompt waits for that; after this, nothing is shown",
    },
    Key {
        name: "user_prompt.tokens",
        kind: Kind::Number(50, 3_000),
        default: "400",
        help: "the most tokens that it is shown",
    },
    Key {
        name: "extract.backend",
        kind: Kind::OneOf(&["auto", "claude-api", "claude-p", "heuristic"]),
        default: "auto",
        help: "what extracts knowledge from sessions; auto: the API with a key, else `claude -p` if logged in, else rules, which send nothing",
    },
    Key {
        name: "extract.model",
        kind: Kind::Text,
        default: "claude-haiku-4-5",
        help: "the model that extracts knowledge from sessions",
    },
    Key {
        name: "extract.part_tokens",
        kind: Kind::Number(2_000, 150_000),
        default: "40000",
        help: "how many tokens of a long session one request contains",
    },
    Key {
        name: "extract.output_tokens_max",
        kind: Kind::Number(256, 64_000),
        default: "8192",
        help: "the most tokens of one answer",
    },
    Key {
        name: "extract.deadline_seconds",
        // Two answers and the pause between them must fit into the time limit of the actor.
        kind: Kind::Number(1, 270),
        default: "180",
        help: "how long one answer may take",
    },
    Key {
        name: "extract.claude",
        kind: Kind::Path,
        default: "",
        help: "the program for `claude -p`; empty to find `claude` on the PATH",
    },
    Key {
        name: "spend.tokens_per_day",
        kind: Kind::Number(0, 10_000_000_000),
        default: "2000000",
        help: "the most tokens that all model calls of a brain use in 24 hours; 0 for no model calls",
    },
    Key {
        name: "spend.cents_per_day",
        kind: Kind::Number(0, 10_000_000),
        default: "200",
        help: "the same in US cents, by list prices",
    },
    Key {
        name: "extract.confidence_min",
        kind: Kind::Number(0, 100),
        default: "50",
        help: "candidates below this confidence (per cent) are rejected",
    },
    Key {
        name: "retrieve.limit",
        kind: Kind::Number(1, 50),
        default: "10",
        help: "the most passages in an answer",
    },
    Key {
        name: "retrieve.budget_tokens",
        kind: Kind::Number(100, 100_000),
        default: "2000",
        help: "the most tokens in an answer",
    },
    Key {
        name: "retrieve.rerank",
        kind: Kind::OneOf(&["auto", "off"]),
        default: "auto",
        help: "whether a model reranks the results: auto, if there is an API key (about half a cent a question); off, never",
    },
    Key {
        name: "retrieve.rerank_deadline_ms",
        kind: Kind::Number(50, 20_000),
        default: "2000",
        help: "how long to wait for it before the local order is used",
    },
    Key {
        name: "embed.provider",
        kind: Kind::OneOf(&["local", "openai", "voyage"]),
        default: "local",
        help: "what embeds texts; local sends nothing, the others receive units, extracted knowledge and questions",
    },
    Key {
        name: "embed.model",
        kind: Kind::Path,
        default: "",
        help: "local: the path of your own ONNX model; else the provider's model name; empty for the default",
    },
    Key {
        name: "embed.url",
        kind: Kind::Url,
        default: "",
        help: "your own server with the provider's API, including /v1; it may need no key",
    },
    Key {
        name: "embed.key_file",
        kind: Kind::Path,
        default: "",
        help: "a file with the provider's key; otherwise OPENAI_API_KEY or VOYAGE_API_KEY",
    },
    Key {
        name: "embed.dimensions",
        kind: Kind::Number(0, 4096),
        default: "0",
        help: "the number of dimensions to request from a provider; 0 for the model's default",
    },
    Key {
        name: "embed.deadline_seconds",
        // It must end within the time limit of the actor.
        kind: Kind::Number(1, 100),
        default: "60",
        help: "how long one request to a provider may take, including retries",
    },
    Key {
        name: "embed.tokenizer",
        kind: Kind::Path,
        default: "",
        help: "the model's tokenizer.json; empty for the one beside the model",
    },
    Key {
        name: "embed.pooling",
        kind: Kind::OneOf(&["mean", "cls", "sentence"]),
        default: "mean",
        help: "how the model's token vectors are pooled",
    },
    Key {
        name: "embed.query_prefix",
        kind: Kind::Text,
        default: "",
        help: "the prefix that the model expects before a question; nomic-embed-text-v1.5: `search_query: `",
    },
    Key {
        name: "embed.document_prefix",
        kind: Kind::Text,
        default: "",
        help: "the prefix that the model expects before a passage; nomic-embed-text-v1.5: `search_document: `",
    },
    Key {
        name: "embed.tokens_max",
        kind: Kind::Number(16, 8192),
        default: "256",
        help: "the most tokens of a text that the model reads",
    },
    Key {
        name: "embed.runtime_library",
        kind: Kind::Path,
        default: "",
        help: "the path of the ONNX Runtime library; empty to search for it",
    },
    Key {
        name: "model.url",
        kind: Kind::Url,
        default: "https://api.anthropic.com",
        help: "the address of the Messages API",
    },
    Key {
        name: "model.name",
        kind: Kind::Text,
        default: "claude-haiku-4-5",
        help: "the model that writes the answers of `nugget ask` and reranks results",
    },
    Key {
        name: "model.key_file",
        kind: Kind::Path,
        default: "",
        help: "a file with the key; otherwise ANTHROPIC_API_KEY",
    },
    Key {
        name: "model.deadline_seconds",
        kind: Kind::Number(1, 600),
        default: "30",
        help: "how long an answer of the model may take",
    },
];

/// `NUGGET_*` variables that are not settings: the log filter, the guard against recursion, and the program's path for
/// the plugin.
const OTHER_VARIABLES: &[&str] = &["NUGGET_LOG", "NUGGET_DISABLE", "NUGGET_BIN"];

/// Where a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No one set it.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// The environment variable of this name.
    Variable(String),
    /// The flag of this name.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// An error in the settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The configuration file cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{path} is not valid TOML: {what}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line and what is wrong.
        what: String,
    },
    /// There is no such setting.
    #[error("{origin} has an unknown setting `{key}`")]
    Unknown {
        /// Where it was set.
        origin: Origin,
        /// The unknown name.
        key: String,
        /// The setting with the most similar name.
        nearest: Option<&'static str>,
    },
    /// A setting does not allow this value.
    #[error("{origin} sets `{key}` to {value:?}, which is not {wanted}")]
    Value {
        /// Where it was set.
        origin: Origin,
        /// The setting.
        key: &'static str,
        /// The value.
        value: String,
        /// What the setting allows.
        wanted: String,
    },
}

/// The effective settings.
#[derive(Clone, Debug)]
pub struct Config {
    values: BTreeMap<&'static str, (String, Origin)>,
    file: PathBuf,
}

impl Config {
    /// Reads the configuration file and the environment.
    ///
    /// Also returns all errors, in the order in which they were found. The valid settings apply all the same: a hook
    /// must go on where a person would first fix the file.
    pub fn load() -> (Self, Vec<ConfigError>) {
        Self::from_sources(
            &paths::config_file(),
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// As [`Config::load`], from the given file and variables.
    pub fn from_sources(
        file: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> (Self, Vec<ConfigError>) {
        let mut config = Self { values: BTreeMap::new(), file: file.to_owned() };
        let mut errors = Vec::new();
        config.read_file(file, &mut errors);
        let mut variables: Vec<_> = variables
            .into_iter()
            .filter(|(name, value)| name.starts_with("NUGGET_") && !value.is_empty())
            .collect();
        variables.sort();
        for (variable, value) in variables {
            if OTHER_VARIABLES.contains(&variable.as_str()) {
                continue;
            }
            let name = KEYS.iter().map(|key| key.name).find(|name| variable_name(name) == variable);
            match name {
                Some(name) => config.set(name, value, Origin::Variable(variable), &mut errors),
                None => errors.push(unknown(Origin::Variable(variable.clone()), variable)),
            }
        }
        (config, errors)
    }

    fn read_file(&mut self, file: &Path, errors: &mut Vec<ConfigError>) {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(source) => return errors.push(ConfigError::Read { path: file.to_owned(), source }),
        };
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                let what = format!("line {line}: {}", error.message());
                return errors.push(ConfigError::Toml { path: file.to_owned(), what });
            }
        };
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (name, value) in flat {
            let origin = Origin::File(file.to_owned());
            match KEYS.iter().find(|key| key.name == name) {
                Some(key) => self.set(key.name, value, origin, errors),
                None => errors.push(unknown(origin, name)),
            }
        }
    }

    /// Sets a value from a flag, which overrides all others.
    ///
    /// # Errors
    /// If the setting does not allow the value.
    pub fn set_flag(
        &mut self,
        name: &'static str,
        value: String,
        flag: &'static str,
    ) -> Result<(), ConfigError> {
        let mut errors = Vec::new();
        self.set(name, value, Origin::Flag(flag), &mut errors);
        errors.pop().map_or(Ok(()), Err)
    }

    fn set(&mut self, name: &'static str, value: String, origin: Origin, errors: &mut Vec<ConfigError>) {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else { return };
        match check(key, &value) {
            Ok(()) => {
                self.values.insert(name, (value, origin));
            }
            Err(wanted) => errors.push(ConfigError::Value { origin, key: name, value, wanted }),
        }
    }

    /// Adds the brain's folder to the configuration file and keeps every existing line.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn write_brain(&self, brain: &Path) -> Result<(), ConfigError> {
        let wrong = |source| ConfigError::Write { path: self.file.clone(), source };
        let present = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(wrong(source)),
        };
        // Top-level keys must come before the first table.
        let line = format!("brain = {}\n", toml::Value::String(brain.display().to_string()));
        if let Some(folder) = self.file.parent() {
            paths::create_private_folder(folder).map_err(wrong)?;
        }
        let temporary = self.file.with_extension("toml.new");
        fs::write(&temporary, format!("{line}{present}")).map_err(wrong)?;
        fs::rename(&temporary, &self.file).map_err(wrong)
    }

    /// The effective value and where it comes from.
    pub fn get(&self, name: &str) -> (&str, Origin) {
        match self.values.get(name) {
            Some((value, origin)) => (value, origin.clone()),
            None => (KEYS.iter().find(|key| key.name == name).map_or("", |key| key.default), Origin::Default),
        }
    }

    fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or_else(
            || KEYS.iter().find(|key| key.name == name).map_or("", |key| key.default),
            |(value, _)| value,
        )
    }

    /// The value of a number; it was checked when it was set.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// The value as text.
    pub fn string(&self, name: &str) -> String {
        self.text(name).to_owned()
    }

    /// The value of a path, with `~/` expanded; `None` if empty.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        Some(match text.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
            Some(path) => path,
            None => PathBuf::from(text),
        })
    }

    /// The value of a number of seconds.
    pub fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(self.number(name))
    }

    /// The path of the configuration file, which may not exist.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// The variable that sets a key: `NUGGET_EMBED_MODEL` for `embed.model`.
pub fn variable_name(name: &str) -> String {
    format!("NUGGET_{}", name.replace('.', "_").to_ascii_uppercase())
}

fn flatten(prefix: &str, table: &toml::Table, flat: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, flat),
            toml::Value::String(text) => flat.push((name, text.clone())),
            other => flat.push((name, other.to_string())),
        }
    }
}

fn unknown(origin: Origin, key: String) -> ConfigError {
    let as_name = key
        .strip_prefix("NUGGET_")
        .map_or_else(|| key.clone(), |rest| rest.to_ascii_lowercase().replace('_', "."));
    let nearest = KEYS
        .iter()
        .map(|known| (strsim::jaro_winkler(&as_name, known.name), known.name))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name);
    ConfigError::Unknown { origin, key, nearest }
}

fn check(key: &Key, value: &str) -> Result<(), String> {
    match key.kind {
        Kind::Text | Kind::Path => Ok(()),
        Kind::Number(least, most) => match value.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(()),
            _ => Err(format!("a whole number from {least} to {most}")),
        },
        Kind::OneOf(words) if words.contains(&value) => Ok(()),
        Kind::OneOf(words) => Err(format!("one of {}", words.join(", "))),
        Kind::Url if is_safe_url(value) => Ok(()),
        Kind::Url => Err("an https address, or http to this machine".to_owned()),
    }
}

fn is_safe_url(url: &str) -> bool {
    if url.contains(['@', ' ', '\n']) {
        return false;
    }
    let host = |rest: &str| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
        match authority.strip_prefix("[::1]") {
            Some(_) => "[::1]".to_owned(),
            None => authority.split(':').next().unwrap_or_default().to_owned(),
        }
    };
    match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => !host(rest).is_empty(),
        (None, Some(rest)) => matches!(host(rest).as_str(), "localhost" | "127.0.0.1" | "[::1]"),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, file).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (config, errors) = Config::from_sources(&path, variables);
        let folder = folder.path().display().to_string();
        (config, errors.iter().map(|error| error.to_string().replace(&folder, "")).collect())
    }

    #[test]
    fn a_variable_overrides_the_file_and_a_flag_both() {
        let (mut config, errors) =
            load("[retrieve]\nlimit = 5\nbudget_tokens = 900\n", &[("NUGGET_RETRIEVE_LIMIT", "7")]);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!((config.number("retrieve.limit"), config.number("retrieve.budget_tokens")), (7, 900));
        config.set_flag("retrieve.limit", "9".into(), "--limit").unwrap();
        assert_eq!(config.get("retrieve.limit"), ("9", Origin::Flag("--limit")));
        assert_eq!(config.get("model.name").1, Origin::Default);
    }

    #[test]
    fn an_unknown_key_error_names_the_nearest_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, "[retrieve]\nlimits = 3\n").unwrap();
        let (_, errors) = Config::from_sources(&path, [("NUGGET_BRIAN".to_owned(), "x".to_owned())]);
        let nearest: Vec<_> = errors
            .iter()
            .map(|error| match error {
                ConfigError::Unknown { nearest, .. } => nearest.unwrap(),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(nearest, ["retrieve.limit", "brain"]);
    }

    #[test]
    fn a_wrong_value_is_an_error_and_the_rest_applies() {
        let (config, errors) = load("brain = '/b'\n[retrieve]\nlimit = 5000\n", &[]);
        assert_eq!(
            errors,
            [r#"/config.toml sets `retrieve.limit` to "5000", which is not a whole number from 1 to 50"#]
        );
        assert_eq!(config.path("brain").unwrap(), Path::new("/b"));
        assert_eq!(config.number("retrieve.limit"), 10);
        let (_, errors) = load("brain = \n", &[]);
        assert!(errors[0].contains("line 1"), "{errors:?}");
    }

    #[test]
    fn an_address_is_https_or_this_machine() {
        for good in
            ["https://api.example.com", "http://127.0.0.1:80/x", "http://localhost:1", "http://[::1]:9"]
        {
            assert!(is_safe_url(good), "{good}");
        }
        for bad in [
            "http://example.com",
            "ftp://x",
            "",
            "http://localhost.evil.com",
            "https://",
            "http://127.0.0.1@evil.com",
        ] {
            assert!(!is_safe_url(bad), "{bad}");
        }
    }

    #[test]
    fn writing_the_brain_keeps_the_rest_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nugget/config.toml");
        let (config, _) = Config::from_sources(&path, []);
        config.write_brain(Path::new("/a \"quoted\" place")).unwrap();
        fs::write(&path, format!("{}# mine\n[retrieve]\nlimit = 3\n", fs::read_to_string(&path).unwrap()))
            .unwrap();
        let (config, errors) = Config::from_sources(&path, []);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(config.path("brain").unwrap(), Path::new("/a \"quoted\" place"));
        assert_eq!(config.number("retrieve.limit"), 3);
    }

    #[test]
    fn every_default_is_allowed_by_its_key() {
        for key in KEYS {
            if !key.default.is_empty() {
                assert_eq!(check(key, key.default), Ok(()), "{}", key.name);
            }
        }
    }
}
