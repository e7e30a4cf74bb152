//! Which commit brought a line, in the repository of any project.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use jiff::Timestamp;

use crate::command::GitCommand;
use crate::error::Error;

/// How many lines before and after each are given along.
const AROUND: usize = 3;

/// A line of a file, and the commit that brought it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlamedLine {
    /// Its number now, from 1.
    pub number: usize,
    /// The line.
    pub text: String,
    /// The commit; `None` if the line is not committed.
    pub commit: Option<String>,
    /// The file that it was in then.
    pub path: String,
    /// The lines before it then, the nearest last.
    pub before: Vec<String>,
    /// The lines after it then, the nearest first.
    pub after: Vec<String>,
    /// Who wrote the commit.
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    /// When it was written first.
    pub authored: Option<Timestamp>,
    /// When it was made.
    pub committed: Option<Timestamp>,
}

/// Finds the commits that brought lines of a file, through renames of the file and moves of the lines.
///
/// `root` is the work tree's folder, `path` the file within it, and lines count from 1. git decides whether it may read
/// the repository.
///
/// `None` if the last commit does not have the file.
///
/// # Errors
/// When git fails: no repository, no such line, or no answer until `until`.
pub fn blame(
    root: &Path,
    path: &str,
    first: usize,
    last: usize,
    until: Instant,
) -> Result<Option<Vec<BlamedLine>>, Error> {
    let start = |arguments: &[&str]| {
        let mut git = GitCommand::new(root, None, true);
        git.arguments(["--no-pager", "--literal-pathspecs"]).arguments(arguments);
        git.run(until)
    };
    let run = |arguments: &[&str]| start(arguments)?.ok();
    run(&["rev-parse", "--is-inside-work-tree"])?;
    // Fails before the first commit.
    let tracked = start(&["ls-tree", "HEAD", "--", path])?;
    if !tracked.is_success || tracked.stdout.is_empty() {
        return Ok(None);
    }
    let range = format!("{first},{last}");
    let flags = ["blame", "--line-porcelain", "--no-textconv", "-w", "-M", "-C", "-L", &range, "--", path];
    let output = run(&flags)?;
    let mut lines = parse(&String::from_utf8_lossy(&output));
    let mut files: HashMap<(Option<String>, String), Vec<String>> = HashMap::new();
    for (line, number_then) in &mut lines {
        let key = (line.commit.clone(), line.path.clone());
        if !files.contains_key(&key) {
            let content = match &line.commit {
                Some(commit) => run(&["cat-file", "blob", &format!("{commit}:{}", line.path)])?,
                None => std::fs::read(root.join(&line.path)).unwrap_or_default(),
            };
            let content = String::from_utf8_lossy(&content).lines().map(str::to_owned).collect();
            files.insert(key.clone(), content);
        }
        let content = files.get(&key).map(Vec::as_slice).unwrap_or_default();
        let at = number_then.saturating_sub(1).min(content.len());
        line.before = content[at.saturating_sub(AROUND)..at].to_vec();
        line.after = content[(at + 1).min(content.len())..(at + 1 + AROUND).min(content.len())].to_vec();
    }
    Ok(Some(lines.into_iter().map(|(line, _)| line).collect()))
}

/// Reads git's porcelain format: each line with the number that it had in its commit.
fn parse(output: &str) -> Vec<(BlamedLine, usize)> {
    let mut lines = Vec::new();
    let mut line = BlamedLine::default();
    let mut number_then = 0;
    let time = |seconds: &str| seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    for row in output.split('\n') {
        if let Some(text) = row.strip_prefix('\t') {
            text.trim_end_matches('\r').clone_into(&mut line.text);
            if line.commit.is_none() {
                (line.authored, line.committed) = (None, None);
            }
            lines.push((std::mem::take(&mut line), number_then));
            continue;
        }
        let (key, value) = row.split_once(' ').unwrap_or((row, ""));
        match key {
            "author" => value.clone_into(&mut line.author),
            "author-time" => line.authored = time(value),
            "committer-time" => line.committed = time(value),
            "summary" => value.clone_into(&mut line.subject),
            "filename" => line.path = unquoted(value),
            _ if key.len() >= 40 && key.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                let mut numbers = value.split(' ').map(|number| number.parse().unwrap_or_default());
                number_then = numbers.next().unwrap_or_default();
                line.number = numbers.next().unwrap_or_default();
                line.commit = key.bytes().any(|byte| byte != b'0').then(|| key.to_owned());
            }
            _ => {}
        }
    }
    lines
}

/// A path as git quotes it when it holds unusual bytes.
fn unquoted(path: &str) -> String {
    let Some(inner) = path.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return path.to_owned();
    };
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'3') => {
                let value = [Some(digit), rest.next(), rest.next()]
                    .into_iter()
                    .flatten()
                    .fold(0u8, |value, digit| (value << 3) | (digit & 7));
                bytes.push(value);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_is_followed_through_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str], time: &str| {
            let status = Command::new("git")
                .current_dir(folder.path())
                .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
                .args(arguments)
                .envs([("GIT_AUTHOR_DATE", time), ("GIT_COMMITTER_DATE", time)])
                .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
                .status();
            assert!(status.unwrap().success(), "{arguments:?}");
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        git(&["init", "-q", "-b", "main"], "");
        write("ä.rs", "one\ntwo\nthree\nfour\nfive\n");
        git(&["add", "."], "");
        git(&["commit", "-qm", "First"], "2026-01-02T03:04:05Z");
        git(&["mv", "ä.rs", "b.rs"], "");
        git(&["commit", "-qm", "Rename"], "2026-01-03T03:04:05Z");
        write("b.rs", "zero\none\ntwo\nthree\nfour\nfive\n");
        let until = Instant::now() + Duration::from_secs(30);
        let lines = blame(folder.path(), "b.rs", 1, 3, until).unwrap().unwrap();
        assert_eq!((lines[0].commit.as_deref(), lines[0].text.as_str()), (None, "zero"));
        assert_eq!((lines[0].path.as_str(), lines[0].after.len(), lines[0].authored), ("b.rs", 3, None));
        let two = &lines[2];
        assert_eq!((two.number, two.text.as_str(), two.path.as_str()), (3, "two", "ä.rs"));
        assert_eq!((two.before.join(" "), two.after.join(" ")), ("one".into(), "three four five".into()));
        assert_eq!((two.subject.as_str(), two.author.as_str()), ("First", "A"));
        assert_eq!(two.authored.unwrap().to_string(), "2026-01-02T03:04:05Z");
        assert!(blame(folder.path(), "b.rs", 9, 9, until).is_err(), "there is no such line");
        assert_eq!(blame(folder.path(), "gone.rs", 1, 1, until).unwrap(), None);
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(blame(elsewhere.path(), "b.rs", 1, 1, until).is_err(), "no repository");
    }
}
