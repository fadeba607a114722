//! Dense networks with ReLU between the layers, in banks.

use super::pointwise::{add_bias, add_bias_relu, relu_backward, row_sum};
use super::{Cpu, View, affine_one, matmul};
use crate::Scalar;
use crate::shapes::{Bank, Layer, Mlp};
use crate::work::{Columns, Input, Pass};

/// The rows that network `group` reads of some columns.
fn rows_of<'a, T: Scalar>(columns: &Columns<'a, Cpu<T>>, group: usize, rows: usize) -> &'a [T] {
    &columns.buffer[group / columns.share * columns.stride..][..rows * columns.width]
}

/// Writes the two inputs side by side, where there are two; once for each run of networks that read the same rows.
fn join<T: Scalar>(input: &Input<'_, Cpu<T>>, pass: &mut Pass<Cpu<T>>) {
    let Some(second) = &input.second else { return };
    let (first, rows) = (&input.first, pass.rows);
    let (share, width) = (first.share.min(second.share), first.width + second.width);
    for group in (0..pass.groups).step_by(share) {
        let (a, b) = (rows_of(first, group, rows), rows_of(second, group, rows));
        let out = &mut pass.joined[group / share * rows * width..][..rows * width];
        let parts = a.chunks_exact(first.width).zip(b.chunks_exact(second.width));
        for (out, (a, b)) in out.chunks_exact_mut(width).zip(parts) {
            out[..first.width].copy_from_slice(a);
            out[first.width..].copy_from_slice(b);
        }
    }
}

/// What network `group` reads, after [`join`].
fn input_of<'a, T: Scalar>(input: &Input<'a, Cpu<T>>, joined: &'a [T], group: usize, rows: usize) -> &'a [T] {
    match &input.second {
        None => rows_of(&input.first, group, rows),
        Some(second) => {
            let (share, width) = (input.first.share.min(second.share), input.first.width + second.width);
            &joined[group / share * rows * width..][..rows * width]
        }
    }
}

fn check_input<T: Scalar>(net: &Bank<Mlp>, input: &Input<'_, Cpu<T>>, pass: &Pass<Cpu<T>>) {
    let width = input.first.width + input.second.map_or(0, |second| second.width);
    assert!(
        width == net.shape.inputs() && pass.groups == net.groups && pass.outputs() == net.shape.outputs(),
        "networks of {} inputs and {} outputs, {} of them, were given rows of {width} numbers and a pass for {} networks of {} outputs",
        net.shape.inputs(),
        net.shape.outputs(),
        net.groups,
        pass.groups,
        pass.outputs()
    );
}

pub(super) fn forward<T: Scalar>(
    net: &Bank<Mlp>,
    weights: &[T],
    input: Input<'_, Cpu<T>>,
    pass: &mut Pass<Cpu<T>>,
) {
    check_input(net, &input, pass);
    join(&input, pass);
    let (rows, last) = (pass.rows, net.shape.depth() - 1);
    for group in 0..net.groups {
        let parameters = net.parameters(weights, group);
        for (l, layer) in net.shape.layers().enumerate() {
            let (before, after) = pass.activations.split_at_mut(l);
            let x = match before.last() {
                None => input_of(&input, &pass.joined, group, rows),
                Some(before) => &before[group * rows * layer.inputs..][..rows * layer.inputs],
            };
            let out = &mut after[0][group * rows * layer.outputs..][..rows * layer.outputs];
            let (weight, bias) = (layer.weight(parameters), layer.bias(parameters));
            if rows == 1 {
                affine_one(out, weight, bias, x);
                if l < last {
                    out.iter_mut().for_each(|v| *v = v.max(T::ZERO));
                }
                continue;
            }
            let weight = View::new(weight, layer.outputs, layer.inputs);
            matmul(out, false, View::new(x, rows, layer.inputs), weight.t());
            if l == last { add_bias(out, bias) } else { add_bias_relu(out, bias) }
        }
    }
}

