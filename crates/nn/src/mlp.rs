//! Dense networks with ReLU between the layers, in banks.

use rand::Rng;

use crate::kernels::{View, add_bias, add_bias_relu, affine_one, matmul, relu_backward, row_sum};
use crate::{Scalar, init_uniform};

/// The shape of a dense network: `sizes[0]` inputs, ReLU layers, `sizes[last]` linear outputs.
///
/// Its parameters lie in one slice, layer after layer: weight `[out, in]`, then bias `[out]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    sizes: Vec<usize>,
}

/// The activations of a bank of G networks on a batch of B rows, and room for their gradients.
#[derive(Clone, Debug)]
pub struct MlpWork<T> {
    groups: usize,
    batch: usize,
    /// One a layer: `[G, B, out]`, after the ReLU.
    activations: Vec<Vec<T>>,
    /// One a layer, of the same shapes. The last is where the caller puts the gradient of the loss.
    gradients: Vec<Vec<T>>,
    /// The rows of a network whose output gradient is not zero, and that gradient.
    rows: Vec<usize>,
    row_gradients: Vec<T>,
}

impl<T: Scalar> MlpWork<T> {
    /// Room for `groups` networks of this shape on `batch` rows each.
    pub fn new(mlp: &Mlp, groups: usize, batch: usize) -> Self {
        let layers = || mlp.sizes[1..].iter().map(|out| vec![T::ZERO; groups * batch * out]).collect();
        let (rows, row_gradients) = (Vec::with_capacity(batch), Vec::with_capacity(batch * mlp.outputs()));
        Self { groups, batch, activations: layers(), gradients: layers(), rows, row_gradients }
    }

    /// Changes the number of rows; only growing beyond the largest so far allocates.
    pub fn set_batch(&mut self, batch: usize) {
        for (a, g) in self.activations.iter_mut().zip(&mut self.gradients) {
            let width = a.len() / (self.groups * self.batch);
            a.resize(self.groups * batch * width, T::ZERO);
            g.resize(self.groups * batch * width, T::ZERO);
        }
        self.batch = batch;
    }

    /// What the last forward pass gave: `[G, B, out]`.
    pub fn output(&self) -> &[T] {
        &self.activations[self.activations.len() - 1]
    }

    /// Where the gradient of the loss by the output goes before a backward pass: `[G, B, out]`.
    pub fn output_gradient(&mut self) -> &mut [T] {
        let last = self.gradients.len() - 1;
        &mut self.gradients[last]
    }

    /// The output and its gradient at once.
    pub fn output_and_gradient(&mut self) -> (&[T], &mut [T]) {
        let last = self.gradients.len() - 1;
        (&self.activations[last], &mut self.gradients[last])
    }
}

/// One layer's place in a network's parameters.
struct Layer {
    inputs: usize,
    outputs: usize,
    offset: usize,
}

impl Layer {
    fn weight<'a, T>(&self, parameters: &'a [T]) -> &'a [T] {
        &parameters[self.offset..][..self.inputs * self.outputs]
    }
    fn bias<'a, T>(&self, parameters: &'a [T]) -> &'a [T] {
        &parameters[self.offset + self.inputs * self.outputs..][..self.outputs]
    }
}

impl Mlp {
    /// A network with these layer sizes, input first, output last.
    pub fn new(input: usize, hidden: &[usize], output: usize) -> Self {
        Self { sizes: [&[input], hidden, &[output]].concat() }
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.sizes[0]
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    /// The sizes of the layers between.
    pub fn hidden_sizes(&self) -> &[usize] {
        &self.sizes[1..self.sizes.len() - 1]
    }

    /// The number of parameters of one network.
    pub fn parameters(&self) -> usize {
        self.sizes.windows(2).map(|s| (s[0] + 1) * s[1]).sum()
    }

    /// Multiply-adds of one forward pass on one row.
    pub fn multiply_adds(&self) -> usize {
        self.sizes.windows(2).map(|s| s[0] * s[1]).sum()
    }

    fn layers(&self) -> impl DoubleEndedIterator<Item = Layer> + ExactSizeIterator + '_ {
        (0..self.sizes.len() - 1).map(|l| Layer {
            inputs: self.sizes[l],
            outputs: self.sizes[l + 1],
            offset: self.sizes[..=l].windows(2).map(|s| (s[0] + 1) * s[1]).sum(),
        })
    }

