//! Tests against a real PostgreSQL; see [`support`].

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

mod access;
mod crash;
mod isolation;
mod leases;
mod migrations;
mod support;

/// The suite of all ledgers.
mod ledger {
    queue::ledger_suite!(crate::support::TeamUnderTest::new);
}
