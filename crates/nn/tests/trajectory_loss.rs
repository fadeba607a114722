//! The loss of a safety model: exact from almost sure to almost impossible, and its gradient against central differences.

mod common;

use std::f64::consts::LN_2;

use common::*;
use prudence_nn::cpu::trajectory_cross_entropy;
use prudence_nn::work::TrajectoryLoss;
use prudence_nn::{Cpu, Device as _, Scalar};

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
fn cross_entropy_is_exact_from_almost_sure_to_almost_impossible() {
    for (l, exact, exact_slope) in UNSAFE_LOSS {
        let (value, slope) = trajectory_cross_entropy(l, false);
        assert!((value - exact).abs() < 1e-14 * exact, "L = {l}: loss {value:e}, exact {exact:e}");
        assert!((slope - exact_slope).abs() < 1e-14 * exact_slope, "L = {l}: slope {slope:e}, exact {exact_slope:e}");
        assert_eq!(trajectory_cross_entropy(l, true), (-l, -1.0));

        // The loss bends on the scale of L: so small a step.
        let step = 1e-4 * l.abs().min(1.0);
        for safe in [false, true] {
            let at = |l: f64| trajectory_cross_entropy(l, safe).0;
            let difference = (at(l + step) - at(l - step)) / (2.0 * step);
            let (slope, limit) = (trajectory_cross_entropy(l, safe).1, GRADIENT_LIMIT);
            assert!((slope - difference).abs() < limit * slope.abs(), "L = {l}, safe: {safe}: {slope} != {difference}");
        }

        let (value, slope) = trajectory_cross_entropy(l as f32, false);
        let (exact, exact_slope) = trajectory_cross_entropy(f64::from(l as f32), false);
        assert!((f64::from(value) - exact).abs() < 1e-7 * exact && (f64::from(slope) / exact_slope - 1.0).abs() < 1e-7);
    }
}

#[test]
fn cross_entropy_is_finite_at_certainty() {
    for l in [0.0f64, -0.0, -1e-45, 1e-9] {
        let (loss, slope) = trajectory_cross_entropy(l as f32, false);
        assert!(loss.is_finite() && slope.is_finite(), "f32, L = {l}: {loss}, {slope}");
        let (loss, slope) = trajectory_cross_entropy(l, false);
        assert!(loss.is_finite() && slope.is_finite(), "f64, L = {l}: {loss}, {slope}");
    }
}

/// Loss and gradient by the logits, `[G, T, N]`.
fn run<T: Scalar>(logits: &[T], labels: &[f64], scale: &[f64], steps: usize, rows: usize) -> (Vec<T>, Vec<T>) {
    let (d, groups) = (Cpu::new(), scale.len());
    let mut pass = pass_with_output(logits, groups, steps * rows, 1);
    *pass.output_gradient() = unwritten(logits.len());
    let mut loss = unwritten(groups);
    let t = TrajectoryLoss { labels: &buffer(labels), scale: &buffer(scale), steps, rows };
    d.trajectory_loss(t, &mut pass, &mut loss);
    (loss.to_vec(), pass.output_gradient().to_vec())
}

fn log_prob<T: Scalar>(logits: &[T]) -> Vec<T> {
    let mut out = unwritten(logits.len());
    Cpu::new().log_prob(&pass_with_output(logits, 1, logits.len(), 1), 1, &mut out);
    out.to_vec()
}

/// x, `ln sigmoid(x)` and its derivative, from 1,200 digits (mpmath). Beyond 46 a logit is as sure as can be, so that
/// neither becomes denormal in f32.
const LOG_SIGMOID: [(f64, f64, f64); 10] = [
    (-700.0, -700.0, 1.0),
    (-40.0, -40.0, 1.0),
    (-2.0, -2.1269280110429727, 0.8807970779778824),
    (-0.001, -0.6936473055599401, 0.5002499999791666),
    (0.0, -LN_2, 0.5),
    (0.5, -0.4740769841801067, 0.37754066879814546),
    (3.0, -0.04858735157374206, 0.04742587317756678),
    (40.0, -4.248354255291589e-18, 4.248354255291589e-18),
    (46.0, -1.0530617357553812e-20, 1.0530617357553812e-20),
    (700.0, -1.0530617357553812e-20, 1.0530617357553812e-20),
];

