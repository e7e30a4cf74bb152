//! The files of a brain, and what is done to its notes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;

use jiff::Timestamp;
use knowledge::name::{claim_rank, file_stem, nfc};
use knowledge::related::{entries, repeat_in_links};
use knowledge::unit::is_retired;
use knowledge::wikilink::{Wikilink, is_at, rewritten};
use knowledge::{Document, Unit, UnitId, UnitType, name, text};
use serde_yaml::Value;

use crate::error::Error;
use crate::links::{self, Link};
use crate::new_note::{self, NewNote, checked_title, stamp};

/// How many ids an error lists.
const LISTED_MAX: usize = 5;
const ARCHIVED: &str = "archived";
const UNITS_FOLDER: &str = "domains/";

/// The paths of the units that have a name, by the name as it is compared.
type ByName = BTreeMap<String, BTreeSet<String>>;

/// What units are found by, as it is compared.
#[derive(Clone, Debug, Default)]
struct Names {
    titles: ByName,
    file_names: ByName,
    /// The front matter, which has the aliases, by the path.
    front_matters: BTreeMap<String, String>,
}

impl Names {
    fn add(&mut self, file: &NoteFile) {
        for (by_name, name) in self.of(file) {
            by_name.entry(name).or_default().insert(file.path.clone());
        }
        self.front_matters.insert(file.path.clone(), fold(file.document.front_matter()));
    }

    fn remove(&mut self, file: &NoteFile) {
        for (by_name, name) in self.of(file) {
            by_name.entry(name).or_default().remove(&file.path);
        }
        self.front_matters.remove(&file.path);
    }

    fn of(&mut self, file: &NoteFile) -> [(&mut ByName, String); 2] {
        let (title, file_name) = (fold(&file.unit.title), fold(file_stem(&file.path)));
        [(&mut self.titles, title), (&mut self.file_names, file_name)]
    }
}

/// The units of a brain, by their paths.
#[derive(Clone, Debug, Default)]
pub struct Notebook {
    files: BTreeMap<String, NoteFile>,
    ids: BTreeMap<UnitId, String>,
    /// Made when it is first asked for.
    names: OnceLock<Names>,
    /// The paths that were there at the start.
    known: BTreeSet<String>,
    changed: BTreeSet<String>,
}

/// A unit and its file.
#[derive(Clone, Debug)]
pub struct NoteFile {
    /// Relative to the brain.
    pub path: String,
    /// The file.
    pub document: Document,
    /// The unit in it.
    pub unit: Unit,
}

impl NoteFile {
    /// Whether it is read only: a note of a folder that was there before the brain, which is not written to.
    fn is_outside(&self) -> bool {
        !self.path.starts_with(UNITS_FOLDER)
    }

    /// What a wikilink names the file by: notes outside of the units' folder may have the same name in several folders.
    fn link_name(&self) -> &str {
        match self.is_outside() {
            true => self.path.strip_suffix(".md").unwrap_or(&self.path),
            false => file_stem(&self.path),
        }
    }
}

/// A file that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the brain.
    pub path: String,
    /// Its text; `None` if it is removed.
    pub text: Option<String>,
    /// Whether it was there before.
    pub was_there: bool,
}

/// What is changed in a note; `None` leaves a part as it is.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// A new title; the id stays.
    pub title: Option<String>,
    /// New markdown below the title.
    pub content: Option<String>,
    /// A text that stands in the content once, and the one that takes its place.
    pub part: Option<(String, String)>,
    /// New tags.
    pub tags: Option<Vec<String>>,
    /// Tags besides those that it has.
    pub more_tags: Vec<String>,
}

/// What [`Notebook::remember`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// The key is new.
    Added(UnitId),
    /// The key had this value before.
    Changed(UnitId, String),
    /// The key had the value already.
    Unchanged(UnitId),
}

impl Remembered {
    /// The fact.
    pub fn id(&self) -> &UnitId {
        match self {
            Self::Added(id) | Self::Changed(id, _) | Self::Unchanged(id) => id,
        }
    }
}

