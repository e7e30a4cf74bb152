//! The Claude API, asked for a session's knowledge.

use async_trait::async_trait;
use llm::{Client, Request, Stop};

use crate::model_extractor::{Asked, Backend, Cost, Question, Trouble};

/// Asks the Messages API with a key. The session leaves this machine.
#[derive(Clone, Debug)]
pub struct Api {
    client: Client,
}

impl Api {
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Backend for Api {
    fn name(&self) -> &'static str {
        "claude-api"
    }

    fn model(&self) -> &str {
        self.client.model()
    }

    async fn ask(&self, question: &Question) -> Asked {
        let Question { system, tool, user, output_tokens_max } = question;
        let request = Request { system, tool, user, output_tokens_max: *output_tokens_max };
        match self.client.call(&request).await {
            Ok(answer) => {
                let result = match (answer.stop, answer.input) {
                    (Stop::OutputLimit, _) => Err(Trouble::TooLarge("its answer was cut off".to_owned())),
                    (Stop::ContextFull, _) => {
                        Err(Trouble::TooLarge("the session was too long for it".to_owned()))
                    }
                    (Stop::Refusal, _) => Err(Trouble::Refused),
                    (Stop::Done, Some(input)) => Ok(input),
                    (Stop::Done, None) => Err(Trouble::Malformed("it did not call the tool".to_owned())),
                };
                Asked {
                    cost: Cost::Known { model: answer.model, usage: answer.usage, microdollars: None },
                    result,
                }
            }
            Err(error) => {
                let cost = if error.may_have_cost() { Cost::Unknown } else { Cost::Nothing };
                let mut what = error.to_string();
                if let Some(source) = std::error::Error::source(&error) {
                    what = format!("{what}: {source}");
                }
                let trouble = match &error {
                    _ if error.is_temporary() => Trouble::Busy { what, after: error.after() },
                    _ if error.is_too_large() => Trouble::TooLarge(what),
                    llm::Error::Answer(_) => Trouble::Malformed(what),
                    _ => Trouble::Lasting(what),
                };
                Asked { cost, result: Err(trouble) }
            }
        }
    }
}
