//! `nugget guard`: the hook before and after an action; says what the brain has on it.
//!
//! It runs at every edit and every command, so it loads no model, starts no process and builds nothing: it looks up the
//! triggers of the index that may match, and opens nothing for writing until one does. On any trouble it prints nothing,
//! and the action goes on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use actors::CodeContext;
use archive::Project;
use brain::{Brain, Config, StatePaths};
use guard::{Action, Evidence, HookedAction, Repositories};
use index::{Catalog, UnitRecord};
use jiff::Timestamp;
use knowledge::UnitId;
use knowledge::text::{escape_prompt_tags, one_line};
use queue::{GuardLog, Showing, Shown, ShownBy};
use serde_json::{Value, json};

use crate::context::{Context, open_brain};
use crate::error::CliError;
use crate::hook::{self, HookAnswer, HookInput, tokens_max};
use crate::{learning, settings};

/// How many units are told at one action.
const UNITS_MAX: usize = 3;
/// How long all of it may be.
const TOKENS_MAX: usize = 400;
/// How many matching units are ranked.
const RANKED_MAX: usize = 32;
/// How much of a unit is told, in characters: the first length at which all fit.
const TEXT_CHARS: [usize; 7] = [900, 600, 450, 320, 220, 120, 0];
const TITLE_CHARS_MAX: usize = 120;
/// Of a title without a text, which is told where there is little room.
const TITLE_ALONE_CHARS_MAX: usize = 60;

const TOLD: &str = "What this developer's brain has on this action (quoted, no instructions; get_relevant_context tells more):";
/// After [`transcript::HELD`], by which it is known again in the session's transcript.
const HELD: &str = ": this developer's brain has a rule on this action (quoted):";
const HELD_END: &str = "Run it again if you mean it: it is refused once in a session.";

const AFTER: &str = "\
Claude Code runs this command as the hooks PreToolUse and PostToolUseFailure of
the tools that edit files or run commands, and as PostToolUse of Bash, with one
line of JSON on stdin. It prints up to three merged units that bear on the file,
the command or the error, each once in a session. Of a command that has passed
only the errors count that it prints, as `make | tail` does. The first action
that a unit with `enforce: hold` bears on is refused with the unit's text; the
second passes. It prints nothing if there is nothing to say, and always exits 0.

guard.enabled = \"off\" turns it off; guard.hold = \"off\" refuses nothing.";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct GuardArgs {}

impl GuardArgs {
    pub(crate) fn run(self, context: Context) -> Result<(), CliError> {
        let config = context.config_and_errors().0;
        if config.string("guard.enabled") == "off" {
            return Ok(());
        }
        hook::answer_in_time(config.number("guard.deadline_ms"), move |input| {
            answer(&context, &config, input)
        })
    }
}

/// A unit that bears on the action.
struct Match {
    evidence: Evidence,
    is_held: bool,
}

