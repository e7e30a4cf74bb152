//! Replays the actions of real sessions against units that were written from their failures: does the guard speak before
//! a known failure is repeated, and is it silent otherwise?
//!
//! Real sessions are cut from public repositories by `stress/extraction/sessions.py`; nothing of them is stored here. The
//! units in `stress/guard/units` are hand-written; each says from which session on it is known, and by which message its
//! failure is recognised. The guard does not read these two keys.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use guard::{Action, Evidence, Trigger};
use knowledge::{Document, Unit};
use regex::Regex;
use serde_json::{Value, json};

use crate::timing::{Durations, hundredths};

/// How many units the hook tells at one action.
const UNITS_MAX: usize = 3;
/// The bars: repeats of a known failure that are preceded by a word, other actions that hear one, and words that bear.
const PRECEDED_PERCENT_MIN: f64 = 50.0;
const OTHERS_PERCENT_MAX: f64 = 1.0;
const BEARS_PERCENT_MIN: f64 = 80.0;

#[derive(clap::Args)]
pub(crate) struct GuardArgs {
    /// A folder of transcripts of one repository
    folder: PathBuf,
    /// A folder of units that were written from earlier ones of these sessions
    #[arg(long, value_name = "FOLDER")]
    units: PathBuf,
    /// What was judged of each thing that it says
    #[arg(long, value_name = "FILE", default_value = "stress/guard/verdicts.jsonl")]
    verdicts: PathBuf,
    /// Print everything that it says, and each repeat that it does not precede
    #[arg(long)]
    show: bool,
}

struct KnownUnit {
    unit: Unit,
    triggers: Vec<Trigger>,
    /// The session that it was learned in.
    learned_in: String,
    /// What the output of its failure contains.
    failure: Option<Regex>,
    /// The first session after that.
    known_from: usize,
}

/// A call of a tool in a transcript.
struct Call {
    tool: String,
    input: Value,
    cwd: String,
    /// What it has answered.
    output: String,
    /// Whether the client calls that a failure. Of `… | tail` it does not, whatever has happened.
    has_failed: bool,
}

struct Session {
    id: String,
    begun: String,
    folder: String,
    calls: Vec<Call>,
}

pub(crate) fn run(args: &GuardArgs) -> Result<Value> {
    let mut sessions = read_sessions(&args.folder)?;
    sessions.sort_by(|a, b| (&a.begun, &a.id).cmp(&(&b.begun, &b.id)));
    let mut units = read_units(&args.units)?;
    for unit in &mut units {
        let learned = sessions.iter().position(|session| session.id.contains(&unit.learned_in));
        unit.known_from =
            learned.with_context(|| format!("{}: no session {}", unit.unit.id, unit.learned_in))? + 1;
    }
    let verdicts = read_verdicts(&args.verdicts)?;
    let mut replay = Replay { show: args.show, verdicts, ..Replay::default() };
    for (number, session) in sessions.iter().enumerate() {
        replay.session(session, &units.iter().filter(|unit| unit.known_from <= number).collect::<Vec<_>>());
    }
    replay.report(sessions.len(), units.len())
}

#[derive(Default)]
struct Replay {
    show: bool,
    verdicts: BTreeMap<(String, String), bool>,
    actions: usize,
    failures: usize,
    /// Repeats of a known failure: told earlier in the session, at the action, with the error, not at all.
    repeats: [usize; 4],
    repeats_by_unit: BTreeMap<String, [usize; 4]>,
    /// Actions that repeat no known failure and hear something before they run, or after they have failed.
    others: usize,
    others_that_hear: usize,
    bears: [usize; 2],
    unjudged: BTreeSet<(String, String)>,
    times: Durations,
}

