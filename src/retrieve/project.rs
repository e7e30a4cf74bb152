//! Ranks a brain's units for a project, without a question and without a model.
//!
//! A session that begins has asked nothing yet. The names, libraries and languages of its project stand for
//! the question; after a compaction the words of the session's last prompts do. Only the index's catalog is
//! read, so that it takes milliseconds.

use std::collections::{BTreeSet, HashMap, HashSet};

use index::{Catalog, UnitSummary};
use jiff::Timestamp;
use knowledge::rank;
use knowledge::unit::{is_retired, is_unreviewed};

/// Units with at least this relevance belong to the project; those below share only a language with it.
const RELEVANCE_MIN: f64 = 2.0;
/// The relevance of the best match of a session's words; the others are scaled to it.
const WORDS_RELEVANCE_MAX: f64 = 10.0;
/// After this many days a unit has lost half of its freshness.
const HALF_LIFE_DAYS: f64 = 90.0;
/// The age of a unit without a date, in days.
const AGE_DAYS_DEFAULT: f64 = 365.0;
/// How many subjects are named.
const SUBJECTS_MAX: usize = 4;
/// How many of the last prompts are used, how many words of each, how many in all, and how many of these are
/// searched for.
const PROMPTS_MAX: usize = 8;
const PROMPT_WORDS_MAX: usize = 60;
const WORDS_MAX: usize = 120;
const TERMS_MAX: usize = 24;

/// What a project is about. All strings are as [`normalize_name`] gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The names of its folder and of its remote repository.
    pub names: BTreeSet<String>,
    /// The specific parts of the names.
    pub words: BTreeSet<String>,
    /// Libraries that it depends on.
    pub libraries: BTreeSet<String>,
    /// Programming languages.
    pub languages: BTreeSet<&'static str>,
}

/// What earlier sessions tell about units.
#[derive(Clone, Debug, Default)]
pub struct History<'a> {
    /// Units that sessions in the project have proposed.
    pub proposed_here: HashSet<&'a str>,
    /// Units whose scope names the project's repository.
    pub scoped_here: HashSet<&'a str>,
    /// Units that rest on more than one session, with the number of sessions.
    pub confirmed: HashMap<&'a str, u32>,
}

/// The units that matter for a project or a session.
#[derive(Clone, Debug, Default)]
pub struct Ranked {
    /// How many units the brain has.
    pub total: usize,
    /// How many of them are relevant.
    pub relevant: usize,
    /// What connects them with the project, most frequent first.
    pub subjects: Vec<String>,
    /// The best units, best first.
    pub best: Vec<RankedUnit>,
}

/// A unit with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedUnit {
    /// The unit's id.
    pub id: String,
    /// Its file, relative to the brain.
    pub path: String,
    /// Its title, as the file has it.
    pub title: String,
    /// Its type.
    pub kind: String,
    /// Its domain.
    pub domain: String,
    score: f64,
}

/// Ranks the units for a project; at most `limit` are returned.
///
/// # Errors
/// When the index cannot be read.
pub fn rank_for_project(
    catalog: &Catalog,
    profile: &Profile,
    history: &History<'_>,
    limit: usize,
    now: Timestamp,
) -> Result<Ranked, index::Error> {
    let mut relevance = Relevance::new(profile, history);
    let mut ranked = rank(catalog, history, limit, now, |unit| relevance.score(unit))?;
    if ranked.relevant == 0 {
        // Only the language is known: every unit that scored at all is one of a language.
        ranked.relevant = ranked.scored;
        ranked.subjects = profile.languages.iter().map(|language| ((*language).to_owned(), 1)).collect();
    }
    Ok(ranked.finish())
}

/// Ranks the units for a session by the words of its prompts, oldest prompt first; at most `limit` are
/// returned.
///
/// # Errors
/// When the index cannot be read.
pub fn rank_for_prompts(
    catalog: &Catalog,
    prompts: &[&str],
    history: &History<'_>,
    limit: usize,
    now: Timestamp,
) -> Result<Ranked, index::Error> {
    let found = catalog.search(&rare_terms(catalog, prompts)?)?;
    let best = found.first().map_or(0.0, |(_, score)| *score);
    // Words alone cannot be trusted below half of the best score.
    let found: HashMap<&str, f64> = found
        .iter()
        .filter(|(_, score)| *score >= 0.5 * best && best > 0.0)
        .map(|(unit, score)| (unit.as_str(), WORDS_RELEVANCE_MAX * score / best))
        .collect();
    let relevance = |unit: &UnitSummary<'_>| (found.get(unit.id).copied().unwrap_or(0.0), None);
    Ok(rank(catalog, history, limit, now, relevance)?.finish())
}

