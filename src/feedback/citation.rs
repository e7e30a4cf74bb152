//! Whether a session used what it was shown, by what its texts say afterwards.
//!
//! An item counts as used if the session named it by its id or mark, ran its command, or wrote its identifiers or the rare
//! words of one of its sentences, each for the first time after it was shown. What the session's text had before, what a
//! tool's result or a person brought in meanwhile, what several shown items share, and everyday words, programs and file
//! names are no evidence. Where it is in doubt the answer is [`Outcome::Ignored`]: a wrong "used" teaches the re-ranker
//! something wrong, a missed one only teaches nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use knowledge::opposed::contradicts;
use knowledge::text::{is_stop_word, split_camel_case};
use knowledge::value::is_negative;
use serde::Serialize;

use crate::example::Outcome;

/// What a session was shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownItem {
    /// A unit's id.
    pub id: String,
    /// The number that it was shown with, as in `[2]`.
    pub mark: Option<u32>,
    /// Commands that it says to run.
    pub commands: Vec<String>,
    /// Commands that it warns of.
    pub warned_commands: Vec<String>,
    /// Names from code.
    pub identifiers: Vec<String>,
    /// What it says.
    pub sentences: Vec<String>,
}

impl ShownItem {
    /// Takes commands, identifiers and sentences from Markdown. Front matter is left out.
    pub fn from_markdown(id: &str, mark: Option<u32>, text: &str) -> Self {
        let mut item = Self { id: id.to_owned(), mark, ..Self::default() };
        let body = text
            .strip_prefix("---\n")
            .and_then(|rest| rest.split_once("\n---\n"))
            .map_or(text, |(_, body)| body);
        let mut is_fenced = false;
        for line in body.lines() {
            let line = line.trim();
            if line.starts_with("```") || line.starts_with("~~~") {
                is_fenced = !is_fenced;
            } else if is_fenced {
                let command = line.trim_start_matches("$ ");
                if is_command(command) {
                    item.commands.push(command.to_owned());
                }
                item.identifiers.extend(identifiers_of(line));
            } else {
                let text = line.trim_start_matches(['#', '-', '*', '>', ' ']);
                sentences_of(text).into_iter().for_each(|sentence| item.add_sentence(sentence));
            }
        }
        item.identifiers.sort();
        item.identifiers.dedup();
        item
    }

    fn add_sentence(&mut self, sentence: &str) {
        let is_choice = ["instead of", "rather than"].iter().any(|phrase| sentence.contains(phrase));
        // Every second piece is between backticks. What warns of it stands before it, or right behind.
        let pieces: Vec<&str> = sentence.split('`').collect();
        for (at, code) in pieces.iter().enumerate().skip(1).step_by(2) {
            let behind = pieces.get(at + 1).and_then(|rest| rest.split([',', ';', ':']).next());
            let is_warning =
                is_negative(&format!("{} {}", pieces[..at].join(" "), behind.unwrap_or_default()));
            if is_command(code) && !is_choice {
                let commands = if is_warning { &mut self.warned_commands } else { &mut self.commands };
                commands.push((*code).to_owned());
            } else if !code.contains(' ') && code.len() >= 4 {
                self.identifiers.push(code.to_lowercase());
            }
        }
        self.identifiers.extend(identifiers_of(sentence));
        self.sentences.push(sentence.to_owned());
    }
}

/// Where a text of a session comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The assistant wrote it.
    Assistant,
    /// The assistant gave it to a tool that runs no command: an edit's new text, a path, a pattern.
    ToolInput,
    /// The assistant had it run in a shell.
    Command,
    /// A person, or a tool's result. No evidence: what it brings in counts as known from then on.
    Other,
}

/// A text of a session, after the items were shown.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// Where it comes from.
    pub source: Source,
    /// Plain text.
    pub text: &'a str,
}

