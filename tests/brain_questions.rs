//! A brain of twenty hand-written units, and questions that paraphrase them.

use std::path::Path;
use std::time::Duration;

use actors::{Roles, Service, Setup};
use brain::{Brain, StatePaths};
use index::Mode;
use retrieve::Query;
use serde_json::Value;

use crate::support::{Sandbox, fixture};

const DEADLINE: Duration = Duration::from_secs(120);

/// Copies the units into a sandbox's brain.
pub(crate) fn copy_brain(sandbox: &Sandbox) {
    copy_folder(&fixture("brain"), &sandbox.brain());
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to)
        } else {
            std::fs::copy(entry.path(), to).map(drop).unwrap()
        }
    }
}

fn questions(name: &str) -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

/// Removes the relations from every unit of a copy.
fn remove_relations(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_relations(&path);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut inside = false;
            let kept = text.lines().filter(|line| {
                inside = *line == "related:" || inside && line.starts_with([' ', '-']) && *line != "---";
                !inside
            });
            let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
            assert!(!kept.contains("\nrelated:"), "{}", path.display());
            std::fs::write(&path, kept).unwrap();
        }
    }
}

fn ask_all(questions: &[String]) -> Vec<Vec<(String, String)>> {
    ask(questions, true)
}

/// Asks all questions in one service and returns the units found for each, best first.
fn ask(questions: &[String], related: bool) -> Vec<Vec<(String, String)>> {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture("brain"), folder.path());
    if !related {
        remove_relations(folder.path());
    }
    let brain = Brain::init(folder.path()).unwrap().brain;
    let places = StatePaths::for_brain(brain.root());
    let setup = Setup::new(brain, places, extract::HeuristicExtractor);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = Service::start(&setup, Roles::Read).await.unwrap();
        let report = service.refresh(Mode::Changed, None, DEADLINE).await.unwrap().unwrap();
        assert_eq!((report.units, report.problems), (20, 0));
        let mut found = Vec::new();
        for question in questions {
            let query = Query::new(question, "2026-11-20T00:00:00Z".parse().unwrap());
            let answer = service.ask(query, DEADLINE).await.unwrap();
            assert!(!answer.words_only);
            found.push(
                answer.units.iter().map(|unit| (unit.id.to_string(), unit.domain.to_string())).collect(),
            );
        }
        service.shutdown().await;
        found
    })
}

#[test]
fn fifteen_paraphrased_questions_find_their_units() {
    let questions = questions("questions.json");
    assert_eq!(questions.len(), 15);
    let texts: Vec<String> =
        questions.iter().map(|question| question["question"].as_str().unwrap().to_owned()).collect();
    let found = ask_all(&texts);
    let mut ranks = Vec::new();
    for (question, units) in questions.iter().zip(&found) {
        let wanted = question["unit"].as_str().unwrap();
        let rank = units.iter().position(|(id, _)| id == wanted);
        println!("{rank:?} {wanted}: {}", question["question"]);
        ranks.push(rank);
    }
    let first = ranks.iter().filter(|rank| **rank == Some(0)).count();
    let top_three = ranks.iter().filter(|rank| rank.is_some_and(|rank| rank < 3)).count();
    assert!(first >= 14, "{first} of 15 are first");
    assert_eq!(top_three, 15, "of 15 are in the top three");
}

fn within(ranks: &[Option<usize>], places: usize) -> usize {
    ranks.iter().flatten().filter(|&&rank| rank < places).count()
}

/// One test, because an index with relations and one without answer both kinds of question.
#[test]
fn relations_add_linked_units_and_cost_other_questions_nothing() {
    let (linked, plain) = (questions("questions-linked.json"), questions("questions.json"));
    let wanted = linked.iter().map(|question| &question["answer"]);
    let wanted: Vec<&Value> = wanted.chain(plain.iter().map(|question| &question["unit"])).collect();
    let texts: Vec<String> = linked
        .iter()
        .chain(&plain)
        .map(|question| question["question"].as_str().unwrap().to_owned())
        .collect();
    // The rank of each question's unit; 0 is the first.
    let [with, without] = [true, false].map(|related| {
        let found = ask(&texts, related);
        let rank = |(wanted, units): (&&Value, &Vec<(String, String)>)| {
            units.iter().position(|(id, _)| **wanted == id.as_str())
        };
        wanted.iter().zip(&found).map(rank).collect::<Vec<_>>()
    });
    for (at, text) in texts.iter().enumerate() {
        println!("with {:?}, without {:?}: {} for {text}", with[at], without[at], wanted[at]);
    }
    let all = linked.len();
    for places in [1, 3, 5] {
        let [with, without] = [&with, &without].map(|ranks| within(&ranks[..all], places));
        println!("within {places}: {with} of {all} with, {without} without");
    }
    let [linked_with, linked_without] = [&with, &without].map(|ranks| within(&ranks[..all], 3));
    assert!(linked_with + 1 >= all && linked_with > linked_without, "{linked_with} and {linked_without}");
    for places in [1, 3] {
        assert!(within(&with[all..], places) >= within(&without[all..], places));
    }
}

#[test]
fn cache_invalidation_never_ranks_fashion_above_coding() {
    let questions = [
        "cache invalidation",
        "when do cached entries expire",
        "stale cache",
        "invalidate the cache after a write",
    ];
    for (question, units) in questions.iter().zip(ask_all(&questions.map(str::to_owned))) {
        let coding = units.iter().position(|(_, domain)| domain == "coding");
        let fashion = units.iter().position(|(_, domain)| domain == "fashion");
        println!("{question}: {units:?}");
        assert!(coding.is_some(), "{question}: {units:?}");
        assert!(
            fashion.is_none_or(|fashion| coding.is_some_and(|coding| coding < fashion)),
            "{question}: {units:?}"
        );
        if *question == "cache invalidation" {
            let last_coding = units.iter().rposition(|(_, domain)| domain == "coding");
            assert!(fashion.is_none_or(|fashion| last_coding < Some(fashion)), "{question}: {units:?}");
        }
    }
}

#[test]
fn unrelated_questions_find_nothing() {
    let texts: Vec<String> = questions("unrelated.json")
        .iter()
        .map(|question| question["question"].as_str().unwrap().to_owned())
        .collect();
    let found = ask_all(&texts);
    let wrong = found.iter().filter(|units| !units.is_empty()).count();
    println!("{wrong} of {} unrelated questions found something: {found:?}", texts.len());
    assert_eq!(wrong, 0, "of {} unrelated questions found something", texts.len());
}
