//! Commands that failed and then, said otherwise, passed; and what both this family and that of the
//! causes must know about commands.

use knowledge::UnitType;
use knowledge::text::one_line;

use super::finding::{Finding, Findings, evidence, quoted};
use super::prose::{self, expression};
use super::session::{Run, Session};

expression! {
    // In the order in which one line of an output tells what went wrong.
    MESSAGE = r"(?m)^\s*(?:E\s{2,})?(?P<line>.*(?:\berror(?:\[\w+\])?:|\b\w*(?:Error|Exception)\b:?|panicked at|FATAL:|fatal:|ERROR:?\s|Err\w*\(|denied\b|cannot |could not |refused\b|not found|no such |timed out|unexpected |undefined: |assertion .*failed|called `\w+::\w+\(\)` on|DATA RACE|deadlock|OOMKilled|CrashLoopBackOff|mismatch).*)$";
    NOISE = r"(?i)^\s*(?:exit code \d+|error: exit code.*|error: could not compile.*|error: test (?:run )?failed.*|error: process didn't exit.*|test result:.*|--- FAIL.*|FAILED .*|make: \*\*\*.*|npm err! code.*|\s*)$|^\s*thread '.*' panicked at [\w/.:-]+$";
    PLACE = r"(?:/[\w.@-]+){2,}/|[\w./-]*[A-Za-z][\w./-]*:\d+(?::\d+)?:?\s|^\S*\d{4}-\d\d-\d\d[T ][\d:.,Z+]+\s*";
    VARIABLE = r"^[A-Z][A-Z0-9_]+=\S+$";
}

/// Programs whose failure says something about the work. A `grep` that finds nothing does not.
const TELLING: &str = " cargo rustc pytest python python3 tox uv pip poetry go npm pnpm yarn npx bun deno node tsc jest vitest \
    eslint make cmake ninja gradle mvn docker docker-compose podman kubectl helm terraform tofu ansible ansible-playbook psql \
    mysql sqlite3 redis-cli git gh rails bundle rspec mix dotnet swift xcodebuild flyway alembic sqlx diesel prisma curl ssh \
    aws gcloud az skaffold buf protoc bazel just nix systemctl nginx certbot ruby php composer playwright cypress mypy ruff ";
/// Flags that show more, run less or choose a place: no lesson.
const IDLE_FLAGS: [&str; 24] = [
    "-v",
    "-vv",
    "-vvv",
    "--verbose",
    "-x",
    "-s",
    "--help",
    "-h",
    "--nocapture",
    "-k",
    "-run",
    "--test",
    "-p",
    "--lib",
    "-q",
    "--quiet",
    "--debug",
    "-f",
    "-n",
    "-c",
    "--version",
    "--no-capture",
    "-C",
    "--tail",
];
const APART_EVENTS: usize = 14;

pub(super) fn find(session: &Session<'_>, findings: &mut Findings) {
    for failed in session.runs.iter().filter(|run| !run.ok && is_telling(run)) {
        let Some(passed) = passed_after(session, failed, failed.ended) else { continue };
        let edited = session.edits.iter().any(|edit| edit.event > failed.ended && edit.event < passed.event);
        let near = passed.event - failed.ended <= APART_EVENTS;
        let added = added(failed.command, passed.command);
        let statement = format!("{} → {}", one_line(failed.command, 60), one_line(passed.command, 60));
        if edited || !near || added.is_empty() || added.len() > 3 {
            continue;
        }
        let symptom = symptom(failed);
        let told = session.said.iter().find(|said| {
            let text = &said.sentence.text;
            !said.sentence.question
                && said.event > failed.ended
                && said.event <= passed.ended + 3
                && added
                    .iter()
                    .any(|part| text.contains(part.trim_start_matches('-').split('=').next().unwrap_or(part)))
                && prose::content_words(text).len() >= 4
        });
        let Some(told) = told else {
            findings.reject(&statement, "nobody said why the second way works");
            continue;
        };
        let command = plain(failed.command);
        let added = added.join(" ");
        findings.found.push(Finding {
            kind: UnitType::Bug,
            title: format!(
                "`{}` needs `{added}` when it fails with \"{}\"",
                name(command),
                one_line(&symptom.message, 60)
            ),
            statement: told.sentence.text.clone(),
            by_human: told.by_human,
            summary: Some(format!(
                "`{}` failed with \"{}\" until it was run with `{added}`",
                symptom.command,
                one_line(&symptom.message, 120)
            )),
            when: Some(symptom.told()),
            what_to_do: Some(format!(
                "Run it with `{added}`:\n\n```sh\n{}\n```",
                one_line(passed.command, 300)
            )),
            why: Some(told.sentence.text.clone()),
            rejected: None,
            learned: format!("`{}` failed without `{added}` and passed with it", one_line(command, 100)),
            confidence: 0.6,
            event: failed.event,
            evidence: vec![
                evidence(failed.result_line, &symptom.quote()),
                quoted(told),
                evidence(passed.line, &format!("{} → passed", one_line(passed.command, 100))),
            ],
        });
    }
}

/// How a failure showed itself.
pub(super) struct Symptom {
    command: String,
    pub(super) message: String,
}

impl Symptom {
    pub(super) fn short(&self) -> String {
        let message = one_line(&self.message, 60);
        if message.is_empty() { format!("`{}` fails", self.command) } else { message }
    }

