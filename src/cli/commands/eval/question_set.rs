//! Reads a question set: items, questions and relevance judgements.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CliError, MISSING};

#[derive(Debug)]
pub(super) struct QuestionSet {
    pub(super) items: Vec<Item>,
    /// The questions that have an answer.
    pub(super) questions: Vec<Question>,
    pub(super) warnings: Vec<String>,
    /// The ids of judged items that are not in the corpus, numbered after the items: no search finds them.
    absent: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Item {
    #[serde(deserialize_with = "required_id")]
    pub(super) id: String,
    pub(super) text: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default, deserialize_with = "optional_id")]
    pub(super) doc: Option<String>,
    #[serde(default)]
    pub(super) position: Option<i64>,
    #[serde(default, deserialize_with = "optional_id")]
    pub(super) scope: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Question {
    #[serde(deserialize_with = "required_id")]
    pub(super) id: String,
    pub(super) text: String,
    #[serde(default, deserialize_with = "optional_id")]
    pub(super) scope: Option<String>,
    /// The grade of each relevant item, by the item's number.
    #[serde(skip)]
    pub(super) relevant: BTreeMap<usize, f64>,
}

impl QuestionSet {
    /// Reads the folder of a set.
    ///
    /// # Errors
    /// When a file is missing or malformed, with the line, or when no question has an answer.
    pub(super) fn read(folder: &Path) -> Result<Self, CliError> {
        if !folder.is_dir() {
            return Err(CliError::new(format!("{} is not a folder", folder.display()))
                .code(MISSING)
                .hint("give the folder that holds corpus.jsonl, queries.jsonl and qrels.tsv"));
        }
        let [corpus, queries, qrels] =
            ["corpus.jsonl", "queries.jsonl", "qrels.tsv"].map(|name| folder.join(name));
        let items = json_lines::<Item>(&corpus)?;
        let mut numbers = number_ids(&corpus, items.iter().map(|(line, item)| (*line, &item.id)))?;
        let mut all = json_lines::<Question>(&queries)?;
        let places = number_ids(&queries, all.iter().map(|(line, question)| (*line, &question.id)))?;
        let mut absent: Vec<String> = Vec::new();
        let (mut unknown_questions, mut unknown_items): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (line, text) in lines(&qrels)? {
            let columns: Vec<&str> = text.split('\t').map(str::trim).collect();
            let [query, item, grade] = columns[..] else {
                return Err(malformed(&qrels, line, "expected three columns: query, item, grade"));
            };
            let Ok(grade) = grade.parse::<f64>() else {
                if line == 1 && grade == "score" {
                    continue;
                }
                return Err(malformed(&qrels, line, &format!("{grade:?} is not a grade")));
            };
            let Some(&place) = places.get(query) else {
                unknown_questions.push(line);
                continue;
            };
            if grade.is_finite() && grade > 0.0 {
                let next = items.len() + absent.len();
                let number = *numbers.entry(item.to_owned()).or_insert_with(|| {
                    absent.push(item.to_owned());
                    unknown_items.push(line);
                    next
                });
                all[place].1.relevant.insert(number, grade);
            }
        }
        let mut warnings = Vec::new();
        let mut warn = |path: &Path, lines: &[usize], what: &str| {
            if let Some(first) = lines.first() {
                warnings.push(format!("{}:{first}: {what} ({} in all)", path.display(), lines.len()));
            }
        };
        let (unanswered, all): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, question)| question.relevant.is_empty());
        let without: Vec<usize> = unanswered.into_iter().map(|(line, _)| line).collect();
        warn(&queries, &without, "this question has no answer and is skipped");
        warn(&qrels, &unknown_items, "this item is not in the corpus and counts as not found");
        warn(&qrels, &unknown_questions, "unknown question");
        if items.is_empty() || all.is_empty() {
            let empty = if items.is_empty() { &corpus } else { &qrels };
            return Err(CliError::new(format!("{} has nothing to evaluate with", empty.display())));
        }
        let items = items.into_iter().map(|(_, item)| item).collect();
        Ok(Self {
            items,
            questions: all.into_iter().map(|(_, question)| question).collect(),
            warnings,
            absent,
        })
    }

    /// The id of an item, also of one that is not in the corpus.
    pub(super) fn item_id(&self, item: usize) -> &str {
        self.items.get(item).map_or_else(|| self.absent[item - self.items.len()].as_str(), |item| &item.id)
    }
}

