//! The client. Each call that creates something looks first, or afterwards, whether it exists.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Error;
use crate::http::{ApiRequest, ApiResponse, HttpClient, encoded};
use crate::token::Token;
use crate::types::{NewPull, Opened, Pull, PullState, Repository, Slug, Viewer};

/// GitHub's largest page size.
const PAGE: usize = 100;
/// The limit of a list: 1,000 comments, labels or pull requests.
const PAGES_MAX: usize = 10;

/// A client for one GitHub host with one token. Clones share the connection and the count of requests.
#[derive(Clone, Debug)]
pub struct GitHub {
    http: Arc<HttpClient>,
    cache: Arc<Mutex<Cache>>,
}

/// Answers that are cached.
#[derive(Debug, Default)]
struct Cache {
    /// The current names of renamed and transferred repositories.
    names: HashMap<Slug, Slug>,
    labels: HashMap<Slug, Vec<String>>,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
struct Comment {
    body: Option<String>,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

impl GitHub {
    /// Creates a client for the API at this address: `https://api.github.com`, `https://HOST/api/v3`, or http to
    /// this machine. `deadline` is the time limit of one call, including its redirects.
    ///
    /// # Errors
    /// [`Error::InvalidApi`] when no token may be sent to the address; [`Error::Client`].
    pub fn new(api: &str, deadline: Duration, token: &Token) -> Result<Self, Error> {
        Ok(Self { http: Arc::new(HttpClient::new(api, deadline, token)?), cache: Arc::default() })
    }

    /// The owner of the token.
    ///
    /// # Errors
    /// As for every call: see [`Error`]. [`Error::Forbidden`] for the token of a GitHub Actions run, which has no
    /// owner.
    pub async fn whoami(&self) -> Result<Viewer, Error> {
        let what = "the token's owner";
        let path = "/user".to_owned();
        let request = ApiRequest { method: Method::GET, path, body: None, slug: None, what: what.to_owned() };
        let response = self.http.send_checked(&request).await?;
        let User { login } = response.json(what)?;
        let scopes = response.header("x-oauth-scopes").map(|scopes| {
            scopes.split(',').map(str::trim).filter(|scope| !scope.is_empty()).map(str::to_owned).collect()
        });
        Ok(Viewer { login, scopes })
    }

    /// The repository, under its current name if it was renamed.
    ///
    /// # Errors
    /// As for every call: see [`Error`]. [`Error::NotFound`] also when the token may not see it.
    pub async fn repository(&self, slug: &Slug) -> Result<Repository, Error> {
        let what = format!("repository {slug}");
        let repository: Repository = self.send(Method::GET, slug, "", None, &what).await?.json(&what)?;
        if repository.slug == *slug {
            self.cache().names.remove(slug);
        } else {
            self.cache().names.insert(slug.clone(), repository.slug.clone());
        }
        Ok(repository)
    }

    /// Creates an empty repository for the token's owner or an organisation, or finds an existing one of any
    /// visibility.
    ///
    /// # Errors
    /// As for every call: see [`Error`]. [`Error::Forbidden`] and [`Error::NotFound`] when the token may not
    /// create one there.
    pub async fn create_repository(&self, slug: &Slug, private: bool) -> Result<Repository, Error> {
        match self.repository(slug).await {
            Err(Error::NotFound { .. }) => {}
            result => return result,
        }
        let viewer = self.whoami().await?;
        let is_own = viewer.login.eq_ignore_ascii_case(&slug.owner);
        let path =
            if is_own { "/user/repos".to_owned() } else { format!("/orgs/{}/repos", encoded(&slug.owner)) };
        let description = "A brain: reviewed knowledge from Claude Code sessions, kept by nugget";
        let body = json!({
            "name": slug.name,
            "description": description,
            "private": private,
            // The brain has its own first commit.
            "auto_init": false,
            "has_wiki": false,
            "has_projects": false,
        });
        let what = format!("a new repository {slug}");
        let request = ApiRequest { method: Method::POST, path, body: Some(body), slug: None, what };
        match self.http.send_checked(&request).await {
            Ok(response) => response.json(&request.what),
            // Another client created it first, or this one did and the response was lost.
            Err(error) => self.repository(slug).await.map_err(|_| error),
        }
    }

    /// The newest pull request from a branch of the repository itself, in any state.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn find_pull(&self, slug: &Slug, branch: &str) -> Result<Option<Pull>, Error> {
        let what = format!("the pull requests of {branch}");
        // With an outdated owner GitHub finds nothing, so the current one is needed.
        let mut current = self.current_name(slug);
        let mut response = self.find_pulls(slug, &current, branch, &what).await?;
        if response.was_redirected {
            let name = self.repository(slug).await?.slug;
            if name != current {
                current = name;
                response = self.find_pulls(slug, &current, branch, &what).await?;
            }
        }
        let pulls: Vec<Pull> = response.json(&what)?;
        // GitHub ignores a filter that it does not understand, so each result is checked.
        let is_current = |name: &Slug| name.to_string().eq_ignore_ascii_case(&current.to_string());
        let is_ours = |pull: &Pull| pull.branch == branch && pull.from.as_ref().is_none_or(is_current);
        Ok(pulls.into_iter().filter(is_ours).max_by_key(|pull| pull.number))
    }

