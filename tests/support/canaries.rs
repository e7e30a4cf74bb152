//! Made-up secrets, drawn from a seed in the forms of real ones; none of them opens anything.

use std::collections::HashSet;

/// How many consecutive bytes of a secret count as a leak.
const LEAK_BYTES: usize = 8;

pub(crate) struct Canary {
    pub(crate) kind: String,
    /// How it is written: `prose`, `diff`, `base64`.
    pub(crate) form: &'static str,
    /// The text as it stands in a session.
    pub(crate) text: String,
    /// The parts that must occur nowhere else.
    secrets: Vec<String>,
}

/// Returns each kind of secret in each form; the same seed gives the same canaries.
pub(crate) fn canaries(seed: u64) -> Vec<Canary> {
    let mut random = Random(seed);
    let mut all = Vec::new();
    for line in include_str!("../fixtures/canaries/kinds.txt").lines() {
        let Some((kind, template)) = line.split_once(" | ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        for form in FORMS {
            let (text, random_words) = fill_template(template, &mut random);
            all.extend(wrap_in_form(kind, form, &text, &random_words));
        }
    }
    all
}

const FORMS: [&str; 9] =
    ["prose", "code", "JSON", "URL", "diff", "broken diff", "continued line", "base64", "hidden character"];

fn wrap_in_form(kind: &str, form: &'static str, line: &str, random_words: &[String]) -> Option<Canary> {
    let mut secrets: Vec<String> = random_words.to_vec();
    // A short password that is broken in two is not recognisable as one.
    let longest = random_words.iter().max_by_key(|random_words| random_words.len())?;
    let middle = line.find(longest.as_str())? + longest.len() / 2;
    let (head, tail) = line.split_at(middle);
    let is_long = longest.len() >= 24 && !line.contains('\n');
    let text = match form {
        "prose" => format!("I have tried it with this: {line}\nand it still fails."),
        "code" => format!("fn main() {{\n    // {}\n    connect();\n}}", line.replace('\n', "\n    // ")),
        "JSON" => {
            let inner = serde_json::json!({ "output": line, "ok": true }).to_string();
            serde_json::json!({ "body": inner }).to_string()
        }
        "URL" => {
            secrets.push(percent_encode(longest));
            format!("see https://ci.example.org/log?line={}&all=1 for it", percent_encode(line))
        }
        "diff" => format!("@@ -1,2 +1,2 @@\n-old\n+{}\n end", line.replace('\n', "\n+")),
        "broken diff" if is_long => format!("@@ -1 +1,2 @@\n+{head}\n+{tail}\n end"),
        "continued line" if is_long => format!("run --with {head}\\\n{tail}"),
        "base64" => {
            secrets.push(encode_base64(line));
            format!("the value is {} as it came", encode_base64(line))
        }
        "hidden character" => {
            let (head, tail) = line.split_at(line.find(longest.as_str())? + longest.len() - 3);
            format!("it was {head}\u{200b}{tail}, I think")
        }
        _ => return None,
    };
    Some(Canary { kind: kind.to_owned(), form, text, secrets })
}

/// Replaces each `{ALPHABET LENGTH}` of a template by a random word.
fn fill_template(template: &str, random: &mut Random) -> (String, Vec<String>) {
    let template = template.replace("\\n", "\n");
    let (mut text, mut random_words) = (String::new(), Vec::new());
    let mut rest = template.as_str();
    while let Some((before, after)) = rest.split_once("{{") {
        let (field, after) = after.split_once("}}").unwrap();
        let (alphabet, length) = field.split_once(' ').unwrap();
        let secret = random.word(alphabet, length.parse().unwrap());
        text.push_str(before);
        text.push_str(&secret);
        random_words.push(secret);
        rest = after;
    }
    text.push_str(rest);
    (text, random_words)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn word(&mut self, alphabet: &str, length: usize) -> String {
        const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let from = match alphabet {
            "alnum" => LETTERS.to_owned(),
            "base64" => format!("{LETTERS}+/"),
            "url64" => format!("{LETTERS}-_"),
            "hex" => "0123456789abcdef".to_owned(),
            "upper" => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".to_owned(),
            "bech32" => "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L".to_owned(),
            "lower" => "abcdefghijklmnopqrstuvwxyz0123456789".to_owned(),
            "digit" => "0123456789".to_owned(),
            // What people invent: letters, a digit, a mark, letters.
            "password" => {
                let digit = self.word("digit", 2);
                return format!("{}{digit}!{}", self.word("alnum", length - 6), self.word("alnum", 3));
            }
            "pair" => return encode_base64(&format!("deploy:{}", self.word("password", length))),
            "said" => return encode_base64(&self.word("password", length)),
            other => panic!("unknown alphabet {other}"),
        };
        let from: Vec<char> = from.chars().collect();
        loop {
            let word: String =
                (0..length).map(|_| from[(self.next() % from.len() as u64) as usize]).collect();
            // What services generate: almost never without a digit.
            let digits = word.bytes().filter(u8::is_ascii_digit).count();
            if digits >= 2 || length < 8 {
                return word;
            }
        }
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn encode_base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for group in text.as_bytes().chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            encoded.push(if digit > group.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    encoded
}

/// Searches bytes of any kind for secrets.
pub(crate) struct LeakDetector {
    parts: HashSet<u64>,
    /// A filter before the set: most parts belong to no secret.
    filter: Vec<bool>,
}

impl LeakDetector {
    pub(crate) fn new(canaries: &[Canary]) -> Self {
        let mut detector = Self { parts: HashSet::new(), filter: vec![false; 1 << 20] };
        for secret in canaries.iter().flat_map(|canary| &canary.secrets) {
            for part in secret.as_bytes().windows(LEAK_BYTES) {
                let part = u64::from_le_bytes(part.try_into().unwrap());
                detector.filter[filter_index(part)] = true;
                detector.parts.insert(part);
            }
        }
        detector
    }

    /// Returns the first part of a secret found, with the text around it.
    pub(crate) fn find_leak(&self, bytes: &[u8]) -> Option<String> {
        let at = bytes.windows(LEAK_BYTES).position(|part| {
            let part = u64::from_le_bytes(part.try_into().unwrap());
            self.filter[filter_index(part)] && self.parts.contains(&part)
        })?;
        let around = &bytes[at.saturating_sub(120)..(at + 120).min(bytes.len())];
        Some(String::from_utf8_lossy(around).into_owned())
    }
}

fn filter_index(part: u64) -> usize {
    (part.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize
}
