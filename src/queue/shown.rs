//! What sessions were shown, until the archive has it: written by hooks and servers, which wait for nobody, and moved by
//! the learning actor once the session is archived.
//!
//! Each time that something is shown is one row, so that a hook writes once and all or nothing. The rows are bounded by
//! age and by number: sessions that are never archived leave none behind.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use knowledge::UnitId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::schema::{self, BusyTimeout};
use crate::store::{Queue, timestamp};

/// A session that ended longer ago is not archived any more: the client has deleted its transcript.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The most rows; with a question each has about 8 KiB, so that all together stay below 20 MiB.
const ROWS_MAX: i64 = 2_000;
/// The most items of one showing, and the longest id.
const ITEMS_MAX: usize = 64;
const ID_BYTES_MAX: usize = 300;

/// What showed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShownBy {
    /// The hook at the start of a session, and after a compaction.
    SessionStart,
    /// The hook at a prompt.
    Prompt,
    /// The hook before an action and after a failed one.
    Guard,
    /// The server's tool, or `nugget ask` within a session.
    Tool,
}

impl ShownBy {
    const ALL: [Self; 4] = [Self::SessionStart, Self::Prompt, Self::Guard, Self::Tool];

    /// Its name in tables and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => "session-start",
            Self::Prompt => "prompt",
            Self::Guard => "guard",
            Self::Tool => "tool",
        }
    }

    fn parse(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|by| by.as_str() == name);
        found.ok_or_else(|| Error::Value { what: format!("source {name:?}") })
    }
}

/// What kind of knowledge was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownKind {
    /// A reviewed unit of the brain.
    #[default]
    Unit,
    /// A topic memory of the archive.
    Memory,
}

impl ShownKind {
    /// Its name in tables and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Memory => "memory",
        }
    }
}

/// One item that was shown, or would have been but for the hold-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its kind.
    pub kind: ShownKind,
    /// The id of the unit or the memory.
    pub id: String,
    /// Its place, from 0.
    pub rank: usize,
    /// The probability that it was shown: 1 without exploration.
    pub propensity: f64,
    /// About so many tokens.
    pub tokens: usize,
    /// Whether it was held back to measure whether it helps.
    #[serde(default)]
    pub is_withheld: bool,
}

impl Shown {
    /// A memory, by its number in the archive; `rank` is the one that it is shown with.
    pub fn memory(number: i64, rank: usize, tokens: usize) -> Self {
        let id = UnitId::from_memory(number).to_string();
        Self { kind: ShownKind::Memory, id, rank, propensity: 1.0, tokens, is_withheld: false }
    }

    /// A unit that no exploration drew: its propensity is 1, whether it is withheld or not.
    pub fn unit(id: &str, rank: usize, tokens: usize, is_withheld: bool) -> Self {
        Self { kind: ShownKind::Unit, id: id.to_owned(), rank, propensity: 1.0, tokens, is_withheld }
    }
}

/// One time that a session was shown something.
#[derive(Clone, Debug, PartialEq)]
pub struct Showing {
    /// A random number by which the archive knows it again, whatever queue it comes from.
    pub key: i64,
    /// What showed it.
    pub by: ShownBy,
    /// The client's id of the session, where it is known.
    pub session: Option<String>,
    /// The client's id of the tool call that it answers.
    pub tool_use: Option<String>,
    /// When.
    pub at: Timestamp,
    /// In the order shown.
    pub items: Vec<Shown>,
    /// The question with its candidates, as [`Question::to_bytes`](crate::Question::to_bytes) writes it.
    pub question: Option<Vec<u8>>,
}

impl Showing {
    /// By a hook, to a session.
    pub fn by_hook(by: ShownBy, session: &str, at: Timestamp, items: Vec<Shown>) -> Self {
        let session = Some(session.to_owned());
        Self { key: random_key(), by, session, tool_use: None, at, items, question: None }
    }

    /// By the tool. `session` and `tool_use` are what the client says of the call.
    pub fn by_tool(
        session: Option<String>,
        tool_use: Option<String>,
        at: Timestamp,
        items: Vec<Shown>,
        question: Option<Vec<u8>>,
    ) -> Self {
        Self { key: random_key(), by: ShownBy::Tool, session, tool_use, at, items, question }
    }

    pub(crate) fn record(&self, connection: &mut Connection) -> Result<(), Error> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.insert(&transaction)?;
        Ok(transaction.commit()?)
    }

    fn insert(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let items: Vec<&Shown> =
            self.items.iter().filter(|item| item.id.len() <= ID_BYTES_MAX).take(ITEMS_MAX).collect();
        if items.is_empty() {
            return Ok(());
        }
        let body = serde_json::to_string(&items).unwrap_or_default();
        transaction.execute(
            "INSERT OR IGNORE INTO shown (key, source, session, tool_use, at_ms, items, question)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                self.key,
                self.by.as_str(),
                self.session,
                self.tool_use,
                self.at.as_millisecond(),
                body,
                self.question
            ],
        )?;
        transaction.execute(
            "DELETE FROM shown WHERE at_ms < ?1 OR id <= (SELECT max(id) FROM shown) - ?2",
            params![(self.at - KEPT_FOR).as_millisecond(), ROWS_MAX],
        )?;
        Ok(())
    }
}

