//! `nugget server demo`: the loop of a team, with real processes in a temporary folder.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use team::private_postgres::PrivatePostgres;
use team_client::TeamClient;

use crate::async_runtime;
use crate::commands::demo::{QUESTION, TRANSCRIPT, print_heading};
use crate::context::Context;
use crate::error::CliError;
use crate::output;

const BRAIN: &str = "demo";
/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
#[command(
    after_help = "Nothing outside of the temporary folder is changed, and nothing leaves this\nmachine. Needs the programs of PostgreSQL and pgvector, not a running server:\nin NUGGET_POSTGRES_BIN, on the PATH, or where Debian puts them.\n\nExample:\n  nugget server demo"
)]
pub(crate) struct ServerDemoArgs {}

impl ServerDemoArgs {
    pub(super) fn run(self, _: &Context) -> Result<(), CliError> {
        let missing = |what: &str| {
            CliError::new(format!("{what} is not installed on this machine")).hint(
                "on Debian: apt install postgresql-16 postgresql-16-pgvector; on macOS: brew install postgresql@17 pgvector; or name the folder of its programs in NUGGET_POSTGRES_BIN",
            )
        };
        let programs = PrivatePostgres::find().ok_or_else(|| missing("PostgreSQL"))?;
        if !programs.have_vector() {
            return Err(missing("pgvector"));
        }
        // Sockets have short paths, and PostgreSQL run by root belongs to another user.
        let folder = tempfile::Builder::new().prefix("nugget-").tempdir_in(short_folder())?;
        fs::set_permissions(folder.path(), system::file::permissions(0o711))?;
        let postgres = PrivatePostgres::start(&programs, &folder.path().join("db"))?;
        Demo { folder: fs::canonicalize(folder.path())?, database: postgres.url("postgres") }.run()
    }
}

fn short_folder() -> PathBuf {
    let usual = std::env::temp_dir();
    if usual.as_os_str().len() > 40 { PathBuf::from("/tmp") } else { usual }
}

struct Demo {
    folder: PathBuf,
    database: String,
}

/// A server's process, which ends with the demo.
struct ServerProcess {
    process: Child,
    url: String,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Demo {
    fn run(&self) -> Result<(), CliError> {
        print_heading(1, "a private PostgreSQL, and a brain in git that two people share")?;
        let remote = self.make_remote()?;
        self.admin(&["server", "migrate"])?;
        self.admin(&["server", "brain", "add", BRAIN, &remote])?;
        let ada = self.token("ada")?;
        let bob = self.token("bob")?;

        print_heading(2, "three servers, none of which keeps anything of its own")?;
        let mut servers: Vec<ServerProcess> =
            (1..=3).map(|number| self.start_server(number)).collect::<Result<_, _>>()?;
        for server in &servers {
            output::print(&format!("  {}\n", server.url))?;
        }

        print_heading(3, "Ada's session ends; her laptop reads and redacts it, and hands it over")?;
        let laptop = self.folder.join("ada");
        self.nugget(&laptop, &["clone", &remote, &text(&laptop.join("brain"))], None)?;
        self.shown(&laptop, &["login", &servers[0].url], Some(&ada))?;
        let transcript = self.folder.join("5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913.jsonl");
        fs::write(&transcript, TRANSCRIPT)?;
        self.shown(&laptop, &["capture-session", "--transcript", &text(&transcript), "--wait"], None)?;

        print_heading(4, "the first server is killed; another one works on")?;
        drop(servers.remove(0));
        let branch = self.wait_for("a branch for review", || {
            let branches =
                self.git(Path::new(&remote), &["branch", "--list", "--format=%(refname:short)", "nugget/*"])?;
            Ok(branches.lines().next().map(str::to_owned))
        })?;
        output::print(&format!("  the team's repository has the branch {branch}\n"))?;

        print_heading(5, "a person merges it")?;
        let commit = self.merge(&remote, &branch)?;
        self.wait_for("the index to be published", || {
            let brains = self.admin(&["server", "brain", "list", "--json"])?;
            let brains: serde_json::Value = serde_json::from_str(&brains)?;
            Ok((brains[0]["commit"] == commit.as_str()).then_some(()))
        })?;
        output::print("  merged, and published to PostgreSQL\n")?;

        print_heading(6, "Bob's session asks any of the servers about it, in other words")?;
        let client = TeamClient::new(&servers[1].url, &bob)?;
        let arguments = json!({ "task_description": QUESTION });
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let asked = client.ask(BRAIN, &arguments, Duration::from_secs(30));
        for line in async_runtime::current_thread()?.block_on(asked)?.text.lines().take(16) {
            output::print(&format!("  {}\n", output::safe(line)))?;
        }
        output::print(&format!("\n{}", self.admin(&["server", "status"])?))?;
        output::print("To run a server for your team: docs/team.md\n")
    }

    /// A bare repository with a new brain.
    fn make_remote(&self) -> Result<String, CliError> {
        let (seed, remote) = (self.folder.join("seed"), self.folder.join("brain.git"));
        self.nugget(&self.folder.join("admin"), &["init", "--path", &text(&seed)], None)?;
        self.git(&self.folder, &["clone", "--quiet", "--bare", &text(&seed), &text(&remote)])?;
        Ok(text(&remote))
    }

    fn token(&self, subject: &str) -> Result<String, CliError> {
        let created = self.admin(&["server", "token", "create", subject, BRAIN])?;
        Ok(created.trim().to_owned())
    }

    fn start_server(&self, number: u32) -> Result<ServerProcess, CliError> {
        let folder = self.folder.join(format!("server-{number}"));
        let arguments =
            ["server", "--listen", "127.0.0.1:0", "--lease", "5", "--sync", "1", "--folder", &text(&folder)];
        let mut process =
            self.command(&folder, &arguments).stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = process.stderr.take();
        let mut server = ServerProcess { process, url: String::new() };
        let Some(stderr) = stderr else { return Err(CliError::new("the server has no output")) };
        let mut lines = BufReader::new(stderr);
        let mut said = String::new();
        while server.url.is_empty() {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Err(CliError::new(format!("server {number} has ended: {}", said.trim())));
            }
            if let Some((_, address)) = line.trim().split_once("listening on ") {
                server.url = format!("http://{address}");
            }
            said.push_str(&line);
        }
        let mut log = fs::File::create(self.log(number))?;
        std::thread::spawn(move || std::io::copy(&mut lines, &mut log));
        Ok(server)
    }

