//! The gated recurrent unit (GRU): over sequences, forward and backward through time, and one step at a time.
//!
//! In PyTorch's form, with gates in the order r, z, n:
//! `r = s(W_ir x + b_ir + W_hr h + b_hr)`, `z` likewise, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`,
//! `h' = (1 - z) n + z h`.

use super::matrix::{Then, View, product};
use super::pointwise::row_sum;
use super::vectors::vectorised;
use super::{Buffer, Cpu};
use crate::Scalar;
use crate::shapes::{Bank, Gru};
use crate::work::{Columns, GruPass};

fn rows_of<'a, T: Scalar>(columns: &Columns<'a, Cpu<T>>, group: usize, rows: usize) -> &'a [T] {
    &columns.buffer[group / columns.share * columns.stride..][..rows * columns.width]
}

fn check_input<T: Scalar>(net: &Bank<Gru>, input: &Columns<'_, Cpu<T>>, pass: &GruPass<Cpu<T>>) {
    assert!(
        input.width == net.shape.inputs && pass.groups == net.groups,
        "{} GRUs of {} inputs got rows of {} numbers and a pass for {} GRUs",
        net.groups,
        net.shape.inputs,
        input.width,
        pass.groups
    );
}

/// After the end of a shorter sequence, the input may be anything: no gradient flows back from there.
pub(super) fn forward<T: Scalar>(
    net: &Bank<Gru>,
    weights: &[T],
    input: Columns<'_, Cpu<T>>,
    pass: &mut GruPass<Cpu<T>>,
) {
    check_input(net, &input, pass);
    let (steps, rows, h) = (pass.steps, pass.rows, net.shape.hidden);
    for group in 0..net.groups {
        let w = net.shape.split(net.parameters(weights, group));
        let w_hh = View::new(w.memory, h, 3 * h);
        let x = rows_of(&input, group, steps * rows);
        let gates = &mut pass.gates[group * steps * rows * 3 * h..][..steps * rows * 3 * h];
        let candidate = &mut pass.candidate[group * steps * rows * h..][..steps * rows * h];
        let hidden = &mut pass.hidden[group * (steps + 1) * rows * h..][..(steps + 1) * rows * h];
        let row = &mut pass.row[group * rows * 3 * h..][..rows * 3 * h];
        let inputs = net.shape.inputs;
        product(gates, View::new(x, steps * rows, inputs), View::new(w.input, inputs, 3 * h), Then::Bias(w.input_bias));
        hidden[..rows * h].fill(T::ZERO);
        for t in 0..steps {
            let (past, future) = hidden.split_at_mut((t + 1) * rows * h);
            let past = &past[t * rows * h..];
            product(row, View::new(past, rows, h), w_hh, Then::Bias(w.memory_bias));
            let gates = &mut gates[t * rows * 3 * h..][..rows * 3 * h];
            let candidate = &mut candidate[t * rows * h..][..rows * h];
            let row = &*row;
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        cell(
                            h,
                            &mut gates[b * 3 * h..][..3 * h],
                            &row[b * 3 * h..][..3 * h],
                            &past[b * h..][..h],
                            &mut candidate[b * h..][..h],
                            &mut future[b * h..][..h],
                        );
                    }
                },
            );
        }
    }
}

pub(super) fn backward<T: Scalar>(
    net: &Bank<Gru>,
    weights: &[T],
    input: Columns<'_, Cpu<T>>,
    dh: &[T],
    pass: &mut GruPass<Cpu<T>>,
    gradients: &mut [T],
    mut dx: Option<&mut Buffer<T>>,
) {
    check_input(net, &input, pass);
    let (steps, rows, h, inputs) = (pass.steps, pass.rows, net.shape.hidden, net.shape.inputs);
    let all = steps * rows;
    for group in 0..net.groups {
        let w = net.shape.split(net.parameters(weights, group));
        // Transposed once instead of at every step.
        let transposed = &mut pass.transposed[..3 * h * h];
        for (i, w) in w.memory.iter().enumerate() {
            transposed[i % (3 * h) * h + i / (3 * h)] = *w;
        }
        let w_hh = View::new(transposed, 3 * h, h);
        let dh = &dh[group * (all + rows) * h..][..(all + rows) * h];
        let hidden = &pass.hidden[group * (all + rows) * h..][..(all + rows) * h];
        let gates = &pass.gates[group * all * 3 * h..][..all * 3 * h];
        let candidate = &pass.candidate[group * all * h..][..all * h];
        let input_side = &mut pass.input_side[group * all * 3 * h..][..all * 3 * h];
        let memory_side = &mut pass.memory_side[group * all * 3 * h..][..all * 3 * h];
        let carry = &mut pass.carry[group * rows * h..][..rows * h];
        carry.copy_from_slice(&dh[all * h..]);
        for t in (0..steps).rev() {
            let range = t * rows * 3 * h..(t + 1) * rows * 3 * h;
            let gates = &gates[range.clone()];
            let past = &hidden[t * rows * h..][..rows * h];
            let candidate = &candidate[t * rows * h..][..rows * h];
            let from_decoder = &dh[t * rows * h..][..rows * h];
            let (input_side, memory_side) = (&mut input_side[range.clone()], &mut memory_side[range]);
            let carried = &mut *carry;
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        cell_backward(
                            h,
                            &gates[b * 3 * h..][..3 * h],
                            &past[b * h..][..h],
                            &candidate[b * h..][..h],
                            &mut carried[b * h..][..h],
                            &mut input_side[b * 3 * h..][..3 * h],
                            &mut memory_side[b * 3 * h..][..3 * h],
                            &from_decoder[b * h..][..h],
                        );
                    }
                },
            );
            product(carry, View::new(memory_side, rows, 3 * h), w_hh, Then::Add);
        }
        let g = net.shape.split_mut(net.parameters_mut(gradients, group));
        let x = rows_of(&input, group, all);
        product(g.input, View::new(x, all, inputs).t(), View::new(input_side, all, 3 * h), Then::Store);
        product(g.memory, View::new(hidden, all, h).t(), View::new(memory_side, all, 3 * h), Then::Store);
        row_sum(g.input_bias, input_side);
        row_sum(g.memory_bias, memory_side);
        if let Some(dx) = &mut dx {
            let dx = &mut dx[group * all * inputs..][..all * inputs];
            let weight = View::new(w.input, inputs, 3 * h).t();
            product(dx, View::new(input_side, all, 3 * h), weight, Then::Store);
        }
    }
}

