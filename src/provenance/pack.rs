//! Fits items into a limit of tokens, in three passes: summaries, details, prompts.

use std::collections::BTreeSet;

use crate::item::{Depth, Item};

/// How much of an item is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedItem {
    /// The item.
    pub item: Item,
    /// Whether its detail and its alternatives are shown.
    pub has_detail: bool,
    /// The prompt that led to it, if it is shown.
    pub prompt: Option<String>,
}

/// What fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// The items that fit, in their order.
    pub items: Vec<PackedItem>,
    /// Tokens that they take.
    pub used: usize,
    /// Whether some do not fit.
    pub is_truncated: bool,
    /// How many do not fit, of which types, and what to do.
    pub hint: Option<String>,
}

/// An estimate of the tokens of a text: one for each four UTF-16 units.
pub fn tokens(text: &str) -> usize {
    text.encode_utf16().count().div_ceil(4)
}

/// Packs items, the best of which come first. `more` is what to do for those that do not fit.
pub fn pack(items: Vec<Item>, budget: usize, depth: Depth, more: &str) -> Packed {
    pack_with_prompts(items, budget, depth, more, |_| None)
}

/// As [`pack`], with the prompts of depth `deep`.
pub fn pack_with_prompts(
    items: Vec<Item>,
    budget: usize,
    depth: Depth,
    more: &str,
    mut prompt: impl FnMut(&Item) -> Option<String>,
) -> Packed {
    let mut packed = Packed::default();
    let (mut left_out, mut kinds) = (0, BTreeSet::new());
    let mut order = Vec::new();
    for item in items {
        let place = item.path.as_deref().unwrap_or("workspace");
        let cost = tokens(&format!("{}: {} [{place}]", item.kind, item.summary));
        if packed.used + cost <= budget {
            packed.used += cost;
            packed.items.push(PackedItem { item, has_detail: false, prompt: None });
        } else {
            left_out += 1;
            if kinds.insert(item.kind.clone()) {
                order.push(item.kind.to_string());
            }
        }
    }
    if depth != Depth::Summary {
        for shown in &mut packed.items {
            let Some(detail) = shown.item.detail.as_deref().filter(|detail| !detail.is_empty()) else {
                continue;
            };
            let cost = tokens(detail);
            if packed.used + cost <= budget {
                packed.used += cost;
                shown.has_detail = true;
            }
        }
    }
    if depth == Depth::Deep {
        for shown in &mut packed.items {
            let Some(text) = prompt(&shown.item) else { continue };
            let cost = tokens(&text);
            if packed.used + cost <= budget {
                packed.used += cost;
                shown.prompt = Some(text);
            }
        }
    }
    packed.is_truncated = left_out > 0;
    packed.hint = (left_out > 0).then(|| format!("{left_out} more (types: {}). {more}", order.join(", ")));
    packed
}

#[cfg(test)]
mod tests {
    use knowledge::UnitType;

    use super::*;

    fn item(kind: UnitType, summary: &str, detail: &str) -> Item {
        Item {
            kind,
            summary: summary.into(),
            detail: Some(detail.to_owned()).filter(|detail| !detail.is_empty()),
            prompt: Some(1),
            ..Item::default()
        }
    }

    #[test]
    fn a_detail_goes_to_its_own_item_after_one_that_did_not_fit() {
        let long = "x".repeat(400);
        let items = vec![
            item(UnitType::Decision, "short", ""),
            item(UnitType::Caveat, &long, "of the long one"),
            item(UnitType::Intent, "other", "of the other"),
        ];
        let packed = pack(items.clone(), 30, Depth::Standard, "Raise it.");
        let shown: Vec<_> =
            packed.items.iter().map(|shown| (shown.item.summary.as_str(), shown.has_detail)).collect();
        assert_eq!(shown, [("short", false), ("other", true)]);
        assert_eq!(packed.hint.as_deref(), Some("1 more (types: caveat). Raise it."));
        assert!(packed.is_truncated && packed.used <= 30);
        assert!(pack(items, 30, Depth::Summary, "").items.iter().all(|shown| !shown.has_detail));
    }

    #[test]
    fn prompts_come_last_and_only_when_deep() {
        let items = || vec![item(UnitType::Intent, "a", "b"), item(UnitType::Intent, "c", "d")];
        let prompt = |_: &Item| Some("p".repeat(40));
        let deep = pack_with_prompts(items(), 25, Depth::Deep, "", prompt);
        let shown: Vec<_> =
            deep.items.iter().map(|shown| (shown.has_detail, shown.prompt.is_some())).collect();
        assert_eq!(shown, [(true, true), (true, false)], "the second prompt does not fit");
        let standard = pack_with_prompts(items(), 100, Depth::Standard, "", prompt);
        assert!(standard.items.iter().all(|shown| shown.prompt.is_none()));
    }

    #[test]
    fn tokens_are_estimated_by_utf_16_units() {
        assert_eq!((tokens(""), tokens("abcd"), tokens("abcde"), tokens("😀😀")), (0, 1, 2, 1));
    }
}