/// Why an item counts as used or contradicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "evidence", content = "text", rename_all = "snake_case")]
pub enum Evidence {
    /// A sentence of the assistant that names it.
    Named(String),
    /// Its command, as it was run.
    Command(String),
    /// Its identifiers that the assistant wrote.
    Identifiers(Vec<String>),
    /// A sentence of the assistant, or a line that it wrote, with the rare words of one of the item's sentences.
    Sentence(String),
    /// A sentence of the assistant that says that it is wrong, or the opposite of what it says.
    Disputed(String),
    /// A command that it warns of, as it was run.
    WarnedCommand(String),
}

/// What became of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Used, contradicted or ignored.
    pub outcome: Outcome,
    /// Empty for what was ignored.
    pub evidence: Vec<Evidence>,
}

/// What became of each item. `shown` are all items shown together, `before` is all of the session's text before, without
/// the items themselves, and `after` all of it afterwards, in order.
pub fn judge(shown: &[ShownItem], before: &[&str], after: &[Passage<'_>]) -> Vec<Judgement> {
    let session = Session::new(before, after);
    let judge_item = |at: usize| {
        let others = shown.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, item)| item);
        let mut evidence = Vec::new();
        session.find_names(&shown[at], shown, &mut evidence);
        session.find_commands(&shown[at], &mut evidence);
        session.find_identifiers(&shown[at], others.clone(), &mut evidence);
        session.find_sentences(&shown[at], others, &mut evidence);
        let is_against =
            |found: &Evidence| matches!(found, Evidence::Disputed(_) | Evidence::WarnedCommand(_));
        let outcome = if evidence.iter().any(is_against) {
            evidence.retain(is_against);
            Outcome::Contradicted
        } else if evidence.is_empty() {
            Outcome::Ignored
        } else {
            Outcome::Used
        };
        Judgement { outcome, evidence }
    };
    (0..shown.len()).map(judge_item).collect()
}

fn is_common(word: &str) -> bool {
    is_stop_word(word) || COMMON.contains(word)
}

/// A session's texts, read once.
struct Session<'a> {
    /// In lower case: the text before the items were shown, and what others brought in since, in order.
    known: String,
    /// For each of its words the number of passages before it.
    known_since: HashMap<String, usize>,
    after: Vec<Read<'a>>,
}

/// A passage of the assistant's.
struct Read<'a> {
    source: Source,
    lower: String,
    sentences: Vec<(&'a str, HashSet<String>)>,
    /// The number of passages before it.
    number: usize,
    /// How much of the known text came before it, in bytes.
    known: usize,
}