pub(super) fn backward<T: Scalar>(
    net: &Bank<Mlp>,
    weights: &[T],
    input: Input<'_, Cpu<T>>,
    pass: &mut Pass<Cpu<T>>,
    gradients: &mut [T],
) {
    check_input(net, &input, pass);
    let rows = pass.rows;
    for group in 0..net.groups {
        let (parameters, gradients) = (net.parameters(weights, group), net.parameters_mut(gradients, group));
        for (l, layer) in net.shape.layers().enumerate().rev() {
            let x = match l {
                0 => input_of(&input, &pass.joined, group, rows),
                _ => &pass.activations[l - 1][group * rows * layer.inputs..][..rows * layer.inputs],
            };
            let (below, delta) = pass.gradients.split_at_mut(l);
            let delta = &delta[0][group * rows * layer.outputs..][..rows * layer.outputs];
            let (dw, db) = gradients[layer.offset..][..(layer.inputs + 1) * layer.outputs]
                .split_at_mut(layer.inputs * layer.outputs);
            matmul(dw, false, View::new(delta, rows, layer.outputs).t(), View::new(x, rows, layer.inputs));
            row_sum(db, delta);
            if let Some(below) = below.last_mut() {
                let below = &mut below[group * rows * layer.inputs..][..rows * layer.inputs];
                let weight = View::new(layer.weight(parameters), layer.outputs, layer.inputs);
                matmul(below, false, View::new(delta, rows, layer.outputs), weight);
                relu_backward(below, x);
            }
        }
    }
}

pub(super) fn input_gradient<T: Scalar>(
    net: &Bank<Mlp>,
    weights: &[T],
    pass: &Pass<Cpu<T>>,
    first: usize,
    out: &mut [T],
    stride: usize,
) {
    let (rows, columns) = (pass.rows, net.shape.inputs() - first);
    let Some(layer) = net.shape.layers().next() else { return };
    for group in 0..net.groups {
        let delta = &pass.gradients[0][group * rows * layer.outputs..][..rows * layer.outputs];
        let out = &mut out[group * stride..][..rows * columns];
        by_columns(&layer, layer.weight(net.parameters(weights, group)), View::new(delta, rows, layer.outputs), first, out);
    }
}

/// The first layer's `delta` times the weights of the columns from `first` on.
fn by_columns<T: Scalar>(layer: &Layer, weight: &[T], delta: View<'_, T>, first: usize, out: &mut [T]) {
    let columns = View::strided(&weight[first..], layer.outputs, layer.inputs - first, layer.inputs);
    matmul(out, false, delta, columns);
}

/// Rows whose output gradient is zero are left out of the products: behind a twin minimum that is half of them. The others
/// move to the front of each array and their results back to their places.
pub(super) fn action_gradient<T: Scalar>(
    net: &Bank<Mlp>,
    weights: &[T],
    pass: &mut Pass<Cpu<T>>,
    share: usize,
    first: usize,
    out: &mut [T],
) {
    let (rows, outputs, last) = (pass.rows, net.shape.outputs(), net.shape.depth() - 1);
    let columns = net.shape.inputs() - first;
    assert!(
        out.len() == net.groups / share * rows * columns,
        "an action gradient of {} numbers, expected {} x {rows} x {columns}",
        out.len(),
        net.groups / share
    );
    out.fill(T::ZERO);
    for group in 0..net.groups {
        let parameters = net.parameters(weights, group);
        let delta = &mut pass.gradients[last][group * rows * outputs..][..rows * outputs];
        let mut used = 0;
        for row in 0..rows {
            if delta[row * outputs..][..outputs].iter().any(|x| *x != T::ZERO) {
                delta.copy_within(row * outputs..(row + 1) * outputs, used * outputs);
                pass.places[used] = row as u32;
                used += 1;
            }
        }
        let places = &pass.places[..used];
        for (l, layer) in net.shape.layers().enumerate().rev() {
            let (below, delta) = pass.gradients.split_at_mut(l);
            let delta = View::new(&delta[0][group * rows * layer.outputs..], used, layer.outputs);
            let weight = layer.weight(parameters);
            let Some(below) = below.last_mut() else {
                by_columns(&layer, weight, delta, first, &mut pass.by_columns[..used * columns]);
                continue;
            };
            let below = &mut below[group * rows * layer.inputs..][..used * layer.inputs];
            matmul(below, false, delta, View::new(weight, layer.outputs, layer.inputs));
            let activations = &pass.activations[l - 1][group * rows * layer.inputs..];
            for (below, row) in below.chunks_exact_mut(layer.inputs).zip(places) {
                relu_backward(below, &activations[*row as usize * layer.inputs..][..layer.inputs]);
            }
        }
        let out = &mut out[group / share * rows * columns..][..rows * columns];
        for (gradient, row) in pass.by_columns.chunks_exact(columns).zip(places) {
            for (out, g) in out[*row as usize * columns..][..columns].iter_mut().zip(gradient) {
                *out += *g;
            }
        }
    }
}
