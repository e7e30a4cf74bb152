//! Creating and checking the tables.

use postgres::error::SqlState;
use team::{Error, TeamStore};

use crate::support::{PrivateServer, TeamUnderTest, TestDatabase, with_user_and_database};

#[test]
fn migrating_again_changes_nothing() {
    let Some(test) = TeamUnderTest::new() else { return };
    test.store.migrate().unwrap();
    test.store.check().unwrap();
    let versions: i64 =
        test.database.superuser().query_one("SELECT count(*) FROM schema_version", &[]).unwrap().get(0);
    assert_eq!(versions, 5);
}

#[test]
fn servers_that_start_together_migrate_once() {
    // On a server where the roles do not exist either, and by a role that is no superuser.
    let Some(server) = PrivateServer::start() else {
        println!("skipped: no programs of PostgreSQL");
        return;
    };
    let mut admin = postgres::Client::connect(&server.postgres().url("postgres"), postgres::NoTls).unwrap();
    admin.batch_execute("CREATE ROLE starter LOGIN CREATEROLE").unwrap();
    let urls: Vec<String> = ["d1", "d2"]
        .map(|name| {
            admin.batch_execute(&format!("CREATE DATABASE {name} OWNER starter")).unwrap();
            let mut inside =
                postgres::Client::connect(&server.postgres().url(name), postgres::NoTls).unwrap();
            inside.batch_execute("CREATE EXTENSION vector").unwrap();
            with_user_and_database(&server.postgres().url(name), "starter", name)
        })
        .into();
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (url, barrier) = (&urls[number % 2], &barrier);
            scope.spawn(move || {
                let store = TeamStore::connect_with(url, 1).unwrap();
                assert!(matches!(store.check(), Err(Error::NotMigrated { found: 0, .. }) | Ok(())));
                barrier.wait();
                store.migrate().unwrap();
                store.check().unwrap();
            });
        }
    });
    for url in &urls {
        let store = TeamStore::connect_with(url, 1).unwrap();
        let brain = crate::support::create_brain(&store, "one");
        let count = |transaction: &mut team::Transaction| {
            Ok(transaction.query_one("SELECT count(*) FROM jobs", &[])?.get::<_, i64>(0))
        };
        assert_eq!(store.brain(brain).read(count).unwrap(), 0);
        assert_eq!(store.dispatch(count).unwrap(), 0);
    }
    // The owner of another installation there, also after a backup was restored.
    admin.batch_execute("CREATE ROLE neighbour LOGIN; GRANT nugget_server TO neighbour").unwrap();
    admin.batch_execute("GRANT CONNECT ON DATABASE d2 TO PUBLIC").unwrap();
    TeamStore::connect_with(&urls[1], 1).unwrap().migrate().unwrap();
    for (url, name) in urls.iter().zip(["d1", "d2"]) {
        let neighbour = with_user_and_database(url, "neighbour", name);
        let refused = postgres::Client::connect(&neighbour, postgres::NoTls).err().unwrap();
        assert_eq!(refused.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{refused:?}");
    }
}

#[test]
fn tables_of_a_newer_nugget_are_refused_only_if_they_are_not_readable() {
    let Some(test) = TeamUnderTest::new() else { return };
    let mut superuser = test.database.superuser();
    superuser.batch_execute("INSERT INTO schema_version (version, readable_from) VALUES (98, 1)").unwrap();
    test.store.check().unwrap();
    test.store.migrate().unwrap();
    superuser.batch_execute("INSERT INTO schema_version (version, readable_from) VALUES (99, 98)").unwrap();
    for refused in [test.store.check(), test.store.migrate().map(drop)] {
        assert!(matches!(refused, Err(Error::Newer { version: 99, readable_from: 98 })), "{refused:?}");
    }
}

