//! The sweep: compares the transcripts on disk with the ledger and queues what no hook announced.
//!
//! A client that is killed fires no hook, and a hook may find the disk full. It is no actor, for it
//! has nothing to keep: any process that lives may sweep, several at once do no harm, and each runs
//! beside the work and never before it. It never reads more of a transcript than its head.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brain::{BRAIN_YAML, Brain};
use jiff::Timestamp;
use knowledge::SessionId;
use queue::{Announcement, KnownTranscripts, ORIGIN_SWEEP, Queue, TranscriptStamp, TranscriptStatus};
use serde::{Deserialize, Serialize};
use transcript::{Exclude, FileStamp, Ignore};

use crate::pipeline::chain;

/// The name under which a sweep leaves word for `nugget status`.
pub const SWEEP_REPORT: &str = "sweep";
/// How often a drainer sweeps while it has other work.
const EVERY: Duration = Duration::from_secs(3 * 60);
/// How long a drainer that has nothing else to do waits for its sweep: a home folder on a file
/// system that hangs must not keep the drain lock.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many transcripts one sweep of a process's own accord looks into.
const GLANCES_MAX: usize = 500;

const OWN: &str = "own";
const EMPTY: &str = "empty";
const EXCLUDED: &str = "excluded by ";

/// What a sweep goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The client's folders, with `projects/` in each.
    pub folders: Vec<PathBuf>,
    /// How long nobody must have written to a transcript.
    pub idle: Duration,
    /// The most captures that sweeps add in 24 hours of their own accord.
    pub daily_cap: u32,
    pub exclude: Exclude,
    /// nugget's own state: sessions that ran in it are calls of a model by nugget itself.
    pub state: PathBuf,
}

/// How far a sweep goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// What is done unasked: sessions since the brain was made, no more in a day than the cap.
    Automatic,
    /// By hand: all that was written to since then.
    Since(Timestamp),
    /// By hand: all there is.
    All,
}

/// Why a transcript is left where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Somebody has written to it a moment ago.
    Active,
    /// A capture has read it as it is.
    Unchanged,
    /// A capture of its session is under way.
    Waiting,
    /// Its last capture is a dead letter.
    Dead,
    /// Its capture was struck from the ledger.
    Forgotten,
    /// Its session ran with `NUGGET_DISABLE`.
    Declined,
    /// From before the brain was made, or before what was asked for.
    Old,
    /// The setting `capture.exclude` or a `.nuggetignore` covers its project.
    Excluded,
    /// A call of a model by nugget itself.
    Own,
    /// Nobody says anything in it.
    Empty,
    Unreadable,
    /// For a later sweep: this one has looked into enough, or the day's cap is reached.
    Later,
}

impl SkipReason {
    /// The reason in words, after a count of sessions.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Active => "still in use",
            Self::Unchanged => "captured already",
            Self::Waiting => "queued already",
            Self::Dead => "dead letters (nugget retry)",
            Self::Forgotten => "forgotten",
            Self::Declined => "ran with NUGGET_DISABLE",
            Self::Old => "too old",
            Self::Excluded => "excluded (capture.exclude, .nuggetignore)",
            Self::Own => "of nugget itself",
            Self::Empty => "empty",
            Self::Unreadable => "unreadable",
            Self::Later => "left for later (sweep.daily_cap)",
        }
    }
}

/// A session that wants to be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub session_id: SessionId,
    pub transcript: PathBuf,
    pub cwd: Option<PathBuf>,
    /// In bytes.
    pub size: u64,
    pub modified: Timestamp,
    /// Its capture, once it is queued.
    pub capture: Option<i64>,
    #[serde(skip)]
    seen: TranscriptStamp,
}

/// What a sweep has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepOutcome {
    /// All transcripts.
    pub found: u64,
    /// Newest first.
    pub queued: Vec<Candidate>,
    pub skipped: BTreeMap<SkipReason, u64>,
    #[serde(skip)]
    passed_over: Vec<(TranscriptStamp, String)>,
}

/// What the last sweep leaves for `nugget status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    pub found: u64,
    pub queued: u64,
    pub skipped: BTreeMap<SkipReason, u64>,
}

/// BackgroundSweep as processes do of their own accord.
pub fn sweep(
    settings: &Settings,
    brain: &Brain,
    queue: &Queue,
    now: Timestamp,
) -> Result<SweepOutcome, queue::Error> {
    let begun = Instant::now();
    let swept = sweep_within(settings, brain, queue, SweepScope::Automatic, now)?;
    tracing::info!(
        found = swept.found,
        queued = swept.queued.len(),
        skipped = ?swept.skipped,
        ms = begun.elapsed().as_millis() as u64,
        "swept for sessions that no hook announced"
    );
    Ok(swept)
}

