//! Renders what waits for review, and what was done, as text for a terminal.

use std::time::Duration;

use actors::review::{Action, Item, NotMerged, RejectedFile, Reviewed};
use git::CommitId;
use jiff::Timestamp;
use knowledge::unit::is_hidden;
use knowledge::{Document, Enforce, Relation, Scope, Unit, text};
use queue::EvidenceLine;
use ratatui::style::{Color, Style};
use similar::{ChangeTag, TextDiff};

use crate::output::{self, Line, Part, age, ago, counted, safe, safe_title, wrap};

pub(super) const DIM: Style = Style::new().dim();
pub(super) const BOLD: Style = Style::new().bold();
pub(super) const WARN: Style = Style::new().fg(Color::Yellow);

/// How many lines of evidence are shown, and how much of each.
const EVIDENCE_MAX: usize = 6;
const EXCERPT_CHARS_MAX: usize = 600;
/// How many unchanged lines are shown around a changed one.
const CONTEXT_LINES: usize = 2;
/// How long the fewest lines that differ are searched for, which takes quadratic time; what is left then counts as changed.
const DIFF_TIME_MAX: Duration = Duration::from_millis(200);

/// What an item does, in a word for JSON.
pub(super) fn action_word(action: Action) -> &'static str {
    match action {
        Action::Adds => "adds",
        Action::Completes => "completes",
        Action::Retires => "retires",
        Action::Removes => "removes",
    }
}

/// The name of the project that the session worked in.
pub(super) fn project(item: &Item) -> Option<String> {
    let name = archive::project_name(item.capture.as_ref()?.cwd.as_deref()?)?;
    Some(text::one_line(&name, 40))
}

/// Where an item comes from, and when: `session ad5139ef in invoicing, 5 d ago`.
pub(super) fn origin(item: &Item, now: Timestamp) -> String {
    let what = match item.branch.as_str() {
        _ if item.is_edit() => "edit",
        branch if branch.starts_with("nugget/notes-") => "agents on",
        branch if branch.starts_with("nugget/reflection-") => "reflection",
        branch if branch.starts_with("nugget/import-") => "import",
        _ => "session",
    };
    let project = project(item).map(|project| format!(" in {project}")).unwrap_or_default();
    format!("{what} {}{project}, {}", safe(&item.session), ago(item.time, now))
}

/// What is special about an item, beside that it adds a unit.
pub(super) fn remarks(item: &Item, now: Timestamp) -> Vec<String> {
    let mut remarks: Vec<String> = item.reasons.iter().map(|reason| safe(reason)).collect();
    match item.action {
        Action::Adds => {}
        Action::Completes if item.is_edit() || item.is_reflection() || item.changes_text() => {
            remarks.push("changes a unit that you have".to_owned())
        }
        Action::Completes => remarks.push("adds to a unit that you have".to_owned()),
        Action::Retires => {
            let status = item.unit.as_ref().and_then(|unit| unit.status.as_deref());
            remarks.push(match status.filter(|status| is_hidden(status)) {
                Some(_) => "archives a unit that you have".to_owned(),
                None => "marks a unit that you have as replaced".to_owned(),
            });
        }
        Action::Removes => remarks.push("removes this unit".to_owned()),
    }
    if !item.replaces.is_empty() {
        remarks.push(format!("replaces {}", safe(&item.replaces.join(", "))));
    }
    let others = item.removes().filter(|path| *path != item.path);
    remarks.extend(others.map(|path| format!("removes {}", safe(path))));
    if item.is_edit() {
        remarks.extend(item.also_changes().map(|path| format!("changes {} with it", safe(path))));
    }
    if let Some(why) = item.problem() {
        remarks.push(format!("it is no unit: {}: `edit` puts that right", safe(&why)));
    }
    if let Some(path) = &item.moved_to {
        remarks.push(format!("your main branch has renamed it: {}", safe(path)));
    }
    if item.is_gone {
        remarks.push("your main branch has removed it since: `edit` brings it back".to_owned());
    } else if item.is_taken {
        remarks.push("your main branch has a unit of this name: `edit` combines both, or".to_owned());
        remarks.push("keeps both if you give this one another id".to_owned());
    } else if item.has_conflict && item.action == Action::Removes {
        remarks.push("your main branch has changed it since: `reject` keeps it".to_owned());
    } else if item.has_conflict {
        remarks.push("your main branch has changed it since: `edit` combines both".to_owned());
    }
    if let Some(until) = item.later {
        remarks.push(format!("put off for {}", age(now, until)));
    }
    remarks
}

