//! All settings: their names, what they allow, their defaults and a line about each.

use std::fmt;

use Kind::{Decimal, Number, OneOf, Path, SomeOf, Text, Url};

/// All settings, in the order of `nugget config`.
pub static KEYS: &[Key] = &[
    key("brain", Path, "", "the brain's folder"),
    key(
        "drainer.linger_seconds",
        Number(0, 3600),
        "2",
        "how long the worker, the process of `nugget drain`, waits for more work before it ends",
    ),
    key(
        "capture.exclude",
        Text,
        "",
        "projects that are never captured: folder names or paths, with * and commas (`~/work, secret-*`)",
    ),
    key("sweep.enabled", OneOf(&["on", "off"]), "on", "whether to look for sessions that the hook missed"),
    key(
        "sweep.idle_minutes",
        Number(0, 10_080),
        "15",
        "how long a transcript must be unchanged before it is captured",
    ),
    key(
        "sweep.daily_cap",
        Number(0, 10_000),
        "20",
        "the most missed sessions captured in 24 hours; `nugget sync --since` has no cap",
    ),
    key(
        "sweep.folders",
        Text,
        "",
        "Claude Code's folders, separated by commas; empty for CLAUDE_CONFIG_DIR or ~/.claude",
    ),
    key(
        "archive.enabled",
        OneOf(&["on", "off"]),
        "on",
        "whether sessions are kept in the archive on this machine, so that they outlive Claude Code's deletion",
    ),
    key(
        "archive.retention_days",
        Number(0, 36_500),
        "0",
        "sessions that ended longer ago are deleted from the archive; 0 keeps all",
    ),
    key(
        "learn.enabled",
        OneOf(&["on", "off"]),
        "on",
        "whether it is recorded on this machine what sessions are shown and use, and the order of answers learns from it",
    ),
    key(
        "learn.explore",
        OneOf(&["on", "off"]),
        "off",
        "whether answers of the tool are drawn from the best units by chance, so that more is learned",
    ),
    key(
        "learn.share",
        OneOf(&["on", "off"]),
        "off",
        "whether a project without an order of its own uses one that was learned from all of your projects",
    ),
    key(
        "learn.candidates",
        Number(2, 100),
        "20",
        "how many of the best units of a search the learned order moves",
    ),
    key("learn.shown", Number(1, 50), "5", "how many units an answer has while it is drawn by chance"),
    key(
        "learn.temperature",
        Decimal(0.001, 10.0),
        "0.5",
        "how much of chance is in that draw, and in learning from it: the less, the more often the best are shown",
    ),
    key(
        "learn.baseline",
        Decimal(-1.0, 1.0),
        "0.5",
        "what is subtracted from the reward, which is 1 for a unit that was used and -1 for one that was not",
    ),
    key(
        "learn.rate",
        Decimal(0.0, 1.0),
        "0.001",
        "how large each step of learning is; steps on whole lists are three times as large",
    ),
    key(
        "receipts.holdout",
        Decimal(0.0, 0.5),
        "0",
        "the share of sessions that a unit is withheld from, so that `nugget receipts` can say whether it helps; 0.1 is enough",
    ),
    key(
        "delivery.enabled",
        OneOf(&["on", "off"]),
        "on",
        "whether to push branches to the brain's remote, open pull requests on GitHub and fetch merges",
    ),
    key(
        "delivery.batch",
        OneOf(&["off", "hourly", "daily", "weekly"]),
        "off",
        "whether what was captured within an hour, a day or a week (UTC) shares one pull request, to which each capture adds a commit",
    ),
    key(
        "sync.minutes",
        Number(0, 1440),
        "5",
        "how often to fetch merges from the remote; 0 for only on `nugget sync`",
    ),
    key(
        "github.api",
        Url,
        "",
        "the API of a GitHub Enterprise Server (https://HOST/api/v3); empty to derive it from the remote",
    ),
    key(
        "session_start.enabled",
        OneOf(&["on", "off"]),
        "on",
        "whether a new session is shown what is known about its project",
    ),
    key("session_start.tokens", Number(50, 3000), "600", "the most tokens that it is shown"),
    key(
        "session_start.deadline_ms",
        Number(20, 60_000),
        "900",
        "how long it waits for that; after this, nothing is shown",
    ),
    key(
        "user_prompt.enabled",
        OneOf(&["on", "off"]),
        "off",
        "whether each prompt is shown what is known about it, found by its words alone",
    ),
    key(
        "user_prompt.deadline_ms",
        Number(20, 60_000),
        "150",
        "how long a prompt waits for that; after this, nothing is shown",
    ),
    key("user_prompt.tokens", Number(50, 3000), "400", "the most tokens that it is shown"),
    key(
        "guard.enabled",
        OneOf(&["on", "off"]),
        "on",
        "whether Claude is told what is known about a file it edits, a command it runs or an error it gets",
    ),
    key(
        "guard.hold",
        OneOf(&["on", "off", "always"]),
        "on",
        "whether units with `enforce: hold` refuse the first action of a session; always: also in `claude -p`",
    ),
    key(
        "guard.deadline_ms",
        Number(20, 60_000),
        "300",
        "how long an action waits for that; after this, nothing is said",
    ),
    key(
        "extract.backend",
        OneOf(&["auto", "api", "claude-p", "heuristic"]),
        "auto",
        "what extracts knowledge from sessions; auto: the model of `model.api`, else `claude -p` if logged in (never with openai), else rules, which send nothing",
    ),
    key("extract.model", Text, "", "the model that extracts knowledge from sessions; empty for `model.name`"),
    key(
        "extract.part_tokens",
        Number(2000, 150_000),
        "40000",
        "how many tokens of a long session one request contains",
    ),
    key(
        "extract.output_tokens_max",
        Number(256, 64_000),
        "8192",
        "the most tokens of one answer; `claude -p` has a limit of its own",
    ),
    key("extract.deadline_seconds", Number(1, 270), "180", "how long one answer may take"),
    key("extract.claude", Path, "", "the program for `claude -p`; empty to find `claude` on the PATH"),
    key(
        "spend.tokens_per_day",
        Number(0, 10_000_000_000),
        "2000000",
        "the most tokens that all model calls of a brain use in 24 hours; 0 for no model calls",
    ),
    key("spend.cents_per_day", Number(0, 10_000_000), "200", "the same in US cents, by list prices"),
    key(
        "extract.confidence_min",
        Number(0, 100),
        "50",
        "candidates below this confidence (per cent) are rejected",
    ),
    key("retrieve.limit", Number(1, 50), "10", "the most passages in an answer"),
    key("retrieve.budget_tokens", Number(100, 100_000), "2000", "the most tokens in an answer"),
    key(
        "retrieve.rerank",
        OneOf(&["auto", "off"]),
        "auto",
        "whether a model reranks the results: auto, if there is an API key (about half a cent a question) or a local model; off, never",
    ),
    key(
        "retrieve.rerank_deadline_ms",
        Number(50, 20_000),
        "2000",
        "how long to wait for it before the local order is used",
    ),
    key(
        "recall.memories",
        OneOf(&["on", "off"]),
        "off",
        "whether sessions are told what earlier sessions of their project were about, which nobody has reviewed",
    ),
    key(
        "mcp.tools",
        SomeOf(&[
            "get_relevant_context",
            "search_sessions",
            "create_note",
            "add_link",
            "edit_note",
            "search_notes",
            "remember",
            "recall",
            "forget",
        ]),
        "get_relevant_context",
        "the tools that Claude gets, separated by commas; search_sessions searches the archive of sessions, which nobody reviewed; the others let Claude write notes that wait for your review",
    ),
    key(
        "notes.agent_writes_per_hour",
        Number(0, 10_000),
        "60",
        "how often Claude may write notes within an hour, as long as what it wrote waits for review",
    ),
    key(
        "reflect.schedule",
        OneOf(&["off", "daily"]),
        "off",
        "whether the background worker looks for what to tidy up once a day, as `nugget reflect` does",
    ),
    key(
        "embed.provider",
        OneOf(&["local", "openai", "voyage", "off"]),
        "local",
        "what embeds texts; local sends nothing, openai and voyage receive units, extracted knowledge and questions; off: no model, everything is found by words alone",
    ),
    key(
        "embed.model",
        Path,
        "",
        "local: the path of your own ONNX model; else the provider's model name; empty for the default",
    ),
    key("embed.url", Url, "", "your own server with the provider's API, including /v1; it may need no key"),
    key(
        "embed.key_file",
        Path,
        "",
        "a file with the provider's key; otherwise OPENAI_API_KEY or VOYAGE_API_KEY",
    ),
    key(
        "embed.dimensions",
        Number(0, 4096),
        "0",
        "the number of dimensions to request from a provider; 0 for the model's default",
    ),
    key(
        "embed.deadline_seconds",
        Number(1, 100),
        "60",
        "how long one request to a provider may take, including retries",
    ),
    key("embed.tokenizer", Path, "", "the model's tokenizer.json; empty for the one beside the model"),
    key(
        "embed.pooling",
        OneOf(&["mean", "cls", "sentence"]),
        "mean",
        "how the model's token vectors are pooled",
    ),
    key(
        "embed.query_prefix",
        Text,
        "",
        "the prefix that the model expects before a question; nomic-embed-text-v1.5: `search_query: `",
    ),
    key(
        "embed.document_prefix",
        Text,
        "",
        "the prefix that the model expects before a passage; nomic-embed-text-v1.5: `search_document: `",
    ),
    key("embed.tokens_max", Number(16, 8192), "256", "the most tokens of a text that the model reads"),
    key("embed.runtime_library", Path, "", "the path of the ONNX Runtime library; empty to search for it"),
    key(
        "model.api",
        OneOf(&["messages", "openai"]),
        "messages",
        "the protocol of the model's server; messages: Claude's; openai: Ollama, LM Studio, llama.cpp, vLLM, OpenAI and others",
    ),
    key(
        "model.url",
        Url,
        "",
        "the address of that server, such as http://127.0.0.1:11434; empty for https://api.anthropic.com or https://api.openai.com",
    ),
    key(
        "model.name",
        Text,
        "claude-haiku-4-5",
        "the model that reads sessions, writes the answers of `nugget ask` and reranks results; openai: has to be set",
    ),
    key(
        "model.key_file",
        Path,
        "",
        "a file with the key; otherwise ANTHROPIC_API_KEY, or with openai OPENAI_API_KEY; on this machine openai needs none",
    ),
    key(
        "model.price_input",
        Number(0, 1_000_000),
        "",
        "US cents for a million input tokens; empty for the list price, and for 0 with openai on this machine",
    ),
    key("model.price_output", Number(0, 1_000_000), "", "US cents for a million output tokens, likewise"),
    key("model.deadline_seconds", Number(1, 600), "30", "how long an answer of the model may take"),
];

