//! From what was found to what lies beside it: the passages before and after, and the units that are
//! related to the units found.

use std::collections::{HashMap, HashSet};

use index::{ChunkRow, Edge, Hit, Snapshot};
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
    /// For chunks whose unit was reached by a relation: the ways to it, at most one from each source.
    pub(crate) paths: HashMap<ChunkRow, Vec<Path>>,
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

pub(crate) fn expand(pinned: &Snapshot, fused: &[Hit], vector: Option<&[f32]>) -> Result<Expanded, Error> {
    let mut hits = fused.to_vec();
    let mut present: HashSet<ChunkRow> = fused.iter().map(|hit| hit.chunk).collect();
    for hit in fused.iter().take(NEIGHBOURS_OF) {
        for chunk in pinned.neighbours(hit.chunk)? {
            if present.insert(chunk) {
                hits.push(Hit { chunk, score: 0.0 });
            }
        }
    }
    let mut seeds: Vec<(UnitId, f64)> = Vec::new();
    for hit in fused.iter().take(RELATED_OF) {
        let unit = pinned.chunk(hit.chunk)?.unit;
        if seeds.iter().all(|(seed, _)| seed != &unit) {
            seeds.push((unit, hit.score));
        }
    }
    let mut known: HashMap<UnitId, Vec<Edge>> = HashMap::new();
    let mut related = |unit: &UnitId| -> Result<Vec<Edge>, Error> {
        if let Some(edges) = known.get(unit) {
            return Ok(edges.clone());
        }
        let mut edges = pinned.related(unit)?;
        edges.truncate(EDGES_MAX);
        known.insert(unit.clone(), edges.clone());
        Ok(edges)
    };
    let mut paths = HashMap::new();
    for (unit, ways) in reach(&seeds, &mut related)? {
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
            paths.insert(chunk, ways.clone());
        }
    }
    Ok(Expanded { hits, paths })
}

/// The units related to the seeds, each with the ways to it. Which way is the best is known only when the
/// seeds have their final scores; here they have those of the fusion, to choose what is worth a look.
fn reach(
    seeds: &[(UnitId, f64)],
    related: &mut dyn FnMut(&UnitId) -> Result<Vec<Edge>, Error>,
) -> Result<Vec<(UnitId, Vec<Path>)>, Error> {
    let mut reached: HashMap<UnitId, (f64, Vec<Path>)> = HashMap::new();
    for (seed, score) in seeds {
        for (unit, path) in walk(seed, related)? {
            let (best, ways) = reached.entry(unit).or_default();
            *best = best.max(score * path.weight);
            ways.push(path);
        }
    }
    let mut reached: Vec<_> = reached.into_iter().collect();
    reached.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    reached.truncate(RELATED_UNITS_MAX);
    Ok(reached.into_iter().map(|(unit, (_, ways))| (unit, ways)).collect())
}

/// The units related to one in one or two hops, with the heaviest way to each.
fn walk(
    seed: &UnitId,
    related: &mut dyn FnMut(&UnitId) -> Result<Vec<Edge>, Error>,
) -> Result<HashMap<UnitId, Path>, Error> {
    let mut best: HashMap<UnitId, Path> = HashMap::new();
    let mut frontier = vec![(seed.clone(), 1.0)];
    for hops in 1..=HOPS_MAX {
        let decay = if hops == 1 { 1.0 } else { HOP_DECAY };
        let mut next = Vec::new();
        for (unit, weight) in frontier {
            for edge in related(&unit)? {
                let weight = weight * relation_weight(&edge.relation, edge.outgoing) * decay;
                let heavier = best.get(&edge.other).is_none_or(|path| path.weight < weight);
                if &edge.other == seed || !heavier {
                    continue;
                }
                let Edge { other, relation, outgoing } = edge;
                best.insert(other.clone(), Path { source: seed.clone(), relation, outgoing, hops, weight });
                next.push((other, weight));
            }
        }
        frontier = next;
    }
    Ok(best)
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

    fn edges(of: &UnitId) -> Result<Vec<Edge>, Error> {
        let edge = |other: &str, relation, outgoing| Edge { other: id(other), relation, outgoing };
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
        let reached = reach(&[(id("pool"), 1.0)], &mut edges).unwrap();
        let hops: Vec<_> = reached.iter().map(|(unit, ways)| (unit.as_str(), ways[0].hops)).collect();
        assert_eq!(hops, [("queue", 1), ("server", 1), ("ring", 2)]);
        let ways = reached.iter().flat_map(|(_, ways)| ways);
        assert!(ways.clone().all(|path| path.source == id("pool") && path.weight < 0.7));
    }

    #[test]
    fn a_unit_reached_from_two_sides_keeps_both_ways() {
        let reached = reach(&[(id("pool"), 1.0), (id("queue"), 0.5)], &mut edges).unwrap();
        let (_, ways) = reached.iter().find(|(unit, _)| unit == &id("ring")).unwrap();
        assert_eq!(ways.iter().map(|way| way.source.as_str()).collect::<Vec<_>>(), ["pool", "queue"]);
    }

    #[test]
    fn no_unit_is_related_to_itself_round_a_ring() {
        for (unit, ways) in reach(&[(id("pool"), 1.0), (id("queue"), 1.0)], &mut edges).unwrap() {
            assert!(ways.iter().all(|way| way.source != unit));
        }
    }

    #[test]
    fn no_relations_no_expansion() {
        assert!(reach(&[(id("alone"), 1.0)], &mut edges).unwrap().is_empty());
        assert!(reach(&[], &mut edges).unwrap().is_empty());
    }

    #[test]
    fn a_unit_with_many_relations_stays_within_the_limit() {
        let hub = &mut |of: &UnitId| {
            let other =
                |i| Edge { other: id(&format!("{of}-{i}")), relation: Relation::Uses, outgoing: true };
            Ok((0..EDGES_MAX).map(other).collect())
        };
        assert_eq!(reach(&[(id("hub"), 1.0)], hub).unwrap().len(), RELATED_UNITS_MAX);
    }
}
