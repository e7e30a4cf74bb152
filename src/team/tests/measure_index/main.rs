//! Measures the shared index: questions and publications through the real search, and prints what it found.
//!
//! `cargo test --release -p team --test measure_index -- BRAINS CHUNKS TOKENS`, such as `1 30000 100`. The server is that of
//! `NUGGET_TEST_POSTGRES`, or a private one.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it measures and prints")]

#[path = "../support.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod support;

mod corpus;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use embed::{Embedder, Settings};
use index::{ChunkRecord, ChunkRow, Edge, ModelLabel, Problem, Reader as _, UnitRecord};
use knowledge::{Domain, Embedding, Relation, UnitId};
use postgres::Client;
use retrieve::Query;
use team::{BrainId, PublishMode, Source, SourceEmbedding, SourceUnit, TeamSnapshot, TeamStore, UnitDigest};

use crate::corpus::{CHUNKS_PER_UNIT, Corpus, DIMENSIONS};
use crate::support::{TestDatabase, create_brain};

const SEED: u64 = 20_261_123;
/// Those of `vectors` in the migration.
const PARTITIONS: usize = 64;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [brains, chunks, tokens] = numbers.as_slice().try_into().unwrap_or([1, 30_000, 100]);
    if let Some(database) = TestDatabase::new() {
        run(&database, SEED, brains, chunks, tokens);
    }
}

/// A made local generation: chunks from a first one on.
struct Made<'c> {
    corpus: &'c Corpus,
    model: ModelLabel,
    first: usize,
    tokens: usize,
    versions: Vec<u32>,
}

impl Made<'_> {
    fn at(&self, unit: &UnitId) -> usize {
        unit.as_str()[5..].parse().unwrap()
    }
}

impl Source for Made<'_> {
    fn model(&self) -> Option<&ModelLabel> {
        Some(&self.model)
    }
    fn digests(&self) -> Result<Vec<(UnitId, UnitDigest)>, index::Error> {
        let digest = |(at, version): (usize, &u32)| {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&version.to_le_bytes());
            (UnitId::verbatim(format!("unit-{at}")), digest)
        };
        Ok(self.versions.iter().enumerate().map(digest).collect())
    }
    fn unit(&self, unit: &UnitId) -> Result<Option<SourceUnit>, index::Error> {
        let at = self.at(unit);
        let title = self.corpus.heading(self.first + at * CHUNKS_PER_UNIT);
        let record = UnitRecord {
            id: unit.clone(),
            path: format!("domains/coding/concepts/unit-{at}.md"),
            title: title.clone(),
            kind: "concept".into(),
            domain: Domain::verbatim("coding".to_owned()),
            tags: vec!["made".into(), "measured".into()],
            confidence: 0.8,
            source: "human".into(),
            description: None,
            status: None,
            created: None,
            last_modified: "2026-05-01T00:00:00Z".parse().ok(),
            reviewed_by: Some("somebody".into()),
        };
        let chunk = |position: usize| ChunkRecord {
            row: ChunkRow((at * CHUNKS_PER_UNIT + position) as i64),
            id: String::new(),
            unit: unit.clone(),
            position: position as u32,
            level: 2,
            breadcrumb: title.clone(),
            text: self.corpus.text(self.first + at * CHUNKS_PER_UNIT + position, self.versions[at]),
            tokens: 120,
        };
        let other = UnitId::verbatim(format!("unit-{}", (at * 7 + 3) % self.versions.len()));
        let relations = vec![Edge { other, relation: Relation::InformedBy, outgoing: true }];
        Ok(Some(SourceUnit { record, chunks: (0..CHUNKS_PER_UNIT).map(chunk).collect(), relations }))
    }
    fn embedding(&self, chunk: &ChunkRecord) -> Result<SourceEmbedding, index::Error> {
        let (at, version) = (self.first + chunk.row.0 as usize, self.versions[self.at(&chunk.unit)]);
        let vector = self.corpus.vector(at, version).into_iter();
        let vector = vector.map(|x| half::f16::from_f32(x).to_f32()).collect();
        Ok(SourceEmbedding { vector, tokens: self.corpus.tokens(at, self.tokens) })
    }
    fn problems(&self) -> Result<Vec<Problem>, index::Error> {
        Ok(Vec::new())
    }
}

