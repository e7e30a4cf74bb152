//! The file paths of a question: a weak hint that changes the order a little, but never whether there is an answer.

use index::{Hit, Reader};
use knowledge::text;

use crate::error::Error;

/// The limit of paths that are used.
const FILES_MAX: usize = 16;
/// Longer paths are cut at the front: the end says the most.
const PATH_CHARS_MAX: usize = 240;
/// The limit of candidates that name the files, besides those of the two searches.
const CANDIDATES_MAX: usize = 10;
/// What a passage gains that names a file: as much as the most trusted source gains
/// ([`knowledge::rank::trust`]).
const WEIGHT: f64 = 0.15;
const STEM_CHARS_MIN: usize = 4;

/// Names that are common to all projects and say nothing about a file's subject.
const GENERIC: &[&str] = &[
    "build",
    "config",
    "core",
    "data",
    "dist",
    "docs",
    "handler",
    "handlers",
    "helpers",
    "home",
    "include",
    "index",
    "init",
    "internal",
    "lib",
    "main",
    "mod",
    "node_modules",
    "package",
    "packages",
    "pkg",
    "public",
    "readme",
    "script",
    "scripts",
    "source",
    "spec",
    "src",
    "test",
    "tests",
    "types",
    "user",
    "users",
    "util",
    "utils",
    "vendor",
    "work",
];

/// The words that a passage about the files would hold, each with its weight.
#[derive(Debug, Default)]
pub(crate) struct FileHints {
    /// In lower case, the most telling first: names, then stems, then folders; each with its weight.
    signals: Vec<(String, f64)>,
}

impl FileHints {
    pub(crate) fn from_paths(paths: &[String]) -> Self {
        let mut signals: Vec<(String, f64)> = Vec::new();
        for path in paths.iter().take(FILES_MAX) {
            let from = path.char_indices().rev().nth(PATH_CHARS_MAX - 1).map_or(0, |(at, _)| at);
            let path = text::one_line(&path[from..], PATH_CHARS_MAX).to_lowercase().replace('\\', "/");
            let mut parts = path.rsplit('/').filter(|part| !matches!(*part, "" | "." | ".."));
            let name = parts.next().unwrap_or_default();
            let folder = parts.find(|part| !part.starts_with('.')).unwrap_or_default();
            let stem = name.trim_start_matches('.').split('.').next().unwrap_or_default();
            let is_specific = |word: &str| word.chars().count() >= STEM_CHARS_MIN && !GENERIC.contains(&word);
            let all = [
                (name, 1.0, name != stem && is_specific(stem)),
                (stem, 0.7, is_specific(stem)),
                (folder, 0.4, is_specific(folder)),
            ];
            for (word, weight, is_used) in all {
                if is_used && signals.iter().all(|(other, _)| other != word) {
                    signals.push((word.to_owned(), weight));
                }
            }
        }
        signals.sort_by(|a, b| b.1.total_cmp(&a.1));
        Self { signals }
    }

    /// The chunks that hold the words, best first.
    pub(crate) fn search(&self, snapshot: &dyn Reader) -> Result<Vec<Hit>, Error> {
        if self.signals.is_empty() {
            return Ok(Vec::new());
        }
        let terms: Vec<String> = self.signals.iter().map(|(word, _)| word.clone()).collect();
        Ok(snapshot.bm25(&terms, CANDIDATES_MAX)?)
    }

    /// The factor on the score of a text, from 1 to 1.15, and the word in the text that causes it.
    pub(crate) fn factor(&self, text: &str) -> (f64, Option<&str>) {
        if self.signals.is_empty() {
            return (1.0, None);
        }
        let text = text.to_lowercase();
        let named = self.signals.iter().find(|(word, _)| holds_word(&text, word));
        named.map_or((1.0, None), |(word, weight)| (1.0 + WEIGHT * weight, Some(word)))
    }
}

/// Whether the text holds the word as a whole word.
fn holds_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric();
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(paths: &[&str]) -> Vec<String> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        FileHints::from_paths(&paths).signals.into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn a_path_gives_name_stem_and_folder() {
        assert_eq!(
            signals(&["/home/me/app/src/queue/spool_file.rs"]),
            ["spool_file.rs", "spool_file", "queue"]
        );
        assert_eq!(signals(&["C:\\app\\Billing\\Invoice.cs"]), ["invoice.cs", "invoice", "billing"]);
        assert_eq!(signals(&["src/main.rs", "lib/mod.rs", "tests/", ".", "..", "", "/"]), [] as [&str; 0]);
        assert_eq!(signals(&["a/pay.go", "b/pay.go"]), [] as [&str; 0]);
        assert_eq!(signals(&["Dockerfile", "x/Dockerfile"]), ["dockerfile"]);
        assert_eq!(signals(&["deploy/.gitlab-ci.yml"]), [".gitlab-ci.yml", "gitlab-ci", "deploy"]);
        assert_eq!(signals(&["invoices/.github/ci.yml"]), ["invoices"]);
    }

    #[test]
    fn a_name_counts_as_a_whole_word_only() {
        let files = FileHints::from_paths(&["src/queue/store.rs".to_owned()]);
        assert_eq!(files.factor("The helper in src/queue/store.rs does so."), (1.15, Some("store.rs")));
        assert_eq!(files.factor("We store it."), (1.0 + 0.15 * 0.7, Some("store")));
        assert_eq!(files.factor("It was restored and stored."), (1.0, None));
        assert_eq!(FileHints::from_paths(&[]).factor("store"), (1.0, None));
    }

    #[test]
    fn any_path_is_accepted() {
        let long = "é/".repeat(100_000);
        for path in ["\0\u{202e}", "....", "a\nb", "//", long.as_str()] {
            let _ = FileHints::from_paths(&vec![path.to_owned(); 1_000]).factor(path);
        }
    }
}
