//! `nugget capture-session --dry-run`: what would leave this machine, and what would be saved.

use std::path::Path;
use std::process::ExitCode;

use actors::brain_view::BrainView;
use actors::extraction;
use extract::{ExtractionContext, Extractor as _, HeuristicExtractor, KnownUnit, build_questions};
use jiff::Timestamp;
use queue::Announcement;
use serde_json::json;

use super::capture_session::excluded;
use super::show::{Shelf, read_all};
use crate::context::Context;
use crate::error::CliError;
use crate::extractor;
use crate::output;

/// Reads the transcript and prints; nothing is written, not even in the folders of state.
pub(crate) fn run(
    context: &Context,
    announcement: &Announcement,
    as_json: bool,
) -> Result<ExitCode, CliError> {
    let config = context.config()?;
    let path = &announcement.transcript;
    let reading = transcript::read(path, &|_| false).map_err(|error| {
        CliError::new(error.to_string()).hint("transcripts lie in ~/.claude/projects/*/*.jsonl")
    })?;
    let conversation = reading.conversation;
    let cwd = conversation.cwd.as_deref().map(Path::new).or(announcement.cwd.as_deref());
    let excluded = if reading.is_ignored {
        Some("its .nuggetignore")
    } else {
        cwd.and_then(|cwd| excluded(&config, cwd))
    };
    if let Some(by) = excluded {
        if as_json {
            output::print_json(
                &json!({ "session_id": conversation.session_id, "left_alone": by, "sent": [], "saved": [] }),
            )?;
        } else {
            output::print(&format!("nothing would be sent or saved: {by} covers the session's project\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Without a brain there is nothing that a model would be told of.
    let shelf = context
        .brain(&config)
        .and_then(|brain| read_all(&BrainView::open(&brain)))
        .unwrap_or_else(|_| Shelf::default());
    let known = shelf.units.into_iter().map(|(_, unit)| KnownUnit {
        id: unit.id.as_str().to_owned(),
        title: unit.title,
        description: unit.description.unwrap_or_default(),
    });
    let known = extraction::select_known_units(known.collect(), &conversation);
    let destination = extractor::destination(&config);
    let asked = match config.string("extract.backend").as_str() {
        _ if conversation.events.is_empty() => Vec::new(),
        "heuristic" => Vec::new(),
        _ => build_questions(&conversation, &known, extractor::limits(&config)),
    };
    let extraction = super::ask::runtime()?
        .block_on(HeuristicExtractor.extract(&conversation, &ExtractionContext::default()))
        .map_err(|error| CliError::new(error.to_string()))?;
    let confidence_min = config.number("extract.confidence_min") as f64 / 100.0;
    let (good, weak): (Vec<_>, Vec<_>) =
        extraction.candidates.into_iter().partition(|candidate| candidate.confidence >= confidence_min);
    let files = actors::preview_unit_files(&good, &extraction.extractor, &conversation, Timestamp::now());
    if as_json {
        let sent: Vec<_> = asked
            .iter()
            .map(|question| json!({ "system": question.system, "tool": question.tool.schema, "user": question.user }))
            .collect();
        let saved: Vec<_> =
            files.iter().map(|(path, text)| json!({ "path": path, "content": text })).collect();
        output::print_json(&json!({
            "session_id": conversation.session_id, "to": destination, "sent": sent, "saved": saved,
            "rejected": extraction.rejected, "below_confidence": weak.len(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("sessions are read by {destination}\n\n");
    match asked.len() {
        0 => text.push_str("NOTHING WOULD BE SENT\n"),
        parts => {
            text.push_str(&format!(
                "WOULD BE SENT, in {}\n",
                if parts == 1 { "one part".to_owned() } else { format!("{parts} parts") }
            ));
            text.push_str(
                "With each part go the same instructions and the form of the answer (--json shows them).\n",
            );
        }
    }
    for (at, question) in asked.iter().enumerate() {
        text.push_str(&format!(
            "\n--- part {} of {} ---\n{}\n",
            at + 1,
            asked.len(),
            question.user.trim_end()
        ));
    }
    match files.len() {
        0 => text.push_str(&format!(
            "\nRULES ALONE WOULD SAVE NOTHING: {}\n",
            extraction.empty_reason.as_deref().unwrap_or("no candidate is sure enough")
        )),
        1 => text.push_str("\nRULES ALONE WOULD SAVE 1 FILE, on a branch for review\n"),
        files => text.push_str(&format!("\nRULES ALONE WOULD SAVE {files} FILES, on a branch for review\n")),
    }
    for (path, content) in &files {
        text.push_str(&format!("\n--- {path} ---\n{content}"));
    }
    output::print(&output::safe(&text))?;
    Ok(ExitCode::SUCCESS)
}
