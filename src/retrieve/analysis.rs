//! Analysis of a question: its words, and the parts that must match literally.

use std::collections::HashSet;
use std::sync::LazyLock;

use knowledge::text;

/// The searchable parts of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Words as written, each once, without stop words; an identifier as a whole and in parts.
    pub terms: Vec<String>,
    /// Parts that a matching passage holds literally: quoted phrases, identifiers, paths, flags and error codes. Lower
    /// case.
    pub exact: Vec<String>,
}

/// A question has about ten words; a pasted log has thousands, of which only the first are used.
const BYTES_MAX: usize = 4_000;
const TERMS_MAX: usize = 48;
const EXACT_MAX: usize = 16;
const EXACT_CHARS_MIN: usize = 3;
const EXACT_CHARS_MAX: usize = 120;

pub(crate) fn analyse(question: &str) -> Analysis {
    let question = &question[..question.floor_char_boundary(BYTES_MAX)];
    let mut analysis = Analysis { terms: terms(question, true), exact: exact(question) };
    if analysis.terms.is_empty() {
        // "What is it like to be?" has only stop words, so these are searched for.
        analysis.terms = terms(question, false);
    }
    analysis
}

fn terms(question: &str, without_stop_words: bool) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut terms = Vec::new();
    for word in question.split(|c: char| !c.is_alphanumeric() && c != '_').map(|word| word.trim_matches('_'))
    {
        let parts = parts(word);
        let whole = std::iter::once(word);
        for term in whole.chain(parts.into_iter().filter(|part| part.len() >= 3)) {
            let lower = term.to_lowercase();
            let is_word = match lower.chars().count() {
                0 => false,
                // A single letter is a word only in a script whose letters are words.
                1 => !lower.is_ascii(),
                _ => !(without_stop_words && is_stop_word(&lower)),
            };
            if is_word && terms.len() < TERMS_MAX && seen.insert(lower) {
                terms.push(term.to_owned());
            }
        }
    }
    terms
}

/// The paths of files that a question names: words with a folder, or with a short ending of letters as `main.rs` has. As all
/// paths they are of the project, so that a bare name is that of a file in its root.
pub fn paths_in(question: &str) -> Vec<String> {
    let question = &question[..question.floor_char_boundary(BYTES_MAX)];
    let mut paths: Vec<String> = Vec::new();
    for word in question.split(|c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | '(' | ')' | ','))
    {
        // A line's number may follow: `src/main.rs:12`, `src/main.rs#L12`.
        let word = word.split([':', '#']).next().unwrap_or_default();
        let is_outside =
            |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '/' | '-' | '~' | '@' | '$');
        let word = word.trim_start_matches(is_outside);
        // `app/[id]` ends with a bracket of its own.
        let is_behind = |c| c == '.' || is_outside(c) && !(c == ']' && word.contains('['));
        let word = without_text_behind(word.trim_end_matches(is_behind));
        let name = word.rsplit('/').next().unwrap_or_default();
        let is_file = name.rsplit_once('.').is_some_and(|(stem, ending)| {
            let is_ending =
                (1..=5).contains(&ending.len()) && ending.chars().all(|c| c.is_ascii_alphanumeric());
            stem.len() > 1 && is_ending && ending.chars().any(|c| c.is_ascii_alphabetic())
        });
        if (is_file || word.trim_matches('/').contains('/'))
            && !word.contains("//")
            && paths.len() < EXACT_MAX
            && paths.iter().all(|path| path != word)
        {
            paths.push(word.to_owned());
        }
    }
    paths
}

/// A path without the text that follows its ending without a space, in a script that has none: `main.rsを直す`.
fn without_text_behind(path: &str) -> &str {
    let ending = path.rfind('.').map_or(path.len(), |dot| dot + 1);
    let length = path[ending..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(0);
    let next = path[ending + length..].chars().next();
    let is_text = next.is_some_and(|c| !c.is_ascii() && !c.is_lowercase() && !c.is_uppercase());
    if length > 0 && is_text { &path[..ending + length] } else { path }
}

fn exact(question: &str) -> Vec<String> {
    let mut exact = Vec::new();
    let mut push = |text: &str| {
        let text = text.trim().to_lowercase();
        let chars = text.chars().count();
        if (EXACT_CHARS_MIN..=EXACT_CHARS_MAX).contains(&chars)
            && exact.len() < EXACT_MAX
            && !exact.contains(&text)
        {
            exact.push(text);
        }
    };
    for quote in ['"', '`'] {
        // Every second part lies between two quotes, unless the last quote was never closed.
        let parts: Vec<&str> = question.split(quote).collect();
        let closed = parts.len() - (1 - parts.len() % 2);
        parts[..closed].iter().skip(1).step_by(2).for_each(|part| push(part));
    }
    for word in question.split_whitespace() {
        let word =
            word.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '/' | '.' | '~'));
        let word = word.trim_end_matches(['.', '-', '/']);
        if is_technical(word) {
            push(word);
        }
    }
    exact
}