/// Lower case, with hyphens for all but letters and digits: `My_Shop` and `my-shop` are one name.
pub fn normalize_name(name: &str) -> String {
    let mut normalized = String::new();
    normalize_into(&mut normalized, name);
    normalized
}

/// Overwrites `normalized`.
fn normalize_into(normalized: &mut String, name: &str) {
    normalized.clear();
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        // Nearly all words of titles.
        normalized.push_str(name);
        normalized.make_ascii_lowercase();
        return;
    }
    let name = name.trim_matches(|c: char| !c.is_alphanumeric());
    let lower = name.chars().flat_map(char::to_lowercase);
    normalized.extend(lower.map(|c| if c.is_alphanumeric() { c } else { '-' }));
}

#[derive(Default)]
struct Ranking {
    total: usize,
    /// Units with any relevance.
    scored: usize,
    relevant: usize,
    subjects: HashMap<String, usize>,
    best: Vec<RankedUnit>,
}

impl Ranking {
    fn finish(self) -> Ranked {
        let mut subjects: Vec<_> = self.subjects.into_iter().collect();
        subjects.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ranked {
            total: self.total,
            relevant: self.relevant,
            subjects: subjects.into_iter().map(|(subject, _)| subject).take(SUBJECTS_MAX).collect(),
            best: self.best,
        }
    }
}

/// Scores every unit by its relevance, by how much it was used, by its age and by how far it is trusted.
fn rank(
    catalog: &Catalog,
    history: &History<'_>,
    limit: usize,
    now: Timestamp,
    mut relevance: impl FnMut(&UnitSummary<'_>) -> (f64, Option<String>),
) -> Result<Ranking, index::Error> {
    let mut references: HashMap<String, u32> = HashMap::new();
    catalog.for_each_link_target(|unit, count| {
        references.insert(unit.to_owned(), count);
    })?;
    let mut ranking = Ranking::default();
    catalog.for_each_unit(|unit| {
        ranking.total += 1;
        if unit.status.is_some_and(|status| is_retired(status) || is_unreviewed(status)) {
            return;
        }
        let (relevance, subject) = relevance(&unit);
        if relevance <= 0.0 {
            return;
        }
        ranking.scored += 1;
        if relevance >= RELEVANCE_MIN {
            ranking.relevant += 1;
            if let Some(subject) = subject {
                *ranking.subjects.entry(subject).or_default() += 1;
            }
        }
        let uses = history.confirmed.get(unit.id).copied().unwrap_or(0)
            + references.get(unit.id).copied().unwrap_or(0);
        let modified = unit.last_modified.and_then(|time| time.parse::<Timestamp>().ok());
        let age_days = modified
            .map_or(AGE_DAYS_DEFAULT, |modified| now.duration_since(modified).as_secs_f64() / 86_400.0);
        let freshness = rank::freshness(age_days, HALF_LIFE_DAYS);
        let score = (relevance + 0.5 * f64::from(uses).ln_1p() + freshness)
            * rank::trust(unit.confidence, freshness, rank::source_tier(unit.source));
        let worst = ranking.best.last().map_or(f64::NEG_INFINITY, |last| last.score);
        if ranking.best.len() < limit || score > worst {
            let at = ranking.best.partition_point(|other| other.score >= score);
            let ranked = RankedUnit {
                id: unit.id.to_owned(),
                path: unit.path.to_owned(),
                title: unit.title.to_owned(),
                kind: unit.kind.to_owned(),
                domain: unit.domain.to_owned(),
                score,
            };
            ranking.best.insert(at, ranked);
            ranking.best.truncate(limit);
        }
    })?;
    Ok(ranking)
}

/// What a tag, a domain or a word of a title names, if it is one of a project's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Project,
    Library,
    Language,
}

/// How relevant units are for a project.
struct Relevance<'a> {
    profile: &'a Profile,
    history: &'a History<'a>,
    /// All names of the profile.
    named: HashMap<&'a str, Named>,
    /// A name in normal form, kept for its memory: every word of every title is looked up.
    normalized: String,
}

impl<'a> Relevance<'a> {
    fn new(profile: &'a Profile, history: &'a History<'a>) -> Self {
        // What names the project counts as that alone, and a library is not a language.
        let languages = profile.languages.iter().map(|name| (*name, Named::Language));
        let libraries = profile.libraries.iter().map(|name| (name.as_str(), Named::Library));
        let project = profile.names.iter().chain(&profile.words).map(|name| (name.as_str(), Named::Project));
        let named = languages.chain(libraries).chain(project).collect();
        Self { profile, history, named, normalized: String::new() }
    }

