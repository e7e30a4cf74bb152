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
use index::{ChunkRow, Filter, Given, Index, ModelLabel, Pinned, VectorCache, chunk};
use jiff::Timestamp;
use knowledge::{Domain, Unit, UnitId, UnitType, unit};
use retrieve::{Query, Trace};
use serde_json::{Map, Value, json};

use self::measure::{Figures, MEASURES, Stage, Tally};
use self::set::Set;
use crate::fault::Fault;
use crate::output;
use crate::session::{self, Door};

/// How many texts are embedded, and kept in the cache, at a time.
const BATCH: usize = 32;
/// How deep a ranking is judged and told.
const RANKS_MAX: usize = 50;

const AFTER: &str = "\
DIR holds corpus.jsonl ({id, text, title?, doc?, position?, scope?}), queries.jsonl ({id, text, scope?})
and qrels.tsv (query, item, grade). Items of one `doc` are consecutive passages of one unit, in the order
of `position`; a question with a `scope` is asked of the items of that scope only.

Stages: bm25 and embedding are the two searches, fusion is their reciprocal rank fusion (k = 60), graph
adds neighbouring passages and related units, final is the order that is answered with. `ms p50` is the
time from the question to that stage's list, the question's vector included. In brackets: the 95 %
interval over resampled questions. The index is made in a temporary folder; vectors are kept in the
cache ($XDG_CACHE_HOME/nugget), so that a second run embeds only the questions.

Examples:
  nugget eval sets/docs
  nugget eval sets/docs --json --stage fusion --stage final
  nugget eval sets/docs --per-query found.jsonl";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The folder of the set
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Tell this stage only; may be given several times
    #[arg(long, value_enum, value_name = "STAGE")]
    stage: Vec<Stage>,
    /// Write what was found for each question, with each candidate's features, as JSON lines
    #[arg(long, value_name = "FILE")]
    per_query: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        door.log_to_stderr();
        let config = door.config()?;
        let set = Set::read(&self.folder)?;
        for warning in &set.warnings {
            output::note(&format!("warning: {}", output::safe(warning)));
        }
        let mut per_query = match &self.per_query {
            Some(path) => {
                let failed = |error| Fault::new(format!("failed to create {}: {error}", path.display()));
                Some(BufWriter::new(File::create(path).map_err(failed)?))
            }
            None => None,
        };
        let settings = session::embed_settings(&config);
        let embedder = Embedder::load(&settings).map_err(fault)?;
        let folder = tempfile::tempdir()?;
        let built = Built::new(&set, &embedder, folder.path())?;
        let begun = Instant::now();
        let tally = ask(&set, &embedder, &built, per_query.as_mut())?;
        let seconds_asking = begun.elapsed().as_secs_f64();
        if let Some(mut file) = per_query {
            file.flush()?;
        }
        let stages = if self.stage.is_empty() { Stage::ALL.to_vec() } else { self.stage };
        let report = Report { name: name(&self.folder), set, embedder, built, tally, seconds_asking, stages };
        if self.json {
            output::print_json(&report.json())?
        } else {
            output::print(&report.text())?
        }
        Ok(ExitCode::SUCCESS)
    }
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
    fn new(set: &Set, embedder: &Embedder, folder: &Path) -> Result<Self, Fault> {
        let begun = Instant::now();
        let (units, items_of_units) = units(set, embedder.tokenizer());
        let ids: Vec<UnitId> = units.iter().map(|given| given.unit.id.clone()).collect();
        let label = ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
        let index = Index::open(folder).map_err(indexed)?;
        let plan = index.plan_given(units, &label).map_err(indexed)?;
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
fn units(set: &Set, tokenizer: &Tokenizer) -> (Vec<Given>, Vec<Vec<usize>>) {
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
        units.push(Given { unit, pieces });
        items_of_units.push(items);
    }
    (units, items_of_units)
}

/// A vector for each text, and how many of them had to be computed.
fn vectors(
    texts: &[String],
    label: &ModelLabel,
    embedder: &Embedder,
) -> Result<(Vec<Vec<f32>>, usize), Fault> {
    let cache = VectorCache::open(&brain::places::vector_cache());
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
    set: &Set,
    embedder: &Embedder,
    built: &Built,
    mut per_query: Option<&mut BufWriter<File>>,
) -> Result<Tally, Fault> {
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
            let line = told(set, query, built, &trace, &ranked, &figures);
            writeln!(file, "{line}")?;
        }
        let times = Stage::ALL.map(time);
        tally.add(figures, times, measure::recall(&pool, &query.relevant), pool.len());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(tally)
}

