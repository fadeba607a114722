//! Banks of dense and recurrent layers: which kernel computes what, and where its operands are.

use std::sync::PoisonError;

use prudence_nn::work::*;
use prudence_nn::{Bank, Gru, Layer, Mlp, Precision};

use crate::arguments as args;
use crate::device::{BLOCK, Cuda, WARP, int};
use crate::memory::Array;

/// The most rows of the kernel for few rows.
const THIN_ROWS: usize = 8;
/// The most outputs of the kernels for few outputs.
const NARROW_OUTPUTS: usize = 16;
/// Sums over more rows than this are split into parts of about half as many.
const LONG: usize = 2048;
/// Of products: columns per tile of a factor, and tiles in shared memory.
const DEPTH: usize = 32;
const STAGES: usize = 2;
/// Of the kernel for all layers of a network: the most inputs, and the most outputs of a layer.
const CHAIN_INPUTS: usize = 128;
const CHAIN_WIDTH: usize = 64;

/// The kinds of products of a layer.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Output,
    InputGradient,
    WeightGradient,
}

impl Kind {
    /// The kernel for square tiles of the result with sides of 32, 64 or 128 numbers.
    pub(crate) fn kernel(self, precision: Precision, size: usize) -> &'static str {
        let [tf32, fp32] = match self {
            Self::Output => [
                ["output_tf32_32", "output_tf32_64", "output_tf32_128"],
                ["output_fp32_32", "output_fp32_64", "output_fp32_128"],
            ],
            Self::InputGradient => [
                ["input_gradient_tf32_32", "input_gradient_tf32_64", "input_gradient_tf32_128"],
                ["input_gradient_fp32_32", "input_gradient_fp32_64", "input_gradient_fp32_128"],
            ],
            Self::WeightGradient => [
                ["weight_gradient_tf32_32", "weight_gradient_tf32_64", "weight_gradient_tf32_128"],
                ["weight_gradient_fp32_32", "weight_gradient_fp32_64", "weight_gradient_fp32_128"],
            ],
        };
        match precision {
            Precision::Tf32 => tf32[size],
            Precision::Fp32 => fp32[size],
        }
    }
}

/// The input of a layer: rows of one array or of two side by side.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) first_width: usize,
    pub(crate) first_share: usize,
    pub(crate) first_stride: usize,
    pub(crate) second: u64,
    pub(crate) second_width: usize,
    pub(crate) second_share: usize,
    pub(crate) second_stride: usize,
}

impl Rows {
    /// Rows of one array, `[G, rows, width]`.
    pub(crate) fn plain(array: &Array<f32>, groups: usize, rows: usize, width: usize) -> Self {
        Self::strided(array.first(groups * rows * width), width, rows * width)
    }

    pub(crate) fn strided(first: u64, width: usize, stride: usize) -> Self {
        Self {
            first,
            first_width: width,
            first_share: 1,
            first_stride: stride,
            second: 0,
            second_width: 0,
            second_share: 1,
            second_stride: 0,
        }
    }

    pub(crate) fn columns(columns: &Columns<'_, Cuda>, groups: usize, rows: usize) -> Self {
        Self {
            first: address(columns, groups, rows),
            first_share: columns.share,
            ..Self::strided(0, columns.width, columns.stride)
        }
    }

    pub(crate) fn input(input: &Input<'_, Cuda>, groups: usize, rows: usize) -> Self {
        let first = Self::columns(&input.first, groups, rows);
        let Some(second) = &input.second else { return first };
        Self {
            second: address(second, groups, rows),
            second_width: second.width,
            second_share: second.share,
            second_stride: second.stride,
            ..first
        }
    }
}

/// The address of columns that `groups` networks read `rows` rows of.
pub(crate) fn address(columns: &Columns<'_, Cuda>, groups: usize, rows: usize) -> u64 {
    let last = (groups - 1) / columns.share;
    columns.buffer.first(last * columns.stride + rows * columns.width)
}

impl Cuda {
    pub(crate) fn product(&self, kind: Kind, product: &args::Product) {
        let [m, n, groups, splits] = [product.m, product.n, product.groups, product.splits].map(|x| x as usize);
        let tiles = |side: usize| m.div_ceil(side) * n.div_ceil(side) * groups * splits;
        // A large tile reads less, but the card needs work for all its multiprocessors.
        let busy = self.queue.multiprocessors();
        let size = if m > 64 && n > 64 && tiles(128) >= 2 * busy { 2 } else { usize::from(tiles(64) >= busy) };
        let (side, threads) = [(32, 128), (64, 128), (128, 256)][size];
        let grid = [m.div_ceil(side), n.div_ceil(side), groups * splits];
        let shared = STAGES * 2 * side * (DEPTH + 8);
        self.launch(kind.kernel(self.precision, size), grid, threads, shared, product);
    }

