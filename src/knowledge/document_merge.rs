//! Merges two edits of one unit's file by its parts. git compares lines, and two sessions that completed the same unit
//! always differ in the same lines: the time, the last source, the end of the text.

use jiff::Timestamp;
use serde_yaml::Value;

use crate::document::Document;

/// The share of a text's lines that an edited copy still has.
const EDITED_COPY_SHARE: f64 = 0.5;

/// Whether a file is another one after a person has edited it: it has at least half of the lines below the front matter,
/// but for the heading at their beginning, and is not older. Two units that were given one name are not: what sessions say
/// in other words has their `sources`, and a note without any its `source`, person or agent, and the time at which it was
/// `created`.
pub fn is_edited_copy(file: &str, original: &str) -> bool {
    fn lines(text: &str, document: Option<&Document>) -> Vec<String> {
        let body = document.map_or(text, Document::body);
        let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
        // Only there it is no comment in code.
        lines.next_if(|line| line.starts_with("# "));
        lines.map(str::to_owned).collect()
    }
    let (copy, of_original) = (Document::parse(file).ok(), Document::parse(original).ok());
    let changed = |document| time(document, "last_modified");
    if let (Some(copied), Some(changed)) = (changed(copy.as_ref()), changed(of_original.as_ref()))
        && changed > copied
    {
        return false;
    }
    let (text, original) = (lines(file, copy.as_ref()), lines(original, of_original.as_ref()));
    if original.is_empty() {
        return text.is_empty();
    }
    let kept = original.iter().filter(|line| text.contains(line)).count();
    let is_of_same_origin = || {
        let (of_copy, sources) = (sources(copy.as_ref()), sources(of_original.as_ref()));
        let made = |document: Option<&Document>| {
            (time(document, "created"), document.and_then(|document| document.get("source")))
        };
        match sources.is_empty() {
            true => made(copy.as_ref()) == made(of_original.as_ref()),
            false => sources.iter().all(|source| of_copy.contains(source)),
        }
    };
    kept == original.len() || kept as f64 >= EDITED_COPY_SHARE * original.len() as f64 && is_of_same_origin()
}

/// Whether a file with the id of a unit is that unit, whatever a person has made of its text: it comes from the same
/// sessions, or is an edited copy of it.
pub fn is_same_unit(file: &str, original: &str) -> bool {
    let sources_of = |text: &str| sources(Document::parse(text).ok().as_ref());
    let (of_file, of_original) = (sources_of(file), sources_of(original));
    let is_from_same = !of_original.is_empty() && of_original.iter().all(|source| of_file.contains(source));
    is_from_same || is_edited_copy(file, original)
}

/// A time of the front matter; `None` if it has none, or none that can be read.
fn time(document: Option<&Document>, key: &str) -> Option<Timestamp> {
    document?.get(key)?.as_str()?.parse().ok()
}

/// What a document says about where it comes from.
fn sources(document: Option<&Document>) -> Vec<Value> {
    match document.and_then(|document| document.get("sources")) {
        Some(Value::Sequence(sources)) => sources,
        _ => Vec::new(),
    }
}

/// The file with both edits of `base`; `None` if they contradict each other.
///
/// A key that both changed is merged if it is a list to which both added, or `last_modified`. A text that `theirs`
/// only added paragraphs to gets them, unless it has them already, so that a repetition changes nothing. Any other text
/// that both changed is merged by `merge_text`, which gets the texts in the order base, ours, theirs.
pub fn merge_documents(
    base: &Document,
    ours: &Document,
    theirs: &Document,
    merge_text: impl FnOnce(&str, &str, &str) -> Option<String>,
) -> Option<Document> {
    let (before, after) = (base.mapping().ok()?, theirs.mapping().ok()?);
    // A key cannot be removed from a document.
    if before.keys().any(|key| !after.contains_key(key)) {
        return None;
    }
    let mut merged = ours.clone();
    for (key, new) in &after {
        let name = key.as_str()?;
        let (old, mine) = (before.get(key), merged.get(name));
        if old == Some(new) || mine.as_ref() == Some(new) {
            continue;
        }
        let value = match mine {
            mine if mine.as_ref() == old => new.clone(),
            Some(Value::String(mine)) if name == "last_modified" => {
                Value::String(mine.max(new.as_str()?.to_owned()))
            }
            Some(Value::Sequence(mine)) => Value::Sequence(join(old, mine, new)?),
            _ => return None,
        };
        if merged.get(name).as_ref() != Some(&value) {
            merged.set(name, &value);
        }
    }
    let [old, mine, new] = [base, ours, theirs].map(|document| document.body().replace("\r\n", "\n"));
    if new == old || new == mine {
        return Some(merged);
    }
    if mine == old {
        merged.set_body(&new);
        return Some(merged);
    }
    // Whole paragraphs: what goes on with a line or a list says another thing below another text.
    let has = |added: &str| format!("\n\n{}\n\n", mine.trim()).contains(&format!("\n\n{}\n\n", added.trim()));
    match new.trim_end().strip_prefix(old.trim_end()) {
        Some("") => {}
        Some(added) if added.starts_with("\n\n") && has(added) => {}
        Some(added) if added.starts_with("\n\n") => merged.set_body(&format!("{}{added}\n", mine.trim_end())),
        _ => merged.set_body(&merge_text(&old, &mine, &new)?),
    }
    Some(merged)
}

