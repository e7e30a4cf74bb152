//! The types that every other file of the crate uses: commit ids, identities and new files.

use std::fmt;
use std::str::FromStr;

/// The prefix of the short name of every branch that nugget creates.
pub const BRANCH_PREFIX: &str = "nugget/";

/// The largest file that is read out of the repository, in bytes.
pub const BLOB_BYTES_MAX: u64 = 1024 * 1024;

/// The object id of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(pub(crate) gix::ObjectId);

/// A text that is not the hexadecimal id of a commit.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a commit id")]
pub struct InvalidCommitId {
    text: String,
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CommitId {
    type Err = InvalidCommitId;

    fn from_str(text: &str) -> Result<Self, InvalidCommitId> {
        let id = gix::ObjectId::from_hex(text.as_bytes());
        id.map(Self).map_err(|_| InvalidCommitId { text: knowledge::text::one_line(text, 80) })
    }
}

/// The author and committer of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name, without `<`, `>` and control characters.
    pub name: String,
    /// The email address, without `<`, `>` and control characters.
    pub email: String,
}

impl Default for Identity {
    /// nugget itself. Fixed, so that a commit does not depend on the user's configuration.
    fn default() -> Self {
        Self { name: "nugget".to_owned(), email: "nugget@localhost".to_owned() }
    }
}

/// A file that a commit adds or edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// The path relative to the root, with `/` as the separator.
    pub path: String,
    /// The whole content.
    pub content: Vec<u8>,
    /// Whether the file replaces one that the base commit has. If not, the base must not have the path.
    pub edits: bool,
}
