//! What a person has decided about the items of branches, and what was rejected, so that it is not proposed again.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use crate::proposals::{read_vector, write_vector};
use crate::store::{Queue, timestamp};
use crate::{Capture, EarlierProposal, Error};

/// What was decided about a file of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is on the default branch, as it was proposed or edited.
    Merged,
    /// It is not wanted.
    Rejected {
        /// Why, in the person's words.
        because: Option<String>,
    },
    /// It is to be shown again at this time.
    Later {
        /// When.
        until: Timestamp,
    },
}

/// The decision about one file of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDecision {
    /// The branch.
    pub branch: String,
    /// The file's path.
    pub path: String,
    /// What was decided.
    pub decision: Decision,
}

/// A file of a branch that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The branch.
    pub branch: String,
    /// The file's path.
    pub path: String,
    /// Why, in the person's words.
    pub because: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The unit's title, if it was remembered with the rejection.
    pub title: Option<String>,
    /// The commit of the branch's last capture, if that is recorded.
    pub commit: Option<String>,
}

/// The name under which the decisions about a branch are kept with its capture once another branch has its name. No branch
/// has such a name.
pub fn ended_branch(branch: &str, capture: i64) -> String {
    format!("{branch}~{capture}")
}

impl Queue {
    /// All decisions about the files of branches. Those of a branch are kept when it is deleted.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn decisions(&self) -> Result<Vec<FileDecision>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT branch, path, decision, because, until_ms FROM decisions ORDER BY branch, path",
        )?;
        let mut rows = statement.query([])?;
        let mut decisions = Vec::new();
        while let Some(row) = rows.next()? {
            let decision = match row.get::<_, String>(2)?.as_str() {
                "merged" => Decision::Merged,
                "rejected" => Decision::Rejected { because: row.get(3)? },
                "later" => Decision::Later { until: timestamp(row.get(4)?)? },
                other => {
                    return Err(Error::Value { what: format!("decision {other:?}") });
                }
            };
            decisions.push(FileDecision { branch: row.get(0)?, path: row.get(1)?, decision });
        }
        Ok(decisions)
    }

    /// What became of what captures proposed: each branch's file that a person decided about, and each branch whose pull
    /// request was merged or closed as a whole, with an empty path.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn proposal_outcomes(&self) -> Result<Vec<(String, String, String)>, Error> {
        let sql = "SELECT branch, path, decision FROM decisions
                WHERE decision IN ('merged', 'rejected') AND instr(branch, '~') = 0
            UNION ALL SELECT branch, '', pull_state FROM captures
                WHERE branch IS NOT NULL AND pull_state IN ('merged', 'closed') ORDER BY 1, 2";
        self.query(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    /// Records a decision about files of a branch, in place of an earlier one.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn decide(
        &self,
        branch: &str,
        paths: &[&str],
        decision: &Decision,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (word, because, until) = match decision {
            Decision::Merged => ("merged", None, None),
            Decision::Rejected { because } => ("rejected", because.as_deref(), None),
            Decision::Later { until } => ("later", None, Some(until.as_millisecond())),
        };
        self.write(|transaction| {
            let mut statement = transaction
                .prepare_cached("INSERT OR REPLACE INTO decisions VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            for path in paths {
                statement.execute(params![branch, path, word, because, until, now.as_millisecond()])?;
            }
            Ok(())
        })
    }

    /// Forgets what was decided about files of a branch that say something else now.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn forget_decisions(&self, branch: &str, paths: &[&str]) -> Result<(), Error> {
        self.write(|transaction| {
            let mut statement =
                transaction.prepare_cached("DELETE FROM decisions WHERE branch = ?1 AND path = ?2")?;
            for path in paths {
                statement.execute(params![branch, path])?;
            }
            Ok(())
        })
    }

    /// Ends the captures of a branch that is merged or gone as merged: a new branch of that name has nothing to do with it.
    /// What was decided about it stays with its last capture alone, under [`ended_branch`].
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn forget_branch(&self, branch: &str, now: Timestamp) -> Result<(), Error> {
        self.write(|transaction| {
            let last: Option<i64> =
                transaction.query_row("SELECT max(id) FROM captures WHERE branch = ?1", [branch], |row| {
                    row.get(0)
                })?;
            if let Some(last) = last {
                transaction.execute(
                    "UPDATE OR REPLACE decisions SET branch = ?2 WHERE branch = ?1",
                    params![branch, ended_branch(branch, last)],
                )?;
            }
            transaction.execute("DELETE FROM decisions WHERE branch = ?1", [branch])?;
            transaction.execute(
                "UPDATE captures SET pull_state = 'merged', outcome = 'done', claim = NULL, reason = NULL,
                     finished_ms = coalesce(finished_ms, ?2)
                 WHERE branch = ?1 AND coalesce(pull_state, 'open') = 'open'",
                params![branch, now.as_millisecond()],
            )?;
            Ok(())
        })
    }

    /// Records that a unit, or what a branch adds to it, was rejected. It outlives the capture's record.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn remember_rejected(
        &self,
        branch: &str,
        unit: &str,
        title: &str,
        because: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            let mut insert = transaction
                .prepare_cached("INSERT OR REPLACE INTO rejected VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            let mut known: Vec<(String, String, Vec<u8>)> = Vec::new();
            for query in [
                "SELECT title, model, vector FROM names WHERE name = ?1 AND title <> ''
                 AND capture_id IN (SELECT id FROM captures WHERE branch = ?2)",
                "SELECT title, model, vector FROM additions WHERE unit = ?1
                 AND capture_id IN (SELECT id FROM captures WHERE branch = ?2)",
            ] {
                let mut statement = transaction.prepare_cached(query)?;
                let rows =
                    statement.query_map([unit, branch], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                known.extend(rows.collect::<Result<Vec<_>, _>>()?);
            }
            if known.is_empty() {
                // An import, or a capture whose record was deleted: only the title is known.
                known.push((title.to_owned(), String::new(), write_vector(&[])));
            }
            for (title, model, vector) in known {
                insert.execute(params![unit, title, model, vector, because, now.as_millisecond()])?;
            }
            Ok(())
        })
    }

    /// What was rejected, newest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn rejected(&self, limit: usize) -> Result<Vec<EarlierProposal>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT unit, title, model, vector FROM rejected ORDER BY at_ms DESC, unit, title LIMIT ?1",
        )?;
        let rows = statement.query_map([limit as i64], |row| {
            let vector: Vec<u8> = row.get(3)?;
            Ok(EarlierProposal {
                name: row.get(0)?,
                title: row.get(1)?,
                model: row.get(2)?,
                vector: read_vector(&vector),
                is_rejected: true,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The files that were rejected, the latest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn rejections(&self, limit: usize) -> Result<Vec<Rejection>, Error> {
        // The branch's name may have the number of its last capture; see `ended_branch`.
        let sql = "SELECT branch, path, because, at_ms,
                (SELECT min(r.title) FROM rejected r WHERE r.at_ms = d.at_ms
                    AND substr(d.path, -length(r.unit) - 4) = '/' || r.unit || '.md'),
                (SELECT c.commit_id FROM captures c
                    WHERE c.branch = substr(d.branch, 1, instr(d.branch || '~', '~') - 1)
                    AND d.branch IN (c.branch, c.branch || '~' || c.id) ORDER BY c.id DESC LIMIT 1)
            FROM decisions d WHERE decision = 'rejected' ORDER BY at_ms DESC, branch, path LIMIT ?1";
        self.query(sql, [limit as i64], |row| {
            let branch: String = row.get(0)?;
            Ok(Rejection {
                branch: branch.split_once('~').map_or(branch.as_str(), |(branch, _)| branch).to_owned(),
                path: row.get(1)?,
                because: row.get(2)?,
                at: timestamp(row.get(3)?)?,
                title: row.get(4)?,
                commit: row.get(5)?,
            })
        })
    }

    /// Whether something with this title was rejected, and why. Case does not count.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn rejection(&self, title: &str) -> Result<Option<Option<String>>, Error> {
        let sql = "SELECT because FROM rejected WHERE title = ?1 COLLATE NOCASE ORDER BY at_ms DESC LIMIT 1";
        let connection = self.connection()?;
        Ok(connection.prepare_cached(sql)?.query_row([title], |row| row.get(0)).optional()?)
    }

    /// Ended captures whose branch is neither merged nor closed as far as is recorded, newest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn undecided(&self, limit: usize) -> Result<Vec<Capture>, Error> {
        let sql = "WHERE outcome = 'done' AND branch IS NOT NULL AND coalesce(pull_state, 'open') = 'open'
            ORDER BY id DESC LIMIT ?1";
        self.select(sql, [limit as i64])
    }

    /// The captures that share a branch, by the ids of the units that each of them adds or adds to. Empty if the branch is
    /// of one capture.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn captures_of_units(&self, branch: &str) -> Result<HashMap<String, Capture>, Error> {
        let captures = self.select("WHERE branch = ?1 ORDER BY id", [branch])?;
        if captures.len() < 2 {
            return Ok(HashMap::new());
        }
        let mut by_unit = HashMap::new();
        for capture in captures {
            let sql = "SELECT name FROM names WHERE capture_id = ?1
                UNION SELECT unit FROM additions WHERE capture_id = ?1";
            let units: Vec<String> = self.query(sql, [capture.id], |row| Ok(row.get(0)?))?;
            by_unit.extend(units.into_iter().map(|unit| (unit, capture.clone())));
        }
        Ok(by_unit)
    }

    /// The latest capture that made a branch.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn capture_of_branch(&self, branch: &str) -> Result<Option<Capture>, Error> {
        Ok(self.select("WHERE branch = ?1 ORDER BY id DESC LIMIT 1", [branch])?.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;
    use crate::testing::TestQueue;

    #[test]
    fn outcomes_are_what_was_decided_and_what_became_of_pull_requests() {
        let test = TestQueue::new();
        let id = test.add_with_branch("s1");
        let claim = test.claim(Stage::Delivery).unwrap();
        test.finish_delivery(&claim);
        assert_eq!(test.queue.proposal_outcomes().unwrap(), []);
        let because = Decision::Rejected { because: None };
        let later = Decision::Later { until: test.now };
        for (path, decision) in [("a.md", Decision::Merged), ("b.md", because), ("c.md", later)] {
            test.queue.decide("nugget/s0", &[path], &decision, test.now).unwrap();
        }
        test.queue.set_pull_state(id, None, crate::PullState::Closed).unwrap();
        let expected =
            [("nugget/s0", "a.md", "merged"), ("nugget/s0", "b.md", "rejected"), ("nugget/s1", "", "closed")];
        let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(test.queue.proposal_outcomes().unwrap(), expected);
    }
}
