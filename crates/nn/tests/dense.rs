//! Banks of dense networks: gradients against central differences in f64, and the same bits for a row or a network alone.

mod common;

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{Columns, Input, Pass};
use prudence_nn::{Bank, Cpu, Device as _, Mlp, Scalar};

const INPUTS: usize = 3;
const OUTPUTS: usize = 2;
const ROWS: usize = 5;

/// A bank, the rows that it reads, and a loss: the sum of the outputs, weighted.
struct Case {
    net: Bank<Mlp>,
    /// Columns of the first of two parts of the input.
    split: usize,
    /// How many networks in a row read the same rows of either part.
    share: [usize; 2],
    parameters: Vec<f64>,
    x: [Vec<f64>; 2],
    weights: Vec<f64>,
}

/// Hidden layers, networks, columns of the first part, `share` of both parts, and the gap between parameters.
type Widths<'a> = (&'a [usize], usize, usize, [usize; 2], usize);

/// One network and several, of one to three layers, on shared rows and their own, in one part and in two, with parameters
/// side by side and apart.
fn cases() -> Vec<Case> {
    let shapes = [
        (&[5, 4][..], 1, 3, [1, 1], 0),
        (&[6], 3, 3, [1, 1], 4),
        (&[5, 7], 4, 2, [2, 1], 0),
        (&[], 2, 3, [2, 1], 9),
        (&[4, 3], 6, 1, [3, 6], 2),
    ];
    let case = |seed: u64, (hidden, groups, split, share, spare): Widths<'_>| {
        let shape = Mlp::new(INPUTS, hidden, OUTPUTS);
        let net = Bank { stride: shape.parameters() + spare, offset: spare / 2, shape, groups };
        let part = |i: usize, width: usize| numbers(seed + 2 + i as u64, groups / share[i] * ROWS * width, 1.5);
        Case {
            parameters: numbers(seed + 1, groups * net.stride, 0.9),
            x: [part(0, split), part(1, INPUTS - split)],
            weights: numbers(seed + 4, groups * ROWS * OUTPUTS, 1.0),
            net,
            split,
            share,
        }
    };
    shapes.into_iter().zip(0..).map(|(shape, i)| case(10 * i, shape)).collect()
}

