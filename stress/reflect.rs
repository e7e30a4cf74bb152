//! Makes a brain of 300 invented units with 60 planted defects, lets the reflection pass find them with vectors of the
//! built-in model, and prints what was found, missed and falsely found; or does the same through the real binary, merges
//! what it proposes, and runs it again.

mod brain;
mod corpus;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use knowledge::{Document, UnitId};
use reflect::{Change, Finding, Kind, Observed, Settings};
use serde_json::{Value, json};

use brain::{Counts, Defect, Made, MadeBrain};
use corpus::Corpus;

use crate::sandbox::Sandbox;

/// Computes the vector of each text once.
struct Vectors {
    embedder: embed::Embedder,
    known: HashMap<String, Vec<f32>>,
}

impl Vectors {
    fn embed(&mut self, made: &[Made]) -> Result<Vec<Vec<f32>>> {
        let texts = made.iter().map(|made| reflect::text_to_compare(&made.unit));
        texts.map(|text| self.vector(text)).collect()
    }

    fn vector(&mut self, text: String) -> Result<Vec<f32>> {
        if let Some(vector) = self.known.get(&text) {
            return Ok(vector.clone());
        }
        let vector = self.embedder.embed_document(&text)?.vector;
        self.known.insert(text, vector.clone());
        Ok(vector)
    }
}

#[derive(clap::Args)]
pub(crate) struct ReflectArgs {
    /// How many brains are made of each part, with the seeds from 0 on
    #[arg(long, default_value_t = 3)]
    brains: u64,
    /// Only this part: the half that rules were tuned on, the other one, pairs that were written later, or all of it
    #[arg(long, value_parser = ["tuned", "held-out", "unseen", "whole"])]
    part: Option<String>,
    /// Find the defects of the whole brain with `nugget reflect`, merge the branch, and run it again
    #[arg(long)]
    through_binary: bool,
}

/// The bar of a whole brain.
const FOUND_MIN: usize = 50;
const FALSE_MAX: usize = 5;

pub(crate) fn run(args: &ReflectArgs, binary: &Path) -> Result<Value> {
    let tuned = Corpus::parse(include_str!("reflect/tuned.txt"));
    let held_out = Corpus::parse(include_str!("reflect/held-out.txt"));
    let unseen = Corpus::parse(include_str!("reflect/unseen.txt"));
    let pairs_only = Counts { units: 0, restated: 99, copies: 0, opposed: 99, dangling: 0, unused: 0 };
    let (first, second) = ((&tuned, Counts::share(0)), (&held_out, Counts::share(1)));
    if args.through_binary {
        return through_binary(brain::make(&[first, second], 0, Timestamp::now()), binary);
    }
    let mut vectors =
        Vectors { embedder: embed::Embedder::load(&embed::Settings::default())?, known: HashMap::new() };
    let mut parts = serde_json::Map::new();
    for (name, made_of) in [
        ("tuned", vec![first]),
        ("held-out", vec![second]),
        ("unseen", vec![(&unseen, pairs_only)]),
        ("whole", vec![first, second]),
    ] {
        if args.part.as_deref().is_some_and(|only| name != only) {
            continue;
        }
        let mut tallies = Vec::new();
        for seed in 0..args.brains {
            tallies.push(report(
                &format!("{name}, seed {seed}"),
                brain::make(&made_of, seed, now()?),
                &mut vectors,
            )?);
        }
        let of = |value: fn(&Tally) -> usize| tallies.iter().map(value).collect::<Vec<_>>();
        let found = of(|tally| tally.found);
        parts.insert(
            name.to_owned(),
            json!({
                "planted": of(|tally| tally.planted), "found": found, "false": of(|tally| tally.wrong),
                "new_in_second_pass": of(|tally| tally.again),
            }),
        );
        let is_held = name != "whole"
            || tallies.iter().all(|tally| tally.found >= FOUND_MIN && tally.wrong <= FALSE_MAX);
        ensure!(is_held, "the bar of {FOUND_MIN} found and {FALSE_MAX} false is missed");
    }
    Ok(parts.into())
}

/// What was found in one brain.
struct Tally {
    planted: usize,
    found: usize,
    wrong: usize,
    again: usize,
}

