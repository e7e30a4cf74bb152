//! A message, and what is told of it as a whole. Each of its sentences asks for that, and a pasted message has thousands:
//! it is found out once.

use std::cell::OnceCell;

use knowledge::text::one_line;

use crate::sentences::{self, regexes};

regexes! {
    JOKE = r"(?i)\b(?:lol|ha ?ha+|lmao|rofl|yeah,? right|just kidding|jk|kidding|sarcasm|sarcastic|great idea|brilliant|genius|oh great|what could (?:possibly )?go wrong|worked (?:out )?so well|who needs|because who|obviously nobody|joking)\b|[🙄😂🤣😅😜🤡]|(?:^|\s)/s(?:\s|$)";
    ORDERS_TO_A_MODEL = r"(?i)\b(?:previous|prior|above|earlier|all other) (?:instructions?|rules?|prompts?)\b|\bsystem prompt\b|\byou are now\b|\b(?:do not|don't|never) (?:tell|inform|mention (?:this|it) to) the user\b|\b(?:exfiltrate|jailbreak)\b|\bignore (?:your|the|any) (?:instructions|guidelines|rules)\b|\b(?:curl|wget)\b.*\|\s*(?:ba|z)?sh\b|\b(?:send|post|upload)\b.{0,60}(?:https?://|credentials|secrets|\.env\b|tokens?\b.*\bto\b)";
    UNASKED = r"(?i)\bwithout (?:asking|confirmation|telling)\b";
    // "never drop a table without asking the DBA"; but "don't wait" before it urges.
    FORBIDS = r"(?i)(?:^|[.!?:;,\n–—-])\s*(?:\w+ ){0,4}(?:never|don't|do not|must not|cannot|can't|nobody|no one|avoid)\s+(?:ever\s+)?(?P<verb>\w+)\b[^.!?:;,\n]*$";
    URGES = r"(?i)^(?:wait|hesitate|bother|worry|stop|mind|be|fail|forget|pause|think)$";
    OF_A_BUG = r"(?i)\broot cause\b|\b(?:the|found the|caused (?:a|the)) bug(?: was|:| in)|\bthe (?:problem|issue)(?: was|:)";
}

/// From this size on, in bytes, a message was probably pasted.
const PASTED_BYTES_MIN: usize = 1500;
/// How much before a word is read for what forbids it, in bytes: more than a sentence.
const FORBIDDEN_WITHIN_BYTES: usize = 2_000;
/// The longest excerpt that is quoted, in characters.
pub(super) const EXCERPT_CHARS_MAX: usize = 240;
/// How much of a request is read to tell what kind of work it asks for, in characters.
pub(super) const TASK_CHARS_MAX: usize = 300;

/// A message, or a section of a plan.
pub(super) struct Message<'a> {
    pub(super) text: &'a str,
    is_joke: OnceCell<bool>,
    orders_a_model: OnceCell<bool>,
    is_of_a_bug: OnceCell<bool>,
    quotation: OnceCell<Option<String>>,
    task: OnceCell<String>,
    plain_lines: OnceCell<Vec<String>>,
}

impl<'a> Message<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            is_joke: OnceCell::new(),
            orders_a_model: OnceCell::new(),
            is_of_a_bug: OnceCell::new(),
            quotation: OnceCell::new(),
            task: OnceCell::new(),
            plain_lines: OnceCell::new(),
        }
    }

    pub(super) fn is_joke(&self) -> bool {
        *self.is_joke.get_or_init(|| JOKE.is_match(self.text))
    }

    /// Whether it has what instructs a model behind people's backs. To forbid what nobody was asked about is a rule.
    pub(super) fn orders_a_model(&self) -> bool {
        *self.orders_a_model.get_or_init(|| {
            let text = self.text.replace('’', "'");
            ORDERS_TO_A_MODEL.is_match(&text)
                || UNASKED.find_iter(&text).any(|found| !is_forbidden(&text[..found.start()]))
        })
    }

    pub(super) fn is_pasted(&self) -> bool {
        self.text.len() > PASTED_BYTES_MIN
    }

    /// Whether it is a joke or an attempt to instruct the model.
    pub(super) fn is_no_statement(&self) -> bool {
        self.is_joke() || self.orders_a_model()
    }

    /// Whether it is pasted, a joke or an attempt to instruct the model.
    pub(super) fn is_untrustworthy(&self) -> bool {
        self.is_pasted() || self.is_no_statement()
    }

    /// Whether it tells of a bug. Few messages do.
    pub(super) fn is_of_a_bug(&self) -> bool {
        *self.is_of_a_bug.get_or_init(|| says_of_a_bug(self.text))
    }

    /// The whole message in a line, if it is short and plain.
    pub(super) fn quotation(&self) -> Option<&str> {
        let quotation = self.quotation.get_or_init(|| {
            let line = one_line(self.text, EXCERPT_CHARS_MAX + 1);
            let is_short = line.chars().count() <= EXCERPT_CHARS_MAX && sentences::is_plain_text(self.text);
            is_short.then_some(line)
        });
        quotation.as_deref()
    }

    /// The beginning of a request, which tells what kind of work it asks for.
    pub(super) fn task(&self) -> &str {
        self.task.get_or_init(|| one_line(self.text, TASK_CHARS_MAX))
    }

    /// Its lines without bullets and emphasis.
    pub(super) fn plain_lines(&self) -> &[String] {
        self.plain_lines.get_or_init(|| self.text.lines().map(sentences::plain_line).collect())
    }
}

/// Whether a text tells of a bug.
pub(super) fn says_of_a_bug(text: &str) -> bool {
    OF_A_BUG.is_match(text)
}

/// Whether what follows a text is forbidden in it.
fn is_forbidden(before: &str) -> bool {
    let near = &before[before.floor_char_boundary(before.len().saturating_sub(FORBIDDEN_WITHIN_BYTES))..];
    let verb = FORBIDS.captures(near).and_then(|found| found.name("verb"));
    verb.is_some_and(|verb| !URGES.is_match(verb.as_str()))
}
