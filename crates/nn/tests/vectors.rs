//! The same bits at every vector width that this CPU has: all operations, in f32 and f64.

mod common;

use std::sync::Mutex;

use common::*;
use prudence_core::random::StreamId;
use prudence_nn::cpu::matrix::{Then, View, product, product_of_parts};
use prudence_nn::cpu::{Buffer, Vectors};
use prudence_nn::work::*;
use prudence_nn::{AdamSettings, Bank, Cpu, Device as _, Gru, Mlp, Scalar};

/// The width holds for the whole process: one test at a time.
static WIDTH: Mutex<()> = Mutex::new(());

/// Runs this at every width and compares what it gives with what it gives without vectors.
#[track_caller]
fn assert_same_bits<T: Scalar>(what: &str, run: impl Fn() -> Vec<Vec<T>>) {
    let _guard = WIDTH.lock().unwrap_or_else(|broken| broken.into_inner());
    let at = |width: Vectors| {
        width.hold();
        assert_eq!(Vectors::current(), width);
        run().iter().map(|x| bits(x)).collect::<Vec<_>>()
    };
    let exact = at(Vectors::None);
    for width in [Vectors::Wide, Vectors::Widest].into_iter().filter(|width| *width <= Vectors::detect()) {
        let seen = at(width);
        assert_eq!(seen.len(), exact.len());
        for (i, (seen, exact)) in seen.iter().zip(&exact).enumerate() {
            assert!(seen == exact, "{what}: array {i} with {} differs from the one without vectors", width.name());
        }
    }
    Vectors::detect().hold();
}

#[test]
fn a_width_that_the_cpu_lacks_is_not_taken() {
    let _guard = WIDTH.lock().unwrap_or_else(|broken| broken.into_inner());
    Vectors::Widest.hold();
    assert_eq!(Vectors::current(), Vectors::detect());
    Vectors::None.hold();
    assert_eq!(Vectors::current(), Vectors::None);
    Vectors::detect().hold();
}

fn products<T: Scalar>() -> Vec<Vec<T>> {
    let mut outs = Vec::new();
    for (m, k, n) in [(1, 31, 77), (37, 5, 3), (19, 300, 50), (33, 67, 1), (70, 9, 16), (8, 513, 129)] {
        let (a, b): (Vec<T>, Vec<T>) = (cast(&numbers(1, m * k, 1.0)), cast(&numbers(2, k * n, 1.0)));
        let (mask, bias): (Vec<T>, Vec<T>) = (cast(&numbers(3, m * n, 1.0)), cast(&numbers(4, n, 1.0)));
        let lefts = [View::new(&a, m, k), View::new(&a, k, m).t()];
        let rights = [View::new(&b, k, n), View::new(&b, n, k).t()];
        for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
            for then in [Then::Store, Then::Add, Then::Bias(&bias), Then::BiasRelu(&bias), Then::Mask(&mask)] {
                let mut out = mask.clone();
                product(&mut out, left, right, then);
                outs.push(out);
            }
        }
        let (left, right) = (View::strided(&a, m, 2, k), View::strided(&a[2..], m, k - 2, k));
        let mut out = mask.clone();
        product_of_parts(&mut out, [left, right], View::new(&b, k, n), Then::Store);
        outs.push(out);
    }
    outs
}

fn networks<T: Scalar>() -> Vec<Vec<T>> {
    let (d, rows, net) = (Cpu::new(), 37, Bank::dense(Mlp::new(11, &[37, 29], 1), 4));
    let parameters = buffer::<T>(&numbers(11, 4 * net.stride, 0.4));
    let x = buffer(&numbers(12, rows * 11, 1.0));
    let input = Input { first: Columns::new(&x, rows, 11, 4), second: None };
    let mut pass = Pass::new(&d, &net, rows).unwrap();
    d.forward(&net, &parameters, input, &mut pass);
    *pass.output_gradient() = buffer(&numbers(13, 4 * rows, 1.0));
    let [mut gradients, mut dx, mut action] = [parameters.len(), 4 * rows * 11, rows * 2].map(unwritten);
    d.backward(&net, &parameters, input, &mut pass, &mut gradients);
    d.input_gradient(&net, &parameters, &pass, 0, &mut dx, rows * 11);
    d.action_gradient(&net, &parameters, &mut pass, 4, 9, &mut action);
    let mut factor = unwritten(4);
    d.clip(&gradients, 4, 1e-3, &mut factor);
    [pass.output(), &gradients, &dx, &action, &factor].map(|x: &Buffer<T>| x.to_vec()).to_vec()
}

