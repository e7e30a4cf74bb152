//! The chat completions of OpenAI and of the servers that speak its protocol: Ollama, LM Studio, llama.cpp, vLLM.
//!
//! Answers are requested as a stream of server-sent events: a local model may take minutes, and a connection on which
//! nothing is sent for that long is cut by proxies. A server that answers with one JSON object instead is understood.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use transcript::redact::redact;

use crate::endpoint::Endpoint;
use crate::error::{Error, not_parsed};
use crate::json_in_text::{find_object, without_reasoning};
use crate::models::{ListedModel, list_models};
use crate::tool::{Reply, Request, Stop, Tool, ToolAnswer};
use crate::usage::{Usage, lenient};

/// How long the list of models may take.
const MODELS_DEADLINE: Duration = Duration::from_secs(3);

/// A model behind chat completions.
#[derive(Clone, Debug)]
pub(crate) struct ChatCompletions {
    endpoint: Endpoint,
    models: Endpoint,
    model: String,
    refused: Arc<Refused>,
}

/// The options that the server or the model has refused. They are not sent again.
#[derive(Debug, Default)]
struct Refused {
    response_format: AtomicBool,
    stream: AtomicBool,
    /// Newer models of OpenAI call it `max_completion_tokens`.
    max_tokens: AtomicBool,
}

impl Refused {
    /// Whether the message of an error names an option that was not refused before.
    fn learn(&self, message: &str) -> bool {
        let message = message.to_ascii_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| message.contains(word));
        // An upstream server has nothing to do with it.
        let is_stream = |word: &str| word.starts_with("stream");
        let option = if names(&["max_completion_tokens"]) {
            &self.max_tokens
        } else if names(&["response_format", "response format", "json_schema", "json schema", "grammar"]) {
            &self.response_format
        } else if message.split(|c: char| !c.is_ascii_alphanumeric()).any(is_stream) {
            &self.stream
        } else {
            return false;
        };
        !option.swap(true, Ordering::Relaxed)
    }
}

/// An answer as it was put together.
#[derive(Debug, Default)]
struct Completion {
    model: Option<String>,
    text: String,
    finish_reason: Option<String>,
    is_refused: bool,
    usage: Option<TokenCounts>,
}

impl ChatCompletions {
    /// `endpoint` is the address of the chat completions, `models` that of the list of models.
    pub(crate) fn new(endpoint: Endpoint, models: Endpoint, model: String) -> Self {
        Self { endpoint, models, model, refused: Arc::default() }
    }

    /// Whether the server has the model.
    pub(crate) async fn check_model(&self) -> Result<(), Error> {
        let listed = self.models().await?;
        // Ollama lists `gemma3` as `gemma3:latest`; llama.cpp has one model and takes any name for it.
        let is_it = |model: &ListedModel| {
            model.id == self.model
                || model.id.strip_suffix(":latest") == Some(self.model.as_str())
                || model.owned_by.as_deref() == Some("llamacpp")
        };
        if listed.iter().any(is_it) {
            return Ok(());
        }
        Err(self.unknown_model(listed))
    }

    fn unknown_model(&self, listed: Vec<ListedModel>) -> Error {
        Error::UnknownModel {
            url: self.endpoint.origin(),
            model: self.model.clone(),
            available: listed.into_iter().map(|model| model.id).collect(),
        }
    }

    async fn models(&self) -> Result<Vec<ListedModel>, Error> {
        let listed = tokio::time::timeout(MODELS_DEADLINE, list_models(&self.models)).await;
        listed.unwrap_or(Err(Error::Deadline(MODELS_DEADLINE)))
    }

