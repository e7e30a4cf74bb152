//! Takes from a message what its author says in their own words, sentence by sentence.
//!
//! Code, logs, diffs, tables, quotations and pasted documents are other people's words: a rule that
//! stands in them was not given in this session.

use std::sync::LazyLock;

use regex::Regex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    /// Without bullets, emphasis and its closing full stop.
    pub(super) text: String,
    pub(super) question: bool,
}

/// A constant expression, compiled at its first use.
macro_rules! expression {
    ($($name:ident = $pattern:expr;)+) => {
        $(static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($pattern).expect("a constant expression"));)+
    };
}
pub(super) use expression;

expression! {
    // A time, a level, a frame of a stack, a diff, a prompt, a compiler's gutter.
    LOG_LINE = r#"^\s*(?:\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|\[?(?:INFO|WARN|WARNING|ERROR|DEBUG|TRACE|FATAL)\b|at \S+ ?\(|File "|Traceback|\$ |% |❯ |\+\+\+ |--- |@@ |\d+ *\||-->|[├└│]|#\d+ |E   |npm (?:ERR|warn)|[\w./-]+:\d+(?::\d+)?:)"#;
    CODE_LINE = r"(?:[;{}]|=>|\)\s*:)\s*$|^\s*(?:import|from \S+ import|const|let|var|def|class|fn|func|pub|return|SELECT|CREATE|ALTER|INSERT|UPDATE) .*[=;({]";
    // What announces somebody else's words.
    QUOTES_NEXT = r"(?i)\b(?:docs?|documentation|readme|article|blog|post|wiki|guide|manual|handbook|style ?guide|log|logs|output|trace|stack ?trace|error|message|issue|ticket|e-?mail|slack|thread|comment|reviewer|spec|rfc|changelog|paste|pasted|quote|transcript|prompt|page|site|template)\b[^.!?]{0,60}:\s*$";
    SAYS = r#"(?i)\b(?:says?|said|reads|states?|tells?|told|claims?|recommends?|suggests?|wrote|writes)\b[^"]{0,20}"|["“][^"”]{12,}["”]"#;
    BULLET = r"^\s*(?:[-*+•]|\d{1,2}[.)]|#{1,6})\s+";
    ASKS = r"(?i)^(?:should|could|can|shall|would|do|does|did|is|are|was|were|why|how|what|which|who|will|may|any idea|wdyt|isn't|aren't|don't (?:we|you))\b";
}

static ABBREVIATIONS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)(?:^|[\s(])(?:e\.g|i\.e|vs|etc|cf|approx|resp|incl|no|fig|st|dr|mr|ms)\.$")
        .expect("a constant expression")
});

pub(super) fn sentences(message: &str, by_human: bool) -> Vec<Sentence> {
    let lines: Vec<&str> = message.lines().collect();
    let foreign = lines.iter().filter(|line| is_foreign(line)).count();
    // Something pasted, perhaps with a word before it.
    let pasted = lines.len() >= 6 && foreign * 2 > lines.len();
    let mut found = Vec::new();
    let (mut fenced, mut quoting) = (false, false);
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        // A person's quotation goes on to the end of the message, for nobody closes one; a model's to
        // the end of the paragraph.
        if trimmed.is_empty() && !by_human && at > 0 && !lines[at - 1].trim_end().ends_with(':') {
            quoting = false;
        }
        if fenced || quoting || trimmed.is_empty() || is_foreign(line) || pasted && at > 0 {
            continue;
        }
        quoting = QUOTES_NEXT.is_match(trimmed);
        let text = BULLET.replace(line, "").replace("**", "").replace("__", "").replace(['’', '‘'], "'");
        found.extend(split(text.trim()));
    }
    found
}

/// Whether nothing in a message is code, log or quotation.
pub(super) fn is_plain(message: &str) -> bool {
    message.lines().count() <= 3 && !message.contains("```") && !message.lines().any(is_foreign)
}

fn is_foreign(line: &str) -> bool {
    let indented = line.starts_with("    ") || line.starts_with('\t');
    line.trim_start().starts_with(['>', '|'])
        || indented && !BULLET.is_match(line)
        || LOG_LINE.is_match(line)
        || CODE_LINE.is_match(line)
}

fn split(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut ticked = false;
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        match c {
            '`' => ticked = !ticked,
            '.' | '!' | '?' if !ticked => {
                let end = at + 1;
                let stops = bytes.get(end).is_none_or(u8::is_ascii_whitespace);
                if stops && !ABBREVIATIONS.is_match(&text[start..end]) {
                    sentences.extend(sentence(&text[start..end]));
                    start = end;
                }
            }
            _ => {}
        }
    }
    sentences.extend(sentence(&text[start..]));
    sentences
}

