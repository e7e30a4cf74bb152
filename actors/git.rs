//! Makes branches of knowledge. The only writer to the brain's repository: one branch at a time, under a
//! lock that other processes respect.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use git::{CommitId, Lock, Repository};
use index::Index;
use queue::{Branch, Claim, ProposedUnit, Stage};

use crate::background::run_blocking;
use crate::failure::Failure;
use crate::jobs::{Jobs, WorkPoint};
use crate::pipeline::{self, Findings};
use crate::proposal::{Plan, Planner, ProposalInput};
use crate::remote::open_repository;
use crate::stage_actor::{StageWorker, Step};

/// How long another process may hold the repository before the job is given back.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct GitWorker {
    pub(crate) jobs: Jobs,
    pub(crate) root: PathBuf,
    /// The branch of reviewed knowledge, if `brain.yaml` names it.
    pub(crate) default_branch: Option<String>,
    pub(crate) index: Index,
    /// Whether branches are delivered, where there is a remote.
    pub(crate) delivers: bool,
}

impl StageWorker for GitWorker {
    const STAGE: Stage = Stage::Git;
    type Request = Infallible;

    async fn work(&self, claim: Claim) -> Result<Step, Failure> {
        let this = self.clone();
        // The lock is taken in the blocking work: killing the actor does not stop that, and must not release
        // the lock under which it writes.
        run_blocking(move || this.propose(&claim)).await
    }

    fn committed(&self) {
        failpoint::here!("git-after-finish");
    }
}

impl GitWorker {
    fn propose(&self, claim: &Claim) -> Result<Step, Failure> {
        let repository = open_repository(&self.root, self.default_branch.as_deref())?;
        let lock = Lock::acquire_within(&repository.lock_path()?, LOCK_PATIENCE)?;
        let (found, planned) = match pipeline::decode(&claim.input)? {
            ProposalInput::Compared(found) => (found, None),
            ProposalInput::Planned { found, plan } => (found, Some(plan)),
            ProposalInput::Recreate { found, before, commit, plan } => {
                return self.recreate(claim, &repository, &lock, found, before, commit, plan);
            }
        };
        let mut plan = match planned {
            Some(plan) if plan.is_still_valid(&repository)? => plan,
            _ => self.plan(claim, &repository, &found, None, None)?,
        };
        failpoint::here!("git-after-plan");
        self.keep(claim, &found, &plan)?;
        failpoint::here!("git-after-keep");
        self.jobs.reached_blocking(WorkPoint::Planned, claim);
        let mut proposed = repository.propose(&lock, &plan.proposal()?);
        use git::Error::{BranchTaken, NothingToEdit, PathTaken};
        if let Err(BranchTaken { .. } | PathTaken { .. } | NothingToEdit { .. }) = &proposed {
            // Another branch has our name, or the base has moved since a plan that was never carried out. The
            // digest of the content sets our name apart.
            let digest = blake3::hash(&claim.input).to_hex();
            plan = self.plan(claim, &repository, &found, Some(&digest[..6]), None)?;
            self.keep(claim, &found, &plan)?;
            proposed = repository.propose(&lock, &plan.proposal()?);
        }
        let proposed = proposed?;
        self.jobs.reached_blocking(WorkPoint::Proposed, claim);
        if proposed.outcome == git::Outcome::NothingNew {
            return Ok(Step::end_with_nothing("the brain has every file already".to_owned()));
        }
        failpoint::here!("git-before-finish");
        let branch = plan.branch_at(proposed);
        if self.delivers && repository.remote()?.is_some() {
            let input = pipeline::encode(&ProposalInput::Planned { found, plan })?;
            return Ok(Step::NextOnBranch(Stage::Delivery, input, branch));
        }
        Ok(Step::end_with_branch(branch))
    }

    /// Makes the commit of a branch that waits for its review again, on what was merged meanwhile. A branch
    /// that somebody has added to is left alone: their work is worth more.
    #[expect(clippy::too_many_arguments, reason = "the parts of one input")]
    fn recreate(
        &self,
        claim: &Claim,
        repository: &Repository,
        lock: &Lock,
        found: Findings,
        before: Plan,
        commit: String,
        planned: Option<Plan>,
    ) -> Result<Step, Failure> {
        let expected: CommitId =
            commit.parse().map_err(|_| Failure::retryable(format!("{commit} is no commit")))?;
        let plan = match planned {
            Some(plan) => plan,
            None => {
                let mut plan = self.plan(claim, repository, &found, None, Some(&before))?;
                plan.branch.clone_from(&before.branch);
                plan
            }
        };
        let input = ProposalInput::Recreate {
            found: found.clone(),
            before: before.clone(),
            commit: commit.clone(),
            plan: Some(plan.clone()),
        };
        self.keep_as(claim, &found, &plan, &input)?;
        failpoint::here!("git-anew-after-keep");
        match repository.replace(lock, &plan.proposal()?, expected) {
            Ok(proposed) if proposed.outcome != git::Outcome::NothingNew => {
                failpoint::here!("git-anew-before-advance");
                let branch = plan.branch_at(proposed);
                let input = pipeline::encode(&ProposalInput::Planned { found, plan })?;
                Ok(Step::NextOnBranch(Stage::Delivery, input, branch))
            }
            // All of it is on the default branch, or somebody has added to the branch here: the next sync
            // closes the pull request, or comments on it.
            Ok(_) | Err(git::Error::BranchMoved { .. } | git::Error::NoSuchBranch { .. }) => {
                self.keep(claim, &found, &before)?;
                let name = claim.capture.branch.clone().unwrap_or(before.branch);
                Ok(Step::end_with_branch(Branch { name, commit, units: claim.capture.units }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn plan(
        &self,
        claim: &Claim,
        repository: &Repository,
        found: &Findings,
        digest: Option<&str>,
        before: Option<&Plan>,
    ) -> Result<Plan, Failure> {
        let planner = Planner { repository, index: &self.index, queue: &self.jobs.queue };
        planner.plan(&claim.capture, found, digest, before)
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
