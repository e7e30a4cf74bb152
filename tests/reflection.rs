//! `nugget reflect` proposes what to tidy up on one branch with reasons, and each of it once.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::delivery::{SLUG, brain_at};
use crate::support::github_api::GithubApi;
use crate::support::messages_api::{KEY, MessagesApi, Reply};
use crate::support::{Sandbox, git, wait_until};

const POOLS: &str = "domains/coding/patterns/pools.md";

/// A brain with two units that say the same, two that contradict each other, and a link to nothing.
fn untidy() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    make_untidy(&sandbox);
    sandbox
}

fn make_untidy(sandbox: &Sandbox) {
    let unit = |path: &str, front: &str, text: &str| {
        let path = sandbox.brain().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(
            path,
            format!("---\n{front}created: 2026-01-02\nlast_modified: 2026-01-02\n---\n\n{text}\n"),
        )
        .unwrap();
    };
    let text = "# Bound the worker pool\n\nStart at most eight workers for each queue, or the database runs out of connections.";
    unit(POOLS, "id: pools\ntype: pattern\n", text);
    unit(
        "domains/coding/patterns/pools-2.md",
        "id: pools-2\ntype: pattern\nrelated: [{id: gone, relation: uses}]\n",
        text,
    );
    unit(
        "domains/web/decisions/ttl.md",
        "id: ttl\ntype: decision\n",
        "# Sessions live 30 minutes\n\nA session of the shop ends after 30 minutes without a request.",
    );
    unit(
        "domains/web/decisions/ttl-2.md",
        "id: ttl-2\ntype: decision\n",
        "# Sessions live 90 minutes\n\nA session of the shop ends after 90 minutes without a request.",
    );
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "units"]);
}

