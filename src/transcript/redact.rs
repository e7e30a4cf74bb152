//! Removes secrets from text before it is stored.
//!
//! A text is searched as it is, with escapes, percent codes and hidden characters decoded, and with
//! broken lines joined. Words in base64 and in hexadecimal digits are decoded and searched too.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::ops::Range;

mod conditions;
mod entropy;
mod private_key;
mod rules;
#[cfg(test)]
mod scanner_examples;
mod view;

use entropy::{decode_text, looks_random};
use rules::{Finding, PLACEHOLDER_START, RULES};
use view::View;

/// How often a text is searched again, because a removal may reveal something new. Every round removes
/// something, so this bound is not reached.
const ROUNDS_MAX: usize = 16;
/// How deeply nested encodings are decoded.
const DEPTH_MAX: usize = 3;
/// The shortest word that is decoded: a shorter one contains no secret.
const ENCODED_BYTES_MIN: usize = 16;

/// Replaces each secret by `[redacted: kind]`. Redacting the result again changes nothing.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..ROUNDS_MAX {
        let found = find_secrets(&text, 0);
        match replace(&text, found) {
            Some(redacted) => text = Cow::Owned(redacted),
            None => break,
        }
    }
    text
}

/// The value of a key without secrets, also one that only the key tells, as of `db password`.
pub fn redact_value(key: &str, value: &str) -> String {
    let beginning = format!("{key}: ");
    match redact(&format!("{beginning}{value}")).strip_prefix(&beginning) {
        Some(rest) => rest.to_owned(),
        None => redact(value).into_owned(),
    }
}

/// The secrets of a text in all its views.
fn find_secrets(text: &str, depth: usize) -> Vec<Finding> {
    let unescaped = View::unescaped(text);
    let mut found = RULES.find(text.as_bytes());
    find_encoded(text.as_bytes(), depth, &mut found);
    if let Some(view) = &unescaped {
        let mut here = RULES.find(&view.bytes);
        find_encoded(&view.bytes, depth, &mut here);
        found.extend(here.into_iter().map(|found| Finding { range: view.origin(&found.range), ..found }));
    }
    let base = unescaped.as_ref().map_or(text.as_bytes(), |view| &view.bytes);
    if let Some(joined) = View::joined_lines(base) {
        let mut here = RULES.find(&joined.bytes);
        find_encoded(&joined.bytes, depth, &mut here);
        let continuations = LazyCell::new(|| Continuations::new(&joined));
        for one in here {
            let origin = |range: &Range<usize>| {
                let origin = joined.origin(range);
                unescaped.as_ref().map_or_else(|| origin.clone(), |view| view.origin(&origin))
            };
            let Range { start, end } = origin(&one.range);
            let is_known = found.iter().any(|known| known.range.start < end && start < known.range.end);
            if let Some(range) = continuations.within_one_secret(&one, is_known) {
                found.push(Finding { range: origin(&range), ..one });
            }
        }
    }
    found
}

/// Where secrets may end that go on behind the joins of lines.
struct Continuations<'a> {
    joined: &'a View,
    /// For each join, the first one from there on whose part does not continue a secret.
    stops: Vec<usize>,
}

impl<'a> Continuations<'a> {
    fn new(joined: &'a View) -> Self {
        let joins = &joined.joins;
        let mut stops: Vec<usize> = (0..joins.len()).collect();
        for at in (0..joins.len().saturating_sub(1)).rev() {
            if continues(joined, at, joins[at + 1].0) {
                stops[at] = stops[at + 1];
            }
        }
        Self { joined, stops }
    }

    /// The part of a finding across the end of a line that is one secret, without the next word.
    fn within_one_secret(&self, found: &Finding, is_known: bool) -> Option<Range<usize>> {
        let (joined, Range { start, end }) = (self.joined, found.range.clone());
        let first = joined.joins.partition_point(|(join, _)| *join <= start);
        let last = joined.joins.partition_point(|(join, _)| *join < end).checked_sub(1)?;
        let (first_join, _) = *joined.joins.get(first).filter(|_| first <= last)?;
        let is_certain = RULES.rules[found.rule].is_certain;
        if !is_certain && !looks_random(&joined.bytes[start..first_join]) {
            return None;
        }
        if is_certain && !is_known {
            return Some(start..end);
        }
        let stop = self.stops[first].min(last);
        let is_whole = stop == last && continues(joined, last, end);
        let secret_end = if is_whole { end } else { joined.joins[stop].0 };
        (secret_end > first_join).then_some(start..secret_end)
    }
}

