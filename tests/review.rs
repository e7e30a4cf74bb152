//! The inbox: what waits is listed, shown, merged, edited, rejected and put off, with and without a remote.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::delivery::{SLUG, brain_at};
use crate::support::github_api::GithubApi;
use crate::support::terminal::InTerminal;
use crate::support::{Sandbox, fixture, git, wait_until, write_script};

pub(crate) const TRANSCRIPT: &str = "transcripts/synthetic/flywheel.jsonl";

/// A brain without a remote where the three units of one session wait.
pub(crate) fn with_inbox() -> Sandbox {
    let sandbox = Sandbox::with_brain();
    let capture = sandbox.capture(&fixture(TRANSCRIPT));
    assert_eq!((&capture["state"], &capture["units"]), (&json!("done"), &json!(3)), "{capture}");
    sandbox
}

pub(crate) fn items(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(["review", "--json"])["items"].as_array().unwrap().clone()
}

fn ids(sandbox: &Sandbox) -> Vec<String> {
    items(sandbox).iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// Runs a command that must fail with this exit code, and returns what it wrote to stderr.
pub(crate) fn fails(sandbox: &Sandbox, code: i32, arguments: &[&str]) -> String {
    let output = sandbox.run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    stderr
}

pub(crate) fn units(folder: &Path) -> Vec<String> {
    let paths = git(folder, &["ls-tree", "-r", "--name-only", "main", "domains"]);
    paths.lines().filter(|path| path.ends_with(".md")).map(str::to_owned).collect()
}

pub(crate) fn branches(folder: &Path) -> String {
    git(folder, &["for-each-ref", "--format=%(refname:short)", "refs/heads/nugget"])
}

#[test]
fn the_list_names_titles_and_show_quotes_the_evidence() {
    let sandbox = with_inbox();
    let list = sandbox.ok(["review"]);
    assert!(list.starts_with("3 units wait for review\n\nsession ad5139ef in invoicing, "), "{list}");
    for (number, title) in
        [(1, "Never acknowledge a message"), (2, "The visibility timeout"), (3, "Use a heartbeat")]
    {
        let row = list.lines().find(|row| row.contains(title)).unwrap_or_else(|| panic!("{title}: {list}"));
        assert!(row.trim_start().starts_with(&format!("{number}  ")), "{list}");
    }
    assert!(list.lines().all(|row| row.chars().count() <= 80), "{list}");
    let items = items(&sandbox);
    assert_eq!(items.len(), 3);
    for item in &items {
        assert_eq!((&item["action"], &item["changed_on_main"]), (&json!("adds"), &json!(false)));
        assert!(item["text"].as_str().unwrap().starts_with("---\nid: "), "{item}");
        let quotes = item["evidence"].as_array().unwrap();
        assert!(
            !quotes.is_empty() && quotes.iter().all(|quote| !quote["excerpt"].as_str().unwrap().is_empty())
        );
        assert!(item.get("number").is_none(), "a program names ids");
    }
    let shown = sandbox.ok(["review", "show", "3"]);
    assert!(
        shown.starts_with("Use a heartbeat instead of a longer timeout\ndecision in messaging · "),
        "{shown}"
    );
    assert!(shown.contains("\n> ") && !shown.contains("---\nid:"), "{shown}");
    let quotes = items[1]["evidence"].as_array().unwrap();
    let (quoted, last) =
        (quotes[0]["excerpt"].as_str().unwrap(), quotes.last().unwrap()["excerpt"].as_str().unwrap());
    let shown = sandbox.ok(["review", "show", "2"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(shown.matches(&quoted[..40]).count(), 1, "what the unit quotes is not repeated: {shown}");
    let evidence = shown.split("From the session:").nth(1).unwrap();
    assert!(evidence.contains(&last.split_whitespace().collect::<Vec<_>>().join(" ")[..40]), "{shown}");
    let shown = sandbox.ok(["review", "show", "3"]);
    assert_eq!(shown, sandbox.ok(["review", "show", "use-a-heart"]));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
}

#[test]
fn what_is_not_there_is_an_error_with_what_is() {
    let sandbox = Sandbox::with_brain();
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    assert_eq!(sandbox.json(["review", "--json"]), json!({ "items": [] }));
    assert!(fails(&sandbox, 3, &["review", "merge", "1"]).contains("nothing waits for review"));
    assert!(sandbox.ok(["review", "merge", "--all"]).contains("nothing else waits"));
    sandbox.capture(&fixture(TRANSCRIPT));
    sandbox.ok(["review"]);
    let error = fails(&sandbox, 3, &["review", "merge", "4"]);
    assert!(error.contains("no number 4") && error.contains("ad5139ef/never-ack"), "{error}");
    assert!(fails(&sandbox, 3, &["review", "show", "no-such-unit"]).contains("no-such-unit"));
    assert!(fails(&sandbox, 2, &["review", "show", "ad5139ef/"]).contains("names 3 units"));
    fails(&sandbox, 2, &["review", "merge"]);
    fails(&sandbox, 2, &["review", "merge", "1", "--all"]);
    assert_eq!(units(&sandbox.brain()), Vec::<String>::new());
}

#[test]
fn a_number_stands_for_what_it_was_printed_for() {
    let sandbox = with_inbox();
    sandbox.ok(["review"]);
    let before = ids(&sandbox);
    let merged = sandbox.ok(["review", "merge", "1"]);
    assert!(merged.starts_with("merged: Never acknowledge"), "{merged}");
    assert!(merged.contains("\n2 units still wait: nugget review\nnext: "), "{merged}");
    // The present list would have another unit at 1.
    assert!(fails(&sandbox, 3, &["review", "merge", "1"]).contains("decided already"));
    let merged = sandbox.ok(["review", "merge", "3"]);
    assert!(merged.starts_with("merged: Use a heartbeat"), "{merged}");
    assert_eq!(ids(&sandbox), [before[1].clone()]);
}

#[test]
fn digits_that_are_no_number_of_the_list_are_a_name() {
    let sandbox = Sandbox::with_brain();
    let text = "---\nid: '404'\ntype: bug\ntitle: Not found\n---\n\n# Not found\n\nA page.\n";
    propose_edit(&sandbox, "nugget/session-20261116-170405-77777777", "domains/coding/bugs/404.md", text);
    for has_list in [false, true] {
        if has_list {
            sandbox.ok(["review"]);
        }
        for name in ["404", "4", "77777777", "777", "1"] {
            let shown = sandbox.ok(["review", "show", name]);
            assert!(shown.starts_with("Not found\n"), "{name}: {shown}");
        }
        let error = fails(&sandbox, 3, &["review", "show", "2"]);
        assert!(error.contains("no number 2"), "{error}");
    }
}

#[test]
fn what_is_rejected_by_mistake_can_be_read_again() {
    let sandbox = with_inbox();
    // No list was printed before: the number stands for the same unit all the same.
    let first = sandbox.ok(["review", "reject", "1"]);
    let title = first.lines().next().unwrap().strip_prefix("rejected: ").unwrap();
    assert!(fails(&sandbox, 3, &["review", "reject", "1"]).contains("decided already"));
    sandbox.ok(["review", "reject", "3"]);
    let last = sandbox.ok(["review", "reject", "2"]);
    let place = last.lines().find_map(|line| line.split_once(": git show ")).unwrap().1;
    let text = sandbox.git(&["show", place]);
    assert!(text.starts_with("---\n"), "{last}");
    assert!(!first.contains("git show"), "its branch is still there: {title}");
}

#[test]
fn parts_are_merged_by_commits_of_nuggets_and_the_branch_goes() {
    let sandbox = with_inbox();
    fs::write(sandbox.brain().join("draft.md"), "mine\n").unwrap();
    fs::write(sandbox.brain().join("brain.yaml"), "version: 1\nname: edited\n").unwrap();
    let status = sandbox.git(&["status", "--porcelain"]);
    sandbox.ok(["review"]);
    sandbox.ok(["review", "merge", "2"]);
    assert_eq!(units(&sandbox.brain()).len(), 1);
    assert_eq!(sandbox.git(&["log", "-1", "--format=%an %cn", "main"]), "nugget nugget\n");
    assert_ne!(branches(&sandbox.brain()), "");
    // With an identity of the person's, whose history it is.
    sandbox.git(&["config", "user.name", "Ada"]);
    sandbox.git(&["config", "user.email", "ada@example.org"]);
    let rest = sandbox.ok(["review", "merge", "--all"]);
    assert!(
        rest.contains("deleted: branch nugget/session-") && rest.ends_with("nothing else waits for review\n"),
        "{rest}"
    );
    assert_eq!(sandbox.git(&["log", "-1", "--format=%an <%ae>", "main"]), "Ada <ada@example.org>\n");
    assert_eq!(units(&sandbox.brain()).len(), 3);
    assert_eq!(branches(&sandbox.brain()), "");
    assert_eq!(sandbox.git(&["status", "--porcelain"]), status);
    sandbox.git(&["fsck", "--strict"]);
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "merged");
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    assert!(sandbox.ok(["ask", "--no-llm", "Why was an invoice mailed twice?"]).contains("reviewed: merged"));
}

#[test]
fn a_whole_branch_is_merged_by_the_person_and_one_merged_by_hand_goes() {
    let sandbox = with_inbox();
    sandbox.git(&["config", "user.name", "Ada"]);
    sandbox.git(&["config", "user.email", "ada@example.org"]);
    let commit = sandbox.json(["status", "--json"])["captures"][0]["commit"].as_str().unwrap().to_owned();
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(sandbox.git(&["rev-parse", "main^2"]).trim(), commit);
    assert_eq!(sandbox.git(&["diff", "--stat", "main^2", "main"]), "");
    assert_eq!(branches(&sandbox.brain()), "");
    let answer = sandbox.ok(["ask", "--no-llm", "Why was an invoice mailed twice?"]);
    assert!(answer.contains("reviewed: merged by Ada"), "{answer}");

    let sandbox = with_inbox();
    let branch = branches(&sandbox.brain());
    sandbox.git(&["merge", "-q", branch.trim()]);
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    assert_eq!(branches(&sandbox.brain()), "");
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "merged");
}

#[test]
fn a_main_branch_of_any_name_gets_what_is_merged_whatever_is_checked_out() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join(".gitconfig"), "[init]\n\tdefaultBranch = trunk\n").unwrap();
    let brain = sandbox.brain();
    sandbox.ok(["init", "--path", brain.to_str().unwrap()]);
    assert!(fs::read_to_string(brain.join("brain.yaml")).unwrap().ends_with("\ndefault_branch: trunk\n"));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    sandbox.capture(&fixture(TRANSCRIPT));
    sandbox.git(&["checkout", "-q", "-b", "topic"]);
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("into: branch trunk\n"), "{merged}");
    let files = |branch: &str| {
        let paths = sandbox.git(&["ls-tree", "-r", "--name-only", branch, "domains"]);
        paths.lines().filter(|path| path.ends_with(".md")).count()
    };
    assert_eq!((files("trunk"), files("topic")), (3, 0));

    // A branch that was renamed later is the only one until there is another.
    let sandbox = with_inbox();
    sandbox.git(&["branch", "-m", "main", "trunk"]);
    sandbox.git(&["checkout", "-q", "-b", "topic"]);
    let error = fails(&sandbox, 1, &["review", "merge", "--all"]);
    assert!(
        error.contains("it is unclear which branch") && error.contains("default_branch: NAME"),
        "{error}"
    );
    let status = sandbox.ok(["status"]);
    assert!(status.contains("\nto review unknown\n") && status.contains("default_branch: NAME"), "{status}");
    sandbox.git(&["checkout", "-q", "trunk"]);
    sandbox.git(&["branch", "-q", "-D", "topic"]);
    assert!(sandbox.ok(["review", "merge", "--all"]).contains("into: branch trunk\n"));
}

