//! Finds a file of a branch on the default branch where it is not at its path: it was renamed there, or was there once.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use gix::ObjectId;
use gix::revision::walk::Sorting;
use gix::traverse::commit::simple::CommitTimeOrder;
use knowledge::{Document, UnitId};

use crate::error::{During as _, Error};
use crate::repository::{File, entry, files_beyond, read_blob, tree_of};
use crate::types::CommitId;

/// How many commits are searched for the content of a file.
const COMMITS_MAX: usize = 50;
/// How many histories a process keeps.
const WALKED_MAX: usize = 4;

/// The histories that this process has walked last, by tips: what a commit contains never changes, and each waiting branch
/// is compared with the same default branch several times. With 13 of them and 5,000 commits, `nugget status` took 1.4 s
/// when each walked it, and takes .1 s.
static WALKED: Mutex<Vec<(Vec<CommitId>, Arc<History>)>> = Mutex::new(Vec::new());

/// The default branch after a commit on which branches were started, as branches that are looked at one after the other
/// ask for it.
#[derive(Default)]
pub(crate) struct Since {
    /// The content of the files that a commit has and its first parent has not.
    brought: HashMap<ObjectId, Rc<HashSet<ObjectId>>>,
    /// The files of a later commit at paths that an earlier one does not have.
    new: HashMap<(CommitId, CommitId), Rc<Vec<File>>>,
    /// The ids of units, by content and path.
    ids: HashMap<(ObjectId, String), Option<UnitId>>,
}

/// All commits that some tips contain.
pub(crate) struct History {
    /// Newest first.
    commits: Vec<ObjectId>,
    /// Their places in that order.
    places: HashMap<ObjectId, usize>,
}

impl History {
    /// From [`WALKED`], if it has been walked; a shallow clone may be deepened, and is walked each time.
    pub(crate) fn of_tips(git: &gix::Repository, tips: &[CommitId]) -> Result<Arc<Self>, Error> {
        let walked = || WALKED.lock().unwrap_or_else(PoisonError::into_inner);
        if git.is_shallow().unwrap_or(true) {
            return Self::walk(git, tips).map(Arc::new);
        }
        if let Some((_, known)) = walked().iter().find(|(of, _)| of == tips) {
            return Ok(Arc::clone(known));
        }
        let history = Arc::new(Self::walk(git, tips)?);
        let mut walked = walked();
        walked.truncate(WALKED_MAX - 1);
        walked.insert(0, (tips.to_vec(), Arc::clone(&history)));
        Ok(history)
    }

    fn walk(git: &gix::Repository, tips: &[CommitId]) -> Result<Self, Error> {
        let walking = || "walk the history of the default branch".to_owned();
        let sorting = Sorting::ByCommitTime(CommitTimeOrder::NewestFirst);
        let walk = git.rev_walk(tips.iter().map(|tip| tip.0)).sorting(sorting).all().during(walking)?;
        let commits =
            walk.map(|info| info.map(|info| info.id)).collect::<Result<Vec<_>, _>>().during(walking)?;
        let places = commits.iter().enumerate().map(|(place, commit)| (*commit, place)).collect();
        Ok(Self { commits, places })
    }

    pub(crate) fn contains(&self, commit: ObjectId) -> bool {
        self.places.contains_key(&commit)
    }
}

/// A file that is looked for.
pub(crate) struct Wanted<'a> {
    pub path: &'a str,
    pub id: ObjectId,
    /// A commit that has it.
    pub commit: CommitId,
}

