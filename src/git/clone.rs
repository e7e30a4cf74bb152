//! Clones a brain from its remote.

use std::path::Path;
use std::time::{Duration, Instant};

use gix::bstr::ByteSlice as _;

use crate::command::GitCommand;
use crate::connection::{Credentials, connect};
use crate::error::Error;
use crate::lock::Lock;
use crate::remote_config::check_url;
use crate::remote_url::RemoteUrl;
use crate::repository::Repository;

/// Clones a brain and checks out its default branch. No hooks or templates of the user's are copied or run.
///
/// The clone is created next to `into` and then renamed, so that a killed one leaves nothing at `into`. A later
/// attempt removes what it left behind.
///
/// # Errors
/// [`Error::InvalidRemote`] and [`Error::SecretInUrl`] for a URL that is not allowed; [`Error::FolderTaken`] when
/// `into` is not an empty folder; [`Error::LockTimeout`] when another process is cloning to `into`;
/// [`Error::Remote`], and failures of the disk.
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
    let temporary = parent.join(format!(".{}.nugget-clone", name.to_string_lossy()));
    // The holder of the lock is cloning to the same folder.
    let held = Lock::try_acquire(&temporary.join("lock"))?;
    let held = held.ok_or_else(|| Error::LockTimeout { path: temporary.clone(), waited: Duration::ZERO })?;
    let work = temporary.join("brain");
    let remove = |path: &Path| match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    };
    remove(&work)?;
    let cloned = (|| {
        let mut query = GitCommand::new(parent, None, false);
        query.arguments(["config", "--get", "core.sshCommand"]);
        let configured = query.run(until)?.stdout;
        let ssh_command = configured.trim().to_str().ok().filter(|command| !command.is_empty());
        let mut git = GitCommand::new(parent, None, credentials.is_some());
        connect(&mut git, RemoteUrl::parse(url).as_ref(), credentials, ssh_command, until);
        git.configure("init.templateDir", "");
        git.configure("clone.defaultRemoteName", "origin");
        git.arguments(["clone", "--quiet", "--no-recurse-submodules", "--template=", "--"]);
        git.arguments([std::ffi::OsStr::new(url), work.as_os_str()]);
        git.run(until)?.ok()?;
        check_out_what_there_is(&work, until)?;
        // `into` is missing or an empty folder.
        std::fs::rename(&work, &into).map_err(Error::io("replace", &into))?;
        Repository::open(&into)
    })();
    drop(held);
    remove(&temporary)?;
    cloned
}

/// Checks out the remote's `main`, `master` or only branch where its HEAD names one that does not exist: a bare repository
/// that was made with another default branch than the one that was pushed to it.
fn check_out_what_there_is(work: &Path, until: Instant) -> Result<(), Error> {
    let run = |arguments: &[&str]| {
        let mut git = GitCommand::new(work, None, false);
        git.arguments(arguments);
        git.run(until)
    };
    if run(&["rev-parse", "--verify", "--quiet", "HEAD"])?.is_success {
        return Ok(());
    }
    let listed = run(&["for-each-ref", "--format=%(refname:lstrip=3)", "refs/remotes/origin"])?.ok()?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    // A name that begins with a dash would be read as an option.
    let branches: Vec<&str> =
        listed.lines().filter(|name| *name != "HEAD" && !name.starts_with('-')).collect();
    let only = branches.first().filter(|_| branches.len() == 1);
    let wanted = ["main", "master"].iter().find(|name| branches.contains(name)).or(only);
    if let Some(branch) = wanted {
        run(&["checkout", "--quiet", branch])?.ok()?;
        run(&["remote", "set-head", "origin", branch])?.ok()?;
    }
    Ok(())
}
