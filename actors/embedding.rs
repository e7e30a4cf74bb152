//! Turns texts into vectors. Owns the model's sessions, and sees to it that a question never waits
//! behind a reindex.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use embed::{Embedder, ModelChoice, Settings, Tokenizer};
use index::ModelLabel;
use queue::Stage;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Semaphore;

use crate::indexing;
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Found, Jobs, Step, Worked};

/// The most texts in one message: small, so that what comes between two messages is short.
const BATCH_MAX: usize = 8;
/// The same for a provider, who is asked for many at once.
const BATCH_MAX_REMOTE: usize = 128;
/// How long a capture waits when a provider cannot be reached and does not say until when.
const PROVIDER_PAUSE: Duration = Duration::from_secs(60);

pub struct Embedding;

pub enum Message {
    /// There may be candidates without vectors.
    Wake,
    /// A question's vector by the model of this name, at once; [`Model::speaks`] tells which there are.
    Query(String, String, RpcReplyPort<Result<Vec<f32>, String>>),
    /// Vectors for up to [`Model::batch_max`] passages, when it is their turn.
    Documents(Vec<String>, RpcReplyPort<Result<Vec<Vec<f32>>, Trouble>>),
}

/// Why there are no vectors.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub message: String,
    /// When to ask again, if it is not the fault of the texts.
    pub after: Option<Duration>,
}

impl From<&embed::Error> for Trouble {
    fn from(error: &embed::Error) -> Self {
        let after = error.is_temporary().then(|| error.retry_after().unwrap_or(PROVIDER_PAUSE));
        Self { message: pipeline::chain(error), after }
    }
}

#[derive(Clone)]
pub struct Arguments {
    /// The queue to work on; `None` where only questions are answered.
    pub jobs: Option<Jobs>,
    pub model: Model,
    pub bell: Mailbox<Message>,
    pub next: Mailbox<indexing::Message>,
}

pub struct State {
    arguments: Arguments,
    /// One batch of passages at a time; the other session stays free for questions.
    passages: Arc<Semaphore>,
}

/// The embedding model, loaded when it is first needed and kept through restarts of the actor.
#[derive(Clone)]
pub struct Model {
    settings: Settings,
    tokenizer: Arc<OnceLock<Tokenizer>>,
    embedder: Arc<OnceLock<Embedder>>,
    /// The built-in model, where it is not the settings' but that of the present generation.
    built_in: Arc<OnceLock<Embedder>>,
    /// Held while a model is loaded, so that two that come at once load it once; the same for the tokenizer.
    loading: Arc<Mutex<()>>,
    loading_tokenizer: Arc<Mutex<()>>,
    pub(crate) cache: Arc<Path>,
    #[cfg(test)]
    pub(crate) fake: Option<crate::testbed::FakeModel>,
}

impl Model {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tokenizer: Arc::default(),
            embedder: Arc::default(),
            built_in: Arc::default(),
            loading: Arc::default(),
            loading_tokenizer: Arc::default(),
            cache: brain::paths::vector_cache().into(),
            #[cfg(test)]
            fake: None,
        }
    }

    /// Where the vectors that it has computed are kept, for all brains.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// What vectors of this model are labelled with, known without loading it.
    pub fn name(&self) -> String {
        embed::model_name(&self.settings)
    }

    /// The label of this model's vectors. Only a model of the user's own must be loaded for it.
    pub fn label(&self) -> Result<ModelLabel, embed::Error> {
        let dimensions = match embed::known_dimensions(&self.settings)? {
            Some(dimensions) => dimensions,
            None => self.embedder()?.dimensions(),
        };
        Ok(ModelLabel { name: self.name(), dimensions })
    }

    /// How many passages are sent in one message.
    pub fn batch_max(&self) -> usize {
        match self.settings.model {
            ModelChoice::Remote(_) => BATCH_MAX_REMOTE,
            ModelChoice::BuiltIn | ModelChoice::Onnx(_) => BATCH_MAX,
        }
    }

    /// Whether questions can be embedded by the model of this name: that of the settings, or the built-in
    /// one, which is always there.
    pub fn speaks(&self, name: &str) -> bool {
        name == embed::BUILT_IN_NAME || name == self.name()
    }

    /// Loads the model ahead of the one question of this process, as quickly as it can be had. What fails is
    /// told to whoever asks.
    pub fn preload_model(&self) {
        #[cfg(test)]
        if self.fake.is_some() {
            return;
        }
        let settings = Settings { fast_start: true, ..self.settings.clone() };
        let _ = self.load_once(&self.embedder, &settings);
    }

    /// The tokenizer, a small part of the whole.
    pub fn tokenizer(&self) -> Result<&Tokenizer, embed::Error> {
        let load = || Tokenizer::load(&self.settings);
        get_or_load(&self.tokenizer, &self.loading_tokenizer, load)
    }

    /// The model. Blocks for as long as the first load takes.
    pub fn embedder(&self) -> Result<&Embedder, embed::Error> {
        self.load_once(&self.embedder, &self.settings)
    }

    fn load_once<'m>(
        &self,
        place: &'m OnceLock<Embedder>,
        settings: &Settings,
    ) -> Result<&'m Embedder, embed::Error> {
        get_or_load(place, &self.loading, || match settings.model == self.settings.model {
            true => Embedder::load_with(settings, || self.tokenizer().cloned()),
            false => Embedder::load(settings),
        })
    }

    /// Lets go of what the models hold in memory until they are needed again.
    pub fn unload(&self) {
        [&self.embedder, &self.built_in]
            .into_iter()
            .filter_map(|place| place.get())
            .for_each(Embedder::unload);
    }

    fn question(&self, text: &str, name: &str) -> Result<Vec<f32>, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake(text);
        }
        let embedder = match name {
            embed::BUILT_IN_NAME if self.settings.model != ModelChoice::BuiltIn => {
                let settings = Settings { model: ModelChoice::BuiltIn, ..self.settings.clone() };
                self.load_once(&self.built_in, &settings)?
            }
            _ => self.embedder()?,
        };
        embedder.embed_query(text)
    }

    fn documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return texts.iter().map(|text| fake(text)).collect();
        }
        self.embedder()?.embed_documents(texts)
    }
}

