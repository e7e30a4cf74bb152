//! What a team server answers a question with.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// In the `_meta` of a tool's result: the units that its text shows, as an array of [`ShownUnit`].
pub const SHOWN: &str = "nugget/shown";

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamAnswer {
    /// The text for the session.
    pub text: String,
    /// The units that it shows, in their order. Empty from a server of an earlier version.
    pub shown: Vec<ShownUnit>,
}

/// A unit that an answer shows: what the asking machine needs to see later whether it was of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownUnit {
    /// Its id.
    pub id: String,
    /// About how many tokens of the answer it takes.
    pub tokens: usize,
}

/// Whatever else a server writes there, the answer itself counts.
pub(crate) fn read_shown(meta: &Map<String, Value>) -> Vec<ShownUnit> {
    meta.get(SHOWN).and_then(|shown| Vec::deserialize(shown).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_list_of_units_is_an_empty_one() {
        let read = |shown: Value| read_shown(&Map::from_iter([(SHOWN.to_owned(), shown)]));
        let unit = ShownUnit { id: "a".to_owned(), tokens: 7 };
        assert_eq!(read(json!([{ "id": "a", "tokens": 7, "later": true }])), [unit]);
        for other in [json!(null), json!("a"), json!([{ "id": 1, "tokens": 7 }]), json!([{ "id": "a" }])] {
            assert_eq!(read(other), []);
        }
        assert_eq!(read_shown(&Map::new()), []);
    }
}
