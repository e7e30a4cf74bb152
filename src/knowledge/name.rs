//! Ids of units, domains and sessions, and the slugs that become file names.

use std::collections::HashMap;
use std::fmt;

use deunicode::deunicode_char;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// The longest slug, in bytes. Short enough for every file system and for a table in a terminal.
pub const SLUG_BYTES_MAX: usize = 64;

const MEMORY_PREFIX: &str = "memory-";

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the text unchanged, as a person wrote it.
            pub fn verbatim(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_newtype! {
    /// The id of a unit, unique within its brain. nugget writes slugs; ids that people wrote are kept as they are.
    UnitId
}

text_newtype! {
    /// The field of a unit, such as `coding`; the name of a folder below `domains/`.
    Domain
}

text_newtype! {
    /// The id of a session of Claude Code, in practice a UUID.
    SessionId
}

impl Domain {
    /// Makes a domain that is safe as a folder name from any text; `general` if nothing is left of it.
    pub fn sanitized(text: &str) -> Self {
        let slug = unreserved(tag(text));
        Self(if slug.is_empty() { "general".to_owned() } else { slug })
    }
}

impl UnitId {
    /// Makes an id from a title: its [`slug`] with letters of other scripts in Latin ones, or `unit` if nothing is left of it.
    pub fn from_title(title: &str) -> Self {
        let slug = unreserved(tag(title));
        Self(if slug.is_empty() { "unit".to_owned() } else { slug })
    }

    /// The id of a memory of the archive: `memory-12`.
    pub fn from_memory(number: i64) -> Self {
        Self(format!("{MEMORY_PREFIX}{number}"))
    }

    /// The number of the memory that an id names.
    pub fn memory_number(&self) -> Option<i64> {
        self.0.strip_prefix(MEMORY_PREFIX)?.parse().ok()
    }

    /// Adds a suffix, for an id that another unit already has.
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let room = SLUG_BYTES_MAX.saturating_sub(suffix.len() + 1);
        let stem = cut_at_hyphen(&self.0, room);
        Self(format!("{stem}-{suffix}"))
    }
}

impl SessionId {
    /// The first eight characters that are safe in a branch name.
    pub fn short(&self) -> String {
        let short: String = self
            .0
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(8)
            .collect::<String>()
            .to_ascii_lowercase();
        if short.is_empty() { "session".to_owned() } else { short }
    }
}

/// Turns any text into `[a-z0-9-]{0,64}`: accents are removed, other characters become hyphens, and a long text is cut
/// at a word.
///
/// The result is never the name of a Windows device, nor a name that a brain reserves.
pub fn slug(text: &str) -> String {
    unreserved(hyphenated(text))
}

/// As [`slug`], with letters of other scripts written in Latin ones; it may be a name that is reserved for files.
pub fn tag(text: &str) -> String {
    hyphenated(&latin(text))
}

/// A tag as it is written: in lower case, with the letters of its language, which Obsidian takes, and `_` and `/`. Other
/// characters become hyphens. Empty if no letter and no digit is left.
pub fn written_tag(text: &str) -> String {
    let mut tag = String::new();
    for c in text.nfc().flat_map(char::to_lowercase).take(4 * SLUG_BYTES_MAX) {
        let is_mark = unicode_normalization::char::is_combining_mark(c);
        if c.is_alphanumeric() || is_mark && !tag.is_empty() || matches!(c, '_' | '/') {
            tag.push(c);
        } else if !is_joined(c) && !tag.is_empty() && !tag.ends_with('-') {
            tag.push('-');
        }
    }
    let tag = cut_at_hyphen(tag.trim_matches(['-', '/']), SLUG_BYTES_MAX);
    if tag.contains(char::is_alphanumeric) { tag.to_owned() } else { String::new() }
}

/// A text with its accented letters in the composed form that people type: the names of files from a Mac may have the other
/// one, which looks the same.
pub fn nfc(text: &str) -> String {
    if text.is_ascii() { text.to_owned() } else { text.nfc().collect() }
}

/// The path of the file that has an id, of all that claim it: of one that waits for its review only if all do. Takes pairs of
/// id and path.
pub fn id_owners<'a>(
    claims: impl IntoIterator<Item = (&'a str, &'a str)>,
    is_pending: impl Fn(&str) -> bool,
) -> HashMap<&'a str, &'a str> {
    let mut owners: HashMap<&str, &str> = HashMap::new();
    let rank = |id, path| (is_pending(path), claim_rank(id, path));
    for (id, path) in claims {
        let owner = owners.entry(id).or_insert(path);
        if *owner != path && rank(id, path) < rank(id, *owner) {
            *owner = path;
        }
    }
    owners
}

