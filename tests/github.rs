//! GitHub's API as nugget uses it, against a local GitHub that is as strict and as unreliable as the
//! real one.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use github::{Error, GitHub, NewPull, PullState, Retry, Slug, Token};
use serde_json::json;

use crate::support::github_api::{Failure, GithubApi, LOGIN, Merge, TOKEN};
use crate::support::{Sandbox, git, try_git};

const SLUG: &str = "me/brain";
const BRANCH: &str = "nugget/session-20261120-1412-9f8b";
/// Long, for a machine that builds beside the tests; only a server that hangs makes a test wait for it.
const DEADLINE: Duration = Duration::from_secs(60);

fn slug() -> Slug {
    SLUG.parse().unwrap()
}

fn client_for(api: &GithubApi, deadline: Duration) -> GitHub {
    let token = Token::new(TOKEN, "GITHUB_TOKEN").unwrap();
    GitHub::new(&api.api_url(), deadline, &token).unwrap()
}

fn start_with_client() -> (GithubApi, GitHub) {
    let api = start_with_branch();
    let client = client_for(&api, DEADLINE);
    (api, client)
}

/// Starts a GitHub with a repository that has a branch to open a pull request from.
fn start_with_branch() -> GithubApi {
    let api = GithubApi::start();
    api.add_repository(SLUG);
    api.commit(SLUG, "main", "README.md", "a brain\n");
    api.commit(SLUG, BRANCH, "domains/a.md", "a unit\n");
    api
}

fn new_pull(api: &GithubApi) -> NewPull {
    NewPull {
        branch: BRANCH.to_owned(),
        commit: api.with_repository(SLUG, |repository| repository.tip(BRANCH)).unwrap_or_default(),
        base: "main".to_owned(),
        title: "Knowledge from session 2026-11-20 14:12".to_owned(),
        body: "one unit".to_owned(),
    }
}

fn count_requests(api: &GithubApi, prefix: &str) -> usize {
    api.log().iter().filter(|line| line.starts_with(prefix)).count()
}

#[tokio::test]
async fn repeated_requests_open_one_pull_request() {
    let (api, client) = start_with_client();
    assert_eq!(client.find_pull(&slug(), BRANCH).await.unwrap(), None);
    let first = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert!(first.created);
    assert_eq!(first.pull.state, PullState::Open);
    assert_eq!(first.pull.branch, BRANCH);
    assert_eq!(first.pull.url, format!("{}/me/brain/pull/1", api.url));
    let before = client.requests();
    let second = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert!(!second.created);
    assert_eq!(second.pull, first.pull);
    assert_eq!(client.requests() - before, 1);
    // A pull request that a person has closed counts too: closing it was the answer.
    api.close(SLUG, 1);
    let third = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert_eq!((third.created, third.pull.state), (false, PullState::Closed));
    assert_eq!(api.pulls(SLUG).len(), 1);
    assert_eq!(count_requests(&api, "POST"), 1);
}

#[tokio::test]
async fn a_decided_pull_request_of_an_earlier_branch_of_the_name_does_not_count() {
    let (api, client) = start_with_client();
    client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    api.merge(SLUG, 1, Merge::Squash).unwrap();
    api.commit(SLUG, BRANCH, "domains/b.md", "another unit\n");
    let second = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert_eq!((second.created, second.pull.number, second.pull.state), (true, 2, PullState::Open));
}

#[tokio::test]
async fn two_machines_at_once_open_one_pull_request() {
    let (api, client) = start_with_client();
    let other = client_for(&api, DEADLINE);
    let (slug, pull) = (slug(), new_pull(&api));
    let (a, b) = tokio::join!(client.open_pull(&slug, &pull), other.open_pull(&slug, &pull));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.pull.number, b.pull.number);
    assert_ne!(a.created, b.created);
    assert_eq!(api.pulls(SLUG).len(), 1);
}

