//! The terminal's size, and how it reads keys.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The size of a terminal in cells. A serial line may say 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Cells in a row.
    pub columns: u16,
    /// Rows on the screen.
    pub rows: u16,
}

/// The size of the terminal that stdout is.
pub fn stdout_size() -> Option<Size> {
    size(io::stdout())
}

/// The size of the terminal that stderr is.
pub fn stderr_size() -> Option<Size> {
    size(io::stderr())
}

fn size(of: impl AsFd) -> Option<Size> {
    let size = tcgetwinsize(of).ok()?;
    Some(Size { columns: size.ws_col, rows: size.ws_row })
}

/// How the terminal that stdin is reads keys.
#[derive(Clone, Debug)]
pub struct Modes(Termios);

impl Modes {
    /// The present modes; `None` if stdin is not a terminal.
    pub fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        if stdin.is_terminal() { tcgetattr(&stdin).ok().map(Self) } else { None }
    }

    /// These modes, but keys are read at once and not echoed; those that send signals still do.
    #[must_use]
    pub fn with_keys_at_once(mut self) -> Self {
        self.0.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        self
    }

    /// These modes, but what is typed is not shown.
    #[must_use]
    pub fn without_echo(mut self) -> Self {
        self.0.local_modes.remove(LocalModes::ECHO);
        self
    }

    /// Sets these modes.
    ///
    /// # Errors
    /// When stdin is no terminal any more.
    pub fn set(&self) -> io::Result<()> {
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &self.0)?)
    }
}

/// Lets a read of stdin return after a tenth of a second without a key.
///
/// # Errors
/// When stdin is not a terminal.
pub fn time_reads_out() -> io::Result<()> {
    let mut modes = tcgetattr(io::stdin())?;
    modes.special_codes[SpecialCodeIndex::VMIN] = 0;
    modes.special_codes[SpecialCodeIndex::VTIME] = 1;
    Modes(modes).set()
}

/// Completes when the other end of stdout is closed, where that can be noticed without writing: for a pipe or a
/// socket. A failed write notices it everywhere. Needs a tokio runtime.
pub async fn stdout_closed() {
    let watch = async {
        #[expect(
            deprecated,
            reason = "its replacement is unsafe; nothing closes stdout while the process lives"
        )]
        let stdout = AsyncFd::with_interest(io::stdout(), Interest::WRITABLE)?;
        loop {
            let mut guard = stdout.writable().await?;
            if guard.ready().is_write_closed() {
                return io::Result::Ok(());
            }
            guard.clear_ready();
        }
    };
    if watch.await.is_err() {
        std::future::pending().await
    }
}
