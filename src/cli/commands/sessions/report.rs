//! Reports over many sessions: where a project stands, and figures.

use std::collections::HashMap;

use ::archive::{ProjectContext, Stats};
use jiff::Timestamp;
use queue::Capture;

use super::render::{ago_in_words, dollars, outcome, short, short_count, short_id, subject};
use crate::output::{counted, safe, table, terminal_width, thousands};

/// How many of each are listed.
const LISTED_MAX: usize = 10;
/// How many characters of what somebody said are shown.
const WORDS_CHARS_MAX: usize = 240;

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextFormat {
    Plain,
    Markdown,
    Json,
}

/// Where a project stands, as markdown.
pub(crate) fn context(
    found: &ProjectContext,
    captures: &HashMap<String, Capture>,
    days: u32,
    now: Timestamp,
) -> String {
    let mut text = format!(
        "# {}\n\n{} in the last {}\n\n",
        safe(&found.project),
        counted(found.sessions_count, "session"),
        counted(u64::from(days), "day")
    );
    if !found.also_named.is_empty() {
        let others = safe(&found.also_named.join(", "));
        text.push_str(&format!("not in it: {others}, named so too; give its remote or its folder\n\n"));
    }
    text.push_str("## Last sessions\n\n");
    for session in found.sessions.iter().take(LISTED_MAX) {
        let mut line =
            format!("- {} ({}): {}", short_id(session), ago_in_words(session.ended, now), subject(session));
        if let Some(capture) = captures.get(&session.id) {
            line.push_str(&format!(" [captured: {}]", outcome(capture)));
        }
        text.push_str(&format!("{line}\n"));
    }
    if !found.open_threads.is_empty() {
        text.push_str("\n## Open threads\n\n");
        for thread in found.open_threads.iter().take(LISTED_MAX) {
            text.push_str(&format!(
                "- {} ({}), {}: {}\n",
                short(&thread.session),
                ago_in_words(thread.at, now),
                safe(&thread.why),
                words(&thread.text)
            ));
        }
    }
    if !found.decisions.is_empty() {
        text.push_str("\n## Decisions\n\n");
        for decision in found.decisions.iter().take(LISTED_MAX) {
            text.push_str(&format!(
                "- {} ({}): {}\n",
                short(&decision.session),
                ago_in_words(decision.at, now),
                words(&decision.text)
            ));
        }
    }
    if !found.files.is_empty() {
        text.push_str("\n## Files changed most\n\n");
        for file in found.files.iter().take(LISTED_MAX) {
            text.push_str(&format!("- {} ({})\n", safe(&file.path), counted(file.sessions, "session")));
        }
    }
    text.push_str("\nWhat was said in sessions, not reviewed. `nugget sessions show ID` prints one.\n");
    text
}

/// A report for reading: headings are bold and have no marks.
pub(crate) fn without_marks(markdown: &str) -> String {
    let bold = anstyle::Style::new().bold();
    let line = |line: &str| match line.strip_prefix("# ").or_else(|| line.strip_prefix("## ")) {
        Some(heading) => format!("{bold}{heading}{bold:#}\n"),
        None => format!("{line}\n"),
    };
    markdown.lines().map(line).collect()
}

fn words(text: &str) -> String {
    knowledge::text::one_line(&safe(text), WORDS_CHARS_MAX)
}

/// The figures for a terminal.
pub(crate) fn stats(stats: &Stats) -> String {
    if stats.sessions + stats.subagents == 0 {
        return "no session matches\n".to_owned();
    }
    let tokens = &stats.tokens;
    let mut text = format!(
        "{}, {} of subagents, {}, {}, {} changed\n",
        counted(stats.sessions, "session"),
        thousands(stats.subagents),
        counted(stats.messages, "message"),
        counted(stats.tool_uses, "tool call"),
        counted(stats.files, "file"),
    );
    text.push_str(&format!(
        "tokens: {} in, {} out, {} from the cache, {} to the cache{}\n",
        short_count(tokens.input),
        short_count(tokens.output),
        short_count(tokens.cache_read),
        short_count(tokens.cache_write),
        match dollars(stats.cost_microdollars) {
            cost if cost.is_empty() => String::new(),
            cost => format!("; {cost} by the list prices of {}", llm::PRICES_AS_OF),
        }
    ));
    if stats.calls_without_price > 0 {
        let calls = counted(stats.calls_without_price, "call");
        text.push_str(&format!("not in the cost: {calls} of models that the price list does not have\n"));
    }
    let models = stats.models.iter().take(LISTED_MAX).map(|model| {
        let tokens = &model.tokens;
        vec![
            thousands(model.requests),
            short_count(tokens.input + tokens.output + tokens.cache_read + tokens.cache_write),
            model.cost_microdollars.map_or_else(|| "?".to_owned(), dollars),
            safe(&model.model),
        ]
    });
    text.push('\n');
    text.push_str(&table(&["CALLS", "TOKENS", "COST", "MODEL"], models));
    let tools = stats
        .tools
        .iter()
        .take(LISTED_MAX)
        .map(|tool| vec![thousands(tool.uses), thousands(tool.errors), safe(&tool.tool)]);
    text.push('\n');
    text.push_str(&table(&["CALLS", "FAILED", "TOOL"], tools));
    if !stats.top_files.is_empty() {
        let files = stats
            .top_files
            .iter()
            .take(LISTED_MAX)
            .map(|file| vec![thousands(file.sessions), thousands(file.times), safe(&file.path)]);
        text.push('\n');
        text.push_str(&table(&["SESSIONS", "TIMES", "FILE"], files));
    }
    text.push('\n');
    text.push_str(&bars(stats));
    text
}

/// The messages of each day as bars.
fn bars(stats: &Stats) -> String {
    let most = stats.days.iter().map(|day| day.messages).max().unwrap_or(0).max(1);
    let count_width = thousands(most).len();
    let room = terminal_width().clamp(40, 120) - 10 - count_width - 4;
    let mut text = String::new();
    for day in &stats.days {
        let filled = (day.messages as usize * room).div_ceil(most as usize);
        text.push_str(&format!(
            "{}  {:>count_width$}  {}\n",
            day.day,
            thousands(day.messages),
            "█".repeat(filled)
        ));
    }
    text
}
