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
    (&["sonnet-5"], Price { input: 2_000, output: 10_000, cache_read: 200 }),
    (&["sonnet"], Price { input: 3_000, output: 15_000, cache_read: 300 }),
    // A prompt of more than 100,000 tokens is charged fivefold; see `microdollars`.
    (&["haiku-5-5"], Price { input: 100, output: 500, cache_read: 10 }),
    (&["haiku"], Price { input: 1_000, output: 5_000, cache_read: 100 }),
];

/// The price for a name that is not in the table: the highest that any model has had, so that a budget holds.
const UNKNOWN: Price = Price { input: 15_000, output: 75_000, cache_read: 1_500 };

/// The list price of a call, in millionths of a dollar, rounded up.
pub fn microdollars(model: &str, usage: &Usage) -> u64 {
    let known = PRICES.iter().find(|(names, _)| names.iter().any(|name| model.contains(name)));
    let price = known.map_or(UNKNOWN, |(_, price)| *price);
    let prompt = usage.tokens() - usage.output_tokens;
    let factor = if model.contains("haiku-5-5") && prompt > 100_000 { 5 } else { 1 };
    let billionths = usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_creation_input_tokens * price.input * 5 / 4
        + usage.cache_read_input_tokens * price.cache_read;
    (billionths * factor).div_ceil(1_000)
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
    }
}
