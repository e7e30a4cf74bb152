//! `nugget receipts`: what sessions were told, what they used of it, and whether it helped.

use std::time::Duration;

use ::archive::{SessionFailures, ShownUnit};
use feedback::receipts::{Count, Receipt, SESSIONS_MIN, compare};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::archive::open_archive;
use crate::context::Context;
use crate::error::CliError;
use crate::learning;
use crate::output::{self, counted, thousands};
use crate::pager;
use crate::whole_number::whole_number;

/// How many units are listed.
const UNITS_MAX: usize = 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const AFTER: &str = "\
A unit is told when a hook or the tool shows it to a session, and used when the
session names it, runs its command, or writes what it says for the first time
afterwards. A failure is counted for units that name one, in their scope or
their text: whether it happened in the session after the unit was told.

Whether telling helps is only known from sessions that were not told. With
receipts.holdout = 0.1 each unit is withheld from one session in ten, by chance,
and both are compared, session by session. Until there are enough of both, it
says so.

Examples:
  nugget receipts
  nugget receipts --days 7
  nugget config set receipts.holdout 0.1
  nugget receipts --json | jq .holdout";

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct ReceiptsArgs {
    /// How many days to count
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = whole_number(1_u32..=3650))]
    days: u32,
    /// Print JSON with every unit
    #[arg(long)]
    json: bool,
}

impl ReceiptsArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, brain, _) = context.open()?;
        let settings = learning::settings_of(&config, &brain);
        let since = Timestamp::now().checked_sub(DAY * self.days).unwrap_or(Timestamp::UNIX_EPOCH);
        let (units, failures, (sessions, by)) = match open_archive()? {
            Some(archive) => (
                archive.shown_units(&settings.brain, since)?,
                archive.failures_by_session(&settings.brain, since)?,
                archive.sessions_shown_units(&settings.brain, since)?,
            ),
            None => (Vec::new(), Vec::new(), (0, Vec::new())),
        };
        let receipts = Receipts { units, failures, sessions, by, holdout: settings.holdout };
        if self.json {
            return output::print_json(&receipts.to_json(self.days));
        }
        let mut text = String::new();
        if !learning::is_enabled(&config) {
            text.push_str("learn.enabled or archive.enabled is off: nothing new is recorded\n");
        }
        text.push_str(&receipts.to_text(self.days));
        pager::print(context, &text)
    }
}

struct Receipts {
    units: Vec<ShownUnit>,
    failures: Vec<SessionFailures>,
    sessions: u64,
    by: Vec<(String, u64)>,
    holdout: f64,
}

impl Receipts {
    fn sum(&self, of: impl Fn(&ShownUnit) -> u64) -> u64 {
        self.units.iter().map(of).sum()
    }

    /// Failures in sessions that were told units that name them, and in those that such units were withheld from.
    fn compare_failures(&self) -> Receipt {
        let side = |count: fn(&SessionFailures) -> (u64, u64)| -> Vec<Count> {
            let counts = self.failures.iter().map(count);
            counts.map(|(events, total)| Count { events, total }).collect()
        };
        let shown = side(|session| (session.failed, session.shown));
        compare(&shown, &side(|session| (session.withheld_failed, session.withheld)))
    }

    fn to_json(&self, days: u32) -> Value {
        let units = self.units.iter().map(|unit| {
            json!({
                "id": unit.item, "sessions": unit.sessions, "used": unit.used, "contradicted": unit.contradicted,
                "tokens": unit.tokens, "withheld": unit.withheld,
                "failures": { "watched": unit.with_failure, "happened": unit.failed },
            })
        });
        json!({
            "days": days,
            "sessions": self.sessions,
            "shown_by": self.by.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "told": self.sum(|unit| unit.sessions),
            "used": self.sum(|unit| unit.used),
            "contradicted": self.sum(|unit| unit.contradicted),
            "tokens": self.sum(|unit| unit.tokens),
            "failures": {
                "watched": self.sum(|unit| unit.with_failure),
                "happened": self.sum(|unit| unit.failed),
            },
            "holdout": {
                "share": self.holdout,
                "withheld": self.sum(|unit| unit.withheld),
                "failures": self.compare_failures(),
            },
            "units": units.collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, days: u32) -> String {
        let span = if days == 1 { "24 hours".to_owned() } else { format!("{days} days") };
        let told = self.sum(|unit| unit.sessions);
        if told == 0 {
            return format!("no archived session was told anything in the last {span}\n");
        }
        let percent = |part: u64, of: u64| format!("{:.0} %", 100.0 * part as f64 / of.max(1) as f64);
        let (used, units) = (self.sum(|unit| unit.used), self.units.iter().filter(|unit| unit.sessions > 0));
        let units_count = units.clone().count();
        let mut text = format!(
            "last {span}: {} told {} of {}\n",
            counted(self.sessions, "session"),
            counted(told, "time"),
            counted(units_count as u64, "unit")
        );
        text = text.replacen(" told ", if self.sessions == 1 { " was told " } else { " were told " }, 1);
        text.push_str(&format!(
            "used: {} ({}); contradicted: {}; tokens: {}\n",
            thousands(used),
            percent(used, told),
            thousands(self.sum(|unit| unit.contradicted)),
            thousands(self.sum(|unit| unit.tokens))
        ));
        let (watched, failed) = (self.sum(|unit| unit.with_failure), self.sum(|unit| unit.failed));
        if watched > 0 {
            text.push_str(&format!(
                "failures that they name: happened afterwards in {} of {}\n",
                thousands(failed),
                thousands(watched)
            ));
        }
        text.push_str(&self.describe_holdout());
        text.push('\n');
        let rows = units.take(UNITS_MAX).map(|unit| {
            vec![
                thousands(unit.sessions),
                thousands(unit.used),
                thousands(unit.tokens),
                output::safe(&unit.item),
            ]
        });
        text.push_str(&output::table(&["told", "used", "tokens", "unit"], rows));
        if units_count > UNITS_MAX {
            text.push_str(&format!("and {} more; --json has all\n", units_count - UNITS_MAX));
        }
        text
    }

    fn describe_holdout(&self) -> String {
        if self.holdout == 0.0 && self.sum(|unit| unit.withheld) == 0 {
            return "whether telling helps is not measured: receipts.holdout is 0\n".to_owned();
        }
        match self.compare_failures() {
            Receipt::NotEnoughData { shown, withheld } => format!(
                "whether telling helps: not enough data yet ({} sessions told and {} withheld from, of {SESSIONS_MIN} each)\n",
                thousands(shown.total),
                thousands(withheld.total)
            ),
            Receipt::Difference { difference, is_clear } => format!(
                "failures where told, less those where withheld: {:+.1} points, 95 % interval {:+.1} to {:+.1}{}\n",
                100.0 * difference.estimate,
                100.0 * difference.low,
                100.0 * difference.high,
                if is_clear { "" } else { ": no clear difference" }
            ),
        }
    }
}
