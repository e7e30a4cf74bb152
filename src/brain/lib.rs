//! The brain's folder, its settings, and the paths of its state.
//!
//! This crate never runs git and never parses a unit: it returns texts and paths that are safe to use.
//!
//! ```
//! use brain::Brain;
//!
//! let folder = tempfile::tempdir()?;
//! let brain = Brain::init(folder.path())?.brain;
//! std::fs::write(folder.path().join("note.md"), "# A note\n")?;
//! assert_eq!(brain.files()?[0].path, "note.md");
//! assert_eq!(brain.read("note.md")?, "# A note\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod config;
mod config_text;
pub mod paths;
pub mod settings;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use config::{Config, Origin};
pub use paths::StatePaths;
pub use walk::{BrainFile, UNITS_FOLDER, is_unit_path};

/// The file that makes a folder a brain.
pub const BRAIN_YAML: &str = "brain.yaml";
/// The folder of derived data inside a brain: ignored by git, safe to delete.
pub const DERIVED_FOLDER: &str = ".nugget";
/// The largest unit that is read, in bytes. Units are written for people: a larger file is a mistake or an attack.
pub const UNIT_BYTES_MAX: u64 = 1024 * 1024;

/// Why a brain could not be opened, listed, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder does not exist.
    #[error("there is no brain at {path}")]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{path} is not a folder")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The folder is not a brain.
    #[error("{path} is not a brain: it has no {BRAIN_YAML}")]
    NotABrain {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is larger than [`UNIT_BYTES_MAX`].
    #[error("{path} is larger than {} KiB", UNIT_BYTES_MAX / 1024)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file is not UTF-8.
    #[error("{path} is not UTF-8")]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// Git has left a conflict in a file, for a person to resolve.
    #[error("a merge has left a conflict in {path}")]
    Conflict {
        /// The file.
        path: PathBuf,
    },
    /// A path leads out of the brain or to a symbolic link.
    #[error("{path} is not a file of the brain")]
    Unsafe {
        /// The path.
        path: PathBuf,
    },
    /// What is to be written to is a symbolic link, which may lead out of the brain.
    #[error("{path} is a symbolic link: put a folder or file of its own there")]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// `brain.yaml` cannot be parsed.
    #[error("{path} is not valid: {what}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// Why a file of the brain is no unit, for a list of such files: without its path.
    pub fn reason(&self) -> String {
        match self {
            Self::Read { source, .. } => format!("cannot be read: {source}"),
            Self::TooLarge { .. } => format!("larger than {} KiB", UNIT_BYTES_MAX / 1024),
            Self::NotUtf8 { .. } => "not UTF-8".to_owned(),
            Self::Conflict { .. } => "a merge has left a conflict in it".to_owned(),
            other => other.to_string(),
        }
    }
}

/// A folder of knowledge units.
#[derive(Clone, Debug)]
pub struct Brain {
    root: PathBuf,
    /// The committed `brain.yaml`, where what is checked out has no valid one.
    manifest: Option<Manifest>,
}

/// The content of `brain.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the brain's layout: 1.
    pub version: u32,
    /// The brain's name.
    pub name: String,
    /// The branch that holds reviewed knowledge; `None` for the repository's default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// Who is asked to review pull requests, by domain; `*` for all other domains. A name is a GitHub user or, as
    /// `OWNER/TEAM`, a team.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reviewers: BTreeMap<String, Vec<String>>,
}

impl Manifest {
    /// Who reviews what is proposed in a domain.
    pub fn reviewers_of(&self, domain: &str) -> &[String] {
        let names = self.reviewers.get(domain).or_else(|| self.reviewers.get("*"));
        names.map_or(&[], Vec::as_slice)
    }
}

/// The result of [`Brain::init`].
#[derive(Debug)]
pub struct Initialized {
    /// The brain.
    pub brain: Brain,
    /// The files that were created or extended, relative to the root; empty if the brain was complete.
    pub written: Vec<String>,
    /// The number of markdown files that existed before.
    pub notes: usize,
}

/// A source of the files that an index is built from: a brain's folder, or a commit of it.
pub trait Files: Sync {
    /// Lists all files, sorted by path, each path once.
    ///
    /// # Errors
    /// If they cannot be listed.
    fn files(&self) -> Result<Vec<BrainFile>, Error>;

    /// Reads a file.
    ///
    /// # Errors
    /// If the path is not one of the files, or the file is too large, not UTF-8 or unreadable.
    fn read(&self, path: &str) -> Result<String, Error>;

    /// Whether a file waits for its review: then it has no id that a reviewed one claims.
    fn is_pending(&self, _path: &str) -> bool {
        false
    }
}

