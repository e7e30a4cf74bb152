//! Turns changed files into the next generation of the index, and tells what the brain knows
//! already of what a session has brought.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brain::Brain;
use index::{Index, Mode, ModelLabel, Report, Snapshot, VectorCache};
use knowledge::{Candidate, Overlap, OverlapKind, Rejected, UnitId};
use queue::{EarlierProposal, Finish, Stage};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::brain_view::BrainView;
use crate::dedup::{self, Near, Place, Verdict};
use crate::embedding::{self, Model};
use crate::health::Busy;
use crate::index_progress::Sign;
use crate::mailbox::Mailbox;
use crate::pipeline::{self, Failure, Found, Jobs, Step, Worked, chain};

/// How long one batch of passages may take, the load of the model included.
const BATCH_DEADLINE: Duration = Duration::from_secs(120);
/// How long after embedding has fallen it is asked again; it may take longer to be there.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long another process may make the index before the job is put off.
const BUILDER_PATIENCE: Duration = Duration::from_secs(300);
const LOOK_FOR_BUILDER_EVERY: Duration = Duration::from_millis(100);
/// How many chunks of the brain a candidate is compared with.
const NEAREST_CHUNKS: usize = 8;
/// How many units that wait for their review, the newest: a vector of each is read for every capture.
const WAITING_MAX: usize = 500;

pub struct Indexing;

pub enum Message {
    /// There may be candidates to compare with the brain.
    Wake,
    /// Bring the index up to date with the brain's files.
    Refresh(Refresh),
}

/// What a door wants of the index.
pub struct Refresh {
    pub mode: Mode,
    /// How far it has come, for a progress bar.
    pub progress: Option<watch::Sender<RefreshProgress>>,
    /// `Ok(None)` when there was nothing to do.
    pub reply: Option<RpcReplyPort<Result<Option<Report>, String>>>,
}

/// How far a refresh has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefreshProgress {
    #[default]
    Starting,
    Reading {
        done: usize,
        of: usize,
    },
    Embedding {
        done: usize,
        of: usize,
    },
    Publishing,
}

#[derive(Clone)]
pub struct Arguments {
    pub jobs: Option<Jobs>,
    pub brain: Brain,
    /// The branch of reviewed knowledge, when it is named.
    pub default_branch: Option<String>,
    pub index: Index,
    pub model: Model,
    pub embedding: Mailbox<embedding::Message>,
    /// Where word is left of how far it has come; see [`crate::index_progress`].
    pub sign: Arc<Path>,
    pub bell: Mailbox<Message>,
    pub next: Option<Mailbox<crate::git::Message>>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Indexing {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        mut arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        if let Some(jobs) = &mut arguments.jobs {
            jobs.take_over(Stage::Indexing, arguments.bell.health())?;
        }
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let health = Arc::clone(state.arguments.bell.health());
        let busy = health.begin();
        match message {
            Message::Wake => {
                state.arguments.bell.answer();
                if state.compare_one(&busy).await? != Worked::Idle {
                    state.arguments.bell.ring_again(&myself, Message::Wake);
                }
            }
            Message::Refresh(Refresh { mode, progress, reply }) => {
                let report = state.arguments.refresh(mode, progress, &busy).await;
                if let Err(failure) = &report {
                    health.failed(&failure.message);
                }
                if let Some(reply) = reply {
                    let _ = reply.send(report.map_err(|failure| failure.message));
                }
            }
        }
        Ok(())
    }
}

