//! Every way back against central differences, in f64: the norm of the difference stays below a millionth of the norm.

mod common;

use std::f64::consts::{LN_2, TAU};

use common::{central, distance, dot, numbers};
use prudence_nn::gaussian::{self, LogStd};
use prudence_nn::{Gru, GruWork, Mlp, MlpWork, loss};

const LIMIT: f64 = 1e-6;

fn assert_same_gradient(analytic: &[f64], x: &[f64], f: impl FnMut(&[f64]) -> f64) {
    let error = distance(analytic, &central(x, f));
    assert!(error < LIMIT, "relative error {error:e}");
}

/// A bank of networks, its inputs, and a loss: the sum of the outputs, weighted.
struct Bank {
    mlp: Mlp,
    groups: usize,
    share: usize,
    batch: usize,
    parameters: Vec<f64>,
    x: Vec<f64>,
    weights: Vec<f64>,
}

/// One network, separate inputs, shared inputs; one to three layers.
fn banks() -> Vec<Bank> {
    let shapes = [(&[5, 4][..], 1, 1), (&[6], 3, 1), (&[5, 7], 4, 2), (&[], 2, 2), (&[4, 3], 6, 3)];
    let bank = |(i, (hidden, groups, share)): (usize, (&[usize], usize, usize))| {
        let (mlp, batch, seed) = (Mlp::new(3, hidden, 2), 5, 10 * i as u64);
        Bank {
            parameters: numbers(seed + 1, groups * mlp.parameters(), 0.9),
            x: numbers(seed + 2, groups / share * batch * 3, 1.5),
            weights: numbers(seed + 3, groups * batch * 2, 1.0),
            ..Bank { mlp, groups, share, batch, parameters: vec![], x: vec![], weights: vec![] }
        }
    };
    shapes.into_iter().enumerate().map(bank).collect()
}

impl Bank {
    fn run(&self, parameters: &[f64], x: &[f64]) -> MlpWork<f64> {
        let mut work = MlpWork::new(&self.mlp, self.groups, self.batch);
        self.mlp.forward(parameters, x, self.share, &mut work);
        work.output_gradient().copy_from_slice(&self.weights);
        work
    }

    fn loss(&self, parameters: &[f64], x: &[f64]) -> f64 {
        dot(self.run(parameters, x).output(), &self.weights)
    }

    /// Central differences by the columns of x from `first` on, of each network's own part of the loss: `[G, B, columns]`.
    fn input_differences(&self, first: usize) -> Vec<f64> {
        let (n, per) = (self.mlp.parameters(), self.batch * self.mlp.inputs());
        let of_one = |g: usize| {
            let alone = Bank {
                mlp: self.mlp.clone(),
                groups: 1,
                share: 1,
                batch: self.batch,
                parameters: vec![],
                x: vec![],
                weights: self.weights[g * self.batch * 2..][..self.batch * 2].to_vec(),
            };
            let parameters = &self.parameters[g * n..][..n];
            let all = central(&self.x[g / self.share * per..][..per], |x| alone.loss(parameters, x));
            all.chunks_exact(self.mlp.inputs()).flat_map(|row| row[first..].to_vec()).collect::<Vec<_>>()
        };
        (0..self.groups).flat_map(of_one).collect()
    }
}

#[test]
fn mlp_backward_is_the_gradient_by_the_parameters() {
    for bank in banks() {
        let mut work = bank.run(&bank.parameters, &bank.x);
        let mut gradients = vec![f64::NAN; bank.parameters.len()]; // overwritten, never read
        bank.mlp.backward(&bank.parameters, &bank.x, bank.share, &mut work, &mut gradients);
        assert_same_gradient(&gradients, &bank.parameters, |p| bank.loss(p, &bank.x));
        assert_eq!(work.output_gradient(), bank.weights, "the output gradient stays as it was");
    }
}

