//! Prints results for people and for programs.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use ratatui::style::{Color, Modifier, Style};
use serde::Serialize;
use unicode_truncate::UnicodeTruncateStr as _;

use crate::error::CliError;

/// Writes to stdout. A closed pipe is not an error: `nugget list | head`.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a line to stderr, for information that is not the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Removes the control characters that would move a terminal's cursor.
pub(crate) fn safe(text: &str) -> String {
    knowledge::text::strip_hidden(text)
}

/// A line for a terminal: parts with styles.
pub(crate) type Line = ratatui::text::Line<'static>;
pub(crate) type Part = ratatui::text::Span<'static>;

/// Converts lines to text with escape codes for their styles. `print` removes the codes where they are not
/// wanted (`NO_COLOR`, no terminal).
pub(crate) fn styled(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        for part in &line.spans {
            let style = ansi(part.style);
            text.push_str(&format!("{style}{}{style:#}", part.content));
        }
        text.push('\n');
    }
    text
}

fn ansi(style: Style) -> anstyle::Style {
    let colour = match style.fg {
        Some(Color::Red) => Some(anstyle::AnsiColor::Red),
        Some(Color::Green) => Some(anstyle::AnsiColor::Green),
        Some(Color::Yellow) => Some(anstyle::AnsiColor::Yellow),
        Some(Color::Cyan) => Some(anstyle::AnsiColor::Cyan),
        _ => None,
    };
    let mut codes = anstyle::Style::new().fg_color(colour.map(Into::into));
    if style.add_modifier.contains(Modifier::BOLD) {
        codes = codes.bold();
    }
    if style.add_modifier.contains(Modifier::DIM) {
        codes = codes.dimmed();
    }
    codes
}

/// Lays out a table: columns as wide as their content, two spaces apart; the last one is cut to the rest of
/// the width. Wide characters take two cells.
pub(crate) fn columns(rows: Vec<Vec<Part>>, width: usize) -> Vec<Line> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(Part::width).max().unwrap_or(0))
        .collect();
    let before_last: usize = widths.iter().take(count.saturating_sub(1)).map(|width| width + 2).sum();
    let room = width.saturating_sub(before_last).max(20);
    let line = |row: Vec<Part>| {
        let mut parts: Vec<Part> = Vec::new();
        for (column, cell) in row.into_iter().enumerate() {
            if column + 1 == count {
                let text = fit(&knowledge::text::one_line(&cell.content, room), room);
                parts.push(Part::styled(text, cell.style));
            } else {
                let gap = widths[column] - cell.width() + 2;
                parts.extend([cell, Part::raw(" ".repeat(gap))]);
            }
        }
        while parts.last().is_some_and(|part| part.content.trim().is_empty()) {
            parts.pop();
        }
        Line::from(parts)
    };
    rows.into_iter().map(line).collect()
}

/// Lays out a table without styles, as wide as the terminal.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    let rows = std::iter::once(head).chain(rows).map(|row| row.into_iter().map(Part::raw).collect());
    styled(&columns(rows.collect(), terminal_width()))
}

/// The number of terminal cells that a text takes.
pub(crate) fn width(text: &str) -> usize {
    ratatui::text::Span::raw(text).width()
}

/// Cuts a line to at most `width` cells, with an ellipsis if something is cut.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if self::width(text) <= width {
        return text.to_owned();
    }
    format!("{}…", text.unicode_truncate(width.saturating_sub(1)).0.trim_end())
}

/// The width of the terminal in cells.
pub(crate) fn terminal_width() -> usize {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()) {
        return columns;
    }
    rustix::termios::tcgetwinsize(io::stdout()).map_or(100, |size| usize::from(size.ws_col).max(40))
}

/// A progress bar on stderr, hidden unless stderr is a terminal.
pub(crate) fn progress_bar(message: &'static str, length: usize) -> ProgressBar {
    let bar = bar("{spinner} {msg} {wide_bar} {pos}/{len}").with_message(message);
    bar.set_length(length as u64);
    bar
}

/// A spinner on stderr, hidden unless stderr is a terminal.
pub(crate) fn spinner(message: impl Into<Cow<'static, str>>) -> ProgressBar {
    let bar = bar("{spinner} {msg} ({elapsed})").with_message(message);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The time between two moments in one unit: `12 s`, `5 min`, `3 h`, `9 d`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs().max(0) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A count with its noun: `1 unit`, `1,204 units`, `2 branches`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = match noun {
        _ if count == 1 => "",
        noun if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", thousands(count))
}

/// A number with its digits in groups: `1,234,567`.
pub(crate) fn thousands(count: u64) -> String {
    HumanCount(count).to_string()
}

/// A path with `~` for the home folder.
pub(crate) fn short_path(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some());
    let real = home.as_ref().and_then(|home| std::fs::canonicalize(home).ok());
    match [home, real].into_iter().flatten().find_map(|home| path.strip_prefix(home).ok()) {
        Some(rest) => safe(&format!("~/{}", rest.display())),
        None => safe(&path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let ago = |seconds: i64| age(now - jiff::SignedDuration::from_secs(seconds), now);
        assert_eq!(
            [ago(5), ago(130), ago(7200), ago(864_000), ago(-5)],
            ["5 s", "2 min", "2 h", "10 d", "0 s"]
        );
    }

    #[test]
    fn a_count_has_groups_of_digits_and_a_noun() {
        assert_eq!(counted(1, "unit"), "1 unit");
        assert_eq!(counted(2, "branch"), "2 branches");
        assert_eq!(counted(0, "unit"), "0 units");
        assert_eq!([thousands(7), thousands(1_000), thousands(1_234_567)], ["7", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_table_has_aligned_columns_and_no_trailing_spaces() {
        let row = vec!["aaa".to_owned(), "b".into(), String::new()];
        assert_eq!(table(&["a", "bb", "c"], [row]), "a    bb  c\naaa  b\n");
    }

    #[test]
    fn wide_characters_take_two_cells_and_styles_none() {
        let rows = vec![
            vec![Part::raw("日本"), Part::raw("x")],
            vec![Part::styled("abc", Style::new().fg(Color::Red)), Part::raw("日".repeat(30))],
        ];
        let lines: Vec<String> = columns(rows, 30).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["日本  x".to_owned(), format!("abc   {}…", "日".repeat(11))]);
    }
}
