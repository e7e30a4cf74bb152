//! What a command runs with: the settings, the brain, and the configuration of the service.

use std::path::{Path, PathBuf};

use actors::{SettingsMark, Setup};
use brain::{Brain, Config, StatePaths};
use queue::Spool;

use crate::error::{CliError, FAILED, MISSING};
use crate::spawn::take_in_spooled;
use crate::state_check::StateProblem;
use crate::{archive, extractor, learning, settings};

/// The global flags, and what a command derives from them.
#[derive(Clone)]
pub(crate) struct Context {
    brain: Option<PathBuf>,
    pub(crate) verbosity: u8,
    /// Whether long output may be shown in a pager.
    pub(crate) has_pager: bool,
}

impl Context {
    pub(crate) fn new(brain: Option<PathBuf>, verbosity: u8, has_pager: bool) -> Self {
        Self { brain, verbosity, has_pager }
    }

    /// The settings; any problem with them is an error.
    pub(crate) fn config(&self) -> Result<Config, CliError> {
        let (config, errors) = self.config_and_errors();
        if errors.is_empty() { Ok(config) } else { Err(CliError::from_settings(&errors)) }
    }

    /// The settings and their problems, for a hook, which must go on with what is valid.
    pub(crate) fn config_and_errors(&self) -> (Config, Vec<brain::config::ConfigError>) {
        let (mut config, mut errors) = Config::load();
        if errors.is_empty() {
            errors.extend(settings::read_excluded_projects(&config).err());
        }
        if let Some(brain) = &self.brain {
            let set = config.set_flag("brain", brain.display().to_string(), "--brain");
            errors.extend(set.err());
        }
        (config, errors)
    }

    /// The brain's folder, which need not exist.
    pub(crate) fn root(&self, config: &Config) -> PathBuf {
        config.path("brain").unwrap_or_else(brain::paths::default_brain)
    }

    /// The brain; it is an error if there is none.
    pub(crate) fn brain(&self, config: &Config) -> Result<Brain, CliError> {
        if !brain::paths::has_home() {
            return Err(CliError::no_home());
        }
        let root = self.root(config);
        match open_brain(&root) {
            Err(error @ brain::Error::Missing { .. }) if config.path("brain").is_none() => {
                Err(CliError::from(error)
                    .code(MISSING)
                    .hint("run `nugget init` to create a brain, or name yours with --brain DIR"))
            }
            result => Ok(result?),
        }
    }

    /// The settings, the brain, and where its state is.
    pub(crate) fn open(&self) -> Result<(Config, Brain, StatePaths), CliError> {
        let config = self.config()?;
        let brain = self.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        Ok((config, brain, places))
    }

    /// Queues what hooks have left in the brain's spool, if there is anything.
    pub(crate) fn take_in_spooled(&self) {
        let root = self.root(&self.config_and_errors().0);
        let places = StatePaths::for_brain(&root);
        if Spool::new(places.spool()).is_empty() {
            return;
        }
        if let Ok(brain) = open_brain(&root) {
            take_in_spooled(&places, &brain);
        }
    }

    /// Adds to a failure what is likely its cause: a file of nugget's that this user may not use, or a full or
    /// read-only disk.
    pub(crate) fn with_cause(&self, error: CliError) -> CliError {
        if error.code != FAILED || !brain::paths::has_home() {
            return error;
        }
        let root = self.root(&self.config_and_errors().0);
        let places = StatePaths::for_brain(&root);
        let problem = StateProblem::find_blocked(&root, &places);
        let problem = problem.or_else(|| StateProblem::find_read_only(&root, &places));
        let problem = problem.or_else(|| StateProblem::find_unwritable(&places));
        match problem.or_else(|| StateProblem::find_full_disk(&root, &places)) {
            Some(StateProblem { message, fix }) => {
                CliError { message: format!("{message} ({})", error.message), ..error }.hint(fix)
            }
            None => error,
        }
    }

    /// The configuration of the service for a process that does what nobody waits for: it archives sessions, too.
    pub(crate) fn background_setup(&self, config: &Config, brain: &Brain) -> Result<Setup, CliError> {
        let archive = archive::is_enabled(config).then(|| archive::sync_settings(config));
        let embed = settings::background_embedding(config);
        Ok(Setup { archive, embed, ..self.setup(config, brain)? })
    }

    /// The configuration of the service for this brain.
    pub(crate) fn setup(&self, config: &Config, brain: &Brain) -> Result<Setup, CliError> {
        let places = StatePaths::for_brain(brain.root());
        places.create()?;
        let manifest = brain.manifest()?;
        Ok(Setup {
            brain: brain.clone(),
            workspace: std::env::current_dir().ok(),
            is_server: false,
            reranker: extractor::model_reranker(config, &places),
            extractor: extractor::extractor(config, Some(&places.queue()))?,
            places,
            settings: SettingsMark::default(),
            embed: settings::embedding(config),
            budget: extractor::budget(config),
            confidence_min: config.number("extract.confidence_min") as f64 / 100.0,
            default_branch: manifest.default_branch,
            linger: config.seconds("drainer.linger_seconds"),
            delivery: settings::delivery(config),
            exclude: settings::excluded_projects(config),
            sweep: (config.string("sweep.enabled") == "on").then(|| settings::sweep(config)),
            archive: None,
            learning: learning::settings(config, brain),
            reflects_daily: config.string("reflect.schedule") == "daily",
            agent_writes_per_hour: config.number("notes.agent_writes_per_hour") as usize,
            memories: archive::recalls_memories(config).then(archive::archive_path),
        })
    }
}

/// Opens the brain at `root`. What is checked out does not decide whether it is one: on a branch without a valid
/// `brain.yaml`, the one of the default branch counts.
pub(crate) fn open_brain(root: &Path) -> Result<Brain, brain::Error> {
    let opened = Brain::open(root);
    let is_broken = match &opened {
        Ok(brain) => brain.manifest().is_err(),
        Err(error) => matches!(error, brain::Error::NotABrain { .. }),
    };
    if !is_broken {
        return opened;
    }
    let committed = committed_manifest(root).and_then(|text| Brain::open_committed(root, &text).ok());
    committed.map_or(opened, Ok)
}

fn committed_manifest(root: &Path) -> Option<String> {
    let repository = git::Repository::open(root).ok()?;
    let commit = repository.default_branch().ok()?.tip;
    String::from_utf8(repository.read_at(commit, brain::BRAIN_YAML).ok()??).ok()
}
