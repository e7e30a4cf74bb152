//! Reads a set: its items, its questions and what answers them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CliError, MISSING};

#[derive(Debug)]
pub(super) struct Set {
    pub(super) items: Vec<Item>,
    /// Those that have an answer.
    pub(super) queries: Vec<Query>,
    pub(super) warnings: Vec<String>,
    /// Items that are judged and are not there, numbered on from the last item: nothing can find them.
    absent: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Item {
    #[serde(deserialize_with = "name")]
    pub(super) id: String,
    pub(super) text: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default, deserialize_with = "maybe_name")]
    pub(super) doc: Option<String>,
    #[serde(default)]
    pub(super) position: Option<i64>,
    #[serde(default, deserialize_with = "maybe_name")]
    pub(super) scope: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Query {
    #[serde(deserialize_with = "name")]
    pub(super) id: String,
    pub(super) text: String,
    #[serde(default, deserialize_with = "maybe_name")]
    pub(super) scope: Option<String>,
    /// The grade of each item that answers it, by the item's number.
    #[serde(skip)]
    pub(super) relevant: BTreeMap<usize, f64>,
}

impl Set {
    pub(super) fn read(folder: &Path) -> Result<Self, CliError> {
        if !folder.is_dir() {
            return Err(CliError::new(format!("{} is no folder", folder.display()))
                .code(MISSING)
                .hint("give the folder that holds corpus.jsonl, queries.jsonl and qrels.tsv"));
        }
        let [corpus, queries, qrels] =
            ["corpus.jsonl", "queries.jsonl", "qrels.tsv"].map(|name| folder.join(name));
        let mut items: Vec<Item> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for (line, item) in json_lines::<Item>(&corpus)? {
            if numbers.insert(item.id.clone(), items.len()).is_some() {
                return Err(malformed(&corpus, line, &format!("the id {:?} is there twice", item.id)));
            }
            items.push(item);
        }
        let (mut asked, mut asked_lines): (Vec<Query>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut places: HashMap<String, usize> = HashMap::new();
        for (line, query) in json_lines::<Query>(&queries)? {
            if places.insert(query.id.clone(), asked.len()).is_some() {
                return Err(malformed(&queries, line, &format!("the id {:?} is there twice", query.id)));
            }
            asked.push(query);
            asked_lines.push(line);
        }
        let mut absent: Vec<String> = Vec::new();
        let (mut of_nobody, mut of_nothing): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (line, text) in lines(&qrels)? {
            let columns: Vec<&str> = text.split('\t').map(str::trim).collect();
            let [query, item, grade] = columns[..] else {
                return Err(malformed(&qrels, line, "wanted three columns: query, item, grade"));
            };
            let Ok(grade) = grade.parse::<f64>() else {
                if line == 1 && grade == "score" {
                    continue;
                }
                return Err(malformed(&qrels, line, &format!("{grade:?} is no grade")));
            };
            let Some(&place) = places.get(query) else {
                of_nobody.push(line);
                continue;
            };
            if grade.is_finite() && grade > 0.0 {
                let next = items.len() + absent.len();
                let number = *numbers.entry(item.to_owned()).or_insert_with(|| {
                    absent.push(item.to_owned());
                    of_nothing.push(line);
                    next
                });
                asked[place].relevant.insert(number, grade);
            }
        }
        let mut warnings = Vec::new();
        let mut warn = |path: &Path, lines: &[usize], what: &str| {
            if let Some(first) = lines.first() {
                warnings.push(format!("{}:{first}: {what} ({} in all)", path.display(), lines.len()));
            }
        };
        let unanswered = |query: &Query| query.relevant.is_empty();
        let without: Vec<usize> =
            (0..asked.len()).filter(|&at| unanswered(&asked[at])).map(|at| asked_lines[at]).collect();
        asked.retain(|query| !unanswered(query));
        warn(&queries, &without, "this question has no answer and is left out");
        warn(&qrels, &of_nothing, "this item is not in the corpus and counts as not found");
        warn(&qrels, &of_nobody, "there is no such question");
        if items.is_empty() || asked.is_empty() {
            let empty = if items.is_empty() { &corpus } else { &qrels };
            return Err(CliError::new(format!("{} has nothing to evaluate with", empty.display())));
        }
        Ok(Self { items, queries: asked, warnings, absent })
    }

    pub(super) fn name_of(&self, item: usize) -> &str {
        self.items.get(item).map_or_else(|| self.absent[item - self.items.len()].as_str(), |item| &item.id)
    }
}

/// The lines that are not empty, with their numbers from 1.
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

/// A name may be written as a number.
fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    maybe_name(deserializer)?.ok_or_else(|| serde::de::Error::custom("the id is null"))
}

fn maybe_name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        other => Err(serde::de::Error::custom(format!("wanted a name, not {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &str =
        "{\"id\": \"a\", \"text\": \"x\"}\n{\"id\": 7, \"text\": \"y\", \"doc\": \"d\", \"position\": 1}\n";
    const QUERIES: &str =
        "{\"id\": \"q\", \"text\": \"x?\"}\n{\"id\": \"r\", \"text\": \"z?\", \"scope\": \"s\"}\n";

    fn read(corpus: &str, queries: &str, qrels: &str) -> Result<Set, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels.tsv", qrels)] {
            if text != "absent" {
                fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let here = format!("{}/", folder.path().display());
        Set::read(folder.path()).map_err(|fault| format!("{fault:?}").replace(&here, ""))
    }

    #[test]
    fn a_set_is_read() {
        let set =
            read(CORPUS, QUERIES, "query-id\tcorpus-id\tscore\nq\t7\t1\nq\ta\t0\nq\tgone\t2\n\n").unwrap();
        assert_eq!((set.items.len(), set.queries.len()), (2, 1));
        assert_eq!(set.queries[0].relevant, BTreeMap::from([(1, 1.0), (2, 2.0)]));
        assert_eq!((set.name_of(1), set.name_of(2)), ("7", "gone"));
        let told: Vec<&str> = set.warnings.iter().filter_map(|told| told.rsplit('/').next()).collect();
        let expected = [
            "queries.jsonl:2: this question has no answer and is left out (1 in all)",
            "qrels.tsv:4: this item is not in the corpus and counts as not found (1 in all)",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_wrong_with_a_set_is_told_with_file_and_line() {
        let check = |corpus: &str, queries: &str, qrels: &str, expected: &str| {
            let told = read(corpus, queries, qrels).unwrap_err();
            assert!(told.contains(expected), "{told}");
        };
        check("absent", QUERIES, "q\ta\t1\n", "failed to read corpus.jsonl");
        check(CORPUS, QUERIES, "absent", "failed to read qrels.tsv");
        check("{\"id\": \"a\", \"text\": \"x\"}\n{oops\n", QUERIES, "q\ta\t1\n", "corpus.jsonl:2: ");
        check("{\"id\": \"a\"}\n", QUERIES, "q\ta\t1\n", "corpus.jsonl:1: missing field `text`");
        check(
            "{\"id\": 1, \"text\": \"\"}\n{\"id\": \"1\", \"text\": \"\"}",
            QUERIES,
            "",
            "corpus.jsonl:2: the id",
        );
        check(CORPUS, QUERIES, "q\ta\n", "qrels.tsv:1: wanted three columns");
        check(CORPUS, QUERIES, "q\ta\t1\nq\ta\tvery\n", "qrels.tsv:2: ");
        check("", QUERIES, "q\ta\t1\n", "corpus.jsonl has nothing");
        check(CORPUS, QUERIES, "", "qrels.tsv has nothing");
    }
}
