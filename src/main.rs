//! `nugget`: parses, opens a door, says how it ended. Everything else lives in the crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
