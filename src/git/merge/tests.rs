//! Tests with real git what a merge of chosen files leaves behind, whatever else is in the work tree.

use std::path::PathBuf;

use super::*;
use crate::tests::{BRANCH, Sandbox, commit_all, fsck, git, git_fails, proposal, state, write};
use crate::{Proposal, Remote};

/// A repository with a pending proposal of three files.
fn with_proposal(sandbox: &Sandbox) -> (PathBuf, Repository) {
    let root = sandbox.repository("brain");
    let repository = Repository::open(&root).unwrap();
    repository.propose(&sandbox.lock(), &proposal(BRANCH)).unwrap();
    (root, repository)
}

/// Merges these files of the proposal on the local default branch, as a part or as the whole.
fn merge(sandbox: &Sandbox, repository: &Repository, files: &[usize], whole: bool) -> FastForward {
    let files: Vec<NewFile> = files.iter().map(|at| proposal(BRANCH).files[*at].clone()).collect();
    let lock = sandbox.lock();
    let merge = Merge {
        base: repository.default_branch().unwrap().local.unwrap(),
        branch: whole.then(|| repository.tip(BRANCH).unwrap().unwrap()),
        files: &files,
        removes: &[],
        message: "Merge 1 unit\n\nBody.",
        time: "2026-11-21T08:00:00Z".parse().unwrap(),
        author: &Identity { name: "A Person".into(), email: "person@example.org".into() },
    };
    let prepared = repository.prepare_merge(&lock, &merge).unwrap().expect("there is something to merge");
    repository.complete_merge(&lock, &prepared, BRANCH).unwrap()
}

fn is_done(outcome: &FastForward) -> bool {
    matches!(outcome, FastForward::Done { .. })
}

#[test]
fn a_part_is_one_commit_and_the_rest_a_merge_commit() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    assert!(is_done(&merge(&sandbox, &repository, &[0], false)));
    let path = &proposal(BRANCH).files[0].path;
    assert_eq!(
        git(&root, &["show", "--format=%an <%ae> %cn %s", "--name-only", "main"]),
        format!("A Person <person@example.org> A Person Merge 1 unit\n\n{path}")
    );
    assert_eq!(git(&root, &["status", "--porcelain", "--ignored"]), "");
    assert!(!repository.is_merged(BRANCH).unwrap());
    assert!(is_done(&merge(&sandbox, &repository, &[0, 1, 2], true)));
    assert_eq!(git(&root, &["rev-parse", "main^2"]), git(&root, &["rev-parse", BRANCH]));
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
    assert!(repository.is_merged(BRANCH).unwrap());
    assert_eq!(repository.merged_branches().unwrap().len(), 1);
    fsck(&root);
}

#[test]
fn other_uncommitted_and_staged_edits_stay() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    write(&root, "README.md", "my edit\n");
    write(&root, "staged.md", "staged\n");
    write(&root, "untracked.md", "untracked\n");
    git(&root, &["add", "staged.md"]);
    git(&root, &["rm", "-q", "--cached", "brain.yaml"]);
    let before = git(&root, &["status", "--porcelain"]);
    assert!(is_done(&merge(&sandbox, &repository, &[0, 1], false)));
    assert_eq!(git(&root, &["status", "--porcelain"]), before);
    assert_eq!(git(&root, &["diff", "--name-only"]), "README.md");
    assert_eq!(std::fs::read_to_string(root.join("README.md")).unwrap(), "my edit\n");
    assert_eq!(
        git(&root, &["ls-tree", "--name-only", "main", "README.md", "brain.yaml", "staged.md"]),
        "README.md\nbrain.yaml"
    );
    fsck(&root);
}

#[test]
fn an_edit_of_the_same_file_is_never_overwritten() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    let path = proposal(BRANCH).files[0].path.clone();
    write(&root, &path, "mine, not committed\n");
    let before = state(&root);
    let outcome = merge(&sandbox, &repository, &[0], false);
    assert_eq!(outcome, FastForward::Refused(Refusal::UntrackedInTheWay(path.clone())));
    assert_eq!(state(&root), before);

    // An edited file that the proposal edits too.
    git(&root, &["clean", "-qfd"]);
    let edit = NewFile { path: "README.md".into(), content: b"proposed\n".to_vec(), edits: true };
    let other = Proposal { branch: "nugget/edit-1".into(), files: vec![edit.clone()], ..proposal(BRANCH) };
    repository.propose(&sandbox.lock(), &other).unwrap();
    write(&root, "README.md", "my edit\n");
    let before = state(&root);
    let lock = sandbox.lock();
    let to = repository.tip("nugget/edit-1").unwrap().unwrap();
    let outcome = repository.advance_default(&lock, to, "nugget/edit-1").unwrap();
    assert_eq!(outcome, FastForward::Refused(Refusal::Changed("README.md".into())));
    assert_eq!(state(&root), before);
}

#[test]
fn a_branch_that_no_work_tree_has_is_moved_alone() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    for checkout in [&["checkout", "-q", "--detach"][..], &["checkout", "-q", "-b", "topic", "main"]] {
        git(&root, checkout);
        write(&root, "README.md", "my edit\n");
        let (head, status) = (git(&root, &["rev-parse", "HEAD"]), git(&root, &["status", "--porcelain"]));
        let file = usize::from(checkout.contains(&"topic"));
        assert!(is_done(&merge(&sandbox, &repository, &[file], false)), "{checkout:?}");
        assert_eq!(git(&root, &["rev-parse", "HEAD"]), head);
        assert_eq!(git(&root, &["status", "--porcelain"]), status);
        assert_ne!(git(&root, &["rev-parse", "main"]), head);
        git(&root, &["checkout", "-q", "--", "README.md"]);
    }
    fsck(&root);
}

