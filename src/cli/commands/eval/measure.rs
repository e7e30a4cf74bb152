//! What is measured of a ranking, and how sure that is.

use std::collections::BTreeMap;

use index::ChunkRow;
use retrieve::Trace;
use serde_json::{Map, Value, json};

/// What is told of each stage, in the order of [`Figures`].
pub(super) const MEASURES: [&str; 5] = ["recall@5", "recall@10", "recall@50", "ndcg@10", "mrr@10"];
/// The places of two of them.
pub(super) const RECALL: usize = 1;
pub(super) const NDCG: usize = 3;

/// The questions are drawn anew so often for an interval.
const RESAMPLES: usize = 1_000;
/// The same set gives the same interval.
const SEED: u64 = 0x6e75_6767_6574;

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

    /// The chunks that the stage gives, best first.
    pub(super) fn chunks(self, trace: &Trace) -> Box<dyn Iterator<Item = ChunkRow> + '_> {
        match self {
            Self::Bm25 => Box::new(trace.bm25.iter().map(|hit| hit.chunk)),
            Self::Embedding => Box::new(trace.embedding.iter().map(|hit| hit.chunk)),
            Self::Fusion => Box::new(trace.fused.iter().map(|hit| hit.chunk)),
            Self::Graph => Box::new(trace.expanded.iter().map(|hit| hit.chunk)),
            Self::Final => Box::new(trace.reranked.iter().map(|scored| scored.chunk)),
        }
    }

    /// From the question to the stage's list, all that it rests on included.
    pub(super) fn micros(self, trace: &Trace, of_the_vector: u64) -> u64 {
        let of = |name: &str| {
            trace.stages.iter().filter(|stage| stage.name == name).map(|stage| stage.micros).sum::<u64>()
        };
        let words = of("analyse") + of("bm25");
        let meaning = of_the_vector + of("embedding");
        match self {
            Self::Bm25 => words,
            Self::Embedding => meaning,
            Self::Fusion => words + meaning + of("fuse"),
            Self::Graph => words + meaning + of("fuse") + of("expand"),
            Self::Final => of_the_vector + trace.stages.iter().map(|stage| stage.micros).sum::<u64>(),
        }
    }
}

/// One ranking's figures, in the order of [`MEASURES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures([f64; 5]);

impl Figures {
    pub(super) fn json(self) -> Map<String, Value> {
        MEASURES.iter().zip(self.0).map(|(measure, value)| ((*measure).to_owned(), json!(value))).collect()
    }
}

/// Judges a ranking by the grades of what is relevant, above 0. The gain of nDCG is the grade itself, and
/// the discount `log2(rank + 1)` (Järvelin and Kekäläinen 2002).
pub(super) fn figures(ranked: &[usize], relevant: &BTreeMap<usize, f64>) -> Figures {
    let discount = |rank: usize| ((rank + 2) as f64).log2();
    let top = &ranked[..ranked.len().min(10)];
    let gain = top.iter().enumerate().filter_map(|(rank, item)| Some(relevant.get(item)? / discount(rank)));
    let mut grades: Vec<f64> = relevant.values().copied().collect();
    grades.sort_by(|a, b| b.total_cmp(a));
    let ideal: f64 = grades.iter().take(10).enumerate().map(|(rank, grade)| grade / discount(rank)).sum();
    let first = top.iter().position(|item| relevant.contains_key(item));
    let at = |k: usize| recall(&ranked[..ranked.len().min(k)], relevant);
    Figures([
        at(5),
        at(10),
        at(50),
        if ideal > 0.0 { gain.sum::<f64>() / ideal } else { 0.0 },
        first.map_or(0.0, |rank| 1.0 / (rank + 1) as f64),
    ])
}

/// The part of what is relevant that is among the found.
pub(super) fn recall(found: &[usize], relevant: &BTreeMap<usize, f64>) -> f64 {
    if relevant.is_empty() {
        return 0.0;
    }
    found.iter().filter(|item| relevant.contains_key(item)).count() as f64 / relevant.len() as f64
}

/// The figures of all questions.
#[derive(Default)]
pub(super) struct Tally {
    /// `[questions, stages]`, as in [`Stage::ALL`].
    figures: Vec<Vec<Figures>>,
    micros: Vec<[u64; 5]>,
    /// The recall of the candidates, and how many items they are.
    pool: Vec<(f64, usize)>,
    /// Questions that were told that there is nothing about them.
    pub(super) nothing: usize,
}

impl Tally {
    pub(super) fn add(&mut self, figures: Vec<Figures>, micros: [u64; 5], recall: f64, candidates: usize) {
        self.figures.push(figures);
        self.micros.push(micros);
        self.pool.push((recall, candidates));
    }

    /// One measure of one stage, for each question.
    pub(super) fn of(&self, stage: Stage, measure: usize) -> Vec<f64> {
        self.figures.iter().map(|stages| stages[stage as usize].0[measure]).collect()
    }

    pub(super) fn ms_p50(&self, stage: Stage) -> f64 {
        let mut micros: Vec<u64> = self.micros.iter().map(|stages| stages[stage as usize]).collect();
        micros.sort_unstable();
        micros.get(micros.len() / 2).map_or(0.0, |micros| *micros as f64 / 1_000.0)
    }

