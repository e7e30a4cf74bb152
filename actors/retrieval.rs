//! Answers questions from a pinned generation of the index, and never waits for a writer.

use std::sync::Arc;
use std::time::Duration;

use index::Index;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use retrieve::{Answer, Query};

use crate::address::Address;
use crate::embedding::{self, Model};
use crate::stage::chain;

/// How long the question's vector may take, the load of the model included; past it the words of
/// the question alone are searched for.
const VECTOR_DEADLINE: Duration = Duration::from_secs(10);

pub struct Retrieval;

pub enum Message {
    /// Search; a query without a vector gets one first.
    Ask(Query, RpcReplyPort<Result<Answer, String>>),
}

#[derive(Clone)]
pub struct Arguments {
    pub index: Index,
    pub model: Model,
    pub embedding: Address<embedding::Message>,
    pub bell: Address<Message>,
}

pub struct State {
    arguments: Arguments,
}

impl Actor for Retrieval {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { arguments })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let vitals = Arc::clone(state.arguments.bell.vitals());
        let _busy = vitals.begin();
        match message {
            // Questions are answered side by side, each by a task of its own.
            Message::Ask(query, reply) => {
                let arguments = state.arguments.clone();
                tokio::spawn(async move {
                    let answer = arguments.answer(query).await;
                    if let Err(error) = &answer {
                        arguments.bell.vitals().failed(error);
                    }
                    let _ = reply.send(answer);
                });
            }
        }
        Ok(())
    }
}

impl Arguments {
    async fn answer(&self, mut query: Query) -> Result<Answer, String> {
        let mut model = self.model.name();
        if query.vector.is_none() {
            // While another model's generation is made, the present one is still asked in its own language.
            model = self.model_of_index().await.unwrap_or(model);
            query.vector = self.vector(&query.text, &model).await;
        }
        let this = self.clone();
        let searched = tokio::task::spawn_blocking(move || {
            let tokenizer = this.model.tokenizer().map_err(|error| chain(&error))?;
            let pinned = this.index.pin().map_err(|error| chain(&error))?;
            // Vectors of another model cannot be compared with the question's.
            if pinned.model().is_some_and(|label| label.name != model) {
                query.vector = None;
            }
            retrieve::retrieve(&pinned, &query, tokenizer).map_err(|error| chain(&error))
        });
        searched.await.unwrap_or_else(|_| Err("the search panicked".to_owned()))
    }

    async fn model_of_index(&self) -> Option<String> {
        let index = self.index.clone();
        let label = tokio::task::spawn_blocking(move || Some(index.pin().ok()?.model()?.name.clone()));
        label.await.ok().flatten()
    }

    async fn vector(&self, text: &str, model: &str) -> Option<Vec<f32>> {
        if !self.model.speaks(model) {
            tracing::info!(model, "the index is of a model that is not there, words are searched for");
            return None;
        }
        let (text, model) = (text.to_owned(), model.to_owned());
        let question = |reply| embedding::Message::Query(text, model, reply);
        let asked = self.embedding.ask(VECTOR_DEADLINE, question).await;
        match asked {
            Ok(Ok(vector)) => Some(vector),
            Ok(Err(error)) => {
                tracing::warn!(error, "the question has no vector, its words are searched for");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the question has no vector, its words are searched for");
                None
            }
        }
    }
}
