//! A conversation prepared for the detectors: sentences, commands with their results, and edits.

use std::rc::Rc;

use knowledge::text::one_line;
use transcript::{Conversation, EventKind, approved_plan};

use super::message::Message;
use super::standalone::informs;
use crate::notes::headings;
use crate::sentences::{self, Sentence, regexes};
use crate::tool_output::reports_failure;

regexes! {
    // What a plan is made for and what was decided in it; the other sections are steps.
    REASONS = r"(?i)\b(?:context|background|problems?|root causes?|why|rationale|motivation|decisions?|how it works|summary|overview|approach|constraints?|edge cases|caveats?|gotchas?|findings|insights?|current (?:state|behaviou?r)|assumptions|trade-?offs?|alternatives)\b";
    // What a plan says of the present is what it changes.
    PRESENT = r"(?i)\b(?:currently|current|today|at present|existing)\b";
    DENIES = r"(?ix)^\W*(?:no\b | nope\b | nah\b | nein\b | nee\b | nö\b | non(?:\s*[,.;:!—–]|\s*$) | that(?:'s|\ is|\ was)\ (?:wrong|not|incorrect) | wrong\b | incorrect | not\ (?:true|quite|exactly)
        | are\ you\ (?:sure|certain) | hmm+ | uhh+ | wait\b | i\ don'?t\ (?:think|understand|agree|believe|like) | i\ disagree | why\ not\b
        | still\ (?:fail|not|broken) | it\ (?:did|does)n'?t | (?:did|does)\ not\ work | you(?:'re|\ are)\ wrong | really\?)";
    TAKES_BACK = r"(?i)\b(?:i was (?:wrong|mistaken)|my (?:mistake|bad)|i take (?:that|it) back|on second thou?ghts?|changed my mind|(?:forget|scratch|ignore|disregard|strike|drop) (?:that|this|it|the|my)(?: last| first| previous)?(?: (?:rule|decision|idea|one)\b|\s*(?:[,.;:!—–-]|$)))";
    // Often about what the assistant has done.
    CORRECTS = r"(?i)\bi meant\b|\b(?:revert|undo) (?:that|this|it)\b|^\W*(?:(?:h+m+|no|oh|oops|wait|sorry)\b[\s,.!:—–-]*)*(?:wait|sorry|oops)\b";
    CALMS = r"(?i)^\W*no (?:problem|worries|rush)\b";
    STEP = r"(?i)^(?:step|phase|part|change|task)?\s*\d|`";
}

/// How much of a message is quoted around a sentence, in characters.
const CONTEXT_CHARS_MAX: usize = 600;

/// A conversation, split into what the detectors look at.
pub(super) struct Session<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) utterances: Vec<Utterance<'a>>,
    pub(super) runs: Vec<CommandRun<'a>>,
    pub(super) edits: Vec<Edit<'a>>,
}

/// One sentence of a message.
pub(super) struct Utterance<'a> {
    /// The index of its event in the conversation.
    pub(super) event: usize,
    /// The uuid of its line in the transcript.
    pub(super) line: &'a str,
    pub(super) by_human: bool,
    /// Whether it is of a plan that the model wrote and the person approved.
    pub(super) is_of_plan: bool,
    /// The complete message, or the section of the plan.
    pub(super) message: Rc<Message<'a>>,
    pub(super) sentence: Sentence,
}

/// A command and its result.
pub(super) struct CommandRun<'a> {
    /// The index of the call.
    pub(super) event: usize,
    /// The index of the result.
    pub(super) ended: usize,
    pub(super) line: &'a str,
    pub(super) result_line: &'a str,
    pub(super) command: &'a str,
    pub(super) output: &'a str,
    pub(super) ok: bool,
}

/// A change of a file: `old` was replaced by `new`.
pub(super) struct Edit<'a> {
    pub(super) event: usize,
    pub(super) line: &'a str,
    pub(super) file: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
}

impl Utterance<'_> {
    /// A short message as it is; of a long one the line that the sentence is in.
    pub(super) fn surroundings(&self) -> Option<String> {
        let message = self.message.text;
        if self.by_human && message.len() <= CONTEXT_CHARS_MAX && sentences::is_plain_text(message) {
            return Some(one_line(message, CONTEXT_CHARS_MAX));
        }
        let line = self.message.plain_lines().iter().find(|line| line.contains(&self.sentence.text))?;
        Some(one_line(line, CONTEXT_CHARS_MAX))
    }

    /// The line that the sentence is in, with the ones before and after it: the entry of a list is understood by the others.
    pub(super) fn lines_around(&self) -> Vec<String> {
        let lines = self.message.text.lines().zip(self.message.plain_lines());
        let lines: Vec<(&str, &String)> = lines.filter(|(line, _)| !line.trim().is_empty()).collect();
        let Some(at) = lines.iter().position(|(_, plain)| plain.contains(&self.sentence.text)) else {
            return Vec::new();
        };
        let near = &lines[at.saturating_sub(1)..(at + 2).min(lines.len())];
        let says =
            |line: &&String| line.contains(&self.sentence.text) || informs(line) && !line.ends_with('?');
        let near = near.iter().filter(|(line, _)| sentences::is_plain_text(line)).map(|(_, plain)| *plain);
        near.filter(says).map(|line| one_line(line, CONTEXT_CHARS_MAX / 2)).collect()
    }
}

