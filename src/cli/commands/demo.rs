//! `nugget demo`: the whole flywheel in a scratch folder, through the real commands.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use crate::context::Context;
use crate::error::CliError;
use crate::output;

/// A debugging session as Claude Code writes it down, and what a later one might ask.
const TRANSCRIPT: &str = include_str!("../../../tests/fixtures/transcripts/synthetic/flywheel.jsonl");
const QUESTION: &str = "Why did a customer receive their bill twice?";

#[derive(clap::Args)]
#[command(
    after_help = "Nothing outside of the scratch folder is touched, and nothing leaves this\nmachine.\n\nExample:\n  nugget demo --keep /tmp/flywheel"
)]
pub(crate) struct Arguments {
    /// Do it in this new folder and leave it there to look at
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self, _: &Context) -> Result<ExitCode, CliError> {
        let scratch = tempfile::Builder::new().prefix("nugget-demo-").tempdir()?;
        let folder = match &self.keep {
            Some(folder) if folder.exists() => {
                return Err(CliError::new(format!("{} exists already", folder.display()))
                    .hint("give a folder that does not"));
            }
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                std::fs::canonicalize(folder)?
            }
            None => scratch.path().to_owned(),
        };
        Demo { folder }.run()?;
        Ok(ExitCode::SUCCESS)
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

        self.step(1, "a brain: a git repository of your own", &["init", "--path", &text(&brain)])?;
        self.step(
            2,
            "a session ends, its transcript is captured (what the SessionEnd hook does)",
            &["capture-session", "--transcript", &text(&transcript), "--wait"],
        )?;
        let captures = self.json(&["status", "--json"])?;
        let branch = captures["captures"][0]["branch"].as_str().unwrap_or_default().to_owned();
        if branch.is_empty() {
            return Err(CliError::new("the capture made no branch"));
        }
        let repository = git::Repository::open(&brain)?;
        tell(3, &format!("what it learned waits on the branch {branch}"))?;
        for (path, content) in repository.branch_files(&branch)? {
            let content = String::from_utf8_lossy(&content);
            let shown: Vec<String> = content.lines().take(40).map(|line| format!("    {line}")).collect();
            output::print(&format!("  {path}\n{}\n\n", shown.join("\n")))?;
        }
        tell(4, "you review it, and merge (git merge, or a pull request)")?;
        let held = git::Lock::acquire(&repository.lock_path()?)?;
        match repository.fast_forward(&held, &branch)? {
            git::FastForward::Refused(reason) => return Err(CliError::new(format!("not merged: {reason}"))),
            _ => output::print("  merged\n\n")?,
        }
        drop(held);
        self.step(
            5,
            "another session asks, in words of its own",
            &["ask", QUESTION, "--no-llm", "--limit", "3"],
        )?;
        output::print(
            "That is the flywheel. To use it:\n\
             \x20 cargo install --path .                                    put nugget on your PATH\n\
             \x20 nugget init                                               your own brain, ~/brain\n\
             \x20 nugget install                                            Claude Code asks it and feeds it\n",
        )
    }

    /// Runs one command as a person would and shows both.
    fn step(&self, number: u32, what: &str, arguments: &[&str]) -> Result<(), CliError> {
        tell(number, what)?;
        output::print(&format!("  $ nugget {}\n", shown(arguments, &self.folder)))?;
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

    /// Another process of this program, with a home of its own.
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
            .env("NUGGET_DRAINER_LINGER_SECONDS", "0")
            .env("NUGGET_SWEEP_ENABLED", "off")
            // With a key at hand a model would read the session: the demo promises that nothing is sent.
            .env("NUGGET_EXTRACT_BACKEND", "heuristic")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            std::io::stderr().write_all(&output.stderr)?;
            return Err(CliError::new(format!(
                "nugget {} has failed",
                arguments.first().copied().unwrap_or_default()
            )));
        }
        Ok(output)
    }
}

fn tell(number: u32, what: &str) -> Result<(), CliError> {
    let bold = anstyle::Style::new().bold();
    output::print(&format!("{bold}{number}. {what}{bold:#}\n"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn shown(arguments: &[&str], folder: &Path) -> String {
    let folder = format!("{}/", folder.display());
    let quoted = |word: &&str| {
        let word = word.replace(&folder, "");
        if word.contains(' ') { format!("{word:?}") } else { word }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
