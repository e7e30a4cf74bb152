//! A brain as large as is asked for, made of words from a seed.
//!
//! The words are those of the built-in tokenizer's list, drawn as often as their rank there says, in
//! sentences about one topic or two. A topic is a word and those nearest to it. Embedding a hundred
//! thousand passages takes an hour here, so a passage's vector is put together: each topic word is
//! embedded by the real model, and a passage has the weighted sum of its words' vectors and some noise.
//! A question, which the real model embeds, so finds passages of its topic. These vectors go into the
//! product's own cache of vectors, and its own indexer does the rest.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use embed::{Embedder, Tokenizer};
use index::{ModelLabel, VectorCache, chunk};
use knowledge::Document;

use crate::machine::{Machine, Random};

/// What is said of the figures that rest on such a brain.
pub(crate) const MADE: &str =
    "text made from a seed; vectors put together from the real model's vectors of single words";

static TOKENIZER: &[u8] = include_bytes!("../../src/embed/weights/tokenizer-256-nopad.json");
/// Where whole words begin in the tokenizer's list, most frequent first.
const FIRST_WORD: u64 = 1996;
/// Words of a topic.
const TOPIC_WORDS: usize = 14;
const TOPICS_MAX: usize = 400;
const UNITS_OF_TOPIC: usize = 25;
/// Topics are made of the most frequent so many words.
const TOPIC_VOCABULARY: usize = 6_000;
/// How much of a passage's vector is its own and nobody else's, beside what its words give.
const NOISE: f32 = 0.5;
const PUT_AT_ONCE: usize = 2_000;

pub(crate) struct Corpus {
    seed: u64,
    units: usize,
    words: Vec<String>,
    /// Each a list of places in `words`.
    topics: Vec<Vec<usize>>,
    /// Of the topics' words, by the real model.
    vectors: HashMap<String, Vec<f32>>,
    label: ModelLabel,
    tokenizer: Tokenizer,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) chunks: usize,
}

/// One file of the brain.
pub(crate) struct Made {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Corpus {
    /// The words, the topics and the words' vectors; the latter are kept for the next run.
    pub(crate) fn new(seed: u64, units: usize, embedder: &Embedder) -> Result<Self> {
        let list: serde_json::Value = serde_json::from_slice(TOKENIZER)?;
        let list = list["model"]["vocab"].as_object().context("the tokenizer has no words")?;
        let is_word =
            |word: &str| (4..=14).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
        let mut words: Vec<(u64, String)> = list
            .iter()
            .filter_map(|(word, id)| Some((id.as_u64()?, word.clone())))
            .filter(|(id, word)| *id >= FIRST_WORD && is_word(word))
            .collect();
        words.sort_unstable();
        let words: Vec<String> = words.into_iter().map(|(_, word)| word).collect();
        let label = ModelLabel { name: embedder.model_name().to_owned(), dimensions: embedder.dimensions() };
        let tokenizer = embedder.tokenizer().clone();
        let mut corpus =
            Self { seed, units, words, topics: Vec::new(), vectors: HashMap::new(), label, tokenizer };
        corpus.topics = corpus.make_topics()?;
        corpus.embed_words(embedder);
        Ok(corpus)
    }

    fn make_topics(&self) -> Result<Vec<Vec<usize>>> {
        let mut random = Random::new(self.seed);
        let table = self.tokenizer.word_table().context("the model shows no vectors of words")?;
        let vocabulary = TOPIC_VOCABULARY.min(self.words.len());
        let pieces: Vec<u32> = self.words[..vocabulary]
            .iter()
            .map(|word| self.tokenizer.pieces(word).first().copied().unwrap_or(0))
            .collect();
        let count = (self.units / UNITS_OF_TOPIC).clamp(4, TOPICS_MAX);
        let centres: Vec<usize> =
            (0..count).map(|_| 400 + random.below(vocabulary as u64 - 400) as usize).collect();
        let centre_pieces: Vec<u32> = centres.iter().map(|&at| pieces[at]).collect();
        let cosines = table.cosines(&centre_pieces, &pieces);
        Ok(cosines
            .chunks_exact(pieces.len())
            .map(|row| {
                // The first few hundred words are in every text and make no topic.
                let mut order: Vec<usize> = (300..row.len()).collect();
                order.sort_unstable_by(|&a, &b| row[b].total_cmp(&row[a]));
                order.truncate(TOPIC_WORDS);
                order
            })
            .collect())
    }

