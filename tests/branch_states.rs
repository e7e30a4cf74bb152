//! Branches in the states that people, other machines and the remote leave them in: nothing is lost, nothing is doubled,
//! and what is no fault of a capture does not fail it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::delivery::{SLUG, add_remote, brain_at};
use crate::notes::Agent;
use crate::support::github_api::{Failure, GithubApi, Merge, TOKEN};
use crate::support::{Sandbox, fixture, git, wait_until, write_script};
use crate::two_clones::{session, two_clones, two_clones_of_a_folder, waiting_titles};

/// Two machines that sync only when they are told to.
fn machines() -> (PathBuf, [Sandbox; 2]) {
    let (bare, mut machines) = two_clones_of_a_folder();
    for machine in &mut machines {
        machine.variables.push(("NUGGET_SYNC_MINUTES".to_owned(), "0".to_owned()));
    }
    (bare, machines)
}

fn capture(sandbox: &Sandbox) -> Value {
    sandbox.json(["status", "--json"])["captures"][0].clone()
}

fn note(agent: &mut Agent, title: &str) {
    agent.call("create_note", json!({ "title": title, "content": format!("{title}, from a session.") }));
}

/// Waits until the remote has what agents wrote on this machine.
fn wait_for_delivery(sandbox: &Sandbox, bare: &Path) {
    let branch = actors::notes::agents_branch();
    let reference = format!("refs/heads/{branch}");
    wait_until("the notes are delivered", || {
        sandbox.ok(["retry", "--all"]);
        let at_remote = git(bare, &["for-each-ref", "--format=%(objectname)", &reference]);
        let capture = capture(sandbox);
        capture["state"] == "done"
            && capture["commit"] == at_remote.trim()
            && capture["pushed"] == capture["commit"]
            && at_remote == sandbox.git(&["for-each-ref", "--format=%(objectname)", &reference])
    });
}

/// A person changes a file of the agents' branch at the remote, whose name ends so, and adds another one.
fn add_at_remote(reviewer: &Sandbox, name: &str, change: impl FnOnce(String) -> String) {
    let branch = actors::notes::agents_branch();
    reviewer.git(&["fetch", "--quiet"]);
    reviewer.git(&["checkout", "--quiet", "-B", &branch, &format!("origin/{branch}")]);
    let files = reviewer.git(&["ls-files"]);
    let path = reviewer.brain().join(files.lines().find(|path| path.ends_with(name)).unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(text)).unwrap();
    std::fs::write(reviewer.brain().join("README.md"), "Added by a person.\n").unwrap();
    reviewer.git(&["add", "."]);
    reviewer.git(&["commit", "--quiet", "-m", "correct it"]);
    reviewer.git(&["push", "--quiet", "origin", &branch]);
    reviewer.git(&["checkout", "--quiet", "main"]);
}

fn titles(sandbox: &Sandbox) -> Vec<String> {
    let listed = sandbox.json(["list", "--json"]);
    let mut titles: Vec<String> = listed["units"]
        .as_array()
        .unwrap()
        .iter()
        .map(|unit| unit["title"].as_str().unwrap().to_owned())
        .collect();
    titles.sort();
    titles
}

#[test]
fn what_an_agent_writes_while_a_reviewer_adds_is_on_one_branch_with_it() {
    for place in ["", "delivery-before-push", "delivery-after-push", "delivery-after-note"] {
        let (bare, [mut sandbox, reviewer]) = machines();
        note(&mut Agent::start(&sandbox), "First");
        wait_for_delivery(&sandbox, &bare);
        add_at_remote(&reviewer, "first.md", |text| text + "\nCorrected by a person.\n");
        if !place.is_empty() {
            let marks = sandbox.path().join("marks");
            std::fs::create_dir(&marks).unwrap();
            let variables =
                [("FAILPOINTS", format!("{place}=1")), ("FAILPOINT_MARKS", marks.display().to_string())];
            sandbox.variables.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        }
        note(&mut Agent::start(&sandbox), "Second");
        wait_for_delivery(&sandbox, &bare);
        if !place.is_empty() {
            let kills = std::fs::read_dir(sandbox.path().join("marks")).unwrap().count();
            assert_eq!(kills, 1, "{place}");
        }
        let branch = actors::notes::agents_branch();
        let patch = git(&bare, &["diff", "main", &branch]);
        for text in ["Corrected by a person.", "Second, from a session.", "Added by a person."] {
            assert_eq!(patch.matches(text).count(), 1, "{place} {text}: {patch}");
        }
        git(&bare, &["update-ref", "refs/heads/main", &branch]);
        sandbox.ok(["sync"]);
        assert_eq!(titles(&sandbox), ["First", "Second"], "{place}");
        assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "", "{place}");
        assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "", "{place}");
        assert_eq!(sandbox.git(&["fsck", "--no-dangling"]), "");
    }
}

