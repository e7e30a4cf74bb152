//! Tests the crate against real git: git must accept what nugget writes, and no byte of the user's may change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tempfile::TempDir;

use crate::*;

pub(crate) const BRANCH: &str = "nugget/session-20261120-1412-9f8b";

/// A temporary folder with repositories and the lock.
pub(crate) struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn lock(&self) -> Lock {
        Lock::acquire(&self.path("state/repository.lock")).unwrap()
    }

    /// A repository with two commits on `main`.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        let root = self.path(name);
        std::fs::create_dir_all(&root).unwrap();
        git(&root, &["init", "-q", "-b", "main"]);
        write(&root, "brain.yaml", "name: test\n");
        write(&root, "domains/coding/patterns/first.md", "first\n");
        commit_all(&root, "one");
        write(&root, "README.md", "read me\n");
        commit_all(&root, "two");
        root
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap())
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_EDITOR", "true")
        .env("GIT_AUTHOR_NAME", "A Person")
        .env("GIT_AUTHOR_EMAIL", "person@example.org")
        .env("GIT_COMMITTER_NAME", "A Person")
        .env("GIT_COMMITTER_EMAIL", "person@example.org")
        .env("GIT_AUTHOR_DATE", "2026-11-19T10:00:00Z")
        .env("GIT_COMMITTER_DATE", "2026-11-19T10:00:00Z");
    command
}

/// Runs git, which must succeed; returns its output without the last line feed.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?} in {}: {error}", folder.display());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Runs git, which must fail, as a merge with a conflict does.
pub(crate) fn git_fails(folder: &Path, arguments: &[&str]) {
    let output = command(folder, arguments).output().unwrap();
    assert!(!output.status.success(), "git {arguments:?} was meant to fail");
}

pub(crate) fn commit_all(root: &Path, message: &str) {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", message]);
}

pub(crate) fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn file(path: &str, content: &str) -> NewFile {
    NewFile { path: path.to_owned(), content: content.as_bytes().to_vec(), edits: false }
}

pub(crate) fn proposal(branch: &str) -> Proposal {
    let slug = branch.rsplit('/').next().unwrap();
    Proposal {
        branch: branch.to_owned(),
        base: None,
        files: vec![
            file(&format!("domains/coding/patterns/{slug}.md"), &format!("# {slug}\n")),
            file(&format!("domains/coding/bugs/{slug}-bug.md"), "a bug\n"),
            file(&format!("domains/cooking/concepts/{slug}-stock.md"), "a stock\n"),
        ],
        removes: vec![],
        message: format!("nugget: 3 units from {slug}\n\nBody.\n"),
        time: "2026-11-20T14:12:00Z".parse().unwrap(),
        author: Identity::default(),
    }
}

pub(crate) fn fsck(root: &Path) {
    let output = command(root, &["fsck", "--full", "--strict", "--no-dangling"]).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && printed.is_empty(), "fsck: {}", String::from_utf8_lossy(&printed));
}

/// All that must stay as it is: the files of the work tree and of the git folder, except objects and nugget's
/// branches, and git's status.
pub(crate) fn state(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut state = BTreeMap::new();
    let git_dir = PathBuf::from(git(root, &["rev-parse", "--absolute-git-dir"]));
    let common = git(root, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    let mut folders = vec![root.to_owned(), git_dir, PathBuf::from(common)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap().to_owned();
            if name.ends_with("/objects") || name.ends_with("/refs/heads/nugget") {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => drop(state.insert(name, std::fs::read(&path).unwrap())),
            }
        }
    }
    if git(root, &["rev-parse", "--is-bare-repository"]) == "false" {
        let status = git(root, &["status", "--porcelain=v2", "--branch", "--untracked-files=all"]);
        state.insert("status".to_owned(), status.into_bytes());
    }
    state.insert("HEAD is".to_owned(), git(root, &["rev-parse", "HEAD"]).into_bytes());
    state
}

/// Proposes in a repository in any state and checks the result with git.
fn check_untouched(sandbox: &Sandbox, root: &Path) -> Proposed {
    let before = state(root);
    let repository = Repository::open(root).unwrap();
    let proposed = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert_eq!(proposed.outcome, Outcome::Created);
    assert_eq!(state(root), before, "the user's state changed");
    fsck(root);
    let commit = proposed.commit.to_string();
    assert_eq!(git(root, &["rev-parse", BRANCH]), commit);
    assert_eq!(git(root, &["rev-parse", &format!("{commit}^")]), git(root, &["rev-parse", "main"]));
    let changes = git(root, &["diff", "--name-status", "main", BRANCH]);
    assert_eq!(changes.lines().filter(|line| line.starts_with("A\t")).count(), 3, "{changes}");
    assert_eq!(changes.lines().count(), 3, "{changes}");
    proposed
}

#[test]
fn a_clean_repository_is_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let proposed = check_untouched(&sandbox, &root);
    let shown = git(&root, &["show", "-s", "--format=%an|%ae|%cn|%ce|%at|%ct|%B", BRANCH]);
    let who = "nugget|nugget@localhost|nugget|nugget@localhost";
    let when = proposal(BRANCH).time.as_second();
    let title = "nugget: 3 units from session-20261120-1412-9f8b";
    assert_eq!(shown, format!("{who}|{when}|{when}|{title}\n\nBody."));
    assert_eq!(proposed.commit.to_string().parse::<CommitId>().unwrap(), proposed.commit);
    // git can merge the branch.
    git(&root, &["merge", "--no-edit", "-q", BRANCH]);
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert!(root.join("domains/cooking/concepts/session-20261120-1412-9f8b-stock.md").is_file());
}

#[test]
fn a_dirty_work_tree_is_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    write(&root, "README.md", "edited\n");
    write(&root, "untracked.md", "new\n");
    std::fs::remove_file(root.join("brain.yaml")).unwrap();
    check_untouched(&sandbox, &root);
}

#[test]
fn staged_changes_are_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    write(&root, "README.md", "staged\n");
    // Also at the path of one of the proposal's files.
    write(&root, "domains/coding/bugs/session-20261120-1412-9f8b-bug.md", "the user's\n");
    git(&root, &["add", "-A"]);
    write(&root, "README.md", "edited since\n");
    check_untouched(&sandbox, &root);
}

#[test]
fn a_detached_head_is_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    git(&root, &["checkout", "-q", "HEAD~1"]);
    check_untouched(&sandbox, &root);
}

/// `main` and `side` change the same line.
fn with_conflict(sandbox: &Sandbox) -> PathBuf {
    let root = sandbox.repository("brain");
    git(&root, &["checkout", "-q", "-b", "side", "HEAD~1"]);
    write(&root, "README.md", "side\n");
    commit_all(&root, "side");
    root
}

