//! Keeps the session archive up to date, in the background of everything else: takes what is new in transcripts,
//! deletes what is older than the settings say, and embeds messages while nothing else is to be done.
//!
//! A message only wakes it; what is new is found by a look at the transcripts, so that a lost message costs time. It
//! shares nothing with the stages of a capture: an archive that is broken, locked or full is one warning in the log and
//! a line in `nugget status -v`, and no capture waits for it.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use archive::{
    Archive, ClaudeCode, Codex, LineReader, ReaderContext, SyncSettings, SyncSummary, TranscriptHead,
    TranscriptSource, UnembeddedMessages,
};
use jiff::Timestamp;
use memories::derive::{SAME_COSINE, memories_of};
use queue::{KnownTranscripts, Queue, TranscriptStamp, TranscriptStatus};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use transcript::{Exclude, FileStamp, Ignore};

use crate::background::{Cancellation, on_own_thread, run_blocking};
use crate::embedding::{EmbeddingRequest, EmbeddingWorker};
use crate::embedding_model::EmbeddingModel;
use crate::failure::error_chain;
use crate::health::Health;
use crate::learning;
use crate::mailbox::Mailbox;
use crate::settings_mark::SettingsMark;
use crate::stage_actor::{StageMailbox, StageMessage};
use crate::sweep::is_idle;

/// The name of the report about the archive in the queue, for `nugget status`.
pub const ARCHIVE_REPORT: &str = "archive";
/// When sessions were last deleted because of their age, by the time of this report.
const PRUNE_REPORT: &str = "archive-prune";
const PRUNE_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long to wait for another process that writes the archive. What is new is found again the next time.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server looks for new lines only if no other process of this brain has within this time.
const EVERY: Duration = Duration::from_secs(40);
/// How many transcripts are opened to find out whether they are left out on purpose.
const OPENED_MAX: usize = 500;
/// From how many sessions records are derived in one round.
const DERIVED_MAX: usize = 500;
/// Of how many sessions memories are made at one wake-up.
const REMEMBERED_MAX: usize = 32;
/// How many messages are embedded at one wake-up.
const EMBEDDED_MAX: usize = 256;
/// How long one batch of messages may take, with the load of the model.
const BATCH_DEADLINE: Duration = Duration::from_secs(120);
/// How long to wait for the other actors to become idle, before messages are left for the next wake-up.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
const IDLE_CHECK_EVERY: Duration = Duration::from_millis(20);

/// What is archived, and where.
#[derive(Clone)]
pub struct Settings {
    /// The database.
    pub path: PathBuf,
    /// The transcripts of each client.
    pub sources: Vec<Arc<dyn TranscriptSource + Send + Sync>>,
    /// The projects whose sessions are left alone.
    pub exclude: Exclude,
    /// The state folder of nugget, with a folder for each brain: sessions that ran in it are nugget's own calls of a
    /// language model.
    pub state: PathBuf,
    /// A transcript that no hook announced is archived once it has not been written to for this long. A session that has
    /// not ended may still turn out to be one with `NUGGET_DISABLE`.
    pub idle: Duration,
    /// Sessions that ended longer ago are deleted; `None` keeps all.
    pub retention: Option<Duration>,
}

impl Settings {
    /// The settings of a sync of these sources, for [`Archive::sync`].
    pub fn sync_settings<'a>(
        &self,
        now: Timestamp,
        is_declined: &'a (dyn Fn(&Path) -> bool + Sync),
    ) -> SyncSettings<'a> {
        SyncSettings {
            exclude: self.exclude.clone(),
            is_declined,
            keep_since: self.keep_since(now),
            ..SyncSettings::new(&self.state)
        }
    }

    /// Sessions that ended before are not kept.
    pub fn keep_since(&self, now: Timestamp) -> Option<Timestamp> {
        self.retention.map(|retention| now.checked_sub(retention).unwrap_or(Timestamp::MIN))
    }

    /// Whether nothing that the beginning of a transcript says speaks against it.
    fn takes(&self, source: &dyn TranscriptSource, transcript: &Path) -> bool {
        let Ok(head) = source.head(transcript) else { return true };
        let cwd = head.cwd.as_deref().map(Path::new);
        head.has_conversation
            && !cwd.is_some_and(|cwd| {
                cwd.starts_with(&self.state)
                    || self.exclude.covers(cwd)
                    || Ignore::load(cwd).covers_everything()
            })
    }

    /// The sources, as [`Archive::sync`] takes them.
    pub fn sources(&self) -> Vec<&dyn TranscriptSource> {
        self.sources.iter().map(|source| &**source as &dyn TranscriptSource).collect()
    }
}

