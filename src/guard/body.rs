//! The commands, errors and paths that a unit's text names as what it is about.
//!
//! Only code is read: spans and blocks. A command counts where the sentence warns of it ("never run `x`", "`x` fails") and
//! not where it is only mentioned, which is most often as the remedy or as what shows the trouble; and not if everybody
//! runs it every day. An error counts if it has several words, and reads as one or is what something "says" or "fails with".

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::command::CommandPattern;
use crate::signature::Signature;
use crate::trigger::{PathPattern, Trigger};

/// Triggers that are read from one text.
const TRIGGERS_MAX: usize = 24;
/// Longer code is read as lines that are shorter, or not at all.
const CODE_CHARS_MAX: usize = 300;
/// Words of an error's message that are enough to know it by: with a word that only errors have, and with one that also
/// stands elsewhere.
const ERROR_WORDS_MIN: usize = 3;
const WEAK_ERROR_WORDS_MIN: usize = 4;

/// Words before a command which warn of it: "never run `x`", "instead of `x`".
const WARNINGS_BEFORE: &[&str] = &[
    "never",
    "not",
    "don't",
    "dont",
    "avoid",
    "instead",
    "rather",
    "stop",
    "forbidden",
    "refuses",
    "rejects",
];
/// Words behind a command which say that it goes wrong: "`x` fails".
const WARNINGS_BEHIND: &[&str] = &[
    "fails",
    "fail",
    "failed",
    "breaks",
    "broke",
    "hangs",
    "hung",
    "stops",
    "crashes",
    "errors",
    "refused",
    "rejected",
    "cannot",
    "can't",
    "doesn't",
    "loses",
    "deletes",
    "overwrites",
    "destroys",
    "never",
    "forbidden",
    "wrong",
    "unsafe",
];
/// Words behind a command after which another one begins: "run `x` before the server stops".
const OTHERS_BEHIND: &[&str] =
    &["and", "or", "but", "so", "before", "until", "unless", "else", "otherwise", "instead"];
/// How many words behind a command are read for that.
const WORDS_BEHIND: usize = 4;
/// Verbs that a warning holds over: "do not use `x`".
const VERBS: &[&str] =
    &["use", "run", "call", "pass", "write", "add", "set", "try", "execute", "start", "do", "type"];
/// Words before a command which say that it is what to do, after a warning of something else.
const REMEDIES_BEFORE: &[&str] = &[
    "but", "use", "run", "prefer", "by", "with", "then", "try", "call", "fix", "via", "through", "without",
    "unless", "until",
];
/// Words just before a command without which something goes wrong.
const NEEDED: &[&str] = &["without", "unless", "until"];
/// Headings of what to do about it.
const REMEDY_HEADINGS: &[&str] = &[
    "what to do",
    "what was chosen",
    "fix",
    "solution",
    "remedy",
    "mend",
    "workaround",
    "prevention",
    "resolution",
    "how it was learned",
];
/// Words of error messages.
const ERROR_WORDS: &[&str] = &[
    "error",
    "errors",
    "fatal",
    "failed",
    "failure",
    "fail",
    "cannot",
    "can't",
    "couldn't",
    "unable",
    "invalid",
    "illegal",
    "denied",
    "refused",
    "exception",
    "panic",
    "panicked",
    "unexpected",
    "undefined",
    "unknown",
    "unrecognized",
    "unsupported",
    "timeout",
    "timed",
    "conflict",
    "conflicts",
    "mismatch",
    "exceeded",
    "rejected",
    "aborted",
    "killed",
    "deadlock",
    "overflow",
    "duplicate",
    "ambiguous",
    "unresolved",
    "forbidden",
    "unauthorized",
    "violates",
    "deprecated",
];
/// Words that stand in error messages, and elsewhere.
const WEAK_ERROR_WORDS: &[&str] =
    &["not", "no", "could", "must", "already", "expected", "missing", "unused", "locked"];
/// Words after which a message is quoted: "the compiler says `x`", "it fails with the message `x`".
const QUOTING: &[&str] =
    &["says", "said", "reports", "reported", "complains", "complained", "warns", "error", "message"];
