//! A candidate with its features.

use index::{ChunkRecord, ChunkRow};
use serde::Serialize;

use crate::expand::Path;

/// A candidate with its final score.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The chunk's row in the index.
    pub chunk: ChunkRow,
    /// The final local score.
    pub score: f64,
    /// The same without what was learned, by which it is decided what is relevant.
    pub base_score: f64,
    /// The features that make up the score.
    pub features: Features,
    /// Whether it is above the floor of relevance.
    pub relevant: bool,
    /// Whether it is also close enough to the best match to be shown.
    pub strong: bool,
    /// Its parts of the best score and of the best evidence.
    pub(crate) part_of_best: (f64, f64),
    pub(crate) record: ChunkRecord,
    pub(crate) is_code: bool,
    /// Set if the score comes from another unit by a relation.
    pub(crate) path: Option<Path>,
}

/// The features of a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Features {
    /// The cosine of the question's vector with the passage's; 0 without a vector.
    pub cosine: f64,
    /// The value of the rank by `cosine` among the candidates: 1 for the first, falling to 0.
    pub cosine_rank: f64,
    /// BM25, divided by the largest contribution of a word that a single passage holds.
    pub bm25: f64,
    /// How well the passage matches the question's words, 0 to 1: the mean, weighted by rarity, of each wordpiece's
    /// best cosine with any wordpiece of the passage.
    pub words: f64,
    /// The value of the rank by `words`, as `cosine_rank`.
    pub words_rank: f64,
    /// The part of the question's pairs of adjoining words that stand together in the passage, 0 to 1.
    pub near: f64,
    /// The part of the question's literal signals that the passage holds, 0 to 1.
    pub exact: f64,
    /// By how much the cosine of a neighbouring passage exceeds its own; 0 if it does not.
    pub nearer_neighbour: f64,
    /// The better `bm25` of the passages before and after.
    pub neighbour: f64,
    /// By how much the neighbouring passages improve `words`, as far as they are candidates too.
    pub beside: f64,
    /// How well the passage's tokens match those of the question, in their contexts: the mean, weighted by rarity, of each
    /// token's best cosine with any token of the passage, as far as it exceeds that of the average candidate. 0 for code.
    pub late: f64,
    /// How near the passage's date is to the time that the question names, 0 to 1; 0 if it names none.
    pub dated: f64,
    /// 1 if the passage is one utterance of somebody whom the question names.
    pub speaker: f64,
    /// 1 if the question asks for a time and the passage names one.
    pub time: f64,
    /// 1 if the passage is mostly questions, which lowers the score.
    pub asks: f64,
    /// Whether the title of its unit holds all that the question is about, and one word of it is rare.
    pub titled: bool,
    /// Whether the tags and the domain of its unit hold all that the question is about.
    pub of_topic: bool,
    /// Whether the built-in model can read neither the passage nor all of the question, since they are in another script than
    /// Latin: they are compared by words alone.
    pub is_unread: bool,
    /// The factor by confidence, age, source and status; about 1.
    pub trust: f64,
    /// What learned weights add to the similarity of the unit's best passage; 0 without weights.
    pub learned: f64,
}
