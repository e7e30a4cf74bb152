//! Tests with real git the state after a merge, completed or killed in between.

use std::time::Instant;

use super::*;
use crate::tests::{BRANCH, Sandbox, commit_all, fsck, git, git_fails, proposal, state, write};
use crate::work_tree::TEMPORARY;
use crate::{Identity, NewFile, Proposal};

/// A repository with a pending proposal, and the path of one of its files.
fn with_proposal(sandbox: &Sandbox) -> (PathBuf, Repository, String) {
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    (root, repository, proposal(BRANCH).files[0].path.clone())
}

/// Adds a commit to the branch as a reviewer would.
fn review(root: &Path, change: impl Fn()) {
    git(root, &["checkout", "-q", BRANCH]);
    change();
    commit_all(root, "review");
    git(root, &["checkout", "-q", "main"]);
}

fn prepared(repository: &Repository, sandbox: &Sandbox) -> Merge {
    let git = repository.git().unwrap();
    let default = repository.default_branch_of(&git).unwrap();
    let to = tip(&git, &reference_name(BRANCH).unwrap()).unwrap().unwrap();
    let source = Source {
        name: BRANCH.to_owned(),
        to,
        is_reviewed: false,
        may_remove: false,
        allows_other_edits: false,
    };
    let merge = Merge::prepare(repository, Some(&sandbox.lock()), git, default, &source).unwrap();
    merge.unwrap_or_else(|_| panic!("it is refused"))
}

fn check_merged(root: &Path, from: &str, outcome: FastForward) {
    let to = git(root, &["rev-parse", BRANCH]);
    assert_eq!(outcome, FastForward::Done { from: from.parse().unwrap(), to: to.parse().unwrap() });
    assert_eq!(git(root, &["rev-parse", "main", "HEAD"]), format!("{to}\n{to}"));
    assert_eq!(git(root, &["rev-parse", "--symbolic-full-name", "HEAD"]), "refs/heads/main");
    assert_eq!(git(root, &["status", "--porcelain", "--ignored"]), "");
    assert_eq!(git(root, &["diff-files"]), "", "the index has the files' metadata");
    assert_eq!(git(root, &["write-tree"]), git(root, &["rev-parse", "HEAD^{tree}"]));
    for log in ["HEAD", "main"] {
        let last = git(root, &["reflog", "-1", "--format=%gs", log]);
        assert_eq!(last, format!("merge {BRANCH}: Fast-forward"));
    }
    for name in ["index.lock", "nugget-index.tmp", "nugget-lock.tmp", "nugget-reference.tmp", "HEAD.lock"] {
        assert!(!root.join(".git").join(name).exists(), "{name}");
    }
    fsck(root);
}

fn check_refused(sandbox: &Sandbox, root: &Path, expected: impl Fn(&Refusal) -> bool) {
    let before = state(root);
    let outcome = Repository::open(root).unwrap().fast_forward(&sandbox.lock(), BRANCH).unwrap();
    let FastForward::Refused(reason) = outcome else { panic!("{outcome:?}") };
    assert!(expected(&reason), "{reason:?}");
    assert!(!reason.to_string().is_empty());
    assert_eq!(state(root), before, "refused, but something changed");
}

#[test]
fn a_merge_has_the_same_result_as_gits() {
    let sandbox = Sandbox::new();
    let (root, repository, _) = with_proposal(&sandbox);
    review(&root, || {
        write(&root, "README.md", "edited by a reviewer\n");
        write(&root, "a.md", "first in the index\n");
        write(&root, "domains/new/folder/deep.md", "");
    });
    let from = git(&root, &["rev-parse", "main"]);
    // The merge must drop the index's cached tree.
    git(&root, &["write-tree"]);
    write(&root, ".git/info/exclude", "*.ignored\n");
    let outcome = repository.fast_forward(&sandbox.lock(), BRANCH).unwrap();
    check_merged(&root, &from, outcome);
    assert_eq!(std::fs::read_to_string(root.join("README.md")).unwrap(), "edited by a reviewer\n");
    // The user commits on top.
    write(&root, "mine.md", "mine\n");
    commit_all(&root, "mine");
    assert_eq!(git(&root, &["diff", "--name-status", BRANCH, "main"]), "A\tmine.md");
    assert_eq!(repository.fast_forward(&sandbox.lock(), BRANCH).unwrap(), FastForward::AlreadyThere);
    fsck(&root);
}

