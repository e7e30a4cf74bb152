//! Prints results for people and for programs.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ratatui::style::{Color, Modifier, Style};
use serde::Serialize;
use system::terminal;
use unicode_truncate::UnicodeTruncateStr as _;

use crate::error::CliError;

/// How long a bar waits until it says what time is left: the first steps are no measure for the rest.
const ETA_AFTER: Duration = Duration::from_secs(2);

/// Whether JSON was printed. An error that follows is then told on stderr alone.
static HAS_PRINTED_JSON: AtomicBool = AtomicBool::new(false);

/// Writes to stdout; to a terminal in lines that fit. A closed pipe is not an error: `nugget list | head`.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_verbatim(&for_terminal(text))
}

/// How many files of the brain are no units.
pub(crate) fn no_units(files: u64) -> String {
    format!("{} {}", counted(files, "file"), if files == 1 { "is no unit" } else { "are no units" })
}

/// Writes to stdout what a program or a shell reads, and what must stay as it is.
pub(crate) fn print_verbatim(text: &str) -> Result<(), CliError> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    HAS_PRINTED_JSON.store(true, Ordering::Relaxed);
    let mut text = serde_json::to_string_pretty(value)?;
    // JSON allows these in its strings as they are, and a terminal obeys some of them.
    for c in text.chars().filter(|c| c.is_control() && *c != '\n').collect::<Vec<_>>() {
        text = text.replace(c, &format!("\\u{:04x}", u32::from(c)));
    }
    print_verbatim(&(text + "\n"))
}

/// Prints the error that has ended a command with `--json`, unless its result is printed already: stdout is one document.
pub(crate) fn print_json_error(error: &CliError) {
    if !HAS_PRINTED_JSON.load(Ordering::Relaxed) {
        // Fails only if the pipe is closed.
        let _ = print_json(&error.to_json());
    }
}

/// Writes a line to stderr, for information that is not the result.
pub(crate) fn note(text: &str) {
    let text = match io::stderr().is_terminal() {
        true => wrap_lines(text, terminal_width()),
        false => text.to_owned(),
    };
    let _ = writeln!(anstream::stderr().lock(), "{}", printable(&text));
}

/// Names on stderr the files that are no units, each with the reason, up to a number that a person reads.
pub(crate) fn note_skipped(problems: &[String]) {
    const SHOWN_MAX: usize = 20;
    for problem in problems.iter().take(SHOWN_MAX) {
        note(&format!("skipped {}", one_row(&safe(problem))));
    }
    let more = problems.len().saturating_sub(SHOWN_MAX);
    if more > 0 {
        note(&format!("and {} more; --json names all", thousands(more as u64)));
    }
}

/// Prints an error and its hint to stderr.
pub(crate) fn print_error(error: &CliError) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let (message, hint) = error.message_and_hint();
    note(&format!("{red}error:{red:#} {message}"));
    if let Some(hint) = hint {
        note(&format!("hint: {hint}"));
    }
}

/// A text as stdout takes it: if that is a terminal, long lines are broken between words.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    match io::stdout().is_terminal() {
        true => Cow::Owned(wrap_lines(text, terminal_width())),
        false => Cow::Borrowed(text),
    }
}

/// Breaks the lines that are wider than the terminal. What follows is indented as its line, and a quotation stays one.
/// A word that is wider than the terminal, such as an address, gets a line of its own and stays whole, so that it can be
/// copied; only text of wide characters, which has no spaces, is broken anywhere.
pub(crate) fn wrap_lines(text: &str, columns: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if shown_width(line) <= columns {
            wrapped.push_str(line);
        } else {
            wrap_line(&mut wrapped, line, columns);
        }
        wrapped.push_str(end);
    }
    wrapped
}

