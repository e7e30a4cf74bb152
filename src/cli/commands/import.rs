//! `nugget import`: what somebody has written already becomes one branch of units to review.

mod known;
mod notes;
mod sources;

use std::collections::HashSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use brain::StatePaths;
use git::{Identity, Lock, NewFile, Outcome, Proposal, Repository};
use jiff::Timestamp;
use knowledge::{Document, Domain, UnitId, text};
use queue::Queue;
use serde::Serialize;
use serde_json::json;
use serde_yaml::{Mapping, Value};

use self::known::{Known, Verdict, digest};
use self::notes::{Kind, Part};
use self::sources::Source;
use crate::context::{Context, delivery_settings, ensure_drainer, exclude};
use crate::error::{CliError, MISSING};
use crate::output;

/// How long another process may hold the repository.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// The most units of one import: more can be reviewed by nobody.
const UNITS_MAX: usize = 2_000;
/// How many units and reasons are listed for a person.
const LISTED_MAX: usize = 20;
/// How sure one may be of what a person wrote, and of what a model wrote and nobody reviewed.
const CONFIDENCE: f64 = 0.8;
const CONFIDENCE_MEMORY: f64 = 0.6;

const AFTER: &str = "\
SOURCE is a file or a folder of notes (.md, .markdown, .txt), or one of
  claude-md     CLAUDE.md files and .claude/rules: yours, and those of this
                project and of every project that has sessions
  auto-memory   what Claude Code has remembered by itself for your projects

Everything comes on one branch for you to review, with a remote also there as
one pull request; nothing is written beside it, and no model is asked. Each unit names its file, its section and a digest. What
the brain has already, or was brought in before, is left out; a section that has
changed since changes its unit. Secrets and <private> parts are taken out, and
projects under capture.exclude or with a .nuggetignore of * are left alone.

Examples:
  nugget import claude-md --dry-run
  nugget import claude-md auto-memory
  nugget import ~/notes";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// What to bring in
    #[arg(required = true, value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    sources: Vec<OsString>,
    /// Say what would be brought in; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Also what an earlier import brought and nobody merged
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A unit that is proposed.
#[derive(Serialize)]
struct Proposed {
    id: String,
    path: String,
    title: String,
    #[serde(rename = "type")]
    kind: String,
    domain: String,
    /// Where it comes from.
    file: String,
    section: Option<String>,
    /// Whether it takes the place of what an earlier import brought from there.
    updates: bool,
    #[serde(skip)]
    content: String,
    #[serde(skip)]
    digest: String,
}

/// What does not become a unit, and why.
#[derive(Serialize)]
struct LeftOut {
    what: String,
    reason: String,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        let named = brain.manifest()?.default_branch;
        let repository = Repository::open(brain.root())?.with_default_branch(named.as_deref());
        let base = repository.default_branch()?.tip;

        let mut left_out = Vec::new();
        let found = sources::find(&self.sources, &exclude(&config), brain.root(), &mut left_out)?;
        let record = places.folder().join("imported.json");
        let mut known = Known::of(&brain, &repository, &record)?;
        if self.again {
            known.forget_record();
        }
        let bar = output::progress_bar("reading");
        bar.set_length(found.len() as u64);
        let now = Timestamp::now();
        let mut units: Vec<Proposed> = Vec::new();
        for source in &found {
            bar.inc(1);
            let raw = match sources::read(&source.path) {
                Ok(raw) => raw,
                Err(reason) => {
                    left_out.push(LeftOut { what: source.shown.clone(), reason });
                    continue;
                }
            };
            let (parts, short) = notes::parts(&raw, source.kind, &source.stem(), source.project.as_deref());
            left_out.extend(
                short.into_iter().map(|(section, reason)| LeftOut {
                    what: format!("{}: {section}", source.shown),
                    reason,
                }),
            );
            for part in parts {
                let what = match &part.section {
                    Some(section) => format!("{}: {section}", source.shown),
                    None => source.shown.clone(),
                };
                if units.len() >= UNITS_MAX {
                    let reason = format!("more than {UNITS_MAX} units; import again once these are reviewed");
                    left_out.push(LeftOut { what, reason });
                    continue;
                }
                let verdict = known.judge(&part, &source.shown);
                let unit = match verdict {
                    Verdict::New => new_unit(&part, source, &mut known, now),
                    Verdict::Update { path } => match update(&part, source, &repository, base, &path, now)? {
                        Ok(unit) => unit,
                        Err(reason) => {
                            left_out.push(LeftOut { what, reason });
                            continue;
                        }
                    },
                    Verdict::Known { reason } => {
                        left_out.push(LeftOut { what, reason });
                        continue;
                    }
                };
                known.add(&unit.id, &part);
                units.push(unit);
            }
        }
        bar.finish_and_clear();

