//! What is relevant enough to be shown.
//!
//! More text is not better for the reader, so an answer is as short as what bears on the question. Four rules, which
//! cut and never reorder:
//!
//! 1. There is no answer unless the best passage's [evidence](Floor::evidence) reaches an absolute floor. A question of
//!    one word has little of it by meaning, so a passage of a unit whose title, tags or domain hold the question's
//!    [`Subject`] needs none.
//! 2. A passage is shown if it reaches that floor itself, and has at least [`PART_OF_BEST_SCORE`] of the best score and
//!    [`PART_OF_BEST_EVIDENCE`] of the best evidence, or if the question is nothing but tags and domain of its unit; of
//!    those, all that are candidates are relevant.
//! 3. A relation is followed from such passages only, and not if they match by a single word ([`Floor::leads_on`]). It
//!    is followed once: a second hop is the first hop from a unit that matches by itself.
//! 4. A unit that is shown only because of a relation needs [`PART_OF_BEST_RELATED`] of the best evidence, and is shown
//!    with one sentence, unless a deep answer is asked for.
//!
//! The constants were chosen on a brain of twenty units with 49 judged questions, 347 questions about other subjects and
//! 380 questions of the retrieval sets. `stress bench precision` measures that brain and two that were written before and
//! left out; only the floor was raised once more (from .40 to .43, and .010 to .013 for a word) after a look at how many
//! unrelated questions the second brain answered.

use std::collections::HashSet;

use index::{Reader, UnitRecord};

use crate::analysis::{Analysis, analyse};
use crate::error::Error;
use crate::scored::{Features, Scored};

/// The floor for the evidence in a brain of average size. The best of many passages is high by chance, so it rises with
/// their number by [`FLOOR_RISE`] for each factor e; and the best of a few is low, so it falls by [`FLOOR_FEW`] divided by
/// their number.
const FLOOR: f64 = 0.43;
const FLOOR_WORDS_ONLY: f64 = 0.40;
const FLOOR_RISE: f64 = 0.02;
const FLOOR_FEW: f64 = 0.6;
const FEW_MIN: usize = 5;
/// A short question is close to something by chance more often than one that says what it is about.
const FLOOR_OF_WORD: f64 = 0.013;
const FLOOR_WORDS_MAX: usize = 10;
/// Passages this much below the floor are candidates for a model that decides the order, if there is an answer.
const FLOOR_SLACK: f64 = 0.08;

const PART_OF_BEST_SCORE: f64 = 0.6;
const PART_OF_BEST_EVIDENCE: f64 = 0.65;
const PART_OF_BEST_RELATED: f64 = 0.38;

/// From this cosine on a person would agree that the meaning is similar.
pub(crate) const MEANING_MIN: f64 = 0.35;
/// The least BM25 without a vector: more than one word that no other passage holds adds.
const BM25_MIN: f64 = 1.0;

/// A word is rare if so many passages hold it, or this part of them.
const RARE_MAX: u64 = 8;
const RARE_PART: f64 = 0.1;
/// Words of a request that do not say what it is about, besides stop words.
const REQUESTS: [&str; 35] = [
    "everything",
    "all",
    "rule",
    "rules",
    "decision",
    "decisions",
    "convention",
    "conventions",
    "lesson",
    "lessons",
    "notes",
    "learned",
    "take",
    "made",
    "make",
    "tell",
    "explain",
    "describe",
    "show",
    "find",
    "summary",
    "summarize",
    "information",
    "info",
    "details",
    "overview",
    "remember",
    "remind",
    "mean",
    "means",
    "say",
    "says",
    "use",
    "used",
    "using",
];

/// The words that say what a question is about.
pub(crate) struct Subject {
    words: HashSet<String>,
    /// Whether one of them is rare in the brain.
    is_rare: bool,
    /// Whether all of them are words of a request: they can name a title, but no topic.
    is_request: bool,
}

impl Subject {
    /// # Errors
    /// If the index cannot be read.
    pub(crate) fn find(snapshot: &dyn Reader, analysis: &Analysis) -> Result<Option<Self>, Error> {
        let words: HashSet<String> = analysis.terms.iter().map(|word| word.to_lowercase()).collect();
        if words.is_empty() {
            return Ok(None);
        }
        let is_of_request = |word: &String| REQUESTS.contains(&word.as_str());
        let is_request = words.iter().all(is_of_request);
        let words: HashSet<String> =
            words.into_iter().filter(|word| is_request || !is_of_request(word)).collect();
        let rare_max = RARE_MAX.max((snapshot.chunks_count() as f64 * RARE_PART) as u64);
        let mut is_rare = false;
        for word in &words {
            is_rare |= (1..=rare_max).contains(&snapshot.document_frequency(word)?);
        }
        Ok(Some(Self { words, is_rare, is_request }))
    }

    /// Whether the unit's title holds all of the words.
    pub(crate) fn is_in_title(&self, unit: &UnitRecord) -> bool {
        self.is_rare && self.is_in(&unit.title)
    }

    /// Whether the words are the unit's tags or its domain: the question asks for all of a topic.
    pub(crate) fn is_topic(&self, unit: &UnitRecord) -> bool {
        !self.is_request && self.is_in(&format!("{} {}", unit.tags.join(" "), unit.domain.as_str()))
    }

