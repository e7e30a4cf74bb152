//! The backend that asks a model's server: the Claude Messages API, or chat completions as local servers have them.

use async_trait::async_trait;
use llm::{Client, Request, Stop, Usage};

use crate::model_extractor::{Backend, BackendAnswer, BackendError, Cost, Question};

/// Asks a model's server. The redacted session leaves this machine, unless the server runs on it.
#[derive(Clone, Debug)]
pub struct ModelApi {
    client: Client,
}

impl ModelApi {
    /// Asks through a client, which has the protocol, the key, the model and the deadline.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Backend for ModelApi {
    fn name(&self) -> &'static str {
        self.client.api().label()
    }

    fn model(&self) -> &str {
        self.client.model()
    }

    fn microdollars(&self, model: &str, usage: &Usage) -> u64 {
        self.client.microdollars(model, usage)
    }

    async fn ask(&self, question: &Question) -> BackendAnswer {
        let Question { system, tool, user, output_tokens_max } = question;
        let request = Request { system, tool, user, output_tokens_max: *output_tokens_max };
        match self.client.call(&request).await {
            Ok(answer) => {
                let result = match (answer.stop, answer.input) {
                    (Stop::OutputLimit, _) => {
                        Err(BackendError::TooLarge("its answer was cut off".to_owned()))
                    }
                    (Stop::ContextFull, _) => {
                        let counted = answer.usage.tokens() - answer.usage.output_tokens;
                        Err(BackendError::TooLarge(self.client.describe(&llm::Error::InputCut(counted))))
                    }
                    (Stop::Refusal, _) => Err(BackendError::Refused),
                    (Stop::Done, input) => input.map_err(BackendError::Malformed),
                };
                BackendAnswer {
                    cost: Cost::Known { model: answer.model, usage: answer.usage, microdollars: None },
                    result,
                }
            }
            Err(error) => {
                let cost = if error.may_have_cost() { Cost::Unknown } else { Cost::Free };
                let message = self.client.describe(&error);
                let error = match &error {
                    // The same request may take as long again.
                    llm::Error::Deadline(_) => BackendError::Slow(message),
                    _ if error.is_curable(self.client.api()) => {
                        BackendError::Busy { message, retry_after: error.retry_after() }
                    }
                    _ if error.is_too_large() => BackendError::TooLarge(message),
                    llm::Error::Answer(_) => BackendError::Malformed(message),
                    _ => BackendError::Permanent(message),
                };
                BackendAnswer { cost, result: Err(error) }
            }
        }
    }
}
