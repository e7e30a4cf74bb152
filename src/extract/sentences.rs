//! Splits a message into the sentences that its author wrote, and analyses them.
//!
//! Code, logs, diffs, tables, quotations and pasted documents are left out: a rule in them was not stated in
//! this session.

use std::borrow::Cow;

use knowledge::markdown::without_emphasis;
use knowledge::text::{self, stem};

/// A sentence of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The text without bullets, emphasis and final punctuation.
    pub text: String,
    /// Whether it asks.
    pub is_question: bool,
    /// Whether it begins an entry of a list.
    pub is_list_item: bool,
}

/// Declares regular expressions that are compiled at their first use.
macro_rules! regexes {
    ($($name:ident = $pattern:expr;)+) => {
        $(static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($pattern).expect("a constant expression"));)+
    };
}
pub(crate) use regexes;

regexes! {
    // A time, a level, a frame of a stack, a diff, a prompt, a compiler's gutter.
    LOG_LINE = r#"^\s*(?:\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|\[?(?:INFO|WARN|WARNING|ERROR|DEBUG|TRACE|FATAL)\b|at \S+ ?\(|File "|Traceback|\$ |% |❯ |\+\+\+ |--- |@@ |\d+ *\||-->|[├└│]|#\d+ |E   |npm (?:ERR|warn)|[\w./-]+:\d+(?::\d+)?:)"#;
    CODE_LINE = r"(?:[;{}]|=>|\)\s*:)\s*$|^\s*(?:import|from \S+ import|const|let|var|def|class|fn|func|pub|return|SELECT|CREATE|ALTER|INSERT|UPDATE) .*[=;({]";
    // Announces a quotation in the next lines.
    QUOTES_NEXT = r"(?i)\b(?:docs?|documentation|readme|article|blog|post|wiki|guide|manual|handbook|style ?guide|log|logs|output|trace|stack ?trace|error|message|issue|ticket|e-?mail|slack|thread|comment|reviewer|spec|rfc|changelog|paste|pasted|quote|transcript|prompt|page|site|template)\b[^.!?]{0,60}:\s*$";
    SAYS = r#"(?i)\b(?:says?|said|reads|states?|tells?|told|claims?|recommends?|suggests?|wrote|writes)\b[^"]{0,20}"|["“][^"”]{12,}["”]"#;
    BULLET = r"^\s*(?:[-*+•]|\d{1,2}[.)]|#{1,6})\s+";
    ASKS = r"(?i)^(?:should|could|can|shall|would|do|does|did|is|are|was|were|why|how|what|which|who|will|may|any idea|wdyt|isn't|aren't|don't (?:we|you))\b";
    ABBREVIATIONS = r"(?i)(?:^|[\s(])(?:e\.g|i\.e|vs|etc|cf|approx|resp|incl|no|fig|st|dr|mr|ms)\.$";
}

/// The sentences of a message, without code, logs, quotations and pasted text.
pub fn split_sentences(message: &str, by_human: bool) -> Vec<Sentence> {
    let lines: Vec<&str> = message.lines().collect();
    let foreign = lines.iter().filter(|line| is_foreign_line(line)).count();
    // Mostly pasted text, perhaps with an introduction in the first line.
    let pasted = lines.len() >= 6 && foreign * 2 > lines.len();
    let mut found = Vec::new();
    let (mut fenced, mut quoting) = (false, false);
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        // A person's quotation is taken to extend to the end of the message, a model's to the end of the paragraph.
        if trimmed.is_empty() && !by_human && at > 0 && !lines[at - 1].trim_end().ends_with(':') {
            quoting = false;
        }
        if fenced || quoting || trimmed.is_empty() || is_foreign_line(line) || pasted && at > 0 {
            continue;
        }
        quoting = QUOTES_NEXT.is_match(trimmed);
        let first = found.len();
        found.extend(split_line(&plain_line(line)));
        if let Some(sentence) = found.get_mut(first) {
            sentence.is_list_item = BULLET.is_match(line);
        }
    }
    found
}