/// What the queues of all brains know about sessions.
pub struct QueuedSessions(Vec<KnownTranscripts>);

impl QueuedSessions {
    /// Reads the queue of each brain in the state folder.
    ///
    /// # Errors
    /// When one of them cannot be read: which sessions ran with `NUGGET_DISABLE` is then not known.
    pub fn read(state: &Path, now: Timestamp) -> Result<Self, queue::Error> {
        let folders = std::fs::read_dir(state).into_iter().flatten().flatten();
        let queues = folders.map(|folder| folder.path().join("queue.db")).filter(|queue| queue.is_file());
        queues.map(|queue| Queue::open(&queue)?.known_transcripts(now)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the session of a transcript, or the one that called it as a subagent, ran with `NUGGET_DISABLE`.
    pub fn is_declined(&self, transcript: &Path) -> bool {
        self.statuses(transcript).any(|status| status == TranscriptStatus::Declined)
    }

    /// Whether a hook has announced the end of the session, and nothing was written since.
    fn is_announced(&self, transcript: &Path) -> bool {
        self.statuses(transcript)
            .any(|status| !matches!(status, TranscriptStatus::New | TranscriptStatus::Grown(_)))
    }

    /// The transcripts that a hook has announced, wherever they are.
    fn announced(&self) -> impl Iterator<Item = FileStamp> {
        self.0.iter().flat_map(|known| &known.announced).filter_map(|path| {
            let path = path.canonicalize().ok()?;
            let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(FileStamp::from_metadata(path, &metadata))
        })
    }

    fn statuses(&self, transcript: &Path) -> impl Iterator<Item = TranscriptStatus> {
        let main = main_transcript(transcript);
        let session = main.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let found = std::fs::metadata(&main).ok();
        let found = found.map(|metadata| FileStamp::from_metadata(main.clone(), &metadata));
        let stamp = TranscriptStamp {
            transcript: main,
            size: found.as_ref().map_or(0, |stamp| stamp.size),
            modified_ms: found.as_ref().map_or(0, |stamp| stamp.modified_ms),
        };
        self.0.iter().map(move |known| known.status(&session, &stamp))
    }
}

/// The transcript of the session that called a subagent, whose own is `<session>/subagents/agent-*.jsonl`, or beside it
/// and names the session; otherwise the transcript itself.
fn main_transcript(transcript: &Path) -> PathBuf {
    let folder = transcript.parent().filter(|folder| folder.ends_with("subagents"));
    if let Some(session) = folder.and_then(Path::parent) {
        return session.with_extension("jsonl");
    }
    let head = (!is_session(transcript)).then(|| transcript::read_head(transcript).ok()).flatten();
    head.and_then(|head| head.session_id).map_or_else(
        || transcript.to_owned(),
        |session| transcript.with_file_name(format!("{session}.jsonl")),
    )
}

/// The transcripts of a source whose sessions have ended, as far as one can know.
struct EndedSessions<'a> {
    source: &'a dyn TranscriptSource,
    queued: &'a QueuedSessions,
    idle: Duration,
    now: Timestamp,
}

impl TranscriptSource for EndedSessions<'_> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.source.folders()
    }

    fn discover(&self) -> Vec<FileStamp> {
        let mut found = self.source.discover();
        // The hooks are Claude Code's, whose session may have run with another folder of the client.
        if self.source.name() == ClaudeCode::NAME {
            let known: HashSet<PathBuf> = found.iter().map(|stamp| stamp.path.clone()).collect();
            let elsewhere = self.queued.announced().filter(|stamp| !known.contains(&stamp.path));
            found.extend(elsewhere.filter(|stamp| !Codex::is_rollout(&stamp.path)));
        }
        found.retain(|stamp| {
            is_idle(stamp.modified_ms, self.idle, self.now) || self.queued.is_announced(&stamp.path)
        });
        found
    }

    fn head(&self, path: &Path) -> std::io::Result<TranscriptHead> {
        self.source.head(path)
    }

    fn reader(&self, context: ReaderContext, state: &str) -> Box<dyn LineReader> {
        self.source.reader(context, state)
    }
}

