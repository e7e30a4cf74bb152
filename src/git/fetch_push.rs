//! Fetches from the remote and pushes to it.
//!
//! Nothing here changes what the user works with. git downloads objects and writes no references: nugget writes
//! the remote-tracking ones itself, under locks that it recognises after a kill.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

use crate::command::Output;
use crate::connection::{REMOTE_NAME, RemoteSession};
use crate::error::Error;
use crate::lock::Lock;
use crate::ref_lock::{lock_files, lock_of, sweep, sweep_one};
use crate::references::{delete, reference_name, set_symbolic, update};
use crate::remote_failure::RemoteFailure;
use crate::repository::{Repository, branches, remote_head, tip};
use crate::types::{BRANCH_PREFIX, CommitId};

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The short name of the remote's default branch; the one known before if the remote is empty.
    pub default_branch: String,
    /// The commit of the default branch; `None` if the remote has no default branch yet.
    pub tip: Option<CommitId>,
    /// Whether the default branch has another name or commit than before.
    pub moved: bool,
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The branch is new at the remote.
    Created,
    /// The branch was moved.
    Updated,
    /// The branch was already at this commit, as after an earlier attempt.
    AlreadyThere,
}

/// How long to wait for the repository's lock to record the result of a fetch or push.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often to ask which branch is the default, while the known one exists: the answer comes with all references
/// of the remote, and GitHub keeps one for each pull request.
const DEFAULT_BRANCH_INTERVAL: Duration = Duration::from_secs(3600);

/// How many of nugget's branches are fetched at most; a remote may have any number.
const BRANCHES_MAX: usize = 10_000;

impl Repository {
    /// Fetches the remote's default branch and nugget's branches, and records them below `refs/remotes/`. If
    /// nothing is new, nothing is downloaded and no lock is taken.
    ///
    /// Follows a renamed default branch, and once an hour checks whether another branch is the default, unless
    /// the brain's configuration names one. Remote-tracking references of nugget's deleted branches are removed.
    /// Tags, other branches, work tree, index and `FETCH_HEAD` are not changed, and git runs no maintenance. It
    /// can be killed at any point and repeated.
    ///
    /// Takes the repository's lock for a moment at the end, so the caller must not hold it.
    ///
    /// # Errors
    /// [`Error::Remote`], [`Error::NoGit`], [`Error::LockTimeout`], and failures of the disk.
    pub fn fetch(&self, session: &RemoteSession<'_>) -> Result<Fetched, Error> {
        let until = Instant::now() + session.deadline;
        let git = self.git()?;
        let mut attempts = 0;
        loop {
            // Read before the remote is asked: otherwise a branch that another process pushes in between would
            // look like a deleted one.
            let known = Known::read(&git, &session.remote.name, self.preferred())?;
            let remote_state = self.query_remote(&git, session, &known, until)?;
            let news: Vec<&String> = remote_state
                .branches
                .iter()
                .filter(|(name, id)| known.tips.get(*name) != Some(*id))
                .map(|(name, _)| name)
                .collect();
            if !news.is_empty() {
                self.download(&git, session, &news, until)?;
            }
            // A branch that moved between query and download may exist only with its new commit.
            let git = self.git()?;
            let is_complete = remote_state.branches.iter().all(|(_, id)| git.has_object(*id));
            if is_complete || attempts == 2 {
                return self.record_fetched(&git, session, &known, &remote_state);
            }
            attempts += 1;
        }
    }

    /// Asks the remote for its branches, by short name. Records nothing.
    ///
    /// # Errors
    /// [`Error::Remote`] and [`Error::NoGit`].
    pub fn list_remote_branches(&self, session: &RemoteSession<'_>) -> Result<Vec<String>, Error> {
        let until = Instant::now() + session.deadline;
        Ok(self.list_heads(&self.git()?, session, until)?.into_keys().collect())
    }

    /// Pushes a commit to one of nugget's branches at the remote. With `expected` it replaces only that commit;
    /// without, the branch must not exist, unless it is at this commit already.
    ///
    /// Nothing is pushed to a remote without a default branch: GitHub would make ours the default.
    ///
    /// Takes the repository's lock for a moment at the end, so the caller must not hold it.
    ///
    /// # Errors
    /// [`Error::ForeignBranch`]; [`Error::Remote`] with [`RemoteFailure::Stale`] when the branch there is not as
    /// expected, [`RemoteFailure::Empty`], and others; as [`fetch`](Self::fetch).
    pub fn push_branch(
        &self,
        session: &RemoteSession<'_>,
        branch: &str,
        commit: CommitId,
        expected: Option<CommitId>,
    ) -> Result<Pushed, Error> {
        let until = Instant::now() + session.deadline;
        let reference = reference_name(branch)?;
        let git = self.git()?;
        let remote = &session.remote.name;
        let is_known = self.default_branch_of(&git).is_ok_and(|default| default.remote.is_some());
        if !is_known && self.fetch(session)?.tip.is_none() {
            let failure = RemoteFailure::Empty;
            return Err(Error::Remote { failure, message: failure.to_string() });
        }
        let lease = expected.map(|expected| expected.to_string()).unwrap_or_default();
        let pushed = self.push(&git, session, &format!("{commit}:{reference}"), &reference, &lease, until)?;
        self.record(&format!("refs/remotes/{remote}/{branch}"), Some(commit.0))?;
        Ok(pushed)
    }

