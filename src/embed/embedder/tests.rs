use std::fs;
use std::path::Path;
use std::sync::{Barrier, mpsc};

use knowledge::CountTokens;

use super::*;
use crate::built_in::{BUILT_IN_MODEL, BUILT_IN_TOKENIZER};
use crate::settings::Pooling;

fn embedder() -> Embedder {
    Embedder::load(&Settings::default()).unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

/// Writes the built-in model and tokenizer as files of a user's own model.
fn own_model(folder: &Path, pooling: Pooling) -> OnnxModel {
    let (path, tokenizer) = (folder.join("my-encoder.onnx"), folder.join("tokenizer.json"));
    fs::write(&path, BUILT_IN_MODEL).unwrap();
    fs::write(&tokenizer, BUILT_IN_TOKENIZER).unwrap();
    let (query_prefix, document_prefix) = (String::new(), String::new());
    OnnxModel { path, tokenizer, pooling, query_prefix, document_prefix, tokens_max: None, name: None }
}

fn settings(own: OnnxModel) -> Settings {
    Settings { model: ModelChoice::Onnx(own), ..Settings::default() }
}

#[test]
fn the_built_in_model_gives_the_known_vector() {
    let embedder = embedder();
    let vector = embedder.embed_query("how do I close a pooled goroutine connection").unwrap();
    // Computed once, by tract and by ONNX Runtime 1.31, which agree to 1e-6.
    let known = [0.022_325, 0.023_354, -0.063_597, -0.017_413, -0.047_401, 0.022_299];
    assert_eq!(
        (vector.len(), embedder.dimensions(), embedder.model_name()),
        (384, 384, "all-MiniLM-L6-v2/w8")
    );
    for (x, known) in vector.iter().zip(known) {
        assert!((x - known).abs() < 1e-4, "{x} is not {known} by {}", embedder.runtime());
    }
}

#[test]
fn an_unloaded_model_loads_again_and_answers_as_before() {
    let embedder = embedder();
    let before = embedder.embed_query("how do I shut down a worker pool?").unwrap();
    let open = || match &embedder.engine {
        Engine::Local { sessions, .. } => sessions.open_now(),
        Engine::Remote(_) => usize::MAX,
    };
    assert_eq!(open(), 1);
    embedder.unload();
    assert_eq!(open(), 0, "all sessions are closed");
    assert_eq!(embedder.embed_query("how do I shut down a worker pool?").unwrap(), before);
    assert_eq!(open(), 1);
}

#[test]
fn paraphrases_are_nearer_than_other_subjects() {
    let embedder = embedder();
    let embed = |text| embedder.embed_document(text).unwrap();
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
    let first = embedder.embed_document("use fsync before rename").unwrap();
    embedder.embed_document(&"quite another and a much longer text ".repeat(60)).unwrap();
    assert_eq!(first, embedder.embed_query("use fsync before rename").unwrap());
    assert_eq!(first, self::embedder().embed_document("use fsync before rename").unwrap());
}

#[test]
fn hostile_texts_give_a_vector_or_an_error() {
    let embedder = embedder();
    for blank in ["", "   \n\t ", "\0\0", "\u{200b}\u{feff}", "\u{1}\u{2}"] {
        match embedder.embed_query(blank) {
            Err(Error::Empty) => {}
            other => panic!("{blank:?} gives {other:?}"),
        }
    }
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
        let vector = embedder.embed_document(text).unwrap();
        assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5, "{:?}", &text[..text.floor_char_boundary(20)]);
    }
}

