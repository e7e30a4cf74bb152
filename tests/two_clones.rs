//! One brain on two machines: both capture at once, and nothing collides or is lost.

use std::thread;

use serde_json::{Value, json};

use crate::delivery::{SLUG, connect};
use crate::support::github_api::{GithubApi, Merge};
use crate::support::{Sandbox, git, wait_until, write_script};

/// Creates two machines with a clone each.
pub(crate) fn two_clones(api: &GithubApi) -> [Sandbox; 2] {
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
    assert_eq!(synced["remote"]["recreated"], json!([other["id"]]), "{synced}");
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

/// Creates two machines with a clone each of a repository in a folder: there are no pull requests.
pub(crate) fn two_clones_of_a_folder() -> (std::path::PathBuf, [Sandbox; 2]) {
    let mut first = Sandbox::with_brain();
    let bare = first.path().join("remote.git");
    git(first.path(), &["clone", "--quiet", "--bare", "brain", bare.to_str().unwrap()]);
    first.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    let mut second = Sandbox::new();
    git(second.path(), &["clone", "--quiet", bare.to_str().unwrap(), "brain"]);
    for sandbox in [&mut first, &mut second] {
        let brain = sandbox.brain().display().to_string();
        sandbox.variables.push(("NUGGET_BRAIN".to_owned(), brain));
    }
    (bare, [first, second])
}

pub(crate) fn waiting_titles(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json(["review", "--list", "--json"]);
    let items = listed["items"].as_array().unwrap_or_else(|| panic!("{listed}"));
    items.iter().map(|item| item["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_waits_is_there_again_after_the_brain_is_cloned_again() {
    let (bare, [sandbox, _]) = two_clones_of_a_folder();
    let capture = session(&sandbox, "11111111-aaaa", "flywheel");
    assert_eq!(capture["pushed"], capture["commit"], "{capture}");
    let before = waiting_titles(&sandbox);
    assert!(before.len() > 1, "{before:?}");
    sandbox.ok(["review", "reject", "1"]);
    std::fs::remove_dir_all(sandbox.brain()).unwrap();
    git(sandbox.path(), &["clone", "--quiet", bare.to_str().unwrap(), "brain"]);
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["updated"], 1);
    assert_eq!(waiting_titles(&sandbox), before[1..]);
    std::fs::remove_dir_all(sandbox.brain()).unwrap();
    let told = sandbox.ok(["clone", bare.to_str().unwrap(), sandbox.brain().to_str().unwrap()]);
    assert!(told.contains("1 branch with what waits for review: `nugget review`"), "{told}");
    assert_eq!(waiting_titles(&sandbox), before[1..]);
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    assert_eq!(sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), before.len() - 1);
}

#[test]
fn what_a_person_adds_to_a_branch_at_the_remote_is_what_is_reviewed() {
    let (bare, [sandbox, other]) = two_clones_of_a_folder();
    let capture = session(&sandbox, "11111111-aaaa", "flywheel");
    let branch = capture["branch"].as_str().unwrap();
    let before = waiting_titles(&sandbox);
    other.git(&["fetch", "--quiet"]);
    other.git(&["checkout", "--quiet", "-b", branch, &format!("origin/{branch}")]);
    let changed = other.git(&["diff", "--name-only", "main", branch]);
    let path = changed.lines().find(|path| path.ends_with(".md")).unwrap();
    let file = other.brain().join(path);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\nCorrected by a person.\n")).unwrap();
    other.git(&["commit", "--quiet", "-am", "correct it"]);
    other.git(&["push", "--quiet", "origin", branch]);

    // What was listed before is not what it says now.
    let first = sandbox.run(["review", "merge", "--all"]);
    assert_eq!(first.status.code(), Some(1), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!(waiting_titles(&sandbox), before);
    let shown = sandbox.ok(["review", "show", "1", "2", "3"]);
    assert!(shown.contains("Corrected by a person."), "{shown}");
    sandbox.ok(["review", "merge", "--all"]);
    assert!(git(&bare, &["show", &format!("main:{path}")]).contains("Corrected by a person."));
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
    assert_eq!(sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), before.len());
}

#[test]
fn a_change_at_the_remote_of_what_is_decided_is_not_thrown_away() {
    let (bare, [sandbox, other]) = two_clones_of_a_folder();
    let capture = session(&sandbox, "11111111-aaaa", "flywheel");
    let branch = capture["branch"].as_str().unwrap();
    let listed = sandbox.json(["review", "--list", "--json"]);
    let path = listed["items"][0]["path"].as_str().unwrap().to_owned();
    sandbox.ok(["review", "merge", "1"]);
    other.git(&["fetch", "--quiet"]);
    other.git(&["checkout", "--quiet", "-b", branch, &format!("origin/{branch}")]);
    let file = other.brain().join(&path);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\nCorrected too late.\n")).unwrap();
    other.git(&["commit", "--quiet", "-am", "correct it"]);
    other.git(&["push", "--quiet", "origin", branch]);
    sandbox.ok(["sync"]);
    assert_eq!(sandbox.git(&["rev-parse", branch]).trim(), capture["commit"], "its review has begun");
    sandbox.ok(["review", "merge", "--all"]);
    assert!(git(&bare, &["show", &format!("{branch}:{path}")]).contains("Corrected too late."));
}

#[test]
fn without_pull_requests_each_machine_reviews_what_the_other_proposes() {
    let (bare, [first, second]) = two_clones_of_a_folder();
    session(&first, "11111111-aaaa", "flywheel");
    let proposed = waiting_titles(&first);
    assert_eq!(second.json(["sync", "--json"])["remote"]["taken_over"], 1);
    assert_eq!(waiting_titles(&second), proposed);
    // What waits there is known here.
    let again = session(&second, "22222222-bbbb", "flywheel");
    assert_eq!(again["state"], "nothing", "{again}");
    assert!(again["reason"].as_str().unwrap().contains("proposed before"), "{again}");
    assert_eq!(second.json(["sync", "--json"])["remote"]["taken_over"], 0, "once");

    second.ok(["review", "merge", "--all"]);
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    let synced = first.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["merged"].as_array().unwrap().len(), 1, "{synced}");
    assert_eq!(waiting_titles(&first), Vec::<String>::new());

    // The other way round: it is decided where it was made.
    session(&first, "33333333-cccc", "rust_pool");
    assert_eq!(second.json(["sync", "--json"])["remote"]["taken_over"], 1);
    assert_ne!(waiting_titles(&second), Vec::<String>::new());
    first.ok(["review", "reject", "--all"]);
    second.ok(["sync"]);
    assert_eq!(waiting_titles(&second), Vec::<String>::new());
    for sandbox in [&first, &second] {
        assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
        assert_eq!(sandbox.git(&["fsck", "--no-dangling"]), "");
    }
}

