//! The stages of a search, and what was measured of each.

use index::ChunkRow;
use retrieve::Trace;
use retrieve::metrics::{self, NDCG_AT_10, RankingMetrics};

/// A stage of the search that gives a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stage {
    Bm25,
    Embedding,
    Fusion,
    Graph,
    Final,
}

impl Stage {
    pub(super) const ALL: [Self; 5] = [Self::Bm25, Self::Embedding, Self::Fusion, Self::Graph, Self::Final];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bm25 => "bm25",
            Self::Embedding => "embedding",
            Self::Fusion => "fusion",
            Self::Graph => "graph",
            Self::Final => "final",
        }
    }

    /// The chunks of the stage's ranking, best first.
    pub(super) fn chunks(self, trace: &Trace) -> Box<dyn Iterator<Item = ChunkRow> + '_> {
        match self {
            Self::Bm25 => Box::new(trace.bm25.iter().map(|hit| hit.chunk)),
            Self::Embedding => Box::new(trace.embedding.iter().map(|hit| hit.chunk)),
            Self::Fusion => Box::new(trace.fused.iter().map(|hit| hit.chunk)),
            Self::Graph => Box::new(trace.expanded.iter().map(|hit| hit.chunk)),
            Self::Final => Box::new(trace.reranked.iter().map(|scored| scored.chunk)),
        }
    }

    /// The time from the question to the stage's ranking, with all stages that it needs.
    pub(super) fn micros(self, trace: &Trace, vector_micros: u64) -> u64 {
        let micros = |name: &str| {
            trace.stages.iter().filter(|stage| stage.name == name).map(|stage| stage.micros).sum::<u64>()
        };
        let lexical = micros("analyse") + micros("rarity") + micros("bm25");
        let semantic = vector_micros + micros("embedding");
        match self {
            Self::Bm25 => lexical,
            Self::Embedding => semantic,
            Self::Fusion => lexical + semantic + micros("fuse"),
            Self::Graph => lexical + semantic + micros("fuse") + micros("expand"),
            Self::Final => vector_micros + trace.stages.iter().map(|stage| stage.micros).sum::<u64>(),
        }
    }
}

/// What was measured for one question.
pub(super) struct QuestionResult {
    /// The metrics of each stage, as in [`Stage::ALL`].
    pub metrics: [RankingMetrics; 5],
    /// The time of each stage, as in [`Stage::ALL`].
    pub micros: [u64; 5],
    /// The recall of the candidates that the final stage orders.
    pub candidate_recall: f64,
    pub candidates: usize,
    /// Whether any result is relevant enough to be answered with.
    pub is_answered: bool,
}

/// What was measured for all questions of a set.
#[derive(Default)]
pub(super) struct SetResults(pub Vec<QuestionResult>);

impl SetResults {
    pub(super) fn questions(&self) -> usize {
        self.0.len()
    }

    pub(super) fn unanswered(&self) -> usize {
        self.0.iter().filter(|question| !question.is_answered).count()
    }

    /// One metric of one stage, for each question.
    fn values(&self, stage: Stage, metric: usize) -> Vec<f64> {
        self.0.iter().map(|question| question.metrics[stage as usize].values[metric]).collect()
    }

    pub(super) fn ms_p50(&self, stage: Stage) -> f64 {
        let mut micros: Vec<u64> = self.0.iter().map(|question| question.micros[stage as usize]).collect();
        micros.sort_unstable();
        micros.get(micros.len() / 2).map_or(0.0, |micros| *micros as f64 / 1_000.0)
    }

    /// The mean recall and the mean number of the candidates.
    pub(super) fn candidate_pool(&self) -> (f64, f64) {
        let recall: Vec<f64> = self.0.iter().map(|question| question.candidate_recall).collect();
        let items: Vec<f64> = self.0.iter().map(|question| question.candidates as f64).collect();
        (metrics::mean(&recall), metrics::mean(&items))
    }
}

/// The mean of one metric over the sets, with its interval.
pub(super) fn mean_metric(sets: &[&SetResults], stage: Stage, metric: usize) -> (f64, [f64; 2]) {
    let values: Vec<Vec<f64>> = sets.iter().map(|set| set.values(stage, metric)).collect();
    metrics::mean_with_interval(&values)
}

/// By how many per cent the final order's nDCG@10 is above that of the fusion, with its interval.
pub(super) fn final_over_fusion(sets: &[&SetResults]) -> (f64, [f64; 2]) {
    let values = |stage| sets.iter().map(|set| set.values(stage, NDCG_AT_10)).collect::<Vec<_>>();
    metrics::relative_gain(&values(Stage::Fusion), &values(Stage::Final))
}

#[cfg(test)]
mod tests {
    use retrieve::StageReport;

    use super::*;

    #[test]
    fn a_stage_takes_the_time_of_all_that_it_needs() {
        let names = ["analyse", "rarity", "bm25", "embedding", "fuse", "expand", "rerank"];
        let stage = |(at, name)| StageReport { name, items: 0, micros: 1_u64 << at };
        let trace = Trace {
            analysis: retrieve::Analysis::default(),
            embedding: Vec::new(),
            bm25: Vec::new(),
            fused: Vec::new(),
            expanded: Vec::new(),
            reranked: Vec::new(),
            stages: names.into_iter().enumerate().map(stage).collect(),
            words_only: false,
        };
        let micros = Stage::ALL.map(|stage| stage.micros(&trace, 1000));
        assert_eq!(micros, [0b111, 1008, 1031, 1063, 1127]);
    }
}
