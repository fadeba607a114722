//! The operations of a [`Device`], as launches of kernels.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use prudence_nn::work::*;
use prudence_nn::{AdamSettings, Bank, Device, DeviceError, Gru, Mlp, Precision};

use crate::arguments as args;
use crate::layers::{Kind, Rows, address, factors, is_narrow, layer_of, weights_of};
use crate::memory::Array;
use crate::queue::{Graph, Launch, Queue};

/// A graphics card with its own queue.
#[derive(Clone)]
pub struct Cuda {
    pub(crate) queue: Arc<dyn Queue>,
    /// Of products of batches. Everything else, and layers of few rows or outputs, is f32.
    pub(crate) precision: Precision,
    /// The parts of split products. A recorded sequence keeps its address, so an array that became too small stays.
    pub(crate) parts: Arc<Mutex<Vec<Array<f32>>>>,
}

/// A sequence of operations: run as it is the first time, which compiles and allocates what it needs, recorded the second
/// time, replayed from then on.
#[derive(Default)]
pub enum Sequence {
    /// Not run yet.
    #[default]
    Fresh,
    /// Run once.
    Warm,
    /// Recorded.
    Recorded(Graph),
}

/// Threads of a block of most kernels.
pub(crate) const BLOCK: usize = 256;
pub(crate) const WARP: usize = 32;

/// A number that a kernel takes as an `int`.
pub(crate) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or_else(|_| panic!("{n} is more than a kernel can count"))
}

/// The address of an array that may be absent.
fn optional(array: Option<&Array<f32>>, n: usize) -> u64 {
    array.map_or(0, |array| array.first(n))
}

impl Cuda {
    /// A device over a queue.
    pub fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, precision: Precision::default(), parts: Arc::default() }
    }

    /// Bytes of the card's memory that are free.
    pub fn free_memory(&self) -> Result<usize, DeviceError> {
        self.queue.free_memory()
    }

    pub(crate) fn launch<A>(
        &self,
        kernel: &'static str,
        grid: [usize; 3],
        threads: usize,
        shared: usize,
        arguments: &A,
    ) {
        if grid.contains(&0) {
            return;
        }
        self.queue.launch(&Launch {
            kernel,
            grid: grid.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            threads: threads as u32,
            shared: (shared * size_of::<f32>()) as u32,
            arguments: std::ptr::from_ref(arguments).cast::<c_void>(),
            size: size_of::<A>(),
        });
    }

    /// A thread for each of `n` elements, of each of `owners`.
    pub(crate) fn each<A>(&self, kernel: &'static str, n: usize, owners: usize, arguments: &A) {
        self.launch(kernel, [n.div_ceil(BLOCK), owners, 1], BLOCK, 0, arguments);
    }

    /// A warp for each of `n` rows.
    pub(crate) fn warps<A>(&self, kernel: &'static str, n: usize, arguments: &A) {
        self.launch(kernel, [n.div_ceil(BLOCK / WARP), 1, 1], BLOCK, 0, arguments);
    }

    /// A block for each of `n` owners.
    pub(crate) fn blocks<A>(&self, kernel: &'static str, n: usize, arguments: &A) {
        self.launch(kernel, [n, 1, 1], BLOCK, 0, arguments);
    }
}

fn replay_of(replay: &Tables<'_, Cuda>) -> args::Replay {
    let Tables { shared, own, units, .. } = replay;
    args::Replay {
        shared_observation: shared.observation.first(0),
        shared_memory: shared.memory.first(0),
        own_observation: own.observation.first(0),
        own_memory: own.memory.first(0),
        centre: units.observation_centre.first(units.agents * units.observation_width),
        scale: units.observation_scale.first(units.agents * units.observation_width),
        s: int(units.observation_width),
        m: int(replay.memory_width),
        history: i32::from(replay.history),
        shared_capacity: int(shared.capacity),
        ring: int(own.capacity / replay.population),
    }
}

impl Device for Cuda {
    type Num = f32;
    type Buf = Array<f32>;
    type Rows = Array<u32>;
    type Program = Sequence;

    const PARTS: usize = 1;
    const HOLDS_EPISODES: bool = true;
    const PASSES_EQUAL_STEPS: bool = false;

