//! Printing: to people and to programs.

use std::io::{self, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use serde::Serialize;

use crate::fault::Fault;

/// Writes to stdout. A closed pipe ends the output and is no failure: `nugget list | head`.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// One line to stderr, for what is worth knowing and is not the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// A text for a terminal: without the control characters that would move its cursor.
pub(crate) fn safe(text: &str) -> String {
    knowledge::text::visible(text)
}

/// A table: columns as wide as they need to be, two spaces between them, the last one cut to what
/// is left of the terminal's width.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
        })
        .collect();
    let before_last: usize = widths.iter().take(columns.saturating_sub(1)).map(|width| width + 2).sum();
    let room = terminal_width().saturating_sub(before_last).max(20);
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == columns {
                text.push_str(&knowledge::text::one_line(cell, room));
            } else {
                text.push_str(cell);
                text.push_str(&" ".repeat(widths[column] - width(cell) + 2));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn terminal_width() -> usize {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()) {
        return columns;
    }
    rustix::termios::tcgetwinsize(io::stdout()).map_or(100, |size| usize::from(size.ws_col).max(40))
}

/// Rows of the terminal.
pub(crate) fn terminal_height() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row).max(2))
}

/// A progress bar on stderr, absent where stderr is no terminal.
pub(crate) fn progress_bar(message: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len}") {
        bar.set_style(style);
    }
    bar.set_message(message.to_owned());
    bar
}

/// A line on stderr that says what is being done, absent where stderr is no terminal.
pub(crate) fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

/// How long ago, in one unit: `12 s`, `5 min`, `3 h`, `9 d`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs().max(0) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_one_unit() {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let ago = |seconds: i64| age(now - jiff::SignedDuration::from_secs(seconds), now);
        assert_eq!(
            [ago(5), ago(130), ago(7200), ago(864_000), ago(-5)],
            ["5 s", "2 min", "2 h", "10 d", "0 s"]
        );
    }

    #[test]
    fn a_table_has_aligned_columns_and_no_trailing_spaces() {
        let rows =
            [vec!["a".to_owned(), "bb".into(), "c".into()], vec!["aaa".into(), "b".into(), String::new()]];
        assert_eq!(table(&rows), "a    bb  c\naaa  b\n");
    }
}
