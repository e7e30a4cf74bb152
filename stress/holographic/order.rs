//! The order of note search, beside that of the seed's program.

use holographic::{NoteIndex, NoteText};
use serde_json::Value;
use std::collections::HashMap;

use super::seed_vector::{self, SeedVectors};

const VECTOR_WEIGHT: f64 = 0.42;

/// Prints how far each way of scoring agrees with the seed's order, and how often it finds the note that a question was
/// made from. `data` is what `seed.mjs notes` wrote.
pub(crate) fn run(data: &Value) {
    let dimension = data["dimension"].as_u64().unwrap_or(512) as usize;
    let notes: Vec<NoteText> = list(&data["notes"]).iter().map(note_text).collect();
    let searches = list(&data["searches"]);
    println!("{} notes, {} questions, dimension {dimension}", notes.len(), searches.len());
    compare_bases(list(&data["notes"]), &notes);

    print_heading();
    let seeds_own: Vec<Ranking> = searches.iter().map(seed_ranking).collect();
    print_row("seed's program", &seeds_own, &seeds_own, searches);
    let mut vectors = SeedVectors::new(dimension);
    let spectra: HashMap<&str, Vec<(f64, f64)>> =
        notes.iter().map(|note| (&*note.id, vectors.superpose(&note.basis()))).collect();
    let compatible: Vec<Ranking> = searches
        .iter()
        .map(|search| {
            let question = vectors.superpose(&seed_query_basis(text_of(&search["text"])));
            rank(&notes, search, |id| (seed_vector::cosine(&question, &spectra[id]) + 1.0) / 2.0)
        })
        .collect();
    print_row("ours, seed's vectors", &compatible, &seeds_own, searches);
    print_largest_difference(&compatible, &seeds_own);
    let constant: Vec<Ranking> = searches.iter().map(|s| rank(&notes, s, |_| 0.5)).collect();
    print_row("ours, no vectors", &constant, &seeds_own, searches);
    let dimensions = [512, 1_024, 2_048, 4_096, 8_192, 16_384];
    let at_dimensions = dimensions.map(|dimension| {
        let index = index(&notes, dimension);
        searches.iter().map(|search| own_ranking(&index, search)).collect::<Vec<Ranking>>()
    });
    for (dimension, ours) in dimensions.iter().zip(&at_dimensions) {
        print_row(&format!("ours at {dimension}"), ours, &seeds_own, searches);
    }
    let counted: Vec<Ranking> = searches
        .iter()
        .map(|search| {
            let words = query_words(text_of(&search["text"]));
            rank(&notes, search, |id| counted_score(&words, &notes, id))
        })
        .collect();
    print_row("ours at infinity", &counted, &seeds_own, searches);

    println!("\nthe same, compared with ours at 16384:");
    for (dimension, ours) in dimensions.iter().zip(&at_dimensions) {
        print_row(&format!("ours at {dimension}"), ours, &at_dimensions[5], searches);
    }
}

/// Ids with scores, the best first.
type Ranking = Vec<(String, f64)>;

fn index(notes: &[NoteText], dimension: usize) -> NoteIndex {
    let mut index = NoteIndex::with_dimension(dimension);
    notes.iter().for_each(|note| index.insert(note));
    index
}

fn own_ranking(index: &NoteIndex, search: &Value) -> Ranking {
    let hits = index.search(text_of(&search["text"]), usize::MAX);
    hits.into_iter().map(|hit| (hit.id.to_owned(), hit.score)).collect()
}

/// Our ranking with another vector score in place of ours; equal notes stay in the order of `notes`.
fn rank(notes: &[NoteText], search: &Value, vector_score: impl Fn(&str) -> f64) -> Ranking {
    let index = index(notes, 64);
    let hits = index.search(text_of(&search["text"]), usize::MAX);
    let scores: HashMap<&str, f64> = hits
        .iter()
        .map(|hit| (hit.id, hit.score + VECTOR_WEIGHT * (vector_score(hit.id) - hit.vector_score)))
        .collect();
    let mut ranking: Ranking = notes.iter().map(|note| (note.id.clone(), scores[&*note.id])).collect();
    // Scores that differ by less than the rounding of a sum are equal.
    let rounded = |score: f64| (score * 1e12).round();
    ranking.sort_by(|a, b| rounded(b.1).total_cmp(&rounded(a.1)));
    ranking
}

fn seed_ranking(search: &Value) -> Ranking {
    list(&search["hits"]).iter().map(|hit| (text_of(&hit[0]).to_owned(), number(&hit[1]))).collect()
}

/// The vector score that an infinite dimension would give: the words in common, with their counts.
fn counted_score(words: &[String], notes: &[NoteText], id: &str) -> f64 {
    let Some(note) = notes.iter().find(|note| note.id == id) else { return 0.0 };
    let mut counts: HashMap<String, f64> = HashMap::new();
    for token in note.basis() {
        let (field, word) = token.split_once(':').unwrap_or(("", &token));
        let is_word = matches!(field, "title" | "content" | "tag");
        *counts.entry(if is_word { word.to_owned() } else { token.clone() }).or_default() += 1.0;
    }
    let product: f64 = words.iter().filter_map(|word| counts.get(word)).sum();
    let norm = counts.values().map(|count| count * count).sum::<f64>().sqrt();
    (product / (norm * (words.len().max(1) as f64).sqrt()) + 1.0) / 2.0
}

