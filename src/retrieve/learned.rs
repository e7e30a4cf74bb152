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
/// order of their scores; returns whether that may have changed. Only what `is_live` says, reviewed units that are not retired,
/// is moved.
pub(crate) fn adjust(
    snapshot: &dyn Reader,
    scored: &mut [Scored],
    vector: Option<&[f32]>,
    learning: Option<&Learning>,
    is_live: fn(&Scored) -> bool,
) -> bool {
    let (Some(vector), Some(learning)) = (vector, learning) else { return false };
    let adapted = learning.weights.as_ref().and_then(|weights| weights.adapt(vector).ok());
    let Some(adapted) = adapted else { return false };
    let mut adjustments: HashMap<UnitId, f64> = HashMap::new();
    for candidate in scored.iter().filter(|candidate| candidate.relevant && is_live(candidate)) {
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

/// Leaves all that is not live behind the live units that are as relevant, wherever those were moved.
pub(crate) fn keep_behind(scored: &mut [Scored], is_live: fn(&Scored) -> bool) {
    // Of each unit's passages, in the order of their scores, the first stands for it.
    let mut units: HashMap<&UnitId, (f64, f64)> = HashMap::new();
    for candidate in scored.iter().filter(|candidate| candidate.relevant && is_live(candidate)) {
        units.entry(&candidate.record.unit).or_insert((candidate.base_score, candidate.score));
    }
    let units: Vec<(f64, f64)> = units.into_values().collect();
    for candidate in scored.iter_mut().filter(|candidate| !is_live(candidate)) {
        let as_relevant = units.iter().filter(|(base, _)| *base >= candidate.base_score);
        candidate.score = as_relevant.map(|(_, score)| *score).fold(candidate.score, f64::min);
    }
}
