//! `nugget man`: prints the manual or writes its pages.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::{output, pager};

const AFTER: &str = "\
Examples:
  nugget man
  nugget man ~/.local/share/man/man1      # a page for each command";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ManArgs {
    /// The folder to write all pages to; without it the main page is printed
    folder: Option<PathBuf>,
}

impl ManArgs {
    pub(crate) fn run(self, context: &Context, command: clap::Command) -> Result<(), CliError> {
        let Some(folder) = self.folder else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            if io::stdout().is_terminal()
                && let Some(rendered) = pager::render_manual(&page)
            {
                return pager::print(context, &rendered);
            }
            return output::print_verbatim(&String::from_utf8_lossy(&page));
        };
        if let Some(name) = folder.to_str().filter(|name| command.find_subcommand(name).is_some()) {
            return Err(CliError::new(format!(
                "{name} is a command, and this would write all pages into ./{name}"
            ))
            .code(USAGE)
            .hint(format!(
                "`nugget help {name}` prints its page; `nugget man ./{name}` writes into that folder"
            )));
        }
        let failed = |error: std::io::Error| {
            CliError::new(format!("failed to write to {}: {error}", folder.display()))
                .hint("give a folder that you may write to")
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        clap_mangen::generate_to(command, &folder).map_err(failed)?;
        output::print(&format!(
            "wrote the pages to {}; `man nugget` finds them if that is in your manpath\n",
            folder.display()
        ))
    }
}
