//! What the output of a command says about its success.

/// Whether an output reports a failure although the exit code may be 0, as with `cargo test | tail`.
pub(crate) fn reports_failure(output: &str) -> bool {
    const MARKS: [&str; 8] = [
        "test result: FAILED",
        "--- FAIL:",
        "npm ERR!",
        "Traceback (most recent call last)",
        "panicked at ",
        "error: could not compile",
        "Tests failed",
        "ELIFECYCLE",
    ];
    MARKS.iter().any(|mark| output.contains(mark))
        || output.lines().any(|line| line.starts_with("FAILED ") || line.starts_with("FAIL "))
}
