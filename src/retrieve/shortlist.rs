//! The relevant units of a search, with their summaries.

use std::collections::HashMap;

use index::{Reader, UnitRecord};
use knowledge::unit::is_unreviewed;
use knowledge::{UnitId, markdown, text};

use crate::error::Error;
use crate::file_hints::FileHints;
use crate::memory::is_memory;
use crate::question::Query;
use crate::scored::Scored;
use crate::search::Trace;

/// Passages with less than this part of the best score are not even shown to a model that decides the order. The tokens of
/// the best passage alone can add a third to its score.
const PART_OF_BEST_MIN: f64 = 0.35;
const SUMMARY_CHARS_MAX: usize = 240;

/// A unit that is relevant to the question.
pub(crate) struct Ranked<'t> {
    pub(crate) record: UnitRecord,
    /// The score of its best passage.
    pub(crate) score: f64,
    /// The same without what was learned.
    pub(crate) base_score: f64,
    /// The score by a model, 0 to 10.
    pub(crate) judged: Option<f64>,
    /// Best first, never empty; each with its score as a part of `score`, which is 1 for the best.
    pub(crate) passages: Vec<(f64, &'t Scored)>,
    /// The file of the question that it names.
    pub(crate) file: Option<String>,
}

impl Ranked<'_> {
    /// The passage that says best why the unit was found.
    pub(crate) fn best(&self) -> &Scored {
        let mut passages = self.passages.iter().map(|(_, scored)| *scored);
        passages.find(|scored| scored.strong).unwrap_or(self.passages[0].1)
    }

    /// Whether it is a memory, which nobody has reviewed.
    pub(crate) fn is_memory(&self) -> bool {
        is_memory(self.best().chunk)
    }

    /// Whether a person has reviewed it: it is neither a memory nor a note of an agent that waits.
    pub(crate) fn is_reviewed(&self) -> bool {
        !self.is_memory() && !self.record.status.as_deref().is_some_and(is_unreviewed)
    }

    /// Whether it matches the question well enough to be shown.
    pub(crate) fn is_strong(&self) -> bool {
        self.best().strong
    }

    /// Whether it is of interest only because of a relation to a unit that matches.
    pub(crate) fn is_related(&self) -> bool {
        !self.is_strong() && self.best().path.is_some()
    }
}

/// The relevant units, best first by the local order.
pub(crate) fn shortlist<'t>(
    snapshot: &dyn Reader,
    query: &Query,
    trace: &'t Trace,
) -> Result<Vec<Ranked<'t>>, Error> {
    let files = FileHints::from_paths(&query.files);
    let mut relevant: Vec<(f64, f64, Option<&str>, &Scored)> = trace
        .reranked
        .iter()
        .filter(|scored| scored.relevant)
        .map(|scored| {
            let (factor, named) =
                files.factor(&format!("{}\n{}", scored.record.breadcrumb, scored.record.text));
            (scored.score * factor, scored.base_score * factor, named, scored)
        })
        .collect();
    relevant.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best = |memories: bool| {
        let of_kind = relevant.iter().filter(|(.., scored)| is_memory(scored.chunk) == memories);
        of_kind.map(|(_, base, ..)| *base).reduce(f64::max)
    };
    let floor = PART_OF_BEST_MIN * best(false).or_else(|| best(true)).unwrap_or_default();
    let mut units: Vec<Ranked<'t>> = Vec::new();
    let mut places: HashMap<&UnitId, Option<usize>> = HashMap::new();
    for (score, base_score, named, scored) in relevant {
        // Of a topic that was asked for all units are wanted, however much better one matches.
        if scored.path.is_none() && !scored.features.of_topic && base_score < floor {
            continue;
        }
        let id = &scored.record.unit;
        if !places.contains_key(id) {
            let record = match is_memory(scored.chunk) {
                true => query.memory(id),
                false => snapshot.unit(id)?,
            };
            places.insert(id, record.is_some().then_some(units.len()));
            units.extend(record.map(|record| Ranked {
                record,
                score,
                base_score,
                judged: None,
                passages: Vec::new(),
                file: None,
            }));
        }
        let Some(unit) = places[id].and_then(|place| units.get_mut(place)) else { continue };
        let part = if unit.score > 0.0 { score / unit.score } else { 1.0 };
        unit.passages.push((part, scored));
        if unit.file.is_none() {
            unit.file = named.map(str::to_owned);
        }
    }
    Ok(units)
}

/// One sentence about a unit: its description, or else the first sentence of its text.
pub(crate) fn summary(snapshot: &dyn Reader, record: &UnitRecord) -> Result<String, Error> {
    if let Some(description) = record.description.as_deref().filter(|text| !text.trim().is_empty()) {
        return Ok(text::one_line(description, SUMMARY_CHARS_MAX));
    }
    let chunks = snapshot.chunks_of(&record.id)?;
    Ok(chunks.first().map_or_else(String::new, |chunk| first_sentence(&chunk.text)))
}

/// The first sentence of prose; headings and code above it are skipped.
fn first_sentence(body: &str) -> String {
    let visible = text::strip_hidden(body);
    let prose = |line: &str| {
        line.chars().next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '`' | '*' | '_' | '"' | '('))
    };
    let lines = markdown::lines(&visible).skip_while(|line| line.is_code || !prose(line.text.trim()));
    let lines = lines.map(|line| line.text.trim());
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let end = paragraph.char_indices().find(|&(at, c)| {
        let rest = &paragraph[at + c.len_utf8()..];
        let mut after = rest.chars();
        match c {
            '.' | '!' | '?' => {
                after.next() == Some(' ') && after.next().is_some_and(|next| !next.is_lowercase())
            }
            '。' | '！' | '？' => true,
            _ => false,
        }
    });
    let sentence = end.map_or(paragraph.as_str(), |(at, c)| &paragraph[..at + c.len_utf8()]);
    text::one_line(sentence, SUMMARY_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_the_first_sentence() {
        let check = |body: &str, expected: &str| assert_eq!(first_sentence(body), expected, "{body}");
        check("# Title\n\nOne thing. And another.", "One thing.");
        check(
            "## When it applies\n\n- a list\n\n`pool` is small, e.g. four. Rest",
            "`pool` is small, e.g. four.",
        );
        check("```sh\nrm -rf /\n```\n\nSpread over\ntwo lines, no end", "Spread over two lines, no end");
        check("```sh\n~~~\n```\n\nBehind it.", "Behind it.");
        check("版本 3.2 很快。然后", "版本 3.2 很快。");
        check("- only\n- a list", "");
        check("", "");
    }
}
