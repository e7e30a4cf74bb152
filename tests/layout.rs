//! The layout of the workspace: dependencies between crates and files, no leftovers, no forgotten tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The crates in reading order, with those of ours that each may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("src/knowledge", &[]),
    ("src/notes", &["knowledge"]),
    ("src/reflect", &["knowledge"]),
    ("src/holographic", &["knowledge"]),
    ("src/system", &[]),
    ("src/failpoint", &["system"]),
    ("src/transcript", &["knowledge"]),
    ("src/brain", &["knowledge", "system"]),
    ("src/queue", &["knowledge", "system", "failpoint"]),
    ("src/llm", &["transcript"]),
    ("src/kernels", &[]),
    ("src/embed", &["knowledge", "holographic", "kernels", "llm", "system", "transcript"]),
    ("src/extract", &["knowledge", "system", "llm", "transcript", "embed"]),
    ("src/guard", &["knowledge"]),
    ("src/index", &["knowledge", "system", "failpoint", "transcript", "brain", "kernels", "guard"]),
    ("src/archive", &["knowledge", "system", "transcript", "queue", "llm", "extract"]),
    ("src/provenance", &["knowledge", "archive"]),
    ("src/memories", &["knowledge", "transcript", "extract", "archive", "provenance"]),
    ("src/feedback", &["knowledge"]),
    ("src/retrieve", &["knowledge", "transcript", "index", "embed", "llm", "feedback"]),
    ("src/git", &["knowledge", "system", "failpoint"]),
    ("src/github", &["knowledge", "system"]),
    ("src/team_client", &["knowledge", "system"]),
    ("src/team", &["knowledge", "system", "queue", "index"]),
    (
        "actors",
        &[
            "knowledge",
            "notes",
            "reflect",
            "holographic",
            "system",
            "failpoint",
            "transcript",
            "brain",
            "queue",
            "llm",
            "extract",
            "embed",
            "guard",
            "index",
            "archive",
            "provenance",
            "memories",
            "feedback",
            "retrieve",
            "git",
            "github",
            "team_client",
        ],
    ),
    (
        "src/mcp",
        &["knowledge", "notes", "system", "transcript", "index", "retrieve", "team_client", "actors"],
    ),
    ("src/server", &["system", "team_client", "mcp"]),
    (
        "src/team_service",
        &[
            "knowledge",
            "system",
            "transcript",
            "brain",
            "queue",
            "embed",
            "index",
            "retrieve",
            "git",
            "github",
            "team",
            "actors",
            "mcp",
            "server",
        ],
    ),
    (
        "src/cli",
        &[
            "knowledge",
            "notes",
            "system",
            "failpoint",
            "transcript",
            "brain",
            "queue",
            "llm",
            "extract",
            "embed",
            "guard",
            "index",
            "archive",
            "provenance",
            "memories",
            "feedback",
            "retrieve",
            "git",
            "github",
            "team_client",
            "team",
            "actors",
            "mcp",
            "server",
            "team_service",
        ],
    ),
];

/// The name of the crate in a folder.
fn crate_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

#[test]
fn a_crate_uses_only_those_above_it() {
    let names: Vec<&str> = ARROWS.iter().map(|(path, _)| crate_name(path)).collect();
    for (place, (path, may)) in ARROWS.iter().enumerate() {
        for name in *may {
            assert!(names[..place].contains(name), "{name} is not above {path}");
        }
        let manifest = std::fs::read_to_string(root().join(path).join("Cargo.toml")).unwrap();
        let table = manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
        for line in table.split("\n[").next().unwrap().lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(!names.contains(&name) || may.contains(&name), "{path} must not use {name}");
        }
    }
}

#[test]
fn every_member_is_listed_in_reading_order() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.split("\nmembers = [").nth(1).unwrap().split("\n]").next().unwrap();
    let members: Vec<&str> = members
        .lines()
        .map(|line| line.trim().trim_matches(['"', ',']))
        .filter(|line| !line.is_empty())
        .collect();
    // The models in stress/loom use no crate of ours.
    let listed: Vec<&str> = ARROWS.iter().map(|(path, _)| *path).chain(["stress/loom"]).collect();
    assert_eq!(members, listed);
}

