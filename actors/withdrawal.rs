//! Takes off a branch what a person has rejected of it before the remote had the branch, so that it never leaves the machine.

use std::collections::HashSet;

use git::{BranchFile, Identity, Lock, NewFile, Outcome, Proposal, Repository};
use queue::{Branch, Capture, Ledger, PullState, Stage};

use crate::failure::Failure;
use crate::git::LOCK_PATIENCE;
use crate::notes::rejected_paths;
use crate::pipeline;
use crate::proposal::{ProposalInput, parse_commit};
use crate::review::without_links;
use crate::stage_actor::Step;

/// What the message of a commit says that is made again.
const LEFT_OUT: &str = "What a person has rejected is left out.";

/// Makes the commit of a capture's branch again without what a person has rejected of it, and without an earlier commit
/// that has it. Returns the step to its delivery, or to its end if nothing is left; `None` if nothing of what the commit
/// has is rejected.
pub(crate) fn withdraw_rejected(
    repository: &Repository,
    queue: &dyn Ledger,
    capture: &Capture,
    branch: &Branch,
    input: Option<ProposalInput>,
) -> Result<Option<Step>, Failure> {
    let name = &branch.name;
    let rejected = rejected_paths(queue, name)?;
    if rejected.is_empty() {
        return Ok(None);
    }
    let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
    let (recorded, tip) = (parse_commit(&branch.commit)?, repository.tip(name)?);
    let (changes, mut removes, base, expected) = match (&input, tip) {
        // A person has deleted the branch.
        (_, None) if repository.has(recorded)? => return Ok(None),
        (Some(ProposalInput::Planned { plan, .. }), _) => {
            if !plan.files.iter().any(|file| rejected.contains(&file.path)) {
                return Ok(None);
            }
            (plan.changes(repository)?, Vec::new(), parse_commit(&plan.base)?, recorded)
        }
        (_, Some(tip)) => {
            let base = match repository.branch_base(name)? {
                Some(base) => base,
                None => repository.default_branch()?.tip,
            };
            if !repository.paths_between(base, recorded, "")?.iter().any(|path| rejected.contains(path)) {
                return Ok(None);
            }
            let removals = repository.branch_removals(name)?.into_iter().map(|(path, _)| path);
            (repository.branch_changes(name)?, removals.collect::<Vec<_>>(), base, tip)
        }
        (_, None) => return Ok(None),
    };
    removes.retain(|path| !rejected.contains(path));
    let (dropped, kept): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|file| rejected.contains(&file.path));
    let mut files = Vec::new();
    for BranchFile { path, content, .. } in kept.into_iter().filter_map(|file| without_links(file, &dropped))
    {
        let edits = repository.read_at(base, &path)?.is_some();
        files.push(NewFile { path, content, edits });
    }
    let units = u32::try_from(files.len() + removes.len()).unwrap_or(u32::MAX);
    let (proposal, planned) = match input {
        Some(ProposalInput::Planned { mut found, mut plan }) => {
            plan.retain(&mut found, &files);
            plan.message = message_without(&plan.message, &rejected);
            (plan.proposal()?, Some((found, plan)))
        }
        _ => {
            // Of a branch that grows each commit has a message of its own, which may name what was rejected.
            let message = match capture.origin == queue::ORIGIN_NOTES {
                true => format!("{LEFT_OUT}\n"),
                false => message_without(&repository.message_of(expected)?, &rejected),
            };
            let (branch, base, author) = (name.clone(), Some(base), Identity::default());
            (Proposal { branch, base, files, removes, message, time: capture.added, author }, None)
        }
    };
    let made = match tip {
        Some(_) => repository.replace(&lock, &proposal, expected),
        None => repository.propose(&lock, &proposal),
    };
    // It waits while the branch is checked out, or has another commit of a person's.
    let made = made.map_err(|error| Failure::from(error).of_another())?;
    if made.outcome == Outcome::NothingNew {
        queue.set_pull_state(capture.id, Some(&branch.commit), PullState::Closed)?;
        return Ok(Some(Step::end_with_branch(branch.clone())));
    }
    Ok(Some(match planned {
        Some((found, plan)) => {
            let branch = plan.branch_at(made);
            let input = pipeline::encode(&ProposalInput::Planned { found, plan })?;
            Step::NextOnBranch(Stage::Delivery, input, branch)
        }
        None => {
            let branch = Branch { name: name.clone(), commit: made.commit.to_string(), units };
            Step::NextOnBranch(Stage::Delivery, Vec::new(), branch)
        }
    }))
}

/// A commit's message without what it says of some files.
fn message_without(message: &str, paths: &HashSet<String>) -> String {
    let parts = message.trim_end().split("\n\n").filter_map(|part| {
        let mut is_left_out = false;
        let is_kept = |line: &&str| {
            match line.strip_prefix("- ") {
                Some(path) => is_left_out = paths.contains(path),
                None => is_left_out &= line.starts_with("  "),
            }
            !is_left_out
        };
        let has_entry = |lines: &[&str]| lines.iter().any(|line| line.starts_with("- "));
        let lines: Vec<&str> = part.lines().collect();
        let kept: Vec<&str> = lines.iter().copied().filter(is_kept).collect();
        (part != LEFT_OUT && has_entry(&lines) == has_entry(&kept)).then(|| kept.join("\n"))
    });
    let parts: Vec<String> = parts.chain([LEFT_OUT.to_owned()]).collect();
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_nothing_of_what_was_rejected() {
        let message = "Knowledge from session\n\n3 units of knowledge.\n\nAdded:\n- a.md\n  A (bug)\n- b.md\n  B (bug)\n\n\
            Completed:\n- c.md\n  C (bug)\n  D (bug)\n\nLeft out:\n- x: why\n";
        let without = |paths: &[&str], message: &str| {
            message_without(message, &paths.iter().map(|path| (*path).to_owned()).collect())
        };
        let first = without(&["b.md"], message);
        assert_eq!(first.replace("- b.md\n  B (bug)\n", ""), first);
        assert!(first.contains("- a.md\n  A (bug)\n\nCompleted:\n- c.md\n  C (bug)\n"), "{first}");
        let all = without(&["a.md", "b.md", "c.md"], &first);
        let expected = "Knowledge from session\n\n3 units of knowledge.\n\nLeft out:\n- x: why\n\n\
            What a person has rejected is left out.\n";
        assert_eq!(all, expected);
    }
}
