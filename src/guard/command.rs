//! What a command must have to be one that a unit is about.

use serde::{Deserialize, Serialize};

use crate::bash::{self, Command};
use crate::options::takes_next_word;
use crate::spelling::{is_same_subcommand, spellings};

/// A program with its subcommand, and the arguments that must be there, in any order of the options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandPattern {
    pub(crate) program: String,
    /// What is no option: the first is the subcommand, the others follow in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) operands: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<String>,
}

impl CommandPattern {
    /// Reads a pattern as it is written in a scope: the last command of the text counts, so that `cd x && make` is
    /// `make`, and `sudo make` is `make`.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let command = bash::read_script(text, "/").commands.pop()?;
        // `<file>`, `$X`, `FILE`.
        let is_placeholder = |word: &str| {
            word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                || word.starts_with(['<', '$', '{', '['])
                || matches!(word, "..." | "…")
                || word.contains('…')
        };
        let (operands, options) = split(&command);
        let keep = |words: Vec<&str>| -> Vec<String> {
            words.into_iter().filter(|word| !is_placeholder(word)).map(str::to_owned).collect()
        };
        Some(Self { operands: keep(operands), options: keep(options), program: command.program })
    }

    pub(crate) fn matches(&self, command: &Command) -> bool {
        if self.program != command.program {
            return false;
        }
        let (operands, options) = split(command);
        let mut rest = operands.iter();
        let in_order = self.operands.iter().enumerate().all(|(at, wanted)| match at {
            0 => rest.next().is_some_and(|found| is_same_subcommand(&self.program, found, wanted)),
            _ => rest.any(|operand| operand == wanted),
        });
        let subcommand = self.operands.first().map_or("", String::as_str);
        let is_there = |wanted: &str| {
            spellings(&self.program, subcommand, wanted)
                .any(|wanted| options.iter().any(|option| has_option(option, wanted)))
        };
        in_order
            && self.options.iter().all(|wanted| {
                is_there(wanted)
                    || pair_of_letters(wanted).is_some_and(|pair| pair.iter().all(|one| is_there(one)))
            })
    }
}

/// Whether what a command prints may be of a failure of its own: not if it prints a text that exists, prints nothing, or
/// only starts another command.
pub(crate) fn may_print_failure(command: &Command) -> bool {
    let (operands, _) = split(command);
    let subcommand = |at: usize| operands.get(at).copied().unwrap_or_default();
    match command.program.as_str() {
        "cat" | "bat" | "head" | "tail" | "less" | "more" | "nl" | "tac" | "strings" | "xxd" | "od"
        | "hexdump" => false,
        "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "ag" | "ack" | "jq" | "yq" | "diff" | "comm" => false,
        "sed" | "gsed" | "awk" | "gawk" | "perl" | "cut" | "tr" | "sort" | "uniq" | "column" | "fold"
        | "tee" | "wc" => false,
        "echo" | "printf" | "true" | "false" | "test" | "[" | "set" | "export" | "unset" | "sleep"
        | "wait" => false,
        "git" => !matches!(
            subcommand(0),
            "log" | "show" | "diff" | "blame" | "grep" | "cat-file" | "reflog" | "shortlog"
        ),
        "gh" | "glab" => {
            !matches!((subcommand(0), subcommand(1)), ("pr" | "issue" | "mr", "view" | "diff" | "list"))
        }
        "nugget" => false,
        program => bash::inner_command(program, &command.words).is_none(),
    }
}

/// The words that are no options, and the options. Global options before the subcommand lose their value, as in
/// `git -C folder commit`.
fn split(command: &Command) -> (Vec<&str>, Vec<&str>) {
    let (mut operands, mut options) = (Vec::new(), Vec::new());
    let mut words = command.words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            continue;
        }
        if word.len() > 1 && word.starts_with('-') {
            options.push(word);
            match word.split_once('=') {
                // As in `--namespace prod`.
                Some((_, value)) if !operands.is_empty() && word.starts_with("--") => operands.push(value),
                None if operands.is_empty() && takes_next_word(&command.program, word) => {
                    words.next();
                }
                _ => {}
            }
        } else if operands.is_empty() && word.starts_with('+') {
            // A toolchain: `cargo +nightly test`.
            options.push(word);
        } else if command.program == "make" && (word.contains('=') || word.parse::<u16>().is_ok()) {
            // `make -j 4 ENV=prod deploy`.
        } else {
            operands.push(word);
        }
    }
    (operands, options)
}

/// The options of `-rf` one by one.
fn pair_of_letters(option: &str) -> Option<[String; 2]> {
    match option.as_bytes() {
        [b'-', one, other] if one.is_ascii_alphabetic() && other.is_ascii_alphabetic() => {
            Some([one, other].map(|letter| format!("-{}", char::from(*letter))))
        }
        _ => None,
    }
}

