//! A capture changes nothing of the user's: neither the work tree, nor the index, nor HEAD.

use std::path::Path;

use queue::{Queue, Stage};

use crate::support::{Sandbox, fixture, git, try_git};

/// Returns everything that a person would notice if it changed.
fn user_state(brain: &Path) -> (String, String, Vec<u8>, String) {
    let index = std::fs::read(brain.join(".git/index")).unwrap_or_default();
    let head = std::fs::read_to_string(brain.join(".git/HEAD")).unwrap();
    let refs =
        git(brain, &["for-each-ref", "refs/heads/main", "refs/heads/topic", "refs/stash", "refs/tags"]);
    (git(brain, &["status", "--porcelain=v2", "--branch"]), head, index, refs)
}

fn commit(brain: &Path, file: &str, text: &str) {
    std::fs::write(brain.join(file), text).unwrap();
    git(brain, &["add", file]);
    git(brain, &["commit", "-m", text]);
}

/// Creates two branches that both change one line.
fn conflict(brain: &Path) {
    commit(brain, "note.md", "base");
    git(brain, &["switch", "-c", "topic"]);
    commit(brain, "note.md", "topic");
    git(brain, &["switch", "main"]);
    commit(brain, "note.md", "main");
}

fn check_unchanged(name: &str, prepare: impl FnOnce(&Path)) {
    let sandbox = Sandbox::with_brain();
    prepare(&sandbox.brain());
    let before = user_state(&sandbox.brain());
    let capture = sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    assert_eq!(capture["state"], "done", "{name}: {capture}");
    assert_eq!(user_state(&sandbox.brain()), before, "{name}");
    let fsck = try_git(&sandbox.brain(), &["fsck", "--full", "--strict"]);
    let printed = String::from_utf8_lossy(&fsck.stderr).into_owned() + &String::from_utf8_lossy(&fsck.stdout);
    let complaints: Vec<&str> =
        printed.lines().filter(|line| !line.starts_with("dangling") && !line.starts_with("notice")).collect();
    assert!(fsck.status.success() && complaints.is_empty(), "{name}: {complaints:?}");
}

#[test]
fn a_capture_leaves_a_dirty_rebase_unchanged() {
    check_unchanged("mid-rebase", |brain| {
        conflict(brain);
        assert!(!try_git(brain, &["rebase", "topic"]).status.success(), "the rebase stops at its conflict");
        std::fs::write(brain.join("untracked.md"), "# Mine").unwrap();
        std::fs::write(brain.join("brain.yaml"), "version: 1\nname: changed\n").unwrap();
    });
}

#[test]
fn a_capture_leaves_a_merge_with_staged_changes_unchanged() {
    check_unchanged("mid-merge", |brain| {
        conflict(brain);
        assert!(!try_git(brain, &["merge", "topic"]).status.success());
        std::fs::write(brain.join("staged.md"), "# Staged").unwrap();
        git(brain, &["add", "staged.md"]);
    });
}

#[test]
fn a_capture_leaves_a_detached_head_unchanged() {
    check_unchanged("detached", |brain| {
        commit(brain, "note.md", "one");
        git(brain, &["switch", "--detach", "HEAD~1"]);
        std::fs::write(brain.join("note.md"), "# Mine").unwrap();
    });
}

#[test]
fn a_capture_made_on_a_feature_branch_builds_on_main() {
    check_unchanged("on a topic branch", |brain| {
        git(brain, &["switch", "-c", "topic"]);
        commit(brain, "note.md", "not reviewed");
    });
}

#[test]
fn a_brain_without_git_keeps_its_capture_and_says_what_to_do() {
    let sandbox = Sandbox::with_brain();
    std::fs::rename(sandbox.brain().join(".git"), sandbox.path().join("moved")).unwrap();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap()]);
    let first = || sandbox.json(["status", "--json"])["captures"][0].clone();
    crate::support::wait_until("the failure is reported", || first()["state"] == "retrying");
    assert!(first()["reason"].as_str().unwrap().contains("nugget init"), "{}", first());
    std::fs::rename(sandbox.path().join("moved"), sandbox.brain().join(".git")).unwrap();
    sandbox.ok(["retry", "--all"]);
    crate::support::wait_until("the capture is done", || first()["state"] == "done");
}

#[test]
fn a_default_branch_that_is_back_ends_the_pause_that_its_absence_began() {
    let sandbox = Sandbox::with_brain();
    sandbox.git(&["checkout", "--quiet", "--detach"]);
    sandbox.git(&["branch", "-D", "main"]);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap()]);
    let pauses = || Queue::open(&sandbox.state().join("queue.db")).unwrap().pauses().unwrap();
    crate::support::wait_until("the stage is paused", || {
        pauses().iter().any(|pause| pause.stage == Stage::Git)
    });
    sandbox.git(&["branch", "main"]);
    let first = || sandbox.json(["status", "--json"])["captures"][0].clone();
    crate::support::wait_until("the capture is done", || first()["state"] == "done");
    assert_eq!(pauses(), []);
}

#[test]
fn a_capture_waits_for_a_filter_to_go_and_is_saved_then() {
    let sandbox = Sandbox::with_brain();
    std::fs::write(sandbox.brain().join(".gitattributes"), "domains/**/*.md filter=crypt\n").unwrap();
    sandbox.git(&["add", "-A"]);
    sandbox.git(&["commit", "--quiet", "-m", "encrypt"]);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap()]);
    let first = || sandbox.json(["status", "--json"])["captures"][0].clone();
    let names_it = || first()["reason"].as_str().is_some_and(|reason| reason.contains("crypt"));
    crate::support::wait_until("the filter is named", names_it);
    assert_eq!(git(&sandbox.brain(), &["branch", "--list", "nugget/*"]), "");
    sandbox.git(&["rm", "--quiet", ".gitattributes"]);
    sandbox.git(&["commit", "--quiet", "-m", "plain"]);
    sandbox.ok(["retry", "--all"]);
    crate::support::wait_until("the capture is done", || first()["state"] == "done");
}