#[test]
fn mlp_backward_input_is_the_gradient_by_the_last_columns() {
    for bank in banks() {
        for first in 0..3 {
            let mut work = bank.run(&bank.parameters, &bank.x);
            let mut dx = vec![f64::NAN; bank.groups * bank.batch * (3 - first)];
            bank.mlp.backward_input(&bank.parameters, &mut work, first, &mut dx);
            let error = distance(&dx, &bank.input_differences(first));
            assert!(error < LIMIT, "from column {first}: {error:e}");
        }
    }
}

#[test]
fn mlp_backward_input_leaves_out_rows_without_gradient() {
    let mut bank = banks().remove(0);
    let outputs = bank.mlp.outputs();
    for pattern in [0b0, 0b1, 0b10, 0b1010_1100, 0b0111_1110, usize::MAX] {
        for (i, weights) in bank.weights.chunks_exact_mut(outputs).enumerate() {
            weights.fill(if pattern >> (i % 8) & 1 == 1 { 0.3 } else { 0.0 });
        }
        let mut work = bank.run(&bank.parameters, &bank.x);
        let mut dx = vec![f64::NAN; bank.groups * bank.batch * 2];
        bank.mlp.backward_input(&bank.parameters, &mut work, 1, &mut dx);
        for (analytic, difference) in dx.iter().zip(bank.input_differences(1)) {
            assert!((analytic - difference).abs() < LIMIT, "pattern {pattern:b}: {analytic} {difference}");
        }
    }
}

#[test]
fn mlp_input_gradient_after_backward_is_the_same() {
    for bank in banks() {
        for first in 0..3 {
            let mut work = bank.run(&bank.parameters, &bank.x);
            let mut gradients = vec![0.0; bank.parameters.len()];
            bank.mlp.backward(&bank.parameters, &bank.x, bank.share, &mut work, &mut gradients);
            let mut dx = vec![f64::NAN; bank.groups * bank.batch * (3 - first)];
            bank.mlp.input_gradient(&bank.parameters, &work, first, &mut dx);
            let error = distance(&dx, &bank.input_differences(first));
            assert!(error < LIMIT, "from column {first}: {error:e}");
        }
    }
}

const GRU: Gru = Gru { inputs: 3, hidden: 4 };
const STEPS: usize = 6;
const LENGTHS: [usize; 5] = [6, 1, 4, 3, 6];

/// Weights on every h that a sequence of its length has, `[T + 1, B, H]`; the last h has one only where `last`.
fn gru_weights(last: bool) -> Vec<f64> {
    let (batch, h) = (LENGTHS.len(), GRU.hidden);
    let mut weights = numbers(31, (STEPS + 1) * batch * h, 1.0);
    for (i, w) in weights.iter_mut().enumerate() {
        let (t, b) = (i / (batch * h), i / h % batch);
        if t > LENGTHS[b] || (t == LENGTHS[b] && !last) {
            *w = 0.0;
        }
    }
    weights
}

fn gru_gradients(parameters: &[f64], x: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut work = GruWork::new(&GRU, STEPS, LENGTHS.len());
    let mut gradients = vec![f64::NAN; parameters.len()];
    GRU.forward(parameters, x, &mut work);
    GRU.backward(parameters, x, weights, &mut work, &mut gradients);
    gradients
}

#[test]
fn gru_backward_is_the_gradient_through_time() {
    let parameters = numbers(32, GRU.parameters(), 0.9);
    let x = numbers(33, STEPS * LENGTHS.len() * GRU.inputs, 1.5);
    for last in [true, false] {
        let weights = gru_weights(last);
        assert_same_gradient(&gru_gradients(&parameters, &x, &weights), &parameters, |p| {
            let mut work = GruWork::new(&GRU, STEPS, LENGTHS.len());
            GRU.forward(p, &x, &mut work);
            dot(work.hidden(), &weights)
        });
    }
}

