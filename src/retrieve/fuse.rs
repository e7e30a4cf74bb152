//! Fusion of ranked lists by rank: their scores cannot be compared.

use std::collections::HashMap;

use index::{ChunkRow, Hit};
use knowledge::rank::{RRF_K, reciprocal_rank};

/// Reciprocal rank fusion, best first. An item in several lists comes before an item in one list at about the same
/// rank. Of equals the lower chunk comes first, so that the order is always the same.
pub(crate) fn fuse(lists: &[&[Hit]]) -> Vec<Hit> {
    let mut scores: HashMap<ChunkRow, f64> = HashMap::new();
    for list in lists {
        for (rank, hit) in list.iter().enumerate() {
            *scores.entry(hit.chunk).or_default() += reciprocal_rank(rank, RRF_K);
        }
    }
    let mut fused: Vec<Hit> = scores.into_iter().map(|(chunk, score)| Hit { chunk, score }).collect();
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk)));
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rows: &[i64]) -> Vec<Hit> {
        rows.iter().map(|&row| Hit { chunk: ChunkRow(row), score: 1.0 }).collect()
    }

    #[test]
    fn an_item_in_both_lists_comes_first() {
        let (a, b) = (list(&[1, 2, 3]), list(&[9, 2, 8]));
        let rows: Vec<i64> = fuse(&[&a, &b]).iter().map(|hit| hit.chunk.0).collect();
        assert_eq!(rows, [2, 1, 9, 3, 8]);
    }

    #[test]
    fn a_single_list_keeps_its_order() {
        let rows: Vec<i64> = fuse(&[&list(&[7, 3, 5]), &[]]).iter().map(|hit| hit.chunk.0).collect();
        assert_eq!(rows, [7, 3, 5]);
    }
}
