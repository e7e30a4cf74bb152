//! Takes what is new in transcripts into the archive.
//!
//! Threads read, redact and compress; one writes. What is in flight between them is bounded, and so is a transaction:
//! a process that is killed loses at most the last one, and goes on at the line where it ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::Serialize;
use transcript::{Exclude, FileStamp};

use crate::claude_code::ignore_of;
use crate::error::Error;
use crate::links;
use crate::reader::{Piece, Position, Transcript};
use crate::rename;
use crate::source::{OUTPUT_BYTES_MAX, ReaderContext, TranscriptHead, TranscriptSource};
use crate::store::{Archive, Writer};
use crate::writer::{Origin, PieceWriter, Stored};

/// How much of transcripts one transaction takes, and how long it lasts at most.
const TRANSACTION_BYTES: u64 = 32 << 20;
const TRANSACTION_TIME: Duration = Duration::from_secs(1);
/// Pieces that were read and are not stored yet, for each thread.
const WAITING_PIECES: usize = 16;
const MALFORMED_SHOWN_MAX: usize = 100;
/// How many sessions' links are made in one transaction.
const LINKED_AT_ONCE: i64 = 200;

const OWN: &str = "own";
const DECLINED: &str = "declined";
pub(crate) const FORGOTTEN: &str = "forgotten";
const EMPTY: &str = "empty";
const IGNORED: &str = ".nuggetignore";
const EXCLUDED: &str = "excluded by ";
const OLD: &str = "old";

/// What a sync takes, and what it leaves alone.
pub struct SyncSettings<'a> {
    /// The projects whose sessions are left alone.
    pub exclude: Exclude,
    /// The state folder of nugget: sessions that ran in it are nugget's own calls of a language model.
    pub state: PathBuf,
    /// Whether the session of a transcript ran with `NUGGET_DISABLE`.
    pub is_declined: &'a (dyn Fn(&Path) -> bool + Sync),
    /// Sessions that ended before are not taken.
    pub keep_since: Option<Timestamp>,
    /// Read everything again, also what has not changed. Nothing is doubled by it.
    pub again: bool,
    /// About how many bytes of a tool's output are kept, head and tail.
    pub output_bytes_max: usize,
    /// Threads that read; 0 for as many as there are processors.
    pub threads: usize,
    /// How long to wait for another process that is writing.
    pub patience: Duration,
    /// Called often, from the thread that writes.
    pub progress: &'a dyn Fn(&Progress),
    /// Stops after the current piece when it says so; what was stored is kept.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl SyncSettings<'_> {
    /// Takes every session but those that ran in nugget's state folder.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self {
            exclude: Exclude::default(),
            state: state.into(),
            is_declined: &|_| false,
            keep_since: None,
            again: false,
            output_bytes_max: OUTPUT_BYTES_MAX,
            threads: 0,
            patience: Duration::from_secs(60),
            progress: &|_| {},
            is_cancelled: &|| false,
        }
    }
}

/// How far a sync is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of transcripts that are stored.
    pub bytes: u64,
    /// Bytes that were to be read when the sync began.
    pub bytes_total: u64,
    /// Transcripts that are stored.
    pub files: u64,
    /// Transcripts that were to be read.
    pub files_total: u64,
}

/// What a sync has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SyncSummary {
    /// Another process is about to look for new lines, and finds those of this call: nothing was done here.
    pub left_to_another: bool,
    /// How many transcripts there are.
    pub found: u64,
    /// Transcripts that have not changed since they were read.
    pub unchanged: u64,
    /// Transcripts of which something was read.
    pub read: u64,
    /// Transcripts of which nothing is taken, by reason: `excluded`, `own`, `declined`, `forgotten`, `old`, `empty`.
    pub skipped: BTreeMap<String, u64>,
    /// Transcripts that were read again from their beginning, as they were rewritten.
    pub rewritten: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Sessions that are new.
    pub sessions_new: u64,
    /// Sessions that had something new, with the new ones.
    pub sessions: u64,
    /// Messages that are new.
    pub messages: u64,
    /// Messages whose lines were rewritten, and say something else now.
    pub changed: u64,
    /// Calls of tools that are new.
    pub tool_uses: u64,
    /// Lines of unknown types, by type.
    pub unknown: BTreeMap<String, u64>,
    /// Lines that could not be understood.
    pub malformed: u64,
    /// The first of them.
    pub malformed_lines: Vec<MalformedLine>,
    /// Transcripts that could not be read; the next sync tries again.
    pub failed: Vec<FailedFile>,
    /// Whether it was stopped before its end.
    pub cancelled: bool,
    /// How long it took.
    pub milliseconds: u64,
}

