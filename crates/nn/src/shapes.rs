//! Shapes of networks, and the layout of the parameters of a bank of networks. This module holds no parameters.

/// The shape of a dense network: `sizes[0]` inputs, ReLU layers, `sizes[last]` linear outputs.
///
/// The layout of its parameters is layer by layer: weight `[in, out]` (the transpose of PyTorch's), then bias `[out]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    sizes: Vec<usize>,
}

/// One layer, and the offset of its parameters within the network's.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Numbers of an input row.
    pub inputs: usize,
    /// Numbers of an output row.
    pub outputs: usize,
    /// Where the weights begin within the network's parameters; the bias follows them.
    pub offset: usize,
}

impl Layer {
    pub(crate) fn weight<'a, T>(&self, parameters: &'a [T]) -> &'a [T] {
        &parameters[self.offset..][..self.inputs * self.outputs]
    }

    pub(crate) fn bias<'a, T>(&self, parameters: &'a [T]) -> &'a [T] {
        &parameters[self.offset + self.inputs * self.outputs..][..self.outputs]
    }
}

impl Mlp {
    /// A network with these layer widths.
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

    /// The widths of the hidden layers.
    pub fn hidden_sizes(&self) -> &[usize] {
        &self.sizes[1..self.sizes.len() - 1]
    }

    /// The number of layers with parameters.
    pub(crate) fn depth(&self) -> usize {
        self.sizes.len() - 1
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        self.sizes.windows(2).map(|s| (s[0] + 1) * s[1]).sum()
    }

    /// Multiply-adds of one forward pass on one row.
    pub fn multiply_adds(&self) -> usize {
        self.sizes.windows(2).map(|s| s[0] * s[1]).sum()
    }

    /// The layers, the one that reads the input first.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = Layer> + ExactSizeIterator + '_ {
        (0..self.depth()).map(|l| Layer {
            inputs: self.sizes[l],
            outputs: self.sizes[l + 1],
            offset: self.sizes[..=l].windows(2).map(|s| (s[0] + 1) * s[1]).sum(),
        })
    }

    /// Draws parameters as PyTorch's `nn.Linear` does; `uniform(bound)` returns a number uniform in `-bound..bound`.
    pub fn init(&self, parameters: &mut [f32], uniform: &mut dyn FnMut(f64) -> f64) {
        for layer in self.layers() {
            let bound = (layer.inputs as f64).sqrt().recip();
            parameters[layer.offset..][..(layer.inputs + 1) * layer.outputs].fill_with(|| uniform(bound) as f32);
        }
    }

    /// PyTorch's names and shapes of the tensors of `nn.Sequential(Linear, ReLU, ...)`, in the order of the layout.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        self.layers()
            .enumerate()
            .flat_map(|(l, layer)| {
                let n = 2 * l; // the ReLUs in between are numbered too
                [(format!("{n}.weight"), vec![layer.outputs, layer.inputs]), (format!("{n}.bias"), vec![layer.outputs])]
            })
            .collect()
    }
}

/// The shape of a GRU layer. The layout of its parameters is `weight_ih [in, 3H]`, `weight_hh [H, 3H]` (the transposes
/// of PyTorch's), `bias_ih [3H]`, `bias_hh [3H]`, each with the gates in PyTorch's order r, z, n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gru {
    /// Width of the input.
    pub inputs: usize,
    /// Width of the memory h.
    pub hidden: usize,
}

impl Gru {
    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        3 * self.hidden * (self.inputs + self.hidden + 2)
    }

    /// Multiply-adds of one step of one sequence.
    pub fn multiply_adds(&self) -> usize {
        3 * self.hidden * (self.inputs + self.hidden)
    }

    /// Where the four tensors begin within a network's parameters.
    pub fn offsets(&self) -> GruParameters<usize> {
        let three = 3 * self.hidden;
        let memory = three * self.inputs;
        let input_bias = memory + three * self.hidden;
        GruParameters { input: 0, memory, input_bias, memory_bias: input_bias + three }
    }

    /// Draws parameters as `nn.GRU` does; `uniform(bound)` returns a number uniform in `-bound..bound`.
    pub fn init(&self, parameters: &mut [f32], uniform: &mut dyn FnMut(f64) -> f64) {
        let bound = (self.hidden as f64).sqrt().recip();
        parameters.fill_with(|| uniform(bound) as f32);
    }

    /// PyTorch's names and shapes of the tensors, in the order of the layout.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let three = 3 * self.hidden;
        vec![
            ("weight_ih_l0".into(), vec![three, self.inputs]),
            ("weight_hh_l0".into(), vec![three, self.hidden]),
            ("bias_ih_l0".into(), vec![three]),
            ("bias_hh_l0".into(), vec![three]),
        ]
    }

    pub(crate) fn split<'a, T>(&self, parameters: &'a [T]) -> GruParameters<&'a [T]> {
        let three = 3 * self.hidden;
        let (input, rest) = parameters.split_at(three * self.inputs);
        let (memory, rest) = rest.split_at(three * self.hidden);
        let (input_bias, memory_bias) = rest.split_at(three);
        GruParameters { input, memory, input_bias, memory_bias }
    }

    pub(crate) fn split_mut<'a, T>(&self, parameters: &'a mut [T]) -> GruParameters<&'a mut [T]> {
        let three = 3 * self.hidden;
        let (input, rest) = parameters.split_at_mut(three * self.inputs);
        let (memory, rest) = rest.split_at_mut(three * self.hidden);
        let (input_bias, memory_bias) = rest.split_at_mut(three);
        GruParameters { input, memory, input_bias, memory_bias }
    }
}

/// The four tensors of a GRU.
pub struct GruParameters<S> {
    /// `weight_ih [in, 3H]`
    pub input: S,
    /// `weight_hh [H, 3H]`
    pub memory: S,
    /// `bias_ih [3H]`
    pub input_bias: S,
    /// `bias_hh [3H]`
    pub memory_bias: S,
}

/// G networks of one shape. In a buffer, the parameters of the first begin at `offset`, those of the others `stride`
/// numbers after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank<S> {
    /// The shape of each.
    pub shape: S,
    /// G, the number of networks.
    pub groups: usize,
    /// Where the parameters of the first network begin.
    pub offset: usize,
    /// Numbers from the start of one network's parameters to the start of the next one's.
    pub stride: usize,
}

/// The shape of a network.
pub trait Shape {
    /// The number of parameters of one network.
    fn parameters(&self) -> usize;
}

impl Shape for Mlp {
    fn parameters(&self) -> usize {
        Mlp::parameters(self)
    }
}

impl Shape for Gru {
    fn parameters(&self) -> usize {
        Gru::parameters(self)
    }
}

impl<S: Shape> Bank<S> {
    /// Networks whose parameters follow one another without gaps.
    pub fn dense(shape: S, groups: usize) -> Self {
        let stride = shape.parameters();
        Self { shape, groups, offset: 0, stride }
    }

    /// The parameters of network `group` in the bank's buffer.
    pub fn parameters<'a, T>(&self, buffer: &'a [T], group: usize) -> &'a [T] {
        &buffer[group * self.stride + self.offset..][..self.shape.parameters()]
    }

    /// The same, mutably.
    pub fn parameters_mut<'a, T>(&self, buffer: &'a mut [T], group: usize) -> &'a mut [T] {
        &mut buffer[group * self.stride + self.offset..][..self.shape.parameters()]
    }
}
