//! `nugget demo`: runs capture, review and recall in a temporary folder, with the real commands.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::context::Context;
use crate::error::CliError;
use crate::output;
use crate::subprocess::version_of;

/// The transcript of a debugging session, and a question of a later session.
pub(crate) const TRANSCRIPT: &str =
    include_str!("../../../tests/fixtures/transcripts/synthetic/flywheel.jsonl");
pub(crate) const QUESTION: &str = "Why did a customer receive their bill twice?";

const GIT_DEADLINE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    after_help = "Nothing outside of the temporary folder is changed, and nothing leaves this\nmachine.\n\nExample:\n  nugget demo --keep /tmp/flywheel"
)]
pub(crate) struct DemoArgs {
    /// Use this new folder and keep it
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl DemoArgs {
    pub(crate) fn run(self, _: &Context) -> Result<(), CliError> {
        // The capture would wait for it.
        if version_of(Path::new("git"), GIT_DEADLINE).is_none() {
            return Err(
                CliError::new("git was not found").hint("install it, and make sure that it is on the PATH")
            );
        }
        let temporary = tempfile::Builder::new().prefix("nugget-demo-").tempdir().map_err(|error| {
            CliError::new(format!("failed to create a folder in {}: {error}", std::env::temp_dir().display()))
                .hint("give a folder that can be written: nugget demo --keep DIR")
        })?;
        let folder = match &self.keep {
            Some(folder) if folder.exists() => {
                return Err(CliError::new(format!("{} already exists", folder.display()))
                    .hint("give a folder that does not exist yet"));
            }
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                std::fs::canonicalize(folder)?
            }
            None => temporary.path().to_owned(),
        };
        Demo { folder }.run()
    }
}

struct Demo {
    folder: PathBuf,
}

impl Demo {
    fn run(&self) -> Result<(), CliError> {
        let brain = self.folder.join("brain");
        let transcript = self.folder.join("5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913.jsonl");
        std::fs::write(&transcript, TRANSCRIPT)?;

        self.step(1, "create a brain, which is a git repository", &["init", "--path", &text(&brain)])?;
        self.step(
            2,
            "a session ends and is captured (the SessionEnd hook does this)",
            &["capture-session", "--transcript", &text(&transcript), "--wait"],
        )?;
        let captures = self.json(&["status", "--json"])?;
        let branch = captures["captures"][0]["branch"].as_str().unwrap_or_default().to_owned();
        if branch.is_empty() {
            return Err(CliError::new("the capture created no branch"));
        }
        let repository = git::Repository::open(&brain)?;
        print_heading(3, &format!("its knowledge waits for review on {branch}"))?;
        for (path, content) in repository.branch_files(&branch)? {
            let content = String::from_utf8_lossy(&content);
            let shown: Vec<String> = content.lines().take(40).map(|line| format!("    {line}")).collect();
            output::print(&format!("  {path}\n{}\n\n", shown.join("\n")))?;
        }
        self.step(4, "you review and merge it", &["review", "merge", "--all"])?;
        self.step(
            5,
            "another session asks about it in other words",
            &["ask", QUESTION, "--no-llm", "--limit", "3"],
        )?;
        output::print(
            "To use nugget yourself:\n\
             \x20 cargo install --locked --path .   put nugget on your PATH\n\
             \x20 nugget install                    add nugget to Claude Code\n\
             \x20 nugget init                       create your brain in ~/brain\n",
        )
    }

    /// Prints a command, runs it, and prints its output.
    fn step(&self, number: u32, what: &str, arguments: &[&str]) -> Result<(), CliError> {
        print_heading(number, what)?;
        output::print(&format!("  $ nugget {}\n", command_line(arguments, &self.folder)))?;
        let output = self.nugget(arguments)?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let line = if line.is_empty() { String::new() } else { format!("  {line}") };
            output::print(&format!("{line}\n"))?;
        }
        output::print("\n")
    }

    fn json(&self, arguments: &[&str]) -> Result<serde_json::Value, CliError> {
        Ok(serde_json::from_slice(&self.nugget(arguments)?.stdout)?)
    }

    /// Runs this program in another process, with the demo's folder as its home.
    fn nugget(&self, arguments: &[&str]) -> Result<Output, CliError> {
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NUGGET_") {
                command.env_remove(name);
            }
        }
        let output = command
            .args(arguments)
            .env("HOME", &self.folder)
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("XDG_DATA_HOME", self.folder.join("data"))
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .env("CLAUDE_CONFIG_DIR", self.folder.join("client"))
            .env("NUGGET_DRAINER_LINGER_SECONDS", "0")
            .env("NUGGET_SWEEP_ENABLED", "off")
            // With a key a model would read the session, but the demo promises that nothing is sent.
            .env("NUGGET_EXTRACT_BACKEND", "heuristic")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            std::io::stderr().write_all(&output.stderr)?;
            return Err(CliError::new(format!(
                "nugget {} failed",
                arguments.first().copied().unwrap_or_default()
            )));
        }
        Ok(output)
    }
}

pub(crate) fn print_heading(number: u32, what: &str) -> Result<(), CliError> {
    let bold = anstyle::Style::new().bold();
    output::print(&format!("{bold}{number}. {what}{bold:#}\n"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn command_line(arguments: &[&str], folder: &Path) -> String {
    let folder = format!("{}/", folder.display());
    let quoted = |word: &&str| {
        let word = word.replace(&folder, "");
        if word.contains(' ') { format!("{word:?}") } else { word }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
