//! `nugget doctor`: one line per check, whatever is broken, and where tokens come from.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use queue::{Announcement, Finish, Queue, Stage};
use serde_json::{Value, json};

use crate::support::github_api::{Failure, GithubApi, TOKEN};
use crate::support::{Sandbox, fixture, wait_until, write_script};

const SLUG: &str = "me/brain";

/// All checks that run when there is a brain.
const NAMES: &[&str] = &[
    "settings", "git", "brain", "branch", "token", "remote", "hooks", "mcp", "queue", "index", "model",
    "disk", "clock", "versions",
];

fn doctor(sandbox: &Sandbox, prepare: impl FnOnce(&mut Command)) -> (Option<i32>, BTreeMap<String, Value>) {
    let mut command = sandbox.command();
    command.args(["doctor", "--json"]);
    prepare(&mut command);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.map(|check| (check["name"].as_str().unwrap().to_owned(), check.clone())).collect();
    assert!(!String::from_utf8_lossy(&output.stdout).contains(TOKEN));
    assert!(!String::from_utf8_lossy(&output.stderr).contains(TOKEN));
    (output.status.code(), checks)
}

/// Writes a program with this name to a PATH of its own, beside the tools that it needs.
fn install_program(sandbox: &Sandbox, name: &str, script: &str) -> std::ffi::OsString {
    let folder = sandbox.path().join("bin");
    write_script(&folder.join(name), script);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&usual))).unwrap()
}

/// Creates a brain whose remote is a repository of the local GitHub.
fn brain_on_github() -> (GithubApi, Sandbox) {
    let api = GithubApi::start();
    let bare = api.add_repository(SLUG);
    let sandbox = Sandbox::with_brain();
    sandbox.git(&["push", "--quiet", bare.to_str().unwrap(), "HEAD:refs/heads/main"]);
    sandbox.git(&["remote", "add", "origin", &api.clone_url(SLUG)]);
    (api, sandbox)
}

