//! The arithmetic of the built-in model and of the search by vectors: plain loops, which the compiler turns into vector instructions, once for each kind
//! of processor; the right one is chosen at run time. A closure in such a function is called number by number, as it is not
//! inlined into a method of the standard library: loops only. The products of integers, which take most of the time, name
//! the instructions that the compiler does not find by itself.
//!
//! A crate of its own, as only this needs the compiler's highest level in a debug build.
//!
//! ```
//! // Two rows of three numbers, times three rows of sixteen.
//! let mut product = vec![0.0; 2 * kernels::WIDTH];
//! let right = [[1.0; kernels::WIDTH], [10.0; kernels::WIDTH], [100.0; kernels::WIDTH]];
//! kernels::multiply(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, &right, &mut product, kernels::WIDTH);
//! assert_eq!((product[0], product[kernels::WIDTH]), (321.0, 654.0));
//! ```
#![warn(missing_docs, clippy::missing_errors_doc)]

use std::ops::Range;

use multiversion::multiversion;
use multiversion::target::{match_target, target_cfg_f};

/// How many columns of a matrix are computed together: two vectors of AVX, four of NEON.
pub const WIDTH: usize = 16;
/// How many columns of integers are computed together.
pub const INT_WIDTH: usize = 2 * WIDTH;
/// How many rows are computed together: their sums just fit into the registers.
const ROWS: usize = 6;
/// The same of integers with the registers of AVX-512, for [`INT_WIDTH`] columns.
const ROWS_VNNI: usize = 14;

/// One row of [`WIDTH`] columns.
pub type Panel = [f32; WIDTH];
/// Two rows of [`WIDTH`] columns of i8: both numbers of a column stand side by side.
pub type IntPanel = [u8; 2 * WIDTH];

/// The tiles of `count` rows: `rows_max` at most, and about as many each.
fn tiles(count: usize, rows_max: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = count.div_ceil(rows_max);
    (0..tiles).map(move |tile| count * tile / tiles..count * (tile + 1) / tiles)
}

/// Calls `tile::<N>` for each tile of `N` rows; the list has every `N` there can be, the largest as a constant.
macro_rules! in_tiles {
    ([$($rows:literal)* $rows_max:ident], $tile:ident, $left:expr, $inner:expr, $right:expr, $output:expr, $stride:expr) => {
        for tile in tiles($left.len() / $inner, $rows_max) {
            let left = &$left[tile.start * $inner..tile.end * $inner];
            let output = &mut $output[tile.start * $stride..];
            match tile.len() {
                $($rows => $tile::<$rows>(left, $right, output, $stride),)*
                _ => $tile::<$rows_max>(left, $right, output, $stride),
            }
        }
    };
}

/// Multiplies `[rows, inner]` by `[inner, WIDTH]`. The result's rows are `stride` apart.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub fn multiply(left: &[f32], inner: usize, right: &[Panel], output: &mut [f32], stride: usize) {
    // Without the instruction, a fused multiplication is a slow function.
    if target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64")) {
        in_tiles!([1 2 3 4 5 ROWS], multiply_fused, left, inner, right, output, stride);
    } else {
        in_tiles!([1 2 3 4 5 ROWS], multiply_plain, left, inner, right, output, stride);
    }
}

#[inline(always)]
fn multiply_fused<const N: usize>(left: &[f32], right: &[Panel], output: &mut [f32], stride: usize) {
    multiply_tile::<N, true>(left, right, output, stride);
}