/// Splits files into those that have the id that they claim, and the others, as pairs of the owner's path and the file.
pub fn split_owners<T>(
    files: Vec<T>,
    claim: impl Fn(&T) -> (&str, &str),
    is_pending: impl Fn(&str) -> bool,
) -> (Vec<T>, Vec<(String, T)>) {
    let owners = id_owners(files.iter().map(&claim), is_pending);
    let owner_of = |file: &T| {
        let (id, path) = claim(file);
        owners.get(id).filter(|owner| **owner != path).map(|owner| (*owner).to_owned())
    };
    let owner_paths: Vec<Option<String>> = files.iter().map(owner_of).collect();
    let (mut owning, mut others) = (Vec::new(), Vec::new());
    for (file, owner) in files.into_iter().zip(owner_paths) {
        match owner {
            None => owning.push(file),
            Some(owner) => others.push((owner, file)),
        }
    }
    (owning, others)
}

/// Of the files that claim an id, the one with the least rank has it: the one that is named by it, or else the first by
/// path.
pub fn claim_rank<'p>(id: &str, path: &'p str) -> (bool, &'p str) {
    (file_stem(path) != id, path)
}

fn unreserved(slug: String) -> String {
    if is_reserved(&slug) { format!("{slug}-unit") } else { slug }
}

/// A text with its letters in Latin ones, as far as an id has room for it: Größe is Grosse, 数据库 is Shu Ju Ku.
fn latin(text: &str) -> String {
    let mut latin = String::new();
    for c in text.chars().take(4 * SLUG_BYTES_MAX) {
        match deunicode_char(c).filter(|_| c.is_alphabetic() && !is_micro(c)) {
            Some(letters) => latin.push_str(letters),
            None => latin.push(c),
        }
    }
    latin
}

/// The sign of "micro", or the Greek letter that is written for it.
fn is_micro(c: char) -> bool {
    matches!(c, '\u{b5}' | '\u{3bc}')
}

fn hyphenated(text: &str) -> String {
    let mut slug = String::with_capacity(text.len().min(SLUG_BYTES_MAX));
    // The sign of "micro" is written with a u where there is no other: 9 µs is not 9 s.
    let followed = text.chars().zip(text.chars().skip(1).chain([' ']));
    let chars = followed.map(|(c, next)| match c {
        '\u{b5}' => 'u',
        '\u{3bc}' if next.is_ascii_alphabetic() => 'u',
        c => c,
    });
    for c in chars.nfkd() {
        if slug.len() > 4 * SLUG_BYTES_MAX {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if is_joined(c) {
            // An apostrophe or a combining accent is dropped: "don't" is one word.
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    cut_at_hyphen(slug.trim_end_matches('-'), SLUG_BYTES_MAX).to_owned()
}

/// The name of the last folder of a path, which may come from another operating system. A worktree below `.worktrees` or
/// `.claude/worktrees` has the name of its repository's folder.
pub fn folder_name(path: &str) -> Option<&str> {
    let of_repository = |mark: &str| path.split_once(mark).map(|(repository, _)| repository);
    let path = of_repository("/.worktrees/").or_else(|| of_repository("/.claude/worktrees/")).unwrap_or(path);
    // On Unix a backslash may be part of a name.
    let is_windows = path.starts_with("\\\\") || path.as_bytes().get(1) == Some(&b':');
    path.rsplit(|c| c == '/' || (is_windows && c == '\\')).find(|part| !part.is_empty())
}

/// The address of a repository in a form that all protocols share, `host/owner/name`: without protocol, user, who may be a
/// token, port and `.git`. `None` for a path.
pub fn repository_address(url: &str) -> Option<String> {
    let url = url.trim();
    let (is_url, rest) = url.split_once("://").map_or((false, url), |(_, rest)| (true, rest));
    let (host, path) = if is_url { rest.split_once('/')? } else { rest.split_once([':', '/'])? };
    let host = host.rsplit('@').next()?;
    let host = if is_url { host.split(':').next()? } else { host };
    let path = path.trim_matches('/').trim_end_matches(".git");
    let is_address = !host.trim_matches('.').is_empty() && !path.is_empty();
    is_address.then(|| format!("{}/{path}", host.to_lowercase()))
}

/// The name of a markdown file without its ending: `worker-pools` for `domains/coding/patterns/worker-pools.md`.
pub fn file_stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".md").unwrap_or(name)
}

fn is_joined(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '`') || unicode_normalization::char::is_combining_mark(c)
}

fn cut_at_hyphen(slug: &str, bytes_max: usize) -> &str {
    if slug.len() <= bytes_max {
        return slug;
    }
    // An id that a person wrote may have any characters.
    let end = slug.floor_char_boundary(bytes_max);
    let head = &slug[..end];
    let whole_word = slug.as_bytes()[end] == b'-';
    let cut = match head.rfind('-') {
        _ if whole_word => head,
        Some(at) if at > 0 => &head[..at],
        _ => head,
    };
    cut.trim_end_matches('-')
}

