//! Publishing a generation of the index while readers pin one: a model of `write` in `src/index/builder.rs`, and of
//! `Snapshot::new` and `vectors_of` in `src/index/snapshot.rs`.
//!
//! A builder commits all rows of a generation at once. A reader pins a generation, reads its vectors in the same
//! transaction, and keeps them for the other readers of its process, which use them only for the same generation.

use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use loom::thread;

use crate::explore;

struct Index {
    /// The committed generation, which stands for its rows and vectors. SQLite guarantees that a read transaction
    /// sees only this generation after it has read the row.
    row: AtomicUsize,
    builder: AtomicUsize,
    /// The generation of the vectors that the readers of one process read last; 0 for none.
    cache: Mutex<usize>,
}

impl Index {
    /// An index with one generation.
    fn new() -> Arc<Self> {
        let index = Self { row: AtomicUsize::new(0), builder: AtomicUsize::new(0), cache: Mutex::new(0) };
        index.row.swap(1, AcqRel);
        Arc::new(index)
    }

    fn generation(&self) -> usize {
        self.row.fetch_add(0, AcqRel)
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
    let number = index.generation() + 1;
    index.row.swap(number, AcqRel);
}

/// Killed before the commit, which takes everything back.
fn publish_and_be_killed(_: &Index) {}

/// The generations of an answer's rows and of its vectors.
type Answer = (usize, usize);

fn read(index: &Index) -> Answer {
    let pinned = index.generation();
    let mut cache = index.cache.lock().unwrap();
    if *cache != pinned {
        *cache = pinned;
    }
    (pinned, *cache)
}

/// A reader in another process, which has its own cache.
fn read_without_cache(index: &Index) -> Answer {
    let pinned = index.generation();
    (pinned, pinned)
}

fn read_cached_without_check(index: &Index) -> Answer {
    let pinned = index.generation();
    let mut cache = index.cache.lock().unwrap();
    if *cache == 0 {
        *cache = pinned;
    }
    (pinned, *cache)
}

/// Reads the vectors after the transaction that read the rows has ended.
fn read_vectors_later(index: &Index) -> Answer {
    let pinned = index.generation();
    (pinned, index.generation())
}

/// Reads the rows after the transaction that read the vectors has ended.
fn read_rows_later(index: &Index) -> Answer {
    let (_, vectors) = read(index);
    (index.generation(), vectors)
}

/// Runs builders, each with its publications, and readers at the same time.
fn check(builders: Vec<Vec<fn(&Index)>>, readers: Vec<fn(&Index) -> Answer>, preemptions: usize) {
    explore(preemptions, move || {
        let index = Index::new();
        let mut threads = Vec::new();
        for builds in builders.clone() {
            let index = Arc::clone(&index);
            threads.push(thread::spawn(move || builds.into_iter().for_each(|build| index.locked(build))));
        }
        for read in readers.clone() {
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
        index.locked(publish);
        assert_eq!(read(&index).1, index.generation());
    });
}

#[test]
fn readers_during_a_publication_find_one_generation() {
    check(vec![vec![publish]], vec![read, read], 3);
    check(vec![vec![publish]], vec![read_without_cache, read], 3);
}

#[test]
fn readers_overtaken_by_publications_find_one_generation() {
    check(vec![vec![publish, publish]], vec![read, read], 3);
}

#[test]
fn parallel_and_killed_builders_leave_complete_generations() {
    check(vec![vec![publish], vec![publish]], vec![read], 2);
    check(vec![vec![publish_and_be_killed, publish]], vec![read, read_without_cache], 3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_a_cache_without_a_generation_check_mixes_them() {
    check(vec![vec![publish]], vec![read_cached_without_check, read_cached_without_check], 3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_vectors_read_after_the_transaction_mix_generations() {
    check(vec![vec![publish]], vec![read_vectors_later], 3);
}

#[test]
#[should_panic(expected = "an answer from two generations")]
fn control_rows_read_after_the_transaction_mix_generations() {
    check(vec![vec![publish]], vec![read_rows_later], 3);
}
