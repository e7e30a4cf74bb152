//! `nugget import`: proposes existing notes on one branch for review.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Sandbox;

/// A home with instructions, a memory and notes, and a project to stand in.
struct Home {
    sandbox: Sandbox,
    project: PathBuf,
}

impl Home {
    fn new() -> Self {
        let sandbox = Sandbox::with_brain();
        let project = sandbox.path().join("code/web-shop");
        let home = Self { sandbox, project };
        home.write(
            ".claude/CLAUDE.md",
            "- Always answer in short sentences of plain English.\n- Never commit unasked.\n",
        );
        home.write(
            "code/web-shop/CLAUDE.md",
            "# Web shop\n\n## Style\n\nNever use unwrap outside of tests, and write whole words.\n\n## Lanes\n\nRun the slow suite with `--lane 7` before each merge, since lane 7 alone has the database. Ask @octocat, who closes #12.\n",
        );
        home.write(
            ".claude/projects/-code-web-shop/memory/MEMORY.md",
            "- [Small commits](commits.md): one idea each\n",
        );
        home.write(
            ".claude/projects/-code-web-shop/memory/commits.md",
            "---\nname: small-commits\ndescription: One idea in each commit\ntype: feedback\n---\nThe user wants one idea in each commit, with the reason in its message.\n",
        );
        home.write(
            "notes/rust/caches.md",
            "# Who owns a cache\n\nA cache without an owner is a leak, every single time.\n",
        );
        home
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.sandbox.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn import(&self, arguments: &[&str]) -> Value {
        let output = self
            .sandbox
            .command()
            .current_dir(&self.project)
            .arg("import")
            .args(arguments)
            .arg("--json")
            .output();
        let output = output.unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn branches(&self) -> Vec<String> {
        let listed = self.sandbox.git(&["branch", "--list", "nugget/*", "--format=%(refname:short)"]);
        listed.lines().map(str::to_owned).collect()
    }

    fn merge(&self, imported: &Value) {
        self.sandbox.git(&["merge", "--quiet", "--no-edit", imported["branch"].as_str().unwrap()]);
    }
}

fn titles(imported: &Value) -> Vec<&str> {
    imported["units"].as_array().unwrap().iter().map(|unit| unit["title"].as_str().unwrap()).collect()
}

fn reasons(imported: &Value) -> Vec<&str> {
    imported["left_out"].as_array().unwrap().iter().map(|left| left["reason"].as_str().unwrap()).collect()
}

fn notes() -> [&'static str; 3] {
    ["claude-md", "auto-memory", "../../notes"]
}

#[test]
fn all_units_come_on_one_branch_with_their_sources() {
    let home = Home::new();
    let dry = home.import(&[&notes()[..], &["--dry-run"]].concat());
    assert_eq!(
        titles(&dry),
        [
            "Always answer in short sentences of plain English",
            "web-shop: Style",
            "web-shop: Lanes",
            "Small commits",
            "Who owns a cache",
        ]
    );
    assert!(home.branches().is_empty() && dry["commit"].is_null());
    let imported = home.import(&notes());
    assert_eq!(home.branches(), [imported["branch"].as_str().unwrap()]);
    let branch = imported["branch"].as_str().unwrap();
    assert_eq!(home.sandbox.git(&["rev-list", "--count", &format!("main..{branch}")]).trim(), "1");
    let unit = home.sandbox.git(&["show", &format!("{branch}:domains/web-shop/beliefs/web-shop-style.md")]);
    for line in [
        "source: import\n",
        "- file: ~/code/web-shop/CLAUDE.md\n",
        "  section: Style\n",
        "  digest: ",
        "confidence: 0.8\n",
        "\n# web-shop: Style\n",
    ] {
        assert!(unit.contains(line), "{line:?} in {unit}");
    }
    let message = home.sandbox.git(&["log", "-1", "--format=%B", branch]);
    assert!(message.starts_with("Knowledge imported from claude-md, auto-memory, ~/notes"), "{message}");
    assert!(!message.contains("@octocat") && !message.contains("#12"), "{message}");
    // The checkout is unchanged.
    assert_eq!(home.sandbox.git(&["status", "--porcelain"]), "");

    // Merged units are found like any others.
    home.merge(&imported);
    let found = home.sandbox.json(["ask", "--no-llm", "--json", "which lane has the database"]);
    assert_eq!(found["units"][0]["id"], "web-shop-lanes", "{found}");
}

#[test]
fn a_second_import_proposes_only_new_and_changed_sections() {
    let home = Home::new();
    let first = home.import(&notes());
    let repeated = home.import(&notes());
    assert!(titles(&repeated).is_empty(), "{repeated}");
    assert!(
        reasons(&repeated).iter().all(|reason| reason.contains("on branch nugget/import-")),
        "{repeated}"
    );
    home.merge(&first);
    assert!(reasons(&home.import(&notes())).iter().all(|reason| reason.ends_with("in the brain")));

    let claude_md = home.project.join("CLAUDE.md");
    let text = std::fs::read_to_string(&claude_md).unwrap();
    std::fs::write(
        &claude_md,
        text.replace("write whole words", "write whole words, in English only")
            + "\n## Deploy\n\nEvery push to main deploys to staging by itself.\n",
    )
    .unwrap();
    let second = home.import(&["claude-md"]);
    assert_eq!(titles(&second), ["web-shop: Style", "web-shop: Deploy"]);
    assert_eq!(second["units"][0]["updates"], true);
    let list = home.sandbox.ok(["review"]);
    assert!(list.contains("changes a unit that you have") && !list.contains("adds to"), "{list}");
    home.merge(&second);
    let unit =
        std::fs::read_to_string(home.sandbox.brain().join("domains/web-shop/beliefs/web-shop-style.md"))
            .unwrap();
    assert!(unit.contains("in English only") && unit.matches("- file: ").count() == 1, "{unit}");
    assert!(titles(&home.import(&["claude-md"])).is_empty());

    // A unit that a person edited in the brain is not overwritten.
    std::fs::write(
        home.sandbox.brain().join("domains/web-shop/beliefs/web-shop-style.md"),
        unit.replace("unwrap", "expect"),
    )
    .unwrap();
    home.sandbox.git(&["commit", "--quiet", "--all", "--message", "mine"]);
    std::fs::write(
        &claude_md,
        std::fs::read_to_string(&claude_md).unwrap().replace("English only", "plain English only"),
    )
    .unwrap();
    let third = home.import(&["claude-md"]);
    assert!(titles(&third).is_empty(), "{third}");
    assert!(reasons(&third).iter().any(|reason| reason.contains("by a person")), "{third}");
}

#[test]
fn two_sections_of_one_heading_keep_their_units() {
    let home = Home::new();
    let claude_md = "code/web-shop/CLAUDE.md";
    let text = "## Notes\n\nRun the migrations before the tests of billing.\n\n## Notes\n\nDeploys to staging are done by every push to main.\n";
    home.write(claude_md, text);
    let first = home.import(&["claude-md"]);
    home.merge(&first);
    home.write(claude_md, text.replace("billing", "payment").replace("staging", "production"));
    let second = home.import(&["claude-md"]);
    assert_eq!(titles(&second), ["web-shop: Notes", "web-shop: Notes"], "{second}");
    home.merge(&second);
    let of_notes =
        first["units"].as_array().unwrap().iter().filter(|unit| unit["title"] == "web-shop: Notes");
    let texts = of_notes.map(|unit| {
        std::fs::read_to_string(home.sandbox.brain().join(unit["path"].as_str().unwrap())).unwrap()
    });
    let texts: Vec<String> = texts.collect();
    assert!(texts[0].contains("tests of payment") && texts[1].contains("to production"), "{texts:?}");
}

#[test]
fn refused_units_are_proposed_again_only_on_request() {
    let home = Home::new();
    let first = home.import(&notes());
    home.sandbox.git(&["branch", "--quiet", "-D", first["branch"].as_str().unwrap()]);
    let repeated = home.import(&notes());
    assert!(titles(&repeated).is_empty() && home.branches().is_empty(), "{repeated}");
    assert!(reasons(&repeated).iter().all(|reason| reason.contains("not merged; --again")), "{repeated}");
    assert_eq!(titles(&home.import(&[&notes()[..], &["--again"]].concat())).len(), 5);
}

#[test]
fn known_text_is_left_out_regardless_of_formatting() {
    let home = Home::new();
    home.write(
        "brain/domains/web-shop/beliefs/lanes.md",
        "---\nid: lanes\ntype: belief\n---\n# Web shop lanes\n\nRun the slow suite with --lane 7, before each merge: since lane 7 alone has the database. Ask octocat, who closes 12!\n",
    );
    let imported = home.import(&["claude-md"]);
    assert!(!titles(&imported).contains(&"web-shop: Lanes"), "{imported}");
    assert!(reasons(&imported).contains(&"known already: lanes in the brain"), "{imported}");
}

#[test]
fn secrets_private_parts_and_excluded_projects_are_skipped() {
    let home = Home::new();
    let secret = format!("AKIA{}", "IOSFODNN7EXAMPL3");
    home.write(
        "notes/keys.md",
        format!("# The key {secret}\n\nThe key of the staging account is {secret}, <private>my own business</private> and that is all.\n"),
    );
    let imported = home.import(&["../../notes"]);
    let branch = imported["branch"].as_str().unwrap();
    let all = home.sandbox.git(&["log", "-p", "-1", branch]) + &imported.to_string();
    assert!(all.contains("staging account"), "{all}");
    assert!(!all.contains(&secret) && !all.contains("my own business"), "{all}");

    let output = home
        .sandbox
        .command()
        .current_dir(&home.project)
        .args(["import", "claude-md", "auto-memory", "--dry-run"])
        .env("NUGGET_CAPTURE_EXCLUDE", "web-shop")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("~/code/web-shop: excluded by capture.exclude") && !printed.contains("Style"),
        "{printed}"
    );
}

#[test]
fn hostile_files_are_listed_and_left_out() {
    let home = Home::new();
    let folder = home.sandbox.path().join("hostile");
    home.write("hostile/binary.md", [0x89, b'P', 0, 1, 2]);
    home.write("hostile/latin1.md", b"caf\xe9 au lait is a drink that people like\n");
    home.write("hostile/huge.md", vec![b'x'; 600 * 1024]);
    home.write("hostile/bomb.md", "---\na: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n---\n# Bombs\n\nA front matter full of anchors says nothing by itself.\n");
    home.write(
        "hostile/open.md",
        "---\ntitle: never closed\n\nSome words about a thing that is never closed at all.\n",
    );
    home.write(
        "hostile/node_modules/x/readme.md",
        "# Theirs\n\nSomebody else's words, and a great many of them.\n",
    );
    home.write("hostile/.hidden/x.md", "# Hidden\n\nWhat lies in a hidden folder is not for everybody.\n");
    home.write(
        "hostile/..\u{202e}md.md",
        "# Turned\n\nA name that is shown from right to left is a trick.\n",
    );
    // Nobody writes into it: to open it would wait for ever.
    let transcript = home.sandbox.path().join(".claude/projects/-code-web-shop/pipe.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&transcript).status().unwrap().success());
    assert_eq!(titles(&home.import(&["auto-memory", "claude-md", "--dry-run"])).len(), 4);
    std::os::unix::fs::symlink(".", folder.join("loop")).unwrap();
    std::os::unix::fs::symlink("loop.md", folder.join("loop.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("passwd.md")).unwrap();
    let pipe = folder.join("pipe.md");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    home.write(
        "hostile/conflict.md",
        "# Lanes\n\n<<<<<<< main\nThe slow suite runs in the first lane alone.\n=======\nThe slow suite runs in the last lane alone.\n>>>>>>> topic\n",
    );
    let imported = home.import(&["../../hostile"]);
    assert_eq!(titles(&imported), ["Bombs", "Open"], "{imported}");
    let left_out = imported["left_out"].to_string();
    for expected in
        ["is not a text file", "is not UTF-8", "is larger than 512 KB", "line 3: a merge has left a conflict"]
    {
        assert!(left_out.contains(expected), "{expected}: {left_out}");
    }
    assert!(
        !imported.to_string().contains('\u{202e}') && !imported.to_string().contains("root:"),
        "{imported}"
    );
    for path in [&pipe as &Path, &folder.join("loop.md")] {
        let output = home.sandbox.run([Path::new("import"), path]);
        let output_text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&output_text);
        assert!(
            output_text.contains("is not a regular file") || output_text.contains("error: "),
            "{output_text}"
        );
    }
}

#[test]
fn domains_are_named_and_one_can_be_chosen() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let output =
            home.sandbox.command().current_dir(&home.project).arg("import").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = run(&["../../notes", "claude-md", "--dry-run"]);
    let line =
        printed.lines().find(|line| line.starts_with("domains, ")).unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains("rust (1 file), web-shop (1 file)") && line.contains("--domain NAME"), "{line}");
    let printed = run(&["../../notes", "--domain", "Our Servers", "--dry-run"]);
    assert!(!printed.contains("domains, "), "{printed}");
    let imported = home.import(&["../../notes", "claude-md", "--domain", "Our Servers"]);
    let domains: Vec<_> = imported["units"].as_array().unwrap().iter().map(|unit| &unit["domain"]).collect();
    assert!(domains.len() == 4 && domains.iter().all(|domain| *domain == "our-servers"), "{imported}");

    let output = home.sandbox.command().args(["import", "notes", "--domain", "//"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && stderr.contains("cannot be a domain"), "{stderr}");
}

#[test]
fn where_a_note_bears_is_kept_and_what_it_enforces_is_not() {
    let home = Home::new();
    home.write(
        "kept/ledger.md",
        "---\ntype: constraint\nscope:\n- {path: src/ledger.rs, repository: github.com/acme/shop}\nalternatives: [floats]\n\
         stale_after: 2031-01-01\nenforce: hold\n---\n\n# Amounts are integers\n\nThe ledger stores cents as integers, and never as floats.\n",
    );
    let folder = home.sandbox.path().join("kept");
    let imported = home.import(&[folder.to_str().unwrap()]);
    assert_eq!(reasons(&imported), ["only a person sets it, in review or with `nugget edit`"]);
    home.merge(&imported);
    let path = imported["units"][0]["path"].as_str().unwrap();
    let text = std::fs::read_to_string(home.sandbox.brain().join(path)).unwrap();
    let unit = knowledge::Document::parse(text).unwrap().unit(path).unwrap();
    assert_eq!(unit.scope[0].path.as_deref(), Some("src/ledger.rs"));
    assert_eq!(unit.scope[0].repository.as_deref(), Some("github.com/acme/shop"));
    assert_eq!(unit.alternatives, ["floats"]);
    assert_eq!(unit.stale_after.unwrap().to_string(), "2031-01-01T00:00:00Z");
    assert_eq!(unit.enforce, None);
}

#[test]
fn exported_units_of_every_type_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let domain = folder.path().join("okf/domains/web/decisions");
    std::fs::create_dir_all(&domain).unwrap();
    let raw = "---\nid: pools\ntype: decision\ndomain: web\ntitle: Pools\nstatus: superseded\nrelated:\n- id: queues\n  relation: superseded_by\nmine: 1\ncreated: 2026-01-02\n---\n\n# Pools\n\nStart as many workers as there are CPUs.\n";
    std::fs::write(domain.join("pools.md"), raw).unwrap();
    let home = Home::new();
    let okf = folder.path().join("okf");
    let told = home.sandbox.ok(["import", okf.to_str().unwrap(), "--dry-run"]);
    assert!(told.contains("1 unit") && !told.contains("domains, by"), "its files name their domain: {told}");
    let imported = home.import(&[folder.path().join("okf").to_str().unwrap()]);
    assert_eq!(titles(&imported), ["Pools"], "{imported}");
    let again = home.import(&[folder.path().join("okf").to_str().unwrap()]);
    assert!(reasons(&again)[0].starts_with("known already: pools on branch"), "{again}");
    home.merge(&imported);
    let path = home.sandbox.brain().join("domains/web/decisions/pools.md");
    assert_eq!(std::fs::read_to_string(path).unwrap(), raw);
}

#[test]
fn exported_units_with_something_hidden_keep_their_ids() {
    let home = Home::new();
    let raw = "---\nid: my-pool\ntype: bug\ndomain: web\ntitle: Pool\nenforce: hold\nrelated:\n- id: queues\nmine: 1\ncreated: 2026-01-02\n---\n\n# Pool\n\nNever start more workers than there are CPUs.\n<!-- mine -->\nAsk first.\n";
    home.write("okf/domains/web/bugs/my-pool.md", raw);
    let folder = home.sandbox.path().join("okf");
    let import = || home.import(&[folder.to_str().unwrap()]);
    let imported = import();
    assert_eq!(imported["units"][0]["path"], "domains/web/bugs/my-pool.md", "{imported}");
    let enforce = "only a person sets it, in review or with `nugget edit`";
    assert_eq!(reasons(&imported), ["without what is hidden, private or secret in it", enforce]);
    home.merge(&imported);
    let path = home.sandbox.brain().join("domains/web/bugs/my-pool.md");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("related:\n- id: queues\nmine: 1\n") && text.ends_with("Ask first.\n"), "{text}");
    assert!(!text.contains("hold") && !text.contains("<!--"), "{text}");
    assert_eq!(reasons(&import()), ["known already: my-pool in the brain"]);
    // What a person has added in the brain is not taken out again.
    for mine in [raw.to_owned(), text.replace("enforce: null", "enforce: hold")] {
        std::fs::write(&path, mine).unwrap();
        home.sandbox.git(&["commit", "--quiet", "--all", "--message", "mine"]);
        assert_eq!(reasons(&import()), ["known already: my-pool in the brain"]);
    }
}

