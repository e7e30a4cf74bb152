//! Answers what is known about a file, a folder or a project.

use std::collections::HashMap;
use std::path::Path;

use archive::{Archive, Derivation, RecordQuery};
use jiff::Timestamp;
use knowledge::text::canonical;
use knowledge::{Scope, Unit, UnitType, unit::is_retired};
use rusqlite::{Connection, params};
use serde::Serialize;

use crate::item::{Depth, Item, Question, StaleReason, Staleness};
use crate::pack::{PackedItem, pack_with_prompts, tokens};
use crate::score;
use crate::stale::{StaleCheck, parse_digest};

/// At most so many records of each place, and by words.
const RECORDS_MAX: usize = 200;
const UNITS_BY_WORDS_MAX: usize = 20;
const DETAIL_CHARS_MAX: usize = 600;
const PROMPT_CHARS_MAX: usize = 800;
/// At depth `deep` a unit is told whole if it takes at most this part of the budget: a third.
const WHOLE_OF_BUDGET: usize = 3;

/// The project that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its key, as the archive has it.
    pub project: &'a str,
    /// Its folder.
    pub root: &'a Path,
}

/// An answer, with the fields that openqed's has, and some more.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What was asked.
    pub query: AskedQuery,
    /// What it took.
    pub budget: Budget,
    /// The best first.
    pub nuggets: Vec<AnsweredItem>,
    /// What was left out, and how to see it.
    pub more_context_hint: Option<String>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AskedQuery {
    /// A file or folder of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A name in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// Words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How much of each item was asked for.
    pub depth: Depth,
}

/// Tokens, of four characters each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The limit.
    pub requested: usize,
    /// What the answer takes.
    pub used: usize,
    /// What is left.
    pub available: usize,
    /// Whether something did not fit.
    pub truncated: bool,
}

/// One item of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredItem {
    /// A unit's id, or `record-` and a number.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: UnitType,
    /// One sentence.
    pub summary: String,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The file, folder or name that it bears on, or `workspace`.
    pub scope: String,
    /// The name in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// From 0 to 1.
    pub confidence: f64,
    /// When it was learned; missing for a unit that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_date: Option<Timestamp>,
    /// The client of the session, or the unit's source.
    pub session_agent: String,
    /// The session's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What the person had asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_prompt: Option<String>,
    /// What was considered instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// Whether a person has reviewed it.
    pub reviewed: bool,
    /// What an unreviewed one rests on: `rules`, or a `model` that has read the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Derivation>,
    /// Whether it may no longer hold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_reason: Option<StaleReason>,
    /// The newer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

