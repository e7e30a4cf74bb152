//! Takes secrets out of text before anything keeps it.
//!
//! A text is searched as it stands, as it reads without escapes, percent signs and hidden characters,
//! and with its broken lines put together; words in base64 and hexadecimal digits are read as well.

use std::borrow::Cow;
use std::ops::Range;

mod builtin_rules;
mod entropy;
mod rules;
mod view;

use entropy::{decoded, is_drawn};
use rules::{Finding, RULES};
use view::View;

/// How often a text is searched again for what a removal has brought to light. Each time something
/// goes, so this is a bound and no limit.
const ROUNDS_MAX: usize = 16;
/// How deep encodings are nested.
const DEPTH_MAX: usize = 3;
/// The shortest word that is decoded: a shorter one holds no secret.
const ENCODED_BYTES_MIN: usize = 16;
const OPEN: &[u8] = b"[redacted: ";

/// Replaces each secret by `[redacted: kind]`. Doing it twice changes nothing more.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..ROUNDS_MAX {
        let found = secrets(&text, 0);
        match replaced(&text, found) {
            Some(replaced) => text = Cow::Owned(replaced),
            None => break,
        }
    }
    text
}

/// The secrets of a text in all ways of reading it.
fn secrets(text: &str, depth: usize) -> Vec<Finding> {
    let plain = View::plain(text);
    let mut found = RULES.find(text.as_bytes());
    encoded(text.as_bytes(), depth, &mut found);
    if let Some(view) = &plain {
        let mut here = RULES.find(&view.bytes);
        encoded(&view.bytes, depth, &mut here);
        found.extend(here.into_iter().map(|found| Finding { range: view.origin(&found.range), ..found }));
    }
    let base = plain.as_ref().map_or(text.as_bytes(), |view| &view.bytes);
    if let Some(joined) = View::joined(base) {
        let mut here = RULES.find(&joined.bytes);
        encoded(&joined.bytes, depth, &mut here);
        for one in here {
            let origin = |range: &Range<usize>| {
                let origin = joined.origin(range);
                plain.as_ref().map_or_else(|| origin.clone(), |view| view.origin(&origin))
            };
            let Range { start, end } = origin(&one.range);
            let is_known = found.iter().any(|known| known.range.start < end && start < known.range.end);
            if let Some(range) = one_word(&joined, &one, is_known) {
                found.push(Finding { range: origin(&range), ..one });
            }
        }
    }
    found
}

/// As much of what was found across the end of a line as is one secret, and not the next word.
fn one_word(joined: &View, found: &Finding, is_known: bool) -> Option<Range<usize>> {
    let Range { start, end } = found.range;
    let crossed: Vec<(usize, bool)> =
        joined.joins.iter().copied().filter(|(join, _)| start < *join && *join < end).collect();
    let is_certain = RULES.rules[found.rule].is_certain;
    let (&(first, _), _) = crossed.split_first()?;
    if !is_certain && !is_drawn(&joined.bytes[start..first]) {
        return None;
    }
    // Each part must look like one of a key, or be said to be one.
    let ends = crossed[1..].iter().map(|(join, _)| *join).chain([end]);
    let mut whole = first;
    for ((join, is_said), part_end) in crossed.iter().zip(ends) {
        if *is_said || is_certain && !is_known || is_drawn(&joined.bytes[*join..part_end]) {
            whole = part_end;
        } else {
            break;
        }
    }
    (whole > first).then_some(start..whole)
}

/// Words that hold a secret in another alphabet.
fn encoded(text: &[u8], depth: usize, found: &mut Vec<Finding>) {
    if depth >= DEPTH_MAX {
        return;
    }
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-');
    let mut at = 0;
    while at < text.len() {
        // From behind: most words are short, and most of a text is passed over in steps.
        let probe = at + ENCODED_BYTES_MIN - 1;
        if probe >= text.len() {
            break;
        }
        match text[at..=probe].iter().rposition(|&byte| !is_digit(byte)) {
            Some(gap) => at += gap + 1,
            None => {
                let length = text[at..].iter().take_while(|&&byte| is_digit(byte)).count();
                let padding = text[at + length..].iter().take(2).take_while(|&&byte| byte == b'=').count();
                let run = at..at + length + padding;
                // A word before it may have run into it.
                let holds = (0..4).any(|skip| {
                    decoded(&text[run.start + skip..run.end])
                        .and_then(|said| String::from_utf8(said).ok())
                        .is_some_and(|said| !secrets(&said, depth + 1).is_empty())
                });
                if holds {
                    found.push(Finding { range: run.clone(), rule: RULES.encoded });
                }
                at = run.end;
            }
        }
    }
}

