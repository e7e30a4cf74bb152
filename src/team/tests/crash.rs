//! What is acknowledged survives a SIGKILL of PostgreSQL.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use team::private_postgres::PrivatePostgres;
use team::{TeamLedger, TeamStore};

use crate::support::{LEASE, PrivateServer, create_brain, key, try_accept};

const KILLS: usize = 5;
const WRITERS: u64 = 8;
/// Hand-overs that are acknowledged between two kills.
const ACCEPTS: u64 = 200;

#[test]
fn a_killed_postgres_loses_nothing_that_was_acknowledged() {
    let Some(mut server) = PrivateServer::start() else {
        println!("skipped: no programs of PostgreSQL");
        return;
    };
    let store = TeamStore::connect_with(&server.postgres().url("postgres"), 8).unwrap();
    store.migrate().unwrap();
    let brain = create_brain(&store, "one");
    let ledger = TeamLedger::new(store.clone(), brain, store.register_server("h", "0").unwrap(), LEASE);
    let acknowledged = Mutex::new(Vec::new());
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if let Ok(accepted) = try_accept(&ledger, &format!("s{number}"), number, &[]) {
                        acknowledged.lock().unwrap().push((number, accepted.id));
                    }
                }
            });
        }
        for _ in 0..KILLS {
            let wanted = acknowledged.lock().unwrap().len() as u64 + ACCEPTS;
            wait(|| acknowledged.lock().unwrap().len() as u64 >= wanted);
            kill(&mut server);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    println!("{} acknowledged, {KILLS} kills, {} sent", acknowledged.len(), next.into_inner());
    let rows = store.brain(brain).read(|transaction| {
        transaction.query(
            "SELECT c.key, c.id, j.id IS NOT NULL FROM captures c LEFT JOIN jobs j USING (brain, id)",
            &[],
        )
    });
    let stored: std::collections::HashMap<Vec<u8>, (i64, bool)> =
        rows.unwrap().iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    for (number, id) in acknowledged {
        assert_eq!(stored.get(key(number).as_slice()), Some(&(id, true)), "hand-over {number} was lost");
    }
}

fn wait(mut is_done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < until, "too few hand-overs in a minute");
        std::thread::yield_now();
    }
}

/// Ends the server and all its processes at once, and starts it again on the same folder.
fn kill(server: &mut PrivateServer) {
    let process = server.postgres().process_id().cast_signed();
    for each in children(process).into_iter().chain([process]) {
        let _ = Pid::from_raw(each).map(|pid| kill_process(pid, Signal::KILL));
    }
    server.postgres = None;
    let programs = PrivatePostgres::find().unwrap();
    // A process that is still ending holds the shared memory for a moment.
    let until = Instant::now() + Duration::from_secs(60);
    while server.postgres.is_none() {
        match PrivatePostgres::start(&programs, server.folder.path()) {
            Ok(postgres) => server.postgres = Some(postgres),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
