//! What sessions were shown and what they used of it, and what was learned from that: for each brain and project.
//!
//! Judgements have revisions, numbers that only grow. Weights say up to which one they have learned, in the row that has
//! them, so that one transaction replaces both or neither.

use std::collections::BTreeSet;

use jiff::Timestamp;
use queue::Showing;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use crate::error::Error;
use crate::sessions::{COLUMNS, Session, read_session, time};
use crate::store::Archive;

/// How far the clocks of a session's messages and of what was shown may be apart.
const SLACK_MS: i64 = 5_000;
/// Questions that a project learns from, the newest. A step on one takes 0.3 ms at 384 dimensions.
const QUESTIONS_MAX: i64 = 1_000;
/// The scope of weights that were learned from all projects.
pub const SHARED_SCOPE: &str = "*";

/// An item that an archived session was shown, or that was withheld from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchivedShown {
    /// Its number in this archive.
    pub row: i64,
    /// The time that it was shown with others: [`Showing::key`].
    pub event: i64,
    /// What showed it: `session-start`, `prompt`, `guard`, `tool`.
    pub by: String,
    /// The tool call that it answers.
    pub tool_use: Option<String>,
    /// `unit` or `memory`.
    pub kind: String,
    /// A unit's id.
    pub item: String,
    /// Its place, from 0.
    pub rank: u32,
    /// When.
    pub at: Timestamp,
    /// Whether it was withheld.
    pub is_withheld: bool,
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// The item's number: [`ArchivedShown::row`].
    pub shown: i64,
    /// `used`, `contradicted`, `ignored`; of what was withheld `withheld`.
    pub outcome: String,
    /// Why, as JSON; redacted, as the session is.
    pub evidence: String,
    /// Whether a failure that the item names happened afterwards; `None` if it names none.
    pub has_failed: Option<bool>,
}

/// A question that a project's sessions asked, with what was shown for it.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedQuestion {
    /// The session's number in this archive.
    pub session: i64,
    /// The question with its candidates: [`queue::Question::from_bytes`] reads it.
    pub body: Vec<u8>,
    /// What was shown in its order: the id, the propensity and the outcome.
    pub shown: Vec<(String, f64, String)>,
}

/// A project, or all of them, whose feedback has changed since its weights were learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedScope {
    /// The project's key, or [`SHARED_SCOPE`].
    pub scope: String,
    /// The latest revision of its judgements.
    pub revision: i64,
    /// Judged questions.
    pub questions: u64,
    /// The version of the present weights; 0 without any.
    pub version: i64,
}

/// What was learned for a project.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Grows by one with each replacement.
    pub version: i64,
    /// The embedding model.
    pub model: String,
    /// Of its vectors.
    pub dimensions: usize,
    /// The learner whose weights are live; empty if none is.
    pub learner: String,
    /// The revision of the last judgement that it has learned from.
    pub applied_through: i64,
    /// The judged questions of that time, of which the newest were learned from.
    pub questions: u64,
    /// The weights with their own checksum; empty if the base order stays.
    pub body: Vec<u8>,
    /// How each learner fared, as JSON.
    pub report: String,
    /// When it was learned.
    pub learned: Timestamp,
}

impl Learned {
    /// How many questions were learned from.
    pub fn questions_used(&self) -> u64 {
        self.questions.min(QUESTIONS_MAX.unsigned_abs())
    }
}

/// What became of what sessions proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtractionOutcome {
    /// The proposal's branch.
    pub branch: String,
    /// The file; empty for the whole branch.
    pub path: String,
    /// `merged`, `rejected`, `closed`.
    pub outcome: String,
}

/// How often units were shown and used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownUnit {
    /// Its id.
    pub item: String,
    /// Sessions that were shown it.
    pub sessions: u64,
    /// Those that used it.
    pub used: u64,
    /// Those that contradicted it.
    pub contradicted: u64,
    /// Tokens spent on it.
    pub tokens: u64,
    /// Sessions that were shown it, where it names a failure.
    pub with_failure: u64,
    /// Those in which that happened afterwards.
    pub failed: u64,
    /// Sessions that it was withheld from and not shown in.
    pub withheld: u64,
}

