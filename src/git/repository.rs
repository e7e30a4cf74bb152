//! The brain's repository: opens it, finds its default branch, and reads files at any commit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix::bstr::ByteSlice as _;
use gix::open::Permissions;
use gix::sec::Permission;

use crate::error::{During as _, Error};
use crate::types::{BLOB_BYTES_MAX, BRANCH_PREFIX, CommitId};

/// A git repository whose root is the brain's root: the work tree, or the repository itself if it is bare.
///
/// Each operation opens the repository again, which takes less than a millisecond: workers run for a long time
/// while people repack, fetch and configure the repository. [`opened`](Self::opened) is for many reads in a row.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    preferred: Option<String>,
    opened: Option<Arc<gix::ThreadSafeRepository>>,
}

/// The result of [`Repository::init`].
#[derive(Clone, Debug)]
pub enum Init {
    /// A new repository without commits.
    Created(Repository),
    /// A repository that existed before.
    Existing(Repository),
}

impl Init {
    /// The repository, new or not.
    pub fn into_repository(self) -> Repository {
        match self {
            Self::Created(repository) | Self::Existing(repository) => repository,
        }
    }
}

/// The default branch, into which knowledge is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The short name, such as `main`.
    pub name: String,
    /// The base of proposals: the remote's branch if it is known, as a proposal on top of the local one would
    /// publish commits that the user has not pushed; else the local branch.
    pub tip: CommitId,
    /// The commit of the local branch.
    pub local: Option<CommitId>,
    /// The commit of the remote's branch, as last fetched.
    pub remote: Option<CommitId>,
}

/// How many folders deep a tree is read. git has no limit, so a crafted tree may be of any depth.
const DEPTH_MAX: usize = 32;

impl Repository {
    /// Opens the repository whose root is `root`. A brain inside the work tree of another repository is not part
    /// of that repository.
    ///
    /// # Errors
    /// [`Error::NotARepository`], [`Error::NotTrusted`] if git would refuse it because of its owner,
    /// [`Error::Unsupported`] for SHA-256 and reftable, [`Error::Git`] for a damaged repository.
    pub fn open(root: &Path) -> Result<Self, Error> {
        Ok(Self::open_with_git(root)?.0)
    }

    /// The default branch of the repository at `root`, and the local branches among `others` that exist. Opens the repository
    /// once, as each question of a server asks for it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`default_branch`](Self::default_branch).
    pub fn read_branches(
        root: &Path,
        default_branch: Option<&str>,
        others: impl IntoIterator<Item = String>,
    ) -> Result<(Branch, Vec<(String, CommitId)>), Error> {
        let (repository, git) = Self::open_with_git(root)?;
        let default = repository.with_default_branch(default_branch).default_branch_of(&git)?;
        Ok((default, tips(&git, others)?))
    }

    fn open_with_git(root: &Path) -> Result<(Self, gix::Repository), Error> {
        let not_a_repository = || Error::NotARepository { path: root.to_owned() };
        let root = root.canonicalize().map_err(|_| not_a_repository())?;
        let repository = Self { root, preferred: None, opened: None };
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
        crate::ownership::check(root, &git)?;
        Ok((repository, git))
    }

    /// Opens the repository at `root`, or creates it with its parent folders. The name of its first branch is
    /// the user's `init.defaultBranch`, or `main`.
    ///
    /// # Errors
    /// When an existing repository cannot be opened, or a new one cannot be created.
    pub fn init(root: &Path) -> Result<Init, Error> {
        match Self::open(root) {
            Ok(repository) => return Ok(Init::Existing(repository)),
            Err(Error::NotARepository { .. }) => {}
            Err(error) => return Err(error),
        }
        std::fs::create_dir_all(root).map_err(Error::io("create", root))?;
        // The user's configuration is read, but no `GIT_*` variable: in a hook they name another repository.
        let mut permissions = Permissions::all();
        permissions.env.git_prefix = Permission::Deny;
        permissions.env.objects = Permission::Deny;
        let options = gix::open::Options::default().permissions(permissions);
        let kind = gix::create::Kind::WithWorktree;
        gix::ThreadSafeRepository::init_opts(root, kind, gix::create::Options::default(), options)
            .during(|| format!("create a repository in {}", root.display()))?;
        Ok(Init::Created(Self::open(root)?))
    }

