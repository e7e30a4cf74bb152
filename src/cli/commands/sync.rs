//! `nugget sync`: fetches merges from the remote, and queues sessions that the hook missed.

use actors::sweep::{self, SkipReason, SweepOutcome, SweepScope};
use actors::sync::{SyncOutcome, sync};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use queue::{KnownTranscripts, Queue, Stage};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output::{self, counted, thousands};
use crate::settings;
use crate::spawn::ensure_worker;

/// How many sessions are listed.
const LISTED_MAX: usize = 20;

const AFTER: &str = "\
With a remote it fetches, fast-forwards the checkout if that loses nothing, and
checks the pull requests: merged branches are deleted, and proposals whose units
were edited on the main branch are renewed. Workers and servers do this on their
own (setting sync.minutes).

Sessions that were killed run no hook. Every worker and server looks for them:
transcripts that have not changed for a while (setting sweep.idle_minutes),
since the brain was created, at most sweep.daily_cap a day. This command does
the same now; with --since or --all it also takes older sessions and has no cap.
Nothing is captured twice.

Examples:
  nugget sync --dry-run --all      list all sessions, and why they are skipped
  nugget sync --since 7d
  nugget sync --since 2026-11-01";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct SyncArgs {
    /// Queue sessions written to since then: 30m, 12h, 7d, 4w, a date, or a time (of your time zone)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Queue all sessions
    #[arg(long, conflicts_with = "since")]
    all: bool,
    /// Print what would be queued; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl SyncArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let now = Timestamp::now();
        let scope = match &self.since {
            Some(text) => SweepScope::Since(parse_moment(text, now).ok_or_else(|| {
                CliError::new(format!("{text:?} is not a time"))
                    .code(USAGE)
                    .hint("give 7d, 12h, 2026-11-01, …")
            })?),
            None if self.all => SweepScope::All,
            None => SweepScope::Automatic,
        };
        let (config, brain, places) = context.open()?;
        let settings = settings::sweep(&config);
        let mut synced = None;
        let swept = if self.dry_run {
            // A dry run creates nothing, and a brain without captures has no queue yet.
            let known = match places.queue().is_file() {
                true => Queue::open(&places.queue())?.known_transcripts(now)?,
                false => KnownTranscripts::default(),
            };
            sweep::plan(&settings, &brain, &known, scope, now)
        } else {
            places.create()?;
            let queue = Queue::open(&places.queue())?;
            let swept = sweep::sweep(&settings, &brain, &queue, scope, now)?;
            let setup = context.setup(&config, &brain)?;
            let spinner = output::spinner("checking the remote");
            synced = Some(sync(&setup, &queue, now));
            spinner.finish_and_clear();
            // A person does not want to wait for the next retry.
            if matches!(synced, Some(Ok(SyncOutcome::Done(_)))) {
                queue.resume(Stage::Delivery)?;
            }
            if queue.is_due(now)? {
                ensure_worker(&places, &brain)?;
            }
            swept
        };
        if self.json {
            output::print_json(&json!({
                "dry_run": self.dry_run,
                "folders": settings.folders,
                "found": swept.found,
                "queued": swept.queued,
                "skipped": swept.skipped,
                "remote": match &synced {
                    Some(Ok(SyncOutcome::Done(synced))) => json!(synced),
                    Some(Ok(SyncOutcome::UnderWay)) => json!({ "under_way": true }),
                    Some(Err(error)) => json!({ "trouble": error.to_string() }),
                    Some(Ok(SyncOutcome::NoRemote)) | None => Value::Null,
                },
            }))?;
        } else {
            let mut text = describe_sweep(&swept, &settings, self.dry_run, scope, now);
            if let Some(Ok(synced)) = &synced {
                text.push_str(&describe_sync(synced));
            }
            output::print(&text)?;
        }
        match synced {
            // In git's own words, and not in a sentence.
            Some(Err(_))
                if let Err(error @ git::Error::NotTrusted { .. }) = git::Repository::open(brain.root()) =>
            {
                Err(error.into())
            }
            Some(Err(error)) => Err(CliError::new(format!("failed to check the remote: {error}"))
                .hint("nothing is lost; run `nugget sync` again")),
            _ => Ok(()),
        }
    }
}