fn is_reserved(slug: &str) -> bool {
    let numbered_device = |prefix: &str| {
        slug.strip_prefix(prefix).is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
    };
    matches!(slug, "con" | "prn" | "aux" | "nul" | "index" | "log" | "readme")
        || numbered_device("com")
        || numbered_device("lpt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_keeps_only_words() {
        let check = |text: &str, expected: &str| assert_eq!(slug(text), expected, "{text:?}");
        check("Bounded worker pools in Go", "bounded-worker-pools-in-go");
        check("  Don't   panic!! ", "dont-panic");
        check("Éclair über naïve", "eclair-uber-naive");
        check("../../etc/passwd", "etc-passwd");
        check("a\0b\u{202e}c", "a-b-c");
        check("日本語", "");
        check("", "");
        check("NUL", "nul-unit");
        check("com1", "com1-unit");
        check("index", "index-unit");
        assert_eq!(tag("Index"), "index");
        check("The lock takes 9 \u{b5}s", "the-lock-takes-9-us");
        check("The lock takes 9 \u{3bc}s", "the-lock-takes-9-us");
    }

    #[test]
    fn an_id_is_in_latin_letters_whatever_the_script() {
        let check =
            |title: &str, expected: &str| assert_eq!(UnitId::from_title(title).as_str(), expected, "{title}");
        check("Größe der Øvelse", "grosse-der-ovelse");
        check("Не используй Docker", "ne-ispolzui-docker");
        check("数据库连接池", "shu-ju-ku-lian-jie-chi");
        check("The lock takes 9 \u{b5}s", "the-lock-takes-9-us");
        check("The lock takes 9 \u{3bc}s", "the-lock-takes-9-us");
        check("🦀 → ∞", "unit");
        assert_eq!(tag("Индекс"), "indeks");
        assert_eq!(Domain::sanitized("базы").as_str(), "bazy");
    }

    #[test]
    fn a_tag_keeps_the_letters_of_its_language() {
        let check = |text: &str, expected: &str| assert_eq!(written_tag(text), expected, "{text}");
        check("Größe", "größe");
        check("Gro\u{308}ße", "größe");
        check("請求", "請求");
        check("हिन्दी", "हिन्दी");
        check("#Web Shop!", "web-shop");
        check("Don't", "dont");
        check("area/net_work", "area/net_work");
        check("🚀", "");
        check("_/-", "");
        assert!(written_tag(&"ö".repeat(80)).len() <= SLUG_BYTES_MAX);
    }

    #[test]
    fn the_file_that_is_named_by_an_id_has_it() {
        let claims = [("a", "d/a 1.md"), ("a", "d/a.md"), ("b", "d/y.md"), ("b", "d/x.md")];
        let owners = id_owners(claims, |_| false);
        assert_eq!((owners["a"], owners["b"]), ("d/a.md", "d/x.md"));
        let owners = id_owners(claims, |path| path != "d/a 1.md");
        assert_eq!((owners["a"], owners["b"]), ("d/a 1.md", "d/x.md"));
    }

    #[test]
    fn a_folder_is_named_as_on_its_own_system() {
        let check = |path: &str, name: Option<&str>| assert_eq!(folder_name(path), name, "{path}");
        check("/home/dev/shop", Some("shop"));
        check("/home/dev/shop/", Some("shop"));
        check(r"/home/dev/a\b", Some(r"a\b"));
        check(r"C:\Users\dev\shop", Some("shop"));
        check(r"C:\Users\dev\shop\", Some("shop"));
        check(r"\\server\share\shop", Some("shop"));
        check("C:/Users/dev/shop", Some("shop"));
        check("/home/dev/shop/.worktrees/me/new-cart", Some("shop"));
        check("/home/dev/shop/.claude/worktrees/3", Some("shop"));
        check("/home/dev/worktrees/shop", Some("shop"));
        check("/", None);
        check("", None);
    }

    #[test]
    fn a_long_slug_is_cut_at_a_word() {
        let slug = slug(&"word ".repeat(40));
        assert!(slug.len() <= SLUG_BYTES_MAX, "{slug}");
        assert!(slug.ends_with("word"), "{slug}");
        assert_eq!(super::slug(&"x".repeat(200)).len(), SLUG_BYTES_MAX);
    }

    #[test]
    fn an_id_with_a_suffix_keeps_the_length_limit() {
        let id = UnitId::from_title(&"long title ".repeat(20)).with_suffix("3f9a");
        assert!(id.as_str().len() <= SLUG_BYTES_MAX && id.as_str().ends_with("-3f9a"), "{id}");
        let id = UnitId::verbatim("größe".repeat(20)).with_suffix("3f9a");
        assert!(id.as_str().len() <= SLUG_BYTES_MAX && id.as_str().ends_with("-3f9a"), "{id}");
        assert_eq!(
            UnitId::verbatim("ö".repeat(40)).with_suffix("3f9a").as_str(),
            format!("{}-3f9a", "ö".repeat(29))
        );
    }

    #[test]
    fn the_id_of_a_memory_has_its_number() {
        assert_eq!(UnitId::from_memory(12).as_str(), "memory-12");
        assert_eq!(UnitId::verbatim("memory-12").memory_number(), Some(12));
        assert_eq!(UnitId::verbatim("memory-hierarchies").memory_number(), None);
    }

    #[test]
    fn every_session_has_a_short_name() {
        assert_eq!(SessionId::verbatim("9F8B-c0de-1234").short(), "9f8bc0de");
        assert_eq!(SessionId::verbatim("../..").short(), "session");
    }
}