#[test]
fn a_merge_is_begun_again_when_the_person_commits_meanwhile() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.ok(["note", "add", "One", "--content", "a\n\nb\n\nc\n"]);
    sandbox.git(&["checkout", "-q", "--detach"]);
    sandbox.ok(["note", "edit", "one", "--content", "A\n\nb\n\nc\n"]);
    sandbox.git(&["checkout", "-q", "main"]);
    let file = sandbox.brain().join("domains/general/notes/one.md");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\nc\n", "\nC\n")).unwrap();
    sandbox.git(&["commit", "-qam", "edited"]);
    // A git that commits when it is asked to merge two texts: the second time, what to build on is chosen already.
    let programs = sandbox.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let script = format!(
        "PATH=${{PATH#*:}}\ncase \" $* \" in *' merge-file '*)\n  echo >> '{0}/times'\n  \
         [ $(wc -l < '{0}/times') -gt 2 ] || git -C '{1}' -c user.name=x -c user.email=x commit -q --allow-empty \
         -m meanwhile;;\nesac\nexec git \"$@\"",
        programs.display(),
        sandbox.brain().display()
    );
    write_script(&programs.join("git"), &script);
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    sandbox.variables.push(("PATH".to_owned(), path));
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.starts_with("merged: One\n"), "{merged}");
    let log = sandbox.git(&["log", "--first-parent", "--format=%s", "-3", "main"]);
    assert!(log.starts_with("Merge 1 unit") && log.lines().nth(1) == Some("meanwhile"), "{log}");
    assert!(fs::read_to_string(&file).unwrap().ends_with("A\n\nb\n\nC\n"));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_file_that_is_no_unit_is_not_merged() {
    let sandbox = with_inbox();
    let item = items(&sandbox)[0].clone();
    let (branch, path) = (item["branch"].as_str().unwrap(), item["path"].as_str().unwrap());
    sandbox.git(&["checkout", "-q", branch]);
    let file = sandbox.brain().join(path);
    let text = fs::read_to_string(&file).unwrap();
    let title = text.lines().find(|line| line.starts_with("title: ")).unwrap();
    fs::write(&file, text.replace(title, "title: a: b")).unwrap();
    sandbox.git(&["commit", "-qam", "by hand"]);
    sandbox.git(&["checkout", "-q", "main"]);
    let list = sandbox.ok(["review"]);
    assert!(list.contains("it is no unit: ") && list.contains("not valid YAML"), "{list}");
    let output = sandbox.run(["review", "merge", "--all"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(units(&sandbox.brain()).len(), 2);
    assert_eq!(items(&sandbox).len(), 1);
    sandbox.ok(["list"]);
}

#[test]
fn a_new_brain_in_a_deleted_ones_place_captures_its_sessions_again() {
    let sandbox = with_inbox();
    sandbox.ok(["review", "reject", "1"]);
    fs::remove_dir_all(sandbox.brain()).unwrap();
    // It may be away only, so that another one is not made by default.
    let refused = sandbox.run(["init"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("mount its disk") && stderr.contains("`nugget init --path ~/brain`"), "{stderr}");
    assert!(!sandbox.brain().exists());
    let created = sandbox.ok(["init", "--path", sandbox.brain().to_str().unwrap()]);
    assert!(created.contains("forgot 1 capture of a brain that was here before"), "{created}");
    let again = sandbox.capture(&fixture(TRANSCRIPT));
    assert_eq!((&again["state"], &again["units"]), (&json!("done"), &json!(3)), "{again}");
    assert_eq!(items(&sandbox).len(), 3);
}

#[test]
fn what_a_killed_merge_has_done_is_not_listed_again() {
    let sandbox = with_inbox();
    let item = items(&sandbox)[1].clone();
    let (branch, path) = (item["branch"].as_str().unwrap(), item["path"].as_str().unwrap());
    // As after a kill between the commit and the record of the decision.
    sandbox.git(&["checkout", branch, "--", path]);
    sandbox.git(&["commit", "-qm", "merged"]);
    assert_eq!(ids(&sandbox).len(), 2);
    // As after a kill between the index and the branch.
    let path = items(&sandbox)[0]["path"].as_str().unwrap().to_owned();
    sandbox.git(&["checkout", branch, "--", &path]);
    assert!(sandbox.ok(["review", "merge", "--all"]).contains("deleted: branch"));
    assert_eq!((units(&sandbox.brain()).len(), branches(&sandbox.brain()).as_str()), (3, ""));
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
}

#[test]
fn an_edited_unit_is_merged_as_the_editor_left_it() {
    let mut sandbox = with_inbox();
    let editor = sandbox.path().join("an editor");
    let script = |text: &str| write_script(&editor, text);
    sandbox.variables.push(("EDITOR".into(), format!("'{}' --wait", editor.display())));
    let id = ids(&sandbox)[2].clone();
    script("exit 3");
    assert!(fails(&sandbox, 1, &["review", "edit", &id]).contains("nothing was merged"));
    script(": > \"$2\"");
    assert!(fails(&sandbox, 1, &["review", "edit", &id]).contains("the file is empty"));
    script("printf -- '---\\ntype: [\\n' > \"$2\"");
    let error = fails(&sandbox, 1, &["review", "edit", &id]);
    assert!(error.contains("the text is no unit") && error.contains("your text is kept in"), "{error}");
    let kept = error.split("kept in ").nth(1).unwrap().trim();
    assert!(fs::read_to_string(kept).unwrap().contains("type: ["));
    fs::remove_file(kept).unwrap();
    script("echo 'just a text' > \"$2\"");
    let error = fails(&sandbox, 1, &["review", "edit", &id]);
    assert!(error.contains("the front matter is missing"), "{error}");
    fs::remove_file(error.split("kept in ").nth(1).unwrap().trim()).unwrap();
    script(":");
    let said = sandbox.ok(["review", "edit", &id]);
    assert!(
        said.starts_with("nothing was changed, so nothing was merged; as it is: nugget review"),
        "{said}"
    );
    assert_eq!(sandbox.json(["review", "edit", &id, "--json"])["decided"], json!([]));
    assert_eq!(ids(&sandbox).len(), 3);

    let secret = format!("ghp_{}", "a1B2".repeat(9));
    script(&format!(
        "sed 's/^title: .*/title: Prefer a heartbeat/' \"$2\" > \"$2.new\" && mv \"$2.new\" \"$2\"; echo {secret} >> \"$2\""
    ));
    let merged = sandbox.ok(["review", "edit", &id]);
    assert!(merged.starts_with("merged: Prefer a heartbeat\n"), "{merged}");
    let path = units(&sandbox.brain()).pop().unwrap();
    let text = sandbox.git(&["show", &format!("main:{path}")]);
    assert!(text.contains("\ntitle: Prefer a heartbeat\n") && text.contains("[redacted: "), "{text}");
    assert!(!text.contains(&secret), "{text}");
    assert_eq!(ids(&sandbox).len(), 2);
    // The rest completes the branch, though it has another text of the edited unit.
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(branches(&sandbox.brain()), "");
    assert!(sandbox.git(&["show", &format!("main:{path}")]).contains("\ntitle: Prefer a heartbeat\n"));
}

#[test]
fn what_was_rejected_is_not_proposed_again() {
    let sandbox = with_inbox();
    sandbox.ok(["review"]);
    let rejected = sandbox.ok(["review", "reject", "2", "--because", "true only there"]);
    assert!(rejected.starts_with("rejected: The visibility timeout"), "{rejected}");
    assert!(rejected.ends_with("2 units still wait: nugget review\n"), "{rejected}");
    assert_eq!(ids(&sandbox).len(), 2);
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!((units(&sandbox.brain()).len(), branches(&sandbox.brain()).as_str()), (2, ""));
    // As if the session had never been captured.
    sandbox.ok(["forget-capture", "1"]);
    let again = sandbox.capture(&fixture(TRANSCRIPT));
    assert_eq!(again["state"], "nothing", "{again}");
    assert!(again["reason"].as_str().unwrap().contains("rejected before: the-visibility-timeout"), "{again}");
    assert_eq!(ids(&sandbox), Vec::<String>::new());
}

#[test]
fn what_is_captured_again_after_it_was_removed_waits_for_review() {
    let sandbox = with_inbox();
    sandbox.ok(["review", "merge", "--all"]);
    let list = sandbox.json(["list", "--json"]);
    let merged: Vec<&str> =
        list["units"].as_array().unwrap().iter().map(|unit| unit["id"].as_str().unwrap()).collect();
    assert_eq!(merged.len(), 3, "{list}");
    sandbox.ok(["rm"].into_iter().chain(merged));
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(units(&sandbox.brain()), Vec::<String>::new());
    sandbox.ok(["forget-capture", "1"]);
    assert_eq!(sandbox.capture(&fixture(TRANSCRIPT))["units"], 3);
    assert_eq!(ids(&sandbox).len(), 3);
    sandbox.ok(["review", "merge", "1"]);
    assert_eq!(units(&sandbox.brain()).len(), 1);
}

#[test]
fn the_skill_edits_a_unit_whatever_editor_its_user_has() {
    let sandbox = with_inbox();
    let skill = include_str!("../plugin/skills/review/SKILL.md");
    let line = skill.lines().find(|line| line.contains("nugget review edit")).unwrap();
    let item = items(&sandbox)[0].clone();
    let text = item["text"].as_str().unwrap().replace("Never acknowledge", "Do not acknowledge");
    let file = sandbox.path().join("agreed.md");
    fs::write(&file, text).unwrap();
    let command = line.trim().trim_matches('`').replace("/path/of/that/file", file.to_str().unwrap());
    let command = command.replace("nugget ", &format!("'{}' ", env!("CARGO_BIN_EXE_nugget")));
    let command = command.replace("'ID'", &format!("'{}'", item["id"].as_str().unwrap()));
    let mut shell = sandbox.command_of("sh");
    let output = shell.args(["-c", &command]).env("VISUAL", "false").env("EDITOR", "false").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("merged: Do not acknowledge"), "{command}: {printed}");
}

#[test]
fn the_branch_of_a_forgotten_edit_is_not_queued_again() {
    let sandbox = with_inbox();
    sandbox.ok(["review", "merge", "--all"]);
    let list = sandbox.json(["list", "--json"]);
    sandbox.ok(["rm", list["units"][0]["id"].as_str().unwrap()]);
    let edits = || {
        let captures = sandbox.json(["status", "--json"])["captures"].as_array().unwrap().clone();
        captures.into_iter().filter(|capture| capture["origin"] == "edit").collect::<Vec<_>>()
    };
    let [edit] = &edits()[..] else { panic!("{:?}", edits()) };
    sandbox.ok(["forget-capture", &edit["id"].to_string()]);
    sandbox.capture(&fixture("transcripts/synthetic/rust_pool.jsonl"));
    assert_eq!(edits(), Vec::<Value>::new());
    // It waits all the same: only its record is forgotten.
    assert!(branches(&sandbox.brain()).contains(edit["branch"].as_str().unwrap()));
    assert!(items(&sandbox).iter().any(|item| item["branch"] == edit["branch"]));
}

#[test]
fn a_branch_of_which_all_is_rejected_goes() {
    let sandbox = with_inbox();
    let main = sandbox.git(&["rev-parse", "main"]);
    let rejected = sandbox.ok(["review", "reject", "--all"]);
    assert_eq!(rejected.matches("rejected: ").count(), 3);
    assert_eq!((sandbox.git(&["rev-parse", "main"]), branches(&sandbox.brain()).as_str()), (main, ""));
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "closed");
}

#[test]
fn what_was_rejected_is_listed_with_its_reason_and_its_text() {
    let sandbox = with_inbox();
    assert_eq!(sandbox.ok(["review", "--rejected"]), "nothing was rejected here\n");
    sandbox.ok(["review", "reject", "3", "--because", "true only on that machine"]);
    let title = "Use a heartbeat instead of a longer timeout";
    let listed = sandbox.ok(["review", "--rejected"]);
    assert!(listed.starts_with(&format!("{title}\n  rejected ")), "{listed}");
    assert!(listed.contains(": true only on that machine\n  git show "), "{listed}");
    // The branch is deleted with what is left.
    sandbox.ok(["review", "reject", "--all"]);
    assert_eq!(branches(&sandbox.brain()), "");
    let listed = sandbox.json(["review", "--rejected", "--json"]);
    let listed = listed["rejected"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    let first = &listed[2];
    assert_eq!((&first["title"], &first["because"]), (&json!(title), &json!("true only on that machine")));
    let place = format!("{}:{}", first["commit"].as_str().unwrap(), first["path"].as_str().unwrap());
    assert!(sandbox.git(&["show", &place]).contains(&format!("# {title}")));
    // A person may take it back by hand.
    sandbox.git(&[
        "checkout",
        "-q",
        first["commit"].as_str().unwrap(),
        "--",
        first["path"].as_str().unwrap(),
    ]);
    sandbox.git(&["commit", "-q", "-m", "Take it back"]);
    assert!(sandbox.ok(["list"]).contains(title));
    // Where git has deleted the commit, the title is still known.
    sandbox.git(&["reflog", "expire", "--expire=now", "--all"]);
    sandbox.git(&["gc", "-q", "--prune=now"]);
    let listed = sandbox.json(["review", "--rejected", "--json"]);
    assert_eq!(
        (&listed["rejected"][2]["title"], &listed["rejected"][2]["commit"]),
        (&json!(title), &json!(null))
    );
}

#[test]
fn what_is_put_off_leaves_the_list_and_not_the_branch() {
    let sandbox = with_inbox();
    sandbox.ok(["review"]);
    assert!(sandbox.ok(["review", "later", "1"]).starts_with("put off until tomorrow: Never acknowledge"));
    let list = sandbox.ok(["review"]);
    assert!(
        list.starts_with("2 units wait for review\n")
            && list.ends_with("1 unit put off: nugget review --list --all\n"),
        "{list}"
    );
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("nothing else waits for review\n1 unit put off: "), "{merged}");
    assert_eq!(units(&sandbox.brain()).len(), 2);
    assert_ne!(branches(&sandbox.brain()), "");
    let all = sandbox.ok(["review", "--all"]);
    assert!(all.contains("put off for "), "it names the time left: {all}");
    assert!(all.contains("decide: nugget review merge 1, edit 1"), "`--all` would merge nothing: {all}");
    sandbox.ok(["review", "merge", "never-ack"]);
    assert_eq!((units(&sandbox.brain()).len(), branches(&sandbox.brain()).as_str()), (3, ""));
}

/// Commits a text of a unit on a branch of its own that begins at `main`.
fn propose_edit(sandbox: &Sandbox, branch: &str, path: &str, text: &str) {
    sandbox.git(&["switch", "-q", "-c", branch, "main"]);
    fs::create_dir_all(sandbox.brain().join(path).parent().unwrap()).unwrap();
    fs::write(sandbox.brain().join(path), text).unwrap();
    sandbox.git(&["add", path]);
    sandbox.git(&["commit", "-qm", "edit"]);
    sandbox.git(&["switch", "-q", "main"]);
}

#[test]
fn two_branches_complete_one_unit_and_a_conflict_is_left_to_edit() {
    let mut sandbox = Sandbox::with_brain();
    let path = "domains/coding/patterns/pools.md";
    let unit = |day: u8, text: &str| {
        format!(
            "---\nid: pools\ntype: pattern\ntitle: Pools\nlast_modified: 2026-11-0{day}T00:00:00Z\n---\n\n# Pools\n\n{text}\n"
        )
    };
    fs::create_dir_all(sandbox.brain().join("domains/coding/patterns")).unwrap();
    fs::write(sandbox.brain().join(path), unit(1, "Bound them.")).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "unit"]);
    propose_edit(&sandbox, "nugget/one", path, &unit(2, "Bound them.\n\n## More\n\nFirst."));
    propose_edit(&sandbox, "nugget/two", path, &unit(3, "Bound them.\n\n## Most\n\nSecond."));
    let list = sandbox.ok(["review"]);
    assert_eq!(list.matches("adds to a unit that you have").count(), 2, "{list}");
    let error = fails(&sandbox, 3, &["review", "show", "poools"]);
    assert!(error.contains("did you mean `pools`?"), "{error}");
    sandbox.ok(["review", "merge", "--all"]);
    let text = sandbox.git(&["show", &format!("main:{path}")]);
    assert!(text.ends_with("Bound them.\n\n## More\n\nFirst.\n\n## Most\n\nSecond.\n"), "{text}");
    assert!(text.contains("last_modified: 2026-11-03"), "{text}");
    assert_eq!(sandbox.git(&["status", "--porcelain"]), "");
    assert_eq!(branches(&sandbox.brain()), "");

    propose_edit(&sandbox, "nugget/other", path, &text.replace("Bound them.", "Bound most of them."));
    let list = sandbox.ok(["review"]);
    assert!(list.contains("changes a unit that you have") && !list.contains("adds to"), "{list}");
    sandbox.ok(["review", "reject", "--all"]);
    propose_edit(&sandbox, "nugget/three", path, &text.replace("Bound them.", "Bound all of them."));
    fs::write(sandbox.brain().join(path), text.replace("Bound them.", "Bound some of them.")).unwrap();
    sandbox.git(&["commit", "-qam", "by hand"]);
    let main = sandbox.git(&["rev-parse", "main"]);
    let error = fails(&sandbox, 1, &["review", "merge", "--all"]);
    assert!(
        error.contains("1 unit was not merged") && error.contains("nugget review edit three/pools"),
        "{error}"
    );
    assert_eq!(sandbox.git(&["rev-parse", "main"]), main);
    assert!(sandbox.ok(["review"]).contains("your main branch has changed it since"));
    sandbox.variables.push(("EDITOR".into(), "true".into()));
    let error = fails(&sandbox, 1, &["review", "edit", "pools"]);
    assert!(error.contains("still has conflict markers"), "{error}");
    fs::remove_file(error.split("kept in ").nth(1).unwrap().trim()).unwrap();
    let editor = sandbox.path().join("editor");
    fs::write(&editor, "sed -i -e '/^<<<<<<</,/^=======/d' -e '/^>>>>>>>/d' \"$1\"\n").unwrap();
    sandbox.variables.push(("EDITOR".into(), format!("sh {}", editor.display())));
    sandbox.ok(["review", "edit", "pools"]);
    assert!(sandbox.git(&["show", &format!("main:{path}")]).contains("\nBound all of them.\n"));
    assert_eq!(branches(&sandbox.brain()), "");

    // A unit that is gone from the default branch is brought back only by who changes its text.
    propose_edit(&sandbox, "nugget/four", path, &unit(4, "Bound each of them."));
    sandbox.git(&["rm", "-q", path]);
    sandbox.git(&["commit", "-qm", "not any more"]);
    assert!(sandbox.ok(["review"]).contains("your main branch has removed it since"));
    let error = fails(&sandbox, 1, &["review", "merge", "--all"]);
    assert!(error.contains("nugget review reject four/pools leaves it removed"), "{error}");
    sandbox.variables.push(("EDITOR".into(), "true".into()));
    let error = fails(&sandbox, 1, &["review", "edit", "pools"]);
    assert!(error.contains("nugget review reject four/pools leaves your main branch as it is"), "{error}");
    sandbox.ok(["review", "reject", "pools"]);
    assert_eq!((branches(&sandbox.brain()), units(&sandbox.brain())), (String::new(), Vec::new()));
}

