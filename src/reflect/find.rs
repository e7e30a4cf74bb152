//! Finds what can be improved.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knowledge::unit::is_retired;
use knowledge::wikilink::{Wikilink, wikilinks};
use knowledge::{Document, Unit, UnitId, UnitType, rank, text};

use crate::apply::{CONTRADICTS, apply};
use crate::finding::{Change, Finding, Kind};
use crate::observed::{Observed, Recall, Settings, changed, own_text, text_to_compare};
use crate::pair::{Compared, Verdict};
use crate::promote::proper_type;

/// The most units that are compared with each other, the newest: 50 million comparisons, about 20 s.
const COMPARED_MAX: usize = 10_000;

/// What can be improved in a brain, by kind and id. Carried out and sought again, nothing new is found but
/// [`Kind::Rewrite`], as long as `now` is the same.
///
/// Retired units are left alone, and so are units that share their id with another one. A unit that a merge keeps is not
/// removed by another merge; what is merged away, archived or replaced has no other finding but its dangling links.
///
/// Every unit is compared with every other one: 300 units take 50 ms, 4,000 about 3 s. Of more than 10,000 only the newest
/// are compared.
pub fn find(units: &[Observed<'_>], settings: &Settings, now: Timestamp) -> Vec<Finding> {
    let texts: Vec<String> = units.iter().map(|observed| text_to_compare(observed.unit)).collect();
    let mut search = Search::new(units, &texts, settings, now);
    search.find_dangling();
    let pairs = search.pairs();
    search.find_merges(&pairs);
    search.find_unused();
    search.find_contradictions(&pairs);
    search.find_by_unit();
    search.find_links(&pairs);
    let mut found = search.found;
    found.sort_by(|a, b| (a.kind, a.change.units(), a.key()).cmp(&(b.kind, b.change.units(), b.key())));
    found
}

struct Search<'a> {
    units: &'a [Observed<'a>],
    settings: &'a Settings,
    now: Timestamp,
    /// The units that findings may be about, by id.
    live: Vec<Live<'a>>,
    /// The ids that exist, also of what is retired.
    ids: BTreeSet<&'a UnitId>,
    /// The units that a finding removes or retires.
    gone: BTreeSet<&'a UnitId>,
    /// The units that a merge keeps.
    kept: BTreeSet<&'a UnitId>,
    found: Vec<Finding>,
}

struct Live<'a> {
    observed: &'a Observed<'a>,
    compared: Compared<'a>,
    /// The wikilinks of the text.
    links: Vec<Wikilink<'a>>,
}

/// Two of the live units that are something to each other.
struct Pair {
    one: usize,
    other: usize,
    verdict: Verdict,
    cosine: f64,
}

impl<'a> Live<'a> {
    fn unit(&self) -> &'a Unit {
        self.observed.unit
    }

    /// How good a unit is, for which of two is kept: what sessions use, then what is trusted, then what says more.
    fn quality(&self) -> impl Ord + use<> {
        let unit = self.unit();
        let recall = self.observed.recall;
        let trust = rank::source_tier(&unit.source) + unit.confidence;
        (
            recall.map_or(0, |recall| recall.used),
            recall.map_or(0, |recall| recall.shown),
            (trust * 1000.0) as i64,
            own_text(unit).len(),
            std::cmp::Reverse(unit.id.clone()),
        )
    }

    fn quoted(&self) -> String {
        format!("“{}”", text::one_line(&self.unit().title, 80))
    }
}