/// Transcripts on disk of which something is not archived yet, and should be.
pub struct Pending {
    /// How many transcripts there are, without subagents'.
    pub found: u64,
    /// Those that are to be archived.
    pub transcripts: Vec<FileStamp>,
}

/// Looks for transcripts that are not archived yet. Changes nothing; opens the beginning of some.
///
/// # Errors
/// When the archive or a queue cannot be read.
pub fn find_pending(settings: &Settings, archive: Option<&Archive>) -> Result<Pending, Error> {
    let now = Timestamp::now();
    let queued = QueuedSessions::read(&settings.state, now)?;
    let is_declined = |path: &Path| queued.is_declined(path);
    let mut pending = Pending { found: 0, transcripts: Vec::new() };
    for source in settings.sources() {
        let found = source.discover();
        pending.found += found.iter().filter(|stamp| is_session(&stamp.path)).count() as u64;
        let new = match archive {
            Some(archive) => archive.not_archived(&[source], &settings.sync_settings(now, &is_declined))?,
            None => found,
        };
        let is_wanted = |(at, stamp): &(usize, FileStamp)| {
            is_session(&stamp.path)
                && settings.keep_since(now).is_none_or(|since| stamp.modified_ms >= since.as_millisecond())
                && !is_declined(&stamp.path)
                && (*at >= OPENED_MAX || settings.takes(source, &stamp.path))
        };
        let wanted = new.into_iter().enumerate().filter(is_wanted);
        pending.transcripts.extend(wanted.map(|(_, stamp)| stamp));
    }
    Ok(pending)
}

/// Whether a transcript is not that of a subagent.
fn is_session(transcript: &Path) -> bool {
    transcript.file_name().is_some_and(|name| !name.to_string_lossy().starts_with("agent-"))
}

/// Why the archive is not up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// A queue cannot be used.
    #[error("failed to find out which sessions must not be archived")]
    Queue(#[from] queue::Error),
}

/// The state of the archive after the last look for new lines, for `nugget status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveReport {
    /// How many sessions there are, without subagents'.
    pub sessions: u64,
    /// Why it is not up to date.
    pub error: Option<String>,
}