#[test]
fn a_merge_at_the_remote_hides_no_note_that_it_does_not_have() {
    let (bare, [sandbox, reviewer]) = machines();
    let mut agent = Agent::start(&sandbox);
    note(&mut agent, "First");
    wait_for_delivery(&sandbox, &bare);
    // Both change one line.
    add_at_remote(&reviewer, "first.md", |text| text.replace("from a session", "from a person"));
    let change = json!({ "note": "first", "old_text": "a session", "new_text": "a later session" });
    agent.call("edit_note", change);
    note(&mut agent, "Second");
    wait_until("the capture has ended", || {
        sandbox.ok(["retry", "--all"]);
        let capture = capture(&sandbox);
        capture["state"] == "done" && capture["pushed"] != capture["commit"]
    });
    let branch = actors::notes::agents_branch();
    assert!(!git(&bare, &["ls-tree", "-r", "--name-only", &branch]).contains("second.md"));
    git(&bare, &["update-ref", "refs/heads/main", &branch]);
    sandbox.ok(["sync"]);
    wait_for_delivery(&sandbox, &bare);
    assert!(git(&bare, &["ls-tree", "-r", "--name-only", &branch]).contains("second.md"));
    assert!(sandbox.ok(["review"]).contains("Second"));
    assert_eq!(titles(&sandbox), ["First"]);
    let before = capture(&sandbox);
    sandbox.ok(["sync"]);
    assert_eq!(capture(&sandbox), before, "once");
}

#[test]
fn the_notes_of_two_machines_with_one_name_all_arrive() {
    let (bare, [first, second]) = machines();
    let (mut one, mut other) = (Agent::start(&first), Agent::start(&second));
    note(&mut one, "One");
    wait_for_delivery(&first, &bare);
    // Begun before it was known.
    note(&mut other, "Two");
    wait_for_delivery(&second, &bare);
    note(&mut one, "Three");
    wait_for_delivery(&first, &bare);
    // And after the main branch has moved.
    first.ok(["note", "add", "By hand", "--content", "Written by a person."]);
    first.git(&["push", "--quiet", "origin", "main"]);
    second.ok(["sync"]);
    note(&mut other, "Four");
    wait_for_delivery(&second, &bare);
    let branch = actors::notes::agents_branch();
    git(&bare, &["update-ref", "refs/heads/main", &branch]);
    for sandbox in [&first, &second] {
        sandbox.ok(["sync"]);
        assert_eq!(titles(sandbox), ["By hand", "Four", "One", "Three", "Two"]);
        assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
    }
}

#[test]
fn a_branch_that_is_checked_out_is_made_again_later() {
    let api = GithubApi::start();
    let [first, second] = two_clones(&api);
    let one = session(&first, "11111111-aaaa", "flywheel");
    let other = session(&second, "22222222-bbbb", "flywheel");
    second.git(&["checkout", "--quiet", other["branch"].as_str().unwrap()]);
    api.merge(SLUG, one["pull_number"].as_u64().unwrap(), Merge::Commit).unwrap();
    let synced = second.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["recreated"], json!([]), "{synced}");
    assert_eq!(
        (&capture(&second)["state"], &capture(&second)["pull_state"]),
        (&"done".into(), &"open".into())
    );
    second.git(&["checkout", "--quiet", "main"]);
    assert_eq!(second.json(["sync", "--json"])["remote"]["recreated"], json!([other["id"]]));
    wait_until("the branch is made again", || {
        let capture = capture(&second);
        capture["state"] == "done" && capture["commit"] != other["commit"]
    });
}

