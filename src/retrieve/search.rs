//! The two searches: by meaning, over the vectors, and by words, over the full-text index.

use index::{Hit, Pinned};

use crate::{Analysis, Error};

/// How many candidates each search gives.
const CANDIDATES_MAX: usize = 100;
/// Of each list only so many are fused, as is usual: what comes after has no place worth counting, and is
/// still worth a look by the final order.
pub(crate) const FUSED_OF_EACH: usize = 50;

pub(crate) fn by_meaning(pinned: &Pinned, vector: Option<&[f32]>) -> Result<Vec<Hit>, Error> {
    match vector {
        Some(vector) => Ok(pinned.nearest(vector, CANDIDATES_MAX)?),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn by_words(pinned: &Pinned, analysis: &Analysis) -> Result<Vec<Hit>, Error> {
    Ok(pinned.bm25(&analysis.terms, CANDIDATES_MAX)?)
}
