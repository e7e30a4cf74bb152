//! Facts as bound pairs of key and value, superposed in memory banks.

use crate::key_match::{ComparedKey, KeyMatch, find_key};
use crate::vector::{Bundle, DEFAULT_DIMENSION, Phases, SplitMix64, softmax, token_seed};

/// The sizes of a [`FactStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactLayout {
    /// Complex numbers in each vector.
    pub dimension: usize,
    /// Facts superposed in one bank, at least 1. A recall reads one bank, and compares with the values
    /// in it.
    pub facts_per_bank: usize,
    /// Facts in the store, at least 1; the oldest gives way to one more.
    pub facts_max: usize,
}

impl Default for FactLayout {
    /// 16,384 dimensions, 64 facts in a bank, 2,048 facts: up to 32 banks of 128 KiB.
    fn default() -> FactLayout {
        FactLayout { dimension: DEFAULT_DIMENSION, facts_per_bank: 64, facts_max: 2_048 }
    }
}

/// A store of short facts that superposes bound pairs of key and value vectors, and recalls a value by
/// unbinding its key and cleaning up.
///
/// A bank is one superposition of up to [`FactLayout::facts_per_bank`] facts, with the values of its
/// own facts as clean-up memory. Only the bank that holds the key is read.
///
/// No vector of a key or value is kept: a recall makes again what it needs from the texts. In memory
/// are the texts and, for each bank, 8 bytes for each dimension.
#[derive(Clone, Debug)]
pub struct FactStore {
    layout: FactLayout,
    /// The oldest first.
    facts: Vec<Fact>,
    banks: Vec<Bank>,
}

#[derive(Clone, Debug)]
struct Fact {
    key: String,
    value: String,
    compared: ComparedKey,
    value_seed: u64,
    bank: usize,
}

#[derive(Clone, Debug)]
struct Bank {
    memory: Bundle,
    facts: usize,
}

/// What [`FactStore::remember`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// The key is new.
    Added,
    /// The key is new, and the oldest fact was dropped for it.
    AddedInPlaceOf {
        /// The key of the dropped fact.
        key: String,
        /// Its value.
        value: String,
    },
    /// The key had another value.
    Changed {
        /// The value it had.
        previous: String,
    },
    /// The key has this value already.
    Unchanged,
    /// Nothing was stored, because the key or the value is empty.
    Empty,
}

/// A value recalled from a [`FactStore`].
#[derive(Clone, Debug, PartialEq)]
pub struct Recall<'a> {
    /// The stored key that the question means.
    pub key: &'a str,
    /// How the question was matched to it.
    pub key_match: KeyMatch,
    /// The value that clean-up chose.
    pub value: &'a str,
    /// The cosine between the unbound memory and the value's vector, in -1..=1: about 1/√(facts in the
    /// bank).
    pub similarity: f64,
    /// The probability that `value` is the one stored under `key`, in 0..=1.
    pub confidence: f64,
    /// `confidence` less that of the second best value, in 0..=1.
    pub margin: f64,
}

impl FactStore {
    /// An empty store of the default layout.
    #[must_use]
    pub fn new() -> FactStore {
        FactStore::with_layout(FactLayout::default())
    }

    /// An empty store of these sizes. A dimension, a fact in a bank or a fact in the store fewer than 1
    /// counts as 1.
    #[must_use]
    pub fn with_layout(layout: FactLayout) -> FactStore {
        let layout = FactLayout {
            dimension: layout.dimension.max(1),
            facts_per_bank: layout.facts_per_bank.max(1),
            facts_max: layout.facts_max.max(1),
        };
        FactStore { layout, facts: Vec::new(), banks: Vec::new() }
    }

