//! Renders the status as text for a terminal.

use actors::ActorReport;
use actors::index_progress::IndexProgress;
use jiff::Timestamp;
use queue::{Capture, Stage, State, Tally};
use ratatui::style::{Color, Style};

use super::{ReviewState, Status};
use crate::output::{self, Line, Part, counted, safe, short_path, thousands, wrap};
use crate::state_check::StateProblem;

const DIM: Style = Style::new().dim();
const GOOD: Style = Style::new().fg(Color::Green);
const BUSY: Style = Style::new().fg(Color::Cyan);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red).bold();

/// The longest project name in cells; a longer one is cut.
const PROJECT_WIDTH: usize = 16;
/// Below this width captures are listed without their sessions and projects.
const NARROW: usize = 60;
/// How many waiting reviews are listed, and how many titles of all of them.
const REVIEWS_MAX: usize = 5;
const TITLES_MAX: usize = 8;
/// How many reasons for which captures wait are shown.
const WAITING_MAX: usize = 3;

impl Status {
    /// The lines for a terminal of this width: what waits for the person and what is being done, and in detail how.
    pub(super) fn lines(&self, width: usize, is_detailed: bool) -> Vec<Line> {
        let mut lines = vec![fact("brain", plain(short_path(self.brain.root())))];
        lines.push(fact("to review", vec![self.render_to_review()]));
        if self.tally.dead > 0 {
            let failed = format!("{}: nugget retry --all", counted(self.tally.dead, "capture"));
            lines.push(fact("failed", vec![Part::styled(failed, BAD)]));
        }
        let problems = self.problems();
        for (at, (problem, style)) in problems.iter().enumerate() {
            let name = if at == 0 { "to fix" } else { "" };
            lines.extend(wrapped_fact(name, problem, *style, width));
        }
        for (at, (work, style)) in self.work().iter().enumerate() {
            lines.extend(wrapped_fact(if at == 0 { "now" } else { "" }, work, *style, width));
        }
        if let Some(remote) = &self.remote {
            lines.push(fact("remote", plain(remote.describe(self.now, false).0)));
        }
        if let Some(server) = &self.server {
            lines.push(fact("server", plain(server.describe())));
        }
        if let Some((at, why)) = &self.unread {
            let last = format!("last session {}: {}", output::ago(*at, self.now), why);
            lines.extend(wrapped_fact("model", &last, WARN, width));
        }
        let has_spent = self.spend.tokens > 0 || self.spend.microdollars > 0;
        if is_detailed || has_spent || self.spend.unknown_prices.is_some() {
            let unknown =
                self.spend.unknown_prices.as_ref().map(|unknown| Part::styled(format!("; {unknown}"), WARN));
            lines.push(fact("spent", [self.render_spend()].into_iter().chain(unknown).collect()));
        }
        lines.push(fact("index", self.render_index(is_detailed)));
        lines.extend(self.render_archive(is_detailed).map(|parts| fact("sessions", parts)));
        if is_detailed || self.guard != queue::GuardTally::default() {
            lines.push(fact("guard", plain(self.render_guard())));
        }
        if is_detailed {
            lines.push(fact("vectors", plain(safe(&self.embedder))));
            lines.push(fact("captures", self.render_tally()));
            lines.extend(self.render_stages().map(|stages| fact("stages", stages)));
            lines.push(fact("worker", vec![self.render_worker()]));
            if let Some((at, report)) = &self.sweep {
                let age = output::age(*at, self.now);
                let (queued, found) = (thousands(report.queued), thousands(report.found));
                let sweep = format!("{age} ago: queued {queued} of {found} sessions on disk");
                lines.push(fact("sweep", plain(sweep)));
            }
        }
        let mut block = |heading: Option<&'static str>, block: Vec<Line>| {
            if !block.is_empty() {
                lines.push(Line::default());
                lines.extend(heading.map(|heading| Line::from(Part::styled(heading, DIM))));
                lines.extend(block);
            }
        };
        if let Some((_, report)) = self.worker.as_ref().filter(|_| is_detailed) {
            block(None, render_actors(&report.actors, width));
        }
        block(None, self.render_captures(width));
        block(Some("TO REVIEW (nugget review)"), self.render_reviews(width));
        block(Some("WAITING"), self.render_waiting(width));
        block(Some("LAST ERRORS"), self.render_failures(width));
        lines.iter().map(|line| cut(line, width)).collect()
    }

    fn render_guard(&self) -> String {
        let queue::GuardTally { told, held } = self.guard;
        format!("told {} and held {} in 7 days", counted(told, "unit"), counted(held, "action"))
    }

    fn render_to_review(&self) -> Part {
        match self.to_review() {
            0 if self.is_review_unknown => Part::styled("unknown", WARN),
            0 if self.waiting().next().is_some() => Part::styled("on the remote: nugget review", GOOD),
            0 => match self.put_off() as u64 {
                0 => Part::raw("nothing"),
                count => {
                    Part::raw(format!("nothing; {} put off: nugget review --all", counted(count, "unit")))
                }
            },
            count => Part::styled(format!("{}: nugget review", counted(count as u64, "unit")), GOOD),
        }
    }

    /// What only the person can put right.
    fn problems(&self) -> Vec<(String, Style)> {
        let mut problems = Vec::new();
        if let Some(StateProblem { message, fix }) = &self.problem {
            problems.push((format!("{message}; fix: {fix}"), BAD));
        } else if self.is_stalled() {
            let waiting = counted(self.tally.unfinished(), "capture");
            let why = format!(
                "no worker runs for {waiting}: the next ended session starts it, or `nugget retry --all`"
            );
            problems.push((why, WARN));
        }
        if let Some(unfinished) = &self.unfinished {
            problems.push((unfinished.to_string(), BAD));
        }
        let unreadable = self.index.as_ref().map_or(0, |index| index.problems);
        if unreadable > 0 {
            let files = output::no_units(unreadable as u64);
            problems.push((format!("{files}: `nugget index` says why"), WARN));
        }
        let is_unfinished = self.unfinished.is_some();
        let remote = self.remote.as_ref().map(|remote| remote.describe(self.now, is_unfinished).1);
        let server = self.server.as_ref().map(|server| server.problems(self.now));
        problems.extend(
            remote.into_iter().flatten().chain(server.into_iter().flatten()).map(|problem| (problem, WARN)),
        );
        problems
    }

    /// What is being done, and what comes next.
    fn work(&self) -> Vec<(String, Style)> {
        let mut work: Vec<(String, Style)> = Vec::new();
        for capture in &self.running {
            let since = output::age(capture.started.unwrap_or(capture.added), self.now);
            let (what, session) = (stage_words(capture.stage), describe_session(capture));
            work.push((format!("{what} {session} ({since})"), BUSY));
        }
        let others = self.tally.running.saturating_sub(self.running.len() as u64);
        let queued = self.tally.queued + self.spooled as u64;
        for (count, what) in [(others, "more at work"), (queued, "queued")] {
            if count > 0 {
                work.push((format!("{} {what}", counted(count, "capture")), Style::new()));
            }
        }
        if self.tally.retrying > 0 {
            let next = self.next_retry.map(|next| format!(" in {}", output::age(self.now, next)));
            let captures = counted(self.tally.retrying, "capture");
            work.push((format!("{captures} to be tried again{}", next.unwrap_or_default()), WARN));
        }
        work.extend(
            self.building
                .iter()
                .flat_map(|building| render_build(building, self.now))
                .map(|line| (line, BUSY)),
        );
        if work.is_empty() {
            work.push(("nothing to do".to_owned(), Style::new()));
        }
        work
    }

    fn render_tally(&self) -> Vec<Part> {
        let Tally { queued, running, retrying, done, nothing, dead } = self.tally;
        let counts = [
            // What needs attention comes first.
            (dead, "failed", BAD),
            (retrying, "retrying", WARN),
            (self.spooled as u64, "spooled", WARN),
            (running, "running", BUSY),
            (queued, "queued", Style::new()),
            (done, "done", GOOD),
            (nothing, "nothing new", Style::new()),
        ];
        let mut parts = Vec::new();
        for (count, word, style) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            if !parts.is_empty() {
                parts.push(Part::raw(", "));
            }
            parts.push(Part::styled(format!("{} {word}", thousands(count)), style));
        }
        if parts.is_empty() { plain("none yet") } else { parts }
    }

    /// The number of captures at each stage, if any are unfinished.
    fn render_stages(&self) -> Option<Vec<Part>> {
        let waiting: Vec<String> = self
            .depths
            .iter()
            .filter(|(_, depth)| *depth > 0)
            .map(|(stage, depth)| format!("{stage} {}", thousands(*depth)))
            .collect();
        (!waiting.is_empty()).then(|| plain(waiting.join(" · ")))
    }

    fn render_worker(&self) -> Part {
        if let Some(StateProblem { message, fix }) = &self.problem {
            return Part::styled(format!("{message}; fix: {fix}"), BAD);
        }
        match (&self.worker, self.is_running) {
            (Some((pid, report)), _) => {
                let age = output::age(report.since, self.now);
                Part::styled(format!("running for {age} (process {pid})"), BUSY)
            }
            (None, true) => Part::styled("running", BUSY),
            (None, false) if self.is_stalled() => {
                Part::styled("not running; the next ended session starts it, or `nugget retry --all`", WARN)
            }
            (None, false) if self.tally.unfinished() > 0 => Part::styled("starting", BUSY),
            (None, false) => Part::raw("idle"),
        }
    }

    fn render_spend(&self) -> Part {
        let spend = &self.spend;
        if spend.tokens == 0 && spend.microdollars == 0 {
            return Part::raw("nothing in the last 24 hours");
        }
        let dollars = |microdollars: u64| format!("${:.2}", microdollars as f64 / 1e6);
        let spent = format!(
            "{} of {} in the last 24 hours, {} of {} tokens",
            dollars(spend.microdollars),
            dollars(spend.budget_microdollars),
            thousands(spend.tokens),
            thousands(spend.budget_tokens),
        );
        let is_nearly_spent = spend.microdollars * 10 >= spend.budget_microdollars * 9
            || spend.tokens * 10 >= spend.budget_tokens * 9;
        Part::styled(spent, if is_nearly_spent { WARN } else { Style::new() })
    }

    fn render_index(&self, is_detailed: bool) -> Vec<Part> {
        let Some(index) = &self.index else {
            return vec![Part::styled("not built yet; the next question builds it, or `nugget index`", WARN)];
        };
        let generation = match is_detailed {
            true => format!("generation {}: ", thousands(index.generation)),
            false => String::new(),
        };
        let mut parts = vec![Part::raw(format!("{generation}{}, ", counted(index.units as u64, "unit")))];
        parts.push(match index.behind {
            0 => Part::styled("up to date", GOOD),
            behind => Part::styled(format!("{} behind", counted(behind as u64, "file")), WARN),
        });
        parts
    }

    /// What is in the session archive, if it has anything or something is wrong with it.
    fn render_archive(&self, is_detailed: bool) -> Option<Vec<Part>> {
        let (at, report) = self.archive.as_ref()?;
        if report.sessions == 0 && report.error.is_none() {
            return None;
        }
        let mut parts = Vec::new();
        // An archive that cannot be read has not lost its sessions.
        if report.sessions > 0 {
            parts.push(Part::raw(format!("{} kept", thousands(report.sessions))));
        }
        if let Some(error) = &report.error {
            let what = if is_detailed { safe(error) } else { "nugget doctor".to_owned() };
            let between = if parts.is_empty() { "" } else { "; " };
            parts.push(Part::styled(format!("{between}not up to date: {what}"), WARN));
        } else if is_detailed {
            parts.push(Part::raw(format!(", looked for new ones {} ago", output::age(*at, self.now))));
        }
        Some(parts)
    }

    fn render_captures(&self, width: usize) -> Vec<Line> {
        if self.captures.is_empty() {
            return Vec::new();
        }
        let head = ["ID", "AGE", "STATE", "SESSION", "PROJECT", "RESULT"];
        let mut rows = vec![head.map(|name| Part::styled(name, DIM)).to_vec()];
        rows.extend(self.captures.iter().map(|capture| {
            let project = capture.cwd.as_deref().and_then(archive::project_name);
            let project = safe(project.as_deref().unwrap_or("-"));
            vec![
                Part::raw(capture.id.to_string()),
                Part::raw(output::age(capture.added, self.now)),
                Part::styled(state_word(capture.state), state_style(capture.state)),
                Part::raw(capture.session_id.short()),
                Part::raw(output::fit(&project, PROJECT_WIDTH)),
                Part::raw(self.result(capture)),
            ]
        }));
        // In a narrow terminal the result is worth more than where it comes from.
        if width < NARROW {
            for row in &mut rows {
                row.drain(3..5);
            }
        }
        let too_wide = if width < NARROW { output::TooWide::Wrap } else { output::TooWide::Cut };
        let mut lines = output::columns(rows, width, too_wide);
        let left_out = self.captures_left_out();
        if left_out > 0 {
            let more = format!("and {} more: nugget status --all", thousands(left_out));
            lines.push(Line::from(Part::styled(more, DIM)));
        }
        lines
    }

    fn result(&self, capture: &Capture) -> String {
        let reason = || safe(capture.reason.as_deref().unwrap_or_default());
        match capture.state {
            State::Done => {
                let units = counted(capture.units.into(), "unit");
                let review = self.reviews.iter().find(|review| review.capture == Some(capture.id));
                let pull = capture.pull_number.map(|number| format!(" (#{number})")).unwrap_or_default();
                match review.map(|review| review.state) {
                    Some(ReviewState::Waiting) => {
                        let (waiting, put_off) = review
                            .map_or((0, 0), |review| (review.titles.len() as u64, review.put_off as u64));
                        match (waiting, put_off) {
                            (0, 0) => format!("{units} to review{pull}"),
                            (0, put_off) => format!("{} put off{pull}", counted(put_off, "unit")),
                            (waiting, _) => format!("{} to review{pull}", counted(waiting, "unit")),
                        }
                    }
                    Some(ReviewState::Merged) => {
                        let rejected = review.map_or(0, |review| review.rejected as u64);
                        match u64::from(capture.units).saturating_sub(rejected) {
                            _ if rejected == 0 => format!("{units}, merged{pull}"),
                            0 => format!("{units}, rejected{pull}"),
                            merged => format!("{units}: {merged} merged, {rejected} rejected{pull}"),
                        }
                    }
                    Some(ReviewState::Closed) => format!("{units}, rejected{pull}"),
                    Some(ReviewState::Gone) => format!("{units}, branch deleted"),
                    None => match &capture.branch {
                        Some(branch) => format!("{units} on {branch}"),
                        // A team's server has it.
                        None => reason(),
                    },
                }
            }
            State::Nothing | State::Dead => reason(),
            State::Retrying => {
                let wait = capture.next_attempt.filter(|next| *next > self.now);
                let wait = wait
                    .map_or_else(|| "now".to_owned(), |next| format!("in {}", output::age(self.now, next)));
                format!("retries {} {wait}: {}", capture.stage, reason())
            }
            // A wait for something else, such as a model that does not run, is no attempt.
            State::Queued if capture.reason.is_some() => format!("waits at {}: {}", capture.stage, reason()),
            State::Queued | State::Running => format!("at {}", capture.stage),
        }
    }

    /// The titles of what waits; the addresses of pull requests are not broken, so that they can be copied.
    fn render_reviews(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut shown = 0;
        let mut last_page = None;
        for review in self.waiting().take(REVIEWS_MAX) {
            let capture = self.captures.iter().find(|capture| Some(capture.id) == review.capture);
            let page = capture.and_then(|capture| capture.pull_url.as_deref()).map(safe);
            // Where the queue knows no titles, as of a branch that is only at the remote, its name stands for them.
            if review.titles.is_empty() && page.is_none() {
                lines.push(Line::from(format!("  {}", safe(&review.branch))));
            }
            // Several captures may share a pull request.
            let is_new = page != last_page;
            last_page = page.clone();
            let page = page.filter(|_| is_new);
            lines.extend(page.map(|page| Line::from(Part::styled(format!("  {page}"), DIM))));
            for title in review.titles.iter().take(TITLES_MAX.saturating_sub(shown)) {
                shown += 1;
                for (at, row) in
                    wrap(&output::safe_title(title), width.saturating_sub(4).max(20)).into_iter().enumerate()
                {
                    lines.push(Line::from(format!("  {} {row}", if at == 0 { "-" } else { " " })));
                }
            }
        }
        let all = self.to_review();
        if all > shown {
            lines.push(Line::from(format!("  and {} more", thousands((all - shown) as u64))));
        }
        lines
    }

    /// Each reason for which captures wait, whole: the list of captures has no room for it.
    fn render_waiting(&self, width: usize) -> Vec<Line> {
        let mut reasons: Vec<(&Capture, u64)> = Vec::new();
        for capture in &self.waiting {
            match reasons.iter_mut().find(|(first, _)| first.reason == capture.reason) {
                Some((_, others)) => *others += 1,
                None => reasons.push((capture, 0)),
            }
        }
        let mut lines = Vec::new();
        for (capture, others) in reasons.into_iter().take(WAITING_MAX) {
            let next = capture.next_attempt.filter(|next| *next > self.now);
            let next = next.map(|next| format!(", next try in {}", output::age(self.now, next)));
            let others = if others > 0 { format!(" (and {others} more)") } else { String::new() };
            let reason = safe(capture.reason.as_deref().unwrap_or_default());
            let text = format!("at {}{}{others}: {reason}", capture.stage, next.unwrap_or_default());
            for (at, part) in wrap(&text, width.saturating_sub(6).max(20)).into_iter().enumerate() {
                let number = if at == 0 { format!("{:>4}  ", capture.id) } else { " ".repeat(6) };
                lines.push(Line::from(vec![Part::styled(number, WARN), Part::raw(part)]));
            }
        }
        lines
    }

    /// The latest failures, each in at most three lines.
    fn render_failures(&self, width: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for capture in &self.failures {
            let age = output::age(capture.finished.or(capture.started).unwrap_or(capture.added), self.now);
            let fix = match capture.state {
                State::Dead => format!("; fix: nugget retry {}", capture.id),
                _ => String::new(),
            };
            let reason = safe(capture.reason.as_deref().unwrap_or("no reason was given"));
            let failure = format!("{age} ago at {}: {reason}{fix}", capture.stage);
            for (at, part) in wrap(&failure, width.saturating_sub(6).max(20)).into_iter().take(3).enumerate()
            {
                let number = if at == 0 { format!("{:>4}  ", capture.id) } else { " ".repeat(6) };
                lines.push(Line::from(vec![
                    Part::styled(number, state_style(capture.state)),
                    Part::raw(part),
                ]));
            }
        }
        lines
    }
}