    fn embed_words(&mut self, embedder: &Embedder) {
        let cache = VectorCache::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-words.db"));
        let wanted: BTreeSet<&str> =
            self.topics.iter().flatten().map(|&at| self.words[at].as_str()).collect();
        let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
        let mut vectors = cache.get(&self.label, &wanted);
        let missing: Vec<usize> = (0..wanted.len()).filter(|&at| vectors[at].is_none()).collect();
        if !missing.is_empty() {
            eprintln!("embedding {} words", missing.len());
        }
        for at in &missing {
            vectors[*at] = embedder.embed_document(&wanted[*at]).ok();
        }
        let new = missing.iter().filter_map(|&at| Some((wanted[at].as_str(), vectors[at].as_deref()?)));
        cache.put(&self.label, new);
        self.vectors =
            wanted.iter().cloned().zip(vectors).filter_map(|(word, vector)| Some((word, vector?))).collect();
    }

    /// Writes the brain's files, and their chunks' vectors into the machine's cache.
    pub(crate) fn write(&self, machine: &Machine) -> Result<Written> {
        let brain = machine.brain();
        let cache = VectorCache::open(&cache_of(machine));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let written = std::thread::scope(|scope| {
            let work = || -> Result<Written> {
                let mut written = Written::default();
                let mut known: Vec<(String, Vec<f32>)> = Vec::new();
                loop {
                    let nth = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if nth < self.units {
                        let made = self.unit(nth);
                        written.bytes += made.text.len() as u64;
                        put_file(&brain, &made)?;
                        known.extend(self.texts(&made)?.into_iter().map(|text| {
                            let vector = self.vector(&text);
                            (text, vector)
                        }));
                    }
                    if known.len() >= PUT_AT_ONCE || nth >= self.units {
                        written.chunks += known.len();
                        cache.put(&self.label, known.iter().map(|(text, v)| (text.as_str(), v.as_slice())));
                        known.clear();
                    }
                    if nth >= self.units {
                        return Ok(written);
                    }
                }
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread fell"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        let add = |a: Written, b: Written| Written { bytes: a.bytes + b.bytes, chunks: a.chunks + b.chunks };
        Ok(written.into_iter().fold(Written::default(), add))
    }

    /// Puts the vectors of a file's chunks into the machine's cache.
    pub(crate) fn know(&self, machine: &Machine, made: &Made) -> Result<()> {
        let cache = VectorCache::open(&cache_of(machine));
        for text in self.texts(made)? {
            cache.put(&self.label, [(text.as_str(), self.vector(&text).as_slice())]);
        }
        Ok(())
    }

    /// The texts of a file's chunks as they are embedded.
    pub(crate) fn texts(&self, made: &Made) -> Result<Vec<String>> {
        let document = Document::parse(made.text.clone()).map_err(|error| anyhow::anyhow!(error.what))?;
        let unit = document.unit(&made.path).map_err(|error| anyhow::anyhow!(error.what))?;
        Ok(chunk::chunk(&unit, &self.tokenizer).iter().map(chunk::Piece::embedding_text).collect())
    }

    pub(crate) fn label(&self) -> &ModelLabel {
        &self.label
    }

    /// The vector that a passage is given: `[dimensions] f32`, L2-normalised.
    pub(crate) fn vector(&self, text: &str) -> Vec<f32> {
        let mut hasher = std::hash::DefaultHasher::new();
        text.hash(&mut hasher);
        let mut random = Random::new(self.seed ^ hasher.finish());
        let mut sum = vec![0.0_f32; self.label.dimensions];
        let mut seen = BTreeSet::new();
        for word in text.split(|c: char| !c.is_ascii_alphabetic()) {
            let word = word.to_ascii_lowercase();
            let Some(vector) = self.vectors.get(&word) else { continue };
            // A word said twice counts a little more, and some words matter more than others.
            let weight = if seen.insert(word) { 0.5 + unit_interval(&mut random) } else { 0.3 };
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += weight * x);
        }
        normalise(&mut sum);
        let mut own: Vec<f32> = (0..sum.len()).map(|_| gaussian(&mut random)).collect();
        normalise(&mut own);
        sum.iter_mut().zip(own).for_each(|(sum, x)| *sum += NOISE * x);
        normalise(&mut sum);
        sum
    }

    /// The unit of a number: the same for the same seed.
    pub(crate) fn unit(&self, nth: usize) -> Made {
        self.unit_again(nth, 0)
    }

    /// As [`Corpus::unit`], with other text for each edition.
    pub(crate) fn unit_again(&self, nth: usize, edition: u64) -> Made {
        let mut random = Random::new(self.seed.wrapping_mul(31).wrapping_add(nth as u64) ^ (edition << 40));
        let random = &mut random;
        let of_nth = Random::new(self.seed ^ (nth as u64) << 20).below(self.topics.len() as u64) as usize;
        let writer =
            Writer { corpus: self, topic: of_nth, aside: random.below(self.topics.len() as u64) as usize };
        let kinds = ["pattern", "concept", "decision", "bug", "belief"];
        let kind = kinds[nth % kinds.len()];
        let domain = format!("{}-{}", self.words[self.topics[of_nth][0]], of_nth);
        let title = writer.title(random);
        let id = format!("u{nth}-{}", self.words[self.topics[of_nth][1]]);
        let mut text = format!(
            "---\nid: {id}\ntype: {kind}\ndomain: {domain}\ntitle: {title}\ntags: [{}, {}]\nconfidence: 0.{}\n\
             source: heuristic\n",
            writer.topical(random),
            writer.topical(random),
            5 + random.below(5),
        );
        if nth > 0 && random.chance(40) {
            let other = random.below(nth as u64) as usize;
            let topic =
                Random::new(self.seed ^ (other as u64) << 20).below(self.topics.len() as u64) as usize;
            let word = &self.words[self.topics[topic][1]];
            let _ = writeln!(text, "related: [{{id: u{other}-{word}, relation: often_combined_with}}]");
        }
        let _ = write!(
            text,
            "created: 2026-{:02}-{:02}T09:00:00Z\nlast_modified: 2026-10-{:02}T09:00:00Z\n---\n\n# {title}\n\n",
            1 + random.below(9),
            1 + random.below(28),
            1 + random.below(28),
        );
        writer.section(&mut text, random);
        for _ in 0..2 {
            let _ = write!(text, "## {}\n\n", writer.heading(random));
            writer.section(&mut text, random);
        }
        Made { path: format!("domains/{domain}/{kind}s/u{nth}.md"), text }
    }

    /// A question about a topic, as a person would put it to the tool.
    pub(crate) fn question(&self, random: &mut Random) -> String {
        let topic = random.below(self.topics.len() as u64) as usize;
        let writer = Writer { corpus: self, topic, aside: topic };
        let mut t = || writer.topical(random).to_owned();
        let (a, b, c, d) = (t(), t(), t(), t());
        match random.below(5) {
            0 => format!("how do we keep the {a} of the {b} from failing when the {c} is slow?"),
            1 => format!(
                "Fix the {a} bug: after the {b} change the {c} tests fail with a {d} error in {a}_{b}.rs"
            ),
            2 => format!("Add {a} support to the {b} module, with retries for the {c} and a limit on {d}"),
            3 => format!("why did we choose {a} over {b} for the {c}?"),
            _ => format!(
                "I am about to refactor the {a} handling so that {b} and {c} are kept apart, what should I know about {d}?"
            ),
        }
    }
}

struct Writer<'a> {
    corpus: &'a Corpus,
    topic: usize,
    aside: usize,
}

impl Writer<'_> {
    /// A word of the unit's topic, seldom of its second one.
    fn topical(&self, random: &mut Random) -> &str {
        let topic = if random.chance(85) { self.topic } else { self.aside };
        let topic = &self.corpus.topics[topic];
        // The first words of a topic are said more often.
        let at = random.below(TOPIC_WORDS as u64).min(random.below(TOPIC_WORDS as u64)) as usize;
        &self.corpus.words[topic[at.min(topic.len() - 1)]]
    }

