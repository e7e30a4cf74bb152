//! The brain and its remote, through the real git on both sides: over a folder and over smart HTTP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use git::{
    CommitId, Credentials, Error, FastForward, Fetched, Identity, Lock, NewFile, Outcome, Proposal, Pushed,
    Refusal, Remote, RemoteFailure, RemoteSession, Repository,
};

use crate::support::git_http::{BASIC, Fault, GitHttp, PASSWORD, USER};
use crate::support::{git, try_git, wait_until, write_script};

const BRANCH: &str = "nugget/session-20261120-1412-9f8b";

/// Long, for a busy machine; tests of timeouts use a short one.
const DEADLINE: Duration = Duration::from_secs(100);

/// A folder with a bare remote, served in either way, and clones of it.
struct World {
    folder: tempfile::TempDir,
    http: Option<GitHttp>,
}

impl World {
    /// Creates a remote with a commit on `main`, and one clone, `a`.
    fn new(is_http: bool) -> Self {
        let world = Self::empty(is_http);
        let seed = world.path("seed");
        git(world.folder.path(), &["init", "-q", "-b", "main", "seed"]);
        write(&seed, "brain.yaml", "version: 1\n");
        write(&seed, "domains/coding/patterns/first.md", "first\n");
        commit(&seed, "one");
        git(&seed, &["push", "-q", world.path("remotes/brain.git").to_str().unwrap(), "main"]);
        world.clone("a");
        world
    }

    /// Creates an empty bare repository.
    fn empty(is_http: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let remotes = folder.path().join("remotes");
        std::fs::create_dir(&remotes).unwrap();
        git(&remotes, &["init", "-q", "--bare", "-b", "main", "brain.git"]);
        let http = is_http.then(|| GitHttp::start(&remotes, true));
        Self { folder, http }
    }

