//! The whole pass on small brains, and its properties on random ones.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knowledge::{Document, Unit, UnitId};
use proptest::prelude::*;

use crate::{Change, Finding, Kind, Observed, Recall, Settings, apply, find, text_to_compare};

const NOW: &str = "2026-11-20T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

#[derive(Clone)]
struct File {
    path: String,
    text: String,
    unit: Unit,
    recall: Option<Recall>,
    stale: Option<String>,
    vector: Vec<f32>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}\n{}", self.path, self.recall, self.stale, self.text)
    }
}

fn file(path: &str, front: &str, body: &str) -> File {
    read(path.to_owned(), format!("---\n{front}---\n\n{body}\n"))
}

/// A unit with its title, in a domain of its type, last changed on a day.
fn unit(id: &str, title: &str, day: &str, more: &str, body: &str) -> File {
    let front = format!("id: {id}\ntype: pattern\ntitle: {title}\nlast_modified: {day}\n{more}");
    file(&format!("domains/coding/patterns/{id}.md"), &front, body)
}

fn read(path: String, text: String) -> File {
    let unit = Document::parse(text.as_str()).unwrap().unit(&path).unwrap();
    let vector = vector(&text_to_compare(&unit));
    File { path, text, unit, recall: None, stale: None, vector }
}

/// A stand-in for a model's vector: the letters of a text's words in 64 buckets, L2-normalised.
fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.01_f32; 64];
    for word in knowledge::words::words(text) {
        let hash = blake3::hash(word.as_bytes());
        vector[usize::from(hash.as_bytes()[0] % 64)] += 1.0;
    }
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / norm).collect()
}

fn observed(files: &[File]) -> Vec<Observed<'_>> {
    let observed = files.iter().map(|file| Observed {
        unit: &file.unit,
        path: &file.path,
        text: &file.text,
        vector: Some(&file.vector),
        recall: file.recall,
        stale: file.stale.as_deref(),
    });
    observed.collect()
}

fn found(files: &[File]) -> Vec<Finding> {
    find(&observed(files), &settings(), now())
}

fn settings() -> Settings {
    Settings { recording_since: Some("2025-01-01T00:00:00Z".parse().unwrap()), ..Settings::default() }
}

/// The files after a pass, with what is known about the units that are left.
fn after(files: &[File], findings: &[Finding]) -> Vec<File> {
    let mut texts: BTreeMap<String, String> =
        files.iter().map(|file| (file.path.clone(), file.text.clone())).collect();
    for change in apply(findings, &observed(files), &settings(), now()) {
        match change.text {
            Some(text) => drop(texts.insert(change.path, text)),
            None => drop(texts.remove(&change.path)),
        }
    }
    let mut after: Vec<File> = texts.into_iter().map(|(path, text)| read(path, text)).collect();
    for file in &mut after {
        let before = files.iter().find(|before| before.unit.id == file.unit.id).unwrap();
        (file.recall, file.stale) = (before.recall, before.stale.clone());
    }
    after
}

fn shown(sessions: u32, day: &str) -> Option<Recall> {
    Some(Recall { shown: sessions, used: 0, last: format!("{day}T00:00:00Z").parse().unwrap() })
}

fn text_of<'f>(files: &'f [File], id: &str) -> &'f str {
    &files.iter().find(|file| file.unit.id.as_str() == id).unwrap().text
}

const BODY: &str =
    "A fixed number of workers reads from one channel, which pushes back when all of them are busy.";

