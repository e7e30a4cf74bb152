//! The server that a brain of this machine belongs to, with the token for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{SetupError, TeamClient};

/// The name of the file in a brain's state folder, mode 0600.
pub const FILE_NAME: &str = "server.json";
/// Who hands out tokens may be on holiday.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Which server a brain belongs to. It has no `Debug`, so that no log has the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The server's address.
    pub url: String,
    /// The brain's slug there.
    pub brain: String,
    /// Who the token belongs to.
    pub subject: String,
    /// What the token may do: `read`, `capture`, `admin`. Empty in a login of an earlier version, where it is unknown.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// When the token expires, as far as is known.
    #[serde(default)]
    pub expires: Option<Timestamp>,
    /// The token.
    pub token: String,
}

/// Why the file with the login cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// It cannot be read or written.
    #[error("failed to use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        source: io::Error,
    },
    /// It is not one that this program writes.
    #[error("{path} is not a login: run `nugget login` again")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Its address or its token cannot be used.
    #[error(transparent)]
    Client(#[from] SetupError),
}

impl Login {
    /// When the token expires, if that is soon: time to ask for another one.
    pub fn expires_soon(&self, now: Timestamp) -> Option<Timestamp> {
        self.expires.filter(|expires| expires.duration_since(now) < EXPIRES_SOON)
    }

    /// Reads the login in a brain's state folder; `None` if there is none.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>, LoginError> {
        let path = folder.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|_| LoginError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LoginError::File { path, source }),
        }
    }

    /// Writes the login into a brain's state folder, in place of another one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), LoginError> {
        let path = folder.join(FILE_NAME);
        let write = || system::file::replace_private_file(&path, &serde_json::to_vec(self)?);
        write().map_err(|source| LoginError::File { path, source })
    }

    /// Removes the login of a brain. Returns whether there was one.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(folder: &Path) -> Result<bool, LoginError> {
        let path = folder.join(FILE_NAME);
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(LoginError::File { path, source }),
        }
    }

    /// A client of the server.
    ///
    /// # Errors
    /// [`SetupError`] for an address or a token that cannot be used.
    pub fn client(&self) -> Result<TeamClient, SetupError> {
        TeamClient::new(&self.url, &self.token)
    }
}

/// A team's server, and the brain there that a local one is a clone of.
pub struct TeamServer {
    /// The connection.
    pub client: TeamClient,
    login: Login,
}

impl TeamServer {
    /// Its address, for people.
    pub fn url(&self) -> &str {
        &self.login.url
    }

    /// The brain's slug there.
    pub fn brain(&self) -> &str {
        &self.login.brain
    }

    /// Whether the token may ask questions, as far as is known.
    pub fn may_ask(&self) -> bool {
        self.login.scopes.is_empty() || self.login.scopes.iter().any(|scope| scope == "read")
    }
}

/// The server that a brain belongs to at this moment: a login or a logout counts for processes that run, too.
#[derive(Clone)]
pub struct CurrentServer {
    folder: PathBuf,
    /// The connection of the login that was read last.
    connected: Arc<Mutex<Option<Arc<TeamServer>>>>,
}

impl CurrentServer {
    /// The server of the brain with this state folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), connected: Arc::default() }
    }

    /// Whether there is a login, be it damaged.
    pub fn is_set(&self) -> bool {
        self.folder.join(FILE_NAME).exists()
    }

    /// The server, if there is a login.
    ///
    /// # Errors
    /// When the login cannot be read or used.
    pub fn get(&self) -> Result<Option<Arc<TeamServer>>, LoginError> {
        let login = Login::read(&self.folder)?;
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.as_ref().map(|server| &server.login) != login.as_ref() {
            *connected = None;
            if let Some(login) = login {
                *connected = Some(Arc::new(TeamServer { client: login.client()?, login }));
            }
        }
        Ok(connected.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_private_and_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Login::read(folder.path()).unwrap().is_none());
        for token in ["ngt_one", "ngt_two"] {
            let (url, brain) = ("https://brains.example.com".to_owned(), "payments".to_owned());
            let (subject, scopes) = ("ada".to_owned(), vec!["read".to_owned()]);
            let login = Login { url, brain, subject, scopes, expires: None, token: token.to_owned() };
            login.write(folder.path()).unwrap();
            assert!(Login::read(folder.path()).unwrap() == Some(login));
        }
        let file = folder.path().join(FILE_NAME);
        assert_eq!(system::file::mode(&std::fs::metadata(&file).unwrap()) & 0o777, 0o600);
        std::fs::write(&file, "{").unwrap();
        let Err(error) = Login::read(folder.path()) else { panic!("a damaged login was read") };
        assert!(error.to_string().ends_with("is not a login: run `nugget login` again"), "{error}");
        assert!(Login::remove(folder.path()).unwrap());
        assert!(!Login::remove(folder.path()).unwrap());
    }

    #[test]
    fn a_token_that_only_hands_over_is_not_asked_with() {
        let folder = tempfile::tempdir().unwrap();
        let may_ask = |scopes: &str| {
            let json = format!(
                r#"{{"url":"https://brains.example.com","brain":"b","subject":"ci","token":"ngt_x"{scopes}}}"#
            );
            std::fs::write(folder.path().join(FILE_NAME), json).unwrap();
            CurrentServer::new(folder.path()).get().unwrap().unwrap().may_ask()
        };
        assert!(may_ask(r#","scopes":["read","capture"]"#) && !may_ask(r#","scopes":["capture"]"#));
        assert!(may_ask(""), "a login of an earlier version does not say");
    }

    #[test]
    fn a_login_and_a_logout_count_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let current = CurrentServer::new(folder.path());
        assert!(current.get().unwrap().is_none() && !current.is_set());
        let write = |brain: &str| {
            let url = "https://brains.example.com".to_owned();
            let login = Login {
                url,
                brain: brain.to_owned(),
                subject: "ada".to_owned(),
                scopes: Vec::new(),
                expires: None,
                token: "ngt_one".to_owned(),
            };
            login.write(folder.path()).unwrap();
        };
        write("payments");
        let first = current.get().unwrap().unwrap();
        assert_eq!((first.url(), first.brain()), ("https://brains.example.com", "payments"));
        assert!(Arc::ptr_eq(&first, &current.get().unwrap().unwrap()), "the connection was made again");
        write("search");
        assert_eq!(current.get().unwrap().unwrap().brain(), "search");
        std::fs::write(folder.path().join(FILE_NAME), "{").unwrap();
        assert!(current.get().is_err() && current.is_set());
        assert!(Login::remove(folder.path()).unwrap());
        assert!(current.get().unwrap().is_none() && !current.is_set());
    }
}
