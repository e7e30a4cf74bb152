//! `nugget spend`: prints what model calls have cost.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use queue::{BUDGET_SPAN, ModelCall, Queue};
use serde_json::json;

use crate::context::Context;
use crate::error::CliError;
use crate::output::{self, thousands};
use crate::whole_number::whole_number;
use crate::{extractor, pager};

const AFTER: &str = "\
Models are called to read sessions (the model of `model.api`, or `claude -p`)
and, but for `claude -p`, to rerank results and to write the answer of
`nugget ask`. Each call is recorded before it is made. A call that exceeds the
daily budget (spend.tokens_per_day, spend.cents_per_day) is not made: rules read
the session, results keep their local order, and `nugget ask` prints passages.
Dollars are computed from list prices, also where a subscription pays; a model
on this machine costs nothing. A model without a list price counts as the most
expensive one, unless model.price_input and model.price_output are set.

Examples:
  nugget spend
  nugget spend --days 30 --json | jq .calls";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct SpendArgs {
    /// How many days to show
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = whole_number(1_u32..=3650))]
    days: u32,
    /// Print JSON with every call
    #[arg(long)]
    json: bool,
}

impl SpendArgs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let (config, _, places) = context.open()?;
        let now = Timestamp::now();
        let queue = if places.queue().is_file() { Some(Queue::open(&places.queue())?) } else { None };
        let since = |span: Duration| match &queue {
            Some(queue) => queue.model_calls(now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH)),
            None => Ok(Vec::new()),
        };
        let calls = since(DAY * self.days)?;
        let recent = Total::sum(&since(BUDGET_SPAN)?);
        let budget = extractor::budget(&config);
        if self.json {
            return output::print_json(&json!({
                "calls": calls,
                "last_24_hours": { "tokens": recent.tokens, "microdollars": recent.microdollars },
                "budget": { "tokens": budget.tokens, "microdollars": budget.microdollars },
                "prices_as_of": llm::PRICES_AS_OF,
                "unknown_prices": extractor::unknown_prices(&config),
            }));
        }
        let mut days: BTreeMap<(String, String), Vec<ModelCall>> = BTreeMap::new();
        for call in calls {
            let day = call.at.strftime("%Y-%m-%d").to_string();
            days.entry((day, call.cost.model.clone())).or_default().push(call);
        }
        let rows = days.iter().map(|((day, model), calls)| {
            let total = Total::sum(calls);
            let estimated =
                if total.estimated > 0 { format!(" ({} estimated)", total.estimated) } else { String::new() };
            vec![
                day.clone(),
                thousands(calls.len() as u64),
                thousands(total.tokens),
                dollars(total.microdollars),
                format!("{}{estimated}", output::safe(model)),
            ]
        });
        let span = if self.days == 1 { "24 hours".to_owned() } else { format!("{} days", self.days) };
        let mut text = if days.is_empty() {
            format!("nothing was spent in the last {span}\n")
        } else {
            output::table(&["day (UTC)", "calls", "tokens", "dollars", "model"], rows)
        };
        text.push_str(&format!(
            "last 24 hours: {} of {} tokens, {} of {}\nsessions are read by {}\n",
            thousands(recent.tokens),
            thousands(budget.tokens),
            dollars(recent.microdollars),
            dollars(budget.microdollars),
            output::safe(&extractor::destination(&config)),
        ));
        pager::print(context, &text)
    }
}

#[derive(Default)]
struct Total {
    tokens: u64,
    microdollars: u64,
    estimated: u64,
}

impl Total {
    fn sum(calls: &[ModelCall]) -> Self {
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
