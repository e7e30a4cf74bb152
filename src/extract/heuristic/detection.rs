//! A detected lesson, and how it becomes a candidate for review.

use knowledge::text::{one_line, strip_hidden};
use knowledge::{Candidate, Evidence, Rejected, UnitType};

use super::session::{Session, Utterance};
use super::vocabulary;
use crate::sentences::{self, regexes};

regexes! {
    ORDER = r"(?i)^(?:always|never|don't|do not|use|keep|prefer|avoid|stop|run|we|you|when|whenever|if|before|after|for)\b|\b(?:must|should|always|never)\b";
}

const TITLE_CHARS_MAX: usize = 120;
const EXCERPT_CHARS_MAX: usize = 240;

/// What the detectors found in one session.
#[derive(Default)]
pub(super) struct Detections {
    pub(super) found: Vec<Detection>,
    pub(super) rejected: Vec<Rejected>,
}

impl Detections {
    /// Records a statement that is not proposed, once.
    pub(super) fn reject(&mut self, statement: &str, reason: &str) {
        let title = one_line(statement, TITLE_CHARS_MAX);
        if !self.rejected.iter().any(|rejected| rejected.title == title) {
            self.rejected.push(Rejected { title, reason: reason.to_owned() });
        }
    }
}

/// A lesson, in the parts of its future unit.
pub(super) struct Detection {
    pub(super) kind: UnitType,
    /// One sentence that states the lesson.
    pub(super) title: String,
    /// The sentence in which it was found; compared with other detections and with recalled text.
    pub(super) statement: String,
    pub(super) by_human: bool,
    /// The description, where the other parts do not provide one.
    pub(super) summary: Option<String>,
    pub(super) when: Option<String>,
    pub(super) what_to_do: Option<String>,
    pub(super) why: Option<String>,
    /// The rejected alternative.
    pub(super) rejected: Option<String>,
    /// How it was learned, in one sentence; quotations follow it.
    pub(super) learned: String,
    pub(super) confidence: f64,
    /// The index of its event in the conversation.
    pub(super) event: usize,
    pub(super) evidence: Vec<Evidence>,
}

impl Detection {
    pub(super) fn into_candidate(self, session: &Session<'_>) -> Candidate {
        let title = make_title(&self.title);
        let body = self.body(session);
        let parts = [Some(&title), Some(&self.statement), self.what_to_do.as_ref(), self.why.as_ref()];
        let lesson = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("\n");
        let topic = vocabulary::classify(&lesson, &session.nearby(self.event));
        Candidate {
            description: self.description(&title),
            kind: self.kind,
            domain: topic.domain.to_owned(),
            title,
            body,
            tags: topic.tags,
            confidence: self.confidence,
            related: Vec::new(),
            evidence: self.evidence,
            overlap: None,
        }
    }

    fn description(&self, title: &str) -> String {
        let sentence = match (&self.summary, &self.why) {
            (Some(summary), _) => upper_first(summary),
            // The title is the beginning of the reason: do not repeat it.
            (None, Some(why)) if first_line(why).starts_with(title.trim_end_matches('…')) => {
                first_line(why).to_owned()
            }
            (None, Some(why)) if why.starts_with("Otherwise") => {
                format!("{title}; {}", lower_first(first_line(why)))
            }
            (None, Some(why)) if self.kind != UnitType::Bug => {
                format!("{title}, because {}", lower_first(first_line(why)))
            }
            _ if self.by_human => format!("{title}; the user stated it as a {}", self.kind),
            _ => format!("{title}; stated in a session without a reason"),
        };
        format!("{}.", one_line(&sentence, 280).trim_end_matches(['.', ':', ';', ',']))
    }

