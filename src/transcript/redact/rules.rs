//! The rules that recognise a secret, gitleaks', Nosey Parker's and ours, and how they are applied to a text.
//!
//! One pass over the text finds the keywords of all rules. An expression is tried only near one of its
//! keywords, and compiled when that first happens.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::{Captures, Regex, RegexBuilder};
use serde::Deserialize;

use super::conditions::{Condition, Match, condition, is_name_byte};
use super::entropy::{entropy, is_mixed, is_placeholder};
use super::private_key;

/// How far before a keyword a match may begin, and how far after it it may end, in bytes. A secret that
/// continues beyond that is still removed completely.
const BEFORE_BYTES: usize = 160;
const BEHIND_BYTES: usize = 2_500;
/// How much is read of the name that a match begins in.
const NAME_BYTES_MAX: usize = 256;
const EXPRESSION_BYTES_MAX: usize = 64 << 20;
/// The cache of an expression, on each thread: the default of 2 MB, times 260 expressions and a handful of
/// threads, is more memory than the rest of a worker uses.
const SCRATCH_BYTES_MAX: usize = 128 << 10;

pub(super) const PLACEHOLDER_START: &[u8] = b"[redacted: ";
/// More than any placeholder has.
const PLACEHOLDER_BYTES_MAX: usize = 80;

pub(super) struct Rule {
    pub(super) kind: String,
    pattern: String,
    regex: OnceLock<Option<Regex>>,
    /// Whether a match may have any length; then the whole text is searched.
    is_long: bool,
    /// Whether the secret is recognised by its own form and not by its context.
    pub(super) is_certain: bool,
    test: Test,
}

enum Test {
    Condition(Condition),
    Gitleaks { entropy: f64, group: usize, allowed: Vec<Allowlist> },
}

/// A range that must be removed, and the rule that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) range: Range<usize>,
    /// The index of its rule. If two rules find a secret, the one with the lower index names its kind.
    pub(super) rule: usize,
}

pub(super) struct Rules {
    pub(super) rules: Vec<Rule>,
    keywords: AhoCorasick,
    /// The rules of each keyword, by the keyword's index.
    rules_of_keyword: Vec<Vec<u16>>,
    allowed: Allowlist,
    /// The index of the rule that names secrets in base64 or hexadecimal digits.
    pub(super) encoded: usize,
    /// The index of the rule that names private keys.
    private_key: usize,
}

pub(super) static RULES: LazyLock<Rules> = LazyLock::new(Rules::load);

