//! What sessions are shown is recorded, judged and learned from, and an order that was not learned changes nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use actors::{Roles, Service, Setup};
use archive::Archive;
use fastrand::Rng;
use feedback::{Candidate, Example, Learner as _, Listwise, Outcome, Shown, Steps, Weights, receipts};
use jiff::Timestamp;
use queue::{Queue, ShownBy};
use serde_json::{Value, json};

use crate::brain_questions::copy_brain;
use crate::mcp::{Client, text};
use crate::support::learning_world::{Feedback, LearningWorld, MODEL, settings_in};
use crate::support::{Sandbox, wait_until};

const QUESTION: &str = "How do I renew the certificate?";

fn world() -> (tempfile::TempDir, LearningWorld) {
    let folder = tempfile::tempdir().unwrap();
    let world = LearningWorld::new(folder.path().to_owned());
    (folder, world)
}

#[test]
fn what_sessions_used_is_judged_once_and_again_when_they_grow() {
    let (_folder, mut world) = world();
    let mut random = Rng::with_seed(3);
    for number in 0..4 {
        let id = format!("session-{number}");
        world.add_session("shop", &id, 2, Feedback::Honest, &mut random);
        world.guard(&id, number % 2 == 0);
    }
    assert_eq!(world.queue().showings(0, 100).unwrap().len(), 12);
    world.sync();
    let done = world.round();
    assert_eq!((done.shown, done.judged, done.learned), (44, 4, 1));
    assert_eq!(world.judged(), world.expected());
    assert!(world.judged().iter().any(|(_, _, outcome)| outcome == "used"));
    assert_eq!(world.queue().showings(0, 100).unwrap(), []);
    assert_eq!(world.round(), Default::default(), "nothing is done twice");

    world.use_late("session-1");
    let archive = world.sync();
    let before = archive.learned("brain-made", &world.key("shop")).unwrap().unwrap();
    let done = world.round();
    assert_eq!((done.shown, done.judged), (0, 1));
    assert_eq!(world.judged(), world.expected());
    let after = archive.learned("brain-made", &world.key("shop")).unwrap().unwrap();
    assert_eq!(after.version, before.version + 1);
    assert!(after.applied_through > before.applied_through);
}

#[test]
fn what_a_session_was_shown_waits_until_it_is_archived() {
    let (_folder, mut world) = world();
    world.add_session("shop", "early", 1, Feedback::Honest, &mut Rng::with_seed(1));
    world.sync();
    world.add_session("shop", "late", 1, Feedback::Honest, &mut Rng::with_seed(2));
    assert_eq!(world.round().shown, 5);
    assert_eq!(world.queue().showings(0, 10).unwrap().len(), 1);
    world.sync();
    assert_eq!(world.round().shown, 5);
    assert_eq!(world.judged(), world.expected());
}

fn learned(world: &LearningWorld, project: &str) -> archive::Learned {
    let archive = Archive::open_existing(&world.settings.archive).unwrap().unwrap();
    archive.learned("brain-made", &world.key(project)).unwrap().unwrap()
}

fn add_sessions(world: &mut LearningWorld, project: &str, feedback: Feedback, seed: u64) {
    let mut random = Rng::with_seed(seed);
    for number in 0..40 {
        world.add_session(project, &format!("{project}-{number}"), 5, feedback, &mut random);
    }
}

#[test]
fn an_order_goes_live_by_honest_feedback_of_one_project_alone() {
    let (_one, mut alone) = world();
    add_sessions(&mut alone, "shop", Feedback::Honest, 7);
    alone.sync();
    alone.round();
    let expected = learned(&alone, "shop");
    println!("{}", expected.report);
    assert_eq!(expected.learner, "listwise");
    Weights::from_bytes(&expected.body, MODEL, 8).unwrap();

    let (_two, mut both) = world();
    add_sessions(&mut both, "shop", Feedback::Honest, 7);
    add_sessions(&mut both, "bank", Feedback::Flipped, 8);
    both.sync();
    both.round();
    let (shop, bank) = (learned(&both, "shop"), learned(&both, "bank"));
    assert!(shop.body == expected.body, "the other project's feedback has changed the weights");
    assert_eq!(shop.report, expected.report);
    println!("{}", bank.report);
    assert_eq!((bank.learner.as_str(), bank.body.len()), ("", 0), "opposite feedback keeps the base order");
    let archive = Archive::open_existing(&both.settings.archive).unwrap().unwrap();
    let live = |project: &str| archive.live_version("brain-made", &both.key(project)).unwrap();
    assert_eq!((live("shop"), live("bank")), (Some(1), None));
}

