//! How well a passage matches the words of a question: by the similarity of wordpieces, and by words that stand close
//! together.
//!
//! Of most scripts but Latin the built-in vocabulary has hardly more than single letters, which any two texts share. Words
//! of which it has no more are compared as they are written.

use ahash::AHashMap;
use embed::Tokenizer;
use index::Reader;
use knowledge::text;
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
    pieces: Vec<(Piece, f64)>,
    /// Pairs of adjoining words in the question: the last piece of the one and the first of the other.
    pairs: Vec<(usize, usize)>,
    /// The rarity of the rarest word: 0 for one that every passage holds, 1 for one that a single passage or none
    /// holds.
    pub(crate) rarest: f64,
    /// The largest contribution to BM25 of a word that a single passage holds.
    pub(crate) bm25_unit: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    /// A token of the vocabulary.
    Token(u32),
    /// A word in lower case of which the vocabulary has no more than the letters.
    Word(String),
    /// The same of a script without spaces: a letter with those beside it, in pairs.
    Pairs(Vec<String>),
}

impl Piece {
    fn from_word(word: &str) -> Self {
        let letters: Vec<char> = word.to_lowercase().chars().collect();
        if !letters.iter().copied().all(text::is_unspaced) {
            return Self::Word(String::from_iter(letters));
        }
        Self::Pairs(letters.windows(letters.len().clamp(1, 2)).map(String::from_iter).collect())
    }

    /// How many wordpieces it is worth: as many as a word of another language in as many letters. Short ones are mostly
    /// words such as "why" and "not".
    fn size(&self) -> f64 {
        const LETTERS_OF_TOKEN: f64 = 4.0;
        match self {
            Self::Token(_) => 1.0,
            Self::Word(word) => word.chars().count() as f64 / LETTERS_OF_TOKEN,
            // Most words are of two such letters.
            Self::Pairs(_) => 0.5,
        }
    }

    /// Whether a word of a passage, in lower case, holds it; never for a token.
    fn is_in(&self, word: &str) -> bool {
        match self {
            Self::Token(_) => false,
            Self::Word(this) => is_form_of(this, word),
            Self::Pairs(pairs) => pairs.iter().any(|pair| word.contains(pair)),
        }
    }
}

/// Whether two words are the same or differ only in their endings (`pool`, `pools`, `pooling`).
pub(crate) fn is_form_of(this: &str, that: &str) -> bool {
    const STEM_CHARS_MIN: usize = 4;
    const ENDING_CHARS_MAX: usize = 3;
    let common = this.chars().zip(that.chars()).take_while(|(a, b)| a == b).count();
    let longest = this.chars().count().max(that.chars().count());
    common == longest || common >= STEM_CHARS_MIN && longest - common <= ENDING_CHARS_MAX
}

/// A word of the question; of a script without spaces a letter with those beside it.
pub(crate) struct Term {
    pub(crate) text: String,
    /// How many passages hold it.
    pub(crate) holding: u64,
}

impl Term {
    pub(crate) fn all(snapshot: &dyn Reader, analysis: &Analysis) -> Result<Vec<Self>, Error> {
        let texts: Vec<String> = analysis.terms.iter().flat_map(|term| split_unspaced(term)).collect();
        snapshot.prefetch_frequencies(&texts)?;
        let term = |text: String| Ok(Self { holding: snapshot.document_frequency(&text)?, text });
        texts.into_iter().map(term).collect()
    }
}

/// A word; of one with letters of a script without spaces each of them with those beside it, so that what a passage holds
/// of a sentence counts by its letters.
fn split_unspaced(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let runs = letters.chunk_by(|a, b| text::is_unspaced(*a) == text::is_unspaced(*b));
    let parts = runs.flat_map(|run| {
        let near = |at: usize| String::from_iter(&run[at.saturating_sub(1)..run.len().min(at + 2)]);
        let is_unspaced = text::is_unspaced(run[0]);
        let whole = (!is_unspaced).then(|| String::from_iter(run));
        whole.into_iter().chain((0..run.len()).filter(move |_| is_unspaced).map(near))
    });
    parts.collect()
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
        let mut pieces: Vec<(Piece, f64)> = Vec::new();
        let mut pairs = Vec::new();
        let mut before: Option<usize> = None;
        let mut rarest: f64 = 0.0;
        for term in terms {
            let tokens = tokenizer.token_ids(&term.text);
            let is_as_written = tokenizer.has_letters_only(&term.text, &tokens);
            // A word in no passage is as rare as one in a single one: most pairs of letters are parts of two words.
            let holding = if is_as_written { term.holding.max(1) } else { term.holding };
            let rarity = rarity(holding as f64);
            let first = pieces.len();
            let word = is_as_written.then(|| Piece::from_word(&term.text));
            let tokens = tokens.iter().filter(|_| !is_as_written).map(|&token| Piece::Token(token));
            for piece in word.into_iter().chain(tokens) {
                let weight = rarity * piece.size();
                match pieces.iter().position(|(other, _)| *other == piece) {
                    None if pieces.len() < QUERY_PIECES_MAX => pieces.push((piece, weight)),
                    // Each letter counts.
                    Some(at) if matches!(piece, Piece::Pairs(_)) => pieces[at].1 += weight,
                    _ => {}
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
        let is_token = |piece: &Piece, id: u32| matches!(piece, Piece::Token(token) if *token == id);
        let of_piece =
            |id: &u32| self.pieces.iter().find(|(piece, _)| is_token(piece, *id)).map(|(_, rarity)| *rarity);
        ids.iter().map(|id| of_piece(id).unwrap_or(STOP_WORD_WEIGHT) as f32).collect()
    }

    /// Whether it has words that are compared as they are written.
    pub(crate) fn has_other_scripts(&self) -> bool {
        self.pieces.iter().any(|(piece, _)| !matches!(piece, Piece::Token(_)))
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
        let token = |(piece, _): &(Piece, f64)| match piece {
            Piece::Token(token) => Some(*token),
            Piece::Word(_) | Piece::Pairs(_) => None,
        };
        let these: Vec<u32> = self.pieces.iter().filter_map(token).collect();
        let by_row = tokenizer.cosines(&these, &pieces).unwrap_or_else(|| {
            let equal = |this: &u32, that: &u32| f32::from(u8::from(this == that));
            these.iter().flat_map(|this| pieces.iter().map(move |that| equal(this, that))).collect()
        });
        let mut by_row = by_row.chunks_exact(pieces.len().max(1));
        let lower: Vec<String> = match these.len() == self.pieces.len() {
            true => Vec::new(),
            false => words.iter().map(|word| word.to_lowercase()).collect(),
        };
        let query_pieces = self.pieces.len();
        let mut cosines = vec![0.0_f32; words.len() * query_pieces];
        let mut matched = vec![0_u64; words.len()];
        for (row, (piece, _)) in self.pieces.iter().enumerate() {
            let mut set = |word: usize, best: f32| {
                cosines[word * query_pieces + row] = best;
                matched[word] |= u64::from(best >= SAME_COSINE) << row;
            };
            if !matches!(piece, Piece::Token(_)) {
                let held = lower.iter().enumerate().filter(|(_, word)| piece.is_in(word));
                held.for_each(|(word, _)| set(word, 1.0));
                continue;
            }
            let Some(of_row) = by_row.next() else { continue };
            let mut start = 0;
            for (word, &end) in ends.iter().enumerate() {
                set(word, of_row[start..end].iter().copied().fold(0.0, f32::max));
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

#[cfg(test)]
mod tests;
