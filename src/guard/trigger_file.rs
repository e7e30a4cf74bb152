//! A copy of an index's triggers, in which a hook looks up an action in microseconds, without a database.
//!
//! It never lacks a trigger that the index has; it may have some that the index has no longer. So an action that none of
//! them matches is one that no unit bears on.
//!
//! After eight bytes of [`MAGIC`] and the length of the file come the number of triggers, how many of them are stored under
//! other keys than those of removed folders, a row of 16 bytes for each, sorted, with the digest of its key, its place and
//! its length, and then the triggers as JSON. Numbers are little endian. The rows of removed folders are the last ones, and
//! read only if an action removes one.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::action::BELOW;
use crate::{Action, Trigger};

/// The file's name in the folder of the index.
pub const TRIGGER_FILE: &str = "triggers";
/// With the version of the layout.
const MAGIC: &[u8; 8] = b"nugtrig2";
const HEADER: usize = 20;
const ROW: usize = 16;
/// The lowest digest of a key of a removed folder.
const OF_REMOVED: u64 = 1 << 63;

/// The content of the file, of triggers as JSON with their keys. `None` if it would be too long for its numbers.
pub fn encode_triggers(triggers: &[(String, String)]) -> Option<Vec<u8>> {
    let mut triggers: Vec<(u64, &str)> =
        triggers.iter().map(|(key, trigger)| (digest(key), trigger.as_str())).collect();
    triggers.sort_unstable();
    triggers.dedup();
    let texts: usize = triggers.iter().map(|(_, text)| text.len()).sum();
    let length = HEADER + ROW * triggers.len() + texts;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
    let others = triggers.partition_point(|(digest, _)| *digest < OF_REMOVED);
    for count in [triggers.len(), others] {
        bytes.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    }
    let mut place = HEADER + ROW * triggers.len();
    for (digest, text) in &triggers {
        bytes.extend_from_slice(&digest.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(place).ok()?.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        place += text.len();
    }
    triggers.iter().for_each(|(_, text)| bytes.extend_from_slice(text.as_bytes()));
    Some(bytes)
}

/// Whether a unit may bear on an action, by the file in the folder of an index. The repository of a trigger is not compared.
///
/// # Errors
/// If there is no such file, or it cannot be read or is damaged: then only the index knows.
pub fn may_bear(folder: &Path, action: &Action) -> io::Result<bool> {
    let mut file = File::open(folder.join(TRIGGER_FILE))?;
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (length, count) = (number(&header[8..12]), number(&header[12..16]) as usize);
    let others = number(&header[16..]) as usize;
    let fits = others <= count && HEADER as u64 + (ROW * count) as u64 <= length;
    if &header[..8] != MAGIC || !fits || file.metadata()?.len() != length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let digests: Vec<u64> = action.keys().iter().map(|key| digest(key)).collect();
    let has_removed = digests.iter().any(|digest| *digest >= OF_REMOVED);
    let mut rows = vec![0; ROW * if has_removed { count } else { others }];
    file.read_exact(&mut rows)?;
    let (rows, _) = rows.as_chunks::<ROW>();
    for digest in digests {
        let first = rows.partition_point(|row| number(&row[..8]) < digest);
        let found = &rows[first..];
        let found = &found[..found.partition_point(|row| number(&row[..8]) == digest)];
        let (Some(start), Some(end)) = (found.first(), found.last()) else { continue };
        // They follow one another.
        let start = number(&start[8..12]);
        let end = number(&end[8..12]) + number(&end[12..16]);
        if start > end || end > length {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut texts = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut texts)?;
        let mut triggers = serde_json::Deserializer::from_slice(&texts).into_iter::<Trigger>();
        if triggers.any(|trigger| trigger.map_or(true, |trigger| trigger.matches(action).is_some())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// FNV-1a, of which the highest bit says whether the key is of a removed folder: the same in every version of nugget.
fn digest(key: &str) -> u64 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    if key.starts_with(BELOW) { hash | OF_REMOVED } else { hash & !OF_REMOVED }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use knowledge::Document;
    use serde_json::json;

    use super::*;
    use crate::triggers_of;

    fn triggers(scopes: &str) -> Vec<(String, String)> {
        let text = format!("---\ntype: caveat\nscope: {scopes}\n---\n\n# A title\n\nA text.\n");
        let unit = Document::parse(text).unwrap().unit("a.md").unwrap();
        let pairs = |trigger: &Trigger| {
            let text = serde_json::to_string(trigger).unwrap();
            trigger.keys().into_iter().map(|key| (key, text.clone())).collect::<Vec<_>>()
        };
        triggers_of(&unit).iter().flat_map(pairs).collect()
    }

    fn run(command: &str) -> Action {
        Action::new("Bash", &json!({ "command": command }), "/p", None).unwrap()
    }

    #[test]
    fn an_action_is_found_by_what_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let all = triggers(
            "[{command: git push}, {command: cargo publish}, {path: src/pay}, {command: git tag -d}]",
        );
        assert_eq!(all.len(), 6, "a path is found by its folders, too");
        fs::write(folder.path().join(TRIGGER_FILE), encode_triggers(&all).unwrap()).unwrap();
        let may_bear = |action: &Action| may_bear(folder.path(), action).unwrap();
        for command in ["cd x && git push", "cargo publish --dry-run", "git tag -d v1"] {
            assert!(may_bear(&run(command)), "{command}");
        }
        for command in ["git status", "git tag v1", "cargo test", "ls", ""] {
            assert!(!may_bear(&run(command)), "{command}");
        }
        let mut edit = Action::new("Edit", &json!({ "file_path": "/p/src/pay/a.rs" }), "/p", None).unwrap();
        edit.locate(|path| path.strip_prefix("/p/").map(str::to_owned));
        assert!(may_bear(&edit));
        let mut removal = run("rm -r src");
        assert!(!may_bear(&removal), "it is in no repository");
        removal.locate(|path| path.strip_prefix("/p/").map(str::to_owned));
        assert!(may_bear(&removal));
        fs::write(folder.path().join(TRIGGER_FILE), encode_triggers(&[]).unwrap()).unwrap();
        assert!(!may_bear(&edit) && !may_bear(&run("git push")));
    }

    #[test]
    fn a_damaged_file_knows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TRIGGER_FILE);
        assert!(may_bear(folder.path(), &run("git push")).is_err(), "there is none");
        let whole = encode_triggers(&triggers("[{command: git push}]")).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert!(may_bear(folder.path(), &run("git push")).is_err(), "{end}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            fs::write(&path, &bytes).unwrap();
            // Whatever it says, it ends.
            let _ = may_bear(folder.path(), &run("git push"));
        }
    }
}