fn wrap_line(wrapped: &mut String, line: &str, columns: usize) {
    let plain = anstream::adapter::strip_str(line).to_string();
    let spaces = plain.len() - plain.trim_start_matches(' ').len();
    let below = match &plain[spaces..] {
        text if text.starts_with("> ") => " ".repeat(spaces) + "> ",
        text if text.starts_with("- ") => " ".repeat(spaces + 2),
        _ => " ".repeat(spaces),
    };
    let below = if below.len() * 2 > columns { String::new() } else { below };
    let mut used = 0;
    let mut is_begun = false;
    // A gap of several spaces is kept within a line.
    let mut gap = "";
    let mut rest = line;
    while !rest.is_empty() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let (space, after) = rest.split_at(spaces);
        let (word, after) = after.split_at(after.find(' ').unwrap_or(after.len()));
        rest = after;
        gap = if space.is_empty() { gap } else { space };
        let width = shown_width(word);
        // The mark of a quotation or an item does not stand alone.
        if is_begun && used + gap.len() > below.len() && used + gap.len() + width > columns {
            wrapped.push('\n');
            wrapped.push_str(&below);
            used = below.len();
        } else {
            wrapped.push_str(gap);
            used += gap.len();
        }
        gap = "";
        is_begun |= width > 0;
        let (styles, text, after) = split_styles(word);
        // Text of wide characters, and nothing but styles around it.
        let is_wide = used + width > columns && width > text.chars().count() && shown_width(after) == 0;
        if is_wide {
            wrapped.push_str(styles);
            let room = columns.saturating_sub(below.len()).max(2);
            for (at, part) in parts_of(text, room).into_iter().enumerate() {
                if at > 0 {
                    wrapped.push('\n');
                    wrapped.push_str(&below);
                }
                wrapped.push_str(part);
                used = below.len() + self::width(part);
            }
            wrapped.push_str(after);
        } else {
            wrapped.push_str(word);
            used += width;
        }
    }
}

/// The escape codes before a word, the text up to the next one, and the rest.
fn split_styles(word: &str) -> (&str, &str, &str) {
    let mut text = word;
    while let code @ 1.. = style_code(text).len() {
        text = &text[code..];
    }
    let (styles, _) = word.split_at(word.len() - text.len());
    let (text, after) = text.split_at(text.find('\u{1b}').unwrap_or(text.len()));
    (styles, text, after)
}

/// The number of cells that a text with styles takes.
fn shown_width(text: &str) -> usize {
    width(&anstream::adapter::strip_str(text).to_string())
}

/// Cuts a word into pieces of at most `columns` cells.
fn parts_of(word: &str, columns: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = word;
    while width(rest) > columns {
        let (part, _) = rest.unicode_truncate(columns);
        // A character is wider than the column.
        let length = if part.is_empty() { rest.chars().next().map_or(1, char::len_utf8) } else { part.len() };
        let (part, after) = rest.split_at(length);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// Removes the characters that a terminal would obey, except line ends, tabs and our styles: a path or a name may hold
/// them, wherever it is a part of a message.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_obeyed) {
        kept.push_str(&rest[..at]);
        let style = style_code(&rest[at..]);
        kept.push_str(style);
        let next = rest[at..].chars().next().map_or(0, char::len_utf8);
        rest = &rest[at + style.len().max(next)..];
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// The escape code of a style at the beginning of a text, such as `\x1b[1m`; empty if it begins with something else.
fn style_code(text: &str) -> &str {
    let Some(numbers) = text.strip_prefix("\x1b[") else { return "" };
    let length = numbers.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(numbers.len());
    if numbers[length..].starts_with('m') { &text[..length + 3] } else { "" }
}

/// A text with its line ends and tabs escaped, as the name of a file may have them.
pub(crate) fn one_row(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t']) {
        true => Cow::Owned(text.replace('\n', "\\n").replace('\t', "\\t")),
        false => Cow::Borrowed(text),
    }
}

/// Removes the control characters that would move a terminal's cursor.
pub(crate) fn safe(text: &str) -> String {
    knowledge::text::strip_hidden(text)
}

/// A title as it is shown: without the secrets that somebody may have written into it by hand.
pub(crate) fn safe_title(title: &str) -> String {
    safe(&transcript::redact::redact(title))
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

/// Marks the headings and quotes of a markdown text, and changes no character of it.
pub(crate) fn styled_markdown(text: &str) -> String {
    let line = |row: &str| {
        let style = match row {
            _ if row.starts_with('#') => Style::new().bold(),
            _ if row.starts_with('>') => Style::new().dim(),
            _ => Style::new(),
        };
        Line::from(Part::styled(row.to_owned(), style))
    };
    styled(&text.lines().map(line).collect::<Vec<_>>())
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

/// What a table does where a row is wider than the terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooWide {
    /// Each row is one line, of which the cells are cut.
    Cut,
    /// Cells are cut, but the last column goes on below itself, broken between words.
    Wrap,
    /// Each row is one line, and nothing is cut: a program reads it.
    Keep,
}

/// The narrowest that a column is cut to, so that the last one is whole.
const COLUMN_SOFT_MIN: usize = 12;
/// The narrowest that a column is cut to, so that a third of the width is left for the last one: a session's short id fits.
const COLUMN_MIN: usize = 8;
/// The narrowest that a column is cut to, so that [`LAST_MIN`] is left for the last one.
const COLUMN_LEAST: usize = 4;
/// The narrowest that the last column is cut to.
const LAST_MIN: usize = 10;

/// Lays out a table, of which the first row is the head: columns as wide as their content, two spaces apart. If that is
/// too wide, the widest columns give way first and the last one, which holds titles and reasons, last. Wide characters
/// take two cells.
pub(crate) fn columns(rows: Vec<Vec<Part>>, width: usize, too_wide: TooWide) -> Vec<Line> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = rows;
    for cell in rows.iter_mut().flat_map(|row| row.iter_mut().take(count.saturating_sub(1))) {
        if let Cow::Owned(escaped) = one_row(&cell.content) {
            cell.content = escaped.into();
        }
    }
    let natural: Vec<usize> = (0..count)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(Part::width).max().unwrap_or(0))
        .collect();
    let heads: Vec<usize> =
        rows.first().map(|head| head.iter().map(Part::width).collect()).unwrap_or_default();
    let widths = column_widths(&natural, &heads, width, too_wide);
    let indent: usize = widths.iter().take(count.saturating_sub(1)).map(|width| width + 2).sum();
    let mut lines = Vec::new();
    for row in rows {
        let mut parts: Vec<Part> = Vec::new();
        let mut below: Vec<Part> = Vec::new();
        for (column, cell) in row.into_iter().enumerate() {
            let room = widths[column];
            if column + 1 < count {
                let text = fit(&cell.content, room);
                let gap = room - self::width(&text) + 2;
                parts.extend([Part::styled(text, cell.style), Part::raw(" ".repeat(gap))]);
            } else if too_wide == TooWide::Wrap {
                let mut texts = wrap(&cell.content, room).into_iter();
                parts.push(Part::styled(texts.next().unwrap_or_default(), cell.style));
                below = texts.map(|text| Part::styled(text, cell.style)).collect();
            } else if too_wide == TooWide::Keep {
                parts.push(Part::styled(knowledge::text::one_line(&cell.content, usize::MAX), cell.style));
            } else {
                let text = fit(&knowledge::text::one_line(&cell.content, room), room);
                parts.push(Part::styled(text, cell.style));
            }
        }
        while parts.last().is_some_and(|part| part.content.trim().is_empty()) {
            parts.pop();
        }
        lines.push(Line::from(parts));
        lines.extend(below.into_iter().map(|part| Line::from(vec![Part::raw(" ".repeat(indent)), part])));
    }
    lines
}

