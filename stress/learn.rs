//! What the re-ranker learns from citations: learning curves on question sets, each scope of a set as a project; and
//! learning under kills.
//!
//! A project's first questions are asked in order, the best five of twenty candidates are shown, and what is cited is
//! simulated from the judgements: one in ten flipped, the lower in the list the less often looked at, only what was shown.
//! Its other questions measure the order before and after. The base is once the cosine of the model's vectors and once the
//! final order, as `nugget eval` has it.

mod kills;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use embed::Embedder;
use fastrand::Rng;
use feedback::{
    Candidate, Choice, Example, Gate, Interval, Learner, Listwise, Outcome, Reinforce, Shown, Weights,
    choose, sampling,
};
use index::{ModelLabel, VectorCache};
use retrieve::SCORE_SCALE;
use retrieve::metrics::{NDCG_AT_10, RankingMetrics, mean_with_interval};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub(crate) use kills::run_round;

const CANDIDATES: usize = 20;
const SHOWN: usize = 5;
const FLIPPED: f64 = 0.1;
/// The chance that an item is looked at, for each item above it.
const LOOKED_AT: f64 = 0.95;
/// The position of recall@5 among the metrics.
const RECALL_AT_5: usize = 0;
/// The parts of the first half that are learned from, in hundredths.
const PARTS: [usize; 3] = [25, 50, 100];

#[derive(clap::Args)]
pub(crate) struct LearnArgs {
    /// A folder with corpus.jsonl, queries.jsonl and qrels.tsv, as `nugget eval` reads them; may be repeated
    #[arg(long, value_name = "DIR", required_unless_present = "kills", conflicts_with = "kills")]
    data: Vec<PathBuf>,
    /// Simulations with different citations
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Show a draw of the candidates at this temperature instead of the best
    #[arg(long, default_value_t = 0.0)]
    explore: f64,
    /// Instead of measuring, kill rounds of learning so often, and check that each citation is applied once
    #[arg(long)]
    kills: Option<usize>,
}

pub(crate) fn run(args: &LearnArgs, binary: &Path, seed: u64) -> Result<Value> {
    if let Some(kills) = args.kills {
        return kills::run(kills, seed);
    }
    let embedder = Embedder::load(&embed::Settings::default())?;
    let mut report = Map::new();
    for folder in &args.data {
        let name = folder.file_name().context("a folder with a name")?.to_string_lossy().into_owned();
        let set =
            QuestionSet::read(folder, binary, &embedder).with_context(|| folder.display().to_string())?;
        let measured = [("embedding", Base::Embedding), ("final", Base::Final)].map(|(name, base)| {
            (name.to_owned(), set.measure(base, args, embedder.model_name(), embedder.dimensions(), seed))
        });
        eprintln!("{name} {}", Value::Object(measured.iter().cloned().collect()));
        report.insert(name, Value::Object(measured.into_iter().collect()));
    }
    Ok(Value::Object(report))
}

#[derive(Deserialize)]
struct Text {
    id: Value,
    text: String,
    #[serde(default)]
    scope: Option<Value>,
}

impl Text {
    fn id(&self) -> String {
        as_text(&self.id)
    }

    fn scope(&self) -> String {
        self.scope.as_ref().map(as_text).unwrap_or_default()
    }
}

/// Sets have ids that are numbers, too.
fn as_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// What the candidates are ordered by before learning.
#[derive(Clone, Copy, PartialEq)]
enum Base {
    Embedding,
    Final,
}

/// A set: each project's questions in order, with the candidates of both bases.
struct QuestionSet {
    projects: Vec<Vec<[Question; 2]>>,
}

/// A question with its candidates, best first.
struct Question {
    query: Vec<f32>,
    candidates: Vec<(Vec<f32>, f64)>,
    /// The candidates that are relevant, and others that are but were not found, with numbers from [`CANDIDATES`] on.
    relevant: BTreeMap<usize, f64>,
}