impl<'a> Search<'a> {
    /// `texts` are those of the units, in their order.
    fn new(units: &'a [Observed<'a>], texts: &'a [String], settings: &'a Settings, now: Timestamp) -> Self {
        let mut count: BTreeMap<&UnitId, usize> = BTreeMap::new();
        for observed in units {
            *count.entry(&observed.unit.id).or_default() += 1;
        }
        let is_live = |observed: &&Observed<'_>| {
            !observed.unit.status.as_deref().is_some_and(is_retired)
                && count.get(&observed.unit.id) == Some(&1)
                && Document::parse(observed.text).is_ok()
        };
        let all = units.iter().zip(texts);
        let mut observed: Vec<(&Observed<'_>, &String)> = all.filter(|(unit, _)| is_live(unit)).collect();
        observed.sort_by_key(|(observed, _)| &observed.unit.id);
        let live = observed.into_iter().map(|(observed, text)| Live {
            observed,
            compared: Compared::new(observed.unit, text, observed.vector),
            links: wikilinks(&observed.unit.body),
        });
        Self {
            units,
            settings,
            now,
            live: live.collect(),
            ids: count.into_keys().collect(),
            gone: BTreeSet::new(),
            kept: BTreeSet::new(),
            found: Vec::new(),
        }
    }

    /// Adds a finding, unless a person has rejected it or it is about nothing recent.
    fn add(&mut self, finding: Finding) -> bool {
        let is_recent = |id: &UnitId| {
            let live = self.live.iter().find(|live| live.unit().id == *id);
            live.is_some_and(|live| self.is_recent(live, finding.kind))
        };
        let is_wanted = !self.settings.rejected.contains(finding.key())
            && finding.change.units().into_iter().any(is_recent);
        if is_wanted {
            self.found.push(finding);
        }
        is_wanted
    }

    fn add_all(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            self.add(finding);
        }
    }

    fn is_recent(&self, live: &Live<'_>, kind: Kind) -> bool {
        let Some(since) = self.settings.since else { return true };
        let event = changed(live.unit()).max(live.observed.recall.map(|recall| recall.last));
        let event = match kind {
            Kind::Unused => event.and_then(|event| event.checked_add(self.settings.unused_after()).ok()),
            _ => event,
        };
        event.is_none_or(|event| event >= since)
    }

    fn is_there(&self, at: usize) -> bool {
        !self.gone.contains(&self.live[at].unit().id)
    }

    /// All pairs that are something to each other, the most similar first.
    fn pairs(&self) -> Vec<Pair> {
        let mut newest: Vec<usize> = (0..self.live.len()).collect();
        newest.sort_by_key(|&at| std::cmp::Reverse(self.live[at].compared.changed()));
        newest.truncate(COMPARED_MAX);
        newest.sort_unstable();
        let mut pairs = Vec::new();
        for (count, &other) in newest.iter().enumerate() {
            for &one in &newest[..count] {
                let (earlier, later) = (&self.live[one].compared, &self.live[other].compared);
                let verdict = earlier.verdict(later);
                if verdict != Verdict::Unlike {
                    pairs.push(Pair { one, other, verdict, cosine: earlier.cosine(later).unwrap_or(1.0) });
                }
            }
        }
        pairs.sort_by(|a, b| b.cosine.total_cmp(&a.cosine).then((a.one, a.other).cmp(&(b.one, b.other))));
        pairs
    }

    /// Relations to units that do not exist.
    fn find_dangling(&mut self) {
        let mut found = Vec::new();
        for live in &self.live {
            let targets: BTreeSet<&UnitId> = live.unit().related.iter().map(|related| &related.id).collect();
            for target in targets.into_iter().filter(|target| !self.exists(target)) {
                let reason = format!("{} is related to “{target}”, which does not exist", live.quoted());
                let change = Change::Unlink { from: live.unit().id.clone(), to: target.clone() };
                found.push(Finding::new(
                    Kind::Dangling,
                    change,
                    reason,
                    &[live.compared.text],
                    target.as_str(),
                ));
            }
        }
        self.add_all(found);
    }

    fn exists(&self, id: &UnitId) -> bool {
        self.ids.contains(id) || self.settings.other_ids.contains(id) || id.memory_number().is_some()
    }

    /// Units that say the same: of each group the best one is kept, and takes in those that say the same as it.
    fn find_merges(&mut self, pairs: &[Pair]) {
        // A fact is its key: as long as it stays one, it is merged with nothing.
        let stays_fact: Vec<bool> = self
            .live
            .iter()
            .map(|live| live.unit().kind == UnitType::Fact && self.promotion(live).is_none())
            .collect();
        let mut same: BTreeMap<usize, Vec<(usize, bool, f64)>> = BTreeMap::new();
        for pair in pairs {
            let Verdict::Same { is_exact } = pair.verdict else { continue };
            let is_fact = stays_fact[pair.one] || stays_fact[pair.other];
            if !is_fact && !self.is_decided(pair) && !self.mentions(pair) {
                same.entry(pair.one).or_default().push((pair.other, is_exact, pair.cosine));
                same.entry(pair.other).or_default().push((pair.one, is_exact, pair.cosine));
            }
        }
        let mut best: Vec<usize> = same.keys().copied().collect();
        best.sort_by_key(|&at| std::cmp::Reverse(self.live[at].quality()));
        for into in best {
            for &(from, is_exact, cosine) in &same[&into] {
                let free = |at: usize| self.is_there(at) && !self.kept.contains(&self.live[at].unit().id);
                if self.is_there(into) && free(from) {
                    self.merge(from, into, is_exact, cosine);
                }
            }
        }
    }

    fn merge(&mut self, from: usize, into: usize, is_exact: bool, cosine: f64) {
        let (removed, kept) = (&self.live[from], &self.live[into]);
        let (from, into) = (&removed.unit().id, &kept.unit().id);
        let kind = if is_exact { Kind::Duplicate } else { Kind::NearDuplicate };
        let how = if is_exact { "the same as" } else { "the same in other words as" };
        // Of two that have one title, their ids tell which is which.
        let title = |live: &Live<'_>| live.unit().title.to_lowercase();
        let name = |live: &Live<'_>| match title(removed) == title(kept) {
            true => format!("`{}`", live.unit().id),
            false => live.quoted(),
        };
        let reason = format!(
            "{} says {how} {} ({:.0} % alike); kept is the one that {}",
            name(removed),
            name(kept),
            cosine * 100.0,
            why_better(removed.observed, kept.observed),
        );
        let change = Change::Merge { from: from.clone(), into: into.clone() };
        if self.add(Finding::new(kind, change, reason, &[removed.compared.text, kept.compared.text], "")) {
            self.gone.insert(from);
            self.kept.insert(into);
        }
    }

    /// Whether the text of one has a wikilink to the other: who links a unit wants both.
    fn mentions(&self, pair: &Pair) -> bool {
        let mentions = |from: usize, to: usize| {
            let to = self.live[to].observed;
            let leads_there =
                |link: &Wikilink<'_>| link.names_file(to.path) || link.ids().any(|id| id == to.unit.id);
            self.live[from].links.iter().any(leads_there)
        };
        mentions(pair.one, pair.other) || mentions(pair.other, pair.one)
    }

    /// Whether the units of a pair say themselves that they contradict or replace each other.
    fn is_decided(&self, pair: &Pair) -> bool {
        let states = |from: usize, to: usize| {
            let to = &self.live[to].unit().id;
            let is_decision =
                |relation: &str| matches!(relation, CONTRADICTS | "supersedes" | "superseded_by");
            self.live[from]
                .unit()
                .related
                .iter()
                .any(|link| link.id == *to && is_decision(link.relation.as_str()))
        };
        states(pair.one, pair.other) || states(pair.other, pair.one)
    }

    /// Units that no session was shown for a long time, all of which nugget has recorded.
    fn find_unused(&mut self) {
        let days = self.settings.unused_days;
        let Ok(limit) = self.now.checked_sub(self.settings.unused_after()) else { return };
        if self.settings.recording_since.is_none_or(|since| since > limit) {
            return;
        }
        let mut found = Vec::new();
        for (at, live) in self.live.iter().enumerate() {
            let last = live.observed.recall.map(|recall| recall.last);
            // The age of a unit without dates is not known.
            let is_old = changed(live.unit()).is_some_and(|changed| changed <= limit);
            let is_free = self.is_there(at) && !self.kept.contains(&live.unit().id);
            // What is held back may be rare, which makes it no less dangerous.
            let is_enforced = live.unit().enforce.is_some();
            if is_old && is_free && !is_enforced && last.is_none_or(|last| last <= limit) {
                let since = match last {
                    Some(last) => format!(
                        "was last shown to a session on this machine on {}",
                        last.strftime("%Y-%m-%d")
                    ),
                    None => format!("was shown to no session on this machine in {days} days"),
                };
                let change = Change::Archive { unit: live.unit().id.clone() };
                let reason = format!("{} {since}", live.quoted());
                let finding = Finding::new(Kind::Unused, change, reason, &[live.compared.text], "");
                found.push((&live.observed.unit.id, finding));
            }
        }
        for (id, finding) in found {
            if self.add(finding) {
                self.gone.insert(id);
            }
        }
    }

    fn find_contradictions(&mut self, pairs: &[Pair]) {
        for pair in pairs.iter().filter(|pair| pair.verdict == Verdict::Opposed) {
            if self.is_there(pair.one) && self.is_there(pair.other) && !self.is_decided(pair) {
                self.contradiction(pair);
            }
        }
    }

    fn contradiction(&mut self, pair: &Pair) {
        let (one, other) = (&self.live[pair.one], &self.live[pair.other]);
        let (old, new) =
            if one.compared.changed() <= other.compared.changed() { (one, other) } else { (other, one) };
        let (old_id, new_id) = (&old.observed.unit.id, &new.observed.unit.id);
        let texts = [old.compared.text, new.compared.text];
        let (change, reason) = match replaces(old, new) {
            Some(why) => (
                Change::Supersede { old: old_id.clone(), new: new_id.clone() },
                format!("{} replaces {}: {why}", new.quoted(), old.quoted()),
            ),
            None => (
                Change::Contradict { one: old_id.clone(), other: new_id.clone() },
                format!("{} and {} cannot both hold: decide which one does", old.quoted(), new.quoted()),
            ),
        };
        let is_replaced = matches!(change, Change::Supersede { .. });
        if self.add(Finding::new(Kind::Contradiction, change, reason, &texts, "")) && is_replaced {
            self.gone.insert(old_id);
        }
    }

    /// Findings that are about one unit only.
    fn find_by_unit(&mut self) {
        let mut found = Vec::new();
        for live in self.live.iter().filter(|live| !self.gone.contains(&live.unit().id)) {
            let expired = live.unit().stale_after.is_some_and(|until| until <= self.now);
            match live.observed.stale {
                Some(why) if !expired => found.push(stale(live, why)),
                Some(_) => {}
                None if !expired => found.extend(self.promotion(live)),
                None => {}
            }
            found.extend(self.rewriting(live));
        }
        self.add_all(found);
    }

    fn promotion(&self, live: &Live<'_>) -> Option<Finding> {
        let unit = live.unit();
        let shown = live.observed.recall.map_or(0, |recall| recall.shown);
        let is_note = matches!(unit.kind, UnitType::Note | UnitType::Fact);
        (is_note && shown >= self.settings.promote_sessions).then(|| {
            let to = proper_type(unit);
            let reason = format!(
                "{} was recalled in {shown} sessions: the {} becomes a {to}",
                live.quoted(),
                unit.kind
            );
            let change = Change::Promote { unit: unit.id.clone(), to };
            Finding::new(Kind::Promote, change, reason, &[live.compared.text], "")
        })
    }

    fn rewriting(&self, live: &Live<'_>) -> Option<Finding> {
        let unit = live.unit();
        let shown = live.observed.recall.map_or(0, |recall| recall.shown);
        let words = unit.body.split_whitespace().count();
        (shown >= self.settings.rewrite_sessions && words >= self.settings.rewrite_words).then(|| {
            let reason = format!("{} has {words} words and was recalled in {shown} sessions", live.quoted());
            let change = Change::Rewrite { unit: unit.id.clone() };
            Finding::new(Kind::Rewrite, change, reason, &[live.compared.text], "")
        })
    }

    /// Units of one subject that are not related. Looked for in what the other findings make of the brain, so that a
    /// second pass counts the same relations.
    fn find_links(&mut self, pairs: &[Pair]) {
        // A contradiction only adds a relation: of hundreds of units that all contradict each other, the files are not made.
        let contradicts = |finding: &&Finding| matches!(finding.change, Change::Contradict { .. });
        let (contradictions, others): (Vec<&Finding>, Vec<&Finding>) =
            self.found.iter().partition(contradicts);
        let others: Vec<Finding> = others.into_iter().cloned().collect();
        let after = units_after(self.units, &others, self.settings, self.now);
        let mut related: BTreeMap<&UnitId, BTreeSet<&UnitId>> = BTreeMap::new();
        for finding in contradictions {
            if let Change::Contradict { one, other } = &finding.change {
                related.entry(one).or_default().insert(other);
                related.entry(other).or_default().insert(one);
            }
        }
        for unit in after.values() {
            for link in unit.related.iter().filter(|link| link.id != unit.id) {
                related.entry(&unit.id).or_default().insert(&link.id);
                related.entry(&link.id).or_default().insert(&unit.id);
            }
        }
        let mut found = Vec::new();
        for pair in pairs.iter().filter(|pair| pair.verdict == Verdict::Near) {
            if !self.is_there(pair.one) || !self.is_there(pair.other) {
                continue;
            }
            let (one, other) = (&self.live[pair.one], &self.live[pair.other]);
            let (Some(a), Some(b)) = (after.get(&one.unit().id), after.get(&other.unit().id)) else {
                continue;
            };
            let shared: Vec<&str> =
                a.tags.iter().filter(|tag| b.tags.contains(tag)).map(String::as_str).take(3).collect();
            let count = |id: &UnitId| related.get(id).map_or(0, BTreeSet::len);
            let is_related = related.get(&a.id).is_some_and(|related| related.contains(&b.id));
            let is_full = count(&a.id).max(count(&b.id)) >= self.settings.links_max;
            if shared.is_empty() || is_related || is_full {
                continue;
            }
            let reason =
                format!("{} and {} are both about {}", one.quoted(), other.quoted(), shared.join(", "));
            let change = Change::Link { one: a.id.clone(), other: b.id.clone() };
            let finding =
                Finding::new(Kind::Link, change, reason, &[one.compared.text, other.compared.text], "");
            if !self.settings.rejected.contains(finding.key()) {
                related.entry(&a.id).or_default().insert(&b.id);
                related.entry(&b.id).or_default().insert(&a.id);
                found.push(finding);
            }
        }
        self.add_all(found);
    }
}

