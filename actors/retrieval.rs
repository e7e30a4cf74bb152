//! Answers questions from a pinned generation of the index, and never waits for a writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use git::{ContentState, Repository, ReviewSnapshot};
use index::{Index, Snapshot, UnitRecord};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use retrieve::model_rerank::{Ranking, RerankRequest};
use retrieve::{Answer, OutputFilter, Query, Review, Trace, WordSearch};

use crate::ModelReranker;
use crate::embedding::{self, Model};
use crate::mailbox::Mailbox;
use crate::pipeline::chain;

/// How long the question's vector may take, the load of the model included; past it the words of
/// the question alone are searched for.
const VECTOR_DEADLINE: Duration = Duration::from_secs(10);

pub struct Retrieval;

pub enum Message {
    /// Search; a query without a vector gets one first.
    Ask(Query, RpcReplyPort<Result<Answer, String>>),
}

#[derive(Clone)]
pub struct Arguments {
    pub index: Index,
    pub model: Model,
    pub embedding: Mailbox<embedding::Message>,
    /// Of the brain.
    pub root: PathBuf,
    /// The branch of reviewed knowledge, when it is named.
    pub default_branch: Option<String>,
    pub reviews: Reviews,
    pub language: Language,
    /// Who may be asked for the final order.
    pub judge: Option<ModelReranker>,
    pub bell: Mailbox<Message>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Retrieval {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let _busy = health.begin();
        match message {
            // Questions are answered side by side, each by a task of its own.
            Message::Ask(query, reply) => {
                let arguments = state.arguments.clone();
                tokio::spawn(async move {
                    let answer = arguments.answer(query).await;
                    if let Err(error) = &answer {
                        arguments.bell.health().failed(error);
                    }
                    let _ = reply.send(answer);
                });
            }
        }
        Ok(())
    }
}

impl Arguments {
    async fn answer(&self, mut query: Query) -> Result<Answer, String> {
        // The words are searched for while the vector is computed.
        let asked = query.clone();
        let by_words = self.apart(move |this, pinned| this.find_words(pinned, &asked));
        let in_words = query.vector.is_none();
        let by_meaning = async {
            if !in_words {
                return (self.model.name(), None);
            }
            // While another model's generation is made, the present one is still asked in its own language: most
            // likely that of the last question.
            let known = self.language.get();
            let model = if known.is_some() { known } else { self.model_of_index().await };
            let model = model.unwrap_or_else(|| self.model.name());
            let vector = self.vector(&query.text, &model).await;
            (model, vector)
        };
        let (by_words, (mut model, mut vector)) = tokio::join!(by_words, by_meaning);
        let by_words = by_words?;
        if let Some(present) = by_words.model().filter(|_| in_words) {
            if present != model {
                present.clone_into(&mut model);
                vector = self.vector(&query.text, &model).await;
            }
            self.language.set(&model);
        }
        query.vector = query.vector.or(vector);
        let Some(judge) = &self.judge else {
            let answered = self.apart(move |this, pinned| {
                let found = this.search(pinned, &query, &model, Some(by_words))?;
                this.pack(pinned, &query, found, None)
            });
            return answered.await;
        };
        let query = Arc::new(query);
        let (asked, its_model) = (Arc::clone(&query), model.clone());
        let (found, docket) = self
            .apart(move |this, pinned| {
                let found = this.search(pinned, &asked, &its_model, Some(by_words))?;
                let docket = RerankRequest::from_search(pinned, &asked, &found.trace, &Reader(this))
                    .map_err(|error| chain(&error))?;
                Ok((found, docket))
            })
            .await?;
        // Nothing of the index is held for as long as a model thinks.
        let judged = match docket {
            Some(docket) => Some(judge.judge(docket).await),
            None => None,
        };
        let (verdict, trouble) = match judged {
            Some(Ok(verdict)) => (Some(verdict), None),
            Some(Err(trouble)) => {
                tracing::info!(trouble, "the local order stands");
                (None, Some(trouble))
            }
            None => (None, None),
        };
        self.apart(move |this, pinned| {
            // Of another generation: searched again, so that the answer is all of one.
            let found = if pinned.generation() == found.generation {
                found
            } else {
                this.search(pinned, &query, &model, None)?
            };
            let mut answer = this.pack(pinned, &query, found, verdict.as_ref())?;
            answer.rerank_trouble = trouble;
            Ok(answer)
        })
        .await
    }

    fn find_words(&self, pinned: &Snapshot, query: &Query) -> Result<WordSearch, String> {
        let tokenizer = self.model.tokenizer().map_err(|error| chain(&error))?;
        retrieve::search_words(pinned, query, tokenizer).map_err(|error| chain(&error))
    }

