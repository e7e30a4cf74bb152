//! The only crate that knows GitHub's API: pull requests, and the repository they are made against.
//!
//! It never tries a request again by itself, with one exception: a request whose answer was lost is
//! followed by a look-up, so that nothing is made twice. When to try again is the caller's to decide,
//! and [`Error::retry`] tells what makes sense.

mod client;
mod error;
mod site;
mod thing;
mod token;
mod wire;

pub use client::{GitHub, Settings};
pub use error::{Error, Retry};
pub use site::Site;
pub use thing::{NewPull, Opened, Pull, PullState, Repository, Slug, Viewer};
pub use token::{Found, Source, Token, find_token, forget_tokens};