    async fn find_pulls(
        &self,
        slug: &Slug,
        current: &Slug,
        branch: &str,
        what: &str,
    ) -> Result<ApiResponse, Error> {
        let head = encoded(&format!("{}:{branch}", current.owner));
        let query = format!("/pulls?head={head}&state=all&sort=created&direction=desc&per_page={PAGE}");
        self.send(Method::GET, slug, &query, None, what).await
    }

    /// The open pull request of a branch, or one of its last commit that was merged or closed meanwhile.
    async fn find_pull_of(&self, slug: &Slug, new: &NewPull) -> Result<Option<Pull>, Error> {
        let found = self.find_pull(slug, &new.branch).await?;
        // One that was decided before is of an earlier branch of this name.
        Ok(found.filter(|pull| pull.state == PullState::Open || pull.commit == new.commit))
    }

    /// The pull request of a branch: an existing one that is open, or that was merged or closed with the branch's last
    /// commit, else a new one. It is opened against the repository itself, even if that is a fork.
    ///
    /// # Errors
    /// As for every call: see [`Error`]. [`Error::NothingNew`], [`Error::BaseMissing`], [`Error::BranchMissing`]
    /// and [`Error::NotShownYet`].
    pub async fn open_pull(&self, slug: &Slug, new: &NewPull) -> Result<Opened, Error> {
        if let Some(pull) = self.find_pull_of(slug, new).await? {
            return Ok(Opened { pull, created: false });
        }
        let current = self.current_name(slug);
        let body = json!({ "title": new.title, "body": new.body, "head": new.branch, "base": new.base });
        let what = format!("a pull request for {}", new.branch);
        let path = repository_path(&current, "/pulls");
        let request = ApiRequest { method: Method::POST, path, body: Some(body), slug: Some(slug), what };
        let error = match self.http.send(&request).await {
            Ok(response) if response.is_success() => match response.json(&request.what) {
                Ok(pull) => return Ok(Opened { pull, created: true }),
                Err(error) => error,
            },
            Ok(response) => {
                self.http.refusal(&response).into_pull_error(self.http.host(), slug, &new.branch, &new.base)
            }
            Err(error) => error,
        };
        // It may have been created although the response was lost: there was none a moment ago. Or another machine
        // or a person created it first.
        let created = error.may_have_succeeded();
        if !created && !matches!(error, Error::NotShownYet { .. }) {
            return Err(error);
        }
        match self.find_pull_of(slug, new).await {
            Ok(Some(pull)) => Ok(Opened { pull, created }),
            _ => Err(error),
        }
    }

    /// The pull request with this number.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn pull(&self, slug: &Slug, number: u64) -> Result<Pull, Error> {
        self.pull_request(Method::GET, slug, number, None).await
    }

