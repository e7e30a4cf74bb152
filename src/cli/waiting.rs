//! What waits for review, for messages and completions about it.

use actors::review::{Item, pending_items};
use brain::Brain;
use jiff::Timestamp;
use queue::Queue;

use crate::error::CliError;

/// What waits for review and was not put off, for a message about it. Needs no settings and takes no lock.
pub(crate) fn items_to_review(brain: &Brain, queue: Option<&Queue>) -> Result<Vec<Item>, CliError> {
    let mut items = undecided_items(brain, queue)?;
    items.retain(|item| item.later.is_none());
    Ok(items)
}

/// The same with what was put off.
pub(crate) fn undecided_items(brain: &Brain, queue: Option<&Queue>) -> Result<Vec<Item>, CliError> {
    let branch = brain.manifest()?.default_branch;
    let repository = git::Repository::open(brain.root())?.with_default_branch(branch.as_deref());
    Ok(pending_items(&repository, queue, Timestamp::now())?)
}
