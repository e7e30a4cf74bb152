//! Errors of a command line in a person's words: what is wrong with it, and what to type instead.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::{CliError, USAGE};
use crate::lookup::{listed, nearest};

/// What people type for a command, by its meaning; clap finds what is only spelled wrong.
const COMMANDS: &[(&str, &[&str])] = &[
    ("ask", &["query", "question", "answer", "q"]),
    ("search", &["find", "grep", "rg", "lookup"]),
    ("sessions", &["history", "transcripts", "conversations", "archive", "session", "chats"]),
    ("list", &["ls", "units", "all", "index-list", "titles"]),
    ("memories", &["memory", "topics"]),
    ("reflect", &["tidy", "dedupe", "cleanup", "clean", "prune"]),
    ("note", &["notes", "save-note", "write", "zettel", "link"]),
    ("remember", &["memorize", "store", "fact", "facts"]),
    ("show", &["cat", "view", "print", "get", "read", "open"]),
    ("why", &["explain", "evidence", "source", "origin", "blame"]),
    ("edit", &["change", "modify", "update-unit", "amend", "correct", "rename"]),
    ("rm", &["delete", "remove", "del", "drop", "unlearn"]),
    (
        "review",
        &[
            "inbox",
            "approve",
            "accept",
            "merge",
            "reject",
            "pending",
            "proposals",
            "todo",
            "todos",
            "tasks",
            "next",
        ],
    ),
    (
        "status",
        &["log", "captures", "queue", "jobs", "stats", "state", "info", "watch", "progress", "ps", "top"],
    ),
    ("sync", &["fetch", "pull", "push", "update"]),
    (
        "doctor",
        &[
            "check", "health", "verify", "diagnose", "test", "fix", "repair", "debug", "logs", "support",
            "validate",
        ],
    ),
    ("learn", &["learning", "feedback", "citations", "weights", "train"]),
    ("receipts", &["receipt", "helped", "benefit", "impact", "value"]),
    ("retry", &["redo", "rerun", "again", "resume", "requeue"]),
    ("forget-capture", &["purge"]),
    ("config", &["settings", "set", "options", "preferences", "configure", "key", "auth", "setting"]),
    ("index", &["reindex", "rebuild", "embed"]),
    ("spend", &["cost", "costs", "usage", "budget", "billing", "money", "price", "prices", "tokens"]),
    ("init", &["setup", "create", "new", "begin"]),
    ("install", &["setup", "enable", "plugin", "hooks", "upgrade", "on", "start"]),
    ("uninstall", &["disable", "off", "stop"]),
    ("import", &["add", "load", "ingest"]),
    ("export", &["dump", "backup", "save", "html", "web", "share", "site", "download"]),
    ("capture-session", &["capture", "record", "analyze", "analyse", "extract"]),
    ("serve", &["mcp"]),
    ("runtime", &["model", "models", "onnx"]),
    ("eval", &["evaluate", "benchmark", "bench", "measure"]),
    ("demo", &["tour", "tutorial", "example", "try"]),
    ("man", &["manual", "docs", "documentation"]),
    ("--version", &["version", "ver", "v"]),
    ("--help", &["commands", "usage-help", "halp"]),
];
/// Commands that take something away. Who has typed another word for it means them; a word that is only spelled like them
/// may mean the contrary.
const DESTRUCTIVE: [&str; 8] =
    ["rm", "forget-capture", "uninstall", "reject", "unset", "forget", "prune", "reset"];
/// The same for the commands of `nugget review` and `nugget config`.
const REVIEW_COMMANDS: &[(&str, &[&str])] = &[
    ("merge", &["approve", "accept", "yes", "ok", "keep"]),
    ("reject", &["delete", "remove", "rm", "decline", "deny", "no", "close"]),
    ("later", &["skip", "defer", "postpone", "snooze"]),
    ("show", &["view", "cat", "read", "open"]),
];
const SESSIONS_COMMANDS: &[(&str, &[&str])] = &[
    ("show", &["view", "cat", "read", "open", "print"]),
    ("sync", &["import", "add", "archive", "update", "refresh", "index"]),
    ("forget", &["delete", "remove", "rm"]),
    ("stats", &["statistics", "figures", "cost", "usage"]),
];
const NOTE_COMMANDS: &[(&str, &[&str])] = &[
    ("add", &["new", "create", "write", "save"]),
    ("edit", &["change", "modify", "update", "amend", "rename", "tag"]),
    ("list", &["ls", "all"]),
    ("show", &["view", "cat", "read", "open", "get", "print"]),
    ("search", &["find", "grep", "query"]),
    ("rm", &["delete", "remove", "del", "drop", "forget"]),
];
const MEMORIES_COMMANDS: &[(&str, &[&str])] = &[
    ("list", &["ls", "all"]),
    ("show", &["view", "cat", "read", "open", "get", "print"]),
    ("search", &["find", "grep", "query"]),
    ("forget", &["delete", "remove", "rm", "del", "drop"]),
];
const LEARN_COMMANDS: &[(&str, &[&str])] =
    &[("status", &["show", "list", "state", "info"]), ("off", &["disable", "stop", "pause"])];
