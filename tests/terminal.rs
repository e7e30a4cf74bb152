//! What a person sees and types: tables in a narrow terminal, the pager, ids by their beginning, errors with hints.

use std::process::Command;

use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::support::terminal::{InTerminal, Shown, run_in_terminal};
use crate::support::{Sandbox, fixture, wait_until};

const UNIT: &str = "bounded-worker-pools-in-go";

fn with_units() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    sandbox
}

fn command(sandbox: &Sandbox, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = sandbox.command();
    command.args(arguments).envs(variables.iter().copied());
    command
}

fn in_terminal(sandbox: &Sandbox, size: (u16, u16), arguments: &[&str], variables: &[(&str, &str)]) -> Shown {
    let shown = run_in_terminal(command(sandbox, arguments, variables), size.0, size.1);
    assert!(shown.status.success(), "{arguments:?}: {}", shown.text);
    shown
}

/// The exit code, and what was written to stderr.
fn failure(sandbox: &Sandbox, arguments: &[&str]) -> (i32, String) {
    let output = sandbox.run(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The number of cells that a line takes: wide characters take two.
fn cells(line: &str) -> usize {
    line.chars()
        .map(|c| if ('\u{1100}'..='\u{ffdc}').contains(&c) && c as u32 >= 0x2e80 { 2 } else { 1 })
        .sum()
}

#[test]
fn what_is_printed_fits_the_terminal() {
    let sandbox = with_units();
    let folder = sandbox.brain().join("domains/wide/patterns");
    std::fs::create_dir_all(&folder).unwrap();
    let title = "連線池必須有上限".repeat(6);
    std::fs::write(
        folder.join("wide.md"),
        format!(
            "---\ntype: pattern\ntitle: {title}\n---\n\n{}\n",
            "連線池必須有上限，否則記憶體會耗盡。".repeat(8)
        ),
    )
    .unwrap();
    let id = format!("{}-long", "word".repeat(20));
    std::fs::write(
        folder.join(format!("{id}.md")),
        format!("---\ntitle: {}\n---\n\nA body.\n", "x".repeat(120)),
    )
    .unwrap();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.ok(["sessions", "sync"]);
    for columns in [100, 80, 60, 40] {
        for arguments in [
            &["list"][..],
            &["status"],
            &["status", "-v"],
            &["status", "--all"],
            &["review", "--list"],
            &["review", "show", "2"],
            &["why", "use-a-heartbeat"],
            &["spend"],
            &["config"],
            &["config", "set", "retrieve.limit", "5"],
            &["sessions"],
            &["sessions", "stats"],
            &["show", "wide"],
            &["show", UNIT],
            &["ask", "--no-llm", "worker pools"],
            &["ask", "--no-llm", "連線池"],
            &["search", "--words", "timeout"],
            &["sync"],
            &["retry", "--all"],
            &["runtime"],
            &["install", "--dry-run"],
            &["import", "--dry-run", "--domain", "notes", "notes.md"],
        ] {
            std::fs::write(
                sandbox.path().join("notes.md"),
                format!("# Note\n\n{}\n", "Some words. ".repeat(30)),
            )
            .unwrap();
            let shown = in_terminal(&sandbox, (columns, 2000), arguments, &[]).plain();
            assert_fits(&shown, columns, arguments);
        }
        // These may end with a failure.
        for arguments in
            [&["doctor", "--offline"][..], &["show", "no-such-unit-as-this-one-with-a-long-name"]]
        {
            let shown = run_in_terminal(command(&sandbox, arguments, &[]), columns, 2000).plain();
            assert_fits(&shown, columns, arguments);
        }
        if columns < 60 {
            continue;
        }
        // A title goes on below itself with whole words.
        let list = in_terminal(&sandbox, (columns, 500), &["list"], &[]).plain();
        let words: Vec<&str> = list.split_whitespace().collect();
        let listed = sandbox.json(["list", "--json"]);
        for unit in listed["units"].as_array().unwrap() {
            // But for words that are wider than their column.
            let title = unit["title"].as_str().unwrap().split_whitespace();
            for word in title.filter(|word| word.len() < 20) {
                assert!(words.contains(&word), "{word}: {list}");
            }
        }
    }
}

fn assert_fits(shown: &str, columns: u16, arguments: &[&str]) {
    // An id or a path on a line of its own is not broken, so that it can be copied.
    let is_words = |line: &&str| line.trim().contains(' ');
    // Without the progress that was there before.
    let lines = shown.lines().filter_map(|line| line.rsplit('\r').next()).filter(is_words);
    let wide: Vec<&str> = lines.filter(|line| cells(line) > usize::from(columns)).collect();
    assert!(wide.is_empty(), "{arguments:?} in {columns} columns: {wide:#?}");
}

#[test]
fn a_narrow_status_keeps_the_results() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let shown = in_terminal(&sandbox, (40, 500), &["status", "--all"], &[]).plain();
    assert!(shown.contains("RESULT") && shown.contains("3 units to"), "{shown}");
    assert!(!shown.contains("……"), "{shown}");
}

#[test]
fn in_a_pipe_each_unit_is_one_line_and_whole() {
    let sandbox = with_units();
    for columns in ["80", "60"] {
        let output = command(&sandbox, &["list"], &[("COLUMNS", columns)]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let first: Vec<&str> = printed.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        let listed = sandbox.json(["list", "--json"]);
        let ids: Vec<&str> =
            listed["units"].as_array().unwrap().iter().map(|unit| unit["id"].as_str().unwrap()).collect();
        assert_eq!(first, ids, "{printed}");
        for unit in listed["units"].as_array().unwrap() {
            let title = unit["title"].as_str().unwrap();
            assert!(printed.lines().any(|line| line.ends_with(title)), "{title}: {printed}");
        }
    }
}

#[test]
fn long_output_goes_to_the_pager_of_a_terminal() {
    let sandbox = with_units();
    sandbox.ok(["index"]);
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let pager = ("PAGER", "sed 's/^/paged: /'");
    let small = (80, 8);
    for arguments in [
        &["list"][..],
        &["show", UNIT],
        &["ask", "--no-llm", "why", "worker", "pools"],
        &["review", "show", "--all"],
        &["config"],
        &["status", "--all"],
        &["why", "use-a-heartbeat"],
    ] {
        let is_paged = |size, more: &[&str], variables: &[(&str, &str)]| {
            let arguments: Vec<&str> = arguments.iter().chain(more).copied().collect();
            in_terminal(&sandbox, size, &arguments, variables).plain().contains("paged: ")
        };
        assert!(is_paged(small, &[], &[pager]), "{arguments:?}");
        assert!(!is_paged(small, &["--no-pager"], &[pager]), "{arguments:?}");
        assert!(!is_paged((80, 1000), &[], &[pager]), "{arguments:?}: it fits on the screen");
        let piped = command(&sandbox, arguments, &[pager]).output().unwrap();
        assert!(piped.status.success() && !String::from_utf8_lossy(&piped.stdout).contains("paged: "));
    }
    // What is off, or missing, loses nothing.
    for pager in ["cat", "", "/nonexistent/pager"] {
        let shown = in_terminal(&sandbox, small, &["list"], &[("PAGER", pager)]).plain();
        assert!(shown.contains("Bounded worker pools"), "{pager}: {shown}");
    }
}

#[test]
fn a_terminal_gets_colours_unless_no_color_is_set() {
    let sandbox = with_units();
    for arguments in [&["list"][..], &["show", UNIT], &["config"]] {
        let is_coloured = |variables: &[(&str, &str)]| {
            in_terminal(&sandbox, (80, 500), arguments, variables).text.contains("\u{1b}[")
        };
        assert!(is_coloured(&[]), "{arguments:?}");
        assert!(!is_coloured(&[("NO_COLOR", "1")]), "{arguments:?}");
        // The pager gets none either.
        let paged = [("NO_COLOR", "1"), ("PAGER", "sed 's/^/paged: /'")];
        let shown = in_terminal(&sandbox, (80, 5), arguments, &paged).text;
        assert!(shown.contains("paged: ") && !shown.contains("\u{1b}["), "{arguments:?}");
    }
}

#[test]
fn a_question_needs_no_quotes() {
    let sandbox = with_units();
    sandbox.ok(["index"]);
    let quoted = sandbox.json(["ask", "--no-llm", "--json", "--limit", "2", "how do I bound worker pools"]);
    let words = sandbox
        .json(["ask", "how", "do", "I", "--no-llm", "bound", "--limit", "2", "worker", "pools", "--json"]);
    assert_eq!(words["question"], "how do I bound worker pools");
    let ids = |answer: &Value| -> Vec<Value> {
        answer["units"].as_array().unwrap().iter().map(|unit| unit["id"].clone()).collect()
    };
    assert_eq!(ids(&words), ids(&quoted));
    assert_eq!(words["units"][0]["id"], UNIT);
    let asked = sandbox.run_with_input(&["ask", "-", "--no-llm", "--json"], b"worker pools in go\n");
    let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(asked["question"], "worker pools in go");
    assert_eq!(failure(&sandbox, &["ask"]).0, 2);
}

#[test]
fn the_beginning_of_an_id_names_a_unit() {
    let sandbox = with_units();
    let whole = sandbox.ok(["show", UNIT]);
    assert_eq!(sandbox.ok(["show", "bounded"]), whole);
    assert_eq!(sandbox.ok(["show", "bounded-wo…"]), whole, "as a table cuts it");
    assert_eq!(sandbox.json(["why", "bounded", "--json"])["id"], UNIT);
    for command in ["show", "why", "edit", "rm"] {
        let (code, error) = failure(&sandbox, &[command, "idempoten"]);
        assert_eq!(code, 2, "{error}");
        assert_eq!(
            error,
            "error: \"idempoten\" is the beginning of 2 unit ids\n\
             hint: give more of one: idempotency-keys, idempotent-retries-with-jitter\n"
        );
        let (code, error) = failure(&sandbox, &[command, "bonded-worker-pools"]);
        assert_eq!(code, 3, "{error}");
        assert!(error.ends_with(&format!("hint: did you mean `{UNIT}`?\n")), "{error}");
    }
}

#[test]
fn a_capture_is_named_by_its_session_too() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let session =
        sandbox.json(["status", "--json"])["captures"][0]["session_id"].as_str().unwrap().to_owned();
    let retried = sandbox.json(["retry", &session[..8], "--json"]);
    assert_eq!(retried, json!({ "capture": 1, "queued": 0 }));
    let (code, error) = failure(&sandbox, &["retry", "5"]);
    assert!(code == 3 && error.contains("lists the captures; the latest: 1 (ad5139ef)"), "{error}");
    let (code, error) = failure(&sandbox, &["forget-capture", "ad51zz"]);
    assert!(code == 3 && error.contains("did you mean 1 (ad5139ef)?"), "{error}");
    // A second capture of the session makes its id ambiguous.
    let queue = queue::Queue::open(&sandbox.state().join("queue.db")).unwrap();
    let again = queue::Announcement::new(knowledge::SessionId::verbatim(&*session), "/none.jsonl", "hook");
    queue.add(&again, jiff::Timestamp::now()).unwrap();
    let (code, error) = failure(&sandbox, &["forget-capture", &session[..6]]);
    assert!(code == 2 && error.contains("give the number of one: 2 (ad5139ef), 1 (ad5139ef)"), "{error}");
    let forgotten = sandbox.json(["forget-capture", "2", "--json"]);
    assert_eq!((&forgotten["capture"], &forgotten["session_id"]), (&json!(2), &json!(session)));
    sandbox.ok(["forget-capture", &session[..6]]);
    assert_eq!(sandbox.json(["status", "--json"])["captures"], json!([]));
}

#[test]
fn a_command_by_another_name_gets_the_right_one_as_a_hint() {
    let sandbox = Sandbox::new();
    for (typed, hint) in [
        ("find", "did you mean `nugget search`?"),
        ("history", "did you mean `nugget sessions`?"),
        ("query", "did you mean `nugget ask`?"),
        ("ls", "did you mean `nugget list`?"),
        ("delete", "did you mean `nugget rm`?"),
        ("remove", "did you mean `nugget rm`?"),
        ("inbox", "did you mean `nugget review`?"),
        ("approve", "did you mean `nugget review`?"),
        ("setup", "did you mean `nugget init` or `nugget install`?"),
        ("statsu", "did you mean `nugget status`?"),
        ("uninstal", "did you mean `nugget uninstall`"),
        ("memorize", "did you mean `nugget remember`?"),
        ("rember", "did you mean `nugget remember`"),
        ("notes", "did you mean `nugget note`?"),
        ("tidy", "did you mean `nugget reflect`?"),
        ("analyze", "did you mean `nugget capture-session`?"),
        ("feedback", "did you mean `nugget learn`?"),
        ("version", "did you mean `nugget --version`?"),
        ("logs", "did you mean `nugget doctor`?"),
        ("fix", "did you mean `nugget doctor`?"),
        ("repair", "did you mean `nugget doctor`?"),
        ("upgrade", "did you mean `nugget install`?"),
        ("todo", "did you mean `nugget review`?"),
        ("price", "did you mean `nugget spend`?"),
        ("web", "did you mean `nugget export`?"),
        ("rmm", ""),
        ("xyzzy", "`nugget --help` lists the commands; to ask the brain: nugget ask \"…\""),
    ] {
        let (code, error) = failure(&sandbox, &[typed]);
        let expected = format!("error: `nugget` has no command `{typed}`\nhint: {hint}");
        assert!(code == 2 && error.starts_with(&expected), "{error}");
        // No hint leads to what takes something away, unless by another word for it.
        let is_meant = ["delete", "remove", "uninstal"].contains(&typed);
        assert!(is_meant || !(error.contains("nugget rm") || error.contains("uninstall")), "{error}");
    }
    for (typed, hint) in [
        (["review", "approve"], "did you mean `nugget review merge`?"),
        (["review", "delete"], "did you mean `nugget review reject`?"),
        (["config", "show"], "did you mean `nugget config list`?"),
    ] {
        let (code, error) = failure(&sandbox, &typed);
        assert!(code == 2 && error.ends_with(&format!("hint: {hint}\n")), "{error}");
    }
}

#[test]
fn a_wrong_command_line_is_explained_in_two_lines() {
    let sandbox = Sandbox::new();
    let mut explained = String::new();
    for arguments in [
        &["show"][..],
        &["ask"],
        &["spend", "--days", "0"],
        &["search", "--source", "foo", "words"],
        &["show", "a", "b"],
        &["list", "--tpye", "bug"],
        &["list", "--colour"],
        &["export", "--format", "pdf"],
        &["spend", "--days", "many"],
        &["spend", "--days"],
        &["retry", "1", "--all"],
        &["status", "--limit", "3", "--limit", "4"],
        &["review", "merge"],
        &["config", "set", "retrieve.limit"],
        &["status", "now"],
    ] {
        let (code, error) = failure(&sandbox, arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 2, "{error}");
        explained.push_str(&format!("$ nugget {}\n{error}\n", arguments.join(" ")));
    }
    insta::assert_snapshot!("wrong_command_lines", explained);
}

#[test]
fn with_json_an_error_is_json_on_stdout() {
    let sandbox = with_units();
    for (arguments, code) in [
        (&["show", "nothing-like-it", "--json"][..], 3),
        (&["ask", " ", "--json"], 2),
        (&["list", "--json", "--colour"], 2),
        (&["retry", "99", "--json"], 3),
        (&["rm", "idempoten", "--json"], 2),
        (&["config", "set", "retrieve.limit", "many", "--json"], 2),
    ] {
        let output = sandbox.run(arguments);
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stdout))
        });
        assert_eq!(printed["error"]["exit_code"], code, "{arguments:?}");
        assert_eq!(output.status.code(), Some(code));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let message = printed["error"]["message"].as_str().unwrap();
        assert!(stderr.starts_with(&format!("error: {message}\n")), "{stderr}");
        assert!(printed["error"]["hint"].is_string() || printed["error"]["hint"].is_null());
    }
    // After a result there is no second document.
    std::fs::write(sandbox.path().join("config/nugget/config.toml"), "[retrieve]\nlimits = 3\n").unwrap();
    let output = sandbox.run(["config", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(printed["settings"].is_object());
}

/// The commands without `--json`, and what they print instead.
const WITHOUT_JSON: [(&str, &str); 9] = [
    ("completions", "a script for a shell"),
    ("man", "a manual page"),
    ("demo", "what the other commands print"),
    ("serve", "a protocol"),
    ("help", "help"),
    ("session-start", "a hook's answer, which is JSON already"),
    ("user-prompt", "a hook's answer, which is JSON already"),
    ("guard", "a hook's answer, which is JSON already"),
    ("drain", "nothing: it works in the background and logs"),
];

#[test]
fn every_command_that_prints_information_has_json() {
    fn check(command: &clap::Command, name: &str, is_inherited: bool, missing: &mut Vec<String>) {
        let json = command.get_arguments().find(|argument| argument.get_id() == "json");
        let has_json = is_inherited || json.is_some();
        // A command that only holds others prints nothing itself.
        // Prints what the other commands print.
        let is_demo = name == "server demo";
        if !has_json && !is_demo && !command.is_subcommand_required_set() && !command.has_subcommands() {
            missing.push(name.to_owned());
        }
        let is_inherited = is_inherited || json.is_some_and(clap::Arg::is_global_set);
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            check(inner, &format!("{name} {}", inner.get_name()), is_inherited, missing);
        }
    }
    let mut missing = Vec::new();
    for command in cli::command().get_subcommands() {
        let name = command.get_name();
        if WITHOUT_JSON.iter().all(|(other, _)| *other != name) {
            check(command, name, false, &mut missing);
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "these have no --json");
    for (name, _) in WITHOUT_JSON.iter().filter(|(name, _)| *name != "help") {
        assert!(cli::command().find_subcommand(name).is_some(), "{name}");
    }
}

#[test]
fn the_manual_is_rendered_in_a_terminal_and_plain_in_a_pipe() {
    let sandbox = Sandbox::new();
    assert!(sandbox.ok(["man"]).contains(".TH nugget 1"));
    let has_man =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join("man").is_file());
    let shown = in_terminal(&sandbox, (80, 50), &["man", "--no-pager"], &[]).plain();
    assert_eq!(!shown.contains(".TH nugget 1"), has_man, "{shown}");
}