impl<'a> Session<'a> {
    fn new(before: &[&str], after: &[Passage<'a>]) -> Self {
        let mut session = Self { known: String::new(), known_since: HashMap::new(), after: Vec::new() };
        before.iter().for_each(|text| session.add_known(text, 0));
        for (number, passage) in after.iter().enumerate() {
            if passage.source == Source::Other {
                session.add_known(passage.text, number + 1);
                continue;
            }
            let sentences = passage.text.lines().flat_map(sentences_of);
            let sentences = sentences.map(|sentence| (sentence, words_of(sentence).collect()));
            session.after.push(Read {
                source: passage.source,
                lower: passage.text.to_lowercase(),
                sentences: sentences.collect(),
                number: number + 1,
                known: session.known.len(),
            });
        }
        session
    }

    fn add_known(&mut self, text: &str, number: usize) {
        self.known.push_str(&text.to_lowercase());
        self.known.push('\n');
        for word in words_of(text) {
            self.known_since.entry(word).or_insert(number);
        }
    }

    fn known_before(&self, passage: &Read<'_>) -> &str {
        &self.known[..passage.known]
    }

    fn is_known_word(&self, word: &str, passage: &Read<'_>) -> bool {
        self.known_since.get(word).is_some_and(|since| *since < passage.number)
    }

    fn find_names(&self, item: &ShownItem, shown: &[ShownItem], evidence: &mut Vec<Evidence>) {
        for passage in &self.after {
            for (sentence, _) in &passage.sentences {
                let names = |item: &ShownItem| self.names(item, sentence, passage);
                if !names(item) {
                    continue;
                }
                let named = shown.iter().filter(|other| names(other)).count();
                let says = |phrases: &[&str]| {
                    let lower = sentence.to_lowercase();
                    phrases.iter().any(|phrase| contains_bounded(&lower, phrase))
                };
                if says(DISPUTES) {
                    evidence.push(Evidence::Disputed((*sentence).to_owned()));
                } else if !says(DISMISSALS) && (shown.len() < 4 || named * 2 <= shown.len()) {
                    evidence.push(Evidence::Named((*sentence).to_owned()));
                }
            }
        }
    }

    fn names(&self, item: &ShownItem, sentence: &str, passage: &Read<'_>) -> bool {
        let id = item.id.to_lowercase();
        let is_telling = id.len() >= 6 && id.contains(|c: char| !c.is_alphabetic());
        let by_id = is_telling
            && contains_bounded(&sentence.to_lowercase(), &id)
            && !self.known_before(passage).contains(&id);
        let by_mark = passage.source == Source::Assistant
            && item.mark.is_some_and(|mark| {
                let mark = format!("[{mark}]");
                has_mark(sentence, &mark) && !has_mark(self.known_before(passage), &mark)
            });
        by_id || by_mark
    }

    fn find_commands(&self, item: &ShownItem, evidence: &mut Vec<Evidence>) {
        let warned = item.warned_commands.iter().map(|command| (command, true));
        let told = item.commands.iter().map(|command| (command, false));
        for (command, is_warned) in warned.chain(told) {
            let pattern = CommandLine::new(command);
            if pattern.words.len() < 2 || !is_warned && !pattern.is_telling() {
                continue;
            }
            let runs = self.after.iter().filter(|passage| passage.source == Source::Command);
            let mut runs = runs.flat_map(|passage| {
                simple_commands(&passage.lower).into_iter().map(move |line| (passage, line))
            });
            let first = runs.find(|(_, line)| pattern.matches(&CommandLine::new(line)));
            let run = first.filter(|(passage, _)| {
                let mut known = simple_commands(self.known_before(passage)).into_iter();
                !known.any(|line| pattern.is_within(&CommandLine::new(line)))
            });
            let run = run.map(|(_, line)| line.to_owned());
            let wrap = if is_warned { Evidence::WarnedCommand } else { Evidence::Command };
            evidence.extend(run.map(wrap));
        }
    }

    fn find_identifiers<'s>(
        &self,
        item: &ShownItem,
        others: impl Iterator<Item = &'s ShownItem> + Clone,
        evidence: &mut Vec<Evidence>,
    ) {
        let mut points = 0;
        let mut found = BTreeSet::new();
        for identifier in item.identifiers.iter().map(|identifier| identifier.to_lowercase()) {
            let is_shared = others
                .clone()
                .any(|other| other.identifiers.iter().any(|theirs| theirs.eq_ignore_ascii_case(&identifier)));
            if is_shared || COMMON.contains(identifier.as_str()) {
                continue;
            }
            let passage = self.after.iter().find(|passage| contains_bounded(&passage.lower, &identifier));
            let Some(passage) = passage.filter(|passage| !self.known_before(passage).contains(&identifier))
            else {
                continue;
            };
            if found.insert(identifier.clone()) {
                let is_new = |word: &String| !is_common(word) && !self.is_known_word(word, passage);
                let pieces = words_of(&identifier).filter(|word| word.len() >= 3).filter(is_new).count();
                // Files are touched for many reasons.
                let is_file = identifier.contains('/') || has_extension(&identifier);
                let is_rare = pieces >= 2 || pieces == 1 && identifier.len() >= LONG_BYTES;
                points += if is_rare && !is_file { 2 } else { usize::from(pieces >= 1) };
            }
        }
        if points >= IDENTIFIER_POINTS {
            evidence.push(Evidence::Identifiers(found.into_iter().collect()));
        }
    }