/// Words before "with" which say the same.
const FAILING: &[&str] =
    &["fails", "failed", "fail", "ends", "ended", "stops", "stopped", "dies", "died", "crashes", "crashed"];
/// Commands that are run all day: without an option they say nothing.
const EVERYDAY: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "status",
            "add",
            "commit",
            "diff",
            "log",
            "push",
            "pull",
            "checkout",
            "branch",
            "show",
            "fetch",
            "merge",
            "rebase",
            "stash",
            "switch",
            "restore",
            "clone",
            "init",
            "reset",
            "tag",
            "rev-parse",
            "worktree",
            "rm",
        ],
    ),
    ("cargo", &["build", "test", "check", "run", "fmt", "clippy", "nextest", "add", "doc"]),
    ("go", &["build", "test", "run", "vet", "mod", "fmt", "get", "install", "generate"]),
    ("npm", &["install", "ci", "test", "run", "start", "i"]),
    ("pnpm", &["install", "test", "run", "add", "build", "lint", "dev", "i"]),
    ("yarn", &["install", "test", "run", "add", "build", "lint", "dev"]),
    ("bun", &["install", "test", "run", "add", "build", "i", "x"]),
    ("docker", &["build", "run", "ps", "compose", "exec", "logs"]),
    ("kubectl", &["get", "apply", "describe", "logs"]),
    ("gh", &["pr", "issue", "api", "run", "repo"]),
    ("make", &["test", "build", "lint", "all", "check", "clean"]),
    ("mise", &["run", "exec", "install"]),
    ("pip", &["install"]),
    ("uv", &["run", "sync", "pip"]),
];
/// Scripts that every project has.
const EVERYDAY_SCRIPTS: &[&str] = &[
    "lint",
    "test",
    "tests",
    "build",
    "dev",
    "start",
    "check",
    "typecheck",
    "fmt",
    "format",
    "ci",
    "clean",
    "all",
];
/// Programs that look at things, of which an option is needed to say anything.
const LOOKING: &[&str] = &[
    "ls", "cat", "head", "tail", "grep", "rg", "find", "echo", "wc", "sort", "pwd", "which", "cd", "mkdir",
    "touch", "python", "python3", "node", "pytest", "sh", "bash", "rm", "cp", "mv", "chmod", "sed", "awk",
    "jq", "curl", "test",
];

pub(crate) fn triggers(body: &str) -> Vec<Trigger> {
    let mut reader = Reader::default();
    for event in Parser::new(body) {
        reader.event(event);
        if reader.found.len() >= TRIGGERS_MAX {
            break;
        }
    }
    reader.end_paragraph();
    reader.found.truncate(TRIGGERS_MAX);
    reader.found
}

#[derive(Default)]
struct Reader {
    found: Vec<Trigger>,
    /// The pieces of the paragraph so far: text, or a command in code.
    pieces: Vec<Piece>,
    heading: Option<String>,
    /// Whether the section says what to do.
    is_remedy: bool,
    /// The text of a code block.
    block: Option<String>,
    /// Whether the words just before a block quote what is in it: "it fails with:".
    is_block_quoted: bool,
}