fn put_off_line(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!("{} put off: nugget review --list --all\n", counted(count as u64, "unit")),
    }
}

/// The list, with the numbers of its items.
pub(super) fn list(items: &[Item], put_off: usize, now: Timestamp) -> String {
    let put_off = put_off_line(put_off);
    if items.is_empty() {
        return format!("nothing waits for review\n{put_off}");
    }
    let width = output::terminal_width();
    let wait = if items.len() == 1 { "waits" } else { "wait" };
    let mut lines = vec![Line::from(Part::styled(
        format!("{} {wait} for review", counted(items.len() as u64, "unit")),
        BOLD,
    ))];
    let kind_width = items.iter().map(|item| output::width(&kind(item))).max().unwrap_or(0);
    let mut branch = None;
    for (number, item) in (1..).zip(items) {
        if branch != Some(&item.branch) {
            branch = Some(&item.branch);
            lines.push(Line::default());
            lines.push(Line::from(Part::styled(origin(item, now), DIM)));
            lines.extend(item.pull_url().map(|url| Line::from(Part::styled(safe(url), DIM))));
        }
        let head = format!("{number:>3}  {:<kind_width$}  ", kind(item));
        let indent = output::width(&head);
        let mut title = wrap(&safe_title(item.title()), width.saturating_sub(indent).max(20)).into_iter();
        lines.push(Line::from(vec![Part::raw(head), Part::raw(title.next().unwrap_or_default())]));
        lines.extend(title.map(|row| Line::from(format!("{}{row}", " ".repeat(indent)))));
        lines.extend(
            remarks(item, now)
                .into_iter()
                .map(|remark| Line::from(vec![Part::raw(" ".repeat(indent)), Part::styled(remark, WARN)])),
        );
    }
    let lines = output::styled(&lines);
    let last = items.len().min(3);
    let decide = format!("nugget review {}", decisions(items, last));
    let decide = wrap(&decide, width.saturating_sub(8).max(20)).join("\n        ");
    format!("{lines}\nread:   nugget review show {last}\ndecide: {decide}\n{put_off}")
}

/// What was rejected, when, why, and where its text can still be read.
pub(super) fn rejected(rejected: &[RejectedFile], now: Timestamp) -> String {
    if rejected.is_empty() {
        return "nothing was rejected here\n".to_owned();
    }
    let width = output::terminal_width().saturating_sub(2).max(20);
    let mut lines = Vec::new();
    for one in rejected {
        let indented = |text: &str, style: Style| {
            let rows = wrap(text, width).into_iter();
            rows.map(move |row| Line::from(Part::styled(format!("  {row}"), style))).collect::<Vec<_>>()
        };
        let title = wrap(&safe_title(&one.title), width + 2).into_iter();
        lines.extend(title.map(|row| Line::from(Part::styled(row, BOLD))));
        let because = one.because.as_deref().map(|because| format!(": {}", safe(because)));
        let what = format!("rejected {}{}", ago(one.at, now), because.unwrap_or_default());
        lines.extend(indented(&what, Style::new()));
        if let Some(place) = one.commit.as_ref().map(|commit| place(commit, &one.path)) {
            lines.push(Line::from(Part::styled(format!("  git show {place}"), DIM)));
        }
    }
    let text = output::styled(&lines);
    match rejected.iter().any(|one| one.commit.is_some()) {
        true => format!("{text}\n`git show` runs in the brain; git keeps what was deleted for two weeks\n"),
        false => text,
    }
}

/// A file at a commit, as git names it.
fn place(commit: &CommitId, path: &str) -> String {
    format!("{}:{}", &commit.to_string()[..10], safe(path))
}

/// The commands that decide about items, with numbers of the list: a merge only of what can be merged.
fn decisions(items: &[Item], last: usize) -> String {
    let can_merge = |item: &Item| {
        let is_changed_removal = item.action == Action::Removes && item.has_conflict;
        !item.is_gone && !item.is_taken && !is_changed_removal && item.problem().is_none()
    };
    let mergeable = (1..).zip(items).filter(|(_, item)| can_merge(item)).take(2);
    let mergeable: Vec<String> = mergeable.map(|(number, _): (usize, _)| number.to_string()).collect();
    let merge = match mergeable.as_slice() {
        [] => String::new(),
        // `--all` leaves out what is put off.
        mergeable if items.iter().all(|item| item.later.is_some()) => {
            format!("merge {}, ", mergeable.join(" "))
        }
        mergeable => format!("merge {} (or --all), ", mergeable.join(" ")),
    };
    format!("{merge}edit {last}, reject {last}, later {last}")
}