/// The widths of a table's columns, given those of their content and of their heads.
fn column_widths(natural: &[usize], heads: &[usize], width: usize, too_wide: TooWide) -> Vec<usize> {
    let Some((last, others)) = natural.split_last() else { return Vec::new() };
    let mut widths = others.to_vec();
    let rest = |widths: &[usize]| width.saturating_sub(widths.iter().map(|width| width + 2).sum());
    if too_wide != TooWide::Keep {
        // First what is far wider than its head, as long ids, then everything, so that a third is left for the title.
        let soft = |column: usize| {
            heads[column].max(natural[column].min(COLUMN_SOFT_MIN.max(natural[column] * 2 / 5)))
        };
        let hard = |column: usize| natural[column].min(COLUMN_MIN);
        let least = |column: usize| natural[column].min(COLUMN_LEAST);
        let steps: [(&dyn Fn(usize) -> usize, usize); 3] =
            [(&soft, *last), (&hard, (*last).min(width / 3)), (&least, (*last).min(LAST_MIN))];
        for (least, wanted) in steps {
            while rest(&widths) < wanted {
                let can_give = (0..widths.len()).filter(|&column| widths[column] > least(column));
                let Some(widest) = can_give.max_by_key(|&column| widths[column]) else { break };
                widths[widest] -= 1;
            }
        }
    }
    let rest = rest(&widths).max(LAST_MIN);
    widths.push(rest);
    widths
}

/// Lays out a table as wide as the terminal. In a pipe each row stays one line.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|name| Part::styled((*name).to_owned(), Style::new().dim())).collect();
    let rows = rows.into_iter().map(|row| row.into_iter().map(Part::raw).collect());
    let too_wide = if io::stdout().is_terminal() { TooWide::Wrap } else { TooWide::Keep };
    styled(&columns(std::iter::once(head).chain(rows).collect(), terminal_width(), too_wide))
}

