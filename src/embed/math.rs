//! The arithmetic of the built-in model: plain loops, which the compiler turns into vector instructions, once for each kind
//! of processor; the right one is chosen at run time. A closure in such a function is called number by number, as it is not
//! inlined into a method of the standard library: loops only.

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

/// How many columns of a matrix are computed together: two vectors of AVX, four of NEON.
pub(crate) const WIDTH: usize = 16;
/// How many columns are widened together: i8 in one line of the cache. With fewer, a line would be fetched several times.
pub(crate) const BLOCK: usize = 64;
/// How many rows are computed together: their sums just fit into the registers.
const ROWS: usize = 6;

/// One row of [`WIDTH`] columns.
pub(crate) type Panel = [f32; WIDTH];

/// Multiplies `[rows, inner]` by `[inner, WIDTH]`. The result's rows are `stride` apart.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub(crate) fn multiply(left: &[f32], inner: usize, right: &[Panel], output: &mut [f32], stride: usize) {
    // Without the instruction, a fused multiplication is a slow function.
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let count = left.len() / inner;
    let tiles = count.div_ceil(ROWS);
    for tile in 0..tiles {
        let (start, end) = (count * tile / tiles, count * (tile + 1) / tiles);
        let (left, output) = (&left[start * inner..end * inner], &mut output[start * stride..]);
        match end - start {
            1 => multiply_tile::<1, FUSED>(left, right, output, stride),
            2 => multiply_tile::<2, FUSED>(left, right, output, stride),
            3 => multiply_tile::<3, FUSED>(left, right, output, stride),
            4 => multiply_tile::<4, FUSED>(left, right, output, stride),
            5 => multiply_tile::<5, FUSED>(left, right, output, stride),
            _ => multiply_tile::<ROWS, FUSED>(left, right, output, stride),
        }
    }
}

#[inline(always)]
fn multiply_tile<const N: usize, const FUSED: bool>(
    left: &[f32],
    right: &[Panel],
    output: &mut [f32],
    stride: usize,
) {
    let inner = left.len() / N;
    let rows: [&[f32]; N] = std::array::from_fn(|n| &left[n * inner..][..inner]);
    let mut sums = [[Lanes([0.0; LANES]); WIDTH / LANES]; N];
    for (k, panel) in right[..inner].iter().enumerate() {
        let (panel, _) = panel.as_chunks();
        for n in 0..N {
            for lane in 0..WIDTH / LANES {
                sums[n][lane] = sums[n][lane].plus_product::<FUSED>(rows[n][k], Lanes(panel[lane]));
            }
        }
    }
    for (n, sums) in sums.iter().enumerate() {
        for (target, sum) in output[n * stride..][..WIDTH].chunks_exact_mut(LANES).zip(sums) {
            target.copy_from_slice(&sum.0);
        }
    }
}

const LANES: usize = 8;

/// A vector of the processor; as an array of its own it stays in a register.
#[derive(Clone, Copy)]
struct Lanes([f32; LANES]);

impl Lanes {
    #[inline(always)]
    fn plus_product<const FUSED: bool>(self, factor: f32, x: Self) -> Self {
        Self(std::array::from_fn(|n| match FUSED {
            true => factor.mul_add(x.0[n], self.0[n]),
            false => factor * x.0[n] + self.0[n],
        }))
    }
}

/// Takes [`BLOCK`] columns, from `column` on, of a matrix of i8 with `columns` columns: [`BLOCK`] / [`WIDTH`] panels, each
/// with all rows.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub(crate) fn widen(matrix: &[u8], columns: usize, column: usize, panels: &mut [Panel]) {
    let rows = matrix.len() / columns;
    for (at, row) in matrix.chunks_exact(columns).enumerate() {
        let (bytes, _) = row[column..column + BLOCK].as_chunks();
        for (panel, bytes) in bytes.iter().enumerate() {
            let bytes: &[u8; WIDTH] = bytes;
            for (x, &byte) in panels[panel * rows + at].iter_mut().zip(bytes) {
                *x = f32::from(byte as i8);
            }
        }
    }
}

/// Adds `x` to `sum`, number by number.
pub(crate) fn add(sum: &mut [f32], x: &[f32]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
}

/// Layer normalisation with the epsilon of BERT, 1e-12.
pub(crate) fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32]) {
    let count = row.len() as f32;
    let mean = row.iter().sum::<f32>() / count;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
    let scale = (variance + 1e-12).sqrt().recip();
    for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
        *x = (*x - mean) * scale * weight + bias;
    }
}

/// The softmax of a row times `scale`.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub(crate) fn softmax(row: &mut [f32], scale: f32) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for x in row.iter_mut() {
        *x = exp((*x - max) * scale);
    }
    let factor = row.iter().sum::<f32>().recip();
    for x in row {
        *x *= factor;
    }
}

/// The Gaussian error linear unit, x Φ(x), with the exact Φ.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub(crate) fn gelu(values: &mut [f32]) {
    for x in values {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// e^x for x ≤ 0, to 2e-7 of the value; 0 below -87. Range reduction by ln 2, then the polynomial of Cephes' `expf`.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.max(-87.0);
    let power = (x * std::f32::consts::LOG2_E + 0.5).floor();
    let r = x - power * LN_2_HIGH - power * LN_2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    value * f32::from_bits(((power as i32 + 127) << 23) as u32)
}

/// The error function, to 2e-7: Abramowitz and Stegun, 7.1.26.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * a);
    let p = 1.061_405_4;
    let p = p * t - 1.453_152_1;
    let p = p * t + 1.421_413_8;
    let p = p * t - 0.284_496_73;
    let p = p * t + 0.254_829_6;
    (1.0 - p * t * exp(-a * a)).copysign(x)
}