enum Piece {
    Text(String),
    Code(String),
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                self.end_paragraph();
                self.heading = Some(String::new());
            }
            Event::End(TagEnd::Heading(_)) => {
                let heading = self.heading.take().unwrap_or_default().to_lowercase();
                self.is_remedy = REMEDY_HEADINGS.iter().any(|remedy| heading.contains(remedy));
            }
            Event::Start(Tag::CodeBlock(_)) => self.block = Some(String::new()),
            Event::End(TagEnd::CodeBlock) => {
                let block = self.block.take().unwrap_or_default();
                // In a transcript of a terminal a command may stand before its error.
                let is_quoted = self.is_block_quoted && block.lines().count() == 1;
                for line in block.lines() {
                    self.error(line.trim(), is_quoted);
                }
                self.is_block_quoted = false;
            }
            Event::Text(text) => match (&mut self.heading, &mut self.block) {
                (Some(heading), _) => heading.push_str(&text),
                (_, Some(block)) => block.push_str(&text),
                _ => self.pieces.push(Piece::Text(text.into_string())),
            },
            Event::Code(code) => {
                if let Some(heading) = &mut self.heading {
                    heading.push_str(&code);
                } else if self.error(&code, self.is_quoting()) || self.path(&code) {
                    self.pieces.push(Piece::Text(" _ ".to_owned()));
                } else {
                    self.pieces.push(Piece::Code(code.into_string()));
                }
            }
            Event::End(TagEnd::Paragraph | TagEnd::Item) | Event::Start(Tag::Item) => {
                self.is_block_quoted = self.is_quoting();
                self.end_paragraph();
            }
            // "**Fix.** …" begins a section as a heading does.
            Event::End(TagEnd::Strong) => {
                let Some(Piece::Text(label)) = self.pieces.last() else { return };
                let label = label.trim().trim_end_matches(['.', ':']).to_lowercase();
                if REMEDY_HEADINGS.contains(&label.as_str()) {
                    self.is_remedy = true;
                } else if matches!(
                    label.as_str(),
                    "symptom" | "problem" | "cause" | "when it applies" | "why"
                ) {
                    self.is_remedy = false;
                }
            }
            Event::SoftBreak | Event::HardBreak => self.pieces.push(Piece::Text(" ".to_owned())),
            _ => {}
        }
    }

    /// Adds the commands that the paragraph warns of.
    fn end_paragraph(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        let end_of_sentence = |text: &str| text.rfind([';', '!', '?']).max(text.rfind(". "));
        let mut before = String::new();
        for (at, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => {
                    before.push_str(text);
                    if let Some(end) = end_of_sentence(&before) {
                        before.drain(..=end);
                    }
                }
                Piece::Code(code) => {
                    let behind = match pieces.get(at + 1) {
                        Some(Piece::Text(text)) => {
                            text.split(['.', ';', '!', '?']).next().unwrap_or_default()
                        }
                        _ => "",
                    };
                    if warns(&before, behind) {
                        self.command(code);
                    }
                    before.push_str(" _ ");
                }
            }
        }
    }

    fn command(&mut self, code: &str) {
        let code = code.trim();
        if code.chars().count() > CODE_CHARS_MAX || !reads_as_command(code) {
            return;
        }
        if let Some(pattern) = CommandPattern::new(code).filter(is_specific) {
            self.found.push(Trigger::on_command(pattern));
        }
    }

    /// Whether the text up to here ends with words after which a message is quoted.
    fn is_quoting(&self) -> bool {
        let Some(Piece::Text(text)) = self.pieces.last() else { return false };
        let text = text.trim_end().trim_end_matches([':', '"', '\'', '(', '“', '‘']).to_lowercase();
        let mut words = text.split_whitespace().rev();
        match words.next() {
            Some("with") => words.next().is_some_and(|word| FAILING.contains(&word)),
            last => last.is_some_and(|word| QUOTING.contains(&word)),
        }
    }

    /// Adds a message that is quoted as one or reads as an error; returns whether it does.
    fn error(&mut self, code: &str, is_quoted: bool) -> bool {
        if code.chars().count() > CODE_CHARS_MAX {
            return false;
        }
        let lower = code.to_lowercase();
        let has = |marks: &[&str]| {
            lower.split(|c: char| !(c.is_alphanumeric() || c == '\'')).any(|word| marks.contains(&word))
        };
        let words_min = match (has(ERROR_WORDS), has(WEAK_ERROR_WORDS)) {
            (true, _) => ERROR_WORDS_MIN,
            (false, true) => WEAK_ERROR_WORDS_MIN,
            (false, false) if is_quoted => WEAK_ERROR_WORDS_MIN,
            (false, false) => return false,
        };
        if looks_like_source(code) {
            return false;
        }
        let Some(signature) = Signature::new(code).filter(|made| made.plain_words() >= words_min) else {
            return false;
        };
        self.found.push(Trigger::on_error(signature));
        true
    }

    /// Adds a path with a folder and a file's extension; returns whether it is one.
    fn path(&mut self, code: &str) -> bool {
        let code = code.trim();
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '@' | '+');
        let path = code.strip_prefix("./").unwrap_or(code);
        if !path.contains('/') || !path.chars().all(is_plain) || path.contains("//") {
            return false;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let has_extension = name.rsplit_once('.').is_some_and(|(stem, end)| {
            !stem.is_empty() && (1..=5).contains(&end.len()) && end.chars().all(|c| c.is_ascii_alphanumeric())
        });
        // A relative path of the repository, that a rule is about.
        if has_extension && !path.starts_with(['/', '.']) && !self.is_remedy {
            self.found.push(Trigger::on_path(PathPattern::End(path.to_owned())));
        }
        true
    }
}