fn kind(item: &Item) -> String {
    text::one_line(item.kind(), 12)
}

/// A unit as it would read, with what it rests on.
pub(super) fn unit(item: &Item, evidence: &[EvidenceLine], width: usize, now: Timestamp) -> Vec<Line> {
    let mut lines: Vec<Line> = wrap(&safe_title(item.title()), width)
        .into_iter()
        .map(|row| Line::from(Part::styled(row, BOLD)))
        .collect();
    let mut facts = Vec::new();
    match &item.unit {
        Some(unit) => {
            facts.push(format!("{} in {}", kind(item), text::one_line(unit.domain.as_str(), 40)));
            facts.push(format!("confidence {:.2}", unit.confidence));
            if !unit.source.is_empty() {
                facts.push(format!("from {}", text::one_line(&unit.source, 40)));
            }
        }
        None => facts.push("a file that is no unit".to_owned()),
    }
    facts.push(origin(item, now));
    let dim = |text: &str| wrap(text, width).into_iter().map(|row| Line::from(Part::styled(row, DIM)));
    lines.extend(dim(&facts.join(" · ")));
    lines.extend(dim(&safe(&item.id)));
    for remark in remarks(item, now) {
        lines.extend(wrap(&remark, width).into_iter().map(|row| Line::from(Part::styled(row, WARN))));
    }
    for fact in item.unit.as_ref().map(front_matter).unwrap_or_default() {
        lines.extend(dim(&safe(&fact)));
    }
    let changes = item.before().map(|before| changes(&before, &item.text, width)).unwrap_or_default();
    if !changes.is_empty() {
        lines.push(Line::default());
        lines.push(Line::from(Part::styled("Changes:", BOLD)));
        lines.extend(changes);
        lines.push(Line::default());
        lines.push(Line::from(Part::styled("As it would read:", BOLD)));
    }
    lines.push(Line::default());
    lines.extend(body(item, width));
    // Most units quote their evidence already.
    let words =
        |text: &str| text.split_whitespace().filter(|word| *word != ">").collect::<Vec<_>>().join(" ");
    let body = words(&item.text);
    let evidence: Vec<&EvidenceLine> =
        evidence.iter().filter(|line| !body.contains(words(&line.excerpt).trim_end_matches('…'))).collect();
    if !evidence.is_empty() {
        lines.push(Line::default());
        lines.push(Line::from(Part::styled("From the session:", BOLD)));
        for line in evidence.iter().take(EVIDENCE_MAX) {
            let excerpt = text::one_line(&line.excerpt, EXCERPT_CHARS_MAX);
            lines.extend(
                wrap(&excerpt, width.saturating_sub(2).max(20))
                    .into_iter()
                    .map(|row| Line::from(Part::styled(format!("> {row}"), DIM))),
            );
        }
        if evidence.len() > EVIDENCE_MAX {
            lines.push(Line::from(Part::styled(format!("and {} more", evidence.len() - EVIDENCE_MAX), DIM)));
        }
    }
    lines
}

/// What of a unit's front matter decides where it is shown and what it does.
fn front_matter(unit: &Unit) -> Vec<String> {
    let lines_of = |value: &Scope| {
        let yaml = serde_yaml::to_string(value).unwrap_or_default();
        yaml.lines().collect::<Vec<_>>().join(", ")
    };
    let related = unit.related.iter().map(|related| {
        let is_special = related.relation != Relation::OftenCombinedWith;
        let relation = is_special.then(|| related.relation.to_string());
        let about: Vec<String> = relation.into_iter().chain(related.reason.clone()).collect();
        match about.is_empty() {
            true => related.id.to_string(),
            false => format!("{} ({})", related.id, about.join(": ")),
        }
    });
    let facts = [
        ("status", unit.status.clone().unwrap_or_default()),
        ("stale after", unit.stale_after.map(|time| time.to_string()).unwrap_or_default()),
        ("enforce", unit.enforce.map(|Enforce::Hold| "hold".to_owned()).unwrap_or_default()),
        ("scope", unit.scope.iter().map(lines_of).collect::<Vec<_>>().join("; ")),
        ("instead of", unit.alternatives.join("; ")),
        ("related", related.collect::<Vec<_>>().join(", ")),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| format!("{name}: {value}")).collect()
}

