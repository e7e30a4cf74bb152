//! The pictures of the documentation are made from what the program really writes.
//!
//! `NUGGET_RECORD=1 cargo test --test tests -- pictures` writes them again.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::delivery::{SLUG, brain_at};
use crate::support::fixture;
use crate::support::github_api::{GithubApi, Merge};
use crate::tour::{is_recording, shape};

const COLUMNS: usize = 96;
const LINE_HEIGHT: usize = 20;
const CHARACTER_WIDTH: f32 = 8.43;
const MARGIN: usize = 20;

#[test]
fn pictures_show_what_the_program_writes() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    let capture = sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    assert_eq!(capture["state"], "done", "{capture}");
    let pull = api.pulls(SLUG).remove(0);
    check("pull-request.svg", &format!("{}\n\n{}", pull.title, displayed(&pull.body)));

    api.merge(SLUG, pull.number, Merge::Commit).unwrap();
    sandbox.ok(["sync"]);
    let question = "Why did a customer receive their bill twice?";
    let answer = sandbox.ok(["ask", "--no-llm", "--limit", "2", question]);
    check("answer.svg", &format!("$ nugget ask \"{question}\"\n{answer}"));
}

/// Compares a picture with the text that it has to show, or writes it.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images").join(name);
    let picture = draw(text);
    if is_recording() {
        return fs::write(path, picture).unwrap();
    }
    let alike = |picture: &str| picture.lines().map(shape).collect::<Vec<_>>().join("\n");
    assert_eq!(
        alike(&fs::read_to_string(&path).unwrap()),
        alike(&picture),
        "docs/images/{name} is out of date"
    );
}

/// Markdown about as GitHub displays it: without the targets of links, marks of bold text, comments and tags.
fn displayed(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').unwrap().1;
    }
    text.push_str(rest);
    let text =
        text.replace("**", "").replace("- [", "- ").replace(" [", " ").replace("`` ", "").replace(" ``", "");
    let text = text.replace("<details><summary>", "▾ ").replace("</summary>", "").replace("</details>", "");
    let text = text.replace("<!-- nugget -->\n", "").replace("<!-- /nugget -->\n", "");
    text.replace("- ` ", "- ").replace(" `\n", "\n")
}

/// Text as an SVG of a window: one `<text>` element a line.
fn draw(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().lines().flat_map(wrap).collect();
    let width = (COLUMNS as f32 * CHARACTER_WIDTH) as usize + 2 * MARGIN;
    let height = lines.len() * LINE_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', monospace\" font-size=\"14\" fill=\"#1f2328\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#f6f8fa\" stroke=\"#d1d9e0\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let is_heading = number == 0 || line.starts_with('#');
        let weight = if is_heading { " font-weight=\"bold\"" } else { "" };
        let y = MARGIN + number * LINE_HEIGHT + 14;
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\"{weight}>{escaped}</text>")
            .unwrap();
    }
    svg + "</svg>\n"
}

/// A line cut between words into lines of at most [`COLUMNS`] characters.
fn wrap(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.last_mut().unwrap();
        if !last.is_empty() && last.chars().count() + word.trim_end().chars().count() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            last.push_str(word);
        }
    }
    lines
}