impl Since {
    /// Whether one of the commits of `tip` after `base` has brought this content, at any path, other than those of a branch
    /// that was started at `base`. Only the last [`COMMITS_MAX`] are looked at: that a branch is merged is recorded soon
    /// after it was.
    pub(crate) fn has_brought(
        &mut self,
        git: &gix::Repository,
        base: CommitId,
        tip: CommitId,
        branch: CommitId,
        content: ObjectId,
    ) -> Result<bool, Error> {
        let history = History::of_tips(git, &[tip])?;
        let after = history.places.get(&base.0).copied().unwrap_or(history.commits.len()).min(COMMITS_MAX);
        let mut own = HashSet::new();
        let mut next = Some(branch.0).filter(|branch| history.contains(*branch));
        while let Some(commit) = next.filter(|commit| *commit != base.0 && own.insert(*commit)) {
            let found = git.find_commit(commit).during(|| format!("read commit {commit}"))?;
            next = found.parent_ids().next().map(|parent| parent.detach());
            next = next.filter(|parent| git.has_object(*parent));
        }
        for commit in history.commits[..after].iter().filter(|commit| !own.contains(*commit)) {
            if self.brought(git, *commit)?.contains(&content) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The content of the files that a commit has and its first parent has not.
    fn brought(&mut self, git: &gix::Repository, commit: ObjectId) -> Result<Rc<HashSet<ObjectId>>, Error> {
        if let Some(brought) = self.brought.get(&commit) {
            return Ok(Rc::clone(brought));
        }
        let parent = git.find_commit(commit).during(|| format!("read commit {commit}"))?.parent_ids().next();
        // In a shallow clone the parent may be missing.
        let parent = parent.filter(|parent| git.has_object(*parent));
        let before = parent.map(|parent| tree_of(git, CommitId(parent.detach()))).transpose()?;
        let files = files_beyond(before.as_ref(), &tree_of(git, CommitId(commit))?, "")?;
        let brought: Rc<HashSet<_>> = Rc::new(files.into_iter().map(|file| file.id).collect());
        self.brought.insert(commit, Rc::clone(&brought));
        Ok(brought)
    }

    /// Where `tip` has a file that `base` does not have at that path: with the same content, or as the same unit.
    pub(crate) fn renamed(
        &mut self,
        git: &gix::Repository,
        base: CommitId,
        tip: CommitId,
        wanted: &Wanted<'_>,
    ) -> Result<Option<File>, Error> {
        let new = match self.new.get(&(base, tip)) {
            Some(new) => Rc::clone(new),
            None => {
                let before = tree_of(git, base)?;
                let mut new = Vec::new();
                for file in files_beyond(Some(&before), &tree_of(git, tip)?, "")? {
                    if entry(&before, &file.path)?.is_none() {
                        new.push(file);
                    }
                }
                let new = Rc::new(new);
                self.new.insert((base, tip), Rc::clone(&new));
                new
            }
        };
        let others = || new.iter().filter(|file| file.path != wanted.path);
        if let Some(same) = others().find(|file| file.id == wanted.id) {
            return Ok(Some(same.clone()));
        }
        let Some(id) = self.unit_id(git, wanted.commit, wanted.path, wanted.id)? else { return Ok(None) };
        for file in others() {
            if self.unit_id(git, tip, &file.path, file.id)?.as_ref() == Some(&id) {
                return Ok(Some(file.clone()));
            }
        }
        Ok(None)
    }

    fn unit_id(
        &mut self,
        git: &gix::Repository,
        commit: CommitId,
        path: &str,
        content: ObjectId,
    ) -> Result<Option<UnitId>, Error> {
        if !path.ends_with(".md") {
            return Ok(None);
        }
        let key = (content, path.to_owned());
        if let Some(id) = self.ids.get(&key) {
            return Ok(id.clone());
        }
        let text = text(git, commit, path, content)?;
        let id = match plain_id(&text) {
            Some(id) => Some(UnitId::verbatim(id)),
            None => Document::parse(text).and_then(|file| file.unit(path)).ok().map(|unit| unit.id),
        };
        self.ids.insert(key, id.clone());
        Ok(id)
    }
}

/// The id in a unit's front matter, where it is a word on a line of its own: thousands of units may have to be looked
/// through.
fn plain_id(text: &str) -> Option<&str> {
    let lines = text.strip_prefix("---\n")?.lines().take_while(|line| *line != "---");
    let id = lines.filter_map(|line| line.strip_prefix("id: ")).next()?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(is_plain)).then_some(id)
}

/// The text of a file; empty if it is too large to be read.
pub(crate) fn text(
    git: &gix::Repository,
    commit: CommitId,
    path: &str,
    id: ObjectId,
) -> Result<String, Error> {
    match read_blob(git, commit, path, id) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(Error::TooLarge { .. }) => Ok(String::new()),
        Err(error) => Err(error),
    }
}