fn normalise(sandbox: &Sandbox, output: &Output, more: &[(&str, &str)]) -> String {
    let mut text = String::from_utf8(output.stdout.clone()).unwrap();
    text = text.replace(sandbox.path().to_str().unwrap(), "[HOME]");
    for (from, to) in more {
        text = text.replace(from, to);
    }
    // The machine that runs the tests may have one.
    let lines = text.lines().filter(|line| !line.contains("  model server  "));
    let lines = lines.map(|line| match line {
        line if line.contains("  git  ") => "ok       git […]".to_owned(),
        line if line.contains("  disk  ") => "ok       disk […]".to_owned(),
        line if line.contains("  model  ") => line.split(" model ").next().unwrap().to_owned() + " model […]",
        line => match line.split_once(" schema ").filter(|_| line.contains("  versions  ")) {
            Some((before, _)) => before.replace(env!("CARGO_PKG_VERSION"), "[VERSION]") + " schema […]",
            None => line.replace(env!("CARGO_PKG_VERSION"), "[VERSION]"),
        },
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_new_machine_gets_setup_steps() {
    let sandbox = Sandbox::new();
    let output = sandbox.command().args(["doctor", "--offline"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!("doctor_without_a_brain", normalise(&sandbox, &output, &[]));
    assert!(!sandbox.path().join("state").exists(), "the checks create nothing");
}

#[test]
fn a_brain_on_github_passes_every_check() {
    let (api, sandbox) = brain_on_github();
    let path = install_program(&sandbox, "unused", "");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_nugget"), sandbox.path().join("bin/nugget")).unwrap();
    let client = sandbox.path().join(".claude");
    std::fs::create_dir_all(&client).unwrap();
    let hook = json!({ "type": "command", "command": "nugget capture-session", "timeout": 10 });
    let guard = json!([{ "hooks": [{ "type": "command", "command": "nugget guard", "timeout": 5 }] }]);
    let hooks = json!({ "SessionEnd": [{ "hooks": [hook] }], "PreToolUse": guard, "PostToolUse": guard, "PostToolUseFailure": guard });
    std::fs::write(client.join("settings.json"), json!({ "hooks": hooks }).to_string()).unwrap();
    let server = json!({ "mcpServers": { "nugget": { "command": "nugget", "args": ["serve"] } } });
    std::fs::write(sandbox.path().join(".claude.json"), server.to_string()).unwrap();
    sandbox.ok(["index"]);
    let run = |offline: &[&str]| {
        let mut command = sandbox.command();
        command.arg("doctor").args(offline).env("PATH", &path);
        command.env("NUGGET_GITHUB_API", api.api_url()).env("GITHUB_TOKEN", TOKEN).output().unwrap()
    };
    let hidden = api.url.trim_start_matches("http://").to_owned();
    let output = run(&[]);
    insta::assert_snapshot!("doctor_with_github", normalise(&sandbox, &output, &[(&hidden, "[GITHUB]")]));
    assert_eq!(output.status.code(), Some(0), "warnings are not failures");
    let before = api.log().len();
    let output = run(&["--offline"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(api.log().len(), before, "offline sends no request");
}

#[test]
fn a_token_is_found_and_its_source_is_named() {
    let (api, sandbox) = brain_on_github();
    let helper = sandbox.path().join("helper");
    std::fs::write(
        &helper,
        format!("[credential]\n\thelper = \"!f() {{ echo username=x; echo password={TOKEN}; }}; f\"\n"),
    )
    .unwrap();
    let gh = install_program(
        &sandbox,
        "gh",
        &format!("env > \"$HOME/gh-env\"; echo \"$@\" > \"$HOME/gh-args\"; echo {TOKEN}"),
    );
    let nothing = |_: &mut Command| {};
    type Prepare<'a> = &'a dyn Fn(&mut Command);
    let cases: [(&str, Prepare<'_>); 6] = [
        ("from GITHUB_TOKEN,", &|command| {
            command.env("GITHUB_TOKEN", TOKEN).env("GH_TOKEN", "another");
        }),
        ("from GH_TOKEN,", &|command| {
            command.env("GH_TOKEN", TOKEN);
        }),
        ("from GH_ENTERPRISE_TOKEN,", &|command| {
            command.env("GH_ENTERPRISE_TOKEN", TOKEN);
        }),
        ("from `gh auth token`,", &|command| {
            command.env("PATH", &gh).env("ANTHROPIC_API_KEY", "secret");
        }),
        ("from git's credential helper,", &|command| {
            command.env("GIT_CONFIG_GLOBAL", &helper);
        }),
        ("none for 127.0.0.1", &nothing),
    ];
    for (wanted, prepare) in cases {
        let (_, checks) = doctor(&sandbox, |command| {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
            command.env("NUGGET_GITHUB_API", api.api_url());
            prepare(command);
        });
        let message = checks["token"]["message"].as_str().unwrap();
        assert!(message.contains(wanted), "{wanted}: {message}");
        let is_found = !wanted.starts_with("none");
        assert_eq!(checks["token"]["level"] == "ok", is_found, "{message}");
        assert_eq!(checks["remote"]["level"] == "ok", is_found, "{}", checks["remote"]);
    }
    let arguments = std::fs::read_to_string(sandbox.path().join("gh-args")).unwrap();
    assert!(arguments.starts_with("auth token --hostname 127.0.0.1"), "{arguments}");
    let environment = std::fs::read_to_string(sandbox.path().join("gh-env")).unwrap();
    assert!(!environment.contains("ANTHROPIC_API_KEY") && environment.contains("GH_PROMPT_DISABLED"));
}

#[test]
fn a_hanging_helper_is_killed_with_its_children() {
    let (api, sandbox) = brain_on_github();
    let (helper, pid) = (sandbox.path().join("helper"), sandbox.path().join("pid"));
    let script = format!("!f() {{ echo $$ > {}; sleep 600; }}; f", pid.display());
    std::fs::write(&helper, format!("[credential]\n\thelper = \"{script}\"\n")).unwrap();
    let (_, checks) = doctor(&sandbox, |command| {
        command.arg("--offline").env("NUGGET_GITHUB_API", api.api_url());
        command.env("GIT_CONFIG_GLOBAL", &helper).env("GIT_CONFIG_NOSYSTEM", "1");
    });
    assert_eq!(checks["token"]["level"], "warning", "{}", checks["token"]);
    let pid = std::fs::read_to_string(&pid).unwrap();
    let line = format!("/proc/{}/cmdline", pid.trim());
    // Once it is dead it has no command line to read, even before its parent reaps it.
    wait_until("the helper is dead", || std::fs::read(&line).unwrap_or_default().is_empty());
}

#[test]
fn a_token_is_sent_only_to_its_own_host() {
    let (api, sandbox) = brain_on_github();
    // The remote's host is not a known GitHub, so the variables for github.com are not sent there.
    let (_, checks) = doctor(&sandbox, |command| {
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GITHUB_TOKEN", TOKEN).env("GH_TOKEN", TOKEN);
    });
    assert_eq!(checks["token"]["message"], "not needed: the remote is not on GitHub");
    assert_eq!(checks["remote"]["level"], "failure", "{}", checks["remote"]);
    assert_eq!(api.log(), [""; 0]);
    // A value that cannot be a token is not sent at all.
    let (code, checks) = doctor(&sandbox, |command| {
        command.env("NUGGET_GITHUB_API", api.api_url()).env("GITHUB_TOKEN", "two words");
    });
    assert_eq!(code, Some(1));
    assert_eq!(checks["token"]["message"], "the value of GITHUB_TOKEN cannot be a token");
    assert_eq!(api.log(), [""; 0]);
}

#[test]
fn each_github_failure_has_its_own_line() {
    let (api, sandbox) = brain_on_github();
    let run_doctor = || {
        doctor(&sandbox, |command| {
            command.env("NUGGET_GITHUB_API", api.api_url()).env("GITHUB_TOKEN", TOKEN);
        })
    };
    let line = |checks: &BTreeMap<String, Value>, name: &str| {
        let check = &checks[name];
        let fix = check["fix"].as_str().unwrap_or_default();
        format!("{} {} {fix}", check["level"].as_str().unwrap(), check["message"].as_str().unwrap())
    };
    let check = |name: &str, wanted: &[&str]| {
        let (_, checks) = run_doctor();
        let line = line(&checks, name);
        assert!(wanted.iter().all(|wanted| line.contains(wanted)), "{wanted:?}: {line}");
    };
    api.fail_next(1, "GET /api/v3/user", Failure::Status(401, "Bad credentials", vec![]));
    check("token", &["failure", "401", "gh auth login"]);
    api.fail_next(1, "GET /api/v3/user", Failure::Status(502, "Bad Gateway", vec![]));
    check("token", &["warning", "502"]);
    api.fail_next(
        1,
        "GET /api/v3/user",
        Failure::Status(403, "Resource not accessible by integration", vec![]),
    );
    check("token", &["ok", "its owner is not visible"]);
    api.set_scopes(Some("read:org"));
    check("token", &["failure", "without the scope `repo`", "gh auth refresh"]);
    api.set_scopes(None);
    check("token", &["ok", "fine-grained"]);
    api.set_clock_skew(-4000);
    check("clock", &["warning", "s ahead of GitHub's", "NTP"]);
    api.set_clock_skew(0);
    api.with_repository(SLUG, |repo| repo.can_push = false);
    check("pull requests", &["failure", "may not push"]);
    api.with_repository(SLUG, |repo| (repo.can_push, repo.archived) = (true, true));
    check("pull requests", &["failure", "archived", "unarchive"]);
    api.with_repository(SLUG, |repo| repo.archived = false);
    api.with_repository(SLUG, |repo| repo.fork_of = Some("them/brain".to_owned()));
    check("pull requests", &["ok", "a fork of them/brain"]);
    api.rename(SLUG, "me/knowledge");
    check("pull requests", &["warning", "renamed", "git remote set-url origin"]);
    api.delete_repository("me/knowledge");
    check("pull requests", &["failure", "does not find repository me/brain"]);
    check("remote", &["failure", "no such repository"]);
}

#[test]
fn every_broken_part_gives_a_line_and_never_a_crash() {
    let garbage = |path: &Path| {
        let _ = std::fs::remove_dir_all(path);
        let _ = std::fs::remove_file(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [0xff, 0xfe, 0, 1, 2, b'{']).unwrap();
    };
    let state = |sandbox: &Sandbox| {
        let brains = std::fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
        let mut brains = brains.flatten().map(|entry| entry.path());
        brains.find(|path| path.is_dir()).unwrap()
    };
    type Break<'a> = &'a dyn Fn(&Sandbox);
    let cases: [(&str, Break<'_>); 9] = [
        ("queue", &|sandbox| garbage(&state(sandbox).join("queue.db"))),
        ("queue", &|sandbox| garbage(&state(sandbox))),
        ("index", &|sandbox| {
            garbage(&sandbox.brain().join(".nugget"));
        }),
        ("brain", &|sandbox| garbage(&sandbox.brain().join("brain.yaml"))),
        ("brain", &|sandbox| std::fs::remove_dir_all(sandbox.brain()).unwrap()),
        ("branch", &|sandbox| garbage(&sandbox.brain().join(".git"))),
        ("settings", &|sandbox| garbage(&sandbox.path().join("config/nugget/config.toml"))),
        ("hooks", &|sandbox| garbage(&sandbox.path().join(".claude/settings.json"))),
        ("mcp", &|sandbox| std::fs::create_dir_all(sandbox.path().join(".claude.json")).unwrap()),
    ];
    for (at, (name, break_it)) in cases.into_iter().enumerate() {
        let sandbox = Sandbox::with_brain();
        sandbox.ok(["index"]);
        break_it(&sandbox);
        let brain = sandbox.brain();
        let (code, checks) = doctor(&sandbox, |command| {
            command.arg("--offline").arg("--brain").arg(&brain);
        });
        let level = &checks[name]["level"];
        // A missing index is only rebuilt, and of brain.yaml there is a committed one.
        let wanted = if matches!(at, 2 | 3) { "warning" } else { "failure" };
        assert_eq!(level, wanted, "{at} {name}: {}", checks[name]);
        assert_eq!(code, Some(i32::from(wanted == "failure")), "{at} {name}: {checks:#?}");
        if at == 3 {
            let restore = format!("git -C {} checkout main -- brain.yaml", brain.display());
            assert_eq!(checks[name]["fix"], restore);
        }
        assert!(
            wanted == "warning" || name == "queue" || !checks[name]["message"].as_str().unwrap().is_empty()
        );
        let of_brain = ["branch", "index"];
        for expected in NAMES {
            assert!(
                checks.contains_key(*expected) || of_brain.contains(expected),
                "{at}: {expected} is missing"
            );
        }
    }
}

#[test]
fn a_person_who_signs_commits_is_told_that_nugget_does_not() {
    let sandbox = Sandbox::with_brain();
    let offline = |command: &mut Command| {
        command.arg("--offline");
    };
    let check = || doctor(&sandbox, offline).1.remove("signing");
    assert_eq!(check(), None);
    sandbox.git(&["config", "commit.gpgSign", "yes"]);
    let check = check().unwrap();
    assert_eq!(check["level"], "warning");
    assert!(check["message"].as_str().unwrap().contains("nugget signs no commit"), "{check}");
}

#[test]
fn an_alias_in_the_ssh_configuration_is_the_host_that_it_names() {
    let sandbox = Sandbox::with_brain();
    let script = "case \"$*\" in\n'-G -- github.com-work') printf 'user git\\nhostname github.com\\nport 22\\n' ;;\n\
        *) printf 'hostname %s\\n' \"$3\" ;;\nesac";
    let path = install_program(&sandbox, "ssh", script);
    for (host, expected) in [("github.com-work", "for github.com"), ("example.org", "not on GitHub")] {
        sandbox.git(&["config", "remote.origin.url", &format!("git@{host}:me/brain.git")]);
        let (_, checks) = doctor(&sandbox, |command| {
            command.arg("--offline").env("PATH", &path);
        });
        let message = checks["token"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{host}: {message}");
    }
}

#[test]
fn an_outdated_git_is_reported() {
    let sandbox = Sandbox::with_brain();
    let path = install_program(&sandbox, "git", "echo git version 2.20.1");
    let (code, checks) = doctor(&sandbox, |command| {
        command.arg("--offline").env("PATH", &path);
    });
    assert_eq!(code, Some(1));
    assert_eq!(checks["git"]["message"], "2.20.1 is too old");
}

#[test]
fn a_file_that_is_no_unit_is_not_counted_as_one() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    std::fs::write(sandbox.brain().join("domains/coding/bugs/broken.md"), "---\ntype: [\n---\n").unwrap();
    let (_, checks) = doctor(&sandbox, |command| {
        command.arg("--offline");
    });
    let message = checks["brain"]["message"].as_str().unwrap();
    assert!(message.ends_with(", 20 units"), "{message}");
}

#[test]
fn stuck_and_failed_captures_are_reported() {
    let sandbox = Sandbox::with_brain();
    // Creates the queue.
    sandbox.ok(["sync"]);
    let state = std::fs::read_dir(sandbox.path().join("state/nugget")).unwrap().flatten();
    let path = state.map(|brain| brain.path().join("queue.db")).find(|path| path.is_file()).unwrap();
    let check_text = || {
        let (_, checks) = doctor(&sandbox, |command| {
            command.arg("--offline");
        });
        let check = &checks["queue"];
        assert_eq!(check["level"], if check["fix"].is_null() { "ok" } else { "warning" });
        format!("{} {}", check["message"].as_str().unwrap(), check["fix"].as_str().unwrap_or_default())
    };
    assert_eq!(check_text(), "0 waiting, 0 done ");
    let queue = Queue::open(&path).unwrap();
    let session = knowledge::SessionId::verbatim("s1".to_owned());
    let announcement = Announcement::new(session, "/nowhere.jsonl", "command");
    let now = jiff::Timestamp::now();
    queue.add(&announcement, now - jiff::SignedDuration::from_mins(2)).unwrap();
    let stalled = "1 waiting, the oldest for 2 min, but no worker is running nugget retry --all";
    assert_eq!(check_text(), stalled);
    // As one that was killed leaves it.
    let claim = queue.claim(Stage::Intake, now).unwrap().unwrap();
    assert_eq!(check_text(), stalled);
    let status = sandbox.ok(["status", "-v"]);
    assert!(status.contains("no worker runs for 1 capture"), "{status}");
    assert!(status.contains("\nnow       1 capture queued\n") && !status.contains("running 1"), "{status}");
    let status = sandbox.json(["status", "--json"]);
    assert_eq!((&status["queue"]["running"], &status["captures"][0]["state"]), (&json!(0), &json!("queued")));
    queue.finish(&claim, &Finish::Dead { reason: "no transcript".to_owned() }, now).unwrap();
    drop(queue);
    let message = check_text();
    assert!(message.starts_with("0 waiting, 0 done; 1 capture failed"), "{message}");
    assert!(message.ends_with("`nugget retry --all`"), "{message}");
}

#[test]
fn a_server_that_the_client_skips_is_named() {
    let sandbox = Sandbox::with_brain();
    let client = sandbox.path().join(".claude");
    sandbox.ok(["install", "--as", "plugin"]);
    let cache = client.join("mcp-needs-auth-cache.json");
    let check = || {
        doctor(&sandbox, |command| {
            command.arg("--offline");
        })
        .1["mcp"]
            .clone()
    };
    let known = check();
    assert_eq!(known["level"], "ok");
    let told = known["message"].as_str().unwrap();
    let tokens = told.split_once("about ").and_then(|(_, rest)| rest.split_once(" tokens in every session"));
    let tokens: usize = tokens.unwrap_or_else(|| panic!("{told}")).0.parse().unwrap();
    assert!((100..400).contains(&tokens), "{told}");

    let now = jiff::Timestamp::now().as_millisecond();
    let remember = |name: &str, minutes_ago: i64| {
        let entry = json!({ name: { "timestamp": now - minutes_ago * 60_000, "id": "0a1b" } });
        std::fs::write(&cache, entry.to_string()).unwrap();
    };
    remember("plugin:nugget:nugget", 5);
    let skipped = check();
    assert_eq!(skipped["level"], "warning", "{skipped}");
    assert!(skipped["message"].as_str().unwrap().contains("skips it"), "{skipped}");
    assert!(skipped["fix"].as_str().unwrap().contains(cache.to_str().unwrap()), "{skipped}");
    for (name, minutes_ago) in [("plugin:nugget:nugget", 16), ("plugin:other:other", 5)] {
        remember(name, minutes_ago);
        assert_eq!(check()["level"], "ok", "{name} {minutes_ago}");
    }
    for text in ["", "nonsense", "[]", "{\"nugget\": 7}"] {
        std::fs::write(&cache, text).unwrap();
        assert_eq!(check()["level"], "ok", "{text:?}");
    }
    std::fs::remove_file(&cache).unwrap();
    sandbox.ok(["config", "set", "mcp.tools", "remember,recall"]);
    let without = check();
    assert_eq!(without["level"], "warning", "{without}");
    let fix = without["fix"].as_str().unwrap();
    assert_eq!(fix, "nugget config set mcp.tools get_relevant_context,remember,recall");
    let command: Vec<&str> = fix.split(' ').skip(1).collect();
    sandbox.ok(command);
    assert_eq!(check()["level"], "ok");
}

#[test]
fn a_stored_session_that_cannot_be_read_is_named() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&crate::support::fixture("transcripts/synthetic/nothing_chat.jsonl"));
    let places = brain::StatePaths::in_folder(sandbox.state());
    std::fs::write(places.spool().join("torn.json"), "{\"session\":").unwrap();
    let status = Command::new("mkfifo").arg(places.spool().join("pipe.json")).status().unwrap();
    assert!(status.success());
    for _ in 0..2 {
        let (_, checks) = doctor(&sandbox, |command| {
            command.arg("--offline");
        });
        let check = &checks["spool"];
        assert_eq!(check["level"], "warning");
        let told = check["message"].as_str().unwrap();
        assert!(told.contains("pipe.json") && told.contains("torn."), "{told}");
        assert!(check["fix"].as_str().unwrap().contains("nugget sync"), "{check}");
    }
    assert!(places.spool().join("torn.bad").is_file());
}

#[test]
fn a_file_that_is_no_unit_is_a_warning() {
    let sandbox = Sandbox::with_brain();
    std::fs::create_dir_all(sandbox.brain().join("domains/web/bugs")).unwrap();
    std::fs::write(sandbox.brain().join("domains/web/bugs/lost.md"), "---\ntype: [\n---\n# Lost\n").unwrap();
    sandbox.ok(["index"]);
    let (_, checks) = doctor(&sandbox, |_| ());
    assert_eq!(checks["index"]["level"], "warning", "{}", checks["index"]);
    assert!(checks["index"]["message"].as_str().unwrap().contains("1 file"), "{}", checks["index"]);
}

#[test]
fn a_state_folder_that_cannot_be_created_is_named_with_what_to_set() {
    let sandbox = Sandbox::with_brain();
    let locked = sandbox.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere, so that it becomes somebody else for this test.
    let user = "54321";
    let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(sandbox.path()).unwrap()) == 0;
    if is_root {
        let own = format!("{user}:{user}");
        assert!(Command::new("chown").arg("-R").arg(own).arg(sandbox.path()).status().unwrap().success());
    }
    let run = |arguments: &[&str]| {
        let nugget = env!("CARGO_BIN_EXE_nugget");
        let mut command = sandbox.command_of(if is_root { "setpriv" } else { nugget });
        if is_root {
            command.args(["--reuid", user, "--regid", user, "--clear-groups", nugget]);
        }
        command.env("HOME", &locked).env("XDG_STATE_HOME", locked.join("state")).args(arguments);
        command.output().unwrap()
    };
    if !run(&["--version"]).status.success() {
        eprintln!("another user cannot run the program here");
        return;
    }
    let said = format!("{} cannot be written, so that nothing is captured or asked", locked.display());
    let hint = "make it writable, or set XDG_STATE_HOME to a folder that is";
    let doctor = run(&["doctor", "--offline"]);
    let printed = String::from_utf8(doctor.stdout).unwrap();
    let state = printed.lines().find(|line| line.contains("  state  ")).unwrap();
    assert!(state.starts_with("failure") && state.contains(&said) && state.contains(hint), "{state}");
    let status = String::from_utf8(run(&["status"]).stdout).unwrap();
    assert!(status.contains(&said), "{status}");
    for command in [&["note", "add", "Mine", "--content", "text"][..], &["ask", "x"]] {
        let output = run(command);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.contains(&said), "{command:?}: {stderr}");
        assert!(stderr.ends_with(&format!("hint: {hint}\n")), "{command:?}: {stderr}");
    }
    let install = String::from_utf8(run(&["install"]).stderr).unwrap();
    assert!(install.contains(&format!("failed to create {}", locked.display())), "{install}");
    let folder = sandbox.path().join("config/nugget");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let set = run(&["config", "set", "retrieve.limit", "3"]);
    assert_eq!(set.status.code(), Some(1), "{}", String::from_utf8_lossy(&set.stderr));
    for folder in [folder, locked] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_brain_on_a_read_only_file_system_is_a_failure() {
    let sandbox = Sandbox::with_brain();
    let brain = sandbox.brain().display().to_string();
    let run = |arguments: &str| {
        let mount =
            format!("mount --bind '{brain}' '{brain}' && mount -o remount,ro,bind '{brain}' || exit 77");
        let mut command = sandbox.command_of("unshare");
        command.args(["-rm", "sh", "-c", &format!("{mount}; exec \"$0\" {arguments}")]);
        command
            .arg(env!("CARGO_BIN_EXE_nugget"))
            .output()
            .ok()
            .filter(|output| output.status.code() == Some(1))
    };
    let Some(doctor) = run("doctor --offline") else {
        eprintln!("this system mounts nothing in a test");
        return;
    };
    let printed = String::from_utf8(doctor.stdout).unwrap();
    let state = printed.lines().find(|line| line.contains("  state  ")).unwrap();
    assert!(
        state.starts_with("failure") && state.contains("is on a read-only file system; fix: "),
        "{state}"
    );
    let failed = run("note add Mine --content text").unwrap();
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert!(stderr.contains("read-only file system") && stderr.contains("\nhint: mount it"), "{stderr}");
    assert!(!stderr.contains("is full"), "{stderr}");
}

#[test]
fn the_cure_of_a_damaged_queue_can_be_pasted_and_a_session_that_ends_meanwhile_is_kept() {
    let sandbox = Sandbox::with_brain();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.capture(&transcript);
    // A worker that has the queue open would write its pages over the damage.
    sandbox.wait_for_workers();
    let queue = sandbox.state().join("queue.db");
    std::fs::write(&queue, "not a database ".repeat(1000)).unwrap();
    for arguments in [&["--wait"][..], &[]] {
        let mut command = sandbox.command();
        command.args(["capture-session", "--transcript"]).arg(&transcript).args(arguments);
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("is stored in the spool, and is not lost: "), "{told}");
    }
    let (_, checks) = doctor(&sandbox, |command| {
        command.arg("--offline");
    });
    let fix = checks["queue"]["fix"].as_str().unwrap();
    let run = Command::new("sh").args(["-c", fix]).output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{fix}: {run:?}");
    assert!(!queue.exists());
    sandbox.ok(["status"]);
    wait_until("the session is read", || sandbox.json(["status", "--json"])["queue"]["queued"] == 0);
}