#[test]
fn a_copy_is_merged_into_the_unit_that_sessions_use() {
    let mut files = [
        unit("one", "Bound the pool", "2026-10-01", "tags: [go]\nmine: 1 # kept\n", BODY),
        unit(
            "two",
            "BOUND the pool",
            "2026-10-02",
            "tags: [go, pools]\nrelated:\n- id: three\n  relation: uses\n",
            BODY,
        ),
        unit(
            "three",
            "Measure first",
            "2026-10-01",
            "related:\n- id: two\n  relation: informed_by\n  reason: why\n",
            "See [[two|the pool]] and `[[two]]`.",
        ),
    ];
    files[0].recall = shown(4, "2026-11-01");
    let findings = found(&files);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].kind, Kind::Duplicate);
    let into = |id: &str| UnitId::verbatim(id);
    assert_eq!(findings[0].change, Change::Merge { from: into("two"), into: into("one") });
    assert_eq!(
        findings[0].reason,
        "`two` says the same as `one` (100 % alike); kept is the one that 4 sessions were shown",
        "their titles are equal"
    );
    let after = after(&files, &findings);
    assert_eq!(after.len(), 2);
    let kept = text_of(&after, "one");
    assert!(kept.contains("tags: [go, pools]\nmine: 1 # kept\n"), "{kept}");
    assert!(
        kept.contains("related:\n- id: three\n  relation: uses\n") && kept.ends_with(&format!("{BODY}\n")),
        "{kept}"
    );
    let third = text_of(&after, "three");
    assert!(third.contains("related:\n- id: one\n  relation: informed_by\n  reason: why\n"), "{third}");
    assert!(third.contains("See [[one|the pool]] and `[[two]]`."), "{third}");
    assert_eq!(found(&after), []);
}

#[test]
fn what_only_the_removed_unit_says_is_kept() {
    let body = format!("{BODY}\n\nThe importer needs `max_workers` at 12.");
    let files = [
        unit("one", "Bound the pool", "2026-10-01", "confidence: 0.9\n", BODY),
        unit("two", "Bound the pool", "2026-10-02", "confidence: 0.5\n", &body),
    ];
    let after = after(&files, &found(&files));
    let kept = text_of(&after, "one");
    assert!(kept.ends_with("\n\n## Merged from two\n\nThe importer needs `max_workers` at 12.\n"), "{kept}");
    assert!(kept.contains("last_modified: 2026-11-20T12:00:00Z"), "{kept}");
    assert_eq!(text_to_compare(&after[0].unit), text_to_compare(&files[0].unit), "it is compared as before");
}

#[test]
fn a_correction_replaces_and_an_opinion_is_left_to_a_person() {
    let old = unit("old", "Retry at the gateway", "2026-08-01", "", "The gateway repeats each failed call.");
    let new = |body: &str| unit("new", "Never retry at the gateway", "2026-10-01", "", body);
    let replaced = [old.clone(), new("The gateway no longer repeats a failed call.")];
    let findings = found(&replaced);
    assert!(matches!(findings[0].change, Change::Supersede { .. }), "{findings:?}");
    let texts = after(&replaced, &findings);
    assert!(text_of(&texts, "old").contains("status: superseded\n"));
    assert!(text_of(&texts, "old").contains("- id: new\n  relation: superseded_by\n"));
    assert!(text_of(&texts, "new").contains("- id: old\n  relation: supersedes\n"));
    assert_eq!(found(&texts), []);

    let open = [old, new("The gateway repeats each failed call, which multiplies the load.")];
    let findings = found(&open);
    assert!(matches!(findings[0].change, Change::Contradict { .. }), "{findings:?}");
    let texts = after(&open, &findings);
    for (id, other) in [("old", "new"), ("new", "old")] {
        let text = text_of(&texts, id);
        assert!(text.contains(&format!("- id: {other}\n  relation: contradicts\n  reason:")), "{text}");
        assert!(!text.contains("status"), "{text}");
    }
    assert_eq!(found(&texts), []);
}

#[test]
fn the_newer_value_of_a_fact_replaces_the_older_one() {
    let fact = |id: &str, day: &str, value: &str| {
        let front =
            format!("id: {id}\ntype: fact\ntitle: Deploy region\nsource: human\nlast_modified: {day}\n");
        file(&format!("domains/ops/facts/{id}.md"), &front, &format!("# Deploy region\n\n{value}"))
    };
    let files = [fact("a", "2026-08-01", "eu-west-1"), fact("b", "2026-10-01", "eu-central-1")];
    let findings = found(&files);
    let expected = Change::Supersede { old: UnitId::verbatim("a"), new: UnitId::verbatim("b") };
    assert_eq!(findings[0].change, expected, "{findings:?}");
}

