//! Answers questions from a snapshot of the index, and never waits for a writer.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use archive::{Archive, Memory, Project};
use embed::Tokenizer;
use git::{ContentState, ReviewSnapshot};
use index::{Catalog, Filter, Index, Snapshot, UnitRecord};
use jiff::Timestamp;
use knowledge::{CountTokens, Embedding, UnitType};
use memories::recall::MemorySearch;
use once_cell::sync::OnceCell;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use retrieve::model_rerank::{Ranking, RerankRequest};
use retrieve::{Answer, MemoryCandidate, OutputFilter, Query, Review, Trace, WordSearch};

use crate::code_context::CodeContext;
use crate::embedding::{EmbeddingRequest, EmbeddingWorker};
use crate::embedding_model::EmbeddingModel;
use crate::failure::error_chain;
use crate::health::Health;
use crate::learned_order::LearnedOrder;
use crate::setup::Setup;
use crate::stage_actor::{StageMailbox, StageMessage};

/// How long the question's vector may take, including the load of the model; after that the question is
/// searched for by its words alone.
const VECTOR_DEADLINE: Duration = Duration::from_secs(10);
/// How old the state of reviews in an answer may be. Reading it opens the repository, which takes longer than the rest of
/// that work.
const REVIEWS_CACHED_FOR: Duration = Duration::from_secs(1);

/// The largest number of memories that are candidates. Some memory is near any question, so a larger number adds noise.
const MEMORIES_MAX: usize = 8;

/// A question; a query without a vector is given one first.
pub(crate) struct Ask {
    pub(crate) query: Query,
    pub(crate) reply: RpcReplyPort<Result<Answer, String>>,
}

/// The actor that answers questions.
#[derive(Clone)]
pub(crate) struct Retrieval {
    pub(crate) index: Index,
    pub(crate) model: EmbeddingModel,
    pub(crate) embedding: StageMailbox<EmbeddingWorker>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) reviews: Arc<Mutex<Option<CachedReviews>>>,
    /// The memories of the project, as soon as there is an archive.
    pub(crate) memories: Arc<OnceCell<MemorySearch>>,
    /// The model whose vectors the index had at the last question.
    pub(crate) last_model: Arc<Mutex<Option<String>>>,
    /// The passages of the types that the last restricted question was about, in one generation.
    pub(crate) last_filter: Arc<Mutex<Option<LastFilter>>>,
    /// What was learned of the order; `None` to learn nothing.
    pub(crate) learned: Option<Arc<LearnedOrder>>,
    /// Of this actor.
    pub(crate) health: Arc<Health>,
}

/// A generation and types of units, and their passages.
type LastFilter = ((String, Vec<UnitType>), Filter);

/// The reviews in the brain's repository, as of a moment ago.
pub(crate) struct CachedReviews {
    at: Instant,
    /// `None` for a brain that is no repository, or has no branch yet.
    reviews: Option<ReviewSnapshot>,
}

/// What a search has found in one generation.
struct SearchResult {
    generation: String,
    trace: Trace,
}

impl Actor for Retrieval {
    type Msg = Ask;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Ask>,
        Ask { query, reply }: Ask,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let _busy = self.health.begin();
        // Questions are answered in parallel, each by a task of its own.
        let this = self.clone();
        tokio::spawn(async move {
            let answer = this.answer(query).await;
            if let Err(error) = &answer {
                this.health.record_error(error);
            }
            let _ = reply.send(answer);
        });
        Ok(())
    }
}