#[test]
fn a_killed_merge_is_completed_by_a_repetition() {
    for steps in 0..4 {
        let sandbox = Sandbox::new();
        let (root, repository, path) = with_proposal(&sandbox);
        review(&root, || write(&root, "README.md", "edited by a reviewer\n"));
        let from = git(&root, &["rev-parse", "main"]);
        let mut merge = prepared(&repository, &sandbox);
        if steps == 1 {
            let tree = merge.tree.as_mut().unwrap();
            let change = &tree.changes[1];
            let Some(content) = &change.content else { panic!() };
            work_tree::write(&tree.root, &change.path, content, true, false).unwrap();
            // Another file is half written.
            write(&root, &format!("domains/cooking/concepts/{TEMPORARY}"), "# sess");
        }
        if steps >= 2 {
            merge.write_files().unwrap();
        }
        if steps >= 3 {
            merge.write_index().unwrap();
        }
        // As after a kill: the locks stay.
        std::mem::forget(merge);
        assert!(root.join(".git/index.lock").is_file());
        let status = git(&root, &["status", "--porcelain", "--untracked-files=all"]);
        let expected = match steps {
            0 => "",
            1 => "?? domains/coding/bugs/",
            2 => " M README.md\n?? domains/",
            _ => "M  README.md\nA  domains/",
        };
        assert!(status.starts_with(expected), "{steps}: {status}");
        assert_eq!(root.join(&path).exists(), steps >= 2);
        let outcome = repository.fast_forward(&sandbox.lock(), BRANCH).unwrap();
        if steps == 1 {
            assert_eq!(git(&root, &["status", "--porcelain"]), "", "the half-written file is removed");
        }
        check_merged(&root, &from, outcome);
    }
}

#[test]
fn uncommitted_changes_are_never_lost() {
    type Edit = fn(&Path, &str);
    let edits: [(&str, Edit); 16] = [
        ("edited", |root, _| write(root, "brain.yaml", "name: mine\n")),
        // Of the same length, and in the same second as the index.
        ("edited a little", |root, _| write(root, "README.md", "read ME\n")),
        ("edited in secret", |root, _| {
            let path = root.join("README.md");
            let modified = path.metadata().unwrap().modified().unwrap();
            write(root, "README.md", "read ME\n");
            File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
        }),
        ("deleted", |root, _| std::fs::remove_file(root.join("brain.yaml")).unwrap()),
        ("made executable", |root, _| {
            use std::os::unix::fs::PermissionsExt as _;
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join("brain.yaml"), executable).unwrap();
        }),
        ("made a link", |root, _| {
            std::fs::remove_file(root.join("README.md")).unwrap();
            std::os::unix::fs::symlink("brain.yaml", root.join("README.md")).unwrap();
        }),
        ("staged", |root, _| {
            write(root, "brain.yaml", "name: mine\n");
            git(root, &["add", "-A"]);
        }),
        ("staged new", |root, _| {
            write(root, "mine.md", "mine\n");
            git(root, &["add", "-A"]);
        }),
        ("meant to be added", |root, _| {
            write(root, "mine.md", "mine\n");
            git(root, &["add", "-N", "mine.md"]);
        }),
        ("staged deletion", |root, _| drop(git(root, &["rm", "-q", "--cached", "brain.yaml"]))),
        ("no index", |root, _| std::fs::remove_file(root.join(".git/index")).unwrap()),
        ("untracked in the way", |root, path| write(root, path, "mine\n")),
        ("ignored in the way", |root, path| {
            write(root, path, "mine\n");
            write(root, ".git/info/exclude", "*.md\n");
        }),
        ("a folder in the way", |root, path| write(root, &format!("{path}/mine.md"), "mine\n")),
        ("a file where a folder goes", |root, _| write(root, "domains/cooking", "mine\n")),
        ("a link where a folder goes", |root, _| {
            std::fs::create_dir_all(root.join("../elsewhere/concepts")).unwrap();
            std::os::unix::fs::symlink("../../elsewhere", root.join("domains/cooking")).unwrap();
        }),
    ];
    for (what, edit) in edits {
        println!("{what}");
        let sandbox = Sandbox::new();
        let (root, _, path) = with_proposal(&sandbox);
        review(&root, || write(&root, "README.md", "edited by a reviewer\n"));
        edit(&root, &path);
        check_refused(&sandbox, &root, |reason| match what {
            "staged" | "staged new" | "meant to be added" | "staged deletion" | "no index" => {
                matches!(reason, Refusal::Staged(_))
            }
            _ if what.contains("goes") || what.contains("in the way") => {
                matches!(reason, Refusal::UntrackedInTheWay(_))
            }
            _ => matches!(reason, Refusal::Changed(_)),
        });
    }
}

