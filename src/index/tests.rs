//! Tests of the whole index on brains in temporary folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use knowledge::{Embedding, Relation, UnitId};

use brain::Brain;

use super::*;
use crate::hnsw::Graph;
use crate::vectors::Vectors;

const DIMENSIONS: usize = 32;

/// Counts words separated by white space.
struct Words;

impl CountTokens for Words {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }
}

/// A vector that depends only on the text.
fn embed(text: &str, dimensions: usize) -> Vec<f32> {
    let mut bytes = vec![0; dimensions];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes.iter().map(|byte| f32::from(*byte) - 127.5).collect()
}

fn model() -> ModelLabel {
    ModelLabel { name: "fake/1".into(), dimensions: DIMENSIONS }
}

struct Bench {
    _folder: tempfile::TempDir,
    brain: Brain,
    index: Index,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let brain = Brain::init(folder.path()).unwrap().brain;
        let index = Index::open(&brain.derived_folder()).unwrap();
        Self { _folder: folder, brain, index }
    }

    fn folder(&self) -> PathBuf {
        self.brain.derived_folder()
    }

    /// Writes a file with a modification time an hour ago, so that it counts as settled.
    fn write(&self, path: &str, text: &str) {
        self.write_aged(path, text, Duration::from_secs(3600));
    }

    fn write_aged(&self, path: &str, text: &str, age: Duration) {
        let path = self.brain.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn unit(&self, id: &str, body: &str) {
        self.write(&format!("domains/coding/concepts/{id}.md"), &unit(id, body));
    }

    fn plan(&self) -> Plan {
        self.plan_with(&model(), Mode::Changed)
    }

    fn plan_with(&self, model: &ModelLabel, mode: Mode) -> Plan {
        self.index.plan(&self.brain, model, &Words, mode, &mut |_| {}).unwrap()
    }

    fn update(&self) -> Report {
        publish(self.plan())
    }

    /// Everything that a reader can see of a generation, except row numbers.
    fn everything(&self) -> BTreeMap<String, String> {
        let pinned = self.index.pin().unwrap();
        let mut seen = BTreeMap::new();
        for unit in pinned.units().unwrap() {
            seen.insert(format!("edges of {}", unit.id), format!("{:?}", pinned.related(&unit.id).unwrap()));
            for chunk in pinned.chunks_of(&unit.id).unwrap() {
                let vector = pinned.vector(chunk.row).unwrap();
                let terms: Vec<String> = chunk.text.split_whitespace().map(str::to_owned).collect();
                let words = pinned.bm25(&terms, 1000).unwrap().len();
                let near = pinned.nearest(&vector, 1).unwrap();
                assert_eq!(near[0].chunk, chunk.row, "a chunk is nearest to itself");
                let tokens = blake3::hash(&pinned.token_vectors(chunk.row).unwrap());
                let shown = ChunkRecord { row: ChunkRow(0), ..chunk };
                seen.insert(shown.id.clone(), format!("{shown:?} {vector:?} {tokens} {words}"));
            }
            seen.insert(unit.id.to_string(), format!("{unit:?}"));
        }
        seen.insert("problems".into(), format!("{:?}", pinned.problems().unwrap()));
        assert_eq!(pinned.units_count(), pinned.units().unwrap().len());
        seen
    }

    fn find(&self, term: &str) -> Vec<String> {
        let pinned = self.index.pin().unwrap();
        let hits = pinned.bm25(&[term.to_owned()], 10).unwrap();
        hits.iter().map(|hit| pinned.chunk(hit.chunk).unwrap().unit.to_string()).collect()
    }
}

/// Ends the threads that look at the flag, also if the test fails: a scope waits for its threads.
struct SetOnDrop<'f>(&'f std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

fn unit(id: &str, body: &str) -> String {
    format!("---\nid: {id}\ntype: concept\ntitle: About {id}\n---\n\n{body}\n")
}

/// Runs SQLite's and FTS5's integrity checks.
fn is_sound(index: &Index) -> bool {
    let connection = rusqlite::Connection::open(index.store.folder().join("index.db")).unwrap();
    let pages = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let words = "INSERT INTO chunks_fts(chunks_fts) VALUES ('integrity-check')";
    pages.is_ok_and(|answer| answer == "ok") && connection.execute_batch(words).is_ok()
}

fn publish(plan: Plan) -> Report {
    publish_or_fail(plan).unwrap()
}

fn publish_or_fail(plan: Plan) -> Result<Report, Error> {
    let embed = |text: &String| Embedding { vector: embed(text, DIMENSIONS), tokens: tokens_of(text) };
    let embeddings = plan.texts().iter().map(embed).collect();
    plan.publish(embeddings)
}

/// What stands for the vectors of a text's tokens: some of every length up to several pieces.
fn tokens_of(text: &str) -> Vec<u8> {
    let mut tokens = vec![0; text.len() * 97 % 4_000];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut tokens);
    tokens
}

fn words(count: usize, seed: &str) -> String {
    (0..count).map(|i| format!("{seed}{i} ")).collect()
}

#[test]
fn a_symbolic_link_in_the_way_of_the_index_is_not_followed() {
    for (name, target) in [(".nugget", ""), (".nugget/index.db", "file"), (".nugget/.gitignore", "new")] {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("brain"), folder.path().join("outside"));
        let brain = Brain::init(&root).unwrap().brain;
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "mine").unwrap();
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(outside.join(target), root.join(name)).unwrap();
        let refused = Index::open(&brain.derived_folder()).map(drop);
        assert!(matches!(refused, Err(Error::Io { action: "use", .. })), "{name}: {refused:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{name}");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "mine");
    }
}

#[test]
fn an_index_is_sync_and_a_plan_is_send() {
    fn shared<T: Clone + Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Index>();
    moved::<Plan>();
    moved::<Snapshot>();
}

#[test]
fn an_empty_index_finds_nothing() {
    let bench = Bench::new();
    let pinned = bench.index.pin().unwrap();
    assert_eq!((pinned.generation(), pinned.model(), pinned.chunks_count()), (0, None, 0));
    assert!(pinned.bm25(&["x".into()], 5).unwrap().is_empty());
    assert!(pinned.nearest(&[1.0; DIMENSIONS], 5).unwrap().is_empty());
    assert!(pinned.units().unwrap().is_empty());
    assert!(!bench.index.is_current(&bench.brain, &model()).unwrap());
    drop(pinned);
    let report = bench.update();
    assert_eq!(report, Report { generation: 1, ..Report::default() });
    assert!(bench.index.is_current(&bench.brain, &model()).unwrap());
    assert!(bench.plan().is_empty());
}