impl Retrieval {
    async fn answer(&self, query: Query) -> Result<Answer, String> {
        // The words are searched for while the vector is computed.
        let words = query.clone();
        let by_words =
            self.with_snapshot(&query.kinds, move |this, snapshot| this.find_words(snapshot, &words));
        let needs_vector = query.vector.is_none() && self.model.has_meaning();
        let by_meaning = async {
            if !needs_vector {
                return (self.model.name(), None);
            }
            // While a generation of another model is built, the present one still needs vectors of its own
            // model: most likely that of the last question.
            let last = self.last_model().clone();
            let model = if last.is_some() { last } else { self.model_of_index().await };
            let model = model.unwrap_or_else(|| self.model.name());
            let embedding = self.embedding(&query.text, &model).await;
            (model, embedding)
        };
        let memories = async {
            // They are of no type that can be asked for.
            if query.kinds.is_empty() { self.memories_by_words(query.text.clone()).await } else { None }
        };
        let (by_words, (mut model, mut embedding), memories) = tokio::join!(by_words, by_meaning, memories);
        let by_words = by_words?;
        if let Some(present) = by_words.model().filter(|_| needs_vector) {
            if present != model {
                present.clone_into(&mut model);
                embedding = self.embedding(&query.text, &model).await;
            }
            *self.last_model() = Some(model.clone());
        }
        let mut query = if needs_vector { query.with_embedding(embedding) } else { query };
        if let Some(learned) = self.learned.clone() {
            let (model, dimensions) = (model.clone(), query.vector.as_ref().map_or(0, Vec::len));
            let is_recorded = query.is_recorded;
            let read =
                tokio::task::spawn_blocking(move || learned.for_question(&model, dimensions, is_recorded));
            query.learning = read.await.ok();
        }
        if let Some(by_words) = memories {
            self.add_memories(&mut query, by_words, &model).await;
        }
        let query = Arc::new(query);
        let kinds = query.kinds.clone();
        let (searched, searched_model) = (Arc::clone(&query), model.clone());
        let search = self.with_snapshot(&kinds, move |this, snapshot| {
            let found = this.search(snapshot, &searched, &searched_model, Some(by_words))?;
            let request = match &this.setup.reranker {
                None => None,
                Some(reranker) => {
                    RerankRequest::from_search(snapshot, &searched, &found.trace, &AnswerFilter::new(this))
                        .map_err(|error| error_chain(&error))?
                        .map(|request| (reranker.clone(), request))
                }
            };
            Ok(match request {
                None => ControlFlow::Break(this.pack(snapshot, &searched, found, None)?),
                Some((reranker, request)) => ControlFlow::Continue((found, reranker, request)),
            })
        });
        let (found, reranker, request) = match search.await? {
            ControlFlow::Break(answer) => return Ok(answer),
            ControlFlow::Continue(found) => found,
        };
        // No snapshot of the index is held while the language model works.
        let ranking = reranker.rerank(request).await;
        self.with_snapshot(&kinds, move |this, snapshot| {
            // The index has changed: search again, so that all of the answer is from one generation.
            let found = if snapshot.key() == found.generation {
                found
            } else {
                this.search(snapshot, &query, &model, None)?
            };
            let mut answer = this.pack(snapshot, &query, found, ranking.as_ref().ok())?;
            answer.rerank_trouble = ranking.err();
            if let Some(error) = &answer.rerank_trouble {
                tracing::info!(error, "results keep their local order");
            }
            Ok(answer)
        })
        .await
    }