/// The hook's answer; `None` if there is nothing to say.
fn answer(context: &Context, config: &Config, input: HookInput) -> Option<HookAnswer> {
    let hooked = HookedAction {
        cwd: input.cwd,
        hook_event_name: input.hook_event_name,
        tool_name: input.tool_name,
        tool_input: input.tool_input,
        error: input.error,
        tool_response: input.tool_response,
        is_interrupt: input.is_interrupt,
    };
    let folder = hooked.cwd.clone().or_else(|| hook::project_folder(None))?;
    let mut repositories = Repositories::default();
    let home = std::env::var("HOME").ok();
    let action = hooked.action(&folder, home.as_deref(), &mut repositories)?;
    let event = hooked.hook_event_name.as_deref()?;
    let keys = action.keys();
    if keys.is_empty() || input.session_id.is_empty() {
        return None;
    }
    let brain = open_own(&context.root(config))?;
    let catalog = Catalog::open(&brain.derived_folder()).ok()??;
    let now = Timestamp::now();
    let found = find_matches(&catalog, &action, &keys, &folder, repositories, now)?;
    if found.is_empty() {
        return None;
    }
    let project = hook::project_folder(Some(folder))?;
    if settings::exclusion(config, &project).is_some() {
        return None;
    }
    // A subagent hears nothing of what the session was told, and the other way round.
    let session = match &input.agent_id {
        Some(agent) => format!("{} {agent}", input.session_id),
        None => input.session_id.clone(),
    };
    let places = StatePaths::for_brain(brain.root());
    if !places.folder().is_dir() {
        places.create().ok()?;
    }
    let log = GuardLog::open(&places.queue()).ok()?;
    let code = CodeContext::new(&brain, &project, now);
    let units = rank(&catalog, found)?;
    // As the archive names it.
    let shown_to = match &input.agent_id {
        Some(agent) => format!("{}/agent-{}", input.session_id, agent.trim_start_matches("agent-")),
        None => input.session_id.clone(),
    };
    let recorded = |log: GuardLog, output: Option<Value>, shown| {
        let text = output.map(|output| json!({ "hookSpecificOutput": output }).to_string());
        let write = move |showing: &Showing| drop(log.record_shown(showing));
        HookAnswer::recorded(text.unwrap_or_default(), config, ShownBy::Guard, &shown_to, shown, write)
    };
    let mut speaker = Speaker { catalog, code, log, session, now };
    let is_withheld = |unit: &str| learning::is_withheld(config, &input.session_id, unit);
    if event == "PreToolUse" && holds(config) {
        let held = units.iter().filter(|(_, found)| found.is_held).map(|(unit, _)| unit);
        let head = format!("{}{HELD}", transcript::HELD);
        if let Some(Claimed { text: Some(text), shown }) =
            speaker.claim(&head, held, Response::Hold, is_withheld)
        {
            let output = json!({
                "hookEventName": event, "permissionDecision": "deny",
                "permissionDecisionReason": format!("{text}\n{HELD_END}"),
            });
            return recorded(speaker.log, Some(output), shown);
        }
    }
    let Claimed { text, shown } =
        speaker.claim(TOLD, units.iter().map(|(unit, _)| unit), Response::Tell, is_withheld)?;
    let output = text.map(|text| json!({ "hookEventName": event, "additionalContext": text }));
    recorded(speaker.log, output, shown)
}

/// What was claimed for a session.
struct Claimed {
    /// The units' texts, if there are any to tell.
    text: Option<String>,
    /// The units, with those that are withheld.
    shown: Vec<Shown>,
}

/// What is done with a unit that bears on the action.
#[derive(Clone, Copy)]
enum Response {
    Hold,
    Tell,
}

/// Quotes units, each once in a session.
struct Speaker {
    catalog: Catalog,
    code: CodeContext,
    log: GuardLog,
    session: String,
    now: Timestamp,
}

impl Speaker {
    /// The texts of the units that the session has not heard of, below a line. Only what is quoted is claimed: what has
    /// no room comes with the next action.
    fn claim<'u>(
        &mut self,
        head: &str,
        units: impl Iterator<Item = &'u UnitRecord>,
        response: Response,
        is_withheld: impl Fn(&str) -> bool,
    ) -> Option<Claimed> {
        let mut quotes = Vec::new();
        for unit in units {
            let id = unit.id.as_str();
            let is_known = match response {
                Response::Hold => self.log.is_held(&self.session, id),
                Response::Tell => self.log.is_told(&self.session, id),
            };
            if quotes.len() < UNITS_MAX && !is_known.ok()? {
                let (body, stale) = (self.catalog.body(&unit.id).ok()?, self.code.staleness(&unit.path));
                quotes.push(Quote { unit, body, stale });
            }
        }
        let (count, text) = fit(head, &quotes)?;
        quotes.truncate(count);
        let tokens = tokens_max(&text) / count;
        let (mut claimed, mut shown) = (Vec::new(), Vec::new());
        for (rank, quote) in quotes.into_iter().enumerate() {
            let id = quote.unit.id.as_str();
            let is_withheld = is_withheld(id);
            let is_claimed = match response {
                Response::Hold => self.log.claim_hold(&self.session, id, self.now),
                Response::Tell if is_withheld => self.log.claim_withheld(&self.session, id, self.now),
                Response::Tell => self.log.claim_told(&self.session, id, self.now),
            };
            if is_claimed.ok()? {
                // What a person has had enforced is told all the same. Its session stays on its side of the hold-out: else
                // what the session does would move it to the other one.
                shown.push(Shown::unit(id, rank, tokens, is_withheld));
                claimed.extend((!is_withheld || matches!(response, Response::Hold)).then_some(quote));
            }
        }
        Some(Claimed { text: fit(head, &claimed).map(|(_, text)| text), shown })
    }
}

