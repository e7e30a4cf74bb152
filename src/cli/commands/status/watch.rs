//! `nugget status --watch`: updates the status every second, in full screen, or as text if stdout is not a
//! terminal.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // Before the screen is entered, so that no signal is missed after that.
        let listen = |signal_: Signal| signal(SignalKind::from_raw(signal_.as_raw()));
        let mut interrupt = listen(Signal::INT)?;
        let mut terminate = listen(Signal::TERM)?;
        let mut hang_up = listen(Signal::HUP)?;
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !io::stdout().is_terminal() {
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = interrupt.recv() => return Ok(()),
                    _ = terminate.recv() => return Ok(()),
                    _ = hang_up.recv() => return Ok(()),
                }
                let text = output::styled(&lines(&read()?, output::terminal_width()));
                let mut stdout = anstream::stdout().lock();
                match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    written => written?,
                }
            }
        }
        let mut suspend = listen(Signal::TSTP)?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut status = read()?;
        let mut screen = Screen::enter()?;
        let mut quit = quit_key();
        loop {
            screen.draw(|width| lines(&status, width))?;
            tokio::select! {
                _ = ticks.tick() => status = read()?,
                _ = resized.recv() => {}
                _ = suspend.recv() => screen.suspend()?,
                Some(()) = quit.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
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
