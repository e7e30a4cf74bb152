use std::sync::Barrier;

use knowledge::CountTokens;

use super::*;
use crate::built_in::BUILT_IN_TOKENIZER;

mod own_model;

fn embedder() -> Embedder {
    Embedder::load(&Settings::default()).unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

#[test]
fn the_built_in_model_gives_the_known_vector() {
    let embedder = embedder();
    let vector = embedder.embed_query("how do I close a pooled goroutine connection").unwrap().vector;
    // Computed once, by ONNX Runtime 1.31.
    let known = [0.022_325, 0.023_354, -0.063_597, -0.017_413, -0.047_401, 0.022_299];
    assert_eq!(
        (vector.len(), embedder.dimensions(), embedder.model_name()),
        (384, 384, "all-MiniLM-L6-v2/w8")
    );
    // Inputs of linear layers are rounded to i16, which the ONNX Runtime does not do.
    let difference = root_mean_square(&vector[..known.len()], &known);
    assert!(difference < 3e-5, "{vector:?} is not {known:?} by {}", embedder.runtime());
}

#[test]
fn several_threads_give_the_same_vectors_in_order() {
    let texts: Vec<String> =
        (0..20).map(|number| format!("the text of number {number} ").repeat(number + 1)).collect();
    let several = Embedder::load(&Settings { threads: 3, ..Settings::default() }).unwrap();
    assert_eq!(several.embed_documents(&texts).unwrap(), embedder().embed_documents(&texts).unwrap());
    let blank = [texts[0].clone(), "  ".to_owned()];
    assert!(matches!(several.embed_documents(&blank), Err(Error::Empty)));
}

/// Of the differences.
fn root_mean_square(a: &[f32], b: &[f32]) -> f32 {
    let squares: f32 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (squares / a.len() as f32).sqrt()
}

#[test]
fn paraphrases_are_nearer_than_other_subjects() {
    let embedder = embedder();
    let embed = |text| embedder.embed_document(text).unwrap().vector;
    for (this, same, other) in [
        ("Limit the number of workers", "Bound how many threads run at once", "The cat sleeps on the sofa"),
        ("the database is locked", "SQLite answers SQLITE_BUSY", "We chose blue for the button"),
        ("roll back a failed deployment", "undo a release that went wrong", "parse dates in many formats"),
    ] {
        let (this, same, other) = (embed(this), embed(same), embed(other));
        let (near, far) = (cosine(&this, &same), cosine(&this, &other));
        assert!(near > far + 0.1, "{near} is not clearly nearer than {far}");
        assert!((cosine(&this, &this) - 1.0).abs() < 1e-5, "not of unit length");
    }
}

#[test]
fn a_vector_depends_only_on_its_text() {
    let embedder = embedder();
    let first = embedder.embed_document("use fsync before rename").unwrap().vector;
    embedder.embed_document(&"quite another and a much longer text ".repeat(60)).unwrap();
    embedder.rest();
    assert_eq!(first, embedder.embed_query("use fsync before rename").unwrap().vector);
    assert_eq!(first, self::embedder().embed_document("use fsync before rename").unwrap().vector);
}

#[test]
fn a_question_in_unknown_words_has_no_vector() {
    let embedder = embedder();
    for question in [
        "承認",
        "🔑",
        "連線池 timeout",
        "日本語のテキスト",
        "Почему тест падает?",
        "لماذا فشل الاختبار",
        "테스트가 왜 실패하나요",
    ] {
        assert!(matches!(embedder.embed_query(question), Err(Error::UnknownWords)), "{question}");
        assert!(embedder.embed_document(question).is_ok(), "{question}");
    }
    for question in
        ["Größe der Prüfsumme", "why does 承認 fail in the worker?", "wie groß ist λ in der Kern-Größe?"]
    {
        assert!(embedder.embed_query(question).is_ok(), "{question}");
    }
}

#[test]
fn hostile_texts_give_a_vector_or_an_error() {
    let embedder = embedder();
    for blank in ["", "   \n\t ", "\0\0", "\u{200b}\u{feff}", "\u{1}\u{2}"] {
        match embedder.embed_query(blank) {
            Err(Error::Empty) => {}
            other => panic!("{blank:?} gives {other:?}"),
        }
        assert!(!embedder.tokenizer().has_tokens(blank), "{blank:?}");
    }
    // Not blank, but of characters that the tokenizer leaves out.
    let replaced = "\u{fffd}".repeat(4);
    assert!(matches!(embedder.embed_document(&replaced), Err(Error::Empty)));
    assert!(!embedder.tokenizer().has_tokens(&replaced) && embedder.tokenizer().has_tokens("日本"));
    let long = "word ".repeat(200_000);
    let spaces = format!("{}end", " ".repeat(1 << 20));
    let texts = [
        "🦀🦀 🚀",
        "a\0b\0c",
        "[CLS] [SEP] [PAD]",
        "日本語のテキスト",
        "e\u{301}\u{301}\u{301}",
        &"x".repeat(1 << 20),
    ];
    for text in texts.into_iter().chain([long.as_str(), spaces.as_str()]) {
        let vector = embedder.embed_document(text).unwrap().vector;
        assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5, "{:?}", &text[..text.floor_char_boundary(20)]);
    }
}

