//! The way to the remote and back.
//!
//! Nothing here changes what the user works with. git downloads objects and is given no reference to write:
//! the remote-tracking ones are written by us, under locks that a later nugget recognises when this one is
//! killed. For that git is told of a remote of its own, in its environment alone, that has no refspecs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

use crate::command::{Ended, Program};
use crate::error::Error;
use crate::lock::Lock;
use crate::propose::{BRANCH_PREFIX, reference_name};
use crate::ref_lock::{lock_of, sweep, sweep_one};
use crate::references::{delete, point, update};
use crate::remote_config::check_url;
use crate::remote_failure::{self, RemoteFailure};
use crate::remote_url::{Remote, RemoteUrl};
use crate::repository::{CommitId, Repository, branches, remote_head, tip};

/// A name and a password or token, for https and for http on this machine. They reach git in its
/// environment alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// How the remote is spoken to.
#[derive(Clone, Copy, Debug)]
pub struct RemoteSession<'a> {
    pub remote: &'a Remote,
    /// `None` leaves it to the user's own credential helpers and ssh keys. Nobody is ever asked.
    pub credentials: Option<&'a Credentials>,
    /// For the whole operation; git and all it started are then killed.
    pub deadline: Duration,
}

/// What a fetch has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Short. As known before when the remote is empty.
    pub default_branch: String,
    /// `None` when the remote has no default branch (yet).
    pub tip: Option<CommitId>,
    /// Whether the default branch is another one than before, or has another commit.
    pub moved: bool,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Created,
    Updated,
    /// An earlier attempt pushed this very commit.
    AlreadyThere,
}

/// The name under which git knows the remote: one that nobody has configured.
const REMOTE_NAME: &str = "nugget-wire";

/// How long the lock over the repository's writers is waited for, to note what was fetched or pushed.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long reading the configuration may take.
const CONFIGURATION_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often a remote that still has the known default branch is asked whether it is still the default:
/// the answer comes with every reference that it has, and a forge keeps one for each pull request.
const HEAD_EVERY: Duration = Duration::from_secs(3600);

/// How many branches of nugget's are fetched at most; a remote may have any number.
const BRANCHES_MAX: usize = 10_000;

/// The remote's settings that matter for the way there; its refspecs, and what mirrors, prunes or follows
/// tags, do not come along.
const SETTINGS: &[&str] =
    &["url", "pushurl", "proxy", "proxyauthmethod", "uploadpack", "receivepack", "vcs", "serveroption"];

