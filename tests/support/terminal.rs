//! Runs a command in a pseudo-terminal, as a person does.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What a command wrote to its terminal, with line ends as in a file, and how it ended.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) status: ExitStatus,
}

impl Shown {
    /// The text without escape codes.
    pub(crate) fn plain(&self) -> String {
        let mut plain = String::new();
        let mut rest = self.text.as_str();
        while let Some((before, code)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            rest = code.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, after)| after);
        }
        plain + rest
    }
}

/// Runs a command whose stdin, stdout and stderr are a terminal of this size.
pub(crate) fn run_in_terminal(mut command: Command, columns: u16, rows: u16) -> Shown {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let stdio = || Stdio::from(terminal.try_clone().unwrap());
    command.stdin(stdio()).stdout(stdio()).stderr(stdio()).env_remove("COLUMNS").env("TERM", "xterm");
    let mut child = command.spawn().unwrap();
    // The command holds copies, and reading ends only when all are closed.
    drop((command, terminal));
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let mut controller = File::from(controller);
    // Linux answers EIO at the end.
    while let Ok(count @ 1..) = controller.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), None);
    Shown { text: String::from_utf8_lossy(&bytes).replace("\r\n", "\n"), status }
}
