//! The forward pass of the built-in model, all-MiniLM-L6-v2.
//!
//! The encoder of BERT (Devlin et al., 2019: <https://arxiv.org/abs/1810.04805>) with 6 layers, and the mean of its token
//! vectors (Reimers and Gurevych, 2019: <https://arxiv.org/abs/1908.10084>). The weights are read in place, from the bytes of the
//! binary: nothing is loaded. Linear layers multiply integers, their inputs rounded to i16; all else is f32. It has no runtime,
//! no graph and no state: any number of threads may share it.

use kernels::{
    INT_WIDTH, IntPanel, IntRows, Panel, WIDTH, add, gelu, layer_norm, multiply, scale_sums, softmax,
};

use crate::error::Error;
use crate::onnx::{Kind, Tensor, tensors};

/// The length of a token's vector.
pub(crate) const HIDDEN: usize = 384;
/// The width of the layer between both linear layers that follow attention.
pub(crate) const INTERMEDIATE: usize = 4 * HIDDEN;
const LAYERS: usize = 6;
const HEADS: usize = 12;
const HEAD: usize = HIDDEN / HEADS;
const TOKENS_MAX: usize = 512;

/// The model's weights.
pub(crate) struct MiniLm {
    words: Table,
    positions: Table,
    /// Of the only segment.
    segment: Vec<f32>,
    embeddings_norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attention: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

/// Rows of `HIDDEN` numbers, each an i8 times the row's scale.
struct Table {
    rows: &'static [[u8; HIDDEN]],
    scales: Vec<f32>,
}

/// A linear layer: `[inputs, outputs]` weights, each an i8 times the output's scale; as `build.rs` has laid them out,
/// `[outputs / WIDTH][inputs / 2]` panels.
struct Linear {
    weights: &'static [IntPanel],
    scales: Vec<f32>,
    bias: Vec<f32>,
}

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// Changes of a layer's linear layers, by fine-tuning.
pub(crate) struct Changes {
    pub(crate) query: LowRank,
    pub(crate) value: LowRank,
    pub(crate) intermediate: LowRank,
    pub(crate) output: LowRank,
}

/// A matrix of low rank: `[inputs, rank]` times `[rank, outputs]`.
pub(crate) struct LowRank {
    pub(crate) rank: usize,
    pub(crate) down: Vec<f32>,
    pub(crate) up: Vec<f32>,
}

impl MiniLm {
    /// Finds the weights in the bytes of the ONNX file.
    pub(crate) fn read(model: &'static [u8]) -> Result<Self, Error> {
        let tensors: Vec<Tensor<'static>> = tensors(model).collect();
        Self::from_tensors(&tensors).ok_or_else(|| Error::Damaged)
    }

