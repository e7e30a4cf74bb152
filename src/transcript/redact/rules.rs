//! The rules that tell a secret: gitleaks' and our own, and how they are applied to a text.
//!
//! One pass over the text finds the words that one of the rules begins with or goes by; an
//! expression is then tried only near such a word, and built when that happens for the first time.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::{Captures, Regex, RegexBuilder};
use serde::Deserialize;

use super::builtin_rules;
use super::entropy::{entropy, is_mixed, is_placeholder};

/// How far before a rule's word its match may begin, and how far behind it it may end, in bytes. A
/// secret that goes on behind that is taken whole all the same.
const BEFORE_BYTES: usize = 160;
const BEHIND_BYTES: usize = 2_500;
const EXPRESSION_BYTES_MAX: usize = 64 << 20;
/// What an expression may keep of its own while it searches, on each thread: the default of 2 MB, times 260
/// expressions and a handful of threads, is more than all the rest of a drainer.
const SCRATCH_BYTES_MAX: usize = 128 << 10;

pub(super) struct Rule {
    pub(super) kind: &'static str,
    pattern: String,
    regex: OnceLock<Option<Regex>>,
    /// Whether its matches may be of any length: then the whole text is searched.
    is_long: bool,
    /// Whether the secret is known by its own form, and not by what stands beside it.
    pub(super) is_certain: bool,
    test: Test,
}

enum Test {
    Own(fn(&Match<'_>) -> bool),
    Gitleaks { entropy: f64, group: usize, allowed: Vec<Allowed> },
}

/// What an expression found, for the tests that it cannot express.
pub(super) struct Match<'a> {
    pub(super) secret: &'a [u8],
    pub(super) whole: &'a [u8],
    /// The name that the match begins in: all of `MY_API_KEY`, and not only what the rule goes by.
    pub(super) key: &'a [u8],
}

/// A stretch that must go, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) range: Range<usize>,
    /// The number of its rule: of two rules the one with the lower number gives the name.
    pub(super) rule: usize,
}

pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    words: AhoCorasick,
    /// By the number of the word.
    rules_of_word: Vec<Vec<u16>>,
    allowed: Vec<Allowed>,
    /// The rule whose name what was found in another alphabet gets.
    pub(super) encoded: usize,
}

pub(super) static RULES: LazyLock<Rules> = LazyLock::new(Rules::load);

