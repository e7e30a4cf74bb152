//! Publishing and reading against a real server, a real local index and the real model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use brain::Brain;
use embed::{Embedder, Settings};
use fastrand::Rng;
use index::{ChunkRow, Hit, Index, Mode as LocalMode, ModelLabel, Reader, Snapshot};
use knowledge::{Embedding, UnitId};
use postgres::Client;
use retrieve::{Answer, Depth, Query};
use tempfile::TempDir;

use crate::shared_index::publish::publish;
use crate::shared_index::test_database::{TestDatabase, scope};
use crate::shared_index::{IndexError as Error, PublishMode as Mode, Published, TeamSnapshot, postings};

/// The bar of a question's round trips, the one that ends the transaction included.
const ROUND_TRIPS_MAX: usize = 12;

static EMBEDDER: LazyLock<Embedder> = LazyLock::new(|| Embedder::load(&Settings::default()).unwrap());

/// Each text is embedded once in all tests, and of a long one the beginning: both sides get the same vectors.
fn embedding(text: &str) -> Embedding {
    static KNOWN: LazyLock<Mutex<HashMap<String, Embedding>>> = LazyLock::new(Mutex::default);
    if let Some(known) = KNOWN.lock().unwrap().get(text) {
        return known.clone();
    }
    let beginning: Vec<&str> = text.split_whitespace().take(16).collect();
    let embedding = EMBEDDER.embed_document(&beginning.join(" ")).unwrap();
    KNOWN.lock().unwrap().insert(text.to_owned(), embedding.clone());
    embedding
}

const WORDS: &str = "pool worker queue channel retry jitter index partial order table transaction busy timeout \
    deploy release flag balancer health server request response header cookie session token secret rotate key \
    backup restore snapshot vacuum lock deadlock lease fence claim capture merge rebase commit branch review \
    parser lexer grammar query planner cost estimate statistics histogram latency throughput percentile budget \
    cache eviction shard replica leader election clock skew timestamp zone calendar invoice payment refund \
    customer tenant quota limit burst window bucket leak drip migration schema column constraint trigger view \
    parseConfig read_file openForWrite HTTPServer max_open_files sqliteBusy größeÄndern naïve E0425 std::io";

/// A brain of made files, its local index, and its model's vectors.
struct World {
    folder: TempDir,
    random: Rng,
    units: BTreeMap<usize, String>,
    next: usize,
}

impl World {
    fn new(seed: u64, units: usize) -> Self {
        println!("seed {seed}");
        let folder = tempfile::tempdir().unwrap();
        Brain::init(folder.path()).unwrap();
        let mut world = Self { folder, random: Rng::with_seed(seed), units: BTreeMap::new(), next: 0 };
        (0..units).for_each(|_| world.add());
        world
    }

    fn words(&mut self, count: usize) -> String {
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let word = |random: &mut Rng| {
            // Some words are much commoner than others.
            let at = random.usize(..words.len()).min(random.usize(..words.len()));
            format!("{}{}", words[at], if random.u8(..6) == 0 { "s" } else { "" })
        };
        (0..count).map(|_| word(&mut self.random)).collect::<Vec<_>>().join(" ")
    }

    fn text(&mut self, number: usize) -> String {
        let mut text =
            format!("---\nid: unit-{number}\ntype: concept\ntitle: {}\n", self.words(3).replace(':', ""));
        if self.random.bool() {
            let _ = writeln!(
                text,
                "tags: [{}, {}]",
                self.words(1).replace(':', ""),
                self.words(1).replace(':', "")
            );
        }
        if self.random.bool() {
            let _ = writeln!(text, "description: {}", self.words(6).replace(':', ""));
        }
        let _ = writeln!(
            text,
            "confidence: 0.{}\nlast_modified: 2026-0{}-11",
            self.random.u8(3..9),
            self.random.u8(1..6)
        );
        // Some of these do not exist, or not yet.
        let other = self.random.usize(..self.next.max(1) + 5);
        let _ = write!(text, "related:\n  - id: unit-{other}\n    relation: informed_by\n---\n\n# Unit\n\n");
        for section in 0..self.random.usize(1..5) {
            let count = self.random.usize(20..120);
            let _ = write!(text, "## {}\n\n{}.\n\n", self.words(2), self.words(count));
            if section == 1 {
                let _ = write!(text, "See [[unit-{}]].\n\n", self.random.usize(..self.next.max(1)));
            }
        }
        text
    }

