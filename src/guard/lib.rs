//! Which units bear on what an agent is about to do: on the file it edits, the command it runs, the error it got.
//!
//! A unit's [`Trigger`]s are made with the index and stored under a key. The hook reads an [`Action`] from the tool's
//! input, looks up the triggers under the action's keys, and asks each whether it matches. A match needs evidence: a
//! path or symbol of the unit's scope, a program with its subcommand and options, an error's message word by word
//! without its numbers and paths. This crate writes nothing, never looks at a clock, starts nothing and loads no model; of
//! the disk it reads which paths are folders and repositories, and the copy of the triggers that lies beside the index, by
//! which [`may_bear`] says of most actions that no unit bears on them.
//!
//! Bash is parsed by `tree-sitter-bash`: it goes on behind an error, where `brush-parser` gives nothing at all; it needs
//! no recursion, so that deep nesting cannot exhaust the stack; it adds four small crates under the MIT licence, where
//! the other adds thirty; and of 3,309 different commands in 286 real sessions it reads every one without an error.
//!
//! ```
//! use guard::{Action, Evidence};
//! use serde_json::json;
//!
//! let text = "---\ntype: caveat\nscope: [{command: cargo publish}]\n---\n\n# Ask before publishing\n";
//! let unit = knowledge::Document::parse(text)?.unit("publish.md")?;
//! let input = json!({ "command": "cd cli && sudo -u ci cargo publish --dry-run" });
//! let action = Action::new("Bash", &input, "/work/shop", None).unwrap_or_default();
//! assert_eq!(guard::triggers_of(&unit)[0].matches(&action), Some(Evidence::Command));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod action;
mod bash;
mod body;
mod command;
mod hook;
mod options;
mod path;
mod repositories;
mod signature;
mod spelling;
mod trigger;
mod trigger_file;
mod unit_triggers;

pub use action::{Action, ChangedFile};
pub use hook::{HookedAction, LINE_BYTES_MAX};
pub use repositories::Repositories;
pub use trigger::{Evidence, Trigger};
pub use trigger_file::{TRIGGER_FILE, encode_triggers, may_bear};
pub use unit_triggers::triggers_of;
