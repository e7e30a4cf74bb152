//! A team's server through the real binary, and what a laptop does while it cannot be reached.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue::{Queue, Shown, ShownBy};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use team::private_postgres::PrivatePostgres;
use team_client::{Capture, Login, TeamClient};
use tokio_rustls::TlsAcceptor;

use crate::mcp::{Client, text};
use crate::support::embeddings_api::{EmbeddingsApi, KEY, Reply};
use crate::support::http::{read_request, serve_connections};
use crate::support::openai_api::{self, OpenAiApi};
use crate::support::{ChildGuard, Sandbox, fixture, git, unused_address};

/// Whether there is a PostgreSQL with pgvector. Where there must be one, it is a failure if there is none.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn has_postgres() -> bool {
    let found = PrivatePostgres::find().is_some_and(|programs| programs.have_vector());
    assert!(found || std::env::var_os("NUGGET_REQUIRE_POSTGRES").is_none(), "no PostgreSQL with pgvector");
    if !found {
        println!("skipped: no PostgreSQL with pgvector; name its programs in NUGGET_POSTGRES_BIN");
    }
    found
}

fn start_postgres() -> (tempfile::TempDir, PrivatePostgres) {
    // PostgreSQL that root runs belongs to another user, who must reach its folder.
    let folder = tempfile::Builder::new().prefix("nugget-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let programs = PrivatePostgres::find().unwrap();
    let postgres = PrivatePostgres::start(&programs, &folder.path().join("db")).unwrap();
    (folder, postgres)
}

fn stderr_of(sandbox: &Sandbox, code: i32, arguments: &[&str]) -> String {
    let output = sandbox.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    stderr
}

/// Logs in to a server that does not exist, as if it had existed once.
fn log_in(sandbox: &Sandbox) {
    log_in_to(sandbox, unused_address());
}

fn log_in_to(sandbox: &Sandbox, address: SocketAddr) {
    // Makes the state folder.
    sandbox.ok(["retry", "--all"]);
    let login = Login {
        url: format!("http://{address}"),
        brain: "payments".to_owned(),
        subject: "ada".to_owned(),
        scopes: Vec::new(),
        expires: None,
        token: "ngt_example".to_owned(),
    };
    login.write(&sandbox.state()).unwrap();
}

#[test]
fn the_loop_of_a_team_goes_on_when_a_server_is_killed() {
    if !has_postgres() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    if let Some(programs) = std::env::var_os("NUGGET_POSTGRES_BIN") {
        command.env("NUGGET_POSTGRES_BIN", programs);
    }
    let output = command.args(["server", "demo"]).output().unwrap();
    let (shown, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}{stderr}");
    for part in [
        "handed over as capture 1 of demo to http:",
        "has the branch nugget/session-",
        "reviewed: merged",
        "no capture waits",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        shown.lines().filter(|line| line.chars().count() > 80).all(|line| line.starts_with("  ")),
        "{shown}"
    );
}

#[test]
fn errors_of_a_servers_commands_say_what_to_do() {
    let sandbox = Sandbox::with_brain();
    let none = stderr_of(&sandbox, 2, &["server"]);
    assert!(none.contains("no database is given") && none.contains("nugget server demo"), "{none}");
    let url = stderr_of(&sandbox, 1, &["server", "migrate", "--database", "mysql://x:secret@h/d"]);
    assert!(url.contains("not valid") && !url.contains("secret"), "{url}");
    let open = ["server", "--database", "postgres://u@/d?host=/nowhere", "--listen", "0.0.0.0:1"];
    let unreachable = stderr_of(&sandbox, 1, &open);
    assert!(unreachable.starts_with("error: ") && unreachable.lines().count() <= 3, "{unreachable}");
    let token = stderr_of(&sandbox, 2, &["login", "https://brains.example.com"]);
    assert!(token.contains("there is no token"), "{token}");
    let output = sandbox.run_with_input(&["login", "http://brains.example.com"], b"ngt_x\n");
    let plain = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && plain.contains("https"), "{plain}");
    assert_eq!(sandbox.ok(["logout"]), "this brain belongs to no server\n");
}

#[test]
fn a_capture_for_an_unreachable_server_is_worked_on_here_after_a_logout() {
    let sandbox = Sandbox::with_brain();
    log_in(&sandbox);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    let mut capture = sandbox.command();
    capture.args(["capture-session", "--transcript"]).arg(transcript);
    // The worker that waits for the server still runs at the logout.
    capture.env("NUGGET_DRAINER_LINGER_SECONDS", "1");
    assert!(capture.output().unwrap().status.success());
    let waiting = || sandbox.json(["status", "--json"])["captures"][0].clone();
    crate::support::wait_until("it waits for the server", || {
        let capture = waiting();
        capture["stage"] == "upload"
            && capture["reason"].as_str().is_some_and(|reason| reason.contains("cannot be reached"))
    });
    assert!(sandbox.ok(["logout"]).starts_with("logged out"));
    crate::support::wait_until("it is worked on here", || waiting()["state"] == "done");
    assert!(waiting()["branch"].as_str().is_some_and(|branch| branch.starts_with("nugget/session-")));
}