/// Takes what is new in the transcripts of sessions that have ended, without anybody's waiting for it: one thread
/// reads. `None` if there is nothing to keep yet; no file is created then.
///
/// # Errors
/// When the archive cannot be written, or a queue cannot be read.
pub(crate) fn sync(
    settings: &Settings,
    now: Timestamp,
    progress: &dyn Fn(),
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Option<(Archive, SyncSummary)>, Error> {
    let queued = QueuedSessions::read(&settings.state, now)?;
    let ended = |source| EndedSessions { source, queued: &queued, idle: settings.idle, now };
    let ended: Vec<EndedSessions<'_>> = settings.sources().into_iter().map(ended).collect();
    if !settings.path.exists() && ended.iter().all(|source| source.discover().is_empty()) {
        return Ok(None);
    }
    let archive = Archive::open(&settings.path)?;
    let is_declined = |path: &Path| queued.is_declined(path);
    let sync_settings = SyncSettings {
        threads: 1,
        patience: PATIENCE,
        progress: &|_| progress(),
        is_cancelled,
        ..settings.sync_settings(now, &is_declined)
    };
    let ended: Vec<&dyn TranscriptSource> = ended.iter().map(|source| source as _).collect();
    let summary = archive.sync(&ended, &sync_settings)?;
    if summary.read > 0 || !summary.failed.is_empty() {
        tracing::info!(
            sessions = summary.sessions,
            messages = summary.messages,
            malformed = summary.malformed,
            failed = summary.failed.len(),
            ms = summary.milliseconds,
            "archived sessions"
        );
    }
    Ok(Some((archive, summary)))
}

/// Deletes sessions that are older than the settings allow, unless that was done today.
fn prune(settings: &Settings, archive: &Archive, queue: &Queue, now: Timestamp) -> Result<(), Error> {
    let Some(since) = settings.keep_since(now) else { return Ok(()) };
    let last = queue.last_report(PRUNE_REPORT)?.map(|(_, at, _)| at);
    if last.is_some_and(|at| now.duration_since(at).unsigned_abs() < PRUNE_EVERY) {
        return Ok(());
    }
    let removed = archive.keep_since(since, PATIENCE)?;
    tracing::info!(sessions = removed.sessions.len(), %since, "deleted old sessions from the archive");
    Ok(queue.report(PRUNE_REPORT, "", now)?)
}

/// Does one round of a process: takes what is new, deletes what is old, and reports it in the queue.
///
/// # Errors
/// Those of [`sync`].
pub(crate) fn run_round(
    settings: &Settings,
    queue: &Queue,
    progress: &dyn Fn(),
    is_cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Option<SyncSummary>, Error> {
    let now = Timestamp::now();
    let round = || -> Result<_, Error> {
        let Some((archive, summary)) = sync(settings, now, progress, is_cancelled)? else { return Ok(None) };
        if !summary.cancelled {
            prune(settings, &archive, queue, now)?;
            provenance::derive::derive_pending(&archive, DERIVED_MAX, is_cancelled)?;
        }
        Ok(Some((archive.session_count()?, summary)))
    };
    let done = round();
    let report = match &done {
        Ok(done) => ArchiveReport { sessions: done.as_ref().map_or(0, |(count, _)| *count), error: None },
        Err(error) => {
            let before = last_report(queue).map(|(_, report)| report).unwrap_or_default();
            ArchiveReport { error: Some(error_chain(error)), ..before }
        }
    };
    if let Ok(body) = serde_json::to_string(&report) {
        queue.report(ARCHIVE_REPORT, &body, now)?;
    }
    Ok(done?.map(|(_, summary)| summary))
}

/// The last report about the archive, and when it was made.
pub fn last_report(queue: &Queue) -> Option<(Timestamp, ArchiveReport)> {
    let (_, at, body) = queue.last_report(ARCHIVE_REPORT).ok().flatten()?;
    Some((at, serde_json::from_str(&body).ok()?))
}

/// Look for what is new.
pub(crate) struct Wake;

/// The actor of the archive.
#[derive(Clone)]
pub(crate) struct Archiving {
    pub(crate) settings: Settings,
    /// Nothing more is archived once the settings are others.
    pub(crate) mark: SettingsMark,
    /// The queue's file, for the reports.
    pub(crate) queue: PathBuf,
    /// Whether another process' recent round is enough.
    pub(crate) is_server: bool,
    pub(crate) model: EmbeddingModel,
    pub(crate) embedding: StageMailbox<EmbeddingWorker>,
    pub(crate) mailbox: Arc<Mailbox<Wake>>,
    /// Woken after each round.
    pub(crate) learning: Option<Arc<Mailbox<learning::Wake>>>,
    /// Those of the actors that must be idle before messages are embedded.
    pub(crate) others: Arc<[Arc<Health>]>,
    /// Set when the process wants to end.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) memory: Arc<Memory>,
}

/// What is kept from one wake-up to the next. Nothing is wrong without it.
#[derive(Default)]
pub(crate) struct Memory {
    unembedded: Mutex<UnembeddedRanges>,
    /// The last error, which is logged once.
    error: Mutex<Option<String>>,
}

/// The numbers of the messages that may have no vector yet: a restarted process does not know of any, so that it looks
/// at all of them once, some at each wake-up.
#[derive(Default)]
struct UnembeddedRanges {
    /// The newest last.
    ranges: Vec<Range<i64>>,
    /// What is not in them has a number from here on.
    end: i64,
}

impl UnembeddedRanges {
    /// Notes that messages up to this number exist.
    fn extend_to(&mut self, last_message: i64) {
        if last_message + 1 < self.end {
            // Another archive lies in its place.
            *self = Self::default();
        }
        let new = self.end.max(1)..last_message + 1;
        if !new.is_empty() {
            self.end = new.end;
            self.ranges.push(new);
        }
    }
}

impl Actor for Archiving {
    type Msg = Wake;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Wake>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Wake>, Wake: Wake, (): &mut ()) -> Result<(), ActorProcessingErr> {
        let _busy = self.mailbox.health().begin();
        self.mailbox.clear_wake();
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancellation = Cancellation(Arc::clone(&cancelled));
        let this = self.clone();
        match on_own_thread("archiving", move || this.round(&cancelled)).await? {
            Ok(()) => {
                // What is new there may say what sessions used of what they were shown.
                if let Some(learning) = &self.learning {
                    learning.wake(learning::Wake);
                }
                *self.memory.error.lock().unwrap_or_else(PoisonError::into_inner) = None;
                if let Err(error) = self.embed_some().await {
                    self.note(&format!("failed to embed archived messages: {error}"));
                } else if let Err(error) = self.remember_some().await {
                    self.note(&format!("failed to make memories of sessions: {error}"));
                }
            }
            Err(error) => self.note(&error_chain(&error)),
        }
        Ok(())
    }
}

impl Archiving {
    /// Takes what is new, unless another process has just done so.
    fn round(&self, cancelled: &AtomicBool) -> Result<(), Error> {
        let queue = Queue::open(&self.queue)?;
        let is_recent = |(at, _)| Timestamp::now().duration_since(at).unsigned_abs() < EVERY;
        if self.is_server && last_report(&queue).is_some_and(is_recent) {
            return Ok(());
        }
        let is_outdated = || self.mark.is_outdated(&queue).unwrap_or(true);
        let is_cancelled =
            || cancelled.load(Ordering::SeqCst) || self.stop.load(Ordering::SeqCst) || is_outdated();
        run_round(&self.settings, &queue, &|| self.mailbox.health().beat(), &is_cancelled).map(drop)
    }

    /// Embeds the newest messages without a vector, in small batches, while all other actors are idle: a question never
    /// waits for them. Nothing is sent to a provider.
    async fn embed_some(&self) -> Result<(), String> {
        if !self.model.embeds_archive() || !self.is_idle().await {
            return Ok(());
        }
        let model = self.model.name();
        let (path, name, memory) = (self.settings.path.clone(), model.clone(), Arc::clone(&self.memory));
        let open = move || -> Result<Option<(Archive, Range<i64>, UnembeddedMessages)>, archive::Error> {
            let Some(archive) = Archive::open_existing(&path)? else { return Ok(None) };
            let last = archive.last_message()?;
            let mut unembedded = memory.unembedded.lock().unwrap_or_else(PoisonError::into_inner);
            unembedded.extend_to(last);
            let Some(range) = unembedded.ranges.last().cloned() else { return Ok(None) };
            let found = archive.unembedded(&name, range.clone(), EMBEDDED_MAX)?;
            Ok(Some((archive, range, found)))
        };
        let opened = run_blocking(open).await.map_err(|error| error_chain(&error))?;
        let Some((archive, range, found)) = opened else { return Ok(()) };
        for batch in found.messages.chunks(self.model.batch_max()) {
            if !self.is_idle().await {
                return Ok(());
            }
            let vectors = self.embed(batch.iter().map(|message| message.text.clone()).collect()).await?;
            let vectors: Vec<(i64, Vec<f32>)> =
                batch.iter().map(|message| message.message).zip(vectors).collect();
            let (archive, model) = (archive.clone(), model.clone());
            run_blocking(move || archive.store_vectors(&model, &vectors))
                .await
                .map_err(|error| error_chain(&error))?;
            self.mailbox.health().beat();
        }
        let mut unembedded = self.memory.unembedded.lock().unwrap_or_else(PoisonError::into_inner);
        unembedded.ranges.retain(|known| *known != range);
        unembedded.ranges.extend(found.rest);
        Ok(())
    }

    /// Makes the memories of sessions whose messages are embedded, the newest first, and embeds memories again whose
    /// vectors are of another model. Only while all other actors are idle, as messages are embedded. Without a model in
    /// this process, memories have no vector.
    async fn remember_some(&self) -> Result<(), String> {
        if !self.is_idle().await {
            return Ok(());
        }
        let model = self.model.embeds_archive().then(|| self.model.name());
        let (path, name) = (self.settings.path.clone(), model.clone());
        let open = move || -> Result<_, archive::Error> {
            let Some(archive) = Archive::open_existing(&path)? else { return Ok(None) };
            let sessions = archive.unremembered(name.as_deref(), REMEMBERED_MAX)?;
            let outdated = match &name {
                Some(name) => archive.unembedded_memories(name, EMBEDDED_MAX)?,
                None => Vec::new(),
            };
            Ok(Some((archive, sessions, outdated)))
        };
        let opened = run_blocking(open).await.map_err(|error| error_chain(&error))?;
        let Some((archive, sessions, outdated)) = opened else { return Ok(()) };
        for session in sessions {
            if !self.is_idle().await {
                return Ok(());
            }
            let (reading, name) = (archive.clone(), model.clone());
            let read = on_own_thread("memories", move || {
                let said = match reading.said(&session, name.as_deref()) {
                    // A damaged text gives no memories, and no other session waits for it.
                    Err(archive::Error::Text { .. }) => Vec::new(),
                    said => said?,
                };
                let topics = reading.noted_topics(&session)?;
                Ok::<_, archive::Error>((session, memories_of(&said, &topics)))
            });
            let read = read.await.map_err(|error| error.to_string())?;
            let (session, mut memories) = read.map_err(|error| error_chain(&error))?;
            if model.is_some() && !memories.is_empty() {
                let summaries = memories.iter().map(|memory| memory.summary.clone()).collect();
                let vectors = self.embed(summaries).await?;
                memories.iter_mut().zip(vectors).for_each(|(memory, vector)| memory.vector = Some(vector));
            }
            let (archive, name) = (archive.clone(), model.clone());
            let store = move || {
                let embedded = name.as_deref().map(|model| archive::Embedded { model, same: SAME_COSINE });
                archive.replace_memories(&session, &memories, embedded.as_ref())
            };
            run_blocking(store).await.map_err(|error| error_chain(&error))?;
            self.mailbox.health().beat();
        }
        let Some(model) = model else { return Ok(()) };
        for batch in outdated.chunks(self.model.batch_max()) {
            if !self.is_idle().await {
                return Ok(());
            }
            let vectors = self.embed(batch.iter().map(|memory| memory.summary.clone()).collect()).await?;
            let vectors: Vec<(i64, Vec<f32>)> = batch.iter().map(|memory| memory.id).zip(vectors).collect();
            let (archive, model) = (archive.clone(), model.clone());
            run_blocking(move || archive.store_memory_vectors(&model, &vectors))
                .await
                .map_err(|error| error_chain(&error))?;
            self.mailbox.health().beat();
        }
        Ok(())
    }

    /// The vectors of texts, by the actor that embeds. Of a text without tokens it is empty: otherwise the batch would
    /// fail at each attempt, and nothing older would ever be embedded.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, String> {
        let mut vectors = vec![Vec::new(); texts.len()];
        let model = self.model.clone();
        let readable = move || -> Result<(Vec<usize>, Vec<String>), embed::Error> {
            let tokenizer = model.tokenizer()?;
            Ok(texts.into_iter().enumerate().filter(|(_, text)| tokenizer.has_tokens(text)).unzip())
        };
        let (places, texts) = run_blocking(readable).await.map_err(|error| error_chain(&error))?;
        if texts.is_empty() {
            return Ok(vectors);
        }
        let request = |reply| StageMessage::Request(EmbeddingRequest::Documents { texts, reply });
        let found = self.embedding.ask(BATCH_DEADLINE, request).await.map_err(|error| error.to_string())?;
        for (place, found) in places.into_iter().zip(found.map_err(|failure| failure.message)?) {
            vectors[place] = found.vector;
        }
        Ok(vectors)
    }

    /// Whether nothing else is to be done, now or after a short wait.
    async fn is_idle(&self) -> bool {
        let begun = Instant::now();
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            if self.others.iter().all(|health| !health.is_busy()) {
                return true;
            }
            if begun.elapsed() >= IDLE_PATIENCE {
                return false;
            }
            tokio::time::sleep(IDLE_CHECK_EVERY).await;
        }
    }

    /// Records an error, and logs it unless it is the same as the last one.
    fn note(&self, error: &str) {
        self.mailbox.health().record_error(error);
        let mut last = self.memory.error.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_deref() != Some(error) {
            tracing::warn!(error, "the session archive is not up to date");
            *last = Some(error.to_owned());
        }
    }
}