/// A setting.
#[derive(Debug)]
pub struct Key {
    /// Its name in the file: `table.key`.
    pub name: &'static str,
    /// The values that it allows.
    pub kind: Kind,
    /// The value if none is set; may be empty.
    pub default: &'static str,
    /// One line for `nugget config`.
    pub help: &'static str,
}

/// The values that a setting allows.
#[derive(Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A path; `~/` is the home folder.
    Path,
    /// A whole number within these bounds.
    Number(u64, u64),
    /// A number within these bounds.
    Decimal(f64, f64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some of these words, separated by commas; a list in the file.
    SomeOf(&'static [&'static str]),
    /// An `https` address, or `http` to this machine: an API key is sent there.
    Url,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("any text"),
            Self::Path => f.write_str("a path"),
            Self::Number(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Decimal(least, most) => write!(f, "a number from {least} to {most}"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::SomeOf(words) => write!(f, "a list of these: {}", words.join(", ")),
            Self::Url => f.write_str("an https address, or http to this machine"),
        }
    }
}

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, kind, default, help }
}

impl Key {
    /// Whether the setting allows a value; [`Kind`] says in words what it allows.
    pub fn allows(&self, value: &str) -> bool {
        match &self.kind {
            Kind::Text | Kind::Path => true,
            Kind::Number(least, most) => {
                value.parse::<u64>().is_ok_and(|number| (least..=most).contains(&&number))
            }
            Kind::Decimal(least, most) => {
                value.parse::<f64>().is_ok_and(|number| (least..=most).contains(&&number))
            }
            Kind::OneOf(words) => words.contains(&value),
            Kind::SomeOf(words) => split_list(value).all(|value| words.contains(&value)),
            Kind::Url => is_safe_url(value),
        }
    }

