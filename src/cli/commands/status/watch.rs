//! `nugget status --watch`: updates the status every second, in full screen, or as text if stdout is not a
//! terminal.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::pin::pin;
use std::time::Duration;

use system::signal::{self, Signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::async_runtime;
use crate::error::CliError;
use crate::output::{self, Line};
use crate::tui::Screen;

/// The time between two updates.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads the status and shows its lines, made for a width, until the user quits.
pub(super) fn watch<S>(
    read: impl Fn() -> Result<S, CliError>,
    lines: impl Fn(&S, usize) -> Vec<Line>,
) -> Result<(), CliError> {
    let runtime = async_runtime::current_thread()?;
    let result = runtime.block_on(async {
        // Before the screen is entered, so that no signal is missed after that.
        let mut end_signal = pin!(signal::end_signal()?);
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !io::stdout().is_terminal() {
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut end_signal => return Ok(()),
                }
                let text = output::styled(&lines(&read()?, output::terminal_width()));
                let mut stdout = anstream::stdout().lock();
                match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    written => written?,
                }
            }
        }
        let mut suspend = signal::listen(Signal::Suspend)?;
        let mut resized = signal::listen(Signal::Resize)?;
        let mut status = read()?;
        let mut screen = Screen::enter()?;
        let mut quit = quit_key();
        loop {
            screen.draw(|width| lines(&status, width))?;
            tokio::select! {
                _ = ticks.tick() => status = read()?,
                () = resized.recv() => {}
                () = suspend.recv() => screen.suspend()?,
                Some(()) = quit.recv() => return Ok(()),
                _ = &mut end_signal => return Ok(()),
            }
        }
    });
    runtime.shutdown_background();
    result
}

/// Receives a message when q or Ctrl-D is pressed. The thread waits for keys until the process ends.
fn quit_key() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    if io::stdin().is_terminal() {
        std::thread::spawn(move || {
            for key in io::stdin().lock().bytes().map_while(Result::ok) {
                if matches!(key, b'q' | b'Q' | 4) && sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}
