//! The brain's repository: found at exactly its root, read at any commit.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gix::bstr::ByteSlice as _;
use gix::open::Permissions;
use gix::sec::Permission;

use crate::error::{During as _, Error};
use crate::propose::BRANCH_PREFIX;

/// A git repository whose work tree, or itself if bare, is the brain's root.
///
/// It keeps no handle to git: each operation opens the repository anew (under a millisecond), as
/// a drainer lives long and people repack, fetch and configure beside it.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    preferred: Option<String>,
}

/// What [`Repository::init`] found.
#[derive(Clone, Debug)]
pub enum Init {
    /// There was none; now there is one, without commits.
    Created(Repository),
    Existing(Repository),
}

impl Init {
    pub fn into_repository(self) -> Repository {
        match self {
            Self::Created(repository) | Self::Existing(repository) => repository,
        }
    }
}

/// The branch into which knowledge is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Short: `main`.
    pub name: String,
    /// What proposals are based on: the remote's branch where one is known, as a branch made on top
    /// of a local one would publish whatever the user has not pushed yet; else the local branch.
    pub tip: CommitId,
    pub local: Option<CommitId>,
    /// The remote's, as last fetched.
    pub remote: Option<CommitId>,
}

/// The name of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(pub(crate) gix::ObjectId);

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CommitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        gix::ObjectId::from_hex(text.as_bytes())
            .map(Self)
            .during(|| format!("read {text:?} as the name of a commit"))
    }
}

/// The largest file that is read out of the repository, in bytes.
pub const BLOB_BYTES_MAX: u64 = 1024 * 1024;

/// How many folders deep a tree is followed; git itself has no limit, so a made-up tree has none.
const DEPTH_MAX: usize = 32;
/// Of the objects that were read last, as they are looked at again for each unit of an answer.
const TREES_KEPT_BYTES: usize = 1 << 20;