    /// The open pull requests from branches with this prefix, oldest first. If the repository has more than 1,000
    /// open ones, only the newest 1,000 are searched.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn open_pulls(&self, slug: &Slug, prefix: &str) -> Result<Vec<Pull>, Error> {
        let what = format!("the open pull requests of {slug}");
        let path = "/pulls?state=open&sort=created&direction=desc";
        let mut pulls: Vec<Pull> = self.pages(path, slug, &what, |_| false).await?;
        pulls.retain(|pull| pull.branch.starts_with(prefix));
        pulls.sort_by_key(|pull| pull.number);
        Ok(pulls)
    }

    /// Changes the text of a pull request.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn edit_pull(&self, slug: &Slug, number: u64, body: &str) -> Result<Pull, Error> {
        self.pull_request(Method::PATCH, slug, number, Some(json!({ "body": body }))).await
    }

    /// Closes a pull request. A closed or merged one stays as it is.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn close_pull(&self, slug: &Slug, number: u64) -> Result<(), Error> {
        self.pull_request(Method::PATCH, slug, number, Some(json!({ "state": "closed" }))).await.map(drop)
    }

    async fn pull_request(
        &self,
        method: Method,
        slug: &Slug,
        number: u64,
        body: Option<Value>,
    ) -> Result<Pull, Error> {
        let what = format!("pull request {slug}#{number}");
        self.send(method, slug, &format!("/pulls/{number}"), body, &what).await?.json(&what)
    }

    /// Adds a comment, unless one with this marker exists; returns whether it was added. The marker is part of the
    /// comment but not displayed. It consists of letters, digits and `-_.:/`.
    ///
    /// # Errors
    /// As for every call: see [`Error`]. [`Error::InvalidRequest`] for another marker.
    pub async fn comment_once(
        &self,
        slug: &Slug,
        number: u64,
        marker: &str,
        text: &str,
    ) -> Result<bool, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        if marker.is_empty() || !marker.bytes().all(is_plain) {
            let reason = "its marker has other characters than letters, digits and `-_.:/`";
            return Err(Error::InvalidRequest { what: "a comment", reason });
        }
        let marker = format!("<!-- nugget: {marker} -->");
        if self.has_comment(slug, number, &marker).await? {
            return Ok(false);
        }
        let body = json!({ "body": format!("{text}\n\n{marker}") });
        let (path, what) =
            (format!("/issues/{number}/comments"), format!("a comment on pull request {slug}#{number}"));
        match self.send(Method::POST, slug, &path, Some(body), &what).await {
            Err(error) if error.may_have_succeeded() => match self.has_comment(slug, number, &marker).await {
                Ok(true) => Ok(true),
                _ => Err(error),
            },
            result => result.map(|_| true),
        }
    }

    async fn has_comment(&self, slug: &Slug, number: u64, marker: &str) -> Result<bool, Error> {
        let what = format!("the comments on pull request {slug}#{number}");
        let path = format!("/issues/{number}/comments?");
        let is_match = |comment: &Comment| comment.body.as_deref().is_some_and(|body| body.contains(marker));
        let comments = self.pages(&path, slug, &what, is_match).await?;
        // No comment is added to a thread that is longer than the page limit.
        Ok(comments.iter().any(is_match) || comments.len() >= PAGE * PAGES_MAX)
    }

    /// Adds those labels to a pull request that the repository has. GitHub would create the others.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn label(&self, slug: &Slug, number: u64, labels: &[&str]) -> Result<(), Error> {
        let current = self.current_name(slug);
        let known = self.cache().labels.get(&current).cloned();
        let there = match known {
            Some(there) => there,
            None => {
                let what = format!("the labels of {slug}");
                let there: Vec<Label> = self.pages("/labels?", slug, &what, |_| false).await?;
                let there: Vec<String> = there.into_iter().map(|label| label.name).collect();
                self.cache().labels.insert(current.clone(), there.clone());
                there
            }
        };
        let wanted: Vec<&String> = there
            .iter()
            .filter(|there| labels.iter().any(|label| label.eq_ignore_ascii_case(there)))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let body = json!({ "labels": wanted });
        let (path, what) =
            (format!("/issues/{number}/labels"), format!("labels for pull request {slug}#{number}"));
        self.send(Method::POST, slug, &path, Some(body), &what).await.map(drop)
    }

    /// Asks users and teams of the repository's owner to review a pull request. Those whom GitHub refuses, such as the
    /// author or somebody without access, are left out.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn request_reviewers(
        &self,
        slug: &Slug,
        number: u64,
        users: &[String],
        teams: &[String],
    ) -> Result<(), Error> {
        if users.is_empty() && teams.is_empty() {
            return Ok(());
        }
        let what = format!("the reviewers of pull request {slug}#{number}");
        let path = format!("/pulls/{number}/requested_reviewers");
        let ask = async |users: &[String], teams: &[String]| {
            let body = json!({ "reviewers": users, "team_reviewers": teams });
            match self.send(Method::POST, slug, &path, Some(body), &what).await {
                Ok(_) => Ok(true),
                Err(Error::Refused { status: 422, .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        if ask(users, teams).await? {
            return Ok(());
        }
        // One whom GitHub refuses keeps it from asking any.
        for user in users {
            ask(std::slice::from_ref(user), &[]).await?;
        }
        for team in teams {
            ask(&[], std::slice::from_ref(team)).await?;
        }
        Ok(())
    }

    /// How many requests this client and its clones have sent.
    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// By how many seconds the server's clock was ahead of ours at its last response; `None` before the first.
    pub fn skew_seconds(&self) -> Option<i64> {
        self.http.skew_seconds()
    }

    /// Sends a request to the address of a repository, under its current name.
    async fn send(
        &self,
        method: Method,
        slug: &Slug,
        rest: &str,
        body: Option<Value>,
        what: &str,
    ) -> Result<ApiResponse, Error> {
        let path = repository_path(&self.current_name(slug), rest);
        let request = ApiRequest { method, path, body, slug: Some(slug), what: what.to_owned() };
        self.http.send_checked(&request).await
    }

    /// Reads a list to its end, to the limit of pages, or to the first page with a match. `path` must have a
    /// query.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        slug: &Slug,
        what: &str,
        is_match: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for page in 1..=PAGES_MAX {
            let joint = if path.ends_with('?') { "" } else { "&" };
            let path = format!("{path}{joint}per_page={PAGE}&page={page}");
            let items: Vec<T> = self.send(Method::GET, slug, &path, None, what).await?.json(what)?;
            let is_last = items.len() < PAGE || items.iter().any(&is_match);
            all.extend(items);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// The repository's current name, as far as it is known.
    fn current_name(&self, slug: &Slug) -> Slug {
        self.cache().names.get(slug).unwrap_or(slug).clone()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn repository_path(slug: &Slug, rest: &str) -> String {
    format!("/repos/{}/{}{rest}", encoded(&slug.owner), encoded(&slug.name))
}
