//! The inbox: what waits for review on nugget's branches, one item for each unit, and what a person decides about it.
//!
//! An item is a unit that a branch adds or changes. A unit that replaces another one and the mark on the replaced one
//! are one item, as neither makes sense alone; so are a unit that takes over another one's text, and the removal of that. What was decided is recorded for each file of a branch; a branch of
//! which every file is decided is deleted, here and at the remote, and its pull request merged or closed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use brain::{UNITS_FOLDER, is_unit_path};
use git::{BranchFile, CommitId, Lock, MergedText, PendingBranch, Repository};
use jiff::Timestamp;
use knowledge::name::file_stem;
use knowledge::{Document, Unit, UnitId, is_edited_copy, name, text};
use queue::{Capture, Decision, EvidenceLine, FileDecision, Ledger, PullState, Queue, Rejection};

use crate::merge_record::record_merged;
use crate::reflection_message::{REFLECTION_BRANCH_PREFIX, ReflectedFile, reflected_files};
use crate::remote::DeliverySettings;
use crate::review_remote::{self, ReviewRemote, Summary};
pub use crate::review_remote::{FinishedBranch, NotMerged, ReviewError};

/// The beginning of the name of a branch that a person's edit or removal of units makes.
pub const EDIT_BRANCH_PREFIX: &str = "nugget/edit-";
/// The beginning of the name of a branch of an import.
pub const IMPORT_BRANCH_PREFIX: &str = "nugget/import-";

/// How much of what was rejected is listed: more than a person reads.
const REJECTED_MAX: usize = 1000;

/// Why the notes of a pull request that was closed are rejected.
const CLOSED: &str = "its pull request was closed";

/// How often a merge is begun again when the person commits to the default branch meanwhile.
pub(crate) const MERGE_TRIES_MAX: usize = 5;

/// What an item does to the brain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It adds a unit.
    Adds,
    /// It adds to a unit, or changes it.
    Completes,
    /// It marks a unit as replaced by another one.
    Retires,
    /// It removes a unit.
    Removes,
}

/// A unit that waits for review.
#[derive(Clone, Debug)]
pub struct Item {
    /// A name for it that stays the same while it waits: `ad5139ef/use-a-heartbeat`.
    pub id: String,
    /// The branch.
    pub branch: String,
    /// The branch's commit.
    pub commit: CommitId,
    /// The first characters of the session's id, or of an import's digest.
    pub session: String,
    /// The capture that made the branch, as far as this machine has it.
    pub capture: Option<Capture>,
    /// When the branch was last changed: for a captured session, when that ended.
    pub time: Timestamp,
    /// What it does.
    pub action: Action,
    /// The units that it replaces, by id.
    pub replaces: Vec<String>,
    /// The unit's path.
    pub path: String,
    /// The unit as it would read; `None` if the file is no unit.
    pub unit: Option<Unit>,
    /// The file as it would read, with what the default branch has by now; of a removed unit, as it is.
    pub text: String,
    /// Whether the default branch has changed the same part of the file, so that the text is the branch's alone.
    pub has_conflict: bool,
    /// Whether the default branch has removed the file since.
    pub is_gone: bool,
    /// Whether it is a new unit, and the default branch has another one at its path.
    pub is_taken: bool,
    /// Where the default branch has the file that it changes or removes, if it was renamed there since.
    pub moved_to: Option<String>,
    /// If it was put off, until when.
    pub later: Option<Timestamp>,
    /// Why a reflection pass proposes it.
    pub reasons: Vec<String>,
    files: Vec<BranchFile>,
    /// The files that it removes: path, and content where the branch was started.
    removals: Vec<(String, Vec<u8>)>,
}

impl Item {
    /// The unit's id, or the name of its file.
    pub fn unit_id(&self) -> &str {
        self.unit.as_ref().map_or_else(|| file_stem(&self.path), |unit| unit.id.as_str())
    }

    /// The unit's title, or the path of its file.
    pub fn title(&self) -> &str {
        self.unit.as_ref().map_or(self.path.as_str(), |unit| unit.title.as_str())
    }

    /// The unit's type, or `file`.
    pub fn kind(&self) -> &str {
        self.unit.as_ref().map_or("file", |unit| unit.kind.as_str())
    }

    /// Whether it changes what a unit says, and does not only add to it.
    pub fn changes_text(&self) -> bool {
        let unit = |content: &[u8], path: &str| parse(content)?.unit(path).ok();
        self.files.iter().any(|file| {
            let Some(old) = file.base.as_deref().and_then(|base| unit(base, &file.path)) else {
                return false;
            };
            let Some(new) = unit(&file.content, &file.path) else { return true };
            // Each line of the old text is still there, in order.
            let mut lines = new.body.lines();
            old.title != new.title || !old.body.lines().all(|old| lines.any(|new| new == old))
        })
    }

    /// The item with a person's text in place of what was proposed.
    fn edited(self, text: String) -> Self {
        let unit = Document::parse(text.as_str()).and_then(|document| document.unit(&self.path)).ok();
        let action = if self.action == Action::Removes { Action::Completes } else { self.action };
        Self { unit: unit.or(self.unit), text, action, ..self }
    }

    /// Why it cannot be merged as it is: it would become a file of units that is no unit.
    pub fn problem(&self) -> Option<String> {
        unit_problem(&self.path, self.text.as_bytes()).filter(|_| self.action != Action::Removes)
    }

    /// The pull request's address, if there is one.
    pub fn pull_url(&self) -> Option<&str> {
        self.capture.as_ref()?.pull_url.as_deref()
    }

    fn paths(&self) -> Vec<&str> {
        let files = self.files.iter().map(|file| file.path.as_str());
        let others = files.chain(self.removes()).filter(|path| *path != self.path);
        std::iter::once(self.path.as_str()).chain(others).collect()
    }

    /// The paths of the files that it removes.
    pub fn removes(&self) -> impl Iterator<Item = &str> {
        self.removals.iter().map(|(path, _)| path.as_str())
    }

