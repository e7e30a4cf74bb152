//! README and `docs/` are short, complete, and point to files that exist.
//!
//! `NUGGET_RECORD=1 cargo test --test tests -- documentation` writes the table of settings again.

use std::fs;
use std::path::{Path, PathBuf};

use brain::config::{KEYS, Kind};

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
fn paths_in_the_architecture_page_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|text| {
        ["src/", "actors/", "tests/", "stress/", "plugin/"].iter().any(|folder| text.starts_with(folder))
    });
    let missing: Vec<&str> = paths.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "docs/architecture.md names {missing:?}");
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
        |values: &[String]| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    let mut table = "\n| key | default | values | meaning |\n|---|---|---|---|\n".to_owned();
    for key in KEYS.iter() {
        let values = match &key.kind {
            Kind::Text => "text".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Url => "URL: `https`, or `http` on this machine".to_owned(),
            Kind::Number(least, most) => format!("{least} to {most}"),
            Kind::OneOf(values) => quoted(values),
            Kind::SomeOf(values) => format!("some of {}", quoted(values)),
        };
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        let help = key.help.replace('|', "\\|");
        table.push_str(&format!("| `{}` | {default} | {values} | {help} |\n", key.name));
    }
    table + "\n"
}
