//! A capture as a laptop hands it over: the wire format, which the server reads with the same type.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the format that this crate writes.
pub const FORMAT: u32 = 1;
/// Separates capture keys from other digests (BLAKE3's key derivation, section 2.3 of its paper).
const KEY_CONTEXT: &str = "nugget 2026-11-23 capture key v1";
const SESSION_BYTES_MAX: usize = 200;
const LINE_BYTES_MAX: usize = 100;
const LINES_MAX: usize = 200_000;
const TEXT_BYTES_MAX: usize = 2_000;

/// Identifies a capture wherever it is handed over: the same session and lines are the same capture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureKey(pub [u8; 32]);

impl CaptureKey {
    /// The key of a session's lines, in their order: BLAKE3 of the session id and each line's uuid, each ended by a
    /// zero byte, which no id contains.
    pub fn from_lines(session: &str, lines: &[String]) -> Self {
        let mut digest = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        for part in std::iter::once(session).chain(lines.iter().map(String::as_str)) {
            digest.update(part.as_bytes()).update(&[0]);
        }
        Self(*digest.finalize().as_bytes())
    }

    /// Reads 64 hex digits, of either case.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self(*blake3::Hash::from_hex(text).ok()?.as_bytes()))
    }
}

/// 64 lower-case hex digits.
impl fmt::Display for CaptureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for CaptureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One capture: what the intake of a session left, to be extracted on the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capture {
    /// The version of this format: [`FORMAT`].
    pub format: u32,
    /// The brain's slug. Without it the token must have exactly one brain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brain: Option<String>,
    /// The id of the session.
    pub session: String,
    /// The project: a folder or a repository's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Where the session ran, such as a host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Why the session ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// When the session ended.
    pub ended: Timestamp,
    /// The uuids of the transcript's lines, in their order.
    pub lines: Vec<String>,
    /// What the intake stored: JSON as it is, or any bytes as a base64 string.
    pub intake: Box<RawValue>,
    /// BLAKE3 of the intake's bytes, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// Why a capture cannot be accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureFault {
    /// The format is not one that is known here.
    #[error("the format is {0}, and only {FORMAT} is known")]
    Format(u32),
    /// A field is empty, too long, or has characters that it cannot have.
    #[error("`{0}` is empty, too long, or has characters that it cannot have")]
    Field(&'static str),
    /// The base64 of the intake cannot be read.
    #[error("`intake` is a string, but no base64")]
    Base64,
    /// The intake is not what was sent.
    #[error("`blake3` is not the digest of `intake`")]
    Digest,
}

impl Capture {
    /// A capture of intake bytes. JSON goes as it is, anything else as base64.
    pub fn new(session: impl Into<String>, ended: Timestamp, lines: Vec<String>, intake: &[u8]) -> Self {
        let blake3 = Some(blake3::hash(intake).to_hex().to_string());
        let intake = raw_json(intake).unwrap_or_else(|| base64_json(intake));
        let session = session.into();
        let (brain, project, origin, end_reason) = (None, None, None, None);
        Self { format: FORMAT, brain, session, project, origin, end_reason, ended, lines, intake, blake3 }
    }

    /// The key under which it is handed over.
    pub fn key(&self) -> CaptureKey {
        CaptureKey::from_lines(&self.session, &self.lines)
    }