    /// Runs a check for each kind of remote.
    #[expect(clippy::print_stdout, reason = "of which kind the remote was that a test failed on")]
    fn for_each_kind(check: impl Fn(&Self)) {
        for is_http in [false, true] {
            println!("{}", if is_http { "http" } else { "file" });
            check(&Self::new(is_http));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn remote(&self) -> PathBuf {
        self.path("remotes/brain.git")
    }

    fn url(&self) -> String {
        match &self.http {
            Some(http) => format!("{}/brain.git", http.url),
            None => format!("file://{}", self.remote().display()),
        }
    }

    fn http(&self) -> &GitHttp {
        self.http.as_ref().unwrap()
    }

    fn credentials(&self) -> Credentials {
        Credentials { username: USER.to_owned(), password: PASSWORD.to_owned() }
    }

    fn clone(&self, name: &str) -> Brain {
        let repository =
            git::clone(&self.url(), &self.path(name), Some(&self.credentials()), DEADLINE).unwrap();
        Brain { repository, credentials: self.credentials() }
    }

    fn brain(&self, name: &str) -> Brain {
        Brain { repository: Repository::open(&self.path(name)).unwrap(), credentials: self.credentials() }
    }

    /// Commits to the remote's branch, as if merged there.
    fn merge_at_remote(&self, branch: &str, path: &str, content: &str) -> String {
        let person = self.path("person");
        if !person.exists() {
            git(self.folder.path(), &["clone", "-q", self.remote().to_str().unwrap(), "person"]);
        }
        git(&person, &["fetch", "-q", "--prune"]);
        git(&person, &["checkout", "-q", "-B", "work", &format!("origin/{branch}")]);
        write(&person, path, content);
        commit(&person, &format!("merge {path}"));
        git(&person, &["push", "-q", "origin", &format!("work:{branch}")]);
        git(&person, &["rev-parse", "work"]).trim().to_owned()
    }

    fn remote_revision(&self, revision: &str) -> String {
        git(&self.remote(), &["rev-parse", revision]).trim().to_owned()
    }
}

struct Brain {
    repository: Repository,
    credentials: Credentials,
}

impl Brain {
    fn root(&self) -> &Path {
        self.repository.root()
    }

    fn remote(&self) -> Remote {
        self.repository.remote().unwrap().unwrap()
    }

    fn with_session<T>(
        &self,
        deadline: Duration,
        act: impl FnOnce(&Repository, &RemoteSession<'_>) -> T,
    ) -> T {
        let remote = self.remote();
        act(
            &self.repository,
            &RemoteSession { remote: &remote, credentials: Some(&self.credentials), deadline },
        )
    }

    fn fetch(&self) -> Result<Fetched, Error> {
        self.with_session(DEADLINE, |repository, session| repository.fetch(session))
    }

    fn push(&self, branch: &str, commit: CommitId, expected: Option<CommitId>) -> Result<Pushed, Error> {
        self.with_session(DEADLINE, |repository, session| {
            repository.push_branch(session, branch, commit, expected)
        })
    }

    fn lock(&self) -> Lock {
        Lock::acquire(&self.repository.lock_path().unwrap()).unwrap()
    }

    fn propose(&self, branch: &str, text: &str) -> CommitId {
        self.repository.propose(&self.lock(), &proposal(branch, text)).unwrap().commit
    }

    fn tip(&self, revision: &str) -> String {
        git(self.root(), &["rev-parse", revision]).trim().to_owned()
    }
}

fn proposal(branch: &str, text: &str) -> Proposal {
    let slug = branch.rsplit('/').next().unwrap();
    Proposal {
        branch: branch.to_owned(),
        base: None,
        files: vec![NewFile {
            path: format!("domains/coding/patterns/{slug}.md"),
            content: text.as_bytes().to_vec(),
            edits: false,
        }],
        removes: vec![],
        message: format!("nugget: 1 unit from {slug}"),
        time: "2026-11-20T14:12:00Z".parse().unwrap(),
        author: Identity::default(),
    }
}

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn commit(root: &Path, message: &str) {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", message]);
}

fn fsck(root: &Path) {
    let fsck = try_git(root, &["fsck", "--full", "--strict", "--no-dangling"]);
    let printed = [fsck.stdout, fsck.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let complaints: Vec<&str> = printed.lines().filter(|line| !line.starts_with("notice:")).collect();
    assert!(fsck.status.success() && complaints.is_empty(), "{complaints:?}");
}

/// Reads all bytes of the user's: the work tree, and the git folder without objects,
/// remote-tracking references, nugget's branches and nugget's lock.
fn user_state(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut bytes = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let not = [".git/objects", ".git/refs/remotes", ".git/refs/heads/nugget", ".git/nugget.lock"];
            match () {
                () if not.contains(&below.as_str()) => {}
                () if path.is_dir() => folders.push(path),
                () => drop(bytes.insert(path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    let status = try_git(root, &["--no-optional-locks", "status", "--porcelain=v2", "--untracked-files=all"]);
    bytes.insert("status".into(), status.stdout);
    bytes
}

fn expect_failure<T: std::fmt::Debug>(result: Result<T, Error>) -> (RemoteFailure, String) {
    match result {
        Err(Error::Remote { failure, message }) => {
            for secret in [PASSWORD, BASIC] {
                assert!(!message.contains(secret), "{message}");
            }
            assert!(!message.contains('\n'), "{message:?}");
            (failure, message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_of_one_machine_is_merged_and_reaches_the_other() {
    World::for_each_kind(|world| {
        let (a, b) = (world.brain("a"), world.clone("b"));
        let commit = a.propose(BRANCH, "# Ours\n");
        let before = (user_state(a.root()), user_state(b.root()));
        assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::Created);
        assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::AlreadyThere, "a repeated push");
        assert_eq!(world.remote_revision(BRANCH), commit.to_string());
        assert_eq!(a.repository.remote_tip(BRANCH).unwrap(), Some(commit));

        let fetched = b.fetch().unwrap();
        assert_eq!((fetched.default_branch.as_str(), fetched.moved), ("main", false));
        assert_eq!(b.repository.remote_tip(BRANCH).unwrap(), Some(commit));

        let person = world.path("person");
        world.merge_at_remote("main", "note.md", "a note\n");
        git(&person, &["merge", "-q", "--no-ff", "-m", "merge", &format!("origin/{BRANCH}")]);
        git(&person, &["push", "-q", "origin", "HEAD:main"]);
        git(&person, &["push", "-q", "origin", &format!(":{BRANCH}")]);
        let fetched = b.fetch().unwrap();
        assert_eq!(fetched.tip.unwrap().to_string(), world.remote_revision("main"));
        assert!(fetched.moved);
        assert_eq!(b.repository.remote_tip(BRANCH).unwrap(), None, "deleted there, forgotten here");
        assert!(!b.fetch().unwrap().moved, "nothing new");
        assert!(a.fetch().unwrap().moved);
        assert!(a.repository.is_merged(BRANCH).unwrap());
        assert_eq!((user_state(a.root()), user_state(b.root())), before, "the user's files have changed");

        let lag = b.repository.lag().unwrap();
        assert_eq!((lag.behind, lag.ahead, lag.blocked), (3, 0, None));
        let moved = b.repository.catch_up(&b.lock()).unwrap();
        assert!(matches!(moved, FastForward::Done { .. }), "{moved:?}");
        assert_eq!(b.tip("HEAD"), world.remote_revision("main"));
        assert_eq!(git(b.root(), &["status", "--porcelain"]), "");
        assert!(b.root().join(format!("domains/coding/patterns/{}.md", &BRANCH[7..])).is_file());
        assert_eq!(b.repository.lag().unwrap().behind, 0);

        assert!(a.repository.delete_branch(&a.lock(), BRANCH, commit).unwrap());
        assert!(!a.repository.delete_branch(&a.lock(), BRANCH, commit).unwrap());
        fsck(a.root());
        fsck(b.root());
        fsck(&world.remote());
    });
}

#[test]
fn a_fetch_leaves_the_users_repository_unchanged() {
    type Spoil = fn(&Path);
    let states: [(&str, Spoil); 5] = [
        ("dirty", |root| {
            write(root, "brain.yaml", "mine\n");
            write(root, "untracked.md", "mine\n");
            write(root, "staged.md", "mine\n");
            git(root, &["add", "staged.md"]);
        }),
        ("detached", |root| drop(git(root, &["checkout", "-q", "--detach"]))),
        ("in a bisection", |root| drop(git(root, &["bisect", "start"]))),
        ("packed", |root| drop(git(root, &["pack-refs", "--all"]))),
        ("another git process is running", |root| write(root, ".git/index.lock", "")),
    ];
    for (name, spoil) in states {
        println!("{name}");
        let world = World::new(false);
        let a = world.brain("a");
        git(a.root(), &["tag", "mine"]);
        spoil(a.root());
        let before = user_state(a.root());
        world.merge_at_remote("main", "note.md", "a note\n");
        git(&world.remote(), &["tag", "theirs", "main"]);
        git(&world.remote(), &["branch", "feature", "main"]);
        assert!(a.fetch().unwrap().moved);
        assert_eq!(a.tip("origin/main"), world.remote_revision("main"));
        assert_eq!(user_state(a.root()), before);
        assert!(!a.root().join(".git/FETCH_HEAD").exists());
        assert!(!try_git(a.root(), &["rev-parse", "--verify", "-q", "origin/feature"]).status.success());
    }
}

#[test]
fn a_remote_branch_is_replaced_only_if_it_is_as_expected() {
    World::for_each_kind(|world| {
        let (a, b) = (world.brain("a"), world.clone("b"));
        let first = a.propose(BRANCH, "# First\n");
        a.push(BRANCH, first, None).unwrap();
        // The other machine has the same branch name with other content.
        let other = b.propose(BRANCH, "# Other\n");
        assert_eq!(expect_failure(b.push(BRANCH, other, None)).0, RemoteFailure::Stale);
        assert_eq!(world.remote_revision(BRANCH), first.to_string());

        // Rebuilt on a new base.
        world.merge_at_remote("main", "note.md", "a note\n");
        a.fetch().unwrap();
        let rebuilt = a.repository.replace(&a.lock(), &proposal(BRANCH, "# First\n"), first).unwrap();
        assert_eq!(rebuilt.outcome, Outcome::Replaced);
        assert_eq!(a.tip(&format!("{BRANCH}~")), a.tip("origin/main"));
        let repeated = a.repository.replace(&a.lock(), &proposal(BRANCH, "# First\n"), first).unwrap();
        assert_eq!((repeated.commit, repeated.outcome), (rebuilt.commit, Outcome::AlreadyThere));
        let moved = a.repository.replace(&a.lock(), &proposal(BRANCH, "# Third\n"), first).unwrap_err();
        assert!(matches!(moved, Error::BranchMoved { .. }), "{moved}");
        assert_eq!(a.push(BRANCH, rebuilt.commit, Some(first)).unwrap(), Pushed::Updated);

        // A person adds a commit.
        let theirs = world.merge_at_remote(BRANCH, "note-2.md", "theirs\n");
        assert_eq!(expect_failure(a.push(BRANCH, first, Some(rebuilt.commit))).0, RemoteFailure::Stale);
        let deleted = a.with_session(DEADLINE, |repository, session| {
            repository.delete_remote_branch(session, BRANCH, rebuilt.commit)
        });
        assert_eq!(expect_failure(deleted).0, RemoteFailure::Stale);
        assert_eq!(world.remote_revision(BRANCH), theirs);
        a.fetch().unwrap();
        let theirs = a.repository.remote_tip(BRANCH).unwrap().unwrap();
        for is_there in [true, false] {
            let deleted = a.with_session(DEADLINE, |repository, session| {
                repository.delete_remote_branch(session, BRANCH, theirs).unwrap()
            });
            assert_eq!(deleted, is_there);
            assert_eq!(a.repository.remote_tip(BRANCH).unwrap(), None);
        }
        fsck(a.root());
    });
}

#[test]
fn only_branches_of_nugget_are_pushed_or_deleted() {
    let world = World::new(false);
    let a = world.brain("a");
    let commit: CommitId = a.tip("main").parse().unwrap();
    for branch in
        ["main", "feature", "nugget/", "nugget/a..b", "nugget/x:refs/heads/main", "-x", "nugget/x y"]
    {
        assert!(matches!(a.push(branch, commit, None), Err(Error::ForeignBranch { .. })), "{branch}");
        let delete = |repository: &Repository, session: &RemoteSession<'_>| {
            repository.delete_remote_branch(session, branch, commit)
        };
        assert!(matches!(a.with_session(DEADLINE, delete), Err(Error::ForeignBranch { .. })), "{branch}");
        let deleted = a.repository.delete_branch(&a.lock(), branch, commit);
        assert!(matches!(deleted, Err(Error::ForeignBranch { .. })), "{branch}");
    }
}

#[test]
fn a_checked_out_or_changed_branch_is_not_deleted() {
    let world = World::new(false);
    let a = world.brain("a");
    let commit = a.propose(BRANCH, "# Ours\n");
    git(a.root(), &["worktree", "add", "-q", "../linked", BRANCH]);
    let delete = || a.repository.delete_branch(&a.lock(), BRANCH, commit);
    assert!(matches!(delete(), Err(Error::CheckedOut { .. })));
    git(a.root(), &["worktree", "remove", "../linked"]);
    git(a.root(), &["checkout", "-q", BRANCH]);
    assert!(matches!(delete(), Err(Error::CheckedOut { .. })));
    git(a.root(), &["checkout", "-q", "main"]);
    git(a.root(), &["branch", "-f", BRANCH, "main"]);
    assert!(matches!(delete(), Err(Error::BranchMoved { .. })));
    git(a.root(), &["branch", "-f", BRANCH, &commit.to_string()]);
    // Loose and packed at once, with other references beside it, and a log.
    git(a.root(), &["branch", "nugget/other", &commit.to_string()]);
    git(a.root(), &["tag", "-a", "-m", "x", "annotated"]);
    git(a.root(), &["pack-refs", "--all", "--no-prune"]);
    let before = git(a.root(), &["for-each-ref"]);
    assert!(delete().unwrap());
    let expected: String =
        before.lines().filter(|line| !line.ends_with(BRANCH)).map(|line| format!("{line}\n")).collect();
    assert_eq!(git(a.root(), &["for-each-ref"]), expected);
    assert!(!a.root().join(".git/packed-refs.lock").exists());
    fsck(a.root());
}

const SECRET_FOUND: &str = "cat >&2 <<'END'
error: GH013: Repository rule violations found for refs/heads/nugget/session-20261116-170405-ad5139ef.

- GITHUB PUSH PROTECTION
  —————————————————————————————————————————
    Resolve the following violations before pushing again

    - Push cannot contain secrets

    
     (?) Learn how to resolve a blocked push
     https://docs.example.org/code-security/secret-scanning/working-with-push-protection#resolving-a-blocked-push
    
    
      —— Stripe API Key ————————————————————————————————————
       locations:
         - commit: 8728dbe67c1b2a0d9e3f4a5b6c7d8e9f0a1b2c3d
           path: domains/x/bugs/unit.md:12
    
       (?) To push, remove secret from commit(s) or follow this URL to allow the secret.
       https://example.org/me/brain/security/secret-scanning/unblock-secret/2p8cFsVnYQ
END
exit 1";

#[test]
fn a_remote_that_refuses_a_branch_says_why() {
    World::for_each_kind(|world| {
        let a = world.brain("a");
        let commit = a.propose(BRANCH, "# Ours\n");
        write_script(
            &world.remote().join("hooks/pre-receive"),
            "echo 'these branches are protected' >&2\nexit 1",
        );
        let (failure, message) = expect_failure(a.push(BRANCH, commit, None));
        assert_eq!(failure, RemoteFailure::Protected, "{message}");
        assert!(message.contains("these branches are protected"), "{message}");
        // As GitHub's push protection says it.
        write_script(&world.remote().join("hooks/pre-receive"), SECRET_FOUND);
        let (failure, message) = expect_failure(a.push(BRANCH, commit, None));
        assert_eq!(failure, RemoteFailure::SecretFound, "{message}");
        for said in ["Push cannot contain secrets", "Stripe API Key", "path: domains/x/bugs/unit.md:12"] {
            assert!(message.contains(said), "{message}");
        }
        assert!(!failure.hint().unwrap().contains("rules"));
        assert_eq!(a.repository.remote_tip(BRANCH).unwrap(), None);
        std::fs::remove_file(world.remote().join("hooks/pre-receive")).unwrap();
        assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::Created);
    });
}

#[test]
fn server_failures_are_distinguished_and_leak_no_secret() {
    let world = World::new(true);
    let a = world.brain("a");
    let commit = a.propose(BRANCH, "# Ours\n");
    let faults = [
        (Fault::Status(401, "who?"), RemoteFailure::Denied),
        (Fault::Status(403, "no"), RemoteFailure::Denied),
        (Fault::Status(404, "none"), RemoteFailure::NotFound),
        (Fault::Status(429, "slowly"), RemoteFailure::Offline),
        (Fault::Status(500, "oh"), RemoteFailure::Offline),
        (Fault::Status(503, "later"), RemoteFailure::Offline),
        (Fault::Cut, RemoteFailure::Offline),
    ];
    for (fault, expected) in faults {
        world.http().fail(Some(fault.clone()));
        for result in [a.fetch().map(drop), a.push(BRANCH, commit, None).map(drop)] {
            let (failure, message) = expect_failure(result);
            println!("{fault:?}: {message}");
            assert_eq!(failure, expected, "{fault:?}: {message}");
        }
    }
    world.http().fail(Some(Fault::Hang));
    let begun = Instant::now();
    let late = a.with_session(Duration::from_millis(700), |repository, session| repository.fetch(session));
    assert_eq!(expect_failure(late).0, RemoteFailure::TooLate);
    assert!(begun.elapsed() < DEADLINE, "it hung");
    world.http().fail(None);
    assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::Created);

    // Nothing listens there.
    let gone = world.http().url.clone();
    git(a.root(), &["remote", "set-url", "origin", "http://127.0.0.1:9/brain.git"]);
    assert_eq!(expect_failure(a.fetch()).0, RemoteFailure::Offline, "{gone}");
    git(
        a.root(),
        &["remote", "set-url", "origin", &format!("file://{}/none.git", world.folder.path().display())],
    );
    assert_eq!(expect_failure(a.fetch()).0, RemoteFailure::NotFound);
    fsck(a.root());
}

#[test]
fn the_users_password_is_used_where_nugget_has_none() {
    let world = World::new(true);
    let a = world.brain("a");
    let wrong = Credentials { username: USER.to_owned(), password: "canary-wrong-77".to_owned() };
    let (remote, deadline) = (a.remote(), DEADLINE);
    let fetch = |credentials| a.repository.fetch(&RemoteSession { remote: &remote, credentials, deadline });
    let (failure, message) = expect_failure(fetch(Some(&wrong)));
    assert_eq!(failure, RemoteFailure::Denied, "{message}");
    assert!(!message.contains("canary-wrong"), "{message}");
    let (failure, message) = expect_failure(fetch(None));
    assert_eq!(failure, RemoteFailure::Denied, "{message}");
    // The user's credential helper, and what it receives.
    let helper = format!(
        "!f() {{ echo \"$1\" >> '{}'; test \"$1\" = get && printf 'username={USER}\\npassword={PASSWORD}\\n'; }}; f",
        world.path("asked").display()
    );
    git(a.root(), &["config", "credential.helper", &helper]);
    fetch(None).unwrap();
    assert!(std::fs::read_to_string(world.path("asked")).unwrap().starts_with("get"));
    std::fs::remove_file(world.path("asked")).unwrap();
    // Where nugget supplies credentials, the helper is neither asked nor notified.
    fetch(Some(&a.credentials)).unwrap();
    expect_failure(fetch(Some(&wrong)));
    assert!(!world.path("asked").exists());
    // A secret that the user has put into the URL is not shown either.
    let url = format!("{}/none.git", world.http().url.replace("http://", "http://me:canary-in-url@"));
    git(a.root(), &["remote", "set-url", "origin", &url]);
    let remote = a.remote();
    assert!(!format!("{remote:?} {}", remote.display_url()).contains("canary"));
    let session = RemoteSession { remote: &remote, credentials: None, deadline };
    let (_, message) = expect_failure(a.repository.fetch(&session));
    assert!(!message.contains("canary"), "{message}");
}

#[test]
fn a_redirect_elsewhere_gets_no_password() {
    let world = World::new(true);
    let a = world.brain("a");
    // One server that asks for a password and one that does not: there the client goes straight to the
    // target.
    for asks_password in [true, false] {
        let elsewhere = GitHttp::start(&world.path("remotes"), asks_password);
        // Another name of the same machine: another origin.
        world.http().fail(Some(Fault::Redirect(elsewhere.url.replace("127.0.0.1", "localhost"))));
        world.merge_at_remote("main", "news.md", &format!("{asks_password}\n"));
        let (failure, message) = expect_failure(a.fetch());
        assert_eq!(failure, RemoteFailure::NotFound, "{message}");
        assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    }
}

/// Returns the command lines of all processes of this machine.
fn command_lines() -> String {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .fold(String::new(), |lines, line| lines + &String::from_utf8_lossy(&line).replace('\0', " ") + "\n")
}

#[test]
fn no_secret_is_in_process_arguments_or_git_config() {
    let world = World::new(true);
    let a = world.brain("a");
    world.http().fail(Some(Fault::Hang));
    let asked = world.http().requests().len();
    std::thread::scope(|scope| {
        let fetch =
            || a.with_session(Duration::from_secs(5), |repository, session| repository.fetch(session));
        let fetching = scope.spawn(fetch);
        wait_until("git has sent a request", || world.http().requests().len() > asked);
        let lines = command_lines();
        assert!(lines.contains("ls-remote"), "git runs");
        assert!(!lines.contains(PASSWORD) && !lines.contains(BASIC), "{lines}");
        let environment = std::fs::read_to_string(a.root().join(".git/config")).unwrap();
        assert!(!environment.contains(PASSWORD) && !environment.contains("credential"), "{environment}");
        assert_eq!(expect_failure(fetching.join().unwrap()).0, RemoteFailure::TooLate);
    });
    world.http().fail(None);
    let commit = a.propose(BRANCH, "# Ours\n");
    a.push(BRANCH, commit, None).unwrap();
    for entry in walk(&a.root().join(".git")) {
        let bytes = std::fs::read(&entry).unwrap();
        assert!(memchr::memmem::find(&bytes, PASSWORD.as_bytes()).is_none(), "{}", entry.display());
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn hooks_aliases_and_hostile_settings_change_nothing() {
    let world = World::new(false);
    let a = world.brain("a");
    let commit = a.propose(BRANCH, "# Ours\n");
    let witness = world.path("witness");
    let touch = format!("echo \"$0\" >> '{}'", witness.display());
    for hook in ["pre-push", "reference-transaction", "post-merge", "pre-auto-gc", "post-index-change"] {
        write_script(&a.root().join(".git/hooks").join(hook), &touch);
    }
    let settings = [
        ("remote.origin.mirror", "true"),
        ("remote.origin.prune", "true"),
        ("remote.origin.tagOpt", "--tags"),
        ("remote.origin.push", "refs/heads/*:refs/heads/*"),
        ("remote.origin.fetch", "+refs/heads/*:refs/heads/stolen/*"),
        ("push.followTags", "true"),
        ("push.pushOption", "surprise"),
        ("push.gpgSign", "if-asked"),
        ("fetch.prune", "true"),
        ("alias.fetch", "!false"),
        ("alias.push", "!false"),
        ("gc.auto", "1"),
        ("gc.autoPackLimit", "1"),
        ("core.fsmonitor", &touch),
        ("core.askPass", &touch),
    ];
    for (key, value) in settings {
        git(a.root(), &["config", key, value]);
    }
    git(a.root(), &["-c", "core.hooksPath=/dev/null", "tag", "-a", "-m", "mine", "mine"]);
    git(a.root(), &["-c", "core.hooksPath=/dev/null", "branch", "private", "main"]);
    git(a.root(), &["-c", "core.hooksPath=/dev/null", "update-ref", "refs/remotes/origin/old", "main"]);
    world.merge_at_remote("main", "note.md", "a note\n");
    let _ = std::fs::remove_file(&witness);

    assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::Created);
    assert!(a.fetch().unwrap().moved);
    assert!(!witness.exists(), "{:?}", std::fs::read_to_string(&witness));
    let references = git(&world.remote(), &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(references, format!("refs/heads/main\nrefs/heads/{BRANCH}\n"));
    let references_found = git(
        a.root(),
        &[
            "-c",
            "core.hooksPath=/dev/null",
            "for-each-ref",
            "--format=%(refname)",
            "refs/heads",
            "refs/remotes",
        ],
    );
    let expected = format!(
        "refs/heads/main\nrefs/heads/{BRANCH}\nrefs/heads/private\nrefs/remotes/origin/HEAD\n\
         refs/remotes/origin/main\nrefs/remotes/origin/{BRANCH}\nrefs/remotes/origin/old\n"
    );
    assert_eq!(references_found, expected);
}

#[test]
fn a_renamed_default_branch_is_followed_unless_configured() {
    World::for_each_kind(|world| {
        let a = world.brain("a");
        git(&world.remote(), &["branch", "-m", "main", "trunk"]);
        let tip = world.merge_at_remote("trunk", "note.md", "a note\n");
        let fetched = a.fetch().unwrap();
        assert_eq!((fetched.default_branch.as_str(), fetched.moved), ("trunk", true));
        assert_eq!(fetched.tip.unwrap().to_string(), tip);
        let branch = a.repository.default_branch().unwrap();
        assert_eq!((branch.name.as_str(), branch.local), ("trunk", None));
        assert_eq!(a.tip("origin/HEAD"), tip);
        let lag = a.repository.lag().unwrap();
        assert_eq!((lag.behind, lag.ahead), (1, 0));
        let refusal = Refusal::NoLocalBranch {
            branch: "trunk".to_owned(),
            upstream: "origin/trunk".to_owned(),
            head: Some("main".to_owned()),
        };
        assert_eq!(lag.blocked, Some(refusal.clone()));
        assert_eq!(a.repository.catch_up(&a.lock()).unwrap(), FastForward::Refused(refusal));
        assert!(!a.fetch().unwrap().moved);
        // The branch named in the brain's settings wins, whatever the remote's HEAD says.
        git(&world.remote(), &["branch", "knowledge", "trunk~"]);
        let repository = Repository::open(a.root()).unwrap().with_default_branch(Some("knowledge"));
        let remote = a.remote();
        let session =
            RemoteSession { remote: &remote, credentials: Some(&a.credentials), deadline: DEADLINE };
        let fetched = repository.fetch(&session).unwrap();
        assert_eq!(fetched.default_branch, "knowledge");
        assert_eq!(fetched.tip.unwrap().to_string(), world.remote_revision("knowledge"));
        assert_eq!(
            git(a.root(), &["symbolic-ref", "refs/remotes/origin/HEAD"]),
            "refs/remotes/origin/trunk\n"
        );
    });
}

#[test]
fn an_empty_remote_gets_its_default_branch_first() {
    for is_http in [false, true] {
        let world = World::empty(is_http);
        let (a, b) = (world.path("a"), world.path("b"));
        for (root, text) in [(&a, "one\n"), (&b, "two\n")] {
            git(world.folder.path(), &["init", "-q", "-b", "main", root.to_str().unwrap()]);
            write(root, "brain.yaml", text);
            commit(root, "one");
            Repository::open(root).unwrap().add_remote("origin", &world.url()).unwrap();
        }
        let (a, b) = (world.brain("a"), world.brain("b"));
        let fetched = a.fetch().unwrap();
        assert_eq!(fetched, Fetched { default_branch: "main".to_owned(), tip: None, moved: false });
        let commit = a.propose(BRANCH, "# Ours\n");
        assert_eq!(expect_failure(a.push(BRANCH, commit, None)).0, RemoteFailure::Empty);
        assert_eq!(git(&world.remote(), &["for-each-ref"]), "");

        let push = |brain: &Brain| {
            brain.with_session(DEADLINE, |repository, session| repository.push_default(session))
        };
        assert_eq!(push(&a).unwrap(), Pushed::Created);
        assert_eq!(push(&a).unwrap(), Pushed::AlreadyThere);
        assert_eq!(git(&world.remote(), &["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
        // A brain with its own history is never forced onto it.
        assert_eq!(expect_failure(push(&b)).0, RemoteFailure::Stale);
        assert_eq!(a.push(BRANCH, commit, None).unwrap(), Pushed::Created);
        assert!(a.fetch().unwrap().tip.is_some());
        assert_eq!(a.repository.lag().unwrap().behind, 0);
        // A remote that has only a branch of nugget's has no default branch.
        git(&world.remote(), &["update-ref", "-d", "refs/heads/main"]);
        git(&world.remote(), &["symbolic-ref", "HEAD", &format!("refs/heads/{BRANCH}")]);
        assert_eq!(b.fetch().unwrap().tip, None);
    }
}

#[test]
fn a_shallow_clone_fetches_and_pushes() {
    let world = World::new(false);
    world.merge_at_remote("main", "second.md", "second\n");
    git(world.folder.path(), &["clone", "-q", "--depth=1", &world.url(), "shallow"]);
    let shallow = world.brain("shallow");
    let before = user_state(shallow.root());
    assert!(before.contains_key(&shallow.root().join(".git/shallow")));
    world.merge_at_remote("main", "third.md", "third\n");
    assert!(shallow.fetch().unwrap().moved);
    assert_eq!(shallow.repository.lag().unwrap().behind, 1);
    let commit = shallow.propose(BRANCH, "# Ours\n");
    assert_eq!(shallow.push(BRANCH, commit, None).unwrap(), Pushed::Created);
    assert_eq!(user_state(shallow.root()), before);
    fsck(shallow.root());
    fsck(&world.remote());
}

#[test]
fn branches_that_are_too_many_to_fetch_are_not_taken_for_deleted() {
    let world = World::new(false);
    let main = world.remote_revision("main");
    let line = |n: usize| format!("{main} refs/heads/nugget/n-{n:05}\n");
    let count = 10_010;
    let packed: String = (0..count).map(line).collect();
    let header = "# pack-refs with: peeled fully-peeled sorted \n";
    std::fs::write(world.remote().join("packed-refs"), format!("{header}{packed}")).unwrap();
    world.clone("b");
    let b = world.brain("b");
    b.fetch().unwrap();
    let tracked = git(b.root(), &["for-each-ref", "--format=%(refname)", "refs/remotes/origin/nugget"]);
    assert_eq!(tracked.lines().count(), count);
}

#[test]
fn branch_names_are_data_not_options() {
    let world = World::new(false);
    let a = world.brain("a");
    let names = [
        "nugget/;touch${IFS}witness",
        "nugget/--upload-pack=x",
        "nugget/\u{202e}gpj",
        "nugget/`touch`",
        "nugget/$(touch${IFS}witness)",
        "nugget/deep/er/est",
    ];
    for name in names {
        git(&world.remote(), &["update-ref", &format!("refs/heads/{name}"), "main"]);
    }
    a.fetch().unwrap();
    assert!(!a.root().join("witness").exists());
    let references_found =
        git(a.root(), &["for-each-ref", "--format=%(refname)", "refs/remotes/origin/nugget"]);
    assert_eq!(references_found.lines().count(), 5, "the hidden one is left out: {references_found}");
    // A branch where there was a folder of branches, and the other way round.
    for name in names {
        git(&world.remote(), &["update-ref", "-d", &format!("refs/heads/{name}")]);
    }
    git(&world.remote(), &["update-ref", "refs/heads/nugget/deep", "main"]);
    a.fetch().unwrap();
    assert!(a.repository.remote_tip("nugget/deep").unwrap().is_some());
    git(&world.remote(), &["update-ref", "-d", "refs/heads/nugget/deep"]);
    git(&world.remote(), &["update-ref", "refs/heads/nugget/deep/er", "main"]);
    a.fetch().unwrap();
    assert!(a.repository.remote_tip("nugget/deep/er").unwrap().is_some());
    fsck(a.root());
}

#[test]
fn a_clone_is_complete_or_absent() {
    let world = World::new(true);
    let clone =
        |name: &str| git::clone(&world.url(), &world.path(name), Some(&world.credentials()), DEADLINE);
    std::fs::create_dir(world.path("empty")).unwrap();
    clone("empty").unwrap();
    assert!(matches!(clone("empty"), Err(Error::FolderTaken { .. })));
    let config = std::fs::read_to_string(world.path("empty/.git/config")).unwrap();
    assert!(
        config.contains(&world.url()) && !config.contains(PASSWORD) && !config.contains("credential"),
        "{config}"
    );

    world.http().fail(Some(Fault::Status(404, "none")));
    assert_eq!(expect_failure(clone("none").map(|_| ())).0, RemoteFailure::NotFound);
    world.http().fail(None);
    let secret = world.url().replace("http://", "http://me:hunter2@");
    let refused = git::clone(&secret, &world.path("none"), None, DEADLINE);
    assert!(matches!(refused, Err(Error::SecretInUrl)));
    // The remains of a killed clone are removed.
    write(&world.path(".none.nugget-clone"), "brain/half.md", "half\n");
    clone("none").unwrap();
    let left: Vec<_> = std::fs::read_dir(world.folder.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains("nugget-clone"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    fsck(&world.path("none"));
}

#[test]
fn a_remote_is_found_and_shown_without_its_secrets() {
    let world = World::new(false);
    let a = world.brain("a");
    let parse_remote = |url: &str| {
        git(a.root(), &["remote", "set-url", "origin", url]);
        let remote = a.remote();
        let shown = remote.display_url();
        remote.parsed_url().map(|url| (format!("{:?}", url.scheme), url.host, url.port, url.path, shown))
    };
    let expected = |scheme: &str, host: &str, port, path: &str, shown: &str| {
        Some((scheme.to_owned(), host.to_owned(), port, path.to_owned(), shown.to_owned()))
    };
    assert_eq!(
        parse_remote("https://GitHub.com/me/brain.git"),
        expected("Https", "github.com", None, "me/brain", "https://GitHub.com/me/brain.git")
    );
    assert_eq!(
        parse_remote("https://me:pw@ghe.example.org:8443/me/brain/?token=x"),
        expected(
            "Https",
            "ghe.example.org",
            Some(8443),
            "me/brain",
            "https://…@ghe.example.org:8443/me/brain/"
        )
    );
    assert_eq!(
        parse_remote("git@github.com:me/brain.git"),
        expected("Ssh", "github.com", None, "me/brain", "git@github.com:me/brain.git")
    );
    assert_eq!(
        parse_remote("ssh://git@[::1]:2222/me/brain"),
        expected("Ssh", "::1", Some(2222), "me/brain", "ssh://…@[::1]:2222/me/brain")
    );
    assert_eq!(
        parse_remote("/srv/brain.git"),
        expected("File", "", None, "/srv/brain.git", "/srv/brain.git")
    );
    git(a.root(), &["config", "url.https://github.com/.insteadOf", "gh:"]);
    assert_eq!(
        parse_remote("gh:me/brain"),
        expected("Https", "github.com", None, "me/brain", "https://github.com/me/brain")
    );
    // Two remotes, neither of them `origin`, and none at all.
    git(a.root(), &["remote", "rename", "origin", "one"]);
    assert_eq!(a.remote().name, "one");
    git(a.root(), &["remote", "add", "two", "/srv/two"]);
    assert!(a.repository.remote().unwrap().is_none());
    git(a.root(), &["remote", "remove", "one"]);
    git(a.root(), &["remote", "remove", "two"]);
    assert!(a.repository.remote().unwrap().is_none());
}

#[test]
fn a_remote_with_another_name_works() {
    let world = World::new(false);
    let a = world.brain("a");
    git(a.root(), &["remote", "rename", "origin", "upstream"]);
    world.merge_at_remote("main", "note.md", "a note\n");
    assert!(a.fetch().unwrap().moved);
    let branch = a.repository.default_branch().unwrap();
    assert_eq!(branch.tip.to_string(), world.remote_revision("main"));
    assert_eq!(a.repository.lag().unwrap().behind, 1);
    let commit = a.propose(BRANCH, "# Ours\n");
    a.push(BRANCH, commit, None).unwrap();
    assert_eq!(a.repository.remote_tip(BRANCH).unwrap(), Some(commit));
}

/// The figures are printed with `--nocapture`.
#[test]
fn a_fetch_without_changes_transfers_nothing() {
    for is_http in [false, true] {
        let world = World::new(is_http);
        let a = world.brain("a");
        a.fetch().unwrap();
        let before = user_state(a.root());
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let begun = Instant::now();
                assert!(!a.fetch().unwrap().moved);
                begun.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("a fetch without news, {}: p50 {:?}", if is_http { "http" } else { "file" }, times[4]);
        assert_eq!(user_state(a.root()), before);
        if is_http {
            assert!(
                world.http().requests().iter().all(|(_, authorization)| authorization.is_some()),
                "asked twice"
            );
        }
    }
}

#[test]
fn gits_children_see_no_keys_and_only_this_repository() {
    let world = World::new(false);
    let a = world.brain("a");
    let seen = world.path("seen");
    write_script(
        &world.path("upload-pack"),
        &format!("env > '{}'\nexec git-upload-pack \"$@\"", seen.display()),
    );
    git(a.root(), &["config", "remote.origin.uploadpack", world.path("upload-pack").to_str().unwrap()]);
    let mut child = killable_child(&world, "fetch");
    child
        .env("ANTHROPIC_API_KEY", "canary")
        .env("AWS_SECRET_ACCESS_KEY", "canary")
        .env("GIT_DIR", "/nonexistent");
    child
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.hooksPath")
        .env("GIT_CONFIG_VALUE_0", "canary");
    child.env("GIT_TRACE_CURL", world.path("trace")).env("LC_ALL", "de_DE.UTF-8").env("GH_TOKEN", "canary");
    assert!(child.status().unwrap().success());
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("GIT_TERMINAL_PROMPT=0") && seen.contains("LC_MESSAGES=C"), "{seen}");
    for forbidden in ["canary", "LC_ALL", "GIT_TRACE"] {
        assert!(!seen.contains(forbidden), "{forbidden}: {seen}");
    }
}

/// Builds this program as a child that runs one operation and may be killed.
fn killable_child(world: &World, what: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "transport::an_operation_that_may_be_killed", "--nocapture"])
        .env("TRANSPORT_OPERATION", what)
        .env("TRANSPORT_BRAIN", world.path("a"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    child
}

/// Does nothing unless [`killable_child`] starts it.
#[test]
fn an_operation_that_may_be_killed() {
    let (Ok(what), Ok(root)) = (std::env::var("TRANSPORT_OPERATION"), std::env::var("TRANSPORT_BRAIN"))
    else {
        return;
    };
    let credentials = Credentials { username: USER.to_owned(), password: PASSWORD.to_owned() };
    let brain = Brain { repository: Repository::open(Path::new(&root)).unwrap(), credentials };
    match what.as_str() {
        "fetch" => drop(brain.fetch().unwrap()),
        "push" => {
            let commit = brain.repository.tip(BRANCH).unwrap().unwrap();
            let expected = brain.repository.remote_tip(BRANCH).unwrap();
            brain.push(BRANCH, commit, expected).unwrap();
        }
        "catch up" => drop(brain.repository.catch_up(&brain.lock()).unwrap()),
        "delete" => {
            let commit = brain.repository.tip(BRANCH).unwrap().unwrap();
            brain.repository.delete_branch(&brain.lock(), BRANCH, commit).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Returns the children of a process and their descendants.
fn descendants(of: u32) -> Vec<u32> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = rest.split_whitespace().nth(1).and_then(|parent| parent.parse::<u32>().ok());
        parents.insert(id, parent.unwrap_or(0));
    }
    let mut found = vec![of];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(id, _)| *id));
        at += 1;
    }
    found.split_off(1)
}

/// Sends SIGKILL to the child, or to it and every git process that it has started.
fn kill(child: &mut Child, with_git: bool) {
    let others = if with_git { descendants(child.id()) } else { Vec::new() };
    child.kill().unwrap();
    child.wait().unwrap();
    for id in others {
        let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
}

/// Derives a number from a seed and an index: splitmix64.
fn random(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn a_killed_operation_can_be_repeated_and_blocks_nothing() {
    let seed = std::env::var("NUGGET_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("NUGGET_TEST_SEED={seed}");
    let world = World::new(true);
    let a = world.brain("a");
    // How long each takes without a kill, so that a kill can hit any moment of it.
    let (mut killed, mut n) = (0, 0);
    for round in 0..8 {
        world.merge_at_remote("main", &format!("note-{round}.md"), "a note\n");
        // One branch that is created and one that is deleted.
        git(&world.remote(), &["update-ref", &format!("refs/heads/nugget/comes-{round}"), "main"]);
        if round > 0 {
            git(&world.remote(), &["update-ref", "-d", &format!("refs/heads/nugget/comes-{}", round - 1)]);
            git(a.root(), &["pack-refs", "--all"]);
        }
        let commit = match a.repository.tip(BRANCH).unwrap() {
            None => a.propose(BRANCH, "# Ours\n"),
            Some(commit) => {
                a.repository
                    .replace(&a.lock(), &proposal(BRANCH, &format!("# {round}\n")), commit)
                    .unwrap()
                    .commit
            }
        };
        for what in ["fetch", "push", "catch up"] {
            let mut done = false;
            for attempt in 0..4 {
                n += 1;
                let mut running = killable_child(&world, what).spawn().unwrap();
                let begun = Instant::now();
                let run_time = Duration::from_micros(random(seed, n) % 150_000);
                // Waits for a moment of its run, or its end.
                while begun.elapsed() < run_time && running.try_wait().unwrap().is_none() {
                    std::thread::yield_now();
                }
                done = running.try_wait().unwrap().is_some_and(|status| status.success());
                if done {
                    break;
                }
                killed += 1;
                kill(&mut running, attempt % 2 == 0);
            }
            // Meanwhile the user continues to work undisturbed.
            if !done {
                let status = try_git(a.root(), &["status", "--porcelain"]);
                assert!(status.status.success(), "{what}: {}", String::from_utf8_lossy(&status.stderr));
            }
        }
        // A git process that outlived nugget may still be running.
        wait_until("every git process has exited", || {
            descendants(std::process::id()).is_empty() && orphans(a.root()) == 0
        });
        assert!(a.fetch().unwrap().tip.is_some());
        assert_eq!(a.tip("origin/main"), world.remote_revision("main"));
        let expected = a.repository.remote_tip(BRANCH).unwrap();
        a.push(BRANCH, commit, expected).unwrap();
        assert_eq!(world.remote_revision(BRANCH), commit.to_string());
        let moved = a.repository.catch_up(&a.lock()).unwrap();
        assert!(!matches!(moved, FastForward::Refused(_)), "{moved:?}");
        assert_eq!(a.tip("main"), world.remote_revision("main"));
        assert_eq!(git(a.root(), &["status", "--porcelain"]), "", "round {round}");
        for left in walk(&a.root().join(".git")) {
            assert!(
                left.extension().is_none_or(|ending| ending != "lock") || left.ends_with("nugget.lock"),
                "{left:?}"
            );
        }
        // The user's own fetch and packing, which need every lock.
        git(a.root(), &["pack-refs", "--all"]);
        git(
            a.root(),
            &[
                "fetch",
                "-q",
                "--prune",
                world.remote().to_str().unwrap(),
                "+refs/heads/*:refs/remotes/origin/*",
            ],
        );
        fsck(a.root());
        fsck(&world.remote());
    }
    println!("killed {killed} times");
    assert!(killed >= 8, "too few were killed: {killed}");
    let branches = git(&world.remote(), &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(branches, format!("refs/heads/main\nrefs/heads/nugget/comes-7\nrefs/heads/{BRANCH}\n"));
}

/// Counts the processes that work in a folder ; only children of this process could be waited for.
fn orphans(folder: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let works_there =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|at| at == folder);
    processes.filter(works_there).count()
}
