//! What can be learned from an answer, and the draw of what is shown where that is asked for.

use std::collections::HashMap;

use feedback::sampling;
use index::Reader;
use knowledge::UnitId;

use crate::answer::{LearningData, UnitCandidate};
use crate::learned::SCORE_SCALE;
use crate::question::{Exploration, Learning};
use crate::shortlist::Ranked;

/// What can be learned from these units, which could all be shown.
pub(crate) fn learning_data(
    snapshot: &dyn Reader,
    vector: Option<&[f32]>,
    units: &[Ranked<'_>],
    learning: &Learning,
) -> LearningData {
    let model = snapshot.model();
    let vector = vector.filter(|vector| model.is_some_and(|model| model.dimensions == vector.len()));
    let mut candidates: Vec<UnitCandidate> = units
        .iter()
        .filter(|unit| !unit.is_memory())
        .filter_map(|unit| {
            Some(UnitCandidate {
                id: unit.record.id.clone(),
                score: unit.base_score / SCORE_SCALE,
                vector: snapshot.vector(unit.passages.first()?.1.chunk)?,
                propensity: 0.0,
            })
        })
        .collect();
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    candidates.truncate(learning.candidates_max);
    LearningData {
        model: model.map(|model| model.name.clone()).unwrap_or_default(),
        vector: vector.map(<[f32]>::to_vec).unwrap_or_default(),
        candidates,
        ..LearningData::default()
    }
}

/// Leaves only units that are drawn, in the order of the draw, and memories after them.
pub(crate) fn draw_units(units: &mut Vec<Ranked<'_>>, exploration: Exploration, data: &mut LearningData) {
    let is_candidate: HashMap<UnitId, usize> =
        data.candidates.iter().enumerate().map(|(at, candidate)| (candidate.id.clone(), at)).collect();
    let memories: Vec<Ranked<'_>> = units.extract_if(.., |unit| unit.is_memory()).collect();
    units.retain(|unit| is_candidate.contains_key(&unit.record.id));
    let scores: Vec<f64> = units.iter().map(|unit| unit.score / SCORE_SCALE).collect();
    let Exploration { shown_max, temperature, seed } = exploration;
    let draws = sampling::explore(&scores, shown_max, temperature, seed);
    let mut places: HashMap<UnitId, usize> = HashMap::new();
    for (place, draw) in draws.iter().enumerate() {
        let id = &units[draw.candidate].record.id;
        data.candidates[is_candidate[id]].propensity = draw.propensity;
        places.insert(id.clone(), place);
    }
    units.retain(|unit| places.contains_key(&unit.record.id));
    units.sort_by_key(|unit| places[&unit.record.id]);
    units.extend(memories);
    data.is_drawn = true;
}