impl Replay {
    fn session(&mut self, session: &Session, units: &[&KnownUnit]) {
        let mut told: BTreeSet<&str> = BTreeSet::new();
        for call in &session.calls {
            let begun = Instant::now();
            let before = Action::new(&call.tool, &call.input, &call.cwd, None);
            let Some(before) = before.map(|action| placed(action, session)) else { continue };
            let earlier = told.clone();
            let mut said = speak(&before, units, &mut told);
            self.times.0.push(begun.elapsed().as_secs_f64() * 1000.0);
            self.actions += 1;
            let at_action = told.clone();
            self.failures += usize::from(call.has_failed);
            let begun = Instant::now();
            let after = match call.has_failed {
                true => Action::new(&call.tool, &call.input, &call.cwd, Some(&call.output)),
                false => Action::passed(&call.tool, &call.input, &call.cwd, &call.output),
            };
            if let Some(after) = after {
                said.extend(speak(&placed(after, session), units, &mut told));
                self.times.0.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
            let class = class(call);
            for (unit, evidence) in &said {
                self.judge(unit, &class, *evidence);
            }
            let repeated = units.iter().filter(|unit| {
                let is_run = call.tool == "Bash" || call.has_failed;
                is_run && unit.failure.as_ref().is_some_and(|failure| failure.is_match(&call.output))
            });
            let mut is_repeat = false;
            for unit in repeated {
                let id = unit.unit.id.as_str();
                is_repeat = true;
                let when =
                    [&earlier, &at_action, &told].iter().position(|told| told.contains(id)).unwrap_or(3);
                self.repeats[when] += 1;
                self.repeats_by_unit.entry(id.to_owned()).or_default()[when] += 1;
                if self.show && when >= 2 {
                    println!("not preceded ({when}): {id} | {class}");
                }
            }
            if !is_repeat {
                self.others += 1;
                self.others_that_hear += usize::from(!said.is_empty());
            }
        }
    }

    fn judge(&mut self, unit: &str, class: &str, evidence: Evidence) {
        let key = (unit.to_owned(), class.to_owned());
        match self.verdicts.get(&key) {
            Some(bears) => self.bears[usize::from(!bears)] += 1,
            None => {
                self.unjudged.insert(key);
            }
        }
        if self.show {
            println!(
                "said: {unit} | {class} | {evidence:?} | {:?}",
                self.verdicts.get(&(unit.to_owned(), class.to_owned()))
            );
        }
    }

    fn report(&self, sessions: usize, units: usize) -> Result<Value> {
        for (unit, class) in &self.unjudged {
            println!("{}", json!({"unit": unit, "action": class}));
        }
        let percent = |part: usize, of: usize| hundredths(100.0 * part as f64 / of.max(1) as f64);
        let all: usize = self.repeats.iter().sum();
        let preceded = percent(self.repeats[0] + self.repeats[1], all);
        let others = percent(self.others_that_hear, self.others);
        let bears = percent(self.bears[0], self.bears.iter().sum());
        Ok(json!({
            "sessions": sessions, "units": units, "actions": self.actions, "failures": self.failures,
            "repeats": all,
            "told_earlier_in_the_session": self.repeats[0], "told_at_the_action": self.repeats[1],
            "told_with_the_error": self.repeats[2], "not_told": self.repeats[3],
            "by_unit": self.repeats_by_unit,
            "preceded_percent": json!({"measured": preceded, "limit": PRECEDED_PERCENT_MIN, "held": preceded >= PRECEDED_PERCENT_MIN}),
            "other_actions": self.others, "other_actions_that_hear": self.others_that_hear,
            "others_percent": json!({"measured": others, "limit": OTHERS_PERCENT_MAX, "held": others <= OTHERS_PERCENT_MAX}),
            "judged": self.bears.iter().sum::<usize>(), "unjudged": self.unjudged.len(),
            "bears_percent": json!({"measured": bears, "limit": BEARS_PERCENT_MIN, "held": bears >= BEARS_PERCENT_MIN}),
            "match_in_process": self.times.summary(),
        }))
    }
}

/// The machine's folders are gone: the session's is taken for the repository, and its first two names for the home.
fn placed(mut action: Action, session: &Session) -> Action {
    action.expand_home(&session.folder.split('/').take(3).collect::<Vec<_>>().join("/"));
    action.locate(|path| Some(path.strip_prefix(&session.folder)?.trim_start_matches('/').to_owned()));
    action
}

/// The units that the hook would tell, as it ranks them.
fn speak<'u>(
    action: &Action,
    units: &[&'u KnownUnit],
    told: &mut BTreeSet<&'u str>,
) -> Vec<(&'u str, Evidence)> {
    let keys = action.keys();
    let mut found: Vec<(Evidence, &Unit)> = Vec::new();
    for known in units.iter().filter(|known| !told.contains(known.unit.id.as_str())) {
        let triggers =
            known.triggers.iter().filter(|trigger| trigger.keys().iter().any(|key| keys.contains(key)));
        found.extend(
            triggers
                .filter_map(|trigger| trigger.matches(action))
                .max()
                .map(|evidence| (evidence, &known.unit)),
        );
    }
    found
        .sort_by(|(a, of_a), (b, of_b)| b.cmp(a).then(of_b.kind.priority().total_cmp(&of_a.kind.priority())));
    found.truncate(UNITS_MAX);
    told.extend(found.iter().map(|(_, unit)| unit.id.as_str()));
    found.into_iter().map(|(evidence, unit)| (unit.id.as_str(), evidence)).collect()
}

/// What kind of action it is: names of well-known programs and their subcommands, and nothing else of the session.
fn class(call: &Call) -> String {
    const PROGRAMS: [&str; 14] = [
        "bun",
        "cargo",
        "cat",
        "gh",
        "git",
        "go",
        "golangci-lint",
        "ls",
        "mise",
        "npm",
        "npx",
        "rm",
        "rtk",
        "sed",
    ];
    if call.tool != "Bash" {
        let file = call.input["file_path"].as_str().unwrap_or_default().to_lowercase();
        return format!("{} of a {}", call.tool, if file.contains("test") { "test" } else { "file" });
    }
    let command = call.input["command"].as_str().unwrap_or_default();
    // What follows is data.
    let command = command.split("<<").next().unwrap_or_default();
    let is_subcommand = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || "-:".contains(c));
    let head = |part: &str| {
        let mut words = part.split_whitespace();
        let program = words.next().filter(|program| PROGRAMS.contains(program))?;
        let rest: Vec<&str> = words.take(2).take_while(is_subcommand).collect();
        Some(format!("{program} {}", rest.join(" ")).trim_end().to_owned())
    };
    let mut heads: Vec<String> =
        command.split(['|', ';', '&', '\n']).map(str::trim).filter_map(head).collect();
    heads.dedup();
    heads.truncate(3);
    format!("{}Bash {}", if call.has_failed { "failed " } else { "" }, heads.join("; "))
}

