//! Publishes the next generation of the index when files of the brain have changed, and compares what a
//! session yielded with what is known.

use std::sync::Arc;
use std::time::Duration;

use index::{Comparison, Index, Mode, ModelLabel, Report, VectorCache};
use knowledge::Embedding;
use queue::{Claim, Ledger, Stage};
use ractor::RpcReplyPort;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::background::{run_blocking, try_run_blocking};
use crate::brain_view::BrainView;
use crate::comparison::compare;
use crate::embedding::{EmbeddingRequest, EmbeddingWorker};
use crate::embedding_model::EmbeddingModel;
use crate::failure::{Failure, FailureClass, error_chain};
use crate::health::Health;
use crate::index_progress::ProgressFile;
use crate::pipeline::{self, Findings, vectors_of};
use crate::setup::Setup;
use crate::stage_actor::{StageMailbox, StageMessage, StageWorker, Step};

/// How long one batch of passages may take, including the load of the model.
const BATCH_DEADLINE: Duration = Duration::from_secs(120);
/// How long after embedding has failed it is asked again; its restart may take longer.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long another process may build the index before the job is put off.
const OTHER_BUILDER_PATIENCE: Duration = Duration::from_secs(300);
const OTHER_BUILDER_CHECK_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct IndexingWorker {
    /// `None` where there is no queue to work on.
    pub(crate) queue: Option<Arc<dyn Ledger>>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) index: Index,
    pub(crate) model: EmbeddingModel,
    pub(crate) embedding: StageMailbox<EmbeddingWorker>,
    /// Of the actor that does this work.
    pub(crate) health: Arc<Health>,
}

/// A request to bring the index up to date with the brain's files.
pub(crate) struct Refresh {
    pub(crate) mode: Mode,
    /// Receives the progress, for a progress bar.
    pub(crate) progress: Option<watch::Sender<RefreshProgress>>,
    /// `Ok(None)` if there was nothing to do.
    pub(crate) reply: RpcReplyPort<Result<Option<Report>, String>>,
}

/// How far a refresh of the index has come. Counts are files, then texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshProgress {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// Files are read and cut into chunks.
    Reading {
        /// Files that are read.
        done: usize,
        /// All files to read.
        of: usize,
    },
    /// Vectors are computed.
    Embedding {
        /// Texts that have their vector.
        done: usize,
        /// All texts that need a new one.
        of: usize,
    },
    /// The new generation is written.
    Publishing,
}

impl StageWorker for IndexingWorker {
    const STAGE: Stage = Stage::Indexing;
    type Request = Refresh;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let mut findings: Findings = pipeline::decode(&claim.input)?;
        self.refresh(Mode::Changed, None).await.map_err(Failure::of_another)?;
        let model = self.model.name();
        if findings.model != model {
            // The settings have changed since: vectors of two models are never compared.
            findings.vectors = vectors_of(self.embed(&findings.texts()).await?);
            findings.model = model;
        }
        let (queue, index) = (self.queue.clone(), self.index.clone());
        run_blocking(move || {
            let queue = queue.ok_or_else(|| Failure::retryable("there is no queue"))?;
            compare(&*queue, &index, &claim.capture, findings)
        })
        .await
    }

    async fn answer(&self, Refresh { mode, progress, reply }: Refresh) {
        let report = self.refresh(mode, progress).await;
        if let Err(failure) = &report {
            self.health.record_error(&failure.message);
        }
        let _ = reply.send(report.map_err(|failure| failure.message));
    }
}

/// What there is to do for the index.
enum Planned {
    Current,
    Changes(Box<index::Plan>),
    /// Another builder is at work; it may be one that a killed incarnation of this actor has left behind.
    Busy,
}