impl Repository {
    /// `origin`, or else the only remote. Read from git's configuration, the user's included; no network.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub fn remote(&self) -> Result<Option<Remote>, Error> {
        let git = self.git()?;
        let mut program = Program::new(self.root(), Some(git.git_dir()), false);
        let keys = r"^(remote\..*|url\..*\.insteadof|core\.sshcommand)$";
        program.arguments(["config", "-z", "--get-regexp", keys]);
        let ended = program.run(Instant::now() + CONFIGURATION_WAIT_MAX)?;
        // That there is no such key is no failure.
        if !ended.is_success && !ended.told().is_empty() {
            return Err(ended.failure());
        }
        let printed = String::from_utf8_lossy(&ended.output).into_owned();
        let mut remotes: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut rewrites: Vec<(&str, &str)> = Vec::new();
        let mut ssh_command = None;
        for entry in printed.split('\0') {
            let Some((key, value)) = entry.split_once('\n') else { continue };
            let Some((section, rest)) = key.split_once('.') else { continue };
            match (section, rest.rsplit_once('.')) {
                ("core", None) => ssh_command = Some(value.to_owned()),
                ("url", Some((base, "insteadof"))) => rewrites.push((value, base)),
                ("remote", Some((name, setting))) => remotes.entry(name).or_default().push((setting, value)),
                _ => {}
            }
        }
        remotes.retain(|_, settings| settings.iter().any(|(setting, _)| *setting == "url"));
        let name = match remotes.len() {
            _ if remotes.contains_key("origin") => "origin",
            1 => remotes.keys().next().copied().unwrap_or_default(),
            _ => return Ok(None),
        };
        let settings = remotes.remove(name).unwrap_or_default();
        // The first of several: to the others the user pushes as well, and we need one answer.
        let first = |wanted: &str| settings.iter().find(|(setting, _)| *setting == wanted);
        let Some((_, url)) = first("url") else { return Ok(None) };
        let longest =
            rewrites.iter().filter(|(from, _)| url.starts_with(from)).max_by_key(|(from, _)| from.len());
        let effective =
            longest.map_or_else(|| (*url).to_owned(), |(from, to)| format!("{to}{}", &url[from.len()..]));
        let settings = SETTINGS.iter().filter_map(|wanted| first(wanted));
        Ok(Some(Remote {
            name: name.to_owned(),
            url: effective,
            settings: settings.map(|(setting, value)| ((*setting).to_owned(), (*value).to_owned())).collect(),
            ssh_command,
        }))
    }

    /// Asks the remote for its default branch and for nugget's branches, downloads what is new, and notes
    /// them below `refs/remotes/`. Nothing is downloaded, and no lock taken, when there is no news.
    ///
    /// It follows the remote when its default branch is renamed, or another one is made the default (which
    /// it looks for once in an hour), unless the brain's configuration names one. Branches of nugget's that
    /// are gone there are forgotten here. No tag, no other branch, no work tree, index or `FETCH_HEAD` is
    /// touched, and git tidies nothing up. It can be killed anywhere and repeated.
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
            // Read before the remote is asked: a branch that another process pushes meanwhile is not among
            // these, and is not taken for one that is gone there.
            let known = Known::read(&git, &session.remote.name, self.preferred())?;
            let there = self.ask(&git, session, &known, until)?;
            let news: Vec<&String> = there
                .wanted()
                .filter(|(name, id)| known.tips.get(*name) != Some(*id))
                .map(|(name, _)| name)
                .collect();
            if !news.is_empty() {
                self.download(&git, session, &news, until)?;
            }
            // A branch that has moved between question and download may be there only in its new state.
            let git = self.git()?;
            let is_whole = there.wanted().all(|(_, id)| git.has_object(*id));
            if is_whole || attempts == 2 {
                return self.note_fetched(&git, session, &known, &there);
            }
            attempts += 1;
        }
    }

    /// Asks the remote which branches it has, and notes nothing.
    ///
    /// # Errors
    /// [`Error::Remote`] and [`Error::NoGit`].
    pub fn list_remote_branches(&self, session: &RemoteSession<'_>) -> Result<Vec<String>, Error> {
        let until = Instant::now() + session.deadline;
        Ok(self.listed(&self.git()?, session, until)?.into_keys().collect())
    }

    /// Pushes a commit to a branch of nugget's at the remote. With `expected` it takes the place of that
    /// commit and of no other; without, the branch may not be there, unless at this very commit.
    ///
    /// A remote without a default branch gets none of ours: a forge would make it the default.
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
        self.note(&format!("refs/remotes/{remote}/{branch}"), Some(commit.0))?;
        Ok(pushed)
    }

    /// Pushes the local default branch to a remote that does not have it. Never forced, and never where a
    /// branch of that name is.
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
        self.note(&format!("refs/remotes/{}/{}", session.remote.name, default.name), Some(commit.0))?;
        Ok(pushed)
    }

    /// Deletes a branch of nugget's at the remote, when it is at `expected` there. `false` when it is gone
    /// already.
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
            // To a lease, a branch that is gone is as stale as one that has moved.
            Err(error @ Error::Remote { failure: RemoteFailure::Stale, .. }) => {
                if self.listed(&git, session, until)?.contains_key(branch) {
                    return Err(error);
                }
                false
            }
            Err(error) => return Err(error),
        };
        self.note(&format!("refs/remotes/{}/{branch}", session.remote.name), None)?;
        Ok(deleted)
    }

    /// One push of one reference, with the remote's answer to it.
    fn push(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        refspec: &str,
        reference: &str,
        lease: &str,
        until: Instant,
    ) -> Result<Pushed, Error> {
        let mut program = self.program(git, session, until);
        program.arguments(["push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed"]);
        program.arguments([format!("--force-with-lease={reference}:{lease}").as_str(), REMOTE_NAME, refspec]);
        let ended = program.run(until)?;
        answer_to(&ended, reference)
    }

    fn program(&self, git: &gix::Repository, session: &RemoteSession<'_>, until: Instant) -> Program {
        let mut program = Program::new(self.root(), Some(git.git_dir()), session.credentials.is_some());
        for (setting, value) in &session.remote.settings {
            program.configure(format!("remote.{REMOTE_NAME}.{setting}"), value);
            if setting.ends_with("url") {
                hide_url(&mut program, value);
            }
        }
        program.configure(format!("remote.{REMOTE_NAME}.followRemoteHEAD"), "never");
        hide_url(&mut program, &session.remote.url);
        let ssh = session.remote.ssh_command.as_deref();
        connect(&mut program, session.remote.parsed_url().as_ref(), session.credentials, ssh, until);
        program
    }

    /// All branches of the remote that may be named here, by short name.
    fn listed(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        until: Instant,
    ) -> Result<BTreeMap<String, ObjectId>, Error> {
        let mut program = self.program(git, session, until);
        program.arguments(["ls-remote", "--heads", REMOTE_NAME]);
        let printed = program.run(until)?.ok()?;
        let mut branches = BTreeMap::new();
        for line in printed.lines() {
            let Some((id, name)) = line.to_str().ok().and_then(|line| line.split_once('\t')) else {
                continue;
            };
            let Some(short) = name.strip_prefix("refs/heads/") else { continue };
            if let (Ok(id), true) = (ObjectId::from_hex(id.as_bytes()), may_be_named(short)) {
                branches.insert(short.to_owned(), id);
            }
        }
        Ok(branches)
    }

    fn ask(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        known: &Known,
        until: Instant,
    ) -> Result<There, Error> {
        let mut branches = self.listed(git, session, until)?;
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
                        let named = self.ask_head(git, session, until)?;
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
        Ok(There { default, branches, asked })
    }

    /// The branch that the remote's `HEAD` names.
    fn ask_head(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        until: Instant,
    ) -> Result<Option<String>, Error> {
        let mut program = self.program(git, session, until);
        program.arguments(["ls-remote", "--symref", REMOTE_NAME, "HEAD"]);
        let printed = program.run(until)?.ok()?;
        let name = printed.lines().find_map(|line| {
            let (target, name) = line.to_str().ok()?.strip_prefix("ref: ")?.split_once('\t')?;
            (name == "HEAD").then(|| target.strip_prefix("refs/heads/")).flatten()
        });
        Ok(name.filter(|name| may_be_named(name)).map(str::to_owned))
    }

    /// Downloads branches without a name for them here. git looks whether all of them is there, and connects
    /// to the remote only when it is not.
    fn download(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        branches: &[&String],
        until: Instant,
    ) -> Result<(), Error> {
        let mut program = self.program(git, session, until);
        program.arguments([
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
        ]);
        program.arguments([
            "--no-auto-gc",
            "--no-recurse-submodules",
            "--no-write-commit-graph",
            "--refmap=",
        ]);
        program.arguments(["--no-prune", "--stdin", REMOTE_NAME]);
        let refspecs: String = branches.iter().map(|name| format!("refs/heads/{name}\n")).collect();
        program.input(refspecs.into_bytes());
        program.run(until)?.ok()?;
        Ok(())
    }

    fn note_fetched(
        &self,
        git: &gix::Repository,
        session: &RemoteSession<'_>,
        known: &Known,
        there: &There,
    ) -> Result<Fetched, Error> {
        let remote = &session.remote.name;
        let folder = git.common_dir().join("refs/remotes").join(remote);
        let full = |name: &str| format!("refs/remotes/{remote}/{name}");
        let tip = there.default.as_ref().and_then(|name| there.branches.get(name)).copied();
        let is_named = there.default.is_none() || there.default == known.default;
        let old = there.default.as_ref().and_then(|name| known.tips.get(name)).copied();
        let default_branch = match (&there.default, &known.default) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) => self.default_branch_of(git)?.name,
        };
        let fetched = Fetched {
            default_branch,
            tip: tip.map(CommitId),
            moved: !is_named || (tip.is_some() && tip != old),
        };

        let gone = known
            .tips
            .iter()
            .filter(|(name, _)| name.starts_with(BRANCH_PREFIX) && !there.branches.contains_key(*name));
        let gone: Vec<_> = gone.collect();
        let news: Vec<_> = there
            .wanted()
            .filter(|(name, id)| known.tips.get(*name) != Some(*id) && git.has_object(**id))
            .collect();
        let has_news = !gone.is_empty() || !news.is_empty() || !is_named;
        let packed = git.common_dir().join("packed-refs");
        if !has_news && !has_locks(&folder) && !lock_of(&packed).exists() {
            if there.asked {
                known.freshen(git, remote);
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
            // A branch that is gone there may stand where this one needs a folder.
            for (at, _) in name.match_indices('/') {
                let above = full(&name[..at]);
                if let Some(commit) = self::tip(git, &above)? {
                    delete(git, &held, &above, commit.0)?;
                }
            }
            // Where it is not as it was, somebody else has newer news.
            update(git, &held, &full(name), known.tips.get(name).copied(), *id, None)?;
        }
        if let Some(name) = there.default.as_ref().filter(|_| there.asked) {
            point(git, &held, &full("HEAD"), &full(name))?;
        }
        Ok(fetched)
    }

    /// Notes where a branch of the remote is now.
    fn note(&self, reference: &str, commit: Option<ObjectId>) -> Result<(), Error> {
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

/// Clones a brain, with its default branch checked out. No hook or template of the user's is copied or run.
///
/// It is cloned beside `into` and moved there whole, so that one that is killed leaves nothing in its place; a
/// later attempt removes what it left.
///
/// # Errors
/// [`Error::InvalidRemote`] and [`Error::SecretInUrl`] for a URL that may not be; [`Error::FolderTaken`] when
/// there is something in `into`; [`Error::Remote`].
pub fn clone(
    url: &str,
    into: &Path,
    credentials: Option<&Credentials>,
    deadline: Duration,
) -> Result<Repository, Error> {
    let until = Instant::now() + deadline;
    check_url(url)?;
    let taken = || Error::FolderTaken { path: into.to_owned() };
    let is_free = match std::fs::read_dir(into) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_free {
        return Err(taken());
    }
    let into = std::path::absolute(into).map_err(Error::io("find", into))?;
    let (Some(parent), Some(name)) = (into.parent(), into.file_name()) else { return Err(taken()) };
    std::fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    let beside = parent.join(format!(".{}.nugget-clone", name.to_string_lossy()));
    // Whoever holds the lock is cloning to this very place.
    let held = Lock::try_acquire(&beside.join("lock"))?;
    let held = held.ok_or_else(|| Error::LockTimeout { path: beside.clone(), waited: Duration::ZERO })?;
    let work = beside.join("brain");
    let remove = |path: &Path| match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    };
    remove(&work)?;
    let cloned = (|| {
        let mut program = Program::new(parent, None, credentials.is_some());
        let mut asked = Program::new(parent, None, false);
        asked.arguments(["config", "--get", "core.sshCommand"]);
        let configured = asked.run(until)?.output;
        let ssh_command = configured.trim().to_str().ok().filter(|command| !command.is_empty());
        connect(&mut program, RemoteUrl::parse(url).as_ref(), credentials, ssh_command, until);
        program.configure("init.templateDir", "");
        program.configure("clone.defaultRemoteName", "origin");
        program.arguments(["clone", "--quiet", "--no-recurse-submodules", "--template=", "--"]);
        program.arguments([std::ffi::OsStr::new(url), work.as_os_str()]);
        program.run(until)?.ok()?;
        // Onto nothing, or an empty folder.
        std::fs::rename(&work, &into).map_err(Error::io("replace", &into))?;
        Repository::open(&into)
    })();
    drop(held);
    remove(&beside)?;
    cloned
}

