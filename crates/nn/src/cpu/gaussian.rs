//! The squashed Gaussian policy head: `a = tanh(u)`, `u = mean + exp(log_std) e`, `e` standard normal.
//!
//! `log pi(a) = sum_i [-e^2/2 - log_std - ln(2 pi)/2 - 2 (ln 2 - u - softplus(-2u))]`. The last term is
//! `ln(1 - tanh(u)^2)` in a form that stays accurate where tanh rounds to 1.

use prudence_core::random::{StreamId, blocks};

use super::Cpu;
use super::vectors::vectorised;
use crate::Scalar;
use crate::work::{Drawn, LogStd, Pass, SampleBackward};

const LN_2: f64 = std::f64::consts::LN_2;
const HALF_LN_2_PI: f64 = 0.918_938_533_204_672_8;

pub(super) fn normals<T: Scalar>(addresses: &[u32], each: usize, out: &mut [T]) {
    const CHUNK: usize = 256; // a whole number of blocks
    for (address, out) in addresses.as_chunks::<6>().0.iter().zip(out.chunks_exact_mut(each)) {
        let (id, mut block) = StreamId::from_address(*address);
        vectorised(
            #[inline(always)]
            || {
                let mut numbers = [0.0; CHUNK];
                for out in out.chunks_mut(CHUNK) {
                    let numbers = &mut numbers[..out.len()];
                    id.normals(block, numbers);
                    out.iter_mut().zip(numbers).for_each(|(out, x)| *out = T::from_f32(*x));
                    block += blocks(CHUNK);
                }
            },
        );
    }
}

/// The number of rows sampled at a time. Values of one dimension are `dim` apart, so vectors run over rows.
const ROWS: usize = 16;

pub(super) fn sample<T: Scalar>(head: &[T], noise: &[T], clip: LogStd, drawn: &mut Drawn<Cpu<T>>) {
    let Drawn { action, log_prob } = drawn;
    let (rows, dim) = (log_prob.len(), action.len() / log_prob.len());
    assert!(
        head.len() == 2 * action.len() && noise.len() == action.len(),
        "{} actions from a head of {} numbers and noise of {}",
        action.len(),
        head.len(),
        noise.len()
    );
    vectorised(
        #[inline(always)]
        || {
            let mut row = 0;
            while row + ROWS <= rows {
                sample_rows::<T, ROWS>(head, noise, clip, action, log_prob, dim, row);
                row += ROWS;
            }
            while row < rows {
                sample_rows::<T, 1>(head, noise, clip, action, log_prob, dim, row);
                row += 1;
            }
        },
    );
}

/// Samples the actions of the rows `first..first + R`.
#[inline(always)]
fn sample_rows<T: Scalar, const R: usize>(
    head: &[T],
    noise: &[T],
    clip: LogStd,
    action: &mut [T],
    log_prob: &mut [T],
    dim: usize,
    first: usize,
) {
    let (min, max, constant) = (T::of(clip.min), T::of(clip.max), T::of(HALF_LN_2_PI + 2.0 * LN_2));
    let (two, half) = (T::of(2.0), T::of(0.5));
    let head = &head[first * 2 * dim..][..R * 2 * dim];
    let noise = &noise[first * dim..][..R * dim];
    let action = &mut action[first * dim..][..R * dim];
    let mut sum = [T::ZERO; R];
    for i in 0..dim {
        let (mut mean, mut log_std, mut e, mut a) = ([T::ZERO; R], [T::ZERO; R], [T::ZERO; R], [T::ZERO; R]);
        for r in 0..R {
            mean[r] = head[r * 2 * dim + i];
            log_std[r] = head[r * 2 * dim + dim + i];
            e[r] = noise[r * dim + i];
        }
        for r in 0..R {
            let log_std = log_std[r].max(min).min(max);
            let u = log_std.exp().fma(e[r], mean[r]);
            a[r] = u.tanh();
            sum[r] += two * (u + (-two * u).softplus()) - half * e[r] * e[r] - log_std - constant;
        }
        for r in 0..R {
            action[r * dim + i] = a[r];
        }
    }
    log_prob[first..first + R].copy_from_slice(&sum);
}

pub(super) fn mode<T: Scalar>(pass: &Pass<Cpu<T>>, action: &mut [T]) {
    let dim = pass.outputs() / 2;
    let heads = pass.output().chunks_exact(2 * dim).take(pass.groups * pass.rows);
    for (head, action) in heads.zip(action.chunks_exact_mut(dim)) {
        for (a, mean) in action.iter_mut().zip(head) {
            *a = mean.tanh();
        }
    }
}

pub(super) fn sample_backward<T: Scalar>(pass: &mut Pass<Cpu<T>>, s: SampleBackward<'_, Cpu<T>>) {
    let (rows, width) = (pass.rows, pass.outputs());
    let dim = width / 2;
    let mean = T::of(1.0 / rows as f64);
    let last = pass.activations.len() - 1;
    let (head, d_head) = (&pass.activations[last], &mut pass.gradients[last]);
    let (min, max, two) = (T::of(s.clip.min), T::of(s.clip.max), T::of(2.0));
    for (p, log_temperature) in s.log_temperature.iter().enumerate() {
        let total = s.weights[p * s.heads..][1..s.heads].iter().fold(s.weights[p * s.heads], |sum, w| sum + *w);
        let d_log_prob = log_temperature.exp() * mean / total;
        let (wide, narrow) = (p * rows * width..(p + 1) * rows * width, p * rows * dim..(p + 1) * rows * dim);
        let (head, d_head) = (&head[wide.clone()], &mut d_head[wide]);
        let (noise, actions) = (&s.noise[narrow.clone()], &s.drawn.action[narrow.clone()]);
        let d_action = &s.action_gradient[narrow];
        vectorised(
            #[inline(always)]
            || {
                let rows = head.chunks_exact(2 * dim).zip(noise.chunks_exact(dim)).zip(actions.chunks_exact(dim));
                let rows = rows.zip(d_action.chunks_exact(dim)).zip(d_head.chunks_exact_mut(2 * dim));
                for ((((head, noise), action), d_action), d_head) in rows {
                    let (d_mean, d_log_std) = d_head.split_at_mut(dim);
                    for i in 0..dim {
                        let raw = head[dim + i];
                        let a = action[i];
                        // d log_prob / du = 2 tanh(u), exactly
                        let du = d_action[i] * (T::ONE - a * a) + d_log_prob * two * a;
                        d_mean[i] = du;
                        let inside = raw >= min && raw <= max;
                        let d = du * raw.max(min).min(max).exp() * noise[i] - d_log_prob;
                        d_log_std[i] = if inside { d } else { T::ZERO };
                    }
                }
            },
        );
    }
}
