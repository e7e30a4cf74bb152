//! Works on the captures of brains on a team's server: the same actors as on a laptop, one brain after another, with the
//! captures in a shared database.

use std::sync::Arc;
use std::time::Duration;

use index::{Mode, Report};
use jiff::Timestamp;
use queue::Ledger;

use crate::embedding_model::EmbeddingModel;
use crate::jobs::Jobs;
use crate::service::{Pace, Parts, Roles, Service, StartError};
use crate::setup::Setup;

/// How long the first index of a large brain may take.
const INDEX_DEADLINE: Duration = Duration::from_secs(3600);

/// What a server shares between the brains that it works on: the embedding model, which is loaded once.
#[derive(Clone)]
pub struct ServerWorker {
    model: EmbeddingModel,
    pace: Pace,
}

impl ServerWorker {
    /// A worker with the model of these settings, which is loaded when it is first needed.
    pub fn new(embed: embed::Settings) -> Self {
        Self { model: EmbeddingModel::new(embed), pace: Pace::default() }
    }

    /// Brings the index of the brain's clone up to date with its files. `None` if it was. Blocks; creates its own runtime.
    ///
    /// # Errors
    /// When the actors cannot be started, or the index cannot be built.
    pub fn refresh_index(&self, setup: &Setup) -> Result<Option<Report>, StartError> {
        let parts = Parts { jobs: None, model: self.model.clone(), pace: self.pace };
        self.run(async {
            let service = Service::start_with(setup, Roles::Read, parts).await?;
            let refreshed = service.refresh(Mode::Changed, None, INDEX_DEADLINE).await;
            service.shutdown().await;
            refreshed.map_err(|error| StartError::Actors(error.to_string()))
        })
    }

    /// Works on a brain's captures until none can be claimed, or `is_over` says so: then jobs under way are finished, and no
    /// other is begun. Blocks; creates its own runtime.
    ///
    /// # Errors
    /// When the actors cannot be started, or the ledger cannot be read.
    pub fn work(
        &self,
        setup: &Setup,
        ledger: impl Ledger + 'static,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), StartError> {
        let ledger: Arc<dyn Ledger> = Arc::new(ledger);
        let jobs = Jobs::shared(Arc::clone(&ledger));
        let parts = Parts { jobs: Some(jobs), model: self.model.clone(), pace: self.pace };
        self.run(async {
            let service = Service::start_with(setup, Roles::Write, parts).await?;
            let worked = self.work_until_idle(&service, &ledger, is_over).await;
            service.shutdown().await;
            worked
        })
    }

    async fn work_until_idle(
        &self,
        service: &Service,
        ledger: &Arc<dyn Ledger>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), StartError> {
        while !is_over() {
            if service.has_ended() {
                return Err(StartError::Actors("the supervisor has ended".to_owned()));
            }
            // Asked first: who has no work now begins none, as only this loop wakes them. Asked after the look, one may have
            // ended a job that the look saw under way.
            let has_work = service.has_work();
            let ledger = Arc::clone(ledger);
            let look = move || ledger.is_claimable(Timestamp::now());
            let is_claimable = tokio::task::spawn_blocking(look)
                .await
                .map_err(|error| StartError::Actors(error.to_string()))??;
            match is_claimable {
                true => service.wake(),
                false if !has_work => break,
                false => {}
            }
            tokio::time::sleep(self.pace.poll_every).await;
        }
        Ok(())
    }

    fn run<T>(&self, work: impl Future<Output = Result<T, StartError>>) -> Result<T, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| StartError::Actors(error.to_string()))?;
        let done = runtime.block_on(work);
        // Dropping it would wait for the longest blocking work: for ever, if that hangs.
        runtime.shutdown_timeout(self.pace.abandon_after);
        done
    }
}

#[cfg(test)]
mod tests {
    use queue::{Stage, State};

    use super::*;
    use crate::testing::{Testbed, teacher};

    /// A server's clone, and its remote, which is not there yet.
    fn bed_of_server() -> (Testbed, String) {
        let mut bed = Testbed::new(teacher());
        bed.setup.delivery.enabled = true;
        bed.setup.is_server = true;
        let remote = bed.setup.places.folder().join("remote.git").display().to_string();
        bed.git(&["remote", "add", "origin", &remote]);
        (bed, remote)
    }

    fn make_remote(bed: &Testbed, remote: &str) {
        bed.git(&["init", "--quiet", "--bare", remote]);
        bed.git(&["push", "--quiet", "origin", "main"]);
    }

    #[test]
    fn a_servers_worker_does_what_is_due_and_ends() {
        let bed = Testbed::new(teacher());
        let id = bed.session("s1");
        let worker = ServerWorker { model: bed.model.clone(), pace: bed.pace };
        worker.work(&bed.setup, bed.queue().clone(), &|| false).unwrap();
        assert_eq!(bed.capture(id).state, State::Done);
    }

