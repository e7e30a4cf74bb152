//! Questions about a brain, answered from what is published of it.

use embed::{Embedder, Tokenizer};
use jiff::Timestamp;
use mcp::context_tool::Task;
use once_cell::sync::OnceCell;
use retrieve::{OutputFilter, Review};
use server::{Brain, Identity, QuestionError, ShownUnit, TeamAnswer};
use team::{BrainId, TeamStore};

use crate::Settings;
use crate::access::unavailable;

pub(crate) struct TeamQuestions {
    store: TeamStore,
    embed: embed::Settings,
    tokenizer: Tokenizer,
    /// Loaded with the first question.
    embedder: OnceCell<Embedder>,
    limit: usize,
    budget_tokens: usize,
}

/// What is published is on the default branch: people have merged it.
struct Merged;

impl OutputFilter for Merged {
    fn review(&self, _: &index::UnitRecord) -> Review {
        Review::Merged
    }
}

impl TeamQuestions {
    pub(crate) fn new(store: TeamStore, settings: &Settings) -> Result<Self, embed::Error> {
        Ok(Self {
            store,
            embed: settings.embed.clone(),
            tokenizer: Tokenizer::load(&settings.embed)?,
            embedder: OnceCell::new(),
            limit: settings.limit,
            budget_tokens: settings.budget_tokens,
        })
    }

    fn embedder(&self) -> Result<&Embedder, embed::Error> {
        self.embedder.get_or_try_init(|| Embedder::load_with(&self.embed, || Ok(self.tokenizer.clone())))
    }
}

impl server::Questions for TeamQuestions {
    fn answer(&self, _: &Identity, brain: &Brain, task: &Task) -> Result<TeamAnswer, QuestionError> {
        let mut query = task.clone().into_query(self.limit, self.budget_tokens, Timestamp::now());
        match self.embedder().and_then(|embedder| embedder.embed_query(&query.text)) {
            Ok(embedding) => (query.vector, query.tokens) = (Some(embedding.vector), embedding.tokens),
            Err(error) => tracing::warn!(?error, "the question has no vector, searching by words alone"),
        }
        let snapshot = self.store.snapshot(BrainId(brain.id.0)).map_err(unavailable)?;
        let is_other =
            index::Reader::model(&snapshot).is_some_and(|label| label.name != embed::model_name(&self.embed));
        if is_other {
            // Vectors of another model cannot be compared with those of the question.
            query.vector = None;
            query.tokens.clear();
        }
        let answer = retrieve::search(&snapshot, &query, &self.tokenizer)
            .and_then(|trace| retrieve::answer(&snapshot, &query, trace, None, &self.tokenizer, &Merged))
            .map_err(unavailable)?;
        if answer.generation == 0 {
            return Err(QuestionError::NotReady(
                "The team's brain is being indexed for the first time: ask again in a moment.".to_owned(),
            ));
        }
        let shown = answer.shown().map(|(unit, tokens)| ShownUnit { id: unit.as_str().to_owned(), tokens });
        Ok(TeamAnswer { text: retrieve::render(&answer), shown: shown.collect() })
    }
}