/// The same by the program: the brain's files, the records of the archive, one branch, its merge, and another pass.
fn through_binary(made: MadeBrain, binary: &Path) -> Result<Value> {
    let sandbox = Sandbox::new(binary)?;
    for made in &made.units {
        let path = sandbox.brain().join(&made.path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, &made.text)?;
    }
    sandbox.git(&["add", "."])?;
    sandbox.git(&["commit", "-qm", "units"])?;
    // Makes the state folder and the archive.
    sandbox.run_ok(&["reflect", "--dry-run"])?;
    sandbox.run_ok(&["sessions", "sync"])?;
    record(&sandbox, &made)?;
    let pass = || -> Result<Value> { Ok(serde_json::from_str(&sandbox.run_ok(&["reflect", "--json"])?)?) };
    let (mut branches, mut reported) = (0, Vec::new());
    // A branch has as many findings as a person reviews at a sitting.
    loop {
        let found = pass()?;
        let findings = found["findings"].as_array().context("no findings")?.clone();
        reported.extend(findings);
        if found["branch"].is_null() {
            break;
        }
        branches += 1;
        ensure!(branches <= 8, "there is something new in each pass");
        sandbox.run_ok(&["review", "merge", "--all"])?;
        let left: Value = serde_json::from_str(&sandbox.run_ok(&["review", "--json"])?)?;
        ensure!(
            left["items"].as_array().is_some_and(Vec::is_empty),
            "not everything could be merged: {left}"
        );
    }
    let last = pass()?;
    ensure!(last["findings"].as_array().is_some_and(Vec::is_empty), "found again: {last}");
    let is_found = |defect: &&Defect| {
        let (kind, ids) = in_report(defect);
        reported.iter().any(|finding| {
            let units: Vec<&str> =
                finding["units"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            finding["kind"].as_str().is_some_and(|found| found.ends_with(kind))
                && ids.iter().all(|id| units.contains(id))
        })
    };
    let found = made.defects.iter().filter(is_found).count();
    let counted = ["duplicate", "contradiction", "dangling link", "unused"];
    let of_kind = |kind: &str| {
        reported
            .iter()
            .filter(|finding| finding["kind"].as_str().is_some_and(|found| found.ends_with(kind)))
            .count()
    };
    let all: usize = counted.iter().map(|kind| of_kind(kind)).sum();
    ensure!(found >= FOUND_MIN, "only {found} were found");
    ensure!(all <= found + FALSE_MAX, "{} are false", all - found);
    Ok(json!({
        "units": made.units.len(), "planted": made.defects.len(), "found": found, "false": all - found,
        "others": reported.len() - all, "branches_merged": branches, "new_in_another_pass": 0,
    }))
}

/// The kind and the ids by which the program reports a defect.
fn in_report(defect: &Defect) -> (&'static str, Vec<&str>) {
    match defect {
        Defect::Duplicate(one, other) => ("duplicate", vec![one.as_str(), other.as_str()]),
        Defect::Contradiction(one, other) => ("contradiction", vec![one.as_str(), other.as_str()]),
        Defect::Dangling(from, _) => ("dangling link", vec![from.as_str()]),
        Defect::Unused(unit) => ("unused", vec![unit.as_str()]),
    }
}

/// Writes into the archive which sessions were shown and used what.
fn record(sandbox: &Sandbox, made: &MadeBrain) -> Result<()> {
    let archive = sandbox.path("state/nugget/archive.db");
    let brain = ::brain::StatePaths::in_folder(sandbox.state()?).key();
    let database = rusqlite::Connection::open(archive)?;
    let first = Timestamp::now() - jiff::SignedDuration::from_hours(400 * 24);
    let session = |number: u32| i64::from(number) + 1;
    for number in 0..200 {
        database.execute(
            "INSERT INTO sessions (id, session, source, project, path, cwd, transcript, archived_ms)
             VALUES (?1, ?2, 'claude-code', 'p', '/p', '/p', '/gone', 0)",
            rusqlite::params![session(number), format!("session-{number}")],
        )?;
    }
    let mut event = 0;
    let mut show = |item: &str, number: u32, at: Timestamp| -> Result<()> {
        event += 1;
        database.execute(
            "INSERT INTO shown (event, brain, project, session, source, kind, item, rank, propensity, tokens,
                 is_withheld, at_ms)
             VALUES (?1, ?2, 'p', ?3, 'tool', 'unit', ?4, 0, 1, 10, 0, ?5)",
            rusqlite::params![event, brain, session(number), item, at.as_millisecond()],
        )?;
        Ok(())
    };
    show("recording-begins", 0, first)?;
    for made in &made.units {
        let Some(recall) = made.recall else { continue };
        for number in 0..recall.shown {
            show(made.unit.id.as_str(), number, recall.last)?;
        }
    }
    Ok(())
}

fn now() -> Result<Timestamp> {
    Ok(Timestamp::from_second(NOW)?)
}

/// A moment in November 2026, for which the brain is made.
const NOW: i64 = 1_795_000_000;

fn settings() -> Settings {
    let since = Timestamp::from_second(NOW - 400 * 86_400).ok();
    Settings { recording_since: since, ..Settings::default() }
}