    /// On a server each job may be done in another clone, and a clone may be gone by the next job.
    #[test]
    fn a_branch_that_was_made_in_another_clone_is_made_again_and_delivered() {
        let (bed, remote) = bed_of_server();
        let id = bed.session("s1");
        let worker = ServerWorker { model: bed.model.clone(), pace: bed.pace };
        let work = || worker.work(&bed.setup, bed.queue().clone(), &|| false).unwrap();
        work();
        let made = bed.capture(id);
        assert_eq!((made.stage, made.pushed), (Stage::Delivery, None), "there is no remote yet");
        let (branch, commit) = (made.branch.unwrap(), made.commit.unwrap());

        bed.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
        bed.git(&["gc", "--quiet", "--prune=now"]);
        make_remote(&bed, &remote);
        bed.queue().retry(None).unwrap();
        work();
        let delivered = bed.capture(id);
        assert_eq!(
            (delivered.state, delivered.pushed),
            (State::Done, Some(commit.clone())),
            "{:?}",
            delivered.reason
        );
        assert_eq!(bed.git(&["--git-dir", &remote, "rev-parse", &branch]).trim(), commit);
    }

    /// As after a team's database was restored from a backup: the remote has what the ledger does not know.
    #[test]
    fn what_is_handed_over_again_is_found_on_the_branch_that_is_in_review() {
        for (is_fetched, is_changed) in [(true, false), (false, false), (true, true), (false, true)] {
            let (bed, remote) = bed_of_server();
            make_remote(&bed, &remote);
            let worker = ServerWorker { model: bed.model.clone(), pace: bed.pace };
            let work = || worker.work(&bed.setup, bed.queue().clone(), &|| false).unwrap();
            let id = bed.session("s1");
            work();
            let before = bed.capture(id);
            assert_eq!(before.pushed, before.commit, "{:?}", before.reason);
            let (branch, commit) = (before.branch.unwrap(), before.commit.unwrap());

            bed.queue().forget(id, Timestamp::now()).unwrap();
            if is_changed {
                // What a model has read out of the session the first time was something else.
                bed.git(&["checkout", "--quiet", &branch]);
                bed.git(&["commit", "--quiet", "--amend", "--message", "Knowledge of another attempt"]);
                bed.git(&["push", "--quiet", "--force", "origin", &branch]);
            }
            bed.git(&["checkout", "--quiet", "main"]);
            bed.git(&["commit", "--quiet", "--allow-empty", "--message", "Merged meanwhile"]);
            bed.git(&["push", "--quiet", "origin", "main"]);
            bed.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
            if !is_fetched {
                bed.git(&["update-ref", "-d", &format!("refs/remotes/origin/{branch}")]);
            }
            let id = bed.announce("s1");
            work();
            let after = bed.capture(id);
            assert_eq!(after.state, State::Done, "{is_fetched} {is_changed}: {:?}", after.reason);
            let (new_branch, new_commit) = (after.branch.unwrap(), after.commit.unwrap());
            assert_eq!(after.pushed.as_ref(), Some(&new_commit));
            assert_eq!(bed.git(&["--git-dir", &remote, "rev-parse", &new_branch]).trim(), new_commit);
            match is_changed {
                false => assert_eq!((&new_branch, new_commit), (&branch, commit)),
                true => assert!(new_branch.starts_with(&format!("{branch}-")), "{new_branch}"),
            }
            let branches = bed.git(&["--git-dir", &remote, "branch", "--list", "nugget/*"]);
            assert_eq!(branches.lines().count(), if is_changed { 2 } else { 1 }, "{branches}");
        }
    }

    /// The clone that found the branch may be gone before it is delivered.
    #[test]
    fn a_branch_that_only_the_remote_has_is_taken_from_there() {
        let (bed, remote) = bed_of_server();
        make_remote(&bed, &remote);
        let worker = ServerWorker { model: bed.model.clone(), pace: bed.pace };
        let work = || worker.work(&bed.setup, bed.queue().clone(), &|| false).unwrap();
        let id = bed.session("s1");
        work();
        let before = bed.capture(id);
        let branch = before.branch.unwrap();
        bed.queue().forget(id, Timestamp::now()).unwrap();
        bed.git(&["commit", "--quiet", "--allow-empty", "--message", "Merged meanwhile"]);
        bed.git(&["push", "--quiet", "origin", "main"]);
        bed.git(&["remote", "set-url", "origin", &format!("{remote}.gone")]);
        let id = bed.announce("s1");
        work();
        let found = bed.capture(id);
        assert_eq!((found.stage, &found.commit), (Stage::Delivery, &before.commit), "{:?}", found.reason);
        bed.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
        bed.git(&["remote", "set-url", "origin", &remote]);
        bed.queue().retry(None).unwrap();
        work();
        let delivered = bed.capture(id);
        assert_eq!(
            (delivered.state, delivered.pushed),
            (State::Done, before.commit),
            "{:?}",
            delivered.reason
        );
    }

    #[test]
    fn a_servers_worker_that_is_to_stop_begins_nothing() {
        let bed = Testbed::new(teacher());
        let id = bed.session("s1");
        let worker = ServerWorker { model: bed.model.clone(), pace: bed.pace };
        worker.work(&bed.setup, bed.queue().clone(), &|| true).unwrap();
        assert_eq!(bed.capture(id).state, State::Queued);
    }
}
