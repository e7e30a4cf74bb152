//! A person's change to merged units: proposed on a branch, and reviewed like everything else.

use std::collections::HashSet;

use actors::BrainView;
use actors::review::EDIT_BRANCH_PREFIX;
use brain::{Brain, Config, Files as _, StatePaths};
use git::{CommitId, NewFile, Repository};
use jiff::Timestamp;
use knowledge::{Unit, UnitId, text};
use serde_json::json;

use crate::error::{CliError, USAGE};
use crate::output;
use crate::proposal::{Proposal, propose};
use crate::unit_files::{UnitFiles, is_path, read_units};

/// The units of a brain that can be changed.
pub(crate) struct MergedUnits {
    repository: Repository,
    base: CommitId,
    view: BrainView,
    files: UnitFiles,
}

/// A unit that is merged, and its file.
pub(crate) struct MergedUnit {
    pub(crate) path: String,
    pub(crate) unit: Unit,
    pub(crate) text: String,
}

/// What is done to a unit.
pub(crate) enum Change {
    /// Its file gets this text.
    Edit(String),
    Remove,
}

impl MergedUnits {
    pub(crate) fn open(brain: &Brain) -> Result<Self, CliError> {
        let default_branch = brain.manifest()?.default_branch;
        let repository = Repository::open(brain.root())?.with_default_branch(default_branch.as_deref());
        let base = repository.default_branch()?.tip;
        let view = BrainView::open(brain);
        let files = read_units(&view)?;
        Ok(Self { repository, base, view, files })
    }

    /// The unit that a person names by its id, the beginning of it or its path. What is not committed is no proposal's to
    /// change; of several files with the id, one has to be named.
    pub(crate) fn find(&self, id: &str) -> Result<MergedUnit, CliError> {
        let (path, unit) = self.files.find(id)?;
        let copies = self.files.copies.iter().filter(|(_, copy)| copy.id == unit.id && !is_path(&path, id));
        let copies: Vec<&str> = copies.map(|(path, _)| path.as_str()).collect();
        if !copies.is_empty() {
            let copies = copies.join(", ");
            return Err(CliError::new(format!("several files have the id {}: {path}, {copies}", unit.id))
                .code(USAGE)
                .hint("name one by its path"));
        }
        let text = self.view.read(&path)?;
        match self.repository.read_at(self.base, &path)? {
            Some(committed) if committed == text.as_bytes() => Ok(MergedUnit { path, unit, text }),
            Some(_) => Err(CliError::new(format!("{path} has changes that are not committed"))
                .hint("commit them first, or go on with the file in your own editor")),
            None if self.is_unpushed(&path)? => {
                Err(CliError::new(format!("{path} is not at the remote yet"))
                    .hint("run `git push` in the brain, then try again"))
            }
            None if self.is_on_local_branch(&path)? => {
                Err(CliError::new(format!("the remote has renamed or removed {path}, which you have edited"))
                    .hint("commit your edit, then `git pull --no-rebase` in the brain joins both"))
            }
            None => Err(CliError::new(format!("{path} is not committed yet"))
                .hint("it is a file of yours: edit or delete it yourself")),
        }
    }

    /// Whether the default branch here has got a file since it was the same as the remote's.
    fn is_unpushed(&self, path: &str) -> Result<bool, CliError> {
        let Some(local) = self.repository.default_branch()?.local else { return Ok(false) };
        let changes = self.repository.changes_since_fork(local, self.base)?;
        Ok(changes.files.iter().any(|file| file.path == path && file.base.is_none()))
    }

    /// Whether the default branch here has a file that it may not have at the remote.
    fn is_on_local_branch(&self, path: &str) -> Result<bool, CliError> {
        let local = self.repository.default_branch()?.local;
        Ok(local.map(|local| self.repository.read_at(local, path)).transpose()?.flatten().is_some())
    }

