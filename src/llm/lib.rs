//! Client for model providers: the Claude Messages API, the OpenAI-compatible chat completions of local and other
//! servers, and a plain JSON endpoint for others.
//!
//! Every call has a deadline, and every text is redacted before it is sent. The key is never shown in errors, logs
//! or `Debug` output. This crate never decides whether a call is worth its price: budgets are the caller's.
//!
//! ```
//! use llm::{Usage, microdollars};
//!
//! let usage = Usage { input_tokens: 1_000, output_tokens: 100, ..Usage::default() };
//! assert_eq!(microdollars("claude-haiku-4-5", &usage), 1_500);
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod api;
mod chat_completions;
mod client;
mod endpoint;
mod error;
mod json_in_text;
mod key;
pub mod local_servers;
mod messages;
mod models;
mod price;
mod retry;
mod tool;
mod usage;

pub use api::Api;
pub use client::{Client, Settings};
pub use endpoint::{Auth, Endpoint, is_loopback};
pub use error::Error;
pub use key::Key;
pub use price::{PRICES_AS_OF, Rates, list_microdollars, microdollars};
pub use retry::retry;
pub use tool::{Reply, Request, Stop, Tool, ToolAnswer};
pub use usage::Usage;