    fn fork(&self) -> Result<Self, DeviceError> {
        Ok(Self { queue: self.queue.fork()?, parts: Arc::default(), ..self.clone() })
    }

    fn with_precision(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    fn buffer(&self, n: usize) -> Result<Array<f32>, DeviceError> {
        Array::zeros(&self.queue, n)
    }

    fn rows(&self, n: usize) -> Result<Array<u32>, DeviceError> {
        Array::zeros(&self.queue, n)
    }

    fn write(&self, to: &mut Array<f32>, at: usize, from: &[f32]) {
        to.write(at, from);
    }

    fn steer(&self, to: &mut Array<f32>, at: usize, from: &[f64]) {
        let numbers: Vec<f32> = from.iter().map(|x| *x as f32).collect();
        to.write(at, &numbers);
    }

    fn write_rows(&self, to: &mut Array<u32>, at: usize, from: &[u32]) {
        to.write(at, from);
    }

    fn copy(&self, from: &Array<f32>, from_at: usize, to: &mut Array<f32>, to_at: usize, n: usize) {
        if n > 0 {
            self.queue.copy(from.part(from_at, n), to.part(to_at, n), n * size_of::<f32>());
        }
    }

    fn fill(&self, to: &mut Array<f32>, at: usize, n: usize, value: f32) {
        self.each("fill", n, 1, &args::Fill { to: to.part(at, n), n: n as u64, value });
    }

    fn read(&self, from: &Array<f32>, at: usize, to: &mut [f32]) -> Result<(), DeviceError> {
        from.read(at, to)
    }

    fn run(&self, program: &mut Sequence, body: impl FnOnce()) -> Result<(), DeviceError> {
        match program {
            Sequence::Fresh => {
                body();
                *program = Sequence::Warm;
            }
            Sequence::Warm => {
                self.queue.begin_recording()?;
                body();
                let graph = self.queue.end_recording()?;
                self.queue.replay(&graph)?;
                *program = Sequence::Recorded(graph);
            }
            Sequence::Recorded(graph) => self.queue.replay(graph)?,
        }
        Ok(())
    }

    fn each_part<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Send + Sync) {
        parts.iter_mut().for_each(work);
    }

    fn normals(&self, addresses: &Array<u32>, each: usize, out: &mut Array<f32>) {
        let owners = addresses.len() / 6;
        let arguments =
            args::Normals { addresses: addresses.first(6 * owners), out: out.first(owners * each), each: int(each) };
        self.each("normals", each.div_ceil(4), owners, &arguments);
    }

    fn forward(&self, net: &Bank<Mlp>, weights: &Array<f32>, input: Input<'_, Self>, pass: &mut Pass<Self>) {
        let (groups, rows) = (net.groups, pass.rows());
        let width = input.first.width + input.second.map_or(0, |second| second.width);
        assert!(
            width == net.shape.inputs() && pass.groups == groups,
            "{groups} networks of {} inputs got rows of {width} numbers and a pass for {} networks",
            net.shape.inputs(),
            pass.groups
        );
        let start = weights_of(net, weights, net.shape.parameters());
        let mut x = Rows::input(&input, groups, rows);
        if self.chain(net, start, &x, pass) {
            return;
        }
        let last = pass.activations.len() - 1;
        for (l, layer) in net.shape.layers().enumerate() {
            let out = layer_of(&pass.activations[l], groups, rows, layer.outputs);
            self.layer(&layer, start.skip(layer.offset), x, groups, rows, out, l < last);
            x = Rows::strided(out, layer.outputs, rows * layer.outputs);
        }
    }

