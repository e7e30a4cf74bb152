//! Links between sessions: which continues which, and which are about the same.
//!
//! A session's links are made again whenever it has something new. A link that both sides have found is stored once, and
//! stays as long as one of them finds it. Every look-up is bounded, so that a session of a
//! thousand files costs no more than one of forty.

use std::collections::{BTreeMap, BTreeSet};

use knowledge::name::folder_name;
use rusqlite::{Connection, Transaction, params};

use crate::error::Error;

/// A session that begins on the same branch within this time continues the one before.
const CONTINUES_MS: i64 = 6 * 60 * 60 * 1000;
const FILES_MAX: i64 = 40;
const TOPICS_MAX: i64 = 12;
/// A file or a word of more sessions than this connects nothing.
const COMMON_FROM: i64 = 60;
const LINKS_MAX: usize = 12;
/// The least weight of a link by files or topics.
const WEIGHT_MIN: f64 = 0.05;
const NAMED_MAX: usize = 3;

/// Makes the links of a session.
fn make(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    // What the other sides have found stays, unless they would no longer find it: that this one continues, as it went on.
    for sql in [
        "UPDATE links SET found = found & ~1 WHERE source = ?1 AND relationship IN ('continues', 'related_to')",
        "UPDATE links SET found = found & ~2 WHERE target = ?1 AND relationship IN ('continues', 'related_to')",
        "UPDATE links SET found = 0 WHERE target = ?1 AND relationship = 'continues'
            AND (SELECT started_ms FROM sessions WHERE id = links.source) < (SELECT ended_ms FROM sessions WHERE id = ?1)",
        "DELETE FROM links WHERE found = 0 AND (source = ?1 OR target = ?1)",
    ] {
        transaction.prepare_cached(sql)?.execute([session])?;
    }
    let copies = link_copies(transaction, session)?;
    link_branch(transaction, session)?;
    link_subjects(transaction, session, &copies)
}

/// Has the links of a session by files and topics made again, from both sides: the words that they name may be gone.
pub(crate) fn make_again(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    for sql in [
        "INSERT OR IGNORE INTO unlinked VALUES (?1)",
        "INSERT OR IGNORE INTO unlinked SELECT iif(source = ?1, target, source) FROM links
            WHERE relationship = 'related_to' AND (source = ?1 OR target = ?1)",
        "DELETE FROM links WHERE relationship = 'related_to' AND (source = ?1 OR target = ?1)",
    ] {
        transaction.prepare_cached(sql)?.execute([session])?;
    }
    Ok(())
}

/// Makes the links of some of the sessions that have something new. `false` if there are none.
pub(crate) fn make_some(transaction: &Transaction<'_>, limit: i64) -> Result<bool, Error> {
    let some = column(transaction, "SELECT session FROM unlinked ORDER BY session LIMIT ?1", [limit])?;
    for session in &some {
        make(transaction, *session)?;
        transaction.prepare_cached("DELETE FROM unlinked WHERE session = ?1")?.execute([session])?;
    }
    Ok(!some.is_empty())
}

/// Notes the sessions whose ids a prompt names.
pub(crate) fn note_mentions(transaction: &Transaction<'_>, session: i64, prompt: &str) -> Result<(), Error> {
    if !prompt.contains('-') {
        return Ok(());
    }
    for word in prompt.split(|c: char| !c.is_ascii_hexdigit() && c != '-') {
        let is_uuid = word.len() == 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
        if is_uuid {
            let sql = "INSERT OR IGNORE INTO links
                SELECT ?1, 'mentions', id, 1.0, 'names its id', 1 FROM sessions WHERE session = ?2 AND id <> ?1";
            transaction.prepare_cached(sql)?.execute(params![session, word])?;
        }
    }
    Ok(())
}