/// The units that name a failure, in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFailures {
    /// How many it was shown.
    pub shown: u64,
    /// Those whose failure happened afterwards.
    pub failed: u64,
    /// How many were withheld from it.
    pub withheld: u64,
    /// Those whose failure happened afterwards.
    pub withheld_failed: u64,
}

/// How sessions have used a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// Its id.
    pub item: String,
    /// Sessions that were shown it.
    pub sessions: u32,
    /// Those that used it.
    pub used: u32,
    /// When a session was last shown it.
    pub last: Timestamp,
}

impl Archive {
    /// The archived session that was shown something: the one with the tool call that it answers, else the one that the
    /// client named, once it is archived up to that time.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn session_shown(&self, showing: &Showing) -> Result<Option<Session>, Error> {
        let connection = self.connection()?;
        let at = showing.at.as_millisecond();
        if let Some(tool_use) = &showing.tool_use {
            let sql = format!(
                "SELECT {COLUMNS} FROM sessions s WHERE s.ended_ms >= ?2 - ?3 AND s.started_ms <= ?2 + ?3
                    AND EXISTS (SELECT 1 FROM tool_uses t WHERE t.session = s.id AND t.tool_id = ?1)
                ORDER BY s.id LIMIT 1"
            );
            let params = params![tool_use, at, SLACK_MS];
            return Ok(connection.prepare_cached(&sql)?.query_row(params, read_session).optional()?);
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.session = ?1 AND s.ended_ms >= ?2 - ?3 LIMIT 1"
        );
        let params = params![showing.session, at, SLACK_MS];
        Ok(connection.prepare_cached(&sql)?.query_row(params, read_session).optional()?)
    }

    /// Keeps what sessions were shown, and of each project's questions the newest thousand. What is known already is left as
    /// it is, so that it may be given again. Returns how many items are new.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn add_shown(&self, brain: &str, showings: &[(Session, Showing)]) -> Result<usize, Error> {
        self.write(|transaction| {
            let shown = "INSERT OR IGNORE INTO shown (event, brain, project, session, tool_use, source, kind, item,
                    rank, propensity, tokens, is_withheld, at_ms)
                SELECT ?1, ?2, project, id, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM sessions WHERE id = ?3";
            let mut shown = transaction.prepare_cached(shown)?;
            let question = "INSERT OR IGNORE INTO questions (event, brain, project, session, at_ms, body)
                SELECT ?1, ?2, project, id, ?4, ?5 FROM sessions WHERE id = ?3";
            let mut question = transaction.prepare_cached(question)?;
            let (mut added, mut asked_in) = (0, BTreeSet::new());
            for (session, showing) in showings {
                let at = showing.at.as_millisecond();
                for item in &showing.items {
                    added += shown.execute(params![
                        showing.key,
                        brain,
                        session.row,
                        showing.tool_use,
                        showing.by.as_str(),
                        item.kind.as_str(),
                        item.id,
                        item.rank as i64,
                        item.propensity,
                        item.tokens as i64,
                        item.is_withheld,
                        at
                    ])?;
                }
                if let Some(body) = &showing.question {
                    question.execute(params![showing.key, brain, session.row, at, body])?;
                    asked_in.insert(&session.project);
                }
            }
            let surplus = "DELETE FROM questions WHERE event IN (SELECT event FROM questions
                WHERE brain = ?1 AND project = ?2 ORDER BY at_ms DESC, event LIMIT -1 OFFSET ?3)";
            let mut surplus = transaction.prepare_cached(surplus)?;
            for project in asked_in {
                surplus.execute(params![brain, project, QUESTIONS_MAX])?;
            }
            Ok(added)
        })
    }

    /// Sessions of which something that they were shown was not judged yet, or that have grown since; the oldest first.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn unjudged(&self, brain: &str, limit: usize) -> Result<Vec<Session>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM sessions s WHERE s.id IN (
                SELECT w.session FROM shown w JOIN sessions o ON o.id = w.session
                LEFT JOIN citations c ON c.shown = w.id
                WHERE w.brain = ?1 AND (c.shown IS NULL OR c.messages <> o.messages))
            ORDER BY s.id LIMIT ?2"
        );
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(&sql)?;
        Ok(statement.query_map(params![brain, limit as i64], read_session)?.collect::<Result<_, _>>()?)
    }

    /// What a session was shown, in order.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn shown_in(&self, brain: &str, session: &Session) -> Result<Vec<ArchivedShown>, Error> {
        let sql = "SELECT id, event, source, tool_use, kind, item, rank, at_ms, is_withheld FROM shown
            WHERE brain = ?1 AND session = ?2 ORDER BY at_ms, event, rank";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            Ok(ArchivedShown {
                row: row.get(0)?,
                event: row.get(1)?,
                by: row.get(2)?,
                tool_use: row.get(3)?,
                kind: row.get(4)?,
                item: row.get(5)?,
                rank: row.get(6)?,
                at: time(row.get(7)?).unwrap_or_default(),
                is_withheld: row.get(8)?,
            })
        };
        Ok(statement.query_map(params![brain, session.row], read)?.collect::<Result<_, _>>()?)
    }

    /// Keeps what became of what a session was shown, judged by all that it had when `session` was read. A judgement that
    /// differs from the one before takes its place, with a new revision.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn store_citations(
        &self,
        session: &Session,
        citations: &[Citation],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            let mut revision = latest_revision(transaction)?;
            let sql = "INSERT INTO citations SELECT id, ?2, ?3, ?4, ?5, ?6, ?7 FROM shown WHERE id = ?1
                ON CONFLICT DO UPDATE SET evidence = ?3, has_failed = ?4, messages = ?5, judged_ms = ?7,
                    revision = iif(outcome = ?2, revision, ?6), outcome = ?2";
            let mut insert = transaction.prepare_cached(sql)?;
            for citation in citations {
                revision += 1;
                insert.execute(params![
                    citation.shown,
                    citation.outcome,
                    citation.evidence,
                    citation.has_failed,
                    session.messages as i64,
                    revision,
                    now.as_millisecond()
                ])?;
            }
            Ok(())
        })
    }

    /// The projects whose judged questions are not those that their weights have learned from; with `is_shared` also
    /// [`SHARED_SCOPE`].
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn changed_scopes(&self, brain: &str, is_shared: bool) -> Result<Vec<ChangedScope>, Error> {
        let connection = self.connection()?;
        let sql = "SELECT q.project, max(c.revision), count(DISTINCT q.event) FROM questions q
            JOIN shown w ON w.event = q.event JOIN citations c ON c.shown = w.id
            WHERE q.brain = ?1 GROUP BY q.project ORDER BY q.project";
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            Ok(ChangedScope { scope: row.get(0)?, revision: row.get(1)?, questions: row.get(2)?, version: 0 })
        };
        let mut scopes: Vec<ChangedScope> = statement.query_map([brain], read)?.collect::<Result<_, _>>()?;
        if is_shared && !scopes.is_empty() {
            scopes.push(ChangedScope {
                scope: SHARED_SCOPE.to_owned(),
                revision: scopes.iter().map(|scope| scope.revision).max().unwrap_or(0),
                questions: scopes.iter().map(|scope| scope.questions).sum(),
                version: 0,
            });
        }
        // Of a project without a judged question nothing may be left, as after sessions were forgotten.
        let learned = "SELECT scope FROM weights WHERE brain = ?1 AND questions > 0";
        let mut statement = connection.prepare_cached(learned)?;
        let learned: Vec<String> =
            statement.query_map([brain], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for scope in learned {
            if scopes.iter().all(|known| known.scope != scope) && (is_shared || scope != SHARED_SCOPE) {
                scopes.push(ChangedScope { scope, revision: 0, questions: 0, version: 0 });
            }
        }
        let present =
            "SELECT version, applied_through, questions FROM weights WHERE brain = ?1 AND scope = ?2";
        let mut present = connection.prepare_cached(present)?;
        let mut changed = Vec::new();
        for scope in scopes {
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, u64>(2)?));
            let found = present.query_row(params![brain, scope.scope], read).optional()?;
            let (version, applied_through, questions) = found.unwrap_or((0, 0, 0));
            if (scope.revision, scope.questions) != (applied_through, questions) {
                changed.push(ChangedScope { version, ..scope });
            }
        }
        Ok(changed)
    }

    /// The judged questions of a project, or of all with [`SHARED_SCOPE`]: the newest thousand, the oldest first.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn judged_questions(&self, brain: &str, scope: &str) -> Result<Vec<JudgedQuestion>, Error> {
        let connection = self.connection()?;
        let sql = "SELECT event, session, body FROM (
                SELECT q.event, q.session, q.body, q.at_ms FROM questions q
                WHERE q.brain = ?1 AND (q.project = ?2 OR ?2 = ?3)
                    AND EXISTS (SELECT 1 FROM shown w JOIN citations c ON c.shown = w.id WHERE w.event = q.event)
                ORDER BY q.at_ms DESC, q.event LIMIT ?4)
            ORDER BY at_ms, event";
        let mut statement = connection.prepare_cached(sql)?;
        let params = params![brain, scope, SHARED_SCOPE, QUESTIONS_MAX];
        let mut rows = statement.query(params)?;
        let shown = "SELECT w.item, w.propensity, c.outcome FROM shown w JOIN citations c ON c.shown = w.id
            WHERE w.event = ?1 AND NOT w.is_withheld ORDER BY w.rank";
        let mut shown = connection.prepare_cached(shown)?;
        let mut questions = Vec::new();
        while let Some(row) = rows.next()? {
            let event: i64 = row.get(0)?;
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let shown = shown.query_map([event], read)?.collect::<Result<_, _>>()?;
            questions.push(JudgedQuestion { session: row.get(1)?, body: row.get(2)?, shown });
        }
        Ok(questions)
    }

    /// Replaces what was learned for a scope, unless another process has done so since `before` was read. Returns whether
    /// it did.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn replace_learned(
        &self,
        brain: &str,
        before: &ChangedScope,
        learned: &Learned,
    ) -> Result<bool, Error> {
        self.write(|transaction| {
            let sql = "SELECT version FROM weights WHERE brain = ?1 AND scope = ?2";
            let version: Option<i64> =
                transaction.query_row(sql, params![brain, before.scope], |row| row.get(0)).optional()?;
            if version.unwrap_or(0) != before.version {
                return Ok(false);
            }
            let checksum = learned.body.last_chunk::<32>().map(|checksum| checksum.to_vec());
            transaction.execute(
                "INSERT OR REPLACE INTO weights (brain, scope, version, model, dimensions, learner, checksum,
                    applied_through, questions, body, report, learned_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                params![
                    brain,
                    before.scope,
                    before.version + 1,
                    learned.model,
                    learned.dimensions as i64,
                    learned.learner,
                    checksum,
                    learned.applied_through,
                    learned.questions as i64,
                    learned.body,
                    learned.report,
                    learned.learned.as_millisecond()
                ],
            )?;
            Ok(true)
        })
    }

    /// The version of the live weights of a scope; `None` if the base order stays.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn live_version(&self, brain: &str, scope: &str) -> Result<Option<i64>, Error> {
        let sql = "SELECT version FROM weights WHERE brain = ?1 AND scope = ?2 AND learner <> ''";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement.query_row(params![brain, scope], |row| row.get(0)).optional()?)
    }

    /// What was learned for a scope.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn learned(&self, brain: &str, scope: &str) -> Result<Option<Learned>, Error> {
        let sql =
            "SELECT version, model, dimensions, learner, applied_through, questions, body, report, learned_ms
            FROM weights WHERE brain = ?1 AND scope = ?2";
        let connection = self.connection()?;
        let read = |row: &Row<'_>| {
            Ok(Learned {
                version: row.get(0)?,
                model: row.get(1)?,
                dimensions: row.get(2)?,
                learner: row.get(3)?,
                applied_through: row.get(4)?,
                questions: row.get(5)?,
                body: row.get(6)?,
                report: row.get(7)?,
                learned: time(row.get(8)?).unwrap_or_default(),
            })
        };
        Ok(connection.prepare_cached(sql)?.query_row(params![brain, scope], read).optional()?)
    }

    /// How often each outcome was found in a project, or in all with [`SHARED_SCOPE`].
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn citation_counts(&self, brain: &str, scope: &str) -> Result<Vec<(String, u64)>, Error> {
        let sql = "SELECT c.outcome, count(*) FROM shown w JOIN citations c ON c.shown = w.id
            WHERE w.brain = ?1 AND (w.project = ?2 OR ?2 = ?3) GROUP BY c.outcome ORDER BY c.outcome";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let params = params![brain, scope, SHARED_SCOPE];
        let rows = statement.query_map(params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Deletes what was learned for a project and the questions that it learned from, or for all projects of the brain.
    /// Receipts stay. Returns how many questions there were.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn reset_learned(&self, brain: &str, project: Option<&str>) -> Result<usize, Error> {
        self.write(|transaction| {
            // What was learned from all projects has learned from this one, too.
            transaction.execute(
                "DELETE FROM weights WHERE brain = ?1 AND (?2 IS NULL OR scope IN (?2, ?3))",
                params![brain, project, SHARED_SCOPE],
            )?;
            let sql = "DELETE FROM questions WHERE brain = ?1 AND (?2 IS NULL OR project = ?2)";
            Ok(transaction.execute(sql, params![brain, project])?)
        })
    }

    /// Keeps what became of what sessions proposed, in place of what was known of the same files.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn store_extraction_feedback(
        &self,
        brain: &str,
        outcomes: &[ExtractionOutcome],
        now: Timestamp,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            let sql = "INSERT INTO extraction_feedback VALUES (?1, ?2, ?3, ?4, ?5)
                ON CONFLICT DO UPDATE SET outcome = ?4, at_ms = ?5 WHERE outcome <> ?4";
            let mut insert = transaction.prepare_cached(sql)?;
            for ExtractionOutcome { branch, path, outcome } in outcomes {
                insert.execute(params![brain, branch, path, outcome, now.as_millisecond()])?;
            }
            Ok(())
        })
    }

    /// What became of what sessions proposed: each outcome, and how many files or branches have it.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn extraction_outcomes(&self, brain: &str) -> Result<Vec<(String, u64)>, Error> {
        let sql = "SELECT outcome, count(*) FROM extraction_feedback WHERE brain = ?1 GROUP BY outcome ORDER BY outcome";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([brain], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What sessions were told since a time, by unit, the most told first. A session counts once for a unit. Where a unit
    /// was both withheld from a session and shown to it, it counts as shown, and not as withheld.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn shown_units(&self, brain: &str, since: Timestamp) -> Result<Vec<ShownUnit>, Error> {
        let sql = "WITH told AS (
                SELECT w.item, w.session, min(w.is_withheld) AS withheld,
                    max(c.outcome = 'used') AS used, max(c.outcome = 'contradicted') AS contradicted,
                    sum(iif(w.is_withheld, 0, w.tokens)) AS tokens, max(c.has_failed) AS failed
                FROM shown w JOIN citations c ON c.shown = w.id
                WHERE w.brain = ?1 AND w.at_ms >= ?2 GROUP BY w.item, w.session)
            SELECT item, sum(NOT withheld), sum(NOT withheld AND used), sum(NOT withheld AND contradicted), sum(tokens),
                sum(NOT withheld AND failed IS NOT NULL), sum(NOT withheld AND coalesce(failed, 0)), sum(withheld)
            FROM told GROUP BY item ORDER BY 2 DESC, item";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            Ok(ShownUnit {
                item: row.get(0)?,
                sessions: row.get(1)?,
                used: row.get(2)?,
                contradicted: row.get(3)?,
                tokens: row.get(4)?,
                with_failure: row.get(5)?,
                failed: row.get(6)?,
                withheld: row.get(7)?,
            })
        };
        Ok(statement.query_map(params![brain, since.as_millisecond()], read)?.collect::<Result<_, _>>()?)
    }

    /// Of each session the units that name a failure, since a time and since the first unit was withheld: before, no session
    /// could be one of both sides.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn failures_by_session(&self, brain: &str, since: Timestamp) -> Result<Vec<SessionFailures>, Error> {
        let sql = "WITH told AS (
                SELECT w.session, min(w.is_withheld) AS withheld, max(c.has_failed) AS failed
                FROM shown w JOIN citations c ON c.shown = w.id
                WHERE w.brain = ?1 AND w.at_ms >= ?2
                    AND w.at_ms >= (SELECT min(at_ms) FROM shown WHERE brain = ?1 AND is_withheld)
                GROUP BY w.item, w.session HAVING max(c.has_failed) IS NOT NULL)
            SELECT sum(NOT withheld), sum(NOT withheld AND failed), sum(withheld), sum(withheld AND failed)
            FROM told GROUP BY session ORDER BY session";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let read = |row: &Row<'_>| {
            let (shown, failed, withheld) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(SessionFailures { shown, failed, withheld, withheld_failed: row.get(3)? })
        };
        Ok(statement.query_map(params![brain, since.as_millisecond()], read)?.collect::<Result<_, _>>()?)
    }

    /// How sessions have used each unit, from all that is recorded. What was withheld does not count.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn recalls(&self, brain: &str) -> Result<Vec<Recalled>, Error> {
        let sql = "SELECT w.item, count(DISTINCT w.session),
                count(DISTINCT iif(c.outcome = 'used', w.session, NULL)), max(w.at_ms)
            FROM shown w LEFT JOIN citations c ON c.shown = w.id
            WHERE w.brain = ?1 AND NOT w.is_withheld GROUP BY w.item";
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([brain], |row| {
            let last: i64 = row.get(3)?;
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, last))
        })?;
        rows.map(|row| {
            let (item, sessions, used, last) = row?;
            Ok(Recalled { item, sessions, used, last: Timestamp::from_millisecond(last).unwrap_or_default() })
        })
        .collect()
    }

    /// Since when it is recorded what sessions are shown; `None` if nothing is.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn recalls_since(&self, brain: &str) -> Result<Option<Timestamp>, Error> {
        let sql = "SELECT min(at_ms) FROM shown WHERE brain = ?1";
        let first: Option<i64> =
            self.connection()?.prepare_cached(sql)?.query_row([brain], |row| row.get(0))?;
        Ok(first.and_then(|first| Timestamp::from_millisecond(first).ok()))
    }

    /// How many sessions were shown anything since a time that was judged, and how many items were shown by each source.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn sessions_shown_units(
        &self,
        brain: &str,
        since: Timestamp,
    ) -> Result<(u64, Vec<(String, u64)>), Error> {
        let connection = self.connection()?;
        let params = params![brain, since.as_millisecond()];
        let sql = "SELECT count(DISTINCT w.session) FROM shown w JOIN citations c ON c.shown = w.id
             WHERE w.brain = ?1 AND w.at_ms >= ?2 AND NOT w.is_withheld";
        let sessions = connection.prepare_cached(sql)?.query_row(params, |row| row.get(0))?;
        let sql = "SELECT source, count(*) FROM shown WHERE brain = ?1 AND at_ms >= ?2 AND NOT is_withheld
            GROUP BY source ORDER BY source";
        let mut statement = connection.prepare_cached(sql)?;
        let by = statement.query_map(params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok((sessions, by.collect::<Result<_, _>>()?))
    }
}

/// The number of the last judgement, which is never used again: weights may have learned from one that is deleted.
fn latest_revision(connection: &Connection) -> Result<i64, Error> {
    let sql = "SELECT max(coalesce((SELECT max(revision) FROM citations), 0),
        coalesce((SELECT max(applied_through) FROM weights), 0))";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Deletes what a session was shown. What was learned from it is learned again without it.
pub(crate) fn delete_of_session(transaction: &Transaction<'_>, session: i64) -> Result<(), Error> {
    let citations = "DELETE FROM citations WHERE shown IN (SELECT id FROM shown WHERE session = ?1)";
    transaction.execute(citations, [session])?;
    for table in ["shown", "questions"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE session = ?1"), [session])?;
    }
    Ok(())
}
