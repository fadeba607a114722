//! The squashed Gaussian policy head: `a = tanh(u)`, `u = mean + exp(log_std) e`, `e` standard normal.
//!
//! `log pi(a) = sum_i [-e^2/2 - log_std - ln(2 pi)/2 - 2 (ln 2 - u - softplus(-2u))]`, the last term being
//! `ln(1 - tanh(u)^2)` in the form that stays exact where tanh has rounded to 1.

use super::{Cpu, vectorised};
use crate::Scalar;
use crate::work::{Drawn, LogStd, Pass, SampleBackward};

const LN_2: f64 = std::f64::consts::LN_2;
const HALF_LN_2_PI: f64 = 0.918_938_533_204_672_8;

pub(super) fn sample<T: Scalar>(head: &[T], noise: &[T], clip: LogStd, drawn: &mut Drawn<Cpu<T>>) {
    let Drawn { action: actions, log_prob } = drawn;
    let dim = actions.len() / log_prob.len();
    assert!(
        head.len() == 2 * actions.len() && noise.len() == actions.len(),
        "{} actions from a head of {} numbers and noise of {}",
        actions.len(),
        head.len(),
        noise.len()
    );
    let (min, max, constant) = (T::of(clip.min), T::of(clip.max), T::of(HALF_LN_2_PI + 2.0 * LN_2));
    let two = T::of(2.0);
    let half = T::of(0.5);
    vectorised(
        #[inline(always)]
        || {
            let rows = head.chunks_exact(2 * dim).zip(noise.chunks_exact(dim)).zip(actions.chunks_exact_mut(dim));
            for (((head, noise), action), log_prob) in rows.zip(log_prob) {
                let (mean, log_std) = head.split_at(dim);
                let mut sum = T::ZERO;
                for i in 0..dim {
                    let log_std = log_std[i].max(min).min(max);
                    let e = noise[i];
                    let u = log_std.exp().fma(e, mean[i]);
                    action[i] = u.tanh();
                    sum += two * (u + (-two * u).softplus()) - half * e * e - log_std - constant;
                }
                *log_prob = sum;
            }
        },
    );
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