#[test]
fn a_stopped_rebase_is_untouched_and_can_go_on() {
    let sandbox = Sandbox::new();
    let root = with_conflict(&sandbox);
    git_fails(&root, &["rebase", "main"]);
    assert!(root.join(".git/rebase-merge").is_dir());
    check_untouched(&sandbox, &root);
    write(&root, "README.md", "both\n");
    git(&root, &["add", "README.md"]);
    git(&root, &["rebase", "--continue"]);
    assert_eq!(git(&root, &["rev-parse", "--abbrev-ref", "HEAD"]), "side");
}

#[test]
fn a_stopped_merge_is_untouched() {
    let sandbox = Sandbox::new();
    let root = with_conflict(&sandbox);
    git_fails(&root, &["merge", "main"]);
    assert!(root.join(".git/MERGE_HEAD").is_file());
    check_untouched(&sandbox, &root);
}

#[test]
fn a_bare_repository_is_untouched() {
    let sandbox = Sandbox::new();
    sandbox.repository("brain");
    git(sandbox.folder.path(), &["clone", "-q", "--bare", "brain", "bare"]);
    check_untouched(&sandbox, &sandbox.path("bare"));
}

#[test]
fn a_linked_work_tree_is_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    git(&root, &["worktree", "add", "-q", "-b", "elsewhere", "../linked"]);
    let linked = sandbox.path("linked");
    write(&linked, "README.md", "edited\n");
    check_untouched(&sandbox, &linked);
    assert_eq!(Repository::open(&root).unwrap().pending_branches().unwrap().len(), 1);
}

#[test]
fn a_shallow_clone_is_untouched() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let url = format!("file://{}", root.display());
    git(sandbox.folder.path(), &["clone", "-q", "--depth=1", &url, "shallow"]);
    let shallow = sandbox.path("shallow");
    assert!(shallow.join(".git/shallow").is_file());
    check_untouched(&sandbox, &shallow);
    let repository = Repository::open(&shallow).unwrap();
    assert!(!repository.is_merged(BRANCH).unwrap());
    assert_eq!(repository.branch_files(BRANCH).unwrap().len(), 3);
    let again = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert_eq!(again.outcome, Outcome::AlreadyThere);
}

#[test]
fn what_a_deepened_clone_contains_is_found_by_the_same_process() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    Repository::open(&root).unwrap().propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    git(&root, &["merge", "-q", "--no-ff", "--no-edit", BRANCH]);
    git(&root, &["rm", "-q", "-r", "domains"]);
    commit_all(&root, "removed again");
    let url = format!("file://{}", root.display());
    git(sandbox.folder.path(), &["clone", "-q", "--depth=1", &url, "shallow"]);
    let shallow = sandbox.path("shallow");
    git(&shallow, &["fetch", "-q", "--depth=1", "origin", &format!("{BRANCH}:{BRANCH}")]);
    assert!(!Repository::open(&shallow).unwrap().is_merged(BRANCH).unwrap());
    git(&shallow, &["fetch", "-q", "--unshallow", "origin"]);
    assert!(Repository::open(&shallow).unwrap().is_merged(BRANCH).unwrap());
}

#[test]
fn a_branch_named_like_an_option_is_not_checked_out() {
    let sandbox = Sandbox::new();
    for option in ["-f", "--detach"] {
        let root = sandbox.repository(option);
        git(&root, &["update-ref", &format!("refs/heads/{option}"), "HEAD"]);
        git(&root, &["symbolic-ref", "HEAD", "refs/heads/gone"]);
        git(&root, &["update-ref", "-d", "refs/heads/main"]);
        let into = sandbox.path(&format!("clone-{option}"));
        clone(&format!("file://{}", root.display()), &into, None, Duration::from_secs(60)).unwrap();
        assert!(!into.join("README.md").exists());
    }
}

#[test]
fn hooks_and_hostile_configuration_run_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let witness = sandbox.path("witness");
    for hook in ["pre-commit", "post-commit", "reference-transaction", "post-checkout", "commit-msg"] {
        write(&sandbox.path("hooks"), hook, &format!("#!/bin/sh\ntouch '{}'\n", witness.display()));
        let path = sandbox.path("hooks").join(hook);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let touch = format!("touch {}", witness.display());
    git(&root, &["config", "core.hooksPath", sandbox.path("hooks").to_str().unwrap()]);
    git(&root, &["config", "core.fsmonitor", &touch]);
    git(&root, &["config", "filter.evil.clean", &touch]);
    write(&root, ".git/info/attributes", "* filter=evil\n");
    let repository = Repository::open(&root).unwrap();
    let error = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap_err();
    assert!(matches!(error, Error::Filtered { .. }), "{error}");
    std::fs::remove_file(root.join(".git/info/attributes")).unwrap();
    repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert!(!witness.exists());
    // Control: git itself runs one of the hooks.
    git(&root, &["update-ref", "refs/heads/control", "main"]);
    assert!(witness.exists());
}

#[test]
fn a_stale_lock_is_removed_even_if_the_clock_is_wrong() {
    use std::time::{Duration, SystemTime};
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let ten_years = Duration::from_secs(10 * 365 * 86400);
    for (branch, time) in
        [("nugget/past", SystemTime::now() - ten_years), ("nugget/future", SystemTime::now() + ten_years)]
    {
        let left = format!(".git/refs/heads/{branch}.lock");
        write(&root, &left, "");
        std::fs::File::open(root.join(&left)).unwrap().set_modified(time).unwrap();
        let proposed = repository.propose(&sandbox.lock(), &proposal(branch)).unwrap();
        assert_eq!(proposed.outcome, Outcome::Created);
    }
    // git may hold a younger one at this moment, so it stays.
    let held = sandbox.lock();
    let younger = ".git/refs/heads/nugget/living.lock";
    write(&root, younger, "");
    crate::ref_lock::clear_stale_locks(&root.join(".git/refs/heads/nugget"), &held);
    assert!(root.join(younger).is_file());
}

#[test]
fn a_repeated_proposal_is_the_same_commit() {
    let sandbox = Sandbox::new();
    let lock = sandbox.lock();
    let commits: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| {
            let repository = Repository::open(&sandbox.repository(name)).unwrap();
            let first = repository.propose(&lock, &proposal(BRANCH)).unwrap();
            let again = repository.propose(&lock, &proposal(BRANCH)).unwrap();
            assert_eq!((first.outcome, again.outcome), (Outcome::Created, Outcome::AlreadyThere));
            assert_eq!(first.commit, again.commit);
            first.commit
        })
        .collect();
    assert_eq!(commits[0], commits[1]);
}

