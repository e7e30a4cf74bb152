//! `nugget spend`: what models have cost.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use brain::StatePaths;
use jiff::Timestamp;
use queue::{BUDGET_SPAN, ModelCall, Queue};
use serde_json::json;

use crate::context::Context;
use crate::error::CliError;
use crate::extractor;
use crate::output;

const AFTER: &str = "\
Reading a session may call a model: the Claude API with a key, or `claude -p`.
So does, with a key, an answer of `nugget ask` and the order of what is found.
Each call is entered here before it is made, and none is made for which the
budget of spend.tokens_per_day and spend.cents_per_day has no room; rules read
the session then, passages stand for the answer, and the local order stands.
Dollars are by the list of prices, also where a subscription pays.

Examples:
  nugget spend
  nugget spend --days 30 --json | jq .calls";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// How far back to look
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Print JSON, every call
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let config = context.config()?;
        let brain = context.brain(&config)?;
        let places = StatePaths::for_brain(brain.root());
        let now = Timestamp::now();
        let queue = if places.queue().is_file() { Some(Queue::open(&places.queue())?) } else { None };
        let since = |span: Duration| match &queue {
            Some(queue) => queue.model_calls(now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH)),
            None => Ok(Vec::new()),
        };
        let calls = since(DAY * self.days)?;
        let recent = Total::of(&since(BUDGET_SPAN)?);
        let budget = extractor::budget(&config);
        if self.json {
            output::print_json(&json!({
                "calls": calls,
                "last_24_hours": { "tokens": recent.tokens, "microdollars": recent.microdollars },
                "budget": { "tokens": budget.tokens, "microdollars": budget.microdollars },
                "prices_as_of": llm::PRICES_AS_OF,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut days: BTreeMap<(String, String), Vec<ModelCall>> = BTreeMap::new();
        for call in calls {
            let day = call.at.strftime("%Y-%m-%d").to_string();
            days.entry((day, call.cost.model.clone())).or_default().push(call);
        }
        let mut rows = vec![["day (UTC)", "calls", "tokens", "dollars", "model"].map(str::to_owned).to_vec()];
        for ((day, model), calls) in &days {
            let total = Total::of(calls);
            let open =
                if total.estimated > 0 { format!(" ({} estimated)", total.estimated) } else { String::new() };
            rows.push(vec![
                day.clone(),
                calls.len().to_string(),
                total.tokens.to_string(),
                dollars(total.microdollars),
                format!("{}{open}", output::safe(model)),
            ]);
        }
        let days = if self.days == 1 { "24 hours".to_owned() } else { format!("{} days", self.days) };
        let mut text = if rows.len() == 1 {
            format!("no model was called in the last {days}\n")
        } else {
            output::table(&rows)
        };
        text.push_str(&format!(
            "last 24 hours: {} of {} tokens, {} of {}\nsessions are read by {}\n",
            recent.tokens,
            budget.tokens,
            dollars(recent.microdollars),
            dollars(budget.microdollars),
            output::safe(&extractor::destination(&config)),
        ));
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Default)]
struct Total {
    tokens: u64,
    microdollars: u64,
    estimated: u64,
}

impl Total {
    fn of(calls: &[ModelCall]) -> Self {
        calls.iter().fold(Self::default(), |total, call| Self {
            tokens: total.tokens + call.cost.tokens(),
            microdollars: total.microdollars + call.cost.microdollars,
            estimated: total.estimated + u64::from(call.estimated),
        })
    }
}

fn dollars(microdollars: u64) -> String {
    format!("${:.4}", microdollars as f64 / 1e6)
}