    /// Sets the name of the default branch, from the brain's configuration; with `None` it is searched.
    #[must_use]
    pub fn with_default_branch(mut self, name: Option<&str>) -> Self {
        self.preferred = name.map(str::to_owned);
        self
    }

    /// The same repository, opened once for all that is read through it: with a thousand branches, opening it for each read
    /// takes most of the time. References and objects are those of now, the configuration that of this call.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn opened(&self) -> Result<Self, Error> {
        Ok(Self { opened: Some(Arc::new(self.git()?.into_sync())), ..self.clone() })
    }

    pub(crate) fn preferred(&self) -> Option<&str> {
        self.preferred.as_deref()
    }

    /// The canonical path of the root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Finds the branch into which knowledge is merged: the one set by
    /// [`with_default_branch`](Self::with_default_branch); else that of the remote's `HEAD`; else `main`; else
    /// `master`; else the only one. It is never one of nugget's branches, and does not depend on what is checked out.
    ///
    /// # Errors
    /// [`Error::Unborn`] when the branch has no commit, [`Error::NoDefaultBranch`] when none is found.
    pub fn default_branch(&self) -> Result<Branch, Error> {
        self.default_branch_of(&self.git()?)
    }

    pub(crate) fn default_branch_of(&self, git: &gix::Repository) -> Result<Branch, Error> {
        if let Some(name) = &self.preferred {
            return branch(git, name)?.ok_or_else(|| Error::Unborn { branch: name.clone() });
        }
        if let Some(known) = known_branch(git)? {
            return Ok(known);
        }
        let mut others = branches(git, "refs/heads/")?;
        others.retain(|(name, _)| !name.starts_with(BRANCH_PREFIX));
        match (others.as_slice(), checked_out(git)?) {
            ([(name, _)], _) => branch(git, name)?.ok_or_else(|| Error::Unborn { branch: name.clone() }),
            ([], Some(branch)) => Err(Error::Unborn { branch }),
            _ => Err(Error::NoDefaultBranch { path: self.root.clone() }),
        }
    }

    /// The branch that is checked out, where the brain's settings have to name it: no rule of
    /// [`default_branch`](Self::default_branch) would choose it among others. `None` if they need not, or none is.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn branch_to_name(&self) -> Result<Option<String>, Error> {
        let git = self.git()?;
        let checked_out = checked_out(&git)?.filter(|name| !["main", "master"].contains(&name.as_str()));
        Ok(if known_branch(&git)?.is_some() { None } else { checked_out })
    }

    /// The sorted paths of all files of a commit below a folder (`""` for all). Names that are not UTF-8 are left
    /// out.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn paths_under(&self, commit: CommitId, folder: &str) -> Result<Vec<String>, Error> {
        Ok(files_of(&self.git()?, commit, folder)?.into_iter().map(|file| file.path).collect())
    }

    /// Reads the files of a commit below a folder whose paths are wanted, sorted by path; without the content of one that is
    /// larger than [`BLOB_BYTES_MAX`].
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn read_under(
        &self,
        commit: CommitId,
        folder: &str,
        is_wanted: impl Fn(&str) -> bool,
        mut take: impl FnMut(String, Option<Vec<u8>>),
    ) -> Result<(), Error> {
        let git = self.git()?;
        for file in files_of(&git, commit, folder)?.into_iter().filter(|file| is_wanted(&file.path)) {
            match read_blob(&git, commit, &file.path, file.id) {
                Ok(content) => take(file.path, Some(content)),
                Err(Error::TooLarge { .. }) => take(file.path, None),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// All files of a commit below a folder, as sorted pairs of path and content. A file larger than [`BLOB_BYTES_MAX`] is
    /// left out.
    ///
    /// # Errors
    /// When the commit cannot be read.
    pub fn files_under(&self, commit: CommitId, folder: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut files = Vec::new();
        let all = |_: &str| true;
        self.read_under(commit, folder, all, |path, content| match content {
            Some(content) => files.push((path, content)),
            None => tracing::warn!(path, "left a file out that is too large"),
        })?;
        Ok(files)
    }

    /// The content of a file in a commit; `None` if there is no file at that path, or a symbolic link, which is
    /// never followed.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`BLOB_BYTES_MAX`], and when the commit cannot be read.
    pub fn read_at(&self, commit: CommitId, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let git = self.git()?;
        blob_id(&git, commit, path)?.map(|id| read_blob(&git, commit, path, id)).transpose()
    }

    /// The commit of a local branch.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn tip(&self, branch: &str) -> Result<Option<CommitId>, Error> {
        tip(&self.git()?, &format!("refs/heads/{branch}"))
    }

    /// The local branches among these that exist, with their commits. The repository is opened once for all.
    ///
    /// # Errors
    /// When git's references cannot be read.
    pub fn tips(&self, branches: impl IntoIterator<Item = String>) -> Result<Vec<(String, CommitId)>, Error> {
        tips(&self.git()?, branches)
    }

    /// Whether a commit is another one or has it as an ancestor. `false` if the repository lacks either.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub fn contains(&self, tip: CommitId, commit: CommitId) -> Result<bool, Error> {
        let git = self.git()?;
        if tip == commit {
            return Ok(true);
        }
        if !git.has_object(tip.0) || !git.has_object(commit.0) {
            return Ok(false);
        }
        Ok(common_ancestor(&git, tip, commit)? == Some(commit))
    }

    /// Whether the repository has this commit.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn has(&self, commit: CommitId) -> Result<bool, Error> {
        Ok(self.git()?.has_object(commit.0))
    }

    /// The path of the lock over all writers of this repository. It is in the git folder that linked work trees
    /// share, so that every process that opens the repository finds it.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn lock_path(&self) -> Result<PathBuf, Error> {
        Ok(self.git()?.common_dir().join("nugget.lock"))
    }

    /// Opens the repository with gix.
    ///
    /// Isolated: neither `GIT_*` variables, which in a hook name another repository, nor the user's configuration
    /// change what is read and written. Replacement objects are not followed, as they are not pushed. Waits for
    /// locks are longer than git's, as `git gc` may run at the same time.
    pub(crate) fn git(&self) -> Result<gix::Repository, Error> {
        if let Some(opened) = &self.opened {
            return Ok(opened.to_thread_local());
        }
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

fn tips(
    git: &gix::Repository,
    branches: impl IntoIterator<Item = String>,
) -> Result<Vec<(String, CommitId)>, Error> {
    let tip = |branch: String| {
        let found = tip(git, &format!("refs/heads/{branch}")).transpose()?;
        Some(found.map(|commit| (branch, commit)))
    };
    branches.into_iter().filter_map(tip).collect()
}

/// The blob id of a commit's file; `None` if there is no such file.
pub(crate) fn blob_id(
    git: &gix::Repository,
    commit: CommitId,
    path: &str,
) -> Result<Option<gix::ObjectId>, Error> {
    let entry = entry(&tree_of(git, commit)?, path)?.filter(|entry| entry.mode().is_blob());
    Ok(entry.map(|entry| entry.object_id()))
}

/// The best common ancestor of two commits.
pub(crate) fn common_ancestor(
    git: &gix::Repository,
    one: CommitId,
    two: CommitId,
) -> Result<Option<CommitId>, Error> {
    let comparing = || format!("compare {one} with {two}");
    let bases = git.merge_bases_many(one.0, &[two.0]).during(comparing)?;
    Ok(bases.first().map(|base| CommitId(base.detach())))
}

/// Recognises a repository with SHA-256 objects; gix's error is the same as for a damaged one.
fn unsupported(root: &Path) -> Option<Error> {
    let configuration = [root.join(".git/config"), root.join("config")];
    let configuration = configuration.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    let is_sha256 = configuration.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        key.trim().eq_ignore_ascii_case("objectFormat") && value.trim().eq_ignore_ascii_case("sha256")
    });
    is_sha256.then(|| Error::Unsupported { path: root.to_owned(), feature: "sha256 objects".to_owned() })
}

