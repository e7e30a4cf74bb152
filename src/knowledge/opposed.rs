//! Whether two units about the same thing state what cannot both hold.
//!
//! Only the forms that words show: a denial, an opposite word, another number, a choice the other way round, and a
//! choice that replaces another. What contradicts by its meaning alone is for a model.

use std::collections::BTreeSet;

use crate::text::stem;
use crate::value;
use crate::words::{Words, jaccard, share_of, words};

/// The share of the shorter title's words that the longer one must contain to make the same statement
/// (`extract::similarity`).
const SAME_STATEMENT_SHARE: f64 = 0.65;
/// The share for a denial: titles that share less more often restate each other ("a, not b" and "a instead of b").
const DENIED_SHARE: f64 = 0.8;
/// The share of common words from which on two statements have one form, and differ by what they say.
const SAME_FORM_SHARE: f64 = 0.7;
/// The share of common words from which on two texts are nearly one.
const SAME_TEXT_SHARE: f64 = 0.9;
/// The share for two decisions whose titles differ in the middle.
const OTHER_CHOICE_SHARE: f64 = 0.4;
/// Fewer shared words do not make a sentence the same statement.
const SHARED_WORDS_MIN: usize = 3;

/// A statement: a title or a sentence.
#[derive(Clone, Debug)]
pub struct Statement {
    text: String,
    /// The words in lower case, in order, without punctuation.
    raw: Vec<String>,
    /// The stems without numbers, denials and verbs of no meaning.
    subject: Words,
    /// A bit for each of these stems, which others may share.
    bits: u64,
    numbers: BTreeSet<String>,
    is_negative: bool,
    is_correction: bool,
    /// What it affirms and what it denies beside that: "use cents, not floats".
    sides: Option<Sides>,
    /// What comes first and what comes after it: "tests before the merge".
    order: Option<Sides>,
}

/// Two parts of a statement that can change places, as their stems.
#[derive(Clone, Debug)]
struct Sides(Words, Words);

impl Sides {
    /// `None` if one of them is empty.
    fn new(one: Words, other: Words) -> Option<Self> {
        (!one.is_empty() && !other.is_empty()).then_some(Self(one, other))
    }

    /// Whether the parts have changed places: each has a word here that only the opposite part has there.
    fn is_swapped(&self, other: &Self) -> bool {
        let moved = |from: &Words, to: &Words, not: &Words| {
            from.iter().any(|word| to.contains(word) && !not.contains(word))
        };
        moved(&self.1, &other.0, &self.0) && moved(&other.1, &self.0, &other.0)
    }
}

impl Statement {
    /// Reads a title or a sentence.
    pub fn new(text: &str) -> Self {
        let raw: Vec<String> = text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect();
        let numbers = raw.iter().filter_map(|word| number(word)).collect();
        let subject: Words = raw.iter().flat_map(|word| subject_of(word)).collect();
        Self {
            bits: subject.iter().fold(0, |bits, word| bits | bit(word)),
            subject,
            numbers,
            is_negative: value::is_negative(text),
            is_correction: is_correction(text),
            sides: sides(text),
            order: order(&raw),
            raw,
            text: text.to_owned(),
        }
    }

    /// Whether it has a number, given in digits.
    pub fn has_number(&self, digits: &str) -> bool {
        self.numbers.contains(digits)
    }

    /// Whether each has a number that the other lacks.
    pub fn differs_in_numbers(&self, other: &Self) -> bool {
        !self.numbers.is_subset(&other.numbers) && !other.numbers.is_subset(&self.numbers)
    }

    /// Whether a sentence says the same as another one of as many numbers, with other numbers.
    fn has_another_number(&self, other: &Self) -> bool {
        self.numbers.len() == other.numbers.len()
            && self.differs_in_numbers(other)
            && self.likeness(other) >= SAME_STATEMENT_SHARE
            && self.is_same_statement(other, DENIED_SHARE)
    }

    /// Whether the likeness may be as high as this, told without comparing words: the other one lacks a stem if it lacks
    /// the bit.
    fn may_be_like(&self, other: &Self, likeness_min: f64) -> bool {
        let own = |one: &Self, other: &Self| (one.bits & !other.bits).count_ones() as usize;
        let (ours, theirs) = (own(self, other), own(other, self));
        let shared_max = (self.subject.len() - ours).min(other.subject.len() - theirs);
        let all = self.subject.len() + other.subject.len() - shared_max;
        shared_max as f64 >= likeness_min * all as f64
    }

    /// The share of common words, from 0 to 1.
    pub fn likeness(&self, other: &Self) -> f64 {
        jaccard(&self.subject, &other.subject)
    }