const CONFIG_COMMANDS: &[(&str, &[&str])] =
    &[("list", &["ls", "show", "all", "print"]), ("get", &["read", "value"]), ("set", &["add", "change"])];

/// Whether a command line asks for JSON, also one that cannot be parsed.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// What is wrong with a command line, and a hint; `None` for a request for help or the version.
pub(crate) fn explain(
    error: &clap::Error,
    command: &clap::Command,
    arguments: &[OsString],
) -> Option<CliError> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let texts = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    // What stands behind it is not looked at: it may be a command elsewhere, or have the option.
    let unknown = match error.kind() {
        ErrorKind::InvalidSubcommand => text(ContextKind::InvalidSubcommand),
        ErrorKind::UnknownArgument => Some(argument.clone()),
        _ => None,
    };
    let whole = named_command(command, arguments, None);
    let (name, command) = named_command(command, arguments, unknown.as_deref());
    let help = format!("`{name} --help` has details");
    let (message, hint) = match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_command(&name, command, &unknown.unwrap_or_default()),
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let options = texts(ContextKind::SuggestedArg);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let takes_it =
                |arg: &clap::Arg| arg.get_long().is_some_and(|long| argument == format!("--{long}"));
            let hint = match options.is_empty() {
                _ if whole.1.get_arguments().any(takes_it) => {
                    format!("put it behind the command: `{} {argument}`", whole.0)
                }
                true => format!("`{name} --help` lists its options; put `--` before words that begin with -"),
                false => format!("did you mean {}?", listed(&options)),
            };
            (format!("`{name}` has no option `{argument}`"), hint)
        }
        ErrorKind::UnknownArgument if command.has_subcommands() => unknown_command(&name, command, &argument),
        ErrorKind::UnknownArgument => (format!("`{name}` does not take `{argument}`"), help),
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> =
                texts(ContextKind::InvalidArg).iter().map(|missing| in_words(command, missing)).collect();
            let hint = example(command, &texts(ContextKind::InvalidArg)).unwrap_or(help);
            (format!("`{name}` needs {}", missing.join(" and ")), hint)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let allowed = texts(ContextKind::ValidValue);
            let why = error.source().map(|source| {
                match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
                    Some(IntErrorKind::PosOverflow) => ": it is too large".to_owned(),
                    Some(_) => ": it is not a whole number".to_owned(),
                    None => format!(": {source}"),
                }
            });
            let why = why.unwrap_or_default();
            let message = match value.is_empty() {
                true => format!("{argument} needs a value"),
                false => format!("{value:?} is no value of {argument}{why}"),
            };
            let hint = match allowed.is_empty() {
                true => help,
                false => format!("it is one of {}", allowed.join(", ")),
            };
            (message, hint)
        }
        ErrorKind::ArgumentConflict => {
            let others = texts(ContextKind::PriorArg);
            if let Some(given) = text(ContextKind::InvalidSubcommand) {
                let others = others.join(" or ");
                let message = format!("`{given}` does not go with {others} before it");
                return Some(CliError::new(message).code(USAGE).hint(format!(
                    "put what `{given}` takes behind it: `{} --help` lists that",
                    with_command(&name, &given)
                )));
            }
            match others.is_empty() || others == [argument.clone()] {
                true => (format!("{argument} is given twice"), "give it once".to_owned()),
                false => (
                    format!("{} does not go with {}", in_words(command, &argument), others.join(" or ")),
                    "give one of them".to_owned(),
                ),
            }
        }
        ErrorKind::MissingSubcommand => {
            let commands = texts(ContextKind::ValidSubcommand);
            (format!("`{name}` needs a command"), format!("one of {}", commands.join(", ")))
        }
        _ => {
            let rendered = error.render().to_string();
            let line = rendered.lines().next().unwrap_or_default();
            (line.trim_start_matches("error: ").to_owned(), help)
        }
    };
    Some(CliError::new(message).code(USAGE).hint(hint))
}

/// The name of a command below the named one, which may be named with it already.
fn with_command(name: &str, given: &str) -> String {
    if name.ends_with(&format!(" {given}")) { name.to_owned() } else { format!("{name} {given}") }
}

