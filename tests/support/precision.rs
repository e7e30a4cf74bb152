//! Measures answers on brains with judged questions: how much of the text bears on the question, whether the right
//! unit comes first, and how many questions about other subjects get anything.
//!
//! What is relevant to which question was decided by reading all units of a brain for each of its questions. It is in
//! the question files: `unit` answers the question, and each of `relevant` bears on it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use brain::Brain;
use embed::Embedder;
use index::{Index, Mode, ModelLabel, Snapshot};
use retrieve::{Answer, Query, RedactOnly, render};
use serde_json::Value;

/// A brain with its questions; all paths are relative to `tests/fixtures`.
pub(crate) struct JudgedBrain {
    pub(crate) folder: &'static str,
    pub(crate) questions: &'static [&'static str],
    /// Subjects of [`UNRELATED`] that the brain has units about.
    own_subjects: &'static [&'static str],
}

/// The constants of `retrieve`'s floor were chosen with the first of them; see there.
pub(crate) const BRAINS: [JudgedBrain; 3] = [
    JudgedBrain {
        folder: "brain",
        questions: &["questions.json", "questions-short.json", "questions-linked.json"],
        own_subjects: &["cooking", "clothes"],
    },
    JudgedBrain { folder: "brain-kept", questions: &["questions-kept.json"], own_subjects: &["gardening"] },
    JudgedBrain { folder: "brain-notes", questions: &["questions-notes.json"], own_subjects: &[] },
];

/// Questions by subject.
const UNRELATED: &str = "unrelated-by-subject.json";
const NOW: &str = "2026-11-20T00:00:00Z";

/// The answer to a judged question.
pub(crate) struct JudgedAnswer {
    pub(crate) question: String,
    pub(crate) relevant: Vec<String>,
    /// The place of the right unit among all candidates, and among the units shown; 0 is the first.
    pub(crate) ranked: Option<usize>,
    pub(crate) shown: Option<usize>,
    /// The units shown, best first.
    pub(crate) units: Vec<String>,
    /// The part of the answer's text, without its first line, that belongs to relevant units; 0 for no answer.
    pub(crate) share: f64,
    pub(crate) chars: usize,
    /// The answer as it is printed.
    pub(crate) text: String,
}

/// The answers to a file of judged questions.
pub(crate) struct Judged {
    pub(crate) file: &'static str,
    pub(crate) answers: Vec<JudgedAnswer>,
}

impl Judged {
    /// The mean of all answers' shares of relevant text.
    pub(crate) fn share(&self) -> f64 {
        self.answers.iter().map(|answer| answer.share).sum::<f64>() / self.answers.len().max(1) as f64
    }

    /// How many answers have at least this share.
    pub(crate) fn with_share(&self, least: f64) -> usize {
        self.answers.iter().filter(|answer| answer.share >= least).count()
    }

    /// How many right units are within the first places, among all candidates and among those shown.
    pub(crate) fn within(&self, places: usize) -> (usize, usize) {
        let count = |place: &dyn Fn(&JudgedAnswer) -> Option<usize>| {
            self.answers.iter().filter(|answer| place(answer).is_some_and(|place| place < places)).count()
        };
        (count(&|answer| answer.ranked), count(&|answer| answer.shown))
    }

    /// The median length of an answer.
    pub(crate) fn chars(&self) -> usize {
        let mut chars: Vec<usize> = self.answers.iter().map(|answer| answer.chars).collect();
        chars.sort_unstable();
        chars.get(chars.len() / 2).copied().unwrap_or(0)
    }
}

/// What a brain answers to questions about other subjects.
pub(crate) struct Unrelated {
    pub(crate) asked: usize,
    /// The questions that got an answer, with the units shown.
    pub(crate) answered: Vec<(String, Vec<String>)>,
}

/// An indexed copy of a judged brain.
pub(crate) struct World<'e> {
    _folder: tempfile::TempDir,
    snapshot: Snapshot,
    embedder: &'e Embedder,
}

impl<'e> World<'e> {
    pub(crate) fn new(fixtures: &Path, brain: &JudgedBrain, embedder: &'e Embedder) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy_folder(&fixtures.join(brain.folder), folder.path())?;
        let brain = Brain::init(folder.path())?.brain;
        let index = Index::open(&brain.derived_folder())?;
        let label = ModelLabel { name: embedder.model_name().into(), dimensions: embedder.dimensions() };
        let plan = index.plan(&brain, &label, embedder.tokenizer(), Mode::Changed, &mut |_| {})?;
        let vectors =
            plan.texts().iter().map(|text| embedder.embed_document(text)).collect::<Result<_, _>>()?;
        let report = plan.publish(vectors)?;
        ensure!(report.problems == 0, "{} units cannot be read", report.problems);
        Ok(Self { _folder: folder, snapshot: index.pin()?, embedder })
    }

    fn query(&self, question: &str) -> Result<Query> {
        let embedding = self.embedder.embed_query(question)?;
        Ok(Query::new(question, NOW.parse()?).with_embedding(Some(embedding)))
    }

