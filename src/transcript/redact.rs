//! Takes secrets out of text before anything keeps it.
//!
//! A rule here must be right twice: a key must not leave the machine, and ordinary code must stay
//! readable. So tokens are known by their makers' prefixes, and what merely stands beside the word
//! `password` must also look random.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Replaces each secret by `[redacted: kind]`. Doing it twice changes nothing more.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for rule in RULES.iter() {
        if !rule.hints.iter().any(|hint| contains_ignoring_case(text.as_bytes(), hint.as_bytes())) {
            continue;
        }
        let replaced = rule.regex.replace_all(&text, |found: &Captures<'_>| {
            let whole = found.get(0).map_or("", |whole| whole.as_str());
            match found.name("secret").or(found.get(0)) {
                Some(secret) if (rule.is_secret)(secret.as_str(), found) => {
                    let start = secret.start() - found.get(0).map_or(0, |whole| whole.start());
                    format!("{}[redacted: {}]{}", &whole[..start], rule.kind, &whole[start + secret.len()..])
                }
                _ => whole.to_owned(),
            }
        });
        if let Cow::Owned(replaced) = replaced {
            text = Cow::Owned(replaced);
        }
    }
    text
}

struct Rule {
    kind: &'static str,
    /// One of these, in lower case, stands in any text that the rule can match.
    hints: &'static [&'static str],
    regex: Regex,
    is_secret: fn(&str, &Captures<'_>) -> bool,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let always: fn(&str, &Captures<'_>) -> bool = |_, _| true;
    let random: fn(&str, &Captures<'_>) -> bool = |secret, _| is_random(secret);
    let rule = |kind, hints, pattern: &str, is_secret| Rule {
        kind,
        hints,
        regex: match Regex::new(pattern) {
            Ok(regex) => regex,
            Err(error) => unreachable!("the rule for {kind} is no expression: {error}"),
        },
        is_secret,
    };
    vec![
        // Whole, or either half of one that was cut in two.
        rule("private key", &["private key"], PEM, |_, found| {
            let runs = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '=');
            found[0].split("PRIVATE KEY").any(|part| part.split(runs).any(|run| run.len() >= 24))
        }),
        rule("age key", &["age-secret-key-"], r"AGE-SECRET-KEY-1[0-9A-Z]{50,}", always),
        rule(
            "AWS access key",
            &["akia", "asia", "abia", "acca"],
            r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
            always,
        ),
        rule(
            "AWS secret key",
            &["secret"],
            r#"(?i)aws.{0,20}?secret.{0,20}?["']?\s*(?:=>|[:=])\s*["']?(?P<secret>[A-Za-z0-9/+=]{40})\b"#,
            random,
        ),
        rule(
            "GitHub token",
            &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
            r"\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
            always,
        ),
        rule(
            "GitLab token",
            &["gl"],
            r"\b(?:glpat|gldt|glrt|glptt|glcbt|glft|glsoat|glagent|gloas|glimt)-[A-Za-z0-9_-]{20,}",
            always,
        ),
        rule(
            "Slack token",
            &["xox", "xapp-"],
            r"\b(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,})",
            always,
        ),
        rule(
            "Slack webhook",
            &["hooks.slack.com"],
            r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_+-]{20,})",
            always,
        ),
        rule(
            "Stripe key",
            &["k_live_", "k_test_", "whsec_"],
            r"\b(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{12,}",
            always,
        ),
        rule("Anthropic key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{16,}", always),
        rule("OpenAI key", &["sk-"], r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}", random),
        rule(
            "Google key",
            &["aiza", "gocspx-", "ya29."],
            r"\b(?:AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{20,}|ya29\.[0-9A-Za-z_-]{20,})",
            always,
        ),
        rule("Voyage key", &["pa-"], r"\bpa-[A-Za-z0-9_-]{40,}", random),
        rule("npm token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}\b", always),
        rule("PyPI token", &["pypi-"], r"\bpypi-AgE[A-Za-z0-9_-]{40,}", always),
        rule("Hugging Face token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}", always),
        rule("SendGrid key", &["sg."], r"\bSG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}", always),
        rule("DigitalOcean token", &["do"], r"\bdo[oprt]_v1_[a-f0-9]{64}\b", always),
        rule("JWT", &["eyj"], r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?", always),
        rule(
            "password in a URL",
            &["://"],
            r#"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@"'<>`\[\]]*:(?P<secret>[^\s/@"'<>`\[\]]{3,})@[\w\[.-]"#,
            |secret, _| !is_placeholder(secret),
        ),
        rule(
            "authorization",
            &["authorization"],
            r#"(?i)\bauthorization["']?\s*[:=,]\s*["'`]?(?:bearer|basic|token|apikey)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})"#,
            |secret, _| !is_placeholder(secret) && !is_word(secret),
        ),
        rule("bearer token", &["bearer"], r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{20,})", random),
        // `key = value`, `"key": "value"`, `KEY=value`, `--key value`.
        rule("secret", KEY_WORDS, QUOTED, |secret, found| {
            let password = contains_ignoring_case(found["key"].as_bytes(), b"pass");
            let symbols = secret.chars().any(|c| c.is_ascii_digit() || "!@#$%^&*+=?~".contains(c));
            !is_placeholder(secret)
                && (is_random(secret) || password && symbols && !secret.contains(['(', '{']))
        }),
        rule("secret", KEY_WORDS, BARE, |secret, found| {
            let shouted = found["key"].chars().all(|c| !c.is_ascii_lowercase());
            let digits =
                secret.chars().any(|c| c.is_ascii_digit()) && secret.chars().any(char::is_alphabetic);
            !is_placeholder(secret)
                && (is_random(secret) || shouted && digits && !secret.contains(['.', '(', ':']))
        }),
    ]
});

