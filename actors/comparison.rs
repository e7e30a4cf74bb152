//! Compares what a session yielded with what is known: the brain's units, what other captures have proposed,
//! and the candidates before it.

use std::collections::HashSet;

use index::{Index, Snapshot};
use knowledge::text::canonical;
use knowledge::unit::{is_replaced, is_unreviewed};
use knowledge::{Candidate, Overlap, OverlapKind, Rejected, UnitId};
use queue::{Capture, EarlierProposal, Ledger, Stage};

use crate::dedup::{self, KnownIn, Neighbor, Verdict};
use crate::failure::Failure;
use crate::pipeline::{self, Findings};
use crate::proposal::ProposalInput;
use crate::stage_actor::Step;
use crate::taken_over::TakenOver;

/// How many chunks of the brain a candidate is compared with.
const NEAREST_CHUNKS: usize = 8;
/// How many proposed units a candidate is compared with, the newest that were not merged first: a vector of each is read
/// for every capture, of 10,000 some 15 MB.
const PROPOSED_MAX: usize = 10_000;

/// Decides for each candidate whether it is new, adds to a unit, replaces one, or is skipped.
pub(crate) fn compare(
    queue: &dyn Ledger,
    index: &Index,
    capture: &Capture,
    mut findings: Findings,
) -> Result<Step, Failure> {
    let learned = findings.session.ended.unwrap_or(capture.added);
    let snapshot = index.pin()?;
    let proposed = queue.proposed_by_others(capture.id, PROPOSED_MAX)?;
    // What has been merged since is compared as it is in the brain.
    let merged: HashSet<UnitId> = match proposed.is_empty() {
        true => HashSet::new(),
        false => snapshot.units()?.into_iter().map(|unit| unit.id).collect(),
    };
    let is_waiting = |unit: &EarlierProposal| !merged.contains(&UnitId::verbatim(&unit.name));
    let proposed = proposed.into_iter().filter(|unit| unit.model == findings.model && is_waiting(unit));
    // Also of other models, as titles are compared too; also of units that the brain has, as an addition to one
    // stays rejected.
    let proposed: Vec<EarlierProposal> = queue.rejected(PROPOSED_MAX)?.into_iter().chain(proposed).collect();
    let elsewhere = TakenOver::read(queue)?;
    let vectors = std::mem::take(&mut findings.vectors);
    let mut kept: Vec<(Candidate, Vec<f32>)> = Vec::new();
    for (mut candidate, vector) in findings.candidates.drain(..).zip(vectors) {
        let mut neighbors = neighbors_in_brain(&snapshot, &candidate, &vector)?;
        neighbors.extend(proposed.iter().map(|unit| Neighbor {
            id: UnitId::verbatim(&unit.name),
            kind: None,
            last_modified: None,
            title: unit.title.clone(),
            text: unit.title.clone(),
            cosine: if unit.model == findings.model { cosine(&vector, &unit.vector) } else { 0.0 },
            known_in: if unit.is_rejected { KnownIn::Rejected } else { KnownIn::Proposal },
        }));
        // Their vectors are not known.
        let is_same = |(_, title): &&(String, String)| canonical(title) == canonical(&candidate.title);
        neighbors.extend(elsewhere.units().filter(is_same).map(|(id, title)| Neighbor {
            id: UnitId::verbatim(id),
            kind: None,
            last_modified: None,
            title: title.clone(),
            text: title.clone(),
            cosine: 1.0,
            known_in: KnownIn::Proposal,
        }));
        neighbors.extend(kept.iter().map(|(other, other_vector)| Neighbor {
            id: UnitId::from_title(&other.title),
            kind: None,
            last_modified: None,
            title: other.title.clone(),
            text: format!("{}\n{}", other.title, other.body),
            cosine: cosine(&vector, other_vector),
            known_in: KnownIn::SameSession,
        }));
        match dedup::classify(&candidate, &neighbors, learned) {
            Verdict::Skip { reason } => {
                findings.rejected.push(Rejected { title: candidate.title, reason });
                continue;
            }
            Verdict::Add => candidate.overlap = None,
            Verdict::Merge(id) => candidate.overlap = Some(Overlap { id, how: OverlapKind::AddsTo }),
            Verdict::Supersede(id) => candidate.overlap = Some(Overlap { id, how: OverlapKind::Replaces }),
        }
        kept.push((candidate, vector));
    }
    if kept.is_empty() {
        let reason = format!("nothing new: {}", counted_reasons(&findings.rejected));
        return Ok(Step::end_with_nothing(knowledge::text::one_line(&reason, 300)));
    }
    (findings.candidates, findings.vectors) = kept.into_iter().unzip();
    failpoint::here!("indexing-before-advance");
    Ok(Step::Next(Stage::Git, pipeline::encode(&ProposalInput::Compared(findings))?))
}