    /// Checks the fields and the digest, and returns the intake's bytes. They are opaque: nothing is known of what is
    /// inside.
    ///
    /// # Errors
    /// The first [`CaptureFault`].
    pub fn checked_intake(&self) -> Result<Vec<u8>, CaptureFault> {
        if self.format != FORMAT {
            return Err(CaptureFault::Format(self.format));
        }
        let is_id = |text: &str, bytes_max: usize| {
            !text.is_empty() && text.len() <= bytes_max && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !is_id(&self.session, SESSION_BYTES_MAX) {
            return Err(CaptureFault::Field("session"));
        }
        if self.lines.len() > LINES_MAX || !self.lines.iter().all(|line| is_id(line, LINE_BYTES_MAX)) {
            return Err(CaptureFault::Field("lines"));
        }
        let is_text = |text: &Option<String>| {
            let text = text.as_deref().unwrap_or("-");
            !text.is_empty() && text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control)
        };
        let texts = [("project", &self.project), ("origin", &self.origin), ("end_reason", &self.end_reason)];
        if let Some((name, _)) = texts.into_iter().find(|(_, text)| !is_text(text)) {
            return Err(CaptureFault::Field(name));
        }
        let intake = self.intake_bytes()?;
        let is_intact =
            |hex: &String| blake3::Hash::from_hex(hex).is_ok_and(|hash| hash == blake3::hash(&intake));
        if !self.blake3.as_ref().is_none_or(is_intact) {
            return Err(CaptureFault::Digest);
        }
        Ok(intake)
    }

    fn intake_bytes(&self) -> Result<Vec<u8>, CaptureFault> {
        let json = self.intake.get();
        if !json.starts_with('"') {
            return Ok(json.as_bytes().to_vec());
        }
        let text: String = serde_json::from_str(json).map_err(|_| CaptureFault::Base64)?;
        STANDARD.decode(text).map_err(|_| CaptureFault::Base64)
    }
}

/// The bytes as JSON, if they are an object or a list and would arrive as they are.
fn raw_json(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.starts_with(['{', '[']))?;
    RawValue::from_string(text.to_owned()).ok().filter(|raw| raw.get() == text)
}

fn base64_json(bytes: &[u8]) -> Box<RawValue> {
    // Base64 has nothing that JSON escapes.
    let json = format!("\"{}\"", STANDARD.encode(bytes));
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(intake: &[u8]) -> Capture {
        Capture::new("s", Timestamp::UNIX_EPOCH, vec!["l1".into(), "l2".into()], intake)
    }

    #[test]
    fn every_intake_arrives_as_it_was() {
        for intake in [&b"{\"a\": 1 }"[..], b"{} ", b"\"text\"", b"", b"\xff\x00", b"null", b"[1,\n2]"] {
            let sent = serde_json::to_vec(&capture(intake)).unwrap();
            let received: Capture = serde_json::from_slice(&sent).unwrap();
            assert_eq!(received.checked_intake().unwrap(), intake);
        }
    }

    #[test]
    fn a_key_depends_on_the_session_and_each_line_in_order() {
        let key = |session: &str, lines: &[&str]| {
            CaptureKey::from_lines(session, &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
        };
        let keys = [
            key("s", &["a", "b"]),
            key("s", &["b", "a"]),
            key("s", &["ab"]),
            key("sa", &["b"]),
            key("s", &[]),
        ];
        for (i, one) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|other| other != one));
            assert_eq!(CaptureKey::parse(&one.to_string()), Some(*one));
        }
        assert_eq!(CaptureKey::parse("zz"), None);
    }

    #[test]
    fn a_faulty_capture_is_refused() {
        let fault = |change: fn(&mut Capture)| {
            let mut faulty = capture(b"{}");
            change(&mut faulty);
            faulty.checked_intake().unwrap_err()
        };
        assert_eq!(fault(|c| c.format = 2), CaptureFault::Format(2));
        assert_eq!(fault(|c| c.session.clear()), CaptureFault::Field("session"));
        assert_eq!(fault(|c| c.lines.push("a b".into())), CaptureFault::Field("lines"));
        assert_eq!(fault(|c| c.project = Some("a\0".into())), CaptureFault::Field("project"));
        assert_eq!(fault(|c| c.blake3 = Some("00".into())), CaptureFault::Digest);
        assert_eq!(
            fault(|c| c.intake = RawValue::from_string("\"?\"".into()).unwrap()),
            CaptureFault::Base64
        );
    }
}