#[inline(always)]
fn multiply_plain<const N: usize>(left: &[f32], right: &[Panel], output: &mut [f32], stride: usize) {
    multiply_tile::<N, false>(left, right, output, stride);
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
    let right = &right[..inner];
    for k in 0..inner {
        let (panel, _) = right[k].as_chunks();
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

/// Rows of numbers as i16 times a scale of the row.
#[derive(Default)]
pub struct IntRows {
    /// `[tiles][inner / 2][rows of the tile]`, two numbers each, in the order in which they are multiplied. Read in this
    /// order, from one place in memory and without bounds checks, they take three quarters of the time.
    pairs: Vec<Pair>,
    scales: Vec<f32>,
    /// A row before it is put among the others.
    row: Vec<Pair>,
}

/// Two numbers that are multiplied and added in one instruction.
type Pair = [i16; 2];

impl IntRows {
    /// Rounds rows of `inner` numbers, an even count, to as many steps as a sum of their products with i8 has room for:
    /// 32,767 for 384 numbers, 10,922 for 1,536. They take the place of those that were there.
    pub fn round(&mut self, rows: &[f32], inner: usize) {
        let rows_max = if has_vnni() { ROWS_VNNI } else { ROWS };
        self.round_in_tiles(rows, inner, rows_max);
    }

    fn round_in_tiles(&mut self, rows: &[f32], inner: usize, rows_max: usize) {
        let steps = (i32::MAX as usize / (128 * inner)).min(i16::MAX as usize) as f32;
        self.pairs.resize(rows.len() / 2, [0; 2]);
        self.row.resize(inner / 2, [0; 2]);
        self.scales.clear();
        for tile in tiles(rows.len() / inner, rows_max) {
            let pairs = &mut self.pairs[tile.start * inner / 2..tile.end * inner / 2];
            for (n, row) in rows[tile.start * inner..tile.end * inner].chunks_exact(inner).enumerate() {
                self.scales.push(round_row(row, &mut self.row, steps));
                pairs[n..].iter_mut().step_by(tile.len()).zip(&self.row).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// The scale of each row.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Multiplies by `[inner, WIDTH]` twice, for columns that adjoin, to `[rows, INT_WIDTH]`.
    pub fn multiply(&self, right: [&[IntPanel]; 2], output: &mut [i32]) {
        #[cfg(target_arch = "x86_64")]
        if has_vnni() {
            #[expect(
                unsafe_code,
                reason = "multiversion leaves out processors before Ice Lake, where it takes less than half of the time of AVX2"
            )]
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { multiply_ints_vnni(&self.pairs, right[0].len(), right, output) };
        }
        for (half, right) in right.into_iter().enumerate() {
            multiply_ints(&self.pairs, right.len(), right, &mut output[half * WIDTH..]);
        }
    }
}

/// Whether the processor multiplies and adds pairs of integers in vectors of AVX-512.
fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// 1.5 · 2^23: the last bits of its sum with a number below four million are the nearest integer. That is quicker than a
/// cast, which looks for what is too large.
const ROUNDING: f32 = 12_582_912.0;

/// Returns the row's scale.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
fn round_row(row: &[f32], pairs: &mut [Pair], steps: f32) -> f32 {
    let mut largest = [f32::MIN_POSITIVE; LANES];
    let (row, _) = row.as_chunks::<LANES>();
    for numbers in row {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], numbers[lane].abs());
        }
    }
    let scale = largest.iter().copied().fold(0.0, f32::max) / steps;
    let factor = scale.recip();
    let (pairs, _) = pairs.as_flattened_mut().as_chunks_mut::<LANES>();
    for (numbers, rounded) in row.iter().zip(pairs) {
        for lane in 0..LANES {
            rounded[lane] = (numbers[lane] * factor + ROUNDING).to_bits() as i16;
        }
    }
    scale
}

/// The larger of two numbers that are both numbers, by one instruction.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[multiversion(targets("x86_64+avx2", "aarch64+neon"))]
fn multiply_ints(left: &[Pair], inner: usize, right: &[IntPanel], output: &mut [i32]) {
    match_target! {
        "x86_64+avx2" => in_tiles!([1 2 3 4 5 ROWS], multiply_ints_avx2, left, inner, right, output, INT_WIDTH),
        _ => in_tiles!([1 2 3 4 5 ROWS], multiply_ints_tile, left, inner, right, output, INT_WIDTH),
    }
}

#[inline(always)]
fn multiply_ints_tile<const N: usize>(left: &[Pair], right: &[IntPanel], output: &mut [i32], stride: usize) {
    let (left, _) = left.as_chunks::<N>();
    for n in 0..N {
        let mut sums = [0; WIDTH];
        for (pairs, panel) in left.iter().zip(right) {
            let (panel, _) = panel.as_chunks::<2>();
            for column in 0..WIDTH {
                let [a, b] = panel[column].map(|byte| i32::from(byte as i8));
                sums[column] += i32::from(pairs[n][0]) * a + i32::from(pairs[n][1]) * b;
            }
        }
        output[n * stride..][..WIDTH].copy_from_slice(&sums);
    }
}