#[test]
fn log_sigmoid_is_exact_on_both_sides() {
    for (x, exact, slope) in LOG_SIGMOID {
        let y = log_prob(&[x])[0];
        assert!((y - exact).abs() < 1e-15 * exact.abs(), "x = {x}: {y:e}, exact {exact:e}");
        // Minus the log-probability of a single step is the loss of calling it safe.
        let (loss, gradient) = run(&[x], &[1.0], &[1.0], 1, 1);
        assert_eq!(loss, [-y]);
        assert!((-gradient[0] - slope).abs() < 1e-15 * slope, "x = {x}: slope {:e}, exact {slope:e}", gradient[0]);
    }
}

#[test]
fn log_sigmoid_stays_normal_at_certainty() {
    for x in [20.0, 46.0, 50.0, 90.0, 1e4, 3e38] {
        let y = log_prob(&[x as f32])[0];
        assert!(y < 0.0 && y.is_normal(), "x = {x}: {y:e}");
    }
}

#[test]
fn the_gradient_reaches_every_step_of_every_labelled_prefix() {
    let (groups, steps, rows) = (2, 8, 5);
    let logits = numbers(71, groups * steps * rows, 3.0);
    // Of every kind: no label, safe, unsafe; sequences without any label too.
    let mut labels: Vec<f64> = numbers(72, logits.len(), 1.5).iter().map(|x| x.round()).collect();
    labels.iter_mut().skip(3).step_by(rows).for_each(|label| *label = 0.0);
    let scale = [0.05, 0.2];
    let (loss, gradient) = run(&logits, &labels, &scale, steps, rows);
    let by_hand = |logits: &[f64]| {
        let mut loss = [0.0; 2];
        for (sequence, group) in (0..groups * rows).map(|i| (i, i / rows)) {
            let mut sum = 0.0;
            for at in (0..steps).map(|t| (group * steps + t) * rows + sequence % rows) {
                sum -= (-logits[at]).exp().ln_1p();
                loss[group] += scale[group]
                    * match labels[at] {
                        1.0 => -sum,
                        -1.0 => -(-sum.exp_m1()).ln(),
                        _ => 0.0,
                    };
            }
        }
        loss
    };
    for (ours, exact) in loss.iter().zip(by_hand(&logits)) {
        assert!((ours - exact).abs() < 1e-13 * exact, "{ours} != {exact}");
    }
    assert_same_gradient(&gradient, &logits, |logits| by_hand(logits).iter().sum());
    for (at, g) in gradient.iter().enumerate().filter(|(at, _)| at % rows == 3) {
        assert_eq!(*g, 0.0, "number {at} belongs to a sequence without a label");
    }

    let (loss_f32, gradient_f32) = run(&cast::<f32>(&logits), &labels, &scale, steps, rows);
    assert_close_in_f32(&loss_f32, &loss);
    assert_close_in_f32(&gradient_f32, &gradient);
}

/// A step is as safe as the most doubtful member says.
#[test]
fn log_prob_of_an_ensemble_is_its_members_minimum() {
    let (replicas, members, rows) = (3, 4, 7);
    let logits: Vec<f32> = cast(&numbers(73, replicas * members * rows, 3.0));
    let mut out = unwritten(replicas * rows);
    Cpu::new().log_prob(&pass_with_output(&logits, replicas * members, rows, 1), members, &mut out);
    for (i, seen) in out.iter().enumerate() {
        let of_member = |m: usize| log_prob(&[logits[(i / rows * members + m) * rows + i % rows]])[0];
        let least = (0..members).map(of_member).fold(f32::INFINITY, f32::min);
        assert_eq!(*seen, least, "row {i}");
    }
}