#[test]
fn a_merge_needs_the_default_branch_checked_out_and_idle() {
    let sandbox = Sandbox::new();
    let (root, repository, _) = with_proposal(&sandbox);
    let lock = sandbox.lock();
    let error = repository.fast_forward(&lock, "main").unwrap_err();
    assert!(matches!(error, Error::ForeignBranch { .. }), "{error}");
    let error = repository.fast_forward(&lock, "nugget/none").unwrap_err();
    assert!(matches!(error, Error::NoSuchBranch { .. }), "{error}");
    drop(lock);

    git(&root, &["checkout", "-q", "-b", "feature"]);
    check_refused(&sandbox, &root, |reason| {
        *reason == Refusal::OtherBranchCheckedOut(Some("feature".into()))
    });
    git(&root, &["checkout", "-q", "--detach"]);
    check_refused(&sandbox, &root, |reason| *reason == Refusal::OtherBranchCheckedOut(None));
    git(&root, &["checkout", "-q", "main"]);

    git(&root, &["bisect", "start"]);
    check_refused(&sandbox, &root, |reason| matches!(reason, Refusal::InProgress(_)));
    git(&root, &["bisect", "reset"]);
    write(&root, ".git/index.lock", "");
    check_refused(&sandbox, &root, |reason| matches!(reason, Refusal::IndexLocked(_)));
    std::fs::remove_file(root.join(".git/index.lock")).unwrap();

    git(&root, &["worktree", "add", "-q", "--force", "../linked", "main"]);
    check_refused(&sandbox, &root, |reason| *reason == Refusal::CheckedOutElsewhere);
    git(&root, &["worktree", "remove", "../linked"]);

    write(&root, "mine.md", "mine\n");
    commit_all(&root, "mine");
    check_refused(&sandbox, &root, |reason| *reason == Refusal::NotAFastForward);
    git_fails(&root, &["merge", "--ff-only", BRANCH]);
}

#[test]
fn a_branch_that_does_more_than_write_files_is_refused() {
    type Review = fn(&Path);
    let reviews: [Review; 5] = [
        |root| std::fs::remove_file(root.join("README.md")).unwrap(),
        |root| std::os::unix::fs::symlink("/etc/passwd", root.join("link.md")).unwrap(),
        |root| write(root, ".gitattributes", "* filter=evil\n"),
        |root| write(root, "large.md", &"x".repeat(crate::BLOB_BYTES_MAX as usize + 1)),
        |root| {
            use std::os::unix::fs::PermissionsExt as _;
            write(root, "run.sh", "x\n");
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join("run.sh"), executable).unwrap();
        },
    ];
    for change in reviews {
        let sandbox = Sandbox::new();
        let (root, _, _) = with_proposal(&sandbox);
        review(&root, || change(&root));
        check_refused(&sandbox, &root, |reason| matches!(reason, Refusal::Unsupported(..)));
    }
}

#[test]
fn linked_work_trees_shallow_clones_and_packed_branches_merge() {
    let sandbox = Sandbox::new();
    let (root, repository, _) = with_proposal(&sandbox);
    let from = git(&root, &["rev-parse", "main"]);
    git(&root, &["pack-refs", "--all", "--prune"]);
    git(&root, &["checkout", "-q", "--detach"]);
    git(&root, &["worktree", "add", "-q", "../linked", "main"]);
    let linked = sandbox.path("linked");
    let outcome = Repository::open(&linked).unwrap().fast_forward(&sandbox.lock(), BRANCH).unwrap();
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&linked, &["status", "--porcelain"]), "");
    git(&root, &["worktree", "remove", "../linked"]);
    git(&root, &["branch", "-f", "main", &from]);
    git(&root, &["checkout", "-q", "main"]);
    let outcome = repository.fast_forward(&sandbox.lock(), BRANCH).unwrap();
    check_merged(&root, &from, outcome);

    let url = format!("file://{}", root.display());
    git(&sandbox.path(""), &["clone", "-q", "--depth=1", &url, "shallow"]);
    let shallow = sandbox.path("shallow");
    let repository = Repository::open(&shallow).unwrap();
    let name = "nugget/shallow-1";
    repository.propose(&sandbox.lock(), &proposal(name)).unwrap();
    let outcome = repository.fast_forward(&sandbox.lock(), name).unwrap();
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&shallow, &["status", "--porcelain"]), "");
}

#[test]
fn in_a_bare_repository_only_the_branch_is_moved() {
    let sandbox = Sandbox::new();
    with_proposal(&sandbox);
    git(&sandbox.path(""), &["clone", "-q", "--bare", "brain", "bare"]);
    let root = sandbox.path("bare");
    let repository = Repository::open(&root).unwrap();
    let outcome = repository.fast_forward(&sandbox.lock(), BRANCH).unwrap();
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&root, &["rev-parse", "main"]), git(&root, &["rev-parse", BRANCH]));
    assert!(!root.join("index").exists() && !root.join("domains").exists());
    assert_eq!(repository.fast_forward(&sandbox.lock(), BRANCH).unwrap(), FastForward::AlreadyThere);
    fsck(&root);
}

