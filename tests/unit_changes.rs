//! `nugget edit` and `nugget rm`: a change to merged units waits for review like a capture.

use std::fs;

use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::support::{Sandbox, git};

const UNIT: &str = "bounded-worker-pools-in-go";
const PATH: &str = "domains/coding/patterns/bounded-worker-pools-in-go.md";

/// A brain of which twenty units are committed.
fn with_units(editor: &str) -> Sandbox {
    let mut sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "units"]);
    sandbox.variables.push(("EDITOR".into(), editor.to_owned()));
    sandbox.variables.push(("TMPDIR".into(), sandbox.path().display().to_string()));
    sandbox
}

fn items(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(["review", "--json"])["items"].as_array().unwrap().clone()
}

fn fails(sandbox: &Sandbox, code: i32, arguments: &[&str]) -> String {
    let output = sandbox.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn an_edit_waits_for_review_and_is_merged() {
    let sandbox = with_units("sed -i 's/SetLimit(8)/SetLimit(16)/'");
    let file = sandbox.brain().join(PATH);
    let before = fs::read_to_string(&file).unwrap();
    let proposed = sandbox.ok(["edit", "bounded"]);
    assert!(proposed.starts_with("edited: Bounded worker pools in Go\non branch nugget/edit-"), "{proposed}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "nothing is changed before the review");
    let waiting = items(&sandbox);
    assert_eq!(waiting.len(), 1);
    assert_eq!((&waiting[0]["action"], &waiting[0]["path"]), (&json!("completes"), &json!(PATH)));
    let list = sandbox.ok(["review"]);
    assert!(list.contains("\nedit ") && list.contains("changes a unit that you have"), "{list}");
    assert!(sandbox.ok(["status"]).contains("to review 1 unit: nugget review\n"));
    sandbox.ok(["review", "merge", "--all"]);
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("SetLimit(16)") && !after.contains("last_modified: 2026-08-30T11:05:00Z"),
        "{after}"
    );
    let time = |text: &str| text.lines().find(|line| line.starts_with("last_modified")).unwrap().to_owned();
    assert_eq!(after, before.replace("SetLimit(8)", "SetLimit(16)").replace(&time(&before), &time(&after)));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    assert_eq!(git(&sandbox.brain(), &["branch", "--list", "nugget/*"]), "");
    // Nothing is proposed without a change.
    assert_eq!(sandbox.ok(["edit", UNIT]), "nothing was changed\n");
    assert_eq!(sandbox.json(["edit", UNIT, "--json"]), json!({ "changed": false, "units": [] }));
}

#[test]
fn an_edit_that_is_no_unit_is_refused_and_kept() {
    for (editor, problem) in [
        ("sed -i 's/^confidence: .*/confidence: very/'", "`confidence` must be a number from 0 to 1"),
        ("sed -i 's/^id: .*/id: other/'", "the id has become \"other\""),
        ("sed -i 's/^type: .*//'", "`type` is missing"),
        ("false; sed -i 's/Bounded/Unbounded/' \"$@\"; exit 3; #", "ended with exit status: 3"),
    ] {
        let sandbox = with_units(editor);
        let error = fails(&sandbox, 1, &["edit", UNIT]);
        assert!(error.contains(problem) && error.contains("nothing was proposed"), "{error}");
        let kept = error.rsplit("kept in ").next().unwrap().trim();
        assert!(fs::read_to_string(kept).unwrap().contains("errgroup"), "{error}");
        assert!(items(&sandbox).is_empty());
    }
    let sandbox = with_units("");
    assert!(fails(&sandbox, 2, &["edit", UNIT]).contains("there is no editor"));
}

#[test]
fn an_edit_that_cannot_be_proposed_is_kept() {
    let sandbox = with_units("sed -i 's/SetLimit(8)/SetLimit(16)/'");
    // A branch of this name leaves no room for branches below it.
    sandbox.git(&["branch", "nugget"]);
    let error = fails(&sandbox, 1, &["edit", UNIT]);
    let kept = error.rsplit("kept in ").next().unwrap().trim();
    assert!(fs::read_to_string(kept).unwrap().contains("SetLimit(16)"), "{error}");
}

#[test]
fn what_is_not_committed_is_not_proposed() {
    let sandbox = with_units("sed -i s/SetLimit/Limit/");
    let file = sandbox.brain().join(PATH);
    fs::write(&file, fs::read_to_string(&file).unwrap() + "\nMine.\n").unwrap();
    assert!(fails(&sandbox, 1, &["edit", UNIT]).contains("has changes that are not committed"));
    let draft = sandbox.brain().join("domains/coding/patterns/draft.md");
    fs::write(&draft, "---\ntype: pattern\ntitle: Draft\n---\n\n# Draft\n").unwrap();
    assert!(fails(&sandbox, 1, &["rm", "draft"]).contains("is not committed yet"));
    assert!(items(&sandbox).is_empty() && draft.exists());
}

#[test]
fn a_removal_waits_for_review_and_is_merged() {
    let sandbox = with_units("true");
    let file = sandbox.brain().join(PATH);
    let other = "wool-care-against-moths";
    let output = sandbox.run(["rm", "bounded", other, "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.starts_with("note: ") && stderr.contains("with a relation"),
        "{stderr}"
    );
    let proposed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let branch = proposed["branch"].as_str().unwrap();
    assert_eq!(proposed["units"].as_array().unwrap().len(), 2);
    assert!(file.exists());
    let waiting = items(&sandbox);
    assert_eq!(waiting.len(), 2);
    assert!(waiting.iter().all(|item| item["action"] == "removes"), "{waiting:?}");
    let shown = sandbox.ok(["review", "show", UNIT]);
    assert!(shown.contains("removes this unit") && shown.contains("SetLimit(8)"), "{shown}");
    // One is removed and the other one kept.
    let merged = sandbox.ok(["review", "merge", UNIT]);
    assert!(merged.starts_with("removed: ") && !merged.contains("merged"), "{merged}");
    assert!(!file.exists());
    assert_eq!(items(&sandbox).len(), 1);
    sandbox.ok(["review", "reject", other]);
    assert!(items(&sandbox).is_empty());
    assert!(sandbox.ok(["show", other]).contains("moths"));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    assert_eq!(sandbox.git(&["branch", "--list", branch]), "");
    let removed = sandbox.git(&["show", "--stat=200", "--format=%s", "main"]);
    assert!(removed.contains(PATH) && removed.contains("1 file changed"), "{removed}");
    sandbox.git(&["fsck", "--strict"]);
    fails(&sandbox, 3, &["show", UNIT]);
}

#[test]
fn the_removal_of_one_of_two_files_leaves_what_relates_to_their_id() {
    let sandbox = with_units("true");
    let (unit, copy) =
        ("domains/coding/bugs/unsynchronised-map-access-in-go.md", "domains/coding/bugs/copy.md");
    fs::copy(sandbox.brain().join(unit), sandbox.brain().join(copy)).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "copy"]);
    let told = |arguments: &[&str]| {
        let output = sandbox.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for path in [copy, unit] {
        assert_eq!(told(&["rm", path]), "", "{path}");
    }
    assert!(told(&["rm", copy, unit]).contains("with a relation"));
}

#[test]
fn a_whole_removal_is_known_as_merged_by_hand_too() {
    let sandbox = with_units("true");
    let branch = sandbox.json(["rm", UNIT, "--json"])["branch"].as_str().unwrap().to_owned();
    // As a forge squashes it.
    sandbox.git(&["merge", "-q", "--squash", &branch]);
    sandbox.git(&["commit", "-qm", "squashed"]);
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
}

#[test]
fn a_removal_of_what_has_changed_since_is_not_merged() {
    let sandbox = with_units("true");
    sandbox.ok(["rm", UNIT]);
    let file = sandbox.brain().join(PATH);
    fs::write(&file, fs::read_to_string(&file).unwrap() + "\nMine.\n").unwrap();
    sandbox.git(&["commit", "-qam", "mine"]);
    let error = fails(&sandbox, 1, &["review", "merge", "--all"]);
    assert!(error.contains("1 unit was not merged"), "{error}");
    assert!(fs::read_to_string(&file).unwrap().ends_with("Mine.\n"));
    assert_eq!(items(&sandbox)[0]["changed_on_main"], true);
}

#[test]
fn a_change_follows_a_unit_that_was_renamed_since() {
    let renamed = "domains/coding/patterns/pools.md";
    for command in ["edit", "rm"] {
        let sandbox = with_units("sed -i 's/SetLimit(8)/SetLimit(16)/'");
        let before = sandbox.json(["list", "--json"])["units"].as_array().unwrap().len();
        sandbox.ok([command, UNIT]);
        sandbox.git(&["mv", PATH, renamed]);
        sandbox.git(&["commit", "-qm", "renamed"]);
        let list = sandbox.ok(["review"]);
        assert!(list.contains(&format!("your main branch has renamed it: {renamed}")), "{list}");
        assert!(!list.contains("has removed it since") && list.contains("nugget review merge 1"), "{list}");
        assert_eq!(items(&sandbox)[0]["renamed_on_main"], renamed);
        assert!(sandbox.ok(["status"]).contains("to review 1 unit"));
        sandbox.ok(["review", "merge", "1"]);
        let left = sandbox.json(["list", "--json"])["units"].as_array().unwrap().len();
        assert!(!sandbox.brain().join(PATH).exists());
        match command {
            "edit" => {
                let text = fs::read_to_string(sandbox.brain().join(renamed)).unwrap();
                assert!(text.contains("SetLimit(16)") && left == before, "{left}: {text}");
            }
            _ => assert!(!sandbox.brain().join(renamed).exists() && left == before - 1, "{left}"),
        }
        assert_eq!(
            (items(&sandbox).len(), sandbox.git(&["branch", "--list", "nugget/*"])),
            (0, String::new())
        );
        assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    }
}

#[test]
fn an_edit_of_what_was_removed_with_it_says_so() {
    let sandbox = with_units("sed -i 's/SetLimit(8)/SetLimit(16)/'");
    let edited = sandbox.json(["edit", UNIT, "--json"])["branch"].as_str().unwrap().to_owned();
    let removed = sandbox.json(["rm", UNIT, "--json"])["branch"].as_str().unwrap().to_owned();
    let merge = |branch: &str| {
        let items = items(&sandbox);
        let item = items.iter().find(|item| item["branch"] == branch).unwrap();
        item["id"].as_str().unwrap().to_owned()
    };
    let output = sandbox.run(["review", "merge", &merge(&removed), &merge(&edited)]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("\nnot merged: Bounded worker pools in Go: your main branch has removed it since"),
        "{printed}"
    );
    let list = sandbox.ok(["review"]);
    assert!(
        list.contains("has removed it since") && list.contains("decide: nugget review edit 1, reject 1"),
        "{list}"
    );
}

#[test]
fn a_proposed_change_is_delivered_like_a_capture() {
    let sandbox = with_units("sed -i 's/SetLimit(8)/SetLimit(16)/'");
    let remote = sandbox.path().join("remote.git");
    git(sandbox.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
    sandbox.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
    sandbox.git(&["push", "-q", "origin", "HEAD:main"]);
    let branch = sandbox.json(["edit", UNIT, "--json"])["branch"].as_str().unwrap().to_owned();
    crate::support::wait_until("the branch is pushed", || {
        git(&remote, &["branch", "--list", &branch]).contains("nugget/edit-")
    });
    crate::support::wait_until("the capture has ended", || {
        let status = sandbox.json(["status", "--json"]);
        status["captures"][0]["state"] == "done" && status["captures"][0]["origin"] == "edit"
    });
}

#[test]
fn a_removal_of_what_the_remote_does_not_have_says_why() {
    let sandbox = with_units("true");
    git(sandbox.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
    sandbox.git(&["remote", "add", "origin", sandbox.path().join("remote.git").to_str().unwrap()]);
    sandbox.git(&["push", "-q", "origin", "HEAD~:refs/heads/main"]);
    let refused = fails(&sandbox, 1, &["rm", UNIT]);
    assert!(refused.contains("is not at the remote yet") && refused.contains("git push"), "{refused}");
    // It was there, and is edited here.
    sandbox.git(&["push", "-q", "origin", "HEAD:main"]);
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    let other = sandbox.path().join("other");
    git(&other, &["rm", "-q", PATH]);
    git(&other, &["commit", "-qm", "removed"]);
    git(&other, &["push", "-q"]);
    sandbox.git(&["fetch", "-q"]);
    let file = sandbox.brain().join(PATH);
    fs::write(&file, fs::read_to_string(&file).unwrap() + "Mine.\n").unwrap();
    let refused = fails(&sandbox, 1, &["rm", UNIT]);
    assert!(refused.contains("the remote has renamed or removed"), "{refused}");
}

#[test]
fn an_edit_that_loses_the_front_matter_is_refused() {
    let sandbox = with_units("sh -c 'echo no unit here > \"$0\"'");
    let refused = fails(&sandbox, 1, &["edit", UNIT]);
    assert!(refused.contains("the front matter is missing"), "{refused}");
    assert_eq!(items(&sandbox), [Value::Null; 0]);
}