impl Notebook {
    /// Takes files as pairs of path and text. Those that are no units are left alone, but their paths are taken.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut notebook = Self::default();
        for (path, text) in files {
            notebook.known.insert(path.clone());
            if let Ok(document) = Document::parse(text)
                && let Ok(unit) = document.unit(&path)
            {
                notebook.insert(NoteFile { path, document, unit });
            }
        }
        notebook
    }

    /// Takes the present text of a file, which has changed since it was read; `None` if it is gone. What was changed in
    /// it here is forgotten.
    pub fn refresh(&mut self, path: &str, text: Option<String>) {
        self.changed.remove(path);
        self.known.remove(path);
        self.take(path);
        if let Some(text) = text {
            let fresh = Self::new([(path.to_owned(), text)]);
            fresh.files.into_values().for_each(|file| self.insert(file));
            self.known.extend(fresh.known);
        }
    }

    /// Takes the path of a file that cannot be a unit, so that no other one is written there.
    pub fn reserve(&mut self, path: &str) {
        self.refresh(path, None);
        self.known.insert(path.to_owned());
    }

    /// All units, by path, also those outside of the units' folder, which are only read. Of files with the same id only the
    /// one that has it, as in the index.
    pub fn files(&self) -> impl Iterator<Item = &NoteFile> {
        self.files.values().filter(|file| self.ids.get(&file.unit.id) == Some(&file.path))
    }

    /// The notes and facts, by path.
    pub fn notes(&self) -> impl Iterator<Item = &NoteFile> {
        self.files().filter(|file| is_note(&file.unit))
    }

    /// The unit that is named as for [`find_whole`](Self::find_whole), or by the beginning of its id.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Ambiguous`].
    pub fn find(&self, name: &str) -> Result<&NoteFile, Error> {
        let begins = nfc(name.trim());
        self.find_whole(name).or_else(|error| match (error, begins.as_str()) {
            (error @ Error::Missing { .. }, "") => Err(error),
            (Error::Missing { .. }, begins) => {
                only(name, self.files().filter(|file| file.unit.id.as_str().starts_with(begins)).collect())
            }
            (error, _) => Err(error),
        })
    }

    /// The unit that is named by its id, its title, the name of its file or an alias. Case does not count but in an id.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Ambiguous`].
    pub fn find_whole(&self, name: &str) -> Result<&NoteFile, Error> {
        let name = nfc(name.trim());
        if let Some(file) = self.get(&UnitId::verbatim(name.as_str())) {
            return Ok(file);
        }
        let folded = name.to_lowercase();
        let ways: [for<'n> fn(&'n Self, &str) -> Vec<&'n NoteFile>; 3] = [
            |notebook, name| notebook.at(notebook.names().titles.get(name)),
            |notebook, name| notebook.at(notebook.names().file_names.get(name)),
            Self::with_alias,
        ];
        for way in ways {
            let named = way(self, &folded);
            // An archived note gives way to one that is not.
            let live: Vec<&NoteFile> =
                named.iter().copied().filter(|file| !is_archived(&file.unit)).collect();
            if !named.is_empty() && !folded.is_empty() {
                return only(&name, if live.is_empty() { named } else { live });
            }
        }
        Err(Error::Missing { name })
    }

    /// The unit that a wikilink leads to: that of the file with this name, or else as [`find_whole`](Self::find_whole). A
    /// target with a folder is the end of a path.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Ambiguous`].
    pub fn find_linked(&self, target: &str) -> Result<&NoteFile, Error> {
        let stem = nfc(file_stem(target));
        let paths = self.names().file_names.get(&fold(&stem)).into_iter().flatten();
        let named = paths.filter_map(|path| self.files.get(path)).filter(|file| match target.contains('/') {
            true => is_at(target, &file.path),
            false => nfc(file_stem(&file.path)) == stem,
        });
        named.min_by_key(|file| file.is_outside()).map_or_else(|| self.find_whole(target), Ok)
    }

    /// As [`find`](Self::find), to change what is found: the beginning of an id is not enough.
    ///
    /// # Errors
    /// Those of [`find`](Self::find), and [`Error::NotWhole`].
    pub fn find_to_change(&self, name: &str) -> Result<&NoteFile, Error> {
        self.find_whole(name).map_err(|error| match (error, self.find(name)) {
            (Error::Missing { name }, Ok(file)) => Error::NotWhole { name, id: file.unit.id.clone() },
            (error, _) => error,
        })
    }

    /// As [`find`](Self::find), of notes and facts only.
    ///
    /// # Errors
    /// Those of [`find`](Self::find), and [`Error::NotANote`].
    pub fn find_note(&self, name: &str) -> Result<&NoteFile, Error> {
        self.find(name).and_then(only_note)
    }

    /// As [`find_to_change`](Self::find_to_change), of notes and facts only.
    ///
    /// # Errors
    /// Those of [`find_to_change`](Self::find_to_change), and [`Error::NotANote`].
    pub fn find_note_to_change(&self, name: &str) -> Result<&NoteFile, Error> {
        self.find_to_change(name).and_then(only_note)
    }

    /// The fact with this key. Case does not count.
    pub fn fact(&self, key: &str) -> Option<&NoteFile> {
        // As a title is written, so that white space within it does not count.
        let key = fold(&knowledge::text::one_line(&knowledge::text::strip_hidden(key), usize::MAX));
        let is_it = |file: &&NoteFile| file.unit.kind == UnitType::Fact && fold(&file.unit.title) == key;
        // One that is still in force before one that is not.
        self.files().filter(is_it).min_by_key(|file| file.unit.status.as_deref().is_some_and(is_retired))
    }

    /// Writes a note down. A title that is in use is allowed: the id gets a number.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::TooMuch`], [`Error::ConflictMark`].
    pub fn create(&mut self, new: NewNote, now: Timestamp) -> Result<UnitId, Error> {
        let id = self.free_id(&checked_title(&new.title)?);
        let content = self.resolved(&new.content);
        let (path, document) = new.file(&id, &content, now)?;
        // A link by this name stays with the unit that it leads to already.
        let is_new = matches!(self.find_linked(&new.title), Err(Error::Missing { .. }));
        self.put(path, document)?;
        if is_new {
            self.resolve_links_to(&id, now)?;
        }
        Ok(id)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn remember(&mut self, new: NewNote, now: Timestamp) -> Result<Remembered, Error> {
        let Some(known) = self.fact(&new.title) else {
            return Ok(Remembered::Added(self.create(NewNote { kind: UnitType::Fact, ..new }, now)?));
        };
        let (id, before) = (known.unit.id.clone(), content(&known.unit).to_owned());
        let was_archived = is_archived(&known.unit);
        let edit = Edit { content: Some(new.content), more_tags: new.tags, ..Edit::default() };
        if !self.edit(&id, edit, now)? && !was_archived {
            return Ok(Remembered::Unchanged(id));
        }
        if was_archived {
            self.set_archived(&id, false, now)?;
        }
        Ok(Remembered::Changed(id, before))
    }

    /// Changes a note; `false` if it is as wanted already. Of its text every byte stays that the change is not about.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Outside`], [`Error::Empty`], [`Error::TooMuch`], [`Error::NotOnce`],
    /// [`Error::ConflictMark`].
    pub fn edit(&mut self, id: &UnitId, edit: Edit, now: Timestamp) -> Result<bool, Error> {
        let file = self.file(id)?;
        let old_title = &file.unit.title;
        let title = edit.title.as_deref().map_or(Ok(old_title.clone()), checked_title)?;
        let mut document = file.document.clone();
        if let Some((old, new)) = edit.part {
            document = self.with_part(file, &old, &self.resolved(&new))?;
        }
        if let Some(new) = edit.content {
            let old = content(&file.unit).replace("\r\n", "\n");
            let new = self.resolved(&new);
            if new.trim() != old {
                let place = content_place(document.body(), old_title);
                let has_heading = heading(document.body()).is_some_and(|heading| heading.end <= place.start);
                let new = if has_heading { &new[content_place(&new, &title)] } else { &new };
                let new = new_note::checked_content(new, &old)?;
                let space = if place.is_empty() { "\n\n" } else { "" };
                document.replace_in_body(place, &format!("{space}{new}"));
            }
        }
        if title != *old_title {
            let of_title = heading(document.body());
            if let Some(heading) =
                of_title.filter(|heading| is_title(&document.body()[heading.clone()], old_title))
            {
                document.replace_in_body(heading, &title);
            }
            document.set("title", &title.as_str().into());
            if let Some(aliases) = renamed(document.get("aliases"), old_title, &title) {
                document.set("aliases", &aliases);
            }
        }
        if let Some(tags) = edit.tags {
            document.set("tags", &new_note::tags(&tags)?);
        }
        if let Some(tags) = new_note::with_tags(&document, &file.unit.tags, &edit.more_tags)? {
            document.set("tags", &tags);
        }
        self.replace(id, document, now)
    }

    /// Links two units, in both files. A link that one of them has is completed in the other. `false` if both have it.
    ///
    /// # Errors
    /// [`Error::SelfLink`], [`Error::Missing`], [`Error::TooMuch`].
    pub fn link(
        &mut self,
        one: &UnitId,
        other: &UnitId,
        reason: &str,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if one == other {
            return Err(Error::SelfLink { id: one.clone() });
        }
        let mut ends = Vec::new();
        for (from, to) in [(one, other), (other, one)] {
            self.file(to)?;
            let mut document = self.file(from)?.document.clone();
            if links::add(&mut document, &Link::new(to.clone(), reason), now)? {
                ends.push((from, document));
            }
        }
        let is_new = !ends.is_empty();
        for (id, document) in ends {
            self.replace(id, document, now)?;
        }
        Ok(is_new)
    }

    /// Removes the links between two units in both files, or only the one with this reason. Returns how many entries
    /// were removed.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn unlink(
        &mut self,
        one: &UnitId,
        other: &UnitId,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<usize, Error> {
        let mut removed = 0;
        for (from, to) in [(one, other), (other, one)] {
            let mut document = self.file(from)?.document.clone();
            removed += links::remove(&mut document, to, reason);
            self.replace(from, document, now)?;
        }
        Ok(removed)
    }

    /// Whether a note still has this content; fails with [`Error::Changed`] if not.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Missing`].
    pub fn expect_content(&self, id: &UnitId, expected: &str) -> Result<(), Error> {
        match content(&self.file(id)?.unit).trim() == expected.trim() {
            true => Ok(()),
            false => Err(Error::Changed { id: id.clone() }),
        }
    }

    /// The content of a note with `new` in the place of `old`, which has to stand in it once: nobody replaces what he has
    /// not seen, or what somebody else has changed since.
    ///
    /// # Errors
    /// [`Error::NotOnce`], [`Error::Missing`], [`Error::Outside`], [`Error::Empty`], [`Error::TooMuch`],
    /// [`Error::ConflictMark`].
    pub fn content_with(&self, id: &UnitId, old: &str, new: &str) -> Result<String, Error> {
        let file = self.file(id)?;
        let document = self.with_part(file, old, new)?;
        Ok(document.body()[content_place(document.body(), &file.unit.title)].to_owned())
    }

    /// The file of a note with `new` in the place of `old` in its content.
    fn with_part(&self, file: &NoteFile, old: &str, new: &str) -> Result<Document, Error> {
        // Whatever line ends the file and the texts have.
        let [old, new] = [old, new].map(|text| text.replace("\r\n", "\n"));
        let body = file.document.body();
        let place = content_place(body, &file.unit.title);
        // With the line ends before and after the content.
        let before = body[..place.start].strip_suffix('\n').map_or(place.start, str::len);
        let after = place.end + body[place.end..].find('\n').map_or(0, |end| end + 1);
        let mut text = body[before..after].replace("\r\n", "\n");
        if after == place.end {
            text.push('\n');
        }
        let (1, Some(at)) = (text.matches(&old).count(), text.find(&old)) else {
            return Err(Error::NotOnce { id: file.unit.id.clone(), count: text.matches(&old).count() });
        };
        let offset = |at| before + offset_in_file(&body[before..after], at);
        let (start, end) = (offset(at), offset(at + old.len()));
        // The line end after the title stays.
        let new = if start < place.start { new.trim_start_matches('\n') } else { &new };
        let (mut start, mut end, mut new) = (start.max(place.start), end, new.to_owned());
        if body[end..].trim().is_empty() {
            // The text ends with it, as before.
            new.truncate(new.trim_end().len());
            if new.is_empty() {
                start = body[..start].trim_end().len().max(place.start);
            }
            new.push_str(&body[place.end..]);
            end = body.len();
        }
        let mut document = file.document.clone();
        document.replace_in_body(start..end, &new);
        let content = |document: &Document| {
            document.body()[content_place(document.body(), &file.unit.title)].replace("\r\n", "\n")
        };
        let (old, changed) = (content(&file.document), content(&document));
        let shown = new_note::checked_content(&changed, &old)?;
        // What becomes hidden only together with what stands around it.
        if shown != changed && text::strip_hidden_to_store(&old, &old) == old {
            document.replace_in_body(content_place(document.body(), &file.unit.title), &shown);
        }
        Ok(document)
    }

    /// Archives a note, which hides it from sessions, or takes it back; `false` if it is so already.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn set_archived(&mut self, id: &UnitId, archived: bool, now: Timestamp) -> Result<bool, Error> {
        let file = self.file(id)?;
        if is_archived(&file.unit) == archived {
            return Ok(false);
        }
        let mut document = file.document.clone();
        // A key cannot be removed from a document.
        document.set("status", &Value::from(if archived { ARCHIVED } else { "active" }));
        if archived {
            document.set("archived", &stamp(now));
        } else if document.get("hidden").is_some() {
            document.set("hidden", &false.into());
        }
        self.replace(id, document, now)
    }

    /// Removes a note, and the links to it from all other units. Returns how many units lost a link.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn remove(&mut self, id: &UnitId, now: Timestamp) -> Result<usize, Error> {
        let file = self.file(id)?;
        let path = file.path.clone();
        let names: BTreeSet<String> = [id.as_str(), &file.unit.title, file_stem(&path)].map(fold).into();
        let names: BTreeSet<String> = names.into_iter().chain(aliases(file)).collect();
        let others: Vec<UnitId> = self
            .files()
            .filter(|file| !file.is_outside() && file.unit.related.iter().any(|related| related.id == *id))
            .map(|file| file.unit.id.clone())
            .collect();
        for other in &others {
            let Some(mut document) = self.get(other).map(|file| file.document.clone()) else { continue };
            links::remove(&mut document, id, None);
            self.replace(other, document, now)?;
        }
        let text_alone = |notebook: &Self, link: &Wikilink<'_>| {
            let leads_to_it = names.contains(&fold(file_stem(link.target)))
                && notebook.find_linked(link.target).is_ok_and(|file| file.unit.id == *id);
            leads_to_it.then(|| link.shown.unwrap_or(link.target).to_owned())
        };
        self.rewrite_links(text_alone, now)?;
        self.take(&path);
        self.changed.insert(path);
        Ok(others.len())
    }

    /// The files that differ from those at the start, by path.
    pub fn changes(&self) -> Vec<FileChange> {
        let change = |path: &String| FileChange {
            path: path.clone(),
            text: self.files.get(path).map(|file| file.document.as_str().to_owned()),
            was_there: self.known.contains(path),
        };
        // A file that was made and removed again is none.
        self.changed.iter().map(change).filter(|change| change.was_there || change.text.is_some()).collect()
    }

    /// Names the file of a new note in the notes that link its title.
    fn resolve_links_to(&mut self, id: &UnitId, now: Timestamp) -> Result<(), Error> {
        let Some(title) = self.get(id).map(|file| fold(&file.unit.title)) else { return Ok(()) };
        let to_file = |_: &Self, link: &Wikilink<'_>| {
            let is_it = link.target != id.as_str() && fold(link.target) == title;
            is_it.then(|| link.to_file(id.as_str(), link.shown.or(Some(link.target))))
        };
        self.rewrite_links(to_file, now)
    }

    /// Puts what `new` gives in the place of wikilinks in all notes.
    fn rewrite_links(
        &mut self,
        new: impl Fn(&Self, &Wikilink<'_>) -> Option<String>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut changed = Vec::new();
        for file in self.notes().filter(|file| !file.is_outside()) {
            let body = rewritten(&file.unit.body, |link| new(self, link));
            if body != file.unit.body {
                let mut document = file.document.clone();
                document.set_body(&body);
                changed.push((file.unit.id.clone(), document));
            }
        }
        for (id, document) in changed {
            self.replace(&id, document, now)?;
        }
        Ok(())
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let mut names = Names::default();
            self.files().for_each(|file| names.add(file));
            names
        })
    }

    /// The files at some paths.
    fn at(&self, paths: Option<&BTreeSet<String>>) -> Vec<&NoteFile> {
        inside_first(paths.into_iter().flatten().filter_map(|path| self.files.get(path)).collect())
    }

    fn with_alias(&self, folded: &str) -> Vec<&NoteFile> {
        // Few have the name anywhere; YAML takes long to parse.
        let near = self.names().front_matters.iter().filter(|(_, text)| text.contains(folded));
        let near = near.filter_map(|(path, _)| self.files.get(path));
        inside_first(near.filter(|file| aliases(file).any(|alias| alias == folded)).collect())
    }

    fn get(&self, id: &UnitId) -> Option<&NoteFile> {
        self.files.get(self.ids.get(id)?)
    }

    /// The file that is changed with a unit; an error if other files have the same id, or it is only read.
    fn file(&self, id: &UnitId) -> Result<&NoteFile, Error> {
        let found = self.get(id).ok_or_else(|| Error::Missing { name: id.to_string() })?;
        if found.is_outside() {
            return Err(Error::Outside { id: id.clone(), path: found.path.clone() });
        }
        let files = self.files.values().filter(|file| file.unit.id == *id);
        match files.clone().nth(1) {
            None => Ok(found),
            Some(_) => {
                let paths = files.take(LISTED_MAX).map(|file| file.path.clone()).collect();
                Err(Error::SameId { id: id.clone(), paths })
            }
        }
    }

    fn insert(&mut self, file: NoteFile) {
        if let Some(names) = self.names.get_mut() {
            self.files.get(&file.path).into_iter().for_each(|before| names.remove(before));
            names.add(&file);
        }
        let id = &file.unit.id;
        let rank = |path| claim_rank(id.as_str(), path);
        if self.ids.get(id).is_none_or(|owner| rank(&file.path) < rank(owner)) {
            self.ids.insert(id.clone(), file.path.clone());
        }
        self.files.insert(file.path.clone(), file);
    }

    /// Takes a unit's file out. Its id goes to another file that claims it.
    fn take(&mut self, path: &str) {
        let Some(file) = self.files.remove(path) else { return };
        self.names.get_mut().into_iter().for_each(|names| names.remove(&file));
        let id = file.unit.id;
        if self.ids.get(&id).is_some_and(|owner| owner == path) {
            self.ids.remove(&id);
            let heirs = self.files.values().filter(|file| file.unit.id == id).map(|file| file.path.as_str());
            if let Some(heir) = heirs.min_by_key(|path| claim_rank(id.as_str(), path)) {
                self.ids.insert(id.clone(), heir.to_owned());
            }
        }
    }

    /// Puts a changed document in the place of a unit's; `false` if nothing has changed. After an error some of an
    /// operation may be done: whoever asked for it drops the notebook.
    fn replace(&mut self, id: &UnitId, mut document: Document, now: Timestamp) -> Result<bool, Error> {
        let Some(file) = self.get(id) else { return Ok(false) };
        if is_note(&file.unit) {
            let named = |id: &str| {
                let file = self.get(&UnitId::verbatim(id)).filter(|file| !file.is_outside())?;
                Some((file_stem(&file.path), file.unit.title.as_str()))
            };
            repeat_in_links(&mut document, &entries(&file.document), named);
        }
        if document == file.document {
            return Ok(false);
        }
        document.set("last_modified", &stamp(now));
        let path = file.path.clone();
        self.put(path, document)?;
        Ok(true)
    }

    fn put(&mut self, path: String, document: Document) -> Result<(), Error> {
        let unit = document.unit(&path).map_err(Error::Invalid)?;
        self.changed.insert(path.clone());
        self.insert(NoteFile { path, document, unit });
        Ok(())
    }

    fn resolved(&self, content: &str) -> String {
        links::resolved(content, |target| self.find_linked(target).ok().map(NoteFile::link_name))
    }

    /// An id that no file has.
    fn free_id(&self, title: &str) -> UnitId {
        let plain = match UnitId::from_title(title) {
            id if name::tag(title).is_empty() => UnitId::verbatim(id.as_str().replace("unit", "note")),
            id => id,
        };
        let stems: BTreeSet<&str> =
            self.known.iter().chain(self.files.keys()).map(|path| file_stem(path)).collect();
        let is_taken = |id: &UnitId| stems.contains(id.as_str()) || self.ids.contains_key(id);
        let mut id = plain.clone();
        let mut number = 1;
        while is_taken(&id) {
            number += 1;
            id = plain.with_suffix(&number.to_string());
        }
        id
    }
}

