//! nugget's reflection pass: finds duplicates, contradictions, dangling links, unused and stale units in a brain, and
//! proposes what to do about each, with a reason.
//!
//! Never reads a disk, a clock or the network: it is given units with what is known about their use, and returns
//! findings and the texts of the files that they change. What is proposed is for a person to review.
//!
//! ```
//! use knowledge::Document;
//! use reflect::{Kind, Observed, Settings};
//!
//! let text = "---\nid: pool\ntype: pattern\nrelated: [{id: gone, relation: uses}]\n---\n\nBound the pool.\n";
//! let path = "domains/coding/patterns/pool.md";
//! let unit = Document::parse(text)?.unit(path)?;
//! let units = [Observed { unit: &unit, path, text, vector: None, recall: None, stale: None }];
//! let now = "2026-11-20T14:12:00Z".parse().unwrap();
//! let settings = Settings::default();
//! let found = reflect::find(&units, &settings, now);
//! assert_eq!(found[0].kind, Kind::Dangling);
//! assert_eq!(found[0].reason, "“pool” is related to “gone”, which does not exist");
//! let changes = reflect::apply(&found, &units, &settings, now);
//! assert_eq!(changes[0].text.as_deref(), Some(text.replace("[{id: gone, relation: uses}]", "[]").as_str()));
//! # Ok::<(), knowledge::FrontMatterError>(())
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod apply;
mod find;
mod finding;
mod links;
mod observed;
mod pair;
mod promote;
mod rewrite;
#[cfg(test)]
mod tests;

pub use apply::{FileChange, apply};
pub use find::find;
pub use finding::{Change, Finding, Kind};
pub use links::{FileNames, remove as remove_links};
pub use observed::{Observed, Recall, Settings, text_to_compare};
pub use rewrite::{RejectedRewrite, accept_rewrite, rewrite_request};