    /// Pushes the local default branch to a remote that does not have it. Never forced; an existing branch of that
    /// name is never changed.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch); [`RemoteFailure::Stale`] when the remote has the branch
    /// with another commit; as [`fetch`](Self::fetch).
    pub fn push_default(&self, session: &RemoteSession<'_>) -> Result<Pushed, Error> {
        let until = Instant::now() + session.deadline;
        let git = self.git()?;
        let default = self.default_branch_of(&git)?;
        let Some(commit) = default.local else { return Err(Error::Unborn { branch: default.name }) };
        let reference = format!("refs/heads/{}", default.name);
        let pushed = self.push(&git, session, &format!("{commit}:{reference}"), &reference, "", until)?;
        self.record(&format!("refs/remotes/{}/{}", session.remote.name, default.name), Some(commit.0))?;
        Ok(pushed)
    }

    /// Deletes one of nugget's branches at the remote if it is at `expected` there. `false` if it does not
    /// exist.
    ///
    /// # Errors
    /// As [`push_branch`](Self::push_branch).
    pub fn delete_remote_branch(
        &self,
        session: &RemoteSession<'_>,
        branch: &str,
        expected: CommitId,
    ) -> Result<bool, Error> {
        let until = Instant::now() + session.deadline;
        let reference = reference_name(branch)?;
        let git = self.git()?;
        let lease = expected.to_string();
        let deleted = match self.push(&git, session, &format!(":{reference}"), &reference, &lease, until) {
            Ok(_) => true,
            // git reports a missing branch as stale, like one that has moved.
            Err(error @ Error::Remote { failure: RemoteFailure::Stale, .. }) => {
                if self.list_heads(&git, session, until)?.contains_key(branch) {
                    return Err(error);
                }
                false
            }
            Err(error) => return Err(error),
        };
        self.record(&format!("refs/remotes/{}/{branch}", session.remote.name), None)?;
        Ok(deleted)
    }

