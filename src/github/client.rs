//! The client: every call that makes something finds what is there first, or afterwards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Error;
use crate::http::{Answer, Ask, HttpClient, encoded};
use crate::token::Token;
use crate::types::{NewPull, Opened, Pull, Repository, Slug, Viewer, answer};

/// The most that GitHub gives in one page.
const PAGE: usize = 100;
/// Where a long list is left: 1,000 comments, labels or pull requests.
const PAGES_MAX: usize = 10;

/// Where requests go and how long one may take.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The API's base: `https://api.github.com`, `https://HOST/api/v3`, or http to this machine.
    pub api: String,
    /// For one call of the API, its redirects included.
    pub deadline: Duration,
}

/// A client of one GitHub with one token. Clones share the connection and the count of requests.
#[derive(Clone, Debug)]
pub struct GitHub {
    http: Arc<HttpClient>,
    known: Arc<Mutex<Known>>,
}

/// What need not be asked twice.
#[derive(Debug, Default)]
struct Known {
    /// What repositories that were renamed or handed on are called today.
    names: HashMap<Slug, Slug>,
    labels: HashMap<Slug, Vec<String>>,
}

impl GitHub {
    /// Must be called within a tokio runtime, on which the client then lives.
    ///
    /// # Errors
    /// [`Error::InvalidApi`] when no token may be sent there; [`Error::Client`].
    pub fn new(settings: &Settings, token: &Token) -> Result<Self, Error> {
        Ok(Self { http: Arc::new(HttpClient::new(settings, token)?), known: Arc::default() })
    }

    /// Whose token it is. The token of a GitHub Actions run belongs to nobody: [`Error::Forbidden`].
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn whoami(&self) -> Result<Viewer, Error> {
        let what = "the token's owner";
        let answer = self.get("/user".to_owned(), None, what).await?;
        let viewer: answer::Viewer = answer.json(what)?;
        let scopes = answer.header("x-oauth-scopes").map(|scopes| {
            scopes.split(',').map(str::trim).filter(|scope| !scope.is_empty()).map(str::to_owned).collect()
        });
        Ok(Viewer { login: viewer.login, scopes, date: answer.date() })
    }

    /// # Errors
    /// [`Error::NotFound`] also when the token may not see it.
    pub async fn repository(&self, slug: &Slug) -> Result<Repository, Error> {
        let what = format!("repository {slug}");
        let answer = self.get(repository_path(&self.today(slug), ""), Some(slug), &what).await?;
        let repository = answer.json::<answer::Repository>(&what)?.read()?;
        if repository.slug != *slug {
            self.known().names.insert(slug.clone(), repository.slug.clone());
        }
        Ok(repository)
    }