impl State {
    async fn compare_one(&mut self, busy: &Busy<'_>) -> Result<Worked, ActorProcessingErr> {
        let Some(jobs) = self.arguments.jobs.clone() else { return Ok(Worked::Idle) };
        let arguments = self.arguments.clone();
        let worked = pipeline::work_once(&jobs, Stage::Indexing, |claim| async move {
            let mut found: Found = pipeline::decode(&claim.input)?;
            arguments.refresh(Mode::Changed, None, busy).await?;
            let model = arguments.model.name();
            if found.model != model {
                // The settings have changed since: vectors of two models are never compared.
                found.vectors = arguments.embed(&found.texts()).await?;
                found.model = model;
            }
            pipeline::blocking(move || {
                let jobs = arguments.jobs.as_ref().ok_or_else(|| Failure::of("there is no queue"))?;
                compare(jobs, &arguments.index, claim.capture.id, found)
            })
            .await
        })
        .await?;
        if let (Worked::Passed(Some(Stage::Git)), Some(next)) = (worked, &self.arguments.next) {
            next.ring(crate::git::Message::Wake);
        }
        Ok(worked)
    }
}

impl Arguments {
    /// Publishes a generation that agrees with the brain's files; nothing when one does already.
    async fn refresh(
        &self,
        mode: Mode,
        progress: Option<watch::Sender<RefreshProgress>>,
        busy: &Busy<'_>,
    ) -> Result<Option<Report>, Failure> {
        let tell = |step| {
            if let Some(progress) = &progress {
                progress.send_replace(step);
            }
        };
        let begun = Instant::now();
        let plan = loop {
            let (this, reading) = (self.clone(), progress.clone());
            match pipeline::blocking(move || this.plan(mode, reading)).await? {
                Planned::Current => return Ok(None),
                Planned::Changes(plan) => break plan,
                // Not waited for in the closure, where nothing could end the waiting.
                Planned::Busy if begun.elapsed() < BUILDER_PATIENCE => {
                    busy.beat();
                    tokio::time::sleep(LOOK_FOR_BUILDER_EVERY).await;
                }
                Planned::Busy => {
                    let after = Some(BUILDER_PATIENCE);
                    return Err(Failure { after, ..Failure::of("another process is making the index") });
                }
            }
        };
        busy.beat();
        let (cache, texts, mut vectors, label) = {
            let (this, texts) = (self.clone(), plan.texts().to_vec());
            pipeline::blocking(move || {
                let label = this.model.label().map_err(|error| Failure::passing(&error))?;
                let cache = VectorCache::open(this.model.cache());
                let vectors = cache.get(&label, &texts);
                Ok::<_, Failure>((Arc::new(cache), texts, vectors, label))
            })
            .await?
        };
        let missing: Vec<usize> = (0..texts.len()).filter(|&at| vectors[at].is_none()).collect();
        let batch_max = self.model.batch_max();
        let mut sign = self.raise_sign(&label, missing.len()).await;
        for (turn, batch) in missing.chunks(batch_max).enumerate() {
            tell(RefreshProgress::Embedding { done: turn * batch_max, of: missing.len() });
            if let Some(sign) = &mut sign {
                sign.tell(turn * batch_max);
            }
            let asked: Vec<String> = batch.iter().map(|&at| texts[at].clone()).collect();
            let computed = self.embed(&asked).await?;
            // Kept at once, so that a reindex that is cut short goes on where it was.
            let (cache, label, kept) = (Arc::clone(&cache), label.clone(), computed.clone());
            pipeline::blocking(move || {
                let of_texts = asked.iter().map(String::as_str).zip(kept.iter().map(Vec::as_slice));
                cache.put(&label, of_texts);
                Ok::<_, Failure>(())
            })
            .await?;
            batch.iter().zip(computed).for_each(|(&at, vector)| vectors[at] = Some(vector));
            busy.beat();
        }
        let vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
        tell(RefreshProgress::Publishing);
        failpoint::here!("indexing-before-publish");
        let mut report = pipeline::blocking(move || plan.publish(vectors))
            .await
            .map_err(|error| Failure::passing(&error))?;
        report.embedded = missing.len();
        tracing::info!(
            generation = report.generation,
            units = report.units,
            embedded = report.embedded,
            "published an index"
        );
        Ok(Some(report))
    }
}

