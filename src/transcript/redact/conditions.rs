//! What a match of one of our rules must satisfy beside its expression.

use super::entropy::{
    decode_text, entropy, is_jumbled, is_mixed, is_placeholder, is_random, is_word, looks_random,
};

/// A match of an expression, for the tests that it cannot express.
pub(super) struct Match<'a> {
    pub(super) secret: &'a [u8],
    pub(super) whole: &'a [u8],
    /// The name that the match begins in: all of `MY_API_KEY`, not only the rule's keyword.
    pub(super) key: &'a [u8],
}

/// Tests whether a match is a secret.
pub(super) type Condition = fn(&Match<'_>) -> bool;

const SYMBOLS: &[u8] = b"!@#$%^&*+=?~";

/// The condition of this name, none if it is empty; `None` if no condition has the name.
pub(super) fn condition(name: &str) -> Option<Condition> {
    Some(match name {
        "" => |_| true,
        "value" => is_value,
        "random" => |found| is_random(found.secret),
        "looks-random" => |found| is_value(found) && looks_random(found.secret),
        "made-password" => |found| is_value(found) && is_made_password(found.secret),
        "no-word" => |found| is_value(found) && !is_word(found.secret),
        "digit" => |found| is_value(found) && has_digit(found.secret),
        "no-numbers" => {
            |found| is_value(found) && !found.secret.iter().all(|byte| b"0123456789:".contains(byte))
        }
        // A complete key, or either half of one that was cut in two; not a mere mention of its marks.
        "key-body" => |found| {
            let runs = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"+/=".contains(byte);
            found.whole.split(runs).any(|run| run.len() >= 24)
        },
        "key" => |found| entropy(found.secret) >= 2.8,
        "password" => |found| is_value(found) && !names_a_password(found.secret),
        "vendor-key" => |found| entropy(found.secret) >= 2.8 && has_digit(found.secret),
        "credentials" => |found| decode_text(found.secret).is_some_and(|text| text.contains(&b':')),
        "cookie" => |found| {
            let mut words = found.secret.split(|byte| b";= ".contains(byte));
            words.any(|word| word.len() >= 12 && looks_random(word) && !is_placeholder(word))
        },
        "url-password" => |found| {
            const STAND_INS: [&[u8]; 6] = [b"password", b"pass", b"passwd", b"pwd", b"pw", b"..."];
            is_value(found) && !STAND_INS.iter().any(|word| found.secret.eq_ignore_ascii_case(word))
        },
        "url-parameter" => |found| {
            let is_password = contains(found.whole, b"pass") || contains(found.whole, b"pwd");
            is_value(found) && (is_random(found.secret) || is_password && has_digit(found.secret))
        },
        "command-password" => |found| {
            is_value(found)
                && !b"-/~.".contains(&found.secret[0])
                && has_digit(found.secret)
                && has_letter(found.secret)
        },
        // A value, and what may follow it: `VALUE name=VALUE`.
        "pairs" => |found| {
            found.secret.split(u8::is_ascii_whitespace).enumerate().any(|(at, word)| {
                let value = match word.iter().position(|byte| *byte == b'=') {
                    _ if at == 0 => word,
                    Some(end) => &word[end + 1..],
                    None => return false,
                };
                let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
                value.len() >= 4
                    && !value.starts_with(b"@")
                    && !is_placeholder(value)
                    && has_digit(value)
                    && has_letter(value)
            })
        },
        "sql-password" => {
            |found| is_value(found) && (has_digit(found.secret) || contains(found.whole, b"identified"))
        }
        "prose-password" => |found| {
            let secret = found.secret;
            let symbols = secret[..secret.len() - 1].iter().any(|byte| SYMBOLS.contains(byte));
            is_value(found)
                && has_letter(secret)
                && (has_digit(secret) || symbols)
                && !is_path(secret)
                && !is_name_of_code(secret)
                // The quotes before it are an empty password.
                && !b",;".contains(&secret[0])
        },
        "quoted-assignment" => |found| {
            let password =
                contains(found.key, b"pass") || contains(found.key, b"pwd") || contains(found.key, b"_pw");
            let symbols = found.secret.iter().any(|byte| byte.is_ascii_digit() || SYMBOLS.contains(byte));
            let plain = !found.secret.iter().any(|byte| b"({<".contains(byte));
            is_value(found)
                && !is_plain_path(found.secret)
                && (is_random(found.secret)
                    || is_base64_text(found.secret)
                    || plain && names_a_secret(found.key) && is_jumbled(found.secret)
                    || password && symbols && plain && !names_a_password(found.secret))
        },
        "assignment" => |found| {
            let is_upper = found.key.iter().all(|byte| !byte.is_ascii_lowercase());
            let plain = !found.secret.iter().any(|byte| b".(:".contains(byte));
            // `-i prod-access-key user1@host`: the name of a key's file.
            let beginning = found.whole.strip_suffix(found.secret).unwrap_or_default();
            let is_apart = beginning.ends_with(b" ");
            let is_assigned = beginning.iter().any(|byte| b":=".contains(byte));
            is_value(found)
                && !(is_apart && is_address(found.secret))
                && !is_plain_path(found.secret)
                && (is_random(found.secret)
                    || is_base64_text(found.secret) && contains(found.whole, b":")
                    || ends_in_pass(found.key)
                        && found.secret.len() >= 8
                        && is_mixed(found.secret, 2, 4)
                        && plain
                    || plain
                        && (ends_in_password(found.key)
                            && (is_jumbled(found.secret) || is_assigned && is_made_password(found.secret))
                            || is_assigned && names_a_secret(found.key) && is_jumbled(found.secret))
                    || is_upper
                        && has_digit(found.secret)
                        && has_letter(found.secret)
                        && plain
                        && !is_constant(found.secret))
        },
        "far-secret" => |found| {
            let digits = found.secret.iter().filter(|byte| byte.is_ascii_digit()).count();
            let joints = found.secret.iter().filter(|byte| b"/_-".contains(byte)).count();
            is_random(found.secret)
                && found.secret.iter().any(u8::is_ascii_lowercase)
                && found.secret.iter().any(u8::is_ascii_uppercase)
                && digits >= 3
                && joints * 8 <= found.secret.len()
                && entropy(found.secret) >= 3.7
        },
        _ => return None,
    })
}

fn is_value(found: &Match<'_>) -> bool {
    !is_placeholder(found.secret)
}

/// Whether a value is padded base64 of printable text, as in a Kubernetes secret.
fn is_base64_text(secret: &[u8]) -> bool {
    secret.len() >= 8
        && secret.len().is_multiple_of(4)
        && secret.ends_with(b"=")
        && decode_text(secret).is_some()
}

/// Whether a value is a name, a label or a stand-in for a password, and no password.
fn names_a_password(value: &[u8]) -> bool {
    const STAND_INS: [&[u8]; 24] = [
        b"password",
        b"passwd",
        b"passphrase",
        b"passcode",
        b"pass",
        b"pwd",
        b"secret",
        b"string",
        b"text",
        b"hidden",
        b"required",
        b"optional",
        b"invalid",
        b"missing",
        b"incorrect",
        b"empty",
        b"none",
        b"null",
        b"undefined",
        b"true",
        b"false",
        b"changeit",
        b"default",
        b"unknown",
    ];
    let joins = |byte: &u8| b"_-.#/: ".contains(byte);
    let is_named = contains(value, b"pass") || contains(value, b"pwd") || contains(value, b"secret");
    STAND_INS.iter().any(|word| value.eq_ignore_ascii_case(word))
        || is_named && !has_digit(value) && value.iter().any(joins)
        || value.iter().all(|byte| !byte.is_ascii_alphanumeric())
        || is_path(value)
}

fn has_digit(word: &[u8]) -> bool {
    word.iter().any(u8::is_ascii_digit)
}

fn has_letter(word: &[u8]) -> bool {
    word.iter().any(u8::is_ascii_alphabetic)
}

fn is_path(word: &[u8]) -> bool {
    word.iter().filter(|byte| **byte == b'/').count() >= 2
        || word.starts_with(b"/")
        || word.starts_with(b"./")
}

/// Whether a word is an absolute path or a URL, and no part of it looks like a key.
fn is_plain_path(word: &[u8]) -> bool {
    let is_url = memchr::memmem::find(word, b"://").is_some();
    (is_url || word.starts_with(b"/")) && !word.split(|byte| *byte == b'/').any(is_random)
}

/// Whether a word is `user@host`.
fn is_address(word: &[u8]) -> bool {
    let is_name = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| is_name_byte(*byte));
    let mut parts = word.split(|byte| *byte == b'@');
    let is_pair = parts.next().is_some_and(is_name) && parts.next().is_some_and(is_name);
    is_pair && parts.next().is_none()
}