    /// Whether a text holds all of the words.
    fn is_in(&self, text: &str) -> bool {
        // Most texts do not, and to analyse one takes longer than to see that.
        let lower = text.to_lowercase();
        if !self.words.iter().all(|word| lower.contains(word)) {
            return false;
        }
        let text: HashSet<String> = analyse(text).terms.iter().map(|word| word.to_lowercase()).collect();
        self.words.iter().all(|word| text.contains(word))
    }
}

/// A score without trust: a unit that is trusted less comes later, and is no less relevant.
fn without_trust(score: f64, candidate: &Scored) -> f64 {
    score / candidate.features.trust.max(f64::MIN_POSITIVE)
}

/// The floor of one question.
pub(crate) struct Floor {
    pub(crate) words_only: bool,
    /// How many passages were searched.
    pub(crate) passages: usize,
    /// The number of the question's words.
    pub(crate) words: usize,
}

impl Floor {
    /// Marks what is relevant and what is shown.
    pub(crate) fn mark(&self, scored: &mut [Scored]) {
        let score = |candidate: &Scored| without_trust(candidate.score, candidate);
        let absolute = self.absolute();
        let evidence = |candidate: &Scored| self.evidence(&candidate.features);
        let best_evidence = scored.iter().map(evidence).fold(f64::MIN_POSITIVE, f64::max);
        let least = |candidate: &Scored| match candidate.features.titled || candidate.features.of_topic {
            true => f64::NEG_INFINITY,
            false if best_evidence < absolute => f64::INFINITY,
            false => absolute,
        };
        for candidate in scored.iter_mut() {
            candidate.relevant = evidence(candidate) >= least(candidate) - FLOOR_SLACK;
        }
        let relevant = scored.iter().filter(|candidate| candidate.relevant);
        let best_score = relevant.clone().map(score).fold(f64::MIN_POSITIVE, f64::max);
        let best_evidence = relevant.map(evidence).fold(f64::MIN_POSITIVE, f64::max);
        for candidate in scored {
            let parts = (score(candidate) / best_score, evidence(candidate) / best_evidence);
            // What is best by one of the two is shown, so that there is an answer and its first unit is the first.
            let close = parts.0 >= PART_OF_BEST_SCORE && parts.1 >= PART_OF_BEST_EVIDENCE;
            let is_best = parts.0 >= 1.0 || parts.1 >= 1.0;
            candidate.strong =
                evidence(candidate) >= least(candidate) && (close || is_best || candidate.features.of_topic);
            candidate.part_of_best = parts;
        }
    }

    /// Marks what is shown of memories, beside the units: as well as those that are shown, and never in their place.
    pub(crate) fn mark_memories(&self, memories: &mut [Scored], units: &[Scored]) {
        let absolute = self.absolute();
        let evidence = |candidate: &Scored| self.evidence(&candidate.features);
        // What was learned changes no more than the order.
        let score = |candidate: &Scored| without_trust(candidate.base_score, candidate);
        let shown = || units.iter().filter(|candidate| candidate.strong).chain(memories.iter());
        let best_score = shown().map(score).fold(f64::MIN_POSITIVE, f64::max);
        let best_evidence = shown().map(evidence).fold(f64::MIN_POSITIVE, f64::max);
        for candidate in memories.iter_mut() {
            let parts = (score(candidate) / best_score, evidence(candidate) / best_evidence);
            candidate.strong = evidence(candidate) >= absolute
                && parts.0 >= PART_OF_BEST_SCORE
                && parts.1 >= PART_OF_BEST_EVIDENCE;
            candidate.relevant = candidate.strong;
            candidate.part_of_best = parts;
        }
    }

    /// The least evidence of an answer.
    fn absolute(&self) -> f64 {
        if self.words_only {
            return self.absolute_by_words();
        }
        let rise = FLOOR_RISE * (self.passages.max(1) as f64).ln();
        let few = FLOOR_FEW / self.passages.max(FEW_MIN) as f64;
        FLOOR + rise - few - FLOOR_OF_WORD * self.words.min(FLOOR_WORDS_MAX) as f64
    }

    fn absolute_by_words(&self) -> f64 {
        FLOOR_WORDS_ONLY + FLOOR_RISE * (self.passages.max(1) as f64).ln()
    }

    /// How sure it is that a passage bears on the question. Good paraphrases have a cosine from .3, and chance matches
    /// reach .35; words count in so far as they match, and more if they are rare (BM25) or must match literally. BM25
    /// alone sums over the words, so that a long question matches anything.
    fn evidence(&self, features: &Features) -> f64 {
        if self.words_only {
            features.words
        } else if features.is_unread {
            // As far above the floor as by words alone.
            features.words - self.absolute_by_words() + self.absolute()
        } else {
            features.cosine + features.words * (0.12 + 0.2 * features.bm25.min(1.0)) + 0.12 * features.exact
        }
    }

    /// Whether relations of the passage's unit are followed.
    pub(crate) fn leads_on(&self, candidate: &Scored) -> bool {
        let is_close = if self.words_only || candidate.features.is_unread {
            candidate.features.bm25 >= BM25_MIN
        } else {
            candidate.features.cosine >= MEANING_MIN
        };
        candidate.strong && is_close
    }

    /// Whether a related passage bears on the question at all.
    pub(crate) fn admits_related(&self, candidate: &Scored) -> bool {
        candidate.part_of_best.1 >= PART_OF_BEST_RELATED
    }
}
