//! Vectors from a provider over HTTPS: OpenAI, Voyage, or a server of one's own that speaks like one of them.
//!
//! What is embedded leaves the machine, without the secrets that are recognised. The async client lives on a thread of its own, so that whoever asks
//! just waits, in whatever kind of thread.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc as reply;
use std::time::Duration;

use llm::Key;
use llm::http::{Auth, Endpoint, retried};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{Error, normalized};

/// Texts in one request; both providers take 1,000 and more.
const TEXTS_MAX: usize = 128;
/// A token has at least one byte, so that this is under the 120,000 tokens that the strictest provider takes in
/// one request, whatever the language.
const REQUEST_BYTES_MAX: usize = 100_000;
/// Likewise under the 8,191 tokens of one text. Chunks are far shorter.
const TEXT_BYTES_MAX: usize = 8_000;
/// 128 vectors of 3,072 numbers as text are some 9 MB.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// How long a person waits for a question's vector before the words alone are searched for.
const QUERY_DEADLINE_MAX: Duration = Duration::from_secs(8);

/// Whose protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    OpenAi,
    Voyage,
}

impl Provider {
    /// The base address of the provider's own service.
    pub fn url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Voyage => "https://api.voyageai.com/v1",
        }
    }

    /// The variable of the environment that holds the key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Voyage => "VOYAGE_API_KEY",
        }
    }

    /// What is asked for when nobody names a model.
    pub fn model(self) -> &'static str {
        match self {
            Self::OpenAi => "text-embedding-3-small",
            Self::Voyage => "voyage-3.5",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Voyage => "voyage",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenAi => "OpenAI",
            Self::Voyage => "Voyage",
        })
    }
}

/// A model behind a provider's address. It holds no key, only where to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteModel {
    pub provider: Provider,
    pub model: String,
    /// The address without `/embeddings`: the provider's own, or that of a compatible server.
    pub url: String,
    /// A file with the key; `None` for the provider's variable. A server of one's own may want none.
    pub key_file: Option<PathBuf>,
    /// How long its vectors shall be; `None` for the model's own length, which must then be known here.
    pub dimensions: Option<usize>,
    pub query_prefix: String,
    pub document_prefix: String,
    /// For one request with its repetitions.
    pub deadline: Duration,
}

impl RemoteModel {
    /// What vectors of it are labelled with; a digest tells other servers and prefixes apart.
    pub(crate) fn name(&self) -> String {
        let name = format!("{}/{}", self.provider.label(), self.model);
        if self.is_the_providers_own() && self.query_prefix.is_empty() && self.document_prefix.is_empty() {
            return name;
        }
        let shape = (&self.url, &self.query_prefix, &self.document_prefix);
        format!("{name}@{}", &blake3::hash(format!("{shape:?}").as_bytes()).to_hex()[..8])
    }

    /// How long its vectors are.
    pub(crate) fn dimensions(&self) -> Result<usize, Error> {
        let known = native_dimensions(&self.model).map(|(dimensions, _)| dimensions);
        self.dimensions.or(known).ok_or_else(|| Error::UnknownDimensions { model: self.model.clone() })
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.dimensions()?;
        self.key().map(drop)
    }

    fn is_the_providers_own(&self) -> bool {
        self.url.trim_end_matches('/') == self.provider.url()
    }