impl Arguments {
    /// Only where there is something to wait for.
    async fn raise_sign(&self, label: &ModelLabel, of: usize) -> Option<Sign> {
        if of == 0 {
            return None;
        }
        let (this, model) = (self.clone(), label.name.clone());
        let raise = move || {
            let present = this.index.pin().ok().and_then(|pinned| Some(pinned.model()?.name.clone()));
            Sign::raise(&this.sign, model, present, of)
        };
        tokio::task::spawn_blocking(raise).await.ok()
    }

    /// Asks again when embedding falls with the question in its hands: what has been embedded before
    /// is not to be lost over it.
    async fn embed(&self, batch: &[String]) -> Result<Vec<Vec<f32>>, Failure> {
        let begun = Instant::now();
        loop {
            let left = BATCH_DEADLINE.saturating_sub(begun.elapsed());
            let asked = batch.to_vec();
            let answer = self.embedding.ask(left, |reply| embedding::Message::Documents(asked, reply)).await;
            match answer {
                Ok(answer) => return answer.map_err(Failure::from),
                Err(_) if begun.elapsed() < BATCH_DEADLINE => tokio::time::sleep(ASK_AGAIN_AFTER).await,
                Err(error) => return Err(Failure::passing(&error)),
            }
        }
    }
}

impl Arguments {
    /// Keeps in the index who has merged what, where the default branch has moved on. A failure is told to
    /// the log alone: knowledge is served without it.
    fn note_reviewers(&self, view: &BrainView) {
        let Ok(known) = self.index.reviewed() else { return };
        let reviewers = match view.reviewers_since(known.as_deref()) {
            Ok(Some(reviewers)) => reviewers,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(error = chain(&error), "who has reviewed what is not known");
                return;
            }
        };
        let by_path = reviewers.by_path.iter().map(|(path, by)| (path.as_str(), by.as_deref()));
        let noted = self.index.note_reviewers(&reviewers.commit.to_string(), reviewers.is_complete, by_path);
        if let Err(error) = noted {
            tracing::debug!(error = chain(&error), "failed to note who has reviewed what");
        }
    }
}

/// What has to be done for the index.
enum Planned {
    /// Nothing.
    Current,
    Changes(Box<index::Plan>),
    /// Another builder is at work, maybe one that a killed life of this actor has left behind.
    Busy,
}

impl Arguments {
    fn plan(&self, mode: Mode, reading: Option<watch::Sender<RefreshProgress>>) -> Result<Planned, Failure> {
        let label = self.model.label().map_err(|error| Failure::passing(&error))?;
        let tokenizer = self.model.tokenizer().map_err(|error| Failure::passing(&error))?;
        let view = BrainView::with_default_branch(&self.brain, self.default_branch.as_deref());
        self.note_reviewers(&view);
        if mode == Mode::Changed
            && self.index.is_current(&view, &label).map_err(|error| Failure::passing(&error))?
        {
            return Ok(Planned::Current);
        }
        let mut on_progress = |at: index::Progress| {
            if let Some(reading) = &reading {
                reading.send_replace(RefreshProgress::Reading { done: at.files, of: at.files_total });
            }
        };
        let plan = self.index.try_plan(&view, &label, tokenizer, mode, &mut on_progress);
        Ok(match plan.map_err(|error| Failure::passing(&error))? {
            Some(plan) if plan.is_empty() => Planned::Current,
            Some(plan) => Planned::Changes(Box::new(plan)),
            None => Planned::Busy,
        })
    }
}