/// Our list with what theirs adds to the old one; `None` if theirs removes something.
fn join(old: Option<&Value>, mut mine: Vec<Value>, new: &Value) -> Option<Vec<Value>> {
    let old = old.and_then(Value::as_sequence).map_or(&[][..], Vec::as_slice);
    let new = new.as_sequence()?;
    if old.iter().any(|item| !new.contains(item)) {
        return None;
    }
    for item in new.iter().filter(|item| !old.contains(item)) {
        if !mine.contains(item) {
            mine.push(item.clone());
        }
    }
    Some(mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "---\nid: pools\ntype: pattern\nlast_modified: 2026-11-01T00:00:00Z\nsources:\n- session: a\n---\n\n# Pools\n\nBound them.\n";

    fn document(edits: &[(&str, &str)]) -> Document {
        let text = edits.iter().fold(BASE.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        Document::parse(text).unwrap()
    }

    #[test]
    fn an_edited_copy_is_told_from_another_unit_of_the_same_name() {
        let unit = |body: &str| format!("---\nid: same\ntype: note\ntitle: Same\n---\n\n# Same\n\n{body}\n");
        let original = unit("Bound the pools.\n\nAn unbounded one has exhausted the host.");
        assert!(is_edited_copy(&original, &original));
        assert!(is_edited_copy(
            &unit("Bound all pools.\n\nAn unbounded one has exhausted the host."),
            &original
        ));
        assert!(!is_edited_copy(&unit("Something else."), &original));
        assert!(!is_edited_copy(&unit("second text"), &unit("first text")));
        // Two notes of one title, and one that has changed since it was copied.
        let at = |created: u8, modified: u8, body: &str| {
            let times = format!(
                "created: 2026-11-0{created}T00:00:00Z\nlast_modified: 2026-11-0{modified}T00:00:00Z\n"
            );
            unit(body).replacen("title:", &format!("{times}title:"), 1)
        };
        let (text, edited) = ("Restart it.\n\nThe lease expires.", "Restart it.\n\nThe lease is 30 s.");
        assert!(is_edited_copy(&at(1, 2, edited), &at(1, 1, text)));
        assert!(!is_edited_copy(&at(2, 2, edited), &at(1, 1, text)), "two notes of one title");
        let of_agent = at(1, 1, text).replacen("title:", "source: agent\ntitle:", 1);
        assert!(!is_edited_copy(&at(1, 1, edited), &of_agent), "in the same second");
        assert!(!is_edited_copy(&at(1, 1, text), &at(1, 2, edited)), "the edit is not merged");
        assert!(!is_edited_copy(&at(1, 1, text), &at(1, 2, "Restart it.")), "nor is what it removes");
        // The same lesson from two sessions, one of which has its reason.
        let of = |session: &str, body: &str| {
            unit(body).replacen("title:", &format!("sources: [{session}]\ntitle:"), 1)
        };
        let (short, long) = (of("a", "Use zod."), of("b", "Use zod.\n\nIt infers the types."));
        assert!(!is_edited_copy(&short, &long), "the reason would be lost");
        assert!(is_edited_copy(&long, &short), "nothing is lost");
        assert!(is_edited_copy(&of("b", "Use zod."), &long), "a person has removed it");
    }

    #[test]
    fn a_unit_of_code_is_no_copy_of_another_one() {
        let unit = |session: &str, code: &str| {
            format!("---\nid: same\nsources: [{session}]\n---\n\n# Same\n\n```sh\n{code}\n```\n")
        };
        assert!(!is_edited_copy(&unit("a", "make"), &unit("b", "# make all")));
        assert!(is_edited_copy(&unit("a", "make"), &unit("b", "make")));
        assert!(!is_edited_copy("# Same\n\nText.\n", "# Same\n"), "nothing says so");
        assert!(is_edited_copy("# Same\n", "# Same\n"));
    }

    #[test]
    fn an_edit_within_a_line_is_no_addition() {
        let of = |text: &str| document(&[("Bound them.\n", text)]);
        for (before, mine, new) in [
            ("Wait 3\n", "Wait 3\n\nA 2nd paragraph: 0 retries.\n", "Wait 30\n"),
            ("Use zod\n", "Use zod\n\nIt infers the types.\n", "Use zod, never yup\n"),
            ("A list\n", "A list\n- Use 30\n", "A list\n- Use 3\n"),
        ] {
            let text = |base: &str, ours: &str, theirs: &str| {
                assert!(base.ends_with(before) && ours.ends_with(mine) && theirs.ends_with(new));
                Some("asked".to_owned())
            };
            let merged = merge_documents(&of(before), &of(mine), &of(new), text).unwrap();
            assert!(merged.body().ends_with("asked"), "{}", merged.as_str());
        }
    }

    #[test]
    fn a_paragraph_is_there_only_as_a_whole() {
        let of = |text: &str| document(&[("Bound them.\n", text)]);
        let ours = of("Bound them.\n\nUse 30\n");
        let theirs = of("Bound them.\n\nUse 3\n");
        let both = merged(&ours, &theirs).unwrap();
        assert!(both.ends_with("Bound them.\n\nUse 30\n\nUse 3\n"), "{both}");
        let crlf = Document::parse(theirs.as_str().replace('\n', "\r\n")).unwrap();
        assert!(merged(&ours, &crlf).unwrap().ends_with("Use 30\n\nUse 3\n"));
        let ours = Document::parse(ours.as_str().replace('\n', "\r\n")).unwrap();
        let both = merged(&ours, &theirs).unwrap();
        assert!(both.ends_with("Bound them.\r\n\r\nUse 30\r\n\r\nUse 3\r\n"), "{both}");
        assert_eq!(merged(&Document::parse(both.as_str()).unwrap(), &theirs), Some(both), "a repetition");
    }

    fn merged(ours: &Document, theirs: &Document) -> Option<String> {
        merge_documents(&document(&[]), ours, theirs, |_, _, _| None)
            .map(|document| document.as_str().to_owned())
    }

    fn completed(session: &str, day: &str, text: &str) -> Document {
        document(&[
            ("2026-11-01", day),
            ("- session: a\n", &format!("- session: a\n- session: {session}\n")),
            ("Bound them.\n", &format!("Bound them.\n\n## {text}\n\nMore.\n")),
        ])
    }

    #[test]
    fn two_sessions_complete_the_same_unit() {
        let (first, second) = (completed("b", "2026-11-02", "One"), completed("c", "2026-11-03", "Two"));
        let expected = "---\nid: pools\ntype: pattern\nlast_modified: 2026-11-03T00:00:00Z\nsources:\n- session: a\n\
                        - session: b\n- session: c\n---\n\n# Pools\n\nBound them.\n\n## One\n\nMore.\n\n## Two\n\nMore.\n";
        let both = merged(&first, &second).unwrap();
        assert_eq!(both, expected);
        let again = merged(&Document::parse(both.as_str()).unwrap(), &second).unwrap();
        assert_eq!(again, both, "a repetition changes nothing");
        let older = merged(&second, &first).unwrap();
        assert!(older.contains("last_modified: 2026-11-03"), "{older}");
    }

    #[test]
    fn one_sided_edits_are_taken_as_they_are() {
        let ours = document(&[("type: pattern", "type: bug # mine")]);
        let theirs = document(&[("id: pools\n", "id: pools\nstatus: superseded\n")]);
        let both = merged(&ours, &theirs).unwrap();
        assert!(both.contains("type: bug # mine\n") && both.contains("status: superseded\n"), "{both}");
        assert_eq!(merged(&document(&[]), &theirs).unwrap().matches("status").count(), 1);
    }

    #[test]
    fn contradictions_are_left_to_a_person() {
        let kind = |kind: &str| document(&[("type: pattern", &format!("type: {kind}"))]);
        assert_eq!(merged(&kind("bug"), &kind("belief")), None);
        assert_eq!(merged(&kind("bug"), &kind("bug")), Some(kind("bug").as_str().to_owned()));
        let text = |text: &str| document(&[("Bound them.", text)]);
        assert_eq!(merged(&text("Bound all."), &text("Bound some.")), None);
        assert_eq!(merged(&document(&[]), &document(&[("type: pattern\n", "")])), None, "a removed key");
        let fewer = document(&[("- session: a\n", "- session: b\n")]);
        assert_eq!(merged(&completed("c", "2026-11-02", "One"), &fewer), None, "a removed item");
    }
}
