//! Navigation on a grid: the cells, the moves and where each move lands.

use crate::plane::{GOAL, NOISE_VARIANCE, SIDE, START, STRIP, distance, in_danger};

/// The number of cells that are processed together; rows are padded to a multiple of it.
pub const LANES: usize = 20;
/// Steps in an episode.
pub const HORIZON: usize = 20;

/// The sizes of moves, in fifteenths.
const SIZES: [f64; 9] = [1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
/// More sizes, upwards and downwards: a plan that may not touch the strip approaches it in small, well-chosen moves.
const CREEPING: [f64; 10] = [0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.5, 4.0, 6.0, 8.0];

/// Where a move from one cell lands in one dimension: the probabilities of the cells from `first` on.
pub struct Kernel {
    pub first: usize,
    pub weights: Vec<f32>,
}

/// One dimension of the plane, divided into cells.
pub struct Axis {
    pub centres: Vec<f64>,
    edges: Vec<f64>,
    /// The number of cells, padded to a multiple of [`LANES`].
    pub stride: usize,
    pub moves: Vec<f64>,
    /// [move][cell]
    pub kernels: Vec<Vec<Kernel>>,
}

impl Axis {
    /// Cells are centred on multiples of `step`, so that the start, the goal and the walls are centres. The cells from
    /// `fine[0]` to `fine[1]` are divided into four.
    fn new(step: f64, fine: [f64; 2], moves: Vec<f64>) -> Self {
        let mut edges = vec![0.0];
        for i in 0..(SIDE / step).round() as usize {
            let edge = (i as f64 + 0.5) * step;
            let last = edges[edges.len() - 1];
            if fine[0] - 1e-9 < last && edge < fine[1] + 1e-9 {
                edges.extend([0.25, 0.5, 0.75].map(|share| last + share * (edge - last)));
            }
            edges.push(edge);
        }
        edges.push(SIDE);
        let cells = edges.len() - 1;
        // The outermost cells are half as wide; a move that hits a wall ends on it.
        let centre = |i: usize| match i {
            0 => 0.0,
            i if i == cells - 1 => SIDE,
            i => (edges[i] + edges[i + 1]) / 2.0,
        };
        let centres: Vec<f64> = (0..cells).map(centre).collect();
        let mut axis = Self { stride: cells.next_multiple_of(LANES), centres, edges, moves, kernels: Vec::new() };
        let from = |by: &f64| axis.centres.iter().map(|at| axis.kernel(at + by, NOISE_VARIANCE * by.abs())).collect();
        axis.kernels = axis.moves.iter().map(from).collect();
        axis
    }

    pub fn cells(&self) -> usize {
        self.centres.len()
    }

    pub fn cell(&self, at: f64) -> usize {
        self.edges[1..self.cells()].partition_point(|edge| *edge <= at)
    }

    fn kernel(&self, mean: f64, variance: f64) -> Kernel {
        let home = self.cell(mean);
        let width = self.edges[home + 1] - self.edges[home];
        // Sheppard's correction: moving a landing to the centre of its cell adds this much variance.
        let sd = (variance - width * width / 12.0).max(1e-12).sqrt();
        let (first, last) = (self.cell(mean - 4.5 * sd), self.cell(mean + 4.5 * sd));
        // Landings further out, or beyond a wall, count towards the outermost cells.
        let below = |edge: usize| match edge {
            edge if edge == first => 0.0,
            edge if edge == last + 1 => 1.0,
            edge => normal_cdf((self.edges[edge] - mean) / sd),
        };
        Kernel { first, weights: (first..=last).map(|i| (below(i + 1) - below(i)) as f32).collect() }
    }
}

/// Uses the Chebyshev fit of erfc from Numerical Recipes, with a relative error below 1.2e-7.
fn normal_cdf(z: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.26551223,
        1.00002368,
        0.37409196,
        0.09678418,
        -0.18628806,
        0.27886807,
        -1.13520398,
        1.48851587,
        -0.82215223,
        0.17087277,
    ];
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let tail = 0.5 * t * (FIT.iter().rev().fold(0.0, |sum, c| sum * t + c) - x * x).exp();
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// The task on the grid. Arrays over cells are `[y][x]` with rows of `x.stride`.
pub struct Model {
    pub x: Axis,
    pub y: Axis,
    /// The share of a cell that lies in a danger zone.
    pub danger: Vec<f32>,
    pub reward: Vec<f32>,
    pub start: usize,
}

impl Model {
    /// `parts` must be odd, so that the edges of the strip are edges of cells; cells are 0.2 / `parts` wide.
    pub fn new(parts: usize, creeping: bool) -> Self {
        let step = 0.2 / parts as f64;
        let moves = |sizes: &[f64]| -> Vec<f64> {
            sizes.iter().flat_map(|size| [-size / 15.0, size / 15.0]).chain([0.0]).collect()
        };
        let x = Axis::new(step, [0.0, 0.0], moves(&SIZES));
        let up = if creeping { [SIZES.as_slice(), &CREEPING].concat() } else { SIZES.to_vec() };
        let y = Axis::new(step, [STRIP[0] - 0.6, STRIP[0]], moves(&up));
        let size = y.cells() * x.stride;
        let mut model = Self { danger: vec![0.0; size], reward: vec![0.0; size], start: 0, x, y };
        for j in 0..model.y.cells() {
            for i in 0..model.x.cells() {
                let at = j * model.x.stride + i;
                model.danger[at] = model.average(i, j, |place| f64::from(u8::from(in_danger(place))));
                model.reward[at] = model.average(i, j, |place| -distance(GOAL, place));
            }
        }
        model.start = model.cell(START);
        model
    }

    /// The average of a function over a cell.
    fn average(&self, i: usize, j: usize, of: impl Fn([f64; 2]) -> f64) -> f32 {
        const FINE: usize = 12;
        let place = |axis: &Axis, cell: usize, k: usize| {
            let (low, high) = (axis.edges[cell], axis.edges[cell + 1]);
            low + (high - low) * (k as f64 + 0.5) / FINE as f64
        };
        let sum: f64 = (0..FINE * FINE).map(|k| of([place(&self.x, i, k % FINE), place(&self.y, j, k / FINE)])).sum();
        (sum / (FINE * FINE) as f64) as f32
    }

    pub fn size(&self) -> usize {
        self.reward.len()
    }

    pub fn cell(&self, at: [f64; 2]) -> usize {
        self.y.cell(at[1]) * self.x.stride + self.x.cell(at[0])
    }

    pub fn actions(&self) -> usize {
        self.x.moves.len() * self.y.moves.len()
    }

    pub fn action(&self, action: u16) -> [f64; 2] {
        let (a, b) = self.split(action);
        [self.x.moves[a], self.y.moves[b]]
    }

    fn split(&self, action: u16) -> (usize, usize) {
        (usize::from(action) / self.y.moves.len(), usize::from(action) % self.y.moves.len())
    }

    /// Calls `each(cell, probability)` for every cell in which the action may land.
    pub fn landings(&self, cell: usize, action: u16, mut each: impl FnMut(usize, f32)) {
        let (a, b) = self.split(action);
        let (across, up) = (&self.x.kernels[a][cell % self.x.stride], &self.y.kernels[b][cell / self.x.stride]);
        for (j, up_weight) in up.weights.iter().enumerate() {
            let row = (up.first + j) * self.x.stride + across.first;
            for (i, weight) in across.weights.iter().enumerate() {
                each(row + i, up_weight * weight);
            }
        }
    }

    /// The expectation of `next` over the landings of every action from every cell, one chunk of a row at a time:
    /// `each(action, cell, expectations)`. Chunks that are not `wanted` are skipped.
    pub fn expectations(&self, next: &[f32], wanted: &[bool], mut each: impl FnMut(u16, usize, &[f32; LANES])) {
        let flipped = transpose(next, self.y.cells(), self.x.stride, self.y.stride); // [x][y]
        let mut half = vec![0.0; self.x.cells() * self.y.stride];
        for (a, kernels) in self.x.kernels.iter().enumerate() {
            smear(kernels, &flipped, self.y.stride, |_| true, |at, sums| half[at..at + LANES].copy_from_slice(sums));
            let across = transpose(&half, self.x.cells(), self.y.stride, self.x.stride); // [y][x]
            for (b, kernels) in self.y.kernels.iter().enumerate() {
                let action = (a * self.y.moves.len() + b) as u16;
                smear(kernels, &across, self.x.stride, |at| wanted[at / LANES], |at, sums| each(action, at, sums));
            }
        }
    }
}

/// Expectations over the row: calls `each(cell, sums)` with the sums over r' of P(row -> r') values[r'].
fn smear(
    kernels: &[Kernel],
    values: &[f32],
    stride: usize,
    wanted: impl Fn(usize) -> bool,
    mut each: impl FnMut(usize, &[f32; LANES]),
) {
    for (row, kernel) in kernels.iter().enumerate() {
        for column in (0..stride).step_by(LANES) {
            if !wanted(row * stride + column) {
                continue;
            }
            let mut sums = [0.0; LANES];
            for (k, weight) in kernel.weights.iter().enumerate() {
                let at = (kernel.first + k) * stride + column;
                for (sum, value) in sums.iter_mut().zip(&values[at..at + LANES]) {
                    *sum += weight * value;
                }
            }
            each(row * stride + column, &sums);
        }
    }
}

/// From `[rows][stride]` to `[columns][new_stride]`.
fn transpose(values: &[f32], rows: usize, stride: usize, new_stride: usize) -> Vec<f32> {
    let mut out = vec![0.0; stride * new_stride];
    for row in 0..rows {
        for column in 0..stride {
            out[column * new_stride + row] = values[row * stride + column];
        }
    }
    out
}
