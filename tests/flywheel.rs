//! A session ends, its knowledge is reviewed, the next session finds it.

use std::collections::HashSet;

use crate::support::{Sandbox, fixture, git};

/// The demo asks this too, about the unit that its transcript gives.
const QUESTION: &str = "Why did a customer receive their bill twice?";

#[test]
fn a_merged_lesson_is_found_by_the_next_session() {
    let sandbox = Sandbox::with_brain();
    let capture = sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    assert_eq!(capture["state"], "done", "{capture}");
    let branch = capture["branch"].as_str().unwrap();
    assert!(branch.starts_with("nugget/session-"), "{branch}");

    let before = sandbox.json(["ask", QUESTION, "--no-llm", "--json"]);
    assert_eq!(before["units"].as_array().unwrap().len(), 0, "nothing unreviewed is served");

    sandbox.git(&["merge", "--no-edit", branch]);
    let after = sandbox.json(["ask", QUESTION, "--no-llm", "--json"]);
    let first = &after["units"][0];
    let listed = sandbox.json(["list", "--json"]);
    let ids: Vec<_> = listed["units"].as_array().unwrap().iter().map(|unit| &unit["id"]).collect();
    assert_eq!(ids.len() as u64, capture["units"].as_u64().unwrap());
    assert!(ids.contains(&&first["id"]), "{first}");

    let words = |text: &str| -> HashSet<String> {
        let stop = [
            "the", "a", "an", "in", "on", "of", "to", "is", "why", "does", "do", "how", "what", "my", "our",
            "we", "i", "when", "with", "and", "for", "it", "not", "so",
        ];
        knowledge::text::canonical(text)
            .split(' ')
            .map(str::to_owned)
            .filter(|word| !stop.contains(&word.as_str()))
            .collect()
    };
    let title = first["title"].as_str().unwrap();
    let shared: Vec<_> = words(title).intersection(&words(QUESTION)).cloned().collect();
    assert!(shared.is_empty(), "{title:?} and the question share {shared:?}");
    let shown = sandbox.ok(["show", first["id"].as_str().unwrap()]);
    assert!(shown.contains("source: heuristic"), "{shown}");
}

#[test]
fn the_branch_holds_one_commit_that_describes_its_new_files() {
    let sandbox = Sandbox::with_brain();
    let capture = sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let branch = capture["branch"].as_str().unwrap();
    assert_eq!(sandbox.git(&["rev-list", "--count", &format!("main..{branch}")]).trim(), "1");
    let changes = sandbox.git(&["diff", "--name-status", "main", branch]);
    assert_eq!(changes.lines().count() as u64, capture["units"].as_u64().unwrap());
    for line in changes.lines() {
        let path = line.strip_prefix("A\t").unwrap_or_else(|| panic!("{line} is not a new file"));
        let parts: Vec<&str> = path.split('/').collect();
        assert_eq!((parts[0], parts.len()), ("domains", 4), "{path}");
        assert!(sandbox.git(&["log", "-1", "--format=%B", branch]).contains(path));
    }
    let title = sandbox.git(&["log", "-1", "--format=%s", branch]);
    assert!(title.starts_with("Knowledge from session 20"), "{title}");
    assert_eq!(sandbox.git(&["log", "-1", "--format=%an %cn", branch]).trim(), "nugget nugget");
    git(&sandbox.brain(), &["fsck", "--full", "--strict"]);
}

#[test]
fn a_session_captured_again_proposes_nothing_twice() {
    let sandbox = Sandbox::with_brain();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    assert_eq!(sandbox.capture(&transcript)["state"], "done");
    let repeated = sandbox.capture(&transcript);
    assert_eq!(repeated["state"], "nothing", "{repeated}");
    assert!(repeated["reason"].as_str().unwrap().contains("captured before"), "{repeated}");
    // A fork: another file and another session with the same lines.
    let fork = sandbox.path().join("fork.jsonl");
    std::fs::copy(&transcript, &fork).unwrap();
    assert_eq!(sandbox.capture(&fork)["state"], "nothing");
    assert_eq!(sandbox.git(&["for-each-ref", "refs/heads/nugget/"]).lines().count(), 1);
    let status = sandbox.json(["status", "--json"]);
    assert_eq!((&status["queue"]["done"], &status["queue"]["nothing"]), (&1.into(), &2.into()), "{status}");
}

#[test]
fn a_hook_answers_at_once_and_the_work_runs_after_it() {
    let sandbox = Sandbox::with_brain();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let hook = serde_json::json!({
        "session_id": "5f0a7c1e-2d3b-4c8e-9a61-b7d4e0c2f913", "transcript_path": transcript,
        "cwd": "/home/dev/shop", "hook_event_name": "SessionEnd", "reason": "prompt_input_exit",
    });
    let output = sandbox.run_with_input(&["capture-session"], format!("{hook}\n").as_bytes());
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("queued session 5f0a7c1e"));
    crate::support::wait_until("the capture is done", || {
        sandbox.json(["status", "--json"])["queue"]["done"] == 1
    });
}

#[test]
fn two_brains_of_one_user_do_not_mix() {
    let sandbox = Sandbox::with_brain();
    let other = sandbox.path().join("other");
    sandbox.ok(["init", "--path", other.to_str().unwrap()]);
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let status = sandbox.json(["status", "--json", "--brain", other.to_str().unwrap()]);
    assert_eq!(status["captures"].as_array().unwrap().len(), 0);
}

#[test]
fn deleting_the_state_folder_loses_nothing_merged() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    let question = ["ask", "how do I stop goroutines from piling up", "--no-llm", "--json"];
    let answer = |sandbox: &Sandbox| -> Vec<String> {
        let answer = sandbox.json(question);
        let passages =
            answer["units"].as_array().unwrap().iter().flat_map(|unit| unit["passages"].as_array().unwrap());
        passages.map(|passage| passage["chunk_id"].to_string() + passage["text"].as_str().unwrap()).collect()
    };
    let before = answer(&sandbox);
    assert!(!before.is_empty());
    std::fs::remove_dir_all(sandbox.brain().join(".nugget")).unwrap();
    let indexed = sandbox.json(["index", "--json"]);
    assert_eq!(indexed["units"], 20);
    assert_eq!(answer(&sandbox), before);
    assert_eq!(sandbox.json(["index", "--json"])["changed"], false);
}