    /// The paths of other files that it changes.
    pub fn also_changes(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str()).filter(|path| *path != self.path)
    }

    /// The unit's file where the branch was started, if it was there: what the item changes.
    pub fn before(&self) -> Option<String> {
        let file = self.files.iter().find(|file| file.path == self.path)?;
        Some(String::from_utf8_lossy(file.base.as_deref()?).into_owned())
    }

    /// Whether a reflection pass proposes it.
    pub fn is_reflection(&self) -> bool {
        self.branch.starts_with(REFLECTION_BRANCH_PREFIX)
    }

    /// Whether a person has proposed it by an edit of theirs.
    pub fn is_edit(&self) -> bool {
        self.branch.starts_with(EDIT_BRANCH_PREFIX)
    }

    fn is_same_as(&self, other: &Self) -> bool {
        (&self.branch, self.commit, &self.path) == (&other.branch, other.commit, &other.path)
    }
}

/// An item to merge.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The item.
    pub item: Item,
    /// The content that a person has given its file, if not that of the branch.
    pub edited: Option<String>,
}

/// What a call of [`Inbox::merge`] or [`Inbox::reject`] did.
#[derive(Clone, Debug, Default)]
pub struct Reviewed {
    /// The items that are decided now.
    pub decided: Vec<Item>,
    /// The items that are not, and why.
    pub left: Vec<(Item, NotMerged)>,
    /// The branches of which everything is decided.
    pub finished: Vec<FinishedBranch>,
    /// What is to be known about the remote: why something is not there yet.
    pub notes: BTreeSet<String>,
    /// The name of the branch that has what was merged.
    pub merged_into: Option<String>,
}

/// A file of a branch that a person has rejected.
#[derive(Clone, Debug)]
pub struct RejectedFile {
    /// The unit's title; the file's path if it is not known any more.
    pub title: String,
    /// The file's path.
    pub path: String,
    /// Why, in the person's words.
    pub because: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The branch that it was proposed on, which may be deleted.
    pub branch: String,
    /// A commit that has the text, as long as git keeps it.
    pub commit: Option<CommitId>,
}

/// What became of one attempt to merge items of a branch.
struct Attempt {
    /// The items that were to be merged, with what the person made of them.
    merged: Vec<Item>,
    /// Those that cannot be, and why.
    left: Vec<(Item, NotMerged)>,
    /// The branch's commit.
    commit: CommitId,
    published: Result<(), NotMerged>,
}

/// The inbox of one brain.
pub struct Inbox {
    repository: Repository,
    queue: Queue,
    settings: DeliverySettings,
}

/// The items that wait for review, oldest branch first. Those that were put off are included.
///
/// # Errors
/// When the repository or the queue cannot be read.
pub fn pending_items(
    repository: &Repository,
    queue: Option<&Queue>,
    now: Timestamp,
) -> Result<Vec<Item>, ReviewError> {
    let repository = &repository.opened()?;
    let decisions = Decisions::read(queue.map(|queue| queue as &dyn Ledger))?;
    let mut items = Vec::new();
    for branch in repository.pending_branches()? {
        let capture = queue.map(|queue| queue.capture_of_branch(&branch.name)).transpose()?.flatten();
        if capture.as_ref().is_some_and(is_closed) {
            continue;
        }
        // Several captures may share a branch.
        let owners =
            queue.map(|queue| queue.captures_of_units(&branch.name)).transpose()?.unwrap_or_default();
        for mut item in items_of(repository, branch, capture, &decisions, now, None)? {
            if let Some(owner) = owners.get(item.unit_id()) {
                item.capture = Some(owner.clone());
            }
            items.push(item);
        }
    }
    name_items(&mut items);
    Ok(items)
}

/// Whether a person has decided about the whole branch at the remote.
fn is_closed(capture: &Capture) -> bool {
    matches!(capture.pull_state, Some(PullState::Merged | PullState::Closed))
}

impl Inbox {
    /// Opens the inbox of the brain in `root`.
    ///
    /// # Errors
    /// When the repository cannot be opened.
    pub fn open(
        root: &Path,
        default_branch: Option<&str>,
        queue: Queue,
        settings: DeliverySettings,
    ) -> Result<Self, ReviewError> {
        Ok(Self { repository: Repository::open(root)?.with_default_branch(default_branch), queue, settings })
    }

    /// The items that wait; see [`pending_items`].
    ///
    /// # Errors
    /// When the repository or the queue cannot be read.
    pub fn items(&self, now: Timestamp) -> Result<Vec<Item>, ReviewError> {
        pending_items(&self.repository, Some(&self.queue), now)
    }

