//! `nugget init`: creates a brain, or adopts a folder or repository as one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use brain::{Config, StatePaths};
use queue::Queue;
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, FAILED, MISSING};
use crate::new_brain::{self, DefaultBrain, NewBrain};
use crate::output::{counted, short_path};
use crate::remote::{self, GitHubRepository};
use crate::{extractor, output};

const AFTER: &str = "\
An existing folder of notes or repository is adopted: no file is overwritten,
none of your files is committed, and its notes can be searched from then on. A
second run changes nothing.

With --remote or --github the brain is pushed there if the remote is empty; a
brain that the remote has is cloned, if there is none here. From then on each
session's knowledge arrives there as a branch, and on GitHub as a pull request.
The token is that of GITHUB_TOKEN, GH_TOKEN, `gh auth token` or git's credential
helper.

Examples:
  nugget init
  nugget init --path ~/notes
  nugget init --github me/brain --create
  nugget init --path ~/brain --remote git@example.com:me/brain.git";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct InitArgs {
    /// The folder [default: the setting `brain`, then ~/brain]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// The URL to push the brain to; becomes the remote `origin`
    #[arg(long, value_name = "URL")]
    remote: Option<String>,
    /// Like --remote, for a repository on GitHub (or on the server that the setting `github.api` names)
    #[arg(long, value_name = "OWNER/NAME", conflicts_with = "remote")]
    github: Option<String>,
    /// Create that repository on GitHub if it does not exist, as a private one
    #[arg(long, requires = "github")]
    create: bool,
    /// Create it as a public repository
    #[arg(long, requires = "create")]
    public: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl InitArgs {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let root = self.path.clone().unwrap_or_else(|| context.root(&config));
        let api = config.string("github.api");
        // First of all, so that a wrong path, URL, name or token leaves nothing behind.
        new_brain::check_path(&root)?;
        self.remote.as_deref().map_or(Ok(()), git::check_remote_url)?;
        let github = match &self.github {
            Some(slug) => Some(GitHubRepository::find(&slug.parse()?, &api, self.create, !self.public)?),
            None => None,
        };
        let github_url = github.as_ref().map(|github| github.repository.clone_url.as_str());
        let url = self.remote.as_deref().or(github_url);
        let is_free = root.read_dir().map_or(!root.exists(), |mut entries| entries.next().is_none());
        if self.path.is_none() && url.is_none() && is_free {
            check_not_away(&config, &root)?;
        }
        // A brain of its own here would have a history that the remote's does not go with.
        let may_have_one = is_free && !github.as_ref().is_some_and(|github| github.is_created);
        let cloned = match url.filter(|_| may_have_one) {
            Some(url) => remote::clone_existing(url, &root, &api)?,
            None => None,
        };
        let created = NewBrain::create(&root)?;
        let forgotten = forget_former_brain(&created)?;
        let remote_added = match url {
            Some(url) => created.repository.add_remote("origin", url)?,
            None => false,
        };
        let push = url.map(|_| remote::push_first(&created.repository, &api));
        let brain = &created.brain;
        let default = new_brain::set_default_if_first(&config, brain)?;
        let waiting = cloned.as_ref().map_or(0, |_| remote::follow_fetched(context, &config, brain));
        let is_pushed = push.as_ref().is_some_and(|push| push.is_pushed);
        let is_changed = cloned.is_some()
            || created.is_changed()
            || remote_added
            || is_pushed
            || github.as_ref().is_some_and(|github| github.is_created)
            || default == DefaultBrain::NowSet;

        // The user asked for GitHub by name, so that must work; another remote may be unreachable.
        let code = match &push {
            Some(push) if self.github.is_some() && !push.is_ready => ExitCode::from(FAILED),
            _ => ExitCode::SUCCESS,
        };
        if self.json {
            output::print_json(&json!({
                "brain": brain.root(),
                "changed": is_changed,
                "cloned": cloned.is_some(),
                "branches_to_review": waiting,
                "written": created.written,
                "repository_created": created.is_repository_new,
                "first_commit": created.commit.map(|commit| commit.to_string()),
                "captures_forgotten": forgotten,
                "remote_added": remote_added,
                "github": github.as_ref().map(|github| json!({
                    "repository": github.repository.slug.to_string(),
                    "url": github.repository.html_url,
                    "private": github.repository.private,
                    "created": github.is_created,
                })),
                "pushed": is_pushed,
                "push": push.as_ref().map(|push| &push.message),
                "notes": created.notes,
                "is_default": default != DefaultBrain::Other,
                "sessions_are_read_by": extractor::destination(&config),
            }))?;
            return Ok(code);
        }
        let mut text = String::new();
        if cloned.is_some() {
            let units = counted(brain.files()?.len() as u64, "unit");
            text.push_str(&format!("cloned what the remote has to {}: {units}\n", brain.root().display()));
            text.push_str(&remote::describe_waiting(waiting));
        }
        if created.is_changed() || (is_changed && cloned.is_none()) {
            text.push_str(&created.describe());
        } else if !is_changed {
            text.push_str(&format!("{} is already a brain; nothing was changed\n", brain.root().display()));
        }
        if forgotten > 0 {
            text.push_str(&format!(
                "forgot {} of a brain that was here before: their sessions can be captured again\n",
                counted(forgotten as u64, "capture")
            ));
        }
        if let Some(github) = &github {
            text.push_str(&github.describe(self.public));
        }
        if remote_added {
            text.push_str("added the remote `origin`\n");
        }
        if let Some(push) = &push {
            text.push_str(&format!("{}\n", push.message));
        }
        if is_changed {
            text.push_str(&new_brain::describe_default(context, &config, brain, default));
            text.push_str(&extractor::describe_for_setup(&config));
            text.push_str(new_brain::next_step());
        }
        output::print(&text)?;
        Ok(code)
    }
}

/// A brain that is away, as on a disk that is not mounted, is not the one to make by default.
fn check_not_away(config: &Config, root: &Path) -> Result<(), CliError> {
    if config.path("brain").is_none() || !StatePaths::for_brain(root).queue().is_file() {
        return Ok(());
    }
    let path = short_path(root);
    let message = format!("the brain that was at {path} is not there; none was made");
    let hint =
        format!("mount its disk, or name its folder: `nugget init --path {path}` makes a new one there");
    Err(CliError::new(message).code(MISSING).hint(hint))
}

/// Forgets what is known of another brain's captures, whose folder was deleted: else its sessions would count as captured
/// for ever. Returns how many there were.
fn forget_former_brain(created: &NewBrain) -> Result<usize, CliError> {
    let queue = StatePaths::for_brain(created.brain.root()).queue();
    if !created.is_repository_new || !queue.is_file() {
        return Ok(0);
    }
    Ok(Queue::open(&queue)?.forget_ended()?)
}
