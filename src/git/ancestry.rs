//! Which commits contain which.

use crate::error::{During as _, Error};
use crate::repository::{CommitId, Repository};

impl Repository {
    /// Whether a commit is another one or has it among its ancestors. `false` where either is not in the
    /// repository.
    ///
    /// # Errors
    /// When history cannot be read.
    pub fn contains(&self, tip: CommitId, commit: CommitId) -> Result<bool, Error> {
        let git = self.git()?;
        if tip == commit {
            return Ok(true);
        }
        if !git.has_object(tip.0) || !git.has_object(commit.0) {
            return Ok(false);
        }
        let comparing = || format!("compare {tip} with {commit}");
        let bases = git.merge_bases_many(tip.0, &[commit.0]).during(comparing)?;
        Ok(bases.iter().any(|base| base.detach() == commit.0))
    }
}
