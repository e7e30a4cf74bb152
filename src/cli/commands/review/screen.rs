//! The inbox in full screen: the list above, the chosen unit below, one key for each decision.

use std::io::{self, Read as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use actors::review::{Choice, Item};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use queue::EvidenceLine;
use ratatui::style::Style;
use system::signal::{self, Signal};
use system::terminal;

use super::call::{Review, one_reason, tomorrow_morning};
use super::render::{self, BOLD, DIM, WARN};
use crate::async_runtime;
use crate::error::CliError;
use crate::output::{self, Line, Part, counted, fit, safe, safe_title, wrap};
use crate::tui::Screen;

const KEYS: &str = "m merge  e edit  r reject  l later  a all  ↑↓ move  space page  ? help  q quit";
const HELP: [&str; 12] = [
    "m        merge this unit into your main branch",
    "e        edit it with $EDITOR, then merge it",
    "r        reject it, with a reason; it is not proposed again",
    "l        put it off until tomorrow",
    "a        merge all that are listed",
    "↑ ↓      choose another unit (also k and j)",
    "space    read on; b or backspace goes back (also page down and up)",
    "g        back to the beginning of the unit",
    "q        quit; what is decided is decided, the rest waits",
    "",
    "The same without a terminal: nugget review --help",
    "Any key closes this help.",
];

/// Shows the inbox until the person quits or nothing is left, then prints what was done.
pub(super) fn run(review: &Review) -> Result<ExitCode, CliError> {
    let mut page = Page::new(review.items(false)?, review.now);
    let signals = Signals::listen()?;
    let mut done = String::new();
    let mut screen = Screen::enter()?;
    terminal::time_reads_out()?;
    let mut input = Vec::new();
    // Nothing is written while nothing happens.
    let mut is_stale = true;
    let result = loop {
        if std::mem::take(&mut is_stale) {
            page.load_evidence(review)?;
            screen.draw_page(|width, height| page.lines(width, height))?;
        }
        match signals.received.try_recv() {
            Ok(Signal::Suspend) => {
                screen.suspend()?;
                terminal::time_reads_out()?;
                is_stale = true;
                continue;
            }
            Ok(Signal::Resize) => {
                is_stale = true;
                continue;
            }
            Ok(_) => break Ok(()),
            Err(_) => {}
        }
        let mut bytes = [0; 64];
        match io::stdin().lock().read(&mut bytes) {
            Ok(0) => continue,
            Ok(count) => input.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Err(error.into()),
        }
        is_stale = true;
        let mut act = None;
        for key in take_keys(&mut input) {
            act = page.press(key);
            if act.is_some() {
                break;
            }
        }
        let Some(act) = act else { continue };
        if matches!(act, Act::Quit) {
            break Ok(());
        }
        if matches!(act, Act::Edit) {
            // The editor needs the terminal.
            drop(screen);
            signals.is_editing.store(true, Ordering::Relaxed);
            let acted = page.act(review, act);
            signals.is_editing.store(false, Ordering::Relaxed);
            while signals.received.try_recv().is_ok() {}
            screen = Screen::enter()?;
            terminal::time_reads_out()?;
            done.push_str(&page.acted(acted));
        } else {
            page.message = "working…".to_owned();
            screen.draw_page(|width, height| page.lines(width, height))?;
            let acted = page.act(review, act);
            done.push_str(&page.acted(acted));
        }
        input.clear();
        page.reload(review)?;
        if page.items.is_empty() {
            break Ok(());
        }
    };
    drop(screen);
    output::print(&done)?;
    result.map(|()| ExitCode::SUCCESS)
}

/// The signals that the person's keys and the terminal send.
struct Signals {
    received: Receiver<Signal>,
    /// While an editor runs, Ctrl-Z is for it, and stops this process too.
    is_editing: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> Result<Self, CliError> {
        let (sender, received) = channel();
        let is_editing = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&is_editing);
        let runtime = async_runtime::current_thread()?;
        let (ready, is_ready) = channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let signals =
                    [Signal::Interrupt, Signal::Terminate, Signal::HangUp, Signal::Suspend, Signal::Resize];
                let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up), Ok(mut suspend), Ok(mut resized)] =
                    signals.map(signal::listen)
                else {
                    return;
                };
                let _ = ready.send(());
                loop {
                    let signal = tokio::select! {
                        () = interrupt.recv() => Signal::Interrupt,
                        () = terminate.recv() => Signal::Terminate,
                        () = hang_up.recv() => Signal::HangUp,
                        () = suspend.recv() => Signal::Suspend,
                        () = resized.recv() => Signal::Resize,
                    };
                    if signal == Signal::Suspend && is_stopped.load(Ordering::Relaxed) {
                        let _ = system::process::suspend();
                    } else if sender.send(signal).is_err() {
                        return;
                    }
                }
            });
        });
        // Before the screen is entered, so that no signal is missed after that.
        is_ready.recv().map_err(|_| CliError::new("failed to listen for signals"))?;
        Ok(Self { received, is_editing })
    }
}

