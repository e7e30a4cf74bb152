//! How well a passage matches the words of a question: by the similarity of wordpieces, and by words that stand close
//! together.

use ahash::AHashMap;
use embed::Tokenizer;
use index::Reader;
use rayon::prelude::*;

use crate::analysis::Analysis;
use crate::error::Error;

/// The limit of wordpieces of the question: one bit each.
const QUERY_PIECES_MAX: usize = 64;
/// From this cosine on a wordpiece of a passage counts as one of the question: another form of the word, or a synonym.
/// Unrelated wordpieces have .15 to .25 in the built-in model's table.
const SAME_COSINE: f32 = 0.6;
/// The weight of a stop word's token. Lower than a word that half of the passages contain (.7): with .7, passages that share
/// only the question's stop words rank too high.
const STOP_WORD_WEIGHT: f64 = 0.2;
/// The weight of a match in a neighbouring passage, where a match in the passage itself has 1.
const BESIDE_PART: f32 = 0.8;
/// Two words of a question stand together in a passage if they are at most this many words apart.
const NEAR_WORDS: usize = 8;
/// In how many groups passages are compared with the question at once: more would compare more words twice.
const GROUPS: usize = 2;

/// The wordpieces of a question with their weights.
pub(crate) struct QueryTerms {
    /// The question's wordpieces, each with the rarity of its word.
    pieces: Vec<(u32, f64)>,
    /// Pairs of adjoining words in the question: the last piece of the one and the first of the other.
    pairs: Vec<(usize, usize)>,
    /// The rarity of the rarest word: 0 for one that every passage holds, 1 for one that a single passage or none
    /// holds.
    pub(crate) rarest: f64,
    /// The largest contribution to BM25 of a word that a single passage holds.
    pub(crate) bm25_unit: f64,
}

/// A word of the question.
pub(crate) struct Term {
    pub(crate) text: String,
    /// How many passages hold it.
    pub(crate) holding: u64,
}

impl Term {
    pub(crate) fn all(snapshot: &dyn Reader, analysis: &Analysis) -> Result<Vec<Self>, Error> {
        snapshot.prefetch_frequencies(&analysis.terms)?;
        let terms = analysis.terms.iter();
        terms
            .map(|text| Ok(Self { text: text.clone(), holding: snapshot.document_frequency(text)? }))
            .collect()
    }
}

/// How well one passage matches a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    /// The mean, weighted by rarity, of each wordpiece's best cosine with any wordpiece of the passage.
    pub(crate) words: f64,
    /// The part of the question's word pairs that stand together in the passage, weighted by rarity.
    pub(crate) near: f64,
    /// What the neighbouring passages add to `words`.
    pub(crate) beside: f64,
}

/// The similarity of some words with the wordpieces of the question.
struct WordSimilarity {
    /// For each word the best cosine of its pieces with each piece of the question, `[words, query pieces]`.
    cosines: Vec<f32>,
    /// For each word the query pieces that it matches, one bit each.
    matched: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Word<'c> {
    /// `[query pieces]`.
    cosines: &'c [f32],
    matched: u64,
}

impl WordSimilarity {
    fn words(&self, query_pieces: usize) -> impl Iterator<Item = Word<'_>> {
        let words = self.cosines.chunks_exact(query_pieces).zip(&self.matched);
        words.map(|(cosines, &matched)| Word { cosines, matched })
    }
}

