//! The user's own model, in the ONNX Runtime.
//!
//! These need its library: `nugget runtime install`, then `ORT_DYLIB_PATH`. Where there is none, only the error is tested;
//! `.ci/run` installs it.

use std::fs;
use std::path::Path;

use super::*;
use crate::settings::Pooling;

/// Whether there is a library. Without one, says so, and checks that an own model names what is missing.
fn has_library() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let own = settings(own_model(folder.path(), Pooling::Mean));
    if matches!(find_runtime(&own).0, Runtime::OnnxRuntime { .. }) {
        return true;
    }
    eprintln!("no ONNX Runtime library: set ORT_DYLIB_PATH to test own models");
    assert!(matches!(Embedder::load(&own), Err(Error::NoLibrary)));
    assert!(matches!(check_settings(&own), Err(Error::NoLibrary)));
    false
}

/// Writes the built-in model and tokenizer as files of a user's own model.
fn own_model(folder: &Path, pooling: Pooling) -> OnnxModel {
    let (path, tokenizer) = (folder.join("my-encoder.onnx"), folder.join("tokenizer.json"));
    fs::write(&path, include_bytes!("../../weights/minilm-w8.onnx")).unwrap();
    fs::write(&tokenizer, BUILT_IN_TOKENIZER).unwrap();
    let (query_prefix, document_prefix) = (String::new(), String::new());
    OnnxModel { path, tokenizer, pooling, query_prefix, document_prefix, tokens_max: None, name: None }
}

fn settings(own: OnnxModel) -> Settings {
    Settings { model: ModelChoice::Onnx(own), ..Settings::default() }
}

#[test]
fn the_users_own_model_gives_the_same_vectors() {
    if !has_library() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built_in = embedder().embed_query("the same model as a file").unwrap().vector;
    let mean = Embedder::load(&settings(own_model(folder.path(), Pooling::Mean))).unwrap();
    assert_eq!(mean.dimensions(), 384);
    for text in [
        "the same model as a file",
        "why is each invoice mailed twice?",
        "SQLite answers SQLITE_BUSY when two processes write",
        &"limit the number of workers in a pool ".repeat(40),
    ] {
        let (same, built_in) = (mean.embed_query(text).unwrap(), embedder().embed_query(text).unwrap());
        let difference = root_mean_square(&same.vector, &built_in.vector);
        assert!(difference < 3e-5, "{difference} for {text}");
    }
    let first = Embedder::load(&settings(own_model(folder.path(), Pooling::Cls))).unwrap();
    assert!(cosine(&first.embed_query("the same model as a file").unwrap().vector, &built_in) < 0.99);
    assert_ne!(mean.model_name(), first.model_name(), "vectors that cannot be compared have the same name");
}

#[test]
fn prefixes_and_limits_of_the_users_model_are_applied() {
    if !has_library() {
        return;
    }
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
    assert_eq!(
        prefixed.embed_query("text").unwrap().vector,
        plain.embed_query("query: text").unwrap().vector
    );
    assert_eq!(prefixed.embed_document("text").unwrap().vector, plain.embed_document("text").unwrap().vector);
    assert_eq!(prefixed.tokenizer().model_input("", &"word ".repeat(99)).unwrap().len(), 16);
    assert!(matches!(prefixed.embed_query(" "), Err(Error::Empty)));
}

#[test]
fn a_model_that_does_not_load_gives_the_reason() {
    if !has_library() {
        return;
    }
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
