//! `nugget export`: the units for other programs and for people without nugget.

use std::path::Path;

use serde_json::Value;

use crate::brain_questions::copy_brain;
use crate::support::Sandbox;

/// Creates a brain of twenty units, a note, and one unit that tries to escape every format that it is
/// exported to.
fn sample_brain() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    copy_brain(&sandbox);
    let brain = sandbox.brain();
    std::fs::write(brain.join("note.md"), "# A note\n\nWithout any front matter.\n").unwrap();
    let secret = format!("AKIA{}", "IOSFODNN7EXAMPL3");
    std::fs::write(
        brain.join("domains/coding/bugs-evil.md"),
        format!(
            "---\nid: evil\ntype: bug\ntitle: \"</script><script>alert(1)</script><!-- ]]>\"\ntags: [\"<img src=x onerror=alert(1)>\"]\nrelated: [{{id: note, relation: \"<b>\"}}]\n---\n# Evil\n\n</script><script src=//evil.example></script> {secret} \u{202e} &lt;\n[x](javascript:alert(1)) `${{alert(1)}}`\n"
        ),
    )
    .unwrap();
    sandbox
}

/// Returns the data embedded in the page.
fn page_data(page: &str) -> Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}

#[test]
fn json_has_every_unit_with_its_relations_and_no_secret() {
    let sandbox = sample_brain();
    let exported = sandbox.json(["export", "--format", "json"]);
    let units = exported["units"].as_array().unwrap();
    assert_eq!((exported["brain"].as_str(), units.len()), (Some("brain"), 22));
    assert!(units.iter().any(|unit| !unit["related"].as_array().unwrap().is_empty()));
    let evil = units.iter().find(|unit| unit["id"] == "evil").unwrap();
    assert!(evil["body"].as_str().unwrap().contains("[redacted: "), "{evil}");
    assert!(!exported.to_string().contains("IOSFODNN7"), "{evil}");
    sandbox.ok(["export", "--format", "json", "-o", "brain.json"]);
    let file: Value =
        serde_json::from_slice(&std::fs::read(sandbox.path().join("brain.json")).unwrap()).unwrap();
    assert_eq!(file["units"], exported["units"]);
    let printed = sandbox.json(["export", "--format", "json", "-o", "-"]);
    assert_eq!(printed["units"], exported["units"]);
    assert!(!sandbox.path().join("-").exists());
}

#[test]
fn the_page_holds_every_unit_and_no_unit_can_run_code() {
    let sandbox = sample_brain();
    sandbox.ok(["export", "--format", "html", "-o", "brain.html"]);
    let page = std::fs::read_to_string(sandbox.path().join("brain.html")).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "the data and the program only");
    assert_eq!(page.matches("</script").count(), 2);
    for sign in ["<img", "<!--", "\u{202e}", "IOSFODNN7", "__UNITS__"] {
        assert!(!page.contains(sign), "{sign}");
    }
    let units = page_data(&page)["units"].as_array().unwrap().clone();
    assert_eq!(units.len(), 22);
    let evil = units.iter().find(|unit| unit["id"] == "evil").unwrap();
    assert!(
        evil["title"].as_str().unwrap().starts_with("</script><script>"),
        "it is printed unchanged: {evil}"
    );
    // Nothing is fetched, and no text of a unit is parsed as HTML or executed.
    assert!(page.contains("default-src 'none'"));
    for sink in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "http://",
        "https://",
        "fetch(",
        "import(",
    ] {
        let program = &page[page.rfind("<script>").unwrap()..];
        assert!(!program.contains(sink), "{sink}");
    }
}

#[test]
fn an_empty_brain_has_a_page() {
    let sandbox = Sandbox::with_brain();
    assert_eq!(page_data(&sandbox.ok(["export", "--format", "html"]))["units"], serde_json::json!([]));
}