#[test]
fn the_folder_is_private_and_ignored_by_git() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    bench.unit("a", "text");
    bench.update();
    assert_eq!(fs::metadata(bench.folder()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(bench.folder().join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn an_unchanged_brain_gives_an_empty_plan() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.unit("b", "beta");
    let report = bench.update();
    assert_eq!((report.units, report.chunks, report.embedded, report.changed), (2, 2, 2, 2));
    assert!(bench.index.is_current(&bench.brain, &model()).unwrap());
    let plan = bench.plan();
    assert!(plan.is_empty() && plan.texts().is_empty());
    assert_eq!(publish(plan).generation, 1);
    assert_eq!(bench.index.pin().unwrap().generation(), 1);
}

#[test]
fn a_touched_file_is_read_once_and_not_embedded_again() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    bench.write_aged("domains/coding/concepts/a.md", &unit("a", "alpha"), Duration::from_secs(1800));
    assert!(!bench.index.is_current(&bench.brain, &model()).unwrap());
    assert!(bench.plan().is_empty());
    assert!(bench.index.is_current(&bench.brain, &model()).unwrap(), "its new time was noted");
}

/// Size and time are the same: only the recent time says that the file may have changed.
#[test]
fn a_change_within_the_clock_resolution_is_detected() {
    let bench = Bench::new();
    let now = SystemTime::now();
    let write = |text: &str| {
        let path = bench.brain.root().join("a.md");
        fs::write(&path, text).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(now).unwrap();
    };
    write("# One\n");
    bench.update();
    assert!(bench.index.is_current(&bench.brain, &model()).unwrap());
    write("# Two\n");
    assert!(!bench.index.is_current(&bench.brain, &model()).unwrap());
    assert_eq!(bench.update().embedded, 1);
}

#[test]
fn only_what_changed_is_embedded() {
    let bench = Bench::new();
    let (one, two) = (words(100, "x"), words(100, "y"));
    bench.unit("a", &format!("## One\n\n{one}\n\n## Two\n\n{two}"));
    bench.unit("b", "beta");
    assert_eq!(bench.update().embedded, 3);
    bench.unit("a", &format!("## One\n\n{one}\n\n## Two\n\n{two} and more"));
    let plan = bench.plan();
    assert_eq!(plan.texts().len(), 1);
    assert!(plan.texts()[0].starts_with("About a > Two\n\n## Two"), "{}", plan.texts()[0]);
    let report = publish(plan);
    assert_eq!((report.chunks, report.changed, report.generation), (3, 1, 2));
}

#[test]
fn of_a_new_generation_only_new_vectors_are_read() {
    let bench = Bench::new();
    let read = |model: &ModelLabel, known: Option<&Vectors>| {
        let index = Index::open(&bench.folder()).unwrap();
        Vectors::read(&index.store.reader().unwrap(), String::new(), model, known).unwrap()
    };
    // How many are taken from a generation of zeros; all others are as in the database.
    let taken = |model: &ModelLabel, known: &Vectors| {
        let (found, all) = (read(model, Some(known)), read(model, None));
        assert_eq!(found.len(), all.len());
        let mut zeros = 0;
        for ((row, vector), (expected_row, expected)) in found.iter().zip(all.iter()) {
            assert_eq!(row, expected_row);
            let is_zero = vector.iter().all(|x| x.to_f32() == 0.0);
            zeros += usize::from(is_zero);
            assert!(is_zero || vector == expected, "row {row}");
        }
        zeros
    };
    (0..30).for_each(|n| bench.unit(&format!("unit-{n}"), &format!("text {n}")));
    bench.update();
    let known = read(&model(), None).zeroed();
    assert_eq!(taken(&model(), &known), 30);
    bench.unit("unit-3", "another text");
    bench.unit("unit-30", "text 30");
    fs::remove_file(bench.brain.root().join("domains/coding/concepts/unit-7.md")).unwrap();
    bench.update();
    assert_eq!(taken(&model(), &known), 28, "of 30, one was changed and one is gone");
    assert_eq!(taken(&ModelLabel { name: "other".into(), ..model() }, &known), 0);
    // The rows of another database have the same numbers.
    fs::remove_dir_all(bench.folder()).unwrap();
    (0..31).for_each(|n| bench.unit(&format!("unit-{n}"), &format!("new text {n}")));
    bench.update();
    assert_eq!(taken(&model(), &known), 0);
}

#[test]
fn a_rename_keeps_the_vectors() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    let before = bench.everything();
    let root = bench.brain.root();
    fs::create_dir_all(root.join("domains/other")).unwrap();
    fs::rename(root.join("domains/coding/concepts/a.md"), root.join("domains/other/b.md")).unwrap();
    let report = bench.update();
    assert_eq!((report.embedded, report.changed, report.removed, report.chunks), (0, 1, 1, 1));
    assert_eq!(bench.everything()["a#0"], before["a#0"]);
}

#[test]
fn a_removed_unit_leaves_no_words_vectors_or_relations() {
    let bench = Bench::new();
    bench.unit("a", "alpha shared");
    bench.write("b.md", "---\nid: b\ntype: bug\nrelated: [{id: a, relation: uses}]\n---\nbeta shared\n");
    bench.update();
    fs::remove_file(bench.brain.root().join("b.md")).unwrap();
    let report = bench.update();
    assert_eq!((report.units, report.chunks, report.removed), (1, 1, 1));
    assert_eq!(bench.find("shared"), ["a"]);
    let connection = rusqlite::Connection::open(bench.folder().join("index.db")).unwrap();
    let bytes = "SELECT sum(length(data)) FROM token_vectors";
    let bytes: usize = connection.query_row(bytes, [], |row| row.get(0)).unwrap();
    let snapshot = bench.index.pin().unwrap();
    let chunk = &snapshot.chunks_of(&UnitId::verbatim("a")).unwrap()[0];
    assert_eq!(bytes, snapshot.token_vectors(chunk.row).unwrap().len());
    assert_eq!(bench.find("beta"), [""; 0]);
    let pinned = bench.index.pin().unwrap();
    assert!(pinned.related(&UnitId::verbatim("a")).unwrap().is_empty());
    assert_eq!(pinned.nearest(&embed("x", DIMENSIONS), 10).unwrap().len(), 1);
}

#[test]
fn another_model_embeds_everything_again() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.unit("b", "beta");
    bench.update();
    let other = ModelLabel { name: "fake/2".into(), dimensions: 8 };
    assert!(!bench.index.is_current(&bench.brain, &other).unwrap());
    let plan = bench.plan_with(&other, Mode::Changed);
    assert_eq!(plan.texts().len(), 2);
    let vectors = plan.texts().iter().map(|text| embed(text, 8).into()).collect();
    plan.publish(vectors).unwrap();
    let pinned = bench.index.pin().unwrap();
    assert_eq!(pinned.model(), Some(&other));
    assert_eq!(pinned.nearest(&[1.0; 8], 5).unwrap().len(), 2);
    assert!(matches!(pinned.nearest(&[1.0; 4], 5), Err(Error::Dimensions { wanted: 8, given: 4 })));
}