/// Publishes brains, and measures questions and publications.
fn run(database: &TestDatabase, seed: u64, brains: usize, chunks: usize, tokens: usize) {
    println!("seed {seed}, {brains} brains of {chunks} chunks with {tokens} tokens");
    let corpus = Corpus::new(seed);
    let (store, mut client) = (database.store(16), database.superuser());
    // Built at once after loading: row by row it would take hours.
    for number in 0..PARTITIONS {
        client.batch_execute(&format!("DROP INDEX vectors_{number}_graph")).unwrap();
    }
    let made = |brain: usize| Made {
        corpus: &corpus,
        model: ModelLabel { name: "made/1".into(), dimensions: DIMENSIONS },
        first: brain * chunks,
        tokens,
        versions: vec![0; chunks / CHUNKS_PER_UNIT],
    };
    let started = Instant::now();
    for brain in 0..brains {
        let BrainId(id) = create_brain(&store, &format!("brain-{brain}"));
        assert_eq!(id, brain as i32 + 1);
        publish_now(&store, id, &made(brain));
    }
    println!("published without graphs in {:.0} s", started.elapsed().as_secs_f64());
    build_graphs(&mut client, PARTITIONS);
    client.batch_execute("VACUUM ANALYZE").unwrap();
    sizes(&mut client, brains * chunks);
    recall(database, &corpus, brains);
    questions(database, &corpus, brains, chunks);
    publications(&store, made(0), seed);
    sizes(&mut client, brains * chunks);
}

fn build_graphs(client: &mut Client, partitions: usize) {
    let started = Instant::now();
    for number in 0..partitions {
        client
            .batch_execute(&format!(
                "SET maintenance_work_mem = '1GB'; SET max_parallel_maintenance_workers = 2;
                CREATE INDEX vectors_{number}_graph ON vectors_{number} USING hnsw (embedding halfvec_ip_ops)"
            ))
            .unwrap();
    }
    println!("graphs in {:.0} s", started.elapsed().as_secs_f64());
    client.batch_execute("VACUUM ANALYZE vectors").unwrap();
}

fn publish_now(store: &TeamStore, brain: i32, source: &dyn Source) -> Duration {
    let generation = store.brain_by_id(BrainId(brain)).unwrap().unwrap().generation;
    let started = Instant::now();
    store.publish(BrainId(brain), source, "c0ffee", generation, PublishMode::Changed).unwrap();
    started.elapsed()
}

fn sizes(client: &mut Client, chunks: usize) {
    let sql = "SELECT regexp_replace(c.relname, '_[0-9]+', ''), sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
        FROM pg_class c WHERE relnamespace = 'nugget'::regnamespace AND relkind = 'r' GROUP BY 1 ORDER BY 1";
    let (mut text, mut total) = (String::new(), 0);
    for row in client.query(sql, &[]).unwrap() {
        let (table, indexes): (i64, i64) = (row.get(1), row.get(2));
        total += table + indexes;
        text.push_str(&format!(
            " {} {}+{}",
            row.get::<_, &str>(0),
            table / chunks as i64,
            indexes / chunks as i64
        ));
    }
    println!("bytes for each chunk (table+indexes): {} =:{text}", total / chunks as i64);
}

fn recall(database: &TestDatabase, corpus: &Corpus, brains: usize) {
    let mut client = database.superuser();
    let exact: Vec<Vec<i64>> = (0..100)
        .map(|number| nearest(&mut client, corpus, brains, number, "+ 0", "ef_search = 100").0)
        .collect();
    for search in [
        "iterative_scan = strict_order; SET LOCAL hnsw.ef_search = 100",
        "iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = 40",
        "iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = 100",
        "iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = 200",
    ] {
        let (mut found, mut times) = (0, Vec::new());
        for (number, exact) in exact.iter().enumerate() {
            let (rows, time) = nearest(&mut client, corpus, brains, number, "", search);
            found += rows.iter().filter(|row| exact.contains(row)).count();
            times.push(time);
        }
        let (p50, p99) = percentiles(times);
        println!(
            "graph, {search}: recall@10 {:.4}, p50 {p50:.1} ms, p99 {p99:.1} ms",
            found as f64 / 1_000.0
        );
    }
    let times = (0..100)
        .map(|number| nearest(&mut client, corpus, brains, number, "+ 0", "ef_search = 100").1)
        .collect();
    let (p50, p99) = percentiles(times);
    println!("exact: p50 {p50:.1} ms, p99 {p99:.1} ms");
}