    fn backward(
        &self,
        net: &Bank<Mlp>,
        weights: &Array<f32>,
        input: Input<'_, Self>,
        pass: &mut Pass<Self>,
        gradients: &mut Array<f32>,
    ) {
        let (groups, rows) = (net.groups, pass.rows());
        let start = weights_of(net, weights, net.shape.parameters());
        let to = weights_of(net, gradients, net.shape.parameters());
        for (l, layer) in net.shape.layers().enumerate().rev() {
            let gradient = layer_of(&pass.gradients[l], groups, rows, layer.outputs);
            let x = match l {
                0 => Rows::input(&input, groups, rows),
                _ => Rows::plain(&pass.activations[l - 1], groups, rows, layer.inputs),
            };
            let (weights, to) = (start.skip(layer.offset), to.skip(layer.offset));
            let below = match l {
                0 => 0,
                _ => layer_of(&pass.gradients[l - 1], groups, rows, layer.inputs),
            };
            if is_narrow(&layer, &x) {
                self.narrow_backward(&layer, weights, x.first, gradient, below, [groups, rows], to);
                continue;
            }
            let bias = to.at(layer.inputs * layer.outputs);
            let sizes = [layer.inputs, layer.outputs];
            self.weight_gradient(sizes, x, gradient, groups, rows, [to.start, bias], to.stride);
            if l > 0 {
                self.hidden_gradient(&layer, weights, &pass.activations[l - 1], gradient, below, [groups, rows]);
            }
        }
    }

