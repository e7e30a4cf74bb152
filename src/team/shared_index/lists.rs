//! The posting lists of a brain that a question needs, and BM25 over them.

use std::collections::{BTreeMap, HashMap};

use ahash::AHashMap;
use index::{ChunkRow, Hit, best_hits};

use crate::shared_index::postings::{self, Entry};
use crate::shared_index::words::Term;

/// Okapi BM25 as SQLite's FTS5 computes it (`fts5Bm25Function` in fts5_aux.c), with the sign turned.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// FTS5's inverse document frequency of a phrase that half of the chunks or more hold.
const IDF_MIN: f64 = 1e-6;

/// How much of a word's lists is needed. Each holds what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// How many chunks hold it.
    Holding,
    /// The chunks that hold it.
    Chunks,
    /// The word's places in the chunks.
    Places,
}

/// The lists of one word, by bucket.
#[derive(Default)]
struct Lists {
    depth: Option<Depth>,
    /// How many chunks hold the word.
    holding: u64,
    /// By bucket; empty at [`Depth::Holding`].
    bodies: BTreeMap<i32, Body>,
}

struct Body {
    body: Vec<u8>,
    places: Vec<u8>,
}

/// A row of the table `postings`, as deep as it was read.
pub(crate) struct ListRow {
    pub(crate) term: Term,
    pub(crate) bucket: i32,
    pub(crate) holding: u64,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) places: Option<Vec<u8>>,
}

/// The lists that were read.
#[derive(Default)]
pub(crate) struct ReadLists {
    by_term: HashMap<Term, Lists>,
}

/// The number of chunks of a brain and of all their words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) chunks: u64,
    pub(crate) words: u64,
}

/// The words of a phrase in their order.
pub(crate) type Phrase = Vec<Term>;

/// A list that cannot be decoded.
#[derive(Debug)]
pub(crate) struct Damaged;

impl ReadLists {
    /// The words of which more has to be read, with how much.
    pub(crate) fn missing(&self, wanted: &HashMap<Term, Depth>) -> HashMap<Term, Depth> {
        let depth = |term: &Term| self.by_term.get(term).and_then(|lists| lists.depth);
        let is_missing = |(term, wanted): &(&Term, &Depth)| depth(term) < Some(**wanted);
        wanted.iter().filter(is_missing).map(|(term, depth)| (term.clone(), *depth)).collect()
    }

    /// Takes all rows of these words, read as deep as was asked for.
    pub(crate) fn add(&mut self, asked: HashMap<Term, Depth>, rows: Vec<ListRow>) {
        for (term, depth) in asked {
            self.by_term.insert(term, Lists { depth: Some(depth), ..Lists::default() });
        }
        for ListRow { term, bucket, holding, body, places } in rows {
            let Some(lists) = self.by_term.get_mut(&term) else { continue };
            lists.holding += holding;
            if let Some(body) = body {
                lists.bodies.insert(bucket, Body { body, places: places.unwrap_or_default() });
            }
        }
    }

    /// How many chunks hold any of the phrases.
    pub(crate) fn holding_any(&self, phrases: &[Phrase]) -> Result<u64, Damaged> {
        if let [phrase] = phrases
            && let [word] = phrase.as_slice()
        {
            return Ok(self.by_term.get(word).map_or(0, |lists| lists.holding));
        }
        let mut rows = Vec::new();
        for phrase in phrases {
            rows.extend(self.entries(phrase)?.iter().map(|entry| entry.row));
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(rows.len() as u64)
    }

    /// The chunks that hold any of the phrases with the highest scores, best first, equal ones by row; at most `limit`.
    pub(crate) fn best(&self, phrases: &[Phrase], totals: Totals, limit: usize) -> Result<Vec<Hit>, Damaged> {
        if totals.chunks == 0 {
            return Ok(Vec::new());
        }
        let chunks = totals.chunks as f64;
        let mean_length = totals.words as f64 / chunks;
        let mut scores: AHashMap<i64, f64> = AHashMap::new();
        for phrase in phrases {
            let entries = self.entries(phrase)?;
            let holding = entries.len() as f64;
            let idf = ((chunks - holding + 0.5) / (holding + 0.5)).ln();
            let idf = if idf <= 0.0 { IDF_MIN } else { idf };
            for Entry { row, count, length } in entries {
                let (count, length) = (f64::from(count), f64::from(length));
                let part = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean_length));
                *scores.entry(row).or_default() += idf * part;
            }
        }
        let hits = scores.into_iter().map(|(row, score)| Hit { chunk: ChunkRow(row), score });
        Ok(best_hits(hits.collect(), limit))
    }

    /// The chunks that hold the phrase, by row.
    fn entries(&self, phrase: &[Term]) -> Result<Vec<Entry>, Damaged> {
        match phrase {
            [] => Ok(Vec::new()),
            [word] => {
                let Some(lists) = self.by_term.get(word) else { return Ok(Vec::new()) };
                let entries =
                    lists.bodies.iter().flat_map(|(bucket, body)| postings::entries(*bucket, &body.body));
                entries.map(|entry| entry.ok_or(Damaged)).collect()
            }
            words => self.phrase_entries(words),
        }
    }

    fn phrase_entries(&self, words: &[Term]) -> Result<Vec<Entry>, Damaged> {
        let lists: Option<Vec<&Lists>> = words.iter().map(|word| self.by_term.get(word)).collect();
        let Some(lists) = lists else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for bucket in lists[0].bodies.keys() {
            let bodies: Option<Vec<&Body>> = lists.iter().map(|lists| lists.bodies.get(bucket)).collect();
            let Some(bodies) = bodies else { continue };
            let decode = |body: &&Body| postings::decode(*bucket, &body.body, &body.places).ok_or(Damaged);
            let decoded = bodies.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
            found.extend(postings::phrase(&decoded));
        }
        Ok(found)
    }
}

/// How deep the words of these phrases have to be read: for their chunks, or only to count them.
pub(crate) fn depths(phrases: &[Phrase], single: Depth) -> HashMap<Term, Depth> {
    let mut depths: HashMap<Term, Depth> = HashMap::new();
    for phrase in phrases {
        for word in phrase {
            let depth = if phrase.len() > 1 { Depth::Places } else { single };
            let known = depths.entry(word.clone()).or_insert(depth);
            *known = depth.max(*known);
        }
    }
    depths
}
