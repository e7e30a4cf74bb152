//! Runs blocking and long work on threads of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ractor::ActorProcessingErr;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

/// Runs blocking work on a thread of its own; a panic there becomes the caller's.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match try_run_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs blocking work on a thread of its own. The work goes on when its caller is dropped.
pub(crate) async fn try_run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(test)]
    if let Some(duration) = crate::testing::simulation::duration_of_work(&work) {
        let work = async move {
            tokio::time::sleep(duration).await;
            work()
        };
        return tokio::spawn(work).await;
    }
    tokio::task::spawn_blocking(work).await
}

/// Runs a future that may compute for long between its waits on a thread of its own, so that its caller
/// can be killed at any time. The future is then dropped at its next wait.
pub(crate) async fn run_on_own_thread<F>(work: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(test)]
    if crate::testing::simulation::is_on() {
        return work.await;
    }
    let (_caller, caller_dropped) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let output = run_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = caller_dropped => None,
                output = work => Some(output),
            }
        })
    });
    match output.await {
        Some(output) => output,
        None => std::future::pending().await,
    }
}

/// Runs blocking work on a thread of its own with a low priority. It goes on when its caller is dropped.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ActorProcessingErr> {
    let (reply, answer) = oneshot::channel();
    let work = move || {
        system::process::lower_priority();
        let _ = reply.send(work());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    answer.await.map_err(|_| "the thread has panicked".into())
}

/// Sets its flag when it is dropped, as when the actor that holds it is killed.
pub(crate) struct Cancellation(pub(crate) Arc<AtomicBool>);

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Work that a process repeats on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Recurring {
    pub(crate) begun: Option<Instant>,
    running: Option<JoinHandle<()>>,
}

impl Recurring {
    /// Whether the work has not begun within this time.
    pub(crate) fn is_due(&self, every: Duration) -> bool {
        self.begun.is_none_or(|begun| begun.elapsed() >= every)
    }

    pub(crate) fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) {
        self.begun = Some(Instant::now());
        self.running = std::thread::Builder::new().name(name.to_owned()).spawn(work).ok();
    }

    /// Whether the work is running, and has not for longer than is worth waiting for.
    pub(crate) fn is_running(&self, patience: Duration) -> bool {
        self.running.as_ref().is_some_and(|thread| !thread.is_finished()) && !self.is_due(patience)
    }
}
