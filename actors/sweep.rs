//! The sweep: compares the transcripts on disk with the queue, and queues the sessions that the hook missed.
//!
//! A client that is killed calls no hook, and a hook may find the disk full. The sweep is not an actor, as it
//! has no state: any running process may sweep, several at once do no harm, and each sweeps in the background
//! of its work. A sweep never reads more of a transcript than its beginning.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use brain::{BRAIN_YAML, Brain};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::{
    Announcement, KnownTranscripts, ORIGIN_COMMAND, ORIGIN_SWEEP, Queue, TranscriptStamp, TranscriptStatus,
};
use serde::{Deserialize, Serialize};
use transcript::{Exclude, FileStamp, Ignore};

use crate::background::Recurring;
use crate::failure::error_chain;

/// The name of a sweep's report in the queue, for `nugget status`.
pub const SWEEP_REPORT: &str = "sweep";
/// How often a worker sweeps while it has other work.
const EVERY: Duration = Duration::from_secs(3 * 60);
/// How long a worker that has nothing else to do waits for its sweep: a home folder on a file system that
/// hangs must not keep the worker lock held.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many transcripts an automatic sweep opens.
const OPENED_MAX: usize = 500;

const OWN: &str = "own";
const EMPTY: &str = "empty";
const EXCLUDED: &str = "excluded by ";

/// Settings of the sweep.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folders of the client, with `projects/` in each.
    pub folders: Vec<PathBuf>,
    /// How long a transcript must not have been written to.
    pub idle: Duration,
    /// The most captures that automatic sweeps add in 24 hours.
    pub daily_cap: u32,
    /// The projects whose sessions are left alone.
    pub exclude: Exclude,
    /// The state folder of nugget: sessions that ran in it are nugget's own calls of a language model.
    pub state: PathBuf,
}

/// How far back a sweep goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// Automatic: sessions since the brain was created, no more in a day than the cap.
    Automatic,
    /// By a command: all that were written to since then.
    Since(Timestamp),
    /// By a command: all.
    All,
}

/// Why a transcript is not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It was written to a moment ago.
    Active,
    /// A capture has read it, and it has not changed since.
    Unchanged,
    /// A capture of its session is in progress.
    Waiting,
    /// Its last capture failed for good.
    Dead,
    /// Its capture record was deleted.
    Forgotten,
    /// Its session ran with `NUGGET_DISABLE`.
    Declined,
    /// It is older than the brain, or than what was asked for.
    Old,
    /// The setting `capture.exclude` or a `.nuggetignore` covers its project.
    Excluded,
    /// It is one of nugget's own calls of a language model.
    Own,
    /// It holds no conversation.
    Empty,
    /// It cannot be read.
    Unreadable,
    /// Left for a later sweep: this one has opened enough transcripts, or the day's cap is reached.
    Later,
}

impl SkipReason {
    /// The reason, to follow a count of sessions.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Active => "still in use",
            Self::Unchanged => "captured already",
            Self::Waiting => "queued already",
            Self::Dead => "failed (nugget retry)",
            Self::Forgotten => "forgotten",
            Self::Declined => "ran with NUGGET_DISABLE",
            Self::Old => "too old",
            Self::Excluded => "excluded (capture.exclude, .nuggetignore)",
            Self::Own => "nugget's own calls",
            Self::Empty => "empty",
            Self::Unreadable => "unreadable",
            Self::Later => "left for later (sweep.daily_cap)",
        }
    }
}

/// A session to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The client's id of the session.
    pub session_id: SessionId,
    /// The transcript's file.
    pub transcript: PathBuf,
    /// The folder that the session ran in.
    pub cwd: Option<PathBuf>,
    /// The transcript's size in bytes.
    pub size: u64,
    /// When the transcript was written to last.
    pub modified: Timestamp,
    /// Its capture, once it is queued.
    pub capture: Option<i64>,
    #[serde(skip)]
    seen: TranscriptStamp,
}

