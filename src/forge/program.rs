//! The `git` program, run so that nothing of the surroundings changes what it does.
