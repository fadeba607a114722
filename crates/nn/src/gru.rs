//! The gated recurrent unit over sequences, forward and backward through time, and one step at a time.
//!
//! PyTorch's form: with gates in the order r, z, n,
//! `r = s(W_ir x + b_ir + W_hr h + b_hr)`, `z` likewise, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`,
//! `h' = (1 - z) n + z h`.

use rand::Rng;

use crate::kernels::{View, add_bias, affine_one, matmul, row_sum, vectorised};
use crate::{Scalar, init_uniform};

/// The shape of a GRU layer. Parameters lie in one slice: `weight_ih [3H, in]`, `weight_hh [3H, H]`, `bias_ih [3H]`,
/// `bias_hh [3H]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gru {
    /// Inputs a step.
    pub inputs: usize,
    /// Size of the memory h.
    pub hidden: usize,
}

/// What a forward pass over `[T, B]` steps keeps for the way back.
#[derive(Clone, Debug)]
pub struct GruWork<T> {
    steps: usize,
    batch: usize,
    /// `[T + 1, B, H]`: h before each step, and after the last.
    hidden: Vec<T>,
    /// `[T, B, 3H]`: r, z, n after their non-linearities.
    gates: Vec<T>,
    /// `[T, B, H]`: `W_hn h + b_hn`, which r multiplies.
    candidate: Vec<T>,
    /// `[T, B, 3H]`: gradients by the input's and by the memory's side of the gates.
    input_side: Vec<T>,
    memory_side: Vec<T>,
    /// `[B, 3H]` and `[B, H]`
    row: Vec<T>,
    carry: Vec<T>,
}

impl<T: Scalar> GruWork<T> {
    /// Room for sequences of up to `steps` steps, `batch` at a time.
    pub fn new(gru: &Gru, steps: usize, batch: usize) -> Self {
        let (h, n) = (gru.hidden, steps * batch);
        let zeros = |n: usize| vec![T::ZERO; n];
        Self {
            steps,
            batch,
            hidden: zeros((n + batch) * h),
            gates: zeros(n * 3 * h),
            candidate: zeros(n * h),
            input_side: zeros(n * 3 * h),
            memory_side: zeros(n * 3 * h),
            row: zeros(batch * 3 * h),
            carry: zeros(batch * h),
        }
    }

    /// Changes the number of steps; only growing beyond the largest so far allocates.
    pub fn set_steps(&mut self, steps: usize) {
        let h = self.carry.len() / self.batch;
        let n = steps * self.batch;
        self.hidden.resize((n + self.batch) * h, T::ZERO);
        self.candidate.resize(n * h, T::ZERO);
        for buffer in [&mut self.gates, &mut self.input_side, &mut self.memory_side] {
            buffer.resize(n * 3 * h, T::ZERO);
        }
        self.steps = steps;
    }

    /// `[T + 1, B, H]`: the memory before each step (zeros first), then after the last.
    pub fn hidden(&self) -> &[T] {
        &self.hidden
    }
}