#[test]
fn a_repeated_proposal_is_found_after_main_and_branch_moved() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let first = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    write(&root, "more.md", "more\n");
    commit_all(&root, "main moves");
    git(&root, &["checkout", "-q", BRANCH]);
    write(&root, "domains/coding/bugs/session-20261120-1412-9f8b-bug.md", "better words\n");
    commit_all(&root, "review");
    let again = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert_eq!((again.commit, again.outcome), (first.commit, Outcome::AlreadyThere));
    // Another session's knowledge under this name is refused.
    let mut other = proposal(BRANCH);
    other.files[0].content = b"other".to_vec();
    let error = repository.propose(&sandbox.lock(), &other).unwrap_err();
    assert!(matches!(&error, Error::BranchTaken { branch } if branch == BRANCH), "{error}");
    // After the merge and the deletion of the branch there is nothing left to propose.
    git(&root, &["checkout", "-q", "main"]);
    git(&root, &["merge", "-q", "--no-edit", &format!("{BRANCH}~1")]);
    git(&root, &["branch", "-q", "-D", BRANCH]);
    let after = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert_eq!(after.outcome, Outcome::NothingNew);
    assert_eq!(repository.tip(BRANCH).unwrap(), None);
}

#[test]
fn a_proposal_never_changes_a_file() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let check = |files: Vec<NewFile>, taken: &str| {
        let error = repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap_err();
        assert!(matches!(&error, Error::PathTaken { path } if path == taken), "{error}");
    };
    check(vec![file("README.md", "other\n")], "README.md");
    check(vec![file("domains", "a file\n")], "domains");
    check(vec![file("README.md/below.md", "x")], "README.md/below.md");
    check(vec![file("a.md", "x"), file("a.md", "y")], "a.md");
    check(vec![file("a", "x"), file("a/b", "y")], "a/b");
    check(vec![file("a/b", "x"), file("a", "y")], "a");
    check(vec![file("a/b", "x"), file("a.md", "x"), file("a-z", "x"), file("a", "y")], "a");
    // A file with the same content is left out.
    let files = vec![file("README.md", "read me\n"), file("new.md", "new\n")];
    repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap();
    assert_eq!(git(&root, &["diff", "--name-status", "main", BRANCH]), "A\tnew.md");
    let files = vec![file(".git/hooks/post-checkout", "x")];
    let error =
        repository.propose(&sandbox.lock(), &Proposal { files, ..proposal("nugget/other") }).unwrap_err();
    assert!(matches!(error, Error::InvalidPath { .. }), "{error}");
    fsck(&root);
}

#[test]
fn only_branches_of_nugget_are_written() {
    let sandbox = Sandbox::new();
    let repository = Repository::open(&sandbox.repository("brain")).unwrap();
    for branch in
        ["main", "nugget", "nugget/", "nugget/../main", "nugget/a..b", "nugget/x.lock", "nugget//x", "x"]
    {
        let error = repository.propose(&sandbox.lock(), &proposal(branch)).unwrap_err();
        assert!(matches!(error, Error::ForeignBranch { .. }), "{branch}: {error}");
    }
    git(repository.root(), &["branch", "nugget"]);
    let error = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap_err();
    assert!(matches!(&error, Error::BranchTaken { branch } if branch == "nugget"), "{error}");
    git(repository.root(), &["pack-refs", "--all"]);
    let error = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap_err();
    assert!(matches!(&error, Error::BranchTaken { branch } if branch == "nugget"), "{error}");
}

#[test]
fn a_commit_that_git_would_refuse_is_not_created() {
    let sandbox = Sandbox::new();
    let repository = Repository::open(&sandbox.repository("brain")).unwrap();
    let author = |name: &str, email: &str| Identity { name: name.to_owned(), email: email.to_owned() };
    let good = proposal(BRANCH);
    let bad = [
        Proposal { message: " \n".to_owned(), ..good.clone() },
        Proposal { message: "a\0b".to_owned(), ..good.clone() },
        Proposal { author: author("", "x@y"), ..good.clone() },
        Proposal { author: author("a <b>", "x@y"), ..good.clone() },
        Proposal { author: author("a", "x\ny"), ..good.clone() },
    ];
    for proposal in bad {
        let error = repository.propose(&sandbox.lock(), &proposal).unwrap_err();
        assert!(matches!(error, Error::InvalidCommit { .. }), "{error}");
    }
    let early = Proposal { time: Timestamp::from_second(-5).unwrap(), ..good };
    repository.propose(&sandbox.lock(), &early).unwrap();
    fsck(repository.root());
}

#[test]
fn a_proposal_killed_before_its_branch_is_completed() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let first = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    // The state after a kill: some objects are empty or lost after a power cut, some are packed, and git's lock
    // file exists.
    let objects = git(&root, &["rev-list", "--objects", BRANCH, "^main"]);
    let objects: Vec<_> = objects.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(objects.len() >= 8, "{objects:?}");
    for (at, id) in objects.iter().enumerate() {
        let path = root.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]));
        match at % 3 {
            0 => {
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, "").unwrap();
            }
            1 => std::fs::remove_file(&path).unwrap(),
            _ => {}
        }
    }
    let reference = root.join(format!(".git/refs/heads/{BRANCH}"));
    std::fs::rename(&reference, reference.with_extension("lock")).unwrap();
    let again = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert_eq!((again.commit, again.outcome), (first.commit, Outcome::Created));
    fsck(&root);
}

#[test]
fn locks_of_killed_processes_are_cleared_and_others_are_not() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let stale = root.join(".git/refs/heads/nugget/deep/old.lock");
    write(&root, ".git/refs/heads/nugget/deep/old.lock", "");
    write(&root, ".git/refs/heads/main.lock", "");
    write(&root, ".git/index.lock", "");
    let lock = sandbox.lock();
    let fresh = root.join(".git/refs/heads/nugget/fresh.lock");
    // Created while the lock is held, so by a running process: a person's git.
    write(&root, ".git/refs/heads/nugget/fresh.lock", "");
    repository.propose(&lock, &proposal(BRANCH)).unwrap();
    assert!(!stale.exists());
    assert!(fresh.exists());
    assert!(root.join(".git/refs/heads/main.lock").exists());
    assert!(root.join(".git/index.lock").exists());
}

#[test]
fn no_concurrent_proposal_is_lost() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let lock = sandbox.path("state/repository.lock");
    // 50 branches, each proposed by two threads of four.
    let created: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (repository, lock) = (&repository, &lock);
                scope.spawn(move || {
                    let propose = |n: usize| {
                        let held = Lock::acquire_within(lock, Duration::from_secs(60)).unwrap();
                        repository.propose(&held, &proposal(&format!("nugget/race-{n}"))).unwrap().outcome
                    };
                    (0..25).filter(|n| propose(n + 25 * (thread % 2)) == Outcome::Created).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(created, 50);
    assert_eq!(repository.pending_branches().unwrap().len(), 50);
    fsck(&root);
}

#[test]
fn a_concurrent_garbage_collection_removes_nothing_of_ours() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let done = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(60);
    let collections = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) && Instant::now() < deadline {
                // May fail on references that change meanwhile; it must only do no harm.
                command(&root, &["gc", "-q", "--prune=now"]).output().unwrap();
                count += 1;
            }
            count
        });
        for n in 0..40 {
            let branch = format!("nugget/beside-{n}");
            let proposed = repository.propose(&sandbox.lock(), &proposal(&branch)).unwrap();
            assert_eq!(proposed.outcome, Outcome::Created);
            if n % 4 == 0 {
                // Creates garbage and empty folders of references and objects.
                git(&root, &["update-ref", "-d", &format!("refs/heads/{branch}")]);
            }
        }
        done.store(true, Ordering::Relaxed);
        collector.join().unwrap()
    });
    assert!(collections > 5, "{collections} collections");
    assert_eq!(repository.pending_branches().unwrap().len(), 30);
    fsck(&root);
}