#[test]
fn a_conflict_within_code_is_not_merged_by_an_edit_beside_it() {
    let mut sandbox = Sandbox::with_brain();
    let path = "domains/coding/patterns/pools.md";
    let unit = |command: &str| {
        format!(
            "---\nid: pools\ntype: pattern\ntitle: Pools\n---\n\n# Pools\n\nA title\n=======\n\n```sh\n{command}\n```\n\nEnd.\n"
        )
    };
    let main = |sandbox: &Sandbox| sandbox.git(&["show", &format!("main:{path}")]);
    fs::create_dir_all(sandbox.brain().join("domains/coding/patterns")).unwrap();
    fs::write(sandbox.brain().join(path), unit("run --size 1")).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "unit"]);
    propose_edit(&sandbox, "nugget/one", path, &unit("run --size 2"));
    fs::write(sandbox.brain().join(path), unit("run --size 3")).unwrap();
    sandbox.git(&["commit", "-qam", "by hand"]);
    for left in ["s/x/x/", "/^<<<<<<</d;/^>>>>>>>/d"] {
        let mut command = sandbox.command();
        command.env("EDITOR", format!("sed -i -e 's/End/The end/;{left}'"));
        let output = command.args(["review", "edit", "1"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("still has conflict markers"), "{left}: {error}");
        fs::remove_file(error.split("kept in ").nth(1).unwrap().trim()).unwrap();
    }
    assert_eq!(main(&sandbox), unit("run --size 3"));
    let resolve = "sed -i -e '/^<<<<<<< main/,/^=======/d' -e '/^>>>>>>>/d'";
    sandbox.variables.push(("EDITOR".into(), resolve.into()));
    sandbox.ok(["review", "edit", "1"]);
    assert_eq!(main(&sandbox), unit("run --size 2"));
}

