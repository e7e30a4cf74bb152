//! `nugget-guard`: does what `nugget guard` does, and nothing else. It starts in two thirds of the time, because it has little
//! to load; the plugin's script prefers it where it lies beside `nugget`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run_guard()
}
