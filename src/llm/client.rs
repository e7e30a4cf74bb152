//! The client of one model, whichever protocol its server speaks.

use std::time::Duration;

use crate::api::Api;
use crate::chat_completions::ChatCompletions;
use crate::endpoint::{Auth, Endpoint, is_loopback};
use crate::error::Error;
use crate::key::Key;
use crate::local_servers::{pull_command, start_command};
use crate::messages::{self, Messages};
use crate::models::{base, is_passed_on};
use crate::price::Rates;
use crate::retry::retry;
use crate::tool::{Reply, Request, ToolAnswer};
use crate::usage::Usage;

/// Longer answers are refused. The longest that a model can write is far shorter, also as a stream of events.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The most models that a hint names.
const MODELS_NAMED_MAX: usize = 8;

/// Where a [`Client`] sends its requests, and with what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol.
    pub api: Api,
    /// The base address: `https://api.anthropic.com`, `http://127.0.0.1:11434`. A `/v1` at its end is optional, also with
    /// the path of a call after it.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// A server on this machine may need none.
    pub key: Option<Key>,
    /// The prices by the settings. Whether the model is local follows from the other fields.
    pub rates: Rates,
    /// The time for one request with its retries.
    pub deadline: Duration,
}

impl Settings {
    /// Whether the model runs on this machine, as far as address and name tell.
    pub fn is_local(&self) -> bool {
        self.api == Api::OpenAi && is_loopback(&self.url) && !is_passed_on(&self.model)
    }

    /// How calls are priced.
    pub fn rates(&self) -> Rates {
        Rates { is_local: self.is_local(), ..self.rates }
    }
}

#[derive(Clone, Debug)]
enum Protocol {
    Messages(Messages),
    OpenAi(ChatCompletions),
}

/// A client of one model.
#[derive(Clone, Debug)]
pub struct Client {
    protocol: Protocol,
    pub(crate) settings: Settings,
}

