//! Publishing a generation of the index to readers that pin one: a model of `Plan::publish` with its
//! `tidy` in `src/index/plan.rs`, and of `Snapshot::new` with its `vectors_of` in `src/index/read.rs`.
//!
//! A builder writes the vectors under a name that is new, then commits the row that names them, then
//! removes all files but this generation's and the one's before. A reader pins the row, then reads
//! the file that it names; where that is gone it makes the vectors from the rows that it has pinned,
//! and puts the file back. Not in the model: what is inside a file, as a hash proves it whole.

use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use loom::thread;

use crate::explore;

/// Generations that are published at most, with the one that is there before.
const GENERATIONS_MAX: usize = 4;

struct Index {
    /// The committed row: the generation, which stands for its rows and for its file's name. What a
    /// read transaction sees after it has read this is of this generation, which SQLite vouches for.
    row: AtomicUsize,
    /// By name, which holds the generation: the generation whose vectors the file has; 0 for no file.
    files: [AtomicUsize; GENERATIONS_MAX + 1],
    builder: AtomicUsize,
    /// What the readers of one process keep of the file that they read last.
    cache: Mutex<usize>,
    /// How often vectors had to be made from rows.
    remade: AtomicUsize,
}

impl Index {
    /// With a first generation.
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

    /// As `next_number` does: one more than any that has left a trace.
    fn next(&self) -> usize {
        let traces = (1..=GENERATIONS_MAX).filter(|name| self.file(*name) != 0);
        traces.chain([self.generation()]).max().unwrap_or(0) + 1
    }

    /// Removes all files but the newest, the one that the builder began with, and the newest but one.
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

/// Keeps the newest two files, one of which a killed builder may have left.
fn publish_and_tidy_by_files_alone(index: &Index) {
    let number = index.next();
    index.files[number].swap(number, AcqRel);
    index.row.swap(number, AcqRel);
    index.tidy(None);
}

/// Killed with its file in place and its transaction open.
fn publish_and_die(index: &Index) {
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

/// What an answer is made of: rows, and vectors.
type Answer = (usize, usize);

/// Vectors from the pinned rows, put back for the next reader.
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

/// As another process does, whose cache is its own.
fn read_without_cache(index: &Index) -> Answer {
    let pinned = index.generation();
    match index.file(pinned) {
        0 => (pinned, remake(index, pinned)),
        vectors => (pinned, vectors),
    }
}

fn read_whatever_is_cached(index: &Index) -> Answer {
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

/// The rows are read when the transaction that read the name is over.
fn read_rows_later(index: &Index) -> Answer {
    let (_, vectors) = read_without_cache(index);
    (index.generation(), vectors)
}

/// Takes an absent file for one without vectors.
fn read_without_remaking(index: &Index) -> Answer {
    let pinned = index.generation();
    (pinned, index.file(pinned))
}

fn read_under_one_name(index: &Index) -> Answer {
    (index.generation(), index.file(1))
}

/// Runs builders, each with its publications, and readers at the same time.
#[derive(Clone, Default)]
struct Setting {
    builders: Vec<Vec<fn(&Index)>>,
    readers: Vec<fn(&Index) -> Answer>,
    /// Each reader must find its file.
    finds: bool,
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
                    assert!(rows >= before, "an answer from a generation past");
                }));
            }
            for thread in threads {
                thread.join().unwrap();
            }
            if self.finds {
                assert_eq!(index.remade.fetch_add(0, AcqRel), 0, "a reader lost its file");
            }
            index.locked(publish);
            assert_eq!(read(&index).1, index.generation());
            let left = (1..=GENERATIONS_MAX).filter(|name| index.file(*name) != 0).count();
            assert!(left <= 2, "files of generations past are left behind");
        });
    }
}

#[test]
fn readers_beside_a_publication_answer_from_one_generation_and_find_its_file() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting { builders: builders.clone(), readers: vec![read, read], finds: true }.check(3);
    Setting { builders, readers: vec![read_without_cache, read], finds: true }.check(3);
}

#[test]
fn readers_whom_publications_overtake_answer_from_one_generation() {
    let builders = vec![vec![publish as fn(&Index), publish]];
    Setting { builders, readers: vec![read, read_without_cache], finds: false }.check(3);
}

#[test]
fn builders_at_once_and_a_killed_one_leave_whole_generations() {
    let builders = vec![vec![publish as fn(&Index)], vec![publish]];
    Setting { builders, readers: vec![read], finds: false }.check(2);
    let builders = vec![vec![publish_and_die as fn(&Index), publish]];
    Setting { builders, readers: vec![read, read_without_cache], finds: true }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_the_row_before_the_file_loses_readers_their_file() {
    let builders = vec![vec![publish_row_before_file as fn(&Index)]];
    Setting { builders, readers: vec![read], finds: true }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_the_row_before_the_file_and_no_remaking_mixes_generations() {
    let builders = vec![vec![publish_row_before_file as fn(&Index)]];
    Setting { builders, readers: vec![read_without_remaking], finds: false }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_tidying_by_files_alone_after_a_killed_builder_loses_readers_their_file() {
    let builders = vec![vec![publish_and_die as fn(&Index), publish_and_tidy_by_files_alone]];
    Setting { builders, readers: vec![read], finds: true }.check(3);
}

#[test]
#[should_panic(expected = "a reader lost its file")]
fn control_removing_the_previous_generation_loses_readers_their_file() {
    let builders = vec![vec![publish_and_remove_the_previous as fn(&Index)]];
    Setting { builders, readers: vec![read], finds: true }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_removing_the_previous_generation_and_no_remaking_mixes_generations() {
    let builders = vec![vec![publish_and_remove_the_previous as fn(&Index)]];
    Setting { builders, readers: vec![read_without_remaking], finds: false }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_one_name_for_all_generations_mixes_them() {
    let builders = vec![vec![publish_under_one_name as fn(&Index)]];
    Setting { builders, readers: vec![read_under_one_name], finds: false }.check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_a_cache_that_does_not_ask_for_the_generation_mixes_them() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting { builders, readers: vec![read_whatever_is_cached, read_whatever_is_cached], finds: false }
        .check(3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_rows_read_after_the_transaction_mix_generations() {
    let builders = vec![vec![publish as fn(&Index)]];
    Setting { builders, readers: vec![read_rows_later], finds: false }.check(3);
}
