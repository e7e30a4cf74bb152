//! What a Bash script runs and which files it changes, read from its syntax tree.

use std::collections::HashMap;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, Parser};

use crate::options::takes_next_word;
use crate::path;
use crate::spelling::canonical;

/// A longer script is not read, in bytes. Of 3,309 commands in 286 real sessions the longest has 12 KB.
const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// How often the parser may ask whether to go on; it asks every hundred steps or so. Stops what takes too long.
const PARSER_STEPS_MAX: usize = 20_000;
/// Nodes of the syntax tree that are visited, over all scripts within scripts.
const NODES_MAX: usize = 100_000;
/// Commands that are returned.
const COMMANDS_MAX: usize = 500;
/// Variables whose values are remembered.
const VARIABLES_MAX: usize = 100;
/// Longer values are not, in bytes.
const VALUE_BYTES_MAX: usize = 256;
/// The programs that run a script.
const SHELLS: [&str; 5] = ["bash", "sh", "zsh", "dash", "ksh"];
/// How deep scripts within scripts are read: `bash -c "bash -c …"`.
const SCRIPT_DEPTH_MAX: usize = 3;
/// The folders of one `find` that are looked at; it runs each of its commands on them.
const ROOTS_MAX: usize = 8;

/// A command as it would be run: the program's name without its folder, then its words without quotes.
///
/// An expansion stands as it is written (`$1`), unless its value is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) program: String,
    pub(crate) words: Vec<String>,
}

/// What a script does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) commands: Vec<Command>,
    pub(crate) changed: Vec<Changed>,
}

/// What a script writes, moves or deletes, if the folder is known that it runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Absolute, or below `~/`. Of a pattern such as `src/*.rs` it is the folder.
    pub(crate) path: String,
    /// The pattern of what goes with it of all that lies below it: `*.rs`, or `**` for everything.
    pub(crate) below: Option<String>,
    /// The name of what comes into it, if it is a folder: of `cp a.rs src` it is `a.rs`.
    pub(crate) name_inside: Option<String>,
}

/// A path as a command names it.
#[derive(Default)]
struct Target {
    path: String,
    /// Whether all that lies below it goes with it.
    with_below: bool,
    name_inside: Option<String>,
}

impl Target {
    fn new(path: impl Into<String>, with_below: bool) -> Self {
        Self { path: path.into(), with_below, name_inside: None }
    }
}

/// Reads a script that runs in a folder. What is not understood is left out.
pub(crate) fn read_script(text: &str, folder: &str) -> Script {
    let variables = HashMap::from([("HOME".to_owned(), "~".to_owned())]);
    let mut reader = Reader { script: Script::default(), nodes: NODES_MAX, variables, pushed: Vec::new() };
    reader.read(text, Some(folder.to_owned()), SCRIPT_DEPTH_MAX);
    reader.script
}

struct Reader {
    script: Script,
    /// How many more nodes may be visited.
    nodes: usize,
    /// The variables whose values are known.
    variables: HashMap<String, String>,
    /// The folders that `popd` goes back to.
    pushed: Vec<Option<String>>,
}

