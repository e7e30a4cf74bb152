//! Which project a folder belongs to.

use std::fs;
use std::path::{Path, PathBuf};

use knowledge::name::{folder_name, repository_address};
use transcript::{clean, read_text};

const FILE_BYTES_MAX: u64 = 256 << 10;
const FOLDERS_MAX: usize = 64;

/// Folders of a repository in which its linked work trees usually lie.
const WORK_TREES: &[&str] = &["/.claude/worktrees/", "/.worktrees/"];

/// A project: clones and work trees of one repository are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The address of the remote `origin` without protocol, user and `.git`; without a remote git's common folder;
    /// outside of a repository the folder. Without secrets and hidden characters.
    pub key: String,
    /// The top folder of the work tree; outside of a repository the folder.
    pub path: PathBuf,
}

impl Project {
    /// The project that a folder is in. Only reads. A folder that is gone is a project of its own, unless its name says
    /// that it was a work tree in a repository.
    pub fn from_folder(cwd: &Path) -> Self {
        let Self { key, path } = Self::as_named(cwd);
        Self { key: clean(&key), path }
    }

    fn as_named(cwd: &Path) -> Self {
        let Some(top) = top_of(cwd) else {
            let cwd = cwd.to_string_lossy();
            let repository =
                WORK_TREES.iter().find_map(|name| cwd.split_once(name)).map(|(before, _)| before);
            let key = repository.filter(|before| !before.is_empty()).unwrap_or(&cwd).to_owned();
            return Self { key, path: PathBuf::from(&*cwd) };
        };
        let common = common_folder(top);
        let remote = read_text(&common.join("config"), FILE_BYTES_MAX).and_then(|config| remote_key(&config));
        Self { key: remote.unwrap_or_else(|| common.to_string_lossy().into_owned()), path: top.to_owned() }
    }
}

/// The key of the project that a person or a model names: by a folder in it, or by its name or key as sessions are listed.
///
/// # Errors
/// When the folder cannot be read.
pub fn project_key(given: &str) -> std::io::Result<String> {
    let folder = Path::new(given);
    let is_folder = matches!(given, "." | "..") || given.contains('/') || given.starts_with('~');
    if !is_folder || !folder.is_dir() {
        return Ok(given.trim_end_matches('/').to_owned());
    }
    Ok(Project::from_folder(&fs::canonicalize(folder)?).key)
}

/// The name of the project that a folder is in: of its repository, whatever work tree or folder of it that is; outside of
/// one, of the folder. It may hold a secret that its path or remote holds.
pub fn project_name(cwd: &Path) -> Option<String> {
    let name = match top_of(cwd) {
        Some(_) => name_of(&Project::as_named(cwd).key).to_owned(),
        None => folder_name(&cwd.to_string_lossy())?.to_owned(),
    };
    (!name.is_empty()).then_some(name)
}

/// The branch that is checked out in a folder's work tree; `None` if there is none, or its name cannot be read.
pub fn current_branch(folder: &Path) -> Option<String> {
    let top = top_of(folder)?;
    let git = top.join(".git");
    let own = match read_text(&git, FILE_BYTES_MAX) {
        Some(link) => top.join(link.trim().strip_prefix("gitdir:")?.trim()),
        None => git,
    };
    let head = read_text(&own.join("HEAD"), FILE_BYTES_MAX)?;
    Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned())
}

/// The top folder of the work tree that a folder is in. A path of another system is in none: from this process's own
/// folder it would lead anywhere.
fn top_of(folder: &Path) -> Option<&Path> {
    let mut folders = folder.ancestors().take(FOLDERS_MAX).filter(|_| folder.is_absolute());
    folders.find(|folder| folder.join(".git").exists())
}

/// The key of a project as people are shown it: of a repository without a remote, its folder.
pub fn shown_key(key: &str) -> &str {
    key.strip_suffix("/.git").unwrap_or(key)
}

/// The name of the project with this key: of the repository, not of its work tree.
pub(crate) fn name_of(key: &str) -> &str {
    let key = key.trim_end_matches(['/', '\\']);
    let key = shown_key(key).trim_end_matches(".git");
    key.rsplit(['/', '\\']).next().unwrap_or(key)
}

