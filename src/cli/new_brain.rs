//! Creates a brain in a folder or adopts what is there, for `nugget init` and `nugget clone`.

use std::path::{Path, PathBuf};

use brain::{Brain, Config, Initialized, Origin};
use git::{Identity, Init, NewFile};
use jiff::Timestamp;

use crate::client_settings::ClientSettings;
use crate::commands::context::full_path;
use crate::context::{Context, open_brain};
use crate::error::{CliError, USAGE};
use crate::output::counted;

/// The next step once there is a brain and Claude Code runs nugget.
pub(crate) const NEXT_SESSION: &str =
    "next: work in a new session of Claude Code; once it has ended, `nugget review` shows what it taught\n";

/// The next step once there is a brain.
pub(crate) fn next_step() -> &'static str {
    let is_installed = std::env::current_dir().is_ok_and(|here| ClientSettings::read(&here).is_complete());
    if is_installed { NEXT_SESSION } else { "next: `nugget install` adds it to Claude Code\n" }
}

/// Refuses a folder that the settings, which are UTF-8, could not name.
pub(crate) fn check_path(root: &Path) -> Result<(), CliError> {
    let full = full_path(root)?;
    match full.to_str() {
        Some(_) => Ok(()),
        None => {
            Err(CliError::new(format!("the path {} is not valid UTF-8; nothing was written", full.display()))
                .code(USAGE)
                .hint("give the brain a folder of another name with --path"))
        }
    }
}

/// A brain with its repository, and what was created of it.
pub(crate) struct NewBrain {
    pub(crate) brain: Brain,
    pub(crate) repository: git::Repository,
    /// Files that were written.
    pub(crate) written: Vec<String>,
    /// How many notes were there before.
    pub(crate) notes: usize,
    pub(crate) is_repository_new: bool,
    /// The first commit, if it was made.
    pub(crate) commit: Option<git::CommitId>,
}

impl NewBrain {
    /// Creates a brain in a folder. Files that are there stay as they are.
    pub(crate) fn create(root: &Path) -> Result<Self, CliError> {
        // On a branch without `brain.yaml`, such as an orphan branch, the repository is a brain all the same.
        if let Ok(brain) = open_brain(root)
            && brain.is_elsewhere()
        {
            let repository = git::Repository::open(brain.root())?;
            let notes = brain.files()?.len();
            return Ok(Self {
                brain,
                repository,
                written: Vec::new(),
                notes,
                is_repository_new: false,
                commit: None,
            });
        }
        let Initialized { brain, written, notes } = Brain::init(root)?;
        let found = git::Repository::init(brain.root())?;
        let is_repository_new = matches!(found, Init::Created(_));
        let repository = found.into_repository();
        if written.iter().any(|path| path == brain::BRAIN_YAML)
            && let Some(branch) = repository.branch_to_name()?
        {
            brain.name_default_branch(&branch)?;
        }
        let commit = repository.create_initial_commit(
            &own_files(&brain)?,
            "Begin the brain\n",
            Timestamp::now(),
            &Identity::default(),
        )?;
        Ok(Self { brain, repository, written, notes, is_repository_new, commit })
    }

    pub(crate) fn is_changed(&self) -> bool {
        !self.written.is_empty() || self.is_repository_new || self.commit.is_some()
    }

    /// The repository around the one that was created.
    fn outer_repository(&self) -> Option<&Path> {
        let mut around = self.brain.root().ancestors().skip(1);
        around.find(|folder| folder.join(".git").exists()).filter(|_| self.is_repository_new)
    }

    /// What was created, in lines for a person.
    pub(crate) fn describe(&self) -> String {
        let root = self.brain.root().display();
        let mut text = match (self.is_repository_new, self.commit.is_some()) {
            (true, true) => format!("created a brain with a git repository and a first commit at {root}\n"),
            (false, true) => format!("created a brain with a first commit at {root}\n"),
            _ if self.written.is_empty() && !self.is_repository_new => {
                return format!("{root} is a brain already\n");
            }
            _ => format!("adopted {root} as a brain\n"),
        };
        if let Some(outer) = self.outer_repository() {
            let place = self.brain.root().strip_prefix(outer).unwrap_or(self.brain.root()).display();
            text.push_str(&format!(
                "it lies in another repository, which does not take over its files: add /{place}/ to {}\n",
                outer.join(".gitignore").display()
            ));
        }
        if !self.written.is_empty() && self.commit.is_none() {
            text.push_str(&format!("written, not committed: {}\n", self.written.join(", ")));
        }
        if self.notes > 0 {
            text.push_str(&format!("found {}; none is changed\n", counted(self.notes as u64, "note")));
        }
        text
    }
}

/// The files of the first commit: those that make the folder a brain, and none of the user's notes.
fn own_files(brain: &Brain) -> Result<Vec<NewFile>, CliError> {
    [brain::BRAIN_YAML, ".gitignore", "domains/.gitkeep"]
        .into_iter()
        .filter(|path| brain.root().join(path).is_file())
        .map(|path| {
            let content = std::fs::read(brain.root().join(path))?;
            Ok(NewFile { path: path.to_owned(), content, edits: false })
        })
        .collect()
}

/// Whether a brain is the default one, which commands use without `--brain`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultBrain {
    /// It has just become the default.
    NowSet,
    AlreadySet,
    /// Another brain is the default.
    Other,
}

/// Makes the first brain the default one. Later brains become the default only on request, or if the folder of the
/// default one is gone.
pub(crate) fn set_default_if_first(config: &Config, brain: &Brain) -> Result<DefaultBrain, CliError> {
    let is_free = match config.get("brain").1 {
        Origin::Default => true,
        Origin::File(_) => config.path("brain").is_some_and(|folder| !folder.exists()),
        Origin::Variable(_) | Origin::Flag(_) => false,
    };
    if is_free {
        config.write_brain(brain.root())?;
        return Ok(DefaultBrain::NowSet);
    }
    let is_this = |path: PathBuf| std::fs::canonicalize(path).is_ok_and(|path| path == brain.root());
    let is_set = config.path("brain").is_some_and(is_this);
    Ok(if is_set { DefaultBrain::AlreadySet } else { DefaultBrain::Other })
}

/// Says which brain is the default one, where that is news.
pub(crate) fn describe_default(
    context: &Context,
    config: &Config,
    brain: &Brain,
    default: DefaultBrain,
) -> String {
    match default {
        DefaultBrain::NowSet => format!("set as your brain in {}\n", config.file().display()),
        DefaultBrain::AlreadySet => String::new(),
        DefaultBrain::Other => format!(
            "your default brain is still {}: use --brain {} for this one\n",
            context.root(config).display(),
            brain.root().display()
        ),
    }
}
