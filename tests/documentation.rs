//! README and `docs/` are short, complete, and point to files that exist.
//!
//! `NUGGET_RECORD=1 cargo test --test tests -- documentation` writes the table of settings again.

use std::fs;
use std::path::{Path, PathBuf};

use brain::settings::{KEYS, Kind};

use crate::tour::is_recording;

const README_LINES_MAX: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    pages.chain(top).collect()
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines; details belong in docs/");
}

#[test]
fn links_point_to_existing_files() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            assert!(page.parent().unwrap().join(file).exists(), "{} links to {link}", page.display());
        }
    }
}

#[test]
fn paths_and_names_in_pages_about_the_code_exist() {
    for name in ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let page = fs::read_to_string(root().join(name)).unwrap();
        let missing: Vec<&str> = paths_in(&page).filter(|path| !root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{name} names {missing:?}");
        for (item, path) in items_in_files(&page) {
            let source = fs::read_to_string(root().join(path)).unwrap();
            assert!(defines(&source, item), "{name} says that `{item}` is in {path}");
        }
    }
}

#[test]
fn a_page_names_items_before_their_file_or_behind_it() {
    let page = "`a::b` in `src/c.rs`, `D`, `E` and `f` in `src/g.rs`; see `h`, found in `src/i.rs` (`j`), `actors/NAME.rs`";
    let found: Vec<_> = items_in_files(page).collect();
    let expected =
        [("b", "src/c.rs"), ("f", "src/g.rs"), ("E", "src/g.rs"), ("D", "src/g.rs"), ("j", "src/i.rs")];
    assert_eq!(found, expected);
    let source = "// announce\nuse x::announce;\npub(crate) async fn announced() {}\nconst A: u8 = 1;\n";
    assert!(defines(source, "announced") && defines(source, "A"));
    assert!(!defines(source, "announce"));
}

/// The paths in a page, but for those of files that a reader is to write (`NAME`).
fn paths_in(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2).filter(|text| is_path(text))
}

fn is_path(text: &str) -> bool {
    let folders = ["src/", "actors/", "tests/", "stress/", "plugin/"];
    folders.iter().any(|folder| text.starts_with(folder)) && !text.contains("NAME")
}

/// The items that a page says are in a file, each with the file's path: one or more before it (`a` and `b` in `path`),
/// or one behind it (`path` (`a`)).
fn items_in_files(page: &str) -> impl Iterator<Item = (&str, &str)> {
    // Every second one is quoted.
    let parts: Vec<&str> = page.split('`').collect();
    let mut found = Vec::new();
    for at in (1..parts.len()).step_by(2).filter(|at| is_path(parts[*at]) && parts[*at].ends_with(".rs")) {
        let (mut before, mut between) = (at, ["in", "in"]);
        while before > 2 && between.contains(&parts[before - 1].trim()) && !is_path(parts[before - 2]) {
            before -= 2;
            found.push((parts[before], parts[at]));
            between = ["and", ","];
        }
        if parts.get(at + 1).is_some_and(|between| between.trim() == "(") {
            found.push((parts[at + 2], parts[at]));
        }
    }
    found.into_iter().map(|(item, path)| (item.rsplit("::").next().unwrap_or(item), path))
}

/// Whether a Rust source defines an item of this name.
fn defines(source: &str, item: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    kinds.iter().any(|kind| {
        let definition = format!("{kind} {item}");
        source.match_indices(&definition).any(|(at, _)| {
            let line = source[..at].rsplit('\n').next().unwrap_or_default();
            !line.contains("//") && !source[at + definition.len()..].starts_with(is_name)
        })
    })
}

#[test]
fn every_setting_is_documented() {
    let page = root().join("docs/configuration.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- settings -->\n").unwrap();
    let (table, after) = rest.split_once("<!-- end -->\n").unwrap();
    let expected = settings_table();
    if is_recording() {
        let written = format!("{before}<!-- settings -->\n{expected}<!-- end -->\n{after}");
        return fs::write(page, written).unwrap();
    }
    assert_eq!(table, expected, "docs/configuration.md is out of date");
}

fn settings_table() -> String {
    let quoted =
        |values: &[&str]| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    let mut table = "\n| key | default | values | meaning |\n|---|---|---|---|\n".to_owned();
    for key in KEYS.iter() {
        let values = match &key.kind {
            Kind::Text => "text".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Url => "URL: `https`, or `http` on this machine".to_owned(),
            Kind::Number(least, most) => format!("{least} to {most}"),
            Kind::Decimal(least, most) => format!("{least} to {most}"),
            Kind::OneOf(values) => quoted(values),
            Kind::SomeOf(values) => format!("some of {}", quoted(values)),
        };
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        let help = key.help.replace('|', "\\|");
        table.push_str(&format!("| `{}` | {default} | {values} | {help} |\n", key.name));
    }
    table + "\n"
}
