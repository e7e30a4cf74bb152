//! Embeddings by a provider over HTTPS: OpenAI, Voyage, or a server with the protocol of one of them.
//!
//! Texts leave the machine, redacted. The async client runs on a thread of its own, so that callers can block on any
//! kind of thread.

use std::sync::mpsc as reply;
use std::time::Duration;

use llm::Key;
use llm::{Auth, Endpoint, retry};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::settings::{Provider, RemoteModel};
use crate::vector::normalized;

/// The limit of texts in one request to a provider's own service; both accept 1,000 and more.
const TEXTS_MAX: usize = 128;
/// The same for another server: it may need seconds for a text, and some accept 32 at most (text-embeddings-inference).
const TEXTS_MAX_ELSEWHERE: usize = 16;
/// A token has at least one byte, so this is below the 120,000 tokens that the strictest provider accepts in one
/// request, in any language.
const REQUEST_BYTES_MAX: usize = 100_000;
/// Likewise below the limit of 8,191 tokens of one text. Chunks are far shorter.
const TEXT_BYTES_MAX: usize = 8_000;
/// A shorter text is not refused for its length: the shortest limit of models in use is 256 tokens.
const TEXT_BYTES_MIN: usize = 256;
/// 128 vectors of 3,072 numbers are about 9 MB of text.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// The longest wait for a query's vector, before the search goes by words only.
const QUERY_DEADLINE_MAX: Duration = Duration::from_secs(8);

impl RemoteModel {
    /// The label of its vectors; other servers and prefixes have a digest in it.
    pub(crate) fn name(&self) -> String {
        let name = format!("{}/{}", self.provider.label(), self.model);
        if self.is_official() && self.query_prefix.is_empty() && self.document_prefix.is_empty() {
            return name;
        }
        let shape = (&self.url, &self.query_prefix, &self.document_prefix);
        format!("{name}@{}", &blake3::hash(format!("{shape:?}").as_bytes()).to_hex()[..8])
    }

    /// The length of its vectors.
    pub(crate) fn dimensions(&self) -> Result<usize, Error> {
        let known = native_dimensions(&self.model).map(|(dimensions, _)| dimensions);
        self.dimensions.or(known).ok_or_else(|| Error::UnknownDimensions { model: self.model.clone() })
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.dimensions()?;
        self.key().map(drop)
    }

    /// The most texts of one request.
    pub fn texts_max(&self) -> usize {
        if self.is_official() { TEXTS_MAX } else { TEXTS_MAX_ELSEWHERE }
    }

    fn is_official(&self) -> bool {
        self.url.trim_end_matches('/') == self.provider.url()
    }

    fn key(&self) -> Result<Option<Key>, Error> {
        let found = Key::find_in(self.key_file.as_deref(), self.provider.key_variable());
        let key = found.map_err(|source| self.failed(source))?;
        if key.is_none() && self.is_official() {
            return Err(Error::NoKey { provider: self.provider });
        }
        Ok(key)
    }

    fn failed(&self, source: llm::Error) -> Error {
        match &source {
            llm::Error::Status { status: 401 | 403, .. } => {
                Error::KeyRefused { provider: self.provider, source }
            }
            _ => Error::Provider { provider: self.provider, url: self.url.clone(), source },
        }
    }

    fn body(&self, texts: &[String], purpose: Purpose) -> Value {
        let mut body = json!({ "model": self.model, "input": texts });
        let wanted = match (self.dimensions, native_dimensions(&self.model)) {
            (Some(wanted), Some((native, true))) if wanted != native => Some(wanted),
            _ => None,
        };
        let field = match self.provider {
            Provider::OpenAi => {
                body["encoding_format"] = "float".into();
                "dimensions"
            }
            Provider::Voyage => {
                body["input_type"] = match purpose {
                    Purpose::Query => "query".into(),
                    Purpose::Document => "document".into(),
                };
                "output_dimension"
            }
        };
        if let Some(wanted) = wanted {
            body[field] = wanted.into();
        }
        body
    }
}

/// The length of a model's vectors, and whether another length can be requested (from the providers' manuals).
fn native_dimensions(model: &str) -> Option<(usize, bool)> {
    Some(match model {
        "text-embedding-3-small" => (1536, true),
        "text-embedding-3-large" => (3072, true),
        "text-embedding-ada-002" => (1536, false),
        "voyage-3.5" | "voyage-3.5-lite" | "voyage-3-large" | "voyage-code-3" => (1024, true),
        "voyage-3" | "voyage-finance-2" | "voyage-law-2" => (1024, false),
        "voyage-3-lite" => (512, false),
        "voyage-code-2" => (1536, false),
        _ => return None,
    })
}

/// What a text is embedded for. Voyage has a field for it; for others there are prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Query,
    Document,
}

/// The client with its thread. The thread ends when this is dropped and all requests are answered.
pub(crate) struct RemoteClient {
    settings: RemoteModel,
    dimensions: usize,
    /// Unbounded: a sender waits for its answer, so there are never more requests than callers.
    requests: mpsc::UnboundedSender<Request>,
}