impl Files for Brain {
    fn files(&self) -> Result<Vec<BrainFile>, Error> {
        self.files()
    }

    fn read(&self, path: &str) -> Result<String, Error> {
        self.read(path)
    }
}

impl Brain {
    /// Opens the brain at `root`.
    ///
    /// # Errors
    /// If the folder does not exist or is not a brain.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let path = root.to_owned();
        let root = match fs::canonicalize(root) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { path }),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::NotAFolder { path });
            }
            Err(source) => return Err(Error::Read { path, source }),
        };
        if !root.is_dir() {
            return Err(Error::NotAFolder { path });
        }
        if !root.join(BRAIN_YAML).is_file() {
            return Err(Error::NotABrain { path });
        }
        Ok(Self { root, manifest: None })
    }

    /// Opens the brain at `root` with the text of its committed `brain.yaml`, whatever is checked out.
    ///
    /// # Errors
    /// If the folder does not exist, or the text is not valid.
    pub fn open_committed(root: &Path, manifest: &str) -> Result<Self, Error> {
        let root = fs::canonicalize(root).map_err(|source| Error::Read { path: root.to_owned(), source })?;
        let manifest = parse_manifest(&root.join(BRAIN_YAML), manifest)?;
        Ok(Self { root, manifest: Some(manifest) })
    }

    /// Makes `root` a brain, or completes one. Existing files are kept; a line is added to a `.gitignore` that lacks
    /// the derived folder.
    ///
    /// # Errors
    /// If `root` is a file or cannot be written, or has a symbolic link where something is to be written, or a
    /// `brain.yaml` that is not valid.
    pub fn init(root: &Path) -> Result<Initialized, Error> {
        if root.exists() && !root.is_dir() {
            return Err(Error::NotAFolder { path: root.to_owned() });
        }
        // Whoever made the repository may have put them there.
        let links = [UNITS_FOLDER, ".gitignore", DERIVED_FOLDER].map(|name| root.join(name));
        if let Some(path) = links.into_iter().find(|path| path.is_symlink()) {
            return Err(Error::Link { path });
        }
        if root.join(BRAIN_YAML).is_file() {
            Self { root: root.to_owned(), manifest: None }.manifest()?;
        }
        fs::create_dir_all(root.join("domains"))
            .map_err(|source| Error::Write { path: root.to_owned(), source })?;
        let root = fs::canonicalize(root).map_err(|source| Error::Read { path: root.to_owned(), source })?;
        let brain = Self { root, manifest: None };
        let notes = brain.files()?.len();
        let mut written = Vec::new();
        let name = brain.root.file_name().map_or_else(|| "brain".into(), |name| name.to_string_lossy());
        let manifest = Manifest {
            version: 1,
            name: name.into_owned(),
            default_branch: None,
            reviewers: BTreeMap::new(),
        };
        let manifest = serde_yaml::to_string(&manifest).map_err(|error| Error::Manifest {
            path: brain.root.join(BRAIN_YAML),
            what: error.to_string(),
        })?;
        let manifest =
            format!("# A brain: knowledge units in domains/, kept by nugget, reviewed by you.\n{manifest}");
        brain.create_if_missing(BRAIN_YAML, &manifest, &mut written)?;
        brain.create_if_missing("domains/.gitkeep", "", &mut written)?;
        brain.ignore_derived_folder(&mut written)?;
        Ok(Initialized { brain, written, notes })
    }

    /// Writes the default branch into a new `brain.yaml`, which names none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn name_default_branch(&self, branch: &str) -> Result<(), Error> {
        let path = self.root.join(BRAIN_YAML);
        let line = serde_yaml::to_string(&BTreeMap::from([("default_branch", branch)]))
            .map_err(|error| Error::Manifest { path: path.clone(), what: error.to_string() })?;
        let append = fs::File::options().append(true).open(&path);
        append
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|source| Error::Write { path, source })
    }

    /// The brain's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of derived data: `.nugget/` in the brain.
    pub fn derived_folder(&self) -> PathBuf {
        self.root.join(DERIVED_FOLDER)
    }

    /// Reads `brain.yaml`.
    ///
    /// # Errors
    /// If the file cannot be read or is not valid.
    pub fn manifest(&self) -> Result<Manifest, Error> {
        if let Some(manifest) = &self.manifest {
            return Ok(manifest.clone());
        }
        let path = self.root.join(BRAIN_YAML);
        parse_manifest(&path, &read_text(&path)?)
    }

    /// Whether the brain is still there: a long-running process outlives it.
    pub fn is_present(&self) -> bool {
        match &self.manifest {
            Some(_) => self.root.join(".git").exists(),
            None => self.manifest().is_ok(),
        }
    }

    /// Whether what is checked out has no valid `brain.yaml`, so that the committed one counts.
    pub fn is_elsewhere(&self) -> bool {
        self.manifest.is_some()
    }

    /// Lists the markdown files, sorted by path. Hidden folders, symbolic links, nested repositories, reserved names and
    /// unreadable folders are left out; so is, except in `domains/`, what `.gitignore` files name, and the folders in which
    /// code projects keep other people's texts.
    ///
    /// # Errors
    /// If the root cannot be read.
    pub fn files(&self) -> Result<Vec<BrainFile>, Error> {
        let mut files = walk::files_below(&self.root)
            .map_err(|source| Error::Read { path: self.root.clone(), source })?;
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Reads a file of the brain.
    ///
    /// # Errors
    /// If the path leads out of the brain, or the file is too large, not UTF-8 or unreadable.
    pub fn read(&self, path: &str) -> Result<String, Error> {
        let full = self.root.join(path);
        let stays_inside =
            Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let is_link = || fs::symlink_metadata(&full).is_ok_and(|metadata| metadata.is_symlink());
        if !stays_inside || is_link() {
            return Err(Error::Unsafe { path: full });
        }
        read_text(&full)
    }

    fn create_if_missing(&self, path: &str, content: &str, written: &mut Vec<String>) -> Result<(), Error> {
        let full = self.root.join(path);
        match fs::File::options().write(true).create_new(true).open(&full) {
            Ok(mut file) => {
                file.write_all(content.as_bytes()).map_err(|source| Error::Write { path: full, source })?;
                written.push(path.to_owned());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(source) => Err(Error::Write { path: full, source }),
        }
    }

    fn ignore_derived_folder(&self, written: &mut Vec<String>) -> Result<(), Error> {
        const LINE: &str = ".nugget/";
        let path = self.root.join(".gitignore");
        let present = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::Read { path, source }),
        };
        let text = String::from_utf8_lossy(&present);
        if text.lines().any(|line| matches!(line.trim(), LINE | ".nugget" | "/.nugget/" | "/.nugget")) {
            return Ok(());
        }
        let separator = if present.is_empty() || present.ends_with(b"\n") { "" } else { "\n" };
        let append = || -> io::Result<()> {
            let mut file = fs::File::options().append(true).create(true).open(&path)?;
            file.write_all(format!("{separator}{LINE}\n").as_bytes())
        };
        append().map_err(|source| Error::Write { path: path.clone(), source })?;
        written.push(".gitignore".to_owned());
        Ok(())
    }
}