const PEM: &str = r#"(?x)
    -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
        (?: (?s:.)*? -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
          | (?: (?:\\[nr]|[\s"'+,])* [A-Za-z0-9+/=]{16,} )+ )
  | (?: [A-Za-z0-9+/=]{16,} (?:\\[nr]|[\s"'+,])+ )+ (?:[A-Za-z0-9+/=]{1,15} (?:\\[nr]|[\s"'+,])+ )?
        -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
"#;

const KEY_WORDS: &[&str] = &["passw", "passphrase", "pwd", "secret", "token", "key", "credential"];

const QUOTED: &str = r#"(?ix)
    (?P<key>[A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|credential)[A-Za-z0-9_-]*)
    ["'`]? \s* (?: => | := | [:=] ) \s* ["'`](?P<secret>[^"'`\s\\]{6,200})["'`]"#;

const BARE: &str = r#"(?ix)
    (?P<key>[A-Za-z0-9_.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|credential)[A-Za-z0-9_-]*)
    (?: \\?["'`]? \s* (?: => | := | [:=] ) \s* | \x20 ) (?: \\?['"`] )?
    (?P<secret>[A-Za-z0-9+/=_.~!@\#$%^&*?-]{6,200})"#;

/// Whether a word looks drawn rather than written: long enough, of letters and digits mixed, and
/// with the entropy of a key (Shannon, bits for each character, over the word's own characters).
fn is_random(word: &str) -> bool {
    if word.len() < 16 || is_placeholder(word) {
        return false;
    }
    let changes = word
        .as_bytes()
        .windows(2)
        .filter(|pair| {
            pair[0].is_ascii_digit() != pair[1].is_ascii_digit()
                || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
        })
        .count();
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    digits >= 2 && changes >= 4 && entropy(word) >= 3.0
}

fn entropy(word: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in word.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length = word.len() as f64;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| f64::from(count) / length)
        .map(|share| -share * share.log2())
        .sum()
}

/// Whether a value says where the secret comes from instead of being it.
fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    const MARKS: [&str; 14] = [
        "redacted",
        "example",
        "placeholder",
        "changeme",
        "change-me",
        "change_me",
        "your",
        "xxxx",
        "****",
        "....",
        "dummy",
        "todo",
        "process.env",
        "os.environ",
    ];
    value.starts_with(['$', '%', '{', '<', '&', '*'])
        || value.contains("${")
        || MARKS.iter().any(|mark| lower.contains(mark))
}

/// Only letters and joints: an identifier or prose.
fn is_word(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '-' | '.'))
}

fn contains_ignoring_case(text: &[u8], lower: &[u8]) -> bool {
    let Some(&first) = lower.first() else { return true };
    let upper = first.to_ascii_uppercase();
    let last = text.len().saturating_sub(lower.len() - 1);
    memchr::memchr2_iter(first, upper, &text[..last.min(text.len())])
        .any(|at| text[at..at + lower.len()].eq_ignore_ascii_case(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here, so that no scanner of this repository takes a test for a leak.
    fn secrets() -> Vec<(&'static str, String)> {
        let letters = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7bC9d";
        vec![
            ("AWS access key", format!("AKIA{}", "IOSFODNN7ABCDEFG")),
            ("AWS secret key", format!("aws_secret_access_key = {}", &letters[..40])),
            ("GitHub token", format!("ghp_{}", &letters[..36])),
            ("GitHub token", format!("github_pat_11A{}", &letters[..36])),
            ("GitLab token", format!("glpat-{}", &letters[..20])),
            ("Slack token", format!("xoxb-123456789012-{}", &letters[..24])),
            ("Slack webhook", format!("https://hooks.slack.com/services/T000/B000/{}", &letters[..24])),
            ("Stripe key", format!("sk_live_{}", &letters[..24])),
            ("Anthropic key", format!("sk-ant-api03-{letters}")),
            ("OpenAI key", format!("sk-proj-{letters}")),
            ("Google key", format!("AIza{}", &letters[..35])),
            ("npm token", format!("npm_{}", &letters[..36])),
            ("JWT", format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{letters}")),
            ("password in a URL", "postgres://app:hunter2secret@db:5432/app".to_owned()),
            ("authorization", format!("curl -H 'Authorization: Bearer {letters}'")),
            ("secret", format!("DB_PASSWORD={}", "hunter22")),
            ("secret", format!("password: \"{}\"", "Tr0ub4dor&3")),
            ("secret", format!("{{\"api_key\":\"{}\"}}", &letters[..32])),
            ("secret", format!("{{\\\"client_secret\\\":\\\"{}\\\"}}", &letters[..32])),
            ("secret", format!("deploy --token {}", &letters[..24])),
            ("private key", pem("\n")),
            ("private key", pem("\\n")),
        ]
    }

    fn pem(feed: &str) -> String {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
        let fence = |word: &str| format!("-----{word} RSA PRIVATE KEY-----");
        [fence("BEGIN").as_str(), line, line, "abc=", fence("END").as_str()].join(feed)
    }

    #[test]
    fn every_kind_of_secret_is_found() {
        for (kind, text) in secrets() {
            let clean = redact(&text);
            assert!(clean.contains(&format!("[redacted: {kind}]")), "{kind}: {text} became {clean}");
            let again = redact(&clean).into_owned();
            assert_eq!(again, clean, "{kind}");
        }
    }

    #[test]
    fn nothing_of_a_private_key_is_left_when_it_was_cut_in_two() {
        let pem = pem("\n");
        for at in (40..pem.len() - 40).step_by(7) {
            for half in [&pem[..at], &pem[at..]] {
                let clean = redact(half);
                // Less than a third of one line may stay: it says nothing, and code has such words too.
                let runs = clean.split(|c: char| !c.is_ascii_alphanumeric());
                assert!(runs.map(str::len).max() < Some(24), "{clean}");
            }
        }
    }

    #[test]
    fn ordinary_code_stays_as_it_is() {
        for text in [
            "let token = tokenizer.next_token()?;",
            "password: String, // hashed with argon2",
            "const token = process.env.GITHUB_TOKEN;",
            "Authorization: Bearer $TOKEN",
            "headers = {\"Authorization\": f\"Bearer {token}\"}",
            "if key.starts_with(\"-----BEGIN RSA PRIVATE KEY-----\") { … } // until -----END RSA PRIVATE KEY-----",
            "https://user:${PASSWORD}@host/path",
            "http://localhost:8080/a@b",
            "class=\"sk-fading-circle sk-circle-container-element\"",
            "secret_name = \"my-service-credentials\"",
            "token_count=1024 max_tokens: 4096",
            "commit 3f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a",
            "\"password\": \"required|string\"",
            "primary key = user_id_and_tenant",
            "api_key: Option<String>",
            "the secret manager rotates the token every 24h",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "Basic authorization: see RFC 7617",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