        let branch = branch_name(&units, now);
        let mut commit = None;
        let mut delivers = false;
        if !self.dry_run && !units.is_empty() {
            places.create()?;
            let held = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
            let proposed = repository.propose(
                &held,
                &Proposal {
                    branch: branch.clone(),
                    base: Some(base),
                    files: units.iter().map(Proposed::file).collect(),
                    message: message(&units, &self.sources),
                    time: now,
                    author: Identity::default(),
                },
            )?;
            let made = queue::Branch {
                name: branch.clone(),
                commit: proposed.commit.to_string(),
                units: u32::try_from(units.len()).unwrap_or(u32::MAX),
            };
            drop(held);
            if proposed.outcome != Outcome::NothingNew {
                delivers = delivery_settings(&config).enabled && repository.remote()?.is_some();
                let queue = Queue::open(&places.queue())?;
                queue.add_import(&made, delivers, now)?;
                if delivers {
                    ensure_drainer(&places, &brain)?;
                }
            }
            commit = Some(made.commit);
            // Last, so that an import that was killed is made whole by the next one.
            known::record(&record, &branch, units.iter().map(|unit| unit.digest.as_str()))?;
        }
        if self.json {
            output::print_json(&json!({
                "dry_run": self.dry_run,
                "files": found.len(),
                "branch": (!units.is_empty()).then_some(&branch),
                "commit": commit,
                "units": units,
                "left_out": left_out,
            }))?;
        } else {
            let root = brain.root().display().to_string();
            let mut text = self.told(&units, &left_out, found.len(), &branch, &root);
            if delivers {
                text.push_str("  or on the remote: it is pushed now, and `nugget status` shows where\n");
            }
            output::print(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn told(
        &self,
        units: &[Proposed],
        left_out: &[LeftOut],
        files: usize,
        branch: &str,
        root: &str,
    ) -> String {
        let mut text = String::new();
        if !units.is_empty() {
            let mut rows = vec![["TYPE", "DOMAIN", "TITLE"].map(str::to_owned).to_vec()];
            rows.extend(units.iter().take(LISTED_MAX).map(|unit| {
                let mark = if unit.updates { " (changed since)" } else { "" };
                vec![
                    unit.kind.clone(),
                    output::fit(&unit.domain, 20),
                    format!("{}{mark}", output::safe(&unit.title)),
                ]
            }));
            text.push_str(&output::table(&rows));
            if units.len() > LISTED_MAX {
                text.push_str(&format!("and {} more\n", units.len() - LISTED_MAX));
            }
            text.push('\n');
        }
        if !left_out.is_empty() {
            text.push_str(&format!("left out, {} in all:\n", left_out.len()));
            for LeftOut { what, reason } in left_out.iter().take(LISTED_MAX) {
                text.push_str(&format!("  {}: {}\n", output::safe(what), output::safe(reason)));
            }
            if left_out.len() > LISTED_MAX {
                text.push_str(&format!("  and {} more (--json lists all)\n", left_out.len() - LISTED_MAX));
            }
            text.push('\n');
        }
        let files = counted(files, "file");
        let count = counted(units.len(), "unit");
        text.push_str(&match (units.is_empty(), self.dry_run) {
            (true, _) => format!("nothing new in {files}\n"),
            (false, true) => format!("{count} from {files} would be proposed on one branch\n"),
            (false, false) => format!(
                "{count} from {files} on branch {branch}\n  look:  git -C {root} show {branch}\n  merge: git -C {root} merge {branch}\n"
            ),
        });
        text
    }
}

impl Proposed {
    fn file(&self) -> NewFile {
        NewFile { path: self.path.clone(), content: self.content.clone().into_bytes(), edits: self.updates }
    }
}

/// Named after what it holds, so that the same import twice makes one branch.
fn branch_name(units: &[Proposed], now: Timestamp) -> String {
    let mut hasher = blake3::Hasher::new();
    for unit in units {
        hasher.update(unit.path.as_bytes()).update(unit.digest.as_bytes());
    }
    format!("nugget/import-{}-{}", now.strftime("%Y%m%d"), &hasher.finalize().to_hex()[..8])
}

fn new_unit(part: &Part, source: &Source, known: &mut Known, now: Timestamp) -> Proposed {
    let domain = part.domain.as_deref().or(source.domain.as_deref()).unwrap_or("general");
    let domain = Domain::sanitized(domain);
    let digest = digest(part);
    let id = known.name(&UnitId::from_title(&part.title), &digest);
    let path = format!("domains/{domain}/{}/{id}.md", part.kind.folder());
    let by = if source.kind == Kind::Memory { "auto-memory" } else { "import" };
    let usual = if source.kind == Kind::Memory { CONFIDENCE_MEMORY } else { CONFIDENCE };
    let tags = part.tags.iter().map(|tag| knowledge::name::slug(tag)).filter(|tag| !tag.is_empty());
    let document = Document::compose(
        &[
            ("id", id.as_str().into()),
            ("type", part.kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", part.title.as_str().into()),
            ("description", part.description.as_str().into()),
            ("tags", Value::Sequence(tags.map(Value::from).collect())),
            ("confidence", part.confidence.unwrap_or(usual).into()),
            ("source", by.into()),
            ("created", stamp(source.modified.unwrap_or(now))),
            ("last_modified", stamp(now)),
            ("sources", provenance(part, source, &digest, now)),
        ],
        &body(part),
    );
    Proposed {
        id: id.as_str().to_owned(),
        path,
        title: part.title.clone(),
        kind: part.kind.as_str().to_owned(),
        domain: domain.as_str().to_owned(),
        file: source.shown.clone(),
        section: part.section.clone(),
        updates: false,
        content: document.as_str().to_owned(),
        digest,
    }
}

/// The unit that an earlier import made of this section, with what the section says now; a reason where
/// that would undo somebody's work.
fn update(
    part: &Part,
    source: &Source,
    repository: &Repository,
    base: git::CommitId,
    path: &str,
    now: Timestamp,
) -> Result<Result<Proposed, String>, CliError> {
    let content = repository.read_at(base, path)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(mut document) = content.and_then(|text| Document::parse(text).ok()) else {
        return Ok(Err(format!("its unit {path} is not on the branch of knowledge")));
    };
    let Ok(unit) = document.unit(path) else {
        return Ok(Err(format!("its unit {path} cannot be read")));
    };
    if !known::is_as_imported(&document) {
        return Ok(Err(format!(
            "changed since, and so was its unit {} by a person: mend it by hand",
            unit.id
        )));
    }
    let digest = digest(part);
    document.set_body(&format!("\n{}\n", body(part).trim()));
    document.set("title", &part.title.as_str().into());
    document.set("description", &part.description.as_str().into());
    document.set("last_modified", &stamp(now));
    document.set("sources", &provenance(part, source, &digest, now));
    Ok(Ok(Proposed {
        id: unit.id.as_str().to_owned(),
        path: path.to_owned(),
        title: part.title.clone(),
        kind: unit.kind.as_str().to_owned(),
        domain: unit.domain.as_str().to_owned(),
        file: source.shown.clone(),
        section: part.section.clone(),
        updates: true,
        content: document.as_str().to_owned(),
        digest,
    }))
}

fn body(part: &Part) -> String {
    format!("# {}\n\n{}", part.title, text::demote_headings(&part.body))
}

fn stamp(time: Timestamp) -> Value {
    Value::from(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Where a unit comes from, for its `sources`.
fn provenance(part: &Part, source: &Source, digest: &str, now: Timestamp) -> Value {
    let mut entry = Mapping::new();
    entry.insert("file".into(), source.shown.as_str().into());
    if let Some(section) = &part.section {
        entry.insert("section".into(), section.as_str().into());
    }
    entry.insert("digest".into(), digest.into());
    entry.insert("time".into(), stamp(source.modified.unwrap_or(now)));
    Value::Sequence(vec![Value::Mapping(entry)])
}

fn message(units: &[Proposed], sources: &[OsString]) -> String {
    let from: Vec<String> =
        sources.iter().map(|source| sources::shown(std::path::Path::new(source))).collect();
    let mut message = format!(
        "Knowledge imported from {}\n\n{}, as they were written; nothing was read by a model.\n",
        text::escape_forge_syntax(&text::one_line(&from.join(", "), 60)),
        counted(units.len(), "unit"),
    );
    for (heading, updates) in [("Added", false), ("Changed", true)] {
        let mut listed = HashSet::new();
        for unit in units.iter().filter(|unit| unit.updates == updates) {
            if listed.is_empty() {
                message.push_str(&format!("\n{heading}:\n"));
            }
            if listed.insert(&unit.path) {
                let title = text::escape_forge_syntax(&text::one_line(&unit.title, 100));
                let file = text::escape_forge_syntax(&text::one_line(&unit.file, 100));
                message.push_str(&format!("- {}\n  {title} ({}, from {file})\n", unit.path, unit.kind));
            }
        }
    }
    message
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is named on the line and is not there.
fn missing(what: &str, why: &str) -> CliError {
    CliError::new(format!("{what}: {why}"))
        .code(MISSING)
        .hint("give a file, a folder, claude-md or auto-memory")
}
