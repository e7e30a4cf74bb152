//! Text that nugget put into a session is not learned from it again. What a person states again is, however
//! much of it the session was given.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::mcp;
use crate::support::Sandbox;

/// A model's restatement of the rule, given the text of `rule(3)`: another type, in other words.
const ECHO: &str = "Decision: run `importer-check --lane 3` before each commit of an importer change, since the nightly job \
                    reads the importer unlocked.";
const QUESTION: &str = "I commit a change to the importer, which the nightly job reads without a lock: is `importer-check` enough?";
/// The ways in which nugget puts text into a session.
const CHANNELS: [Channel; 5] =
    [Channel::SessionStart, Channel::Prompt, Channel::Tool, Channel::Action, Channel::HeldAction];
/// The action that the rule's unit bears on.
const ACTION: &str = "git commit importer.rs";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    SessionStart,
    Prompt,
    Tool,
    /// The hook before an action.
    Action,
    /// The same, where it refuses the action.
    HeldAction,
}

fn rule(lane: u32) -> String {
    format!(
        "from now on, always run `importer-check --lane {lane}` before you commit a change to the importer, because the \
         nightly job reads it without a lock"
    )
}

/// A brain that holds the rule of lane 3.
struct Fixture {
    sandbox: Sandbox,
}

impl Fixture {
    fn new() -> Self {
        let mut sandbox = Sandbox::with_brain();
        // A machine that builds beside the tests is slow, and a late hook prints nothing.
        for (name, value) in [
            ("NUGGET_SESSION_START_DEADLINE_MS", "60000"),
            ("NUGGET_USER_PROMPT_DEADLINE_MS", "60000"),
            ("NUGGET_USER_PROMPT_ENABLED", "on"),
            ("NUGGET_GUARD_DEADLINE_MS", "60000"),
        ] {
            sandbox.variables.push((name.to_owned(), value.to_owned()));
        }
        // With one unit alone, no word of a prompt would be distinctive.
        crate::brain_questions::copy_brain(&sandbox);
        sandbox.git(&["add", "."]);
        sandbox.git(&["commit", "-qm", "units"]);
        let fixture = Self { sandbox };
        std::fs::create_dir_all(fixture.project().join(".git")).unwrap();
        let mut first = Transcript::new(&fixture, "11111111-first");
        first.add_prompt(&rule(3));
        let capture = fixture.sandbox.capture(&first.path);
        assert_eq!((&capture["state"], &capture["units"]), (&json!("done"), &json!(1)), "{capture}");
        fixture.sandbox.git(&["merge", "-q", "--no-edit", capture["branch"].as_str().unwrap()]);
        // A person says where it bears.
        let unit = fixture.sandbox.git(&["ls-files", "*importer-check*"]);
        let file = fixture.sandbox.brain().join(unit.trim());
        let text = std::fs::read_to_string(&file).unwrap();
        let scope = "---\nenforce: hold\nscope: [{command: git commit importer.rs}]\n";
        std::fs::write(&file, text.replacen("---\n", scope, 1)).unwrap();
        fixture.sandbox.git(&["commit", "-qam", "scope"]);
        fixture.sandbox.ok(["index"]);
        fixture
    }

    fn project(&self) -> PathBuf {
        self.sandbox.path().join("shop")
    }

    fn hook(&self, command: &str, event: &str, more: &Value) -> String {
        let mut input = json!({"session_id": event, "cwd": self.project(), "hook_event_name": event});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let output = self.sandbox.run_with_input(&[command], format!("{input}\n").as_bytes());
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let printed = &printed["hookSpecificOutput"];
        let text =
            printed["additionalContext"].as_str().or_else(|| printed["permissionDecisionReason"].as_str());
        text.unwrap().to_owned()
    }

    /// What the hook before an action prints; `session` has not heard it.
    fn act(&self, session: &str) -> String {
        let more = json!({"session_id": session, "tool_name": "Bash", "tool_input": {"command": ACTION}});
        self.hook("guard", "PreToolUse", &more)
    }

    /// Returns what nugget itself prints; it holds the rule.
    fn recall(&self, channel: Channel) -> String {
        let recalled = match channel {
            Channel::SessionStart => {
                self.hook("session-start", "SessionStart", &json!({"source": "startup"}))
            }
            Channel::Prompt => self.hook("user-prompt", "UserPromptSubmit", &json!({"prompt": QUESTION})),
            Channel::Tool => mcp::answer(&self.sandbox, QUESTION),
            // The first attempt is refused. Another session has already been told by a failure.
            Channel::HeldAction => self.act(&format!("held-{}", fastrand::u64(..))),
            Channel::Action => {
                let failed = json!({"session_id": format!("told-{}", fastrand::u64(..)), "tool_name": "Bash",
                    "tool_input": {"command": ACTION}, "error": "Exit code 1"});
                self.hook("guard", "PostToolUseFailure", &failed)
            }
        };
        assert!(
            recalled.contains("Always run `importer-check --lane 3` before you commit"),
            "{channel:?}: {recalled}"
        );
        recalled
    }
}

