//! Places in the code at which the stress tests kill the process, as SIGKILL does: no unwinding, no
//! destructors.
//!
//! Only builds with debug assertions have them: the profiles `dev` and `storm`. In others [`here!`] expands to
//! nothing: this crate never adds code, or a failpoint's name, to a program that people run.
//!
//! ```
//! fn save() -> u32 {
//!     failpoint::here!("after-write");
//!     7
//! }
//! assert_eq!(save(), 7);
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

/// Names a place at which the process may be killed.
#[cfg(not(debug_assertions))]
#[macro_export]
macro_rules! here {
    ($name:literal) => {};
}

/// Names a place at which the process may be killed.
#[cfg(debug_assertions)]
#[macro_export]
macro_rules! here {
    ($name:literal) => {
        $crate::reached($name)
    };
}

/// Called by [`here!`]. The environment variable FAILPOINTS names the places that kill: with
/// `git-after-keep=3;hook-after-row=1` the first one kills three times, over all processes that share the folder
/// FAILPOINT_MARKS, and the other once. That folder gets a file for each kill, so that events before a kill can be
/// told from those after the restart.
#[cfg(debug_assertions)]
pub fn reached(name: &str) {
    let Ok(places) = std::env::var("FAILPOINTS") else { return };
    let Some(times) = places.split(';').find_map(|place| place.strip_prefix(name)?.strip_prefix('=')) else {
        return;
    };
    let times: u32 = times.parse().expect("FAILPOINTS has a number for each place");
    let marks =
        std::path::PathBuf::from(std::env::var_os("FAILPOINT_MARKS").expect("FAILPOINT_MARKS is set"));
    // The process that creates the file is the one to be killed: exactly so many kills, however many processes
    // reach the place together.
    let mark = |time| marks.join(format!("{name}.{time}"));
    let is_created = |time| std::fs::File::create_new(mark(time)).is_ok();
    if (1..=times).any(is_created) {
        system::process::kill_self();
    }
}
