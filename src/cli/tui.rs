//! A full-screen view that is redrawn, and restores the terminal: when it is dropped, after a panic, and while
//! the process is suspended.

use std::io::{self, Stdout, Write as _};
use std::sync::{Mutex, Once, PoisonError};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use system::terminal::{self, Modes};

use crate::output::Line;

/// Switches to the alternate screen, and turns the cursor and wrapping off.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal's modes before; static, so that the panic hook finds them. The inner `None`: stdin is not a
/// terminal.
static MODES_BEFORE: Mutex<Option<Option<Modes>>> = Mutex::new(None);

const CLEAR: &str = "\x1b[H\x1b[2J";

/// The terminal's alternate screen.
pub(crate) struct Screen {
    /// Has a fixed size, and is replaced when that changes: resizing asks the terminal for its cursor position,
    /// and the thread that reads keys would take the answer.
    terminal: Terminal<CrosstermBackend<Stdout>>,
    size: Size,
}

impl Screen {
    pub(crate) fn enter() -> io::Result<Self> {
        restore_on_panic();
        enter_screen()?;
        let size = size();
        // If this fails, there is no `Screen` yet that would be dropped.
        let terminal = cleared(size).inspect_err(|_| restore())?;
        Ok(Self { terminal, size })
    }

    /// Draws what has changed since the last call, in the terminal's present size, so that nothing flickers.
    pub(crate) fn draw(&mut self, lines: impl FnOnce(usize) -> Vec<Line>) -> io::Result<()> {
        if self.size != size() {
            self.size = size();
            self.terminal = cleared(self.size)?;
        }
        self.terminal.draw(|frame| fill(frame, lines)).map(drop)
    }

    /// As [`draw`](Self::draw), for lines that depend on the height too.
    pub(crate) fn draw_page(&mut self, lines: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        let height = usize::from(size().height);
        self.draw(|width| lines(width, height))
    }

    /// Restores the terminal and stops this process until it is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        system::process::suspend()?;
        enter_screen()?;
        self.terminal = cleared(self.size)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Clears the screen; the next draw is complete.
fn cleared(size: Size) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let mut stdout = io::stdout();
    stdout.write_all(CLEAR.as_bytes())?;
    stdout.flush()?;
    let viewport = Viewport::Fixed(Rect::new(0, 0, size.width, size.height));
    Terminal::with_options(CrosstermBackend::new(stdout), TerminalOptions { viewport })
}

fn size() -> Size {
    terminal::stdout_size().map_or(Size::new(80, 24), |size| Size::new(size.columns.max(1), size.rows.max(1)))
}

fn fill(frame: &mut Frame<'_>, lines: impl FnOnce(usize) -> Vec<Line>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = lines(width);
    if lines.len() > height {
        let shown = height.saturating_sub(1);
        let left = lines.len() - shown;
        lines.truncate(shown);
        lines.push(Line::from(format!("… {left} more lines; enlarge the window to see them")));
    }
    for (row, line) in (area.y..area.bottom()).zip(&lines) {
        frame.render_widget(line, Rect { y: row, height: 1, ..area });
    }
}

/// Enters the alternate screen. Keys are read at once and not echoed; those that send signals still do.
fn enter_screen() -> io::Result<()> {
    let mut before = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let modes = Modes::of_stdin();
    if let Some(modes) = &modes {
        modes.clone().with_keys_at_once().set()?;
    }
    *before = Some(modes);
    let mut stdout = io::stdout();
    stdout.write_all(ENTER.as_bytes())?;
    stdout.flush()
}

/// Restores the terminal; a second call does nothing.
fn restore() {
    let Some(modes) = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    // Fails only if the terminal is gone.
    let mut stdout = io::stdout();
    let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
    if let Some(modes) = modes {
        let _ = modes.set();
    }
}

/// Restores the terminal before a panic's message is printed, which would vanish with the alternate screen.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print_panic = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            print_panic(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn a_draw_replaces_the_last_one_and_counts_cut_lines() {
        let mut screen = ratatui::Terminal::new(TestBackend::new(20, 3)).unwrap();
        let mut show = |text: &'static str| {
            screen.draw(|frame| fill(frame, |_| text.lines().map(Line::from).collect())).unwrap();
            let buffer = screen.backend().buffer().clone();
            let row = |y: u16| (0..20).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
            (0..3).map(|y| row(y).trim_end().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(show("one\ntwo\nthree"), ["one", "two", "three"]);
        assert_eq!(show("1"), ["1", "", ""]);
        assert_eq!(show("1\n2\n3\n4\n5"), ["1", "2", "… 3 more lines; enla"]);
    }
}