impl QueryTerms {
    /// The weight of a word is its inverse document frequency, `ln(1 + (N - n + ½)/(n + ½))` (Robertson and Zaragoza
    /// 2009, as in BM25). Each of its wordpieces has the same weight: a word of many pieces is a rare one.
    pub(crate) fn new(snapshot: &dyn Reader, terms: &[Term], tokenizer: &Tokenizer) -> Self {
        let chunks = snapshot.chunks_count() as f64;
        let rarity = |holding: f64| (1.0 + ((chunks - holding).max(0.0) + 0.5) / (holding + 0.5)).ln();
        let mut pieces: Vec<(u32, f64)> = Vec::new();
        let mut pairs = Vec::new();
        let mut before: Option<usize> = None;
        let mut rarest: f64 = 0.0;
        for term in terms {
            let rarity = rarity(term.holding as f64);
            let first = pieces.len();
            for &piece in tokenizer.token_ids(&term.text).iter() {
                if pieces.len() < QUERY_PIECES_MAX && pieces.iter().all(|(other, _)| *other != piece) {
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

    /// The weight of each of these tokens of the question: the rarity of its word. A stop word has
    /// [`STOP_WORD_WEIGHT`].
    pub(crate) fn token_weights(&self, ids: &[u32]) -> Vec<f32> {
        let of_piece =
            |id: &u32| self.pieces.iter().find(|(piece, _)| piece == id).map(|(_, rarity)| *rarity);
        ids.iter().map(|id| of_piece(id).unwrap_or(STOP_WORD_WEIGHT) as f32).collect()
    }

    /// How well each text matches; `beside` gives for each text the numbers of its neighbours.
    pub(crate) fn matches(
        &self,
        texts: &[String],
        beside: &[Vec<usize>],
        tokenizer: &Tokenizer,
    ) -> Vec<Match> {
        let total: f64 = self.pieces.iter().map(|(_, rarity)| rarity).sum();
        if total <= 0.0 {
            return vec![Match::default(); texts.len()];
        }
        let query_pieces = self.pieces.len();
        // Passages share most of their words, so each group compares a word with the question once.
        let groups: Vec<&[String]> = texts.chunks(texts.len().div_ceil(GROUPS).max(1)).collect();
        let compared: Vec<_> = groups.par_iter().map(|texts| self.compare_texts(texts, tokenizer)).collect();
        let (bests, nears): (Vec<Vec<f32>>, Vec<Vec<f64>>) = compared.into_iter().unzip();
        let (bests, nears) = (bests.concat(), nears.concat());
        let best = |number: usize| &bests[number * query_pieces..][..query_pieces];
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

    /// The best cosine of each text with each query piece, `[texts, query pieces]`, and the part of the question's word pairs
    /// that stand together in each.
    fn compare_texts(&self, texts: &[String], tokenizer: &Tokenizer) -> (Vec<f32>, Vec<f64>) {
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
        let query_pieces = self.pieces.len();
        let compared = self.compare(&distinct, tokenizer);
        let words: Vec<Word<'_>> = compared.words(query_pieces).collect();
        let pairs_total: f64 = self.pairs.iter().map(|pair| self.pair_weight(pair)).sum();
        let mut seen = vec![usize::MAX; words.len()];
        let mut bests = vec![0.0_f32; texts.len() * query_pieces];
        let mut last = vec![usize::MAX; query_pieces];
        let mut together = vec![false; self.pairs.len()];
        let mut nears = Vec::with_capacity(texts.len());
        for (number, (text, best)) in read.iter().zip(bests.chunks_exact_mut(query_pieces)).enumerate() {
            last.fill(usize::MAX);
            together.fill(false);
            for (place, &word) in text.iter().enumerate() {
                let Word { cosines, matched } = words[word as usize];
                if std::mem::replace(&mut seen[word as usize], number) != number {
                    best.iter_mut().zip(cosines).for_each(|(best, cosine)| *best = best.max(*cosine));
                }
                if matched == 0 {
                    continue;
                }
                (0..query_pieces).filter(|row| matched >> row & 1 == 1).for_each(|row| last[row] = place);
                for (pair, &(one, other)) in together.iter_mut().zip(&self.pairs) {
                    let here = matched >> one & 1 == 1 || matched >> other & 1 == 1;
                    if here && last[one] != usize::MAX && last[other] != usize::MAX {
                        let apart = last[one].abs_diff(last[other]);
                        *pair |= (1..=NEAR_WORDS).contains(&apart);
                    }
                }
            }
            let near = self.pairs.iter().zip(&together).filter(|(_, together)| **together);
            nears.push(
                near.map(|(pair, _)| self.pair_weight(pair)).sum::<f64>()
                    / pairs_total.max(f64::MIN_POSITIVE),
            );
        }
        (bests, nears)
    }

    /// The similarity of these words with the question.
    fn compare(&self, words: &[&str], tokenizer: &Tokenizer) -> WordSimilarity {
        let (pieces, ends) = tokenizer.token_ids_of(words);
        let these: Vec<u32> = self.pieces.iter().map(|(piece, _)| *piece).collect();
        let by_row = tokenizer.cosines(&these, &pieces).unwrap_or_else(|| {
            let equal = |this: &u32, that: &u32| f32::from(u8::from(this == that));
            these.iter().flat_map(|this| pieces.iter().map(move |that| equal(this, that))).collect()
        });
        let query_pieces = these.len();
        let mut cosines = vec![0.0_f32; words.len() * query_pieces];
        let mut matched = vec![0_u64; words.len()];
        for (row, of_row) in by_row.chunks_exact(pieces.len().max(1)).enumerate() {
            let mut start = 0;
            for (word, &end) in ends.iter().enumerate() {
                let best = of_row[start..end].iter().copied().fold(0.0, f32::max);
                cosines[word * query_pieces + row] = best;
                matched[word] |= u64::from(best >= SAME_COSINE) << row;
                start = end;
            }
        }
        WordSimilarity { cosines, matched }
    }

    /// The weight of a pair.
    fn pair_weight(&self, &(one, other): &(usize, usize)) -> f64 {
        self.pieces[one].1 + self.pieces[other].1
    }
}