    /// Asks once for a text.
    pub(crate) async fn ask(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let user = redact(user);
        let completion = self.complete(system, &user, None, output_tokens_max).await?;
        let usage = completion.usage(system, &user);
        match completion.stop() {
            Stop::OutputLimit => return Err(Error::Truncated(output_tokens_max)),
            Stop::Refusal => return Err(Error::Refused),
            Stop::Done if completion.is_cut(&user) => {
                return Err(Error::InputCut(completion.prompt_tokens()));
            }
            Stop::Done | Stop::ContextFull => {}
        }
        match without_reasoning(&completion.text) {
            "" => Err(Error::Answer("it holds no text".to_owned())),
            text => Ok(Reply { text: text.to_owned(), usage }),
        }
    }

    /// Asks once for the arguments of the tool, as a JSON object: few local models call tools reliably, and their
    /// servers can hold them to a schema.
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<ToolAnswer, Error> {
        let Request { system, tool, user, output_tokens_max } = request;
        let system = format!(
            "{system}\n\nHere the tool `{}` is called by writing its arguments: answer with one JSON object that has \
             this JSON schema, and with nothing else, no explanation and no code fence.\n{}",
            tool.name, tool.schema
        );
        let user = redact(user);
        let completion = self.complete(&system, &user, Some(tool), *output_tokens_max).await?;
        let usage = completion.usage(&system, &user);
        let stop = match completion.stop() {
            Stop::Done if completion.is_cut(&user) => Stop::ContextFull,
            stop => stop,
        };
        let required = tool.schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let keys: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
        let input = find_object(without_reasoning(&completion.text), &keys);
        let model = completion.model.unwrap_or_else(|| self.model.clone());
        Ok(ToolAnswer { model, stop, input, usage })
    }

    /// Sends a request, and again without what the server refuses of it.
    async fn complete(
        &self,
        system: &str,
        user: &str,
        tool: Option<&Tool>,
        output_tokens_max: u32,
    ) -> Result<Completion, Error> {
        loop {
            let body = self.body(system, user, tool, output_tokens_max);
            match self.endpoint.post(&body).await.and_then(|text| Completion::read(&text, &self.endpoint)) {
                Err(error) if error.is_too_large() => return Err(error),
                Err(Error::Status { status: 400 | 404, message, has_begun: false, .. })
                    if is_unknown_model(&message) =>
                {
                    return Err(self.unknown_model(self.models().await.unwrap_or_default()));
                }
                // Each option is refused once, so this ends.
                Err(Error::Status { status: 400 | 422 | 501, message, has_begun: false, .. })
                    if self.refused.learn(&message) => {}
                result => return result,
            }
        }
    }

    fn body(&self, system: &str, user: &str, tool: Option<&Tool>, output_tokens_max: u32) -> Value {
        let is_refused = |option: &AtomicBool| option.load(Ordering::Relaxed);
        let mut body = json!({
            "model": self.model,
            "messages": [{ "role": "system", "content": system }, { "role": "user", "content": user }],
        });
        let limit = if is_refused(&self.refused.max_tokens) { "max_completion_tokens" } else { "max_tokens" };
        body[limit] = output_tokens_max.into();
        if !is_refused(&self.refused.stream) {
            body["stream"] = true.into();
            body["stream_options"] = json!({ "include_usage": true });
        }
        if let Some(tool) = tool.filter(|_| !is_refused(&self.refused.response_format)) {
            body["response_format"] =
                json!({ "type": "json_schema", "json_schema": { "name": tool.name, "schema": tool.schema } });
        }
        body
    }
}

fn is_unknown_model(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let is_missing =
        ["not found", "does not exist", "not exist", "no such model", "unknown model", "not a valid model"];
    message.contains("model") && is_missing.iter().any(|words| message.contains(words))
}

