//! The parts of GitHub's objects that nugget uses.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::error::Error;

/// The name of a repository, `OWNER/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
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

impl TryFrom<String> for Slug {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
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
}

/// A repository. Fields that an older GitHub Enterprise Server does not send are optional.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Repository {
    /// The current name, which differs from the requested one if the repository was renamed.
    #[serde(rename = "full_name")]
    pub slug: Slug,
    /// The short name of the default branch.
    pub default_branch: String,
    /// Whether it is read-only: nothing can be pushed and no pull request opened.
    #[serde(default)]
    pub archived: bool,
    /// Whether it is not public.
    pub private: bool,
    /// The repository that it was forked from. Pull requests are opened against the fork, never against this.
    #[serde(default, rename = "parent", deserialize_with = "name_of")]
    pub fork_of: Option<Slug>,
    /// Whether this token may push.
    #[serde(default, rename = "permissions", deserialize_with = "may_push")]
    pub can_push: bool,
    /// The web page.
    pub html_url: String,
    /// The URL for git over https.
    pub clone_url: String,
}

/// The name of a repository, of which nothing else is used.
fn name_of<'de, D: Deserializer<'de>>(response: D) -> Result<Option<Slug>, D::Error> {
    #[derive(Deserialize)]
    struct Named {
        full_name: Slug,
    }
    Ok(Option::<Named>::deserialize(response)?.map(|named| named.full_name))
}

fn may_push<'de, D: Deserializer<'de>>(response: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    struct Permissions {
        push: bool,
    }
    Ok(Option::<Permissions>::deserialize(response)?.is_some_and(|permissions| permissions.push))
}

/// A pull request to open.
#[derive(Clone, Debug)]
pub struct NewPull {
    /// The branch with the commits, in the same repository.
    pub branch: String,
    /// The branch's last commit.
    pub commit: String,
    /// The branch to merge into.
    pub base: String,
    /// The title.
    pub title: String,
    /// The text, in Markdown.
    pub body: String,
}

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "PullResponse")]
pub struct Pull {
    /// The number within the repository.
    pub number: u64,
    /// The web page.
    pub url: String,
    /// Whether it is open, merged or closed.
    pub state: PullState,
    /// The branch with the commits.
    pub branch: String,
    /// The branch's last commit; once the pull request is decided, the one that it had then.
    pub commit: String,
    /// The text, in Markdown.
    pub body: String,
    /// The repository of that branch; `None` if it was deleted.
    pub(crate) from: Option<Slug>,
}

/// The state of a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// Not decided yet.
    Open,
    /// Merged.
    Merged,
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

#[derive(Deserialize)]
struct PullResponse {
    number: u64,
    html_url: String,
    state: String,
    merged_at: Option<Timestamp>,
    body: Option<String>,
    head: Head,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
    #[serde(default, deserialize_with = "name_of")]
    repo: Option<Slug>,
}

impl From<PullResponse> for Pull {
    fn from(PullResponse { number, html_url: url, state, merged_at, body, head }: PullResponse) -> Self {
        let state = match (merged_at, state.as_str()) {
            (Some(_), _) => PullState::Merged,
            (None, "open") => PullState::Open,
            (None, _) => PullState::Closed,
        };
        let body = body.unwrap_or_default();
        Self { number, url, state, branch: head.branch, commit: head.sha, body, from: head.repo }
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