#[test]
fn a_remote_that_refuses_or_cannot_store_a_branch_fails_no_capture() {
    for (is_full, expected) in [(true, "failed to store the branch"), (false, "this repository is frozen")] {
        let sandbox = Sandbox::with_brain();
        let bare = sandbox.path().join("remote.git");
        git(sandbox.path(), &["clone", "--quiet", "--bare", "brain", "remote.git"]);
        sandbox.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
        let path = bare.join("hooks/pre-receive");
        if is_full {
            git(&bare, &["config", "receive.maxInputSize", "1"]);
        } else {
            write_script(&path, "echo 'this repository is frozen' >&2\nexit 1");
        }
        let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
        let told = sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait"]);
        assert!(told.contains("not delivered yet") && told.contains(expected), "{told}");
        let waiting = capture(&sandbox);
        assert_eq!((&waiting["state"], &waiting["attempts"]), (&"queued".into(), &0.into()), "{waiting}");
        let status = sandbox.ok(["status"]);
        assert!(status.contains(if is_full { "free space" } else { "allow branches below" }), "{status}");
        match is_full {
            true => drop(git(&bare, &["config", "--unset", "receive.maxInputSize"])),
            false => std::fs::remove_file(&path).unwrap(),
        }
        sandbox.ok(["retry", "--all"]);
        wait_until("the capture is delivered", || capture(&sandbox)["state"] == "done");
        assert_eq!(capture(&sandbox)["pushed"], capture(&sandbox)["commit"]);
    }
}

#[test]
fn a_branch_in_the_way_of_all_of_nuggets_branches_fails_no_capture() {
    let sandbox = Sandbox::with_brain();
    sandbox.git(&["branch", "nugget"]);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap()]);
    wait_until("the failure is reported", || capture(&sandbox)["reason"].is_string());
    let waiting = capture(&sandbox);
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&"retrying".into(), &1.into()), "{waiting}");
    assert!(waiting["reason"].as_str().unwrap().contains("`git branch -m`"), "{waiting}");
    sandbox.git(&["branch", "-m", "nugget", "other"]);
    sandbox.ok(["retry", "--all"]);
    wait_until("the capture is done", || capture(&sandbox)["state"] == "done");
}

#[test]
fn a_branch_in_the_way_at_the_remote_fails_no_capture() {
    let (bare, [sandbox, _]) = machines();
    git(&bare, &["branch", "nugget"]);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let told = sandbox.ok(["capture-session", "--transcript", transcript.to_str().unwrap(), "--wait"]);
    assert!(told.contains("rename it there"), "{told}");
    git(&bare, &["branch", "-m", "nugget", "other"]);
    sandbox.ok(["retry", "--all"]);
    wait_until("the capture is delivered", || capture(&sandbox)["state"] == "done");
    assert_eq!(capture(&sandbox)["pushed"], capture(&sandbox)["commit"]);
}

#[test]
fn a_branch_that_was_deleted_long_before_there_was_a_remote_is_no_failure() {
    let mut sandbox = Sandbox::with_brain();
    let deleted = sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.git(&["branch", "-D", deleted["branch"].as_str().unwrap()]);
    sandbox.git(&["reflog", "expire", "--expire=now", "--all"]);
    sandbox.git(&["gc", "--quiet", "--prune=now"]);
    let api = GithubApi::start();
    add_remote(&mut sandbox, &api);
    sandbox.ok(["sync"]);
    wait_until("the capture has ended", || {
        sandbox.ok(["retry", "--all"]);
        capture(&sandbox)["pull_state"] == "closed"
    });
    wait_until("it is done", || capture(&sandbox)["state"] == "done");
    assert!(api.pulls(SLUG).is_empty());
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["delivered_late"], 0, "{synced}");
}