#[test]
fn cargo_run_builds_nothing_that_cargo_test_builds_otherwise() {
    let crates = |edges: &str| -> BTreeSet<String> {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args([
            "tree",
            "--locked",
            "--offline",
            "--prefix=none",
            "--format={p} with {f}",
            "--edges",
            edges,
        ]);
        let output = cargo.current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (run, test) = (crates("normal,build"), crates("normal,build,dev"));
    assert!(run.len() > 300, "{}", run.len());
    let twice: Vec<_> = run.difference(&test).collect();
    // What depends on them is built twice, too. Turn the feature on in the root's Cargo.toml.
    assert!(twice.is_empty(), "tests turn on more features of these: {twice:#?}");
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "target" | ".git" | "fixtures") {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn nothing_is_left_half_done_or_switched_off() {
    let mut files = Vec::new();
    sources(root(), &mut files);
    assert!(files.len() > 50);
    let marks = ["todo", "unimplemented"].map(|word| format!("{word}!(")).into_iter();
    let marks: Vec<String> = marks
        .chain(["FIX", "XX"].map(|word| format!("{word}{}", if word == "XX" { "X" } else { "ME" })))
        .chain([format!("#[{}", "ignore")])
        .collect();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} holds {mark}", file.display());
        }
    }
}

#[test]
fn every_file_of_tests_is_in_the_table_of_contents() {
    let contents = std::fs::read_to_string(root().join("tests/main.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|ending| ending == "rs") && stem != "main" {
            assert!(contents.contains(&format!("mod {stem};")), "tests/{stem}.rs is run by nobody");
        }
    }
}

#[test]
fn only_listed_files_start_processes() {
    let mut files = Vec::new();
    for folder in ["src", "actors"] {
        sources(&root().join(folder), &mut files);
    }
    let allowed = [
        "src/git/",
        // Runs git, `gh` and helpers with a time limit.
        "src/system/process.rs",
        // `gh` and git's credential helper are asked for a token.
        "src/github/token.rs",
        "src/extract/claude_code.rs",
        // `nugget guard` takes the place of the hook's program where it may have something to say.
        "src/guard_hook.rs",
        "src/cli/spawn.rs",
        "src/cli/commands/demo.rs",
        "src/cli/commands/server/demo.rs",
        // A PostgreSQL of its own, for the demo and for tests.
        "src/team/private_postgres.rs",
        // The person's editor.
        "src/cli/editor.rs",
        // The person's pager.
        "src/cli/pager.rs",
        // git and the client are asked for their versions.
        "src/cli/subprocess.rs",
        "src/cli/commands/runtime.rs",
        // When the crate is built: the compiler is asked where its library is.
        "src/index/build.rs",
        // For their tests alone.
        "actors/testing/",
        "src/extract/claude_code/tests.rs",
        "src/index/tests.rs",
        "src/server/tests/",
    ];
    for file in files {
        let name = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            !text.contains("Command::new(") || allowed.iter().any(|allowed| name.starts_with(allowed)),
            "{name} starts a process"
        );
    }
}

