//! Makes the memories of a session.

use archive::{NewMemory, Said};
use extract::find_injection;
use jiff::Timestamp;
use knowledge::text::{canonical, one_line};
use transcript::redact::redact;

use crate::summary::summarize;
use crate::topics::topics;

/// From this cosine of two summaries on they say the same. Of 5,229 pairs of memories from different sessions of one
/// project all six above say the same, and of the next five (.80 to .71) none does.
pub const SAME_COSINE: f64 = 0.85;

/// The most memories of one session.
const MEMORIES_MAX: usize = 12;
/// How much of a prompt and of an answer is kept as the original words.
const WORDS_CHARS_MAX: usize = 600;

/// The memories of a session, in order; without vectors. Topics that say little, or in which something gives orders to
/// a reader, have none.
pub fn memories_of(said: &[Said]) -> Vec<NewMemory> {
    let mut found: Vec<NewMemory> = Vec::new();
    for topic in topics(said) {
        let topic = &said[topic];
        let Some(summary) = summarize(topic) else { continue };
        let text = redact(&summary.text).into_owned();
        let asked = summary.wanted.map(|at| &topic[at]);
        let answer = &topic[summary.found];
        let line =
            |who: &str, said: &Said| format!("{who}: {}", one_line(&redact(&said.text), WORDS_CHARS_MAX));
        let lines: Vec<String> =
            asked.map(|said| line("user", said)).into_iter().chain([line("assistant", answer)]).collect();
        let dialogue = lines.join("\n");
        let is_known = found.iter().any(|known| canonical(&known.summary) == canonical(&text));
        if is_known || find_injection(&text).is_some() || find_injection(&dialogue).is_some() {
            continue;
        }
        found.push(NewMemory {
            summary: text,
            dialogue,
            turns: asked.into_iter().chain([answer]).map(|said| said.message).collect(),
            at: topic.iter().rev().find_map(|said| said.at).unwrap_or(Timestamp::UNIX_EPOCH),
            vector: None,
        });
    }
    // Of a long session the last ones: they are what it ended with.
    found.split_off(found.len().saturating_sub(MEMORIES_MAX))
}
