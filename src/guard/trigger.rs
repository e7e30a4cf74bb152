//! What makes nugget speak of a unit, and whether an action does.

use std::path::Path;

use knowledge::Scope;
use serde::{Deserialize, Serialize};

use crate::action::{Action, ChangedFile, defined, key_below, symbols_in};
use crate::command::CommandPattern;
use crate::path;
use crate::signature::Signature;

/// A place that a unit bears on. All parts that it has must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathPattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<CommandPattern>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Signature>,
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathPattern {
    /// From the repository's root: the file itself, or a folder above it.
    Root(String),
    /// The end of the path of a file, as texts name files.
    End(String),
}

/// How strong the evidence is that an action is what a unit is about; later is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The file is in a place that the unit is about.
    Path,
    /// The edited text names a symbol that the unit is about.
    Symbol,
    /// The command.
    Command,
    /// The message with which the action failed.
    Error,
}

impl Trigger {
    /// Whether it is about the message of a failure.
    pub fn names_error(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn on_command(command: CommandPattern) -> Self {
        Self { command: Some(command), ..Self::default() }
    }

    pub(crate) fn on_error(error: Signature) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    pub(crate) fn on_path(path: PathPattern) -> Self {
        Self { path: Some(path), ..Self::default() }
    }

    pub(crate) fn limited_to(self, repository: String) -> Self {
        Self { repository: Some(repository), ..self }
    }

    /// What a scope says; `None` if that limits nothing.
    pub(crate) fn from_scope(scope: &Scope) -> Option<Self> {
        let path = scope.path.as_deref().map(|path| path::parts(path).collect::<Vec<_>>().join("/"));
        let trigger = Self {
            repository: scope.repository.clone(),
            // The whole repository limits nothing.
            path: path.filter(|path| !path.is_empty()).map(PathPattern::Root),
            symbol: scope.symbol.clone().filter(|symbol| !symbol.trim().is_empty()),
            command: scope
                .command
                .as_deref()
                .map(CommandPattern::new)
                .map_or(Some(None), |made| made.map(Some))?,
            error: scope.error.as_deref().map(Signature::new).map_or(Some(None), |made| made.map(Some))?,
        };
        (!trigger.keys().is_empty()).then_some(trigger)
    }

    /// The keys that it is stored under; [`Action::keys`] has one of them for every action that may match. None for a
    /// trigger that says nothing.
    pub fn keys(&self) -> Vec<String> {
        let key = match self {
            Self { error: Some(error), .. } => error.key().map(|word| format!("error {word}")),
            Self { command: Some(command), .. } => Some(format!("command {}", command.program)),
            Self { path: Some(path), .. } => return path.keys(),
            Self { symbol, .. } => symbol.as_ref().map(|_| "symbol".to_owned()),
        };
        key.into_iter().collect()
    }

    /// The repository that it is limited to.
    pub fn repository(&self) -> Option<&str> {
        self.repository.as_deref()
    }

    /// The folders that say in which repository an action is: those of the files that this is about, or if it is about no
    /// file, those of all files and the folder that the action runs in.
    pub fn folders<'a>(&'a self, action: &'a Action, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        let is_about = |file: &&ChangedFile| self.path.as_ref().is_none_or(|wanted| wanted.matches(file));
        let of_files = action.files.iter().filter(is_about).filter_map(ChangedFile::folder);
        of_files.chain((self.path.is_none() && self.symbol.is_none()).then_some(folder))
    }

    /// How an action matches, if it does; [`Trigger::repository`] is for the caller to compare.
    pub fn matches(&self, action: &Action) -> Option<Evidence> {
        let mut evidence = None;
        if let Some(wanted) = &self.path {
            action.files.iter().find(|file| wanted.matches(file))?;
            evidence = Some(Evidence::Path);
        }
        if let Some(symbol) = &self.symbol {
            let names = symbols_in(symbol);
            // Of `Queue::open` the two together: `Queue.close` and `open` in one edit are something else.
            let joined: Vec<&String> = names.iter().filter(|name| name.contains('.')).collect();
            let wanted = if joined.is_empty() { names.iter().collect() } else { joined };
            let is_named = !wanted.is_empty() && wanted.iter().all(|name| action.symbols.contains(*name));
            // Within `impl Queue` it is only `fn open`; the path says that it is there.
            let is_defined = self.path.is_some()
                && names.last().is_some_and(|last| action.symbols.contains(&defined(last)));
            if !is_named && !is_defined {
                return None;
            }
            evidence = Some(Evidence::Symbol);
        }
        if let Some(wanted) = &self.command {
            action.commands.iter().find(|command| wanted.matches(command))?;
            evidence = Some(Evidence::Command);
        }
        if let Some(wanted) = &self.error {
            action.output.as_ref().filter(|output| output.contains(wanted))?;
            evidence = Some(Evidence::Error);
        }
        evidence
    }
}

impl PathPattern {
    /// By its last part it is found for what lies at its place and below, and by each folder above it for that.
    fn keys(&self) -> Vec<String> {
        let (Self::Root(path) | Self::End(path)) = self;
        let Some(name) = path::parts(path).next_back() else { return Vec::new() };
        let repository = matches!(self, Self::Root(_)).then_some("");
        let above = path::above(path).chain(repository).map(key_below);
        [format!("path {name}")].into_iter().chain(above).collect()
    }

    fn matches(&self, file: &ChangedFile) -> bool {
        let Some(path) = &file.in_repository else { return false };
        let is_below = |folder: &str| {
            path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // What is wanted, seen from the changed folder, changes with that.
        let changes = |inner: &str| file.below.as_deref().is_some_and(|below| path::names(below, inner));
        let ends_with =
            |end: &str| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        match self {
            Self::Root(wanted) => {
                let inner = match path.as_str() {
                    "" => Some(wanted.as_str()),
                    path => wanted.strip_prefix(path).and_then(|rest| rest.strip_prefix('/')),
                };
                is_below(wanted) || inner.is_some_and(changes)
            }
            Self::End(wanted) => {
                let is_inside = |folder: &str| ends_with(folder) && changes(&wanted[folder.len() + 1..]);
                ends_with(wanted) || path::above(wanted).any(is_inside)
            }
        }
    }
}