/// Whether this is no word of prose: `parseConfig`, `src/main.rs`, `E0425`, `--no-verify`, `a::b`.
fn is_technical(word: &str) -> bool {
    let letters: Vec<char> = word.chars().collect();
    let inside = |pair: &[char]| match pair {
        [before, now] => {
            let joint = matches!(now, '_' | '/' | '\\' | ':' | '.' | '=' | '@') && before.is_alphanumeric();
            joint
                || (before.is_lowercase() && now.is_uppercase())
                || (before.is_alphabetic() && now.is_ascii_digit())
        }
        _ => false,
    };
    let Some(last) = letters.len().checked_sub(1) else { return false };
    word.starts_with("--") && last > 2
        || letters[..last].windows(2).any(inside)
        || letters[last].is_ascii_digit() && last > 0 && letters[last - 1].is_alphabetic()
}

/// `parse_HTTPHeader` → `parse`, `HTTP`, `Header`; nothing for a plain word.
fn parts(word: &str) -> Vec<&str> {
    let parts = word.split('_').filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.flat_map(text::split_camel_case).collect();
    if parts.len() > 1 { parts } else { Vec::new() }
}

/// Whether a word of a question says nothing about its subject.
fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| QUESTION_WORDS.split_whitespace().collect());
    text::is_stop_word(word) || WORDS.contains(word)
}

/// Stop words of questions besides [`text::is_stop_word`].
const QUESTION_WORDS: &str = "\
    anyone anything aren cannot couldn didn doesn doing don during either else ever getting give given \
    hadn hasn haven hello help her hers hi him his however isn itself know like ll maybe mine myself \
    onto other ours own re same shouldn someone something such thank thanks through under until upon ve \
    wants wasn weren whether whom whose won wouldn yet yours";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_with_a_folder_or_an_ending() {
        let check =
            |question: &str, expected: &[&str]| assert_eq!(paths_in(question), expected, "{question}");
        check(
            "I am editing `deploy/api.yaml`, and ../web/Dockerfile.",
            &["deploy/api.yaml", "../web/Dockerfile"],
        );
        check("why does InvoiceList.tsx fail (src/main.rs:12:3)?", &["InvoiceList.tsx", "src/main.rs"]);
        check("see https://example.com/a.html, e.g. version 1.2.3 of it.", &[]);
        for question in [
            "[deploy/api.yaml]",
            "<deploy/api.yaml>",
            "**deploy/api.yaml**",
            "{deploy/api.yaml}",
            "deploy/api.yaml#L3",
            "deploy/api.yaml。",
            "deploy/api.yamlを直す",
            "deploy/api.yaml:3",
        ] {
            check(question, &["deploy/api.yaml"]);
        }
        check("_parts/a.rs and .github/ci.yml", &["_parts/a.rs", ".github/ci.yml"]);
        check("src/größe.rs, 文档/说明.md", &["src/größe.rs", "文档/说明.md"]);
        check("and/or", &["and/or"]);
        check("", &[]);
    }

    #[test]
    fn a_question_is_split_into_words() {
        let check =
            |question: &str, expected: &[&str]| assert_eq!(analyse(question).terms, expected, "{question}");
        check("How do I close a worker pool?", &["close", "worker", "pool"]);
        check(
            "parseConfig fails in read_file",
            &["parseConfig", "parse", "Config", "fails", "read_file", "read", "file"],
        );
        check("HTTPServer", &["HTTPServer", "HTTP", "Server"]);
        check(
            "Was weiß man über größeÄnderung?",
            &["weiß", "man", "über", "größeÄnderung", "größe", "Änderung"],
        );
        check("連線 池", &["連線", "池"]);
        check("what is it", &["what", "is", "it"]);
        check("pool Pool POOL", &["pool"]);
        check("", &[]);
        check("?!\0 \" -- *", &[]);
    }

    #[test]
    fn identifiers_and_quotes_are_searched_literally() {
        let check =
            |question: &str, expected: &[&str]| assert_eq!(analyse(question).exact, expected, "{question}");
        check("why does parseConfig panic?", &["parseconfig"]);
        check("error[E0425] in src/main.rs.", &["error[e0425", "src/main.rs"]);
        check("git push --no-verify, then std::io::Error", &["--no-verify", "std::io::error"]);
        check("the error \"connection reset by peer\" again", &["connection reset by peer"]);
        check("use `try_lock` there", &["try_lock"]);
        check("never \"closed", &[]);
        check("plain words. And more", &[]);
        check("\"\" `` \"\"\"", &[]);
    }

    #[test]
    fn a_pasted_log_is_cut_to_the_limits() {
        let log = "frame_0001 at 0x7f é ".repeat(100_000);
        let analysis = analyse(&log);
        assert!(analysis.terms.len() <= TERMS_MAX && analysis.exact.len() <= EXACT_MAX);
    }
}