/// BackgroundSweep as far as somebody asks for it.
pub fn sweep_within(
    settings: &Settings,
    brain: &Brain,
    queue: &Queue,
    reach: SweepScope,
    now: Timestamp,
) -> Result<SweepOutcome, queue::Error> {
    let mut known = queue.known_transcripts(now)?;
    if known.since.is_none() {
        known.since = Some(queue.capture_start(made(brain).unwrap_or(now))?);
    }
    carry_out(plan(settings, brain, &known, reach, now), settings, queue, reach, now)
}

/// Looks at the transcripts and changes nothing: what a sweep would queue.
pub fn plan(
    settings: &Settings,
    brain: &Brain,
    known: &KnownTranscripts,
    reach: SweepScope,
    now: Timestamp,
) -> SweepOutcome {
    let since = match reach {
        SweepScope::All => Timestamp::MIN,
        SweepScope::Since(since) => since,
        SweepScope::Automatic => known.since.or_else(|| made(brain)).unwrap_or(now),
    };
    let usual = reach == SweepScope::Automatic;
    let room = if usual { settings.daily_cap.saturating_sub(known.swept_today) as usize } else { usize::MAX };
    let mut stamps: Vec<FileStamp> =
        settings.folders.iter().flat_map(|folder| transcript::discover(folder)).collect();
    // Newest first: if the cap cuts, it cuts what matters least.
    stamps.sort_by(|a, b| (b.modified_ms, &b.path).cmp(&(a.modified_ms, &a.path)));
    stamps.dedup_by(|a, b| a.path == b.path);
    let mut swept = SweepOutcome { found: stamps.len() as u64, ..SweepOutcome::default() };
    let mut glances = 0;
    for stamp in stamps {
        let has_room = swept.queued.len() < room && (!usual || glances < GLANCES_MAX);
        let skip = match judge(settings, known, &stamp, since, usual, now) {
            Some(skip) => skip,
            None if !has_room => SkipReason::Later,
            None => {
                glances += 1;
                match glance(settings, stamp) {
                    Ok(candidate) => {
                        swept.queued.push(candidate);
                        continue;
                    }
                    Err((skip, passed_over)) => {
                        swept.passed_over.extend(passed_over);
                        skip
                    }
                }
            }
        };
        *swept.skipped.entry(skip).or_default() += 1;
    }
    swept
}

/// Queues what was found and remembers what was passed over.
fn carry_out(
    mut swept: SweepOutcome,
    settings: &Settings,
    queue: &Queue,
    reach: SweepScope,
    now: Timestamp,
) -> Result<SweepOutcome, queue::Error> {
    queue.skip_transcripts(&swept.passed_over)?;
    // What a person asks for beyond the usual is not what the cap counts.
    let origin = if reach == SweepScope::Automatic { ORIGIN_SWEEP } else { "command" };
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
    let cap = (reach == SweepScope::Automatic).then_some(settings.daily_cap);
    let captures = queue.add_found(&found, cap, now)?;
    for (candidate, capture) in swept.queued.iter_mut().zip(captures) {
        candidate.capture = capture;
    }
    // Somebody was faster.
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

/// Whether a sweep was carried out within this time, by whatever process.
pub fn is_recent(queue: &Queue, within: Duration, now: Timestamp) -> bool {
    let last = queue.last_report(SWEEP_REPORT).ok().flatten();
    last.is_some_and(|(_, at, _)| now.duration_since(at).unsigned_abs() < within)
}

/// Why a transcript is left alone, as far as that can be told without opening it.
fn judge(
    settings: &Settings,
    known: &KnownTranscripts,
    stamp: &FileStamp,
    since: Timestamp,
    usual: bool,
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
        // Struck from the ledger so that it may be captured anew, but not unasked.
        TranscriptStatus::Forgotten if usual => return Some(SkipReason::Forgotten),
        TranscriptStatus::Skipped(reason) => match reason.strip_prefix(EXCLUDED) {
            // Under another setting it is looked at again.
            Some(by) if by == settings.exclude.as_str() => return Some(SkipReason::Excluded),
            Some(_) => {}
            None if reason == OWN => return Some(SkipReason::Own),
            None => return Some(SkipReason::Empty),
        },
        TranscriptStatus::Forgotten | TranscriptStatus::New => {}
    }
    let concerns_us = match usual {
        true => is_since(stamp.modified_ms, since, now),
        false => stamp.modified_ms >= since.as_millisecond(),
    };
    (!concerns_us).then_some(SkipReason::Old)
}

