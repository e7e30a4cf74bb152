//! Whether the settings that a process goes by are still those of now.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use queue::{Ledger, Queue};
use system::file::Identity;

/// The name of the report by which a command asks for a worker with the settings and the environment of now: a worker
/// keeps those with which it has begun, also while it waits for hours.
pub const RENEWAL_REPORT: &str = "renewal";

/// How things were just before a process read its settings. The default one is never outdated.
#[derive(Clone, Debug, Default)]
pub struct SettingsMark(Option<Mark>);

#[derive(Clone, Debug)]
struct Mark {
    file: PathBuf,
    states: [FileState; 2],
    asked: Option<(u32, Timestamp, String)>,
}

/// What tells one content of a file from the next without reading it; `None` if there is no file.
type FileState = Option<(Identity, Option<SystemTime>, u64)>;

/// The states of the settings and of the file beside them that names excluded projects.
fn states_of(file: &Path) -> [FileState; 2] {
    [file.to_owned(), file.with_file_name(".nuggetignore")].map(|file| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((Identity::from_metadata(&metadata), metadata.modified().ok(), metadata.len()))
    })
}

impl SettingsMark {
    /// To be called before the settings are read from `file`, and the excluded projects from the `.nuggetignore` beside it,
    /// so that a change in between counts.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub fn before_reading(file: &Path, queue: &Queue) -> Result<Self, queue::Error> {
        let asked = queue.last_report(RENEWAL_REPORT)?;
        Ok(Self(Some(Mark { file: file.to_owned(), states: states_of(file), asked })))
    }

    /// Whether one of the files has changed since.
    pub fn is_file_changed(&self) -> bool {
        self.0.as_ref().is_some_and(|Mark { file, states, .. }| states_of(file) != *states)
    }

    /// Whether one of the files has changed since, or a command has asked for a worker of its own environment.
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub(crate) fn is_outdated(&self, queue: &dyn Ledger) -> Result<bool, queue::Error> {
        let Some(Mark { asked, .. }) = &self.0 else { return Ok(false) };
        Ok(self.is_file_changed() || queue.last_report(RENEWAL_REPORT)? != *asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_or_a_request_outdates_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let mark = || SettingsMark::before_reading(&file, &queue).unwrap();
        let missing = mark();
        assert!(!missing.is_outdated(&queue).unwrap());
        std::fs::write(&file, "[capture]\nexclude = \"a\"\n").unwrap();
        assert!(missing.is_outdated(&queue).unwrap());
        let present = mark();
        assert!(!present.is_outdated(&queue).unwrap());
        // As settings are written: a new file of the same size and, where clocks are coarse, the same time.
        let time = std::fs::metadata(&file).unwrap().modified().unwrap();
        let next = folder.path().join("next");
        std::fs::write(&next, "[capture]\nexclude = \"b\"\n").unwrap();
        std::fs::File::options().write(true).open(&next).unwrap().set_modified(time).unwrap();
        std::fs::rename(&next, &file).unwrap();
        assert!(present.is_outdated(&queue).unwrap());
        let excluding = mark();
        std::fs::write(folder.path().join(".nuggetignore"), "client-*\n").unwrap();
        assert!(excluding.is_outdated(&queue).unwrap());
        let asked = mark();
        assert!(!asked.is_outdated(&queue).unwrap());
        queue.report(RENEWAL_REPORT, "", Timestamp::now()).unwrap();
        assert!(asked.is_outdated(&queue).unwrap());
        assert!(!SettingsMark::default().is_outdated(&queue).unwrap());
    }
}