    /// Computes the gradient of a layer's weights and bias by `product`: at once or, over many rows, in parts that are then
    /// added in order. `product` gets the places of both gradients, the numbers from one network's to the next one's, and
    /// the number of parts.
    fn in_parts(
        &self,
        [groups, rows]: [usize; 2],
        [inputs, outputs]: [usize; 2],
        [to, to_bias]: [u64; 2],
        stride: usize,
        product: impl FnOnce([u64; 2], usize, usize),
    ) {
        if rows <= LONG {
            return product([to, to_bias], stride, 1);
        }
        let each = (inputs + 1) * outputs;
        let splits = rows.div_ceil(LONG / 2).min(64);
        let needed = splits * groups * each;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.last().is_none_or(|parts| parts.len() < needed) {
            match Array::zeros(&self.queue, needed) {
                Ok(array) => parts.push(array),
                Err(failure) => return self.queue.fail(failure),
            }
        }
        let start = parts.last().map_or(0, |parts| parts.first(needed));
        product([start, start + 4 * (inputs * outputs) as u64], each, splits);
        let arguments = args::AddSplits {
            parts: start,
            out: to,
            sums: to_bias,
            stride: stride as u64,
            m: int(inputs),
            n: int(outputs),
            groups: int(groups),
            splits: int(splits),
        };
        self.each("add_splits", each, groups, &arguments);
    }

    /// `x W + b` and, in hidden layers, the ReLU.
    pub(crate) fn layer(
        &self,
        layer: &Layer,
        weights: Weights,
        x: Rows,
        groups: usize,
        rows: usize,
        out: u64,
        relu: bool,
    ) {
        let Layer { inputs, outputs, .. } = *layer;
        if rows <= THIN_ROWS {
            let arguments = args::Thin {
                a: x.first,
                second: x.second,
                weights: weights.start,
                out,
                a_stride: x.first_stride as u64,
                second_stride: x.second_stride as u64,
                stride: weights.stride as u64,
                a_width: int(x.first_width),
                a_share: int(x.first_share),
                second_width: int(x.second_width),
                second_share: int(x.second_share),
                rows: int(rows),
                n: int(outputs),
                relu: i32::from(relu),
            };
            return self.launch("thin", [outputs.div_ceil(WARP), groups, 1], BLOCK, 0, &arguments);
        }
        if is_narrow(layer, &x) {
            let arguments = args::Narrow {
                x: x.first,
                weights: weights.start,
                out,
                stride: weights.stride as u64,
                rows: int(rows),
                k: int(inputs),
                n: int(outputs),
                groups: int(groups),
                splits: 1,
                relu: i32::from(relu),
                ..Default::default()
            };
            let grid = [rows.div_ceil(64), groups, outputs.div_ceil(4)];
            return self.launch("narrow", grid, BLOCK, 0, &arguments);
        }
        self.product(
            Kind::Output,
            &args::Product {
                b: weights.start,
                bias: weights.start + 4 * (inputs * outputs) as u64,
                out,
                b_stride: weights.stride as u64,
                out_stride: (rows * outputs) as u64,
                m: int(rows),
                n: int(outputs),
                k: int(inputs),
                relu: i32::from(relu),
                ..factors(&x, groups)
            },
        );
    }

