//! The purse of one capture: the queue's ledger, as an extractor sees it.

use extract::{Ledger, LedgerError, Reserved, Spending};
use queue::{Budget, CallCost, Claim, Reservation};

use crate::pipeline::Jobs;

pub(crate) struct Purse {
    jobs: Jobs,
    claim: Claim,
    budget: Budget,
}

impl Purse {
    pub(crate) fn new(jobs: Jobs, claim: Claim, budget: Budget) -> Self {
        Self { jobs, claim, budget }
    }
}

impl Ledger for Purse {
    fn reserve(&self, estimate: &Spending) -> Result<Reserved, LedgerError> {
        let spent = spent(estimate);
        Ok(
            match self.jobs.queue.reserve_spend(
                Some(&self.claim),
                &spent,
                &self.budget,
                self.jobs.clock.now(),
            )? {
                Reservation::Granted(reservation) => Reserved::Granted(reservation),
                Reservation::OverBudget { tokens, microdollars } => Reserved::OverBudget(format!(
                    "the next call could exceed the budget for 24 hours ({tokens} of {} tokens and ${:.2} of ${:.2} are spent)",
                    self.budget.tokens,
                    dollars(microdollars),
                    dollars(self.budget.microdollars),
                )),
            },
        )
    }

    fn settle(&self, reservation: i64, settled: &Spending) -> Result<(), LedgerError> {
        Ok(self.jobs.queue.settle_spend(reservation, &spent(settled))?)
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

pub(crate) fn dollars(microdollars: u64) -> f64 {
    microdollars as f64 / 1e6
}

fn spent(spending: &Spending) -> CallCost {
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