#[test]
fn a_forgotten_session_is_unlearned() {
    let (_folder, mut world) = world();
    add_sessions(&mut world, "shop", Feedback::Honest, 7);
    let archive = world.sync();
    world.round();
    let before = learned(&world, "shop");
    archive.forget("shop-3", Duration::from_secs(5)).unwrap();
    assert_eq!(world.round().learned, 1);
    let after = learned(&world, "shop");
    assert_eq!((before.questions, after.questions), (200, 195));
    assert!(after.body != before.body && !after.body.is_empty());
    assert!(world.judged().iter().all(|(session, ..)| session != "shop-3"));
}

/// A sandbox with an indexed brain of twenty units and a small archive.
fn machine() -> Sandbox {
    let mut sandbox = Sandbox::with_brain();
    sandbox.variables.push(("NUGGET_SWEEP_ENABLED".to_owned(), "off".to_owned()));
    copy_brain(&sandbox);
    for (name, text) in [
        (
            "cert-edge",
            "# Renew the certificate of the edge\n\nRenew the certificate by `edgectl renew`, then reload the listeners.",
        ),
        (
            "cert-proxy",
            "# Renew the certificate of the database proxy\n\nRenew the certificate of the proxy, and restart its replicas one by one.",
        ),
        (
            "cert-mail",
            "# Renew the certificate of the mail server\n\nTo renew the certificate, stop the greylisting daemon and start it again.",
        ),
    ] {
        fs::write(sandbox.brain().join(format!("{name}.md")), text).unwrap();
    }
    sandbox.ok(["index"]);
    sandbox
}

/// The brain's state folder, with or without a queue.
fn state(sandbox: &Sandbox) -> PathBuf {
    let folders = fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
    folders.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
}

fn queue(sandbox: &Sandbox) -> Queue {
    Queue::open(&state(sandbox).join("queue.db")).unwrap()
}

fn call(sandbox: &Sandbox, variables: &[(&str, &str)]) -> String {
    let mut client = Client::start_with(sandbox, variables);
    client.initialize();
    let meta = json!({ "claudecode/toolUseId": "toolu_7" });
    let answer = client.call(1, json!({ "task_description": QUESTION }), Some(meta));
    assert!(client.close().success());
    text(&answer).to_owned()
}

#[test]
fn a_call_of_the_tool_is_recorded_with_its_candidates() {
    let sandbox = machine();
    let told = call(&sandbox, &[("CLAUDE_CODE_SESSION_ID", "session-1")]);
    let queue = queue(&sandbox);
    wait_until("the call is recorded", || !queue.showings(0, 10).unwrap().is_empty());
    let (_, showing) = queue.showings(0, 10).unwrap().remove(0);
    assert_eq!((showing.by, showing.tool_use.as_deref()), (ShownBy::Tool, Some("toolu_7")));
    assert_eq!(showing.session.as_deref(), Some("session-1"));
    assert!(!showing.items.is_empty());
    assert!(showing.items.iter().all(|item| told.contains(&item.id) && item.propensity == 1.0));
    assert!(showing.items.iter().all(|item| item.tokens > 0 && !item.is_withheld));
    let question = queue::Question::from_bytes(&showing.question.unwrap()).unwrap();
    assert_eq!(question.vector.len(), 384);
    let known: Vec<&str> = question.candidates.iter().map(|found| found.id.as_str()).collect();
    assert!(showing.items.iter().all(|item| known.contains(&item.id.as_str())), "{known:?}");
    assert!(question.candidates.windows(2).all(|pair| pair[0].score >= pair[1].score));
}

#[test]
fn off_records_nothing_and_answers_are_the_same() {
    let sandbox = machine();
    let off = call(&sandbox, &[("NUGGET_LEARN_ENABLED", "off"), ("CLAUDE_CODE_SESSION_ID", "s")]);
    assert_eq!(queue(&sandbox).showings(0, 10).unwrap(), []);
    assert_eq!(call(&sandbox, &[("NUGGET_ARCHIVE_ENABLED", "off")]), off);
    assert_eq!(
        queue(&sandbox).showings(0, 10).unwrap(),
        [],
        "without an archive there is nothing to learn from"
    );
    assert_eq!(call(&sandbox, &[]), off);
}

