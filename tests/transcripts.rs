//! Every transcript of the real client can be captured, and every line of it is accounted for.

use crate::support::{Sandbox, fixture};

#[test]
fn every_real_transcript_is_captured_or_saves_nothing() {
    let sandbox = Sandbox::with_brain();
    let mut files: Vec<_> = std::fs::read_dir(fixture("transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
        .collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        let capture = sandbox.capture(&file);
        let state = capture["state"].as_str().unwrap();
        println!("{}: {state} {}", file.display(), capture["reason"]);
        assert!(matches!(state, "done" | "nothing"), "{}: {capture}", file.display());
        assert!(state == "done" || !capture["reason"].as_str().unwrap().is_empty());
    }
    sandbox.git(&["fsck", "--full", "--strict"]);
}

#[test]
fn every_line_of_a_real_transcript_is_accounted_for() {
    for entry in std::fs::read_dir(fixture("transcripts")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        let tally = transcript::read(&path, &|_| false).unwrap().counts;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(tally.lines, text.matches('\n').count() as u64, "{}", path.display());
        assert_eq!(tally.bytes, text.len() as u64);
        let accounted = tally.conversation + tally.skipped() + tally.malformed + tally.own + tally.known;
        assert_eq!(accounted, tally.lines, "{}: {tally:?}", path.display());
    }
}
