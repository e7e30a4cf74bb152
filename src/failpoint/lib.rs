//! StatePaths at which the stress tests end a process, as SIGKILL does: no unwinding, no destructors.
//!
//! Without the feature `failpoints`, which only the stress tests set, [`here!`] is nothing at all:
//! no code, and no name in the program.

/// Names a place at which the process may be told to end.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! here {
    ($name:literal) => {};
}

/// Names a place at which the process may be told to end.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! here {
    ($name:literal) => {
        $crate::reached($name)
    };
}

#[cfg(feature = "failpoints")]
pub use on::{MARKS, reached, set_up};

#[cfg(feature = "failpoints")]
mod on {
    use std::fs::File;
    use std::path::Path;

    use rustix::process::{Signal, getpid, kill_process};

    /// The variable that names the folder of marks: one file for each time that a place was fatal,
    /// so that what comes after a restart is told from what came before.
    pub const MARKS: &str = "FAILPOINT_MARKS";

    /// Reads the variable FAILPOINTS: `git-after-keep=return(3);hook-after-row=return` makes the
    /// first place fatal three times over all processes that share the folder of marks, the other
    /// once.
    pub fn set_up() {
        // For as long as the process lives.
        std::mem::forget(fail::FailScenario::setup());
    }

    /// What [`here!`](crate::here) becomes.
    pub fn reached(name: &str) {
        fail::fail_point!(name, |times| end(name, times.as_deref()))
    }

    fn end(name: &str, times: Option<&str>) {
        let times: u32 = times.and_then(|times| times.parse().ok()).unwrap_or(1);
        let Some(marks) = std::env::var_os(MARKS) else { return };
        // Whoever makes the file is the one to die: exactly so many deaths, whoever comes at once.
        let mark = |time| Path::new(&marks).join(format!("{name}.{time}"));
        let is_ours = |time: &u32| File::options().write(true).create_new(true).open(mark(*time)).is_ok();
        if (1..=times).any(|time| is_ours(&time)) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