    /// What happened, for a sentence that goes on with the cause.
    pub(super) fn happened(&self) -> String {
        match self.message.as_str() {
            "" => format!("`{}` failed", self.command),
            message => format!("`{}` failed with \"{}\"", self.command, one_line(message, 120)),
        }
    }

    /// The command and what it said, for a quotation.
    pub(super) fn quote(&self) -> String {
        let separator = if self.message.is_empty() { "" } else { ": " };
        format!("`{}` failed{separator}{}", self.command, self.message)
    }

    pub(super) fn told(&self) -> String {
        if self.message.is_empty() {
            return format!("When `{}` fails", self.command);
        }
        format!("When `{}` fails with:\n\n```text\n{}\n```", self.command, self.message.replace("```", "'''"))
    }
}

pub(super) fn symptom(failed: &Run<'_>) -> Symptom {
    let lines = || {
        MESSAGE.captures_iter(failed.output).filter_map(|found| found.name("line")).map(|line| line.as_str())
    };
    let best = lines().find(|line| !NOISE.is_match(line)).or_else(|| {
        failed.output.lines().rev().map(str::trim).find(|line| line.len() > 3 && !NOISE.is_match(line))
    });
    let message = PLACE.replace_all(best.unwrap_or_default(), "");
    Symptom { command: name(plain(failed.command)), message: one_line(&message, 200) }
}

/// The first run after `event` that does the same as one that failed, and passed.
pub(super) fn passed_after<'s, 'a>(
    session: &'s Session<'a>,
    failed: &Run<'_>,
    event: usize,
) -> Option<&'s Run<'a>> {
    let same = |run: &&Run<'_>| run.ok && run.event > failed.ended && is_same(run.command, failed.command);
    let after = session.runs.iter().find(|run| same(run) && run.event >= event);
    // Told after the mend: then the last one that passed before it is told.
    after.or_else(|| session.runs.iter().rev().find(|run| same(run) && run.ended < event))
}

pub(super) fn is_telling(run: &Run<'_>) -> bool {
    let command = plain(run.command);
    let program = command.split_whitespace().find(|word| !VARIABLE.is_match(word)).unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    TELLING.contains(&format!(" {program} ")) || command.starts_with("./") || program.ends_with(".sh")
}

/// Whether two commands do the same thing, perhaps with other flags.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    name(plain(one)) == name(plain(other))
}

/// A command without the folder that it first goes to and the filters behind it.
fn plain(command: &str) -> &str {
    let command = command
        .lines()
        .find(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
        .unwrap_or_default();
    let command = match command.split_once("&& ") {
        Some((first, rest)) if first.trim_start().starts_with("cd ") => rest,
        _ => command,
    };
    let command = command.split(" | ").next().unwrap_or(command);
    command.split(" 2>").next().unwrap_or(command).trim()
}

/// Program and subcommand: `cargo test`, `npm run build`, `docker build`.
fn name(command: &str) -> String {
    let mut words = command.split_whitespace().skip_while(|word| VARIABLE.is_match(word));
    let mut name = words.next().unwrap_or_default().to_owned();
    let wanted = match name.as_str() {
        "npm" | "pnpm" | "yarn" | "docker" | "uv" | "bundle" | "poetry" => 2,
        "python" | "python3" | "node" => 2,
        "psql" | "sqlite3" | "curl" | "ssh" | "pytest" | "make" | "tsc" | "mypy" | "ruff" => 0,
        _ => 1,
    };
    for word in words.filter(|word| !word.starts_with('-')).take(wanted) {
        let subcommand = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_:.".contains(c));
        if !subcommand || word == "." {
            break;
        }
        name.push(' ');
        name.push_str(word);
        // `docker build`, but `docker compose up` and `npm run build`.
        if !matches!(word, "run" | "compose" | "exec") {
            break;
        }
    }
    name
}

/// The flags and variables that the second command has and the first has not.
fn added(failed: &str, passed: &str) -> Vec<String> {
    let before: Vec<&str> = plain(failed).split_whitespace().collect();
    let mut words = plain(passed).split_whitespace().peekable();
    let mut added = Vec::new();
    while let Some(word) = words.next() {
        if before.contains(&word) || IDLE_FLAGS.contains(&word) {
            continue;
        }
        let value = words.peek().filter(|next| !next.starts_with('-') && !before.contains(next)).copied();
        match value {
            Some(value) if word.starts_with("--") && !word.contains('=') => {
                words.next();
                added.push(format!("{word} {value}"));
            }
            _ if word.starts_with('-') || VARIABLE.is_match(word) => added.push(word.to_owned()),
            // Another target, another file: not the same command said otherwise.
            _ => return Vec::new(),
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_command_is_known_whatever_surrounds_it() {
        assert!(is_same("cd api && cargo test -p api 2>&1 | tail -20", "RUST_LOG=debug cargo test"));
        assert!(is_same("npm run build", "NODE_OPTIONS=--x npm run build -- --mode prod"));
        assert!(!is_same("npm run build", "npm run test"));
        assert!(!is_same("cargo test", "cargo build"));
    }

    #[test]
    fn what_was_added_is_told_and_another_target_is_not() {
        assert_eq!(
            added("docker build .", "docker build --platform linux/amd64 ."),
            ["--platform linux/amd64"]
        );
        assert_eq!(added("cargo test", "SQLX_OFFLINE=true cargo test"), ["SQLX_OFFLINE=true"]);
        assert!(added("pytest", "pytest tests/test_a.py").is_empty());
        assert!(added("pytest", "pytest -v").is_empty());
    }
}