/// Decides for each candidate what it is to what is known: the brain's units, what other captures have
/// proposed, and the candidates before it.
fn compare(jobs: &Jobs, index: &Index, capture: i64, mut found: Found) -> Result<Step, Failure> {
    let pinned = index.pin().map_err(|error| Failure::passing(&error))?;
    let waiting =
        jobs.queue.proposed_by_others(capture, WAITING_MAX).map_err(|error| Failure::passing(&error))?;
    // What has been merged since is compared as it is in the brain.
    let merged: HashSet<UnitId> = match waiting.is_empty() {
        true => HashSet::new(),
        false => pinned
            .units()
            .map_err(|error| Failure::passing(&error))?
            .into_iter()
            .map(|unit| unit.id)
            .collect(),
    };
    let is_waiting = |waiting: &EarlierProposal| !merged.contains(&UnitId::verbatim(&waiting.name));
    let waiting: Vec<EarlierProposal> =
        waiting.into_iter().filter(|waiting| waiting.model == found.model && is_waiting(waiting)).collect();
    let vectors = std::mem::take(&mut found.vectors);
    let mut kept: Vec<(Candidate, Vec<f32>)> = Vec::new();
    for (mut candidate, vector) in found.candidates.drain(..).zip(vectors) {
        let mut near = near(&pinned, &candidate, &vector).map_err(|error| Failure::passing(&error))?;
        near.extend(waiting.iter().map(|waiting| Near {
            id: UnitId::verbatim(&waiting.name),
            kind: None,
            title: waiting.title.clone(),
            text: waiting.title.clone(),
            cosine: cosine(&vector, &waiting.vector),
            place: Place::Waiting,
        }));
        near.extend(kept.iter().map(|(other, theirs)| Near {
            id: UnitId::from_title(&other.title),
            kind: None,
            title: other.title.clone(),
            text: format!("{}\n{}", other.title, other.body),
            cosine: cosine(&vector, theirs),
            place: Place::SameSession,
        }));
        match dedup::judge(&candidate, &near) {
            Verdict::Skip { reason } => {
                found.rejected.push(Rejected { title: candidate.title, reason });
                continue;
            }
            Verdict::Add => candidate.overlap = None,
            Verdict::Merge(id) => candidate.overlap = Some(Overlap { id, how: OverlapKind::AddsTo }),
            Verdict::Supersede(id) => candidate.overlap = Some(Overlap { id, how: OverlapKind::Replaces }),
        }
        kept.push((candidate, vector));
    }
    if kept.is_empty() {
        let reasons: Vec<&str> = found.rejected.iter().map(|rejected| rejected.reason.as_str()).collect();
        let reason = format!("nothing new: {}", reasons.join("; "));
        return Ok(Step::End(Finish::Nothing { reason: knowledge::text::one_line(&reason, 300) }));
    }
    (found.candidates, found.vectors) = kept.into_iter().unzip();
    failpoint::here!("indexing-before-advance");
    Ok(Step::Next(Stage::Git, pipeline::encode(&crate::git::Input::Checked(found))?))
}

/// The units of the brain that are nearest to a candidate, each by its nearest chunk, and the one that the
/// candidate itself names.
pub(crate) fn near(
    pinned: &Snapshot,
    candidate: &Candidate,
    vector: &[f32],
) -> Result<Vec<Near>, index::Error> {
    let mut near: Vec<Near> = Vec::new();
    for hit in pinned.nearest(vector, NEAREST_CHUNKS)? {
        let chunk = pinned.chunk(hit.chunk)?;
        if near.iter().any(|near| near.id == chunk.unit) {
            continue;
        }
        near.extend(in_brain(pinned, &chunk.unit, hit.score)?);
    }
    if let Some(named) =
        candidate.overlap.as_ref().filter(|named| near.iter().all(|near| near.id != named.id))
    {
        near.extend(in_brain(pinned, &named.id, 0.0)?);
    }
    Ok(near)
}

/// A unit of the brain with all that it says: what a candidate repeats may stand in another chunk than the
/// one that is the most like it.
fn in_brain(pinned: &Snapshot, id: &UnitId, cosine: f64) -> Result<Option<Near>, index::Error> {
    let Some(unit) = pinned.unit(id)? else { return Ok(None) };
    let mut text = format!("{}\n{}", unit.title, unit.description.unwrap_or_default());
    for chunk in pinned.chunks_of(id)? {
        text.push('\n');
        text.push_str(&chunk.text);
    }
    let (kind, place) = (Some(unit.kind), Place::Brain);
    Ok(Some(Near { id: unit.id, kind, title: unit.title, text, cosine, place }))
}

/// Of two L2-normalised vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
}
