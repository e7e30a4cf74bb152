//! The words of a shell command, where no word of it may be missed: what is in doubt is a word.

/// The most here-documents of one command whose ends are looked for.
const DOCUMENTS_MAX: usize = 100;
/// A longer word is no list of names in braces, in bytes.
const BRACES_BYTES_MAX: usize = 512;
/// The most words that braces may stand for.
const ALTERNATIVES_MAX: usize = 64;

/// A word as the program gets it: without quotes and backslashes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Whether the shell puts names for `*`, `?` or `[` in it.
    pub(crate) is_glob: bool,
}

/// What the part of a command that is being read is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Single,
    /// `$'…'`
    Escaped,
    Double,
    /// `$(…)` in double quotes, or brackets in that.
    Brackets,
    /// Backquotes in double quotes.
    Backquotes,
}

/// The pieces of a command, also of what stands within its quotes and here-documents.
pub(crate) fn pieces(command: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`<>|;&()=,".contains(c);
    command.split(ends).filter(|word| !word.is_empty())
}

/// The words of a command, without its comments and here-documents.
pub(crate) fn words(command: &str) -> Vec<Word> {
    words_and_starts(command).0
}

/// The words of each part of a command that is a command of its own, and whether it reads what the one before prints.
pub(crate) fn parts(command: &str) -> Vec<(Vec<String>, bool)> {
    let (words, starts) = words_and_starts(command);
    let mut words = words.into_iter().map(|word| word.text);
    let ends: Vec<usize> = starts.iter().skip(1).map(|(at, _)| *at).collect();
    let ends = ends.into_iter().chain([usize::MAX]);
    let parts = starts.into_iter().zip(ends);
    parts.map(|((at, is_piped), end)| (words.by_ref().take(end - at).collect(), is_piped)).collect()
}

/// The words, and with which of them a part begins, and whether behind a `|`.
fn words_and_starts(command: &str) -> (Vec<Word>, Vec<(usize, bool)>) {
    let mut words = vec![];
    let mut starts = vec![(0, false)];
    // `None` between two words.
    let mut word: Option<Word> = None;
    let mut within: Vec<Within> = Vec::new();
    // The ends of the here-documents that begin on the next line.
    let mut documents: Vec<String> = Vec::new();
    let mut documents_left = DOCUMENTS_MAX;
    let mut rest = command;
    while let Some(c) = rest.chars().next() {
        let place = within.last().copied();
        let text = rest;
        rest = &rest[c.len_utf8()..];
        match (place, c) {
            (Some(Within::Single | Within::Escaped), '\'') | (Some(Within::Double), '"') => {
                within.pop();
            }
            (Some(Within::Double), '$') if rest.starts_with('(') => {
                words.extend(word.take());
                start(&mut starts, words.len(), false);
                within.push(Within::Brackets);
                rest = &rest[1..];
            }
            (Some(Within::Double), '`') => {
                words.extend(word.take());
                start(&mut starts, words.len(), false);
                within.push(Within::Backquotes);
            }
            (place, '\\') if place != Some(Within::Single) => {
                let escaped = rest.chars().next();
                rest = &rest[escaped.map_or(0, char::len_utf8)..];
                if let Some(c) = escaped.filter(|c| *c != '\n') {
                    word.get_or_insert_default().text.push(c);
                }
            }
            (Some(Within::Single | Within::Escaped | Within::Double), c) => {
                word.get_or_insert_default().text.push(c);
            }
            (_, '\'') => {
                let text = &mut word.get_or_insert_default().text;
                let is_escaped = text.ends_with('$');
                text.truncate(text.len() - usize::from(is_escaped));
                within.push(if is_escaped { Within::Escaped } else { Within::Single });
            }
            (_, '"') => {
                word.get_or_insert_default();
                within.push(Within::Double);
            }
            (_, '#') if word.is_none() => rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
            (_, '<') => {
                words.extend(word.take());
                if let Some(behind) = text.strip_prefix("<<<") {
                    rest = behind;
                } else if let Some(behind) = text.strip_prefix("<<").filter(|_| documents_left > 0) {
                    documents_left -= 1;
                    let (end, behind) = end_of_document(behind);
                    documents.push(end);
                    rest = behind;
                }
            }
            (_, '\n') => {
                words.extend(word.take());
                start(&mut starts, words.len(), false);
                for end in documents.drain(..) {
                    rest = after_document(rest, &end);
                }
            }
            (place, '`' | '(' | ')') => {
                words.extend(word.take());
                start(&mut starts, words.len(), false);
                match (place, c) {
                    (Some(Within::Backquotes), '`') | (Some(Within::Brackets), ')') => {
                        within.pop();
                    }
                    (Some(Within::Brackets), '(') => within.push(Within::Brackets),
                    _ => {}
                }
                // `$(pwd)/a` is a path behind what is not known, as `$PWD/a` is.
                word = (c != '(' && rest.starts_with('/'))
                    .then(|| Word { text: "$".to_owned(), ..Word::default() });
            }
            (_, ';' | '|' | '&') => {
                words.extend(word.take());
                let before = command[..command.len() - text.len()].chars().next_back();
                match (before, c, rest.chars().next()) {
                    // A redirection: `2>&1`, `&>out`, `>|out`.
                    (Some('>'), _, _) | (_, '&', Some('>')) => {}
                    (Some('|'), '|', _) | (_, '|', Some('|')) => start(&mut starts, words.len(), false),
                    _ => start(&mut starts, words.len(), c == '|'),
                }
            }
            (_, c) if c.is_whitespace() || c == '>' => words.extend(word.take()),
            (_, c) => {
                let word = word.get_or_insert_default();
                word.is_glob |= matches!(c, '*' | '?' | '[');
                word.text.push(c);
            }
        }
    }
    words.extend(word);
    (words, starts)
}

