//! What belongs to another user, is in nugget's way, or must not be replaced.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Sandbox, fixture, wait_until};

/// The state folder of the sandbox's only brain.
fn state(sandbox: &Sandbox) -> PathBuf {
    let mut found = std::fs::read_dir(sandbox.path().join("state/nugget")).unwrap().flatten();
    found.find(|entry| entry.file_name().to_string_lossy().starts_with("brain-")).unwrap().path()
}

fn end_session(sandbox: &Sandbox) -> std::process::Output {
    let transcript = sandbox.path().join("5f8f6c3e-7c1d-4a52-9d7e-0a4b5c6d7e8f.jsonl");
    std::fs::copy(fixture("transcripts/synthetic/flywheel.jsonl"), &transcript).unwrap();
    let line = serde_json::json!({
        "session_id": "5f8f6c3e-7c1d-4a52-9d7e-0a4b5c6d7e8f", "transcript_path": transcript,
        "cwd": sandbox.path(), "hook_event_name": "SessionEnd", "reason": "other",
    });
    sandbox.run_with_input(&["capture-session"], format!("{line}\n").as_bytes())
}

fn both(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A brain whose configuration runs a program with every use of its remote.
fn brain_of_a_stranger() -> (Sandbox, PathBuf) {
    let mut sandbox = Sandbox::with_brain();
    let mark = sandbox.path().join("mark");
    let run = format!("touch {} #", mark.display());
    sandbox.git(&["config", "core.sshCommand", &run]);
    sandbox.git(&["config", "protocol.ext.allow", "always"]);
    sandbox.git(&["remote", "add", "origin", "git@example.invalid:me/brain.git"]);
    sandbox.git(&["config", "remote.origin.uploadpack", &run]);
    // With this variable git takes every repository for another user's.
    sandbox.variables.push(("GIT_TEST_ASSUME_DIFFERENT_OWNER".to_owned(), "1".to_owned()));
    (sandbox, mark)
}

#[test]
fn a_repository_of_another_user_runs_nothing() {
    let (mut sandbox, mark) = brain_of_a_stranger();
    for arguments in [&["doctor"][..], &["status"], &["sync"], &["ask", "why"], &["retry", "--all"]] {
        sandbox.run(arguments);
        assert!(!mark.exists(), "{arguments:?}");
    }
    let doctor = both(&sandbox.run(["doctor"]));
    assert!(doctor.contains("detected dubious ownership in repository at"), "{doctor}");
    assert!(doctor.contains("git config --global --add safe.directory"), "{doctor}");
    // git's own words are lines, of which one is a command to copy.
    for arguments in [&["sync"][..], &["review"], &["edit", "x"]] {
        let refused = sandbox.run(arguments);
        let printed = both(&refused);
        assert!(
            !refused.status.success() && printed.contains("dubious ownership"),
            "{arguments:?}: {printed}"
        );
        let brain = sandbox.brain();
        let command = format!("git config --global --add safe.directory {}", brain.display());
        assert!(printed.lines().any(|line| line.trim() == command), "{arguments:?}: {printed}");
        assert!(
            printed.contains("hint: run that command only if you trust the owner"),
            "{arguments:?}: {printed}"
        );
        assert!(!printed.contains(":;"), "{printed}");
    }
    // The hook keeps the session, and no worker touches the repository.
    assert!(end_session(&sandbox).status.success());
    wait_until("the worker has refused", || {
        let logs = std::fs::read_dir(state(&sandbox).join("logs")).unwrap().flatten();
        logs.into_iter().any(|log| std::fs::read_to_string(log.path()).unwrap().contains("dubious ownership"))
    });
    assert!(!mark.exists());
    let status = sandbox.json(["status", "--json"]);
    assert_eq!(status["queue"]["queued"], 1, "{status}");
    assert!(status["drainer"]["problem"].as_str().unwrap().contains("dubious ownership"), "{status}");
    // What the person declares safe is used, as by git.
    std::fs::write(sandbox.path().join(".gitconfig"), "[safe]\n\tdirectory = *\n").unwrap();
    assert!(sandbox.json(["status", "--json"])["drainer"]["problem"].is_null());
    // Nothing must run in the sandbox when it goes.
    sandbox.variables.push(("NUGGET_DISABLE".to_owned(), "1".to_owned()));
}

#[test]
fn a_repository_owned_by_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can give a file to another user");
        return;
    }
    let sandbox = Sandbox::with_brain();
    sandbox.ok(["sync"]);
    std::os::unix::fs::chown(sandbox.brain().join(".git"), Some(12_345), None).unwrap();
    let sync = sandbox.run(["sync"]);
    assert!(!sync.status.success() && both(&sync).contains("dubious ownership"), "{}", both(&sync));
}