    fn key(&self) -> Result<Option<Key>, Error> {
        let found = Key::find_in(self.key_file.as_deref(), self.provider.key_variable());
        let key = found.map_err(|source| self.failed(source))?;
        if key.is_none() && self.is_the_providers_own() {
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

/// How long a model's vectors are, and whether it can be asked for another length (of the providers' manuals).
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

/// What a text is embedded for. Voyage is told; for others there are prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Query,
    Document,
}

/// The client, on its thread. The thread ends when this is dropped and nobody waits for an answer any more.
pub(crate) struct Remote {
    settings: RemoteModel,
    dimensions: usize,
    /// Not bounded: whoever sends waits for the answer, so there are never more than those who ask.
    requests: mpsc::UnboundedSender<Request>,
}

struct Request {
    body: Value,
    deadline: Duration,
    reply: reply::Sender<Result<String, llm::Error>>,
}

impl Remote {
    /// Finds the key and makes the client. Nothing is asked of anybody yet.
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

    /// One vector for each text, in their order, each of length 1. In as many requests as it takes.
    pub(crate) fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, Error> {
        let prefix = match purpose {
            Purpose::Query => &self.settings.query_prefix,
            Purpose::Document => &self.settings.document_prefix,
        };
        // A person may have written a secret into a unit or a question: what goes out is redacted, always.
        let texts: Vec<String> =
            texts.iter().map(|text| format!("{prefix}{}", cut(&transcript::redact::redact(text)))).collect();
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in batches(&texts) {
            vectors.extend(self.request(batch, purpose)?);
        }
        Ok(vectors)
    }

    fn request(&self, texts: &[String], purpose: Purpose) -> Result<Vec<Vec<f32>>, Error> {
        let deadline = match purpose {
            Purpose::Query => self.settings.deadline.min(QUERY_DEADLINE_MAX),
            Purpose::Document => self.settings.deadline,
        };
        let (reply, answered) = reply::channel();
        let request = Request { body: self.settings.body(texts, purpose), deadline, reply };
        let gone = || Error::Runtime("the thread of the embedding client is gone".to_owned());
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
        // A question is not kept waiting by a batch of documents.
        tasks.spawn(async move {
            // Nobody may be waiting any more.
            let _ = reply.send(retried(deadline, || endpoint.post(&body)).await);
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// The head of a text that every provider takes whole.
fn cut(text: &str) -> &str {
    let text = text.trim();
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Cuts texts into requests, by number and by size.
fn batches(texts: &[String]) -> impl Iterator<Item = &[String]> {
    let mut rest = texts;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(TEXTS_MAX).take_while(|text| {
            bytes += text.len();
            bytes <= REQUEST_BYTES_MAX
        });
        // A single text is always let through: it has been cut already.
        let count = fits.count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Both providers' answer; only what is needed of it.
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

/// The vectors by their `index`, whatever order they come in.
fn read_answer(
    text: &str,
    wanted: usize,
    dimensions: usize,
    settings: &RemoteModel,
) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer =
        serde_json::from_str(text).map_err(|error| format!("its answer cannot be read: {error}"))?;
    // A model that is known is known by its name; a server of one's own may call its model what it likes.
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
        let Some(place) = vectors.get_mut(index).filter(|place| place.is_none()) else {
            return Err(format!("vector {index} comes twice or is of no text"));
        };
        if embedding.len() != dimensions {
            return Err(format!("{} numbers where {dimensions} were expected", embedding.len()));
        }
        *place = Some(normalized(embedding)?);
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
    fn texts_are_cut_into_requests_by_number_and_by_size() {
        let sizes = |texts: &[String]| batches(texts).map(<[String]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0_usize; 0]);
        assert_eq!(sizes(&vec!["a".to_owned(); 300]), [128, 128, 44]);
        assert_eq!(sizes(&vec!["a".repeat(8_000); 30]), [12, 12, 6]);
        assert_eq!(cut(&"é".repeat(9_000)).len(), 8_000);
    }

    #[test]
    fn each_provider_is_asked_in_its_own_words() {
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
        // A model that nobody here knows may not understand to be asked for a length.
        let own = RemoteModel { model: "nomic".to_owned(), dimensions: Some(768), ..model(Provider::OpenAi) };
        assert_eq!(own.body(&texts, Purpose::Query).get("dimensions"), None);
    }

    #[test]
    fn vectors_that_cannot_be_compared_have_other_names() {
        let own = model(Provider::OpenAi);
        assert_eq!(own.name(), "openai/text-embedding-3-small");
        assert_eq!(model(Provider::Voyage).name(), "voyage/voyage-3.5");
        let elsewhere = RemoteModel { url: "http://127.0.0.1:8080/v1".to_owned(), ..own.clone() };
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
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 2, "embedding": [1, 0]}]"#, "of no text"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [1, 0, 0]}]"#, "3 numbers"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [0, 0]}]"#, "zero"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [1e39, 0]}]"#, "finite"),
            (r#"[{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [null, 0]}]"#, "read"),
        ] {
            let error = read(data, "voyage-3.5").unwrap_err();
            assert!(error.contains(why), "{error} does not say {why}");
        }
        assert!(read(shuffled, "voyage-3-lite").unwrap_err().contains("another model"));
    }
}