/// A key that is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Other,
}

/// Takes the complete keys from what was read. Escape is the key unless a sequence follows it at once.
fn take_keys(input: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = input.as_slice();
    while let Some((&first, after)) = rest.split_first() {
        let (key, used) = match first {
            0x1b => match after {
                [b'[' | b'O', sequence @ ..] => {
                    let length = sequence.iter().position(|byte| (0x40..0x7f).contains(byte));
                    let Some(length) = length else { break };
                    let key = match &sequence[..=length] {
                        [b'A'] => Key::Up,
                        [b'B'] => Key::Down,
                        [b'5', b'~'] => Key::PageUp,
                        [b'6', b'~'] => Key::PageDown,
                        _ => Key::Other,
                    };
                    (key, length + 3)
                }
                _ => (Key::Escape, 1),
            },
            b'\r' | b'\n' => (Key::Enter, 1),
            0x7f | 0x08 => (Key::Backspace, 1),
            4 => (Key::Char('q'), 1),
            0..0x20 => (Key::Other, 1),
            0x20..0x7f => (Key::Char(char::from(first)), 1),
            _ => {
                let length = if first >= 0xf0 {
                    4
                } else if first >= 0xe0 {
                    3
                } else {
                    2
                };
                let Some(bytes) = rest.get(..length) else { break };
                let c = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next());
                c.map_or((Key::Other, 1), |c| (Key::Char(c), length))
            }
        };
        keys.push(key);
        rest = &rest[used..];
    }
    *input = rest.to_vec();
    keys
}

/// What a key decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Merge,
    MergeAll,
    Edit,
    /// With the reason, which may be empty.
    Reject(String),
    Later,
    Quit,
}

enum Mode {
    Browse,
    Help,
    ConfirmAll,
    Reason(String),
}

/// What the screen shows.
struct Page {
    items: Vec<Item>,
    now: Timestamp,
    selected: usize,
    /// The first line of the unit that is shown.
    scroll: usize,
    /// How far the last page was, for the next.
    page_height: usize,
    /// The number of lines of the unit.
    length: usize,
    mode: Mode,
    message: String,
    /// Of the item with this id.
    evidence: Option<(String, Vec<EvidenceLine>)>,
    /// The lines of the item with this id, for this width.
    unit: Option<(String, usize, Vec<Line>)>,
}

impl Page {
    fn new(items: Vec<Item>, now: Timestamp) -> Self {
        Self {
            items,
            now,
            selected: 0,
            scroll: 0,
            page_height: 1,
            length: 0,
            mode: Mode::Browse,
            message: String::new(),
            evidence: None,
            unit: None,
        }
    }

    fn load_evidence(&mut self, review: &Review) -> Result<(), CliError> {
        let Some(item) = self.items.get(self.selected) else { return Ok(()) };
        if self.evidence.as_ref().is_none_or(|(id, _)| *id != item.id) {
            self.evidence = Some((item.id.clone(), review.inbox.evidence(item)?));
            self.unit = None;
        }
        Ok(())
    }

    /// Reads the list again; the unit after a decided one is chosen.
    fn reload(&mut self, review: &Review) -> Result<(), CliError> {
        let before = self.items.get(self.selected).map(|item| item.id.clone());
        self.items = review.items(false)?;
        self.unit = None;
        let is_there = before.and_then(|id| self.items.iter().position(|item| item.id == id));
        if is_there.is_none() {
            self.scroll = 0;
        }
        self.selected = is_there.unwrap_or(self.selected).min(self.items.len().saturating_sub(1));
        Ok(())
    }

