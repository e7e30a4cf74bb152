//! A detected lesson, and how it becomes a candidate for review.

use knowledge::text::{one_line, strip_hidden};
use knowledge::{Candidate, Evidence, Rejected, UnitType};

use super::message::EXCERPT_CHARS_MAX;
use super::session::{Session, Utterance};
use super::standalone::{self, informs};
use super::wording::{as_sentence, upper_first};
use super::{vocabulary, wording};
use crate::filter::REJECTED_MAX;
use crate::sentences;

const TITLE_CHARS_MAX: usize = 120;
const QUOTES_MAX: usize = 2;
/// How many words the sentences around a statement must add to be quoted.
const CONTEXT_WORDS_MIN: usize = 4;

/// Why a statement is left out whose title would lack an exception, or an order against it.
pub(super) const EXCEPTION_IN_REASON: &str = "its reason goes on with an exception or an order";

/// What the detectors found in one session.
#[derive(Default)]
pub(super) struct Detections {
    pub(super) found: Vec<Detection>,
    pub(super) rejected: Vec<Rejected>,
}

impl Detections {
    /// Records a statement that is not proposed, once.
    pub(super) fn reject(&mut self, statement: &str, reason: &str) {
        // No more are told.
        if self.rejected.len() >= REJECTED_MAX {
            return;
        }
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
    /// What happened in the session that shows it, in one sentence.
    pub(super) shown_by: Option<String>,
    pub(super) confidence: f64,
    /// Which detector found it; a feature of the scorer.
    pub(super) detector: &'static str,
    /// The index of its event in the conversation.
    pub(super) event: usize,
    /// The index of the sentence that states it.
    pub(super) utterance: Option<usize>,
    pub(super) evidence: Vec<Evidence>,
}

impl Detection {
    /// Whether it was said in a form that is nearly always meant: "Decision: …", and by a person "from now on …",
    /// "let's go with …" or an answer to a question.
    pub(super) fn is_set_phrase(&self) -> bool {
        self.detector == "labelled decisions"
            || self.by_human && matches!(self.detector, "rules" | "decisions" | "choices")
    }

    pub(super) fn into_candidate(mut self, session: &Session<'_>) -> Candidate {
        let title = make_title(&wording::title(&make_title(&self.title)));
        let context = self.context(session);
        // Each fact once.
        let says_more = |why: &String| !wording::says(&title, why) && wording::is_reason(why, self.by_human);
        self.why = self.why.filter(says_more);
        let description = self.description(&title, context.as_deref(), session);
        // What follows a statement seldom says why it holds, and a reason that is quoted need not stand above the quotation.
        let is_reason = |why: &String| self.detector != "statements" || wording::says(&self.statement, why);
        let is_quoted = |why: &str| context.as_deref().is_some_and(|context| wording::says(context, why));
        self.why = self.why.take().filter(|why| is_reason(why) && !is_quoted(first_line(why)));
        let body = self.body(session, &title, context.as_deref());
        let parts = [Some(&title), Some(&self.statement), self.what_to_do.as_ref(), self.why.as_ref()];
        let lesson = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("\n");
        let topic = vocabulary::classify(&lesson, &session.nearby(self.event));
        let kind = match self.detector {
            "statements" | "causes" => wording::kind(self.kind, self.by_human, &title, &self.statement),
            _ => self.kind,
        };
        Candidate {
            description,
            kind,
            domain: topic.domain.to_owned(),
            title,
            body,
            tags: topic.tags,
            confidence: self.confidence,
            related: Vec::new(),
            evidence: self.evidence,
            overlap: None,
            source: None,
        }
    }

    /// What the fine-tuned model reads: who said it, the lesson, its reason and the words around it.
    pub(super) fn text(&self, session: &Session<'_>) -> String {
        let mut text =
            format!("{}: {}", if self.by_human { "user" } else { "assistant" }, make_title(&self.title));
        if let Some(why) = &self.why {
            text.push_str(&format!(" because {}", why.trim()));
        }
        if let Some(context) = self.context(session) {
            text.push_str(&format!(" | {context}"));
        }
        text
    }

