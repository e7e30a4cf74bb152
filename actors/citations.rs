//! Judges what an archived session used of what it was shown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use archive::{Archive, ArchivedShown, Citation, MessageKind, Project, Session, ShownMessage, ShownTool};
use feedback::{Evidence, Outcome, Passage, ShownItem, Source};
use guard::{Action, HookedAction, Repositories, Trigger};
use index::Catalog;
use jiff::Timestamp;
use knowledge::UnitId;
use knowledge::text::one_line;
use queue::{ShownBy, ShownKind};
use serde_json::Value;
use transcript::{is_own_call_by_any_name, json_scan};

/// How much of a session before and after a showing is read. Of what came before, the end.
const BEFORE_BYTES_MAX: usize = 512 << 10;
const AFTER_BYTES_MAX: usize = 1 << 20;
/// How much of one output of a tool is read.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// How much evidence is kept of one judgement.
const EVIDENCE_MAX: usize = 3;
const EVIDENCE_CHARS_MAX: usize = 200;
/// The outcome of what was withheld: nothing can be used of it.
const WITHHELD: &str = "withheld";

/// A text of a session.
struct SpokenText {
    at: Option<Timestamp>,
    source: Source,
    text: String,
}

/// A call of a tool: where it stands among the texts.
struct Call {
    id: String,
    /// The number of texts up to its answer.
    texts: usize,
}

/// All that a session said and did, in order.
#[derive(Default)]
struct SessionTexts {
    texts: Vec<SpokenText>,
    calls: Vec<Call>,
    /// Where its tools run, if it was told a unit that names a failure.
    folder: Option<PathBuf>,
    /// The calls that failed, or may have: the number of texts up to the answer of each.
    failures: Vec<(usize, Action)>,
    repositories: Repositories,
}

/// Judges all that a session was shown. `catalog` has the texts of units as they are now; one that is gone is known by its
/// id alone.
///
/// # Errors
/// When the archive cannot be read.
pub(crate) fn judge_session(
    archive: &Archive,
    brain: &str,
    session: &Session,
    catalog: Option<&Catalog>,
) -> Result<Vec<Citation>, archive::Error> {
    let shown = archive.shown_in(brain, session)?;
    let mut named: HashMap<&str, Vec<Trigger>> = HashMap::new();
    for item in shown.iter().map(|shown| shown.item.as_str()) {
        named.entry(item).or_insert_with(|| named_failures(catalog, item));
    }
    let names_any = named.values().any(|named| !named.is_empty());
    let mut texts =
        SessionTexts { folder: names_any.then(|| session.cwd.as_str().into()), ..SessionTexts::default() };
    archive.show(&session.id, |message| {
        texts.add(&message);
        true
    })?;
    let mut citations = Vec::with_capacity(shown.len());
    for together in shown.chunk_by(|one, other| one.event == other.event) {
        let from = texts.position(&together[0]);
        let (withheld, told): (Vec<&ArchivedShown>, Vec<&ArchivedShown>) =
            together.iter().partition(|shown| shown.is_withheld);
        let items = told.iter().map(|shown| item(shown, archive, catalog)).collect::<Result<Vec<_>, _>>()?;
        let (before, after) = texts.around(from);
        let judgements = feedback::judge(&items, &before, &after);
        let mut has_failed = |shown: &ArchivedShown| texts.has_failed(named.get(shown.item.as_str())?, from);
        for (shown, judgement) in told.into_iter().zip(judgements) {
            citations.push(Citation {
                shown: shown.row,
                outcome: outcome_name(judgement.outcome).to_owned(),
                evidence: evidence_json(&judgement.evidence),
                has_failed: has_failed(shown),
            });
        }
        citations.extend(withheld.into_iter().map(|shown| Citation {
            shown: shown.row,
            outcome: WITHHELD.to_owned(),
            evidence: "[]".to_owned(),
            has_failed: has_failed(shown),
        }));
    }
    Ok(citations)
}

/// The failures that a unit names.
fn named_failures(catalog: Option<&Catalog>, unit: &str) -> Vec<Trigger> {
    let triggers = catalog.and_then(|catalog| catalog.triggers_of(&UnitId::verbatim(unit)).ok());
    let triggers = triggers.into_iter().flatten().map(|found| found.trigger);
    triggers.filter(Trigger::names_error).collect()
}

/// The name of an outcome in tables and reports.
pub(crate) fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Used => "used",
        Outcome::Contradicted => "contradicted",
        Outcome::Ignored => "ignored",
    }
}

/// What a name from a table means.
pub(crate) fn parse_outcome(name: &str) -> Outcome {
    match name {
        "used" => Outcome::Used,
        "contradicted" => Outcome::Contradicted,
        _ => Outcome::Ignored,
    }
}

