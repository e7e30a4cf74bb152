//! The invented lessons, read from the files beside this one.

/// What a pair of lessons is to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relationship {
    /// The same lesson in other words.
    Same,
    /// Both cannot hold.
    Opposed,
    /// Similar in subject, words or title, and another lesson.
    Unlike,
}

/// One invented lesson.
#[derive(Clone, Debug)]
pub(crate) struct Lesson {
    pub(crate) domain: String,
    pub(crate) kind: String,
    pub(crate) tags: Vec<String>,
    pub(crate) title: String,
    pub(crate) body: String,
}

/// The lessons of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Corpus {
    pub(crate) pairs: Vec<(Relationship, [Lesson; 2])>,
    pub(crate) singles: Vec<Lesson>,
}

impl Corpus {
    /// Reads the form of the files: a line `% relationship domain type tags`, a title, a body; `&` begins the
    /// second lesson of a pair.
    pub(crate) fn parse(text: &str) -> Self {
        let mut corpus = Self::default();
        let mut first: Option<(Relationship, Lesson)> = None;
        for block in blocks(text) {
            let (header, rest) = block.split_once('\n').expect("a title");
            let mut fields = header.split_whitespace();
            match fields.next().expect("a mark") {
                "&" => {
                    let (relationship, one) = first.take().expect("the first of a pair");
                    corpus.pairs.push((relationship, [one, lesson(fields, rest)]));
                }
                _ => {
                    let relationship = match fields.next().expect("a relationship") {
                        "same" => Relationship::Same,
                        "opposed" => Relationship::Opposed,
                        "unlike" => Relationship::Unlike,
                        _ => {
                            corpus.singles.push(lesson(fields, rest));
                            continue;
                        }
                    };
                    first = Some((relationship, lesson(fields, rest)));
                }
            }
        }
        corpus
    }
}

fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("% ") || line.starts_with("& ") {
            blocks.push(String::new());
        }
        let block = blocks.last_mut().expect("a header first");
        block.push_str(line);
        block.push('\n');
    }
    blocks
}

fn lesson<'a>(mut fields: impl Iterator<Item = &'a str>, rest: &str) -> Lesson {
    let mut next = || fields.next().expect("domain, type and tags").to_owned();
    let (domain, kind, tags) = (next(), next(), next());
    let (title, body) = rest.split_once('\n').expect("a body");
    Lesson {
        domain,
        kind,
        tags: tags.split(',').map(str::to_owned).collect(),
        title: title.to_owned(),
        body: body.trim().to_owned(),
    }
}
