//! Asks a model for the order of the best units: once, within a deadline and the budget. Whatever fails, the
//! local order stands.

use std::time::Duration;

use llm::{Client, Request, Stop};
use retrieve::model_rerank::{self as questions, Ranking, RerankRequest};
use tokio::time::{Instant, timeout_at};

use crate::ApiBudget;
use crate::pipeline::chain;

/// A model that may be asked.
#[derive(Clone, Debug)]
pub struct ModelReranker {
    pub client: Client,
    pub budget: ApiBudget,
    /// For everything, from the question to the ledger to the verdict.
    pub deadline: Duration,
}

impl ModelReranker {
    /// The model's verdict, or in words for a person why there is none.
    pub(crate) async fn judge(&self, docket: RerankRequest) -> Result<Ranking, String> {
        let until = Instant::now() + self.deadline;
        let this = self.clone();
        // In a task of its own, so that what the call has cost is entered also when nobody waits any more.
        let asked = tokio::spawn(async move { this.ask(&docket, until).await });
        match timeout_at(until, asked).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the call has crashed".to_owned()),
            Err(_) => Err(self.late()),
        }
    }

    async fn ask(&self, docket: &RerankRequest, until: Instant) -> Result<Ranking, String> {
        let tool = questions::tool();
        let request = Request {
            system: questions::SYSTEM,
            tool: &tool,
            user: docket.message(),
            output_tokens_max: questions::OUTPUT_TOKENS_MAX,
        };
        let bytes = questions::SYSTEM.len() + tool.schema.to_string().len() + docket.message().len();
        let reserved = self.budget.reserve(self.client.model(), bytes, questions::OUTPUT_TOKENS_MAX).await?;
        if Instant::now() >= until {
            reserved.release().await;
            return Err(self.late());
        }
        let answer = match timeout_at(until, self.client.call(&request)).await {
            // The server may be at work on it: what was set aside stays on the bill.
            Err(_) => return Err(self.late()),
            Ok(Err(error)) => {
                let what = chain(&error);
                reserved.failed(&error).await;
                return Err(what);
            }
            Ok(Ok(answer)) => answer,
        };
        reserved.settle(&answer.model, &answer.usage).await;
        match (answer.stop, answer.input) {
            (Stop::Done, Some(input)) => {
                docket.parse_ranking(&answer.model, &input).map_err(|error| error.to_string())
            }
            (Stop::Done, None) => Err("the model did not call the tool".to_owned()),
            (Stop::Refusal, _) => Err("the model declined to answer".to_owned()),
            (Stop::OutputLimit | Stop::ContextFull, _) => Err("the model's answer was cut off".to_owned()),
        }
    }

    fn late(&self) -> String {
        format!("the model did not answer within {:?}", self.deadline)
    }
}