#[test]
fn a_rule_of_the_user_bears_on_no_repository() {
    let home = Home::new();
    let (client, dotfiles) = (home.sandbox.path().join(".claude"), home.sandbox.path().join("dotfiles"));
    std::fs::create_dir(&dotfiles).unwrap();
    let git = |arguments: &[&str]| crate::support::git(&dotfiles, arguments);
    git(&["init", "--quiet"]);
    git(&["remote", "add", "origin", "https://github.com/octocat/dotfiles.git"]);
    std::fs::rename(&client, dotfiles.join("claude")).unwrap();
    std::os::unix::fs::symlink(dotfiles.join("claude"), &client).unwrap();
    let rule = "---\npaths: src/api/**\n---\n\n# Errors of the API\n\nEvery handler of the API returns JSON, also for errors.\n";
    home.write(".claude/rules/api.md", rule);
    let imported = home.import(&["claude-md"]);
    home.merge(&imported);
    let units = imported["units"].as_array().unwrap();
    let unit = units.iter().find(|unit| unit["title"].as_str().unwrap().contains("Errors of the API"));
    let path = unit.unwrap()["path"].as_str().unwrap();
    let text = std::fs::read_to_string(home.sandbox.brain().join(path)).unwrap();
    let unit = knowledge::Document::parse(text).unwrap().unit(path).unwrap();
    assert_eq!((unit.scope[0].path.as_deref(), unit.scope[0].repository.as_deref()), (Some("src/api"), None));
}