/// What is known of the remote before it is asked.
struct Known {
    default: Option<String>,
    /// Whether it was looked for a change of the default branch lately.
    is_fresh: bool,
    tips: BTreeMap<String, ObjectId>,
}

impl Known {
    fn read(git: &gix::Repository, remote: &str, preferred: Option<&str>) -> Result<Self, Error> {
        let prefix = format!("refs/remotes/{remote}/");
        let mut tips = BTreeMap::new();
        for (name, id) in branches(git, &prefix)? {
            // By gix shortened to `origin/main`.
            let name = name.strip_prefix(&format!("{remote}/")).unwrap_or(&name).to_owned();
            tips.insert(name, id.0);
        }
        let default = match preferred.filter(|name| tips.contains_key(*name)) {
            Some(name) => Some(name.to_owned()),
            None => remote_head(git, remote)?,
        };
        let modified = std::fs::metadata(git.common_dir().join(format!("{prefix}HEAD")));
        let age = modified.ok().and_then(|found| found.modified().ok()).map(|then| then.elapsed());
        let is_fresh = matches!(age, Some(Ok(age)) if age < HEAD_EVERY);
        Ok(Self { default, is_fresh, tips })
    }

    /// Notes that the remote was asked for its default branch, and it is still the same.
    fn freshen(&self, git: &gix::Repository, remote: &str) {
        let path = git.common_dir().join(format!("refs/remotes/{remote}/HEAD"));
        // Where that fails it is asked again the next time.
        let _ = std::fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    }
}