impl Case {
    fn input<'a>(&self, x: &'a [Buffer<f64>; 2]) -> Input<'a, Cpu<f64>> {
        let columns = |i: usize, width| Columns::new(&x[i], ROWS, width, self.share[i]);
        Input { first: columns(0, self.split), second: (self.split < INPUTS).then(|| columns(1, INPUTS - self.split)) }
    }

    fn forward(&self, parameters: &[f64]) -> Pass<Cpu<f64>> {
        let (d, x) = (Cpu::new(), [buffer(&self.x[0]), buffer(&self.x[1])]);
        let mut pass = Pass::new(&d, &self.net, ROWS).unwrap();
        d.forward(&self.net, &buffer(parameters), self.input(&x), &mut pass);
        pass.output_gradient().copy_from_slice(&self.weights);
        pass
    }

    fn loss(&self, parameters: &[f64]) -> f64 {
        dot(self.forward(parameters).output(), &self.weights)
    }

    /// The backward pass, and the parameters' gradients; 7 where no parameter lies.
    fn backward(&self) -> (Pass<Cpu<f64>>, Buffer<f64>) {
        let (d, x) = (Cpu::new(), [buffer(&self.x[0]), buffer(&self.x[1])]);
        let (mut pass, mut gradients) = (self.forward(&self.parameters), buffer(&vec![7.0; self.parameters.len()]));
        for group in 0..self.net.groups {
            self.net.parameters_mut(&mut gradients, group).fill(f64::NAN); // overwritten, never read
        }
        d.backward(&self.net, &buffer(&self.parameters), self.input(&x), &mut pass, &mut gradients);
        (pass, gradients)
    }

    /// What network `group` reads, both parts side by side.
    fn rows_of(&self, group: usize) -> Vec<f64> {
        let part = |i: usize, row: usize, width: usize| {
            let at = (group / self.share[i] * ROWS + row) * width;
            self.x[i][at..at + width].to_vec()
        };
        (0..ROWS).flat_map(|row| [part(0, row, self.split), part(1, row, INPUTS - self.split)].concat()).collect()
    }

    /// This network alone.
    fn alone(&self, group: usize) -> Case {
        Case {
            net: Bank::dense(self.net.shape.clone(), 1),
            split: INPUTS,
            share: [1, 1],
            parameters: self.net.parameters(&self.parameters, group).to_vec(),
            x: [self.rows_of(group), vec![]],
            weights: self.weights[group * ROWS * OUTPUTS..][..ROWS * OUTPUTS].to_vec(),
        }
    }

    /// Central differences by the columns from `first` on, of each network's own part of the loss: `[G, rows, columns]`.
    fn input_differences(&self, first: usize) -> Vec<f64> {
        let of_one = |group: usize| {
            let mut alone = self.alone(group);
            let all = central(&self.rows_of(group), |x| {
                alone.x[0].copy_from_slice(x);
                alone.loss(&alone.parameters)
            });
            all.chunks_exact(INPUTS).flat_map(|row| row[first..].to_vec()).collect::<Vec<_>>()
        };
        (0..self.net.groups).flat_map(of_one).collect()
    }

    /// The same, summed over each run of `share` networks.
    fn action_differences(&self, share: usize, first: usize) -> Vec<f64> {
        let (all, each) = (self.input_differences(first), ROWS * (INPUTS - first));
        let sum = |of: &[f64]| (0..each).map(|i| of.iter().skip(i).step_by(each).sum()).collect::<Vec<f64>>();
        all.chunks_exact(share * each).flat_map(sum).collect()
    }

    fn action_gradient(&self, share: usize, first: usize) -> Buffer<f64> {
        let mut pass = self.forward(&self.parameters);
        let mut out = unwritten(self.net.groups / share * ROWS * (INPUTS - first));
        Cpu::new().action_gradient(&self.net, &buffer(&self.parameters), &mut pass, share, first, &mut out);
        out
    }
}

#[test]
fn backward_is_the_gradient_by_the_parameters() {
    for case in cases() {
        let (mut pass, gradients) = case.backward();
        // Between the networks' parameters there is nothing that the loss depends on.
        let own = case.net.offset..case.net.offset + case.net.shape.parameters();
        let outside = |i: &usize| !own.contains(&(i % case.net.stride));
        let mut gradients = gradients.to_vec();
        for i in (0..gradients.len()).filter(outside) {
            assert_eq!(gradients[i], 7.0, "number {i} belongs to no network");
            gradients[i] = 0.0;
        }
        assert_same_gradient(&gradients, &case.parameters, |p| case.loss(p));
        assert_eq!(pass.output_gradient()[..], case.weights, "the output gradient stays as it was");
    }
}

#[test]
fn input_gradient_after_backward_is_the_gradient_by_the_last_columns() {
    for case in cases() {
        for first in 0..INPUTS {
            let (pass, _) = case.backward();
            let (each, stride) = (ROWS * (INPUTS - first), ROWS * (INPUTS - first) + first);
            let mut dx = buffer(&vec![7.0; case.net.groups * stride]);
            Cpu::new().input_gradient(&case.net, &buffer(&case.parameters), &pass, first, &mut dx, stride);
            let own: Vec<f64> = dx.chunks_exact(stride).flat_map(|dx| dx[..each].to_vec()).collect();
            let error = distance(&own, &case.input_differences(first));
            assert!(error < GRADIENT_LIMIT, "from column {first}: {error:e}");
            assert!(dx.chunks_exact(stride).all(|dx| dx[each..].iter().all(|x| *x == 7.0)), "numbers between stay");
        }
    }
}