/// The records of an archive that an answer may have.
#[derive(Clone, Copy)]
pub enum Records<'a> {
    /// None.
    None,
    /// Where no unit answers, or only such as bear on the whole repository.
    WithoutUnits(&'a Archive),
    /// All that answer, beside the units.
    All(&'a Archive),
}

/// Answers a question from reviewed units, and from records of sessions.
///
/// # Errors
/// When the archive cannot be read.
pub fn answer(
    question: &Question,
    place: Place<'_>,
    units: &[Unit],
    records: Records<'_>,
    now: Timestamp,
) -> Result<Answer, archive::Error> {
    let mut items = of_units(question, place, units)?;
    let archive = match records {
        Records::All(archive) => Some(archive),
        Records::WithoutUnits(archive) => {
            let is_general = |item: &Item| {
                question.path.is_some() && item.path.is_none() && item.symbol.is_none() && item.rank.is_none()
            };
            Some(archive).filter(|_| items.iter().all(is_general))
        }
        Records::None => None,
    };
    if let Some(archive) = archive {
        items.extend(of_records(question, place, archive)?);
    }
    let mut check = StaleCheck::new(place.root, now);
    for item in &mut items {
        item.stale = check.check(item);
        // Of a short prompt the summary is all of it.
        item.detail.take_if(|detail| is_same(detail, &item.summary));
    }
    let ranked = score::rank(items, question, now).into_iter().map(|(_, item)| item).collect();
    let prompt = |item: &Item| {
        let text = archive?.message_text(item.prompt?).ok().flatten()?;
        let text = knowledge::text::one_line(&text, PROMPT_CHARS_MAX);
        Some(text).filter(|text| !text.is_empty() && !is_same(text, &item.summary))
    };
    let packed =
        pack_with_prompts(ranked, question.budget, question.depth, "Raise the budget to see more.", prompt);
    Ok(Answer {
        query: AskedQuery {
            path: question.path.clone(),
            symbol: question.symbol.clone(),
            text: question.query.clone(),
            depth: question.depth,
        },
        budget: Budget {
            requested: question.budget,
            used: packed.used,
            available: question.budget - packed.used,
            truncated: packed.is_truncated,
        },
        nuggets: packed.items.into_iter().map(answered).collect(),
        more_context_hint: packed.hint,
    })
}

/// Whether two texts are the same, but for marks and case.
fn is_same(one: &str, other: &str) -> bool {
    canonical(one) == canonical(other)
}

fn answered(packed: PackedItem) -> AnsweredItem {
    let PackedItem { item, has_detail, prompt } = packed;
    AnsweredItem {
        symbol: item.symbol.clone(),
        derivation: item.derivation,
        scope: item.path.or(item.symbol).unwrap_or_else(|| "workspace".to_owned()),
        detail: item.detail.filter(|_| has_detail),
        alternatives: if has_detail { item.alternatives } else { Vec::new() },
        id: item.id,
        kind: item.kind,
        summary: item.summary,
        confidence: item.confidence,
        session_date: item.at,
        session_agent: item.agent,
        session: item.session,
        source_prompt: prompt,
        reviewed: item.is_reviewed,
        stale: item.stale.is_some(),
        stale_reason: item.stale,
        superseded_by: item.superseded_by,
    }
}

fn of_records(question: &Question, place: Place<'_>, archive: &Archive) -> Result<Vec<Item>, archive::Error> {
    let paths = match (&question.path, &question.query) {
        (Some(path), _) => vec![path.clone()],
        (None, None) => vec![String::new()],
        (None, Some(_)) => Vec::new(),
    };
    let query = RecordQuery {
        project: place.project.to_owned(),
        paths,
        words: question.query.clone(),
        symbol: question.symbol.clone(),
        kinds: question.kinds.iter().map(UnitType::to_string).collect(),
        since: question.since,
        limit: RECORDS_MAX,
    };
    let item = |found: archive::Record| {
        let record = found.record;
        Item {
            id: format!("record-{}", found.id),
            kind: UnitType::from(record.kind.as_str()),
            summary: record.summary,
            detail: record.detail,
            path: Some(record.path).filter(|path| !path.is_empty()),
            symbol: record.symbol,
            confidence: record.confidence,
            at: Some(record.at),
            stale_after: record.stale_after,
            alternatives: record.alternatives,
            is_reviewed: false,
            derivation: Some(record.derivation),
            session: Some(found.session),
            agent: found.source,
            sha256: record.sha256,
            superseded_by: found.superseded_by.map(|id| format!("record-{id}")),
            prompt: record.prompt,
            rank: found.rank,
            stale: None,
        }
    };
    Ok(archive.records(&query)?.into_iter().map(item).collect())
}

/// The units that bear on what is asked: by their scope, or by the query's words.
fn of_units(question: &Question, place: Place<'_>, units: &[Unit]) -> Result<Vec<Item>, archive::Error> {
    let live: Vec<&Unit> =
        units.iter().filter(|unit| !unit.status.as_deref().is_some_and(is_retired)).collect();
    let ranks = match &question.query {
        Some(query) => ranks_by_words(&live, query)?,
        None => HashMap::new(),
    };
    let mut items = Vec::new();
    for (at, unit) in live.iter().enumerate() {
        let scope = best_scope(unit, question, place.project);
        let rank = ranks.get(&at).copied();
        // Words without a place ask for what the words match.
        let is_here = scope.is_some() && !(question.path.is_none() && question.query.is_some());
        let is_of_kind = question.kinds.is_empty() || question.kinds.contains(&unit.kind);
        // One that does not say when it was learned may be new.
        let learned = unit.last_modified.or(unit.created);
        let is_new_enough = question.since.zip(learned).is_none_or(|(since, learned)| learned >= since);
        if !(is_here || rank.is_some()) || !is_of_kind || !is_new_enough {
            continue;
        }
        let mut item = unit_item(unit, scope, rank);
        if question.depth == Depth::Deep {
            let whole =
                whole_text(&unit.body).filter(|text| tokens(text) * WHOLE_OF_BUDGET <= question.budget);
            item.detail = whole.or(item.detail);
        }
        items.push(item);
    }
    Ok(items)
}

/// A unit as an item, with one of its places.
pub fn unit_item(unit: &Unit, scope: Option<&Scope>, rank: Option<f64>) -> Item {
    let path = scope.and_then(|scope| scope.path.clone()).filter(|path| path != ".");
    Item {
        id: unit.id.to_string(),
        kind: unit.kind.clone(),
        summary: unit.title.clone(),
        detail: unit.description.clone().or_else(|| first_paragraph(&unit.body)),
        symbol: scope.and_then(|scope| scope.symbol.clone()),
        sha256: scope.and_then(|scope| scope.sha256.as_deref()).and_then(parse_digest),
        path,
        confidence: unit.confidence,
        at: unit.last_modified.or(unit.created),
        stale_after: unit.stale_after,
        alternatives: unit.alternatives.clone(),
        is_reviewed: true,
        derivation: None,
        session: None,
        agent: unit.source.clone(),
        superseded_by: None,
        prompt: None,
        rank,
        stale: None,
    }
}

/// Why a unit may no longer hold, by the first of its places in this project that shows it. A unit that was replaced is
/// not checked: it does not hold anyway.
pub fn unit_staleness(unit: &Unit, project: &str, check: &mut StaleCheck) -> Option<Staleness> {
    if unit.status.as_deref().is_some_and(is_retired) {
        return None;
    }
    let here = unit.scope.iter().filter(|scope| is_here(scope, project)).map(Some);
    here.chain([None]).find_map(|scope| {
        let item = unit_item(unit, scope, None);
        let reason = check.check(&item)?;
        Some(Staleness { reason, file: item.path.filter(|_| reason == StaleReason::FileChanged) })
    })
}

/// The file among these that a unit is about by its scope, and the scope.
pub fn file_of_unit<'f, 'u>(
    unit: &'u Unit,
    project: &str,
    files: &'f [String],
) -> Option<(&'f str, &'u Scope)> {
    let covers = |file: &'f String| {
        let question = Question { path: Some(file.clone()), ..Question::default() };
        let scope = best_scope(unit, &question, project)?;
        let path = scope.path.as_deref()?;
        (score::scope_match(Some(path), Some(file)) >= 0.6).then_some((file.as_str(), scope))
    };
    files.iter().find_map(covers)
}

