//! Makes branches of knowledge. The only writer to the brain's repository: one branch at a time, under a
//! lock that other processes respect.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use git::{Lock, Repository};
use index::Index;
use queue::{Branch, Claim, ProposedUnit, Stage};

use crate::background::run_blocking;
use crate::failure::Failure;
use crate::jobs::{Jobs, WorkPoint};
use crate::pipeline::{self, Findings};
use crate::proposal::{Plan, Planner, ProposalInput, Recreation, parse_commit};
use crate::setup::Setup;
use crate::stage_actor::{StageWorker, Step};

/// How long another process may hold the repository before the job is given back.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct GitWorker {
    pub(crate) jobs: Jobs,
    pub(crate) setup: Arc<Setup>,
    pub(crate) index: Index,
}

impl StageWorker for GitWorker {
    const STAGE: Stage = Stage::Git;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let this = self.clone();
        // The lock is taken in the blocking work: killing the actor does not stop that, and must not release
        // the lock under which it writes.
        run_blocking(move || {
            let step = this.propose(&claim)?;
            this.jobs.queue.resume(Stage::Git)?;
            Ok(step)
        })
        .await
    }

    fn committed(&self) {
        failpoint::here!("git-after-finish");
    }
}

impl GitWorker {
    fn propose(&self, claim: &Claim) -> Result<Step, Failure> {
        let repository = self.setup.repository()?;
        let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
        let planner = Planner { repository: &repository, index: &self.index, queue: &*self.jobs.queue };
        let (found, planned) = match pipeline::decode(&claim.input)? {
            ProposalInput::Compared(found) => (found, None),
            ProposalInput::Planned { found, plan } => (found, Some(plan)),
            ProposalInput::Recreate(recreation) => return self.recreate(claim, &planner, &lock, recreation),
        };
        let mut plan = match planned {
            Some(plan) if plan.is_still_valid(&repository)? => plan,
            _ => planner.plan(&claim.capture, &found, None, None)?,
        };
        failpoint::here!("git-after-plan");
        self.keep(claim, &found, &plan)?;
        failpoint::here!("git-after-keep");
        self.jobs.reached_blocking(WorkPoint::Planned, claim);
        let propose = |plan: &Plan| {
            let proposal = plan.proposal()?;
            // The remote may have it from before this ledger: a team's database was restored, or a brain was added again.
            // Then the commit is looked for on the branch that people review.
            if repository.tip(&plan.branch)?.is_none() {
                repository.follow_remote_branch(&lock, &plan.branch)?;
            }
            Ok::<_, Failure>(repository.propose(&lock, &proposal))
        };
        let mut proposed = propose(&plan)?;
        use git::Error::{BranchTaken, Filtered, NothingToEdit, PathTaken};
        if let Err(BranchTaken { .. } | PathTaken { .. } | NothingToEdit { .. } | Filtered { .. }) = &proposed
        {
            // Another branch has our name, or the base has moved since a plan that was never carried out. The
            // digest of the content sets our name apart.
            let digest = blake3::hash(&claim.input).to_hex();
            plan = planner.plan(&claim.capture, &found, Some(&digest[..6]), None)?;
            self.keep(claim, &found, &plan)?;
            proposed = propose(&plan)?;
        }
        let proposed = proposed?;
        self.jobs.reached_blocking(WorkPoint::Proposed, claim);
        if proposed.outcome == git::Outcome::NothingNew {
            return Ok(Step::end_with_nothing("the brain has every file already".to_owned()));
        }
        failpoint::here!("git-before-finish");
        let branch = plan.branch_at(proposed);
        if self.setup.delivery.enabled && self.has_remote(&repository)? {
            let input = pipeline::encode(&ProposalInput::Planned { found, plan })?;
            return Ok(Step::NextOnBranch(Stage::Delivery, input, branch));
        }
        Ok(Step::end_with_branch(branch))
    }

    /// Whether the branch is to be delivered. A team's server delivers all: a clone without a remote is being replaced.
    fn has_remote(&self, repository: &Repository) -> Result<bool, Failure> {
        match repository.remote()?.is_some() {
            false if self.setup.is_server => Err(Failure::retryable("the server's clone has no remote")),
            has_remote => Ok(has_remote),
        }
    }

    /// Makes the commit of a branch that waits for its review again, on what was merged meanwhile. A branch
    /// that somebody has added to is left alone: their work is worth more.
    fn recreate(
        &self,
        claim: &Claim,
        planner: &Planner<'_>,
        lock: &Lock,
        mut recreation: Recreation,
    ) -> Result<Step, Failure> {
        let expected = parse_commit(&recreation.commit)?;
        let plan = match recreation.plan.take() {
            Some(plan) => plan,
            None => {
                let Recreation { found, before, .. } = &recreation;
                let plan = planner.plan(&claim.capture, found, None, Some(before))?;
                Plan { branch: before.branch.clone(), ..plan }
            }
        };
        recreation.plan = Some(plan.clone());
        self.keep_as(claim, &recreation.found, &plan, &ProposalInput::Recreate(recreation.clone()))?;
        let Recreation { found, before, commit, .. } = recreation;
        failpoint::here!("git-rebuild-after-keep");
        // On a team's server it may have been made in another clone.
        if self.setup.is_server
            && planner.repository.tip(&before.branch)?.is_none()
            && !planner.repository.follow_remote_branch(lock, &before.branch)?
        {
            planner.repository.propose(lock, &before.proposal()?)?;
        }
        match planner.repository.replace(lock, &plan.proposal()?, expected) {
            Ok(proposed) if proposed.outcome != git::Outcome::NothingNew => {
                failpoint::here!("git-rebuild-before-advance");
                let branch = plan.branch_at(proposed);
                let input = pipeline::encode(&ProposalInput::Planned { found, plan })?;
                Ok(Step::NextOnBranch(Stage::Delivery, input, branch))
            }
            // All of it is on the default branch, or somebody has added to the branch here: the next sync
            // closes the pull request, or comments on it. Where a person looks at it, a later sync tries again.
            Ok(_)
            | Err(
                git::Error::BranchMoved { .. }
                | git::Error::NoSuchBranch { .. }
                | git::Error::CheckedOut { .. },
            ) => {
                self.keep(claim, &found, &before)?;
                let name = claim.capture.branch.clone().unwrap_or(before.branch);
                Ok(Step::end_with_branch(Branch { name, commit, units: claim.capture.units }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a plan in the queue before it is carried out, so that every attempt makes the same commit.
    fn keep(&self, claim: &Claim, found: &Findings, plan: &Plan) -> Result<(), Failure> {
        let input = ProposalInput::Planned { found: found.clone(), plan: plan.clone() };
        self.keep_as(claim, found, plan, &input)
    }

    fn keep_as(
        &self,
        claim: &Claim,
        found: &Findings,
        plan: &Plan,
        input: &ProposalInput,
    ) -> Result<(), Failure> {
        let units: Vec<ProposedUnit> = plan.files.iter().map(|file| file.proposed_unit(found)).collect();
        let taken = self.jobs.queue.save_result(claim, &pipeline::encode(input)?, &units)?;
        match taken.is_empty() {
            true => Ok(()),
            false => {
                Err(Failure::retryable(format!("another capture has taken the names {}", taken.join(", "))))
            }
        }
    }
}