fn evidence_json(evidence: &[Evidence]) -> String {
    let cut = |text: &String| one_line(text, EVIDENCE_CHARS_MAX);
    let kept: Vec<Evidence> = evidence
        .iter()
        .take(EVIDENCE_MAX)
        .map(|evidence| match evidence {
            Evidence::Named(text) => Evidence::Named(cut(text)),
            Evidence::Command(text) => Evidence::Command(cut(text)),
            Evidence::Identifiers(names) => {
                Evidence::Identifiers(names.iter().take(EVIDENCE_MAX).map(cut).collect())
            }
            Evidence::Sentence(text) => Evidence::Sentence(cut(text)),
            Evidence::Disputed(text) => Evidence::Disputed(cut(text)),
            Evidence::WarnedCommand(text) => Evidence::WarnedCommand(cut(text)),
        })
        .collect();
    serde_json::to_string(&kept).unwrap_or_default()
}

/// What a session has read of an item: of a unit at its start only the title.
fn item(
    shown: &ArchivedShown,
    archive: &Archive,
    catalog: Option<&Catalog>,
) -> Result<ShownItem, archive::Error> {
    if shown.kind == ShownKind::Memory.as_str() {
        let number = UnitId::verbatim(&shown.item).memory_number();
        let memory = number.map(|number| archive.memory(number)).transpose()?.flatten();
        let text = memory.map(|memory| format!("{}\n\n{}", memory.summary, memory.dialogue));
        // The block at a session's beginning numbers its memories.
        let mark = (shown.by == ShownBy::SessionStart.as_str()).then_some(shown.rank);
        return Ok(ShownItem::from_markdown(&shown.item, mark, &text.unwrap_or_default()));
    }
    Ok(unit_item(shown, catalog))
}

fn unit_item(shown: &ArchivedShown, catalog: Option<&Catalog>) -> ShownItem {
    let id = UnitId::verbatim(shown.item.as_str());
    let unit = catalog.and_then(|catalog| catalog.unit(&id).ok().flatten());
    let Some(unit) = unit else { return ShownItem { id: shown.item.clone(), ..ShownItem::default() } };
    let body = match (shown.by.as_str(), catalog) {
        ("session-start", _) | (_, None) => String::new(),
        (_, Some(catalog)) => {
            let body = catalog.body(&id).unwrap_or_default();
            format!("{}\n\n{body}", unit.description.as_deref().unwrap_or_default())
        }
    };
    ShownItem::from_markdown(&shown.item, None, &format!("# {}\n\n{body}", unit.title))
}

impl SessionTexts {
    fn add(&mut self, message: &ShownMessage) {
        let at = message.at;
        match message.kind {
            MessageKind::Prompt => self.push(at, Source::Other, &message.content),
            MessageKind::Answer | MessageKind::Thinking | MessageKind::ToolCall => {
                self.push(at, Source::Assistant, &message.thinking);
                self.push(at, Source::Assistant, &message.content);
            }
            // What tools return stands with their calls; among the rest is what hooks have told.
            MessageKind::ToolResult | MessageKind::Injected | MessageKind::System => {}
        }
        for tool in &message.tools {
            self.add_call(at, tool);
        }
    }

    fn add_call(&mut self, at: Option<Timestamp>, tool: &ShownTool) {
        let input: Value = json_scan::parse(tool.input.as_bytes()).unwrap_or_default();
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let command = text("command").or_else(|| text("cmd"));
        // What nugget was asked and has answered is neither known nor used by that.
        let is_own = is_own_call_by_any_name(&tool.name, command);
        if !is_own {
            match command {
                Some(command) => self.push(at, Source::Command, command),
                None => {
                    // What an edit replaces was there before.
                    text("old_string").into_iter().for_each(|old| self.push(at, Source::Other, old));
                    let mut strings = Vec::new();
                    collect_strings(&input, &mut strings);
                    self.push(at, Source::ToolInput, &strings.join("\n"));
                }
            }
            let output = tool.output.as_deref().unwrap_or_default();
            self.push(at, Source::Other, &output[..output.floor_char_boundary(OUTPUT_BYTES_MAX)]);
        }
        self.calls.push(Call { id: tool.id.clone(), texts: self.texts.len() });
        if let Some(folder) = &self.folder {
            // As the guard was told of it.
            let event = if tool.is_error { "PostToolUseFailure" } else { "PostToolUse" };
            let hooked = HookedAction {
                hook_event_name: Some(event.to_owned()),
                tool_name: Some(tool.name.clone()),
                tool_input: Some(input),
                error: tool.output.clone(),
                tool_response: tool.output.clone().map(Value::String),
                ..HookedAction::default()
            };
            let home = brain::paths::home();
            let home = home.as_deref().and_then(Path::to_str);
            let action = hooked.action(folder, home, &mut self.repositories);
            self.failures.extend(action.map(|action| (self.texts.len(), action)));
        }
    }

    fn push(&mut self, at: Option<Timestamp>, source: Source, text: &str) {
        if !text.trim().is_empty() {
            self.texts.push(SpokenText { at, source, text: text.to_owned() });
        }
    }