fn sentence(text: &str) -> Option<Sentence> {
    let text = text.trim();
    if SAYS.is_match(text) {
        return None;
    }
    let question = text.ends_with('?') || text.ends_with("?)") || ASKS.is_match(text);
    let text = text.trim_end_matches(['.', '!', '?', ':', ' ', '…']).trim();
    (text.split_whitespace().count() >= 3).then(|| Sentence { text: text.to_owned(), question })
}

expression! {
    REASON = r"(?i)(?:,\s*|\s+|\s[—–-]+\s)(?:because|since|so that|given that|due to the fact that)\s+(?P<reason>\S.{8,})$";
    OTHERWISE = r"(?i)(?:,\s*|;\s*|\s[—–-]+\s)(?P<reason>(?:or else|otherwise)\s+\S.{8,})$";
    DASHED = r"\s[—–]\s(?P<reason>(?:it|they|that|the|this|we|our|otherwise|because)\b.{12,})$";
    GIVES_REASON = r"(?i)^(?:because|otherwise|since|the reason|that way|this way|it|that|they|this|last time|we (?:had|got|lost|were|once|already)|without (?:it|that|this)|reason:|why:)\b";
    REASON_WORD = r"(?i)^(?:because|since|the reason is(?: that)?|reason:|why:|that's because|it's because)\s*";
    CONDITION = r"(?i)^(?P<condition>(?:when|whenever|if|before|after|while|on|in|for|during)\s[^,]{4,80}),\s+(?P<rest>.{10,})$|^(?P<rest2>.{15,}?),?\s(?P<condition2>(?:when|whenever|while|unless)\s.{6,})$";
    HEDGED = r"(?i)\b(?:might|may be|maybe|perhaps|probably|likely|could be|i think|i suspect|i guess|i believe|seems?|seemingly|possibly|not sure|unsure|hypothes[ie]s|presumably|my theory|let me|let's (?:check|see|look)|if (?:it|that|this) (?:is|was))\b";
}

/// A statement and the reason that it ends with.
pub(super) fn split_reason(text: &str) -> (&str, Option<&str>) {
    for expression in [&REASON, &OTHERWISE, &DASHED] {
        if let Some(found) = expression.captures(text)
            && let (Some(whole), Some(reason)) = (found.get(0), found.name("reason"))
            && whole.start() >= 8
        {
            return (text[..whole.start()].trim_end_matches([',', ' ', ';']), Some(reason.as_str()));
        }
    }
    (text, None)
}

/// A sentence that tells why the one before it holds, without the word that says so.
pub(super) fn reason_given(next: &Sentence) -> Option<String> {
    (!next.question && GIVES_REASON.is_match(&next.text) && !HEDGED.is_match(&next.text))
        .then(|| REASON_WORD.replace(&next.text, "").into_owned())
}

/// The condition that a rule names: "when …", "before …".
pub(super) fn condition(text: &str) -> Option<&str> {
    let found = CONDITION.captures(text)?;
    found.name("condition").or(found.name("condition2")).map(|condition| condition.as_str())
}

/// Whether somebody guesses.
pub(super) fn is_hedged(text: &str) -> bool {
    HEDGED.is_match(text)
}

const STOP_WORDS: &str = " a an the and or but if then so as of in on at to for from by with without into over than that this \
    these those it its is are was were be been being am do does did done has have had having will would can could shall should \
    must may might not no never always don't doesn't isn't aren't won't can't we you i they he she our your my their us them me \
    here there now just also only all any every each some more most very too up out off via per about when while what which who \
    how why where because since instead rather before after again use uses used using get gets got make makes made let lets go \
    goes going one please need needs want way thing things decision decided ";

/// The words of a text that carry its meaning, in lower case and without their endings.
pub(super) fn content_words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_')
        .filter(|word| word.len() > 1 && !STOP_WORDS.contains(&format!(" {word} ")))
        .map(stem)
        .collect()
}

fn stem(word: &str) -> String {
    let word = word.trim_matches('\'');
    for ending in ["ations", "ation", "ings", "ing", "ies", "ied", "ers", "es", "ed", "er", "s", "e", "y"] {
        if let Some(stem) = word.strip_suffix(ending)
            && stem.chars().count() >= 3
        {
            return stem.to_owned();
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: &str) -> Vec<String> {
        sentences(message, true).into_iter().map(|sentence| sentence.text).collect()
    }

    #[test]
    fn only_the_authors_own_words_are_left() {
        let check = |message: &str, expected: &[&str]| assert_eq!(told(message), expected, "{message}");
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
    fn a_question_is_known_as_one() {
        let asked = |text: &str| sentences(text, true).first().is_some_and(|sentence| sentence.question);
        assert!(asked("should we always use uuid keys"));
        assert!(asked("we always squash, right?"));
        assert!(!asked("we always squash merges"));
    }
}