#[test]
fn a_unit_is_archived_only_when_recording_has_lasted_long_enough() {
    let mut files = [unit("one", "Bound the pool", "2025-10-01", "", BODY)];
    let archive = |files: &[File], since: Option<&str>| {
        let recording_since = since.map(|since| since.parse().unwrap());
        find(&observed(files), &Settings { recording_since, ..Settings::default() }, now())
    };
    assert_eq!(archive(&files, None), []);
    assert_eq!(archive(&files, Some("2026-06-01T00:00:00Z")), []);
    assert_eq!(archive(&files, Some("2026-05-01T00:00:00Z"))[0].kind, Kind::Unused);
    // An action that is held back may be rare.
    let held = [unit("one", "Bound the pool", "2025-10-01", "enforce: hold\n", BODY)];
    assert_eq!(archive(&held, Some("2026-05-01T00:00:00Z")), []);
    files[0].recall = shown(1, "2026-07-01");
    assert_eq!(found(&files), [], "it was shown, though never used");
    files[0].recall = shown(1, "2026-01-01");
    let text = after(&files, &found(&files))[0].text.clone();
    assert!(text.contains("status: archived\n"), "{text}");
    let young = [unit("one", "Bound the pool", "2026-09-01", "", BODY)];
    assert_eq!(found(&young), []);
    let undated = [file("domains/a/bugs/x.md", "type: bug\n", BODY)];
    assert_eq!(found(&undated), []);
}

#[test]
fn only_links_to_nothing_are_dangling() {
    let related = "related: [gone, {id: memory-12}, {id: pending}, {id: old, relation: uses, mine: 1}]\n";
    let files = [
        unit("one", "Bound the pool", "2026-10-01", related, BODY),
        unit("old", "Another thing", "2026-10-01", "status: superseded\n", "text"),
    ];
    let other_ids = BTreeSet::from([UnitId::verbatim("pending")]);
    let findings = find(&observed(&files), &Settings { other_ids, ..settings() }, now());
    assert_eq!(findings.len(), 1, "{findings:?}");
    let text = after(&files, &findings)[1].text.clone();
    let expected = "related:\n- id: memory-12\n- id: pending\n- id: old\n  relation: uses\n  mine: 1\n";
    assert!(text.contains(expected), "{text}");
}

/// A note whose file is not named by its id, as after Obsidian has renamed it.
fn renamed(name: &str, id: &str, more: &str, body: &str) -> File {
    let front = format!("id: {id}\ntype: note\ntitle: The {id}\nlast_modified: 2026-10-01\n{more}");
    file(&format!("domains/coding/notes/{name}.md"), &front, body)
}

#[test]
fn what_stays_linked_is_linked_by_the_name_of_its_file() {
    let links = "related: [beta, gone, vault]\nlinks: ['[[Beta file|Beta]]', '[[gone]]', '[[Its file]]']\n";
    let files = [
        unit("one", "Bound the pool", "2026-10-01", links, BODY),
        renamed("Beta file", "beta", "", "Releases are made on Mondays."),
    ];
    let other_ids = BTreeSet::from([UnitId::verbatim("vault")]);
    let findings = find(&observed(&files), &Settings { other_ids, ..settings() }, now());
    let after = after(&files, &findings);
    let text = text_of(&after, "one");
    assert!(text.contains("links:\n- '[[Beta file|Beta]]'\n- '[[Its file]]'\n---\n"), "{text}");
}