#[test]
fn gru_input_gradient_is_the_gradient_by_the_input() {
    let parameters = numbers(32, GRU.parameters(), 0.9);
    let x = numbers(33, STEPS * LENGTHS.len() * GRU.inputs, 1.5);
    let weights = gru_weights(true);
    let mut work = GruWork::new(&GRU, STEPS, LENGTHS.len());
    GRU.forward(&parameters, &x, &mut work);
    GRU.backward(&parameters, &x, &weights, &mut work, &mut vec![0.0; parameters.len()]);
    let mut dx = vec![f64::NAN; x.len()];
    GRU.input_gradient(&parameters, &work, &mut dx);
    assert_same_gradient(&dx, &x, |x| {
        let mut work = GruWork::new(&GRU, STEPS, LENGTHS.len());
        GRU.forward(&parameters, x, &mut work);
        dot(work.hidden(), &weights)
    });
    for (i, d) in dx.iter().enumerate() {
        let (t, b) = (i / (LENGTHS.len() * GRU.inputs), i / GRU.inputs % LENGTHS.len());
        assert!(t < LENGTHS[b] || *d == 0.0, "nothing flows back to step {t} of sequence {b}");
    }
}

#[test]
fn gru_gradient_ignores_what_lies_past_a_sequences_end() {
    let parameters = numbers(32, GRU.parameters(), 0.9);
    let x = numbers(33, STEPS * LENGTHS.len() * GRU.inputs, 1.5);
    let mut other = x.clone();
    for (i, v) in other.iter_mut().enumerate() {
        let (t, b) = (i / (LENGTHS.len() * GRU.inputs), i / GRU.inputs % LENGTHS.len());
        if t >= LENGTHS[b] {
            *v = 1e3 * (i as f64).sin();
        }
    }
    let weights = gru_weights(true);
    assert_ne!(x, other);
    assert_eq!(gru_gradients(&parameters, &x, &weights), gru_gradients(&parameters, &other, &weights));
}

const CLIP: LogStd = LogStd { min: -1.5, max: 0.5 };

#[test]
fn gaussian_backward_is_the_gradient_inside_and_outside_the_clip() {
    let (batch, dim, d_log_prob) = (7, 2, -0.37);
    // Log-stds on both sides of both ends, none within a difference's step of one.
    let mut head = numbers(41, batch * 2 * dim, 1.2);
    for (row, extra) in head.chunks_exact_mut(2 * dim).zip([-3.0, -1.0, 0.0, 0.2, 1.0, 2.0, -0.4]) {
        row[dim] += extra;
    }
    let log_stds: Vec<f64> = head.chunks_exact(2 * dim).flat_map(|row| row[dim..].to_vec()).collect();
    assert!(log_stds.iter().any(|l| *l < CLIP.min) && log_stds.iter().any(|l| *l > CLIP.max));
    assert!(log_stds.iter().any(|l| (CLIP.min..CLIP.max).contains(l)));
    let (noise, d_action) = (numbers(42, batch * dim, 2.0), numbers(43, batch * dim, 1.0));
    let value = |head: &[f64]| {
        let (mut actions, mut log_prob) = (vec![0.0; batch * dim], vec![0.0; batch]);
        gaussian::sample(head, &noise, CLIP, &mut actions, &mut log_prob);
        (dot(&actions, &d_action) + d_log_prob * log_prob.iter().sum::<f64>(), actions)
    };
    let mut d_head = vec![f64::NAN; head.len()];
    let actions = value(&head).1;
    gaussian::sample_backward(&head, &noise, CLIP, &actions, &d_action, d_log_prob, dim, &mut d_head);
    assert_same_gradient(&d_head, &head, |head| value(head).0);
    for (d, raw) in d_head.chunks_exact(2 * dim).zip(head.chunks_exact(2 * dim)) {
        for i in dim..2 * dim {
            assert_eq!(d[i] == 0.0, raw[i] < CLIP.min || raw[i] > CLIP.max, "log-std {}", raw[i]);
        }
    }
}

