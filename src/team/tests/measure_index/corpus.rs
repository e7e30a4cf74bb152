//! A made brain: words by Zipf's law, clustered vectors, both from a seed.
//!
//! The law's numbers are those of documentation and comments of Rust crates in chunks of 110 words: these have 63 different
//! words in a chunk, and 7.6 and 4.4 different pairs of word and bucket for each chunk in buckets of 1,024 and 4,096
//! chunks. Here it is 90, 9.8 and 5.8.

use fastrand::Rng;

/// Units have so many chunks each.
pub(crate) const CHUNKS_PER_UNIT: usize = 4;
const VOCABULARY: usize = 200_000;
const WORDS: std::ops::Range<usize> = 60..160;
pub(crate) const DIMENSIONS: usize = 384;

pub(crate) struct Corpus {
    seed: u64,
    /// Cumulative weights of the words, the commonest first.
    cumulative: Vec<f64>,
    centres: Vec<Vec<f32>>,
}

impl Corpus {
    pub(crate) fn new(seed: u64) -> Self {
        let mut sum = 0.0;
        let cumulative = (0..VOCABULARY)
            .map(|rank| {
                sum += 1.0 / (rank as f64 + 20.0).powf(1.5);
                sum
            })
            .collect();
        let mut random = Rng::with_seed(seed);
        let centres = (0..2_000).map(|_| direction(&mut random)).collect();
        Self { seed, cumulative, centres }
    }

    fn random(&self, chunk: usize, version: u32, salt: u64) -> Rng {
        Rng::with_seed(
            self.seed
                ^ (chunk as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (u64::from(version) << 40).wrapping_mul(31)
                ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03),
        )
    }

    fn word(&self, random: &mut Rng) -> String {
        let at = random.f64() * self.cumulative[VOCABULARY - 1];
        spell(self.cumulative.partition_point(|sum| *sum < at))
    }

    pub(crate) fn words(&self, random: &mut Rng, count: usize) -> String {
        (0..count).map(|_| self.word(random)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn heading(&self, chunk: usize) -> String {
        self.words(&mut self.random(chunk / CHUNKS_PER_UNIT, 0, 1), 8)
    }

    pub(crate) fn text(&self, chunk: usize, version: u32) -> String {
        let mut random = self.random(chunk, version, 2);
        let count = random.usize(WORDS);
        self.words(&mut random, count)
    }

    pub(crate) fn vector(&self, chunk: usize, version: u32) -> Vec<f32> {
        let mut random = self.random(chunk, version, 3);
        self.near(&mut random)
    }

    fn near(&self, random: &mut Rng) -> Vec<f32> {
        let centre = &self.centres[random.usize(0..self.centres.len())];
        let noise = direction(random);
        normalise(centre.iter().zip(noise).map(|(a, b)| a + 1.1 * b).collect())
    }

    /// A question of five to ten words, of which some are common and some are rare, and its vector.
    pub(crate) fn question(&self, number: usize) -> (Vec<String>, Vec<f32>) {
        let mut random = self.random(number, 0, 4);
        let count = random.usize(5..=10);
        let words = (0..count).map(|_| spell((10.0 * 3_000_f64.powf(random.f64())) as usize)).collect();
        (words, self.near(&mut random))
    }

    pub(crate) fn tokens(&self, chunk: usize, count: usize) -> Vec<u8> {
        let mut random = self.random(chunk, 0, 5);
        (0..count * 32).map(|_| random.u8(..)).collect()
    }
}

fn spell(rank: usize) -> String {
    const SYLLABLES: [&str; 32] = [
        "ba", "ko", "lu", "me", "ni", "ra", "to", "zu", "dak", "fel", "gom", "hun", "jat", "kel", "lim",
        "mor", "nup", "pol", "rak", "tem", "vun", "wal", "xi", "yo", "cra", "dri", "plo", "tru", "sko",
        "gle", "fro", "bla",
    ];
    let (mut word, mut rest) = (String::new(), rank + 32);
    while rest > 0 {
        word.push_str(SYLLABLES[rest % 32]);
        rest /= 32;
    }
    word.push('k');
    word
}

fn direction(random: &mut Rng) -> Vec<f32> {
    // Sums of three uniform numbers are near enough to normal ones.
    normalise((0..DIMENSIONS).map(|_| random.f32() + random.f32() + random.f32() - 1.5).collect())
}

fn normalise(mut vector: Vec<f32>) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|x| *x /= norm);
    vector
}