/// What is still to do in a tree; the last comes first.
enum Step<'t> {
    Visit(Node<'t>),
    /// The redirections of a statement, after what it runs: `cd x && run > file` writes `x/file`.
    Redirect(Node<'t>),
    /// The end of a subshell: its folder is forgotten.
    Return(Option<String>),
}

impl Reader {
    /// Reads a script. `folder` is `None` where a `cd` leads to an unknown place.
    fn read(&mut self, text: &str, mut folder: Option<String>, depth: usize) {
        if text.len() > SCRIPT_BYTES_MAX || depth == 0 {
            return;
        }
        let mut parser = Parser::new();
        if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
            return;
        }
        let mut steps = 0;
        let mut within_bounds = |_: &tree_sitter::ParseState| {
            steps += 1;
            if steps > PARSER_STEPS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = ParseOptions::new().progress_callback(&mut within_bounds);
        let mut input = |at: usize, _| text.as_bytes().get(at..).unwrap_or_default();
        let Some(tree) = parser.parse_with_options(&mut input, None, Some(options)) else { return };
        let mut todo = vec![Step::Visit(tree.root_node())];
        while let Some(step) = todo.pop() {
            let node = match step {
                Step::Visit(node) => node,
                Step::Redirect(node) => {
                    self.redirect(node, text, folder.as_deref());
                    continue;
                }
                Step::Return(to) => {
                    folder = to;
                    continue;
                }
            };
            if self.nodes == 0 || self.script.commands.len() >= COMMANDS_MAX {
                return;
            }
            self.nodes -= 1;
            match node.kind() {
                "command" => self.command(node, text, &mut folder, depth),
                "variable_assignment" => self.assign(node, text),
                "for_statement" => {
                    let name = node.child_by_field_name("variable");
                    let name = name.and_then(|name| text.get(name.byte_range())).unwrap_or_default();
                    self.variables.remove(name);
                }
                "heredoc_redirect" => self.here_document(node, text, folder.as_deref(), depth),
                "subshell" | "command_substitution" | "process_substitution" | "pipeline" => {
                    todo.push(Step::Return(folder.clone()));
                }
                // Their content is data.
                "heredoc_body" | "comment" | "raw_string" | "word" => continue,
                _ => {}
            }
            let children: Vec<Node<'_>> = node.named_children(&mut node.walk()).collect();
            // What is run comes before its redirections.
            let (redirects, rest): (Vec<_>, Vec<_>) =
                children.into_iter().partition(|child| child.kind() == "file_redirect");
            todo.extend(redirects.into_iter().rev().map(Step::Redirect));
            todo.extend(rest.into_iter().rev().map(Step::Visit));
        }
    }

    fn redirect(&mut self, node: Node<'_>, text: &str, folder: Option<&str>) {
        let is_output = node
            .children(&mut node.walk())
            .any(|child| matches!(child.kind(), ">" | ">>" | "&>" | "&>>" | ">|"));
        let Some(target) = node.child_by_field_name("destination").filter(|_| is_output) else { return };
        self.change(Target::new(self.expand(&word(target, text)), false), folder);
    }

    /// Remembers a variable's value if that is known. `A=1 program` sets it for the program alone.
    fn assign(&mut self, node: Node<'_>, text: &str) {
        let part = |name: &str| node.child_by_field_name(name);
        let Some(name) = part("name").filter(|_| node.parent().is_none_or(|above| above.kind() != "command"))
        else {
            return;
        };
        let name_end = name.end_byte();
        let name = text.get(name.byte_range()).unwrap_or_default().to_owned();
        let value = part("value").map(|value| self.expand(&word(value, text)));
        let is_added_to = text.get(name_end..).is_some_and(|rest| rest.starts_with("+="));
        let is_known = |value: &String| {
            !is_added_to && value.len() <= VALUE_BYTES_MAX && !value.contains(['$', '`', '('])
        };
        match value.filter(is_known) {
            Some(value) if self.variables.len() < VARIABLES_MAX => self.variables.insert(name, value),
            _ => self.variables.remove(&name),
        };
    }

    /// A word with the values of the variables that are known.
    fn expand(&self, word: &str) -> String {
        let mut expanded = String::with_capacity(word.len());
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('$') {
            if expanded.len() > SCRIPT_BYTES_MAX {
                return word.to_owned();
            }
            expanded.push_str(before);
            let inner = after.strip_prefix('{').unwrap_or(after);
            let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
            let (name, mut behind) = inner.split_at(end);
            let mut is_whole = true;
            if inner.len() < after.len() {
                is_whole = behind.starts_with('}');
                behind = behind.strip_prefix('}').unwrap_or(behind);
            }
            match self.variables.get(name).filter(|_| is_whole) {
                Some(value) => {
                    expanded.push_str(value);
                    rest = behind;
                }
                None => {
                    expanded.push('$');
                    rest = after;
                }
            }
        }
        expanded + rest
    }

    /// A here-document is data, except for a shell that reads its script from there.
    fn here_document(&mut self, node: Node<'_>, text: &str, folder: Option<&str>, depth: usize) {
        let body = node.named_children(&mut node.walk()).find(|child| child.kind() == "heredoc_body");
        let mut reader = node.parent().and_then(|statement| statement.child_by_field_name("body"));
        // Of `cd x && bash <<E` the last command reads it.
        while let Some(several) = reader.filter(|reader| matches!(reader.kind(), "list" | "pipeline")) {
            reader = several.named_children(&mut several.walk()).last();
        }
        let (Some(body), Some(reader)) = (body, reader.filter(|reader| reader.kind() == "command")) else {
            return;
        };
        let words: Vec<String> =
            reader.named_children(&mut reader.walk()).map(|part| word(part, text)).collect();
        let mut words = words.as_slice();
        while let Some((program, arguments)) = words.split_first() {
            let program = program.rsplit('/').next().unwrap_or_default();
            if SHELLS.contains(&program) {
                if arguments.iter().all(|argument| argument.starts_with('-') && !argument.contains('c')) {
                    let script = text.get(body.byte_range()).unwrap_or_default().to_owned();
                    self.read(&script, folder.map(str::to_owned), depth - 1);
                }
                return;
            }
            words = inner_command(program, arguments).unwrap_or_default();
        }
    }

    fn command(&mut self, node: Node<'_>, text: &str, folder: &mut Option<String>, depth: usize) {
        let mut cursor = node.walk();
        let parts = node.named_children(&mut cursor).filter(|part| {
            !matches!(
                part.kind(),
                "variable_assignment" | "file_redirect" | "herestring_redirect" | "comment"
            )
        });
        let words: Vec<String> = parts.map(|part| self.expand(&word(part, text))).collect();
        self.run(&words, folder, depth);
    }

    /// A command with the words of its line, and the command that it starts, as `sudo` does.
    fn run(&mut self, words: &[String], folder: &mut Option<String>, depth: usize) {
        let mut words = words;
        let mut here = folder.clone();
        loop {
            let Some((program, arguments)) = words.split_first() else { return };
            let program = program.rsplit('/').next().unwrap_or_default();
            if program.is_empty() || self.script.commands.len() >= COMMANDS_MAX {
                return;
            }
            if program == "popd" {
                *folder = self.pushed.pop().flatten();
                return;
            }
            if program == "cd" || program == "pushd" {
                if program == "pushd" {
                    self.pushed.push(folder.clone());
                }
                let to = arguments.iter().find(|word| !word.starts_with('-') || word.len() == 1);
                *folder = to.and_then(|to| path::resolve(to, folder.as_deref()));
                return;
            }
            let (name, canonical_words) = canonical(program, arguments);
            self.script.commands.push(Command { program: name, words: canonical_words });
            for to in folders(program, arguments) {
                here = path::resolve(to, here.as_deref());
            }
            for target in changed_paths(program, arguments) {
                self.change(target, here.as_deref());
            }
            if program == "find" {
                // Each command of its own is run on what is found.
                for inner in executed(arguments) {
                    self.run(&on_all_below(&roots(arguments), inner), &mut here.clone(), depth);
                }
                return;
            }
            if let Some(script) = inner_script(program, arguments) {
                return self.read(&script, here, depth - 1);
            }
            match inner_command(program, arguments) {
                Some(inner) => words = inner,
                None => return,
            }
        }
    }

    fn change(&mut self, Target { path: target, with_below, name_inside }: Target, folder: Option<&str>) {
        let (target, below) = match target.find(['*', '?']) {
            Some(at) => {
                let (folder, pattern) = match target[..at].rfind('/') {
                    Some(end) => (&target[..end], target[end + 1..].trim_end_matches('/')),
                    None => (".", target.as_str()),
                };
                let is_all = pattern.chars().all(|c| matches!(c, '*' | '/'));
                let below = match with_below {
                    true if is_all => "**".to_owned(),
                    true => format!("{pattern}/**"),
                    // What has no dot in its name may be a folder, which stays.
                    false if pattern == "*" || pattern.ends_with("/*") => format!("{pattern}.*"),
                    false => pattern.to_owned(),
                };
                (folder, Some(below))
            }
            None => (target.as_str(), with_below.then(|| "**".to_owned())),
        };
        if !target.starts_with("/dev/")
            && let Some(path) = path::resolve(target, folder)
            && self.script.changed.len() < COMMANDS_MAX
        {
            self.script.changed.push(Changed { path, below, name_inside });
        }
    }
}

/// The text of a word without its quotes; expansions as they are written.
fn word(node: Node<'_>, text: &str) -> String {
    let of = |node: Node<'_>| text.get(node.byte_range()).unwrap_or_default();
    let mut plain = String::new();
    let mut todo = vec![node];
    while let Some(node) = todo.pop() {
        match node.kind() {
            "raw_string" => plain.push_str(of(node).trim_matches('\'')),
            "ansi_c_string" => plain.push_str(of(node).trim_start_matches('$').trim_matches('\'')),
            "string" | "translated_string" => {
                // The white space between expansions is in no child.
                let source = of(node).trim_start_matches('$');
                let inner = source.strip_prefix('"').unwrap_or(source);
                plain.push_str(&unescape(inner.strip_suffix('"').unwrap_or(inner)));
            }
            "command_name" | "concatenation" => {
                let mut children: Vec<Node<'_>> = node.named_children(&mut node.walk()).collect();
                if children.is_empty() {
                    plain.push_str(&unescape(of(node)));
                }
                children.reverse();
                todo.extend(children);
            }
            "word" => plain.push_str(&unescape(of(node))),
            _ => plain.push_str(of(node)),
        }
    }
    plain
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            // A line that goes on.
            '\n' if escaped => escaped = false,
            c => {
                plain.push(c);
                escaped = false;
            }
        }
    }
    plain
}