#[test]
fn a_deleted_folder_is_rebuilt_under_an_open_index() {
    let bench = Bench::new();
    for i in 0..20 {
        bench.unit(
            &format!("unit-{i}"),
            &format!("## A\n\n{}\n\n## B\n\n{}", words(80, "a"), words(700, "b")),
        );
    }
    bench.write("bad.md", "---\nid: [\n---\n");
    bench.update();
    let before = bench.everything();
    let reader = bench.index.clone();
    assert_eq!(reader.pin().unwrap().units_count(), 20);
    let holding = |reader: &Index| reader.pin().unwrap().document_frequency("a").unwrap();
    assert!(holding(&reader) > 0);
    fs::remove_dir_all(bench.folder()).unwrap();
    assert_eq!(reader.pin().unwrap().generation(), 0, "what is gone is not served");
    assert_eq!(holding(&reader), 0);
    assert!(!bench.index.is_current(&bench.brain, &model()).unwrap());
    bench.update();
    assert_eq!(bench.everything(), before);
    assert_eq!(reader.pin().unwrap().units_count(), 20);
    // Rows are numbered from the start again: nothing cached of the old ones is used for the new ones.
    let terms = ["a".to_owned(), "text".to_owned()];
    let hits = || reader.pin().unwrap().bm25(&terms, 50).unwrap();
    for turn in 0..3 {
        hits();
        assert_eq!(hits(), fresh_hits(&bench, &terms, 50), "turn {turn}");
        fs::remove_dir_all(bench.folder()).unwrap();
        (0..20)
            .for_each(|i| bench.unit(&format!("unit-{i}"), &words(1 + (i * 7 + turn * 11) % 90, "a text")));
        bench.update();
    }
}

#[test]
fn a_rebuild_makes_the_same_index() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.unit("b", &words(900, "w"));
    bench.update();
    let before = bench.everything();
    let plan = bench.plan_with(&model(), Mode::Rebuild);
    assert!(plan.texts().len() >= 3 && !plan.is_empty());
    assert_eq!(publish(plan).generation, 2);
    assert_eq!(bench.everything(), before);
    // Damage in the full-text table does not matter.
    for sql in [
        "DELETE FROM chunks_fts_data WHERE id > 10",
        "UPDATE chunks_fts_data SET block = zeroblob(50)",
        "DELETE FROM chunks_fts_data",
    ] {
        rusqlite::Connection::open(bench.folder().join("index.db")).unwrap().execute_batch(sql).unwrap();
        publish(bench.plan_with(&model(), Mode::Rebuild));
        assert_eq!(bench.everything(), before, "{sql}");
        assert!(is_sound(&bench.index), "{sql}");
    }
}

#[test]
fn a_bad_file_is_a_problem_and_the_rest_is_indexed() {
    let bench = Bench::new();
    bench.unit("good", "alpha");
    bench.write("a-list.md", "---\nid: x\ntype: bug\nconfidence: many\n---\ntext\n");
    bench.write("b-open.md", "---\nid: x\n");
    fs::write(bench.brain.root().join("c-binary.md"), [0xff, 0xfe]).unwrap();
    let report = bench.update();
    assert_eq!((report.units, report.problems), (1, 3));
    let problems = bench.index.pin().unwrap().problems().unwrap();
    let seen: Vec<_> = problems.iter().map(|problem| (problem.path.as_str(), problem.line)).collect();
    assert_eq!(seen, [("a-list.md", 4), ("b-open.md", 1), ("c-binary.md", 1)]);
    assert!(bench.plan().is_empty(), "a problem that stays is nothing new");
    assert!(bench.index.is_current(&bench.brain, &model()).unwrap());
    bench.write("a-list.md", "---\nid: x\ntype: bug\nconfidence: 0.5\n---\ntext\n");
    assert_eq!(bench.update().problems, 2);
}

#[test]
fn the_first_of_two_files_with_one_id_gets_it() {
    let bench = Bench::new();
    bench.write("m.md", &unit("same", "in the middle"));
    bench.write("z.md", &unit("same", "last"));
    assert_eq!(bench.update().problems, 1);
    assert_eq!(bench.find("middle"), ["same"]);
    assert_eq!(bench.index.pin().unwrap().problems().unwrap()[0].path, "z.md");
    // A file with an earlier path takes the id over.
    bench.write("a.md", &unit("same", "first"));
    let report = bench.update();
    assert_eq!((report.units, report.problems), (1, 2));
    assert_eq!((bench.find("first").len(), bench.find("middle").len()), (1, 0));
    // After its removal, the next file by path gets the id again, though it has not changed.
    fs::remove_file(bench.brain.root().join("a.md")).unwrap();
    let report = bench.update();
    assert_eq!((report.units, report.problems), (1, 1));
    assert_eq!((bench.find("first").len(), bench.find("middle").len()), (0, 1));
    assert!(bench.plan().is_empty());
    // A file that takes another id is no longer a problem.
    bench.write("z.md", &unit("other", "last"));
    assert_eq!(bench.update().problems, 0);
}

#[test]
fn a_copy_of_a_file_takes_no_id_from_it() {
    let bench = Bench::new();
    bench.unit("same", "original");
    bench.update();
    let copy = "domains/coding/concepts/a copy.md";
    bench.write(copy, &unit("same", "draft").replace("title: ", "title: Draft "));
    let catalog = Catalog::open_with_changes(&bench.folder(), &bench.brain, 64).unwrap();
    let mut titles = Vec::new();
    catalog.for_each_unit(|unit| titles.push(unit.title.to_owned())).unwrap();
    assert!(titles.len() == 1 && !titles[0].starts_with("Draft"), "before it is indexed: {titles:?}");
    assert_eq!(bench.update().problems, 1);
    assert_eq!((bench.find("original").len(), bench.find("draft").len()), (1, 0));
    assert_eq!(bench.index.pin().unwrap().problems().unwrap()[0].path, copy);
}

/// Files are added, removed, moved, touched, broken and claim each other's ids; two processes take turns.
#[test]
fn after_random_changes_the_index_equals_a_new_one() {
    for seed in 0..6_u8 {
        let mut random = blake3::Hasher::new().update(&[seed]).finalize_xof();
        let mut below = |limit: u8| {
            let mut byte = [0];
            random.fill(&mut byte);
            byte[0] % limit
        };
        let bench = Bench::new();
        let other = Index::open(&bench.folder()).unwrap();
        for turn in 0..12 {
            for _ in 0..=below(4) {
                let path = format!("{}/n{}.md", ["a", "a-b", "c"][usize::from(below(3))], below(4));
                let full = bench.brain.root().join(&path);
                let present = fs::read_to_string(&full);
                match below(6) {
                    0 => drop(fs::remove_file(&full)),
                    1 => {
                        let age = Duration::from_secs(60 * u64::from(below(50)));
                        present.into_iter().for_each(|text| bench.write_aged(&path, &text, age));
                    }
                    2 => bench.write(&path, "---\nid: [\n---\n"),
                    kind => {
                        let id = format!("u{}", if kind == 3 { below(3) } else { 10 + below(90) });
                        bench.write(&path, &unit(&id, &format!("edition {turn} of {path}")));
                    }
                }
            }
            let index = if below(2) == 0 { &bench.index } else { &other };
            let said = index.is_current(&bench.brain, &model()).unwrap();
            let plan = index.plan(&bench.brain, &model(), &Words, Mode::Changed, &mut |_| ()).unwrap();
            assert!(!said || plan.is_empty(), "seed {seed} turn {turn}");
            publish(plan);
            for index in [&bench.index, &other] {
                assert!(index.is_current(&bench.brain, &model()).unwrap(), "seed {seed} turn {turn}");
            }
            let fresh = tempfile::tempdir().unwrap();
            let fresh = Bench {
                index: Index::open(fresh.path()).unwrap(),
                brain: bench.brain.clone(),
                _folder: fresh,
            };
            fresh.update();
            assert_eq!(bench.everything(), fresh.everything(), "seed {seed} turn {turn}");
            for index in [&bench.index, &fresh.index] {
                assert!(is_sound(index), "seed {seed} turn {turn}");
            }
            let terms = ["edition".to_owned(), turn.to_string(), "of".to_owned(), "b".to_owned()];
            let hits = |index: &Index| index.pin().unwrap().bm25(&terms, 5).unwrap();
            let right = fresh_hits(&bench, &terms, 5);
            for index in [&bench.index, &other, &bench.index] {
                assert_eq!(hits(index), right, "seed {seed} turn {turn}");
            }
            // The cached document frequencies are those of the newest generation.
            for term in ["edition", &turn.to_string(), &(turn / 2).to_string()] {
                let holding = |index: &Index| index.pin().unwrap().document_frequency(term).unwrap();
                let right = holding(&fresh.index);
                for index in [&bench.index, &other, &bench.index] {
                    assert_eq!(holding(index), right, "seed {seed} turn {turn} {term}");
                }
            }
        }
    }
}