/// The compiler does not find the instruction for pairs by itself, with which this takes half of the time of f32.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_ints_avx2<const N: usize>(left: &[Pair], right: &[IntPanel], output: &mut [i32], stride: usize) {
    use std::arch::x86_64::{
        _mm_set_epi64x, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_madd_epi16, _mm256_set1_epi32,
        _mm256_setzero_si256,
    };
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (pairs, panel) in left.as_chunks::<N>().0.iter().zip(right) {
        let [a, b, c, d] = quarters(panel);
        let panel = [_mm_set_epi64x(b, a), _mm_set_epi64x(d, c)];
        let panel = [_mm256_cvtepi8_epi16(panel[0]), _mm256_cvtepi8_epi16(panel[1])];
        for n in 0..N {
            let pair = _mm256_set1_epi32(joined(pairs[n]));
            for half in 0..2 {
                sums[n][half] = _mm256_add_epi32(sums[n][half], _mm256_madd_epi16(pair, panel[half]));
            }
        }
    }
    for (n, [low, high]) in sums.into_iter().enumerate() {
        let output = &mut output[n * stride..][..WIDTH];
        output[..8].copy_from_slice(&numbers(low));
        output[8..].copy_from_slice(&numbers(high));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_ints_vnni(left: &[Pair], inner: usize, right: [&[IntPanel]; 2], output: &mut [i32]) {
    in_tiles!(
        [1 2 3 4 5 6 7 8 9 10 11 12 13 ROWS_VNNI],
        multiply_ints_vnni_tile, left, inner, right, output, INT_WIDTH
    );
}

/// [`WIDTH`] columns are multiplied and added by one instruction. With both halves at once a number of `left` is read once for
/// two of them, and even few rows keep the processor busy: a seventh to a third less time than one half after the other.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_ints_vnni_tile<const N: usize>(
    left: &[Pair],
    right: [&[IntPanel]; 2],
    output: &mut [i32],
    stride: usize,
) {
    use std::arch::x86_64::{
        _mm256_set_epi64x, _mm512_cvtepi8_epi16, _mm512_dpwssd_epi32, _mm512_extracti64x4_epi64,
        _mm512_set1_epi32, _mm512_setzero_si512,
    };
    let mut sums = [[_mm512_setzero_si512(); 2]; N];
    for ((pairs, low), high) in left.as_chunks::<N>().0.iter().zip(right[0]).zip(right[1]) {
        let panels = [low, high].map(|panel| {
            let [a, b, c, d] = quarters(panel);
            _mm512_cvtepi8_epi16(_mm256_set_epi64x(d, c, b, a))
        });
        for n in 0..N {
            let pair = _mm512_set1_epi32(joined(pairs[n]));
            for half in 0..2 {
                sums[n][half] = _mm512_dpwssd_epi32(sums[n][half], pair, panels[half]);
            }
        }
    }
    for (n, sums) in sums.into_iter().enumerate() {
        for (half, sum) in sums.into_iter().enumerate() {
            let output = &mut output[n * stride + half * WIDTH..][..WIDTH];
            output[..8].copy_from_slice(&numbers(_mm512_extracti64x4_epi64::<0>(sum)));
            output[8..].copy_from_slice(&numbers(_mm512_extracti64x4_epi64::<1>(sum)));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn quarters(panel: &IntPanel) -> [i64; 4] {
    let (parts, _) = panel.as_chunks::<8>();
    [0, 1, 2, 3].map(|part| i64::from_le_bytes(parts[part]))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn joined(pair: Pair) -> i32 {
    let [x, y] = pair.map(i16::cast_unsigned);
    (u32::from(x) | u32::from(y) << 16).cast_signed()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn numbers(sums: std::arch::x86_64::__m256i) -> [i32; 8] {
    use std::arch::x86_64::_mm256_extract_epi32;
    [
        _mm256_extract_epi32::<0>(sums),
        _mm256_extract_epi32::<1>(sums),
        _mm256_extract_epi32::<2>(sums),
        _mm256_extract_epi32::<3>(sums),
        _mm256_extract_epi32::<4>(sums),
        _mm256_extract_epi32::<5>(sums),
        _mm256_extract_epi32::<6>(sums),
        _mm256_extract_epi32::<7>(sums),
    ]
}

/// How many numbers are multiplied and added at a time; each has a sum of its own.
const DOT_LANES: usize = 32;

/// The inner product of numbers with halves, which are given as their bits (binary16 of IEEE 754) and have to be finite.
#[multiversion(targets("x86_64+avx2+f16c+fma", "aarch64+neon"))]
pub fn dot_halves(numbers: &[f32], halves: &[u16]) -> f32 {
    let ((numbers, numbers_rest), (halves, halves_rest)) =
        (numbers.as_chunks::<DOT_LANES>(), halves.as_chunks::<DOT_LANES>());
    let sums = match_target! {
        "x86_64+avx2+f16c+fma" => dot_lanes_f16c(numbers, halves),
        _ => dot_lanes(numbers, halves),
    };
    let rest: f32 = numbers_rest.iter().zip(halves_rest).map(|(a, b)| a * widened(*b)).sum();
    sums.iter().sum::<f32>() + rest
}

#[inline(always)]
fn dot_lanes(numbers: &[[f32; DOT_LANES]], halves: &[[u16; DOT_LANES]]) -> [f32; DOT_LANES] {
    let mut sums = [0.0_f32; DOT_LANES];
    for (a, b) in numbers.iter().zip(halves) {
        for lane in 0..DOT_LANES {
            sums[lane] += a[lane] * widened(b[lane]);
        }
    }
    sums
}

/// The compiler does not find the instruction that widens halves by itself.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,fma")]
fn dot_lanes_f16c(numbers: &[[f32; DOT_LANES]], halves: &[[u16; DOT_LANES]]) -> [f32; DOT_LANES] {
    use std::arch::x86_64::{
        _mm_set_epi64x, _mm256_castps_si256, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_set_ps,
        _mm256_setzero_ps,
    };
    let mut sums = [_mm256_setzero_ps(); DOT_LANES / 8];
    for (a, b) in numbers.iter().zip(halves) {
        let ((a, _), (b, _)) = (a.as_chunks::<8>(), b.as_chunks::<4>());
        for at in 0..DOT_LANES / 8 {
            let [a0, a1, a2, a3, a4, a5, a6, a7] = a[at];
            let a = _mm256_set_ps(a7, a6, a5, a4, a3, a2, a1, a0);
            let b = _mm_set_epi64x(four_halves(b[2 * at + 1]), four_halves(b[2 * at]));
            sums[at] = _mm256_fmadd_ps(a, _mm256_cvtph_ps(b), sums[at]);
        }
    }
    let mut lanes = [0.0; DOT_LANES];
    for at in 0..DOT_LANES / 8 {
        let bits = self::numbers(_mm256_castps_si256(sums[at]));
        for lane in 0..8 {
            lanes[8 * at + lane] = f32::from_bits(bits[lane].cast_unsigned());
        }
    }
    lanes
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn four_halves(halves: [u16; 4]) -> i64 {
    let [a, b, c, d] = halves;
    (u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48).cast_signed()
}

/// A finite half as f32: in plain arithmetic, which becomes vector instructions.
#[inline(always)]
fn widened(half: u16) -> f32 {
    /// 2 to the difference of the exponents' biases, 127 and 15.
    const BIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    // Exponent and fraction go to where an f32 has them; of the copies of the sign only the first is kept.
    let bits = (i32::from(half.cast_signed()) << 13) & !0x7000_0000;
    f32::from_bits(bits.cast_unsigned()) * BIAS
}

/// Adds `x` to `sum`, number by number.
pub fn add(sum: &mut [f32], x: &[f32]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
}

/// Writes columns of a linear layer: `sums`, `[rows, INT_WIDTH]`, times the scales of the outputs and of the rows, and the
/// bias. The result's rows are `stride` apart.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub fn scale_sums(
    sums: &[i32],
    row_scales: &[f32],
    scales: &[f32; INT_WIDTH],
    bias: &[f32; INT_WIDTH],
    output: &mut [f32],
    stride: usize,
) {
    let (sums, _) = sums.as_chunks::<INT_WIDTH>();
    for (row, (sums, row_scale)) in sums.iter().zip(row_scales).enumerate() {
        let output = &mut output[row * stride..][..INT_WIDTH];
        for at in 0..INT_WIDTH {
            output[at] = sums[at] as f32 * (scales[at] * row_scale) + bias[at];
        }
    }
}

/// Layer normalisation with the epsilon of BERT, 1e-12, of a row whose length is a multiple of eight.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32]) {
    let count = row.len() as f32;
    let (numbers, _) = row.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for numbers in numbers {
        for lane in 0..LANES {
            sums[lane] += numbers[lane];
        }
    }
    let mean = sums.iter().sum::<f32>() / count;
    let mut squares = [0.0; LANES];
    for numbers in numbers {
        for lane in 0..LANES {
            squares[lane] += (numbers[lane] - mean) * (numbers[lane] - mean);
        }
    }
    let variance = squares.iter().sum::<f32>() / count;
    let scale = (variance + 1e-12).sqrt().recip();
    for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
        *x = (*x - mean) * scale * weight + bias;
    }
}

/// The softmax of a row times `scale`.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub fn softmax(row: &mut [f32], scale: f32) {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let (numbers, rest) = row.as_chunks::<LANES>();
    for numbers in numbers {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], numbers[lane]);
        }
    }
    let max = largest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    let (numbers, rest) = row.as_chunks_mut::<LANES>();
    for numbers in numbers {
        for lane in 0..LANES {
            numbers[lane] = exp((numbers[lane] - max) * scale);
            sums[lane] += numbers[lane];
        }
    }
    for x in rest.iter_mut() {
        *x = exp((*x - max) * scale);
    }
    let factor = sums.iter().chain(rest.iter()).sum::<f32>().recip();
    for x in row {
        *x *= factor;
    }
}