impl Rules {
    /// Everything in a text that looks like a secret as the text stands; in no order.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut windows: Vec<(u16, Range<usize>)> = Vec::new();
        let mut last: Vec<u32> = Vec::new();
        for hit in self.words.find_overlapping_iter(text) {
            if last.is_empty() {
                last = vec![u32::MAX; self.rules.len()];
            }
            for &rule in &self.rules_of_word[hit.pattern().as_usize()] {
                let is_long = self.rules[usize::from(rule)].is_long;
                let window = match is_long {
                    true => 0..text.len(),
                    false => {
                        hit.start().saturating_sub(BEFORE_BYTES)..(hit.end() + BEHIND_BYTES).min(text.len())
                    }
                };
                let at = last[usize::from(rule)] as usize;
                match windows.get_mut(at) {
                    Some((_, known)) if known.end >= window.start => known.end = known.end.max(window.end),
                    _ => {
                        last[usize::from(rule)] = windows.len() as u32;
                        windows.push((rule, window));
                    }
                }
            }
        }
        for (rule, window) in windows {
            self.search(usize::from(rule), text, window, &mut found);
        }
        found
    }

    fn search(&self, number: usize, text: &[u8], window: Range<usize>, found: &mut Vec<Finding>) {
        let rule = &self.rules[number];
        let Some(regex) = rule.regex() else { return };
        let mut at = window.start;
        while at <= window.end {
            let Some(captures) = regex.captures_at(&text[..window.end], at) else { return };
            let Some(whole) = captures.get(0) else { return };
            at = if whole.end() > whole.start() { whole.end() } else { whole.end() + 1 };
            let Some(secret) = rule.secret(&captures).filter(|secret| !secret.is_empty()) else { continue };
            // What ends a secret may begin the next one.
            at = at.min(secret.end.max(whole.start() + 1));
            let name =
                text[..whole.start()].iter().rev().take(50).take_while(|byte| is_of_name(**byte)).count();
            let key_end = text[whole.start()..].iter().take_while(|byte| is_of_name(**byte)).count();
            let key = &text[whole.start() - name..whole.start() + key_end];
            let matched =
                Match { secret: &text[secret.clone()], whole: &text[whole.start() - name..whole.end()], key };
            let is_secret = match &rule.test {
                Test::Own(test) => test(&matched),
                Test::Gitleaks { entropy: above, allowed, .. } => {
                    let line = || line_of(text, secret.clone());
                    let is_drawn = *above == 0.0 || entropy(matched.secret) > *above;
                    let is_allowed = is_placeholder(matched.secret)
                        || self.allowed.iter().chain(allowed).any(|allowed| allowed.covers(&matched, line));
                    // Code is full of names behind words.
                    let is_name = BY_WORD_ONLY.contains(&rule.kind) && !is_mixed(matched.secret, 2, 3);
                    is_drawn && !is_allowed && !is_name
                }
            };
            if is_secret {
                let mut range = secret;
                // The rest of a word of which a rule knows only the beginning is of the secret too.
                let goes_on = |byte: &u8| match whole.end() == window.end && window.end < text.len() {
                    true => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='),
                    false => byte.is_ascii_alphanumeric() || *byte == b'_',
                };
                range.end += text[range.end..].iter().take_while(|byte| goes_on(byte)).count();
                found.push(Finding { range, rule: number });
            }
        }
    }

    fn load() -> Self {
        let data: Gitleaks = toml::from_str(include_str!("../rules/gitleaks.toml"))
            .unwrap_or_else(|error| unreachable!("gitleaks' rules cannot be read: {error}"));
        let mut rules = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut rules_of_word: Vec<Vec<u16>> = Vec::new();
        let mut add = |rule: Rule, hints: &[&str]| {
            let number = u16::try_from(rules.len()).unwrap_or(u16::MAX);
            rules.push(rule);
            for hint in hints {
                let word = words.iter().position(|word| word == hint).unwrap_or_else(|| {
                    words.push((*hint).to_owned());
                    rules_of_word.push(Vec::new());
                    words.len() - 1
                });
                rules_of_word[word].push(number);
            }
        };
        for own in builtin_rules::rules() {
            let rule = Rule {
                kind: own.kind,
                pattern: own.pattern,
                regex: OnceLock::new(),
                is_long: own.is_long,
                is_certain: own.is_certain,
                test: Test::Own(own.is_secret),
            };
            add(rule, own.hints);
        }
        for rule in data.rules {
            let is_long = ["private-key", "kubernetes-secret-yaml"].contains(&rule.id.as_str());
            let keywords: Vec<&str> = rule.keywords.iter().map(String::as_str).collect();
            let compiled = Rule {
                is_certain: !rule.regex.contains(ASSIGNED),
                pattern: relaxed(&rule.regex),
                regex: OnceLock::new(),
                is_long,
                test: Test::Gitleaks {
                    entropy: rule.entropy,
                    group: rule.secret_group,
                    allowed: rule.allowlists,
                },
                // One for each rule, for as long as the process lives.
                kind: Box::leak(rule.id.into_boxed_str()),
            };
            add(compiled, &keywords);
        }
        let encoded = Rule {
            kind: "encoded secret",
            pattern: String::from("[^\\s\\S]"),
            regex: OnceLock::new(),
            is_long: false,
            is_certain: true,
            test: Test::Own(|_| false),
        };
        add(encoded, &[]);
        let encoded = rules.len() - 1;
        let words = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&words)
            .unwrap_or_else(|error| unreachable!("the rules' words: {error}"));
        Self { rules, words, rules_of_word, allowed: vec![data.allowlist], encoded }
    }
}

impl Rule {
    fn regex(&self) -> Option<&Regex> {
        let built = self.regex.get_or_init(|| {
            // As in Go: classes are of ASCII, so a text is searched as bytes.
            let built = RegexBuilder::new(&self.pattern)
                .unicode(false)
                .size_limit(EXPRESSION_BYTES_MAX)
                .dfa_size_limit(SCRATCH_BYTES_MAX)
                .build();
            debug_assert!(built.is_ok(), "{}: {built:?}", self.kind);
            built.ok()
        });
        built.as_ref()
    }

