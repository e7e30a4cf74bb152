//! Walks a transcript's lines and accounts for every one of them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memchr;

use crate::conversation::{Conversation, LineCounts, ParsedTranscript};
use crate::discover::FileStamp;
use crate::ignore::Ignore;
use crate::line::{Found, Lines};

/// The longest line that is read, in bytes. Real ones reach a few megabytes, where a tool returned
/// an image; a longer one is counted as malformed and costs no memory.
pub const LINE_BYTES_MAX: usize = 64 << 20;
const CHUNK_BYTES: usize = 256 << 10;
/// The most kinds of line that are counted by name; the names come from the file.
const KINDS_MAX: usize = 200;

/// Why a transcript could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client announces transcripts that it never writes.
    #[error("there is no transcript at {path}")]
    Missing { path: PathBuf },
    #[error("{path} is not a file")]
    NotAFile { path: PathBuf },
    #[error("failed to read {path}")]
    Unreadable { path: PathBuf, source: io::Error },
}

/// Reads a transcript, as far as its last line feed, without the lines whose `uuid` is `known`.
///
/// The file may grow meanwhile: what is read ends where the file ended when it was opened. Memory
/// is bounded by what people typed plus a few dozen megabytes, whatever the size of the file.
///
/// # Errors
/// Only when the file cannot be read; whatever stands in it is no error.
pub fn read(path: &Path, known: &dyn Fn(&str) -> bool) -> Result<ParsedTranscript, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Missing { path: path.to_owned() },
        _ => Error::Unreadable { path: path.to_owned(), source },
    };
    // Asked before opening: to open a named pipe is to wait for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut reading = read_stream(file.take(metadata.len()), LINE_BYTES_MAX, &stem, known, &Ignore::load)
        .map_err(failed)?;
    reading.stamp = Some(FileStamp::from_metadata(real, &metadata));
    Ok(reading)
}

/// The end of a transcript alone, from the first line that begins within its last `bytes_max` bytes: for
/// whoever has no time for the whole.
///
/// # Errors
/// Those of [`read`].
pub fn read_tail(path: &Path, bytes_max: u64) -> Result<ParsedTranscript, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Missing { path: path.to_owned() },
        _ => Error::Unreadable { path: path.to_owned(), source },
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let mut file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let start = size.saturating_sub(bytes_max);
    let mut tail = Vec::new();
    // With the byte before, so that a line which begins just there is whole.
    io::Seek::seek(&mut file, io::SeekFrom::Start(start.saturating_sub(1))).map_err(failed)?;
    file.take(size - start + 1).read_to_end(&mut tail).map_err(failed)?;
    let whole = match start {
        0 => &tail[..],
        _ => memchr(b'\n', &tail).map_or(&[][..], |at| &tail[at + 1..]),
    };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    read_stream(whole, LINE_BYTES_MAX, &stem, &|_| false, &Ignore::load).map_err(failed)
}

/// The same for any stream; `session_id` is for when no line tells it.
pub(crate) fn read_stream(
    source: impl Read,
    line_bytes_max: usize,
    session_id: &str,
    known: &dyn Fn(&str) -> bool,
    ignore: &dyn Fn(&Path) -> Ignore,
) -> io::Result<ParsedTranscript> {
    let mut tally = LineCounts::default();
    let mut lines = Lines::default();
    let mut conversation = Conversation::default();
    let mut taken = Vec::new();
    let mut seen = HashSet::new();
    let malformed = |tally: &mut LineCounts, reason: &str| {
        tally.malformed += 1;
        *tally.malformed_reasons.entry(reason.to_owned()).or_default() += 1;
    };
    let extent = for_each_line(source, line_bytes_max, |bytes| {
        tally.lines += 1;
        let Some(bytes) = bytes else {
            return malformed(&mut tally, &format!("longer than {} MiB", line_bytes_max >> 20));
        };
        let mut is_known = |uuid: &str| known(uuid) || !seen.insert(uuid.to_owned());
        match lines.take(bytes, &mut is_known, ignore, &mut conversation) {
            Found::Conversation { uuid } => {
                tally.conversation += 1;
                taken.push(uuid);
            }
            Found::Own => tally.own += 1,
            Found::Known => tally.known += 1,
            Found::Malformed { reason } => malformed(&mut tally, reason),
            Found::Skipped { kind } => {
                let kinds = &mut tally.skipped_kinds;
                let named = kinds.len() < KINDS_MAX || kinds.contains_key(&kind);
                *kinds.entry(if named { kind } else { "other".to_owned() }).or_default() += 1;
            }
        }
    })?;
    tally.bytes = extent.bytes;
    tally.partial_tail_bytes = extent.tail_bytes;
    if conversation.session_id.is_empty() {
        session_id.clone_into(&mut conversation.session_id);
    }
    let is_ignored = lines.is_ignored();
    if is_ignored {
        conversation = Conversation { session_id: conversation.session_id, ..Conversation::default() };
        taken.clear();
    }
    Ok(ParsedTranscript { conversation, tally, lines: taken, stamp: None, is_ignored })
}

struct Extent {
    bytes: u64,
    tail_bytes: u64,
}

/// Calls `visit` with each line that ends, without its line feed; with `None` for one that is
/// longer than `bytes_max`, of which nothing is kept.
fn for_each_line(
    mut source: impl Read,
    bytes_max: usize,
    mut visit: impl FnMut(Option<&[u8]>),
) -> io::Result<Extent> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut begun: Vec<u8> = Vec::new();
    let mut begun_bytes = 0_usize;
    let mut bytes = 0_u64;
    loop {
        let count = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes += count as u64;
        let mut rest = &chunk[..count];
        while let Some(at) = memchr(b'\n', rest) {
            let head = &rest[..at];
            rest = &rest[at + 1..];
            if begun_bytes + head.len() > bytes_max {
                visit(None);
            } else if begun_bytes == 0 {
                visit(Some(head));
            } else {
                begun.extend_from_slice(head);
                visit(Some(&begun));
            }
            begun_bytes = 0;
            begun.clear();
            begun.shrink_to(4 * CHUNK_BYTES);
        }
        begun_bytes += rest.len();
        if begun_bytes <= bytes_max {
            begun.extend_from_slice(rest);
        } else {
            begun = Vec::new();
        }
    }
    Ok(Extent { bytes, tail_bytes: begun_bytes as u64 })
}