impl Repository {
    /// Opens the repository whose root is `root` and no other: a brain that lies inside the work
    /// tree of another repository is not that repository's.
    ///
    /// # Errors
    /// [`Error::NotARepository`], [`Error::Unsupported`] for SHA-256 and reftable, [`Error::Git`] for
    /// one that is damaged.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let not_a_repository = || Error::NotARepository { path: root.to_owned() };
        let repository = Self { root: root.canonicalize().map_err(|_| not_a_repository())?, preferred: None };
        let root = &repository.root;
        let git = match repository.git() {
            Ok(git) => git,
            Err(_) if !root.join(".git").exists() && gix::discover::is_git(root).is_err() => {
                return Err(not_a_repository());
            }
            Err(error) => return Err(unsupported(root).unwrap_or(error)),
        };
        // gix would write references where git does not look for them.
        let references = git.config_snapshot().string("extensions.refStorage");
        if let Some(kind) = references.filter(|kind| !kind.eq_ignore_ascii_case(b"files")) {
            return Err(Error::Unsupported { path: root.clone(), feature: format!("{kind} references") });
        }
        let git_root = git.workdir().unwrap_or(git.git_dir());
        if git_root.canonicalize().ok().as_deref() != Some(root.as_path()) {
            return Err(not_a_repository());
        }
        Ok(repository)
    }

    /// Opens the repository at `root`, or creates it, with its parent folders. Its first branch is
    /// called as the user's `init.defaultBranch` says, or `main`.
    ///
    /// # Errors
    /// When there is one that cannot be opened, or none can be made.
    pub fn init(root: &Path) -> Result<Init, Error> {
        Self::init_with(root, &[])
    }

    pub(crate) fn init_with(root: &Path, configuration: &[&str]) -> Result<Init, Error> {
        match Self::open(root) {
            Ok(repository) => return Ok(Init::Existing(repository)),
            Err(Error::NotARepository { .. }) => {}
            Err(error) => return Err(error),
        }
        std::fs::create_dir_all(root).map_err(Error::io("create", root))?;
        // The user's own configuration is read, yet no `GIT_*` variable: in a hook they would name
        // another repository.
        let mut permissions = Permissions::all();
        permissions.env.git_prefix = Permission::Deny;
        permissions.env.objects = Permission::Deny;
        let options = gix::open::Options::default()
            .permissions(permissions)
            .config_overrides(configuration.iter().copied());
        let kind = gix::create::Kind::WithWorktree;
        gix::ThreadSafeRepository::init_opts(root, kind, gix::create::Options::default(), options)
            .during(|| format!("create a repository in {}", root.display()))?;
        Ok(Init::Created(Self::open(root)?))
    }

    /// Names the default branch, as the brain's configuration may; `None` finds it.
    #[must_use]
    pub fn with_default_branch(mut self, name: Option<&str>) -> Self {
        self.preferred = name.map(str::to_owned);
        self
    }

    pub(crate) fn preferred(&self) -> Option<&str> {
        self.preferred.as_deref()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The branch into which knowledge is merged: the one asked for by
    /// [`with_default_branch`](Self::with_default_branch); else that of the remote's `HEAD`; else `main`;
    /// else `master`; else the one checked out; else the only one. A branch of nugget's never is.
    ///
    /// What is checked out does not matter where one of the first four exists.
    ///
    /// # Errors
    /// [`Error::Unborn`] when the branch has no commit, [`Error::NoDefaultBranch`] when none of
    /// these exists.
    pub fn default_branch(&self) -> Result<Branch, Error> {
        self.default_branch_of(&self.git()?)
    }

    pub(crate) fn default_branch_of(&self, git: &gix::Repository) -> Result<Branch, Error> {
        if let Some(name) = &self.preferred {
            return branch(git, name)?.ok_or_else(|| Error::Unborn { branch: name.clone() });
        }
        let remote_head = remote_head(git, &remote_name(git))?;
        for name in remote_head.as_deref().into_iter().chain(["main", "master"]) {
            if let Some(branch) = branch(git, name)? {
                return Ok(branch);
            }
        }
        let head = git.head_name().during(|| "read HEAD".to_owned())?;
        let checked_out = head.and_then(|name| name.shorten().to_str().ok().map(str::to_owned));
        if let Some(name) = checked_out.filter(|name| !name.starts_with(BRANCH_PREFIX)) {
            return branch(git, &name)?.ok_or(Error::Unborn { branch: name });
        }
        let mut others = branches(git, "refs/heads/")?;
        others.retain(|(name, _)| !name.starts_with(BRANCH_PREFIX));
        match others.as_slice() {
            [(name, _)] => branch(git, name)?.ok_or_else(|| Error::Unborn { branch: name.clone() }),
            _ => Err(Error::NoDefaultBranch { path: self.root.clone() }),
        }
    }

    /// Whether anything, a folder included, is at this path in a commit.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn exists_at(&self, commit: CommitId, path: &str) -> Result<bool, Error> {
        let git = self.git()?;
        Ok(entry(&tree_of(&git, commit)?, path)?.is_some())
    }

    /// The paths of all files of a commit below a folder (`""` for all), sorted. Names that are not
    /// UTF-8 are left out.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn paths_under(&self, commit: CommitId, folder: &str) -> Result<Vec<String>, Error> {
        let git = self.git()?;
        let folder = folder.trim_end_matches('/');
        let mut tree = tree_of(&git, commit)?;
        let mut prefix = String::new();
        if !folder.is_empty() {
            let Some(found) = entry(&tree, folder)?.filter(|found| found.mode().is_tree()) else {
                return Ok(Vec::new());
            };
            tree = found
                .object()
                .and_then(|object| object.try_into_tree())
                .during(|| format!("read {folder}"))?;
            prefix = format!("{folder}/");
        }
        let mut paths: Vec<String> =
            files_beyond(None, &tree, &prefix)?.into_iter().map(|file| file.path).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// The content of a file in a commit; `None` when there is no file of that path, or a symbolic
    /// link, which is never followed.
    ///
    /// # Errors
    /// When the commit cannot be read, [`Error::TooLarge`] beyond [`BLOB_BYTES_MAX`].
    pub fn read_at(&self, commit: CommitId, path: &str) -> Result<Option<Vec<u8>>, Error> {
        read_file(&self.git()?, commit, path)
    }

    /// Tells of many files whether they are as reviewed.
    ///
    /// # Errors
    /// As [`Self::default_branch`].
    pub fn review_snapshot(&self) -> Result<ReviewSnapshot, Error> {
        let mut git = self.git()?;
        git.object_cache_size_if_unset(TREES_KEPT_BYTES);
        let branch = self.default_branch_of(&git)?;
        let merged = branch.local.into_iter().chain(branch.remote).collect();
        let head = git.head_id().ok().map(|id| CommitId(id.detach()));
        Ok(ReviewSnapshot { git, merged, head })
    }

    /// The commit of a local branch.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn tip(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        tip(&self.git()?, &format!("refs/heads/{branch}"))
    }

    /// Where the lock over all writers of this repository lies: in git's own folder, the one that
    /// linked work trees share, so that every process that finds the repository finds the lock.
    ///
    /// # Errors
    /// When there is no repository (any more).
    pub fn lock_path(&self) -> Result<PathBuf, Error> {
        Ok(self.git()?.common_dir().join("nugget.lock"))
    }

    /// Opens git's repository as it is now.
    ///
    /// Isolated: neither `GIT_*` variables, which in a hook name another repository, nor the user's
    /// configuration change what is read and written. Replacement objects are not followed, as they
    /// do not travel. Waits for locks are longer than git's, as `git gc` may run beside us.
    pub(crate) fn git(&self) -> Result<gix::Repository, Error> {
        let options = gix::open::Options::isolated().config_overrides([
            "core.useReplaceRefs=false",
            "core.filesRefLockTimeout=2000",
            "core.packedRefsTimeout=10000",
        ]);
        gix::ThreadSafeRepository::open_opts(&self.root, options)
            .map(|git| git.to_thread_local())
            .during(|| format!("open the repository {}", self.root.display()))
    }
}

