//! Expansion: adds the passages before and after those found, and passages of related units.

use std::collections::{HashMap, HashSet};

use index::{ChunkRow, Edge, Hit, Reader};
use knowledge::{Relation, UnitId};

use crate::error::Error;

/// The neighbours of so many of the best passages are candidates: an answer often stands beside the words of the
/// question.
const NEIGHBOURS_OF: usize = 15;
/// Relations are followed from the units of so many of the best passages.
const RELATED_OF: usize = 10;
/// The limit of related units, the most closely related first.
const RELATED_UNITS_MAX: usize = 12;
/// The limit of passages of a related unit, those nearest to the question first.
const RELATED_PASSAGES_MAX: usize = 2;
/// The limit of relations that are followed from one unit: a unit related to everything says little about each.
const EDGES_MAX: usize = 32;

/// The candidates: fused order first, then neighbours, then related passages.
pub(crate) struct Expanded {
    pub(crate) hits: Vec<Hit>,
    /// For chunks of related units: the paths to the unit, at most one from each source.
    pub(crate) paths: HashMap<ChunkRow, Vec<Path>>,
}

/// A path from a unit that was found to a related one. `weight` is the part of the source's score that reaches it,
/// 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) source: UnitId,
    pub(crate) relation: Relation,
    /// Whether the source states the relation.
    pub(crate) outgoing: bool,
    pub(crate) weight: f64,
}

pub(crate) fn expand(
    snapshot: &dyn Reader,
    fused: &[Hit],
    vector: Option<&[f32]>,
) -> Result<Expanded, Error> {
    snapshot.prefetch_chunks(&fused.iter().map(|hit| hit.chunk).collect::<Vec<_>>())?;
    let mut hits = fused.to_vec();
    let mut present: HashSet<ChunkRow> = fused.iter().map(|hit| hit.chunk).collect();
    for hit in fused.iter().take(NEIGHBOURS_OF) {
        for chunk in snapshot.neighbours(hit.chunk)? {
            if present.insert(chunk) {
                hits.push(Hit { chunk, score: 0.0 });
            }
        }
    }
    let mut seeds: Vec<(UnitId, f64)> = Vec::new();
    for hit in fused.iter().take(RELATED_OF) {
        let unit = snapshot.chunk(hit.chunk)?.unit;
        if seeds.iter().all(|(seed, _)| seed != &unit) {
            seeds.push((unit, hit.score));
        }
    }
    snapshot.prefetch_relations(&seeds.iter().map(|(unit, _)| unit.clone()).collect::<Vec<_>>())?;
    let mut related = |unit: &UnitId| -> Result<Vec<Edge>, Error> {
        let mut edges = snapshot.related(unit)?;
        edges.truncate(EDGES_MAX);
        Ok(edges)
    };
    let mut paths = HashMap::new();
    let related = related_units(&seeds, &mut related)?;
    snapshot.prefetch_units(&related.iter().map(|(unit, _)| unit.clone()).collect::<Vec<_>>())?;
    for (unit, paths_to_it) in related {
        let mut chunks: Vec<(f64, ChunkRow)> = Vec::new();
        for chunk in snapshot.chunks_of(&unit)?.into_iter().filter(|chunk| snapshot.admits(chunk.row)) {
            // Without a vector the first passage is taken, for it says what the unit is about.
            let near = vector.and_then(|vector| snapshot.similarity(chunk.row, vector));
            chunks.push((near.unwrap_or(-f64::from(chunk.position)), chunk.row));
        }
        chunks.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, chunk) in chunks.into_iter().take(RELATED_PASSAGES_MAX) {
            if present.insert(chunk) {
                hits.push(Hit { chunk, score: 0.0 });
            }
            paths.insert(chunk, paths_to_it.clone());
        }
    }
    Ok(Expanded { hits, paths })
}

/// The units related to the seeds, each with the paths to it. The best path is known only when the seeds have their
/// final scores; here the scores of the fusion choose the candidates.
fn related_units(
    seeds: &[(UnitId, f64)],
    related: &mut dyn FnMut(&UnitId) -> Result<Vec<Edge>, Error>,
) -> Result<Vec<(UnitId, Vec<Path>)>, Error> {
    let mut reached: HashMap<UnitId, (f64, Vec<Path>)> = HashMap::new();
    for (seed, score) in seeds {
        for (unit, path) in heaviest_paths(seed, related(seed)?) {
            let (best, paths_to_it) = reached.entry(unit).or_default();
            *best = best.max(score * path.weight);
            paths_to_it.push(path);
        }
    }
    let mut reached: Vec<_> = reached.into_iter().collect();
    reached.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    reached.truncate(RELATED_UNITS_MAX);
    Ok(reached.into_iter().map(|(unit, (_, paths_to_it))| (unit, paths_to_it)).collect())
}

/// The units related to the seed, with the heaviest path to each.
fn heaviest_paths(seed: &UnitId, edges: Vec<Edge>) -> HashMap<UnitId, Path> {
    let mut best: HashMap<UnitId, Path> = HashMap::new();
    for Edge { other, relation, outgoing } in edges {
        let weight = relation_weight(&relation, outgoing);
        if &other != seed && best.get(&other).is_none_or(|path| path.weight < weight) {
            best.insert(other, Path { source: seed.clone(), relation, outgoing, weight });
        }
    }
    best
}

/// The part of a unit's relevance that a relation passes on. Set by the meaning of the relations, not measured: what
/// must be understood first, or is built on, matters more to a question about the unit than what is used beside it.
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
            "client" => vec![edge("server", Relation::Uses, true)],
            "server" => vec![edge("queue", Relation::OftenCombinedWith, true)],
            _ => Vec::new(),
        })
    }

    #[test]
    fn relations_are_followed_both_ways_once() {
        let reached = related_units(&[(id("pool"), 1.0)], &mut edges).unwrap();
        let units: Vec<_> = reached.iter().map(|(unit, _)| unit.as_str()).collect();
        assert_eq!(units, ["queue", "server"], "not `ring`, which only `queue` is related to");
        assert!(reached.iter().flat_map(|(_, paths)| paths).all(|path| path.source == id("pool")));
    }

    #[test]
    fn a_unit_reached_from_two_seeds_keeps_both_paths() {
        let reached = related_units(&[(id("pool"), 1.0), (id("client"), 0.5)], &mut edges).unwrap();
        let (_, paths_to_it) = reached.iter().find(|(unit, _)| unit == &id("server")).unwrap();
        assert_eq!(paths_to_it.iter().map(|way| way.source.as_str()).collect::<Vec<_>>(), ["pool", "client"]);
    }

    #[test]
    fn a_cycle_does_not_relate_a_unit_to_itself() {
        for (unit, paths_to_it) in
            related_units(&[(id("pool"), 1.0), (id("queue"), 1.0)], &mut edges).unwrap()
        {
            assert!(paths_to_it.iter().all(|way| way.source != unit));
        }
    }

    #[test]
    fn a_unit_without_relations_expands_to_nothing() {
        assert!(related_units(&[(id("alone"), 1.0)], &mut edges).unwrap().is_empty());
        assert!(related_units(&[], &mut edges).unwrap().is_empty());
    }

    #[test]
    fn a_unit_with_many_relations_expands_to_the_limit() {
        let hub = &mut |of: &UnitId| {
            let other =
                |i| Edge { other: id(&format!("{of}-{i}")), relation: Relation::Uses, outgoing: true };
            Ok((0..EDGES_MAX).map(other).collect())
        };
        assert_eq!(related_units(&[(id("hub"), 1.0)], hub).unwrap().len(), RELATED_UNITS_MAX);
    }
}