#[test]
fn a_branch_that_moved_meanwhile_is_not_moved_back() {
    let sandbox = Sandbox::new();
    let (root, repository, _) = with_proposal(&sandbox);
    let mut merge = prepared(&repository, &sandbox);
    git_fails(&root, &["commit", "-q", "--allow-empty", "-m", "beside us"]);
    merge.write_files().unwrap();
    merge.write_index().unwrap();
    git(&root, &["update-ref", "refs/heads/main", "main~1"]);
    let moved = git(&root, &["rev-parse", "main"]);
    assert!(merge.move_branch(&sandbox.lock()).is_err());
    assert_eq!(git(&root, &["rev-parse", "main"]), moved);
}

/// Prints the time of a merge with `--nocapture`.
#[test]
fn a_merge_takes_milliseconds() {
    let sandbox = Sandbox::new();
    let root = sandbox.repository("brain");
    for n in 0..1000 {
        write(&root, &format!("domains/coding/patterns/unit-{n}.md"), &format!("unit {n}\n"));
    }
    commit_all(&root, "a thousand units");
    let repository = Repository::open(&root).unwrap();
    let mut times: Vec<_> = (0..20)
        .map(|n| {
            let branch = format!("nugget/cost-{n}");
            let file = NewFile { path: format!("notes/{n}.md"), content: b"note\n".to_vec(), edits: false };
            let author = Identity::default();
            let proposal = Proposal { files: vec![file], author, ..proposal(&branch) };
            repository.propose(&sandbox.lock(), &proposal).unwrap();
            let start = Instant::now();
            let outcome = repository.fast_forward(&sandbox.lock(), &branch).unwrap();
            assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("fast_forward among 1,000 files: p50 {:?}, max {:?}", times[10], times[19]);
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
}

/// A file name that Windows refuses is usual in adopted vaults; a file on some disks is always executable.
#[test]
fn files_with_unusual_names_or_modes_are_edited_removed_and_followed() {
    use std::os::unix::fs::PermissionsExt as _;
    let names = ["domains/messaging/vis: twice?.md", "notes/\u{1f468}\u{200d}\u{1f33e}.md", "dot.", "run.md"];
    let sandbox = Sandbox::new();
    let there = sandbox.repository("there");
    for name in names {
        write(&there, name, "before\n");
    }
    std::fs::set_permissions(there.join("run.md"), std::fs::Permissions::from_mode(0o755)).unwrap();
    commit_all(&there, "unusual");
    git(&sandbox.path(""), &["clone", "-q", "there", "here"]);
    let root = sandbox.path("here");
    let repository = Repository::open(&root).unwrap();
    let edit = |name: &&str| NewFile { path: (*name).to_owned(), content: b"after\n".to_vec(), edits: true };
    let files: Vec<_> = names[1..].iter().map(edit).collect();
    let removes = vec![names[0].to_owned()];
    repository.propose(&sandbox.lock(), &Proposal { files, removes, ..proposal(BRANCH) }).unwrap();
    let to = repository.tip(BRANCH).unwrap().unwrap();
    let outcome = repository.advance_default(&sandbox.lock(), to, BRANCH).unwrap();
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert!(git(&root, &["ls-tree", "main", "run.md"]).starts_with("100755 "));
    assert!(!root.join(names[0]).exists());
    assert_eq!(std::fs::read(root.join(names[1])).unwrap(), b"after\n");
    fsck(&root);

    // A new file keeps to what every system accepts.
    let files = vec![NewFile { path: "a: b.md".into(), content: b"x\n".to_vec(), edits: false }];
    let error =
        repository.propose(&sandbox.lock(), &Proposal { files, ..proposal("nugget/new") }).unwrap_err();
    assert!(matches!(error, Error::InvalidPath { .. }), "{error}");

    // The remote's branch edits, adds and removes such files.
    git(&root, &["reset", "-q", "--hard", "origin/main"]);
    write(&there, names[0], "there\n");
    write(&there, "run.md", "there\n");
    write(&there, "is it new?.md", "there\n");
    git(&there, &["rm", "-q", "dot."]);
    commit_all(&there, "more of it");
    git(&root, &["fetch", "-q"]);
    let outcome = repository.catch_up(&sandbox.lock()).unwrap();
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert_eq!(std::fs::read(root.join("is it new?.md")).unwrap(), b"there\n");
    let mode = root.join("run.md").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o100, 0o100, "{mode:o}");
}

/// A clone whose remote is another folder, of the same files.
fn with_remote(sandbox: &Sandbox) -> (PathBuf, PathBuf, Repository) {
    let there = sandbox.repository("there");
    git(&sandbox.path(""), &["clone", "-q", "there", "here"]);
    let root = sandbox.path("here");
    (there, root.clone(), Repository::open(&root).unwrap())
}

fn caught_up(sandbox: &Sandbox, root: &Path, repository: &Repository) -> FastForward {
    git(root, &["fetch", "-q"]);
    repository.catch_up(&sandbox.lock()).unwrap()
}

#[test]
fn a_file_that_git_filters_is_neither_committed_nor_checked_out() {
    let sandbox = Sandbox::new();
    let (there, root, repository) = with_remote(&sandbox);
    write(
        &there,
        ".gitattributes",
        "domains/coding/**/*.md filter=crypt\n*.png -text filter=lfs\n*.txt -filter\n",
    );
    commit_all(&there, "filters");
    assert!(matches!(caught_up(&sandbox, &root, &repository), FastForward::Done { .. }));
    let error = repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap_err();
    assert!(matches!(&error, Error::Filtered { filter, .. } if filter == "crypt"), "{error}");
    assert!(error.hint().is_some());
    assert_eq!(repository.tip(BRANCH).unwrap(), None);
    // Other folders have no filter.
    let files = proposal(BRANCH).files[2..].to_vec();
    repository.propose(&sandbox.lock(), &Proposal { files, ..proposal(BRANCH) }).unwrap();

    write(&there, "a.png", "version https://git-lfs.github.com/spec/v1\n");
    commit_all(&there, "a picture");
    let outcome = caught_up(&sandbox, &root, &repository);
    assert_eq!(outcome, FastForward::Refused(Refusal::Filtered("a.png".to_owned())));
    assert!(!root.join("a.png").exists());
}

#[test]
fn a_sparse_checkout_is_left_to_git() {
    for is_index_sparse in ["--sparse-index", "--no-sparse-index"] {
        let sandbox = Sandbox::new();
        let (there, root, repository) = with_remote(&sandbox);
        write(&there, "domains/cooking/a.md", "a\n");
        commit_all(&there, "more");
        git(&root, &["pull", "-q"]);
        git(&root, &["sparse-checkout", "set", "--cone", is_index_sparse, "domains/coding"]);
        write(&there, "domains/cooking/b.md", "b\n");
        commit_all(&there, "outside");
        let outcome = caught_up(&sandbox, &root, &repository);
        assert_eq!(outcome, FastForward::Refused(Refusal::Sparse), "{is_index_sparse}");
        assert!(!root.join("domains/cooking").exists());
        git(&root, &["merge", "-q", "--ff-only", "origin/main"]);
    }
}

#[test]
fn line_endings_that_git_has_changed_are_no_edits() {
    let sandbox = Sandbox::new();
    let (there, root, repository) = with_remote(&sandbox);
    git(&root, &["config", "core.autocrlf", "true"]);
    write(&root, "README.md", "read me\r\n");
    write(&root, "brain.yaml", "name: test\r\n");
    git(&root, &["add", "-A"]);
    // Another time than in the index, so that it is compared by content.
    let brain = File::options().write(true).open(root.join("brain.yaml")).unwrap();
    brain.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    write(&there, "README.md", "edited there\n");
    commit_all(&there, "there");
    let outcome = caught_up(&sandbox, &root, &repository);
    assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert_eq!(std::fs::read(root.join("brain.yaml")).unwrap(), b"name: test\r\n");
}

#[test]
fn a_killed_merge_is_completed_after_the_remote_has_moved_on() {
    for is_in_index in [false, true] {
        let sandbox = Sandbox::new();
        let (there, root, repository) = with_remote(&sandbox);
        for text in ["first\n", "second\n"] {
            write(&there, "README.md", text);
            write(&there, "new.md", text);
            commit_all(&there, text);
        }
        // A merge of the first commit was killed.
        write(&root, "README.md", "first\n");
        write(&root, "new.md", "first\n");
        if is_in_index {
            git(&root, &["add", "-A"]);
        }
        let outcome = caught_up(&sandbox, &root, &repository);
        assert!(matches!(outcome, FastForward::Done { .. }), "{outcome:?}");
        assert_eq!(git(&root, &["status", "--porcelain"]), "");
        assert_eq!(std::fs::read(root.join("new.md")).unwrap(), b"second\n");
        fsck(&root);
    }
}