    fn share(&self, other: &Self) -> f64 {
        share_of(&self.subject, &other.subject).max(share_of(&other.subject, &self.subject))
    }

    fn is_same_statement(&self, other: &Self, share_min: f64) -> bool {
        let shared = self.subject.intersection(&other.subject).count();
        shared >= SHARED_WORDS_MIN.min(self.subject.len()).min(other.subject.len())
            && shared > 0
            && self.share(other) >= share_min
    }

    /// Whether the one denies the other, has the opposite word in its place, or says it the other way round.
    pub fn is_denial(&self, other: &Self) -> bool {
        if !self.is_same_statement(other, DENIED_SHARE) || self.is_same_choice(other) {
            return false;
        }
        if self.is_negative == other.is_negative
            && let Some((ours, theirs)) = self.order.as_ref().zip(other.order.as_ref())
            && (ours.is_swapped(theirs) || ours.0 == theirs.0)
        {
            return ours.is_swapped(theirs);
        }
        let denies = match (&self.sides, &other.sides) {
            (None, None) => self.is_negative != other.is_negative,
            (Some(ours), Some(theirs)) => ours.is_swapped(theirs),
            (Some(sides), None) => other.denies_side(sides),
            (None, Some(sides)) => self.denies_side(sides),
        };
        denies != self.has_opposite_word(other)
    }

    /// Whether a statement without sides denies what another one affirms, or affirms what that denies.
    fn denies_side(&self, Sides(affirmed, denied): &Sides) -> bool {
        match self.is_negative {
            true => share_of(&self.subject, affirmed) >= DENIED_SHARE,
            false => {
                let is_all = affirmed.is_subset(&self.subject) && denied.len() < SHARED_WORDS_MIN;
                share_of(denied, &self.subject) >= DENIED_SHARE && !is_all
            }
        }
    }

    fn has_opposite_word(&self, other: &Self) -> bool {
        let has = |statement: &Self, word: &str| statement.raw.iter().any(|raw| raw == word);
        let only = |statement: &Self, word: &str, not: &str| has(statement, word) && !has(statement, not);
        OPPOSITES
            .iter()
            .any(|(a, b)| only(self, a, b) && only(other, b, a) || only(self, b, a) && only(other, a, b))
    }

    /// What was chosen over what: the word before "over", "instead of", "rather than" or "not", and the one after it.
    fn choices(&self) -> Vec<(String, String)> {
        let at = |at: usize| self.raw.get(at).map(String::as_str);
        let after = |position: usize| match (at(position)?, at(position + 1)) {
            ("over" | "not", _) => Some(position + 1),
            ("instead", Some("of")) | ("rather", Some("than")) => Some(position + 2),
            _ => None,
        };
        let choice = |position: usize| {
            let behind = after(position)?;
            let chosen = stem(at(position.checked_sub(1)?)?);
            let over: Vec<String> = self.raw.iter().skip(behind).take(2).map(|word| stem(word)).collect();
            Some(over.into_iter().map(move |over| (chosen.clone(), over)).collect::<Vec<_>>())
        };
        (0..self.raw.len()).filter_map(choice).flatten().collect()
    }

    /// Whether both choose the same over the same: "a, not b" restates "a instead of b".
    fn is_same_choice(&self, other: &Self) -> bool {
        let theirs = other.choices();
        self.choices().iter().any(|choice| theirs.contains(choice))
    }

    /// Whether one chose what the other rejected, and the other way round.
    fn is_other_choice(&self, other: &Self) -> bool {
        let sides = self.sides.as_ref().zip(other.sides.as_ref());
        if sides.is_some_and(|(ours, theirs)| ours.is_swapped(theirs)) {
            return true;
        }
        let (ours, theirs) = (self.choices(), other.choices());
        let has = |words: &Self, word: &str| words.subject.contains(word);
        ours.iter().any(|(chosen, over)| {
            theirs.iter().any(|(other_chosen, other_over)| chosen != other_chosen && chosen == other_over)
                && theirs.iter().any(|(other_chosen, _)| {
                    other_chosen == over || has(other, over) && has(self, other_chosen)
                })
        })
    }

    /// Whether both begin and end with the same words, and have others in between.
    fn has_other_middle(&self, other: &Self) -> bool {
        let (start, shorter) = (self.common_start(other), self.raw.len().min(other.raw.len()));
        let end = self.raw.iter().rev().zip(other.raw.iter().rev()).take_while(|(a, b)| a == b).count();
        start > 0 && end > 0 && start + end < shorter
    }