    fn add(&mut self) {
        let (number, text) = (self.next, self.text(self.next));
        self.next += 1;
        self.write(number, text);
    }

    fn write(&mut self, number: usize, text: String) {
        let folder = self.folder.path().join("domains/coding/concepts");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("unit-{number}.md")), &text).unwrap();
        self.units.insert(number, text);
    }

    /// Adds, edits, renames a tag in, or removes a few units.
    fn change(&mut self) {
        for _ in 0..self.random.usize(1..6) {
            let numbers: Vec<usize> = self.units.keys().copied().collect();
            let number = numbers[self.random.usize(..numbers.len())];
            let text = self.units[&number].clone();
            match self.random.u8(..6) {
                0 => self.add(),
                1 if numbers.len() > 20 => {
                    self.units.remove(&number);
                    let path = format!("domains/coding/concepts/unit-{number}.md");
                    fs::remove_file(self.folder.path().join(path)).unwrap();
                }
                2 => {
                    let text = text.replacen("type: concept\n", "type: concept\nstatus: draft\n", 1);
                    self.write(number, text.replace("status: draft\nstatus: draft\n", ""));
                }
                3 => {
                    let added = format!("{text}\n## More\n\n{}\n", self.words(30));
                    self.write(number, added);
                }
                4 => self.write(number, "no front matter\0 here \u{1}".repeat(3)),
                _ => {
                    let text = self.text(number);
                    self.write(number, text);
                }
            }
        }
    }

    fn index(&self, mode: LocalMode) -> Snapshot {
        let label = ModelLabel { name: EMBEDDER.model_name().into(), dimensions: EMBEDDER.dimensions() };
        self.index_by(&label, mode, embedding)
    }

    /// As if a model with twice as many dimensions had made the vectors, which has none of tokens.
    fn index_twice_as_wide(&self) -> Snapshot {
        let label = ModelLabel { name: "wide/1".into(), dimensions: 2 * EMBEDDER.dimensions() };
        self.index_by(&label, LocalMode::Changed, |text| {
            Embedding::from(twice_as_wide(&embedding(text).vector))
        })
    }

    fn index_by(&self, label: &ModelLabel, mode: LocalMode, embed: impl Fn(&str) -> Embedding) -> Snapshot {
        let brain = Brain::open(self.folder.path()).unwrap();
        let index = Index::open(&brain.derived_folder()).unwrap();
        let plan = index.plan(&brain, label, EMBEDDER.tokenizer(), mode, &mut |_| {}).unwrap();
        let embeddings = plan.texts().iter().map(|text| embed(text)).collect();
        plan.publish(embeddings).unwrap();
        index.pin().unwrap()
    }

    fn question(&mut self) -> Query {
        let count = self.random.usize(1..9);
        let text = self.words(count);
        let mut query = Query::new(&text, "2026-06-01T00:00:00Z".parse().unwrap())
            .with_embedding(EMBEDDER.embed_query(&text).ok());
        match self.random.u8(..4) {
            0 => query.vector = None,
            1 => {
                query.files = vec!["src/payment/parse_config.rs".to_owned(), "lib/worker_pool.go".to_owned()]
            }
            2 => query.depth = Depth::Deep,
            _ => {}
        }
        query
    }
}