/// `d tanh(u) / du = 1 / cosh(u)^2` and `d log pi / du = 2 tanh(u)`, each alone, where tanh is nearly 1.
#[test]
fn gaussian_backward_is_right_where_tanh_saturates() {
    for u in [-10.0f64, -9.0, -4.0, 4.0, 9.0, 10.0] {
        let (head, noise) = ([u, -0.3], [0.0]);
        let (mut action, mut log_prob, mut d_head) = ([0.0], [0.0], [0.0; 2]);
        gaussian::sample(&head, &noise, CLIP, &mut action, &mut log_prob);
        gaussian::sample_backward(&head, &noise, CLIP, &action, &[1.0], 0.0, 1, &mut d_head);
        let exact = u.cosh().powi(-2);
        assert!((d_head[0] - exact).abs() < LIMIT * exact, "u = {u}: {:e}, exact {exact:e}", d_head[0]);
        gaussian::sample_backward(&head, &noise, CLIP, &action, &[0.0], 1.0, 1, &mut d_head);
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
fn gaussian_log_prob_is_exact_where_tanh_saturates() {
    let half_ln_2_pi = 0.5 * TAU.ln();
    for (u, ln_squash) in LN_SQUASH {
        let (log_std, e) = (-0.3, 1.25);
        let exact = -0.5 * e * e - log_std - half_ln_2_pi - ln_squash;
        let mean = u - f64::exp(log_std) * e;
        let (mut action, mut log_prob) = ([0.0], [0.0]);
        gaussian::sample(&[mean, log_std], &[e], CLIP, &mut action, &mut log_prob);
        assert!((log_prob[0] - exact).abs() < 1e-14 * exact.abs().max(1.0), "u = {u}: {} != {exact}", log_prob[0]);
        assert!((action[0] - u.tanh()).abs() < 1e-15);

        // In f32 every term of the sum is rounded: allowed is one epsilon of their sizes, added up.
        let (mean, log_std) = (u as f32, -0.25f32);
        let (mut action, mut log_prob) = ([0.0f32], [0.0f32]);
        gaussian::sample(&[mean, log_std], &[0.0], CLIP, &mut action, &mut log_prob);
        let exact = 0.25 - half_ln_2_pi - ln_squash;
        let error = (f64::from(log_prob[0]) - exact).abs();
        let sizes = 2.0 * u.abs() + 2.0 * f64::ln_1p((-2.0 * u).exp()) + 0.25 + half_ln_2_pi + 2.0 * LN_2;
        assert!(error < f64::from(f32::EPSILON) * sizes, "u = {u} in f32: {} != {exact}", log_prob[0]);
    }
}

#[test]
fn twin_min_sends_the_gradient_to_the_smaller_alone() {
    let n = 9;
    let both = numbers(51, 2 * n, 1.0);
    let f = |x: &[f64]| {
        let mut out = vec![0.0; n];
        loss::twin_min(&x[..n], &x[n..], &mut out);
        -1.7 * out.iter().sum::<f64>()
    };
    let (mut da, mut db) = (vec![f64::NAN; n], vec![f64::NAN; n]);
    loss::twin_min_backward(&both[..n], &both[n..], -1.7, &mut da, &mut db);
    assert!(da.contains(&0.0) && db.contains(&0.0), "both must win somewhere");
    assert_same_gradient(&[da, db].concat(), &both, f);

    let (mut da, mut db) = ([0.0], [0.0]);
    loss::twin_min_backward(&[2.0], &[2.0], 1.0, &mut da, &mut db);
    assert_eq!((da, db), ([1.0], [0.0]), "a tie is counted once");
}

#[test]
fn mse_gives_its_gradient() {
    let (prediction, target) = (numbers(61, 8, 2.0), numbers(62, 8, 2.0));
    let mut gradient = vec![f64::NAN; 8];
    let value = loss::mse(&prediction, &target, &mut gradient);
    let exact = prediction.iter().zip(&target).map(|(p, y)| (p - y).powi(2)).sum::<f64>() / 8.0;
    assert!((value - exact).abs() < 1e-15);
    assert_same_gradient(&gradient, &prediction, |p| loss::mse(p, &target, &mut [0.0; 8]));
}

/// L, `-ln(1 - e^L)` and its derivative, from 1,200 digits (mpmath).
const UNSAFE_LOSS: [(f64, f64, f64); 6] = [
    (-1e-12, 27.631021115929048, 999999999999.5),
    (-1e-06, 13.815511057964233, 999999.5000000834),
    (-0.1, 2.3521684610440907, 9.50833194477505),
    (-LN_2, LN_2, 1.0),
    (-1.0, 0.4586751453870819, 0.5819767068693265),
    (-40.0, 4.248354255291589e-18, 4.248354255291589e-18),
];

#[test]
fn trajectory_cross_entropy_is_exact_from_almost_sure_to_almost_impossible() {
    for (l, exact, exact_slope) in UNSAFE_LOSS {
        let (value, slope) = loss::trajectory_cross_entropy(l, false);
        assert!((value - exact).abs() < 1e-14 * exact, "L = {l}: loss {value:e}, exact {exact:e}");
        assert!((slope - exact_slope).abs() < 1e-14 * exact_slope, "L = {l}: slope {slope:e}, exact {exact_slope:e}");
        assert_eq!(loss::trajectory_cross_entropy(l, true), (-l, -1.0));

        // The loss bends on the scale of L: so small a step.
        let step = 1e-4 * l.abs().min(1.0);
        for safe in [false, true] {
            let at = |l: f64| loss::trajectory_cross_entropy(l, safe).0;
            let difference = (at(l + step) - at(l - step)) / (2.0 * step);
            let slope = loss::trajectory_cross_entropy(l, safe).1;
            assert!((slope - difference).abs() < LIMIT * slope.abs(), "L = {l}, safe: {safe}: {slope} != {difference}");
        }

        let (value, slope) = loss::trajectory_cross_entropy(l as f32, false);
        let (exact, exact_slope) = loss::trajectory_cross_entropy(f64::from(l as f32), false);
        assert!((f64::from(value) - exact).abs() < 1e-7 * exact && (f64::from(slope) / exact_slope - 1.0).abs() < 1e-7);
    }
}

#[test]
fn trajectory_cross_entropy_is_finite_at_certainty() {
    for l in [0.0f64, -0.0, -1e-45, 1e-9] {
        let (loss, slope) = loss::trajectory_cross_entropy(l as f32, false);
        assert!(loss.is_finite() && slope.is_finite(), "f32, L = {l}: {loss}, {slope}");
        let (loss, slope) = loss::trajectory_cross_entropy(l, false);
        assert!(loss.is_finite() && slope.is_finite(), "f64, L = {l}: {loss}, {slope}");
    }
}

/// x, `ln sigmoid(x)` and its derivative, from 1,200 digits (mpmath).
const LOG_SIGMOID: [(f64, f64, f64); 9] = [
    (-700.0, -700.0, 1.0),
    (-40.0, -40.0, 1.0),
    (-2.0, -2.1269280110429727, 0.8807970779778824),
    (-0.001, -0.6936473055599401, 0.5002499999791666),
    (0.0, -LN_2, 0.5),
    (0.5, -0.4740769841801067, 0.37754066879814546),
    (3.0, -0.04858735157374206, 0.04742587317756678),
    (40.0, -4.248354255291589e-18, 4.248354255291589e-18),
    (700.0, -9.85967654375977e-305, 9.85967654375977e-305),
];

#[test]
fn log_sigmoid_is_exact_on_both_sides() {
    for (x, exact, slope) in LOG_SIGMOID {
        let (mut y, mut g) = ([0.0], [1.0]);
        loss::log_sigmoid(&[x], &mut y);
        loss::log_sigmoid_backward(&[x], &mut g);
        assert!((y[0] - exact).abs() < 1e-15 * exact.abs(), "x = {x}: {:e}, exact {exact:e}", y[0]);
        assert!((g[0] - slope).abs() < 1e-15 * slope, "x = {x}: slope {:e}, exact {slope:e}", g[0]);
    }
}

#[test]
fn log_sigmoid_backward_is_the_gradient() {
    let (x, weights) = (numbers(71, 12, 6.0), numbers(72, 12, 1.0));
    let mut gradient = weights.clone();
    loss::log_sigmoid_backward(&x, &mut gradient);
    assert_same_gradient(&gradient, &x, |x| {
        let mut y = vec![0.0; x.len()];
        loss::log_sigmoid(x, &mut y);
        dot(&y, &weights)
    });
}