fn kinds(found: &Value) -> Vec<&str> {
    found["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

#[test]
fn a_link_to_a_file_that_cannot_be_read_or_lies_elsewhere_is_kept() {
    let sandbox = Sandbox::with_brain();
    let write = |path: &str, text: &str| {
        let path = sandbox.brain().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let related = "related: [{id: broken}, {id: notes/plan}, {id: gone}]";
    write("domains/web/bugs/a.md", &format!("---\nid: a\ntype: bug\n{related}\n---\n\n# A\n\ntext\n"));
    // Fixed tomorrow.
    write("domains/web/bugs/b.md", "---\nid: broken\ntype: [\n---\n\n# B\n\nother words\n");
    write("notes/plan.md", "# The plan\n\nwords\n");
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "units"]);
    let found = sandbox.json(["reflect", "--json"]);
    assert_eq!(kinds(&found), ["dangling link"], "{found}");
    assert!(found["findings"][0]["reason"].as_str().unwrap().contains("gone"), "{found}");
}

#[test]
fn what_is_untidy_is_proposed_with_reasons_and_merges() {
    let sandbox = untidy();
    let dry = sandbox.ok(["reflect", "--dry-run"]);
    assert!(dry.contains("dry run; would propose changes of 4 files on one branch"), "{dry}");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
    let found = sandbox.json(["reflect", "--json"]);
    assert_eq!(kinds(&found), ["duplicate", "contradiction", "dangling link"]);
    let branch = found["branch"].as_str().unwrap();
    let message = git(&sandbox.brain(), &["log", "-1", "--format=%B", branch]);
    assert!(message.starts_with("Tidy up: 3 findings\n"), "{message}");
    for finding in found["findings"].as_array().unwrap() {
        assert!(message.contains(finding["reason"].as_str().unwrap()), "{message}");
    }
    let list = sandbox.ok(["review"]);
    assert!(list.contains("reflection ") && list.contains("says the same as"), "{list}");
    let items = sandbox.json(["review", "--json"])["items"].clone();
    let has_reason = |item: &Value| !item["reasons"].as_array().unwrap().is_empty();
    assert!(items.as_array().unwrap().iter().all(has_reason), "{items}");
    sandbox.ok(["review", "merge", "--all"]);
    let units: Vec<String> =
        sandbox.ok(["list"]).lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(units.len(), 3, "{units:?}");
    let ttl = fs::read_to_string(sandbox.brain().join("domains/web/decisions/ttl.md")).unwrap();
    assert!(ttl.contains("id: ttl-2") && ttl.contains("contradicts"), "{ttl}");
    assert_eq!(sandbox.ok(["reflect"]), "nothing to tidy up in 3 units\n");
}

#[test]
fn a_unit_that_takes_over_anothers_text_is_decided_with_its_removal() {
    let sandbox = Sandbox::with_brain();
    let unit = |name: &str, front: &str, text: &str| {
        let path = sandbox.brain().join(format!("domains/coding/patterns/{name}.md"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("---\nid: {name}\ntype: pattern\n{front}---\n\n{text}\n")).unwrap();
    };
    let text = "# Bound the worker pool\n\nStart at most eight workers for each queue, or the database runs out of connections.";
    unit("pools", "tags: [go]\n", text);
    unit("pools-2", "tags: [workers]\n", text);
    unit("queue", "related: [{id: pools-2, relation: uses}]\n", "# Queues are durable\n\nOn the disk.");
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "units"]);
    sandbox.ok(["reflect"]);
    let items = sandbox.json(["review", "--json"])["items"].clone();
    let items = items.as_array().unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    let (kept, removed) = (items[0]["path"].as_str().unwrap(), items[0]["removes"][0].as_str().unwrap());
    assert!(items[0]["before"].as_str().unwrap().contains("tags: ["), "{items:?}");
    let shown = sandbox.ok(["review", "show", "--all"]);
    assert!(shown.contains(&format!("removes {removed}")), "{shown}");
    assert!(shown.contains("\nChanges:\n") && shown.lines().any(|line| line.starts_with("+ ")), "{shown}");

    // A change of the removed file meanwhile is not lost.
    let at = |path: &str| sandbox.brain().join(path);
    let before = fs::read_to_string(at(removed)).unwrap();
    fs::write(at(removed), format!("{before}\nA person's line.\n")).unwrap();
    sandbox.git(&["commit", "-qam", "a line"]);
    let refused = sandbox.run(["review", "merge", "--all"]);
    assert!(!refused.status.success());
    assert!(fs::read_to_string(at(removed)).unwrap().contains("A person's line."));
    fs::write(at(removed), &before).unwrap();
    sandbox.git(&["commit", "-qam", "without the line"]);

    sandbox.ok(["review", "merge", "--all"]);
    assert!(!at(removed).exists());
    let text = fs::read_to_string(at(kept)).unwrap();
    assert!(text.contains("go") && text.contains("workers"), "{text}");
    let queue = fs::read_to_string(at("domains/coding/patterns/queue.md")).unwrap();
    assert!(!queue.contains("pools-2") || kept.ends_with("pools-2.md"), "{queue}");
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "");
}

#[test]
fn a_rejected_change_by_a_pass_is_no_rejected_unit() {
    let sandbox = untidy();
    sandbox.ok(["reflect"]);
    sandbox.ok(["review", "reject", "--all"]);
    let places = brain::StatePaths::in_folder(sandbox.state());
    let queue = queue::Queue::open(&places.queue()).unwrap();
    assert_eq!(queue.rejected(10).unwrap(), []);
    assert_eq!(sandbox.ok(["list"]).lines().count(), 5);
}

#[test]
fn what_is_rejected_is_not_proposed_again_until_it_changes() {
    let sandbox = untidy();
    let first = sandbox.json(["reflect", "--json"]);
    // It waits: another pass proposes nothing of it.
    assert_eq!(sandbox.json(["reflect", "--json"])["findings"], json!([]));
    sandbox.ok(["review", "reject", "--all"]);
    assert_eq!(sandbox.json(["reflect", "--json"])["findings"], json!([]));
    let path = sandbox.brain().join(POOLS);
    fs::write(&path, fs::read_to_string(&path).unwrap() + "\nMeasured again.\n").unwrap();
    sandbox.git(&["commit", "-qam", "edit"]);
    let again = sandbox.json(["reflect", "--json"]);
    assert_eq!(kinds(&first).len(), 3);
    assert_eq!(kinds(&again), ["duplicate"], "{again}");
}