#[test]
fn what_another_machines_agents_write_after_a_review_waits_too() {
    let (bare, [sandbox, mut reviewer]) = machines();
    let mut agent = Agent::start(&sandbox);
    note(&mut agent, "First");
    wait_for_delivery(&sandbox, &bare);
    reviewer.ok(["sync"]);
    reviewer.ok(["review", "merge", "--all"]);
    sandbox.ok(["sync"]);
    let content = "Second, from a session.\n\nIt is kept.\n\nSo is this.";
    agent.call("create_note", json!({ "title": "Second", "content": content }));
    note(&mut agent, "Third");
    wait_for_delivery(&sandbox, &bare);
    reviewer.ok(["sync"]);
    assert_eq!(waiting_titles(&reviewer), ["Second", "Third"], "a branch of the same name");

    // Merged with an edit, which the agent's next note takes over.
    reviewer.variables.push(("EDITOR".to_owned(), "sed -i 's/from a session/from a person/'".to_owned()));
    reviewer.ok(["review", "edit", "1"]);
    sandbox.ok(["sync"]);
    note(&mut agent, "Fourth");
    wait_for_delivery(&sandbox, &bare);
    reviewer.ok(["sync"]);
    assert_eq!(waiting_titles(&reviewer), ["Fourth", "Third"]);

    // What was decided about a note was not about what an agent makes of it later.
    let change = json!({ "note": "second", "old_text": "a person", "new_text": "a later session" });
    agent.call("edit_note", change);
    wait_for_delivery(&sandbox, &bare);
    reviewer.ok(["sync"]);
    let waiting = waiting_titles(&reviewer);
    assert!(waiting.contains(&"Second".to_owned()), "{waiting:?}");
    reviewer.ok(["review", "merge", "--all"]);
    assert_eq!(git(&bare, &["branch", "--list", "nugget/*"]), "");
    let second = git(&bare, &["show", "main:domains/general/notes/second.md"]);
    assert!(second.contains("from a later session"), "{second}");
}

#[test]
fn an_agents_edit_of_what_was_merged_meanwhile_waits() {
    let (bare, [sandbox, reviewer]) = machines();
    let mut agent = Agent::start(&sandbox);
    let content = "Bound the pools.\n\nThe limit is 20.\n\nAsk before raising it.";
    agent.call("create_note", json!({ "title": "Pools", "content": content }));
    wait_for_delivery(&sandbox, &bare);
    reviewer.git(&["fetch", "--quiet"]);
    let branch = actors::notes::agents_branch();
    reviewer.git(&["merge", "--quiet", "--squash", &format!("origin/{branch}")]);
    reviewer.git(&["commit", "--quiet", "-m", "squash"]);
    reviewer.git(&["push", "--quiet", "origin", "main"]);
    // Its time is of whole seconds.
    let second = || jiff::Timestamp::now().as_second();
    let begun = second();
    wait_until("the note is older", || second() > begun);
    agent.call("edit_note", json!({ "note": "pools", "old_text": "is 20", "new_text": "is 50" }));
    sandbox.ok(["sync"]);
    assert_eq!(waiting_titles(&sandbox), ["Pools"]);
    // It is an edit of what was merged, and not another note of the same name.
    let waiting = &sandbox.json(["review", "--json"])["items"][0];
    assert_eq!((&waiting["action"], &waiting["changed_on_main"]), (&json!("completes"), &json!(false)));
    note(&mut agent, "Second");
    let path = "domains/general/notes/pools.md";
    assert!(sandbox.git(&["show", &format!("{branch}:{path}")]).contains("The limit is 50."));
    assert_eq!(waiting_titles(&sandbox), ["Pools", "Second"]);
    sandbox.ok(["review", "merge", "--all"]);
    assert!(sandbox.git(&["show", &format!("main:{path}")]).contains("The limit is 50."));
}

#[test]
fn a_persons_note_of_the_same_title_replaces_no_agents_note() {
    let sandbox = Sandbox::with_brain();
    let content = |fix: &str| format!("Jobs hang at night.\n\nIt is the pool.\n\n{fix}");
    let mut agent = Agent::start(&sandbox);
    let own = content("Raise it to 50, and restart the importer first.");
    agent.call("create_note", json!({ "title": "Night jobs", "content": own }));
    sandbox.ok(["note", "add", "Night jobs", "--content", &content("Wait for ops.")]);
    assert_eq!(waiting_titles(&sandbox), ["Night jobs"]);
    let branch = actors::notes::agents_branch();
    let note = sandbox.git(&["show", &format!("{branch}:domains/general/notes/night-jobs.md")]);
    assert!(note.contains("restart the importer first"), "{note}");
}