/// The lines that differ, with some around them, as in a patch.
fn changes(before: &str, after: &str, width: usize) -> Vec<Line> {
    let (before, after) = (safe(before), safe(after));
    let diff = TextDiff::configure().timeout(DIFF_TIME_MAX).diff_lines(before.as_str(), after.as_str());
    let mut lines = Vec::new();
    for group in diff.grouped_ops(CONTEXT_LINES) {
        if !lines.is_empty() {
            lines.push(Line::from(Part::styled("…", DIM)));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (mark, style) = match change.tag() {
                ChangeTag::Delete => ("- ", Style::new().fg(Color::Red)),
                ChangeTag::Insert => ("+ ", Style::new().fg(Color::Green)),
                ChangeTag::Equal => ("  ", DIM),
            };
            let rows = wrap_indented(change.value().trim_end(), width.saturating_sub(2).max(20));
            lines.extend(rows.into_iter().map(|row| Line::from(Part::styled(format!("{mark}{row}"), style))));
        }
    }
    lines
}

/// The text below the front matter, without the heading that repeats the title.
fn body(item: &Item, width: usize) -> Vec<Line> {
    let document = item.unit.as_ref().and_then(|_| Document::parse(item.text.as_str()).ok());
    let text = document.as_ref().map_or(item.text.as_str(), Document::body);
    let text = safe(text.trim());
    let heading = format!("# {}", item.title());
    let text = text.strip_prefix(heading.as_str()).unwrap_or(&text).trim_start_matches('\n');
    let mut lines = Vec::new();
    for row in text.lines() {
        let style = match row {
            _ if row.starts_with('#') => BOLD,
            _ if row.starts_with('>') => DIM,
            _ => Style::new(),
        };
        let wrapped = wrap_indented(row, width);
        lines.extend(wrapped.into_iter().map(|row| Line::from(Part::styled(row, style))));
    }
    lines
}

/// What a merge is called when it is reported.
pub(super) const MERGED: &str = "merged";

/// What was done, and how many units still wait.
pub(super) fn reviewed(verb: &str, reviewed: &Reviewed, waiting: usize, put_off: usize) -> String {
    let mut text = reviewed_lines(verb, reviewed);
    match waiting {
        0 => text.push_str(&format!("nothing else waits for review\n{}", put_off_line(put_off))),
        count => {
            let wait = if count == 1 { "waits" } else { "wait" };
            text.push_str(&format!("{} still {wait}: nugget review\n", counted(count as u64, "unit")));
        }
    }
    text
}

/// What was done.
pub(super) fn reviewed_lines(verb: &str, reviewed: &Reviewed) -> String {
    let mut text = String::new();
    for item in &reviewed.decided {
        let is_removed = verb == MERGED && item.action == Action::Removes;
        let verb = if is_removed { "removed" } else { verb };
        text.push_str(&format!("{verb}: {}\n", safe_title(item.title())));
    }
    // Where the branch has its usual name, there is nothing to wonder about.
    if let Some(branch) = reviewed.merged_into.as_deref().filter(|name| !["main", "master"].contains(name)) {
        text.push_str(&format!("into: branch {}\n", safe(branch)));
    }
    let left: Vec<_> = reviewed
        .left
        .iter()
        .map(|(item, why)| (safe_title(item.title()), describe_not_merged(item, why).0))
        .collect();
    // What stops all of them is said once.
    for same in left.chunk_by(|(_, one), (_, other)| one == other) {
        for (title, why) in same {
            let why = if same.len() == 1 { format!(": {why}") } else { String::new() };
            text.push_str(&format!("not {verb}: {title}{why}\n"));
        }
        if let [(_, why), _, ..] = same {
            text.push_str(&format!("  {why}\n"));
        }
    }
    for finished in &reviewed.finished {
        let pull = finished.pull.map(|number| format!(", pull request #{number} closed")).unwrap_or_default();
        text.push_str(&match &finished.left {
            None => format!("deleted: branch {}{pull}\n", safe(&finished.branch)),
            Some(why) => format!("kept: branch {}: {}\n", safe(&finished.branch), safe(why)),
        });
    }
    let is_deleted = |item: &&Item| {
        let mut finished = reviewed.finished.iter();
        finished.any(|finished| finished.left.is_none() && finished.branch == item.branch)
    };
    if let Some(item) = reviewed.decided.iter().find(is_deleted).filter(|_| verb != MERGED) {
        // As long as git keeps by default what nothing refers to.
        let place = place(&item.commit, &item.path);
        text.push_str(&format!("to read it again within two weeks, in the brain: git show {place}\n"));
    }
    for note in &reviewed.notes {
        text.push_str(&format!("note: {}\n", safe(note)));
    }
    text
}

