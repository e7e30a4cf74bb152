//! Compares commands, and finds in their output what went wrong.

use knowledge::text::one_line;
use regex::Captures;

use super::session::{CommandRun, Session};
use crate::sentences::regexes;

regexes! {
    // A line of output that states an error.
    MESSAGE = r"(?m)^\s*(?:E\s{2,})?(?P<line>.*(?:\berror(?:\[\w+\])?:|\b\w*(?:Error|Exception)\b:?|panicked at|FATAL:|fatal:|ERROR:?\s|Err\w*\(|denied\b|cannot |could not |refused\b|not found|no such |timed out|unexpected |undefined: |assertion .*failed|called `\w+::\w+\(\)` on|DATA RACE|deadlock|OOMKilled|CrashLoopBackOff|mismatch).*)$";
    NOISE = r"(?i)^\s*(?:exit code \d+|error: exit code.*|error: could not compile.*|error: test (?:run )?failed.*|error: process didn't exit.*|test result:.*|--- FAIL.*|FAILED .*|make: \*\*\*.*|npm err! code.*|\s*)$|^\s*note: run with `?RUST_BACKTRACE.*$";
    // A panic, with its message in the next line.
    PANICKED = r"^\s*thread '.*' (?:\(\d+\) )?panicked at [\w/.:-]+$";
    PLACE = r"[\w./-]*[A-Za-z][\w./-]*:\d+(?::\d+)?:?\s|(?P<folder>(?:/[\w.@-]+){2,}/)|^\S*\d{4}-\d\d-\d\d[T ][\d:.,Z+]+\s*";
    VARIABLE = r"^[A-Z][A-Z0-9_]+=\S+$";
}

/// Programs whose failure is informative. A `grep` that finds nothing is not.
const INFORMATIVE_PROGRAMS: &str = " cargo rustc pytest python python3 tox uv pip poetry go npm pnpm yarn npx bun deno node tsc jest vitest \
    eslint make cmake ninja gradle mvn docker docker-compose podman kubectl helm terraform tofu ansible ansible-playbook psql \
    mysql sqlite3 redis-cli git gh rails bundle rspec mix dotnet swift xcodebuild flyway alembic sqlx diesel prisma curl ssh \
    aws gcloud az skaffold buf protoc bazel just nix systemctl nginx certbot ruby php composer playwright cypress mypy ruff ";

/// A failed command and its error message.
pub(super) struct Symptom {
    pub(super) command: String,
    pub(super) message: String,
}

impl Symptom {
    /// The error message, cut to 60 characters; without one, which command fails.
    pub(super) fn summarize(&self) -> String {
        let message = one_line(&self.message, 60);
        if message.is_empty() { format!("`{}` fails", self.command) } else { message }
    }

    /// A clause that names the command and its error, to be followed by the cause.
    pub(super) fn describe(&self) -> String {
        match self.message.as_str() {
            "" => format!("`{}` failed", self.command),
            message => format!("`{}` failed with \"{}\"", self.command, one_line(message, 120)),
        }
    }

    /// The command and its error in one line, as evidence.
    pub(super) fn quote(&self) -> String {
        let separator = if self.message.is_empty() { "" } else { ": " };
        format!("`{}` failed{separator}{}", self.command, self.message)
    }

    /// The "When it applies" section of a unit, with the error in a code block.
    pub(super) fn describe_condition(&self) -> String {
        if self.message.is_empty() {
            return format!("When `{}` fails", self.command);
        }
        format!("When `{}` fails with:\n\n```text\n{}\n```", self.command, self.message.replace("```", "'''"))
    }
}

/// Finds the error message in the output of a failed command.
///
/// Falls back to the last line that is not noise.
pub(super) fn find_symptom(failed: &CommandRun<'_>) -> Symptom {
    let lines = failed.output.lines().map(str::trim);
    let mut before = "";
    let stated = lines.clone().filter(|line| !line.is_empty()).find_map(|line| {
        let is_of_panic = PANICKED.is_match(std::mem::replace(&mut before, line));
        if is_of_panic {
            return Some(line);
        }
        let found = MESSAGE.captures(line).and_then(|found| found.name("line"))?.as_str();
        (!NOISE.is_match(found) && !PANICKED.is_match(found)).then_some(found)
    });
    let best = stated.or_else(|| {
        lines.rev().find(|line| line.len() > 3 && !NOISE.is_match(line) && !PANICKED.is_match(line))
    });
    // That there was a path stays visible: the guard compares the words around it.
    let message =
        PLACE.replace_all(
            best.unwrap_or_default(),
            |place: &Captures<'_>| {
                if place.name("folder").is_some() { "…/" } else { "" }
            },
        );
    Symptom {
        command: program_and_subcommand(strip_wrapping(failed.command)),
        message: one_line(&message, 200),
    }
}

/// Finds the first successful run of the same command at or after `event`.
///
/// Falls back to the last one between the failure and `event`, for a cause that is stated after the fix.
pub(super) fn find_passing_run<'s, 'a>(
    session: &'s Session<'a>,
    failed: &CommandRun<'_>,
    event: usize,
) -> Option<&'s CommandRun<'a>> {
    let same = |run: &&CommandRun<'_>| {
        run.ok && run.event > failed.ended && is_same_command(run.command, failed.command)
    };
    let after = session.runs.iter().find(|run| same(run) && run.event >= event);
    after.or_else(|| session.runs.iter().rev().find(|run| same(run) && run.ended < event))
}

/// Whether a word sets an environment variable: `RUST_LOG=debug`.
pub(super) fn is_variable(word: &str) -> bool {
    VARIABLE.is_match(word)
}

/// Whether the failure of this command says something about the work.
pub(super) fn is_informative(run: &CommandRun<'_>) -> bool {
    let command = strip_wrapping(run.command);
    let program = command.split_whitespace().find(|word| !is_variable(word)).unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    INFORMATIVE_PROGRAMS.contains(&format!(" {program} "))
        || command.starts_with("./")
        || program.ends_with(".sh")
}

/// Whether two commands run the same program and subcommand, perhaps with different flags.
pub(super) fn is_same_command(one: &str, other: &str) -> bool {
    program_and_subcommand(strip_wrapping(one)) == program_and_subcommand(strip_wrapping(other))
}

/// Removes a leading `cd … &&` and trailing pipes and redirections from a command.
pub(super) fn strip_wrapping(command: &str) -> &str {
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

/// The program and its subcommand: `cargo test`, `npm run build`, `docker build`.
pub(super) fn program_and_subcommand(command: &str) -> String {
    let mut words = command.split_whitespace().skip_while(|word| is_variable(word));
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
        // `docker build` has one subcommand, `docker compose up` and `npm run build` have two.
        if !matches!(word, "run" | "compose" | "exec") {
            break;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_match_regardless_of_directory_pipes_and_variables() {
        assert!(is_same_command("cd api && cargo test -p api 2>&1 | tail -20", "RUST_LOG=debug cargo test"));
        assert!(is_same_command("npm run build", "NODE_OPTIONS=--x npm run build -- --mode prod"));
        assert!(!is_same_command("npm run build", "npm run test"));
        assert!(!is_same_command("cargo test", "cargo build"));
    }
}
