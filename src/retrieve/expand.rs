//! From what was found to what lies beside it: the passages before and after, and the units that are
//! related to the units found.

use std::collections::{HashMap, HashSet};

use index::{ChunkRow, Hit, Pinned};
use knowledge::{Relation, UnitId};

use crate::Error;

/// The neighbours of so many of the best are candidates too: an answer often stands beside the words of
/// the question.
const NEIGHBOURS_OF: usize = 15;
/// Relations are followed from the units of so many of the best chunks.
const RELATED_OF: usize = 10;
const HOPS_MAX: usize = 2;
/// Each hop leaves half of a relation's weight.
const HOP_DECAY: f64 = 0.5;
/// So many related units at most, the most closely related first.
const RELATED_UNITS_MAX: usize = 12;
/// Of a related unit, the passages nearest to the question.
const RELATED_PASSAGES_MAX: usize = 2;
/// A unit that everything is related to says little about each; the rest of its edges is not followed.
const EDGES_MAX: usize = 32;

/// The candidates: fused order first, then neighbours, then related passages.
pub(crate) struct Expanded {
    pub(crate) hits: Vec<Hit>,
    /// For chunks whose unit was reached by a relation.
    pub(crate) paths: HashMap<ChunkRow, Path>,
}

/// How a unit was reached: from which one, by what, and what of that one's score reaches it, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) source: UnitId,
    pub(crate) relation: Relation,
    /// Whether the source states the relation.
    pub(crate) outgoing: bool,
    pub(crate) hops: usize,
    pub(crate) weight: f64,
}

pub(crate) fn expand(pinned: &Pinned, fused: &[Hit], vector: Option<&[f32]>) -> Result<Expanded, Error> {
    let mut hits = fused.to_vec();
    let mut present: HashSet<ChunkRow> = fused.iter().map(|hit| hit.chunk).collect();
    for hit in fused.iter().take(NEIGHBOURS_OF) {
        for chunk in pinned.neighbours(hit.chunk)? {
            if present.insert(chunk) {
                hits.push(Hit { chunk, score: 0.0 });
            }
        }
    }
    let mut seeds = Vec::new();
    for hit in fused.iter().take(RELATED_OF) {
        let unit = pinned.chunk(hit.chunk)?.unit;
        if !seeds.contains(&unit) {
            seeds.push(unit);
        }
    }
    let mut paths = HashMap::new();
    for (unit, path) in walk(&seeds, &mut |unit| {
        let mut edges = pinned.related(unit)?;
        edges.truncate(EDGES_MAX);
        Ok(edges)
    })? {
        let mut chunks: Vec<(f64, ChunkRow)> = Vec::new();
        for chunk in pinned.chunks_of(&unit)? {
            // Without a vector the first passage speaks for the unit, for it says what the unit is.
            let near = vector.and_then(|vector| pinned.similarity(chunk.row, vector));
            chunks.push((near.unwrap_or(-f64::from(chunk.position)), chunk.row));
        }
        chunks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, chunk) in chunks.into_iter().take(RELATED_PASSAGES_MAX) {
            if present.insert(chunk) {
                hits.push(Hit { chunk, score: 0.0 });
            }
            paths.insert(chunk, path.clone());
        }
    }
    Ok(Expanded { hits, paths })
}