    /// The project's memories that share words with the question; `None` if memories are not recalled or cannot be read.
    async fn memories_by_words(&self, text: String) -> Option<Vec<Memory>> {
        let archive = self.setup.memories.clone()?;
        let this = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let open = || -> Result<Option<MemorySearch>, archive::Error> {
                let folder = this.setup.workspace.as_deref();
                let found = folder.map(Project::from_folder).zip(Archive::open_existing(&archive)?);
                Ok(found.map(|(project, archive)| MemorySearch::new(archive, project.key)))
            };
            let search = match this.memories.get() {
                Some(search) => search,
                None => match open()? {
                    Some(opened) => this.memories.get_or_init(|| opened),
                    None => return Ok(None),
                },
            };
            search.by_words(&text, this.model.embeds_archive(), MEMORIES_MAX).map(Some)
        });
        read.await.ok()?.unwrap_or_else(|error: archive::Error| {
            tracing::debug!(error = error_chain(&error), "failed to look up memories");
            None
        })
    }

    /// Adds the memories that the question's words and its vector find. `model` is the vector's.
    async fn add_memories(&self, query: &mut Query, by_words: Vec<Memory>, model: &str) {
        let (this, vector, model) = (self.clone(), query.vector.clone(), model.to_owned());
        let find = tokio::task::spawn_blocking(move || {
            let Some(search) = this.memories.get() else { return Ok(Default::default()) };
            let vector = vector.as_deref().map(|vector| (model.as_str(), vector));
            search.find(by_words, vector, MEMORIES_MAX)
        });
        let Ok(found) = find.await else { return };
        match found {
            Ok(found) => {
                query.memories_searched = found.searched as usize;
                query.memories = found.memories.into_iter().map(memory_candidate).collect();
            }
            Err(error) => tracing::debug!(error = error_chain(&error), "failed to look up memories"),
        }
    }

    fn tokenizer(&self, snapshot: &Snapshot) -> Result<&Tokenizer, String> {
        let found = match snapshot.model() {
            Some(_) => self.model.counter(),
            // An index that cannot be built must not look like a brain without an answer.
            None => self.model.tokenizer(),
        };
        found.map_err(|error| error_chain(&error))
    }

    fn find_words(&self, snapshot: &Snapshot, query: &Query) -> Result<WordSearch, String> {
        let tokenizer = self.tokenizer(snapshot)?;
        retrieve::search_words(snapshot, query, tokenizer).map_err(|error| error_chain(&error))
    }

    /// `model` is the one that computed the question's vector.
    fn search(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        model: &str,
        by_words: Option<WordSearch>,
    ) -> Result<SearchResult, String> {
        let tokenizer = self.tokenizer(snapshot)?;
        // Vectors of another model cannot be compared with that of the question.
        let is_other = snapshot.model().is_some_and(|label| label.name != model);
        let without = (is_other && query.vector.is_some()).then(|| Query { vector: None, ..query.clone() });
        let query = without.as_ref().unwrap_or(query);
        let by_words = by_words.map_or_else(|| self.find_words(snapshot, query), Ok)?;
        let trace = retrieve::search_with_words(snapshot, query, by_words, tokenizer)
            .map_err(|error| error_chain(&error))?;
        Ok(SearchResult { generation: snapshot.key(), trace })
    }

    fn pack(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        found: SearchResult,
        ranking: Option<&Ranking>,
    ) -> Result<Answer, String> {
        let tokenizer = self.tokenizer(snapshot)?;
        let filter = AnswerFilter::new(self);
        let mut answer = retrieve::answer(snapshot, query, found.trace, ranking, tokenizer, &filter)
            .map_err(|error| error_chain(&error))?;
        // Said of what is missing, not of what a person wants so.
        answer.words_only &= self.model.has_meaning();
        if let Some(code) = filter.code {
            let files: Vec<String> =
                query.files.iter().cloned().chain(retrieve::paths_in(&query.text)).collect();
            if !files.is_empty() {
                self.add_units_about_files(&mut answer, query, &files, &code, tokenizer);
            }
        }
        if let Some(learned) = &self.learned {
            learned.withhold(&mut answer);
        }
        Ok(answer)
    }

    /// Adds the units of the types asked for that are about these files by their scope, as far as there is room.
    fn add_units_about_files(
        &self,
        answer: &mut Answer,
        query: &Query,
        files: &[String],
        code: &CodeContext,
        tokens: &dyn CountTokens,
    ) {
        let found = Catalog::open(&self.setup.brain.derived_folder())
            .and_then(|catalog| catalog.map_or(Ok(Vec::new()), |catalog| code.units_about(&catalog, files)));
        let found = found.unwrap_or_else(|error| {
            tracing::debug!(error = error_chain(&error), "failed to look up what is known about files");
            Vec::new()
        });
        for unit in found {
            let is_asked_for = query.kinds.is_empty() || query.kinds.contains(&unit.kind);
            if !is_asked_for || answer.units.iter().any(|shown| shown.id == unit.id) {
                continue;
            }
            let (more, more_named) = (answer.more.clone(), answer.more_named);
            if let Some(at) = more.iter().position(|(id, _)| *id == unit.id) {
                answer.more.remove(at);
                answer.more_named -= usize::from(at < more_named);
            }
            answer.about_files.push(unit);
            if tokens.count(&retrieve::render(answer)) > query.budget_tokens {
                answer.about_files.pop();
                (answer.more, answer.more_named) = (more, more_named);
                break;
            }
        }
    }

    /// Reads the present generation on a thread that may block, restricted to units of these types; of none to all.
    async fn with_snapshot<T: Send + 'static>(
        &self,
        kinds: &[UnitType],
        work: impl FnOnce(&Self, &Snapshot) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (this, kinds) = (self.clone(), kinds.to_vec());
        let read = tokio::task::spawn_blocking(move || {
            let mut snapshot = this.index.pin().map_err(|error| error_chain(&error))?;
            if !kinds.is_empty() {
                let filter = this.filter_of_kinds(&snapshot, kinds).map_err(|error| error_chain(&error))?;
                snapshot.restrict(Some(filter));
            }
            work(&this, &snapshot)
        });
        read.await.unwrap_or_else(|_| Err("the search panicked".to_owned()))
    }

    /// The passages of units of these types; those of the last question are kept.
    fn filter_of_kinds(&self, snapshot: &Snapshot, kinds: Vec<UnitType>) -> Result<Filter, index::Error> {
        let key = (snapshot.key(), kinds);
        let mut last = self.last_filter.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_ref().filter(|(known, _)| *known == key) {
            Some((_, filter)) => Ok(filter.clone()),
            None => {
                let filter = snapshot.filter_of_kinds(&key.1)?;
                *last = Some((key, filter.clone()));
                Ok(filter)
            }
        }
    }

    async fn model_of_index(&self) -> Option<String> {
        let index = self.index.clone();
        let label = tokio::task::spawn_blocking(move || {
            Some(index.pin_without_vectors().ok()?.model()?.name.clone())
        });
        label.await.ok().flatten()
    }

    async fn embedding(&self, text: &str, model: &str) -> Option<Embedding> {
        if !self.model.supports(model) {
            tracing::info!(model, "the index's model is not available, searching by words alone");
            return None;
        }
        let (text, model) = (text.to_owned(), model.to_owned());
        let request = |reply| StageMessage::Request(EmbeddingRequest::Query { text, model, reply });
        let answer = self.embedding.ask(VECTOR_DEADLINE, request).await;
        match answer.map_err(|error| error.to_string()).flatten() {
            Ok(embedding) => Some(embedding),
            Err(error) => {
                tracing::warn!(error, "the question has no vector, searching by words alone");
                None
            }
        }
    }

    fn last_model(&self) -> MutexGuard<'_, Option<String>> {
        self.last_model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_reviews<T>(&self, read: impl FnOnce(&ReviewSnapshot) -> T) -> Option<T> {
        let mut cached = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = cached.take().filter(|cached| cached.at.elapsed() < REVIEWS_CACHED_FOR);
        let cached = cached.insert(fresh.unwrap_or_else(|| {
            let reviews = self.setup.repository().and_then(|repository| repository.review_snapshot());
            CachedReviews { at: Instant::now(), reviews: reviews.ok() }
        }));
        cached.reviews.as_ref().map(read)
    }
}