fn report(name: &str, brain: MadeBrain, vectors: &mut Vectors) -> Result<Tally> {
    let MadeBrain { units, defects } = brain;
    let first = vectors.embed(&units)?;
    let begun = std::time::Instant::now();
    let found = reflect::find(&observed(&units, &first), &settings(), now()?);
    let took = begun.elapsed();
    let expected: BTreeMap<Defect, &Finding> =
        found.iter().filter_map(|finding| Some((defect(finding)?, finding))).collect();
    let count = |kind: &str, defects: &mut dyn Iterator<Item = &Defect>| {
        defects.filter(|defect| kind_of(defect) == kind).count()
    };
    println!("== {name}: {} units, {} defects, {} ms", units.len(), defects.len(), took.as_millis());
    for kind in ["duplicate", "contradiction", "dangling", "unused"] {
        let planted = count(kind, &mut defects.iter());
        let right = count(kind, &mut defects.iter().filter(|defect| expected.contains_key(defect)));
        let wrong = count(kind, &mut expected.keys().filter(|defect| !defects.contains(defect)));
        println!("{kind:<14} found {right:>2} of {planted:>2}, false {wrong}");
    }
    let right = defects.iter().filter(|defect| expected.contains_key(defect)).count();
    let wrong = expected.keys().filter(|defect| !defects.contains(defect)).count();
    let others = |kind| found.iter().filter(|finding| finding.kind == kind).count();
    println!(
        "total          found {right} of {}, false {wrong}; links {}, rewrites {}",
        defects.len(),
        others(Kind::Link),
        others(Kind::Rewrite)
    );
    for defect in defects.iter().filter(|defect| !expected.contains_key(defect)) {
        println!("  missed {defect:?}");
    }
    for (_, finding) in expected.iter().filter(|(defect, _)| !defects.contains(defect)) {
        println!("  false  {}: {}", finding.kind, finding.reason);
    }
    let again = second_pass(&units, &first, &found, vectors)?;
    println!("second pass    {} new", again.len());
    for finding in &again {
        println!("  new    {}: {}", finding.kind, finding.reason);
    }
    Ok(Tally { planted: defects.len(), found: right, wrong, again: again.len() })
}

fn observed<'a>(units: &'a [Made], vectors: &'a [Vec<f32>]) -> Vec<Observed<'a>> {
    let observed = units.iter().zip(vectors).map(|(made, vector)| Observed {
        unit: &made.unit,
        path: &made.path,
        text: &made.text,
        vector: Some(vector),
        recall: made.recall,
        stale: None,
    });
    observed.collect()
}

/// What is found after everything was carried out.
fn second_pass(
    units: &[Made],
    first: &[Vec<f32>],
    found: &[Finding],
    vectors: &mut Vectors,
) -> Result<Vec<Finding>> {
    let changes = reflect::apply(found, &observed(units, first), &settings(), now()?);
    let recall: BTreeMap<&UnitId, _> = units.iter().map(|made| (&made.unit.id, made.recall)).collect();
    let mut files: BTreeMap<String, String> =
        units.iter().map(|made| (made.path.clone(), made.text.clone())).collect();
    for change in changes {
        match change.text {
            Some(text) => drop(files.insert(change.path, text)),
            None => drop(files.remove(&change.path)),
        }
    }
    let mut after = Vec::new();
    for (path, text) in files {
        let unit = Document::parse(text.as_str())?.unit(&path)?;
        let recall = recall.get(&unit.id).copied().flatten();
        after.push(Made { path, text, unit, recall });
    }
    let second = vectors.embed(&after)?;
    let again = reflect::find(&observed(&after, &second), &settings(), now()?);
    let known: BTreeSet<&str> = found.iter().map(Finding::key).collect();
    Ok(again.into_iter().filter(|finding| !known.contains(finding.key())).collect())
}

fn kind_of(defect: &Defect) -> &'static str {
    match defect {
        Defect::Duplicate(..) => "duplicate",
        Defect::Contradiction(..) => "contradiction",
        Defect::Dangling(..) => "dangling",
        Defect::Unused(..) => "unused",
    }
}

/// The defect that a finding names; `None` for kinds that are right by construction.
fn defect(finding: &Finding) -> Option<Defect> {
    let pair = |one: &UnitId, other: &UnitId| (one.min(other).clone(), one.max(other).clone());
    Some(match &finding.change {
        Change::Merge { from, into } => {
            let (one, other) = pair(from, into);
            Defect::Duplicate(one, other)
        }
        Change::Supersede { old: one, new: other } | Change::Contradict { one, other } => {
            let (one, other) = pair(one, other);
            Defect::Contradiction(one, other)
        }
        Change::Unlink { from, to } => Defect::Dangling(from.clone(), to.clone()),
        Change::Archive { unit } => Defect::Unused(unit.clone()),
        Change::Expire { .. } | Change::Promote { .. } | Change::Link { .. } | Change::Rewrite { .. } => {
            return None;
        }
    })
}