/// The script that a shell is given as an argument.
fn inner_script(program: &str, arguments: &[String]) -> Option<String> {
    match program {
        program if SHELLS.contains(&program) => {
            let is_option = |word: &&String| {
                word.strip_prefix('-')
                    .is_some_and(|letters| !letters.starts_with('-') && letters.contains('c'))
            };
            let at = arguments.iter().position(|word| is_option(&word))?;
            arguments[at + 1..].iter().find(|word| !word.starts_with('-')).cloned()
        }
        "eval" => Some(arguments.join(" ")),
        // It splits the value into words, and puts those behind it at their end.
        "env" => {
            let (before, behind) = split_at_command(program, arguments, 0);
            let split = before.iter().enumerate().find_map(|(at, word)| {
                let value = word.strip_prefix("--split-string=").or_else(|| word.strip_prefix("-S"));
                let is_next =
                    takes_next_word(program, word) && (word == "--split-string" || word.ends_with('S'));
                if is_next { before.get(at + 1).map(String::as_str) } else { value }
            })?;
            Some(
                std::iter::once(split).chain(behind.iter().map(String::as_str)).collect::<Vec<_>>().join(" "),
            )
        }
        _ => None,
    }
}

/// The command that a program runs, for programs that only change how it is run.
pub(crate) fn inner_command<'w>(program: &str, arguments: &'w [String]) -> Option<&'w [String]> {
    let (subcommand, behind) = arguments.split_first().map_or(("", arguments), |(first, rest)| (first, rest));
    let (arguments, operands) = match (program, subcommand) {
        ("timeout" | "gtimeout" | "flock", _) => (arguments, 1),
        (
            "sudo" | "doas" | "env" | "time" | "nice" | "ionice" | "xargs" | "stdbuf" | "nohup" | "setsid"
            | "command" | "exec" | "builtin" | "caffeinate" | "chronic" | "npx" | "bunx" | "watch",
            _,
        ) => (arguments, 0),
        ("uv" | "poetry" | "pipenv", "run") | ("mise" | "bundle" | "npm" | "pnpm" | "yarn", "exec") => {
            (behind, 0)
        }
        _ => return None,
    };
    let (before, inner) = split_at_command(program, arguments, operands);
    let is_looked_up = program == "command" && before.iter().any(|word| matches!(word.as_str(), "-v" | "-V"));
    (!inner.is_empty() && !is_looked_up).then_some(inner)
}