#[test]
fn a_unit_with_the_line_ends_of_windows_comes_as_it_is() {
    let home = Home::new();
    let raw = "---\nid: retry-old\ntype: pattern\ndomain: web\ntitle: Retry thrice\nrelated:\n- id: queues\n  relation: related_to\ncreated: 2026-01-02\n---\n\n# Retry thrice\n\nA lost connection is opened again three times.\n";
    let of_windows = knowledge::document::with_crlf(raw);
    home.write("okf/domains/web/patterns/retry-old.md", &of_windows);
    let okf = home.sandbox.path().join("okf");
    let imported = home.import(&[okf.to_str().unwrap()]);
    assert_eq!(imported["units"][0]["id"], "retry-old", "{imported}");
    home.merge(&imported);
    let path = home.sandbox.brain().join("domains/web/patterns/retry-old.md");
    assert_eq!(std::fs::read_to_string(path).unwrap(), of_windows);
    // A checkout on another machine has other line ends.
    home.write("okf/domains/web/patterns/retry-old.md", raw);
    let again = home.import(&[okf.to_str().unwrap()]);
    assert_eq!(reasons(&again), ["known already: retry-old in the brain"], "{again}");
}

#[test]
fn what_a_note_says_no_more_is_reset_unless_a_person_set_it() {
    let home = Home::new();
    let note = |keys: &str, port: u32| {
        let text = format!(
            "---\n{keys}title: Port\n---\n\nThe staging database listens on port {port} of the host.\n"
        );
        home.write("kept/port.md", text);
    };
    let folder = home.sandbox.path().join("kept");
    let import = || {
        let imported = home.import(&[folder.to_str().unwrap()]);
        assert_eq!(titles(&imported).len(), 1, "{imported}");
        home.merge(&imported);
        imported
    };
    note("status: deprecated\nscope: src/old\nalternatives: [sockets]\n", 6543);
    let path = import()["units"][0]["path"].as_str().unwrap().to_owned();
    let file = home.sandbox.brain().join(&path);
    let document = || knowledge::Document::parse(std::fs::read_to_string(&file).unwrap()).unwrap();
    let unit = || document().unit(&path).unwrap();
    assert_eq!((unit().status.as_deref(), unit().scope.len()), (Some("deprecated"), 1));

    note("alternatives: [sockets]\n", 6544);
    assert!(import()["left_out"].as_array().unwrap().is_empty());
    assert_eq!((unit().status.as_deref(), unit().scope.len()), (Some("active"), 0));
    assert_eq!(unit().alternatives, ["sockets"]);

    // A person says so in the brain.
    let mut mine = document();
    mine.set("status", &"deprecated".into());
    mine.set("alternatives", &vec!["pipes"].into());
    std::fs::write(&file, mine.as_str()).unwrap();
    home.sandbox.git(&["commit", "--quiet", "--all", "--message", "mine"]);
    note("", 6545);
    let imported = import();
    let kept = "the note says nothing of it; the unit keeps what it has in the brain";
    assert_eq!(reasons(&imported), [kept, kept], "{imported}");
    assert!(imported["left_out"][0]["what"].as_str().unwrap().ends_with("kept/port.md: alternatives"));
    assert_eq!(
        (unit().status.as_deref(), unit().alternatives),
        (Some("deprecated"), vec!["pipes".to_owned()])
    );
    assert!(unit().body.contains("6545"));
}