    /// The transcript lines that an item rests on, as far as this machine has its capture.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn evidence(&self, item: &Item) -> Result<Vec<EvidenceLine>, ReviewError> {
        let Some(capture) = &item.capture else { return Ok(Vec::new()) };
        let lines = self.queue.evidence(item.unit_id())?;
        // Several captures may share a branch.
        let shares = |id| {
            Ok::<_, queue::Error>(self.queue.capture(id)?.and_then(|other| other.branch) == capture.branch)
        };
        let mut of_branch = Vec::new();
        for line in lines {
            if line.capture == capture.id || shares(line.capture)? {
                of_branch.push(line);
            }
        }
        let lines = of_branch;
        Ok(lines)
    }

    /// The text to edit: the file as it would read, with conflict markers where the default branch has changed the
    /// same lines.
    ///
    /// # Errors
    /// When the repository cannot be read.
    pub fn text_to_edit(&self, item: &Item) -> Result<String, ReviewError> {
        let lock = review_remote::lock(&self.repository)?;
        let tip = review_remote::present(&self.repository)?;
        let Some(file) = item.files.iter().find(|file| file.path == item.path) else {
            return Ok(item.text.clone());
        };
        let path = place(&self.repository, &item.branch, &file.path, file.base.is_none(), tip)?;
        let current = self.repository.read_at(tip, &path)?;
        Ok(match combine(&self.repository, Some(&lock), file, current.as_deref())? {
            Combined::Result(content) | Combined::Conflict(content) => {
                String::from_utf8_lossy(&content).into_owned()
            }
            Combined::AlreadyThere => item.text.clone(),
        })
    }

    /// Deletes the local branches of nugget that are merged, and records what became of them and of those that a person
    /// has deleted, where there is no remote: with one, a sync does it.
    ///
    /// # Errors
    /// When the repository or the queue cannot be used.
    pub fn delete_merged_branches(&self, now: Timestamp) -> Result<usize, ReviewError> {
        if self.settings.enabled && self.repository.remote()?.is_some() {
            return Ok(0);
        }
        record_merged(&self.repository, &self.queue, now)?;
        let mut deleted = 0;
        for (branch, commit) in self.repository.merged_branches()? {
            // Not a branch that somebody has made under our prefix.
            let Some(capture) = self.queue.capture_of_branch(&branch)? else { continue };
            // A reviewer's commits are kept if only the files are merged and not the commits.
            if capture.commit != Some(commit.to_string())
                && !self.repository.contains(self.repository.default_branch()?.tip, commit)?
            {
                continue;
            }
            self.queue.set_pull_state(capture.id, capture.commit.as_deref(), PullState::Merged)?;
            let lock = review_remote::lock(&self.repository)?;
            deleted += usize::from(review_remote::delete_local(&self.repository, &lock, &branch, commit)?);
        }
        Ok(deleted)
    }

    /// Merges items into the default branch, and finishes their branches if nothing else waits there. With a remote,
    /// the commit is pushed before the local branch is moved to it, so that a remote that refuses it changes nothing;
    /// offline it is pushed by a later sync.
    ///
    /// # Errors
    /// When the repository or the queue cannot be used. That an item cannot be merged is no error; see
    /// [`Reviewed::left`].
    pub fn merge(&self, choices: Vec<Choice>, now: Timestamp) -> Result<Reviewed, ReviewError> {
        let mut remote = ReviewRemote::connect(&self.repository, &self.queue, &self.settings)?;
        remote.fetch()?;
        let author = self.repository.user_identity().unwrap_or_default();
        let mut reviewed = Reviewed::default();
        let mut ids = UnitIds::default();
        for choices in by_branch(choices, |choice| &choice.item.branch) {
            self.merge_branch(choices, &author, &mut ids, &mut remote, &mut reviewed, now)?;
        }
        reviewed.notes.extend(remote.notes());
        Ok(reviewed)
    }

    /// Rejects items, so that they are not proposed again, and finishes their branches if nothing else waits there.
    ///
    /// # Errors
    /// When the repository or the queue cannot be used.
    pub fn reject(
        &self,
        items: Vec<Item>,
        because: Option<&str>,
        now: Timestamp,
    ) -> Result<Reviewed, ReviewError> {
        let mut remote = ReviewRemote::connect(&self.repository, &self.queue, &self.settings)?;
        // What was merged at the remote meanwhile cannot be rejected any more.
        remote.try_fetch()?;
        let mut reviewed = Reviewed::default();
        for items in by_branch(items, |item| &item.branch) {
            let waiting = self.waiting_on(&items[0].branch, now, None)?;
            let branch = items[0].branch.clone();
            for item in items {
                if !waiting.iter().any(|other| other.is_same_as(&item)) {
                    reviewed.left.push((item, NotMerged::NoLongerAsListed));
                    continue;
                }
                reject_item(&self.queue, &item, because, now)?;
                reviewed.decided.push(item);
            }
            self.finish(&branch, &mut remote, &mut reviewed, now)?;
        }
        reviewed.notes.extend(remote.notes());
        Ok(reviewed)
    }

    /// What was rejected in this brain on this machine, the latest first, at most [`REJECTED_MAX`].
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn rejected(&self) -> Result<Vec<RejectedFile>, ReviewError> {
        let rejections = self.queue.rejections(REJECTED_MAX)?.into_iter();
        let rejected = rejections.map(|Rejection { branch, path, because, at, title, commit }| {
            // The branch may have been made again without it, and its old commits be gone.
            let commit: Option<CommitId> = commit.and_then(|commit| commit.parse().ok());
            let text = commit.and_then(|commit| self.repository.read_at(commit, &path).ok().flatten());
            let unit = text.as_deref().and_then(parse).and_then(|document| document.unit(&path).ok());
            RejectedFile {
                title: unit.map(|unit| unit.title).or(title).unwrap_or_else(|| path.clone()),
                commit: commit.filter(|_| text.is_some()),
                path,
                because,
                at,
                branch,
            }
        });
        Ok(rejected.collect())
    }

    /// Puts items off until a time.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn put_off(&self, items: &[Item], until: Timestamp, now: Timestamp) -> Result<(), ReviewError> {
        for item in items {
            self.queue.decide(&item.branch, &item.paths(), &Decision::Later { until }, now)?;
        }
        Ok(())
    }

    /// What waits on one branch; nothing if the branch is merged, closed or gone.
    fn waiting_on(
        &self,
        branch: &str,
        now: Timestamp,
        lock: Option<&Lock>,
    ) -> Result<Vec<Item>, ReviewError> {
        waiting_on(&self.repository, &self.queue, branch, now, lock)
    }

    fn merge_branch(
        &self,
        choices: Vec<Choice>,
        author: &git::Identity,
        ids: &mut UnitIds,
        remote: &mut ReviewRemote<'_>,
        reviewed: &mut Reviewed,
        now: Timestamp,
    ) -> Result<(), ReviewError> {
        let branch = choices[0].item.branch.clone();
        let mut tries = 1;
        let Attempt { merged, left, commit, published } = loop {
            let attempt = self.try_to_merge(&branch, choices.clone(), author, ids, remote, now)?;
            if attempt.published != Err(NotMerged::Moved) || tries == MERGE_TRIES_MAX {
                break attempt;
            }
            tries += 1;
        };
        reviewed.left.extend(left);
        if merged.is_empty() {
            return Ok(());
        }
        if let Err(why) = published {
            reviewed.left.extend(merged.into_iter().map(|item| (item, why.clone())));
            return Ok(());
        }
        {
            // An agent may have changed a file of the branch while it was published: what it says now is not decided.
            let _lock = review_remote::lock(&self.repository)?;
            let tip = self.repository.tip(&branch)?.unwrap_or(commit);
            for item in &merged {
                if is_as_listed(&self.repository, item, tip)? {
                    self.queue.decide(&branch, &item.paths(), &Decision::Merged, now)?;
                }
            }
        }
        reviewed.decided.extend(merged);
        reviewed.merged_into = Some(self.repository.default_branch()?.name);
        self.finish(&branch, remote, reviewed, now)
    }

    /// Commits what can be merged of these items on the default branch as it is now.
    fn try_to_merge(
        &self,
        branch: &str,
        choices: Vec<Choice>,
        author: &git::Identity,
        ids: &mut UnitIds,
        remote: &mut ReviewRemote<'_>,
        now: Timestamp,
    ) -> Result<Attempt, ReviewError> {
        let commit = choices[0].item.commit;
        let lock = review_remote::lock(&self.repository)?;
        let waiting = self.waiting_on(branch, now, Some(&lock))?;
        let target = remote.target()?;
        let mut files: BTreeMap<String, git::NewFile> = BTreeMap::new();
        let mut removes: Vec<String> = Vec::new();
        let (mut merged, mut left) = (Vec::new(), Vec::new());
        for Choice { item, edited } in choices {
            let Some(item_now) = waiting.iter().find(|other| other.is_same_as(&item)) else {
                left.push((item, NotMerged::NoLongerAsListed));
                continue;
            };
            let of_item = self.files_to_merge(item_now, edited.clone(), target.base, &lock)?;
            let removes_of_item = self.files_to_remove(item_now, edited.is_some(), target.base)?;
            let (Some(of_item), Some(removes_of_item)) = (of_item, removes_of_item) else {
                // The default branch may have changed since the list, also by what was merged just before.
                let Item { has_conflict, is_gone, is_taken, .. } = *item_now;
                left.push((Item { has_conflict, is_gone, is_taken, ..item }, NotMerged::Conflict));
                continue;
            };
            if let Some(why) = of_item.iter().find_map(|file| unit_problem(&file.path, &file.content)) {
                left.push((item, NotMerged::NotAUnit(why)));
                continue;
            }
            if let Some(path) = self.other_with_id(&of_item, &removes_of_item, target.base, ids)? {
                left.push((item, NotMerged::IdTaken(path)));
                continue;
            }
            files.extend(of_item.into_iter().map(|file| (file.path.clone(), file)));
            removes.extend(removes_of_item);
            merged.push(edited.into_iter().fold(item, Item::edited));
        }
        if merged.is_empty() {
            return Ok(Attempt { merged, left, commit, published: Ok(()) });
        }
        // The whole branch becomes part of the history only if all of it is wanted.
        let rejected_any = Decisions::read(Some(&self.queue))?.has_rejected(branch);
        let is_whole = !rejected_any && merged.len() == waiting.len();
        let files: Vec<git::NewFile> = files.into_values().collect();
        let message = commit_message(&merged);
        let merge = git::Merge {
            base: target.base,
            branch: if is_whole && !self.repository.brings_others(commit, target.base)? {
                Some(commit)
            } else {
                None
            },
            files: &files,
            removes: &removes,
            message: &message,
            time: now,
            author,
        };
        let published = match self.repository.prepare_merge(&lock, &merge)? {
            Some(prepared) => remote.publish(lock, &target, &prepared, branch, now)?,
            None => Ok(()),
        };
        Ok(Attempt { merged, left, commit, published })
    }

    /// The files of an item as they are after its merge; `None` if there is a conflict.
    fn files_to_merge(
        &self,
        item: &Item,
        edited: Option<String>,
        base: CommitId,
        lock: &Lock,
    ) -> Result<Option<Vec<git::NewFile>>, ReviewError> {
        let mut files = Vec::new();
        let mut edited = edited.map(String::into_bytes);
        if item.action == Action::Removes
            && let Some(content) = edited.take()
        {
            let path = place(&self.repository, &item.branch, &item.path, false, base)?;
            let edits = self.repository.read_at(base, &path)?.is_some();
            files.push(git::NewFile { path, content, edits });
        }
        for file in &item.files {
            let place = place(&self.repository, &item.branch, &file.path, file.base.is_none(), base)?;
            let current = self.repository.read_at(base, &place)?;
            let edited = if file.path == item.path { edited.take() } else { None };
            let content = match edited {
                Some(content) => {
                    match current.as_deref().and_then(|ours| path_beside(file, ours, &content)) {
                        Some(path) if self.repository.read_at(base, &path)?.is_some() => return Ok(None),
                        Some(path) => {
                            files.push(git::NewFile { path, content, edits: false });
                            continue;
                        }
                        None => content,
                    }
                }
                None => match combine(&self.repository, Some(lock), file, current.as_deref())? {
                    Combined::Result(content) => content,
                    Combined::AlreadyThere => continue,
                    Combined::Conflict(_) => return Ok(None),
                },
            };
            files.push(git::NewFile { path: place, content, edits: current.is_some() });
        }
        Ok(Some(files))
    }

    /// The path of a file of a commit with the id of one that is added, unless that is removed.
    fn other_with_id(
        &self,
        files: &[git::NewFile],
        removes: &[String],
        base: CommitId,
        ids: &mut UnitIds,
    ) -> Result<Option<String>, ReviewError> {
        let added: Vec<(&String, UnitId)> = files
            .iter()
            .filter(|file| !file.edits)
            .filter_map(|file| Some((&file.path, unit_id(&file.path, &file.content)?)))
            .collect();
        if added.is_empty() {
            return Ok(None);
        }
        let known = ids.at(&self.repository, base)?;
        let is_other = |path: &String, id: &UnitId| {
            !removes.contains(path) && added.iter().any(|(added, of)| *added != path && of == id)
        };
        Ok(known.iter().find(|(path, id)| is_other(path, id)).map(|(path, _)| path.clone()))
    }

    /// The files that the merge of an item removes; `None` if the default branch has changed one since. With an edit of
    /// a person, who has not seen that change, it stays instead.
    fn files_to_remove(
        &self,
        item: &Item,
        is_edited: bool,
        base: CommitId,
    ) -> Result<Option<Vec<String>>, ReviewError> {
        let mut removes = Vec::new();
        for (path, before) in &item.removals {
            if is_edited && *path == item.path {
                continue;
            }
            let path = place(&self.repository, &item.branch, path, false, base)?;
            match self.repository.read_at(base, &path)? {
                Some(content) if content != *before && is_edited => {}
                Some(content) if content != *before => return Ok(None),
                Some(_) => removes.push(path),
                None => {}
            }
        }
        Ok(Some(removes))
    }

    /// Deletes a branch on which nothing waits any more, here and at the remote.
    fn finish(
        &self,
        branch: &str,
        remote: &mut ReviewRemote<'_>,
        reviewed: &mut Reviewed,
        now: Timestamp,
    ) -> Result<(), ReviewError> {
        // What is added to the branch from here on was not decided about.
        let commit = self.repository.tip(branch)?;
        if !self.waiting_on(branch, now, None)?.is_empty() {
            return Ok(());
        }
        let Some(summary) = Decisions::read(Some(&self.queue))?.summary(&self.repository, branch)? else {
            return Ok(());
        };
        let capture = self.queue.capture_of_branch(branch)?;
        reviewed.finished.push(remote.finish(branch, commit, capture.as_ref(), &summary)?);
        Ok(())
    }
}