    /// `model` is the one that the question's vector is of.
    fn search(
        &self,
        pinned: &Snapshot,
        query: &Query,
        model: &str,
        by_words: Option<WordSearch>,
    ) -> Result<Found, String> {
        let tokenizer = self.model.tokenizer().map_err(|error| chain(&error))?;
        // Vectors of another model cannot be compared with the question's.
        let is_other = pinned.model().is_some_and(|label| label.name != model);
        let without = (is_other && query.vector.is_some()).then(|| Query { vector: None, ..query.clone() });
        let query = without.as_ref().unwrap_or(query);
        let by_words = by_words.map_or_else(|| self.find_words(pinned, query), Ok)?;
        let trace =
            retrieve::search_with_words(pinned, query, by_words, tokenizer).map_err(|error| chain(&error))?;
        Ok(Found { generation: pinned.generation(), trace })
    }

    fn pack(
        &self,
        pinned: &Snapshot,
        query: &Query,
        found: Found,
        verdict: Option<&Ranking>,
    ) -> Result<Answer, String> {
        let tokenizer = self.model.tokenizer().map_err(|error| chain(&error))?;
        retrieve::answer(pinned, query, found.trace, verdict, tokenizer, &Reader(self))
            .map_err(|error| chain(&error))
    }

    /// Reads the present generation on a thread that may block.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Snapshot) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let this = self.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let pinned = this.index.pin().map_err(|error| chain(&error))?;
            work(&this, &pinned)
        });
        worked.await.unwrap_or_else(|_| Err("the search panicked".to_owned()))
    }

    async fn model_of_index(&self) -> Option<String> {
        let index = self.index.clone();
        let label = tokio::task::spawn_blocking(move || Some(index.pin().ok()?.model()?.name.clone()));
        label.await.ok().flatten()
    }

    async fn vector(&self, text: &str, model: &str) -> Option<Vec<f32>> {
        if !self.model.speaks(model) {
            tracing::info!(model, "the index is of a model that is not there, words are searched for");
            return None;
        }
        let (text, model) = (text.to_owned(), model.to_owned());
        let question = |reply| embedding::Message::Query(text, model, reply);
        let asked = self.embedding.ask(VECTOR_DEADLINE, question).await;
        match asked {
            Ok(Ok(vector)) => Some(vector),
            Ok(Err(error)) => {
                tracing::warn!(error, "the question has no vector, its words are searched for");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the question has no vector, its words are searched for");
                None
            }
        }
    }
}

/// The model whose vectors the index had at the last question.
#[derive(Clone, Default)]
pub struct Language(Arc<Mutex<Option<String>>>);

impl Language {
    fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, model: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(model) {
            *known = Some(model.to_owned());
        }
    }
}

/// What a search has found in one generation.
struct Found {
    generation: u64,
    trace: Trace,
}

/// Knows what was reviewed.
struct Reader<'r>(&'r Arguments);

impl OutputFilter for Reader<'_> {
    fn review(&self, unit: &UnitRecord) -> Review {
        let Self(arguments) = self;
        // What is not there was laid over the work tree.
        let content = std::fs::read(arguments.root.join(&unit.path)).ok();
        let open = || {
            let repository = Repository::open(&arguments.root).ok()?;
            repository.with_default_branch(arguments.default_branch.as_deref()).review_snapshot().ok()
        };
        let standing =
            arguments.reviews.with(open, |reviewed| reviewed.content_state(&unit.path, content.as_deref()));
        match standing {
            Some(Ok(ContentState::Merged)) => Review::Merged,
            Some(Ok(ContentState::Uncommitted)) => Review::UncommittedEdit,
            Some(Err(error)) => {
                tracing::debug!(error = chain(&error), "a unit's review is not known");
                Review::Accepted
            }
            None => Review::Accepted,
        }
    }
}

/// For how long a merge may go unnoticed by what is said of reviews: to open a repository takes longer than
/// all else about them.
const REVIEWED_FOR: Duration = Duration::from_secs(1);

/// The brain's repository as it was a moment ago.
#[derive(Clone, Default)]
pub struct Reviews(Arc<Mutex<Option<Opened>>>);

struct Opened {
    at: Instant,
    /// `None` for a brain that is no repository, or has no branch yet.
    reviewed: Option<ReviewSnapshot>,
}

impl Reviews {
    fn with<T>(
        &self,
        open: impl FnOnce() -> Option<ReviewSnapshot>,
        look: impl FnOnce(&ReviewSnapshot) -> T,
    ) -> Option<T> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = opened.take().filter(|opened| opened.at.elapsed() < REVIEWED_FOR);
        let opened = opened.insert(kept.unwrap_or_else(|| Opened { at: Instant::now(), reviewed: open() }));
        opened.reviewed.as_ref().map(look)
    }
}