/// `rsync -avzhPn` is as long a group of letters as people type.
const GROUP_BYTES_MAX: usize = 7;

/// Whether an option is the wanted one: also with its value (`--port=1`) or in a group of letters (`-rf` for `-r`).
fn has_option(option: &str, wanted: &str) -> bool {
    if option == wanted {
        return true;
    }
    if wanted.starts_with("--") {
        return option.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('='));
    }
    // Not a text that stands at its option, as in `git commit -m"now"`.
    let is_group = option.len() <= GROUP_BYTES_MAX
        && option.starts_with('-')
        && option[1..].chars().all(|letter| letter.is_ascii_alphanumeric());
    is_group && wanted.len() <= 3 && wanted[1..].chars().all(|letter| option[1..].contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, command: &str) -> bool {
        let pattern = CommandPattern::new(pattern).unwrap();
        bash::read_script(command, "/p").commands.iter().any(|command| pattern.matches(command))
    }

    #[test]
    fn a_command_matches_by_program_subcommand_and_arguments() {
        for (pattern, command) in [
            ("cargo publish", "cd x && cargo publish --dry-run -p a"),
            ("git push --force", "git -C dir push origin main --force"),
            ("git push --force", "GIT_SSH=x git push --force=yes"),
            ("rm -r", "sudo rm -rf target"),
            ("grep -P", "cat a | grep -oP 'x'"),
            ("npm run build", "npm --prefix web run build -- --watch"),
            ("python -m pytest", "python -m pytest tests/x.py"),
            ("timeout", "timeout 30 make"),
            ("make", "timeout 30 make"),
            ("git push --force", "git push -f origin main"),
            ("git push -f", "git push origin main --force"),
            ("git commit --no-verify", "git commit -nm x"),
            ("rm --recursive", "rm -rf x"),
            ("npm install", "npm i left-pad"),
            ("npm i", "npm install"),
            ("kubectl delete pod --namespace prod", "kubectl delete pod web -n prod"),
            ("kubectl delete pod --namespace prod", "kubectl delete pod web --namespace=prod"),
            ("pytest", "python3 -m pytest tests"),
            ("python -m pytest", "pytest tests"),
            ("docker compose down --volumes", "docker-compose down -v"),
            ("cargo test --workspace", "cargo +nightly test --workspace"),
            ("cargo publish --workspace", "cargo --manifest-path x/Cargo.toml publish --workspace"),
            ("cat -A <file>", "cat -A notes.txt"),
            ("cat -A FILE", "cat -A notes.txt"),
            ("git push --force", "git --config-env a=b push --force"),
            ("xargs rm -f", "echo a | xargs -0n 1 rm -f"),
            ("rm -rf", "rm -r -f x"),
            ("rm -rf", "rm --recursive --force x"),
            ("rm -rf", "rm -Rf x"),
            ("docker run -it", "docker run -i -t debian"),
            ("make deploy", "make -j 4 ENV=prod deploy"),
            ("aws s3 rm", "aws --profile prod --region eu-west-1 s3 rm s3://x"),
            ("npm publish", "npm --workspace a publish"),
            ("alembic downgrade", "uv run --with x alembic downgrade -1"),
            ("terraform destroy", "mise exec -- terraform destroy"),
            ("prisma reset", "npx prisma reset"),
            ("rails destroy", "bundle exec rails destroy x"),
            ("make deploy", "flock /tmp/lock make deploy"),
        ] {
            assert!(matches(pattern, command), "{pattern}: {command}");
        }
    }

    #[test]
    fn another_subcommand_or_a_missing_argument_does_not_match() {
        for (pattern, command) in [
            ("cargo publish", "cargo package"),
            ("cargo publish", "echo cargo publish"),
            ("git push --force", "git push"),
            ("git push --force", "git branch push --force"),
            ("git push --force", "git commit -m 'push --force'"),
            ("npm run build", "npm run lint"),
            ("git push --no-verify", "git push -n"),
            ("git commit --no-verify", "git commit -m'one more step now'"),
            ("docker compose up --force", "docker compose -f x.yml up"),
            ("kubectl logs --filename", "kubectl logs -f web"),
            ("kubectl delete --namespace prod", "kubectl delete --namespace=test"),
            ("pytest", "python3 pytest.py"),
            ("rm -r", "rm --recursive-not x"),
            ("rm -rf", "rm -r x"),
            ("make deploy", "make -j 4 ENV=deploy"),
            ("grep -P", "grep -n P file"),
            ("cargo publish", "cat <<E\ncargo publish\nE"),
        ] {
            assert!(!matches(pattern, command), "{pattern}: {command}");
        }
    }
}