#[test]
fn a_repository_around_the_brain_is_not_opened() {
    let sandbox = Sandbox::new();
    let outer = sandbox.repository("outer");
    let inner = outer.join("brain");
    std::fs::create_dir(&inner).unwrap();
    let error = Repository::open(&inner).unwrap_err();
    assert!(matches!(&error, Error::NotARepository { path } if *path == inner), "{error}");
    assert!(error.hint().is_some());
    assert!(matches!(Repository::open(&outer.join(".git")), Err(Error::NotARepository { .. })));
    assert!(matches!(Repository::open(&outer.join("missing")), Err(Error::NotARepository { .. })));
    assert!(matches!(Repository::init(&inner).unwrap(), Init::Created(_)));
    assert!(inner.join(".git/HEAD").is_file());
    assert!(matches!(Repository::init(&inner).unwrap(), Init::Existing(_)));
    assert_eq!(Repository::open(&inner).unwrap().root(), inner.canonicalize().unwrap());
    assert!(matches!(Repository::init(&outer).unwrap(), Init::Existing(_)));
}

#[test]
fn a_format_that_cannot_be_written_is_refused_on_open() {
    let sandbox = Sandbox::new();
    for (option, feature) in
        [("--object-format=sha256", "sha256 objects"), ("--ref-format=reftable", "reftable references")]
    {
        let root = sandbox.path(feature);
        std::fs::create_dir(&root).unwrap();
        git(&root, &["init", "-q", option]);
        let error = Repository::open(&root).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { feature: found, .. } if found == feature), "{error}");
        assert!(Repository::init(&root).is_err());
        if feature.starts_with("reftable") {
            write(&root, "README.md", "x");
            commit_all(&root, "one");
            git(&root, &["worktree", "add", "-q", "../linked"]);
            let error = Repository::open(&sandbox.path("linked")).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
    }
    // `init` must not treat a damaged repository as a missing one.
    let root = sandbox.repository("damaged");
    write(&root, ".git/config", "[core\n");
    assert!(matches!(Repository::init(&root), Err(Error::Git { .. })));
}

#[test]
fn the_first_commit_leaves_a_clean_status() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("new/brain");
    let repository = Repository::init(&root).unwrap().into_repository();
    git(&root, &["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let error = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap_err();
    assert!(matches!(&error, Error::Unborn { branch } if branch == "trunk"), "{error}");
    assert!(error.hint().is_some());

    let files =
        [file("brain.yaml", "name: mine\n"), file(".gitignore", "/.nugget/\n"), file("domains/.gitkeep", "")];
    for file in &files {
        write(&root, &file.path, std::str::from_utf8(&file.content).unwrap());
    }
    let time = "2026-11-20T14:00:00Z".parse().unwrap();
    let first =
        repository.create_initial_commit(&files, "Begin", time, &Identity::default()).unwrap().unwrap();
    assert_eq!(git(&root, &["status", "--porcelain=v2", "--branch"]).lines().count(), 2);
    assert_eq!(git(&root, &["diff-files"]), "", "the index has the files' metadata");
    assert_eq!(git(&root, &["rev-parse", "--symbolic-full-name", "HEAD"]), "refs/heads/trunk");
    assert_eq!(git(&root, &["rev-parse", "HEAD"]), first.to_string());
    assert!(git(&root, &["reflog", "HEAD"]).ends_with("commit (initial): Begin"));
    fsck(&root);
    assert_eq!(repository.default_branch().unwrap().name, "trunk");
    repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();

    // With a commit, nothing is written.
    let before = state(&root);
    let again =
        repository.create_initial_commit(&[file("x", "y")], "Again", time, &Identity::default()).unwrap();
    assert_eq!(again, None);
    assert_eq!(state(&root), before);
}

#[test]
fn files_staged_before_the_first_commit_stay_staged() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("brain");
    let repository = Repository::init(&root).unwrap().into_repository();
    write(&root, "mine.md", "mine\n");
    git(&root, &["add", "mine.md"]);
    let index = std::fs::read(root.join(".git/index")).unwrap();
    let time = "2026-11-20T14:00:00Z".parse().unwrap();
    write(&root, "brain.yaml", "name: x\n");
    let files = [file("brain.yaml", "name: x\n")];
    assert_eq!(repository.create_initial_commit(&files, "Begin", time, &Identity::default()).unwrap(), None);
    assert_eq!(std::fs::read(root.join(".git/index")).unwrap(), index);
    // The index of a killed attempt has only our files, and is no obstacle.
    git(&root, &["rm", "-q", "--cached", "mine.md"]);
    git(&root, &["add", "brain.yaml"]);
    assert!(repository.create_initial_commit(&files, "Begin", time, &Identity::default()).unwrap().is_some());
    assert_eq!(git(&root, &["status", "--porcelain"]), "?? mine.md");
}

#[test]
fn the_default_branch_does_not_depend_on_what_is_checked_out() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let name = || repository.default_branch().map(|branch| branch.name);
    git(&root, &["checkout", "-q", "-b", "feature"]);
    write(&root, "feature.md", "x\n");
    commit_all(&root, "feature");
    assert_eq!(name().unwrap(), "main");
    let chosen = repository.clone().with_default_branch(Some("feature"));
    assert_eq!(chosen.default_branch().unwrap().name, "feature");
    let missing = repository.clone().with_default_branch(Some("missing")).default_branch().unwrap_err();
    assert!(matches!(missing, Error::Unborn { .. }), "{missing}");

    git(&root, &["branch", "-q", "-m", "main", "master"]);
    assert_eq!(name().unwrap(), "master");
    git(&root, &["branch", "-q", "-m", "master", "other"]);
    assert!(matches!(name(), Err(Error::NoDefaultBranch { .. })));
    assert_eq!(repository.branch_to_name().unwrap().as_deref(), Some("feature"));
    git(&root, &["checkout", "-q", "-b", "nugget/review"]);
    assert!(matches!(name(), Err(Error::NoDefaultBranch { .. })));
    git(&root, &["branch", "-q", "-D", "other"]);
    assert_eq!(name().unwrap(), "feature", "the only branch");

    // A proposal must not publish commits that the user has not pushed.
    git(&root, &["update-ref", "refs/remotes/origin/live", "feature~1"]);
    git(&root, &["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/live"]);
    git(&root, &["branch", "live", "feature"]);
    let branch = repository.default_branch().unwrap();
    assert_eq!((branch.name.as_str(), Some(branch.tip)), ("live", branch.remote));
    assert_eq!(branch.local.unwrap().to_string(), git(&root, &["rev-parse", "feature"]));
}