/// A line that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MalformedLine {
    /// The transcript.
    pub path: PathBuf,
    /// Counted from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

/// A transcript that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedFile {
    /// The transcript.
    pub path: PathBuf,
    /// What the operating system reported.
    pub error: String,
}

/// A transcript to read.
struct Task<'a> {
    source: &'a dyn TranscriptSource,
    stamp: FileStamp,
    known: Option<Position>,
}

/// What was read before of a transcript.
struct Known {
    /// -1 until it was read to its end.
    size: i64,
    modified_ms: i64,
    position: Position,
    skipped: Option<String>,
}

enum Event {
    Piece { origin: Arc<Origin>, piece: Box<Piece> },
    Skipped { stamp: FileStamp, source: &'static str, why: String },
    Failed(FailedFile),
    End,
}

impl Archive {
    /// Takes what is new in the transcripts of these sources. Sessions whose files are gone stay.
    ///
    /// # Errors
    /// When the archive cannot be written. A transcript that cannot be read is no error, but listed in the summary.
    pub fn sync(
        &self,
        sources: &[&dyn TranscriptSource],
        settings: &SyncSettings<'_>,
    ) -> Result<SyncSummary, Error> {
        let Some(mut writer) = self.writer(settings.patience)? else {
            return Ok(SyncSummary { left_to_another: true, ..SyncSummary::default() });
        };
        sync_with_writer(&mut writer, sources, settings)
    }

    /// The same for a person who waits for it: what another process is about to take need not be all of these sessions.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn sync_in_turn(
        &self,
        sources: &[&dyn TranscriptSource],
        settings: &SyncSettings<'_>,
    ) -> Result<SyncSummary, Error> {
        sync_with_writer(&mut self.writer_in_turn(settings.patience)?, sources, settings)
    }

    /// How many sessions on disk have something that is not archived yet. Opens no transcript, so that those that an
    /// exclusion covers are counted until a sync has looked at them.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn not_archived(
        &self,
        sources: &[&dyn TranscriptSource],
        settings: &SyncSettings<'_>,
    ) -> Result<Vec<FileStamp>, Error> {
        let tasks = plan(&*self.connection()?, sources, settings, &mut SyncSummary::default())?;
        Ok(tasks.into_iter().map(|task| task.stamp).collect())
    }

    /// The transcripts of which nothing is taken, when they were looked at last: excluded, forgotten, without a word.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn left_out(&self) -> Result<BTreeSet<PathBuf>, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare("SELECT path FROM extraction_state WHERE skipped IS NOT NULL")?;
        let paths = statement.query_map([], |row| Ok(PathBuf::from(row.get::<_, String>(0)?)))?;
        Ok(paths.collect::<Result<_, _>>()?)
    }
}

pub(crate) fn sync_with_writer(
    writer: &mut Writer,
    sources: &[&dyn TranscriptSource],
    settings: &SyncSettings<'_>,
) -> Result<SyncSummary, Error> {
    let begun = Instant::now();
    let mut summary = SyncSummary::default();
    rename::follow_remotes(writer)?;
    let tasks = plan(&writer.connection, sources, settings, &mut summary)?;
    let mut sessions = HashMap::new();
    if !tasks.is_empty() {
        sessions = read_and_store(writer, tasks, settings, &mut summary)?;
    }
    // Also those of a process that was killed before.
    loop {
        let transaction = writer.begin()?;
        let is_last = !links::make_some(&transaction, LINKED_AT_ONCE)?;
        transaction.commit()?;
        if is_last {
            break;
        }
    }
    // What is read later need not go through the log. Without waiting: readers may be in it.
    writer.empty_log(Duration::ZERO)?;
    summary.sessions = sessions.len() as u64;
    summary.sessions_new = sessions.values().filter(|is_new| **is_new).count() as u64;
    summary.milliseconds = begun.elapsed().as_millis() as u64;
    Ok(summary)
}

