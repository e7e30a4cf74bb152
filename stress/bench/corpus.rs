//! Generates a synthetic brain of any size from a seed.
//!
//! The words come from the built-in tokenizer's vocabulary, with frequencies by their rank there, in sentences
//! about one or two topics. A topic is a word and its nearest neighbours. Embedding a hundred thousand
//! passages takes an hour, so the vector of a passage is synthetic: the weighted sum of its topic words'
//! vectors, which the real model computes, and some noise. Questions are embedded by the real model, and so
//! find passages of their topic. The vectors are stored in nugget's vector cache, and its own indexer does
//! the rest.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use embed::{Embedder, TOKEN_BYTES, Tokenizer};
use fastrand::Rng;
use index::{ModelLabel, VectorCache, chunk};
use knowledge::{CountTokens as _, Document, Embedding};

use crate::sandbox::Sandbox;

/// Describes the brain in the results.
pub(crate) const SYNTHETIC: &str =
    "synthetic text from a seed; vectors combined from the real model's vectors of single words";

static TOKENIZER: &[u8] = include_bytes!("../../src/embed/weights/tokenizer-256-nopad.json");
/// The first id of a whole word in the tokenizer's vocabulary; the most frequent words come first.
const FIRST_WORD: u64 = 1996;
/// The number of words of a topic.
const TOPIC_WORDS: usize = 14;
const TOPICS_MAX: usize = 400;
const UNITS_OF_TOPIC: usize = 25;
/// Topics use only this many of the most frequent words.
const TOPIC_VOCABULARY: usize = 6_000;
/// The length of the random part of a passage's vector; the part from its words has length 1.
const NOISE: f32 = 0.5;
const PUT_AT_ONCE: usize = 2_000;
/// The vectors of the tokens of more units than these have no room in nugget's vector cache, and are left out.
const UNITS_WITH_TOKENS_MAX: usize = 12_000;
/// The built-in model reads 256, two of which stand for no part of the text.
const TOKENS_READ_MAX: usize = 254;

pub(crate) struct Corpus {
    seed: u64,
    units: usize,
    words: Vec<String>,
    /// Each topic is a list of positions in `words`.
    topics: Vec<Vec<usize>>,
    /// The real model's vectors of all topic words.
    vectors: HashMap<String, Vec<f32>>,
    label: ModelLabel,
    tokenizer: Tokenizer,
}

/// The size of what was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) chunks: usize,
}

