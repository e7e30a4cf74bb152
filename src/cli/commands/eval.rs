//! `nugget eval`: how well each stage of a search does on a set of questions whose answers are known.

mod measure;
mod set;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use embed::{Embedder, Tokenizer};
use index::{ChunkRow, Filter, Index, ModelLabel, PrechunkedUnit, Snapshot, VectorCache, chunk};
use jiff::Timestamp;
use knowledge::{Domain, Unit, UnitId, UnitType, unit};
use retrieve::{Query, Trace};
use serde_json::{Map, Value, json};

use self::measure::{Figures, MEASURES, Stage, Tally};
use self::set::Set;
use crate::context::{self, Context};
use crate::error::CliError;
use crate::output;

/// How many texts are embedded, and kept in the cache, at a time.
const BATCH: usize = 32;
/// How deep a ranking is judged and told.
const RANKS_MAX: usize = 50;

const AFTER: &str = "\
DIR holds corpus.jsonl ({id, text, title?, doc?, position?, scope?}),
queries.jsonl ({id, text, scope?}) and qrels.tsv (query, item, grade). Items of
one `doc` are consecutive passages of one unit, in the order of `position`; a
question with a `scope` is asked of the items of that scope only.

Stages: bm25 and embedding are the two searches, fusion is their reciprocal rank
fusion (k = 60), graph adds neighbouring passages and related units, final is
the order that is answered with. `ms p50` is the time from the question to that
stage's list, the question's vector included. In brackets: the 95 % interval
over resampled questions. The index is made in a temporary folder; vectors are
kept in the cache ($XDG_CACHE_HOME/nugget), so that a second run embeds only the
questions.

Several folders are told in a line each, with the mean in which each of them
counts alike; in JSON `stages` is then that mean and `sets` has each one's
figures.

With --unrelated the questions of other sets are asked too, of all items: they
should get nothing.

