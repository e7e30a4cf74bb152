//! Reads the new lines of one transcript, in bounded pieces that each end at the end of a line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use memchr::{memchr, memrchr};
use transcript::{FileStamp, LINE_BYTES_MAX, is_whole};

use crate::block::Block;
use crate::record::{Request, SessionFacts};
use crate::source::{LineRead, LineReader};

/// How much of a file one piece holds, unless a line is longer.
const PIECE_BYTES: usize = 2 << 20;
/// How much of the beginning and of the end of what was read tells whether a file was rewritten. A client only appends;
/// a whole rewrite changes one of the two, and comparing them costs two small reads whatever the size of the file. What was
/// changed between them without a change of the length is found only if nothing was appended since.
const EDGE_BYTES: usize = 16 << 10;
/// The most malformed lines of a piece that are named, and the most unknown types.
const MALFORMED_NAMED_MAX: usize = 20;
const UNKNOWN_MAX: usize = 100;

/// How far a file was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) digest: Vec<u8>,
    pub(crate) reader_state: String,
}

/// Some lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) blocks: Vec<Block>,
    pub(crate) changed_files: Vec<String>,
    pub(crate) requests: Vec<(Option<Timestamp>, Request)>,
    pub(crate) facts: SessionFacts,
    /// Where the next piece begins.
    pub(crate) end: Position,
    /// How many bytes of the file were read for it.
    pub(crate) bytes: u64,
    pub(crate) unknown: BTreeMap<String, u64>,
    pub(crate) malformed: Vec<(u64, &'static str)>,
    pub(crate) malformed_count: u64,
    /// Whether the file had no more complete lines when it was opened.
    pub(crate) is_last: bool,
}

/// The edges of the bytes that were read so far.
#[derive(Clone, Debug, Default)]
struct Edges {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Edges {
    /// Of the first `bytes` of a file; `None` if it is shorter.
    fn read(mut file: &File, bytes: u64) -> io::Result<Option<Self>> {
        let length = bytes.min(EDGE_BYTES as u64);
        let mut edges = Self { head: vec![0; length as usize], tail: vec![0; length as usize] };
        let mut read_at = |place, buffer: &mut [u8]| {
            file.seek(SeekFrom::Start(place)).and_then(|_| file.read_exact(buffer))
        };
        let read = read_at(0, &mut edges.head).and_then(|()| read_at(bytes - length, &mut edges.tail));
        match read {
            Ok(()) => Ok(Some(edges)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let missing = EDGE_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(EDGE_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(EDGE_BYTES));
    }

    fn digest(&self) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.head);
        hasher.update(&self.tail);
        hasher.finalize().as_bytes()[..16].to_vec()
    }
}

/// An open transcript.
pub(crate) struct Transcript {
    file: File,
    /// The file's stamp when it was opened: what is appended later is read the next time.
    pub(crate) stamp: FileStamp,
    start: Position,
    edges: Edges,
    /// Whether the lines before `known` have changed, so that the file is read again from its beginning.
    pub(crate) is_rewritten: bool,
}

impl Transcript {
    /// Opens a file that was read up to `known`.
    pub(crate) fn open(path: &Path, known: Option<&Position>) -> io::Result<Self> {
        // Checked before opening: opening a named pipe waits for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let stamp = FileStamp::from_metadata(path.to_owned(), &metadata);
        let known = known.filter(|known| known.bytes > 0);
        let mut opened = Self {
            file,
            stamp,
            start: Position::default(),
            edges: Edges::default(),
            is_rewritten: known.is_some(),
        };
        if let Some(known) = known
            && let Some(edges) = Edges::read(&opened.file, known.bytes)?
            && edges.digest() == known.digest
        {
            opened.is_rewritten = false;
            opened.edges = edges;
            opened.start = known.clone();
        }
        Ok(opened)
    }

    /// What a reader of its lines must know of those before.
    pub(crate) fn reader_state(&self) -> &str {
        &self.start.reader_state
    }

    /// Whether it is read from its beginning.
    pub(crate) fn is_at_beginning(&self) -> bool {
        self.start.bytes == 0
    }

