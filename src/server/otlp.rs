//! Sends traces and metrics to an OpenTelemetry collector over OTLP/HTTP, if the environment names one.
//!
//! The variables are the standard ones: `OTEL_EXPORTER_OTLP_ENDPOINT` (without it nothing is sent),
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_METRIC_EXPORT_INTERVAL`. What is sent are the spans of
//! requests, which have a route and a status, and the numbers of `/metrics`.

use std::sync::{Arc, OnceLock, Weak};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, filter::Targets};

use crate::Error;
use crate::parts::Metric;
use crate::shared::Shared;

const NAME: &str = "nugget";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The global meter's provider, which the global one does not give back.
static METRICS: OnceLock<SdkMeterProvider> = OnceLock::new();

/// The connection to a collector. Make it before the server starts, and end it after.
pub struct Telemetry {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Telemetry {
    /// The connection that the environment names, or `None` if it names none. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Telemetry`] if the address or another variable cannot be used.
    pub fn from_environment() -> Result<Option<Self>, Error> {
        if std::env::var_os(ENDPOINT).is_none_or(|endpoint| endpoint.is_empty()) {
            return Ok(None);
        }
        // Fails if it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let unusable = |error: opentelemetry_otlp::ExporterBuildError| Error::Telemetry(Box::new(error));
        let spans = SpanExporter::builder().with_http().build().map_err(unusable)?;
        let numbers = MetricExporter::builder().with_http().build().map_err(unusable)?;
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder().build(),
            None => Resource::builder().with_service_name(NAME).build(),
        };
        let traces =
            SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build();
        let metrics =
            SdkMeterProvider::builder().with_periodic_exporter(numbers).with_resource(resource).build();
        global::set_meter_provider(metrics.clone());
        let _ = METRICS.set(metrics.clone());
        Ok(Some(Self { traces, metrics }))
    }

    /// The layer that sends the server's spans. Those of other crates stay here.
    pub fn layer<S>(&self) -> Filtered<impl Layer<S> + use<S>, Targets, S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let layer = tracing_opentelemetry::layer().with_tracer(self.traces.tracer(NAME));
        let own = Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::INFO);
        layer.with_filter(own)
    }

    /// Sends what is left. Blocks for some seconds if the collector does not answer.
    pub fn shutdown(self) {
        for ended in [self.traces.shutdown(), self.metrics.shutdown()] {
            if let Err(error) = ended {
                tracing::warn!(%error, "telemetry could not be sent");
            }
        }
    }
}

/// Lets the global meter read a server's numbers, as long as it lives. The meter reads on a thread of its own, which
/// may block.
pub(crate) fn observe(shared: &Arc<Shared>) {
    let meter = global::meter(NAME);
    let mut instruments: Vec<&'static str> = Vec::new();
    let known =
        shared.metrics.counters().into_iter().chain(shared.gauges()).chain(shared.parts.health.metrics());
    for metric in known.chain(own_counters()) {
        if instruments.contains(&metric.name) {
            continue;
        }
        instruments.push(metric.name);
        let (server, name) = (Arc::downgrade(shared), metric.name);
        let read = move |add: &dyn Fn(f64, &[KeyValue])| {
            for metric in numbers(&server).into_iter().filter(|metric| metric.name == name) {
                let labels = metric.labels.into_iter().map(|(name, value)| KeyValue::new(name, value));
                add(metric.value, &labels.collect::<Vec<_>>());
            }
        };
        if metric.is_counter {
            let counter = meter.f64_observable_counter(name).with_description(metric.help);
            counter.with_callback(move |to| read(&|value, labels| to.observe(value, labels))).build();
        } else {
            let gauge = meter.f64_observable_gauge(name).with_description(metric.help);
            gauge.with_callback(move |to| read(&|value, labels| to.observe(value, labels))).build();
        }
    }
}

/// Sends the numbers of now, if there is a collector. Blocks for some seconds if it does not answer.
pub(crate) fn send_numbers() {
    if let Some(metrics) = METRICS.get()
        && let Err(error) = metrics.force_flush()
    {
        tracing::warn!(%error, "metrics could not be sent");
    }
}

/// The server's counters, which have no values before the first request.
fn own_counters() -> impl Iterator<Item = Metric> {
    let names = [
        ("nugget_http_requests_total", "Requests by route and status."),
        ("nugget_http_refused_total", "Refused requests by reason."),
        ("nugget_step_count", "How often a step of requests was done."),
        ("nugget_step_seconds_total", "Seconds of the steps of requests."),
    ];
    names.into_iter().map(|(name, help)| counter(name, help, Vec::new(), 0.0))
}

fn counter(
    name: &'static str,
    help: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
) -> Metric {
    Metric { name, help, is_counter: true, labels, value }
}

fn numbers(server: &Weak<Shared>) -> Vec<Metric> {
    let Some(shared) = server.upgrade() else { return Vec::new() };
    let mut numbers = shared.metrics.counters();
    numbers.extend(shared.gauges());
    numbers.extend(shared.parts.health.metrics());
    for (step, count, seconds) in shared.metrics.step_totals() {
        let labels = vec![("step", step.to_owned())];
        numbers.push(counter("nugget_step_count", "", labels.clone(), count as f64));
        numbers.push(counter("nugget_step_seconds_total", "", labels, seconds));
    }
    numbers
}
