//! How much of an answer bears on its question, on three brains with judged questions.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use super::embedder;
use crate::precision::{BRAINS, World};
use crate::timing::hundredths;

#[derive(clap::Args)]
pub(crate) struct PrecisionBenchArgs {
    /// Print each question with its share of relevant text and the units shown
    #[arg(long)]
    questions: bool,
    /// Print each answer as a person or a model reads it
    #[arg(long)]
    answers: bool,
}

/// Of an answer's text, on average.
const SHARE_MIN: f64 = 0.6;
/// Of the questions about other subjects, over all brains.
const UNRELATED_MAX: f64 = 0.02;

pub(crate) fn run(args: &PrecisionBenchArgs) -> Result<Value> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let embedder = embedder()?;
    let (mut figures, mut problems) = (Map::new(), Vec::new());
    let (mut asked, mut answered) = (0, 0);
    for brain in &BRAINS {
        let world = World::new(&fixtures, brain, &embedder)?;
        let mut files = Map::new();
        for file in brain.questions {
            let judged = world.judge(&fixtures, file)?;
            for answer in judged.answers.iter().filter(|_| args.questions || args.answers) {
                println!("\n{:.2} {}", answer.share, answer.question);
                println!("     shown: {}; relevant: {}", answer.units.join(", "), answer.relevant.join(", "));
                if args.answers {
                    println!("{}", answer.text);
                }
            }
            let (first, three) = (judged.within(1), judged.within(3));
            if judged.share() < SHARE_MIN {
                problems.push(format!("{}: {:.2} of the text is relevant", judged.file, judged.share()));
            }
            let figure = json!({
                "questions": judged.answers.len(),
                "share_of_text": hundredths(judged.share()),
                "answers_with_60_percent": judged.with_share(SHARE_MIN),
                "chars_median": judged.chars(),
                "first": { "ranked": first.0, "shown": first.1 },
                "within_three": { "ranked": three.0, "shown": three.1 },
            });
            files.insert((*file).to_owned(), figure);
        }
        let unrelated = world.ask_unrelated(&fixtures, brain)?;
        for (question, units) in unrelated.answered.iter().filter(|_| args.questions || args.answers) {
            println!("unrelated, and answered: {question}: {}", units.join(", "));
        }
        let part = unrelated.answered.len() as f64 / unrelated.asked.max(1) as f64;
        asked += unrelated.asked;
        answered += unrelated.answered.len();
        let unrelated = json!({ "asked": unrelated.asked, "answered": unrelated.answered.len(), "percent": hundredths(100.0 * part) });
        figures.insert(brain.folder.to_owned(), json!({ "questions": files, "unrelated": unrelated }));
    }
    let part = answered as f64 / asked.max(1) as f64;
    if part > UNRELATED_MAX {
        problems.push(format!("{answered} of {asked} unrelated questions are answered"));
    }
    let unrelated = json!({ "asked": asked, "answered": answered, "percent": hundredths(100.0 * part), "limit": 100.0 * UNRELATED_MAX });
    ensure!(problems.is_empty(), "{}: {}", problems.join("; "), Value::Object(figures));
    Ok(json!({ "brains": figures, "unrelated": unrelated }))
}