impl QuestionSet {
    fn read(folder: &Path, binary: &Path, embedder: &Embedder) -> Result<Self> {
        let judgements = fs::read_to_string(folder.join("qrels.tsv"))?;
        let mut judged: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for line in judgements.lines() {
            if let [question, item, grade] = line.split('\t').map(str::trim).collect::<Vec<_>>()[..]
                && grade.parse().is_ok_and(|grade: f64| grade > 0.0)
            {
                judged.entry(question).or_default().insert(item);
            }
        }
        let corpus = json_lines::<Text>(&folder.join("corpus.jsonl"))?;
        let vectors = embed_documents(&corpus, embedder)?;
        let vector_of: BTreeMap<String, usize> =
            corpus.iter().enumerate().map(|(at, item)| (item.id(), at)).collect();
        let mut scopes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, item) in corpus.iter().enumerate() {
            scopes.entry(item.scope()).or_default().push(at);
        }
        let is_scoped = scopes.len() > 1;
        let in_final_order = final_order(folder, binary)?;
        let mut projects: BTreeMap<String, Vec<[Question; 2]>> = BTreeMap::new();
        for question in json_lines::<Text>(&folder.join("queries.jsonl"))? {
            let (id, scope) = (question.id(), question.scope());
            let Some(relevant) = judged.get(id.as_str()) else { continue };
            let items = if is_scoped { scopes.get(&scope) } else { scopes.values().next() };
            let Some(items) = items else { continue };
            let query = embedder.embed_query(&question.text)?.vector;
            let scores: Vec<f64> = items.iter().map(|item| dot(&query, &vectors[*item])).collect();
            let nearest = sampling::best(&scores, CANDIDATES);
            let nearest = nearest.iter().map(|draw| (items[draw.candidate], scores[draw.candidate]));
            let Some(ranked) = in_final_order.get(&id) else { continue };
            let ranked = ranked
                .iter()
                .filter_map(|(item, score)| Some((*vector_of.get(item)?, score / SCORE_SCALE)))
                .take(CANDIDATES);
            let new = |found: Vec<(usize, f64)>| {
                let is_relevant = |item: usize| relevant.contains(corpus[item].id().as_str());
                let mut numbers: Vec<usize> =
                    (0..found.len()).filter(|at| is_relevant(found[*at].0)).collect();
                let missing = relevant.len().saturating_sub(numbers.len());
                numbers.extend((0..missing).map(|number| CANDIDATES + number));
                Question {
                    query: query.clone(),
                    candidates: found.iter().map(|(item, score)| (vectors[*item].clone(), *score)).collect(),
                    relevant: numbers.into_iter().map(|number| (number, 1.0)).collect(),
                }
            };
            projects.entry(scope).or_default().push([new(nearest.collect()), new(ranked.collect())]);
        }
        ensure!(projects.values().any(|questions| questions.len() > 1), "no project has two questions");
        Ok(Self { projects: projects.into_values().collect() })
    }

    fn measure(&self, base: Base, args: &LearnArgs, model: &str, dimensions: usize, seed: u64) -> Value {
        let (reinforce, listwise) = (Reinforce::default(), Listwise::default());
        let learners: [&dyn Learner; 2] = [&reinforce, &listwise];
        let zero = Weights::zero(model, dimensions);
        let mut measured = Measured::default();
        let mut checks = Checks::default();
        for run in 0..args.seeds {
            let mut of_all: BTreeMap<&str, Vec<Example>> = BTreeMap::new();
            let mut tests: Vec<&Question> = Vec::new();
            for (project, questions) in self.projects.iter().enumerate() {
                let questions: Vec<&Question> =
                    questions.iter().map(|both| &both[usize::from(base == Base::Final)]).collect();
                let (train, test) = questions.split_at(questions.len() / 2);
                let mut add = |name: &str, weights: &Weights| measured.add(name, test, weights, &zero);
                for (citations, kind) in [(Citations::Honest, "honest"), (Citations::Flipped, "flipped")] {
                    let mut random = Rng::with_seed(seed.wrapping_add(run * 1000 + project as u64));
                    let number = |at: usize| (project * 100_000 + at) as u64;
                    let examples = train.iter().enumerate().filter_map(|(at, question)| {
                        question.example(number(at), citations, args.explore, &mut random).ok()
                    });
                    let examples: Vec<Example> = examples.collect();
                    for learner in learners {
                        let mut weights = zero.clone();
                        learner.learn(&mut weights, &examples);
                        add(&format!("{kind}, {}, unchecked", learner.name()), &weights);
                    }
                    for part in PARTS {
                        let part_of = &examples[..examples.len() * part / 100];
                        let choice = choose(&learners, part_of, model, dimensions, &Gate::default());
                        let name = format!("{kind}, checked, {part} %");
                        checks.add(&name, &choice);
                        add(&name, choice.live.as_ref().map_or(&zero, |(_, weights)| weights));
                    }
                    of_all.entry(kind).or_default().extend(examples);
                }
                tests.extend(test);
            }
            if self.projects.len() > 1 {
                for (kind, examples) in &of_all {
                    for learner in learners {
                        let mut weights = zero.clone();
                        learner.learn(&mut weights, examples);
                        let name = format!("{kind}, {}, unchecked, shared", learner.name());
                        measured.add(&name, &tests, &weights, &zero);
                    }
                    let choice = choose(&learners, examples, model, dimensions, &Gate::default());
                    let name = format!("{kind}, checked, shared");
                    checks.add(&name, &choice);
                    let weights = choice.live.as_ref().map_or(&zero, |(_, weights)| weights);
                    measured.add(&name, &tests, weights, &zero);
                }
            }
        }
        json!({
            "projects": self.projects.len(),
            "questions": self.projects.iter().map(Vec::len).sum::<usize>(),
            "runs": args.seeds * self.projects.len() as u64,
            "checks": checks.to_json(),
            "orders": measured.to_json(args.seeds),
        })
    }
}