/// What waits on one branch; nothing if the branch is merged, closed or gone.
pub(crate) fn waiting_on(
    repository: &Repository,
    queue: &dyn Ledger,
    branch: &str,
    now: Timestamp,
    lock: Option<&Lock>,
) -> Result<Vec<Item>, ReviewError> {
    let Some(pending) = repository.pending_branch(branch)? else { return Ok(Vec::new()) };
    let capture = queue.capture_of_branch(branch)?;
    if capture.as_ref().is_some_and(is_closed) {
        return Ok(Vec::new());
    }
    items_of(repository, pending, capture, &Decisions::read(Some(queue))?, now, lock)
}

/// Rejects what waits on a branch and is there as it is at a commit, of which a person has closed the pull request.
pub(crate) fn reject_closed(
    repository: &Repository,
    queue: &dyn Ledger,
    branch: &str,
    commit: CommitId,
    now: Timestamp,
) -> Result<(), ReviewError> {
    // Until it is recorded no agent writes to the branch.
    let lock = review_remote::lock(repository)?;
    for item in waiting_on(repository, queue, branch, now, Some(&lock))? {
        if is_as_listed(repository, &item, commit)? {
            reject_item(queue, &item, Some(CLOSED), now)?;
        }
    }
    Ok(())
}

/// Forgets what [`reject_closed`] has recorded: the pull request is open again.
pub(crate) fn forget_closed(queue: &dyn Ledger, branch: &str) -> Result<(), queue::Error> {
    let decisions = queue.decisions()?;
    let closed = decisions.iter().filter(|decided| {
        let because = match &decided.decision {
            Decision::Rejected { because } => because.as_deref(),
            _ => None,
        };
        decided.branch == branch && because == Some(CLOSED)
    });
    let paths: Vec<&str> = closed.map(|decided| decided.path.as_str()).collect();
    queue.forget_decisions(branch, &paths)
}

