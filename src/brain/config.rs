//! Settings: defaults, overridden by the configuration file, then by `NUGGET_*` variables, then by flags.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::settings::{KEYS, find, split_list};
use crate::{config_text, paths};

/// `NUGGET_*` variables that are not settings: the log filter, the guard against recursion, the program's path for
/// hooks, a team's database, the programs of a private one, what tests are told of it, and what the install script reads.
const OTHER_VARIABLES: &[&str] = &[
    "NUGGET_LOG",
    "NUGGET_DISABLE",
    "NUGGET_BIN",
    "NUGGET_DATABASE",
    "NUGGET_POSTGRES_BIN",
    "NUGGET_TEST_POSTGRES",
    "NUGGET_REQUIRE_POSTGRES",
    "NUGGET_INSTALL_DIR",
    "NUGGET_DOWNLOAD_URL",
];

/// Whether `NUGGET_DISABLE` is set: in sessions that nugget starts itself, and where the user wants it.
pub fn is_disabled() -> bool {
    std::env::var_os("NUGGET_DISABLE").is_some_and(|value| !value.is_empty() && value != "0")
}

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
    /// The configuration file writes its settings in a way that is not edited.
    #[error("{path} has no place for `{key}` that can be changed without a change to the rest")]
    Edit {
        /// The file.
        path: PathBuf,
        /// The setting.
        key: String,
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
    #[error("{}", unknown_text(origin, key))]
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
            let key = KEYS.iter().find(|key| variable_name(key.name) == variable);
            let name = key.map_or(variable.as_str(), |key| key.name);
            errors.extend(config.set(name, value, Origin::Variable(variable.clone())).err());
        }
        (config, errors)
    }

    fn read_file(&mut self, file: &Path, errors: &mut Vec<ConfigError>) {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(source) => return errors.push(ConfigError::Read { path: file.to_owned(), source }),
        };
        self.read_text(&text, file, errors);
    }

    fn read_text(&mut self, text: &str, file: &Path, errors: &mut Vec<ConfigError>) {
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                errors.push(toml_error(text, file, &error));
                // A mistake in another line must not send sessions to another brain.
                if let Some(brain) = brain_line(text) {
                    errors.extend(self.set("brain", brain, Origin::File(file.to_owned())).err());
                }
                return;
            }
        };
        let mut flat = Vec::new();
        flatten("", &table, &mut flat);
        for (name, value) in flat {
            errors.extend(self.set(&name, value, Origin::File(file.to_owned())).err());
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
        self.set(name, value, Origin::Flag(flag))
    }

    fn set(&mut self, name: &str, value: String, origin: Origin) -> Result<(), ConfigError> {
        let Some(key) = find(name) else { return Err(unknown(origin, name)) };
        if !key.allows(&value) {
            return Err(ConfigError::Value { origin, key: key.name, value, wanted: key.kind.to_string() });
        }
        self.values.insert(key.name, (value, origin));
        Ok(())
    }

    /// Writes a setting into the configuration file, or removes it there, also one that does not exist. Every other byte
    /// stays.
    ///
    /// # Errors
    /// If the setting does not exist, unless it is removed from the file, or does not allow the value, or the file cannot
    /// be read, edited or written.
    pub fn write_setting(&self, name: &str, value: Option<&str>) -> Result<(), ConfigError> {
        let origin = || Origin::File(self.file.clone());
        let key = find(name).ok_or_else(|| unknown(origin(), name));
        let _lock = self.lock()?;
        let text = self.file_text()?;
        if let Err(error) = text.parse::<toml::Table>() {
            return Err(toml_error(&text, &self.file, &error));
        }
        let edited = match value {
            None if self.is_in_file(&text, name) => config_text::unset(&text, name),
            None => return key.map(|_| ()),
            Some(value) => {
                let key = key?;
                if !key.allows(value) {
                    let (value, wanted) = (value.to_owned(), key.kind.to_string());
                    return Err(ConfigError::Value { origin: origin(), key: key.name, value, wanted });
                }
                config_text::set(&text, name, &key.to_toml(value))
            }
        };
        let edited =
            edited.ok_or_else(|| ConfigError::Edit { path: self.file.clone(), key: name.to_owned() })?;
        self.replace_file(&edited)
    }

    fn is_in_file(&self, text: &str, name: &str) -> bool {
        let mut flat = Vec::new();
        if let Ok(table) = text.parse() {
            flatten("", &table, &mut flat);
        }
        flat.iter().any(|(key, _)| key == name)
    }

    /// Adds the brain's folder to the configuration file and keeps every existing line.
    ///
    /// # Errors
    /// As [`Config::write_setting`].
    pub fn write_brain(&self, brain: &Path) -> Result<(), ConfigError> {
        self.write_setting("brain", Some(&brain.display().to_string()))
    }

    /// The text of the configuration file; empty if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn file_text(&self) -> Result<String, ConfigError> {
        match fs::read_to_string(&self.file) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(ConfigError::Read { path: self.file.clone(), source }),
        }
    }

    /// The problems of a text for the configuration file.
    pub fn problems(&self, text: &str) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        Self { values: BTreeMap::new(), file: self.file.clone() }.read_text(text, &self.file, &mut errors);
        errors
    }

    /// Replaces the configuration file. A link to it stays a link.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_text(&self, text: &str) -> Result<(), ConfigError> {
        let _lock = self.lock()?;
        self.replace_file(text)
    }

    /// Keeps other processes from writing the file until the result is dropped.
    fn lock(&self) -> Result<fs::File, ConfigError> {
        let folder = self.file.parent().unwrap_or(&self.file);
        let locked = paths::create_private_folder(folder).and_then(|()| system::file::lock_folder(folder));
        locked.map_err(|source| ConfigError::Write { path: self.file.clone(), source })
    }

    fn replace_file(&self, text: &str) -> Result<(), ConfigError> {
        let path = fs::canonicalize(&self.file).unwrap_or_else(|_| self.file.clone());
        system::file::replace_private_file(&path, text.as_bytes())
            .map_err(|source| ConfigError::Write { path: self.file.clone(), source })
    }

    /// The effective value and where it comes from.
    pub fn get(&self, name: &str) -> (&str, Origin) {
        match self.values.get(name) {
            Some((value, origin)) => (value, origin.clone()),
            None => (find(name).map_or("", |key| key.default), Origin::Default),
        }
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).0
    }

    /// The value of a number; it was checked when it was set.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// The value of a setting that is a number with decimals.
    pub fn decimal(&self, name: &str) -> f64 {
        self.string(name).parse().unwrap_or_default()
    }

    /// The value as text.
    pub fn string(&self, name: &str) -> String {
        self.text(name).to_owned()
    }

    /// The words of a list.
    pub fn list(&self, name: &str) -> Vec<&str> {
        split_list(self.text(name)).collect()
    }

    /// The value of a path, with `~/` expanded; `None` if empty.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        Some(match text.strip_prefix("~/").and_then(|rest| Some(paths::home()?.join(rest))) {
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
            toml::Value::Array(words) if words.iter().all(toml::Value::is_str) => {
                let words: Vec<&str> = words.iter().filter_map(toml::Value::as_str).collect();
                flat.push((name, words.join(", ")));
            }
            other => flat.push((name, other.to_string())),
        }
    }
}