/// How often an order went live, and what the check estimated for the listwise learner.
#[derive(Default)]
struct Checks(BTreeMap<String, Vec<(bool, Option<Interval>)>>);

impl Checks {
    fn add(&mut self, name: &str, choice: &Choice) {
        let listwise = choice.verdicts.iter().find(|verdict| verdict.learner == "listwise");
        let gain = listwise.and_then(|verdict| verdict.estimate.gain);
        self.0.entry(name.to_owned()).or_default().push((choice.live.is_some(), gain));
    }

    fn to_json(&self) -> Value {
        let one = |checks: &Vec<(bool, Option<Interval>)>| {
            let gains: Vec<Interval> = checks.iter().filter_map(|(_, gain)| *gain).collect();
            let mean = |of: fn(&Interval) -> f64| {
                let sum: f64 = gains.iter().map(of).sum();
                (sum / gains.len().max(1) as f64 * 1e4).round() / 1e4
            };
            json!({
                "live": checks.iter().filter(|(is_live, _)| *is_live).count(), "of": checks.len(),
                "gain": mean(|gain| gain.estimate), "low": mean(|gain| gain.low),
            })
        };
        Value::Object(self.0.iter().map(|(name, checks)| (name.clone(), one(checks))).collect())
    }
}

/// For each order, recall@5 and nDCG@10 of the test questions before and after, run after run.
#[derive(Default)]
struct Measured(BTreeMap<String, Vec<[RankingMetrics; 2]>>);

impl Measured {
    fn add(&mut self, name: &str, test: &[&Question], weights: &Weights, zero: &Weights) {
        let both = test.iter().map(|question| [question.measure(zero), question.measure(weights)]);
        self.0.entry(name.to_owned()).or_default().extend(both);
    }

