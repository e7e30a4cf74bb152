//! Shows what is longer than the screen in the person's pager.

use std::io::Write as _;
use std::process::{Command, Stdio};

use system::signal::{self, Signal};

use crate::context::Context;
use crate::error::CliError;
use crate::{async_runtime, output};

/// Quits if the text fits on the screen, shows colours, and leaves the text on the terminal.
const PAGER: &str = "less -FRX";
/// The shell's exit code for a program that it does not find.
const NOT_FOUND: i32 = 127;

/// Prints a text for a person: with a pager if stdout is a terminal and the text is longer than that.
pub(crate) fn print(context: &Context, text: &str) -> Result<(), CliError> {
    let text = output::printable(text);
    let text = &output::for_terminal(&text);
    match command().filter(|_| context.has_pager && is_longer_than_the_screen(text)) {
        Some(pager) => show(&pager, text),
        None => output::print(text),
    }
}

/// The command of `PAGER`; `None` if that is `cat` or empty.
fn command() -> Option<String> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| PAGER.to_owned());
    Some(pager.trim().to_owned()).filter(|pager| !pager.is_empty() && pager != "cat")
}

fn is_longer_than_the_screen(text: &str) -> bool {
    let Some(height) = output::terminal_height() else { return false };
    let width = output::terminal_width().max(1);
    let text = anstream::adapter::strip_str(text).to_string();
    let rows: usize = text.lines().map(|line| output::width(line).div_ceil(width).max(1)).sum();
    // The last line is the shell's.
    rows >= height
}

fn show(pager: &str, text: &str) -> Result<(), CliError> {
    // Ctrl-C is the pager's: with a handler it does not end this process, which would leave the terminal to both the
    // pager and the shell.
    let runtime = async_runtime::current_thread()?;
    let entered = runtime.enter();
    let _interrupts = signal::listen(Signal::Interrupt)?;
    drop(entered);
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    // As git does for a plain `PAGER=less`.
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let mut child = command.spawn()?;
    let is_plain = anstream::AutoStream::choice(&std::io::stdout()) == anstream::ColorChoice::Never;
    let shown = if is_plain { anstream::adapter::strip_str(text).to_string() } else { text.to_owned() };
    if let Some(mut stdin) = child.stdin.take() {
        // The person may have left before all was written.
        let _ = stdin.write_all(shown.as_bytes());
    }
    if child.wait()?.code() == Some(NOT_FOUND) {
        return output::print(text);
    }
    Ok(())
}

/// A page of the manual as `man` shows it, in the terminal's width; `None` if that is not there.
pub(crate) fn render_manual(page: &[u8]) -> Option<String> {
    let mut man = Command::new("man")
        .args(["-P", "cat", "-l", "-"])
        .env("MANWIDTH", output::terminal_width().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    man.stdin.take()?.write_all(page).ok()?;
    let rendered = man.wait_with_output().ok().filter(|rendered| rendered.status.success())?;
    Some(String::from_utf8_lossy(&rendered.stdout).into_owned()).filter(|text| !text.trim().is_empty())
}