/// `origin`, or else the only remote of the repository's own configuration. `origin` if there is none or several,
/// as its branches may still exist.
pub(crate) fn remote_name(git: &gix::Repository) -> String {
    let names = git.remote_names();
    let only = names.iter().next().filter(|_| names.len() == 1);
    only.map_or_else(|| "origin".to_owned(), |name| name.to_str_lossy().into_owned())
}

/// The default branch of the remote, as git's commands name it here.
pub(crate) fn upstream(git: &gix::Repository, default: &Branch) -> String {
    format!("{}/{}", remote_name(git), default.name)
}

/// The branch that the remote's `HEAD` named at the last fetch.
pub(crate) fn remote_head(git: &gix::Repository, remote: &str) -> Result<Option<String>, Error> {
    let prefix = format!("refs/remotes/{remote}/");
    let head = git.try_find_reference(&format!("{prefix}HEAD")).during(|| format!("read {prefix}HEAD"))?;
    Ok(head.and_then(|head| {
        let target = head.target().try_name()?.as_bstr().to_str().ok()?.to_owned();
        Some(target.strip_prefix(&prefix)?.to_owned())
    }))
}

/// The branch that its name makes the default one.
fn known_branch(git: &gix::Repository) -> Result<Option<Branch>, Error> {
    let remote_head = remote_head(git, &remote_name(git))?;
    for name in remote_head.as_deref().into_iter().chain(["main", "master"]) {
        if let Some(branch) = branch(git, name)? {
            return Ok(Some(branch));
        }
    }
    Ok(None)
}