    /// With intervals over the questions, each question's mean over the runs.
    fn to_json(&self, seeds: u64) -> Value {
        let order = |measured: &Vec<[RankingMetrics; 2]>| {
            let questions = measured.len() / seeds.max(1) as usize;
            let metric = |at: usize| {
                let mean_of = |of: &dyn Fn(&[RankingMetrics; 2]) -> f64| -> Vec<f64> {
                    (0..questions)
                        .map(|question| {
                            let runs = measured.iter().skip(question).step_by(questions.max(1));
                            runs.map(of).sum::<f64>() / seeds as f64
                        })
                        .collect()
                };
                let before = mean_of(&|both| both[0].values[at]);
                let change = mean_of(&|both| both[1].values[at] - both[0].values[at]);
                let ((before, _), (change, interval)) =
                    (mean_with_interval(&[before]), mean_with_interval(&[change]));
                let rounded = |value: f64| (value * 1e4).round() / 1e4;
                json!({ "before": rounded(before), "change": rounded(change), "interval": interval.map(rounded) })
            };
            json!({ "recall@5": metric(RECALL_AT_5), "ndcg@10": metric(NDCG_AT_10) })
        };
        Value::Object(self.0.iter().map(|(name, measured)| (name.clone(), order(measured))).collect())
    }
}

/// The vectors of all items; from the cache of `nugget eval` where it has them.
fn embed_documents(corpus: &[Text], embedder: &Embedder) -> Result<Vec<Vec<f32>>> {
    let label = ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
    let cache = VectorCache::open(&brain::paths::vector_cache());
    let texts: Vec<String> = corpus.iter().map(|item| item.text.clone()).collect();
    let known = cache.get(&label, &texts);
    let vectors = texts.iter().zip(known).map(|(text, known)| match known {
        Some(known) => Ok(known.vector),
        None => {
            let embedding = embedder.embed_document(text)?;
            cache.put(&label, [(text.as_str(), &embedding)]);
            Ok(embedding.vector)
        }
    });
    vectors.collect()
}

/// For each question the items of `nugget eval`'s final order with their scores, best first.
fn final_order(folder: &Path, binary: &Path) -> Result<BTreeMap<String, Vec<(String, f64)>>> {
    let file = tempfile::NamedTempFile::new()?;
    let output =
        Command::new(binary).args(["eval", "--json", "--per-query"]).arg(file.path()).arg(folder).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut orders = BTreeMap::new();
    for question in json_lines::<Value>(file.path())? {
        let mut items: Vec<(String, f64)> = Vec::new();
        for candidate in question["candidates"].as_array().into_iter().flatten() {
            let (Some(item), Some(score)) = (candidate["item"].as_str(), candidate["score"].as_f64()) else {
                continue;
            };
            if items.iter().all(|(known, _)| known != item) {
                items.push((item.to_owned(), score));
            }
        }
        orders.insert(as_text(&question["id"]), items);
    }
    Ok(orders)
}

fn json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
}

/// Who cites.
#[derive(Clone, Copy, PartialEq)]
enum Citations {
    Honest,
    Flipped,
}

impl Question {
    fn scores(&self) -> Vec<f64> {
        self.candidates.iter().map(|(_, score)| *score).collect()
    }

    fn example(&self, number: u64, citations: Citations, explore: f64, random: &mut Rng) -> Result<Example> {
        let draws = sampling::explore(&self.scores(), SHOWN, explore, random.u64(..));
        let shown = draws.iter().enumerate().map(|(rank, draw)| {
            let is_relevant = self.relevant.contains_key(&draw.candidate);
            let is_cited = match citations {
                Citations::Honest => is_relevant != (random.f64() < FLIPPED),
                Citations::Flipped => !is_relevant,
            };
            let is_used = is_cited && random.f64() < LOOKED_AT.powi(rank as i32);
            let outcome = if is_used { Outcome::Used } else { Outcome::Ignored };
            Shown { candidate: draw.candidate, propensity: draw.propensity, outcome }
        });
        let shown = shown.collect();
        let candidates = self.candidates.iter().map(|(vector, score)| Candidate::new(vector, *score));
        Ok(Example::new(number, &self.query, candidates.collect(), shown)?)
    }

    fn measure(&self, weights: &Weights) -> RankingMetrics {
        let scores = match weights.adapt(&self.query) {
            Ok(adapted) => {
                self.candidates.iter().map(|(vector, score)| adapted.score(*score, vector)).collect()
            }
            Err(_) => self.scores(),
        };
        let order: Vec<usize> =
            sampling::best(&scores, CANDIDATES).iter().map(|draw| draw.candidate).collect();
        RankingMetrics::measure(&order, &self.relevant)
    }
}
