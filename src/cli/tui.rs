//! A screen that is drawn anew again and again, and gives the terminal back as it was: when it is dropped,
//! after a panic, and for as long as the process is suspended.

use std::io::{self, IsTerminal as _, Stdout, Write as _};
use std::sync::{Mutex, Once, PoisonError};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::output::Line;

/// The other screen of a terminal, without a cursor and without wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// How the terminal was before; here, so that a panic finds it. `None` inside when stdin is no terminal.
static BEFORE: Mutex<Option<Option<Termios>>> = Mutex::new(None);

const EMPTY: &str = "\x1b[H\x1b[2J";

/// Holds the terminal's other screen.
pub(crate) struct Screen {
    /// Of a fixed size, and made anew when that changes: to resize one it asks the terminal where its cursor
    /// is, and whoever reads the keys here would take the answer away.
    terminal: Terminal<CrosstermBackend<Stdout>>,
    size: Size,
}

impl Screen {
    pub(crate) fn enter() -> io::Result<Self> {
        restore_before_a_panic_is_told();
        take()?;
        let size = size();
        // Should that fail, `drop` is not there yet to give the terminal back.
        let terminal = empty(size).inspect_err(|_| restore())?;
        Ok(Self { terminal, size })
    }

    /// Draws what has changed since the last time, in the terminal's present size: nothing flickers.
    pub(crate) fn draw(&mut self, lines: impl FnOnce(usize) -> Vec<Line>) -> io::Result<()> {
        if self.size != size() {
            self.size = size();
            self.terminal = empty(self.size)?;
        }
        self.terminal.draw(|frame| fill(frame, lines)).map(drop)
    }

    /// Gives the terminal back until this process is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        take()?;
        self.terminal = empty(self.size)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Empties the screen, for a picture that is drawn whole.
fn empty(size: Size) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let mut stdout = io::stdout();
    stdout.write_all(EMPTY.as_bytes())?;
    stdout.flush()?;
    let viewport = Viewport::Fixed(Rect::new(0, 0, size.width, size.height));
    Terminal::with_options(CrosstermBackend::new(stdout), TerminalOptions { viewport })
}

fn size() -> Size {
    rustix::termios::tcgetwinsize(io::stdout())
        .map_or(Size::new(80, 24), |size| Size::new(size.ws_col.max(1), size.ws_row.max(1)))
}

fn fill(frame: &mut Frame<'_>, lines: impl FnOnce(usize) -> Vec<Line>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = lines(width);
    if lines.len() > height {
        let shown = height.saturating_sub(1);
        let left = lines.len() - shown;
        lines.truncate(shown);
        lines.push(Line::from(format!("… {left} more lines; a taller window shows them")));
    }
    for (row, line) in (area.y..area.bottom()).zip(&lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

/// Takes the terminal. Keys come without a line's end and are not shown; the keys that send signals still do.
fn take() -> io::Result<()> {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let stdin = io::stdin();
    let modes = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
    if let Some(modes) = &modes {
        let mut keys = modes.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &keys)?;
    }
    *before = Some(modes);
    let mut stdout = io::stdout();
    stdout.write_all(ENTER.as_bytes())?;
    stdout.flush()
}

/// Gives the terminal back; a second time does nothing.
fn restore() {
    let Some(modes) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    // A terminal that is gone needs nothing back.
    let mut stdout = io::stdout();
    let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
    if let Some(modes) = modes {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
    }
}

/// What a panic says would be written to the other screen, and be gone with it.
fn restore_before_a_panic_is_told() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            tell(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn a_picture_is_drawn_over_the_last_one_and_what_has_no_room_is_counted() {
        let mut screen = ratatui::Terminal::new(TestBackend::new(20, 3)).unwrap();
        let mut show = |text: &'static str| {
            screen.draw(|frame| fill(frame, |_| text.lines().map(Line::from).collect())).unwrap();
            let buffer = screen.backend().buffer().clone();
            let row = |y: u16| (0..20).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
            (0..3).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(show("one\ntwo\nthree"), ["one", "two", "three"]);
        assert_eq!(show("1"), ["1", "", ""]);
        assert_eq!(show("1\n2\n3\n4\n5"), ["1", "2", "… 3 more lines; a ta"]);
    }
}