    fn body(&self, session: &Session<'_>) -> String {
        let mut body = String::new();
        let mut section = |heading: &str, text: Option<&str>| {
            if let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) {
                body.push_str(&format!("## {heading}\n\n{}\n\n", strip_hidden(text)));
            }
        };
        let project = session.conversation.project.as_deref();
        let scope = project.map(|project| {
            format!("Stated in work on `{}`; judge whether it holds elsewhere.", project.replace('`', "'"))
        });
        section("When it applies", self.when.as_deref().map(as_sentence).as_deref().or(scope.as_deref()));
        let is_fact = self.kind == UnitType::Belief && !ORDER.is_match(&self.title);
        section(
            if is_fact { "What holds" } else { "What to do" },
            self.what_to_do.as_deref().map(as_sentence).as_deref(),
        );
        section(
            "Why",
            Some(
                self.why
                    .as_deref()
                    .map_or("The session gives no reason in so many words.".to_owned(), as_sentence)
                    .as_str(),
            ),
        );
        section("What was rejected", self.rejected.as_deref().map(as_sentence).as_deref());
        let quotes: Vec<String> =
            self.evidence.iter().take(3).map(|evidence| format!("> {}", evidence.excerpt)).collect();
        let learned = format!("{}\n\n{}", as_sentence(&self.learned), quotes.join("\n>\n"));
        section("How it was learned", Some(&learned));
        body.trim_end().to_owned()
    }
}

impl Session<'_> {
    /// The commands and edited files within eight events, used to guess the topic.
    fn nearby(&self, event: usize) -> String {
        let near = |at: usize| at.abs_diff(event) <= 8;
        let commands = self.runs.iter().filter(|run| near(run.event)).map(|run| run.command);
        let files = self.edits.iter().filter(|edit| near(edit.event)).map(|edit| edit.file);
        commands.chain(files).collect::<Vec<_>>().join("\n")
    }
}

/// Evidence: the uuid of a transcript line, and an excerpt of at most 240 characters.
pub(super) fn evidence_at(line: &str, excerpt: &str) -> Evidence {
    Evidence { line: line.to_owned(), excerpt: one_line(excerpt, EXCERPT_CHARS_MAX) }
}

/// Quotes a sentence, or a person's whole message if it is short: the rest of it often explains a rule.
pub(super) fn quote_utterance(utterance: &Utterance<'_>) -> Evidence {
    let message = one_line(utterance.message, EXCERPT_CHARS_MAX + 1);
    let short = message.chars().count() <= EXCERPT_CHARS_MAX && sentences::is_plain_text(utterance.message);
    if utterance.by_human && short {
        evidence_at(utterance.line, &message)
    } else {
        evidence_at(utterance.line, &utterance.sentence.text)
    }
}

/// Turns a statement into a title: capitalised, without final punctuation, and cut at the end of a clause
/// if it is too long.
pub(super) fn make_title(statement: &str) -> String {
    let mut text = one_line(statement, 400);
    if text.chars().count() > TITLE_CHARS_MAX {
        let limit = text.char_indices().nth(TITLE_CHARS_MAX).map_or(text.len(), |(at, _)| at);
        const ENDS: [&str; 10] =
            [" because ", "; ", " — ", " – ", ", ", " which ", " since ", ". ", " (", " while "];
        // Ignore positions inside code.
        let ends = ENDS.iter().flat_map(|end| text[..limit].match_indices(end)).map(|(at, _)| at);
        let outside = ends.filter(|&at| at >= 30 && text[..at].matches('`').count().is_multiple_of(2));
        if let Some(at) = outside.max() {
            text.truncate(at);
        }
    }
    let mut text = one_line(&text, TITLE_CHARS_MAX);
    if let Some(at) = text.rfind('`')
        && text.ends_with('…')
        && !text.matches('`').count().is_multiple_of(2)
    {
        text.truncate(at);
        text.truncate(text.trim_end().len());
        text.push('…');
    }
    upper_first(text.trim_matches(['.', ',', ';', ':', '!', '?', ' ', '—', '–']))
}

/// Capitalises a text, unless it begins with a name.
pub(super) fn upper_first(text: &str) -> String {
    // A name at the start keeps its case: `io-ts`, `utf8`, `main.rs`.
    let first =
        text.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ':', ';', '.', '\'']);
    if first.contains(|c: char| !c.is_alphabetic() && c != '\'') {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Makes the first letter lower case, unless it begins an acronym.
pub(super) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let second_is_lower = text.chars().nth(1).is_some_and(|c| c.is_lowercase() || c == ' ');
    match chars.next() {
        Some(first) if second_is_lower => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches(['.', ':'])
}

/// Capitalises a text and ends it with a full stop where it needs one.
pub(super) fn as_sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty()
        || text.ends_with(['.', '!', '?', '`', ':']) && !text.ends_with('`')
        || text.ends_with("```")
    {
        upper_first(text)
    } else {
        format!("{}.", upper_first(text.trim_end_matches([',', ';'])))
    }
}
