//! What each role sees, whatever a statement asks for.

use std::collections::HashMap;

use postgres::error::SqlState;
use queue::suite::LedgerUnderTest as _;
use queue::{Ledger as _, ProposedUnit, Stage};
use team::{BrainId, Error, TeamLedger, TeamStore, Transaction};

use crate::support::{LEASE, TeamUnderTest, accept_lines, create_brain, key};

/// Tables of the ledger with a column `brain`.
const TABLES: [&str; 13] = [
    "captures",
    "jobs",
    "results",
    "lines",
    "names",
    "additions",
    "evidence",
    "answers",
    "spend",
    "pauses",
    "decisions",
    "rejected",
    "reports",
];

fn code(error: &Error) -> Option<&SqlState> {
    match error {
        Error::Postgres(error) => error.code(),
        _ => None,
    }
}

fn refused<T: std::fmt::Debug>(done: team::Result<T>) {
    let error = done.unwrap_err();
    assert_eq!(code(&error), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{error:?}");
}

/// Rows in every table of the ledger.
fn fill(ledger: &TeamLedger, brain: BrainId) {
    let now = jiff::Timestamp::now();
    let lines = [format!("{brain}-line")];
    accept_lines(ledger, &format!("{brain}-s"), 1, &lines);
    accept_lines(ledger, &format!("{brain}-t"), 2, &[]);
    let claim = ledger.claim(Stage::Extraction, now).unwrap().unwrap();
    let unit = |is_new, name: &str| ProposedUnit {
        name: name.into(),
        is_new,
        title: "T".into(),
        additions: vec![("A".into(), vec![1.0])],
        evidence: vec![("l".into(), "e".into())],
        ..ProposedUnit::default()
    };
    assert!(ledger.save_result(&claim, b"r", &[unit(true, "u"), unit(false, "v")]).unwrap().is_empty());
    ledger.save_answer(&claim, "q", b"a").unwrap();
    let budget = queue::Budget { tokens: 1, microdollars: 1 };
    ledger.reserve_spend(Some(&claim), &queue::CallCost::default(), &budget, now).unwrap();
    ledger.pause(&claim, "offline", None, now).unwrap();
    ledger.decide("b", &["p"], &queue::Decision::Merged, now).unwrap();
    ledger.remember_rejected("b", "u", "T", None, now).unwrap();
    ledger.report("r", "b", now).unwrap();
}

fn two_brains() -> Option<(TeamUnderTest, [BrainId; 4])> {
    let test = TeamUnderTest::new()?;
    let others = ["two", "three", "four"].map(|slug| create_brain(&test.store, slug));
    let brains = [test.brain, others[0], others[1], others[2]];
    for brain in brains {
        let server = test.store.register_server("h", "0").unwrap();
        fill(&TeamLedger::new(test.store.clone(), brain, server, LEASE), brain);
    }
    Some((test, brains))
}

/// The brains of a table's rows before and after, by a connection that sees everything.
fn counts(client: &mut postgres::Client) -> HashMap<(String, i32), i64> {
    let mut counts = HashMap::new();
    for table in TABLES {
        let sql = format!("SELECT brain, count(*), min(brain) FROM {table} GROUP BY brain");
        for row in client.query(&sql, &[]).unwrap() {
            counts.insert((table.to_owned(), row.get(0)), row.get(1));
        }
    }
    counts
}

/// One random statement on a random table in the scope of `own`, half of them without the brain in their condition.
/// Returns the brains of the rows that it read or changed.
fn random_access(
    transaction: &mut Transaction,
    random: &mut fastrand::Rng,
    brains: &[BrainId],
) -> team::Result<Vec<i32>> {
    let table = TABLES[random.usize(..TABLES.len())];
    let asked = brains[random.usize(..brains.len())];
    let condition = if random.bool() { "true".to_owned() } else { format!("brain = {asked}") };
    let sql = match random.u8(..5) {
        0 => format!("SELECT brain FROM {table} WHERE {condition}"),
        1 => format!(
            "SELECT t.brain FROM captures c JOIN {table} t USING (brain) WHERE t.{}",
            condition.replace("true", "brain > 0")
        ),
        2 => format!("SELECT brain FROM {table} WHERE {condition} OR brain <> {asked} FOR UPDATE"),
        3 => format!("UPDATE {table} SET brain = brain WHERE {condition} RETURNING brain"),
        _ => format!("DELETE FROM {table} WHERE {condition} RETURNING brain"),
    };
    let rows = transaction.query(&sql, &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[test]
fn a_deleted_brain_leaves_no_row_and_no_other_brain_loses_one() {
    let Some((test, brains)) = two_brains() else { return };
    let before = counts(&mut test.database.superuser());
    let [_, gone, ..] = brains;
    assert!(test.store.delete_brain(gone, "root").unwrap());
    let after = counts(&mut test.database.superuser());
    assert!(after.keys().all(|(_, brain)| *brain != gone.0), "{after:?}");
    let others = |counts: HashMap<(String, i32), i64>| -> HashMap<_, _> {
        counts.into_iter().filter(|((_, brain), _)| *brain != gone.0).collect()
    };
    assert_eq!(others(after), others(before));
    assert!(test.store.brain_by_id(gone).unwrap().is_none());
    let last = &test.store.audit(1).unwrap()[0];
    assert_eq!((last.action.as_str(), last.brain), ("brain.delete", Some(gone)));
    assert!(!test.store.delete_brain(gone, "root").unwrap(), "it was deleted before");
    let synced = test.database.superuser().query("SELECT FROM syncs WHERE brain = $1", &[&gone.0]).unwrap();
    assert!(synced.is_empty());
}

#[test]
fn ten_thousand_random_statements_read_no_foreign_row() {
    let Some((test, brains)) = two_brains() else { return };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let before = counts(&mut test.database.superuser());
    assert_eq!(before.len(), TABLES.len() * brains.len(), "a table without rows proves nothing");
    let mut seen = 0;
    for number in 0..10_000 {
        let own = brains[random.usize(..brains.len())];
        let found = test.store.brain(own).write(|transaction| {
            transaction.roll_back();
            random_access(transaction, &mut random, &brains)
        });
        let found = found.unwrap();
        assert!(found.iter().all(|brain| *brain == own.0), "access {number} of brain {own}: {found:?}");
        seen += found.len();
    }
    assert!(seen > 5_000, "{seen} rows were read");
    assert_eq!(counts(&mut test.database.superuser()), before);
}

#[test]
fn what_is_deleted_without_a_condition_is_the_own_brains() {
    let Some((test, brains)) = two_brains() else { return };
    let before = counts(&mut test.database.superuser());
    let own = brains[1];
    test.store
        .brain(own)
        .write(|transaction| {
            for table in TABLES.iter().rev() {
                transaction.execute(&format!("DELETE FROM {table}"), &[])?;
            }
            Ok(())
        })
        .unwrap();
    let mut expected = before;
    expected.retain(|(_, brain), _| *brain != own.0);
    assert_eq!(counts(&mut test.database.superuser()), expected);
}

#[test]
fn a_row_of_another_brain_cannot_be_written() {
    let Some((test, brains)) = two_brains() else { return };
    let other = brains[1].0;
    let own = test.store.brain(brains[0]);
    refused(own.write(|transaction| {
        let sql = "INSERT INTO captures (brain, key, session_id, subject, origin) VALUES ($1, $2, 's', 'a', 'hook')";
        transaction.execute(sql, &[&other, &key(9).as_slice()])
    }));
    for table in TABLES {
        refused(
            own.write(|transaction| transaction.execute(&format!("UPDATE {table} SET brain = {other}"), &[])),
        );
    }
    // A reference cannot lead to another brain's capture, though its check is not subject to the policies.
    let foreign: i64 = test
        .store
        .brain(brains[1])
        .read(|transaction| Ok(transaction.query_one("SELECT max(id) FROM captures", &[])?.get(0)))
        .unwrap();
    let linked = own.write(|transaction| {
        let sql = "INSERT INTO results (brain, capture_id, body) VALUES ($1, $2, '')";
        transaction.execute(sql, &[&brains[0].0, &foreign])
    });
    assert_eq!(code(&linked.unwrap_err()), Some(&SqlState::FOREIGN_KEY_VIOLATION));
}

#[test]
fn a_brain_is_changed_by_its_own_transactions_only() {
    let Some((test, brains)) = two_brains() else { return };
    let own = test.store.brain(brains[0]);
    let sql = "UPDATE brains SET generation = generation + 1 RETURNING id";
    let changed = own.write(|transaction| transaction.query(sql, &[])).unwrap();
    assert_eq!(changed.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [brains[0].0]);
    refused(own.write(|transaction| transaction.execute("UPDATE brains SET slug = 'x'", &[])));
    for table in ["tokens", "projects", "servers", "syncs", "audit"] {
        refused(own.read(|transaction| transaction.query(&format!("SELECT 1 FROM {table}"), &[])));
    }
    refused(own.read(|transaction| transaction.query("SELECT waits_for_session(1, 1)", &[])));
}

#[test]
fn the_dispatcher_sees_jobs_and_no_content() {
    let Some((test, brains)) = two_brains() else { return };
    let store: &TeamStore = &test.store;
    let jobs =
        store.dispatch(|transaction| transaction.query("SELECT DISTINCT brain FROM jobs", &[])).unwrap();
    assert_eq!(jobs.len(), brains.len());
    for table in TABLES.iter().filter(|table| !["jobs", "pauses"].contains(table)) {
        refused(store.dispatch(|transaction| transaction.query(&format!("SELECT 1 FROM {table}"), &[])));
    }
    for sql in [
        "SELECT session_id FROM jobs",
        "SELECT reason FROM jobs",
        "SELECT why FROM pauses",
        "UPDATE jobs SET stage = 'git'",
        "UPDATE jobs SET not_before = now()",
        "DELETE FROM jobs",
        "SELECT 1 FROM tokens",
        "SELECT 1 FROM brains",
    ] {
        refused(store.dispatch(|transaction| transaction.execute(sql, &[])));
    }
}

#[test]
fn without_a_scope_nothing_is_seen() {
    let Some((test, _)) = two_brains() else { return };
    // The owner of the tables, as it logs in.
    let mut client = postgres::Client::connect(&test.database.url, postgres::NoTls).unwrap();
    client.batch_execute("SET search_path = nugget").unwrap();
    let count = |client: &mut postgres::Client, table: &str| -> i64 {
        client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).unwrap().get(0)
    };
    for table in TABLES {
        // It is a member of the dispatcher's role, which sees jobs.
        if !["jobs", "pauses"].contains(&table) {
            assert_eq!(count(&mut client, table), 0, "{table}");
        }
    }
    client.batch_execute("SET ROLE nugget_server").unwrap();
    for table in TABLES {
        assert_eq!(count(&mut client, table), 0, "{table}");
    }
}

#[test]
fn a_transactions_scope_ends_with_it() {
    let Some((test, brains)) = two_brains() else { return };
    let store = test.database.store(1);
    let count = "SELECT count(*) FROM captures";
    for brain in [brains[0], brains[1]] {
        let rows: i64 =
            store.brain(brain).read(|transaction| Ok(transaction.query_one(count, &[])?.get(0))).unwrap();
        assert_eq!(rows, 2);
    }
    // The same connection without a brain.
    refused(store.dispatch(|transaction| transaction.query(count, &[])));
    let brain = store.brain(brains[0]);
    let counts = brain.read(|transaction| {
        let before: i64 = transaction.query_one(count, &[])?.get(0);
        test.add("later", Stage::Extraction);
        Ok((before, transaction.query_one(count, &[])?.get(0)))
    });
    assert_eq!(counts.unwrap(), (2, 2_i64), "one state until it ends");
    assert_eq!(brain.read(|transaction| Ok(transaction.query_one(count, &[])?.get::<_, i64>(0))).unwrap(), 3);
}
