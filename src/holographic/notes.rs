//! Search among notes by their text and by vectors of their most telling tokens.

use crate::vector::{Bundle, Phases, softmax, token_seed};
use crate::words::{note_words, unique};

/// The dimension of a note's vector unless another is asked for.
///
/// Of 100 questions on 200 notes 2,048 dimensions find as many notes as 16,384 do (89 among the
/// first five) and agree on the first for 98 (`stress/holographic/order.rs`), in an eighth of the memory.
pub const NOTE_DIMENSION: usize = 2_048;

/// The most tokens from which a note's vector is made.
pub const BASIS_TOKENS_MAX: usize = 20;

const TITLE_TOKENS_MAX: usize = 4;
const CONTENT_TOKENS_MAX: usize = 6;
const TAG_TOKENS_MAX: usize = 6;
const LINK_TOKENS_MAX: usize = 4;
const QUERY_TOKENS_MAX: usize = 10;

/// The most words of a query that are looked for in the text of notes.
const QUERY_WORDS_MAX: usize = 256;

const VECTOR_WEIGHT: f64 = 0.42;
const TEXT_WEIGHT: f64 = 0.48;
const TEXT_SCORE_MAX: f64 = 1.5;
const VERBATIM_SCORE: f64 = 0.75;
const DURABLE_BOOST: f64 = 0.05;
const PERSON_BOOST: f64 = 0.03;
const CONFIDENCE_BOOST: f64 = 0.05;
const TEMPERATURE: f64 = 0.35;

/// The vector that all words of titles, contents, tags and queries are bound to.
const WORD_ROLE: &str = "role:word";

/// What the index is told of a note. Text that does not apply stays empty.
#[derive(Clone, Debug, Default)]
pub struct NoteText {
    /// Names the note among all others.
    pub id: String,
    /// The title, one line.
    pub title: String,
    /// The content.
    pub content: String,
    /// Tags, in lower case and with `-` for spaces.
    pub tags: Vec<String>,
    /// The ids of the notes that this one links to.
    pub links: Vec<String>,
    /// `note`, or `fact` for a fact that is mirrored as a note.
    pub kind: String,
    /// Whom or what the note is about, such as `user:primary`.
    pub subject: String,
    /// Where the note applies, such as `project`.
    pub scope: String,
    /// The type, such as `preference`.
    pub note_type: String,
    /// Where the note is from, such as `explicit_user`.
    pub source: String,
    /// Whether the note is meant to last: .05 on its score.
    pub durable: bool,
    /// Whether the note is about the user, or the assistant itself: .03 on its score.
    pub about_person: bool,
    /// How sure the note is, in 0..=1: up to .05 on its score.
    pub confidence: f64,
}

impl NoteText {
    /// The tokens from which the note's vector is made, each `field:token`, at most
    /// [`BASIS_TOKENS_MAX`] and without doubles: the metadata, the id, then up to 4 words of the title,
    /// 6 of the content, 6 tags and 4 links.
    #[must_use]
    pub fn basis(&self) -> Vec<String> {
        let stability = if self.durable { "durable" } else { "temporary" };
        let metadata = [
            ("kind", &*self.kind),
            ("subject", &self.subject),
            ("scope", &self.scope),
            ("type", &self.note_type),
            ("source", &self.source),
            ("stability", stability),
            ("note", &self.id),
        ];
        let metadata = metadata.into_iter().filter(|(_, value)| !value.is_empty());
        let field = |name: &'static str, tokens: Vec<String>, most: usize| {
            tokens.into_iter().take(most).map(move |token| format!("{name}:{token}"))
        };
        let tokens = metadata
            .map(|(name, value)| format!("{name}:{value}"))
            .chain(field("title", note_words(&self.title), TITLE_TOKENS_MAX))
            .chain(field("content", note_words(&self.content), CONTENT_TOKENS_MAX))
            .chain(field("tag", self.tags.clone(), TAG_TOKENS_MAX))
            .chain(field("link", self.links.clone(), LINK_TOKENS_MAX));
        let mut basis = unique(tokens);
        basis.truncate(BASIS_TOKENS_MAX);
        basis
    }

    fn boost(&self) -> f64 {
        let confidence = if self.confidence.is_nan() { 0.0 } else { self.confidence.clamp(0.0, 1.0) };
        f64::from(u8::from(self.durable)) * DURABLE_BOOST
            + f64::from(u8::from(self.about_person)) * PERSON_BOOST
            + confidence * CONFIDENCE_BOOST
    }

    fn searched_text(&self) -> String {
        let tags = self.tags.join(" ");
        let parts = [&*self.title, &self.content, &tags, &self.subject, &self.scope, &self.note_type];
        parts.join("\n").to_lowercase()
    }
}

