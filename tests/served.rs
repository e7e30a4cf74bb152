//! Served content is the default branch plus the user's own edits, whatever branch is checked out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use actors::BrainView;
use brain::{Brain, Files};
use git::{Lock, RemoteSession, Repository};
use index::{Index, Mode, ModelLabel};
use knowledge::CountTokens;

use crate::support::{Sandbox, git, try_git};

/// A brain that is a clone, and a second clone from which a person merges into its remote.
struct World {
    sandbox: Sandbox,
}

impl World {
    /// Creates both clones with the units `a`, `b` and `c`.
    fn new() -> Self {
        let world = Self { sandbox: Sandbox::with_brain() };
        for name in ["a", "b", "c"] {
            write(&world.brain(), name, "first");
        }
        commit(&world.brain(), "units");
        git(world.sandbox.path(), &["clone", "-q", "--bare", "brain", "remote.git"]);
        git(&world.brain(), &["remote", "add", "origin", "../remote.git"]);
        git(world.sandbox.path(), &["clone", "-q", "remote.git", "person"]);
        world.fetch();
        world
    }

    fn brain(&self) -> PathBuf {
        self.sandbox.brain()
    }

    fn person(&self) -> PathBuf {
        self.sandbox.path().join("person")
    }

    fn repository(&self) -> Repository {
        Repository::open(&self.brain()).unwrap()
    }

    /// Merges a change at the remote and fetches it.
    fn merge(&self, change: impl FnOnce(&Path)) {
        change(&self.person());
        commit(&self.person(), "merged");
        git(&self.person(), &["push", "-q", "origin", "HEAD:main"]);
        self.fetch();
    }

    fn fetch(&self) {
        let remote = self.repository().remote().unwrap().unwrap();
        let session = RemoteSession { remote: &remote, credentials: None, deadline: Duration::from_secs(60) };
        self.repository().fetch(&session).unwrap();
    }

    /// Returns the served units' texts by name.
    fn served(&self) -> BTreeMap<String, String> {
        let view = BrainView::open(&Brain::open(&self.brain()).unwrap());
        let mut units = BTreeMap::new();
        for file in view.files().unwrap() {
            let text = view.read(&file.path).unwrap();
            let name = file.path.rsplit('/').next().unwrap().trim_end_matches(".md").to_owned();
            units.insert(name, text.lines().last().unwrap().to_owned());
        }
        units
    }

    fn check(&self, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(name, says)| ((*name).to_owned(), (*says).to_owned())).collect();
        assert_eq!(self.served(), expected);
    }
}

fn path_of(root: &Path, name: &str) -> PathBuf {
    root.join(format!("domains/coding/patterns/{name}.md"))
}