    /// Whether both are the same but for one word.
    fn differs_in_a_word(&self, other: &Self) -> bool {
        let differ = self.raw.iter().zip(&other.raw).filter(|(a, b)| a != b).count();
        self.raw.len() == other.raw.len() && differ == 1
    }

    /// How many words both begin with.
    fn common_start(&self, other: &Self) -> usize {
        self.raw.iter().zip(&other.raw).take_while(|(a, b)| a == b).count()
    }
}

/// A unit as its statements.
#[derive(Clone, Debug)]
pub struct Statements {
    /// The title.
    pub title: Statement,
    sentences: Vec<Statement>,
    /// The stems of all sentences.
    below: Words,
    /// The numbers of all sentences.
    numbers_below: BTreeSet<String>,
    /// Whether a number in the title stands apart from it: "Deploys (2)", "Part 2: deploys".
    has_count: bool,
    /// The stems of title and text.
    pub all: Words,
    /// Whether its type states what is so from now on, so that a later one may replace it.
    is_choice: bool,
}

/// The most sentences of a unit that are compared.
const SENTENCES_MAX: usize = 40;

impl Statements {
    /// Reads a unit. `is_choice` is whether its type states what is so from now on.
    pub fn new(title: &str, text: &str, is_choice: bool) -> Self {
        let sentences = text.split_terminator(['\n', '!', ';']).flat_map(|line| line.split(". "));
        let sentences = sentences.filter(|text| !text.trim().is_empty()).take(SENTENCES_MAX);
        let sentences: Vec<Statement> = sentences.map(Statement::new).collect();
        Self {
            title: Statement::new(title),
            below: sentences.iter().flat_map(|sentence| sentence.subject.iter().cloned()).collect(),
            numbers_below: sentences.iter().flat_map(|sentence| sentence.numbers.iter().cloned()).collect(),
            sentences,
            has_count: title.split_whitespace().any(|word| {
                number(&bare(word)).is_some() && (word.starts_with(['#', '(']) || word.ends_with([':', ')']))
            }),
            all: words(&format!("{title}\n{text}")),
            is_choice,
        }
    }

    /// Whether each title names something that the other unit never mentions: then they are about two things.
    pub fn has_other_subject(&self, other: &Self) -> bool {
        !self.title.subject.is_subset(&other.all) && !other.title.subject.is_subset(&self.all)
    }

    /// Whether the titles show that both cannot hold, so plainly that the texts need not be alike.
    pub fn titles_oppose(&self, other: &Self) -> bool {
        let (one, two) = (&self.title, &other.title);
        let is_denial = self.title_denies(other) && one.likeness(two) >= DENIED_SHARE;
        let is_correction =
            one.is_correction != two.is_correction && (self.corrects(other) || other.corrects(self));
        let is_plain = is_denial || is_correction || one.is_other_choice(two);
        self.replaces(other, DENIED_SHARE)
            || other.replaces(self, DENIED_SHARE)
            || is_plain && !self.has_other_subject(other)
    }

    /// Whether the texts of two units about the same thing show that both cannot hold.
    pub fn oppose(&self, other: &Self) -> bool {
        if self.replaces(other, SAME_STATEMENT_SHARE) || other.replaces(self, SAME_STATEMENT_SHARE) {
            return true;
        }
        if self.has_other_subject(other) {
            return false;
        }
        let (one, two) = (&self.title, &other.title);
        self.title_denies(other)
            || one.is_other_choice(two)
            || one.is_same_statement(two, SAME_STATEMENT_SHARE) && one.differs_in_numbers(two)
            || self.sentences.iter().any(|one| other.sentences.iter().any(|two| one.has_another_number(two)))
    }

    /// Whether two units have nearly one text, and titles that differ only in a number that counts the units: it stands
    /// apart from the title, or the text says what the title says and has no such number.
    pub fn is_numbered_copy(&self, other: &Self) -> bool {
        let counts = |unit: &Self| {
            let is_said = share_of(&unit.title.subject, &unit.below) >= SAME_STATEMENT_SHARE;
            (unit.has_count || is_said) && unit.title.numbers.is_disjoint(&unit.numbers_below)
        };
        // Nearly all pairs are apart by their titles, which are short.
        self.title.subject == other.title.subject
            && self.title.differs_in_numbers(&other.title)
            && self.below.len() >= SHARED_WORDS_MIN
            && self.numbers_below == other.numbers_below
            && jaccard(&self.below, &other.below) >= SAME_TEXT_SHARE
            && counts(self)
            && counts(other)
            && !self.differ_in_a_statement(other)
    }

    /// The title and the sentences.
    fn statements(&self) -> impl Iterator<Item = &Statement> {
        std::iter::once(&self.title).chain(&self.sentences)
    }

