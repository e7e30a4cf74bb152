//! Fetches from the remote and pushes to it.
//!
//! Nothing here changes what the user works with. git downloads objects and writes no references: nugget writes
//! the remote-tracking ones itself, under locks that it recognises after a kill.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

use crate::command::Output;
use crate::connection::{REMOTE_NAME, RemoteSession};
use crate::error::Error;
use crate::lock::Lock;
use crate::ref_lock::{lock_files, lock_of, sweep, sweep_one};
use crate::references::{delete, delete_all, reference_name, set_symbolic, update};
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

/// Downloads what the standard input names, one a line.
const FETCH: &[&str] =
    &["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=", "--stdin", REMOTE_NAME];

/// How many of nugget's branches are fetched at most; a remote may have any number.
const BRANCHES_MAX: usize = 10_000;

impl Repository {
    /// Fetches the remote's default branch and nugget's branches, and records them below `refs/remotes/`. If
    /// nothing is new, nothing is downloaded and no lock is taken.
    ///
    /// Follows a renamed default branch, and once an hour checks whether another branch is the default, unless
    /// the brain's configuration names one, which the remote then must have, if it has any. Remote-tracking references of nugget's deleted branches are removed.
    /// Tags, other branches, work tree, index and `FETCH_HEAD` are not changed, and git runs no maintenance. It
    /// can be killed at any point and repeated.
    ///
    /// Takes the repository's lock for a moment at the end, so the caller must not hold it.
    ///
    /// # Errors
    /// [`Error::Remote`], [`Error::NoGit`], [`Error::LockTimeout`], and failures of the disk.
    pub fn fetch(&self, session: &RemoteSession<'_>) -> Result<Fetched, Error> {
        let operation = Operation::begin(self, session)?;
        let mut attempts = 0;
        loop {
            // Read before the remote is asked: otherwise a branch that another process pushes in between would
            // look like a deleted one.
            let known = Known::read(&operation.git, &session.remote.name, self.preferred())?;
            let remote_state = operation.query(&known)?;
            let is_new = |(name, id): &(&String, &ObjectId)| known.tips.get(*name) != Some(*id);
            let news: String = remote_state
                .branches
                .iter()
                .filter(is_new)
                .map(|(name, _)| format!("refs/heads/{name}\n"))
                .collect();
            if !news.is_empty() {
                operation.download(news)?;
            }
            // A branch that moved between query and download may exist only with its new commit.
            let git = self.git()?;
            let is_complete = remote_state.branches.iter().all(|(_, id)| git.has_object(*id));
            if is_complete || attempts == 2 {
                operation.download_promised(&git, &remote_state)?;
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
        Ok(Operation::begin(self, session)?.list_heads()?.into_keys().collect())
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
        reference_name(branch)?;
        let operation = Operation::begin(self, session)?;
        let is_known = self.default_branch_of(&operation.git).is_ok_and(|default| default.remote.is_some());
        if !is_known && self.fetch(session)?.tip.is_none() {
            let failure = RemoteFailure::Empty;
            return Err(Error::Remote { failure, message: failure.to_string() });
        }
        operation.push(branch, Some(commit), expected)
    }

    /// Pushes the local default branch to a remote that does not have it. Never forced; an existing branch of that
    /// name is never changed.
    ///
    /// # Errors
    /// Those of [`default_branch`](Self::default_branch); [`RemoteFailure::Stale`] when the remote has the branch
    /// with another commit; as [`fetch`](Self::fetch).
    pub fn push_default(&self, session: &RemoteSession<'_>) -> Result<Pushed, Error> {
        let operation = Operation::begin(self, session)?;
        let default = self.default_branch_of(&operation.git)?;
        let Some(commit) = default.local else { return Err(Error::Unborn { branch: default.name }) };
        operation.push(&default.name, Some(commit), None)
    }

    /// Pushes a commit of the default branch that a person has merged. Never forced: the remote's branch must be at
    /// `expected`, of which the commit is a descendant.
    ///
    /// Takes the repository's lock for a moment at the end, so the caller must not hold it.
    ///
    /// # Errors
    /// [`Error::BranchMoved`] when the commit is no descendant; [`RemoteFailure::Stale`] when the remote's branch has
    /// moved, [`RemoteFailure::DefaultProtected`] when it takes no pushes; as [`fetch`](Self::fetch).
    pub fn push_merged(
        &self,
        session: &RemoteSession<'_>,
        commit: CommitId,
        expected: CommitId,
    ) -> Result<Pushed, Error> {
        let operation = Operation::begin(self, session)?;
        let name = self.default_branch_of(&operation.git)?.name;
        if !self.contains(commit, expected)? {
            return Err(Error::BranchMoved { branch: name });
        }
        operation.push(&name, Some(commit), Some(expected)).map_err(|error| match error {
            Error::Remote { failure: RemoteFailure::Protected, message } => {
                Error::Remote { failure: RemoteFailure::DefaultProtected, message }
            }
            error => error,
        })
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
        reference_name(branch)?;
        let operation = Operation::begin(self, session)?;
        match operation.push(branch, None, Some(expected)) {
            Ok(_) => Ok(true),
            // git reports a missing branch as stale, like one that has moved.
            Err(error @ Error::Remote { failure: RemoteFailure::Stale, .. }) => {
                if operation.list_heads()?.contains_key(branch) {
                    return Err(error);
                }
                operation.record(branch, None)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
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

        // A remote that lost all of its branches is being replaced: they are the last copies of what waits for review.
        let is_emptied = remote_state.branches.is_empty()
            && known.tips.keys().any(|name| !name.starts_with(BRANCH_PREFIX));
        if is_emptied {
            tracing::warn!(
                remote,
                "the remote has no branch any more: what is known of its branches is kept"
            );
        }
        let gone = known.tips.iter().filter(|(name, _)| {
            !is_emptied
                && name.starts_with(BRANCH_PREFIX)
                && !remote_state.branches.contains_key(*name)
                && !remote_state.left_out.contains(*name)
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
        if let (Some(name), Some(old), Some(new)) = (&remote_state.default, old, tip) {
            self.record_removed(git, name, CommitId(old), CommitId(new))?;
        }
        // One that has changed since, another process has recorded.
        delete_all(git, &held, gone.into_iter().map(|(name, id)| (full(name), *id)), |_, _| {})?;
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
}

/// One operation with the remote, within its time limit.
struct Operation<'a> {
    repository: &'a Repository,
    git: gix::Repository,
    session: &'a RemoteSession<'a>,
    until: Instant,
}

impl<'a> Operation<'a> {
    fn begin(repository: &'a Repository, session: &'a RemoteSession<'a>) -> Result<Self, Error> {
        let until = Instant::now() + session.deadline;
        Ok(Self { repository, git: repository.git()?, session, until })
    }

    fn run(&self, arguments: &[&str], input: String) -> Result<Output, Error> {
        let mut command = self.repository.remote_command(&self.git, self.session, self.until);
        command.arguments(arguments).input(input.into_bytes());
        command.run(self.until)
    }

    /// Pushes a commit to a branch that is at `expected`, or deletes the branch, and records that.
    fn push(
        &self,
        branch: &str,
        commit: Option<CommitId>,
        expected: Option<CommitId>,
    ) -> Result<Pushed, Error> {
        let id = |commit: Option<CommitId>| commit.map(|commit| commit.to_string()).unwrap_or_default();
        let reference = format!("refs/heads/{branch}");
        let lease = format!("--force-with-lease={reference}:{}", id(expected));
        let refspec = format!("{}:{reference}", id(commit));
        let output = self.run(&["push", "--porcelain", &lease, REMOTE_NAME, &refspec], String::new())?;
        let pushed = parse_push_result(&output, &reference)?;
        self.record(branch, commit)?;
        Ok(pushed)
    }

    /// Records the commit of a remote branch; `None` if it was deleted.
    fn record(&self, branch: &str, commit: Option<CommitId>) -> Result<(), Error> {
        let held = Lock::acquire_within(&self.repository.lock_path()?, LOCK_WAIT_MAX)?;
        let git = self.repository.git()?;
        let reference = format!("refs/remotes/{}/{branch}", self.session.remote.name);
        let found = tip(&git, &reference)?;
        match (commit, found) {
            (Some(commit), _) if found != Some(commit) => {
                update(&git, &held, &reference, found.map(|found| found.0), commit.0, None)?;
            }
            (None, Some(found)) => drop(delete(&git, &held, &reference, found.0)?),
            _ => {}
        }
        Ok(())
    }

    /// All branches of the remote with a valid name, by short name.
    fn list_heads(&self) -> Result<BTreeMap<String, ObjectId>, Error> {
        let printed = self.run(&["ls-remote", "--heads", REMOTE_NAME], String::new())?.whole()?;
        let branch = |line: &[u8]| {
            let (id, name) = line.to_str().ok()?.split_once('\t')?;
            let short = name.strip_prefix("refs/heads/").filter(|short| is_valid_name(short))?;
            Some((short.to_owned(), ObjectId::from_hex(id.as_bytes()).ok()?))
        };
        Ok(printed.lines().filter_map(branch).collect())
    }

    /// Finds the remote's default branch and nugget's branches.
    fn query(&self, known: &Known) -> Result<RemoteState, Error> {
        let mut branches = self.list_heads()?;
        let is_other = |name: &String| !name.starts_with(BRANCH_PREFIX);
        if let Some(preferred) = self.repository.preferred()
            && !branches.contains_key(preferred)
            && branches.keys().any(is_other)
        {
            let named = self.query_head()?.unwrap_or_else(|| "no branch".to_owned());
            let failure = RemoteFailure::NoBranch;
            let message = format!("it is {preferred}, and the remote's default is {named}");
            return Err(Error::Remote { failure, message });
        }
        let fresh = known.default.as_deref().filter(|_| known.is_fresh);
        let certain = [self.repository.preferred(), fresh];
        let mut default =
            certain.into_iter().flatten().find(|name| branches.contains_key(*name)).map(str::to_owned);
        let asked = default.is_none() && !branches.is_empty();
        if asked {
            let named = self.query_head()?;
            let candidates = [named.as_deref(), known.default.as_deref(), Some("main"), Some("master")];
            let is_one = |name: &&str| branches.contains_key(*name) && !name.starts_with(BRANCH_PREFIX);
            default = candidates.into_iter().flatten().find(is_one).map(str::to_owned);
        }
        branches.retain(|name, _| name.starts_with(BRANCH_PREFIX) || Some(name) == default.as_ref());
        let mut left_out = BTreeSet::new();
        if branches.len() > BRANCHES_MAX {
            tracing::warn!(branches = branches.len(), "the remote has too many branches; some are left out");
            let mut left = BRANCHES_MAX;
            branches.retain(|name, _| {
                left = left.saturating_sub(1);
                let is_kept = left > 0 || Some(name) == default.as_ref();
                if !is_kept {
                    left_out.insert(name.clone());
                }
                is_kept
            });
        }
        Ok(RemoteState { default, branches, left_out, asked })
    }

    /// Asks the remote for the branch that its `HEAD` names.
    fn query_head(&self) -> Result<Option<String>, Error> {
        let printed = self.run(&["ls-remote", "--symref", REMOTE_NAME, "HEAD"], String::new())?.whole()?;
        let name = printed.lines().find_map(|line| {
            let (target, name) = line.to_str().ok()?.strip_prefix("ref: ")?.split_once('\t')?;
            (name == "HEAD").then(|| target.strip_prefix("refs/heads/")).flatten()
        });
        Ok(name.filter(|name| is_valid_name(name)).map(str::to_owned))
    }

    /// Downloads references, one a line, without creating any here. git connects to the remote only if an object is
    /// missing. Its configuration forbids the rest: see [`crate::command`].
    fn download(&self, references: String) -> Result<(), Error> {
        self.run(FETCH, references)?.ok().map(drop)
    }

    /// Downloads what a partial clone lacks of the branches and their history. git would fetch each object when it reads
    /// it; gix only says that it is missing.
    fn download_promised(&self, git: &gix::Repository, remote_state: &RemoteState) -> Result<(), Error> {
        let setting = format!("remote.{}.promisor", self.session.remote.name);
        if git.config_snapshot().boolean(setting.as_str()) != Some(true) {
            return Ok(());
        }
        let tips = remote_state.branches.values().filter(|id| git.has_object(**id));
        let tips = tips.map(|id| format!("{id}\n")).collect();
        let list = ["rev-list", "--objects", "--quiet", "--missing=print", "--stdin"];
        let listed = self.run(&list, tips)?.whole()?;
        let missing = listed.lines().filter_map(|line| line.strip_prefix(b"?")?.to_str().ok());
        let missing: String = missing.map(|id| format!("{id}\n")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Otherwise git tells the remote which commits are here, and that leaves out their files.
        let negotiation = ["-c", "fetch.negotiationAlgorithm=noop"];
        self.run(&[&negotiation, FETCH].concat(), missing)?.ok().map(drop)
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
    /// Those of nugget's that are too many.
    left_out: BTreeSet<String>,
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
                let failure = RemoteFailure::from_push_summary(summary, &output.stderr);
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
