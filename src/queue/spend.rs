//! The cost of model calls, and the budget that bounds it.
//!
//! Before a call is made, its highest possible cost is recorded in the transaction that checks the budget. So two calls
//! never use the same part of the budget, and a call whose process was killed stays counted.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use crate::store::{Queue, timestamp};
use crate::{Claim, Error};

/// The time that a budget covers.
pub const BUDGET_SPAN: Duration = Duration::from_secs(24 * 60 * 60);

/// The most that may be spent in any 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Tokens of all kinds.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub microdollars: u64,
}

/// The cost of one call of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallCost {
    /// The model's name.
    pub model: String,
    /// How the model is called: `claude-api`, `claude-code`, ….
    pub backend: String,
    /// Input tokens that were neither written to nor read from a cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// The price, in millionths of a dollar.
    pub microdollars: u64,
}

impl CallCost {
    /// Tokens of all kinds.
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens + self.cache_write_tokens + self.cache_read_tokens
    }
}

/// A recorded call of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelCall {
    /// When it was entered.
    pub at: Timestamp,
    /// The capture that it was for; the number stays when the capture's record is deleted.
    pub capture: Option<i64>,
    /// Whether the cost is the estimate: the call is running, or its end is unknown.
    pub estimated: bool,
    /// What it cost.
    #[serde(flatten)]
    pub cost: CallCost,
}

/// Whether the budget allows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// It does; the number identifies the reservation.
    Granted(i64),
    /// It does not. What the last 24 hours cost:
    OverBudget {
        /// Tokens of all kinds.
        tokens: u64,
        /// Millionths of a dollar.
        microdollars: u64,
    },
}

impl Queue {
    /// Enters a call at the most that it may cost, if the budget allows it.
    ///
    /// # Errors
    /// When the queue cannot be written.
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
            // A row from further ahead than the span was written while the clock was wrong.
            let (tokens, microdollars): (u64, u64) = transaction.query_row(
                "SELECT coalesce(sum(input_tokens + output_tokens + cache_write_tokens + cache_read_tokens), 0),
                        coalesce(sum(microdollars), 0)
                 FROM spend WHERE at_ms > ?1 AND at_ms < ?2",
                params![now_ms - span_ms, now_ms + span_ms],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
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
                    estimate.input_tokens,
                    estimate.output_tokens,
                    estimate.cache_write_tokens,
                    estimate.cache_read_tokens,
                    estimate.microdollars,
                ],
            )?;
            Ok(Reservation::Granted(transaction.last_insert_rowid()))
        })
    }

    /// Replaces a call's estimate by its cost.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn settle_spend(&self, reservation: i64, cost: &CallCost) -> Result<(), Error> {
        self.execute(
            "UPDATE spend SET estimated = 0, model = ?2, backend = ?3, input_tokens = ?4, output_tokens = ?5,
                 cache_write_tokens = ?6, cache_read_tokens = ?7, microdollars = ?8 WHERE id = ?1",
            params![
                reservation,
                cost.model,
                cost.backend,
                cost.input_tokens,
                cost.output_tokens,
                cost.cache_write_tokens,
                cost.cache_read_tokens,
                cost.microdollars,
            ],
        )
        .map(drop)
    }

    /// Removes a call that cost nothing.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn release_spend(&self, reservation: i64) -> Result<(), Error> {
        self.execute("DELETE FROM spend WHERE id = ?1", [reservation]).map(drop)
    }

    /// The calls since a time, oldest first.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn model_calls(&self, since: Timestamp) -> Result<Vec<ModelCall>, Error> {
        let sql = "SELECT at_ms, capture_id, estimated, model, backend, input_tokens, output_tokens,
                          cache_write_tokens, cache_read_tokens, microdollars
                   FROM spend WHERE at_ms >= ?1 ORDER BY at_ms, id";
        self.query(sql, [since.as_millisecond()], |row| {
            Ok(ModelCall {
                at: timestamp(row.get(0)?)?,
                capture: row.get(1)?,
                estimated: row.get(2)?,
                cost: CallCost {
                    model: row.get(3)?,
                    backend: row.get(4)?,
                    input_tokens: row.get(5)?,
                    output_tokens: row.get(6)?,
                    cache_write_tokens: row.get(7)?,
                    cache_read_tokens: row.get(8)?,
                    microdollars: row.get(9)?,
                },
            })
        })
    }

    /// The cost of a capture's model calls, in millionths of a dollar, and whether some of it is an estimate.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn capture_cost(&self, capture: i64) -> Result<(u64, bool), Error> {
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(
            "SELECT coalesce(sum(microdollars), 0), coalesce(max(estimated), 0) FROM spend WHERE capture_id = ?1",
        )?;
        Ok(statement.query_row([capture], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// The stored answer to a question that this capture has already asked a model.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn saved_answer(&self, claim: &Claim, question: &str) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT body FROM answers WHERE capture_id = ?1 AND question = ?2";
        Ok(self.query(sql, params![claim.capture.id, question], |row| Ok(row.get(0)?))?.pop())
    }

    /// Stores an answer until the capture ends, so that no attempt pays for it again.
    ///
    /// # Errors
    /// When the queue cannot be written.
    pub fn save_answer(&self, claim: &Claim, question: &str, body: &[u8]) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO answers VALUES (?1, ?2, ?3)";
        self.execute(sql, params![claim.capture.id, question, body]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestQueue;

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

    fn reserve(test: &TestQueue, tokens: u64) -> Reservation {
        test.queue.reserve_spend(None, &call(tokens), &BUDGET, test.now).unwrap()
    }

    #[test]
    fn calls_are_listed_with_their_cost() {
        let test = TestQueue::new();
        let Reservation::Granted(first) = reserve(&test, 60) else { panic!("60 of 100 tokens were refused") };
        test.queue.settle_spend(first, &call(30)).unwrap();
        let calls = test.queue.model_calls(test.now).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].estimated, &calls[0].cost), (false, &call(30)));
    }
}