    /// Any word, as often as its rank says (Zipf).
    fn any(&self, random: &mut Random) -> &str {
        let words = &self.corpus.words;
        let exponent = f64::from(unit_interval(random));
        let at = (words.len() as f64).powf(exponent) as usize;
        &words[at.min(words.len() - 1)]
    }

    fn title(&self, random: &mut Random) -> String {
        let (a, b, x) = (self.topical(random).to_owned(), self.topical(random).to_owned(), self.any(random));
        match random.below(4) {
            0 => format!("Keep the {a} out of the {b} while it is {x}"),
            1 => format!("{a} before {b} in every {x}"),
            2 => format!("The {a} of a {b} must be bounded by its {x}"),
            _ => format!("Prefer {a} to {b} for {x} work"),
        }
    }

    fn heading(&self, random: &mut Random) -> String {
        match random.below(4) {
            0 => format!("Why the {} matters", self.topical(random)),
            1 => format!("When to use {}", self.topical(random)),
            2 => format!("Limits of the {}", self.topical(random)),
            _ => format!("How the {} was found", self.topical(random)),
        }
    }

    /// 60 to 260 words: sentences, at times a list or some code.
    fn section(&self, text: &mut String, random: &mut Random) {
        for _ in 0..1 + random.below(3) {
            for _ in 0..3 + random.below(4) {
                self.sentence(text, random);
            }
            text.push_str("\n\n");
        }
        if random.chance(30) {
            for _ in 0..3 {
                let _ = writeln!(
                    text,
                    "- {} the {} with {}",
                    self.any(random),
                    self.topical(random),
                    self.any(random)
                );
            }
            text.push('\n');
        }
        if random.chance(25) {
            let (a, b) = (self.topical(random).to_owned(), self.topical(random).to_owned());
            let _ = write!(
                text,
                "```rust\nlet {a} = {b}_{}({});\nif {a}.is_{}() {{ return Err({}Error::{}(\"{b}\")); }}\n```\n\n",
                self.any(random),
                random.below(1000),
                self.any(random),
                capital(&a),
                capital(self.any(random)),
            );
        }
    }

