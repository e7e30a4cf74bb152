//! `nugget init`: makes a brain, or makes one of what is there.

use std::path::PathBuf;
use std::process::ExitCode;

use brain::{Brain, Origin};
use forge::{Identity, Init, NewFile};
use jiff::Timestamp;
use serde_json::json;

use crate::fault::Fault;
use crate::output;
use crate::session::Door;

const AFTER: &str = "\
A folder of notes or a repository that is there is adopted: no file is
overwritten, nothing is committed for you, and its notes are found from now on.
A second run changes nothing.

Examples:
  nugget init
  nugget init --path ~/notes
  nugget init --path ~/brain --remote git@github.com:me/brain.git";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The folder [default: the setting `brain`, then ~/brain]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Where the brain will be pushed to: becomes the remote `origin`
    #[arg(long, value_name = "URL")]
    remote: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        let config = door.config()?;
        let root = self.path.clone().unwrap_or_else(|| door.root(&config));
        let made = Brain::init(&root)?;
        let brain = &made.brain;
        let found = forge::Repository::init(brain.root())?;
        let created_repository = matches!(found, Init::Created(_));
        let repository = found.into_repository();
        let commit = repository.commit_all_new(
            &own_files(brain)?,
            "Begin the brain\n",
            Timestamp::now(),
            &Identity::default(),
        )?;
        let remote_added = match &self.remote {
            Some(url) => repository.add_remote("origin", url)?,
            None => false,
        };
        // The first brain becomes the one that every command finds; a further one only on request.
        let is_default = config
            .path("brain")
            .is_some_and(|path| std::fs::canonicalize(path).is_ok_and(|path| path == brain.root()));
        let makes_default = config.get("brain").1 == Origin::Default;
        if makes_default {
            config.write_brain(brain.root()).map_err(|error| Fault::new(format!("{error}")))?;
        }
        let changed = !made.written.is_empty()
            || created_repository
            || commit.is_some()
            || remote_added
            || makes_default;

        if self.json {
            output::print_json(&json!({
                "brain": brain.root(),
                "changed": changed,
                "written": made.written,
                "repository_created": created_repository,
                "first_commit": commit.map(|commit| commit.to_string()),
                "remote_added": remote_added,
                "notes": made.notes,
                "is_default": is_default || makes_default,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = brain.root().display();
        if !changed {
            output::print(&format!("{shown} is a brain already; nothing was changed\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        match (created_repository, commit.is_some()) {
            (true, true) => {
                text.push_str(&format!("made a brain with a git repository and a first commit at {shown}\n"))
            }
            (false, true) => text.push_str(&format!("made a brain with a first commit at {shown}\n")),
            _ => text.push_str(&format!("adopted {shown} as a brain\n")),
        }
        if !made.written.is_empty() && commit.is_none() {
            text.push_str(&format!("written, for you to commit: {}\n", made.written.join(", ")));
        }
        if made.notes > 0 {
            let notes = if made.notes == 1 { "1 note".to_owned() } else { format!("{} notes", made.notes) };
            text.push_str(&format!("{notes} found there; each stays as it is\n"));
        }
        if remote_added {
            text.push_str("added the remote `origin`\n");
        }
        if makes_default {
            text.push_str(&format!("set as your brain in {}\n", config.file().display()));
        } else if !is_default {
            let other = door.root(&config);
            text.push_str(&format!(
                "your brain is still {}: give --brain {shown} to use this one\n",
                other.display()
            ));
        }
        text.push_str("next: claude mcp add --scope user nugget -- nugget serve\n");
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the first commit holds: the files that make the folder a brain, and no note of the user's.
fn own_files(brain: &Brain) -> Result<Vec<NewFile>, Fault> {
    [brain::BRAIN_YAML, ".gitignore", "domains/.gitkeep"]
        .into_iter()
        .filter(|path| brain.root().join(path).is_file())
        .map(|path| {
            let content = std::fs::read(brain.root().join(path))?;
            Ok(NewFile { path: path.to_owned(), content, edits: false })
        })
        .collect()
}