/// The Gaussian error linear unit, x Φ(x), with the exact Φ.
#[multiversion(targets("x86_64+avx2+fma", "aarch64+neon"))]
pub fn gelu(values: &mut [f32]) {
    for x in values {
        *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// e^x for x ≤ 0, to 2e-7 of the value; 0 below -87. Range reduction by ln 2, then the polynomial of Cephes' `expf`.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = larger(x, -87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDING;
    let power = rounded - ROUNDING;
    let r = x - power * LN_2_HIGH - power * LN_2_LOW;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 0.166_666_66;
    let p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    value * f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1.
    fn random_numbers(count: usize) -> Vec<f32> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_product_of_rounded_rows_is_near_that_of_numbers() {
        const INNER: usize = 1536;
        for rows in [1, 5, 6, 7, 12, 13, 14, 15, 25] {
            let left = random_numbers(rows * INNER);
            let weights: Vec<i8> =
                random_numbers(INNER * INT_WIDTH).iter().map(|x| (x * 127.0) as i8).collect();
            let panels: Vec<IntPanel> = weights
                .chunks_exact(2 * WIDTH)
                .map(|two| std::array::from_fn(|at| two[at % 2 * WIDTH + at / 2].cast_unsigned()))
                .collect();
            let right = panels.split_at(INNER / 2);
            let [mut rounded, mut other] = [IntRows::default(), IntRows::default()];
            rounded.round(&left, INNER);
            let [mut found, mut by_six, mut plain] = [0, 1, 2].map(|_| vec![0; rows * INT_WIDTH]);
            rounded.multiply(right.into(), &mut found);
            other.round_in_tiles(&left, INNER, ROWS);
            for (half, right) in [right.0, right.1].into_iter().enumerate() {
                multiply_ints(&other.pairs, INNER / 2, right, &mut by_six[half * WIDTH..]);
                let tile = &mut plain[half * WIDTH..];
                in_tiles!([1 2 3 4 5 ROWS], multiply_ints_tile, other.pairs, INNER / 2, right, tile, INT_WIDTH);
            }
            assert_eq!((&found, &by_six), (&plain, &plain), "{rows} rows: all ways add up the same integers");
            for (row, numbers) in left.chunks_exact(INNER).enumerate() {
                for column in 0..INT_WIDTH {
                    let weights = &weights[column / WIDTH * INNER * WIDTH + column % WIDTH..];
                    let product = numbers
                        .iter()
                        .zip(weights.iter().step_by(WIDTH))
                        .map(|(x, weight)| x * f32::from(*weight));
                    let (exact, found) = (product.sum::<f32>(), found[row * INT_WIDTH + column] as f32);
                    let error = (found * rounded.scales()[row] - exact).abs();
                    // Half a step for each number, of random sign: 4 standard deviations.
                    assert!(
                        error < 4.0 * 127.0 / 8192.0 * (INNER as f32).sqrt() * 0.3,
                        "{exact} is off by {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        for inner in [384, 1536] {
            let mut rounded = IntRows::default();
            rounded.round(&vec![1.0; inner], inner);
            let mut sums = [0; INT_WIDTH];
            let right = vec![[0x80; 2 * WIDTH]; inner / 2];
            rounded.multiply([&right, &right], &mut sums);
            assert!(
                sums.iter()
                    .all(|sum| (*sum as f32 * rounded.scales()[0] / (-128.0 * inner as f32) - 1.0).abs()
                        < 1e-3)
            );
        }
    }

    #[test]
    fn a_row_of_zeros_stays_zero() {
        let mut rounded = IntRows::default();
        rounded.round(&[0.0; 384], 384);
        let mut sums = [1; INT_WIDTH];
        let right = vec![[1; 2 * WIDTH]; 192];
        rounded.multiply([&right, &right], &mut sums);
        assert_eq!(sums, [0; INT_WIDTH]);
    }
}