#[test]
fn in_linked_work_trees_only_the_one_with_the_branch_merges() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    git(&root, &["worktree", "add", "-q", "--detach", "../linked"]);
    let linked = sandbox.path("linked");
    let other = Repository::open(&linked).unwrap();
    let before = (state(&root), state(&linked));
    assert_eq!(merge(&sandbox, &other, &[0], false), FastForward::Refused(Refusal::CheckedOutElsewhere));
    assert_eq!((state(&root), state(&linked)), before);
    assert!(is_done(&merge(&sandbox, &repository, &[0], false)));
    git(&root, &["checkout", "-q", "--detach"]);
    git(&linked, &["checkout", "-q", "main"]);
    assert!(is_done(&merge(&sandbox, &other, &[1], false)));
    assert_eq!(git(&linked, &["status", "--porcelain"]), "");
    fsck(&root);
}

#[test]
fn a_merge_that_was_killed_is_completed_by_the_next() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    let files = proposal(BRANCH).files;
    // Killed after the files, then after the index.
    for (at, stage) in [(0, false), (1, true)] {
        write(&root, &files[at].path, std::str::from_utf8(&files[at].content).unwrap());
        if stage {
            git(&root, &["add", &files[at].path]);
        }
        assert!(is_done(&merge(&sandbox, &repository, &[at], false)));
        assert_eq!(git(&root, &["status", "--porcelain"]), "");
    }
    // After the branch was moved nothing is left to do.
    let lock = sandbox.lock();
    let again = Merge {
        base: repository.default_branch().unwrap().local.unwrap(),
        branch: None,
        files: &files[..2],
        removes: &[],
        message: "again",
        time: "2026-11-21T08:00:00Z".parse().unwrap(),
        author: &Identity::default(),
    };
    assert!(repository.prepare_merge(&lock, &again).unwrap().is_none());
    fsck(&root);
}

#[test]
fn texts_merge_line_by_line_or_show_their_conflict() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    // Otherwise the text before would be among the lines of the conflict.
    git(&root, &["config", "merge.conflictStyle", "zdiff3"]);
    let lock = sandbox.lock();
    let merged = |ours: &str, theirs: &str| {
        repository.merge_text(&lock, b"a\nb\nc\nd\ne\n", ours.as_bytes(), theirs.as_bytes()).unwrap()
    };
    assert_eq!(merged("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n"), MergedText::Clean(b"A\nb\nc\nd\nE\n".to_vec()));
    let MergedText::Conflict(text) = merged("a\nb\nours\nd\ne\n", "a\nb\ntheirs\nd\ne\n") else {
        panic!("it merges");
    };
    let text = String::from_utf8(text).unwrap();
    let [begin, middle, end] = CONFLICT_LINES;
    assert_eq!(text, format!("a\nb\n{begin}\nours\n{middle}\ntheirs\n{end}\nd\ne\n"));
    assert!(!MERGE_FILES.iter().any(|name| root.join(".git").join(name).exists()));
}

#[test]
fn the_users_identity_needs_a_name_and_an_address() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    git(&root, &["config", "user.name", "Ada\u{a0}<Lovelace>"]);
    let has_address = repository.user_identity().is_some_and(|identity| identity.email == "ada@example.org");
    assert!(!has_address);
    git(&root, &["config", "user.email", "ada@example.org"]);
    let identity = repository.user_identity().unwrap();
    assert!(identity.name.starts_with("Ada") && !identity.name.contains(['<', '>']), "{identity:?}");
    assert_eq!(identity.email, "ada@example.org");
}

#[test]
fn a_push_of_what_was_merged_replaces_only_what_was_expected() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    git(&sandbox.path(""), &["clone", "-q", "--bare", "brain", "remote"]);
    let remote = sandbox.path("remote");
    git(&root, &["remote", "add", "origin", remote.to_str().unwrap()]);
    git(&root, &["fetch", "-q"]);
    let found: Remote = repository.remote().unwrap().unwrap();
    let session =
        crate::RemoteSession { remote: &found, credentials: None, deadline: Duration::from_secs(30) };
    let expected = repository.default_branch().unwrap().remote.unwrap();
    assert!(is_done(&merge(&sandbox, &repository, &[0], false)));
    let merged = repository.default_branch().unwrap().local.unwrap();
    repository.push_merged(&session, merged, expected).unwrap();
    assert_eq!(git(&remote, &["rev-parse", "main"]), merged.to_string());
    assert_eq!(repository.default_branch().unwrap().remote, Some(merged));
    // The remote has moved meanwhile.
    git(&remote, &["update-ref", "refs/heads/main", &expected.to_string()]);
    assert!(is_done(&merge(&sandbox, &repository, &[1], false)));
    let next = repository.default_branch().unwrap().local.unwrap();
    assert!(repository.push_merged(&session, next, merged).is_err());
    assert_eq!(git(&remote, &["rev-parse", "main"]), expected.to_string());
    write(&root, "other.md", "other\n");
    commit_all(&root, "other");
    assert!(repository.push_merged(&session, expected, merged).is_err(), "no descendant");
}

#[test]
fn during_a_stopped_rebase_that_is_named_as_the_reason() {
    let sandbox = Sandbox::new();
    let (root, repository) = with_proposal(&sandbox);
    git(&root, &["checkout", "-q", "-b", "other"]);
    write(&root, "README.md", "other\n");
    commit_all(&root, "other");
    git(&root, &["checkout", "-q", "main"]);
    write(&root, "README.md", "mine\n");
    commit_all(&root, "mine");
    git_fails(&root, &["rebase", "other"]);
    let refused = merge(&sandbox, &repository, &[0], false);
    assert_eq!(refused, FastForward::Refused(Refusal::InProgress("rebase".to_owned())));
}
