//! A screen that is drawn anew again and again, and gives the terminal back as it was.

use std::io::{self, Write};

/// The other screen of a terminal, without a cursor and without wrapping: a line that is too long
/// is cut by the terminal, which alone knows how wide each character is.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Holds the terminal's other screen until it is dropped, in a panic as well.
pub(crate) struct Screen<W: Write> {
    out: W,
}

impl<W: Write> Screen<W> {
    pub(crate) fn enter(mut out: W) -> io::Result<Self> {
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Self { out })
    }

    /// Draws over what is there, in one write: nothing is blank for a moment, so nothing flickers.
    pub(crate) fn draw(&mut self, text: &str, rows: usize) -> io::Result<()> {
        self.out.write_all(frame(text, rows).as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = self.out.write_all(LEAVE.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// The bytes of one picture: home, each line cleared to its end, then everything below.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > rows { rows.saturating_sub(1) } else { lines.len() };
    let mut frame = "\x1b[H".to_owned();
    for line in &lines[..shown] {
        frame.push_str(line);
        frame.push_str("\x1b[K\n");
    }
    if shown < lines.len() {
        frame.push_str(&format!("… {} more lines\x1b[K", lines.len() - shown));
    } else if shown == rows {
        // The last row has no line below it to go to: that would scroll.
        frame.truncate(frame.len() - 1);
    }
    frame.push_str("\x1b[J");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_drawn_over_the_last_one_and_never_scrolls() {
        assert_eq!(frame("a\nb\n", 5), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(frame("a\nb\n", 2), "\x1b[Ha\x1b[K\nb\x1b[K\x1b[J");
        assert_eq!(frame("a\nb\nc\n", 2), "\x1b[Ha\x1b[K\n… 2 more lines\x1b[K\x1b[J");
        assert_eq!(frame("", 2), "\x1b[H\x1b[J");
    }

    #[test]
    fn the_terminal_is_given_back_also_when_drawing_panics() {
        let mut out = Vec::new();
        let drawn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut screen = Screen::enter(&mut out).unwrap();
            screen.draw("a\n", 3).unwrap();
            panic!("in the midst of it");
        }));
        assert!(drawn.is_err());
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with(ENTER) && text.ends_with(LEAVE), "{text:?}");
    }
}