#[test]
fn links_to_a_merged_file_lead_to_the_file_that_is_kept() {
    let links = "related: [beta]\nlinks: ['[[Beta file|The beta]]']\n";
    let body = "See [[Beta file]], [[notes/Beta file.md#Size|it]], [[Daily/Beta file]] and [[beta]].";
    let files = [
        renamed("Alpha file", "alpha", "", BODY),
        renamed("Beta file", "beta", "", BODY),
        unit("one", "Releases on Mondays", "2026-10-01", links, body),
        unit("two", "Backups at night", "2026-10-01", "", "See [[Beta file|the pool]]."),
        unit(
            "three",
            "Mine",
            "2026-10-01",
            "related: ['[[beta]]', {id: alpha, mine: 1}]\n",
            "See [[The beta]].",
        ),
    ];
    let change = Change::Merge { from: UnitId::verbatim("beta"), into: UnitId::verbatim("alpha") };
    let after = after(&files, &[Finding::new(Kind::Duplicate, change, String::new(), &[], "")]);
    let text = text_of(&after, "one");
    assert!(text.contains("related:\n- alpha\nlinks:\n- '[[Alpha file|The alpha]]'\n"), "{text}");
    assert!(
        text.contains("See [[Alpha file]], [[Alpha file#Size|it]], [[Daily/Beta file]] and [[Alpha file]]."),
        "{text}"
    );
    assert!(text_of(&after, "two").contains("See [[Alpha file|the pool]]."), "{after:?}");
    let text = text_of(&after, "three");
    assert!(
        text.contains("related:\n- id: alpha\n  mine: 1\n---\n"),
        "the entry with more in it stays: {text}"
    );
    let kept = text_of(&after, "alpha");
    assert!(kept.contains("aliases:\n- The beta\n"), "its title still leads there: {kept}");
}

#[test]
fn a_unit_is_not_merged_into_one_that_links_its_file() {
    let merges = |body: &str| {
        let files = [renamed("Alpha file", "alpha", "", BODY), renamed("Beta file", "beta", "", body)];
        found(&files).iter().any(|finding| matches!(finding.change, Change::Merge { .. }))
    };
    assert!(merges(BODY));
    assert!(!merges(&format!("{BODY} [[alpha file]]")));
}

#[test]
fn a_promoted_unit_keeps_the_name_of_its_file() {
    let files = [renamed("My Note", "mine", "", "We chose Redis over files.")];
    let change = Change::Promote { unit: UnitId::verbatim("mine"), to: knowledge::UnitType::Decision };
    let after = after(&files, &[Finding::new(Kind::Promote, change, String::new(), &[], "")]);
    assert_eq!(after[0].path, "domains/coding/decisions/My Note.md");
}

#[test]
fn a_number_that_counts_copies_is_no_contradiction() {
    let smoke = "Run the smoke tests on staging before each deploy.";
    let pair = |titles: [&str; 2], bodies: [&str; 2]| {
        let files = [
            unit("one", &format!("{:?}", titles[0]), "2026-10-01", "", bodies[0]),
            unit("other", &format!("{:?}", titles[1]), "2026-10-02", "", bodies[1]),
        ];
        found(&files).into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    let titles = ["Dup 1: smoke tests on staging", "Dup 2: smoke tests on staging"];
    assert_eq!(pair(titles, [smoke, smoke]), [Kind::Duplicate]);
    let nearly = "Run the smoke tests on staging before every deploy.";
    assert_eq!(pair(titles, [smoke, nearly]), [Kind::NearDuplicate]);
    // Values contradict each other, in the title as in the text.
    let waits = ["Wait 30 seconds for the proxy", "Wait 60 seconds for the proxy"];
    let slow = "It starts slowly after a deploy.";
    assert_eq!(pair(waits, [slow, slow]), [Kind::Contradiction]);
    let five = "Retry the smoke tests on staging five times.";
    let two = "Retry the smoke tests on staging two times.";
    assert_eq!(pair(titles, [five, two]), [Kind::Contradiction]);
}

#[test]
fn a_rule_the_other_way_round_in_the_title_is_a_contradiction() {
    let [tabs, spaces] = [
        "Always indent Makefiles with tabs, never with spaces",
        "Never indent Makefiles with tabs, always with spaces",
    ];
    let files =
        [unit("tabs", tabs, "2026-10-01", "", tabs), unit("spaces", spaces, "2026-10-02", "", spaces)];
    let kinds: Vec<Kind> = found(&files).into_iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::Contradiction]);
}

