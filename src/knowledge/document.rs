//! A unit's file: YAML front matter, then markdown. Edits keep every other byte, including unknown keys, comments and
//! line ends.

use std::fmt::Write as _;
use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_yaml::{Mapping, Value};

use crate::name::{self, Domain, UnitId};
use crate::text;
use crate::unit::{CONFIDENCE_DEFAULT, Enforce, Related, Scope, Unit, UnitType};
use crate::wikilink::target_id;

/// The largest front matter that is parsed, in bytes. A person's has a few hundred; the limit stops a file that is
/// made to exhaust a YAML parser.
pub const FRONT_MATTER_BYTES_MAX: usize = 64 * 1024;
const SHA256_DIGITS: usize = 64;

/// A file: its exact text and the position of its front matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    raw: String,
    /// The YAML between the `---` lines; `None` if the file has no front matter.
    yaml: Option<Range<usize>>,
    /// The offset of the body.
    body: usize,
}

/// An error in a file's front matter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FrontMatterError {
    /// The line of the file, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl FrontMatterError {
    fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl Document {
    /// Finds the front matter: the lines between a first line `---` and the next such line.
    ///
    /// Only this first pair counts: a later `---` is a horizontal rule. So is the first one, if no line of a key follows
    /// it.
    ///
    /// # Errors
    /// If the front matter is never closed, or is larger than [`FRONT_MATTER_BYTES_MAX`].
    pub fn parse(raw: impl Into<String>) -> Result<Self, FrontMatterError> {
        let raw = raw.into();
        let (yaml, body) = find_front_matter(&raw)?;
        Ok(Self { raw, yaml, body })
    }

    /// Composes a new file with the keys in the given order. The YAML library quotes the values, so that no text can
    /// break out of its value.
    pub fn compose(front: &[(&str, Value)], body: &str) -> Self {
        let mut raw = String::from("---\n");
        for (key, value) in front {
            raw.push_str(&entry(key, value));
        }
        let yaml = 4..raw.len();
        raw.push_str("---\n\n");
        let start = raw.len() - 1;
        raw.push_str(body.trim());
        raw.push('\n');
        Self { raw, yaml: Some(yaml), body: start }
    }

    /// The whole file, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.raw
    }

    /// The markdown below the front matter.
    pub fn body(&self) -> &str {
        &self.raw[self.body..]
    }

    /// The YAML of the front matter.
    pub fn front_matter(&self) -> &str {
        self.yaml.clone().map_or("", |yaml| &self.raw[yaml])
    }

    /// Whether the file begins with front matter.
    pub fn has_front_matter(&self) -> bool {
        self.yaml.is_some()
    }

    /// The value of a top-level key; `None` also if the front matter is not valid YAML.
    pub fn get(&self, key: &str) -> Option<Value> {
        let front: Value = serde_yaml::from_str(&self.raw[self.yaml.clone()?]).ok()?;
        front.get(key).cloned()
    }

    /// Replaces a top-level key, or adds it at the end. Every other byte stays, but where the key's lines have an anchor:
    /// then keys that refer to it get its value. Of one mapping in flow style, as in `{type: bug}`, each key gets a line, with
    /// its value as it was; other YAML in which a line cannot be replaced or added is written again. A file without front
    /// matter is a note, and gets that `type`, too.
    pub fn set(&mut self, key: &str, value: &Value) {
        if self.mapping().is_err() && !self.claims_unit() {
            // Not nugget's, so that it stays as text below front matter that is.
            *self = self.as_text();
        }
        if !self.has_front_matter() && key != "type" {
            self.set_line("type", &UnitType::Note.as_str().into());
        }
        let Ok(mut wanted) = self.mapping() else { return self.set_line(key, value) };
        let old = wanted.insert(Value::String(key.to_owned()), value.clone());
        if old.as_ref() == Some(value) {
            return;
        }
        let edited = |edit: &dyn Fn(&mut Self)| {
            let mut edited = self.clone();
            edit(&mut edited);
            Some(edited).filter(|edited| edited != self && edited.mapping().as_ref() == Ok(&wanted))
        };
        let edited = edited(&|document| document.set_items(key, old.as_ref(), value))
            .or_else(|| edited(&|document| document.set_flow_items(key, old.as_ref(), value)))
            .or_else(|| edited(&|document| document.set_line(key, value)))
            .or_else(|| edited(&|document| document.set_without_anchors(key, &wanted)));
        if let Some(edited) = edited {
            *self = edited;
        } else if let Some(in_lines) = self.in_lines() {
            *self = in_lines;
            self.set(key, value);
        } else {
            self.replace_front_matter(&wanted);
        }
    }

    /// The same file as text alone.
    fn as_text(&self) -> Self {
        Self { raw: self.raw.clone(), yaml: None, body: text_start(&self.raw) }
    }

    fn set_line(&mut self, key: &str, value: &Value) {
        let entry = self.with_own_line_ends(entry(key, value));
        let Some(yaml) = self.yaml.clone() else {
            let end = self.with_own_line_ends("\n".to_owned());
            let front = format!("---{end}{entry}---{end}{end}");
            let start = self.body + 3 + end.len();
            self.raw.insert_str(self.body, &front);
            self.yaml = Some(start..start + entry.len());
            self.body += front.len() - end.len();
            return;
        };
        let span = self.key_span(key).unwrap_or(yaml.end..yaml.end);
        self.replace_yaml(span, &entry);
    }

    /// Changes a list that has a line for each item, so that what stands between the lines stays.
    fn set_items(&mut self, key: &str, old: Option<&Value>, new: &Value) {
        let (Some(Value::Sequence(old)), Value::Sequence(new), Some(span)) = (old, new, self.key_span(key))
        else {
            return;
        };
        let is_item = |line: &str| line.starts_with("- ") || line.trim_end() == "-";
        let indent_of = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let rows: Vec<&str> = self.raw[span.clone()].split_inclusive('\n').collect();
        let items = rows.iter().skip(1).filter(|row| is_item(row.trim_start()));
        let Some(indent) = items.map(|row| indent_of(row)).min() else { return };
        let (mut kept, mut edited) = (0, String::new());
        // The number of the item that a row belongs to, and where the last item ends.
        let (mut at, mut is_kept, mut end) = (0, true, 0);
        for (number, row) in rows.iter().enumerate() {
            let text = row.trim();
            if number > 0 && is_item(row.trim_start()) && indent_of(row) == indent {
                is_kept = old.get(at).is_some_and(|item| new.get(kept) == Some(item));
                kept += usize::from(is_kept);
                at += 1;
            }
            let is_between = number == 0 || text.is_empty() || text.starts_with('#');
            if is_kept || is_between {
                edited.push_str(row);
            }
            if !is_between || number == 0 {
                end = edited.len();
            }
        }
        let added = new.get(kept..).unwrap_or_default();
        if at != old.len() || new.is_empty() {
            return;
        }
        if !added.is_empty() {
            let added = entry(key, &Value::Sequence(added.to_vec()));
            let pad = " ".repeat(indent);
            let added: String =
                added.split_inclusive('\n').skip(1).map(|row| format!("{pad}{row}")).collect();
            edited.insert_str(end, &self.with_own_line_ends(added));
        }
        self.replace_yaml(span, &edited);
    }

    /// Adds to a list in flow style, as in `[a, b]`.
    fn set_flow_items(&mut self, key: &str, old: Option<&Value>, new: &Value) {
        let (Some(Value::Sequence(old)), Value::Sequence(new), Some(span)) = (old, new, self.key_span(key))
        else {
            return;
        };
        let marks = flow_marks(&self.raw[span.clone()]);
        let end = marks.iter().find(|mark| mark.is(']', 0)).map(|mark| span.start + mark.at);
        let (Some(added), Some(end)) = (new.strip_prefix(old.as_slice()), end) else { return };
        // One that needs several lines, or has a comma, makes another list, and is not taken.
        let added = added.iter().filter_map(|item| serde_yaml::to_string(item).ok());
        let added: Vec<String> = added.map(|item| item.trim_end().to_owned()).collect();
        let comma = if old.is_empty() { "" } else { ", " };
        let at = self.raw[..end].trim_end().len();
        self.replace_yaml(at..at, &format!("{comma}{}", added.join(", ")));
    }

    /// The same with a line for each key, if the front matter is one mapping in flow style.
    fn in_lines(&self) -> Option<Self> {
        let yaml = self.yaml.clone()?;
        let text = &self.raw[yaml.clone()];
        let marks = flow_marks(text);
        let mut start = marks.first().filter(|mark| mark.is('{', 1))?.at + 1;
        let mut lines = text[..start - 1].to_owned();
        for mark in marks.iter().filter(|mark| mark.is(',', 1) || mark.is('}', 0)) {
            let entry = text[start..mark.at].trim();
            start = mark.at + 1;
            // As in JSON.
            let spaced = entry.starts_with('"').then(|| entry.replacen("\":", "\": ", 1));
            if !entry.is_empty() {
                let _ = writeln!(lines, "{}", spaced.as_deref().unwrap_or(entry));
            }
        }
        lines.push_str(text[start..].trim_start());
        let mut in_lines = self.clone();
        in_lines.replace_yaml(yaml, &self.with_own_line_ends(lines));
        (in_lines.mapping() == self.mapping()).then_some(in_lines)
    }

    /// Replaces a key that other keys refer to, and gives them the values that they have now.
    fn set_without_anchors(&mut self, key: &str, wanted: &Mapping) {
        let mut to_set = vec![key];
        let mut anchors: Vec<String> = Vec::new();
        while let Some(key) = to_set.pop() {
            let Some(value) = wanted.get(key) else { continue };
            let lines = self.key_span(key).map(|span| self.raw[span].to_owned()).unwrap_or_default();
            self.set_line(key, value);
            for anchor in marked(&lines, '&').filter(|anchor| !anchors.contains(anchor)).collect::<Vec<_>>() {
                let refers = |key: &&str| {
                    let lines = self.key_span(key).map(|span| &self.raw[span]);
                    lines.is_some_and(|lines| marked(lines, '*').any(|name| name == anchor))
                };
                to_set.extend(wanted.keys().filter_map(Value::as_str).filter(refers));
                anchors.push(anchor);
            }
        }
    }

    fn replace_front_matter(&mut self, mapping: &Mapping) {
        let (Some(yaml), Ok(text)) = (self.yaml.clone(), serde_yaml::to_string(mapping)) else { return };
        let text = self.with_own_line_ends(text);
        self.replace_yaml(yaml, &text);
    }

    /// Replaces a part of the front matter.
    fn replace_yaml(&mut self, part: Range<usize>, text: &str) {
        let grown = text.len() as isize - part.len() as isize;
        self.raw.replace_range(part, text);
        self.yaml = self.yaml.take().map(|yaml| yaml.start..yaml.end.saturating_add_signed(grown));
        self.body = self.body.saturating_add_signed(grown);
    }

    /// A text with the line ends of this file's first line.
    fn with_own_line_ends(&self, text: String) -> String {
        match self.raw.split_once('\n') {
            Some((first, _)) if first.ends_with('\r') => with_crlf(&text),
            _ => text,
        }
    }

    /// Replaces the markdown below the front matter. It gets the file's line ends.
    pub fn set_body(&mut self, body: &str) {
        let body = self.with_own_line_ends(body.to_owned());
        self.raw.truncate(self.body);
        self.raw.push_str(&body);
    }

    /// Replaces a part of the markdown below the front matter with a text that gets the file's line ends. Every other byte
    /// stays.
    pub fn replace_in_body(&mut self, part: Range<usize>, text: &str) {
        let text = self.with_own_line_ends(text.to_owned());
        self.raw.replace_range(self.body + part.start..self.body + part.end, &text);
    }

    /// The range of a top-level key and its value, without the comments and blank lines behind it.
    fn key_span(&self, key: &str) -> Option<Range<usize>> {
        let yaml = self.yaml.clone()?;
        let mut span: Option<Range<usize>> = None;
        for line in lines(&self.raw[..yaml.end], yaml.start) {
            let text = &self.raw[line.clone()];
            match &mut span {
                None if is_key(text, key) => span = Some(line),
                None => {}
                // More of the value may follow.
                Some(_) if text.trim().is_empty() || text.starts_with('#') => {}
                Some(found) if continues(text) || is_open(&self.raw[found.clone()]) => found.end = line.end,
                Some(_) => break,
            }
        }
        span
    }

    /// The line number of a top-level key, for messages.
    fn key_line(&self, key: &str) -> usize {
        let at = self.key_span(key).map_or(0, |span| span.start);
        self.raw[..at].matches('\n').count() + 1
    }

    /// Reads the unit. Missing keys get the defaults that its path implies.
    ///
    /// `path` is relative to the brain with `/` between its parts. A file without front matter was written before
    /// nugget was installed; it is read as a unit of type `note`. So is one outside of `domains/` whose front matter is
    /// another program's: what a unit cannot have of it is left out.
    ///
    /// # Errors
    /// If the front matter is not a YAML mapping, or a known key has a value of the wrong type, or a merge has left its
    /// conflict in the text.
    pub fn unit(&self, path: &str) -> Result<Unit, FrontMatterError> {
        if let Some(line) = text::conflict_line(&self.raw) {
            return Err(FrontMatterError::new(
                line,
                "a merge has left a conflict here: both texts stand between its marks",
            ));
        }
        let mapping = self.mapping();
        let is_strict = path.starts_with("domains/") || self.claims_unit();
        match mapping {
            Ok(mapping) => match self.read_keys(&mapping, path) {
                Err(_) if !is_strict => {
                    let keys: Vec<&str> = mapping.keys().filter_map(Value::as_str).collect();
                    self.read_each_key(&mapping, path, &keys).map(|(unit, _)| unit)
                }
                read => read,
            },
            // Text between two rules, or YAML that its program reads otherwise: it can be found as text.
            Err(_) if !is_strict => self.as_text().read_keys(&Mapping::new(), path),
            Err(error) => Err(error),
        }
    }

    /// Whether the front matter is meant for nugget: other programs know neither `id` nor its types.
    fn claims_unit(&self) -> bool {
        let has_own_type = || {
            let line =
                self.key_span("type").and_then(|span| self.raw[span].split_once(':')?.1.lines().next());
            let kind = line.map(|kind| UnitType::from(kind.trim().trim_matches(['"', '\''])));
            kind.is_some_and(|kind| UnitType::KNOWN.contains(&kind))
        };
        self.key_span("id").is_some() || has_own_type()
    }

    /// Reads a unit from these keys only, each on its own, so that a value that no unit can have does not take the
    /// others with it. Returns the errors of such values, too. A unit without a type is a note.
    ///
    /// # Errors
    /// If the front matter is not a YAML mapping.
    pub fn partial_unit(
        &self,
        path: &str,
        keys: &[&str],
    ) -> Result<(Unit, Vec<FrontMatterError>), FrontMatterError> {
        self.read_each_key(&self.mapping()?, path, keys)
    }

    fn read_each_key(
        &self,
        mapping: &Mapping,
        path: &str,
        keys: &[&str],
    ) -> Result<(Unit, Vec<FrontMatterError>), FrontMatterError> {
        let (mut kept, mut errors) = (note_mapping(), Vec::new());
        for key in keys {
            let Some(value) = mapping.get(*key) else { continue };
            let mut alone = note_mapping();
            alone.insert((*key).into(), value.clone());
            match self.read_keys(&alone, path) {
                Ok(_) if value.is_null() => {}
                Ok(_) => drop(kept.insert((*key).into(), value.clone())),
                Err(error) => errors.push(error),
            }
        }
        Ok((self.read_keys(&kept, path)?, errors))
    }

    fn read_keys(&self, mapping: &Mapping, path: &str) -> Result<Unit, FrontMatterError> {
        let keys = Keys { document: self, mapping };
        let defaults = PathDefaults::from_path(path);
        let kind = match keys.text("type")? {
            Some(kind) => UnitType::from(text::one_line(&kind, 100).as_str()),
            None if self.has_front_matter() => {
                return Err(FrontMatterError::new(
                    1,
                    "`type` is missing: pattern, concept, decision, bug, belief or a word of your own",
                ));
            }
            None => UnitType::Note,
        };
        let title = match keys.text("title")? {
            Some(title) => text::one_line(&title, 200),
            None => first_heading(self.body()).unwrap_or_else(|| defaults.stem.replace(['-', '_'], " ")),
        };
        Ok(Unit {
            id: match keys.text("id")? {
                Some(id) => UnitId::verbatim(name::nfc(&text::one_line(&id, 200))),
                None => defaults.id(),
            },
            kind,
            domain: match keys.text("domain")? {
                Some(domain) => Domain::verbatim(text::one_line(&domain, 100)),
                None => defaults.domain.map_or_else(|| Domain::verbatim("general"), Domain::verbatim),
            },
            title,
            description: keys.text("description")?.map(|text| text::one_line(&text, 1000)),
            tags: keys.list("tags")?,
            confidence: keys.fraction("confidence")?.unwrap_or(CONFIDENCE_DEFAULT),
            source: keys.text("source")?.unwrap_or_default(),
            related: keys.related()?,
            created: keys.time("created")?,
            last_modified: keys.time("last_modified")?,
            status: keys.text("status")?.or_else(|| keys.is_hidden().then(|| "archived".to_owned())),
            stability: keys.word("stability"),
            category: keys.word("kind"),
            scope: keys.scope()?,
            alternatives: keys.list("alternatives")?,
            stale_after: keys.time("stale_after")?,
            enforce: keys.enforce()?,
            body: self.body().to_owned(),
        })
    }

    pub(crate) fn mapping(&self) -> Result<Mapping, FrontMatterError> {
        let Some(yaml) = self.yaml.clone() else { return Ok(Mapping::new()) };
        let first_line = self.raw[..yaml.start].matches('\n').count();
        let value: Value = serde_yaml::from_str(&self.raw[yaml]).map_err(|error| {
            let line = first_line + error.location().map_or(1, |at| at.line());
            let what = error.to_string();
            // The library counts lines from the start of the front matter; its line number is cut off.
            let what = what.split(" at line ").next().unwrap_or(&what);
            let text = self.raw.lines().nth(line - 1).unwrap_or_default();
            let is_long = |word: &str| word.len() > 18 && word.bytes().all(|byte| byte.is_ascii_digit());
            let advice = if has_bare_colon(text) {
                "; put a value that has a colon in quotes"
            } else if text.split([' ', ',', '[', ']', '{', '}', '-']).any(is_long) {
                "; put a number as long as this in quotes"
            } else {
                ""
            };
            FrontMatterError::new(line, format!("front matter is not valid YAML: {what}{advice}"))
        })?;
        match value {
            Value::Mapping(mapping) => Ok(mapping),
            Value::Null => Ok(Mapping::new()),
            _ => Err(FrontMatterError::new(first_line + 1, "front matter must be `key: value` lines")),
        }
    }
}