    /// Draws one network's parameters the way PyTorch's `nn.Linear` does.
    pub fn init<T: Scalar>(&self, parameters: &mut [T], rng: &mut impl Rng) {
        for layer in self.layers() {
            let n = (layer.inputs + 1) * layer.outputs;
            init_uniform(&mut parameters[layer.offset..][..n], layer.inputs, rng);
        }
    }

    /// Names and shapes of one network's tensors in the order they lie, as `nn.Sequential(Linear, ReLU, ...)` names them.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.layers()
            .enumerate()
            .flat_map(|(l, layer)| {
                let n = 2 * l; // the ReLUs between have numbers too
                [(format!("{n}.weight"), vec![layer.outputs, layer.inputs]), (format!("{n}.bias"), vec![layer.outputs])]
            })
            .collect()
    }

    /// Runs the bank on its rows: `x` is `[G / share, B, in]`, and `share` networks in a row read the same input.
    pub fn forward<T: Scalar>(&self, parameters: &[T], x: &[T], share: usize, work: &mut MlpWork<T>) {
        let (groups, batch, n) = (work.groups, work.batch, self.parameters());
        assert!(parameters.len() == groups * n && x.len() * share == groups * batch * self.inputs(), "mlp shapes");
        let last = self.layers().len() - 1;
        for g in 0..groups {
            let parameters = &parameters[g * n..][..n];
            for (l, layer) in self.layers().enumerate() {
                let (before, after) = work.activations.split_at_mut(l);
                let input = match l {
                    0 => &x[g / share * batch * layer.inputs..][..batch * layer.inputs],
                    _ => &before[l - 1][g * batch * layer.inputs..][..batch * layer.inputs],
                };
                let out = &mut after[0][g * batch * layer.outputs..][..batch * layer.outputs];
                let weight = View::new(layer.weight(parameters), layer.outputs, layer.inputs);
                matmul(out, false, View::new(input, batch, layer.inputs), weight.t());
                match l == last {
                    true => add_bias(out, layer.bias(parameters)),
                    false => add_bias_relu(out, layer.bias(parameters)),
                }
            }
        }
    }

    /// From the output gradient in `work` to the parameters' gradients, `[G, parameters]`, overwritten.
    ///
    /// Must follow a [`Mlp::forward`] with the same arguments. The output gradient stays as it was.
    pub fn backward<T: Scalar>(
        &self,
        parameters: &[T],
        x: &[T],
        share: usize,
        work: &mut MlpWork<T>,
        gradients: &mut [T],
    ) {
        let (groups, batch, n) = (work.groups, work.batch, self.parameters());
        assert!(gradients.len() == groups * n, "mlp gradient shape");
        for g in 0..groups {
            let (parameters, gradients) = (&parameters[g * n..][..n], &mut gradients[g * n..][..n]);
            for (l, layer) in self.layers().enumerate().rev() {
                let input = match l {
                    0 => &x[g / share * batch * layer.inputs..][..batch * layer.inputs],
                    _ => &work.activations[l - 1][g * batch * layer.inputs..][..batch * layer.inputs],
                };
                let (below, delta) = work.gradients.split_at_mut(l);
                let delta = &delta[0][g * batch * layer.outputs..][..batch * layer.outputs];
                let (dw, db) = gradients[layer.offset..][..(layer.inputs + 1) * layer.outputs]
                    .split_at_mut(layer.inputs * layer.outputs);
                matmul(dw, false, View::new(delta, batch, layer.outputs).t(), View::new(input, batch, layer.inputs));
                row_sum(db, delta);
                if l > 0 {
                    let below = &mut below[l - 1][g * batch * layer.inputs..][..batch * layer.inputs];
                    let weight = View::new(layer.weight(parameters), layer.outputs, layer.inputs);
                    matmul(below, false, View::new(delta, batch, layer.outputs), weight);
                    relu_backward(below, input);
                }
            }
        }
    }

    /// From the output gradient in `work` to the gradient by the input's columns from `first` on: `[G, B, in - first]`.
    ///
    /// Parameters get no gradient: this is the way back through a critic to the action. Rows whose output gradient is zero
    /// are left out of the products: behind a twin-minimum that is half of them.
    pub fn backward_input<T: Scalar>(&self, parameters: &[T], work: &mut MlpWork<T>, first: usize, dx: &mut [T]) {
        let (groups, batch, n) = (work.groups, work.batch, self.parameters());
        let (columns, outputs, last) = (self.inputs() - first, self.outputs(), self.layers().len() - 1);
        assert!(dx.len() == groups * batch * columns, "mlp input gradient shape");
        for g in 0..groups {
            let parameters = &parameters[g * n..][..n];
            work.rows.clear();
            work.row_gradients.clear();
            for (row, gradient) in
                work.gradients[last][g * batch * outputs..].chunks_exact(outputs).take(batch).enumerate()
            {
                if gradient.iter().any(|x| *x != T::ZERO) {
                    work.rows.push(row);
                    work.row_gradients.extend_from_slice(gradient);
                }
            }
            let rows = work.rows.len();
            let dx = &mut dx[g * batch * columns..][..batch * columns];
            for (l, layer) in self.layers().enumerate().rev() {
                let (below, delta) = work.gradients.split_at_mut(l);
                let delta = if l == last { &work.row_gradients } else { &delta[0][g * batch * layer.outputs..] };
                let delta = View::new(delta, rows, layer.outputs);
                let weight = layer.weight(parameters);
                if l > 0 {
                    let below = &mut below[l - 1][g * batch * layer.inputs..][..rows * layer.inputs];
                    matmul(below, false, delta, View::new(weight, layer.outputs, layer.inputs));
                    let activations = &work.activations[l - 1][g * batch * layer.inputs..];
                    for (below, row) in below.chunks_exact_mut(layer.inputs).zip(&work.rows) {
                        relu_backward(below, &activations[row * layer.inputs..][..layer.inputs]);
                    }
                } else {
                    self.first_layer_input(delta, weight, &layer, first, &mut dx[..rows * columns]);
                }
            }
            // To their places, the last row first, zeros between.
            let mut end = batch;
            for (i, row) in work.rows.iter().enumerate().rev() {
                dx.copy_within(i * columns..(i + 1) * columns, row * columns);
                dx[(row + 1) * columns..end * columns].fill(T::ZERO);
                end = *row;
            }
            dx[..end * columns].fill(T::ZERO);
        }
    }

    /// After [`Mlp::backward`]: the gradient by the input's columns from `first` on, from the deltas it left in `work`.
    pub fn input_gradient<T: Scalar>(&self, parameters: &[T], work: &MlpWork<T>, first: usize, dx: &mut [T]) {
        let (groups, batch, n) = (work.groups, work.batch, self.parameters());
        let columns = self.inputs() - first;
        let Some(layer) = self.layers().next() else { return };
        for g in 0..groups {
            let weight = layer.weight(&parameters[g * n..][..n]);
            let delta = View::new(&work.gradients[0][g * batch * layer.outputs..], batch, layer.outputs);
            self.first_layer_input(delta, weight, &layer, first, &mut dx[g * batch * columns..][..batch * columns]);
        }
    }

    fn first_layer_input<T: Scalar>(
        &self,
        delta: View<'_, T>,
        weight: &[T],
        layer: &Layer,
        first: usize,
        dx: &mut [T],
    ) {
        let columns = View::strided(&weight[first..], layer.outputs, layer.inputs - first, layer.inputs);
        matmul(dx, false, delta, columns);
    }

    /// One network on one row, for acting: fast at a batch of one. `scratch` needs no particular content or size.
    pub fn forward_one<T: Scalar>(&self, parameters: &[T], x: &[T], out: &mut [T], scratch: &mut [Vec<T>; 2]) {
        let last = self.layers().len() - 1;
        let [a, b] = scratch;
        a.clear();
        a.extend_from_slice(x);
        for (l, layer) in self.layers().enumerate() {
            if l == last {
                affine_one(out, layer.weight(parameters), layer.bias(parameters), a);
            } else {
                b.clear();
                b.resize(layer.outputs, T::ZERO);
                affine_one(b, layer.weight(parameters), layer.bias(parameters), a);
                for v in b.iter_mut() {
                    *v = v.max(T::ZERO);
                }
                std::mem::swap(a, b);
            }
        }
    }
}
