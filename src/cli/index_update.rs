//! Brings the index up to date with the brain's files, with a progress bar.

use std::time::Duration;

use actors::RefreshProgress;
use actors::{AskError, Service, Setup};
use index::{Mode, Report};
use indicatif::ProgressBar;
use tokio::sync::watch;

use crate::output;
use crate::spawn::spawn_indexer;

/// The first index of a large brain takes long: a thousand units take about three minutes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(6 * 3600);

/// Updates the index before a question is answered. If the settings name another model, which takes long, a
/// background process does it and the present index answers.
pub(crate) async fn update_before_question(service: &Service, setup: &Setup) {
    let Some(present) = service.outdated_index_model() else {
        if let Err(error) = update(service, Mode::Changed).await {
            output::note(&format!(
                "warning: the index could not be updated ({error}); answering from the last one"
            ));
        }
        return;
    };
    let how = match embed::check_settings(&setup.embed) {
        Err(error) => format!("which fails: {error}"),
        Ok(()) => match spawn_indexer(&setup.brain) {
            Ok(()) => "in the background; `nugget status` shows the progress".to_owned(),
            Err(error) => format!("which `nugget index` has to do: {error}"),
        },
    };
    output::note(&format!(
        "note: the brain has to be embedded again by {}, {how}. Answering from the index of {}",
        output::safe(&embed::model_name(&setup.embed)),
        output::safe(&present)
    ));
}

/// Updates the index and shows a progress bar. `None`: nothing had changed.
pub(crate) async fn update(service: &Service, mode: Mode) -> Result<Option<Report>, AskError> {
    let (sender, mut receiver) = watch::channel(RefreshProgress::Starting);
    let display = tokio::spawn(async move {
        let mut bar = None;
        while receiver.changed().await.is_ok() {
            let advance = *receiver.borrow_and_update();
            match advance {
                RefreshProgress::Starting => {}
                RefreshProgress::Reading { done, of } => show(&mut bar, "reading", done, of),
                RefreshProgress::Embedding { done, of } => show(&mut bar, "embedding", done, of),
                RefreshProgress::Publishing => {
                    if let Some(bar) = &bar {
                        bar.set_message("writing");
                    }
                }
            }
        }
    });
    let report = service.refresh(mode, Some(sender), DEADLINE).await;
    display.abort();
    // The bar is cleared when it is dropped, before anything else is printed.
    let _ = display.await;
    report
}

/// Each kind of work has a bar of its own: one that is drawn while its parts are set shows figures of two. Nothing is shown
/// of work that there is none of.
fn show(bar: &mut Option<ProgressBar>, what: &'static str, done: usize, of: usize) {
    if of == 0 {
        return;
    }
    if bar.as_ref().is_none_or(|bar| bar.message() != what || bar.length() != Some(of as u64)) {
        // The old one is cleared before the new one is drawn.
        drop(bar.take());
    }
    bar.get_or_insert_with(|| output::progress_bar(what, of)).set_position(done as u64);
}