/// A note that [`NoteIndex::search`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteHit<'a> {
    /// The note's id.
    pub id: &'a str,
    /// The share of this note in a softmax over all notes searched, at temperature 0.35.
    pub probability: f64,
    /// .42 × `vector_score` + .48 × `text_score`/1.5 + the boost by metadata (at most .13).
    pub score: f64,
    /// (cosine + 1)/2 of the vectors of query and note, in 0..=1.
    pub vector_score: f64,
    /// .75 if the query is in the note word for word, plus the share of the query's words that are in
    /// the note; at most 1.5 of it counts.
    pub text_score: f64,
}

/// Notes prepared for search, in memory only.
///
/// A note's vector is the superposition of its basis tokens, each bound to the role of its field. The
/// words of title, content and tags have one role, which is also that of the query's words, so that
/// the cosine of a query of m words and a note of n tokens is about (words in common)/√(m·n).
///
/// A note's vector is kept as one byte for each real and imaginary part: 4 KiB at 2,048 dimensions.
#[derive(Clone, Debug)]
pub struct NoteIndex {
    dimension: usize,
    /// The least recently inserted first.
    notes: Vec<PreparedNote>,
}

#[derive(Clone, Debug)]
struct PreparedNote {
    id: String,
    text: String,
    /// Sorted seeds of the words of `text`.
    words: Vec<u64>,
    vector: ByteVector,
    boost: f64,
}

impl NoteIndex {
    /// An empty index with vectors of [`NOTE_DIMENSION`].
    #[must_use]
    pub fn new() -> NoteIndex {
        NoteIndex::with_dimension(NOTE_DIMENSION)
    }

    /// An empty index with vectors of another dimension.
    #[must_use]
    pub fn with_dimension(dimension: usize) -> NoteIndex {
        NoteIndex { dimension, notes: Vec::new() }
    }

    /// Adds a note, or replaces the one of the same id.
    pub fn insert(&mut self, note: &NoteText) {
        self.remove(&note.id);
        let text = note.searched_text();
        let mut words: Vec<u64> = note_words(&text).iter().map(|word| token_seed(word)).collect();
        words.sort_unstable();
        words.dedup();
        let vector = ByteVector::new(&superpose(&note.basis(), self.dimension));
        self.notes.push(PreparedNote { id: note.id.clone(), text, words, vector, boost: note.boost() });
    }

    /// Removes a note; whether it was there.
    pub fn remove(&mut self, id: &str) -> bool {
        let before = self.notes.len();
        self.notes.retain(|note| note.id != id);
        self.notes.len() < before
    }

    /// How many notes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether there are no notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_note = |note: &PreparedNote| {
            note.id.len() + note.text.len() + note.words.len() * size_of::<u64>() + note.vector.parts.len()
        };
        self.notes.iter().map(|note| size_of::<PreparedNote>() + of_note(note)).sum()
    }

    /// The `limit` notes that answer `query` best, the best first; of equal ones the least recently
    /// inserted first.
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<NoteHit<'_>> {
        self.search_where(query, limit, |_| true)
    }

    /// [`NoteIndex::search`] among the notes whose id `keep` lets pass.
    #[must_use]
    pub fn search_where(&self, query: &str, limit: usize, keep: impl Fn(&str) -> bool) -> Vec<NoteHit<'_>> {
        let query = PreparedQuery::new(query, self.dimension);
        let kept = self.notes.iter().filter(|note| keep(&note.id));
        let mut hits: Vec<NoteHit<'_>> = kept.map(|note| query.score(note)).collect();
        hits.sort_by(|a, b| b.score.total_cmp(&a.score));
        let scores: Vec<f64> = hits.iter().map(|hit| hit.score).collect();
        let probabilities = softmax(&scores, TEMPERATURE);
        hits.truncate(limit);
        hits.iter_mut().zip(probabilities).for_each(|(hit, probability)| hit.probability = probability);
        hits
    }
}

impl Default for NoteIndex {
    fn default() -> NoteIndex {
        NoteIndex::new()
    }
}

struct PreparedQuery {
    text: String,
    words: Vec<u64>,
    vector: ByteVector,
}

