//! Notes and facts: units that people and agents write down themselves, with links that always go both ways.
//!
//! A [`Notebook`] holds the files of a brain in memory, changes them, and says which files have changed, so that one
//! operation is one commit: a link is in both of its notes or in none. This crate never reads a disk or a clock, and
//! redacts nothing: it is given what may be written.
//!
//! ```
//! use notes::{NewNote, Notebook};
//!
//! let now = "2026-11-20T14:12:00Z".parse()?;
//! let mut notebook = Notebook::new([]);
//! let auth = notebook.create(NewNote::note("Auth middleware", "Lives in src/auth."), now)?;
//! let tokens = notebook.create(NewNote::note("JWT token format", "Signed with RS256."), now)?;
//! notebook.link(&auth, &tokens, "the middleware checks the tokens", now)?;
//! assert_eq!(notebook.find("jwt token format")?.unit.related[0].id, auth);
//! assert_eq!(notebook.changes().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

mod error;
mod links;
mod new_note;
mod notebook;

pub use error::Error;
pub use links::Link;
pub use new_note::NewNote;
pub use notebook::{Edit, FileChange, NoteFile, Notebook, Remembered, content};
