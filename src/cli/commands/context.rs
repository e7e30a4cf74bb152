//! `nugget context`: tells what is known about files, folders and projects.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use ::archive::{Archive, Derivation, Project};
use actors::BrainView;
use jiff::Timestamp;
use knowledge::{Unit, UnitType};
use provenance::context::{Answer, AnsweredItem, Place, Records, answer};
use provenance::{Depth, Question};
use serde_json::json;
use transcript::redact::redact;

use super::completions;
use super::sessions::render::short;
use super::sync::parse_moment;
use crate::archive::open_archive;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output::{self, Line, Part, safe};
use crate::pager;
use crate::unit_files::{check_type, read_units};
use crate::whole_number::whole_number;
use ratatui::style::{Color, Style};

const AFTER: &str = "\
Prints the reviewed units whose `scope` covers the file or the folder, or whose
words match --query, the most important first: what must not be broken, then
what was decided and why. A unit that may no longer hold is marked: its file has
changed since, or its date is past.

Records are what sessions in this project show by themselves: what was asked
for, and which files it changed; and what a model that reads a session anyway
says of the code. Nobody has reviewed them, and they stay on this machine. They
are shown where no unit is about the place itself, or with --all.

Examples:
  nugget context src/auth.ts
  nugget context src/auth.ts --query \"token expiry\" --depth deep
  nugget context . --type constraint,caveat
  nugget context src/auth.ts src/pay --all --json";

/// The colours of what must be kept to.
const RULES: [UnitType; 2] = [UnitType::Constraint, UnitType::Caveat];

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ContextArgs {
    /// Files, folders, or a project's folder; they need not exist any more [default: .]
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// What these words match; with a file or a folder, also what lies there
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// Only what names this function, type or other name as its scope
    #[arg(long, value_name = "NAME")]
    symbol: Option<String>,
    /// How much to show of each: a line, also its detail, or all of it and what was asked
    #[arg(long, value_name = "DEPTH", default_value = "standard", value_parser = ["summary", "standard", "deep"])]
    depth: String,
    /// The most tokens to print, of four characters each
    #[arg(long, value_name = "TOKENS", default_value_t = 2000, value_parser = whole_number(1_u64..))]
    budget: u64,
    /// Only these types, separated by commas
    #[arg(long = "type", value_name = "T", value_delimiter = ',',
        add = clap_complete::ArgValueCompleter::new(completions::types))]
    kinds: Vec<String>,
    /// Only what was learned since: 2026-11-01, or 30d
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Show records of sessions beside reviewed units, too
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A project, and a path within it.
pub(crate) struct ProjectPath {
    pub(crate) project: Project,
    /// Within the project; `None` for all of it.
    pub(crate) path: Option<String>,
}

impl ProjectPath {
    /// The place that a path of the command line names.
    pub(crate) fn from_path(path: &Path) -> std::io::Result<Self> {
        let full = full_path(path)?;
        let folder = full.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
        let project = Project::from_folder(folder);
        let path =
            full.strip_prefix(&project.path).ok().map(|path| path.to_string_lossy().replace('\\', "/"));
        Ok(Self { project, path: path.filter(|path| !path.is_empty()) })
    }
}

/// The absolute path, without links where it exists, and without `..` where it does not.
pub(crate) fn full_path(path: &Path) -> std::io::Result<PathBuf> {
    let plain = transcript::without_dots(&std::path::absolute(path)?);
    for folder in plain.ancestors() {
        if let Ok(real) = std::fs::canonicalize(folder) {
            // Not joined: an empty rest would add a slash.
            let rest = plain.strip_prefix(folder).unwrap_or(Path::new(""));
            return Ok(real.iter().chain(rest).collect());
        }
    }
    Ok(plain)
}

impl ContextArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let now = Timestamp::now();
        let since = self
            .since
            .as_deref()
            .map(|text| {
                parse_moment(text, now).ok_or_else(|| {
                    CliError::new(format!("{text:?} is not a time")).code(USAGE).hint("2026-11-01, or 30d")
                })
            })
            .transpose()?;
        let units = read_all_units(context)?;
        let kinds = self.kinds.iter().map(|kind| kind.trim()).filter(|kind| !kind.is_empty());
        let kinds: Vec<&str> = kinds.collect();
        kinds.iter().try_for_each(|kind| check_type(kind, units.iter()))?;
        let archive = open_archive()?;
        let depth = match self.depth.as_str() {
            "summary" => Depth::Summary,
            "deep" => Depth::Deep,
            _ => Depth::Standard,
        };
        let paths = if self.paths.is_empty() { vec![PathBuf::from(".")] } else { self.paths.clone() };
        let budget = (self.budget as usize / paths.len()).max(1);
        let mut answers = Vec::new();
        for path in &paths {
            let target = ProjectPath::from_path(path)?;
            let question = Question {
                path: target.path.clone(),
                symbol: self.symbol.clone(),
                query: self.query.clone().filter(|query| !query.trim().is_empty()),
                kinds: kinds.iter().map(|kind| UnitType::from(*kind)).collect(),
                since,
                budget,
                depth,
            };
            answers.push((path, ask(&question, &target.project, &units, archive.as_ref(), self.all, now)?));
        }
        if self.json {
            return match answers.as_slice() {
                [(_, one)] => output::print_json(one),
                many => {
                    let answers: Vec<_> = many.iter().map(|(_, answer)| answer).collect();
                    output::print_json(&json!({ "answers": answers }))
                }
            };
        }
        let mut text = String::new();
        for (number, (path, answer)) in answers.iter().enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text.push_str(&render(&path.display().to_string(), answer, now));
        }
        pager::print(context, &text)
    }
}

