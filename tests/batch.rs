//! Rolling pull requests: with `delivery.batch`, the captures of a window share a branch and a pull request.

use std::fs;

use serde_json::{Value, json};

use crate::delivery::{SLUG, brain_at, connect, wait_for_newest, wait_until_idle};
use crate::support::github_api::{Failure, GithubApi, Merge};
use crate::support::{Sandbox, fixture, git, wait_until};

const NAMES: [&str; 3] = ["flywheel", "go_race", "k8s_probe"];

/// A brain whose captures of a week share a pull request. A week, as a test rarely runs when one ends.
fn batching(api: &GithubApi) -> Sandbox {
    let mut sandbox = brain_at(api);
    sandbox.variables.push(("NUGGET_DELIVERY_BATCH".to_owned(), "weekly".to_owned()));
    sandbox
}

fn capture(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.capture(&fixture(&format!("transcripts/synthetic/{name}.jsonl")))
}

fn captures(sandbox: &Sandbox) -> Vec<Value> {
    let mut captures = sandbox.json(["status", "--json"])["captures"].as_array().unwrap().clone();
    captures.reverse();
    captures
}

fn bare_of(api: &GithubApi) -> std::path::PathBuf {
    api.with_repository(SLUG, |repo| repo.bare.clone())
}

fn nuggets_branches(folder: &std::path::Path) -> Vec<String> {
    let branches = git(folder, &["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget"]);
    branches.lines().map(str::to_owned).collect()
}

/// Asserts that a text names every file of a branch at the remote.
fn assert_names_all(api: &GithubApi, branch: &str, text: &str) {
    for path in git(&bare_of(api), &["diff", "--name-only", "main", branch]).lines() {
        assert!(text.contains(path), "{path} is missing: {text}");
    }
}

#[test]
fn captures_of_a_window_share_one_pull_request_with_a_commit_each() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    api.with_repository(SLUG, |repo| repo.labels = vec!["nugget".to_owned()]);
    for name in NAMES {
        let ended = capture(&sandbox, name);
        assert_eq!((&ended["state"], &ended["pull_number"]), (&"done".into(), &1.into()), "{ended}");
        assert_eq!(ended["pushed"], ended["commit"]);
    }
    let captures = captures(&sandbox);
    let branch = captures[0]["branch"].as_str().unwrap().to_owned();
    assert!(branch.starts_with("nugget/batch-20") && branch.contains("-w"), "{branch}");
    assert!(captures.iter().all(|capture| capture["branch"] == branch.as_str()), "{captures:?}");
    let bare = bare_of(&api);
    let commits = git(&bare, &["rev-list", "--reverse", &format!("main..{branch}")]);
    let recorded: Vec<&str> = captures.iter().map(|capture| capture["commit"].as_str().unwrap()).collect();
    assert_eq!(commits.lines().collect::<Vec<_>>(), recorded);
    let pulls = api.pulls(SLUG);
    let [pull] = pulls.as_slice() else { panic!("{pulls:?}") };
    assert!(pull.title.starts_with("Knowledge of week 20"), "{}", pull.title);
    assert_eq!(pull.labels, ["nugget"]);
    let units: u64 = captures.iter().map(|capture| capture["units"].as_u64().unwrap()).sum();
    assert!(pull.body.contains(&format!("\n{units} units of knowledge from 3 sessions.\n")), "{}", pull.body);
    assert_eq!(pull.body.matches("\n### ").count(), 3, "{}", pull.body);
    assert_names_all(&api, &branch, &pull.body);
    // Here it waits for review as one branch, too.
    for folder in [sandbox.brain(), bare] {
        assert_eq!(nuggets_branches(&folder), [branch.as_str()]);
    }
    let waiting = sandbox.json(["review", "--json"]);
    assert_eq!(waiting["items"].as_array().unwrap().len() as u64, units, "{waiting}");
}

