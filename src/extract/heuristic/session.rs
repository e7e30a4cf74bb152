//! A conversation laid out for the detectors: what was said in sentences, which commands ran and how
//! they ended, which files were changed.

use transcript::{Conversation, EventKind};

use super::prose::{self, Sentence};

pub(super) struct Session<'a> {
    pub(super) conversation: &'a Conversation,
    pub(super) said: Vec<Said<'a>>,
    pub(super) runs: Vec<Run<'a>>,
    pub(super) edits: Vec<Edit<'a>>,
}

/// One sentence of somebody's.
pub(super) struct Said<'a> {
    pub(super) event: usize,
    /// The uuid of its line.
    pub(super) line: &'a str,
    pub(super) by_human: bool,
    /// The whole message that it is from.
    pub(super) message: &'a str,
    pub(super) sentence: Sentence,
}

/// A command and how it ended.
pub(super) struct Run<'a> {
    /// Where the call stands, and where its result.
    pub(super) event: usize,
    pub(super) ended: usize,
    pub(super) line: &'a str,
    pub(super) result_line: &'a str,
    pub(super) command: &'a str,
    pub(super) output: &'a str,
    pub(super) ok: bool,
}

pub(super) struct Edit<'a> {
    pub(super) event: usize,
    pub(super) line: &'a str,
    pub(super) file: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
}

impl<'a> Session<'a> {
    pub(super) fn of(conversation: &'a Conversation) -> Self {
        let mut session = Session { conversation, said: Vec::new(), runs: Vec::new(), edits: Vec::new() };
        for (at, event) in conversation.events.iter().enumerate() {
            let line = event.line.as_str();
            match &event.kind {
                EventKind::Human { text } => session.say(at, line, true, text),
                EventKind::Assistant { text } => session.say(at, line, false, text),
                EventKind::ToolCall { id, input, .. } => {
                    if let Some(command) = &input.command {
                        session.run(at, line, id, command);
                    } else if let (Some(file), Some(new)) = (&input.file, &input.new) {
                        let old = input.old.as_deref().unwrap_or_default();
                        session.edits.push(Edit { event: at, line, file, old, new });
                    }
                }
                EventKind::ToolResult { .. } => {}
            }
        }
        session
    }

    fn say(&mut self, event: usize, line: &'a str, by_human: bool, message: &'a str) {
        let sentences = prose::sentences(message, by_human);
        self.said.extend(sentences.into_iter().map(|sentence| Said {
            event,
            line,
            by_human,
            message,
            sentence,
        }));
    }

    fn run(&mut self, event: usize, line: &'a str, call: &str, command: &'a str) {
        let results = self.conversation.events.iter().enumerate().skip(event + 1);
        for (ended, result) in results {
            if let EventKind::ToolResult { id, ok, output, .. } = &result.kind
                && id == call
            {
                let ok = *ok && !reports_failure(output);
                let result_line = result.line.as_str();
                self.runs.push(Run { event, ended, line, result_line, command, output, ok });
                return;
            }
        }
    }

    /// The sentence of the same message that follows one.
    pub(super) fn next(&self, at: usize) -> Option<&Said<'a>> {
        self.said.get(at + 1).filter(|next| next.event == self.said[at].event)
    }
}

/// Whether an output tells of failure although the command ended well, as one piped into `tail` does.
pub(crate) fn reports_failure(output: &str) -> bool {
    const MARKS: [&str; 8] = [
        "test result: FAILED",
        "--- FAIL:",
        "npm ERR!",
        "Traceback (most recent call last)",
        "panicked at ",
        "error: could not compile",
        "Tests failed",
        "ELIFECYCLE",
    ];
    MARKS.iter().any(|mark| output.contains(mark))
        || output.lines().any(|line| line.starts_with("FAILED ") || line.starts_with("FAIL "))
}