/// A vector of the same length, in which the dimensions beyond weigh differently.
fn twice_as_wide(vector: &[f32]) -> Vec<f32> {
    let more = vector.iter().zip(0..).map(|(x, number): (&f32, u16)| x * f32::from(number % 3));
    let wide: Vec<f32> = vector.iter().copied().chain(more).collect();
    let length = wide.iter().map(|x| x * x).sum::<f32>().sqrt();
    wide.iter().map(|x| x / length).collect()
}

fn generation(client: &mut Client, brain: i32) -> i64 {
    client.query_one("SELECT generation FROM brains WHERE id = $1", &[&brain]).unwrap().get(0)
}

fn publish_now(client: &mut Client, brain: i32, local: &Snapshot, mode: Mode) -> Published {
    let expected = generation(client, brain);
    let mut transaction = scope(client, brain);
    let published = publish(&mut transaction, brain, local, "c0ffee", expected, mode).unwrap();
    transaction.commit().unwrap();
    published
}

fn ask(reader: &dyn Reader, query: &Query) -> Answer {
    retrieve::retrieve(reader, query, EMBEDDER.tokenizer()).unwrap()
}

/// The unit and position that a hit stands for, as rows differ between databases.
fn named(reader: &dyn Reader, hits: &[Hit]) -> Vec<(String, f64)> {
    hits.iter().map(|hit| (reader.chunk(hit.chunk).unwrap().id, hit.score)).collect()
}

/// An answer's units and passages with their scores.
fn shown(answer: &Answer) -> Vec<(String, f64)> {
    let mut shown = Vec::new();
    for unit in &answer.units {
        shown.push((format!("{} {} {}", unit.id, unit.title, unit.summary), unit.score));
        shown.extend(unit.passages.iter().map(|passage| (passage.chunk_id.clone(), passage.score)));
    }
    let more = answer.more.iter().map(|(id, title)| (format!("more {id} {title}"), 0.0));
    let left_out = answer.left_out.iter().map(|unit| (format!("left out {} {}", unit.id, unit.why), 0.0));
    shown.into_iter().chain(more).chain(left_out).collect()
}

fn assert_same(ours: &[(String, f64)], theirs: &[(String, f64)], difference_max: f64, what: &str) {
    let names = |list: &[(String, f64)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{what}");
    for ((name, ours), (_, theirs)) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() <= difference_max, "{what}: {name} {ours} {theirs}");
    }
}

/// Names and scores as in a list where equal scores may be in any order.
fn by_score(mut list: Vec<(String, f64)>) -> Vec<(String, f64)> {
    list.sort_by(|a, b| {
        let rounded = |score: f64| (score * 1e9).round() as i64;
        rounded(b.1).cmp(&rounded(a.1)).then_with(|| a.0.cmp(&b.0))
    });
    list
}

/// Asks both the same questions; returns how many answers are equal, and the most round trips.
fn compare_answers(
    client: &mut Client,
    brain: i32,
    local: &Snapshot,
    questions: &[Query],
) -> (Vec<bool>, usize) {
    let mut round_trips = 0;
    let mut is_equal = |query: &Query| {
        let snapshot = TeamSnapshot::open(&mut *client, brain).unwrap();
        let (ours, theirs) = (ask(&snapshot, query), ask(local, query));
        round_trips = round_trips.max(snapshot.round_trips() + 1);
        assert_eq!((ours.searched, ours.words_only), (theirs.searched, theirs.words_only));
        let (ours, theirs) = (shown(&ours), shown(&theirs));
        let is_near = |((name, score), (other_name, other)): (&(String, f64), &(String, f64))| {
            name == other_name && (score - other).abs() <= 1e-3
        };
        ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_near)
    };
    (questions.iter().map(&mut is_equal).collect(), round_trips)
}

