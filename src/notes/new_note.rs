//! The file of a new note.

use jiff::Timestamp;
use knowledge::{Document, Domain, Scope, UnitId, UnitType, name, text};
use serde_yaml::Value;

use crate::error::Error;

pub(crate) const TITLE_CHARS_MAX: usize = 120;
/// The longest content, in bytes: about ten pages.
pub(crate) const CONTENT_BYTES_MAX: usize = 32 * 1024;
const TAGS_MAX: usize = 20;
const DOMAIN: &str = "general";

/// What is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNote {
    /// [`UnitType::Note`] or [`UnitType::Fact`].
    pub kind: UnitType,
    /// One line; the key of a fact.
    pub title: String,
    /// Markdown below the title; the value of a fact.
    pub content: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The folder below `domains/`; `general` if empty.
    pub domain: String,
    /// `human`, or `agent` for what a session wrote.
    pub source: String,
    /// What sort of note it is, such as `preference`.
    pub category: Option<String>,
    /// `temporary` or `durable`.
    pub stability: Option<String>,
    /// Where it bears; nothing for everywhere.
    pub scope: Vec<Scope>,
}

impl NewNote {
    /// A person's note.
    pub fn note(title: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            kind: UnitType::Note,
            title: title.into(),
            content: content.into(),
            tags: Vec::new(),
            domain: DOMAIN.to_owned(),
            source: "human".to_owned(),
            category: None,
            stability: None,
            scope: Vec::new(),
        }
    }

    /// A person's fact.
    pub fn fact(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { kind: UnitType::Fact, ..Self::note(key, value) }
    }

    /// Its path and its file. `content` has its links resolved.
    pub(crate) fn file(
        &self,
        id: &UnitId,
        content: &str,
        now: Timestamp,
    ) -> Result<(String, Document), Error> {
        let title = checked_title(&self.title)?;
        let domain = Domain::sanitized(if self.domain.is_empty() { DOMAIN } else { &self.domain });
        let mut front: Vec<(&str, Value)> = vec![
            ("id", id.as_str().into()),
            ("type", self.kind.as_str().into()),
            ("domain", domain.as_str().into()),
            ("title", title.as_str().into()),
        ];
        if id.as_str() != title {
            // Obsidian finds a file by its name and its aliases.
            front.push(("aliases", Value::Sequence(vec![title.as_str().into()])));
        }
        front.push(("tags", tags(&self.tags)?));
        front.push(("source", self.source.as_str().into()));
        let words = [("kind", &self.category), ("stability", &self.stability)];
        let words =
            words.into_iter().filter_map(|(key, word)| Some((key, text::one_line(word.as_deref()?, 60))));
        front.extend(words.filter(|(_, word)| !word.is_empty()).map(|(key, word)| (key, word.into())));
        if !self.scope.is_empty() {
            front.push(("scope", serde_yaml::to_value(&self.scope).unwrap_or_default()));
        }
        front.extend([("created", stamp(now)), ("last_modified", stamp(now))]);
        let content = checked_content(content, "")?;
        // The heading is there already.
        let below = content.strip_prefix(&format!("# {title}\n")).map(str::trim);
        let content = below.filter(|below| !below.is_empty()).unwrap_or(&content);
        let document = Document::compose(&front, &format!("\n# {title}\n\n{content}\n"));
        Ok((format!("domains/{domain}/{}/{id}.md", self.kind.folder()), document))
    }
}

/// A title in one line, with its accents as people type them.
pub(crate) fn checked_title(title: &str) -> Result<String, Error> {
    let title = text::one_line(&name::nfc(&text::strip_hidden(title)), TITLE_CHARS_MAX + 1);
    let too_long = || Error::TooMuch { what: "title", limit: format!("{TITLE_CHARS_MAX} characters") };
    match title.chars().count() {
        0 => Err(Error::Empty { what: "title" }),
        count if count > TITLE_CHARS_MAX => Err(too_long()),
        _ => Ok(title),
    }
}

/// The content of a note as it is written. `before` is the content that it had.
pub(crate) fn checked_content(content: &str, before: &str) -> Result<String, Error> {
    let content = text::strip_hidden_to_store(content, before);
    if let Some(line) = text::conflict_line(&content) {
        return Err(Error::ConflictMark { line });
    }
    let content = content.trim();
    if content.is_empty() {
        return Err(Error::Empty { what: "content" });
    }
    if content.len() > CONTENT_BYTES_MAX {
        return Err(Error::TooMuch { what: "content", limit: format!("{} KiB", CONTENT_BYTES_MAX / 1024) });
    }
    Ok(content.to_owned())
}

/// The tags of a file with others behind them, as far as it has not got those; `None` if it has.
pub(crate) fn with_tags(
    document: &Document,
    present: &[String],
    more: &[String],
) -> Result<Option<Value>, Error> {
    let Value::Sequence(mut more) = tags(more)? else { return Ok(None) };
    more.retain(|tag| !present.iter().any(|known| tag.as_str() == Some(&name::written_tag(known))));
    let written = match document.get("tags") {
        Some(Value::Sequence(written)) => written,
        _ => present.iter().map(|tag| tag.as_str().into()).collect(),
    };
    match written.len() + more.len() {
        _ if more.is_empty() => Ok(None),
        count if count > TAGS_MAX => {
            Err(Error::TooMuch { what: "number of tags", limit: TAGS_MAX.to_string() })
        }
        _ => Ok(Some(Value::Sequence(written.into_iter().chain(more).collect()))),
    }
}

pub(crate) fn tags(words: &[String]) -> Result<Value, Error> {
    let mut tags: Vec<String> = Vec::new();
    for word in words {
        let tag = name::written_tag(word);
        if tag.is_empty() {
            return Err(Error::NoTag { tag: word.clone() });
        }
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > TAGS_MAX {
        return Err(Error::TooMuch { what: "number of tags", limit: TAGS_MAX.to_string() });
    }
    Ok(Value::Sequence(tags.into_iter().map(Value::from).collect()))
}

pub(crate) fn stamp(time: Timestamp) -> Value {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}