/// Answers at a fixed time, as JSON without what the clock says.
fn ask(sandbox: &Sandbox, is_learning: bool) -> Value {
    let brain = brain::Brain::open(&sandbox.brain()).unwrap();
    let learning = actors::learning::Settings {
        archive: sandbox.path().join("state/nugget").join(archive::FILE_NAME),
        queue: state(sandbox).join("queue.db"),
        brain: brain::StatePaths::in_folder(state(sandbox)).key(),
        index: brain.derived_folder(),
        ..settings_in(sandbox.path())
    };
    let places = brain::StatePaths::in_folder(state(sandbox));
    let setup = Setup {
        workspace: Some(sandbox.path().to_owned()),
        learning: is_learning.then_some(learning),
        ..Setup::new(brain, places, extract::HeuristicExtractor)
    };
    let answer = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let service = Service::start(&setup, Roles::Read).await.unwrap();
        let query = retrieve::Query::new(QUESTION, "2026-11-20T00:00:00Z".parse().unwrap());
        let answer = service.ask(query, Duration::from_secs(60)).await.unwrap();
        service.shutdown().await;
        answer
    });
    assert!(!answer.words_only);
    let mut answer = serde_json::to_value(answer).unwrap();
    answer.as_object_mut().unwrap().remove("stages");
    answer
}

fn ids(answer: &Value) -> Vec<String> {
    let units = answer["units"].as_array().unwrap().iter();
    units.map(|unit| unit["id"].as_str().unwrap().to_owned()).collect()
}

/// Weights that raise one text above another for the question.
fn weights_for(raised: &str, lowered: &str) -> Weights {
    let embedder = embed::Embedder::load(&embed::Settings::default()).unwrap();
    let query = embedder.embed_query(QUESTION).unwrap().vector;
    let candidate = |text: &str| Candidate::new(&embedder.embed_document(text).unwrap().vector, 0.3);
    let shown = |candidate, outcome| Shown { candidate, propensity: 1.0, outcome };
    let shown = vec![shown(0, Outcome::Used), shown(1, Outcome::Ignored)];
    let example = Example::new(1, &query, vec![candidate(raised), candidate(lowered)], shown).unwrap();
    let steps = Steps { rate: 3e-2, passes: 40, norm_max: 1.0 };
    let mut weights = Weights::zero(embedder.model_name(), 384);
    Listwise { steps, ..Listwise::default() }.learn(&mut weights, &[example]);
    weights
}

/// Stores what was learned for the sandbox's folder.
fn store(sandbox: &Sandbox, learner: &str, body: Vec<u8>, version: i64) {
    let archive = Archive::open(&sandbox.path().join("state/nugget").join(archive::FILE_NAME)).unwrap();
    let brain = brain::StatePaths::in_folder(state(sandbox)).key();
    let scope = archive::ChangedScope {
        scope: archive::Project::from_folder(sandbox.path()).key,
        revision: 0,
        questions: 0,
        version: version - 1,
    };
    let learned = archive::Learned {
        version,
        model: embed::Embedder::load(&embed::Settings::default()).unwrap().model_name().to_owned(),
        dimensions: 384,
        learner: learner.into(),
        applied_through: 0,
        questions: 0,
        body,
        report: "[]".into(),
        learned: Timestamp::now(),
    };
    assert!(archive.replace_learned(&brain, &scope, &learned).unwrap());
}