#[test]
fn a_worker_makes_the_pass_once_a_day_when_told_to() {
    let mut sandbox = untidy();
    sandbox.ok(["drain"]);
    assert_eq!(sandbox.git(&["branch", "--list", "nugget/*"]), "", "it is off by default");
    sandbox.variables.push(("NUGGET_REFLECT_SCHEDULE".into(), "daily".into()));
    sandbox.ok(["drain"]);
    wait_until("the branch is there", || {
        !sandbox.git(&["branch", "--list", "nugget/reflection-*"]).is_empty()
    });
    sandbox.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    let before = sandbox.git(&["for-each-ref", "refs/heads/nugget"]);
    let path = sandbox.brain().join(POOLS);
    fs::write(&path, fs::read_to_string(&path).unwrap() + "\nMeasured again.\n").unwrap();
    sandbox.git(&["commit", "-qam", "edit"]);
    sandbox.ok(["drain"]);
    assert_eq!(sandbox.git(&["for-each-ref", "refs/heads/nugget"]), before, "not twice a day");
}

#[test]
fn a_wrong_time_is_refused_and_an_empty_brain_is_tidy() {
    let sandbox = Sandbox::with_brain();
    assert_eq!(sandbox.ok(["reflect", "--since", "30d"]), "nothing to tidy up in 0 units\n");
    let output = sandbox.run(["reflect", "--since", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"soon\" is not a time"));
}

#[test]
fn the_pull_request_says_why_each_file_is_changed() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    make_untidy(&sandbox);
    let bare = api.with_repository(SLUG, |repository| repository.bare.clone());
    sandbox.git(&["push", "--quiet", bare.to_str().unwrap(), "main"]);
    sandbox.ok(["sync"]);
    let found = sandbox.json(["reflect", "--json"]);
    wait_until("the pull request is open", || {
        sandbox.ok(["retry", "--all"]);
        !api.pulls(SLUG).is_empty()
    });
    let pull = &api.pulls(SLUG)[0];
    assert!(pull.title.starts_with("Knowledge tidied up "), "{}", pull.title);
    assert_eq!(pull.body.matches("says the same as").count(), 1, "{}", pull.body);
    assert!(pull.body.contains("**Why**") && pull.body.contains("which does not exist"), "{}", pull.body);
    assert_eq!(found["branch"], pull.branch);
}

/// The state folder of the brain.
fn brain_state(sandbox: &Sandbox) -> PathBuf {
    let folders = fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
    folders.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
}

/// Records in the archive that sessions were shown a unit.
fn record_shown(sandbox: &Sandbox, unit: &str, sessions: i64) {
    sandbox.ok(["sessions", "sync"]);
    let state = sandbox.path().join("state/nugget");
    let brain = brain::StatePaths::in_folder(brain_state(sandbox)).key();
    let database = rusqlite::Connection::open(state.join("archive.db")).unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    for number in 1..=sessions {
        let session =
            "INSERT INTO sessions (id, session, source, project, path, cwd, transcript, archived_ms)
            VALUES (?1, 's' || ?1, 'claude-code', 'p', '/p', '/p', '/gone', 0)";
        database.execute(session, [number]).unwrap();
        let shown =
            "INSERT INTO shown (event, brain, project, session, source, kind, item, rank, propensity, tokens,
                is_withheld, at_ms)
            VALUES (?1, ?2, 'p', ?1, 'tool', 'unit', ?3, 0, 1, 10, 0, ?4)";
        database.execute(shown, rusqlite::params![number, brain, unit, now]).unwrap();
    }
}