fn render_actors(actors: &[ActorReport], width: usize) -> Vec<Line> {
    let head = ["ACTOR", "STATE", "MAILBOX", "RESTARTS", "LAST ERROR"];
    let mut rows = vec![head.map(|name| Part::styled(name, DIM)).to_vec()];
    rows.extend(actors.iter().map(|actor| {
        let state = match actor.state.as_str() {
            "busy" => BUSY,
            "down" => BAD,
            _ => Style::new(),
        };
        vec![
            Part::raw(actor.name.clone()),
            Part::styled(actor.state.clone(), state),
            Part::raw(actor.mailbox.to_string()),
            Part::styled(actor.restarts.to_string(), if actor.restarts > 0 { WARN } else { Style::new() }),
            Part::raw(safe(actor.last_error.as_deref().unwrap_or_default())),
        ]
    }));
    output::columns(rows, width, output::TooWide::Cut)
}

/// The build in progress; another model is named on lines of its own, because model names are long.
fn render_build(building: &IndexProgress, now: Timestamp) -> Vec<String> {
    let IndexProgress { pid, since, model, present, done, of } = building;
    let age = output::age(*since, now);
    let (done, of) = (thousands(*done as u64), thousands(*of as u64));
    let mut lines = vec![format!("{done} of {of} texts embedded in {age} (process {pid})")];
    if let Some(present) = present.as_ref().filter(|present| *present != model) {
        lines.push(format!("changing to {}", safe(model)));
        lines.push(format!("until then {} answers", safe(present)));
    }
    lines
}