/// The text without what was found; `None` if that is the text as it is.
fn replaced(text: &str, mut found: Vec<Finding>) -> Option<String> {
    if found.is_empty() {
        return None;
    }
    let marks = placeholders(text.as_bytes());
    for Finding { range, .. } in &mut found {
        // A placeholder that a secret runs into goes with it.
        for mark in &marks {
            if mark.start < range.end
                && range.start < mark.end
                && !(mark.start <= range.start && range.end <= mark.end)
            {
                *range = range.start.min(mark.start)..range.end.max(mark.end);
            }
        }
        *range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
    }
    found.retain(|found| {
        !marks.iter().any(|mark| mark.start <= found.range.start && found.range.end <= mark.end)
    });
    found.sort_by_key(|found| (found.range.start, found.rule));
    let mut merged: Vec<Finding> = Vec::new();
    for one in found {
        match merged.last_mut() {
            Some(last) if one.range.start < last.range.end => {
                last.range.end = last.range.end.max(one.range.end);
                last.rule = last.rule.min(one.rule);
            }
            _ => merged.push(one),
        }
    }
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for Finding { range, rule } in &merged {
        kept.push_str(&text[at..range.start]);
        kept.push_str("[redacted: ");
        kept.push_str(RULES.rules[*rule].kind);
        kept.push(']');
        at = range.end;
    }
    kept.push_str(&text[at..]);
    (!merged.is_empty()).then_some(kept)
}

/// Where a text holds what stands for a secret: that is none itself.
fn placeholders(text: &[u8]) -> Vec<Range<usize>> {
    memchr::memmem::find_iter(text, OPEN)
        .filter_map(|start| {
            let kind = &text[start + OPEN.len()..];
            let kind = &kind[..memchr::memchr(b']', &kind[..kind.len().min(80)])?];
            let is_ours = RULES.rules.iter().any(|rule| rule.kind.as_bytes() == kind);
            is_ours.then(|| start..start + OPEN.len() + kind.len() + 1)
        })
        .collect()
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
            ("webhook", format!("https://hooks.slack.com/services/T000/B000/{}", &letters[..24])),
            ("Stripe key", format!("sk_live_{}", &letters[..24])),
            ("Anthropic key", format!("sk-ant-api03-{letters}")),
            ("OpenAI key", format!("sk-proj-{letters}")),
            ("Google key", format!("AIza{}", &letters[..35])),
            ("npm token", format!("npm_{}", &letters[..36])),
            ("JWT", format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{letters}")),
            ("password in a URL", "postgres://app:hunter2secret@db:5432/app".to_owned()),
            ("authorization", format!("curl -H 'Authorization: Bearer {letters}'")),
            ("secret", format!("DB_PASSWORD={}", "hunter22")),
            ("password", format!("password: \"{}\"", "Tr0ub4dor&3")),
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
    fn a_secret_is_found_however_it_is_written() {
        let key = format!("ghp_{}", "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7");
        let (head, tail) = key.split_at(19);
        for text in [
            format!("{{\\\"token\\\": \\\"{key}\\\"}}"),
            format!("https://api.example.net/x?state=a%3D{key}%26b"),
            key.replace("ghp_", "ghp%5F"),
            key.replace("ghp_", "\\u0067hp_"),
            key.replace("3d", "3\u{200b}d"),
            key.replace("3d", "3\u{1b}[0md"),
            format!("+const KEY = \"{head}\" +\n+    \"{tail}\";"),
            format!("+{head}\n+{tail}"),
            format!("export K={head}\\\n{tail}"),
            format!("{head}\n{tail} and on"),
            // `token ghp_…` and `user:ghp_…`, in base64 and in hexadecimal digits.
            "x dG9rZW4gZ2hwX2FCM2RFNWZHN2hKOWtMMm1ONHBRNnJTOHRVMXZXM3hZNXpBNw== y".to_owned(),
            "x 6768705f614233644535664737684a396b4c326d4e34705136725338745531765733785935 7a41"
                .replace(' ', ""),
        ] {
            let clean = redact(&text);
            assert!(clean.contains("[redacted: "), "{text}");
            let shown = |part: &[u8]| clean.contains(std::str::from_utf8(part).unwrap());
            assert!(!key.as_bytes()[4..].windows(8).any(shown), "{text} became {clean}");
            assert_eq!(redact(&clean), clean);
        }
        assert_eq!(redact(&format!("{key}\nand other words")), "[redacted: GitHub token]\nand other words");
    }

    #[test]
    fn a_placeholder_hides_nothing() {
        let key = format!("ghp_{}", "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7");
        for text in [
            format!("[redacted: {key}]"),
            format!("[redacted: GitHub token{key}"),
            format!("[redacted: JWT]{key}"),
        ] {
            assert!(!redact(&text).contains("aB3dE5fG"), "{text}");
        }
        assert_eq!(redact("token = [redacted: GitHub token]"), "token = [redacted: GitHub token]");
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
            "let key = PrivatePkcs8KeyDer::from(bytes);",
            "let secret_expander = TLS13_CHACHA20_POLY1305_SHA256_INTERNAL",
            "the password is hashed with argon2 before it is kept",
            "password: String::new(), passphrase: Some(prompt_for_v2()),",
            "docker run -u 1000:1000 image",
            "postgres://user:password@localhost/db",
            "the API key is read from ANTHROPIC_API_KEY_FILE_V2, never from argv",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
