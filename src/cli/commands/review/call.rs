//! One call of `nugget review`: the inbox, and which of its items a person means.

use std::collections::BTreeSet;

use actors::review::{Choice, Inbox, Item, Reviewed};
use jiff::{Timestamp, Zoned};
use queue::Queue;

use crate::editor;
use crate::error::{CliError, MISSING, USAGE};
use crate::lookup::{listed, nearest};

/// The name of the report with the list that was printed last, to which numbers refer.
const LIST_REPORT: &str = "review-list";
/// The local hour at which what was put off waits again.
const MORNING_HOUR: i8 = 6;

/// Until when `later` puts an item off: the morning of the next day.
pub(super) fn tomorrow_morning(now: &Zoned) -> Result<Timestamp, jiff::Error> {
    let morning = now.date().tomorrow()?.at(MORNING_HOUR, 0, 0, 0);
    Ok(morning.to_zoned(now.time_zone().clone())?.timestamp())
}

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

    /// Merges an item with the text that a person gave it. A text that is not merged is kept in a file, which a note or
    /// the hint names.
    pub(super) fn merge_edited(
        &self,
        item: Item,
        edited: String,
        now: Timestamp,
    ) -> Result<Reviewed, CliError> {
        let choice = Choice { item, edited: Some(edited.clone()) };
        let mut reviewed = self.inbox.merge(vec![choice], now).map_err(|error| {
            editor::keep_text(&edited, ".md", error.into(), "`nugget review` shows whether it was merged")
        })?;
        if !reviewed.left.is_empty() {
            reviewed.notes.insert(editor::keep_in_file(&edited, ".md"));
        }
        Ok(reviewed)
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
        let number = name.parse::<usize>().ok();
        if let Some(found) = number.map(|number| self.find_number(number, items)).transpose()?.flatten() {
            return Ok(found);
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
        let missing = |what: String, hint: String| CliError::new(what).code(MISSING).hint(hint);
        if let Some(number) = number {
            return Err(missing(format!("the list has no number {number}"), waiting_hint(items)));
        }
        // Several branches may change one unit.
        let units: BTreeSet<&str> = items.iter().map(|item| item.unit_id()).collect();
        let near = nearest(units.into_iter(), name);
        let hint =
            if near.is_empty() { waiting_hint(items) } else { format!("did you mean {}?", listed(&near)) };
        Err(missing(format!("nothing that waits is named {name:?}"), hint))
    }

    /// The item with a number of the list that was printed last or, if none was, of the present one; `None` if there is no
    /// such number.
    fn find_number(&self, number: usize, items: &[Item]) -> Result<Option<Item>, CliError> {
        let Some(at) = number.checked_sub(1) else { return Ok(None) };
        let listed: Option<Vec<(String, String, String)>> =
            self.queue.last_report(LIST_REPORT)?.and_then(|(_, _, body)| serde_json::from_str(&body).ok());
        let Some(listed) = listed else {
            let present: Vec<Item> = items.iter().filter(|item| item.later.is_none()).cloned().collect();
            let found = present.get(at).cloned();
            if found.is_some() {
                // The next number is one of the same list.
                self.remember_list(&present)?;
            }
            return Ok(found);
        };
        let Some((branch, path, commit)) = listed.get(at) else { return Ok(None) };
        let found = items.iter().find(|item| (&item.branch, &item.path) == (branch, path));
        match found {
            Some(item) if item.commit.to_string() == *commit => Ok(Some(item.clone())),
            Some(item) => Err(CliError::new(format!("number {number} has changed since it was listed"))
                .hint(format!("read it again: nugget review show {}", item.id))),
            None => Err(CliError::new(format!("number {number} of the last list is decided already"))
                .code(MISSING)
                .hint(waiting_hint(items))),
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

#[cfg(test)]
mod tests {
    use actors::review::pending_items;
    use brain::Brain;
    use git::{Identity, Lock, NewFile, Proposal, Repository};

    use super::*;

    #[test]
    fn what_is_put_off_waits_again_on_the_next_morning() {
        for (now, until) in [
            ("2026-11-29T01:00+01:00[Europe/Berlin]", "2026-11-30T06:00+01:00[Europe/Berlin]"),
            ("2026-11-29T23:59+01:00[Europe/Berlin]", "2026-11-30T06:00+01:00[Europe/Berlin]"),
            ("2026-03-28T12:00+01:00[Europe/Berlin]", "2026-03-29T06:00+02:00[Europe/Berlin]"),
        ] {
            let until: Zoned = until.parse().unwrap();
            assert_eq!(tomorrow_morning(&now.parse().unwrap()).unwrap(), until.timestamp(), "{now}");
        }
    }

    #[test]
    fn an_edited_text_that_is_not_merged_is_kept_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("brain");
        Brain::init(&root).unwrap();
        let repository = Repository::init(&root).unwrap().into_repository();
        let now: Timestamp = "2026-11-16T17:04:05Z".parse().unwrap();
        let file = |path: &str, text: &str| NewFile {
            path: path.to_owned(),
            content: text.as_bytes().to_vec(),
            edits: false,
        };
        let author = Identity::default();
        repository
            .create_initial_commit(&[file("brain.yaml", "version: 1\n")], "Begin", now, &author)
            .unwrap();
        let lock_path = repository.lock_path().unwrap();
        let lock = Lock::acquire(&lock_path).unwrap();
        let proposal = Proposal {
            branch: "nugget/session-20261116-170405-ad5139ef".into(),
            base: None,
            files: vec![file("domains/coding/bugs/pools.md", "---\ntype: bug\n---\n\n# Pools\n")],
            removes: vec![],
            message: "Add".into(),
            time: now,
            author,
        };
        repository.propose(&lock, &proposal).unwrap();
        drop(lock);
        let queue = Queue::open(&folder.path().join("queue.db")).unwrap();
        let item = pending_items(&repository, Some(&queue), now).unwrap().remove(0);
        let inbox = Inbox::open(&root, None, queue.clone(), actors::DeliverySettings::default()).unwrap();
        let review = Review { inbox, queue, now };
        let edited = "---\ntype: bug\n---\n\n# Pools\n\nBound them.\n";
        let kept = |told: &str| {
            let path = told.split("your text is kept in ").nth(1).unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            text
        };

        review.inbox.reject(vec![item.clone()], None, now).unwrap();
        let reviewed = review.merge_edited(item.clone(), edited.to_owned(), now).unwrap();
        assert_eq!((reviewed.decided.len(), reviewed.left.len()), (0, 1));
        assert_eq!(kept(reviewed.notes.first().unwrap()), edited);

        std::fs::remove_file(&lock_path).unwrap();
        std::fs::create_dir(&lock_path).unwrap();
        let error = review.merge_edited(item, edited.to_owned(), now).unwrap_err();
        assert_eq!(kept(&error.hint.unwrap()), edited);
    }
}
