//! Finds real sessions again by questions that people wrote who had read them, in other words than the session's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ::archive::{Archive, FILE_NAME, Markers, SearchQuery};
use anyhow::{Context as _, Result, ensure};
use embed::Embedder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{copy_as_client, sync};

/// Questions are in our own words; the sessions are not part of this repository.
const QUESTIONS: &str = include_str!("questions.jsonl");
/// As many as `nugget search` prints.
const LIMIT: usize = 10;
const BATCH: usize = 256;

#[derive(Deserialize)]
struct Question {
    /// What searches were tuned on is `a`; `b` was only ever reported.
    half: String,
    session: String,
    question: String,
    /// Other sessions that answer it as well.
    #[serde(default)]
    also: Vec<String>,
}

/// Archives the sessions of a folder, embeds their messages and asks: by words, by meaning and by both.
pub(super) fn run(folder: &Path) -> Result<Value> {
    let questions: Vec<Question> = QUESTIONS.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let home = tempfile::tempdir()?;
    let client = home.path().join("client");
    copy_as_client(folder, &client)?;
    let state = home.path().join("state");
    sync(&client, &state)?;
    let archive = Archive::open(&state.join(FILE_NAME))?;
    let embedder = Embedder::load(&embed::Settings::default())?;
    let embedded = embed_all(&archive, &embedder)?;
    let mut places: BTreeMap<(&str, &str), Vec<Option<usize>>> = BTreeMap::new();
    for question in &questions {
        let wanted: Vec<&str> =
            std::iter::once(&question.session).chain(&question.also).map(|id| session_id(id)).collect();
        let vector = embedder.embed_query(&question.question)?.vector;
        let vector = Some((embedder.model_name().to_owned(), vector));
        let ways = [
            ("words", question.question.clone(), None),
            ("meaning", String::new(), vector.clone()),
            ("both", question.question.clone(), vector),
        ];
        for (way, text, vector) in ways {
            let query = SearchQuery { text, limit: LIMIT, per_session: 1, ..SearchQuery::default() };
            let markers = Markers { before: "[", after: "]" };
            let hits = match vector {
                None => archive.search(&query, markers)?.hits,
                vector => archive.search_by_meaning(&query, markers, || vector)?.hits,
            };
            let mut sessions: Vec<&str> = Vec::new();
            for hit in &hits {
                let session = session_id(hit.session.parent.as_ref().unwrap_or(&hit.session.id));
                if !sessions.contains(&session) {
                    sessions.push(session);
                }
            }
            let place = sessions.iter().position(|session| wanted.contains(session));
            places.entry((&question.half, way)).or_default().push(place);
        }
    }
    let mut result = json!({
        "sessions": fs::read_dir(folder)?.count(), "embedded": embedded, "questions": questions.len(),
    });
    for half in ["a", "b", "all"] {
        for way in ["words", "meaning", "both"] {
            let is_of_half = |(key, _): &(&(&str, &str), &Vec<Option<usize>>)| {
                (half == "all" || key.0 == half) && key.1 == way
            };
            let found: Vec<Option<usize>> =
                places.iter().filter(is_of_half).flat_map(|(_, found)| found.clone()).collect();
            ensure!(!found.is_empty(), "there is no question of half {half}");
            let within = |count: usize| found.iter().flatten().filter(|place| **place < count).count();
            result[half][way] = json!({ "hit@1": within(1), "hit@5": within(5), "of": found.len() });
        }
    }
    Ok(result)
}

/// Embeds every message that the product would, as it does: the newest first, in batches.
fn embed_all(archive: &Archive, embedder: &Embedder) -> Result<usize> {
    let mut embedded = 0;
    let mut rest = Some(0..archive.last_message()? + 1);
    while let Some(range) = rest {
        let found = archive.unembedded(embedder.model_name(), range, BATCH)?;
        let embed = |part: &[::archive::Unembedded]| -> Result<Vec<(i64, Vec<f32>)>> {
            let one = |message: &::archive::Unembedded| {
                Ok((message.message, embedder.embed_document(&message.text)?.vector))
            };
            part.iter().map(one).collect()
        };
        let (first, second) = found.messages.split_at(found.messages.len() / 2);
        let vectors = std::thread::scope(|scope| {
            let other = scope.spawn(|| embed(second));
            let mut all = embed(first)?;
            all.extend(other.join().ok().context("a thread has panicked")??);
            anyhow::Ok(all)
        })?;
        archive.store_vectors(embedder.model_name(), &vectors)?;
        embedded += vectors.len();
        rest = found.rest;
    }
    Ok(embedded)
}

/// The session's own id: copies of one session are named by it and by the day on which they were made.
fn session_id(name: &str) -> &str {
    let id = &name[name.len().saturating_sub(36)..];
    if id.matches('-').count() == 4 { id } else { name }
}