    fn press(&mut self, key: Key) -> Option<Act> {
        match &mut self.mode {
            Mode::Help => {
                self.mode = Mode::Browse;
                return None;
            }
            Mode::ConfirmAll => {
                self.mode = Mode::Browse;
                self.message.clear();
                return (key == Key::Char('y')).then_some(Act::MergeAll);
            }
            Mode::Reason(reason) => {
                match key {
                    Key::Char(c) => reason.push(c),
                    Key::Backspace => drop(reason.pop()),
                    Key::Escape => self.mode = Mode::Browse,
                    Key::Enter => {
                        let reason = std::mem::take(reason);
                        self.mode = Mode::Browse;
                        return Some(Act::Reject(reason));
                    }
                    _ => {}
                }
                return None;
            }
            Mode::Browse => {}
        }
        self.message.clear();
        let page = self.page_height.saturating_sub(1).max(1);
        match key {
            Key::Char('m') => return Some(Act::Merge),
            Key::Char('e') => return Some(Act::Edit),
            Key::Char('l') => return Some(Act::Later),
            Key::Char('q') => return Some(Act::Quit),
            Key::Char('r') => self.mode = Mode::Reason(String::new()),
            Key::Char('a') => self.mode = Mode::ConfirmAll,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Up | Key::Char('k') => self.choose(self.selected.saturating_sub(1)),
            Key::Down | Key::Char('j') | Key::Enter => self.choose(self.selected + 1),
            Key::Char(' ') | Key::PageDown => self.scroll += page,
            Key::Char('b') | Key::Backspace | Key::PageUp => self.scroll = self.scroll.saturating_sub(page),
            Key::Char('g') => self.scroll = 0,
            Key::Char(_) => "? shows the keys".clone_into(&mut self.message),
            Key::Escape | Key::Other => {}
        }
        self.scroll = self.scroll.min(self.length.saturating_sub(self.page_height));
        None
    }

    fn choose(&mut self, at: usize) {
        let at = at.min(self.items.len().saturating_sub(1));
        if at != self.selected {
            (self.selected, self.scroll) = (at, 0);
        }
    }

    /// Carries out a decision; returns what was done, for the person.
    fn act(&self, review: &Review, act: Act) -> Result<String, CliError> {
        let now = Timestamp::now();
        let Some(item) = self.items.get(self.selected).cloned() else { return Ok(String::new()) };
        let choice = |item: Item| Choice { item, edited: None };
        let (verb, reviewed) = match act {
            Act::Merge => (render::MERGED, review.inbox.merge(vec![choice(item)], now)?),
            Act::MergeAll => {
                (render::MERGED, review.inbox.merge(self.items.iter().cloned().map(choice).collect(), now)?)
            }
            Act::Edit => {
                let Some(edited) = review.edited(&item)? else {
                    return Ok("nothing was changed, so nothing was merged\n".to_owned());
                };
                (render::MERGED, review.merge_edited(item, edited, now)?)
            }
            Act::Reject(because) => {
                let because = Some(one_reason(&because)).filter(|because| !because.is_empty());
                ("rejected", review.inbox.reject(vec![item], because.as_deref(), now)?)
            }
            Act::Later => {
                let until = tomorrow_morning(&now.to_zoned(TimeZone::system()))?;
                review.inbox.put_off(std::slice::from_ref(&item), until, now)?;
                let decided = vec![item];
                ("put off until tomorrow", actors::review::Reviewed { decided, ..Default::default() })
            }
            Act::Quit => return Ok(String::new()),
        };
        Ok(render::reviewed_lines(verb, &reviewed))
    }

    /// Shows how an act ended; returns what is to be printed at the end.
    fn acted(&mut self, acted: Result<String, CliError>) -> String {
        let text = match acted {
            Ok(text) => text,
            Err(error) => format!("error: {}\n", error.line()),
        };
        self.message = text.trim_end().replace('\n', " · ");
        text
    }

