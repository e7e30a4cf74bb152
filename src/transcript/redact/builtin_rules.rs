//! Rules beside gitleaks': keys with a known prefix, and values next to a word such as `password`.
//!
//! A rule must satisfy two demands: a key must not leave the machine, and ordinary code must stay
//! readable. A value that is merely next to the word `password` must therefore also look random.

use super::entropy::{decode_text, entropy, is_placeholder, is_random, is_word, looks_random};

/// A match of an expression, for the tests that it cannot express.
pub(super) struct Match<'a> {
    pub(super) secret: &'a [u8],
    pub(super) whole: &'a [u8],
    /// The name that the match begins in: all of `MY_API_KEY`, not only the rule's keyword.
    pub(super) key: &'a [u8],
}

pub(super) struct BuiltinRule {
    pub(super) kind: &'static str,
    /// Every match contains one of these, in lower case.
    pub(super) keywords: &'static [&'static str],
    pub(super) pattern: String,
    pub(super) is_secret: fn(&Match<'_>) -> bool,
    pub(super) is_certain: bool,
    pub(super) is_long: bool,
}

/// The rules. If two find the same secret, the first names its kind.
pub(super) fn rules() -> Vec<BuiltinRule> {
    let mut rules = vec![BuiltinRule {
        is_long: true,
        ..rule("private key", &["private key", "putty-user-key-file", "private-lines"], PEM, |found| {
            // A complete key, or either half of one that was cut in two; not a mere mention of its marks.
            let runs = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"+/=".contains(byte);
            found.whole.split(runs).any(|run| run.len() >= 24)
        })
    }];
    rules.extend(prefix_rules());
    rules.extend(context_rules());
    rules
}

fn rule(
    kind: &'static str,
    keywords: &'static [&'static str],
    pattern: &str,
    is_secret: fn(&Match<'_>) -> bool,
) -> BuiltinRule {
    BuiltinRule { kind, keywords, pattern: pattern.to_owned(), is_secret, is_certain: true, is_long: false }
}

