//! Tokio runtimes for commands, which themselves are synchronous.

use tokio::runtime::{Builder, Runtime};

/// Runs the service: two worker threads.
pub(crate) fn multi_thread() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Runs a few requests on the calling thread.
pub(crate) fn current_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
