//! `nugget completions`: a script for the shell.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::fault::Fault;
use crate::output;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  nugget completions bash > ~/.local/share/bash-completion/completions/nugget"
)]
pub(crate) struct Arguments {
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Fault> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "nugget", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