/// The units related to the seeds in one or two hops, with the heaviest path to each; the seeds themselves
/// are not among them.
fn walk(
    seeds: &[UnitId],
    related: &mut dyn FnMut(&UnitId) -> Result<Vec<index::Edge>, Error>,
) -> Result<Vec<(UnitId, Path)>, Error> {
    let mut best: HashMap<UnitId, Path> = HashMap::new();
    let mut frontier: Vec<(UnitId, UnitId, f64)> =
        seeds.iter().map(|seed| (seed.clone(), seed.clone(), 1.0)).collect();
    for hops in 1..=HOPS_MAX {
        let mut reached = Vec::new();
        for (unit, source, weight) in frontier {
            for edge in related(&unit)? {
                let decay = if hops == 1 { 1.0 } else { HOP_DECAY };
                let weight = weight * relation_weight(&edge.relation, edge.outgoing) * decay;
                let heavier = best.get(&edge.other).is_none_or(|path| path.weight < weight);
                if seeds.contains(&edge.other) || !heavier {
                    continue;
                }
                let (relation, outgoing) = (edge.relation, edge.outgoing);
                let path = Path { source: source.clone(), relation, outgoing, hops, weight };
                best.insert(edge.other.clone(), path);
                reached.push((edge.other, source.clone(), weight));
            }
        }
        frontier = reached;
    }
    let mut walked: Vec<(UnitId, Path)> = best.into_iter().collect();
    walked.sort_by(|a, b| b.1.weight.total_cmp(&a.1.weight).then_with(|| a.0.cmp(&b.0)));
    walked.truncate(RELATED_UNITS_MAX);
    Ok(walked)
}

/// How much of a unit's relevance a relation hands on. Set by what the words mean, not measured: what one
/// must understand first, or builds on, matters to whoever asks for the unit; what merely goes with it, less.
fn relation_weight(relation: &Relation, outgoing: bool) -> f64 {
    match (relation, outgoing) {
        (Relation::RequiresUnderstandingOf, true) => 0.6,
        (Relation::Implements | Relation::Uses, true) => 0.5,
        (Relation::InformedBy, true) => 0.45,
        (Relation::OftenCombinedWith, _) => 0.4,
        (Relation::Implements, false) => 0.45,
        (Relation::InformedBy | Relation::RequiresUnderstandingOf | Relation::Uses, false) => 0.35,
        (Relation::Other(_), _) => 0.3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> UnitId {
        UnitId::verbatim(name)
    }

    fn edges(of: &UnitId) -> Result<Vec<index::Edge>, Error> {
        let edge = |other: &str, relation, outgoing| index::Edge { other: id(other), relation, outgoing };
        Ok(match of.as_str() {
            "pool" => vec![edge("queue", Relation::Uses, true), edge("server", Relation::Uses, false)],
            "queue" => vec![edge("pool", Relation::Uses, false), edge("ring", Relation::Implements, true)],
            "ring" => vec![edge("far", Relation::Uses, true)],
            "server" => vec![edge("queue", Relation::OftenCombinedWith, true)],
            _ => Vec::new(),
        })
    }

    #[test]
    fn relations_are_followed_both_ways_for_two_hops_and_no_further() {
        let walked = walk(&[id("pool")], &mut edges).unwrap();
        let reached: Vec<_> = walked.iter().map(|(unit, path)| (unit.as_str(), path.hops)).collect();
        assert_eq!(reached, [("queue", 1), ("server", 1), ("ring", 2)]);
        assert!(walked.iter().all(|(_, path)| path.source == id("pool") && path.weight <= 0.6));
    }

    #[test]
    fn a_ring_of_relations_ends_and_never_reaches_its_seeds() {
        let walked = walk(&[id("pool"), id("queue")], &mut edges).unwrap();
        assert!(walked.iter().all(|(unit, _)| unit != &id("pool") && unit != &id("queue")));
    }

    #[test]
    fn no_relations_no_expansion() {
        assert!(walk(&[id("alone")], &mut edges).unwrap().is_empty());
        assert!(walk(&[], &mut edges).unwrap().is_empty());
    }

    #[test]
    fn a_unit_with_thousands_of_relations_stays_within_the_limit() {
        let hub = &mut |of: &UnitId| {
            let other =
                |i| index::Edge { other: id(&format!("{of}-{i}")), relation: Relation::Uses, outgoing: true };
            Ok((0..EDGES_MAX).map(other).collect())
        };
        assert_eq!(walk(&[id("hub")], hub).unwrap().len(), RELATED_UNITS_MAX);
    }
}