impl PreparedQuery {
    fn new(query: &str, dimension: usize) -> PreparedQuery {
        let text = query.trim().to_lowercase();
        let words = note_words(&text);
        let tokens = unique(words.iter().take(QUERY_TOKENS_MAX));
        let basis: Vec<String> = tokens.iter().map(|token| format!("query:{token}")).collect();
        let words = unique(words.iter().map(|word| token_seed(word)).take(QUERY_WORDS_MAX));
        PreparedQuery { text, words, vector: ByteVector::new(&superpose(&basis, dimension)) }
    }

    fn score<'a>(&self, note: &'a PreparedNote) -> NoteHit<'a> {
        let vector_score = f64::midpoint(self.vector.cosine(&note.vector), 1.0);
        let text_score = self.text_score(note);
        let score = VECTOR_WEIGHT * vector_score
            + TEXT_WEIGHT * text_score.min(TEXT_SCORE_MAX) / TEXT_SCORE_MAX
            + note.boost;
        NoteHit { id: &note.id, probability: 0.0, score, vector_score, text_score }
    }

    fn text_score(&self, note: &PreparedNote) -> f64 {
        if self.text.is_empty() {
            return 0.0;
        }
        let verbatim = if note.text.contains(&self.text) { VERBATIM_SCORE } else { 0.0 };
        let shared = self.words.iter().filter(|word| note.words.binary_search(word).is_ok()).count();
        verbatim + shared as f64 / self.words.len().max(1) as f64
    }
}

/// The superposition of tokens `field:token`, each bound to the role of its field.
fn superpose(basis: &[String], dimension: usize) -> Bundle {
    let mut bundle = Bundle::new(dimension);
    for token in basis {
        let (field, token) = token.split_once(':').unwrap_or(("", token));
        let role = match field {
            "title" | "content" | "tag" | "query" => WORD_ROLE.to_owned(),
            other => format!("role:{other}"),
        };
        bundle.add(&Phases::from_token(&role, dimension).bind(&Phases::from_token(token, dimension)));
    }
    bundle
}

/// A superposition whose parts are rounded to bytes, 4 standard deviations on either side of 0.
#[derive(Clone, Debug)]
struct ByteVector {
    parts: Box<[i8]>,
    norm: f64,
}

impl ByteVector {
    fn new(bundle: &Bundle) -> ByteVector {
        let deviation = bundle.norm() / (2.0 * bundle.dimension().max(1) as f64).sqrt();
        let scale = if deviation > 0.0 { 127.0 / (4.0 * deviation) } else { 0.0 };
        // `as` keeps within the bounds of a byte.
        let parts: Box<[i8]> = bundle.parts().map(|part| (f64::from(part) * scale).round() as i8).collect();
        let squares: i64 = parts.iter().map(|&part| i64::from(part) * i64::from(part)).sum();
        ByteVector { parts, norm: (squares as f64).sqrt() }
    }

