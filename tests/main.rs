//! One binary for every test that looks at nugget from outside.

mod support;

mod brain_questions;
mod command_line;
mod flywheel;
mod git_states;
mod layout;
mod mcp;
mod transcripts;
