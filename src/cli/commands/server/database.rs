//! Where a team's database is.

use std::path::PathBuf;
use std::time::Duration;

use team::TeamStore;

use crate::error::{CliError, USAGE};

/// A database that says nothing for so long is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Where the database is.
#[derive(clap::Args)]
pub(crate) struct Database {
    /// The database [env: NUGGET_DATABASE]
    #[arg(long = "database", value_name = "URL", env = "NUGGET_DATABASE", hide_env = true)]
    url: Option<String>,
    /// Read the database's URL from this file, as it may have a password
    #[arg(long = "database-file", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl Database {
    /// Connects to it.
    pub(super) fn connect(&self) -> Result<TeamStore, CliError> {
        let url = match (&self.url, &self.file) {
            (_, Some(file)) => std::fs::read_to_string(file)
                .map_err(|error| CliError::new(format!("failed to read {}: {error}", file.display())))?,
            (Some(url), None) => url.clone(),
            (None, None) => {
                return Err(CliError::new("no database is given").code(USAGE).hint(
                    "set NUGGET_DATABASE, or give --database postgres://… or --database-file; `nugget server demo` needs none",
                ));
            }
        };
        in_time(move || TeamStore::connect(url.trim()))
    }

    /// The same, with the tables of this program.
    pub(super) fn connect_migrated(&self) -> Result<TeamStore, CliError> {
        let store = self.connect()?;
        let checking = store.clone();
        match in_time(move || Ok(checking.check()))? {
            Err(error @ team::Error::NotMigrated { .. }) => Err(CliError::from(error)
                .hint("`nugget server migrate` creates the tables, or brings them up to date")),
            checked => Ok(checked.map(|()| store)?),
        }
    }
}

/// Runs what waits for the database on a thread of its own: where its machine accepts a connection and its process is
/// stopped, no time limit of the connection holds.
fn in_time<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, team::Error> + Send + 'static,
) -> Result<T, CliError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(ANSWER_WITHIN) {
        Ok(done) => Ok(done?),
        Err(_) => Err(CliError::new("the database accepts connections and does not answer")
            .hint("see whether PostgreSQL hangs, or is overloaded")),
    }
}
