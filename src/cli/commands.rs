//! One file for each command.

pub(crate) mod ask;
pub(crate) mod capture_session;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod dry_run;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod ledger;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod runtime;
pub(crate) mod serve;
pub(crate) mod session_start;
pub(crate) mod show;
pub(crate) mod spend;
pub(crate) mod status;
pub(crate) mod sync;
pub(crate) mod uninstall;
pub(crate) mod user_prompt;
pub(crate) mod why;