    fn log(&self, number: u32) -> PathBuf {
        self.folder.join(format!("server-{number}.log"))
    }

    /// The last line of a server's log.
    fn last_words(&self, number: u32) -> Option<String> {
        let log = fs::read_to_string(self.log(number)).ok()?;
        Some(format!("server {number}: {}", output::safe(log.lines().last()?)))
    }

    /// Merges a branch as a person does, in a clone; returns the commit.
    fn merge(&self, remote: &str, branch: &str) -> Result<String, CliError> {
        let clone = self.folder.join("reviewer");
        self.git(&self.folder, &["clone", "--quiet", remote, &text(&clone)])?;
        self.git(&clone, &["merge", "--quiet", "--no-edit", &format!("origin/{branch}")])?;
        self.git(&clone, &["push", "--quiet", "origin", "HEAD"])?;
        Ok(self.git(&clone, &["rev-parse", "HEAD"])?.trim().to_owned())
    }

    fn wait_for<T>(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<T>, CliError>,
    ) -> Result<T, CliError> {
        let spinner = output::spinner(format!("waiting for {what}"));
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(found) = look()? {
                spinner.finish_and_clear();
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let said: Vec<String> = (1..=3).filter_map(|number| self.last_words(number)).collect();
        Err(CliError::new(format!("{what} did not appear within {} s", PATIENCE.as_secs()))
            .hint(said.join("\n")))
    }

    fn git(&self, folder: &Path, arguments: &[&str]) -> Result<String, CliError> {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder).args(arguments);
        command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")]);
        command.envs([("GIT_AUTHOR_NAME", "Reviewer"), ("GIT_AUTHOR_EMAIL", "reviewer@example.com")]);
        command.envs([("GIT_COMMITTER_NAME", "Reviewer"), ("GIT_COMMITTER_EMAIL", "reviewer@example.com")]);
        finish(command, None, "git")
    }

    fn admin(&self, arguments: &[&str]) -> Result<String, CliError> {
        self.nugget(&self.folder.join("admin"), arguments, None)
    }

    /// Prints a command and its output.
    fn shown(&self, home: &Path, arguments: &[&str], input: Option<&str>) -> Result<(), CliError> {
        let shown = arguments.join(" ").replace(&format!("{}/", self.folder.display()), "");
        output::print(&format!("  $ nugget {shown}\n"))?;
        for line in self.nugget(home, arguments, input)?.lines() {
            output::print(&format!("  {line}\n"))?;
        }
        Ok(())
    }

    fn nugget(&self, home: &Path, arguments: &[&str], input: Option<&str>) -> Result<String, CliError> {
        finish(self.command(home, arguments), input, &format!("nugget {}", arguments.join(" ")))
    }

    /// This program in another process, with its own home.
    fn command(&self, home: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::from("nugget")));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NUGGET_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).envs([("HOME", home.to_owned())]);
        for (variable, folder) in
            [("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state"), ("XDG_DATA_HOME", "data")]
        {
            command.env(variable, home.join(folder));
        }
        command
            .env("NUGGET_DATABASE", &self.database)
            .env("NUGGET_BRAIN", home.join("brain"))
            .env("NUGGET_DRAINER_LINGER_SECONDS", "0")
            .env("NUGGET_SWEEP_ENABLED", "off")
            // With a key a model would read the session, but the demo promises that nothing is sent.
            .env("NUGGET_EXTRACT_BACKEND", "heuristic");
        command
    }
}

/// Runs a command with a text on stdin, and returns its output.
fn finish(mut command: Command, input: Option<&str>, name: &str) -> Result<String, CliError> {
    let until = Instant::now() + PATIENCE;
    let output = system::process::run(&mut command, input.unwrap_or_default().as_bytes().to_vec(), until)?;
    if output.succeeded != Some(true) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(CliError::new(format!("{name} failed: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
