//! Branches that are merged with git and not with `nugget review`: what is on the main branch counts as merged, wherever a
//! person has put it.

use std::fs;

use serde_json::{Value, json};

use crate::review::{TRANSCRIPT, branches, fails, items, units, with_folder_remote, with_inbox};
use crate::support::{Sandbox, fixture, git};
use crate::two_clones::session;

fn waiting(sandbox: &Sandbox) -> usize {
    items(sandbox).len()
}

/// What the list of captures says of the first one.
fn result(sandbox: &Sandbox) -> String {
    let status = sandbox.ok(["status"]);
    let row =
        status.lines().find(|row| row.trim_start().starts_with("1 ")).unwrap_or_else(|| panic!("{status}"));
    let units = row.find("3 units").unwrap_or_else(|| panic!("{status}"));
    row[units..].trim_end().to_owned()
}

fn state(sandbox: &Sandbox) -> Value {
    sandbox.json(["status", "--json"])["reviews"][0]["state"].clone()
}

/// The branch of the only capture, and the paths of its units.
fn branch(sandbox: &Sandbox) -> (String, Vec<String>) {
    let paths = items(sandbox).iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect();
    (branches(&sandbox.brain()).trim().to_owned(), paths)
}

fn commit(sandbox: &Sandbox) {
    sandbox.git(&["commit", "-qam", "by hand"]);
}

#[test]
fn what_was_merged_by_hand_and_renamed_is_not_written_again() {
    let sandbox = with_inbox();
    let (branch, paths) = branch(&sandbox);
    // As proposed, then renamed; renamed and edited at once; removed again.
    for path in &paths {
        sandbox.git(&["checkout", "-q", &branch, "--", path]);
        if *path == paths[1] {
            sandbox.git(&["mv", path, "domains/renamed-1.md"]);
            let file = sandbox.brain().join("domains/renamed-1.md");
            let text = fs::read_to_string(&file).unwrap();
            let front = text.find("\n---\n").unwrap() + "\n---\n".len();
            fs::write(&file, format!("{}\n# Mine\n\nIn my words.\n", &text[..front])).unwrap();
        }
        commit(&sandbox);
        if *path == paths[0] {
            assert_eq!(waiting(&sandbox), 2);
            sandbox.git(&["mv", path, "domains/renamed-0.md"]);
            commit(&sandbox);
            assert_eq!(waiting(&sandbox), 2, "also renamed");
        }
    }
    let main = sandbox.git(&["rev-parse", "main"]);
    sandbox.git(&["rm", "-q", &paths[2]]);
    commit(&sandbox);
    assert_eq!(result(&sandbox), "3 units, merged");
    assert!(sandbox.ok(["review", "merge", "--all"]).contains("nothing else waits"));
    assert_eq!(units(&sandbox.brain()), ["domains/renamed-0.md", "domains/renamed-1.md"]);
    assert_eq!(sandbox.git(&["rev-parse", "main^"]), main);
    assert_eq!(branches(&sandbox.brain()), "");
    assert_eq!(result(&sandbox), "3 units, merged");
}