/// Lists the transcripts that have changed since they were read, oldest first: what a fork has in common with its
/// origin belongs to the origin.
fn plan<'a>(
    connection: &Connection,
    sources: &[&'a dyn TranscriptSource],
    settings: &SyncSettings<'_>,
    summary: &mut SyncSummary,
) -> Result<Vec<Task<'a>>, Error> {
    let mut known = known_files(connection)?;
    let mut tasks = Vec::new();
    for &source in sources {
        for stamp in source.discover() {
            summary.found += 1;
            let known = known.remove(stamp.path.to_string_lossy().as_ref());
            let skipped = known.as_ref().and_then(|known| known.skipped.as_deref());
            let is_same = known.as_ref().is_some_and(|known| {
                known.size == stamp.size as i64 && known.modified_ms == stamp.modified_ms
            });
            let is_settled = match skipped {
                None => true,
                // It is looked at again if the setting has changed, or if the file may be gone.
                Some(why) if why.starts_with(EXCLUDED) => &why[EXCLUDED.len()..] == settings.exclude.as_str(),
                Some(why) if why.starts_with(OLD) => {
                    settings.keep_since.is_some_and(|since| is_old(why, since))
                }
                Some(why) => why != IGNORED && why != DECLINED,
            };
            if is_same && is_settled && !settings.again {
                match skipped {
                    None => summary.unchanged += 1,
                    Some(why) => count_skipped(summary, why),
                }
                continue;
            }
            // A file of the same size that was written since was not appended to: all of it may be other text.
            let position = known
                .filter(|known| known.size != stamp.size as i64 && !settings.again)
                .map(|known| known.position);
            tasks.push(Task { source, stamp, known: position });
        }
    }
    tasks.sort_by(|a, b| (a.stamp.modified_ms, &a.stamp.path).cmp(&(b.stamp.modified_ms, &b.stamp.path)));
    Ok(tasks)
}

/// How it is noted that a session ended before a time, and was left alone or deleted for it.
pub(crate) fn old(before: Timestamp) -> String {
    format!("{OLD} before {}", before.as_millisecond())
}

/// Whether a session that is noted as old still is, so that nothing has to be read to know it.
fn is_old(why: &str, keep_since: Timestamp) -> bool {
    let before = why.rsplit(' ').next().and_then(|before| before.parse().ok());
    before.is_some_and(|before: i64| before <= keep_since.as_millisecond())
}

fn count_skipped(summary: &mut SyncSummary, why: &str) {
    let reason = match why {
        why if why.starts_with(EXCLUDED) || why == IGNORED => "excluded",
        why if why.starts_with(OLD) => OLD,
        why => why,
    };
    *summary.skipped.entry(reason.to_owned()).or_default() += 1;
}

fn known_files(connection: &Connection) -> Result<HashMap<String, Known>, Error> {
    let sql =
        "SELECT path, size, modified_ms, bytes, lines, digest, reader_state, skipped FROM extraction_state";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let position = Position {
            bytes: row.get(3)?,
            lines: row.get(4)?,
            digest: row.get(5)?,
            reader_state: row.get(6)?,
        };
        let known = Known { size: row.get(1)?, modified_ms: row.get(2)?, position, skipped: row.get(7)? };
        Ok((row.get(0)?, known))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_and_store(
    writer: &mut Writer,
    tasks: Vec<Task<'_>>,
    settings: &SyncSettings<'_>,
    summary: &mut SyncSummary,
) -> Result<HashMap<i64, bool>, Error> {
    let threads = match settings.threads {
        0 => std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
        threads => threads,
    };
    let threads = threads.min(tasks.len());
    let forgotten = forgotten(&writer.connection)?;
    let mut progress = Progress { files_total: tasks.len() as u64, ..Progress::default() };
    progress.bytes_total = tasks.iter().map(|task| unread_bytes(task)).sum();
    let (tasks, stop) = (&tasks, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut receivers = Vec::new();
        for thread in 0..threads {
            let (sender, receiver) = sync_channel(WAITING_PIECES);
            receivers.push(receiver);
            let (stop, forgotten) = (&stop, &forgotten);
            let (exclude, state, is_declined) = (&settings.exclude, &settings.state, settings.is_declined);
            let (is_cancelled, output_bytes_max) = (settings.is_cancelled, settings.output_bytes_max);
            let keep_since = settings.keep_since;
            scope.spawn(move || {
                let gate = Gate { exclude, state, is_declined, forgotten, keep_since, output_bytes_max };
                for task in tasks.iter().skip(thread).step_by(threads) {
                    if stop.load(Ordering::Relaxed) || is_cancelled() {
                        break;
                    }
                    let take = |event| {
                        !stop.load(Ordering::Relaxed) && !is_cancelled() && sender.send(event).is_ok()
                    };
                    read_file(task, &gate, &take, &sender);
                }
            });
        }
        let events = InOrder { receivers: &receivers, task: 0 };
        let stored = store_events(writer, events, settings, &mut progress, summary);
        // After an error the threads must not wait for room.
        stop.store(true, Ordering::Relaxed);
        drop(receivers);
        summary.cancelled = (settings.is_cancelled)();
        stored
    })
}

