//! Places in the code at which the stress tests kill the process, as SIGKILL does: no unwinding, no
//! destructors.
//!
//! Without the feature `failpoints`, which only the stress tests set, [`here!`] expands to nothing: this
//! crate never adds code, or a failpoint's name, to a program that people run.
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
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! here {
    ($name:literal) => {};
}

/// Names a place at which the process may be killed.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! here {
    ($name:literal) => {
        $crate::reached($name)
    };
}

#[cfg(feature = "failpoints")]
pub use enabled::{MARKS, reached, set_up};

#[cfg(feature = "failpoints")]
mod enabled {
    use std::fs::File;
    use std::path::Path;

    /// The environment variable that names the folder of marks: one file for each time that a place
    /// killed a process, so that events before a kill can be told from those after the restart.
    pub const MARKS: &str = "FAILPOINT_MARKS";

    /// Reads the environment variable FAILPOINTS: with `git-after-keep=return(3);hook-after-row=return`
    /// the first place kills three times, over all processes that share the folder of marks, and the
    /// other once.
    pub fn set_up() {
        // The scenario must last as long as the process.
        std::mem::forget(fail::FailScenario::setup());
    }

    /// Called by [`here!`](crate::here).
    pub fn reached(name: &str) {
        fail::fail_point!(name, |times| kill(name, times.as_deref()))
    }

    fn kill(name: &str, times: Option<&str>) {
        let times: u32 = times.and_then(|times| times.parse().ok()).unwrap_or(1);
        let Some(marks) = std::env::var_os(MARKS) else { return };
        // The process that creates the file is the one to be killed: exactly so many kills, however
        // many processes reach the place together.
        let mark = |time| Path::new(&marks).join(format!("{name}.{time}"));
        let is_created = |time: &u32| File::options().write(true).create_new(true).open(mark(*time)).is_ok();
        if (1..=times).any(|time| is_created(&time)) {
            system::process::kill_self();
        }
    }
}
