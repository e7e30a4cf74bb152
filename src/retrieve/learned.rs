//! The learned order: moves the best units of a search.
//!
//! It changes the order of what the local order found and nothing else: what is relevant is decided without it. Without
//! weights no score changes by a bit.

use std::collections::HashMap;

use index::Reader;
use knowledge::UnitId;

use crate::question::Learning;
use crate::scored::Scored;

/// What a difference of cosines counts in a score. Learning sees scores divided by it, so that they are on the scale of
/// the cosines that it changes.
pub const SCORE_SCALE: f64 = 4.0;

/// Adds to the scores of the best units what the weights say, for each unit by its best passage. The candidates are in the
/// order of their scores; returns whether that may have changed.
pub(crate) fn adjust(
    snapshot: &dyn Reader,
    scored: &mut [Scored],
    vector: Option<&[f32]>,
    learning: Option<&Learning>,
) -> bool {
    let (Some(vector), Some(learning)) = (vector, learning) else { return false };
    let adapted = learning.weights.as_ref().and_then(|weights| weights.adapt(vector).ok());
    let Some(adapted) = adapted else { return false };
    let mut adjustments: HashMap<UnitId, f64> = HashMap::new();
    for candidate in scored.iter().filter(|candidate| candidate.relevant) {
        if adjustments.len() == learning.candidates_max {
            break;
        }
        if !adjustments.contains_key(&candidate.record.unit) {
            let embedding = snapshot.vector(candidate.chunk);
            let adjustment = embedding.map_or(0.0, |embedding| adapted.adjustment(&embedding));
            adjustments.insert(candidate.record.unit.clone(), adjustment);
        }
    }
    for candidate in scored.iter_mut() {
        let adjustment = adjustments.get(&candidate.record.unit).copied().unwrap_or(0.0);
        if adjustment != 0.0 && candidate.relevant {
            candidate.features.learned = adjustment;
            candidate.score = (candidate.score + SCORE_SCALE * adjustment).max(0.0);
        }
    }
    true
}