    fn find_sentences<'s>(
        &self,
        item: &ShownItem,
        others: impl Iterator<Item = &'s ShownItem>,
        evidence: &mut Vec<Evidence>,
    ) {
        let shared: HashSet<String> =
            others.flat_map(|other| &other.sentences).flat_map(|sentence| words_of(sentence)).collect();
        for sentence in &item.sentences {
            let telling: HashSet<String> = words_of(sentence)
                .filter(|word| word.len() >= 3 && !is_common(word) && !shared.contains(word))
                .collect();
            for passage in &self.after {
                let mut rare: Vec<&String> = telling.iter().collect();
                if rare.len() < RARE_WORDS_MIN {
                    break;
                }
                rare.retain(|word| !self.is_known_word(word, passage));
                let needed = RARE_WORDS_MIN.max((telling.len() as f64 * RARE_SHARE).ceil() as usize);
                let hit = passage
                    .sentences
                    .iter()
                    .find(|(_, words)| rare.iter().filter(|word| words.contains(**word)).count() >= needed);
                if let Some((line, _)) = hit {
                    let is_opposite = passage.source == Source::Assistant && contradicts(sentence, line);
                    let wrap = if is_opposite { Evidence::Disputed } else { Evidence::Sentence };
                    evidence.push(wrap((*line).to_owned()));
                    break;
                }
            }
        }
    }
}

/// A long identifier, or one of two or more new words, has two points, any other one.
const IDENTIFIER_POINTS: usize = 2;
const LONG_BYTES: usize = 16;
/// The rare words that a sentence of the session must have of one sentence of an item.
const RARE_WORDS_MIN: usize = 3;
/// The share of them.
const RARE_SHARE: f64 = 0.5;

const DISPUTES: &[&str] = &[
    "wrong",
    "incorrect",
    "outdated",
    "out of date",
    "obsolete",
    "stale",
    "no longer",
    "not true",
    "contradicts",
    "inaccurate",
    "mistaken",
    "not correct",
    "isn't correct",
    "isn't true",
];
const DISMISSALS: &[&str] = &[
    "not relevant",
    "irrelevant",
    "unrelated",
    "isn't relevant",
    "aren't relevant",
    "doesn't apply",
    "does not apply",
    "not apply",
    "not related",
    "not needed",
    "doesn't matter",
    "none of",
    "neither",
];

/// Words of programs and of prose about them that say nothing of a subject, and file names that most projects have.
static COMMON: LazyLock<HashSet<&'static str>> = LazyLock::new(|| COMMON_WORDS.split_whitespace().collect());
const COMMON_WORDS: &str = "\
    add added adding allow already always another api app apply argument around array async await back bad base best \
    better between big block body bool boolean both branch break bug build bump call case catch change check class clean \
    cli client close code column command comment commit common config configuration connection const contain content \
    context copy correct create current data database date debug default define delete dependency dev different \
    directory doc document done down drop edit else empty enable end entry env environment error even event every \
    example exist expect export fail failed failing failure false feature field file find first fix flag folder follow \
    format found full function general git github give good handle happen hard help here high host http https id import \
    improve include index info init input install instead int integer interface internal issue item job json keep key \
    kind know large last latest later left length less level library like line link lint list load local lock log long \
    look loop low main make manifest many map match max mean merge message method middle min miss mode model module more \
    most move much name never new next node none normal note null number object ok old once open option order other output \
    own package page parameter parse part pass path pattern per place plain plan point port print problem process \
    production program project property public pull push put query question queue read really reason reference release \
    remove rename replace repo repository request require reset resource response rest result retry return review right \
    root row rule run running same save schema script search second section see send separate server service session set \
    setting setup several show side simple single size skip small some something source sql start state statement status \
    step still stop store string style sub support sure switch system table tag take target task team test text three \
    time token tool top total true try turn two type under unit until update upgrade url use used user using usual valid \
    value variable version view wait warn warning way well whole word work worker write wrong yaml yes zero \
    cargo.toml cargo.lock package.json package-lock.json readme.md changelog.md main.rs lib.rs mod.rs index.ts index.js \
    main.py app.py __init__.py setup.py pyproject.toml requirements.txt makefile dockerfile tsconfig.json .gitignore \
    .env claude.md settings.json config.json config.toml config.yaml docker-compose.yml src/main.rs src/lib.rs \
    typescript javascript python rust golang node.js macos linux windows docker postgres sqlite";