#[test]
fn of_two_units_with_one_id_or_name_both_are_kept() {
    let mut sandbox = Sandbox::with_brain();
    let propose = |branch: &str, domain: &str, text: &str| {
        let path = format!("domains/{domain}/notes/deployment.md");
        sandbox.git(&["switch", "-q", "-c", branch, "main"]);
        fs::create_dir_all(sandbox.brain().join(&path).parent().unwrap()).unwrap();
        let unit =
            format!("---\nid: deployment\ntype: note\ntitle: Deployment\n---\n\n# Deployment\n\n{text}\n");
        fs::write(sandbox.brain().join(&path), unit).unwrap();
        sandbox.git(&["add", "."]);
        sandbox.git(&["commit", "-qm", "unit"]);
        sandbox.git(&["switch", "-q", "main"]);
    };
    propose("nugget/one", "shop", "The shop is deployed by helm.");
    propose("nugget/two", "mail", "The mail server is deployed by hand.");
    propose("nugget/three", "shop", "Deployments of the shop are announced.");
    sandbox.ok(["review", "merge", "one/deployment"]);
    // In another folder with the same id.
    let error = fails(&sandbox, 1, &["review", "merge", "two/deployment"]);
    assert!(error.contains("give it another `id`: nugget review edit two/deployment"), "{error}");
    let editor = sandbox.path().join("editor");
    fs::write(&editor, "sed -i -e 's/^id: .*/id: mail-deployment/' \"$1\"\n").unwrap();
    sandbox.variables.push(("EDITOR".into(), format!("sh {}", editor.display())));
    sandbox.ok(["review", "edit", "two/deployment"]);
    // At the same path.
    assert!(sandbox.ok(["review"]).contains("keeps both if you give this one another id"));
    fails(&sandbox, 1, &["review", "merge", "--all"]);
    let ours = "-e '/^<<<<<<</,/^=======/d' -e '/^>>>>>>>/d' -e 's/^id: .*/id: announcements/'";
    fs::write(&editor, format!("sed -i {ours} \"$1\"\n")).unwrap();
    sandbox.ok(["review", "edit", "three/deployment"]);
    let text = |path: &str| sandbox.git(&["show", &format!("main:domains/{path}.md")]);
    assert!(text("shop/notes/deployment").contains("by helm"));
    assert!(text("mail/notes/deployment").contains("id: mail-deployment"));
    assert!(text("shop/notes/announcements").contains("are announced"));
    let listed = sandbox.ok(["list"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert_eq!(branches(&sandbox.brain()), "");
}

#[test]
fn a_refused_merge_changes_nothing_and_says_why() {
    let sandbox = with_inbox();
    let path = items(&sandbox)[0]["path"].as_str().unwrap().to_owned();
    let file = sandbox.brain().join(&path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "my own draft\n").unwrap();
    let main = sandbox.git(&["rev-parse", "main"]);
    let output = sandbox.run(["review", "merge", "--all"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(&format!("the untracked file {path} is in the way")), "{printed}");
    assert_eq!(sandbox.git(&["rev-parse", "main"]), main);
    assert_eq!(fs::read_to_string(&file).unwrap(), "my own draft\n");
    assert_eq!(ids(&sandbox).len(), 3);
    fs::remove_file(&file).unwrap();
    // Another branch is checked out: main moves, the checkout stays.
    sandbox.git(&["switch", "-q", "-c", "topic"]);
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(units(&sandbox.brain()).len(), 3);
    assert_eq!(sandbox.git(&["status", "--porcelain", "--branch"]), "## topic\n");
    assert!(!file.exists());
}

#[test]
fn on_github_a_whole_branch_is_pushed_and_its_pull_request_merged() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    sandbox.capture(&fixture(TRANSCRIPT));
    let pull = api.pulls(SLUG).remove(0);
    assert!(sandbox.ok(["review"]).contains(&format!("/pull/{}", pull.number)));
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("deleted: branch nugget/session-"), "{merged}");
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    assert_eq!(git(&bare, &["rev-parse", "main"]), sandbox.git(&["rev-parse", "main"]));
    assert_eq!(
        (units(&bare).len(), branches(&bare).as_str(), branches(&sandbox.brain()).as_str()),
        (3, "", "")
    );
    let pull = api.pulls(SLUG).remove(0);
    assert!(pull.merged_at.is_some() && pull.comments.is_empty(), "{pull:?}");
    sandbox.ok(["sync"]);
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "merged");
}