/// What the remote has of ours.
struct There {
    default: Option<String>,
    /// The default branch and nugget's.
    branches: BTreeMap<String, ObjectId>,
    /// Whether it was asked which branch is its default.
    asked: bool,
}

impl There {
    fn wanted(&self) -> impl Iterator<Item = (&String, &ObjectId)> {
        self.branches.iter()
    }
}

/// Whether a branch of a remote may be named here: git's own grammar, nothing invisible, nothing that is an
/// option, a lock file or our `HEAD`.
fn may_be_named(short: &str) -> bool {
    let full = format!("refs/heads/{short}");
    full.len() <= 255
        && short != "HEAD"
        && !short.starts_with('-')
        && !short.contains(knowledge::text::is_hidden)
        && gix::validate::reference::branch_name(full.as_str().into()).is_ok()
}

fn has_locks(folder: &Path) -> bool {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "lock") {
                return true;
            }
        }
    }
    false
}

/// What the remote said to the push of one reference, from `--porcelain`'s lines: a flag, the reference, and
/// in brackets why not.
fn answer_to(ended: &Ended, reference: &str) -> Result<Pushed, Error> {
    let printed = String::from_utf8_lossy(&ended.output);
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
                let failure = match remote_failure::of_words(summary) {
                    // A refusal of this reference by the remote, whatever it calls its rules.
                    RemoteFailure::Other | RemoteFailure::NotFound
                        if summary.starts_with("[remote rejected]") =>
                    {
                        RemoteFailure::Protected
                    }
                    failure => failure,
                };
                let words = ended.told();
                let separator = if words.is_empty() { "" } else { "; " };
                let message = ended.hide(&format!("{summary}{separator}{words}"));
                return Err(Error::Remote { failure, message });
            }
        }
    }
    Err(ended.failure())
}