#[test]
fn of_a_shared_branch_each_capture_counts_its_own_units() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    let mut told = Vec::new();
    for name in NAMES {
        let transcript = fixture(&format!("transcripts/synthetic/{name}.jsonl"));
        told.push(sandbox.ok(["capture-session", "--wait", "--transcript", transcript.to_str().unwrap()]));
    }
    let captures = captures(&sandbox);
    let status = sandbox.json(["status", "--json"]);
    let mut all = 0;
    for (capture, told) in captures.iter().zip(&told) {
        let units = capture["units"].as_u64().unwrap() as usize;
        assert!(told.starts_with(&format!("saved: {units} unit")), "{told}");
        assert_eq!(told.matches("\n  - ").count(), units.min(5), "{told}");
        let reviews = status["reviews"].as_array().unwrap();
        let review = reviews.iter().find(|review| review["capture"] == capture["id"]).unwrap();
        assert_eq!(review["titles"].as_array().unwrap().len(), units, "{review}");
        all += units;
    }
    assert_eq!(status["to_review"], all);
    // What is decided of one capture ends that one alone.
    let first = captures[0]["session_id"].as_str().unwrap();
    let items = sandbox.json(["review", "--json"])["items"].as_array().unwrap().clone();
    let of_first = items.iter().filter(|item| item["text"].as_str().unwrap().contains(first));
    let of_first: Vec<&str> = of_first.map(|item| item["id"].as_str().unwrap()).collect();
    sandbox.ok(["review", "reject"].into_iter().chain(of_first.iter().copied()));
    let status = sandbox.json(["status", "--json"]);
    let states: Vec<&str> = (1..=3)
        .map(|id| {
            let mut reviews = status["reviews"].as_array().unwrap().iter();
            reviews.find(|review| review["capture"] == id).unwrap()["state"].as_str().unwrap()
        })
        .collect();
    assert_eq!(states, ["closed", "waiting", "waiting"]);
    assert_eq!(status["to_review"], all - of_first.len());
}

#[test]
fn what_comes_after_the_merge_gets_the_next_pull_request() {
    for how in [Merge::Commit, Merge::Squash] {
        let api = GithubApi::start();
        let sandbox = batching(&api);
        capture(&sandbox, "flywheel");
        capture(&sandbox, "go_race");
        api.merge(SLUG, 1, how).unwrap();
        // Before nugget has noticed the merge.
        let next = capture(&sandbox, "k8s_probe");
        let branch = next["branch"].as_str().unwrap();
        assert!(branch.ends_with("-2") && next["pull_number"] == 2, "{next}");
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["merged"], json!([1, 2]), "{synced}");
        for folder in [sandbox.brain(), bare_of(&api)] {
            assert_eq!(nuggets_branches(&folder), [branch]);
        }
        let count = git(&bare_of(&api), &["rev-list", "--count", &format!("main..{branch}")]);
        assert_eq!(count.trim(), "1");
        api.close(SLUG, 2);
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["closed"], json!([3]), "{synced}");
        assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    }
}

/// Another machine of the person's, with the same settings.
fn second_machine(api: &GithubApi) -> Sandbox {
    let mut second = Sandbox::new();
    git(second.path(), &["clone", "--quiet", bare_of(api).to_str().unwrap(), "brain"]);
    second.git(&["remote", "set-url", "origin", &api.clone_url(SLUG)]);
    connect(&mut second, api);
    let brain = second.brain().display().to_string();
    second.variables.extend([
        ("NUGGET_BRAIN".to_owned(), brain),
        ("NUGGET_DELIVERY_BATCH".to_owned(), "weekly".to_owned()),
    ]);
    second
}

#[test]
fn what_a_machine_without_a_token_adds_is_named_once_another_one_syncs() {
    let api = GithubApi::start();
    api.open_git();
    let first = batching(&api);
    let mut second = second_machine(&api);
    capture(&first, "flywheel");
    let with_token = second.variables.clone();
    second.variables.retain(|(name, _)| name != "GITHUB_TOKEN");
    let added = capture(&second, "go_race");
    assert_eq!((&added["state"], &added["pull_number"]), (&"done".into(), &Value::Null), "{added}");
    let text = || api.pulls(SLUG)[0].body.clone();
    assert!(text().contains(" from 1 session.\n"), "{}", text());
    first.ok(["sync"]);
    let completed = text();
    assert!(completed.contains(" from 2 sessions.\n"), "{completed}");
    assert_names_all(&api, added["branch"].as_str().unwrap(), &completed);
    // Neither another sync nor the machine itself, once it has a token, adds it again.
    first.ok(["sync"]);
    second.variables = with_token;
    assert_eq!(second.json(["sync", "--json"])["remote"]["delivered_late"], 1);
    assert_eq!(wait_for_newest(&second)["pull_number"], 1);
    assert_eq!((text(), api.pulls(SLUG).len()), (completed, 1));
}