/// The modules of one crate, and which of them each module uses.
#[derive(Default)]
struct ModuleGraph {
    /// Module path (`["git", "remote"]`; empty for the crate root) to its file.
    files: BTreeMap<Vec<String>, PathBuf>,
    /// The names that a module re-exports, and the modules that they come from.
    reexports: BTreeMap<(Vec<String>, String), Vec<String>>,
    uses: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl ModuleGraph {
    /// Reads the product modules below `lib.rs`; modules for tests are left out.
    fn read(folder: &Path) -> Self {
        let mut graph = Self::default();
        let mut sources = BTreeMap::new();
        let mut open = vec![(Vec::new(), folder.join("lib.rs"), folder.to_owned())];
        while let Some((module, file, children)) = open.pop() {
            let source = product_source(&std::fs::read_to_string(&file).unwrap());
            for child in declared_children(&source) {
                let (flat, nested) = (children.join(format!("{child}.rs")), children.join(&child));
                let path = [module.as_slice(), std::slice::from_ref(&child)].concat();
                let file = if flat.is_file() { flat } else { nested.join("mod.rs") };
                open.push((path, file, nested));
            }
            graph.files.insert(module.clone(), file);
            sources.insert(module, source);
        }
        for (module, source) in &sources {
            for path in paths_in(source, &declared_children(source)) {
                if path.is_reexport {
                    let target = graph.absolute(module, &path.segments);
                    if let Some(name) = target.last().cloned() {
                        graph.reexports.insert((module.clone(), name), target);
                    }
                }
            }
        }
        for (module, source) in &sources {
            for path in paths_in(source, &declared_children(source)) {
                let target = graph.module_of(graph.absolute(module, &path.segments));
                let reexports_child =
                    path.is_reexport && target.len() > module.len() && target.starts_with(module);
                if target != *module && !reexports_child {
                    graph.uses.entry(module.clone()).or_default().insert(target);
                }
            }
        }
        graph
    }

    fn absolute(&self, module: &[String], segments: &[String]) -> Vec<String> {
        let mut at = module.to_vec();
        for segment in segments {
            match segment.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                name => at.push(name.to_owned()),
            }
        }
        at
    }

    /// The module that defines what a path names.
    fn module_of(&self, path: Vec<String>) -> Vec<String> {
        let mut at = Vec::new();
        for (position, name) in path.iter().enumerate() {
            if let Some(target) = self.reexports.get(&(at.clone(), name.clone()))
                && !self.files.contains_key(&path[..=position])
            {
                return self.module_of([target.as_slice(), &path[position + 1..]].concat());
            }
            if !self.files.contains_key(&path[..=position]) {
                break;
            }
            at.push(name.clone());
        }
        at
    }

    /// Every module that is reached from a module, over any number of uses.
    fn reached_from(&self, module: &[String]) -> BTreeSet<&Vec<String>> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Vec<String>> = self.uses.get(module).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(self.uses.get(next).into_iter().flatten());
            }
        }
        reached
    }
}

