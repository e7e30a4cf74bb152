//! Every command with valid, invalid, empty, huge and hostile input.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Sandbox, fixture};

/// Checks a failed command: its exit code, one line with the error, one line with a hint.
#[track_caller]
fn check_error(sandbox: &Sandbox, arguments: &[&str], code: i32, message: &str) {
    let output = sandbox.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(message), "{arguments:?}: {stderr}");
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{arguments:?}: {stderr}");
}

#[test]
fn every_command_reports_a_missing_brain_and_names_init() {
    let sandbox = Sandbox::new();
    // Not `serve`: it says so in its answers, see `server_start`.
    let commands: [&[&str]; 11] = [
        &["status"],
        &["review"],
        &["sync"],
        &["ask", "why"],
        &["index"],
        &["show", "x"],
        &["list"],
        &["retry", "--all"],
        &["forget-capture", "1"],
        &["learn"],
        &["receipts"],
    ];
    for command in commands {
        check_error(&sandbox, command, 3, "there is no brain at");
    }
    let transcript = fixture("transcripts/compact_auto.jsonl");
    check_error(
        &sandbox,
        &["capture-session", "--transcript", transcript.to_str().unwrap()],
        3,
        "there is no brain",
    );
    check_error(&sandbox, &["status", "--brain", "/dev/null"], 3, "is not a folder");
    check_error(&sandbox, &["status", "--brain", sandbox.path().to_str().unwrap()], 3, "is not a brain");
}

#[test]
fn a_second_init_changes_nothing_and_says_so() {
    let sandbox = Sandbox::with_brain();
    let picture =
        || (sandbox.git(&["rev-parse", "HEAD"]), sandbox.git(&["status", "--porcelain", "--ignored"]));
    let before = picture();
    assert_eq!(before.1, "", "the work tree is clean after init");
    let brain = sandbox.brain();
    let printed = sandbox.ok(["init", "--path", brain.to_str().unwrap()]);
    assert!(printed.contains("is already a brain; nothing was changed"), "{printed}");
    assert_eq!(picture(), before);
    let json = sandbox.json(["init", "--path", brain.to_str().unwrap(), "--json"]);
    assert_eq!(json["changed"], false);
}