#[test]
fn answers_equal_those_of_the_local_index() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(1, 60);
    let mut most = 0;
    let (mut equal, mut asked) = (0, 0);
    for _ in 0..2 {
        let questions: Vec<Query> = (0..25).map(|_| world.question()).collect();
        // A rebuild, as FTS5 counts deleted rows too.
        let local = world.index(LocalMode::Rebuild);
        // Chunks that are found by one list each at the same rank are ordered by their rows, which a difference numbers
        // otherwise than a rebuild.
        publish_now(&mut client, brain, &local, Mode::Changed);
        let (are_equal, round_trips) = compare_answers(&mut client, brain, &local, &questions);
        (equal, asked) = (equal + are_equal.iter().filter(|equal| **equal).count(), asked + questions.len());
        most = most.max(round_trips);
        publish_now(&mut client, brain, &local, Mode::Whole);
        let (are_equal, round_trips) = compare_answers(&mut client, brain, &local, &questions);
        let other = questions.iter().zip(are_equal).find(|(_, equal)| !equal);
        assert!(other.is_none(), "{:?}", other.map(|(query, _)| &query.text));
        most = most.max(round_trips);
        (0..10).for_each(|_| world.change());
    }
    println!("after differences {equal} of {asked} answers are equal; round trips: {most} at most");
    assert!(equal * 20 >= asked * 19 && most <= ROUND_TRIPS_MAX, "{equal} of {asked}, {most}");
}

#[test]
fn bm25_equals_that_of_fts5() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(2, 80);
    publish_now(&mut client, brain, &world.index(LocalMode::Changed), Mode::Changed);
    (0..8).for_each(|_| world.change());
    let local = world.index(LocalMode::Rebuild);
    publish_now(&mut client, brain, &local, Mode::Changed);
    let snapshot = TeamSnapshot::open(&mut client, brain).unwrap();
    for round in 0..100 {
        let count = world.random.usize(1..9);
        let mut terms: Vec<String> = world.words(count).split(' ').map(str::to_owned).collect();
        if round % 5 == 0 {
            terms.push(world.words(2));
        }
        for term in &terms {
            let (ours, theirs) =
                (snapshot.document_frequency(term).unwrap(), local.document_frequency(term).unwrap());
            assert_eq!(ours, theirs, "{term}");
        }
        let all = |reader: &dyn Reader| by_score(named(reader, &reader.bm25(&terms, 10_000).unwrap()));
        assert_same(&all(&snapshot), &all(&local), 1e-9, &format!("{terms:?}"));
        assert_eq!(snapshot.bm25(&terms, 10).unwrap(), snapshot.bm25(&terms, 10_000).unwrap()[..10]);
    }
    for odd in ["", "*", "\"", "a\0b", "NEAR(", "🦀", "日本語", "\u{300}"] {
        let terms = [odd.to_owned()];
        assert_eq!(
            named(&snapshot, &snapshot.bm25(&terms, 5).unwrap()),
            named(&local, &local.bm25(&terms, 5).unwrap())
        );
    }
}