/// Keys that are recognised by their prefix.
fn prefix_rules() -> Vec<BuiltinRule> {
    let always: fn(&Match<'_>) -> bool = |_| true;
    let random: fn(&Match<'_>) -> bool = |found| is_random(found.secret);
    vec![
        rule("age key", &["age-secret-key-"], r"AGE-SECRET-KEY-1[0-9A-Z]{50,}", always),
        rule(
            "AWS access key",
            &["akia", "asia", "abia", "acca"],
            r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
            always,
        ),
        rule(
            "AWS secret key",
            &["aws"],
            r#"(?i)aws.{0,20}?secret.{0,20}?["']?\s*(?:=>|[:=])\s*["']?(?P<secret>[A-Za-z0-9/+=]{40})\b"#,
            random,
        ),
        rule(
            "GitHub token",
            &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
            r"(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
            always,
        ),
        rule(
            "GitLab token",
            &[
                "glpat", "gldt", "glrt", "glptt", "glcbt", "glft", "glsoat", "glagent", "gloas", "glimt",
                "glffct",
            ],
            r"\b(?:glpat|gldt|glrt|glptt|glcbt|glft|glsoat|glagent|gloas|glimt|glffct)-[A-Za-z0-9_-]{20,}",
            always,
        ),
        rule(
            "Slack token",
            &["xox", "xapp-"],
            r"\b(?:xox[abeoprs][.-][A-Za-z0-9.-]{10,}|xapp-\d-[A-Za-z0-9-]{10,})",
            always,
        ),
        rule(
            "webhook",
            &["hooks.slack.com", "/api/webhooks/", "webhook.office.com"],
            r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|webhook\.office\.com/webhookb2)/(?P<secret>[A-Za-z0-9/_+@-]{20,})",
            always,
        ),
        rule(
            "Stripe key",
            &["k_live_", "k_test_", "whsec_"],
            r"\b(?:[srp]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{12,}",
            always,
        ),
        rule("Anthropic key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{16,}", always),
        rule(
            "OpenAI key",
            &["sk-"],
            r"\bsk-(?:proj-|svcacct-|admin-|or-v1-|None-)?[A-Za-z0-9_-]{20,}",
            random,
        ),
        rule(
            "Google key",
            &["aiza", "gocspx-", "ya29.", "1//0"],
            r"(?:\bAIza[0-9A-Za-z_-]{35}|\bGOCSPX-[0-9A-Za-z_-]{20,}|\bya29\.[0-9A-Za-z_-]{20,}|\b1//0[0-9A-Za-z_-]{30,})",
            always,
        ),
        rule("npm token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}\b", always),
        rule("PyPI token", &["pypi-"], r"\bpypi-AgE[A-Za-z0-9_-]{40,}", always),
        rule("Hugging Face token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}", always),
        rule("SendGrid key", &["sg."], r"\bSG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}", always),
        rule("DigitalOcean token", &["doo_v1_", "dop_v1_", "dor_v1_"], r"\bdo[opr]_v1_[a-f0-9]{64}", always),
        rule(
            "Telegram token",
            &[":aa"],
            r"\b(?P<secret>[0-9]{8,10}:AA[A-Za-z0-9_-]{33})(?:[^\w-]|$)",
            always,
        ),
        rule(
            "Discord token",
            &["discord", "bot", "token"],
            r"\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}\b",
            random,
        ),
        rule(
            "Azure key",
            &["accountkey", "accesskey", "q~"],
            r"(?:\b[A-Za-z0-9+/]{86}==|[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})",
            random,
        ),
        // Keys of many vendors, each with a distinctive prefix.
        rule(
            "API key",
            &[
                "pa-",
                "gsk_",
                "xai-",
                "r8_",
                "lsv2_",
                "dckr_",
                "nfp_",
                "tskey-",
                "tvly-",
                "figd_",
                "sbp_",
                "sb_secret_",
                "ccipat_",
                "bkua_",
                "cio",
                "pmak-",
                "lin_",
                "secret_",
                "ntn_",
                "hvs.",
                "hvb.",
                "dapi",
                "glsa_",
                "glc_",
                "pat-",
                "key-",
                "pul-",
                "rubygems_",
                "shp",
                "sntry",
                "dp.",
                "atatt",
                "vercel_",
                "vcp_",
                "fm2_",
                "pplx-",
                "re_",
                "nvapi-",
                "phc_",
                "phx_",
                "rnd_",
                "sk_",
                "ops_",
                "op_",
                "sgp_",
                "eaa",
                "oy2",
                "cloudinary",
            ],
            r"(?x)\b(?:
                pa-[A-Za-z0-9_-]{40,} | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{60,} | r8_[A-Za-z0-9]{30,}
              | lsv2_[a-z]{2}_[a-f0-9]{32}[A-Za-z0-9_]* | dckr_(?:pat|oat)_[A-Za-z0-9_-]{24,} | nfp_[A-Za-z0-9]{36,}
              | tskey-[a-z]+-[A-Za-z0-9-]{16,} | tvly-[A-Za-z0-9-]{24,} | figd_[A-Za-z0-9_-]{30,} | sbp_[a-f0-9]{40}
              | sb_secret_[A-Za-z0-9_-]{20,} | CCIPAT_[A-Za-z0-9_]{20,} | bkua_[a-f0-9]{40} | cio[A-Za-z0-9]{32}
              | PMAK-[a-f0-9]{24}-[a-f0-9]{34} | lin_(?:api|oauth)_[A-Za-z0-9]{32,} | (?:secret|ntn)_[A-Za-z0-9]{40,}
              | hv[sb]\.[A-Za-z0-9_-]{20,} | dapi[a-f0-9]{32} | gl(?:sa|c)_[A-Za-z0-9+/=_]{32,}
              | pat-(?:na|eu)1-[a-f0-9-]{36} | key-[a-f0-9]{32} | pul-[a-f0-9]{40} | rubygems_[a-f0-9]{48}
              | shp(?:at|ca|pa|ss|tka)_[a-fA-F0-9]{32} | sntry[su]_[A-Za-z0-9_=+/]{40,}
              | dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,} | ATATT3[A-Za-z0-9_=-]{60,}
              | (?:vercel|vcp)_[A-Za-z0-9]{24,} | fm2_[A-Za-z0-9+/=_-]{60,} | pplx-[A-Za-z0-9]{40,}
              | re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,} | nvapi-[A-Za-z0-9_-]{60,} | ph[cx]_[A-Za-z0-9]{40,}
              | rnd_[A-Za-z0-9]{28,} | sk_[a-f0-9]{48} | ops_eyJ[A-Za-z0-9+/=]{60,} | sgp_[A-Za-z0-9_]{40,}
              | EAA[A-Z][A-Za-z0-9]{80,} | oy2[a-z0-9]{43}
            )| cloudinary://[0-9]+:(?P<secret>[A-Za-z0-9_-]{20,})",
            |found| entropy(found.secret) >= 2.8 && found.secret.iter().any(u8::is_ascii_digit),
        ),
        rule("JWT", &["eyj"], r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?", always),
        rule(
            "password hash",
            &["$2", "$5$", "$6$", "$y$", "$apr1$", "$argon2", "$scrypt", "{ssha"],
            r"\$(?:2[aby]?\$[0-9]{2}\$[./A-Za-z0-9]{40,}|[56y]\$(?:rounds=[0-9]+\$)?[./A-Za-z0-9$]{24,}|apr1\$[./A-Za-z0-9$]{20,}|argon2(?:id|i|d)\$[A-Za-z0-9$=,+/]{40,}|scrypt\$[A-Za-z0-9$=,+/]{40,})|\{SSHA[0-9]*\}[A-Za-z0-9+/=]{28,}",
            always,
        ),
    ]
}