    /// The answer with the default limits, and all candidate units in their final order.
    fn ask(&self, question: &str) -> Result<(Answer, Vec<String>)> {
        let query = self.query(question)?;
        let tokenizer = self.embedder.tokenizer();
        let trace = retrieve::search(&self.snapshot, &query, tokenizer)?;
        let chunks: Vec<_> = trace.reranked.iter().map(|scored| scored.chunk).collect();
        let mut ranked: Vec<String> = Vec::new();
        for chunk in self.snapshot.chunks(&chunks)? {
            if ranked.iter().all(|unit| unit != chunk.unit.as_str()) {
                ranked.push(chunk.unit.to_string());
            }
        }
        Ok((retrieve::answer(&self.snapshot, &query, trace, None, tokenizer, &RedactOnly)?, ranked))
    }

    /// The ids of the units that an answer shows.
    pub(crate) fn units_shown(&self, question: &str) -> Result<Vec<String>> {
        Ok(self.ask(question)?.0.units.iter().map(|unit| unit.id.to_string()).collect())
    }

    /// The words of at least four letters that stand in one title only, each with its unit.
    pub(crate) fn words_of_one_title(&self) -> Result<Vec<(String, String)>> {
        let mut words: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for unit in self.snapshot.units()? {
            let title = unit.title.to_lowercase();
            let title = title.split(|c: char| !c.is_alphanumeric());
            for word in title.filter(|word| word.len() > 3 && !knowledge::text::is_stop_word(word)) {
                let units = words.entry(word.to_owned()).or_default();
                units.push(unit.id.to_string());
                units.dedup();
            }
        }
        let of_one = words.into_iter().filter(|(_, units)| units.len() == 1);
        Ok(of_one.filter_map(|(word, units)| Some((word, units.into_iter().next()?))).collect())
    }

    /// Asks the questions of a file.
    pub(crate) fn judge(&self, fixtures: &Path, file: &'static str) -> Result<Judged> {
        let questions: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(fixtures.join(file))?)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let answers = questions.iter().map(|judged| {
            let question = text(&judged["question"]).context("a question without a text")?;
            // In the file of linked questions the second unit has the answer, which the first one leads to.
            let unit = text(&judged["unit"]).or_else(|| text(&judged["answer"]));
            let unit = unit.with_context(|| format!("no unit for {question}"))?;
            let relevant: Vec<String> =
                judged["relevant"].as_array().into_iter().flatten().filter_map(text).collect();
            ensure!(relevant.contains(&unit), "{unit} is not among the relevant units for {question}");
            let (answer, ranked) = self.ask(&question)?;
            let units: Vec<String> = answer.units.iter().map(|unit| unit.id.to_string()).collect();
            let place = |units: &[String]| units.iter().position(|id| *id == unit);
            let printed = render(&answer);
            let (of_relevant, chars) = count_chars(&printed, &answer, &relevant);
            Ok(JudgedAnswer {
                ranked: place(&ranked),
                shown: place(&units),
                share: if chars == 0 { 0.0 } else { of_relevant as f64 / chars as f64 },
                chars,
                question,
                relevant,
                units,
                text: printed,
            })
        });
        Ok(Judged { file, answers: answers.collect::<Result<_>>()? })
    }

    /// Asks all questions about subjects that are not the brain's own.
    pub(crate) fn ask_unrelated(&self, fixtures: &Path, brain: &JudgedBrain) -> Result<Unrelated> {
        let subjects: BTreeMap<String, Vec<String>> =
            serde_json::from_str(&std::fs::read_to_string(fixtures.join(UNRELATED))?)?;
        let mut unrelated = Unrelated { asked: 0, answered: Vec::new() };
        let others = subjects.iter().filter(|(subject, _)| !brain.own_subjects.contains(&subject.as_str()));
        for question in others.flat_map(|(_, questions)| questions) {
            unrelated.asked += 1;
            let (answer, _) = self.ask(question)?;
            if !answer.units.is_empty() {
                let units = answer.units.iter().map(|unit| unit.id.to_string()).collect();
                unrelated.answered.push((question.clone(), units));
            }
        }
        Ok(unrelated)
    }
}

/// The characters of a printed answer that belong to relevant units, and all but those of its first line. The line
/// about units that are not shown bears on no question.
fn count_chars(printed: &str, answer: &Answer, relevant: &[String]) -> (usize, usize) {
    let (mut of_relevant, mut all) = (0, 0);
    let mut unit = None;
    let mut units = answer.units.iter();
    for line in printed.lines().skip(1).filter(|line| !line.is_empty()) {
        // A unit's own lines begin with `>`, so this is a heading of the answer.
        if line.starts_with("## ") {
            unit = units.next().map(|unit| unit.id.as_str());
        } else if line.split(' ').nth(1) == Some("more") && !line.starts_with('>') {
            unit = None;
        }
        let chars = line.chars().count();
        all += chars;
        if unit.is_some_and(|unit| relevant.iter().any(|id| id == unit)) {
            of_relevant += chars;
        }
    }
    (of_relevant, all)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
