//! The same work on many items by all processors.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer items are not worth a thread.
const ITEMS_MIN: usize = 32;
const THREADS_MAX: usize = 8;
/// Items that a thread takes at a time.
const BLOCK: usize = 8;

/// What `work` gives for each item, in the order of the items.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    if items.len() < ITEMS_MIN || threads == 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let turn = || {
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(BLOCK, Ordering::Relaxed);
            let Some(block) = items.get(start..items.len().min(start + BLOCK)).filter(|b| !b.is_empty())
            else {
                return done;
            };
            done.push((start, block.iter().map(&work).collect::<Vec<R>>()));
        }
    };
    let mut blocks = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(turn)).collect();
        let mut blocks = turn();
        for other in others {
            match other.join() {
                Ok(done) => blocks.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        blocks
    });
    blocks.sort_unstable_by_key(|(start, _)| *start);
    blocks.into_iter().flat_map(|(_, block)| block).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_order_is_kept_whoever_does_the_work() {
        for count in [0, 1, 31, 32, 33, 1000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(super::map(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        }
    }
}
