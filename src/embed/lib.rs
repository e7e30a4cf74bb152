//! Text embeddings, by the model in the binary, by the user's own ONNX model, or by a provider.
//!
//! This is the only crate that knows a model runtime. It never downloads anything: the built-in model is part of the
//! binary, and the user's own model is read from the disk. Texts are sent to no one but the provider that the settings
//! name.
//!
//! ```
//! use embed::{Embedder, Settings};
//!
//! let embedder = Embedder::load(&Settings::default()).unwrap();
//! let [pool, threads, cats] = ["Limit the number of workers", "Bound how many threads run at once", "A cat sleeps"]
//!     .map(|text| embedder.embed_document(text).unwrap().vector);
//! let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
//! assert_eq!(pool.len(), 384);
//! assert!(cosine(&pool, &threads) > cosine(&pool, &cats));
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod built_in;
mod classifier;
mod embedder;
mod error;
mod minilm;
mod onnx;
mod onnx_session;
mod provider;
mod runtime;
mod settings;
mod token_table;
mod token_vectors;
mod tokenizer;
mod vector;

pub use built_in::{BUILT_IN_DIMENSIONS, BUILT_IN_NAME};
pub use classifier::Classifier;
pub use embedder::{Embedder, check_settings, known_dimensions, model_name};
pub use error::Error;
pub use runtime::{Runtime, find_runtime, probe};
pub use settings::{ModelChoice, OnnxModel, Pooling, Provider, RemoteModel, Settings};
pub use token_table::TokenTable;
pub use token_vectors::{TOKEN_BYTES, TokenMatcher};
pub use tokenizer::Tokenizer;