#[test]
fn unix_only_code_is_in_one_crate_and_one_module() {
    // What only a Unix system has, as it is written in our sources.
    let words = [
        "os::unix",
        "os::fd",
        "os::linux",
        "rustix::",
        "libc::",
        "signal::unix",
        "io::unix",
        "net::Unix",
        ".process_group(",
        "\"/proc/",
    ];
    // Besides `src/system`: opens the folders above a file one by one, so that no symbolic link is followed.
    let allowed = "src/git/work_tree.rs";
    let mut found = BTreeSet::new();
    for (folder, _) in ARROWS {
        let graph = ModuleGraph::read(&root().join(folder));
        for file in graph.files.values() {
            let source = product_source(&std::fs::read_to_string(file).unwrap());
            if words.iter().any(|word| source.contains(word)) {
                found.insert(file.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let (shared, others): (Vec<_>, Vec<_>) = found.iter().partition(|name| name.starts_with("src/system/"));
    assert!(shared.len() >= 4, "{shared:?}");
    assert_eq!(others, [allowed], "these files hold Unix-only code; its place is src/system");
}

/// A source without comments and without its tests, which stand at its end.
fn product_source(source: &str) -> String {
    let mut product = String::new();
    let mut lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.next().unwrap_or_default();
            if item.starts_with("mod ") && item.ends_with('{') {
                break;
            }
            // The rest of the item, when it is longer than its line.
            if !item.ends_with([';', '}', ',']) {
                let indent = item.len() - item.trim_start().len();
                lines
                    .by_ref()
                    .find(|line| !line.is_empty() && line.len() - line.trim_start().len() <= indent);
            }
            continue;
        }
        product.push_str(line);
        product.push('\n');
    }
    product
}

fn declared_children(source: &str) -> Vec<String> {
    let declared = source.lines().filter_map(|line| {
        let item = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ");
        item.strip_prefix("mod ")?.strip_suffix(';')
    });
    declared.map(str::to_owned).collect()
}

/// A path within the crate, as it is written.
struct WrittenPath {
    segments: Vec<String>,
    is_reexport: bool,
}

/// The paths of a source that begin at the crate, at a parent, or at one of its own children.
fn paths_in(source: &str, children: &[String]) -> Vec<WrittenPath> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find("::") {
        let end = at + found;
        let start = source[..end].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
        let first = &source[start..end];
        let is_ours =
            matches!(first, "crate" | "super" | "self") || children.iter().any(|child| child == first);
        if !is_ours || source[..start].ends_with("::") {
            at = end + 2;
            continue;
        }
        let statement = source[..start].rsplit([';', '}']).next().unwrap_or_default().trim();
        let is_reexport =
            statement.lines().last().is_some_and(|line| line.starts_with("pub") && line.contains("use"));
        let length = read_tree(&source[start..], &mut Vec::new(), &mut |segments| {
            paths.push(WrittenPath { segments: segments.to_vec(), is_reexport });
        });
        at = start + length;
    }
    paths
}

/// Reads `a::b::{c, d::E}`; returns its length in bytes.
fn read_tree(source: &str, prefix: &mut Vec<String>, found: &mut impl FnMut(&[String])) -> usize {
    let depth = prefix.len();
    let mut at = 0;
    loop {
        let rest = &source[at..];
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length == 0 {
            break;
        }
        prefix.push(rest[..length].to_owned());
        at += length;
        let Some(rest) = source[at..].strip_prefix("::") else { break };
        at += 2;
        if rest.starts_with('{') {
            at += 1;
            loop {
                at += source[at..].len() - source[at..].trim_start_matches([' ', '\n', ',']).len();
                if source[at..].is_empty() || source[at..].starts_with('}') {
                    at = (at + 1).min(source.len());
                    break;
                }
                let length = read_tree(&source[at..], prefix, found);
                // Something that is no path, as a `*`.
                at += length.max(1);
            }
            prefix.truncate(depth);
            return at;
        }
    }
    if prefix.len() > depth {
        found(prefix);
    }
    prefix.truncate(depth);
    at
}

#[test]
fn files_of_a_crate_use_each_other_without_circles() {
    let mut in_circles = BTreeSet::new();
    for (folder, _) in ARROWS {
        let graph = ModuleGraph::read(&root().join(folder));
        for (module, file) in &graph.files {
            let others = graph.reached_from(module);
            if others.contains(module) {
                let circle: Vec<String> = others
                    .into_iter()
                    .filter(|other| graph.reached_from(other).contains(module))
                    .map(|other| other.join("::"))
                    .collect();
                let name = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                println!("{name}: {}", circle.join(", "));
                in_circles.insert(name);
            }
        }
    }
    assert!(in_circles.is_empty(), "files in circles: {in_circles:#?}");
}

#[test]
fn the_module_graph_reads_nested_uses_parents_and_reexports() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a;\npub mod b;\nmod c;\npub use c::{Deep, Other};\n#[cfg(test)]\nmod fixtures;\n");
    write("a.rs", "use crate::{Deep, b::{self, X}};\n// crate::c::Comment\nfn f() { crate::b::g(); }\n");
    write("b.rs", "mod child;\nuse child::Y;\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n");
    write("b/child.rs", "use super::X;\n");
    write("c.rs", "use crate::a::A;\n");
    let graph = ModuleGraph::read(folder.path());
    let uses = |name: &str| -> Vec<String> {
        let module: Vec<String> = name.split("::").map(str::to_owned).collect();
        graph.uses.get(&module).into_iter().flatten().map(|used| used.join("::")).collect()
    };
    assert_eq!(uses("a"), ["b", "c"]);
    assert_eq!(uses("b"), ["b::child"]);
    assert_eq!(uses("b::child"), ["b"]);
    assert_eq!(uses("c"), ["a"]);
    assert!(!graph.files.contains_key(&vec!["fixtures".to_owned()]));
    assert!(graph.reached_from(&["a".to_owned()]).contains(&vec!["a".to_owned()]));
}