#[tokio::test]
async fn a_request_with_a_lost_answer_is_not_repeated() {
    let (api, client) = start_with_client();
    api.fail_next(1, "POST /api/v3/repos/me/brain/pulls", Failure::CutAfter);
    let opened = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert!(opened.created);
    assert_eq!(api.pulls(SLUG).len(), 1);
    assert_eq!(count_requests(&api, "POST /repos/me/brain/pulls"), 1);

    api.fail_next(1, "POST /api/v3/repos/me/brain/issues/1/comments", Failure::CutAfter);
    assert!(client.comment_once(&slug(), 1, "rebuilt", "hello").await.unwrap());
    assert_eq!(api.pulls(SLUG)[0].comments.len(), 1);

    api.fail_next(1, "POST /api/v3/user/repos", Failure::CutAfter);
    let made = client.create_repository(&"me/new".parse().unwrap(), true).await.unwrap();
    assert!(made.private);
    assert_eq!(count_requests(&api, "POST /user/repos"), 1);
}

#[tokio::test]
async fn the_client_never_retries_on_its_own() {
    let (api, client) = start_with_client();
    for what in [Failure::Status(502, "Bad Gateway", vec![]), Failure::CutBefore, Failure::Garbage] {
        api.fail_next(1, "POST /api/v3/repos/me/brain/pulls", what.clone());
        let before = count_requests(&api, "POST");
        let error = client.open_pull(&slug(), &new_pull(&api)).await.unwrap_err();
        assert_eq!(error.retry(), Retry::Later, "{what:?}: {error}");
        assert_eq!(count_requests(&api, "POST") - before, 1, "{what:?}");
        assert_eq!(api.pulls(SLUG).len(), 0);
    }
}

#[tokio::test]
async fn each_failure_has_its_kind_hint_and_retry_time() {
    let (api, client) = start_with_client();
    let after = |seconds: &str| vec![("retry-after", seconds.to_owned())];
    let left = |left: &str, at: i64| {
        vec![("x-ratelimit-remaining", left.to_owned()), ("x-ratelimit-reset", at.to_string())]
    };
    let far = jiff::Timestamp::now().as_second() + 86_400;
    let seconds = |seconds| Retry::After(Duration::from_secs(seconds));
    let sso = vec![("x-github-sso", "required; url=https://github.com/orgs/o/sso".to_owned())];
    let cases = [
        (Failure::Status(401, "Bad credentials", vec![]), Retry::Never, "does not accept the token"),
        (
            Failure::Status(403, "Resource not accessible by integration", left("4999", far)),
            Retry::Never,
            "does not have permission",
        ),
        (
            Failure::Status(403, "Resource protected by organization SAML enforcement.", sso),
            Retry::Never,
            "single sign-on",
        ),
        (
            Failure::Status(403, "You have exceeded a secondary rate limit.", after("17")),
            seconds(17),
            "asks to wait 17 seconds",
        ),
        (
            Failure::Status(403, "You have exceeded a secondary rate limit.", vec![]),
            seconds(60),
            "asks to wait 60 seconds",
        ),
        (Failure::Status(429, "Too many requests", vec![]), seconds(60), "asks to wait 60 seconds"),
        // No server can postpone a retry for a whole day.
        (
            Failure::Status(403, "API rate limit exceeded", left("0", far)),
            seconds(3600),
            "rate limit is exhausted",
        ),
        (
            Failure::Status(403, "API rate limit exceeded", after("86400")),
            seconds(3600),
            "asks to wait 3600 seconds",
        ),
        (
            Failure::Status(403, "API rate limit exceeded", left("0", 0)),
            seconds(1),
            "rate limit is exhausted",
        ),
        (
            Failure::Status(403, "Repository was archived so is read-only.", vec![]),
            Retry::Never,
            "me/brain is archived",
        ),
        (Failure::Status(404, "Not Found", vec![]), Retry::Never, "does not find pull request me/brain#1"),
        (Failure::Status(410, "Pull requests are disabled", vec![]), Retry::Never, "is gone (410)"),
        (Failure::Status(451, "Repository access blocked", vec![]), Retry::Never, "is gone (451)"),
        (
            Failure::Invalid(json!([{ "field": "title", "code": "missing_field" }])),
            Retry::Never,
            "title missing_field",
        ),
        (Failure::Invalid(json!(["a text", 7, null, { "message": null }])), Retry::Never, "a text"),
        (Failure::Status(500, "Server Error", vec![]), Retry::Later, "is unavailable (500)"),
        (Failure::Status(503, "Service unavailable", vec![]), Retry::Later, "is unavailable (503)"),
        (Failure::Status(503, "Service unavailable", after("30")), seconds(30), "asks to wait 30 seconds"),
        (Failure::Status(418, "I'm a teapot", vec![]), Retry::Never, "refuses pull request me/brain#1 (418)"),
        (Failure::Garbage, Retry::Later, "not as documented"),
        (Failure::CutBefore, Retry::Later, "was lost before the response"),
    ];
    for (what, retry, words) in cases {
        api.fail_next(1, "GET /api/v3/repos/me/brain/pulls/1", what.clone());
        let error = client.pull(&slug(), 1).await.unwrap_err();
        assert_eq!(error.retry(), retry, "{what:?}: {error}");
        assert!(error.to_string().contains(words), "{what:?}: {error}");
        assert!(error.hint().is_some() || matches!(error, Error::Refused { .. }), "{what:?}: {error}");
    }
}

