//! What reviewed units say about the code at hand: those about a file by their scope, and which may no longer hold.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use archive::Project;
use brain::{Brain, Files as _};
use index::Catalog;
use jiff::Timestamp;
use knowledge::unit::is_retired;
use knowledge::{Document, Unit};
use provenance::context::{file_of_unit, unit_item, unit_staleness};
use provenance::stale::StaleCheck;
use retrieve::FileUnit;
use transcript::redact::redact;
use transcript::without_dots;

use crate::brain_view::BrainView;

/// The most units about the files of one question.
const UNITS_MAX: usize = 8;
const DETAIL_CHARS_MAX: usize = 400;

/// The project that a process works in, and the brain.
pub struct CodeContext {
    brain: Brain,
    folder: PathBuf,
    now: Timestamp,
    /// Opened when a unit is read first: most hooks say nothing of any.
    view: OnceLock<BrainView>,
    /// Found when it is first asked for: its name is redacted, and loading the rules for that takes a hook's time.
    project: OnceLock<Project>,
    check: Mutex<Option<StaleCheck>>,
}

impl CodeContext {
    /// For the project that `folder` is in.
    pub fn new(brain: &Brain, folder: &Path, now: Timestamp) -> Self {
        let (brain, folder) = (brain.clone(), folder.to_owned());
        Self { brain, folder, now, view: OnceLock::new(), project: OnceLock::new(), check: Mutex::default() }
    }

    /// Reads units through a view that is open already, if none was read yet.
    pub fn set_view(&self, view: BrainView) {
        let _ = self.view.set(view);
    }

    fn project(&self) -> &Project {
        self.project.get_or_init(|| {
            Project::from_folder(&std::fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone()))
        })
    }

    /// The project's key: its remote, or its folder.
    pub fn project_key(&self) -> &str {
        &self.project().key
    }

    /// Why the unit in a file of the brain may no longer hold, in words.
    pub fn staleness(&self, unit_path: &str) -> Option<String> {
        // Few units have either key, and to parse the others takes most of the time.
        let has_key = |text: &String| ["stale_after", "sha256"].iter().any(|key| text.contains(key));
        let unit = parse(self.text(unit_path).filter(has_key)?, unit_path)?;
        self.staleness_of(&unit)
    }

    fn staleness_of(&self, unit: &Unit) -> Option<String> {
        let may_be_stale =
            unit.stale_after.is_some() || unit.scope.iter().any(|scope| scope.sha256.is_some());
        if !may_be_stale {
            return None;
        }
        let mut check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
        let check = check.get_or_insert_with(|| StaleCheck::new(&self.project().path, self.now));
        unit_staleness(unit, self.project_key(), check).map(|found| found.in_words())
    }

    fn read(&self, unit_path: &str) -> Option<Unit> {
        parse(self.text(unit_path)?, unit_path)
    }

    /// The reviewed text: the branch of a proposal may be checked out.
    fn text(&self, unit_path: &str) -> Option<String> {
        self.view.get_or_init(|| BrainView::open(&self.brain)).read(unit_path).ok()
    }

    /// The units that are about these files by their scope, the most important first.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn units_about(&self, catalog: &Catalog, files: &[String]) -> Result<Vec<FileUnit>, index::Error> {
        let files: Vec<String> = files.iter().filter_map(|file| self.within_project(file)).collect();
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for id in catalog.units_of_files(files.iter().flat_map(|file| file.split('/')))? {
            let Some(unit) = catalog.unit(&id)?.and_then(|record| self.read(&record.path)) else { continue };
            let is_live = !unit.status.as_deref().is_some_and(is_retired);
            if let Some((file, scope)) = file_of_unit(&unit, &self.project().key, &files).filter(|_| is_live)
            {
                let item = unit_item(&unit, Some(scope), None);
                let detail = knowledge::text::one_line(&item.detail.unwrap_or_default(), DETAIL_CHARS_MAX);
                let shown = FileUnit {
                    title: redact(&unit.title).into_owned(),
                    detail: redact(&detail).into_owned(),
                    file: file.to_owned(),
                    stale: self.staleness_of(&unit),
                    kind: unit.kind.clone(),
                    id,
                };
                found.push((unit.kind.priority(), shown));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok(found.into_iter().take(UNITS_MAX).map(|(_, unit)| unit).collect())
    }

    /// A file's path within the project; `None` if it lies elsewhere.
    fn within_project(&self, file: &str) -> Option<String> {
        let root = self.project().path.to_string_lossy();
        let file = file.replace('\\', "/");
        let plain = |path: &Path| without_dots(path).to_string_lossy().into_owned();
        let path = if Path::new(&file).is_absolute() {
            provenance::derive::within(&plain(Path::new(&file)), &root)?
        } else if file.split('/').any(|part| part == "..") {
            // Of the folder that the session is in; any other path is of the project.
            let folder = std::fs::canonicalize(&self.folder).ok()?;
            provenance::derive::within(&plain(&folder.join(&file)), &root)?
        } else {
            plain(Path::new(&file))
        };
        (!path.is_empty()).then_some(path)
    }
}

fn parse(text: String, unit_path: &str) -> Option<Unit> {
    Document::parse(text).ok()?.unit(unit_path).ok()
}
