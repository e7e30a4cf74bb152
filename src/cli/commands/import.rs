//! `nugget import`: proposes existing notes as units, on one branch for review.

mod comparison;
mod domains;
mod exported;
mod front_matter;
mod other_format;
mod proposal;
mod sources;

use std::ffi::OsString;

use extract::notes;
use git::{CommitId, Repository};
use jiff::Timestamp;
use serde_json::json;

use self::comparison::{Comparison, KnownTexts};
use self::proposal::{
    ENFORCE_LEFT_OUT, NoteKeys, ProposedUnit, branch_name, commit_message, counted, new_unit, update_unit,
};
use self::sources::{LeftOut, SourceFile};
use super::completions;
use crate::context::Context;
use crate::error::CliError;
use crate::output;
use crate::proposal::{Proposal, propose};

/// The most units of one import, because nobody can review more.
const UNITS_MAX: usize = 2_000;
/// How many units and reasons the text output lists.
const LISTED_MAX: usize = 20;

/// Why a key of a unit is not that of its note.
const ONLY_IN_UNIT: &str = "the note says nothing of it; the unit keeps what it has in the brain";

const AFTER_HELP: &str = "\
SOURCE is a file or a folder of notes (.md, .markdown, .txt), or one of
  claude-md     CLAUDE.md files and .claude/rules: your own, and those of this
                project and of every project with sessions
  auto-memory   what Claude Code has remembered for your projects

All units are proposed on one branch for you to review; with a remote, also as
one pull request. Nothing else is changed, and no model is asked. Each unit
records its file, its section and a digest. Sections that the brain already has
or that were imported before are left out, and a changed section updates its
unit. Secrets and <private> parts are removed, and projects under
capture.exclude or with a .nuggetignore of * are skipped.

Examples:
  nugget import claude-md --dry-run
  nugget import claude-md auto-memory
  nugget import ~/notes --domain billing";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ImportArgs {
    /// What to import
    #[arg(
        required = true,
        value_name = "SOURCE",
        add = clap_complete::ArgValueCompleter::new(completions::import_sources)
    )]
    sources: Vec<OsString>,
    /// The domain of notes that name none themselves [default: by their folders' names, which it asks about]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCompleter::new(completions::domains))]
    domain: Option<String>,
    /// Show what would be imported; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Also propose what an earlier import proposed and nobody merged
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ImportArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, paths) = context.open()?;
        let default_branch = brain.manifest()?.default_branch;
        let repository = Repository::open(brain.root())?.with_default_branch(default_branch.as_deref());
        let base = repository.default_branch()?.tip;

        let mut left_out = Vec::new();
        let mut files = sources::find(&self.sources, &config, brain.root(), &mut left_out)?;
        let domains = domains::decide(&mut files, self.domain.as_deref(), !self.json)?;
        let record = paths.folder().join("imported.json");
        let mut known = KnownTexts::read(&brain, &repository, &record)?;
        if self.again {
            known.forget_proposed();
        }
        let now = Timestamp::now();
        let units = collect_units(&files, &mut known, &repository, base, now, &mut left_out)?;

        let branch = branch_name(brain.root(), &units, now);
        let mut commit = None;
        let mut is_delivered = false;
        if !self.dry_run && !units.is_empty() {
            let proposed = propose(
                &brain,
                &config,
                &paths,
                &repository,
                Proposal {
                    origin: queue::ORIGIN_IMPORT,
                    branch: branch.clone(),
                    base,
                    files: units.iter().map(ProposedUnit::to_file).collect(),
                    removes: Vec::new(),
                    message: commit_message(&units, &self.sources),
                },
                now,
            )?;
            is_delivered = proposed.is_delivered;
            commit = Some(proposed.commit);
            // Recorded last, so that the next import completes one that was killed.
            comparison::record_proposed(&record, &branch, units.iter().map(|unit| unit.digest.as_str()))?;
        }
        if self.json {
            return output::print_json(&json!({
                "dry_run": self.dry_run,
                "files": files.len(),
                "branch": (!units.is_empty()).then_some(&branch),
                "commit": commit,
                "units": units,
                "left_out": left_out,
            }));
        }
        let mut text = render_units(&units) + &render_left_out(&left_out);
        let (count, files) = (counted(units.len(), "unit"), counted(files.len(), "file"));
        text.push_str(&match (units.is_empty(), self.dry_run) {
            (true, _) => format!("nothing new in {files}\n"),
            (false, true) => format!("dry run; would propose {count} from {files} on one branch\n"),
            (false, false) => format!("{count} from {files} on branch {branch}\nreview: nugget review\n"),
        });
        if is_delivered {
            text.push_str("  remote: the branch is being pushed; `nugget status` shows what becomes of it\n");
        }
        if !units.is_empty() {
            text.push_str(&domains.unwrap_or_default());
        }
        output::print(&text)
    }
}

