//! `nugget index`: brings the derived index up to date.

use std::process::ExitCode;
use std::time::Duration;

use actors::indexing::Advance;
use actors::{AskError, Roles, Service};
use index::{Mode, Report};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::sync::watch;

use crate::fault::Fault;
use crate::output;
use crate::session::Door;

/// A first index of a large brain takes its time: a thousand units take some three minutes.
const DEADLINE: Duration = Duration::from_secs(6 * 3600);

const AFTER: &str = "\
The index is derived from the files and lies in the brain's .nugget folder, which git ignores.
Deleting that folder loses nothing.

Examples:
  nugget index
  nugget index --rebuild";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Read and embed everything again
    #[arg(long)]
    rebuild: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, door: &Door) -> Result<ExitCode, Fault> {
        door.log_to_stderr();
        let config = door.config()?;
        let brain = door.brain(&config)?;
        let setup = door.setup(&config, &brain)?;
        let mode = if self.rebuild { Mode::Rebuild } else { Mode::Changed };
        let (report, problems, counts) = super::ask::runtime()?.block_on(async {
            let service = Service::start(&setup, Roles::Read).await?;
            let report = refresh(&service, mode).await?;
            let pinned = service.index().pin().map_err(actors::StartError::Index)?;
            let problems = pinned.problems().map_err(actors::StartError::Index)?;
            let counts = (pinned.generation(), pinned.units_count(), pinned.chunks_count());
            drop(pinned);
            service.shutdown().await;
            Ok::<_, Fault>((report, problems, counts))
        })?;
        let (generation, units, chunks) = counts;
        if self.json {
            let listed: Vec<_> = problems
                .iter()
                .map(|problem| json!({ "path": problem.path, "line": problem.line, "what": problem.what }))
                .collect();
            output::print_json(&json!({
                "changed": report.is_some(),
                "generation": generation,
                "units": units,
                "chunks": chunks,
                "embedded": report.map_or(0, |report| report.embedded),
                "problems": listed,
            }))?;
        } else {
            output::print(&match report {
                Some(Report { embedded, changed, removed, .. }) => format!(
                    "indexed {units} units in {chunks} chunks: {changed} files changed, {removed} removed, {embedded} chunks embedded\n"
                ),
                None => format!("the index is up to date: {units} units in {chunks} chunks\n"),
            })?;
            for problem in &problems {
                output::note(&format!(
                    "skipped {}:{}: {}",
                    problem.path,
                    problem.line,
                    output::safe(&problem.what)
                ));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Brings the index up to date, with a bar once there is something to show.
pub(crate) async fn refresh(service: &Service, mode: Mode) -> Result<Option<Report>, AskError> {
    let (sender, mut receiver) = watch::channel(Advance::Starting);
    let bar: ProgressBar = output::progress_bar("indexing");
    let showing = bar.clone();
    let shown = tokio::spawn(async move {
        while receiver.changed().await.is_ok() {
            let advance = *receiver.borrow_and_update();
            match advance {
                Advance::Starting => {}
                Advance::Reading { done, of } => show(&showing, "reading", done, of),
                Advance::Embedding { done, of } => show(&showing, "embedding", done, of),
                Advance::Publishing => showing.set_message("writing"),
            }
        }
    });
    let report = service.refresh(mode, Some(sender), DEADLINE).await;
    shown.abort();
    bar.finish_and_clear();
    report
}

fn show(bar: &ProgressBar, what: &'static str, done: usize, of: usize) {
    bar.set_message(what);
    bar.set_length(of as u64);
    bar.set_position(done as u64);
}