#[test]
fn a_changed_status_or_scope_alone_is_proposed_once() {
    let home = Home::new();
    let note = |keys: &str| {
        let text = format!(
            "---\n{keys}title: Port\n---\n\nThe staging database listens on port 6543 of the host.\n"
        );
        home.write("kept/port.md", text);
    };
    let folder = home.sandbox.path().join("kept");
    let import = || home.import(&[folder.to_str().unwrap()]);
    note("scope: src/old\n");
    let first = import();
    home.merge(&first);
    assert_eq!(reasons(&import()), ["known already: port in the brain"]);
    let path = first["units"][0]["path"].as_str().unwrap().to_owned();
    let file = home.sandbox.brain().join(&path);
    let unit = || {
        let text = std::fs::read_to_string(&file).unwrap();
        knowledge::Document::parse(text).unwrap().unit(&path).unwrap()
    };
    for (keys, status, scope) in [
        ("status: superseded\nscope: src/old\n", "superseded", Some("src/old")),
        ("status: superseded\nscope: src/new\n", "superseded", Some("src/new")),
        ("", "active", None),
    ] {
        note(keys);
        let changed = import();
        assert_eq!(titles(&changed), ["Port"], "{keys}: {changed}");
        assert_eq!(changed["units"][0]["updates"], true);
        let waits = format!("known already: port on branch {}", changed["branch"].as_str().unwrap());
        assert_eq!(reasons(&import()), [waits], "{keys}");
        home.merge(&changed);
        assert_eq!(unit().status.as_deref(), Some(status), "{keys}");
        assert_eq!(unit().scope.first().and_then(|scope| scope.path.clone()).as_deref(), scope, "{keys}");
        assert_eq!(reasons(&import()), ["known already: port in the brain"], "{keys}");
    }
    // What a person has said there since stays, and is proposed to nobody.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("status: active", "status: deprecated")).unwrap();
    home.sandbox.git(&["commit", "--quiet", "--all", "--message", "mine"]);
    assert_eq!(reasons(&import()), ["known already: port in the brain"]);
}

