//! The two searches: by meaning, over the vectors, and by words, over the full-text index.

use index::{Hit, Snapshot};

use crate::Error;
use crate::lexical::Term;

/// How many candidates each search gives. Both lists of 50 hold .959 of what is relevant, on average over six
/// sets; with the neighbours that the expansion adds it is .970. Lists of 75 and 100 come to .977 and .984, and
/// the final order gains nothing by them (nDCG@10 .736 each time) while it costs up to twice the time.
const CANDIDATES_MAX: usize = 50;

pub(crate) fn by_meaning(pinned: &Snapshot, vector: Option<&[f32]>) -> Result<Vec<Hit>, Error> {
    match vector {
        Some(vector) => Ok(pinned.nearest(vector, CANDIDATES_MAX)?),
        None => Ok(Vec::new()),
    }
}

/// So many entries of the words' lists are scored at most, by the number of passages: FTS5 takes 6 ms for the most
/// of them, which the question's embedding takes anyway. A brain of a few thousand passages has not more of them
/// for a question. In a larger one the words that are in very many passages say little about any, and cost
/// the most.
///
/// Over 6,267 functions and web queries, 2,500 entries ([`ENTRIES_PART`] of the passages) leave every stage as it
/// is; 1,000 (as 16,000 of 100,000) take .05 of nDCG@10 from BM25 alone and .004 of .602 from the final order.
const ENTRIES: std::ops::RangeInclusive<u64> = 6_000..=16_000;
const ENTRIES_PART: f64 = 0.4;

pub(crate) fn by_words(pinned: &Snapshot, terms: &[Term]) -> Result<Vec<Hit>, Error> {
    let entries = (pinned.chunks_count() as f64 * ENTRIES_PART) as u64;
    let terms = selective(terms, entries.clamp(*ENTRIES.start(), *ENTRIES.end()));
    Ok(pinned.bm25(&terms, CANDIDATES_MAX)?)
}

/// The rarest terms, as many as have room in so many entries, and one at least; in their order.
fn selective(terms: &[Term], entries_max: u64) -> Vec<String> {
    let mut rarest: Vec<usize> = (0..terms.len()).collect();
    rarest.sort_by_key(|&at| terms[at].holding);
    let mut entries = 0;
    let fits = |&at: &usize| {
        let first = entries == 0;
        entries += terms[at].holding;
        first || entries <= entries_max
    };
    let mut chosen: Vec<usize> = rarest.into_iter().take_while(fits).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| terms[at].text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(holding: &[u64]) -> Vec<String> {
        let term = |(at, &holding): (usize, &u64)| Term { text: format!("w{at}"), holding };
        selective(&holding.iter().enumerate().map(term).collect::<Vec<_>>(), 16_000)
    }

    #[test]
    fn a_brain_of_few_passages_is_searched_for_all_words() {
        assert_eq!(chosen(&[300, 0, 2_000, 300]), ["w0", "w1", "w2", "w3"]);
        assert!(chosen(&[]).is_empty());
    }

    #[test]
    fn of_words_that_are_everywhere_the_rarest_are_searched_for() {
        assert_eq!(chosen(&[90_000, 20, 11_000, 80_000]), ["w1", "w2"]);
        assert_eq!(chosen(&[90_000, 80_000]), ["w1"], "one at least");
        assert_eq!(chosen(&[0, 90_000, 80_000]), ["w0", "w2"], "one that is held at all");
    }
}
