//! Banks of dense networks with ReLU between the layers.

use super::Cpu;
use super::matrix::{Then, View, product, product_of_parts};
use super::pointwise::{relu_backward, row_sum};
use crate::Scalar;
use crate::shapes::{Bank, Layer, Mlp};
use crate::work::{Columns, Input, Pass};

/// The rows of `columns` that network `group` reads.
fn rows_of<'a, T: Scalar>(columns: &Columns<'a, Cpu<T>>, group: usize, rows: usize) -> &'a [T] {
    &columns.buffer[group / columns.share * columns.stride..][..rows * columns.width]
}

/// The input of network `group`: two matrices side by side, of which the second may be empty.
fn input_of<'a, T: Scalar>(input: &Input<'a, Cpu<T>>, group: usize, rows: usize) -> [View<'a, T>; 2] {
    let view = |columns: &Columns<'a, Cpu<T>>| View::new(rows_of(columns, group, rows), rows, columns.width);
    [view(&input.first), input.second.as_ref().map_or_else(|| View::new(&[], rows, 0), view)]
}

fn check_input<T: Scalar>(net: &Bank<Mlp>, input: &Input<'_, Cpu<T>>, pass: &Pass<Cpu<T>>) {
    let width = input.first.width + input.second.map_or(0, |second| second.width);
    assert!(
        width == net.shape.inputs() && pass.groups == net.groups && pass.outputs() == net.shape.outputs(),
        "networks of {} inputs and {} outputs, {} of them, got rows of {width} numbers and a pass for {} networks of \
         {} outputs",
        net.shape.inputs(),
        net.shape.outputs(),
        net.groups,
        pass.groups,
        pass.outputs()
    );
}

pub(super) fn forward<T: Scalar>(net: &Bank<Mlp>, weights: &[T], input: Input<'_, Cpu<T>>, pass: &mut Pass<Cpu<T>>) {
    check_input(net, &input, pass);
    let (rows, last) = (pass.rows, net.shape.depth() - 1);
    for group in 0..net.groups {
        let parameters = net.parameters(weights, group);
        for (l, layer) in net.shape.layers().enumerate() {
            let (before, after) = pass.activations.split_at_mut(l);
            let x = match before.last() {
                None => input_of(&input, group, rows),
                Some(before) => {
                    let before = &before[group * rows * layer.inputs..][..rows * layer.inputs];
                    [View::new(before, rows, layer.inputs), View::new(&[], rows, 0)]
                }
            };
            let out = &mut after[0][group * rows * layer.outputs..][..rows * layer.outputs];
            let weight = View::new(layer.weight(parameters), layer.inputs, layer.outputs);
            let bias = layer.bias(parameters);
            let then = if l == last { Then::Bias(bias) } else { Then::BiasRelu(bias) };
            product_of_parts(out, x, weight, then);
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
            let (below, delta) = pass.gradients.split_at_mut(l);
            let delta = &delta[0][group * rows * layer.outputs..][..rows * layer.outputs];
            let (dw, db) = gradients[layer.offset..][..(layer.inputs + 1) * layer.outputs]
                .split_at_mut(layer.inputs * layer.outputs);
            row_sum(db, delta);
            let delta = View::new(delta, rows, layer.outputs);
            let Some(below) = below.last_mut() else {
                let [first, second] = input_of(&input, group, rows);
                let (dw_first, dw_second) = dw.split_at_mut(input.first.width * layer.outputs);
                product(dw_first, first.t(), delta, Then::Store);
                product(dw_second, second.t(), delta, Then::Store);
                continue;
            };
            let x = &pass.activations[l - 1][group * rows * layer.inputs..][..rows * layer.inputs];
            product(dw, View::new(x, rows, layer.inputs).t(), delta, Then::Store);
            let below = &mut below[group * rows * layer.inputs..][..rows * layer.inputs];
            let weight = View::new(layer.weight(parameters), layer.inputs, layer.outputs);
            product(below, delta, weight.t(), Then::Mask(x));
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
        by_columns(
            &layer,
            layer.weight(net.parameters(weights, group)),
            View::new(delta, rows, layer.outputs),
            first,
            out,
        );
    }
}

/// The first layer's `delta` times the weights of the columns from `first` on.
fn by_columns<T: Scalar>(layer: &Layer, weight: &[T], delta: View<'_, T>, first: usize, out: &mut [T]) {
    let columns = View::new(&weight[first * layer.outputs..], layer.inputs - first, layer.outputs);
    product(out, delta, columns.t(), Then::Store);
}

/// Skips rows whose output gradient is zero, which are half of them after the minimum of two critics. The other rows
/// are moved to the front of each array, and their results are moved back to their places.
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
            product(below, delta, View::new(weight, layer.inputs, layer.outputs).t(), Then::Store);
            let activations = &pass.activations[l - 1][group * rows * layer.inputs..];
            relu_backward(below, activations, places, layer.inputs);
        }
        let out = &mut out[group / share * rows * columns..][..rows * columns];
        for (gradient, row) in pass.by_columns.chunks_exact(columns).zip(places) {
            for (out, g) in out[*row as usize * columns..][..columns].iter_mut().zip(gradient) {
                *out += *g;
            }
        }
    }
}