#[tokio::test]
async fn a_hanging_or_absent_server_costs_at_most_the_deadline() {
    let api = start_with_branch();
    let hasty = client_for(&api, Duration::from_millis(300));
    api.fail_next(1, "GET /api/v3/user", Failure::Hang);
    let error = hasty.whoami().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Later);

    let gone = crate::support::unused_address();
    let token = Token::new(TOKEN, "GITHUB_TOKEN").unwrap();
    let offline = GitHub::new(&format!("http://{gone}"), DEADLINE, &token).unwrap();
    let error = offline.whoami().await.unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Later);
    assert_eq!(offline.requests(), 1);
}

#[tokio::test]
async fn the_rate_limit_wait_uses_the_servers_clock() {
    let (api, client) = start_with_client();
    // A local clock that is an hour behind must not make the wait an hour longer.
    api.set_clock_skew(3600);
    api.set_rate_limit(1, Duration::from_secs(600));
    client.repository(&slug()).await.unwrap();
    let error = client.repository(&slug()).await.unwrap_err();
    let Retry::After(wait) = error.retry() else { panic!("{error}") };
    assert!((500..=602).contains(&wait.as_secs()), "{wait:?}");
    let skew = client.skew_seconds().unwrap();
    assert!((3500..=3601).contains(&skew), "{skew}");
}

