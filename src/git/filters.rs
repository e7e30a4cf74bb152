//! Finds the files that git changes on their way into the repository and back, as git-crypt and LFS do. nugget runs no such
//! filter, so it writes none of these files.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gix::bstr::ByteSlice as _;

use crate::command::GitCommand;
use crate::error::{During as _, Error};
use crate::repository::{entry, tree_of};
use crate::types::{BLOB_BYTES_MAX, CommitId};

/// How long git may take to read the attributes.
const DEADLINE: Duration = Duration::from_secs(20);

/// A path with a filter.
pub(crate) struct Filtered {
    pub path: String,
    pub filter: String,
}

/// The first of the paths to which a commit's attributes give a filter. Before 2.41, git takes the work tree's attributes.
/// git is started only where an attributes file of the repository speaks of filters.
pub(crate) fn first_filtered<'a>(
    git: &gix::Repository,
    commit: CommitId,
    paths: impl Iterator<Item = &'a str> + Clone,
) -> Result<Option<Filtered>, Error> {
    if !may_filter(git, commit, paths.clone())? {
        return Ok(None);
    }
    let folder = git.workdir().unwrap_or(git.git_dir());
    let mut command = GitCommand::new(folder, Some(git.git_dir()), true);
    command.arguments(["check-attr", "-z", "--stdin", "filter"]);
    command.environment("GIT_ATTR_SOURCE", tree_of(git, commit)?.id.to_string());
    command.input(paths.flat_map(|path| [path.as_bytes(), b"\0"].concat()).collect());
    let printed = command.run(Instant::now() + DEADLINE)?.whole()?;
    let mut fields = printed.split(|&byte| byte == 0).map(|field| field.to_str_lossy().into_owned());
    while let (Some(path), Some(_), Some(filter)) = (fields.next(), fields.next(), fields.next()) {
        if !["unspecified", "unset", "set"].contains(&filter.as_str()) {
            return Ok(Some(Filtered { path, filter }));
        }
    }
    Ok(None)
}

fn may_filter<'a>(
    git: &gix::Repository,
    commit: CommitId,
    paths: impl Iterator<Item = &'a str>,
) -> Result<bool, Error> {
    let mut folders = BTreeSet::new();
    for path in paths {
        folders.extend(path.match_indices('/').map(|(at, _)| &path[..=at]));
        folders.insert("");
    }
    if folders.is_empty() {
        return Ok(false);
    }
    if std::fs::read(git.common_dir().join("info/attributes")).is_ok_and(|text| text.contains_str("filter")) {
        return Ok(true);
    }
    let tree = tree_of(git, commit)?;
    for folder in folders {
        let path = format!("{folder}.gitattributes");
        let Some(found) = entry(&tree, &path)?.filter(|found| found.mode().is_blob()) else { continue };
        let reading = || format!("read {path} at {commit}");
        let id = found.object_id();
        let is_large = git.find_header(id).during(reading)?.size() > BLOB_BYTES_MAX;
        if is_large || git.find_blob(id).during(reading)?.data.contains_str("filter") {
            return Ok(true);
        }
    }
    Ok(false)
}
