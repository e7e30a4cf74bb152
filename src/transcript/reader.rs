//! Reads a transcript line by line and counts what became of each line.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memchr;

use crate::conversation::{Conversation, LineCounts, ParsedTranscript};
use crate::discover::{FileStamp, LINE_BYTES_MAX};
use crate::ignore::Ignore;
use crate::line::{LineOutcome, LineReader};

const CHUNK_BYTES: usize = 256 << 10;
/// The most kinds of lines that are counted by name; the names come from the file.
const KINDS_MAX: usize = 200;

/// Why a transcript could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file. The client announces transcripts that it never writes.
    #[error("there is no transcript at {path}")]
    Missing {
        /// The transcript.
        path: PathBuf,
    },
    /// It is a folder, a pipe or the like.
    #[error("{path} is not a file")]
    NotAFile {
        /// The transcript.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("failed to read {path}")]
    Unreadable {
        /// The transcript.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
}

impl Error {
    fn from_io(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing { path: path.to_owned() },
            _ => Self::Unreadable { path: path.to_owned(), source },
        }
    }
}

/// Reads a transcript up to its last line feed, without the lines whose `uuid` is `known`.
///
/// The file may grow in the meantime: reading stops where the file ended when it was opened. Memory is
/// bounded by what people typed plus a few dozen megabytes, whatever the size of the file.
///
/// # Errors
/// When the file cannot be read; its content never causes an error.
pub fn read(path: &Path, known: &dyn Fn(&str) -> bool) -> Result<ParsedTranscript, Error> {
    let (file, metadata) = open(path)?;
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut parsed =
        read_stream(file.take(metadata.len()), LINE_BYTES_MAX, &stem(path), known, &Ignore::load)
            .map_err(|error| Error::from_io(path, error))?;
    parsed.stamp = Some(FileStamp::from_metadata(canonical, &metadata));
    Ok(parsed)
}

/// Reads only the end of a transcript, from the first line that begins within its last `bytes_max` bytes.
///
/// # Errors
/// Those of [`read`].
pub fn read_tail(path: &Path, bytes_max: u64) -> Result<ParsedTranscript, Error> {
    let (mut file, metadata) = open(path)?;
    let start = metadata.len().saturating_sub(bytes_max);
    let mut read_tail = || {
        let mut tail = Vec::new();
        // With the byte before, so that a line that begins exactly there is complete.
        io::Seek::seek(&mut file, io::SeekFrom::Start(start.saturating_sub(1)))?;
        io::Read::by_ref(&mut file).take(metadata.len() - start + 1).read_to_end(&mut tail)?;
        let complete = match start {
            0 => &tail[..],
            _ => memchr(b'\n', &tail).map_or(&[][..], |at| &tail[at + 1..]),
        };
        read_stream(complete, LINE_BYTES_MAX, &stem(path), &|_| false, &Ignore::load)
    };
    read_tail().map_err(|error| Error::from_io(path, error))
}

fn open(path: &Path) -> Result<(File, Metadata), Error> {
    // Checked before opening: opening a named pipe waits for its writer.
    if !fs::metadata(path).map_err(|error| Error::from_io(path, error))?.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(|error| Error::from_io(path, error))?;
    let metadata = file.metadata().map_err(|error| Error::from_io(path, error))?;
    Ok((file, metadata))
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Reads a stream. `session_id` is used if no line has one.
pub(crate) fn read_stream(
    source: impl Read,
    line_bytes_max: usize,
    session_id: &str,
    known: &dyn Fn(&str) -> bool,
    ignore: &dyn Fn(&Path) -> Ignore,
) -> io::Result<ParsedTranscript> {
    let mut counts = LineCounts::default();
    let mut lines = LineReader::default();
    let mut conversation = Conversation::default();
    let mut taken = Vec::new();
    let mut seen = HashSet::new();
    let malformed = |counts: &mut LineCounts, reason: &str| {
        counts.malformed += 1;
        *counts.malformed_reasons.entry(reason.to_owned()).or_default() += 1;
    };
    let extent = for_each_line_up_to(source, line_bytes_max, |bytes| {
        counts.lines += 1;
        let Some(bytes) = bytes else {
            return malformed(&mut counts, &format!("longer than {} MiB", line_bytes_max >> 20));
        };
        let mut is_known = |uuid: &str| known(uuid) || !seen.insert(uuid.to_owned());
        match lines.take(bytes, &mut is_known, ignore, &mut conversation) {
            LineOutcome::Conversation { uuid } => {
                counts.conversation += 1;
                taken.push(uuid);
            }
            LineOutcome::Own => counts.own += 1,
            LineOutcome::Known => counts.known += 1,
            LineOutcome::Malformed { reason } => malformed(&mut counts, reason),
            LineOutcome::Skipped { kind } => {
                let kinds = &mut counts.skipped_kinds;
                let is_named = kinds.len() < KINDS_MAX || kinds.contains_key(&kind);
                *kinds.entry(if is_named { kind } else { "other".to_owned() }).or_default() += 1;
            }
        }
    })?;
    counts.bytes = extent.bytes;
    counts.partial_tail_bytes = extent.tail_bytes;
    if conversation.session_id.is_empty() {
        session_id.clone_into(&mut conversation.session_id);
    }
    let is_ignored = lines.is_ignored();
    if is_ignored {
        conversation = Conversation { session_id: conversation.session_id, ..Conversation::default() };
        taken.clear();
    }
    Ok(ParsedTranscript { conversation, counts, lines: taken, stamp: None, is_ignored })
}

/// How much was read.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// In all.
    pub bytes: u64,
    /// Of a last line that was not written to its end.
    pub tail_bytes: u64,
}

/// Calls `visit` with each complete line, without its line feed, which the last one need not have. One longer than
/// [`LINE_BYTES_MAX`] is `None`, and nothing of it is kept.
///
/// # Errors
/// When the source cannot be read.
pub fn for_each_line(source: impl Read, visit: impl FnMut(Option<&[u8]>)) -> io::Result<Extent> {
    for_each_line_up_to(source, LINE_BYTES_MAX, visit)
}

fn for_each_line_up_to(
    mut source: impl Read,
    bytes_max: usize,
    mut visit: impl FnMut(Option<&[u8]>),
) -> io::Result<Extent> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut partial: Vec<u8> = Vec::new();
    let mut partial_bytes = 0_usize;
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
            if partial_bytes + head.len() > bytes_max {
                visit(None);
            } else if partial_bytes == 0 {
                visit(Some(head));
            } else {
                partial.extend_from_slice(head);
                visit(Some(&partial));
            }
            partial_bytes = 0;
            partial.clear();
            partial.shrink_to(4 * CHUNK_BYTES);
        }
        partial_bytes += rest.len();
        if partial_bytes <= bytes_max {
            partial.extend_from_slice(rest);
        } else {
            partial = Vec::new();
        }
    }
    if partial_bytes <= bytes_max && is_whole(&partial) {
        visit(Some(&partial));
        partial_bytes = 0;
    }
    Ok(Extent { bytes, tail_bytes: partial_bytes as u64 })
}

/// Whether a last line without a line feed is whole, as in a copied file: no beginning of a JSON object is one.
pub fn is_whole(line: &[u8]) -> bool {
    line.first() == Some(&b'{') && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}
