//! Brains, tokens, the audit, and the table of servers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use team::{Error, FoundToken, NewToken, Scope, TokenHash};

use crate::support::{TeamUnderTest, accept, accept_lines, create_brain, try_accept};

#[test]
fn a_token_is_found_by_its_hash_until_it_ends() {
    let Some(test) = TeamUnderTest::new() else { return };
    let store = &test.store;
    let hour = SignedDuration::from_hours(1);
    let new = NewToken {
        subject: "alice",
        scopes: &[Scope::Read, Scope::Capture],
        brains: &[test.brain],
        expires: Timestamp::now() + hour,
    };
    let (id, text) = store.create_token(&new, "admin").unwrap();
    assert!(text.starts_with("ngt_") && text.len() == 47, "{}", text.len());
    assert_eq!(store.tokens().unwrap()[0].last_used, None);
    let Some(FoundToken::Valid(found)) = store.find_token(&TokenHash::from_token(&text)).unwrap() else {
        panic!("the token is not found")
    };
    assert!(store.tokens().unwrap()[0].last_used.is_some());
    assert_eq!((found.id, found.subject.as_str()), (id, "alice"));
    assert_eq!(found.scopes, [Scope::Read, Scope::Capture]);
    assert_eq!(found.brains, [(test.brain, "one".to_owned())]);
    assert_eq!(store.find_token(&TokenHash::from_token("ngt_other")).unwrap(), None);
    let (_, second) = store.create_token(&new, "admin").unwrap();
    assert_ne!(text, second);

    let (_, expired) =
        store.create_token(&NewToken { expires: Timestamp::now() - hour, ..new }, "admin").unwrap();
    assert_eq!(store.find_token(&TokenHash::from_token(&expired)).unwrap(), Some(FoundToken::Expired));
    assert!(store.revoke_token(id, "admin").unwrap());
    assert!(!store.revoke_token(id, "admin").unwrap());
    assert_eq!(store.find_token(&TokenHash::from_token(&text)).unwrap(), Some(FoundToken::Revoked));
    let second = store.find_token(&TokenHash::from_token(&second)).unwrap();
    assert!(matches!(second, Some(FoundToken::Valid(_))), "{second:?}");
    assert_eq!(store.tokens().unwrap().iter().filter(|token| token.revoked.is_some()).count(), 1);
    let none = store.create_token(&NewToken { brains: &[team::BrainId(999)], ..new }, "admin");
    assert!(matches!(none, Err(Error::Brain { .. })));
}

#[test]
fn no_row_of_the_database_has_a_tokens_text() {
    let Some(test) = TeamUnderTest::new() else { return };
    let expires = Timestamp::now() + SignedDuration::from_hours(1);
    let new = NewToken { subject: "alice", scopes: &[Scope::Admin], brains: &[], expires };
    let (_, text) = test.store.create_token(&new, "admin").unwrap();
    test.store.find_token(&TokenHash::from_token(&text)).unwrap();
    let mut client = test.database.superuser();
    for table in ["tokens", "audit"] {
        let rows = client.query(&format!("SELECT t::text FROM {table} t"), &[]).unwrap();
        assert!(!rows.is_empty());
        assert!(rows.iter().all(|row| !row.get::<_, String>(0).contains(&text[4..])), "{table}");
    }
}

#[test]
fn what_admins_do_is_in_the_audit() {
    let Some(test) = TeamUnderTest::new() else { return };
    let expires = Timestamp::now() + SignedDuration::from_hours(1);
    let new = NewToken { subject: "alice", scopes: &[Scope::Read], brains: &[test.brain], expires };
    let (id, _) = test.store.create_token(&new, "bob").unwrap();
    test.store.revoke_token(id, "carol").unwrap();
    test.store.record("dave", "capture.forget", Some(test.brain), Some(7)).unwrap();
    let acts: Vec<_> =
        test.store.audit(9).unwrap().into_iter().map(|act| (act.subject, act.action, act.object)).collect();
    let act = |subject: &str, action: &str, object| (subject.to_owned(), action.to_owned(), object);
    assert_eq!(
        acts,
        [
            act("dave", "capture.forget", Some(7)),
            act("carol", "token.revoke", Some(id.into())),
            act("bob", "token.create", Some(id.into())),
            act("test", "brain.create", None),
        ]
    );
}

#[test]
fn a_brain_is_found_by_its_name() {
    let Some(test) = TeamUnderTest::new() else { return };
    let store = &test.store;
    let two = create_brain(store, "two");
    assert_eq!(store.brain_by_slug("two").unwrap().unwrap().id, two);
    assert_eq!(store.brain_by_slug("three").unwrap(), None);
    let slugs: Vec<_> = store.brains().unwrap().into_iter().map(|brain| brain.slug).collect();
    assert_eq!(slugs, ["one", "two"]);
    for slug in ["two", "Two", "", "a b", "-a", &"x".repeat(64)] {
        let new = team::NewBrain { slug, remote: "r", default_branch: None, model: "m", dimensions: 1 };
        assert!(matches!(store.create_brain(&new, "test"), Err(Error::Brain { .. })), "{slug:?}");
    }
}

#[test]
fn a_brain_gets_another_address() {
    let Some(test) = TeamUnderTest::new() else { return };
    assert!(test.store.set_brain_remote(test.brain, "https://new.example.org/b", "trunk", "root").unwrap());
    let brain = test.store.brain_by_id(test.brain).unwrap().unwrap();
    assert_eq!(
        (brain.remote.as_str(), brain.default_branch.as_deref()),
        ("https://new.example.org/b", Some("trunk"))
    );
    assert!(!test.store.set_brain_remote(team::BrainId(9), "r", "b", "root").unwrap());
    assert_eq!(test.store.audit(1).unwrap()[0].action, "brain.set_remote");
}