fn stale(live: &Live<'_>, why: &str) -> Finding {
    let why = text::one_line(why, 200);
    let reason = format!("{} may no longer hold: {why}", live.quoted());
    let change = Change::Expire { unit: live.unit().id.clone() };
    Finding::new(Kind::Stale, change, reason, &[live.compared.text], &why)
}

/// In what the kept one of two units is better.
fn why_better(removed: &Observed<'_>, kept: &Observed<'_>) -> String {
    let count = |recall: Option<Recall>| recall.map_or((0, 0), |recall| (recall.used, recall.shown));
    let (ours, theirs) = (count(kept.recall), count(removed.recall));
    let tier = |observed: &Observed<'_>| rank::source_tier(&observed.unit.source) + observed.unit.confidence;
    match () {
        () if ours.0 > theirs.0 => format!("{} sessions used", ours.0),
        () if ours.0 == theirs.0 && ours.1 > theirs.1 => format!("{} sessions were shown", ours.1),
        () if tier(kept) > tier(removed) => "is trusted more".to_owned(),
        () => "says more".to_owned(),
    }
}

/// Why the newer of two contradictory units clearly replaces the older one; `None` if a person has to decide.
fn replaces(old: &Live<'_>, new: &Live<'_>) -> Option<&'static str> {
    let is_later = old.compared.changed()? < new.compared.changed()?;
    let is_trusted = rank::source_tier(&new.unit().source) >= rank::source_tier(&old.unit().source);
    let is_fact = old.unit().kind == UnitType::Fact && new.unit().kind == UnitType::Fact;
    match () {
        () if !is_later || !is_trusted => None,
        () if is_fact => Some("it is the newer value of the same key"),
        () if new.compared.is_correction() && !old.compared.is_correction() => {
            Some("it is newer and says what has changed")
        }
        () => None,
    }
}

/// The units as they are after the findings so far, by id.
fn units_after(
    units: &[Observed<'_>],
    found: &[Finding],
    settings: &Settings,
    now: Timestamp,
) -> BTreeMap<UnitId, Unit> {
    let changes = apply(found, units, settings, now);
    let changed: BTreeMap<&str, Option<&str>> =
        changes.iter().map(|change| (change.path.as_str(), change.text.as_deref())).collect();
    let mut after = BTreeMap::new();
    for observed in units.iter().filter(|observed| !changed.contains_key(observed.path)) {
        after.insert(observed.unit.id.clone(), observed.unit.clone());
    }
    for (path, text) in &changed {
        let unit =
            text.and_then(|text| Document::parse(text).ok()).and_then(|document| document.unit(path).ok());
        after.extend(unit.map(|unit| (unit.id.clone(), unit)));
    }
    after
}