fn parse_manifest(path: &Path, text: &str) -> Result<Manifest, Error> {
    serde_yaml::from_str(text)
        .map_err(|error| Error::Manifest { path: path.to_owned(), what: error.to_string() })
}

fn read_text(path: &Path) -> Result<String, Error> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(UNIT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > UNIT_BYTES_MAX {
        return Err(Error::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_init_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        let first = Brain::init(&root).unwrap();
        assert_eq!(first.written, [BRAIN_YAML, "domains/.gitkeep", ".gitignore"]);
        assert!(Brain::init(&root).unwrap().written.is_empty());
        assert_eq!(Brain::open(&root).unwrap().manifest().unwrap().name, "brain");
    }

    #[test]
    fn a_code_projects_dependencies_are_not_its_notes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in [
            "docs/design.md",
            "node_modules/left-pad/docs/use.md",
            "docs/node_modules/x.md",
            "target/doc/a.md",
            "vendor/lib/b.md",
            "dist/c.md",
            "private-notes.md",
            "domains/vendor/bugs/kept.md",
            "domains/build/dist/kept.md",
            "packages/a/secret.md",
            "packages/a/shown.md",
            "packages/a/private-but-shown.md",
            "packages/b/secret.md",
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), "# A note\n").unwrap();
        }
        fs::write(root.join(".gitignore"), "/dist/\nprivate-*\n").unwrap();
        fs::write(root.join("packages/a/.gitignore"), "/secret.md\n!private-but-shown.md\n").unwrap();
        let adopted = Brain::init(root).unwrap();
        let paths: Vec<String> = adopted.brain.files().unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(
            paths,
            [
                "docs/design.md",
                "domains/build/dist/kept.md",
                "domains/vendor/bugs/kept.md",
                "packages/a/private-but-shown.md",
                "packages/a/shown.md",
                "packages/b/secret.md",
            ]
        );
        assert_eq!(adopted.notes, 6);
        assert!(
            !is_unit_path("node_modules/left-pad/docs/use.md") && is_unit_path("domains/vendor/bugs/kept.md")
        );
    }

    #[test]
    fn an_adopted_folder_keeps_every_byte_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".gitignore"), "*.tmp").unwrap();
        fs::write(folder.path().join("brain.yaml"), "version: 1\nname: mine\nextra: kept\n").unwrap();
        fs::write(folder.path().join("note.md"), "# Note").unwrap();
        let adopted = Brain::init(folder.path()).unwrap();
        assert_eq!(adopted.notes, 1);
        assert_eq!(fs::read_to_string(folder.path().join(".gitignore")).unwrap(), "*.tmp\n.nugget/\n");
        assert!(fs::read_to_string(folder.path().join("brain.yaml")).unwrap().contains("extra: kept"));
    }

    #[test]
    fn only_markdown_of_the_brain_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        Brain::init(root).unwrap();
        let make = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for path in
            ["domains/a/bugs/x.md", "notes/README.md", "b.md", "README.md", "index.md", "domains/log.md"]
        {
            make(path);
        }
        for path in [".git/x.md", ".nugget/x.md", "nested/.git/HEAD", "nested/y.md", "c.txt"] {
            make(path);
        }
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("link.md")).unwrap();
        let files = Brain::open(root).unwrap().files().unwrap();
        let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["b.md", "domains/a/bugs/x.md", "notes/README.md"]);
    }

    #[test]
    fn files_of_many_folders_are_sorted_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        Brain::init(root).unwrap();
        let mut expected = Vec::new();
        for at in 0..100 {
            for path in [format!("f{at}/a.md"), format!("f{at}/x/b.md"), format!("f{at}-x.md")] {
                fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
                fs::write(root.join(&path), &path).unwrap();
                expected.push(path);
            }
        }
        expected.sort();
        let files = Brain::open(root).unwrap().files().unwrap();
        assert_eq!(
            files.iter().map(|file| &file.path).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
        assert!(files.iter().all(|file| file.size == file.path.len() as u64 && file.modified_ns > 0));
    }

    #[test]
    fn a_path_cannot_lead_out_of_the_brain() {
        let folder = tempfile::tempdir().unwrap();
        let brain = Brain::init(folder.path()).unwrap().brain;
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link.md")).unwrap();
        for path in ["../x", "/etc/hostname", "domains/../../x", "link.md"] {
            assert!(matches!(brain.read(path), Err(Error::Unsafe { .. })), "{path}");
        }
    }

    #[test]
    fn a_folder_whose_settings_are_not_valid_is_not_made_a_brain() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(BRAIN_YAML), "name: evil\n").unwrap();
        assert!(matches!(Brain::init(folder.path()), Err(Error::Manifest { .. })));
        assert!(!folder.path().join(UNITS_FOLDER).exists());
    }

    #[test]
    fn a_folder_whose_links_lead_elsewhere_is_not_made_a_brain() {
        for name in ["domains", ".gitignore", ".nugget"] {
            let folder = tempfile::tempdir().unwrap();
            let (root, outside) = (folder.path().join("brain"), folder.path().join("outside"));
            fs::create_dir_all(&root).unwrap();
            match name {
                ".gitignore" => fs::write(&outside, "mine\n").unwrap(),
                _ => fs::create_dir(&outside).unwrap(),
            }
            std::os::unix::fs::symlink(&outside, root.join(name)).unwrap();
            assert!(
                matches!(Brain::init(&root), Err(Error::Link { path }) if path.ends_with(name)),
                "{name}"
            );
            let is_untouched = match name {
                ".gitignore" => fs::read_to_string(&outside).unwrap() == "mine\n",
                _ => fs::read_dir(&outside).unwrap().next().is_none(),
            };
            assert!(is_untouched && fs::read_dir(&root).unwrap().count() == 1, "{name}");
        }
    }

    #[test]
    fn a_huge_or_binary_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let brain = Brain::init(folder.path()).unwrap().brain;
        fs::write(folder.path().join("big.md"), vec![b'x'; UNIT_BYTES_MAX as usize + 1]).unwrap();
        fs::write(folder.path().join("binary.md"), [0xff, 0xfe]).unwrap();
        assert!(matches!(brain.read("big.md"), Err(Error::TooLarge { .. })));
        assert!(matches!(brain.read("binary.md"), Err(Error::NotUtf8 { .. })));
    }

    #[test]
    fn a_missing_brain_differs_from_an_ordinary_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Brain::open(&folder.path().join("no")), Err(Error::Missing { .. })));
        assert!(matches!(Brain::open(folder.path()), Err(Error::NotABrain { .. })));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(matches!(Brain::open(&folder.path().join("file")), Err(Error::NotAFolder { .. })));
    }
}