#[test]
fn a_note_that_sessions_need_moves_to_the_folder_of_its_type() {
    let front = "type: note\ntitle: Cache store\nlast_modified: 2026-10-01\nrelated: [{id: gone}]\n";
    let mut files = [file("notes/cache.md", front, "We chose Redis over files.")];
    files[0].recall = shown(2, "2026-11-01");
    assert!(found(&files).iter().all(|finding| finding.kind != Kind::Promote));
    files[0].recall = shown(3, "2026-11-01");
    let changes = apply(&found(&files), &observed(&files), &settings(), now());
    let paths: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.text.is_some())).collect();
    assert_eq!(paths, [("domains/notes/decisions/cache.md", true), ("notes/cache.md", false)]);
    let text = changes[0].text.as_deref().unwrap();
    assert!(
        text.contains("type: decision\n")
            && text.contains("id: notes/cache\n")
            && text.contains("related: []\n"),
        "{text}"
    );
    assert_eq!(changes[0].reasons.len(), 2, "both findings touch it");
}

#[test]
fn a_promoted_unit_replaces_no_other_file() {
    let front = "type: note\ntitle: Cache store\nlast_modified: 2026-10-01\n";
    let mut files = [file("notes/cache.md", front, "We chose Redis over files.")];
    files[0].recall = shown(3, "2026-11-01");
    let other_paths = ["domains/notes/decisions/cache.md".to_owned()].into();
    let changes = apply(&found(&files), &observed(&files), &Settings { other_paths, ..settings() }, now());
    let paths: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["notes/cache.md"]);
    assert!(changes[0].text.as_deref().unwrap().contains("type: decision\n"));
}

#[test]
fn a_stale_unit_is_marked_once() {
    let mut files = [unit("one", "Bound the pool", "2026-10-01", "", BODY)];
    files[0].stale = Some("src/pool.go has changed".into());
    let findings = found(&files);
    assert_eq!(findings[0].reason, "“Bound the pool” may no longer hold: src/pool.go has changed");
    let after = after(&files, &findings);
    assert!(after[0].text.contains("stale_after: 2026-11-20T12:00:00Z\n"), "{}", after[0].text);
    assert_eq!(found(&after), []);
}

#[test]
fn a_rejected_finding_comes_back_only_with_another_text() {
    let copy = |body: &str| {
        [
            unit("one", "Bound the pool", "2026-10-01", "", BODY),
            unit("two", "Bound the pool", "2026-10-02", "", body),
        ]
    };
    let mut files = copy(BODY);
    let key = found(&files)[0].key().to_owned();
    assert!(key.starts_with("merge:one+two:"), "{key}");
    let settings = Settings { rejected: BTreeSet::from([key]), ..settings() };
    assert_eq!(find(&observed(&files), &settings, now()), []);
    // Which of the two would be kept does not matter, nor what else is in the files.
    files[1].recall = shown(5, "2026-11-01");
    assert_eq!(find(&observed(&files), &settings, now()), []);
    let files = copy(&format!("{BODY} Really."));
    assert_eq!(find(&observed(&files), &settings, now()).len(), 1);
}

#[test]
fn two_units_with_one_id_are_left_alone() {
    let one = unit("one", "Bound the pool", "2026-10-01", "", BODY);
    let mut other = unit("one", "Bound the pool", "2026-10-01", "", BODY);
    other.path = "domains/coding/bugs/one.md".into();
    assert_eq!(found(&[one, other]), []);
}

