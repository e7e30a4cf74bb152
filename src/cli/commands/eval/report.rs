//! Renders the results as JSON and as text.

use retrieve::metrics::{HITS, METRICS, NDCG_AT_10, RECALL_AT_10, mean};
use serde_json::{Map, Value, json};

use super::stage::{SetResults, Stage, final_over_fusion, mean_metric};
use crate::output;

/// The results of one set.
pub(super) struct SetReport {
    pub name: String,
    pub items: usize,
    pub chunks: usize,
    /// How many vectors were computed and not found in the cache.
    pub embedded: usize,
    pub results: SetResults,
    pub unrelated: Vec<UnrelatedReport>,
    pub seconds_building: f64,
    pub seconds_asking: f64,
}

/// The questions of another set, and how many of them got no answer.
pub(super) struct UnrelatedReport {
    pub name: String,
    pub questions: usize,
    pub unanswered: usize,
}

/// The results of all sets.
pub(super) struct Report {
    pub sets: Vec<SetReport>,
    pub model: String,
    pub runtime: String,
    /// The stages to show.
    pub stages: Vec<Stage>,
}

impl Report {
    fn results(&self) -> Vec<&SetResults> {
        self.sets.iter().map(|set| &set.results).collect()
    }

    /// One set's results, or the means over several sets and each set's results.
    pub(super) fn to_json(&self) -> Value {
        if let [set] = &self.sets[..] {
            return self.set_json(set);
        }
        let (gain, interval) = final_over_fusion(&self.results());
        let sets: Vec<Value> = self.sets.iter().map(|set| self.set_json(set)).collect();
        json!({
            "stages": self.stages_json(&self.results()),
            "final_over_fusion": { "ndcg@10": gain, "ci95": interval },
            "sets": sets,
        })
    }

    fn set_json(&self, set: &SetReport) -> Value {
        let (recall, candidates) = set.results.candidate_pool();
        let (gain, interval) = final_over_fusion(&[&set.results]);
        let questions = set.results.questions();
        let unrelated: Vec<Value> = set
            .unrelated
            .iter()
            .map(|other| {
                let share = share(other.unanswered, other.questions);
                json!({ "set": other.name, "questions": other.questions, "nothing": share })
            })
            .collect();
        json!({
            "set": set.name,
            "questions": questions,
            "items": set.items,
            "chunks": set.chunks,
            "model": self.model,
            "runtime": self.runtime,
            "stages": self.stages_json(&[&set.results]),
            "pool": { "recall": recall, "candidates": candidates },
            "final_over_fusion": { "ndcg@10": gain, "ci95": interval },
            "floor": { "own_nothing": share(set.results.unanswered(), questions), "unrelated": unrelated },
            "embedded": set.embedded,
            "seconds": { "building": set.seconds_building, "asking": set.seconds_asking },
        })
    }

    fn stages_json(&self, sets: &[&SetResults]) -> Value {
        let mut stages = Map::new();
        for &stage in &self.stages {
            let mut values = Map::new();
            let mut intervals = Map::new();
            for (at, metric) in METRICS.iter().enumerate() {
                let (mean, interval) = mean_metric(sets, stage, at);
                values.insert((*metric).to_owned(), json!(mean));
                intervals.insert((*metric).to_owned(), json!(interval));
            }
            let ms: Vec<f64> = sets.iter().map(|set| set.ms_p50(stage)).collect();
            values.insert("ms_p50".to_owned(), json!(mean(&ms)));
            values.insert("ci95".to_owned(), Value::Object(intervals));
            stages.insert(stage.name().to_owned(), Value::Object(values));
        }
        Value::Object(stages)
    }