fn write(root: &Path, name: &str, says: &str) {
    let path = path_of(root, name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let head = format!("---\nid: {name}\ntype: pattern\ndomain: coding\ntitle: Unit {name}\n---\n");
    std::fs::write(path, format!("{head}\n# Unit {name}\n\n{says}\n")).unwrap();
}

fn remove(root: &Path, name: &str) {
    std::fs::remove_file(path_of(root, name)).unwrap();
}

fn commit(root: &Path, message: &str) {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", message]);
}

#[test]
fn an_up_to_date_checkout_is_served_as_it_is() {
    let world = World::new();
    assert!(world.repository().overlay().unwrap().is_none(), "there is no overlay");
    let brain = Brain::open(&world.brain()).unwrap();
    let mut times: Vec<Duration> = (0..19)
        .map(|_| {
            let begun = Instant::now();
            BrainView::open(&brain);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("checking that there is no overlay: p50 {:?}", times[9]);
    write(&world.brain(), "a", "mine");
    write(&world.brain(), "new", "mine");
    remove(&world.brain(), "b");
    world.check(&[("a", "mine"), ("c", "first"), ("new", "mine")]);
}

#[test]
fn a_sparse_checkout_serves_all_that_is_merged() {
    let world = World::new();
    git(&world.brain(), &["sparse-checkout", "set", "domains/cooking"]);
    assert!(!path_of(&world.brain(), "a").exists());
    world.check(&[("a", "first"), ("b", "first"), ("c", "first")]);
    assert_eq!(world.sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), 3);
    world.merge(|person| {
        write(person, "a", "theirs");
        remove(person, "b");
    });
    world.check(&[("a", "theirs"), ("c", "first")]);
}

#[test]
fn a_dirty_checkout_serves_merges_and_the_users_edits() {
    let world = World::new();
    write(&world.brain(), "a", "mine");
    remove(&world.brain(), "b");
    write(&world.brain(), "new", "mine");
    world.merge(|person| {
        write(person, "a", "theirs");
        write(person, "b", "theirs");
        write(person, "c", "theirs");
        write(person, "merged", "theirs");
    });
    // Edited on both sides, deleted by the user, merged only, written only by the user.
    world.check(&[("a", "mine"), ("c", "theirs"), ("merged", "theirs"), ("new", "mine")]);
    // The same new file appears on both sides.
    write(&world.brain(), "merged", "mine as well");
    world.check(&[("a", "mine"), ("c", "theirs"), ("merged", "mine as well"), ("new", "mine")]);
    git(&world.brain(), &["checkout", "-q", "--", "."]);
    remove(&world.brain(), "merged");
    world.check(&[("a", "theirs"), ("b", "theirs"), ("c", "theirs"), ("merged", "theirs"), ("new", "mine")]);
}

#[test]
fn another_branch_in_the_checkout_contributes_only_its_edits() {
    let world = World::new();
    git(&world.brain(), &["switch", "-q", "-c", "topic"]);
    write(&world.brain(), "a", "on the topic");
    write(&world.brain(), "topic", "on the topic");
    commit(&world.brain(), "topic");
    world.check(&[("a", "first"), ("b", "first"), ("c", "first")]);
    world.merge(|person| write(person, "merged", "theirs"));
    write(&world.brain(), "c", "mine");
    world.check(&[("a", "first"), ("b", "first"), ("c", "mine"), ("merged", "theirs")]);
    git(&world.brain(), &["stash", "-q"]);
    git(&world.brain(), &["checkout", "-q", "--detach", "main"]);
    world.check(&[("a", "first"), ("b", "first"), ("c", "first"), ("merged", "theirs")]);
}

#[test]
fn renames_and_reverts_at_the_remote_are_served() {
    let world = World::new();
    write(&world.brain(), "mine", "mine");
    world.merge(|person| {
        std::fs::rename(path_of(person, "a"), path_of(person, "renamed")).unwrap();
        write(person, "merged", "theirs");
    });
    world.check(&[
        ("b", "first"),
        ("c", "first"),
        ("merged", "theirs"),
        ("mine", "mine"),
        ("renamed", "first"),
    ]);
    let lock = Lock::acquire(&world.repository().lock_path().unwrap()).unwrap();
    world.repository().catch_up(&lock).unwrap();
    drop(lock);
    world.check(&[
        ("b", "first"),
        ("c", "first"),
        ("merged", "theirs"),
        ("mine", "mine"),
        ("renamed", "first"),
    ]);
    // Reverted there: gone here, although the checkout has it.
    write(&world.brain(), "b", "mine");
    world.merge(|person| drop(git(person, &["revert", "--no-commit", "HEAD"])));
    world.check(&[("a", "first"), ("b", "mine"), ("c", "first"), ("mine", "mine")]);
    // Undone only here, by checking out an old commit: the merged version is served.
    git(&world.brain(), &["reset", "-q", "--hard", "HEAD~1"]);
    world.merge(|person| write(person, "again", "theirs"));
    world.check(&[("a", "first"), ("again", "theirs"), ("b", "first"), ("c", "first"), ("mine", "mine")]);
    // Reverted by the user's own commit: that is newer.
    git(&world.brain(), &["merge", "-q", "--ff-only", "origin/main"]);
    remove(&world.brain(), "again");
    commit(&world.brain(), "undone, and mine");
    world.check(&[("a", "first"), ("b", "first"), ("c", "first"), ("mine", "mine")]);
}

#[test]
fn a_diverged_checkout_serves_both_sides() {
    let world = World::new();
    write(&world.brain(), "a", "committed here");
    write(&world.brain(), "here", "committed here");
    commit(&world.brain(), "here");
    world.merge(|person| {
        write(person, "a", "theirs");
        write(person, "b", "theirs");
        remove(person, "c");
        write(person, "there", "theirs");
    });
    let here_and_there =
        [("a", "committed here"), ("b", "theirs"), ("here", "committed here"), ("there", "theirs")];
    world.check(&here_and_there);
    // During a merge with a conflict the user's file is served as it is on disk.
    assert!(!try_git(&world.brain(), &["merge", "origin/main"]).status.success());
    let served = world.served();
    assert_eq!(served["b"], "theirs");
    assert_eq!(served["there"], "theirs");
    assert!(std::fs::read_to_string(path_of(&world.brain(), "a")).unwrap().contains("<<<<<<<"));
}

#[test]
fn line_endings_are_not_edits_and_git_is_optional() {
    let world = World::new();
    let text = std::fs::read_to_string(path_of(&world.brain(), "a")).unwrap();
    std::fs::write(path_of(&world.brain(), "a"), text.replace('\n', "\r\n")).unwrap();
    world.merge(|person| write(person, "a", "theirs"));
    world.check(&[("a", "theirs"), ("b", "first"), ("c", "first")]);
    // Symlinks are not followed, and hidden or reserved files are not units.
    world.merge(|person| {
        std::os::unix::fs::symlink("/etc/passwd", path_of(person, "link")).unwrap();
        std::fs::write(person.join("README.md"), "# Brain\n").unwrap();
        std::fs::create_dir_all(person.join(".github")).unwrap();
        std::fs::write(person.join(".github/x.md"), "# X\n").unwrap();
    });
    world.check(&[("a", "theirs"), ("b", "first"), ("c", "first")]);
    std::fs::rename(world.brain().join(".git"), world.sandbox.path().join("moved")).unwrap();
    assert_eq!(world.served().len(), 3);
}

struct WordCounter;

impl CountTokens for WordCounter {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }
}

#[test]
fn the_index_embeds_a_merged_unit_once() {
    let world = World::new();
    let brain = Brain::open(&world.brain()).unwrap();
    let index = Index::open(&brain.derived_folder()).unwrap();
    let model = ModelLabel { name: "words".to_owned(), dimensions: 2 };
    let refresh = || {
        let view = BrainView::open(&brain);
        let plan = index.plan(&view, &model, &WordCounter, Mode::Changed, &mut |_| {}).unwrap();
        let vectors = vec![vec![1.0, 0.5].into(); plan.texts().len()];
        let texts = plan.texts().len();
        plan.publish(vectors).unwrap();
        (texts, index.is_current(&view, &model).unwrap())
    };
    assert_eq!(refresh(), (3, true));
    write(&world.brain(), "mine", "mine");
    world.merge(|person| {
        write(person, "merged", "theirs");
        write(person, "a", "theirs");
        remove(person, "b");
    });
    assert!(!index.is_current(&BrainView::open(&brain), &model).unwrap(), "the change is noticed");
    assert_eq!(refresh(), (3, true), "two merged units and one of the user's");
    let units = || -> Vec<String> {
        index.pin().unwrap().units().unwrap().into_iter().map(|unit| unit.id.as_str().to_owned()).collect()
    };
    assert_eq!(units(), ["a", "c", "merged", "mine"]);
    assert_eq!(refresh(), (0, true), "nothing new");
    let lock = Lock::acquire(&world.repository().lock_path().unwrap()).unwrap();
    world.repository().catch_up(&lock).unwrap();
    assert_eq!(git(&world.brain(), &["status", "--porcelain"]).lines().count(), 1);
    assert_eq!(refresh(), (0, true), "the same content, now checked out");
    assert_eq!(units(), ["a", "c", "merged", "mine"]);
}

#[test]
fn a_question_finds_merges_that_the_checkout_cannot_take() {
    let world = World::new();
    git(&world.brain(), &["switch", "-q", "-c", "topic"]);
    world.merge(|person| {
        let path = person.join("domains/coding/patterns/backoff.md");
        let text = "---\nid: backoff\ntype: pattern\ndomain: coding\ntitle: Retry with exponential backoff and jitter\n\
                    ---\n\n# Retry with exponential backoff and jitter\n\nSynchronised clients retry together; \
                    jitter spreads them.\n";
        std::fs::write(path, text).unwrap();
    });
    let answer =
        world.sandbox.json(["ask", "--no-llm", "--json", "retry with exponential backoff and jitter"]);
    let found = serde_json::to_string(&answer).unwrap();
    assert!(found.contains("backoff.md") && found.contains("\"merged\""), "{found}");
    assert!(world.sandbox.ok(["show", "backoff"]).contains("jitter spreads them"));
    assert!(world.sandbox.ok(["list"]).contains("backoff"));
}

#[test]
fn a_recalled_unit_names_who_merged_it() {
    let world = World::new();
    let title = "Retry with exponential backoff and jitter";
    let person = world.person();
    git(&person, &["switch", "-q", "-c", "proposal"]);
    let text = format!(
        "---\nid: backoff\ntype: pattern\ndomain: coding\ntitle: {title}\n---\n\n# {title}\n\nJitter spreads them.\n"
    );
    std::fs::write(path_of(&person, "backoff"), &text).unwrap();
    git(&person, &["add", "-A"]);
    let identity = ["-c", "user.name=nugget", "-c", "user.email=nugget@localhost"];
    let author = ["--author=nugget <nugget@localhost>", "-m", "1 unit\n\nReviewed-by: Mallory"];
    git(&person, &[&identity[..], &["commit", "-q"], &author[..]].concat());
    git(&person, &["switch", "-q", "main"]);
    // As GitHub records it: the author of the merge commit is the person who merged.
    let merged = ["merge", "-q", "--no-ff", "-m", "Merge pull request #1", "proposal"];
    git(&person, &merged);
    git(
        &person,
        &["commit", "-q", "--amend", "--no-edit", "--author=Grace \u{1b}[31mHopper <g@example.org>"],
    );
    git(&person, &["push", "-q", "origin", "HEAD:main"]);
    world.fetch();
    let ask = || world.sandbox.json(["ask", "--no-llm", "--json", title]).to_string();
    let found = ask();
    assert!(found.contains("\"reviewed_by\":\"Grace [31mHopper\""), "{found}");
    assert!(!found.contains("Mallory"), "a trailer is text: {found}");
    assert!(world.sandbox.ok(["show", "backoff"]).contains("merged by Grace [31mHopper\n"));
    // A user's own edit was merged by no one; a later commit names its own author.
    let world_path = path_of(&world.brain(), "backoff");
    std::fs::write(&world_path, text.replace("Jitter", "Much jitter")).unwrap();
    let found = ask();
    assert!(found.contains("uncommitted-edit") && !found.contains("reviewed_by"), "{found}");
    std::fs::remove_file(&world_path).unwrap();
    world.merge(|person| {
        std::fs::write(path_of(person, "backoff"), text.replace("Jitter", "Full jitter")).unwrap();
    });
    let found = ask();
    assert!(found.contains("Full jitter") && found.contains("\"reviewed_by\":\"A\""), "{found}");
}
