//! Measures redaction with the examples of other scanners' rules:
//! `cargo test --locked -p transcript -- scanner_examples --nocapture` prints the figures.
//!
//! An example is realistic unless its file says why not: an identifier or a public key, a variable, a mask or a
//! stand-in that says so. A weak password is realistic. A negative example is counted unless it holds a secret of
//! another kind, or a key that is wrong by a character.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::redact;

/// How many consecutive bytes of a secret count as a leak.
const LEAK_BYTES: usize = 8;

#[derive(Deserialize)]
struct Examples {
    positive: Vec<Example>,
    negative: Vec<Example>,
}

#[derive(Deserialize)]
struct Example {
    rule: String,
    /// Its number, or its name.
    example: toml::Value,
    text: String,
    #[serde(default)]
    secrets: Vec<String>,
    /// Why it is not counted.
    excluded: Option<String>,
}

/// The examples that are redacted wrongly, each as a text for a person to judge.
struct Measured {
    positives: usize,
    realistic: usize,
    survivors: Vec<String>,
    negatives: usize,
    counted: usize,
    wrong: Vec<String>,
}

fn measure(name: &str, file: &str) -> Measured {
    let examples: Examples = toml::from_str(file).unwrap();
    let mut measured = Measured {
        positives: examples.positive.iter().map(|example| example.secrets.len()).sum(),
        realistic: 0,
        survivors: Vec::new(),
        negatives: examples.negative.len(),
        counted: 0,
        wrong: Vec::new(),
    };
    for Example { rule, example, text, secrets, excluded } in &examples.positive {
        if excluded.is_some() {
            continue;
        }
        let text = decode(text);
        let clean = redact(&text);
        measured.realistic += secrets.len();
        for secret in secrets.iter().map(|secret| decode(secret)) {
            if survives(&text, &clean, &secret) {
                measured.survivors.push(format!("{rule} {example}: {secret} in\n{clean}"));
            }
        }
    }
    for Example { rule, example, text, .. } in
        examples.negative.iter().filter(|example| example.excluded.is_none())
    {
        let text = decode(text);
        let clean = redact(&text);
        measured.counted += 1;
        if clean != text {
            measured.wrong.push(format!("{rule} {example}: {text}\nbecame\n{clean}"));
        }
    }
    let Measured { positives, realistic, survivors, negatives, counted, wrong } = &measured;
    println!(
        "{name}: {positives} secrets, {realistic} of them realistic, {} survive ({:.1} %); \
         {negatives} negative examples, {counted} of them counted, {} wrongly redacted",
        survivors.len(),
        survivors.len() as f64 / *realistic as f64 * 100.0,
        wrong.len(),
    );
    for text in survivors.iter().chain(wrong) {
        println!("  {}", text.trim().replace('\n', "\n    "));
    }
    measured
}

fn decode(text: &str) -> String {
    let mut bytes = STANDARD.decode(text).unwrap();
    bytes.reverse();
    String::from_utf8(bytes).unwrap()
}

/// Whether a part of the secret remains that the text does not also have in another place.
fn survives(text: &str, clean: &str, secret: &str) -> bool {
    let (before, after) = text.rsplit_once(secret).unwrap();
    // Without the placeholders, whose words may occur in a password.
    let mut parts = clean.split("[redacted: ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push('\0');
        kept.push_str(part.split_once(']').map_or(part, |(_, rest)| rest));
    }
    let elsewhere = format!("{before}\0{after}");
    let count = |text: &str, part: &[u8]| memchr::memmem::find_iter(text.as_bytes(), part).count();
    secret
        .as_bytes()
        .windows(LEAK_BYTES.min(secret.len()))
        .any(|part| count(&kept, part) > count(&elsewhere, part))
}

#[test]
fn few_secrets_in_the_examples_of_other_scanners_survive() {
    for (name, rules) in [
        ("gitleaks", include_str!("../rules/gitleaks.toml")),
        ("Nosey Parker", include_str!("../rules/noseyparker.toml")),
        ("nugget", include_str!("../rules/nugget.toml")),
    ] {
        println!("{} rules of {name}", rules.matches("[[rules]]").count());
    }
    for (name, file) in [
        ("Nosey Parker", include_str!("../rules/examples/noseyparker.toml")),
        ("secretlint", include_str!("../rules/examples/secretlint.toml")),
    ] {
        let Measured { positives, realistic, survivors, counted, wrong, .. } = measure(name, file);
        assert!(survivors.len() * 100 < realistic * 3, "{name}: {} of {realistic}", survivors.len());
        assert!(wrong.len() <= 5, "{name}: {}", wrong.len());
        let row = format!(
            "| {name} | {positives} | {realistic} | {} | {counted} | {} |",
            survivors.len(),
            wrong.len()
        );
        assert!(include_str!("../../../docs/privacy.md").contains(&row), "docs/privacy.md lacks {row}");
    }
}
