//! `nugget clone`: brings an existing brain to this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brain::Brain;
use git::{RemoteFailure, RemoteUrl, Scheme};
use github::{GitHub, Host, Slug};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, MISSING};
use crate::extractor;
use crate::new_brain::{self, DefaultBrain, NewBrain};
use crate::output::{self, counted};
use crate::remote::{self, API_DEADLINE};

/// A brain with its history may be large, and the connection slow.
const DEADLINE: Duration = Duration::from_secs(1800);

const AFTER: &str = "\
The repository becomes the brain on this machine; if it is not a brain yet, it
is made one. The folder must be empty or missing.

Examples:
  nugget clone me/brain
  nugget clone git@github.com:me/brain.git ~/brain
  nugget clone https://git.example.com/me/brain.git";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct CloneArgs {
    /// A URL that git understands, or OWNER/NAME on GitHub
    #[arg(value_name = "URL|OWNER/NAME")]
    from: String,
    /// The folder [default: ~/brain if there is no brain yet, else one of the repository's name]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CloneArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        let api = config.string("github.api");
        let url = match self.from.parse::<Slug>() {
            Ok(slug) if !Path::new(&self.from).exists() => github_url(&slug, &api)?,
            _ => absolute_if_folder(&self.from),
        };
        let remote_url = RemoteUrl::parse(&url);
        let folder = self
            .folder
            .clone()
            .unwrap_or_else(|| default_folder(&context.root(&config), remote_url.as_ref()));
        new_brain::check_path(&folder)?;
        let credentials = remote::find_credentials(remote_url.as_ref(), &api)?;
        let spinner = output::spinner("cloning");
        let cloned = git::clone(&url, &folder, credentials.as_ref(), DEADLINE);
        spinner.finish_and_clear();
        let repository = cloned.map_err(|error| match error {
            git::Error::Remote { failure: RemoteFailure::NotFound, .. } => CliError::from(error)
                .code(MISSING)
                .hint("check the URL, and that you may read that repository"),
            error => error.into(),
        })?;

        let was_brain = Brain::open(repository.root()).is_ok();
        let created = NewBrain::create(repository.root())?;
        // A repository that was empty has its first commit now.
        let push = (!was_brain).then(|| remote::push_first(&created.repository, &api));
        let default = new_brain::set_default_if_first(&config, &created.brain)?;
        let units = created.brain.files()?.len();
        let waiting = remote::follow_fetched(context, &config, &created.brain);
        if self.json {
            return output::print_json(&json!({
                "brain": created.brain.root(),
                "was_brain": was_brain,
                "units": units,
                "branches_to_review": waiting,
                "push": push.as_ref().map(|push| &push.message),
                "is_default": default != DefaultBrain::Other,
            }));
        }
        let root = created.brain.root().display();
        let mut text = if was_brain {
            format!("cloned the brain to {root}: {}\n", counted(units as u64, "unit"))
        } else {
            format!("cloned to {root}, which was not a brain yet\n{}", created.describe())
        };
        text.push_str(&remote::describe_waiting(waiting));
        if let Some(push) = &push {
            text.push_str(&format!("{}\n", push.message));
        }
        text.push_str(&new_brain::describe_default(context, &config, &created.brain, default));
        text.push_str(&extractor::describe_for_setup(&config));
        text.push_str(new_brain::next_step());
        output::print(&text)
    }
}

/// The URL of a repository. With a token GitHub is asked for it, because the repository may have been renamed.
fn github_url(slug: &Slug, api: &str) -> Result<String, CliError> {
    let host = Host::from_setting(api)?;
    match host.token()? {
        Some(found) => {
            let repository = crate::async_runtime::current_thread()?.block_on(async {
                GitHub::new(host.api(), API_DEADLINE, &found.token)?.repository(slug).await
            })?;
            Ok(repository.clone_url)
        }
        None => {
            let scheme = if host.api().starts_with("http:") { "http" } else { "https" };
            Ok(format!("{scheme}://{}/{slug}.git", host.host()))
        }
    }
}

/// The absolute path of an existing folder; anything else unchanged.
fn absolute_if_folder(from: &str) -> String {
    let is_folder = !from.contains("://") && Path::new(from).is_dir();
    match std::path::absolute(from) {
        Ok(path) if is_folder => path.display().to_string(),
        _ => from.to_owned(),
    }
}

/// The folder of the default brain if there is no brain yet, or no more; else one of the repository's name.
fn default_folder(default: &Path, remote_url: Option<&RemoteUrl>) -> PathBuf {
    if !default.exists() {
        return default.to_owned();
    }
    let path = remote_url.map_or("", |url| url.path.as_str());
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = match remote_url.map(|url| &url.scheme) {
        Some(Scheme::File) => name.strip_suffix(".git").unwrap_or(name),
        _ => name,
    };
    PathBuf::from(if name.is_empty() || name.starts_with('-') { "brain" } else { name })
}
