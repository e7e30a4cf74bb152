//! `nugget init`: makes a brain, or makes one of what is there.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use brain::{Brain, Config, Initialized, Origin};
use git::{Identity, Init, NewFile};
use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, FAILED};
use crate::output;
use crate::remote::{self, First, Hub};

const AFTER: &str = "\
A folder of notes or a repository that is there is adopted: no file is
overwritten, nothing is committed for you, and its notes are found from now on.
A second run changes nothing.

With --remote or --github the brain is pushed there if nothing is there yet;
from then on each session's knowledge comes as a branch there, and on GitHub as
a pull request. The token is that of GITHUB_TOKEN, GH_TOKEN, `gh auth token` or
git's credential helper.

Examples:
  nugget init
  nugget init --path ~/notes
  nugget init --github me/brain --create
  nugget init --path ~/brain --remote git@example.com:me/brain.git";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The folder [default: the setting `brain`, then ~/brain]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Where the brain is pushed to: becomes the remote `origin`
    #[arg(long, value_name = "URL")]
    remote: Option<String>,
    /// The same, for a repository on GitHub (or on the server that the setting `github.api` names)
    #[arg(long, value_name = "OWNER/NAME", conflicts_with = "remote")]
    github: Option<String>,
    /// Make that repository on GitHub if it is not there, for nobody but you to see
    #[arg(long, requires = "github")]
    create: bool,
    /// Make it for everybody to see
    #[arg(long, requires = "create")]
    public: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        context.log_to_stderr();
        let root = self.path.clone().unwrap_or_else(|| context.root(&config));
        let api = config.string("github.api");
        // Before anything is made here, so that a wrong name or token leaves nothing behind.
        let hub = match &self.github {
            Some(slug) => Some(Hub::find(&slug.parse()?, &api, self.create, !self.public)?),
            None => None,
        };
        let made = Made::at(&root)?;
        let url = self.remote.as_deref().or(hub.as_ref().map(|hub| hub.repository.clone_url.as_str()));
        let remote_added = match url {
            Some(url) => made.repository.add_remote("origin", url)?,
            None => false,
        };
        let first = url.map(|_| remote::push_first(&made.repository, &api));
        let default = made_default(&config, &made.brain)?;
        let is_pushed = matches!(first, Some(First::Pushed { .. }));
        let is_created = hub.as_ref().is_some_and(|hub| hub.is_created);
        let changed = made.changed() || remote_added || is_pushed || is_created || default == Default::Made;

        let brain = &made.brain;
        // What was asked for by name must have been done; a remote may be away.
        let code = match &first {
            Some(first) if self.github.is_some() && !first.is_good() => ExitCode::from(FAILED),
            _ => ExitCode::SUCCESS,
        };
        if self.json {
            output::print_json(&json!({
                "brain": brain.root(),
                "changed": changed,
                "written": made.written,
                "repository_created": made.is_repository_new,
                "first_commit": made.commit.map(|commit| commit.to_string()),
                "remote_added": remote_added,
                "github": hub.as_ref().map(|hub| json!({
                    "repository": hub.repository.slug.to_string(),
                    "url": hub.repository.html_url,
                    "private": hub.repository.private,
                    "created": hub.is_created,
                })),
                "pushed": is_pushed,
                "push": first.as_ref().map(|first| first.told("origin")),
                "notes": made.notes,
                "is_default": default != Default::Other,
            }))?;
            return Ok(code);
        }
        let shown = brain.root().display();
        let mut text = String::new();
        if !changed {
            text.push_str(&format!("{shown} is a brain already; nothing was changed\n"));
        } else {
            text.push_str(&made.told());
        }
        if let Some(hub) = &hub {
            text.push_str(&hub.told(self.public));
        }
        if remote_added {
            text.push_str("added the remote `origin`\n");
        }
        if let Some(first) = &first {
            text.push_str(&format!("{}\n", first.told("origin")));
        }
        if changed {
            text.push_str(&told_default(context, &config, brain, default));
            text.push_str(NEXT);
        }
        output::print(&text)?;
        Ok(code)
    }
}

/// What to do once there is a brain.
pub(crate) const NEXT: &str = "next: `nugget install` makes it part of Claude Code\n";

/// A brain with its repository, and what of it is new.
pub(crate) struct Made {
    pub(crate) brain: Brain,
    pub(crate) repository: git::Repository,
    written: Vec<String>,
    notes: usize,
    is_repository_new: bool,
    commit: Option<git::CommitId>,
}

impl Made {
    /// Makes a brain of what is there, or of nothing.
    pub(crate) fn at(root: &Path) -> Result<Self, CliError> {
        let made = Brain::init(root)?;
        let found = git::Repository::init(made.brain.root())?;
        let is_repository_new = matches!(found, Init::Created(_));
        let repository = found.into_repository();
        let commit = repository.create_initial_commit(
            &own_files(&made.brain)?,
            "Begin the brain\n",
            Timestamp::now(),
            &Identity::default(),
        )?;
        let Initialized { brain, written, notes } = made;
        Ok(Self { brain, repository, written, notes, is_repository_new, commit })
    }

    fn changed(&self) -> bool {
        !self.written.is_empty() || self.is_repository_new || self.commit.is_some()
    }

    pub(crate) fn told(&self) -> String {
        let shown = self.brain.root().display();
        let mut text = match (self.is_repository_new, self.commit.is_some()) {
            (true, true) => format!("made a brain with a git repository and a first commit at {shown}\n"),
            (false, true) => format!("made a brain with a first commit at {shown}\n"),
            _ => format!("adopted {shown} as a brain\n"),
        };
        if !self.written.is_empty() && self.commit.is_none() {
            text.push_str(&format!("written, for you to commit: {}\n", self.written.join(", ")));
        }
        if self.notes > 0 {
            let notes = if self.notes == 1 { "1 note".to_owned() } else { format!("{} notes", self.notes) };
            text.push_str(&format!("{notes} found there; each stays as it is\n"));
        }
        text
    }
}

/// Whether a brain is the one that every command finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    Made,
    Already,
    Other,
}

/// The first brain becomes the one that every command finds; a further one only on request.
pub(crate) fn made_default(config: &Config, brain: &Brain) -> Result<Default, CliError> {
    if config.get("brain").1 == Origin::Default {
        config.write_brain(brain.root()).map_err(|error| CliError::new(format!("{error}")))?;
        return Ok(Default::Made);
    }
    let is_it = |path: PathBuf| std::fs::canonicalize(path).is_ok_and(|path| path == brain.root());
    Ok(if config.path("brain").is_some_and(is_it) { Default::Already } else { Default::Other })
}

pub(crate) fn told_default(context: &Context, config: &Config, brain: &Brain, default: Default) -> String {
    match default {
        Default::Made => format!("set as your brain in {}\n", config.file().display()),
        Default::Already => String::new(),
        Default::Other => format!(
            "your brain is still {}: give --brain {} to use this one\n",
            context.root(config).display(),
            brain.root().display()
        ),
    }
}

/// What the first commit holds: the files that make the folder a brain, and no note of the user's.
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