#[test]
fn every_look_up_equals_that_of_the_local_index() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let world = World::new(3, 60);
    let local = world.index(LocalMode::Changed);
    publish_now(&mut client, brain, &local, Mode::Changed);
    let snapshot = TeamSnapshot::open(&mut client, brain).unwrap();
    let ours: &dyn Reader = &snapshot;
    assert_eq!((ours.chunks_count(), ours.units_count()), (local.chunks_count(), local.units_count()));
    assert_eq!(ours.model(), local.model());
    let query = EMBEDDER.embed_query("worker pool").unwrap().vector;
    for unit in local.units().unwrap() {
        assert_eq!(ours.unit(&unit.id).unwrap().as_ref(), Some(&unit));
        assert_eq!(ours.related(&unit.id).unwrap(), local.related(&unit.id).unwrap());
        let pairs: Vec<_> =
            ours.chunks_of(&unit.id).unwrap().into_iter().zip(local.chunks_of(&unit.id).unwrap()).collect();
        assert_eq!(pairs.len(), local.chunks_of(&unit.id).unwrap().len());
        for (ours_chunk, theirs) in pairs {
            assert_eq!((&ours_chunk.id, &ours_chunk.text), (&theirs.id, &theirs.text));
            assert_eq!(ours_chunk.tokens, theirs.tokens);
            assert_eq!(ours.vector(ours_chunk.row), local.vector(theirs.row));
            assert_eq!(ours.token_vectors(ours_chunk.row).unwrap(), local.token_vectors(theirs.row).unwrap());
            let names = |reader: &dyn Reader, rows: Vec<ChunkRow>| -> Vec<String> {
                rows.into_iter().map(|row| reader.chunk(row).unwrap().id).collect()
            };
            let near = names(ours, ours.neighbours(ours_chunk.row).unwrap());
            assert_eq!(near, names(&local, local.neighbours(theirs.row).unwrap()));
            let similar = |reader: &dyn Reader, row| reader.similarity(row, &query).unwrap();
            assert!((similar(ours, ours_chunk.row) - similar(&local, theirs.row)).abs() < 1e-6);
        }
    }
    let near = |reader: &dyn Reader| by_score(named(reader, &reader.nearest(&query, 50).unwrap()));
    assert_same(&near(ours), &near(&local), 1e-6, "nearest");
    let unknown = UnitId::verbatim("no-such-unit");
    assert!(ours.unit(&unknown).unwrap().is_none() && ours.chunks_of(&unknown).unwrap().is_empty());
    assert!(matches!(ours.chunk(ChunkRow(99_999)), Err(index::Error::NoSuchChunk { row: 99_999 })));
    assert!(ours.vector(ChunkRow(99_999)).is_none());
    assert!(matches!(ours.nearest(&[1.0], 3), Err(index::Error::Dimensions { .. })));
}

type Words = BTreeMap<Vec<u8>, BTreeSet<(String, i32, Vec<u32>, u32)>>;

/// Everything that was published, by units and positions.
fn contents(client: &mut Client, brain: i32) -> (Vec<String>, Words) {
    let mut texts = Vec::new();
    for sql in [
        "SELECT id || digest::text || chunks || path || tags::text FROM units WHERE brain = $1 ORDER BY 1",
        "SELECT source || target || relation FROM relations WHERE brain = $1 ORDER BY 1",
        "SELECT path || line || what FROM problems WHERE brain = $1 ORDER BY 1",
        "SELECT unit || position || level || breadcrumb || text || tokens || v.embedding::text || t.data::text
            FROM chunks c JOIN vectors v USING (brain, row) JOIN token_vectors t USING (brain, row)
            WHERE brain = $1 ORDER BY 1",
        "SELECT 'totals ' || chunks || ' ' || words || ' ' || units FROM brains WHERE id = $1",
        "SELECT 'rows ' || count(*) FROM vectors WHERE brain = $1",
        "SELECT 'rows ' || count(*) FROM token_vectors WHERE brain = $1",
        "SELECT 'rows ' || count(*) FROM chunks WHERE brain = $1",
    ] {
        texts.extend(client.query(sql, &[&brain]).unwrap().iter().map(|row| row.get::<_, String>(0)));
    }
    let rows = client.query("SELECT row, unit, position FROM chunks WHERE brain = $1", &[&brain]).unwrap();
    let places: BTreeMap<i64, (String, i32)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    let mut words = Words::new();
    let sql = "SELECT term, bucket, holding, body, places FROM postings WHERE brain = $1";
    for row in client.query(sql, &[&brain]).unwrap() {
        let list = postings::decode(row.get(1), row.get(3), row.get(4)).unwrap();
        assert_eq!(list.len(), row.get::<_, i32>(2) as usize);
        for (row_number, occurrence) in list {
            let (unit, position) = places[&row_number].clone();
            let entry = (unit, position, occurrence.places, occurrence.length);
            words.entry(row.get(0)).or_default().insert(entry);
        }
    }
    (texts, words)
}