/// Adds what one of both sides has found.
fn add(
    transaction: &Transaction<'_>,
    finder: i64,
    source: i64,
    relationship: &str,
    target: i64,
    weight: f64,
    reason: &str,
) -> Result<(), Error> {
    let sql = "INSERT INTO links VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE
        SET weight = max(weight, ?4), reason = iif(weight < ?4, ?5, reason), found = found | ?6";
    let found = if finder == source { 1 } else { 2 };
    transaction.prepare_cached(sql)?.execute(params![source, relationship, target, weight, reason, found])?;
    Ok(())
}

/// A session that has messages of an earlier one was resumed from it, or forked. Returns the other sides.
fn link_copies(transaction: &Transaction<'_>, session: i64) -> Result<BTreeSet<i64>, Error> {
    let mine = "SELECT s.session, m.session, count(*) FROM shared_messages s JOIN messages_meta m ON m.id = s.message
        WHERE s.session = ?1 GROUP BY m.session LIMIT 50";
    let theirs = "SELECT s.session, m.session, count(*) FROM messages_meta m JOIN shared_messages s ON s.message = m.id
        WHERE m.session = ?1 GROUP BY s.session LIMIT 50";
    let mut others = BTreeSet::new();
    for sql in [mine, theirs] {
        let pairs: Vec<(i64, i64, i64)> = transaction
            .prepare_cached(sql)?
            .query_map([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (sharer, owner, count) in pairs {
            let is_owner_earlier = went_on_first(transaction, owner, sharer)?;
            let (later, earlier) = if is_owner_earlier { (sharer, owner) } else { (owner, sharer) };
            others.extend([later, earlier].into_iter().filter(|side| *side != session));
            let plural = if count == 1 { "" } else { "s" };
            let reason = format!("begins with {count} of its message{plural}");
            add(transaction, session, later, "continues", earlier, 1.0, &reason)?;
        }
    }
    Ok(others)
}

/// Whether of two sessions with the same beginning the one that its messages are stored with is the earlier one: it
/// ends with them, or its own next message is the older one. The copy may have been archived first.
fn went_on_first(transaction: &Transaction<'_>, owner: i64, sharer: i64) -> Result<bool, Error> {
    let sql = "SELECT
        (SELECT min(m.at_ms) FROM messages_meta m WHERE m.session = ?1
            AND NOT EXISTS (SELECT 1 FROM shared_messages s WHERE s.message = m.id AND s.session = ?2)),
        (SELECT min(m.at_ms) FROM messages_meta m WHERE m.session = ?2)";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let next: (Option<i64>, Option<i64>) =
        transaction.prepare_cached(sql)?.query_row([owner, sharer], read)?;
    Ok(match next {
        (Some(owner), Some(sharer)) => owner <= sharer,
        (owner, _) => owner.is_none(),
    })
}

fn link_branch(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    let sql = "SELECT project, branch, started_ms, ended_ms FROM sessions
        WHERE id = ?1 AND parent IS NULL AND branch IS NOT NULL AND started_ms IS NOT NULL AND ended_ms IS NOT NULL";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found: Vec<(String, String, i64, i64)> =
        transaction.prepare_cached(sql)?.query_map([session], read)?.collect::<Result<_, _>>()?;
    let Some((project, branch, started, ended)) = found.into_iter().next() else { return Ok(()) };
    let before =
        "SELECT id, ?3 - ended_ms FROM sessions WHERE project = ?1 AND branch = ?2 AND parent IS NULL
        AND ended_ms BETWEEN ?3 - ?4 AND ?3 AND id <> ?5 ORDER BY ended_ms DESC LIMIT 1";
    let after =
        "SELECT id, started_ms - ?3 FROM sessions WHERE project = ?1 AND branch = ?2 AND parent IS NULL
        AND ended_ms >= ?3 AND started_ms BETWEEN ?3 AND ?3 + ?4 AND id <> ?5 ORDER BY started_ms LIMIT 1";
    for (sql, at, is_before) in [(before, started, true), (after, ended, false)] {
        let near: Vec<(i64, i64)> = transaction
            .prepare_cached(sql)?
            .query_map(params![project, branch, at, CONTINUES_MS, session], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        for (other, gap) in near {
            let (later, earlier) = if is_before { (session, other) } else { (other, session) };
            let minutes = gap / 60_000;
            let gap = if minutes < 90 { format!("{minutes} min") } else { format!("{} h", minutes / 60) };
            add(
                transaction,
                session,
                later,
                "continues",
                earlier,
                0.6,
                &format!("same branch {branch}, {gap} later"),
            )?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Shared {
    weight: f64,
    files: Vec<String>,
    topics: Vec<String>,
}

/// Links sessions that changed the same files or speak of the same things. What few sessions have weighs more.
///
/// Not those of `copies`: that they are about the same says nothing more.
fn link_subjects(transaction: &Transaction<'_>, session: i64, copies: &BTreeSet<i64>) -> Result<(), Error> {
    let mut others: BTreeMap<i64, Shared> = BTreeMap::new();
    let files = "SELECT f.file, n.name FROM file_modifications f JOIN names n ON n.id = f.file
        WHERE f.session = ?1 ORDER BY f.last_ms DESC LIMIT ?2";
    let files: Vec<(i64, String)> = transaction
        .prepare_cached(files)?
        .query_map([session, FILES_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (file, name) in files {
        let sql = "SELECT session FROM file_modifications WHERE file = ?1 LIMIT ?2";
        let sessions = column(transaction, sql, params![file, COMMON_FROM])?;
        spread(&sessions, session, 1.0, |other, weight| {
            let shared = others.entry(other).or_default();
            shared.weight += weight;
            shared.files.push(folder_name(&name).unwrap_or(&name).to_owned());
        });
    }
    let topics = "SELECT word FROM topics WHERE session = ?1 ORDER BY times DESC, length(word) DESC LIMIT ?2";
    let topics: Vec<String> = transaction
        .prepare_cached(topics)?
        .query_map([session, TOPICS_MAX], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for word in topics {
        let sql = "SELECT session FROM topics WHERE word = ?1 LIMIT ?2";
        let sessions = column(transaction, sql, params![word, COMMON_FROM])?;
        spread(&sessions, session, 0.5, |other, weight| {
            let shared = others.entry(other).or_default();
            shared.weight += weight;
            shared.topics.push(word.clone());
        });
    }
    // One common word may be chance.
    let mut others: Vec<(i64, Shared)> = others
        .into_iter()
        .filter(|(other, shared)| {
            !copies.contains(other)
                && shared.weight >= WEIGHT_MIN
                && shared.files.len() * 2 + shared.topics.len() >= 2
        })
        .collect();
    others.sort_by(|a, b| b.1.weight.total_cmp(&a.1.weight).then(b.0.cmp(&a.0)));
    for (other, shared) in others.into_iter().take(LINKS_MAX) {
        let reasons: Vec<String> = [("changed ", &shared.files), ("about ", &shared.topics)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| {
                let more = names.len().saturating_sub(NAMED_MAX);
                let named = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
                if more > 0 { format!("{what}{named} and {more} more") } else { format!("{what}{named}") }
            })
            .collect();
        let weight = shared.weight / (1.0 + shared.weight);
        let (source, target) = (session.max(other), session.min(other));
        add(
            transaction,
            session,
            source,
            "related_to",
            target,
            weight,
            &format!("both {}", reasons.join("; ")),
        )?;
    }
    Ok(())
}

fn column(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<i64>, Error> {
    Ok(connection.prepare_cached(sql)?.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn spread(sessions: &[i64], session: i64, weight: f64, mut add: impl FnMut(i64, f64)) {
    if (sessions.len() as i64) < COMMON_FROM {
        let weight = weight / sessions.len() as f64;
        sessions.iter().filter(|other| **other != session).for_each(|other| add(*other, weight));
    }
}
