//! The laptops' client against the server.

use std::time::Duration;

use serde_json::{Map, Value, json};
use team_client::{HandOverError, ShownUnit, TeamClient};

use crate::support::*;

const DEADLINE: Duration = Duration::from_secs(10);

fn client(server: &TestServer, token: &str) -> TeamClient {
    TeamClient::new(&server.url(""), token).unwrap()
}

fn arguments(text: &str) -> Map<String, Value> {
    json!({ "task_description": text, "depth": "deep" }).as_object().cloned().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_hands_over_and_asks() {
    let server = TestServer::start().await;
    let client = client(&server, ALPHA);
    let whoami = client.whoami().await.unwrap();
    assert_eq!((whoami.subject.as_str(), &whoami.brains[..]), ("alph", &["alpha".to_owned()][..]));
    let remotes: Vec<_> =
        whoami.repositories.iter().map(|it| (it.brain.as_str(), it.remote.as_str())).collect();
    assert_eq!(remotes, [("alpha", "https://git.example.com/alpha")]);
    let first = client.hand_over(&capture("c1")).await.unwrap();
    let again = client.hand_over(&capture("c1")).await.unwrap();
    assert!(first.new && !again.new && first.id == again.id);
    let answer = client.ask("alpha", &arguments("who?"), DEADLINE).await.unwrap();
    assert_eq!(answer.text, format!("{ALPHA_MARK}: who?"));
    assert_eq!(answer.shown, [ShownUnit { id: "alpha-unit".to_owned(), tokens: 12 }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_of_16_mib_is_handed_over() {
    let server = TestServer::start().await;
    // As base64, 11 MiB become 15.
    let large =
        team_client::Capture::new("c2", jiff::Timestamp::UNIX_EPOCH, vec!["l".into()], &vec![0xff; 11 << 20]);
    assert!(client(&server, ALPHA).hand_over(&large).await.unwrap().new);
    let too_large =
        team_client::Capture::new("c3", jiff::Timestamp::UNIX_EPOCH, vec!["l".into()], &vec![0xff; 13 << 20]);
    let refused = client(&server, ALPHA).hand_over(&too_large).await.unwrap_err();
    assert_eq!(refused, HandOverError::TooLarge { why: "the body is longer than 16384 KiB".to_owned() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_is_blocked_and_not_retried() {
    let server = TestServer::start().await;
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let large = team_client::Capture::new("c3", epoch, vec!["l".into()], &vec![0xff; 11 << 20]);
    for _ in 0..10 {
        let refused = client(&server, "ngt_unknown").hand_over(&large).await.unwrap_err();
        assert!(matches!(refused, HandOverError::Blocked { .. }), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_says_what_the_queue_does_next() {
    let mut settings = settings();
    settings.limits.captures = server::Rate { per_minute: 2, burst: 3 };
    let server = TestServer::with(settings).await;
    let mut foreign = capture("c4");
    foreign.brain = Some("beta".to_owned());
    let blocked = client(&server, ALPHA).hand_over(&foreign).await.unwrap_err();
    let HandOverError::Blocked { why } = blocked else { panic!("{blocked:?}") };
    assert!(why.starts_with("there is no such brain for this token; ask an administrator"), "{why}");
    let unknown = client(&server, "ngt_unknown").hand_over(&capture("c4")).await.unwrap_err();
    assert!(matches!(unknown, HandOverError::Blocked { .. }), "{unknown:?}");
    let mut conflict = capture("c4");
    conflict.project = Some("conflict".to_owned());
    let refused = client(&server, ALPHA).hand_over(&conflict).await.unwrap_err();
    assert_eq!(refused, HandOverError::Refused { why: "the session is of another project".to_owned() });
    client(&server, ALPHA).hand_over(&capture("c4")).await.unwrap();
    let limited = client(&server, ALPHA).hand_over(&capture("c5")).await.unwrap_err();
    assert!(
        matches!(&limited, HandOverError::Retry { after, .. } if (25..=30).contains(&after.as_secs())),
        "{limited:?}"
    );
    let address = server.url("");
    server.ended().await;
    let gone = TeamClient::new(&address, ALPHA).unwrap().hand_over(&capture("c6")).await.unwrap_err();
    assert!(
        matches!(&gone, HandOverError::Retry { why, .. } if why.starts_with("the team server cannot be reached: Connection refused"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_an_answer_says_why() {
    let server = TestServer::start().await;
    let ask = async |brain: &str, text: &str, deadline| {
        client(&server, ALPHA).ask(brain, &arguments(text), deadline).await.unwrap_err()
    };
    let empty = ask("alpha", " ", DEADLINE).await;
    let why = "`task_description` is empty: say what you are about to do".to_owned();
    assert_eq!(empty, HandOverError::Refused { why });
    assert!(matches!(ask("beta", "x", DEADLINE).await, HandOverError::Blocked { .. }));
    assert!(matches!(ask("../v1/whoami", "x", DEADLINE).await, HandOverError::Blocked { .. }));
    let HandOverError::Retry { why, .. } = ask("alpha", "not ready", DEADLINE).await else { panic!() };
    assert_eq!(why, "the brain is being indexed");
    let HandOverError::NotTaken { why } = ask("alpha", "wait", Duration::from_millis(200)).await else {
        panic!()
    };
    assert_eq!(why, "the team server did not answer in time");
    server.memory.open_gate();
}