    /// The ids of the units that have a relation to one of these and, without these files, to none.
    pub(crate) fn related_to(&self, removed: &[MergedUnit]) -> Vec<&str> {
        let stays = |path: &str| removed.iter().all(|removed| removed.path != path);
        let others = self.files.units.iter().chain(&self.files.copies).filter(|(path, _)| stays(path));
        let kept: HashSet<&UnitId> = others.map(|(_, unit)| &unit.id).collect();
        let gone = removed.iter().map(|removed| &removed.unit.id).filter(|id| !kept.contains(id));
        let gone: HashSet<&UnitId> = gone.collect();
        let others = self.files.units.iter().map(|(_, unit)| unit).filter(|unit| !gone.contains(&unit.id));
        others
            .filter(|unit| unit.related.iter().any(|related| gone.contains(&related.id)))
            .map(|unit| unit.id.as_str())
            .collect()
    }

    /// Proposes changes on one branch, and prints where they wait for review.
    pub(crate) fn propose(
        &self,
        brain: &Brain,
        config: &Config,
        paths: &StatePaths,
        changes: &[(MergedUnit, Change)],
        as_json: bool,
    ) -> Result<(), CliError> {
        let now = Timestamp::now();
        let mut digest = blake3::Hasher::new();
        let (mut files, mut removes) = (Vec::new(), Vec::new());
        for (MergedUnit { path, .. }, change) in changes {
            digest.update(path.as_bytes());
            match change {
                Change::Edit(text) => {
                    digest.update(text.as_bytes());
                    files.push(NewFile { path: path.clone(), content: text.clone().into(), edits: true });
                }
                Change::Remove => removes.push(path.clone()),
            }
        }
        // The time makes a branch of its own for the same change after the first one was rejected.
        digest.update(&now.as_second().to_le_bytes());
        let digest = &digest.finalize().to_hex()[..8];
        let branch = format!("{EDIT_BRANCH_PREFIX}{}-{digest}", now.strftime("%Y%m%d"));
        let proposal = Proposal {
            origin: queue::ORIGIN_EDIT,
            branch: branch.clone(),
            base: self.base,
            files,
            removes,
            message: commit_message(changes),
        };
        let proposed = propose(brain, config, paths, &self.repository, proposal, now)?;
        if as_json {
            let units = changes.iter().map(|(unit, change)| {
                let action = match change {
                    Change::Edit(_) => "edit",
                    Change::Remove => "remove",
                };
                json!({ "id": unit.unit.id, "title": unit.unit.title, "path": unit.path, "action": action })
            });
            return output::print_json(&json!({
                "changed": true,
                "branch": branch,
                "commit": proposed.commit,
                "units": units.collect::<Vec<_>>(),
            }));
        }
        let mut printed = String::new();
        for (unit, change) in changes {
            let what = match change {
                Change::Edit(_) => "edited",
                Change::Remove => "to remove",
            };
            printed.push_str(&format!("{what}: {}\n", output::safe_title(&unit.unit.title)));
        }
        printed.push_str(&format!("on branch {branch}; your main branch has it once you merge it\n"));
        if proposed.is_delivered {
            printed.push_str("the branch is being pushed; `nugget status` shows what becomes of it\n");
        }
        printed.push_str("review: nugget review\n");
        output::print(&printed)
    }
}

fn commit_message(changes: &[(MergedUnit, Change)]) -> String {
    let verb = match changes.first() {
        Some((_, Change::Edit(_))) => "Edit",
        _ => "Remove",
    };
    let safe = |title: &str, chars_max| {
        text::escape_forge_syntax(&text::one_line(&output::safe_title(title), chars_max))
    };
    let subject = match changes {
        [(unit, _)] => safe(&unit.unit.title, 60),
        changes => format!("{} units", changes.len()),
    };
    let mut message = format!("{verb} {subject}\n\nBy hand, with `nugget`.\n\n");
    for (MergedUnit { path, unit, .. }, _) in changes {
        message.push_str(&format!("- {path}\n  {} ({})\n", safe(&unit.title, 100), unit.kind));
    }
    message
}