#[test]
fn the_first_generation_keeps_the_reviewers() {
    let bench = Bench::new();
    let reader = Index::open(&bench.folder()).unwrap();
    let path = "domains/coding/concepts/a.md";
    assert!(bench.index.note_reviewers("c0ffee", true, [(path, Some("Ada"))]).unwrap());
    bench.unit("a", "alpha");
    let pinned = reader.pin().unwrap();
    bench.update();
    assert_eq!((pinned.generation(), pinned.units().unwrap().len()), (0, 0), "what is pinned stays");
    drop(pinned);
    for index in [&reader, &bench.index] {
        let pinned = index.pin().unwrap();
        assert_eq!(pinned.generation(), 1);
        let unit = pinned.unit(&UnitId::verbatim("a")).unwrap().unwrap();
        assert_eq!(unit.reviewed_by.as_deref(), Some("Ada"));
        assert_eq!(index.reviewed().unwrap().as_deref(), Some("c0ffee"));
        assert!(is_sound(index));
    }
    bench.unit("a", "gamma");
    bench.update();
    assert_eq!(bench.find("gamma"), ["a"]);
    assert_eq!(reader.pin().unwrap().generation(), 2);
}

#[test]
fn a_prechunked_generation_is_replaced_by_the_files() {
    let bench = Bench::new();
    let document = knowledge::Document::parse(unit("a", "alpha")).unwrap();
    let given = PrechunkedUnit {
        unit: document.unit("a.md").unwrap(),
        pieces: chunk::split("About a", "beta", &Words),
    };
    publish(bench.index.plan_prechunked(vec![given], &model()).unwrap());
    assert_eq!(bench.find("beta"), ["a"]);
    bench.unit("a", "alpha");
    bench.unit("b", "gamma");
    assert_eq!(bench.update().units, 2);
    assert_eq!((bench.find("alpha"), bench.find("beta")), (vec!["a".to_owned()], vec![]));
}

#[test]
fn a_reader_keeps_its_data_while_the_database_is_rebuilt() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    assert_eq!(bench.index.pin().unwrap().units_count(), 1);
    fs::remove_dir_all(bench.folder()).unwrap();
    let making = store::BuilderLock::try_take(&bench.folder()).unwrap().unwrap();
    let pinned = bench.index.pin().unwrap();
    assert_eq!((pinned.generation(), pinned.units_count()), (1, 1));
    assert_eq!(pinned.nearest(&embed("alpha", DIMENSIONS), 5).unwrap().len(), 1, "its vectors as well");
    drop(pinned);
    drop(making);
    assert_eq!(bench.index.pin().unwrap().generation(), 0);
}

#[test]
fn an_index_is_empty_while_another_process_creates_it() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    fs::remove_dir_all(bench.folder()).unwrap();
    let making = store::BuilderLock::try_take(&bench.folder()).unwrap().unwrap();
    let limits = Limits { create_timeout: Duration::from_millis(200), ..Limits::default() };
    let opened = Index { store: Arc::new(Store::open(&bench.folder(), limits).unwrap()) };
    assert_eq!(opened.pin().unwrap().generation(), 0);
    assert!(!opened.is_current(&bench.brain, &model()).unwrap());
    drop(making);
    bench.update();
    assert_eq!(opened.pin().unwrap().units_count(), 1);
}

#[test]
fn a_pinned_reader_keeps_its_generation() {
    let bench = Bench::new();
    bench.unit("a", "alpha old");
    bench.update();
    let old = bench.index.pin().unwrap();
    for round in 0..3 {
        bench.unit("a", &format!("alpha new {round}"));
        bench.unit(&format!("b{round}"), "beta");
        bench.update();
    }
    assert_eq!((old.generation(), old.units_count(), old.chunks_count()), (1, 1, 1));
    let row = old.bm25(&["old".into()], 5).unwrap()[0].chunk;
    assert!(old.bm25(&["beta".into()], 5).unwrap().is_empty());
    assert_eq!(old.chunk(row).unwrap().text, "alpha old");
    assert_eq!(old.nearest(&embed("x", DIMENSIONS), 5).unwrap()[0].chunk, row);
    let new = bench.index.pin().unwrap();
    assert_eq!((new.generation(), new.units_count(), new.chunks_count()), (4, 4, 4));
    assert!(new.bm25(&["old".into()], 5).unwrap().is_empty());
    assert!(matches!(new.chunk(row), Err(Error::NoSuchChunk { .. })));
}

#[test]
fn a_corrupt_database_is_rebuilt_by_open_or_plan() {
    let bench = Bench::new();
    for i in 0..50 {
        bench.unit(&format!("u{i}"), &words(300, "w"));
    }
    bench.update();
    let before = bench.everything();
    let path = bench.folder().join("index.db");
    let wal = bench.folder().join("index.db-wal");
    let reopened = |bytes: &[u8]| {
        let _ = fs::remove_file(&wal);
        fs::write(&path, bytes).unwrap();
        Index::open(&bench.folder()).unwrap()
    };
    // Not a database, and another program's database: detected on opening.
    for bytes in [&b"not a database, but long enough to be looked at"[..], b"", &[0xa5; 8192]] {
        let index = reopened(bytes);
        assert_eq!(index.pin().unwrap().generation(), 0, "{} bytes", bytes.len());
        let plan = index.plan(&bench.brain, &model(), &Words, Mode::Changed, &mut |_| {}).unwrap();
        assert_eq!(plan.texts().len(), 50);
        publish(plan);
        assert_eq!(bench.everything(), before);
    }
    // Damaged inner pages: detected by a reader, rebuilt by the next plan.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    for page in bytes.chunks_mut(schema::PAGE_BYTES as usize).skip(2) {
        page[..64].fill(0xa5);
    }
    let index = reopened(&bytes);
    let failed = index.pin().and_then(|pinned| pinned.bm25(&["w1".into()], 5));
    assert!(failed.is_err());
    assert!(!index.is_current(&bench.brain, &model()).unwrap_or(false));
    let plan = index.plan(&bench.brain, &model(), &Words, Mode::Changed, &mut |_| {}).unwrap();
    publish(plan);
    assert_eq!(bench.everything(), before);
    assert!(index.is_current(&bench.brain, &model()).unwrap());
}