Examples:
  nugget eval sets/docs
  nugget eval sets/docs --json --stage fusion --stage final
  nugget eval sets/docs --per-query found.jsonl
  nugget eval sets/*
  nugget eval sets/docs --unrelated sets/code";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The folder of the set; of each set
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Tell this stage only; may be given several times
    #[arg(long, value_enum, value_name = "STAGE")]
    stage: Vec<Stage>,
    /// Write what was found for each question, with each candidate's features, as JSON lines
    #[arg(long, value_name = "FILE")]
    per_query: Option<PathBuf>,
    /// Ask the questions of this set too, which have no answer here; may be given several times
    #[arg(long, value_name = "DIR")]
    unrelated: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        context.log_to_stderr();
        let config = context.config()?;
        // All are read before the first is asked: what is wrong with the last is told at once.
        let sets = self.folders.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
        let unrelated = self.unrelated.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
        let mut per_query = match &self.per_query {
            Some(path) => {
                let failed = |error| CliError::new(format!("failed to create {}: {error}", path.display()));
                Some(BufWriter::new(File::create(path).map_err(failed)?))
            }
            None => None,
        };
        let settings = context::embed_settings(&config);
        let embedder = Embedder::load(&settings).map_err(fault)?;
        let stages = if self.stage.is_empty() { Stage::ALL.to_vec() } else { self.stage };
        let mut reports = Vec::with_capacity(sets.len());
        for (name, set) in sets {
            let folder = tempfile::tempdir()?;
            let built = Built::new(&set, &embedder, folder.path())?;
            let begun = Instant::now();
            let tally = ask(&name, &set, &embedder, &built, per_query.as_mut())?;
            let seconds_asking = begun.elapsed().as_secs_f64();
            let unrelated = unrelated
                .iter()
                .map(|(name, other)| {
                    Ok(Unrelated { name: name.clone(), ..nothing(other, &embedder, &built)? })
                })
                .collect::<Result<Vec<_>, CliError>>()?;
            reports.push(Report { name, set, built, tally, unrelated, seconds_asking });
        }
        if let Some(mut file) = per_query {
            file.flush()?;
        }
        let told = Told { reports, embedder, stages };
        if self.json {
            output::print_json(&told.json())?
        } else {
            output::print(&told.text())?
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(folder: &Path) -> Result<(String, Set), CliError> {
    let set = Set::read(folder)?;
    for warning in &set.warnings {
        output::note(&format!("warning: {}", output::safe(warning)));
    }
    Ok((name(folder), set))
}

/// The set in an index of its own.
struct Built {
    index: Index,
    /// The item that each chunk is of, or is a part of.
    items: HashMap<ChunkRow, usize>,
    scopes: HashMap<String, Filter>,
    chunks: usize,
    embedded: usize,
    seconds: f64,
}

impl Built {
    fn new(set: &Set, embedder: &Embedder, folder: &Path) -> Result<Self, CliError> {
        let begun = Instant::now();
        let (units, items_of_units) = units(set, embedder.tokenizer());
        let ids: Vec<UnitId> = units.iter().map(|given| given.unit.id.clone()).collect();
        let label = ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
        let index = Index::open(folder).map_err(indexed)?;
        let plan = index.plan_prechunked(units, &label).map_err(indexed)?;
        let (vectors, embedded) = vectors(plan.texts(), &label, embedder)?;
        let report = plan.publish(vectors).map_err(indexed)?;
        let pinned = index.pin().map_err(indexed)?;
        let mut items = HashMap::new();
        for (id, of_unit) in ids.iter().zip(items_of_units) {
            items.extend(
                pinned.chunks_of(id).map_err(indexed)?.into_iter().map(|chunk| chunk.row).zip(of_unit),
            );
        }
        let mut scopes: HashMap<String, Vec<ChunkRow>> = HashMap::new();
        for (row, item) in &items {
            if let Some(scope) = &set.items[*item].scope {
                scopes.entry(scope.clone()).or_default().push(*row);
            }
        }
        let scopes = scopes.into_iter().map(|(scope, rows)| (scope, rows.into_iter().collect())).collect();
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Self { index, items, scopes, chunks: report.chunks, embedded, seconds })
    }

    /// The ranked items, each at the place of its best chunk.
    fn items(&self, chunks: impl Iterator<Item = ChunkRow>) -> Vec<usize> {
        let mut ranked = Vec::new();
        for item in chunks.filter_map(|chunk| self.items.get(&chunk).copied()) {
            if !ranked.contains(&item) {
                ranked.push(item);
            }
        }
        ranked
    }
}

/// The units that the items make up, and for each unit the item that each of its pieces is of.
fn units(set: &Set, tokenizer: &Tokenizer) -> (Vec<PrechunkedUnit>, Vec<Vec<usize>>) {
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (number, item) in set.items.iter().enumerate() {
        match &item.doc {
            Some(doc) => {
                let place = *places.entry(doc).or_insert(members.len());
                if place == members.len() {
                    members.push(Vec::new());
                }
                members[place].push(number);
            }
            None => members.push(vec![number]),
        }
    }
    let mut units = Vec::with_capacity(members.len());
    let mut items_of_units = Vec::with_capacity(members.len());
    for (number, mut members) in members.into_iter().enumerate() {
        members.sort_by_key(|&item| set.items[item].position);
        let (mut pieces, mut items) = (Vec::new(), Vec::new());
        for &member in &members {
            let item = &set.items[member];
            for piece in chunk::split(item.title.as_deref().unwrap_or_default(), &item.text, tokenizer) {
                if !piece.embedding_text().trim().is_empty() {
                    pieces.push(piece);
                    items.push(member);
                }
            }
        }
        let title = members.first().and_then(|&first| set.items[first].title.clone()).unwrap_or_default();
        let unit = Unit {
            id: UnitId::verbatim(format!("unit-{number}")),
            kind: UnitType::Concept,
            domain: Domain::verbatim("eval"),
            title,
            description: None,
            tags: Vec::new(),
            confidence: unit::CONFIDENCE_DEFAULT,
            source: String::new(),
            related: Vec::new(),
            created: None,
            last_modified: None,
            status: None,
            body: String::new(),
        };
        units.push(PrechunkedUnit { unit, pieces });
        items_of_units.push(items);
    }
    (units, items_of_units)
}

/// A vector for each text, and how many of them had to be computed.
fn vectors(
    texts: &[String],
    label: &ModelLabel,
    embedder: &Embedder,
) -> Result<(Vec<Vec<f32>>, usize), CliError> {
    let cache = VectorCache::open(&brain::paths::vector_cache());
    let mut vectors = cache.get(label, texts);
    let missing: Vec<usize> = (0..texts.len()).filter(|&at| vectors[at].is_none()).collect();
    let bar = output::progress_bar("embedding");
    bar.set_length(missing.len() as u64);
    for batch in missing.chunks(BATCH) {
        // Two at a time, as many as there are sessions.
        let computed: Vec<_> = std::thread::scope(|scope| {
            let halves = batch.chunks(batch.len().div_ceil(2));
            let workers: Vec<_> = halves
                .map(|half| {
                    scope.spawn(move || {
                        half.iter().map(|&at| embedder.embed_document(&texts[at])).collect::<Vec<_>>()
                    })
                })
                .collect();
            let joined = workers.into_iter().map(|worker| match worker.join() {
                Ok(vectors) => vectors,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.flatten().collect()
        });
        for (&at, vector) in batch.iter().zip(computed) {
            vectors[at] = Some(vector.map_err(fault)?);
        }
        let kept = batch.iter().filter_map(|&at| Some((texts[at].as_str(), vectors[at].as_deref()?)));
        cache.put(label, kept);
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok((vectors.into_iter().flatten().collect(), missing.len()))
}

fn ask(
    name: &str,
    set: &Set,
    embedder: &Embedder,
    built: &Built,
    mut per_query: Option<&mut BufWriter<File>>,
) -> Result<Tally, CliError> {
    let mut tally = Tally::default();
    let bar = output::progress_bar("asking");
    bar.set_length(set.queries.len() as u64);
    let mut pinned = built.index.pin().map_err(indexed)?;
    // The first questions pay for what is loaded once.
    for query in set.queries.iter().take(3) {
        search(&pinned, embedder, &query.text)?;
    }
    for query in &set.queries {
        pinned
            .restrict(query.scope.as_ref().map(|scope| built.scopes.get(scope).cloned().unwrap_or_default()));
        let (micros, trace) = search(&pinned, embedder, &query.text)?;
        let ranked: Vec<(Stage, Vec<usize>)> =
            Stage::ALL.iter().map(|&stage| (stage, built.items(stage.chunks(&trace)))).collect();
        let pool = built.items(trace.expanded.iter().map(|hit| hit.chunk));
        let time = |stage: Stage| stage.micros(&trace, micros);
        let figures: Vec<Figures> =
            ranked.iter().map(|(_, items)| measure::figures(items, &query.relevant)).collect();
        if let Some(file) = per_query.as_deref_mut() {
            let line = told(name, set, query, built, &trace, &ranked, &figures);
            writeln!(file, "{line}")?;
        }
        let times = Stage::ALL.map(time);
        tally.nothing += usize::from(!answered(&trace));
        tally.add(figures, times, measure::recall(&pool, &query.relevant), pool.len());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(tally)
}

/// Questions of another set, and how many of them were told that there is nothing about them.
struct Unrelated {
    name: String,
    questions: usize,
    nothing: usize,
}

fn nothing(other: &Set, embedder: &Embedder, built: &Built) -> Result<Unrelated, CliError> {
    let pinned = built.index.pin().map_err(indexed)?;
    let mut nothing = 0;
    let bar = output::progress_bar("asking what is not there");
    bar.set_length(other.queries.len() as u64);
    for query in &other.queries {
        let (_, trace) = search(&pinned, embedder, &query.text)?;
        nothing += usize::from(!answered(&trace));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Unrelated { name: String::new(), questions: other.queries.len(), nothing })
}

/// Whether anything found is above the floor of relevance.
fn answered(trace: &Trace) -> bool {
    trace.reranked.iter().any(|scored| scored.relevant)
}

/// The time that the question's vector took, and what each stage found.
fn search(pinned: &Snapshot, embedder: &Embedder, text: &str) -> Result<(u64, Trace), CliError> {
    let begun = Instant::now();
    let vector = embedder.embed_query(text).ok();
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let query = Query { vector, ..Query::new(text, Timestamp::UNIX_EPOCH) };
    let trace = retrieve::trace(pinned, &query, embedder.tokenizer())
        .map_err(|error| CliError::new(format!("the search failed: {error}")))?;
    Ok((micros, trace))
}

/// One question's line: what each stage ranked, and the features of each candidate.
fn told(
    name: &str,
    set: &Set,
    query: &set::Query,
    built: &Built,
    trace: &Trace,
    ranked: &[(Stage, Vec<usize>)],
    figures: &[Figures],
) -> Value {
    let id = |item: &usize| set.items[*item].id.as_str();
    let relevant: Map<String, Value> =
        query.relevant.iter().map(|(item, grade)| (set.name_of(*item).to_owned(), json!(grade))).collect();
    let stages: Map<String, Value> = ranked
        .iter()
        .zip(figures)
        .map(|((stage, items), figures)| {
            let mut told = figures.json();
            let ranked: Vec<&str> = items.iter().take(RANKS_MAX).map(id).collect();
            told.insert("ranked".to_owned(), json!(ranked));
            (stage.name().to_owned(), Value::Object(told))
        })
        .collect();
    let candidates: Vec<Value> = trace
        .reranked
        .iter()
        .filter_map(|scored| {
            let item = built.items.get(&scored.chunk)?;
            Some(json!({
                "item": id(item),
                "grade": query.relevant.get(item).copied().unwrap_or(0.0),
                "score": scored.score,
                "relevant": scored.relevant,
                "features": scored.features,
            }))
        })
        .collect();
    json!({
        "set": name,
        "id": query.id,
        "text": query.text,
        "relevant": relevant,
        "terms": trace.analysis.terms,
        "exact": trace.analysis.exact,
        "stages": stages,
        "candidates": candidates,
    })
}

/// One set with what came of it.
struct Report {
    name: String,
    set: Set,
    built: Built,
    tally: Tally,
    unrelated: Vec<Unrelated>,
    seconds_asking: f64,
}

/// What is told of all sets.
struct Told {
    reports: Vec<Report>,
    embedder: Embedder,
    stages: Vec<Stage>,
}

impl Told {
    fn json(&self) -> Value {
        let tallies: Vec<&Tally> = self.reports.iter().map(|report| &report.tally).collect();
        if let [report] = &self.reports[..] {
            return self.json_of(report);
        }
        let (gain, interval) = measure::gain(&tallies);
        let sets: Vec<Value> = self.reports.iter().map(|report| self.json_of(report)).collect();
        json!({
            "stages": self.stages_json(&tallies),
            "final_over_fusion": { "ndcg@10": gain, "ci95": interval },
            "sets": sets,
        })
    }

    fn json_of(&self, report: &Report) -> Value {
        let (recall, candidates) = report.tally.pool();
        let (gain, interval) = measure::gain(&[&report.tally]);
        let questions = report.tally.questions();
        let unrelated: Vec<Value> = report
            .unrelated
            .iter()
            .map(|other| {
                let part = share(other.nothing, other.questions);
                json!({ "set": other.name, "questions": other.questions, "nothing": part })
            })
            .collect();
        json!({
            "set": report.name,
            "questions": questions,
            "items": report.set.items.len(),
            "chunks": report.built.chunks,
            "model": self.embedder.model_name(),
            "runtime": self.embedder.runtime().to_string(),
            "stages": self.stages_json(&[&report.tally]),
            "pool": { "recall": recall, "candidates": candidates },
            "final_over_fusion": { "ndcg@10": gain, "ci95": interval },
            "floor": { "own_nothing": share(report.tally.nothing, questions), "unrelated": unrelated },
            "embedded": report.built.embedded,
            "seconds": { "building": report.built.seconds, "asking": report.seconds_asking },
        })
    }

    /// The means over the sets.
    fn stages_json(&self, tallies: &[&Tally]) -> Value {
        let mut stages = Map::new();
        for &stage in &self.stages {
            let mut told = Map::new();
            let mut intervals = Map::new();
            for (at, measure) in MEASURES.iter().enumerate() {
                let (mean, interval) = mean_of(tallies, stage, at);
                told.insert((*measure).to_owned(), json!(mean));
                intervals.insert((*measure).to_owned(), json!(interval));
            }
            let ms: Vec<f64> = tallies.iter().map(|tally| tally.ms_p50(stage)).collect();
            told.insert("ms_p50".to_owned(), json!(measure::mean(&ms)));
            told.insert("ci95".to_owned(), Value::Object(intervals));
            stages.insert(stage.name().to_owned(), Value::Object(told));
        }
        Value::Object(stages)
    }

    fn text(&self) -> String {
        let by = format!("{} by {}", self.embedder.model_name(), self.embedder.runtime());
        if let [report] = &self.reports[..] {
            return self.text_of(report, &by);
        }
        // A line for each set: nDCG@10 and recall@10.
        let mut head = vec!["ndcg@10 recall@10".to_owned()];
        head.extend(self.stages.iter().map(|stage| stage.name().to_owned()));
        head.extend(["pool", "final over fusion", "ms p50"].map(str::to_owned));
        let mut rows = vec![head];
        let line = |name: String, tallies: &[&Tally]| {
            let mut row = vec![name];
            for &stage in &self.stages {
                let [ndcg, recall] = [measure::NDCG, measure::RECALL].map(|at| mean_of(tallies, stage, at).0);
                row.push(format!("{ndcg:.3} {recall:.3}"));
            }
            let pool: Vec<f64> = tallies.iter().map(|tally| tally.pool().0).collect();
            let ms: Vec<f64> = tallies.iter().map(|tally| tally.ms_p50(Stage::Final)).collect();
            let (gain, [low, high]) = measure::gain(tallies);
            row.push(format!("{:.3}", measure::mean(&pool)));
            row.push(format!("{gain:+.1} % [{low:+.1} {high:+.1}]"));
            row.push(format!("{:.1}", measure::mean(&ms)));
            row
        };
        for report in &self.reports {
            rows.push(line(output::safe(&report.name).to_string(), &[&report.tally]));
        }
        let tallies: Vec<&Tally> = self.reports.iter().map(|report| &report.tally).collect();
        rows.push(line("mean".to_owned(), &tallies));
        let floors: Vec<String> = self
            .reports
            .iter()
            .map(|report| format!("{}: {}", output::safe(&report.name), floor(report)))
            .collect();
        format!("{by}\n\n{}\n{}", output::table(&rows), floors.concat())
    }

    fn text_of(&self, report: &Report, by: &str) -> String {
        let mut rows = vec![
            std::iter::once("stage".to_owned())
                .chain(MEASURES.map(str::to_owned))
                .chain(["ms p50".to_owned()])
                .collect::<Vec<_>>(),
        ];
        for &stage in &self.stages {
            let mut row = vec![stage.name().to_owned()];
            for at in 0..MEASURES.len() {
                let (mean, [low, high]) = mean_of(&[&report.tally], stage, at);
                row.push(format!("{mean:.3} [{low:.3} {high:.3}]"));
            }
            row.push(format!("{:.1}", report.tally.ms_p50(stage)));
            rows.push(row);
        }
        let (recall, candidates) = report.tally.pool();
        let (gain, [low, high]) = measure::gain(&[&report.tally]);
        let built = &report.built;
        format!(
            "{}: {} questions, {} items in {} chunks; {by}\n\n{}\n\
             pool: {recall:.3} of what is relevant is among the {candidates:.0} candidates\n\
             final over fusion: nDCG@10 {gain:+.1} % [{low:+.1} {high:+.1}]\n\
             floor: {}\
             took: {:.1} s to build ({} of the vectors computed), {:.1} s to ask\n",
            output::safe(&report.name),
            report.set.queries.len(),
            report.set.items.len(),
            built.chunks,
            output::table(&rows),
            floor(report),
            built.seconds,
            built.embedded,
            report.seconds_asking,
        )
    }
}

/// How many questions were told that there is nothing about them: of its own, which is wrong, and of others.
fn floor(report: &Report) -> String {
    let of = |nothing: usize, questions: usize| {
        format!("{nothing} of {questions} ({:.1} %)", 100.0 * share(nothing, questions))
    };
    let mut told =
        format!("{} own questions get nothing", of(report.tally.nothing, report.tally.questions()));
    for other in &report.unrelated {
        let name = output::safe(&other.name);
        told.push_str(&format!("; of {name}'s {}, as they should", of(other.nothing, other.questions)));
    }
    told.push('\n');
    told
}

fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}

/// The mean over the sets of each one's mean, with its interval.
fn mean_of(tallies: &[&Tally], stage: Stage, measure: usize) -> (f64, [f64; 2]) {
    let values: Vec<Vec<f64>> = tallies.iter().map(|tally| tally.of(stage, measure)).collect();
    let means: Vec<f64> = values.iter().map(|values| measure::mean(values)).collect();
    (measure::mean(&means), measure::interval(&values))
}

fn name(folder: &Path) -> String {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "set".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn indexed(error: index::Error) -> CliError {
    actors::StartError::Index(error).into()
}

fn fault(error: embed::Error) -> CliError {
    CliError::new(format!("the embedding model failed: {error}"))
        .hint("`nugget config` shows which model is set")
}