#[test]
fn two_machines_add_to_one_branch_at_once() {
    let api = GithubApi::start();
    let first = batching(&api);
    let second = second_machine(&api);
    let ended = std::thread::scope(|scope| {
        let threads = [(&first, "flywheel"), (&second, "go_race")]
            .map(|(sandbox, name)| scope.spawn(move || capture(sandbox, name)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(ended.iter().all(|capture| capture["pull_number"] == 1), "{ended:?}");
    let branch = ended[0]["branch"].as_str().unwrap();
    let count = git(&bare_of(&api), &["rev-list", "--count", &format!("main..{branch}")]);
    let pulls = api.pulls(SLUG);
    assert_eq!((count.trim(), pulls.len()), ("2", 1));
    assert!(pulls[0].body.contains(" from 2 sessions.\n"), "{}", pulls[0].body);
    assert_names_all(&api, branch, &pulls[0].body);
    api.merge(SLUG, 1, Merge::Squash).unwrap();
    for sandbox in [&first, &second] {
        let synced = sandbox.json(["sync", "--json"]);
        assert_eq!(synced["remote"]["merged"], json!([1]), "{synced}");
    }
}

#[test]
fn what_a_person_writes_in_a_pull_request_stays() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    let branch = capture(&sandbox, NAMES[0])["branch"].as_str().unwrap().to_owned();
    api.with_repository(SLUG, |repo| {
        let pull = &mut repo.pulls[0];
        pull.title = "Payments: read this first".to_owned();
        // A text that is edited on the page has the line ends of forms.
        pull.body = format!("Not before Thursday.\n\n{}\nUnit 2 is wrong.", pull.body).replace('\n', "\r\n");
    });
    capture(&sandbox, NAMES[1]);
    let pull = api.pulls(SLUG).remove(0);
    assert_eq!(pull.title, "Payments: read this first");
    assert!(pull.body.starts_with("Not before Thursday.\r\n\r\n"), "{}", pull.body);
    assert!(
        pull.body.ends_with("Unit 2 is wrong.") && pull.body.contains(" from 2 sessions."),
        "{}",
        pull.body
    );
    assert_names_all(&api, &branch, &pull.body);
    // Without anything of nugget's in it, the text stays as it is, and a comment says what was added.
    api.with_repository(SLUG, |repo| repo.pulls[0].body = "My own words.".to_owned());
    let ended = capture(&sandbox, NAMES[2]);
    let pull = api.pulls(SLUG).remove(0);
    assert_eq!((pull.body.as_str(), pull.comments.len()), ("My own words.", 1));
    let files = git(&bare_of(&api), &["show", "--format=", "--name-only", ended["commit"].as_str().unwrap()]);
    assert!(files.lines().count() > 0);
    for path in files.lines() {
        assert!(pull.comments[0].contains(path), "{path} is missing: {}", pull.comments[0]);
    }
}

#[test]
fn the_inbox_decides_about_all_captures_of_a_branch() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    for name in NAMES {
        capture(&sandbox, name);
    }
    let items = sandbox.json(["review", "--json"])["items"].as_array().unwrap().clone();
    let ids: Vec<&str> = items.iter().map(|item| item["id"].as_str().unwrap()).collect();
    sandbox.ok(["review", "reject", ids[0]]);
    let mut merge = vec!["review", "merge"];
    merge.extend(&ids[1..]);
    sandbox.ok(merge);
    assert!(captures(&sandbox).iter().all(|capture| capture["pull_state"] == "merged"));
    assert!(!api.pulls(SLUG)[0].is_open);
    assert_eq!(nuggets_branches(&bare_of(&api)), Vec::<String>::new());
    assert_eq!(sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), ids.len() - 1);
}

#[test]
fn what_the_branch_has_edited_already_gets_a_pull_request_of_its_own() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    let ended = capture(&sandbox, "flywheel");
    let branch = ended["branch"].as_str().unwrap().to_owned();
    // A reviewer writes to where the next capture puts its unit.
    let go_race = Sandbox::with_brain();
    let expected = capture(&go_race, "go_race");
    let path = go_race.git(&["diff", "--name-only", "main", expected["branch"].as_str().unwrap()]);
    api.commit(SLUG, &branch, path.lines().next().unwrap(), "# Another text\n");
    let alone = capture(&sandbox, "go_race");
    assert!(alone["branch"].as_str().unwrap().starts_with("nugget/session-"), "{alone}");
    assert_eq!((&alone["state"], &alone["pull_number"]), (&"done".into(), &2.into()), "{alone}");
}