struct Request {
    body: Value,
    deadline: Duration,
    reply: reply::Sender<Result<String, llm::Error>>,
}

impl RemoteClient {
    /// Reads the key and starts the client. Sends nothing.
    pub(crate) fn open(settings: &RemoteModel) -> Result<Self, Error> {
        let dimensions = settings.dimensions()?;
        let key = settings.key()?;
        let url = format!("{}/embeddings", settings.url.trim_end_matches('/'));
        let endpoint = Endpoint::new(url, Auth::Bearer(key), &[], settings.deadline, ANSWER_BYTES_MAX)
            .map_err(|source| settings.failed(source))?;
        let (requests, arriving) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Runtime(error.to_string()))?;
        std::thread::Builder::new()
            .name("embed-remote".to_owned())
            .spawn(move || runtime.block_on(serve(endpoint, arriving)))
            .map_err(|error| Error::Runtime(error.to_string()))?;
        Ok(Self { settings: settings.clone(), dimensions, requests })
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(crate) fn settings(&self) -> &RemoteModel {
        &self.settings
    }

    /// One vector of length 1 for each text, in their order, in as many requests as needed.
    pub(crate) fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, Error> {
        let prefix = match purpose {
            Purpose::Query => &self.settings.query_prefix,
            Purpose::Document => &self.settings.document_prefix,
        };
        // A person may have written a secret into a unit or a question.
        let texts: Vec<String> = texts
            .iter()
            .map(|text| format!("{prefix}{}", limited(&transcript::redact::redact(text))))
            .collect();
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in batches(&texts, self.settings.texts_max()) {
            vectors.extend(self.request_in_parts(batch, purpose)?);
        }
        Ok(vectors)
    }

    /// The vectors of a batch. A server refuses a whole request for one text with more tokens than its model reads: so
    /// what is refused is sent in halves, and of a single text the first half.
    fn request_in_parts(&self, texts: &[String], purpose: Purpose) -> Result<Vec<Vec<f32>>, Error> {
        match (self.request(texts, purpose), texts) {
            (Err(error), [text]) if error.is_refused_text() && text.len() > TEXT_BYTES_MIN => {
                let half = text[..text.floor_char_boundary(text.len() / 2)].to_owned();
                self.request_in_parts(&[half], purpose)
            }
            (Err(error), [_, _, ..]) if error.is_refused_text() => {
                let (first, second) = texts.split_at(texts.len() / 2);
                let mut vectors = self.request_in_parts(first, purpose)?;
                vectors.extend(self.request_in_parts(second, purpose)?);
                Ok(vectors)
            }
            (answer, _) => answer,
        }
    }

    fn request(&self, texts: &[String], purpose: Purpose) -> Result<Vec<Vec<f32>>, Error> {
        let deadline = match purpose {
            Purpose::Query => self.settings.deadline.min(QUERY_DEADLINE_MAX),
            Purpose::Document => self.settings.deadline,
        };
        let (reply, answered) = reply::channel();
        let request = Request { body: self.settings.body(texts, purpose), deadline, reply };
        let gone = || Error::Runtime("the thread of the embedding client has ended".to_owned());
        self.requests.send(request).map_err(|_| gone())?;
        let answer = answered.recv().map_err(|_| gone())?.map_err(|source| self.settings.failed(source))?;
        read_answer(&answer, texts.len(), self.dimensions, &self.settings)
            .map_err(|what| Error::Outputs { model: self.settings.model.clone(), what })
    }
}