/// Whether a name is one as `db_pass` or `ADMIN_PW`.
fn ends_in_pass(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(b"pass") || lower.ends_with(b"_pw")
}

/// Whether a name is one as `db_password`, `keyPassword` or `db_pwd`.
fn ends_in_password(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    [&b"password"[..], b"passwd", b"passphrase", b"pwd"].iter().any(|word| lower.ends_with(word))
}

/// Whether a name is one as `jwt_secret`, `api_token`, `app_key` or `db_password`.
fn names_a_secret(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_key = [&b"secret"[..], b"token", b"key"].iter().any(|word| lower.ends_with(word));
    is_key || ends_in_pass(name) || ends_in_password(name)
}

/// Whether a word looks like a password that a program made, or has a digit, a letter and a sign.
fn is_made_password(word: &[u8]) -> bool {
    let has_sign = word.iter().any(|byte| b"!@#$%^*".contains(byte));
    let is_plain = !word.iter().any(|byte| b"=&.(:/".contains(byte));
    is_jumbled(word)
        || word.len() >= 8 && has_sign && is_plain && has_digit(word) && has_letter(word) && !is_address(word)
}

/// Whether a word is the name of a constant, such as `SHADOW_MAP_2`.
fn is_constant(word: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    word[0].is_ascii_uppercase() && word.contains(&b'_') && word.iter().all(is_part)
}

/// Whether a byte may be part of the name of a variable, a file or a host.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether a word is a name in code, such as `argon2.hash` or `field_1;`, and no password.
fn is_name_of_code(word: &[u8]) -> bool {
    let word = word.strip_suffix(b";").unwrap_or(word);
    let joints = word.iter().any(|byte| b"._".contains(byte));
    joints
        && word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._,".contains(byte))
        && !looks_random(word)
}

fn contains(text: &[u8], lower: &[u8]) -> bool {
    memchr::memmem::find(&text.to_ascii_lowercase(), lower).is_some()
}