    /// 0 where a vector is empty.
    fn cosine(&self, other: &ByteVector) -> f64 {
        let products = self.parts.iter().zip(&other.parts).map(|(&a, &b)| i32::from(a) * i32::from(b));
        let product: i32 = products.sum();
        let norms = self.norm * other.norm;
        if norms == 0.0 { 0.0 } else { f64::from(product) / norms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(id: &str, title: &str, content: &str, tags: &[&str]) -> NoteText {
        NoteText {
            id: id.into(),
            title: title.into(),
            content: content.into(),
            tags: tags.iter().map(|&tag| tag.into()).collect(),
            kind: "note".into(),
            ..NoteText::default()
        }
    }

    fn index() -> NoteIndex {
        let mut index = NoteIndex::new();
        index.insert(&note("a", "Auth middleware", "Authentication checks the header.", &["auth", "files"]));
        index.insert(&note("b", "Token format", "Tokens are signed with RS256.", &["auth", "jwt"]));
        index.insert(&note("c", "Queue retries", "A worker waits before the next try.", &["queue"]));
        index
    }

    #[test]
    fn title_finds_its_note() {
        let index = index();
        let hits = index.search("queue retries", 5);
        assert_eq!(hits[0].id, "c");
        assert!((hits[0].text_score - 1.75).abs() < 1e-9);
    }

    #[test]
    fn probabilities_fall_and_sum_to_1() {
        let index = index();
        let hits = index.search("token", 5);
        assert_eq!(hits.len(), 3);
        assert!((hits.iter().map(|hit| hit.probability).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(hits.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    }

    #[test]
    fn score_is_the_stated_sum_and_probability_its_softmax() {
        let mut index = index();
        index.insert(&NoteText { durable: true, ..note("d", "Auth", "Auth checks.", &[]) });
        let hits = index.search("auth checks", 5);
        assert_eq!(hits[0].id, "d");
        assert!(hits[0].text_score > 1.5);
        for hit in &hits {
            let boost = if hit.id == "d" { 0.05 } else { 0.0 };
            let expected = 0.42 * hit.vector_score + 0.48 * hit.text_score.min(1.5) / 1.5 + boost;
            assert!((hit.score - expected).abs() < 1e-12);
            let ratio = ((hit.score - hits[0].score) / 0.35).exp();
            assert!((hit.probability / hits[0].probability - ratio).abs() < 1e-12);
        }
    }

    #[test]
    fn limit_and_filter_hold() {
        let index = index();
        assert_eq!(index.search("auth", 1).len(), 1);
        let kept = index.search_where("auth", 5, |id| id != "a");
        assert!(kept.iter().all(|hit| hit.id != "a"));
        assert!((kept.iter().map(|hit| hit.probability).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn cosine_counts_the_words_in_common() {
        let mut index = NoteIndex::with_dimension(16_384);
        index.insert(&note("a", "alpha beta gamma", "", &[]));
        // Tokens: kind, stability, id and the three words of the title.
        let hits = index.search("beta other", 1);
        let expected = 1.0 / (2.0f64 * 6.0).sqrt();
        assert!((hits[0].vector_score * 2.0 - 1.0 - expected).abs() < 0.03);
    }

    #[test]
    fn word_resembles_itself_in_title_content_and_tag() {
        let mut index = NoteIndex::with_dimension(4_096);
        index.insert(&note("title", "walnut", "", &[]));
        index.insert(&note("content", "", "walnut", &[]));
        index.insert(&note("tag", "", "", &["walnut"]));
        index.insert(&note("none", "granite", "", &[]));
        for hit in index.search("walnut", 4) {
            assert_eq!(hit.vector_score > 0.7, hit.id != "none", "{hit:?}");
        }
    }

    #[test]
    fn metadata_adds_at_most_13_hundredths() {
        let best = NoteText { durable: true, about_person: true, confidence: 7.0, ..NoteText::default() };
        assert!((best.boost() - 0.13).abs() < 1e-12);
        assert_eq!(NoteText { confidence: f64::NAN, ..NoteText::default() }.boost(), 0.0);
    }

    #[test]
    fn basis_has_at_most_20_tokens_and_no_doubles() {
        let words = "alpha beta gamma delta epsilon zeta eta theta iota";
        let mut note = note("id", words, words, &["t1", "t2", "t3", "t3", "t4", "t5", "t6", "t7"]);
        note.links = (0..9).map(|i| format!("link{i}")).collect();
        let basis = note.basis();
        assert_eq!(basis.len(), BASIS_TOKENS_MAX);
        assert_eq!(basis[..3], ["kind:note", "stability:temporary", "note:id"]);
        assert_eq!(basis[3..7], ["title:alpha", "title:beta", "title:gamma", "title:delta"]);
        assert_eq!(unique(basis.iter()).len(), basis.len());
    }

    #[test]
    fn replaced_note_is_found_by_its_new_text_only() {
        let mut index = index();
        index.insert(&note("c", "Harbour lights", "Lamps.", &[]));
        assert_eq!(index.len(), 3);
        let hits = index.search("retries", 3);
        assert!(hits.iter().all(|hit| hit.text_score == 0.0));
        assert!(index.remove("c") && !index.remove("c"));
    }

    #[test]
    fn query_without_words_finds_by_metadata_alone() {
        let index = index();
        assert_eq!(index.search("", 5).len(), 3);
        assert_eq!(index.search("?", 5)[0].id, "a");
        assert!(NoteIndex::new().search("auth", 5).is_empty());
    }

    #[test]
    fn bytes_keep_the_cosine_within_a_thousandth() {
        let tokens = |from: usize| (from..from + 20).map(|i| format!("title:w{i}")).collect::<Vec<_>>();
        let (one, other) = (superpose(&tokens(0), 4_096), superpose(&tokens(10), 4_096));
        let exact = one.parts().zip(other.parts()).map(|(a, b)| f64::from(a) * f64::from(b)).sum::<f64>()
            / (one.norm() * other.norm());
        let rounded = ByteVector::new(&one).cosine(&ByteVector::new(&other));
        assert!((exact - rounded).abs() < 0.001, "{exact} {rounded}");
    }
}