/// Reads the files and makes a unit of each section that is new or has changed.
fn collect_units(
    files: &[SourceFile],
    known: &mut KnownTexts,
    repository: &Repository,
    base: CommitId,
    now: Timestamp,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<ProposedUnit>, CliError> {
    let bar = output::progress_bar("reading", files.len());
    let mut units: Vec<ProposedUnit> = Vec::new();
    for file in files {
        bar.inc(1);
        let raw = match sources::read(&file.path).and_then(without_conflict) {
            Ok(raw) => raw,
            Err(reason) => {
                left_out.push(LeftOut { what: file.shown.clone(), reason });
                continue;
            }
        };
        if exported::is_index_of_export(&raw, file) {
            let reason = "the list of an export".to_owned();
            left_out.push(LeftOut { what: file.shown.clone(), reason });
            continue;
        }
        if let Some(unit) = exported::exported_unit(&raw, file, known, repository, base, left_out)? {
            match unit.and_then(|unit| with_own_path(unit, &units)) {
                Ok(unit) => units.push(unit),
                Err(reason) => left_out.push(LeftOut { what: file.shown.clone(), reason }),
            }
            continue;
        }
        let (raw, problem) = front_matter::with_yaml(raw);
        if let Some(reason) = problem {
            left_out.push(LeftOut { what: format!("{}: front matter", file.shown), reason });
        }
        let (sections, skipped) = notes::split_note(&raw, file.kind, &file.stem(), file.project.as_deref());
        left_out.extend(skipped.into_iter().map(|skipped| LeftOut {
            what: format!("{}: {}", file.shown, skipped.section),
            reason: skipped.reason,
        }));
        let (keys, problems) = NoteKeys::read(&raw, file);
        left_out.extend(
            problems
                .into_iter()
                .map(|reason| LeftOut { what: format!("{}: front matter", file.shown), reason }),
        );
        let mut is_proposed = false;
        for section in sections {
            let keys = keys.with_section(&section, file);
            let unit = if units.len() >= UNITS_MAX {
                Err(format!("more than {UNITS_MAX} units; import again after reviewing these"))
            } else {
                match known.compare(&section, &file.shown, |document| keys.is_changed(document)) {
                    Comparison::New => Ok(new_unit(&section, &keys, file, known, now)),
                    Comparison::Changed { path } => {
                        let updated = update_unit(&section, &keys, file, repository, base, &path, now)?;
                        updated.map(|(unit, only_in_unit)| {
                            left_out.extend(only_in_unit.into_iter().map(|key| LeftOut {
                                what: format!("{}: {key}", file.shown),
                                reason: ONLY_IN_UNIT.to_owned(),
                            }));
                            unit
                        })
                    }
                    Comparison::Known { reason } => Err(reason),
                }
            };
            match unit.and_then(|unit| with_own_path(unit, &units)) {
                Ok(unit) => {
                    is_proposed = true;
                    known.add_section(unit.id(), &section);
                    units.push(unit);
                }
                Err(reason) => {
                    let what = match &section.section {
                        Some(section) => format!("{}: {section}", file.shown),
                        None => file.shown.clone(),
                    };
                    left_out.push(LeftOut { what, reason });
                }
            }
        }
        if keys.is_enforced && is_proposed {
            left_out.push(LeftOut {
                what: format!("{}: enforce", file.shown),
                reason: ENFORCE_LEFT_OUT.to_owned(),
            });
        }
    }
    bar.finish_and_clear();
    Ok(units)
}

/// The text, unless a merge has left a conflict in it: its sections are not what anybody has written.
fn without_conflict(raw: String) -> Result<String, String> {
    match knowledge::text::conflict_line(&raw) {
        Some(line) => {
            Err(format!("line {line}: a merge has left a conflict; import it once that is resolved"))
        }
        None => Ok(raw),
    }
}

/// The unit, unless this import has another one for its file.
fn with_own_path(unit: ProposedUnit, units: &[ProposedUnit]) -> Result<ProposedUnit, String> {
    match units.iter().find(|other| other.path() == unit.path()) {
        None => Ok(unit),
        Some(other) => {
            Err(format!("its unit {} gets the text of {} in this import", unit.id(), other.source()))
        }
    }
}

fn render_units(units: &[ProposedUnit]) -> String {
    if units.is_empty() {
        return String::new();
    }
    let rows = units.iter().take(LISTED_MAX).map(|unit| {
        let mark = if unit.updates { " (update)" } else { "" };
        vec![unit.kind.clone(), output::fit(&unit.domain, 20), format!("{}{mark}", output::safe(&unit.title))]
    });
    let mut text = output::table(&["TYPE", "DOMAIN", "TITLE"], rows);
    if units.len() > LISTED_MAX {
        text.push_str(&format!("and {} more\n", units.len() - LISTED_MAX));
    }
    text + "\n"
}

fn render_left_out(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let mut text = format!("left out ({}):\n", left_out.len());
    for LeftOut { what, reason } in left_out.iter().take(LISTED_MAX) {
        text.push_str(&format!("  {}: {}\n", output::safe(what), output::safe(reason)));
    }
    if left_out.len() > LISTED_MAX {
        text.push_str(&format!("  and {} more (--json lists all)\n", left_out.len() - LISTED_MAX));
    }
    text + "\n"
}