#[test]
fn action_gradient_is_the_sum_of_the_networks_gradients_by_the_last_columns() {
    for case in cases() {
        for share in (1..=case.net.groups).filter(|share| case.net.groups.is_multiple_of(*share)) {
            for first in 0..INPUTS {
                let error = distance(&case.action_gradient(share, first), &case.action_differences(share, first));
                assert!(error < GRADIENT_LIMIT, "of {share} networks from column {first}: {error:e}");
            }
        }
    }
}

#[test]
fn action_gradient_is_right_where_rows_without_gradient_are_left_out() {
    for mut case in [cases().remove(0), cases().remove(2)] {
        let share = case.net.groups;
        for pattern in [0b0, 0b1, 0b10, 0b1010_1100, 0b0111_1110, usize::MAX] {
            for (i, weights) in case.weights.chunks_exact_mut(OUTPUTS).enumerate() {
                weights.fill(if pattern >> (i % 8) & 1 == 1 { 0.3 } else { 0.0 });
            }
            let dx = case.action_gradient(share, 1);
            for (analytic, difference) in dx.iter().zip(case.action_differences(share, 1)) {
                assert!((analytic - difference).abs() < GRADIENT_LIMIT, "{pattern:b}: {analytic} {difference}");
            }
        }
    }
}

#[test]
fn action_gradient_is_nan_where_the_output_gradient_is() {
    let mut case = cases().remove(0);
    case.weights[2] = f64::NAN; // an output of row 1
    let dx = case.action_gradient(1, 1);
    for (row, dx) in dx.chunks_exact(2).enumerate() {
        assert!(dx.iter().all(|x| x.is_nan() == (row == 1)), "row {row}: {dx:?}");
    }
}

/// Output, gradients by the parameters, by all inputs, and by the last two of them, of a larger bank.
fn run_wide<T: Scalar>() -> [Buffer<T>; 4] {
    let (d, groups, rows, share) = (Cpu::new(), 4, 33, 2);
    let net = Bank::dense(Mlp::new(11, &[37, 29], 3), groups);
    let parameters = buffer::<T>(&numbers(1, groups * net.stride, 0.4));
    let x = buffer(&numbers(2, groups / share * rows * 11, 1.0));
    let input = Input { first: Columns::new(&x, rows, 11, share), second: None };
    let mut pass = Pass::new(&d, &net, rows).unwrap();
    d.forward(&net, &parameters, input, &mut pass);
    *pass.output_gradient() = buffer(&numbers(3, groups * rows * 3, 1.0));
    let [mut gradients, mut dx, mut last] =
        [parameters.len(), groups * rows * 11, groups / share * rows * 2].map(unwritten);
    d.backward(&net, &parameters, input, &mut pass, &mut gradients);
    d.input_gradient(&net, &parameters, &pass, 0, &mut dx, rows * 11);
    d.action_gradient(&net, &parameters, &mut pass, share, 9, &mut last);
    [pass.output().clone(), gradients, dx, last]
}

#[test]
fn f32_equals_f64() {
    run_wide::<f32>().iter().zip(run_wide::<f64>()).for_each(|(x, exact)| assert_close_in_f32(x, &exact));
}

#[test]
fn each_network_of_a_bank_gives_the_bits_it_gives_alone() {
    let (d, rows) = (Cpu::new(), 21);
    let net = Bank::dense(Mlp::new(5, &[24, 18], 1), 4);
    let parameters = numbers(131, 4 * net.stride, 0.5);
    let x = buffer::<f32>(&numbers(132, rows * 5, 1.0));
    let run = |net: &Bank<Mlp>, parameters: &[f64], share| {
        let mut pass = Pass::new(&d, net, rows).unwrap();
        let input = Input { first: Columns::new(&x, rows, 5, share), second: None };
        d.forward(net, &buffer(parameters), input, &mut pass);
        bits(pass.output())
    };
    let together = run(&net, &parameters, 4);
    for (one, together) in parameters.chunks_exact(net.stride).zip(together.chunks_exact(rows)) {
        assert_eq!(run(&Bank::dense(net.shape.clone(), 1), one, 1), together);
    }
}

