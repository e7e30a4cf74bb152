//! Finds the JSON object in what a model wrote: alone, in a fenced block, or between sentences.

use serde_json::{Deserializer, Value};

/// More opening braces are not tried: each may be read to the end of the text.
const ATTEMPTS_MAX: usize = 100;

/// What a model wrote, without the reasoning that some servers leave in it as `<think>…</think>`.
pub(crate) fn without_reasoning(text: &str) -> &str {
    let text = text.trim();
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        match text.split_once(close) {
            // Some templates put the opening tag into the prompt, so that the answer has only the closing one.
            Some((reasoning, rest)) if text.starts_with(open) || !reasoning.contains(['{', '`']) => {
                return rest.trim();
            }
            None if text.starts_with(open) => return "",
            _ => {}
        }
    }
    text
}

/// The first object in a text that has all of these keys.
///
/// # Errors
/// What is wrong, for the model and for a person.
pub(crate) fn find_object(text: &str, keys: &[&str]) -> Result<Value, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut problem = None;
    let mut at = 0;
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = text[at..].find('{') else { break };
        at += found;
        let mut values = Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                let missing = keys.iter().find(|key| value.get(**key).is_none());
                let Some(missing) = missing else { return Ok(value) };
                problem.get_or_insert_with(|| format!("it has no `{missing}`"));
                at += values.byte_offset();
            }
            Some(Err(error)) => {
                problem.get_or_insert_with(|| format!("it is not valid JSON: {error}"));
                at += 1;
            }
            None => break,
        }
    }
    Err(problem.unwrap_or_else(|| "it holds no JSON object".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_found_alone_fenced_or_between_sentences() {
        let wanted = json!({ "units": [{ "body": "use `{}` and\n```rust\nlet x = {};\n```" }] });
        let written = wanted.to_string();
        for text in [
            written.clone(),
            format!("```json\n{written}\n```"),
            format!("```\n{written}\n```\nThat is all {{as asked}}."),
            format!("Here {{is}} it: {{}} {{\"note\": 1}}\n\n{written} Anything else?"),
        ] {
            assert_eq!(find_object(&text, &["units"]), Ok(wanted.clone()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| find_object(text, &["units"]).unwrap_err();
        assert_eq!(error(""), "it is empty");
        assert_eq!(error("I would rather talk."), "it holds no JSON object");
        assert_eq!(error(r#"{"unit": []}"#), "it has no `units`");
        assert!(error(r#"{"units": [}"#).starts_with("it is not valid JSON: expected value at line 1"));
        assert!(error(&"{".repeat(1_000_000)).starts_with("it is not valid JSON"));
        assert!(error(&"{\"a\":".repeat(200_000)).starts_with("it is not valid JSON"));
    }

    #[test]
    fn reasoning_is_left_out() {
        let answer = r#"{"units": ["</think>"]}"#;
        for text in [
            answer.to_owned(),
            format!("<think>{{\"units\": 1}} or not</think>\n{answer}"),
            format!("First I look at it.\n</think>\n{answer}"),
            format!("<thinking>hm</thinking>{answer}"),
        ] {
            assert_eq!(without_reasoning(&text), answer, "{text}");
        }
        assert_eq!(without_reasoning("<think>It never ends"), "");
        assert_eq!(without_reasoning("Close it with `</think>`."), "Close it with `</think>`.");
    }
}
