//! The policy's head: gradients against central differences in f64, and exact log-probabilities where tanh saturates.

mod common;

use std::f64::consts::{LN_2, TAU};

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{Drawn, LogStd, SampleBackward};
use prudence_nn::{Cpu, Device as _, Scalar};

const CLIP: LogStd = LogStd { min: -1.5, max: 0.5 };

/// Actions of `agents` agents, all their rows together.
fn sample<T: Scalar>(head: &[T], noise: &[T], agents: usize, dim: usize, clip: LogStd) -> Drawn<Cpu<T>> {
    let (d, rows) = (Cpu::new(), noise.len() / dim);
    let mut drawn = Drawn::new(&d, rows, dim).unwrap();
    d.sample(&pass_with_output(head, agents, rows / agents, 2 * dim), &Buffer::from(noise), clip, &mut drawn);
    drawn
}

/// What the loss is made of, beside the head and the noise.
struct Loss<T> {
    d_action: Vec<T>,
    /// Of each agent.
    log_temperature: Vec<T>,
}

impl<T: Scalar> Loss<T> {
    fn d_head(&self, head: &[T], noise: &[T], dim: usize, clip: LogStd) -> Vec<T> {
        let (agents, rows) = (self.log_temperature.len(), noise.len() / dim);
        let drawn = sample(head, noise, agents, dim, clip);
        let mut pass = pass_with_output(head, agents, rows / agents, 2 * dim);
        *pass.output_gradient() = unwritten(head.len());
        let s = SampleBackward {
            noise: &Buffer::from(noise),
            clip,
            drawn: &drawn,
            action_gradient: &Buffer::from(&self.d_action[..]),
            log_temperature: &Buffer::from(&self.log_temperature[..]),
        };
        Cpu::new().sample_backward(&mut pass, s);
        pass.output_gradient().to_vec()
    }
}

#[test]
fn sample_backward_is_the_gradient_inside_and_outside_the_clip() {
    let (agents, rows, dim) = (3, 7, 2);
    // Log-stds on both sides of both ends, none within a difference's step of one.
    let mut head = numbers(41, agents * rows * 2 * dim, 1.2);
    for (row, extra) in head.chunks_exact_mut(2 * dim).zip([-3.0, -1.0, 0.0, 0.2, 1.0, 2.0, -0.4].into_iter().cycle()) {
        row[dim] += extra;
    }
    let log_stds: Vec<f64> = head.chunks_exact(2 * dim).flat_map(|row| row[dim..].to_vec()).collect();
    assert!(log_stds.iter().any(|l| *l < CLIP.min) && log_stds.iter().any(|l| *l > CLIP.max));
    assert!(log_stds.iter().any(|l| (CLIP.min..CLIP.max).contains(l)));
    assert!(log_stds.iter().all(|l| (l - CLIP.min).abs() > 1e-4 && (l - CLIP.max).abs() > 1e-4));
    let noise = numbers(42, agents * rows * dim, 2.0);
    let loss = Loss { d_action: numbers(43, agents * rows * dim, 1.0), log_temperature: vec![-0.4, 0.3, -2.0] };
    // alpha log pi, averaged over an agent's rows; and what the critics say.
    let value = |head: &[f64]| {
        let drawn = sample(head, &noise, agents, dim, CLIP);
        let of_agent = |agent: usize| {
            let mean = drawn.log_prob[agent * rows..][..rows].iter().sum::<f64>() / rows as f64;
            loss.log_temperature[agent].exp() * mean
        };
        dot(&drawn.action, &loss.d_action) + (0..agents).map(of_agent).sum::<f64>()
    };
    let d_head = loss.d_head(&head, &noise, dim, CLIP);
    assert_same_gradient(&d_head, &head, value);
    for (d, raw) in d_head.chunks_exact(2 * dim).zip(head.chunks_exact(2 * dim)) {
        for i in dim..2 * dim {
            assert_eq!(d[i] == 0.0, raw[i] < CLIP.min || raw[i] > CLIP.max, "log-std {}", raw[i]);
        }
    }
}

/// `d tanh(u) / du = 1 / cosh(u)^2` and `d log pi / du = 2 tanh(u)`, each alone, where tanh is nearly 1.
#[test]
fn sample_backward_is_right_where_tanh_saturates() {
    for u in [-10.0f64, -9.0, -4.0, 4.0, 9.0, 10.0] {
        let alone = |d_action: f64, temperature: f64| {
            let log_temperature = vec![temperature.ln()];
            Loss { d_action: vec![d_action], log_temperature }.d_head(&[u, -0.3], &[0.0], 1, CLIP)
        };
        let (exact, d_head) = (u.cosh().powi(-2), alone(1.0, 0.0));
        assert!((d_head[0] - exact).abs() < GRADIENT_LIMIT * exact, "u = {u}: {:e}, exact {exact:e}", d_head[0]);
        let d_head = alone(0.0, 1.0);
        assert!((d_head[0] - 2.0 * u.tanh()).abs() < 1e-12 && (d_head[1] + 1.0).abs() < 1e-12);
    }
}