/// What is in the place, or else what is loaded into it, once.
fn get_or_load<'p, T>(
    place: &'p OnceLock<T>,
    loading: &Mutex<()>,
    load: impl FnOnce() -> Result<T, embed::Error>,
) -> Result<&'p T, embed::Error> {
    if let Some(loaded) = place.get() {
        return Ok(loaded);
    }
    let _loading = loading.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = place.get() {
        return Ok(loaded);
    }
    let loaded = load()?;
    Ok(place.get_or_init(|| loaded))
}

impl Actor for Embedding {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        if let Some(jobs) = &mut arguments.jobs {
            jobs.take_over(Stage::Embedding, arguments.bell.health())?;
        }
        Ok(State { arguments, passages: Arc::new(Semaphore::new(1)) })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.embed_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
            Message::Query(text, model, reply) => state.query(text, model, reply),
            Message::Documents(texts, reply) => state.documents(texts, reply),
        }
        Ok(())
    }
}

impl State {
    async fn embed_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let Some(jobs) = self.arguments.jobs.clone() else { return Ok(Worked::Idle) };
        let (model, passages) = (self.arguments.model.clone(), Arc::clone(&self.passages));
        let worked = pipeline::work_once(&jobs, Stage::Embedding, |claim| async move {
            let mut found: Found = pipeline::decode(&claim.input)?;
            let texts: Vec<String> = found.texts();
            let _turn = passages.acquire_owned().await;
            found.model = model.name();
            let vectors = pipeline::blocking(move || model.documents(&texts)).await;
            found.vectors = vectors.map_err(|error| Failure::from(Trouble::from(&error)))?;
            failpoint::here!("embedding-before-advance");
            Ok(Step::Next(Stage::Indexing, pipeline::encode(&found)?))
        })
        .await?;
        if worked == Worked::Passed(Some(Stage::Indexing)) {
            failpoint::here!("embedding-after-advance");
            self.arguments.next.ring(indexing::Message::Wake);
        }
        Ok(worked)
    }

    /// Answered from a task of its own: the actor is free for the next message meanwhile.
    fn query(&self, text: String, name: String, reply: RpcReplyPort<Result<Vec<f32>, String>>) {
        let model = self.arguments.model.clone();
        tokio::task::spawn_blocking(move || {
            let _ = reply.send(model.question(&text, &name).map_err(|error| pipeline::chain(&error)));
        });
    }

    fn documents(&self, texts: Vec<String>, reply: RpcReplyPort<Result<Vec<Vec<f32>>, Trouble>>) {
        let (model, passages) = (self.arguments.model.clone(), Arc::clone(&self.passages));
        tokio::spawn(async move {
            let _turn = passages.acquire_owned().await;
            let vectors = pipeline::apart(move || model.documents(&texts)).await;
            let vectors = match vectors {
                Ok(vectors) => vectors.map_err(|error| Trouble::from(&error)),
                Err(_) => Err(Trouble { message: "the model panicked".to_owned(), after: None }),
            };
            let _ = reply.send(vectors);
        });
    }
}

impl From<Trouble> for Failure {
    fn from(Trouble { message, after }: Trouble) -> Self {
        Self { after, ..Self::of(message) }
    }
}