/// What a sweep has found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepOutcome {
    /// How many transcripts there are.
    pub found: u64,
    /// The sessions that are queued, the newest first.
    pub queued: Vec<Candidate>,
    /// How many transcripts were skipped, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    #[serde(skip)]
    skipped_for_good: Vec<(TranscriptStamp, String)>,
    #[serde(skip)]
    grown: Vec<TranscriptStamp>,
}

/// The report of the last sweep, for `nugget status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    /// How many transcripts there were.
    pub found: u64,
    /// How many sessions were queued.
    pub queued: u64,
    /// How many transcripts were skipped, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
}

/// Sweeps as far back as the scope says.
///
/// # Errors
/// When the queue cannot be used.
pub fn sweep(
    settings: &Settings,
    brain: &Brain,
    queue: &Queue,
    scope: SweepScope,
    now: Timestamp,
) -> Result<SweepOutcome, queue::Error> {
    let mut known = queue.known_transcripts(now)?;
    if known.since.is_none() {
        known.since = Some(queue.capture_start(creation_time(brain).unwrap_or(now))?);
    }
    let begun = Instant::now();
    let swept = carry_out(plan(settings, brain, &known, scope, now), settings, queue, scope, now)?;
    tracing::info!(
        found = swept.found,
        queued = swept.queued.len(),
        skipped = ?swept.skipped,
        ms = begun.elapsed().as_millis() as u64,
        "swept for sessions that the hook missed"
    );
    Ok(swept)
}

/// Finds out what a sweep would queue, and changes nothing.
pub fn plan(
    settings: &Settings,
    brain: &Brain,
    known: &KnownTranscripts,
    scope: SweepScope,
    now: Timestamp,
) -> SweepOutcome {
    let since = match scope {
        SweepScope::All => Timestamp::MIN,
        SweepScope::Since(since) => since,
        SweepScope::Automatic => known.since.or_else(|| creation_time(brain)).unwrap_or(now),
    };
    let is_automatic = scope == SweepScope::Automatic;
    let room =
        if is_automatic { settings.daily_cap.saturating_sub(known.swept_today) as usize } else { usize::MAX };
    let mut stamps: Vec<FileStamp> =
        settings.folders.iter().flat_map(|folder| transcript::discover(folder)).collect();
    // Newest first, so that the cap leaves the oldest for later.
    stamps.sort_by(|a, b| (b.modified_ms, &b.path).cmp(&(a.modified_ms, &a.path)));
    stamps.dedup_by(|a, b| a.path == b.path);
    let mut swept = SweepOutcome { found: stamps.len() as u64, ..SweepOutcome::default() };
    let mut opened = 0;
    for stamp in stamps {
        let has_room = swept.queued.len() < room && (!is_automatic || opened < OPENED_MAX);
        let skip = match skip_reason(settings, known, &stamp, since, is_automatic, now) {
            Some(skip) => skip,
            None if !has_room => SkipReason::Later,
            None if has_nothing_new(known, &stamp) => {
                opened += 1;
                swept.grown.push(seen(&stamp));
                SkipReason::Unchanged
            }
            None => {
                opened += 1;
                match open(settings, stamp) {
                    Ok(candidate) => {
                        swept.queued.push(candidate);
                        continue;
                    }
                    Err((skip, skipped_for_good)) => {
                        swept.skipped_for_good.extend(skipped_for_good);
                        skip
                    }
                }
            }
        };
        *swept.skipped.entry(skip).or_default() += 1;
    }
    swept
}