/// One file of the brain.
pub(crate) struct UnitFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Corpus {
    /// Chooses the topics and embeds their words; the vectors are cached for the next run.
    pub(crate) fn new(seed: u64, units: usize, embedder: &Embedder) -> Result<Self> {
        let list: serde_json::Value = serde_json::from_slice(TOKENIZER)?;
        let list = list["model"]["vocab"].as_object().context("the tokenizer has no vocabulary")?;
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
        let mut rng = Rng::with_seed(self.seed);
        let table = self.tokenizer.token_table().context("the model shows no vectors of words")?;
        let vocabulary = TOPIC_VOCABULARY.min(self.words.len());
        let pieces: Vec<u32> = self.words[..vocabulary]
            .iter()
            .map(|word| self.tokenizer.token_ids(word).first().copied().unwrap_or(0))
            .collect();
        let count = (self.units / UNITS_OF_TOPIC).clamp(4, TOPICS_MAX);
        let centres: Vec<usize> = (0..count).map(|_| 400 + rng.usize(..vocabulary - 400)).collect();
        let centre_pieces: Vec<u32> = centres.iter().map(|&at| pieces[at]).collect();
        let cosines = table.cosines(&centre_pieces, &pieces);
        Ok(cosines
            .chunks_exact(pieces.len())
            .map(|row| {
                // The first few hundred words occur in every text and belong to no topic.
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
        let new = missing.iter().filter_map(|&at| Some((wanted[at].as_str(), vectors[at].as_ref()?)));
        cache.put(&self.label, new);
        self.vectors = wanted
            .iter()
            .cloned()
            .zip(vectors)
            .filter_map(|(word, found)| Some((word, found?.vector)))
            .collect();
    }

    /// Writes the brain's files, and the vectors of their chunks to the sandbox's cache.
    pub(crate) fn write(&self, sandbox: &Sandbox) -> Result<Written> {
        let brain = sandbox.brain();
        let cache = VectorCache::open(&vector_cache_path(sandbox));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let written = std::thread::scope(|scope| {
            let work = || -> Result<Written> {
                let mut written = Written::default();
                let mut pending: Vec<(String, Embedding)> = Vec::new();
                loop {
                    let nth = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    if nth < self.units {
                        let file = self.unit(nth);
                        written.bytes += file.text.len() as u64;
                        put_file(&brain, &file)?;
                        pending.extend(self.texts(&file)?.into_iter().map(|text| {
                            let embedding = self.embedding(&text);
                            (text, embedding)
                        }));
                    }
                    if pending.len() >= PUT_AT_ONCE || nth >= self.units {
                        written.chunks += pending.len();
                        cache.put(
                            &self.label,
                            pending.iter().map(|(text, embedding)| (text.as_str(), embedding)),
                        );
                        pending.clear();
                    }
                    if nth >= self.units {
                        return Ok(written);
                    }
                }
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        let add = |a: Written, b: Written| Written { bytes: a.bytes + b.bytes, chunks: a.chunks + b.chunks };
        Ok(written.into_iter().fold(Written::default(), add))
    }

    /// Writes the vectors of a file's chunks to the sandbox's cache.
    pub(crate) fn cache_vectors(&self, sandbox: &Sandbox, file: &UnitFile) -> Result<()> {
        let cache = VectorCache::open(&vector_cache_path(sandbox));
        for text in self.texts(file)? {
            cache.put(&self.label, [(text.as_str(), &self.embedding(&text))]);
        }
        Ok(())
    }

    /// The texts that are embedded for the file's chunks.
    pub(crate) fn texts(&self, file: &UnitFile) -> Result<Vec<String>> {
        let document = Document::parse(file.text.clone()).map_err(|error| anyhow::anyhow!(error.what))?;
        let unit = document.unit(&file.path).map_err(|error| anyhow::anyhow!(error.what))?;
        Ok(chunk::chunk(&unit, &self.tokenizer).iter().map(chunk::Piece::embedding_text).collect())
    }

    pub(crate) fn label(&self) -> &ModelLabel {
        &self.label
    }

    /// The synthetic vector of a passage, with random vectors of its tokens.
    pub(crate) fn embedding(&self, text: &str) -> Embedding {
        let mut tokens = Vec::new();
        if self.units <= UNITS_WITH_TOKENS_MAX {
            tokens.resize(self.tokenizer.count(text).min(TOKENS_READ_MAX) * TOKEN_BYTES, 0);
            Rng::with_seed(self.seed ^ text.len() as u64).fill(&mut tokens);
        }
        Embedding { vector: self.vector(text), tokens }
    }

    /// The synthetic vector of a passage: `[dimensions] f32`, L2-normalised.
    pub(crate) fn vector(&self, text: &str) -> Vec<f32> {
        let mut hasher = std::hash::DefaultHasher::new();
        text.hash(&mut hasher);
        let mut rng = Rng::with_seed(self.seed ^ hasher.finish());
        let mut sum = vec![0.0_f32; self.label.dimensions];
        let mut seen = BTreeSet::new();
        for word in text.split(|c: char| !c.is_ascii_alphabetic()) {
            let word = word.to_ascii_lowercase();
            let Some(vector) = self.vectors.get(&word) else { continue };
            // A repeated word counts a little more, and words have different weights.
            let weight = if seen.insert(word) { 0.5 + rng.f32() } else { 0.3 };
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += weight * x);
        }
        normalise(&mut sum);
        let mut noise: Vec<f32> = (0..sum.len()).map(|_| gaussian(&mut rng)).collect();
        normalise(&mut noise);
        sum.iter_mut().zip(noise).for_each(|(sum, x)| *sum += NOISE * x);
        normalise(&mut sum);
        sum
    }

    /// The unit with this number; always the same for the same seed.
    pub(crate) fn unit(&self, nth: usize) -> UnitFile {
        self.unit_edition(nth, 0)
    }

    /// Like [`Corpus::unit`], with a different text for each edition.
    pub(crate) fn unit_edition(&self, nth: usize, edition: u64) -> UnitFile {
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(31).wrapping_add(nth as u64) ^ (edition << 40));
        let rng = &mut rng;
        let topic = Rng::with_seed(self.seed ^ (nth as u64) << 20).usize(..self.topics.len());
        let writer = Writer { corpus: self, topic, second_topic: rng.usize(..self.topics.len()) };
        let kinds = ["pattern", "concept", "decision", "bug", "belief"];
        let kind = kinds[nth % kinds.len()];
        let domain = format!("{}-{}", self.words[self.topics[topic][0]], topic);
        let title = writer.title(rng);
        let id = format!("u{nth}-{}", self.words[self.topics[topic][1]]);
        let mut text = format!(
            "---\nid: {id}\ntype: {kind}\ndomain: {domain}\ntitle: {title}\ntags: [{}, {}]\nconfidence: 0.{}\n\
             source: heuristic\n",
            writer.topical(rng),
            writer.topical(rng),
            5 + rng.u64(..5),
        );
        if nth > 0 && rng.u64(..100) < 40 {
            let other = rng.usize(..nth);
            let other_topic = Rng::with_seed(self.seed ^ (other as u64) << 20).usize(..self.topics.len());
            let word = &self.words[self.topics[other_topic][1]];
            let _ = writeln!(text, "related: [{{id: u{other}-{word}, relation: often_combined_with}}]");
        }
        let _ = write!(
            text,
            "created: 2026-{:02}-{:02}T09:00:00Z\nlast_modified: 2026-10-{:02}T09:00:00Z\n---\n\n# {title}\n\n",
            1 + rng.u64(..9),
            1 + rng.u64(..28),
            1 + rng.u64(..28),
        );
        writer.section(&mut text, rng);
        for _ in 0..2 {
            let _ = write!(text, "## {}\n\n", writer.heading(rng));
            writer.section(&mut text, rng);
        }
        UnitFile { path: format!("domains/{domain}/{kind}s/u{nth}.md"), text }
    }

    /// A question about a random topic.
    pub(crate) fn question(&self, rng: &mut Rng) -> String {
        let topic = rng.usize(..self.topics.len());
        let writer = Writer { corpus: self, topic, second_topic: topic };
        let mut t = || writer.topical(rng).to_owned();
        let (a, b, c, d) = (t(), t(), t(), t());
        match rng.u64(..5) {
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
    second_topic: usize,
}

impl Writer<'_> {
    /// A word of the unit's topic, or rarely of its second one.
    fn topical(&self, rng: &mut Rng) -> &str {
        let topic = if rng.u64(..100) < 85 { self.topic } else { self.second_topic };
        let topic = &self.corpus.topics[topic];
        // The first words of a topic are more frequent.
        let at = rng.usize(..TOPIC_WORDS).min(rng.usize(..TOPIC_WORDS));
        &self.corpus.words[topic[at.min(topic.len() - 1)]]
    }

    /// Any word, with Zipf's frequencies.
    fn any(&self, rng: &mut Rng) -> &str {
        let words = &self.corpus.words;
        let exponent = f64::from(rng.f32());
        let at = (words.len() as f64).powf(exponent) as usize;
        &words[at.min(words.len() - 1)]
    }

    fn title(&self, rng: &mut Rng) -> String {
        let (a, b, x) = (self.topical(rng).to_owned(), self.topical(rng).to_owned(), self.any(rng));
        match rng.u64(..4) {
            0 => format!("Keep the {a} out of the {b} while it is {x}"),
            1 => format!("{a} before {b} in every {x}"),
            2 => format!("The {a} of a {b} must be bounded by its {x}"),
            _ => format!("Prefer {a} to {b} for {x} work"),
        }
    }

    fn heading(&self, rng: &mut Rng) -> String {
        match rng.u64(..4) {
            0 => format!("Why the {} matters", self.topical(rng)),
            1 => format!("When to use {}", self.topical(rng)),
            2 => format!("Limits of the {}", self.topical(rng)),
            _ => format!("How the {} was found", self.topical(rng)),
        }
    }

    /// 60 to 260 words in sentences, sometimes with a list or code.
    fn section(&self, text: &mut String, rng: &mut Rng) {
        for _ in 0..1 + rng.u64(..3) {
            for _ in 0..3 + rng.u64(..4) {
                self.sentence(text, rng);
            }
            text.push_str("\n\n");
        }
        if rng.u64(..100) < 30 {
            for _ in 0..3 {
                let _ =
                    writeln!(text, "- {} the {} with {}", self.any(rng), self.topical(rng), self.any(rng));
            }
            text.push('\n');
        }
        if rng.u64(..100) < 25 {
            let (a, b) = (self.topical(rng).to_owned(), self.topical(rng).to_owned());
            let _ = write!(
                text,
                "```rust\nlet {a} = {b}_{}({});\nif {a}.is_{}() {{ return Err({}Error::{}(\"{b}\")); }}\n```\n\n",
                self.any(rng),
                rng.u64(..1000),
                self.any(rng),
                capital(&a),
                capital(self.any(rng)),
            );
        }
    }

    fn sentence(&self, text: &mut String, rng: &mut Rng) {
        let mut t = || self.topical(rng).to_owned();
        let (a, b, c) = (t(), t(), t());
        let mut x = || self.any(rng).to_owned();
        let (x, y, z, w) = (x(), x(), x(), x());
        let sentence = match rng.u64(..8) {
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
                rng.u64(..90)
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

/// The path of the vector cache that the sandbox's processes use.
pub(crate) fn vector_cache_path(sandbox: &Sandbox) -> PathBuf {
    sandbox.path(".cache/nugget/vectors.db")
}

pub(crate) fn put_file(brain: &Path, file: &UnitFile) -> Result<()> {
    let path = brain.join(&file.path);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, &file.text)?;
    // The file looks an hour old. A new file may change again within the resolution of its timestamp, so the
    // indexer reads it twice.
    let opened = fs::File::options().write(true).open(&path)?;
    opened.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600))?;
    ensure!(!file.text.is_empty(), "an empty unit");
    Ok(())
}

/// The sum of twelve uniform samples, which is close to a normal distribution.
fn gaussian(rng: &mut Rng) -> f32 {
    (0..12).map(|_| rng.f32()).sum::<f32>() - 6.0
}

fn normalise(vector: &mut [f32]) {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    vector.iter_mut().for_each(|x| *x /= norm);
}