#[test]
fn text_beyond_the_token_limit_changes_nothing() {
    let embedder = embedder();
    let fits = "pool ".repeat(254);
    let vector = embedder.embed_document(&fits).unwrap().vector;
    assert_eq!(vector, embedder.embed_document(&format!("{fits} elephants")).unwrap().vector);
    let shorter = format!("{} elephants", "pool ".repeat(253));
    assert_ne!(vector, embedder.embed_document(&shorter).unwrap().vector);
}

#[test]
fn tokens_are_counted_beyond_the_limit() {
    let tokenizer = Tokenizer::load(&Settings::default()).unwrap();
    let mut plain = tokenizers::Tokenizer::from_bytes(BUILT_IN_TOKENIZER).unwrap();
    plain.with_truncation(None).unwrap();
    let long = "parse_config returns Err, see src/main.rs. ".repeat(500);
    for text in ["", " ", "one", "parseConfig()", "🦀", "日本語", "a\0b", long.as_str()] {
        assert_eq!(tokenizer.count(text), plain.encode(text, false).unwrap().len(), "{text:.20}");
    }
    assert!(tokenizer.count(&long) > 5_000);
    assert_eq!(tokenizer.tokens_max(), 256);
    assert_eq!(tokenizer.model_input("", &long).unwrap().len(), 256);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_text_has_the_tokens_of_its_words(
        text in "([a-zA-Z0-9]{1,9}|[ \\t\\n\\r\u{b}\u{c}\u{85}\u{a0}\u{2028}]|[!-/:-@\\[-`{-~]|\\[SEP\\]|\\PC){0,30}",
    ) {
        static TOKENIZERS: std::sync::LazyLock<(Tokenizer, tokenizers::Tokenizer)> = std::sync::LazyLock::new(|| {
            let mut plain = tokenizers::Tokenizer::from_bytes(BUILT_IN_TOKENIZER).unwrap();
            plain.with_truncation(None).unwrap().set_encode_special_tokens(true);
            (Tokenizer::load(&Settings::default()).unwrap(), plain)
        });
        let (tokenizer, plain) = &*TOKENIZERS;
        proptest::prop_assert_eq!(tokenizer.count(&text), plain.encode_fast(&*text, false).unwrap().len());
    }
}

#[test]
fn synonyms_are_similar_by_the_token_table() {
    let tokenizer = Tokenizer::load(&Settings::default()).unwrap();
    let table = tokenizer.token_table().unwrap();
    let piece = |word: &str| match *tokenizer.token_ids(word) {
        [piece] => piece,
        ref pieces => panic!("{word} is {pieces:?}"),
    };
    let cosines =
        table.cosines(&[piece("error")], &[piece("mistake"), piece("error"), piece("banana"), u32::MAX]);
    assert!(cosines[0] > cosines[2] + 0.2 && cosines[0] < 0.99, "{cosines:?}");
    assert!((cosines[1] - 1.0).abs() < 1e-5 && cosines[3] == 0.0, "{cosines:?}");
    // The last token of the vocabulary has a row, and none comes after it.
    let ends = table.cosines(&[30_521], &[30_521, 30_522]);
    assert!((ends[0] - 1.0).abs() < 1e-5 && ends[1] == 0.0, "{ends:?}");
    // The cache of words must not change the result.
    assert_eq!(tokenizer.token_ids("goroutine"), tokenizer.token_ids("goroutine"));
    assert!(tokenizer.token_ids("").is_empty() && tokenizer.token_ids("goroutine").len() > 1);
}

#[test]
fn threads_embed_at_once_and_get_the_same_vectors() {
    let embedder = embedder();
    let expected = embedder.embed_query("two at once").unwrap().vector;
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..3 {
                    assert_eq!(embedder.embed_document("two at once").unwrap().vector, expected);
                }
            });
        }
    });
}