/// What the remote had, and what was done.
fn describe_sync(sync: &SyncOutcome) -> String {
    let synced = match sync {
        SyncOutcome::Done(synced) => synced,
        SyncOutcome::NoRemote => return String::new(),
        SyncOutcome::UnderWay => return "\nremote: another process is checking it\n".to_owned(),
    };
    let news = match (synced.moved, &synced.not_moved_because, synced.has_new_commits) {
        (true, _, _) => format!("the checkout is now at the remote's {}", synced.branch),
        (false, Some(why), _) => format!("the checkout was not moved: {why}"),
        (false, None, true) => format!("fetched {}", synced.branch),
        (false, None, false) => "nothing new".to_owned(),
    };
    let mut text = format!("\nremote {}: {}\n", output::safe(&synced.remote), output::safe(&news));
    if synced.pushed {
        text.push_str("what you merged offline is pushed now\n");
    }
    let listed = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    for (ids, what) in [
        (&synced.merged, "merged"),
        (&synced.closed, "closed without a merge"),
        (&synced.empty, "already on the main branch: closed"),
        (&synced.recreated, "proposed again, because the main branch has changed the same units"),
        (&synced.added_to, "left as they are with a comment, because a person has added to the branch"),
    ] {
        if !ids.is_empty() {
            let noun = if ids.len() == 1 { "capture" } else { "captures" };
            text.push_str(&format!("{noun} {} {what}\n", listed(ids)));
        }
    }
    for (count, what) in [
        (synced.updated, "brought to what the remote has"),
        (synced.taken_over, "of other machines taken over, to review here too: `nugget review`"),
    ] {
        if count > 0 {
            text.push_str(&format!("{} {what}\n", counted(count as u64, "branch")));
        }
    }
    if synced.without_token > 0 {
        let branches = counted(synced.without_token as u64, "branch");
        text.push_str(&format!(
            "{branches} without a pull request: no token (`gh auth login`, or set GITHUB_TOKEN)\n"
        ));
    }
    if synced.delivered_late > 0 {
        text.push_str(&format!(
            "{} will be delivered now\n",
            counted(synced.delivered_late as u64, "capture")
        ));
    }
    if let Some(trouble) = &synced.error {
        text.push_str(&format!("not completed: {}\n", output::safe(trouble)));
    }
    text
}

fn describe_sweep(
    swept: &SweepOutcome,
    settings: &sweep::Settings,
    dry_run: bool,
    scope: SweepScope,
    now: Timestamp,
) -> String {
    let folders: Vec<String> = settings.folders.iter().map(|folder| folder.display().to_string()).collect();
    if swept.found == 0 {
        return output::safe(&format!("found no transcripts in {}", folders.join(", "))) + "\n";
    }
    let mut text = String::new();
    if !swept.queued.is_empty() {
        let rows = swept.queued.iter().take(LISTED_MAX).map(|session| {
            let project = session.cwd.as_ref().map_or_else(|| "?".into(), |cwd| cwd.to_string_lossy());
            vec![
                output::age(session.modified, now),
                format!("{} KB", thousands(session.size.div_ceil(1000))),
                session.session_id.short(),
                output::safe(&project),
            ]
        });
        text.push_str(&output::table(&["AGE", "SIZE", "SESSION", "PROJECT"], rows));
        if swept.queued.len() > LISTED_MAX {
            text.push_str(&format!("and {} more\n", thousands((swept.queued.len() - LISTED_MAX) as u64)));
        }
        text.push('\n');
    }
    let verb = if dry_run { "would be queued" } else { "queued" };
    let (queued, found) = (thousands(swept.queued.len() as u64), counted(swept.found, "session"));
    text.push_str(&format!("{queued} of {found} {verb}\n"));
    for (skip, count) in &swept.skipped {
        text.push_str(&format!("{:>6} {}\n", thousands(*count), skip.describe()));
    }
    if scope == SweepScope::Automatic && swept.skipped.contains_key(&SkipReason::Old) {
        text.push_str("hint: `nugget sync --since 30d` also takes sessions older than the brain\n");
    }
    text
}