#[test]
fn live_servers_are_those_seen_lately() {
    let Some(test) = TeamUnderTest::new() else { return };
    let other = test.store.register_server("host-2", "1.2.3").unwrap();
    test.store.heartbeat(other, true).unwrap();
    let live = || test.store.live_servers(Duration::from_secs(30)).unwrap();
    let seen: Vec<_> =
        live().into_iter().map(|server| (server.host, server.version, server.draining)).collect();
    assert_eq!(seen, [("host-1".into(), "0.0.0".into(), false), ("host-2".into(), "1.2.3".into(), true)]);
    test.database
        .superuser()
        .batch_execute("UPDATE servers SET seen = now() - interval '1 min' WHERE host = 'host-1'")
        .unwrap();
    assert_eq!(live().len(), 1);
    test.database
        .superuser()
        .batch_execute("UPDATE servers SET seen = now() - interval '8 days' WHERE host = 'host-1'")
        .unwrap();
    let third = test.store.register_server("host-3", "1.2.3").unwrap();
    let all = || test.store.live_servers(Duration::from_secs(86_400 * 30)).unwrap().len();
    assert_eq!(all(), 2);
    test.store.retire_server(third).unwrap();
    assert_eq!(all(), 1);
}

#[test]
fn one_server_syncs_a_brain_at_a_time() {
    let Some(test) = TeamUnderTest::new() else { return };
    let store = &test.store;
    let two = create_brain(store, "two");
    let [a, b] = ["a", "b"].map(|host| store.register_server(host, "0").unwrap());
    let (every, lease) = (Duration::from_secs(600), Duration::from_secs(60));
    assert_eq!(store.claim_sync(a, every, lease).unwrap(), Some(test.brain));
    assert_eq!(store.claim_sync(b, every, lease).unwrap(), Some(two));
    assert_eq!(store.claim_sync(a, every, lease).unwrap(), None);
    assert!(!store.finish_sync(a, two).unwrap(), "it is another server's");
    assert!(store.finish_sync(b, two).unwrap());
    assert_eq!(store.claim_sync(a, every, lease).unwrap(), None, "it was synced just now");
    assert_eq!(store.claim_sync(a, Duration::ZERO, lease).unwrap(), Some(two));
    // A server that died holds its brain until the end of its lease.
    test.database.superuser().batch_execute("UPDATE syncs SET lease_until = now() - interval '1 s'").unwrap();
    assert_eq!(store.claim_sync(b, every, lease).unwrap(), Some(test.brain));
    assert!(!store.finish_sync(a, test.brain).unwrap());
    // One that renews its claim keeps it, and one that ends gives it back.
    test.database.superuser().batch_execute("UPDATE syncs SET lease_until = now() - interval '1 s'").unwrap();
    store.renew_sync(a, test.brain, lease).unwrap();
    store.renew_sync(b, test.brain, lease).unwrap();
    store.renew_sync(a, two, lease).unwrap();
    assert_eq!(store.claim_sync(a, Duration::ZERO, lease).unwrap(), None);
    store.retire_server(b).unwrap();
    assert_eq!(store.claim_sync(a, Duration::ZERO, lease).unwrap(), Some(test.brain));
    assert_eq!(store.claim_sync(a, Duration::ZERO, lease).unwrap(), None, "it has both");
}

#[test]
fn a_hand_over_is_recorded_with_its_capture_once() {
    let Some(test) = TeamUnderTest::new() else { return };
    let id = accept(&test.ledger, "s", 1).id;
    assert!(!accept(&test.ledger, "s", 1).is_new);
    let acts = test.store.audit(9).unwrap();
    let acts: Vec<_> = acts.iter().map(|act| (&*act.subject, &*act.action, act.brain, act.object)).collect();
    let brain = Some(test.brain);
    assert_eq!(
        acts,
        [("alice", "capture.hand_over", brain, Some(id)), ("test", "brain.create", brain, None)]
    );
}

#[test]
fn nothing_is_kept_for_a_brain_that_was_removed() {
    let Some(test) = TeamUnderTest::new() else { return };
    let other = create_brain(&test.store, "other");
    let lines = ["a".to_owned()];
    accept_lines(&test.ledger, "s", 1, &lines);
    assert!(test.store.delete_brain(test.brain, "root").unwrap());
    // Its token was read before.
    let refused = try_accept(&test.ledger, "s", 2, &lines);
    assert!(matches!(refused, Err(Error::Brain { .. })), "{refused:?}");
    // One that was being stored at the moment of the removal.
    let insert = "INSERT INTO captures (brain, key, session_id, subject, origin)
            SELECT brain, sha256(brain::text::bytea), 's', 'a', 'hook' FROM unnest(ARRAY[1, 2]) AS brain;
        INSERT INTO jobs (brain, id, session_id, stage) SELECT brain, id, session_id, 'extraction' FROM captures";
    assert_eq!((test.brain.0, other.0), (1, 2));
    test.database.superuser().batch_execute(insert).unwrap();
    for brain in [test.brain, other] {
        test.store.delete_leftovers(brain).unwrap();
    }
    let ready = test.store.ready_brains(team::BrainId(0), 9, Timestamp::now()).unwrap();
    assert_eq!(ready.iter().map(|ready| ready.brain).collect::<Vec<_>>(), [other]);
}
