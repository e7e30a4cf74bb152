//! The files of the brain that are served: those of the work tree, overlaid with what was reviewed and is not
//! checked out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use brain::{Brain, BrainFile, Error, Files};
use git::{Overlay, Repository, Reviewers};

use crate::failure::error_chain;

/// The content of the default branch and the user's uncommitted edits, at one moment.
pub struct BrainView {
    brain: Brain,
    repository: Option<Repository>,
    /// `None` if the work tree has the same content.
    overlay: Option<Overlay>,
    /// Listed once, for the check for changes and for the plan that follows it.
    files: OnceLock<Vec<BrainFile>>,
}

/// What stands for everything that was merged into a brain: it changes with every merge, pull and fetch. `None` without
/// a readable repository, or a commit in it.
pub fn merged_commits(brain: &Brain, default_branch: Option<&str>) -> Option<String> {
    let repository = Repository::open(brain.root()).ok()?.with_default_branch(default_branch);
    let default = repository.default_branch().ok()?;
    Some(format!("{:?} {:?}", default.local, default.remote))
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
        Self { brain: brain.clone(), repository: repository.ok(), overlay, files: OnceLock::new() }
    }

    /// The reviewers of files since a commit; see [`Repository::reviewers_since`]. `None` without a repository.
    ///
    /// # Errors
    /// Those of [`Repository::reviewers_since`].
    pub fn reviewers_since(&self, commit: Option<&str>) -> Result<Option<Reviewers>, git::Error> {
        let Some(repository) = &self.repository else { return Ok(None) };
        repository.reviewers_since(commit.and_then(|commit| commit.parse().ok()))
    }

    fn list(&self) -> Result<Vec<BrainFile>, Error> {
        let mut files = self.brain.files()?;
        let Some(overlay) = &self.overlay else { return Ok(files) };
        let overlaid: BTreeMap<&str, _> =
            overlay.files().filter(|(path, _)| brain::is_unit_path(path)).collect();
        files.retain(|file| !overlaid.contains_key(file.path.as_str()));
        files.extend(overlaid.into_iter().filter_map(|(path, blob)| {
            let blob = blob?;
            // Stands for a time, and is before all times: the same blob has not changed.
            let modified_ns = -i128::from(blob.id_prefix() >> 1) - 1;
            Some(BrainFile { path: path.to_owned(), size: blob.size, modified_ns })
        }));
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

impl Files for BrainView {
    fn files(&self) -> Result<Vec<BrainFile>, Error> {
        if let Some(files) = self.files.get() {
            return Ok(files.clone());
        }
        let files = self.list()?;
        Ok(self.files.get_or_init(|| files).clone())
    }

    fn read(&self, path: &str) -> Result<String, Error> {
        let full = || PathBuf::from(path);
        match self.overlay.as_ref().map(|overlay| overlay.read(path)) {
            None | Some(Ok(None)) => self.brain.read(path),
            Some(Ok(Some(bytes))) => String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { path: full() }),
            Some(Err(git::Error::TooLarge { .. })) => Err(Error::TooLarge { path: full() }),
            Some(Err(error)) => {
                Err(Error::Read { path: full(), source: std::io::Error::other(error_chain(&error)) })
            }
        }
    }
}
