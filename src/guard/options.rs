//! Options whose value is a word of its own, of programs that run a command or have subcommands: the word behind such an
//! option is neither.

/// Whether the word behind an option is its value. Of a group of letters only the last one's can be: in `-n1` it stands
/// in the word itself.
pub(crate) fn takes_next_word(program: &str, option: &str) -> bool {
    let (letters, words): (&str, &[&str]) = match program {
        "sudo" | "doas" => (
            "aCcDghpRrTtUu",
            &[
                "--chdir",
                "--chroot",
                "--close-from",
                "--command-timeout",
                "--group",
                "--host",
                "--other-user",
                "--prompt",
                "--role",
                "--type",
                "--user",
            ],
        ),
        "env" => ("aCPSu", &["--argv0", "--chdir", "--split-string", "--unset"]),
        "time" => ("fo", &["--format", "--output"]),
        "nice" => ("n", &["--adjustment"]),
        "ionice" => ("cn", &["--class", "--classdata"]),
        "timeout" | "gtimeout" => ("ks", &["--kill-after", "--signal"]),
        "xargs" => {
            ("adEIJLnPRSs", &["--arg-file", "--delimiter", "--max-args", "--max-chars", "--max-procs"])
        }
        "stdbuf" => ("eio", &["--error", "--input", "--output"]),
        "exec" => ("a", &[]),
        "caffeinate" => ("tw", &[]),
        "git" => ("Cc", &["--config-env", "--git-dir", "--namespace", "--work-tree"]),
        "npm" | "pnpm" | "yarn" | "bun" => {
            ("CFw", &["--cwd", "--dir", "--filter", "--prefix", "--workspace"])
        }
        "npx" | "bunx" => ("cp", &["--call", "--package"]),
        "uv" => ("p", &["--directory", "--extra", "--group", "--project", "--python", "--with"]),
        "aws" => ("", &["--endpoint-url", "--output", "--profile", "--region"]),
        "flock" => ("Ew", &["--conflict-exit-code", "--timeout", "--wait"]),
        "watch" => ("n", &["--interval"]),
        "docker" | "podman" => ("Hfp", &["--context", "--file", "--host"]),
        "kubectl" | "helm" => ("n", &["--context", "--kubeconfig", "--namespace"]),
        "gh" | "glab" => ("R", &["--repo"]),
        "cargo" => ("CZ", &["--color", "--config", "--manifest-path"]),
        "go" | "make" => ("Cf", &["--directory", "--file"]),
        _ => return false,
    };
    match option.strip_prefix('-') {
        Some(group) if !group.starts_with('-') => {
            group.find(|letter| letters.contains(letter)).is_some_and(|at| at + 1 == group.len())
        }
        _ => words.contains(&option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_letter_of_a_group_takes_the_next_word() {
        for (program, option) in
            [("sudo", "-u"), ("sudo", "-Eu"), ("xargs", "-0I"), ("git", "-C"), ("npm", "--prefix")]
        {
            assert!(takes_next_word(program, option), "{program} {option}");
        }
        for (program, option) in [
            ("sudo", "-E"),
            ("sudo", "--user=me"),
            ("xargs", "-n1"),
            ("env", "-"),
            ("ls", "-C"),
            ("git", "--"),
        ] {
            assert!(!takes_next_word(program, option), "{program} {option}");
        }
    }
}