    /// The number of texts before something was shown.
    fn position(&self, shown: &ArchivedShown) -> usize {
        let call = shown.tool_use.as_ref().and_then(|id| self.calls.iter().find(|call| call.id == *id));
        call.map_or_else(
            || self.texts.iter().take_while(|text| text.at.is_none_or(|at| at <= shown.at)).count(),
            |call| call.texts,
        )
    }

    /// What was said before and after a position.
    fn around(&self, from: usize) -> (Vec<&str>, Vec<Passage<'_>>) {
        let (mut before_bytes, mut after_bytes) = (0, 0);
        let mut before: Vec<&str> = self.texts[..from]
            .iter()
            .rev()
            .map(|spoken| spoken.text.as_str())
            .take_while(|text| {
                before_bytes += text.len();
                before_bytes <= BEFORE_BYTES_MAX
            })
            .collect();
        before.reverse();
        let after = self.texts[from..].iter().take_while(|spoken| {
            after_bytes += spoken.text.len();
            after_bytes <= AFTER_BYTES_MAX
        });
        (before, after.map(|spoken| Passage { source: spoken.source, text: &spoken.text }).collect())
    }

    /// Whether a failure that a unit names happened after a position; `None` if it names none.
    fn has_failed(&mut self, named: &[Trigger], from: usize) -> Option<bool> {
        let folder = self.folder.as_deref().filter(|_| !named.is_empty())?;
        // The failure that a hook has told it of does not count as one that happened afterwards.
        let mut later = self.failures.iter().filter(|(texts, _)| *texts > from);
        Some(later.any(|(_, action)| {
            named.iter().any(|trigger| {
                trigger.matches(action).is_some()
                    && self.repositories.has(trigger, action, folder, |root| Project::from_folder(root).key)
            })
        }))
    }
}

fn collect_strings<'v>(value: &'v Value, strings: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => strings.push(text),
        Value::Array(values) => values.iter().for_each(|value| collect_strings(value, strings)),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "old_string");
            fields.for_each(|(_, value)| collect_strings(value, strings));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_of_nuggets_has_answered_is_not_taken_for_known_before() {
        let texts = |name: &str| {
            let mut texts = SessionTexts::default();
            let tool = ShownTool {
                id: "toolu_1".to_owned(),
                name: name.to_owned(),
                input: r#"{"query": "the lane of the importer"}"#.to_owned(),
                output: Some("> Run `importer-check --lane 3`".to_owned()),
                is_error: false,
                output_bytes: None,
            };
            texts.add_call(None, &tool);
            assert_eq!(texts.calls[0].texts, texts.texts.len());
            texts.texts.len()
        };
        for name in transcript::OWN_TOOLS {
            assert_eq!((texts(&format!("mcp__plugin_nugget_nugget__{name}")), texts(name)), (0, 0), "{name}");
        }
        assert_eq!(texts("mcp__other__search_notes"), 2);
    }

    #[test]
    fn a_failure_counts_as_the_guard_recognises_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".git")).unwrap();
        let named = |scope: &str| {
            let text = format!("---\ntype: caveat\nscope: [{{{scope}}}]\n---\n\n# Lock\n");
            guard::triggers_of(&knowledge::Document::parse(text).unwrap().unit("lock.md").unwrap())
        };
        let file = folder.path().join("src/keys.rs");
        let edit = serde_json::json!({ "file_path": file, "old_string": "a", "new_string": "b" }).to_string();
        let error = "error: \"database is locked by zebra\"";
        let placed = format!("path: src/keys.rs, {error}");
        let elsewhere = format!("repository: example.com/other/shop, {error}");
        for (name, input, is_error, scope, has_failed) in [
            ("Edit", edit.as_str(), true, error, Some(true)),
            ("Edit", &edit, true, &placed, Some(true)),
            ("Edit", &edit, true, &elsewhere, Some(false)),
            ("Edit", &edit, true, "path: src/keys.rs", None),
            ("Edit", &edit, false, error, Some(false)),
            ("Bash", r#"{"command": "make 2>&1 | tail -5"}"#, false, error, Some(true)),
            ("Bash", r#"{"command": "make 2>&1 | tail -5"}"#, false, &placed, Some(false)),
            ("Bash", r#"{"command": "cat log"}"#, false, error, Some(false)),
        ] {
            let mut texts =
                SessionTexts { folder: Some(folder.path().to_owned()), ..SessionTexts::default() };
            let tool = ShownTool {
                id: "toolu_1".to_owned(),
                name: name.to_owned(),
                input: input.to_owned(),
                output: Some("sqlite: database is locked by zebra".to_owned()),
                is_error,
                output_bytes: None,
            };
            texts.add_call(None, &tool);
            let mut named = named(scope);
            named.retain(Trigger::names_error);
            assert_eq!(texts.has_failed(&named, 0), has_failed, "{name} {input} {scope}");
            let answered = texts.texts.len();
            assert_eq!(texts.has_failed(&named, answered), has_failed.map(|_| false), "it was told then");
        }
    }
}
