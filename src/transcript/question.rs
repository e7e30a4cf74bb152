//! Reads the questions that the model asked the person with `AskUserQuestion`, and the answers.

use serde::Deserialize;

use crate::clean::{clean, clean_and_cut};
use crate::conversation::{ChoiceOption, EventKind};
use crate::json_scan;

/// The name of the tool.
pub const TOOL: &str = "AskUserQuestion";

const QUESTION_BYTES_MAX: usize = 4 << 10;
const OPTION_BYTES_MAX: usize = 2 << 10;
/// How the client begins what it tells the model when the person answered only some of the questions.
pub(crate) const UNFINISHED: &str = "The user wants to clarify these questions.";

/// A question as the model asked it.
#[derive(Deserialize)]
pub(crate) struct Question {
    question: String,
    #[serde(default)]
    header: String,
    #[serde(default)]
    options: Vec<QuestionOption>,
}

#[derive(Deserialize)]
struct QuestionOption {
    label: String,
    #[serde(default)]
    description: String,
}

/// What the person answered to one question.
#[derive(Default)]
struct Answer {
    text: String,
    notes: String,
}

/// The questions in a call's input.
pub(crate) fn questions(input: &[u8]) -> Vec<Question> {
    json_scan::value_of(input, "questions")
        .and_then(|questions| json_scan::parse(questions).ok())
        .unwrap_or_default()
}

/// One event for each question that was answered. `result` is the client's structured result, which some
/// transcripts lack; `text` is what the model was told.
pub(crate) fn choices(questions: &[Question], result: Option<&[u8]>, text: &str) -> Vec<EventKind> {
    questions
        .iter()
        .filter_map(|question| {
            let answer = result
                .and_then(|result| structured_answer(question, result))
                .or_else(|| unfinished_answer(question, text))
                .or_else(|| told_answer(question, questions, text))?;
            (!answer.text.is_empty() || !answer.notes.is_empty()).then(|| question.answered(answer))
        })
        .collect()
}

/// The answers to the questions of a call of `AskUserQuestion`, from its input and what the model was told.
pub fn answered_questions(input: &str, told: &str) -> Vec<EventKind> {
    choices(&questions(input.as_bytes()), None, told)
}

/// The questions in one text, for one who reads that they were asked and not answered.
pub(crate) fn asked(questions: &[Question]) -> String {
    let texts: Vec<&str> = questions.iter().map(|question| question.question.as_str()).collect();
    clean_and_cut(&texts.join("\n"), QUESTION_BYTES_MAX)
}

impl Question {
    fn answered(&self, answer: Answer) -> EventKind {
        let options = self.options.iter().map(|option| ChoiceOption {
            label: clean_and_cut(&option.label, OPTION_BYTES_MAX),
            description: clean_and_cut(&option.description, OPTION_BYTES_MAX),
        });
        EventKind::Choice {
            question: clean_and_cut(&self.question, QUESTION_BYTES_MAX),
            header: clean_and_cut(&self.header, OPTION_BYTES_MAX),
            options: options.collect(),
            answer: clean(&answer.text),
            notes: clean(&answer.notes),
        }
    }
}

fn structured_answer(question: &Question, result: &[u8]) -> Option<Answer> {
    let under = |name: &str| json_scan::value_of(json_scan::value_of(result, name)?, &question.question);
    let text = under("answers").and_then(json_scan::text);
    let notes = under("annotations")
        .and_then(|annotation| json_scan::value_of(annotation, "notes"))
        .and_then(json_scan::text);
    (text.is_some() || notes.is_some())
        .then(|| Answer { text: text.unwrap_or_default(), notes: notes.unwrap_or_default() })
}

/// The answer in the list of a person who answered some questions and wanted to talk about the others.
fn unfinished_answer(question: &Question, text: &str) -> Option<Answer> {
    let (_, list) = text.split_once(UNFINISHED)?;
    let (_, rest) = list.split_once(&format!("\n- \"{}\"\n", question.question))?;
    let rest = rest.split("\n- \"").next()?;
    let mut answer = Answer::default();
    let mut into = None;
    for line in rest.lines() {
        if let Some(text) = line.strip_prefix("  Answer: ") {
            into = Some(&mut answer.text);
            push_line(into.as_deref_mut(), text);
        } else if let Some(notes) = line.strip_prefix("  User notes: ") {
            into = Some(&mut answer.notes);
            push_line(into.as_deref_mut(), notes);
        } else if line != "  (No answer provided)" {
            push_line(into.as_deref_mut(), line);
        }
    }
    Some(answer)
}

fn push_line(text: Option<&mut String>, line: &str) {
    if let Some(text) = text {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
}

/// The answer in the sentence `User has answered your questions: "Q"="A" user notes: …, "Q2"="A2". You can now …`.
fn told_answer(question: &Question, questions: &[Question], text: &str) -> Option<Answer> {
    let (_, mut rest) = text.split_once(&format!("\"{}\"=\"", question.question))?;
    for other in questions {
        if let Some((before, _)) = rest.split_once(&format!(", \"{}\"=\"", other.question)) {
            rest = before;
        }
    }
    rest = rest.rsplit_once(". You can now continue").map_or(rest, |(before, _)| before);
    let (rest, notes) = rest.split_once("\" user notes: ").unwrap_or((rest.trim_end_matches('"'), ""));
    let answer = rest.split("\" selected preview:").next().unwrap_or_default();
    Some(Answer { text: answer.to_owned(), notes: notes.to_owned() })
}