#[test]
fn on_github_a_part_is_pushed_and_the_rest_closed_with_its_reason() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    sandbox.capture(&fixture(TRANSCRIPT));
    sandbox.ok(["review"]);
    sandbox.ok(["review", "merge", "1"]);
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    assert_eq!(units(&bare).len(), 1);
    assert!(api.pulls(SLUG)[0].is_open && api.pulls(SLUG)[0].comments.is_empty());
    // A sync in between leaves the branch as it is.
    sandbox.ok(["sync"]);
    assert_eq!(ids(&sandbox).len(), 2);
    for nothing in ["reject", "merge"] {
        assert_eq!(sandbox.run(["review", nothing, ""]).status.code(), Some(3));
    }
    let rejected = sandbox.ok(["review", "reject", "2", "3", "--because", "not @here, closes #7"]);
    assert!(rejected.contains("pull request #1 closed"), "{rejected}");
    let pull = api.pulls(SLUG).remove(0);
    assert!(!pull.is_open && pull.merged_at.is_none());
    let [comment] = pull.comments.as_slice() else { panic!("{pull:?}") };
    assert!(
        comment.contains("Merged:\n- Never acknowledge") && comment.contains("\nRejected:\n- "),
        "{comment}"
    );
    assert!(!comment.contains("@here") && !comment.contains("closes #7"), "mentions nobody: {comment}");
    assert_eq!((branches(&bare).as_str(), branches(&sandbox.brain()).as_str()), ("", ""));
    assert_eq!(units(&bare).len(), 1);
    sandbox.ok(["sync"]);
    assert_eq!(sandbox.json(["status", "--json"])["reviews"][0]["state"], "merged");
}