/// The words of a program before what it runs, which are options and so many operands, and the rest. Of git the rest
/// begins with the subcommand.
fn split_at_command<'w>(
    program: &str,
    words: &'w [String],
    mut operands: usize,
) -> (&'w [String], &'w [String]) {
    let mut may_be_option = true;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if may_be_option && word.starts_with('-') {
            may_be_option = word != "--";
            at += usize::from(takes_next_word(program, word));
        } else if !(matches!(program, "sudo" | "env") && word.contains('=')) {
            if operands == 0 {
                break;
            }
            operands -= 1;
        }
        at += 1;
    }
    words.split_at(at.min(words.len()))
}

/// The folders that a program goes to, one from the other, before it does anything.
fn folders<'w>(program: &str, arguments: &'w [String]) -> Vec<&'w str> {
    let option = match program {
        "git" | "env" => "-C",
        "sudo" => "-D",
        _ => return Vec::new(),
    };
    let (before, _) = split_at_command(program, arguments, 0);
    let folder = |(at, word): (usize, &'w String)| match word.strip_prefix("--chdir=") {
        None if word == option || word == "--chdir" => before.get(at + 1).map(String::as_str),
        folder => folder,
    };
    before.iter().enumerate().filter_map(folder).collect()
}

/// The value of an option, also behind other letters: `cp -t FOLDER FILE`, `curl -sLo FILE`, `--output=FILE`.
fn option_value<'w>(arguments: &'w [String], letter: char, long: &str) -> Option<&'w str> {
    let is_it = |word: &str| word == long || is_group(word) && word.ends_with(letter);
    let joined = |word: &'w String| word.strip_prefix(long)?.strip_prefix('=');
    let mut pairs = arguments.windows(2);
    let apart = || pairs.find(|pair| is_it(&pair[0])).map(|pair| pair[1].as_str());
    arguments.iter().find_map(joined).or_else(apart)
}