/// The place of each id in the file, whose lines are given with their ids.
fn number_ids<'a>(
    path: &Path,
    ids: impl Iterator<Item = (usize, &'a String)>,
) -> Result<HashMap<String, usize>, CliError> {
    let mut numbers = HashMap::new();
    for (number, (line, id)) in ids.enumerate() {
        if numbers.insert(id.clone(), number).is_some() {
            return Err(malformed(path, line, &format!("duplicate id {id:?}")));
        }
    }
    Ok(numbers)
}

/// The lines that are not empty, numbered from 1.
fn lines(path: &Path) -> Result<Vec<(usize, String)>, CliError> {
    let text = fs::read_to_string(path).map_err(|error| {
        CliError::new(format!("failed to read {}: {error}", path.display()))
            .code(MISSING)
            .hint("a set is a folder with corpus.jsonl, queries.jsonl and qrels.tsv")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.to_owned()));
    Ok(lines.filter(|(_, line)| !line.trim().is_empty()).collect())
}

fn json_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<(usize, T)>, CliError> {
    let parse = |(at, line): (usize, String)| {
        let parsed = serde_json::from_str(&line).map_err(|error| malformed(path, at, &error.to_string()))?;
        Ok((at, parsed))
    };
    lines(path)?.into_iter().map(parse).collect()
}

fn malformed(path: &Path, line: usize, what: &str) -> CliError {
    CliError::new(format!("{}:{line}: {what}", path.display()))
}

/// Deserialises an id, which may also be a number.
fn required_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    optional_id(deserializer)?.ok_or_else(|| serde::de::Error::custom("the id is null"))
}

fn optional_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        other => Err(serde::de::Error::custom(format!("expected a string or a number, not {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &str =
        "{\"id\": \"a\", \"text\": \"x\"}\n{\"id\": 7, \"text\": \"y\", \"doc\": \"d\", \"position\": 1}\n";
    const QUERIES: &str =
        "{\"id\": \"q\", \"text\": \"x?\"}\n{\"id\": \"r\", \"text\": \"z?\", \"scope\": \"s\"}\n";

    fn read(corpus: &str, queries: &str, qrels: &str) -> Result<QuestionSet, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels.tsv", qrels)] {
            if text != "absent" {
                fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let here = format!("{}/", folder.path().display());
        QuestionSet::read(folder.path()).map_err(|error| format!("{error:?}").replace(&here, ""))
    }

    #[test]
    fn a_set_is_read_with_warnings() {
        let set =
            read(CORPUS, QUERIES, "query-id\tcorpus-id\tscore\nq\t7\t1\nq\ta\t0\nq\tgone\t2\n\n").unwrap();
        assert_eq!((set.items.len(), set.questions.len()), (2, 1));
        assert_eq!(set.questions[0].relevant, BTreeMap::from([(1, 1.0), (2, 2.0)]));
        assert_eq!((set.item_id(1), set.item_id(2)), ("7", "gone"));
        let warnings: Vec<&str> =
            set.warnings.iter().filter_map(|warning| warning.rsplit('/').next()).collect();
        let expected = [
            "queries.jsonl:2: this question has no answer and is skipped (1 in all)",
            "qrels.tsv:4: this item is not in the corpus and counts as not found (1 in all)",
        ];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let check = |corpus: &str, queries: &str, qrels: &str, expected: &str| {
            let error = read(corpus, queries, qrels).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("absent", QUERIES, "q\ta\t1\n", "failed to read corpus.jsonl");
        check(CORPUS, QUERIES, "absent", "failed to read qrels.tsv");
        check("{\"id\": \"a\", \"text\": \"x\"}\n{oops\n", QUERIES, "q\ta\t1\n", "corpus.jsonl:2: ");
        check("{\"id\": \"a\"}\n", QUERIES, "q\ta\t1\n", "corpus.jsonl:1: missing field `text`");
        check(
            "{\"id\": 1, \"text\": \"\"}\n{\"id\": \"1\", \"text\": \"\"}",
            QUERIES,
            "",
            "corpus.jsonl:2: duplicate id",
        );
        check(CORPUS, QUERIES, "q\ta\n", "qrels.tsv:1: expected three columns");
        check(CORPUS, QUERIES, "q\ta\t1\nq\ta\tvery\n", "qrels.tsv:2: ");
        check("", QUERIES, "q\ta\t1\n", "corpus.jsonl has nothing");
        check(CORPUS, QUERIES, "", "qrels.tsv has nothing");
    }
}
