//! One call of `nugget review`: the inbox, and which of its items a person means.

use actors::review::{Inbox, Item};
use jiff::{SignedDuration, Timestamp};
use queue::Queue;

use crate::error::{CliError, MISSING, USAGE};
use crate::lookup::{listed, nearest};

/// The name of the report with the list that was printed last, to which numbers refer.
const LIST_REPORT: &str = "review-list";
/// How long `later` puts an item off.
pub(super) const LATER: SignedDuration = SignedDuration::from_hours(18);

/// A reason as it is kept: on one line, without secrets.
pub(super) fn one_reason(because: &str) -> String {
    knowledge::text::one_line(&transcript::redact::redact(because), 500)
}

/// One call of the command.
pub(super) struct Review {
    pub(super) inbox: Inbox,
    pub(super) queue: Queue,
    pub(super) now: Timestamp,
}

impl Review {
    /// What waits and was not put off; with `all` also the latter.
    pub(super) fn items(&self, all: bool) -> Result<Vec<Item>, CliError> {
        let mut items = self.inbox.items(self.now)?;
        items.retain(|item| all || item.later.is_none());
        Ok(items)
    }

    /// Keeps what was listed, so that a number stands for the same unit until the next list.
    pub(super) fn remember_list(&self, items: &[Item]) -> Result<(), CliError> {
        let listed: Vec<(&str, &str, String)> = items
            .iter()
            .map(|item| (item.branch.as_str(), item.path.as_str(), item.commit.to_string()))
            .collect();
        Ok(self.queue.report(LIST_REPORT, &serde_json::to_string(&listed)?, self.now)?)
    }

    /// The items that a person names, in that order; with `all` everything that was not put off.
    pub(super) fn select(&self, names: &[String], all: bool) -> Result<Vec<Item>, CliError> {
        if all {
            return self.items(false);
        }
        let items = self.items(true)?;
        let mut selected: Vec<Item> = Vec::new();
        for name in names {
            let item = self.find(name, &items)?;
            if selected.iter().all(|other| other.id != item.id) {
                selected.push(item);
            }
        }
        Ok(selected)
    }

    /// The item that a person means.
    pub(super) fn find(&self, name: &str, items: &[Item]) -> Result<Item, CliError> {
        if let Ok(number) = name.parse::<usize>() {
            return self.find_number(number, items);
        }
        let matches =
            |is_match: &dyn Fn(&Item) -> bool| items.iter().filter(|item| is_match(item)).collect::<Vec<_>>();
        let long = |item: &Item| {
            format!("{}/{}", item.branch.trim_start_matches(git::BRANCH_PREFIX), item.unit_id())
        };
        let steps: [&dyn Fn(&Item) -> bool; 3] =
            [&|item| item.id == name || long(item) == name, &|item| item.unit_id() == name, &|item| {
                !name.is_empty() && (item.id.starts_with(name) || item.unit_id().starts_with(name))
            }];
        for step in steps {
            match matches(step).as_slice() {
                [] => {}
                [item] => return Ok((*item).clone()),
                several => {
                    let ids: Vec<&str> = several.iter().take(4).map(|item| item.id.as_str()).collect();
                    return Err(CliError::new(format!("{name:?} names {} units", several.len()))
                        .code(USAGE)
                        .hint(format!("give more of one of these ids: {}", ids.join(", "))));
                }
            }
        }
        let near = nearest(items.iter().map(|item| item.unit_id()), name);
        let hint =
            if near.is_empty() { waiting_hint(items) } else { format!("did you mean {}?", listed(&near)) };
        Err(CliError::new(format!("nothing that waits is named {name:?}")).code(MISSING).hint(hint))
    }

    /// The item with a number of the list that was printed last or, if none was, of the present one.
    fn find_number(&self, number: usize, items: &[Item]) -> Result<Item, CliError> {
        let missing = |what: String| CliError::new(what).code(MISSING).hint(waiting_hint(items));
        let at = number.checked_sub(1);
        let listed: Option<Vec<(String, String, String)>> =
            self.queue.last_report(LIST_REPORT)?.and_then(|(_, _, body)| serde_json::from_str(&body).ok());
        let Some(listed) = listed else {
            let mut current = items.iter().filter(|item| item.later.is_none());
            let found = at.and_then(|at| current.nth(at));
            return found.cloned().ok_or_else(|| missing(format!("there is no number {number}")));
        };
        let Some((branch, path, commit)) = at.and_then(|at| listed.get(at)) else {
            return Err(missing(format!("the last list has no number {number}")));
        };
        let found = items.iter().find(|item| (&item.branch, &item.path) == (branch, path));
        match found {
            Some(item) if item.commit.to_string() == *commit => Ok(item.clone()),
            Some(item) => Err(CliError::new(format!("number {number} has changed since it was listed"))
                .hint(format!("read it again: nugget review show {}", item.id))),
            None => Err(missing(format!("number {number} of the last list is decided already"))),
        }
    }
}

/// What to name instead.
fn waiting_hint(items: &[Item]) -> String {
    let listed: Vec<String> =
        items.iter().filter(|item| item.later.is_none()).take(5).map(|item| item.id.clone()).collect();
    match listed.as_slice() {
        [] => "nothing waits for review".to_owned(),
        listed => format!("`nugget review --list` shows what waits; the first: {}", listed.join(", ")),
    }
}
