//! Fields of a line that are read only where they are needed: one of an unexpected type costs only itself.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json_scan;

/// A block of a message.
#[derive(Deserialize)]
pub struct Block<'a> {
    /// `text`, `thinking`, `tool_use`, `tool_result` and others.
    #[serde(borrow, rename = "type")]
    pub kind: Option<&'a RawValue>,
    /// Of a text: what it says.
    #[serde(borrow)]
    pub text: Option<&'a RawValue>,
    /// Of what the model thought: the thought.
    #[serde(borrow)]
    pub thinking: Option<&'a RawValue>,
    /// Of a call: its id.
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    /// Of a call: the tool.
    #[serde(borrow)]
    pub name: Option<&'a RawValue>,
    /// Of a call: its input.
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    /// Of a result: the id of its call.
    #[serde(borrow)]
    pub tool_use_id: Option<&'a RawValue>,
    /// Of a result: what the tool returned.
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    /// Of a result: whether the tool failed.
    #[serde(borrow)]
    pub is_error: Option<&'a RawValue>,
}

/// The blocks of a message; none if its content is plain text.
pub fn blocks(content: Option<&[u8]>) -> Vec<Block<'_>> {
    let raws: Vec<&RawValue> = content
        .filter(|content| content.first() == Some(&b'['))
        .map_or_else(Vec::new, |content| serde_json::from_slice(content).unwrap_or_default());
    raws.into_iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect()
}

/// The text of a string.
pub fn string(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let raw = raw?.get();
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        json_scan::text(raw.as_bytes()).map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// Whether a field is true.
pub fn flag(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}
