use super::*;
use crate::api::Api;
use crate::client::tests::server;
use crate::client::{Client, Settings};
use crate::key::Key;
use crate::price::Rates;

type Answers = Vec<(&'static str, &'static str, String)>;

fn client(url: &str) -> Client {
    Client::new(Settings {
        api: Api::OpenAi,
        url: url.to_owned(),
        model: "qwen3:8b".to_owned(),
        key: None,
        rates: Rates::default(),
        deadline: Duration::from_secs(10),
    })
    .unwrap()
}

fn tool() -> Tool {
    Tool { name: "keep", description: "Keeps.", schema: json!({ "type": "object", "required": ["units"] }) }
}

async fn call(client: &Client) -> Result<ToolAnswer, Error> {
    client.call(&Request { system: "be brief", tool: &tool(), user: "hi there", output_tokens_max: 9 }).await
}

/// The answers to one call each, and the bodies of the requests.
async fn call_each(answers: Answers) -> (Vec<Result<ToolAnswer, Error>>, Vec<Value>) {
    let count = answers.len();
    let (url, seen) = server(answers).await;
    let client = client(&url);
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(call(&client).await);
    }
    let seen = seen.lock().unwrap();
    (results, seen.iter().map(|request| body(request)).collect())
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn whole(message: &Value, finish: &str) -> String {
    let usage = json!({ "prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 20 } });
    json!({ "object": "chat.completion", "model": "qwen3:8b-q4", "usage": usage,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }] })
    .to_string()
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn delta(delta: &Value, finish: Option<&str>) -> String {
    event(&json!({ "object": "chat.completion.chunk", "model": "qwen3:8b", "usage": null,
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
}

#[tokio::test]
async fn a_stream_is_put_together_without_its_reasoning() {
    let stream = [
        ": keep-alive\n\n".to_owned(),
        delta(&json!({ "role": "assistant", "content": "", "refusal": null }), None),
        delta(&json!({ "reasoning_content": "{\"units\": [\"no\"]}" }), None),
        delta(&json!({ "reasoning": "hm" }), None),
        delta(&json!({ "content": "{\"units\": [\"data: [DONE]\\n" }), None),
        delta(&json!({ "content": "é\"]}" }), None),
        delta(&json!({}), Some("stop")),
        event(&json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 5 } })),
        "data: [DONE]\n\n".to_owned(),
        // Not read any more.
        delta(&json!({ "content": "garbage" }), None),
    ]
    .concat();
    let (results, seen) = call_each(vec![("200 OK", "", stream)]).await;
    let answer = results[0].as_ref().unwrap();
    let usage = Usage { input_tokens: 11, output_tokens: 5, ..Usage::default() };
    let input = Ok(json!({ "units": ["data: [DONE]\né"] }));
    assert_eq!(*answer, ToolAnswer { model: "qwen3:8b".into(), stop: Stop::Done, input, usage });
    assert_eq!(seen[0]["stream_options"], json!({ "include_usage": true }));
    assert_eq!((&seen[0]["stream"], &seen[0]["max_tokens"]), (&json!(true), &json!(9)));
    let format = json!({ "type": "json_schema", "json_schema": { "name": "keep", "schema": tool().schema } });
    assert_eq!(seen[0]["response_format"], format);
    let system = seen[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("be brief\n\n") && system.contains(r#""required":["units"]"#), "{system}");
    assert_eq!(seen[0]["messages"][1], json!({ "role": "user", "content": "hi there" }));
}

#[tokio::test]
async fn a_whole_answer_is_read_and_its_cached_tokens_are_counted_once() {
    let parts = json!({ "content": [{ "type": "text", "text": "<think>{}</think>```json\n" }, { "type": "text", "text": "{\"units\": [2]}\n```" }] });
    let (results, _) = call_each(vec![("200 OK", "", whole(&parts, "stop"))]).await;
    let answer = results[0].as_ref().unwrap();
    let usage = Usage { input_tokens: 10, output_tokens: 7, cache_read_input_tokens: 20, ..Usage::default() };
    let input = Ok(json!({ "units": [2] }));
    assert_eq!(*answer, ToolAnswer { model: "qwen3:8b-q4".into(), stop: Stop::Done, input, usage });
}

#[tokio::test]
async fn cut_refused_empty_and_malformed_answers_are_distinct() {
    let text = |text: &str| json!({ "content": text });
    let (results, _) = call_each(vec![
        ("200 OK", "", whole(&text("{\"units\": [{"), "length")),
        ("200 OK", "", whole(&text(""), "content_filter")),
        ("200 OK", "", whole(&json!({ "content": null, "refusal": "I cannot" }), "stop")),
        ("200 OK", "", whole(&text(""), "stop")),
        ("200 OK", "", whole(&text("I would rather talk."), "stop")),
        ("200 OK", "", "<html>".to_owned()),
        ("200 OK", "", delta(&text("{"), None)),
        ("200 OK", "", delta(&text("{"), None) + "data: {\"choices\": [{\"del"),
        ("200 OK", "", whole(&text("{\"units\": []}"), "stop")[..90].to_owned()),
        ("200 OK", "", String::new()),
        ("200 OK", "", "it works!".to_owned()),
        ("200 OK", "", event(&json!({ "error": { "message": "it crashed", "code": 503 } }))),
    ])
    .await;
    let stops: Vec<Stop> = results[..5].iter().map(|result| result.as_ref().unwrap().stop).collect();
    assert_eq!(stops, [Stop::OutputLimit, Stop::Refusal, Stop::Refusal, Stop::Done, Stop::Done]);
    let problem = |at: usize| results[at].as_ref().unwrap().input.clone().unwrap_err();
    assert_eq!((problem(3).as_str(), problem(4).as_str()), ("it is empty", "it holds no JSON object"));
    let error = |at: usize| results[at].as_ref().unwrap_err();
    assert!(matches!(error(5), Error::WebPage) && !error(5).is_temporary());
    for at in 6..10 {
        assert!(matches!(error(at), Error::Incomplete) && error(at).is_temporary(), "{at}: {}", error(at));
    }
    assert!(matches!(error(10), Error::Answer(_)) && !error(10).is_curable(Api::OpenAi));
    assert!(matches!(error(11), Error::Status { status: 503, .. }) && error(11).is_temporary());
}

#[tokio::test]
async fn an_option_that_is_refused_is_left_out_from_then_on() {
    let refusal = |message: &str| {
        json!({ "error": { "message": message, "type": "invalid_request_error" } }).to_string()
    };
    let answer = || ("200 OK", "", whole(&json!({ "content": "{\"units\": []}" }), "stop"));
    let (url, seen) = server(vec![
        ("400 Bad Request", "", refusal("This response_format type is unavailable now")),
        (
            "422 Unprocessable Entity",
            "",
            json!({ "detail": "extra fields not permitted: stream_options" }).to_string(),
        ),
        (
            "400 Bad Request",
            "",
            refusal("'max_tokens' is not supported, use 'max_completion_tokens' instead."),
        ),
        answer(),
        answer(),
        ("400 Bad Request", "", refusal("response_format again")),
    ])
    .await;
    let client = client(&url);
    assert!(call(&client).await.unwrap().input.is_ok());
    assert!(call(&client).await.unwrap().input.is_ok());
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, Error::Status { status: 400, .. }), "it is not asked for ever: {error}");
    let seen: Vec<Value> = seen.lock().unwrap().iter().map(|request| body(request)).collect();
    let sent = |at: usize| ["response_format", "stream", "max_tokens"].map(|key| seen[at].get(key).is_some());
    assert_eq!(sent(0), [true, true, true]);
    assert_eq!(sent(1), [false, true, true]);
    assert_eq!(sent(2), [false, false, true]);
    assert_eq!((sent(3), sent(4)), ([false; 3], [false; 3]));
    assert_eq!(seen[4]["max_completion_tokens"], 9);
}

#[tokio::test]
async fn a_request_that_is_too_long_is_known_by_each_servers_words() {
    let error = |message: &str| json!({ "error": { "message": message, "code": 400 } }).to_string();
    let said = [
        (
            "400 Bad Request",
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        ),
        (
            "400 Bad Request",
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 tokens",
        ),
        ("400 Bad Request", "the request exceeds the available context size, try increasing it"),
        ("500 Internal Server Error", "input length exceeds the context length"),
        (
            "400 Bad Request",
            "The number of tokens to keep from the initial prompt is greater than the context length.",
        ),
    ];
    let (results, seen) =
        call_each(said.iter().map(|(status, said)| (*status, "", error(said))).collect()).await;
    for result in results {
        let error = result.unwrap_err();
        assert!(error.is_too_large() && !error.is_temporary() && !error.may_have_cost(), "{error}");
    }
    assert_eq!(seen.len(), said.len(), "none is asked again");
}

#[tokio::test]
async fn an_answer_that_may_not_be_so_long_is_no_request_that_is_too_long() {
    let said = "max_tokens is too large: 64000. This model supports at most 16384 completion tokens.";
    let (results, _) =
        call_each(vec![("400 Bad Request", "", json!({ "error": { "message": said } }).to_string())]).await;
    let error = results[0].as_ref().unwrap_err();
    assert!(!error.is_too_large() && !error.is_curable(Api::OpenAi), "{error}");
}

#[tokio::test]
async fn an_upstream_error_refuses_no_stream() {
    let (results, seen) = call_each(vec![
        ("400 Bad Request", "", r#"{"error":{"message":"upstream error"}}"#.to_owned()),
        ("200 OK", "", whole(&json!({ "content": "{\"units\": []}" }), "stop")),
    ])
    .await;
    assert!(results[0].is_err() && results[1].is_ok(), "{results:?}");
    assert_eq!(seen[1]["stream"], true);
}

#[tokio::test]
async fn an_error_after_a_stream_has_begun_may_have_cost() {
    let failed = |code: u16| event(&json!({ "error": { "message": "the stream broke", "code": code } }));
    let begun = |code: u16| delta(&json!({ "content": "{" }), None) + &failed(code);
    let (results, seen) =
        call_each(vec![("200 OK", "", failed(503)), ("200 OK", "", begun(503)), ("200 OK", "", begun(400))])
            .await;
    let errors: Vec<&Error> = results.iter().map(|result| result.as_ref().unwrap_err()).collect();
    assert_eq!(errors.iter().map(|error| error.may_have_cost()).collect::<Vec<_>>(), [false, true, true]);
    assert!(errors[0].is_temporary() && errors[1].is_temporary(), "{errors:?}");
    assert_eq!(seen.len(), 3, "none is asked again");
}

/// Ollama cuts off what its context cannot hold, and answers what it made of the rest.
#[tokio::test]
async fn a_request_that_was_cut_silently_is_noticed() {
    let answer = |tokens: u64| {
        let usage = json!({ "prompt_tokens": tokens, "completion_tokens": 3 });
        let choice = json!({ "message": { "content": "{\"units\": []}" }, "finish_reason": "stop" });
        ("200 OK", "", json!({ "choices": [choice], "usage": usage }).to_string())
    };
    let (url, _) = server(vec![answer(99), answer(100), answer(0), answer(99)]).await;
    let client = client(&url);
    let user = "word ".repeat(100);
    let request = Request { system: "s", tool: &tool(), user: &user, output_tokens_max: 9 };
    assert_eq!(client.call(&request).await.unwrap().stop, Stop::ContextFull);
    assert_eq!(client.call(&request).await.unwrap().stop, Stop::Done);
    assert_eq!(client.call(&request).await.unwrap().stop, Stop::Done, "no count, no conclusion");
    let error = client.ask("s", &user, 9).await.unwrap_err();
    assert!(matches!(error, Error::InputCut(99)) && error.is_too_large(), "{error}");
    assert!(client.describe(&error).contains("OLLAMA_CONTEXT_LENGTH"));
}

#[tokio::test]
async fn tokens_that_the_server_does_not_count_are_estimated() {
    let with = |usage: Value| {
        let choice = json!({ "message": { "content": "{\"units\": []}" }, "finish_reason": "stop" });
        ("200 OK", "", json!({ "choices": [choice], "usage": usage }).to_string())
    };
    let counts = |input: i64, output: i64| json!({ "prompt_tokens": input, "completion_tokens": output });
    let (results, _) = call_each(vec![with(Value::Null), with(counts(-5, -7)), with(counts(30, 0))]).await;
    let usages: Vec<Usage> = results.into_iter().map(|result| result.unwrap().usage).collect();
    assert!(usages[0].input_tokens > 50 && usages[0].output_tokens == 4, "{usages:?}");
    assert_eq!(usages[1], usages[0]);
    assert_eq!((usages[2].input_tokens, usages[2].output_tokens), (30, 4));
}

#[tokio::test]
async fn an_unknown_model_is_an_error_that_names_those_there_are() {
    let listing = r#"{"object":"list","data":[{"id":"gemma3:4b","object":"model","owned_by":"library"}]}"#;
    for said in [
        r#"{"error":{"message":"model \"qwen3:8b\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
        r#"{"object":"error","message":"The model `qwen3:8b` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
        r#"{"error":{"message":"The model does not exist or you do not have access to it.","code":"model_not_found"}}"#,
    ] {
        let (url, seen) =
            server(vec![("404 Not Found", "", said.to_owned()), ("200 OK", "", listing.to_owned())]).await;
        let client = client(&url);
        let error = call(&client).await.unwrap_err();
        assert!(!error.is_temporary() && error.is_curable(Api::OpenAi) && !error.may_have_cost());
        assert_eq!(
            client.describe(&error),
            format!(
                "the server at {url} has no model `qwen3:8b`; set `model.name` to one that it has: gemma3:4b"
            )
        );
        assert!(seen.lock().unwrap()[1].starts_with("GET /v1/models "));
    }
    let error = Error::UnknownModel { url: String::new(), model: "qwen3:8b".into(), available: Vec::new() };
    assert_eq!(client("http://localhost:11434/v1/").hint(&error).unwrap(), "run `ollama pull qwen3:8b`");
}

#[tokio::test]
async fn a_model_is_looked_up_in_the_servers_list() {
    let (url, _) = server(vec![
        ("200 OK", "", r#"{"data":[{"id":"other"},{"id":"qwen3:8b"}]}"#.into()),
        ("200 OK", "", r#"{"data":[{"id":"/models/some.gguf","owned_by":"llamacpp"}]}"#.into()),
        ("200 OK", "", r#"{"data":[{"id":"qwen3:4b","owned_by":"library"}]}"#.into()),
        ("200 OK", "", r#"{"data":null}"#.into()),
        ("200 OK", "", "<html>".into()),
    ])
    .await;
    let client = client(&url);
    client.check_model().await.unwrap();
    client.check_model().await.unwrap();
    for expected in [vec!["qwen3:4b".to_owned()], Vec::new()] {
        match client.check_model().await.unwrap_err() {
            Error::UnknownModel { available, .. } => assert_eq!(available, expected),
            error => panic!("{error}"),
        }
    }
    assert!(matches!(client.check_model().await, Err(Error::WebPage)));
}

#[tokio::test]
async fn the_address_may_end_with_v1_or_a_slash() {
    for ending in ["", "/", "/v1", "/v1/", "/api/v1", "/v1/chat/completions", "/v1/messages/", "/v1/models"] {
        let answer = || ("200 OK", "", whole(&json!({ "content": "hello" }), "stop"));
        let listing = r#"{"data":[{"id":"qwen3:8b:latest"}]}"#;
        let (url, seen) = server(vec![answer(), ("200 OK", "", listing.into())]).await;
        let client = client(&format!("{url}{ending}"));
        assert_eq!(client.ask("s", "u", 9).await.unwrap().text, "hello");
        client.check_model().await.unwrap();
        let seen = seen.lock().unwrap();
        let before = if ending == "/api/v1" { "/api" } else { "" };
        assert!(seen[0].starts_with(&format!("POST {before}/v1/chat/completions ")), "{ending}: {}", seen[0]);
        assert!(seen[1].starts_with(&format!("GET {before}/v1/models ")), "{ending}: {}", seen[1]);
    }
}

#[tokio::test]
async fn a_text_has_no_schema_and_is_retried_when_the_server_is_busy() {
    let (url, seen) = server(vec![
        (
            "503 Service Unavailable",
            "retry-after: 1\r\n",
            r#"{"error":{"message":"Loading model","code":503}}"#.into(),
        ),
        ("200 OK", "", whole(&json!({ "content": "<think>so</think>\n\nhello" }), "stop")),
        ("200 OK", "", whole(&json!({ "content": "<think>it never ends" }), "length")),
        ("200 OK", "", whole(&json!({ "content": "<think>only</think>" }), "stop")),
    ])
    .await;
    let client = client(&url);
    assert_eq!(client.ask("s", "u", 9).await.unwrap().text, "hello");
    assert!(matches!(client.ask("s", "u", 9).await, Err(Error::Truncated(9))));
    assert!(matches!(client.ask("s", "u", 9).await, Err(Error::Answer(_))));
    let first = body(&seen.lock().unwrap()[0]);
    assert!(first.get("response_format").is_none(), "{first}");
}

#[tokio::test]
async fn a_server_that_does_not_run_is_waited_for_with_a_hint() {
    let client = client("http://127.0.0.1:1");
    let error = call(&client).await.unwrap_err();
    assert!(error.is_temporary() && !error.may_have_cost());
    assert_eq!(
        client.describe(&error),
        "no server answers at http://127.0.0.1:1; start it, or set `model.url`"
    );
    let hint = self::client("http://127.0.0.1:11434").hint(&error).unwrap();
    assert_eq!(hint, "start it (`ollama serve`), or set `model.url`");
}

#[tokio::test]
async fn a_key_is_sent_as_bearer_and_shown_nowhere() {
    let (url, seen) = server(vec![
        ("401 Unauthorized", "", r#"{"error":"no such key: sk-canary"}"#.into()),
        ("200 OK", "", event(&json!({ "error": "no such key: sk-canary" }))),
    ])
    .await;
    let settings = Settings {
        key: Some(Key { text: "sk-canary".into(), place: "OPENAI_API_KEY".into() }),
        ..client(&url).settings
    };
    let client = Client::new(settings).unwrap();
    for _ in 0..2 {
        let error = call(&client).await.unwrap_err();
        let shown = format!("{error} {error:?} {client:?} {}", client.describe(&error));
        assert!(shown.contains("no such key") && !shown.contains("canary"), "{shown}");
    }
    assert!(seen.lock().unwrap()[0].contains("authorization: Bearer sk-canary\r\n"));
}

#[test]
fn a_model_that_ollama_passes_on_is_not_local() {
    let is_local =
        |url: &str, model: &str| Settings { model: model.to_owned(), ..client(url).settings }.is_local();
    assert!(is_local("http://127.0.0.1:11434", "qwen3:8b") && is_local("http://[::1]:1", "x"));
    assert!(is_local("http://localhost:1234/v1", "x"));
    assert!(!is_local("http://127.0.0.1:11434", "gpt-oss:120b-cloud"));
    assert!(!is_local("http://127.0.0.1:11434", "glm-4.6:cloud"));
    assert!(!is_local("https://api.openai.com", "x") && !is_local("https://localhost.example.com", "x"));
}