/// The one unit that has a name.
fn only<'f>(name: &str, named: Vec<&'f NoteFile>) -> Result<&'f NoteFile, Error> {
    match named.as_slice() {
        [] => Err(Error::Missing { name: name.trim().to_owned() }),
        [file] => Ok(file),
        several => Err(Error::Ambiguous {
            name: name.trim().to_owned(),
            ids: several.iter().take(LISTED_MAX).map(|file| file.unit.id.to_string()).collect(),
        }),
    }
}

/// A name as it is compared.
fn fold(name: &str) -> String {
    nfc(name.trim()).to_lowercase()
}

/// The names that Obsidian knows a file by besides its own, as they are compared.
fn aliases(file: &NoteFile) -> impl Iterator<Item = String> {
    let aliases = match file.document.get("aliases") {
        Some(Value::Sequence(aliases)) => aliases,
        alias => alias.into_iter().collect(),
    };
    aliases.into_iter().filter_map(|alias| alias.as_str().map(fold))
}

/// What a note says: its body without the heading that repeats its title. The value of a fact.
pub fn content(unit: &Unit) -> &str {
    &unit.body[content_place(&unit.body, &unit.title)]
}

/// Where the content stands in a body.
fn content_place(body: &str, title: &str) -> Range<usize> {
    let heading = heading(body).filter(|heading| is_title(&body[heading.clone()], title));
    let above = heading.map_or(0, |heading| heading.end);
    let below = body[above..].find('\n').filter(|_| above > 0).map_or(above, |end| above + end);
    let content = body[below..].trim();
    let end = body.trim_end().len().max(above);
    end - content.len()..end
}

