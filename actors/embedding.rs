//! Computes vectors. Embeds one batch of passages at a time, so that a question waits for one at most, and not for a
//! reindex.

use std::sync::Arc;

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
}

impl EmbeddingWorker {
    pub(crate) fn new(model: EmbeddingModel) -> Self {
        Self { model, passages: Arc::new(Semaphore::new(1)) }
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
