//! The files of the brain that are served: those of the work tree, overlaid with what was reviewed and is not
//! checked out; for answers also the notes that agents have written and nobody has reviewed yet.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use brain::{Brain, BrainFile, Error, Files};
use git::{Blob, Overlay, Repository, Reviewers};
use knowledge::Document;
use knowledge::text::has_conflict_in_code;
use knowledge::unit::UNREVIEWED;
use queue::Queue;

use crate::failure::error_chain;
use crate::notes::{self, NoteError};

/// The content of the default branch and the user's uncommitted edits, at one moment.
pub struct BrainView {
    brain: Brain,
    repository: Option<Repository>,
    /// `None` if the work tree has the same content.
    overlay: Option<Overlay>,
    /// Notes that wait for their review.
    pending: Vec<Overlay>,
}

/// What stands for everything that was merged into a brain and for the notes that wait for review: it changes with every
/// merge, pull, fetch and note. `None` without a readable repository, or a commit in it.
pub fn merged_commits(brain: &Brain, default_branch: Option<&str>) -> Option<String> {
    let read = Repository::read_branches(brain.root(), default_branch, notes::candidates());
    let (default, pending) = read.ok()?;
    Some(format!("{:?} {:?} {pending:?}", default.local, default.remote))
}

impl BrainView {
    /// Opens a brain with the default branch that its `brain.yaml` names, if any.
    pub fn open(brain: &Brain) -> Self {
        let manifest = brain.manifest().ok();
        Self::with_default_branch(brain, manifest.and_then(|manifest| manifest.default_branch).as_deref())
    }

    /// Opens a brain with this default branch. Without a readable repository the work tree is served as it is.
    pub fn with_default_branch(brain: &Brain, default_branch: Option<&str>) -> Self {
        let repository =
            Repository::open(brain.root()).map(|repository| repository.with_default_branch(default_branch));
        let overlay = match &repository {
            Ok(repository) => repository.overlay(),
            Err(_) => Ok(None),
        };
        let overlay = overlay.unwrap_or_else(|error| {
            tracing::debug!(error = error_chain(&error), "serving the work tree as it is");
            None
        });
        let repository = repository.ok();
        Self { brain: brain.clone(), repository, overlay, pending: Vec::new() }
    }

    /// The view that is indexed: with the notes of agents on this machine that wait for their review, each with the
    /// status [`UNREVIEWED`]. `queue` knows about which of them a person has decided.
    pub fn with_pending_notes(brain: &Brain, default_branch: Option<&str>, queue: &Path) -> Self {
        let mut view = Self::with_default_branch(brain, default_branch);
        view.pending = view.read_pending(queue).unwrap_or_else(|error| {
            tracing::debug!(error = error_chain(&error), "pending notes are not served");
            Vec::new()
        });
        view
    }

    fn read_pending(&self, queue: &Path) -> Result<Vec<Overlay>, NoteError> {
        let Some(repository) = &self.repository else { return Ok(Vec::new()) };
        let mut pending = Vec::new();
        for (branch, _) in notes::agents_branches(repository)? {
            if let Some(mut files) = repository.pending_files(&branch)? {
                if queue.is_file() {
                    let decided = notes::decided_paths(&Queue::open(queue)?, &branch)?;
                    files.retain(|path| !decided.contains_key(path));
                }
                pending.push(files);
            }
        }
        Ok(pending)
    }

    /// The pending note at a path.
    fn read_pending_note(&self, path: &str) -> Option<Result<String, Error>> {
        let read = |pending: &Overlay| pending.read(path).transpose();
        let bytes = self.pending.iter().find_map(read)?;
        Some(match bytes.map(String::from_utf8) {
            Ok(Ok(text)) => Ok(as_unreviewed(text)),
            Ok(Err(_)) => Err(Error::NotUtf8 { path: path.into() }),
            Err(error) => {
                Err(Error::Read { path: path.into(), source: std::io::Error::other(error_chain(&error)) })
            }
        })
    }

