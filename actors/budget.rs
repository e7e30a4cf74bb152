//! Reserves budget for calls of language models before they are made, and settles it afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use extract::{LedgerError, ModelBudget, Reserved, Spending};
use jiff::Timestamp;
use llm::{Client, Usage};
use queue::{Budget, CallCost, Claim, Queue, Reservation};

use crate::background::run_blocking;
use crate::failure::error_chain;
use crate::jobs::Jobs;

/// The budget for calls that belong to no capture: answers to questions, and their order.
#[derive(Clone, Debug)]
pub struct ApiBudget {
    queue: Arc<PathBuf>,
    budget: Budget,
}

/// The reservation for one call, until it is settled. If it is dropped it stays, as the call may have been
/// made.
#[derive(Debug)]
pub struct ApiReservation {
    queue: Queue,
    number: i64,
    client: Client,
}

impl ApiBudget {
    /// `queue` is the file of the brain's queue, which records all costs of the brain. It is opened when
    /// there is something to reserve.
    pub fn new(queue: PathBuf, budget: Budget) -> Self {
        Self { queue: Arc::new(queue), budget }
    }

    /// Reserves the most that a call of this client may cost: for this many bytes of input, and this many tokens of output.
    ///
    /// # Errors
    /// When the budget is too small for it, or the queue cannot be written; in words for a person.
    pub async fn reserve(
        &self,
        client: &Client,
        bytes: usize,
        output_tokens: u32,
    ) -> Result<ApiReservation, String> {
        let (this, client) = (self.clone(), client.clone());
        let estimate = api_cost(&client, client.model(), &Usage::at_most(bytes, output_tokens));
        run_blocking(move || {
            let queue = Queue::open(&this.queue).map_err(|error| error_chain(&error))?;
            match queue.reserve_spend(None, &estimate, &this.budget, Timestamp::now()) {
                Ok(Reservation::Granted(number)) => Ok(ApiReservation { queue, number, client }),
                Ok(Reservation::OverBudget { tokens, microdollars }) => Err(format!(
                    "the budget for 24 hours has no room for it: {}",
                    spent(&this.budget, tokens, microdollars)
                )),
                Err(error) => Err(error_chain(&error)),
            }
        })
        .await
    }
}

impl ApiReservation {
    /// Replaces the estimate by the cost of the call.
    pub async fn settle(self, model: &str, usage: &Usage) {
        let cost = api_cost(&self.client, model, usage);
        let settled = run_blocking(move || self.queue.settle_spend(self.number, &cost)).await;
        if let Err(error) = settled {
            tracing::warn!(error = error_chain(&error), "a call's cost remains estimated");
        }
    }

    /// For a call that failed: releases the reservation, unless the server may have worked on it.
    pub async fn failed(self, error: &llm::Error) {
        if !error.may_have_cost() {
            self.release().await;
        }
    }

    /// For a call that was not made.
    pub async fn release(self) {
        let released = run_blocking(move || self.queue.release_spend(self.number)).await;
        if let Err(error) = released {
            tracing::warn!(error = error_chain(&error), "failed to release the reservation of a call");
        }
    }
}

/// The budget for the calls of one capture, as its extractor sees it.
pub(crate) struct CaptureBudget {
    jobs: Jobs,
    claim: Claim,
    budget: Budget,
}

impl CaptureBudget {
    pub(crate) fn new(jobs: Jobs, claim: Claim, budget: Budget) -> Self {
        Self { jobs, claim, budget }
    }
}

impl ModelBudget for CaptureBudget {
    fn reserve(&self, estimate: &Spending) -> Result<Reserved, LedgerError> {
        let Jobs { queue, clock, .. } = &self.jobs;
        let estimate = call_cost(estimate);
        Ok(match queue.reserve_spend(Some(&self.claim), &estimate, &self.budget, clock.now())? {
            Reservation::Granted(reservation) => Reserved::Granted(reservation),
            Reservation::OverBudget { tokens, microdollars } => Reserved::OverBudget(format!(
                "the next call could exceed the budget for 24 hours ({})",
                spent(&self.budget, tokens, microdollars)
            )),
        })
    }

    fn settle(&self, reservation: i64, settled: &Spending) -> Result<(), LedgerError> {
        Ok(self.jobs.queue.settle_spend(reservation, &call_cost(settled))?)
    }

    fn release(&self, reservation: i64) -> Result<(), LedgerError> {
        Ok(self.jobs.queue.release_spend(reservation)?)
    }

    fn saved_answer(&self, question: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(self.jobs.queue.saved_answer(&self.claim, question)?)
    }

    fn save_answer(&self, question: &str, answer: &[u8]) -> Result<(), LedgerError> {
        Ok(self.jobs.queue.save_answer(&self.claim, question, answer)?)
    }
}

fn spent(budget: &Budget, tokens: u64, microdollars: u64) -> String {
    let [spent, limit] = [microdollars, budget.microdollars].map(|microdollars| microdollars as f64 / 1e6);
    format!(
        "{tokens} of {} tokens and ${spent:.2} of ${limit:.2} are spent; the limits are `spend.tokens_per_day` and \
         `spend.cents_per_day`",
        budget.tokens
    )
}

fn api_cost(client: &Client, model: &str, usage: &Usage) -> CallCost {
    call_cost(&Spending {
        model: model.to_owned(),
        backend: client.api().label().to_owned(),
        usage: *usage,
        microdollars: client.microdollars(model, usage),
    })
}

fn call_cost(spending: &Spending) -> CallCost {
    let Spending { model, backend, usage, microdollars } = spending;
    CallCost {
        model: model.clone(),
        backend: backend.clone(),
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_write_tokens: usage.cache_creation_input_tokens,
        cache_read_tokens: usage.cache_read_input_tokens,
        microdollars: *microdollars,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_spent_names_its_settings() {
        let budget = Budget { tokens: 0, microdollars: 2_000_000 };
        assert_eq!(
            spent(&budget, 7, 10_000),
            "7 of 0 tokens and $0.01 of $2.00 are spent; the limits are `spend.tokens_per_day` and `spend.cents_per_day`"
        );
    }
}
