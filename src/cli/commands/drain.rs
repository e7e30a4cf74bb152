//! `nugget drain`: the process that works a brain's queue. Hooks start it; nobody has to.

use std::process::{ExitCode, Stdio};

use brain::StatePaths;

use crate::context::{Context, spawn_drainer};
use crate::error::CliError;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave the terminal and the parent first
    #[arg(long)]
    detach: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let (config, _) = context.config_as_it_is();
        let brain = context.brain(&config)?;
        if self.detach {
            // A session of its own has no terminal that could hang it up, and no group that a
            // client could kill. It fails only where this is done already.
            let _ = rustix::process::setsid();
            failpoint::here!("drain-detached");
            spawn_drainer(Stdio::inherit(), &brain, &[])?;
            return Ok(ExitCode::SUCCESS);
        }
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let _logs = context.log_to_file(&places);
        let room = queue::lock_from_stdin(&places.wait_lock());
        failpoint::here!("drain-with-room");
        let setup = context.setup(&config, &brain)?;
        actors::drain(&setup, room)?;
        Ok(ExitCode::SUCCESS)
    }
}