/// The user who has no files.
const NOBODY: u32 = 65_534;

fn give_all(folder: &Path, user: u32) {
    std::os::unix::fs::lchown(folder, Some(user), Some(user)).unwrap();
    if std::fs::symlink_metadata(folder).unwrap().is_dir() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            give_all(&entry.path(), user);
        }
    }
}

#[test]
fn files_of_root_in_the_way_are_named_with_the_command_that_helps() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can give a file to another user");
        return;
    }
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.ok(["index"]);
    let run = |arguments: &[&str]| {
        let mut command = sandbox.command();
        both(&command.args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap())
    };
    let state_home = sandbox.path().join("state");
    let (brain, cache) = (sandbox.brain(), sandbox.path().join(".cache/nugget"));
    let owned: Vec<(PathBuf, PathBuf, u32)> = vec![
        // The file of root's, the folder to give back, and the mode that root leaves it with.
        (state_home.join("nugget"), state_home.join("nugget"), 0o700),
        (state(&sandbox), state(&sandbox), 0o700),
        (state(&sandbox).join("queue.db"), state(&sandbox), 0o600),
        (brain.join(".git/refs/heads"), brain.clone(), 0o755),
        (brain.join(".git/index"), brain.clone(), 0o644),
        (brain.join("domains"), brain.clone(), 0o755),
        (brain.join(".nugget/index.db"), brain.clone(), 0o600),
        (cache.join("vectors.db"), cache.clone(), 0o600),
    ];
    std::fs::copy(fixture("transcripts/synthetic/flywheel.jsonl"), sandbox.path().join("t.jsonl")).unwrap();
    give_all(sandbox.path(), NOBODY);
    let healthy = run(&["doctor", "--offline"]);
    assert!(healthy.contains("all files are yours"), "{healthy}");
    for (file, folder, mode) in owned {
        let before = std::fs::metadata(&file).unwrap().mode();
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let fix = format!("sudo chown -R \"$(id -un)\" '{}'", folder.display());
        let says_it = |printed: &str| {
            // The status is broken into lines.
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(printed.contains(&fix), "{}: {printed}", file.display());
            assert!(printed.contains(&format!("{} belongs to another user", file.display())), "{printed}");
        };
        let doctor = run(&["doctor", "--offline"]);
        assert!(!doctor.contains("all files are yours"), "{doctor}");
        says_it(&doctor);
        says_it(&run(&["status"]));
        if folder.starts_with(&state_home) {
            for arguments in [&["review"][..], &["retry", "--all"]] {
                says_it(&run(arguments));
            }
            // A question needs no queue, and a hook has the spool.
            if file.is_dir() {
                for arguments in [&["ask", "why"][..], &["capture-session", "--transcript", "t.jsonl"]] {
                    says_it(&run(arguments));
                }
            }
        }
        std::os::unix::fs::chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(before)).unwrap();
    }
    give_all(sandbox.path(), 0);
}

#[test]
fn a_queue_that_cannot_be_written_is_named_with_the_command_that_helps() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root may write all files, and only root can run a program as another user");
        return;
    }
    for name in ["queue.db", "queue.db-shm"] {
        let sandbox = Sandbox::with_brain();
        sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
        sandbox.wait_for_workers();
        let (state, transcript) = (state(&sandbox), sandbox.path().join("t.jsonl"));
        std::fs::copy(fixture("transcripts/synthetic/flywheel.jsonl"), transcript).unwrap();
        // While another process has the queue open, SQLite removes no file beside it.
        let other = rusqlite::Connection::open(state.join("queue.db")).unwrap();
        other.query_row("SELECT count(*) FROM captures", [], |row| row.get::<_, i64>(0)).unwrap();
        give_all(sandbox.path(), NOBODY);
        let file = state.join(name);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
        let run = |arguments: &[&str]| {
            let mut command = sandbox.command();
            both(&command.args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap())
        };
        let hook = run(&["capture-session", "--transcript", "t.jsonl"]);
        assert!(hook.contains("is stored in the spool") && !hook.contains("busy"), "{name}: {hook}");
        for arguments in [&["status"][..], &["doctor", "--offline"]] {
            let printed = run(arguments).split_whitespace().collect::<Vec<_>>().join(" ");
            let fix = format!("fix: chmod u+rw '{}'", file.display());
            assert!(printed.contains("cannot be written") && printed.contains(&fix), "{name}: {printed}");
        }
        sandbox.wait_for_workers();
        drop(other);
        give_all(sandbox.path(), 0);
        sandbox.ok(["status"]);
        wait_until("the session is read", || sandbox.json(["status", "--json"])["queue"]["done"] == 1);
    }
}

