//! Publishing a generation of the index while readers pin one: a model of `publish` and the tidying in
//! `src/index/builder.rs`, and of `Snapshot::new` and `vectors_of` in `src/index/snapshot.rs`.
//!
//! A builder writes the vectors under a new name, commits the row that names them, and then removes all
//! files except this generation's and the previous one's. A reader pins the row and reads the file that
//! it names; if the file is gone, the reader computes the vectors from the pinned rows and writes the
//! file again. The content of a file is not modelled, because a hash proves that it is complete.

use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use loom::thread;

use crate::explore;

/// The most generations, including the initial one.
const GENERATIONS_MAX: usize = 4;

struct Index {
    /// The committed row: the generation, which stands for its rows and for its file's name. SQLite
    /// guarantees that a read transaction sees only this generation after it has read the row.
    row: AtomicUsize,
    /// By name, which contains the generation: the generation whose vectors the file has; 0 for no file.
    files: [AtomicUsize; GENERATIONS_MAX + 1],
    builder: AtomicUsize,
    /// The file that the readers of one process read last.
    cache: Mutex<usize>,
    /// How often vectors had to be computed from rows.
    remade: AtomicUsize,
}

impl Index {
    /// An index with one generation.
    fn new() -> Arc<Self> {
        let index = Self {
            row: AtomicUsize::new(0),
            files: std::array::from_fn(|_| AtomicUsize::new(0)),
            builder: AtomicUsize::new(0),
            cache: Mutex::new(0),
            remade: AtomicUsize::new(0),
        };
        index.files[1].swap(1, AcqRel);
        index.row.swap(1, AcqRel);
        Arc::new(index)
    }

    fn file(&self, name: usize) -> usize {
        self.files[name].fetch_add(0, AcqRel)
    }

    fn generation(&self) -> usize {
        self.row.fetch_add(0, AcqRel)
    }

    /// One more than any generation that left a file or a row.
    fn next(&self) -> usize {
        let traces = (1..=GENERATIONS_MAX).filter(|name| self.file(*name) != 0);
        traces.chain([self.generation()]).max().unwrap_or(0) + 1
    }

    /// Removes all files except the newest, the one that the builder started from, and the second newest.
    fn tidy(&self, before: Option<usize>) {
        let newest = self.generation();
        let previous = (1..newest).filter(|name| self.file(*name) != 0).max();
        for name in 1..=GENERATIONS_MAX {
            if ![Some(newest), before, previous].contains(&Some(name)) {
                self.files[name].swap(0, AcqRel);
            }
        }
    }

    fn locked(&self, build: impl FnOnce(&Self)) {
        while self.builder.swap(1, AcqRel) == 1 {
            thread::yield_now();
        }
        build(self);
        self.builder.swap(0, AcqRel);
    }
}

fn publish(index: &Index) {
    let (before, number) = (index.generation(), index.next());
    index.files[number].swap(number, AcqRel);
    index.row.swap(number, AcqRel);
    index.tidy(Some(before));
}

/// Keeps the newest two files, one of which a killed builder may have left behind.
fn publish_and_tidy_by_files_alone(index: &Index) {
    let number = index.next();
    index.files[number].swap(number, AcqRel);
    index.row.swap(number, AcqRel);
    index.tidy(None);
}

/// Killed after writing its file, before committing its transaction.
fn publish_and_be_killed(index: &Index) {
    let number = index.next();
    index.files[number].swap(number, AcqRel);
}

fn publish_row_before_file(index: &Index) {
    let number = index.next();
    index.row.swap(number, AcqRel);
    index.files[number].swap(number, AcqRel);
    index.tidy(None);
}

fn publish_and_remove_the_previous(index: &Index) {
    let number = index.next();
    index.files[number].swap(number, AcqRel);
    index.row.swap(number, AcqRel);
    for name in 1..number {
        index.files[name].swap(0, AcqRel);
    }
}

/// One file for all generations, written in place.
fn publish_under_one_name(index: &Index) {
    let number = index.generation() + 1;
    index.files[1].swap(number, AcqRel);
    index.row.swap(number, AcqRel);
}

/// The generations of an answer's rows and of its vectors.
type Answer = (usize, usize);

/// Computes the vectors from the pinned rows, and writes the file for the next reader.
fn remake(index: &Index, pinned: usize) -> usize {
    index.remade.fetch_add(1, AcqRel);
    index.files[pinned].swap(pinned, AcqRel);
    pinned
}

fn read(index: &Index) -> Answer {
    let pinned = index.generation();
    let mut cache = index.cache.lock().unwrap();
    if *cache == pinned {
        return (pinned, *cache);
    }
    let vectors = match index.file(pinned) {
        0 => remake(index, pinned),
        vectors => vectors,
    };
    *cache = vectors;
    (pinned, vectors)
}