fn reject_item(
    queue: &dyn Ledger,
    item: &Item,
    because: Option<&str>,
    now: Timestamp,
) -> Result<(), queue::Error> {
    // Remembered first: a rejection that is not recorded is only listed again. Of an edit, a removal or a reflection nothing
    // is: no session proposes it again, and what the unit says is known and merged.
    if item.action != Action::Removes && !item.is_edit() && !item.is_reflection() {
        queue.remember_rejected(&item.branch, item.unit_id(), item.title(), because, now)?;
    }
    let decision = Decision::Rejected { because: because.map(str::to_owned) };
    queue.decide(&item.branch, &item.paths(), &decision, now)
}

/// Whether a branch's files of an item are, at `tip`, what they were when it was listed.
fn is_as_listed(repository: &Repository, item: &Item, tip: CommitId) -> Result<bool, ReviewError> {
    if tip == item.commit {
        return Ok(true);
    }
    for path in item.paths() {
        if repository.read_at(tip, path)? != repository.read_at(item.commit, path)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What was decided about a branch, if anything was and nothing waits on it any more.
pub(crate) fn decided_summary(
    repository: &Repository,
    queue: &dyn Ledger,
    branch: &str,
    now: Timestamp,
) -> Result<Reviewing, ReviewError> {
    let Some(summary) = Decisions::read(Some(queue))?.summary(repository, branch)? else {
        return Ok(Reviewing::NotBegun);
    };
    let Some(commit) = repository.tip(branch)? else {
        // After the brain was cloned again the branch is at the remote alone: what waits on it cannot be said here.
        return Ok(match repository.remote_tip(branch)? {
            Some(_) => Reviewing::UnderWay,
            None => Reviewing::Decided { summary, commit: None },
        });
    };
    Ok(match waiting_on(repository, queue, branch, now, None)?.is_empty() {
        true => Reviewing::Decided { summary, commit: Some(commit) },
        false => Reviewing::UnderWay,
    })
}

/// How far the review of a branch with the inbox has come.
pub(crate) enum Reviewing {
    NotBegun,
    UnderWay,
    /// With the branch's last commit, if there is a branch here: what is added to it later was not decided about.
    Decided {
        summary: Summary,
        commit: Option<CommitId>,
    },
}

/// The decisions by branch and path.
struct Decisions(HashMap<(String, String), Decision>);

impl Decisions {
    fn read(queue: Option<&dyn Ledger>) -> Result<Self, ReviewError> {
        let decisions = queue.map(Ledger::decisions).transpose()?.unwrap_or_default();
        let by_path =
            decisions.into_iter().map(|FileDecision { branch, path, decision }| ((branch, path), decision));
        Ok(Self(by_path.collect()))
    }

    fn decision(&self, branch: &str, path: &str) -> Option<&Decision> {
        self.0.get(&(branch.to_owned(), path.to_owned()))
    }

    fn of_branch(&self, branch: &str) -> impl Iterator<Item = (&String, &Decision)> {
        self.0.iter().filter(move |((of, _), _)| of == branch).map(|((_, path), decision)| (path, decision))
    }

    fn is_decided(&self, branch: &str, path: &str) -> bool {
        matches!(self.decision(branch, path), Some(Decision::Merged | Decision::Rejected { .. }))
    }

    fn is_rejected(&self, branch: &str, path: &str) -> bool {
        matches!(self.decision(branch, path), Some(Decision::Rejected { .. }))
    }

    fn has_rejected(&self, branch: &str) -> bool {
        self.of_branch(branch).any(|(_, decision)| matches!(decision, Decision::Rejected { .. }))
    }

    /// `None` if nothing was merged or rejected.
    fn summary(&self, repository: &Repository, branch: &str) -> Result<Option<Summary>, ReviewError> {
        let contents: HashMap<String, Vec<u8>> = match repository.branch_files(branch) {
            Ok(files) => files.into_iter().collect(),
            Err(git::Error::NoSuchBranch { .. }) => HashMap::new(),
            Err(error) => return Err(error.into()),
        };
        let removed = match contents.is_empty() {
            true => Vec::new(),
            false => repository.branch_removals(branch)?,
        };
        // The remote has never had it, or has not any more: its comment does not name it.
        let is_withdrawn = |path: &String| {
            !contents.is_empty()
                && !contents.contains_key(path)
                && !removed.iter().any(|(removed, _)| removed == path)
        };
        let title = |path: &String| {
            let unit = contents
                .get(path)
                .and_then(|content| parse(content))
                .and_then(|document| document.unit(path).ok());
            unit.map_or_else(|| path.clone(), |unit| unit.title)
        };
        let mut summary = Summary::default();
        let mut decisions: Vec<_> = self.of_branch(branch).collect();
        decisions.sort_by(|a, b| a.0.cmp(b.0));
        for (path, decision) in decisions {
            match decision {
                Decision::Merged => summary.merged.push(title(path)),
                Decision::Rejected { .. } if is_withdrawn(path) => summary.has_withdrawn = true,
                Decision::Rejected { because } => summary.rejected.push((title(path), because.clone())),
                Decision::Later { .. } => {}
            }
        }
        let is_empty = summary.merged.is_empty() && summary.rejected.is_empty() && !summary.has_withdrawn;
        Ok((!is_empty).then_some(summary))
    }
}

/// Sorts into groups of one branch, which keep their order.
fn by_branch<T>(things: Vec<T>, branch: impl Fn(&T) -> &String) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for thing in things {
        match groups
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| branch(first) == branch(&thing)))
        {
            Some(group) => group.push(thing),
            None => groups.push(vec![thing]),
        }
    }
    groups
}

