//! Finds the session that wrote a line of code.
//!
//! git says which commit brought a line, and from which file; the archive has every edit of every session. The line's
//! session is one whose edit, before that commit, added the line where it had not been, with the same lines around it.
//! A line that many places share, like a closing bracket, is only believed with its neighbours; without an edit that
//! fits, the answer is that nobody knows.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use archive::{Archive, EditCall, Session, Turn};
use jiff::{SignedDuration, Timestamp};

use crate::derive::intent;
use crate::edits::{FileEdit, file_edits};

/// The sessions whose edits are read.
const SESSIONS_MAX: usize = 200;
/// The sessions that are looked at for a line that was moved from another file.
const MOVED_SESSIONS_MAX: usize = 40;
/// An edit this much later than the commit is not in it: clocks differ a little.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(120);
/// A line that was moved is looked for in edits of this time before the commit.
const MOVED_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);
/// A line with at least so many letters and digits tells something by itself.
const DISTINCT_FROM: usize = 12;
/// With so many it tells enough by itself.
const TELLING_FROM: usize = 25;
/// So many lines before and after it must be the same for one that tells nothing.
const NEIGHBOURS_OF_PLAIN: usize = 2;
/// A line that tells little is taken to be of the session that wrote a line of the same commit this close to it.
const NEAR: usize = 4;
/// And for one in another file.
const NEIGHBOURS_OF_MOVED: usize = 3;
/// And for an edit that is far from the commit in time. In a real repository whose commits name their sessions, none of 584
/// lines that were given to the right session was, but 17 of 28 that were given to another.
const NEIGHBOURS_OF_FAR: usize = 5;
/// What waits longer for its commit is far from it.
const WRITTEN_BEFORE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// And what comes later after it was written first: an amended or rebased commit.
const WRITTEN_AFTER_MAX: SignedDuration = SignedDuration::from_hours(6);

/// A line of code, as git's blame tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The file that the line was in when it was committed, within the repository.
    pub path: String,
    /// The line.
    pub text: String,
    /// The lines before it in that file, the nearest last.
    pub before: Vec<String>,
    /// The lines after it in that file, the nearest first.
    pub after: Vec<String>,
    /// When the commit was written first; `None` if the line is not committed.
    pub authored: Option<Timestamp>,
    /// When the commit was made.
    pub committed: Option<Timestamp>,
    /// The commit's id.
    pub commit: Option<String>,
}

/// Where a line comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The session that wrote it.
    pub session: Session,
    /// The number of the prompt's message.
    pub prompt: Option<i64>,
    /// What the person had asked.
    pub prompt_text: String,
    /// The message that made the edit.
    pub message: i64,
    /// When.
    pub at: Option<Timestamp>,
    /// How many of the lines around it the edit has as well.
    pub neighbours: usize,
    /// Whether the edit was of another file, from which the line was moved.
    pub is_moved: bool,
}

/// Traces lines. What the lines of a file or a commit share is read once: they may be hundreds.
pub struct Tracer<'a> {
    archive: &'a Archive,
    project: &'a str,
    turns: HashMap<String, Vec<Turn>>,
    /// The sessions that changed a file, by its path.
    changed: HashMap<String, Rc<[Session]>>,
    /// The sessions before a commit, by the latest time of an edit that is in it.
    before: HashMap<Option<Timestamp>, Rc<[Session]>>,
    /// What was found: lines that tell little ask for those around them.
    traced: HashMap<Line, Option<Origin>>,
}

struct Candidate<'t> {
    session: &'t Session,
    turn: &'t Turn,
    edit: &'t EditCall,
    neighbours: usize,
    is_whole: bool,
    is_moved: bool,
}

impl<'a> Tracer<'a> {
    /// `project` is the key of the project that the lines are in.
    pub fn new(archive: &'a Archive, project: &'a str) -> Self {
        Self {
            archive,
            project,
            turns: HashMap::new(),
            changed: HashMap::new(),
            before: HashMap::new(),
            traced: HashMap::new(),
        }
    }