fn memory_candidate((memory, cosine): (Memory, f64)) -> MemoryCandidate {
    MemoryCandidate {
        number: memory.id,
        summary: memory.summary,
        dialogue: memory.dialogue,
        session: memory.session,
        at: memory.at,
        cosine,
    }
}

/// Looks up whether a person has reviewed a unit, and whether it still holds for the code at hand.
struct AnswerFilter<'r> {
    retrieval: &'r Retrieval,
    code: Option<CodeContext>,
}

impl<'r> AnswerFilter<'r> {
    fn new(retrieval: &'r Retrieval) -> Self {
        let setup = &retrieval.setup;
        let code = setup.workspace.as_deref();
        let code = code.map(|folder| CodeContext::new(&setup.brain, folder, Timestamp::now()));
        Self { retrieval, code }
    }
}

impl OutputFilter for AnswerFilter<'_> {
    fn staleness(&self, unit: &UnitRecord) -> Option<String> {
        self.code.as_ref()?.staleness(&unit.path)
    }

    fn review(&self, unit: &UnitRecord) -> Review {
        let Self { retrieval, .. } = self;
        // A file that is not in the work tree is served from the default branch.
        let content = std::fs::read(retrieval.setup.brain.root().join(&unit.path)).ok();
        let state = retrieval.with_reviews(|reviews| reviews.content_state(&unit.path, content.as_deref()));
        match state {
            Some(Ok(ContentState::Merged)) => Review::Merged,
            Some(Ok(ContentState::Uncommitted)) => Review::UncommittedEdit,
            Some(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "failed to look up a unit's review");
                Review::Accepted
            }
            None => Review::Accepted,
        }
    }
}