#[test]
fn the_log_is_emptied_unless_a_reader_needs_it() {
    let bench = Bench::new();
    let log = bench.folder().join("index.db-wal");
    bench.unit("a", "alpha");
    bench.update();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    let pinned = bench.index.pin().unwrap();
    bench.unit("b", "beta");
    bench.update();
    assert_eq!(pinned.generation(), 1);
    assert!(fs::metadata(&log).unwrap().len() > 0, "generation 1 is still read");
    drop(pinned);
    bench.unit("c", "gamma");
    bench.update();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
}

#[test]
fn a_database_without_tables_is_an_empty_index() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    let index = &bench.index;
    assert_eq!(index.pin().unwrap().generation(), 1);
    // The same file that the reader has open.
    let connection = rusqlite::Connection::open(bench.folder().join("index.db")).unwrap();
    connection.execute_batch("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema; VACUUM;").unwrap();
    drop(connection);
    let pinned = index.pin().unwrap();
    assert_eq!((pinned.generation(), pinned.units_count()), (0, 0));
    assert!(pinned.bm25(&["alpha".into()], 5).unwrap().is_empty());
    assert!(!bench.folder().join("index.damaged").exists(), "what was never made is not damaged");
    drop(pinned);
    // A server tests this before it plans.
    assert!(!index.is_current(&bench.brain, &model()).unwrap());
    bench.update();
    assert_eq!(index.pin().unwrap().bm25(&["alpha".into()], 5).unwrap().len(), 1);
}

#[test]
fn another_version_is_dropped_when_opened_only() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    let path = bench.folder().join("index.db");
    for name in ["index.db-wal", "index.db-shm", "index.db"] {
        let _ = fs::remove_file(bench.folder().join(name));
    }
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x); PRAGMA user_version = 99").unwrap();
    drop(other);
    fs::write(bench.folder().join(guard::TRIGGER_FILE), "theirs").unwrap();
    assert!(matches!(bench.index.pin(), Err(Error::OtherVersion { .. })));
    let planned = bench.index.plan(&bench.brain, &model(), &Words, Mode::Changed, &mut |_| {});
    assert!(matches!(planned, Err(Error::OtherVersion { .. })));
    assert_eq!(Index::open(&bench.folder()).unwrap().pin().unwrap().generation(), 0);
    bench.update();
    assert_eq!(bench.find("alpha"), ["a"]);
    assert!(!guard::may_bear(&bench.folder(), &guard::Action::default()).unwrap());
}

#[test]
fn a_builder_killed_before_commit_leaves_the_old_generation() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    let before = bench.everything();
    bench.unit("a", "changed");
    let plan = bench.plan();
    plan.write_without_commit(&embed("x", DIMENSIONS));
    assert_eq!(bench.everything(), before);
    let fresh = Index::open(&bench.folder()).unwrap();
    assert_eq!(fresh.pin().unwrap().generation(), 1);
    let report = bench.update();
    assert_eq!((report.generation, report.changed), (2, 1));
    assert_eq!(bench.find("changed"), ["a"]);
}

#[test]
fn one_builder_works_at_a_time_and_readers_do_not_wait() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    let plan = bench.plan();
    let other = Index::open(&bench.folder()).unwrap();
    let tried =
        other.try_plan(None, || bench.brain.clone(), &model(), &Words, Mode::Changed, &mut |_| {}).unwrap();
    assert!(tried.is_none());
    assert_eq!(other.pin().unwrap().generation(), 0);
    let waiting = std::thread::spawn({
        let (other, brain) = (other.clone(), bench.brain.clone());
        move || other.plan(&brain, &model(), &Words, Mode::Changed, &mut |_| {}).unwrap().is_empty()
    });
    publish(plan);
    assert!(waiting.join().unwrap(), "who waited finds the work done");
    assert!(
        other
            .try_plan(None, || bench.brain.clone(), &model(), &Words, Mode::Changed, &mut |_| {})
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_builder_that_ends_while_a_child_is_started_leaves_no_lock() {
    let bench = Bench::new();
    let lock = store::BuilderLock::try_take(&bench.folder()).unwrap().unwrap();
    // What a child has of all open files until it runs its program.
    let copy = lock.copy_of_a_child();
    drop(lock);
    assert!(store::BuilderLock::try_take(&bench.folder()).unwrap().is_some());
    drop(copy);
}

#[test]
fn what_was_compared_is_not_listed_again_unless_another_builder_has_published_since() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    publish(bench.plan());
    bench.unit("b", "beta");
    let seen = || match bench.index.compare(&bench.brain, &model()).unwrap() {
        Comparison::Outdated(Some(seen)) => (bench.brain.clone(), seen),
        _ => panic!("a unit is new"),
    };
    let (before, same) = (seen(), seen());
    // Written after the comparison: the next one finds it.
    bench.unit("c", "gamma");
    let never = || panic!("the brain is not opened again");
    let plan = bench.index.try_plan(Some(same), never, &model(), &Words, Mode::Changed, &mut |_| {});
    assert_eq!(publish(plan.unwrap().unwrap()).units, 2);
    publish(bench.plan());
    // What was seen before the two generations would remove the third unit.
    let open = || bench.brain.clone();
    let plan = bench.index.try_plan(Some(before), open, &model(), &Words, Mode::Changed, &mut |_| {});
    assert!(plan.unwrap().unwrap().is_empty());
    assert_eq!(bench.find("gamma"), ["c"]);
}

#[test]
fn the_brain_is_opened_once_no_other_builder_can_publish() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    let other = Index::open(&bench.folder()).unwrap();
    let open = || {
        let busy = other.try_plan(None, || bench.brain.clone(), &model(), &Words, Mode::Changed, &mut |_| {});
        assert!(busy.unwrap().is_none(), "another builder works while the brain is opened");
        bench.brain.clone()
    };
    assert!(
        bench.index.try_plan(None, open, &model(), &Words, Mode::Changed, &mut |_| {}).unwrap().is_some()
    );
}