#[test]
fn another_unit_with_the_id_of_a_proposed_one_is_not_doubled() {
    let sandbox = with_inbox();
    let (_, paths) = branch(&sandbox);
    let id = items(&sandbox)[0]["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let other = format!("---\nid: {id}\ntype: note\ntitle: Mine\n---\n\n# Mine\n\nAnother lesson.\n");
    fs::create_dir_all(sandbox.brain().join("domains/mine")).unwrap();
    fs::write(sandbox.brain().join("domains/mine/another-name.md"), other).unwrap();
    sandbox.git(&["add", "."]);
    commit(&sandbox);
    let error = fails(&sandbox, 1, &["review", "merge", "--all"]);
    assert!(error.contains("1 unit was not merged"), "{error}");
    let units = units(&sandbox.brain());
    assert!(units.len() == 3 && !units.contains(&paths[0]), "{units:?}");
}

#[test]
fn a_merged_branch_that_is_deleted_counts_as_merged() {
    let merges: [&[&[&str]]; 4] = [
        &[&["merge", "-q", "--no-ff", "-m", "m", "BRANCH"], &["branch", "-qd", "BRANCH"]],
        &[&["merge", "-q", "--squash", "BRANCH"], &["commit", "-qm", "s"], &["branch", "-qD", "BRANCH"]],
        &[&["cherry-pick", "BRANCH"], &["branch", "-qD", "BRANCH"]],
        &[&["merge", "-q", "BRANCH"], &["branch", "-m", "BRANCH", "kept"]],
    ];
    for commands in merges {
        let sandbox = with_inbox();
        let (branch, paths) = branch(&sandbox);
        sandbox.git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
        for command in commands {
            let command: Vec<&str> =
                command.iter().map(|word| if *word == "BRANCH" { branch.as_str() } else { word }).collect();
            sandbox.git(&command);
        }
        assert_eq!(
            (state(&sandbox), result(&sandbox)),
            (json!("merged"), "3 units, merged".to_owned()),
            "{commands:?}"
        );
        // It is recorded: what becomes of the units later changes nothing.
        assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
        sandbox.git(&["rm", "-q", &paths[0]]);
        commit(&sandbox);
        sandbox.git(&["reflog", "expire", "--expire=now", "--all"]);
        sandbox.git(&["gc", "-q", "--prune=now"]);
        assert_eq!(result(&sandbox), "3 units, merged", "{commands:?}");
    }
    let sandbox = with_inbox();
    let (branch, _) = branch(&sandbox);
    sandbox.git(&["branch", "-qD", &branch]);
    assert_eq!((state(&sandbox), result(&sandbox)), (json!("gone"), "3 units, branch deleted".to_owned()));
}

#[test]
fn what_was_rejected_and_then_merged_with_its_branch_counts_as_merged() {
    let sandbox = with_inbox();
    let (branch, _) = branch(&sandbox);
    sandbox.ok(["review"]);
    sandbox.ok(["review", "reject", "1"]);
    sandbox.git(&["merge", "-q", "--no-ff", "-m", "m", &branch]);
    assert_eq!(result(&sandbox), "3 units, merged");
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    assert_eq!(result(&sandbox), "3 units, merged");

    // At the remote, where a sync finds it.
    let (sandbox, bare) = with_folder_remote();
    sandbox.ok(["review"]);
    sandbox.ok(["review", "reject", "1"]);
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    let other = sandbox.path().join("other");
    let branch = branches(&bare).trim().to_owned();
    git(&other, &["merge", "-q", "--no-ff", "-m", "m", &format!("origin/{branch}")]);
    git(&other, &["push", "-q"]);
    sandbox.ok(["sync"]);
    assert_eq!((units(&sandbox.brain()).len(), branches(&bare).as_str()), (3, ""));
    assert_eq!(result(&sandbox), "3 units, merged");
}

#[test]
fn what_a_merge_leaves_out_counts_as_rejected() {
    let sandbox = with_inbox();
    let (branch, paths) = branch(&sandbox);
    sandbox.git(&["merge", "-q", "--no-ff", "--no-commit", &branch]);
    sandbox.git(&["rm", "-qf", &paths[0]]);
    sandbox.git(&["commit", "-qm", "without one"]);
    assert_eq!(result(&sandbox), "3 units: 2 merged, 1 rejected");
    // A later session has the same lessons.
    let again = session(&sandbox, "22222222-bbbb", "flywheel");
    assert_eq!(again["state"], "nothing", "{again}");
    let reason = again["reason"].as_str().unwrap();
    assert!(reason.contains("rejected before: ") && !reason.contains("proposed before"), "{reason}");
    assert_eq!(result(&sandbox), "3 units: 2 merged, 1 rejected");
}

#[test]
fn what_is_merged_and_not_pushed_yet_does_not_wait_for_review() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.variables.push(("NUGGET_SYNC_MINUTES".into(), "0".into()));
    git(sandbox.path(), &["clone", "-q", "--bare", "brain", "remote.git"]);
    let bare = sandbox.path().join("remote.git");
    sandbox.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    sandbox.ok(["sync"]);
    sandbox.ok(["note", "add", "A note", "--content", "text"]);
    sandbox.capture(&fixture(TRANSCRIPT));
    sandbox.ok(["review"]);
    sandbox.ok(["review", "reject", "1"]);
    assert!(sandbox.ok(["review", "merge", "--all"]).contains("it stays until what was merged is pushed"));
    assert_ne!(branches(&sandbox.brain()), "");
    let status = sandbox.ok(["status"]);
    assert!(status.contains("to review nothing\n") && !status.contains("TO REVIEW"), "{status}");
    assert_eq!(result(&sandbox), "3 units: 2 merged, 1 rejected");
    let status = sandbox.json(["status", "--json"]);
    assert_eq!((&status["to_review"], &status["reviews"][0]["state"]), (&json!(0), &json!("merged")));
    sandbox.git(&["push", "-q", "origin", "main"]);
    sandbox.ok(["sync"]);
    assert_eq!(result(&sandbox), "3 units: 2 merged, 1 rejected");
}