    /// The session that wrote one of several lines that follow one another. A line that tells little, like a closing
    /// bracket, goes with the nearest line of its commit.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn trace_among(&mut self, lines: &[Line], at: usize) -> Result<Option<Origin>, archive::Error> {
        let Some(line) = lines.get(at) else { return Ok(None) };
        if let Some(found) = self.trace(line)? {
            return Ok(Some(found));
        }
        if letters(&line.text) >= TELLING_FROM || normal(&line.text).is_empty() {
            return Ok(None);
        }
        for distance in 1..=NEAR {
            for near in [at.checked_sub(distance), at.checked_add(distance)].into_iter().flatten() {
                let near = lines.get(near).filter(|near| near.commit == line.commit);
                if let Some(near) = near.filter(|near| letters(&near.text) >= DISTINCT_FROM)
                    && let Some(found) = self.trace(near)?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The session that wrote a line; `None` if nothing shows which.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn trace(&mut self, line: &Line) -> Result<Option<Origin>, archive::Error> {
        if normal(&line.text).is_empty() {
            return Ok(None);
        }
        if let Some(known) = self.traced.get(line) {
            return Ok(known.clone());
        }
        let found = self.seek(line)?;
        self.traced.insert(line.clone(), found.clone());
        Ok(found)
    }

    fn seek(&mut self, line: &Line) -> Result<Option<Origin>, archive::Error> {
        let sessions = self.sessions_that_changed(&line.path)?;
        if let Some(found) = self.best(&sessions, line, false)? {
            return Ok(Some(found));
        }
        // Moved or renamed before it was committed.
        let sessions = self.sessions_before(latest(line))?;
        self.best(&sessions, line, true)
    }

    fn sessions_that_changed(&mut self, path: &str) -> Result<Rc<[Session]>, archive::Error> {
        if let Some(known) = self.changed.get(path) {
            return Ok(known.clone());
        }
        let found = self.archive.sessions_that_changed(path, SESSIONS_MAX)?;
        let found: Rc<[Session]> = found.into_iter().filter(|session| self.is_of_project(session)).collect();
        self.changed.insert(path.to_owned(), found.clone());
        Ok(found)
    }

    fn sessions_before(&mut self, latest: Option<Timestamp>) -> Result<Rc<[Session]>, archive::Error> {
        if let Some(known) = self.before.get(&latest) {
            return Ok(known.clone());
        }
        let until = latest.unwrap_or_else(Timestamp::now);
        let filter = archive::Filter {
            since: until.checked_sub(MOVED_WITHIN).ok(),
            until: Some(until),
            ..archive::Filter::default()
        };
        let found = self.archive.sessions(&filter, true, MOVED_SESSIONS_MAX)?;
        let found: Rc<[Session]> = found.into_iter().filter(|session| self.is_of_project(session)).collect();
        self.before.insert(latest, found.clone());
        Ok(found)
    }

    /// A session of this project; or of a folder that is gone, which may have been this one.
    fn is_of_project(&self, session: &Session) -> bool {
        session.project == self.project || is_gone(session)
    }

    fn best(
        &mut self,
        sessions: &[Session],
        line: &Line,
        is_moved: bool,
    ) -> Result<Option<Origin>, archive::Error> {
        for session in sessions {
            if !self.turns.contains_key(&session.id) {
                let turns = self.archive.turns(session)?;
                self.turns.insert(session.id.clone(), turns);
            }
        }
        let mut candidates = Vec::new();
        for session in sessions {
            let turns = self.turns.get(&session.id).map(Vec::as_slice).unwrap_or_default();
            for turn in turns {
                for edit in turn.edits.iter().filter(|edit| !edit.is_error) {
                    candidates.extend(candidate(session, turn, edit, line, is_moved));
                }
            }
        }
        Ok(choose(candidates, self.project, line).map(|found| Origin {
            session: found.session.clone(),
            prompt: found.turn.prompt,
            prompt_text: self
                .turns
                .get(&found.session.id)
                .map(|turns| asked_until(turns, found.turn))
                .unwrap_or_default(),
            message: found.edit.message,
            at: found.edit.at,
            neighbours: found.neighbours,
            is_moved: found.is_moved,
        }))
    }
}

/// What was asked in a turn. "Do it" is preceded by what it is about.
fn asked_until(turns: &[Turn], turn: &Turn) -> String {
    let at = turns.iter().position(|one| one.prompt == turn.prompt).unwrap_or_default();
    let before = turns[..at].iter().rev().find(|before| intent(&before.text).is_some());
    match before.filter(|_| intent(&turn.text).is_none()) {
        Some(before) => format!("{} […] {}", before.text.trim(), turn.text.trim()).trim().to_owned(),
        None => turn.text.clone(),
    }
}

fn is_gone(session: &Session) -> bool {
    !Path::new(&session.path).exists()
}

fn latest(line: &Line) -> Option<Timestamp> {
    line.authored.max(line.committed).and_then(|at| at.checked_add(CLOCK_SLACK).ok())
}

/// The edit as a candidate, if it added the line with enough around it.
fn candidate<'t>(
    session: &'t Session,
    turn: &'t Turn,
    edit: &'t EditCall,
    line: &Line,
    is_moved: bool,
) -> Option<Candidate<'t>> {
    if let (Some(at), Some(latest)) = (edit.at, latest(line))
        && at > latest
    {
        return None;
    }
    let wanted = normal(&line.text);
    if !edit.input.contains(longest_word(&wanted)) {
        return None;
    }
    let letters = letters(&wanted);
    let is_far = edit.at.zip(line.authored).is_some_and(|(at, authored)| {
        let early = authored.duration_since(at);
        early > WRITTEN_BEFORE_MAX || -early > WRITTEN_AFTER_MAX
    });
    let mut best: Option<(usize, bool)> = None;
    for one in file_edits(&edit.tool, &edit.input) {
        if is_moved == same_path(&one.path, &line.path) {
            continue;
        }
        let Some((neighbours, is_only)) = introduced(&one, &wanted, line) else { continue };
        let is_enough = match () {
            () if is_far && neighbours < NEIGHBOURS_OF_FAR => false,
            () if is_moved => letters >= DISTINCT_FROM && neighbours >= NEIGHBOURS_OF_MOVED,
            () if letters >= TELLING_FROM => true,
            () if letters >= DISTINCT_FROM => neighbours >= 1 || is_only,
            () => neighbours >= NEIGHBOURS_OF_PLAIN,
        };
        if is_enough && best.is_none_or(|(most, _)| neighbours > most) {
            best = Some((neighbours, one.is_whole));
        }
    }
    let (neighbours, is_whole) = best?;
    Some(Candidate { session, turn, edit, neighbours, is_whole, is_moved })
}

