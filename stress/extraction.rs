//! Measures how sessions are read: by the offline extraction, for training its scorer and for judging what it proposes,
//! and by a model, in tokens.
//!
//! Real sessions are cut from public repositories by `stress/extraction/sessions.py`; nothing of them is stored here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use extract::{
    AlsoAsked, Backend, BackendAnswer, BackendError, Cost, ExtractionContext, Extractor, FallbackExtractor,
    HeuristicExtractor, Known, Limits, ModelExtractor, Question, build_questions,
};
use serde_json::{Value, json};
use transcript::Conversation;

#[derive(clap::Subcommand)]
pub(crate) enum Extraction {
    /// Count the tokens that a model would be asked about each session; asks no model
    Tokens(Sessions),
    /// Write each question that a model would be asked to DIR/SESSION.N.txt, to be answered in DIR/SESSION.N.json
    Questions {
        /// Where to write them
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        sessions: Sessions,
    },
    /// Print everything that the detectors find, with features and scores, as lines of JSON
    Candidates(Sessions),
    /// Print what is proposed of each session, as lines of JSON
    Propose {
        /// Read with the model's answers in this folder instead of the rules; sessions without one are left out
        #[arg(long, value_name = "DIR")]
        answers: Option<PathBuf>,
        #[command(flatten)]
        sessions: Sessions,
    },
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
        Extraction::Questions { out, sessions } => {
            std::fs::create_dir_all(out)?;
            sessions.for_each(|name, conversation| {
                for (number, question) in questions(conversation).iter().enumerate() {
                    let Question { system, tool, user, .. } = question;
                    let text =
                        format!("{system}\n\nThe input of `{}`:\n{}\n\n{user}\n", tool.name, tool.schema);
                    std::fs::write(out.join(format!("{name}.{}.txt", number + 1)), text)?;
                }
                Ok(())
            })?;
        }
        Extraction::Propose { answers, sessions } => {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            sessions.for_each(|name, conversation| {
                let extractor: Box<dyn Extractor> = match answers {
                    None => Box::new(HeuristicExtractor),
                    Some(folder) => match RecordedAnswers::read(folder, name, conversation)? {
                        None => return Ok(()),
                        Some(answers) => {
                            let model = ModelExtractor::new(Arc::new(answers), limits());
                            Box::new(FallbackExtractor::strict(Some(model), "no model"))
                        }
                    },
                };
                let context = ExtractionContext::default();
                let extraction = runtime.block_on(extractor.extract(conversation, &context))?;
                let mut line = serde_json::to_value(extraction)?;
                if answers.is_some() {
                    line["tokens"] = tokens(&questions(conversation)).into();
                }
                print_line(name, line);
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

/// The questions that a model would be asked about a session; none if nobody spoke in it.
fn questions(conversation: &Conversation) -> Vec<Question> {
    match conversation.human_words().next() {
        None => Vec::new(),
        Some(_) => build_questions(conversation, &Known::default(), limits()),
    }
}

/// As by default, where sessions are archived.
fn limits() -> Limits {
    Limits { also_asked: AlsoAsked { records: true, topics: false }, ..Limits::default() }
}

fn tokens(questions: &[Question]) -> usize {
    questions.iter().map(Question::estimated_tokens).sum()
}

/// What a model answered about one session, by the question.
struct RecordedAnswers(HashMap<String, Value>);

impl RecordedAnswers {
    /// Reads the answer to each part of a session; `None` if one of them is missing.
    fn read(folder: &Path, session: &str, conversation: &Conversation) -> Result<Option<Self>> {
        let mut answers = HashMap::new();
        for (number, question) in questions(conversation).into_iter().enumerate() {
            let path = folder.join(format!("{session}.{}.json", number + 1));
            let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
            let answer = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            answers.insert(question.user, answer);
        }
        Ok((!answers.is_empty()).then_some(Self(answers)))
    }
}

#[async_trait]
impl Backend for RecordedAnswers {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn model(&self) -> &str {
        "recorded"
    }

    async fn ask(&self, question: &Question) -> BackendAnswer {
        let none = || BackendError::Permanent("there is no recorded answer to this".to_owned());
        BackendAnswer { cost: Cost::Free, result: self.0.get(&question.user).cloned().ok_or_else(none) }
    }
}

/// Counts the estimated tokens of all questions, with the instructions and the tool that each of them carries.
fn count_tokens(args: &Sessions) -> Result<Value> {
    let mut sessions: Vec<usize> = Vec::new();
    let mut count = 0;
    args.for_each(|name, conversation| {
        let questions = questions(conversation);
        if !questions.is_empty() {
            count += questions.len();
            sessions.push(tokens(&questions));
            print_line(name, json!({ "tokens": tokens(&questions) }));
        }
        Ok(())
    })?;
    ensure!(!sessions.is_empty(), "there is no session in which anybody spoke");
    sessions.sort_unstable();
    let total: usize = sessions.iter().sum();
    Ok(json!({
        "sessions": sessions.len(),
        "questions": count,
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