/// The words of a text in lower case, without the endings of plurals; identifiers are taken apart.
fn words_of(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).flat_map(split_camel_case).map(
        |word| {
            let lower = word.to_lowercase();
            match lower.strip_suffix('s') {
                Some(stem) if stem.len() >= 3 && !stem.ends_with(['s', 'u', 'i']) => stem.to_owned(),
                _ => lower,
            }
        },
    )
}

/// Names from code in a text, in lower case: with an underscore, a path, a capital inside, digits among letters, an option.
fn identifiers_of(text: &str) -> Vec<String> {
    let is_edge = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | '@' | ':'));
    let names = text.split(is_edge).filter_map(|raw| {
        let name = raw.trim_matches(|c: char| matches!(c, '.' | ':' | '/' | '@')).trim_end_matches('-');
        let has = |test: fn(char) -> bool| name.contains(test);
        let inner = name.trim_start_matches('-');
        let is_name = inner.len() >= 4
            && inner.contains(char::is_alphabetic)
            && (inner.contains(['_', '/', '.'])
                || inner.contains("::")
                || name.starts_with("--")
                || has(|c| c.is_ascii_digit())
                || split_camel_case(inner).len() > 1 && has(char::is_lowercase));
        let is_number = inner.len() >= 4
            && inner.chars().all(|c| c.is_ascii_digit())
            && !inner.ends_with("00")
            && !inner.starts_with("20");
        (is_name || is_number).then(|| name.to_lowercase())
    });
    names.collect()
}

fn has_extension(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| {
        (1..=4).contains(&ending.len()) && ending.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

fn sentences_of(line: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, pair) in line.as_bytes().windows(2).enumerate() {
        if matches!(pair, [b'.' | b'!' | b'?', b' ']) {
            sentences.push(&line[start..=at]);
            start = at + 2;
        }
    }
    sentences.push(line.get(start..).unwrap_or_default());
    sentences.retain(|sentence| !sentence.trim().is_empty());
    sentences
}

/// Whether a text holds another, with no letter, digit or underscore beside it.
fn contains_bounded(text: &str, part: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    !part.is_empty()
        && text.match_indices(part).any(|(at, _)| {
            !text[..at].ends_with(is_inside) && !text[at + part.len()..].starts_with(is_inside)
        })
}

/// Whether prose refers to an item by its mark: no index of an array, no link, no footnote of its own, no code.
fn has_mark(sentence: &str, mark: &str) -> bool {
    let prose: String = sentence.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    prose.match_indices(mark).any(|(at, _)| {
        let (before, after) = (&prose[..at], &prose[at + mark.len()..]);
        let is_definition =
            before.trim().is_empty() && (after.starts_with(':') || after.trim_start().starts_with("http"));
        !is_definition
            && !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '$'))
            && !after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '(' | '['))
    })
}

/// A simple command, as its words.
struct CommandLine<'a> {
    words: Vec<&'a str>,
}

impl<'a> CommandLine<'a> {
    fn new(line: &'a str) -> Self {
        let is_wrapper = |word: &&str| matches!(*word, "sudo" | "time" | "nice" | "env" | "command" | "exec");
        let is_placeholder =
            |word: &str| word.starts_with(['<', '$', '{']) || word.contains('…') || word == "...";
        let words = line.split_whitespace().map(|word| word.trim_matches(['"', '\'', '`', '(', ')']));
        Self {
            words: words
                .skip_while(is_wrapper)
                .filter(|word| !word.is_empty() && !is_placeholder(word))
                .collect(),
        }
    }

    /// The program, after what sets variables for it.
    fn program(&self) -> Option<&str> {
        let program = self.words.iter().find(|word| !word.contains('='))?;
        program.rsplit('/').next()
    }

    /// Whether running it says something: not `cargo test`, which would have been run anyway.
    fn is_telling(&self) -> bool {
        let everyday = |word: &&&str| EVERYDAY.contains(&word.to_lowercase().as_str());
        let telling = self.words.len() - self.words.iter().filter(everyday).count();
        self.words.len() >= 2 && telling >= 1
    }

    fn matches(&self, run: &CommandLine<'_>) -> bool {
        let same = |program: &str| run.program().is_some_and(|other| other.eq_ignore_ascii_case(program));
        self.program().is_some_and(same) && self.is_within(run)
    }