/// Waits until GitHub has what agents wrote on this machine, with a pull request. Returns its branch's commits and text.
fn wait_for_pull_request(sandbox: &Sandbox, api: &GithubApi) -> String {
    wait_until("the notes are delivered", || {
        sandbox.ok(["retry", "--all"]);
        let capture = capture(sandbox);
        capture["state"] == "done"
            && capture["pull_state"] == "open"
            && capture["pushed"] == capture["commit"]
    });
    let range = format!("main..{}", actors::notes::agents_branch());
    git(&bare_of(api), &["log", "--patch", &range]) + &api.pulls(SLUG).last().unwrap().body
}

fn bare_of(api: &GithubApi) -> PathBuf {
    api.with_repository(SLUG, |repository| repository.bare.clone())
}

/// A brain of which a note of an agent is in a pull request.
fn with_note_in_review() -> (GithubApi, Sandbox, Agent) {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let mut agent = Agent::start(&sandbox);
    note(&mut agent, "Harbour crane");
    assert!(wait_for_pull_request(&sandbox, &api).contains("Harbour crane, from a session."));
    (api, sandbox, agent)
}

#[test]
fn notes_of_a_pull_request_that_was_closed_do_not_come_back() {
    for is_deleted in [false, true] {
        let (api, sandbox, mut agent) = with_note_in_review();
        let (bare, branch) = (bare_of(&api), actors::notes::agents_branch());
        let number = api.pulls(SLUG)[0].number;
        let answer = || sandbox.ok(["ask", "--no-llm", "what does the crane of the port do?"]);
        assert!(answer().contains("Harbour crane"), "{}", answer());
        api.close(SLUG, number);
        sandbox.ok(["sync"]);
        assert!(!answer().contains("Harbour crane"), "{}", answer());
        if is_deleted {
            git(&bare, &["branch", "-D", &branch]);
            sandbox.ok(["sync"]);
        } else {
            // Opened again it waits again.
            api.reopen(SLUG, number);
            sandbox.ok(["sync"]);
            assert_eq!(waiting_titles(&sandbox), ["Harbour crane"]);
            assert!(api.pulls(SLUG)[0].is_open);
            api.close(SLUG, number);
            sandbox.ok(["sync"]);
        }
        assert_eq!(waiting_titles(&sandbox), [""; 0]);
        note(&mut agent, "Second");
        let sent = wait_for_pull_request(&sandbox, &api);
        assert_eq!(waiting_titles(&sandbox), ["Second"]);
        assert!(sent.contains("Second, from a session."), "{sent}");
        assert_eq!(sent.contains("Harbour crane"), !is_deleted, "{sent}");
        let paths = git(&bare, &["diff", "--name-only", "main", &branch]);
        assert_eq!(paths, "domains/general/notes/second.md\n");
        let pulls = api.pulls(SLUG);
        assert!(pulls.len() == 2 && !pulls[1].body.contains("Harbour crane"), "{pulls:?}");
    }
}

#[test]
fn a_note_from_after_a_close_goes_out_without_the_closed_ones() {
    for is_deleted in [false, true] {
        let (api, sandbox, mut agent) = with_note_in_review();
        api.close(SLUG, api.pulls(SLUG)[0].number);
        if is_deleted {
            git(&bare_of(&api), &["branch", "-D", &actors::notes::agents_branch()]);
        }
        // No sync has seen it yet.
        note(&mut agent, "Second");
        let sent = wait_for_pull_request(&sandbox, &api);
        assert!(sent.contains("Second, from a session.") && !sent.contains("Harbour crane"), "{sent}");
        assert_eq!(waiting_titles(&sandbox), ["Second"]);
        let pulls = api.pulls(SLUG);
        assert_eq!(pulls.iter().map(|pull| pull.is_open).collect::<Vec<_>>(), [false, true]);
        sandbox.ok(["sync"]);
        assert_eq!(waiting_titles(&sandbox), ["Second"]);
    }
}