/// Whether a sentence warns of a command by what it says before and behind it.
fn warns(before: &str, behind: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '\''));
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let words_before = words(before);
    if words_before.last().is_some_and(|word| NEEDED.contains(&word.as_str())) {
        return false;
    }
    // "It does not matter where: `x` …" says nothing of `x`, "Never do this: `x`" does.
    let is_other_clause = before.trim_end().ends_with(':')
        && !words_before.iter().take(2).any(|word| WARNINGS_BEFORE.contains(&word.as_str()));
    !is_other_clause && warns_before(&words_before)
        || warns_behind(&words(behind), behind.trim_start().starts_with(','))
}

/// Whether the words before a command warn of it; the last word that says either counts.
fn warns_before(words: &[String]) -> bool {
    let mut warned_at = None;
    for (at, word) in words.iter().enumerate() {
        if WARNINGS_BEFORE.contains(&word.as_str()) {
            warned_at = Some(at);
        } else if REMEDIES_BEFORE.contains(&word.as_str()) {
            let is_governed =
                VERBS.contains(&word.as_str()) && warned_at.is_some_and(|warned| at - warned <= 2);
            warned_at = warned_at.filter(|_| is_governed);
        }
    }
    warned_at.is_some()
}

/// Behind a comma "never" warns of what follows: "run `x`, never `y`".
fn warns_behind(words: &[String], is_behind_comma: bool) -> bool {
    let words = words.iter().take(WORDS_BEHIND).map(String::as_str);
    let mut words = words.take_while(|word| !OTHERS_BEHIND.contains(word));
    words.any(|word| WARNINGS_BEHIND.contains(&word) && !(is_behind_comma && word == "never"))
}

/// Whether a text can be a command at all: a program's name, then something more.
fn reads_as_command(code: &str) -> bool {
    let Some((program, _)) = code.split_once(' ') else { return false };
    let is_name =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '/' | '+');
    let starts = program.starts_with(|c: char| c.is_ascii_lowercase() || matches!(c, '.' | '/'));
    let has_assignment = program.contains('=') && program.starts_with(|c: char| c.is_ascii_uppercase());
    (starts && program.chars().all(is_name) || has_assignment) && !looks_like_source(code)
}

/// Whether a line is rather source code than a message or a command.
fn looks_like_source(code: &str) -> bool {
    code.ends_with([';', '{', ',', '('])
        || ["=> ", "-> ", ":= ", " = ", " == ", "!= ", "()", "&mut ", "</", "/>"]
            .iter()
            .any(|mark| code.contains(mark))
        || [
            "if ", "return ", "let ", "const ", "func ", "fn ", "import ", "def ", "raise ", "throw ", "//",
            "# ",
        ]
        .iter()
        .any(|mark| code.starts_with(mark))
}