async fn serve(endpoint: Endpoint, mut arriving: mpsc::UnboundedReceiver<Request>) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(Request { body, deadline, reply }) = arriving.recv().await {
        let endpoint = endpoint.clone();
        // A query does not wait for a batch of documents.
        tasks.spawn(async move {
            // The caller may have stopped waiting.
            let _ = reply.send(retry(deadline, llm::Error::is_temporary, || endpoint.post(&body)).await);
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// The first part of a text, within the limit of every provider.
fn limited(text: &str) -> &str {
    let text = text.trim();
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Splits texts into requests, by number and by size.
fn batches(texts: &[String], texts_max: usize) -> impl Iterator<Item = &[String]> {
    let mut rest = texts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(texts_max).take_while(|text| {
            bytes += text.len();
            bytes <= REQUEST_BYTES_MAX
        });
        // A single text always fits: it is within its own limit.
        let count = fits.count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// The parts of both providers' answer that are needed.
#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

/// The vectors in the order of their `index`.
fn read_answer(
    text: &str,
    wanted: usize,
    dimensions: usize,
    settings: &RemoteModel,
) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer =
        serde_json::from_str(text).map_err(|error| format!("its answer cannot be read: {error}"))?;
    // A known model has a known name; a compatible server may use any name.
    if let Some(name) = &answer.model
        && native_dimensions(&settings.model).is_some()
        && name.strip_prefix(&settings.model).is_none_or(|rest| !rest.is_empty() && !rest.starts_with("-v"))
    {
        let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
        return Err(format!("the vectors are of another model, {name:?}"));
    }
    if answer.data.len() != wanted {
        return Err(format!("{} vectors for {wanted} texts", answer.data.len()));
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; wanted];
    for Item { index, embedding } in answer.data {
        let Some(slot) = vectors.get_mut(index).filter(|slot| slot.is_none()) else {
            return Err(format!("vector {index} occurs twice or belongs to no text"));
        };
        if embedding.len() != dimensions {
            return Err(format!("{} numbers, expected {dimensions}", embedding.len()));
        }
        *slot = Some(normalized(embedding)?);
    }
    Ok(vectors.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(provider: Provider) -> RemoteModel {
        RemoteModel {
            provider,
            model: provider.model().to_owned(),
            url: provider.url().to_owned(),
            key_file: None,
            dimensions: None,
            query_prefix: String::new(),
            document_prefix: String::new(),
            deadline: Duration::from_secs(10),
        }
    }

    #[test]
    fn texts_are_split_into_requests_by_number_and_size() {
        let sizes = |texts: &[String]| batches(texts, 128).map(<[String]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0_usize; 0]);
        assert_eq!(sizes(&vec!["a".to_owned(); 300]), [128, 128, 44]);
        assert_eq!(sizes(&vec!["a".repeat(8_000); 30]), [12, 12, 6]);
        assert_eq!(limited(&"é".repeat(9_000)).len(), 8_000);
    }

    #[test]
    fn requests_follow_each_providers_protocol() {
        let texts = ["one".to_owned()];
        let openai = RemoteModel { dimensions: Some(256), ..model(Provider::OpenAi) };
        let wanted = json!({ "model": "text-embedding-3-small", "input": ["one"], "encoding_format": "float", "dimensions": 256 });
        assert_eq!(openai.body(&texts, Purpose::Query), wanted);
        let voyage = model(Provider::Voyage);
        let wanted = json!({ "model": "voyage-3.5", "input": ["one"], "input_type": "query" });
        assert_eq!(voyage.body(&texts, Purpose::Query), wanted);
        let shorter = RemoteModel { dimensions: Some(512), ..voyage };
        assert_eq!(shorter.body(&texts, Purpose::Document)["input_type"], "document");
        assert_eq!(shorter.body(&texts, Purpose::Document)["output_dimension"], 512);
        // An unknown model may not accept a length.
        let own = RemoteModel { model: "nomic".to_owned(), dimensions: Some(768), ..model(Provider::OpenAi) };
        assert_eq!(own.body(&texts, Purpose::Query).get("dimensions"), None);
    }

    #[test]
    fn vectors_that_cannot_be_compared_have_other_names() {
        let own = model(Provider::OpenAi);
        assert_eq!(own.name(), "openai/text-embedding-3-small");
        assert_eq!(model(Provider::Voyage).name(), "voyage/voyage-3.5");
        let elsewhere = RemoteModel { url: "http://127.0.0.1:8080/v1".to_owned(), ..own.clone() };
        assert_eq!((own.texts_max(), elsewhere.texts_max()), (128, 16));
        let prefixed = RemoteModel { query_prefix: "search_query: ".to_owned(), ..elsewhere.clone() };
        assert_ne!(own.name(), elsewhere.name());
        assert_ne!(elsewhere.name(), prefixed.name());
        assert_eq!(own.dimensions().unwrap(), 1536);
        let unknown = RemoteModel { model: "mine".to_owned(), ..elsewhere };
        assert!(matches!(unknown.dimensions(), Err(Error::UnknownDimensions { .. })));
        assert_eq!(RemoteModel { dimensions: Some(99), ..unknown }.dimensions().unwrap(), 99);
    }

    #[test]
    fn an_answer_is_taken_by_its_indexes_or_not_at_all() {
        let read = |data: &str, model: &str| {
            let text = format!(r#"{{"object": "list", "data": {data}, "model": {model:?}, "usage": {{}}}}"#);
            read_answer(&text, 2, 2, &self::model(Provider::Voyage))
        };
        let shuffled = r#"[{"object": "embedding", "index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3.0, 4.0]}]"#;
        assert_eq!(read(shuffled, "voyage-3.5").unwrap(), [[0.6, 0.8], [0.0, 1.0]]);
        for (data, why) in [
            (r#"[{"index": 0, "embedding": [1, 0]}]"#, "1 vectors for 2 texts"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 0, "embedding": [1, 0]}]"#, "twice"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 2, "embedding": [1, 0]}]"#, "to no text"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [1, 0, 0]}]"#, "3 numbers"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [0, 0]}]"#, "zero"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [1e39, 0]}]"#, "finite"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [null, 0]}]"#, "read"),
        ] {
            let error = read(data, "voyage-3.5").unwrap_err();
            assert!(error.contains(why), "{error} does not contain {why}");
        }
        assert!(read(shuffled, "voyage-3-lite").unwrap_err().contains("another model"));
    }
}