/// How git gets to the remote and who it is there.
///
/// The credentials go by way of a helper that reads them from the environment: git asks it for one origin only,
/// and follows no redirect from there. A repository that has moved is told as not found.
fn connect(
    program: &mut Program,
    place: Option<&RemoteUrl>,
    credentials: Option<&Credentials>,
    ssh_command: Option<&str>,
    until: Instant,
) {
    if let Some(command) = ssh(ssh_command, std::env::var("GIT_SSH_COMMAND").ok()) {
        program.environment("GIT_SSH_COMMAND", command);
    }
    // Should we be killed, git does not wait for a silent remote for ever. Later than our own deadline.
    let seconds = until.saturating_duration_since(Instant::now()).as_secs() + 5;
    program.configure("http.lowSpeedLimit", "1").configure("http.lowSpeedTime", seconds.to_string());
    let Some(credentials) = credentials else { return };
    for secret in [&credentials.password, &basic(credentials)] {
        program.hide(secret.as_str());
    }
    // No helper of the user's is asked or told.
    program.configure("credential.helper", "");
    let Some(origin) = place.and_then(RemoteUrl::origin_for_passwords) else { return };
    let helper = "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' \
                  \"$NUGGET_GIT_USERNAME\" \"$NUGGET_GIT_PASSWORD\"; }; f";
    program
        // Once git has a password it sends it wherever a redirect leads.
        .configure("http.followRedirects", "false")
        .configure(format!("credential.{origin}.helper"), "")
        .configure(format!("credential.{origin}.helper"), helper)
        // Spares a refused request; a git that does not know it makes that request.
        .configure("http.proactiveAuth", "basic")
        .environment("NUGGET_GIT_USERNAME", &credentials.username)
        .environment("NUGGET_GIT_PASSWORD", &credentials.password);
}

