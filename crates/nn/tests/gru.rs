//! The GRU: gradients through time against central differences in f64, single steps, and the same bits alone and together.

mod common;

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{Columns, GruPass};
use prudence_nn::{Bank, Cpu, Device as _, Gru, Scalar};

const GROUPS: usize = 4;
/// Two networks in a row read the same input.
const SHARE: usize = 2;
const STEPS: usize = 6;
const LENGTHS: [usize; 5] = [6, 1, 4, 3, 6];
const ROWS: usize = LENGTHS.len();

/// Parameters lie apart, as they do where a GRU is a part of something larger.
fn net() -> Bank<Gru> {
    let shape = Gru { inputs: 3, hidden: 4 };
    Bank { offset: 3, stride: shape.parameters() + 5, shape, groups: GROUPS }
}

fn parameters() -> Vec<f64> {
    numbers(32, GROUPS * net().stride, 0.9)
}

fn input() -> Vec<f64> {
    numbers(33, GROUPS / SHARE * STEPS * ROWS * net().shape.inputs, 1.5)
}

/// Step and sequence of a number in `[.., steps, N, width]`.
fn place(i: usize, steps: usize, width: usize) -> (usize, usize) {
    (i / (ROWS * width) % steps, i / width % ROWS)
}

/// Weights on every h that a sequence of its length has, `[G, T + 1, N, H]`; the last h has one only where `last`.
fn weights(last: bool) -> Vec<f64> {
    let h = net().shape.hidden;
    let mut weights = numbers(31, GROUPS * (STEPS + 1) * ROWS * h, 1.0);
    for (i, w) in weights.iter_mut().enumerate() {
        let (t, n) = place(i, STEPS + 1, h);
        if t > LENGTHS[n] || (t == LENGTHS[n] && !last) {
            *w = 0.0;
        }
    }
    weights
}

fn forward(parameters: &[f64], x: &[f64]) -> GruPass<Cpu<f64>> {
    let (d, net, x) = (Cpu::new(), net(), buffer(x));
    let mut pass = GruPass::new(&d, &net, STEPS, ROWS).unwrap();
    let input = Columns::new(&x, STEPS * ROWS, net.shape.inputs, SHARE);
    d.gru_forward(&net, &buffer(parameters), input, &mut pass);
    pass
}

/// Gradients by the parameters, 0 where none lies, and by each network's input, `[G, T, N, in]`.
fn gradients(parameters: &[f64], x: &[f64], weights: &[f64]) -> [Vec<f64>; 2] {
    let (d, net, mut pass) = (Cpu::new(), net(), forward(parameters, x));
    let (x, mut gradients) = (buffer(x), buffer(&vec![0.0; parameters.len()]));
    for group in 0..GROUPS {
        net.parameters_mut(&mut gradients, group).fill(f64::NAN); // overwritten, never read
    }
    let mut dx = unwritten(GROUPS * STEPS * ROWS * net.shape.inputs);
    let input = Columns::new(&x, STEPS * ROWS, net.shape.inputs, SHARE);
    let parameters = buffer(parameters);
    d.gru_backward(&net, &parameters, input, &buffer(weights), &mut pass, &mut gradients, Some(&mut dx));
    [gradients.to_vec(), dx.to_vec()]
}

#[test]
fn backward_is_the_gradient_through_time() {
    for last in [true, false] {
        let weights = weights(last);
        let [gradients, _] = gradients(&parameters(), &input(), &weights);
        assert_same_gradient(&gradients, &parameters(), |p| dot(forward(p, &input()).hidden(), &weights));
    }
}

