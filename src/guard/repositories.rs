//! The repositories that an action's files are in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::action::Action;
use crate::trigger::Trigger;

/// The repositories of the folders that were looked at.
#[derive(Default)]
pub struct Repositories {
    roots: HashMap<PathBuf, Option<PathBuf>>,
    names: HashMap<PathBuf, String>,
}

impl Repositories {
    /// The root of the repository that a folder is in.
    pub fn root(&mut self, folder: &Path) -> Option<PathBuf> {
        if let Some(known) = self.roots.get(folder) {
            return known.clone();
        }
        let root = folder.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_owned);
        self.roots.insert(folder.to_owned(), root.clone());
        root
    }

    /// A file's path from the root of the repository that it is in.
    pub fn path_in_repository(&mut self, path: &str) -> Option<String> {
        let path = Path::new(path);
        let root = self.root(path.parent()?)?;
        Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
    }

    /// Whether an action in a folder is in the repository that a trigger is limited to. `name` gives the name of a
    /// repository, by its root.
    pub fn has(
        &mut self,
        trigger: &Trigger,
        action: &Action,
        folder: &Path,
        name: impl Fn(&Path) -> String,
    ) -> bool {
        let Some(wanted) = trigger.repository() else { return true };
        trigger.folders(action, folder).any(|folder| {
            self.root(folder).is_some_and(|root| {
                let name = self.names.entry(root).or_insert_with_key(|root| name(root));
                name.eq_ignore_ascii_case(wanted.trim_end_matches(".git"))
            })
        })
    }
}
