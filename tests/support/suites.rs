//! The public test suites of `tests/fixtures/suites`, and command lines with a place for each of their strings.

use std::fs::File;
use std::path::{Component, Path};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a command may take that has next to nothing to do.
const DEADLINE: Duration = Duration::from_secs(60);
/// Rust's exit code after a panic.
const PANIC: i32 = 101;

/// The cases of a suite, in the order of its file.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/suites").join(name);
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The strings of the Big List of Naughty Strings that can be arguments: without the empty one and NUL.
pub(crate) fn naughty_strings() -> Vec<String> {
    let cases = cases("naughty-strings.jsonl");
    let strings = cases.iter().map(|case| case.as_str().unwrap().to_owned());
    strings.filter(|text| !text.is_empty() && !text.contains('\0')).collect()
}

/// A string with all the characters of the list that a terminal obeys, apart from line ends.
pub(crate) fn control_characters() -> String {
    let strings = naughty_strings();
    let mut found: Vec<char> =
        strings.iter().flat_map(|text| text.chars()).filter(|c| c.is_control()).collect();
    found.retain(|c| *c != '\n');
    found.sort_unstable();
    found.dedup();
    assert!(found.len() > 50 && found.contains(&'\u{1b}') && found.contains(&'\u{9b}'));
    found.iter().chain(&['[', '2', 'J']).collect()
}

/// Whether a string, taken for a path, stays below the folder in which a command runs, and, taken for a URL, names no
/// server.
fn is_contained(text: &str) -> bool {
    let is_below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    Path::new(text).components().all(is_below) && !text.contains("://")
}

/// A command with one of its arguments, which gets a string.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    words: Vec<String>,
    /// The option that gets the string; `None` for an argument without a name.
    option: Option<String>,
    /// The command's other required arguments, which get the same string.
    required: Vec<Option<String>>,
}

impl CommandLine {
    /// The arguments of `nugget`, with the string in its place.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let argument = |option: &Option<String>| match option {
            Some(name) => format!("--{name}={text}"),
            None => text.to_owned(),
        };
        let given = [&self.option].into_iter().chain(&self.required).map(argument);
        self.words.iter().cloned().chain(given).collect()
    }

    /// Whether the command may get this string. Only what would write there, or connect to it, gets no string that leads out
    /// of the folder or names a server.
    pub(crate) fn takes(&self, text: &str) -> bool {
        let connects =
            ["init", "clone"].iter().any(|name| self.words.first().is_some_and(|word| word == name));
        let writes = self.words == ["man"]
            || [&self.option]
                .into_iter()
                .chain(&self.required)
                .any(|option| option.as_deref() == Some("output"));
        !(connects || writes) || is_contained(text)
    }
}

/// A command line for each argument of each command that takes a value. A command without one gets a word too many.
pub(crate) fn command_lines(command: &clap::Command) -> Vec<CommandLine> {
    let mut lines = Vec::new();
    // The folder of the brain is an option of every command.
    for words in [vec!["status".to_owned()], vec!["list".to_owned()]] {
        lines.push(CommandLine { words, option: Some("brain".to_owned()), required: Vec::new() });
    }
    // A command that does not exist.
    lines.push(CommandLine { words: Vec::new(), option: None, required: Vec::new() });
    add_command_lines(command, &[], &mut lines);
    lines
}

fn add_command_lines(command: &clap::Command, words: &[String], lines: &mut Vec<CommandLine>) {
    for child in command.get_subcommands() {
        let words = [words, &[child.get_name().to_owned()]].concat();
        add_command_lines(child, &words, lines);
        let name = |argument: &clap::Arg| argument.get_long().map(str::to_owned);
        let takes_value = |argument: &&clap::Arg| argument.get_action().takes_values();
        let arguments: Vec<_> = child.get_arguments().filter(takes_value).collect();
        for argument in &arguments {
            let others = arguments.iter().filter(|other| other.get_id() != argument.get_id());
            let required = others.filter(|other| other.is_required_set()).map(|other| name(other)).collect();
            lines.push(CommandLine { words: words.clone(), option: name(argument), required });
        }
        if arguments.iter().all(|argument| argument.get_long().is_some()) {
            lines.push(CommandLine { words, option: None, required: Vec::new() });
        }
    }
}

/// Variables with which no command reaches a server or opens an editor: a `PATH` with git and a shell alone.
pub(crate) fn offline_environment(folder: &Path) -> Vec<(String, String)> {
    let tools = folder.join("tools");
    std::fs::create_dir(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["git", "sh"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|path| path.is_file());
        std::os::unix::fs::symlink(found.unwrap(), tools.join(tool)).unwrap();
    }
    let tools = tools.to_str().unwrap();
    [
        ("PATH", tools),
        ("EDITOR", ":"),
        // Nobody listens there.
        ("NUGGET_GITHUB_API", "http://127.0.0.1:9"),
        ("GIT_ALLOW_PROTOCOL", "file"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Runs a command without a terminal, and returns what is wrong with how it ended or with what it printed.
pub(crate) fn complaint(command: &mut Command, folder: &Path) -> Option<String> {
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| folder.join(name));
    command.stdin(Stdio::null());
    command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + DEADLINE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Some(format!("still runs after {DEADLINE:?}"));
            }
        }
    };
    let printed = [&stdout, &stderr].map(|path| std::fs::read(path).unwrap());
    match status.code() {
        None | Some(PANIC) => Some(format!("{status}: {}", String::from_utf8_lossy(&printed[1]))),
        Some(_) => printed.iter().find_map(|text| unprintable(text)),
    }
}

/// What a terminal would obey rather than print. The program colours nothing without a terminal.
pub(crate) fn unprintable(text: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(text) else { return Some("prints what is not UTF-8".to_owned()) };
    let at = text.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t'))?;
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[line..].lines().next().unwrap_or_default();
    Some(format!("prints a control character: {line:?}"))
}
