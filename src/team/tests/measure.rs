//! Measures the ledger, and prints a table: `cargo test --release --test measure`, or `-- claims` for one part.
//!
//! The server is that of `NUGGET_TEST_POSTGRES`, or a private one.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it measures and prints")]

#[expect(dead_code, reason = "the tests use the rest")]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knowledge::SessionId;
use postgres::{Client, NoTls};
use queue::{Finish, Ledger as _, Stage};
use team::{BrainId, NewCapture, TeamLedger, TeamStore};

use support::{LEASE, TeamUnderTest, create_brain, key};

const CLIENTS: u64 = 64;
const ACCEPTS_EACH: u64 = 50;
/// The connections of `nugget server`.
const SERVER_CONNECTIONS: u32 = 16;
const BODY_BYTES: usize = 8 << 10;
const LINES: usize = 20;
const WORKERS: usize = 8;
const CLAIMS: i64 = 8_000;
const FINISHED: i64 = 1_000_000;
const FLOOD: i64 = 10_000;

fn main() {
    let Some(test) = TeamUnderTest::with_connections(CLIENTS as u32) else { return };
    let wanted = std::env::args().nth(1);
    let parts: [(&str, fn(&TeamUnderTest)); 3] =
        [("accept", hand_overs), ("claims", claims), ("fairness", fairness)];
    for (_, part) in parts.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name)) {
        part(&test);
    }
}

fn percentile(latencies: &mut [Duration], part: f64) -> f64 {
    latencies.sort_unstable();
    let last = latencies.len() - 1;
    latencies[(last as f64 * part) as usize].as_secs_f64() * 1e3
}

/// Runs `work` on each thread with its number, and returns how long each call took.
fn timed(threads: u64, calls: u64, work: impl Fn(u64) + Sync) -> (Vec<Duration>, f64) {
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    let latencies: Vec<Duration> = std::thread::scope(|scope| {
        let each = || {
            let one = |_| {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let begun = Instant::now();
                work(number);
                begun.elapsed()
            };
            (0..calls).map(one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(each)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    (latencies, rate)
}

fn hand_overs(test: &TeamUnderTest) {
    println!("{CLIENTS} threads hand over, body {BODY_BYTES} bytes, {LINES} lines; in ms");
    println!("{:<28}{:>9}{:>9}{:>9}", "", "p50", "p99", "per s");
    let body: Vec<u8> = (0..BODY_BYTES).map(|_| fastrand::u8(..)).collect();
    let mut superuser = test.database.superuser();
    superuser
        .batch_execute(
            "CREATE TABLE bare (key bytea PRIMARY KEY, body bytea NOT NULL); GRANT ALL ON bare TO PUBLIC",
        )
        .unwrap();
    let clients: Vec<std::sync::Mutex<(Client, postgres::Statement)>> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(&test.database.url, NoTls).unwrap();
            let statement = client.prepare("INSERT INTO nugget.bare VALUES ($1, $2)").unwrap();
            std::sync::Mutex::new((client, statement))
        })
        .collect();
    // As many connections as a server has, and as warm.
    let few =
        TeamLedger::new(test.database.store(SERVER_CONNECTIONS), test.brain, register(&test.store), LEASE);
    for ledger in [&test.ledger, &few] {
        timed(CLIENTS, 2, |_| hand_over(ledger, fastrand::u64(1 << 50..), &body));
    }
    for round in 0..3_u64 {
        let first = round * CLIENTS * ACCEPTS_EACH;
        let bare = timed(CLIENTS, ACCEPTS_EACH, |number| {
            let (client, statement) = &mut *free(&clients, number);
            client.execute(statement, &[&key(first + number).as_slice(), &body]).unwrap();
        });
        row("bare INSERT", bare);
        let accepted = timed(CLIENTS, ACCEPTS_EACH, |number| hand_over(&test.ledger, first + number, &body));
        row("accept", accepted);
        let accepted =
            timed(CLIENTS, ACCEPTS_EACH, |number| hand_over(&few, first + number + (1 << 40), &body));
        row(&format!("accept, {SERVER_CONNECTIONS} connections"), accepted);
    }
    superuser.batch_execute("TRUNCATE captures, lines CASCADE").unwrap();
}

fn free<T>(clients: &[std::sync::Mutex<T>], number: u64) -> std::sync::MutexGuard<'_, T> {
    let start = number as usize;
    let mut tried = (0..).map(|step| clients[(start + step) % clients.len()].try_lock());
    tried.find_map(Result::ok).unwrap()
}

fn row(name: &str, (mut latencies, rate): (Vec<Duration>, f64)) {
    let (p50, p99) = (percentile(&mut latencies, 0.5), percentile(&mut latencies, 0.99));
    println!("{name:<28}{p50:>9.1}{p99:>9.1}{rate:>9.0}");
}

fn hand_over(ledger: &TeamLedger, number: u64, body: &[u8]) {
    let lines: Vec<String> = (0..LINES).map(|line| format!("{number:024}-{line:011}")).collect();
    let capture = NewCapture {
        key: key(number),
        session: &SessionId::verbatim(format!("s{number}")),
        project: None,
        ended: None,
        lines: &lines,
        body,
        subject: "alice",
        origin: "hook",
    };
    assert!(ledger.accept(&capture).unwrap().is_new);
}

fn register(store: &TeamStore) -> team::ServerId {
    store.register_server("host", "0").unwrap()
}

/// Adds captures that wait for extraction, of ten brains.
fn fill(client: &mut Client, brains: &[BrainId], count: i64) {
    let brains: Vec<i32> = brains.iter().map(|brain| brain.0).collect();
    client.execute(
        "WITH c AS (
             INSERT INTO captures (brain, key, session_id, subject, origin)
             SELECT ($1::int[])[(1 + n % cardinality($1))::int], sha256(random()::text::bytea), 's' || random(), 'a', 'hook'
             FROM generate_series(1, $2::bigint) n RETURNING brain, id, session_id),
         r AS (INSERT INTO results (brain, capture_id, body) SELECT brain, id, '' FROM c)
         INSERT INTO jobs (brain, id, session_id, stage) SELECT brain, id, session_id, 'extraction' FROM c",
        &[&brains, &count],
    )
    .unwrap();
}

