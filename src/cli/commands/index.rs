//! `nugget index`: brings the derived index up to date.

use actors::{Roles, Service, Setup};
use index::{Mode, Report};
use serde_json::json;

use crate::context::Context;
use crate::error::CliError;
use crate::index_update::{self, DEADLINE};
use crate::output::{self, counted, thousands};
use crate::{async_runtime, settings};

const AFTER: &str = "\
The index is derived from the brain's files. It is in the folder .nugget, which
git ignores. Deleting that folder loses nothing.

Examples:
  nugget index
  nugget index --rebuild";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct IndexArgs {
    /// Read everything again; vectors of equal texts are kept
    #[arg(long)]
    rebuild: bool,
    /// Detach from the terminal, print nothing, and exit if another process is doing it
    #[arg(long, hide = true, conflicts_with = "json")]
    background: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl IndexArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, _) = context.open()?;
        let setup = context.setup(&config, &brain)?;
        if self.background {
            return update_in_background(context, &setup);
        }
        context.log_to_stderr();
        embed::check_settings(&setup.embed)?;
        let mode = if self.rebuild { Mode::Rebuild } else { Mode::Changed };
        let (report, problems, counts) = async_runtime::multi_thread()?.block_on(async {
            let service = Service::start(&setup, Roles::Read).await?;
            if let Some(present) = service.outdated_index_model() {
                let (present, next) = (output::safe(&present), output::safe(&embed::model_name(&setup.embed)));
                output::note(&format!(
                    "embedding everything again: the index is of {present}, the settings name {next}; the present index answers until then"
                ));
            }
            let report = index_update::update(&service, mode).await;
            let report = report.map_err(|error| settings::model_error(error, &setup.embed))?;
            let snapshot = service.index().pin_without_vectors().map_err(actors::StartError::Index)?;
            let problems = snapshot.problems().map_err(actors::StartError::Index)?;
            let counts = (snapshot.generation(), snapshot.units_count(), snapshot.chunks_count());
            drop(snapshot);
            service.shutdown().await;
            Ok::<_, CliError>((report, problems, counts))
        })?;
        let (generation, units, chunks) = counts;
        if self.json {
            return output::print_json(&json!({
                "changed": report.is_some(),
                "generation": generation,
                "units": units,
                "chunks": chunks,
                "embedded": report.map_or(0, |report| report.embedded),
                "problems": problems,
            }));
        }
        let size = format!("{} in {}", counted(units as u64, "unit"), counted(chunks as u64, "chunk"));
        output::print(&match report {
            Some(Report { embedded, changed, removed, .. }) => {
                let by = match embedded {
                    0 => String::new(),
                    _ => format!(" by {}", output::safe(&embed::find_runtime(&setup.embed).0.to_string())),
                };
                format!(
                    "indexed {size}: {} changed, {} removed, {} embedded{by}\n",
                    counted(changed as u64, "file"),
                    thousands(removed as u64),
                    counted(embedded as u64, "chunk"),
                )
            }
            None => format!("the index is up to date: {size}\n"),
        })?;
        let problems: Vec<String> = problems
            .iter()
            .map(|problem| format!("{}:{}: {}", problem.path, problem.line, problem.what))
            .collect();
        output::note_skipped(&problems);
        Ok(())
    }
}

/// Updates the index without a terminal; one process at a time does it for a brain.
fn update_in_background(context: &Context, setup: &Setup) -> Result<(), CliError> {
    system::process::lead_own_session();
    let _logs = context.log_to_file(&setup.places);
    let lock = brain::paths::create_private_file(&setup.places.reindex_lock())?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let updated = async_runtime::multi_thread()?.block_on(async {
        let service = Service::start(setup, Roles::Read).await?;
        let report = service.refresh(Mode::Changed, None, DEADLINE).await;
        service.shutdown().await;
        Ok::<_, CliError>(report)
    })?;
    if let Err(error) = &updated {
        tracing::error!(%error, "failed to update the index");
    }
    updated?;
    Ok(())
}