pub(super) fn step<T: Scalar>(
    net: &Bank<Gru>,
    weights: &[T],
    input: Columns<'_, Cpu<T>>,
    hidden: &mut [T],
    pass: &mut GruPass<Cpu<T>>,
) {
    check_input(net, &input, pass);
    let (rows, h) = (pass.rows, net.shape.hidden);
    for group in 0..net.groups {
        let w = net.shape.split(net.parameters(weights, group));
        let x = rows_of(&input, group, rows);
        let hidden = &mut hidden[group * rows * h..][..rows * h];
        let (gates, row) = (&mut pass.gates[..rows * 3 * h], &mut pass.row[..rows * 3 * h]);
        let inputs = net.shape.inputs;
        product(gates, View::new(x, rows, inputs), View::new(w.input, inputs, 3 * h), Then::Bias(w.input_bias));
        product(row, View::new(hidden, rows, h), View::new(w.memory, h, 3 * h), Then::Bias(w.memory_bias));
        let (candidate, next) = (&mut pass.candidate[..rows * h], &mut pass.carry[..rows * h]);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    cell(
                        h,
                        &mut gates[b * 3 * h..][..3 * h],
                        &row[b * 3 * h..][..3 * h],
                        &hidden[b * h..][..h],
                        &mut candidate[b * h..][..h],
                        &mut next[b * h..][..h],
                    );
                }
            },
        );
        hidden.copy_from_slice(next);
    }
}

/// Turns the input side of the gates' pre-activations into the gates, and computes the next memory.
#[inline(always)]
fn cell<T: Scalar>(h: usize, gates: &mut [T], row: &[T], past: &[T], candidate: &mut [T], next: &mut [T]) {
    let (r, rest) = gates.split_at_mut(h);
    let (z, n) = rest.split_at_mut(h);
    let (row_r, rest) = row.split_at(h);
    let (row_z, row_n) = rest.split_at(h);
    for i in 0..h {
        r[i] = (r[i] + row_r[i]).sigmoid();
        z[i] = (z[i] + row_z[i]).sigmoid();
        candidate[i] = row_n[i];
        n[i] = r[i].fma(row_n[i], n[i]).tanh();
        next[i] = z[i].fma(past[i] - n[i], n[i]);
    }
}

/// Takes the gradient with respect to h' in `carry`. Replaces it by the part of the gradient with respect to h that
/// does not go through a matrix, plus `from_decoder`.
#[inline(always)]
fn cell_backward<T: Scalar>(
    h: usize,
    gates: &[T],
    past: &[T],
    candidate: &[T],
    carry: &mut [T],
    input_side: &mut [T],
    memory_side: &mut [T],
    from_decoder: &[T],
) {
    let (r, rest) = gates.split_at(h);
    let (z, n) = rest.split_at(h);
    let (in_r, rest) = input_side.split_at_mut(h);
    let (in_z, in_n) = rest.split_at_mut(h);
    let (mem_r, rest) = memory_side.split_at_mut(h);
    let (mem_z, mem_n) = rest.split_at_mut(h);
    for i in 0..h {
        let d = carry[i].flush(T::NEGLIGIBLE); // it decays on the way back through time
        let dz = (d * (past[i] - n[i]) * z[i] * (T::ONE - z[i])).flush(T::NEGLIGIBLE);
        let dn = (d * (T::ONE - z[i]) * (T::ONE - n[i] * n[i])).flush(T::NEGLIGIBLE);
        let dr = (dn * candidate[i] * r[i] * (T::ONE - r[i])).flush(T::NEGLIGIBLE);
        in_r[i] = dr;
        in_z[i] = dz;
        in_n[i] = dn;
        mem_r[i] = dr;
        mem_z[i] = dz;
        mem_n[i] = (dn * r[i]).flush(T::NEGLIGIBLE);
        carry[i] = d.fma(z[i], from_decoder[i]);
    }
}
