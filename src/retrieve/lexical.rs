//! How well a passage matches the question's words: softly, by wordpieces, and with an eye to which stand
//! together.

use ahash::AHashMap;
use index::Snapshot;
use rayon::prelude::*;

use crate::{Analysis, Error, TokenModel};

/// Wordpieces of the question that are looked at: one bit each.
const ASKED_MAX: usize = 64;
/// A wordpiece of a passage stands for one of the question from this cosine on: another form of the word, or
/// a word for the same. Unrelated ones have .15 to .25 in the built-in model's table.
const SAME_COSINE: f32 = 0.6;
/// A word of the passage beside counts so much of one in the passage itself.
const BESIDE_PART: f32 = 0.8;
/// Two words of a question that stand this many words apart at most, stand together.
const NEAR_WORDS: usize = 8;

/// Words that a processor compares with the question at a time.
const WORDS_AT_ONCE: usize = 64;

/// What the question's words are worth.
pub(crate) struct QueryTerms {
    /// The question's wordpieces, each with the rarity of its word.
    pieces: Vec<(u32, f64)>,
    /// Pieces of two words that follow one another in the question.
    pairs: Vec<(usize, usize)>,
    /// How rare the rarest word is: 0 for one that is everywhere, 1 for one that a single passage holds, or
    /// none.
    pub(crate) rarest: f64,
    /// What a word that a single passage holds would give to BM25.
    pub(crate) bm25_unit: f64,
}

/// A word of the question.
pub(crate) struct Term {
    pub(crate) text: String,
    /// How many passages hold it.
    pub(crate) holding: u64,
}

impl Term {
    pub(crate) fn all(pinned: &Snapshot, analysis: &Analysis) -> Result<Vec<Self>, Error> {
        let terms = analysis.terms.iter();
        terms.map(|text| Ok(Self { text: text.clone(), holding: pinned.document_frequency(text)? })).collect()
    }
}

/// How one passage matches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    /// The mean, weighted by rarity, of each wordpiece's best cosine with any wordpiece of the passage.
    pub(crate) words: f64,
    /// The part, weighted alike, of the question's pairs of words that stand together in the passage.
    pub(crate) near: f64,
    /// What the passages beside it add to `words`.
    pub(crate) beside: f64,
}

/// Some words beside the question's pieces.
struct Compared {
    /// The best of each word's own pieces, `[words, asked]`.
    cosines: Vec<f32>,
    /// Which of the question's pieces the word stands for, a bit each.
    stands: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Word<'c> {
    /// `[asked]`.
    cosines: &'c [f32],
    stands: u64,
}

impl Compared {
    fn words(&self, asked: usize) -> impl Iterator<Item = Word<'_>> {
        let words = self.cosines.chunks_exact(asked).zip(&self.stands);
        words.map(|(cosines, &stands)| Word { cosines, stands })
    }
}

impl QueryTerms {
    /// A word counts by its inverse document frequency, `ln(1 + (N - n + ½)/(n + ½))` (Robertson and
    /// Zaragoza 2009, as in BM25), and each of its wordpieces as much: a word in many pieces is a rare one.
    pub(crate) fn new(pinned: &Snapshot, terms: &[Term], lexicon: &dyn TokenModel) -> Self {
        let chunks = pinned.chunks_count() as f64;
        let rarity = |holding: f64| (1.0 + ((chunks - holding).max(0.0) + 0.5) / (holding + 0.5)).ln();
        let mut pieces: Vec<(u32, f64)> = Vec::new();
        let mut pairs = Vec::new();
        let mut before: Option<usize> = None;
        let mut rarest: f64 = 0.0;
        for term in terms {
            let rarity = rarity(term.holding as f64);
            let first = pieces.len();
            for &piece in lexicon.pieces(&term.text).iter() {
                if pieces.len() < ASKED_MAX && pieces.iter().all(|(other, _)| *other != piece) {
                    pieces.push((piece, rarity));
                }
            }
            if pieces.len() > first {
                rarest = rarest.max(rarity);
                pairs.extend(before.map(|before| (before, first)));
                before = Some(pieces.len() - 1);
            }
        }
        let of_one = rarity(1.0).max(f64::MIN_POSITIVE);
        // BM25 multiplies the rarity by k1 + 1 = 2.2 at most.
        Self { pieces, pairs, rarest: (rarest / of_one).min(1.0), bm25_unit: 2.2 * of_one }
    }

