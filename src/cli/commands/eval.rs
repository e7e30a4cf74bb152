//! `nugget eval`: measures each stage of the search on questions with known answers.

mod question_set;
mod report;
mod set_index;
mod stage;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use embed::Embedder;
use index::Snapshot;
use jiff::Timestamp;
use retrieve::metrics::{METRICS, RankingMetrics, recall};
use retrieve::{Query, Signal, Trace};
use serde_json::{Map, Value, json};

use self::question_set::{Question, QuestionSet};
use self::report::{Report, SetReport, UnrelatedReport};
use self::set_index::{SetIndex, embedding_failed};
use self::stage::{QuestionResult, SetResults, Stage};
use crate::context::Context;
use crate::error::CliError;
use crate::output;

/// How many items of each ranking `--per-query` lists.
const RANKS_MAX: usize = 50;
/// How many questions are asked before the measurement, to load what is loaded once.
const WARM_UP_QUESTIONS: usize = 3;

const AFTER_HELP: &str = "\
DIR holds corpus.jsonl ({id, text, title?, doc?, position?, scope?}),
queries.jsonl ({id, text, scope?}) and qrels.tsv (query, item, grade). Items
with the same `doc` are consecutive passages of one unit, in the order of
`position`. A question with a `scope` searches only the items of that scope.

Stages: bm25 and embedding are the two searches, fusion is their reciprocal rank
fusion (k = 60), graph adds neighbouring passages and related units, and final
is the order of the answer. `ms p50` is the time from the question to the
stage's ranking, with the question's vector. Brackets show the 95 % interval
over resampled questions. The index is built in a temporary folder. Vectors are
cached in $XDG_CACHE_HOME/nugget, so that a second run embeds only the
questions.

With several folders, the output has a line for each and their mean, in which
each set has the same weight; in JSON, `stages` is the mean and `sets` has the
figures of each.

With --unrelated, the questions of another set are asked too. They should get
no answer.

