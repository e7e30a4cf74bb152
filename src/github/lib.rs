//! The only crate that knows GitHub's API: pull requests, and the repository they are made against.
