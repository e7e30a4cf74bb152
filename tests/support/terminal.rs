//! Runs a command in a pseudo-terminal, as a person does.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// What a command wrote to its terminal, with line ends as in a file, and how it ended.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) status: ExitStatus,
    /// Whether the terminal shows what is typed next.
    pub(crate) is_echoing: bool,
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
pub(crate) fn run_in_terminal(command: Command, columns: u16, rows: u16) -> Shown {
    InTerminal::start(command, columns, rows).end()
}

/// A command that runs in a terminal, for a test that types.
pub(crate) struct InTerminal {
    child: Child,
    keys: File,
    reader: JoinHandle<()>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl InTerminal {
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let stdio = || Stdio::from(terminal.try_clone().unwrap());
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).env_remove("COLUMNS").env("TERM", "xterm");
        let child = command.spawn().unwrap();
        // The command holds copies, and reading ends only when all are closed.
        drop((command, terminal));
        let mut controller = File::from(controller);
        let keys = controller.try_clone().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let reader = {
            let written = Arc::clone(&written);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // Linux answers EIO at the end.
                while let Ok(count @ 1..) = controller.read(&mut buffer) {
                    written.lock().unwrap().extend_from_slice(&buffer[..count]);
                }
            })
        };
        Self { child, keys, reader, written }
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// What was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Whether the terminal shows what is typed.
    pub(crate) fn is_echoing(&self) -> bool {
        tcgetattr(&self.keys).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Does to the command what Ctrl-C does in a terminal that it controls.
    pub(crate) fn interrupt(&self) {
        system::process::interrupt(self.child.id());
    }

    /// Waits for the command to end.
    pub(crate) fn end(mut self) -> Shown {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None);
        let is_echoing = self.is_echoing();
        self.reader.join().unwrap();
        let text = String::from_utf8_lossy(&self.written.lock().unwrap()).replace("\r\n", "\n");
        Shown { text, status, is_echoing }
    }
}