#[test]
fn readers_see_whole_generations_while_builders_publish() {
    let bench = Bench::new();
    bench.unit("a", "round 0");
    bench.update();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = SetOnDrop(&done);
        for _ in 0..3 {
            scope.spawn(|| {
                // Each with an index of its own, as in separate processes.
                let index = Index::open(&bench.folder()).unwrap();
                let mut last = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let pinned = index.pin().unwrap();
                    assert!(pinned.generation() >= last);
                    last = pinned.generation();
                    let units = pinned.units().unwrap();
                    // Round n has n more units, and all their chunks contain `round n`.
                    let round = units.len() - 1;
                    let hits = pinned.bm25(&["round".into()], 100).unwrap();
                    assert_eq!((hits.len(), pinned.chunks_count()), (units.len(), units.len()));
                    for hit in pinned.nearest(&embed("q", DIMENSIONS), 100).unwrap() {
                        assert!(pinned.chunk(hit.chunk).unwrap().text.ends_with(&format!("round {round}")));
                    }
                }
            });
        }
        for round in 1..=25 {
            bench.unit("a", &format!("round {round}"));
            for i in 0..round {
                bench.unit(&format!("b{i}"), &format!("round {round}"));
            }
            bench.update();
        }
        drop(stop);
    });
}

#[test]
fn invalid_vectors_are_errors_and_change_nothing() {
    let bench = Bench::new();
    bench.unit("a", "alpha");
    for bad in [vec![0.0; DIMENSIONS], vec![f32::NAN; DIMENSIONS], vec![f32::INFINITY; DIMENSIONS]] {
        assert!(matches!(bench.plan().publish(vec![bad.into()]), Err(Error::NotAVector)));
    }
    assert!(matches!(bench.plan().publish(vec![vec![1.0; 3].into()]), Err(Error::Dimensions { .. })));
    assert!(matches!(bench.plan().publish(vec![]), Err(Error::VectorCount { wanted: 1, given: 0 })));
    assert_eq!(bench.index.pin().unwrap().generation(), 0);
    assert_eq!(bench.update().generation, 1);
    let pinned = bench.index.pin().unwrap();
    assert!(matches!(pinned.nearest(&[0.0; DIMENSIONS], 1), Err(Error::NotAVector)));
}

#[test]
fn words_match_by_stem_accent_and_identifier_parts() {
    let bench = Bench::new();
    bench.unit("camel", "Call parseConfig before running.");
    bench.unit("snake", "Call read_timeout_ms early.");
    bench.unit("accent", "Der Größenwahn is naïve.");
    bench.unit("japanese", "副作用をコミットしてから承認する。");
    bench.update();
    for (term, expected) in [
        ("parse", "camel"),
        ("config", "camel"),
        ("parseConfig", "camel"),
        ("parse_config", "camel"),
        ("parseconfig", "camel"),
        ("ran", ""),
        ("runs", "camel"),
        ("readTimeoutMs", "snake"),
        ("read_timeout_ms", "snake"),
        ("timeout", "snake"),
        ("naive", "accent"),
        ("GRÖSSENWAHN", ""),
        ("grossenwahn", ""),
        ("größenwahn", "accent"),
        ("承認", "japanese"),
        ("コミット", "japanese"),
        ("認承", ""),
    ] {
        let expected: Vec<&str> = Some(expected).into_iter().filter(|id| !id.is_empty()).collect();
        assert_eq!(bench.find(term), expected, "{term}");
    }
    let pinned = bench.index.pin().unwrap();
    assert_eq!(pinned.document_frequency("calls").unwrap(), 2);
    assert_eq!(pinned.document_frequency("about").unwrap(), 4, "the breadcrumb counts");
    assert_eq!(pinned.document_frequency("*").unwrap(), 0);
}

#[test]
fn a_limit_keeps_the_best_hits_in_order() {
    let bench = Bench::new();
    for i in 0..40 {
        let text = format!(
            "{} {} parse_config readFile of the {}",
            words(1 + i * 13 % 170, "a"),
            "rare ".repeat(i % 5),
            if i % 7 == 0 { "日本語 naïve" } else { "plain word" }
        );
        bench.unit(&format!("unit-{i}"), &text);
    }
    bench.update();
    let reader = bench.index.pin().unwrap();
    let queries = [
        "the",
        "a1 a2 a3",
        "rare plain",
        "parseConfig",
        "read_file naïve",
        "日本語",
        "unit of rare rare",
        "nothing at all",
        "About \"quoted",
        "a7 a7",
        "x² ½ plain",
    ];
    for query in queries {
        let terms: Vec<String> = query.split(' ').map(str::to_owned).collect();
        let all = reader.bm25(&terms, 1_000).unwrap();
        assert!(all.is_sorted_by(|a, b| (b.score, a.chunk) <= (a.score, b.chunk)), "{query}");
        for limit in [0, 1, 7] {
            assert_eq!(reader.bm25(&terms, limit).unwrap(), all[..limit.min(all.len())], "{query}");
        }
    }
    let all = reader.bm25(&["rare".to_owned()], 100).unwrap();
    assert_eq!(all.len(), 32);
    assert!(all[31].score > 0.0);
}

/// The hits that a newly opened reader finds.
fn fresh_hits(bench: &Bench, terms: &[String], limit: usize) -> Vec<Hit> {
    Index::open(&bench.folder()).unwrap().pin().unwrap().bm25(terms, limit).unwrap()
}

#[test]
fn no_term_is_an_operator_or_an_error() {
    let bench = Bench::new();
    bench.unit("a", "alpha NEAR beta AND text: \"quoted\" 日本語 🦀");
    bench.unit("b", "nothing of it");
    bench.update();
    let pinned = bench.index.pin().unwrap();
    let hostile = [
        "",
        " ",
        "\"",
        "\"\"",
        "*",
        "a*",
        "-",
        "-alpha",
        "NEAR",
        "NEAR(a b)",
        "AND",
        "OR",
        "NOT",
        "alpha OR",
        "text:",
        "heading : x",
        "{text}",
        "^alpha",
        "(",
        ")",
        "a\0b",
        "\0",
        "'",
        ";",
        "--",
        "%",
        "日本語",
        "🦀",
        "\u{202e}",
        "\\",
        "+",
        "rank",
    ];
    for term in hostile {
        pinned.bm25(&[term.to_owned()], 5).unwrap_or_else(|error| panic!("{term:?}: {error:?}"));
        pinned.document_frequency(term).unwrap();
    }
    let all: Vec<String> = hostile.iter().map(|term| (*term).to_owned()).collect();
    let hits = pinned.bm25(&all, 5).unwrap();
    assert_eq!(hits.len(), 1);
    assert!(hits[0].score > 0.0);
    assert_eq!(pinned.bm25(&["日本語".into()], 5).unwrap().len(), 1);
    assert!(pinned.bm25(&["quoted nothing".into()], 5).unwrap().is_empty(), "one term is one phrase");
    let many: Vec<String> = (0..5000).map(|i| format!("word{i}")).collect();
    assert!(pinned.bm25(&many, 5).unwrap().is_empty());
}

