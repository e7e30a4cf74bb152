//! Gives every string of the Big List of Naughty Strings to every argument of every command.

use std::path::Path;

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::shared_suites::{
    command_lines, complaint, control_characters, naughty_strings, offline_environment,
};

#[derive(clap::Args)]
pub(crate) struct SuitesArgs {
    /// How many strings each argument gets, chosen by the seed [default: all]
    #[arg(long, value_name = "COUNT")]
    strings: Option<usize>,
}

pub(crate) fn run(args: &SuitesArgs, binary: &Path, seed: u64) -> Result<Value> {
    let mut sandbox = Sandbox::new(binary)?;
    sandbox.variables.extend(offline_environment(&sandbox.path("")));
    let folder = sandbox.path("elsewhere");
    std::fs::create_dir(&folder)?;
    let mut random = Rng::with_seed(seed);
    let mut strings = naughty_strings();
    strings.push(control_characters());
    let (mut runs, mut complaints) = (0, Vec::new());
    for line in command_lines(&cli::command()) {
        let fitting = strings.iter().filter(|text| line.takes(text));
        for text in random.choose_multiple(fitting, args.strings.unwrap_or(usize::MAX)) {
            let arguments = line.with(text);
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            runs += 1;
            if let Some(complaint) =
                complaint(sandbox.command(&words).current_dir(&folder), &sandbox.path(""))
            {
                complaints.push(format!("{arguments:?} {complaint}"));
            }
        }
    }
    ensure!(complaints.is_empty(), "{} of {runs} runs: {}", complaints.len(), complaints.join("\n"));
    Ok(json!({ "runs": runs }))
}