impl Completion {
    /// Reads a JSON object or a stream of events.
    fn read(text: &str, endpoint: &Endpoint) -> Result<Self, Error> {
        let mut completion = Self::default();
        if text.trim_start().starts_with('{') {
            completion.add(text, endpoint)?;
            return Ok(completion);
        }
        // An event of this protocol is one line; others are comments that keep the connection open.
        let (mut has_events, mut is_done) = (false, false);
        for line in text.lines() {
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            is_done = data == "[DONE]";
            if is_done {
                break;
            }
            completion.add(data, endpoint).map_err(|error| error.after_events(has_events))?;
            has_events = true;
        }
        match completion.finish_reason {
            Some(_) => Ok(completion),
            None if is_done => Ok(completion),
            None if has_events || text.trim().is_empty() => Err(Error::Incomplete),
            None => Err(Error::Answer("it is neither JSON nor a stream of events".to_owned())),
        }
    }

    fn add(&mut self, text: &str, endpoint: &Endpoint) -> Result<(), Error> {
        let chunk: Chunk = serde_json::from_str(text).map_err(|error| not_parsed(&error))?;
        if let Some(error) = chunk.error {
            return Err(error.into_error(endpoint));
        }
        self.model = self.model.take().or(chunk.model.filter(|model| !model.is_empty()));
        self.usage = chunk.usage.or(self.usage.take());
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
        if let Some(message) = choice.message.or(choice.delta) {
            self.is_refused |= message.refusal.is_some_and(|refusal| !refusal.is_empty());
            match message.content {
                Some(Content::Text(text)) => self.text.push_str(&text),
                Some(Content::Parts(parts)) => {
                    parts.into_iter().for_each(|part| self.text.push_str(&part.text.unwrap_or_default()));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The server's count of the request; 0 if it sends none.
    fn prompt_tokens(&self) -> u64 {
        self.usage.as_ref().map_or(0, |counts| counts.prompt_tokens)
    }

    /// Whether the server read only a part of the request. Ollama cuts off what does not fit into its context and says
    /// nothing. No token spans two words, so there are at least as many tokens as words.
    fn is_cut(&self, user: &str) -> bool {
        (1..user.split_whitespace().count() as u64).contains(&self.prompt_tokens())
    }

    fn stop(&self) -> Stop {
        match self.finish_reason.as_deref() {
            _ if self.is_refused => Stop::Refusal,
            Some("length") => Stop::OutputLimit,
            Some("content_filter") => Stop::Refusal,
            _ => Stop::Done,
        }
    }

    /// The tokens by the server's count, or an estimate where it sends none.
    fn usage(&self, system: &str, user: &str) -> Usage {
        let counted = self.usage.as_ref().map_or_else(Usage::default, |counts| {
            let cached = counts.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
            let cached = cached.unwrap_or(0).min(counts.prompt_tokens);
            Usage {
                input_tokens: counts.prompt_tokens - cached,
                output_tokens: counts.completion_tokens,
                cache_read_input_tokens: cached,
                ..Usage::default()
            }
        });
        counted.or_estimated(system.len() + user.len(), self.text.len())
    }
}

/// A whole answer, or one event of a stream.
#[derive(Deserialize)]
struct Chunk {
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<TokenCounts>,
    error: Option<StreamError>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Message>,
    delta: Option<Message>,
    finish_reason: Option<String>,
}

/// The reasoning of a model has fields of its own (`reasoning_content`, `reasoning`), which are not read.
#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct TokenCounts {
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens: u64,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens: u64,
    prompt_tokens_details: Option<CachedTokens>,
}

#[derive(Clone, Debug, Deserialize)]
struct CachedTokens {
    cached_tokens: Option<u64>,
}

/// An error after the stream has begun, when there is no status any more.
#[derive(Deserialize)]
#[serde(untagged)]
enum StreamError {
    Object { message: String, code: Option<Value> },
    Text(String),
}

impl StreamError {
    fn into_error(self, endpoint: &Endpoint) -> Error {
        let (message, code) = match self {
            Self::Object { message, code } => (message, code.and_then(|code| code.as_u64())),
            Self::Text(message) => (message, None),
        };
        let status = code.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
        endpoint.error(status.unwrap_or(500), Vec::new(), &message, None)
    }
}

#[cfg(test)]
mod tests;