/// A transcript as the client writes it.
struct Transcript {
    path: PathBuf,
    session: String,
    cwd: PathBuf,
    lines: usize,
}

impl Transcript {
    fn new(fixture: &Fixture, session: &str) -> Self {
        let path = fixture.sandbox.path().join(format!("{session}.jsonl"));
        Self { path, session: session.to_owned(), cwd: fixture.project(), lines: 0 }
    }

    /// Copies the same lines into another session.
    fn fork(&self, fixture: &Fixture, session: &str) -> Self {
        let fork = Self { lines: 1000, ..Self::new(fixture, session) };
        let text = std::fs::read_to_string(&self.path).unwrap();
        let (old, new) =
            (format!("\"sessionId\":\"{}\"", self.session), format!("\"sessionId\":\"{session}\""));
        std::fs::write(&fork.path, text.replace(&old, &new)).unwrap();
        fork
    }

    fn add_line(&mut self, kind: &str, more: Value) {
        let mut line = json!({
            "parentUuid": null, "isSidechain": false, "type": kind, "uuid": format!("{}-{}", self.session, self.lines),
            "timestamp": format!("2026-11-16T17:{:02}:00.000Z", self.lines % 60), "userType": "external",
            "cwd": self.cwd, "sessionId": self.session, "version": "2.1.329",
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut file = std::fs::File::options().create(true).append(true).open(&self.path).unwrap();
        writeln!(file, "{line}").unwrap();
        self.lines += 1;
    }

    fn add_prompt(&mut self, words: &str) {
        let message = json!({"role": "user", "content": words});
        self.add_line(
            "user",
            json!({"origin": {"kind": "human"}, "promptSource": "typed", "message": message}),
        );
    }

    fn add_answer(&mut self, block: &Value) {
        self.add_line("assistant", json!({"message": {"role": "assistant", "content": [block]}}));
    }

    /// Adds text to the session, as the client records it.
    fn add_recalled(&mut self, channel: Channel, words: &str) {
        let hook = |event: &str| {
            json!({"attachment": {
                "type": "hook_additional_context", "content": [words], "hookName": event, "toolUseID": event, "hookEvent": event,
            }})
        };
        match channel {
            Channel::SessionStart => self.add_line("attachment", hook("SessionStart")),
            Channel::Prompt => self.add_line("attachment", hook("UserPromptSubmit")),
            Channel::Action => self.add_line("attachment", hook("PostToolUseFailure")),
            Channel::HeldAction => {
                let id = format!("toolu_{}", self.lines);
                let input = json!({"command": ACTION});
                self.add_answer(&json!({"type": "tool_use", "id": id, "name": "Bash", "input": input}));
                let result =
                    json!([{"type": "tool_result", "tool_use_id": id, "content": words, "is_error": true}]);
                self.add_line("user", json!({"message": {"role": "user", "content": result}}));
            }
            Channel::Tool => {
                let id = format!("toolu_{}", self.lines);
                let name = "mcp__plugin_nugget_nugget__get_relevant_context";
                let input = json!({"task_description": QUESTION});
                self.add_answer(&json!({"type": "tool_use", "id": id, "name": name, "input": input}));
                let text = json!([{"type": "text", "text": words}]);
                let result = json!([{"type": "tool_result", "tool_use_id": id, "content": text}]);
                self.add_line("user", json!({"message": {"role": "user", "content": result}}));
            }
        }
    }
}

fn reason(capture: &Value) -> &str {
    assert_eq!(capture["state"], "nothing", "{capture}");
    capture["reason"].as_str().unwrap()
}

/// Returns what the branch of a capture with one unit adds.
fn branch_diff(fixture: &Fixture, capture: &Value) -> String {
    assert_eq!((&capture["state"], &capture["units"]), (&json!("done"), &json!(1)), "{capture}");
    fixture.sandbox.git(&["diff", &format!("main...{}", capture["branch"].as_str().unwrap())])
}

#[test]
fn recalled_text_is_not_learned_again() {
    let fixture = Fixture::new();
    for (number, channel) in CHANNELS.into_iter().enumerate() {
        let recalled = fixture.recall(channel);
        // The recalled text alone: no person stated the rule that it contains.
        let mut recalled_only = Transcript::new(&fixture, &format!("2222222{number}-heard"));
        recalled_only.add_recalled(channel, &recalled);
        recalled_only.add_prompt("thanks, that is all");
        let capture = fixture.sandbox.capture(&recalled_only.path);
        assert_eq!(reason(&capture), "no decision, fix or rule was stated in 1 turn", "{channel:?}");
        // A model's restatement of the recalled text.
        let mut echoed = Transcript::new(&fixture, &format!("3333333{number}-echoed"));
        echoed.add_recalled(channel, &recalled);
        echoed.add_prompt("how do I commit this?");
        echoed.add_answer(&json!({"type": "text", "text": ECHO}));
        let capture = fixture.sandbox.capture(&echoed.path);
        assert!(reason(&capture).contains("(it repeats what was recalled: \""), "{channel:?}: {capture}");
    }
    // A laptop hands over the id in place of the text.
    let unit = fixture.sandbox.git(&["ls-files", "*importer-check*"]);
    let mut named = Transcript::new(&fixture, "55555555-named");
    named.add_recalled(Channel::Tool, Path::new(unit.trim()).file_stem().unwrap().to_str().unwrap());
    named.add_prompt("how do I commit this?");
    named.add_answer(&json!({"type": "text", "text": ECHO}));
    let capture = fixture.sandbox.capture(&named.path);
    assert!(
        reason(&capture).contains("(it repeats what was recalled: \"Always run `importer-check"),
        "{capture}"
    );
    // Without recalled text, the model's words are its own: that the unit says the same is found by its meaning.
    let mut own = Transcript::new(&fixture, "44444444-own");
    own.add_prompt("how do I commit this?");
    own.add_answer(&json!({"type": "text", "text": ECHO}));
    let capture = fixture.sandbox.capture(&own.path);
    assert!(
        reason(&capture).starts_with("nothing new: known already: always-run-importer-check"),
        "{capture}"
    );
}

#[test]
fn a_rule_that_differs_from_a_recalled_one_in_a_number_is_kept() {
    let fixture = Fixture::new();
    let mut session = Transcript::new(&fixture, "22222222-told");
    for channel in CHANNELS {
        session.add_recalled(channel, &fixture.recall(channel));
    }
    session.add_prompt(&rule(3));
    let repeated = fixture.sandbox.capture(&session.path);
    let expected = "(it repeats what was recalled: \"Always run `importer-check --lane 3` before you commit";
    assert!(reason(&repeated).contains(expected), "{repeated}");

    // The session continues; the new lines have not been captured yet.
    session.add_recalled(Channel::SessionStart, &fixture.recall(Channel::SessionStart));
    session.add_prompt(&rule(6));
    let resumed = fixture.sandbox.capture(&session.path);
    let is_new = |diff: &str, lane: u32| {
        let rule = format!("--lane {lane}`");
        diff.lines().any(|line| line.starts_with('+') && line.contains(&rule))
    };
    assert!(is_new(&branch_diff(&fixture, &resumed), 6), "{resumed}");

    let mut fork = session.fork(&fixture, "33333333-fork");
    fork.add_recalled(Channel::Tool, &fixture.recall(Channel::Tool));
    fork.add_prompt(&rule(9));
    let forked = fixture.sandbox.capture(&fork.path);
    let diff = branch_diff(&fixture, &forked);
    assert!(is_new(&diff, 9) && !is_new(&diff, 6), "{diff}");
    assert!(reason(&fixture.sandbox.capture(&fork.path)).contains("captured before"));

    // Each is a unit of its own: they merge in any order and are found.
    for branch in [&resumed, &forked].map(|capture| capture["branch"].as_str().unwrap()) {
        fixture.sandbox.git(&["merge", "-q", "--no-edit", branch]);
    }
    fixture.sandbox.ok(["index"]);
    let known = mcp::answer(&fixture.sandbox, QUESTION);
    for lane in [3, 6, 9] {
        assert!(known.contains(&format!("## Always run `importer-check --lane {lane}`")), "{known}");
    }
}

#[test]
fn a_rule_that_contradicts_a_recalled_one_replaces_it() {
    let fixture = Fixture::new();
    let mut session = Transcript::new(&fixture, "22222222-told");
    session.add_recalled(Channel::SessionStart, &fixture.recall(Channel::SessionStart));
    session.add_prompt(
        "from now on, never run `importer-check --lane 3` before you commit a change to the importer, because it locks the \
         nightly job out",
    );
    let capture = fixture.sandbox.capture(&session.path);
    let diff = fixture.sandbox.git(&["diff", &format!("main...{}", capture["branch"].as_str().unwrap())]);
    assert!(diff.contains("+title: Never run `importer-check --lane 3`"), "{diff}");
    assert!(diff.contains("+status: superseded"), "{diff}");
    let message = fixture.sandbox.git(&["log", "-1", "--format=%B", capture["branch"].as_str().unwrap()]);
    assert!(message.contains("1 unit of knowledge from the session"), "{message}");
    assert_eq!(
        capture["units"], 1,
        "the unit that is marked as replaced is none of the session's: {capture}"
    );
}
