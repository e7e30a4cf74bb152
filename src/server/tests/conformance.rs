//! The protocol's conformance suite over HTTP (`@modelcontextprotocol/conformance`). Its npm packages are not part of
//! this repository: without them this reports a skip.

use std::path::PathBuf;
use std::process::Command;

use crate::support::*;

/// The scenarios for every server. The others need a server with certain tools, prompts and resources.
const SCENARIOS: [&str; 4] = ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"];

#[tokio::test(flavor = "multi_thread")]
async fn the_conformance_suite_passes_over_http() {
    // A `node_modules` with the suite and node (22 or later).
    let Some(modules) = std::env::var_os("NUGGET_CONFORMANCE_MODULES").map(PathBuf::from) else {
        println!("skipped: NUGGET_CONFORMANCE_MODULES names no folder");
        return;
    };
    let server = TestServer::start().await;
    for scenario in SCENARIOS {
        let mut command = Command::new(modules.join(".bin/node"));
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.mjs"))
            .arg(scenario)
            .env("SERVER", server.address.to_string())
            .env("TOKEN", ALPHA)
            .env("SUITE", modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        println!("{scenario}: {}\n{text}", output.status);
        assert!(output.status.success(), "{scenario}:\n{text}");
    }
}
