//! The files that are served: those of the work tree, and over them what was reviewed and is not checked out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use brain::{Brain, BrainFile, Error, Files};
use git::{Overlay, Repository, Reviewers};

use crate::pipeline::chain;

/// The default branch's content and the user's own edits that are not committed, at one moment.
pub struct BrainView {
    brain: Brain,
    repository: Option<Repository>,
    /// `None` when that is just what lies in the work tree.
    served: Option<Overlay>,
    /// Listed once: a look at what has changed and the plan that follows it need the same.
    files: OnceLock<Vec<BrainFile>>,
}

impl BrainView {
    /// With the default branch that the brain itself names, if any.
    pub fn open(brain: &Brain) -> Self {
        let manifest = brain.manifest().ok();
        Self::with_default_branch(brain, manifest.and_then(|manifest| manifest.default_branch).as_deref())
    }

    /// A brain without a repository, or with one that cannot be read, is served as it lies there.
    pub fn with_default_branch(brain: &Brain, default_branch: Option<&str>) -> Self {
        let repository =
            Repository::open(brain.root()).map(|repository| repository.with_default_branch(default_branch));
        let served = match &repository {
            Ok(repository) => repository.overlay(),
            Err(_) => Ok(None),
        };
        let served = served.unwrap_or_else(|error| {
            tracing::debug!(error = chain(&error), "the work tree is served as it is");
            None
        });
        Self { brain: brain.clone(), repository: repository.ok(), served, files: OnceLock::new() }
    }

    /// Who has reviewed what since a commit; see [`Repository::reviewers_since`].
    ///
    /// # Errors
    /// Those of [`Repository::reviewers_since`].
    pub fn reviewers_since(&self, commit: Option<&str>) -> Result<Option<Reviewers>, git::Error> {
        let Some(repository) = &self.repository else { return Ok(None) };
        repository.reviewers_since(commit.and_then(|commit| commit.parse().ok()))
    }

    fn list(&self) -> Result<Vec<BrainFile>, Error> {
        let mut files = self.brain.files()?;
        let Some(served) = &self.served else { return Ok(files) };
        let laid: BTreeMap<&str, _> = served.files().filter(|(path, _)| brain::is_unit_path(path)).collect();
        files.retain(|file| !laid.contains_key(file.path.as_str()));
        files.extend(laid.into_iter().filter_map(|(path, blob)| {
            let blob = blob?;
            // In place of a time, before all times: what is the same blob has not changed.
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
        match self.served.as_ref().map(|served| served.read(path)) {
            None | Some(Ok(None)) => self.brain.read(path),
            Some(Ok(Some(bytes))) => String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { path: full() }),
            Some(Err(git::Error::TooLarge { .. })) => Err(Error::TooLarge { path: full() }),
            Some(Err(error)) => {
                Err(Error::Read { path: full(), source: std::io::Error::other(chain(&error)) })
            }
        }
    }
}
