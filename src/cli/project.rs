//! Detects what a project is about from its folder in a few milliseconds: names, libraries, languages.
//!
//! It starts no process and reads only a few small files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use retrieve::project::{Profile, normalize_name};

/// How much of a manifest is read.
const MANIFEST_BYTES_MAX: u64 = 128 << 10;
const LIBRARIES_MAX: usize = 200;
/// Parts of names that distinguish nothing.
const GENERIC: &[&str] = &[
    "the", "app", "api", "web", "src", "main", "test", "tests", "project", "repo", "code", "work", "dev",
    "new", "my", "old", "core", "lib", "server", "client", "service", "tool", "tools", "example", "demo",
    "tmp", "home",
];

/// A project on this machine.
pub(crate) struct Project {
    /// The root of its repository, else the folder itself.
    pub(crate) root: PathBuf,
    pub(crate) profile: Profile,
}

impl Project {
    /// Examines the project that a folder belongs to.
    pub(crate) fn detect(folder: &Path) -> Self {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let root =
            folder.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&folder).to_owned();
        let mut profile = Profile::default();
        // The folder of a linked work tree, whose `.git` is a file, is named for what is done there.
        let folder_name = root.file_name().filter(|_| !root.join(".git").is_file());
        let folder_name = folder_name.map(|name| name.to_string_lossy().into_owned());
        for name in folder_name.into_iter().chain(archive::project_name(&root)) {
            let name = normalize_name(&name);
            let words = name.split('-').filter(|word| word.len() >= 3 && !GENERIC.contains(word));
            profile.words.extend(words.map(str::to_owned));
            profile.names.insert(name);
        }
        read_manifests(&mut profile, &root);
        Self { root, profile }
    }
}

fn read_manifests(profile: &mut Profile, root: &Path) {
    let read = |name: &str| read_start(&root.join(name));
    let mut libraries = Vec::new();
    if let Some(text) = read("Cargo.toml") {
        profile.languages.insert("rust");
        libraries.extend(cargo_dependencies(&text));
    }
    if let Some(text) = read("package.json") {
        let is_typescript = root.join("tsconfig.json").is_file();
        profile.languages.insert(if is_typescript { "typescript" } else { "javascript" });
        libraries.extend(npm_dependencies(&text));
    }
    if let Some(text) = read("go.mod") {
        profile.languages.insert("go");
        let last_part = |line: &str| {
            let module = line.trim().trim_start_matches("require ").split(' ').next()?;
            module
                .contains('.')
                .then(|| module.rsplit('/').find(|part| !is_version(part)).map(str::to_owned))?
        };
        libraries.extend(text.lines().skip(1).filter_map(last_part));
    }
    for name in ["requirements.txt", "pyproject.toml", "setup.py"] {
        let Some(text) = read(name) else { continue };
        profile.languages.insert("python");
        match name {
            "requirements.txt" => libraries.extend(text.lines().filter_map(requirement)),
            "pyproject.toml" => libraries.extend(pyproject_dependencies(&text)),
            _ => {}
        }
    }
    for (name, language) in [
        ("Gemfile", "ruby"),
        ("pom.xml", "java"),
        ("build.gradle", "java"),
        ("mix.exs", "elixir"),
        ("composer.json", "php"),
    ] {
        if root.join(name).is_file() {
            profile.languages.insert(language);
        }
    }
    libraries.sort();
    libraries.dedup();
    profile.libraries = libraries.iter().map(|name| normalize_name(name)).take(LIBRARIES_MAX).collect();
}

fn cargo_dependencies(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let workspace = table.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    [table.get("dependencies"), workspace, table.get("dev-dependencies")].into_iter().flat_map(keys).collect()
}

fn npm_dependencies(text: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    ["dependencies", "devDependencies"]
        .into_iter()
        .filter_map(|name| value.get(name)?.as_object())
        .flat_map(|table| table.keys())
        .flat_map(|name| name.trim_start_matches('@').split('/').map(str::to_owned))
        .filter(|name| name != "types")
        .collect()
}

fn requirement(line: &str) -> Option<String> {
    let name = line.trim().split(['=', '<', '>', '~', '!', '[', ';', ' ', '@']).next()?;
    let is_name = !name.is_empty() && name.starts_with(|c: char| c.is_alphanumeric());
    is_name.then(|| name.to_owned())
}

fn pyproject_dependencies(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let project = table.get("project").and_then(|project| project.get("dependencies"));
    let listed = project.and_then(toml::Value::as_array).into_iter().flatten();
    let mut libraries: Vec<String> = listed.filter_map(toml::Value::as_str).filter_map(requirement).collect();
    let poetry = table.get("tool").and_then(|tool| tool.get("poetry")?.get("dependencies"));
    libraries.extend(keys(poetry));
    libraries.retain(|name| name != "python");
    libraries
}

fn keys(table: Option<&toml::Value>) -> impl Iterator<Item = String> {
    table.and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys().cloned())
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
}

fn read_start(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn detect(files: &[(&str, &str)]) -> Profile {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("Pay_Service");
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir_all(root.join("src/deep")).unwrap();
        Project::detect(&root.join("src/deep")).profile
    }

    fn list(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn names_come_from_the_folder_and_the_remote() {
        let config = "[core]\n\tbare = false\n[remote \"origin\"]\n\tfetch = x\n\turl = git@example.com:us/shop-backend.git\n";
        let profile = detect(&[(".git/config", config)]);
        assert_eq!(list(&profile.names), ["pay-service", "shop-backend"]);
        assert_eq!(list(&profile.words), ["backend", "pay", "shop"]);
        // A linked work tree.
        let profile = detect(&[
            (".git", "gitdir: ../shop/.git/worktrees/side\n"),
            ("../shop/.git/worktrees/side/commondir", "../..\n"),
        ]);
        assert_eq!(list(&profile.names), ["shop"]);
    }

    #[test]
    fn libraries_and_languages_come_from_the_manifests() {
        let profile = detect(&[
            (".git/HEAD", ""),
            ("Cargo.toml", "[dependencies]\ntokio = '1'\n[workspace.dependencies]\nserde_json = '1'\n"),
            ("package.json", r#"{"dependencies": {"@nestjs/core": "1", "react": "2"}}"#),
            ("go.mod", "module x\nrequire (\n\tgithub.com/jackc/pgx/v5 v5.1\n)\n"),
            ("pyproject.toml", "[project]\ndependencies = ['fastapi>=1', 'httpx']\n"),
        ]);
        assert_eq!(
            list(&profile.libraries),
            ["core", "fastapi", "httpx", "nestjs", "pgx", "react", "serde-json", "tokio"]
        );
        assert_eq!(profile.languages.into_iter().collect::<Vec<_>>(), ["go", "javascript", "python", "rust"]);
    }

    #[test]
    fn a_broken_manifest_is_ignored() {
        let profile =
            detect(&[("Cargo.toml", "[depend"), ("package.json", "\u{0}"), (".git", "gitdir: /nowhere")]);
        assert!(profile.libraries.is_empty());
    }
}