#[test]
fn text_beyond_the_token_limit_changes_nothing() {
    let embedder = embedder();
    let fits = "pool ".repeat(254);
    let vector = embedder.embed_document(&fits).unwrap();
    assert_eq!(vector, embedder.embed_document(&format!("{fits} elephants")).unwrap());
    let shorter = format!("{} elephants", "pool ".repeat(253));
    assert_ne!(vector, embedder.embed_document(&shorter).unwrap());
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
    let expected = embedder.embed_query("two at once").unwrap();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..3 {
                    assert_eq!(embedder.embed_document("two at once").unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn a_waiting_query_gets_a_session_before_a_document() {
    let embedder = Embedder::load(&Settings { sessions_max: 1, ..Settings::default() }).unwrap();
    let Engine::Local { sessions, .. } = &embedder.engine else { panic!("the built-in model is local") };
    let (got, order) = mpsc::channel();
    let held = sessions.lease(Priority::Document).unwrap();
    std::thread::scope(|scope| {
        let query_got = got.clone();
        scope.spawn(move || {
            let _lease = sessions.lease(Priority::Query).unwrap();
            query_got.send("query").unwrap();
        });
        while sessions.queries_waiting() == 0 {
            std::thread::yield_now();
        }
        drop(held);
        let _lease = sessions.lease(Priority::Document).unwrap();
        got.send("document").unwrap();
    });
    drop(got);
    assert_eq!(order.iter().collect::<Vec<_>>(), ["query", "document"]);
}

#[test]
fn the_users_own_model_gives_the_same_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let built_in = embedder().embed_query("the same model as a file").unwrap();
    let mean = Embedder::load(&settings(own_model(folder.path(), Pooling::Mean))).unwrap();
    assert_eq!(mean.dimensions(), 384);
    assert!(cosine(&mean.embed_query("the same model as a file").unwrap(), &built_in) > 0.999_99);
    let first = Embedder::load(&settings(own_model(folder.path(), Pooling::Cls))).unwrap();
    assert!(cosine(&first.embed_query("the same model as a file").unwrap(), &built_in) < 0.99);
    assert_ne!(mean.model_name(), first.model_name(), "vectors that cannot be compared have the same name");
}

#[test]
fn prefixes_and_limits_of_the_users_model_are_applied() {
    let folder = tempfile::tempdir().unwrap();
    let plain = own_model(folder.path(), Pooling::None);
    let mut prefixed = plain.clone();
    prefixed.query_prefix = "query: ".into();
    prefixed.tokens_max = Some(16);
    let names = [&plain, &prefixed].map(|own| model_name(&settings(own.clone())));
    assert!(names[0].starts_with("my-encoder@") && names[0].len() == "my-encoder@".len() + 8, "{names:?}");
    assert_ne!(names[0], names[1]);
    let (plain, prefixed) =
        (Embedder::load(&settings(plain)).unwrap(), Embedder::load(&settings(prefixed)).unwrap());
    assert_eq!(prefixed.embed_query("text").unwrap(), plain.embed_query("query: text").unwrap());
    assert_eq!(prefixed.embed_document("text").unwrap(), plain.embed_document("text").unwrap());
    assert_eq!(prefixed.tokenizer().model_input("", &"word ".repeat(99)).unwrap().len(), 16);
    assert!(matches!(prefixed.embed_query(" "), Err(Error::Empty)));
}

#[test]
fn the_name_of_the_users_model_depends_on_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let own = own_model(folder.path(), Pooling::Mean);
    let before = model_name(&settings(own.clone()));
    assert_eq!(before, model_name(&settings(own.clone())));
    let mut bytes = fs::read(&own.path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&own.path, bytes).unwrap();
    assert_ne!(before, model_name(&settings(own.clone())));
    fs::remove_file(&own.path).unwrap();
    assert_eq!(model_name(&settings(own)), "my-encoder@unreadable");
}

#[test]
fn a_model_that_does_not_load_gives_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let good = own_model(folder.path(), Pooling::Mean);
    let fails = |own: OnnxModel| match Embedder::load(&settings(own)) {
        Ok(_) => panic!("it loaded"),
        Err(error) => error.to_string().replace(&folder.path().display().to_string(), "…"),
    };
    let absent = folder.path().join("absent");
    assert_eq!(
        fails(OnnxModel { path: absent.clone(), ..good.clone() }),
        "failed to read the model …/absent"
    );
    assert_eq!(
        fails(OnnxModel { tokenizer: absent, ..good.clone() }),
        "failed to read the tokenizer …/absent"
    );
    assert_eq!(
        fails(OnnxModel { tokenizer: good.path.clone(), ..good.clone() }),
        "…/my-encoder.onnx is not a tokenizer (tokenizer.json)"
    );
    let not_a_model = fails(OnnxModel { path: good.tokenizer.clone(), ..good.clone() });
    assert!(not_a_model.starts_with("…/tokenizer.json is not a model that"), "{not_a_model}");
    // The names of an input and of an output, overwritten by others of the same length.
    let renamed = |from: &[u8], to: &[u8]| {
        let mut bytes = fs::read(&good.path).unwrap();
        for at in 0..bytes.len() - from.len() {
            if &bytes[at..at + from.len()] == from {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        let path = folder.path().join("renamed.onnx");
        fs::write(&path, bytes).unwrap();
        path
    };
    let path = renamed(b"token_type_ids", b"position_idsss");
    let inputs = fails(OnnxModel { path, ..good.clone() });
    assert_eq!(inputs, "…/renamed.onnx has unsupported inputs: the input `position_idsss` is unknown");
    let path = renamed(b"sentence_embedding", b"sentence_emneddimg");
    let outputs = fails(OnnxModel { path, pooling: Pooling::None, ..good });
    assert!(outputs.contains("has no output `sentence_embedding`"), "{outputs}");
}