    fn lines(&mut self, width: usize, height: usize) -> Vec<Line> {
        if let Mode::Help = self.mode {
            return HELP.iter().map(|row| Line::from(fit(row, width))).collect();
        }
        let wait = if self.items.len() == 1 { "waits" } else { "wait" };
        let head = format!("{} {wait} for review", counted(self.items.len() as u64, "unit"));
        let mut lines = vec![Line::from(Part::styled(fit(&head, width), BOLD))];
        lines.extend(self.list_lines(width, height));
        let foot = self.foot_lines(width);
        let room = height.saturating_sub(lines.len() + 1 + foot.len()).max(1);
        let Some(item) = self.items.get(self.selected) else { return lines };
        let evidence = self.evidence.as_ref().filter(|(id, _)| *id == item.id);
        let evidence = evidence.map_or(&[][..], |(_, lines)| lines);
        let rendered = self.unit.take().filter(|(id, at, _)| *id == item.id && *at == width);
        let render = || (item.id.clone(), width, render::unit(item, evidence, width, self.now));
        let (.., unit) = self.unit.insert(rendered.unwrap_or_else(render));
        (self.page_height, self.length) = (room, unit.len());
        self.scroll = self.scroll.min(unit.len().saturating_sub(room));
        let left = unit.len().saturating_sub(self.scroll + room);
        let more =
            if left > 0 { format!(" {} more below ", counted(left as u64, "line")) } else { String::new() };
        let rule = "─".repeat(width.saturating_sub(output::width(&more) + 2));
        lines.push(Line::from(Part::styled(fit(&format!("──{more}{rule}"), width), DIM)));
        let shown = unit.len().saturating_sub(self.scroll).min(room);
        lines.extend(unit.iter().skip(self.scroll).take(room).cloned());
        lines.extend(std::iter::repeat_n(Line::default(), room - shown));
        lines.extend(foot);
        lines
    }

    /// The part of the list around the chosen item.
    fn list_lines(&self, width: usize, height: usize) -> Vec<Line> {
        let rows = self.items.len().min((height / 4).max(1));
        let first = self.selected.saturating_sub(rows / 2).min(self.items.len() - rows);
        let kind_width = self.items.iter().map(|item| output::width(item.kind())).max().unwrap_or(0).min(12);
        let row = |at: usize| {
            let item = self.items.get(at)?;
            let is_chosen = at == self.selected;
            let mark = if is_chosen { "▸" } else { " " };
            let kind = knowledge::text::one_line(item.kind(), 12);
            let is_cut = at == first && first > 0 || at + 1 == first + rows && at + 1 < self.items.len();
            let more = if is_cut { "…" } else { " " };
            let text = format!("{mark}{more}{kind:<kind_width$}  {}", safe_title(item.title()));
            let style = if is_chosen { BOLD } else { Style::new() };
            Some(Line::from(Part::styled(fit(&text, width), style)))
        };
        (first..first + rows).filter_map(row).collect()
    }

