//! The body of a pull request: a summary that a reviewer reads within ten seconds, and folded details.
//!
//! Texts from a session have no effect in it: each is one line, passed through [`text::escape_forge_syntax`] and escaped, so
//! that no markdown, HTML, mention, closing keyword or command in it is interpreted. GitHub may use the body as
//! the message of a squash merge, so it is written to be safe as one. What is nugget's in it stands between two marks: the
//! rest is a person's, and stays when the text is brought up to date. This file does no IO.

use git::BranchCommit;
use jiff::Timestamp;
use knowledge::name::file_stem;
use knowledge::{Candidate, Document, OverlapKind, text};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::pipeline::Findings;
use crate::proposal::{Plan, PlannedFile};

/// The longest body that GitHub accepts, in characters.
pub(crate) const BODY_CHARS_MAX: usize = 65_536;
/// The labels that a pull request gets, as far as the repository has them.
pub(crate) const LABELS: [&str; 2] = ["nugget", "knowledge"];
/// What is nugget's of a text stands between these, which GitHub does not show.
const BEGIN: &str = "<!-- nugget -->";
const END: &str = "<!-- /nugget -->";
const CALL: &str = "Merge to keep these units, close to discard them.";
const TITLE_CHARS_MAX: usize = 100;
const REASON_CHARS_MAX: usize = 300;
/// How many pieces of evidence are shown for one unit, and how much of each: enough to judge it at a glance.
const EXCERPTS_MAX: usize = 3;
const EXCERPT_CHARS_MAX: usize = 200;

/// What a pull request says about its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub project: Option<String>,
    pub begun: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// Who found the units: `heuristic`, or a model's name.
    pub by: String,
    /// The cost of model calls, in millionths of a dollar.
    pub microdollars: u64,
    /// Whether some of the cost is estimated.
    pub estimated: bool,
    /// How a person made it, if there was no session.
    pub by_hand: Option<&'static str>,
    /// Why files are changed, a line each.
    pub reasons: Vec<String>,
}

impl Summary {
    fn spent(&self) -> String {
        if self.microdollars == 0 {
            return "nothing spent".to_owned();
        }
        let about = if self.estimated { "about " } else { "" };
        format!("{about}${:.3} spent", self.microdollars as f64 / 1e6)
    }
}

/// The body for the planned units of a session whose branch is shared with others: it has a section for each.
pub(crate) fn body_with_section(found: &Findings, plan: &Plan, summary: &Summary, files: &str) -> String {
    let mut body = Body::default();
    // The branch that it would have of its own: `nugget/session-DATE-TIME-ID`.
    let id = plan.branch.splitn(4, '-').nth(3).unwrap_or(&plan.branch);
    let units = counted(found.candidates.len(), "unit");
    let time = plan.time.strftime("%Y-%m-%d %H:%M:%S");
    let project = found.session.project.as_deref();
    let project = project.map(|name| format!(" on {}", escaped(name, 60))).unwrap_or_default();
    let (by, spent) = (escaped(&found.by, 60), summary.spent());
    body.lines.push(format!("### {units} from session {id} of {time}{project} (found by {by}, {spent})"));
    body.lines.push(String::new());
    body.units(found, plan, files);
    body_of_sections(&body.lines)
}

/// The body with a section for a commit of a shared branch that another machine has pushed without a token. `None` if its
/// message is not that of a session.
pub(crate) fn body_of_commit(message: &str, made: &BranchCommit, files: &str) -> Option<String> {
    let line = message.lines().find_map(|line| line.split_once(" of knowledge from the session "))?;
    let (units, id) = (line.0, line.1.split([' ', ',']).next()?);
    let time = made.time.strftime("%Y-%m-%d %H:%M:%S");
    let mut body = Body::default();
    body.lines.push(format!("### {units} from session {id} of {time}"));
    section_of(&body.lines[0])?;
    body.lines.push(String::new());
    body.section("Units", made.files.iter().map(|(path, content)| file_line(path, content, files)).collect());
    Some(body_of_sections(&body.lines))
}