fn is_here(scope: &Scope, project: &str) -> bool {
    scope.repository.as_deref().is_none_or(|repository| {
        let plain = |name: &str| name.trim_end_matches('/').trim_end_matches(".git").to_lowercase();
        plain(repository) == plain(project)
    })
}

/// Whether a scope is a file, a folder or a whole repository, and not a name, a command or an error in one.
fn is_place(scope: &Scope) -> bool {
    let is_whole = scope.symbol.is_none() && scope.command.is_none() && scope.error.is_none();
    scope.path.is_some() || (scope.repository.is_some() && is_whole)
}

/// The place of a unit that fits best; `None` if none bears on what is asked.
fn best_scope<'u>(unit: &'u Unit, question: &Question, project: &str) -> Option<&'u Scope> {
    let fit = |scope: &&Scope| {
        let path = scope.path.as_deref().filter(|path| *path != ".");
        score::scope_match(path, question.path.as_deref())
    };
    unit.scope
        .iter()
        .filter(|scope| is_here(scope, project))
        .filter(|scope| match &question.symbol {
            Some(_) => scope.symbol == question.symbol,
            None => is_place(scope),
        })
        .filter(|scope| {
            // A neighbour in the same folder bears on nothing but itself.
            let fit = fit(scope);
            question.path.is_none()
                || fit >= 0.6
                || (fit == 0.2 && scope.path.as_deref().is_none_or(|path| path == "."))
        })
        .max_by(|a, b| fit(a).total_cmp(&fit(b)))
}