    /// Whether a statement of the one, title or sentence, denies one of the other, or is like it but for a word that the
    /// other unit does not have at all: then neither may be dropped for the other.
    pub fn differ_in_a_statement(&self, other: &Self) -> bool {
        let has_word_of_its_own = |one: &Statement, unit: &Self| !one.subject.is_subset(&unit.all);
        self.statements().any(|one| {
            // Copies have nearly all of their sentences in common.
            let differs = |two: &&Statement| one.text != two.text && one.may_be_like(two, SAME_FORM_SHARE);
            other.statements().filter(differs).any(|two| {
                let likeness = one.likeness(two);
                likeness >= DENIED_SHARE && one.is_denial(two)
                    || likeness >= SAME_FORM_SHARE
                        && has_word_of_its_own(one, other)
                        && has_word_of_its_own(two, self)
            })
        })
    }

    /// Whether a new text has a statement that denies one of this text, which says that nowhere.
    pub fn is_denied_by(&self, new: &Self) -> bool {
        let is_denied = |statement: &Statement| {
            self.statements().any(|one| one.likeness(statement) >= DENIED_SHARE && one.is_denial(statement))
        };
        new.statements().any(|statement| is_denied(statement) && !self.restates(statement))
    }

    /// Whether a title denies the other one. Not where a text says itself what the other title says: then its title only
    /// names the subject ("Friday deploys" and "No deploys on Friday").
    fn title_denies(&self, other: &Self) -> bool {
        self.title.is_denial(&other.title) && !self.restates(&other.title) && !other.restates(&self.title)
    }

    /// Whether a sentence of the text says the same as a statement.
    fn restates(&self, statement: &Statement) -> bool {
        self.sentences.iter().any(|sentence| {
            sentence.is_same_statement(statement, DENIED_SHARE)
                && sentence.is_negative == statement.is_negative
                && !sentence.is_denial(statement)
                && !sentence.has_opposite_word(statement)
        })
    }

    /// Whether a title says that something is no longer so, of which its unit mentions all that the other title names.
    fn corrects(&self, old: &Self) -> bool {
        self.title.is_correction && share_of(&old.title.subject, &self.all) >= DENIED_SHARE
    }

    /// Whether a title begins as the other one and goes on with something else.
    pub fn has_other_object(&self, other: &Self) -> bool {
        self.title.common_start(&other.title) >= SHARED_WORDS_MIN && self.has_other_subject(other)
    }

    /// Whether a title begins as the other one, goes on with something else, and the text below it mentions what the
    /// other title names: a choice that replaces another.
    fn replaces(&self, old: &Self, share_min: f64) -> bool {
        let replaced: Words = old.title.subject.difference(&self.title.subject).cloned().collect();
        self.is_choice
            && old.is_choice
            && self.title.common_start(&old.title) >= SHARED_WORDS_MIN
            && share_of(&old.title.subject, &self.all) >= share_min
            && !replaced.is_disjoint(&self.all)
    }
}

/// Whether a text says that something is no longer true. A unit may say it more shortly than a session does.
pub fn is_correction(text: &str) -> bool {
    let lower = text.to_lowercase();
    value::is_correction(text)
        || ["switched from", "moved from", "any more"].iter().any(|sign| lower.contains(sign))
}

/// Whether two titles or sentences of nearly the same words cannot both hold: one denies the other, or says it the other
/// way round.
pub fn contradicts(one: &str, other: &str) -> bool {
    Statement::new(one).is_denial(&Statement::new(other))
}

/// Whether a title names all that another one does and goes on with when or where: "never run migrations on Fridays" is
/// an exception to "run migrations".
pub fn is_exception(title: &str, rule: &str) -> bool {
    const CIRCUMSTANCES: [&str; 13] = [
        "at", "during", "except", "for", "if", "in", "inside", "on", "outside", "unless", "until", "when",
        "while",
    ];
    let (one, rule) = (Statement::new(title), Statement::new(rule));
    let is_shared = |word: &String| !subject_of(word).is_disjoint(&rule.subject);
    let more = one.raw.iter().rposition(is_shared).and_then(|last| one.raw.get(last + 1));
    rule.subject.is_subset(&one.subject)
        && one.subject.len() > rule.subject.len()
        && more.is_some_and(|word| CIRCUMSTANCES.contains(&word.as_str()))
}