    /// Reads to the last line feed, or to the end of a whole line without one, and hands over pieces until `take` declines one. The last one may be empty.
    pub(crate) fn read(
        self,
        reader: &mut dyn LineReader,
        take: &mut dyn FnMut(Piece) -> bool,
    ) -> io::Result<()> {
        let mut lines = Lines { reader, number: self.start.lines, facts: SessionFacts::default() };
        let mut edges = self.edges;
        let mut position = self.start;
        io::Seek::seek(&mut &self.file, io::SeekFrom::Start(position.bytes))?;
        let mut source = (&self.file).take(self.stamp.size.saturating_sub(position.bytes));
        let mut buffer: Vec<u8> = Vec::new();
        // Of a line that is longer than any that is read: how much of it is gone, with the edges up to there.
        let mut skipped: Option<(u64, Edges)> = None;
        let mut is_finished = false;
        loop {
            let before = buffer.len();
            source.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut buffer)?;
            if buffer.len() == before {
                break;
            }
            let mut piece = Piece::default();
            let mut from = 0;
            if let Some((gone, mut through)) = skipped.take() {
                let Some(end) = memchr(b'\n', &buffer) else {
                    through.extend(&buffer);
                    skipped = Some((gone + buffer.len() as u64, through));
                    buffer.clear();
                    continue;
                };
                from = end + 1;
                through.extend(&buffer[..from]);
                edges = through;
                position.bytes += gone + from as u64;
                piece.bytes += gone + from as u64;
                lines.number += 1;
                lines.malformed(&mut piece, "longer than 64 MiB");
            }
            let end = memrchr(b'\n', &buffer[from..]).map_or(from, |end| from + end + 1);
            lines.read(&buffer[from..end], &mut piece);
            edges.extend(&buffer[from..end]);
            position.bytes += (end - from) as u64;
            piece.bytes += (end - from) as u64;
            buffer.drain(..end);
            if buffer.len() > LINE_BYTES_MAX {
                let mut through = edges.clone();
                through.extend(&buffer);
                skipped = Some((buffer.len() as u64, through));
                buffer = Vec::new();
            }
            let is_last = source.limit() == 0;
            if is_last && is_whole(&buffer) {
                edges.extend(&buffer);
                position.bytes += buffer.len() as u64;
                piece.bytes += buffer.len() as u64;
                buffer.push(b'\n');
                lines.read(&buffer, &mut piece);
                // It is counted with its line feed, should that come.
                lines.number -= 1;
                buffer.clear();
            }
            if piece.bytes > 0 {
                position.lines = lines.number;
                piece.is_last = is_last;
                is_finished = piece.is_last;
                if !hand_over(&mut lines, &mut position, &edges, piece, take) {
                    return Ok(());
                }
            }
        }
        if !is_finished {
            let piece = Piece { is_last: true, ..Piece::default() };
            hand_over(&mut lines, &mut position, &edges, piece, take);
        }
        Ok(())
    }
}

fn hand_over(
    lines: &mut Lines<'_>,
    position: &mut Position,
    edges: &Edges,
    mut piece: Piece,
    take: &mut dyn FnMut(Piece) -> bool,
) -> bool {
    position.digest = edges.digest();
    position.reader_state = lines.reader.state();
    piece.blocks.iter_mut().for_each(Block::close);
    piece.facts = lines.facts.clone();
    piece.end = position.clone();
    take(piece)
}

struct Lines<'a> {
    reader: &'a mut dyn LineReader,
    /// Of the last line that was read.
    number: u64,
    facts: SessionFacts,
}

impl Lines<'_> {
    fn read(&mut self, complete: &[u8], piece: &mut Piece) {
        let mut rest = complete;
        while let Some(end) = memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            self.number += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match self.reader.read(line, &mut self.facts) {
                LineRead::Message(message) => {
                    if piece.blocks.last().is_none_or(Block::is_full) {
                        piece.blocks.push(Block::default());
                    }
                    if let Some(block) = piece.blocks.last_mut() {
                        block.push(*message);
                    }
                }
                LineRead::ChangedFiles(files) => {
                    for file in files {
                        if !piece.changed_files.contains(&file) {
                            piece.changed_files.push(file);
                        }
                    }
                }
                LineRead::Request { at, request } => piece.requests.push((at, *request)),
                LineRead::Skipped => {}
                LineRead::Unknown { kind } => {
                    let is_named = piece.unknown.len() < UNKNOWN_MAX || piece.unknown.contains_key(&kind);
                    *piece.unknown.entry(if is_named { kind } else { "other".to_owned() }).or_default() += 1;
                }
                LineRead::Malformed { reason } => self.malformed(piece, reason),
            }
        }
    }

    fn malformed(&self, piece: &mut Piece, reason: &'static str) {
        piece.malformed_count += 1;
        if piece.malformed.len() < MALFORMED_NAMED_MAX {
            piece.malformed.push((self.number, reason));
        }
    }
}
