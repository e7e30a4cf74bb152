//! The errors of publishing and reading.

/// Why a generation could not be published or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PostgreSQL failed or refused.
    #[error("the shared index's database failed")]
    Postgres(#[from] postgres::Error),
    /// There is no such brain, or the transaction is not for it.
    #[error("there is no brain {brain}")]
    NoSuchBrain {
        /// Its number.
        brain: i32,
    },
    /// Another server has published since. Nothing was changed: compare with the present generation and publish again.
    #[error("the brain is at generation {found}, not at {expected}")]
    OtherGeneration {
        /// The generation that the difference was to be made from.
        expected: i64,
        /// The generation that is published.
        found: i64,
    },
    /// The local index has no generation yet, so there is nothing to publish.
    #[error("the local index has no generation")]
    NoGeneration,
    /// The model's vectors are longer than [`DIMENSIONS_MAX`](crate::shared_index::source::DIMENSIONS_MAX).
    #[error(
        "a shared index holds vectors of at most {} dimensions, not of {given}",
        crate::shared_index::source::DIMENSIONS_MAX
    )]
    Dimensions {
        /// The dimensions of the model.
        given: usize,
    },
    /// The local index could not be read.
    #[error("the local index failed")]
    Local(#[source] index::Error),
    /// A text could not be cut into words.
    #[error("the tokenizer failed")]
    Tokenizer(#[from] rusqlite::Error),
    /// A posting list cannot be read. Publishing with [`Mode::Whole`](crate::PublishMode::Whole) makes all lists again.
    #[error("a posting list of brain {brain} is damaged")]
    DamagedList {
        /// The brain's number.
        brain: i32,
    },
}

impl From<Error> for index::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Local(error) => error,
            error => Self::Shared(Box::new(error)),
        }
    }
}