/// Whether a text decides against what an older title decides for, so that both cannot hold: "we decided against postgres
/// with jsonb columns" and "use postgres with jsonb columns". `title` is the text's own.
pub fn reverses(title: &str, text: &str, old_title: &str) -> bool {
    let (own, chosen) = (Statement::new(title).subject, chosen_words(old_title));
    rejected_choices(title, text).iter().any(|rejected| {
        let is_whole = chosen.len() > 1 && share_of(&chosen, rejected) >= DENIED_SHARE;
        (is_whole || share_of(rejected, &chosen) >= DENIED_SHARE)
            && rejected.intersection(&chosen).any(|word| !own.contains(word))
    })
}

/// Whether two decisions are two, although they are about one thing: one decides against something that the other decides
/// for, or their titles differ in the middle and each names something that the other never mentions, or neither mentions
/// anything of what the other's title names.
pub fn are_two_decisions(one: (&str, &str), other: (&str, &str)) -> bool {
    let rejects_part = |(title, text): (&str, &str), (other_title, _): (&str, &str)| {
        let (own, chosen) = (Statement::new(title).subject, chosen_words(other_title));
        let rejected = rejected_choices(title, text);
        rejected.iter().flatten().any(|word| chosen.contains(word) && !own.contains(word))
    };
    let [ours, theirs] = [one, other].map(|(title, text)| Statements::new(title, text, true));
    let is_apart = |one: &Statements, other: &Statements| one.title.subject.is_disjoint(&other.all);
    let has_other_middle = ours.title.has_other_middle(&theirs.title)
        && ours.title.likeness(&theirs.title) >= OTHER_CHOICE_SHARE
        && ours.has_other_subject(&theirs);
    rejects_part(one, other)
        || rejects_part(other, one)
        || has_other_middle
        || is_apart(&ours, &theirs) && is_apart(&theirs, &ours)
}

/// What a title decides for; nothing if it only decides against something.
fn chosen_words(title: &str) -> Words {
    let statement = Statement::new(title);
    match statement.sides {
        _ if !rejected_choices(title, "").is_empty() => Words::new(),
        Some(Sides(affirmed, _)) => affirmed,
        None if statement.is_negative => Words::new(),
        None => statement.subject,
    }
}

/// What a title and its text decide against: the words behind "decided against" or "decided not to", up to the reason.
fn rejected_choices(title: &str, text: &str) -> Vec<Words> {
    const VERBS: [&str; 6] = ["decid", "agre", "settl", "opt", "resolv", "vot"];
    const ENDS: [&str; 10] = ["and", "as", "because", "but", "or", "since", "so", "until", "when", "which"];
    let text = format!("{title}\n{text}");
    let mut choices = Vec::new();
    for line in text.lines() {
        let tokens: Vec<&str> = line.split_whitespace().collect();
        let raw: Vec<String> = tokens.iter().map(|token| bare(token)).collect();
        for (at, verb) in raw.iter().enumerate() {
            let next = |step: usize| raw.get(at + step).map_or("", String::as_str);
            let from = match (next(1), next(2)) {
                _ if !VERBS.iter().any(|stem| verb.starts_with(stem)) => continue,
                ("against", _) => at + 2,
                ("not", "to") => at + 3,
                _ => continue,
            };
            let mut choice = Words::new();
            for at in from..raw.len() {
                let is_favor =
                    raw[at] == "in" && raw.get(at + 1).is_some_and(|word| word.starts_with("favo"));
                if ENDS.contains(&raw[at].as_str()) || raw[at].is_empty() || is_favor {
                    break;
                }
                choice.extend(subject_of(&raw[at]));
                if tokens[at].ends_with([',', '.', ';', ':', '!', ')']) {
                    break;
                }
            }
            choices.push(choice);
        }
    }
    choices.retain(|choice| !choice.is_empty());
    choices
}

/// Whether two titles have the same form or differ in one word, and each names something that the other one's title and text
/// never mention: "never deploy on Fridays" and "never deploy on Thursdays".
pub fn names_something_else(title: &str, text: &str, other_title: &str, other_text: &str) -> bool {
    let (one, other) = (Statement::new(title), Statement::new(other_title));
    let all = |statement: &Statement, text: &str| -> Words {
        statement.subject.union(&words(text)).cloned().collect()
    };
    let shared = one.subject.intersection(&other.subject).count();
    let shared_min = if one.differs_in_a_word(&other) { 1 } else { SHARED_WORDS_MIN };
    let is_one_word =
        shared >= shared_min && one.subject.len() == shared + 1 && other.subject.len() == shared + 1;
    (is_one_word || one.likeness(&other) >= SAME_FORM_SHARE)
        && !one.subject.is_subset(&all(&other, other_text))
        && !other.subject.is_subset(&all(&one, text))
}

/// One of 64 bits for a stem (FNV-1a).
fn bit(stem: &str) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    1 << (stem.bytes().fold(0xcbf2_9ce4_8422_2325, hash) >> 58)
}

