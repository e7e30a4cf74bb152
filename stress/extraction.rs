//! Measures how sessions are read, on transcripts of your own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use extract::{Known, Limits, build_questions};
use serde_json::{Value, json};

#[derive(clap::Subcommand)]
pub(crate) enum Extraction {
    /// Count the tokens that a model would be asked about each session; asks no model
    Tokens(TokensArgs),
}

#[derive(clap::Args)]
pub(crate) struct TokensArgs {
    /// Folders of transcripts, or transcripts
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(command: &Extraction) -> Result<Value> {
    match command {
        Extraction::Tokens(args) => count_tokens(args),
    }
}

/// Counts the estimated tokens of all questions, with the instructions and the tool that each of them carries.
fn count_tokens(args: &TokensArgs) -> Result<Value> {
    let mut sessions: Vec<usize> = Vec::new();
    let mut questions = 0;
    for path in transcripts(&args.paths)? {
        let reading = transcript::read(&path, &|_| false)?;
        // A model is not asked about a session in which nobody spoke.
        if reading.conversation.human_words().next().is_none() {
            continue;
        }
        let asked = build_questions(&reading.conversation, &Known::default(), Limits::default());
        questions += asked.len();
        sessions.push(asked.iter().map(extract::Question::estimated_tokens).sum());
    }
    ensure!(!sessions.is_empty(), "there is no session in which anybody spoke");
    sessions.sort_unstable();
    let total: usize = sessions.iter().sum();
    Ok(json!({
        "sessions": sessions.len(),
        "questions": questions,
        "tokens_total": total,
        "tokens_mean": total / sessions.len(),
        "tokens_median": sessions[sessions.len() / 2],
        "tokens_max": sessions.last(),
    }))
}

/// The transcripts among the paths and in the folders among them, in order.
fn transcripts(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        for entry in entries {
            found.push(entry?.path());
        }
    }
    found.retain(|path: &PathBuf| Path::extension(path).is_some_and(|extension| extension == "jsonl"));
    found.sort();
    Ok(found)
}
