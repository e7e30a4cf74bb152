//! Recognises the exports of a brain that have no files to import.

use std::io::Read as _;
use std::path::Path;

/// How much of a file is read to recognise its format: the page's styles are before its text.
const HEAD_BYTES: u64 = 16 << 10;

/// The format of a file that `nugget export` has written as a whole, by its beginning.
pub(super) fn other_format(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    // To open a pipe waits for its writer.
    if !["json", "html"].contains(&ending.as_str()) || !path.is_file() {
        return None;
    }
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let has = |marks: &[&str]| marks.iter().all(|mark| head.contains(mark));
    match ending.as_str() {
        "json" if has(&["\"brain\":", "\"exported\":", "\"units\":"]) => Some("JSON"),
        "html" if has(&["<title>brain</title>", "<h1 id=\"name\">"]) => Some("HTML"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_formats_of_an_export_are_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let format = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            other_format(&folder.path().join(name))
        };
        let json = "{\n  \"brain\": \"b\",\n  \"exported\": \"2026-01-02\",\n  \"units\": []\n}\n";
        assert_eq!(format("brain.json", json), Some("JSON"));
        assert_eq!(format("page.html", include_str!("../export/page.html")), Some("HTML"));
        assert_eq!((format("other.json", "{}"), format("brain.md", json)), (None, None));
    }
}