impl Client {
    /// A client with these settings. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Client`] if the HTTP client cannot be set up.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let base = base(&settings.url);
        let endpoint = |path: &str, auth: Auth, headers| {
            Endpoint::new(format!("{base}/v1/{path}"), auth, headers, settings.deadline, ANSWER_BYTES_MAX)
        };
        let (model, key) = (settings.model.clone(), settings.key.clone());
        let protocol = match settings.api {
            Api::Messages => {
                let endpoint = endpoint("messages", Auth::ApiKey(key), messages::HEADERS)?;
                Protocol::Messages(Messages::new(endpoint, model))
            }
            Api::OpenAi => {
                let endpoint = endpoint("chat/completions", Auth::Bearer(key), &[])?;
                let models = endpoint.at(format!("{base}/v1/models"));
                Protocol::OpenAi(ChatCompletions::new(endpoint, models, model))
            }
        };
        Ok(Self { protocol, settings })
    }

    /// The name of the model in the settings.
    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// The address of its server in the settings.
    pub fn url(&self) -> &str {
        &self.settings.url
    }

    /// The protocol that it speaks.
    pub fn api(&self) -> Api {
        self.settings.api
    }

    /// As [`Settings::is_local`].
    pub fn is_local(&self) -> bool {
        self.settings.is_local()
    }

    /// The price of a call, in millionths of a dollar.
    pub fn microdollars(&self, model: &str, usage: &Usage) -> u64 {
        self.settings.rates().microdollars(model, usage)
    }

    /// Sends one message and returns the text of the answer. Temporary failures are retried within the deadline, unless they
    /// may have cost: the caller has reserved one call.
    ///
    /// # Errors
    /// As for [`retry`]; [`Error::Truncated`] and [`Error::Refused`] for an answer that is not complete.
    pub async fn ask(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let is_free = |error: &Error| error.is_temporary() && !error.may_have_cost();
        retry(self.settings.deadline, is_free, || async {
            match &self.protocol {
                Protocol::Messages(messages) => messages.ask(system, user, output_tokens_max).await,
                Protocol::OpenAi(chat) => chat.ask(system, user, output_tokens_max).await,
            }
        })
        .await
    }

    /// Sends one request within the deadline, without retries: the caller knows what a retry costs.
    ///
    /// # Errors
    /// [`Error::is_temporary`] says which errors are worth another attempt later.
    pub async fn call(&self, request: &Request<'_>) -> Result<ToolAnswer, Error> {
        let deadline = self.settings.deadline;
        let call = async {
            match &self.protocol {
                Protocol::Messages(messages) => messages.call(request).await,
                Protocol::OpenAi(chat) => chat.call(request).await,
            }
        };
        tokio::time::timeout(deadline, call).await.unwrap_or(Err(Error::Deadline(deadline)))
    }

    /// Whether the server runs and has the model. The Claude API is not asked.
    ///
    /// # Errors
    /// [`Error::UnknownModel`], or why its list cannot be read.
    pub async fn check_model(&self) -> Result<(), Error> {
        match &self.protocol {
            Protocol::Messages(_) => Ok(()),
            Protocol::OpenAi(chat) => chat.check_model().await,
        }
    }

    /// What a person can do about an error of this client.
    pub fn hint(&self, error: &Error) -> Option<String> {
        let url = &self.settings.url;
        Some(match error {
            Error::NotRunning { .. } => match start_command(url) {
                Some(command) => format!("start it (`{command}`), or set `model.url`"),
                None => "start it, or set `model.url`".to_owned(),
            },
            Error::UnknownModel { model, available, .. } => {
                let pull = pull_command(url, model).map(|command| format!("run `{command}`"));
                let named = available.iter().take(MODELS_NAMED_MAX).map(String::as_str).collect::<Vec<_>>();
                match (named.as_slice(), pull) {
                    ([], Some(pull)) => pull,
                    ([], None) => "load it there, or set `model.name`".to_owned(),
                    (named, Some(pull)) => format!("{pull}, or set `model.name` to one that it has: {}", named.join(", ")),
                    (named, None) => format!("set `model.name` to one that it has: {}", named.join(", ")),
                }
            }
            Error::Status { status: 401 | 403, .. } if let Some(key) = &self.settings.key => {
                format!("it refused the key in {}: put a valid one there", key.place)
            }
            Error::Status { status: 401 | 403, .. } if is_loopback(url) => {
                "name a file with the server's key in `model.key_file`".to_owned()
            }
            Error::Status { status: 401 | 403, .. } => {
                format!("set {} or `model.key_file`", self.settings.api.key_variable())
            }
            Error::Key => {
                let place = self.settings.key.as_ref().map_or("it", |key| &key.place);
                format!("{place} has to hold the key and nothing else, in one line")
            }
            // A server that names the error knows the address.
            Error::Status { status: 404, kinds, .. } if kinds.iter().any(|kind| kind == "not_found_error") => {
                format!("set `model.name` to a model that it has; now it is `{}`", self.settings.model)
            }
            Error::Redirect { .. } => {
                "set `model.url` to that address if the model's server is there".to_owned()
            }
            Error::WebPage => {
                "is there a proxy or the login page of a network before it, or another server at `model.url`?"
                    .to_owned()
            }
            Error::Status { status: 404 | 405, .. } => {
                "`model.url` has to be the address of a server with the protocol of `model.api`".to_owned()
            }
            Error::Deadline(_) if self.is_local() => {
                "choose a smaller model, lower `extract.part_tokens`, or allow more time".to_owned()
            }
            error if error.is_too_large() && self.is_local() => {
                "give it a longer context (Ollama: OLLAMA_CONTEXT_LENGTH=32768), or lower `extract.part_tokens`"
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// An error with its causes and what a person can do about it, in one line.
    pub fn describe(&self, error: &Error) -> String {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(error);
        // Why nothing answers is clear.
        while let Some(cause) = source.filter(|_| !matches!(error, Error::NotRunning { .. })) {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        match self.hint(error) {
            Some(hint) => format!("{text}; {hint}"),
            None => text,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tool::Tool;
    use serde_json::json;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Starts a server on loopback that gives the scripted answers in turn and records the requests.
    pub(crate) async fn server(
        answers: Vec<(&'static str, &'static str, String)>,
    ) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            for (status, headers, body) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let mut part = [0; 4096];
                loop {
                    let text = String::from_utf8_lossy(&request).into_owned();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head.lines().find_map(|line| {
                            line.to_ascii_lowercase()
                                .strip_prefix("content-length:")?
                                .trim()
                                .parse::<usize>()
                                .ok()
                        });
                        if body.len() >= length.unwrap_or(0) {
                            break;
                        }
                    }
                    let read = stream.read(&mut part).await.unwrap();
                    request.extend_from_slice(&part[..read]);
                }
                log.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, seen)
    }

    pub(crate) fn client(url: String) -> Client {
        Client::new(Settings {
            api: Api::Messages,
            url,
            model: "claude-test".into(),
            key: Some(Key { text: "sk-canary".into(), place: "ANTHROPIC_API_KEY".into() }),
            rates: Rates::default(),
            deadline: Duration::from_secs(10),
        })
        .unwrap()
    }

    fn message(text: &str, stop: &str) -> String {
        json!({"content": [{"type": "text", "text": text}], "stop_reason": stop, "usage": {"input_tokens": 3, "output_tokens": 2}})
            .to_string()
    }

    #[tokio::test]
    async fn a_busy_server_is_retried_after_its_retry_after() {
        let (url, seen) = server(vec![
            ("429 Too Many Requests", "retry-after: 1\r\n", r#"{"error":{"message":"slow down"}}"#.into()),
            ("529 Overloaded", "", r#"{"error":{"message":"overloaded"}}"#.into()),
            ("200 OK", "", message("hello", "end_turn")),
        ])
        .await;
        let reply = client(url).ask("be brief", "hi", 100).await.unwrap();
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        assert_eq!(reply, Reply { text: "hello".into(), usage });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 3);
        assert!(
            seen[0].starts_with("POST /v1/messages ") && seen[0].contains("anthropic-version: 2023-06-01")
        );
    }

    #[tokio::test]
    async fn what_may_have_cost_is_not_asked_again() {
        let cut = message("hello", "end_turn")[..30].to_owned();
        let (url, seen) =
            server(vec![("200 OK", "", cut), ("200 OK", "", message("hello", "end_turn"))]).await;
        let error = client(url).ask("be brief", "hi", 100).await.unwrap_err();
        assert!(matches!(error, Error::Incomplete) && error.may_have_cost(), "{error}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_refused_key_fails_at_once_and_is_not_shown() {
        let (url, seen) =
            server(vec![("401 Unauthorized", "", r#"{"error":{"message":"invalid x-api-key"}}"#.into())])
                .await;
        let client = client(url);
        let error = client.ask("s", "u", 10).await.unwrap_err();
        assert!(!error.is_temporary() && error.is_curable(Api::Messages));
        let shown = format!("{} {error:?} {client:?}", client.describe(&error));
        assert!(shown.contains("401: invalid x-api-key; it refused the key in ANTHROPIC_API_KEY"), "{shown}");
        assert!(shown.contains("401") && !shown.contains("sk-canary"), "{shown}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn what_is_no_answer_of_a_model_says_what_it_is() {
        let (url, _) = server(vec![
            ("200 OK", "", message("half", "max_tokens")),
            ("200 OK", "", message("", "refusal")),
            ("200 OK", "", "<html>".into()),
            ("302 Found", "location: http://me:sk-canary@127.0.0.1:1/login?key=sk-canary\r\n", String::new()),
            ("200 OK", "", "{\"content\": [".into()),
            ("502 Bad Gateway", "", "<html><h1>502</h1></html>".into()),
            (
                "404 Not Found",
                "",
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#.into(),
            ),
        ])
        .await;
        let client = client(url);
        let tool = Tool { name: "keep", description: "Keeps.", schema: json!({ "type": "object" }) };
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Truncated(10))));
        assert!(matches!(client.ask("s", "u", 10).await, Err(Error::Refused)));
        let mut shown = Vec::new();
        for _ in 0..5 {
            let request = Request { system: "s", tool: &tool, user: "u", output_tokens_max: 10 };
            let error = client.call(&request).await.unwrap_err();
            assert!(error.is_curable(Api::Messages), "{error}");
            shown.push(client.describe(&error));
        }
        let page =
            "is there a proxy or the login page of a network before it, or another server at `model.url`?";
        assert_eq!(
            shown,
            [
                format!("the answer is a web page and not the model's; {page}"),
                "the model's server answered 302: the request is sent on to http://127.0.0.1:1/login; set `model.url` to \
                 that address if the model's server is there"
                    .to_owned(),
                "the model's answer ends before it is complete".to_owned(),
                "the model's server answered 502: a web page".to_owned(),
                "the model's server answered 404: model: x; set `model.name` to a model that it has; now it is \
                 `claude-test`"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn what_a_person_can_cure_is_known_by_status_and_kind() {
        let is_curable = |status, kind: &str, api| {
            let (message, kinds) = ("no".to_owned(), vec![kind.to_owned()]);
            Error::Status { status, kinds, message, retry_after: None, has_begun: false }.is_curable(api)
        };
        for api in [Api::Messages, Api::OpenAi] {
            for status in [401, 402, 403, 404, 405, 407, 408, 429, 500, 529] {
                assert!(is_curable(status, "", api), "{status}");
            }
            assert!(is_curable(400, "billing_error", api) && is_curable(429, "insufficient_quota", api));
            assert!(!is_curable(400, "", api) && !is_curable(413, "", api) && !is_curable(422, "", api));
        }
        assert!(is_curable(400, "invalid_request_error", Api::Messages), "the credit is used up");
        assert!(!is_curable(400, "invalid_request_error", Api::OpenAi));
        let kinds = vec!["invalid_request_error".to_owned()];
        let message = "prompt is too long: 9 tokens > 8 maximum".to_owned();
        let too_long = Error::Status { status: 400, kinds, message, retry_after: None, has_begun: false };
        assert!(!too_long.is_curable(Api::Messages));
    }
}
