//! The server over real HTTP on loopback, with a database's side in memory.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod client;
mod conformance;
mod hostile;
mod jwt;
mod lifecycle;
mod otlp;
mod statuses;
mod support;
mod tls;
