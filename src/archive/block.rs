//! Texts of several messages, compressed together.

use zlib_rs::{DeflateConfig, InflateConfig, ReturnCode, compress_bound, compress_slice, decompress_slice};

use crate::record::{Message, Part, Placed};

/// From this length on a block is closed. Longer blocks are smaller in the end by a few percent, but a search that
/// shows ten messages unpacks ten blocks: at this length in a few milliseconds.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Between the fastest levels and the default one: a tenth larger than that, three times as fast.
const LEVEL: i32 = 3;

/// A closed block, or one that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) text: String,
    pub(crate) messages: Vec<Placed>,
    /// The text, compressed; empty until the block is closed.
    pub(crate) packed: Vec<u8>,
}

impl Block {
    /// Adds a message, whose texts move into the block.
    pub(crate) fn push(&mut self, mut message: Message) {
        let content = self.place(&std::mem::take(&mut message.content));
        let thinking = self.place(&std::mem::take(&mut message.thinking));
        let inputs: Vec<Part> =
            message.tool_uses.iter_mut().map(|tool| self.place(&std::mem::take(&mut tool.input))).collect();
        let outputs: Vec<Part> = message
            .tool_results
            .iter_mut()
            .map(|result| self.place(&std::mem::take(&mut result.output)))
            .collect();
        self.messages.push(Placed { message, content, thinking, inputs, outputs });
    }

    fn place(&mut self, text: &str) -> Part {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        start..self.text.len() as u32
    }

    pub(crate) fn part(&self, part: &Part) -> &str {
        &self.text[part.start as usize..part.end as usize]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.text.len() >= BLOCK_BYTES
    }

    pub(crate) fn close(&mut self) {
        self.packed = pack(&self.text);
    }

    /// A closed block with only the messages that are kept.
    pub(crate) fn retain(self, keep: &[bool]) -> Self {
        let mut kept = Self::default();
        for (placed, _) in self.messages.into_iter().zip(keep).filter(|(_, keep)| **keep) {
            let mut place = |part: &Part| kept.place(&self.text[part.start as usize..part.end as usize]);
            let (content, thinking) = (place(&placed.content), place(&placed.thinking));
            let inputs = placed.inputs.iter().map(&mut place).collect();
            let outputs = placed.outputs.iter().map(&mut place).collect();
            kept.messages.push(Placed { content, thinking, inputs, outputs, message: placed.message });
        }
        kept.close();
        kept
    }
}

/// Compresses a text.
pub(crate) fn pack(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut packed = vec![0; compress_bound(text.len())];
    let (written, code) = compress_slice(&mut packed, text.as_bytes(), DeflateConfig::new(LEVEL));
    debug_assert_eq!(code, ReturnCode::Ok, "the buffer has room for the worst case");
    let length = written.len();
    packed.truncate(length);
    packed
}

/// The text of this length; `None` if the bytes are not what [`pack`] made of it.
pub(crate) fn unpack(packed: &[u8], length: usize) -> Option<String> {
    if length == 0 {
        return Some(String::new());
    }
    let mut text = vec![0; length];
    let (written, code) = decompress_slice(&mut text, packed, InflateConfig::default());
    (code == ReturnCode::Ok && written.len() == length).then(|| String::from_utf8(text).ok()).flatten()
}