/// The body for sections that fit, or for what fits of them: without quotes, or their headings alone.
fn body_of_sections(lines: &[String]) -> String {
    let (units, sessions) = lines
        .iter()
        .filter_map(|line| section_of(line))
        .fold((0, 0), |(all, n), (units, _)| (all + units, n + 1));
    let head = format!("{} of knowledge from {}.", counted(units, "unit"), counted(sessions, "session"));
    let text = |shown: Vec<&str>, more: &str| {
        format!("{BEGIN}\n{head}\n\n{}\n{more}\n{CALL}\n{END}\n", shown.join("\n").trim_end())
    };
    let all = || lines.iter().map(String::as_str);
    let whole = text(all().collect(), "");
    if whole.chars().count() <= BODY_CHARS_MAX {
        return whole;
    }
    let without_quotes = text(all().filter(|line| !line.starts_with("  - ")).collect(), "");
    if without_quotes.chars().count() <= BODY_CHARS_MAX {
        return without_quotes;
    }
    text(all().filter(|line| section_of(line).is_some()).collect(), CUT)
}

/// What the heading of a section says: its units, and of which session and time it is.
fn section_of(line: &str) -> Option<(usize, Vec<&str>)> {
    let mut words = line.strip_prefix("### ")?.split(' ');
    let units = words.next()?.parse().ok()?;
    let of: Vec<&str> = words.skip(1).take(6).collect();
    (of.len() == 6 && of[..2] == ["from", "session"]).then_some((units, of))
}

/// The sections of a body.
fn sections(body: &str) -> Vec<String> {
    let lines = body.lines().skip_while(|line| section_of(line).is_none());
    lines.take_while(|line| ![CALL, END].contains(line)).map(str::to_owned).collect()
}

