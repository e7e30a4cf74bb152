//! The parts of GitHub's objects that nugget uses.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::Error;

/// The name of a repository, `OWNER/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slug {
    /// A user or organisation.
    pub owner: String,
    /// The name without `.git`.
    pub name: String,
}

impl FromStr for Slug {
    type Err = Error;

    /// Accepts what GitHub accepts: an owner of letters, digits and `-` (and `_` for managed users), and a name of
    /// those and `.`. Both become parts of an address, so nothing else is allowed.
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::InvalidSlug { text: knowledge::text::one_line(text, 100) };
        let (owner, name) = text.split_once('/').ok_or_else(invalid)?;
        let name = name.strip_suffix(".git").unwrap_or(name);
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_owner = !owner.starts_with('-') && (1..=64).contains(&owner.len()) && owner.bytes().all(word);
        let is_name = (1..=100).contains(&name.len())
            && name.bytes().all(|byte| word(byte) || byte == b'.')
            && name != "."
            && name != "..";
        if !(is_owner && is_name) {
            return Err(invalid());
        }
        Ok(Self { owner: owner.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// The user name.
    pub login: String,
    /// The scopes of a classic token; `None` for a fine-grained one, whose permissions GitHub does not report.
    pub scopes: Option<Vec<String>>,
    /// The server's clock.
    pub date: Option<Timestamp>,
}

/// A repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The current name, which differs from the requested one if the repository was renamed.
    pub slug: Slug,
    /// The short name of the default branch.
    pub default_branch: String,
    /// Whether it is read-only: nothing can be pushed and no pull request opened.
    pub archived: bool,
    /// Whether it is not public.
    pub private: bool,
    /// The repository that it was forked from. Pull requests are opened against the fork, never against this.
    pub fork_of: Option<Slug>,
    /// Whether this token may push.
    pub can_push: bool,
    /// Whether GitHub deletes the branch of a merged pull request.
    pub deletes_merged: bool,
    /// The web page.
    pub html_url: String,
    /// The URL for git over https.
    pub clone_url: String,
    /// The URL for git over ssh.
    pub ssh_url: String,
}

/// A pull request to open.
#[derive(Clone, Debug)]
pub struct NewPull {
    /// The branch with the commits, in the same repository.
    pub branch: String,
    /// The branch to merge into.
    pub base: String,
    /// The title.
    pub title: String,
    /// The text, in Markdown.
    pub body: String,
}

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The number within the repository.
    pub number: u64,
    /// The web page.
    pub url: String,
    /// Whether it is open, merged or closed.
    pub state: PullState,
    /// The branch with the commits.
    pub branch: String,
    /// The branch to merge into.
    pub base: String,
    /// The id of the branch's commit.
    pub head_commit: String,
}

/// The state of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullState {
    /// Not decided yet.
    Open,
    /// Merged.
    Merged {
        /// The user who merged it. GitHub names them only for a single pull request, not in a list.
        by: Option<String>,
        /// When it was merged.
        at: Timestamp,
    },
    /// Closed without a merge.
    Closed,
}

/// The result of [`crate::GitHub::open_pull`].
#[derive(Clone, Debug)]
pub struct Opened {
    /// The pull request.
    pub pull: Pull,
    /// Whether this call has created it.
    pub created: bool,
}

/// GitHub's responses. Only fields that are used are named, so that new fields, or missing ones of an older GitHub
/// Enterprise Server, break nothing.
pub(crate) mod response {
    use super::*;

    #[derive(Deserialize)]
    pub(crate) struct Viewer {
        pub(crate) login: String,
    }

    #[derive(Deserialize)]
    pub(crate) struct Repository {
        full_name: String,
        default_branch: String,
        #[serde(default)]
        archived: bool,
        private: bool,
        html_url: String,
        clone_url: String,
        ssh_url: String,
        permissions: Option<Permissions>,
        #[serde(default)]
        delete_branch_on_merge: bool,
        parent: Option<RepositoryName>,
    }

    #[derive(Deserialize)]
    struct Permissions {
        push: bool,
    }

    /// A repository of which only the name is used.
    #[derive(Deserialize)]
    pub(crate) struct RepositoryName {
        pub(crate) full_name: String,
    }

    impl Repository {
        pub(crate) fn into_repository(self) -> Result<super::Repository, Error> {
            Ok(super::Repository {
                slug: self.full_name.parse()?,
                default_branch: self.default_branch,
                archived: self.archived,
                private: self.private,
                fork_of: self.parent.and_then(|parent| parent.full_name.parse().ok()),
                can_push: self.permissions.is_some_and(|permissions| permissions.push),
                deletes_merged: self.delete_branch_on_merge,
                html_url: self.html_url,
                clone_url: self.clone_url,
                ssh_url: self.ssh_url,
            })
        }
    }

    #[derive(Deserialize)]
    pub(crate) struct Pull {
        number: u64,
        html_url: String,
        state: String,
        merged_at: Option<Timestamp>,
        merged_by: Option<Viewer>,
        pub(crate) head: BranchRef,
        base: BranchRef,
    }

    #[derive(Deserialize)]
    pub(crate) struct BranchRef {
        #[serde(rename = "ref")]
        pub(crate) branch: String,
        sha: String,
        /// `None` if the repository was deleted.
        pub(crate) repo: Option<RepositoryName>,
    }

    impl From<Pull> for super::Pull {
        fn from(pull: Pull) -> Self {
            let state = match (pull.merged_at, pull.state.as_str()) {
                (Some(at), _) => PullState::Merged { by: pull.merged_by.map(|by| by.login), at },
                (None, "open") => PullState::Open,
                (None, _) => PullState::Closed,
            };
            Self {
                number: pull.number,
                url: pull.html_url,
                state,
                branch: pull.head.branch,
                base: pull.base.branch,
                head_commit: pull.head.sha,
            }
        }
    }

    #[derive(Deserialize)]
    pub(crate) struct Comment {
        pub(crate) body: Option<String>,
    }

    #[derive(Deserialize)]
    pub(crate) struct Label {
        pub(crate) name: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_has_only_characters_that_github_allows() {
        for good in ["o/n", "me/brain", "a-b_corp/x.y-z_1", "o/n.git"] {
            assert!(good.parse::<Slug>().is_ok(), "{good}");
        }
        let long = format!("o/{}", "n".repeat(101));
        for bad in
            ["", "o", "o/", "/n", "o/n/x", "-o/n", "o/..", "o/.", "o/n?x", "o/ñ", "o/n\n", "o /n", &long]
        {
            assert!(bad.parse::<Slug>().is_err(), "{bad:?}");
        }
    }
}