    /// What `name` names, with the name in normal form.
    fn look_up(&mut self, name: &str) -> Option<(Named, &str)> {
        normalize_into(&mut self.normalized, name);
        self.named.get(self.normalized.as_str()).map(|named| (*named, self.normalized.as_str()))
    }

    /// How relevant a unit is, and what connects it with the project.
    fn score(&mut self, unit: &UnitSummary<'_>) -> (f64, Option<String>) {
        let mut score = 0.0;
        let mut subject = None;
        if self.history.proposed_here.contains(unit.id) || self.history.scoped_here.contains(unit.id) {
            score += 8.0;
            subject = self.profile.names.first().cloned();
        }
        // The tags are a JSON array of strings: every second part between quotes is a tag.
        for key in unit.tags.split('"').skip(1).step_by(2).chain([unit.domain]) {
            let Some((named, key)) = self.look_up(key) else { continue };
            let weight = match named {
                Named::Project => 5.0,
                Named::Library => 3.0,
                Named::Language => 1.0,
            };
            if weight >= RELEVANCE_MIN && subject.is_none() {
                subject = Some(key.to_owned());
            }
            score += weight;
        }
        // The project's name in a title counts before a library's.
        let mut in_title: Option<(f64, String)> = None;
        for word in unit.title.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_') {
            match self.look_up(word) {
                Some((Named::Project, word)) => {
                    in_title = Some((3.0, word.to_owned()));
                    break;
                }
                Some((Named::Library, word)) if word.len() >= 4 && in_title.is_none() => {
                    in_title = Some((2.0, word.to_owned()));
                }
                _ => {}
            }
        }
        if let Some((weight, word)) = in_title {
            score += weight;
            subject = subject.or(Some(word));
        }
        (score, subject)
    }
}

/// The rarest words of the last prompts: those that few passages contain.
fn rare_terms(catalog: &Catalog, prompts: &[&str]) -> Result<Vec<String>, index::Error> {
    let mut unique = HashSet::new();
    let mut terms = Vec::new();
    for prompt in prompts.iter().rev().take(PROMPTS_MAX) {
        let words = prompt.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words = words.filter(|word| word.chars().count() >= 3 || !word.is_ascii());
        let words = words.filter(|word| unique.insert(word.to_lowercase())).take(PROMPT_WORDS_MAX);
        terms.extend(words.map(str::to_owned));
    }
    terms.truncate(WORDS_MAX);
    let (frequencies, chunks) = catalog.document_frequencies(&terms)?;
    let mut found: Vec<(u64, String)> = frequencies.into_iter().zip(terms).collect();
    // A word in one passage of five distinguishes nothing, except in a brain of a few units.
    found.retain(|(count, _)| *count > 0 && (*count * 5 <= chunks || *count <= 3));
    found.sort();
    Ok(found.into_iter().take(TERMS_MAX).map(|(_, term)| term).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit<'a>(id: &'a str, title: &'a str, domain: &'a str, tags: &'a str) -> UnitSummary<'a> {
        UnitSummary {
            id,
            path: "domains/x.md",
            title,
            kind: "bug",
            domain,
            tags,
            confidence: 0.7,
            source: "session",
            status: None,
            last_modified: None,
        }
    }

    #[test]
    fn names_weigh_more_than_libraries_and_languages() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let profile = Profile {
            names: set(&["pay-service"]),
            words: set(&["pay"]),
            libraries: set(&["tokio"]),
            languages: BTreeSet::from(["rust"]),
        };
        let history = History {
            proposed_here: HashSet::from(["own"]),
            scoped_here: HashSet::from(["scoped"]),
            ..History::default()
        };
        let check = |unit: &UnitSummary<'_>, expected: f64, subject: Option<&str>| {
            let found = Relevance::new(&profile, &history).score(unit);
            assert_eq!(found, (expected, subject.map(str::to_owned)));
        };
        check(&unit("a", "Other", "x", r#"["Pay_Service","cache"]"#), 5.0, Some("pay-service"));
        check(&unit("b", "Limit the tokio pool", "x", "[]"), 2.0, Some("tokio"));
        check(&unit("c", "Other", "rust", r#"["tokio"]"#), 4.0, Some("tokio"));
        check(&unit("d", "Other", "rust", "[]"), 1.0, None);
        check(&unit("own", "Other", "x", "[]"), 8.0, Some("pay-service"));
        check(&unit("scoped", "Other", "x", "[]"), 8.0, Some("pay-service"));
        check(&unit("e", "Other", "x", "[]"), 0.0, None);
    }

    #[test]
    fn a_name_is_lower_case_with_hyphens() {
        assert_eq!(["My_Shop", " my-shop ", "a.b/"].map(normalize_name), ["my-shop", "my-shop", "a-b"]);
    }
}
