//! The session archive: whether it can be used, what is not in it yet, and what the client is about to delete.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::archive::Archive;
use actors::archiving::{Pending, find_pending};
use brain::Config;
use jiff::{SignedDuration, Timestamp};

use super::check::Check;
use crate::archive::{archive_path, is_enabled, open_archive, other_source, sync_settings};
use crate::client_settings::ClientSettings;
use crate::error::CliError;
use crate::output::{counted, thousands};

const NAME: &str = "archive";
/// Transcripts that the client deletes within so many days are counted.
const SOON_DAYS: i64 = 7;

/// Checks the archive; every page of it if `is_thorough`.
pub(super) fn check(config: &Config, is_thorough: bool) -> Check {
    let path = archive_path();
    if !is_enabled(config) {
        return match path.exists() {
            true => Check::ok(NAME, format!("off; {} keeps what was archived before", path.display()))
                .fix(format!("rm {}*, if you do not want it", path.display())),
            false => Check::ok(NAME, "off (archive.enabled)"),
        };
    }
    if let Some(file) = foreign_file(&path) {
        let message = format!("{} belongs to another user, as after `sudo nugget`", file.display());
        let fix = format!("sudo chown \"$(id -un)\" '{}'*", path.with_extension("").display());
        return Check::failure(NAME, message).fix(fix);
    }
    let checked = || -> Result<Check, CliError> {
        let archive = open_archive()?;
        if let Some(archive) = archive.as_ref().filter(|_| is_thorough)
            && let Some(damage) = archive.check()?.first()
        {
            return Ok(Check::failure(NAME, format!("{} is damaged: {damage}", path.display()))
                .fix(format!("move {} away: what is still on disk is archived again", path.display())));
        }
        describe(config, archive.as_ref())
    };
    checked().unwrap_or_else(|error| {
        let check = Check::failure(NAME, error.message);
        Check { fix: error.hint, ..check }
    })
}

fn describe(config: &Config, archive: Option<&Archive>) -> Result<Check, CliError> {
    let kept = archive.map(Archive::session_count).transpose()?.unwrap_or(0);
    let kept = format!("{} kept", counted(kept, "session"));
    let settings = sync_settings(config);
    let Pending { found, transcripts } = find_pending(&settings, archive)?;
    let of = |count: usize| format!("{} of {} on disk", thousands(count as u64), thousands(found));
    let mut other = settings.clone();
    other.sources = vec![Arc::new(other_source())];
    let other = find_pending(&other, archive)?;
    let mut message = match transcripts.len() {
        _ if found + other.found == 0 => format!("{kept}; no transcripts on disk"),
        _ if found == 0 => format!("{kept}; no transcripts of Claude Code on disk"),
        0 if other.transcripts.is_empty() => format!("{kept}; everything on disk is archived"),
        0 => format!("{kept}; everything of Claude Code on disk is archived"),
        count => format!("{kept}; {} not archived yet", of(count)),
    };
    if !other.transcripts.is_empty() {
        let count = thousands(other.transcripts.len() as u64);
        message.push_str(&format!(
            "; {count} of {} of Codex not archived yet, which only `nugget sessions sync` adds",
            counted(other.found, "session")
        ));
    }
    let client = ClientSettings::read(&std::env::current_dir().unwrap_or_default());
    let days = client.cleanup_days();
    let until = Timestamp::now() - SignedDuration::from_hours(24 * (days.min(36_500) as i64 - SOON_DAYS));
    let is_soon = |modified_ms: i64| modified_ms < until.as_millisecond();
    let sources = settings.sources.iter().filter(|source| source.name() == "claude-code");
    let on_disk = sources.flat_map(|source| source.discover());
    let is_subagents =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("agent-"));
    let soon = on_disk.filter(|stamp| is_soon(stamp.modified_ms) && !is_subagents(&stamp.path));
    let soon: Vec<PathBuf> = soon.map(|stamp| stamp.path).collect();
    let left_out = archive.map(Archive::left_out).transpose()?.unwrap_or_default();
    let left_out = soon.iter().filter(|path| left_out.contains(*path)).count();
    let soon = soon.len();
    let soon_pending = transcripts.iter().filter(|stamp| is_soon(stamp.modified_ms)).count();
    if soon > 0 {
        let sessions = counted(soon as u64, "session");
        let archived = match soon_pending {
            pending if left_out > 0 => format!(
                "{} archived, {} left out (excluded, forgotten or empty), {} not archived yet",
                thousands(soon.saturating_sub(left_out + pending) as u64),
                thousands(left_out as u64),
                thousands(pending as u64)
            ),
            0 if soon == 1 => "it is archived".to_owned(),
            0 => "all of them are archived".to_owned(),
            count => format!("{} not archived yet", thousands(count as u64)),
        };
        message.push_str(&format!(
            "; {sessions} will be deleted by Claude Code within {SOON_DAYS} days (cleanupPeriodDays is {days}), {archived}"
        ));
    }
    Ok(match soon_pending {
        0 => Check::ok(NAME, message),
        _ => Check::warning(NAME, message).fix("nugget sessions sync"),
    })
}

/// A file of the archive that belongs to another user. Root may use all.
fn foreign_file(path: &Path) -> Option<PathBuf> {
    if system::process::is_root() {
        return None;
    }
    let log = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let files = [
        path.to_owned(),
        log("-wal"),
        log("-shm"),
        path.with_extension("write.lock"),
        path.with_extension("wait.lock"),
    ];
    files.into_iter().find(|file| std::fs::metadata(file).is_ok_and(|found| !system::file::is_own(&found)))
}
