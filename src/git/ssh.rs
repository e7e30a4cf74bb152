//! What the person's ssh makes of a host's name.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::passed_variables;

/// How long ssh may take to read its configuration, which may run programs of the person's.
const DEADLINE: Duration = Duration::from_secs(2);

/// The host that ssh connects to for a name: another one if that is an alias in the person's ssh configuration. Asks no
/// network. `None` if ssh cannot tell.
pub fn ssh_host(name: &str) -> Option<String> {
    let mut command = Command::new("ssh");
    command.args(["-G", "--", name]).current_dir("/").env_clear().envs(passed_variables(true));
    let output = system::process::run(&mut command, Vec::new(), Instant::now() + DEADLINE).ok()?;
    let settings = String::from_utf8(output.stdout).ok().filter(|_| output.succeeded == Some(true))?;
    settings.lines().find_map(|line| line.strip_prefix("hostname ")).map(|host| host.trim().to_owned())
}
