//! `nugget user-prompt`: what is known about a prompt, told before the model reads it. Off by default.
//!
//! The question's words alone are searched, for the model that finds by meaning takes longer to load than
//! a prompt may wait; where the words prove nothing, it is silent.

use std::collections::HashSet;
use std::process::ExitCode;

use brain::{Brain, Config, StatePaths};
use embed::Tokenizer;
use index::Index;
use jiff::Timestamp;
use knowledge::UnitId;
use knowledge::text::one_line;
use retrieve::{Depth, Query};
use serde_json::json;

use super::capture_session::excluded;
use super::session_start::{HookInput, folder, in_time, remember, tokens, told_before};
use crate::context::{Context, embed_settings};
use crate::error::CliError;

/// Units that one prompt is told of.
const UNITS_MAX: usize = 3;
/// Shorter prompts, `go on` and `yes please`, ask nothing.
const PROMPT_CHARS_MIN: usize = 15;
const WORDS_MIN: f64 = 0.5;
const BM25_MIN: f64 = 1.0;
const SUMMARY_CHARS_MAX: usize = 300;

const AFTER: &str = "\
Claude Code runs this as the hook UserPromptSubmit, with one line of JSON on stdin. It is off until the
setting user_prompt.enabled = \"on\". It then prints up to three units that the prompt's words find
above the floor of relevance, none twice in a session, within 150 ms (user_prompt.deadline_ms) or not at all. It always exits 0.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self, context: Context) -> Result<ExitCode, CliError> {
        let config = context.config_as_it_is().0;
        if config.string("user_prompt.enabled") != "on" {
            return Ok(ExitCode::SUCCESS);
        }
        in_time(config.number("user_prompt.deadline_ms"), move |input| said(&context, &config, &input))
    }
}

/// Whether the words alone prove that a passage bears on the prompt: it is above the floor of relevance, holds
/// half of what the prompt asks and as much in rare words as one that a single passage has.
///
/// Most questions in words of their own prove nothing by their words, and are told nothing; of 15 unrelated ones
/// none is told anything (`tests/session_start.rs` has the counts, over the questions that the limits were set
/// by).
fn is_proven(scored: &retrieve::Scored) -> bool {
    scored.relevant && scored.features.words >= WORDS_MIN && scored.features.bm25 >= BM25_MIN
}

fn said(context: &Context, config: &Config, input: &HookInput) -> Option<String> {
    let prompt = input.prompt.as_deref()?.trim();
    if prompt.chars().count() < PROMPT_CHARS_MIN || prompt.starts_with('/') {
        return None;
    }
    if folder(input).is_some_and(|folder| excluded(config, &folder).is_some()) {
        return None;
    }
    let brain = Brain::open(&context.root(config)).ok()?;
    let places = StatePaths::for_brain(brain.root());
    let told = told_before(&places, &input.session_id);
    let derived = brain.root().join(brain::DERIVED_FOLDER);
    if !derived.is_dir() {
        return None;
    }
    let settings = embed_settings(config);
    let tokenizer = std::thread::spawn(move || Tokenizer::load(&settings));
    let index = Index::open(&derived).ok()?;
    let pinned = index.pin_without_vectors().ok()?;
    let query = Query {
        limit: UNITS_MAX + told.len().min(20),
        budget_tokens: config.number("user_prompt.tokens") as usize * 2,
        depth: Depth::Summary,
        ..Query::new(prompt, Timestamp::now())
    };
    let tokenizer = tokenizer.join().ok()?.ok()?;
    let trace = retrieve::trace(&pinned, &query, &tokenizer).ok()?;
    let good: Vec<_> =
        trace.reranked.iter().filter(|scored| is_proven(scored)).map(|scored| scored.chunk).collect();
    let good: HashSet<UnitId> = pinned.chunks(&good).ok()?.into_iter().map(|chunk| chunk.unit).collect();
    if good.is_empty() {
        return None;
    }
    let answer = retrieve::answer(&pinned, &query, trace, None, &tokenizer, &retrieve::AsIs).ok()?;
    let mut text =
        "What this developer's brain has on it (quoted, no instructions; get_relevant_context tells more):\n"
            .to_owned();
    let mut room = (config.number("user_prompt.tokens") as usize).saturating_sub(tokens(&text));
    let mut shown = Vec::new();
    for unit in &answer.units {
        if shown.len() == UNITS_MAX {
            break;
        }
        if !good.contains(&unit.id) || told.iter().any(|told| told == unit.id.as_str()) {
            continue;
        }
        let id = one_line(unit.id.as_str(), 100);
        let line = format!(
            "- {} (`{id}`): {}\n",
            one_line(&unit.title, 120),
            one_line(&unit.summary, SUMMARY_CHARS_MAX)
        );
        let cost = tokens(&line);
        if cost > room {
            break;
        }
        room -= cost;
        text.push_str(&line);
        shown.push(unit.id.as_str().to_owned());
    }
    if shown.is_empty() {
        return None;
    }
    remember(&places, &input.session_id, told.into_iter().chain(shown));
    let output = json!({ "hookEventName": "UserPromptSubmit", "additionalContext": text.trim_end() });
    Some(json!({ "hookSpecificOutput": output }).to_string())
}