/// The merged units of the brain; none if there is no brain.
pub(crate) fn read_all_units(context: &Context) -> Result<Vec<Unit>, CliError> {
    let config = context.config()?;
    let brain = match context.brain(&config) {
        Ok(brain) => brain,
        Err(error) if error.code == crate::error::MISSING => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let units = read_units(&BrainView::open(&brain))?.units;
    Ok(units.into_iter().map(|(_, unit)| unit).collect())
}

/// Answers from reviewed units; from records too if there is no unit, or if all are wanted.
pub(crate) fn ask(
    question: &Question,
    project: &Project,
    units: &[Unit],
    archive: Option<&Archive>,
    all: bool,
    now: Timestamp,
) -> Result<Answer, CliError> {
    let place = Place { project: &project.key, root: &project.path };
    let records = match archive {
        Some(archive) if all => Records::All(archive),
        Some(archive) => Records::WithoutUnits(archive),
        None => Records::None,
    };
    let mut answer = answer(question, place, units, records, now)?;
    // What a person has written may hold a secret, and this may go to a log or to a session.
    for item in &mut answer.nuggets {
        let texts = std::iter::once(&mut item.summary).chain(&mut item.detail).chain(&mut item.alternatives);
        for text in texts.chain(&mut item.source_prompt) {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
    }
    Ok(answer)
}

/// An answer for a person.
pub(crate) fn render(place: &str, answer: &Answer, now: Timestamp) -> String {
    let place = safe(place);
    if answer.nuggets.is_empty() {
        return format!(
            "nothing is known about {place}\n\
             A unit bears on it with `scope: [PATH]` in its front matter (`nugget edit ID`).\n"
        );
    }
    let count = answer.nuggets.len() as u64;
    let mut lines = vec![Line::from(format!(
        "{place}: {}, {} tokens",
        output::counted(count, "piece"),
        output::thousands(answer.budget.used as u64)
    ))];
    for item in &answer.nuggets {
        lines.push(Line::default());
        lines.extend(render_item(item, now));
    }
    if let Some(hint) = &answer.more_context_hint {
        lines.push(Line::default());
        lines.push(Line::from(format!("{hint} (--budget)")));
    }
    output::styled(&lines)
}

fn render_item(item: &AnsweredItem, now: Timestamp) -> Vec<Line> {
    let width = output::terminal_width();
    let dim = Style::new().dim();
    let kind_style = if RULES.contains(&item.kind) { Style::new().fg(Color::Yellow) } else { Style::new() };
    let mut lines = Vec::new();
    let kind = item.kind.to_string();
    let indent = output::width(&kind) + 3;
    for (number, row) in
        output::wrap(&safe(&item.summary), width.saturating_sub(indent)).into_iter().enumerate()
    {
        let head = if number == 0 {
            Part::styled(format!("[{kind}] "), kind_style)
        } else {
            Part::raw(" ".repeat(indent))
        };
        lines.push(Line::from(vec![head, Part::styled(row, Style::new().bold())]));
    }
    let mut indented = |text: String, style: Style| {
        for row in output::wrap(&text, width.saturating_sub(2)) {
            lines.push(Line::from(Part::styled(format!("  {row}"), style)));
        }
    };
    if let Some(reason) = item.stale_reason {
        let newer = item.superseded_by.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
        indented(format!("may no longer hold: {}{newer}", reason.in_words()), Style::new().fg(Color::Yellow));
    }
    let detail = item.detail.as_deref().unwrap_or_default();
    for line in detail.lines().filter(|line| !line.trim().is_empty()) {
        indented(safe(line), Style::new());
    }
    if !item.alternatives.is_empty() {
        indented(format!("instead of: {}", safe(&item.alternatives.join("; "))), Style::new());
    }
    if let Some(prompt) = &item.source_prompt {
        indented(format!("asked: {}", safe(prompt)), Style::new());
    }
    let age = item.session_date.map(|at| format!(" | {}", output::age(at, now))).unwrap_or_default();
    let origin = match (&item.session, item.reviewed) {
        (_, true) => safe(&item.id),
        (Some(session), false) => {
            let by_model =
                if item.derivation == Some(Derivation::Model) { " by a model's reading" } else { "" };
            format!("not reviewed, session {}{by_model}", short(session))
        }
        (None, false) => "not reviewed".to_owned(),
    };
    let symbol = item.symbol.as_ref().filter(|symbol| **symbol != item.scope);
    let symbol = symbol.map(|symbol| format!(", {}", safe(symbol))).unwrap_or_default();
    indented(format!("{}{symbol} | {origin}{age}", safe(&item.scope)), dim);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_placed_in_its_project_though_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir_all(root.join("shop/.git")).unwrap();
        std::fs::create_dir_all(root.join("shop/src")).unwrap();
        let place = |path: &str| {
            let target = ProjectPath::from_path(&root.join(path)).unwrap();
            (target.project.path, target.path)
        };
        let shop = root.join("shop");
        assert_eq!(place("shop/src/gone/a.rs"), (shop.clone(), Some("src/gone/a.rs".into())));
        assert_eq!(place("shop/src/../src"), (shop.clone(), Some("src".into())));
        assert_eq!(place("shop"), (shop, None));
    }
}
