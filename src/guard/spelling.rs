//! The ways to write one command: a short option for a long one, another name of a program or a subcommand.
//!
//! Only what people type for each other every day; the letters mean other things elsewhere (`git push -n` tries out).

/// Programs that are installed under two names; the second one is meant by both.
const PROGRAMS: [(&str, &str); 4] =
    [("python3", "python"), ("pip3", "pip"), ("nodejs", "node"), ("docker-compose", "docker compose")];

/// A program's subcommand, and what is short for it.
const SUBCOMMANDS: [(&str, &str, &str); 14] = [
    ("npm", "install", "i"),
    ("npm", "uninstall", "rm"),
    ("npm", "run", "run-script"),
    ("npm", "test", "t"),
    ("pnpm", "install", "i"),
    ("pnpm", "remove", "rm"),
    ("pnpm", "test", "t"),
    ("bun", "install", "i"),
    ("bun", "remove", "rm"),
    ("cargo", "build", "b"),
    ("cargo", "check", "c"),
    ("cargo", "run", "r"),
    ("cargo", "test", "t"),
    ("cargo", "remove", "rm"),
];

/// A program, its subcommand (none for all of them), an option, and its letter.
const OPTIONS: [(&str, &str, &str, &str); 23] = [
    ("git", "push", "--force", "-f"),
    ("git", "push", "--delete", "-d"),
    ("git", "commit", "--no-verify", "-n"),
    ("git", "commit", "--all", "-a"),
    ("git", "add", "--all", "-A"),
    ("git", "clean", "--force", "-f"),
    ("git", "checkout", "--force", "-f"),
    ("git", "switch", "--force", "-f"),
    ("git", "branch", "--force", "-f"),
    ("git", "tag", "--force", "-f"),
    ("rm", "", "--recursive", "-r"),
    ("rm", "", "--recursive", "-R"),
    ("rm", "", "--force", "-f"),
    ("docker", "rm", "--force", "-f"),
    ("docker", "rmi", "--force", "-f"),
    ("docker", "system", "--force", "-f"),
    ("docker", "compose", "--volumes", "-v"),
    ("kubectl", "", "--namespace", "-n"),
    ("kubectl", "apply", "--filename", "-f"),
    ("kubectl", "delete", "--filename", "-f"),
    ("helm", "", "--namespace", "-n"),
    ("npm", "", "--global", "-g"),
    ("npm", "", "--save-dev", "-D"),
];

/// The program and its arguments as they are compared: `python3 -m pytest x` is `pytest x`.
pub(crate) fn canonical(program: &str, words: &[String]) -> (String, Vec<String>) {
    let program = PROGRAMS.iter().find(|(other, _)| *other == program).map_or(program, |(_, name)| *name);
    if let ("python", [option, module, rest @ ..]) = (program, words)
        && option == "-m"
    {
        return (module.clone(), rest.to_vec());
    }
    let (program, subcommand) = program.split_once(' ').unwrap_or((program, ""));
    let subcommand = Some(subcommand.to_owned()).filter(|word| !word.is_empty());
    (program.to_owned(), subcommand.into_iter().chain(words.iter().cloned()).collect())
}

/// Whether two subcommands of a program are the same one.
pub(crate) fn is_same_subcommand(program: &str, one: &str, other: &str) -> bool {
    let is_short_for = |one, other| {
        SUBCOMMANDS.iter().any(|(of, long, short)| (*of, *long, *short) == (program, other, one))
    };
    one == other || is_short_for(one, other) || is_short_for(other, one)
}

/// The option, and what stands for it in this command.
pub(crate) fn spellings<'o>(
    program: &'o str,
    subcommand: &'o str,
    option: &'o str,
) -> impl Iterator<Item = &'o str> {
    let others = OPTIONS
        .iter()
        .filter(move |(of, within, ..)| *of == program && (within.is_empty() || *within == subcommand));
    // `-r` and `-R` are both `--recursive`.
    let is_meant = move |(_, _, long, short): &&(&str, &str, &str, &str)| option == *long || option == *short;
    let long = others.clone().find(is_meant).map_or(option, |(_, _, long, _)| long);
    let letters = others.filter(move |(.., name, _)| *name == long).map(|(.., letter)| *letter);
    [option, long].into_iter().chain(letters)
}