/// The stems of a word, if it says something of the subject.
fn subject_of(word: &str) -> Words {
    let says_nothing = number(word).is_some()
        || EMPTY.contains(&word)
        || OPPOSITES.iter().any(|(a, b)| *a == word || *b == word);
    if says_nothing { Words::new() } else { words(word) }
}

/// What a text affirms and what it denies beside that. A negation at the beginning of a clause, or behind the choice
/// before it ("not", "over", "instead of", "rather than"), denies what follows; one beside the verb denies the clause.
fn sides(text: &str) -> Option<Sides> {
    const AUXILIARIES: [&str; 18] = [
        "do", "does", "did", "is", "are", "was", "were", "be", "must", "should", "can", "could", "will",
        "would", "has", "have", "may", "shall",
    ];
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let (mut affirmed, mut denied) = (Words::new(), Words::new());
    let mut clause: Vec<(Words, bool)> = Vec::new();
    let mut is_denied = false;
    for (at, token) in tokens.iter().enumerate() {
        let (word, before) = (bare(token), at.checked_sub(1).map_or("", |at| tokens[at]));
        let next = tokens.get(at + 1).map(|next| bare(next)).unwrap_or_default();
        if word.is_empty() || word == "but" || before.ends_with([',', ';', ':', '.']) {
            for (words, is_denied) in clause.drain(..) {
                if is_denied { denied.extend(words) } else { affirmed.extend(words) }
            }
            is_denied = false;
        }
        let is_choice =
            matches!((word.as_str(), next.as_str()), ("over", _) | ("instead", "of") | ("rather", "than"));
        let is_behind =
            word == "not" && !AUXILIARIES.contains(&bare(before).as_str()) || bare(before) == "and";
        if is_choice || value::is_negation(&word) {
            is_denied = !is_denied;
            if !is_choice && !is_behind {
                clause.iter_mut().for_each(|(_, is_denied)| *is_denied = !*is_denied);
            }
        }
        clause.push((subject_of(&word), is_denied));
    }
    for (words, is_denied) in clause {
        if is_denied { denied.extend(words) } else { affirmed.extend(words) }
    }
    Sides::new(affirmed, denied)
}

/// What comes before what, if a statement says so once.
fn order(raw: &[String]) -> Option<Sides> {
    let mut pivots = raw.iter().enumerate().filter(|(_, word)| matches!(word.as_str(), "before" | "after"));
    let (at, pivot) = pivots.next().filter(|_| pivots.next().is_none())?;
    let [first, last] = [&raw[..at], &raw[at + 1..]]
        .map(|words| words.iter().flat_map(|word| subject_of(word)).collect::<Words>());
    if pivot == "before" { Sides::new(first, last) } else { Sides::new(last, first) }
}

/// A word in lower case without punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).replace('’', "'").to_lowercase()
}

/// The number that a word is or contains, in digits.
fn number(word: &str) -> Option<String> {
    if let Some(at) = NUMBERS.iter().position(|number| *number == word) {
        return Some(VALUES[at].to_string());
    }
    let digits = word.starts_with(|c: char| c.is_ascii_digit());
    digits.then(|| word.trim_end_matches(|c: char| c.is_alphabetic()).to_owned())
}

const NUMBERS: [&str; 20] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "fifteen",
    "twenty", "thirty", "forty", "fifty", "sixty", "ninety", "hundred", "thousand",
];
const VALUES: [u32; 20] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 30, 40, 50, 60, 90, 100, 1000];

/// Words of titles that name no subject: denials, and verbs and adverbs of no meaning.
const EMPTY: [&str; 42] = [
    "always", "avoid", "avoids", "cannot", "choose", "chose", "chosen", "don't", "give", "gives", "have",
    "keep", "keeps", "kept", "longer", "make", "makes", "must", "need", "needs", "neither", "never", "new",
    "only", "put", "puts", "real", "run", "runs", "set", "sets", "should", "stop", "take", "takes", "too",
    "use", "used", "uses", "using", "without", "anymore",
];

