//! How long the captures are gathered that share a pull request, and what their branch and pull request are called.

use jiff::Timestamp;

const BATCH_BRANCH_PREFIX: &str = "nugget/batch-";
/// How many branches of one window are tried: each that was merged or closed is followed by another.
pub(crate) const BATCHES_MAX: usize = 100;

/// How long the captures are gathered that share a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchWindow {
    /// Those of one hour.
    Hour,
    /// Those of one day, in UTC.
    Day,
    /// Those of one week, from Monday on.
    Week,
}

impl BatchWindow {
    /// A value of the setting `delivery.batch`; `None` for `off`.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "hourly" => Some(Self::Hour),
            "daily" => Some(Self::Day),
            "weekly" => Some(Self::Week),
            _ => None,
        }
    }

    /// The branch for what was captured at a time.
    pub(crate) fn branch(self, captured: Timestamp, number: usize) -> String {
        let window = captured.strftime(match self {
            Self::Hour => "%Y%m%d-%H",
            Self::Day => "%Y%m%d",
            Self::Week => "%G-w%V",
        });
        format!("{BATCH_BRANCH_PREFIX}{window}{}", Self::suffix(number, "-", ""))
    }

    /// The title of its pull request.
    pub(crate) fn title(self, captured: Timestamp, number: usize) -> String {
        let window = captured.strftime(match self {
            Self::Hour => "%Y-%m-%d %H:00",
            Self::Day => "%Y-%m-%d",
            Self::Week => "week %G-W%V",
        });
        format!("Knowledge of {window}{}", Self::suffix(number, " (", ")"))
    }

    fn suffix(number: usize, before: &str, after: &str) -> String {
        if number > 1 { format!("{before}{number}{after}") } else { String::new() }
    }
}

/// Whether a branch is one that captures share.
pub(crate) fn is_batch(branch: &str) -> bool {
    branch.starts_with(BATCH_BRANCH_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_names_its_branch_and_its_pull_request() {
        let at: Timestamp = "2027-01-01T14:12:33Z".parse().unwrap();
        let names = |window: BatchWindow, number| (window.branch(at, number), window.title(at, number));
        let of = |branch: &str, title: &str| (branch.to_owned(), title.to_owned());
        assert_eq!(
            names(BatchWindow::Hour, 1),
            of("nugget/batch-20270101-14", "Knowledge of 2027-01-01 14:00")
        );
        assert_eq!(names(BatchWindow::Day, 2), of("nugget/batch-20270101-2", "Knowledge of 2027-01-01 (2)"));
        // The first of January belongs to the last week of the year before.
        assert_eq!(names(BatchWindow::Week, 1), of("nugget/batch-2026-w53", "Knowledge of week 2026-W53"));
        assert_eq!(["off", "daily"].map(BatchWindow::parse), [None, Some(BatchWindow::Day)]);
        assert!(is_batch("nugget/batch-20270101") && !is_batch("nugget/session-20270101-141233-9f8b"));
    }
}