#[test]
fn many_differences_lead_to_what_one_whole_publication_writes() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, other, mut client) = (database.new_brain(), database.new_brain(), database.connect());
    let mut world = World::new(4, 80);
    for step in 0..25 {
        let local = world.index(LocalMode::Changed);
        let published = publish_now(&mut client, brain, &local, Mode::Changed);
        assert!(step == 0 || !published.is_whole);
        publish_now(&mut client, other, &local, Mode::Whole);
        assert_eq!(contents(&mut client, brain), contents(&mut client, other), "step {step}");
        world.change();
    }
}

#[test]
fn publishing_without_a_difference_notes_the_commit_only() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let world = World::new(5, 10);
    let local = world.index(LocalMode::Changed);
    assert_eq!(publish_now(&mut client, brain, &local, Mode::Changed).generation, 1);
    let again = publish_now(&mut client, brain, &local, Mode::Changed);
    assert_eq!((again.generation, again.units_written, again.lists_written), (1, 0, 0));
}

#[test]
fn a_change_of_one_section_keeps_the_vectors_of_the_others() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(6, 10);
    publish_now(&mut client, brain, &world.index(LocalMode::Changed), Mode::Changed);
    let longer = format!("{}\n## New\n\nA worker waits.\n", world.units[&3]);
    world.write(3, longer);
    let published = publish_now(&mut client, brain, &world.index(LocalMode::Changed), Mode::Changed);
    assert_eq!((published.units_written, published.vectors_written), (1, 1));
}

#[test]
fn a_brain_that_is_set_back_to_no_generation_is_published_as_a_whole() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let local = World::new(11, 30).index(LocalMode::Changed);
    publish_now(&mut client, brain, &local, Mode::Changed);
    let question = Query::new("worker pool", "2026-06-01T00:00:00Z".parse().unwrap());
    let (expected, _) = compare_answers(&mut client, brain, &local, std::slice::from_ref(&question));
    // With the rows, and as from a backup without them.
    for emptied in
        [&[][..], &["units", "problems", "relations", "chunks", "token_vectors", "postings", "vectors"]]
    {
        client.execute("UPDATE brains SET generation = 0 WHERE id = $1", &[&brain]).unwrap();
        for table in emptied {
            client.execute(&format!("DELETE FROM {table} WHERE brain = $1"), &[&brain]).unwrap();
        }
        let published = publish_now(&mut client, brain, &local, Mode::Changed);
        assert_eq!((published.generation, published.is_whole), (1, true));
        let (found, _) = compare_answers(&mut client, brain, &local, std::slice::from_ref(&question));
        assert_eq!(found, expected);
    }
}

#[test]
fn vectors_of_another_models_length_are_published_and_searched() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(10, 60);
    let counts = |client: &mut Client| -> Vec<i64> {
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table} WHERE brain = $1");
            client.query_one(&sql, &[&brain]).unwrap().get(0)
        };
        ["vectors", "other_vectors"].map(count).to_vec()
    };
    let query = twice_as_wide(&EMBEDDER.embed_query("worker pool").unwrap().vector);
    for _ in 0..3 {
        let local = world.index_twice_as_wide();
        publish_now(&mut client, brain, &local, Mode::Changed);
        assert_eq!(counts(&mut client), [0, local.chunks_count() as i64]);
        let snapshot = TeamSnapshot::open(&mut client, brain).unwrap();
        let near = |reader: &dyn Reader| by_score(named(reader, &reader.nearest(&query, 50).unwrap()));
        assert_same(&near(&snapshot), &near(&local), 1e-6, "nearest");
        let answer = Query::new("worker pool", "2026-06-01T00:00:00Z".parse().unwrap())
            .with_embedding(Some(Embedding::from(query.clone())));
        assert_same(&shown(&ask(&snapshot, &answer)), &shown(&ask(&local, &answer)), 1e-6, "answer");
        drop(snapshot);
        world.change();
    }
    let local = world.index(LocalMode::Changed);
    assert!(publish_now(&mut client, brain, &local, Mode::Changed).is_whole);
    assert_eq!(counts(&mut client), [local.chunks_count() as i64, 0]);
}