/// Where the text of the heading stands that a body begins with.
fn heading(body: &str) -> Option<Range<usize>> {
    let line = body.trim_start().strip_prefix("# ")?;
    let start = body.len() - line.trim_start_matches([' ', '\t']).len();
    let end = body[start..].find('\n').map_or(body.len(), |end| start + end);
    Some(start..start + body[start..end].trim_end().len())
}

/// Whether a heading is that of a title, which is one line without the marks that may close a heading.
fn is_title(heading: &str, title: &str) -> bool {
    text::one_line(heading.trim_end_matches('#'), 200) == title
}

/// The offset in a file's text of an offset in the same with the line ends of Unix.
fn offset_in_file(text: &str, offset: usize) -> usize {
    let is_end = |at: usize| text[at..].starts_with("\r\n");
    let mut chars = text.char_indices().filter(|(at, _)| !is_end(*at)).scan(0, |read, (at, c)| {
        let begun = *read;
        *read += c.len_utf8();
        Some((begun, at))
    });
    let at = chars.find(|(begun, _)| *begun >= offset).map_or(text.len(), |(_, at)| at);
    // A carriage return belongs to the line feed behind it.
    if text[..at].ends_with('\r') && text[at..].starts_with('\n') { at - 1 } else { at }
}

/// Notes of the units' folder hide others of the same name.
fn inside_first(mut files: Vec<&NoteFile>) -> Vec<&NoteFile> {
    if files.iter().any(|file| !file.is_outside()) {
        files.retain(|file| !file.is_outside());
    }
    files
}

fn is_note(unit: &Unit) -> bool {
    matches!(unit.kind, UnitType::Note | UnitType::Fact)
}

fn only_note(file: &NoteFile) -> Result<&NoteFile, Error> {
    match is_note(&file.unit) {
        true => Ok(file),
        false => Err(Error::NotANote { id: file.unit.id.clone(), kind: file.unit.kind.to_string() }),
    }
}

fn is_archived(unit: &Unit) -> bool {
    unit.status.as_deref().is_some_and(is_retired)
}

