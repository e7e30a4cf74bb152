//! What all requests of one server share: its parts, its limits and its numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};
use tracing::Span;

use crate::body_memory::BodyMemory;
use crate::jwt::JwtVerifier;
use crate::metrics::{Metrics, Step};
use crate::parts::{Metric, Parts, Unavailable};
use crate::problem::Problem;
use crate::rate_limit::RateLimit;
use crate::settings::Settings;

/// When a client that was turned away is to come back.
pub(crate) const RETRY_SOON: Duration = Duration::from_secs(1);
/// The same after a call took too long: the database's side is not well.
const RETRY_LATER: Duration = Duration::from_secs(5);

/// A database that takes longer to say that it is there, or for its numbers, is not there.
const READY_WITHIN: Duration = Duration::from_secs(3);
/// How long an answer on readiness holds.
const READY_FOR: Duration = Duration::from_millis(500);

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// Scheme, host and port, without a slash at the end.
    pub(crate) public_url: String,
    pub(crate) parts: Parts,
    pub(crate) metrics: Metrics,
    pub(crate) jwt: Option<JwtVerifier>,
    pub(crate) question_rate: RateLimit,
    pub(crate) capture_rate: RateLimit,
    /// Free places for requests.
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) bodies: BodyMemory,
    /// Free calls of the parts.
    calls: Arc<Semaphore>,
    pub(crate) connections: AtomicUsize,
    pub(crate) is_draining: AtomicBool,
    /// Whether the database's side was ready, and when. Held by the one request that asks it.
    ready: Mutex<Option<(Instant, bool)>>,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        public_url: String,
        jwt: Option<JwtVerifier>,
        parts: Parts,
    ) -> Self {
        let limits = &settings.limits;
        Self {
            public_url,
            parts,
            metrics: Metrics::default(),
            jwt,
            question_rate: RateLimit::new(limits.questions),
            capture_rate: RateLimit::new(limits.captures),
            requests: Arc::new(Semaphore::new(limits.requests_max)),
            bodies: BodyMemory::new(limits),
            calls: Arc::new(Semaphore::new(limits.calls_max)),
            connections: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            ready: Mutex::default(),
            settings,
        }
    }

    /// Calls the database's side on a thread that may block. A call that takes too long is given up, but keeps its
    /// place until it ends, so that slow calls cannot pile up.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        step: Step,
        work: impl FnOnce(&Parts) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let begun = Instant::now();
        let (parts, span) = (self.parts.clone(), Span::current());
        let calling = async {
            // Never closed.
            let place = Arc::clone(&self.calls).acquire_owned().await;
            let work = move || {
                let _place = place;
                span.in_scope(|| work(&parts))
            };
            tokio::task::spawn_blocking(work).await
        };
        let called = tokio::time::timeout(self.settings.limits.call_timeout, calling).await;
        self.metrics.observe(step, begun.elapsed());
        match called {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => {
                tracing::error!(?step, "a call has crashed");
                Err(Problem::busy("crashed", "the request could not be worked on", RETRY_LATER))
            }
            Err(_) => {
                tracing::warn!(?step, "a call took too long");
                Err(Problem::busy("too_slow", "the request took too long and was given up", RETRY_LATER))
            }
        }
    }

    /// Whether the database's side is ready. Anyone may ask, so it is asked from time to time only.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut ready = self.ready.lock().await;
        if let Some((_, known)) = ready.filter(|(asked, _)| asked.elapsed() < READY_FOR) {
            return known;
        }
        let asking = self.call(Step::Health, |parts| parts.health.ready());
        let checked = tokio::time::timeout(READY_WITHIN, asking).await.ok().and_then(Result::ok);
        let is_ready = checked.is_some_and(|ready| ready.map_err(|error| unavailable(&error)).is_ok());
        *ready = Some((Instant::now(), is_ready));
        is_ready
    }

    /// The database's numbers; none if it does not answer soon, as who reads them has the server's own all the same.
    pub(crate) async fn database_metrics(&self) -> Vec<Metric> {
        let asking = self.call(Step::Health, |parts| parts.health.metrics());
        tokio::time::timeout(READY_WITHIN, asking).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// All numbers of the present.
    pub(crate) fn gauges(&self) -> Vec<Metric> {
        let gauge = |name, help, value: usize| Metric {
            name,
            help,
            is_counter: false,
            labels: Vec::new(),
            value: value as f64,
        };
        let limits = &self.settings.limits;
        let requests = limits.requests_max - self.requests.available_permits();
        let calls = limits.calls_max - self.calls.available_permits();
        vec![
            gauge("nugget_http_requests_open", "Requests that are worked on.", requests),
            gauge(
                "nugget_http_connections_open",
                "Open connections.",
                self.connections.load(Ordering::Relaxed),
            ),
            gauge("nugget_http_calls_open", "Calls of the database's side.", calls),
            gauge(
                "nugget_http_body_bytes_reserved",
                "Memory reserved for bodies.",
                self.bodies.reserved_bytes(),
            ),
        ]
    }
}

/// The answer when the database's side says that it cannot.
pub(crate) fn unavailable(error: &Unavailable) -> Problem {
    tracing::warn!(error = error as &dyn std::error::Error, "a part of the server is not available");
    Problem::busy("unavailable", "the server cannot reach what it needs for this now", error.retry_after)
}
