//! Pays for calls of the API that belong to no capture: answers to questions, and their order.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use llm::Usage;
use queue::{Budget, CallCost, Queue, Reservation};

use crate::pipeline::{blocking, chain};
use crate::purse::dollars;

const BACKEND: &str = "claude-api";
/// No token of a text is shorter than this many bytes, on average: what is set aside is enough.
const BYTES_PER_TOKEN_MIN: usize = 3;

/// The ledger of a brain, opened when there is something to pay.
#[derive(Clone, Debug)]
pub struct ApiBudget {
    queue: Arc<PathBuf>,
    budget: Budget,
}

/// What is set aside for one call, until it is settled. Dropped, it stays on the bill: whoever made the
/// call may have died after it.
#[derive(Debug)]
pub struct ApiReservation {
    queue: Queue,
    number: i64,
}

impl ApiBudget {
    /// `queue` is the file of the brain's queue, whose ledger is the brain's only one.
    pub fn new(queue: PathBuf, budget: Budget) -> Self {
        Self { queue: Arc::new(queue), budget }
    }

    /// Sets aside the most that a call may cost: so many bytes for the model to read, and so many tokens
    /// for it to write.
    ///
    /// # Errors
    /// When the budget has no room for it, or the ledger cannot be written; in words for a person.
    pub async fn reserve(
        &self,
        model: &str,
        bytes: usize,
        output_tokens: u32,
    ) -> Result<ApiReservation, String> {
        let this = self.clone();
        let usage = Usage {
            input_tokens: bytes.div_ceil(BYTES_PER_TOKEN_MIN) as u64,
            output_tokens: output_tokens.into(),
            ..Usage::default()
        };
        let estimate = spent(model, &usage);
        blocking(move || {
            let queue = Queue::open(&this.queue).map_err(|error| chain(&error))?;
            match queue.reserve_spend(None, &estimate, &this.budget, Timestamp::now()) {
                Ok(Reservation::Granted(number)) => Ok(ApiReservation { queue, number }),
                Ok(Reservation::OverBudget { tokens, microdollars }) => Err(format!(
                    "the budget for 24 hours has no room for it: {tokens} of {} tokens and ${:.2} of ${:.2} are spent",
                    this.budget.tokens,
                    dollars(microdollars),
                    dollars(this.budget.microdollars),
                )),
                Err(error) => Err(chain(&error)),
            }
        })
        .await
    }
}

impl ApiReservation {
    /// Puts what the call has cost in the place of the estimate.
    pub async fn settle(self, model: &str, usage: &Usage) {
        let spent = spent(model, usage);
        let settled = blocking(move || self.queue.settle_spend(self.number, &spent)).await;
        if let Err(error) = settled {
            tracing::warn!(error = chain(&error), "a call stays on the bill at its estimate");
        }
    }

    /// For a call that has failed: struck from the bill, unless the server may have worked on it.
    pub async fn failed(self, error: &llm::Error) {
        if !error.may_have_cost() {
            self.release().await;
        }
    }

    /// For a call that was not made.
    pub async fn release(self) {
        let released = blocking(move || self.queue.release_spend(self.number)).await;
        if let Err(error) = released {
            tracing::warn!(error = chain(&error), "a call stays on the bill that cost nothing");
        }
    }
}

fn spent(model: &str, usage: &Usage) -> CallCost {
    CallCost {
        model: model.to_owned(),
        backend: BACKEND.to_owned(),
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_write_tokens: usage.cache_creation_input_tokens,
        cache_read_tokens: usage.cache_read_input_tokens,
        microdollars: llm::microdollars(model, usage),
    }
}
