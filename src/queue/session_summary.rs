//! Read-only queue summary for the SessionStart hook.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Row, params};

use crate::{Error, schema};

/// The longest wait for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);
/// The most unit names that are returned.
const NAMES_MAX: usize = 2_000;
/// Of how many folders, those of the latest captures, it is asked whether they belong to the project: each costs a few
/// looks at the disk.
const FOLDERS_MAX: usize = 500;

/// A branch that captures made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentBranch {
    /// The branch's name.
    pub branch: String,
    /// How many units captures have put on it.
    pub units: u32,
    /// The titles of its units that wait: nothing was decided about them, and they are not put off. As far as known.
    pub titles: Vec<String>,
    /// How many of its units wait.
    pub waiting: u32,
    /// How many of its files were rejected.
    pub rejected: u32,
    /// The address of its pull request, if there is one.
    pub pull_url: Option<String>,
    /// The name of its [`PullState`](crate::PullState), if known.
    pub pull_state: Option<String>,
    /// When the last capture of it ended.
    pub finished: Timestamp,
    /// Whether the session worked in the project.
    pub is_here: bool,
}

/// What the queue knows that matters to a new session in a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSummary {
    /// The branches of captures that may wait for review, newest first, and that of the last session in the project.
    pub branches: Vec<RecentBranch>,
    /// How many of the branches that are present no capture has made.
    pub other_branches: usize,
    /// How many captures died recently.
    pub dead: u64,
    /// The units that sessions in the project proposed, merged or not, newest first.
    pub units: Vec<String>,
    /// Units that rest on more than one session, with the number of sessions.
    pub confirmed: Vec<(String, u32)>,
}

/// Reads the summary without changing the queue; `None` if there is no queue or it has another version.
///
/// Captures that died before `since` are not counted. A branch may wait if its pull request is open, or if it has none
/// and is one of `present`. What is put off until after `now` does not wait. `is_here` says of a session's folder whether
/// it belongs to the project.
///
/// # Errors
/// When the queue cannot be read.
pub fn read_session_summary(
    path: &Path,
    is_here: &dyn Fn(&Path) -> bool,
    since: Timestamp,
    now: Timestamp,
    present: &HashSet<String>,
) -> Result<Option<SessionSummary>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    let failed = |source| Error::Open { path: PathBuf::from(path), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    if !schema::is_current(&connection).map_err(failed)? {
        return Ok(None);
    }
    let folders = folders_here(&connection, is_here)?;
    let dead = "SELECT count(*) FROM captures WHERE outcome = 'dead' AND finished_ms >= ?1";
    let dead: i64 = connection.query_row(dead, [since.as_millisecond()], |row| row.get(0))?;
    let mut summary = SessionSummary { dead: dead.unsigned_abs(), ..SessionSummary::default() };
    let made = "outcome = 'done' AND branch IS NOT NULL AND units > 0";
    // Of the decided ones, of which there may be thousands, only the last of the project.
    let mut statement = connection.prepare(&format!(
        "SELECT *, {IS_IN_PROJECT} AS here FROM captures
         WHERE {made} AND (coalesce(pull_state, 'open') = 'open' OR branch =
             (SELECT branch FROM captures WHERE {made} AND {IS_IN_PROJECT} ORDER BY id DESC LIMIT 1))
         ORDER BY id DESC"
    ))?;
    let rows = statement.query_map(params![folders], read_branch)?;
    summary.branches = one_of_each_branch(rows.collect::<Result<_, _>>()?, present);
    for branch in &mut summary.branches {
        read_decisions(&connection, branch, now)?;
    }
    let mut is_known = connection.prepare("SELECT 1 FROM captures WHERE branch = ?1")?;
    for branch in present {
        summary.other_branches += usize::from(!is_known.exists([branch])?);
    }
    let mut statement = connection.prepare(&format!(
        "SELECT name FROM names JOIN captures ON captures.id = capture_id WHERE {IS_IN_PROJECT} ORDER BY capture_id DESC LIMIT ?2"
    ))?;
    let rows = statement.query_map(params![folders, NAMES_MAX as i64], |row| row.get(0))?;
    summary.units = rows.collect::<Result<_, _>>()?;
    let mut statement = connection.prepare(
        "SELECT unit, count(DISTINCT capture_id) FROM evidence GROUP BY unit HAVING count(DISTINCT capture_id) > 1",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    summary.confirmed = rows.collect::<Result<_, _>>()?;
    Ok(Some(summary))
}

/// Whether a capture's session worked in one of the project's folders.
const IS_IN_PROJECT: &str = "(cwd IS NOT NULL AND cwd IN (SELECT value FROM json_each(?1)))";

/// The folders of the project in which sessions worked, as a JSON array.
fn folders_here(connection: &Connection, is_here: &dyn Fn(&Path) -> bool) -> rusqlite::Result<String> {
    let mut statement = connection.prepare(
        "SELECT cwd FROM captures WHERE cwd IS NOT NULL GROUP BY cwd ORDER BY max(id) DESC LIMIT ?1",
    )?;
    let rows = statement.query_map([FOLDERS_MAX as i64], |row| row.get::<_, String>(0))?;
    let mut folders = rows.collect::<Result<Vec<_>, _>>()?;
    folders.retain(|folder| is_here(Path::new(folder)));
    Ok(serde_json::Value::from(folders).to_string())
}

/// The branches of captures that may wait, and the newest of the project: a session that has grown, or two that were
/// put on one branch, have several captures.
fn one_of_each_branch(captures: Vec<RecentBranch>, present: &HashSet<String>) -> Vec<RecentBranch> {
    let mut branches: Vec<RecentBranch> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for capture in captures {
        if let Some(at) = places.get(&capture.branch) {
            branches[*at].units = branches[*at].units.saturating_add(capture.units);
            branches[*at].is_here |= capture.is_here;
        } else {
            places.insert(capture.branch.clone(), branches.len());
            branches.push(capture);
        }
    }
    let last_here = branches.iter().position(|branch| branch.is_here);
    let mut place = 0..;
    branches.retain(|branch| {
        let may_wait = match branch.pull_state.as_deref() {
            Some(state) => state == "open",
            None => present.contains(&branch.branch),
        };
        place.next() == last_here || may_wait
    });
    branches
}

/// Reads what was decided about a branch, and what of it waits.
fn read_decisions(
    connection: &Connection,
    branch: &mut RecentBranch,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT path, decision = 'rejected' FROM decisions
         WHERE branch = ?1 AND (decision <> 'later' OR until_ms > ?2)",
    )?;
    let rows = statement.query_map(params![branch.branch, now.as_millisecond()], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?))
    })?;
    let decided: Vec<(String, bool)> = rows.collect::<Result<_, _>>()?;
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    branch.rejected = count(decided.iter().filter(|(_, is_rejected)| *is_rejected).count());
    let is_decided = |unit: &str| decided.iter().any(|(path, _)| knowledge::name::file_stem(path) == unit);
    let mut statement = connection.prepare_cached(
        "SELECT name, title FROM (
             SELECT name, title, capture_id FROM names UNION ALL SELECT unit, title, capture_id FROM additions
         ) WHERE title <> '' AND capture_id IN (SELECT id FROM captures WHERE branch = ?1) ORDER BY name",
    )?;
    let rows = statement
        .query_map([&branch.branch], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let rows: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
    let has_titles = !rows.is_empty();
    branch.titles = rows.into_iter().filter(|(unit, _)| !is_decided(unit)).map(|(_, title)| title).collect();
    branch.waiting = match has_titles {
        true => count(branch.titles.len()),
        false => branch.units.saturating_sub(count(decided.len())),
    };
    Ok(())
}

