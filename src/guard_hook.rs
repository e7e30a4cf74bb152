//! `nugget-guard`: the hook at every action. It does what `nugget guard` does, which it runs where a unit may bear on the
//! action; for all others, nearly all, it has little to load and reads two small files.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use brain::{Brain, Config};
use guard::{HookedAction, LINE_BYTES_MAX, Repositories};

fn main() -> ExitCode {
    // Whatever is wrong, the action goes on.
    let _ = run();
    ExitCode::SUCCESS
}

/// Ends if no unit bears on the action or something is wrong; else `nugget guard` takes this process's place.
fn run() -> Option<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if brain::config::is_disabled() || std::io::stdin().is_terminal() {
        return None;
    }
    let (config, _) = Config::load();
    if config.string("guard.enabled") == "off" {
        return None;
    }
    let until = Instant::now() + Duration::from_millis(config.number("guard.deadline_ms"));
    let line = system::file::read_stdin_line(LINE_BYTES_MAX, until)?;
    let hooked = HookedAction::parse(&line).ok()?;
    let folder = hooked.cwd.clone().or_else(|| set("CLAUDE_PROJECT_DIR").map(PathBuf::from))?;
    let action = hooked.action(&folder, set("HOME").as_deref(), &mut Repositories::default())?;
    let root = config.path("brain").unwrap_or_else(brain::paths::default_brain);
    if let Ok(brain) = Brain::open(&root)
        && guard::may_bear(&brain.derived_folder(), &action).is_ok_and(|bears| !bears)
    {
        return None;
    }
    // `nugget`, beside `nugget-guard`.
    let own = std::env::current_exe().ok()?;
    let name = own.file_name()?.to_str()?.replace("-guard", "");
    let program = own.with_file_name(name);
    let _ = system::process::become_with_input(Command::new(program).arg("guard"), &line);
    None
}