/// Whether a word is letters of options: `-t`, `-sLo`.
fn is_group(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// The commands that `find` runs on what it finds.
fn executed(arguments: &[String]) -> impl Iterator<Item = &[String]> {
    let starts = |word: &String| matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    arguments
        .split(starts)
        .skip(1)
        .map(|words| words.split(|word| word == ";" || word == "+").next().unwrap_or(words))
}

/// The files and folders in which `find` looks: they come before the conditions.
fn roots(arguments: &[String]) -> Vec<&str> {
    let words = arguments.iter().map(String::as_str);
    let words = words.skip_while(|word| matches!(*word, "-H" | "-L" | "-P"));
    let mut roots: Vec<&str> = words.take_while(|word| !word.starts_with(['-', '(', '!'])).collect();
    if roots.is_empty() {
        roots.push(".");
    }
    roots.retain(|root| root.len() <= VALUE_BYTES_MAX);
    roots.truncate(ROOTS_MAX);
    roots
}

/// The words of a command of `find`, with a pattern of all that lies below the folders for what it finds.
fn on_all_below(roots: &[&str], words: &[String]) -> Vec<String> {
    let named = |word: &String| -> Vec<String> {
        match word.contains("{}") {
            true => roots.iter().map(|root| word.replace("{}", &format!("{root}/**"))).collect(),
            false => vec![word.clone()],
        }
    };
    words.iter().flat_map(named).collect()
}

/// The paths that a program writes, moves or deletes.
fn changed_paths(program: &str, arguments: &[String]) -> Vec<Target> {
    let git = match program {
        "git" => split_at_command(program, arguments, 0).1.split_first(),
        _ => None,
    };
    let (program, arguments) = match git {
        Some((subcommand, arguments)) => (format!("git {subcommand}"), arguments),
        None => (program.to_owned(), arguments),
    };
    let operands = |from: usize| -> Vec<&str> {
        let words = arguments.iter().map(String::as_str);
        words.filter(|word| !word.is_empty() && !word.starts_with('-')).skip(from).collect()
    };
    let has = |letter: char| arguments.iter().any(|word| is_group(word) && word.contains(letter));
    let has_word = |long: &str| arguments.iter().any(|word| word.starts_with(long));
    let alone = |paths: Vec<&str>| paths.into_iter().map(|path| Target::new(path, false)).collect();
    let with_below = |paths: Vec<&str>| paths.into_iter().map(|path| Target::new(path, true)).collect();
    match program.as_str() {
        "rm" | "git rm" => {
            let is_recursive = has('r') || has('R') || has_word("--recursive");
            if is_recursive { with_below(operands(0)) } else { alone(operands(0)) }
        }
        "mv" | "git mv" | "cp" | "ln" | "install" | "rsync" => {
            let paths = operands(0);
            // `rsync -t` keeps times.
            let option = (program != "rsync").then(|| option_value(arguments, 't', "--target-directory"));
            let option = option.flatten();
            // The last one is where the others go, unless an option says that.
            let Some(to) = option.or_else(|| paths.last().copied()) else { return Vec::new() };
            let sources: Vec<&str> = paths.into_iter().filter(|path| *path != to).collect();
            // An operand of `install` may be the value of an option.
            let is_folder = option.is_some()
                || to.ends_with('/')
                || matches!(to, "." | "..")
                || sources.len() > 1 && program != "install";
            let mut changed = Vec::new();
            let mut name_inside = None;
            for source in sources {
                if program.ends_with("mv") {
                    changed.push(Target::new(source, true));
                }
                let name = source.rsplit('/').next().unwrap_or_default();
                if matches!(name, "" | "." | "..") {
                    continue;
                }
                match is_folder {
                    true => changed.push(Target::new(format!("{to}/{name}"), false)),
                    // It may be a folder all the same.
                    false => name_inside = Some(name.to_owned()),
                }
            }
            let removes = program == "rsync" && has_word("--delete");
            changed.push(Target { name_inside, ..Target::new(to, removes) });
            changed
        }
        // Before the dashes there are names of commits and branches.
        "git checkout" if arguments.iter().any(|word| word == "--") => {
            let before = arguments.iter().take_while(|word| *word != "--");
            let names = before.filter(|word| !word.starts_with('-')).count();
            if names > 0 { with_below(operands(names)) } else { alone(operands(0)) }
        }
        "git checkout" if has('b') || has('B') || has_word("--orphan") => Vec::new(),
        // `COMMIT PATH`; alone, what looks like no path is a branch.
        "git checkout" => match operands(0) {
            paths if paths.len() > 1 => with_below(paths),
            paths => alone(paths.into_iter().filter(|path| path.contains(['/', '.'])).collect()),
        },
        "git restore" if has('s') || has_word("--source") => with_below(operands(0)),
        "find" if arguments.iter().any(|word| word == "-delete") => with_below(roots(arguments)),
        "tee" | "rmdir" | "unlink" | "touch" | "truncate" | "git restore" => alone(operands(0)),
        "curl" => alone(option_value(arguments, 'o', "--output").into_iter().collect()),
        "wget" => alone(option_value(arguments, 'O', "--output-document").into_iter().collect()),
        "dd" => alone(arguments.iter().filter_map(|word| word.strip_prefix("of=")).collect()),
        // The first operand is the script, unless an option holds it.
        "sed" | "gsed" if has('i') || has_word("--in-place") => {
            alone(operands(usize::from(!has('e') && !has('f'))))
        }
        "perl" if has('i') => alone(operands(usize::from(!has('e')))),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let line = |command: Command| [vec![command.program], command.words].concat().join(" ");
        read_script(text, "/p").commands.into_iter().map(line).collect()
    }

    fn changed(text: &str) -> Vec<String> {
        read_script(text, "/p").changed.into_iter().map(|changed| changed.path).collect()
    }

    #[test]
    fn every_command_of_a_script_is_found() {
        assert_eq!(commands("go test ./... 2>&1 | tail -20"), ["go test ./...", "tail -20"]);
        assert_eq!(commands("a && b; c || (d x) & e"), ["a", "b", "c", "d x", "e"]);
        assert_eq!(commands("for f in *; do cargo fmt \"$f\"; done"), ["cargo fmt $f"]);
        assert_eq!(commands("if ! make x; then echo no; fi"), ["make x", "echo no"]);
        assert_eq!(commands("x=$(git rev-parse HEAD) npm ci"), ["npm ci", "git rev-parse HEAD"]);
        assert_eq!(commands("A=1 /usr/bin/git commit -m 'a b'"), ["git commit -m a b"]);
        assert_eq!(commands("echo \"$(gh pr view 1)\""), ["echo $(gh pr view 1)", "gh pr view 1"]);
    }

    #[test]
    fn what_only_starts_a_command_does_not_hide_it() {
        let inner = |text: &str| commands(text).pop().unwrap_or_default();
        for text in [
            "env X=1 -u Y cargo publish",
            "sudo -u me cargo publish",
            "time cargo publish",
            "timeout -s KILL 30 cargo publish",
            "bash -c 'cargo publish'",
            "bash -lc \"cargo publish\"",
            "sudo env A=b sh -c \"cd x && cargo publish\"",
            "echo a | xargs -n 1 cargo publish",
            "eval 'cargo publish'",
            "nohup cargo publish",
            "sudo A=b cargo publish",
            "sudo -E A=b -u me cargo publish",
            "sudo --user me cargo publish",
            "sudo --user=me cargo publish",
            "sudo -Eu me cargo publish",
            "sudo -- A=b cargo publish",
            "env --unset X A=b cargo publish",
            "env -uX -- A=b cargo publish",
            "nice --adjustment 5 cargo publish",
            "nice -n5 cargo publish",
            "timeout --signal KILL -k9 30 cargo publish",
            "timeout -- 30 cargo publish",
            "exec -a name cargo publish",
            "stdbuf --output L cargo publish",
            "echo a | xargs --max-args 1 cargo publish",
            "echo a | xargs -0rn1 -I {} cargo publish",
            "echo a | xargs -0I {} cargo publish",
            "env -S 'cargo publish'",
            "env -i -S'cargo publish'",
            "env -S cargo publish",
            "env --split-string='A=b cargo' publish",
        ] {
            assert_eq!(inner(text), "cargo publish", "{text}");
        }
        assert_eq!(commands("timeout 5 make")[0], "timeout 5 make");
        assert_eq!(commands("command -v cargo"), ["command -v cargo"]);
        assert_eq!(commands("sudo --user me"), ["sudo --user me"]);
    }

    #[test]
    fn changed_files_are_found_in_the_folder_that_they_are_in() {
        assert_eq!(changed("cd src && echo x > a.rs"), ["/p/src/a.rs"]);
        assert_eq!(changed("(cd src; echo x > a.rs); echo y >> b.rs"), ["/p/src/a.rs", "/p/b.rs"]);
        assert_eq!(changed("pushd src; ls; popd; echo x > a.rs"), ["/p/a.rs"]);
        assert_eq!(
            changed("cp -at app/routes /x/a b/"),
            ["/p/app/routes/a", "/p/app/routes"],
            "of a folder it is not known whether it or what is in it is copied"
        );
        assert_eq!(changed("mv a x/ && cd y; cp ../b ."), ["/p/a", "/p/x/a", "/p/x", "/p/y/b", "/p/y"]);
        assert_eq!(changed("rsync -t a b; ln -s a b c"), ["/p/b", "/p/c/a", "/p/c/b", "/p/c"]);
        assert_eq!(
            changed("curl -sLo a x; wget --output-document=b x; dd if=x of=c; wget -qO - x"),
            ["/p/a", "/p/b", "/p/c"]
        );
        assert_eq!(changed("cat <<'E' > ../x/y.md\nrm -rf /etc\nE\n"), ["/x/y.md"]);
        assert_eq!(changed("make 2>&1 | tee out/log.txt"), ["/p/out/log.txt"]);
        assert_eq!(changed("sed -i '' 's/a/b/' a.c b.c"), ["/p/a.c", "/p/b.c"]);
        assert_eq!(changed("sed -n 1,5p a.c; cat b.c < c.c 2>/dev/null"), Vec::<String>::new());
        assert_eq!(
            changed("mv a b; cp c d; rm -f e; git mv f g"),
            ["/p/a", "/p/b", "/p/d", "/p/e", "/p/f", "/p/g"]
        );
        assert_eq!(changed("cd \"$D\" && echo x > a"), Vec::<String>::new());
        assert_eq!(
            changed("git -C src -c a=b -C queue rm a; git --git-dir x/.git mv b c"),
            ["/p/src/queue/a", "/p/b", "/p/c"]
        );
        assert_eq!(
            changed("env -C src -S 'rm a'; sudo --chdir=src touch b && rm c"),
            ["/p/src/a", "/p/src/b", "/p/c"]
        );
        assert_eq!(changed("git -C \"$D\" rm a; rm b"), ["/p/b"]);
        assert_eq!(changed("git checkout main; git checkout -q HEAD~1 -- a b"), ["/p/a", "/p/b"]);
        assert_eq!(changed("find a -name '*.rs'; find b c -name '*.rs' -delete"), ["/p/b", "/p/c"]);
        assert_eq!(changed("cd a && find -name x -delete; find -L b -type f -delete"), ["/p/a", "/p/a/b"]);
        assert_eq!(
            changed("git checkout HEAD~1 a src/b; git checkout -b c d/e"),
            ["/p/HEAD~1", "/p/a", "/p/src/b"]
        );
        assert_eq!(
            changed("git -C ../q checkout v1 a; git -C ../q restore --source=v1 b"),
            ["/q/v1", "/q/a", "/q/b"]
        );
        assert_eq!(changed("rsync -a --delete new/ src"), ["/p/src"]);
        assert_eq!(changed("cd /abs && echo x > \"with space.txt\""), ["/abs/with space.txt"]);
    }

    #[test]
    fn what_find_runs_is_run_on_all_that_lies_below_its_folders() {
        let below = |text: &str| -> Vec<(String, Option<String>)> {
            let changed = read_script(text, "/p").changed.into_iter();
            changed.map(|changed| (changed.path, changed.below)).collect()
        };
        let all = |path: &str| (path.to_owned(), Some("**".to_owned()));
        for text in [
            "find src -name '*.rs' -exec rm {} \\;",
            "find src -type f -exec sed -i 's/a/b/' {} +",
            "find src -exec grep -q a {} ';' -exec sudo rm -f {} ';'",
            "find src -execdir sh -c 'rm {}' \\;",
            "cd src && find . -okdir truncate -s0 {} \\;",
        ] {
            assert_eq!(below(text), [all("/p/src")], "{text}");
        }
        assert_eq!(below("find a b -exec rm {} +"), [all("/p/a"), all("/p/b")]);
        assert_eq!(below("find src -exec cat {} + -o -exec wc -l {} \\;"), []);
        assert_eq!(
            commands("find a -exec cargo publish {} \\;").pop().as_deref(),
            Some("cargo publish a/**")
        );
    }

    #[test]
    fn a_shell_runs_its_here_document() {
        assert_eq!(
            commands("cd x && bash <<'E'\ncargo publish\nE").last().map(String::as_str),
            Some("cargo publish")
        );
        assert_eq!(changed("cd x && sudo -u me bash -s <<E\necho a > b\nE"), ["/p/x/b"]);
        assert_eq!(commands("cat <<E\ncargo publish\nE"), ["cat"]);
        assert_eq!(commands("bash script.sh <<E\ncargo publish\nE"), ["bash script.sh"]);
    }

    #[test]
    fn variables_that_the_script_sets_are_known() {
        assert_eq!(changed("D=src/queue; echo x > $D/mod.rs"), ["/p/src/queue/mod.rs"]);
        assert_eq!(changed("export D=\"src\" && E=${D}/a && rm \"$E/b c\""), ["/p/src/a/b c"]);
        assert_eq!(commands("A=cargo; $A publish"), ["cargo publish"]);
        for unknown in [
            "D=$(pwd); rm $D/a",
            "D=x make; rm $D/a",
            "rm $D/a",
            "D=x; D=$E; rm $D/a",
            "D=x; D+=y; rm $D/a",
            "D=x; for D in a b; do rm $D/a; done",
            "D=x; rm ${D%y}/a",
        ] {
            assert_eq!(changed(unknown), Vec::<String>::new(), "{unknown}");
        }
    }

    #[test]
    fn the_home_folder_and_the_folder_of_a_pattern_are_known() {
        assert_eq!(
            changed("echo x > ~/shop/a; rm $HOME/shop/b \"${HOME}/c\""),
            ["~/shop/a", "~/shop/b", "~/c"]
        );
        assert_eq!(changed("cd ~/shop && cd src && touch ../a"), ["~/shop/a"]);
        assert_eq!(changed("cd; echo x > a; echo y > ~/../a; rm ~other/a"), Vec::<String>::new());
        assert_eq!(changed("rm src/queue/*.rs src/*/a.rs"), ["/p/src/queue", "/p/src"]);
        assert_eq!(changed("rm *.rs"), ["/p"]);
    }

    #[test]
    fn broken_scripts_give_what_can_be_read() {
        assert!(commands("git push 'never closed").first().is_some_and(|line| line.starts_with("git push")));
        assert_eq!(commands(""), Vec::<String>::new());
        assert_eq!(commands("&& ||"), Vec::<String>::new());
    }

    #[test]
    fn hostile_scripts_are_bounded() {
        for text in [
            "(".repeat(60_000),
            "$(".repeat(30_000),
            "bash -c '".repeat(5_000),
            format!("echo {}", "\"$(".repeat(20_000)),
            "a;".repeat(30_000),
            "<<E ".repeat(15_000),
            "bash <<E\n".repeat(5_000),
            format!("A=xxxxxxxx;{}", "A=$A$A;".repeat(8_000)),
            format!("A={};echo {}", "x".repeat(200), "$A".repeat(20_000)),
            "{ ".repeat(30_000),
            "`".repeat(60_000),
            "if ".repeat(20_000),
            "\u{0}\u{1}\u{fffd}".repeat(10_000),
            "x".repeat(1 << 20),
            format!("find {} {}", "a ".repeat(10_000), "-exec rm {} ';' ".repeat(2_000)),
            format!("find {} -exec {}", "a".repeat(200), "{} ".repeat(15_000)),
        ] {
            assert!(commands(&text).len() <= COMMANDS_MAX);
        }
    }
}
