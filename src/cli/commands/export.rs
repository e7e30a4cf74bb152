//! `nugget export`: the units for other programs and other eyes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use actors::brain_view::BrainView;
use brain::Files;
use jiff::Timestamp;
use knowledge::{Document, Unit};
use serde_json::{Value, json};

use super::show::{Shelf, read_all};
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::output;

/// The page without its data.
const PAGE: &str = include_str!("export/page.html");
/// Where the data goes.
const DATA: &str = "__UNITS__";

const AFTER: &str = "\
Formats:
  json  every unit with its body and its relations, to stdout or to FILE
  html  one page to search the units and see how they are related; it needs no
        network and asks for none
  okf   a folder of markdown files in the Open Knowledge Format, with an index

Secrets that are recognised are taken out. What is on branches is not exported.

Examples:
  nugget export --format json | jq '.units[].title'
  nugget export --format html -o brain.html
  nugget export --format okf -o ~/brain-okf";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// What to write
    #[arg(long)]
    format: Format,
    /// Where to: a file, for okf a folder that is empty or not there
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Json,
    Html,
    Okf,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let view = BrainView::open(&brain);
        let Shelf { units, problems } = read_all(&view)?;
        let name = brain.manifest().map_or_else(|_| "brain".to_owned(), |manifest| manifest.name);
        let count = units.len();
        for problem in &problems {
            output::note(&format!("left out {}", output::safe(problem)));
        }
        match (self.format, &self.output) {
            (Format::Json, None) => output::print_json(&everything(&name, &units))?,
            (Format::Json, Some(path)) => {
                write(path, &format!("{}\n", serde_json::to_string_pretty(&everything(&name, &units))?))?;
            }
            (Format::Html, None) => output::print(&page(&name, &units)?)?,
            (Format::Html, Some(path)) => write(path, &page(&name, &units)?)?,
            (Format::Okf, None) => {
                return Err(CliError::new("okf is a folder: where to?").code(USAGE).hint("give -o DIR"));
            }
            (Format::Okf, Some(folder)) => bundle(&view, &name, &units, folder)?,
        }
        if let Some(path) = &self.output {
            let plural = if count == 1 { "" } else { "s" };
            output::print(&format!("wrote {count} unit{plural} to {}\n", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// All units with their relations; nothing in it is a secret that is recognised.
fn everything(name: &str, units: &[(String, Unit)]) -> Value {
    let listed: Vec<Value> = units
        .iter()
        .map(|(path, unit)| {
            let related: Vec<Value> = unit
                .related
                .iter()
                .map(|related| json!({ "id": clean(related.id.as_str()), "relation": clean(related.relation.as_str()) }))
                .collect();
            json!({
                "id": clean(unit.id.as_str()),
                "path": clean(path),
                "type": clean(unit.kind.as_str()),
                "domain": clean(unit.domain.as_str()),
                "title": clean(&unit.title),
                "description": unit.description.as_deref().map(clean),
                "tags": unit.tags.iter().map(|tag| clean(tag)).collect::<Vec<_>>(),
                "confidence": unit.confidence,
                "source": clean(&unit.source),
                "status": unit.status.as_deref().map(clean),
                "created": unit.created,
                "last_modified": unit.last_modified,
                "related": related,
                "body": clean(unit.body.trim()),
            })
        })
        .collect();
    json!({ "brain": clean(name), "exported": Timestamp::now(), "units": listed })
}

/// A text without what cannot be seen and without its secrets.
fn clean(text: &str) -> String {
    transcript::redact::redact(&knowledge::text::strip_hidden(text)).into_owned()
}

/// The page with its data. In the data there is no `<`, `>` or `&`, so that it cannot end its element or begin
/// another, whatever the units hold; the page puts all of it in as text, never as HTML.
fn page(name: &str, units: &[(String, Unit)]) -> Result<String, CliError> {
    let data = serde_json::to_string(&everything(name, units))?;
    let mut safe = String::with_capacity(data.len());
    for c in data.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    let (head, tail) =
        PAGE.split_once(DATA).ok_or_else(|| CliError::new("the page has no place for its data"))?;
    Ok(format!("{head}{safe}{tail}"))
}

/// Writes a folder in which every file but the reserved `index.md` is a unit with a type.
fn bundle(brain: &dyn Files, name: &str, units: &[(String, Unit)], folder: &Path) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(format!("failed to write to {}: {error}", folder.display()))
            .hint("give a folder that you may write to")
    };
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CliError::new(format!("{} is not empty; nothing was written", folder.display()))
            .hint("give a folder that is empty or not there"));
    }
    for (path, unit) in units {
        let mut document = Document::parse(brain.read(path)?)
            .map_err(|error| CliError::new(format!("{path}:{}: {}", error.line, error.what)))?;
        if document.get("type").is_none() {
            document.set("type", &unit.kind.as_str().into());
            document.set("title", &unit.title.as_str().into());
        }
        // Redacted text is still the same document: only words were taken out.
        let text = transcript::redact::redact(document.as_str());
        let target = folder.join(path);
        std::fs::create_dir_all(target.parent().unwrap_or(folder)).map_err(failed)?;
        std::fs::write(&target, text.as_bytes()).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(folder.join("index.md"), contents(name, units)).map_err(failed)
}

/// The bundle's list of what is in it, by field.
fn contents(name: &str, units: &[(String, Unit)]) -> String {
    let mut fields: BTreeMap<&str, Vec<&(String, Unit)>> = BTreeMap::new();
    for unit in units {
        fields.entry(unit.1.domain.as_str()).or_default().push(unit);
    }
    let line = |text: &str| knowledge::text::one_line(&clean(text), 200).replace(['[', ']', '<', '>'], "");
    let mut text = format!("# {}\n\n{} units, exported by nugget.\n", line(name), units.len());
    for (field, units) in fields {
        text.push_str(&format!("\n## {}\n\n", line(field)));
        for (path, unit) in units {
            let path = path.replace(' ', "%20").replace('(', "%28").replace(')', "%29");
            let about =
                unit.description.as_deref().map(|about| format!(": {}", line(about))).unwrap_or_default();
            text.push_str(&format!("- [{}]({path}){about}\n", line(&unit.title)));
        }
    }
    text
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(format!("failed to write {}: {error}", path.display()))
            .hint("give a file in a folder that you may write to")
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(CliError::new(format!("there is no folder {}", folder.display()))
            .hint("make it, or give a file in another one"));
    }
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