#[test]
fn a_model_shortens_long_units_that_sessions_need_and_is_not_trusted() {
    const SHORT: &str =
        "# Restart the importer\n\nStop `importd`, wait 40 seconds for the lease, start it again.";
    const WRONG: &str =
        "# Restart the importer\n\nStop `importd`, wait 90 seconds for the lease, start it again.";
    for (answer, is_taken) in [(SHORT, true), (WRONG, false)] {
        let api = MessagesApi::start(move |_| Reply::Text(answer));
        let mut sandbox = Sandbox::with_brain();
        let path = sandbox.brain().join("domains/ops/patterns/importer.md");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let words = "One must be patient, as the process is slow and everything depends on it in the end. "
            .repeat(30);
        let body = format!(
            "# Restart the importer\n\nStop `importd`, wait 40 seconds for the lease, start it again. {words}"
        );
        fs::write(&path, format!("---\nid: importer\ntype: pattern\nmine: kept\n---\n\n{body}\n")).unwrap();
        sandbox.git(&["add", "."]);
        sandbox.git(&["commit", "-qm", "unit"]);
        sandbox.ok(["reflect", "--dry-run"]);
        record_shown(&sandbox, "importer", 6);
        assert!(
            sandbox.ok(["reflect"]).contains("nothing of it changes a file"),
            "without a model it is only listed"
        );
        sandbox.variables.extend(
            [("ANTHROPIC_API_KEY", KEY), ("NUGGET_MODEL_URL", &api.url)]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        sandbox.variables.push(("NUGGET_EXTRACT_BACKEND".into(), "heuristic".into()));
        assert!(sandbox.ok(["reflect"]).contains("nothing of it changes a file"));
        assert_eq!(api.requests().len(), 0, "no text leaves where rules read sessions");
        sandbox.variables.pop();
        let output = sandbox.run(["reflect", "--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let to = found["sent"]["to"].as_str().unwrap();
        assert!(to.ends_with(&format!(" at {}", api.url)), "{found}");
        assert_eq!(found["sent"]["units"], json!(["importer"]));
        assert_eq!(
            found["branch"].is_string(),
            is_taken,
            "{found} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(api.requests().len(), 1);
        if is_taken {
            // As on another machine, which has the branch but has not made the pass.
            let queue = rusqlite::Connection::open(brain_state(&sandbox).join("queue.db")).unwrap();
            queue.execute("DELETE FROM reports", []).unwrap();
            let second = sandbox.json(["reflect", "--json"]);
            assert_eq!((kinds(&second).len(), api.requests().len()), (0, 1), "it waits: {second}");
            sandbox.ok(["review", "merge", "--all"]);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("mine: kept") && text.trim_end().ends_with("start it again."), "{text}");
            assert!(sandbox.ok(["spend"]).contains("claude-"), "the call is in the ledger");
        } else {
            assert!(String::from_utf8_lossy(&output.stderr).contains("importer was not rewritten"));
            sandbox.ok(["reflect"]);
            assert_eq!(api.requests().len(), 1, "the same text would get the same answer");
        }
    }
}

#[test]
fn a_second_pass_leaves_files_alone_that_the_first_is_about() {
    let sandbox = untidy();
    sandbox.ok(["reflect"]);
    // A third unit that says the same as the two of which one is about to go.
    let text = fs::read_to_string(sandbox.brain().join(POOLS)).unwrap().replace("id: pools", "id: pools-3");
    fs::write(sandbox.brain().join("domains/coding/patterns/pools-3.md"), text).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "one more"]);
    let second = sandbox.json(["reflect", "--dry-run", "--json"]);
    assert_eq!(kinds(&second), [""; 0], "{second}");
    sandbox.ok(["review", "merge", "--all"]);
    let third = sandbox.json(["reflect", "--dry-run", "--json"]);
    assert!(kinds(&third).contains(&"duplicate"), "{third}");
}