/// What was merged, here or at the remote, and what is checked out, at one moment. The repository is opened
/// once for many files, for that is what takes the time.
pub struct ReviewSnapshot {
    git: gix::Repository,
    merged: Vec<CommitId>,
    head: Option<CommitId>,
}

/// Where a content is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentState {
    /// In the branch of knowledge.
    Merged,
    /// Not there: an edit of the user's own. What is committed elsewhere only is not served.
    Uncommitted,
}

impl ReviewSnapshot {
    /// Where what is served of a path is found: with this content of the work tree's, give or take the ends of
    /// its lines, or, where the work tree has no file (`None`) or that of the checked-out commit, as it was
    /// reviewed; see [`overlay`](Repository::overlay).
    ///
    /// # Errors
    /// When a commit cannot be read.
    pub fn content_state(&self, path: &str, content: Option<&[u8]>) -> Result<ContentState, Error> {
        let content = content.map(|content| Content::of(&self.git, path, content)).transpose()?;
        let is_held = |commit: CommitId| match &content {
            Some(content) => content.is_held_by(&self.git, commit, path),
            None => Ok(blob_id(&self.git, commit, path)?.map(|_| true)),
        };
        let mut is_known = false;
        for commit in &self.merged {
            match is_held(*commit)? {
                Some(true) => return Ok(ContentState::Merged),
                Some(false) => is_known = true,
                None => {}
            }
        }
        // The reviewed file was laid over it.
        let is_checked_out = || -> Result<bool, Error> {
            let head = self.head.filter(|_| content.is_some());
            Ok(head.map(is_held).transpose()?.flatten() == Some(true))
        };
        Ok(if is_known && is_checked_out()? { ContentState::Merged } else { ContentState::Uncommitted })
    }
}