/// Queues what was found, and records what need not be opened again.
fn carry_out(
    mut swept: SweepOutcome,
    settings: &Settings,
    queue: &Queue,
    scope: SweepScope,
    now: Timestamp,
) -> Result<SweepOutcome, queue::Error> {
    queue.skip_transcripts(&swept.skipped_for_good)?;
    queue.note_growth(&swept.grown)?;
    // The cap does not count what a person asks for by a command.
    let origin = if scope == SweepScope::Automatic { ORIGIN_SWEEP } else { ORIGIN_COMMAND };
    let found: Vec<(Announcement, TranscriptStamp)> = swept
        .queued
        .iter()
        .map(|candidate| {
            let announcement = Announcement {
                cwd: candidate.cwd.clone(),
                ..Announcement::new(candidate.session_id.clone(), &candidate.transcript, origin)
            };
            (announcement, candidate.seen.clone())
        })
        .collect();
    let cap = (scope == SweepScope::Automatic).then_some(settings.daily_cap);
    let captures = queue.add_found(&found, cap, now)?;
    for (candidate, capture) in swept.queued.iter_mut().zip(captures) {
        candidate.capture = capture;
    }
    // Another process has queued the others.
    let before = swept.queued.len();
    swept.queued.retain(|candidate| candidate.capture.is_some());
    let lost = (before - swept.queued.len()) as u64;
    if lost > 0 {
        *swept.skipped.entry(SkipReason::Waiting).or_default() += lost;
    }
    let report =
        SweepReport { found: swept.found, queued: swept.queued.len() as u64, skipped: swept.skipped.clone() };
    if let Ok(body) = serde_json::to_string(&report) {
        queue.report(SWEEP_REPORT, &body, now)?;
    }
    Ok(swept)
}

/// Whether any process has swept within this time.
pub fn is_recent(queue: &Queue, within: Duration, now: Timestamp) -> bool {
    let last = queue.last_report(SWEEP_REPORT).ok().flatten();
    last.is_some_and(|(_, at, _)| now.duration_since(at).unsigned_abs() < within)
}

/// Why a transcript is skipped, as far as that is known without opening it.
fn skip_reason(
    settings: &Settings,
    known: &KnownTranscripts,
    stamp: &FileStamp,
    since: Timestamp,
    is_automatic: bool,
    now: Timestamp,
) -> Option<SkipReason> {
    if !is_idle(stamp.modified_ms, settings.idle, now) {
        return Some(SkipReason::Active);
    }
    match known.status(stamp.session_id(), &seen(stamp)) {
        TranscriptStatus::Waiting => return Some(SkipReason::Waiting),
        TranscriptStatus::Read => return Some(SkipReason::Unchanged),
        TranscriptStatus::Dead => return Some(SkipReason::Dead),
        TranscriptStatus::Declined => return Some(SkipReason::Declined),
        // Deleted so that it may be captured again, but not automatically.
        TranscriptStatus::Forgotten if is_automatic => return Some(SkipReason::Forgotten),
        TranscriptStatus::Skipped(reason) => match reason.strip_prefix(EXCLUDED) {
            // It is opened again if the setting has changed.
            Some(by) if by == settings.exclude.as_str() => return Some(SkipReason::Excluded),
            Some(_) => {}
            None if reason == OWN => return Some(SkipReason::Own),
            None => return Some(SkipReason::Empty),
        },
        TranscriptStatus::Forgotten | TranscriptStatus::New | TranscriptStatus::Grown(_) => {}
    }
    let is_in_scope = match is_automatic {
        true => is_since(stamp.modified_ms, since, now),
        false => stamp.modified_ms >= since.as_millisecond(),
    };
    (!is_in_scope).then_some(SkipReason::Old)
}

/// Whether a transcript was not written to for a while. A time far in the future is from a wrong clock, and
/// counts as long ago.
pub(crate) fn is_idle(modified_ms: i64, idle: Duration, now: Timestamp) -> bool {
    u128::from(now.as_millisecond().abs_diff(modified_ms)) >= idle.as_millis()
}

/// Whether a transcript is from after the beginning. A beginning in the future means that the clock was wrong
/// when it was stored, or is wrong now: then the last day's sessions count as well, and the stored beginning is
/// kept, as the next change of the clock would make a new one wrong.
fn is_since(modified_ms: i64, beginning: Timestamp, now: Timestamp) -> bool {
    let is_from_last_day =
        || u128::from(now.as_millisecond().abs_diff(modified_ms)) < queue::SWEEP_CAP_SPAN.as_millis();
    modified_ms >= beginning.as_millisecond() || (beginning > now && is_from_last_day())
}

