//! A conversation prepared for the detectors: sentences, commands with their results, and edits.

use knowledge::text::one_line;
use transcript::{Conversation, EventKind};

use crate::sentences::{self, Sentence};
use crate::tool_output::reports_failure;

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
    /// The complete message.
    pub(super) message: &'a str,
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
        if self.by_human && self.message.len() <= CONTEXT_CHARS_MAX && sentences::is_plain_text(self.message)
        {
            return Some(one_line(self.message, CONTEXT_CHARS_MAX));
        }
        let plain = |line: &str| line.replace("**", "").replace("__", "").replace(['’', '‘'], "'");
        let line = self.message.lines().map(plain).find(|line| line.contains(&self.sentence.text))?;
        Some(one_line(line.trim_start_matches(['-', '*', '•', '#', ' ']), CONTEXT_CHARS_MAX))
    }
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
        let sentences = sentences::split_sentences(message, by_human);
        self.utterances.extend(sentences.into_iter().map(|sentence| Utterance {
            event,
            line,
            by_human,
            message,
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

    /// The next sentence of the same message.
    pub(super) fn next(&self, at: usize) -> Option<&Utterance<'a>> {
        self.utterances.get(at + 1).filter(|next| next.event == self.utterances[at].event)
    }
}