#[test]
fn an_edit_of_a_file_that_was_renamed_meanwhile_stands_for_it() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    write(&root, "domains/a.md", "a\n");
    write(&root, "domains/b.md", "b\n");
    commit_all(&root, "two");
    git(&root, &["checkout", "-q", "-b", "theirs"]);
    git(&root, &["mv", "domains/a.md", "domains/c.md"]);
    git(&root, &["mv", "domains/b.md", "domains/d.md"]);
    commit_all(&root, "renamed");
    git(&root, &["checkout", "-q", "main"]);
    git(&root, &["update-ref", "refs/remotes/origin/main", "theirs"]);
    write(&root, "domains/a.md", "a\nmine\n");
    let overlay = Repository::open(&root).unwrap().overlay().unwrap().unwrap();
    let files: Vec<_> = overlay.files().map(|(path, blob)| (path, blob.is_some())).collect();
    assert_eq!(files, [("domains/b.md", false), ("domains/d.md", true)]);
}

#[test]
fn what_a_sparse_checkout_leaves_out_is_served_and_no_deletion() {
    for kind in [&["--cone", "--no-sparse-index"][..], &["--cone", "--sparse-index"], &["--no-cone"]] {
        let sandbox = Sandbox::new();
        let root = sandbox.repository("brain");
        for path in
            ["domains/here/a.md", "domains/here/b.md", "domains/there/c.md", "domains/there/deep/d.md"]
        {
            write(&root, path, "text\n");
        }
        commit_all(&root, "four");
        let set = ["sparse-checkout", "set"];
        git(&root, &[&set, kind, &["domains/here"]].concat());
        std::fs::remove_file(root.join("domains/here/b.md")).unwrap();
        let served = |path: &str| {
            let repository = Repository::open(&root).unwrap();
            let overlay = repository.overlay().unwrap().unwrap();
            let read = overlay.read(path).unwrap();
            (overlay.has(path), read.map(|text| String::from_utf8(text).unwrap()))
        };
        let text = Some("text\n".to_owned());
        for path in ["domains/there/c.md", "domains/there/deep/d.md"] {
            assert_eq!(served(path), (true, text.clone()), "{kind:?}");
        }
        // What is edited or deleted here counts.
        write(&root, "domains/there/c.md", "mine\n");
        for path in ["domains/here/a.md", "domains/here/b.md", "domains/there/c.md"] {
            assert_eq!(served(path), (false, None), "{kind:?}");
        }
        assert_eq!(served("domains/there/deep/d.md"), (true, text), "{kind:?}");
    }
}

#[test]
fn pending_branches_are_those_with_unmerged_changes() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    for (n, name) in ["nugget/c", "nugget/a", "nugget/b"].into_iter().enumerate() {
        let time = format!("2026-11-2{n}T14:12:00Z").parse().unwrap();
        repository.propose(&sandbox.lock(), &Proposal { time, ..proposal(name) }).unwrap();
    }
    let names = || -> Vec<String> {
        let pending = repository.pending_branches().unwrap();
        for name in ["nugget/a", "nugget/b", "nugget/c", "nugget/d", "main"] {
            let one = repository.pending_branch(name).unwrap().map(|one| one.commit);
            let listed = pending.iter().find(|pending| pending.name == name).map(|one| one.commit);
            assert_eq!(one, listed, "{name}");
        }
        pending.into_iter().map(|pending| pending.name).collect()
    };
    assert_eq!(names(), ["nugget/c", "nugget/a", "nugget/b"], "oldest first");
    let pending = repository.pending_branches().unwrap();
    assert_eq!(pending[0].title, "nugget: 3 units from c");
    assert_eq!(pending[0].time, "2026-11-20T14:12:00Z".parse().unwrap());
    let files = repository.branch_files("nugget/c").unwrap();
    let mut expected: Vec<_> =
        proposal("nugget/c").files.into_iter().map(|file| (file.path, file.content)).collect();
    expected.sort();
    assert_eq!(files, expected);

    git(&root, &["merge", "-q", "--no-ff", "--no-edit", "nugget/c"]);
    assert_eq!(names(), ["nugget/a", "nugget/b"]);
    assert_eq!(repository.branch_files("nugget/c").unwrap(), expected, "also after the merge");
    git(&root, &["merge", "-q", "--squash", "nugget/a"]);
    write(&root, "domains/coding/bugs/a-bug.md", "a bug\nedited while squashing\n");
    commit_all(&root, "squashed");
    assert_eq!(names(), ["nugget/b"]);
    // A reviewer's commit on the branch belongs to it.
    git(&root, &["checkout", "-q", "nugget/b"]);
    write(&root, "domains/coding/patterns/extra.md", "extra\n");
    commit_all(&root, "\u{202e}review\u{200b}");
    git(&root, &["checkout", "-q", "main"]);
    assert_eq!(repository.branch_files("nugget/b").unwrap().len(), 4);
    assert_eq!(repository.pending_branches().unwrap()[0].title, "review");
    // Rebased and merged at the remote: known after the fetch.
    git(&root, &["update-ref", "refs/remotes/origin/main", "nugget/b"]);
    assert_eq!(names(), Vec::<String>::new());
    assert!(matches!(repository.is_merged("nugget/none"), Err(Error::NoSuchBranch { .. })));
}

#[test]
fn a_commit_is_read_without_a_work_tree() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    std::os::unix::fs::symlink("/etc/passwd", root.join("link.md")).unwrap();
    write(&root, "large.md", &"x".repeat(BLOB_BYTES_MAX as usize + 1));
    commit_all(&root, "odd files");
    let repository = Repository::open(&root).unwrap();
    let tip = repository.default_branch().unwrap().tip;
    assert_eq!(repository.paths_under(tip, "domains/").unwrap(), ["domains/coding/patterns/first.md"]);
    let all = ["README.md", "brain.yaml", "domains/coding/patterns/first.md", "large.md"];
    assert_eq!(repository.paths_under(tip, "").unwrap(), all);
    assert!(repository.paths_under(tip, "README.md").unwrap().is_empty());
    assert_eq!(repository.read_at(tip, "README.md").unwrap().as_deref(), Some(&b"read me\n"[..]));
    assert_eq!(repository.read_at(tip, "link.md").unwrap(), None);
    assert_eq!(repository.read_at(tip, "domains").unwrap(), None);
    assert!(matches!(repository.read_at(tip, "large.md"), Err(Error::TooLarge { .. })));
}

#[test]
fn a_lock_is_exclusive_and_its_file_is_private_and_stays() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let path = sandbox.path("deep/er/x.lock");
    let held = Lock::acquire(&path).unwrap();
    assert!(Lock::try_acquire(&path).unwrap().is_none());
    let error = Lock::acquire_within(&path, Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    drop(held);
    assert!(path.exists());
    let again = Lock::try_acquire(&path).unwrap().unwrap();
    assert_eq!(again.path(), path);
}