/// The units that have any of the query's words, with their BM25 ranks, by their numbers.
fn ranks_by_words(units: &[&Unit], query: &str) -> Result<HashMap<usize, f64>, archive::Error> {
    let words: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty() && !knowledge::text::is_stop_word(&word.to_lowercase()))
        .take(16)
        .map(|word| format!("\"{word}\""))
        .collect();
    if words.is_empty() {
        return Ok(HashMap::new());
    }
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(
        "CREATE VIRTUAL TABLE units USING fts5(title, body, content = '', tokenize = 'porter unicode61')",
    )?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO units (rowid, title, body) VALUES (?1, ?2, ?3)")?;
    for (number, unit) in units.iter().enumerate() {
        insert.execute(params![number as i64, unit.title, unit.body])?;
    }
    drop(insert);
    connection.execute_batch("COMMIT")?;
    let sql = "SELECT rowid, rank FROM units WHERE units MATCH ?1 ORDER BY rank LIMIT ?2";
    let mut statement = connection.prepare(sql)?;
    let params = params![words.join(" OR "), UNITS_BY_WORDS_MAX as i64];
    let rows = statement.query_map(params, |row| Ok((row.get::<_, i64>(0)? as usize, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The first paragraph of a body that is no heading, in one line.
fn first_paragraph(body: &str) -> Option<String> {
    let paragraph = body.split("\n\n").map(str::trim).find(|paragraph| {
        !paragraph.is_empty() && !paragraph.starts_with("```") && !paragraph.starts_with(['#', '>', '|'])
    })?;
    Some(knowledge::text::one_line(paragraph, DETAIL_CHARS_MAX))
}

/// A body without its title.
fn whole_text(body: &str) -> Option<String> {
    let body = body.trim();
    let rest = match body.strip_prefix("# ") {
        Some(titled) => titled.split_once('\n').map_or("", |(_, rest)| rest),
        None => body,
    };
    Some(knowledge::text::strip_hidden(rest.trim())).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use knowledge::Document;

    use super::*;

    fn unit(id: &str, front: &str, body: &str) -> Unit {
        let text = format!("---\ntype: constraint\ntitle: {id} title\n{front}---\n\n{body}\n");
        Document::parse(text).unwrap().unit(&format!("domains/coding/constraints/{id}.md")).unwrap()
    }

    #[test]
    fn a_paragraph_may_begin_with_code() {
        let body = "# Skew\n\n```rust\nverify()\n```\n\n`verify` fails when the issuer is ahead.\n\nMore.\n";
        assert_eq!(first_paragraph(body).as_deref(), Some("`verify` fails when the issuer is ahead."));
    }

    #[test]
    fn a_unit_is_told_whole_where_that_was_asked_for_and_has_room() {
        let body = "# Skew\n\nIt fails.\n\n## What to do\n\n- Allow 60 s.\n";
        let units = [unit("skew", "scope: [src/jwt.rs]\n", body)];
        let detail = |depth, budget| {
            let question = Question { path: Some("src/jwt.rs".into()), depth, budget, ..Question::default() };
            let place = Place { project: "github.com/acme/shop", root: Path::new("/nowhere") };
            let now = "2026-11-23T00:00:00Z".parse().unwrap();
            let answer = answer(&question, place, &units, Records::None, now).unwrap();
            answer.nuggets[0].detail.clone().unwrap()
        };
        let said = unit("said", "scope: [src/jwt.rs]\n", "# Said title\n\nSaid title.\n");
        let question = Question { path: Some("src/jwt.rs".into()), ..Question::default() };
        assert_eq!(ask(question, &[said], Path::new("/nowhere")).nuggets[0].detail, None, "it is the title");
        assert_eq!(detail(Depth::Standard, 1_000), "It fails.");
        assert_eq!(detail(Depth::Deep, 1_000), "It fails.\n\n## What to do\n\n- Allow 60 s.");
        assert_eq!(detail(Depth::Deep, 20), "It fails.");
    }

    fn ask(question: Question, units: &[Unit], root: &Path) -> Answer {
        let question = Question { budget: 2000, ..question };
        let now = "2026-11-23T00:00:00Z".parse().unwrap();
        answer(&question, Place { project: "github.com/acme/shop", root }, units, Records::None, now).unwrap()
    }

    fn ids(answer: &Answer) -> Vec<&str> {
        answer.nuggets.iter().map(|item| item.id.as_str()).collect()
    }

    #[test]
    fn units_are_found_by_their_scope_or_by_words() {
        let folder = tempfile::tempdir().unwrap();
        let units = [
            unit("exact", "scope: [src/auth.ts]\ncreated: 2026-11-01\n", "About tokens."),
            unit("above", "scope: [src]\ncreated: 2026-11-01\n", "x"),
            unit("all", "scope: [.]\ncreated: 2026-11-01\n", "x"),
            unit("neighbour", "scope: [src/pay.ts]\ncreated: 2026-11-01\n", "x"),
            unit("elsewhere", "scope:\n- path: src/auth.ts\n  repository: github.com/acme/other\n", "x"),
            unit(
                "here",
                "scope:\n- path: src/auth.ts\n  repository: github.com/Acme/shop.git\n  symbol: login\n",
                "x",
            ),
            unit("plain", "", "Tokens expire after an hour."),
            unit("error", "scope:\n- error: it is locked\n  repository: github.com/acme/shop\n", "x"),
            unit("command", "scope:\n- command: make\n  repository: github.com/acme/shop\n", "x"),
            unit("retired", "scope: [src/auth.ts]\nstatus: superseded\n", "x"),
        ];
        let path = || Some("src/auth.ts".to_owned());
        let by_path = ask(Question { path: path(), ..Question::default() }, &units, folder.path());
        assert_eq!(ids(&by_path), ["exact", "here", "above", "all"]);
        assert_eq!(by_path.nuggets[0].detail.as_deref(), Some("About tokens."));
        let of_folder =
            ask(Question { path: Some("src".into()), ..Question::default() }, &units, folder.path());
        assert!(ids(&of_folder).contains(&"neighbour"), "what lies below a folder");
        let words =
            ask(Question { query: Some("tokens".into()), ..Question::default() }, &units, folder.path());
        assert_eq!(ids(&words), ["exact", "plain"], "what the words match, and nothing else");
        let of_symbol = |symbol: &str, path: Option<String>| {
            let question = Question { path, symbol: Some(symbol.into()), ..Question::default() };
            ids(&ask(question, &units, folder.path())).join(" ")
        };
        assert_eq!(of_symbol("login", path()), "here");
        assert_eq!(of_symbol("login", None), "here");
        assert_eq!(of_symbol("logout", path()), "");
        // One without a date may be new.
        let since =
            Question { path: path(), since: "2026-11-20T00:00:00Z".parse().ok(), ..Question::default() };
        let recent = ask(since, &units, folder.path());
        assert_eq!((ids(&recent), recent.nuggets[0].session_date), (vec!["here"], None));
        let kinds = Question { path: path(), kinds: vec![UnitType::Caveat], ..Question::default() };
        assert!(ask(kinds, &units, folder.path()).nuggets.is_empty());
    }

    #[test]
    fn what_may_no_longer_hold_is_marked_and_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "new").unwrap();
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let units = [
            unit("changed", &format!("scope:\n- path: a.rs\n  sha256: {digest}\ncreated: 2026-11-22\n"), "x"),
            unit("expired", "scope: [a.rs]\nstale_after: 2026-11-01\ncreated: 2026-11-21\n", "x"),
            unit("holds", "scope: [a.rs]\ncreated: 2026-10-01\n", "x"),
        ];
        let found = ask(Question { path: Some("a.rs".into()), ..Question::default() }, &units, folder.path());
        assert_eq!(ids(&found), ["holds", "changed", "expired"]);
        let reasons: Vec<_> = found.nuggets.iter().map(|item| item.stale_reason).collect();
        assert_eq!(reasons, [None, Some(StaleReason::FileChanged), Some(StaleReason::Expired)]);
        let mut check = StaleCheck::new(folder.path(), "2026-11-23T00:00:00Z".parse().unwrap());
        let stale = |unit: &Unit, check: &mut StaleCheck| {
            unit_staleness(unit, "x", check).map(|stale| stale.in_words())
        };
        assert_eq!(stale(&units[0], &mut check).as_deref(), Some("a.rs has changed since"));
        assert_eq!(stale(&units[1], &mut check).as_deref(), Some("its date is past"));
        assert_eq!(stale(&units[2], &mut check), None);
    }
}