/// Whether the part from a join to `end` looks like a part of a key, or is marked as a continuation.
fn continues(joined: &View, at: usize, end: usize) -> bool {
    let (join, is_explicit) = joined.joins[at];
    is_explicit || looks_random(&joined.bytes[join..end])
}

/// Finds words that contain a secret in base64 or in hexadecimal digits.
fn find_encoded(text: &[u8], depth: usize, found: &mut Vec<Finding>) {
    if depth >= DEPTH_MAX {
        return;
    }
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-');
    let mut at = 0;
    while at < text.len() {
        // From the end: most words are short, so most of a text is skipped in steps.
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
                // The end of a word before it may be attached to it.
                let has_secret = (0..4).any(|skip| {
                    decode_text(&text[run.start + skip..run.end])
                        .and_then(|decoded| String::from_utf8(decoded).ok())
                        .is_some_and(|decoded| !find_secrets(&decoded, depth + 1).is_empty())
                });
                if has_secret {
                    found.push(Finding { range: run.clone(), rule: RULES.encoded });
                }
                at = run.end;
            }
        }
    }
}

/// The text with the findings replaced; `None` if nothing changes.
fn replace(text: &str, mut found: Vec<Finding>) -> Option<String> {
    if found.is_empty() {
        return None;
    }
    let marks = placeholders(text.as_bytes());
    for Finding { range, .. } in &mut found {
        // A placeholder that a secret overlaps is replaced with it.
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
        kept.push_str(&RULES.rules[*rule].kind);
        kept.push(']');
        at = range.end;
    }
    kept.push_str(&text[at..]);
    (!merged.is_empty()).then_some(kept)
}