/// The front matter of a note that has nothing else in it.
fn note_mapping() -> Mapping {
    Mapping::from_iter([(Value::from("type"), Value::from("note"))])
}

/// Reads typed values from a mapping, with errors that name the key and the line.
struct Keys<'a> {
    document: &'a Document,
    mapping: &'a Mapping,
}

impl Keys<'_> {
    fn wrong(&self, key: &str, wanted: &str) -> FrontMatterError {
        FrontMatterError::new(self.document.key_line(key), format!("`{key}` must be {wanted}"))
    }

    fn text(&self, key: &str) -> Result<Option<String>, FrontMatterError> {
        match self.mapping.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match scalar(value) {
                Some(text) if !text.trim().is_empty() => Ok(Some(text)),
                Some(_) => Ok(None),
                None => Err(self.wrong(key, "text")),
            },
        }
    }

    /// A key that brains of other programs may use for something else.
    fn word(&self, key: &str) -> Option<String> {
        let text = text::one_line(&scalar(self.mapping.get(key)?)?, 60);
        Some(text).filter(|text| !text.is_empty())
    }

    fn is_hidden(&self) -> bool {
        self.mapping.get("hidden").and_then(Value::as_bool) == Some(true)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, FrontMatterError> {
        match self.mapping.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Sequence(items)) => items
                .iter()
                .map(|item| scalar(item).ok_or_else(|| self.wrong(key, "a list of words")))
                .collect(),
            Some(value) => {
                let text = scalar(value).ok_or_else(|| self.wrong(key, "a list of words"))?;
                Ok(text
                    .split(',')
                    .map(|word| word.trim().to_owned())
                    .filter(|word| !word.is_empty())
                    .collect())
            }
        }
    }

    fn fraction(&self, key: &str) -> Result<Option<f64>, FrontMatterError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match text.trim().parse::<f64>() {
            Ok(number) if (0.0..=1.0).contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(key, "a number from 0 to 1")),
        }
    }

    fn time(&self, key: &str) -> Result<Option<Timestamp>, FrontMatterError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let text = text.trim();
        let date = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
        match text.parse::<Timestamp>().ok().or_else(date) {
            Some(time) => Ok(Some(time)),
            None => Err(self.wrong(key, "a date like 2026-11-20 or a time like 2026-11-20T14:12:00Z")),
        }
    }

    fn scope(&self) -> Result<Vec<Scope>, FrontMatterError> {
        const WANTED: &str = "a list of paths, or of `{path, symbol, repository, sha256, command, error}`";
        let wrong = || self.wrong("scope", WANTED);
        let one = |item: &Value| match (item, scalar(item)) {
            (_, Some(path)) => Ok(Scope { path: Some(scope_path(&path)), ..Scope::default() }),
            (Value::Mapping(keys), _) => {
                let text = |key: &str| match keys.get(key) {
                    None | Some(Value::Null) => Ok(None),
                    Some(value) => {
                        scalar(value).map(|text| Some(text::one_line(&text, 1000))).ok_or_else(wrong)
                    }
                };
                let address = |text: String| name::repository_address(&text).unwrap_or(text);
                let digest = text("sha256")?.map(|digest| digest.to_ascii_lowercase());
                let is_digest = |text: &String| {
                    text.len() == SHA256_DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
                };
                if digest.as_ref().is_some_and(|digest| !is_digest(digest)) {
                    return Err(
                        self.wrong("scope", "a list of places whose `sha256` has 64 hexadecimal digits")
                    );
                }
                let scope = Scope {
                    repository: text("repository")?.map(address),
                    path: text("path")?.map(|path| scope_path(&path)),
                    symbol: text("symbol")?,
                    sha256: digest,
                    command: text("command")?,
                    error: text("error")?,
                };
                if scope == Scope::default() { Err(wrong()) } else { Ok(scope) }
            }
            _ => Err(wrong()),
        };
        match self.mapping.get("scope") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Sequence(items)) => items.iter().map(one).collect(),
            Some(item) => Ok(vec![one(item)?]),
        }
    }

    fn enforce(&self) -> Result<Option<Enforce>, FrontMatterError> {
        match self.text("enforce")?.as_deref().map(str::trim) {
            None | Some("tell" | "false" | "off") => Ok(None),
            Some("hold") => Ok(Some(Enforce::Hold)),
            Some(_) => Err(self.wrong("enforce", "`hold` or `tell`")),
        }
    }

    fn related(&self) -> Result<Vec<Related>, FrontMatterError> {
        const WANTED: &str = "a list of `{id, relation}`";
        let items = match self.mapping.get("related") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Sequence(items)) => items,
            Some(_) => return Err(self.wrong("related", WANTED)),
        };
        items
            .iter()
            .map(|item| {
                let id = item.get("id").unwrap_or(item);
                let id = scalar(id).ok_or_else(|| self.wrong("related", WANTED))?;
                let relation =
                    item.get("relation").and_then(scalar).map(|relation| text::one_line(&relation, 100));
                let reason = item.get("reason").and_then(scalar).map(|reason| text::one_line(&reason, 300));
                Ok(Related {
                    id: UnitId::verbatim(name::nfc(&text::one_line(target_id(&id), 200))),
                    relation: relation.as_deref().unwrap_or("often_combined_with").into(),
                    reason: reason.filter(|reason| !reason.is_empty()),
                    created: item.get("created").and_then(scalar).and_then(|time| time.parse().ok()),
                })
            })
            .collect()
    }
}

