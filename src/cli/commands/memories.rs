//! `nugget memories`: what earlier sessions were about.

use ::archive::{Archive, Memory, MemoryQuery, project_key};
use jiff::Timestamp;
use knowledge::UnitId;
use serde_json::json;

use super::completions;
use super::sessions::render::short;
use super::sessions::{PATIENCE, note_in_log, number_of_results, require_project};
use crate::archive::open_archive;
use crate::error::{CliError, MISSING, USAGE};
use crate::output::{self, ago, counted, safe};

const AFTER: &str = "\
nugget cuts each archived session into topics and keeps one memory of each that
found something: what was asked, and the sentence that says what was found, in
the original words. Nobody has reviewed them. They lie in the archive on this
machine, belong to one project, and are deleted with their session.

`nugget config set recall.memories on` tells them to new sessions of the same
project, marked as unreviewed, and searches them when Claude asks.

Examples:
  nugget memories                          the newest of this project
  nugget memories search \"retry of failed webhooks\"
  nugget memories show 12                  with the original words
  nugget memories forget 12                delete it, and never make it again
  nugget memories list --all-projects --json";

#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct MemoriesArgs {
    #[command(subcommand)]
    command: Option<MemoriesCommand>,
    #[command(flatten)]
    list: WhichArgs,
}

#[derive(clap::Subcommand)]
enum MemoriesCommand {
    /// List the newest memories
    List(WhichArgs),
    /// Print a memory with the original words
    Show(OneArgs),
    /// Find memories by their words
    Search(SearchArgs),
    /// Delete a memory, and never make it again
    Forget(OneArgs),
}

#[derive(clap::Args)]
struct WhichArgs {
    /// Of this project: a folder, its name, or its remote [default: that of this folder]
    #[arg(
        long,
        value_name = "P",
        conflicts_with = "all_projects",
        add = clap_complete::ArgValueCompleter::new(completions::projects)
    )]
    project: Option<String>,
    /// Of all projects
    #[arg(long)]
    all_projects: bool,
    /// The most memories to print
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = number_of_results())]
    limit: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  nugget memories search retry webhooks\n  nugget memories search \"token expiry\" --all-projects"
)]
struct SearchArgs {
    /// Words, of which at least one must occur
    #[arg(value_name = "WORDS", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(clap::Args)]
struct OneArgs {
    /// The memory's number, as `nugget memories` lists it
    #[arg(value_name = "NUMBER")]
    number: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl MemoriesArgs {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self.command {
            None => self.list.run(None),
            Some(MemoriesCommand::List(args)) => args.run(None),
            Some(MemoriesCommand::Search(args)) => args.which.run(Some(args.words.join(" "))),
            Some(MemoriesCommand::Show(args)) => args.show(),
            Some(MemoriesCommand::Forget(args)) => args.forget(),
        }
    }
}

impl WhichArgs {
    fn run(self, words: Option<String>) -> Result<(), CliError> {
        let named_project = match (&self.project, self.all_projects) {
            (_, true) => None,
            (project, false) => Some(project_key(project.as_deref().unwrap_or("."))?),
        };
        let archive = open_archive()?;
        if let Some(archive) = archive.as_ref().filter(|_| self.project.is_some()) {
            require_project(archive, named_project.as_deref())?;
        }
        let is_found_by_words = words.is_some();
        let query = MemoryQuery { named_project, words, limit: self.limit, ..MemoryQuery::default() };
        let memories = archive.as_ref().map_or(Ok(Vec::new()), |archive| archive.memories(&query))?;
        if self.json {
            return output::print_json(&json!({ "memories": memories }));
        }
        if memories.is_empty() {
            return output::print(match (is_found_by_words, query.named_project.is_some()) {
                (true, true) => "no memory of this project has these words; --all-projects searches all\n",
                (true, false) => "no memory has these words\n",
                (false, true) => "no memory of this project yet; --all-projects lists those of others\n",
                (false, false) => {
                    "no memory yet: they are made in the background after a session has ended\n"
                }
            });
        }
        let now = Timestamp::now();
        let mut text = String::from("Taken from sessions; nobody has reviewed them.\n\n");
        for memory in &memories {
            text.push_str(&format!(
                "{}\n  {}\n",
                head(memory, self.all_projects, now),
                safe(&memory.summary)
            ));
        }
        if memories.len() == self.limit {
            text.push_str(&format!(
                "\nthe first {}; --limit lists more\n",
                counted(self.limit as u64, "memory")
            ));
        }
        output::print(&text)
    }
}

impl OneArgs {
    fn number(&self) -> Result<i64, CliError> {
        let by_id = UnitId::verbatim(&self.number).memory_number();
        by_id.or_else(|| self.number.parse().ok()).ok_or_else(|| {
            CliError::new(format!("{:?} is not the number of a memory", self.number))
                .code(USAGE)
                .hint("`nugget memories` lists them")
        })
    }

    fn find(&self) -> Result<(Archive, Memory), CliError> {
        let number = self.number()?;
        let found = open_archive()?.map(|archive| archive.memory(number).map(|memory| (archive, memory)));
        match found.transpose()? {
            Some((archive, Some(memory))) => Ok((archive, memory)),
            _ => Err(CliError::new(format!("there is no memory {number}"))
                .code(MISSING)
                .hint("`nugget memories --all-projects` lists them")),
        }
    }

    fn show(&self) -> Result<(), CliError> {
        let (_, memory) = self.find()?;
        if self.json {
            return output::print_json(&json!({ "memory": memory }));
        }
        let mut text = format!("{}\n  {}\n", head(&memory, true, Timestamp::now()), safe(&memory.summary));
        for line in memory.dialogue.lines() {
            text.push_str(&format!("\n> {}\n", safe(line)));
        }
        text.push_str(&format!(
            "\nTaken from the session; nobody has reviewed it. The whole session: nugget sessions show {}\n",
            short(&memory.session)
        ));
        output::print(&text)
    }

    fn forget(&self) -> Result<(), CliError> {
        let (archive, memory) = self.find()?;
        note_in_log(archive.forget_memory(memory.id, PATIENCE)?.unwrap_or_default());
        if self.json {
            return output::print_json(&json!({ "removed": memory.id }));
        }
        output::print(&format!(
            "deleted memory {}; it is not made again. The session stays: nugget sessions forget {}\n",
            memory.id,
            short(&memory.session)
        ))
    }
}

/// `12 · 3 d ago · session 5a3b7c1e`.
fn head(memory: &Memory, with_project: bool, now: Timestamp) -> String {
    let mut head = format!("{} · {} · session {}", memory.id, ago(memory.at, now), short(&memory.session));
    if with_project {
        head.push_str(&format!(" · {}", safe(memory.project_name())));
    }
    if memory.times > 1 {
        head.push_str(&format!(" · found {} times", memory.times));
    }
    head
}
