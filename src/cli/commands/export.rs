//! `nugget export`: writes the units as JSON, a web page or a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use actors::BrainView;
use brain::Files;
use jiff::Timestamp;
use knowledge::{Document, Unit};
use serde_json::{Value, json};
use serde_yaml::Mapping;
use transcript::redact::{redact, redact_value};

use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output;
use crate::output_file::{named, write_file};
use crate::unit_files::{UnitFiles, read_units};

/// The HTML page without its data.
const PAGE: &str = include_str!("export/page.html");
/// The placeholder for the data.
const DATA_PLACEHOLDER: &str = "__UNITS__";

const AFTER_HELP: &str = "\
Formats:
  json  every unit with its body and its relations
  html  one page to search the units and see how they are related; it works
        without a network
  okf   a folder of markdown files in the Open Knowledge Format, with an index

Recognised secrets are removed. Units on branches are not exported.

Examples:
  nugget export --format json | jq '.units[].title'
  nugget export --format html -o brain.html
  nugget export --format okf -o ~/brain-okf";

/// The folder of an export that is not complete.
const PARTIAL: &str = ".nugget-partial";
/// The file in it that names what is moved out of it, once all is written.
const MOVING: &str = ".moving";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ExportArgs {
    /// What to write
    #[arg(long)]
    format: Format,
    /// The file to write, for okf an empty or new folder [default: stdout]
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    output: Option<PathBuf>,
    /// Print JSON about what was written to PATH
    #[arg(long, requires = "output")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Html,
    Okf,
}

impl ExportArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (_, brain, _) = context.open()?;
        let view = BrainView::open(&brain);
        let UnitFiles { units, problems, .. } = read_units(&view)?;
        let name = brain.manifest().map_or_else(|_| "brain".to_owned(), |manifest| manifest.name);
        let count = units.len();
        for problem in &problems {
            output::note(&format!("left out: {}", output::safe(problem)));
        }
        let text = match self.format {
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&units_json(&name, &units))?),
            Format::Html => render_page(&name, &units)?,
            Format::Okf => String::new(),
        };
        let is_folder = self.format == Format::Okf;
        let output = named(&self.output);
        if let Some(path) = output {
            refuse_brains_own(brain.root(), path, &units, is_folder)?;
        }
        match output {
            Some(folder) if is_folder => write_folder(&view, &name, &units, folder)?,
            Some(path) => write_file(path, |out| Ok(out.write_all(text.as_bytes())?))?,
            None if is_folder => {
                return Err(CliError::new("the okf format needs a folder").code(USAGE).hint("give -o DIR"));
            }
            None => output::print_verbatim(&text)?,
        }
        if let Some(path) = output.filter(|_| self.json) {
            output::print_json(&json!({ "path": path, "units": count, "left_out": problems }))?;
        } else if let Some(path) = output {
            let plural = if count == 1 { "" } else { "s" };
            let count = output::thousands(count as u64);
            output::print(&format!("wrote {count} unit{plural} to {}\n", path.display()))?;
        }
        Ok(())
    }
}

/// Refuses to write over the brain's own files, and a folder of units in the brain, where each would be found twice.
fn refuse_brains_own(
    root: &Path,
    target: &Path,
    units: &[(String, Unit)],
    is_folder: bool,
) -> Result<(), CliError> {
    let (root, real) = (real_path(root), real_path(target));
    let Ok(inner) = real.strip_prefix(&root) else { return Ok(()) };
    let is_own =
        ["domains", "brain.yaml", ".git", brain::DERIVED_FOLDER].iter().any(|own| inner.starts_with(own))
            || units.iter().any(|(path, _)| inner == Path::new(path));
    let what = match is_own {
        true => "is the brain's own",
        false if is_folder => "is in the brain, where each unit would be found twice",
        false => return Ok(()),
    };
    Err(CliError::new(format!("{} {what}; nothing was written", target.display()))
        .code(USAGE)
        .hint("give a path outside of the brain"))
}

/// The path without links and dots, also of what does not exist yet.
fn real_path(path: &Path) -> PathBuf {
    let path = transcript::without_dots(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let real = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(std::fs::canonicalize(above).ok()?.join(rest))
    });
    // Joining nothing leaves a slash at the end.
    real.map_or(path, |real| real.components().collect())
}

/// All units with their relations, redacted.
fn units_json(name: &str, units: &[(String, Unit)]) -> Value {
    let listed = units.iter().map(|(path, unit)| {
        let mut listed = json!(unit);
        listed["path"] = path.as_str().into();
        listed["body"] = unit.body.trim().into();
        listed
    });
    let mut exported =
        json!({ "brain": name, "exported": Timestamp::now(), "units": listed.collect::<Vec<_>>() });
    clean_strings(&mut exported);
    exported
}