#[test]
fn a_session_that_waits_in_the_spool_is_reported() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/nothing_chat.jsonl"));
    sandbox.wait_for_workers();
    // The queue takes no row, for a reason that no other check knows.
    let database = rusqlite::Connection::open(state(&sandbox).join("queue.db")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON captures BEGIN SELECT RAISE(ABORT, 'refused'); END";
    database.execute_batch(refuse).unwrap();
    drop(database);
    let hook = both(&end_session(&sandbox));
    assert!(hook.contains("is stored in the spool") && !hook.contains("busy"), "{hook}");
    let spooled = std::fs::read_dir(state(&sandbox).join("spool")).unwrap().next().unwrap().unwrap().path();
    let said = || both(&sandbox.run(["doctor", "--offline"]));
    assert!(!said().contains("not taken in"), "it has only just come");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(300);
    std::fs::File::options().write(true).open(&spooled).unwrap().set_modified(old).unwrap();
    assert!(said().contains("1 session in the spool for 5 min is not taken in"), "{}", said());
}

#[test]
fn a_lock_that_cannot_be_opened_is_reported_and_given_up() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let lock = state(&sandbox).join("drain.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    assert!(end_session(&sandbox).status.success());
    // The hook's worker gives up, and says why in its log.
    let is_free = || !queue::is_held(&state(&sandbox).join("wait.lock"));
    wait_until("no process holds the standby lock", is_free);
    wait_until("it is logged", || {
        let logs = std::fs::read_dir(state(&sandbox).join("logs")).unwrap().flatten();
        logs.into_iter().any(|log| std::fs::read_to_string(log.path()).unwrap().contains("cannot lock"))
    });
    let worker = sandbox.run(["drain"]);
    assert!(!worker.status.success() && both(&worker).contains("drain.lock"), "{}", both(&worker));
    let problem = sandbox.json(["status", "--json"])["drainer"]["problem"].clone();
    assert!(problem.as_str().unwrap().contains("drain.lock"), "{problem}");
    let doctor = both(&sandbox.run(["doctor"]));
    let fix = format!("fix: rmdir '{}'", lock.display());
    assert!(doctor.contains("no worker can run") && doctor.contains(&fix), "{doctor}");
    wait_until("no process holds the standby lock", is_free);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let waited = sandbox.run(["capture-session", "--wait", "--transcript", transcript.to_str().unwrap()]);
    assert_eq!(waited.status.code(), Some(4), "{}", both(&waited));
    let told = both(&waited);
    assert!(told.contains("the session is stored") && told.contains("no worker can run"), "{told}");
    assert!(told.contains(&format!("rmdir '{}'", lock.display())), "{told}");
    wait_until("no process holds the standby lock", is_free);
    std::fs::remove_dir(&lock).unwrap();
    sandbox.ok(["drain"]);
    wait_until("the session is read", || sandbox.json(["status", "--json"])["queue"]["queued"] == 0);
}

#[test]
fn what_is_checked_out_does_not_decide_what_is_served_and_queued() {
    let sandbox = Sandbox::with_brain();
    let unit =
        "---\ntype: pattern\ntitle: Bound every queue\n---\n\nA queue without a bound fills the memory.\n";
    std::fs::create_dir_all(sandbox.brain().join("domains/queues/patterns")).unwrap();
    std::fs::write(sandbox.brain().join("domains/queues/patterns/bound-every-queue.md"), unit).unwrap();
    sandbox.git(&["add", "-A"]);
    sandbox.git(&["commit", "-qm", "A unit"]);
    sandbox.git(&["checkout", "-q", "--orphan", "elsewhere"]);
    sandbox.git(&["rm", "-rqf", "."]);
    assert!(!sandbox.brain().join("brain.yaml").exists());
    assert!(sandbox.ok(["ask", "what fills the memory?"]).contains("Bound every queue"));
    assert!(both(&end_session(&sandbox)).contains("queued"), "a hook queues");
    wait_until("it is done", || sandbox.json(["status", "--json"])["queue"]["done"] == 1);
    // It is a brain already, so that no second one begins on this branch.
    let printed = sandbox.ok(["init", "--path", sandbox.brain().to_str().unwrap()]);
    assert!(printed.contains("already a brain; nothing was changed"), "{printed}");
    assert!(!sandbox.brain().join("brain.yaml").exists());
    assert!(
        crate::support::try_git(&sandbox.brain(), &["rev-parse", "--verify", "HEAD"]).status.code()
            != Some(0)
    );
}

