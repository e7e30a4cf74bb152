//! Why PostgreSQL could not do what was asked. No variant has the URL, which may contain a password.

use postgres::error::{DbError, Severity, SqlState};

use crate::shared_index::IndexError;

/// Why the team's database could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one of PostgreSQL.
    #[error("the database's URL is not valid: {what}")]
    Url {
        /// What is wrong, without the URL.
        what: &'static str,
    },
    /// The certificates that the system trusts cannot be read.
    #[error("failed to set up TLS")]
    Tls(#[source] rustls::Error),
    /// The database cannot be connected to.
    #[error("failed to connect to the database at {address}")]
    Connect {
        /// Its hosts and ports.
        address: String,
        /// What went wrong.
        #[source]
        source: postgres::Error,
    },
    /// No connection could be made or became free in time.
    #[error("no connection to the database is free")]
    Pool(#[source] r2d2::Error),
    /// A statement failed, or the connection was lost before anything was committed.
    #[error("failed to use the database")]
    Postgres(#[from] postgres::Error),
    /// The connection was lost while a transaction was committed: it may have been, or not.
    #[error("the connection was lost while a change was committed, which may be stored or not")]
    CommitUnknown(#[source] postgres::Error),
    /// The server is older than PostgreSQL 14.
    #[error("PostgreSQL 14 or later is needed, and the server is version {version}")]
    TooOld {
        /// `server_version_num` divided by 10,000.
        version: i32,
    },
    /// pgvector is not installed with the server, or only a superuser may create it in the database.
    #[error(
        "the database has no pgvector: install it, and let a superuser run `CREATE EXTENSION vector` in the database"
    )]
    NoVector(#[source] postgres::Error),
    /// The database's pgvector is older than 0.8.
    #[error(
        "pgvector 0.8 or later is needed, and the database has {version}: install it, and let a superuser run \
         `ALTER EXTENSION vector UPDATE` in the database"
    )]
    OldVector {
        /// The version of the extension.
        version: String,
    },
    /// The tables have not been migrated to the version that this program needs.
    #[error("the database has version {found} of the tables, and this nugget needs {needed}")]
    NotMigrated {
        /// The version of the tables; 0 when there are none.
        found: i32,
        /// The version that is needed.
        needed: i32,
    },
    /// The tables belong to a later version of nugget that this one cannot work beside.
    #[error("the database was migrated by a newer nugget (version {version}, readable from {readable_from})")]
    Newer {
        /// The version of the tables.
        version: i32,
        /// The oldest version of the program that can work with them.
        readable_from: i32,
    },
    /// What was asked for contradicts the ledger; the variants are those of SQLite's ledger.
    #[error(transparent)]
    Ledger(#[from] queue::Error),
    /// A brain's shared index cannot be published or read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// There is no such brain, or its name is taken.
    #[error("{what}")]
    Brain {
        /// What is wrong, with the name.
        what: String,
    },
    /// A value has no meaning here, such as an unknown scope.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// The operating system has no random numbers.
    #[error("failed to read random bytes")]
    Random(#[source] getrandom::Error),
    /// A private PostgreSQL cannot be started.
    #[error("failed to run a private PostgreSQL: {what}")]
    Private {
        /// What was tried.
        what: String,
        /// What the operating system reported.
        #[source]
        source: Option<std::io::Error>,
    },
}

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn postgres(&self) -> Option<&postgres::Error> {
        match self {
            Self::Postgres(error) | Self::CommitUnknown(error) | Self::Index(IndexError::Postgres(error)) => {
                Some(error)
            }
            _ => None,
        }
    }

    fn database(&self) -> Option<&DbError> {
        self.postgres().and_then(postgres::Error::as_db_error)
    }

    /// Whether the same transaction may be run again: nothing was committed, and its failure was the connection's or
    /// another transaction's. A lost connection during a commit is not one of them.
    pub(crate) fn can_retry(&self) -> bool {
        let (Self::Postgres(error) | Self::Index(IndexError::Postgres(error))) = self else { return false };
        is_lost(error)
            || error.code().is_some_and(|code| {
                *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
            })
    }

    /// Whether another server has published a generation first.
    pub fn is_other_generation(&self) -> bool {
        matches!(self, Self::Index(IndexError::OtherGeneration { .. }))
    }

    /// Whether a posting list of the brain is damaged. All are made again by [`PublishMode::Whole`](crate::PublishMode).
    pub fn is_damaged_list(&self) -> bool {
        matches!(self, Self::Index(IndexError::DamagedList { .. }))
    }

    /// Whether the transaction failed because of this unique index or constraint.
    pub(crate) fn violates(&self, constraint: &str) -> bool {
        self.database().is_some_and(|error| {
            *error.code() == SqlState::UNIQUE_VIOLATION && error.constraint() == Some(constraint)
        })
    }
}

/// Whether the connection is gone: closed, or ended by the server (shutdown, crash, idle for too long).
pub(crate) fn is_lost(error: &postgres::Error) -> bool {
    error.is_closed()
        || match error.as_db_error() {
            Some(error) => matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
            // Reading or writing the socket failed, or the server sent half a message.
            None => std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>()),
        }
}

impl From<r2d2::Error> for Error {
    fn from(error: r2d2::Error) -> Self {
        Self::Pool(error)
    }
}

impl From<Error> for queue::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Ledger(error) => error,
            other => Self::Shared(Box::new(other)),
        }
    }
}