/// The user's own ssh, which must not ask anything; `None` where it is a program of the user's that takes no
/// options of ssh's.
fn ssh(configured: Option<&str>, environment: Option<String>) -> Option<String> {
    // As git: the variable goes before the configuration, and that before `GIT_SSH`.
    let own = environment.or_else(|| configured.map(str::to_owned)).filter(|own| !own.trim().is_empty());
    match own {
        Some(own) if own.to_ascii_lowercase().contains("plink") => Some(format!("{own} -batch")),
        Some(own) => Some(format!("{own} -o BatchMode=yes")),
        None if std::env::var_os("GIT_SSH").is_some() => None,
        None => Some("ssh -o BatchMode=yes".to_owned()),
    }
}

/// A URL may carry a secret before its host's `@`.
fn hide_url(program: &mut Program, url: &str) {
    let Some((_, rest)) = url.split_once("://") else { return };
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some((who, _)) = authority.rsplit_once('@') {
        for part in who.split(':') {
            program.hide(part);
        }
    }
}

/// The credentials as a header has them.
fn basic(credentials: &Credentials) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = format!("{}:{}", credentials.username, credentials.password).into_bytes();
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * n)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remotes_branch_is_named_here_only_by_gits_own_grammar_and_visibly() {
        for good in ["main", "nugget/session-20261120-1412-9f8b", "nugget/Ünïcode", "nugget/$(id)", "a/b/c"]
        {
            assert!(may_be_named(good), "{good}");
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
            assert!(!may_be_named(bad), "{bad:?}");
        }
        assert!(!may_be_named(&"x".repeat(300)));
    }

    #[test]
    fn credentials_are_hidden_in_each_of_their_forms() {
        let credentials = Credentials { username: "me".to_owned(), password: "hunter22".to_owned() };
        assert_eq!(basic(&credentials), "bWU6aHVudGVyMjI=".trim_end_matches('='));
        assert!(!format!("{credentials:?}").contains("hunter"));
    }
}