#[test]
fn the_text_of_a_pull_request_follows_what_was_pushed_without_a_token() {
    let api = GithubApi::start();
    api.open_git();
    let mut sandbox = brain_at(&api);
    note(&mut Agent::start(&sandbox), "First");
    wait_for_pull_request(&sandbox, &api);
    sandbox.wait_for_workers();
    let with_token = sandbox.variables.clone();
    sandbox.variables.retain(|(name, _)| name != "GITHUB_TOKEN");
    note(&mut Agent::start(&sandbox), "Second");
    let bare = bare_of(&api);
    wait_for_delivery(&sandbox, &bare);
    sandbox.wait_for_workers();
    let text = || api.pulls(SLUG)[0].body.clone();
    assert!(!text().contains("Second"), "{}", text());
    sandbox.variables = with_token;
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["delivered_late"], 1);
    wait_until("the text is brought up to date", || text().contains("First") && text().contains("Second"));
    sandbox.wait_for_workers();
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["delivered_late"], 0);
    assert_eq!(api.pulls(SLUG).len(), 1);
}

#[test]
fn a_note_that_is_rejected_before_it_is_pushed_is_in_no_commit() {
    for is_followed in [false, true] {
        let api = GithubApi::start();
        let sandbox = brain_at(&api);
        api.fail_next(1000, "brain.git", Failure::Status(503, "Unavailable", Vec::new()));
        let mut agent = Agent::start(&sandbox);
        for title in ["First", "Second"] {
            note(&mut agent, title);
        }
        let items = sandbox.json(["review", "--json"])["items"].clone();
        assert_eq!(items[0]["title"], "First");
        sandbox.ok(["review", "reject", items[0]["id"].as_str().unwrap()]);
        if is_followed {
            note(&mut agent, "Third");
        }
        api.clear_failures();
        let sent = wait_for_pull_request(&sandbox, &api);
        assert!(sent.contains("Second, from a session."), "{sent}");
        assert_eq!(sent.contains("Third, from a session."), is_followed, "{sent}");
        assert!(!sent.contains("First"), "{sent}");
        assert_eq!(waiting_titles(&sandbox).len(), 1 + usize::from(is_followed));
    }
}

#[test]
fn without_a_token_all_branches_are_pushed_and_other_machines_see_them() {
    let api = GithubApi::start();
    api.open_git();
    let [mut sandbox, mut other] = two_clones(&api);
    let with_token = sandbox.variables.clone();
    for machine in [&mut sandbox, &mut other] {
        machine.variables.retain(|(name, _)| name != "GITHUB_TOKEN");
    }
    let captures = [("11111111-aaaa", "flywheel"), ("22222222-bbbb", "go_race")]
        .map(|(id, name)| session(&sandbox, id, name));
    for capture in &captures {
        assert_eq!((&capture["state"], &capture["pull_number"]), (&json!("done"), &Value::Null), "{capture}");
        assert_eq!(capture["pushed"], capture["commit"]);
    }
    sandbox.ok(["sync"]);
    let status = sandbox.ok(["status"]);
    assert!(status.contains("2 branches pushed without a pull request: no token"), "{status}");
    other.ok(["sync"]);
    let (mut waiting, mut own) = (waiting_titles(&other), waiting_titles(&sandbox));
    waiting.sort();
    own.sort();
    assert!(waiting.len() > 2 && waiting == own, "{waiting:?} {own:?}");
    // Once there is a token each gets its pull request, and the other machine follows what becomes of it.
    sandbox.variables = with_token;
    other.variables.push(("GITHUB_TOKEN".to_owned(), TOKEN.to_owned()));
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["delivered_late"], 2);
    sandbox.wait_for_workers();
    wait_until("both have a pull request", || {
        sandbox.ok(["retry", "--all"]);
        api.pulls(SLUG).len() == 2 && capture(&sandbox)["pull_state"] == "open"
    });
    sandbox.wait_for_workers();
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["delivered_late"], 0);
    assert!(!sandbox.ok(["status"]).contains("no token"));
    for pull in api.pulls(SLUG) {
        api.merge(SLUG, pull.number, Merge::Commit).unwrap();
    }
    for machine in [&sandbox, &other] {
        machine.ok(["sync"]);
        machine.ok(["sync"]);
        assert_eq!(waiting_titles(machine), [""; 0]);
        assert_eq!(machine.git(&["branch", "--list", "nugget/*"]), "");
    }
}
