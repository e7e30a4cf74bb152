//! `nugget`: parses, opens a door, says how it ended. Everything else lives in the crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    failpoint::set_up();
    cli::run(std::env::args_os())
}