#[test]
fn an_existing_repository_is_adopted_not_overwritten() {
    let sandbox = Sandbox::new();
    let brain = sandbox.brain();
    std::fs::create_dir_all(brain.join("notes")).unwrap();
    sandbox.git(&["init", "-b", "trunk"]);
    std::fs::write(brain.join("notes/caches.md"), "# On caches\n\nA cache without an owner is a leak.\n")
        .unwrap();
    std::fs::write(brain.join(".gitignore"), "*.tmp\n").unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-m", "mine"]);
    let head = sandbox.git(&["rev-parse", "HEAD"]);
    let printed = sandbox.ok(["init", "--path", brain.to_str().unwrap()]);
    assert!(printed.contains("adopted") && printed.contains("1 note"), "{printed}");
    assert_eq!(sandbox.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(std::fs::read_to_string(brain.join(".gitignore")).unwrap(), "*.tmp\n.nugget/\n");
    let found = sandbox.json(["ask", "who should own a cache", "--no-llm", "--json"]);
    assert_eq!(found["units"][0]["id"], "notes/caches", "{found}");
}

#[test]
fn notes_of_another_program_are_searched_as_they_are() {
    let sandbox = Sandbox::new();
    let brain = sandbox.brain();
    let notes = [
        ("Daily/1.md", "---\ntags: [daily]\n---\nA zebra has stripes.\n"),
        ("Daily/2.md", "---\ncreated: 27.11.2026\nrelated: [[1]]\n---\nAn okapi is a giraffe.\n"),
        ("Meeting.md", "---\ntitle: Meeting: keepers\n---\nThe keepers feed the walrus.\n"),
        ("Rule.md", "---\n\n# After a rule\n\nA tapir swims.\n"),
        ("domains/foo/README.md", "The foo service sends invoices.\n"),
        ("domains/bar/README.md", "The bar service prints labels.\n"),
    ];
    for (path, text) in notes {
        std::fs::create_dir_all(brain.join(path).parent().unwrap()).unwrap();
        std::fs::write(brain.join(path), text).unwrap();
    }
    let printed = sandbox.ok(["init", "--path", brain.to_str().unwrap()]);
    assert!(printed.contains("6 notes"), "{printed}");
    let index = sandbox.json(["index", "--json"]);
    assert_eq!((&index["units"], &index["problems"]), (&json!(6), &json!([])), "{index}");
    for (question, id) in [
        ("zebra stripes", "Daily/1"),
        ("okapi giraffe", "Daily/2"),
        ("keepers feed the walrus", "Meeting"),
        ("tapir swims", "Rule"),
        ("which service sends invoices", "domains/foo/README"),
        ("which service prints labels", "domains/bar/README"),
    ] {
        let found = sandbox.json(["ask", question, "--no-llm", "--json"]);
        assert_eq!(found["units"][0]["id"], id, "{found}");
    }
    assert!(sandbox.run(["list"]).stderr.is_empty());
}

#[test]
fn a_file_that_is_no_unit_is_told_in_the_same_words_everywhere() {
    let sandbox = Sandbox::with_brain();
    let write = |path: &str, text: &[u8]| {
        let path = sandbox.brain().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("picture.md", &[0xff, 0xfe]);
    write("domains/web/bugs/colon.md", b"---\ntype: bug\ntitle: Foo: bar\n---\nText.\n");
    for domain in ["a", "b"] {
        write(&format!("domains/{domain}/bugs/same.md"), b"---\ntype: bug\n---\nText.\n");
    }
    let told = |command: &str| String::from_utf8(sandbox.run([command]).stderr).unwrap();
    let (index, list) = (told("index"), told("list"));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&index), sorted(&list));
    for line in [
        "skipped picture.md:1: not UTF-8",
        "skipped domains/b/bugs/same.md:1: has the id `same` of domains/a/bugs/same.md: give one of them another",
        "put a value that has a colon in quotes",
    ] {
        assert!(index.contains(line), "{index}");
    }
    for number in 0..30 {
        write(&format!("domains/web/bugs/{number}.md"), b"---\nid: x\n---\n");
    }
    let told = told("list");
    assert!(told.lines().count() == 21 && told.ends_with("and 13 more; --json names all\n"), "{told}");
}

#[test]
fn without_a_home_nothing_is_written_and_the_error_says_what_to_set() {
    let sandbox = Sandbox::new();
    let hook =
        json!({"session_id": "s", "transcript_path": "/no/such.jsonl", "hook_event_name": "SessionEnd"})
            .to_string()
            + "\n";
    // The system may know the home folder of whoever runs the tests, which counts where HOME is unset.
    let run = |arguments: &[&str], input: &[u8]| {
        let mut command = sandbox.command();
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").env("HOME", "rel");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have exited already.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for arguments in [
        &["init", "--path", "brain"][..],
        &["status"],
        &["doctor", "--offline"],
        &["config", "set", "retrieve.limit", "3"],
        &["config"],
        &["memories"],
        &["install"],
        &["ask", "x"],
    ] {
        let (code, stderr) = run(arguments, b"");
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert_eq!(
            stderr,
            "error: HOME is not set to an absolute path\n\
             hint: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME\n",
            "{arguments:?}"
        );
    }
    for hook_command in ["capture-session", "session-start", "user-prompt", "guard"] {
        let (code, stderr) = run(&[hook_command], hook.as_bytes());
        assert_eq!(code, Some(0), "{hook_command}: {stderr}");
    }
    assert!(run(&["--help"], b"").0 == Some(0) && run(&["man", "pages"], b"").0 == Some(0));
    let left: Vec<_> =
        std::fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["pages"]);
    let output = sandbox.command().env("HOME", "rel").args(["init", "--path", "brain"]).output().unwrap();
    assert!(
        output.status.success(),
        "both variables are enough: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_remote_is_added_once() {
    let sandbox = Sandbox::new();
    let brain = sandbox.brain();
    let arguments = ["init", "--path", brain.to_str().unwrap(), "--remote", "git@127.0.0.1:me/brain.git"];
    sandbox.ok(arguments);
    assert_eq!(sandbox.git(&["remote", "get-url", "origin"]).trim(), "git@127.0.0.1:me/brain.git");
    assert!(sandbox.ok(arguments).contains("nothing was changed"));
}