/// The aliases with a new title in the place of the old one.
fn renamed(aliases: Option<Value>, old: &str, new: &str) -> Option<Value> {
    let Some(Value::Sequence(mut aliases)) = aliases else { return None };
    let at = aliases.iter().position(|alias| alias.as_str() == Some(old))?;
    aliases[at] = new.into();
    Some(Value::Sequence(aliases))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn saved(notebook: &Notebook) -> Notebook {
        let files = notebook.files().map(|file| (file.path.clone(), file.document.as_str().to_owned()));
        Notebook::new(files.collect::<Vec<_>>())
    }

    fn two() -> (Notebook, UnitId, UnitId) {
        let mut notebook = Notebook::new([]);
        let one = notebook.create(NewNote::note("Auth middleware", "Lives in src/auth."), at(0)).unwrap();
        let other = notebook.create(NewNote::note("JWT token format", "RS256."), at(0)).unwrap();
        (notebook, one, other)
    }

    fn links(notebook: &Notebook, id: &UnitId) -> Vec<(String, String)> {
        let related = &notebook.file(id).unwrap().unit.related;
        related.iter().map(|link| (link.id.to_string(), link.reason.clone().unwrap_or_default())).collect()
    }

    #[test]
    fn a_note_is_a_unit_in_its_folder() {
        let mut notebook = Notebook::new([]);
        let new = NewNote {
            tags: vec!["Auth".into(), "auth".into(), "Files!".into()],
            domain: "Web Shop".into(),
            category: Some("project".into()),
            stability: Some("durable".into()),
            scope: vec![knowledge::Scope { path: Some("src/auth".into()), ..Default::default() }],
            ..NewNote::note("  Auth\nmiddleware ", "Lives in `src/auth`.\n\n---\n")
        };
        let id = notebook.create(new, at(0)).unwrap();
        let changes = notebook.changes();
        assert_eq!(changes[0].path, "domains/web-shop/notes/auth-middleware.md");
        assert!(!changes[0].was_there);
        let expected = "---\nid: auth-middleware\ntype: note\ndomain: web-shop\ntitle: Auth middleware\naliases:\n\
            - Auth middleware\ntags:\n- auth\n- files\nsource: human\nkind: project\nstability: durable\nscope:\n\
            - path: src/auth\ncreated: 2023-11-14T22:13:20Z\nlast_modified: 2023-11-14T22:13:20Z\n---\n\n\
            # Auth middleware\n\nLives in `src/auth`.\n\n---\n";
        assert_eq!(changes[0].text.as_deref(), Some(expected));
        let unit = &saved(&notebook).file(&id).unwrap().unit.clone();
        assert_eq!((unit.category.as_deref(), unit.stability.as_deref()), (Some("project"), Some("durable")));
        assert_eq!(content(unit), "Lives in `src/auth`.\n\n---");
    }

    #[test]
    fn a_new_title_changes_no_other_line() {
        let body = "Text here.\n\n<!-- a reminder -->\n\n```html\n<!-- start\n```\n\nThe rest.\n";
        for (body, line_end) in [(body, "\n"), (body, "\r\n"), ("", "\n")] {
            let file = |title: &str| {
                format!("---\nid: mine\ntype: note\ntitle: {title}\n---\n\n# {title}\n\n{body}")
                    .replace('\n', line_end)
            };
            let mut notebook = Notebook::new([("domains/general/notes/mine.md".to_owned(), file("Mine"))]);
            let edit = Edit { title: Some("Renamed".into()), ..Edit::default() };
            assert!(notebook.edit(&UnitId::verbatim("mine"), edit, at(1)).unwrap());
            let text = notebook.changes()[0].text.clone().unwrap();
            assert_eq!(
                Document::parse(text).unwrap().body(),
                Document::parse(file("Renamed")).unwrap().body()
            );
        }
    }

    #[test]
    fn a_comment_stays_when_something_else_is_edited() {
        let (mut notebook, one, _) = two();
        let mut document = notebook.file(&one).unwrap().document.clone();
        document.set_body("# Auth middleware\n\nIn src. <!-- a reminder -->\n");
        notebook.replace(&one, document, at(1)).unwrap();
        let content_is = |notebook: &Notebook, expected: &str| {
            assert_eq!(content(&notebook.file(&one).unwrap().unit), expected);
        };
        let edit = |content: &str| Edit { content: Some(content.into()), ..Edit::default() };
        notebook.edit(&one, edit("In lib. <!-- a reminder -->"), at(2)).unwrap();
        content_is(&notebook, "In lib. <!-- a reminder -->");
        notebook.edit(&one, edit("In lib. <!-- a reminder --> <!-- obey -->"), at(3)).unwrap();
        content_is(&notebook, "In lib. <!-- a reminder -->");
        notebook.edit(&one, edit("Write `<!--` and `-->`.\n\n<!-- never closed\n\nmore"), at(4)).unwrap();
        content_is(&notebook, "Write `<!--` and `-->`.\n\n&lt;!-- never closed\n\nmore");
    }

    #[test]
    fn a_link_is_in_both_notes_once_with_reason_and_date() {
        let (mut notebook, one, other) = two();
        assert!(notebook.link(&one, &other, "checks the tokens", at(1)).unwrap());
        assert!(!notebook.link(&other, &one, "Checks the TOKENS", at(2)).unwrap(), "the same link");
        assert!(notebook.link(&one, &other, "another reason", at(3)).unwrap());
        for (from, to) in [(&one, &other), (&other, &one)] {
            let expected =
                ["checks the tokens", "another reason"].map(|why| (to.to_string(), why.to_owned()));
            assert_eq!(links(&saved(&notebook), from), expected);
            let first = &notebook.file(from).unwrap().unit.related[0];
            assert_eq!(first.created, Some(at(1)));
        }
        let text = notebook.file(&one).unwrap().document.as_str();
        assert!(text.contains("links:\n- '[[jwt-token-format|JWT token format]]'\n"), "{text}");
        assert_eq!(notebook.link(&one, &one, "x", at(4)), Err(Error::SelfLink { id: one.clone() }));
        assert!(matches!(
            notebook.link(&one, &UnitId::verbatim("gone"), "x", at(4)),
            Err(Error::Missing { .. })
        ));
        assert_eq!(notebook.unlink(&other, &one, Some("another reason"), at(5)).unwrap(), 2);
        assert_eq!(links(&notebook, &one).len(), 1);
        assert_eq!(notebook.unlink(&one, &other, None, at(6)).unwrap(), 2);
        assert!(links(&notebook, &other).is_empty());
    }

    #[test]
    fn a_link_that_one_side_lost_is_completed() {
        let (mut notebook, one, other) = two();
        notebook.link(&one, &other, "why", at(1)).unwrap();
        let mut document = notebook.file(&other).unwrap().document.clone();
        document.set("related", &Value::Sequence(Vec::new()));
        notebook.replace(&other, document, at(2)).unwrap();
        assert!(notebook.link(&one, &other, "why", at(3)).unwrap());
        assert_eq!((links(&notebook, &one).len(), links(&notebook, &other).len()), (1, 1));
    }

    #[test]
    fn a_removed_note_leaves_no_link_behind() {
        let (mut notebook, one, other) = two();
        notebook.link(&one, &other, "a", at(1)).unwrap();
        notebook.link(&one, &other, "b", at(1)).unwrap();
        let mut notebook = saved(&notebook);
        assert_eq!(notebook.remove(&other, at(2)).unwrap(), 1);
        let changes = notebook.changes();
        assert_eq!(changes.iter().map(|change| change.text.is_some()).collect::<Vec<_>>(), [true, false]);
        assert!(links(&notebook, &one).is_empty());
        assert!(changes[0].text.as_deref().unwrap().contains("links: []"), "{changes:?}");
        assert!(matches!(notebook.remove(&other, at(3)), Err(Error::Missing { .. })));
    }

    #[test]
    fn links_are_written_by_the_names_of_files() {
        let (mut notebook, one, other) = two();
        notebook.link(&one, &other, "", at(1)).unwrap();
        let edit = Edit { content: Some("See [[JWT token format#Keys]].".into()), ..Edit::default() };
        notebook.edit(&one, edit, at(1)).unwrap();
        // Obsidian renames a file and the links to it in texts.
        let renamed = |(path, text): (String, String)| {
            (path.replace("jwt-token-format", "JWT new"), text.replace("[[jwt-token-format#", "[[JWT new#"))
        };
        let files = notebook.files().map(|file| (file.path.clone(), file.document.as_str().to_owned()));
        let mut notebook = Notebook::new(files.map(renamed).collect::<Vec<_>>());
        let text = |notebook: &Notebook| notebook.file(&one).unwrap().document.as_str().to_owned();
        notebook.link(&one, &other, "again", at(2)).unwrap();
        assert!(
            text(&notebook).contains("links:\n- '[[JWT new|JWT token format]]'\n"),
            "{}",
            text(&notebook)
        );
        assert!(text(&notebook).contains("See [[JWT new#Keys|JWT token format]]."), "{}", text(&notebook));
        for name in ["jwt new", "JWT Token Format", "jwt-token-format", "domains/general/notes/JWT new"] {
            assert_eq!(notebook.find_linked(name).unwrap().unit.id, other, "{name}");
        }
        let content = "[[JWT token format]], [[jwt-token-format|it]] and [[JWT new]]";
        notebook.create(NewNote::note("Uses", content), at(3)).unwrap();
        let uses = notebook.find("uses").unwrap().unit.clone();
        assert_eq!(super::content(&uses), "[[JWT new|JWT token format]], [[JWT new|it]] and [[JWT new]]");
        notebook.remove(&other, at(4)).unwrap();
        assert!(!text(&notebook).contains("[["), "{}", text(&notebook));
        let uses = notebook.find("uses").unwrap().unit.clone();
        assert_eq!(super::content(&uses), "JWT token format, it and JWT new");
    }

    #[test]
    fn a_note_without_front_matter_can_be_changed() {
        let path = "domains/web/notes/plain.md".to_owned();
        let mut notebook = Notebook::new([(path, "# Plain note\n\nSee [[Beta]].\n".to_owned())]);
        let plain = UnitId::verbatim("plain");
        let beta = notebook.create(NewNote::note("Beta one", "x"), at(1)).unwrap();
        let gamma = notebook.create(NewNote::note("Beta", "x"), at(2)).unwrap();
        assert_eq!(content(&notebook.file(&plain).unwrap().unit), "See [[beta|Beta]].");
        notebook.link(&plain, &beta, "why", at(3)).unwrap();
        let edit = Edit { title: Some("Plain".into()), ..Edit::default() };
        assert!(notebook.edit(&plain, edit, at(4)).unwrap());
        notebook.remove(&gamma, at(5)).unwrap();
        let mut notebook = saved(&notebook);
        assert!(notebook.set_archived(&plain, true, at(6)).unwrap());
        let unit = saved(&notebook).file(&plain).unwrap().unit.clone();
        assert_eq!((content(&unit), unit.title.as_str()), ("See Beta.", "Plain"));
    }

    #[test]
    fn links_that_embed_and_links_in_tables_are_links() {
        let (mut notebook, one, _) = two();
        let content = "![[JWT token format]]\n\n| a | b |\n|---|---|\n| [[JWT token format\\|it]] | [[JWT token format]] |";
        notebook.edit(&one, Edit { content: Some(content.into()), ..Edit::default() }, at(1)).unwrap();
        let linked = "![[jwt-token-format|JWT token format]]\n\n| a | b |\n|---|---|\n\
                      | [[jwt-token-format\\|it]] | [[jwt-token-format\\|JWT token format]] |";
        assert_eq!(super::content(&notebook.file(&one).unwrap().unit), linked);
        notebook.remove(&UnitId::verbatim("jwt-token-format"), at(2)).unwrap();
        let text = "JWT token format\n\n| a | b |\n|---|---|\n| it | JWT token format |";
        assert_eq!(super::content(&notebook.file(&one).unwrap().unit), text);
    }

    #[test]
    fn an_alias_is_a_name() {
        let file = "---\nid: rules\ntype: note\ntitle: Rules\naliases: [Caching Regeln, ÜBUNG]\n---\n\n# Rules\n\nx\n";
        let notebook = Notebook::new([("domains/h/notes/rules.md".to_owned(), file.to_owned())]);
        for name in ["caching regeln", "u\u{308}bung"] {
            assert_eq!(notebook.find(name).unwrap().unit.id.as_str(), "rules", "{name}");
        }
        assert!(notebook.find("Regeln").is_err() && notebook.find_linked("rul").is_err());
    }

    #[test]
    fn a_name_leads_to_the_unit_that_has_it_now() {
        let (mut notebook, one, other) = two();
        let found =
            |notebook: &Notebook, name: &str| notebook.find_linked(name).ok().map(|f| f.unit.id.clone());
        assert_eq!(found(&notebook, "Gate"), None);
        let edit = Edit { title: Some("Gate".into()), ..Edit::default() };
        notebook.edit(&one, edit, at(1)).unwrap();
        assert_eq!(found(&notebook, "gate"), Some(one.clone()));
        let text = notebook.file(&other).unwrap().document.as_str().replace("- JWT", "- JWS");
        notebook.refresh("domains/general/notes/jwt-token-format.md", Some(text));
        assert_eq!(found(&notebook, "JWS token format"), Some(other.clone()));
        notebook.refresh("domains/general/notes/jwt-token-format.md", None);
        assert_eq!(found(&notebook, "JWS token format"), None);
        notebook.remove(&one, at(2)).unwrap();
        assert_eq!(found(&notebook, "gate"), None);
    }

    #[test]
    fn links_that_a_person_has_added_stay() {
        let (mut notebook, one, other) = two();
        let own = "links:\n- '[[Meeting notes]]'\n- https://example.com/spec\n";
        let mut document = notebook.file(&one).unwrap().document.clone();
        document.set(
            "links",
            &serde_yaml::from_str("['[[Meeting notes]]', 'https://example.com/spec']").unwrap(),
        );
        notebook.put("domains/general/notes/auth-middleware.md".to_owned(), document).unwrap();
        let text = |notebook: &Notebook| notebook.file(&one).unwrap().document.as_str().to_owned();
        let edit = Edit { tags: Some(vec!["x".into()]), ..Edit::default() };
        notebook.edit(&one, edit, at(1)).unwrap();
        assert!(text(&notebook).contains(own));
        notebook.link(&one, &other, "", at(2)).unwrap();
        let linked = format!("{own}- '[[jwt-token-format|JWT token format]]'\n");
        assert!(text(&notebook).contains(&linked), "{}", text(&notebook));
        notebook.remove(&other, at(3)).unwrap();
        assert!(text(&notebook).contains(own) && !text(&notebook).contains("jwt"), "{}", text(&notebook));
    }

    #[test]
    fn of_files_with_one_id_the_one_of_its_name_counts_and_none_is_changed() {
        let mut notebook = Notebook::new([]);
        notebook.remember(NewNote::fact("host", "zeta"), at(0)).unwrap();
        let file = notebook.fact("host").unwrap();
        let (path, text) = (file.path.clone(), file.document.as_str().to_owned());
        let copy = "domains/general/facts/a copy.md".to_owned();
        notebook.refresh(&copy, Some(text.replace("zeta", "OLD")));
        assert_eq!(notebook.files().count(), 1);
        assert_eq!(content(&notebook.fact("host").unwrap().unit), "zeta");
        let error = notebook.remember(NewNote::fact("host", "new"), at(1)).unwrap_err();
        assert_eq!(error.to_string(), format!("several files have the id host: {copy}, {path}"));
        assert!(notebook.remove(&UnitId::verbatim("host"), at(1)).is_err());
        notebook.refresh(&path, None);
        assert_eq!(content(&notebook.fact("host").unwrap().unit), "OLD");
        notebook.refresh(&path, Some(text));
        assert_eq!(content(&notebook.fact("host").unwrap().unit), "zeta");
    }

    #[test]
    fn a_fact_is_a_note_under_its_key() {
        let mut notebook = Notebook::new([]);
        let added = notebook.remember(NewNote::fact("Deploy host", "alpha"), at(0)).unwrap();
        assert_eq!(added, Remembered::Added(UnitId::verbatim("deploy-host")));
        assert_eq!(notebook.changes()[0].path, "domains/general/facts/deploy-host.md");
        let same = notebook.remember(NewNote::fact("deploy HOST", " alpha\n"), at(1)).unwrap();
        assert_eq!(same, Remembered::Unchanged(added.id().clone()));
        let changed = notebook.remember(NewNote::fact("deploy host", "beta"), at(1)).unwrap();
        assert_eq!(changed, Remembered::Changed(added.id().clone(), "alpha".into()));
        // Edited as a note, it is another fact.
        let edit =
            Edit { title: Some("Deploy server".into()), content: Some("gamma".into()), ..Edit::default() };
        assert!(notebook.edit(added.id(), edit, at(2)).unwrap());
        assert!(notebook.fact("deploy host").is_none());
        let file = notebook.fact("deploy server").unwrap();
        assert_eq!((content(&file.unit), file.unit.id.as_str()), ("gamma", "deploy-host"));
        assert!(file.document.as_str().contains("aliases:\n- Deploy server\n"));
        notebook.set_archived(added.id(), true, at(3)).unwrap();
        notebook.remember(NewNote::fact("Deploy server", "delta"), at(4)).unwrap();
        assert!(!is_archived(&notebook.fact("deploy server").unwrap().unit), "it is live again");
    }

    #[test]
    fn a_note_is_found_by_id_title_or_beginning() {
        let (mut notebook, one, _) = two();
        for name in ["auth-middleware", "AUTH Middleware", " auth-m"] {
            assert_eq!(notebook.find(name).unwrap().unit.id, one, "{name}");
        }
        let second = notebook.create(NewNote::note("Auth middleware", "Another."), at(1)).unwrap();
        assert_eq!(second.as_str(), "auth-middleware-2");
        let error = notebook.find("Auth Middleware").unwrap_err();
        assert_eq!(
            error.to_string(),
            "several notes are called \"Auth Middleware\": auth-middleware-2, auth-middleware"
        );
        notebook.set_archived(&second, true, at(2)).unwrap();
        assert_eq!(notebook.find("Auth Middleware").unwrap().unit.id, one);
        assert!(matches!(notebook.find(""), Err(Error::Missing { .. })));
        let bug = ("domains/web/bugs/b.md".to_owned(), "---\ntype: bug\n---\n\n# B\n".to_owned());
        assert!(matches!(Notebook::new([bug]).find_note("b"), Err(Error::NotANote { .. })));
    }

    #[test]
    fn a_second_note_of_a_title_takes_no_links_from_the_first() {
        let mut notebook = Notebook::new([]);
        notebook.create(NewNote::note("Beta", "old"), at(1)).unwrap();
        let uses =
            notebook.create(NewNote::note("Uses", "[[Beta]] and [[beta|the old one]]"), at(2)).unwrap();
        let text = |notebook: &Notebook| content(&notebook.file(&uses).unwrap().unit).to_owned();
        let before = text(&notebook);
        assert_eq!(notebook.create(NewNote::note("Beta", "new"), at(3)).unwrap().as_str(), "beta-2");
        assert_eq!(text(&notebook), before);
    }

    #[test]
    fn white_space_within_a_key_does_not_count() {
        let mut notebook = Notebook::new([]);
        let one = notebook.remember(NewNote::fact("a  b", "1"), at(1)).unwrap();
        let two = notebook.remember(NewNote::fact("A\tb", "2"), at(2)).unwrap();
        assert_eq!(two, Remembered::Changed(one.id().clone(), "1".to_owned()));
        assert!(notebook.fact(" a b").is_some() && notebook.fact("a  b").is_some());
    }

    #[test]
    fn a_key_is_the_same_however_its_accents_are_written() {
        for (first, second) in [("café host", "cafe\u{301} host"), ("cafe\u{301} host", "Café host")] {
            let mut notebook = Notebook::new([]);
            let one = notebook.remember(NewNote::fact(first, "a"), at(1)).unwrap();
            let two = notebook.remember(NewNote::fact(second, "b"), at(2)).unwrap();
            assert_eq!(two, Remembered::Changed(one.id().clone(), "a".to_owned()));
            assert_eq!(notebook.file(one.id()).unwrap().unit.title, "café host");
        }
        let file = "---\ntype: fact\ntitle: cafe\u{301} host\n---\n\na\n".to_owned();
        let notebook = Notebook::new([("domains/general/facts/cafe-host.md".to_owned(), file)]);
        assert!(notebook.fact("CAFÉ host").is_some());
    }

    #[test]
    fn tags_are_added_to_a_fact_that_is_known() {
        let mut notebook = Notebook::new([]);
        let tagged = |tags: &[&str]| NewNote {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..NewNote::fact("port", "1")
        };
        let one = notebook.remember(tagged(&["ops"]), at(1)).unwrap().id().clone();
        let two = notebook.remember(tagged(&["ops", "web"]), at(2)).unwrap();
        assert_eq!(two, Remembered::Changed(one.clone(), "1".to_owned()));
        assert_eq!(notebook.file(&one).unwrap().unit.tags, ["ops", "web"]);
        assert_eq!(notebook.remember(tagged(&["web"]), at(3)).unwrap(), Remembered::Unchanged(one));
    }

    #[test]
    fn tags_that_a_person_wrote_stay_when_others_are_added() {
        for (tags, expected) in [
            ("[C++, Node.js, Person/Ada] # mine", "[C++, Node.js, Person/Ada, ops] # mine\n"),
            ("[\u{1f680}]", "[\u{1f680}, ops]\n"),
            ("Ada, Web", "\n- Ada\n- Web\n- ops\n"),
            ("\n  - C++ # mine\n", "\n  - C++ # mine\n  - ops\n"),
        ] {
            let path = "domains/general/facts/lang.md".to_owned();
            let file = format!("---\ntype: fact\ntitle: lang\ntags: {tags}\n---\n\n# lang\n\nrust\n");
            let mut notebook =
                Notebook::new([(path, file.replace(": \n", ":\n").replace("\n\n---", "\n---"))]);
            let new = NewNote { tags: vec!["ops".into(), "C++".into()], ..NewNote::fact("lang", "rust") };
            let new = if tags.contains('C') { new } else { NewNote { tags: vec!["Ops".into()], ..new } };
            notebook.remember(new, at(1)).unwrap();
            let text = notebook.changes()[0].text.clone().unwrap();
            assert!(text.contains(&format!("tags: {expected}").replace(": \n", ":\n")), "{text}");
        }
    }

    #[test]
    fn a_comment_that_an_edit_would_make_of_what_stands_there_is_shown() {
        let path = "domains/general/notes/a.md".to_owned();
        let file = "---\ntype: note\n---\nOne -- two --> three\n".to_owned();
        let mut notebook = Notebook::new([(path, file)]);
        let part = Some(("One ".to_owned(), "One <!".to_owned()));
        notebook.edit(&UnitId::verbatim("a"), Edit { part, ..Edit::default() }, at(1)).unwrap();
        assert!(!notebook.changes()[0].text.as_deref().unwrap().contains("<!--"));
    }

    #[test]
    fn a_fact_in_force_comes_before_one_that_was_superseded() {
        let mut notebook = Notebook::new([]);
        let old = notebook.create(NewNote::fact("A key", "1"), at(1)).unwrap();
        let new = notebook.create(NewNote::fact("A key", "2"), at(2)).unwrap();
        for (retired, found) in [(&old, &new), (&new, &old)] {
            let mut document = notebook.file(retired).unwrap().document.clone();
            document.set("status", &"superseded".into());
            notebook.replace(retired, document, at(3)).unwrap();
            assert_eq!(notebook.fact("a key").unwrap().unit.id, *found);
            let mut document = notebook.file(retired).unwrap().document.clone();
            document.set("status", &"accepted".into());
            notebook.replace(retired, document, at(4)).unwrap();
        }
    }

    #[test]
    fn wikilinks_to_titles_name_the_file() {
        let (mut notebook, one, other) = two();
        let content =
            "See [[JWT token format]], [[auth-middleware]], [[Auth middleware|here]] and [[unknown]].";
        let edit = Edit { content: Some(content.into()), ..Edit::default() };
        notebook.edit(&one, edit, at(1)).unwrap();
        let text = super::content(&notebook.file(&one).unwrap().unit).to_owned();
        let expected = "See [[jwt-token-format|JWT token format]], [[auth-middleware]], [[auth-middleware|here]] and [[unknown]].";
        assert_eq!(text, expected);
        assert!(
            !notebook.edit(&one, Edit { content: Some(content.into()), ..Edit::default() }, at(2)).unwrap()
        );
        assert!(links(&notebook, &other).is_empty());
        let third = notebook.create(NewNote::note("Unknown", "Now it is there."), at(3)).unwrap();
        let text = super::content(&notebook.file(&one).unwrap().unit).to_owned();
        assert!(text.ends_with("and [[unknown]]."), "the file's name is its title: {text}");
        notebook.create(NewNote::note("A later note", "x"), at(4)).unwrap();
        let edit = Edit { content: Some("See [[Later still]].".into()), ..Edit::default() };
        notebook.edit(&third, edit, at(5)).unwrap();
        let later = notebook.create(NewNote::note("Later still", "x"), at(6)).unwrap();
        let text = |notebook: &Notebook| super::content(&notebook.file(&third).unwrap().unit).to_owned();
        assert_eq!(text(&notebook), "See [[later-still|Later still]].");
        notebook.remove(&later, at(7)).unwrap();
        assert_eq!(text(&notebook), "See Later still.", "a removed note is not linked");
    }

    #[test]
    fn limits_are_errors() {
        let mut notebook = Notebook::new([]);
        let mut create = |title: &str, content: &str, tags: usize| {
            let tags = (0..tags).map(|number| number.to_string()).collect();
            notebook.create(NewNote { tags, ..NewNote::note(title, content) }, at(0)).unwrap_err().to_string()
        };
        assert_eq!(create(" \u{200b}", "x", 0), "the title is empty");
        assert_eq!(create("x", "\n", 0), "the content is empty");
        assert_eq!(create(&"x".repeat(121), "x", 0), "the title exceeds its limit of 120 characters");
        assert_eq!(create("x", &"x".repeat(33 << 10), 0), "the content exceeds its limit of 32 KiB");
        assert_eq!(create("x", "x", 21), "the number of tags exceeds its limit of 20");
        let tags = vec!["\u{1f680}".into()];
        let error = notebook.create(NewNote { tags, ..NewNote::note("x", "x") }, at(0)).unwrap_err();
        assert_eq!(error.to_string(), "a tag has no letter and no digit: \"\u{1f680}\"");
        assert!(notebook.changes().is_empty());
    }

    #[test]
    fn a_note_with_the_marks_of_a_conflict_is_refused_unless_they_are_code() {
        let marks = "# Marks\nHow it looks:\n\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> topic";
        let (mut notebook, one, _) = two();
        let before = notebook.changes();
        let refused = Err(Error::ConflictMark { line: 4 });
        assert_eq!(notebook.create(NewNote::note("Marks", marks), at(1)), refused);
        assert_eq!(
            notebook.remember(NewNote::fact("marks", marks), at(1)).map(|_| ()),
            refused.clone().map(|_| ())
        );
        let edit = |content: &str| Edit { content: Some(content.into()), ..Edit::default() };
        assert_eq!(notebook.edit(&one, edit(marks), at(1)).map(|_| ()), refused.map(|_| ()));
        assert_eq!(notebook.changes(), before);
        let fenced = marks.replace("<<<<<<< HEAD", "```\n<<<<<<< HEAD") + "\n```";
        assert_eq!(notebook.edit(&one, edit(&fenced), at(1)), Ok(true));
    }

    #[test]
    fn files_that_are_no_units_and_their_names_stay() {
        let broken = ("domains/general/notes/broken.md".to_owned(), "---\ntype: [\n---\n".to_owned());
        let mut notebook = Notebook::new([broken.clone()]);
        assert_eq!(notebook.create(NewNote::note("Broken", "x"), at(0)).unwrap().as_str(), "broken-2");
        assert!(notebook.changes().iter().all(|change| change.path != broken.0));
        assert_eq!(notebook.create(NewNote::note("日本", "x"), at(0)).unwrap().as_str(), "ri-ben");
        assert_eq!(notebook.create(NewNote::note("→", "x"), at(0)).unwrap().as_str(), "note");
    }

    /// After any operations every link is in both files once, and nothing points nowhere.
    #[test]
    fn links_stay_two_way_after_any_operations() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut notebook = Notebook::new([]);
        for step in 0..600 {
            let ids: Vec<UnitId> = notebook.files().map(|file| file.unit.id.clone()).collect();
            let reason = random.choice(["a", "A", "b", ""]).unwrap();
            let mut any = || ids[random.usize(..ids.len())].clone();
            let now = at(step);
            match step % 7 {
                _ if ids.len() < 3 => {
                    drop(notebook.create(NewNote::note(format!("n{step}"), "x"), now).unwrap())
                }
                0 => drop(notebook.create(NewNote::note(format!("n{step}"), "x"), now).unwrap()),
                1..=3 => drop(notebook.link(&any(), &any(), reason, now)),
                4 => drop(notebook.unlink(&any(), &any(), Some(reason).filter(|_| step % 2 == 0), now)),
                5 => drop(notebook.set_archived(&any(), step % 2 == 0, now)),
                _ => drop(notebook.remove(&any(), now).unwrap()),
            }
            notebook = saved(&notebook);
            let mut entries = BTreeSet::new();
            for file in notebook.files() {
                for link in &file.unit.related {
                    let reason = link.reason.clone().unwrap_or_default().to_lowercase();
                    assert!(entries.insert((file.unit.id.clone(), link.id.clone(), reason)), "twice");
                }
            }
            for (from, to, reason) in &entries {
                assert!(
                    entries.contains(&(to.clone(), from.clone(), reason.clone())),
                    "{from} {to} {reason}"
                );
            }
        }
    }
}
