//! What GitHub has, as far as nugget looks at it.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Deserialize;

use crate::error::Error;

/// `OWNER/NAME`, as it stands in a repository's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slug {
    pub owner: String,
    pub name: String,
}

impl FromStr for Slug {
    type Err = Error;

    /// Takes what GitHub takes: an owner of letters, digits and `-` (and `_`, which managed users have),
    /// a name of those and `.`. Each becomes part of an address, so nothing else may come through.
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

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub login: String,
    /// What a classic token may do; `None` for a token whose rights are not told (fine-grained ones).
    pub scopes: Option<Vec<String>>,
    /// The server's clock when it answered.
    pub date: Option<Timestamp>,
}

/// A repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// As it is called today, which may differ from what was asked for: repositories are renamed.
    pub slug: Slug,
    pub default_branch: String,
    /// Read-only: nothing can be pushed and no pull request opened.
    pub archived: bool,
    pub private: bool,
    /// What it was forked from. Pull requests are made against the fork itself, never against this.
    pub fork_of: Option<Slug>,
    /// Whether this token may push.
    pub can_push: bool,
    /// Whether GitHub deletes the branch of a pull request that was merged.
    pub deletes_merged: bool,
    pub html_url: String,
    /// For git over https.
    pub clone_url: String,
    /// For git over ssh.
    pub ssh_url: String,
}

/// A pull request that is to be opened.
#[derive(Clone, Debug)]
pub struct NewPull {
    /// The branch with the commits, in the same repository.
    pub branch: String,
    /// The branch they shall go to.
    pub base: String,
    pub title: String,
    pub body: String,
}

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    pub number: u64,
    /// Its page, for a person.
    pub url: String,
    pub state: PullState,
    pub branch: String,
    pub base: String,
    pub head_commit: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullState {
    Open,
    Merged {
        /// Only an answer about this one pull request names who; a list does not.
        by: Option<String>,
        at: Timestamp,
    },
    /// Closed by somebody without a merge.
    Closed,
}

/// What [`crate::GitHub::open_pull`] found or made.
#[derive(Clone, Debug)]
pub struct Opened {
    pub pull: Pull,
    /// Whether this call has made it.
    pub created: bool,
}

/// The answers as they come. Only what is looked at is named, so that a field that GitHub adds, or
/// that an older GitHub Enterprise has not, breaks nothing.
pub(crate) mod answer {
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
        parent: Option<Named>,
    }

    #[derive(Deserialize)]
    struct Permissions {
        push: bool,
    }

    /// A repository of which only the name matters.
    #[derive(Deserialize)]
    pub(crate) struct Named {
        pub(crate) full_name: String,
    }

    impl Repository {
        pub(crate) fn read(self) -> Result<super::Repository, Error> {
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
        pub(crate) head: End,
        base: End,
    }

    #[derive(Deserialize)]
    pub(crate) struct End {
        #[serde(rename = "ref")]
        pub(crate) branch: String,
        sha: String,
        /// `None` when the repository has been deleted.
        pub(crate) repo: Option<Named>,
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
    fn only_what_can_stand_in_an_address_is_a_slug() {
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
