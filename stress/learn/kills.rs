//! Learning under kills: sessions come and grow while rounds are killed, at moments by chance and, in a build with
//! failpoints, between the transactions.
//!
//! After each kill the row of weights must be whole and of a version that was there before or the next; now and then a
//! round goes through, and then every item that was shown is in the archive once, with the judgement that belongs to it,
//! and the weights are bit for bit those that all judgements give from zero.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use actors::learning::{learn_from, run_round as round};
use anyhow::{Context as _, Result, ensure};
use archive::Archive;
use fastrand::Rng;
use feedback::Weights;
use rusqlite::OptionalExtension as _;
use serde_json::{Value, json};

use crate::learning_world::{Feedback, LearningWorld, MODEL, settings_in, sync};

/// After so many kills a round goes through, and everything is checked.
const CHECK_EVERY: usize = 25;
const PROJECTS: [&str; 2] = ["shop", "bank"];
/// A round is killed within this time at first. It grows while kills come early, and shrinks when rounds end.
const KILL_WITHIN_MS: f64 = 60.0;
/// The places between transactions.
const PLACES: [(&str, &str); 5] = [
    ("learning-after-keep", "what was shown is in the archive and still in the queue"),
    ("learning-after-delete", "it is out of the queue and not judged"),
    ("learning-after-judge", "a session is judged and not learned from"),
    ("learning-before-weights", "weights are learned and not kept"),
    ("learning-after-weights", "weights are kept"),
];

/// The process that is killed: takes what is new in transcripts, and does one round.
pub(crate) fn run_round(folder: &Path) -> Result<()> {
    let settings = settings_in(folder);
    sync(&settings, folder);
    round(&settings, &|| (), &|| false)?;
    Ok(())
}

pub(crate) fn run(kills: usize, seed: u64) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let mut world = LearningWorld::new(folder.path().to_owned());
    let mut random = Rng::with_seed(seed);
    let (mut killed, mut ended, mut at_places, mut sessions) = (0, 0, 0, 0);
    let mut within = KILL_WITHIN_MS;
    let mut bodies: BTreeMap<(String, i64), Vec<u8>> = BTreeMap::new();
    let mut checks = 0;
    while killed < kills {
        change(&mut world, &mut sessions, &mut random);
        let place = if cfg!(debug_assertions) && random.f64() < 0.5 {
            Some(PLACES[random.usize(..PLACES.len())].0)
        } else {
            None
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("learn-round").arg(folder.path()).stdout(Stdio::null());
        let marks = tempfile::tempdir()?;
        if let Some(place) = place {
            command.env("FAILPOINTS", format!("{place}=1")).env("FAILPOINT_MARKS", marks.path());
        }
        let mut child = command.spawn()?;
        if place.is_none() {
            std::thread::sleep(Duration::from_secs_f64(random.f64() * within / 1000.0));
            let _ = child.kill();
        }
        let status = child.wait()?;
        if status.success() {
            ended += 1;
            within *= 0.9;
        } else {
            killed += 1;
            at_places += usize::from(place.is_some());
            within *= 1.05;
        }
        check_weights(&world, &mut bodies)?;
        if killed % CHECK_EVERY == 0 && !status.success() {
            world.sync();
            world.round();
            check_all(&world, &mut bodies).with_context(|| format!("after {killed} kills"))?;
            checks += 1;
        }
    }
    world.sync();
    world.round();
    let (questions, live) = check_all(&world, &mut bodies)?;
    Ok(json!({
        "kills": killed, "at_failpoints": at_places, "rounds_that_ended": ended, "checks": checks + 1,
        "sessions": sessions, "shown": world.expected().len(), "questions": questions, "live_orders": live,
        "versions": bodies.len(),
    }))
}