fn clean_strings(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(values) => values.iter_mut().for_each(clean_strings),
        Value::Object(values) => values.values_mut().for_each(clean_strings),
        _ => {}
    }
}

/// Removes invisible characters and secrets.
fn clean(text: &str) -> String {
    redact(&knowledge::text::strip_hidden(text)).into_owned()
}

/// The page with its data.
///
/// `<`, `>` and `&` are escaped in the data, so that no unit can end the script element or begin another. The page
/// inserts the data as text, never as HTML.
fn render_page(name: &str, units: &[(String, Unit)]) -> Result<String, CliError> {
    let data = serde_json::to_string(&units_json(name, units))?;
    let mut safe = String::with_capacity(data.len());
    for c in data.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    let (head, tail) = PAGE
        .split_once(DATA_PLACEHOLDER)
        .ok_or_else(|| CliError::new("the page has no placeholder for its data"))?;
    Ok(format!("{head}{safe}{tail}"))
}

/// Writes a folder in which every file except the reserved `index.md` is a unit with a type.
fn write_folder(
    brain: &dyn Files,
    name: &str,
    units: &[(String, Unit)],
    folder: &Path,
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(format!("failed to write to {}: {error}", folder.display()))
            .hint("give a folder that you may write to")
    };
    // What is not complete is in a folder of its own, so that the next export can remove what a killed one has left.
    let partial = folder.join(PARTIAL);
    take_back(&partial, folder).map_err(failed)?;
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::new(format!("{} is not empty; nothing was written", folder.display()))
            .hint("give an empty or a new folder"));
    }
    let move_up = || -> std::io::Result<()> {
        let names = std::fs::read_dir(&partial)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<std::io::Result<Vec<_>>>()?;
        let listed: Vec<_> = names.iter().filter_map(|name| name.to_str()).collect();
        std::fs::write(partial.join(MOVING), serde_json::to_vec(&listed)?)?;
        for name in &names {
            std::fs::rename(partial.join(name), folder.join(name))?;
        }
        std::fs::remove_dir_all(&partial)
    };
    let written = write_units(brain, name, units, &partial, &failed).and_then(|()| move_up().map_err(failed));
    if written.is_err() {
        // The first error is returned; the next export removes what is left.
        let _ = take_back(&partial, folder);
    }
    written
}

/// Removes what an export that is not complete has written, and what it has moved into the folder already.
fn take_back(partial: &Path, folder: &Path) -> std::io::Result<()> {
    let found = |done: std::io::Result<()>| match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    // None is named before all is written, and half a list is none.
    let moving = std::fs::read(partial.join(MOVING)).unwrap_or_default();
    let moving: Vec<String> = serde_json::from_slice(&moving).unwrap_or_default();
    let is_plain = |name: &str| Path::new(name).file_name().is_some_and(|own| own == name);
    for name in moving.iter().filter(|name| is_plain(name) && !partial.join(name).exists()) {
        let moved = folder.join(name);
        found(if moved.is_dir() { std::fs::remove_dir_all(moved) } else { std::fs::remove_file(moved) })?;
    }
    found(std::fs::remove_dir_all(partial))
}