/// The queue calls a capture that has failed for good dead.
fn state_word(state: State) -> String {
    if state == State::Dead { "failed".to_owned() } else { state.to_string() }
}

fn state_style(state: State) -> Style {
    match state {
        State::Queued => Style::new(),
        State::Running => BUSY,
        State::Retrying => WARN,
        State::Done => GOOD,
        State::Nothing => DIM,
        State::Dead => BAD,
    }
}

fn fact(name: &'static str, parts: Vec<Part>) -> Line {
    let mut line = vec![Part::styled(format!("{name:<9} "), DIM)];
    line.extend(parts);
    Line::from(line)
}

/// A fact of as many lines as it needs.
fn wrapped_fact(name: &'static str, text: &str, style: Style, width: usize) -> Vec<Line> {
    let rows = wrap(&safe(text), width.saturating_sub(10).max(20)).into_iter().enumerate();
    rows.map(|(at, row)| fact(if at == 0 { name } else { "" }, vec![Part::styled(row, style)])).collect()
}

/// What is done at a stage, before the session's name.
fn stage_words(stage: Stage) -> &'static str {
    match stage {
        Stage::Intake => "reading",
        Stage::Upload => "handing over",
        Stage::Extraction => "extracting knowledge from",
        Stage::Embedding | Stage::Indexing => "comparing what is known with",
        Stage::Git => "making the branch of",
        Stage::Delivery => "delivering",
    }
}