#[test]
fn a_publisher_that_knows_an_older_generation_is_refused() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(7, 10);
    let local = world.index(LocalMode::Changed);
    let mut second = database.connect();
    let mut first = scope(&mut client, brain);
    publish(&mut first, brain, &local, "one", 0, Mode::Changed).unwrap();
    world.change();
    let later = world.index(LocalMode::Changed);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(move || {
            let mut transaction = scope(&mut second, brain);
            publish(&mut transaction, brain, &later, "two", 0, Mode::Changed)
        });
        first.commit().unwrap();
        let refused = waiting.join().unwrap();
        assert!(matches!(refused, Err(Error::OtherGeneration { expected: 0, found: 1 })), "{refused:?}");
    });
    assert_eq!(generation(&mut client, brain), 1);
    let mut transaction = scope(&mut client, brain);
    assert!(matches!(
        publish(&mut transaction, 999, &local, "x", 0, Mode::Changed),
        Err(Error::NoSuchBrain { brain: 999 })
    ));
}

/// With `NUGGET_TEST_PUBLICATIONS` set, as many as it says are published.
#[test]
fn each_answer_is_of_one_generation_while_others_are_published() {
    let publications: usize =
        std::env::var("NUGGET_TEST_PUBLICATIONS").map_or(30, |count| count.parse().unwrap());
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let mut world = World::new(8, 20);
    // In each generation every unit names the generation.
    let write_all = |world: &mut World, generation: usize| {
        for number in 0..20 {
            let text = format!(
                "---\nid: unit-{number}\ntype: concept\ntitle: Pool {number}\n---\n\n# Pool\n\nworker generation{generation} unit{number}\n"
            );
            world.write(number, text);
        }
    };
    write_all(&mut world, 1);
    publish_now(&mut client, brain, &world.index(LocalMode::Changed), Mode::Changed);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                threads.spawn(|| {
                    let (mut connection, mut generations) = (database.connect(), BTreeSet::new());
                    let mut answers = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        let snapshot = TeamSnapshot::open(&mut connection, brain).unwrap();
                        let word = format!("generation{}", snapshot.generation());
                        assert_eq!(snapshot.document_frequency(&word).unwrap(), 20, "{word}");
                        let hits = snapshot.bm25(&["worker".to_owned()], 50).unwrap();
                        assert_eq!(hits.len(), 20);
                        for hit in hits {
                            assert!(snapshot.chunk(hit.chunk).unwrap().text.contains(&word));
                        }
                        generations.insert(snapshot.generation());
                        answers += 1;
                    }
                    (generations.len(), answers)
                })
            })
            .collect();
        for generation in 2..=publications {
            write_all(&mut world, generation);
            publish_now(&mut client, brain, &world.index(LocalMode::Changed), Mode::Changed);
        }
        is_done.store(true, Ordering::Relaxed);
        let seen: Vec<(usize, usize)> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        println!("{publications} publications; generations and answers of each reader: {seen:?}");
        assert!(seen.iter().all(|(generations, _)| *generations > 1));
    });
}

