//! Deduplication: nothing is proposed twice, additions go into the existing unit, and every unit
//! names its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::Sandbox;

const RULE: &str = "from now on, always run `importer-check` before you commit a change to the importer, because the nightly job \
                    reads it without a lock";

/// Writes a session in which one person says these things and gets an answer to each.
fn write_session(sandbox: &Sandbox, name: &str, prompts: &[&str]) -> PathBuf {
    let path = sandbox.path().join(format!("{name}.jsonl"));
    append(&path, name, name, 0, prompts);
    path
}

/// Appends to a transcript. `lines` prefixes the lines' ids, which a fork shares with its original session.
fn append(path: &Path, session: &str, lines: &str, from: usize, prompts: &[&str]) {
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    for (number, prompt) in (from..).zip(prompts) {
        let common = |kind: &str, role: &str, content: serde_json::Value| {
            json!({
                "parentUuid": null, "isSidechain": false, "type": kind, "uuid": format!("{lines}-{number}-{role}"),
                "message": {"role": role, "content": content}, "timestamp": format!("2026-11-16T17:{:02}:00.000Z", number % 60),
                "userType": "external", "origin": {"kind": "human"}, "cwd": "/home/dev/shop", "sessionId": session, "version": "2.1.329",
            })
        };
        writeln!(file, "{}", common("user", "user", json!(prompt))).unwrap();
        let answer = json!([{"type": "text", "text": "Understood."}]);
        writeln!(file, "{}", common("assistant", "assistant", answer)).unwrap();
    }
}

#[test]
fn a_restated_rule_is_not_proposed_again() {
    let sandbox = Sandbox::with_brain();
    let first = sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    assert_eq!((&first["state"], &first["units"]), (&json!("done"), &json!(1)), "{first}");
    let waiting = sandbox.capture(&write_session(&sandbox, "22222222-second", &["the importer again", RULE]));
    assert_eq!(waiting["state"], "nothing", "{waiting}");
    assert!(waiting["reason"].as_str().unwrap().contains("proposed before: "), "{waiting}");

    sandbox.git(&["merge", "-q", "--no-edit", first["branch"].as_str().unwrap()]);
    let merged = sandbox.capture(&write_session(&sandbox, "33333333-third", &["once more", RULE]));
    assert_eq!(merged["state"], "nothing", "{merged}");
    assert!(merged["reason"].as_str().unwrap().contains("known already: "), "{merged}");
    assert_eq!(sandbox.git(&["for-each-ref", "refs/heads/nugget/"]).lines().count(), 1);
}

#[test]
fn a_rule_whose_unit_was_replaced_is_proposed_again() {
    let sandbox = Sandbox::with_brain();
    let first = sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    sandbox.git(&["merge", "-q", "--no-edit", first["branch"].as_str().unwrap()]);
    let units = sandbox.json(["list", "--json"])["units"].clone();
    let path = sandbox.brain().join(units[0]["path"].as_str().unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    for (status, state) in [("archived", "nothing"), ("rejected", "nothing"), ("superseded", "done")] {
        std::fs::write(&path, text.replacen("type: ", &format!("status: {status}\ntype: "), 1)).unwrap();
        sandbox.git(&["commit", "-qam", status]);
        let name = format!("22222222-{status}");
        let again = sandbox.capture(&write_session(&sandbox, &name, &["once more", RULE]));
        assert_eq!(again["state"], state, "{status}: {again}");
    }
    sandbox.ok(["review", "merge", "--all"]);
    let units = sandbox.json(["list", "--json"])["units"].clone();
    assert_eq!(units.as_array().unwrap().len(), 2, "{units}");
    let old = std::fs::read_to_string(&path).unwrap();
    assert_eq!(old, text.replacen("type: ", "status: superseded\ntype: ", 1), "stays as it was");
}

#[test]
fn a_restated_rule_is_known_without_an_embedding_model_too() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.variables.push(("NUGGET_EMBED_PROVIDER".to_owned(), "off".to_owned()));
    let other = "always write amounts of money as integers of cents, because floats lost a cent in the March invoices";
    let first = sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    assert_eq!(first["units"], 1, "{first}");
    let again = sandbox.capture(&write_session(&sandbox, "22222222-second", &["the importer again", RULE]));
    assert!(again["reason"].as_str().unwrap().contains("proposed before: "), "{again}");
    let new = sandbox.capture(&write_session(&sandbox, "33333333-third", &["the invoices", other]));
    assert_eq!(new["units"], 1, "what shares no words is new: {new}");
}

