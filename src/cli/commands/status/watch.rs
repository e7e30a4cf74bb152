//! `nugget status --watch`: the picture again every second, on a screen of its own, or as text where stdout
//! is no terminal.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::Picture;
use crate::error::CliError;
use crate::output;
use crate::tui::Screen;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// Looks and shows until somebody has seen enough.
pub(super) fn watch(look: impl Fn() -> Result<Picture, CliError>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watched = runtime.block_on(async {
        // Before the screen is taken, so that no signal finds it taken and nobody listening.
        let listen = |signal_: Signal| signal(SignalKind::from_raw(signal_.as_raw()));
        let mut interrupt = listen(Signal::INT)?;
        let mut terminate = listen(Signal::TERM)?;
        let mut hang_up = listen(Signal::HUP)?;
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !io::stdout().is_terminal() {
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = interrupt.recv() => return Ok(()),
                    _ = terminate.recv() => return Ok(()),
                    _ = hang_up.recv() => return Ok(()),
                }
                let text = output::styled(&look()?.lines(output::terminal_width()));
                let mut stdout = anstream::stdout().lock();
                match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    written => written?,
                }
            }
        }
        let mut suspend = listen(Signal::TSTP)?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut picture = look()?;
        let mut screen = Screen::enter()?;
        let mut quit = quit_key();
        loop {
            screen.draw(|width| picture.lines(width))?;
            tokio::select! {
                _ = ticks.tick() => picture = look()?,
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
    watched
}

/// Says when somebody presses q or Ctrl-D. The thread waits for a key for as long as the process lives.
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