/// A line without its bullet, number or mark of a heading.
pub(crate) fn without_bullet(line: &str) -> Cow<'_, str> {
    BULLET.replace(line, "")
}

/// The same without emphasis.
pub(crate) fn plain_line(line: &str) -> String {
    without_emphasis(without_bullet(line).trim()).replace(['’', '‘'], "'")
}

/// Whether a message is short and has no code, log or quotation.
pub(crate) fn is_plain_text(message: &str) -> bool {
    message.lines().count() <= 3 && !message.contains("```") && !message.lines().any(is_foreign_line)
}

fn is_foreign_line(line: &str) -> bool {
    let indented = line.starts_with("    ") || line.starts_with('\t');
    line.trim_start().starts_with(['>', '|'])
        || indented && !BULLET.is_match(line)
        || LOG_LINE.is_match(line)
        || CODE_LINE.is_match(line)
}

fn split_line(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (sentence, after) = rest.split_at(sentence_end(rest));
        sentences.extend(parse_sentence(sentence));
        rest = after;
    }
    sentences
}

/// Where the first sentence of a line ends: not in code, and not at an abbreviation.
pub(crate) fn sentence_end(text: &str) -> usize {
    let mut in_code = false;
    for (at, c) in text.char_indices() {
        match c {
            '`' => in_code = !in_code,
            '.' | '!' | '?' if !in_code => {
                let end = at + 1;
                let stops = text[end..].starts_with(|c: char| c.is_ascii_whitespace());
                if stops && !ABBREVIATIONS.is_match(&text[..end]) {
                    return end;
                }
            }
            _ => {}
        }
    }
    text.len()
}

fn parse_sentence(text: &str) -> Option<Sentence> {
    let text = text.trim();
    if SAYS.is_match(text) {
        return None;
    }
    let is_question = text.ends_with('?') || text.ends_with("?)") || ASKS.is_match(text);
    let text = text.trim_end_matches(['.', '!', '?', ':', ' ', '…']).trim();
    (text.split_whitespace().count() >= 3).then(|| Sentence {
        text: text.to_owned(),
        is_question,
        is_list_item: false,
    })
}

regexes! {
    REASON = r"(?i)(?:,\s*|\s+|\s[—–-]+\s)(?:because|since|so that|given that|due to the fact that)\s+(?P<reason>\S.{8,})$";
    OTHERWISE = r"(?i)(?:,\s*|;\s*|\s[—–-]+\s)(?P<reason>(?:or else|otherwise|sonst|sinon|si no)\s+\S.{8,})$";
    DASHED = r"\s[—–]\s(?P<reason>(?:it|they|that|the|this|we|our|otherwise|because)\b.{12,})$";
    TURNS = r"(?i);\s*(?:but |so |then )?(?:please )?(?:use|do|run|call|keep|take) (?:it|them|this|that|those|these|so)\b|\bbut (?:not|never|only|always|do|don't|please|use)\b|\bexcept\b|,\s*(?:unless|apart from|other than)\b";
    GIVES_REASON = r"(?i)^(?:because|otherwise|since|the reason|that way|this way|it|that|they|this|last time|we (?:had|got|lost|were|once|already)|without (?:it|that|this)|reason:|why:)\b";
    REASON_WORD = r"(?i)^(?:because|since|the reason is(?: that)?|reason:|why:|that's because|it's because)\s*";
    HEDGED = r"(?i)\b(?:might|may be|maybe|perhaps|probably|likely|could be|i think|i suspect|i guess|i believe|seems?|seemingly|possibly|not sure|unsure|hypothes[ie]s|presumably|my theory|let me|let's (?:check|see|look)|if (?:it|that|this) (?:is|was))\b";
}