impl Rules {
    /// Everything in a text, as it is, that looks like a secret; in no order.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut windows: Vec<(u16, Range<usize>)> = Vec::new();
        let mut last: Vec<u32> = Vec::new();
        for hit in self.keywords.find_overlapping_iter(text) {
            if last.is_empty() {
                last = vec![u32::MAX; self.rules.len()];
            }
            for &rule in &self.rules_of_keyword[hit.pattern().as_usize()] {
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
        let keys = private_key::find(text).into_iter();
        found.extend(keys.map(|range| Finding { range, rule: self.private_key }));
        found
    }

    fn search(&self, number: usize, text: &[u8], window: Range<usize>, found: &mut Vec<Finding>) {
        let rule = &self.rules[number];
        let Some(regex) = rule.regex() else { return };
        // The rest of a word, which may be the whole text, is read once for all that is found in it.
        let mut rest_of_word = 0..0;
        let mut at = window.start;
        while at <= window.end {
            let Some(captures) = regex.captures_at(&text[..window.end], at) else { return };
            let Some(whole) = captures.get(0) else { return };
            at = if whole.end() > whole.start() { whole.end() } else { whole.end() + 1 };
            let Some(secret) = rule.secret(&captures).filter(|secret| !secret.is_empty()) else { continue };
            // The end of a match may be the start of the next one.
            at = at.min(secret.end.max(whole.start() + 1));
            let name =
                text[..whole.start()].iter().rev().take(50).take_while(|byte| is_name_byte(**byte)).count();
            let rest = text[whole.start()..].iter().take(NAME_BYTES_MAX);
            let key_end = rest.take_while(|byte| is_name_byte(**byte)).count();
            let key = &text[whole.start() - name..whole.start() + key_end];
            let matched =
                Match { secret: &text[secret.clone()], whole: &text[whole.start() - name..whole.end()], key };
            let is_secret = match &rule.test {
                Test::Condition(is_secret) => is_secret(&matched),
                Test::Gitleaks { entropy: above, allowed, .. } => {
                    let line = || line_of(text, secret.clone());
                    let has_entropy = *above == 0.0 || entropy(matched.secret) > *above;
                    let is_allowed = is_placeholder(matched.secret)
                        || [&self.allowed]
                            .into_iter()
                            .chain(allowed)
                            .any(|allowed| allowed.covers(&matched, line));
                    // In code such words are often followed by names.
                    let is_name =
                        KEYWORD_ONLY.contains(&rule.kind.as_str()) && !is_mixed(matched.secret, 2, 3);
                    has_entropy && !is_allowed && !is_name
                }
            };
            // `password in a URL]@host:5432`: the words of a placeholder announce no secret.
            if is_secret && !self.is_in_placeholder(text, whole.start()) {
                let mut range = secret;
                // If a rule matches only the beginning of a word, the rest of the word belongs to the secret.
                let is_cut = whole.end() == window.end && window.end < text.len();
                let continues = |byte: &u8| match is_cut {
                    true => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='),
                    false => byte.is_ascii_alphanumeric() || *byte == b'_',
                };
                if !rest_of_word.contains(&range.end) || is_cut {
                    let length = text[range.end..].iter().take_while(|byte| continues(byte)).count();
                    rest_of_word = range.end..range.end + length;
                }
                range.end = rest_of_word.end;
                found.push(Finding { range, rule: number });
            }
        }
    }

    fn is_in_placeholder(&self, text: &[u8], at: usize) -> bool {
        let before = &text[at.saturating_sub(PLACEHOLDER_BYTES_MAX)..at];
        memchr::memmem::rfind(before, PLACEHOLDER_START).is_some_and(|start| {
            self.placeholder(text, at - before.len() + start).is_some_and(|end| at < end)
        })
    }

    /// Where the placeholder that starts here ends, if it is one of ours.
    pub(super) fn placeholder(&self, text: &[u8], start: usize) -> Option<usize> {
        let kind = &text[start + PLACEHOLDER_START.len()..];
        let kind = &kind[..memchr::memchr(b']', &kind[..kind.len().min(PLACEHOLDER_BYTES_MAX)])?];
        let is_ours = self.rules.iter().any(|rule| rule.kind.as_bytes() == kind);
        is_ours.then(|| start + PLACEHOLDER_START.len() + kind.len() + 1)
    }

    fn load() -> Self {
        let ours: RuleFile = toml::from_str(include_str!("../rules/nugget.toml"))
            .unwrap_or_else(|error| unreachable!("our rules cannot be read: {error}"));
        let noseyparker: RuleFile = toml::from_str(include_str!("../rules/noseyparker.toml"))
            .unwrap_or_else(|error| unreachable!("Nosey Parker's rules cannot be read: {error}"));
        let gitleaks: RuleFile = toml::from_str(include_str!("../rules/gitleaks.toml"))
            .unwrap_or_else(|error| unreachable!("gitleaks' rules cannot be read: {error}"));
        let mut rules = Vec::new();
        let mut keywords: Vec<String> = Vec::new();
        let mut rules_of_keyword: Vec<Vec<u16>> = Vec::new();
        let mut add = |data: RuleData, test: Test| {
            let number = u16::try_from(rules.len()).unwrap_or(u16::MAX);
            for keyword in data.keywords {
                let index = keywords.iter().position(|known| *known == keyword).unwrap_or_else(|| {
                    keywords.push(keyword);
                    rules_of_keyword.push(Vec::new());
                    keywords.len() - 1
                });
                rules_of_keyword[index].push(number);
            }
            rules.push(Rule {
                is_long: LONG.contains(&data.id.as_str()),
                kind: data.id,
                pattern: data.regex,
                regex: OnceLock::new(),
                is_certain: !data.context,
                test,
            });
        };
        for data in ours.rules.into_iter().chain(noseyparker.rules) {
            let is_secret = condition(&data.condition)
                .unwrap_or_else(|| unreachable!("{} has an unknown condition", data.id));
            add(data, Test::Condition(is_secret));
        }
        for mut data in gitleaks.rules {
            if data.id == REPLACED {
                continue;
            }
            data.context = data.regex.contains(ASSIGNED);
            data.regex = relaxed(&data.regex);
            let allowed = std::mem::take(&mut data.allowlists);
            let test = Test::Gitleaks { entropy: data.entropy, group: data.secret_group, allowed };
            add(data, test);
        }
        let never = r"[^\s\S]".to_owned();
        let encoded = RuleData { id: "encoded secret".to_owned(), regex: never, ..RuleData::default() };
        add(encoded, Test::Condition(|_| true));
        let encoded = rules.len() - 1;
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(&keywords)
            .unwrap_or_else(|error| unreachable!("the rules' keywords: {error}"));
        let private_key = rules.iter().position(|rule| rule.kind == PRIVATE_KEY).unwrap_or(encoded);
        Self { rules, keywords, rules_of_keyword, allowed: gitleaks.allowlist, encoded, private_key }
    }
}

impl Rule {
    fn regex(&self) -> Option<&Regex> {
        let built = self.regex.get_or_init(|| {
            // As in Go: classes are ASCII, so a text is searched as bytes.
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

    /// The group that gitleaks would take, the first that is not empty, or the whole match.
    fn secret(&self, captures: &Captures<'_>) -> Option<Range<usize>> {
        let group = match &self.test {
            // Of several alternatives each has its own group.
            Test::Condition(_) | Test::Gitleaks { group: 0, .. } => {
                (1..captures.len()).filter_map(|group| captures.get(group)).find(|group| !group.is_empty())
            }
            Test::Gitleaks { group, .. } => captures.get(*group),
        };
        group.or_else(|| captures.get(0)).map(|group| group.range())
    }
}

/// Part of each gitleaks rule of the form `NAME = SECRET`.
const ASSIGNED: &str = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)";

/// A gitleaks expression changed so that it finds the same secrets, and some more, in less time.
///
/// The optional prefix before the keyword is removed, because it only makes the search slow. At the end
/// anything that is no part of a word is accepted, because secrets also occur in URLs and in brackets,
/// and gitleaks only searches files.
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

/// Rules whose matches may have any length.
const LONG: [&str; 3] = [PRIVATE_KEY, "kubernetes-secret-yaml", "Kubernetes secret"];

const PRIVATE_KEY: &str = "private key";
/// The rule of gitleaks for private keys, which takes all that stands between two mentions of their marks for one.
const REPLACED: &str = "private-key";

/// gitleaks rules that rely on a keyword alone; the second one only in certain files.
const KEYWORD_ONLY: [&str; 2] = ["generic-api-key", "hashicorp-tf-password"];

fn line_of(text: &[u8], range: Range<usize>) -> &[u8] {
    let start = memchr::memrchr(b'\n', &text[..range.start]).map_or(0, |at| at + 1);
    let end = memchr::memchr(b'\n', &text[range.end..]).map_or(text.len(), |at| range.end + at);
    &text[start..end]
}

#[derive(Deserialize)]
struct RuleFile {
    #[serde(default)]
    allowlist: Allowlist,
    rules: Vec<RuleData>,
}

/// A rule; those of gitleaks have no `condition` and no `context`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleData {
    id: String,
    regex: String,
    #[serde(default)]
    entropy: f64,
    #[serde(default)]
    secret_group: usize,
    keywords: Vec<String>,
    #[serde(default)]
    allowlists: Vec<Allowlist>,
    #[serde(default)]
    condition: String,
    #[serde(default)]
    context: bool,
}

/// Matches that are no secrets.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allowlist {
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

impl Allowlist {
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
    fn each_rule_compiles() {
        let rules = &*RULES;
        let gitleaks: Vec<&Rule> =
            rules.rules.iter().filter(|rule| matches!(rule.test, Test::Gitleaks { .. })).collect();
        assert_eq!(
            gitleaks.len(),
            220,
            "of 8.30.1, without the one that has only a path and the one of private keys"
        );
        let broken: Vec<&str> =
            rules.rules.iter().filter(|rule| rule.regex().is_none()).map(|rule| rule.kind.as_str()).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}