/// The events of all threads in the order of the transcripts, whichever thread was faster: what two sessions have in
/// common belongs to the one that is stored first. Each thread reads every n-th transcript.
struct InOrder<'a> {
    receivers: &'a [Receiver<Event>],
    /// The transcript whose events come next.
    task: usize,
}

impl Iterator for InOrder<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let event = self.receivers[self.task % self.receivers.len()].recv().ok()?;
        self.task += usize::from(matches!(event, Event::End));
        Some(event)
    }
}

fn unread_bytes(task: &Task<'_>) -> u64 {
    task.stamp.size.saturating_sub(task.known.as_ref().map_or(0, |known| known.bytes))
}

/// Decides which sessions are left alone.
struct Gate<'a> {
    exclude: &'a Exclude,
    state: &'a Path,
    is_declined: &'a (dyn Fn(&Path) -> bool + Sync),
    forgotten: &'a BTreeSet<String>,
    keep_since: Option<Timestamp>,
    output_bytes_max: usize,
}

impl Gate<'_> {
    /// Whether a person had the session deleted, or the one that called it. The caller is named as a part of its own id
    /// if it was called itself.
    fn is_forgotten(&self, head: &TranscriptHead) -> bool {
        let calls = |parent: &str| self.forgotten.iter().any(|id| id.rsplit('/').next() == Some(parent));
        self.forgotten.contains(&head.session) || head.parent.as_deref().is_some_and(calls)
    }

    /// The time before which the session of a transcript has ended, if that is too long ago. Nothing is written to a
    /// transcript after the end, except that a subagent's ends before its caller's.
    fn ended_before(&self, stamp: &FileStamp, head: &TranscriptHead) -> Option<Timestamp> {
        self.keep_since.filter(|since| head.parent.is_none() && stamp.modified_ms < since.as_millisecond())
    }
}

