//! Prices of calls. No other file knows a price.

use crate::usage::Usage;

/// The month in which the table was last compared with the price list of the Claude platform.
pub const PRICES_AS_OF: &str = "2026-11";

/// Prices in thousandths of a dollar for a million tokens, which is billionths of a dollar for one.
#[derive(Clone, Copy)]
struct Price {
    input: u64,
    output: u64,
    cache_read: u64,
}

/// Prices by a part of the model's name; the first match counts. Writing to the cache costs a quarter more than plain
/// input.
const PRICES: &[(&[&str], Price)] = &[
    (&["fable", "mythos"], Price { input: 10_000, output: 50_000, cache_read: 1_000 }),
    (&["opus-5-5"], Price { input: 4_000, output: 20_000, cache_read: 200 }),
    (
        &["opus-5", "opus-4-5", "opus-4-6", "opus-4-7", "opus-4-8"],
        Price { input: 5_000, output: 25_000, cache_read: 500 },
    ),
    (&["opus-4-0", "opus-4-1", "opus-4-2", "3-opus"], UNKNOWN),
    (&["sonnet-5"], Price { input: 2_000, output: 10_000, cache_read: 200 }),
    (&["sonnet"], Price { input: 3_000, output: 15_000, cache_read: 300 }),
    // A prompt of more than 100,000 tokens is charged fivefold; see `microdollars`.
    (&["haiku-5-5"], Price { input: 100, output: 500, cache_read: 10 }),
    (&["haiku"], Price { input: 1_000, output: 5_000, cache_read: 100 }),
];

/// The price for a name that is not in the table: the highest that any model has had, so that a budget holds.
const UNKNOWN: Price = Price { input: 15_000, output: 75_000, cache_read: 1_500 };

fn list_price(model: &str) -> Option<Price> {
    PRICES.iter().find(|(names, _)| names.iter().any(|name| model.contains(name))).map(|(_, price)| *price)
}

/// The list price of a call, in millionths of a dollar, rounded up. A model that is not in the list costs as much as the
/// most expensive one.
pub fn microdollars(model: &str, usage: &Usage) -> u64 {
    Rates::default().microdollars(model, usage)
}

/// The list price of a call; `None` for a model that is not in the list, as one of another provider.
pub fn list_microdollars(model: &str, usage: &Usage) -> Option<u64> {
    list_price(model).map(|_| microdollars(model, usage))
}

/// How the calls of a model are priced where the list of prices is not enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// US cents for a million input tokens, by the settings.
    pub input_cents: Option<u64>,
    /// US cents for a million output tokens, by the settings.
    pub output_cents: Option<u64>,
    /// The model runs on this machine: what the settings do not price costs nothing.
    pub is_local: bool,
}

impl Rates {
    /// The price of a call, in millionths of a dollar, rounded up.
    pub fn microdollars(&self, model: &str, usage: &Usage) -> u64 {
        let free = Price { input: 0, output: 0, cache_read: 0 };
        let list = if self.is_local { free } else { list_price(model).unwrap_or(UNKNOWN) };
        // A cent is ten thousandths of a dollar.
        let input = self.input_cents.map(|cents| cents * 10);
        let price = Price {
            input: input.unwrap_or(list.input),
            output: self.output_cents.map_or(list.output, |cents| cents * 10),
            cache_read: input.unwrap_or(list.cache_read),
        };
        let prompt = usage.tokens() - usage.output_tokens;
        let factor = if model.contains("haiku-5-5") && prompt > 100_000 { 5 } else { 1 };
        let billionths = usage.input_tokens * price.input
            + usage.output_tokens * price.output
            + usage.cache_creation_input_tokens * price.input * 5 / 4
            + usage.cache_read_input_tokens * price.cache_read;
        (billionths * factor).div_ceil(1_000)
    }

    /// Whether the price of a model is known, and not the highest that any model has.
    pub fn is_known(&self, model: &str) -> bool {
        let is_set = self.input_cents.is_some() && self.output_cents.is_some();
        is_set || self.is_local || list_price(model).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first two are what Claude Code reported for its own calls.
    #[test]
    fn calls_cost_what_the_price_list_says() {
        let check = |model: &str, input, output, written, read, expected| {
            let usage = Usage {
                input_tokens: input,
                output_tokens: output,
                cache_creation_input_tokens: written,
                cache_read_input_tokens: read,
            };
            assert_eq!(microdollars(model, &usage), expected, "{model}");
        };
        check("claude-opus-5-5", 12_437, 42, 0, 0, 50_588);
        check("claude-opus-5-5", 24_946, 84, 0, 0, 101_464);
        check("claude-haiku-4-5-20251001", 1_000_000, 1_000, 0, 0, 1_005_000);
        check("claude-haiku-4-5", 0, 0, 1_000, 1_000, 1_350);
        check("claude-haiku-5-5", 100_000, 0, 0, 0, 10_000);
        check("claude-haiku-5-5", 100_001, 0, 0, 0, 50_001);
        check("claude-opus-4-1", 1_000, 1_000, 0, 0, 90_000);
        check("my-gateway/some-model", 1, 0, 0, 0, 15);
        let usage = Usage { input_tokens: 1_000, ..Usage::default() };
        assert_eq!(list_microdollars("gpt-5-codex", &usage), None);
        assert_eq!(list_microdollars("claude-opus-4-20250514", &usage), Some(15_000));
    }

    #[test]
    fn a_local_model_is_free_and_an_unknown_one_costs_what_the_settings_say() {
        let usage = Usage { input_tokens: 1_000_000, output_tokens: 100_000, ..Usage::default() };
        let local = Rates { is_local: true, ..Rates::default() };
        assert_eq!((local.microdollars("claude-sonnet-distilled", &usage), local.is_known("x")), (0, true));
        let unknown = Rates::default();
        assert_eq!(
            (unknown.microdollars("some-model", &usage), unknown.is_known("some-model")),
            (22_500_000, false)
        );
        assert!(unknown.is_known("claude-haiku-4-5"));
        let set = Rates { input_cents: Some(15), output_cents: Some(60), is_local: false };
        assert_eq!((set.microdollars("some-model", &usage), set.is_known("some-model")), (210_000, true));
        let half = Rates { output_cents: None, ..set };
        assert_eq!(
            (half.microdollars("some-model", &usage), half.is_known("some-model")),
            (7_650_000, false)
        );
        let gateway = Rates { is_local: true, ..set };
        assert_eq!(gateway.microdollars("some-model", &usage), 210_000, "a gateway on this machine");
    }
}
