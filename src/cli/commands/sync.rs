//! `nugget sync`: queues by hand what no hook announced, and brings here what was merged at the remote.

use std::process::ExitCode;

use actors::sweep::{self, SkipReason, SweepOutcome, SweepScope};
use actors::sync::{SyncOutcome, sync};
use brain::StatePaths;
use jiff::{SignedDuration, Timestamp, civil};
use queue::{KnownTranscripts, Queue, Stage};
use serde_json::{Value, json};

use crate::context::{Context, ensure_drainer, sweep_settings};
use crate::error::{CliError, USAGE};
use crate::output;

/// How many sessions are listed for a person.
const LISTED_MAX: usize = 20;

const AFTER: &str = "\
With a remote it fetches, moves the checkout forward where that loses nothing,
and looks what has become of the pull requests: merged branches are deleted, and
what was edited on the main branch meanwhile is proposed anew. Drainers and
servers do this by themselves (setting sync.minutes).

Sessions that were killed fire no hook. Every drainer and server looks for them:
transcripts that nobody has written to for a while (setting sweep.idle_minutes),
since the brain was made, no more in a day than sweep.daily_cap. This does the
same now; with --since or --all it goes further back, as far as there are
transcripts, and has no cap. What was captured is never captured twice.

Examples:
  nugget sync --dry-run --all      what is there, and why it would be left
  nugget sync --since 7d
  nugget sync --since 2026-11-01";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Sessions written to since then: 30m, 12h, 7d, 4w, a date, or a time (UTC)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// All sessions there are
    #[arg(long, conflicts_with = "since")]
    all: bool,
    /// Say what would be queued and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let now = Timestamp::now();
        let reach = match &self.since {
            Some(text) => SweepScope::Since(moment(text, now).ok_or_else(|| {
                CliError::new(format!("{text:?} is no time")).code(USAGE).hint("7d, 12h, 2026-11-01, …")
            })?),
            None if self.all => SweepScope::All,
            None => SweepScope::Automatic,
        };
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        let settings = sweep_settings(&config);
        let mut synced = None;
        let swept = if self.dry_run {
            // Looking must not make anything: a brain without captures has no queue yet.
            let known = match places.queue().is_file() {
                true => Queue::open(&places.queue())?.known_transcripts(now)?,
                false => KnownTranscripts::default(),
            };
            sweep::plan(&settings, &brain, &known, reach, now)
        } else {
            places.create()?;
            let queue = Queue::open(&places.queue())?;
            let swept = sweep::sweep_within(&settings, &brain, &queue, reach, now)?;
            let setup = context.setup(&config, &brain)?;
            let spinner = output::spinner();
            spinner.set_message("looking at the remote");
            synced = Some(sync(&setup, &queue, now));
            spinner.finish_and_clear();
            // A person who asks for it does not want to wait for the next try.
            if matches!(synced, Some(Ok(SyncOutcome::Done(_)))) {
                queue.resume(Stage::Delivery)?;
            }
            if queue.is_due(now)? {
                ensure_drainer(&places, &brain)?;
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
            let mut text = told(&swept, &settings, self.dry_run, reach, now);
            if let Some(Ok(synced)) = &synced {
                text.push_str(&told_sync(synced));
            }
            output::print(&text)?;
        }
        match synced {
            Some(Err(error)) => Err(CliError::new(format!("the remote was not looked at: {error}"))
                .hint("what waits for it is kept, and tried again by itself")),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// What has come from the remote, and what follows from it.
fn told_sync(sync: &SyncOutcome) -> String {
    let synced = match sync {
        SyncOutcome::Done(synced) => synced,
        SyncOutcome::NoRemote => return String::new(),
        SyncOutcome::UnderWay => return "\nremote: another nugget is looking at it\n".to_owned(),
    };
    let news = match (synced.moved, &synced.left, synced.news) {
        (true, _, _) => format!("the checkout is now at its {}", synced.branch),
        (false, Some(why), _) => format!("the checkout stays as it is: {why}"),
        (false, None, true) => format!("fetched {}", synced.branch),
        (false, None, false) => "nothing new".to_owned(),
    };
    let mut text = format!("\nremote {}: {}\n", output::safe(&synced.remote), output::safe(&news));
    let listed = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    for (ids, what) in [
        (&synced.merged, "merged"),
        (&synced.closed, "closed by a person: let go"),
        (&synced.empty, "on the main branch already: closed"),
        (&synced.anew, "proposed anew, as the main branch has changed what they edit"),
        (&synced.added_to, "left to whoever has added to their branch, with a comment"),
    ] {
        if !ids.is_empty() {
            let captures = if ids.len() == 1 { "capture" } else { "captures" };
            text.push_str(&format!("{captures} {} {what}\n", listed(ids)));
        }
    }
    if synced.delivered_late > 0 {
        text.push_str(&format!(
            "{} captures from before there was a remote are delivered now\n",
            synced.delivered_late
        ));
    }
    if let Some(trouble) = &synced.trouble {
        text.push_str(&format!("not completed: {}\n", output::safe(trouble)));
    }
    text
}

fn told(
    swept: &SweepOutcome,
    settings: &sweep::Settings,
    dry_run: bool,
    reach: SweepScope,
    now: Timestamp,
) -> String {
    let folders: Vec<String> = settings.folders.iter().map(|folder| folder.display().to_string()).collect();
    if swept.found == 0 {
        return output::safe(&format!("there are no transcripts in {}", folders.join(", "))) + "\n";
    }
    let mut text = String::new();
    if !swept.queued.is_empty() {
        let mut rows = vec![["AGE", "SIZE", "SESSION", "PROJECT"].map(str::to_owned).to_vec()];
        rows.extend(swept.queued.iter().take(LISTED_MAX).map(|session| {
            let project = session.cwd.as_ref().map_or_else(|| "?".into(), |cwd| cwd.to_string_lossy());
            vec![
                output::age(session.modified, now),
                format!("{} KB", session.size.div_ceil(1000)),
                session.session_id.short(),
                output::safe(&project),
            ]
        }));
        text.push_str(&output::table(&rows));
        if swept.queued.len() > LISTED_MAX {
            text.push_str(&format!("and {} more\n", swept.queued.len() - LISTED_MAX));
        }
        text.push('\n');
    }
    let verb = if dry_run { "would be queued" } else { "queued" };
    text.push_str(&format!("{} of {} sessions {verb}\n", swept.queued.len(), swept.found));
    for (skip, count) in &swept.skipped {
        text.push_str(&format!("{count:>6} {}\n", skip.describe()));
    }
    if reach == SweepScope::Automatic && swept.skipped.contains_key(&SkipReason::Old) {
        text.push_str("hint: `nugget sync --since 30d` goes further back than the brain\n");
    }
    text
}

/// A moment as people write it: how long ago, a date, or a time.
fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
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
    if let Ok(date) = text.parse::<civil::Date>()
        && !text.contains('T')
    {
        return date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_age_a_date_or_a_time() {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(moment(text, now).map(|at| at.to_string()).as_deref(), expected, "{text}");
        };
        check("30m", Some("2026-11-20T13:42:00Z"));
        check("7d", Some("2026-11-13T14:12:00Z"));
        check("2w", Some("2026-11-06T14:12:00Z"));
        check(" 2026-11-01 ", Some("2026-11-01T00:00:00Z"));
        check("2026-11-01T10:00:00+02:00", Some("2026-11-01T08:00:00Z"));
        check("4294967295w", Some("-009999-01-02T01:59:59Z"));
        for nonsense in ["", "d", "-3d", "7y", "yesterday", "2026-13-01", "1.5h", "7é"] {
            check(nonsense, None);
        }
    }
}
