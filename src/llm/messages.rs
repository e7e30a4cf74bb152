//! The Claude Messages API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use transcript::redact::redact;

use crate::endpoint::Endpoint;
use crate::error::{Error, not_parsed};
use crate::tool::{Reply, Request, Stop, ToolAnswer};
use crate::usage::Usage;

/// The headers of every request; the version is the one that the requests follow.
pub(crate) const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// A model behind the Messages API.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    endpoint: Endpoint,
    model: String,
    /// Set once the server has said that this model takes no forced tool.
    only_offers_tools: Arc<AtomicBool>,
}

impl Messages {
    pub(crate) fn new(endpoint: Endpoint, model: String) -> Self {
        Self { endpoint, model, only_offers_tools: Arc::default() }
    }

    /// Asks once for a text.
    pub(crate) async fn ask(&self, system: &str, user: &str, output_tokens_max: u32) -> Result<Reply, Error> {
        let body = self
            .post(&json!({
                "model": self.model,
                "max_tokens": output_tokens_max,
                "system": system,
                "messages": [{ "role": "user", "content": redact(user) }],
            }))
            .await?;
        let usage = body.usage.or_estimated(system.len() + user.len(), body.output_bytes());
        let text: String = body.content.iter().filter_map(|block| block.text.as_deref()).collect();
        match body.stop_reason.as_deref() {
            Some("max_tokens") => Err(Error::Truncated(output_tokens_max)),
            Some("refusal") => Err(Error::Refused),
            _ if text.trim().is_empty() => Err(Error::Answer("it holds no text".to_owned())),
            _ => Ok(Reply { text, usage }),
        }
    }

    /// Asks once for a call of the tool.
    pub(crate) async fn call(&self, request: &Request<'_>) -> Result<ToolAnswer, Error> {
        let forced = !self.only_offers_tools.load(Ordering::Relaxed);
        match self.call_once(request, forced).await {
            // Models that always think take no forced tool. They are offered the tool, and the prompt asks for it.
            Err(Error::Status { status: 400, message, .. }) if forced && message.contains("tool_choice") => {
                let answer = self.call_once(request, false).await?;
                self.only_offers_tools.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            result => result,
        }
    }

    async fn call_once(&self, request: &Request<'_>, forced: bool) -> Result<ToolAnswer, Error> {
        let Request { system, tool, user, output_tokens_max } = request;
        let mut choice =
            if forced { json!({ "type": "tool", "name": tool.name }) } else { json!({ "type": "auto" }) };
        choice["disable_parallel_tool_use"] = true.into();
        let body = self
            .post(&json!({
                "model": self.model,
                "max_tokens": output_tokens_max,
                // Tools come before the system text in the cached prefix: one mark covers both.
                "system": [{ "type": "text", "text": system, "cache_control": { "type": "ephemeral" } }],
                "tools": [{ "name": tool.name, "description": tool.description, "input_schema": tool.schema }],
                "tool_choice": choice,
                "messages": [{ "role": "user", "content": redact(user) }],
            }))
            .await?;
        let stop = match body.stop_reason.as_deref() {
            Some("max_tokens") => Stop::OutputLimit,
            Some("model_context_window_exceeded") => Stop::ContextFull,
            Some("refusal") => Stop::Refusal,
            _ => Stop::Done,
        };
        let input_bytes = system.len() + tool.description.len() + tool.schema.to_string().len() + user.len();
        let usage = body.usage.or_estimated(input_bytes, body.output_bytes());
        let called = |name: &Option<String>| name.as_deref() == Some(tool.name);
        let calls = body.content.into_iter().filter(|block| called(&block.name));
        let input = calls.filter_map(|block| block.input).reduce(join);
        let input = input.ok_or_else(|| "it did not call the tool".to_owned());
        let model = body.model.unwrap_or_else(|| self.model.clone());
        Ok(ToolAnswer { model, stop, input, usage })
    }

    async fn post(&self, body: &Value) -> Result<MessageBody, Error> {
        let text = self.endpoint.post(body).await?;
        serde_json::from_str(&text).map_err(|error| not_parsed(&error))
    }
}

/// The arguments of two calls of a tool as those of one: their lists are joined, and of anything else the first counts.
fn join(mut first: Value, next: Value) -> Value {
    if let (Value::Object(first), Value::Object(next)) = (&mut first, next) {
        for (name, value) in next {
            match (first.get_mut(&name), value) {
                (None, value) => drop(first.insert(name, value)),
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                (Some(_), _) => {}
            }
        }
    }
    first
}

#[derive(Deserialize)]
struct MessageBody {
    content: Vec<Block>,
    stop_reason: Option<String>,
    model: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    usage: Usage,
}

/// Some gateways send `null` for what they do not count.
fn or_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Usage, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl MessageBody {
    fn output_bytes(&self) -> usize {
        let bytes = |block: &Block| {
            let input = block.input.as_ref().map_or(0, |input| input.to_string().len());
            input + block.text.as_ref().map_or(0, String::len)
        };
        self.content.iter().map(bytes).sum()
    }
}

/// A content block of any type: `text` is set for a text, the others for a tool call.
#[derive(Deserialize)]
struct Block {
    text: Option<String>,
    name: Option<String>,
    input: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::client::tests::{client, server};
    use crate::tool::Tool;