/// Whether a transcript that a capture has read has grown by nothing that a capture would read.
fn has_nothing_new(known: &KnownTranscripts, stamp: &FileStamp) -> bool {
    match known.status(stamp.session_id(), &seen(stamp)) {
        TranscriptStatus::Grown(read) => {
            transcript::has_only_bookkeeping_after(&stamp.path, read).unwrap_or(false)
        }
        _ => false,
    }
}

/// Opens a transcript: a candidate, or why it is skipped and what to record about that.
fn open(
    settings: &Settings,
    stamp: FileStamp,
) -> Result<Candidate, (SkipReason, Option<(TranscriptStamp, String)>)> {
    let seen = seen(&stamp);
    let Ok(head) = transcript::read_head(&stamp.path) else { return Err((SkipReason::Unreadable, None)) };
    let cwd = head.cwd.as_deref();
    let reason = if cwd.is_some_and(|cwd| cwd.starts_with(&settings.state)) {
        Some((SkipReason::Own, OWN.to_owned()))
    } else if cwd.is_some_and(|cwd| settings.exclude.covers(cwd)) {
        Some((SkipReason::Excluded, format!("{EXCLUDED}{}", settings.exclude.as_str())))
    } else if cwd.is_some_and(|cwd| Ignore::load(cwd).covers_everything()) {
        // Not by the setting, so that the next sweep opens it again: the file may be deleted by then.
        Some((SkipReason::Excluded, format!("{EXCLUDED}.nuggetignore")))
    } else if !head.has_conversation {
        Some((SkipReason::Empty, EMPTY.to_owned()))
    } else {
        None
    };
    if let Some((skip, reason)) = reason {
        return Err((skip, Some((seen, reason))));
    }
    Ok(Candidate {
        session_id: SessionId::verbatim(stamp.session_id()),
        cwd: head.cwd,
        size: stamp.size,
        modified: Timestamp::from_millisecond(stamp.modified_ms).unwrap_or(Timestamp::UNIX_EPOCH),
        capture: None,
        transcript: stamp.path,
        seen,
    })
}

pub(crate) fn seen(stamp: &FileStamp) -> TranscriptStamp {
    TranscriptStamp { transcript: stamp.path.clone(), size: stamp.size, modified_ms: stamp.modified_ms }
}

/// When the brain was created here: the creation time of its first file, if the file system has it.
fn creation_time(brain: &Brain) -> Option<Timestamp> {
    let metadata = std::fs::metadata(brain.root().join(BRAIN_YAML)).ok()?;
    Timestamp::try_from(metadata.created().or_else(|_| metadata.modified()).ok()?).ok()
}

/// The sweeps of one worker, in the background of its work.
#[derive(Debug, Default)]
pub(crate) struct BackgroundSweep(Recurring);

impl BackgroundSweep {
    /// Starts a sweep if one is due.
    pub(crate) fn start_if_due(&mut self, settings: Option<&Settings>, brain: &Brain, queue: &Queue) {
        let Some(settings) = settings.filter(|_| !self.is_running() && self.0.is_due(EVERY)) else { return };
        let (settings, brain, queue) = (settings.clone(), brain.clone(), queue.clone());
        self.0.start("sweep", move || {
            if let Err(error) = sweep(&settings, &brain, &queue, SweepScope::Automatic, Timestamp::now()) {
                tracing::warn!(error = error_chain(&error), "failed to sweep");
            }
        });
    }

    /// Waits for the running sweep, within bounds.
    pub(crate) fn wait(&self) {
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether a sweep is running that is worth waiting for.
    pub(crate) fn is_running(&self) -> bool {
        self.0.is_running(PATIENCE)
    }
}

#[cfg(test)]
mod tests;