    /// Makes an empty repository for the token's owner or an organisation, or finds it there, whatever
    /// its visibility.
    ///
    /// # Errors
    /// [`Error::Forbidden`] and [`Error::NotFound`] when the token may not make one there.
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
            // The brain brings its own first commit.
            "auto_init": false,
            "has_wiki": false,
            "has_projects": false,
        });
        let what = format!("a new repository {slug}");
        let ask = Ask { method: Method::POST, path, body: Some(body), slug: None, what };
        match self.http.ask(&ask).await {
            Ok(answer) if answer.is_success() => answer.json::<answer::Repository>(&ask.what)?.read(),
            // Somebody was quicker, or it was us and the answer was lost.
            Ok(answer) if answer.status() == 422 => match self.repository(slug).await {
                Err(Error::NotFound { .. }) => Err(self.read(&answer, &ask)),
                result => result,
            },
            Ok(answer) => Err(self.read(&answer, &ask)),
            Err(error) => self.repository(slug).await.map_err(|_| error),
        }
    }

    /// The newest pull request from a branch of the repository itself, in whatever state it is.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn find_pull(&self, slug: &Slug, branch: &str) -> Result<Option<Pull>, Error> {
        let what = format!("the pull requests of {branch}");
        let mut today = self.today(slug);
        loop {
            // Asked for with a wrong owner it finds nothing, so with the one of today.
            let head = format!("{}:{branch}", today.owner);
            let query = format!(
                "/pulls?head={}&state=all&sort=created&direction=desc&per_page={PAGE}",
                encoded(&head)
            );
            let answer = self.get(repository_path(&today, &query), Some(slug), &what).await?;
            if answer.was_redirected {
                let name = self.repository(slug).await?.slug;
                if name != today {
                    today = name;
                    continue;
                }
            }
            let pulls: Vec<answer::Pull> = answer.json(&what)?;
            // It ignores a filter that it does not understand, so each is looked at.
            let is_ours = |pull: &answer::Pull| {
                let repository = pull.head.repo.as_ref().map(|repo| repo.full_name.to_ascii_lowercase());
                pull.head.branch == branch
                    && repository.is_none_or(|name| name == today.to_string().to_ascii_lowercase())
            };
            let newest = pulls.into_iter().filter(is_ours).map(Pull::from).max_by_key(|pull| pull.number);
            return Ok(newest);
        }
    }

    /// The pull request of a branch: the one that is there, open or not, else a new one. It is made
    /// against the repository itself, also when that is a fork.
    ///
    /// # Errors
    /// [`Error::NothingNew`], [`Error::BaseMissing`], [`Error::BranchMissing`]; [`Error::NotShownYet`].
    pub async fn open_pull(&self, slug: &Slug, new: &NewPull) -> Result<Opened, Error> {
        if let Some(pull) = self.find_pull(slug, &new.branch).await? {
            return Ok(Opened { pull, created: false });
        }
        let today = self.today(slug);
        let body = json!({ "title": new.title, "body": new.body, "head": new.branch, "base": new.base });
        let what = format!("a pull request for {}", new.branch);
        let path = repository_path(&today, "/pulls");
        let ask = Ask { method: Method::POST, path, body: Some(body), slug: Some(slug), what };
        let answer = match self.http.ask(&ask).await {
            Ok(answer) if answer.is_success() => answer.json::<answer::Pull>(&ask.what).map(Some),
            Ok(answer) => {
                let refusal = self.http.refusal(&answer);
                refusal.read_of_pull(self.http.host(), slug, &new.branch, &new.base).map_or(Ok(None), Err)
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(pull)) => Ok(Opened { pull: pull.into(), created: true }),
            // Somebody was quicker: another machine, or a person.
            Ok(None) => match self.find_pull(slug, &new.branch).await? {
                Some(pull) => Ok(Opened { pull, created: false }),
                None => Err(Error::NotShownYet { what: ask.what }),
            },
            // Perhaps it was made and only the answer was lost: there was none a moment ago.
            Err(error) if error.leaves_doubt() => match self.find_pull(slug, &new.branch).await {
                Ok(Some(pull)) => Ok(Opened { pull, created: true }),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn pull(&self, slug: &Slug, number: u64) -> Result<Pull, Error> {
        let what = format!("pull request {slug}#{number}");
        let path = repository_path(&self.today(slug), &format!("/pulls/{number}"));
        Ok(self.get(path, Some(slug), &what).await?.json::<answer::Pull>(&what)?.into())
    }

    /// All open pull requests from branches whose name begins so, oldest first; of more than 1,000 open
    /// ones in the repository only those among the newest 1,000.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn open_pulls(&self, slug: &Slug, beginning: &str) -> Result<Vec<Pull>, Error> {
        let what = format!("the open pull requests of {slug}");
        let today = self.today(slug);
        let path = repository_path(&today, "/pulls?state=open&sort=created&direction=desc");
        let pulls: Vec<answer::Pull> = self.pages(&path, slug, &what, |_| false).await?;
        let mut pulls: Vec<Pull> =
            pulls.into_iter().map(Pull::from).filter(|pull| pull.branch.starts_with(beginning)).collect();
        pulls.sort_by_key(|pull| pull.number);
        Ok(pulls)
    }

    /// Gives a pull request another title and text.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn edit_pull(&self, slug: &Slug, number: u64, title: &str, body: &str) -> Result<Pull, Error> {
        self.patch_pull(slug, number, json!({ "title": title, "body": body })).await
    }

    /// Closes a pull request; one that is closed or merged stays as it is.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn close_pull(&self, slug: &Slug, number: u64) -> Result<(), Error> {
        self.patch_pull(slug, number, json!({ "state": "closed" })).await.map(drop)
    }

    async fn patch_pull(&self, slug: &Slug, number: u64, body: Value) -> Result<Pull, Error> {
        let what = format!("pull request {slug}#{number}");
        let path = repository_path(&self.today(slug), &format!("/pulls/{number}"));
        let ask = Ask { method: Method::PATCH, path, body: Some(body), slug: Some(slug), what };
        Ok(self.http.get_through(&ask).await?.json::<answer::Pull>(&ask.what)?.into())
    }

    /// Adds a comment, unless one with this marker is there already; says whether it was added. The
    /// marker stands in it unseen; it is of letters, digits and `-_.:/`.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for another marker.
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
        let what = format!("a comment on pull request {slug}#{number}");
        let path = repository_path(&self.today(slug), &format!("/issues/{number}/comments"));
        let body = Some(json!({ "body": format!("{text}\n\n{marker}") }));
        match self.http.get_through(&Ask { method: Method::POST, path, body, slug: Some(slug), what }).await {
            Ok(_) => Ok(true),
            Err(error) if error.leaves_doubt() => match self.has_comment(slug, number, &marker).await {
                Ok(true) => Ok(true),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn has_comment(&self, slug: &Slug, number: u64, marker: &str) -> Result<bool, Error> {
        let what = format!("the comments on pull request {slug}#{number}");
        let path = repository_path(&self.today(slug), &format!("/issues/{number}/comments?"));
        let is_it =
            |comment: &answer::Comment| comment.body.as_deref().is_some_and(|body| body.contains(marker));
        let comments = self.pages(&path, slug, &what, is_it).await?;
        // A thread longer than any page limit is not made longer.
        Ok(comments.iter().any(is_it) || comments.len() >= PAGE * PAGES_MAX)
    }

    /// Puts those of the labels on a pull request that the repository has. GitHub would make the others.
    ///
    /// # Errors
    /// As for every call: see [`Error`].
    pub async fn label(&self, slug: &Slug, number: u64, labels: &[&str]) -> Result<(), Error> {
        let today = self.today(slug);
        let known = self.known().labels.get(&today).cloned();
        let there = match known {
            Some(there) => there,
            None => {
                let what = format!("the labels of {slug}");
                let path = repository_path(&today, "/labels?");
                let there: Vec<answer::Label> = self.pages(&path, slug, &what, |_| false).await?;
                let there: Vec<String> = there.into_iter().map(|label| label.name).collect();
                self.known().labels.insert(today.clone(), there.clone());
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
        let what = format!("labels for pull request {slug}#{number}");
        let path = repository_path(&today, &format!("/issues/{number}/labels"));
        let body = Some(json!({ "labels": wanted }));
        let ask = Ask { method: Method::POST, path, body, slug: Some(slug), what };
        self.http.get_through(&ask).await.map(drop)
    }

    /// Deletes a branch of nugget's, wherever it points: `false` when there is none. Who knows where it
    /// should point deletes it by git, with a lease.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a branch that is not below `nugget/`; [`Error::Protected`].
    pub async fn delete_branch(&self, slug: &Slug, branch: &str) -> Result<bool, Error> {
        if !branch.starts_with("nugget/") || branch.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::InvalidRequest { what: "the end of a branch", reason: "it is not nugget's" });
        }
        let parts: Vec<String> = branch.split('/').map(encoded).collect();
        let path = repository_path(&self.today(slug), &format!("/git/refs/heads/{}", parts.join("/")));
        let what = format!("branch {branch}");
        let ask = Ask { method: Method::DELETE, path, body: None, slug: Some(slug), what };
        let answer = self.http.ask(&ask).await?;
        match self.http.refusal(&answer) {
            _ if answer.is_success() => Ok(true),
            refusal if refusal.says_there_is_no_ref() => Ok(false),
            refusal => Err(refusal.read(self.http.host(), Some(slug), &ask.what)),
        }
    }

    /// How many requests this client and its clones have made.
    pub fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// How many seconds the server's clock was ahead of ours at its last answer, refusals included;
    /// `None` before the first.
    pub fn skew_seconds(&self) -> Option<i64> {
        self.http.skew_seconds()
    }

    async fn get(&self, path: String, slug: Option<&Slug>, what: &str) -> Result<Answer, Error> {
        let ask = Ask { method: Method::GET, path, body: None, slug, what: what.to_owned() };
        self.http.get_through(&ask).await
    }

    /// A list to its end, to the limit of pages, or to the first page with what is looked for. `path`
    /// has a query.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        slug: &Slug,
        what: &str,
        is_it: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for page in 1..=PAGES_MAX {
            let joint = if path.ends_with('?') { "" } else { "&" };
            let path = format!("{path}{joint}per_page={PAGE}&page={page}");
            let items: Vec<T> = self.get(path, Some(slug), what).await?.json(what)?;
            let is_last = items.len() < PAGE || items.iter().any(&is_it);
            all.extend(items);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    fn read(&self, answer: &Answer, ask: &Ask<'_>) -> Error {
        self.http.refusal(answer).read(self.http.host(), ask.slug, &ask.what)
    }

    /// What the repository is called today, as far as is known.
    fn today(&self, slug: &Slug) -> Slug {
        self.known().names.get(slug).unwrap_or(slug).clone()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn repository_path(slug: &Slug, rest: &str) -> String {
    format!("/repos/{}/{}{rest}", encoded(&slug.owner), encoded(&slug.name))
}