/// The ten nearest, as `TeamSnapshot` asks for them.
fn nearest(
    client: &mut Client,
    corpus: &Corpus,
    brains: usize,
    number: usize,
    exactly: &str,
    search: &str,
) -> (Vec<i64>, Duration) {
    use postgres::types::Type;
    let (_, vector) = corpus.question(number);
    let brain = (number % brains) as i32 + 1;
    client
        .simple_query(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL ROLE nugget_server; SET LOCAL nugget.brains = '{brain}';
            SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL jit = off;
            SET LOCAL max_parallel_workers_per_gather = 0;
            SET LOCAL hnsw.{search}"
        ))
        .unwrap();
    let sql = format!(
        "SELECT row, halfvec_send(embedding) FROM vectors WHERE brain = $1
        ORDER BY (embedding <#> $2::real[]::halfvec(384)) {exactly} LIMIT $3"
    );
    let started = Instant::now();
    let rows = client
        .query_typed(&sql, &[(&brain, Type::INT4), (&vector, Type::FLOAT4_ARRAY), (&60_i64, Type::INT8)])
        .unwrap();
    let time = started.elapsed();
    client.batch_execute("ROLLBACK").unwrap();
    // In relaxed order the best come somewhere among the rows.
    let score = |row: &postgres::Row| -> f32 {
        let numbers = row.get::<_, &[u8]>(1)[4..].as_chunks::<2>().0;
        numbers.iter().zip(&vector).map(|(pair, x)| half::f16::from_be_bytes(*pair).to_f32() * x).sum()
    };
    let mut scored: Vec<(f32, i64)> = rows.iter().map(|row| (score(row), row.get(0))).collect();
    scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    (scored.into_iter().take(10).map(|(_, row)| row).collect(), time)
}

fn questions(database: &TestDatabase, corpus: &Corpus, brains: usize, chunks: usize) {
    let embedder = Embedder::load(&Settings::default()).unwrap();
    let ask = |client: &mut Client, number: usize| -> (Duration, Duration, usize) {
        let (words, vector) = corpus.question(number);
        let text = words.join(" ");
        let tokens = embedder.embed_query(&text).unwrap().tokens;
        let query = Query::new(&text, "2026-06-01T00:00:00Z".parse().unwrap())
            .with_embedding(Some(Embedding { vector, tokens }));
        let started = Instant::now();
        let snapshot = TeamSnapshot::open(client, (number % brains) as i32 + 1).unwrap();
        assert_eq!(snapshot.chunks_count(), chunks);
        retrieve::retrieve(&snapshot, &query, embedder.tokenizer()).unwrap();
        let (waited, trips) = (snapshot.waited(), snapshot.round_trips() + 1);
        drop(snapshot);
        (started.elapsed(), waited, trips)
    };
    let run = |threads: usize, each: usize, from: usize| {
        let results: Mutex<Vec<(Duration, Duration, usize)>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (results, ask) = (&results, &ask);
                scope.spawn(move || {
                    let mut client = database.superuser();
                    for number in 0..each {
                        let result = ask(&mut client, from + thread * each + number);
                        results.lock().unwrap().push(result);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap();
        let (total, reads) = (results.iter().map(|r| r.0).collect(), results.iter().map(|r| r.1).collect());
        let ((p50, p99), (reads_p50, reads_p99)) = (percentiles(total), percentiles(reads));
        println!(
            "{threads} at once: reads p50 {reads_p50:.1} ms, p99 {reads_p99:.1} ms; with ranking p50 {p50:.1} ms, p99 {p99:.1} ms; round trips at most {}",
            results.iter().map(|r| r.2).max().unwrap()
        );
    };
    run(1, 200, 1_000);
    run(1, 400, 2_000);
    run(8, 100, 3_000);
}

fn publications(store: &TeamStore, mut made: Made<'_>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed + 2);
    for (units, times) in [(0_usize, 3), (1, 20), (20, 5), (500, 1)] {
        let mut took = Vec::new();
        for _ in 0..times {
            let count = made.versions.len();
            (0..units).for_each(|_| made.versions[random.usize(0..count)] += 1);
            took.push(publish_now(store, 1, &made));
        }
        let (p50, most) = percentiles(took);
        println!("publish {units} changed units: p50 {p50:.0} ms, most {most:.0} ms");
    }
}

fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    (at(50), at(99))
}
