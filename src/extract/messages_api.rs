//! The backend that asks the Claude Messages API.

use async_trait::async_trait;
use llm::{Client, Request, Stop};

use crate::model_extractor::{Backend, BackendAnswer, BackendError, Cost, Question};

/// Asks the Messages API with a key. The redacted session leaves this machine.
#[derive(Clone, Debug)]
pub struct MessagesApi {
    client: Client,
}

impl MessagesApi {
    /// Asks through a client, which has the key, the model and the deadline.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Backend for MessagesApi {
    fn name(&self) -> &'static str {
        "claude-api"
    }

    fn model(&self) -> &str {
        self.client.model()
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
                        Err(BackendError::TooLarge("the session was too long for it".to_owned()))
                    }
                    (Stop::Refusal, _) => Err(BackendError::Refused),
                    (Stop::Done, Some(input)) => Ok(input),
                    (Stop::Done, None) => Err(BackendError::Malformed("it did not call the tool".to_owned())),
                };
                BackendAnswer {
                    cost: Cost::Known { model: answer.model, usage: answer.usage, microdollars: None },
                    result,
                }
            }
            Err(error) => {
                let cost = if error.may_have_cost() { Cost::Unknown } else { Cost::Free };
                let mut message = error.to_string();
                if let Some(source) = std::error::Error::source(&error) {
                    message = format!("{message}: {source}");
                }
                let error = match &error {
                    _ if error.is_temporary() => {
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