/// Why an item was not merged, and what to do.
pub(super) fn describe_not_merged(item: &Item, why: &NotMerged) -> (String, String) {
    let id = &item.id;
    let (why, hint) = match why {
        NotMerged::NoLongerAsListed => {
            ("it was decided or changed meanwhile".to_owned(), "list again: nugget review".to_owned())
        }
        NotMerged::Conflict if item.action == Action::Removes => (
            "your main branch has changed it since".to_owned(),
            format!("read it again, then reject this and remove it again: nugget review reject {id}"),
        ),
        NotMerged::Conflict if item.is_gone => (
            "your main branch has removed it since".to_owned(),
            format!("nugget review reject {id} leaves it removed; edit brings it back"),
        ),
        NotMerged::IdTaken(path) => (
            format!("{path} has the same id, and one of both would not be found"),
            format!("give it another `id`: nugget review edit {id}"),
        ),
        NotMerged::Conflict => (
            "your main branch has changed the same lines".to_owned(),
            format!("nugget review edit {id} shows both; nothing was changed"),
        ),
        NotMerged::Moved => (
            "your main branch got new commits at the same moment".to_owned(),
            "nothing was changed; merge again".to_owned(),
        ),
        NotMerged::NotAUnit(why) => {
            (format!("it is no unit: {why}"), format!("put that right: nugget review edit {id}"))
        }
        NotMerged::Refused(refusal) => {
            (refusal.to_string(), "nothing was changed; put that right, then merge again".to_owned())
        }
        NotMerged::RemoteRefused { why, is_protected } => (
            why.clone(),
            match item.pull_url() {
                Some(url) => format!("nothing was changed; merge it there: {url}"),
                None if *is_protected => format!(
                    "nothing was changed; where your main branch takes no pushes, merge the branch {} there, then `nugget sync`",
                    item.branch
                ),
                None => "nothing was changed; try again".to_owned(),
            },
        ),
    };
    (safe(&why), safe(&hint))
}

/// Breaks a line of markdown; what follows is indented like its text. Code keeps its spaces where it fits.
fn wrap_indented(row: &str, width: usize) -> Vec<String> {
    let row = row.replace('\t', "    ");
    let row = row.trim_end();
    if output::width(row) <= width {
        return vec![row.to_owned()];
    }
    let text = row.trim_start_matches([' ', '-', '*', '>']);
    let mark = &row[..row.len() - text.len()];
    let room = width.saturating_sub(output::width(mark)).max(20);
    let follow = if mark.contains('>') { mark.to_owned() } else { " ".repeat(output::width(mark)) };
    let rows = wrap(text, room).into_iter().enumerate();
    rows.map(|(at, text)| if at == 0 { format!("{mark}{text}") } else { format!("{follow}{text}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_many_lines_is_shown_whole() {
        let text = |word: &str| (0..20_000).map(|at| format!("{word} {at}\n")).collect::<String>();
        let (before, after) = (text("before"), text("after"));
        let shown = changes(&before, &after, 80);
        assert_eq!(shown.len(), 40_000);
    }

    #[test]
    fn a_line_of_markdown_breaks_below_its_text() {
        assert_eq!(
            wrap_indented("- one two three four five six", 20),
            ["- one two three four", "  five six"]
        );
        assert_eq!(
            wrap_indented("> one two three four five six", 22),
            ["> one two three four", "> five six"]
        );
        assert_eq!(wrap_indented("    let a  = b;", 20), ["    let a  = b;"]);
        assert_eq!(wrap("", 20), [""]);
    }
}
