//! A server's clone of a brain: a scratch folder that is made when it is first needed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use actors::{Setup, find_credentials};
use brain::{Brain, StatePaths};
use git::{Lock, RemoteUrl, Repository};
use team::BrainRow;

use crate::Settings;

/// A brain with its history may be large, and the connection slow.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Why a brain cannot be cloned.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// git cannot clone it.
    #[error("failed to clone the brain")]
    Git(#[from] git::Error),
    /// No token can be looked up.
    #[error("failed to look up a token for the brain's host")]
    GitHub(#[from] github::Error),
    /// The repository is no brain.
    #[error("the repository is no brain")]
    Brain(#[from] brain::Error),
    /// The repository is another brain's.
    #[error(
        "the repository lacks the commit {commit} that the brain is answered from: it is not the brain's"
    )]
    OtherHistory {
        /// The beginning of the commit's id.
        commit: String,
    },
    /// The folder cannot be used.
    #[error("failed to use {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system reported.
        #[source]
        source: std::io::Error,
    },
}

/// The setup of a brain's clone, which is made if there is none; that may take as long as the brain's host likes.
pub(crate) fn open(settings: &Settings, brain: &BrainRow) -> Result<Setup, CloneError> {
    let folder = settings.folder.join(format!("{}-{}", brain.id, knowledge::name::slug(&brain.slug)));
    system::file::create_private_folder(&folder)
        .map_err(|source| CloneError::Folder { path: folder.clone(), source })?;
    let root = folder.join("brain");
    // Written after the clone. An administrator can give a brain another address; a clone of the old one is of no use then.
    let remote = folder.join("remote");
    let is_cloned = || {
        std::fs::read_to_string(&remote).is_ok_and(|cloned_from| cloned_from == brain.remote)
            && Repository::open(&root).is_ok()
    };
    if !is_cloned() {
        // Captures and syncs of a brain run at once: neither must remove what the other one has just cloned.
        let _held = Lock::acquire(&folder.join("clone.lock"))?;
        if !is_cloned() {
            clone(&brain.remote, &root, &settings.github_api)?;
            std::fs::write(&remote, &brain.remote)
                .map_err(|source| CloneError::Folder { path: remote.clone(), source })?;
        }
    }
    let places = StatePaths::in_folder(folder.join("state"));
    places.create()?;
    let mut setup = (settings.setup)(Brain::open(&root)?, places);
    setup.is_server = true;
    if setup.default_branch.is_none() {
        setup.default_branch.clone_from(&brain.default_branch);
    }
    Ok(setup)
}

fn clone(remote: &str, root: &Path, github_api: &str) -> Result<Repository, CloneError> {
    // What a killed clone left is no repository.
    match std::fs::remove_dir_all(root) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(CloneError::Folder { path: root.to_owned(), source });
        }
        _ => {}
    }
    let credentials = find_credentials(RemoteUrl::parse(remote).as_ref(), github_api)?;
    Ok(git::clone(remote, root, credentials.as_ref(), DEADLINE)?)
}

/// Checks that a remote can be cloned and is a brain, the one that has the commit `served`, and returns its default branch.
///
/// # Errors
/// When it cannot, or is not; [`CloneError::OtherHistory`] when it lacks the commit.
pub fn check_remote(remote: &str, github_api: &str, served: Option<&str>) -> Result<String, CloneError> {
    let folder =
        tempfile::tempdir().map_err(|source| CloneError::Folder { path: std::env::temp_dir(), source })?;
    let root = folder.path().join("brain");
    let repository = clone(remote, &root, github_api)?;
    Brain::open(&root)?;
    if let Some(served) = served
        && !served.parse().is_ok_and(|commit| repository.has(commit).unwrap_or(false))
    {
        return Err(CloneError::OtherHistory { commit: served.chars().take(8).collect() });
    }
    Ok(repository.default_branch()?.name)
}