fn random_key() -> i64 {
    fastrand::i64(..)
}

/// Records what a hook shows, with a connection of its own.
///
/// # Errors
/// When the queue cannot be written, as while another process keeps it locked.
pub fn record_shown(path: &Path, showing: &Showing) -> Result<(), Error> {
    showing.record(&mut schema::open(path, BusyTimeout::Hook)?)
}

impl Queue {
    /// Records what a server's answer shows.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn record_shown(&self, showing: &Showing) -> Result<(), Error> {
        self.write(|transaction| showing.insert(transaction))
    }

    /// What sessions were shown and the archive does not have yet, the oldest first, each with its number here.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn showings(&self, after: i64, limit: usize) -> Result<Vec<(i64, Showing)>, Error> {
        let sql = "SELECT id, key, source, session, tool_use, at_ms, items, question FROM shown
            WHERE id > ?1 ORDER BY id LIMIT ?2";
        self.query(sql, params![after, limit as i64], |row| {
            let items: String = row.get(6)?;
            let items = serde_json::from_str(&items)
                .map_err(|_| Error::Value { what: "what a session was shown".to_owned() })?;
            let showing = Showing {
                key: row.get(1)?,
                by: ShownBy::parse(row.get_ref(2)?.as_str().unwrap_or_default())?,
                session: row.get(3)?,
                tool_use: row.get(4)?,
                at: timestamp(row.get(5)?)?,
                items,
                question: row.get(7)?,
            };
            Ok((row.get(0)?, showing))
        })
    }

    /// How often sessions were shown something that the archive does not have yet.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn showings_count(&self) -> Result<u64, Error> {
        self.count("SELECT count(*) FROM shown")
    }

    /// Deletes what the archive has.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn delete_showings(&self, numbers: &[i64]) -> Result<(), Error> {
        self.write(|transaction| {
            let mut delete = transaction.prepare_cached("DELETE FROM shown WHERE id = ?1")?;
            numbers.iter().try_for_each(|number| delete.execute([number]).map(drop))?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestQueue;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn told(session: &str, second: i64) -> Showing {
        Showing::by_hook(ShownBy::Guard, session, at(second), vec![Shown::unit("a", 0, 12, false)])
    }

    #[test]
    fn what_was_recorded_is_read_and_deleted_once() {
        let test = TestQueue::new();
        let mut asked = Showing::by_tool(None, Some("toolu_1".into()), at(5), Vec::new(), Some(vec![7, 8]));
        asked.items =
            vec![Shown::unit("b", 0, 40, true), Shown { propensity: 0.25, ..Shown::unit("c", 1, 3, false) }];
        for showing in [&told("s", 1), &asked, &asked] {
            record_shown(test.queue.path(), showing).unwrap();
        }
        let found = test.queue.showings(0, 10).unwrap();
        assert_eq!(found.len(), 2, "the same showing is one row");
        assert_eq!(found[1].1, asked);
        assert_eq!(test.queue.showings(found[0].0, 10).unwrap(), found[1..]);
        assert_eq!(test.queue.showings_count().unwrap(), 2);
        test.queue.delete_showings(&[found[0].0]).unwrap();
        assert_eq!(test.queue.showings(0, 10).unwrap(), found[1..]);
    }

    #[test]
    fn rows_are_bounded_by_age_and_number() {
        let test = TestQueue::new();
        record_shown(test.queue.path(), &told("old", 0)).unwrap();
        record_shown(test.queue.path(), &told("new", 31 * 24 * 3600)).unwrap();
        let sessions: Vec<_> =
            test.queue.showings(0, 10).unwrap().into_iter().map(|(_, showing)| showing.session).collect();
        assert_eq!(sessions, [Some("new".to_owned())]);
        let insert = |transaction: &Transaction<'_>| {
            let mut numbers = (0..ROWS_MAX + 5).map(|number| number.to_string());
            numbers.try_for_each(|session| told(&session, 31 * 24 * 3600).insert(transaction))
        };
        test.queue.write(insert).unwrap();
        assert_eq!(test.queue.showings(0, 10_000).unwrap().len() as i64, ROWS_MAX);
    }

    #[test]
    fn nothing_or_an_endless_id_is_no_row() {
        let test = TestQueue::new();
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for items in [Vec::new(), vec![Shown::unit(&long, 0, 1, false)]] {
            record_shown(test.queue.path(), &Showing { items, ..told("s", 0) }).unwrap();
        }
        assert_eq!(test.queue.showings(0, 10).unwrap(), []);
    }
}