/// Breaks a text between words into lines of at most `width` cells; a longer word is broken too. An empty text is one
/// empty line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace().flat_map(|word| parts_of(word, width.max(2))) {
        if !line.is_empty() && self::width(&line) + 1 + self::width(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
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
    let cut = text.unicode_truncate(width.saturating_sub(1)).0;
    format!("{}…", cut.trim_end_matches([' ', '…']))
}

/// The width of the terminal in cells.
pub(crate) fn terminal_width() -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let size = || terminal::stdout_size().or_else(terminal::stderr_size);
    match set.or_else(|| size().map(|size| usize::from(size.columns))) {
        Some(columns) if columns > 0 => columns.max(40),
        _ => 100,
    }
}

/// How wide a line of rows and columns may be: as the terminal, and in a pipe as it is, because a program reads it.
pub(crate) fn row_width() -> usize {
    if io::stdout().is_terminal() { terminal_width() } else { usize::MAX }
}

/// The number of lines that the terminal shows; `None` if stdout is none.
pub(crate) fn terminal_height() -> Option<usize> {
    Some(usize::from(terminal::stdout_size()?.rows)).filter(|rows| *rows > 0)
}

/// A progress bar on stderr, hidden unless stderr is a terminal.
pub(crate) fn progress_bar(message: &'static str, length: usize) -> ProgressBar {
    bar("{spinner} {msg} {wide_bar} {human_pos}/{human_len}{left}", Some(length as u64)).with_message(message)
}

/// A spinner on stderr, hidden unless stderr is a terminal.
pub(crate) fn spinner(message: impl Into<Cow<'static, str>>) -> ProgressBar {
    let bar = bar("{spinner} {msg} ({elapsed})", None).with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// It is drawn once something is known: at its first step or tick.
fn bar(template: &str, length: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => {
            bar.with_style(style.with_key("left", |state: &ProgressState, text: &mut dyn fmt::Write| {
                let _ = text.write_str(&time_left(state.eta(), state.elapsed(), state.pos()));
            }))
        }
        Err(_) => bar,
    }
}

/// The time that is left, once something is known about it.
fn time_left(left: Duration, elapsed: Duration, done: u64) -> String {
    if done == 0 || elapsed < ETA_AFTER || left.is_zero() {
        return String::new();
    }
    let now = Timestamp::UNIX_EPOCH;
    let until = now.checked_add(left).unwrap_or(Timestamp::MAX);
    format!(", {} left", age(now, until))
}

/// The time between two moments in one unit: `12 s`, `5 min`, `3 h`, `9 d`. What another clock has put more than a day
/// ahead is a date.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    if is_ahead(then, now) {
        return then.strftime("%Y-%m-%d").to_string();
    }
    match now.duration_since(then).as_secs().max(0) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A moment to the minute, where the person is.
pub(crate) fn local_time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// The day of a moment, where the person is.
pub(crate) fn local_day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string()
}

/// How long ago a moment was: `5 min ago`, or its date if it is ahead.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let age = age(then, now);
    if is_ahead(then, now) { age } else { format!("{age} ago") }
}

fn is_ahead(then: Timestamp, now: Timestamp) -> bool {
    then.duration_since(now) > SignedDuration::from_hours(24)
}

/// A count with its noun: `1 unit`, `1,204 units`, `2 branches`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let (stem, plural) = match noun {
        _ if count == 1 => (noun, ""),
        "memory" => ("memor", "ies"),
        noun if noun.ends_with("ch") => (noun, "es"),
        _ => (noun, "s"),
    };
    format!("{} {stem}{plural}", thousands(count))
}

/// A number with its digits in groups: `1,234,567`.
pub(crate) fn thousands(count: u64) -> String {
    HumanCount(count).to_string()
}