fn claims(test: &TeamUnderTest) {
    let brains: Vec<BrainId> =
        (0..10).map(|number| create_brain(&test.store, &format!("c{number}"))).collect();
    let ledgers: Vec<TeamLedger> = brains
        .iter()
        .map(|brain| TeamLedger::new(test.store.clone(), *brain, register(&test.store), LEASE))
        .collect();
    let mut superuser = test.database.superuser();
    println!(
        "\n{WORKERS} workers claim, then finish; per s{:>12}{:>9}{:>13}",
        "claim", "finish", "claim p99 ms"
    );
    for name in ["empty ledger", "1,000,000 finished"] {
        if name != "empty ledger" {
            finished(&mut superuser, &brains);
        }
        for brains_used in [1, 10] {
            for _ in 0..3 {
                fill(&mut superuser, &brains[..brains_used], CLAIMS);
                claim_all(name, &ledgers[..brains_used]);
            }
        }
    }
}

fn finished(client: &mut Client, brains: &[BrainId]) {
    let brains: Vec<i32> = brains.iter().map(|brain| brain.0).collect();
    client.execute(
        "INSERT INTO captures (brain, key, session_id, subject, origin, outcome, stage, attempts, branch, commit_id,
             units, pushed, pull_number, pull_state, started, finished)
         SELECT ($1::int[])[(1 + n % 10)::int], sha256(('f' || n)::bytea), 's' || n, 'a', 'hook', 'done', 'delivery', 1,
             'nugget/' || n, 'c', 1, 'c', n, 'merged', now(), now() FROM generate_series(1, $2::bigint) n",
        &[&brains, &FINISHED],
    )
    .unwrap();
    // What is measured is a ledger with many rows, and not what PostgreSQL does after a million insertions at once.
    client.batch_execute("VACUUM ANALYZE captures").unwrap();
    client.batch_execute("CHECKPOINT").unwrap();
}

fn claim_all(name: &str, ledgers: &[TeamLedger]) {
    let now = Timestamp::now();
    let each = CLAIMS as u64 / WORKERS as u64;
    let claims = std::sync::Mutex::new(Vec::new());
    let (mut latencies, rate) = timed(WORKERS as u64, each, |number| {
        let ledger = &ledgers[number as usize % ledgers.len()];
        let claim = ledger.claim(Stage::Extraction, now).unwrap().unwrap();
        claims.lock().unwrap().push((number as usize % ledgers.len(), claim));
    });
    let nothing = Finish::Nothing { reason: "measured".into() };
    let (_, finishes) = timed(WORKERS as u64, each, |_| {
        let (ledger, claim) = claims.lock().unwrap().pop().unwrap();
        ledgers[ledger].finish_with_transcript(&claim, &nothing, None, now).unwrap();
    });
    let name = format!("{name}, {} brain(s)", ledgers.len());
    println!("{name:<38}{rate:>8.0}{finishes:>9.0}{:>13.2}", percentile(&mut latencies, 0.99));
}

fn fairness(test: &TeamUnderTest) {
    let others: Vec<BrainId> =
        (0..10).map(|number| create_brain(&test.store, &format!("o{number}"))).collect();
    let flood = create_brain(&test.store, "flood");
    let mut superuser = test.database.superuser();
    superuser.batch_execute("TRUNCATE captures, lines CASCADE").unwrap();
    println!(
        "\n10 brains with 40 captures each, {WORKERS} workers, 2 ms of work; in ms{:>9}{:>9}",
        "p50", "last"
    );
    for name in ["alone", "with 10,000 of another"] {
        for _ in 0..3 {
            superuser.batch_execute("TRUNCATE captures, lines CASCADE").unwrap();
            if name != "alone" {
                fill(&mut superuser, &[flood], FLOOD);
            }
            fill(&mut superuser, &others, 400);
            let mut waits = work_off(&test.store, &others);
            println!("{name:<60}{:>9.0}{:>9.0}", percentile(&mut waits, 0.5), percentile(&mut waits, 1.0));
        }
    }
}

/// Workers take a capture of each ready brain in turn. Returns how long each of the others' captures waited.
fn work_off(store: &TeamStore, others: &[BrainId]) -> Vec<Duration> {
    let begun = Instant::now();
    let cursor = std::sync::Mutex::new(BrainId(0));
    let waits = std::sync::Mutex::new(Vec::new());
    let server = register(store);
    let now = Timestamp::now();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while waits.lock().unwrap().len() < 400 {
                    // The next brain's turn is of all workers.
                    let brain = {
                        let mut cursor = cursor.lock().unwrap();
                        let Some(next) = store.ready_brains(*cursor, 1, now).unwrap().pop() else { return };
                        *cursor = next.brain;
                        next.brain
                    };
                    let ledger = TeamLedger::new(store.clone(), brain, server, LEASE);
                    let Some(claim) = ledger.claim(Stage::Extraction, now).unwrap() else { continue };
                    if others.contains(&brain) {
                        waits.lock().unwrap().push(begun.elapsed());
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    let nothing = Finish::Nothing { reason: "measured".into() };
                    ledger.finish_with_transcript(&claim, &nothing, None, now).unwrap();
                }
            });
        }
    });
    waits.into_inner().unwrap()
}