    /// Pushes one reference and reads the remote's answer.
    fn push(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        refspec: &str,
        reference: &str,
        lease: &str,
        until: Instant,
    ) -> Result<Pushed, Error> {
        let mut command = self.remote_command(git, session, until);
        command.arguments(["push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]);
        command.arguments([format!("--force-with-lease={reference}:{lease}").as_str(), REMOTE_NAME, refspec]);
        parse_push_result(&command.run(until)?, reference)
    }

    /// All branches of the remote with a valid name, by short name.
    fn list_heads(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        until: Instant,
    ) -> Result<BTreeMap<String, ObjectId>, Error> {
        let mut command = self.remote_command(git, session, until);
        command.arguments(["ls-remote", "--heads", REMOTE_NAME]);
        let printed = command.run(until)?.ok()?;
        let mut branches = BTreeMap::new();
        for line in printed.lines() {
            let Some((id, name)) = line.to_str().ok().and_then(|line| line.split_once('\t')) else {
                continue;
            };
            let Some(short) = name.strip_prefix("refs/heads/") else { continue };
            if let (Ok(id), true) = (ObjectId::from_hex(id.as_bytes()), is_valid_name(short)) {
                branches.insert(short.to_owned(), id);
            }
        }
        Ok(branches)
    }

    /// Finds the remote's default branch and nugget's branches.
    fn query_remote(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        known: &Known,
        until: Instant,
    ) -> Result<RemoteState, Error> {
        let mut branches = self.list_heads(git, session, until)?;
        let preferred = self.preferred().filter(|name| branches.contains_key(*name)).map(str::to_owned);
        let mut asked = false;
        let default = match preferred {
            Some(name) => Some(name),
            None if branches.is_empty() => None,
            None => {
                match known.default.clone().filter(|name| known.is_fresh && branches.contains_key(name)) {
                    Some(name) => Some(name),
                    None => {
                        asked = true;
                        let named = self.query_head(git, session, until)?;
                        let candidates =
                            [named.as_deref(), known.default.as_deref(), Some("main"), Some("master")];
                        let is_one =
                            |name: &&str| branches.contains_key(*name) && !name.starts_with(BRANCH_PREFIX);
                        candidates.into_iter().flatten().find(is_one).map(str::to_owned)
                    }
                }
            }
        };
        branches.retain(|name, _| name.starts_with(BRANCH_PREFIX) || Some(name) == default.as_ref());
        if branches.len() > BRANCHES_MAX {
            tracing::warn!(branches = branches.len(), "the remote has too many branches; some are left out");
            let mut left = BRANCHES_MAX;
            branches.retain(|name, _| {
                left = left.saturating_sub(1);
                left > 0 || Some(name) == default.as_ref()
            });
        }
        Ok(RemoteState { default, branches, asked })
    }

    /// Asks the remote for the branch that its `HEAD` names.
    fn query_head(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        until: Instant,
    ) -> Result<Option<String>, Error> {
        let mut command = self.remote_command(git, session, until);
        command.arguments(["ls-remote", "--symref", REMOTE_NAME, "HEAD"]);
        let printed = command.run(until)?.ok()?;
        let name = printed.lines().find_map(|line| {
            let (target, name) = line.to_str().ok()?.strip_prefix("ref: ")?.split_once('\t')?;
            (name == "HEAD").then(|| target.strip_prefix("refs/heads/")).flatten()
        });
        Ok(name.filter(|name| is_valid_name(name)).map(str::to_owned))
    }

    /// Downloads branches without creating references. git connects to the remote only if an object is missing.
    fn download(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        branches: &[&String],
        until: Instant,
    ) -> Result<(), Error> {
        let mut command = self.remote_command(git, session, until);
        command.arguments([
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
        ]);
        command.arguments([
            "--no-auto-gc",
            "--no-recurse-submodules",
            "--no-write-commit-graph",
            "--refmap=",
        ]);
        command.arguments(["--no-prune", "--stdin", REMOTE_NAME]);
        let refspecs: String = branches.iter().map(|name| format!("refs/heads/{name}\n")).collect();
        command.input(refspecs.into_bytes());
        command.run(until)?.ok()?;
        Ok(())
    }

    /// Updates the remote-tracking references.
    fn record_fetched(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        known: &Known,
        remote_state: &RemoteState,
    ) -> Result<Fetched, Error> {
        let remote = &session.remote.name;
        let folder = git.common_dir().join("refs/remotes").join(remote);
        let full = |name: &str| format!("refs/remotes/{remote}/{name}");
        let tip = remote_state.default.as_ref().and_then(|name| remote_state.branches.get(name)).copied();
        let is_named = remote_state.default.is_none() || remote_state.default == known.default;
        let old = remote_state.default.as_ref().and_then(|name| known.tips.get(name)).copied();
        let default_branch = match (&remote_state.default, &known.default) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) => self.default_branch_of(git)?.name,
        };
        let fetched = Fetched {
            default_branch,
            tip: tip.map(CommitId),
            moved: !is_named || (tip.is_some() && tip != old),
        };

        let gone = known.tips.iter().filter(|(name, _)| {
            name.starts_with(BRANCH_PREFIX) && !remote_state.branches.contains_key(*name)
        });
        let gone: Vec<_> = gone.collect();
        let news: Vec<_> = remote_state
            .branches
            .iter()
            .filter(|(name, id)| known.tips.get(*name) != Some(*id) && git.has_object(**id))
            .collect();
        let has_news = !gone.is_empty() || !news.is_empty() || !is_named;
        let packed = git.common_dir().join("packed-refs");
        if !has_news && lock_files(&folder).is_empty() && !lock_of(&packed).exists() {
            if remote_state.asked {
                known.touch_head(git, remote);
            }
            return Ok(fetched);
        }

        let held = Lock::acquire_within(&self.lock_path()?, LOCK_WAIT_MAX)?;
        sweep(&folder, &held)?;
        sweep_one(&packed, &held)?;
        for (name, id) in gone {
            delete(git, &held, &full(name), *id)?;
        }
        for (name, id) in news {
            // A deleted branch may have a file where this one needs a folder.
            for (at, _) in name.match_indices('/') {
                let above = full(&name[..at]);
                if let Some(commit) = self::tip(git, &above)? {
                    delete(git, &held, &above, commit.0)?;
                }
            }
            // If it has changed since, another process has recorded a newer state.
            update(git, &held, &full(name), known.tips.get(name).copied(), *id, None)?;
        }
        if let Some(name) = remote_state.default.as_ref().filter(|_| remote_state.asked) {
            set_symbolic(git, &held, &full("HEAD"), &full(name))?;
        }
        Ok(fetched)
    }