/// Values that are secrets because of their context.
fn context_rules() -> Vec<BuiltinRule> {
    let value: fn(&Match<'_>) -> bool = |found| !is_placeholder(found.secret);
    let near = |kind, keywords, pattern: &str, is_secret| BuiltinRule {
        is_certain: false,
        ..rule(kind, keywords, pattern, is_secret)
    };
    vec![
        near(
            "password in a URL",
            &["://"],
            r#"://[^\s/:@"'<>`\[\]]*:(?P<secret>[^\s/@"'<>`\[\]]{3,})@[\w\[.-]"#,
            |found| {
                const STAND_INS: [&[u8]; 7] =
                    [b"password", b"pass", b"passwd", b"pwd", b"pw", b"secret", b"..."];
                !is_placeholder(found.secret)
                    && !STAND_INS.iter().any(|word| found.secret.eq_ignore_ascii_case(word))
            },
        ),
        near(
            "password in an address",
            &["@tcp(", "@unix("],
            r#"\b[\w.-]+:(?P<secret>[^\s:@/"'`]{3,})@(?:tcp|unix)\("#,
            value,
        ),
        near(
            "authorization",
            &["authorization"],
            r#"(?i)authorization["']?\s*[:=,]\s*["'`]?(?:bearer|basic|token|apikey|digest|negotiate)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})"#,
            |found| !is_placeholder(found.secret) && !is_word(found.secret),
        ),
        near("bearer token", &["bearer"], r"(?i)bearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{20,})", |found| {
            is_random(found.secret)
        }),
        near(
            "header",
            &[
                "x-api-key",
                "api-key:",
                "x-auth-token",
                "private-token",
                "x-amz-security-token",
                "x-vault-token",
            ],
            r#"(?i)(?:x-api-key|api-key|x-auth-token|private-token|x-amz-security-token|x-vault-token)["']?\s*[:=,]\s*["'`]?(?P<secret>[A-Za-z0-9._~+/=-]{8,})"#,
            |found| !is_placeholder(found.secret) && looks_random(found.secret),
        ),
        near(
            "cookie",
            &["cookie"],
            r#"(?i)\bcookies?["']?\s*[:=]\s*["'`]?(?P<secret>[\w.$-]+=[^\s"'`]{8,}(?:;\s*[\w.$-]+=[^\s;"'`]+)*)"#,
            |found| {
                found
                    .secret
                    .split(|byte| b";= ".contains(byte))
                    .any(|word| word.len() >= 12 && looks_random(word) && !is_placeholder(word))
            },
        ),
        near(
            "secret in a URL",
            &[
                "token=",
                "key=",
                "sig=",
                "secret=",
                "signature=",
                "password=",
                "passwd=",
                "auth=",
                "code=",
                "pwd=",
            ],
            r#"(?i)[?&;][\w.-]{0,40}?(?:token|key|sig|secret|signature|password|passwd|pwd|auth|code)=(?P<secret>[^&\s"'<>`#\\;)\]]{6,})"#,
            |found| {
                let is_password = contains(found.whole, b"pass") || contains(found.whole, b"pwd");
                !is_placeholder(found.secret)
                    && (is_random(found.secret) || is_password && has_digit(found.secret))
            },
        ),
        near(
            "netrc password",
            &["machine"],
            r"(?i)\bmachine\s+\S+\s+login\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?P<secret>\S{3,})",
            value,
        ),
        near(
            "pgpass password",
            &[":5432:", ":5433:", ":6432:", ":*:"],
            r#"[\w*]:(?:[0-9]{4,5}|\*):[\w*-]+:[\w*-]+:(?P<secret>[^\s:"'`]{4,})"#,
            |found| !is_placeholder(found.secret) && has_digit(found.secret),
        ),
        near(
            "credentials in base64",
            &["\"auth\"", "basic", "_auth"],
            r#"(?i)(?:"auth"\s*:\s*"|basic\s+|_auth\s*=\s*"?)(?P<secret>[A-Za-z0-9+/=_-]{8,})"#,
            |found| decode_text(found.secret).is_some_and(|text| text.contains(&b':')),
        ),
        near(
            "password of a command",
            &["mysql", "mariadb", "sshpass", "redis-cli", "mongo", "docker login", "ldapsearch", "smbclient"],
            r#"(?i)\b(?:mysql\w*|mariadb\w*|sshpass|redis-cli|mongo\w*|docker login|ldapsearch|smbclient)\b[^\n|;]{0,200}?\s(?:--password[= ]|--pass[= ]|-p|-a|-w)\s*["']?(?P<secret>[^\s"'`|;]{4,})"#,
            |found| {
                !is_placeholder(found.secret)
                    && !b"-/~.".contains(&found.secret[0])
                    && has_digit(found.secret)
                    && found.secret.iter().any(u8::is_ascii_alphabetic)
            },
        ),
        near(
            "user and password",
            &["-u ", "-u\"", "-u'", "--user", "--proxy-user"],
            r#"(?:\s-u|--user|--proxy-user)(?:\s+|=)?["']?[\w.@+-]{2,}:(?P<secret>[^\s"'`]{4,})"#,
            |found| {
                !is_placeholder(found.secret)
                    && !found.secret.iter().all(|byte| b"0123456789:".contains(byte))
            },
        ),
        near(
            "password in SQL",
            &["identified by", "password '", "password \""],
            r#"(?i)(?:identified\s+(?:with\s+\w+\s+)?by|password)\s+['"](?P<secret>[^'"\s]{4,})['"]"#,
            |found| {
                !is_placeholder(found.secret)
                    && (has_digit(found.secret) || contains(found.whole, b"identified"))
            },
        ),
        near(
            "password",
            &["password", "passphrase", "passcode", "passwort", "mot de passe"],
            r#"(?i)\b(?:password|passphrase|passcode|passwort|mot de passe)\b(?:\s+(?:for|of|to|on|in|from)(?:\s+[^\s:=]+){1,5}?)?(?:\s+(?:is|was|to|ist|est|with)(?:\s+(?:now|still|just))?|\s*[:=])\s*["'`*]{0,3}(?P<secret>[^\s"'`<>()\[\]{}]{6,100})"#,
            |found| {
                let secret = found.secret;
                let symbols = secret[..secret.len() - 1].iter().any(|byte| b"!@#$%^&*+=?~".contains(byte));
                let letters = secret.iter().any(u8::is_ascii_alphabetic);
                !is_placeholder(secret)
                    && letters
                    && (has_digit(secret) || symbols)
                    && !is_path(secret)
                    && !is_name_of_code(secret)
            },
        ),
        // `key = value`, `"key": "value"`, `KEY=value`, `--key value`.
        near(
            "secret",
            KEY_WORDS,
            &format!(
                r#"(?i){KEY}[\w.-]*\\?["'`]?\s*(?:=>|:=|[:=])\s*["'`](?P<secret>[^"'`\s\\]{{6,400}})["'`]"#
            ),
            |found| {
                let password = contains(found.key, b"pass") || contains(found.key, b"pwd");
                let symbols =
                    found.secret.iter().any(|byte| byte.is_ascii_digit() || b"!@#$%^&*+=?~".contains(byte));
                let plain = !found.secret.iter().any(|byte| b"({<".contains(byte));
                !is_placeholder(found.secret)
                    && (is_random(found.secret)
                        || is_base64_text(found.secret)
                        || password && symbols && plain)
            },
        ),
        near(
            "secret",
            KEY_WORDS,
            &format!(
                r#"(?i){KEY}[\w-]*(?:["'`]?\s*(?:=>|:=|[:=])\s*|\x20)["'`]?(?P<secret>[A-Za-z0-9+/=_.~!@\#$%^&*?-]{{6,400}})"#
            ),
            |found| {
                let is_upper = found.key.iter().all(|byte| !byte.is_ascii_lowercase());
                let letters = found.secret.iter().any(u8::is_ascii_alphabetic);
                let plain = !found.secret.iter().any(|byte| b".(:".contains(byte));
                !is_placeholder(found.secret)
                    && (is_random(found.secret)
                        || is_base64_text(found.secret) && contains(found.whole, b":")
                        || is_upper && has_digit(found.secret) && letters && plain)
            },
        ),
        // `DB_PASSWORD=letmein`, as in a settings file.
        near(
            "secret",
            &["pass="],
            r"(?m)^(?:export\s+|ENV\s+|-e\s+|\+\s*)?[A-Z0-9_]*PASS=(?P<secret>[^\s(.$]{6,})$",
            value,
        ),
        near(
            "secret",
            &["password"],
            r"(?m)(?:^|export\s+|ENV\s+|-e\s+|\+\s*)[A-Z0-9_]*PASSWORD=(?P<secret>[^\s(.$]{6,})$",
            value,
        ),
        // Anywhere after such a word on the same line: only what cannot be anything else.
        near(
            "secret",
            &[
                "password",
                "secret",
                "token",
                "api key",
                "api_key",
                "apikey",
                "api-key",
                "access key",
                "credential",
                "passphrase",
                "signing key",
                "encryption key",
            ],
            r"(?i)(?:password|secret|token|api[ _-]?key|access key|credential|passphrase|signing key|encryption key)s?\b[^\n]{1,60}?(?P<secret>[A-Za-z0-9_+/=-]{20,400})",
            |found| {
                let has = |test: fn(&u8) -> bool| found.secret.iter().any(test);
                let digits = found.secret.iter().filter(|byte| byte.is_ascii_digit()).count();
                let joints = found.secret.iter().filter(|byte| b"/_-".contains(byte)).count();
                is_random(found.secret)
                    && has(u8::is_ascii_lowercase)
                    && has(u8::is_ascii_uppercase)
                    && digits >= 3
                    && joints * 8 <= found.secret.len()
                    && entropy(found.secret) >= 3.7
            },
        ),
    ]
}

const PEM: &str = r#"(?x)
    -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
        (?: (?s:.)*? -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
          | (?: (?:\\[nr]|[\s"'+,>|\#*-])* [A-Za-z0-9+/=]{16,} )+ (?:(?:\\[nr]|[\s"'+,>|\#*-])+[A-Za-z0-9+/=]{8,})? )
  | (?: [A-Za-z0-9+/=]{16,} (?:\\[nr]|[\s"'+,>|\#*-])+ )+ (?:[A-Za-z0-9+/=]{1,15} (?:\\[nr]|[\s"'+,>|\#*-])+ )?
        -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
  | PuTTY-User-Key-File-[0-9]:(?s:.)*?Private-Lines:(?:\s*[0-9A-Za-z+/=]+)+
  | Private-Lines:\s*[0-9]+(?:\s+[A-Za-z0-9+/=]{8,})+
"#;

const KEY_WORDS: &[&str] =
    &["passw", "passphrase", "passcode", "pwd", "secret", "token", "key", "credential", "webhook", "passwd"];

const KEY: &str = r"(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|(?:api|access|auth|private|account|encryption|signing|master|shared|service|deploy|app)[_-]?key|credential|webhook)";

/// Whether a value is padded base64 of printable text, as in a Kubernetes secret.
fn is_base64_text(secret: &[u8]) -> bool {
    secret.len() >= 8
        && secret.len().is_multiple_of(4)
        && secret.ends_with(b"=")
        && decode_text(secret).is_some()
}

fn has_digit(word: &[u8]) -> bool {
    word.iter().any(u8::is_ascii_digit)
}

fn is_path(word: &[u8]) -> bool {
    word.iter().filter(|byte| **byte == b'/').count() >= 2
        || word.starts_with(b"/")
        || word.starts_with(b"./")
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