/// A session begins, asks again, or is told something by the guard, or uses something late.
fn change(world: &mut LearningWorld, sessions: &mut usize, random: &mut Rng) {
    let project = PROJECTS[random.usize(..2)];
    let feedback = if project == "shop" { Feedback::Honest } else { Feedback::Flipped };
    let some = |random: &mut Rng, sessions: usize| format!("session-{}", random.usize(..sessions));
    match random.u8(..10) {
        0..=5 => {
            world.add_session(project, &format!("session-{sessions}"), 3, feedback, random);
            *sessions += 1;
        }
        6 if *sessions > 0 => world.ask(&some(random, *sessions), feedback, random),
        7 if *sessions > 0 => world.use_late(&some(random, *sessions)),
        8 if *sessions > 0 => world.guard(&some(random, *sessions), random.bool()),
        _ => {}
    }
}

/// Every row of weights is whole, and a version has one content for good.
fn check_weights(world: &LearningWorld, bodies: &mut BTreeMap<(String, i64), Vec<u8>>) -> Result<()> {
    if !world.settings.archive.exists() {
        return Ok(());
    }
    let database = rusqlite::Connection::open(&world.settings.archive)?;
    database.busy_timeout(Duration::from_secs(5))?;
    let is_there = "SELECT 1 FROM sqlite_master WHERE name = 'weights'";
    if database.query_row(is_there, [], |_| Ok(())).optional()?.is_none() {
        return Ok(());
    }
    let sql = "SELECT scope, version, learner, body, checksum, applied_through FROM weights";
    let mut statement = database.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (scope, version): (String, i64) = (row.get(0)?, row.get(1)?);
        let (learner, mut body): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
        ensure!(learner.is_empty() == body.is_empty(), "{scope} {version}: live without weights");
        if !body.is_empty() {
            let checksum: Vec<u8> = row.get(4)?;
            Weights::from_bytes(&body, MODEL, 8).with_context(|| format!("{scope} {version}"))?;
            ensure!(body.ends_with(&checksum), "{scope} {version}: the checksum is another's");
        }
        body.extend(row.get::<_, i64>(5)?.to_le_bytes());
        let before = bodies.entry((scope.clone(), version)).or_insert_with(|| body.clone());
        ensure!(*before == body, "{scope}: version {version} has two contents");
        let later = bodies.range((scope.clone(), version + 1)..=(scope.clone(), i64::MAX)).next();
        ensure!(later.is_none(), "{scope}: version {version} came back");
    }
    Ok(())
}

/// Everything is there once, and learned from once. Returns the number of questions, and how many orders are live.
fn check_all(world: &LearningWorld, bodies: &mut BTreeMap<(String, i64), Vec<u8>>) -> Result<(usize, usize)> {
    check_weights(world, bodies)?;
    ensure!(world.queue().showings(0, 10)?.is_empty(), "the queue still has rows");
    let (judged, expected) = (world.judged(), world.expected());
    ensure!(judged.len() == expected.len(), "{} items of {}", judged.len(), expected.len());
    for (judged, expected) in judged.iter().zip(&expected) {
        ensure!(judged == expected, "{judged:?} instead of {expected:?}");
    }
    let archive = Archive::open_existing(&world.settings.archive)?.context("an archive")?;
    ensure!(archive.check()?.is_empty(), "the file is damaged");
    let brain = &world.settings.brain;
    ensure!(archive.changed_scopes(brain, false)?.is_empty(), "something was not learned from");
    let (mut questions, mut live) = (0, 0);
    for project in PROJECTS {
        let Some(learned) = archive.learned(brain, &world.key(project))? else { continue };
        let judged = archive.judged_questions(brain, &world.key(project))?;
        let again = learn_from(&world.settings, &judged);
        ensure!(again.body == learned.body, "{project}: not the weights that all judgements give");
        ensure!((again.learner, again.report) == (learned.learner.clone(), learned.report), "{project}");
        ensure!(learned.questions == judged.len() as u64, "{project}: {} questions", learned.questions);
        questions += judged.len();
        live += usize::from(!learned.learner.is_empty());
    }
    Ok((questions, live))
}