#[test]
fn awkward_transcripts_end_in_a_correct_result_or_a_clear_error() {
    let sandbox = Sandbox::with_brain();
    let make = |name: &str, bytes: &[u8]| {
        let path = sandbox.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let folder = sandbox.path().to_str().unwrap().to_owned();
    check_error(
        &sandbox,
        &["capture-session", "--transcript", "no-such.jsonl"],
        3,
        "failed to read no-such.jsonl",
    );
    check_error(&sandbox, &["capture-session", "--transcript", &folder], 1, "is a folder");

    let nothing = |path: &std::path::Path, reason: &str| {
        let capture = sandbox.capture(path);
        assert_eq!(capture["state"], "nothing", "{capture}");
        assert!(capture["reason"].as_str().unwrap().contains(reason), "{capture}");
    };
    nothing(&make("empty.jsonl", b""), "the transcript is empty");
    assert_eq!(
        sandbox.ok(["retry", "1"]),
        "nothing was queued: capture 1 has not failed, its session held nothing new\n"
    );
    nothing(
        &make("binary.jsonl", &[0xff, 0xfe, b'\n', 0, 0x80, b'\n']),
        "no line of the transcript can be read",
    );
    nothing(&make("text.jsonl", b"hello\nworld\n"), "no line of the transcript can be read");
    nothing(&make("half.jsonl", br#"{"type":"user","uuid":"u","mess"#), "no conversation");

    // One line of an otherwise good transcript is Latin-1: that line is lost, the others are read.
    let mut bytes = std::fs::read(fixture("transcripts/synthetic/flywheel.jsonl")).unwrap();
    bytes.extend(
        b"{\"type\":\"user\",\"uuid\":\"x\",\"message\":{\"role\":\"user\",\"content\":\"caf\xe9\"}}\n",
    );
    assert_eq!(sandbox.capture(&make("latin1.jsonl", &bytes))["state"], "done");

    let fsck = sandbox.git(&["fsck", "--full", "--strict"]);
    assert_eq!(fsck, "");
}

#[test]
fn an_unreadable_transcript_is_an_error_with_a_hint() {
    let sandbox = Sandbox::with_brain();
    let path = sandbox.path().join("locked.jsonl");
    std::fs::write(&path, "{}\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_ok() {
        // Root can read every file, so there is nothing to test.
        return;
    }
    check_error(&sandbox, &["capture-session", "--transcript", path.to_str().unwrap()], 1, "failed to read");
}

#[test]
fn a_transcript_of_200_megabytes_is_captured() {
    let sandbox = Sandbox::with_brain();
    let path = sandbox.path().join("9f8b0000-0000-4000-8000-000000000200.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let real = std::fs::read(fixture("transcripts/synthetic/flywheel.jsonl")).unwrap();
    // Most lines of a real transcript are like this: snapshots and requests that extraction does not need.
    let padding = json!({"type": "attachment", "uuid": "pad", "attachment": {"type": "prompt_snapshot", "systemPrompt": "x".repeat(100_000)}});
    let padding = format!("{padding}\n");
    for _ in 0..2_000 {
        file.write_all(padding.as_bytes()).unwrap();
    }
    file.write_all(&real).unwrap();
    file.flush().unwrap();
    drop(file);
    assert!(std::fs::metadata(&path).unwrap().len() > 200_000_000);
    let capture = sandbox.capture(&path);
    assert_eq!(capture["state"], "done", "{capture}");
}

#[test]
fn a_hook_never_fails_its_session() {
    let sandbox = Sandbox::with_brain();
    let missing = Sandbox::new();
    let good =
        json!({"session_id": "s", "transcript_path": "/no/such.jsonl", "hook_event_name": "SessionEnd"})
            .to_string()
            + "\n";
    let inputs: [&[u8]; 6] = [
        b"",
        b"\n",
        b"not json\n",
        b"{}\n",
        &[0xff, b'\n'],
        b"{\"session_id\":\"s\",\"transcript_path\":\"relative\"}\n",
    ];
    let long = good.replace("\"s\"", &format!("\"{}\"", "s".repeat(10_000)));
    let output = sandbox.run_with_input(&["capture-session"], long.as_bytes());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("too long: 10,000 bytes, at most 200"), "{told}");
    for input in inputs {
        let output = sandbox.run_with_input(&["capture-session"], input);
        assert!(output.status.success(), "{input:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{input:?}");
    }
    let output = missing.run_with_input(&["capture-session"], good.as_bytes());
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("there is no brain"));
    // An invalid settings file does not fail the hook.
    std::fs::create_dir_all(sandbox.path().join("config/nugget")).unwrap();
    let file = sandbox.path().join("config/nugget/config.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings + "[retrieve]\nlimits = 3\n").unwrap();
    let output = sandbox.run_with_input(&["capture-session"], good.as_bytes());
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    check_error(&sandbox, &["status"], 2, "unknown setting `retrieve.limits`");
}

#[test]
fn a_session_without_a_transcript_saves_nothing() {
    let sandbox = Sandbox::with_brain();
    let hook =
        json!({"session_id": "s1", "transcript_path": sandbox.path().join("none.jsonl"), "reason": "other"})
            .to_string();
    let output =
        sandbox.run_with_input(&["capture-session", "--wait", "--json"], format!("{hook}\n").as_bytes());
    let capture: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&capture["state"], &capture["reason"]),
        (&json!("nothing"), &json!("there is no transcript"))
    );
}

#[test]
fn nugget_disable_silences_the_hook() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.command().arg("capture-session").env("NUGGET_DISABLE", "1").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn an_invalid_unit_is_reported_and_the_other_units_work() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    let bugs = sandbox.brain().join("domains/coding/bugs");
    std::fs::create_dir_all(&bugs).unwrap();
    std::fs::write(bugs.join("broken.md"), "---\nid: broken\ntype: bug\nconfidence: very\n---\n# B\n")
        .unwrap();
    std::fs::write(bugs.join("binary.md"), [0xff, 0xfe]).unwrap();
    let output = sandbox.run(["index"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("domains/coding/bugs/broken.md:4: `confidence` must be a number from 0 to 1"),
        "{stderr}"
    );
    assert!(stderr.contains("binary.md"), "{stderr}");
    assert_eq!(sandbox.json(["index", "--json"])["units"], 20);
    let listed = sandbox.json(["list", "--json"]);
    assert_eq!(
        (listed["units"].as_array().unwrap().len(), listed["problems"].as_array().unwrap().len()),
        (20, 2)
    );
    for command in ["show", "edit", "rm", "why"] {
        check_error(
            &sandbox,
            &[command, "broken"],
            1,
            "domains/coding/bugs/broken.md:4: `confidence` must be",
        );
    }
}

#[test]
fn a_path_that_the_settings_cannot_name_is_refused() {
    let sandbox = Sandbox::new();
    let path = std::ffi::OsStr::from_bytes(b"br\xffain");
    for arguments in
        [["init".as_ref(), "--path".as_ref(), path], ["clone".as_ref(), "me/brain".as_ref(), path]]
    {
        let output = sandbox.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("is not valid UTF-8; nothing was written"), "{stderr}");
        assert!(!sandbox.path().join(path).exists() && !sandbox.path().join("config").exists());
    }
}