    /// All layers in one kernel, if the network has two or three and is small. False if not.
    pub(crate) fn chain(&self, net: &Bank<Mlp>, weights: Weights, x: &Rows, pass: &Pass<Self>) -> bool {
        let (groups, rows) = (net.groups, pass.rows());
        let layers: Vec<Layer> = net.shape.layers().collect();
        let widest = layers.iter().map(|layer| layer.outputs).max().unwrap_or(0);
        let small = net.shape.inputs() <= CHAIN_INPUTS && widest <= CHAIN_WIDTH;
        if rows <= THIN_ROWS || !matches!(layers.len(), 2 | 3) || !small {
            return false;
        }
        let output =
            |l: usize| layers.get(l).map_or(0, |layer| layer_of(&pass.activations[l], groups, rows, layer.outputs));
        let outputs = |l: usize| layers.get(l).map_or(0, |layer| int(layer.outputs));
        let last = layers[layers.len() - 1];
        let narrow = is_narrow(&last, &Rows::strided(0, last.inputs, 0));
        let arguments = args::Chain {
            a: x.first,
            second: x.second,
            weights: weights.start,
            out0: output(0),
            out1: output(1),
            out2: output(2),
            a_stride: x.first_stride as u64,
            second_stride: x.second_stride as u64,
            stride: weights.stride as u64,
            a_width: int(x.first_width),
            a_share: int(x.first_share),
            second_width: int(x.second_width),
            second_share: int(x.second_share),
            width0: outputs(0),
            width1: outputs(1),
            width2: outputs(2),
            layers: int(layers.len()),
            products: int(layers.len() - usize::from(narrow)),
            rows: int(rows),
        };
        let kernel = match self.precision {
            Precision::Tf32 => "chain_tf32",
            Precision::Fp32 => "chain_fp32",
        };
        let shared = 64 * (CHAIN_INPUTS + 4) + STAGES * DEPTH * (CHAIN_WIDTH + 8);
        self.launch(kernel, [rows.div_ceil(64), groups, 1], 128, shared, &arguments);
        true
    }

    /// The gradient of the weights and the bias, given that of the output.
    pub(crate) fn weight_gradient(
        &self,
        [inputs, outputs]: [usize; 2],
        x: Rows,
        gradient: u64,
        groups: usize,
        rows: usize,
        [to, to_bias]: [u64; 2],
        stride: usize,
    ) {
        let each = (inputs + 1) * outputs;
        self.in_parts([groups, rows], [inputs, outputs], [to, to_bias], stride, |[out, sums], out_stride, splits| {
            let product = args::Product {
                b: gradient,
                out,
                sums,
                b_stride: (rows * outputs) as u64,
                out_stride: out_stride as u64,
                split_stride: (groups * each) as u64,
                m: int(inputs),
                n: int(outputs),
                k: int(rows),
                splits: int(splits),
                ..factors(&x, groups)
            };
            self.product(Kind::WeightGradient, &product);
        });
    }

    /// The gradient of the weights and the bias of a layer of few outputs, and of its input unless `below` is 0.
    pub(crate) fn narrow_backward(
        &self,
        layer: &Layer,
        weights: Weights,
        x: u64,
        gradient: u64,
        below: u64,
        [groups, rows]: [usize; 2],
        to: Weights,
    ) {
        let Layer { inputs, outputs, .. } = *layer;
        let (each, bias) = ((inputs + 1) * outputs, to.at(inputs * outputs));
        self.in_parts(
            [groups, rows],
            [inputs, outputs],
            [to.start, bias],
            to.stride,
            |[d_weights, _], d_stride, splits| {
                let arguments = args::Narrow {
                    x,
                    weights: weights.start,
                    stride: weights.stride as u64,
                    out: gradient,
                    d_x: below,
                    d_weights,
                    d_stride: d_stride as u64,
                    split_stride: (groups * each) as u64,
                    rows: int(rows),
                    k: int(inputs),
                    n: int(outputs),
                    groups: int(groups),
                    splits: int(splits),
                    ..Default::default()
                };
                let grid = [(inputs + 1).div_ceil(WARP), groups * splits, 1];
                let kernel = if outputs <= 4 { "narrow_backward_4" } else { "narrow_backward_16" };
                self.launch(kernel, grid, BLOCK, 0, &arguments);
            },
        );
    }

    /// The gradient of the input of a layer above the first, 0 where the unit was inactive.
    pub(crate) fn hidden_gradient(
        &self,
        layer: &Layer,
        weights: Weights,
        x: &Array<f32>,
        gradient: u64,
        below: u64,
        [groups, rows]: [usize; 2],
    ) {
        let Layer { inputs, outputs, .. } = *layer;
        let x = Rows::plain(x, groups, rows, inputs);
        if is_narrow(layer, &x) {
            let arguments = args::Narrow {
                x: x.first,
                weights: weights.start,
                out: gradient,
                d_x: below,
                stride: weights.stride as u64,
                rows: int(rows),
                k: int(inputs),
                n: int(outputs),
                groups: int(groups),
                splits: 1,
                ..Default::default()
            };
            let grid = [rows.div_ceil(64), groups, inputs.div_ceil(WARP)];
            return self.launch("narrow_input", grid, BLOCK, 0, &arguments);
        }
        let gradient = Rows::strided(gradient, outputs, rows * outputs);
        self.input_product(&gradient, weights, [rows, inputs, outputs], groups, x.first, below, rows * inputs);
    }