fn write_units(
    brain: &dyn Files,
    name: &str,
    units: &[(String, Unit)],
    folder: &Path,
    failed: &dyn Fn(std::io::Error) -> CliError,
) -> Result<(), CliError> {
    for (path, unit) in units {
        let mut document = Document::parse(brain.read(path)?)
            .map_err(|error| CliError::new(format!("{path}:{}: {}", error.line, error.what)))?;
        if document.get("type").is_none() {
            document.set("type", &unit.kind.as_str().into());
            document.set("title", &unit.title.as_str().into());
        }
        let text = redacted_file(&document);
        let target = folder.join(path);
        std::fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(failed)?;
        std::fs::write(&target, text.as_bytes()).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(folder.join("index.md"), index_page(name, units)).map_err(failed)
}

/// A unit's file without secrets. Front matter that has one is written again, as what stands for a secret is no YAML in most
/// places; it loses its comments then.
fn redacted_file(document: &Document) -> String {
    let text = redact(document.as_str());
    let is_kept = Document::parse(&*text).is_ok_and(|found| found.front_matter() == document.front_matter());
    let mapping = serde_yaml::from_str::<Mapping>(document.front_matter()).ok().filter(|_| !is_kept);
    let Some(mapping) = mapping else { return text.into_owned() };
    let (mut kept, mut front) = (Mapping::new(), String::new());
    for (key, value) in mapping {
        let name = key.as_str().unwrap_or_default().to_owned();
        let key = redacted_value("", key);
        kept.insert(key.clone(), redacted_value(&name, value));
        let written = serde_yaml::to_string(&kept).unwrap_or_default();
        if redact(&written) == written {
            front = written;
        } else {
            // A secret that is not in one of the texts alone.
            kept.remove(&key);
        }
    }
    format!("---\n{front}---\n{}", redact(document.body()))
}

/// A value without the secrets in its texts. `key` may tell that it is one.
fn redacted_value(key: &str, value: serde_yaml::Value) -> serde_yaml::Value {
    use serde_yaml::Value;
    match value {
        Value::String(text) => Value::String(redact_value(key, &text)),
        Value::Sequence(items) => items.into_iter().map(|item| redacted_value(key, item)).collect(),
        Value::Mapping(entries) => {
            let entries = entries.into_iter().map(|(inner, value)| {
                let name = inner.as_str().unwrap_or(key).to_owned();
                (redacted_value("", inner), redacted_value(&name, value))
            });
            Value::Mapping(entries.collect())
        }
        other => other,
    }
}

/// The index of the folder, by domain.
fn index_page(name: &str, units: &[(String, Unit)]) -> String {
    let mut domains: BTreeMap<&str, Vec<&(String, Unit)>> = BTreeMap::new();
    for unit in units {
        domains.entry(unit.1.domain.as_str()).or_default().push(unit);
    }
    let line = |text: &str| knowledge::text::one_line(&clean(text), 200).replace(['[', ']', '<', '>'], "");
    let mut text = format!("# {}\n\n{} units, exported by nugget.\n", line(name), units.len());
    for (domain, units) in domains {
        text.push_str(&format!("\n## {}\n\n", line(domain)));
        for (path, unit) in units {
            let path = path.replace(' ', "%20").replace('(', "%28").replace(')', "%29");
            let about =
                unit.description.as_deref().map(|about| format!(": {}", line(about))).unwrap_or_default();
            text.push_str(&format!("- [{}]({path}){about}\n", line(&unit.title)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brains_own_files_are_no_target() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        std::fs::create_dir_all(root.join("domains")).unwrap();
        std::os::unix::fs::symlink(&root, folder.path().join("link")).unwrap();
        let refused = |path: &str, is_folder| {
            refuse_brains_own(&root, &folder.path().join(path), &[], is_folder).is_err()
        };
        for path in ["brain/domains/x/y.md", "brain/brain.yaml", "brain/.git/config", "link/.nugget/x"] {
            assert!(refused(path, false), "{path}");
        }
        assert!(refused("brain/share", true) && refused("brain", true) && refused("link/new/share", true));
        assert!(!refused("brain/page.html", false) && !refused("brain-okf", true));
        assert!(refused("other/../brain/share", true));
    }

    #[test]
    fn what_a_killed_export_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        std::fs::create_dir_all(&root).unwrap();
        let target = folder.path().join("okf");
        std::fs::create_dir_all(target.join(PARTIAL).join("domains")).unwrap();
        let brain = brain::Brain::init(&root).unwrap().brain;
        write_folder(&brain, "brain", &[], &target).unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["index.md"]);
        assert!(write_folder(&brain, "brain", &[], &target).is_err());
    }

    #[test]
    fn an_export_that_was_killed_between_two_files_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let brain = brain::Brain::init(&folder.path().join("brain")).unwrap().brain;
        let target = folder.path().join("okf");
        let partial = target.join(PARTIAL);
        let kill = |moved: &Path| {
            std::fs::create_dir_all(partial.join("domains")).unwrap();
            std::fs::write(partial.join("index.md"), "old").unwrap();
            std::fs::write(partial.join(MOVING), r#"["domains","index.md"]"#).unwrap();
            std::fs::rename(partial.join(moved), target.join(moved)).unwrap();
        };
        kill(Path::new("domains"));
        write_folder(&brain, "brain", &[], &target).unwrap();
        let names: Vec<_> =
            std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["index.md"]);

        // A person has put a file beside what was moved.
        kill(Path::new("index.md"));
        std::fs::create_dir(target.join("domains")).unwrap();
        std::fs::write(target.join("domains/mine.md"), "mine").unwrap();
        assert!(write_folder(&brain, "brain", &[], &target).is_err());
        assert_eq!(std::fs::read_to_string(target.join("domains/mine.md")).unwrap(), "mine");
    }
}