/// What is missing, in words: the first sentence of an argument's help, such as "the question".
fn in_words(command: &clap::Command, missing: &str) -> String {
    let name = missing.trim_start_matches(['<', '[']).trim_end_matches(['.', '>', ']']);
    let is_it = |argument: &&clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|known| known.as_str() == name))
            && !missing.starts_with('-')
    };
    let Some(help) = command.get_arguments().find(is_it).and_then(clap::Arg::get_help) else {
        return missing.to_owned();
    };
    let help = help.to_string();
    let first = help.split([',', ';', '(', ':', '[']).next().unwrap_or_default().trim();
    // "Its value" stands below what it is the value of.
    let first = ["Its ", "Their "]
        .iter()
        .find_map(|its| first.strip_prefix(its))
        .map_or(first.to_owned(), |rest| format!("the {rest}"));
    let mut letters = first.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The first example of the command's help that has what is missing, or else the first one.
fn example(command: &clap::Command, missing: &[String]) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    let examples = || help.lines().map(str::trim).filter(|line| line.starts_with("nugget "));
    let options = missing.iter().filter_map(|missing| missing.split(' ').next());
    let options = options.filter(|option| option.starts_with('-'));
    let short = |option: &str| {
        let long = |arg: &&clap::Arg| arg.get_long().is_some_and(|long| option == format!("--{long}"));
        command.get_arguments().find(long)?.get_short().map(|short| format!(" -{short} "))
    };
    let names: Vec<String> =
        options.flat_map(|option| [Some(option.to_owned()), short(option)]).flatten().collect();
    let has_it = |line: &&str| names.iter().any(|name| line.contains(name));
    let example = examples().find(has_it).or_else(|| examples().next())?;
    Some(format!("for example: {}", example.split("   ").next().unwrap_or_default().trim()))
}

/// The command that a command line names before an unknown word, as a person types it: `nugget review`.
fn named_command<'a>(
    command: &'a clap::Command,
    arguments: &[OsString],
    unknown: Option<&str>,
) -> (String, &'a clap::Command) {
    let mut name = command.get_name().to_owned();
    let mut named = command;
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    for word in words.take_while(|word| Some(*word) != unknown) {
        match named.find_subcommand(word) {
            Some(found) => {
                name = format!("{name} {word}");
                named = found;
            }
            // The values of options are not commands.
            None if word.starts_with('-') => {}
            None if std::ptr::eq(named, command) => {}
            None => break,
        }
    }
    (name, named)
}

