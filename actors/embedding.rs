//! Computes vectors. Embeds one batch of passages at a time, so that a question waits for one at most, and not for a
//! reindex.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use knowledge::Embedding;
use queue::{Claim, Stage};
use ractor::RpcReplyPort;
use tokio::sync::Semaphore;

use crate::background::{run_blocking, try_run_blocking};
use crate::embedding_model::EmbeddingModel;
use crate::failure::{Failure, error_chain};
use crate::pipeline::{self, Findings, vectors_of};
use crate::stage_actor::{StageWorker, Step};

#[derive(Clone)]
pub(crate) struct EmbeddingWorker {
    model: EmbeddingModel,
    /// One batch of passages at a time.
    passages: Arc<Semaphore>,
    /// How many texts were asked for.
    asked: Arc<AtomicU64>,
}

/// How long nobody asks before the model gives memory back: the next question then takes about a millisecond longer.
const REST_AFTER: Duration = Duration::from_secs(10);

impl EmbeddingWorker {
    pub(crate) fn new(model: EmbeddingModel) -> Self {
        Self { model, passages: Arc::new(Semaphore::new(1)), asked: Arc::default() }
    }

    /// Lets the model rest unless there is another question soon.
    async fn rest_later(self) {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(REST_AFTER).await;
        if self.asked.load(Ordering::SeqCst) == asked {
            run_blocking(move || self.model.rest()).await;
        }
    }
}

/// What other actors ask for.
pub(crate) enum EmbeddingRequest {
    /// A question's vector by the model of this name, at once.
    Query { text: String, model: String, reply: RpcReplyPort<Result<Embedding, String>> },
    /// Vectors for up to [`EmbeddingModel::batch_max`] passages, when it is their turn.
    Documents { texts: Vec<String>, reply: RpcReplyPort<Result<Vec<Embedding>, Failure>> },
}

impl StageWorker for EmbeddingWorker {
    const STAGE: Stage = Stage::Embedding;
    type Request = EmbeddingRequest;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let mut findings: Findings = pipeline::decode(&claim.input)?;
        findings.model = self.model.name();
        let (model, texts) = (self.model.clone(), findings.texts());
        let _turn = Arc::clone(&self.passages).acquire_owned().await;
        findings.vectors = vectors_of(run_blocking(move || model.embed_documents(&texts)).await?);
        failpoint::here!("embedding-before-advance");
        Ok(Step::Next(Stage::Indexing, pipeline::encode(&findings)?))
    }

    /// Answers from a task of its own, so that the actor is free for the next message.
    async fn answer(&self, request: EmbeddingRequest) {
        let this = self.clone();
        tokio::spawn(this.clone().rest_later());
        match request {
            EmbeddingRequest::Query { text, model: name, reply } => {
                tokio::task::spawn_blocking(move || {
                    let vector = this.model.embed_query(&text, &name);
                    let _ = reply.send(vector.map_err(|error| error_chain(&error)));
                });
            }
            EmbeddingRequest::Documents { texts, reply } => {
                tokio::spawn(async move {
                    let _turn = this.passages.acquire_owned().await;
                    let vectors = try_run_blocking(move || this.model.embed_documents(&texts)).await;
                    let _ = reply.send(match vectors {
                        Ok(vectors) => vectors.map_err(Failure::from),
                        Err(_) => Err(Failure::retryable("the model panicked")),
                    });
                });
            }
        }
    }

    fn committed(&self) {
        failpoint::here!("embedding-after-advance");
    }
}