/// Each reason once, with how often it was given. The last ones come first: they name the units that are known, and those
/// before them say what was left out earlier.
fn counted_reasons(rejected: &[Rejected]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for Rejected { reason, .. } in rejected.iter().rev() {
        match counted.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => counted.push((reason, 1)),
        }
    }
    let told = counted.iter().map(|(reason, count)| match count {
        1 => (*reason).to_owned(),
        _ => format!("{count} times {reason}"),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The units of the brain that are nearest to a candidate, each by its nearest chunk, and the one that the
/// candidate itself names.
pub(crate) fn neighbors_in_brain(
    snapshot: &Snapshot,
    candidate: &Candidate,
    vector: &[f32],
) -> Result<Vec<Neighbor>, index::Error> {
    let mut neighbors: Vec<Neighbor> = Vec::new();
    for hit in snapshot.nearest(vector, NEAREST_CHUNKS)? {
        let chunk = snapshot.chunk(hit.chunk)?;
        if neighbors.iter().all(|neighbor| neighbor.id != chunk.unit) {
            neighbors.extend(neighbor_in_brain(snapshot, &chunk.unit, hit.score)?);
        }
    }
    if let Some(named) = &candidate.overlap
        && neighbors.iter().all(|neighbor| neighbor.id != named.id)
    {
        neighbors.extend(neighbor_in_brain(snapshot, &named.id, 0.0)?);
    }
    Ok(neighbors)
}

/// A unit of the brain with its whole text: what a candidate repeats may be in another chunk than the
/// nearest one.
fn neighbor_in_brain(
    snapshot: &Snapshot,
    id: &UnitId,
    cosine: f64,
) -> Result<Option<Neighbor>, index::Error> {
    let Some(unit) = snapshot.unit(id)? else { return Ok(None) };
    // What was replaced may be true again. It is new then, and nothing is added to a unit that no longer holds.
    if unit.status.as_deref().is_some_and(is_replaced) {
        return Ok(None);
    }
    let mut text = format!("{}\n{}", unit.title, unit.description.unwrap_or_default());
    for chunk in snapshot.chunks_of(id)? {
        text.push('\n');
        text.push_str(&chunk.text);
    }
    // A note of an agent waits for its review as a proposal does.
    let is_pending = unit.status.as_deref().is_some_and(is_unreviewed);
    let known_in = if is_pending { KnownIn::Proposal } else { KnownIn::Brain };
    let (kind, last_modified) = (Some(unit.kind), unit.last_modified);
    Ok(Some(Neighbor { id: unit.id, kind, last_modified, title: unit.title, text, cosine, known_in }))
}

/// The cosine of two L2-normalised vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_named_first_and_each_reason_once() {
        let rejected = |reason: &str| Rejected { title: "T".into(), reason: reason.into() };
        let reasons = ["weak", "weak", "known already: a"].map(rejected);
        assert_eq!(counted_reasons(&reasons), "known already: a; 2 times weak");
    }
}
