//! Asks a language model for the order of the best units: once, within a deadline and the budget. If that
//! fails, the local order is kept.

use std::time::Duration;

use llm::{Client, Request, Stop};
use retrieve::model_rerank::{self as prompt, Ranking, RerankRequest};
use tokio::time::{Instant, timeout_at};

use crate::budget::ApiBudget;
use crate::failure::error_chain;

/// Reranks results by a language model.
#[derive(Clone, Debug)]
pub struct ModelReranker {
    /// Calls the language model.
    pub client: Client,
    /// Pays for the calls.
    pub budget: ApiBudget,
    /// For all of a call, including the reservation of its budget.
    pub deadline: Duration,
}

impl ModelReranker {
    /// The model's ranking, or why there is none in words for a person.
    pub(crate) async fn rerank(&self, request: RerankRequest) -> Result<Ranking, String> {
        let until = Instant::now() + self.deadline;
        let this = self.clone();
        // In a task of its own, so that the call's cost is recorded also if nobody waits for it any more.
        let call = tokio::spawn(async move { this.call(&request, until).await });
        match timeout_at(until, call).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the call has crashed".to_owned()),
            Err(_) => Err(self.too_late()),
        }
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
        let reservation = self.budget.reserve(self.client.model(), bytes, prompt::OUTPUT_TOKENS_MAX).await?;
        if Instant::now() >= until {
            reservation.release().await;
            return Err(self.too_late());
        }
        let answer = match timeout_at(until, self.client.call(&request)).await {
            // The server may be working on it: the reservation stays.
            Err(_) => return Err(self.too_late()),
            Ok(Err(error)) => {
                let message = error_chain(&error);
                reservation.failed(&error).await;
                return Err(message);
            }
            Ok(Ok(answer)) => answer,
        };
        reservation.settle(&answer.model, &answer.usage).await;
        match (answer.stop, answer.input) {
            (Stop::Done, Some(input)) => {
                reranked.parse_ranking(&answer.model, &input).map_err(|error| error.to_string())
            }
            (Stop::Done, None) => Err("the model did not call the tool".to_owned()),
            (Stop::Refusal, _) => Err("the model declined to answer".to_owned()),
            (Stop::OutputLimit | Stop::ContextFull, _) => Err("the model's answer was cut off".to_owned()),
        }
    }

    fn too_late(&self) -> String {
        format!("the model did not answer within {:?}", self.deadline)
    }
}