/// A path with `~` for the home folder.
pub(crate) fn short_path(path: &Path) -> String {
    let home = brain::paths::home().filter(|home| home.parent().is_some());
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
    fn only_styles_and_line_ends_pass_to_the_terminal() {
        for (text, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[1;31mred\x1b[0m\x1b[m", "\x1b[1;31mred\x1b[0m\x1b[m"),
            ("\x1b[2Ja\x1b]0;title\x07b\x1b", "[2Ja]0;titleb"),
            ("a\u{b}\u{85}\u{9b}31m\r\n\x7fé\x1b[3", "a31m\né[3"),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
    }

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
    fn a_time_that_is_ahead_is_a_date() {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let ahead: Timestamp = "2099-12-31T10:00:00Z".parse().unwrap();
        assert_eq!(
            [age(ahead, now), ago(ahead, now), ago(now, ahead)],
            ["2099-12-31", "2099-12-31", "26703 d ago"]
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
        let table = table(&["a", "bb", "c"], [row]);
        assert_eq!(anstream::adapter::strip_str(&table).to_string(), "a    bb  c\naaa  b\n");
    }

    /// The lines of a table with one row.
    fn one_row(cells: [&str; 3], width: usize, too_wide: TooWide) -> Vec<String> {
        let head = ["ID", "TYPE", "TITLE"].map(Part::raw).to_vec();
        let row = cells.map(|cell| Part::raw(cell.to_owned())).to_vec();
        columns(vec![head, row], width, too_wide)[1..].iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_title_keeps_its_words_while_other_columns_give_way() {
        let cells = ["a-very-long-id-of-a-unit-about-pools", "pattern", "Bounded pools keep workers apart"];
        assert_eq!(
            one_row(cells, 60, TooWide::Wrap),
            ["a-very-long-id-o…  pattern  Bounded pools keep workers apart"]
        );
        assert_eq!(
            one_row(cells, 40, TooWide::Wrap),
            [
                "a-very-long-i…  pattern  Bounded pools",
                "                         keep workers",
                "                         apart"
            ]
        );
    }

    #[test]
    fn in_a_pipe_a_row_is_one_line_and_whole() {
        let cells = ["a-very-long-id-of-a-unit-about-pools", "pattern", "Bounded pools keep workers apart"];
        assert_eq!(
            one_row(cells, 60, TooWide::Keep),
            ["a-very-long-id-of-a-unit-about-pools  pattern  Bounded pools keep workers apart"]
        );
    }

    #[test]
    fn a_line_end_in_a_name_breaks_no_row() {
        assert_eq!(one_row(["a\nb\tc", "note", "Title"], 60, TooWide::Keep), ["a\\nb\\tc  note  Title"]);
    }

    #[test]
    fn a_line_breaks_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 20), [""]);
    }

    #[test]
    fn a_line_fits_the_terminal_and_keeps_its_indentation() {
        let shown = |text: &str| wrap_lines(text, 20);
        assert_eq!(shown("short\n  as it  is\n"), "short\n  as it  is\n");
        assert_eq!(shown("  one two three four five six"), "  one two three four\n  five six");
        assert_eq!(shown("> one two three four five\n"), "> one two three four\n> five\n");
        assert_eq!(shown("- one two three four five\n"), "- one two three four\n  five\n");
        let address = "https://example.com/a/long/one";
        assert_eq!(shown(&format!("see {address} there")), format!("see\n{address}\nthere"));
        assert_eq!(shown(&"日本".repeat(6)), format!("{}\n日本", "日本".repeat(5)));
        assert_eq!(
            shown(&format!("\u{1b}[2m> {}\u{1b}[0m", "日本".repeat(6))),
            format!("\u{1b}[2m> {}\n> {}\u{1b}[0m", "日本日本日本日本日", "本日本")
        );
        assert_eq!(
            shown("\u{1b}[1mone two\u{1b}[0m three four five"),
            "\u{1b}[1mone two\u{1b}[0m three four\nfive"
        );
    }

    #[test]
    fn a_word_longer_than_its_column_is_broken() {
        assert_eq!(wrap("ab abcdefgh", 5), ["ab", "abcde", "fgh"]);
        assert_eq!(wrap("日本日本", 5), ["日本", "日本"]);
        assert_eq!(fit("abcdef…", 5), "abcd…");
    }

    #[test]
    fn the_time_left_is_told_once_it_is_known() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(seconds(300), seconds(30), 12), ", 5 min left");
        for (left, elapsed, done) in [(300, 1, 12), (300, 30, 0), (0, 30, 12)] {
            assert_eq!(time_left(seconds(left), seconds(elapsed), done), "");
        }
    }

    #[test]
    fn wide_characters_take_two_cells_and_styles_none() {
        let rows = vec![
            vec![Part::raw("日本"), Part::raw("x")],
            vec![Part::styled("abc", Style::new().fg(Color::Red)), Part::raw("日".repeat(30))],
        ];
        let lines: Vec<String> = columns(rows, 30, TooWide::Cut).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["日本  x".to_owned(), format!("abc   {}…", "日".repeat(11))]);
    }
}