/// Whether nobody has written for a while. A time far in the future is of another clock, and as
/// long ago as any.
fn is_idle(modified_ms: i64, idle: Duration, now: Timestamp) -> bool {
    u128::from(now.as_millisecond().abs_diff(modified_ms)) >= idle.as_millis()
}

/// Whether a transcript is from after the beginning. A beginning in the future was written down by a
/// clock that was wrong, or is read by one: then the last day's sessions are right as well, and
/// nothing is written down anew that the next jump would make wrong.
fn is_since(modified_ms: i64, beginning: Timestamp, now: Timestamp) -> bool {
    let is_of_today =
        || u128::from(now.as_millisecond().abs_diff(modified_ms)) < queue::SWEEP_CAP_SPAN.as_millis();
    modified_ms >= beginning.as_millisecond() || (beginning > now && is_of_today())
}

/// Looks into a transcript: a candidate, or why it is none and what to remember of that.
fn glance(
    settings: &Settings,
    stamp: FileStamp,
) -> Result<Candidate, (SkipReason, Option<(TranscriptStamp, String)>)> {
    let seen = seen(&stamp);
    let Ok(glance) = transcript::read_head(&stamp.path) else { return Err((SkipReason::Unreadable, None)) };
    let cwd = glance.cwd.as_deref();
    let reason = if cwd.is_some_and(|cwd| cwd.starts_with(&settings.state)) {
        Some((SkipReason::Own, OWN.to_owned()))
    } else if cwd.is_some_and(|cwd| settings.exclude.covers(cwd)) {
        Some((SkipReason::Excluded, format!("{EXCLUDED}{}", settings.exclude.as_str())))
    } else if cwd.is_some_and(|cwd| Ignore::load(cwd).covers_everything()) {
        // Not by the setting, so it is looked at again by the next sweep: the file may be gone.
        Some((SkipReason::Excluded, format!("{EXCLUDED}.nuggetignore")))
    } else if !glance.has_conversation {
        Some((SkipReason::Empty, EMPTY.to_owned()))
    } else {
        None
    };
    if let Some((skip, reason)) = reason {
        return Err((skip, Some((seen, reason))));
    }
    Ok(Candidate {
        session_id: SessionId::verbatim(stamp.session_id()),
        cwd: glance.cwd,
        size: stamp.size,
        modified: Timestamp::from_millisecond(stamp.modified_ms).unwrap_or(Timestamp::UNIX_EPOCH),
        capture: None,
        transcript: stamp.path,
        seen,
    })
}

fn seen(stamp: &FileStamp) -> TranscriptStamp {
    TranscriptStamp { transcript: stamp.path.clone(), size: stamp.size, modified_ms: stamp.modified_ms }
}

/// When the brain was made here: the birth of its first file, where the file system tells it.
fn made(brain: &Brain) -> Option<Timestamp> {
    let metadata = std::fs::metadata(brain.root().join(BRAIN_YAML)).ok()?;
    Timestamp::try_from(metadata.created().or_else(|_| metadata.modified()).ok()?).ok()
}

/// The sweeps of one drainer, beside its work.
#[derive(Debug, Default)]
pub(crate) struct BackgroundSweep {
    last: Option<Instant>,
    under_way: Option<JoinHandle<()>>,
}

impl BackgroundSweep {
    /// Starts a sweep if one is due, on a thread that nobody has to wait for.
    pub(crate) fn start_if_due(&mut self, settings: Option<&Settings>, brain: &Brain, queue: &Queue) {
        let Some(settings) = settings else { return };
        if self.is_under_way() || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let (settings, brain, queue) = (settings.clone(), brain.clone(), queue.clone());
        let thread = std::thread::Builder::new().name("sweep".to_owned()).spawn(move || {
            if let Err(error) = sweep(&settings, &brain, &queue, Timestamp::now()) {
                tracing::warn!(error = chain(&error), "failed to sweep");
            }
        });
        self.under_way = thread.ok();
    }

    /// Waits for the sweep under way, within bounds.
    pub(crate) fn wait(&self) {
        while self.is_under_way() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether a sweep is worth waiting for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.as_ref().is_some_and(|thread| !thread.is_finished())
            && self.last.is_some_and(|last| last.elapsed() < PATIENCE)
    }
}

#[cfg(test)]
mod tests;