#[test]
fn without_a_token_it_says_what_to_close() {
    let api = GithubApi::start();
    let mut sandbox = brain_at(&api);
    sandbox.capture(&fixture(TRANSCRIPT));
    let variables = sandbox.variables.clone();
    sandbox.variables.retain(|(name, _)| name != "GITHUB_TOKEN");
    let rejected = sandbox.ok(["review", "reject", "--all", "--because", "no"]);
    assert!(
        rejected.contains("kept: branch nugget/session-")
            && rejected.contains("/pull/1 and delete its branch"),
        "{rejected}"
    );
    assert!(api.pulls(SLUG)[0].is_open);
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    // With the token back, a sync does it.
    sandbox.variables = variables;
    sandbox.ok(["sync"]);
    let pull = api.pulls(SLUG).remove(0);
    assert!(!pull.is_open && pull.comments[0].contains(": no"), "{pull:?}");
    assert_eq!(branches(&sandbox.brain()), "");
}

/// A brain whose remote is a folder, with the three units delivered to it.
pub(crate) fn with_folder_remote() -> (Sandbox, std::path::PathBuf) {
    let mut sandbox = Sandbox::with_brain();
    // The tests sync explicitly, so that each knows when.
    sandbox.variables.push(("NUGGET_SYNC_MINUTES".into(), "0".into()));
    let bare = sandbox.path().join("remote.git");
    git(sandbox.path(), &["clone", "-q", "--bare", "brain", "remote.git"]);
    sandbox.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    sandbox.ok(["sync"]);
    sandbox.capture(&fixture(TRANSCRIPT));
    wait_until("the branch is delivered", || !branches(&bare).is_empty());
    (sandbox, bare)
}

#[test]
fn on_another_host_the_default_branch_is_pushed() {
    let (sandbox, bare) = with_folder_remote();
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("deleted: branch nugget/") && !merged.contains("note:"), "{merged}");
    assert_eq!(git(&bare, &["rev-parse", "main"]), sandbox.git(&["rev-parse", "main"]));
    assert_eq!((branches(&bare).as_str(), branches(&sandbox.brain()).as_str()), ("", ""));
}

