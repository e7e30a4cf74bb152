//! Memories of earlier sessions as candidates. Nobody has reviewed them.
//!
//! A memory is scored by the same features and weights as a passage, packed and rendered by the same code. Three things
//! keep it below what a person has reviewed: its trust is below that of every unit found that is not retired, so that at
//! equal relevance the unit comes first; what the order of passages adds to each other is left to the passages; and the
//! features, ranks and floors of the units are computed without it, so that none of them moves.

use index::{ChunkRecord, ChunkRow, UnitRecord};
use jiff::Timestamp;
use knowledge::{CountTokens, Domain, UnitId, text};

/// The part of a memory's relevance that counts, of the least trusted unit's.
pub(crate) const TRUST: f64 = 0.9;

const TITLE_CHARS_MAX: usize = 100;
/// Neither more nor less trusted than one whose confidence is not known.
const CONFIDENCE: f64 = 0.5;

/// A memory of an earlier session that may bear on the question.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryCandidate {
    /// Its number in the archive.
    pub number: i64,
    /// One or two sentences.
    pub summary: String,
    /// The original words.
    pub dialogue: String,
    /// The session's id.
    pub session: String,
    /// When it was said.
    pub at: Timestamp,
    /// The cosine of its summary's vector with the question's; 0 if it is not known.
    pub cosine: f64,
}

impl MemoryCandidate {
    /// `memory-12`.
    pub fn id(&self) -> UnitId {
        UnitId::from_memory(self.number)
    }

    /// The memory in the form of a unit.
    pub(crate) fn unit(&self) -> UnitRecord {
        let session: String = self.session.chars().take(8).collect();
        UnitRecord {
            id: self.id(),
            path: String::new(),
            title: text::one_line(&self.summary, TITLE_CHARS_MAX),
            kind: "memory".into(),
            domain: Domain::verbatim("sessions".to_owned()),
            tags: Vec::new(),
            confidence: CONFIDENCE,
            source: format!("session {session}"),
            description: Some(self.summary.clone()),
            status: None,
            created: Some(self.at),
            last_modified: Some(self.at),
            reviewed_by: None,
        }
    }

    /// Its original words as a passage. Its row is negative, as no passage's of the index is.
    pub(crate) fn passage(&self, tokens: &dyn CountTokens) -> ChunkRecord {
        let id = self.id();
        ChunkRecord {
            row: ChunkRow(-self.number.max(1)),
            id: format!("{}#0", id.as_str()),
            unit: id,
            position: 0,
            level: 1,
            breadcrumb: text::one_line(&self.summary, TITLE_CHARS_MAX),
            tokens: tokens.count(&self.dialogue) as u32,
            text: self.dialogue.clone(),
        }
    }
}

/// Whether a passage is that of a memory.
pub(crate) fn is_memory(row: ChunkRow) -> bool {
    row.0 < 0
}
