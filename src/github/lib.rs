//! The only crate that knows GitHub's API: pull requests, and the repository they are made against.
//!
//! It never tries a request again by itself, with one exception: a request whose answer was lost is
//! followed by a look-up, so that nothing is made twice. When to try again is the caller's to decide,
//! and [`Error::retry`] tells what makes sense.

mod client;
mod error;
mod host;
mod http;
mod token;
mod types;

pub use client::{GitHub, Settings};
pub use error::{Error, Retry};
pub use host::Host;
pub use token::{FoundToken, Source, Token, find_token, forget_tokens};
pub use types::{NewPull, Opened, Pull, PullState, Repository, Slug, Viewer};