fn query_words(query: &str) -> Vec<String> {
    let basis = seed_query_basis(query);
    basis.iter().map(|token| token.trim_start_matches("query:").to_owned()).collect()
}

/// The basis of a query as the seed builds it. Our tokens are the seed's for text in ASCII, so they
/// come from a note with the query as its title, four words at a time.
fn seed_query_basis(query: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for word in query.split_whitespace() {
        let note = NoteText { title: word.to_owned(), ..NoteText::default() };
        let titles =
            note.basis().into_iter().filter_map(|token| token.strip_prefix("title:").map(str::to_owned));
        tokens.extend(
            titles
                .map(|word| format!("query:{word}"))
                .filter(|token| !tokens.contains(token))
                .collect::<Vec<_>>(),
        );
    }
    tokens.truncate(10);
    tokens
}

fn note_text(note: &Value) -> NoteText {
    let field = |name: &str| text_of(&note[name]).to_owned();
    let scope = field("scope");
    NoteText {
        id: field("id"),
        title: field("title"),
        content: field("content"),
        tags: list(&note["tags"]).iter().map(|tag| text_of(tag).to_owned()).collect(),
        links: list(&note["links"]).iter().map(|link| text_of(&link["to"]).to_owned()).collect(),
        kind: field("kind"),
        subject: field("subject"),
        note_type: field("type"),
        source: field("source"),
        durable: note["stability"] == "durable",
        about_person: scope == "user" || scope == "self",
        scope,
        confidence: number(&note["confidence"]),
    }
}

fn compare_bases(theirs: &[Value], ours: &[NoteText]) {
    let equal = theirs.iter().zip(ours).filter(|(theirs, ours)| {
        let basis: Vec<&str> = list(&theirs["vector"]["basis"]).iter().map(text_of).collect();
        basis == ours.basis()
    });
    println!("equal bases: {} of {}", equal.count(), ours.len());
}

fn print_heading() {
    println!();
    println!("                       agreement with the seed's order    the note asked for");
    println!("scoring                top-1   top-5   Kendall's tau      top-1   top-5   MRR");
}

fn print_row(name: &str, ours: &[Ranking], theirs: &[Ranking], searches: &[Value]) {
    let mean = |value: &dyn Fn(usize) -> f64| {
        (0..searches.len()).map(value).sum::<f64>() / searches.len().max(1) as f64
    };
    let place = |at: usize| {
        let answer = text_of(&searches[at]["answer"]);
        ours[at].iter().position(|(id, _)| id == answer).map_or(f64::INFINITY, |place| place as f64 + 1.0)
    };
    println!(
        "{name:<22} {:>5.2} {:>7.2} {:>15.3} {:>10.2} {:>7.2} {:>6.3}",
        mean(&|at| share_in_common(&ours[at], &theirs[at], 1)),
        mean(&|at| share_in_common(&ours[at], &theirs[at], 5)),
        mean(&|at| kendall_tau(&ours[at], &theirs[at])),
        mean(&|at| f64::from(u8::from(place(at) <= 1.0))),
        mean(&|at| f64::from(u8::from(place(at) <= 5.0))),
        mean(&|at| 1.0 / place(at)),
    );
}

/// By how much a probability differs from the seed's at most; the seed's scores are the softmax.
fn print_largest_difference(ours: &[Ranking], theirs: &[Ranking]) {
    let mut largest = 0.0f64;
    for (ours, theirs) in ours.iter().zip(theirs) {
        let sum: f64 = ours.iter().map(|(_, score)| (score / 0.35).exp()).sum();
        for ((_, ours), (_, theirs)) in ours.iter().zip(theirs) {
            largest = largest.max(((ours / 0.35).exp() / sum - theirs).abs());
        }
    }
    println!("  (largest difference of a softmax value, place by place: {largest:.2e})");
}

fn share_in_common(a: &Ranking, b: &Ranking, count: usize) -> f64 {
    let of_b: Vec<&String> = b.iter().take(count).map(|(id, _)| id).collect();
    let shared = a.iter().take(count).filter(|(id, _)| of_b.contains(&id)).count();
    shared as f64 / of_b.len().max(1) as f64
}

/// Kendall's tau-a: the share of pairs in the same order less the share in the opposite order.
fn kendall_tau(a: &Ranking, b: &Ranking) -> f64 {
    let place: HashMap<&String, usize> = b.iter().enumerate().map(|(at, (id, _))| (id, at)).collect();
    let places: Vec<usize> = a.iter().map(|(id, _)| place[id]).collect();
    let pairs = (0..places.len()).flat_map(|i| (i + 1..places.len()).map(move |j| (i, j)));
    let signed: i64 = pairs.map(|(i, j)| if places[i] < places[j] { 1 } else { -1 }).sum();
    let count = places.len() * places.len().saturating_sub(1) / 2;
    signed as f64 / count.max(1) as f64
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}