fn recurrent_networks<T: Scalar>() -> Vec<Vec<T>> {
    let (d, steps, rows, net) = (Cpu::new(), 9, 7, Bank::dense(Gru { inputs: 5, hidden: 19 }, 2));
    let parameters = buffer::<T>(&numbers(21, 2 * net.stride, 0.5));
    let x = buffer(&numbers(22, steps * rows * 5, 1.5));
    let dh = buffer(&numbers(23, 2 * (steps + 1) * rows * 19, 1.0));
    let input = Columns::new(&x, steps * rows, 5, 2);
    let mut pass = GruPass::new(&d, &net, steps, rows).unwrap();
    d.gru_forward(&net, &parameters, input, &mut pass);
    let [mut gradients, mut dx] = [parameters.len(), 2 * x.len()].map(unwritten);
    d.gru_backward(&net, &parameters, input, &dh, &mut pass, &mut gradients, Some(&mut dx));
    let mut hidden = buffer(&numbers(24, 2 * rows * 19, 1.0));
    let mut step = GruPass::new(&d, &net, 1, rows).unwrap();
    d.gru_step(&net, &parameters, Columns::new(&x, rows, 5, 2), &mut hidden, &mut step);
    [pass.hidden(), &gradients, &dx, &hidden].map(|x: &Buffer<T>| x.to_vec()).to_vec()
}

fn policy_head<T: Scalar>() -> Vec<Vec<T>> {
    let (d, rows, dim, clip) = (Cpu::new(), 41, 3, LogStd { min: -2.0, max: 1.0 });
    let mut noise = unwritten(rows * dim);
    d.normals(&StreamId::new(4, "widths", 0).address(3).to_vec(), rows * dim, &mut noise);
    let mut pass = pass_with_output::<T>(&cast(&numbers(31, rows * 2 * dim, 2.5)), 1, rows, 2 * dim);
    let (mut drawn, mut mode) = (Drawn::new(&d, rows, dim).unwrap(), unwritten(rows * dim));
    d.sample(&pass, &noise, clip, &mut drawn);
    d.mode(&pass, &mut mode);
    let s = SampleBackward {
        noise: &noise,
        clip,
        drawn: &drawn,
        action_gradient: &buffer(&numbers(32, rows * dim, 1.0)),
        log_temperature: &buffer(&[-0.7]),
    };
    d.sample_backward(&mut pass, s);
    let head = pass.output_gradient().to_vec();
    vec![noise.to_vec(), drawn.action.to_vec(), drawn.log_prob.to_vec(), mode.to_vec(), head]
}

fn losses<T: Scalar>() -> Vec<Vec<T>> {
    let (d, steps, rows) = (Cpu::new(), 23, 5);
    let mut pass = pass_with_output::<T>(&cast(&numbers(41, steps * rows, 6.0)), 1, steps * rows, 1);
    let labels: Vec<f64> = numbers(42, steps * rows, 1.5).iter().map(|x| x.round()).collect();
    let (labels, scale) = (buffer(&labels), buffer(&[0.1]));
    let [mut log_prob, mut loss] = [steps * rows, 1].map(unwritten);
    d.log_prob(&pass, 1, &mut log_prob);
    d.trajectory_loss(TrajectoryLoss { labels: &labels, scale: &scale, steps, rows }, &mut pass, &mut loss);
    vec![log_prob.to_vec(), loss.to_vec(), pass.output_gradient().to_vec()]
}

fn optimiser<T: Scalar>() -> Vec<Vec<T>> {
    let (d, n) = (Cpu::new(), 61);
    let mut p = Parameters::new(&d, 1, &cast::<f32>(&numbers(51, n, 1.0))).unwrap();
    let mut follower = buffer::<T>(&numbers(52, n, 1.0));
    for t in 1..5 {
        p.gradients = buffer(&numbers(52 + t, n, 0.3));
        let (rate, correction) = AdamSettings::default().correction(1e-2, t);
        let [rate, correction, active, shrink, factor] = [rate, correction, 1.0, 0.999, 0.7].map(|x| buffer(&[x]));
        let settings = AdamSettings::default();
        let (shrink, factor) = (Some(&shrink), Some(&factor));
        let step = AdamStep { settings, rate: &rate, correction: &correction, active: &active, shrink, factor };
        d.adam(&mut p, &step, if t.is_multiple_of(2) { None } else { Some((&mut follower, 0.1)) });
    }
    [&p.values, &p.moments[0], &p.moments[1], &follower].map(|x| x.to_vec()).to_vec()
}

fn every_operation<T: Scalar>() {
    assert_same_bits("products", products::<T>);
    assert_same_bits("dense networks", networks::<T>);
    assert_same_bits("recurrent networks", recurrent_networks::<T>);
    assert_same_bits("the policy's head", policy_head::<T>);
    assert_same_bits("the loss of a safety model", losses::<T>);
    assert_same_bits("Adam", optimiser::<T>);
}

#[test]
fn every_operation_gives_the_same_bits_at_every_vector_width_in_f32() {
    every_operation::<f32>();
}

#[test]
fn every_operation_gives_the_same_bits_at_every_vector_width_in_f64() {
    every_operation::<f64>();
}
