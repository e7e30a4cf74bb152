//! The arguments of a call that tools share.

use serde_json::Value;

/// The budgets that a call may ask for. The client cuts a result at 25,000 tokens as its own model counts them.
const BUDGET_TOKENS: std::ops::RangeInclusive<u64> = 100..=16_000;

/// Reads the argument `budget_tokens`.
pub(crate) fn budget_tokens(value: &Value) -> Result<usize, String> {
    // A model may write 800 or 800.0.
    let number =
        value.as_u64().or_else(|| value.as_f64().filter(|x| *x >= 0.0 && x.fract() == 0.0).map(|x| x as u64));
    let number =
        number.ok_or_else(|| format!("`budget_tokens` must be a whole number, not {}", kind(value)))?;
    Ok(number.clamp(*BUDGET_TOKENS.start(), *BUDGET_TOKENS.end()) as usize)
}

/// The kind of a JSON value, for an error message.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) if value.is_u64() => "a number",
        Value::Number(_) => "a number below zero or with a fraction",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