#[test]
fn a_child_process_does_not_keep_the_lock() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("x.lock");
    let held = Lock::acquire(&path).unwrap();
    let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    drop(held);
    assert!(Lock::try_acquire(&path).unwrap().is_some());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_waiter_for_a_removed_lock_file_locks_the_new_one() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("x.lock");
    let held = Lock::acquire(&path).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Lock::acquire(&path).unwrap());
        // Wait until it has opened the old file.
        let ours = path.canonicalize().unwrap();
        let opened = || {
            let handles = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            handles.filter(|handle| std::fs::read_link(handle.path()).is_ok_and(|to| to == ours)).count() == 2
        };
        while !opened() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        drop(held);
        let _lock = waiting.join().unwrap();
        assert!(Lock::try_acquire(&path).unwrap().is_none(), "two holders");
    });
}

/// Prints the time of a proposal with `--nocapture`.
#[test]
fn a_proposal_takes_milliseconds() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    for n in 0..1000 {
        write(&root, &format!("domains/coding/patterns/unit-{n}.md"), &format!("unit {n}\n"));
    }
    commit_all(&root, "a thousand units");
    git(&root, &["gc", "-q"]);
    let repository = Repository::open(&root).unwrap();
    let lock = sandbox.lock();
    let mut times: Vec<_> = (0..40)
        .map(|n| {
            let start = Instant::now();
            repository.propose(&lock, &proposal(&format!("nugget/cost-{n}"))).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let start = Instant::now();
    repository.git().unwrap();
    println!("propose: p50 {:?}, p95 {:?}; open {:?}", times[20], times[38], start.elapsed());
    let start = Instant::now();
    let pending = repository.pending_branches().unwrap().len();
    println!("pending_branches: {:?} for {pending}", start.elapsed());
    assert!(times[20] < Duration::from_secs(2), "{times:?}");
}

#[test]
fn a_remote_is_added_once_and_all_other_bytes_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    git(&root, &["config", "nugget.note", "ü # \"quoted\""]);
    let path = root.join(".git/config");
    let mut before = std::fs::read(&path).unwrap();
    before.extend_from_slice(b"; a comment\n[empty]\n[alias]\tx = !echo # no line feed at the end");
    std::fs::write(&path, &before).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let repository = Repository::open(&root).unwrap();
    let bare = sandbox.path("with blanks; \"quotes\" \\ and # more.git");
    git(sandbox.folder.path(), &["init", "-q", "--bare", bare.to_str().unwrap()]);
    let url = bare.to_str().unwrap();
    assert!(repository.add_remote("origin", url).unwrap());
    let after = std::fs::read(&path).unwrap();
    assert_eq!(&after[..before.len()], before);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!root.join(".git/config.lock").exists());
    assert_eq!(git(&root, &["remote", "get-url", "origin"]), url);
    assert_eq!(git(&root, &["config", "nugget.note"]), "ü # \"quoted\"");
    assert_eq!(git(&root, &["config", "alias.x"]), "!echo");
    git(&root, &["push", "-q", "origin", "main"]);
    git(&root, &["fetch", "-q", "origin"]);
    assert_eq!(repository.default_branch().unwrap().remote, repository.tip("main").unwrap());

    assert!(!repository.add_remote("origin", url).unwrap());
    let error = repository.add_remote("origin", "git@example.org:me/brain.git").unwrap_err();
    assert!(matches!(error, Error::RemoteTaken { .. }) && error.hint().is_some(), "{error}");
    assert!(repository.add_remote("a b", url).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), after);

    // The configuration is the same as after `git remote add`.
    assert!(repository.add_remote("second", "git@example.org:me/brain.git").unwrap());
    let ours = std::fs::read(&path).unwrap();
    git(&root, &["remote", "remove", "second"]);
    git(&root, &["remote", "add", "second", "git@example.org:me/brain.git"]);
    assert_eq!(std::fs::read(&path).unwrap(), ours);
}

#[test]
fn adding_a_remote_waits_for_gits_configuration_lock() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let path = root.join(".git/config");
    let before = std::fs::read(&path).unwrap();
    write(&root, ".git/config.lock", "git's\n");
    let error = repository.add_remote("origin", "/srv/brain").unwrap_err();
    assert!(matches!(error, Error::ConfigurationLocked { .. }) && error.hint().is_some(), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_to_string(root.join(".git/config.lock")).unwrap(), "git's\n");
    std::fs::remove_file(root.join(".git/config.lock")).unwrap();

    // Of several that add at the same time, one adds.
    let added = std::thread::scope(|scope| {
        let add = || scope.spawn(|| repository.add_remote("origin", "/srv/brain").unwrap());
        let threads: Vec<_> = (0..8).map(|_| add()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|added| *added).count()
    });
    assert_eq!(added, 1);
    assert_eq!(git(&root, &["config", "--get-all", "remote.origin.url"]), "/srv/brain");

    // A line with a continuation would include the new section.
    std::fs::write(&path, [before.as_slice(), b"[a]\n\tb = c\\\n"].concat()).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(repository.add_remote("origin", "/srv/brain").is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(!root.join(".git/config.lock").exists());
}

fn edit(path: &str, content: &str) -> NewFile {
    NewFile { edits: true, ..file(path, content) }
}

#[test]
fn an_edit_replaces_only_an_existing_file() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    write(&root, "notes/a.md", "one\n");
    write(&root, "notes/b.md", "two\n");
    commit_all(&root, "notes");
    let repository = Repository::open(&root).unwrap();
    let with = |files| Proposal { files, ..proposal(BRANCH) };

    let nothing = repository.propose(&sandbox.lock(), &with(vec![edit("notes/none.md", "x\n")]));
    assert!(matches!(&nothing, Err(Error::NothingToEdit { path }) if path == "notes/none.md"), "{nothing:?}");
    let unasked = repository.propose(&sandbox.lock(), &with(vec![file("notes/a.md", "x\n")]));
    assert!(matches!(&unasked, Err(Error::PathTaken { .. })), "{unasked:?}");
    assert!(repository.tip(BRANCH).unwrap().is_none());

    let both = with(vec![edit("notes/a.md", "one\nand more\n"), file("notes/c.md", "three\n")]);
    let proposed = repository.propose(&sandbox.lock(), &both).unwrap();
    assert_eq!(proposed.outcome, Outcome::Created);
    assert_eq!(git(&root, &["show", &format!("{BRANCH}:notes/a.md")]), "one\nand more");
    assert_eq!(git(&root, &["diff", "--name-status", "main", BRANCH]), "M\tnotes/a.md\nA\tnotes/c.md");
    // The attempt is still found after `main` has moved.
    write(&root, "notes/a.md", "one, by hand\n");
    commit_all(&root, "by hand");
    let again = repository.propose(&sandbox.lock(), &both).unwrap();
    assert_eq!((again.outcome, again.commit), (Outcome::AlreadyThere, proposed.commit));
    fsck(&root);
}