/// Takes note that a part begins with the next word.
fn start(starts: &mut Vec<(usize, bool)>, at: usize, is_piped: bool) {
    match starts.last_mut() {
        Some(last) if last.0 == at => last.1 |= is_piped,
        _ => starts.push((at, is_piped)),
    }
}

/// The line that ends a here-document, and the rest of the command. `text` begins behind `<<`.
fn end_of_document(text: &str) -> (String, &str) {
    let text = text.trim_start_matches('-').trim_start_matches([' ', '\t']);
    let (end, rest) = match text.chars().next() {
        Some(quote @ ('\'' | '"')) => text[1..].split_once(quote).unwrap_or((&text[1..], "")),
        _ => {
            let ends = |c: char| c.is_whitespace() || "<>|;&()`".contains(c);
            text.split_at(text.find(ends).unwrap_or(text.len()))
        }
    };
    (end.replace('\\', ""), rest)
}

/// A command behind the line that ends a here-document: all of it if there is no such line, as in `$((1 << 2))`.
fn after_document<'a>(text: &'a str, end: &str) -> &'a str {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.trim_end_matches(['\n', '\r']).trim_start_matches('\t') == end {
            return &text[at..];
        }
    }
    text
}

/// The words that one with lists in braces stands for, as in `{dev,prod}.toml`.
pub(crate) fn without_braces(word: Word) -> Vec<Word> {
    let mut plain = Vec::new();
    let mut todo = vec![word];
    while let Some(Word { text, is_glob }) = todo.pop() {
        // The innermost one: up to the first end, from the last start before it.
        let list = text.find('}').and_then(|end| Some((text[..end].rfind('{')?, end)));
        let list = list.filter(|(start, end)| {
            text.len() <= BRACES_BYTES_MAX
                && plain.len() + todo.len() < ALTERNATIVES_MAX
                && text[*start..*end].contains(',')
        });
        match list {
            Some((start, end)) => {
                let around = |name: &str| format!("{}{name}{}", &text[..start], &text[end + 1..]);
                todo.extend(text[start + 1..end].split(',').map(|name| Word { text: around(name), is_glob }));
            }
            None => plain.push(Word { text, is_glob }),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_the_program_gets() {
        for (command, expected) in [
            ("cat 'a b'\"c\"\\ d e", &["cat", "a bc d", "e"][..]),
            ("a; b|c && (d) >e", &["a", "b", "c", "d", "e"]),
            ("x \"\" $'it\\'s' # y z\nw", &["x", "", "it's", "w"]),
            ("x=\"$(cat \"a b\" (c))d\" e", &["x=", "cat", "a b", "c", "d", "e"]),
            ("x \"y `cat 'a b'` z\"", &["x", "y ", "cat", "a b", " z"]),
            ("cat <<A <<-'B C' d\n1\nA\n2\n\tB C\ne", &["cat", "d", "e"]),
            ("cat <<A\n1", &["cat", "1"]),
            ("cat <<< a b", &["cat", "a", "b"]),
            ("a\\\nb 'c", &["ab", "c"]),
            ("cat $(pwd)/a \"$(pwd)/b c\"", &["cat", "$", "pwd", "$/a", "", "pwd", "$/b c"]),
            ("\\", &[]),
            ("<<", &[]),
            ("<<'", &[]),
        ] {
            let found: Vec<String> = words(command).into_iter().map(|word| word.text).collect();
            assert_eq!(found, expected, "{command}");
        }
        let globs: Vec<bool> = words("a* '*' \\* b[c] \"*\"?").iter().map(|word| word.is_glob).collect();
        assert_eq!(globs, [true, false, false, true, true]);
    }

    #[test]
    fn a_command_has_parts() {
        for (command, expected) in [
            ("a b; c | d && e", &[("a b", false), ("c", false), ("d", true), ("e", false)][..]),
            ("a 2>&1 |\n b || c &>d & e", &[("a 2 1", false), ("b", true), ("c d", false), ("e", false)]),
            ("(a; b) |& c", &[("a", false), ("b", false), ("c", true)]),
            ("a \"b $(c `d`)\" e", &[("a b ", false), ("c", false), ("d", false), ("e", false)]),
            ("a 'b; c' > d;", &[("a b; c d", false), ("", false)]),
        ] {
            let found: Vec<(String, bool)> =
                parts(command).into_iter().map(|(words, is_piped)| (words.join(" "), is_piped)).collect();
            let expected: Vec<(String, bool)> =
                expected.iter().map(|(words, is_piped)| ((*words).to_owned(), *is_piped)).collect();
            assert_eq!(found, expected, "{command}");
        }
    }

    #[test]
    fn a_list_in_braces_stands_for_each_of_its_names() {
        for (text, expected) in [
            ("a/{b,c}.x", &["a/b.x", "a/c.x"][..]),
            ("{a,{b,c}d}", &["a", "bd", "cd"]),
            ("{}", &["{}"]),
            ("${a}", &["${a}"]),
            ("}{", &["}{"]),
        ] {
            let word = Word { text: text.to_owned(), is_glob: false };
            let mut found: Vec<String> = without_braces(word).into_iter().map(|word| word.text).collect();
            found.sort();
            found.dedup();
            assert_eq!(found, expected, "{text}");
        }
        let many = Word { text: "{a,b}".repeat(50), is_glob: false };
        assert!(without_braces(many).len() <= 2 * ALTERNATIVES_MAX);
    }
}
