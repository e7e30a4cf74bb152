//! The failpoints at which the stress tests end the process are in builds with debug assertions only.

use std::path::Path;

/// Collects the names of all failpoints in the sources.
fn collect_failpoints(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_failpoints(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let names = code.filter_map(|line| line.split_once("failpoint::here!(\"")?.1.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_failpoint_is_tested_and_in_debug_builds_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    collect_failpoints(&root.join("src"), &mut names);
    collect_failpoints(&root.join("actors"), &mut names);
    assert!(names.len() >= 30);
    let storm = ["stress/storm.rs", "stress/delivery.rs", "stress/learn/kills.rs", "stress/notes.rs"]
        .map(|file| std::fs::read_to_string(root.join(file)).unwrap())
        .concat();
    let program = std::fs::read(env!("CARGO_BIN_EXE_nugget")).unwrap();
    let is_there = |name: &str| memchr::memmem::find(&program, name.as_bytes()).is_some();
    for name in &names {
        assert!(storm.contains(&format!("(\"{name}\"")), "no storm ends the process at {name}");
        assert_eq!(is_there(name), cfg!(debug_assertions), "{name}");
    }
    for variable in ["FAILPOINT_MARKS", "SCRIPTED_EXTRACTION"] {
        assert_eq!(is_there(variable), cfg!(debug_assertions), "{variable}");
    }
}