    fn sentence(&self, text: &mut String, random: &mut Random) {
        let mut t = || self.topical(random).to_owned();
        let (a, b, c) = (t(), t(), t());
        let mut x = || self.any(random).to_owned();
        let (x, y, z, w) = (x(), x(), x(), x());
        let sentence = match random.below(8) {
            0 => format!(
                "When the {a} of a {x} is {y}, the {b} has to wait for its {z} and the {c} is never {w}."
            ),
            1 => {
                format!("We tried to {x} the {a} first, but {y} made the {b} slower than the {z} of the {w}.")
            }
            2 => format!("The cause was a {a} that {x} had left in the {b}: it kept {y} until {z} was {w}."),
            3 => format!(
                "Use `{a}_{x}` rather than `{b}{}` because {y} does not know the {c} of {z} and {w}.",
                capital(&x)
            ),
            4 => format!("A {a} without {x} is worse than no {b} at all, since {y} and {z} both {w} it."),
            5 => format!(
                "After {} seconds the {a} gives up with \"{b} {x}\", which {y} takes for {z} in {w}.",
                random.below(90)
            ),
            6 => {
                format!("It holds for {x} and {y} as well, as long as the {a} is {z} before any {b} can {w}.")
            }
            _ => format!("Then {x} the {a}, look at the {b} again, and only {y} when {z} has {w} the {c}."),
        };
        text.push_str(&sentence);
        text.push(' ');
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// Where the product looks for vectors on this machine.
pub(crate) fn cache_of(machine: &Machine) -> PathBuf {
    machine.path(".cache/nugget/vectors.db")
}

pub(crate) fn put_file(brain: &Path, made: &Made) -> Result<()> {
    let path = brain.join(&made.path);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, &made.text)?;
    // As if written an hour ago: a file that is new may change again within the clock's step, and is
    // read once more to be sure.
    let file = fs::File::options().write(true).open(&path)?;
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600))?;
    ensure!(!made.text.is_empty(), "an empty unit");
    Ok(())
}

fn unit_interval(random: &mut Random) -> f32 {
    random.below(1 << 20) as f32 / (1 << 20) as f32
}

/// The sum of twelve even draws, near enough to normal.
fn gaussian(random: &mut Random) -> f32 {
    (0..12).map(|_| unit_interval(random)).sum::<f32>() - 6.0
}

fn normalise(vector: &mut [f32]) {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    vector.iter_mut().for_each(|x| *x /= norm);
}