    /// The message and the keys, or what is asked.
    fn foot_lines(&self, width: usize) -> Vec<Line> {
        let styled = |text: &str, style| Line::from(Part::styled(fit(text, width), style));
        match &self.mode {
            Mode::Reason(reason) => {
                // The end of a long reason is what is being typed.
                let prompt = "why? ";
                let mut shown = safe(reason);
                while output::width(prompt) + output::width(&shown) + 1 > width && !shown.is_empty() {
                    shown.remove(0);
                }
                vec![
                    styled(&format!("{prompt}{shown}▏"), WARN),
                    styled("enter rejects (without a reason too), escape goes back", DIM),
                ]
            }
            Mode::ConfirmAll => {
                let question = format!("merge all {}?", counted(self.items.len() as u64, "unit"));
                vec![styled(&question, WARN), styled("y merges them, any other key goes back", DIM)]
            }
            _ => {
                let message = wrap(&self.message, width).into_iter().filter(|row| !row.is_empty());
                let mut lines: Vec<Line> = message.take(2).map(|row| styled(&row, WARN)).collect();
                lines.push(styled(KEYS, DIM));
                lines
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use actors::review::pending_items;
    use git::{Identity, Lock, NewFile, Proposal, Repository};

    use super::*;

    /// A page with three units of one branch.
    fn page(folder: &std::path::Path) -> Page {
        let repository = Repository::init(folder).unwrap().into_repository();
        let time: Timestamp = "2026-11-16T17:04:05Z".parse().unwrap();
        let author = Identity::default();
        let file =
            |path: String, content: String| NewFile { path, content: content.into_bytes(), edits: false };
        std::fs::write(folder.join("brain.yaml"), "version: 1\n").unwrap();
        let first = [file("brain.yaml".into(), "version: 1\n".into())];
        repository.create_initial_commit(&first, "Begin", time, &author).unwrap();
        let unit = |name: &str, title: &str| {
            let body =
                "What to do is said here in a sentence that is long enough to be broken.\n\n".repeat(9);
            file(
                format!("domains/messaging/bugs/{name}.md"),
                format!(
                    "---\ntype: bug\ntitle: \"{title}\"\nsource: heuristic\nconfidence: 0.7\n---\n\n# {title}\n\n{body}"
                ),
            )
        };
        let proposal = Proposal {
            branch: "nugget/session-20261116-170405-ad5139ef".into(),
            base: None,
            files: vec![unit("a", "First"), unit("b", "Second \u{202e}\\e[31mred"), unit("c", "Third")],
            removes: vec![],
            message: "Add".into(),
            time,
            author,
        };
        let lock = Lock::acquire(&repository.lock_path().unwrap()).unwrap();
        repository.propose(&lock, &proposal).unwrap();
        let items = pending_items(&repository, None, time).unwrap();
        Page::new(items, time + jiff::SignedDuration::from_hours(120))
    }

    fn text(page: &mut Page, width: usize, height: usize) -> Vec<String> {
        let lines = page.lines(width, height);
        assert!(lines.len() <= height, "{} lines", lines.len());
        let wide: Vec<_> = lines.iter().filter(|line| line.width() > width).collect();
        assert!(wide.is_empty(), "{wide:?}");
        let rows: Vec<String> = lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect();
        assert!(rows.iter().all(|row| !row.contains(['\x1b', '\u{202e}'])), "{rows:?}");
        rows
    }

    #[test]
    fn the_screen_fits_into_80_by_24_and_says_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = page(folder.path());
        insta::assert_snapshot!("inbox", text(&mut page, 80, 24).join("\n"));
        for (width, height) in [(40, 10), (80, 24), (200, 60), (20, 5)] {
            text(&mut page, width, height);
        }
        assert_eq!(page.press(Key::Char('?')), None);
        assert!(text(&mut page, 80, 24)[0].starts_with("m        merge"));
        page.press(Key::Char('x'));
        assert_eq!(text(&mut page, 80, 24).last().unwrap(), KEYS);
    }

    #[test]
    fn keys_choose_read_and_decide() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = page(folder.path());
        text(&mut page, 80, 24);
        page.press(Key::Char(' '));
        assert!(page.scroll > 0);
        page.press(Key::Down);
        assert_eq!((page.selected, page.scroll), (1, 0));
        page.press(Key::Up);
        page.press(Key::Up);
        assert_eq!(page.selected, 0);
        assert_eq!(page.press(Key::Char('m')), Some(Act::Merge));
        assert_eq!(page.press(Key::Char('a')), None);
        assert_eq!(page.press(Key::Char('n')), None);
        assert_eq!(page.press(Key::Char('a')), None);
        assert_eq!(page.press(Key::Char('y')), Some(Act::MergeAll));
        page.press(Key::Char('r'));
        for c in "not sö".chars() {
            assert_eq!(page.press(Key::Char(c)), None);
        }
        page.press(Key::Backspace);
        assert!(text(&mut page, 80, 24).iter().any(|row| row.starts_with("why? not s")));
        assert_eq!(page.press(Key::Enter), Some(Act::Reject("not s".into())));
        assert_eq!(page.press(Key::Char('q')), Some(Act::Quit));
    }

    #[test]
    fn a_unit_is_rendered_once_for_each_width() {
        let folder = tempfile::tempdir().unwrap();
        let mut page = page(folder.path());
        let before = text(&mut page, 80, 24);
        page.items[0].text = "Another text.".to_owned();
        assert_eq!(text(&mut page, 80, 24), before);
        assert!(text(&mut page, 79, 24).contains(&"Another text.".to_owned()));
        page.press(Key::Down);
        page.press(Key::Up);
        assert_eq!(text(&mut page, 79, 24).len(), 24);
    }

    #[test]
    fn keys_are_read_from_the_bytes_of_a_terminal() {
        let mut input = b"m\x1b[A\x1b[6~\x1b\xc3\xb6\x1b[".to_vec();
        let keys = take_keys(&mut input);
        assert_eq!(keys, [Key::Char('m'), Key::Up, Key::PageDown, Key::Escape, Key::Char('ö')]);
        assert_eq!(input, b"\x1b[", "the rest of a sequence may follow");
        input.push(b'B');
        assert_eq!(take_keys(&mut input), [Key::Down]);
    }
}