    fn from_tensors(tensors: &[Tensor<'static>]) -> Option<Self> {
        let find = |name: &str, kind: Kind| {
            tensors
                .iter()
                .find(|tensor| tensor.name == name && tensor.kind == kind)
                .map(|tensor| tensor.bytes)
        };
        let floats = |name: &str| {
            let bytes = find(name, Kind::F32)?;
            Some(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>())
        };
        let table = |name: &str| {
            let rows = find(&format!("{name}_q"), Kind::I8)?.as_chunks().0;
            let scales = floats(&format!("{name}_s"))?;
            (rows.len() == scales.len()).then_some(Table { rows, scales })
        };
        let norm = |name: &str| {
            let (weight, bias) = (floats(&format!("{name}.weight"))?, floats(&format!("{name}.bias"))?);
            (weight.len() == HIDDEN && bias.len() == HIDDEN).then_some(Norm { weight, bias })
        };
        let linear = |name: &str, inputs: usize| {
            let weights = find(&format!("{name}.weight_t_q"), Kind::I8)?.as_chunks().0;
            let (scales, bias) = (floats(&format!("{name}.weight_t_s"))?, floats(&format!("{name}.bias"))?);
            let fits = weights.len() * 2 * WIDTH == inputs * bias.len()
                && scales.len() == bias.len()
                && bias.len().is_multiple_of(INT_WIDTH);
            fits.then_some(Linear { weights, scales, bias })
        };
        let layer = |number: usize| {
            let name = |part: &str| format!("encoder.layer.{number}.{part}");
            Some(Layer {
                query: linear(&name("attention.self.query"), HIDDEN)?,
                key: linear(&name("attention.self.key"), HIDDEN)?,
                value: linear(&name("attention.self.value"), HIDDEN)?,
                attention: linear(&name("attention.output.dense"), HIDDEN)?,
                attention_norm: norm(&name("attention.output.LayerNorm"))?,
                intermediate: linear(&name("intermediate.dense"), HIDDEN)?,
                output: linear(&name("output.dense"), INTERMEDIATE)?,
                output_norm: norm(&name("output.LayerNorm"))?,
            })
        };
        let mut segment = floats("token_type_embeddings")?;
        segment.truncate(HIDDEN);
        Some(Self {
            words: table("word_embeddings")?,
            positions: table("position_embeddings")?,
            segment,
            embeddings_norm: norm("embeddings.LayerNorm")?,
            layers: (0..LAYERS).map(layer).collect::<Option<_>>()?,
        })
    }

    /// The token vectors, `[tokens, 384] f32`. Tokens beyond the 512th are ignored, and so are those that are not in the
    /// vocabulary.
    pub(crate) fn token_vectors(&self, ids: &[u32]) -> Vec<f32> {
        self.changed_token_vectors(ids, &[])
    }

    /// The token vectors of a model whose last layers are changed.
    pub(crate) fn changed_token_vectors(&self, ids: &[u32], changes: &[Changes]) -> Vec<f32> {
        let rows = ids.iter().filter_map(|&id| self.words.row(id as usize));
        let rows: Vec<Vec<f32>> = rows.take(TOKENS_MAX).collect();
        let mut hidden = rows.concat();
        for (position, row) in hidden.chunks_exact_mut(HIDDEN).enumerate() {
            add(row, &self.segment);
            add(row, &self.positions.row(position).unwrap_or_default());
        }
        self.embeddings_norm.apply(&mut hidden);
        let unchanged = self.layers.len() - changes.len();
        let mut buffers = Buffers::default();
        for (number, layer) in self.layers.iter().enumerate() {
            let changes = number.checked_sub(unchanged).map(|at| &changes[at]);
            layer.apply(&mut hidden, changes, &mut buffers);
        }
        hidden
    }
}

/// The mean of the token vectors, `[384] f32`, not normalised.
pub(crate) fn mean(hidden: &[f32]) -> Vec<f32> {
    let mut mean = vec![0.0; HIDDEN];
    hidden.chunks_exact(HIDDEN).for_each(|row| add(&mut mean, row));
    let tokens = hidden.len() / HIDDEN;
    mean.iter_mut().for_each(|sum| *sum /= tokens.max(1) as f32);
    mean
}

impl Table {
    fn row(&self, index: usize) -> Option<Vec<f32>> {
        let (row, scale) = (self.rows.get(index)?, self.scales[index]);
        Some(row.iter().map(|&byte| f32::from(byte as i8) * scale).collect())
    }
}

impl Norm {
    fn apply(&self, rows: &mut [f32]) {
        rows.chunks_exact_mut(HIDDEN).for_each(|row| layer_norm(row, &self.weight, &self.bias));
    }
}

impl Linear {
    /// `[rows, inputs]` to `[rows, outputs]`.
    fn apply(&self, input: &IntRows, sums: &mut Vec<i32>, output: &mut Vec<f32>) {
        let outputs = self.bias.len();
        let pairs = self.weights.len() * WIDTH / outputs;
        let rows = input.scales().len();
        sums.resize(rows * INT_WIDTH, 0);
        output.resize(rows * outputs, 0.0);
        let (scales, bias) = (self.scales.as_chunks().0, self.bias.as_chunks().0);
        for (number, panels) in self.weights.chunks_exact(2 * pairs).enumerate() {
            input.multiply(panels.split_at(pairs).into(), sums);
            let output = &mut output[number * INT_WIDTH..];
            scale_sums(sums, input.scales(), &scales[number], &bias[number], output, outputs);
        }
    }
}

impl LowRank {
    /// Adds the product of `input`, `[rows, inputs]`, and the matrix to `output`, `[rows, outputs]`.
    pub(crate) fn add(&self, input: &[f32], output: &mut [f32]) {
        let (inputs, outputs) = (self.down.len() / self.rank, self.up.len() / self.rank);
        for (input, output) in input.chunks_exact(inputs).zip(output.chunks_exact_mut(outputs)) {
            let mut inner = vec![0.0; self.rank];
            for (x, row) in input.iter().zip(self.down.chunks_exact(self.rank)) {
                inner.iter_mut().zip(row).for_each(|(sum, weight)| *sum += x * weight);
            }
            for (x, row) in inner.iter().zip(self.up.chunks_exact(outputs)) {
                output.iter_mut().zip(row).for_each(|(sum, weight)| *sum += x * weight);
            }
        }
    }
}

/// What the layers of one pass compute, each in place of what the one before did: of 256 tokens this is 6 MB, which would
/// take as long to get from the system for each layer as attention does.
#[derive(Default)]
struct Buffers {
    rounded: IntRows,
    sums: Vec<i32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    scores: Vec<f32>,
    context: Vec<f32>,
    attended: Vec<f32>,
    inner: Vec<f32>,
}

impl Layer {
    fn apply(&self, hidden: &mut Vec<f32>, changes: Option<&Changes>, buffers: &mut Buffers) {
        let Buffers { rounded, sums, query, key, value, scores, context, attended, inner } = buffers;
        let change = |change: fn(&Changes) -> &LowRank, input: &[f32], output: &mut [f32]| {
            if let Some(changes) = changes {
                change(changes).add(input, output);
            }
        };
        rounded.round(hidden, HIDDEN);
        self.query.apply(rounded, sums, query);
        change(|changes| &changes.query, hidden, query);
        self.key.apply(rounded, sums, key);
        self.value.apply(rounded, sums, value);
        change(|changes| &changes.value, hidden, value);
        attend(query, key, value, scores, context);
        rounded.round(context, HIDDEN);
        self.attention.apply(rounded, sums, attended);
        add(attended, hidden);
        self.attention_norm.apply(attended);
        rounded.round(attended, HIDDEN);
        self.intermediate.apply(rounded, sums, inner);
        change(|changes| &changes.intermediate, attended, inner);
        gelu(inner);
        rounded.round(inner, INTERMEDIATE);
        self.output.apply(rounded, sums, hidden);
        change(|changes| &changes.output, inner, hidden);
        add(hidden, attended);
        self.output_norm.apply(hidden);
    }
}

/// Scaled dot-product attention, head by head: all `[tokens, HIDDEN]`.
fn attend(query: &[f32], key: &[f32], value: &[f32], scores: &mut Vec<f32>, context: &mut Vec<f32>) {
    let tokens = query.len() / HIDDEN;
    let padded = tokens.next_multiple_of(WIDTH);
    context.resize(query.len(), 0.0);
    scores.resize(tokens * padded, 0.0);
    let mut keys: Vec<Panel> = vec![[0.0; WIDTH]; HEAD];
    // Past the last token they stay zero, so that it does not matter what the scores are there.
    let mut values: Vec<Panel> = vec![[0.0; WIDTH]; padded];
    let mut head_query = vec![0.0; tokens * HEAD];
    for start in (0..HIDDEN).step_by(HEAD) {
        for (row, query) in head_query.chunks_exact_mut(HEAD).zip(query.chunks_exact(HIDDEN)) {
            row.copy_from_slice(&query[start..start + HEAD]);
        }
        for (column, block) in key.chunks(WIDTH * HIDDEN).enumerate() {
            for (lane, token) in block.chunks_exact(HIDDEN).enumerate() {
                keys.iter_mut().zip(&token[start..]).for_each(|(panel, x)| panel[lane] = *x);
            }
            multiply(&head_query, HEAD, &keys, &mut scores[column * WIDTH..], padded);
        }
        for scores in scores.chunks_exact_mut(padded) {
            softmax(&mut scores[..tokens], (HEAD as f32).sqrt().recip());
        }
        for column in (start..start + HEAD).step_by(WIDTH) {
            for (panel, token) in values.iter_mut().zip(value.chunks_exact(HIDDEN)) {
                panel.copy_from_slice(&token[column..column + WIDTH]);
            }
            multiply(scores, padded, &values, &mut context[column..], HIDDEN);
        }
    }
}