Examples:
  nugget eval sets/docs
  nugget eval sets/docs --json --stage fusion --stage final
  nugget eval sets/docs --per-query found.jsonl
  nugget eval sets/*
  nugget eval sets/docs --unrelated sets/code";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EvalArgs {
    /// The folder of a question set; may be given several times
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Show only this stage; may be given several times
    #[arg(long, value_enum, value_name = "STAGE")]
    stage: Vec<Stage>,
    /// Write the rankings of each question, with each candidate's features, as JSON lines
    #[arg(long, value_name = "FILE")]
    per_query: Option<PathBuf>,
    /// Also ask the questions of this set, which have no answer here; may be given several times
    #[arg(long, value_name = "DIR")]
    unrelated: Vec<PathBuf>,
    /// Leave these parts out of the final order
    #[arg(long, value_enum, value_name = "SIGNAL", value_delimiter = ',')]
    without: Vec<LeftOut>,
    /// Ask without the questions' scopes: all items are one corpus
    #[arg(long)]
    pooled: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

// What `--without` names. Doc comments here would make the help long.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LeftOut {
    Dates,
    Late,
    Context,
    Form,
}

impl LeftOut {
    fn signal(self) -> Signal {
        match self {
            Self::Dates => Signal::Dates,
            Self::Late => Signal::Late,
            Self::Context => Signal::Context,
            Self::Form => Signal::Form,
        }
    }
}

impl EvalArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = context.config()?;
        // Read all sets first, so that an error in the last one is reported at once.
        let sets = self.folders.iter().map(|folder| read_set(folder)).collect::<Result<Vec<_>, _>>()?;
        let unrelated =
            self.unrelated.iter().map(|folder| read_set(folder)).collect::<Result<Vec<_>, _>>()?;
        let create = |path: &PathBuf| {
            let failed = |error| CliError::new(format!("failed to create {}: {error}", path.display()));
            File::create(path).map(BufWriter::new).map_err(failed)
        };
        let mut per_query = self.per_query.as_ref().map(create).transpose()?;
        let settings = crate::settings::embedding(&config);
        let embedder = Embedder::load(&settings).map_err(embedding_failed)?;
        let without: Vec<Signal> = self.without.iter().map(|signal| signal.signal()).collect();
        let mut reports = Vec::with_capacity(sets.len());
        for (name, set) in sets {
            let folder = tempfile::tempdir()?;
            let index = SetIndex::build(&set, &embedder, folder.path())?;
            let started = Instant::now();
            let results = ask_all(&name, &set, &embedder, &index, &without, self.pooled, per_query.as_mut())?;
            let seconds_asking = started.elapsed().as_secs_f64();
            let unrelated = unrelated
                .iter()
                .map(|(name, other)| {
                    let unanswered = count_unanswered(other, &embedder, &index, &without)?;
                    Ok(UnrelatedReport { name: name.clone(), questions: other.questions.len(), unanswered })
                })
                .collect::<Result<Vec<_>, CliError>>()?;
            reports.push(SetReport {
                name,
                items: set.items.len(),
                chunks: index.chunks,
                embedded: index.embedded,
                results,
                unrelated,
                seconds_building: index.seconds,
                seconds_asking,
            });
        }
        if let Some(mut file) = per_query {
            file.flush()?;
        }
        let report = Report {
            sets: reports,
            model: embedder.model_name().to_owned(),
            runtime: embedder.runtime().to_string(),
            stages: if self.stage.is_empty() { Stage::ALL.to_vec() } else { self.stage },
        };
        if self.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) }
    }
}

/// The set in a folder, with the folder's name.
fn read_set(folder: &Path) -> Result<(String, QuestionSet), CliError> {
    let set = QuestionSet::read(folder)?;
    for warning in &set.warnings {
        output::note(&format!("warning: {}", output::safe(warning)));
    }
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name =
        folder.file_name().map_or_else(|| "set".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok((name, set))
}

fn ask_all(
    name: &str,
    set: &QuestionSet,
    embedder: &Embedder,
    index: &SetIndex,
    without: &[Signal],
    pooled: bool,
    mut per_query: Option<&mut BufWriter<File>>,
) -> Result<SetResults, CliError> {
    let mut results = SetResults::default();
    let bar = output::progress_bar("asking", set.questions.len());
    let mut snapshot = index.snapshot()?;
    for question in set.questions.iter().take(WARM_UP_QUESTIONS) {
        search(&snapshot, embedder, &question.text, without)?;
    }
    for question in &set.questions {
        let scope = question.scope.as_ref().filter(|_| !pooled);
        snapshot.restrict(scope.map(|scope| index.filter(scope)));
        let (vector_micros, trace) = search(&snapshot, embedder, &question.text, without)?;
        let rankings = Stage::ALL.map(|stage| index.ranked_items(stage.chunks(&trace)));
        let candidates = index.ranked_items(trace.expanded.iter().map(|hit| hit.chunk));
        let metrics = rankings.each_ref().map(|items| RankingMetrics::measure(items, &question.relevant));
        if let Some(file) = per_query.as_deref_mut() {
            let line = question_json(name, set, question, index, &trace, &rankings, &metrics);
            writeln!(file, "{line}")?;
        }
        results.0.push(QuestionResult {
            metrics,
            micros: Stage::ALL.map(|stage| stage.micros(&trace, vector_micros)),
            candidate_recall: recall(&candidates, &question.relevant),
            candidates: candidates.len(),
            is_answered: is_answered(&trace),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Asks the questions of another set, and counts those that get no answer.
fn count_unanswered(
    other: &QuestionSet,
    embedder: &Embedder,
    index: &SetIndex,
    without: &[Signal],
) -> Result<usize, CliError> {
    let snapshot = index.snapshot()?;
    let mut unanswered = 0;
    let bar = output::progress_bar("asking unrelated questions", other.questions.len());
    for question in &other.questions {
        let (_, trace) = search(&snapshot, embedder, &question.text, without)?;
        unanswered += usize::from(!is_answered(&trace));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(unanswered)
}

/// Whether any result is above the floor of relevance.
fn is_answered(trace: &Trace) -> bool {
    trace.reranked.iter().any(|scored| scored.relevant)
}

/// The time that the question's vector took, in microseconds, and the trace of the search.
fn search(
    snapshot: &Snapshot,
    embedder: &Embedder,
    text: &str,
    without: &[Signal],
) -> Result<(u64, Trace), CliError> {
    let started = Instant::now();
    let has_meaning = embedder.runtime() != embed::Runtime::Off;
    let embedding = match embedder.embed_query(text) {
        _ if !has_meaning => None,
        // Such a question is searched for by its words.
        Err(embed::Error::UnknownWords | embed::Error::Empty) => None,
        embedding => Some(embedding.map_err(embedding_failed)?),
    };
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let query = Query { without: without.to_vec(), ..Query::new(text, Timestamp::UNIX_EPOCH) };
    let query = query.with_embedding(embedding);
    let trace = retrieve::search(snapshot, &query, embedder.tokenizer())
        .map_err(|error| CliError::new(format!("the search failed: {error}")))?;
    Ok((micros, trace))
}

/// A line of `--per-query`: the ranking of each stage, and the features of each candidate.
fn question_json(
    name: &str,
    set: &QuestionSet,
    question: &Question,
    index: &SetIndex,
    trace: &Trace,
    rankings: &[Vec<usize>; 5],
    metrics: &[RankingMetrics; 5],
) -> Value {
    let id = |item: &usize| set.items[*item].id.as_str();
    let relevant: Map<String, Value> =
        question.relevant.iter().map(|(item, grade)| (set.item_id(*item).to_owned(), json!(grade))).collect();
    let mut stages = Map::new();
    for ((stage, items), metrics) in Stage::ALL.iter().zip(rankings).zip(metrics) {
        let mut values: Map<String, Value> = METRICS
            .iter()
            .zip(metrics.values)
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let ranked: Vec<&str> = items.iter().take(RANKS_MAX).map(id).collect();
        values.insert("ranked".to_owned(), json!(ranked));
        stages.insert(stage.name().to_owned(), Value::Object(values));
    }
    let candidates: Vec<Value> = trace
        .reranked
        .iter()
        .filter_map(|scored| {
            let item = index.item_of(scored.chunk)?;
            Some(json!({
                "item": id(&item),
                "grade": question.relevant.get(&item).copied().unwrap_or(0.0),
                "score": scored.score,
                "relevant": scored.relevant,
                "features": scored.features,
            }))
        })
        .collect();
    json!({
        "set": name,
        "id": question.id,
        "text": question.text,
        "relevant": relevant,
        "terms": trace.analysis.terms,
        "exact": trace.analysis.exact,
        "stages": stages,
        "candidates": candidates,
    })
}