    /// The reviewers of files since a commit; see [`Repository::reviewers_since`]. `None` without a repository.
    ///
    /// # Errors
    /// Those of [`Repository::reviewers_since`].
    pub fn reviewers_since(&self, commit: Option<&str>) -> Result<Option<Reviewers>, git::Error> {
        let Some(repository) = &self.repository else { return Ok(None) };
        repository.reviewers_since(commit.and_then(|commit| commit.parse().ok()))
    }

    /// Whether git has left a conflict in a file of the work tree. Where that is outside of code, the text tells it.
    fn is_in_conflict(&self, path: &str) -> bool {
        let repository = self.repository.as_ref();
        repository.is_some_and(|repository| repository.is_in_conflict(path).unwrap_or(false))
    }

    fn list_reviewed(&self) -> Result<Vec<BrainFile>, Error> {
        let mut files = self.brain.files()?;
        let Some(overlay) = &self.overlay else { return Ok(files) };
        let overlaid: BTreeMap<&str, _> =
            overlay.files().filter(|(path, _)| brain::is_unit_path(path)).collect();
        files.retain(|file| !overlaid.contains_key(file.path.as_str()));
        files.extend(overlaid.into_iter().filter_map(|(path, blob)| Some(file_of(path, blob?))));
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

fn file_of(path: &str, blob: Blob) -> BrainFile {
    // Stands for a time, and is before all times: the same blob has not changed.
    let modified_ns = -i128::from(blob.id_prefix() >> 1) - 1;
    BrainFile { path: path.to_owned(), size: blob.size, modified_ns }
}

/// A note's file with a status that says that nobody has reviewed it.
fn as_unreviewed(text: String) -> String {
    match Document::parse(text.as_str()) {
        Ok(mut document) => {
            document.set("status", &UNREVIEWED.into());
            document.as_str().to_owned()
        }
        Err(_) => text,
    }
}

impl Files for BrainView {
    fn files(&self) -> Result<Vec<BrainFile>, Error> {
        let mut files = self.list_reviewed()?;
        if self.pending.is_empty() {
            return Ok(files);
        }
        let known: HashSet<String> = files.iter().map(|file| file.path.clone()).collect();
        for (path, blob) in self.pending.iter().flat_map(Overlay::files) {
            if brain::is_unit_path(path) && !known.contains(path) {
                // The same note is another text once it is merged.
                let pending = |file: BrainFile| BrainFile { modified_ns: file.modified_ns ^ 1, ..file };
                files.extend(blob.map(|blob| pending(file_of(path, blob))));
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    fn read(&self, path: &str) -> Result<String, Error> {
        let full = || PathBuf::from(path);
        if self.overlay.as_ref().is_some_and(|overlay| overlay.removes(path)) {
            // The branch of a note that waits may be checked out.
            let gone = || Err(Error::Read { path: full(), source: std::io::ErrorKind::NotFound.into() });
            return self.read_pending_note(path).unwrap_or_else(gone);
        }
        match self.overlay.as_ref().map(|overlay| overlay.read(path)) {
            None | Some(Ok(None)) => match self.brain.read(path) {
                Err(error) => self.read_pending_note(path).unwrap_or(Err(error)),
                Ok(text) if has_conflict_in_code(&text) && self.is_in_conflict(path) => {
                    Err(Error::Conflict { path: full() })
                }
                found => found,
            },
            Some(Ok(Some(bytes))) => String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { path: full() }),
            Some(Err(git::Error::TooLarge { .. })) => Err(Error::TooLarge { path: full() }),
            Some(Err(error)) => {
                Err(Error::Read { path: full(), source: std::io::Error::other(error_chain(&error)) })
            }
        }
    }

    fn is_pending(&self, path: &str) -> bool {
        let is_served = || match &self.overlay {
            Some(overlay) if overlay.has(path) => !overlay.removes(path),
            _ => self.brain.read(path).is_ok(),
        };
        self.pending.iter().any(|pending| pending.has(path)) && !is_served()
    }
}
