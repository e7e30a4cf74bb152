//! `nugget learn`: shows what was learned from what sessions used, resets it, and turns it off.

use ::archive::{Archive, Project, SHARED_SCOPE};
use actors::learning::{Settings, last_report};
use brain::config::Origin;
use brain::{Brain, Config, StatePaths};
use jiff::Timestamp;
use knowledge::text::one_line;
use queue::Queue;
use serde_json::{Value, json};

use crate::archive::open_archive;
use crate::context::Context;
use crate::error::CliError;
use crate::learning;
use crate::output::{self, age, counted, thousands};
use crate::pager;

const AFTER: &str = "\
It is recorded on this machine which units a session was shown. Once it is in
the archive, what it says and does afterwards tells which of them it used. From
that an order of answers is learned for each project. It is used only where an
estimate, on sessions that it has not learned from, says that it is better;
otherwise the order stays as it is.

`nugget learn reset` deletes what was learned for this project, and the
questions that it was learned from; with --all for all projects. Receipts stay.
`nugget learn off` records and learns nothing any more, and answers have the
order that they would have without it; `nugget config set learn.enabled on`
turns it on again.

Examples:
  nugget learn
  nugget learn status --json | jq .orders
  nugget learn reset --all
  nugget learn off";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct LearnArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show what was learned for this project, and whether it is used (the default)
    Status,
    /// Delete what was learned, and learn again from what comes
    Reset {
        /// For all projects
        #[arg(long)]
        all: bool,
    },
    /// Learn nothing, and use nothing that was learned
    Off,
}

impl LearnArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, places) = context.open()?;
        match self.action {
            None | Some(Action::Status) => self.status(context, &config, &brain, &places),
            Some(Action::Reset { all }) => self.reset(&config, &brain, all),
            Some(Action::Off) => self.off(&config),
        }
    }

    fn status(
        &self,
        context: &Context,
        config: &Config,
        brain: &Brain,
        places: &StatePaths,
    ) -> Result<(), CliError> {
        let settings = learning::settings_of(config, brain);
        let project = project_key()?;
        let archive = open_archive()?;
        let queue = if places.queue().is_file() { Some(Queue::open(&places.queue())?) } else { None };
        let waiting = match &queue {
            Some(queue) => queue.showings_count()?,
            None => 0,
        };
        let last = queue.as_ref().and_then(last_report);
        let scopes = std::iter::once(project.as_str()).chain(settings.is_shared.then_some(SHARED_SCOPE));
        let mut orders = Vec::new();
        for scope in scopes {
            orders.push(Order::read(archive.as_ref(), &settings, scope)?);
        }
        let proposals = archive
            .as_ref()
            .map_or(Ok(Vec::new()), |archive| archive.extraction_outcomes(&settings.brain))?;
        if self.json {
            return output::print_json(&json!({
                "enabled": learning::is_enabled(config),
                "explore": settings.explores,
                "share": settings.is_shared,
                "project": project,
                "waiting": waiting,
                "last_round": last.as_ref().map(|(at, report)| json!({ "at": at, "report": report })),
                "orders": orders.iter().map(Order::to_json).collect::<Vec<_>>(),
                "proposals": proposals.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            }));
        }
        let mut text = String::new();
        if !learning::is_enabled(config) {
            text.push_str("learning is off: nothing is recorded, and nothing that was learned is used\n");
        }
        for order in &orders {
            text.push_str(&order.to_text(Timestamp::now()));
        }
        if waiting > 0 {
            text.push_str(&format!(
                "{} of what sessions were shown: their sessions are not archived yet\n",
                counted(waiting, "row")
            ));
        }
        if let Some((at, error)) = last.and_then(|(at, report)| Some((at, report.error?))) {
            let (ago, error) = (age(at, Timestamp::now()), one_line(&error, 300));
            text.push_str(&format!("the last round failed {ago} ago: {}\n", output::safe(&error)));
        }
        pager::print(context, &text)
    }

    fn reset(&self, config: &Config, brain: &Brain, all: bool) -> Result<(), CliError> {
        let settings = learning::settings_of(config, brain);
        let project = project_key()?;
        let scope = (!all).then_some(project.as_str());
        let questions =
            open_archive()?.map_or(Ok(0), |archive| archive.reset_learned(&settings.brain, scope))?;
        if self.json {
            return output::print_json(&json!({ "project": scope, "questions": questions }));
        }
        let of = if all { "all projects".to_owned() } else { output::safe(&project) };
        output::print(&format!(
            "deleted what was learned for {of}, and the {} that it was learned from\n",
            counted(questions as u64, "question")
        ))
    }

    fn off(&self, config: &Config) -> Result<(), CliError> {
        let before = config.string("learn.enabled");
        config
            .write_setting("learn.enabled", Some("off"))
            .map_err(|error| CliError::from_settings(&[error]))?;
        let overriding = match config.get("learn.enabled").1 {
            Origin::Variable(variable) => Some(variable),
            _ => None,
        };
        if self.json {
            let is_on = overriding.is_some() && before == "on";
            return output::print_json(
                &json!({ "enabled": is_on, "before": before, "overridden_by": overriding }),
            );
        }
        let file = output::short_path(config.file());
        match overriding {
            Some(variable) => output::print(&format!(
                "learn.enabled = off  (in {file}), which has no effect while {variable} is set\n"
            )),
            None => output::print(&format!(
                "learn.enabled = off  (in {file}): nothing is recorded, and answers have their order without it\n"
            )),
        }
    }
}

