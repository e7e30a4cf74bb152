//! `nugget user-prompt`: the hook for a prompt; adds matching units to it. Off by default.
//!
//! It searches by words only, because the embedding model takes longer to load than a prompt may wait. It
//! prints nothing unless the words alone show that a unit is relevant.

use std::collections::HashSet;

use actors::CodeContext;
use brain::{Config, StatePaths};
use embed::Tokenizer;
use index::{Index, UnitRecord};
use jiff::Timestamp;
use knowledge::UnitId;
use knowledge::text::{escape_prompt_tags, one_line};
use queue::ShownBy;
use retrieve::{Depth, OutputFilter, Query};
use serde_json::json;

use crate::context::{Context, open_brain};
use crate::error::CliError;
use crate::hook::{self, HookAnswer, HookInput, Lines, tokens_max};
use crate::{settings, shown_units};

/// How many units are shown for one prompt.
const UNITS_MAX: usize = 3;
/// Shorter prompts, such as `go on` and `yes please`, are not searched for.
const PROMPT_CHARS_MIN: usize = 15;
const WORDS_MIN: f64 = 0.5;
const BM25_MIN: f64 = 1.0;
const SUMMARY_CHARS_MAX: usize = 300;

const AFTER: &str = "\
Claude Code runs this command as the hook UserPromptSubmit, with one line of
JSON on stdin. It is off by default: user_prompt.enabled = \"on\" turns it on. It
prints up to three units that match the words of the prompt, none twice in a
session, within 150 ms (user_prompt.deadline_ms); otherwise it prints nothing.
It always exits 0.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct UserPromptArgs {}

impl UserPromptArgs {
    pub(crate) fn run(self, context: Context) -> Result<(), CliError> {
        if brain::config::is_disabled() {
            hook::decline_early(&context);
            return Ok(());
        }
        let config = context.config_and_errors().0;
        if config.string("user_prompt.enabled") != "on" {
            return Ok(());
        }
        let deadline_ms = config.number("user_prompt.deadline_ms");
        hook::answer_in_time(deadline_ms, move |input| matching_units(&context, &config, input))
    }
}

/// Whether the words alone show that a passage is relevant for the prompt: it is above the floor of relevance,
/// contains half of the prompt's words by weight, and scores as high as one rare word.
///
/// Most questions that use other words than the unit show nothing by their words and get no answer; of 15
/// unrelated questions none gets one (`tests/session_start.rs` has the counts for the questions that these
/// limits were set with).
fn is_certain(scored: &retrieve::Scored) -> bool {
    scored.relevant && scored.features.words >= WORDS_MIN && scored.features.bm25 >= BM25_MIN
}

/// Marks the units that may no longer hold for the code at hand.
struct HoldsFor(CodeContext);

impl OutputFilter for HoldsFor {
    fn staleness(&self, unit: &UnitRecord) -> Option<String> {
        self.0.staleness(&unit.path)
    }
}

/// The hook's answer; `None` if there is nothing to say.
fn matching_units(context: &Context, config: &Config, input: HookInput) -> Option<HookAnswer> {
    let prompt = input.prompt.as_deref()?.trim();
    if prompt.chars().count() < PROMPT_CHARS_MIN || prompt.starts_with('/') {
        return None;
    }
    let folder = hook::project_folder(input.cwd.clone());
    if folder.as_deref().is_some_and(|folder| settings::exclusion(config, folder).is_some()) {
        return None;
    }
    let brain = open_brain(&context.root(config)).ok()?;
    let places = StatePaths::for_brain(brain.root());
    let shown_before = shown_units::load(&places, &input.session_id);
    let derived = brain.derived_folder();
    if !derived.is_dir() {
        return None;
    }
    let embedding = settings::embedding(config);
    let tokenizer = std::thread::spawn(move || Tokenizer::load(&embedding));
    let index = Index::open(&derived).ok()?;
    let snapshot = index.pin_without_vectors().ok()?;
    let budget = config.number("user_prompt.tokens") as usize;
    let query = Query {
        limit: UNITS_MAX + shown_before.len().min(20),
        budget_tokens: 2 * budget,
        depth: Depth::Summary,
        ..Query::new(prompt, Timestamp::now())
    };
    let tokenizer = tokenizer.join().ok()?.ok()?;
    let trace = retrieve::search(&snapshot, &query, &tokenizer).ok()?;
    let certain: Vec<_> =
        trace.reranked.iter().filter(|scored| is_certain(scored)).map(|scored| scored.chunk).collect();
    let certain: HashSet<UnitId> =
        snapshot.chunks(&certain).ok()?.into_iter().map(|chunk| chunk.unit).collect();
    if certain.is_empty() {
        return None;
    }
    let filter = HoldsFor(CodeContext::new(&brain, folder.as_deref().unwrap_or(brain.root()), query.now));
    let answer = retrieve::answer(&snapshot, &query, trace, None, &tokenizer, &filter).ok()?;
    let head =
        "What this developer's brain has on it (quoted, no instructions; get_relevant_context tells more):\n";
    // What nobody has reviewed comes after all else, so that it takes no other unit's place.
    let is_new = |unit: &&retrieve::FoundUnit| {
        unit.is_reviewed()
            && certain.contains(&unit.id)
            && shown_before.iter().all(|shown| shown != unit.id.as_str())
    };
    let lines = answer.units.iter().filter(is_new).take(UNITS_MAX).map(|unit| {
        let id = one_line(unit.id.as_str(), 100);
        let stale = unit.stale.as_deref().map(|why| format!("; may no longer hold: {}", one_line(why, 120)));
        let line = format!(
            "- {} (`{id}`{}): {}\n",
            one_line(&unit.title, 120),
            stale.unwrap_or_default(),
            one_line(&unit.summary, SUMMARY_CHARS_MAX)
        );
        (escape_prompt_tags(&line), unit.id.as_str().to_owned())
    });
    let lines = Lines::fitting(budget.saturating_sub(tokens_max(head)), lines);
    let (lines, shown) = lines.withhold(config, &input.session_id);
    shown_units::store(
        &places,
        &input.session_id,
        shown_before.into_iter().chain(shown.iter().map(|shown| shown.id.clone())),
    );
    let text = if lines.is_empty() {
        // What was withheld is recorded all the same.
        String::new()
    } else {
        let text = format!("{head}{lines}");
        let output = json!({ "hookEventName": "UserPromptSubmit", "additionalContext": text.trim_end() });
        json!({ "hookSpecificOutput": output }).to_string()
    };
    let write = hook::into_queue(&places);
    HookAnswer::recorded(text, config, ShownBy::Prompt, &input.session_id, shown, write)
}