    /// Stores a value under a key, both without the white space around them. A key that differs in
    /// upper and lower case only is the same key.
    pub fn remember(&mut self, key: &str, value: &str) -> Remembered {
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Remembered::Empty;
        }
        if let Some(at) = self.position(key) {
            return self.change(at, value);
        }
        let dropped = (self.facts.len() >= self.layout.facts_max).then(|| self.remove(0));
        self.add(key, value);
        match dropped {
            Some(fact) => Remembered::AddedInPlaceOf { key: fact.key, value: fact.value },
            None => Remembered::Added,
        }
    }

    /// Takes a fact out of its bank, which is then as if the fact had never been there. Returns the
    /// value it had, or `None` for an unknown key; the key is not guessed.
    pub fn forget(&mut self, key: &str) -> Option<String> {
        let at = self.position(key)?;
        Some(self.remove(at).value)
    }

    /// Recalls the value whose key `question` means, or `None` if no key is close enough.
    #[must_use]
    pub fn recall(&self, question: &str) -> Option<Recall<'_>> {
        let (at, key_match) = self.find(question)?;
        let fact = &self.facts[at];
        let (value, similarity, probabilities) = self.clean_up(fact)?;
        let second = probabilities.get(1).copied().unwrap_or(0.0);
        let confidence = probabilities[0];
        Some(Recall { key: &fact.key, key_match, value, similarity, confidence, margin: confidence - second })
    }

    /// The stored key that `question` means, and how it was matched.
    #[must_use]
    pub fn resolve(&self, question: &str) -> Option<(&str, KeyMatch)> {
        self.find(question).map(|(at, key_match)| (self.facts[at].key.as_str(), key_match))
    }

    /// Keys and values, the oldest first.
    pub fn facts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts.iter().map(|fact| (fact.key.as_str(), fact.value.as_str()))
    }

    /// How many facts are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// The sizes in force.
    #[must_use]
    pub fn layout(&self) -> FactLayout {
        self.layout
    }

    /// The memory in use, in bytes: banks and texts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = self.facts.iter().map(|fact| fact.key.len() + fact.value.len() + fact.compared.bytes());
        let banks = self.banks.len() * self.layout.dimension * 2 * size_of::<f32>();
        banks + self.facts.len() * size_of::<Fact>() + texts.sum::<usize>()
    }

    fn position(&self, key: &str) -> Option<usize> {
        let lower = key.trim().to_lowercase();
        self.facts.iter().position(|fact| fact.compared.lower == lower)
    }

    fn find(&self, question: &str) -> Option<(usize, KeyMatch)> {
        find_key(self.facts.iter().map(|fact| &fact.compared), question)
    }

    fn add(&mut self, key: &str, value: &str) {
        let bank = self.bank_with_room();
        let fact = Fact {
            key: key.to_owned(),
            value: value.to_owned(),
            compared: ComparedKey::new(key),
            value_seed: value_seed(value),
            bank,
        };
        let pair = self.bound_pair(&fact);
        self.banks[bank].memory.add(&pair);
        self.banks[bank].facts += 1;
        self.facts.push(fact);
    }

    fn change(&mut self, at: usize, value: &str) -> Remembered {
        if self.facts[at].value == value {
            return Remembered::Unchanged;
        }
        let bank = self.facts[at].bank;
        let before = self.bound_pair(&self.facts[at]);
        self.banks[bank].memory.subtract(&before);
        self.facts[at].value_seed = value_seed(value);
        let previous = std::mem::replace(&mut self.facts[at].value, value.to_owned());
        let after = self.bound_pair(&self.facts[at]);
        self.banks[bank].memory.add(&after);
        Remembered::Changed { previous }
    }

    fn remove(&mut self, at: usize) -> Fact {
        let fact = self.facts.remove(at);
        let pair = self.bound_pair(&fact);
        let bank = &mut self.banks[fact.bank];
        bank.memory.subtract(&pair);
        bank.facts -= 1;
        while self.banks.pop_if(|last| last.facts == 0).is_some() {}
        fact
    }

    /// The first bank that is not full, or a further one.
    fn bank_with_room(&mut self) -> usize {
        let room = self.banks.iter().position(|bank| bank.facts < self.layout.facts_per_bank);
        room.unwrap_or_else(|| {
            self.banks.push(Bank { memory: Bundle::new(self.layout.dimension), facts: 0 });
            self.banks.len() - 1
        })
    }

    fn bound_pair(&self, fact: &Fact) -> Phases {
        self.key_vector(fact).bind(&Phases::from_seed(fact.value_seed, self.layout.dimension))
    }

    fn key_vector(&self, fact: &Fact) -> Phases {
        Phases::from_token(&format!("key\0{}", fact.compared.lower), self.layout.dimension)
    }

    /// The best value for a fact's key with its similarity, and the probabilities of the values that
    /// were compared in all dimensions, the highest first. The others are so much less probable that
    /// they are left out of the sum.
    fn clean_up(&self, fact: &Fact) -> Option<(&str, f64, Vec<f64>)> {
        let bank = &self.banks[fact.bank];
        let unbound = bank.memory.unbind(&self.key_vector(fact));
        let norm = (unbound.norm() * (self.layout.dimension as f64).sqrt()).max(f64::MIN_POSITIVE);
        let mut scored: Vec<(f64, &Fact)> = self
            .likely_values(fact.bank, &unbound)
            .into_iter()
            .map(|fact| {
                let vector = Phases::from_seed(fact.value_seed, self.layout.dimension);
                (unbound.product(&vector) / norm, fact)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let similarities: Vec<f64> = scored.iter().map(|(similarity, _)| *similarity).collect();
        let probabilities = softmax(&similarities, self.temperature(bank.facts));
        let (similarity, best) = *scored.first()?;
        Some((&best.value, similarity, probabilities))
    }

    /// The temperature at which softmax gives probabilities of being right.
    ///
    /// A similarity is normally distributed with variance σ² = 1/(2·dimension) about the mean
    /// μ = 1/√facts for the right value, 0 for a wrong one. The ratio of the two likelihoods is
    /// e^(μ·similarity/σ²) times a constant, so the temperature is σ²/μ.
    fn temperature(&self, superposed: usize) -> f64 {
        (superposed as f64).sqrt() / (2.0 * self.layout.dimension as f64)
    }

    /// The distinct values of a bank, or the best [`VERIFIED`] of them by a first part of the
    /// dimensions where that is surely enough.
    fn likely_values(&self, bank: usize, unbound: &Bundle) -> Vec<&Fact> {
        let mut values: Vec<&Fact> = self.facts.iter().filter(|fact| fact.bank == bank).collect();
        let part = (self.banks[bank].facts * DIMENSIONS_PER_FACT).max(PART_MIN);
        values.sort_by_key(|fact| fact.value_seed);
        values.dedup_by_key(|fact| fact.value_seed);
        if part >= self.layout.dimension || values.len() <= VERIFIED {
            return values;
        }
        let mut ranked: Vec<(f64, &Fact)> = values
            .into_iter()
            .map(|fact| (unbound.product(&Phases::from_seed(fact.value_seed, part)), fact))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().take(VERIFIED).map(|(_, fact)| fact).collect()
    }
}

/// How many values are compared in all dimensions after a first part has ranked them.
const VERIFIED: usize = 8;

/// The first part has 16 dimensions for each fact in the bank, so that the right value stands
/// √(2·16) = 5.7 standard deviations above the noise there. Among 64 values the eighth best wrong one
/// stands at about 1.2, so fewer than one right value in 100,000 is missed.
const DIMENSIONS_PER_FACT: usize = 16;

/// The smallest first part, in dimensions.
const PART_MIN: usize = 256;

impl Default for FactStore {
    fn default() -> FactStore {
        FactStore::new()
    }
}

fn value_seed(value: &str) -> u64 {
    SplitMix64(token_seed(value)).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected_accuracy;

    fn filled(layout: FactLayout, facts: usize) -> FactStore {
        let mut store = FactStore::with_layout(layout);
        for i in 0..facts {
            store.remember(&format!("key {i}"), &format!("value {i}"));
        }
        store
    }

    fn right_share(store: &FactStore) -> f64 {
        let right = store.facts().filter(|(key, value)| store.recall(key).is_some_and(|r| r.value == *value));
        right.count() as f64 / store.len() as f64
    }

    #[test]
    fn default_store_recalls_every_fact_of_300() {
        let store = filled(FactLayout { dimension: 4_096, ..FactLayout::default() }, 300);
        assert_eq!(right_share(&store), 1.0);
    }

    #[test]
    fn recall_is_sure_where_the_noise_is_small() {
        let store = filled(FactLayout::default(), 64);
        let recalled = store.recall("KEY 17").expect("a known key");
        assert_eq!(
            (recalled.key, recalled.value, recalled.key_match),
            ("key 17", "value 17", KeyMatch::Exact)
        );
        assert!((recalled.similarity - 1.0 / 8.0).abs() < 0.03);
        assert!(recalled.confidence > 0.999_999 && recalled.margin > 0.999_999);
    }

    #[test]
    fn accuracy_of_an_overfull_bank_is_that_of_theory() {
        for (dimension, facts) in [(256, 100), (1_024, 200), (512, 400)] {
            let layout = FactLayout { dimension, facts_per_bank: facts, facts_max: facts * 10 };
            let stores = (0..2_000usize.div_ceil(facts)).map(|s| {
                let mut store = FactStore::with_layout(layout);
                for i in 0..facts {
                    store.remember(&format!("key {s} {i}"), &format!("value {s} {i}"));
                }
                right_share(&store)
            });
            let shares: Vec<f64> = stores.collect();
            let share = shares.iter().sum::<f64>() / shares.len() as f64;
            let expected = expected_accuracy(dimension, facts, facts);
            assert!((share - expected).abs() < 0.04, "{dimension} {facts}: {share}, expected {expected}");
        }
    }

    #[test]
    fn confidence_is_how_often_recall_is_right() {
        let layout = FactLayout { dimension: 512, facts_per_bank: 200, facts_max: 2_000 };
        let store = filled(layout, 2_000);
        let recalls: Vec<(f64, bool)> = store
            .facts()
            .filter_map(|(key, value)| store.recall(key).map(|r| (r.confidence, r.value == value)))
            .collect();
        let claimed = recalls.iter().map(|(confidence, _)| confidence).sum::<f64>() / recalls.len() as f64;
        let right = recalls.iter().filter(|(_, right)| *right).count() as f64 / recalls.len() as f64;
        assert!((claimed - right).abs() < 0.04, "claimed {claimed}, right {right}");
    }

    #[test]
    fn first_part_of_the_dimensions_misses_no_value() {
        let store = filled(FactLayout { dimension: 2_048, ..FactLayout::default() }, 640);
        assert_eq!(right_share(&store), 1.0);
    }

    #[test]
    fn forgotten_fact_leaves_no_trace() {
        let layout = FactLayout { dimension: 512, ..FactLayout::default() };
        let mut store = filled(layout, 100);
        let before = store.clone();
        store.remember("other", "thing");
        assert_eq!(store.forget(" OTHER "), Some("thing".into()));
        assert_eq!(store.forget("other"), None);
        for (bank, earlier) in store.banks.iter().zip(&before.banks) {
            assert_eq!(bank.memory, earlier.memory);
        }
        (0..100).for_each(|i| assert!(store.forget(&format!("key {i}")).is_some()));
        assert!(store.is_empty() && store.banks.is_empty());
    }

    #[test]
    fn changed_value_replaces_the_old_one() {
        let mut store = filled(FactLayout { dimension: 1_024, ..FactLayout::default() }, 20);
        assert_eq!(store.remember("Key 3", "new"), Remembered::Changed { previous: "value 3".into() });
        assert_eq!(store.remember("key 3", "new"), Remembered::Unchanged);
        assert_eq!(store.recall("key 3").map(|r| r.value), Some("new"));
        assert_eq!(store.len(), 20);
        let before = filled(store.layout, 20);
        store.remember("key 3", "value 3");
        assert_eq!(store.banks[0].memory, before.banks[0].memory);
    }

    #[test]
    fn oldest_fact_gives_way_when_the_store_is_full() {
        let mut store = filled(FactLayout { dimension: 256, facts_per_bank: 4, facts_max: 8 }, 8);
        let dropped = Remembered::AddedInPlaceOf { key: "key 0".into(), value: "value 0".into() };
        assert_eq!(store.remember("key 8", "value 8"), dropped);
        assert_eq!((store.len(), store.banks.len()), (8, 2));
        assert!(store.facts().all(|(key, _)| key != "key 0"));
    }

    #[test]
    fn empty_key_or_value_is_not_stored() {
        let mut store = FactStore::new();
        assert_eq!(store.remember(" ", "value"), Remembered::Empty);
        assert_eq!(store.remember("key", "\n"), Remembered::Empty);
        assert!(store.recall("key").is_none());
    }

    #[test]
    fn one_value_under_two_keys_is_recalled_by_both() {
        let mut store = FactStore::new();
        store.remember("staging port", "8443");
        store.remember("review port", "8443");
        store.remember("editor", "helix");
        for key in ["staging port", "review port"] {
            assert_eq!(store.recall(key).map(|r| r.value), Some("8443"));
        }
    }

    #[test]
    fn key_that_equals_its_value_is_recalled() {
        let mut store = filled(FactLayout { dimension: 1_024, ..FactLayout::default() }, 10);
        store.remember("same", "same");
        assert_eq!(store.recall("same").map(|r| r.value), Some("same"));
    }
}