#[test]
fn on_another_host_a_squashed_branch_is_deleted_by_the_next_sync() {
    let (sandbox, bare) = with_folder_remote();
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    let other = sandbox.path().join("other");
    let branch = branches(&bare).split_whitespace().next_back().unwrap().to_owned();
    git(&other, &["merge", "-q", "--squash", &format!("origin/{branch}")]);
    git(&other, &["-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "squashed"]);
    git(&other, &["push", "-q"]);
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(
        (&synced["remote"]["merged"], &synced["remote"]["deleted"]),
        (&json!([1]), &json!(1)),
        "{synced}"
    );
    assert_eq!((branches(&bare).as_str(), branches(&sandbox.brain()).as_str()), ("", ""));
}

#[test]
fn offline_it_is_merged_here_and_pushed_by_the_next_sync() {
    let (sandbox, bare) = with_folder_remote();
    let away = bare.with_extension("away");
    fs::rename(&bare, &away).unwrap();
    sandbox.ok(["review"]);
    let merged = sandbox.ok(["review", "merge", "1"]);
    assert!(merged.contains("note: merged here, not pushed yet"), "{merged}");
    let merged = sandbox.ok(["review", "merge", "2", "3"]);
    assert!(merged.contains("it stays until `nugget sync` reaches the remote"), "{merged}");
    assert_eq!(units(&sandbox.brain()).len(), 3);
    assert_eq!(sandbox.ok(["review"]), "nothing waits for review\n");
    fs::rename(&away, &bare).unwrap();
    let synced = sandbox.ok(["sync"]);
    assert!(synced.contains("what you merged offline is pushed now"), "{synced}");
    assert_eq!(git(&bare, &["rev-parse", "main"]), sandbox.git(&["rev-parse", "main"]));
    assert_eq!((branches(&bare).as_str(), branches(&sandbox.brain()).as_str()), ("", ""));
}

/// Merges what waits while the remote cannot be reached.
fn merge_offline(sandbox: &Sandbox, bare: &Path) {
    let away = bare.with_extension("away");
    fs::rename(bare, &away).unwrap();
    sandbox.ok(["review", "merge", "--all"]);
    fs::rename(&away, bare).unwrap();
}

#[test]
fn what_was_removed_at_the_remote_is_not_pushed_again() {
    let (sandbox, bare) = with_folder_remote();
    let before = git(&bare, &["rev-parse", "main"]);
    merge_offline(&sandbox, &bare);
    assert_eq!(sandbox.json(["sync", "--json"])["remote"]["pushed"], true);
    let merged = git(&bare, &["rev-parse", "main"]);
    assert_ne!(merged, before);
    git(&bare, &["update-ref", "refs/heads/main", before.trim()]);
    let follow = format!("git rebase --onto origin/main {}", &merged[..10]);
    for _ in 0..2 {
        let synced = &sandbox.json(["sync", "--json"])["remote"];
        assert_eq!((&synced["pushed"], &synced["error"]), (&json!(false), &Value::Null), "{synced}");
        assert!(synced["not_moved_because"].as_str().unwrap().contains(&follow), "{synced}");
        assert_eq!(git(&bare, &["rev-parse", "main"]), before);
    }
    for command in ["status", "doctor"] {
        let printed = String::from_utf8(sandbox.run([command]).stdout).unwrap();
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(printed.contains(&follow) && !printed.contains("git push)"), "{printed}");
    }
    // Nor with what is merged later.
    sandbox.capture(&fixture("transcripts/synthetic/go_race.jsonl"));
    let printed = sandbox.ok(["review", "merge", "--all"]);
    assert!(printed.contains("not pushed: origin/main was rewritten"), "{printed}");
    assert_eq!(git(&bare, &["rev-parse", "main"]), before);
    sandbox.git(&follow.split(' ').skip(1).collect::<Vec<_>>());
    let kept = units(&sandbox.brain());
    assert!(!kept.is_empty() && kept.iter().all(|path| !path.contains("heartbeat")), "{kept:?}");
    assert!(!sandbox.ok(["sync"]).contains("rewritten"));
}

#[test]
fn a_merge_on_what_was_removed_at_the_remote_is_not_pushed() {
    let (sandbox, bare) = with_folder_remote();
    let before = git(&bare, &["rev-parse", "main"]);
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    let other = sandbox.path().join("other");
    git(&other, &["commit", "-q", "--allow-empty", "-m", "theirs"]);
    git(&other, &["push", "-q"]);
    sandbox.ok(["sync"]);
    merge_offline(&sandbox, &bare);
    git(&bare, &["update-ref", "refs/heads/main", before.trim()]);
    // By the person, so that no fetch of nugget's sees it.
    sandbox.git(&["fetch", "-q"]);
    let synced = sandbox.json(["sync", "--json"]);
    assert_eq!(synced["remote"]["pushed"], false, "{synced}");
    assert_eq!(git(&bare, &["rev-parse", "main"]), before);
}

#[test]
fn a_default_branch_renamed_at_the_remote_is_named_with_what_to_do() {
    let api = GithubApi::start();
    let sandbox = brain_at(&api);
    sandbox.capture(&fixture(TRANSCRIPT));
    api.rename_default_branch(SLUG, "trunk");
    let follow = "`git branch -m main trunk`, then `git branch -u origin/trunk`";
    assert!(sandbox.ok(["sync"]).contains(follow));
    for (command, code) in [(&["review", "merge", "--all"][..], 1), (&["status"], 0), (&["doctor"], 0)] {
        let output = sandbox.run(command);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(printed.contains(follow), "{printed}");
    }
    sandbox.git(&["branch", "-m", "main", "trunk"]);
    sandbox.git(&["branch", "-u", "origin/trunk"]);
    sandbox.ok(["review", "merge", "--all"]);
    let bare = api.with_repository(SLUG, |repo| repo.bare.clone());
    assert_eq!(git(&bare, &["rev-parse", "trunk"]), sandbox.git(&["rev-parse", "trunk"]));
}

#[test]
fn commits_of_the_person_are_not_pushed_with_a_merge() {
    let (sandbox, bare) = with_folder_remote();
    let before = git(&bare, &["rev-parse", "main"]);
    sandbox.git(&["commit", "-q", "--allow-empty", "-m", "mine, not pushed"]);
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("commits of yours that are not pushed"), "{merged}");
    assert_eq!(git(&bare, &["rev-parse", "main"]), before);
    assert_eq!(units(&sandbox.brain()).len(), 3);
    sandbox.ok(["sync"]);
    assert_eq!(git(&bare, &["rev-parse", "main"]), before);
    assert_ne!(branches(&bare), "", "the remote has nothing of it yet but the branch");
    sandbox.git(&["push", "-q", "origin", "main"]);
    sandbox.ok(["sync"]);
    assert_eq!((branches(&bare).as_str(), branches(&sandbox.brain()).as_str()), ("", ""));
}

#[test]
fn a_merge_into_a_diverged_main_branch_drops_nothing_of_the_remotes() {
    let (sandbox, bare) = with_folder_remote();
    let other = sandbox.path().join("other");
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    let unit = "---\nid: theirs\ntype: note\n---\n\n# Theirs\n\nMerged on another machine.\n";
    fs::create_dir_all(other.join("domains/general/notes")).unwrap();
    fs::write(other.join("domains/general/notes/theirs.md"), unit).unwrap();
    git(&other, &["add", "."]);
    git(&other, &["commit", "-qm", "theirs"]);
    git(&other, &["push", "-q"]);
    // The branch starts from what is at the remote; the local main branch goes its own way.
    sandbox.ok(["note", "add", "Mine", "--content", "Not pushed."]);
    sandbox.git(&["fetch", "-q"]);
    let session = branches(&sandbox.brain()).trim().trim_start_matches("* ").to_owned();
    let parent = sandbox.git(&["rev-parse", &format!("{session}^")]);
    sandbox.git(&["checkout", "-q", &session]);
    sandbox.git(&["rebase", "-q", "--onto", "origin/main", parent.trim()]);
    sandbox.git(&["checkout", "-q", "main"]);
    let merged = sandbox.ok(["review", "merge", "--all"]);
    assert!(merged.contains("git pull --no-rebase"), "{merged}");
    sandbox.git(&["pull", "-q", "--no-rebase", "--no-edit", "origin", "main"]);
    for path in ["theirs", "mine"] {
        assert!(sandbox.brain().join(format!("domains/general/notes/{path}.md")).exists(), "{path}");
    }
    sandbox.git(&["push", "-q", "origin", "main"]);
    assert!(git(&bare, &["show", "main:domains/general/notes/theirs.md"]).contains("another machine"));
    assert_eq!(units(&bare).len(), 5);
}

#[test]
fn offline_too_a_merge_has_what_was_fetched() {
    let (sandbox, bare) = with_folder_remote();
    let other = sandbox.path().join("other");
    git(sandbox.path(), &["clone", "-q", "remote.git", "other"]);
    fs::write(other.join("README.md"), "theirs\n").unwrap();
    git(&other, &["add", "."]);
    git(&other, &["commit", "-qm", "theirs"]);
    git(&other, &["push", "-q"]);
    sandbox.git(&["fetch", "-q"]);
    let away = bare.with_extension("away");
    fs::rename(&bare, &away).unwrap();
    sandbox.ok(["review", "merge", "--all"]);
    assert_eq!(sandbox.git(&["show", "main:README.md"]), "theirs\n");
    fs::rename(&away, &bare).unwrap();
    sandbox.ok(["sync"]);
    assert_eq!(git(&bare, &["rev-parse", "main"]), sandbox.git(&["rev-parse", "main"]));
}

#[test]
fn what_was_merged_at_the_remote_meanwhile_is_not_rejected() {
    let (sandbox, bare) = with_folder_remote();
    let session = branches(&bare).trim().to_owned();
    git(&bare, &["update-ref", "refs/heads/main", &session]);
    let error = fails(&sandbox, 1, &["review", "reject", "--all"]);
    assert!(error.contains("not rejected"), "{error}");
    sandbox.ok(["sync"]);
    assert_eq!(units(&sandbox.brain()).len(), 3);
}

#[test]
fn a_remote_that_refuses_the_default_branch_changes_nothing() {
    let (sandbox, bare) = with_folder_remote();
    let hook = bare.join("hooks/update");
    write_script(&hook, "[ \"$1\" != refs/heads/main ] || { echo protected; exit 1; }");
    let main = sandbox.git(&["rev-parse", "main"]);
    let output = sandbox.run(["review", "merge", "--all"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.matches("takes no pushes of its main branch").count(), 1, "{printed}");
    assert_eq!(printed.matches("not merged: ").count(), 3, "{printed}");
    let hint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        hint.contains("merge the branch nugget/session-") && hint.contains("then `nugget sync`"),
        "{hint}"
    );
    assert_eq!(sandbox.git(&["rev-parse", "main"]), main);
    assert_eq!(ids(&sandbox).len(), 3);

    // Merged here while the remote was away: the hints name what gets it out.
    let away = bare.with_extension("away");
    fs::rename(&bare, &away).unwrap();
    sandbox.ok(["review", "merge", "--all"]);
    fs::rename(&away, &bare).unwrap();
    let synced = sandbox.ok(["sync"]);
    assert!(
        synced.contains("git push origin HEAD:refs/heads/NAME") && !synced.contains("below `nugget/`"),
        "{synced}"
    );
    let advice = "`git push origin main:refs/heads/NAME`";
    let status = sandbox.ok(["status"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains(advice) && !status.contains("(git push)"), "{status}");
    let doctor = String::from_utf8(sandbox.run(["doctor", "--offline"]).stdout).unwrap();
    let branch = doctor.lines().find(|line| line.contains("  branch  ")).unwrap();
    assert!(branch.starts_with("warning") && branch.contains(advice), "{branch}");
    sandbox.git(&["push", "-q", "origin", "main:refs/heads/ours"]);
    git(&bare, &["update-ref", "refs/heads/main", "refs/heads/ours"]);
    sandbox.ok(["sync"]);
    let status = sandbox.ok(["status"]);
    assert!(!status.contains("to fix"), "{status}");
}

#[test]
fn a_merge_that_a_person_has_begun_is_to_be_completed_first() {
    let (sandbox, bare) = with_folder_remote();
    let other = sandbox.path().join("other");
    sandbox.ok(["review", "merge", "--all"]);
    let fact = sandbox.ok(["remember", "staging host", "stage-1"]);
    assert!(fact.contains("remembered"), "{fact}");
    sandbox.git(&["push", "-q", "origin", "main"]);
    git(sandbox.path(), &["clone", "-q", bare.to_str().unwrap(), "other"]);
    let path = "domains/general/facts/staging-host.md";
    let change = |brain: &Path, value: &str| {
        let file = brain.join(path);
        fs::write(&file, fs::read_to_string(&file).unwrap().replace("stage-1", value)).unwrap();
        git(brain, &["commit", "-qam", value]);
    };
    change(&other, "stage-2");
    git(&other, &["push", "-q"]);
    change(&sandbox.brain(), "stage-3");
    assert!(
        !crate::support::try_git(&sandbox.brain(), &["pull", "-q", "--no-rebase", "origin", "main"])
            .status
            .success()
    );

    let told = "a merge is in progress: resolve 1 file, then commit";
    sandbox.run(["index"]);
    let status = sandbox.ok(["status"]);
    assert!(status.contains(told) && !status.contains("git pull"), "{status}");
    let doctor = sandbox.run(["doctor", "--offline"]);
    let printed = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.status.code() == Some(1) && !printed.contains("git pull"), "{printed}");
    assert!(printed.contains("failure  branch") && printed.contains(told), "{printed}");
    let note = fails(&sandbox, 1, &["note", "add", "Mine", "--content", "Not now."]);
    assert!(note.contains("hint: finish that first"), "{note}");
    let in_conflict = "1 file is in conflict and is no unit until then";
    let recalled = fails(&sandbox, 3, &["recall", "staging host"]);
    assert!(recalled.contains(in_conflict), "{recalled}");
    let asked = sandbox.run(["ask", "--no-llm", "staging host"]);
    assert!(String::from_utf8_lossy(&asked.stderr).contains(in_conflict), "{asked:?}");

    // What was resolved is a unit again, whether or not it is in the index yet.
    sandbox.git(&["checkout", "-q", "--theirs", "--", path]);
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-q", "--no-edit"]);
    let status = sandbox.ok(["status"]);
    assert!(!status.contains("is no unit") && !status.contains("in progress"), "{status}");
    assert_eq!(sandbox.ok(["recall", "staging host"]), "stage-2\n");
}

#[test]
fn a_conflict_that_git_has_left_within_code_is_no_unit_until_it_is_resolved() {
    let sandbox = Sandbox::with_brain();
    let path = "domains/coding/patterns/pools.md";
    let write = |path: &str, code: &str| {
        let file = sandbox.brain().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let unit = format!("---\ntype: pattern\n---\n\n# Pools\n\n```sh\n{code}\n```\n");
        fs::write(file, unit).unwrap();
        sandbox.git(&["add", "."]);
        sandbox.git(&["commit", "-qm", code]);
    };
    let listed = || {
        let output = sandbox.run(["list"]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    // What shows a conflict as code.
    write("domains/coding/notes/shown.md", "<<<<<<< main\na\n=======\nb\n>>>>>>> topic");
    write(path, "run --size 1");
    sandbox.git(&["switch", "-q", "-c", "topic"]);
    write(path, "run --size 2");
    sandbox.git(&["switch", "-q", "main"]);
    write(path, "run --size 3");
    assert!(!crate::support::try_git(&sandbox.brain(), &["merge", "topic"]).status.success());
    let told = format!("{path}:1: a merge has left a conflict in it");
    let list = listed();
    assert!(list.contains(&told) && list.contains("shown") && !list.contains("\npools"), "{list}");
    sandbox.ok(["index"]);
    let units = sandbox.json(["status", "--json"])["index"]["units"].clone();
    assert_eq!(units, 1);
    let file = sandbox.brain().join(path);
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("<<<<<<< HEAD\n").unwrap();
    fs::write(file, before.to_owned() + rest.split_once("=======\n").unwrap().0 + "```\n").unwrap();
    let list = listed();
    assert!(!list.contains(&told) && list.contains("\npools"), "{list}");
}

#[test]
fn a_title_cannot_move_the_cursor() {
    let sandbox = Sandbox::with_brain();
    let path = "domains/coding/bugs/red.md";
    sandbox.git(&["switch", "-q", "-c", "nugget/red"]);
    fs::create_dir_all(sandbox.brain().join("domains/coding/bugs")).unwrap();
    let text =
        "---\ntype: bug\ntitle: \"Red \\e[31malert\\u202e\"\n---\n\n# Red\n\nBody \u{1b}[2Jand \u{9b}31m.\n";
    fs::write(sandbox.brain().join(path), text).unwrap();
    sandbox.git(&["add", "."]);
    sandbox.git(&["commit", "-qm", "red"]);
    sandbox.git(&["switch", "-q", "main"]);
    for arguments in [&["review"][..], &["review", "show", "1"], &["status"], &["review", "reject", "red"]] {
        let printed = sandbox.ok(arguments);
        assert!(!printed.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{arguments:?}: {printed:?}");
    }
}

/// How many units wait and were not put off.
fn waiting(sandbox: &Sandbox) -> usize {
    sandbox.json(["review", "--json"])["items"].as_array().unwrap().len()
}

#[test]
fn the_screen_tells_at_its_end_what_was_done_a_line_each() {
    let mut sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    sandbox.variables.push(("EDITOR".into(), "true".into()));
    let mut command = sandbox.command();
    command.arg("review");
    let mut screen = InTerminal::start(command, 80, 24);
    wait_until("the inbox is shown", || screen.text().contains("q quit"));
    screen.press("e");
    wait_until("it is told", || screen.text().contains("nothing was changed"));
    screen.press("l");
    wait_until("the first unit is put off", || waiting(&sandbox) == 2);
    screen.press("q");
    let shown = screen.end();
    let after = shown.text.rsplit("\u{1b}[?1049l").next().unwrap();
    let told = "nothing was changed, so nothing was merged\nput off until tomorrow: ";
    assert!(after.replace("\r\n", "\n").contains(told), "{after}");
}

#[test]
fn the_screen_merges_rejects_and_puts_off_by_keys() {
    let sandbox = Sandbox::with_brain();
    sandbox.capture(&fixture("transcripts/synthetic/flywheel.jsonl"));
    let mut command = sandbox.command();
    command.arg("review");
    let mut screen = InTerminal::start(command, 80, 24);
    wait_until("the inbox is shown", || screen.text().contains("q quit"));
    assert!(screen.text().contains("3 units wait for review"), "{}", screen.text());
    // Nothing is written while nothing happens; within this time it would have been drawn several times.
    let length = screen.text().len();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(screen.text().len(), length);
    screen.press("m");
    wait_until("the first unit is merged", || waiting(&sandbox) == 2);
    screen.press("r");
    wait_until("it asks for the reason", || screen.text().contains("why?"));
    screen.press("not so\r");
    wait_until("the second unit is rejected", || waiting(&sandbox) == 1);
    // With the last one put off nothing is left, and the screen ends.
    screen.press("l");
    let shown = screen.end();
    assert!(shown.status.success());
    let after = shown.text.rsplit("\u{1b}[?1049l").next().unwrap();
    for verb in ["merged: ", "rejected: ", "put off until tomorrow: "] {
        assert_eq!(after.matches(verb).count(), 1, "{verb}: {after}");
    }
    assert_eq!(sandbox.json(["list", "--json"])["units"].as_array().unwrap().len(), 1);
    // What is left was put off: it is no title to review, nor is its branch.
    let status = sandbox.ok(["status"]);
    assert!(!status.contains("TO REVIEW") && status.contains("1 unit put off"), "{status}");
}