/// Words of which a statement can contain only one.
const OPPOSITES: [(&str, &str); 25] = [
    ("before", "after"),
    ("enable", "disable"),
    ("enabled", "disabled"),
    ("optional", "required"),
    ("optional", "mandatory"),
    ("allow", "forbid"),
    ("allowed", "forbidden"),
    ("on", "off"),
    ("inside", "outside"),
    ("first", "last"),
    ("more", "less"),
    ("more", "fewer"),
    ("increase", "decrease"),
    ("raise", "lower"),
    ("add", "remove"),
    ("keep", "delete"),
    ("keep", "remove"),
    ("include", "exclude"),
    ("accept", "refuse"),
    ("accept", "reject"),
    ("safe", "unsafe"),
    ("public", "private"),
    ("sync", "async"),
    ("eager", "lazy"),
    ("early", "late"),
];

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn oppose(one: (&str, &str), other: (&str, &str)) -> bool {
        let [one, other] = [one, other].map(|(title, text)| Statements::new(title, text, true));
        assert_eq!(one.oppose(&other), other.oppose(&one), "both ways");
        one.oppose(&other)
    }

    #[test]
    fn what_words_show_is_opposed() {
        for (one, other) in [
            (("Squash a branch before merging it", ""), ("Never squash a branch before merging", "")),
            (("Prune roses before winter", ""), ("Prune roses after winter", "")),
            (("Wait 30 seconds for the proxy", ""), ("The proxy has to wait 60 seconds", "")),
            (
                ("We chose Redux over context for the cart", ""),
                ("We chose context over Redux for the cart", ""),
            ),
            (
                ("Search runs on Elasticsearch", ""),
                ("Search runs on Postgres", "The Elasticsearch cluster was too much work."),
            ),
            (
                ("The limit", "Each upload may have 20 megabytes."),
                ("The limit", "Each upload may have 50 megabytes."),
            ),
        ] {
            assert!(oppose(one, other), "{one:?} | {other:?}");
        }
    }

    #[test]
    fn an_opposite_is_not_a_rewording() {
        for (one, other) in [
            ("Always run `check` first", "Never run `check` first"),
            ("Use floats for money", "Don’t use floats for money."),
            ("Store the id in the cursor", "Do not store the id in the cursor"),
            (
                "Always use the replica for reports, never the primary",
                "Always use the primary for reports, never the replica",
            ),
            ("Always use the replica for reports, never the primary", "Never use the replica for reports"),
            (
                "Always pin GitHub actions by commit hash, never by tag",
                "Always pin GitHub actions by tag, never by commit hash",
            ),
            ("We use UUIDv7 keys rather than serial ids", "We use serial ids rather than UUIDv7 keys"),
            ("Use pnpm and not npm", "Use npm and not pnpm"),
            ("Use pnpm, not npm", "Use npm"),
            ("Run the linter before the tests", "Run the tests before the linter"),
            ("Deploy the schema before the code", "Deploy the schema after the code"),
            (
                "Never log the body of a payment request",
                "Always log the body of a payment request, support needs it",
            ),
            (
                "Every table has a created_at column in UTC",
                "Every table has a created_at column in local time, not UTC",
            ),
            ("The proxy retries a request", "The proxy does not retry a request"),
            ("Never drop a table without asking the DBA", "Drop a table without asking the DBA"),
        ] {
            assert!(contradicts(one, other) && contradicts(other, one), "{one} | {other}");
        }
        for (one, other) in [
            ("Never restart it in office hours", "Don't restart it in office hours"),
            ("Always run `check` before a commit", "Never commit without running `check`"),
            ("Use cents, not floats", "Use cents instead of floats"),
            ("Await the condition instead of sleeping", "Tests wait for conditions and never sleep"),
            ("Always run `check` first", "Always run `check` first"),
            ("Use the replica for reports", "Always use the replica for reports, never the primary"),
            ("Never use the primary for reports", "Always use the replica for reports, never the primary"),
            ("Use pnpm rather than npm", "Use pnpm, never npm"),
            ("We use pnpm", "Use pnpm, never npm"),
            ("Run the linter before the tests", "Run the tests after the linter"),
            ("Never deploy without a tag, it breaks the rollback", "Always deploy with a tag"),
        ] {
            assert!(!contradicts(one, other) && !contradicts(other, one), "{one} | {other}");
        }
    }

    #[test]
    fn what_is_decided_against_is_reversed() {
        let postgres = "Use postgres with jsonb columns";
        let systemd = "Use systemd units on three plain servers";
        for (title, text, old) in [
            (
                "Use MongoDB with plain collections",
                "We decided against postgres with jsonb columns because the documents are 40 MB each.",
                postgres,
            ),
            (
                "Use MongoDB",
                "Decided not to use postgres with jsonb columns for orders, it is slow.",
                postgres,
            ),
            (
                "Use Kubernetes on three plain servers",
                "We decided against systemd units, they drift.",
                systemd,
            ),
            (
                "Use Tailwind in the shop",
                "We have decided against CSS modules.",
                "Use CSS modules in the shop",
            ),
            ("Use npm", "We decided against pnpm.", "Use pnpm, not yarn"),
        ] {
            assert!(reverses(title, text, old), "{title} | {old}");
            assert!(are_two_decisions((title, text), (old, "")), "{title} | {old}");
            assert!(are_two_decisions((old, ""), (title, text)), "{title} | {old}");
        }
        let mongo = "We decided against MongoDB because reporting needs joins.";
        for (title, text, old) in [
            (postgres, mongo, postgres),
            (postgres, mongo, "Use postgres, not MongoDB"),
            (postgres, mongo, "Decide against MongoDB"),
            (postgres, mongo, "Do not use MongoDB"),
            (postgres, "The tests run against postgres with jsonb columns.", postgres),
            ("Use five plain servers", "We decided against three plain servers.", "Use three plain servers"),
            (
                "Use a plain table for the audit log",
                "We decided against jsonb columns for the audit log.",
                postgres,
            ),
        ] {
            assert!(!reverses(title, text, old), "{title} | {old}");
        }
    }

    proptest! {
        #[test]
        fn what_may_not_be_like_is_not(texts in vec(vec(select(&NUMBERS[..]), 0..12), 2)) {
            // Twenty stems with 64 bits: some share one.
            let words = |text: &Vec<&str>| text.iter().map(|word| format!("{word}x")).collect::<Vec<_>>().join(" ");
            let [one, other] = [&texts[0], &texts[1]].map(|text| Statement::new(&words(text)));
            let likeness = one.likeness(&other);
            prop_assert!(likeness == 0.0 || one.may_be_like(&other, likeness));
            prop_assert!(!one.is_denial(&one));
        }
    }

    #[test]
    fn titles_that_differ_in_one_word_name_two_things() {
        let is_other = |one, other| {
            assert_eq!(names_something_else(one, "", other, ""), names_something_else(other, "", one, ""));
            names_something_else(one, "", other, "")
        };
        for (one, other) in [
            ("never deploy on Fridays", "never deploy on Thursdays"),
            ("Never deploy on Sundays", "never deploy on Saturdays."),
            (
                "Never deploy the shop on Fridays after lunch",
                "Never deploy the shop on Thursdays after lunch",
            ),
            ("Use pnpm in webshop", "Use pnpm in backoffice"),
        ] {
            assert!(is_other(one, other), "{one} | {other}");
        }
        for (one, other) in [
            ("never deploy on Fridays", "Never deploy on a Friday"),
            ("never deploy on Fridays", "always deploy on Fridays"),
            ("Use pnpm in webshop", "Bound the worker pool"),
            ("Use pnpm in webshop", "In webshop use yarn"),
        ] {
            assert!(!is_other(one, other), "{one} | {other}");
        }
        let said = "Thursdays are as bad as Fridays.";
        assert!(!names_something_else("never deploy on Fridays", said, "never deploy on Thursdays", said));
    }

    #[test]
    fn decisions_of_one_form_are_two() {
        let systemd = ("Use systemd units on three plain servers", "");
        assert!(are_two_decisions(("Use Kubernetes on three plain servers", ""), systemd));
        let moved = ("Use Kubernetes on three plain servers", "The systemd units drift.");
        assert!(!are_two_decisions(moved, systemd), "it says itself how they are related");
        let outbox = ("Transactional outbox over dual writes", "An outbox row is committed with the change.");
        let restated = ("Write events to an outbox table in the same transaction as the change", "");
        assert!(!are_two_decisions(restated, outbox));
        let postgres = ("Use postgres with jsonb columns", "");
        assert!(are_two_decisions(("Use MySQL with jsonb columns", ""), postgres));
        assert!(are_two_decisions(("Use MongoDB with plain collections", ""), postgres));
        assert!(!are_two_decisions(("Keep jsonb columns small", ""), postgres));
        assert!(!are_two_decisions(("Keep three plain servers with systemd units", ""), systemd));
    }

    #[test]
    fn two_subjects_and_restatements_are_not_opposed() {
        for (one, other) in [
            (("The search pods have 4 GiB", ""), ("The image pods have 1 GiB", "")),
            (("Use expect in tests", ""), ("Do not use expect in handlers", "")),
            (("Use cents, not floats", ""), ("Use cents instead of floats", "")),
            (("Wait thirty seconds for the proxy", ""), ("Wait 30 s for the proxy", "")),
            (("Never merge before the tests", ""), ("Merge after the tests", "")),
            (
                ("Friday deploys", "We never deploy to production on Friday afternoons."),
                ("No deploys on Friday", "Never deploy to production on a Friday afternoon."),
            ),
        ] {
            assert!(!oppose(one, other), "{one:?} | {other:?}");
        }
    }
}
