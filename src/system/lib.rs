//! What only a Unix system offers: file modes, process groups, signals, the terminal's modes.
//!
//! The other crates call these functions, so that a port begins and ends here; `tests/layout.rs` lists the one other
//! module that calls the system itself. It never decides what a file is for, or what is run.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let folder = tempfile::tempdir()?;
//! let file = system::file::create_private_file(&folder.path().join("key"))?;
//! assert_eq!(system::file::mode(&file.metadata()?), 0o600);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

#[cfg(not(unix))]
compile_error!("nugget needs a Unix system, such as Linux or macOS: it uses file modes, `flock` and signals");

pub mod allocator;
pub mod file;
pub mod pages;
pub mod process;
pub mod signal;
pub mod terminal;