/// `session ad5139ef in invoicing`, or what else the capture is of.
fn describe_session(capture: &Capture) -> String {
    let project = capture.cwd.as_deref().and_then(std::path::Path::file_name);
    let project = project
        .map(|name| format!(" in {}", knowledge::text::one_line(&name.to_string_lossy(), PROJECT_WIDTH)));
    match capture.origin.as_str() {
        queue::ORIGIN_IMPORT => "an import".to_owned(),
        queue::ORIGIN_EDIT => "an edit".to_owned(),
        queue::ORIGIN_NOTES => "notes of agents".to_owned(),
        queue::ORIGIN_REFLECTION => "a reflection".to_owned(),
        _ => format!("session {}{}", capture.session_id.short(), project.unwrap_or_default()),
    }
}

fn plain(text: impl Into<String>) -> Vec<Part> {
    vec![Part::raw(text.into())]
}

/// Cuts a line to the width.
fn cut(line: &Line, width: usize) -> Line {
    if line.width() <= width {
        return line.clone();
    }
    let mut room = width;
    let mut parts = Vec::new();
    for part in &line.spans {
        if part.width() >= room {
            // The added blank forces an ellipsis even if the part just fits, because more follows.
            let text = output::fit(&format!("{} ", part.content), room);
            parts.push(Part::styled(text, part.style));
            break;
        }
        room -= part.width();
        parts.push(part.clone());
    }
    Line::from(parts)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use actors::WorkerReport;
    use actors::archiving::ArchiveReport;
    use actors::sweep::SweepReport;
    use brain::Brain;
    use index::IndexStatus;
    use queue::Stage;

    use super::super::{RemoteStatus, Review, ServerStatus, Spend};
    use super::*;

    fn capture(id: i64, state: State, stage: Stage, minutes: i64, reason: Option<&str>) -> Capture {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let added = now - jiff::SignedDuration::from_mins(minutes);
        Capture {
            id,
            session_id: knowledge::SessionId::verbatim(format!("{id:08x}-0000-4000-8000-000000000000")),
            transcript: PathBuf::from("/t.jsonl"),
            cwd: Some(PathBuf::from(if id % 2 == 0 {
                "/home/me/web-shop"
            } else {
                "/home/me/日本語のプロジェクトの名前"
            })),
            origin: "hook".to_owned(),
            state,
            stage,
            attempts: 1,
            branch: (state == State::Done).then(|| format!("nugget/session-20261120-1300{id:02}-{id:08x}")),
            commit: None,
            units: if state == State::Done { 3 } else { 0 },
            pushed: None,
            pull_number: (id == 8).then_some(31),
            pull_url: (id == 8).then(|| "https://github.com/me/brain/pull/31".to_owned()),
            pull_state: (id == 8).then_some(queue::PullState::Open),
            reason: reason.map(str::to_owned),
            added,
            started: Some(added),
            finished: state.is_final().then_some(added),
            next_attempt: (state == State::Retrying).then(|| now + jiff::SignedDuration::from_secs(40)),
        }
    }

    /// A status with one of everything.
    fn full_status(brain: Brain) -> Status {
        let now: Timestamp = "2026-11-20T14:12:00Z".parse().unwrap();
        let overloaded = "the API is overloaded (529): it asked to be left alone for half a minute, \u{1b}[31mand it gets what it wants\u{1b}[0m";
        let captures = vec![
            capture(12, State::Queued, Stage::Intake, 0, None),
            capture(11, State::Running, Stage::Extraction, 1, None),
            capture(10, State::Retrying, Stage::Extraction, 4, Some(overloaded)),
            capture(9, State::Dead, Stage::Git, 95, Some("the repository is locked by another program")),
            capture(8, State::Done, Stage::Git, 300, None),
            capture(7, State::Done, Stage::Git, 4000, None),
            capture(
                6,
                State::Nothing,
                Stage::Extraction,
                9000,
                Some("no decision, fix or rule was stated in 3 turns"),
            ),
        ];
        let review = |capture: i64, state| Review {
            capture: Some(capture),
            branch: format!("nugget/session-20261120-1300{capture:02}-{capture:08x}"),
            state,
            titles: vec![format!("Unit of capture {capture}"), "Never \u{1b}[31mtrust a title".to_owned()],
            put_off: 0,
            merged: 0,
            rejected: 0,
        };
        let actor = |name: &str, state: &str, mailbox, restarts, error: Option<&str>| ActorReport {
            name: name.to_owned(),
            state: state.to_owned(),
            mailbox,
            handled: 7,
            restarts,
            last_error: error.map(str::to_owned),
        };
        Status {
            now,
            brain,
            tally: Tally { queued: 1_001, running: 1, retrying: 1, done: 2, nothing: 1, dead: 1 },
            depths: vec![(Stage::Intake, 1), (Stage::Extraction, 2), (Stage::Embedding, 0)],
            spooled: 1,
            next_retry: Some(now + jiff::SignedDuration::from_secs(40)),
            unread: Some((
                now - jiff::SignedDuration::from_mins(5),
                "read by rules and not by a model: claude-api: HTTP 401: invalid x-api-key".to_owned(),
            )),
            sweep: Some((
                now - jiff::SignedDuration::from_mins(3),
                SweepReport { found: 31, queued: 2, skipped: std::collections::BTreeMap::new() },
            )),
            archive: Some((
                now - jiff::SignedDuration::from_mins(4),
                ArchiveReport { sessions: 1_234, error: Some("the disk is full".to_owned()) },
            )),
            guard: queue::GuardTally { told: 12, held: 1 },
            remote: Some(RemoteStatus {
                url: "https://github.com/me/brain".to_owned(),
                lag: None,
                synced: Some(now - jiff::SignedDuration::from_mins(2)),
                error: Some("the remote cannot be reached".to_owned()),
                is_refused: false,
                without_token: 0,
                pause: None,
            }),
            server: Some(ServerStatus {
                url: "https://brains.example.com".to_owned(),
                brain: "payments".to_owned(),
                expires_soon: None,
                pause: None,
            }),
            problem: None,
            is_review_unknown: false,
            unfinished: None,
            is_running: true,
            worker: Some((
                4711,
                WorkerReport {
                    since: now - jiff::SignedDuration::from_secs(90),
                    actors: vec![
                        actor("embedding", "idle", 0, 0, None),
                        actor(
                            "extraction",
                            "busy",
                            2,
                            1,
                            Some("the API is overloaded (529), as it has been for all of this afternoon"),
                        ),
                        actor("git", "down", 1, 0, None),
                    ],
                },
            )),
            failures: captures[2..4].to_vec(),
            running: captures[1..2].to_vec(),
            waiting: Vec::new(),
            captures,
            other_reviews: vec![review(3, ReviewState::Waiting)],
            reviews: vec![review(8, ReviewState::Waiting), review(7, ReviewState::Merged)],
            spend: Spend {
                tokens: 1_234_567,
                microdollars: 1_900_000,
                budget_tokens: 2_000_000,
                budget_microdollars: 2_000_000,
                unknown_prices: None,
            },
            index: Some(IndexStatus {
                generation: 14,
                built: Some(now),
                model: "m".to_owned(),
                units: 1_204,
                chunks: 4_000,
                problems: 1,
                behind: 3,
            }),
            building: Some(IndexProgress {
                pid: 4712,
                since: now - jiff::SignedDuration::from_secs(12),
                model: "voyage-4".to_owned(),
                present: Some("all-MiniLM-L6-v2/w8".to_owned()),
                done: 120,
                of: 4_000,
            }),
            embedder: "voyage-4 by Voyage".to_owned(),
        }
    }

    #[test]
    fn the_whole_reason_of_a_wait_is_shown_once_for_all_captures() {
        let folder = tempfile::tempdir().unwrap();
        let mut status = full_status(Brain::init(&folder.path().join("brain")).unwrap().brain);
        let why = "claude-api: the model's server answered 401: invalid x-api-key; it refused the key in \
                   ANTHROPIC_API_KEY: put a valid one there";
        status.waiting =
            (1..4).map(|id| capture(id, State::Queued, Stage::Extraction, 1, Some(why))).collect();
        for width in [60, 80] {
            let lines: Vec<String> = status.lines(width, false).iter().map(ToString::to_string).collect();
            let waiting = lines.split(|line| line == "WAITING").nth(1).unwrap();
            let waiting = waiting.split(String::is_empty).next().unwrap().join(" ");
            let waiting = waiting.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(waiting, format!("1 at extraction (and 2 more): {why}"));
        }
    }

    #[test]
    fn a_full_status_fits_into_80_columns_and_40() {
        let folder = tempfile::tempdir().unwrap();
        let brain = Brain::init(&folder.path().join("brain")).unwrap().brain;
        let root = brain.root().display().to_string();
        let status = full_status(brain);
        for (width, is_detailed) in
            [(40, true), (60, false), (60, true), (80, false), (80, true), (200, true)]
        {
            let lines = status.lines(width, is_detailed);
            let wide: Vec<_> = lines.iter().filter(|line| line.width() > width).collect();
            assert!(wide.is_empty(), "{wide:?}");
        }
        let text = |width, is_detailed| -> String {
            status.lines(width, is_detailed).iter().map(|line| format!("{line}\n")).collect()
        };
        let brief = text(60, false);
        insta::assert_snapshot!("status_of_everything_for_a_person", brief.split_once('\n').unwrap().1);
        assert!(!brief.contains("ACTOR") && !brief.contains("generation"), "{brief}");
        let text = text(80, true);
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.starts_with("brain     ") && !first.trim_end_matches('…').is_empty(), "{first} {root}");
        insta::assert_snapshot!("status_of_everything", rest);
    }
}
