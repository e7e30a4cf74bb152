//! Whether served files are reviewed, that is merged into the default branch.

use crate::error::Error;
use crate::objects::hash;
use crate::repository::{Repository, blob_id, read_blob};
use crate::types::CommitId;

/// The size of the object cache: the same trees are read again for each unit of an answer.
const OBJECT_CACHE_BYTES: usize = 1 << 20;

impl Repository {
    /// Opens the repository once to check many files against the reviewed commits.
    ///
    /// # Errors
    /// As [`default_branch`](Self::default_branch).
    pub fn review_snapshot(&self) -> Result<ReviewSnapshot, Error> {
        let mut git = self.git()?;
        git.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        let branch = self.default_branch_of(&git)?;
        let merged = branch.local.into_iter().chain(branch.remote).collect();
        let head = git.head_id().ok().map(|id| CommitId(id.detach()));
        Ok(ReviewSnapshot { git, merged, head })
    }
}

/// The merged commits, local and remote, and the checked-out one, at one moment. Opening the repository takes most
/// of the time, so it is done once for many files.
pub struct ReviewSnapshot {
    git: gix::Repository,
    merged: Vec<CommitId>,
    head: Option<CommitId>,
}

/// Whether a file's content is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentState {
    /// The default branch has it.
    Merged,
    /// The default branch does not have it: it is an edit of the user's. Content that is only committed to other
    /// branches is not served.
    Uncommitted,
}

impl ReviewSnapshot {
    /// Whether the served content of a path is reviewed. Line endings are not compared.
    ///
    /// `content` is the work tree's. With `None` (no file), or the content of the checked-out commit, the reviewed
    /// file is served in its place; see [`overlay`](Repository::overlay).
    ///
    /// # Errors
    /// When a commit cannot be read.
    pub fn content_state(&self, path: &str, content: Option<&[u8]>) -> Result<ContentState, Error> {
        let id = content.map(|content| hash(&self.git, content)).transpose()?;
        let is_in = |commit: CommitId| -> Result<Option<bool>, Error> {
            let Some(there) = blob_id(&self.git, commit, path)? else { return Ok(None) };
            // The ids first, as they are almost always equal and reading takes longer.
            Ok(Some(match content {
                Some(content) if id != Some(there) => {
                    has_same_lines(&read_blob(&self.git, commit, path, there)?, content)
                }
                _ => true,
            }))
        };
        let mut is_known = false;
        for commit in &self.merged {
            match is_in(*commit)? {
                Some(true) => return Ok(ContentState::Merged),
                Some(false) => is_known = true,
                None => {}
            }
        }
        // The reviewed file is served in place of an unedited one.
        let is_checked_out = || -> Result<bool, Error> {
            let head = self.head.filter(|_| content.is_some());
            Ok(head.map(is_in).transpose()?.flatten() == Some(true))
        };
        Ok(if is_known && is_checked_out()? { ContentState::Merged } else { ContentState::Uncommitted })
    }
}

/// Whether two contents differ at most in their line endings: git may change those in a work tree.
pub(crate) fn has_same_lines(one: &[u8], two: &[u8]) -> bool {
    lines(one).eq(lines(two))
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}