#[test]
fn a_list_of_units_is_narrowed_by_tags_domain_and_type() {
    let sandbox = Sandbox::with_brain();
    for (title, tags) in [("Retries", &["net", "Web shop"][..]), ("Leases", &["net"]), ("Wool", &[])] {
        let tags = tags.iter().flat_map(|tag| ["--tag", *tag]);
        sandbox.ok(["note", "add", title, "--content", "x"].into_iter().chain(tags));
    }
    for (arguments, titles) in [
        (&["--tag", "net"][..], &["Leases", "Retries"][..]),
        (&["--tag", "net", "--tag", "web shop"], &["Retries"]),
        (&["--tag", "wool"], &[]),
        (&["--type", "fact"], &[]),
    ] {
        let listed = sandbox.json(["list", "--json"].iter().chain(arguments));
        let mut found: Vec<&str> =
            listed["units"].as_array().unwrap().iter().map(|unit| unit["title"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, titles, "{arguments:?}");
    }
    let notes = sandbox.json(["note", "list", "--tag", "net", "--tag", "web-shop", "--json"]);
    assert_eq!(notes["notes"].as_array().unwrap().len(), 1, "{notes}");
    check_error(&sandbox, &["list", "--type", "notes"], 2, "\"notes\" is no type of a unit");
    check_error(&sandbox, &["list", "--domain", "generel"], 3, "no unit has the domain \"generel\"");
}

#[test]
fn a_missing_unit_is_exit_code_3() {
    let sandbox = Sandbox::with_brain();
    check_error(&sandbox, &["show", "no-such-unit"], 3, "there is no unit");
    check_error(&sandbox, &["retry", "99"], 3, "there is no capture 99");
    check_error(&sandbox, &["forget-capture", "99"], 3, "there is no capture 99");
    check_error(&sandbox, &["retry"], 2, "no capture is given");
    check_error(&sandbox, &["ask", "  "], 2, "the question is empty");
    check_error(&sandbox, &["ask", "x", "--limit", "0"], 2, "not a whole number from 1 to 50");
}

#[test]
fn hostile_questions_are_answered() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    sandbox.ok(["index"]);
    let huge = "worker ".repeat(15_000);
    for question in ["\"", "* OR NEAR(", "'; DROP TABLE chunks; --", "😀", "\u{202e}evil\u{200b}", "a", &huge]
    {
        let answer = sandbox.json(["ask", "--no-llm", "--json", "--", question]);
        assert!(answer["units"].is_array());
    }
}