#[test]
fn backward_gives_the_gradient_by_the_input() {
    let (weights, x) = (weights(true), input());
    let [_, dx] = gradients(&parameters(), &x, &weights);
    // Networks that share their input each have their own gradient with respect to it; the sum is the gradient of the input.
    let each = STEPS * ROWS * net().shape.inputs;
    let summed: Vec<f64> = (0..x.len())
        .map(|i| (0..SHARE).map(|network| dx[(i / each * SHARE + network) * each + i % each]).sum())
        .collect();
    assert_same_gradient(&summed, &x, |x| dot(forward(&parameters(), x).hidden(), &weights));
    for (i, d) in dx.iter().enumerate() {
        let (t, n) = place(i, STEPS, net().shape.inputs);
        assert!(t < LENGTHS[n] || *d == 0.0, "nothing flows back to step {t} of sequence {n}");
    }
}

#[test]
fn gradients_ignore_what_lies_past_a_sequences_end() {
    let (x, weights) = (input(), weights(true));
    let mut other = x.clone();
    for (i, v) in other.iter_mut().enumerate() {
        let (t, n) = place(i, STEPS, net().shape.inputs);
        if t >= LENGTHS[n] {
            *v = 1e3 * (i as f64).sin();
        }
    }
    assert_ne!(x, other);
    assert_eq!(gradients(&parameters(), &x, &weights), gradients(&parameters(), &other, &weights));
}

const WIDE: Gru = Gru { inputs: 7, hidden: 19 };

/// The memories, the gradients by the parameters and by the input.
fn run_wide<T: Scalar>() -> [Buffer<T>; 3] {
    let (d, net, steps, rows) = (Cpu::new(), Bank::dense(WIDE, 1), 15, 9);
    let parameters = buffer(&numbers(11, net.stride, 0.5));
    let x = buffer(&numbers(12, steps * rows * WIDE.inputs, 1.5));
    let dh = buffer(&numbers(13, (steps + 1) * rows * WIDE.hidden, 1.0));
    let input = Columns::new(&x, steps * rows, WIDE.inputs, 1);
    let mut pass = GruPass::new(&d, &net, steps, rows).unwrap();
    let [mut gradients, mut dx] = [parameters.len(), x.len()].map(unwritten);
    d.gru_forward(&net, &parameters, input, &mut pass);
    d.gru_backward(&net, &parameters, input, &dh, &mut pass, &mut gradients, Some(&mut dx));
    [pass.hidden().clone(), gradients, dx]
}

#[test]
fn f32_equals_f64() {
    run_wide::<f32>().iter().zip(run_wide::<f64>()).for_each(|(x, exact)| assert_close_in_f32(x, &exact));
}

/// Networks `groups` of the bank on sequences `rows`, all steps at once: `[G, T + 1, N, H]`.
fn at_once<T: Scalar>(groups: std::ops::Range<usize>, rows: std::ops::Range<usize>) -> Vec<T> {
    let (d, all, steps) = (Cpu::new(), Bank::dense(WIDE, 3), 12);
    let parameters = numbers(11, 3 * all.stride, 0.5)[groups.start * all.stride..groups.end * all.stride].to_vec();
    let x = numbers(93, steps * 17 * WIDE.inputs, 1.5);
    let sequences = rows.len();
    let x: Vec<f64> = x
        .chunks_exact(17 * WIDE.inputs)
        .flat_map(|step| step[rows.start * WIDE.inputs..rows.end * WIDE.inputs].to_vec())
        .collect();
    let (net, x) = (Bank::dense(WIDE, groups.len()), buffer::<T>(&x));
    let mut pass = GruPass::new(&d, &net, steps, sequences).unwrap();
    let input = Columns::new(&x, steps * sequences, WIDE.inputs, groups.len());
    d.gru_forward(&net, &buffer(&parameters), input, &mut pass);
    pass.hidden().to_vec()
}

/// The same numbers, `[T + 1, N, H]` of one network and these sequences.
fn part_of<T: Copy>(all: &[T], group: usize, rows: std::ops::Range<usize>) -> Vec<T> {
    let (each, h) = (13 * 17 * WIDE.hidden, WIDE.hidden);
    all[group * each..][..each]
        .chunks_exact(17 * h)
        .flat_map(|step| step[rows.start * h..rows.end * h].to_vec())
        .collect()
}

