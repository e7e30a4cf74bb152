//! Turns texts into vectors. Owns the model's sessions, and sees to it that a question never waits
//! behind a reindex.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use embed::{Embedder, ModelChoice, Settings, Tokenizer};
use index::ModelLabel;
use queue::Stage;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::indexing;
use crate::stage::{self, Failure, Found, Jobs, Step, Worked};

/// The most texts in one request: small, so that what comes between two requests is short.
pub const BATCH_MAX: usize = 8;

pub struct Embedding;

pub enum Message {
    /// There may be candidates without vectors.
    Wake,
    /// A question's vector, at once.
    Query(String, RpcReplyPort<Result<Vec<f32>, String>>),
    /// Vectors for up to [`BATCH_MAX`] passages, when it is their turn.
    Documents(Vec<String>, RpcReplyPort<Result<Vec<Vec<f32>>, String>>),
}

#[derive(Clone)]
pub struct Arguments {
    /// The queue to work on; `None` where only questions are answered.
    pub jobs: Option<Jobs>,
    pub model: Model,
    pub bell: Address<Message>,
    pub next: Address<indexing::Message>,
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
            cache: brain::places::vector_cache().into(),
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

    /// The label of this model's vectors. The built-in model need not be loaded for it.
    pub fn label(&self) -> Result<ModelLabel, embed::Error> {
        let dimensions = match self.settings.model {
            ModelChoice::BuiltIn => embed::BUILT_IN_DIMENSIONS,
            ModelChoice::Onnx(_) => self.embedder()?.dimensions(),
        };
        Ok(ModelLabel { name: self.name(), dimensions })
    }

    /// The tokenizer, a small part of the whole.
    pub fn tokenizer(&self) -> Result<&Tokenizer, embed::Error> {
        if let Some(tokenizer) = self.tokenizer.get() {
            return Ok(tokenizer);
        }
        let tokenizer = Tokenizer::load(&self.settings)?;
        Ok(self.tokenizer.get_or_init(|| tokenizer))
    }

    /// The model. Blocks for as long as the first load takes.
    pub fn embedder(&self) -> Result<&Embedder, embed::Error> {
        if let Some(embedder) = self.embedder.get() {
            return Ok(embedder);
        }
        // Two that come at once load it twice, and one copy is dropped: rare, and better than a
        // lock that a panic would poison.
        let embedder = Embedder::load(&self.settings)?;
        Ok(self.embedder.get_or_init(|| embedder))
    }

    fn question(&self, text: &str) -> Result<Vec<f32>, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake(text);
        }
        self.embedder()?.embed_query(text)
    }

    fn documents(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, embed::Error> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return texts.iter().map(|text| fake(text)).collect();
        }
        let embedder = self.embedder()?;
        texts.iter().map(|text| embedder.embed_document(text)).collect()
    }
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
            jobs.take_over(Stage::Embedding, arguments.bell.vitals())?;
        }
        Ok(State { arguments, passages: Arc::new(Semaphore::new(1)) })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let vitals = Arc::clone(state.arguments.bell.vitals());
        let _busy = vitals.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.embed_one().await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
            Message::Query(text, reply) => state.query(text, reply),
            Message::Documents(texts, reply) => state.documents(texts, reply),
        }
        Ok(())
    }
}

impl State {
    async fn embed_one(&mut self) -> Result<Worked, ActorProcessingErr> {
        let Some(jobs) = self.arguments.jobs.clone() else { return Ok(Worked::Idle) };
        let (model, passages) = (self.arguments.model.clone(), Arc::clone(&self.passages));
        let worked = stage::work_once(&jobs, Stage::Embedding, |claim| async move {
            let mut found: Found = stage::decode(&claim.input)?;
            let texts: Vec<String> = found.candidates.iter().map(text_of).collect();
            let _turn = passages.acquire_owned().await;
            let vectors = stage::blocking(move || model.documents(&texts)).await;
            found.vectors = vectors.map_err(|error| Failure::passing(&error))?;
            failpoint::here!("embedding-before-advance");
            Ok(Step::Next(Stage::Indexing, stage::encode(&found)?))
        })
        .await?;
        if worked == Worked::Passed(Some(Stage::Indexing)) {
            failpoint::here!("embedding-after-advance");
            self.arguments.next.ring(indexing::Message::Wake);
        }
        Ok(worked)
    }

    /// Answered from a task of its own: the actor is free for the next message meanwhile.
    fn query(&self, text: String, reply: RpcReplyPort<Result<Vec<f32>, String>>) {
        let model = self.arguments.model.clone();
        tokio::task::spawn_blocking(move || {
            let _ = reply.send(model.question(&text).map_err(|error| stage::chain(&error)));
        });
    }

    fn documents(&self, texts: Vec<String>, reply: RpcReplyPort<Result<Vec<Vec<f32>>, String>>) {
        let (model, passages) = (self.arguments.model.clone(), Arc::clone(&self.passages));
        tokio::spawn(async move {
            let _turn = passages.acquire_owned().await;
            let vectors = stage::apart(move || model.documents(&texts)).await;
            let vectors = match vectors {
                Ok(vectors) => vectors.map_err(|error| stage::chain(&error)),
                Err(_) => Err("the model panicked".to_owned()),
            };
            let _ = reply.send(vectors);
        });
    }
}

/// What of a candidate is compared with the brain: what its unit's first chunk would say.
pub(crate) fn text_of(candidate: &knowledge::Candidate) -> String {
    format!("{}\n\n{}", candidate.title, candidate.body)
}