#[test]
fn only_live_weights_of_the_model_move_units_and_nothing_else() {
    let sandbox = machine();
    let base = ask(&sandbox, false);
    assert_eq!(ask(&sandbox, true), base, "without an archive");
    store(&sandbox, "", Vec::new(), 1);
    assert_eq!(ask(&sandbox, true), base, "what is not live changes no bit");

    let units = base["units"].as_array().unwrap();
    assert!(units.len() >= 2, "{base}");
    let text_of = |unit: &Value| {
        let passages = unit["passages"].as_array().unwrap().iter();
        passages.map(|passage| passage["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
    };
    let weights = weights_for(&text_of(&units[1]), &text_of(&units[0]));
    store(&sandbox, "listwise", weights.to_bytes(), 2);
    let live = ask(&sandbox, true);
    assert_eq!(ids(&live)[0], ids(&base)[1], "{live}");
    let sorted = |answer: &Value| {
        let mut ids = ids(answer);
        ids.sort();
        ids
    };
    assert_eq!(sorted(&live), sorted(&base), "what is relevant is decided without them");
    assert_eq!(ask(&sandbox, false), base);

    let mut damaged = weights.to_bytes();
    damaged[100] ^= 1;
    store(&sandbox, "listwise", damaged, 3);
    assert_eq!(ask(&sandbox, true), base, "damaged weights change no bit");
}

#[test]
fn only_what_a_session_is_shown_is_drawn_by_chance() {
    let sandbox = machine();
    let ask = |variables: &[(&str, &str)]| {
        let mut command = sandbox.command();
        command.args(["ask", "--no-llm", "--json", QUESTION]).env_remove("CLAUDE_CODE_SESSION_ID");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        ids(&serde_json::from_slice(&output.stdout).unwrap())
    };
    let explore =
        [("NUGGET_LEARN_EXPLORE", "on"), ("NUGGET_LEARN_SHOWN", "1"), ("CLAUDE_CODE_SESSION_ID", "s")];
    let base = ask(&[]);
    assert!(base.len() > 1, "{base:?}");
    assert_eq!(ask(&explore[..2]), base, "asked by a person");
    assert_eq!(ask(&explore).len(), 1);
}

#[test]
fn exploration_shows_other_units_with_their_probabilities() {
    let sandbox = machine();
    let variables = [
        ("NUGGET_LEARN_EXPLORE", "on"),
        ("NUGGET_LEARN_SHOWN", "2"),
        ("NUGGET_LEARN_TEMPERATURE", "5"),
        ("CLAUDE_CODE_SESSION_ID", "s"),
    ];
    let mut client = Client::start_with(&sandbox, &variables);
    client.initialize();
    for id in 1..=12 {
        client.call(id, json!({ "task_description": QUESTION, "depth": "summary" }), None);
    }
    assert!(client.close().success());
    let queue = queue(&sandbox);
    wait_until("all are recorded", || queue.showings(0, 100).unwrap().len() == 12);
    let showings = queue.showings(0, 100).unwrap();
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (_, showing) in &showings {
        assert!((1..=2).contains(&showing.items.len()), "{showing:?}");
        assert!(showing.items.iter().all(|item| item.propensity > 0.0 && item.propensity <= 1.0));
        *first.entry(showing.items[0].id.clone()).or_default() += 1;
    }
    let candidates = queue::Question::from_bytes(showings[0].1.question.as_deref().unwrap()).unwrap();
    if candidates.candidates.len() > 2 {
        assert!(first.len() > 1, "chance has shown the same unit first 12 times: {first:?}");
        assert!(showings.iter().any(|(_, showing)| showing.items[0].propensity < 1.0));
    }
}

#[test]
fn a_withheld_unit_is_in_no_answer_of_its_session_and_recorded() {
    let sandbox = machine();
    let shown = ids(&ask(&sandbox, false));
    // A session from which the best unit is withheld, and the second one is not.
    let is_withheld = |session: &str, unit: &str| receipts::is_withheld(session, unit, 0.5);
    let session = (0..)
        .map(|number| format!("session-{number}"))
        .find(|session| is_withheld(session, &shown[0]) && !is_withheld(session, &shown[1]))
        .unwrap();
    let variables = [("NUGGET_RECEIPTS_HOLDOUT", "0.5"), ("CLAUDE_CODE_SESSION_ID", session.as_str())];
    let told = call(&sandbox, &variables);
    assert!(!told.contains(&shown[0]) && told.contains(&shown[1]), "{told}");
    let queue = queue(&sandbox);
    wait_until("the call is recorded", || !queue.showings(0, 10).unwrap().is_empty());
    let (_, showing) = queue.showings(0, 10).unwrap().remove(0);
    for item in &showing.items {
        assert_eq!(item.is_withheld, is_withheld(&session, &item.id), "{item:?}");
    }
    assert!(showing.items.iter().any(|item| item.id == shown[0] && item.is_withheld));

    // The hooks withhold the same.
    let hook = |session: &str| {
        let input = json!({
            "session_id": session, "cwd": sandbox.path(), "hook_event_name": "UserPromptSubmit",
            "prompt": "please renew the certificate of the database proxy",
        });
        let mut command = sandbox.command();
        command.arg("user-prompt").env("NUGGET_USER_PROMPT_ENABLED", "on").envs(variables);
        command.env("NUGGET_USER_PROMPT_DEADLINE_MS", "20000").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{input}\n").as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    hook(&session);
    let recorded: Vec<_> = queue
        .showings(0, 10)
        .unwrap()
        .into_iter()
        .filter(|(_, showing)| showing.by == ShownBy::Prompt)
        .flat_map(|(_, showing)| showing.items)
        .collect();
    assert!(!recorded.is_empty(), "the hook has recorded what it has told");
    assert!(recorded.iter().all(|item| item.is_withheld == is_withheld(&session, &item.id)), "{recorded:?}");
}

#[test]
fn a_queue_that_is_locked_delays_no_hook_and_costs_no_answer() {
    let mut sandbox = machine();
    sandbox.variables.push(("NUGGET_USER_PROMPT_ENABLED".into(), "on".into()));
    sandbox.variables.push(("NUGGET_USER_PROMPT_DEADLINE_MS".into(), "20000".into()));
    let prompt = |session: &str| {
        let input = json!({
            "session_id": session, "cwd": sandbox.path(), "hook_event_name": "UserPromptSubmit",
            "prompt": "please renew the certificate of the database proxy",
        });
        let output = sandbox.run_with_input(&["user-prompt"], format!("{input}\n").as_bytes());
        String::from_utf8(output.stdout).unwrap()
    };
    let free = prompt("session-0");
    assert!(free.contains("cert-proxy"), "{free}");
    let queue = queue(&sandbox);
    let recorded = |session: &str| {
        let showings = queue.showings(0, 1_000).unwrap();
        showings.iter().filter(|(_, showing)| showing.session.as_deref() == Some(session)).count()
    };
    // A hook on a busy machine does not wait for its row; one of several has to be there.
    let attempts = Cell::new(0);
    wait_until("a free queue has a row", || {
        let session = format!("free-{}", attempts.replace(attempts.get() + 1));
        prompt(&session) == free && recorded(&session) > 0
    });
    let mut writer = rusqlite::Connection::open(state(&sandbox).join("queue.db")).unwrap();
    let locked = writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    // Both wait for no lock: its owner has all the time.
    assert_eq!(prompt("session-2"), free);
    let told = call(&sandbox, &[("CLAUDE_CODE_SESSION_ID", "session-3")]);
    assert!(told.contains("cert-proxy"), "{told}");
    drop(locked);
    assert_eq!(recorded("session-2"), 0);
}

#[test]
fn status_and_receipts_say_what_was_shown_and_used_and_reset_forgets_it() {
    let sandbox = machine();
    let empty = sandbox.json(["learn", "status", "--json"]);
    assert_eq!((&empty["enabled"], &empty["orders"][0]["live"]), (&json!(true), &json!(false)));
    assert!(sandbox.ok(["receipts"]).contains("no archived session was told anything in the last 30 days"));

    let client = sandbox.path().join("client");
    let mut variables = vec![
        ("CLAUDE_CONFIG_DIR", client.to_str().unwrap()),
        ("CLAUDE_CODE_SESSION_ID", "11111111-0000-4000-8000-000000000001"),
        ("NUGGET_SWEEP_IDLE_MINUTES", "0"),
    ];
    let told = call(&sandbox, &variables);
    let queue = queue(&sandbox);
    wait_until("the call is recorded", || !queue.showings(0, 10).unwrap().is_empty());
    let (_, showing) = queue.showings(0, 10).unwrap().remove(0);
    assert!(told.contains(&showing.items[0].id));
    assert_eq!(sandbox.json(["learn", "--json"])["waiting"], 1);
    let line = |number: usize, kind: &str, content: Value| {
        let line = json!({
            "type": kind, "uuid": format!("11111111-0000-4000-8000-00000000010{number}"),
            "sessionId": "11111111-0000-4000-8000-000000000001", "cwd": sandbox.path(),
            "timestamp": (showing.at + Duration::from_millis(number as u64)).to_string(),
            "message": { "role": kind, "content": content },
        });
        format!("{line}\n")
    };
    let call_of_tool = json!([{ "type": "tool_use", "id": "toolu_7", "name": "mcp__nugget__get_relevant_context",
        "input": { "task_description": QUESTION } }]);
    let result = json!([{ "type": "tool_result", "tool_use_id": "toolu_7", "content": told }]);
    let said = json!([{ "type": "text", "text": format!("By {} it is clear.", showing.items[0].id) }]);
    let lines = [
        line(0, "user", json!("bound the pools")),
        line(1, "assistant", call_of_tool),
        line(2, "user", result),
        line(3, "assistant", said),
    ];
    let transcript = client.join("projects/-shop/11111111-0000-4000-8000-000000000001.jsonl");
    fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    fs::write(&transcript, lines.concat()).unwrap();
    // What is archived is learned from at the start of a server, which would itself archive 40 seconds after the one before.
    variables.remove(1);
    let mut sync = sandbox.command();
    sync.args(["sessions", "sync"]).envs(variables.iter().copied());
    assert!(sync.output().unwrap().status.success());
    let mut server = Client::start_with(&sandbox, &variables);
    server.initialize();
    server.call(1, json!({ "task_description": QUESTION }), None);
    let status = || sandbox.json(["learn", "status", "--json"]);
    wait_until("the session is judged", || status()["orders"][0]["citations"]["used"] == 1);
    wait_until("the order is learned", || status()["orders"][0]["version"] == 1);
    assert!(server.close().success());

    let status = status();
    assert_eq!((&status["waiting"], &status["orders"][0]["live"]), (&json!(0), &json!(false)));
    let ignored = showing.items.len() - 1;
    assert_eq!(status["orders"][0]["citations"]["ignored"].as_u64().unwrap_or(0), ignored as u64);
    let shown = sandbox.ok(["learn"]);
    assert!(shown.contains("order: as without learning, by 1 question"), "{shown}");
    assert!(shown.contains("1 of 20 sessions used what they were shown"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let receipts = sandbox.json(["receipts", "--json"]);
    assert_eq!((&receipts["sessions"], &receipts["used"]), (&json!(1), &json!(1)));
    assert_eq!(receipts["told"], showing.items.len());
    assert_eq!(receipts["holdout"]["failures"]["verdict"], "not_enough_data");
    let printed = sandbox.ok(["receipts", "--days", "7"]);
    assert!(printed.contains("not measured: receipts.holdout is 0"), "{printed}");
    assert!(printed.contains(&showing.items[0].id), "{printed}");

    assert_eq!(sandbox.json(["learn", "reset", "--json"])["questions"], 1);
    let status = sandbox.json(["learn", "status", "--json"]);
    assert_eq!(
        (&status["orders"][0]["version"], &status["orders"][0]["citations"]["used"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(sandbox.json(["receipts", "--json"])["used"], 1, "receipts stay");
    sandbox.ok(["learn", "off"]);
    assert_eq!(sandbox.json(["learn", "--json"])["enabled"], false);

    // As docs/troubleshooting.md says for a brain whose folder was moved.
    drop(queue);
    let (old, moved) = (state(&sandbox), sandbox.path().join("moved"));
    fs::rename(sandbox.brain(), &moved).unwrap();
    sandbox.ok(["index", "--brain", moved.to_str().unwrap()]);
    let entries = fs::read_dir(sandbox.path().join("state/nugget")).unwrap();
    let mut folders = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let new = folders.find(|path| *path != old).unwrap();
    fs::remove_dir_all(&new).unwrap();
    fs::rename(&old, &new).unwrap();
    let receipts = sandbox.json(["receipts", "--json", "--brain", moved.to_str().unwrap()]);
    assert_eq!(receipts["used"], 1, "{receipts}");
}

/// Also of what is told because of a file: without the record, the hold-out would have nothing to compare with.
#[test]
fn a_unit_about_a_file_that_is_withheld_is_recorded() {
    let mut sandbox = Sandbox::with_brain();
    let path = sandbox.brain().join("domains/pay/constraints/cents.md");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let unit = "---\nid: cents\ntype: constraint\nscope: [src/pay.rs]\n---\n\n# Amounts are in cents\n\nNever in euros.\n";
    fs::write(&path, unit).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "unit"]);
    let of = |is_withheld: bool| {
        let mut sessions = (0..).map(|number| format!("11111111-0000-4000-8000-{number:012}"));
        sessions
            .find(|session| feedback::receipts::is_withheld(session, "cents", 0.5) == is_withheld)
            .unwrap()
    };
    sandbox.variables.push(("NUGGET_RECEIPTS_HOLDOUT".into(), "0.5".into()));
    for is_withheld in [true, false] {
        let mut command = sandbox.command();
        command.args(["ask", "--no-llm", "--file", "src/pay.rs", "how are moths kept off wool?"]);
        let output = command.env("CLAUDE_CODE_SESSION_ID", of(is_withheld)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.contains("Amounts are in cents"), !is_withheld, "{text}");
        let (_, showing) = queue(&sandbox).showings(0, 10).unwrap().pop().unwrap();
        let items: Vec<_> = showing.items.iter().map(|item| (item.id.as_str(), item.is_withheld)).collect();
        assert_eq!(items, [("cents", is_withheld)]);
    }
}