#[test]
fn type_tags_and_confidence_follow_the_note() {
    let home = Home::new();
    let note = |keys: &str| {
        let text =
            format!("---\n{keys}title: Bread\n---\n\nKnead the dough for ten minutes and let it rest.\n");
        home.write("kept/bread.md", text);
    };
    let folder = home.sandbox.path().join("kept");
    let import = || home.import(&[folder.to_str().unwrap()]);
    note("type: recipe\ntags: [Größe, area/net_work, 請求]\nconfidence: 0.3\n");
    let first = import();
    assert_eq!(first["units"][0]["path"], "domains/kept/recipes/bread.md", "{first}");
    home.merge(&first);
    let file = home.sandbox.brain().join("domains/kept/recipes/bread.md");
    let has = || {
        let document = knowledge::Document::parse(std::fs::read_to_string(&file).unwrap()).unwrap();
        let unit = document.unit("domains/kept/recipes/bread.md").unwrap();
        (unit.kind.to_string(), unit.tags.join(" "), unit.confidence)
    };
    assert_eq!(has(), ("recipe".to_owned(), "größe area/net_work 請求".to_owned(), 0.3));
    let known = "known already: bread in the brain";
    assert_eq!(reasons(&import()), [known]);
    for (keys, kind, tags, confidence) in [
        ("type: decision\ntags: [x]\nconfidence: 0.3\n", "decision", "x", 0.3),
        ("type: decision\ntags: [x, y]\nconfidence: 0.9\n", "decision", "x y", 0.9),
        ("", "concept", "", 0.8),
    ] {
        note(keys);
        let changed = import();
        assert_eq!(
            (titles(&changed), &changed["units"][0]["type"]),
            (vec!["Bread"], &kind.into()),
            "{changed}"
        );
        home.merge(&changed);
        assert_eq!(has(), (kind.to_owned(), tags.to_owned(), confidence), "{keys}");
        assert_eq!(reasons(&import()), [known], "{keys}");
    }
    // What a person has set in the brain stays.
    let mine = std::fs::read_to_string(&file).unwrap().replace("confidence: 0.8", "confidence: 0.5");
    std::fs::write(&file, mine.replace("type: concept", "type: pattern")).unwrap();
    home.sandbox.git(&["commit", "--quiet", "--all", "--message", "mine"]);
    assert_eq!(reasons(&import()), [known]);
    assert_eq!(has(), ("pattern".to_owned(), String::new(), 0.5));
}

#[test]
fn a_list_of_memories_that_cannot_be_read_is_listed() {
    let home = Home::new();
    home.write(".claude/projects/-code-web-shop/memory/MEMORY.md", b"- caf\xe9 au lait is a drink\n");
    let imported = home.import(&["auto-memory", "--dry-run"]);
    let left: Vec<_> = imported["left_out"].as_array().unwrap().iter().map(|left| &left["what"]).collect();
    assert_eq!(left, ["~/.claude/projects/-code-web-shop/memory/MEMORY.md"], "{imported}");
    assert_eq!(reasons(&imported), ["is not UTF-8"]);
}
