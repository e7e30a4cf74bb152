//! Who has let a file into the default branch.

use std::collections::BTreeMap;

use crate::error::{During as _, Error};
use crate::propose::Identity;
use crate::repository::{CommitId, Repository, files_beyond, tree_of};

/// What the default branch's history says of who has reviewed its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewers {
    /// Up to this commit.
    pub commit: CommitId,
    /// Whether it tells of every file, and not only of those that have changed since it was last asked.
    pub is_complete: bool,
    /// By path; `None` where nobody but nugget is known to have had a hand in it.
    pub by_path: BTreeMap<String, Option<String>>,
}

/// How many commits of the default branch are looked at. What is older has no reviewer that is told.
const COMMITS_MAX: usize = 2000;

/// The name under which GitHub commits for others.
const FORGE: &str = "GitHub";

impl Repository {
    /// For each file that the served commit's history has changed since a commit that was looked at before
    /// (`None`: in all of it), who has let it in: the author of the merge that brought it to the default
    /// branch, else the committer, or the author where a forge has committed. `None` when there is nothing new.
    ///
    /// Trailers are not believed: they are text, which a session may have put there.
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
            // In a shallow clone the history ends in commits that are not there.
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
            // What a shallow clone's oldest commit has changed is not known.
            if first.is_none() || before.is_some() {
                let (author, committer) =
                    (found.author().during(reading)?, found.committer().during(reading)?);
                let candidates = if parents.len() > 1 { [author, committer] } else { [committer, author] };
                let is_person = |who: &gix::actor::SignatureRef<'_>| {
                    let ours = Identity::default();
                    who.name != FORGE && (who.name != ours.name.as_str() || who.email != ours.email.as_str())
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