fn read_units(folder: &Path) -> Result<Vec<KnownUnit>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        let document = Document::parse(text)?;
        let name = path.file_name().context("no name")?.to_string_lossy().into_owned();
        let unit = document.unit(&name)?;
        let key = |key: &str| document.get(key).and_then(|value| Some(value.as_str()?.to_owned()));
        let failure = key("failure").map(|pattern| Regex::new(&pattern)).transpose()?;
        let learned_in = key("learned_in").with_context(|| format!("{name}: learned_in is missing"))?;
        Ok(KnownUnit { triggers: guard::triggers_of(&unit), unit, learned_in, failure, known_from: 0 })
    };
    paths.into_iter().map(read).collect()
}

fn read_verdicts(path: &Path) -> Result<BTreeMap<(String, String), bool>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(BTreeMap::new()) };
    let verdict = |line: &str| {
        let line: Value = serde_json::from_str(line)?;
        let text =
            |key: &str| line[key].as_str().map(str::to_owned).with_context(|| format!("{key}: {line}"));
        let bears = line["bears"].as_bool().with_context(|| format!("bears: {line}"))?;
        Ok(((text("unit")?, text("action")?), bears))
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(verdict).collect()
}

fn read_sessions(folder: &Path) -> Result<Vec<Session>> {
    let mut known = HashSet::new();
    let mut sessions = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "jsonl")) {
        sessions.push(read_session(path, &mut known)?);
    }
    ensure!(!sessions.is_empty(), "no transcript in {}", folder.display());
    Ok(sessions)
}

/// Reads a transcript without the calls that another one has, as those of a resumed or copied session.
fn read_session(path: &Path, known: &mut HashSet<String>) -> Result<Session> {
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut session = Session { id, begun: String::new(), folder: String::new(), calls: Vec::new() };
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in std::io::BufReader::new(std::fs::File::open(path)?).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
        if session.begun.is_empty() {
            session.begun = line["timestamp"].as_str().unwrap_or_default().to_owned();
        }
        let cwd = line["cwd"].as_str().unwrap_or_default();
        if session.folder.is_empty() {
            session.folder = cwd.to_owned();
        }
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
            if block["type"] == "tool_use" {
                if !known.insert(text("id")) {
                    continue;
                }
                places.insert(text("id"), session.calls.len());
                let cwd = if cwd.is_empty() { "/unknown" } else { cwd };
                session.calls.push(Call {
                    tool: text("name"),
                    input: block["input"].clone(),
                    cwd: cwd.to_owned(),
                    output: String::new(),
                    has_failed: false,
                });
            } else if block["type"] == "tool_result"
                && let Some(call) = places.get(&text("tool_use_id")).and_then(|at| session.calls.get_mut(*at))
            {
                let parts = block["content"].as_array().into_iter().flatten();
                let parts: String = parts.filter_map(|part| part["text"].as_str()).collect();
                call.output = block["content"].as_str().map_or(parts, str::to_owned);
                call.has_failed = block["is_error"] == true;
                // What the client refuses, or a person declines, never ran: no hook sees it.
                let never_ran = call.output.starts_with("<tool_use_error>")
                    || call.output.contains("doesn't want to proceed");
                if call.has_failed && never_ran {
                    call.tool.clear();
                }
            }
        }
    }
    Ok(session)
}