/// A reader in another process, which has its own cache.
fn read_without_cache(index: &Index) -> Answer {
    let pinned = index.generation();
    match index.file(pinned) {
        0 => (pinned, remake(index, pinned)),
        vectors => (pinned, vectors),
    }
}

fn read_cached_without_check(index: &Index) -> Answer {
    let pinned = index.generation();
    let mut cache = index.cache.lock().unwrap();
    if *cache == 0 {
        *cache = match index.file(pinned) {
            0 => remake(index, pinned),
            vectors => vectors,
        };
    }
    (pinned, *cache)
}

/// Reads the rows after the transaction that read the name has ended.
fn read_rows_later(index: &Index) -> Answer {
    let (_, vectors) = read_without_cache(index);
    (index.generation(), vectors)
}

/// Treats a missing file as one without vectors.
fn read_without_remaking(index: &Index) -> Answer {
    let pinned = index.generation();
    (pinned, index.file(pinned))
}

fn read_under_one_name(index: &Index) -> Answer {
    (index.generation(), index.file(1))
}

/// Builders, each with its publications, and readers that run concurrently.
#[derive(Clone, Default)]
struct Setting {
    builders: Vec<Vec<fn(&Index)>>,
    readers: Vec<fn(&Index) -> Answer>,
    /// Whether each reader must find its file.
    must_find_file: bool,
}

impl Setting {
    fn check(self, preemptions: usize) {
        explore(preemptions, move || {
            let index = Index::new();
            let mut threads = Vec::new();
            for builds in self.builders.clone() {
                let index = Arc::clone(&index);
                threads.push(thread::spawn(move || builds.into_iter().for_each(|build| index.locked(build))));
            }
            for read in self.readers.clone() {
                let index = Arc::clone(&index);
                threads.push(thread::spawn(move || {
                    let before = index.generation();
                    let (rows, vectors) = read(&index);
                    assert_eq!(rows, vectors, "an answer from two generations");
                    assert!(rows >= before, "an answer from an older generation");
                }));
            }
            for thread in threads {
                thread.join().unwrap();
            }
            if self.must_find_file {
                assert_eq!(index.remade.fetch_add(0, AcqRel), 0, "a reader lost its file");
            }
            index.locked(publish);
            assert_eq!(read(&index).1, index.generation());
            let left = (1..=GENERATIONS_MAX).filter(|name| index.file(*name) != 0).count();
            assert!(left <= 2, "files of older generations are left behind");
        });
    }
}

#[test]
fn readers_during_a_publication_find_one_generation() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting { builders: builders.clone(), readers: vec![read, read], must_find_file: true }.check(3);
    Setting { builders, readers: vec![read_without_cache, read], must_find_file: true }.check(3);
}

#[test]
fn readers_overtaken_by_publications_find_one_generation() {
    let builders = vec![vec![publish as fn(&Index), publish]];
    Setting { builders, readers: vec![read, read_without_cache], must_find_file: false }.check(3);
}

#[test]
fn parallel_and_killed_builders_leave_complete_generations() {
    let builders = vec![vec![publish as fn(&Index)], vec![publish]];
    Setting { builders, readers: vec![read], must_find_file: false }.check(2);
    let builders = vec![vec![publish_and_be_killed as fn(&Index), publish]];
    Setting { builders, readers: vec![read, read_without_cache], must_find_file: true }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_committing_before_writing_loses_the_file() {
    let builders = vec![vec![publish_row_before_file as fn(&Index)]];
    Setting { builders, readers: vec![read], must_find_file: true }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_committing_first_without_remaking_mixes_generations() {
    let builders = vec![vec![publish_row_before_file as fn(&Index)]];
    Setting { builders, readers: vec![read_without_remaking], must_find_file: false }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_tidying_by_files_alone_loses_the_file() {
    let builders = vec![vec![publish_and_be_killed as fn(&Index), publish_and_tidy_by_files_alone]];
    Setting { builders, readers: vec![read], must_find_file: true }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_removing_the_previous_generation_loses_the_file() {
    let builders = vec![vec![publish_and_remove_the_previous as fn(&Index)]];
    Setting { builders, readers: vec![read], must_find_file: true }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_removing_without_remaking_mixes_generations() {
    let builders = vec![vec![publish_and_remove_the_previous as fn(&Index)]];
    Setting { builders, readers: vec![read_without_remaking], must_find_file: false }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_one_name_for_all_generations_mixes_them() {
    let builders = vec![vec![publish_under_one_name as fn(&Index)]];
    Setting { builders, readers: vec![read_under_one_name], must_find_file: false }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_a_cache_without_a_generation_check_mixes_them() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting {
        builders,
        readers: vec![read_cached_without_check, read_cached_without_check],
        must_find_file: false,
    }
    .check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_rows_read_after_the_transaction_mix_generations() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting { builders, readers: vec![read_rows_later], must_find_file: false }.check(3);
}