#[test]
fn every_file_of_a_bundle_is_markdown_with_a_type() {
    let sandbox = sample_brain();
    sandbox.ok(["export", "--format", "okf", "-o", "bundle"]);
    let folder = sandbox.path().join("bundle");
    let mut files = 0;
    check_bundle(&folder, &mut files);
    assert_eq!(files, 22);
    let index = std::fs::read_to_string(folder.join("index.md")).unwrap();
    assert!(index.starts_with("# brain\n\n22 units") && index.contains("## coding\n"), "{index}");
    assert!(!index.contains("<script"), "{index}");
    // The other files are copied unchanged.
    let path = "domains/coding/concepts/idempotency-keys.md";
    assert_eq!(std::fs::read(folder.join(path)).unwrap(), std::fs::read(sandbox.brain().join(path)).unwrap());
    // The folder is a brain, and an export never writes over one.
    assert_eq!(sandbox.run(["export", "--format", "okf", "-o", "bundle"]).status.code(), Some(1));
    sandbox.ok(["init", "--path", "bundle"]);
    assert_eq!(sandbox.json(["list", "--json", "--brain", "bundle"])["units"].as_array().unwrap().len(), 22);
}

/// Checks that every Markdown file that is not reserved has front matter with a type, as the format requires.
fn check_bundle(folder: &Path, files: &mut usize) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check_bundle(&path, files);
        } else if !path.ends_with("index.md") {
            *files += 1;
            let document = knowledge::Document::parse(std::fs::read_to_string(&path).unwrap()).unwrap();
            let kind = document.get("type").unwrap();
            assert!(kind.as_str().is_some_and(|kind| !kind.is_empty()), "{}", path.display());
        }
    }
}

#[test]
fn a_secret_in_front_matter_leaves_a_bundle_that_can_be_read() {
    let sandbox = Sandbox::with_brain();
    let folder = sandbox.brain().join("domains/coding/bugs");
    std::fs::create_dir_all(&folder).unwrap();
    let key = format!("AKIA{}", "IOSFODNN7EXAMPL3");
    let fronts = [
        format!("title: {key}"),
        format!("title: {key} is on the disk"),
        format!("title: The disk has {key}"),
        format!("title: \"The disk has \\\"{key}\\\"\""),
        format!("title: 'It''s {key}'"),
        format!("title: >-\n  Folded, with\n  {key}"),
        format!("title: Tags\ntags: [{key}, disk]"),
        format!("title: Lists\nalternatives:\n- {key}\n- another disk"),
        format!("title: Keys\n{key}: 1"),
        format!("title: Nested\nmine: {{{key}: [{key}]}}"),
        format!("title: Comments # {key}\n# {key}"),
        format!("title: &a {key}\ndescription: *a"),
        format!("title: Scopes\nscope:\n- error: 'no such key: {key}'"),
        "title: Words\npassword: Kx9-vm2Qz_7Lp".to_owned(),
    ];
    for (number, front) in fronts.iter().enumerate() {
        let text = format!("---\nid: u{number}\ntype: bug\n{front}\nown: kept\n---\n\n# {key}\n\nBody.\n");
        std::fs::write(folder.join(format!("u{number}.md")), text).unwrap();
    }
    sandbox.ok(["export", "--format", "okf", "-o", "bundle"]);
    for (number, front) in fronts.iter().enumerate() {
        let path = format!("domains/coding/bugs/u{number}.md");
        let text = std::fs::read_to_string(sandbox.path().join("bundle").join(&path)).unwrap();
        let document = knowledge::Document::parse(text.as_str()).unwrap();
        let unit = document.unit(&path).unwrap_or_else(|error| panic!("{front}: {error}:\n{text}"));
        assert_eq!((unit.id.as_str(), unit.kind.as_str()), (format!("u{number}").as_str(), "bug"), "{text}");
        assert!(!unit.title.is_empty() && document.get("own") == Some("kept".into()), "{text}");
        assert!(!text.contains(&key) && !text.contains("Kx9-vm2Qz_7Lp"), "{text}");
    }
}
