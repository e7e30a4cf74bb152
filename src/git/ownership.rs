//! Refuses a repository of another user, as git does.
//!
//! A repository's configuration names programs that git runs. git refuses a repository that belongs to somebody
//! else, but not when it is told the repository's place with `--git-dir`, as nugget does.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::command::GitCommand;
use crate::error::Error;

/// How long git may take to say whether it trusts the repository.
const DEADLINE: Duration = Duration::from_secs(10);
/// With this variable git takes every repository for another user's; its own tests use it, and so do ours.
const ASSUME_DIFFERENT_OWNER: &str = "GIT_TEST_ASSUME_DIFFERENT_OWNER";

/// Fails if git would refuse to work in the repository because of its owner.
///
/// What the running user owns is trusted without asking. For the rest git itself is asked, so that
/// `safe.directory` and the rules for sudo are git's.
pub(crate) fn check(root: &Path, git: &gix::Repository) -> Result<(), Error> {
    let is_own =
        |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| system::file::is_own(&found));
    let dot_git = root.join(".git");
    let places = [Some(root), Some(git.git_dir()), dot_git.exists().then_some(&*dot_git)];
    let is_assumed = std::env::var_os(ASSUME_DIFFERENT_OWNER).is_some();
    if !is_assumed && places.into_iter().flatten().all(is_own) {
        return Ok(());
    }
    let mut command = GitCommand::new(root, None, true);
    command.arguments(["rev-parse", "--git-dir"]);
    for variable in [ASSUME_DIFFERENT_OWNER, "SUDO_UID"] {
        if let Some(value) = std::env::var_os(variable) {
            command.environment(variable, value);
        }
    }
    let output = command.run(Instant::now() + DEADLINE)?;
    if output.is_success {
        return Ok(());
    }
    Err(Error::NotTrusted { path: root.to_owned(), message: output.lines() })
}