fn read_branch(row: &Row<'_>) -> rusqlite::Result<RecentBranch> {
    // A value that is missing or has an unexpected type costs only itself.
    let optional = |name: &str| row.get::<_, Option<String>>(name).ok().flatten();
    let finished: Option<i64> = row.get("finished_ms")?;
    Ok(RecentBranch {
        branch: row.get("branch")?,
        units: row.get("units")?,
        titles: Vec::new(),
        waiting: 0,
        rejected: 0,
        pull_url: optional("pull_url"),
        pull_state: optional("pull_state"),
        finished: finished.and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default(),
        is_here: row.get("here")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::announcement;
    use crate::{Announcement, Branch, Finish, ProposedUnit, Queue, Stage};

    #[test]
    fn the_summary_is_about_the_projects_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queue.db");
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let present = HashSet::from(["nugget/2".to_owned(), "nugget/other".to_owned()]);
        assert_eq!(read_session_summary(&path, &|_| true, now, now, &present).unwrap(), None);
        let queue = Queue::open(&path).unwrap();
        let folders = ["/p/shop/src", "/p/shop/src", "/p/shopping", "/p/shopping", "/p/shop"];
        for (number, cwd) in folders.into_iter().enumerate() {
            let announcement = Announcement { cwd: Some(cwd.into()), ..announcement(&format!("s{number}")) };
            queue.add(&announcement, now).unwrap();
            let claim = queue.claim(Stage::Intake, now).unwrap().unwrap();
            let unit = ProposedUnit {
                name: format!("unit-{number}"),
                is_new: true,
                evidence: vec![("line".into(), "words".into())],
                ..ProposedUnit::default()
            };
            let same = ProposedUnit { name: "unit-0".into(), is_new: false, ..unit.clone() };
            let units = if number == 0 { vec![unit] } else { vec![unit, same] };
            assert!(queue.save_result(&claim, b"", &units).unwrap().is_empty());
            let branch = |number| Branch { name: format!("nugget/{number}"), commit: "c".into(), units: 1 };
            let finish = match number {
                4 => Finish::Dead { reason: "no".into() },
                3 => Finish::Done(branch(2)),
                number => Finish::Done(branch(number)),
            };
            queue.finish(&claim, &finish, now).unwrap();
        }
        let is_here = |folder: &Path| folder.starts_with("/p/shop");
        let summary = read_session_summary(&path, &is_here, now, now, &present);
        let summary = summary.unwrap().unwrap();
        let branches: Vec<_> = summary
            .branches
            .iter()
            .map(|branch| (branch.branch.as_str(), branch.units, branch.is_here))
            .collect();
        assert_eq!(branches, [("nugget/2", 2, false), ("nugget/1", 1, true)]);
        assert_eq!((summary.dead, summary.other_branches), (1, 1));
        assert_eq!(summary.units, ["unit-4", "unit-1", "unit-0"]);
        assert_eq!(summary.confirmed, [("unit-0".to_owned(), 5)]);
    }
}