/// A file of the work tree, to be compared with commits.
struct Content<'c> {
    bytes: &'c [u8],
    id: gix::ObjectId,
}

impl<'c> Content<'c> {
    fn of(git: &gix::Repository, path: &str, bytes: &'c [u8]) -> Result<Self, Error> {
        let id = gix::objs::compute_hash(git.object_hash(), gix::objs::Kind::Blob, bytes);
        Ok(Self { bytes, id: id.during(|| format!("hash {path}"))? })
    }

    /// Whether a commit has the file with this content; `None` when it has not the file. By its id first: to
    /// read what is almost always the same takes longer.
    fn is_held_by(&self, git: &gix::Repository, commit: CommitId, path: &str) -> Result<Option<bool>, Error> {
        let Some(id) = blob_id(git, commit, path)? else { return Ok(None) };
        Ok(Some(id == self.id || is_same(&read_blob(git, commit, path, id)?, self.bytes)))
    }
}

fn is_same(known: &[u8], content: &[u8]) -> bool {
    known == content || lines(known).eq(lines(content))
}

/// Lines whichever way they end: git may change that in a work tree.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn read_file(git: &gix::Repository, commit: CommitId, path: &str) -> Result<Option<Vec<u8>>, Error> {
    blob_id(git, commit, path)?.map(|id| read_blob(git, commit, path, id)).transpose()
}

/// The id of what a commit's file holds; `None` when there is no such file.
fn blob_id(git: &gix::Repository, commit: CommitId, path: &str) -> Result<Option<gix::ObjectId>, Error> {
    let entry = entry(&tree_of(git, commit)?, path)?.filter(|entry| entry.mode().is_blob());
    Ok(entry.map(|entry| entry.object_id()))
}

/// Tells a repository with SHA-256 objects from a damaged one; gix's error does not.
fn unsupported(root: &Path) -> Option<Error> {
    let configuration = [root.join(".git/config"), root.join("config")];
    let configuration = configuration.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    let is_sha256 = configuration.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        key.trim().eq_ignore_ascii_case("objectFormat") && value.trim().eq_ignore_ascii_case("sha256")
    });
    is_sha256.then(|| Error::Unsupported { path: root.to_owned(), feature: "sha256 objects".to_owned() })
}

/// `origin`, or else the only remote of the repository's own configuration; `origin` where there is none or
/// several, as its branches may still be there.
pub(crate) fn remote_name(git: &gix::Repository) -> String {
    let names = git.remote_names();
    let only = names.iter().next().filter(|_| names.len() == 1);
    only.map_or_else(|| "origin".to_owned(), |name| name.to_str_lossy().into_owned())
}

/// The branch that the remote's `HEAD` named when it was last asked.
pub(crate) fn remote_head(git: &gix::Repository, remote: &str) -> Result<Option<String>, Error> {
    let prefix = format!("refs/remotes/{remote}/");
    let head = git.try_find_reference(&format!("{prefix}HEAD")).during(|| format!("read {prefix}HEAD"))?;
    Ok(head.and_then(|head| {
        let target = head.target().try_name()?.as_bstr().to_str().ok()?.to_owned();
        Some(target.strip_prefix(&prefix)?.to_owned())
    }))
}

fn branch(git: &gix::Repository, name: &str) -> Result<Option<Branch>, Error> {
    let local = tip(git, &format!("refs/heads/{name}"))?;
    let remote = tip(git, &format!("refs/remotes/{}/{name}", remote_name(git)))?;
    Ok(remote.or(local).map(|tip| Branch { name: name.to_owned(), tip, local, remote }))
}

/// The commit of a reference given by its full name.
pub(crate) fn tip(git: &gix::Repository, name: &str) -> Result<Option<CommitId>, Error> {
    let reading = || format!("read {name}");
    let Some(mut reference) = git.try_find_reference(name).during(reading)? else { return Ok(None) };
    match reference.peel_to_id() {
        Ok(id) => Ok(Some(CommitId(id.detach()))),
        // A symbolic reference to a branch without commits.
        Err(_) if reference.try_id().is_none() => Ok(None),
        Err(error) => Err(error).during(reading),
    }
}