/// How many neighbours the line has in an edit that added it, and whether it is all that was added. `None` if the edit
/// did not add it.
fn introduced(edit: &FileEdit, wanted: &str, line: &Line) -> Option<(usize, bool)> {
    let added: Vec<String> = edit.added.lines().map(normal).filter(|line| !line.is_empty()).collect();
    let count = added.iter().filter(|text| *text == wanted).count();
    let before = edit.removed.lines().filter(|text| normal(text) == wanted).count();
    if count <= before {
        return None;
    }
    let around = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| normal(line)).filter(|line| !line.is_empty()).collect()
    };
    let (above, below) = (around(&line.before), around(&line.after));
    let same = |a: &String, b: &String| a == b;
    let neighbours = added
        .iter()
        .enumerate()
        .filter(|(_, text)| *text == wanted)
        .map(|(at, _)| {
            let up = added[..at].iter().rev().zip(above.iter().rev()).take_while(|(a, b)| same(a, b)).count();
            let down = added[at + 1..].iter().zip(&below).take_while(|(a, b)| same(a, b)).count();
            up + down
        })
        .max()
        .unwrap_or_default();
    Some((neighbours, added.len() == 1))
}

/// The last edit before the commit that has most around the line. A whole file that was written again is not where its
/// lines come from if an earlier edit brought them.
fn choose<'t>(mut candidates: Vec<Candidate<'t>>, project: &str, line: &Line) -> Option<Candidate<'t>> {
    let authored = line.authored;
    candidates.sort_by_key(|candidate| candidate.edit.at);
    let mut best: Option<Candidate<'t>> = None;
    for candidate in candidates {
        let Some(held) = &best else {
            best = Some(candidate);
            continue;
        };
        let is_here = |candidate: &Candidate<'_>| candidate.session.project == project;
        let in_time = |candidate: &Candidate<'_>| authored.is_none() || candidate.edit.at <= authored;
        let rank = |candidate: &Candidate<'_>| {
            (is_here(candidate), in_time(candidate), candidate.neighbours.min(NEIGHBOURS_OF_MOVED))
        };
        let is_better = match rank(&candidate).cmp(&rank(held)) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => !candidate.is_whole,
        };
        if is_better {
            best = Some(candidate);
        }
    }
    best
}

fn same_path(edited: &str, path: &str) -> bool {
    let edited = edited.replace('\\', "/");
    edited == path || edited.strip_suffix(path).is_some_and(|before| before.ends_with('/'))
}