/// The time that the question's vector took, and what each stage found.
fn search(pinned: &Pinned, embedder: &Embedder, text: &str) -> Result<(u64, Trace), Fault> {
    let begun = Instant::now();
    let vector = embedder.embed_query(text).ok();
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let query = Query {
        text: text.to_owned(),
        vector,
        limit: retrieve::LIMIT_DEFAULT,
        budget_tokens: retrieve::BUDGET_TOKENS_DEFAULT,
        now: Timestamp::UNIX_EPOCH,
    };
    let trace = retrieve::trace(pinned, &query, embedder.tokenizer())
        .map_err(|error| Fault::new(format!("the search failed: {error}")))?;
    Ok((micros, trace))
}

/// One question's line: what each stage ranked, and the features of each candidate.
fn told(
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
        "id": query.id,
        "text": query.text,
        "relevant": relevant,
        "terms": trace.analysis.terms,
        "exact": trace.analysis.exact,
        "stages": stages,
        "candidates": candidates,
    })
}

struct Report {
    name: String,
    set: Set,
    embedder: Embedder,
    built: Built,
    tally: Tally,
    seconds_asking: f64,
    stages: Vec<Stage>,
}

impl Report {
    fn json(&self) -> Value {
        let mut stages = Map::new();
        for &stage in &self.stages {
            let mut told = Map::new();
            let mut intervals = Map::new();
            for (at, measure) in MEASURES.iter().enumerate() {
                let values = self.tally.of(stage, at);
                told.insert((*measure).to_owned(), json!(measure::mean(&values)));
                intervals.insert((*measure).to_owned(), json!(measure::interval(&values)));
            }
            told.insert("ms_p50".to_owned(), json!(self.tally.ms_p50(stage)));
            told.insert("ci95".to_owned(), Value::Object(intervals));
            stages.insert(stage.name().to_owned(), Value::Object(told));
        }
        let (recall, candidates) = self.tally.pool();
        let (gain, interval) = self.tally.gain();
        json!({
            "set": self.name,
            "questions": self.set.queries.len(),
            "items": self.set.items.len(),
            "chunks": self.built.chunks,
            "model": self.embedder.model_name(),
            "runtime": self.embedder.runtime().to_string(),
            "stages": stages,
            "pool": { "recall": recall, "candidates": candidates },
            "final_over_fusion": { "ndcg@10": gain, "ci95": interval },
            "embedded": self.built.embedded,
            "seconds": { "building": self.built.seconds, "asking": self.seconds_asking },
        })
    }

    fn text(&self) -> String {
        let mut rows = vec![
            std::iter::once("stage".to_owned())
                .chain(MEASURES.map(str::to_owned))
                .chain(["ms p50".to_owned()])
                .collect::<Vec<_>>(),
        ];
        for &stage in &self.stages {
            let mut row = vec![stage.name().to_owned()];
            for at in 0..MEASURES.len() {
                let values = self.tally.of(stage, at);
                let [low, high] = measure::interval(&values);
                row.push(format!("{:.3} [{low:.3} {high:.3}]", measure::mean(&values)));
            }
            row.push(format!("{:.1}", self.tally.ms_p50(stage)));
            rows.push(row);
        }
        let (recall, candidates) = self.tally.pool();
        let (gain, [low, high]) = self.tally.gain();
        let built = &self.built;
        format!(
            "{}: {} questions, {} items in {} chunks; {} by {}\n\n{}\n\
             pool: {recall:.3} of what is relevant is among the {candidates:.0} candidates\n\
             final over fusion: nDCG@10 {gain:+.1} % [{low:+.1} {high:+.1}]\n\
             took: {:.1} s to build ({} of the vectors computed), {:.1} s to ask\n",
            output::safe(&self.name),
            self.set.queries.len(),
            self.set.items.len(),
            built.chunks,
            self.embedder.model_name(),
            self.embedder.runtime(),
            output::table(&rows),
            built.seconds,
            built.embedded,
            self.seconds_asking,
        )
    }
}

fn name(folder: &Path) -> String {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "set".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn indexed(error: index::Error) -> Fault {
    actors::StartError::Index(error).into()
}

fn fault(error: embed::Error) -> Fault {
    Fault::new(format!("the embedding model failed: {error}"))
        .hint("`nugget config` shows which model is set")
}