    /// The group that is named, the one that gitleaks would take, or all.
    fn secret(&self, captures: &Captures<'_>) -> Option<Range<usize>> {
        let group = match &self.test {
            Test::Own(_) => captures.name("secret"),
            Test::Gitleaks { group: 0, .. } => {
                (1..captures.len()).filter_map(|group| captures.get(group)).find(|group| !group.is_empty())
            }
            Test::Gitleaks { group, .. } => captures.get(*group),
        };
        group.or_else(|| captures.get(0)).map(|group| group.range())
    }
}

/// gitleaks' rules of the form `NAME = SECRET` have this in them.
const ASSIGNED: &str = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)";

/// A rule of gitleaks that finds the same secrets, and some more, in less time.
///
/// Without what may stand before its word, which may be nothing and only makes a search slow; and
/// with anything that is no part of a word at its end, because secrets stand in addresses and in
/// brackets too, and gitleaks looks at files only.
fn relaxed(pattern: &str) -> String {
    let mut pattern = pattern;
    let mut flags = "";
    for (start, kept) in [(r"(?i)[\w.-]{0,50}?", "(?i)"), (r"[\w.-]{0,50}?(?i:[\w.-]{0,50}?", "(?i:")] {
        if let Some(rest) = pattern.strip_prefix(start) {
            (pattern, flags) = (rest, kept);
            break;
        }
    }
    format!("{flags}{pattern}").replace(r#"(?:[\x60'"\s;]|\\[nr]|$)"#, r"(?:[^\w=-]|$)")
}

/// gitleaks' rules that go by nothing but a word; the second only in files of a kind.
const BY_WORD_ONLY: [&str; 2] = ["generic-api-key", "hashicorp-tf-password"];

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn line_of(text: &[u8], range: Range<usize>) -> &[u8] {
    let start = memchr::memrchr(b'\n', &text[..range.start]).map_or(0, |at| at + 1);
    let end = memchr::memchr(b'\n', &text[range.end..]).map_or(text.len(), |at| range.end + at);
    &text[start..end]
}

#[derive(Deserialize)]
struct Gitleaks {
    allowlist: Allowed,
    rules: Vec<GitleaksRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GitleaksRule {
    id: String,
    regex: String,
    #[serde(default)]
    entropy: f64,
    #[serde(default)]
    secret_group: usize,
    keywords: Vec<String>,
    #[serde(default)]
    allowlists: Vec<Allowed>,
}

/// What is no secret although it looks like one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allowed {
    #[serde(default)]
    regex_target: Target,
    #[serde(default)]
    regexes: Vec<String>,
    #[serde(default)]
    stopwords: Vec<String>,
    #[serde(skip)]
    built: OnceLock<(Vec<Regex>, Option<AhoCorasick>)>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    #[default]
    Secret,
    Match,
    Line,
}

impl Allowed {
    fn covers<'a>(&self, matched: &Match<'a>, line: impl Fn() -> &'a [u8]) -> bool {
        let (regexes, stopwords) = self.built.get_or_init(|| {
            let regexes = self.regexes.iter().filter_map(|pattern| {
                let built = RegexBuilder::new(pattern)
                    .unicode(false)
                    .size_limit(EXPRESSION_BYTES_MAX)
                    .dfa_size_limit(SCRATCH_BYTES_MAX)
                    .build();
                debug_assert!(built.is_ok(), "{built:?}");
                built.ok()
            });
            let stopwords = (!self.stopwords.is_empty())
                .then(|| AhoCorasick::builder().ascii_case_insensitive(true).build(&self.stopwords).ok());
            (regexes.collect(), stopwords.flatten())
        });
        let target = match self.regex_target {
            Target::Secret => matched.secret,
            Target::Match => matched.whole,
            Target::Line => line(),
        };
        regexes.iter().any(|regex| regex.is_match(target))
            || stopwords.as_ref().is_some_and(|stopwords| stopwords.is_match(matched.secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_an_expression() {
        let rules = &*RULES;
        let gitleaks: Vec<&Rule> =
            rules.rules.iter().filter(|rule| matches!(rule.test, Test::Gitleaks { .. })).collect();
        assert_eq!(gitleaks.len(), 221, "all of 8.30.1 but the one that has only a path");
        let broken: Vec<&str> =
            rules.rules.iter().filter(|rule| rule.regex().is_none()).map(|rule| rule.kind).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}