#[test]
fn no_row_of_another_brain_is_seen_or_written() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, other, mut client) = (database.new_brain(), database.new_brain(), database.connect());
    let local = World::new(9, 20).index(LocalMode::Changed);
    publish_now(&mut client, brain, &local, Mode::Changed);
    let wide = database.new_brain();
    publish_now(&mut client, wide, &World::new(9, 5).index_twice_as_wide(), Mode::Changed);
    for table in
        ["units", "problems", "relations", "chunks", "token_vectors", "postings", "vectors", "other_vectors"]
    {
        let brain = if table == "other_vectors" { wide } else { brain };
        let count = |client: &mut Client, brain: i32| -> i64 {
            let sql = format!("SELECT count(*) FROM {table}");
            scope(client, brain).query_one(&sql, &[]).unwrap().get(0)
        };
        assert!(table == "problems" || count(&mut client, brain) > 0, "{table}");
        assert_eq!(count(&mut client, other), 0, "{table}");
        let deleted = scope(&mut client, other).execute(&format!("DELETE FROM {table}"), &[]).unwrap();
        assert_eq!(deleted, 0, "{table}");
    }
    let foreign = "INSERT INTO problems VALUES ($1, 'p', 1, 'w')";
    assert!(scope(&mut client, other).execute(foreign, &[&brain]).is_err());
    for number in 0..64 {
        let by_name = format!("SELECT count(*) FROM vectors_{number}");
        assert!(scope(&mut client, brain).query(&by_name, &[]).is_err(), "a partition by its name");
    }
    // A publisher for one brain in the scope of another.
    let mut transaction = scope(&mut client, other);
    assert!(publish(&mut transaction, brain, &local, "x", 1, Mode::Whole).is_err());
    drop(transaction);
    let snapshot = TeamSnapshot::open(&mut client, other).unwrap();
    assert_eq!((snapshot.generation(), snapshot.model()), (0, None));
    assert!(
        ask(&snapshot, &Query::new("worker pool", "2026-06-01T00:00:00Z".parse().unwrap())).units.is_empty()
    );
}

#[test]
fn a_damaged_list_is_reported_and_repaired_by_a_whole_publication() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let local = World::new(10, 20).index(LocalMode::Changed);
    publish_now(&mut client, brain, &local, Mode::Changed);
    client.batch_execute("UPDATE postings SET body = '\\x80'").unwrap();
    let terms = ["worker".to_owned()];
    let found = TeamSnapshot::open(&mut client, brain).unwrap().bm25(&terms, 5);
    assert!(matches!(found, Err(index::Error::Shared(_))), "{found:?}");
    publish_now(&mut client, brain, &local, Mode::Whole);
    assert_eq!(TeamSnapshot::open(&mut client, brain).unwrap().bm25(&terms, 5).unwrap().len(), 5);
}

#[test]
fn a_brain_of_another_model_or_rules_is_published_as_a_whole() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let local = World::new(12, 10).index(LocalMode::Changed);
    publish_now(&mut client, brain, &local, Mode::Changed);
    for change in ["model = 'other/1'", "index_rules = 0", "next_row = 1000000"] {
        client.batch_execute(&format!("UPDATE brains SET {change}")).unwrap();
        assert!(publish_now(&mut client, brain, &local, Mode::Changed).is_whole, "{change}");
    }
    assert!(!publish_now(&mut client, brain, &local, Mode::Changed).is_whole);
}

#[test]
fn nothing_is_published_of_an_index_without_a_generation() {
    let Some(database) = TestDatabase::new() else { return };
    let (brain, mut client) = (database.new_brain(), database.connect());
    let folder = tempfile::tempdir().unwrap();
    let local = Index::open(folder.path()).unwrap().pin().unwrap();
    let mut transaction = scope(&mut client, brain);
    let refused = publish(&mut transaction, brain, &local, "x", 0, Mode::Changed);
    assert!(matches!(refused, Err(Error::NoGeneration)));
}

#[test]
fn a_brain_that_does_not_exist_leaves_the_connection_usable() {
    let Some(database) = TestDatabase::new() else { return };
    let mut client = database.connect();
    assert!(matches!(TeamSnapshot::open(&mut client, 99), Err(Error::NoSuchBrain { brain: 99 })));
    let brain = database.new_brain();
    assert!(TeamSnapshot::open(&mut client, brain).is_ok());
    client.batch_execute("CREATE TEMP TABLE after_it (a int)").unwrap();
}