/// Splits a statement from the reason at its end.
pub(crate) fn split_reason(text: &str) -> (&str, Option<&str>) {
    for expression in [&REASON, &OTHERWISE, &DASHED] {
        if let Some(found) = expression.captures(text)
            && let (Some(matched), Some(reason)) = (found.get(0), found.name("reason"))
            && matched.start() >= 8
        {
            return (text[..matched.start()].trim_end_matches([',', ' ', ';']), Some(reason.as_str()));
        }
    }
    (text, None)
}

/// Whether a reason goes on with an exception or an order, which belongs to the statement before it: "because it is slow; use
/// it for reports", "because auditors read it, except for release branches".
pub(crate) fn turns(reason: &str) -> bool {
    TURNS.is_match(reason)
}

/// The reason that a sentence gives for the previous one, without its conjunction.
pub(crate) fn reason_in(next: &Sentence) -> Option<String> {
    (!next.is_question && GIVES_REASON.is_match(&next.text) && !HEDGED.is_match(&next.text))
        .then(|| REASON_WORD.replace(&next.text, "").into_owned())
}

/// Whether a text expresses a guess.
pub(crate) fn is_hedged(text: &str) -> bool {
    HEDGED.is_match(text)
}

fn is_stop_word(word: &str) -> bool {
    text::is_stop_word(word) || PROSE_WORDS.contains(&format!(" {word} "))
}

/// Stop words of prose besides [`text::is_stop_word`].
const PROSE_WORDS: &str = " a always aren't can't decided decision doesn't don't done i instead isn't lets made make makes more \
    most needs never now per rather use used uses using via won't ";

/// The words of a text without stop words, in lower case and stemmed.
pub(crate) fn content_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_')
        .filter(|word| word.len() > 1 && !is_stop_word(word))
        .map(stem)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(message: &str) -> Vec<String> {
        split_sentences(message, true).into_iter().map(|sentence| sentence.text).collect()
    }

    #[test]
    fn only_the_authors_own_words_remain() {
        let check = |message: &str, expected: &[&str]| assert_eq!(texts(message), expected, "{message}");
        check(
            "Use `a.b` first. Then run it, e.g. with care!",
            &["Use `a.b` first", "Then run it, e.g. with care"],
        );
        check("see below\n```\nalways panic here\n```\ndone with that", &["done with that"]);
        check("> always quote the others\nmy own words here", &["my own words here"]);
        check("The docs say:\nAlways restart the daemon.\n\nNever look back.", &["The docs say"]);
        check("2026-01-01 ERROR always retry\nit broke again today", &["it broke again today"]);
        check("The linter says \"never use var here please\" again.", &[]);
        check("let x = always_true();\n- keep this short one", &["keep this short one"]);
    }

    #[test]
    fn only_emphasis_is_removed() {
        let check = |message: &str, expected: &str| assert_eq!(texts(message), [expected]);
        check("**Never** open __more than__ that.", "Never open more than that");
        check("- **Never open more than that.**", "Never open more than that");
        check("**Note:** (**never**) open “**more**” than *that*", "Note: (never) open “more” than that");
        check("**Use `a` first**, then `b`", "Use `a` first, then `b`");
        for kept in [
            "never open more than 2**16 sockets",
            "never open 2**16 sockets or 2**8 files",
            "never name a folder __tests__ or __mocks__ here",
            "never run `pytest tests/**/test_*.py` or `**kwargs**` here",
            "never lint tests/**/a.py and src/**/b.py together",
            "pass *args and **kwargs as they are, *always",
            "take 2 * 3 * 4 as the size",
        ] {
            check(kept, kept);
        }
    }

    #[test]
    fn questions_are_recognised() {
        let asked =
            |text: &str| split_sentences(text, true).first().is_some_and(|sentence| sentence.is_question);
        assert!(asked("should we always use uuid keys"));
        assert!(asked("we always squash, right?"));
        assert!(!asked("we always squash merges"));
    }
}