    /// One sentence beside the title: the summary, the reason, the context or what is said before or after it. Nothing of
    /// it is in the title.
    fn description(&self, title: &str, context: Option<&str>, session: &Session<'_>) -> String {
        let words = |text: &str| text.split_whitespace().count();
        // A title that was cut is repeated, with what was cut.
        let adds = |text: &&str| {
            !wording::says(title, text)
                && (!wording::says(text, title) || words(text) >= words(title) + CONTEXT_WORDS_MIN)
        };
        let why = self.why.as_deref().map(first_line);
        let in_context = || context.and_then(|text| other_sentence(text, &self.statement)).filter(adds);
        let sentence = self.summary.as_deref().or(why).filter(adds).or_else(in_context);
        let Some(sentence) = sentence.or_else(|| self.neighbour(session).filter(adds)) else {
            return String::new();
        };
        format!("{}.", one_line(&upper_first(sentence), 280).trim_end_matches(['.', ':', ';', ',']))
    }

    /// The sentence after or before the statement, if it is about one of the same things.
    fn neighbour<'s>(&self, session: &'s Session<'_>) -> Option<&'s str> {
        let at = self.utterance?;
        let words = sentences::content_words(&self.statement);
        [Some(at + 1), at.checked_sub(1)].into_iter().flatten().find_map(|beside| {
            let beside = session.utterances.get(beside).filter(|beside| beside.event == self.event)?;
            let text = beside.sentence.text.as_str();
            let shares_words = sentences::content_words(text).iter().any(|word| words.contains(word));
            let is_said = !beside.sentence.is_question && !sentences::is_hedged(text);
            wording::beside(text).filter(|_| shares_words && is_said)
        })
    }

    fn body(&self, session: &Session<'_>, title: &str, context: Option<&str>) -> String {
        let mut body = String::new();
        let mut section = |heading: &str, text: Option<&str>| {
            if let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) {
                body.push_str(&format!("## {heading}\n\n{}\n\n", strip_hidden(text)));
            }
        };
        section("When it applies", self.when.as_deref().map(as_sentence).as_deref());
        let what = self.what_to_do.as_deref().filter(|what| !wording::says(title, what));
        let heading = if self.detector == "choices" { "What was chosen" } else { "What to do" };
        section(heading, what.map(as_sentence).as_deref());
        // A reason that repeats a cut title is quoted below.
        let why = self.why.as_deref().filter(|why| !wording::says(why, title));
        section("Why", why.map(as_sentence).as_deref());
        section("What was rejected", self.rejected.as_deref().map(as_sentence).as_deref());
        section("How it was learned", Some(&self.learned(session, context)));
        body.trim_end().to_owned()
    }

    /// Who said it where, what showed it, and the words around it.
    fn learned(&self, session: &Session<'_>, context: Option<&str>) -> String {
        let is_of_plan = self.utterance.is_some_and(|at| session.utterances[at].is_of_plan);
        let who = match (self.by_human, is_of_plan) {
            (true, _) => "The user said it",
            (_, true) => "The plan that the user approved says it",
            _ => "The assistant stated it",
        };
        let project = session.conversation.project.as_deref();
        let place =
            project.map_or(String::new(), |project| format!(" in work on `{}`", project.replace('`', "'")));
        let shown_by =
            self.shown_by.as_deref().map_or(String::new(), |shown_by| format!(" {}", as_sentence(shown_by)));
        let stated_in = self.utterance.map(|at| session.utterances[at].line);
        let others = self.evidence.iter().filter(|evidence| Some(evidence.line.as_str()) != stated_in);
        let around = || {
            let lines = session.utterances[self.utterance?].lines_around();
            self.adds_words(&lines.join(" ")).then(|| lines.join("\n> "))
        };
        let quote = context.map(|context| wording::quote(context, &self.statement)).or_else(around);
        let is_new = |excerpt: &&str| !quote.as_ref().is_some_and(|quote| wording::says(quote, excerpt));
        let others = others.map(|evidence| evidence.excerpt.as_str()).filter(is_new);
        let quotes: Vec<String> = quote
            .as_deref()
            .into_iter()
            .chain(others)
            .take(QUOTES_MAX)
            .map(|quote| format!("> {quote}"))
            .collect();
        format!("{who}{place}.{shown_by}\n\n{}", quotes.join("\n>\n"))
    }