#[test]
fn what_the_remote_cannot_store_stops_no_other_part_of_a_sync() {
    let (bare, [first, second]) = two_clones_of_a_folder();
    session(&first, "11111111-aaaa", "flywheel");
    second.ok(["sync"]);
    let away = bare.with_extension("away");
    std::fs::rename(&bare, &away).unwrap();
    second.ok(["review", "merge", "--all"]);
    std::fs::rename(&away, &bare).unwrap();
    session(&first, "33333333-cccc", "rust_pool");
    git(&bare, &["config", "receive.maxInputSize", "1"]);

    let synced = second.run(["sync", "--json"]);
    let synced: Value = serde_json::from_slice(&synced.stdout).unwrap();
    let remote = &synced["remote"];
    assert_eq!((&remote["taken_over"], &remote["pushed"]), (&1.into(), &false.into()), "{synced}");
    assert!(remote["error"].as_str().unwrap().contains("failed to store"), "{synced}");
    assert_ne!(waiting_titles(&second), Vec::<String>::new());

    git(&bare, &["config", "--unset", "receive.maxInputSize"]);
    let synced = second.json(["sync", "--json"]);
    assert_eq!(
        (&synced["remote"]["pushed"], &synced["remote"]["error"]),
        (&true.into(), &Value::Null),
        "{synced}"
    );
}

#[test]
fn the_same_import_on_two_machines_is_delivered_by_both() {
    let (bare, machines) = two_clones_of_a_folder();
    for sandbox in &machines {
        let file = sandbox.path().join("rules.md");
        std::fs::write(&file, "# Rules\n\n## Use tabs in Makefiles\n\nSpaces break the build.\n").unwrap();
        let imported = sandbox.json(["import", file.to_str().unwrap(), "--domain", "build", "--json"]);
        wait_until("the import is delivered", || captures(sandbox)[0]["state"] == "done");
        let capture = captures(sandbox)[0].clone();
        assert_eq!(capture["pushed"], capture["commit"], "{imported} {capture}");
    }
    assert_eq!(git(&bare, &["branch", "--list", "nugget/import-*"]).lines().count(), 2);
}

/// Proposes on one machine to remove its first unit. Returns the branch, which is pushed.
fn propose_a_removal(sandbox: &Sandbox) -> String {
    let listed = sandbox.json(["list", "--json"]);
    let known = captures(sandbox).len();
    sandbox.ok(["rm", listed["units"][0]["id"].as_str().unwrap()]);
    let newest = || captures(sandbox).into_iter().max_by_key(|capture| capture["id"].as_i64()).unwrap();
    wait_until("the removal is pushed", || {
        captures(sandbox).len() > known
            && newest()["state"] == "done"
            && newest()["pushed"] == newest()["commit"]
    });
    newest()["branch"].as_str().unwrap().to_owned()
}