fn unknown_command(name: &str, command: &clap::Command, given: &str) -> (String, String) {
    let meanings = match command.get_name() {
        "review" => REVIEW_COMMANDS,
        "config" => CONFIG_COMMANDS,
        "sessions" => SESSIONS_COMMANDS,
        "learn" => LEARN_COMMANDS,
        "note" => NOTE_COMMANDS,
        "memories" => MEMORIES_COMMANDS,
        "nugget" => COMMANDS,
        _ => &[],
    };
    let word = given.to_lowercase();
    // `nugget config KEY [VALUE]`.
    let key = match command.get_name() {
        "config" if brain::settings::find(given).is_some() => Some(given),
        "config" if given.contains('.') => {
            nearest(brain::settings::KEYS.iter().map(|key| key.name), given).first().copied()
        }
        _ => None,
    };
    let meant =
        meanings.iter().filter(|(_, words)| words.contains(&word.as_str())).map(|(command, _)| *command);
    let mut meant: Vec<&str> = meant.collect();
    if meant.is_empty() && key.is_none() {
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let names = visible.map(clap::Command::get_name).filter(|name| !DESTRUCTIVE.contains(name));
        let words = meanings.iter().filter(|(name, _)| !DESTRUCTIVE.contains(name));
        // A word that is spelled like another name of a command means that command, too.
        let spelled = nearest(names.chain(words.flat_map(|(_, words)| words.iter().copied())), given);
        for word in spelled {
            let of_word = meanings.iter().find(|(_, words)| words.contains(&word)).map(|(name, _)| *name);
            let name = of_word.unwrap_or(word);
            if !meant.contains(&name) {
                meant.push(name);
            }
        }
        // One slip in a destructive command's own name is no other word.
        let slipped = DESTRUCTIVE.iter().copied().filter(|name| {
            name.len() > 4
                && command.find_subcommand(name).is_some()
                && strsim::osa_distance(name, &word) <= 2
                && word.starts_with("un") == name.starts_with("un")
        });
        meant = slipped.chain(meant).collect();
        meant.truncate(2);
    }
    let of_key = key.map(|key| [format!("{name} get {key}"), format!("{name} set {key} VALUE")]);
    let of_words = meant.iter().map(|command| format!("{name} {command}"));
    let commands: Vec<String> = of_key.into_iter().flatten().chain(of_words).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let hint = match (commands.is_empty(), command.get_name()) {
        (_, "sessions") if ["list", "ls", "all"].contains(&word.as_str()) => {
            format!("`{name}` alone lists them; `{name} --help` has the options")
        }
        (_, "learn") if ["on", "enable", "start"].contains(&word.as_str()) => {
            "`nugget config set learn.enabled on` turns it on".to_owned()
        }
        (false, _) => format!("did you mean {}?", listed(&commands)),
        (true, "nugget") => {
            "`nugget --help` lists the commands; to ask the brain: nugget ask \"…\"".to_owned()
        }
        (true, _) => format!("`{name} --help` lists its commands"),
    };
    (format!("`{name}` has no command `{given}`"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(line: &str) -> (String, String) {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = crate::command().try_get_matches_from(&arguments).unwrap_err();
        let error = explain(&error, &crate::command(), &arguments).unwrap();
        (error.message, error.hint.unwrap())
    }

    #[test]
    fn every_command_that_a_hint_names_exists() {
        let command = crate::command();
        for (names, of) in [
            (COMMANDS, Some(&command)),
            (REVIEW_COMMANDS, command.find_subcommand("review")),
            (SESSIONS_COMMANDS, command.find_subcommand("sessions")),
            (LEARN_COMMANDS, command.find_subcommand("learn")),
            (NOTE_COMMANDS, command.find_subcommand("note")),
            (MEMORIES_COMMANDS, command.find_subcommand("memories")),
            (CONFIG_COMMANDS, command.find_subcommand("config")),
        ] {
            for (name, words) in names {
                let is_option = name.starts_with("--");
                assert!(is_option || of.unwrap().find_subcommand(name).is_some(), "{name}");
                for word in *words {
                    assert!(of.unwrap().find_subcommand(word).is_none(), "{word} is a command");
                }
            }
        }
    }

    #[test]
    fn an_unknown_command_below_another_is_not_answered_with_one_of_the_top() {
        let command = crate::command();
        let of = |name: &str| command.find_subcommand(name).unwrap();
        let hint = |name: &str, given: &str| unknown_command(&format!("nugget {name}"), of(name), given).1;
        assert_eq!(hint("learn", "bogus"), "`nugget learn --help` lists its commands");
        assert_eq!(hint("memories", "bogus"), "`nugget memories --help` lists its commands");
        assert_eq!(hint("learn", "on"), "`nugget config set learn.enabled on` turns it on");
        assert_eq!(hint("note", "delete"), "did you mean `nugget note rm`?");
        assert_eq!(hint("memories", "delete"), "did you mean `nugget memories forget`?");
        for (given, key) in [("brain", "brain"), ("retrieve.limt", "retrieve.limit")] {
            let get_or_set = format!("`nugget config get {key}` or `nugget config set {key} VALUE`");
            assert_eq!(hint("config", given), format!("did you mean {get_or_set}?"));
        }
        assert_eq!(hint("learn", "disable"), "did you mean `nugget learn off`?");
    }

    #[test]
    fn what_stands_before_a_command_that_takes_it_behind_is_named() {
        let (message, hint) = explained("nugget review --brain web merge --all");
        assert_eq!(message, "`merge` does not go with --brain <DIR> before it");
        assert_eq!(hint, "put what `merge` takes behind it: `nugget review merge --help` lists that");
        let (message, hint) = explained("nugget server --brain web status");
        assert_eq!(message, "`status` does not go with --brain <DIR> before it");
        assert_eq!(hint, "put what `status` takes behind it: `nugget server status --help` lists that");
        let (_, hint) = explained("nugget server --tls-cert a.pem");
        assert!(hint.contains("--tls-key key.pem"), "{hint}");
        let (message, hint) = explained("nugget --json list");
        assert_eq!(message, "`nugget` has no option `--json`");
        assert_eq!(hint, "put it behind the command: `nugget list --json`");
    }

    #[test]
    fn words_behind_an_unknown_command_do_not_name_another_one() {
        let (message, hint) = explained("nugget session show 1a2b");
        assert_eq!(message, "`nugget` has no command `session`");
        assert_eq!(hint, "did you mean `nugget sessions`?");
        let (_, hint) = explained("nugget notes list");
        assert_eq!(hint, "did you mean `nugget note`?");
        let (_, hint) = explained("nugget review unreject 1");
        assert!(!hint.contains("`nugget review reject`"), "{hint}");
    }
}