fn alone_equals_together<T: Scalar>() {
    let together = at_once::<T>(0..3, 0..17);
    for group in 0..3 {
        let whole = at_once::<T>(group..group + 1, 0..17);
        assert_eq!(bits(&whole), bits(&part_of(&together, group, 0..17)), "network {group}");
        for rows in [0..1, 5..6, 16..17, 2..9] {
            let alone = at_once::<T>(group..group + 1, rows.clone());
            assert_eq!(bits(&alone), bits(&part_of(&together, group, rows.clone())), "network {group} on {rows:?}");
        }
    }
}

#[test]
fn a_network_or_a_sequence_alone_gives_the_bits_that_it_gives_in_company() {
    alone_equals_together::<f32>();
    alone_equals_together::<f64>();
}

fn steps_equal_all_at_once<T: Scalar>() {
    let (d, groups, rows, steps) = (Cpu::new(), 3, 17, 12);
    let net = Bank::dense(WIDE, groups);
    let (parameters, x) =
        (buffer::<T>(&numbers(11, 3 * net.stride, 0.5)), numbers(93, steps * rows * WIDE.inputs, 1.5));
    let exact = at_once::<T>(0..groups, 0..rows);
    let mut pass = GruPass::new(&d, &net, 1, rows).unwrap();
    let mut hidden = Buffer::zeros(groups * rows * WIDE.hidden);
    for (t, x) in x.chunks_exact(rows * WIDE.inputs).enumerate() {
        let x = buffer(x);
        d.gru_step(&net, &parameters, Columns::new(&x, rows, WIDE.inputs, groups), &mut hidden, &mut pass);
        for (group, hidden) in hidden.chunks_exact(rows * WIDE.hidden).enumerate() {
            let at = (group * (steps + 1) + t + 1) * rows * WIDE.hidden;
            assert_eq!(bits(hidden), bits(&exact[at..][..hidden.len()]), "network {group}, step {t}");
        }
    }
}

#[test]
fn single_steps_give_the_bits_that_all_steps_at_once_give() {
    steps_equal_all_at_once::<f32>();
    steps_equal_all_at_once::<f64>();
}

/// Forward and backward over `steps` steps in a pass that may have been used before.
fn use_pass(pass: &mut GruPass<Cpu<f32>>, steps: usize, scale: f64) -> [Vec<f32>; 3] {
    let (d, net) = (Cpu::new(), Bank::dense(WIDE, 2));
    let parameters = buffer(&numbers(11, net.groups * net.stride, 0.5));
    let x = buffer(&numbers(111 + steps as u64, 2 * steps * 5 * WIDE.inputs, scale));
    let dh = buffer(&numbers(112, 2 * (steps + 1) * 5 * WIDE.hidden, scale));
    let input = Columns::new(&x, steps * 5, WIDE.inputs, 1);
    let [mut gradients, mut dx] = [parameters.len(), x.len()].map(unwritten);
    d.gru_forward(&net, &parameters, input, pass);
    d.gru_backward(&net, &parameters, input, &dh, pass, &mut gradients, Some(&mut dx));
    [pass.hidden()[..dh.len()].to_vec(), gradients.to_vec(), dx.to_vec()]
}

#[test]
fn set_steps_leaves_no_trace_of_what_was_there() {
    let (d, net) = (Cpu::new(), Bank::dense(WIDE, 2));
    let mut used = GruPass::new(&d, &net, 8, 5).unwrap();
    use_pass(&mut used, 8, 1e6);
    for steps in [3, 6, 1, 8, 11] {
        used.set_steps(&d, &net, steps).unwrap();
        let fresh = use_pass(&mut GruPass::new(&d, &net, steps, 5).unwrap(), steps, 1.0);
        assert_eq!(use_pass(&mut used, steps, 1.0), fresh, "{steps} steps");
        use_pass(&mut used, steps, 1e6);
    }
}