    fn input_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Array<f32>,
        pass: &Pass<Self>,
        first: usize,
        out: &mut Array<f32>,
        stride: usize,
    ) {
        let (groups, rows, columns) = (net.groups, pass.rows(), net.shape.inputs() - first);
        let Some(layer) = net.shape.layers().next() else { return };
        let gradient = Rows::plain(&pass.gradients[0], groups, rows, layer.outputs);
        let weights = weights_of(net, weights, net.shape.parameters()).skip(layer.offset + first * layer.outputs);
        let to = out.first((groups - 1) * stride + rows * columns);
        self.input_product(&gradient, weights, [rows, columns, layer.outputs], groups, 0, to, stride);
    }

    fn action_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Array<f32>,
        pass: &mut Pass<Self>,
        share: usize,
        first: usize,
        out: &mut Array<f32>,
    ) {
        let (groups, rows, columns) = (net.groups, pass.rows(), net.shape.inputs() - first);
        let start = weights_of(net, weights, net.shape.parameters());
        for (l, layer) in net.shape.layers().enumerate().skip(1).rev() {
            let gradient = layer_of(&pass.gradients[l], groups, rows, layer.outputs);
            let below = layer_of(&pass.gradients[l - 1], groups, rows, layer.inputs);
            let weights = start.skip(layer.offset);
            self.hidden_gradient(&layer, weights, &pass.activations[l - 1], gradient, below, [groups, rows]);
        }
        let Some(layer) = net.shape.layers().next() else { return };
        let arguments = args::ByColumns {
            gradient: layer_of(&pass.gradients[0], groups, rows, layer.outputs),
            weights: start.at(layer.offset + first * layer.outputs),
            out: out.first(groups / share * rows * columns),
            stride: net.stride as u64,
            rows: int(rows),
            n: int(layer.outputs),
            columns: int(columns),
            share: int(share),
        };
        let grid = [rows.div_ceil(32), groups / share, columns.div_ceil(8)];
        self.launch("by_columns", grid, BLOCK, 0, &arguments);
    }

    fn sample(&self, pass: &Pass<Self>, noise: &Array<f32>, clip: LogStd, drawn: &mut Drawn<Self>) {
        let (rows, width) = (pass.groups * pass.rows(), pass.outputs() / 2);
        let arguments = args::Sample {
            head: pass.output().first(rows * 2 * width),
            noise: noise.first(rows * width),
            action: drawn.action.first(rows * width),
            log_prob: drawn.log_prob.first(rows),
            rows: rows as u64,
            width: int(width),
            min: clip.min as f32,
            max: clip.max as f32,
        };
        self.each("sample", rows, 1, &arguments);
    }

    fn mode(&self, pass: &Pass<Self>, action: &mut Array<f32>) {
        let width = pass.outputs() / 2;
        let n = pass.groups * pass.rows() * width;
        let arguments =
            args::Mode { head: pass.output().first(2 * n), action: action.first(n), n: n as u64, width: int(width) };
        self.each("mode", n, 1, &arguments);
    }

    fn sample_backward(&self, pass: &mut Pass<Self>, s: SampleBackward<'_, Self>) {
        let (rows, width, agents) = (pass.rows(), pass.outputs() / 2, s.log_temperature.len());
        let n = agents * rows * width;
        let (head, d_head) = pass.output_and_gradient();
        let arguments = args::SampleBackward {
            head: head.first(2 * n),
            noise: s.noise.first(n),
            action: s.drawn.action.first(n),
            action_gradient: s.action_gradient.first(n),
            log_temperature: s.log_temperature.first(agents),
            d_head: d_head.first(2 * n),
            n: n as u64,
            rows: int(rows),
            width: int(width),
            min: s.clip.min as f32,
            max: s.clip.max as f32,
        };
        self.each("sample_backward", n, 1, &arguments);
    }

    fn critic_target(&self, t: CriticTarget<'_, Self>, target: &mut Array<f32>) {
        let (rows, agents) = (t.pass.rows(), t.pass.groups / t.head.of);
        let n = agents * rows;
        let [low, high] = t.range.unwrap_or_default();
        let arguments = args::CriticTarget {
            values: t.pass.output().first(t.pass.groups * rows),
            signal: t.signal.first(n),
            not_terminal: t.not_terminal.first(n),
            log_prob: optional(t.entropy.map(|(log_prob, _)| log_prob), n),
            log_temperature: optional(t.entropy.map(|(_, log_temperature)| log_temperature), agents),
            target: target.first(n),
            agents: int(agents),
            rows: int(rows),
            of: int(t.head.of),
            first: int(t.head.first),
            networks: int(t.head.networks),
            limited: i32::from(t.range.is_some()),
            discount: t.discount as f32,
            low: low as f32,
            high: high as f32,
        };
        self.each("critic_target", n, 1, &arguments);
    }

    fn critic_loss(&self, head: HeadPlace, target: &Array<f32>, pass: &mut Pass<Self>, loss: &mut Array<f32>) {
        let (rows, groups) = (pass.rows(), pass.groups);
        let agents = groups / head.of;
        let (values, gradient) = pass.output_and_gradient();
        let arguments = args::CriticLoss {
            values: values.first(groups * rows),
            target: target.first(agents * rows),
            gradient: gradient.first(groups * rows),
            loss: loss.first(agents),
            rows: int(rows),
            of: int(head.of),
            first: int(head.first),
            networks: int(head.networks),
        };
        self.blocks("critic_loss", agents, &arguments);
    }

    fn climb(&self, head: HeadPlace, weights: &Array<f32>, pass: &mut Pass<Self>, value: &mut Array<f32>) {
        let (rows, groups) = (pass.rows(), pass.groups);
        let agents = groups / head.of;
        let (values, gradient) = pass.output_and_gradient();
        let arguments = args::Climb {
            values: values.first(groups * rows),
            weights: weights.first(agents * head.heads),
            gradient: gradient.first(groups * rows),
            value: value.first(agents),
            rows: int(rows),
            of: int(head.of),
            first: int(head.first),
            networks: int(head.networks),
            index: int(head.index),
            heads: int(head.heads),
        };
        self.blocks("climb", agents, &arguments);
    }

    fn temperature_gradient(
        &self,
        log_temperature: &Array<f32>,
        drawn: &Drawn<Self>,
        target_entropy: f64,
        gradient: &mut Array<f32>,
        entropy: &mut Array<f32>,
    ) {
        let agents = log_temperature.len();
        let rows = drawn.log_prob.len() / agents;
        let arguments = args::Temperature {
            log_temperature: log_temperature.first(agents),
            log_prob: drawn.log_prob.first(agents * rows),
            gradient: gradient.first(agents),
            entropy: entropy.first(agents),
            rows: int(rows),
            target_entropy: target_entropy as f32,
        };
        self.blocks("temperature", agents, &arguments);
    }

    fn adam(&self, p: &mut Parameters<Self>, step: &AdamStep<'_, Self>, follower: Option<(&mut Array<f32>, f64)>) {
        let AdamSettings { beta1, beta2, epsilon } = step.settings;
        let n = p.owners * p.each;
        let share = follower.as_ref().map_or(0.0, |(_, share)| *share);
        let arguments = args::Adam {
            values: p.values.first(n),
            first: p.moments[0].first(n),
            second: p.moments[1].first(n),
            gradients: p.gradients.first(n),
            rate: step.rate.first(p.owners),
            correction: step.correction.first(p.owners),
            active: step.active.first(p.owners),
            shrink: optional(step.shrink, p.owners),
            factor: optional(step.factor, p.owners),
            follower: optional(follower.as_ref().map(|(follower, _)| &**follower), n),
            each: int(p.each),
            gain1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            gain2: (1.0 - beta2) as f32,
            epsilon: epsilon as f32,
            share: share as f32,
        };
        self.each("adam", p.each.div_ceil(4), p.owners, &arguments);
    }

    fn gather(&self, replay: &Tables<'_, Self>, rows: &Array<u32>, batch: &mut Batch<Self>) {
        let Tables { shared, own, units, .. } = replay;
        let (n, a) = (rows.len(), units.action_width);
        let width = units.observation_width + if replay.history { replay.memory_width } else { 0 };
        let arguments = args::Gather {
            replay: replay_of(replay),
            rows: rows.first(n),
            action_middle: units.action_middle.first(a),
            action_half: units.action_half.first(a),
            shared_action: shared.action.first(0),
            shared_reward: shared.reward.first(0),
            shared_score: shared.score.first(0),
            shared_not_terminal: shared.not_terminal.first(0),
            own_action: own.action.first(0),
            own_reward: own.reward.first(0),
            own_score: own.score.first(0),
            own_not_terminal: own.not_terminal.first(0),
            state: batch.state.first(n * width),
            next_state: batch.next_state.first(n * width),
            action: batch.action.first(n * a),
            reward: batch.reward.first(n),
            score: batch.score.first(n),
            not_terminal: batch.not_terminal.first(n),
            reward_centre: units.reward_centre.first(units.agents),
            reward_scale: units.reward_scale.first(units.agents),
            n: int(n),
            size: int(batch.size),
            a: int(a),
        };
        self.warps("gather", n, &arguments);
    }

    fn append(&self, steps: &Appended<Self>, scores: Option<Scored<'_, Self>>, own: &mut Table<Self>) {
        let agents = steps.population;
        let (s, a) = (steps.next_observation.len() / agents, steps.action.len() / agents);
        let m = scores.as_ref().map_or(0, |scores| scores.memory.len() / agents);
        let arguments = args::Append {
            rows: steps.rows.first(2 * agents),
            new_action: steps.action.first(agents * a),
            new_reward: steps.reward.first(agents),
            new_not_terminal: steps.not_terminal.first(agents),
            next_observation: steps.next_observation.first(agents * s),
            new_score: optional(scores.as_ref().map(|scores| scores.score), agents),
            new_memory: optional(scores.as_ref().map(|scores| scores.memory), agents * m),
            observation: own.observation.first(0),
            memory: own.memory.first(0),
            action: own.action.first(0),
            reward: own.reward.first(0),
            score: own.score.first(0),
            not_terminal: own.not_terminal.first(0),
            s: int(s),
            m: int(m),
            a: int(a),
        };
        self.blocks("append", agents, &arguments);
    }

    fn see(
        &self,
        units: &Units<Self>,
        observation: &Array<f32>,
        memory: Option<(&Array<f32>, usize)>,
        state: &mut Array<f32>,
    ) {
        let s = units.observation_width;
        let m = memory.map_or(0, |(_, width)| width);
        let rows = (observation.len() / s).min(state.len() / (s + m));
        let arguments = args::See {
            observation: observation.first(rows * s),
            memory: optional(memory.map(|(memory, _)| memory), rows * m),
            centre: units.observation_centre.first(units.agents * s),
            scale: units.observation_scale.first(units.agents * s),
            state: state.first(rows * (s + m)),
            rows: rows as u64,
            each: (rows / units.agents) as u64,
            s: int(s),
            m: int(m),
        };
        self.each("see", rows * (s + m), 1, &arguments);
    }

    fn to_env(&self, units: &Units<Self>, action: &Array<f32>, out: &mut Array<f32>) {
        let n = action.len().min(out.len());
        let arguments = args::ToEnv {
            action: action.first(n),
            middle: units.action_middle.first(units.action_width),
            half: units.action_half.first(units.action_width),
            out: out.first(n),
            n: n as u64,
            a: int(units.action_width),
        };
        self.each("to_env", n, 1, &arguments);
    }

    fn spans(
        &self,
        column: &Array<f32>,
        width: usize,
        places: &Array<u32>,
        [steps, rows]: [usize; 2],
        out: &mut Array<f32>,
    ) {
        let groups = places.len() / (2 * rows);
        let n = steps * rows * width;
        let arguments = args::Spans {
            column: column.first(0),
            places: places.first(2 * groups * rows),
            out: out.first(groups * n),
            width: int(width),
            steps: int(steps),
            rows: int(rows),
        };
        self.each("spans", n, groups, &arguments);
    }

    fn normalise(&self, n: Normalise<'_, Self>, out: &mut Array<f32>) {
        let (s, a, rows) = (n.observation_width, n.action_width, n.replicas * n.rows);
        let arguments = args::Normalise {
            observation: n.observation.first(rows * s),
            action: n.action.first(rows * a),
            centre: n.centre.first(n.replicas * (s + a)),
            scale: n.scale.first(n.replicas * (s + a)),
            out: out.first(rows * (s + a)),
            replicas: int(n.replicas),
            rows: int(n.rows),
            s: int(s),
            a: int(a),
        };
        self.each("normalise", rows * (s + a), 1, &arguments);
    }

    fn gru_forward(&self, net: &Bank<Gru>, weights: &Array<f32>, input: Columns<'_, Self>, pass: &mut GruPass<Self>) {
        let (h, inputs, groups, all) = (net.shape.hidden, net.shape.inputs, net.groups, pass.steps * pass.rows);
        let start = weights_of(net, weights, net.shape.parameters());
        let product = args::Product {
            b: start.start,
            bias: start.at(net.shape.offsets().input_bias),
            out: pass.gates.first(groups * all * 3 * h),
            b_stride: net.stride as u64,
            out_stride: (all * 3 * h) as u64,
            m: int(all),
            n: int(3 * h),
            k: int(inputs),
            ..factors(&Rows::columns(&input, groups, all), groups)
        };
        self.product(Kind::Output, &product);
        self.scan(["gru_forward_16", "gru_forward_32", "gru_forward_64", "gru_forward_0"], 2, net, weights, pass, 0);
    }

    fn gru_backward(
        &self,
        net: &Bank<Gru>,
        weights: &Array<f32>,
        input: Columns<'_, Self>,
        dh: &Array<f32>,
        pass: &mut GruPass<Self>,
        gradients: &mut Array<f32>,
        dx: Option<&mut Array<f32>>,
    ) {
        let (h, inputs, groups, all) = (net.shape.hidden, net.shape.inputs, net.groups, pass.steps * pass.rows);
        let dh = dh.first(groups * (all + pass.rows) * h);
        let kernels = ["gru_backward_16", "gru_backward_32", "gru_backward_64", "gru_backward_0"];
        self.scan(kernels, 6, net, weights, pass, dh);
        let offsets = net.shape.offsets();
        let to = weights_of(net, gradients, net.shape.parameters());
        let input_side = pass.input_side.first(groups * all * 3 * h);
        let memory_side = pass.memory_side.first(groups * all * 3 * h);
        let x = Rows::columns(&input, groups, all);
        let to_input = [to.at(offsets.input), to.at(offsets.input_bias)];
        self.weight_gradient([inputs, 3 * h], x, input_side, groups, all, to_input, to.stride);
        let past = Rows::strided(pass.hidden.first(groups * (all + pass.rows) * h), h, (all + pass.rows) * h);
        let to_memory = [to.at(offsets.memory), to.at(offsets.memory_bias)];
        self.weight_gradient([h, 3 * h], past, memory_side, groups, all, to_memory, to.stride);
        if let Some(dx) = dx {
            let side = Rows::strided(input_side, 3 * h, all * 3 * h);
            let out = dx.first(groups * all * inputs);
            let weights = weights_of(net, weights, net.shape.parameters());
            self.input_product(&side, weights, [all, inputs, 3 * h], groups, 0, out, all * inputs);
        }
    }

    fn gru_step(
        &self,
        net: &Bank<Gru>,
        weights: &Array<f32>,
        input: Columns<'_, Self>,
        hidden: &mut Array<f32>,
        pass: &mut GruPass<Self>,
    ) {
        let Gru { inputs, hidden: h } = net.shape;
        assert!(h <= 1024, "a memory of {h} numbers: a graphics card takes up to 1024");
        let arguments = args::GruStep {
            input: address(&input, net.groups, pass.rows),
            weights: weights_of(net, weights, net.shape.parameters()).start,
            hidden: hidden.first(net.groups * pass.rows * h),
            input_stride: input.stride as u64,
            stride: net.stride as u64,
            inputs: int(inputs),
            share: int(input.share),
            rows: int(pass.rows),
            h: int(h),
        };
        self.launch("gru_step", [pass.rows, net.groups, 1], h.next_multiple_of(WARP), inputs + h, &arguments);
    }

    fn log_prob(&self, pass: &Pass<Self>, members: usize, out: &mut Array<f32>) {
        let (rows, replicas) = (pass.rows(), pass.groups / members);
        let arguments = args::LogProb {
            logits: pass.output().first(replicas * members * rows),
            out: out.first(replicas * rows),
            replicas: int(replicas),
            members: int(members),
            rows: int(rows),
        };
        self.each("log_prob", replicas * rows, 1, &arguments);
    }

    fn trajectory_loss(&self, t: TrajectoryLoss<'_, Self>, pass: &mut Pass<Self>, loss: &mut Array<f32>) {
        let (groups, n) = (loss.len(), loss.len() * t.steps * t.rows);
        let (logits, gradient) = pass.output_and_gradient();
        let arguments = args::Trajectory {
            labels: t.labels.first(n),
            scale: t.scale.first(groups),
            logits: logits.first(n),
            gradient: gradient.first(n),
            loss: loss.first(groups),
            steps: int(t.steps),
            rows: int(t.rows),
        };
        self.blocks("trajectory", groups, &arguments);
    }

    fn sum(&self, values: &Array<f32>, sum: &mut Array<f32>) {
        let (n, owners) = (values.len(), sum.len());
        let arguments = args::Sum { values: values.first(n), sum: sum.first(owners), each: int(n / owners) };
        self.blocks("sum", owners, &arguments);
    }

    fn add_gradients(&self, sum: &mut Array<f32>, other: &Array<f32>) {
        let n = sum.len();
        self.each("add", n, 1, &args::Add { sum: sum.first(n), other: other.first(n), n: n as u64 });
    }

    fn clip(&self, gradients: &Array<f32>, groups: usize, limit: f64, factor: &mut Array<f32>) {
        let each = gradients.len() / groups;
        let arguments = args::Clip {
            gradients: gradients.first(groups * each),
            factor: factor.first(groups),
            limit,
            each: int(each),
        };
        self.blocks("clip", groups, &arguments);
    }

    fn floor(
        &self,
        log_prob: &Array<f32>,
        floor: f64,
        active: &Array<f32>,
        sum: &mut Array<f32>,
        score: &mut Array<f32>,
    ) {
        let n = log_prob.len();
        let arguments = args::FloorSum {
            log_prob: log_prob.first(n),
            active: active.first(n),
            sum: sum.first(n),
            score: score.first(n),
            n: n as u64,
            floor: floor as f32,
        };
        self.each("floor_sum", n, 1, &arguments);
    }

    fn memory(&self, m: MemoryRows<'_, Self>, memory: &mut Array<f32>) {
        let width = m.members * m.width + 1;
        let arguments = args::Remember {
            hidden: m.hidden.first(m.rows * m.members * m.width),
            sum: m.sum.first(m.rows),
            memory: memory.first(m.rows * width),
            rows: int(m.rows),
            replicas: int(m.replicas),
            members: int(m.members),
            h: int(m.width),
            floor: m.floor as f32,
        };
        self.each("remember", m.rows * width, 1, &arguments);
    }
}