    fn tool() -> Tool {
        Tool { name: "keep", description: "Keeps.", schema: json!({ "type": "object" }) }
    }

    fn message(content: &Value, stop: &str) -> String {
        let usage = json!({ "input_tokens": 3, "output_tokens": 2, "cache_creation_input_tokens": 5, "cache_read_input_tokens": null });
        json!({ "model": "claude-test-1", "content": content, "stop_reason": stop, "usage": usage })
            .to_string()
    }

    async fn ask(client: &Client) -> Result<ToolAnswer, Error> {
        client.call(&Request { system: "be brief", tool: &tool(), user: "hi", output_tokens_max: 9 }).await
    }

    #[tokio::test]
    async fn the_tool_is_forced_and_its_arguments_are_the_answer() {
        let thinking = json!([{ "type": "thinking", "thinking": "" }, { "type": "text", "text": "Here:" },
            { "type": "tool_use", "id": "t", "name": "keep", "input": { "units": [1] } }]);
        let (url, seen) = server(vec![("200 OK", "", message(&thinking, "tool_use"))]).await;
        let answer = ask(&client(url)).await.unwrap();
        assert_eq!(answer.input, Ok(json!({ "units": [1] })));
        assert_eq!(
            (answer.model.as_str(), answer.stop, answer.usage.tokens()),
            ("claude-test-1", Stop::Done, 10)
        );
        let seen = seen.lock().unwrap();
        let body: Value = serde_json::from_str(seen[0].split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(
            (&body["tool_choice"]["type"], &body["tool_choice"]["name"]),
            (&json!("tool"), &json!("keep"))
        );
        assert_eq!(body["system"][0]["cache_control"], json!({ "type": "ephemeral" }));
        assert_eq!((&body["max_tokens"], &body["messages"][0]["content"]), (&json!(9), &json!("hi")));
    }

    #[tokio::test]
    async fn several_calls_are_asked_not_to_be_made_and_joined_if_they_are() {
        let call = |input: Value| json!({ "type": "tool_use", "id": "t", "name": "keep", "input": input });
        let calls = json!([
            call(json!({ "units": [1, 2], "said": "first" })),
            { "type": "tool_use", "id": "t", "name": "other", "input": { "units": [9] } },
            call(json!({ "units": [3], "topics": [4], "said": "second" })),
        ]);
        let (url, seen) = server(vec![("200 OK", "", message(&calls, "tool_use"))]).await;
        let answer = ask(&client(url)).await.unwrap();
        assert_eq!(answer.input, Ok(json!({ "units": [1, 2, 3], "topics": [4], "said": "first" })));
        assert!(seen.lock().unwrap()[0].contains(r#""disable_parallel_tool_use":true"#));
    }

    #[tokio::test]
    async fn each_stop_reason_is_known_with_its_usage() {
        let cut = json!([{ "type": "tool_use", "id": "t", "name": "keep", "input": {} }]);
        let (url, _) = server(vec![
            ("200 OK", "", message(&cut, "max_tokens")),
            ("200 OK", "", message(&json!([]), "refusal")),
            ("200 OK", "", message(&json!([{ "type": "text", "text": "no" }]), "end_turn")),
            ("200 OK", "", message(&json!([]), "model_context_window_exceeded")),
        ])
        .await;
        let client = client(url);
        for expected in [Stop::OutputLimit, Stop::Refusal, Stop::Done, Stop::ContextFull] {
            let answer = ask(&client).await.unwrap();
            assert_eq!((answer.stop, answer.usage.tokens()), (expected, 10));
            assert_eq!(answer.input.is_ok(), expected == Stop::OutputLimit);
        }
    }

    #[tokio::test]
    async fn tokens_that_the_server_does_not_count_are_estimated() {
        let content = json!([{ "type": "tool_use", "id": "t", "name": "keep", "input": { "units": [1] } }]);
        let with = |usage: Value| {
            json!({ "content": content, "stop_reason": "tool_use", "usage": usage }).to_string()
        };
        let without = json!({ "content": content, "stop_reason": "tool_use" }).to_string();
        let counts = |input: i64, output: i64| json!({ "input_tokens": input, "output_tokens": output });
        let (url, _) = server(vec![
            ("200 OK", "", without),
            ("200 OK", "", with(counts(-5, -7))),
            ("200 OK", "", with(Value::Null)),
            ("200 OK", "", with(counts(0, 5))),
            ("200 OK", "", with(counts(3, 5))),
        ])
        .await;
        let client = client(url);
        for expected in [(9, 4), (9, 4), (9, 4), (9, 5), (3, 5)] {
            let usage = ask(&client).await.unwrap().usage;
            assert_eq!((usage.input_tokens, usage.output_tokens), expected);
        }
    }

    #[tokio::test]
    async fn a_call_is_not_retried_and_reports_retry_after() {
        let (url, seen) = server(vec![
            ("429 Too Many Requests", "retry-after: 7\r\n", r#"{"error":{"message":"slow down"}}"#.into()),
            ("529 Overloaded", "", r#"{"error":{"message":"overloaded"}}"#.into()),
            ("400 Bad Request", "", r#"{"error":{"message":"prompt is too long: 9 tokens"}}"#.into()),
            ("401 Unauthorized", "", r#"{"error":{"message":"no such key: sk-canary"}}"#.into()),
            // A gateway's.
            ("503 Service Unavailable", "retry-after: 120\r\n", "<html>503</html>".into()),
            // No pause at all would be a request after the other.
            ("429 Too Many Requests", "retry-after: 0\r\n", r#"{"error":{"message":"slow down"}}"#.into()),
        ])
        .await;
        let client = client(url);
        let error = ask(&client).await.unwrap_err();
        assert_eq!((error.is_temporary(), error.retry_after().map(|after| after.as_secs())), (true, Some(7)));
        let error = ask(&client).await.unwrap_err();
        assert!(error.is_temporary() && error.retry_after().is_none() && !error.may_have_cost());
        assert!(ask(&client).await.unwrap_err().is_too_large());
        let error = ask(&client).await.unwrap_err();
        assert!(!error.is_temporary() && !format!("{error} {error:?}").contains("canary"), "{error}");
        let error = ask(&client).await.unwrap_err();
        assert_eq!(
            (error.is_temporary(), error.retry_after().map(|after| after.as_secs())),
            (true, Some(120))
        );
        let error = ask(&client).await.unwrap_err();
        assert_eq!((error.is_temporary(), error.retry_after()), (true, None));
        assert_eq!(seen.lock().unwrap().len(), 6);
        let unreachable = ask(&crate::client::tests::client("http://127.0.0.1:1".into())).await.unwrap_err();
        assert!(unreachable.is_temporary() && !unreachable.may_have_cost());
    }

    #[tokio::test]
    async fn a_model_without_forced_tools_is_offered_the_tool() {
        let refusal =
            r#"{"error":{"message":"tool_choice: forced tool use is not supported for this model"}}"#;
        let done = json!([{ "type": "tool_use", "id": "t", "name": "keep", "input": {} }]);
        let (url, seen) = server(vec![
            ("400 Bad Request", "", refusal.into()),
            ("200 OK", "", message(&done, "tool_use")),
            ("200 OK", "", message(&done, "tool_use")),
        ])
        .await;
        let client = client(url);
        assert!(ask(&client).await.unwrap().input.is_ok());
        assert!(ask(&client).await.unwrap().input.is_ok());
        let seen = seen.lock().unwrap();
        let forced: Vec<bool> = seen.iter().map(|request| request.contains(r#""type":"tool""#)).collect();
        assert_eq!(forced, [true, false, false]);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_ends_at_the_deadline() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut client = client(url);
        client.settings.deadline = std::time::Duration::from_millis(50);
        let error = ask(&client).await.unwrap_err();
        assert!(matches!(error, Error::Deadline(_)) && error.is_temporary() && error.may_have_cost());
    }
}