/// The local branches whose full name begins with `prefix`, by short name.
pub(crate) fn branches(git: &gix::Repository, prefix: &str) -> Result<Vec<(String, CommitId)>, Error> {
    let listing = || format!("list {prefix}");
    let platform = git.references().during(listing)?;
    let mut found = Vec::new();
    for reference in platform.prefixed(prefix).during(listing)? {
        // One that cannot be read, or was deleted meanwhile, hides none of the others.
        let reference = match reference {
            Ok(reference) => reference,
            Err(error) => {
                tracing::warn!(%error, "skipped a branch that cannot be read");
                continue;
            }
        };
        let name = reference.name().shorten().to_str().ok().map(str::to_owned);
        if let (Some(name), Some(id)) = (name, reference.try_id()) {
            found.push((name, CommitId(id.detach())));
        }
    }
    Ok(found)
}

pub(crate) fn tree_of(git: &gix::Repository, commit: CommitId) -> Result<gix::Tree<'_>, Error> {
    git.find_commit(commit.0).and_then(|found| found.tree()).during(|| format!("read commit {commit}"))
}

pub(crate) fn entry<'git>(
    tree: &gix::Tree<'git>,
    path: &str,
) -> Result<Option<gix::object::tree::Entry<'git>>, Error> {
    tree.lookup_entry(path.split('/')).during(|| format!("look up {path}"))
}

/// A file of a tree.
pub(crate) struct File {
    pub path: String,
    pub id: gix::ObjectId,
}

/// The files of `tree` that `base` does not have with the same content; folders that are the same in
/// both are not even opened.
pub(crate) fn files_beyond(
    base: Option<&gix::Tree<'_>>,
    tree: &gix::Tree<'_>,
    prefix: &str,
) -> Result<Vec<File>, Error> {
    let mut files = Vec::new();
    collect(base, tree, prefix, 0, &mut files)?;
    Ok(files)
}

fn collect(
    base: Option<&gix::Tree<'_>>,
    tree: &gix::Tree<'_>,
    prefix: &str,
    depth: usize,
    files: &mut Vec<File>,
) -> Result<(), Error> {
    let reading = || format!("read the folder {prefix:?}");
    let mut in_base = HashMap::new();
    for entry in base.iter().flat_map(|base| base.iter()) {
        let entry = entry.during(reading)?;
        in_base.insert(entry.filename().to_owned(), (entry.mode(), entry.object_id()));
    }
    for entry in tree.iter() {
        let entry = entry.during(reading)?;
        let Ok(name) = entry.filename().to_str() else { continue };
        let same_name = in_base.get(entry.filename()).copied();
        if same_name == Some((entry.mode(), entry.object_id())) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.mode().is_blob() {
            files.push(File { path, id: entry.object_id() });
        } else if entry.mode().is_tree() && depth < DEPTH_MAX {
            let git = entry.repo;
            let open = |id: gix::ObjectId| git.find_tree(id).during(reading);
            let below = same_name.filter(|(mode, _)| mode.is_tree());
            let below = below.map(|(_, id)| open(id)).transpose()?;
            collect(below.as_ref(), &open(entry.object_id())?, &format!("{path}/"), depth + 1, files)?;
        }
    }
    Ok(())
}

pub(crate) fn read_blob(
    git: &gix::Repository,
    commit: CommitId,
    path: &str,
    id: gix::ObjectId,
) -> Result<Vec<u8>, Error> {
    let reading = || format!("read {path} at {commit}");
    // Asked before it is unpacked: a few kilobytes can unpack to gigabytes.
    let bytes = git.find_header(id).during(reading)?.size();
    if bytes > BLOB_BYTES_MAX {
        return Err(Error::TooLarge { commit, path: path.to_owned(), bytes });
    }
    Ok(git.find_blob(id).during(reading)?.take_data())
}