/// The section of a body that has one.
pub(crate) fn section(body: &str) -> Option<String> {
    let lines = sections(body);
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The text of a pull request with `new` in place of what was nugget's in it. Of a branch that captures share, the
/// sections of the others stay, and so does one that is there already. `None` if a person has taken the marks away, or if
/// there is no room.
pub(crate) fn updated(present: &str, new: &str) -> Option<String> {
    let (before, rest) = present.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let added = sections(new);
    let ours = match added.first().and_then(|heading| section_of(heading)) {
        None => new.to_owned(),
        Some((_, of)) => {
            let mut lines = sections(old);
            if lines.iter().filter_map(|line| section_of(line)).any(|(_, other)| other == of) {
                return Some(present.to_owned());
            }
            lines.extend(added.iter().cloned());
            body_of_sections(&lines)
        }
    };
    let text = format!("{before}{}{after}", ours.trim_end());
    (text.chars().count() <= BODY_CHARS_MAX).then_some(text)
}

/// Whether what is nugget's of a text links to the files of other commits than this one.
pub(crate) fn is_of_another_commit(present: &str, commit: &str) -> bool {
    let ours = present.split_once(BEGIN).and_then(|(_, rest)| Some(rest.split_once(END)?.0));
    ours.is_some_and(|ours| ours.contains("/blob/") && !ours.contains(&format!("/blob/{commit}/")))
}

/// The body for planned units. `files` is the address of the commit's files, with a slash at the end; links
/// lead there.
pub(crate) fn body(found: &Findings, plan: &Plan, summary: &Summary, files: &str) -> String {
    let mut body = Body::default();
    body.units(found, plan, files);
    if !found.rejected.is_empty() {
        body.lines.push(format!("**Skipped**: {} (at the end)", counted(found.rejected.len(), "candidate")));
        body.lines.push(String::new());
    }
    let units = found.candidates.len();
    body.finish(&format!("{} of knowledge", counted(units, "unit")), summary, |fold| {
        let skipped: Vec<String> = found
            .rejected
            .iter()
            .map(|one| format!("- {}: {}", escaped(&one.title, TITLE_CHARS_MAX), escaped(&one.reason, 200)))
            .collect();
        fold.details("What was skipped, and why", &skipped);
    })
}

/// The body for a branch without a known plan: the files that it adds or changes, and those that it removes.
pub(crate) fn body_from_files(
    changed: &[(String, Vec<u8>)],
    removed: &[(String, Vec<u8>)],
    summary: &Summary,
    files: &str,
) -> String {
    let mut body = Body::default();
    // There is no page to link to for what the commit does not have.
    for (heading, listed, files) in [("Units", changed, files), ("Removed", removed, "")] {
        body.section(heading, listed.iter().map(|(path, content)| file_line(path, content, files)).collect());
    }
    let count = counted(changed.len() + removed.len(), "unit");
    let what = match summary.by_hand {
        Some(how) => format!("{count} of knowledge, {how}"),
        None => format!("{count} of knowledge"),
    };
    let reasons: Vec<String> =
        summary.reasons.iter().map(|reason| format!("- {}", escaped(reason, REASON_CHARS_MAX))).collect();
    body.section("Why", reasons);
    body.finish(&what, summary, |_| {})
}

/// The line of a file.
fn file_line(path: &str, content: &[u8], files: &str) -> String {
    let text = String::from_utf8_lossy(content).into_owned();
    match Document::parse(text).ok().and_then(|document| document.unit(path).ok()) {
        Some(unit) => {
            let link = link(&unit.title, files, path);
            unit_line(unit.kind.as_str(), &link, unit.domain.as_str(), unit.confidence)
        }
        None => format!("- {}", link(path, files, path)),
    }
}

fn unit_line(kind: &str, link: &str, domain: &str, confidence: f64) -> String {
    format!("- **{}** {link} · {} · confidence {confidence:.2}", escaped(kind, 30), escaped(domain, 60))
}

/// The line of a unit, and below it what the session said that it rests on.
fn with_quotes(line: String, one: &Candidate) -> Vec<String> {
    let excerpts = one.evidence.iter().map(|evidence| evidence.excerpt.trim());
    let quotes = excerpts.filter(|excerpt| !excerpt.is_empty()).take(EXCERPTS_MAX);
    let quotes = quotes.map(|excerpt| format!("  - {}", code(excerpt, EXCERPT_CHARS_MAX)));
    std::iter::once(line).chain(quotes).collect()
}

#[derive(Default)]
struct Body {
    lines: Vec<String>,
}

impl Body {
    /// What a plan adds, merges and replaces.
    fn units(&mut self, found: &Findings, plan: &Plan, files: &str) {
        let (edited, new): (Vec<&PlannedFile>, Vec<&PlannedFile>) =
            plan.files.iter().partition(|file| file.edits);
        let (merged, replaced): (Vec<&PlannedFile>, Vec<&PlannedFile>) =
            edited.into_iter().partition(|file| !file.holds.is_empty());
        let added = new.iter().filter_map(|file| {
            let one = found.candidates.get(*file.holds.first()?)?;
            let link = link(&one.title, files, &file.path);
            let line = unit_line(one.kind.as_str(), &link, domain_of(&file.path), one.confidence);
            Some(with_quotes(line, one))
        });
        self.section("Added", added.flatten().collect());
        let merged = merged.iter().flat_map(|file| {
            file.holds.iter().filter_map(|&number| found.candidates.get(number)).flat_map(|one| {
                let (kind, unit) =
                    (escaped(one.kind.as_str(), 30), link(file_stem(&file.path), files, &file.path));
                let title = escaped(&one.title, TITLE_CHARS_MAX);
                with_quotes(format!("- **{kind}** {title} → {unit} · confidence {:.2}", one.confidence), one)
            })
        });
        self.section("Merged into units that are there", merged.collect());
        let replaced = replaced.iter().map(|file| {
            let id = file_stem(&file.path);
            let by = found.candidates.iter().find(|one| {
                one.overlap
                    .as_ref()
                    .is_some_and(|overlap| overlap.how == OverlapKind::Replaces && overlap.id.as_str() == id)
            });
            let by =
                by.map(|one| format!(" by {}", escaped(&one.title, TITLE_CHARS_MAX))).unwrap_or_default();
            format!("- {}{by}", link(id, files, &file.path))
        });
        self.section("Superseded", replaced.collect());
    }

    fn section(&mut self, heading: &str, lines: Vec<String>) {
        if !lines.is_empty() {
            self.lines.push(format!("**{heading}**"));
            self.lines.push(String::new());
            self.lines.extend(lines);
            self.lines.push(String::new());
        }
    }

    fn finish(self, what: &str, summary: &Summary, fold: impl FnOnce(&mut Fold)) -> String {
        let mut head = what.to_owned();
        if let Some(project) = &summary.project {
            head.push_str(&format!(" from work on **{}**", escaped(project, 60)));
        }
        let duration = summary.begun.zip(summary.ended).map(|(begun, ended)| duration_text(begun, ended));
        let by = (!summary.by.is_empty()).then(|| format!("found by {}", escaped(&summary.by, 60)));
        let facts: Vec<String> = [duration, by, Some(summary.spent())].into_iter().flatten().collect();
        // Too long a text for GitHub is cut at the end of a line.
        let text = format!("{BEGIN}\n{head} ({}).\n\n", facts.join(", "));
        let end = format!("\n{CALL}\n{END}\n");
        let left = BODY_CHARS_MAX - [CUT, &end, &text].map(|part| part.chars().count()).iter().sum::<usize>();
        let mut folded = Fold { text, left };
        if !folded.push_all(&self.lines) {
            return folded.text + CUT + &end;
        }
        fold(&mut folded);
        format!("{}\n{end}", folded.text.trim_end())
    }
}

const CUT: &str = "\n… and more: see the files.\n";

/// A text with room for so many characters.
struct Fold {
    text: String,
    left: usize,
}

impl Fold {
    fn details(&mut self, summary: &str, lines: &[String]) {
        let head = format!("<details><summary>{summary}</summary>\n\n");
        let foot = "\n</details>\n\n";
        let frame = head.chars().count() + foot.chars().count() + CUT.chars().count();
        let Some(left) = self.left.checked_sub(frame).filter(|_| !lines.is_empty()) else { return };
        self.left = left;
        self.text.push_str(&head);
        if !self.push_all(lines) {
            self.text.push_str(CUT);
        }
        self.text.push_str(foot);
    }

    /// Whether there is room for all lines; adds those for which there is.
    fn push_all(&mut self, lines: &[String]) -> bool {
        lines.iter().all(|line| {
            let Some(left) = self.left.checked_sub(line.chars().count() + 1) else { return false };
            self.left = left;
            self.text.push_str(line);
            self.text.push('\n');
            true
        })
    }
}

/// Stands for an empty text: a lone `-` would turn the line above into a heading.
const EMPTY: &str = "…";

/// Escapes untrusted text for use within a line: markdown interprets nothing in it.
fn escaped(untrusted: &str, chars_max: usize) -> String {
    let line = text::escape_forge_syntax(&text::one_line(untrusted, chars_max));
    if line.is_empty() {
        return EMPTY.to_owned();
    }
    let mut escaped = String::with_capacity(line.len());
    // At the beginning of a line it could make a list or a heading.
    let number = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in line.char_indices() {
        if "\\`*_[]<>&~$|".contains(c)
            || (at == 0 && "#+-=:".contains(c))
            || (at == number && ".)".contains(c))
        {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Untrusted text as code, where markdown, mentions and references are not interpreted.
fn code(untrusted: &str, chars_max: usize) -> String {
    let line = text::escape_forge_syntax(&text::one_line(untrusted, chars_max));
    // No run of backticks in it is as long as its fence.
    let longest = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match line.is_empty() {
        true => EMPTY.to_owned(),
        false => format!("{fence} {line} {fence}"),
    }
}

/// A link to a file; characters of its path that are not allowed in an address are percent-encoded.
fn link(label: &str, files: &str, path: &str) -> String {
    const ENCODED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
    let title = escaped(label, TITLE_CHARS_MAX);
    match files.is_empty() {
        true => title,
        false => format!("[{title}]({files}{})", utf8_percent_encode(path, ENCODED)),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn duration_text(begun: Timestamp, ended: Timestamp) -> String {
    let minutes = ended.duration_since(begun).as_secs().max(0) / 60;
    match minutes {
        0 => "under a minute long".to_owned(),
        1..=89 => format!("{} long", counted(minutes as usize, "minute")),
        _ => format!("{:.1} hours long", minutes as f64 / 60.0),
    }
}

/// The domain in a unit's path.
pub(crate) fn domain_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Session;
    use knowledge::{Evidence, Overlap, Rejected, UnitId};
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser, Tag};

    const FILES: &str = "https://github.com/me/brain/blob/0123abc/";

    fn candidate(title: &str, excerpt: &str) -> Candidate {
        Candidate {
            kind: "bug".into(),
            domain: "testing".into(),
            title: title.into(),
            description: "d".into(),
            body: "b".into(),
            tags: Vec::new(),
            confidence: 0.75,
            related: Vec::new(),
            evidence: vec![Evidence { line: "u1".into(), excerpt: excerpt.into() }],
            overlap: None,
            source: None,
        }
    }

    fn file(path: &str, edits: bool, holds: &[usize]) -> PlannedFile {
        PlannedFile { path: path.into(), content: String::new(), edits, holds: holds.to_vec() }
    }

    fn plan(files: Vec<PlannedFile>) -> Plan {
        let time = "2026-11-20T14:12:00Z".parse().unwrap();
        Plan { branch: "nugget/s".into(), base: "b".into(), files, message: "m".into(), time }
    }

    fn about(project: &str) -> Summary {
        Summary {
            project: Some(project.into()),
            begun: Some("2026-11-20T13:47:00Z".parse().unwrap()),
            ended: Some("2026-11-20T14:12:00Z".parse().unwrap()),
            by: "claude-haiku-4-5".into(),
            microdollars: 31_400,
            ..Summary::default()
        }
    }

    #[test]
    fn the_body_summarizes_what_is_added_merged_and_replaced() {
        let mut replacing = candidate("Leases beat time-outs", "we use a lease now");
        replacing.overlap =
            Some(Overlap { id: UnitId::verbatim("use-a-timeout"), how: OverlapKind::Replaces });
        let found = Findings {
            candidates: vec![
                candidate("Acknowledge after the commit", "the message was lost"),
                replacing,
                candidate("Retries need jitter", "all came at once"),
            ],
            rejected: vec![Rejected { title: "Use tabs".into(), reason: "no evidence".into() }],
            ..Findings::default()
        };
        let plan = plan(vec![
            file("domains/messaging/bugs/acknowledge-after-the-commit.md", false, &[0]),
            file("domains/messaging/bugs/leases-beat-time-outs.md", false, &[1]),
            file("domains/messaging/patterns/retry.md", true, &[2]),
            file("domains/messaging/patterns/use-a-timeout.md", true, &[]),
        ]);
        insta::assert_snapshot!(body(&found, &plan, &about("my app"), FILES), @r"
        <!-- nugget -->
        3 units of knowledge from work on **my app** (25 minutes long, found by claude-haiku-4-5, $0.031 spent).

        **Added**

        - **bug** [Acknowledge after the commit](https://github.com/me/brain/blob/0123abc/domains/messaging/bugs/acknowledge-after-the-commit.md) · messaging · confidence 0.75
          - ` the message was lost `
        - **bug** [Leases beat time-outs](https://github.com/me/brain/blob/0123abc/domains/messaging/bugs/leases-beat-time-outs.md) · messaging · confidence 0.75
          - ` we use a lease now `

        **Merged into units that are there**

        - **bug** Retries need jitter → [retry](https://github.com/me/brain/blob/0123abc/domains/messaging/patterns/retry.md) · confidence 0.75
          - ` all came at once `

        **Superseded**

        - [use-a-timeout](https://github.com/me/brain/blob/0123abc/domains/messaging/patterns/use-a-timeout.md) by Leases beat time-outs

        **Skipped**: 1 candidate (at the end)

        <details><summary>What was skipped, and why</summary>

        - Use tabs: no evidence

        </details>

        Merge to keep these units, close to discard them.
        <!-- /nugget -->
        ");
        assert_eq!(crate::proposal::title(plan.time, "hook"), "Knowledge from session 2026-11-20 14:12");
    }

    #[test]
    fn a_unit_has_at_most_three_short_quotes() {
        let excerpts = ["", "first", &"long ".repeat(100), "```\n<b>third</b> @octocat", "fourth"];
        let evidence = |excerpt: &str| Evidence { line: "u".into(), excerpt: excerpt.into() };
        let one = Candidate { evidence: excerpts.map(evidence).to_vec(), ..candidate("Title of it", "") };
        let found = Findings { candidates: vec![one], ..Findings::default() };
        let body = body(&found, &plan(vec![file("domains/d/bugs/a.md", false, &[0])]), &about("p"), FILES);
        let quotes: Vec<&str> = body.lines().filter(|line| line.starts_with("  - ")).collect();
        assert_eq!(quotes.len(), 3, "{body}");
        assert_eq!(quotes[0], "  - ` first `");
        assert!(quotes[1].chars().count() <= EXCERPT_CHARS_MAX + 8 && quotes[1].contains('…'), "{body}");
        assert!(quotes[2].starts_with("  - ```` ") && !quotes[2].contains("@octocat"), "{body}");
    }

    #[test]
    fn the_body_of_a_branch_without_a_plan_lists_its_files() {
        let unit =
            "---\nid: x\ntype: belief\ndomain: ops\ntitle: Back up *first*\nconfidence: 0.6\n---\n\n# X\n";
        let files = vec![
            ("domains/ops/beliefs/x.md".to_owned(), unit.as_bytes().to_vec()),
            ("notes (old).md".to_owned(), b"plain".to_vec()),
        ];
        let removed = [(
            "domains/ops/beliefs/old.md".to_owned(),
            unit.replace("Back up", "Do not back up").into_bytes(),
        )];
        insta::assert_snapshot!(body_from_files(&files, &removed, &Summary::default(), FILES), @r"
        <!-- nugget -->
        3 units of knowledge (nothing spent).

        **Units**

        - **belief** [Back up \*first\*](https://github.com/me/brain/blob/0123abc/domains/ops/beliefs/x.md) · ops · confidence 0.60
        - **note** [notes (old)](https://github.com/me/brain/blob/0123abc/notes%20%28old%29.md) · general · confidence 0.80

        **Removed**

        - **belief** Do not back up \*first\* · ops · confidence 0.60

        Merge to keep these units, close to discard them.
        <!-- /nugget -->
        ");
    }

    #[test]
    fn a_body_that_is_too_long_is_cut_and_stays_valid_markdown() {
        for (units, excerpt, is_cut) in [(900, 20, true), (120, 240, true), (3, 10, false)] {
            let long = "日本語 ".repeat(excerpt);
            let candidates: Vec<Candidate> = (0..units)
                .map(|number| candidate(&format!("Title {number} of many that are long"), &long))
                .collect();
            let files =
                (0..units).map(|number| file(&format!("domains/d/bugs/unit-{number}.md"), false, &[number]));
            let plan = plan(files.collect());
            let rejected =
                (0..units).map(|_| Rejected { title: long.clone(), reason: long.clone() }).collect();
            let found = Findings { candidates, rejected, ..Findings::default() };
            let body = body(&found, &plan, &about("p"), FILES);
            assert!(body.chars().count() <= BODY_CHARS_MAX, "{}", body.chars().count());
            assert_eq!(body.matches("<details>").count(), body.matches("</details>").count());
            assert!(body.ends_with("discard them.\n<!-- /nugget -->\n"));
            assert_eq!(body.contains("and more"), is_cut, "{units}");
        }
    }

    /// The body with the section of the capture with this number, of so many units.
    fn with_section(number: usize, units: usize) -> String {
        let candidates = (0..units).map(|at| candidate(&format!("Title {at} of {number}"), "was said"));
        let found =
            Findings { candidates: candidates.collect(), by: "heuristic".into(), ..Findings::default() };
        let files = (0..units).map(|at| file(&format!("domains/d/bugs/unit-{number}-{at}.md"), false, &[at]));
        let branch = format!("nugget/session-20261120-141200-{number:08}");
        body_with_section(&found, &Plan { branch, ..plan(files.collect()) }, &Summary::default(), FILES)
    }

    #[test]
    fn a_section_is_added_once_to_what_others_and_a_person_have_written() {
        let first = with_section(1, 2);
        insta::assert_snapshot!(first, @r"
        <!-- nugget -->
        2 units of knowledge from 1 session.

        ### 2 units from session 00000001 of 2026-11-20 14:12:00 (found by heuristic, nothing spent)

        **Added**

        - **bug** [Title 0 of 1](https://github.com/me/brain/blob/0123abc/domains/d/bugs/unit-1-0.md) · d · confidence 0.75
          - ` was said `
        - **bug** [Title 1 of 1](https://github.com/me/brain/blob/0123abc/domains/d/bugs/unit-1-1.md) · d · confidence 0.75
          - ` was said `

        Merge to keep these units, close to discard them.
        <!-- /nugget -->
        ");
        let edited =
            format!("Read first.\r\n{}\r\nUnit 2 is wrong.", first.replace("was said", "was never said"));
        let both = updated(&edited, &with_section(2, 1)).unwrap();
        assert!(
            both.starts_with("Read first.\r\n<!-- nugget -->\n3 units of knowledge from 2 sessions."),
            "{both}"
        );
        assert!(both.ends_with("<!-- /nugget -->\n\r\nUnit 2 is wrong."), "{both}");
        assert_eq!((both.matches("was never said").count(), both.matches(CALL).count()), (2, 1), "{both}");
        for again in [&first, &with_section(2, 1)] {
            assert_eq!(updated(&both, again).unwrap(), both);
        }
        assert_eq!(updated("Words of a person's.", &first), None);
        // Of a branch of one capture all of it is nugget's.
        let alone = body(&Findings::default(), &plan(Vec::new()), &about("p"), FILES);
        let new = body(&Findings::default(), &plan(Vec::new()), &about("another"), FILES);
        assert_eq!(
            updated(&format!("Before.\n\n{alone}After."), &new),
            Some(format!("Before.\n\n{new}After."))
        );
        assert_eq!((section(&alone), section(&first).unwrap().matches("was said").count()), (None, 2));
    }

    #[test]
    fn sections_that_do_not_fit_lose_quotes_and_then_all_but_their_headings() {
        let mut body = with_section(0, 3);
        for number in 1..400 {
            body = updated(&body, &with_section(number, 3)).unwrap();
            assert!(body.chars().count() <= BODY_CHARS_MAX);
            let expected = format!("{} units of knowledge from {} sessions.", 3 * (number + 1), number + 1);
            assert!(body.contains(&expected), "{body}");
        }
        assert!(body.contains(CUT.trim()) && body.matches("\n### 3 units from ").count() == 400, "{body}");
        assert_eq!(updated(&format!("{}{body}", "x".repeat(BODY_CHARS_MAX)), &with_section(400, 3)), None);
    }

    /// Something that GitHub would act on, in the text that a reader sees outside of code.
    fn find_active(seen: &str) -> Option<String> {
        let chars: Vec<char> = seen.chars().collect();
        for (at, &c) in chars.iter().enumerate() {
            let next = chars.get(at + 1).copied().unwrap_or(' ');
            if (c == '@' || c == '#') && next.is_ascii_alphanumeric() {
                return Some(chars[at..].iter().take(12).collect());
            }
        }
        let lower = seen.to_ascii_lowercase();
        [
            "://",
            "www.",
            "-by:",
            "[skip ci]",
            "[ci skip]",
            "[no ci]",
            "[skip actions]",
            "***no_ci***",
            "skip-checks:",
        ]
        .into_iter()
        .find(|sign| lower.contains(sign))
        .map(str::to_owned)
    }

    /// Checks that a body has no HTML but its own, no links but to its files, and nothing that acts.
    fn check(body: &str) -> Result<(), TestCaseError> {
        let options = Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_MATH;
        let mut seen = String::new();
        let ours = ["<details>", "</details>", BEGIN, END];
        let mut in_code = false;
        for event in Parser::new_ext(body, options) {
            match event {
                Event::Html(html) => {
                    let html = html.trim();
                    let is_ours =
                        ours.iter().any(|ours| html.starts_with(ours)) && html.matches('<').count() <= 3;
                    prop_assert!(is_ours, "{html}");
                }
                Event::InlineHtml(html) => prop_assert!(false, "{html}"),
                Event::Start(Tag::Link { dest_url, .. }) => {
                    prop_assert!(dest_url.starts_with(FILES), "{dest_url}")
                }
                Event::Start(
                    tag @ (Tag::Image { .. } | Tag::CodeBlock(_) | Tag::Heading { .. } | Tag::Table(_)),
                ) => {
                    prop_assert!(false, "{tag:?}");
                }
                Event::InlineMath(math) | Event::DisplayMath(math) => prop_assert!(false, "{math}"),
                Event::FootnoteReference(name) => prop_assert!(false, "{name}"),
                Event::Rule => prop_assert!(false, "a rule"),
                Event::Text(text) if !in_code => seen.push_str(&text),
                Event::Code(_) | Event::SoftBreak | Event::HardBreak | Event::End(_) => seen.push('\n'),
                _ => {}
            }
            in_code = false;
        }
        prop_assert_eq!(find_active(&seen), None, "seen: {}", seen);
        // As the message of a squashed merge it is read raw.
        let raw = body.replace(FILES, "");
        prop_assert_eq!(find_active(&raw), None, "raw: {}", raw);
        for line in body.lines() {
            prop_assert!(!line.to_ascii_lowercase().starts_with("co-authored"), "{line}");
        }
        Ok(())
    }

    /// Texts that markdown, GitHub or git would interpret.
    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("@octocat".to_owned()),
            Just("fixes #12".to_owned()),
            Just("GH-12".to_owned()),
            Just("https://github.com/o/r/issues/1".to_owned()),
            Just("www.example.org".to_owned()),
            Just("&commat;octocat".to_owned()),
            Just("&#64;octocat &#x40;octocat".to_owned()),
            Just("<script>alert(1)</script>".to_owned()),
            Just("</details>".to_owned()),
            Just("<!--".to_owned()),
            Just("-->".to_owned()),
            Just("](https://evil.example)".to_owned()),
            Just("![x](y)".to_owned()),
            Just("```\n".to_owned()),
            Just("`".to_owned()),
            Just("\n\n# Heading\n".to_owned()),
            Just("\n---\n".to_owned()),
            Just("\r\n> quote".to_owned()),
            Just("| a | b |\n|---|---|".to_owned()),
            Just("[skip ci]".to_owned()),
            Just("[ci-skip]".to_owned()),
            Just("***NO_CI***".to_owned()),
            Just("\n\nCo-authored-by: A <a@b.c>".to_owned()),
            Just("\nskip-checks: true".to_owned()),
            Just("$x$ $$y$$".to_owned()),
            Just("[^1] ~~x~~ _y_ **z**".to_owned()),
            Just("\\".to_owned()),
            Just("0123abc4".to_owned()),
            Just("\u{200b}\u{202e}".to_owned()),
            "[ -~]{0,12}",
            any::<String>().prop_map(|text| text.chars().take(12).collect()),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn no_text_of_a_session_breaks_out_or_has_an_effect(title in hostile(), excerpt in hostile(), reason in hostile(), project in hostile()) {
            let found = Findings {
                candidates: vec![candidate(&title, &excerpt), candidate(&excerpt, &title)],
                rejected: vec![Rejected { title: project.clone(), reason }],
                by: title.clone(),
                ..Findings::default()
            };
            let plan = plan(vec![file("domains/d/bugs/a.md", false, &[0]), file("domains/d/bugs/b.md", true, &[1])]);
            check(&body(&found, &plan, &about(&project), FILES))?;
            let session = Session { project: Some(project), ..Session::default() };
            let body = body_with_section(&Findings { session, ..found }, &plan, &about(""), FILES);
            check(&body.replacen("### ", "", 1))?;
        }
    }
}
