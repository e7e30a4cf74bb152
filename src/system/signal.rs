//! Signals that a process waits for.

use std::io;

use rustix::process::Signal as Number;
use tokio::signal::unix::{self, SignalKind};

/// A signal that nugget acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGTSTP: Ctrl-Z.
    Suspend,
    /// SIGWINCH: the terminal has another size.
    Resize,
}

/// Receives a signal, which has no other effect on the process from then on, even after this is dropped.
#[derive(Debug)]
pub struct Listener(unix::Signal);

impl Listener {
    /// Completes when the signal comes, or has come since the last call.
    pub async fn recv(&mut self) {
        if self.0.recv().await.is_none() {
            // Never happens by tokio's documentation.
            std::future::pending().await
        }
    }
}

/// Listens to a signal from this call on. Needs a tokio runtime.
///
/// # Errors
/// When the system refuses.
pub fn listen(signal: Signal) -> io::Result<Listener> {
    let number = match signal {
        Signal::Interrupt => Number::INT,
        Signal::Terminate => Number::TERM,
        Signal::HangUp => Number::HUP,
        Signal::Suspend => Number::TSTP,
        Signal::Resize => Number::WINCH,
    };
    unix::signal(SignalKind::from_raw(number.as_raw())).map(Listener)
}

/// Listens at once, and completes with the name of the first signal that asks the process to end.
///
/// # Errors
/// When a signal cannot be listened to.
pub fn end_signal() -> io::Result<impl Future<Output = &'static str>> {
    let mut interrupt = listen(Signal::Interrupt)?;
    let mut terminate = listen(Signal::Terminate)?;
    let mut hang_up = listen(Signal::HangUp)?;
    Ok(async move {
        tokio::select! {
            () = interrupt.recv() => "SIGINT",
            () = terminate.recv() => "SIGTERM",
            () = hang_up.recv() => "SIGHUP",
        }
    })
}
