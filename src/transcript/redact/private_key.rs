//! Private keys in their armour: the lines from `BEGIN … PRIVATE KEY` to `END … PRIVATE KEY`, as PEM, OpenSSH and OpenPGP
//! have them.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::Regex;

/// More than any key has, with a log's time before each line.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The shortest run of base64 that is taken for a line of a key: a path or a long name has shorter ones.
const RUN_BYTES_MIN: usize = 24;
/// How much of a line, in percent, is such runs. The rest stands before them, as a file's name and a line's number.
const RUNS_PERCENT_MIN: usize = 50;
const HEADERS_MAX: usize = 8;

static BEGIN: LazyLock<Regex> = LazyLock::new(|| mark("BEGIN"));
static END: LazyLock<Regex> = LazyLock::new(|| mark("END"));
static LINE_END: LazyLock<Regex> = LazyLock::new(|| regex(r"(?:\\+[nr]|[\r\n])+"));
/// `Proc-Type: 4,ENCRYPTED`, `Version: …`; or nothing.
static HEADER: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[^A-Za-z]*(?:[A-Z][A-Za-z-]{2,30}: [^\n]{0,100})?$"));
/// A line of a key: code goes on behind a long name.
static LINE: LazyLock<Regex> = LazyLock::new(|| regex(r#"[A-Za-z0-9+/=]{24}[\s"'+,;)|\\-]*$"#));
/// The last line of a key, which may be short.
static TAIL: LazyLock<Regex> = LazyLock::new(|| regex(r#"^[\s"'+,>|#*-]*[A-Za-z0-9+/=]{8,}"#));

fn mark(word: &str) -> Regex {
    regex(&format!("-{{4,5}} ?{word} [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)? ?-{{4,5}}"))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{pattern}: {error}"))
}

/// The keys of a text with their marks; of one whose end is not shown, the lines that are. What only names the marks, be it
/// code or prose, is none.
pub(super) fn find(text: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let ends: Vec<Range<usize>> = END.find_iter(text).map(|end| end.range()).collect();
    for begin in BEGIN.find_iter(text) {
        if found.last().is_some_and(|last| begin.start() < last.end) {
            continue;
        }
        let next = ends.partition_point(|end| end.start < begin.end());
        let whole = ends.get(next).filter(|end| is_key(&text[begin.end()..end.start]));
        let end = whole.map_or_else(|| end_of_lines(text, begin.end()), |end| end.end);
        if end > begin.end() {
            found.push(begin.start()..end);
        }
    }
    found
}

fn is_key(body: &[u8]) -> bool {
    let runs = bytes_in_runs(body);
    runs > 0 && body.len() <= BODY_BYTES_MAX && runs * 100 >= body.len() * RUNS_PERCENT_MIN
}

/// Where the lines of a key end that begin here.
fn end_of_lines(text: &[u8], start: usize) -> usize {
    let text = &text[..text.len().min(start + BODY_BYTES_MAX)];
    let (mut end, mut at, mut lines) = (start, start, 0);
    let mut headers = 0;
    while at < text.len() {
        let line_end = LINE_END.find_at(text, at).map_or(text.len()..text.len(), |found| found.range());
        let line = &text[at..line_end.start];
        if LINE.is_match(line) && is_key(line) {
            lines += 1;
            end = line_end.start;
        } else if lines == 0 && headers < HEADERS_MAX && HEADER.is_match(line) {
            headers += 1;
        } else {
            let tail = TAIL.find(line).filter(|_| lines > 0);
            return tail.map_or(end, |tail| at + tail.end());
        }
        at = line_end.end;
    }
    end
}

/// How many bytes are in runs of base64 that are as long as those of keys.
fn bytes_in_runs(text: &[u8]) -> usize {
    let is_other = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"+/=".contains(byte);
    let is_of_key = |run: &&[u8]| {
        run.len() >= RUN_BYTES_MIN
            && run.iter().any(u8::is_ascii_uppercase)
            && run.iter().any(u8::is_ascii_lowercase)
            && run.iter().any(u8::is_ascii_digit)
    };
    text.split(is_other).filter(is_of_key).map(<[u8]>::len).sum()
}
