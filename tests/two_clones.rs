//! One brain on two machines: both capture at once, and nothing collides or is lost.

use std::thread;

use serde_json::{Value, json};

use crate::delivery::{SLUG, connect};
use crate::support::github_api::{GithubApi, Merge};
use crate::support::{Sandbox, git, wait_until};

/// Creates two machines with a clone each.
fn two_clones(api: &GithubApi) -> [Sandbox; 2] {
    let mut first = Sandbox::with_brain();
    let bare = api.add_repository(SLUG);
    first.git(&["push", "--quiet", bare.to_str().unwrap(), "main"]);
    let mut second = Sandbox::new();
    git(second.path(), &["clone", "--quiet", bare.to_str().unwrap(), "brain"]);
    first.git(&["remote", "add", "origin", &api.clone_url(SLUG)]);
    second.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)]);
    for sandbox in [&mut first, &mut second] {
        connect(sandbox, api);
        let brain = sandbox.brain().display().to_string();
        sandbox.variables.push(("NUGGET_BRAIN".to_owned(), brain));
    }
    [first, second]
}

/// Captures a session with a lesson that both machines learn and one of its own.
pub(crate) fn session(sandbox: &Sandbox, id: &str, own: &str) -> Value {
    let text =
        std::fs::read_to_string(crate::support::fixture(&format!("transcripts/synthetic/{own}.jsonl")))
            .unwrap();
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line.get("sessionId").is_some() {
            line["sessionId"] = id.into();
        }
        for key in ["uuid", "parentUuid"] {
            if let Some(uuid) = line.get(key).and_then(Value::as_str) {
                line[key] = format!("{id}-{uuid}").into();
            }
        }
        lines.push(line.to_string());
    }
    let path = sandbox.path().join(format!("{id}.jsonl"));
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    sandbox.capture(&path)
}

fn captures(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(["status", "--json"])["captures"].as_array().unwrap().clone()
}

#[test]
fn two_simultaneous_sessions_are_both_merged_and_found() {
    let api = GithubApi::start();
    let [first, second] = two_clones(&api);
    // The same lesson on both machines: the same path, with another origin.
    let [one, other] = thread::scope(|scope| {
        let one = scope.spawn(|| session(&first, "11111111-aaaa", "flywheel"));
        let other = scope.spawn(|| session(&second, "22222222-bbbb", "flywheel"));
        [one, other].map(|thread| thread.join().unwrap())
    });
    assert_eq!((&one["state"], &other["state"]), (&"done".into(), &"done".into()), "{one} {other}");
    let pulls = api.pulls(SLUG);
    assert_eq!(pulls.len(), 2);
    assert_ne!(one["branch"], other["branch"]);

    api.merge(SLUG, one["pull_number"].as_u64().unwrap(), Merge::Commit).unwrap();
    let number = other["pull_number"].as_u64().unwrap();
    let refused = api.merge(SLUG, number, Merge::Commit).unwrap_err();
    assert!(refused.contains("conflicts"), "{refused}");

    // The other machine rebuilds its branch on what was merged: same branch, same pull request.
    let synced = second.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["anew"], json!([other["id"]]), "{synced}");
    wait_until("the branch is rebuilt", || {
        let capture = captures(&second)[0].clone();
        capture["state"] == "done" && capture["commit"] != other["commit"]
    });
    let rebuilt = captures(&second)[0].clone();
    assert_eq!((&rebuilt["branch"], &rebuilt["pull_number"]), (&other["branch"], &other["pull_number"]));
    assert_eq!(rebuilt["pushed"], rebuilt["commit"]);
    assert_eq!(api.pulls(SLUG).len(), 2);
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    let branch = rebuilt["branch"].as_str().unwrap();
    assert_eq!(git(&bare, &["rev-list", "--count", &format!("main..{branch}")]).trim(), "1");
    api.merge(SLUG, number, Merge::Squash).unwrap();

    for sandbox in [&first, &second] {
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["merged"].as_array().unwrap().len(), 1, "{synced}");
        assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
        assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
        assert_eq!(sandbox.git(&["fsck", "--no-dangling"]), "");
    }
    assert_eq!(first.git(&["rev-parse", "HEAD"]), second.git(&["rev-parse", "HEAD"]));
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    // A question in a third process finds what both have learned.
    let found = first.json(["ask", "Why was an invoice mailed twice?", "--no-llm", "--json"]);
    let sources = found["units"].to_string();
    let listed = first.json(["list", "--json"])["units"].as_array().unwrap().len() as u64;
    assert_eq!(listed, one["units"].as_u64().unwrap() + rebuilt["units"].as_u64().unwrap(), "{sources}");
    let ids: Vec<&str> =
        found["units"].as_array().unwrap().iter().filter_map(|unit| unit["id"].as_str()).collect();
    assert!(ids.len() >= 2, "{ids:?}");
}

#[test]
fn a_branch_with_a_reviewers_commits_is_never_rebuilt() {
    let api = GithubApi::start();
    let [first, second] = two_clones(&api);
    let one = session(&first, "11111111-aaaa", "flywheel");
    let other = session(&second, "22222222-bbbb", "flywheel");
    let branch = other["branch"].as_str().unwrap();
    let theirs = api.commit(SLUG, branch, "notes.md", "a reviewer's words\n");
    api.merge(SLUG, one["pull_number"].as_u64().unwrap(), Merge::Commit).unwrap();
    for _ in 0..2 {
        let synced = second.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["added_to"], json!([other["id"]]), "{synced}");
    }
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    assert_eq!(git(&bare, &["rev-parse", branch]).trim(), theirs);
    let number = other["pull_number"].as_u64().unwrap();
    let pull = api.pulls(SLUG).into_iter().find(|pull| pull.number == number).unwrap();
    assert_eq!(pull.comments.len(), 1, "{:?}", pull.comments);
    assert_eq!(captures(&second)[0]["state"], "done");
}

#[test]
fn a_branch_fully_on_main_is_closed_and_deleted() {
    let api = GithubApi::start();
    let [first, _second] = two_clones(&api);
    let one = session(&first, "11111111-aaaa", "flywheel");
    let branch = one["branch"].as_str().unwrap();
    for path in first.git(&["diff", "--name-only", "main", branch]).lines() {
        let content = first.git(&["show", &format!("{branch}:{path}")]);
        api.commit(SLUG, "main", path, &content);
    }
    let synced = first.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["empty"], json!([one["id"]]), "{synced}");
    let pull = api.pulls(SLUG)[0].clone();
    assert!(!pull.is_open && pull.merged_at.is_none(), "{pull:?}");
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    assert_eq!(first.git(&["branch", "--list", "nugget/*"]), "");
}