#[test]
fn relations_are_found_from_both_ends() {
    let bench = Bench::new();
    bench.write(
        "a.md",
        "---\nid: a\ntype: bug\nrelated: [{id: b, relation: uses}, {id: missing, relation: uses}, {id: a}]\n---\nx\n",
    );
    bench.write("b.md", "---\nid: b\ntype: bug\nrelated: [{id: a, relation: informed_by}]\n---\ny\n");
    bench.update();
    let related = |id: &str| {
        let edges = bench.index.pin().unwrap().related(&UnitId::verbatim(id)).unwrap();
        edges
            .into_iter()
            .map(|edge| (edge.other.to_string(), edge.relation, edge.outgoing))
            .collect::<Vec<_>>()
    };
    assert_eq!(related("a"), [("b".into(), Relation::Uses, true), ("b".into(), Relation::InformedBy, false)]);
    assert_eq!(related("b").len(), 2);
    // When the missing unit is added, the relation to it is found.
    bench.unit("missing", "here now");
    bench.update();
    assert_eq!(related("missing"), [("a".into(), Relation::Uses, false)]);
    assert_eq!(related("a").len(), 3);
}

#[test]
fn a_chunk_has_its_position_and_neighbours() {
    let bench = Bench::new();
    let long = words(100, "w");
    bench.unit("a", &format!("{long}\n\n## B\n\n{long}\n\n### C\n\n{long}"));
    bench.unit("z", "alone");
    bench.update();
    let pinned = bench.index.pin().unwrap();
    let chunks = pinned.chunks_of(&UnitId::verbatim("a")).unwrap();
    let seen: Vec<_> = chunks.iter().map(|c| (c.id.as_str(), c.level, c.breadcrumb.as_str())).collect();
    assert_eq!(seen, [("a#0", 1, "About a"), ("a#1", 2, "About a > B"), ("a#2", 3, "About a > B > C")]);
    let rows: Vec<ChunkRow> = chunks.iter().map(|chunk| chunk.row).collect();
    assert_eq!(pinned.neighbours(rows[1]).unwrap(), [rows[0], rows[2]]);
    assert_eq!(pinned.neighbours(rows[0]).unwrap(), [rows[1]]);
    let backwards = pinned.chunks(&[rows[2], rows[0]]).unwrap();
    assert_eq!(backwards[0].position, 2);
    let vector = pinned.vector(rows[0]).unwrap();
    assert!((pinned.similarity(rows[0], &vector).unwrap() - 1.0).abs() < 1e-3);
    assert_eq!(pinned.similarity(rows[0], &[1.0]), None);
}

#[test]
fn hidden_text_is_not_found_and_stays_in_the_chunk() {
    let bench = Bench::new();
    bench.unit("a", "shown <!-- poison --> word\u{200b}joined");
    bench.update();
    assert_eq!(bench.find("poison"), [""; 0]);
    assert_eq!(bench.find("wordjoined"), ["a"]);
    let chunk = &bench.index.pin().unwrap().chunks_of(&UnitId::verbatim("a")).unwrap()[0];
    assert!(chunk.text.contains("<!-- poison -->"));
}

/// Counts words, and none of combining marks alone, which a tokenizer strips as accents.
struct WithoutMarks;

impl CountTokens for WithoutMarks {
    fn count(&self, text: &str) -> usize {
        Words.count(&text.replace(MARK, ""))
    }
}

const MARK: char = '\u{941}';

#[test]
fn a_unit_of_combining_marks_alone_has_a_text_to_embed() {
    let bench = Bench::new();
    let marks = format!("---\nid: marks\ntype: concept\ntitle: \"{MARK}{MARK}\"\n---\n\n{MARK}{MARK}\n");
    bench.write("domains/coding/concepts/marks.md", &marks);
    bench.unit("a", "alpha");
    let plan = bench.index.plan(&bench.brain, &model(), &WithoutMarks, Mode::Changed, &mut |_| {}).unwrap();
    assert_eq!(plan.texts().len(), 2);
    assert!(plan.texts().iter().all(|text| WithoutMarks.count(text) > 0), "{:?}", plan.texts());
}

#[test]
fn vectors_are_those_of_the_changed_generation() {
    let bench = Bench::new();
    let brain = &bench.brain;
    for i in 0..100 {
        bench.unit(&format!("u{i}"), &format!("text number {i}"));
    }
    bench.update();
    assert_eq!(bench.index.pin().unwrap().chunks_count(), 100);
    bench.unit("u3", "rewritten");
    bench.unit("new", "added");
    fs::remove_file(brain.root().join("domains/coding/concepts/u7.md")).unwrap();
    let report = bench.update();
    assert_eq!((report.generation, report.chunks), (2, 100));
    let check = |index: &Index| {
        let pinned = index.pin().unwrap();
        assert_eq!(pinned.chunks_count(), 100);
        for unit in pinned.units().unwrap() {
            let chunk = &pinned.chunks_of(&unit.id).unwrap()[0];
            let text = match unit.id.as_str() {
                "u3" => "rewritten".to_owned(),
                "new" => "added".to_owned(),
                id => format!("text number {}", &id[1..]),
            };
            assert!(chunk.text.contains(&text), "{}: {}", unit.id, chunk.text);
            let vector = pinned.vector(chunk.row).unwrap();
            assert_eq!(pinned.nearest(&vector, 1).unwrap()[0].chunk, chunk.row, "{}", unit.id);
        }
        let rows: Vec<_> = pinned.nearest(&embed("anything", DIMENSIONS), 1_000).unwrap();
        assert_eq!(rows.len(), 100, "what is gone is not found");
    };
    check(&bench.index);
    check(&Index::open(&brain.derived_folder()).unwrap());
}

/// A graph is built, used after changes and rebuilt after damage; its results equal the exact search.
#[test]
fn a_graph_finds_what_the_exact_search_finds() {
    let folder = tempfile::tempdir().unwrap();
    let brain = Brain::init(folder.path()).unwrap().brain;
    let open = |graph| Index {
        store: Arc::new(Store::open(&brain.derived_folder(), Limits { graph, ..Limits::default() }).unwrap()),
    };
    let (with_graph, exact) = (open(100), open(usize::MAX));
    let bench = Bench { _folder: folder, brain: brain.clone(), index: with_graph };
    for i in 0..600 {
        bench.unit(&format!("u{i}"), &format!("text number {i}"));
    }
    bench.update();
    let database = rusqlite::Connection::open(bench.folder().join("index.db")).unwrap();
    let graph = || -> String { database.query_row("SELECT hash FROM graph", [], |row| row.get(0)).unwrap() };
    let check = |index: &Index| {
        let (pinned, exact) = (index.pin().unwrap(), exact.pin().unwrap());
        let mut found = 0;
        for i in 0..50 {
            let query = embed(&format!("query {i}"), DIMENSIONS);
            let expected = exact.nearest(&query, 10).unwrap();
            let actual = pinned.nearest(&query, 10).unwrap();
            found += expected.iter().filter(|hit| actual.contains(hit)).count();
        }
        assert!(found >= 490, "recall {found}/500");
        pinned.generation()
    };
    let first = graph();
    check(&bench.index);
    // A few changes: the graph is kept, and chunks that it lacks are found all the same.
    for i in 0..20 {
        bench.unit(&format!("u{i}"), &format!("other text {i}"));
        fs::remove_file(bench.brain.root().join(format!("domains/coding/concepts/u{}.md", 100 + i))).unwrap();
    }
    bench.update();
    assert_eq!(graph(), first);
    check(&bench.index);
    let pinned = bench.index.pin().unwrap();
    let row = pinned.chunks_of(&UnitId::verbatim("u0")).unwrap()[0].row;
    assert_eq!(pinned.nearest(&pinned.vector(row).unwrap(), 1).unwrap()[0].chunk, row);
    drop(pinned);
    // A flipped bit: the search is exact, and the next generation gets a new graph.
    let mut data: Vec<u8> = database.query_row("SELECT data FROM graph", [], |row| row.get(0)).unwrap();
    let middle = data.len() / 2;
    data[middle] ^= 1;
    database.execute("UPDATE graph SET data = ?1", [data]).unwrap();
    check(&open(100));
    bench.unit("new", "something new");
    bench.update();
    assert!(Graph::read(&database, DIMENSIONS).unwrap().is_some());
    check(&open(100));
    // Many changes: a new graph.
    let before = graph();
    for i in 200..400 {
        bench.unit(&format!("u{i}"), &format!("rewritten {i}"));
    }
    bench.update();
    assert_ne!(graph(), before);
    check(&open(100));
}

