//! What calls of models have cost, and the budget that bounds it.
//!
//! A call is entered before it is made, at the most that it may cost, in the transaction that looks
//! whether there is room for it. So two calls never share the same room, and a call whose process
//! died stays on the bill.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;

use crate::store::{Queue, timestamp};
use crate::{Claim, Error};

/// Over which time a budget is meant.
pub const BUDGET_SPAN: Duration = Duration::from_secs(24 * 60 * 60);

/// The most that may be spent in any 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub tokens: u64,
    /// Millionths of a dollar.
    pub microdollars: u64,
}

/// One call of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCost {
    pub model: String,
    pub backend: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_write_tokens: u64,
    pub cache_read_tokens: u64,
    pub microdollars: u64,
}

impl CallCost {
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens + self.cache_write_tokens + self.cache_read_tokens
    }
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelCall {
    pub at: Timestamp,
    /// The capture that it was for; its number stays when it is struck from the ledger.
    pub capture: Option<i64>,
    /// Whether this is still the estimate: the call is under way, or nobody knows how it ended.
    pub estimated: bool,
    #[serde(flatten)]
    pub spent: CallCost,
}

/// Whether there is room for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Under this number.
    Granted(i64),
    /// What was spent in the last 24 hours.
    OverBudget { tokens: u64, microdollars: u64 },
}

impl Queue {
    /// Enters a call at the most that it may cost, if the budget has room for it.
    pub fn reserve_spend(
        &self,
        claim: Option<&Claim>,
        estimate: &CallCost,
        budget: &Budget,
        now: Timestamp,
    ) -> Result<Reservation, Error> {
        let capture = claim.map(|claim| claim.capture.id);
        let now_ms = now.as_millisecond();
        let span_ms = BUDGET_SPAN.as_millis() as i64;
        self.write(|transaction| {
            // A row from further ahead than the span was written by a clock that was wrong.
            let (tokens, microdollars): (i64, i64) = transaction.query_row(
                "SELECT coalesce(sum(input_tokens + output_tokens + cache_write_tokens + cache_read_tokens), 0),
                        coalesce(sum(microdollars), 0)
                 FROM spend WHERE at_ms > ?1 AND at_ms < ?2",
                params![now_ms - span_ms, now_ms + span_ms],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            let (tokens, microdollars) = (tokens.unsigned_abs(), microdollars.unsigned_abs());
            if tokens + estimate.tokens() > budget.tokens || microdollars + estimate.microdollars > budget.microdollars {
                return Ok(Reservation::OverBudget { tokens, microdollars });
            }
            transaction.execute(
                "INSERT INTO spend (at_ms, capture_id, estimated, model, backend, input_tokens, output_tokens,
                     cache_write_tokens, cache_read_tokens, microdollars)
                 VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    now_ms,
                    capture,
                    estimate.model,
                    estimate.backend,
                    whole(estimate.input_tokens),
                    whole(estimate.output_tokens),
                    whole(estimate.cache_write_tokens),
                    whole(estimate.cache_read_tokens),
                    whole(estimate.microdollars),
                ],
            )?;
            Ok(Reservation::Granted(transaction.last_insert_rowid()))
        })
    }

    /// Puts what a call has cost in the place of its estimate.
    pub fn settle_spend(&self, reservation: i64, spent: &CallCost) -> Result<(), Error> {
        self.write(|transaction| {
            transaction.execute(
                "UPDATE spend SET estimated = 0, model = ?2, backend = ?3, input_tokens = ?4, output_tokens = ?5,
                     cache_write_tokens = ?6, cache_read_tokens = ?7, microdollars = ?8 WHERE id = ?1",
                params![
                    reservation,
                    spent.model,
                    spent.backend,
                    whole(spent.input_tokens),
                    whole(spent.output_tokens),
                    whole(spent.cache_write_tokens),
                    whole(spent.cache_read_tokens),
                    whole(spent.microdollars),
                ],
            )?;
            Ok(())
        })
    }

    /// Strikes a call that has cost nothing.
    pub fn release_spend(&self, reservation: i64) -> Result<(), Error> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM spend WHERE id = ?1", [reservation])?;
            Ok(())
        })
    }

    /// The calls since then, oldest first.
    pub fn model_calls(&self, since: Timestamp) -> Result<Vec<ModelCall>, Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT at_ms, capture_id, estimated, model, backend, input_tokens, output_tokens, cache_write_tokens,
                    cache_read_tokens, microdollars FROM spend WHERE at_ms >= ?1 ORDER BY at_ms, id",
        )?;
        let mut rows = statement.query([since.as_millisecond()])?;
        let mut calls = Vec::new();
        while let Some(row) = rows.next()? {
            let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
            calls.push(ModelCall {
                at: timestamp(row.get(0)?)?,
                capture: row.get(1)?,
                estimated: row.get(2)?,
                spent: CallCost {
                    model: row.get(3)?,
                    backend: row.get(4)?,
                    input_tokens: count(5)?,
                    output_tokens: count(6)?,
                    cache_write_tokens: count(7)?,
                    cache_read_tokens: count(8)?,
                    microdollars: count(9)?,
                },
            });
        }
        Ok(calls)
    }

    /// What calls of models for a capture have cost, in millionths of a dollar, and whether some of that is
    /// an estimate.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn capture_cost(&self, capture: i64) -> Result<(u64, bool), Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT coalesce(sum(microdollars), 0), coalesce(max(estimated), 0) FROM spend WHERE capture_id = ?1",
        )?;
        Ok(statement.query_row([capture], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)))?)
    }

    /// What was made of a model's answer to a question that this capture has asked before.
    pub fn saved_answer(&self, claim: &Claim, question: &str) -> Result<Option<Vec<u8>>, Error> {
        let connection = self.connection()?;
        let mut statement =
            connection.prepare_cached("SELECT body FROM answers WHERE capture_id = ?1 AND question = ?2")?;
        Ok(statement.query_row(params![claim.capture.id, question], |row| row.get(0)).optional()?)
    }

    /// Keeps it until the capture ends, so that no attempt pays for it again.
    pub fn save_answer(&self, claim: &Claim, question: &str, body: &[u8]) -> Result<(), Error> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO answers VALUES (?1, ?2, ?3)",
                params![claim.capture.id, question, body],
            )?;
            Ok(())
        })
    }
}