/// Whether few commands match a pattern.
fn is_specific(pattern: &CommandPattern) -> bool {
    if !pattern.options.is_empty() {
        return true;
    }
    if LOOKING.contains(&pattern.program.as_str()) {
        return false;
    }
    match EVERYDAY.iter().find(|(program, _)| *program == pattern.program) {
        // The script of `npm run X`, the command of `gh pr X`.
        Some((program, subcommands)) => match pattern.operands.as_slice() {
            [] => false,
            [first] => !subcommands.contains(&first.as_str()),
            [first, second, ..] => {
                let names_more = matches!(
                    *program,
                    "npm" | "pnpm" | "yarn" | "bun" | "mise" | "gh" | "go" | "uv" | "docker"
                );
                let is_everyday =
                    first == "test" || first == "build" || EVERYDAY_SCRIPTS.contains(&second.as_str());
                !subcommands.contains(&first.as_str()) || names_more && !is_everyday
            }
        },
        None => !pattern.operands.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a text triggers on, in a short form.
    fn found(body: &str) -> Vec<String> {
        let describe = |trigger: Trigger| match (trigger.command, trigger.error, trigger.path) {
            (Some(command), ..) => {
                [vec![command.program], command.operands, command.options].concat().join(" ")
            }
            (_, Some(error), _) => format!("error {}", error.key().unwrap_or_default()),
            (.., path) => format!("{path:?}"),
        };
        triggers(body).into_iter().map(describe).collect()
    }

    #[test]
    fn a_command_counts_where_the_sentence_warns_of_it() {
        for (body, command) in [
            ("Never run `git push --force` on main.", "git push --force"),
            ("Use `npm ci` instead of `npm install --force`.", "npm install --force"),
            ("Do not use `cargo publish` by hand.", "cargo publish"),
            ("Use `just deploy eu`, never `just deploy all`.", "just deploy all"),
            ("Never do this: `git push --force`.", "git push --force"),
            ("`cat -A FILE` fails on macOS.", "cat -A"),
            ("- `gh pr diff --stat` is refused; use `gh pr view`", "gh pr diff --stat"),
            (
                "With the pattern, as in `go build -o ./x ./cmd/...`, the build stops.",
                "go build ./x ./cmd/... -o",
            ),
        ] {
            assert_eq!(found(body), [command], "{body}");
        }
    }

    #[test]
    fn a_command_that_is_only_mentioned_does_not_count() {
        for body in [
            "Always run `importer-check --lane 6` before you commit.",
            "`mise run lint` reports it.",
            "## What to do\n\nRun `make generate --all` first.",
            "Not by hand, but with `cargo xtask release`.",
            "Never push; use `gh pr create --fill`.",
            "```sh\ncurl -fsSL https://example.net/a | sudo bash\n```",
            "Never run `git status`, `npm test`, `bun run lint` or `ls` for that.",
            "Do not use `Box<dyn Error>` or `Vec::new()` here, never `unsafe fn f()`.",
            "Never push without `just verify --all`.",
            "Without `git lfs pull` the build stops.",
            "Run `buf generate --clean`, never edit the generated files.",
            "Cut it with `cargo xtask release` and never by hand.",
            "Run `dbmate migrate` before the server stops.",
            "It does not matter where you are: `direnv allow .` loads it.",
        ] {
            assert_eq!(found(body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn an_error_counts_if_it_reads_as_one() {
        assert_eq!(found("It says `fatal: refusing to merge unrelated histories`."), ["error histories"]);
        for said in [
            "The compiler says",
            "The build fails with the message:",
            "`npm test` fails with",
            "It reports \"",
        ] {
            assert_eq!(
                found(&format!("{said} `the two branches have diverged`.")),
                ["error diverged"],
                "{said}"
            );
        }
        assert_eq!(found("```\n$ make\nmake: *** No rule to make target 'x'. Stop.\n```"), ["error target"]);
        assert_eq!(
            found(
                "When `cargo test` fails with:\n\n```text\nrange end index 9 out of range for a slice\n```"
            ),
            ["error slice"],
        );
        for body in [
            "`npm`",
            "It fails with:\n\n```text\nrange end index 9 out of range for a slice\nand so on\n```",
            "`error`",
            "`ENOENT`",
            "`return Err(error)?;`",
            "`the quick brown fox`",
            "It begins with `the quick brown fox`",
            "It says `all is well`",
            "`if err != nil {`",
        ] {
            assert_eq!(found(body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn a_path_counts_if_it_names_a_file_in_a_folder() {
        assert_eq!(found("Keep `src/queue/store.rs` in one file."), ["Some(End(\"src/queue/store.rs\"))"]);
        for body in
            ["`store.rs`", "`src/queue`", "`https://a.b/c.html`", "`/etc/hosts.conf`", "`application/json`"]
        {
            assert_eq!(found(body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn units_about_other_things_have_no_trigger() {
        for body in
            ["", "Plain text.", "Brown the stock from roasted bones; never boil it.", "`137` is 128 + 9."]
        {
            assert_eq!(found(body), Vec::<String>::new(), "{body}");
        }
    }
}