impl IndexingWorker {
    /// Publishes a generation that matches the brain's files; `None` if the present one does.
    async fn refresh(
        &self,
        mode: Mode,
        progress: Option<watch::Sender<RefreshProgress>>,
    ) -> Result<Option<Report>, Failure> {
        let show = |step| {
            if let Some(progress) = &progress {
                progress.send_replace(step);
            }
        };
        let begun = Instant::now();
        let plan = loop {
            let (this, progress) = (self.clone(), progress.clone());
            match run_blocking(move || this.plan(mode, progress)).await? {
                Planned::Current => return Ok(None),
                Planned::Changes(plan) => break plan,
                // Waits here and not in the blocking work, where nothing could end the wait.
                Planned::Busy if begun.elapsed() < OTHER_BUILDER_PATIENCE => {
                    self.health.beat();
                    tokio::time::sleep(OTHER_BUILDER_CHECK_EVERY).await;
                }
                Planned::Busy => {
                    let class = FailureClass::Retry(Some(OTHER_BUILDER_PATIENCE));
                    return Err(Failure::new(class, "another process is building the index"));
                }
            }
        };
        self.health.beat();
        let (this, texts) = (self.clone(), plan.texts().to_vec());
        let (cache, texts, mut vectors, label) = run_blocking(move || {
            let label = this.model.label()?;
            let cache = VectorCache::open(this.model.cache());
            let vectors = cache.get(&label, &texts);
            Ok::<_, Failure>((Arc::new(cache), texts, vectors, label))
        })
        .await?;
        let missing: Vec<usize> = (0..texts.len()).filter(|&at| vectors[at].is_none()).collect();
        let batch_max = self.model.batch_max();
        let mut progress_file = self.show_in_file(&label, missing.len()).await;
        for (number, batch) in missing.chunks(batch_max).enumerate() {
            show(RefreshProgress::Embedding { done: number * batch_max, of: missing.len() });
            if let Some(progress_file) = &mut progress_file {
                progress_file.update(number * batch_max);
            }
            let texts: Vec<String> = batch.iter().map(|&at| texts[at].clone()).collect();
            let computed = self.embed(&texts).await?;
            // Kept at once, so that a reindex that is interrupted continues where it was.
            let (cache, label, kept) = (Arc::clone(&cache), label.clone(), computed.clone());
            run_blocking(move || {
                cache.put(&label, texts.iter().map(String::as_str).zip(&kept));
            })
            .await;
            batch.iter().zip(computed).for_each(|(&at, vector)| vectors[at] = Some(vector));
            self.health.beat();
        }
        let vectors: Vec<Embedding> = vectors.into_iter().flatten().collect();
        show(RefreshProgress::Publishing);
        failpoint::here!("indexing-before-publish");
        let mut report = run_blocking(move || plan.publish(vectors)).await?;
        report.embedded = missing.len();
        tracing::info!(
            generation = report.generation,
            units = report.units,
            embedded = report.embedded,
            "published an index"
        );
        Ok(Some(report))
    }

    /// `None` if there is nothing to wait for.
    async fn show_in_file(&self, label: &ModelLabel, of: usize) -> Option<ProgressFile> {
        if of == 0 {
            return None;
        }
        let (this, model) = (self.clone(), label.name.clone());
        let create = move || {
            let present = this
                .index
                .pin_without_vectors()
                .ok()
                .and_then(|snapshot| Some(snapshot.model()?.name.clone()));
            ProgressFile::create(&this.setup.places.indexing(), model, present, of)
        };
        try_run_blocking(create).await.ok()
    }

    /// Asks again if embedding fails with the request: what was embedded before is not lost.
    async fn embed(&self, batch: &[String]) -> Result<Vec<Embedding>, Failure> {
        let begun = Instant::now();
        loop {
            let left = BATCH_DEADLINE.saturating_sub(begun.elapsed());
            let texts = batch.to_vec();
            let request = |reply| StageMessage::Request(EmbeddingRequest::Documents { texts, reply });
            match self.embedding.ask(left, request).await {
                Ok(answer) => return answer,
                Err(_) if begun.elapsed() < BATCH_DEADLINE => tokio::time::sleep(ASK_AGAIN_AFTER).await,
                Err(error) => return Err(Failure::retryable(error)),
            }
        }
    }

    fn plan(&self, mode: Mode, progress: Option<watch::Sender<RefreshProgress>>) -> Result<Planned, Failure> {
        let label = self.model.label()?;
        let tokenizer = self.model.tokenizer()?;
        let (branch, queue) = (self.setup.default_branch.as_deref(), self.setup.places.queue());
        let open = || BrainView::with_pending_notes(&self.setup.brain, branch, &queue);
        let view = open();
        self.note_reviewers(&view);
        let mut seen = None;
        if mode == Mode::Changed {
            match self.index.compare(&view, &label)? {
                Comparison::Current => return Ok(Planned::Current),
                Comparison::Outdated(found) => seen = found.map(|found| (view, found)),
            }
        }
        let mut on_progress = |at: index::Progress| {
            if let Some(progress) = &progress {
                progress.send_replace(RefreshProgress::Reading { done: at.files, of: at.files_total });
            }
        };
        Ok(match self.index.try_plan(seen, open, &label, tokenizer, mode, &mut on_progress)? {
            Some(plan) if plan.is_empty() => Planned::Current,
            Some(plan) => Planned::Changes(Box::new(plan)),
            None => Planned::Busy,
        })
    }

    /// Notes in the index who has merged what, if the default branch has moved. A failure is only logged:
    /// knowledge is served without it.
    fn note_reviewers(&self, view: &BrainView) {
        let Ok(known) = self.index.reviewed() else { return };
        let reviewers = match view.reviewers_since(known.as_deref()) {
            Ok(Some(reviewers)) => reviewers,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "failed to read who has reviewed what");
                return;
            }
        };
        let by_path = reviewers.by_path.iter().map(|(path, by)| (path.as_str(), by.as_deref()));
        let noted = self.index.note_reviewers(&reviewers.commit.to_string(), reviewers.is_complete, by_path);
        if let Err(error) = noted {
            tracing::debug!(error = error_chain(&error), "failed to note who has reviewed what");
        }
    }
}