    /// Records the commit of a remote branch; `None` if it was deleted.
    fn record(&self, reference: &str, commit: Option<ObjectId>) -> Result<(), Error> {
        let held = Lock::acquire_within(&self.lock_path()?, LOCK_WAIT_MAX)?;
        let git = self.git()?;
        let found = tip(&git, reference)?.map(|found| found.0);
        match (commit, found) {
            (Some(commit), _) if found != Some(commit) => {
                update(&git, &held, reference, found, commit, None)?;
            }
            (None, Some(found)) => {
                delete(&git, &held, reference, found)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// The remote-tracking references before the remote is asked.
struct Known {
    default: Option<String>,
    /// Whether the remote was recently asked for its default branch.
    is_fresh: bool,
    tips: BTreeMap<String, ObjectId>,
}

impl Known {
    fn read(git: &gix::Repository, remote: &str, preferred: Option<&str>) -> Result<Self, Error> {
        let prefix = format!("refs/remotes/{remote}/");
        let mut tips = BTreeMap::new();
        for (name, id) in branches(git, &prefix)? {
            // gix shortens the name to `origin/main`.
            let name = name.strip_prefix(&format!("{remote}/")).unwrap_or(&name).to_owned();
            tips.insert(name, id.0);
        }
        let default = match preferred.filter(|name| tips.contains_key(*name)) {
            Some(name) => Some(name.to_owned()),
            None => remote_head(git, remote)?,
        };
        let modified = std::fs::metadata(git.common_dir().join(format!("{prefix}HEAD")));
        let age = modified.ok().and_then(|found| found.modified().ok()).map(|then| then.elapsed());
        let is_fresh = matches!(age, Some(Ok(age)) if age < DEFAULT_BRANCH_INTERVAL);
        Ok(Self { default, is_fresh, tips })
    }

    /// Records that the remote was asked for its default branch and it has not changed.
    fn touch_head(&self, git: &gix::Repository, remote: &str) {
        let path = git.common_dir().join(format!("refs/remotes/{remote}/HEAD"));
        // If that fails, the remote is asked again the next time.
        let _ = std::fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    }
}

/// The remote's default branch and nugget's branches.
struct RemoteState {
    default: Option<String>,
    /// The default branch and nugget's.
    branches: BTreeMap<String, ObjectId>,
    /// Whether the remote was asked for its default branch.
    asked: bool,
}

/// Whether a remote's branch may have a reference here: a name by git's rules, without invisible characters, that
/// is no option, no lock file and not `HEAD`.
fn is_valid_name(short: &str) -> bool {
    let full = format!("refs/heads/{short}");
    full.len() <= 255
        && short != "HEAD"
        && !short.starts_with('-')
        && !short.contains(knowledge::text::is_hidden)
        && gix::validate::reference::branch_name(full.as_str().into()).is_ok()
}

/// Reads the result of a push of one reference from the lines of `--porcelain`: a flag, the refspec, and the
/// reason for a refusal.
fn parse_push_result(output: &Output, reference: &str) -> Result<Pushed, Error> {
    let printed = String::from_utf8_lossy(&output.stdout);
    for line in printed.lines() {
        let mut fields = line.split('\t');
        let (Some(flag), Some(refspec), Some(summary)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if !refspec.ends_with(&format!(":{reference}")) {
            continue;
        }
        match flag {
            "*" => return Ok(Pushed::Created),
            " " | "+" | "-" => return Ok(Pushed::Updated),
            "=" => return Ok(Pushed::AlreadyThere),
            _ => {
                let failure = RemoteFailure::from_push_summary(summary);
                let stderr = output.message();
                let separator = if stderr.is_empty() { "" } else { "; " };
                let message = output.hide(&format!("{summary}{separator}{stderr}"));
                return Err(Error::Remote { failure, message });
            }
        }
    }
    Err(output.failure())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_branch_needs_a_valid_and_visible_name() {
        for good in ["main", "nugget/session-20261120-1412-9f8b", "nugget/Ünïcode", "nugget/$(id)", "a/b/c"]
        {
            assert!(is_valid_name(good), "{good}");
        }
        let bad = [
            "",
            "HEAD",
            "-x",
            "nugget/../../config",
            "nugget/x.lock",
            "nugget//x",
            "nugget/.x",
            "nugget/x y",
            "nugget/x:y",
            "nugget/x~1",
            "nugget/x@{1}",
            "nugget/x\\y",
            "nugget/\u{202e}x",
            "nugget/\u{200b}x",
            "nugget/\u{1b}[2J",
            "/x",
            "x/",
        ];
        for bad in bad {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
        assert!(!is_valid_name(&"x".repeat(300)));
    }
}