fn unknown(origin: Origin, key: &str) -> ConfigError {
    let as_name = key
        .strip_prefix("NUGGET_")
        .map_or_else(|| key.to_owned(), |rest| rest.to_ascii_lowercase().replace('_', "."));
    let nearest = KEYS
        .iter()
        .map(|known| (strsim::jaro_winkler(&as_name, known.name), known.name))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name);
    ConfigError::Unknown { origin, key: key.to_owned(), nearest }
}

fn unknown_text(origin: &Origin, key: &str) -> String {
    match origin {
        Origin::Variable(variable) => format!("the variable {variable} names no setting"),
        _ => format!("{origin} has an unknown setting `{key}`"),
    }
}

/// The setting `brain` of a file that cannot be parsed as a whole.
fn brain_line(text: &str) -> Option<String> {
    let mut lines = text.lines().take_while(|line| !line.trim_start().starts_with('['));
    let value = lines.find_map(|line| line.parse::<toml::Table>().ok()?.remove("brain"))?;
    Some(value.as_str()?.to_owned())
}

fn toml_error(text: &str, file: &Path, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    ConfigError::Toml { path: file.to_owned(), what: format!("line {line}: {}", error.message()) }
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
    fn a_mistake_in_another_line_leaves_the_brain_as_it_is_set() {
        let (config, errors) = load("brain = \"/work/brain\"\n\n[retrieve\nlimit = 3\n", &[]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(config.string("brain"), "/work/brain");
        assert_eq!(brain_line("x = [\n[other]\nbrain = \"/b\"\n"), None);
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
    fn settings_that_are_written_at_the_same_time_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let numbers = || KEYS.iter().filter(|key| key.default.parse::<u64>().is_ok());
        std::thread::scope(|scope| {
            for key in numbers() {
                let (config, _) = Config::from_sources(&path, []);
                scope.spawn(move || config.write_setting(key.name, Some(key.default)).unwrap());
            }
        });
        let (config, errors) = Config::from_sources(&path, []);
        assert!(errors.is_empty(), "{errors:?}");
        for key in numbers() {
            assert_eq!(config.get(key.name), (key.default, Origin::File(path.clone())), "{}", key.name);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn every_default_is_allowed_by_its_key() {
        for key in KEYS.iter() {
            if !key.default.is_empty() {
                assert!(key.allows(key.default), "{}", key.name);
            }
        }
    }
}