impl Gru {
    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        3 * self.hidden * (self.inputs + self.hidden + 2)
    }

    /// Draws the parameters as `nn.GRU` does: uniform in +-1/sqrt(H).
    pub fn init<T: Scalar>(&self, parameters: &mut [T], rng: &mut impl Rng) {
        init_uniform(parameters, self.hidden, rng);
    }

    /// Names and shapes of the tensors, in the order they lie.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let three = 3 * self.hidden;
        vec![
            ("weight_ih_l0".into(), vec![three, self.inputs]),
            ("weight_hh_l0".into(), vec![three, self.hidden]),
            ("bias_ih_l0".into(), vec![three]),
            ("bias_hh_l0".into(), vec![three]),
        ]
    }

    fn split<'a, T>(&self, parameters: &'a [T]) -> (&'a [T], &'a [T], &'a [T], &'a [T]) {
        let three = 3 * self.hidden;
        let (w_ih, rest) = parameters.split_at(three * self.inputs);
        let (w_hh, rest) = rest.split_at(three * self.hidden);
        let (b_ih, b_hh) = rest.split_at(three);
        (w_ih, w_hh, b_ih, b_hh)
    }

    /// Runs `x [T, B, in]` from h = 0. Rows that end early may hold anything afterwards: nothing flows back from there.
    pub fn forward<T: Scalar>(&self, parameters: &[T], x: &[T], work: &mut GruWork<T>) {
        let (steps, batch, h) = (work.steps, work.batch, self.hidden);
        assert!(parameters.len() == self.parameters() && x.len() == steps * batch * self.inputs, "gru shapes");
        let (w_ih, w_hh, b_ih, b_hh) = self.split(parameters);
        let w_hh = View::new(w_hh, 3 * h, h).t();
        matmul(
            &mut work.gates,
            false,
            View::new(x, steps * batch, self.inputs),
            View::new(w_ih, 3 * h, self.inputs).t(),
        );
        add_bias(&mut work.gates, b_ih);
        work.hidden[..batch * h].fill(T::ZERO);
        for t in 0..steps {
            let (past, future) = work.hidden.split_at_mut((t + 1) * batch * h);
            let past = &past[t * batch * h..];
            matmul(&mut work.row, false, View::new(past, batch, h), w_hh);
            add_bias(&mut work.row, b_hh);
            let gates = &mut work.gates[t * batch * 3 * h..][..batch * 3 * h];
            let candidate = &mut work.candidate[t * batch * h..][..batch * h];
            let row = &work.row;
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..batch {
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

    /// Back through time. `dh [T + 1, B, H]` holds the gradient by every h (from the decoder); parameters' gradients are
    /// overwritten. Must follow [`Gru::forward`] on the same `x`.
    pub fn backward<T: Scalar>(&self, parameters: &[T], x: &[T], dh: &[T], work: &mut GruWork<T>, gradients: &mut [T]) {
        let (steps, batch, h) = (work.steps, work.batch, self.hidden);
        assert!(gradients.len() == self.parameters() && dh.len() == (steps + 1) * batch * h, "gru gradient shapes");
        let (_, w_hh, ..) = self.split(parameters);
        let w_hh = View::new(w_hh, 3 * h, h);
        work.carry.copy_from_slice(&dh[steps * batch * h..]);
        for t in (0..steps).rev() {
            let range = t * batch * 3 * h..(t + 1) * batch * 3 * h;
            let gates = &work.gates[range.clone()];
            let past = &work.hidden[t * batch * h..][..batch * h];
            let candidate = &work.candidate[t * batch * h..][..batch * h];
            let (carry, from_decoder) = (&mut work.carry, &dh[t * batch * h..][..batch * h]);
            let (input_side, memory_side) = (&mut work.input_side[range.clone()], &mut work.memory_side[range]);
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..batch {
                        cell_backward(
                            h,
                            &gates[b * 3 * h..][..3 * h],
                            &past[b * h..][..h],
                            &candidate[b * h..][..h],
                            &mut carry[b * h..][..h],
                            &mut input_side[b * 3 * h..][..3 * h],
                            &mut memory_side[b * 3 * h..][..3 * h],
                            &from_decoder[b * h..][..h],
                        );
                    }
                },
            );
            matmul(&mut work.carry, true, View::new(memory_side, batch, 3 * h), w_hh);
        }
        let rows = steps * batch;
        let (dw_ih, rest) = gradients.split_at_mut(3 * h * self.inputs);
        let (dw_hh, rest) = rest.split_at_mut(3 * h * h);
        let (db_ih, db_hh) = rest.split_at_mut(3 * h);
        matmul(dw_ih, false, View::new(&work.input_side, rows, 3 * h).t(), View::new(x, rows, self.inputs));
        matmul(dw_hh, false, View::new(&work.memory_side, rows, 3 * h).t(), View::new(&work.hidden, rows, h));
        row_sum(db_ih, &work.input_side);
        row_sum(db_hh, &work.memory_side);
    }

    /// After [`Gru::backward`]: the gradient by the input, `[T, B, in]`.
    pub fn input_gradient<T: Scalar>(&self, parameters: &[T], work: &GruWork<T>, dx: &mut [T]) {
        let (w_ih, ..) = self.split(parameters);
        let rows = work.steps * work.batch;
        let gates = View::new(&work.input_side, rows, 3 * self.hidden);
        matmul(dx, false, gates, View::new(w_ih, 3 * self.hidden, self.inputs));
    }

    /// One step of one sequence, for acting: `h` is replaced by the memory after the step. `scratch`: any content or size.
    pub fn step<T: Scalar>(&self, parameters: &[T], x: &[T], h: &mut [T], scratch: &mut [Vec<T>; 3]) {
        let (w_ih, w_hh, b_ih, b_hh) = self.split(parameters);
        let [gates, row, rest] = scratch;
        for (buffer, n) in [(&mut *gates, 3), (&mut *row, 3), (&mut *rest, 2)] {
            buffer.resize(n * self.hidden, T::ZERO);
        }
        affine_one(gates, w_ih, b_ih, x);
        affine_one(row, w_hh, b_hh, h);
        let (candidate, next) = rest.split_at_mut(self.hidden);
        vectorised(
            #[inline(always)]
            || cell(self.hidden, gates, row, h, candidate, next),
        );
        h.copy_from_slice(next);
    }
}

/// Turns the input's side of the gates into the gates, and gives the next memory.
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

/// Given `carry`, the gradient by h', leaves in it the part by h that does not go through a matrix, plus `from_decoder`.
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
        let d = carry[i];
        let dz = d * (past[i] - n[i]) * z[i] * (T::ONE - z[i]);
        let dn = d * (T::ONE - z[i]) * (T::ONE - n[i] * n[i]);
        let dr = dn * candidate[i] * r[i] * (T::ONE - r[i]);
        in_r[i] = dr;
        in_z[i] = dz;
        in_n[i] = dn;
        mem_r[i] = dr;
        mem_z[i] = dz;
        mem_n[i] = dn * r[i];
        carry[i] = d.fma(z[i], from_decoder[i]);
    }
}
