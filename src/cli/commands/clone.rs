//! `nugget clone`: brings a brain that is kept elsewhere to this machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use brain::{Brain, Config, Origin};
use git::{RemoteUrl, Scheme};
use github::{GitHub, Host, Slug};
use serde_json::json;

use super::init::{self, Default, Made};
use crate::context::Context;
use crate::error::CliError;
use crate::output;
use crate::remote::{self, API_DEADLINE};

/// A brain with its history may be large, and the way to it slow.
const DEADLINE: Duration = Duration::from_secs(1800);

const AFTER: &str = "\
What is there becomes the brain on this machine. A repository that is no brain
yet is made one. A folder with something in it is refused.

Examples:
  nugget clone me/brain
  nugget clone git@github.com:me/brain.git ~/brain
  nugget clone https://git.example.com/me/brain.git";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Where it is: a URL that git understands, or OWNER/NAME on GitHub
    #[arg(value_name = "URL|OWNER/NAME")]
    from: String,
    /// The folder [default: ~/brain if there is no brain yet, else one of its name]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        context.log_to_stderr();
        let api = config.string("github.api");
        let url = match self.from.parse::<Slug>() {
            Ok(slug) if !std::path::Path::new(&self.from).exists() => url_on_github(&slug, &api)?,
            _ => local(&self.from),
        };
        let place = RemoteUrl::parse(&url);
        let folder = self.folder.clone().unwrap_or_else(|| folder_for(&config, place.as_ref()));
        let credentials = remote::credentials_for(place.as_ref(), &api)?;
        let bar = output::spinner();
        bar.set_message("cloning");
        let cloned = git::clone(&url, &folder, credentials.as_ref(), DEADLINE);
        bar.finish_and_clear();
        let repository = cloned?;

        let was_brain = Brain::open(repository.root()).is_ok();
        let made = Made::at(repository.root())?;
        // A repository that was empty has its first commit now.
        let first = (!was_brain).then(|| remote::push_first(&made.repository, &api));
        let default = init::made_default(&config, &made.brain)?;
        let units = made.brain.files()?.len();
        if self.json {
            output::print_json(&json!({
                "brain": made.brain.root(),
                "was_brain": was_brain,
                "units": units,
                "push": first.as_ref().map(|first| first.told("origin")),
                "is_default": default != Default::Other,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = made.brain.root().display();
        let mut text = match (was_brain, units) {
            (true, 1) => format!("cloned the brain to {shown}: 1 unit\n"),
            (true, units) => format!("cloned the brain to {shown}: {units} units\n"),
            (false, _) => format!("cloned to {shown}, which was no brain yet\n{}", made.told()),
        };
        if let Some(first) = &first {
            text.push_str(&format!("{}\n", first.told("origin")));
        }
        text.push_str(&init::told_default(context, &config, &made.brain, default));
        text.push_str(init::NEXT);
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Where git gets it from. With a token GitHub is asked, who knows what it is called today.
fn url_on_github(slug: &Slug, api: &str) -> Result<String, CliError> {
    let site = Host::from_setting(api)?;
    match site.token()? {
        Some(found) => {
            let repository = remote::runtime()?.block_on(async {
                GitHub::new(&site.settings(API_DEADLINE), &found.token)?.repository(slug).await
            })?;
            Ok(repository.clone_url)
        }
        None => {
            let scheme = if site.api().starts_with("http:") { "http" } else { "https" };
            Ok(format!("{scheme}://{}/{slug}.git", site.host()))
        }
    }
}

/// A folder as git takes it from anywhere; anything else as it is.
fn local(from: &str) -> String {
    let is_folder = !from.contains("://") && std::path::Path::new(from).is_dir();
    match std::path::absolute(from) {
        Ok(path) if is_folder => path.display().to_string(),
        _ => from.to_owned(),
    }
}

fn folder_for(config: &Config, place: Option<&RemoteUrl>) -> PathBuf {
    let usual = brain::paths::default_brain();
    if config.get("brain").1 == Origin::Default && !usual.exists() {
        return usual;
    }
    let path = place.map_or("", |place| place.path.as_str());
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = match place.map(|place| place.scheme) {
        Some(Scheme::File) => name.strip_suffix(".git").unwrap_or(name),
        _ => name,
    };
    PathBuf::from(if name.is_empty() || name.starts_with('-') { "brain" } else { name })
}