#[test]
fn an_export_goes_through_links_and_keeps_modes() {
    let sandbox = Sandbox::with_brain();
    let path = |name: &str| sandbox.path().join(name);
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().mode() & 0o777;
    std::fs::create_dir(path("real")).unwrap();
    std::fs::write(path("real/file"), "old").unwrap();
    std::fs::set_permissions(path("real/file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("real/file", path("link")).unwrap();
    std::os::unix::fs::symlink("link", path("link-to-link")).unwrap();
    std::os::unix::fs::symlink("real/new", path("dangling")).unwrap();
    std::fs::write(path("named"), "old and longer than what is written").unwrap();
    std::fs::hard_link(path("named"), path("other-name")).unwrap();
    std::fs::create_dir_all(path(".claude/projects/-work")).unwrap();
    std::fs::copy(
        fixture("transcripts/synthetic/flywheel.jsonl"),
        path(".claude/projects/-work/ad5139ef-93b1-4a2e-8a04-5b1f0a3f6d10.jsonl"),
    )
    .unwrap();
    sandbox.ok(["sessions", "sync"]);
    for (name, target) in [
        ("link", "real/file"),
        ("link-to-link", "real/file"),
        ("dangling", "real/new"),
        ("named", "other-name"),
    ] {
        let output = path(name);
        sandbox.ok(["export", "--format", "json", "-o", output.to_str().unwrap()]);
        let text = std::fs::read_to_string(path(target)).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["units"].is_array(), "{name}");
        sandbox.ok(["sessions", "export", "-o", output.to_str().unwrap()]);
        assert!(!std::fs::read_to_string(path(target)).unwrap().contains("\"units\""), "{name}");
    }
    for link in ["link", "link-to-link", "dangling"] {
        assert!(path(link).is_symlink(), "{link}");
    }
    assert_eq!((mode("real/file"), std::fs::metadata(path("named")).unwrap().nlink()), (0o600, 2));
    std::os::unix::fs::symlink("loop", path("loop")).unwrap();
    assert!(!sandbox.run(["export", "--format", "json", "-o", "loop"]).status.success());
    assert!(path("loop").is_symlink());
}

#[test]
fn an_export_never_replaces_what_is_no_regular_file() {
    let sandbox = Sandbox::with_brain();
    let pipe = sandbox.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reader = std::process::Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    sandbox.ok(["export", "--format", "json", "-o", pipe.to_str().unwrap()]);
    let mut text = String::new();
    std::io::Read::read_to_string(reader.stdout.as_mut().unwrap(), &mut text).unwrap();
    reader.wait().unwrap();
    assert!(text.contains("\"units\""), "{text}");
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    sandbox.ok(["export", "--format", "json", "-o", "/dev/null"]);
    assert!(std::fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
}

/// The files and folders below a folder that others may read or write.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let metadata = entry.metadata().unwrap();
            if metadata.mode() & 0o077 != 0 {
                found.push(entry.path());
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn state_and_settings_are_private_whatever_the_umask() {
    let sandbox = Sandbox::new();
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let script = "umask 000; set -e
\"$1\" init --path \"$2\"; \"$1\" capture-session --wait --transcript \"$3\"; \"$1\" ask why";
    let mut shell = std::process::Command::new("sh");
    for (name, value) in sandbox.command().get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_nugget")]).arg(sandbox.brain()).arg(&transcript);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    for folder in ["state/nugget", "config/nugget"] {
        assert_eq!(open_to_others(&sandbox.path().join(folder)), Vec::<PathBuf>::new());
    }
    // A folder that was open is closed.
    let logs = state(&sandbox).join("logs");
    std::fs::set_permissions(&logs, std::fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.capture(&transcript);
    assert_eq!(std::fs::metadata(&logs).unwrap().mode() & 0o777, 0o700);
}