/// For a column: counts of tokens are far below the bound.
fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Announcement, Finish, Stage};

    struct Fixture {
        _folder: tempfile::TempDir,
        queue: Queue,
        now: Timestamp,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        Fixture { _folder: folder, queue, now: "2026-11-20T14:12:00Z".parse().unwrap() }
    }

    fn call(tokens: u64) -> CallCost {
        CallCost {
            model: "m".into(),
            backend: "claude-api".into(),
            input_tokens: tokens,
            microdollars: tokens * 2,
            ..CallCost::default()
        }
    }

    const BUDGET: Budget = Budget { tokens: 100, microdollars: 1_000 };

    fn reserve(fixture: &Fixture, tokens: u64) -> Reservation {
        fixture.queue.reserve_spend(None, &call(tokens), &BUDGET, fixture.now).unwrap()
    }

    #[test]
    fn a_call_that_the_budget_has_no_room_for_is_not_made() {
        let fixture = fixture();
        let Reservation::Granted(first) = reserve(&fixture, 60) else { panic!("there is room") };
        assert_eq!(reserve(&fixture, 41), Reservation::OverBudget { tokens: 60, microdollars: 120 });
        fixture.queue.settle_spend(first, &call(30)).unwrap();
        let Reservation::Granted(second) = reserve(&fixture, 70) else { panic!("it cost less than thought") };
        assert!(matches!(reserve(&fixture, 1), Reservation::OverBudget { .. }));
        fixture.queue.release_spend(second).unwrap();
        let dollars = Budget { tokens: 1_000_000, microdollars: 61 };
        let refused = fixture.queue.reserve_spend(None, &call(1), &dollars, fixture.now).unwrap();
        assert_eq!(refused, Reservation::OverBudget { tokens: 30, microdollars: 60 });
        let calls = fixture.queue.model_calls(fixture.now).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].estimated, &calls[0].spent), (false, &call(30)));
    }

    #[test]
    fn a_budget_is_for_any_24_hours_and_a_clock_that_was_wrong_does_not_block_it() {
        let mut fixture = fixture();
        let today = fixture.now;
        assert!(matches!(reserve(&fixture, 100), Reservation::Granted(_)));
        fixture.now = today + Duration::from_secs(23 * 60 * 60);
        assert!(matches!(reserve(&fixture, 1), Reservation::OverBudget { .. }));
        fixture.now = today + Duration::from_secs(25 * 60 * 60);
        assert!(matches!(reserve(&fixture, 1), Reservation::Granted(_)));
        fixture.now = "1999-01-01T00:00:00Z".parse().unwrap();
        assert!(matches!(reserve(&fixture, 100), Reservation::Granted(_)));
    }

    #[test]
    fn many_that_ask_at_once_do_not_share_the_same_room() {
        let fixture = fixture();
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..10).filter(|_| matches!(reserve(&fixture, 7), Reservation::Granted(_))).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(granted, 14, "98 of 100");
    }

    #[test]
    fn an_answer_is_kept_until_its_capture_ends() {
        let fixture = fixture();
        let announcement = Announcement {
            session: knowledge::SessionId::verbatim("s"),
            transcript: "/t/s.jsonl".into(),
            cwd: None,
            origin: "test".into(),
            reason: None,
        };
        fixture.queue.add(&announcement, fixture.now).unwrap();
        let claim = fixture.queue.claim(Stage::Intake, fixture.now).unwrap().unwrap();
        fixture.queue.save_answer(&claim, "q", b"one").unwrap();
        fixture.queue.save_answer(&claim, "q", b"two").unwrap();
        assert_eq!(fixture.queue.saved_answer(&claim, "q").unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(fixture.queue.saved_answer(&claim, "other").unwrap(), None);
        fixture.queue.finish(&claim, &Finish::Nothing { reason: "r".into() }, fixture.now).unwrap();
        assert_eq!(fixture.queue.saved_answer(&claim, "q").unwrap(), None);
    }
}
