//! Runs blocking and long work on threads of its own.

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
    if let Some(duration) = crate::testing::simulation::duration_of_work() {
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
