//! Asks a language model for the order of the best units: once, within a deadline and the budget. If that
//! fails, the local order is kept.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llm::{Client, Request, Stop};
use retrieve::model_rerank::{self as prompt, Ranking, RerankRequest};
use tokio::time::{Instant, timeout_at};

use crate::budget::ApiBudget;

/// After so many late answers in a row, the model is not asked for a while: each has cost a session the whole deadline.
/// One may be late because the model had to be loaded.
const LATE_MAX: u32 = 2;
const LATE_PAUSE: Duration = Duration::from_secs(10 * 60);

/// Reranks results by a language model.
#[derive(Clone, Debug)]
pub struct ModelReranker {
    client: Client,
    budget: ApiBudget,
    deadline: Duration,
    /// Shared by all questions.
    lateness: Arc<Mutex<Lateness>>,
}

/// How often in a row the model was late, and when it was last.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Lateness {
    fn is_pause(&self, now: Instant) -> bool {
        self.in_a_row >= LATE_MAX && self.last.is_some_and(|last| now.duration_since(last) < LATE_PAUSE)
    }

    fn record(&mut self, is_late: bool, now: Instant) {
        *self = match is_late {
            true => Self { in_a_row: self.in_a_row + 1, last: Some(now) },
            false => Self::default(),
        };
    }
}

impl ModelReranker {
    /// Asks by a client and pays from a budget. The deadline is for all of a call, including the reservation.
    pub fn new(client: Client, budget: ApiBudget, deadline: Duration) -> Self {
        Self { client, budget, deadline, lateness: Arc::default() }
    }

    /// The model's ranking, or why there is none in words for a person.
    pub(crate) async fn rerank(&self, request: RerankRequest) -> Result<Ranking, String> {
        if self.with_lateness(|lateness| lateness.is_pause(Instant::now())) {
            return Err(format!(
                "the model is not asked for {} minutes, as it was too slow: see `retrieve.rerank_deadline_ms`",
                LATE_PAUSE.as_secs() / 60
            ));
        }
        let until = Instant::now() + self.deadline;
        let this = self.clone();
        // In a task of its own, so that the call's cost is recorded also if nobody waits for it any more.
        let call = tokio::spawn(async move { this.call(&request, until).await });
        let result = match timeout_at(until, call).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the call has crashed".to_owned()),
            Err(_) => Err(self.too_late()),
        };
        let now = Instant::now();
        self.with_lateness(|lateness| lateness.record(now >= until, now));
        result
    }

    fn with_lateness<T>(&self, work: impl FnOnce(&mut Lateness) -> T) -> T {
        work(&mut self.lateness.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn call(&self, reranked: &RerankRequest, until: Instant) -> Result<Ranking, String> {
        let tool = prompt::tool();
        let request = Request {
            system: prompt::SYSTEM,
            tool: &tool,
            user: reranked.message(),
            output_tokens_max: prompt::OUTPUT_TOKENS_MAX,
        };
        let bytes = prompt::SYSTEM.len() + tool.schema.to_string().len() + reranked.message().len();
        let reservation = self.budget.reserve(&self.client, bytes, prompt::OUTPUT_TOKENS_MAX).await?;
        if Instant::now() >= until {
            reservation.release().await;
            return Err(self.too_late());
        }
        let answer = match timeout_at(until, self.client.call(&request)).await {
            // The server may be working on it: the reservation stays.
            Err(_) => return Err(self.too_late()),
            Ok(Err(error)) => {
                let message = self.client.describe(&error);
                reservation.failed(&error).await;
                return Err(message);
            }
            Ok(Ok(answer)) => answer,
        };
        reservation.settle(&answer.model, &answer.usage).await;
        match (answer.stop, answer.input) {
            (Stop::Done, Ok(input)) => {
                reranked.parse_ranking(&answer.model, &input).map_err(|error| error.to_string())
            }
            (Stop::Done, Err(problem)) => Err(format!("the model's answer cannot be used: {problem}")),
            (Stop::Refusal, _) => Err("the model declined to answer".to_owned()),
            (Stop::OutputLimit | Stop::ContextFull, _) => Err("the model's answer was cut off".to_owned()),
        }
    }

    fn too_late(&self) -> String {
        format!("the model did not answer within {:?}", self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_with_the_second_late_answer_and_ends() {
        let (mut lateness, start) = (Lateness::default(), Instant::now());
        lateness.record(true, start);
        assert!(!lateness.is_pause(start));
        lateness.record(false, start);
        lateness.record(true, start);
        assert!(!lateness.is_pause(start), "an answer in time begins a new row");
        lateness.record(true, start);
        assert!(lateness.is_pause(start + LATE_PAUSE / 2) && !lateness.is_pause(start + LATE_PAUSE));
        lateness.record(true, start + LATE_PAUSE);
        assert!(lateness.is_pause(start + LATE_PAUSE * 3 / 2), "one more late answer is enough then");
    }
}
