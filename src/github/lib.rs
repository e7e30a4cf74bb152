//! GitHub's REST API: pull requests, and the repository that they belong to. The only crate that uses it.
//!
//! It never repeats a request, and never sends a token to another host. A request whose response was lost is
//! followed by a look-up, so that nothing is created twice. The caller decides when to try again;
//! [`Error::retry`] says when that makes sense.
//!
//! ```
//! use github::{Host, Slug};
//!
//! let host = Host::for_remote("github.com", "")?.expect("github.com is a GitHub host");
//! assert_eq!(host.api(), "https://api.github.com");
//! let slug: Slug = "me/brain.git".parse()?;
//! assert_eq!(slug.to_string(), "me/brain");
//! # Ok::<(), github::Error>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod client;
mod error;
mod host;
mod http;
mod refusal;
mod token;
mod types;

pub use client::GitHub;
pub use error::{Error, Retry};
pub use host::Host;
pub use token::{FoundToken, Token, forget_tokens};
pub use types::{NewPull, Opened, Pull, PullState, Repository, Slug, Viewer};
