//! The two searches for candidates: by meaning over the vectors, and by words over the full-text index.

use index::{Hit, Reader};

use crate::error::Error;
use crate::lexical::Term;

/// The limit of candidates of each search. Two lists of 50 hold .959 of what is relevant, on average over six sets;
/// with the neighbours that the expansion adds it is .970. Lists of 75 and 100 hold .977 and .984, but the final order
/// gains nothing (nDCG@10 .736 each time) and takes up to twice the time. Candidates by date would add 2 of 1,629 that are
/// relevant, and a second neighbour on each side, which adds one in eight candidates, changes the order by .001.
const CANDIDATES_MAX: usize = 50;

pub(crate) fn by_meaning(snapshot: &dyn Reader, vector: Option<&[f32]>) -> Result<Vec<Hit>, Error> {
    match vector {
        Some(vector) => Ok(snapshot.nearest(vector, CANDIDATES_MAX)?),
        None => Ok(Vec::new()),
    }
}

/// The limit of posting-list entries that are scored, from a small to a large brain. FTS5 takes half a microsecond for each,
/// while the question is embedded, which takes about as long as 10,000. A brain of a few thousand passages does not reach
/// the limit. In a larger brain the words that most passages hold say little about any of them and cost the most.
const ENTRIES: std::ops::RangeInclusive<u64> = 6_000..=10_000;
/// The limit as a part of the number of passages, within [`ENTRIES`]. Over six sets without the lower limit, the final order
/// has nDCG@10 .756 if all entries are scored, .753 with a part of .4, and .752 with .27, .2 and .14.
const ENTRIES_PART: f64 = 0.14;

pub(crate) fn by_words(snapshot: &dyn Reader, terms: &[Term]) -> Result<Vec<Hit>, Error> {
    let entries = (snapshot.chunks_count() as f64 * ENTRIES_PART) as u64;
    let terms = selective(terms, entries.clamp(*ENTRIES.start(), *ENTRIES.end()));
    Ok(snapshot.bm25(&terms, CANDIDATES_MAX)?)
}

/// The rarest terms whose entries are within the limit together, and one at least; in their order.
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
    fn a_small_brain_is_searched_for_all_words() {
        assert_eq!(chosen(&[300, 0, 2_000, 300]), ["w0", "w1", "w2", "w3"]);
        assert!(chosen(&[]).is_empty());
    }

    #[test]
    fn a_large_brain_is_searched_for_the_rarest_words() {
        assert_eq!(chosen(&[90_000, 20, 11_000, 80_000]), ["w1", "w2"]);
        assert_eq!(chosen(&[90_000, 80_000]), ["w1"], "at least one");
        assert_eq!(chosen(&[0, 90_000, 80_000]), ["w0", "w2"], "at least one that occurs");
    }
}
