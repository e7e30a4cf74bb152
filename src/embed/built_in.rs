//! The built-in model.

/// The built-in model: all-MiniLM-L6-v2 with int8 weights and f32 arithmetic; see `weights/README.md`. The linear layers are
/// laid out by `build.rs`.
pub(crate) static BUILT_IN_MODEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/minilm-w8.panels"));
/// The projection of its token vectors, `[384, 64]` bfloat16, little endian; see `weights/README.md`.
pub(crate) static TOKEN_PROJECTION: &[u8] = include_bytes!("weights/token-projection.bf16");
pub(crate) static BUILT_IN_TOKENIZER: &[u8] = include_bytes!("weights/tokenizer-256-nopad.json");
/// The name of the built-in model, with which its vectors are labelled.
pub const BUILT_IN_NAME: &str = "all-MiniLM-L6-v2/w8";
/// The length of the built-in model's vectors.
pub const BUILT_IN_DIMENSIONS: usize = 384;