/// A line with its white space reduced: formatters change it.
fn normal(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphanumeric()).count()
}

/// The longest run of letters, digits and `_`, which stands in JSON as it is.
fn longest_word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .max_by_key(|word| word.len())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(removed: &str, added: &str) -> FileEdit {
        FileEdit { path: "a".into(), removed: removed.into(), added: added.into(), is_whole: false }
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_edit_brings_a_line_that_was_not_there() {
        let line = Line { before: lines("fn a() {"), after: lines("}\nfn b() {"), ..Line::default() };
        let added = edit("fn a() {\n}", "fn a() {\n    let  x = 1;\n}");
        assert_eq!(introduced(&added, "let x = 1;", &line), Some((2, false)));
        assert_eq!(introduced(&added, "fn a() {", &line), None, "it was there before");
        assert_eq!(introduced(&edit("", "let x = 1;\n"), "let x = 1;", &line), Some((0, true)));
        let twice = edit("let x = 1;", "let x = 1;\nlet x = 1;");
        assert_eq!(
            introduced(&twice, "let x = 1;", &line).map(|found| found.0),
            Some(0),
            "one more than before"
        );
    }

    #[test]
    fn a_path_is_the_end_of_the_one_that_was_edited() {
        assert!(same_path("/home/me/shop/src/a.rs", "src/a.rs"));
        assert!(same_path("C:\\shop\\src\\a.rs", "src/a.rs"));
        assert!(!same_path("/home/me/shop/xsrc/a.rs", "src/a.rs"));
    }

    /// A session that wrote a file of two lines, in an archive.
    fn archived(root: &Path) -> Archive {
        let input = serde_json::json!({ "file_path": "/gone/shop/a.rs",
            "content": "let the_first_of_two_telling_lines = one();\nlet the_second_of_two_telling_lines = two();\n" });
        let call = serde_json::json!([{ "type": "tool_use", "id": "t1", "name": "Write", "input": input }]);
        let result =
            serde_json::json!([{ "type": "tool_result", "tool_use_id": "t1", "content": "created" }]);
        let contents = [("user", "Write a.rs".into()), ("assistant", call), ("user", result)];
        let lines = (1..).zip(contents).map(|(number, (kind, content))| {
            serde_json::json!({
                "type": kind, "uuid": format!("5a3b7c1e-0000-4000-8000-{number:012x}"), "cwd": "/gone/shop",
                "timestamp": format!("2026-11-01T09:0{number}:00Z"),
                "message": { "role": kind, "content": content },
            })
            .to_string()
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let folder = root.join("client/projects/-gone-shop");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("5a3b7c1e-0000-4000-8000-000000000001.jsonl"), text + "\n").unwrap();
        let archive = Archive::open(&root.join("archive.db")).unwrap();
        let client = archive::ClaudeCode::new(vec![root.join("client")]);
        archive.sync(&[&client], &archive::SyncSettings::new(root.join("state"))).unwrap();
        archive
    }

    #[test]
    fn what_changed_a_file_is_looked_up_once_for_all_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let archive = archived(folder.path());
        let line = |text: &str, path: &str| Line { text: text.into(), path: path.into(), ..Line::default() };
        let mut tracer = Tracer::new(&archive, "shop");
        let written =
            ["let the_first_of_two_telling_lines = one();", "let the_second_of_two_telling_lines = two();"];
        let first = tracer.trace(&line(written[0], "a.rs")).unwrap().unwrap();
        assert!(!first.is_moved);
        let unknown = line("let nobody_has_ever_written_this_line = 0;", "a.rs");
        assert_eq!(tracer.trace(&unknown).unwrap(), None);
        let database = rusqlite::Connection::open(archive.path()).unwrap();
        database.execute("DELETE FROM file_modifications", []).unwrap();
        let second = tracer.trace(&line(written[1], "a.rs")).unwrap();
        assert_eq!(second, Some(first), "it has the answer of before");
        assert_eq!(Tracer::new(&archive, "shop").trace(&line(written[1], "a.rs")).unwrap(), None);
        database.execute("DELETE FROM tool_uses", []).unwrap();
        tracer.turns.clear();
        assert_eq!(
            tracer.trace(&line(written[1], "a.rs")).unwrap(),
            second,
            "the same line is not sought again"
        );
    }
}
