//! `nugget capture-session --dry-run`: what would leave this machine, and what would be saved.

use std::path::Path;

use actors::{BrainUnit, BrainView, select_known_units};
use brain::StatePaths;
use extract::{ExtractionContext, Extractor as _, HeuristicExtractor, build_questions};
use jiff::Timestamp;
use queue::{Announcement, Queue};
use serde_json::json;

use crate::context::Context;
use crate::error::CliError;
use crate::output::{self, counted};
use crate::unit_files::read_units;
use crate::{async_runtime, extractor, settings};

/// Reads the transcript and prints; nothing is written, not even to the state folder.
pub(super) fn run(context: &Context, announcement: &Announcement, as_json: bool) -> Result<(), CliError> {
    let config = context.config()?;
    let reading = ::archive::read_conversation(&announcement.transcript, &|_| false).map_err(|error| {
        CliError::new(error.to_string()).hint("transcripts are in ~/.claude/projects/*/*.jsonl")
    })?;
    let conversation = reading.conversation;
    let cwd = conversation.cwd.as_deref().map(Path::new).or(announcement.cwd.as_deref());
    let exclusion = if reading.is_ignored {
        Some("its .nuggetignore")
    } else {
        cwd.and_then(|cwd| settings::exclusion(&config, cwd))
    };
    if let Some(rule) = exclusion {
        if as_json {
            output::print_json(
                &json!({ "session_id": conversation.session_id, "left_alone": rule, "sent": [], "saved": [] }),
            )?;
        } else {
            output::print(&format!("nothing would be sent or saved: {rule} covers the session's project\n"))?;
        }
        return Ok(());
    }
    // Without a brain a model would be told of no known units.
    let brain = context.brain(&config).ok();
    let found = brain.as_ref().and_then(|brain| read_units(&BrainView::open(brain)).ok()).unwrap_or_default();
    let known = found.units.into_iter().map(|(_, unit)| BrainUnit {
        id: unit.id,
        title: unit.title,
        description: unit.description,
        domain: unit.domain,
        status: unit.status,
        last_modified: unit.last_modified,
    });
    let queue = brain.map(|brain| StatePaths::for_brain(brain.root()).queue()).filter(|path| path.is_file());
    let queue = queue.map(|path| Queue::open(&path)).transpose()?;
    let known = select_known_units(known.collect(), queue.as_ref(), &conversation)?;
    let destination = extractor::destination(&config);
    let requests = match extractor::asks_a_model(&config) && !conversation.events.is_empty() {
        true => build_questions(&conversation, &known, extractor::limits(&config)),
        false => Vec::new(),
    };
    let extraction = async_runtime::multi_thread()?
        .block_on(HeuristicExtractor.extract(&conversation, &ExtractionContext::default()))
        .map_err(|error| CliError::new(error.to_string()))?;
    let confidence_min = config.number("extract.confidence_min") as f64 / 100.0;
    let (confident, weak): (Vec<_>, Vec<_>) =
        extraction.candidates.into_iter().partition(|candidate| candidate.confidence >= confidence_min);
    let files =
        actors::preview_unit_files(&confident, &extraction.extractor, &conversation, Timestamp::now());
    if as_json {
        let sent: Vec<_> = requests
            .iter()
            .map(|request| json!({ "system": request.system, "tool": request.tool.schema, "user": request.user }))
            .collect();
        let saved: Vec<_> =
            files.iter().map(|(path, text)| json!({ "path": path, "content": text })).collect();
        return output::print_json(&json!({
            "session_id": conversation.session_id, "to": destination, "sent": sent, "saved": saved,
            "rejected": extraction.rejected, "below_confidence": weak.len(),
        }));
    }
    let mut text = format!("sessions are read by {destination}\n\n");
    match requests.len() {
        0 => text.push_str("NOTHING WOULD BE SENT\n"),
        parts => text.push_str(&format!(
            "WOULD BE SENT, in {}\nEach part is sent with the same instructions and answer format (--json shows them).\n",
            counted(parts as u64, "part")
        )),
    }
    for (index, request) in requests.iter().enumerate() {
        let user = request.user.trim_end();
        text.push_str(&format!("\n--- part {} of {} ---\n{user}\n", index + 1, requests.len()));
    }
    match files.len() {
        0 => text.push_str(&format!(
            "\nRULES ALONE WOULD SAVE NOTHING: {}\n",
            extraction.empty_reason.as_deref().unwrap_or("no candidate reaches the minimum confidence")
        )),
        count => text.push_str(&format!(
            "\nRULES ALONE WOULD SAVE {}, on a branch for review\n",
            counted(count as u64, "file")
        )),
    }
    for (path, content) in &files {
        text.push_str(&format!("\n--- {path} ---\n{content}"));
    }
    output::print(&output::safe(&text))
}