    pub(crate) fn to_toml(&self, value: &str) -> toml::Value {
        match (&self.kind, value.parse::<i64>(), value.parse::<f64>()) {
            (Kind::Number(..) | Kind::Decimal(..), Ok(number), _) => number.into(),
            (Kind::Decimal(..), _, Ok(number)) => number.into(),
            (Kind::SomeOf(_), ..) => split_list(value).collect::<Vec<_>>().into(),
            _ => value.into(),
        }
    }
}

fn is_safe_url(url: &str) -> bool {
    let Ok(parsed) = url::Url::parse(url) else { return false };
    let is_local = match parsed.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let is_safe = parsed.scheme() == "https" || parsed.scheme() == "http" && is_local;
    is_safe && !url.contains(['@', ' ', '\n'])
}

pub(crate) fn split_list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_https_or_this_machine() {
        for good in [
            "https://api.example.com",
            "http://127.0.0.1:80/x",
            "http://127.0.89.1:80",
            "http://localhost:1",
            "http://[::1]:9",
        ] {
            assert!(is_safe_url(good), "{good}");
        }
        for bad in [
            "http://example.com",
            "ftp://x",
            "",
            "http://localhost.evil.com",
            "https://",
            "http://127.0.0.1@evil.com",
            "http://127.0.0.1.evil.com",
        ] {
            assert!(!is_safe_url(bad), "{bad}");
        }
    }
}
