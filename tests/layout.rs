//! The house keeps its shape: arrows between crates, no leftovers, no forgotten tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The crates in reading order, with those of ours that each may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("src/knowledge", &[]),
    ("src/transcript", &["knowledge"]),
    ("src/brain", &["knowledge"]),
    ("src/queue", &["knowledge"]),
    ("src/llm", &["transcript"]),
    ("src/extract", &["knowledge", "llm", "transcript"]),
    ("src/embed", &["knowledge", "llm", "transcript"]),
    ("src/index", &["knowledge", "transcript", "brain"]),
    ("src/retrieve", &["knowledge", "transcript", "index", "embed", "llm"]),
    ("src/git", &["knowledge"]),
    ("src/github", &["knowledge"]),
    (
        "actors",
        &[
            "knowledge",
            "transcript",
            "brain",
            "queue",
            "llm",
            "extract",
            "embed",
            "index",
            "retrieve",
            "git",
            "github",
        ],
    ),
    ("src/mcp", &["knowledge", "embed", "index", "retrieve", "actors"]),
    (
        "src/cli",
        &[
            "knowledge",
            "transcript",
            "brain",
            "queue",
            "llm",
            "extract",
            "embed",
            "index",
            "retrieve",
            "git",
            "github",
            "actors",
            "mcp",
        ],
    ),
];

#[test]
fn a_crate_uses_only_those_above_it() {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let names: Vec<&str> = ARROWS.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
    for (path, may) in &allowed {
        let manifest = std::fs::read_to_string(root().join(path).join("Cargo.toml")).unwrap();
        let table = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for line in table.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(!names.contains(&name) || may.contains(&name), "{path} must not use {name}");
        }
    }
}

#[test]
fn every_member_is_listed_in_reading_order() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let at: Vec<usize> = ARROWS
        .iter()
        .map(|(path, _)| {
            manifest.find(&format!("\"{path}\"")).unwrap_or_else(|| panic!("{path} is no member"))
        })
        .collect();
    assert!(at.is_sorted());
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "target" | ".git" | "fixtures") {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn nothing_is_left_half_done_or_switched_off() {
    let mut files = Vec::new();
    sources(root(), &mut files);
    assert!(files.len() > 50);
    let marks = ["todo", "unimplemented"].map(|word| format!("{word}!(")).into_iter();
    let marks: Vec<String> = marks
        .chain(["FIX", "XX"].map(|word| format!("{word}{}", if word == "XX" { "X" } else { "ME" })))
        .chain([format!("#[{}", "ignore")])
        .collect();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} holds {mark}", file.display());
        }
    }
}

#[test]
fn every_file_of_tests_is_in_the_table_of_contents() {
    let contents = std::fs::read_to_string(root().join("tests/main.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|ending| ending == "rs") && stem != "main" {
            assert!(contents.contains(&format!("mod {stem};")), "tests/{stem}.rs is run by nobody");
        }
    }
}

#[test]
fn only_forge_and_the_door_start_processes() {
    let mut files = Vec::new();
    for folder in ["src", "actors"] {
        sources(&root().join(folder), &mut files);
    }
    let allowed = [
        "src/git/",
        // `gh` and git's credential helper are asked for a token.
        "src/github/token.rs",
        "src/extract/claude_code.rs",
        "src/cli/session.rs",
        "src/cli/commands/demo.rs",
        // git and the client are asked for their versions.
        "src/cli/program.rs",
        "src/cli/commands/runtime.rs",
        // For its tests alone.
        "actors/testbed.rs",
    ];
    for file in files {
        let name = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains("Command::new(") || allowed.iter().any(|allowed| name.starts_with(allowed)),
            "{name} starts a process"
        );
    }
}