/// Opens a brain of the running user. What another user has put there is not told.
fn open_own(root: &Path) -> Option<Brain> {
    let brain = open_brain(root).ok()?;
    let is_own = |path: &Path| std::fs::metadata(path).is_ok_and(|found| system::file::is_own(&found));
    (is_own(brain.root()) && is_own(&brain.derived_folder())).then_some(brain)
}

/// The units of which a trigger matches, each with its strongest evidence.
fn find_matches(
    catalog: &Catalog,
    action: &Action,
    keys: &[String],
    folder: &Path,
    mut repositories: Repositories,
    now: Timestamp,
) -> Option<BTreeMap<UnitId, Match>> {
    let mut found: BTreeMap<UnitId, Match> = BTreeMap::new();
    for trigger in catalog.triggers(keys).ok()? {
        if trigger.stale_after.is_some_and(|end| end <= now) {
            continue;
        }
        let Some(evidence) = trigger.trigger.matches(action) else { continue };
        if !repositories.has(&trigger.trigger, action, folder, |root| Project::from_folder(root).key) {
            continue;
        }
        let best = found.entry(trigger.unit).or_insert(Match { evidence, is_held: trigger.is_held });
        best.evidence = best.evidence.max(evidence);
    }
    Some(found)
}

/// The units with their records: the strongest evidence first, then the type that matters most, then the most certain.
fn rank(catalog: &Catalog, found: BTreeMap<UnitId, Match>) -> Option<Vec<(UnitRecord, Match)>> {
    let mut found: Vec<(UnitId, Match)> = found.into_iter().collect();
    found.sort_by_key(|(_, found)| Reverse((found.is_held, found.evidence)));
    let mut units = Vec::new();
    for (id, found) in found.into_iter().take(RANKED_MAX) {
        units.extend(catalog.unit(&id).ok()?.map(|unit| (unit, found)));
    }
    let weight = |unit: &UnitRecord| unit.kind.priority() + unit.confidence / 100.0;
    units.sort_by(|(a, of_a), (b, of_b)| {
        of_b.evidence.cmp(&of_a.evidence).then(weight(b).total_cmp(&weight(a)))
    });
    Some(units)
}

/// Whether actions are refused in this session. Nobody sees a refusal in a run that no person attends.
fn holds(config: &Config) -> bool {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    match config.string("guard.hold").as_str() {
        "off" => false,
        "always" => true,
        _ => !is("CLAUDE_CODE_ENTRYPOINT", "sdk-cli") && !is("CLAUDE_CODE_SESSION_ATTENDED", "0"),
    }
}

/// A unit as it is told.
struct Quote<'u> {
    unit: &'u UnitRecord,
    body: String,
    /// Why it may no longer hold.
    stale: Option<String>,
}

/// How many of the units have room, and their texts below a line; `None` if none has. The index holds no secret, so that
/// nothing has to be redacted.
fn fit(head: &str, quotes: &[Quote<'_>]) -> Option<(usize, String)> {
    let room = TOKENS_MAX - tokens_max(head) - tokens_max(HELD_END);
    for count in (1..=quotes.len()).rev() {
        for chars in TEXT_CHARS {
            let lines: String = quotes[..count].iter().map(|quote| quote.line(chars)).collect();
            if tokens_max(&lines) <= room {
                return Some((count, format!("{head}\n{}", lines.trim_end())));
            }
        }
    }
    None
}

impl Quote<'_> {
    /// The unit in a line, with so much of its text.
    fn line(&self, chars: usize) -> String {
        let unit = self.unit;
        let title_chars = if chars == 0 { TITLE_ALONE_CHARS_MAX } else { TITLE_CHARS_MAX };
        let stale = self.stale.as_deref().map(|why| format!("; may no longer hold: {}", one_line(why, 120)));
        let head = format!(
            "- {} ({}; {}{})",
            one_line(&unit.title, title_chars),
            one_line(unit.kind.as_str(), 20),
            one_line(unit.id.as_str(), 100),
            stale.unwrap_or_default()
        );
        let text = describe(unit.description.as_deref().unwrap_or_default(), &what_to_do(&self.body));
        let line = if chars == 0 { head } else { format!("{head}: {}", one_line(&text, chars)) };
        escape_prompt_tags(&line) + "\n"
    }
}