/// The ranges of placeholders in a text, which are no secrets themselves.
fn placeholders(text: &[u8]) -> Vec<Range<usize>> {
    memchr::memmem::find_iter(text, PLACEHOLDER_START)
        .filter_map(|start| Some(start..RULES.placeholder(text, start)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assembled here, so that no scanner of this repository reports a test as a leak.
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
            ("password in a URL", "mysql://root:P@ss/w0rd!@localhost/shop".to_owned()),
            ("password in an address", "app:P@ss/w0rd!@tcp(db:3306)/shop".to_owned()),
            ("token in a URL", format!("git clone https://{}@github.com/shop/app", &letters[..40])),
            ("npm token", format!("//npm.example.org/:_authToken={}", "1a".repeat(10))),
            ("private key", format!("my wallet's key is 0x{}", "1a2b".repeat(16))),
            ("password", "username admin password 7 0822455D0A16".to_owned()),
            ("password of a command", "New-Login -Password Summer2024".to_owned()),
            ("GitHub token", format!("ghs_12345_eyJ{letters}.eyJ{letters}.{letters}")),
            ("private key", pem("\n")),
            ("private key", pem("\\n")),
            ("secret", format!("APP_KEY=base64:{letters}")),
        ]
    }

    fn pem(feed: &str) -> String {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
        let fence = |word: &str| format!("-----{word} RSA PRIVATE KEY-----");
        [fence("BEGIN").as_str(), line, line, "abc=", fence("END").as_str()].join(feed)
    }

    #[test]
    fn each_kind_of_secret_is_found() {
        for (kind, text) in secrets() {
            let clean = redact(&text);
            assert!(clean.contains(&format!("[redacted: {kind}]")), "{kind}: {text} became {clean}");
            let again = redact(&clean).into_owned();
            assert_eq!(again, clean, "{kind}");
        }
    }

    #[test]
    fn a_private_key_that_was_cut_in_two_is_removed() {
        let pem = pem("\n");
        for at in (40..pem.len() - 40).step_by(7) {
            for half in [&pem[..at], &pem[at..]] {
                let clean = redact(half);
                // Less than a third of one line may remain: it reveals nothing, and code has such words too.
                let runs = clean.split(|c: char| !c.is_ascii_alphanumeric());
                assert!(runs.map(str::len).max() < Some(24), "{clean}");
            }
        }
    }

    #[test]
    fn a_private_key_is_found_with_what_tools_print_around_it() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7aB3dE5fG7hJ9";
        let begin = format!("-----BEGIN RSA {} KEY-----", "PRIVATE");
        let lines = [begin.as_str(), line, line, line];
        let with = |prefix: fn(usize) -> String| {
            let lines = lines.iter().enumerate().map(|(number, line)| prefix(number) + line);
            lines.collect::<Vec<_>>().join("\n")
        };
        for text in [
            with(|number| format!("     {}\t", number + 1)),
            with(|number| format!("{:6}\u{2192}", number + 1)),
            with(|_| "keys/k.pem-".to_owned()),
            with(|_| "app-1  | ".to_owned()),
            format!("{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,1A2B\n\n{line}\n{line}"),
            format!("---- BEGIN SSH2 ENCRYPTED {} KEY ----\nComment: \"mine\"\n{line}\n{line}", "PRIVATE"),
        ] {
            let shown = format!("$ show\n{text}\nall is well with the others");
            let clean = redact(&shown);
            assert!(!clean.contains(&line[..24]), "{text} became {clean}");
            assert!(clean.ends_with("\nall is well with the others"), "{clean}");
        }
    }

    #[test]
    fn what_stands_between_two_mentions_of_the_marks_of_a_key_stays() {
        let mark = |word: &str| format!("-----{word} RSA {} KEY-----", "PRIVATE");
        let prose = "Never retry a payment: src/shop/payments/retry_the_payment_of_an_order.rs says why.\n"
            .repeat(90);
        let document =
            format!("It begins with `{}`.\n{prose}It ends with `{}`.\n", mark("BEGIN"), mark("END"));
        assert_eq!(redact(&document), document);
        let code = format!(
            "if line.starts_with(\"{}\") {{\n    self.accumulatedBase64LinesOfTheKey.push(line);\n}} else if line == \"{}\" {{\n",
            mark("BEGIN"),
            mark("END")
        );
        assert_eq!(redact(&code), code);
        // A mention hides no key that follows.
        let clean = redact(&format!("{document}{}\n", pem("\n"))).into_owned();
        assert_eq!(clean, format!("{document}[redacted: private key]\n"));
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
            key.bytes().map(|byte| char::from_u32(u32::from(byte) + 0xfee0).unwrap()).collect(),
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
    fn many_secrets_one_below_the_other_are_read_once() {
        // Each line may go on in all that follow: rated from each of them, these would be millions of parts.
        let keys: String =
            (0..5_000).map(|at| format!("ghp_aB3dE5fG7hJ9kL2mN4pQ6rS8tU1v{at:05}\n")).collect();
        let clean = redact(&keys).into_owned();
        assert!(clean.starts_with("[redacted: GitHub token]") && !clean.contains("aB3dE"), "{:.200}", clean);
    }

    #[test]
    fn a_key_on_several_lines_is_removed_to_its_end() {
        let parts = [
            "ghp_aB3dE5fG7hJ9kL2mN4pQ",
            "6rS8tU1vW3xY5zA7bC9d",
            "E1fG3hJ5kL7mN9pQ2rS4",
            "tU6vW8xY1zA3bC5dE7fG",
        ];
        let clean = redact(&format!("{}\nother words", parts.join("\n"))).into_owned();
        assert_eq!(clean, "[redacted: GitHub token]\nother words");
    }

    #[test]
    fn a_password_is_found_in_the_forms_of_tools_and_of_speech() {
        let (password, hex) = (format!("Tr0ub4{}", "dorX"), "9f86d081".repeat(2) + "884c7d659a2feaa0");
        for text in [
            "The API key is H",
            "the token is `H`",
            "our access token was H.",
            "<password>X</password>",
            "<add key=\"DbPassword\" value=\"X\" />",
            "- name: DB_PASSWORD\n  value: X",
            "{\"name\": \"DB_PASSWORD\", \"value\": \"X\"}",
            "requests.get(url, auth=(\"ann\", \"X\"))",
            "htpasswd -b .htpasswd ann X",
            "htpasswd -nbB ann 'X' > .htpasswd",
            "echo X | sudo -S apt update",
            "echo 'X' | sudo -k -S true",
            "echo X | passwd --stdin ann",
            "echo 'X' | docker login -u ann --password-stdin",
            "unzip -P X a.zip",
            "7z x a.7z -pX",
            "sqlcmd -S db -U sa -P 'X'",
            "sudo useradd -m -p X ann",
            "gh secret set PROD_PW --body X",
            "nmcli dev wifi connect shop password X",
            "gpg --batch --passphrase X -d a.gpg",
            "openssl pkcs12 -in a.p12 -passout pass:X",
            "kubectl create secret generic db --from-literal=user=ann --from-literal=db=X",
            "user ann, password X",
            "Das Passwort für die Datenbank ist X",
            "Das Passwort lautet: X",
            "the password is: X",
            "sqlplus scott/X@//db:1521/shop",
            "scott/X@//db",
            "variable \"db_password\" {\n  type = string\n  default = \"X\"\n}",
        ] {
            let secret = if text.contains('H') { &hex } else { &password };
            let clean = redact(&text.replace(['X', 'H'], secret)).into_owned();
            assert!(!clean.contains(&secret[..6]) && clean.contains("[redacted: "), "{text}: {clean}");
        }
    }

    #[test]
    fn a_weak_password_is_found_where_its_place_says_what_it_is() {
        let password = format!("summer{}", "2024");
        for text in [
            "vault kv put secret/shop user=ann password=X",
            "vault kv put secret/shop host=db.example.com stripe=\"X\" port=5432 | tee a",
            "vault kv patch secret/shop \\\n  a=$A \\\n  stripe=X",
            "vault kv put -mount=secret shop \\\n  api_token=X password=X stripe=X",
            "vault write auth/userpass/users/ann password=X policies=admins",
            "helm upgrade shop . --set auth.password=X,replicas=2",
            "psql \"host=db user=ann password=X\"",
            "heroku config:set -a shop API_TOKEN=X",
            "mount -t cifs -o username=ann,password=X //srv/a /mnt",
            "ansible-playbook site.yml -e 'db_password=X'",
            "echo 'ann:X' | chpasswd",
            "echo \"root:X\" | sudo chpasswd -c SHA512",
            "echo ann:X|docker exec -i web chpasswd",
            "echo -e 'ann:X\\nbob:X' | chpasswd",
            "printf 'ann:X\\n' | chpasswd",
            "printf '%s:%s\\n' ann 'X' | chpasswd",
            "sudo chpasswd <<< \"ann:X\"",
            "chpasswd <<'EOF'\nbob:$B\nann:X\neve:X\nEOF\n",
            "wpa_passphrase=X",
            "sae_password=X",
            "network={\n  ssid=\"shop\"\n  psk=\"X\"\n}",
            "wpa_passphrase \"the shop\" X > a.conf",
            "[wifi-security]\nkey-mgmt=wpa-psk\npsk=X\n",
        ] {
            let clean = redact(&text.replace('X', &password)).into_owned();
            assert!(!clean.contains(&password) && clean.contains("[redacted: pass"), "{text}: {clean}");
            assert_eq!(redact(&clean), clean);
        }
    }

    #[test]
    fn the_private_members_of_a_key_in_json_are_removed() {
        let secret = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7bC9d-_x";
        let members = |names: &[&str]| {
            let members: Vec<String> = names.iter().map(|name| format!("\"{name}\": \"{secret}\"")).collect();
            members.join(",\n  ")
        };
        for text in [
            format!("{{\"kty\":\"EC\",\"x\":\"A\",{}}}", members(&["d"])),
            format!("{{{}, \"kid\": \"a\", \"kty\": \"oct\"}}", members(&["k"])),
            format!("{{\n  \"kty\": \"RSA\",\n  {}\n}}", members(&["d", "p", "q", "dp", "dq", "qi"])),
            format!("{{\n  {},\n  \"kty\": \"RSA\"\n}}", members(&["p", "q", "d", "qi", "dp", "dq"])),
            format!("{{ kty: 'OKP', crv: 'Ed25519', d: '{secret}' }}"),
        ] {
            let clean = redact(&text).into_owned();
            assert!(!clean.contains(&secret[..8]) && clean.contains("[redacted: private key]"), "{clean}");
            assert_eq!(redact(&clean), clean);
        }
        let public = format!("{{\"kty\":\"RSA\",\"e\":\"AQAB\",{}}}", members(&["n", "x5t"]));
        assert_eq!(redact(&public), public);
    }

    #[test]
    fn the_values_of_a_kubernetes_secret_are_removed() {
        // Of `hunter2`, of `ann` and of a text that is longer.
        let values = ["aHVudGVyMg==", "YW5u", "bGV0bWVpbiBhbGw="];
        let [one, two, three] = values;
        let data = format!("data:\n  db: {one}\n  none: \"\"\n  user: {two}\n  z.crt: {three}\n");
        let inner = data.replace('\n', "\n  ");
        let json =
            format!("\"data\": {{\n  \"db\": \"{one}\",\n  \"u\": \"{two}\",\n  \"z\": \"{three}\"\n}}");
        for text in [
            format!("apiVersion: v1\n{data}kind: Secret\nmetadata:\n  name: shop\n"),
            format!("apiVersion: v1\n{data}immutable: true\nkind: Secret\n"),
            format!("kind: Secret\nmetadata:\n  name: shop\ntype: Opaque\n{data}"),
            format!(
                "items:\n- apiVersion: v1\n  {inner}kind: Secret\n- apiVersion: v1\n  {inner}kind: Secret\n"
            ),
            format!("1\tkind: Secret\n2\tdata:\n3\t  a: {one}\n4\t  b: {two}\n5\t  c: {three}\n"),
            format!("{{\"apiVersion\": \"v1\", {json}, \"kind\": \"Secret\"}}"),
            format!("{{\"kind\":\"Secret\",\"metadata\":{{\"labels\":{{}}}},{json}}}"),
            format!("annotations:\n  last: |\n    {{{json},\"kind\":\"Secret\"}}").replace('"', "\\\""),
        ] {
            let clean = redact(&text).into_owned();
            assert!(!values.iter().any(|value| clean.contains(value)), "{text} became {clean}");
            assert!(clean.contains("[redacted: Kubernetes secret]"), "{clean}");
            assert_eq!(redact(&clean), clean);
        }
        let other = format!("apiVersion: v1\n{data}kind: ConfigMap\n---\nkind: Secret\n");
        assert_eq!(redact(&other.replace(values[0], "YW5u")), other.replace(values[0], "YW5u"));
    }

    #[test]
    fn a_password_is_found_in_the_words_of_many_languages() {
        let password = format!("Xk29!mQz8{}", "#Lp");
        for text in [
            "Kennwort: X",
            "das Passwort ist X",
            "mot de passe\u{a0}: X",
            "la contraseña es X",
            "la contraseña de la base es X",
            "a senha do banco de dados é X",
            "le mot de passe de la base est X",
            "senha: X",
            "wachtwoord is X",
            "hasło: X",
            "пароль: X",
            "密码：X",
            "数据库的密码是X",
            "パスワードは「X」です",
            "パスワード：X",
            "비밀번호: X",
            "데이터베이스 비밀번호는 'X'입니다",
            "암호는 X 입니다",
            "비번: X",
            "Veritabanı şifresi: X",
            "şifre olarak X kullan",
            "parolası \"X\"",
            "la password è X",
            "la password del database è X",
            "la password dell'utente è: X",
            "parola d'ordine: X",
            "parola per il server: X",
            "la password es X",
            "le mdp de la base est X",
            "mdp : X",
            "mot_de_passe = 'X'",
            "Mot de passe « X »",
            "das Passwort ist jetzt X",
            "clave de acceso: X",
            "DB_SENHA=X",
            "{\"senha\": \"X\"}",
            "palavra-passe → X",
            "пароль — X",
            "пароль от базы: X",
            "пароль для admin это X",
            "Пароль «X»",
            "密码设置为 X",
            "密码“X”",
            "パスワードを「X」に変更",
            "合言葉：X",
        ] {
            let clean = redact(&text.replace('X', &password)).into_owned();
            assert_eq!(clean, text.replace('X', "[redacted: password]"));
        }
        for text in [
            "パスワードは8文字以上で、A1 を含めます",
            "senha: obrigatória",
            "密码：必须至少8位",
            "parola: il nome",
            "암호화: AES-256-GCM, 비밀번호는 8자 이상",
            "şifre 8 karakterden uzun olmalı, sifre: zorunlu",
            "mdp = GridWorld2(3), le mdp est obligatoire",
            "['usuario', 'senha', 'campo1'], senha = input('Senha1: ')",
            "пароль — это строка из 8 символов",
            "パスワードをSHA256でハッシュする",
            "la password è obbligatoria, la password es necesaria",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn a_password_is_found_behind_a_name_that_ends_in_pass() {
        let (plain, signs) = (format!("Kx9vQ2mT{}", "z7wL"), format!("Kx9v!Q2mT{}", "z7wLb3Yn"));
        for text in [
            "in .env: DB_PASS=X",
            "SMTP_PASS=X",
            "export MYSQL_PASS=\"X\"",
            "PASS='X'",
            "ADMIN_PW=X",
            "admin_pw = \"X\"",
            "EMAIL_PASS: X",
            "db_pass: X",
            "db_pass   = X",
            "user.pass = X",
            "auth: { user: 'me@x.com', pass: 'X' }",
            "smtpPass: 'X',",
            "\"pass\": \"X\"",
            "{\\\"pass\\\": \\\"X\\\"}",
            "\"db_pass\" => \"X\",",
            "define('DB_PASS', 'X');",
            "define( 'DB_PASS' , 'X' );",
            "{user: app, pass: X}",
            "host ansible_ssh_pass=X ansible_port=22",
        ] {
            for password in [&plain, &signs] {
                let clean = redact(&text.replace('X', password)).into_owned();
                assert!(!clean.contains(&password[..6]) && clean.contains("[redacted: "), "{text}: {clean}");
            }
        }
    }

    #[test]
    fn a_password_is_found_behind_a_name_that_ends_in_password_or_secret() {
        for text in [
            "db_password: X",
            "ansible_become_password: X",
            "mysql_root_password: X # since May",
            "redis_password = X",
            "smtp_passwd=X",
            "db_pwd: X",
            "dbPassword=X",
            "keyPassword: 'X',",
            "storePassword=\"X\"",
            "jwt_secret: X",
            "api_token: 'X'",
            "app_secret: \"X\"",
            "{\\\"app_secret\\\": \\\"X\\\"}",
            "{\"clientSecret\": \"X\"}",
        ] {
            for password in
                ["TqC3J27X", "TqsFaQfDPr6c", "x7k2m9qa4fze", "Tqz9CPVNPk9aWd3", "TqbW8_xn2Rt5-LmPz9Ka"]
            {
                let clean = redact(&text.replace('X', password)).into_owned();
                assert!(!clean.contains(&password[..6]) && clean.contains("[redacted: "), "{text}: {clean}");
            }
        }
        for text in ["db_password: X", "redis_password = X", "smtpPassword=X"] {
            let clean = redact(&text.replace('X', "Summer2024!")).into_owned();
            assert_eq!(clean, text.replace('X', "[redacted: secret]"));
        }
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
    fn the_words_of_a_placeholder_announce_no_secret() {
        assert_eq!(
            redact("mysql://admin:hunter22@mysql.server.com:3306/database"),
            "mysql://admin:[redacted: password in a URL]@mysql.server.com:3306/database"
        );
    }

    #[test]
    fn ordinary_code_stays_as_it_is() {
        for text in [
            "the token is required, the API key is read from the environment, the secret is in /etc/shop/key1",
            "the token is ANTHROPIC_API_KEY_FILE_V2, the API key is application_key_2_of_the_shop",
            "<password>required</password> <password>${env.DB_PASSWORD}</password> <token>identifier_2</token>",
            "- name: password\n  value: string\n- name: token\n  value: ${{ secrets.TOKEN_1 }}",
            "<input name=\"password\" value=\"\"> <option key=\"token\" value=\"bearer\">",
            "auth=(\"user\", \"password\") auth=(user, pass1) auth=(\"ann\", os.environ[\"PASS1\"])",
            "htpasswd -b .htpasswd $USER1 $PASS1 | echo \"$PASS1\" | sudo -S true",
            "uses: actions/checkout4@v4 and ann/repo@//x, a/b1@//c",
            "variable \"db_password\" {\n  type = string\n  sensitive = true\n}\nvariable \"a\" {\n  default = \"b-1-c-2-d\"\n}",
            "variable \"token_type\" { default = \"bearer\" }",
            "the password is: at least 8 characters, das Passwort lautet anders",
            "pass: the tests pass, first_pass: all 12 tests, pass = true",
            "PASS: 12, FAIL: 0\nPASS: gcc.dg/array-quals-1.c scan-assembler\n--- PASS: TestServer2 (0.00s)",
            "--- PASS: TestAbc1Def2Ghi (0.01s)\nPASS\nPASS = 12/15",
            "let first_pass = compute(); second_pass = first_pass.clone(); let pass = Pass::new(device);",
            "render_pass = shadow_map_2, LAST_PASS: STAGE_2",
            "bypass=enabled1 compass: north-west1 \"trespass\": \"no_entry_1\"",
            "const renderPass = encoder.beginRenderPass(descriptor);\nrenderPass: pipelineDescriptor2,",
            "passes: 3, pass_count=128 pass: $DB_PASS_2 pass=${{ secrets.DB_PASS }} pass: process.env.SMTP_PASS",
            "self.db_password = hashPassword2(value), db_password = getDbPassword1FromEnv(), pwd: sha256sum",
            "inet6_token: _bindgen_ty_5, password_hash: argon2.hash, new_password = generate_password_v2()",
            "token: \"#d8dee9ff\", api_token: 'identifier_2', app_secret: \"my-app-secret-v2\", jwt_secret: base64url",
            "use the password field2 and the token type2a1b of the form, user ann, password protected1",
            "unzip -p app2.jar META-INF/MANIFEST.MF, 7z x -p backup1.7z, zip -r site2.zip public1",
            "gpg --passphrase-file key1.txt, gpg --passphrase $PASS1, nmcli radio wifi on1",
            "kubectl create configmap app --from-literal=mode=production1 --from-literal=host=db1.shop.org",
            "echo blob1 | git hash-object -w --stdin, echo \"$PASS1\" | docker login --password-stdin",
            "pwd=~/src/app2/web, PWD=/home/ann/app2, OLDPWD = build@v2",
            "statuses = [\"pass\", \"failed\", \"pass\", \"skipped\"]",
            "ssh -i ~/.ssh/some-key user@host",
            "ssh -i ~/.ssh/MASTER_KEY user1@host2",
            "ssh -i ~/.ssh/prod-access-key ec2-user@ec2-12-34-56-78.compute.amazonaws.com",
            "docker run -u 1000 -p 8080:80 image",
            "docs.github.com/en/rest/actions/secrets?apiVersion=2022-11-28#get-an-environment-public-key",
            "\"token_endpoint\": \"http://127.0.0.1:8080/tenant1/token\"",
            "\"/en/creating-a-strong-password\": \"/en/enterprise-server@3.0/auth\"",
            "define wget($user,$password=\"\",$timeout=\"0\",$verbose=false) {",
            "put '/forgot-password' => \"cms/sites/passwords#update2\"",
            "this.addPassword = \"#add-password\";",
            "if password == \"\" || password == \"required\" {",
            "self.user = options.user\nself.password = options.password\n",
            "user = \"name\", password = \"new-password\"",
            "tls-bootstrap-token parser.nexttokenofstream",
            "the checksum is 0x9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
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
            "vault kv put secret/shop @data1.json, vault kv put secret/shop password=$PASS1 token=- ttl=1h",
            "vault write auth/approle/role/ci secret_id_ttl=10m token_num_uses=10",
            "helm upgrade shop . --set auth.existingSecret=shop-db2 --set image.tag=v1",
            "mount -o remount,rw /, psql \"host=db password=$PGPASSWORD\", helm --set password=changeme",
            "chpasswd < users1.txt; echo \"$USER1:$PASS1\" | chpasswd; chpasswd <<< \"$LINE1\"",
            "psk=None, psk = derive_psk(2), psk=options.psk2,\nwpa_passphrase generates a pre-shared key",
            "kind: Secret\ndata:\n  password: {{ .Values.password1 | b64enc }}\n",
            "kind: Secret\nmetadata:\n  name: shop\n---\nkind: ConfigMap\ndata:\n  mode: production\n",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