/// Set for the processes of the next test that only read: the brain's folder.
const READ_BRAIN: &str = "NUGGET_TEST_READ_BRAIN";

/// The readers are processes: SQLite's locks tell two connections of one process apart only as long as nobody deletes
/// their file.
#[test]
fn readers_work_while_the_folder_is_deleted_repeatedly() {
    if let Some(brain) = std::env::var_os(READ_BRAIN) {
        return read_until_told_to_stop(&PathBuf::from(brain));
    }
    let bench = Bench::new();
    bench.unit("a", "alpha");
    bench.update();
    let spawn = |_| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::readers_work_while_the_folder_is_deleted_repeatedly", "--nocapture"])
            .env(READ_BRAIN, bench.brain.root())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut readers = Readers((0..3).map(spawn).collect());
    for _ in 0..60 {
        let lock = store::BuilderLock::wait(&bench.folder()).unwrap();
        // A reader may write a file again meanwhile.
        while fs::remove_dir_all(bench.folder()).is_err() {}
        drop(lock);
        // A reader that was making the database may have opened the new one's log by its name. Then the build fails or
        // finds damage, and the next one makes the database again.
        let update = || {
            publish_or_fail(bench.index.plan(&bench.brain, &model(), &Words, Mode::Changed, &mut |_| {})?)
        };
        let failed: Vec<_> = (0..5).map_while(|_| update().err()).collect();
        assert!(failed.len() < 5, "{failed:?}");
    }
    fs::write(bench.brain.root().join("stop"), "").unwrap();
    for reader in &mut readers.0 {
        assert!(reader.wait().unwrap().success());
    }
}

/// Ends with the test, whether it passes or not.
struct Readers(Vec<std::process::Child>);

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &mut self.0 {
            reader.kill().and_then(|()| reader.wait()).unwrap();
        }
    }
}

fn read_until_told_to_stop(brain: &std::path::Path) {
    let folder = Brain::open(brain).unwrap().derived_folder();
    let kept = Index::open(&folder).unwrap();
    let mut answered = 0;
    while !brain.join("stop").exists() {
        // A newly opened index, and one that was open before.
        let opened = Index::open(&folder).unwrap();
        assert!(opened.pin().unwrap().units_count() <= 1);
        assert!(kept.pin().unwrap().units_count() <= 1);
        answered += 1;
    }
    assert!(answered > 0);
}

#[test]
fn a_catalog_has_the_units_that_are_not_indexed_yet() {
    let bench = Bench::new();
    let visited = |limit: usize| {
        let catalog = Catalog::open_with_changes(&bench.folder(), &bench.brain, limit).unwrap();
        let mut ids = Vec::new();
        catalog.for_each_unit(|unit| ids.push(format!("{} {}", unit.id, unit.title))).unwrap();
        ids.sort();
        ids
    };
    let title = |id: &str| {
        let text = unit(id, "x");
        let title = text.lines().find_map(|line| line.strip_prefix("title: ")).unwrap().to_owned();
        format!("{id} {title}")
    };
    fs::remove_dir_all(bench.folder()).unwrap();
    bench.unit("a", "one");
    bench.unit("b", "two");
    assert_eq!(visited(64), [title("a"), title("b")], "without an index");
    assert!(!bench.folder().exists(), "nothing is created");
    bench.update();
    bench.unit("c", "three");
    let path = "domains/coding/concepts/a.md";
    bench.write(path, &unit("a", "one, and more").replace(&title("a")[2..], "Another title"));
    assert_eq!(visited(64), ["a Another title".to_owned(), title("b"), title("c")]);
    assert_eq!(visited(1), [title("a"), title("b"), title("c")], "new files come first");
    assert_eq!(visited(0), [title("a"), title("b")]);
    fs::remove_file(bench.brain.root().join(path)).unwrap();
    assert_eq!(visited(64), [title("b"), title("c")]);
    let before = bench.index.pin().unwrap().generation();
    assert_eq!(before, 1, "nothing was published");
}

#[test]
fn the_copy_of_the_triggers_never_lacks_one_of_the_index() {
    let bench = Bench::new();
    let write = |id: &str, command: &str| {
        let text = format!(
            "---\nid: {id}\ntype: caveat\nscope: [{{command: {command}}}]\n---\n\n# A title\n\nA text.\n"
        );
        bench.write(&format!("domains/coding/caveats/{id}.md"), &text);
    };
    let may_bear = |command: &str| {
        let input = serde_json::json!({ "command": command });
        let action = guard::Action::new("Bash", &input, "/p", None).unwrap();
        guard::may_bear(&bench.folder(), &action).unwrap()
    };
    write("push", "git push");
    bench.update();
    assert!(may_bear("git push") && !may_bear("cargo publish"));
    write("publish", "cargo publish");
    bench.update();
    assert!(may_bear("git push") && may_bear("cargo publish"));
    fs::remove_file(bench.brain.root().join("domains/coding/caveats/push.md")).unwrap();
    bench.update();
    assert!(may_bear("cargo publish"));
    assert!(may_bear("git push"), "it was written before the commit, when the index still had it");
    let copy = || fs::metadata(bench.folder().join(guard::TRIGGER_FILE)).unwrap().modified().unwrap();
    let written = copy();
    bench.unit("no-trigger", "text");
    bench.update();
    assert_eq!(copy(), written, "no trigger has changed");
    write("tag", "git tag -d");
    bench.update();
    assert!(!may_bear("git push") && may_bear("git tag -d x"), "what is gone goes with the next change");
    // Where it cannot be written, none is better than an old one.
    let folder = bench.folder();
    fs::create_dir(folder.join("triggers.new")).unwrap();
    write("reset", "git reset --hard");
    bench.update();
    assert!(!folder.join(guard::TRIGGER_FILE).exists());
    fs::remove_dir(folder.join("triggers.new")).unwrap();
    bench.unit("another", "text");
    bench.update();
    assert!(may_bear("git reset --hard HEAD~1"));
}