#[test]
fn logs_have_no_colours_in_a_pipe() {
    let sandbox = with_units();
    let output = sandbox.run(["index", "-vvv"]);
    assert!(output.status.success() && output.stderr.len() > 1000);
    assert!(!output.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_bar_is_shown_of_work_that_there_is_none_of() {
    let sandbox = with_units();
    sandbox.ok(["index"]);
    for _ in 0..2 {
        let shown = in_terminal(&sandbox, (80, 50), &["ask", "--no-llm", "worker pools"], &[]).text;
        assert!(shown.contains("Bounded worker pools") && !shown.contains("0/0"), "{shown}");
    }
}

#[test]
fn ctrl_c_at_the_prompt_for_a_token_leaves_a_terminal_that_shows_what_is_typed() {
    let sandbox = Sandbox::with_brain();
    let start =
        || InTerminal::start(command(&sandbox, &["login", "https://brains.example.com"], &[]), 80, 24);
    let prompt = start();
    wait_until("it asks for the token", || !prompt.is_echoing());
    prompt.interrupt();
    let shown = prompt.end();
    assert!(shown.is_echoing, "{}", shown.text);
    assert_eq!(shown.status.code(), Some(1), "{}", shown.text);
    // What is typed is still read, and not shown.
    let mut prompt = start();
    wait_until("it asks for the token", || !prompt.is_echoing());
    prompt.press("\n");
    let shown = prompt.end();
    assert!(shown.is_echoing && shown.text.contains("there is no token"), "{}", shown.text);
}