#[test]
fn a_reversed_decision_replaces_the_old_one() {
    for (first, second, chosen) in [
        (
            "We decided against MongoDB because reporting needs joins. let's use postgres with jsonb columns instead",
            "We decided against postgres with jsonb columns because the documents are 40 MB each. let's use MongoDB with \
             plain collections instead",
            "Use MongoDB with plain collections",
        ),
        (
            "We decided against Kubernetes because nobody here knows it. let's use systemd units on three plain servers \
             instead",
            "We decided against systemd units because the servers drift apart. let's use Kubernetes on three plain servers \
             instead",
            "Use Kubernetes on three plain servers",
        ),
    ] {
        let sandbox = Sandbox::with_brain();
        sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at it", first]));
        sandbox.ok(["review", "merge", "--all"]);
        let path = sandbox.path().join("22222222-second.jsonl");
        append(&path, "22222222-second", "22222222-second", 30, &["look at it again", second]);
        let capture = sandbox.capture(&path);
        assert_eq!(capture["units"], 1, "{capture}");
        let list = sandbox.ok(["review"]);
        assert!(list.contains(&format!("decision  {chosen}\n")) && list.contains("replaces use-"), "{list}");
        let diff = sandbox.git(&["diff", &format!("main...{}", capture["branch"].as_str().unwrap())]);
        assert!(diff.contains("+status: superseded"), "{diff}");
    }
}

#[test]
fn a_paraphrased_rule_joins_its_unit_and_why_shows_both() {
    let sandbox = Sandbox::with_brain();
    let first = sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    sandbox.git(&["merge", "-q", "--no-edit", first["branch"].as_str().unwrap()]);
    let restated = "never commit a change to the importer without running `importer-check` first, because the nightly job \
                 reads it unlocked and a record that it rejects stops the invoices of every tenant";
    let second = sandbox.capture(&write_session(&sandbox, "22222222-second", &["look at it", restated]));
    assert_eq!((&second["state"], &second["units"]), (&json!("done"), &json!(1)), "{second}");
    let branch = second["branch"].as_str().unwrap();
    let changes = sandbox.git(&["diff", "--name-status", "main", branch]);
    assert!(changes.starts_with("M\tdomains/") && changes.lines().count() == 1, "{changes}");
    sandbox.git(&["merge", "-q", "--no-edit", branch]);

    let units = sandbox.json(["list", "--json"]);
    assert_eq!(units["units"].as_array().unwrap().len(), 1, "{units}");
    let id = units["units"][0]["id"].as_str().unwrap().to_owned();
    let why = sandbox.json(["why", &id, "--json"]);
    let sessions: Vec<_> =
        why["sessions"].as_array().unwrap().iter().map(|entry| &entry["session"]).collect();
    assert_eq!(sessions, ["11111111-first", "22222222-second"], "{why}");
    let shown = sandbox.ok(["why", &id]);
    assert!(
        shown.contains("> you: from now on, always run") && shown.contains("claude: Understood."),
        "{shown}"
    );

    // Claude Code deletes transcripts; the kept excerpts are shown without them.
    std::fs::remove_file(sandbox.path().join("11111111-first.jsonl")).unwrap();
    let shown = sandbox.ok(["why", &id]);
    assert!(
        shown.contains("its transcript is gone") && shown.contains("always run `importer-check`"),
        "{shown}"
    );
    let found = sandbox.json(["ask", "what do I run before committing the importer?", "--no-llm", "--json"]);
    assert_eq!(found["units"][0]["id"], *id, "{found}");
}

#[test]
fn why_says_that_a_conversation_was_forgotten() {
    let sandbox = Sandbox::with_brain();
    let capture =
        sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    let review = sandbox.json(["review", "--json"]);
    let id = review["items"][0]["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert!(sandbox.ok(["why", &id]).contains("session 11111111-first, captured "));
    sandbox.ok(["forget-capture", &capture["id"].to_string()]);

    // Before the merge as after it.
    for place in ["not among the merged units", "domains/"] {
        let shown = sandbox.ok(["why", &id]);
        let line =
            shown.lines().find(|line| line.contains("forgotten on 20")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains("session 11111111-first") && line.contains("nugget forget-capture"), "{line}");
        assert!(
            shown.contains(place) && !shown.contains("written by hand") && !shown.contains("> you"),
            "{shown}"
        );
        let why = sandbox.json(["why", &id, "--json"]);
        assert_eq!(why["forgotten"]["session"], "11111111-first", "{why}");
        assert_eq!(why["sessions"], json!([]), "{why}");
        if place != "domains/" {
            sandbox.git(&["merge", "-q", "--no-edit", capture["branch"].as_str().unwrap()]);
        }
    }
}

#[test]
fn why_prints_the_times_of_where_the_person_is() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&write_session(&sandbox, "11111111-first", &["look at the importer", RULE]));
    let review = sandbox.json(["review", "--json"]);
    let id = review["items"][0]["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let why = |arguments: &[&str]| {
        let output =
            sandbox.command().args(["why", &id]).args(arguments).env("TZ", "XYZ-9").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let json: serde_json::Value = serde_json::from_str(&why(&["--json"])).unwrap();
    let utc = json["sessions"][0]["captured"].as_str().unwrap();
    let utc = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M", utc).unwrap();
    let local = utc.checked_add(jiff::Span::new().hours(9)).unwrap().strftime("%Y-%m-%d %H:%M").to_string();
    assert!(why(&[]).contains(&format!("captured {local}\n")), "{} is not {local}", why(&[]));
}