/// `ln(1 - tanh(u)^2)` from 1,200 digits (mpmath).
const LN_SQUASH: [(f64, f64); 14] = [
    (-40.0, -78.6137056388801),
    (-10.0, -18.613705643002415),
    (-9.5, -17.613705650085702),
    (-3.0, -4.61865700915557),
    (-0.7, -0.45454045871701115),
    (-0.001, -9.999998333333779e-07),
    (0.0, 0.0),
    (1e-06, -9.999999999998332e-13),
    (0.25, -0.061859607240322745),
    (1.0, -0.8675616609660544),
    (5.0, -8.613796436678543),
    (10.0, -18.613705643002415),
    (19.5, -37.61370563888011),
    (300.0, -598.6137056388801),
];

#[test]
fn log_prob_is_exact_where_tanh_saturates() {
    let half_ln_2_pi = 0.5 * TAU.ln();
    for (u, ln_squash) in LN_SQUASH {
        let (log_std, e) = (-0.3, 1.25);
        let exact = -0.5 * e * e - log_std - half_ln_2_pi - ln_squash;
        let mean = u - f64::exp(log_std) * e;
        let drawn = sample(&[mean, log_std], &[e], 1, 1, CLIP);
        let log_prob = drawn.log_prob[0];
        assert!((log_prob - exact).abs() < 1e-14 * exact.abs().max(1.0), "u = {u}: {log_prob} != {exact}");
        assert!((drawn.action[0] - u.tanh()).abs() < 1e-15);

        // In f32 every term of the sum is rounded: allowed is one epsilon of their sizes, added up.
        let drawn = sample(&[u as f32, -0.25], &[0.0], 1, 1, CLIP);
        let exact = 0.25 - half_ln_2_pi - ln_squash;
        let error = (f64::from(drawn.log_prob[0]) - exact).abs();
        let sizes = 2.0 * u.abs() + 2.0 * f64::ln_1p((-2.0 * u).exp()) + 0.25 + half_ln_2_pi + 2.0 * LN_2;
        assert!(error < f64::from(f32::EPSILON) * sizes, "u = {u} in f32: {} != {exact}", drawn.log_prob[0]);
    }
}

/// Actions, log-probabilities, the gradient by the head.
fn run<T: Scalar>() -> [Vec<T>; 3] {
    let (rows, dim, clip) = (40, 3, LogStd { min: -2.0, max: 1.0 });
    let (head, noise) = (cast::<T>(&numbers(21, rows * 2 * dim, 2.5)), cast::<T>(&numbers(22, rows * dim, 2.0)));
    let drawn = sample(&head, &noise, 1, dim, clip);
    let loss =
        Loss { d_action: cast(&numbers(23, rows * dim, 1.0)), log_temperature: vec![T::of((0.6 * rows as f64).ln())] };
    [drawn.action.to_vec(), drawn.log_prob.to_vec(), loss.d_head(&head, &noise, dim, clip)]
}

#[test]
fn f32_equals_f64() {
    run::<f32>().iter().zip(run::<f64>()).for_each(|(x, exact)| assert_close_in_f32(x, &exact));
}

fn a_row_alone_equals_the_row_in_a_batch<T: Scalar>() {
    let (rows, dim) = (41, 3);
    let (head, noise) = (cast::<T>(&numbers(21, rows * 2 * dim, 2.5)), cast::<T>(&numbers(22, rows * dim, 2.0)));
    let together = sample(&head, &noise, 1, dim, CLIP);
    for row in 0..rows {
        let alone = sample(&head[row * 2 * dim..][..2 * dim], &noise[row * dim..][..dim], 1, dim, CLIP);
        assert_eq!(bits(&alone.action), bits(&together.action[row * dim..][..dim]), "row {row}");
        assert_eq!(bits(&alone.log_prob), bits(&together.log_prob[row..=row]), "row {row}");
    }
}

#[test]
fn a_row_alone_gives_the_bits_that_it_has_in_a_batch() {
    a_row_alone_equals_the_row_in_a_batch::<f32>();
    a_row_alone_equals_the_row_in_a_batch::<f64>();
}

#[test]
fn the_mode_is_the_action_without_noise() {
    let (rows, dim) = (19, 3);
    let head = numbers(24, rows * 2 * dim, 2.0);
    let (d, mut mode) = (Cpu::new(), unwritten::<f64>(rows * dim));
    d.mode(&pass_with_output(&head, 1, rows, 2 * dim), &mut mode);
    assert_eq!(mode[..], sample(&head, &vec![0.0; rows * dim], 1, dim, CLIP).action[..]);
}