#[test]
fn what_says_another_thing_is_not_merged_however_alike() {
    let merges = |files: &[File]| {
        let found = found(files);
        found.into_iter().filter(|finding| matches!(finding.change, Change::Merge { .. })).count()
    };
    let pair = |one: &str, other: &str| {
        [
            unit("one", "Webhooks that fail", "2026-01-01", "", one),
            unit("other", "Failed webhooks", "2026-01-02", "", other),
        ]
    };
    let five = "Always retry failed webhooks five times before giving up.";
    assert_eq!(merges(&pair(five, five)), 1);
    assert_eq!(merges(&pair(five, "Never retry failed webhooks five times before giving up.")), 0);
    let week = "Pruning the images frees forty gigabytes of the build cache every week.";
    assert_eq!(
        merges(&pair(week, "Pruning the images frees forty gigabytes of the build cache every month.")),
        0
    );
    // A fact is its key.
    let fact = |id: &str, key: &str, value: &str| {
        let front = format!("id: {id}\ntype: fact\ntitle: {key}\nlast_modified: 2026-01-01\n");
        file(&format!("domains/general/facts/{id}.md"), &front, value)
    };
    assert_eq!(merges(&[fact("a", "prod db", "pg-1.internal"), fact("b", "db of prod", "pg-1.internal")]), 0);
    // What a link names is the other unit's, and who links a unit wants both.
    let cache = "How long the cache of the sessions lives";
    let linking = format!("Deploys are started by hand from the pipeline. [[{cache}]] [[{cache}]]");
    let files = [
        unit("cache", cache, "2026-01-01", "", "The cache of the sessions lives for an hour."),
        unit("deploys", "Deploys", "2026-01-02", "", &linking),
    ];
    assert!(!text_to_compare(&files[1].unit).contains("cache"));
    assert_eq!(merges(&files), 0);
    let copies = [
        unit("a", "Webhooks", "2026-01-01", "", five),
        unit("b", "Webhooks", "2026-01-02", "", &format!("{five} [[a]]")),
    ];
    assert_eq!(merges(&copies), 0);
}

#[test]
fn a_merge_carries_over_what_the_other_words_say_more() {
    let kept = "Restart the queue worker after changing the config file. It caches the values at startup.";
    let more =
        "After changing the config file, restart the queue worker, but only when the jobs are drained.";
    let files = [
        unit("one", "Restart the worker", "2026-10-02", "", kept),
        unit("two", "Restart the worker", "2026-10-01", "description: Pause the scheduler first.\n", more),
    ];
    let change = Change::Merge { from: UnitId::verbatim("two"), into: UnitId::verbatim("one") };
    let findings = [Finding::new(Kind::Duplicate, change, String::new(), &[], "")];
    let text = text_of(&after(&files, &findings), "one").to_owned();
    assert!(
        text.contains(kept) && text.contains(more) && text.contains("Pause the scheduler first."),
        "{text}"
    );
}

/// What a merge leaves of two units of one text, of which the second one goes on with `more`.
fn merged_with(text: &str, more: &str) -> String {
    let title = "Bound the pool";
    let files = [
        unit("one", title, "2026-10-02", "", text),
        unit("two", title, "2026-10-01", "", &format!("{text}{more}")),
    ];
    let change = Change::Merge { from: UnitId::verbatim("two"), into: UnitId::verbatim("one") };
    let finding = Finding::new(Kind::Duplicate, change, String::new(), &[], "");
    let after = after(&files, &[finding]);
    assert_eq!(after.len(), 1);
    after[0].text.clone()
}

#[test]
fn a_merge_loses_no_sentence_beside_code() {
    let text = format!("{}\n\n```python\npool = Pool(8)\n\npool.start()\n```", [BODY; 6].join(" "));
    let kept = merged_with(&text, "\n\nNever restart the importer during the invoicing.");
    assert!(
        kept.ends_with("## Merged from two\n\nNever restart the importer during the invoicing.\n"),
        "{kept}"
    );
    assert_eq!(kept.matches("Pool(8)").count(), 1, "{kept}");
    let code = "```python\npool = Pool()\n\npool.start()\n```";
    assert!(merged_with(&text, &format!("\n\n{code}")).ends_with(&format!("two\n\n{code}\n")), "other code");
    let crlf = format!("{text}\n").replace('\n', "\r\n");
    let kept = merged_with(&crlf, "\r\nNever restart the importer during the invoicing.");
    assert!(
        kept.ends_with("## Merged from two\n\nNever restart the importer during the invoicing.\n"),
        "{kept}"
    );
}

#[test]
fn other_lessons_in_the_same_words_are_not_merged() {
    for (one, other) in [
        ("The order list was slow for a missing index", "The order list was slow for stale statistics"),
        ("Run `check --lane 7` before a release", "Run `check --lane 8` before a release"),
        ("The scan pods may use 4 GiB of memory", "The image pods may use 1 GiB of memory"),
    ] {
        let body = "It was measured in June, with the traffic of a usual working day, and again in July.";
        let files = [unit("a", one, "2026-10-01", "", body), unit("b", other, "2026-10-01", "", body)];
        let merged = found(&files).iter().any(|finding| matches!(finding.change, Change::Merge { .. }));
        assert!(!merged, "{one} | {other}");
    }
}