    /// `D W^T`, 0 where the mask is not positive.
    pub(crate) fn input_product(
        &self,
        gradient: &Rows,
        weights: Weights,
        [rows, inputs, outputs]: [usize; 3],
        groups: usize,
        mask: u64,
        out: u64,
        out_stride: usize,
    ) {
        let product = args::Product {
            b: weights.start,
            mask,
            out,
            b_stride: weights.stride as u64,
            out_stride: out_stride as u64,
            m: int(rows),
            n: int(inputs),
            k: int(outputs),
            ..factors(gradient, groups)
        };
        self.product(Kind::InputGradient, &product);
    }

    pub(crate) fn scan(
        &self,
        kernels: [&'static str; 4],
        sides: usize,
        net: &Bank<Gru>,
        weights: &Array<f32>,
        pass: &GruPass<Self>,
        dh: u64,
    ) {
        let (h, groups) = (net.shape.hidden, net.groups);
        let offsets = net.shape.offsets();
        let start = weights_of(net, weights, net.shape.parameters());
        let n = groups * pass.steps * pass.rows;
        let arguments = args::GruScan {
            weights: start.at(offsets.memory),
            bias: start.at(offsets.memory_bias),
            hidden: pass.hidden.first((n + groups * pass.rows) * h),
            gates: pass.gates.first(n * 3 * h),
            candidate: pass.candidate.first(n * h),
            d_hidden: dh,
            input_side: pass.input_side.first(n * 3 * h),
            memory_side: pass.memory_side.first(n * 3 * h),
            stride: net.stride as u64,
            steps: int(pass.steps),
            rows: int(pass.rows),
            h: int(h),
        };
        let [kernel_16, kernel_32, kernel_64, kernel_any] = kernels;
        let (kernel, threads, width) = match h {
            0..=16 => (kernel_16, WARP, 16),
            17..=32 => (kernel_32, WARP, 32),
            33..=64 => (kernel_64, 64, 64),
            65..=1024 => (kernel_any, h.next_multiple_of(WARP), h.next_multiple_of(WARP)),
            _ => panic!("a memory of {h} numbers: a graphics card takes up to 1024"),
        };
        let sequences = threads / width;
        self.launch(kernel, [pass.rows.div_ceil(sequences), groups, 1], threads, sequences * sides * width, &arguments);
    }
}

/// The parameters of a bank's networks, from some position on.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) start: u64,
    pub(crate) stride: usize,
}

impl Weights {
    /// From a later position on.
    pub(crate) fn skip(self, numbers: usize) -> Self {
        Self { start: self.at(numbers), ..self }
    }

    pub(crate) fn at(self, numbers: usize) -> u64 {
        self.start + 4 * numbers as u64
    }
}

pub(crate) fn weights_of<S>(net: &Bank<S>, weights: &Array<f32>, parameters: usize) -> Weights {
    let end = net.offset + (net.groups - 1) * net.stride + parameters;
    weights.first(end);
    Weights { start: weights.part(net.offset, parameters), stride: net.stride }
}

/// Whether the kernels for few outputs take a layer.
pub(crate) fn is_narrow(layer: &Layer, x: &Rows) -> bool {
    let plain = x.second_width == 0 && x.first_share == 1;
    plain && layer.outputs <= NARROW_OUTPUTS && layer.inputs >= WARP
}

pub(crate) fn factors(x: &Rows, groups: usize) -> args::Product {
    args::Product {
        a: x.first,
        second: x.second,
        a_stride: x.first_stride as u64,
        second_stride: x.second_stride as u64,
        a_width: int(x.first_width),
        a_share: int(x.first_share),
        second_width: int(x.second_width),
        second_share: int(x.second_share),
        groups: int(groups),
        splits: 1,
        ..Default::default()
    }
}

/// Where a bank's rows of a layer are in a pass: `[G, rows, width]`.
pub(crate) fn layer_of(array: &Array<f32>, groups: usize, rows: usize, width: usize) -> u64 {
    array.first(groups * rows * width)
}
