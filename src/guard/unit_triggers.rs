//! The triggers of a unit, from its front matter and its text.

use std::collections::BTreeSet;

use knowledge::unit::{is_retired, is_unreviewed};
use knowledge::{Enforce, Unit, UnitType};

use crate::body;
use crate::trigger::Trigger;

/// Triggers of one unit.
const TRIGGERS_MAX: usize = 64;

/// The triggers of a unit: where its front matter says that it bears, and for rules, caveats and bugs also what its
/// text names. A retired unit has none.
///
/// A place that is only a path or a symbol counts for a constraint, caveat, bug or belief, and for a unit that is
/// enforced; a command or an error counts for every type. Where every place of the unit names a repository, what its text
/// names is limited to these, too.
pub fn triggers_of(unit: &Unit) -> Vec<Trigger> {
    // A note that nobody has reviewed says nothing at an action.
    let is_silent = |status: &str| is_retired(status) || is_unreviewed(status);
    if unit.status.as_deref().is_some_and(is_silent) {
        return Vec::new();
    }
    let is_rule =
        matches!(unit.kind, UnitType::Constraint | UnitType::Caveat | UnitType::Bug | UnitType::Belief);
    let is_held = unit.enforce == Some(Enforce::Hold);
    let from_scope = unit.scope.iter().filter_map(Trigger::from_scope);
    let mut triggers: Vec<Trigger> = from_scope
        .filter(|trigger| is_rule || is_held || trigger.command.is_some() || trigger.error.is_some())
        .collect();
    // A person who has named the commands knows better than the text which they are, and likewise with errors.
    if is_rule {
        let has_command = triggers.iter().any(|trigger| trigger.command.is_some());
        let has_error = triggers.iter().any(|trigger| trigger.error.is_some());
        let has_path = triggers.iter().any(|trigger| trigger.path.is_some());
        let from_body = body::triggers(&unit.body).into_iter().filter(|trigger| {
            !(has_command && trigger.command.is_some()
                || has_error && trigger.error.is_some()
                || has_path && trigger.path.is_some())
        });
        let repositories: Option<BTreeSet<_>> =
            unit.scope.iter().map(|scope| scope.repository.clone()).collect();
        match repositories.filter(|repositories| !repositories.is_empty()) {
            None => triggers.extend(from_body),
            Some(repositories) => triggers.extend(from_body.flat_map(|trigger| {
                let limit = |repository: &String| trigger.clone().limited_to(repository.clone());
                repositories.iter().map(limit).collect::<Vec<_>>()
            })),
        }
    }
    let mut unique: Vec<Trigger> = Vec::new();
    for trigger in triggers {
        if !unique.contains(&trigger) && unique.len() < TRIGGERS_MAX {
            unique.push(trigger);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use knowledge::Document;
    use serde_json::json;

    use super::*;
    use crate::action::Action;
    use crate::trigger::Evidence;

    fn unit(front: &str, body: &str) -> Unit {
        Document::parse(format!("---\n{front}\n---\n\n# A unit\n\n{body}\n")).unwrap().unit("u.md").unwrap()
    }

    fn action(tool: &str, input: serde_json::Value, error: Option<&str>) -> Action {
        let mut action = Action::new(tool, &input, "/p", error).unwrap();
        action.locate(|path| path.strip_prefix("/p/").map(str::to_owned));
        action
    }

    /// How a unit matches, looked up as the index does it.
    fn evidence(unit: &Unit, action: &Action) -> Option<Evidence> {
        let keys = action.keys();
        let triggers = triggers_of(unit).into_iter();
        // As it is stored.
        let triggers = triggers.map(|trigger| {
            let text = serde_json::to_string(&trigger).unwrap();
            assert_eq!(serde_json::from_str::<Trigger>(&text).unwrap(), trigger);
            trigger
        });
        triggers
            .filter(|trigger| trigger.keys().iter().any(|key| keys.contains(key)))
            .filter_map(|trigger| trigger.matches(action))
            .max()
    }

    fn bash(command: &str) -> Action {
        action("Bash", json!({"command": command}), None)
    }

    fn edit(path: &str, text: &str) -> Action {
        action("Edit", json!({"file_path": path, "old_string": "", "new_string": text}), None)
    }

    #[test]
    fn a_scope_bears_on_its_file_and_what_is_below_its_folder() {
        let file = unit("type: constraint\nscope: [src/queue/store.rs]", "");
        let folder = unit("type: caveat\nscope: [{path: src/queue/}]", "");
        for unit in [&file, &folder] {
            assert_eq!(evidence(unit, &edit("/p/src/queue/store.rs", "")), Some(Evidence::Path));
            assert_eq!(evidence(unit, &bash("cd src && sed -i s/a/b/ queue/store.rs")), Some(Evidence::Path));
            assert_eq!(evidence(unit, &bash("cat src/queue/store.rs")), None);
            assert_eq!(evidence(unit, &edit("/p/src/queue.rs", "")), None);
            assert_eq!(evidence(unit, &edit("/p/src/queue-old/queue/store.rs", "")), None);
            assert_eq!(evidence(unit, &edit("/q/src/queue/store.rs", "")), None);
        }
        assert_eq!(evidence(&folder, &edit("/p/src/queue/a/b.rs", "")), Some(Evidence::Path));
        assert_eq!(evidence(&file, &edit("/p/src/queue/a/b.rs", "")), None);
    }

    #[test]
    fn a_folder_that_is_removed_or_moved_counts_for_what_lies_below_it() {
        let file = unit("type: constraint\nscope: [src/auth/keys.rs]", "");
        let folder = unit("type: decision\nscope: [{path: src/auth/}]\nenforce: hold", "");
        let text = unit("type: caveat", "Nobody edits `auth/keys.rs` by hand.");
        for command in [
            "rm -rf src/auth",
            "sudo rm -d --recursive ./src/auth/",
            "git rm -rq src/auth",
            "git -C src rm -r auth",
            "mv src/auth old",
            "git mv -k README.md src/auth old",
            "mv -t old README.md src/auth",
            "mv --target-directory=old src/auth",
            "rm -rf src/auth/*",
            "find src/auth -type f -delete",
            "rsync -a --delete /old/ src/auth/",
            "rm src/auth/*.rs",
            "sed -i s/a/b/ src/auth/k*.r?",
            "cd src/auth && mv *.rs /tmp",
            "find src/auth -name '*.rs' -exec sed -i s/a/b/ {} +",
            "git checkout HEAD~1 src/auth",
            "git restore --source v1 src/auth",
        ] {
            for unit in [&file, &folder, &text] {
                assert_eq!(evidence(unit, &bash(command)), Some(Evidence::Path), "{command}");
            }
        }
        for command in [
            "rm -rf src",
            "cd src && rm -r *",
            "mv ../p/src /tmp",
            "rm -rf *",
            "rm -r /p",
            "mv /p /q",
            "rm -r /",
            "rm -rf src/a*",
            "rm -r s*/auth",
            "find . -type f -exec rm -f {} \\;",
            "find -delete",
            "git checkout HEAD~1 .",
        ] {
            for unit in [&file, &folder] {
                assert_eq!(evidence(unit, &bash(command)), Some(Evidence::Path), "{command}");
            }
            assert_eq!(evidence(&text, &bash(command)), None, "{command}");
        }
        for command in [
            "rm src",
            "rmdir src",
            "rm -f src/*",
            "rm -rf src/*.orig src/b* *.log",
            "mv a src",
            "mv -t src a",
            "cp -r src old",
            "git restore src",
            "find src -name '*.rs'",
            "rsync -a /old/ src",
            "rm -rf sr src2 src/auth2 keys /q",
            "echo rm -rf src",
        ] {
            for unit in [&file, &folder, &text] {
                assert_eq!(evidence(unit, &bash(command)), None, "{command}");
            }
        }
    }

    #[test]
    fn a_file_that_is_copied_or_moved_into_its_folder_counts() {
        let file = unit("type: constraint\nscope: [src/auth/keys.rs]", "");
        for command in [
            "cp /tmp/keys.rs src/auth/",
            "mv /tmp/keys.rs src/auth/",
            "cp /tmp/keys.rs /tmp/other.rs src/auth",
            "cp -t src/auth /tmp/keys.rs",
            "cp --target-directory=src/auth /tmp/keys.rs",
            "cd src/auth && cp /tmp/keys.rs .",
            "install -m 600 /tmp/keys.rs src/auth/",
            "rsync -a /tmp/keys.rs src/auth/",
            "curl -fsSLo src/auth/keys.rs http://localhost/keys",
            "wget -O src/auth/keys.rs http://localhost/keys",
            "dd if=/tmp/keys of=src/auth/keys.rs",
        ] {
            assert_eq!(evidence(&file, &bash(command)), Some(Evidence::Path), "{command}");
        }
        for command in [
            "cp src/auth/keys.rs /tmp/",
            "cp /tmp/other.rs src/auth/",
            "rsync -a /tmp/keys.rs/ src/auth/",
            "wget -O - http://localhost/src/auth/keys.rs",
            "rm src/auth/*.md src/*/keys.md src/k*",
            "find src/auth -exec cat {} +",
            "git checkout main; git checkout -b src/auth/keys.rs",
        ] {
            assert_eq!(evidence(&file, &bash(command)), None, "{command}");
        }
    }

    #[test]
    fn the_keys_of_a_long_path_are_bounded() {
        let removal = bash(&format!("rm -r {}", "a/".repeat(30_000)));
        assert_eq!(removal.files().len(), 1);
        let bytes: usize = removal.keys().iter().map(String::len).sum();
        assert!(bytes < 400_000, "{bytes}");
    }

    #[test]
    fn every_part_of_a_scope_must_match() {
        let unit =
            unit("type: bug\nscope: [{path: src, symbol: 'Queue::open', repository: github.com/a/b}]", "");
        assert_eq!(
            evidence(&unit, &edit("/p/src/a.rs", "let q = Queue::open(path)")),
            Some(Evidence::Symbol)
        );
        assert_eq!(evidence(&unit, &edit("/p/src/a.rs", "Queue::close(path); File::open(path)")), None);
        assert_eq!(evidence(&unit, &edit("/p/tests/a.rs", "Queue::open")), None);
        let method = "impl Queue { pub fn open() {} }";
        assert_eq!(evidence(&unit, &edit("/p/src/a.rs", method)), Some(Evidence::Symbol));
        assert_eq!(evidence(&unit, &edit("/p/src/a.rs", "fn close() { open() }")), None);
        assert_eq!(evidence(&unit, &edit("/p/tests/a.rs", method)), None);
        assert_eq!(triggers_of(&unit)[0].repository(), Some("github.com/a/b"));
    }

    #[test]
    fn what_the_text_names_is_limited_to_the_repositories_that_every_place_names() {
        let body = "Never run `terraform apply -auto-approve`; see `infra/main.tf`.";
        let repositories = |scope: &str| {
            let unit = unit(&format!("type: caveat\nscope: [{scope}]"), body);
            let of = |is_it: fn(&Trigger) -> bool| -> Vec<Option<String>> {
                let found = triggers_of(&unit).into_iter().filter(is_it);
                found.map(|trigger| trigger.repository().map(str::to_owned)).collect()
            };
            let (commands, paths) = (of(|found| found.command.is_some()), of(|found| found.path.is_some()));
            assert_eq!(commands, paths, "{scope}");
            commands
        };
        let (a, b) = (Some("github.com/a/a".to_owned()), Some("github.com/b/b".to_owned()));
        for one in ["{repository: github.com/a/a}", "{symbol: X, repository: github.com/a/a}"] {
            assert_eq!(repositories(one), vec![a.clone()], "{one}");
        }
        assert_eq!(
            repositories(
                "{repository: github.com/b/b}, {error: no such module, repository: github.com/a/a}, \
                 {symbol: X, repository: github.com/b/b}"
            ),
            [a, b]
        );
        assert_eq!(repositories("{repository: github.com/a/a}, {symbol: X}"), [None]);
        assert_eq!(repositories(""), [None]);
    }

    #[test]
    fn a_command_and_an_error_count_for_every_type_and_a_path_only_for_rules() {
        let of = |kind: &str, scope: &str| unit(&format!("type: {kind}\nscope: [{scope}]"), "");
        let publish = bash("cargo publish");
        let failed =
            action("Bash", json!({"command": "make"}), Some("make: *** No rule to make target 'x'. Stop."));
        for kind in ["decision", "pattern", "bug", "mine"] {
            assert_eq!(evidence(&of(kind, "{command: cargo publish}"), &publish), Some(Evidence::Command));
            assert_eq!(
                evidence(&of(kind, "{error: No rule to make target}"), &failed),
                Some(Evidence::Error)
            );
        }
        assert_eq!(evidence(&of("decision", "src"), &edit("/p/src/a.rs", "")), None);
        assert_eq!(evidence(&of("belief", "src"), &edit("/p/src/a.rs", "")), Some(Evidence::Path));
        let held = unit("type: decision\nscope: [src]\nenforce: hold", "");
        assert_eq!(evidence(&held, &edit("/p/src/a.rs", "")), Some(Evidence::Path));
    }

    #[test]
    fn an_error_that_has_not_happened_is_no_match() {
        let unit = unit("type: bug\nscope: [{command: make, error: 'No rule to make target'}]", "");
        assert_eq!(evidence(&unit, &bash("make x")), None);
    }

    #[test]
    fn a_retired_unit_and_a_scope_of_everything_have_no_trigger() {
        assert_eq!(triggers_of(&unit("type: bug\nstatus: superseded\nscope: [{command: make}]", "")), []);
        assert_eq!(triggers_of(&unit("type: bug\nscope: [{path: ., repository: x}]", "")), []);
    }
}
