//! A PostgreSQL of this process alone, on a socket in a folder: for tests, and for trying a team's brain.
//!
//! It listens on no network address. Nothing is downloaded: the programs must be on the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use system::process::User;

use crate::{Error, Result};

/// The environment variable with the folder of `initdb` and `postgres`.
pub const PROGRAMS_VARIABLE: &str = "NUGGET_POSTGRES_BIN";

/// The folder that distributions install one folder for each version to.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The longest path of a socket that every Unix allows, less the socket's name.
const FOLDER_BYTES_MAX: usize = 103 - SOCKET.len();
const SOCKET: &str = "/.s.PGSQL.5432";
const READY_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The programs of a PostgreSQL on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The programs in a folder, if they are there.
    pub fn from_folder(folder: &Path) -> Option<Self> {
        let has = |name: &str| folder.join(name).is_file();
        (has("initdb") && has("postgres")).then(|| Self { folder: folder.to_owned() })
    }

    /// Whether pgvector is installed with them, as far as the folder of extensions tells.
    pub fn have_vector(&self) -> bool {
        let said = Command::new(self.folder.join("pg_config")).arg("--sharedir").output();
        let shared = said.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        shared.is_some_and(|folder| Path::new(&folder).join("extension/vector.control").is_file())
    }
}

/// A running PostgreSQL, which is stopped when this is dropped. Its folder stays, and can be started again.
#[derive(Debug)]
pub struct PrivatePostgres {
    process: Child,
    folder: PathBuf,
}

impl PrivatePostgres {
    /// Finds the programs: where [`PROGRAMS_VARIABLE`] says, else in `PATH`, else in `/usr/lib/postgresql/*/bin`, the
    /// newest first. Those with pgvector come before those without.
    pub fn find() -> Option<Programs> {
        if let Some(folder) = std::env::var_os(PROGRAMS_VARIABLE) {
            return Programs::from_folder(Path::new(&folder));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(versions());
        let mut found: Vec<Programs> = folders.filter_map(|folder| Programs::from_folder(&folder)).collect();
        found.sort_by_key(|programs| !programs.have_vector());
        found.into_iter().next()
    }

    /// Starts a server on a folder, which is created or was used before. Run as root, the server belongs to the user
    /// `postgres` or `nobody`, as it refuses to run as root; that user must be able to reach the folder.
    ///
    /// # Errors
    /// [`Error::Private`] when the folder's path is longer than a socket's may be, or a program fails.
    pub fn start(programs: &Programs, folder: &Path) -> Result<Self> {
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            return Err(failed(&format!("{} is too long for a socket", folder.display()), None));
        }
        let user = user()?;
        let data = folder.join("data");
        prepare(folder, user)
            .map_err(|error| failed(&format!("prepare {}", folder.display()), Some(error)))?;
        if !data.join("PG_VERSION").exists() {
            initialize(programs, &data, user)?;
        }
        let mut command = program(programs, "postgres", user);
        command.arg("-D").arg(&data).arg("-k").arg(folder).args([
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=200",
            "-p",
            "5432",
        ]);
        let log = folder.join("log");
        let server = command
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(|error| failed("create the log", Some(error)))?)
            .spawn()
            .map_err(|error| failed("start postgres", Some(error)))?;
        // From here on dropping it stops the process.
        let mut postgres = Self { process: server, folder: folder.to_owned() };
        postgres.wait_until_ready()?;
        Ok(postgres)
    }

    /// The URL of one of its databases. Any process of this machine's user, and root, can use it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@/{database}?host={}", self.folder.display())
    }

    /// The process of the server.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_WAIT;
        loop {
            let refused = match postgres::Client::connect(&self.url("postgres"), postgres::NoTls) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.process.try_wait() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(failed(&format!("postgres ended ({status}): {}", log.trim()), None));
            }
            if Instant::now() >= until {
                return Err(refused.into());
            }
            std::thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // "Fast": connections are closed and what is committed is kept.
        system::process::interrupt(self.process.id());
        let until = Instant::now() + STOP_WAIT;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            std::thread::sleep(POLL_EVERY);
        }
    }
}

fn failed(what: &str, source: Option<std::io::Error>) -> Error {
    Error::Private { what: what.to_owned(), source }
}

/// The folders of the installed versions, the newest first.
fn versions() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN) else { return Vec::new() };
    let name = |entry: &fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    let mut versions: Vec<(u32, PathBuf)> =
        entries.flatten().filter_map(|entry| Some((name(&entry)?, entry.path().join("bin")))).collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// The user and group that the server is to have, if this process is root's.
fn user() -> Result<Option<User>> {
    if !system::process::is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| failed("read /etc/passwd", Some(error)))?;
    let find = |name: &str| {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let fields = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
        Some(User { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
    };
    let user = find("postgres").or_else(|| find("nobody"));
    user.map(Some).ok_or_else(|| failed("postgres must not run as root, and there is no user nobody", None))
}

/// Makes the folder, which only the server's user and root can enter.
fn prepare(folder: &Path, user: Option<User>) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    system::file::make_private(folder)?;
    match user {
        Some(User { user, group }) => system::file::give_to(folder, user, group),
        None => Ok(()),
    }
}

fn initialize(programs: &Programs, data: &Path, user: Option<User>) -> Result<()> {
    let output = program(programs, "initdb", user)
        .arg("-D")
        .arg(data)
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"])
        .output()
        .map_err(|error| failed("start initdb", Some(error)))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(&format!("initdb ended ({}): {}", output.status, text.trim()), None))
}

/// A command with the working folder `/`, as the server's user may not enter this process's.
fn program(programs: &Programs, name: &str, user: Option<User>) -> Command {
    let mut command = Command::new(programs.folder.join(name));
    command.current_dir("/").stdin(Stdio::null());
    if let Some(user) = user {
        system::process::run_as(&mut command, user);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_programs_has_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Programs::from_folder(folder.path()), None);
        fs::write(folder.path().join("initdb"), "").unwrap();
        assert_eq!(Programs::from_folder(folder.path()), None);
        fs::write(folder.path().join("postgres"), "").unwrap();
        assert!(Programs::from_folder(folder.path()).is_some());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let programs = Programs { folder: PathBuf::from("/") };
        let folder = PathBuf::from(format!("/tmp/{}", "x".repeat(100)));
        let error = PrivatePostgres::start(&programs, &folder).unwrap_err();
        assert!(error.to_string().contains("too long for a socket"), "{error}");
    }
}