/// The ids of the units of a commit by the paths of their files. Of a later commit only what differs is read.
#[derive(Default)]
struct UnitIds {
    commit: Option<CommitId>,
    by_path: BTreeMap<String, UnitId>,
}

impl UnitIds {
    fn at(
        &mut self,
        repository: &Repository,
        commit: CommitId,
    ) -> Result<&BTreeMap<String, UnitId>, ReviewError> {
        match self.commit {
            None => {
                for (path, content) in repository.files_under(commit, UNITS_FOLDER)? {
                    self.read(path, Some(&content));
                }
            }
            Some(known) => {
                for path in repository.paths_between(known, commit, UNITS_FOLDER)? {
                    let content = repository.read_at(commit, &path)?;
                    self.read(path, content.as_deref());
                }
            }
        }
        self.commit = Some(commit);
        Ok(&self.by_path)
    }

    fn read(&mut self, path: String, content: Option<&[u8]>) {
        match content.and_then(|content| unit_id(&path, content)) {
            Some(id) => drop(self.by_path.insert(path, id)),
            None => drop(self.by_path.remove(&path)),
        }
    }
}

/// Why a file of units is none; `None` for any other file.
fn unit_problem(path: &str, content: &[u8]) -> Option<String> {
    if !is_unit_path(path) || !path.starts_with(&format!("{UNITS_FOLDER}/")) {
        return None;
    }
    let Ok(text) = std::str::from_utf8(content) else { return Some("it is not UTF-8".to_owned()) };
    Document::parse(text).and_then(|document| document.unit(path)).err().map(|error| error.to_string())
}

/// The id of the unit that a file is.
fn unit_id(path: &str, content: &[u8]) -> Option<UnitId> {
    Some(parse(content)?.unit(path).ok()?.id)
}

/// The path at which a commit of the default branch has a file that a branch changes or removes: another one if it was
/// renamed there since.
pub(crate) fn place(
    repository: &Repository,
    branch: &str,
    path: &str,
    is_new: bool,
    at: CommitId,
) -> Result<String, git::Error> {
    if is_new || repository.read_at(at, path)?.is_some() {
        return Ok(path.to_owned());
    }
    Ok(repository.renamed_since(branch, path, at)?.unwrap_or_else(|| path.to_owned()))
}

/// Where a file is written that a person has edited to keep it beside the default branch's unit of the same path: under
/// its new id. `None` if both are the same unit.
fn path_beside(file: &BranchFile, ours: &[u8], edited: &[u8]) -> Option<String> {
    let id = |content: &[u8]| Some(parse(content)?.unit(&file.path).ok()?.id);
    let (ours, edited) = (id(ours)?, id(edited)?);
    let (folder, _) = file.path.rsplit_once('/')?;
    let name = name::slug(edited.as_str());
    (file.base.is_none() && ours != edited && !name.is_empty()).then(|| format!("{folder}/{name}.md"))
}

/// What a file of a branch becomes on the default branch.
pub(crate) enum Combined {
    Result(Vec<u8>),
    /// The default branch has it.
    AlreadyThere,
    /// Both have changed the same: with git's conflict markers if a lock is held, else as on the branch.
    Conflict(Vec<u8>),
}