prop_compose! {
    fn any_file()(
        id in 0..14_u8,
        title in prop::sample::select(vec![
            "Bound the pool", "Never bound the pool", "Wait 30 seconds for it", "Wait 60 seconds for it", "Cache after commit",
            "Prefer tabs over spaces", "Prefer spaces over tabs", "Deploy region",
        ]),
        bodies in prop::collection::vec(prop::sample::select(vec![
            BODY, "It no longer waits.", "The importer needs `max_workers` at 12.", "Read the value before the commit, always.",
            "Tabs are wider.", "We chose Redis.", "eu-west-1",
        ]), 1..4),
        kind in prop::sample::select(vec!["note", "fact", "pattern", "decision"]),
        tags in prop::collection::btree_set(prop::sample::select(vec!["a", "b", "c"]), 0..3),
        links in prop::collection::vec((0..18_u8, prop::sample::select(vec!["uses", "contradicts", "informed_by"])), 0..4),
        day in 1..28_u8,
        year in 2024..2027_u16,
        dated in prop::bool::weighted(0.9),
        recall in prop::option::of((0..6_u32, 1..12_u8)),
        stale in prop::bool::weighted(0.1),
        status in prop::option::weighted(0.1, Just("archived")),
    ) -> (u8, File) {
        let tags = tags.into_iter().collect::<Vec<_>>().join(", ");
        let mut front = format!("type: {kind}\nid: u{id}\ntitle: {title}\ntags: [{tags}]\n");
        if dated {
            front.push_str(&format!("last_modified: {year}-03-{day:02}\n"));
        }
        if let Some(status) = status {
            front.push_str(&format!("status: {status}\n"));
        }
        let links: Vec<String> = links.iter().map(|(to, how)| format!("{{id: u{to}, relation: {how}}}")).collect();
        front.push_str(&format!("related: [{}]\n", links.join(", ")));
        let mut file = file(&format!("domains/d/{kind}s/u{id}.md"), &front, &bodies.join("\n\n"));
        file.recall = recall.map(|(shown, month)| Recall { shown, used: shown / 2, last: format!("2026-{month:02}-01T00:00:00Z").parse().unwrap() });
        file.stale = stale.then(|| "its file has changed".to_owned());
        (id, file)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_pass_finds_nothing_new(files in prop::collection::vec(any_file(), 1..12)) {
        let files: BTreeMap<u8, File> = files.into_iter().collect();
        let files: Vec<File> = files.into_values().collect();
        let first = found(&files);
        let after = after(&files, &first);
        let again: Vec<_> = found(&after).into_iter().filter(|finding| finding.kind != Kind::Rewrite).collect();
        prop_assert!(again.is_empty(), "first {first:#?}\nagain {again:#?}");

        // No live unit links to nothing, none has the same link twice, and what is removed is merged.
        let ids: BTreeSet<&UnitId> = after.iter().map(|file| &file.unit.id).collect();
        for file in &after {
            let mut seen = BTreeSet::new();
            for link in &file.unit.related {
                let is_live = file.unit.status.is_none();
                prop_assert!(!is_live || ids.contains(&link.id), "{} -> {}", file.unit.id, link.id);
            }
            let changed = files.iter().all(|before| before.unit.related != file.unit.related);
            for link in file.unit.related.iter().filter(|_| changed) {
                prop_assert!(seen.insert((&link.id, link.reason.clone(), link.relation.clone())), "{}", file.text);
            }
        }
        let merged = first.iter().filter(|finding| matches!(finding.change, Change::Merge { .. })).count();
        prop_assert_eq!(after.len() + merged, files.len());
    }

    #[test]
    fn the_order_of_the_units_does_not_matter(files in prop::collection::vec(any_file(), 1..8)) {
        let files: BTreeMap<u8, File> = files.into_iter().collect();
        let mut files: Vec<File> = files.into_values().collect();
        let first = found(&files);
        files.reverse();
        prop_assert_eq!(first, found(&files));
    }
}