    /// A person's short message, or the line that the statement is in.
    pub(super) fn paragraph(&self, session: &Session<'_>) -> Option<String> {
        session.utterances[self.utterance?].surroundings()
    }

    /// The sentences around the statement, if they say more than it.
    fn context(&self, session: &Session<'_>) -> Option<String> {
        self.paragraph(session).filter(|text| self.adds_words(text))
    }

    /// Whether a text says more than the statement.
    fn adds_words(&self, text: &str) -> bool {
        let said = [Some(&self.title), self.why.as_ref(), Some(&self.statement)];
        let said: Vec<String> =
            said.into_iter().flatten().flat_map(|part| sentences::content_words(part)).collect();
        let more = sentences::content_words(text).into_iter().filter(|word| !said.contains(word)).count();
        more >= CONTEXT_WORDS_MIN
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
    let whole = utterance.message.quotation().filter(|_| utterance.by_human);
    evidence_at(utterance.line, whole.unwrap_or(&utterance.sentence.text))
}

/// Whether a title is short enough to be read at a glance.
pub(super) fn fits_title(title: &str) -> bool {
    title.chars().count() <= TITLE_CHARS_MAX
}

/// Turns a statement into a title: capitalised, without final punctuation, and cut at the end of a clause
/// if it is too long. A title that stays too long is dropped later: half a sentence says nothing.
pub(super) fn make_title(statement: &str) -> String {
    let mut text = one_line(statement, 400);
    if text.chars().count() > TITLE_CHARS_MAX {
        let limit = text.char_indices().nth(TITLE_CHARS_MAX).map_or(text.len(), |(at, _)| at);
        // Not at ", but": what follows is the point.
        const ENDS: [&str; 10] = [
            " because ",
            "; ",
            " — ",
            " – ",
            ". ",
            ", so ",
            ", while ",
            ", which ",
            ", and ",
            ", otherwise ",
        ];
        // Ignore positions inside code.
        let ends = ENDS.iter().flat_map(|end| text[..limit].match_indices(end)).map(|(at, _)| at);
        let outside = ends.filter(|&at| at >= 30 && text[..at].matches('`').count().is_multiple_of(2));
        if let Some(at) = outside.max() {
            text.truncate(at);
        }
    }
    upper_first(text.trim_matches(['.', ',', ';', ':', '!', '?', ' ', '—', '–']))
}

/// The longest sentence of a text besides a statement that says something. Only the next one may begin with "it" or the like.
fn other_sentence<'t>(text: &'t str, statement: &str) -> Option<&'t str> {
    let is_of_statement = |sentence: &str| statement.contains(sentence) || sentence.contains(statement);
    let sentences: Vec<&str> =
        text.split(". ").map(|sentence| sentence.trim_end_matches(['.', ' '])).collect();
    let follows = |at: usize| at.checked_sub(1).is_some_and(|before| is_of_statement(sentences[before]));
    sentences
        .iter()
        .enumerate()
        .filter(|(_, sentence)| !is_of_statement(sentence))
        .filter(|(_, sentence)| sentence.split_whitespace().count() >= 6 && !sentence.ends_with(['?', ':']))
        .filter(|(at, sentence)| informs(sentence) && (follows(*at) || !standalone::refers_back(sentence)))
        .map(|(_, sentence)| *sentence)
        .max_by_key(|sentence| sentence.len())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches(['.', ':'])
}