/// Combines a branch's edit of a file with what the default branch has. Lines are compared only under the lock.
pub(crate) fn combine(
    repository: &Repository,
    lock: Option<&Lock>,
    file: &BranchFile,
    current: Option<&[u8]>,
) -> Result<Combined, ReviewError> {
    let theirs = &file.content;
    let (base, ours) = match (&file.base, current) {
        (_, Some(current)) if current == theirs => return Ok(Combined::AlreadyThere),
        (None, None) => return Ok(Combined::Result(theirs.clone())),
        // As after a merge with an edit.
        (None, Some(ours))
            if is_edited_copy(&String::from_utf8_lossy(ours), &String::from_utf8_lossy(theirs)) =>
        {
            return Ok(Combined::AlreadyThere);
        }
        // Two units were given one name while neither could see the other.
        (None, Some(ours)) => {
            let Some(lock) = lock else { return Ok(Combined::Conflict(theirs.clone())) };
            return Ok(match repository.merge_text(lock, &[], ours, theirs)? {
                MergedText::Clean(text) if text == ours => Combined::AlreadyThere,
                MergedText::Clean(text) | MergedText::Conflict(text) => Combined::Conflict(text),
            });
        }
        (Some(base), Some(ours)) if ours == base => return Ok(Combined::Result(theirs.clone())),
        (Some(base), Some(ours)) => (base, ours),
        // Removed from the default branch.
        (Some(_), None) => return Ok(Combined::Conflict(theirs.clone())),
    };
    let mut failed = None;
    let documents = (parse(base), parse(ours), parse(theirs));
    if let (Some(base), Some(ours), Some(theirs)) = documents {
        let merged = knowledge::merge_documents(&base, &ours, &theirs, |base, ours, theirs| match repository
            .merge_text(lock?, base.as_bytes(), ours.as_bytes(), theirs.as_bytes())
        {
            Ok(MergedText::Clean(text)) => String::from_utf8(text).ok(),
            Ok(MergedText::Conflict(_)) => None,
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        if let Some(merged) = merged {
            let merged = merged.as_str().as_bytes().to_vec();
            return Ok(if merged == ours.as_str().as_bytes() {
                Combined::AlreadyThere
            } else {
                Combined::Result(merged)
            });
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    let Some(lock) = lock else { return Ok(Combined::Conflict(theirs.clone())) };
    Ok(match repository.merge_text(lock, base, ours, theirs)? {
        MergedText::Clean(text) if text == ours => Combined::AlreadyThere,
        MergedText::Clean(text) => Combined::Result(text),
        MergedText::Conflict(text) => Combined::Conflict(text),
    })
}

fn parse(content: &[u8]) -> Option<Document> {
    Document::parse(std::str::from_utf8(content).ok()?).ok()
}

/// The items of one branch that are not decided.
fn items_of(
    repository: &Repository,
    branch: PendingBranch,
    capture: Option<Capture>,
    decisions: &Decisions,
    now: Timestamp,
    lock: Option<&Lock>,
) -> Result<Vec<Item>, ReviewError> {
    let tip = review_remote::present(repository)?;
    let mut open: Vec<(BranchFile, Vec<u8>, bool)> = Vec::new();
    let (undecided, decided): (Vec<BranchFile>, Vec<BranchFile>) = repository
        .branch_changes(&branch.name)?
        .into_iter()
        .filter(|file| !branch.merged.contains(&file.path))
        .partition(|file| !decisions.is_decided(&branch.name, &file.path));
    let rejected: Vec<BranchFile> =
        decided.into_iter().filter(|file| decisions.is_rejected(&branch.name, &file.path)).collect();
    for file in undecided {
        let Some(file) = without_links(file, &rejected) else { continue };
        let place = place(repository, &branch.name, &file.path, file.base.is_none(), tip)?;
        let current = repository.read_at(tip, &place)?;
        match combine(repository, lock, &file, current.as_deref())? {
            Combined::AlreadyThere => {}
            Combined::Result(content) => open.push((file, content, false)),
            Combined::Conflict(_) => {
                let content = file.content.clone();
                open.push((file, content, true));
            }
        }
    }
    let added: HashSet<String> = open
        .iter()
        .filter(|(file, ..)| file.base.is_none())
        .filter_map(|(file, content, _)| Some(parse(content)?.unit(&file.path).ok()?.id.as_str().to_owned()))
        .collect();
    let is_reflection = branch.name.starts_with(REFLECTION_BRANCH_PREFIX);
    let said = match is_reflection || branch.name.starts_with(EDIT_BRANCH_PREFIX) {
        true => reflected_files(&repository.message_of(branch.commit)?),
        false => BTreeMap::new(),
    };
    let item = |action, path: &str, content: &[u8]| Item {
        id: String::new(),
        branch: branch.name.clone(),
        commit: branch.commit,
        session: session_of(&branch.name),
        capture: capture.clone(),
        time: branch.time,
        action,
        replaces: Vec::new(),
        path: path.to_owned(),
        unit: parse(content).and_then(|document| document.unit(path).ok()),
        text: String::from_utf8_lossy(content).into_owned(),
        has_conflict: false,
        is_gone: false,
        is_taken: false,
        moved_to: None,
        later: put_off(decisions, &branch.name, path, now),
        reasons: said
            .get(path)
            .filter(|_| is_reflection)
            .map(|file| file.reasons.clone())
            .unwrap_or_default(),
        files: Vec::new(),
        removals: Vec::new(),
    };
    let mut items: Vec<Item> = Vec::new();
    let mut retired: Vec<(BranchFile, String, String, bool)> = Vec::new();
    for (file, content, has_conflict) in open {
        let unit = parse(&content).and_then(|document| document.unit(&file.path).ok());
        let replaced_by = unit.as_ref().filter(|_| retires(&file)).and_then(|unit| {
            unit.related
                .iter()
                .map(|related| related.id.as_str())
                .find(|id| added.contains(*id))
                .map(str::to_owned)
        });
        if let (Some(by), Some(unit)) = (replaced_by, &unit) {
            retired.push((file, by, unit.id.as_str().to_owned(), has_conflict));
            continue;
        }
        let action = match &file.base {
            None => Action::Adds,
            Some(_) if retires(&file) => Action::Retires,
            Some(_) => Action::Completes,
        };
        let undecided = item(action, &file.path, &content);
        let place = place(repository, &branch.name, &file.path, file.base.is_none(), tip)?;
        let is_gone = has_conflict && repository.read_at(tip, &place)?.is_none();
        let is_taken = has_conflict && file.base.is_none();
        let moved_to = Some(place).filter(|place| *place != file.path);
        items.push(Item { has_conflict, is_gone, is_taken, moved_to, files: vec![file], ..undecided });
    }
    for (path, base) in repository.branch_removals(&branch.name)? {
        if decisions.is_decided(&branch.name, &path) {
            continue;
        }
        let place = place(repository, &branch.name, &path, false, tip)?;
        let Some(content) = repository.read_at(tip, &place)? else { continue };
        let has_conflict = content != base;
        let undecided = item(Action::Removes, &path, &content);
        let moved_to = Some(place).filter(|place| *place != path);
        items.push(Item { has_conflict, moved_to, removals: vec![(path, base)], ..undecided });
    }
    for (file, by, id, has_conflict) in retired {
        if let Some(item) = items.iter_mut().find(|item| item.action == Action::Adds && item.unit_id() == by)
        {
            item.replaces.push(id);
            item.has_conflict |= has_conflict;
            item.files.push(file);
        }
    }
    Ok(join_parts(items, &said))
}

/// The units to which a file of a branch gets relations that go with what was rejected of the branch: there will be
/// nothing to relate to, or the other half of the link is not wanted.
fn withdrawn_links(file: &BranchFile, rejected: &[BranchFile]) -> Vec<UnitId> {
    let unit = |content: Option<&[u8]>| parse(content?)?.unit(&file.path).ok();
    let adds = |file: &BranchFile, other: &UnitId| {
        let has = |content| unit(content).is_some_and(|unit| unit.related.iter().any(|to| to.id == *other));
        has(Some(&file.content)) && !has(file.base.as_deref())
    };
    let Some(id) = unit(Some(&file.content)).map(|unit| unit.id) else { return Vec::new() };
    let of_rejected = |rejected: &BranchFile| {
        let other = parse(&rejected.content)?.unit(&rejected.path).ok()?.id;
        (rejected.base.is_none() || adds(rejected, &id) && adds(file, &other)).then_some(other)
    };
    rejected.iter().filter_map(of_rejected).collect()
}

/// A file without the relations that go with what was rejected of its branch; `None` if it changes nothing else.
pub(crate) fn without_links(mut file: BranchFile, rejected: &[BranchFile]) -> Option<BranchFile> {
    let units = withdrawn_links(&file, rejected);
    let Some(mut document) = parse(&file.content).filter(|_| !units.is_empty()) else { return Some(file) };
    let rejected: Vec<(&str, Unit)> = rejected
        .iter()
        .filter_map(|file| Some((file.path.as_str(), parse(&file.content)?.unit(&file.path).ok()?)))
        .collect();
    let names =
        rejected.iter().map(|(file, unit)| (unit.id.as_str(), (*file, unit.title.as_str()))).collect();
    for unit in &units {
        reflect::remove_links(&mut document, unit, &names);
    }
    if document.as_str().as_bytes() == file.content {
        return Some(file);
    }
    let unit = |document: &Document| {
        let unit = document.unit(&file.path).ok()?;
        Some(Unit { last_modified: None, ..unit })
    };
    let before = file.base.as_deref().and_then(parse).and_then(|base| unit(&base));
    if before.is_some() && before == unit(&document) {
        return None;
    }
    file.content = document.as_str().as_bytes().to_vec();
    Some(file)
}

/// Makes one item of each change of a reflection pass, or of a person's edit, and those that are a part of it.
fn join_parts(items: Vec<Item>, said: &BTreeMap<String, ReflectedFile>) -> Vec<Item> {
    let open: BTreeSet<String> = items.iter().map(|item| item.path.clone()).collect();
    let part_of = |path: &String| said.get(path)?.part_of.as_ref().filter(|main| open.contains(*main));
    let main_of = |path: &String| {
        let mut way = vec![path];
        while let Some(next) = way.last().copied().and_then(part_of) {
            if let Some(at) = way.iter().position(|seen| *seen == next) {
                // Two units that each take over a third one and refer to each other.
                return way[at..].iter().min().map_or_else(|| next.clone(), |first| (*first).clone());
            }
            way.push(next);
        }
        (*way[way.len() - 1]).clone()
    };
    let (mut joined, parts): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| main_of(&item.path) == item.path);
    for part in parts {
        let main = main_of(&part.path);
        if let Some(item) = joined.iter_mut().find(|item| item.path == main) {
            item.has_conflict |= part.has_conflict;
            item.files.extend(part.files);
            item.removals.extend(part.removals);
        }
    }
    joined
}

/// Until when a file was put off.
fn put_off(decisions: &Decisions, branch: &str, path: &str, now: Timestamp) -> Option<Timestamp> {
    match decisions.decision(branch, path) {
        Some(Decision::Later { until }) if *until > now => Some(*until),
        _ => None,
    }
}

/// Whether a branch marks the file's unit as superseded.
fn retires(file: &BranchFile) -> bool {
    let is_retired = |content: &[u8]| {
        let unit = parse(content).and_then(|document| document.unit(&file.path).ok());
        unit.and_then(|unit| unit.status).is_some_and(|status| knowledge::unit::is_retired(&status))
    };
    file.base.as_deref().is_some_and(|base| !is_retired(base) && is_retired(&file.content))
}

/// What a branch's name says about its session: `ad5139ef` of `nugget/session-20261116-170405-ad5139ef`.
fn session_of(branch: &str) -> String {
    let name = branch.strip_prefix(git::BRANCH_PREFIX).unwrap_or(branch);
    let parts = name.split('-');
    let rest: Vec<&str> = match name.split('-').next() {
        Some("session") => parts.skip(3).collect(),
        Some("import" | "edit" | "reflection") => parts.skip(2).collect(),
        Some("notes" | "batch") => parts.skip(1).collect(),
        _ => Vec::new(),
    };
    if rest.is_empty() { name.to_owned() } else { rest.join("-") }
}

/// Gives each item an id of its own: `SESSION/UNIT`, or the branch's whole name where that names two.
fn name_items(items: &mut [Item]) {
    let short = |item: &Item| format!("{}/{}", item.session, item.unit_id());
    let mut counts: HashMap<String, usize> = HashMap::new();
    for item in &*items {
        *counts.entry(short(item)).or_default() += 1;
    }
    for item in items {
        let id = short(item);
        item.id = match counts.get(&id) {
            Some(1) => id,
            _ => format!(
                "{}/{}",
                item.branch.strip_prefix(git::BRANCH_PREFIX).unwrap_or(&item.branch),
                item.path
            ),
        };
    }
}

/// The message of a commit that merges items of one branch.
fn commit_message(items: &[Item]) -> String {
    let count = if items.len() == 1 { "1 unit".to_owned() } else { format!("{} units", items.len()) };
    let mut message = format!("Merge {count} from {}\n\n", items[0].branch);
    for item in items {
        let title = text::escape_forge_syntax(&text::one_line(item.title(), 100));
        message.push_str(&format!("- {}\n  {title} ({})\n", item.path, item.kind()));
    }
    message
}