#[test]
fn an_edit_is_merged_once_its_content_is_merged() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    write(&root, "notes/a.md", "one\n");
    commit_all(&root, "notes");
    let repository = Repository::open(&root).unwrap();
    let files = vec![edit("notes/a.md", "one\nand more\n")];
    repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap();
    assert!(!repository.is_merged(BRANCH).unwrap(), "the file has its old content");
    assert_eq!(repository.pending_branches().unwrap().len(), 1);
    git(&root, &["merge", "-q", "--squash", BRANCH]);
    commit_all(&root, "squashed");
    assert!(repository.is_merged(BRANCH).unwrap());
    assert!(repository.pending_branches().unwrap().is_empty());
}

#[test]
fn a_branch_that_has_grown_since_a_squashed_merge_is_not_merged() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    let files = vec![file("domains/note.md", "# A note\n\nOne.\nTwo.\n")];
    let proposed = repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap();
    git(&root, &["merge", "-q", "--squash", BRANCH]);
    commit_all(&root, "squashed");
    assert!(repository.is_merged(BRANCH).unwrap());
    let files = vec![edit("domains/note.md", "# A note\n\nOne.\nTwo.\nThree.\n")];
    let grown = Proposal { files, base: Some(proposed.commit), ..proposal(BRANCH) };
    repository.replace(&sandbox.lock(), &grown, proposed.commit).unwrap();
    assert!(!repository.is_merged(BRANCH).unwrap(), "the third line is nowhere else");
}

#[test]
fn what_a_branch_changes_after_a_squashed_merge_is_compared_with_what_was_merged() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let note = "# A note\n\nOne.\nTwo.\n";
    write(&root, "notes/old.md", "old\n");
    commit_all(&root, "notes");
    let repository = Repository::open(&root).unwrap();
    let files = vec![file("notes/new.md", note), edit("notes/old.md", "old\nand one\n")];
    let first = repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap().commit;
    let files = vec![edit("notes/old.md", "old\nand two\n"), edit("notes/new.md", "# A note\n\nOne.\n")];
    let grown = Proposal { files, base: Some(first), ..proposal(BRANCH) };
    repository.replace(&sandbox.lock(), &grown, first).unwrap();
    let bases = || -> Vec<(String, Option<String>)> {
        let changes = repository.branch_changes(BRANCH).unwrap().into_iter();
        let text = |content| String::from_utf8(content).unwrap();
        changes.map(|file| (file.path, file.base.map(text))).collect()
    };
    let path = |name: &str| format!("notes/{name}.md");
    assert_eq!(bases(), [(path("new"), None), (path("old"), Some("old\n".to_owned()))], "not merged yet");

    git(&root, &["merge", "-q", "--squash", &first.to_string()]);
    commit_all(&root, "squashed");
    let merged = [(path("new"), Some(note.to_owned())), (path("old"), Some("old\nand one\n".to_owned()))];
    assert_eq!(bases(), merged);
    // Also if a person has changed it since.
    write(&root, "notes/new.md", "# A note\n\nZero.\nOne.\nTwo.\n");
    commit_all(&root, "changed since");
    assert_eq!(bases(), merged);
}

#[test]
fn what_a_merge_has_left_out_is_told_except_of_edits_after_a_squash() {
    for is_squashed in [true, false] {
        let sandbox = Sandbox::new();
        let root = sandbox.repository("brain");
        write(&root, "notes/a.md", "one\n");
        commit_all(&root, "notes");
        let repository = Repository::open(&root).unwrap();
        let files = vec![
            edit("notes/a.md", "one\nmore\n"),
            file("notes/b.md", "two\n"),
            file("notes/c.md", "three\n"),
        ];
        let proposed = repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap();
        let how = if is_squashed { "--squash" } else { "--no-ff" };
        git(&root, &["merge", "-q", how, "--no-commit", BRANCH]);
        git(&root, &["mv", "-f", "notes/b.md", "notes/renamed.md"]);
        git(&root, &["rm", "-qf", "notes/c.md"]);
        write(&root, "notes/a.md", if is_squashed { "one\nmore\nand mine\n" } else { "one\n" });
        commit_all(&root, "merged");
        let files = repository.merged_files(proposed.commit).unwrap();
        let told: Vec<_> =
            files.iter().map(|file| (file.path.as_str(), file.is_merged, file.is_left_out)).collect();
        let expected =
            [("notes/a.md", false, !is_squashed), ("notes/b.md", true, false), ("notes/c.md", false, true)];
        assert_eq!(told, expected, "{how}");
        assert_eq!(repository.is_merged(BRANCH).unwrap(), !is_squashed);
    }
}

#[test]
fn a_branch_is_created_while_git_packs_references() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    repository.propose(&sandbox.lock(), &proposal("nugget/a")).unwrap();
    git(&root, &["pack-refs", "--all"]);
    write(&root, ".git/packed-refs.lock", "");
    let proposed = repository.propose(&sandbox.lock(), &proposal("nugget/b")).unwrap();
    assert_eq!(git(&root, &["rev-parse", "nugget/b"]), proposed.commit.to_string());
    assert!(root.join(".git/packed-refs.lock").exists(), "it belongs to git");
    // A packed branch is found too.
    let again = repository.propose(&sandbox.lock(), &proposal("nugget/a")).unwrap();
    assert_eq!(again.outcome, Outcome::AlreadyThere);
    std::fs::remove_file(root.join(".git/packed-refs.lock")).unwrap();
    fsck(&root);
}

/// A clone whose remote is another folder.
fn with_remote(sandbox: &Sandbox) -> (PathBuf, Repository) {
    sandbox.repository("there");
    git(&sandbox.path(""), &["clone", "-q", "there", "here"]);
    let root = sandbox.path("here");
    (root.clone(), Repository::open(&root).unwrap())
}

fn try_fetch(repository: &Repository) -> Result<Fetched, Error> {
    let remote = repository.remote().unwrap().unwrap();
    let session = RemoteSession { remote: &remote, credentials: None, deadline: Duration::from_secs(60) };
    repository.fetch(&session)
}

fn fetch(repository: &Repository) -> Fetched {
    try_fetch(repository).unwrap()
}

#[test]
fn a_remote_without_the_branch_that_the_brain_names_is_an_error() {
    let sandbox = Sandbox::new();
    let (_, repository) = with_remote(&sandbox);
    let repository = repository.with_default_branch(Some("main"));
    assert!(!fetch(&repository).moved);
    let there = sandbox.path("there");
    git(&there, &["branch", "-m", "main", "trunk"]);
    write(&there, "news.md", "news\n");
    commit_all(&there, "news");
    let before = repository.default_branch().unwrap();
    let error = try_fetch(&repository).unwrap_err();
    let is_named = error.to_string().contains("trunk") && error.hint().is_some();
    assert!(matches!(error, Error::Remote { failure: RemoteFailure::NoBranch, .. }) && is_named, "{error}");
    assert_eq!(repository.default_branch().unwrap(), before);
    let repository = repository.with_default_branch(Some("trunk"));
    assert_eq!(fetch(&repository).tip, Some(git(&there, &["rev-parse", "trunk"]).parse().unwrap()));
    // A remote without branches is new.
    git(&there, &["checkout", "-q", "--detach"]);
    git(&there, &["branch", "-D", "trunk"]);
    assert_eq!(fetch(&repository).tip, None);
}