/// The key of the project of the working folder.
fn project_key() -> Result<String, CliError> {
    Ok(Project::from_folder(&std::env::current_dir()?).key)
}

/// The order of one project, or of all.
struct Order {
    scope: String,
    outcomes: Vec<(String, u64)>,
    learned: Option<::archive::Learned>,
    verdicts: Vec<Value>,
}

impl Order {
    fn read(archive: Option<&Archive>, settings: &Settings, scope: &str) -> Result<Self, CliError> {
        let Some(archive) = archive else {
            return Ok(Self {
                scope: scope.to_owned(),
                outcomes: Vec::new(),
                learned: None,
                verdicts: Vec::new(),
            });
        };
        let learned = archive.learned(&settings.brain, scope)?;
        let report = learned.as_ref().and_then(|learned| serde_json::from_str(&learned.report).ok());
        Ok(Self {
            scope: scope.to_owned(),
            outcomes: archive.citation_counts(&settings.brain, scope)?,
            verdicts: report.unwrap_or_default(),
            learned,
        })
    }

    fn to_json(&self) -> Value {
        let learned = self.learned.as_ref();
        json!({
            "scope": self.scope,
            "citations": self.outcomes.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "live": learned.is_some_and(|learned| !learned.learner.is_empty()),
            "version": learned.map_or(0, |learned| learned.version),
            "learner": learned.map(|learned| &learned.learner).filter(|learner| !learner.is_empty()),
            "model": learned.map(|learned| &learned.model),
            "dimensions": learned.map(|learned| learned.dimensions),
            "questions": learned.map_or(0, ::archive::Learned::questions_used),
            "applied_through": learned.map_or(0, |learned| learned.applied_through),
            "learned": learned.map(|learned| learned.learned),
            "estimates": self.verdicts,
        })
    }

    fn to_text(&self, now: Timestamp) -> String {
        let of =
            if self.scope == SHARED_SCOPE { "all projects".to_owned() } else { output::safe(&self.scope) };
        let count = |name: &str| {
            self.outcomes.iter().find(|(outcome, _)| outcome == name).map_or(0, |(_, count)| *count)
        };
        let (used, contradicted, ignored) = (count("used"), count("contradicted"), count("ignored"));
        let mut text = format!("{of}\n");
        text.push_str(&format!(
            "  shown: {} ({} used, {} contradicted, {} ignored)\n",
            thousands(used + contradicted + ignored),
            thousands(used),
            thousands(contradicted),
            thousands(ignored)
        ));
        let Some(learned) = &self.learned else {
            text.push_str("  order: as without learning; no question of a session was judged yet\n");
            return text;
        };
        let (ago, questions) = (age(learned.learned, now), counted(learned.questions_used(), "question"));
        if learned.learner.is_empty() {
            text.push_str(&format!("  order: as without learning, by {questions} ({ago} ago)\n"));
        } else {
            text.push_str(&format!(
                "  order: learned from {questions} by {}, version {} ({ago} ago)\n",
                output::safe(&learned.learner),
                learned.version
            ));
        }
        for verdict in &self.verdicts {
            text.push_str(&format!("  {}\n", describe_gain(verdict)));
            for reason in verdict["reasons"].as_array().into_iter().flatten() {
                text.push_str(&format!("    {}\n", output::safe(&describe_reason(reason))));
            }
        }
        text
    }
}

/// The gain of a learner's order with its interval.
fn describe_gain(verdict: &Value) -> String {
    let name = verdict["learner"].as_str().unwrap_or_default();
    let gain = &verdict["gain"];
    let number = |name: &str| gain[name].as_f64();
    let gain = match (number("estimate"), number("low"), number("high")) {
        (Some(estimate), Some(low), Some(high)) => {
            format!("gain {estimate:+.3}, 95 % interval {low:+.3} to {high:+.3}")
        }
        _ => "no estimate yet".to_owned(),
    };
    output::safe(&format!("{name}: {gain}"))
}

fn describe_reason(reason: &Value) -> String {
    let (found, needed) = (&reason["found"], &reason["needed"]);
    match reason["reason"].as_str().unwrap_or_default() {
        "few_sessions" => format!("{found} of {needed} sessions used what they were shown"),
        "few_used" => format!("{found} of {needed} uses"),
        "no_agreement" => "what was used is not what the search puts first".to_owned(),
        "no_gain" => "not clearly better".to_owned(),
        "nothing_learned" => "nothing was learned".to_owned(),
        other => other.to_owned(),
    }
}
