//! What a project seems to be about, as far as its folder tells in a few milliseconds: its name, what it is
//! built of, its languages. No process is started, and no more than a few small files are read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// How much of a manifest is read.
const MANIFEST_BYTES_MAX: u64 = 128 << 10;
const USES_MAX: usize = 200;
/// Parts of names that say nothing.
const GENERIC: &[&str] = &[
    "the", "app", "api", "web", "src", "main", "test", "tests", "project", "repo", "code", "work", "dev",
    "new", "my", "old", "core", "lib", "server", "client", "service", "tool", "tools", "example", "demo",
    "tmp", "home",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Project {
    /// Where its repository begins, else the folder itself.
    pub(crate) root: PathBuf,
    /// As its folder and its remote call it.
    pub(crate) names: BTreeSet<String>,
    /// The telling parts of the names.
    pub(crate) words: BTreeSet<String>,
    /// Libraries that it is built of.
    pub(crate) uses: BTreeSet<String>,
    pub(crate) languages: BTreeSet<&'static str>,
}

impl Project {
    /// Looks at the project that a folder belongs to.
    pub(crate) fn of(folder: &Path) -> Self {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let root =
            folder.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&folder).to_owned();
        let mut project = Self { root, ..Self::default() };
        let folder_name = project.root.file_name().map(|name| name.to_string_lossy().into_owned());
        for name in folder_name.into_iter().chain(remote(&project.root)) {
            let name = normal(&name);
            let words = name.split('-').filter(|word| word.len() >= 3 && !GENERIC.contains(word));
            project.words.extend(words.map(str::to_owned));
            project.names.insert(name);
        }
        project.read_manifests();
        project
    }

    fn read_manifests(&mut self) {
        let root = self.root.clone();
        let read = |name: &str| head(&root.join(name));
        if let Some(text) = read("Cargo.toml") {
            self.languages.insert("rust");
            self.uses.extend(cargo(&text));
        }
        if let Some(text) = read("package.json") {
            let is_typescript = root.join("tsconfig.json").is_file();
            self.languages.insert(if is_typescript { "typescript" } else { "javascript" });
            self.uses.extend(npm(&text));
        }
        if let Some(text) = read("go.mod") {
            self.languages.insert("go");
            let last = |line: &str| {
                let module = line.trim().trim_start_matches("require ").split(' ').next()?;
                module
                    .contains('.')
                    .then(|| module.rsplit('/').find(|part| !is_version(part)).map(str::to_owned))?
            };
            self.uses.extend(text.lines().skip(1).filter_map(last));
        }
        for name in ["requirements.txt", "pyproject.toml", "setup.py"] {
            let Some(text) = read(name) else { continue };
            self.languages.insert("python");
            match name {
                "requirements.txt" => self.uses.extend(text.lines().filter_map(requirement)),
                "pyproject.toml" => self.uses.extend(pyproject(&text)),
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
                self.languages.insert(language);
            }
        }
        self.uses = std::mem::take(&mut self.uses).iter().map(|name| normal(name)).take(USES_MAX).collect();
    }
}

/// Lower case, with hyphens: `My_Shop` and `my-shop` are one name.
pub(crate) fn normal(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    name.trim_matches('-').to_owned()
}

/// The last part of the remote's address.
fn remote(root: &Path) -> Option<String> {
    let git = root.join(".git");
    let config = if git.is_dir() {
        git.join("config")
    } else {
        // A work tree of another repository, or a submodule.
        let link = head(&git)?;
        let folder = root.join(link.trim().strip_prefix("gitdir:")?.trim());
        match head(&folder.join("commondir")) {
            Some(common) => folder.join(common.trim()).join("config"),
            None => folder.join("config"),
        }
    };
    let text = head(&config)?;
    let section = text.split("[remote \"origin\"]").nth(1)?;
    let lines = section.lines().skip(1).take_while(|line| !line.trim_start().starts_with('['));
    let url = lines
        .filter_map(|line| line.trim().strip_prefix("url"))
        .find_map(|rest| rest.trim().strip_prefix('='))?;
    let name = url.trim().trim_end_matches('/').rsplit(['/', ':']).next()?;
    Some(name.trim_end_matches(".git").to_owned())
}