#[test]
fn what_a_server_does_not_take_holds_up_no_other_capture() {
    let sandbox = Sandbox::with_brain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    log_in_to(&sandbox, listener.local_addr().unwrap());
    let transcripts = ["flywheel", "sql_pagination", "go_race", "rust_pool"]
        .map(|name| fixture(&format!("transcripts/synthetic/{name}.jsonl")));
    let sessions = transcripts.clone().map(|transcript| session_of(&transcript));
    let [late, large, _, proxied] = sessions.clone();
    let serve = move |stream: TcpStream| {
        let mut answers = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader)? {
            let body: serde_json::Value = serde_json::from_slice(&request.body)?;
            let (status, answer) = match body["session"].as_str() {
                Some(session) if session == late => ("408 Request Timeout", "{}".to_owned()),
                Some(session) if session == large => {
                    ("413 Content Too Large", r#"{"code":"too_large","detail":"too long"}"#.to_owned())
                }
                Some(session) if session == proxied => ("413 Content Too Large", "<html>".to_owned()),
                _ => (
                    "201 Created",
                    r#"{"id":7,"brain":"payments","state":"extraction","new":true}"#.to_owned(),
                ),
            };
            write!(answers, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
        Ok(())
    };
    serve_connections(listener, || false, serve);
    for transcript in &transcripts {
        sandbox.ok(["capture-session".as_ref(), "--transcript".as_ref(), transcript.as_os_str()]);
    }
    let capture_of = |session: &str| {
        let captures = sandbox.json(["status", "--json"])["captures"].clone();
        captures.as_array().unwrap().iter().find(|capture| capture["session_id"] == session).cloned().unwrap()
    };
    crate::support::wait_until("the last is handed over", || capture_of(&sessions[2])["state"] == "done");
    crate::support::wait_until("the large one is worked on here", || {
        capture_of(&sessions[1])["state"] == "done"
    });
    let here = capture_of(&sessions[1]);
    assert!(here["branch"].as_str().is_some_and(|branch| branch.starts_with("nugget/session-")), "{here}");
    for (session, status) in [(&sessions[0], "408"), (&sessions[3], "413")] {
        crate::support::wait_until("it was tried", || !capture_of(session)["reason"].is_null());
        let waiting = capture_of(session);
        assert_eq!((&waiting["stage"], &waiting["attempts"]), (&json!("upload"), &json!(0)), "{waiting}");
        assert!(waiting["reason"].as_str().is_some_and(|reason| reason.contains(status)), "{waiting}");
    }
}

/// A server of which a thread takes the bodies and answers each with `status` and `answer`.
fn answer_each(status: &'static str, answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, bodies) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let taken = Arc::clone(&bodies);
    let serve = move |stream: TcpStream| {
        let mut answers = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader)? {
            taken.lock().unwrap().push(String::from_utf8_lossy(&request.body).into_owned());
            write!(answers, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
        Ok(())
    };
    serve_connections(listener, || false, serve);
    (address, bodies)
}

#[test]
fn a_capture_that_a_proxy_refuses_waits() {
    let sandbox = Sandbox::with_brain();
    let (address, _) = answer_each("400 Bad Request", "<html>The plain HTTP request was sent to HTTPS port");
    log_in_to(&sandbox, address);
    let transcript = fixture("transcripts/synthetic/flywheel.jsonl");
    sandbox.ok(["capture-session".as_ref(), "--transcript".as_ref(), transcript.as_os_str()]);
    let capture = || sandbox.json(["status", "--json"])["captures"][0].clone();
    crate::support::wait_until("it was tried", || !capture()["reason"].is_null());
    let waiting = capture();
    assert_eq!((&waiting["stage"], &waiting["state"]), (&json!("upload"), &json!("retrying")), "{waiting}");
    assert!(waiting["reason"].as_str().is_some_and(|reason| reason.contains("400")), "{waiting}");
}

#[test]
fn what_nugget_told_a_session_stays_on_its_machine() {
    let sandbox = Sandbox::with_brain();
    crate::brain_questions::copy_brain(&sandbox);
    let unit =
        std::fs::read_to_string(fixture("brain/domains/cooking/concepts/carryover-cooking.md")).unwrap();
    let note = unit.replace("id: carryover-cooking", "id: note-of-an-agent\nstatus: unreviewed");
    std::fs::write(sandbox.brain().join("note-of-an-agent.md"), note).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "units"]);
    sandbox.ok(["index"]);
    let receipt = r#"{"id":7,"brain":"payments","state":"extraction","new":true}"#;
    let (address, bodies) = answer_each("201 Created", receipt);
    log_in_to(&sandbox, address);
    let told = |text: &str| json!([{ "type": "tool_result", "tool_use_id": "t1", "content": text }]);
    let searching = json!([{ "type": "tool_use", "id": "t1", "name": "mcp__plugin_nugget_nugget__search_sessions", "input": { "query": "x" } }]);
    let lines = [
        (
            "attachment",
            json!({ "attachment": { "type": "hook_additional_context", "hookEvent": "SessionStart", "content": [
            "Units that nugget keeps:\n- Carryover (carryover-cooking), note-of-an-agent\n\n<memories>\nThe vole invoices are late.\n"] } }),
        ),
        (
            "user",
            json!({ "message": { "role": "user", "content": "always lint /home/ada/secret-customer/shop/src/a.rs first" } }),
        ),
        ("assistant", json!({ "message": { "role": "assistant", "content": searching } })),
        ("user", json!({ "message": { "role": "user", "content": told("The heron was sold.") } })),
        (
            "user",
            json!({ "message": { "role": "user", "content": "<bash-input>nugget search otter</bash-input>" } }),
        ),
        (
            "user",
            json!({ "message": { "role": "user", "content": "<bash-stdout>The otter is ill.</bash-stdout>" } }),
        ),
    ];
    let lines = lines.into_iter().enumerate().map(|(number, (kind, mut line))| {
        let (uuid, cwd) = (format!("l{number}"), "/home/ada/secret-customer/shop");
        line["type"] = json!(kind);
        (line["uuid"], line["cwd"], line["sessionId"]) = (json!(uuid), json!(cwd), json!("5e55"));
        format!("{line}\n")
    });
    let transcript = sandbox.path().join("5e55.jsonl");
    std::fs::write(&transcript, lines.collect::<String>()).unwrap();
    let capture = sandbox.capture(&transcript);
    assert_eq!(capture["state"], "done", "{capture}");
    let bodies = bodies.lock().unwrap();
    let sent: serde_json::Value = serde_json::from_str(bodies.last().unwrap()).unwrap();
    for private in ["vole", "heron", "otter", "agent", "home/ada", "secret-customer"] {
        assert!(!bodies.concat().contains(private), "{private}: {sent}");
    }
    assert_eq!(sent["intake"]["recalled"], json!(["carryover-cooking"]), "{sent}");
    let said = &sent["intake"]["events"][0]["text"];
    assert_eq!(
        (said, &sent["intake"]["cwd"]),
        (&json!("always lint /projects/shop/src/a.rs first"), &json!("/projects/shop"))
    );
}

fn session_of(transcript: &Path) -> String {
    let text = std::fs::read_to_string(transcript).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.find_map(|line| Some(line["sessionId"].as_str()?.to_owned())).unwrap()
}

#[test]
fn a_question_is_answered_here_while_the_server_cannot_be_reached() {
    let sandbox = Sandbox::with_brain();
    sandbox.ok([
        "note",
        "add",
        "Staging database",
        "--content",
        "The staging database listens on port 6543.",
    ]);
    log_in(&sandbox);
    let mut client = Client::start_with(&sandbox, &[]);
    client.initialize();
    let params = json!({
        "name": "get_relevant_context",
        "arguments": { "task_description": "which port has the staging database?" },
    });
    for (number, why) in
        [(1, "cannot be reached: Connection refused (os error 111).\n"), (2, "did not answer a moment ago")]
    {
        let answer = client
            .ask(&json!({"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": params}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("6543") && text.contains(why), "{text}");
    }
}

#[test]
fn what_a_teams_server_shows_a_session_is_recorded_on_its_machine() {
    let sandbox = Sandbox::with_brain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    log_in_to(&sandbox, listener.local_addr().unwrap());
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {
        "content": [{ "type": "text", "text": "From the team's server." }],
        "_meta": { "nugget/shown": [{ "id": "pool-size", "tokens": 80 }, { "id": "retry-budget", "tokens": 40 }] },
    }});
    let serve = move |stream: TcpStream| {
        let (mut answers, answer) = (stream.try_clone()?, answer.to_string());
        let mut reader = BufReader::new(stream);
        while read_request(&mut reader)?.is_some() {
            write!(answers, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
        Ok(())
    };
    serve_connections(listener, || false, serve);
    let mut client = Client::start_with(&sandbox, &[]);
    client.initialize();
    let meta = json!({ "claudecode/toolUseId": "toolu_9" });
    let answer = client.call(1, json!({ "task_description": "the pool's size" }), Some(meta));
    assert_eq!(text(&answer), "From the team's server.");
    assert!(client.close().success());
    let shown = Queue::open(&sandbox.state().join("queue.db")).unwrap().showings(0, 10).unwrap();
    let [(_, showing)] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((showing.by, showing.tool_use.as_deref()), (ShownBy::Tool, Some("toolu_9")));
    let units = [Shown::unit("pool-size", 0, 80, false), Shown::unit("retry-budget", 1, 40, false)];
    assert_eq!(showing.items, units);
}

#[test]
fn only_a_clone_is_logged_in_and_doctor_says_what_the_token_lacks() {
    let sandbox = Sandbox::with_brain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // What the server answers from; first a commit that this clone does not have.
    let served = Arc::new(Mutex::new("1".repeat(40)));
    let answered = served.clone();
    let serve = move |stream: TcpStream| {
        let repository = json!({
            "brain": "payments", "remote": "https://git.internal/acme/brain", "commit": *answered.lock().unwrap(),
        });
        let answer = json!({
            "subject": "ada", "brains": ["payments"], "scopes": ["read"], "expires": null,
            "repositories": [repository],
        });
        let answer = answer.to_string();
        let mut answers = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        while read_request(&mut reader)?.is_some() {
            write!(answers, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
        Ok(())
    };
    serve_connections(listener, || false, serve);
    let log_in = || sandbox.run_with_input(&["login", &url], b"ngt_example\n");
    let refused = log_in();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && stderr.contains("no clone of a team's brain"), "{stderr}");
    assert_eq!(sandbox.ok(["logout"]), "this brain belongs to no server\n");
    sandbox.git(&["remote", "add", "origin", "https://example.com/acme/brain.git"]);
    let refused = log_in();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the team's brain payments is https://git.internal/acme/brain"), "{stderr}");
    assert_eq!(sandbox.ok(["logout"]), "this brain belongs to no server\n");
    // The same repository by its address, however that is written.
    sandbox.git(&["remote", "set-url", "origin", "git@git.internal:acme/brain.git"]);
    assert!(log_in().status.success());
    // The same repository by another address.
    sandbox.git(&["remote", "set-url", "origin", "https://example.com/acme/brain.git"]);
    *served.lock().unwrap() = sandbox.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let done = log_in();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(told.contains("without the scope capture, captures wait here"), "{told}");
    assert!(!told.contains("handed over to it"), "{told}");
    assert!(told.contains("remote set-url origin https://git.internal/acme/brain\n"), "{told}");
    let doctor = sandbox.run(["doctor", "--json"]);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check = |name: &str| {
        let checks = doctor["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    assert_eq!(check("server")["level"], "failure", "{}", check("server"));
    assert!(check("server")["message"].as_str().unwrap().contains("lacks the scope capture"));
    let status = sandbox.ok(["status"]);
    assert!(status.contains(&format!("server    {url} (brain payments)")), "{status}");
    assert!(!check("model")["message"].as_str().unwrap().contains("nothing leaves"), "{}", check("model"));
}

/// Starts a server that syncs every second, and returns its address.
fn start_server(sandbox: &Sandbox) -> (ChildGuard, String) {
    start_server_with(sandbox, &[])
}

fn start_server_with(sandbox: &Sandbox, arguments: &[&str]) -> (ChildGuard, String) {
    let mut command = sandbox.command();
    command.args(["server", "--listen", "127.0.0.1:0", "--sync", "1"]).args(arguments);
    let mut server = ChildGuard(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let listening = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
    // Read on, so that the server can write.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (server, format!("http://{}", listening.unwrap()))
}

/// A capture of a session in which one thing was said, for a brain.
fn capture_of(brain: &str, session: &str, said: &str) -> Capture {
    let line = format!("{session}-1");
    let intake = json!({
        "session_id": session, "events": [{ "line": line, "what": "human", "text": said }],
    });
    let mut capture =
        Capture::new(session, jiff::Timestamp::now(), vec![line], intake.to_string().as_bytes());
    capture.brain = Some(brain.to_owned());
    capture
}

/// A database with two brains of one repository each, and a token that opens both.
struct TwoBrains {
    sandbox: Sandbox,
    token: String,
    postgres: PrivatePostgres,
    _folder: tempfile::TempDir,
}

impl TwoBrains {
    fn new(first: &str, second: &str) -> Self {
        let (folder, postgres) = start_postgres();
        let mut sandbox = Sandbox::with_brain();
        sandbox.variables.push(("NUGGET_DATABASE".to_owned(), postgres.url("postgres")));
        sandbox.ok(["server", "migrate"]);
        for name in [first, second] {
            let remote = sandbox.path().join(format!("{name}.git"));
            git(&sandbox.brain(), &["clone", "--quiet", "--bare", ".", remote.to_str().unwrap()]);
            sandbox.ok(["server", "brain", "add", name, remote.to_str().unwrap()]);
        }
        let token = sandbox.ok(["server", "token", "create", "ada", first, second]).trim().to_owned();
        Self { sandbox, token, postgres, _folder: folder }
    }

    /// The commits from which the brains are answered, by name.
    fn commit_of(&self, brain: &str) -> Option<String> {
        let brains = self.sandbox.json(["server", "brain", "list", "--json"]);
        let row = brains.as_array().unwrap().iter().find(|row| row["name"] == brain).unwrap();
        row["commit"].as_str().map(str::to_owned)
    }

    fn count(&self, sql: &str) -> i64 {
        self.database().query_one(sql, &[]).unwrap().get(0)
    }

    fn database(&self) -> postgres::Client {
        postgres::Client::connect(&self.postgres.url("postgres"), postgres::NoTls).unwrap()
    }

    fn hand_over(&self, address: &str, captures: impl IntoIterator<Item = Capture>) {
        let client = TeamClient::new(address, &self.token).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for capture in captures {
            runtime.block_on(client.hand_over(&capture)).unwrap();
        }
    }
}

#[test]
fn a_git_host_that_does_not_answer_holds_up_only_its_own_brain() {
    if !has_postgres() {
        return;
    }
    let team = TwoBrains::new("silent", "payments");
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("http://{}/brain.git", host.local_addr().unwrap());
    let sql = "UPDATE nugget.brains SET remote = $1 WHERE slug = 'silent'";
    assert_eq!(team.database().execute(sql, &[&remote]).unwrap(), 1);
    let (server, address) = start_server_with(&team.sandbox, &["--brains", "1"]);
    let _asked = host.accept().unwrap();
    let mut edit = capture_of("payments", "s2", "The staging database listens on port 6543.");
    edit.origin = Some("edit".to_owned());
    team.hand_over(&address, [capture_of("silent", "s1", "Releases go out on Thursdays."), edit]);
    let ended = "SELECT count(*) FROM nugget.captures WHERE session_id = 's2' AND outcome IS NOT NULL AND origin = 'hook'";
    crate::support::wait_until("the other brain's capture has ended", || team.count(ended) == 1);
    crate::support::wait_until("the other brain is published", || team.commit_of("payments").is_some());

    // The clone does not keep the server from its end, nor another one from the sync.
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let server = RefCell::new(server);
    let ended = || server.borrow_mut().0.try_wait().unwrap();
    crate::support::wait_until("the server has ended", || ended().is_some());
    assert!(ended().unwrap().success());
    assert_eq!(team.count("SELECT count(*) FROM nugget.syncs WHERE server IS NOT NULL"), 0);
    assert_eq!(team.count("SELECT count(*) FROM nugget.servers"), 0);
}

#[test]
fn a_backlog_of_one_brain_holds_up_neither_another_brain_nor_what_is_merged() {
    if !has_postgres() {
        return;
    }
    // A model that takes its time over one brain, so that the backlog lasts.
    let api = OpenAiApi::start(|request| {
        if request.user().contains("heron") {
            std::thread::sleep(Duration::from_millis(500));
        }
        openai_api::Reply::json(&json!({ "units": [] }))
    });
    let mut team = TwoBrains::new("busy", "quiet");
    for (name, value) in [("API", "openai"), ("URL", &*format!("{}/v1/", api.url)), ("NAME", "qwen3:8b")] {
        team.sandbox.variables.push((format!("NUGGET_MODEL_{name}"), value.to_owned()));
    }
    let (_server, address) = start_server_with(&team.sandbox, &["--brains", "1", "--lease", "3"]);
    for brain in ["busy", "quiet"] {
        crate::support::wait_until("it is published", || team.commit_of(brain).is_some());
    }
    let session =
        |number| capture_of("busy", &format!("busy{number}"), "The heron flies at noon, bound the pool.");
    team.hand_over(&address, (0..100).map(session));
    crate::support::wait_until("the model is asked", || !api.requests().is_empty());
    team.hand_over(
        &address,
        [capture_of("quiet", "quiet", "Releases go out on Thursdays, never on Fridays.")],
    );
    team.sandbox.ok(["note", "add", "Release day", "--content", "Releases go out on Thursdays."]);
    let (quiet, brain) = (team.sandbox.path().join("quiet.git"), team.sandbox.brain());
    git(&brain, &["push", "--quiet", quiet.to_str().unwrap(), "HEAD"]);
    let merged = git(&brain, &["rev-parse", "HEAD"]);
    crate::support::wait_until("the merge is published", || {
        team.commit_of("quiet").as_deref() == Some(merged.trim())
    });
    let ended = "SELECT count(*) FROM nugget.captures WHERE brain = 2 AND outcome IS NOT NULL";
    crate::support::wait_until("the other brain's capture has ended", || team.count(ended) == 1);
    let waiting = team.count("SELECT count(*) FROM nugget.jobs WHERE brain = 1");
    assert!(waiting > 0, "the backlog had ended before");
}

#[test]
fn a_server_whose_model_has_other_dimensions_answers_by_meaning() {
    if !has_postgres() {
        return;
    }
    let (_folder, postgres) = start_postgres();
    let api = EmbeddingsApi::start(|_, _| Reply::Vectors);
    let mut sandbox = Sandbox::with_brain();
    sandbox.ok(["note", "add", "Staging database", "--content", "It listens on port 6543."]);
    let remote = sandbox.path().join("brain.git");
    git(&sandbox.brain(), &["clone", "--quiet", "--bare", ".", remote.to_str().unwrap()]);
    for (name, value) in [
        ("NUGGET_DATABASE", postgres.url("postgres")),
        ("NUGGET_EMBED_PROVIDER", "openai".to_owned()),
        ("NUGGET_EMBED_URL", api.url.clone()),
        ("OPENAI_API_KEY", KEY.to_owned()),
    ] {
        sandbox.variables.push((name.to_owned(), value));
    }
    let too_early = stderr_of(&sandbox, 1, &["server", "brain", "list"]);
    assert!(too_early.contains("`nugget server migrate` creates the tables"), "{too_early}");
    sandbox.ok(["server", "migrate"]);
    sandbox.ok(["server", "brain", "add", "payments", remote.to_str().unwrap()]);
    let token = sandbox.ok(["server", "token", "create", "ada", "payments"]);
    let (server, address) = start_server(&sandbox);
    crate::support::wait_until("the brain is published", || {
        sandbox.json(["server", "brain", "list", "--json"])[0]["commit"].is_string()
    });
    let client = TeamClient::new(&address, token.trim()).unwrap();
    let arguments = json!({ "task_description": "which port has the staging database?" });
    let asked = client.ask("payments", arguments.as_object().unwrap(), Duration::from_secs(30));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(asked).unwrap();
    assert!(answer.text.contains("6543"), "{answer:?}");
    assert!(answer.text.contains("matches the meaning"), "{answer:?}");
    assert_eq!(answer.shown.len(), 1);
    let count = |sql: &str| {
        let mut database = postgres::Client::connect(&postgres.url("postgres"), postgres::NoTls).unwrap();
        database.query_one(sql, &[]).unwrap().get::<_, i64>(0)
    };
    let twice = stderr_of(&sandbox, 1, &["server", "brain", "add", "again", remote.to_str().unwrap()]);
    assert!(twice.contains("is the repository of the brain payments"), "{twice}");
    let taken = stderr_of(&sandbox, 1, &["server", "--listen", address.strip_prefix("http://").unwrap()]);
    assert!(taken.contains("cannot be listened on"), "{taken}");
    let servers = sandbox.json(["server", "status", "--json"])["servers"].as_array().unwrap().len();
    assert_eq!(servers, 1, "a server that could not listen counts");
    assert_eq!(count("SELECT min(vector_dims(embedding))::bigint FROM nugget.other_vectors"), 1536);

    // Another model is configured: what is published is made with it at once, not after the next merge.
    drop(server);
    sandbox.variables.retain(|(name, _)| !name.starts_with("NUGGET_EMBED"));
    let (_server, address) = start_server(&sandbox);
    crate::support::wait_until("the brain is published with the other model", || {
        count("SELECT count(*) FROM nugget.vectors") > 0
            && count("SELECT count(*) FROM nugget.other_vectors") == 0
    });
    let client = TeamClient::new(&address, token.trim()).unwrap();
    let asked = client.ask("payments", arguments.as_object().unwrap(), Duration::from_secs(30));
    let answer = runtime.block_on(asked).unwrap();
    assert!(answer.text.contains("matches the meaning"), "{answer:?}");

    // The brain moves with one more note, and the server follows.
    let moved = sandbox.path().join("moved.git");
    sandbox.ok(["note", "add", "Release day", "--content", "Releases go out on Thursdays."]);
    git(&sandbox.brain(), &["clone", "--quiet", "--bare", ".", moved.to_str().unwrap()]);
    let told = sandbox.ok(["server", "brain", "move", "payments", moved.to_str().unwrap()]);
    assert!(told.starts_with(&format!("payments is at {} from now on", moved.display())), "{told}");
    crate::support::wait_until("the moved brain is published", || {
        let arguments = json!({ "task_description": "on which day do releases go out?" });
        let asked = client.ask("payments", arguments.as_object().unwrap(), Duration::from_secs(30));
        runtime.block_on(asked).is_ok_and(|answer| answer.text.contains("Thursdays"))
    });
    assert!(
        sandbox.ok(["server", "brain", "rm", "payments"]).starts_with("removed payments; its repository ")
    );
    let asked = client.ask("payments", arguments.as_object().unwrap(), Duration::from_secs(30));
    let gone = runtime.block_on(asked).unwrap_err().to_string();
    assert!(gone.contains("there is no such brain for this token"), "{gone}");
    assert_eq!(count("SELECT count(*) FROM nugget.units"), 0);
    assert_eq!(sandbox.run(["server", "brain", "rm", "payments"]).status.code(), Some(3));
}

#[test]
fn what_a_servers_commands_take_away_they_say() {
    if !has_postgres() {
        return;
    }
    let (_folder, postgres) = start_postgres();
    let mut sandbox = Sandbox::with_brain();
    sandbox.variables.push(("NUGGET_DATABASE".to_owned(), postgres.url("postgres")));
    assert_eq!(sandbox.ok(["server", "migrate"]), "created the tables\n");
    assert_eq!(sandbox.ok(["server", "migrate"]), "the tables are up to date\n");
    let remote = sandbox.path().join("brain.git");
    git(&sandbox.brain(), &["clone", "--quiet", "--bare", ".", remote.to_str().unwrap()]);
    let add = || sandbox.ok(["server", "brain", "add", "payments", remote.to_str().unwrap()]);
    assert!(add().contains("no token opens it yet"));
    for who in ["ada", "ada", "ci", "ci"] {
        sandbox.ok(["server", "token", "create", who, "payments"]);
    }

    // A person leaves; what is wrong in a list does not keep the rest of it from being revoked.
    assert_eq!(sandbox.ok(["server", "token", "revoke", "--of", "ada"]), "revoked tokens 1, 2\n");
    let partly = sandbox.run(["server", "token", "revoke", "3", "99"]);
    assert_eq!(partly.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&partly.stdout), "revoked token 3\n");
    assert!(String::from_utf8_lossy(&partly.stderr).contains("no token 99"));
    // A subject is what the list shows of it.
    for who in ["eve ", "eve", "e\u{200b}ve"] {
        sandbox.ok(["server", "token", "create", who, "payments"]);
    }
    assert_eq!(sandbox.json(["server", "token", "list", "--json"])[4]["subject"], "eve");
    assert_eq!(sandbox.ok(["server", "token", "revoke", "--of", "eve "]), "revoked tokens 5, 6, 7\n");

    sandbox.ok(["server", "token", "create", "bob", "payments"]);
    let again = sandbox.run(["server", "token", "revoke", "3", "8", "8", "--json"]);
    assert_eq!(again.status.code(), Some(3));
    let told: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(told, json!({ "revoked": [8], "missing": [3] }));
    for same in [format!("{}/", remote.display()), format!("{}/./brain.git", sandbox.path().display())] {
        let twice = stderr_of(&sandbox, 1, &["server", "brain", "add", "again", &same]);
        assert!(twice.contains("is the repository of the brain payments"), "{same}: {twice}");
    }
    let listed = sandbox.ok(["server", "token", "list"]);
    assert!(listed.lines().next().unwrap().contains("MADE") && listed.contains("never"), "{listed}");
    assert!(listed.lines().all(|line| line.trim_end().len() <= 80), "{listed}");

    // Another brain's repository is not taken for this one's.
    let server = start_server(&sandbox);
    crate::support::wait_until("the brain is published", || {
        sandbox.json(["server", "brain", "list", "--json"])[0]["commit"].is_string()
    });
    drop(server);
    let other = Sandbox::with_brain();
    let foreign = other.path().join("brain.git");
    git(&other.brain(), &["commit", "--quiet", "--allow-empty", "--amend", "--message", "Another beginning"]);
    git(&other.brain(), &["clone", "--quiet", "--bare", ".", foreign.to_str().unwrap()]);
    let foreign = foreign.to_str().unwrap();
    let refused = stderr_of(&sandbox, 1, &["server", "brain", "move", "payments", foreign]);
    assert!(refused.contains("lacks the commit") && refused.contains("--force"), "{refused}");
    sandbox.ok(["server", "brain", "move", "payments", foreign, "--force"]);

    // The server was killed: it is not one that is there.
    let mut database = postgres::Client::connect(&postgres.url("postgres"), postgres::NoTls).unwrap();
    database.execute("UPDATE nugget.servers SET seen = now() - interval '2 hours'", &[]).unwrap();
    let status = sandbox.ok(["server", "status"]);
    assert!(status.starts_with("0 servers, 1 brain\n") && status.contains("silent for 2 h"), "{status}");

    // What failed is named with its reason, and what is in review keeps a brain from being removed.
    database
        .batch_execute(
            "SET row_security = off; SET search_path = nugget;
             INSERT INTO captures (brain, key, session_id, subject, origin, outcome, stage, reason)
                 VALUES (1, decode(repeat('01', 32), 'hex'), 's-failed', 'ada', 'hook', 'dead', 'delivery', 'no way');
             INSERT INTO captures (brain, key, session_id, subject, origin, outcome, stage, branch, commit_id, pushed)
                 VALUES (1, decode(repeat('02', 32), 'hex'), 's-open', 'ada', 'hook', 'done', 'delivery', 'nugget/s', 'c', 'c')",
        )
        .unwrap();
    let status = sandbox.ok(["server", "status"]);
    assert!(status.contains("capture 1 failed, session sfailed, delivery: no way"), "{status}");
    assert!(stderr_of(&sandbox, 3, &["server", "retry", "9"]).contains("there is no capture 9"));
    assert_eq!(sandbox.ok(["server", "retry", "2"]), "capture 2 has not failed\n");
    assert_eq!(sandbox.ok(["server", "retry", "1"]), "queued 1 capture again\n");
    let open = stderr_of(&sandbox, 1, &["server", "brain", "rm", "payments"]);
    assert!(open.contains("1 capture that wait") && open.contains("1 branch in review"), "{open}");
    let removed = sandbox.ok(["server", "brain", "rm", "payments", "--force"]);
    let acts = sandbox.json(["server", "audit", "--limit", "2", "--json"]);
    assert_eq!((acts[0]["what"].as_str(), acts[0]["brain"].as_str()), (Some("brain.delete"), Some("no. 1")));
    assert_eq!(acts.as_array().unwrap().len(), 2);
    let acts = sandbox.ok(["server", "audit"]);
    assert!(acts.contains("token.revoke") && acts.contains("brain.set_remote"), "{acts}");
    assert!(removed.contains("do not open it any more") && removed.contains("4 (ci)"), "{removed}");
    add();
    let tokens = sandbox.json(["server", "token", "list", "--json"]);
    assert_eq!(tokens[3]["state"], "no brain", "{tokens}");
}

#[test]
fn only_what_belongs_to_a_server_is_handed_over_again() {
    let sandbox = Sandbox::with_brain();
    let refused = stderr_of(&sandbox, 1, &["retry", "--handed-over"]);
    assert!(refused.contains("belongs to no server") && refused.contains("nugget login"), "{refused}");
    log_in(&sandbox);
    assert_eq!(sandbox.ok(["retry", "--handed-over"]), "nothing was handed over within 7 days\n");
}

#[test]
fn a_token_that_ends_soon_is_named_before_it_does() {
    let sandbox = Sandbox::with_brain();
    log_in(&sandbox);
    let mut login = Login::read(&sandbox.state()).unwrap().unwrap();
    assert!(!sandbox.ok(["status"]).contains("the token"));
    login.expires = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(13 * 24));
    login.write(&sandbox.state()).unwrap();
    let status = sandbox.ok(["status"]);
    assert!(status.contains("the token for the team's server ends on "), "{status}");
}

#[test]
fn a_damaged_login_is_named() {
    let sandbox = Sandbox::with_brain();
    log_in(&sandbox);
    std::fs::write(sandbox.state().join("server.json"), "{").unwrap();
    let status = sandbox.ok(["status"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        status.contains("server.json is not a login: run `nugget login` again; fix: nugget login URL"),
        "{status}"
    );
    let output = sandbox.run(["doctor", "--offline"]);
    let doctor = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = doctor.lines().find(|line| line.contains("server.json")).unwrap_or(&doctor);
    assert!(line.starts_with("failure  server "), "{doctor}");
    sandbox.ok(["logout"]);
    assert!(!sandbox.ok(["status"]).contains("server.json"));
}

#[test]
fn a_server_sends_traces_and_metrics_to_the_environments_collector() {
    if !has_postgres() {
        return;
    }
    let (_folder, postgres) = start_postgres();
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, received) = (collector.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let keep = received.clone();
    let take = move |stream: TcpStream| {
        let mut answers = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader)? {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            keep.lock().unwrap().push(format!("{} {text}", request.target));
            answers.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    };
    serve_connections(collector, || false, take);

    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command.args(["server", "--listen", "127.0.0.1:0", "--database", &postgres.url("postgres")]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let listening = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
    // Read on, so that the server can write.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let mut stream = TcpStream::connect(listening.unwrap()).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success(), "{}", rest.join().unwrap());
    let received = received.lock().unwrap().join("\n");
    for sent in
        ["/v1/traces", "/v1/metrics", "nugget_http_requests_total", "/healthz", "nugget_queue_waiting"]
    {
        assert!(received.contains(sent), "{sent} is missing: {received}");
    }
}

/// What stands before a database that is asked over TLS: takes the request for TLS (protocol 3.0, `SSLRequest`) and passes
/// what is inside on to a socket. Returns its port.
fn serve_tls(certificate: &rcgen::Certificate, key: &rcgen::KeyPair, socket: PathBuf) -> u16 {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let take = move |mut stream: TcpStream| {
        let mut request = SSL_REQUEST;
        stream.read_exact(&mut request)?;
        if request != SSL_REQUEST {
            return Ok(());
        }
        stream.write_all(b"S")?;
        stream.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let mut stream = acceptor.accept(stream).await?;
            let mut database = tokio::net::UnixStream::connect(&socket).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut database).await.map(drop)
        })
    };
    serve_connections(listener, || false, take);
    port
}

#[test]
fn a_database_over_tls_needs_a_known_authoritys_certificate_for_its_name() {
    if !has_postgres() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("nugget-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let programs = PrivatePostgres::find().unwrap();
    let _postgres = PrivatePostgres::start(&programs, &folder.path().join("db")).unwrap();

    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let known = folder.path().join("authority.pem");
    std::fs::write(&known, authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let authority = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &authority).unwrap();
    let port = serve_tls(&certificate, &key, folder.path().join("db/.s.PGSQL.5432"));

    let sandbox = Sandbox::new();
    let migrate = |host: &str, authorities: Option<&Path>| {
        let mut command = sandbox.command();
        let url = format!("postgres://postgres@{host}:{port}/postgres?sslmode=verify-full");
        command.args(["server", "migrate", "--database", &url]);
        if let Some(authorities) = authorities {
            command.env("SSL_CERT_FILE", authorities);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (host, authorities) in [("localhost", None), ("127.0.0.1", Some(&*known))] {
        let (code, stderr) = migrate(host, authorities);
        assert!(code == Some(1) && stderr.contains("certificate"), "{host}: {code:?} {stderr}");
    }
    let (code, stderr) = migrate("localhost", Some(&known));
    assert_eq!(code, Some(0), "{stderr}");
}
