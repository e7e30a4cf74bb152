//! A server starts whatever the state of the brain, says what to do, and serves the brain once there is one: a client
//! remembers for a quarter of an hour that a server has failed to start.

use std::fs;

use serde_json::{Value, json};

use crate::mcp::{Client, text};
use crate::support::Sandbox;

const UNIT: &str = "# Crane hooks\n\nA crane hook is inspected before each lift at the quay.\n";

fn ask(client: &mut Client, id: u64) -> Value {
    client.call(id, json!({"task_description": "inspect the crane hook before a lift"}), None)
}

/// Asserts that the tool answers an error with all these texts.
fn assert_says(answer: &Value, what_to_do: &[&str]) {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    for expected in what_to_do {
        assert!(text(answer).contains(expected), "{expected}: {answer}");
    }
}

#[test]
fn a_server_without_a_brain_serves_it_when_it_appears() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(&sandbox);
    let hello = client.initialize();
    assert!(hello["result"]["instructions"].is_string(), "{hello}");
    let tools = client.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    assert_eq!(tools["result"]["tools"][0]["name"], "get_relevant_context");
    assert_says(&ask(&mut client, 2), &["there is no brain at", "nugget init"]);
    assert!(!sandbox.path().join("state").exists(), "a server without a brain creates nothing");

    sandbox.ok(["init", "--path", sandbox.brain().to_str().unwrap()]);
    fs::write(sandbox.brain().join("hooks.md"), UNIT).unwrap();
    let found = ask(&mut client, 3);
    assert!(text(&found).contains("inspected before each lift"), "{found}");

    // The brain goes away, and another one comes.
    fs::rename(sandbox.brain(), sandbox.path().join("away")).unwrap();
    assert_says(&ask(&mut client, 4), &["nugget init"]);
    fs::rename(sandbox.path().join("away"), sandbox.brain()).unwrap();
    let found = ask(&mut client, 5);
    assert!(text(&found).contains("inspected before each lift"), "{found}");
    assert!(client.close().success());
}

#[test]
fn a_server_whose_brain_is_deleted_says_so_and_leaves_nothing() {
    for is_broken in [false, true] {
        let sandbox = Sandbox::with_brain();
        fs::write(sandbox.brain().join("hooks.md"), UNIT).unwrap();
        if is_broken {
            // The committed manifest is served.
            fs::write(sandbox.brain().join("brain.yaml"), "version: [").unwrap();
        }
        let mut client = Client::start(&sandbox);
        client.initialize();
        assert!(text(&ask(&mut client, 1)).contains("inspected before each lift"));
        fs::remove_dir_all(sandbox.brain()).unwrap();
        for id in 2..5 {
            assert_says(&ask(&mut client, id), &["there is no brain at", "nugget init"]);
            assert!(!sandbox.brain().exists(), "the folder came back");
        }
        assert!(client.close().success());
    }
}

#[test]
fn a_server_of_a_broken_brain_says_what_is_wrong_until_it_is_fixed() {
    let sandbox = Sandbox::with_brain();
    fs::write(sandbox.brain().join("hooks.md"), UNIT).unwrap();
    let manifest = fs::read_to_string(sandbox.brain().join("brain.yaml")).unwrap();
    fs::write(sandbox.brain().join("brain.yaml"), "version: [").unwrap();
    // What is committed counts where the work tree's file is broken.
    sandbox.git(&["commit", "-qam", "break it"]);
    let mut client = Client::start(&sandbox);
    client.initialize();
    assert_says(&ask(&mut client, 1), &["brain.yaml", "fix that file"]);
    fs::write(sandbox.brain().join("brain.yaml"), manifest).unwrap();

    let settings = sandbox.path().join("config/nugget/config.toml");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    fs::write(&settings, "brain = [").unwrap();
    assert_says(&ask(&mut client, 2), &["nugget config"]);
    fs::remove_file(&settings).unwrap();

    let index = sandbox.brain().join(".nugget");
    let _ = fs::remove_dir_all(&index);
    fs::write(&index, "no folder").unwrap();
    assert_says(&ask(&mut client, 3), &["delete", ".nugget"]);
    fs::remove_file(&index).unwrap();

    let found = ask(&mut client, 4);
    assert!(text(&found).contains("inspected before each lift"), "{found}");
    assert!(client.close().success());
}

#[test]
fn a_server_without_its_model_says_what_to_do() {
    let sandbox = Sandbox::with_brain();
    fs::write(sandbox.brain().join("hooks.md"), UNIT).unwrap();
    let mut client = Client::start_with(&sandbox, &[("NUGGET_EMBED_MODEL", "/nowhere/model.onnx")]);
    client.initialize();
    assert_says(&ask(&mut client, 1), &["/nowhere", "nugget doctor"]);
    assert!(client.close().success());
}