/// The sections of a plan that give reasons and not steps.
fn reasons_of_plan(plan: &str) -> Vec<&str> {
    let starts: Vec<usize> = headings(plan).into_iter().map(|(at, ..)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([plan.len()]);
    let sections = starts.iter().zip(ends).filter_map(|(&start, end)| plan[start..end].split_once('\n'));
    let gives_reasons = |heading: &str| {
        let name = heading.trim_start_matches('#').trim_start();
        REASONS.is_match(name) && !STEP.is_match(name)
    };
    sections.filter(|(heading, _)| gives_reasons(heading)).map(|(_, text)| text).collect()
}

impl<'a> Session<'a> {
    /// Splits a conversation. Commands without a result are left out.
    pub(super) fn from_conversation(conversation: &'a Conversation) -> Self {
        let mut session =
            Session { conversation, utterances: Vec::new(), runs: Vec::new(), edits: Vec::new() };
        for (at, event) in conversation.events.iter().enumerate() {
            let line = event.line.as_str();
            match &event.kind {
                EventKind::Human { text } => session.add_message(at, line, true, text),
                EventKind::Assistant { text } => session.add_message(at, line, false, text),
                EventKind::ToolCall { id, input, .. } => {
                    if let Some(command) = &input.command {
                        session.add_run(at, line, id, command);
                    } else if let (Some(file), Some(new)) = (&input.file, &input.new) {
                        let old = input.old.as_deref().unwrap_or_default();
                        session.edits.push(Edit { event: at, line, file, old, new });
                    }
                }
                EventKind::Choice { .. } | EventKind::ToolResult { .. } => {}
            }
        }
        session
    }

    fn add_message(&mut self, event: usize, line: &'a str, by_human: bool, message: &'a str) {
        match approved_plan(message).filter(|_| by_human) {
            None => self.add_text(event, line, by_human, false, message),
            Some(plan) => reasons_of_plan(plan)
                .into_iter()
                .for_each(|section| self.add_text(event, line, false, true, section)),
        }
    }

    fn add_text(&mut self, event: usize, line: &'a str, by_human: bool, is_of_plan: bool, message: &'a str) {
        let mut sentences = sentences::split_sentences(message, by_human);
        sentences.retain(|sentence| !is_of_plan || !PRESENT.is_match(&sentence.text));
        let message = Rc::new(Message::new(message));
        self.utterances.extend(sentences.into_iter().map(|sentence| Utterance {
            event,
            line,
            by_human,
            is_of_plan,
            message: Rc::clone(&message),
            sentence,
        }));
    }

    fn add_run(&mut self, event: usize, line: &'a str, call: &str, command: &'a str) {
        let results = self.conversation.events.iter().enumerate().skip(event + 1);
        for (ended, result) in results {
            if let EventKind::ToolResult { id, ok, output, .. } = &result.kind
                && id == call
            {
                let ok = *ok && !reports_failure(output);
                let result_line = result.line.as_str();
                self.runs.push(CommandRun { event, ended, line, result_line, command, output, ok });
                return;
            }
        }
    }

    /// A person's next words after an event.
    fn answer(&self, event: usize) -> Option<&'a str> {
        self.conversation.events[event + 1..].iter().find_map(|event| match &event.kind {
            EventKind::Human { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Whether a person's next words after an event deny what the assistant has said.
    pub(super) fn is_denied(&self, event: usize) -> bool {
        self.answer(event).is_some_and(|answer| DENIES.is_match(answer) && !CALMS.is_match(answer))
    }

    /// Whether a person's next words after an event take back what they have stated in it.
    pub(super) fn is_taken_back(&self, event: usize, statement: &str) -> bool {
        let shares_words = |answer: &str| {
            let words = sentences::content_words(statement);
            sentences::content_words(answer).iter().any(|word| words.contains(word))
        };
        self.answer(event).is_some_and(|answer| {
            TAKES_BACK.is_match(answer) || CORRECTS.is_match(answer) && shares_words(answer)
        })
    }

    /// The next sentence of the same message.
    pub(super) fn next(&self, at: usize) -> Option<&Utterance<'a>> {
        self.utterances.get(at + 1).filter(|next| next.event == self.utterances[at].event)
    }
}
