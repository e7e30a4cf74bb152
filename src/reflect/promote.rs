//! The type that a note or a fact becomes.

use knowledge::{Unit, UnitType};

use crate::observed::own_text;

/// The words by which a text of each type is recognised, the more telling type first. Whole words in lower case; the
/// first type with a word in the title wins, then the first with a word in the text.
const SIGNS: [(UnitType, &[&str]); 8] = [
    (
        UnitType::Workaround,
        &[
            "workaround",
            "work around",
            "until it is fixed",
            "until this is fixed",
            "for now",
            "temporarily",
            "as a stopgap",
        ],
    ),
    (UnitType::Rejection, &["rejected", "decided against", "gave up on", "not worth it", "considered and"]),
    (
        UnitType::Decision,
        &[
            "decided",
            "decision",
            "we chose",
            "chose",
            "chosen",
            "instead of",
            "rather than",
            "agreed on",
            "we use",
            "we switched",
        ],
    ),
    (
        UnitType::Constraint,
        &[
            "must",
            "must not",
            "required",
            "requires",
            "mandatory",
            "forbidden",
            "not allowed",
            "may not",
            "at most",
            "at least",
            "limit is",
            "only allowed",
        ],
    ),
    (
        UnitType::Bug,
        &[
            "bug",
            "crash",
            "crashed",
            "crashes",
            "failed",
            "fails",
            "failure",
            "broke",
            "broken",
            "root cause",
            "regression",
            "error was",
            "fixed by",
            "the fix",
        ],
    ),
    (
        UnitType::Caveat,
        &[
            "careful",
            "beware",
            "watch out",
            "gotcha",
            "surprisingly",
            "unexpectedly",
            "caveat",
            "silently",
            "pitfall",
        ],
    ),
    (
        UnitType::Belief,
        &["prefer", "prefers", "always", "never", "should", "do not", "don't", "likes", "wants"],
    ),
    (UnitType::Pattern, &["to do", "first", "then", "run", "steps", "how to", "whenever", "before", "after"]),
];

/// The type of what a note or a fact says, by the first sign in its title, else in its text. Without any it says what
/// something is: a concept.
pub(crate) fn proper_type(unit: &Unit) -> UnitType {
    let found = |text: &str| {
        let text = spaced(text);
        let has = |words: &&[&str]| words.iter().any(|word| text.contains(&format!(" {word} ")));
        SIGNS.iter().find(|(_, words)| has(words)).map(|(kind, _)| kind.clone())
    };
    found(&unit.title).or_else(|| found(own_text(unit))).unwrap_or(UnitType::Concept)
}

/// The words in lower case with single spaces between and around them.
fn spaced(text: &str) -> String {
    let lower = text.to_lowercase().replace('’', "'");
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    format!(" {} ", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_note_give_its_type() {
        for (title, body, expected) in [
            ("Cache store", "We chose Redis over files, as two machines share it.", UnitType::Decision),
            ("Importer", "It crashed on empty files; fixed by skipping them.", UnitType::Bug),
            ("Uploads", "A file must not be larger than 20 MB.", UnitType::Constraint),
            ("Release", "Run the smoke test, wait for it, publish.", UnitType::Pattern),
            ("Old proxy", "Restart it by hand for now.", UnitType::Workaround),
            ("Commit messages", "The team prefers short ones.", UnitType::Belief),
            ("Sharding", "Considered and left alone: one country has most orders.", UnitType::Rejection),
            ("region", "eu-west-1", UnitType::Concept),
        ] {
            let raw = format!("---\nid: x\ntype: note\n---\n\n# {title}\n\n{body}\n");
            let unit = knowledge::Document::parse(raw).unwrap().unit("domains/a/notes/x.md").unwrap();
            assert_eq!(proper_type(&unit), expected, "{title}");
        }
    }
}
