//! Who merged each file into the default branch.

use std::collections::BTreeMap;

use crate::error::{During as _, Error};
use crate::repository::{Repository, files_beyond, tree_of};
use crate::types::{CommitId, Identity};

/// The reviewers of the default branch's files, from its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewers {
    /// The newest commit that was read.
    pub commit: CommitId,
    /// Whether all files are included, and not only those that changed since the last call.
    pub is_complete: bool,
    /// The reviewer's name by path; `None` if only nugget is known to have changed the file.
    pub by_path: BTreeMap<String, Option<String>>,
}

/// How many commits of the default branch are read. Older files have no known reviewer.
const COMMITS_MAX: usize = 2000;

/// The committer's name of commits that GitHub makes for others.
const GITHUB: &str = "GitHub";

impl Repository {
    /// Who reviewed each file that changed since a commit (`None`: since the first one): the author of the merge
    /// that brought it to the default branch, else the committer, or the author if GitHub is the committer.
    /// `None` if there are no new commits.
    ///
    /// Trailers are ignored: they are text that a session may have written.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch), and when history cannot be read.
    pub fn reviewers_since(&self, since: Option<CommitId>) -> Result<Option<Reviewers>, Error> {
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let (commit, _) = self.reviewed_tip(&git, &default)?;
        if since == Some(commit) {
            return Ok(None);
        }
        let mut reviewers = Reviewers { commit, is_complete: true, by_path: BTreeMap::new() };
        let mut next = Some(commit);
        for _ in 0..COMMITS_MAX {
            // The history of a shallow clone ends in commits that are missing.
            let Some(id) = next.filter(|id| git.has_object(id.0)) else { break };
            if Some(id) == since {
                reviewers.is_complete = false;
                break;
            }
            let reading = || format!("read commit {id}");
            let found = git.find_commit(id.0).during(reading)?;
            let parents: Vec<CommitId> = found.parent_ids().map(|parent| CommitId(parent.detach())).collect();
            let first = parents.first().copied();
            let before = first.filter(|first| git.has_object(first.0));
            // The changes of a shallow clone's oldest commit are not known.
            if first.is_none() || before.is_some() {
                let (author, committer) =
                    (found.author().during(reading)?, found.committer().during(reading)?);
                let candidates = if parents.len() > 1 { [author, committer] } else { [committer, author] };
                let is_person = |who: &gix::actor::SignatureRef<'_>| {
                    let ours = Identity::default();
                    who.name != GITHUB && (who.name != ours.name.as_str() || who.email != ours.email.as_str())
                };
                let by = candidates.into_iter().find(is_person);
                let by = by.map(|who| knowledge::text::one_line(&who.name.to_string(), 80));
                let by = by.filter(|by| !by.is_empty());
                let before = before.map(|before| tree_of(&git, before)).transpose()?;
                for file in files_beyond(before.as_ref(), &tree_of(&git, id)?, "")? {
                    reviewers.by_path.entry(file.path).or_insert_with(|| by.clone());
                }
            }
            next = first;
        }
        Ok(Some(reviewers))
    }
}
