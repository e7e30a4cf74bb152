//! The repositories that an action's files are in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The repositories of the folders that were looked at.
#[derive(Default)]
pub struct Repositories {
    roots: HashMap<PathBuf, Option<PathBuf>>,
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
}