/// Reads one transcript in a thread of its own.
fn read_file(task: &Task<'_>, gate: &Gate<'_>, take: &dyn Fn(Event) -> bool, sender: &SyncSender<Event>) {
    let source = task.source.name();
    let path = &task.stamp.path;
    let read = || -> std::io::Result<()> {
        let head = task.source.head(path)?;
        let cwd = head.cwd.as_deref().map(Path::new);
        let ignore = ignore_of(head.cwd.as_deref());
        let skipped = if gate.is_forgotten(&head) {
            Some(FORGOTTEN.to_owned())
        } else if cwd.is_some_and(|cwd| cwd.starts_with(gate.state)) {
            Some(OWN.to_owned())
        } else if (gate.is_declined)(path) {
            Some(DECLINED.to_owned())
        } else if cwd.is_some_and(|cwd| gate.exclude.covers(cwd)) {
            Some(format!("{EXCLUDED}{}", gate.exclude.as_str()))
        } else if ignore.covers_everything() {
            Some(IGNORED.to_owned())
        } else if let Some(before) = gate.ended_before(&task.stamp, &head) {
            Some(old(before))
        } else {
            (!head.has_conversation).then(|| EMPTY.to_owned())
        };
        if let Some(why) = skipped {
            take(Event::Skipped { stamp: task.stamp.clone(), source, why });
            return Ok(());
        }
        let opened = Transcript::open(path, task.known.as_ref())?;
        let context = ReaderContext { ignore, output_bytes_max: gate.output_bytes_max };
        let mut reader = task.source.reader(context, opened.reader_state());
        let mut origin = Arc::new(Origin {
            path: path.to_string_lossy().into_owned(),
            source,
            head,
            size: opened.stamp.size,
            modified_ms: opened.stamp.modified_ms,
            is_rewritten: opened.is_rewritten,
            is_first: opened.is_at_beginning(),
        });
        opened.read(reader.as_mut(), &mut |piece| {
            let taken = take(Event::Piece { origin: Arc::clone(&origin), piece: Box::new(piece) });
            // Only the first piece begins again.
            if origin.is_first {
                origin = Arc::new(Origin {
                    is_rewritten: false,
                    is_first: false,
                    path: origin.path.clone(),
                    head: origin.head.clone(),
                    ..*origin
                });
            }
            taken
        })
    };
    // A file that was deleted since it was listed is none that cannot be read.
    let failed = read().err().filter(|error| error.kind() != std::io::ErrorKind::NotFound);
    let failed = failed.map(|error| FailedFile { path: path.clone(), error: error.to_string() });
    if let Some(failed) = failed {
        take(Event::Failed(failed));
    }
    let _ = sender.send(Event::End);
}

fn store_events(
    writer: &mut Writer,
    mut events: InOrder<'_>,
    settings: &SyncSettings<'_>,
    progress: &mut Progress,
    summary: &mut SyncSummary,
) -> Result<HashMap<i64, bool>, Error> {
    let mut sessions = HashMap::new();
    let mut names = HashMap::new();
    let mut files = BTreeSet::new();
    (settings.progress)(progress);
    while let Some(first) = events.next() {
        let (begun, mut bytes, mut stored) = (Instant::now(), 0, Stored::default());
        let transaction = writer.begin()?;
        let mut rows = PieceWriter::new(&transaction, &mut names, Timestamp::now());
        let mut event = Some(first);
        while let Some(current) = event.take() {
            match current {
                Event::Piece { origin, piece } => {
                    bytes += piece.bytes;
                    note_piece(summary, &mut files, &origin, &piece);
                    rows.store(&origin, *piece, &mut stored)?;
                }
                Event::Skipped { stamp, source, why } => {
                    count_skipped(summary, &why);
                    let path = stamp.path.to_string_lossy();
                    rows.store_skipped(&path, source, stamp.size, stamp.modified_ms, &why)?;
                }
                Event::Failed(failed) => summary.failed.push(failed),
                Event::End => progress.files += 1,
            }
            if bytes < TRANSACTION_BYTES && begun.elapsed() < TRANSACTION_TIME {
                event = events.next();
            }
        }
        transaction.commit()?;
        summary.messages += stored.messages;
        summary.changed += stored.changed;
        summary.tool_uses += stored.tool_uses;
        for (session, is_new) in stored.sessions {
            *sessions.entry(session).or_default() |= is_new;
        }
        progress.bytes += bytes;
        (settings.progress)(progress);
    }
    summary.read = files.len() as u64;
    Ok(sessions)
}

fn note_piece(summary: &mut SyncSummary, files: &mut BTreeSet<String>, origin: &Origin, piece: &Piece) {
    files.insert(origin.path.clone());
    summary.bytes += piece.bytes;
    summary.rewritten += u64::from(origin.is_rewritten);
    summary.malformed += piece.malformed_count;
    for (line, reason) in &piece.malformed {
        if summary.malformed_lines.len() < MALFORMED_SHOWN_MAX {
            let path = PathBuf::from(&origin.path);
            summary.malformed_lines.push(MalformedLine { path, line: *line, reason: (*reason).to_owned() });
        }
    }
    for (kind, count) in &piece.unknown {
        *summary.unknown.entry(kind.clone()).or_default() += count;
    }
}

fn forgotten(connection: &Connection) -> Result<BTreeSet<String>, Error> {
    let mut statement = connection.prepare("SELECT session FROM forgotten")?;
    Ok(statement.query_map(params![], |row| row.get(0))?.collect::<Result<_, _>>()?)
}