#[test]
fn why_of_an_unknown_unit_is_an_error() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.run(["why", "nothing-there"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let by_hand = "---\nid: by-hand\ntype: concept\ntitle: By hand\n---\n\n# By hand\n\nText.\n";
    std::fs::write(sandbox.brain().join("by-hand.md"), by_hand).unwrap();
    let shown = sandbox.ok(["why", "by-hand"]);
    assert!(shown.contains("written by hand"), "{shown}");
}

/// Ten sessions, three of them resumed and two forked, each captured twice, in random order.
#[test]
fn repeated_captures_duplicate_no_unit_and_lose_no_evidence() {
    let rules = [
        "from now on, always run `importer-check` before you commit a change to the importer, because the nightly job reads it without a lock",
        "never restart the label printer with `printd --force` during office hours, because the daemon drops its spooled pages",
        "always pass `--region eu` to the release script on Fridays, because the default cluster is drained at noon",
        "never store prices as floats, always use integer cents, because rounding made two invoices differ",
        "always write the migration's rollback first, because the last outage took four hours without one",
        "never call the tax service from a web request, always queue it, because it takes up to thirty seconds",
        "always give background jobs a deadline, because a hung job kept the queue from draining last week",
        "never log the request body of the login handler, because it holds passwords in plain text",
        "always pin the base image by digest, because a moved tag broke the build on release day",
        "never merge two feature branches into each other, because reverting one then reverts both",
        "always check the disk before a reindex, because a full disk corrupted the search index in May",
        "never share one database user between services, because nobody could tell who dropped the table",
        "always freeze the clock in billing tests, because they fail on the last day of the month",
    ];
    let seed: u64 = 20_261_121;
    println!("seed {seed}");
    let mut state = seed;
    let mut next = move |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let sandbox = Sandbox::with_brain();
    let mut transcripts: Vec<PathBuf> = (0..8)
        .map(|number| {
            write_session(
                &sandbox,
                &format!("{number:08}-session"),
                &["please look at the shop", rules[number]],
            )
        })
        .collect();
    let mut later: BTreeMap<usize, (String, usize, &str)> = BTreeMap::new();
    for number in 0..3 {
        later.insert(number, (format!("{number:08}-session"), 2, rules[8 + number]));
    }
    // A fork has the lines of its original session under another session id, and one of its own.
    for (number, from) in [(8, 3), (9, 4)] {
        let path = sandbox.path().join(format!("{number:08}-fork.jsonl"));
        let text = std::fs::read_to_string(&transcripts[from]).unwrap();
        let (old, new) = (format!("{from:08}-session\",\"version"), format!("{number:08}-fork\",\"version"));
        std::fs::write(
            &path,
            text.replace(&format!("\"sessionId\":\"{old}"), &format!("\"sessionId\":\"{new}")),
        )
        .unwrap();
        append(&path, &format!("{number:08}-fork"), &format!("{number:08}-fork"), 2, &[rules[3 + number]]);
        transcripts.push(path);
    }
    let mut order: Vec<usize> = (0..transcripts.len()).chain(0..transcripts.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, next(at + 1));
    }
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for number in order {
        let capture = sandbox.capture(&transcripts[number]);
        *states.entry(capture["state"].as_str().unwrap().to_owned()).or_default() += 1;
        if let Some((name, from, rule)) = later.remove(&number) {
            append(&transcripts[number], &name, &name, from, &[rule]);
        }
    }
    for transcript in &transcripts {
        sandbox.capture(transcript);
    }
    println!("{states:?}");
    let branches = sandbox.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget/"]);
    for branch in branches.lines() {
        sandbox.git(&["merge", "-q", "--no-edit", branch]);
    }
    let units = sandbox.json(["list", "--json"]);
    let units = units["units"].as_array().unwrap();
    let titles: BTreeSet<_> = units.iter().map(|unit| unit["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), units.len(), "{titles:#?}");
    let mut all_reasons = String::new();
    for unit in units {
        all_reasons.push_str(&sandbox.ok(["why", unit["id"].as_str().unwrap(), "--json"]));
    }
    let lost: Vec<_> = rules.iter().filter(|rule| !all_reasons.contains(&rule[..24])).collect();
    assert!(lost.is_empty(), "{lost:#?}\n{titles:#?}");
    let mut lines: Vec<&str> = all_reasons.lines().filter(|line| line.contains("\"line\": ")).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "a line became two units");
}