/// Parses a duration before now, a date, or a time; the two as the person's clock has them, unless an offset is given.
pub(crate) fn parse_moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    moment_in(&TimeZone::system(), text, now)
}

/// The last moment that a text means: of a date its end, else as [`parse_moment`].
pub(crate) fn parse_last_moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    last_moment_in(&TimeZone::system(), text, now)
}

fn moment_in(zone: &TimeZone, text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if let Some(unit) = text.chars().last().filter(char::is_ascii_alphabetic)
        && let Ok(count) = text[..text.len() - 1].parse::<u32>()
    {
        let hours = |hours: i64| SignedDuration::from_hours(i64::from(count) * hours);
        let ago = match unit {
            'm' => SignedDuration::from_mins(i64::from(count)),
            'h' => hours(1),
            'd' => hours(24),
            'w' => hours(24 * 7),
            _ => return None,
        };
        return Some(now.saturating_sub(ago).unwrap_or(Timestamp::MIN));
    }
    let local = |time: civil::DateTime| Some(time.to_zoned(zone.clone()).ok()?.timestamp());
    text.parse().ok().or_else(|| local(text.parse().ok()?))
}

fn last_moment_in(zone: &TimeZone, text: &str, now: Timestamp) -> Option<Timestamp> {
    let is_date = text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match text.trim().parse::<civil::Date>().ok().filter(|_| is_date) {
        Some(date) => Some(date.tomorrow().ok()?.to_zoned(zone.clone()).ok()?.timestamp()),
        None => moment_in(zone, text, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_age_a_date_or_a_time() {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                moment_in(&TimeZone::UTC, text, now).map(|at| at.to_string()).as_deref(),
                expected,
                "{text}"
            );
        };
        check("30m", Some("2026-11-20T13:42:00Z"));
        check("7d", Some("2026-11-13T14:12:00Z"));
        check("2w", Some("2026-11-06T14:12:00Z"));
        check(" 2026-11-01 ", Some("2026-11-01T00:00:00Z"));
        check("2026-11-01T10:00:00+02:00", Some("2026-11-01T08:00:00Z"));
        check("2026-11-01 18:00", Some("2026-11-01T18:00:00Z"));
        check("2026-11-01T18:00", Some("2026-11-01T18:00:00Z"));
        let last = |text: &str| last_moment_in(&TimeZone::UTC, text, now).map(|at| at.to_string());
        assert_eq!(last("2026-11-01").as_deref(), Some("2026-11-02T00:00:00Z"), "the day included");
        assert_eq!(last("2026-11-01T18:00").as_deref(), Some("2026-11-01T18:00:00Z"));
        check("4294967295w", Some("-009999-01-02T01:59:59Z"));
        // As the clock of the person has it.
        let zone = TimeZone::fixed(jiff::tz::offset(-8));
        let local = |text: &str| moment_in(&zone, text, now).map(|at| at.to_string());
        assert_eq!(local("2026-11-01").as_deref(), Some("2026-11-01T08:00:00Z"));
        assert_eq!(local("2026-11-01T18:00").as_deref(), Some("2026-11-02T02:00:00Z"));
        assert_eq!(local("2026-11-01T18:00Z").as_deref(), Some("2026-11-01T18:00:00Z"));
        let last = last_moment_in(&zone, "2026-11-01", now).map(|at| at.to_string());
        assert_eq!(last.as_deref(), Some("2026-11-02T08:00:00Z"));
        for nonsense in ["", "d", "-3d", "7y", "yesterday", "2026-13-01", "1.5h", "7é"] {
            check(nonsense, None);
        }
    }
}