#[test]
fn stale_marked_locks_are_removed_and_gits_own_are_not() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_remote(&sandbox);
    let marked = "held by nugget\n";
    let stale = |path: &str, content: &str| {
        write(&root, path, content);
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::options().write(true).open(root.join(path)).unwrap().set_modified(hour_ago).unwrap();
    };
    let is_there = |path: &str| root.join(path).exists();
    // Removed by a fetch without news.
    let ours = [
        ".git/refs/remotes/origin/main.lock",
        ".git/refs/remotes/origin/nugget/x.lock",
        ".git/packed-refs.lock",
    ];
    for path in ours {
        stale(path, marked);
    }
    stale(".git/refs/remotes/origin/theirs.lock", "");
    fetch(&repository);
    assert_eq!(ours.map(is_there), [false; 3]);
    assert!(is_there(".git/refs/remotes/origin/theirs.lock"), "a git process may hold it");
    std::fs::remove_file(root.join(".git/refs/remotes/origin/theirs.lock")).unwrap();
    // Removed by a merge with nothing to do, and by a proposal.
    for path in [".git/refs/heads/main.lock", ".git/index.lock"] {
        stale(path, marked);
    }
    assert_eq!(repository.catch_up(&sandbox.lock()).unwrap(), FastForward::AlreadyThere);
    assert!(!is_there(".git/refs/heads/main.lock") && !is_there(".git/index.lock"));
    stale(".git/packed-refs.lock", marked);
    repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    assert!(!is_there(".git/packed-refs.lock"));
    // The process was killed between linking the lock and removing its temporary name.
    stale(".git/nugget-lock.tmp", marked);
    std::fs::hard_link(root.join(".git/nugget-lock.tmp"), root.join(".git/refs/heads/main.lock")).unwrap();
    write(&sandbox.path("there"), "news.md", "news\n");
    commit_all(&sandbox.path("there"), "news");
    assert!(fetch(&repository).moved);
    assert!(matches!(repository.catch_up(&sandbox.lock()).unwrap(), FastForward::Done { .. }));
    assert!(!is_there(".git/refs/heads/main.lock") && !is_there(".git/nugget-lock.tmp"));
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
}

#[test]
fn catching_up_follows_removals_and_keeps_uncommitted_edits() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_remote(&sandbox);
    let there = sandbox.path("there");
    git(&there, &["mv", "domains/coding/patterns/first.md", "renamed.md"]);
    write(&there, "README.md", "edited there\n");
    write(&there, ".github/workflows/check.yml", "on: push\n");
    commit_all(&there, "there");
    fetch(&repository);
    // A local edit: `lag` reports the refusal before the attempt.
    write(&root, "domains/coding/patterns/first.md", "mine\n");
    let before = state(&root);
    let expected = Refusal::Changed("domains/coding/patterns/first.md".to_owned());
    assert_eq!(repository.lag().unwrap().blocked, Some(expected.clone()));
    assert_eq!(repository.catch_up(&sandbox.lock()).unwrap(), FastForward::Refused(expected));
    assert_eq!(state(&root), before);
    // Removed from the index, but kept by the user.
    write(&root, "domains/coding/patterns/first.md", "first\n");
    git(&root, &["rm", "-q", "--cached", "domains/coding/patterns/first.md"]);
    let refused = repository.catch_up(&sandbox.lock()).unwrap();
    assert!(matches!(refused, FastForward::Refused(Refusal::Staged(_))), "{refused:?}");
    git(&root, &["add", "-A"]);
    // An untracked file of the user's in the same folder stays.
    write(&root, "domains/coding/patterns/mine.md", "mine\n");
    assert_eq!(repository.lag().unwrap().blocked, None);
    assert!(matches!(repository.catch_up(&sandbox.lock()).unwrap(), FastForward::Done { .. }));
    assert_eq!(git(&root, &["status", "--porcelain"]), "?? domains/");
    assert!(!root.join("domains/coding/patterns/first.md").exists() && root.join("renamed.md").is_file());
    assert_eq!(git(&root, &["rev-parse", "main"]), git(&there, &["rev-parse", "main"]));
    assert_eq!(git(&root, &["reflog", "-1", "--format=%gs", "HEAD"]), "merge origin/main: Fast-forward");
    fsck(&root);
}

#[test]
fn a_killed_removal_is_completed_by_a_repetition() {
    for is_in_index in [false, true] {
        let sandbox = Sandbox::new();
        let (root, repository) = with_remote(&sandbox);
        git(&sandbox.path("there"), &["rm", "-q", "-r", "domains"]);
        commit_all(&sandbox.path("there"), "removed");
        fetch(&repository);
        // The state after a kill: the file is removed, then also its index entry.
        std::fs::remove_dir_all(root.join("domains")).unwrap();
        if is_in_index {
            git(&root, &["add", "-A"]);
        }
        assert!(matches!(repository.catch_up(&sandbox.lock()).unwrap(), FastForward::Done { .. }));
        assert_eq!(git(&root, &["status", "--porcelain"]), "");
        fsck(&root);
    }
}

/// Prints the time with `--nocapture`.
#[test]
fn many_packed_branches_that_are_gone_at_the_remote_go_at_once() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_remote(&sandbox);
    let there = sandbox.path("there");
    let commit = git(&there, &["rev-parse", "main"]);
    let packed = std::fs::read_to_string(root.join(".git/packed-refs")).unwrap_or_default();
    let line = |n: usize| format!("{commit} refs/remotes/origin/nugget/session-{n:04}\n");
    let many: String = (0..1000).map(line).collect();
    std::fs::write(root.join(".git/packed-refs"), packed + &many).unwrap();
    git(&there, &["branch", "nugget/session-0007"]);
    // Also not packed, and with a log.
    write(&root, ".git/refs/remotes/origin/nugget/session-0009", &format!("{commit}\n"));
    write(&root, ".git/logs/refs/remotes/origin/nugget/session-0009", "");
    let start = Instant::now();
    fetch(&repository);
    println!("999 branches were removed in {:?}", start.elapsed());
    let left: Vec<_> = repository.remote_branches().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["nugget/session-0007"]);
    assert!(!root.join(".git/logs/refs/remotes/origin/nugget/session-0009").exists());
    assert_eq!(git(&root, &["for-each-ref", "--format=%(refname)"]).lines().count(), 4);
    assert_eq!(std::fs::read_dir(root.join(".git/refs/remotes/origin/nugget")).unwrap().count(), 0);
}