    /// How each text matches; `beside` gives for each the numbers of those that stand beside it.
    pub(crate) fn matches(
        &self,
        texts: &[String],
        beside: &[Vec<usize>],
        lexicon: &dyn TokenModel,
    ) -> Vec<Match> {
        let total: f64 = self.pieces.iter().map(|(_, rarity)| rarity).sum();
        if total <= 0.0 {
            return vec![Match::default(); texts.len()];
        }
        // The passages share most of their words, so each is compared with the question once.
        let mut numbers: AHashMap<&str, u32> = AHashMap::new();
        let mut distinct: Vec<&str> = Vec::new();
        let mut read: Vec<Vec<u32>> = Vec::with_capacity(texts.len());
        for text in texts {
            let of_text = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            let number = |word| {
                *numbers.entry(word).or_insert_with(|| {
                    distinct.push(word);
                    distinct.len() as u32 - 1
                })
            };
            read.push(of_text.map(number).collect());
        }
        let asked = self.pieces.len();
        let blocks: Vec<&[&str]> = distinct.chunks(WORDS_AT_ONCE).collect();
        let compared: Vec<_> = blocks.par_iter().map(|words| self.compare(words, lexicon)).collect();
        let words: Vec<Word<'_>> = compared.iter().flat_map(|block| block.words(asked)).collect();
        let pairs_total: f64 = self.pairs.iter().map(|pair| self.worth(pair)).sum();
        let mut seen = vec![usize::MAX; words.len()];
        // Of each text, `[texts, asked]`.
        let mut bests = vec![0.0_f32; texts.len() * asked];
        let mut last = vec![usize::MAX; asked];
        let mut together = vec![false; self.pairs.len()];
        let mut nears = Vec::with_capacity(texts.len());
        for (number, (text, best)) in read.iter().zip(bests.chunks_exact_mut(asked)).enumerate() {
            last.fill(usize::MAX);
            together.fill(false);
            for (place, &word) in text.iter().enumerate() {
                let Word { cosines, stands } = words[word as usize];
                if std::mem::replace(&mut seen[word as usize], number) != number {
                    best.iter_mut().zip(cosines).for_each(|(best, cosine)| *best = best.max(*cosine));
                }
                if stands == 0 {
                    continue;
                }
                (0..asked).filter(|row| stands >> row & 1 == 1).for_each(|row| last[row] = place);
                for (pair, &(one, other)) in together.iter_mut().zip(&self.pairs) {
                    let here = stands >> one & 1 == 1 || stands >> other & 1 == 1;
                    if here && last[one] != usize::MAX && last[other] != usize::MAX {
                        let apart = last[one].abs_diff(last[other]);
                        *pair |= (1..=NEAR_WORDS).contains(&apart);
                    }
                }
            }
            let near = self.pairs.iter().zip(&together).filter(|(_, together)| **together);
            nears.push(
                near.map(|(pair, _)| self.worth(pair)).sum::<f64>() / pairs_total.max(f64::MIN_POSITIVE),
            );
        }
        let best = |number: usize| &bests[number * asked..][..asked];
        let mean = |cosine: &dyn Fn(usize) -> f32| -> f64 {
            let rarities = self.pieces.iter().enumerate();
            rarities.map(|(row, (_, rarity))| rarity * f64::from(cosine(row))).sum::<f64>() / total
        };
        let matched = nears.into_iter().enumerate().map(|(number, near)| {
            let (own, beside) = (best(number), &beside[number]);
            let words = mean(&|row| own[row]);
            let with = |row: usize| {
                beside.iter().map(|&other| BESIDE_PART * best(other)[row]).fold(own[row], f32::max)
            };
            Match { words, near, beside: if beside.is_empty() { 0.0 } else { mean(&with) - words } }
        });
        matched.collect()
    }

    /// Compares words with the question.
    fn compare(&self, words: &[&str], lexicon: &dyn TokenModel) -> Compared {
        let mut pieces: Vec<u32> = Vec::with_capacity(words.len() * 2);
        let mut ends = Vec::with_capacity(words.len());
        for word in words {
            pieces.extend(lexicon.pieces(word).iter());
            ends.push(pieces.len());
        }
        let these: Vec<u32> = self.pieces.iter().map(|(piece, _)| *piece).collect();
        let by_row = lexicon.cosines(&these, &pieces).unwrap_or_else(|| {
            let equal = |this: &u32, that: &u32| f32::from(u8::from(this == that));
            these.iter().flat_map(|this| pieces.iter().map(move |that| equal(this, that))).collect()
        });
        let asked = these.len();
        let mut cosines = vec![0.0_f32; words.len() * asked];
        let mut stands = vec![0_u64; words.len()];
        for (row, of_row) in by_row.chunks_exact(pieces.len().max(1)).enumerate() {
            let mut start = 0;
            for (word, &end) in ends.iter().enumerate() {
                let best = of_row[start..end].iter().copied().fold(0.0, f32::max);
                cosines[word * asked + row] = best;
                stands[word] |= u64::from(best >= SAME_COSINE) << row;
                start = end;
            }
        }
        Compared { cosines, stands }
    }

    fn worth(&self, &(one, other): &(usize, usize)) -> f64 {
        self.pieces[one].1 + self.pieces[other].1
    }
}