    /// A table of one set's stages, or a table with a row for each set.
    pub(super) fn to_text(&self) -> String {
        if let [set] = &self.sets[..] {
            return self.set_text(set);
        }
        let mut head = vec!["ndcg@10 recall@10"];
        head.extend(self.stages.iter().map(|stage| stage.name()));
        head.extend(["pool", "final over fusion", "ms p50"]);
        let rows = self.sets.iter().map(|set| self.row(output::safe(&set.name), &[&set.results]));
        let rows = rows.chain([self.row("mean".to_owned(), &self.results())]);
        let floors: Vec<String> = self
            .sets
            .iter()
            .map(|set| format!("{}: {}", output::safe(&set.name), render_floor(set)))
            .collect();
        format!("{} on {}\n\n{}\n{}", self.model, self.runtime, output::table(&head, rows), floors.concat())
    }

    /// nDCG@10 and recall@10 of each stage, averaged over the sets.
    fn row(&self, name: String, sets: &[&SetResults]) -> Vec<String> {
        let mut row = vec![name];
        for &stage in &self.stages {
            let [ndcg, recall] = [NDCG_AT_10, RECALL_AT_10].map(|at| mean_metric(sets, stage, at).0);
            row.push(format!("{ndcg:.3} {recall:.3}"));
        }
        let pool: Vec<f64> = sets.iter().map(|set| set.candidate_pool().0).collect();
        let ms: Vec<f64> = sets.iter().map(|set| set.ms_p50(Stage::Final)).collect();
        let (gain, [low, high]) = final_over_fusion(sets);
        row.push(format!("{:.3}", mean(&pool)));
        row.push(format!("{gain:+.1} % [{low:+.1} {high:+.1}]"));
        row.push(format!("{:.1}", mean(&ms)));
        row
    }

    fn set_text(&self, set: &SetReport) -> String {
        let head: Vec<&str> =
            std::iter::once("stage").chain(METRICS[..HITS.start].iter().copied()).chain(["ms p50"]).collect();
        let rows = self.stages.iter().map(|&stage| {
            let mut row = vec![stage.name().to_owned()];
            for at in 0..HITS.start {
                let (mean, [low, high]) = mean_metric(&[&set.results], stage, at);
                row.push(format!("{mean:.3} [{low:.3} {high:.3}]"));
            }
            row.push(format!("{:.1}", set.results.ms_p50(stage)));
            row
        });
        let (recall, candidates) = set.results.candidate_pool();
        let (gain, [low, high]) = final_over_fusion(&[&set.results]);
        let hits: Vec<String> = HITS
            .map(|at| format!("{} {:.3}", METRICS[at], mean_metric(&[&set.results], Stage::Final, at).0))
            .collect();
        format!(
            "{}: {} questions, {} items in {} chunks; {} on {}\n\n{}\n\
             pool: {recall:.3} of the relevant items are among the {candidates:.0} candidates\n\
             final: {}\n\
             final over fusion: nDCG@10 {gain:+.1} % [{low:+.1} {high:+.1}]\n\
             floor: {}\
             time: {:.1} s to build ({} vectors computed), {:.1} s to ask\n",
            output::safe(&set.name),
            set.results.questions(),
            set.items,
            set.chunks,
            self.model,
            self.runtime,
            output::table(&head, rows),
            hits.join(", "),
            render_floor(set),
            set.seconds_building,
            set.embedded,
            set.seconds_asking,
        )
    }
}

/// How many questions got no answer: of the set itself, which is wrong, and of unrelated sets, which is right.
fn render_floor(set: &SetReport) -> String {
    let count = |unanswered: usize, questions: usize| {
        format!("{unanswered} of {questions} ({:.1} %)", 100.0 * share(unanswered, questions))
    };
    let results = &set.results;
    let mut text =
        format!("{} own questions get no answer", count(results.unanswered(), results.questions()));
    for other in &set.unrelated {
        let name = output::safe(&other.name);
        text.push_str(&format!(
            "; {} of {name}'s, which should get none",
            count(other.unanswered, other.questions)
        ));
    }
    text + "\n"
}

fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}