#[test]
fn a_printed_unit_cannot_move_the_cursor() {
    let sandbox = Sandbox::with_brain();
    let folder = sandbox.brain().join("domains/x/bugs");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("esc.md"),
        "---\nid: esc\ntype: bug\ntitle: \"a\\u001b[2Jb\"\n---\n\u{1b}[31mred\u{202e}\n",
    )
    .unwrap();
    for arguments in [&["show", "esc"][..], &["list"], &["ask", "red", "--no-llm"]] {
        let shown = sandbox.ok(arguments);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {shown:?}");
    }
}

#[test]
fn settings_are_printed_with_their_sources() {
    let sandbox = Sandbox::with_brain();
    let output =
        sandbox.command().args(["config", "--json"]).env("NUGGET_RETRIEVE_LIMIT", "7").output().unwrap();
    let config: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(config["settings"]["retrieve.limit"]["value"], "7");
    assert_eq!(config["settings"]["retrieve.limit"]["from"], "NUGGET_RETRIEVE_LIMIT");
    assert_eq!(config["settings"]["model.name"]["from"], "default");
    // What the install script reads may still be set.
    let output = sandbox.command().arg("config").env("NUGGET_INSTALL_DIR", "/opt").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = sandbox.command().arg("config").env("NUGGET_RETREIVE_LIMIT", "7").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr,
        "error: the variable NUGGET_RETREIVE_LIMIT names no setting\nhint: `unset NUGGET_RETREIVE_LIMIT`, or did you mean \
         NUGGET_RETRIEVE_LIMIT?\n"
    );
}

#[test]
fn help_fits_80_columns_and_has_examples() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!("help", sandbox.ok(["--help"]));
    for command in cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let help = sandbox.ok([name, "--help"]);
        assert!(help.contains("Example"), "{name}: {help}");
        let too_long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{name}: {too_long:?}");
        insta::assert_snapshot!(format!("help-{name}"), help);
    }
}

#[test]
fn errors_say_what_happened_and_what_to_do() {
    let (sandbox, empty) = (Sandbox::with_brain(), Sandbox::new());
    let mut errors = String::new();
    let mut tell = |sandbox: &Sandbox, arguments: &[&str]| {
        let output = sandbox.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let stderr = stderr.replace(sandbox.path().to_str().unwrap(), "~");
        errors.push_str(&format!(
            "$ nugget {}\n{stderr}[{}]\n\n",
            arguments.join(" "),
            output.status.code().unwrap()
        ));
    };
    tell(&empty, &["status"]);
    tell(&empty, &["status", "--brain", "/dev/null"]);
    for arguments in [
        &["no-such-command"][..],
        &["show"],
        &["show", "no-such-unit"],
        &["why", "no-such-unit"],
        &["ask", "  "],
        &["ask", "x", "--limit", "0"],
        &["retry"],
        &["retry", "99"],
        &["forget-capture", "99"],
        &["capture-session", "--transcript", "no-such.jsonl"],
        &["sync", "--since", "yesterday"],
        &["import", "no-such-folder"],
        &["import", "brain"],
        &["export", "--format", "okf"],
        &["export", "--format", "okf", "--json"],
        &["export", "--format", "okf", "-o", "brain"],
        &["export", "--format", "html", "-o", "no-such-folder/brain.html"],
        &["man", "brain/brain.yaml"],
        &["completions", "tcsh"],
    ] {
        tell(&sandbox, arguments);
    }
    insta::assert_snapshot!("errors", errors);
}

