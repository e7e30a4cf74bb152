//! Answers without padding: most of an answer's text bears on the question, and other questions get nothing.

use embed::{Embedder, Settings};

use crate::support::fixture;
use crate::support::precision::{BRAINS, World};

/// Of an answer's text, on average.
const SHARE_MIN: f64 = 0.6;
/// Of the questions about other subjects, over all brains.
const UNRELATED_MAX: f64 = 0.02;
/// How many right units each file of questions has among the first three that are shown.
const SHOWN_MIN: [(&str, usize); 5] = [
    ("questions.json", 15),
    ("questions-short.json", 14),
    ("questions-linked.json", 20),
    ("questions-kept.json", 25),
    ("questions-notes.json", 10),
];

#[test]
fn most_of_an_answer_bears_on_the_question() {
    let fixtures = fixture("");
    let embedder = Embedder::load(&Settings::default()).unwrap();
    for brain in &BRAINS {
        let world = World::new(&fixtures, brain, &embedder).unwrap();
        for file in brain.questions {
            let judged = world.judge(&fixtures, file).unwrap();
            for answer in &judged.answers {
                println!("{:.2} {}: {:?}", answer.share, answer.question, answer.units);
            }
            let (ranked, shown) = judged.within(3);
            println!("{file}: {:.2} of the text, {shown} of {ranked} within three", judged.share());
            assert!(judged.share() >= SHARE_MIN, "{file}: {:.2} of the text", judged.share());
            let (_, least) = SHOWN_MIN.iter().find(|(name, _)| name == file).unwrap();
            assert!(shown >= *least, "{file}: {shown} right units are shown within three, not {least}");
        }
    }
}

#[test]
fn questions_about_other_subjects_get_no_answer() {
    let fixtures = fixture("");
    let embedder = Embedder::load(&Settings::default()).unwrap();
    let (mut asked, mut answered) = (0, 0);
    for brain in &BRAINS {
        let unrelated =
            World::new(&fixtures, brain, &embedder).unwrap().ask_unrelated(&fixtures, brain).unwrap();
        println!("{}: {} asked, answered: {:#?}", brain.folder, unrelated.asked, unrelated.answered);
        assert!(unrelated.asked >= 300);
        asked += unrelated.asked;
        answered += unrelated.answered.len();
    }
    assert!(answered as f64 <= UNRELATED_MAX * asked as f64, "{answered} of {asked}");
}

#[test]
fn a_word_that_only_a_title_holds_finds_its_unit() {
    let embedder = Embedder::load(&Settings::default()).unwrap();
    let world = World::new(&fixture(""), &BRAINS[0], &embedder).unwrap();
    for (question, unit) in [
        ("outbox", "transactional-outbox-over-dual-writes"),
        ("tell me about the outbox", "transactional-outbox-over-dual-writes"),
        ("why wool and moths?", "wool-care-against-moths"),
    ] {
        let shown = world.units_shown(question).unwrap();
        assert_eq!(shown.first().map(String::as_str), Some(unit), "{question}: {shown:?}");
    }
}

/// Of the words of titles that no other title has, asked alone. The others are words that many passages hold, such as
/// "first" or "change".
const TITLE_WORDS_MIN: f64 = 0.88;

#[test]
fn the_words_of_a_title_asked_alone_find_its_unit() {
    let embedder = Embedder::load(&Settings::default()).unwrap();
    for brain in &BRAINS {
        let world = World::new(&fixture(""), brain, &embedder).unwrap();
        let words = world.words_of_one_title().unwrap();
        let missed: Vec<&(String, String)> =
            words.iter().filter(|(word, unit)| !world.units_shown(word).unwrap().contains(unit)).collect();
        println!("{}: {} words, missed: {missed:?}", brain.folder, words.len());
        assert!(words.len() > 10);
        let found = words.len() - missed.len();
        assert!(found as f64 >= TITLE_WORDS_MIN * words.len() as f64, "{}: {missed:?}", brain.folder);
    }
}