#[test]
fn a_blocked_forge_delays_a_batch_and_doubles_nothing() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    capture(&sandbox, "flywheel");
    for matching in
        ["git-receive-pack", "PATCH /api/v3/repos/me/brain/pulls/1", "GET /api/v3/repos/me/brain/pulls"]
    {
        api.fail_next(1, matching, Failure::CutAfter);
    }
    let transcript = fixture("transcripts/synthetic/go_race.jsonl");
    sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap()]);
    wait_until("it is delivered", || {
        let captures = captures(&sandbox);
        if captures.len() == 2 && captures[1]["state"] != "running" && captures[1]["state"] != "done" {
            sandbox.ok(["retry", "--all"]);
        }
        captures.len() == 2 && captures[1]["state"] == "done"
    });
    let ended = captures(&sandbox)[1].clone();
    let branch = ended["branch"].as_str().unwrap();
    let count = git(&bare_of(&api), &["rev-list", "--count", &format!("main..{branch}")]);
    assert_eq!((count.trim(), api.pulls(SLUG).len(), &ended["pull_number"]), ("2", 1, &1.into()));
}

#[test]
fn what_was_rejected_before_its_pull_request_is_not_pushed_again() {
    let api = GithubApi::start();
    let sandbox = batching(&api);
    let refused = Failure::Status(403, "Resource not accessible by personal access token", Vec::new());
    api.fail_next(1000, "POST /api/v3/repos/me/brain/pulls", refused);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.run(["capture-session", "--wait", "--transcript", transcript.to_str().unwrap()]);
    wait_until_idle(&sandbox);
    assert_eq!(captures(&sandbox)[0]["stage"], "delivery");
    sandbox.ok(["review", "reject", "--all"]);
    api.clear_failures();
    let ended = wait_for_newest(&sandbox);
    assert_eq!((&ended["state"], &ended["pull_state"]), (&"done".into(), &"closed".into()), "{ended}");
    assert_eq!((api.pulls(SLUG).len(), nuggets_branches(&bare_of(&api))), (0, Vec::new()));
}

/// The one that is not the branch's newest capture, and has failed meanwhile.
#[test]
fn a_capture_is_not_pushed_again_once_its_shared_branch_is_decided() {
    for decide in ["reject", "merge", "close on GitHub"] {
        let api = GithubApi::start();
        let sandbox = batching(&api);
        let wrong =
            json!([{ "resource": "PullRequest", "field": "title", "code": "custom", "message": "too sad" }]);
        api.fail_next(1, "POST /api/v3/repos/me/brain/pulls", Failure::Invalid(wrong));
        let failed = capture(&sandbox, "flywheel");
        assert_eq!((&failed["state"], &failed["pushed"]), (&"dead".into(), &failed["commit"]), "{failed}");
        let ended = capture(&sandbox, "go_race");
        assert_eq!((&ended["state"], &ended["branch"]), (&"done".into(), &failed["branch"]), "{ended}");
        let count = git(
            &bare_of(&api),
            &["rev-list", "--count", &format!("main..{}", ended["branch"].as_str().unwrap())],
        );
        assert_eq!(count.trim(), "2");
        match decide {
            "close on GitHub" => api.close(SLUG, 1),
            decide => drop(sandbox.ok(["review", decide, "--all"])),
        }
        sandbox.ok(["retry", "--all"]);
        wait_until("it has ended", || captures(&sandbox)[0]["state"] == "done");
        let expected = if decide == "merge" { "merged" } else { "closed" };
        assert_eq!(captures(&sandbox)[0]["pull_state"], expected, "{decide}");
        let left = nuggets_branches(&bare_of(&api)).len();
        assert_eq!((api.pulls(SLUG).len(), left), (1, usize::from(decide == "close on GitHub")), "{decide}");
        assert!(!api.pulls(SLUG)[0].is_open, "{decide}");
    }
}

#[test]
fn reviewers_are_asked_by_domain() {
    let api = GithubApi::start();
    let mut sandbox = brain_at(&api);
    sandbox.variables.push(("NUGGET_DELIVERY_BATCH".to_owned(), "off".to_owned()));
    let text = fs::read_to_string(sandbox.brain().join("brain.yaml")).unwrap();
    let text = format!("{text}reviewers:\n  '*': ['@ada', stranger, me/data]\n  cooking: [nobody]\n");
    fs::write(sandbox.brain().join("brain.yaml"), text).unwrap();
    api.with_repository(SLUG, |repo| {
        repo.collaborators = ["ada", "team:data"].map(str::to_owned).to_vec();
    });
    let ended = capture(&sandbox, "flywheel");
    assert_eq!(ended["state"], "done", "{ended}");
    assert_eq!(api.pulls(SLUG)[0].reviewers, ["ada", "team:data"]);
}
