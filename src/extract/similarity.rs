//! Compares lessons by their words: with each other, and with what was recalled into the session.

use std::collections::BTreeSet;

use knowledge::text::one_line;
use knowledge::{opposed, value};
use transcript::Conversation;

use crate::sentences;

/// The share of the shorter title's words that the longer one must contain to state the same lesson.
const SAME_LESSON_SHARE: f64 = 0.65;
/// The share of a lesson's words that recalled text must contain for the lesson to repeat it.
///
/// For a person's words it is all of them, because a person who corrects a unit repeats most of it.
const REPEATED_SHARE_MODEL: f64 = 0.6;
const REPEATED_SHARE_HUMAN: f64 = 1.0;

type Words = BTreeSet<String>;

/// How many characters of the recalled text are quoted in a rejection.
const QUOTED_CHARS_MAX: usize = 120;

/// The text that was put into a session from memory, line by line.
pub(crate) struct RecalledText(Vec<(Words, String)>);

impl RecalledText {
    /// Collects the recalled lines, and each pair of adjacent lines.
    pub(crate) fn from_conversation(conversation: &Conversation) -> Self {
        let lines = conversation.recalled.iter().chain(&conversation.hook_texts).flat_map(|text| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            // A lesson may span a title and the line below it.
            let pairs = lines.windows(2).map(|pair| pair.join("\n")).collect::<Vec<_>>();
            lines.iter().map(|&line| line.to_owned()).chain(pairs).collect::<Vec<_>>()
        });
        Self(lines.map(|text| (words(&text), text)).collect())
    }

    /// Why a lesson only repeats recalled text, or `None` if it is new.
    ///
    /// A different number makes a lesson new; from a person, so does a different name or a negation. `more` is
    /// what the lesson says besides its title.
    pub(crate) fn repetition(&self, title: &str, more: &str, by_human: bool) -> Option<String> {
        let lesson = words(title);
        let limit = if by_human { REPEATED_SHARE_HUMAN } else { REPEATED_SHARE_MODEL };
        let is_contained = |text: &str| match by_human {
            true => {
                value::missing_value(title, text).is_none()
                    && value::missing_number(more, text).is_none()
                    && !is_denied(title, &lesson, text)
            }
            false => value::missing_number(title, text).is_none(),
        };
        let (_, text) =
            self.0.iter().find(|(words, text)| share_of(&lesson, words) >= limit && is_contained(text))?;
        let text = one_line(text, QUOTED_CHARS_MAX);
        let text = text.trim_start_matches(['-', '>', '#', ' ']);
        Some(format!("it repeats what was recalled: \"{text}\""))
    }
}

/// Whether the line of a text that overlaps most with a lesson denies it, or says it the other way round.
///
/// Other lines, and the reason within the line, may contain an unrelated "not".
fn is_denied(title: &str, lesson: &Words, text: &str) -> bool {
    let line =
        text.lines().max_by(|a, b| share_of(lesson, &words(a)).total_cmp(&share_of(lesson, &words(b))));
    let line = line.map_or("", |line| sentences::split_reason(line).0);
    value::is_negative(title) != value::is_negative(line) || opposed::contradicts(title, line)
}

/// Whether two titles state the same lesson.
///
/// They do not if each has a value that the other lacks, or if one contradicts the other.
pub(crate) fn is_same_lesson(one: &str, other: &str) -> bool {
    let (words_one, words_other) = (words(one), words(other));
    let (shorter, longer) = match words_one.len() < words_other.len() {
        true => (&words_one, &words_other),
        false => (&words_other, &words_one),
    };
    shorter.len() >= 3
        && share_of(shorter, longer) >= SAME_LESSON_SHARE
        && (value::missing_value(one, other).is_none() || value::missing_value(other, one).is_none())
        && !opposed::contradicts(one, other)
}

fn words(text: &str) -> Words {
    sentences::content_words(text).into_iter().collect()
}

/// The share of the words of `part` that `all` contains.
fn share_of(part: &Words, all: &Words) -> f64 {
    if part.is_empty() { 0.0 } else { part.intersection(all).count() as f64 / part.len() as f64 }
}