    /// The candidates' recall, and how many items they are on average.
    pub(super) fn pool(&self) -> (f64, f64) {
        let recall: Vec<f64> = self.pool.iter().map(|(recall, _)| *recall).collect();
        let items: Vec<f64> = self.pool.iter().map(|(_, items)| *items as f64).collect();
        (mean(&recall), mean(&items))
    }

    pub(super) fn questions(&self) -> usize {
        self.figures.len()
    }
}

/// By how many per cent the nDCG of the final order is above that of the fusion, each the mean over the sets,
/// with its interval over the same questions drawn for both.
pub(super) fn gain(sets: &[&Tally]) -> (f64, [f64; 2]) {
    let of = |stage| sets.iter().map(|set| set.of(stage, NDCG)).collect::<Vec<_>>();
    let (after, before) = (of(Stage::Final), of(Stage::Fusion));
    let gain = |drawn: &[Vec<usize>]| {
        let mean =
            |values: &[Vec<f64>]| -> f64 { values.iter().zip(drawn).map(|(v, d)| mean_at(v, d)).sum() };
        let before = mean(&before);
        if before > 0.0 { (mean(&after) / before - 1.0) * 100.0 } else { 0.0 }
    };
    let sizes: Vec<usize> = after.iter().map(Vec::len).collect();
    let all: Vec<Vec<usize>> = sizes.iter().map(|&size| (0..size).collect()).collect();
    (gain(&all), resampled(&sizes, gain))
}

pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn mean_at(values: &[f64], drawn: &[usize]) -> f64 {
    drawn.iter().map(|&at| values[at]).sum::<f64>() / drawn.len().max(1) as f64
}

/// The 95 % interval of the mean over the sets of each one's mean: percentiles of the bootstrap (Efron 1979),
/// drawn within each set.
pub(super) fn interval(sets: &[Vec<f64>]) -> [f64; 2] {
    let sizes: Vec<usize> = sets.iter().map(Vec::len).collect();
    resampled(&sizes, |drawn| {
        let means: Vec<f64> = sets.iter().zip(drawn).map(|(values, drawn)| mean_at(values, drawn)).collect();
        mean(&means)
    })
}

fn resampled(sizes: &[usize], statistic: impl Fn(&[Vec<usize>]) -> f64) -> [f64; 2] {
    if sizes.iter().all(|&size| size == 0) {
        return [0.0, 0.0];
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut statistics: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = sizes.iter().map(|&size| (0..size).map(|_| random.usize(..size)).collect());
            statistic(&drawn.collect::<Vec<_>>())
        })
        .collect();
    statistics.sort_by(f64::total_cmp);
    let at = |part: f64| statistics[(part * (RESAMPLES - 1) as f64).round() as usize];
    [at(0.025), at(0.975)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranking_is_judged_as_by_hand() {
        let relevant = BTreeMap::from([(1, 1.0), (2, 1.0)]);
        let Figures([r5, r10, r50, ndcg, mrr]) = figures(&[9, 1, 8, 7, 6, 5, 2], &relevant);
        assert_eq!((r5, r10, r50, mrr), (0.5, 1.0, 1.0, 0.5));
        let expected = (1.0 / 3_f64.log2() + 1.0 / 8_f64.log2()) / (1.0 + 1.0 / 3_f64.log2());
        assert!((ndcg - expected).abs() < 1e-12);
        assert_eq!(figures(&[1, 2], &relevant).0, [1.0; 5]);
        assert_eq!(figures(&[], &relevant).0, [0.0; 5]);
        let beyond: Vec<usize> = (10..20).chain([1]).collect();
        assert_eq!(figures(&beyond, &relevant).0, [0.0, 0.0, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn an_interval_holds_the_mean_narrows_with_the_questions_and_is_the_same_each_time() {
        let values = |n: usize| (0..n).map(|i| (i % 2) as f64).collect::<Vec<_>>();
        let width = |n| {
            let [low, high] = interval(&[values(n)]);
            assert!(low <= 0.5 && 0.5 <= high);
            high - low
        };
        assert!(width(1_000) < width(100) && width(100) < width(20));
        assert_eq!(interval(&[values(50)]), interval(&[values(50)]));
        assert_eq!(interval(&[Vec::new()]), [0.0, 0.0]);
    }

    #[test]
    fn each_set_counts_alike_in_the_gain_however_many_questions_it_has() {
        let set = |questions: usize, before: f64, after: f64| {
            let mut tally = Tally::default();
            for _ in 0..questions {
                let [before, after] = [before, after].map(|ndcg| Figures([0.0, 0.0, 0.0, ndcg, 0.0]));
                tally.add(vec![before, before, before, before, after], [0; 5], 0.0, 0);
            }
            tally
        };
        let (many, few) = (set(100, 0.5, 0.5), set(1, 0.5, 1.0));
        assert!((gain(&[&many, &few]).0 - 50.0).abs() < 1e-9);
        assert!((gain(&[&few]).0 - 100.0).abs() < 1e-9);
        assert_eq!(gain(&[&set(2, 0.0, 0.0)]), (0.0, [0.0, 0.0]));
    }
}
