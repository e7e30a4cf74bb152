//! `nugget index`: brings the derived index up to date.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;
use std::time::Duration;

use actors::indexing::RefreshProgress;
use actors::{AskError, Roles, Service, Setup};
use index::{Mode, Report};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::sync::watch;

use crate::context::{Context, spawn_indexer};
use crate::error::CliError;
use crate::output;

/// A first index of a large brain takes its time: a thousand units take some three minutes.
const DEADLINE: Duration = Duration::from_secs(6 * 3600);

const AFTER: &str = "\
The index is derived from the files and lies in the brain's .nugget folder,
which git ignores. Deleting that folder loses nothing.

Examples:
  nugget index
  nugget index --rebuild";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Read and embed everything again
    #[arg(long)]
    rebuild: bool,
    /// Leave the terminal, say nothing, and go at once when another one is at it
    #[arg(long, hide = true, conflicts_with = "json")]
    background: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let setup = context.setup(&config, &brain)?;
        if self.background {
            return in_background(context, &setup);
        }
        context.log_to_stderr();
        embed::check(&setup.embed)?;
        let mode = if self.rebuild { Mode::Rebuild } else { Mode::Changed };
        let (report, problems, counts) = super::ask::runtime()?.block_on(async {
            let service = Service::start(&setup, Roles::Read).await?;
            if let Some(present) = service.outdated_index_model() {
                let (present, next) = (output::safe(&present), output::safe(&embed::model_name(&setup.embed)));
                output::note(&format!(
                    "embedding everything anew: the index is of {present}, the settings say {next}; the old one answers until then"
                ));
            }
            let report = refresh(&service, mode).await?;
            let pinned = service.index().pin().map_err(actors::StartError::Index)?;
            let problems = pinned.problems().map_err(actors::StartError::Index)?;
            let counts = (pinned.generation(), pinned.units_count(), pinned.chunks_count());
            drop(pinned);
            service.shutdown().await;
            Ok::<_, CliError>((report, problems, counts))
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
                Some(Report { embedded, changed, removed, .. }) => {
                    let by = match embedded {
                        0 => String::new(),
                        _ => format!(" by {}", output::safe(&embed::runtime_of(&setup.embed).0.to_string())),
                    };
                    format!(
                        "indexed {units} units in {chunks} chunks: {changed} files changed, {removed} removed, {embedded} chunks embedded{by}\n"
                    )
                }
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

/// Makes the index without anybody watching; one process does it for a brain.
fn in_background(context: &Context, setup: &Setup) -> Result<ExitCode, CliError> {
    // It fails only where this process leads a session already.
    let _ = rustix::process::setsid();
    let _logs = context.log_to_file(&setup.places);
    let mut options = File::options();
    let lock =
        options.create(true).truncate(false).write(true).mode(0o600).open(setup.places.reindex_lock())?;
    if lock.try_lock().is_err() {
        return Ok(ExitCode::SUCCESS);
    }
    let refreshed = super::ask::runtime()?.block_on(async {
        let service = Service::start(setup, Roles::Read).await?;
        let report = service.refresh(Mode::Changed, None, DEADLINE).await;
        service.shutdown().await;
        Ok::<_, CliError>(report)
    })?;
    if let Err(error) = &refreshed {
        tracing::error!(%error, "the index could not be made");
    }
    refreshed?;
    Ok(ExitCode::SUCCESS)
}

/// What is done before a question: the index is brought up to date with the files. When the settings name
/// another model this takes long, and is left to a process in the background: the present generation answers.
pub(crate) async fn catch_up(service: &Service, setup: &Setup) {
    // A first index is many texts, for which the model is loaded with care.
    if service.index().pin().is_ok_and(|pinned| pinned.generation() > 0) {
        service.preload_model();
    }
    let Some(present) = service.outdated_index_model() else {
        if let Err(error) = refresh(service, Mode::Changed).await {
            output::note(&format!(
                "warning: the index could not be brought up to date ({error}); answering from the last one"
            ));
        }
        return;
    };
    let how = match embed::check(&setup.embed) {
        Err(error) => format!("and cannot be: {error}"),
        Ok(()) => match spawn_indexer(&setup.brain) {
            Ok(()) => "in the background; `nugget status` shows how far it is".to_owned(),
            Err(error) => format!("by `nugget index` only: {error}"),
        },
    };
    output::note(&format!(
        "note: the brain is being embedded anew by {}, {how}. Answering from the index of {}",
        output::safe(&embed::model_name(&setup.embed)),
        output::safe(&present)
    ));
}

/// Brings the index up to date, with a bar once there is something to show.
pub(crate) async fn refresh(service: &Service, mode: Mode) -> Result<Option<Report>, AskError> {
    let (sender, mut receiver) = watch::channel(RefreshProgress::Starting);
    let bar: ProgressBar = output::progress_bar("indexing");
    let showing = bar.clone();
    let shown = tokio::spawn(async move {
        while receiver.changed().await.is_ok() {
            let advance = *receiver.borrow_and_update();
            match advance {
                RefreshProgress::Starting => {}
                RefreshProgress::Reading { done, of } => show(&showing, "reading", done, of),
                RefreshProgress::Embedding { done, of } => show(&showing, "embedding", done, of),
                RefreshProgress::Publishing => showing.set_message("writing"),
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
