//! The command `nugget`. What it does is in the crates.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