/// The defaults that a file's path implies.
struct PathDefaults<'a> {
    domain: Option<&'a str>,
    stem: &'a str,
    path: &'a str,
}

impl<'a> PathDefaults<'a> {
    fn from_path(path: &'a str) -> Self {
        let stem = name::file_stem(path);
        let parts: Vec<&str> = path.split('/').collect();
        let domain = match parts.as_slice() {
            ["domains", domain, _, ..] => Some(*domain),
            [folder, _, ..] => Some(*folder),
            _ => None,
        };
        Self { domain, stem, path }
    }

    /// The file stem below `domains/`; elsewhere the path, because two folders may hold notes of the same name, as any may
    /// hold a README.
    fn id(&self) -> UnitId {
        let path = self.path.strip_suffix(".md").unwrap_or(self.path);
        let is_named = path.starts_with("domains/") && !self.stem.eq_ignore_ascii_case("README");
        UnitId::verbatim(name::nfc(if is_named { self.stem } else { path }))
    }
}

/// A path of a scope as it is compared: with `/`, without `./` before and `/` behind it; `.` for all.
fn scope_path(path: &str) -> String {
    let path = text::one_line(path, 1000).replace('\\', "/");
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// One `key: value` as YAML, ending in a line feed.
fn entry(key: &str, value: &Value) -> String {
    let mut mapping = Mapping::new();
    mapping.insert(Value::String(key.to_owned()), value.clone());
    // Serializing a YAML value cannot fail.
    serde_yaml::to_string(&mapping).unwrap_or_else(|_| {
        let mut line = String::new();
        let _ = writeln!(line, "{key}: null");
        line
    })
}

/// The offset behind a byte order mark.
fn text_start(raw: &str) -> usize {
    if raw.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

/// The range of the YAML, if there is any, and the offset of the body.
fn find_front_matter(raw: &str) -> Result<(Option<Range<usize>>, usize), FrontMatterError> {
    let start = text_start(raw);
    let mut lines = lines(raw, start);
    let Some(opening) = lines.next().filter(|line| is_fence(&raw[line.clone()])) else {
        return Ok((None, start));
    };
    for line in lines {
        if is_fence(&raw[line.clone()]) {
            return Ok((Some(opening.end..line.start), line.end));
        }
        if line.end - opening.end > FRONT_MATTER_BYTES_MAX {
            if !begins_with_keys(&raw[opening.end..]) {
                return Ok((None, start));
            }
            let what = format!("front matter is larger than {} KiB", FRONT_MATTER_BYTES_MAX / 1024);
            return Err(FrontMatterError::new(1, what));
        }
    }
    if !begins_with_keys(&raw[opening.end..]) {
        return Ok((None, start));
    }
    Err(FrontMatterError::new(1, "front matter is opened with `---` and never closed"))
}

/// Whether the lines before the first blank one are keys with their values, not a text below a horizontal rule.
fn begins_with_keys(text: &str) -> bool {
    let is_any_key = |line: &str| {
        let key = line.split_once(':').map_or("", |(key, _)| key.trim_end());
        !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
    };
    let mut block = text
        .lines()
        .take_while(|line| !line.trim().is_empty() && !is_fence(line))
        .skip_while(|line| line.starts_with('#'));
    block.next().is_some_and(is_any_key)
        && block.all(|line| is_any_key(line) || continues(line) || line.starts_with('#'))
}

/// Whether the value of a `key: value` line has a colon of its own and no quotes, as in `title: Meeting: x`.
fn has_bare_colon(line: &str) -> bool {
    let value = line.split_once(": ").map_or("", |(_, value)| value.trim_start());
    value.contains(": ") && !value.starts_with(['"', '\'', '{', '[', '|', '>'])
}

fn is_fence(line: &str) -> bool {
    line.trim_end() == "---"
}

fn is_key(line: &str, key: &str) -> bool {
    ["", "\"", "'"].iter().any(|quote| {
        let rest = line.strip_prefix(quote).and_then(|line| line.strip_prefix(key)?.strip_prefix(quote));
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    })
}

/// Whether a line belongs to the value above it: indented, or an item of its list.
fn continues(line: &str) -> bool {
    line.starts_with([' ', '\t']) || line.starts_with("- ") || line.trim_end() == "-"
}

/// A bracket or a comma of YAML in flow style.
struct FlowMark {
    /// Its offset.
    at: usize,
    mark: char,
    /// How many brackets are open behind it.
    open: usize,
}

impl FlowMark {
    fn is(&self, mark: char, open: usize) -> bool {
        self.mark == mark && self.open == open
    }
}

/// The brackets and commas of a piece of YAML outside of quotes and comments.
fn flow_marks(yaml: &str) -> Vec<FlowMark> {
    let (mut marks, mut open) = (Vec::new(), 0_usize);
    // `#` for a comment, which a line feed ends.
    let (mut quoted_by, mut before) = (None, ' ');
    for (at, c) in yaml.char_indices() {
        match quoted_by {
            Some('#') => quoted_by = Some('#').filter(|_| c != '\n'),
            Some(quote) => quoted_by = Some(quote).filter(|_| c != quote || quote == '"' && before == '\\'),
            None if c == '#' && before.is_whitespace() => quoted_by = Some(c),
            // Within a word it is a letter.
            None if matches!(c, '"' | '\'') && (before.is_whitespace() || "[{,:'".contains(before)) => {
                quoted_by = Some(c);
            }
            None => {
                match c {
                    '[' | '{' => open += 1,
                    ']' | '}' => open = open.saturating_sub(1),
                    _ => {}
                }
                if "[]{},".contains(c) {
                    marks.push(FlowMark { at, mark: c, open });
                }
            }
        }
        before = if before == '\\' && c == '\\' { ' ' } else { c };
    }
    marks
}

/// Whether the lines of a key end within a value in flow style: its closing bracket may stand at the margin.
fn is_open(lines: &str) -> bool {
    let value = lines.split_once(':').map_or("", |(_, value)| value);
    let is_property = |word: &&str| word.starts_with(['&', '!']);
    let begins = value.split_whitespace().find(|word| !is_property(word));
    begins.is_some_and(|word| word.starts_with(['[', '{']))
        && flow_marks(value).last().is_some_and(|mark| mark.open > 0)
}

/// The names that stand behind a mark of YAML's in these lines: `&` for an anchor, `*` for a reference to one.
fn marked(lines: &str, mark: char) -> impl Iterator<Item = String> {
    let words = lines.split(|c: char| c.is_whitespace() || "[]{},".contains(c));
    words.filter_map(move |word| word.strip_prefix(mark)).map(str::to_owned)
}

/// A text in which every line ends as on Windows.
pub fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// The lines of `raw` from `start`, each with its line feed.
fn lines(raw: &str, start: usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= raw.len() {
            return None;
        }
        let end = raw[at..].find('\n').map_or(raw.len(), |found| at + found + 1);
        let line = at..end;
        at = end;
        Some(line)
    })
}