#[test]
fn what_the_other_machine_has_rejected_is_not_pushed_back() {
    let (bare, [first, second]) = two_clones_of_a_folder();
    session(&first, "11111111-aaaa", "flywheel");
    first.ok(["review", "merge", "--all"]);
    let edits = |folder: &std::path::Path| git(folder, &["branch", "--list", "nugget/edit-*"]);

    // The second machine no longer sees that the branch was at the remote.
    propose_a_removal(&first);
    assert_eq!(second.json(["sync", "--json"])["remote"]["taken_over"], 1);
    first.ok(["review", "reject", "--all"]);
    second.git(&["fetch", "--quiet", "--prune"]);
    session(&second, "22222222-bbbb", "flywheel");
    assert_eq!(edits(&bare), "");
    second.ok(["sync"]);
    assert_eq!(edits(&second.brain()), "");

    // Nor does it remember that it has taken it over.
    propose_a_removal(&first);
    assert_eq!(second.json(["sync", "--json"])["remote"]["taken_over"], 1);
    wait_until("the worker has exited", || !queue::is_held(&second.state().join("drain.lock")));
    std::fs::remove_dir_all(second.path().join("state")).unwrap();
    second.ok(["sync"]);
    first.ok(["review", "reject", "--all"]);
    second.git(&["fetch", "--quiet", "--prune"]);
    session(&second, "33333333-cccc", "flywheel");
    assert_eq!(edits(&bare), "");
    second.ok(["sync"]);
    assert_eq!(edits(&second.brain()), "");

    // What a person has added to it stays, and is nobody's to push.
    let branch = propose_a_removal(&first);
    second.ok(["sync"]);
    second.git(&["checkout", "--quiet", &branch]);
    second.git(&["commit", "--quiet", "--allow-empty", "-m", "a thought"]);
    second.git(&["checkout", "--quiet", "main"]);
    let added = second.git(&["rev-parse", &branch]);
    second.ok(["sync"]);
    first.ok(["review", "reject", "--all"]);
    second.ok(["sync"]);
    second.ok(["sync"]);
    session(&second, "44444444-dddd", "flywheel");
    assert_eq!((edits(&bare).as_str(), second.git(&["rev-parse", &branch])), ("", added));
}

/// Lets a machine run a shell script, which may `exit`, before each command of git.
fn before_git(sandbox: &mut Sandbox, script: &str) {
    let folder = sandbox.path().join("programs");
    let path = std::env::var("PATH").unwrap();
    write_script(&folder.join("git"), &format!("PATH='{path}'\n{script}\nexec git \"$@\""));
    sandbox.variables.push(("PATH".to_owned(), format!("{}:{path}", folder.display())));
}

#[test]
fn a_push_of_a_colleague_between_fetch_and_push_stops_no_merge() {
    let (bare, [mut first, second]) = two_clones_of_a_folder();
    session(&first, "11111111-aaaa", "flywheel");
    session(&first, "22222222-bbbb", "rust_pool");
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]).lines().count(), 2);
    std::fs::write(second.brain().join("colleague.md"), "Mine.\n").unwrap();
    second.git(&["add", "."]);
    second.git(&["commit", "--quiet", "-m", "a colleague's"]);
    let other = second.brain().display().to_string();
    before_git(
        &mut first,
        &format!("case \" $* \" in *' push '*) git -C '{other}' push --quiet origin main;; esac"),
    );
    first.ok(["review", "merge", "--all"]);
    assert_eq!(waiting_titles(&first), Vec::<String>::new());
    assert_eq!(git(&bare, &["show", "main:colleague.md"]), "Mine.\n");
    assert_eq!(git(&bare, &["rev-parse", "main"]), first.git(&["rev-parse", "main"]));
}

#[test]
fn a_list_of_branches_that_is_cut_short_deletes_nothing() {
    let (_, [first, mut second]) = two_clones_of_a_folder();
    session(&first, "11111111-aaaa", "flywheel");
    second.ok(["sync"]);
    let proposed = waiting_titles(&second);
    assert_ne!(proposed, Vec::<String>::new());
    let before = second.git(&["for-each-ref"]);
    // As if nothing was read of the list before git had ended.
    before_git(&mut second, "case \" $* \" in *' ls-remote '*) sleep 5 2>/dev/null & exit 0;; esac");
    let output = second.run(["sync"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("not read to its end"), "{stderr}");
    assert_eq!((second.git(&["for-each-ref"]), waiting_titles(&second)), (before, proposed));
}

#[test]
fn a_partial_clone_has_all_that_waits_for_review() {
    let (bare, [first, second]) = two_clones_of_a_folder();
    git(&bare, &["config", "uploadpack.allowFilter", "true"]);
    session(&first, "11111111-aaaa", "flywheel");
    std::fs::remove_dir_all(second.brain()).unwrap();
    let url = format!("file://{}", bare.display());
    git(second.path(), &["clone", "--quiet", "--filter=blob:none", &url, "brain"]);
    assert_eq!(second.git(&["config", "remote.origin.promisor"]), "true\n");
    let synced = second.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["error"], Value::Null, "{synced}");
    assert_eq!(waiting_titles(&second), waiting_titles(&first));
    second.ok(["review", "merge", "--all"]);
    // Also of what git itself has fetched since.
    first.ok(["sync"]);
    session(&first, "22222222-bbbb", "rust_pool");
    second.git(&["fetch", "--quiet"]);
    second.ok(["sync"]);
    assert_eq!(waiting_titles(&second), waiting_titles(&first));
}
