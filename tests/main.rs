//! One binary for all tests that use nugget from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

mod answers;
mod archiving;
mod batch;
mod brain_questions;
mod command_line;
mod context;
mod deduplication;
mod delivery;
mod doctor;
mod documentation;
mod echo;
mod embeddings;
mod export;
mod failpoints;
mod flywheel;
mod git_states;
mod github;
mod guard;
mod import;
mod install;
mod install_script;
mod layout;
mod learning;
mod local_models;
mod mcp;
mod memories;
mod merged_by_hand;
mod notes;
mod pictures;
mod precision;
mod protocol;
mod reading;
mod reflection;
mod review;
mod runtime;
mod safety;
mod secrets;
mod served;
mod server_start;
mod session_start;
mod sessions;
mod settings;
mod status;
mod suites;
mod sweep;
mod team;
mod terminal;
mod tour;
mod transcripts;
mod transport;
mod two_clones;
mod unit_changes;