/// The key of a project that was known by git's folder and has a remote now.
pub(crate) fn key_with_remote(key: &str) -> Option<String> {
    let config = Path::new(key).join("config");
    let config = Some(config).filter(|config| config.is_absolute() && key.ends_with("/.git"))?;
    Some(clean(&remote_key(&read_text(&config, FILE_BYTES_MAX)?)?))
}

/// Git's common folder: of a linked work tree, that of the repository.
fn common_folder(top: &Path) -> PathBuf {
    let git = top.join(".git");
    let Some(link) = read_text(&git, FILE_BYTES_MAX) else { return normal(&git) };
    let Some(folder) = link.trim().strip_prefix("gitdir:") else { return normal(&git) };
    let folder = top.join(folder.trim());
    let common = read_text(&folder.join("commondir"), FILE_BYTES_MAX);
    normal(&common.map_or_else(|| folder.clone(), |common| folder.join(common.trim())))
}

fn normal(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| transcript::without_dots(path))
}

/// The address of the remote `origin`, as all clones of the repository have it.
fn remote_key(config: &str) -> Option<String> {
    let section = config.split("[remote \"origin\"]").nth(1)?;
    let mut lines = section.lines().skip(1).take_while(|line| !line.trim_start().starts_with('['));
    repository_address(lines.find_map(|line| line.trim().strip_prefix("url")?.trim().strip_prefix('='))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_key_by_whatever_address() {
        let key =
            |url: &str| remote_key(&format!("[core]\n[remote \"origin\"]\n\turl = {url}\n\tfetch = x\n"));
        for url in [
            "git@example.com:us/shop.git",
            "https://example.com/us/shop",
            "https://user:token@Example.com/us/shop.git/",
            "ssh://git@example.com:2222/us/shop.git",
        ] {
            assert_eq!(key(url).as_deref(), Some("example.com/us/shop"), "{url}");
        }
        assert_eq!((key("../brother.git"), key("/srv/shop.git")), (None, None));
        assert_eq!(remote_key("[core]\n\tbare = false\n"), None);
    }

    #[test]
    fn a_folder_of_another_system_is_in_no_repository_of_this_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "../").collect::<String>();
        let relative = PathBuf::from(up).join(folder.path().strip_prefix("/").unwrap());
        assert!(relative.join(".git").exists());
        for path in [relative.as_path(), &relative.join(r"C:\Users\me\payroll"), Path::new("")] {
            let project = Project::from_folder(path);
            assert_eq!((project.key.as_str(), project.path.as_path()), (path.to_str().unwrap(), path));
            assert_eq!(current_branch(path), None);
        }
    }

    #[test]
    fn a_work_tree_is_of_its_repositorys_project() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("main/.git/worktrees/side")).unwrap();
        fs::create_dir_all(root.join("main/src/deep")).unwrap();
        fs::create_dir_all(root.join("side")).unwrap();
        fs::write(root.join("main/.git/worktrees/side/commondir"), "../..\n").unwrap();
        fs::write(
            root.join("side/.git"),
            format!("gitdir: {}\n", root.join("main/.git/worktrees/side").display()),
        )
        .unwrap();
        let main = Project::from_folder(&root.join("main/src/deep"));
        let side = Project::from_folder(&root.join("side"));
        assert_eq!(main.key, root.join("main/.git").to_string_lossy());
        assert_eq!((&side.key, &side.path), (&main.key, &root.join("side")));
        assert_eq!(name_of(&side.key), "main");
        assert_eq!(shown_key(&main.key), root.join("main").to_string_lossy());
        let name = |folder: &str| project_name(&root.join(folder));
        let names = ["main/src/deep", "side", "gone", "shop/.worktrees/3"].map(name);
        assert_eq!(
            names.each_ref().map(Option::as_deref),
            [Some("main"), Some("main"), Some("gone"), Some("shop")]
        );
        assert_eq!(Project::from_folder(&root.join("gone")).key, root.join("gone").to_string_lossy());
        for gone in ["/gone/shop/.worktrees/3", "/gone/shop/.claude/worktrees/us/fix"] {
            assert_eq!(Project::from_folder(Path::new(gone)).key, "/gone/shop");
        }
        assert_eq!(
            (name_of("example.com/us/shop"), name_of("/srv/shop.git/"), name_of("/")),
            ("shop", "shop", "")
        );
    }
}
