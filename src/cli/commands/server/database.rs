//! Where a team's database is.

use std::path::PathBuf;

use team::TeamStore;

use crate::error::{CliError, USAGE};

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
        Ok(TeamStore::connect(url.trim())?)
    }

    /// The same, with the tables of this program.
    pub(super) fn connect_migrated(&self) -> Result<TeamStore, CliError> {
        let store = self.connect()?;
        match store.check() {
            Err(error @ team::Error::NotMigrated { .. }) => Err(CliError::from(error)
                .hint("`nugget server migrate` creates the tables, or brings them up to date")),
            checked => Ok(checked.map(|()| store)?),
        }
    }
}