#[test]
fn a_pgvector_that_is_too_old_is_named() {
    let Some(test) = TeamUnderTest::new() else { return };
    let mut superuser = test.database.superuser();
    let mut checked = |version: &str| {
        superuser
            .execute("UPDATE pg_extension SET extversion = $1 WHERE extname = 'vector'", &[&version])
            .unwrap();
        test.store.check().and_then(|()| test.store.migrate()).map_err(|error| error.to_string())
    };
    for version in ["0.8.0", "0.10.1", "1.0", "main"] {
        assert!(checked(version).is_ok(), "{version}");
    }
    for version in ["0.6.0", "0.7.4"] {
        let error = checked(version).unwrap_err();
        assert!(error.contains(version) && error.contains("ALTER EXTENSION vector UPDATE"), "{error}");
    }
}

#[test]
fn without_pgvector_the_error_says_who_can_create_it() {
    let Some(server) = PrivateServer::start() else {
        println!("skipped: no programs of PostgreSQL");
        return;
    };
    let mut admin = postgres::Client::connect(&server.postgres().url("postgres"), postgres::NoTls).unwrap();
    admin.batch_execute("CREATE ROLE starter LOGIN CREATEROLE").unwrap();
    admin.batch_execute("CREATE DATABASE d1 OWNER starter").unwrap();
    let url = with_user_and_database(&server.postgres().url("d1"), "starter", "d1");
    let error = TeamStore::connect_with(&url, 1).unwrap().migrate().unwrap_err();
    assert!(matches!(error, Error::NoVector(_)), "{error:?}");
    assert!(error.to_string().contains("CREATE EXTENSION vector"), "{error}");
}

#[test]
fn an_error_of_a_connection_has_no_password() {
    let Some(database) = TestDatabase::new() else { return };
    let url = database.url.replace("://nugget_test@", "://nobody-such:s3cret@");
    let error = TeamStore::connect(&url).unwrap_err();
    let text = format!("{error} {error:?} {:?}", std::error::Error::source(&error));
    assert!(!text.contains("s3cret"), "{text}");
    let store = format!(
        "{:?}",
        TeamStore::connect(&database.url.replace("://nugget_test@", "://nugget_test:s3cret@")).unwrap()
    );
    assert!(!store.contains("s3cret"), "{store}");
}

#[test]
fn a_broken_statement_leaves_the_connection_usable() {
    let Some(test) = TeamUnderTest::with_connections(1) else { return };
    let brain = test.store.brain(test.brain);
    assert!(brain.write(|transaction| transaction.execute("SELECT 1/0", &[])).is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = brain.write(|_| -> team::Result<()> { panic!("in a transaction") });
    }));
    assert!(panicked.is_err());
    let state: String = brain
        .read(|transaction| Ok(transaction.query_one("SELECT current_user::text", &[])?.get(0)))
        .unwrap();
    assert_eq!(state, "nugget_server");
}

#[test]
fn a_lost_connection_is_replaced_and_the_transaction_run_again() {
    let Some(test) = TeamUnderTest::with_connections(4) else { return };
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 0..5 {
        // All connections of the pool exist and are idle, then end.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| test.store.check().unwrap());
            }
        });
        test.database.superuser().batch_execute(kill).unwrap();
        let mut runs = 0;
        let brain = test.store.brain(test.brain);
        brain
            .write(|transaction| {
                runs += 1;
                transaction.execute(
                    "INSERT INTO pauses VALUES ($1, 'git', now(), now(), 1, 'x') ON CONFLICT DO NOTHING",
                    &[&test.brain.0],
                )
            })
            .unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert!(runs >= 1);
    }
    // Lost within the transaction, before its commit.
    let mut runs = 0;
    let mut superuser = test.database.superuser();
    test.store
        .brain(test.brain)
        .write(|transaction| {
            runs += 1;
            if runs == 1 {
                let pid: i32 = transaction.query_one("SELECT pg_backend_pid()", &[])?.get(0);
                superuser.execute("SELECT pg_terminate_backend($1, 5000)", &[&pid])?;
            }
            transaction.execute("UPDATE pauses SET times = times + 1", &[])
        })
        .unwrap();
    assert_eq!(runs, 2);
    let times: i32 = superuser.query_one("SELECT times FROM pauses", &[]).unwrap().get(0);
    assert_eq!(times, 2);
}