    /// Whether a line has all its words, as a mention of the command does.
    fn is_within(&self, line: &CommandLine<'_>) -> bool {
        let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_lowercase();
        self.words.iter().all(|word| line.words.iter().any(|other| base(other) == base(word)))
    }
}

/// Programs, subcommands and options that sessions run whatever they were shown.
static EVERYDAY: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| EVERYDAY_WORDS.split_whitespace().collect());
const EVERYDAY_WORDS: &str = "\
    git status diff log add commit push pull checkout switch branch show stash fetch merge rebase clone cargo build test \
    check run fmt clippy npm yarn pnpm npx bun install ci start dev lint ls cat grep rg find cd mkdir rm cp mv echo make \
    pytest python python3 pip uv go node sed head tail wc touch curl docker compose up down ps logs . -a -am -m -p -v -q -r \
    -f -d -l -la -n -s -e --all --release --workspace --verbose --version --help --all-targets --locked -- main master \
    origin head all";

/// The commands of a script or of a text with lines of commands.
fn simple_commands(script: &str) -> Vec<&str> {
    let parts = script.split(['\n', ';', '|', '&']);
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn is_command(code: &str) -> bool {
    let command = CommandLine::new(code);
    let is_word = |word: &str| {
        word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+'))
            && word.starts_with(|c: char| c.is_ascii_lowercase() || matches!(c, '.' | '/'))
    };
    command.words.len() >= 2
        && command.program().is_some_and(is_word)
        && !code.ends_with([';', '{', ','])
        && !code.contains(" = ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        shown: Vec<CaseItem>,
        before: Vec<String>,
        after: Vec<(String, String)>,
        expected: Vec<Outcome>,
    }

    #[derive(serde::Deserialize)]
    struct CaseItem {
        id: String,
        mark: Option<u32>,
        text: String,
    }

    impl Case {
        fn judge(&self) -> Vec<Judgement> {
            let shown: Vec<ShownItem> = self
                .shown
                .iter()
                .map(|item| ShownItem::from_markdown(&item.id, item.mark, &item.text))
                .collect();
            let before: Vec<&str> = self.before.iter().map(String::as_str).collect();
            let after = self.after.iter().map(|(source, text)| passage(source, text));
            judge(&shown, &before, &after.collect::<Vec<_>>())
        }
    }

    fn passage<'a>(source: &str, text: &'a str) -> Passage<'a> {
        let source = match source {
            "assistant" => Source::Assistant,
            "tool_input" => Source::ToolInput,
            "command" => Source::Command,
            _ => Source::Other,
        };
        Passage { source, text }
    }

    #[test]
    fn nine_of_ten_called_used_were_and_most_used_are_found() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../stress/learn/citations.json")).unwrap();
        let mut counts = [[0usize; 3]; 2];
        for (number, case) in cases.iter().enumerate() {
            // What is judged by was written with the even ones at hand; the odd ones are kept for the test.
            let half = &mut counts[number % 2];
            for (at, (found, expected)) in case.judge().iter().zip(&case.expected).enumerate() {
                if found.outcome != *expected {
                    println!("case {number}, {}: {expected:?}, but {found:?}", case.shown[at].id);
                }
                let (is_found, is_used) = (found.outcome == Outcome::Used, *expected == Outcome::Used);
                half[0] += usize::from(is_found && is_used);
                half[1] += usize::from(is_found);
                half[2] += usize::from(is_used);
            }
        }
        for (half, [right, found, used]) in ["even", "odd"].iter().zip(counts) {
            println!("{half} half: {right} right of {found} called used, {used} used");
            assert!(right * 10 >= found * 9, "precision");
            assert!(right * 10 >= used * 6, "recall");
        }
    }

    fn one(item: &str, before: &str, after: &[(&str, &str)]) -> Judgement {
        let shown = ShownItem::from_markdown("unit-1-of-2", Some(1), item);
        let after: Vec<Passage<'_>> = after.iter().map(|(source, text)| passage(source, text)).collect();
        judge(&[shown], &[before], &after).remove(0)
    }

    #[test]
    fn a_mark_counts_only_in_the_assistants_prose() {
        let outcome = |text: &str| one("", "", &[("assistant", text)]).outcome;
        for text in ["See [1].", "[1] says so", "as memory [1], and", "([1])"] {
            assert_eq!(outcome(text), Outcome::Used, "{text}");
        }
        for text in
            ["a[1]", "`x [1]`", "[1](http://a)", "[1]: http://a", "[1] http://a", "$[1]", "[11]", "f()[1]"]
        {
            assert_eq!(outcome(text), Outcome::Ignored, "{text}");
        }
        assert_eq!(one("", "", &[("tool_input", "See [1].")]).outcome, Outcome::Ignored);
        assert_eq!(one("", "As in [1].", &[("assistant", "See [1].")]).outcome, Outcome::Ignored);
    }

    #[test]
    fn commands_are_told_or_warned_of() {
        let item = |text: &str| ShownItem::from_markdown("u", None, text);
        let told = item("Run `just deploy eu`, never `just deploy all`.");
        assert_eq!(
            (told.commands, told.warned_commands),
            (vec!["just deploy eu".to_owned()], vec!["just deploy all".to_owned()])
        );
        let behind = item("`just wipe db` must not be run.");
        assert_eq!(behind.warned_commands, ["just wipe db"]);
        let choice = item("Use `just a b` instead of `just c d`.");
        assert!(choice.commands.is_empty() && choice.warned_commands.is_empty());
        let fenced = item("---\ntitle: `x y z`\n---\n```sh\n$ just seed test-data\nlet x = 1;\n```\n");
        assert_eq!(fenced.commands, ["just seed test-data"]);
    }

    #[test]
    fn a_command_is_the_same_with_more_options_and_wrappers() {
        let run = |command: &str| one("Run `just seed test-data`.", "", &[("command", command)]).outcome;
        for command in [
            "just seed test-data",
            "cd x && sudo just seed --fast test-data",
            "RUST_LOG=1 /bin/just seed 'test-data' | tee log",
        ] {
            assert_eq!(run(command), Outcome::Used, "{command}");
        }
        for command in ["just seed", "echo just seed test-data", "git seed test-data", "just test-data"] {
            assert_eq!(run(command), Outcome::Ignored, "{command}");
        }
        let before = one(
            "Run `just seed test-data`.",
            "we ran just seed test-data",
            &[("command", "just seed test-data")],
        );
        assert_eq!(before.outcome, Outcome::Ignored);
    }

    #[test]
    fn what_others_bring_in_is_no_evidence_afterwards() {
        let item = "Take `pg_try_advisory_lock(4711)`. Kubelet evicts pods when the ephemeral volume fills. `just seed test-data`";
        let own = [
            ("assistant", "pg_try_advisory_lock(4711) is taken"),
            ("assistant", "The kubelet evicts a pod whose ephemeral volume is full."),
            ("assistant", "As unit-1-of-2 says"),
            ("command", "just seed test-data"),
        ];
        for own in own {
            assert_eq!(one(item, "", &[own]).outcome, Outcome::Used, "{own:?}");
            let text = own.1.to_owned();
            for other in [("other", text.as_str()), ("other", "unit-1-of-2")] {
                let is_named = other.1 == "unit-1-of-2" && !text.contains("unit-1");
                let found = one(item, "", &[other, own]).outcome;
                assert_eq!(found == Outcome::Used, is_named, "{own:?} after {other:?}");
            }
            assert_eq!(one(item, "", &[own, ("other", &text)]).outcome, Outcome::Used, "{own:?}");
        }
    }

    #[test]
    fn odd_texts_give_an_answer() {
        for text in ["", "```", "`", "[1", "ß… 🦀 `", "---\n", "é. ü! 中? 。", "&&;|", "\u{0}"] {
            let found = one(
                text,
                text,
                &[("assistant", text), ("command", text), ("other", text), ("tool_input", text)],
            );
            assert_eq!(found.outcome, Outcome::Ignored, "{text:?}");
        }
        assert!(judge(&[], &[], &[]).is_empty());
    }
}