#[tokio::test]
async fn an_impossible_pull_request_says_why() {
    let (api, client) = start_with_client();
    api.rename_default_branch(SLUG, "trunk");
    let error = client.open_pull(&slug(), &new_pull(&api)).await.unwrap_err();
    assert!(matches!(&error, Error::BaseMissing { base } if base == "main"), "{error}");
    assert_eq!(client.repository(&slug()).await.unwrap().default_branch, "trunk");

    let on_trunk = NewPull { base: "trunk".to_owned(), ..new_pull(&api) };
    let missing = NewPull { branch: "nugget/none".to_owned(), ..on_trunk.clone() };
    let error = client.open_pull(&slug(), &missing).await.unwrap_err();
    assert!(matches!(error, Error::BranchMissing { .. }), "{error}");

    let same = NewPull { branch: "trunk".to_owned(), ..on_trunk.clone() };
    let error = client.open_pull(&slug(), &same).await.unwrap_err();
    assert!(matches!(error, Error::NothingNew { .. }), "{error}");

    let exists = json!([{ "resource": "PullRequest", "code": "custom", "message": "A pull request already exists for me:x." }]);
    api.fail_next(1, "POST /api/v3/repos/me/brain/pulls", Failure::Invalid(exists));
    let error = client.open_pull(&slug(), &on_trunk).await.unwrap_err();
    assert!(matches!(error, Error::NotShownYet { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Later);

    api.with_repository(SLUG, |repo| repo.archived = true);
    assert!(client.repository(&slug()).await.unwrap().archived);
    let error = client.open_pull(&slug(), &on_trunk).await.unwrap_err();
    assert!(matches!(error, Error::Archived { .. }), "{error}");

    api.with_repository(SLUG, |repo| (repo.archived, repo.can_push) = (false, false));
    assert!(!client.repository(&slug()).await.unwrap().can_push);
    let error = client.open_pull(&slug(), &on_trunk).await.unwrap_err();
    assert!(matches!(error, Error::Forbidden { .. }), "{error}");

    api.delete_repository(SLUG);
    let error = client.open_pull(&slug(), &on_trunk).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn a_renamed_repository_is_followed_and_remembered() {
    let (api, client) = start_with_client();
    client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    api.rename(SLUG, "us/knowledge");
    let fresh = client_for(&api, DEADLINE);
    // With the former owner the filter would find nothing, and a second pull request would be opened.
    let opened = fresh.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert_eq!((opened.created, opened.pull.number), (false, 1));
    let before = fresh.requests();
    fresh.comment_once(&slug(), 1, "m", "hello").await.unwrap();
    assert_eq!(fresh.requests() - before, 2);
    // A redirected POST stays a POST.
    let other = client_for(&api, DEADLINE);
    other.label(&slug(), 1, &["nugget"]).await.unwrap();
    assert!(other.comment_once(&slug(), 1, "n", "hello").await.unwrap());
    assert_eq!(api.pulls("us/knowledge")[0].comments.len(), 2);
}

#[tokio::test]
async fn the_token_is_not_sent_to_a_redirects_target() {
    let (api, client) = start_with_client();
    let other = GithubApi::start();
    for to in [
        format!("{}/user", other.api_url()),
        "https://127.0.0.1/user".to_owned(),
        "//evil.example/user".to_owned(),
    ] {
        for status in [301, 302, 307, 308] {
            api.fail_next(
                1,
                "GET /api/v3/user",
                Failure::Status(status, "Moved", vec![("location", to.clone())]),
            );
            let error = client.whoami().await.unwrap_err();
            assert!(matches!(error, Error::Redirected { .. }), "{to}: {error}");
            assert_eq!(error.retry(), Retry::Never);
        }
    }
    assert_eq!(other.log(), [""; 0]);
    let to_itself = Failure::Status(302, "Found", vec![("location", format!("{}/user", api.api_url()))]);
    api.fail_next(99, "GET /api/v3/user", to_itself);
    let before = client.requests();
    let error = client.whoami().await.unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
    assert_eq!(client.requests() - before, 4);
}

#[tokio::test]
async fn a_forks_pull_request_stays_in_the_fork() {
    let (api, client) = start_with_client();
    api.add_repository("them/brain");
    api.with_repository(SLUG, |repo| repo.fork_of = Some("them/brain".to_owned()));
    let repository = client.repository(&slug()).await.unwrap();
    assert_eq!(repository.fork_of, Some("them/brain".parse().unwrap()));
    client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    assert_eq!(api.pulls(SLUG).len(), 1);
    assert_eq!(api.pulls("them/brain").len(), 0);
}

#[tokio::test]
async fn a_pull_requests_state_is_open_merged_or_closed() {
    let (api, client) = start_with_client();
    for (number, how) in [(1, Merge::Commit), (2, Merge::Squash)] {
        let branch = format!("nugget/{number}");
        api.commit(SLUG, &branch, &format!("domains/{number}.md"), "a unit\n");
        let pull = NewPull { branch: branch.clone(), ..new_pull(&api) };
        assert_eq!(client.open_pull(&slug(), &pull).await.unwrap().pull.number, number);
        let open = client.open_pulls(&slug(), "nugget/").await.unwrap();
        assert_eq!(open.iter().map(|pull| pull.number).collect::<Vec<_>>(), [number]);
        let commit = api.merge(SLUG, number, how).unwrap();
        assert_eq!(api.with_repository(SLUG, |repo| repo.tip("main")), Some(commit));
        assert_eq!(client.pull(&slug(), number).await.unwrap().state, PullState::Merged);
        let listed = client.find_pull(&slug(), &branch).await.unwrap().unwrap();
        assert_eq!(listed.state, PullState::Merged);
    }
    let opened = client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    let edited = client.edit_pull(&slug(), 3, "another text").await.unwrap();
    assert_eq!((edited.number, edited.body.as_str()), (opened.pull.number, "another text"));
    let row = &api.pulls(SLUG)[2];
    assert_eq!((row.title.as_str(), row.body.as_str()), (new_pull(&api).title.as_str(), "another text"));
    client.close_pull(&slug(), 3).await.unwrap();
    client.close_pull(&slug(), 3).await.unwrap();
    assert_eq!(client.pull(&slug(), 3).await.unwrap().state, PullState::Closed);
    assert!(client.open_pulls(&slug(), "nugget/").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_comment_is_made_once_and_only_known_labels_are_set() {
    let (api, client) = start_with_client();
    client.open_pull(&slug(), &new_pull(&api)).await.unwrap();
    // More than one page of each.
    api.with_repository(SLUG, |repo| {
        repo.pulls[0].comments = (0..150).map(|number| format!("comment {number}")).collect();
        repo.labels = (0..150).map(|number| format!("label {number}")).chain(["Nugget".to_owned()]).collect();
    });
    assert!(client.comment_once(&slug(), 1, "rebuilt/2", "it was rebuilt").await.unwrap());
    assert!(!client.comment_once(&slug(), 1, "rebuilt/2", "it was rebuilt").await.unwrap());
    let comments = api.pulls(SLUG)[0].comments.clone();
    assert_eq!(comments.len(), 151);
    assert_eq!(comments[150], "it was rebuilt\n\n<!-- nugget: rebuilt/2 -->");
    let error = client.comment_once(&slug(), 1, "a --> b", "x").await.unwrap_err();
    assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");

    let before = client.requests();
    client.label(&slug(), 1, &["nugget", "knowledge"]).await.unwrap();
    assert_eq!(client.requests() - before, 3);
    assert_eq!(api.pulls(SLUG)[0].labels, ["Nugget"]);
    let before = client.requests();
    client.label(&slug(), 1, &["knowledge"]).await.unwrap();
    assert_eq!(client.requests(), before, "no new label, so no request");
}

#[tokio::test]
async fn a_repository_is_created_or_found() {
    let (api, client) = start_with_client();
    let own: Slug = "me/notes".parse().unwrap();
    let made = client.create_repository(&own, true).await.unwrap();
    assert!(made.private && made.slug == own && api.has_repository("me/notes"));
    let found = client.create_repository(&own, false).await.unwrap();
    assert_eq!(found, made, "an existing repository is not changed");
    api.add_repository("acme/other");
    let of_company = client.create_repository(&"acme/brain".parse().unwrap(), false).await.unwrap();
    assert!(!of_company.private);
    assert_eq!(count_requests(&api, "POST /orgs/acme/repos 201"), 1);
    let error = client.create_repository(&"nobody/brain".parse().unwrap(), true).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn errors_never_show_the_token_and_scopes_are_reported() {
    let (api, client) = start_with_client();
    let viewer = client.whoami().await.unwrap();
    assert_eq!(viewer.login, LOGIN);
    assert_eq!(viewer.scopes, Some(vec!["repo".to_owned(), "read:org".to_owned()]));
    api.set_scopes(None);
    assert_eq!(client.whoami().await.unwrap().scopes, None);
    // A server that repeats what it was sent.
    for status in [401, 403, 404, 422, 500] {
        api.fail_next(1, "GET /api/v3/user", Failure::Status(status, TOKEN, vec![]));
        let error = client.whoami().await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{status}");
    }
    assert!(!format!("{client:?}").contains(TOKEN));
}

#[test]
fn the_test_servers_git_side_requires_the_token() {
    let api = start_with_branch();
    let folder = tempfile::tempdir().unwrap();
    let clone = |url: &str, to: &str| try_git(folder.path(), &["clone", "--quiet", url, to]).status.success();
    let url = api.clone_url(SLUG);
    assert!(!clone(&url.replace("http://", "http://x:wrong@"), "refused"));
    assert!(clone(&url.replace("http://", &format!("http://x-access-token:{TOKEN}@")), "brain"));
    let brain = folder.path().join("brain");
    // Larger than what git sends in one piece.
    let noise: String =
        (0..400_000).map(|number: u32| format!("{:x}", number.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(brain.join("large.md"), noise).unwrap();
    git(&brain, &["add", "large.md"]);
    git(&brain, &["commit", "--quiet", "-m", "more"]);
    git(&brain, &["push", "--quiet", "origin", "HEAD:refs/heads/nugget/pushed"]);
    let pushed = git(&brain, &["rev-parse", "HEAD"]);
    assert_eq!(api.with_repository(SLUG, |repo| repo.tip("nugget/pushed")).as_deref(), Some(pushed.trim()));
    api.with_repository(SLUG, |repo| repo.archived = true);
    let refused = try_git(&brain, &["push", "--quiet", "origin", "HEAD:refs/heads/nugget/late"]);
    assert!(!refused.status.success());
}

/// Runs the program with the local GitHub as its API.
fn nugget(sandbox: &Sandbox, api: &GithubApi, arguments: &[&str]) -> Output {
    let mut command = sandbox.command();
    command.args(arguments).env("NUGGET_GITHUB_API", api.api_url()).env("GITHUB_TOKEN", TOKEN);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap()
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Tells whether any file below the folder holds the token.
fn holds_token(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => holds_token(&path),
            kind if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap();
                memchr::memmem::find(&bytes, TOKEN.as_bytes()).is_some()
            }
            _ => false,
        }
    })
}

#[test]
fn a_brain_is_created_on_github_and_cloned_elsewhere() {
    let api = GithubApi::start();
    let sandbox = Sandbox::new();
    let brain = sandbox.brain();
    let init = ["init", "--path", brain.to_str().unwrap(), "--github", "me/notes"];

    // Nothing is created, locally or on GitHub, before every check has passed.
    let refused = nugget(&sandbox, &api, &init);
    assert_eq!(refused.status.code(), Some(1));
    assert!(printed(&refused).contains("--create"), "{}", printed(&refused));
    assert!(!brain.exists() && !api.has_repository("me/notes"));

    let made = nugget(&sandbox, &api, &[&init[..], &["--create"]].concat());
    assert!(made.status.success(), "{}", printed(&made));
    let text =
        printed(&made).replace(&api.url, "[GITHUB]").replace(sandbox.path().to_str().unwrap(), "[HOME]");
    insta::assert_snapshot!("init_on_github", text);
    assert!(api.with_repository("me/notes", |repo| repo.private));
    assert_eq!(
        api.with_repository("me/notes", |repo| repo.tip("main")),
        Some(sandbox.git(&["rev-parse", "main"]).trim().to_owned())
    );
    assert_eq!(sandbox.git(&["remote", "get-url", "origin"]).trim(), api.clone_url("me/notes"));
    assert!(!holds_token(sandbox.path()));

    let repeated = nugget(&sandbox, &api, &[&init[..], &["--create"]].concat());
    assert!(
        repeated.status.success() && printed(&repeated).contains("nothing was changed"),
        "{}",
        printed(&repeated)
    );

    api.commit(
        "me/notes",
        "main",
        "domains/caches.md",
        "# On caches\n\nA cache without an owner is a leak.\n",
    );
    let other = Sandbox::new();
    let cloned = nugget(&other, &api, &["clone", "me/notes"]);
    assert!(cloned.status.success(), "{}", printed(&cloned));
    let text = printed(&cloned).replace(other.path().to_str().unwrap(), "[HOME]");
    insta::assert_snapshot!("clone_from_github", text);
    let found = other.json(["ask", "who should own a cache", "--no-llm", "--json"]);
    assert_eq!(found["units"][0]["id"], "caches", "{found}");
    assert!(!holds_token(other.path()));
    let taken = nugget(&other, &api, &["clone", "me/notes", "brain"]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(printed(&taken).contains("is not an empty folder"), "{}", printed(&taken));
}

#[test]
fn an_unusable_repository_is_refused_before_any_change() {
    let api = start_with_branch();
    let sandbox = Sandbox::new();
    let brain = sandbox.brain();
    let init = ["init", "--path", brain.to_str().unwrap(), "--github", SLUG];
    let refused = |words: &str, code: i32| {
        let output = nugget(&sandbox, &api, &init);
        assert_eq!(output.status.code(), Some(code), "{}", printed(&output));
        assert!(printed(&output).contains(words), "{}", printed(&output));
        assert!(!brain.exists());
    };
    api.with_repository(SLUG, |repo| repo.archived = true);
    refused("me/brain is archived", 1);
    api.with_repository(SLUG, |repo| (repo.archived, repo.can_push) = (false, false));
    refused("may not push to me/brain", 1);
    api.with_repository(SLUG, |repo| repo.can_push = true);
    let wrong = nugget(&sandbox, &api, &["init", "--github", "no slug"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", printed(&wrong));
    let without = sandbox
        .command()
        .args(init)
        .env("NUGGET_GITHUB_API", api.api_url())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(printed(&without).contains("there is no token for 127.0.0.1"), "{}", printed(&without));
    assert!(!brain.exists());

    // Both have a history of their own: nothing is forced, and the error says what to do.
    api.with_repository(SLUG, |repo| repo.private = false);
    sandbox.ok(&init[..3]);
    let unrelated = nugget(&sandbox, &api, &init);
    assert_eq!(unrelated.status.code(), Some(1));
    assert!(printed(&unrelated).contains("nothing was pushed, because"), "{}", printed(&unrelated));
    assert!(printed(&unrelated).contains("everyone can read that repository"), "{}", printed(&unrelated));
}

#[test]
fn a_remote_other_than_github_gets_the_brain() {
    let sandbox = Sandbox::new();
    let (brain, bare) = (sandbox.brain(), sandbox.path().join("bare.git"));
    git(sandbox.path(), &["init", "--quiet", "--bare", "-b", "main", "bare.git"]);
    let url = format!("file://{}", bare.display());
    let printed = sandbox.ok(["init", "--path", brain.to_str().unwrap(), "--remote", &url]);
    assert!(printed.contains("pushed `main` to `origin`"), "{printed}");
    assert_eq!(sandbox.git(&["rev-parse", "--abbrev-ref", "main@{upstream}"]), "origin/main\n");
    assert_eq!(git(&bare, &["rev-parse", "main"]), sandbox.git(&["rev-parse", "main"]));
    let printed = sandbox.ok(["init", "--path", brain.to_str().unwrap(), "--remote", &url]);
    assert!(printed.contains("nothing was changed"), "{printed}");
    // On a second machine the same command takes over what the first one has.
    let second = Sandbox::new();
    let init = ["init", "--path", second.brain().to_str().unwrap(), "--remote", &url].map(str::to_owned);
    let printed = second.ok(&init);
    assert!(
        printed.contains("cloned what the remote has to") && printed.contains("set as your brain"),
        "{printed}"
    );
    assert_eq!(
        second.git(&["rev-parse", "HEAD", "main@{upstream}"]),
        sandbox.git(&["rev-parse", "main", "main"])
    );
    assert!(second.ok(&init).contains("nothing was changed"));
    let cloned = sandbox.ok(["clone", "bare.git"]);
    assert!(
        cloned.contains("cloned the brain to") && cloned.contains("your default brain is still"),
        "{cloned}"
    );
    assert!(sandbox.path().join("bare/brain.yaml").is_file());
    // Of a repository whose HEAD names a branch that was never pushed, the one that there is.
    git(&bare, &["symbolic-ref", "HEAD", "refs/heads/master"]);
    let cloned = sandbox.ok(["clone", "bare.git", "again"]);
    assert!(cloned.contains("cloned the brain to"), "{cloned}");
    assert_eq!(git(&sandbox.path().join("again"), &["branch", "--show-current"]), "main\n");
    // A brain whose folder is gone counts as none: the clone takes its place.
    let gone = Sandbox::with_brain();
    std::fs::remove_dir_all(gone.brain()).unwrap();
    let asked = gone.run(["review"]);
    assert!(String::from_utf8_lossy(&asked.stderr).contains("`nugget clone URL"), "{asked:?}");
    gone.ok(["clone", bare.to_str().unwrap()]);
    assert!(gone.brain().join("brain.yaml").is_file());
    std::fs::remove_dir_all(gone.brain()).unwrap();
    let cloned = gone.ok(["clone", bare.to_str().unwrap(), "elsewhere"]);
    assert!(cloned.contains("set as your brain"), "{cloned}");
    assert!(gone.ok(["status"]).contains("elsewhere"));
    let missing = sandbox.run(["clone", "/nonexistent/brain.git", "third"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("\nhint: check the URL, and"), "{missing:?}");
    // A command that has ended tries nothing again.
    let mut offline = sandbox.command();
    offline.args(["clone", "me/brain", "third"]).env("GITHUB_TOKEN", TOKEN);
    let offline = offline.env("NUGGET_GITHUB_API", "http://127.0.0.1:9/api/v3").output().unwrap();
    assert!(
        String::from_utf8_lossy(&offline.stderr).contains("\nhint: run the command again"),
        "{offline:?}"
    );
    // An unreachable remote is reported and is not a failure.
    let away = sandbox.path().join("second");
    let printed =
        sandbox.ok(["init", "--path", away.to_str().unwrap(), "--remote", "http://127.0.0.1:9/me/brain.git"]);
    assert!(printed.contains("nothing was pushed: the remote cannot be reached"), "{printed}");
}