/// The text of the first `# heading` outside of a code block.
fn first_heading(body: &str) -> Option<String> {
    let mut fenced = false;
    for line in body.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if let Some(heading) = line.strip_prefix("# ").filter(|_| !fenced) {
            let heading = text::one_line(heading.trim_end_matches('#'), 200);
            return Some(heading).filter(|heading| !heading.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "---\nid: worker-pools\n# a comment of mine\ntype: pattern\ndomain: coding\ntags: [go, concurrency]\nconfidence: 0.9\nsource: human\nrelated:\n- id: channels\n  relation: uses\nmine: {a: 1}\ncreated: 2026-01-02\nlast_modified: 2026-01-03T04:05:06Z\n---\n\n# Worker pools\n\ntext\n\n---\n\nmore\n";

    fn unit(raw: &str) -> Result<Unit, FrontMatterError> {
        Document::parse(raw)?.unit("domains/coding/patterns/worker-pools.md")
    }

    #[test]
    fn a_wrong_value_takes_no_other_key_with_it() {
        let raw = "---\ntype: decision\ntags: [net]\nconfidence: 85\nscope: [[a]]\n---\n\n# Nets\n";
        let document = Document::parse(raw).unwrap();
        let (unit, errors) = document.partial_unit("x.md", &["type", "tags", "confidence", "scope"]).unwrap();
        assert_eq!((unit.kind.as_str(), unit.tags.as_slice()), ("decision", ["net".to_owned()].as_slice()));
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors[0], "line 4: `confidence` must be a number from 0 to 1");
        assert!(errors.len() == 2 && errors[1].starts_with("line 5: `scope` must be"), "{errors:?}");
        let (unit, errors) = document.partial_unit("x.md", &["tags"]).unwrap();
        assert!(unit.kind == UnitType::Note && errors.is_empty());
    }

    #[test]
    fn a_type_and_a_relation_are_one_visible_line() {
        let text = FILE
            .replace("type: pattern", "type: \"rec\\0ipe\"")
            .replace("relation: uses", "relation: \"us\\0es\"");
        let unit = unit(&text).unwrap();
        assert_eq!((unit.kind.as_str(), unit.related[0].relation.as_str()), ("recipe", "uses"));
    }

    #[test]
    fn all_keys_of_a_unit_are_read() {
        let unit = unit(FILE).unwrap();
        assert_eq!(unit.id.as_str(), "worker-pools");
        assert_eq!(unit.kind, UnitType::Pattern);
        assert_eq!(unit.title, "Worker pools");
        assert_eq!(unit.tags, ["go", "concurrency"]);
        assert_eq!(unit.related[0].relation.as_str(), "uses");
        assert_eq!(unit.created.unwrap().to_string(), "2026-01-02T00:00:00Z");
        assert!(unit.body.contains("---\n\nmore"), "a rule in the body is not front matter");
    }

    #[test]
    fn yaml_without_a_line_for_each_key_is_written_again() {
        for front in [
            "{type: bug, mine: 1}\n",
            "type: bug\nmine: 1\n...\n",
            "\"type\": bug\nmine: 1\n\"confidence\": 0.5\n",
            "? type\n: bug\n? mine\n: 1\n? confidence\n: 0.5\n",
        ] {
            let mut document = Document::parse(format!("---\n{front}---\n\nbody\n")).unwrap();
            document.set("confidence", &Value::from(0.25));
            let again = Document::parse(document.as_str()).unwrap();
            assert_eq!(again, document, "{front}");
            assert_eq!(document.get("mine"), Some(Value::from(1)), "{front}");
            let unit = document.unit("x.md").unwrap();
            assert_eq!((unit.confidence, unit.kind, unit.body.as_str()), (0.25, UnitType::Bug, "\nbody\n"));
        }
    }

    #[test]
    fn a_parsed_file_keeps_every_byte() {
        for raw in [
            FILE,
            &FILE.replace('\n', "\r\n"),
            "no front matter\n---\nx",
            "",
            "---\n---\n",
            "\u{feff}---\ntype: bug\n---\n",
        ] {
            assert_eq!(Document::parse(raw).unwrap().as_str(), raw);
        }
    }

    #[test]
    fn setting_a_key_changes_no_other_byte() {
        let mut document = Document::parse(FILE).unwrap();
        document.set("confidence", &Value::from(0.5));
        assert_eq!(document.as_str(), FILE.replace("confidence: 0.9", "confidence: 0.5"));
        document.set("related", &Value::Sequence(vec![]));
        let expected = FILE
            .replace("confidence: 0.9", "confidence: 0.5")
            .replace("related:\n- id: channels\n  relation: uses\n", "related: []\n");
        assert_eq!(document.as_str(), expected);
        document.set("status", &Value::from("superseded"));
        assert_eq!(document.as_str(), expected.replace("06Z\n---", "06Z\nstatus: superseded\n---"));
        assert_eq!(document.unit("x.md").unwrap().status.as_deref(), Some("superseded"));
        assert_eq!(Document::parse(document.as_str()).unwrap(), document);
    }

    #[test]
    fn a_value_in_flow_style_may_end_at_the_margin() {
        let front = "version: 1.10 # keep me\nlinks: &l\n  - x\nmore:\n  - *l\ntags: [\n  a, 'b]', # ]\nc\n]\nsize: 0x1F\nlist: {a: [\n1\n]}\n";
        let mut document = Document::parse(format!("---\n{front}---\n")).unwrap();
        document.set("size", &"x".into());
        let expected = front.replace("0x1F", "x");
        assert_eq!(document.as_str(), format!("---\n{expected}---\n"));
        document.set("tags", &Value::Sequence(vec!["q".into()]));
        let tags = "tags: [\n  a, 'b]', # ]\nc\n]\n";
        assert_eq!(document.as_str(), format!("---\n{}---\n", expected.replace(tags, "tags:\n- q\n")));
        document.set("list", &"y".into());
        assert!(document.as_str().ends_with("size: x\nlist: y\n---\n"), "{}", document.as_str());
    }

    #[test]
    fn what_is_added_to_a_list_in_flow_style_stands_in_it() {
        let list = |items: &[&str]| Value::Sequence(items.iter().map(|item| (*item).into()).collect());
        for (before, items, after) in [
            ("[C++, 'a]'] # mine", &["C++", "a]", "ops"][..], "[C++, 'a]', ops] # mine"),
            ("[\n  a\n]", &["a", "b: c", "d"], "[\n  a, 'b: c', d\n]"),
            ("[] # none", &["a"], "[a] # none"),
            // What cannot be written so.
            ("[a,]", &["a", "b"], "\n- a\n- b"),
            ("[a]", &["a", "b, c"], "\n- a\n- b, c"),
            ("[a, b]", &["b"], "\n- b"),
        ] {
            let file = |tags: &str| format!("---\ntags: {tags}\nk: 1.10\n---\n").replace(": \n", ":\n");
            let mut document = Document::parse(file(before)).unwrap();
            document.set("tags", &list(items));
            assert_eq!(document.as_str(), file(after));
        }
    }

    #[test]
    fn a_mapping_in_flow_style_keeps_its_values_as_they_are_written() {
        let front = "# mine\n{type: note, version: 1.10, phone: 0x1F, f: 1e3, list: [a, 'b, c'],\n \"oct\":0o17, zip: 01234, y: yes} # c\n";
        let mut document = Document::parse(format!("---\n{front}---\n\nbody\n")).unwrap();
        document.set("status", &"archived".into());
        let lines = "# mine\ntype: note\nversion: 1.10\nphone: 0x1F\nf: 1e3\nlist: [a, 'b, c']\n\"oct\": 0o17\nzip: 01234\ny: yes\n# c\nstatus: archived\n";
        assert_eq!(document.as_str(), format!("---\n{lines}---\n\nbody\n"));
        let again = Document::parse(document.as_str()).unwrap();
        assert_eq!(again, document);
    }

    #[test]
    fn a_part_of_the_body_is_replaced_alone() {
        let mut document = Document::parse("---\r\ntype: note\r\n---\r\nab\ncd\r\n").unwrap();
        document.replace_in_body(1..2, "B\n");
        assert_eq!(document.as_str(), "---\r\ntype: note\r\n---\r\naB\r\n\ncd\r\n");
    }

    #[test]
    fn lines_that_are_added_end_as_the_file_does() {
        let mut document = Document::parse(FILE.replace('\n', "\r\n")).unwrap();
        document.set("tags", &Value::Sequence(vec!["net".into()]));
        document.set("links", &Value::Sequence(vec!["[[a]]".into()]));
        document.set("related", &serde_yaml::from_str("[{id: channels, relation: uses}, {id: b}]").unwrap());
        document.set_body("\n# Pools\n\ntext\n");
        let text = document.as_str();
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
        assert!(text.contains("  relation: uses\r\n- id: b\r\nmine: {a: 1}\r\n"), "{text:?}");
        assert_eq!(Document::parse(text).unwrap(), document);
        let mut plain = Document::parse("# Note\r\n").unwrap();
        plain.set("type", &"bug".into());
        assert_eq!(plain.as_str(), "---\r\ntype: bug\r\n---\r\n\r\n# Note\r\n");
        assert_eq!(Document::parse(plain.as_str()).unwrap(), plain);
    }

    #[test]
    fn keys_that_are_not_set_stay_as_they_are_written() {
        let front = "related: &r [] # c\nsame: *r\n\n# full comment\nextra:   {a:   1}\n'type': bug # kind\n";
        let mut document = Document::parse(format!("---\n{front}---\n")).unwrap();
        document.set("related", &Value::Sequence(vec!["a".into()]));
        let expected = front.replace("related: &r [] # c", "related:\n- a").replace("*r", "[]");
        assert_eq!(document.as_str(), format!("---\n{expected}---\n"));
        document.set("type", &"belief".into());
        let expected = expected.replace("'type': bug # kind", "type: belief");
        assert_eq!(document.as_str(), format!("---\n{expected}---\n"));
    }

    #[test]
    fn what_stands_between_the_items_of_a_list_stays() {
        let front = "related: # mine\n  # first\n  - id: a # why\n    reason: x\n# at the margin\n\n  - {id:  b}\n\n# next\nk: v\n";
        let mut document = Document::parse(format!("---\n{front}---\n")).unwrap();
        let list = |yaml: &str| serde_yaml::from_str::<Value>(yaml).unwrap();
        document.set("related", &list("[{id: a, reason: x}, {id: b}, {id: c, reason: y}]"));
        let added = front.replace("{id:  b}\n", "{id:  b}\n  - id: c\n    reason: y\n");
        assert_eq!(document.as_str(), format!("---\n{added}---\n"));
        document.set("related", &list("[{id: b}, {id: c, reason: y}]"));
        let removed = added.replace("  - id: a # why\n    reason: x\n", "");
        assert_eq!(document.as_str(), format!("---\n{removed}---\n"));
        document.set("related", &list("[]"));
        assert_eq!(document.as_str(), "---\nrelated: []\n\n# next\nk: v\n---\n");
    }

    #[test]
    fn setting_a_key_adds_missing_front_matter() {
        let mut document = Document::parse("# Note\n").unwrap();
        document.set("type", &Value::from("bug"));
        assert_eq!(document.as_str(), "---\ntype: bug\n---\n\n# Note\n");
        assert_eq!(Document::parse(document.as_str()).unwrap(), document);
    }

    #[test]
    fn a_file_without_front_matter_stays_a_note_when_a_key_is_set() {
        let mut document = Document::parse("# Title\r\n\r\ntext\r\n").unwrap();
        document.set("status", &"archived".into());
        let expected = "---\r\ntype: note\r\nstatus: archived\r\n---\r\n\r\n# Title\r\n\r\ntext\r\n";
        assert_eq!(document.as_str(), expected);
        assert_eq!(document.unit("domains/a/notes/x.md").unwrap().kind, UnitType::Note);
    }

    #[test]
    fn an_error_names_the_line_of_the_file() {
        let check = |raw: &str, line: usize, what: &str| {
            let error = unit(raw).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.what.contains(what), "{error}");
        };
        check("---\ntype: bug\nconfidence: high\n---\n", 3, "a number from 0 to 1");
        check("---\ntype: bug\ntitle: a: b: c\n---\n", 3, "not valid YAML");
        check("---\n- a\n- b\n---\n", 2, "key: value");
        check("---\ntype: bug\n", 1, "never closed");
        check("---\nid: x\n---\n", 1, "`type` is missing");
        check("---\ntype: bug\n\ncreated: yesterday\n---\n", 4, "a date like");
        check("---\ntype: bug\nrelated: 3\n---\n", 3, "a list of");
        check("---\ntype: bug\nscope:\n- {}\n---\n", 3, "a list of paths");
        check("---\ntype: bug\nscope:\n- path: a\n  sha256: zzz\n---\n", 3, "64 hexadecimal digits");
        check("---\ntype: bug\nenforce: always\n---\n", 3, "`hold` or `tell`");
    }

    #[test]
    fn a_unit_says_where_it_bears_and_how_long() {
        let front = "type: constraint\nscope:\n- ./src/auth/\n- path: src\\pay.rs\n  symbol: charge\n  sha256: DIGEST\n  \
                     repository: https://github.com/acme/shop.git\n- command: cargo publish\nalternatives: [Redis, files]\n\
                     stale_after: 2027-01-01\nenforce: hold\n";
        let front = front.replace("DIGEST", &"AB01".repeat(16));
        let raw = format!("---\n{front}---\n\nbody\n");
        let mut document = Document::parse(raw.as_str()).unwrap();
        let unit = document.unit("x.md").unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            Scope { path: text("src/auth"), ..Scope::default() },
            Scope {
                path: text("src/pay.rs"),
                symbol: text("charge"),
                sha256: Some("ab01".repeat(16)),
                repository: text("github.com/acme/shop"),
                ..Scope::default()
            },
            Scope { command: text("cargo publish"), ..Scope::default() },
        ];
        assert_eq!(unit.scope, expected);
        assert_eq!((unit.kind.priority(), unit.alternatives.len()), (1.0, 2));
        assert_eq!(unit.stale_after.unwrap().to_string(), "2027-01-01T00:00:00Z");
        assert_eq!(unit.enforce, Some(Enforce::Hold));
        document.set("confidence", &Value::from(0.5));
        assert_eq!(
            document.as_str(),
            raw.replace("hold\n", "hold\nconfidence: 0.5\n"),
            "every other byte stays"
        );
    }

    #[test]
    fn a_note_without_front_matter_is_named_after_its_path() {
        let unit = Document::parse("# On caches\n\ntext").unwrap().unit("notes/caches.md").unwrap();
        assert_eq!(
            (unit.id.as_str(), unit.kind.as_str(), unit.title.as_str()),
            ("notes/caches", "note", "On caches")
        );
        assert_eq!(unit.domain.as_str(), "notes");
    }

    #[test]
    fn outside_of_domains_what_a_unit_cannot_have_is_left_out() {
        let note = |raw: &str| Document::parse(raw).unwrap().unit("Daily/1.md").unwrap();
        let daily = note("---\ntags: [daily]\n---\nzebra\n");
        assert_eq!(
            (daily.id.as_str(), daily.kind, daily.tags),
            ("Daily/1", UnitType::Note, vec!["daily".to_owned()])
        );
        let dated =
            note("---\ncreated: 27.11.2026\ntype: meeting\nrelated: [[x]]\naliases: [a]\n---\nzebra\n");
        assert_eq!((dated.kind.as_str(), dated.created, dated.body.as_str()), ("meeting", None, "zebra\n"));
        for raw in [
            "---\ntitle: Meeting: x\n---\nzebra\n",
            "---\nzebra\n---\nand more\n",
            "---\n\n# Zebra\n\nzebra",
            "---\nNote: this is\na text with a zebra\n",
        ] {
            assert!(note(raw).body.contains("zebra"), "{raw}");
        }
        let long = format!("---\n\n{}---\n", "a zebra\n".repeat(10_000));
        assert!(note(&long).body.contains("zebra"));
    }

    #[test]
    fn outside_of_domains_front_matter_that_claims_a_unit_must_be_right() {
        let error = |raw: &str| Document::parse(raw).and_then(|file| file.unit("Daily/1.md")).unwrap_err();
        assert_eq!(error("---\ntype: bug\ncreated: 27.11.2026\n---\n").line, 3);
        assert!(error("---\nid: x\n---\n").what.contains("`type` is missing"));
        let account = error("---\ntype: bug\naccount: 12345678901234567890123\n---\n");
        assert!(account.line == 3 && account.what.ends_with("put a number as long as this in quotes"));
        assert!(
            error("---\ntype: bug\ntitle: a: b\n---\n")
                .what
                .ends_with("put a value that has a colon in quotes")
        );
        assert!(error("---\ntitle: x\ntags:\n- a\n\ntext\n").what.contains("never closed"));
        assert!(error("---\ntags: [a]\n---\n<<<<<<< HEAD\n").what.contains("conflict"));
    }

    #[test]
    fn a_readme_of_a_domain_is_named_after_its_path() {
        let id = |path: &str| Document::parse("# Foo").unwrap().unit(path).unwrap().id;
        assert_eq!(id("domains/foo/README.md").as_str(), "domains/foo/README");
        assert_eq!(id("domains/foo/pools.md").as_str(), "pools");
    }

    #[test]
    fn a_composed_file_with_hostile_texts_reads_back() {
        for hostile in
            ["---", "a: b", "x\n---\ny", "- [ ] {}", "'\"", "!!python/object", "&a *a", "# no", "\u{0}"]
        {
            let document = Document::compose(
                &[("id", Value::from("x")), ("type", Value::from("bug")), ("title", Value::from(hostile))],
                hostile,
            );
            let again = Document::parse(document.as_str()).unwrap();
            assert_eq!(again, document);
            let unit = again.unit("x.md").unwrap();
            assert_eq!(unit.id.as_str(), "x");
            assert!(unit.title.contains(text::one_line(hostile, 200).as_str()) || hostile.trim().is_empty());
            assert_eq!(unit.body.trim(), hostile.trim());
        }
    }

    #[test]
    fn a_yaml_bomb_is_an_error() {
        let mut bomb = String::from("---\ntype: bug\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let previous = format!("*a{},", i - 1).repeat(9);
            let _ = writeln!(bomb, "a{i}: &a{i} [{}]", previous.trim_end_matches(','));
        }
        bomb.push_str("---\n");
        assert!(unit(&bomb).is_err());
        let deep = format!("---\ntype: bug\nx: {}{}\n---\n", "[".repeat(20_000), "]".repeat(20_000));
        assert!(unit(&deep).is_err());
        assert!(Document::parse(format!("---\n{}---\n", "k: v\n".repeat(100_000))).is_err());
    }
}
