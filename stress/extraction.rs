//! Measures how sessions are read: by the offline extraction, for training its scorer and for judging what it proposes,
//! and by a model, in tokens.
//!
//! Real sessions are cut from public repositories by `stress/extraction/sessions.py`; nothing of them is stored here.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use extract::{ExtractionContext, Extractor as _, HeuristicExtractor, Known, Limits, build_questions};
use serde_json::{Value, json};
use transcript::Conversation;

#[derive(clap::Subcommand)]
pub(crate) enum Extraction {
    /// Count the tokens that a model would be asked about each session; asks no model
    Tokens(Sessions),
    /// Print everything that the detectors find, with features and scores, as lines of JSON
    Candidates(Sessions),
    /// Print what is proposed of each session, as lines of JSON
    Propose(Sessions),
}

#[derive(clap::Args)]
pub(crate) struct Sessions {
    /// Folders of transcripts, or transcripts
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(command: &Extraction) -> Result<Value> {
    match command {
        Extraction::Tokens(sessions) => return count_tokens(sessions),
        Extraction::Candidates(sessions) => sessions.for_each(|name, conversation| {
            for candidate in extract::score_candidates(conversation) {
                print_line(name, serde_json::to_value(candidate)?);
            }
            Ok(())
        })?,
        Extraction::Propose(sessions) => {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            sessions.for_each(|name, conversation| {
                let context = ExtractionContext::default();
                let extraction = runtime.block_on(HeuristicExtractor.extract(conversation, &context))?;
                print_line(name, serde_json::to_value(extraction)?);
                Ok(())
            })?;
        }
    }
    Ok(Value::Null)
}

fn print_line(session: &str, mut line: Value) {
    line["session"] = session.into();
    println!("{line}");
}

/// Counts the estimated tokens of all questions, with the instructions and the tool that each of them carries.
fn count_tokens(args: &Sessions) -> Result<Value> {
    let mut sessions: Vec<usize> = Vec::new();
    let mut questions = 0;
    args.for_each(|_, conversation| {
        // A model is not asked about a session in which nobody spoke.
        if conversation.human_words().next().is_some() {
            let asked = build_questions(conversation, &Known::default(), Limits::default());
            questions += asked.len();
            sessions.push(asked.iter().map(extract::Question::estimated_tokens).sum());
        }
        Ok(())
    })?;
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

impl Sessions {
    /// Reads each transcript in the order of the names.
    fn for_each(&self, mut visit: impl FnMut(&str, &Conversation) -> Result<()>) -> Result<()> {
        let mut files = Vec::new();
        for path in &self.paths {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
                files.push(entry?.path());
            }
        }
        files.retain(|path: &PathBuf| Path::extension(path).is_some_and(|extension| extension == "jsonl"));
        files.sort();
        for file in files {
            let reading = transcript::read(&file, &|_| false)?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            visit(&name, &reading.conversation)?;
        }
        Ok(())
    }
}