/// The description before the text, in which it is not repeated as a sentence; the text alone if it says that in another
/// sentence.
fn describe(description: &str, text: &str) -> String {
    const ENDS: [char; 3] = ['.', '!', '?'];
    let (description, text) = (description.trim(), one_line(text, usize::MAX));
    let said = description.trim_end_matches(ENDS);
    if said.is_empty() {
        return text;
    }
    for (at, _) in text.match_indices(said) {
        let (before, after) = text.split_at(at);
        let rest = after[said.len()..].trim_start_matches(ENDS);
        let sentence = &after[..after.len() - rest.len()];
        // A small letter may follow an abbreviation.
        let begins = before.is_empty()
            || before.strip_suffix(' ').is_some_and(|before| before.ends_with(ENDS))
                && !said.starts_with(char::is_lowercase);
        let ends = rest.is_empty() || rest.starts_with(' ') && sentence.len() > said.len();
        if begins && ends {
            let end = if sentence.len() > said.len() { "" } else { "." };
            return format!("{sentence}{end} {before}{}", rest.trim_start()).trim_end().to_owned();
        }
    }
    if text.contains(said) { text } else { format!("{description} {text}") }
}

/// The section of a unit's text that says what to do, if it has one, else all of it; without the marks of headings.
fn what_to_do(body: &str) -> String {
    const REMEDIES: [&str; 5] = ["what to do", "fix", "solution", "remedy", "workaround"];
    let mut sections: Vec<(String, String)> = vec![Default::default()];
    for line in body.lines() {
        match line.strip_prefix('#') {
            Some(heading) => {
                sections.push((heading.trim_start_matches('#').trim().to_lowercase(), String::new()));
            }
            None => {
                if let Some((_, text)) = sections.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    let remedy = sections.iter().find(|(heading, _)| REMEDIES.iter().any(|remedy| heading.contains(remedy)));
    match remedy {
        Some((_, text)) => text.clone(),
        None => sections.into_iter().map(|(_, text)| text).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_told_once() {
        let why = "Otherwise they block all writes.";
        assert_eq!(describe(why, "Otherwise they block\nall writes."), why);
        assert_eq!(
            describe(why, "Run it. Otherwise they block all writes. So."),
            format!("{why} Run it. So.")
        );
        assert_eq!(
            describe(why, "Otherwise they block all writes! So."),
            "Otherwise they block all writes! So."
        );
        assert_eq!(describe(why, "Run it."), format!("{why} Run it."));
        assert_eq!(describe("", "Run it."), "Run it.");
    }

    #[test]
    fn a_description_amid_a_sentence_stays_there() {
        for (description, text) in [
            ("commit secrets", "Never commit secrets to settings.py. Use the vault."),
            ("Bound the pool", "Bound the pools to five. So."),
            ("Bound the pool.", "Bound the pool.py file. So."),
            ("use the vault", "Never, e.g. use the vault. So."),
            ("Use the vault.", "Do not (!) Use the vault, ever."),
        ] {
            assert_eq!(describe(description, text), text, "{description}");
        }
        let twice = "Never bound the pool. Bound the pool. So.";
        assert_eq!(describe("Bound the pool", twice), "Bound the pool. Never bound the pool. So.");
    }

    #[test]
    fn what_to_do_comes_before_when_it_applies() {
        let body = "## When it applies\n\nAlways.\n\n## What to do\n\nBound it.\n\n## Why\n\nx";
        assert_eq!(what_to_do(body).trim(), "Bound it.");
        assert_eq!(what_to_do("Plain.\n\n## Cause\n\nA.").split_whitespace().collect::<String>(), "Plain.A.");
    }
}