fn a_row_alone_equals_the_row_in_a_batch<T: Scalar>() {
    for (hidden, outputs) in [(&[][..], 4), (&[], 1), (&[20], 4), (&[33, 17], 1), (&[5, 40, 7], 3)] {
        let (d, rows, net) = (Cpu::new(), 37, Bank::dense(Mlp::new(6, hidden, outputs), 1));
        let parameters = buffer::<T>(&numbers(91, net.stride, 0.6));
        let x = [buffer(&numbers(92, rows * 4, 1.0)), buffer(&numbers(93, rows * 2, 1.0))];
        let run = |from: usize, rows: usize| {
            let x = [Buffer::from(&x[0][from * 4..][..rows * 4]), Buffer::from(&x[1][from * 2..][..rows * 2])];
            let input = Input { first: Columns::new(&x[0], rows, 4, 1), second: Some(Columns::new(&x[1], rows, 2, 1)) };
            let mut pass = Pass::new(&d, &net, rows).unwrap();
            d.forward(&net, &parameters, input, &mut pass);
            bits(pass.output())
        };
        let together = run(0, rows);
        for (row, together) in together.chunks_exact(outputs).enumerate() {
            assert_eq!(run(row, 1), together, "{hidden:?}, row {row}");
        }
        assert_eq!(run(3, 11), together[3 * outputs..14 * outputs], "{hidden:?}");
    }
}

#[test]
fn a_row_alone_gives_the_bits_that_it_has_in_a_batch() {
    a_row_alone_equals_the_row_in_a_batch::<f32>();
    a_row_alone_equals_the_row_in_a_batch::<f64>();
}

/// Forward, backward and both input gradients on `rows` rows in a pass that may have been used before.
fn use_pass(pass: &mut Pass<Cpu<f32>>, net: &Bank<Mlp>, rows: usize, scale: f64) -> [Vec<f32>; 4] {
    let d = Cpu::new();
    let parameters = buffer(&numbers(101, 3 * net.stride, 0.5));
    let x = buffer(&numbers(102 + rows as u64, 3 * rows * 4, scale));
    let input = Input { first: Columns::new(&x, rows, 4, 1), second: None };
    d.forward(net, &parameters, input, pass);
    pass.output_gradient()[..3 * rows * 2].copy_from_slice(&cast::<f32>(&numbers(103, 3 * rows * 2, scale)));
    let [mut gradients, mut all, mut last] = [parameters.len(), 3 * rows * 4, 3 * rows].map(unwritten);
    d.backward(net, &parameters, input, pass, &mut gradients);
    d.input_gradient(net, &parameters, pass, 0, &mut all, rows * 4);
    d.action_gradient(net, &parameters, pass, 1, 3, &mut last);
    [pass.output()[..3 * rows * 2].to_vec(), gradients.to_vec(), all.to_vec(), last.to_vec()]
}

#[test]
fn set_rows_leaves_no_trace_of_what_was_there() {
    let (d, net) = (Cpu::new(), Bank::dense(Mlp::new(4, &[13, 10], 2), 3));
    let mut used = Pass::new(&d, &net, 9).unwrap();
    use_pass(&mut used, &net, 9, 1e6);
    for rows in [4, 7, 1, 9, 14] {
        used.set_rows(&d, &net, rows).unwrap();
        assert_eq!(used.rows(), rows);
        let fresh = use_pass(&mut Pass::new(&d, &net, rows).unwrap(), &net, rows, 1.0);
        assert_eq!(use_pass(&mut used, &net, rows, 1.0), fresh, "{rows} rows");
        use_pass(&mut used, &net, rows, 1e6);
    }
}