/// The branch that is checked out, unless it is one of nugget's.
fn checked_out(git: &gix::Repository) -> Result<Option<String>, Error> {
    let head = git.head_name().during(|| "read HEAD".to_owned())?;
    let name = head.and_then(|name| name.shorten().to_str().ok().map(str::to_owned));
    Ok(name.filter(|name| !name.starts_with(BRANCH_PREFIX)))
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
        // A branch that cannot be read, or was just deleted, does not hide the others.
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
#[derive(Clone)]
pub(crate) struct File {
    pub path: String,
    pub id: gix::ObjectId,
}

/// The files of a commit below a folder (`""` for all), sorted by path.
fn files_of(git: &gix::Repository, commit: CommitId, folder: &str) -> Result<Vec<File>, Error> {
    let folder = folder.trim_end_matches('/');
    let mut tree = tree_of(git, commit)?;
    let mut prefix = String::new();
    if !folder.is_empty() {
        let Some(found) = entry(&tree, folder)?.filter(|found| found.mode().is_tree()) else {
            return Ok(Vec::new());
        };
        tree =
            found.object().and_then(|object| object.try_into_tree()).during(|| format!("read {folder}"))?;
        prefix = format!("{folder}/");
    }
    let mut files = files_beyond(None, &tree, &prefix)?;
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The files of `tree` that `base` does not have with the same content. Folders that are equal in both are not
/// read.
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
    // The size is read before the object is unpacked: a few kilobytes can unpack to gigabytes.
    let bytes = git.find_header(id).during(reading)?.size();
    if bytes > BLOB_BYTES_MAX {
        return Err(Error::TooLarge { commit, path: path.to_owned(), bytes });
    }
    Ok(git.find_blob(id).during(reading)?.take_data())
}