fn cargo(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let of = |table: Option<&toml::Value>| {
        let table = table.and_then(toml::Value::as_table);
        table.into_iter().flat_map(|table| table.keys().cloned()).collect::<Vec<_>>()
    };
    let mut uses = of(table.get("dependencies"));
    uses.extend(of(table.get("workspace").and_then(|workspace| workspace.get("dependencies"))));
    uses.extend(of(table.get("dev-dependencies")));
    uses
}

fn npm(text: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return Vec::new() };
    let of = |name: &str| value.get(name).and_then(serde_json::Value::as_object);
    let names = ["dependencies", "devDependencies"].into_iter().filter_map(of).flat_map(|table| table.keys());
    names
        .flat_map(|name| name.trim_start_matches('@').split('/').map(str::to_owned))
        .filter(|name| name != "types")
        .collect()
}

fn requirement(line: &str) -> Option<String> {
    let name = line.trim().split(['=', '<', '>', '~', '!', '[', ';', ' ', '@']).next()?;
    let is_name = !name.is_empty() && name.starts_with(|c: char| c.is_alphanumeric());
    is_name.then(|| name.to_owned())
}

fn pyproject(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let project = table.get("project").and_then(|project| project.get("dependencies"));
    let listed = project.and_then(toml::Value::as_array).into_iter().flatten();
    let mut uses: Vec<String> = listed.filter_map(toml::Value::as_str).filter_map(requirement).collect();
    let poetry =
        table.get("tool").and_then(|tool| tool.get("poetry")).and_then(|poetry| poetry.get("dependencies"));
    uses.extend(poetry.and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys().cloned()));
    uses.retain(|name| name != "python");
    uses
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
}

fn head(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(files: &[(&str, &str)]) -> Project {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("Pay_Service");
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir_all(root.join("src/deep")).unwrap();
        Project::of(&root.join("src/deep"))
    }

    fn listed(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_project_is_known_by_its_folder_and_its_remote() {
        let config = "[core]\n\tbare = false\n[remote \"origin\"]\n\tfetch = x\n\turl = git@example.com:us/shop-backend.git\n";
        let project = made(&[(".git/config", config)]);
        assert_eq!(listed(&project.names), ["pay-service", "shop-backend"]);
        assert_eq!(listed(&project.words), ["backend", "pay", "shop"]);
    }

    #[test]
    fn a_project_is_known_by_what_it_is_built_of() {
        let project = made(&[
            (".git/HEAD", ""),
            ("Cargo.toml", "[dependencies]\ntokio = '1'\n[workspace.dependencies]\nserde_json = '1'\n"),
            ("package.json", r#"{"dependencies": {"@nestjs/core": "1", "react": "2"}}"#),
            ("go.mod", "module x\nrequire (\n\tgithub.com/jackc/pgx/v5 v5.1\n)\n"),
            ("pyproject.toml", "[project]\ndependencies = ['fastapi>=1', 'httpx']\n"),
        ]);
        assert_eq!(
            listed(&project.uses),
            ["core", "fastapi", "httpx", "nestjs", "pgx", "react", "serde-json", "tokio"]
        );
        assert_eq!(project.languages.into_iter().collect::<Vec<_>>(), ["go", "javascript", "python", "rust"]);
    }

    #[test]
    fn a_broken_manifest_tells_nothing_and_fails_nothing() {
        let project =
            made(&[("Cargo.toml", "[depend"), ("package.json", "\u{0}"), (".git", "gitdir: /nowhere")]);
        assert!(project.uses.is_empty());
    }
}