/// Runs a script in a shell and returns its output, if that shell is installed.
fn run_shell(sandbox: &Sandbox, shell: &str, arguments: &[&str]) -> Option<String> {
    let nugget = std::path::Path::new(env!("CARGO_BIN_EXE_nugget")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = std::process::Command::new(shell);
    for (name, value) in sandbox.command().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.args(arguments).env("PATH", format!("{}:{path}", nugget.display())).current_dir(sandbox.path());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Not `eprintln!`, which the lints forbid.
            let _ = writeln!(std::io::stderr(), "{shell} is not installed: its completions are not tried");
            return None;
        }
        Err(error) => panic!("{shell}: {error}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{shell}: {stderr}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn completions_load_in_each_shell_and_complete_ids() {
    const SESSION: &str = "5a3b7c1e-0000-4000-8000-000000000001";
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    let transcript = sandbox.path().join(format!(".claude/projects/-home-dev-shop/{SESSION}.jsonl"));
    std::fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    let line = serde_json::json!({ "type": "user", "uuid": SESSION, "message": { "role": "user", "content": "hello" } });
    std::fs::write(&transcript, format!("{line}\n")).unwrap();
    sandbox.ok(["sessions", "sync"]);
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    for shell in ["bash", "zsh", "fish"] {
        std::fs::write(sandbox.path().join(format!("script.{shell}")), sandbox.ok(["completions", shell]))
            .unwrap();
    }
    let bash = "source script.bash
        try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; COMPREPLY=(); _clap_complete_nugget nugget \"${@: -1}\"; echo \"${COMPREPLY[@]}\"; }
        try nugget show bounded; try nugget forget-capture 1; try nugget sta
        try nugget rm wool; try nugget list --domain cod; try nugget list --type be; try nugget export --format o
        try nugget config set retrieve.re; try nugget config set retrieve.rerank a; try nugget config set retrieve.limit 1
        try nugget ask --depth d; try nugget config get brai
        for command in show related forget 'export --session'; do try nugget sessions $command 5a3b; done";
    if let Some(printed) = run_shell(&sandbox, "bash", &["--norc", "-c", bash]) {
        let expected = [
            "bounded-worker-pools-in-go",
            "1",
            "status",
            "wool-care-against-moths",
            "coding",
            "belief",
            "okf",
            "retrieve.rerank retrieve.rerank_deadline_ms",
            "auto",
            "10",
            "deep",
            "brain",
            SESSION,
            SESSION,
            SESSION,
            SESSION,
        ];
        assert_eq!(printed.lines().map(str::trim_end).collect::<Vec<_>>(), expected);
    }
    let fish = "source script.fish; complete -C 'nugget show bounded'; complete -C 'nugget forget-capture 1'; complete -C 'nugget sta'";
    if let Some(printed) = run_shell(&sandbox, "fish", &["--no-config", "-c", fish]) {
        let first: Vec<&str> = printed.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(first, ["bounded-worker-pools-in-go", "1", "status"], "{printed}");
    }
    let zsh = "autoload -U compinit; compinit -u -d zcompdump; source script.zsh; print ${_comps[nugget]}";
    if let Some(printed) = run_shell(&sandbox, "zsh", &["-f", "-c", zsh]) {
        assert_eq!(printed, "_clap_dynamic_completer_nugget\n");
    }
}

/// What is offered for the last word of a command line.
fn offered(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let mut command = sandbox.command();
    command.args(["--", "nugget"]).args(words).env("NUGGET_COMPLETE", "fish");
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    printed.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn every_value_is_completed() {
    let sandbox = Sandbox::with_brain();
    let projects = sandbox.path().join(".claude/projects/-srv-invoicing");
    std::fs::create_dir_all(&projects).unwrap();
    let session = "ad5139ef-0000-4000-8000-000000000001";
    let transcript = std::fs::read_to_string(fixture("transcripts/synthetic/flywheel.jsonl")).unwrap();
    std::fs::write(projects.join(format!("{session}.jsonl")), &transcript).unwrap();
    sandbox.ok(["sessions", "sync"]);
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.ok(["review", "merge", "--all"]);
    let listed = sandbox.json(["sessions", "--json"])["sessions"][0].clone();
    let text = |name: &str| listed[name].as_str().unwrap_or_default().to_owned();
    let project = text("path").rsplit('/').next().unwrap().to_owned();
    for (words, value) in [
        (&["search", "--project"][..], project.clone()),
        (&["sessions", "--project"], project),
        (&["search", "--branch"], text("branch")),
        (&["search", "--model"], text("model")),
        (&["search", "--source"], "claude-code".to_owned()),
        (&["sessions", "sync", "--source"], "codex".to_owned()),
        (&["search", "--session"], text("id")),
        (&["search", "--tool"], "Bash".to_owned()),
        (&["import"], "claude-md".to_owned()),
        (&["import", "--domain"], "messaging".to_owned()),
    ] {
        assert!(!value.is_empty(), "{words:?}: {listed}");
        let words: Vec<&str> = words.iter().copied().chain([""]).collect();
        let found = offered(&sandbox, &words);
        assert!(found.contains(&value), "{words:?}: {value} is not in {found:?}");
    }
    // Paths, and what sessions have changed.
    std::fs::create_dir(sandbox.path().join("notes")).unwrap();
    for words in [&["ask", "--file", "no"][..], &["clone", "me/brain", "no"], &["import", "no"]] {
        assert!(offered(&sandbox, words).iter().any(|found| found.starts_with("notes")), "{words:?}");
    }
    // A capture is named by its session, too.
    let capture =
        sandbox.json(["status", "--json"])["captures"][0]["session_id"].as_str().unwrap()[..8].to_owned();
    assert!(offered(&sandbox, &["forget-capture", &capture[..3]]).contains(&capture));
    // The brain on the command line is the one whose values are offered.
    let other = sandbox.path().join("other");
    sandbox.ok(["init", "--path", other.to_str().unwrap()]);
    std::fs::write(other.join("only-there.md"), "# Only there\n\nA note.\n").unwrap();
    assert_eq!(offered(&sandbox, &["--brain", other.to_str().unwrap(), "show", "o"]), ["only-there"]);
    assert_eq!(offered(&sandbox, &["show", &format!("--brain={}", other.display()), "only"]), ["only-there"]);
}

#[test]
fn another_programs_completion_variable_does_not_stop_a_hook() {
    let sandbox = Sandbox::with_brain();
    let output = sandbox.command().args(["status"]).env("COMPLETE", "bash").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("brain "));
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let sandbox = Sandbox::new();
    let page = sandbox.ok(["man"]);
    assert!(page.contains(".TH nugget 1"), "{page}");
    sandbox.ok(["man", "pages/man1"]);
    let mut pages: Vec<String> = std::fs::read_dir(sandbox.path().join("pages/man1"))
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for command in cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(pages.contains(&format!("nugget-{}.1", command.get_name())), "{pages:?}");
    }
    assert!(!pages.contains(&"nugget-drain.1".to_owned()), "{pages:?}");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    let mut child = sandbox.command().args(["list"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_named_pipe_is_refused_as_a_transcript() {
    let sandbox = Sandbox::with_brain();
    let pipe = sandbox.path().join("session.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for more in [&["--wait"][..], &["--dry-run"], &[]] {
        let output = sandbox
            .run(["capture-session", "--transcript", pipe.to_str().unwrap()].iter().chain(more.iter()));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("is not a regular file"), "{more:?}: {stderr}");
    }
    // A hook's is queued and then refused: nobody waits for its writer.
    let hook = serde_json::json!({"session_id": "s", "transcript_path": pipe, "cwd": "/", "hook_event_name": "SessionEnd"});
    let output = sandbox.run_with_input(&["capture-session"], format!("{hook}\n").as_bytes());
    assert!(output.status.success());
    crate::support::wait_until("the capture has ended", || {
        let status = sandbox.json(["status", "--json"]);
        status["queue"]["dead"] == 1 || status["queue"]["nothing"] == 1
    });
}
