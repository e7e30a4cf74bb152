//! `nugget drain`: the worker that processes a brain's queue. Hooks and servers start it.

use std::process::Stdio;

use actors::{SettingsMark, Setup};
use brain::{Brain, Config, StatePaths};
use queue::Queue;

use crate::context::Context;
use crate::error::CliError;
use crate::spawn::spawn_worker;

#[derive(clap::Args)]
pub(crate) struct DrainArgs {
    /// Detach from the terminal and the parent process first
    #[arg(long)]
    detach: bool,
}

impl DrainArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, _) = context.config_and_errors();
        let brain = context.brain(&config)?;
        if self.detach {
            system::process::lead_own_session();
            failpoint::here!("drain-detached");
            spawn_worker(Stdio::inherit(), &brain)?;
            return Ok(());
        }
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let _logs = context.log_to_file(&places);
        work(context, &config, &brain, &places).inspect_err(|error| {
            // Nobody reads what a worker in the background prints.
            tracing::error!(error = error.line(), "the worker has ended; captures wait for the next one");
        })
    }
}

fn work(context: &Context, config: &Config, brain: &Brain, places: &StatePaths) -> Result<(), CliError> {
    let mut waiting = queue::lock_from_stdin(&places.wait_lock());
    failpoint::here!("drain-with-room");
    loop {
        let mark = SettingsMark::before_reading(config.file(), &Queue::open(&places.queue())?)?;
        let (config, errors) = context.config_and_errors();
        if !errors.is_empty() {
            // What a setting says of where a session may be sent is not known: captures wait until it is.
            return Err(CliError::from_settings(&errors));
        }
        let setup = Setup { settings: mark, ..context.background_setup(&config, brain)? };
        if !actors::drain(&setup, waiting.take())?.is_outdated {
            return Ok(());
        }
    }
}
